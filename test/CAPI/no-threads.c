/* A process that cannot create threads still compiles kernels for a GPU, and loads them.

   REQUIRES: capi, fakecuda
   RUN: env FLASHATTN_CUDA_DRIVER=%fakecuda capi-no-threads | FileCheck %s
   CHECK: PASS
*/

#include "Inputs/Testing.h"
#include <errno.h>
#include <pthread.h>

static int asked = 0;

/* Replaces the C library's function, also in the library under test. */
int pthread_create(pthread_t *thread, const pthread_attr_t *attributes, void *(*start)(void *),
                   void *argument) {
  (void)thread, (void)attributes, (void)start, (void)argument;
  ++asked;
  return EAGAIN;
}

/* Expects `entries` kernels: one for the op, and one that initializes the atomic
   counter. */
static void checkChip(const char *chip, int entries) {
  const char *module = "func.func @attention(%q: memref<?x?x?x128xf16>, %k: memref<?x?x?x128xf16>, "
                       "%v: memref<?x?x?x128xf16>, %o: memref<?x?x?x128xf16>) {\n"
                       "  flashattn.attention mask(#flashattn.causal)\n"
                       "      ins(%q, %k, %v : memref<?x?x?x128xf16>, memref<?x?x?x128xf16>, "
                       "memref<?x?x?x128xf16>)\n"
                       "      outs(%o : memref<?x?x?x128xf16>)\n"
                       "  return\n"
                       "}\n";
  FlashAttnCompileOptions options;
  flashattnCompileOptionsInit(&options);
  options.chip = chip;
  FlashAttnKernel kernel = NULL;
  int before = asked;
  REQUIRE(flashattnCompile(module, strlen(module), &options, &kernel) == FLASHATTN_OK);
  CHECK(asked == before + entries);
  const char *ptx = NULL;
  size_t length = 0;
  REQUIRE(flashattnKernelGetText(kernel, "ptx", &ptx, &length) == FLASHATTN_OK);
  int found = 0;
  while ((ptx = strstr(ptx, ".entry "))) {
    ++found;
    ++ptx;
  }
  CHECK(found == entries);
  flashattnKernelFree(kernel);
}

/* The first launch loads both of its kernels in advance, concurrently if threads are available. */
static void checkLaunch(void) {
  FlashAttnKernel kernel = NULL;
  REQUIRE(flashattnCompile(kDecodeText, strlen(kDecodeText), NULL, &kernel) == FLASHATTN_OK);
  FlashAttnTensor few[4];
  makeFewQueries(few);
  int before = asked;
  CHECK(flashattnLaunch(kernel, NULL, few, 4) == FLASHATTN_OK);
  CHECK(asked == before + 1);
  CHECK(flashattnLaunch(kernel, NULL, few, 4) == FLASHATTN_OK);
  CHECK(asked == before + 1);
  flashattnKernelFree(kernel);
}

int main(void) {
  checkChip("sm_80", 1);
  checkChip("sm_90a", 2);
  checkLaunch();
  puts(failures ? "FAIL" : "PASS");
  return failures != 0;
}
