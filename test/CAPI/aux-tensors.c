/* Memrefs that a score_mod loads from by batch and head: values, the sizes that a launch checks,
   and what is refused.

   REQUIRES: capi
   RUN: capi-aux-tensors | FileCheck %s
   CHECK: PASS
*/

#include "Inputs/Testing.h"

static const char *const kBlock = "^bb0(%s: f32, %b: index, %h: index, %p: index, %key: index):\n"
                                  "  %f = memref.load %aux0[%b, %h] : memref<?x?xf32>\n"
                                  "  %x = memref.load %aux1[%h] : memref<?xf16>\n"
                                  "  %g = arith.extf %x : f16 to f32\n"
                                  "  %y = math.fma %s, %f, %g : f32\n"
                                  "  flashattn.yield %y : f32\n";

/* An attention whose score_mod is `block`, packed if `starts` are its clauses. */
static const char *attention(const char *block, const char *arguments, const char *starts) {
  static char text[4096];
  snprintf(
      text, sizeof(text),
      "func.func @f(%%q: memref<%s?x?x32xf32>, %%aux0: memref<?x?xf32>, %%aux1: memref<?xf16>,\n"
      "             %%o: memref<%s?x?x32xf32>%s) {\n"
      "  flashattn.attention ins(%%q, %%q, %%q : memref<%s?x?x32xf32>, memref<%s?x?x32xf32>, "
      "memref<%s?x?x32xf32>)\n"
      "      %s score_mod {\n%s}\n      outs(%%o : memref<%s?x?x32xf32>)\n  return\n}\n",
      *starts ? "1x" : "?x", *starts ? "1x" : "?x", arguments, *starts ? "1x" : "?x",
      *starts ? "1x" : "?x", *starts ? "1x" : "?x", starts, block, *starts ? "1x" : "?x");
  return text;
}

static FlashAttnKernel compile(const char *text) {
  FlashAttnCompileOptions options;
  flashattnCompileOptionsInit(&options);
  options.chip = "cpu";
  options.device = FLASHATTN_DEVICE_CPU;
  options.attentionOnly = 1;
  FlashAttnKernel kernel = NULL;
  REQUIRE(flashattnCompile(text, strlen(text), &options, &kernel) == FLASHATTN_OK);
  return kernel;
}

static void checkLaunches(void) {
  FlashAttnKernel kernel = compile(attention(kBlock, "", ""));
  FlashAttnArgumentInfo info = {.size = sizeof(info)};
  CHECK(flashattnKernelGetArgument(kernel, 1, &info) == FLASHATTN_OK);
  CHECK(info.rank == 2 && info.direction == FLASHATTN_INPUT && info.sizes[0] == -1 && !*info.role);
  int64_t q[4] = {2, 3, 20, 32};
  FlashAttnTensor t[4] = {makeTensor(4, q, 1), makeTensor(2, q, 2), makeTensor(1, &q[1], 0),
                          makeTensor(4, q, 0)};
  /* A summand that is the same for all keys of a head changes no output. */
  static const uint16_t kHalf[] = {0x3c00, 0x4000, 0xc000};
  free(t[2].data);
  t[2].data = (void *)kHalf;
  t[2].elementType = FLASHATTN_F16;
  CHECK(flashattnLaunch(kernel, NULL, t, 4) == FLASHATTN_OK);
  /* The factors of scores are factors of queries. */
  FlashAttnTensor scaled = makeTensor(4, q, 1);
  for (int64_t i = 0; i < count(&scaled); ++i)
    ((float *)scaled.data)[i] *= ((float *)t[1].data)[i / (20 * 32)];
  double difference = compareAttention(&scaled, &t[0], &t[0], &t[3], NULL, 0);
  CHECK(difference < 1e-5);

#define BAD(change, text)                                                                          \
  do {                                                                                             \
    FlashAttnTensor bad[4] = {t[0], t[1], t[2], t[3]};                                             \
    change;                                                                                        \
    FAILS(flashattnLaunch(kernel, NULL, bad, 4), FLASHATTN_ERROR_TENSOR, text);                    \
  } while (0)
  BAD(bad[1].sizes[0] = 1,
      "expected batch size of argument 1 to be 2 as in argument 0 ('q') but got 1");
  BAD((bad[1].sizes[1] = 2, bad[1].strides[0] = 2),
      "expected head count of argument 1 to be 3 as in argument 0 ('q') but got 2");
  BAD(bad[2].sizes[0] = 4,
      "expected head count of argument 2 to be 3 as in argument 0 ('q') but got 4");
  BAD(bad[2].elementType = FLASHATTN_F32, "expected argument 2 with element type f16 but got f32");
  BAD(bad[2].rank = 2, "expected rank 1 of argument 2 but got 2");
  BAD((bad[1].data = bad[3].data), "to share no memory with argument 1");
  flashattnKernelFree(kernel);

  /* S1: the batch is the sequence. */
  kernel = compile(attention(kBlock, ", %starts: memref<?xi32>",
                             "cu_seqlens_q(%starts : memref<?xi32>) "
                             "cu_seqlens_k(%starts : memref<?xi32>)"));
  int64_t rows[4] = {1, 3, 20, 32}, three[1] = {3};
  static const int32_t kStarts[] = {0, 8, 20};
  FlashAttnTensor packed[5] = {makeTensor(4, rows, 1), t[1], t[2], makeTensor(4, rows, 0),
                               describe(FLASHATTN_I32, 1, three)};
  packed[4].data = (void *)kStarts;
  CHECK(flashattnLaunch(kernel, NULL, packed, 5) == FLASHATTN_OK);
  packed[1].sizes[0] = 3;
  FAILS(flashattnLaunch(kernel, NULL, packed, 5), FLASHATTN_ERROR_TENSOR,
        "expected batch size of argument 1 to be 2 to match argument 4 ('cu_seqlens_q') but got 3");
  flashattnKernelFree(kernel);
  for (int i = 0; i < 4; ++i)
    if (i != 2)
      free(t[i].data);
  free(packed[0].data);
  free(packed[3].data);
  free(scaled.data);
}

/* A text from elsewhere loads only at indices whose range a launch checks. */
static void checkUntrusted(void) {
  FlashAttnCompileOptions options;
  flashattnCompileOptionsInit(&options);
  options.chip = "cpu";
  const char *text = attention("^bb0(%s: f32, %b: index, %h: index, %p: index, %key: index):\n"
                               "  %c = arith.constant 1000000 : index\n"
                               "  %f = memref.load %aux0[%b, %c] : memref<?x?xf32>\n"
                               "  flashattn.yield %f : f32\n",
                               "", "");
  CHECK(flashattnCheck(text, strlen(text), &options) == FLASHATTN_OK);
  options.attentionOnly = 1;
  FAILS(flashattnCheck(text, strlen(text), &options), FLASHATTN_ERROR_INVALID_MODULE,
        "'memref.load' op expected the batch and the head as indices in score_mod, for which a "
        "launch checks sizes, but got another value");
}

/* Rows that are known to begin at multiples of 16 bytes are no chunks that a kernel copies: any
 * address will do. */
static void checkAlignment(void) {
  static const char text[] =
      "func.func @f(%q: memref<1x4x?x64xf16>, %aux0: memref<1x4xf32>, %o: memref<1x4x?x64xf16>) {\n"
      "  flashattn.attention ins(%q, %q, %q : memref<1x4x?x64xf16>, memref<1x4x?x64xf16>, "
      "memref<1x4x?x64xf16>)\n"
      "      score_mod {\n"
      "      ^bb0(%s: f32, %b: index, %h: index, %p: index, %key: index):\n"
      "        %f = memref.load %aux0[%b, %h] : memref<1x4xf32>\n"
      "        %y = arith.mulf %s, %f : f32\n"
      "        flashattn.yield %y : f32\n      }\n"
      "      outs(%o : memref<1x4x?x64xf16>)\n  return\n}\n";
  FlashAttnCompileOptions options;
  flashattnCompileOptionsInit(&options);
  options.chip = "sm_90a";
  options.device = FLASHATTN_DEVICE_MODEL;
  FlashAttnKernel kernel = NULL;
  REQUIRE(flashattnCompile(text, strlen(text), &options, &kernel) == FLASHATTN_OK);
  int64_t q[4] = {1, 4, 20, 64}, table[2] = {1, 4}, room[2] = {1, 5};
  FlashAttnTensor t[3] = {describe(FLASHATTN_F16, 4, q), makeTensor(2, room, 2),
                          describe(FLASHATTN_F16, 4, q)};
  t[0].data = calloc(count(&t[0]), 2);
  t[2].data = calloc(count(&t[2]), 2);
  void *whole = t[1].data;
  t[1] = describe(FLASHATTN_F32, 2, table);
  t[1].data = (float *)whole + 1;
  CHECK(flashattnLaunch(kernel, NULL, t, 3) == FLASHATTN_OK);
  free(t[0].data), free(t[2].data), free(whole);
  flashattnKernelFree(kernel);
}

static void checkTexts(void) {
  FlashAttnTensor aux[2] = {{.elementType = FLASHATTN_F32, .rank = 2},
                            {.elementType = FLASHATTN_F16, .rank = 1}};
  CHECK(flashattnCheckScoreModWithAux(kBlock, aux, 2) == FLASHATTN_OK);
  FAILS(flashattnCheckScoreModWithAux(kBlock, aux, 1), FLASHATTN_ERROR_INVALID_ARGUMENT,
        "use of undeclared SSA value name");
  FAILS(flashattnCheckScoreMod(kBlock), FLASHATTN_ERROR_INVALID_ARGUMENT,
        "use of undeclared SSA value name");
  FAILS(flashattnCheckScoreModWithAux(kBlock, NULL, 2), FLASHATTN_ERROR_INVALID_ARGUMENT,
        "expected 2 aux tensors but got null");
  FAILS(flashattnCheckScoreModWithAux(kBlock, aux, -1), FLASHATTN_ERROR_INVALID_ARGUMENT,
        "expected a number of aux tensors of at least 0 but got -1");
  aux[1].rank = 3;
  FAILS(flashattnCheckScoreModWithAux(kBlock, aux, 2), FLASHATTN_ERROR_INVALID_ARGUMENT,
        "expected an element type and a rank from 0 to 2 of aux tensor 1 but got f16 and 3");
  aux[1].elementType = 99;
  FAILS(flashattnCheckScoreModWithAux(kBlock, aux, 2), FLASHATTN_ERROR_INVALID_ARGUMENT,
        "of aux tensor 1 but got no element type and 3");
  aux[1] = (FlashAttnTensor){.elementType = FLASHATTN_F8E5M2, .rank = 1};
  FAILS(flashattnCheckScoreModWithAux(kBlock, aux, 2), FLASHATTN_ERROR_INVALID_ARGUMENT,
        "expected aux tensor 1 of i1, i8, i32, i64, index, f16, bf16, f32 or f64 but got f8E5M2");
  aux[1] = (FlashAttnTensor){.elementType = FLASHATTN_F32, .rank = 1};
  FAILS(flashattnCheckScoreModWithAux(kBlock, aux, 2), FLASHATTN_ERROR_INVALID_ARGUMENT,
        "expected a block of a score_mod but got: ");
  aux[1].elementType = FLASHATTN_F16;
  FAILS(flashattnCheckScoreModWithAux("^bb0(%s: f32):\n  memref.store %s, %aux1[] : memref<f32>\n",
                                      aux, 2),
        FLASHATTN_ERROR_INVALID_ARGUMENT, "expected");
}

int main(void) {
  checkLaunches();
  checkUntrusted();
  checkAlignment();
  checkTexts();
  return finish();
}
