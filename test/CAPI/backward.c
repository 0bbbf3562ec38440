/* The backward pass through the C API: queries about kernels of attention_backward on every chip,
   results on the CPU, and errors of a launch.

   REQUIRES: capi
   RUN: env FLASHATTN_CUDA_DRIVER=/nowhere/libcuda.so capi-backward | FileCheck %s
   CHECK: PASS
*/

#include "Inputs/Testing.h"

#define ROWS "memref<?x?x?x16xELEMENT>"
#define SUMS "memref<?x?x?xf32>"

/* All operands, in the order of the op. */
static const char kText[] =
    "func.func @gradients(%q: " ROWS ", %k: " ROWS ", %v: " ROWS ", %o: " ROWS ", %lse: " SUMS ",\n"
    "    %do: " ROWS ", %d_lse: " SUMS ", %bias: memref<1x?x?x?xf32>,\n"
    "    %attn_mask: memref<?x1x1x?xi1>,\n"
    "    %sinks: memref<?xf32>, %lengths: memref<?xi32>, %offset: index, %scale: f32, %dq: " ROWS
    ",\n"
    "    %dk: " ROWS ", %dv: " ROWS ", %d_bias: memref<1x?x?x?xf32>, %d_sinks: memref<?xf32>) {\n"
    "  flashattn.attention_backward mask(#flashattn.causal) scale(%scale)\n"
    "      ins(%q, %k, %v, %o, %lse, %do : " ROWS ", " ROWS ", " ROWS ", " ROWS ", " SUMS ", " ROWS
    ")\n"
    "      d_lse(%d_lse : " SUMS ") bias(%bias : memref<1x?x?x?xf32>)\n"
    "      attn_mask(%attn_mask : memref<?x1x1x?xi1>) sink_logits(%sinks : memref<?xf32>)\n"
    "      kv_len(%lengths : memref<?xi32>) offset(%offset)\n"
    "      outs(%dq, %dk, %dv : " ROWS ", " ROWS ", " ROWS ")\n"
    "      d_bias(%d_bias : memref<1x?x?x?xf32>) d_sink_logits(%d_sinks : memref<?xf32>)\n"
    "  return\n}\n";

static const char *const kRoles[] = {
    "q",           "k",      "v",      "o",     "lse", "d_o", "d_lse", "bias",   "attn_mask",
    "sink_logits", "kv_len", "offset", "scale", "dq",  "dk",  "dv",    "d_bias", "d_sink_logits"};
enum { kCount = sizeof(kRoles) / sizeof(*kRoles), kFirstOutput = 13 };

/* Returns kText with this element type of the rows. */
static const char *textOf(const char *element) {
  static char text[sizeof(kText) * 2];
  char *to = text;
  for (const char *from = kText; *from;) {
    int isElement = !strncmp(from, "ELEMENT", 7);
    to += sprintf(to, "%.*s", isElement ? (int)strlen(element) : 1, isElement ? element : from);
    from += isElement ? 7 : 1;
  }
  return text;
}

static void checkQueries(void) {
  static const char *const chips[] = {"cpu", "sm_80", "sm_90a"};
  for (int i = 0; i < 3; ++i) {
    FlashAttnKernel kernel = compileFor(chips[i], textOf(i ? "f16" : "f32"));
    FlashAttnKernelInfo info = {.size = sizeof(info)};
    REQUIRE(flashattnKernelGetInfo(kernel, &info) == FLASHATTN_OK);
    REQUIRE(info.numArguments == kCount);
    /* The sums of each query need a workspace, whose size depends on the lengths. */
    CHECK(info.workspaceBytes == (i ? -1 : 0));
    char key[64];
    snprintf(key, sizeof(key), "%s/16/16/%s/triangular/backward", chips[i], i ? "f16" : "f32");
    CHECK(!strcmp(info.tuningKey, key));
    for (int a = 0; a < kCount; ++a) {
      FlashAttnArgumentInfo found = {.size = sizeof(found)};
      REQUIRE(flashattnKernelGetArgument(kernel, a, &found) == FLASHATTN_OK);
      CHECK(!strcmp(found.role, kRoles[a]));
      CHECK(found.direction == (a < kFirstOutput ? FLASHATTN_INPUT : FLASHATTN_OUTPUT));
    }
    const char *schedule = NULL;
    CHECK(flashattnKernelGetText(kernel, "schedule", &schedule, NULL) == FLASHATTN_OK);
    CHECK(!strncmp(schedule, "tile_m = ", 9));
    CHECK(flashattnKernelFree(kernel) == FLASHATTN_OK);
  }
}

/* B = 1, Hq = 2, Hkv = 1: two query heads read one key/value head. */
enum { kQueries = 5, kKeys = 9, kWidth = 16 };
static const float kScale = 0.3f;

typedef struct Gradients {
  double dq[2][kQueries][kWidth], dk[kKeys][kWidth], dv[kKeys][kWidth], dBias[2][kQueries][kKeys],
      dSinks[2];
} Gradients;

/* Computes the gradients by the rules, in double. Writes o and lse, which a launch reads. */
static Gradients differentiate(const FlashAttnTensor *t, int64_t length, int64_t offset) {
  static Gradients g;
  memset(&g, 0, sizeof(g));
  for (int h = 0; h < 2; ++h)
    for (int i = 0; i < kQueries; ++i) {
      double p[kKeys] = {0}, sum = exp(at(&t[9], h, 0, 0, 0)), delta = 0, rowO[kWidth] = {0};
      for (int j = 0; j < kKeys; ++j) {
        if (j >= length || j > i + offset || !((const char *)t[8].data)[j])
          continue;
        double s = 0;
        for (int d = 0; d < kWidth; ++d)
          s += kScale * at(&t[0], 0, h, i, d) * at(&t[1], 0, 0, j, d);
        sum += p[j] = exp(s + at(&t[7], 0, h, i, j));
      }
      for (int d = 0; d < kWidth; ++d) {
        for (int j = 0; j < kKeys; ++j)
          rowO[d] += p[j] / sum * at(&t[2], 0, 0, j, d);
        ((float *)t[3].data)[(h * kQueries + i) * kWidth + d] = (float)rowO[d];
        delta += rowO[d] * at(&t[5], 0, h, i, d);
      }
      ((float *)t[4].data)[h * kQueries + i] = (float)log(sum);
      delta -= at(&t[6], 0, h, i, 0);
      g.dSinks[h] -= exp(at(&t[9], h, 0, 0, 0)) / sum * delta;
      for (int j = 0; j < kKeys; ++j) {
        double dP = 0, weight = p[j] / sum;
        for (int d = 0; d < kWidth; ++d)
          dP += at(&t[5], 0, h, i, d) * at(&t[2], 0, 0, j, d);
        double dS = g.dBias[h][i][j] = weight * (dP - delta);
        for (int d = 0; d < kWidth; ++d) {
          g.dq[h][i][d] += kScale * dS * at(&t[1], 0, 0, j, d);
          g.dk[j][d] += kScale * dS * at(&t[0], 0, h, i, d);
          g.dv[j][d] += weight * at(&t[5], 0, h, i, d);
        }
      }
    }
  return g;
}

static void checkClose(const char *name, const FlashAttnTensor *found, const double *expected) {
  for (int64_t i = 0, n = count(found); i < n; ++i) {
    double difference = fabs(((const float *)found->data)[i] - expected[i]);
    if (!(difference < 1e-5)) {
      fprintf(stderr, "%s[%d]: expected %g but got %g\n", name, (int)i, expected[i],
              ((const float *)found->data)[i]);
      ++failures;
      return;
    }
  }
}

static void checkNumbers(FlashAttnKernel kernel) {
  const int64_t q[4] = {1, 2, kQueries, kWidth}, k[4] = {1, 1, kKeys, kWidth};
  const int64_t scores[4] = {1, 2, kQueries, kKeys}, two[1] = {2}, one[1] = {1};
  FlashAttnTensor t[kCount] = {makeTensor(4, q, 1),
                               makeTensor(4, k, 2),
                               makeTensor(4, k, 3),
                               makeTensor(4, q, 0),
                               makeTensor(3, q, 0),
                               makeTensor(4, q, 4),
                               makeTensor(3, q, 5),
                               makeTensor(4, scores, 6),
                               describe(FLASHATTN_I1, 4, (int64_t[]){1, 1, 1, kKeys}),
                               makeTensor(1, two, 7),
                               describe(FLASHATTN_I32, 1, one),
                               {.elementType = FLASHATTN_INDEX},
                               {.elementType = FLASHATTN_F32},
                               makeTensor(4, q, 0),
                               makeTensor(4, k, 0),
                               makeTensor(4, k, 0),
                               makeTensor(4, scores, 0),
                               makeTensor(1, two, 0)};
  char attnMask[kKeys] = {1, 1, 0, 1, 1, 1, 1, 1, 1};
  int32_t length = 7;
  t[8].data = attnMask;
  t[10].data = &length;
  memcpy(&t[12].scalar, &kScale, sizeof(kScale));
  for (int64_t offset = -1; offset < 4; offset += 4) {
    t[11].scalar = offset;
    Gradients expected = differentiate(t, length, offset);
    CHECK(flashattnLaunch(kernel, NULL, t, kCount) == FLASHATTN_OK);
    checkClose("dq", &t[13], &expected.dq[0][0][0]);
    checkClose("dk", &t[14], &expected.dk[0][0]);
    checkClose("dv", &t[15], &expected.dv[0][0]);
    checkClose("d_bias", &t[16], &expected.dBias[0][0][0]);
    checkClose("d_sink_logits", &t[17], expected.dSinks);
  }

  /* A packed launch has room for the maximum number of arguments. */
  FlashAttnPackedLaunch packed = {.kernel = kernel, .tensors = t, .numTensors = kCount};
  for (int i = 0; i < kCount; ++i)
    packed.data[i] = t[i].data ? t[i].data : (void *)(intptr_t)t[i].scalar;
  CHECK(flashattnLaunchPacked(&packed) == FLASHATTN_OK);

  FlashAttnTensor bad = t[4];
  t[4] = describe(FLASHATTN_F32, 3, (int64_t[]){1, 2, kQueries + 1});
  t[4].data = bad.data;
  FAILS(flashattnLaunch(kernel, NULL, t, kCount), FLASHATTN_ERROR_TENSOR,
        "expected query length of argument 4 ('lse') to be 5 as in argument 0 ('q') but got 6");
  t[4] = bad, bad = t[14], t[14] = t[15];
  FAILS(flashattnLaunch(kernel, NULL, t, kCount), FLASHATTN_ERROR_TENSOR,
        "expected the output argument 15 ('dv') to share no memory with argument 14 ('dk')");
  t[14] = bad, bad = t[5], t[5] = t[13];
  FAILS(flashattnLaunch(kernel, NULL, t, kCount), FLASHATTN_ERROR_TENSOR,
        "expected the output argument 13 ('dq') to share no memory with argument 5 ('d_o')");
  t[5] = bad;
  FAILS(flashattnLaunch(kernel, NULL, t, kCount - 1), FLASHATTN_ERROR_TENSOR,
        "expected 18 tensors but got 17");
  for (int i = 0; i < kCount; ++i)
    if (i != 8 && i != 10)
      free(t[i].data);
}

int main(void) {
  checkQueries();
  FlashAttnKernel kernel = compileFor("cpu", textOf("f32"));
  checkNumbers(kernel);
  CHECK(flashattnKernelFree(kernel) == FLASHATTN_OK);
  return finish();
}
