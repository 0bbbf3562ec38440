/* A model of a GPU as a device: results on host memory, errors, and detection of a race and of an
   access out of bounds.

   REQUIRES: capi
   RUN: capi-model | FileCheck %s
   CHECK: PASS
*/

#include "Inputs/Testing.h"

static int32_t compileOn(const char *chip, const char *text, FlashAttnKernel *kernel) {
  FlashAttnCompileOptions options;
  flashattnCompileOptionsInit(&options);
  options.chip = chip;
  options.device = FLASHATTN_DEVICE_MODEL;
  return flashattnCompile(text, strlen(text), &options, kernel);
}

/* f32, 17 queries, 40 keys, and no workspace. */
static void launch(const char *chip) {
  FlashAttnKernel kernel;
  REQUIRE(compileOn(chip,
                    attentionText("memref<?x?x?x32xf32>", "", "mask(#flashattn.causal)",
                                  "memref<?x?x?xf32>"),
                    &kernel) == FLASHATTN_OK);
  FlashAttnKernelInfo info = {.size = sizeof(info)};
  REQUIRE(flashattnKernelGetInfo(kernel, &info) == FLASHATTN_OK);
  CHECK(info.device == FLASHATTN_DEVICE_MODEL && info.isLaunchable && !strcmp(info.chip, chip));
  const char *ptx;
  FAILS(flashattnKernelGetText(kernel, "ptx", &ptx, NULL), FLASHATTN_ERROR_INVALID_ARGUMENT,
        "but got 'ptx'");
  int64_t q[4] = {1, 2, 17, 32}, k[4] = {1, 1, 40, 32}, bytes = -1;
  FlashAttnTensor t[5] = {makeTensor(4, q, 1), makeTensor(4, k, 2), makeTensor(4, k, 3),
                          makeTensor(4, q, 0), makeTensor(3, q, 0)};
  CHECK(flashattnKernelGetWorkspace(kernel, t, 5, &bytes) == FLASHATTN_OK && bytes == 0);
  /* Two interleavings. */
  for (int i = 0; i < 2; ++i)
    CHECK(flashattnLaunch(kernel, NULL, t, 5) == FLASHATTN_OK);
  /* TF32 products have reduced precision. */
  CHECK(compareAttention(&t[0], &t[1], &t[2], &t[3], &t[4], 1) < 2e-3);
  for (int i = 0; i < 5; ++i)
    free(t[i].data);
  CHECK(flashattnKernelFree(kernel) == FLASHATTN_OK);
}

/* Split-KV needs a workspace as large as on the GPU: for at least two splits, an output row of 64
   f32 and a log-sum-exp each. */
static void launchParts(void) {
  FlashAttnKernel kernel;
  REQUIRE(compileOn("sm_80", kDecodeText, &kernel) == FLASHATTN_OK);
  int64_t q[4] = {1, 1, 1, 64}, k[4] = {1, 1, 8192, 64}, bytes = 0;
  FlashAttnTensor t[4] = {describe(FLASHATTN_F16, 4, q), describe(FLASHATTN_F16, 4, k),
                          describe(FLASHATTN_F16, 4, k), describe(FLASHATTN_F16, 4, q)};
  CHECK(flashattnKernelGetWorkspace(kernel, t, 4, &bytes) == FLASHATTN_OK);
  CHECK(bytes >= 2 * 65 * 4);
  for (int i = 0; i < 4; ++i)
    t[i].data = calloc((size_t)count(&t[i]), 2);
  ((uint16_t *)t[3].data)[63] = 0x7c00;
  CHECK(flashattnLaunch(kernel, NULL, t, 4) == FLASHATTN_OK);
  CHECK(((uint16_t *)t[3].data)[63] == 0);
  for (int i = 0; i < 4; ++i)
    free(t[i].data);
  CHECK(flashattnKernelFree(kernel) == FLASHATTN_OK);
}

/* The threads of two warps store their numbers to the same word without synchronization; and a load
   after the end of the caller's memory. */
static const char *const kFaults =
    "func.func @race(%x: memref<?xf32>) {\n"
    "  %c1 = arith.constant 1 : index\n  %c64 = arith.constant 64 : index\n"
    "  %c0 = arith.constant 0 : index\n"
    "  gpu.launch blocks(%bx, %by, %bz) in (%gx = %c1, %gy = %c1, %gz = %c1)\n"
    "             threads(%tx, %ty, %tz) in (%sx = %c64, %sy = %c1, %sz = %c1)\n"
    "             workgroup(%s : memref<1xf32, #gpu.address_space<workgroup>>) {\n"
    "    %i = arith.index_cast %tx : index to i32\n    %v = arith.sitofp %i : i32 to f32\n"
    "    memref.store %v, %s[%c0] : memref<1xf32, #gpu.address_space<workgroup>>\n"
    "    memref.store %v, %x[%tx] : memref<?xf32>\n"
    "    gpu.terminator\n  }\n  return\n}\n"
    "func.func @bounds(%x: memref<?xf32>) {\n"
    "  %c1 = arith.constant 1 : index\n  %c64 = arith.constant 64 : index\n"
    "  gpu.launch blocks(%bx, %by, %bz) in (%gx = %c1, %gy = %c1, %gz = %c1)\n"
    "             threads(%tx, %ty, %tz) in (%sx = %c64, %sy = %c1, %sz = %c1) {\n"
    "    %v = memref.load %x[%tx] : memref<?xf32>\n"
    "    memref.store %v, %x[%tx] : memref<?xf32>\n"
    "    gpu.terminator\n  }\n  return\n}\n";

static void findFault(const char *function, int64_t elements, const char *report) {
  FlashAttnCompileOptions options;
  flashattnCompileOptionsInit(&options);
  options.chip = "sm_80";
  options.device = FLASHATTN_DEVICE_MODEL;
  options.function = function;
  FlashAttnKernel kernel;
  REQUIRE(flashattnCompile(kFaults, strlen(kFaults), &options, &kernel) == FLASHATTN_OK);
  FlashAttnTensor x = makeTensor(1, &elements, 1);
  if (report)
    FAILS(flashattnLaunch(kernel, NULL, &x, 1), FLASHATTN_ERROR_DEVICE, report);
  else
    CHECK(flashattnLaunch(kernel, NULL, &x, 1) == FLASHATTN_OK);
  free(x.data);
  CHECK(flashattnKernelFree(kernel) == FLASHATTN_OK);
}

int main(void) {
  launch("sm_80");
  launch("sm_90a");
  launchParts();
  findFault("race", 64, "seed 1: race: ");
  findFault("race", 64, "memref.store (input:10:5");
  findFault("bounds", 64, NULL);
  findFault("bounds", 63, "access out of bounds: expected a load of 4 bytes");

  FlashAttnKernel kernel;
  FAILS(compileOn("sm_70", kFaults, &kernel), FLASHATTN_ERROR_INVALID_ARGUMENT, "but got 'sm_70'");
  FAILS(compileOn("cpu", kFaults, &kernel), FLASHATTN_ERROR_INVALID_ARGUMENT,
        "expected a GPU's chip, as 'sm_90a', for FLASHATTN_DEVICE_MODEL but got 'cpu'");
  FAILS(compileOn(NULL, kFaults, &kernel), FLASHATTN_ERROR_INVALID_ARGUMENT,
        "for FLASHATTN_DEVICE_MODEL but got none");
  return finish();
}
