/* Shared code of the C API's tests: checks that print the actual values, small tensors, and
   reference attention in double. */

#ifndef TESTING_H
#define TESTING_H

#include "flashattn-c/FlashAttn.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int failures = 0;

#define CHECK(condition)                                                                           \
  do {                                                                                             \
    if (!(condition)) {                                                                            \
      fprintf(stderr, "%s:%d: expected %s; last error: %s\n", __FILE__, __LINE__, #condition,      \
              flashattnGetLastError());                                                            \
      ++failures;                                                                                  \
    }                                                                                              \
  } while (0)

/* Like CHECK, but ends the test, because the code that follows depends on the condition. Evaluates
   the condition once, because it may be a call. */
#define REQUIRE(condition)                                                                         \
  do {                                                                                             \
    int before = failures;                                                                         \
    CHECK(condition);                                                                              \
    if (failures != before)                                                                        \
      exit(1);                                                                                     \
  } while (0)

/* The call must fail with this status and a message that contains this text. */
#define FAILS(call, expected, text)                                                                \
  do {                                                                                             \
    int32_t found = (call);                                                                        \
    if (found != (expected) || !strstr(flashattnGetLastError(), text)) {                           \
      fprintf(stderr, "%s:%d: expected status %d and \"%s\" but got %d and \"%s\"\n", __FILE__,    \
              __LINE__, (int)(expected), text, (int)found, flashattnGetLastError());               \
      ++failures;                                                                                  \
    }                                                                                              \
  } while (0)

static inline int finish(void) {
  if (failures)
    return 1;
  printf("PASS\n");
  return 0;
}

/* Returns a number in (-1, 1) that depends only on the seed and the index. */
static inline float noise(uint32_t seed, uint32_t index) {
  uint32_t x = seed * 2654435761u + index * 40503u + 1u;
  x ^= x >> 16, x *= 0x7feb352du, x ^= x >> 15, x *= 0x846ca68bu, x ^= x >> 16;
  return (float)((double)x / 2147483648.0 - 1.0);
}

static inline int64_t count(const FlashAttnTensor *t) {
  int64_t n = 1;
  for (int d = 0; d < t->rank; ++d)
    n *= t->sizes[d];
  return n;
}

/* Returns the description of a dense array, without data. */
static inline FlashAttnTensor describe(int32_t type, int32_t rank, const int64_t *sizes) {
  FlashAttnTensor t = {0};
  t.elementType = type;
  t.rank = rank;
  int64_t stride = 1;
  for (int d = rank - 1; d >= 0; --d) {
    t.sizes[d] = sizes[d];
    t.strides[d] = stride;
    stride *= sizes[d];
  }
  return t;
}

/* Creates a dense f32 array on the host, filled with noise, or with NaN for seed 0. */
static inline FlashAttnTensor makeTensor(int32_t rank, const int64_t *sizes, uint32_t seed) {
  FlashAttnTensor t = describe(FLASHATTN_F32, rank, sizes);
  size_t n = (size_t)count(&t);
  float *data = aligned_alloc(64, (n * sizeof(float) + 127) / 64 * 64);
  for (size_t i = 0; i < n; ++i)
    data[i] = seed ? noise(seed, (uint32_t)i) : NAN;
  t.data = data;
  return t;
}

static inline double at(const FlashAttnTensor *t, int64_t a, int64_t b, int64_t c, int64_t d) {
  const int64_t index[4] = {a, b, c, d};
  int64_t offset = 0;
  for (int i = 0; i < t->rank; ++i)
    offset += index[i] * t->strides[i];
  return ((const float *)t->data)[offset];
}

/* Returns the largest difference of o, and of lse if not null, from reference attention on tensors
   [B, H, N, D]. The causal mask is aligned at the bottom right. */
static inline double compareAttention(const FlashAttnTensor *q, const FlashAttnTensor *k,
                                      const FlashAttnTensor *v, const FlashAttnTensor *o,
                                      const FlashAttnTensor *lse, int causal) {
  int64_t numQueries = q->sizes[2], numKeys = k->sizes[2], dim = q->sizes[3], width = v->sizes[3];
  double *p = malloc(sizeof(double) * (size_t)(numKeys + 1)), worst = 0;
  for (int64_t b = 0; b < q->sizes[0]; ++b)
    for (int64_t h = 0; h < q->sizes[1]; ++h)
      for (int64_t i = 0; i < numQueries; ++i) {
        int64_t kh = h / (q->sizes[1] / k->sizes[1]);
        int64_t end = causal ? i + numKeys - numQueries + 1 : numKeys;
        end = end < 0 ? 0 : end > numKeys ? numKeys : end;
        double max = -INFINITY, sum = 0;
        for (int64_t j = 0; j < end; ++j) {
          p[j] = 0;
          for (int64_t d = 0; d < dim; ++d)
            p[j] += at(q, b, h, i, d) * at(k, b, kh, j, d);
          p[j] /= sqrt((double)dim);
          max = p[j] > max ? p[j] : max;
        }
        for (int64_t j = 0; j < end; ++j)
          sum += p[j] = exp(p[j] - max);
        for (int64_t d = 0; d < width; ++d) {
          double expected = 0;
          for (int64_t j = 0; j < end; ++j)
            expected += p[j] * at(v, b, kh, j, d) / sum;
          double difference = fabs(expected - at(o, b, h, i, d));
          worst = difference <= worst ? worst : difference; /* keeps a NaN */
        }
        if (lse && end > 0) {
          double difference = fabs(max + log(sum) - at(lse, b, h, i, 0));
          worst = difference <= worst ? worst : difference;
        }
      }
  free(p);
  return worst;
}

/* Returns the text of a function on memrefs: attention with these types and clauses. `lse` may be
   "". */
static inline const char *attentionText(const char *type, const char *argumentAttribute,
                                        const char *clauses, const char *lse) {
  static char text[4096];
  snprintf(text, sizeof(text),
           "func.func @attention(%%q: %s%s, %%k: %s%s, %%v: %s%s, %%o: %s%s%s%s) {\n"
           "  flashattn.attention %s\n"
           "      ins(%%q, %%k, %%v : %s, %s, %s)\n"
           "      outs(%%o%s : %s%s%s)\n"
           "  return\n}\n",
           type, argumentAttribute, type, argumentAttribute, type, argumentAttribute, type,
           argumentAttribute, *lse ? ", %lse: " : "", lse, clauses, type, type, type,
           *lse ? ", %lse" : "", type, *lse ? ", " : "", lse);
  return text;
}

/* One query, with split-KV on a GPU. */
static const char *const kDecodeText =
    "func.func @f(%q: memref<?x?x1x64xf16>, %k: memref<?x?x?x64xf16>,\n"
    "             %v: memref<?x?x?x64xf16>, %o: memref<?x?x1x64xf16>) {\n"
    "  flashattn.attention\n"
    "      ins(%q, %k, %v : memref<?x?x1x64xf16>, memref<?x?x?x64xf16>, memref<?x?x?x64xf16>)\n"
    "      outs(%o : memref<?x?x1x64xf16>)\n  return\n}\n";

/* Describes q, k, v and o of kDecodeText, at invalid addresses. */
static inline void makeFewQueries(FlashAttnTensor *few) {
  for (int i = 0; i < 4; ++i) {
    int64_t heads = i == 1 || i == 2 ? 2 : 8, length = i == 1 || i == 2 ? 5000 : 1;
    few[i] = (FlashAttnTensor){(void *)(((intptr_t)i + 1) << 32),
                               {3, heads, length, 64},
                               {heads * length * 64, length * 64, 64, 1},
                               0,
                               FLASHATTN_F16,
                               4};
  }
}

static inline FlashAttnKernel compileFor(const char *chip, const char *text) {
  FlashAttnCompileOptions options;
  flashattnCompileOptionsInit(&options);
  options.chip = chip;
  FlashAttnKernel kernel = NULL;
  REQUIRE(flashattnCompile(text, strlen(text), &options, &kernel) == FLASHATTN_OK);
  return kernel;
}

#endif /* TESTING_H */
