/* Eight threads at once: each compiles a kernel of its own, and all launch a shared one.

   REQUIRES: capi
   RUN: capi-threads | FileCheck %s
   CHECK: PASS
*/

#include "Inputs/Testing.h"
#include <pthread.h>

enum { kThreads = 8, kLaunches = 50 };

static FlashAttnKernel shared;
static const char *text;

static void *work(void *argument) {
  int64_t number = (intptr_t)argument;
  int64_t shape[4] = {1, 2, 20 + 7 * number, 16};
  FlashAttnTensor t[4];
  for (int i = 0; i < 4; ++i)
    t[i] = makeTensor(4, shape, i == 3 ? 0 : (uint32_t)(10 * number + i + 1));
  double worst = 0;
  for (int i = 0; i < kLaunches; ++i) {
    memset(t[3].data, 0xff, sizeof(float) * (size_t)count(&t[3]));
    if (flashattnLaunch(shared, NULL, t, 4) != FLASHATTN_OK)
      return "launch";
    double difference = compareAttention(&t[0], &t[1], &t[2], &t[3], NULL, 1);
    worst = difference <= worst ? worst : difference;
  }
  if (!(worst < 1e-5))
    return "numbers";

  /* Error messages are per thread. */
  t[3].rank = (int32_t)number + 5;
  char expected[80];
  snprintf(expected, sizeof(expected), "expected rank 4 of argument 3 ('o') but got %d", t[3].rank);
  for (int i = 0; i < 1000; ++i)
    if (flashattnLaunch(shared, NULL, t, 4) != FLASHATTN_ERROR_TENSOR ||
        strcmp(flashattnGetLastError(), expected))
      return "message";

  FlashAttnCompileOptions options;
  flashattnCompileOptionsInit(&options);
  options.chip = number % 2 ? "sm_80" : "cpu";
  FlashAttnKernel own = NULL;
  if (flashattnCompile(text, strlen(text), &options, &own) != FLASHATTN_OK ||
      flashattnKernelFree(own) != FLASHATTN_OK)
    return "compile";
  for (int i = 0; i < 4; ++i)
    free(t[i].data);
  return NULL;
}

int main(void) {
  text = attentionText("memref<?x?x?x16xf32>", "", "mask(#flashattn.causal)", "");
  shared = compileFor("cpu", text);
  pthread_t threads[kThreads];
  for (intptr_t i = 0; i < kThreads; ++i)
    REQUIRE(pthread_create(&threads[i], NULL, work, (void *)i) == 0);
  for (int i = 0; i < kThreads; ++i) {
    void *failed = NULL;
    pthread_join(threads[i], &failed);
    if (failed) {
      fprintf(stderr, "thread %d: wrong %s\n", i, (char *)failed);
      ++failures;
    }
  }
  CHECK(flashattnKernelFree(shared) == FLASHATTN_OK);
  return finish();
}
