/* Launches on a real GPU: several streams and threads at once, graph capture, strided tensors, and
   the host overhead of a launch. The results are compared with those of the CPU. (fake-cuda.c tests
   that a launch allocates no memory, because its driver counts allocations. The free memory of a
   real device is shared with other processes.)

   REQUIRES: capi, cuda
   RUN: capi-cuda | FileCheck %s
   CHECK: PASS
*/

#define _POSIX_C_SOURCE 200809L
#include "Inputs/Testing.h"
#include <dlfcn.h>
#include <pthread.h>
#include <time.h>

typedef unsigned long long DevicePtr;

#define DRIVER(X)                                                                                  \
  X(cuInit, (unsigned))                                                                            \
  X(cuDevicePrimaryCtxRetain, (void **, int))                                                      \
  X(cuCtxSetCurrent, (void *))                                                                     \
  X(cuCtxGetCurrent, (void **))                                                                    \
  X(cuMemAlloc_v2, (DevicePtr *, size_t))                                                          \
  X(cuMemFree_v2, (DevicePtr))                                                                     \
  X(cuMemcpyHtoD_v2, (DevicePtr, const void *, size_t))                                            \
  X(cuMemcpyDtoH_v2, (void *, DevicePtr, size_t))                                                  \
  X(cuMemsetD8_v2, (DevicePtr, unsigned char, size_t))                                             \
  X(cuStreamCreate, (void **, unsigned))                                                           \
  X(cuStreamSynchronize, (void *))                                                                 \
  X(cuStreamDestroy_v2, (void *))                                                                  \
  X(cuCtxSynchronize, (void))                                                                      \
  X(cuStreamBeginCapture_v2, (void *, int))                                                        \
  X(cuStreamEndCapture, (void *, void **))                                                         \
  X(cuGraphInstantiateWithFlags, (void **, void *, unsigned long long))                            \
  X(cuGraphLaunch, (void *, void *))

#define X(name, parameters) static int(*name) parameters;
DRIVER(X)
#undef X

static void *primary;

static void openDriver(void) {
  void *driver = dlopen("libcuda.so.1", RTLD_NOW);
  REQUIRE(driver);
#define X(name, parameters)                                                                        \
  *(void **)&name = dlsym(driver, #name);                                                          \
  REQUIRE(name);
  DRIVER(X)
#undef X
  REQUIRE(cuInit(0) == 0 && cuDevicePrimaryCtxRetain(&primary, 0) == 0);
}

static uint16_t toBF16(float value) {
  uint32_t bits;
  memcpy(&bits, &value, 4);
  return (uint16_t)(bits >> 16);
}
static float fromBF16(uint16_t half) {
  uint32_t bits = (uint32_t)half << 16;
  float value;
  memcpy(&value, &bits, 4);
  return value;
}

/* q, k, v, o in bf16 and lse in f32: views [B, H, N, D] of dense arrays [B, N, H, D]. */
struct Problem {
  FlashAttnTensor host[5], device[5];
  size_t bytes[5];
};

static void makeProblem(struct Problem *p, const int64_t *shape, uint32_t seed) {
  for (int i = 0; i < 5; ++i) {
    int isKey = i == 1 || i == 2;
    int64_t sizes[4] = {shape[0], shape[isKey ? 2 : 1], shape[isKey ? 4 : 3], shape[5]};
    FlashAttnTensor *t = &p->host[i];
    *t = describe(i == 4 ? FLASHATTN_F32 : FLASHATTN_BF16, i == 4 ? 3 : 4, sizes);
    if (i < 4) {
      t->strides[1] = sizes[3];
      t->strides[2] = sizes[1] * sizes[3];
    }
    size_t n = (size_t)count(t);
    p->bytes[i] = n * (i == 4 ? 4 : 2);
    t->data = malloc(p->bytes[i]);
    memset(t->data, 0xff, p->bytes[i]); /* NaN */
    if (i < 3)
      for (size_t j = 0; j < n; ++j)
        ((uint16_t *)t->data)[j] = toBF16(noise(seed + (uint32_t)i, (uint32_t)j));
    DevicePtr memory = 0;
    REQUIRE(cuMemAlloc_v2(&memory, p->bytes[i]) == 0);
    REQUIRE(cuMemcpyHtoD_v2(memory, t->data, p->bytes[i]) == 0);
    p->device[i] = *t;
    p->device[i].data = (void *)(uintptr_t)memory;
  }
}

static void freeProblem(struct Problem *p) {
  for (int i = 0; i < 5; ++i) {
    free(p->host[i].data);
    cuMemFree_v2((DevicePtr)(uintptr_t)p->device[i].data);
  }
}

/* Returns output `i` of the device in host memory. */
static void *fetch(const struct Problem *p, int i) {
  void *data = malloc(p->bytes[i]);
  REQUIRE(cuMemcpyDtoH_v2(data, (DevicePtr)(uintptr_t)p->device[i].data, p->bytes[i]) == 0);
  return data;
}

/* Returns the largest difference between o and lse on the device and on the host. */
static double compare(const struct Problem *p) {
  double worst = 0;
  for (int i = 3; i < 5; ++i) {
    void *found = fetch(p, i);
    for (int64_t j = 0; j < count(&p->host[i]); ++j) {
      double a = i == 4 ? ((float *)found)[j] : fromBF16(((uint16_t *)found)[j]);
      double b =
          i == 4 ? ((float *)p->host[i].data)[j] : fromBF16(((uint16_t *)p->host[i].data)[j]);
      double difference = a == b ? 0 : fabs(a - b);
      worst = difference <= worst ? worst : difference;
    }
    free(found);
  }
  return worst;
}

static void poison(const struct Problem *p) {
  for (int i = 3; i < 5; ++i)
    CHECK(cuMemsetD8_v2((DevicePtr)(uintptr_t)p->device[i].data, 0xff, p->bytes[i]) == 0);
  CHECK(cuCtxSynchronize() == 0);
}

static FlashAttnKernel onDevice, onHost;
enum { kThreads = 8 };
static const double kTolerance = 2e-2;

static void *work(void *argument) {
  /* No context is current on this thread unless the test makes it so. */
  int64_t number = (intptr_t)argument;
  const int64_t shape[6] = {1, 4, 2, 100 + 31 * number, 120 + 31 * number, 64};
  struct Problem p;
  REQUIRE(cuCtxSetCurrent(primary) == 0);
  makeProblem(&p, shape, (uint32_t)(1 + 3 * number));
  if (flashattnLaunch(onHost, NULL, p.host, 5) != FLASHATTN_OK)
    return "launch on the host";
  void *stream = NULL;
  REQUIRE(cuStreamCreate(&stream, 1) == 0);
  REQUIRE(cuCtxSynchronize() == 0);
  if (number % 2)
    REQUIRE(cuCtxSetCurrent(NULL) == 0);
  for (int i = 0; i < 20; ++i)
    if (flashattnLaunch(onDevice, stream, p.device, 5) != FLASHATTN_OK)
      return "launch";
  void *current = &current;
  REQUIRE(cuCtxGetCurrent(&current) == 0);
  if (current != (number % 2 ? NULL : primary))
    return "context";
  REQUIRE(cuCtxSetCurrent(primary) == 0);
  REQUIRE(cuStreamSynchronize(stream) == 0);
  double difference = compare(&p);
  if (!(difference < kTolerance)) {
    fprintf(stderr, "thread %d: difference %g\n", (int)number, difference);
    return "numbers";
  }
  REQUIRE(cuStreamDestroy_v2(stream) == 0);
  freeProblem(&p);
  return NULL;
}

/* Decode attention with one query and split-KV, which needs a workspace. */
#define ROW "memref<?x?x1x64xbf16, strided<[?, ?, ?, 1], offset: ?>>"
#define ROWS "memref<?x?x?x64xbf16, strided<[?, ?, ?, 1], offset: ?>>"
#define SUM "memref<?x?x1xf32>"
static const char *const kFewQueriesText =
    "func.func @few(%q: " ROW " {flashattn.aligned_rows}, %k: " ROWS " {flashattn.aligned_rows},\n"
    "    %v: " ROWS " {flashattn.aligned_rows}, %o: " ROW " {flashattn.aligned_rows}, %lse: " SUM
    ") {\n  flashattn.attention ins(%q, %k, %v : " ROW ", " ROWS ", " ROWS ")\n"
    "      outs(%o, %lse : " ROW ", " SUM ")\n  return\n}\n";

/* Captures the first launch of a kernel. Each run of the graph must give the same results as a
   launch, bitwise. */
static void checkCapture(FlashAttnKernel kernel, FlashAttnKernel host, const int64_t *shape,
                         void *stream) {
  struct Problem p;
  makeProblem(&p, shape, 1);
  CHECK(flashattnLaunch(host, NULL, p.host, 5) == FLASHATTN_OK);
  void *graph = NULL, *executable = NULL;
  REQUIRE(cuCtxSynchronize() == 0);
  REQUIRE(cuStreamBeginCapture_v2(stream, /*global*/ 0) == 0);
  CHECK(flashattnLaunch(kernel, stream, p.device, 5) == FLASHATTN_OK);
  REQUIRE(cuStreamEndCapture(stream, &graph) == 0);
  REQUIRE(cuGraphInstantiateWithFlags(&executable, graph, 0) == 0);
  CHECK(isnan(compare(&p)) || compare(&p) > kTolerance); /* only recorded */
  void *captured = NULL;
  for (int i = 0; i < 2; ++i) {
    poison(&p);
    CHECK(cuGraphLaunch(executable, stream) == 0 && cuStreamSynchronize(stream) == 0);
    CHECK(compare(&p) < kTolerance);
    free(captured);
    captured = fetch(&p, 3);
  }
  poison(&p);
  CHECK(flashattnLaunch(kernel, NULL, p.device, 5) == FLASHATTN_OK && cuCtxSynchronize() == 0);
  CHECK(compare(&p) < kTolerance);
  void *launched = fetch(&p, 3);
  CHECK(!memcmp(captured, launched, p.bytes[3]));
  free(captured);
  free(launched);
  freeProblem(&p);
}

static double getMicroseconds(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (double)t.tv_sec * 1e6 + (double)t.tv_nsec / 1e3;
}

int main(void) {
  openDriver();
  REQUIRE(cuCtxSetCurrent(primary) == 0);
  const char *text =
      attentionText("memref<?x?x?x64xbf16, strided<[?, ?, ?, 1], offset: ?>>",
                    " {flashattn.aligned_rows}", "mask(#flashattn.causal)", "memref<?x?x?xf32>");
  REQUIRE(flashattnCompile(text, strlen(text), NULL, &onDevice) == FLASHATTN_OK);
  onHost = compileFor("cpu", text);

  /* Captures the first launch of a kernel without a workspace, and of one with a workspace. */
  void *stream = NULL;
  REQUIRE(cuStreamCreate(&stream, 1) == 0);
  checkCapture(onDevice, onHost, (const int64_t[]){2, 6, 3, 203, 260, 64}, stream);
  FlashAttnKernel few = NULL, fewOnHost = compileFor("cpu", kFewQueriesText);
  REQUIRE(flashattnCompile(kFewQueriesText, strlen(kFewQueriesText), NULL, &few) == FLASHATTN_OK);
  checkCapture(few, fewOnHost, (const int64_t[]){1, 8, 2, 1, 5000, 64}, stream);
  CHECK(flashattnKernelFree(few) == FLASHATTN_OK);
  CHECK(flashattnKernelFree(fewOnHost) == FLASHATTN_OK);

  pthread_t threads[kThreads];
  for (intptr_t i = 0; i < kThreads; ++i)
    REQUIRE(pthread_create(&threads[i], NULL, work, (void *)i) == 0);
  for (int i = 0; i < kThreads; ++i) {
    void *failed = NULL;
    pthread_join(threads[i], &failed);
    if (failed) {
      fprintf(stderr, "thread %d: wrong %s: %s\n", i, (char *)failed, flashattnGetLastError());
      ++failures;
    }
  }

  /* Small tensors, so that the host overhead dominates. */
  struct Problem tiny;
  makeProblem(&tiny, (const int64_t[]){1, 1, 1, 16, 16, 64}, 5);
  CHECK(flashattnLaunch(onDevice, stream, tiny.device, 5) == FLASHATTN_OK);
  CHECK(cuCtxSynchronize() == 0);
  enum { kBatches = 100, kBatch = 100 };
  double best = INFINITY;
  for (int i = 0; i < kBatches; ++i) {
    double start = getMicroseconds();
    for (int j = 0; j < kBatch; ++j)
      CHECK(flashattnLaunch(onDevice, stream, tiny.device, 5) == FLASHATTN_OK);
    double spent = (getMicroseconds() - start) / kBatch;
    best = spent < best ? spent : best;
    CHECK(cuStreamSynchronize(stream) == 0);
  }
  printf("a launch costs the host %.2f us\n", best);
  CHECK(best < 15);

  freeProblem(&tiny);
  CHECK(cuStreamDestroy_v2(stream) == 0);
  CHECK(flashattnKernelFree(onDevice) == FLASHATTN_OK);
  CHECK(flashattnKernelFree(onHost) == FLASHATTN_OK);
  return finish();
}
