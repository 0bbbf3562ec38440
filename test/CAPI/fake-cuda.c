/* Launches on a CUDA driver without a GPU: streams, contexts, memory, and errors.

   REQUIRES: capi, fakecuda
   RUN: env FLASHATTN_CUDA_DRIVER=%fakecuda capi-fake-cuda | FileCheck %s
   CHECK: PASS
*/

#define _POSIX_C_SOURCE 200809L
#include "Inputs/Testing.h"
#include <dlfcn.h>
#include <pthread.h>

enum { kThreads = 8, kLaunches = 1000 };

static int (*getLaunches)(void **stream);
static size_t (*getMemory)(void **stream);
static size_t (*getPeakMemory)(void);
static int (*getAllocations)(void);
static int (*getContexts)(void);
static int (*getCurrent)(void **context);
static int (*pushCurrent)(void *context);
static int (*retainPrimary)(void **context, int device);

static FlashAttnKernel shared;
static FlashAttnTensor tensors[4];

static void openDriver(void) {
  void *driver = dlopen(getenv("FLASHATTN_CUDA_DRIVER"), RTLD_NOW);
  REQUIRE(driver);
  *(void **)&getLaunches = dlsym(driver, "fakeCUDALaunches");
  *(void **)&getMemory = dlsym(driver, "fakeCUDAMemory");
  *(void **)&getPeakMemory = dlsym(driver, "fakeCUDAPeakMemory");
  *(void **)&getAllocations = dlsym(driver, "fakeCUDAAllocations");
  *(void **)&getContexts = dlsym(driver, "fakeCUDAContexts");
  *(void **)&getCurrent = dlsym(driver, "cuCtxGetCurrent");
  *(void **)&pushCurrent = dlsym(driver, "cuCtxPushCurrent_v2");
  *(void **)&retainPrimary = dlsym(driver, "cuDevicePrimaryCtxRetain");
  REQUIRE(getLaunches && getMemory && getPeakMemory && getAllocations && getContexts &&
          getCurrent && pushCurrent && retainPrimary);
}

static void *work(void *stream) {
  for (int i = 0; i < kLaunches; ++i) {
    void *used = NULL;
    if (flashattnLaunch(shared, stream, tensors, 4) != FLASHATTN_OK)
      return "launch";
    if (getLaunches(&used) != i + 1 || used != stream)
      return "stream";
    if (getContexts() != 0)
      return "context";
  }
  return NULL;
}

static void checkContexts(void) {
  void *primary = NULL, *current = NULL, *stream = NULL;
  CHECK(retainPrimary(&primary, 0) == 0);
  /* The caller's context stays current, whichever it is. */
  void *contexts[] = {primary, &stream};
  for (int i = 0; i < 2; ++i) {
    CHECK(pushCurrent(contexts[i]) == 0);
    CHECK(flashattnLaunch(shared, NULL, tensors, 4) == FLASHATTN_OK);
    CHECK(getContexts() == i + 1 && getCurrent(&current) == 0 && current == contexts[i]);
  }
  CHECK(getLaunches(&stream) == 2 && stream == NULL);
}

static void checkRows(void) {
  FlashAttnTensor odd[4];
  /* TMA requires rows of inputs and outputs at multiples of 16 bytes. Strides may be in any order,
     or 0. */
  const char *anyStrides = "memref<?x?x?x16xf16, strided<[?, ?, ?, 1]>>";
  const char *promised =
      attentionText(anyStrides, " {flashattn.aligned_rows}", "mask(#flashattn.causal)", "");
  FlashAttnKernel strided = compileFor("sm_90a", promised);
  const char *schedule = NULL;
  CHECK(flashattnKernelGetText(strided, "schedule", &schedule, NULL) == FLASHATTN_OK);
  CHECK(strstr(schedule, "mapping = hopper<consumers = "));
  const int64_t good[][4] = {{2048, 16, 32, 1}, {0, 0, 24, 1}, {2048, 1024, 0, 1}};
  for (int s = 0; s < 3; ++s) {
    memcpy(odd, tensors, sizeof(odd));
    for (int i = 0; i < 3; ++i)
      memcpy(odd[i].strides, good[s], sizeof(good[s]));
    CHECK(flashattnLaunch(strided, NULL, odd, 4) == FLASHATTN_OK);
  }
  for (int i = 0; i < 4; ++i) {
    memcpy(odd, tensors, sizeof(odd));
    odd[i].data = (char *)odd[i].data + 8;
    FAILS(flashattnLaunch(strided, NULL, odd, 4), FLASHATTN_ERROR_TENSOR,
          "at an address that is a multiple of 16 bytes but got 0x");
    for (int d = 0; d < 3; ++d) {
      memcpy(odd, tensors, sizeof(odd));
      odd[i].strides[d] += 4;
      FAILS(flashattnLaunch(strided, NULL, odd, 4), FLASHATTN_ERROR_TENSOR,
            "expected a stride that is a multiple of 8 elements, 16 bytes, in dimension ");
    }
  }
  /* Without that promise, the kernel uses mma.sync and reads element by element. */
  const char *unpromised = attentionText(anyStrides, "", "mask(#flashattn.causal)", "");
  FlashAttnKernel loose = compileFor("sm_90a", unpromised);
  CHECK(flashattnKernelGetText(loose, "schedule", &schedule, NULL) == FLASHATTN_OK);
  CHECK(!strstr(schedule, "hopper"));
  memcpy(odd, tensors, sizeof(odd));
  for (int i = 0; i < 4; ++i) {
    odd[i].data = (char *)odd[i].data + 2;
    odd[i].strides[2] = 17;
    odd[i].strides[1] = 17 * 64 + 1;
    odd[i].strides[0] = 3001;
  }
  CHECK(flashattnLaunch(loose, NULL, odd, 4) == FLASHATTN_OK);
  flashattnKernelFree(strided);
  flashattnKernelFree(loose);
}

/* Kernels copy chunks of 16 bytes, for any rank, if the type or a promise shows that rows begin at
   multiples of 16 bytes. Only then must the address be aligned. */
static void checkChunks(void) {
  static const struct {
    const char *o, *w, *p;
    int refuses[3];
  } cases[] = {
      {"memref<?x?x?x64xf16>", "memref<?x64x128xf16>", "memref<?x?x128xf16>", {1, 1, 1}},
      {"memref<?x?x?x64xf16, strided<[?, ?, ?, 1]>> {flashattn.aligned_rows}",
       "memref<?x64x?xf16> {flashattn.aligned_rows}",
       "memref<?x?x128xf16, strided<[?, ?, 1]>> {flashattn.aligned_rows}",
       {1, 1, 1}},
      /* The alignment of rows is unknown: any stride, or 6 bytes more than a multiple of 16. */
      {"memref<?x?x?x64xf16, strided<[?, ?, ?, 1]>>",
       "memref<?x64x131xf16>",
       "memref<?x?x131xf16>",
       {0, 0, 0}},
      {"memref<?x?x?x64xf16>", "memref<?x64x?xf16>", "memref<?x?x?xf32>", {1, 0, 0}}};
  for (int c = 0; c < 4; ++c) {
    char text[1024], types[3][128];
    const char *given[] = {cases[c].o, cases[c].w, cases[c].p};
    for (int i = 0; i < 3; ++i)
      snprintf(types[i], sizeof(types[i]), "%.*s", (int)strcspn(given[i], "{"), given[i]);
    snprintf(text, sizeof(text),
             "func.func @projection(%%o: %s, %%w: %s, %%p: %s) {\n"
             "  flashattn.project ins(%%o, %%w : %s, %s) outs(%%p : %s)\n  return\n}\n",
             given[0], given[1], given[2], types[0], types[1], types[2]);
    FlashAttnKernel kernel = compileFor("sm_80", text);
    int64_t width = strstr(cases[c].w, "131") ? 131 : 128;
    int64_t o[4] = {2, 4, 8, 64}, w[3] = {4, 64, width}, p[3] = {2, 8, width};
    FlashAttnTensor good[3] = {
        describe(FLASHATTN_F16, 4, o), describe(FLASHATTN_F16, 3, w),
        describe(strstr(cases[c].p, "f32") ? FLASHATTN_F32 : FLASHATTN_F16, 3, p)};
    static const char *const names[] = {"o", "w", "p"};
    for (int i = -1; i < 3; ++i) {
      FlashAttnTensor odd[3];
      for (int t = 0; t < 3; ++t) {
        odd[t] = good[t];
        odd[t].data = (void *)(((intptr_t)t + 1) << 32);
      }
      if (i >= 0)
        odd[i].data = (char *)odd[i].data + (odd[i].elementType == FLASHATTN_F32 ? 4 : 2);
      if (i < 0 || !cases[c].refuses[i]) {
        CHECK(flashattnLaunch(kernel, NULL, odd, 3) == FLASHATTN_OK);
        continue;
      }
      char message[128];
      snprintf(message, sizeof(message),
               "expected data of argument %d ('%s') at an address that is a multiple of 16 bytes "
               "but got 0x",
               i, names[i]);
      FAILS(flashattnLaunch(kernel, NULL, odd, 3), FLASHATTN_ERROR_TENSOR, message);
    }
    flashattnKernelFree(kernel);
  }
  /* lse is stored element by element, so that its address needs no further alignment. */
  FlashAttnKernel kernel =
      compileFor("sm_80", attentionText("memref<2x4x64x16xf16>", "", "", "memref<2x4x64xf32>"));
  int64_t q[4] = {2, 4, 64, 16};
  FlashAttnTensor all[5];
  for (int i = 0; i < 5; ++i) {
    all[i] = i < 4 ? describe(FLASHATTN_F16, 4, q) : describe(FLASHATTN_F32, 3, q);
    all[i].data = (void *)(((intptr_t)i + 1) << 32);
  }
  all[4].data = (char *)all[4].data + 4;
  CHECK(flashattnLaunch(kernel, NULL, all, 5) == FLASHATTN_OK);
  all[3].data = (char *)all[3].data + 8;
  FAILS(
      flashattnLaunch(kernel, NULL, all, 5), FLASHATTN_ERROR_TENSOR,
      "expected data of argument 3 ('o') at an address that is a multiple of 16 bytes but got 0x");
  flashattnKernelFree(kernel);
}

/* Memory in a function is allocated and freed in the order of the caller's stream. */
static void checkMemory(void) {
  const char *text = "func.func private @use(%m: memref<4xf32>) attributes {no_inline} {\n"
                     "  return\n}\n"
                     "func.func @kept() {\n  %m = memref.alloc() : memref<4xf32>\n"
                     "  call @use(%m) : (memref<4xf32>) -> ()\n  return\n}\n"
                     "func.func @freed() {\n  %m = memref.alloc() : memref<4xf32>\n"
                     "  call @use(%m) : (memref<4xf32>) -> ()\n"
                     "  memref.dealloc %m : memref<4xf32>\n  return\n}\n"
                     "func.func @copies(%a: memref<4xf32>, %b: memref<4xf32>) {\n"
                     "  %t = gpu.wait async\n"
                     "  %c = gpu.memcpy async [%t] %a, %b : memref<4xf32>, memref<4xf32>\n"
                     "  gpu.wait [%c]\n  return\n}\n";
  const char *functions[] = {"kept", "freed", "copies"};
  void *stream = &stream, *used = NULL;
  for (int i = 0; i < 3; ++i) {
    FlashAttnCompileOptions options;
    flashattnCompileOptionsInit(&options);
    options.function = functions[i];
    FlashAttnKernel kernel = NULL;
    REQUIRE(flashattnCompile(text, strlen(text), &options, &kernel) == FLASHATTN_OK);
    size_t before = getMemory(&used);
    if (i == 2) {
      static float data[2][4];
      FlashAttnTensor pair[2] = {{data[0], {4}, {1}, 0, FLASHATTN_F32, 1},
                                 {data[1], {4}, {1}, 0, FLASHATTN_F32, 1}};
      FAILS(flashattnLaunch(kernel, stream, pair, 2), FLASHATTN_ERROR_DEVICE,
            "expected a function that only launches kernels but it copies or fills device memory");
      flashattnKernelFree(kernel);
      continue;
    }
    CHECK(flashattnLaunch(kernel, stream, NULL, 0) == FLASHATTN_OK);
    CHECK(getMemory(&used) == before && used == stream);
    setenv("FAKE_CUDA_FAIL", "cuMemAllocFromPoolAsync=2", 1);
    FAILS(flashattnLaunch(kernel, stream, NULL, 0), FLASHATTN_ERROR_DEVICE,
          "out of memory on cuda:0: needed 16 bytes");
    unsetenv("FAKE_CUDA_FAIL");
    flashattnKernelFree(kernel);
  }
}

/* Checks that a launch allocates exactly its workspace, and that flashattnKernelGetWorkspace
   allocates nothing. Returns the size of the workspace. */
static int64_t checkWorkspace(FlashAttnKernel kernel, FlashAttnTensor *arguments, int32_t count) {
  void *used = NULL;
  int launches = getLaunches(&used);
  int64_t workspace = -1;
  size_t before = getMemory(&used);
  getPeakMemory();
  FlashAttnTensor nowhere[FLASHATTN_MAX_PACKED];
  REQUIRE(count <= FLASHATTN_MAX_PACKED);
  memcpy(nowhere, arguments, sizeof(*nowhere) * (size_t)count);
  for (int i = 0; i < count; ++i)
    nowhere[i].data = NULL;
  CHECK(flashattnKernelGetWorkspace(kernel, nowhere, count, &workspace) == FLASHATTN_OK);
  CHECK(getPeakMemory() == before && getLaunches(&used) == launches);
  CHECK(flashattnLaunch(kernel, NULL, arguments, count) == FLASHATTN_OK);
  CHECK(getPeakMemory() == before + (size_t)workspace);
  return workspace;
}

/* The first launch with a workspace is captured. Objects that the driver creates only once are not
   part of the capture. */
static void checkCapture(void) {
  FlashAttnKernel kernel = NULL;
  REQUIRE(flashattnCompile(kDecodeText, strlen(kDecodeText), NULL, &kernel) == FLASHATTN_OK);
  FlashAttnTensor few[4];
  makeFewQueries(few);
  void *stream = &stream, *used = NULL;
  int launches = getLaunches(&used), allocations = getAllocations();
  size_t before = getMemory(&used);
  setenv("FAKE_CUDA_CAPTURING", "1", 1);
  CHECK(flashattnLaunch(kernel, stream, few, 4) == FLASHATTN_OK);
  CHECK(flashattnLaunch(kernel, stream, few, 4) == FLASHATTN_OK);
  unsetenv("FAKE_CUDA_CAPTURING");
  CHECK(getLaunches(&used) == launches + 4 && used == stream);
  CHECK(getAllocations() > allocations);
  CHECK(getMemory(&used) == before && used == stream);
  flashattnKernelFree(kernel);
}

/* Few queries: two kernels and memory between them, on the caller's stream. */
static void checkFewQueries(void) {
  FlashAttnKernel kernel = NULL;
  REQUIRE(flashattnCompile(kDecodeText, strlen(kDecodeText), NULL, &kernel) == FLASHATTN_OK);
  FlashAttnTensor few[4];
  makeFewQueries(few);
  void *stream = &stream, *used = NULL;
  size_t before = getMemory(&used);
  int allocations = getAllocations();
  int launches = getLaunches(&used);
  CHECK(flashattnLaunch(kernel, stream, few, 4) == FLASHATTN_OK);
  CHECK(getLaunches(&used) == launches + 2 && used == stream);
  CHECK(getMemory(&used) == before && used == stream);
  CHECK(getAllocations() > allocations);
  setenv("FAKE_CUDA_FAIL", "cuMemAllocFromPoolAsync=2", 1);
  FAILS(flashattnLaunch(kernel, stream, few, 4), FLASHATTN_ERROR_DEVICE,
        "out of memory on cuda:0: needed");
  unsetenv("FAKE_CUDA_FAIL");
  CHECK(getMemory(&used) == before && getLaunches(&used) == launches + 2);

  FlashAttnKernelInfo info = {.size = sizeof(info)};
  CHECK(flashattnKernelGetInfo(kernel, &info) == FLASHATTN_OK && info.workspaceBytes == -1);
  int64_t workspace = checkWorkspace(kernel, few, 4);
  /* For each split, 24 query rows: 64 f32 of output and two f32 of log-sum-exp. */
  CHECK(workspace > 0 && workspace % (24 * 66 * 4) == 0);
  /* More rows need another size, and a single split needs none. */
  for (int i = 0; i < 4; ++i)
    few[i].sizes[0] = 2;
  CHECK(checkWorkspace(kernel, few, 4) != workspace);
  for (int i = 1; i < 3; ++i)
    few[i] = (FlashAttnTensor){(void *)(((intptr_t)i + 1) << 32),
                               {2, 2, 64, 64},
                               {2 * 64 * 64, 64 * 64, 64, 1},
                               0,
                               FLASHATTN_F16,
                               4};
  CHECK(checkWorkspace(kernel, few, 4) == 0);

  /* flashattnKernelGetWorkspace rejects the arguments that a launch rejects. */
  FAILS(flashattnKernelGetWorkspace(kernel, few, 3, &workspace), FLASHATTN_ERROR_TENSOR,
        "expected 4 tensors but got 3");
  FAILS(flashattnKernelGetWorkspace(kernel, NULL, 4, &workspace), FLASHATTN_ERROR_INVALID_ARGUMENT,
        "expected tensors but got null");
  FAILS(flashattnKernelGetWorkspace(kernel, few, 4, NULL), FLASHATTN_ERROR_INVALID_ARGUMENT,
        "expected a pointer that receives the size in bytes but got null");
  FAILS(flashattnKernelGetWorkspace(NULL, few, 4, &workspace), FLASHATTN_ERROR_INVALID_HANDLE,
        "expected a kernel but got null");
  few[2].sizes[2] = 63;
  FAILS(flashattnKernelGetWorkspace(kernel, few, 4, &workspace), FLASHATTN_ERROR_TENSOR,
        "expected stride ");
  flashattnKernelFree(kernel);
}

#define ROWS "memref<?x?x?x128xf16>"
#define SUMS "memref<?x?x?xf32>"
#define BIAS "memref<?x?x1x1xf32>"
#define SINKS "memref<?xf32>"

/* Returns the workspace of a backward pass with 2 batches, 4 query heads of `queries` and 2
   key/value heads of `keys`; with `hasAll`, also with a bias of each head and sink logits. */
static int64_t measureGradientsOf(int64_t queries, int64_t keys, const char *chip,
                                  const char *clauses, int hasAll) {
  char text[2048];
  snprintf(
      text, sizeof(text),
      "func.func @gradients(%%q: " ROWS ", %%k: " ROWS ", %%v: " ROWS ", %%o: " ROWS ",\n"
      "    %%lse: " SUMS ", %%do: " ROWS ", %%dq: " ROWS ", %%dk: " ROWS ", %%dv: " ROWS "%s) {\n"
      "  flashattn.attention_backward %s\n"
      "      ins(%%q, %%k, %%v, %%o, %%lse, %%do : " ROWS ", " ROWS ", " ROWS ", " ROWS ", " SUMS
      ", " ROWS ") %s\n"
      "      outs(%%dq, %%dk, %%dv : " ROWS ", " ROWS ", " ROWS ") %s\n  return\n}\n",
      hasAll ? ", %bias: " BIAS ", %sinks: " SINKS ", %d_bias: " BIAS ", %d_sinks: " SINKS : "",
      clauses, hasAll ? "bias(%bias : " BIAS ") sink_logits(%sinks : " SINKS ")" : "",
      hasAll ? "d_bias(%d_bias : " BIAS ") d_sink_logits(%d_sinks : " SINKS ")" : "");
  const int64_t q[4] = {2, 4, queries, 128}, k[4] = {2, 2, keys, 128}, bias[4] = {2, 4, 1, 1},
                sinks[1] = {4};
  FlashAttnTensor t[13] = {describe(FLASHATTN_F16, 4, q),     describe(FLASHATTN_F16, 4, k),
                           describe(FLASHATTN_F16, 4, k),     describe(FLASHATTN_F16, 4, q),
                           describe(FLASHATTN_F32, 3, q),     describe(FLASHATTN_F16, 4, q),
                           describe(FLASHATTN_F16, 4, q),     describe(FLASHATTN_F16, 4, k),
                           describe(FLASHATTN_F16, 4, k),     describe(FLASHATTN_F32, 4, bias),
                           describe(FLASHATTN_F32, 1, sinks), describe(FLASHATTN_F32, 4, bias),
                           describe(FLASHATTN_F32, 1, sinks)};
  for (int i = 0; i < 13; ++i)
    t[i].data = (void *)(((intptr_t)i + 1) << 32);
  FlashAttnKernel kernel = compileFor(chip, text);
  int64_t workspace = checkWorkspace(kernel, t, hasAll ? 13 : 9);
  flashattnKernelFree(kernel);
  return workspace;
}

static int64_t measureGradients(const char *chip, const char *clauses, int hasAll) {
  return measureGradientsOf(300, 200, chip, clauses, hasAll);
}

/* The workspace has four f32 for each query, rounded up to whole tiles. If programs add up dq, it
   also has a row of f32 for each query; a word for each tile of 64 queries, for turns or for the
   zeroing by the first program; and a count for each head of the programs that have added. The
   gradient of a bias takes one more f32 per query. With warp specialization, a word signals whether
   any row must be recomputed, and the dynamic scheduler has a counter. Nothing grows with queries
   times keys. */
static void checkGradients(void) {
  const int64_t heads = 2 * 4, f32 = 4;
  const int64_t of128 = heads * 384 * f32, of64 = heads * 320 * f32, beside = heads * 300 * f32;
  const int64_t counter = 4, again = 4, counts = heads * 4;
  const int64_t added = of128 * (4 + 128) + of128 / 64 + counts;
  CHECK(measureGradients("sm_90a", "", 0) == added + again + counter);
  CHECK(measureGradients("sm_90a", "deterministic", 0) == added + again);
  CHECK(measureGradients("sm_90a", "deterministic", 1) == of64 * 4 + again + beside);
  CHECK(measureGradients("sm_80", "", 0) == of128 * (4 + 128));
  CHECK(measureGradients("sm_80", "deterministic", 1) == of64 * 4 + beside);
}

/* If all queries see the first keys, dk and dv of these keys are added in f32 sums, 2 x 128 rows
   for each key/value head. They are used only if they take, with a word for each tile and head, at
   most one f32 for each query. */
static void checkSharedKeys(void) {
  const char *mask = "mask(#flashattn.any_of<[#flashattn.window<left = 1023, right = 0>, "
                     "#flashattn.all_of<[#flashattn.sink<4>, #flashattn.causal]>]>)";
  const int64_t heads = 2 * 4, f32 = 4, sums = f32 * 2 * 2 * 2 * 128 * 128;
  /* 16645 queries are 131 tiles of 128 rows, and 261 tiles to which programs add: 16384 + 261. */
  const int64_t rows = heads * 131 * 128 * f32, again = 4;
  const int64_t all = rows * (4 + 128) + rows / 64 + heads * 4 + again;
  CHECK(measureGradientsOf(16645, 16384, "sm_90a", mask, 0) == all + sums);
  CHECK(measureGradientsOf(16644, 16384, "sm_90a", mask, 0) == all);
  CHECK(measureGradientsOf(16645, 511, "sm_90a", mask, 0) == all);
  CHECK(measureGradientsOf(16645, 16384, "sm_80", mask, 0) == rows * (4 + 128));
}

/* Several allocations: the workspace is the maximum in use at any time. */
static void checkPeak(void) {
  const char *text = "func.func private @use(%m: memref<?xf32>) attributes {no_inline} {\n"
                     "  return\n}\n"
                     "func.func @pieces(%n: index) {\n"
                     "  %a = memref.alloc(%n) : memref<?xf32>\n"
                     "  call @use(%a) : (memref<?xf32>) -> ()\n"
                     "  %b = memref.alloc(%n) : memref<?xf32>\n"
                     "  call @use(%b) : (memref<?xf32>) -> ()\n"
                     "  memref.dealloc %a : memref<?xf32>\n"
                     "  %c = memref.alloc(%n) : memref<?xf32>\n"
                     "  call @use(%c) : (memref<?xf32>) -> ()\n"
                     "  return\n}\n";
  FlashAttnKernel kernel = NULL;
  REQUIRE(flashattnCompile(text, strlen(text), NULL, &kernel) == FLASHATTN_OK);
  FlashAttnTensor n = {.scalar = 100, .elementType = FLASHATTN_INDEX};
  CHECK(checkWorkspace(kernel, &n, 1) == 2 * 100 * 4);
  flashattnKernelFree(kernel);
}

int main(void) {
  openDriver();
  int32_t devices = 0;
  CHECK(flashattnGetDeviceCount(&devices) == FLASHATTN_OK && devices == 1);
  FlashAttnDeviceInfo device = {.size = sizeof(device)};
  CHECK(flashattnGetDeviceInfo(0, &device) == FLASHATTN_OK);
  CHECK(!strcmp(device.name, "Fake GPU") && !strcmp(device.chip, "sm_90a"));
  CHECK(device.driverVersion == 12040 && device.maxPTXVersion == 84);
  CHECK(device.computeUnits == 132 && device.memoryBytes == (int64_t)4 << 30);
  FAILS(flashattnGetDeviceInfo(1, &device), FLASHATTN_ERROR_DEVICE,
        "expected a CUDA device number below 1 but got 1");

  /* Without options: the first device and its chip. */
  const char *text = attentionText("memref<?x?x?x16xf16>", "", "mask(#flashattn.causal)", "");
  REQUIRE(flashattnCompile(text, strlen(text), NULL, &shared) == FLASHATTN_OK);
  FlashAttnKernelInfo info = {.size = sizeof(info)};
  CHECK(flashattnKernelGetInfo(shared, &info) == FLASHATTN_OK);
  CHECK(!strcmp(info.chip, "sm_90a") && info.device == 0 && info.isLaunchable);
  CHECK(!strcmp(info.tuningKey, "sm_90a/16/16/f16/triangular"));
  for (int i = 0; i < 4; ++i) {
    tensors[i] = describe(FLASHATTN_F16, 4, (int64_t[]){2, 2, 64, 16});
    tensors[i].data = (void *)(((intptr_t)i + 1) << 32);
  }

  /* A launch allocates no memory, not even the first one. */
  int allocations = getAllocations();
  pthread_t threads[kThreads];
  for (intptr_t i = 0; i < kThreads; ++i)
    REQUIRE(pthread_create(&threads[i], NULL, work, (void *)(i + 1)) == 0);
  for (int i = 0; i < kThreads; ++i) {
    void *failed = NULL;
    pthread_join(threads[i], &failed);
    if (failed) {
      fprintf(stderr, "thread %d: wrong %s\n", i, (char *)failed);
      ++failures;
    }
  }
  checkContexts();
  CHECK(getAllocations() == allocations);
  checkCapture();

  /* The GPU copies chunks of 16 bytes, with or without a promise. */
  FlashAttnTensor odd[4];
  memcpy(odd, tensors, sizeof(odd));
  odd[1].data = (char *)odd[1].data + 2;
  FAILS(
      flashattnLaunch(shared, NULL, odd, 4), FLASHATTN_ERROR_TENSOR,
      "expected data of argument 1 ('k') at an address that is a multiple of 16 bytes but got 0x");
  /* An empty problem launches nothing. */
  void *stream = NULL;
  int before = getLaunches(&stream);
  memcpy(odd, tensors, sizeof(odd));
  for (int i = 0; i < 4; ++i)
    odd[i].sizes[0] = 0;
  CHECK(flashattnLaunch(shared, NULL, odd, 4) == FLASHATTN_OK);
  CHECK(getLaunches(&stream) == before);

  /* A kernel for an older chip runs too; a kernel for a newer chip only has texts. */
  FlashAttnKernel older = compileFor("sm_80", text), newer = compileFor("sm_100", text);
  CHECK(flashattnLaunch(older, NULL, tensors, 4) == FLASHATTN_OK);
  FAILS(flashattnLaunch(newer, NULL, tensors, 4), FLASHATTN_ERROR_DEVICE,
        "the kernel cannot be launched: the CUDA driver is too old for the kernels: they are PTX "
        "8.6 but the driver (CUDA 12.4) takes PTX up to 8.4");

  checkRows();
  checkChunks();

  checkMemory();
  checkFewQueries();
  checkGradients();
  checkSharedKeys();
  checkPeak();
  CHECK(checkWorkspace(shared, tensors, 4) == 0);
  int64_t workspace = 0;
  FAILS(flashattnKernelGetWorkspace(newer, tensors, 4, &workspace), FLASHATTN_ERROR_DEVICE,
        "the kernel cannot be launched: the CUDA driver is too old");

  /* A failed launch affects only that call; a fatal error affects all later calls. */
  setenv("FAKE_CUDA_FAIL", "cuLaunchKernel=701", 1);
  FAILS(flashattnLaunch(shared, NULL, tensors, 4), FLASHATTN_ERROR_DEVICE,
        "CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES");
  unsetenv("FAKE_CUDA_FAIL");
  CHECK(flashattnLaunch(shared, NULL, tensors, 4) == FLASHATTN_OK);
  setenv("FAKE_CUDA_FAIL", "cuLaunchKernel=719", 1);
  FAILS(flashattnLaunch(shared, NULL, tensors, 4), FLASHATTN_ERROR_DEVICE,
        "fatal error on cuda:0: cannot launch kernel 'attention_kernel'");
  unsetenv("FAKE_CUDA_FAIL");
  FAILS(flashattnLaunch(older, NULL, tensors, 4), FLASHATTN_ERROR_DEVICE,
        "cuda:0 had a fatal error before");
  flashattnKernelFree(shared);
  flashattnKernelFree(older);
  flashattnKernelFree(newer);
  return finish();
}
