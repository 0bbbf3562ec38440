/* Launches on the CPU: one kernel gives correct results for all lengths, head groups and strides.

   REQUIRES: capi
   RUN: capi-launch | FileCheck %s
   CHECK: PASS
*/

#include "Inputs/Testing.h"

static const char *const kDense = "memref<?x?x?x32xf32>";
static const char *const kStrided = "memref<?x?x?x32xf32, strided<[?, ?, ?, 1], offset: ?>>";

/* B, Hq, Hkv, Nq, Nk */
static const int64_t kShapes[][5] = {{1, 1, 1, 1, 1},     {2, 4, 4, 17, 17}, {1, 4, 2, 64, 113},
                                     {2, 3, 1, 113, 64},  {1, 2, 2, 128, 1}, {1, 2, 1, 1, 203},
                                     {1, 1, 1, 130, 257}, {0, 2, 1, 8, 8}};

static void launch(FlashAttnKernel kernel, const int64_t *shape, int causal, int withLse,
                   int transposed) {
  /* Transposed: arrays [B, N, H, D] viewed as [B, H, N, D]. */
  int64_t q[4] = {shape[0], shape[1], shape[3], 32}, k[4] = {shape[0], shape[2], shape[4], 32};
  FlashAttnTensor t[5] = {makeTensor(4, q, 1), makeTensor(4, k, 2), makeTensor(4, k, 3),
                          makeTensor(4, q, 0), makeTensor(3, q, 0)};
  if (transposed)
    for (int i = 0; i < 4; ++i) {
      t[i].strides[2] = t[i].sizes[1] * 32;
      t[i].strides[1] = 32;
    }
  CHECK(flashattnLaunch(kernel, NULL, t, withLse ? 5 : 4) == FLASHATTN_OK);
  double difference = compareAttention(&t[0], &t[1], &t[2], &t[3], withLse ? &t[4] : NULL, causal);
  if (!(difference < 1e-5)) {
    fprintf(stderr, "difference %g for %dx%dx%dx%dx%d, causal %d\n", difference, (int)shape[0],
            (int)shape[1], (int)shape[2], (int)shape[3], (int)shape[4], causal);
    ++failures;
  }
  for (int i = 0; i < 5; ++i)
    free(t[i].data);
}

/* Attention over two parts of the keys, merged: as over all keys, with a sink logit. */
static void combine(void) {
  enum { kParts = 2, kHeads = 2, kLength = 5, kWidth = 8, kRows = kHeads * kLength };
  FlashAttnKernel kernel = compileFor(
      "cpu", "func.func @f(%parts: memref<2x?x2x?x8xf32>, %lses: memref<2x?x2x?xf32>, %sinks: "
             "memref<2xf32>,\n"
             "             %o: memref<?x2x?x8xf32>) {\n"
             "  flashattn.combine ins(%parts, %lses : memref<2x?x2x?x8xf32>, memref<2x?x2x?xf32>)\n"
             "      sink_logits(%sinks : memref<2xf32>) outs(%o : memref<?x2x?x8xf32>)\n"
             "  return\n}\n");
  FlashAttnTensor t[4] = {makeTensor(5, (int64_t[]){kParts, 1, kHeads, kLength, kWidth}, 1),
                          makeTensor(4, (int64_t[]){kParts, 1, kHeads, kLength}, 2),
                          makeTensor(1, (int64_t[]){kHeads}, 3),
                          makeTensor(4, (int64_t[]){1, kHeads, kLength, kWidth}, 0)};
  CHECK(flashattnLaunch(kernel, NULL, t, 4) == FLASHATTN_OK);
  const float *parts = t[0].data, *lses = t[1].data, *sinks = t[2].data, *o = t[3].data;
  for (int row = 0; row < kRows; ++row) {
    double first = exp(lses[row]), second = exp(lses[kRows + row]);
    for (int i = 0, at = row * kWidth; i < kWidth; ++i, ++at) {
      double merged = first * parts[at] + second * parts[kRows * kWidth + at];
      CHECK(fabs(merged / (first + second + exp(sinks[row / kLength])) - o[at]) < 1e-5);
    }
  }
  for (int i = 0; i < 4; ++i)
    free(t[i].data);
  CHECK(flashattnKernelFree(kernel) == FLASHATTN_OK);
}

int main(void) {
  combine();
  for (int causal = 0; causal < 2; ++causal)
    for (int strided = 0; strided < 2; ++strided)
      for (int withLse = 0; withLse < 2; ++withLse) {
        const char *clauses = causal ? "mask(#flashattn.causal)" : "";
        FlashAttnKernel kernel =
            compileFor("cpu", attentionText(strided ? kStrided : kDense,
                                            strided ? " {flashattn.aligned_rows}" : "", clauses,
                                            withLse ? "memref<?x?x?xf32>" : ""));
        for (size_t i = 0; i < sizeof(kShapes) / sizeof(*kShapes); ++i)
          for (int transposed = 0; transposed <= strided; ++transposed)
            launch(kernel, kShapes[i], causal, withLse, transposed);
        CHECK(flashattnKernelFree(kernel) == FLASHATTN_OK);
      }

  /* An output interleaved with inputs: q, k, v and o are slices of one array [B, N, 4, H, D]. */
  enum { kLength = 17, kHeads = 3, kPacked = 2 * kLength * 4 * kHeads * 32 };
  float *array = malloc(kPacked * sizeof(float));
  for (uint32_t i = 0; i < kPacked; ++i)
    array[i] = noise(5, i);
  FlashAttnTensor slices[4];
  for (int i = 0; i < 4; ++i) {
    slices[i] = describe(FLASHATTN_F32, 4, (int64_t[]){2, kHeads, kLength, 32});
    slices[i].strides[0] = kPacked / 2, slices[i].strides[1] = 32;
    slices[i].strides[2] = 4 * kHeads * 32;
    slices[i].data = array + i * kHeads * 32;
  }
  FlashAttnKernel strided = compileFor("cpu", attentionText(kStrided, "", "", ""));
  CHECK(flashattnLaunch(strided, NULL, slices, 4) == FLASHATTN_OK);
  CHECK(compareAttention(&slices[0], &slices[1], &slices[2], &slices[3], NULL, 0) < 1e-5);
  CHECK(flashattnKernelFree(strided) == FLASHATTN_OK);
  free(array);

  /* Scalars of all types, in a module without attention. */
  const char *text =
      "func.func @scale(%x: memref<?xf32>, %n: index, %flag: i1, %word: i32, %y: memref<f32>,\n"
      "                 %by: f32) {\n"
      "  %v = memref.load %x[%n] : memref<?xf32>\n"
      "  %f = arith.sitofp %word : i32 to f32\n"
      "  %w = arith.mulf %v, %f : f32\n"
      "  %s = arith.select %flag, %w, %v : f32\n"
      "  %t = arith.mulf %s, %by : f32\n"
      "  memref.store %t, %y[] : memref<f32>\n"
      "  return\n}\n";
  FlashAttnKernel scale = compileFor("cpu", text);
  float x[3] = {1, 2, 3}, y = 0;
  const float by = 0.5f;
  FlashAttnTensor t[6] = {
      describe(FLASHATTN_F32, 1, (int64_t[]){3}), {.scalar = 2, .elementType = FLASHATTN_INDEX},
      {.scalar = 1, .elementType = FLASHATTN_I1}, {.scalar = -4, .elementType = FLASHATTN_I32},
      describe(FLASHATTN_F32, 0, NULL),           {.elementType = FLASHATTN_F32}};
  memcpy(&t[5].scalar, &by, sizeof(by));
  t[0].data = x;
  t[4].data = &y;
  CHECK(flashattnLaunch(scale, NULL, t, 6) == FLASHATTN_OK && y == -6);
  t[2].scalar = 0;
  CHECK(flashattnLaunch(scale, NULL, t, 6) == FLASHATTN_OK && y == 1.5f);
  /* In a packed launch, scalars are passed among the addresses; those in the tensors are
     ignored. */
  FlashAttnPackedLaunch packed = {.kernel = scale, .tensors = t, .numTensors = 6};
  intptr_t words[6] = {(intptr_t)x, 1, 1, -5, (intptr_t)&y, (intptr_t)t[5].scalar};
  for (int i = 0; i < 6; ++i)
    packed.data[i] = (void *)words[i];
  CHECK(flashattnLaunchPacked(&packed) == FLASHATTN_OK && y == -5);
  CHECK(flashattnKernelFree(scale) == FLASHATTN_OK);
  return finish();
}
