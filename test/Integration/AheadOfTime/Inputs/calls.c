/* Calls what views.mlir says, on the CPU or on a driver without a GPU, and checks what comes of calls that
   do not fit. */

#include "views.h"
#include <dlfcn.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int failures = 0;

static void expect(const char *error, const char *text, int line) {
  if (text ? error && strstr(error, text) : !error)
    return;
  fprintf(stderr, "line %d: expected '%s' but got '%s'\n", line, text ? text : "no error",
          error ? error : "no error");
  ++failures;
}
#define WORKS(call) expect(call, NULL, __LINE__)
#define FAILS(call, text) expect(call, text, __LINE__)
#define CHECK(condition) expect((condition) ? NULL : "not so", NULL, __LINE__)

static int32_t device;

static uint16_t *allocate(size_t bytes, int byte) {
  void *memory, *host = malloc(bytes);
  memset(host, byte, bytes);
  WORKS(flashattnAOTAllocate(device, bytes, &memory));
  WORKS(flashattnAOTCopyToDevice(device, memory, host, bytes));
  free(host);
  return memory;
}

/* 2 sequences of 4 query heads and 2 key/value heads, 32 positions: heads lie beside each other. */
enum { B = 2, H = 4, G = 2, N = 32, D = 64 };
typedef struct {
  uint16_t *data;
  int64_t batch, heads, length, batchStride, headStride, rowStride;
} View;
static const char *call(void *stream, View q, View k, View v, View o, int64_t offset, float scale) {
#define FIELDS(x) x.data, x.batch, x.heads, x.length, x.batchStride, x.headStride, x.rowStride
  return attention(device, stream, FIELDS(q), FIELDS(k), FIELDS(v), FIELDS(o), offset, scale);
}

static void *driver;
static int (*getLaunches)(void **stream);
static size_t (*getMemory)(void **stream);

static void checkLaunches(View q, View k, View v, View o) {
  int marker;
  void *stream = &marker, *seen = NULL;
  *(void **)&getLaunches = dlsym(driver, "fakeCUDALaunches");
  *(void **)&getMemory = dlsym(driver, "fakeCUDAMemory");
  int before = getLaunches(&seen);
  WORKS(call(stream, q, k, v, o, 0, 0.125f));
  CHECK(getLaunches(&seen) == before + 1 && seen == stream);
  WORKS(call(NULL, q, k, v, o, 0, 0.125f));
  CHECK(getLaunches(&seen) == before + 2 && seen == NULL);
  /* Nothing is left of a workspace, which comes and goes on the stream. */
  uint16_t *x = allocate(H * N * D * 16, 0);
  float *f = (float *)allocate(H * N * D * 16, 0);
  uint16_t *dq = allocate(H * 64 * D * 2, 0), *dk = allocate(H * 64 * D * 2, 0),
           *dv = allocate(H * 64 * D * 2, 0);
  size_t memory = getMemory(&seen);
  WORKS(gradients(device, stream, x, x, x, x, f, x, dq, dk, dv));
  CHECK(getLaunches(&seen) >= before + 4 && seen == stream);
  CHECK(getMemory(&seen) == memory && seen == stream);
  /* What the driver says, and no launch behind it. */
  setenv("FAKE_CUDA_FAIL", "cuMemAllocFromPoolAsync=2", 1);
  before = getLaunches(&seen);
  FAILS(gradients(device, stream, x, x, x, x, f, x, dq, dk, dv), "out of memory on cuda:0: needed");
  setenv("FAKE_CUDA_FAIL", "cuLaunchKernel=701,cuLaunchKernelEx=701", 1);
  FAILS(call(stream, q, k, v, o, 0, 0.125f), "cuda:0 cannot launch kernel 'attention_kernel'");
  CHECK(getLaunches(&seen) == before);
  unsetenv("FAKE_CUDA_FAIL");
  WORKS(call(stream, q, k, v, o, 0, 0.125f));
  WORKS(flashattnAOTSynchronize(device, NULL));
  device = 7;
  FAILS(call(stream, q, k, v, o, 0, 0.125f), "expected a CUDA device number below 1 but got 7");
  device = FLASHATTN_AOT_CPU;
  FAILS(call(NULL, q, k, v, o, 0, 0.125f),
        "attention: expected a CUDA device that runs code for sm_90a and sm_80 but got the CPU");
}

static void checkNumbers(View q, View k, View v, View o) {
  /* The weights of a row add up to 1: equal rows of v come out. 0x3838 is 0.527. */
  WORKS(call(NULL, q, k, v, o, 0, 0.125f));
  for (int i = 0; i < B * H * N * D; ++i)
    if (o.data[i] != 0x3838) {
      fprintf(stderr, "element %d: expected 3838 but got %x\n", i, o.data[i]);
      ++failures;
      return;
    }
  FAILS(call(&device, q, k, v, o, 0, 0.125f), "attention: expected no stream on the CPU but got 0x");
  const int32_t before = device;
  device = 0;
  FAILS(call(NULL, q, k, v, o, 0, 0.125f), "cannot open the CUDA driver library");
  device = before;
}

static void checkMistakes(View q, View k, View v, View o) {
  View bad = q;
  bad.data = NULL;
  FAILS(call(NULL, bad, k, v, o, 0, 1), "attention: expected data of 'q' but got null");
  bad.data = q.data + 1;
  FAILS(call(NULL, bad, k, v, o, 0, 1),
        "expected data of 'q' at an address that is a multiple of 16 bytes but got 0x");
  bad = k;
  bad.length = -1;
  FAILS(call(NULL, q, bad, v, o, 0, 1), "expected size 0 to 2147483647 in dimension 2 of 'k' but got -1");
  bad.length = 1ll << 31;
  FAILS(call(NULL, q, bad, v, o, 0, 1), "expected size 0 to 2147483647 in dimension 2 of 'k' but got 2147483648");
  bad = k;
  bad.length = 16;
  FAILS(call(NULL, q, bad, v, o, 0, 1), "of 'v' to be 16 as in 'k' but got 32");
  bad = k;
  bad.rowStride = 65;
  FAILS(call(NULL, q, bad, v, o, 0, 1),
        "expected a stride that is a multiple of 8 elements, 16 bytes, in dimension 2 of 'k' but got 65");
  bad = o;
  bad.headStride = 0;
  FAILS(call(NULL, q, k, v, bad, 0, 1), "expected stride 1 or more in dimension 1 of 'o' but got 0");
  bad = q;
  bad.headStride = -8;
  FAILS(call(NULL, bad, k, v, o, 0, 1), "expected stride 0 or more in dimension 1 of 'q' but got -8");
  bad = q;
  View short_o = o;
  bad.heads = short_o.heads = 3;
  FAILS(call(NULL, bad, k, v, short_o, 0, 1),
        "expected the query heads of 'q' to be a multiple of the 2 key/value heads of 'k' but got 3");
  FAILS(call(NULL, q, k, v, q, 0, 1), "expected the output 'o' to share no memory with 'q'");
  FAILS(call(NULL, q, k, v, o, (int64_t)1 << 40, 1),
        "expected 'offset' from -2147483648 to 2147483647 but got 1099511627776");
  FAILS(call(NULL, q, k, v, o, 0, -1.0f), "expected 'scale' from 1e-18 to 1e18 but got -1");
  void *memory;
  FAILS(flashattnAOTAllocate(device, (size_t)1 << 60, &memory), "out of memory on ");
  FAILS(flashattnAOTAllocate(device, SIZE_MAX, &memory), "needed 18446744073709551615 bytes");
  CHECK(memory == NULL);
  WORKS(flashattnAOTFree(device, NULL));
  /* No query, nothing to do: nothing is asked of an address. */
  View none = q, no_o = o;
  none.length = no_o.length = 0;
  none.data = no_o.data = NULL;
  WORKS(call(NULL, none, k, v, no_o, 0, 1));
}

/* What no kernel does; a fill of a GPU is one of bytes. */
static void checkMemory(void) {
#ifdef FILL
  const float expected = 0.0f;
#else
  const float expected = 0x1.020202p-125f; /* of bytes 1 */
#endif
  float host[32], *x = (float *)allocate(sizeof(host), 1), *y = (float *)allocate(sizeof(host), 2);
#ifdef FILL
  FAILS(fill(device, NULL, x, 1.5f), "expected device memory to be filled with equal bytes but got 0x3fc00000");
  WORKS(fill(device, NULL, x, 0.0f));
#endif
  WORKS(copy(device, NULL, x, y));
  WORKS(flashattnAOTCopyToHost(device, host, y, sizeof(host)));
  for (int i = 0; i < 32; ++i)
    CHECK(host[i] == expected);
}

int main(int argc, char **argv) {
  const char *reason = "unset";
  device = attention_device(&reason);
  printf("device %d: %s\n", device, reason ? reason : "found");
  if (argc > 1 && !strcmp(argv[1], "find")) {
    View none = {0};
    device = 0;
    const char *error = call(NULL, none, none, none, none, 0, 1);
    printf("device 0: %s\n", error ? error : "runs");
    return 0;
  }
  const char *name = getenv("FLASHATTN_CUDA_DRIVER");
  driver = device == FLASHATTN_AOT_CPU ? NULL : dlopen(name, RTLD_NOW);
  View q = {allocate(B * H * N * D * 2, 0x38), B, H, N, N * H * D, D, H * D};
  View k = {allocate(B * G * N * D * 2, 0x38), B, G, N, N * G * D, D, G * D};
  View v = {allocate(B * G * N * D * 2, 0x38), B, G, N, N * G * D, D, G * D};
  View o = {allocate(B * H * N * D * 2, 0), B, H, N, N * H * D, D, H * D};
  checkMistakes(q, k, v, o);
  checkMemory();
  if (driver)
    checkLaunches(q, k, v, o);
  else
    checkNumbers(q, k, v, o);
  printf(failures ? "FAIL\n" : "PASS\n");
  return failures != 0;
}
