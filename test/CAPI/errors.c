/* Invalid input, with the status and message of each error. No CUDA driver is found.

   REQUIRES: capi
   RUN: env FLASHATTN_CUDA_DRIVER=/nowhere/libcuda.so capi-errors | FileCheck %s
   CHECK: PASS
*/

#include "Inputs/Testing.h"

static const char *const kDense = "memref<?x?x?x16xf32>";
static const char *const kStrided = "memref<?x?x?x16xf32, strided<[?, ?, ?, 1], offset: ?>>";

static FlashAttnKernel unused;

static int32_t compileText(const char *text, const char *chip) {
  FlashAttnCompileOptions options;
  flashattnCompileOptionsInit(&options);
  options.chip = chip;
  int32_t status = flashattnCompile(text, strlen(text), &options, &unused);
  CHECK(status == FLASHATTN_OK || unused == NULL);
  return status;
}

struct Seen {
  int errors, notes;
  char file[64], message[256];
  int32_t line, column;
};

static void see(void *user, int32_t severity, const char *file, int32_t line, int32_t column,
                const char *message) {
  struct Seen *seen = user;
  seen->errors += severity == FLASHATTN_ERROR;
  seen->notes += severity == FLASHATTN_NOTE;
  if (severity != FLASHATTN_ERROR)
    return;
  snprintf(seen->file, sizeof(seen->file), "%s", file);
  snprintf(seen->message, sizeof(seen->message), "%s", message);
  seen->line = line;
  seen->column = column;
}

static void checkModules(void) {
  FAILS(flashattnCompile("", 0, NULL, NULL), FLASHATTN_ERROR_INVALID_ARGUMENT,
        "expected a pointer that receives the kernel but got null");
  FAILS(flashattnCompile(NULL, 3, NULL, &unused), FLASHATTN_ERROR_INVALID_ARGUMENT,
        "expected the text of a module but got null");
  FAILS(compileText("func.func @f(", "cpu"), FLASHATTN_ERROR_INVALID_MODULE, "input:1:");
  FAILS(flashattnCompile("func.func\0@f", 12, NULL, &unused), FLASHATTN_ERROR_INVALID_MODULE,
        "input:1:");
  FAILS(compileText("", "cpu"), FLASHATTN_ERROR_INVALID_ARGUMENT,
        "the module has no public function with a body");
  FAILS(compileText("\xff\xfe", "cpu"), FLASHATTN_ERROR_INVALID_MODULE, "input:1:1: ");
  FAILS(compileText(attentionText("memref<?x?x16xf32>", "", "", ""), "cpu"),
        FLASHATTN_ERROR_INVALID_MODULE, "expected 'q' of rank 4 but got rank 3");
  FAILS(compileText("func.func @f(%n: index {flashattn.aligned_rows}) {\n return\n}", "cpu"),
        FLASHATTN_ERROR_INVALID_MODULE,
        "expected 'flashattn.aligned_rows' on a memref but got argument 0 of type 'index'");
  FAILS(compileText(attentionText(kDense, "", "mask(#flashattn.window<left = -1>)", ""), "cpu"),
        FLASHATTN_ERROR_INVALID_MODULE, "-1");
  FAILS(compileText("func.func private @g()\nfunc.func @f() {\n call @g() : () -> ()\n return\n}",
                    "cpu"),
        FLASHATTN_ERROR_COMPILE, "the module calls undefined functions: ");
  FAILS(compileText("func.func @f() {\n %c = arith.constant 1 : index\n gpu.launch blocks(%a, %b, "
                    "%d) in (%e = %c, %g = %c, %h = %c) threads(%i, %j, %k) in (%l = %c, %m = %c, "
                    "%n = %c) {\n gpu.terminator\n }\n return\n}",
                    "cpu"),
        FLASHATTN_ERROR_UNSUPPORTED, "needs a GPU: expected a CUDA device but got the CPU");
}

static void checkAttentionOnly(void) {
  FlashAttnCompileOptions options;
  CHECK(flashattnCompileOptionsInit(&options) == FLASHATTN_OK);
  CHECK(options.attentionOnly == 0);
  options.chip = "cpu";
  options.attentionOnly = 1;
  const char *text = attentionText(kDense, "", "mask(#flashattn.causal)", "");
  CHECK(flashattnCheck(text, strlen(text), &options) == FLASHATTN_OK);
  text = "func.func @f() {\n return\n}";
  FAILS(flashattnCheck(text, strlen(text), &options), FLASHATTN_ERROR_INVALID_MODULE,
        "input:2:2: expected one function around one attention but got 'func.return'");
  text = "func.func @f(%m: memref<1xf32>) {\n %c = arith.constant 0 : index\n %x = memref.load "
         "%m[%c] : memref<1xf32>\n return\n}";
  FAILS(flashattnCheck(text, strlen(text), &options), FLASHATTN_ERROR_INVALID_MODULE,
        "expected one function around one attention but got 'arith.constant'");
  // Dialects of targets and of LLVM are not allowed in a module.
  options.attentionOnly = 0;
  CHECK(flashattnCompile(text, strlen(text), &options, &unused) == FLASHATTN_OK);
  CHECK(flashattnKernelFree(unused) == FLASHATTN_OK);
  FAILS(compileText("llvm.func @f() {\n llvm.return\n}", "cpu"), FLASHATTN_ERROR_INVALID_MODULE,
        "Dialect `llvm' not found");
  FAILS(compileText("func.func @f() {\n nvvm.barrier0\n return\n}", "sm_90a"),
        FLASHATTN_ERROR_INVALID_MODULE, "Dialect `nvvm' not found");

  CHECK(flashattnCheckScoreMod("^bb0(%s: f32, %b: index, %h: index, %p: index, %k: index):\n"
                               "  %0 = arith.addf %s, %s : f32\n  flashattn.yield %0 : f32") ==
        FLASHATTN_OK);
  FAILS(flashattnCheckScoreMod(NULL), FLASHATTN_ERROR_INVALID_ARGUMENT,
        "expected the text of a score_mod but got null");
  FAILS(flashattnCheckScoreMod("^bb0(%s: f32"), FLASHATTN_ERROR_INVALID_ARGUMENT,
        "expected a block of a score_mod but got: ");
  FAILS(flashattnCheckScoreMod("^bb0(%s: f32):\n flashattn.yield %s : f32\n}) : () -> ()\n"
                               "\"other\"() ({"),
        FLASHATTN_ERROR_INVALID_ARGUMENT,
        "expected one block in score_mod but got several");
  FAILS(flashattnCheckScoreMod("^bb0(%s: f32):\n \"other\"() : () -> ()\n"),
        FLASHATTN_ERROR_INVALID_ARGUMENT,
        "expected an op of arith or math, or a load, in score_mod but got 'other'");
}

static void checkOptions(void) {
  const char *text = attentionText(kDense, "", "", "");
  size_t length = strlen(text);
  FlashAttnCompileOptions options;
  FAILS(flashattnCompileOptionsInit(NULL), FLASHATTN_ERROR_INVALID_ARGUMENT, "but got null");
  flashattnCompileOptionsInit(&options);
  options.size = 3;
  FAILS(flashattnCompile(text, length, &options, &unused), FLASHATTN_ERROR_INVALID_ARGUMENT,
        "bytes but got 3 in its field 'size'");
  flashattnCompileOptionsInit(&options);
  options.chip = "sm_7";
  FAILS(flashattnCompile(text, length, &options, &unused), FLASHATTN_ERROR_INVALID_ARGUMENT,
        "sm_7");
  options.chip = "cpu";
  options.device = 0;
  FAILS(flashattnCompile(text, length, &options, &unused), FLASHATTN_ERROR_INVALID_ARGUMENT,
        "expected the chip of a CUDA device but got 'cpu'");
  options.chip = "sm_80";
  options.device = FLASHATTN_DEVICE_CPU;
  FAILS(flashattnCompile(text, length, &options, &unused), FLASHATTN_ERROR_INVALID_ARGUMENT,
        "expected chip 'cpu' for the CPU but got 'sm_80'");
  options.chip = NULL;
  options.device = -7;
  FAILS(flashattnCompile(text, length, &options, &unused), FLASHATTN_ERROR_INVALID_ARGUMENT,
        "as device but got -7");
  options.device = 0;
  FAILS(flashattnCompile(text, length, &options, &unused), FLASHATTN_ERROR_DEVICE,
        "cannot open the CUDA driver library '/nowhere/libcuda.so'");
  options.device = FLASHATTN_DEVICE_CPU;
  options.vectorWidth = -1;
  FAILS(flashattnCompile(text, length, &options, &unused), FLASHATTN_ERROR_INVALID_ARGUMENT,
        "expected a vector width of at least 0 but got -1");
  options.vectorWidth = 0;
  options.function = "other";
  FAILS(flashattnCompile(text, length, &options, &unused), FLASHATTN_ERROR_INVALID_ARGUMENT,
        "expected the function to be one of 'attention' but got 'other'");
  options.function = NULL;
  const char *two = "func.func @a() {\n return\n}\nfunc.func @b() {\n return\n}";
  FAILS(flashattnCompile(two, strlen(two), &options, &unused), FLASHATTN_ERROR_INVALID_ARGUMENT,
        "the module has several functions: expected the function to be one of 'a', 'b'");
  options.schedule = "tile_m = many";
  struct Seen seen = {0};
  options.diagnostic = see;
  options.diagnosticUser = &seen;
  FAILS(flashattnCompile(text, length, &options, &unused), FLASHATTN_ERROR_UNSUPPORTED,
        "expected an integer as schedule field tile_m but got 'many'");
  CHECK(seen.errors > 0 &&
        strstr(seen.message, "expected an integer as schedule field tile_m but got 'many'"));

  /* The callback receives the location too. */
  memset(&seen, 0, sizeof(seen));
  options.schedule = NULL;
  const char *bad = "func.func @f() {\n  \"test.unknown\"() : () -> ()\n  return\n}";
  FAILS(flashattnCompile(bad, strlen(bad), &options, &unused), FLASHATTN_ERROR_INVALID_MODULE,
        "input:2:17: ");
  CHECK(seen.errors == 1 && seen.line == 2 && seen.column == 17 && !strcmp(seen.file, "input"));
}

/* Errors that are found before code is generated. */
static void checkChecks(void) {
  const char *text = attentionText("memref<?x?x?x64xf16>", "", "", "");
  FlashAttnCompileOptions options;
  flashattnCompileOptionsInit(&options);
  options.chip = "sm_90a";
  CHECK(flashattnCheck(text, strlen(text), &options) == FLASHATTN_OK);
  CHECK(flashattnCheck(text, strlen(text), NULL) == FLASHATTN_OK);
  options.schedule = "tile_m = 256, tile_n = 512, stages = 4, dot_type = f16, mapping = mma_sync<warps = 4>";
  FAILS(flashattnCheck(text, strlen(text), &options), FLASHATTN_ERROR_UNSUPPORTED,
        "cannot be compiled for sm_90a with the schedule given: ");
  options.schedule = "tile_m = many";
  FAILS(flashattnCheck(text, strlen(text), &options), FLASHATTN_ERROR_UNSUPPORTED,
        "expected an integer as schedule field tile_m but got 'many'");
  FAILS(flashattnCheck("func.func @f(", 13, NULL), FLASHATTN_ERROR_INVALID_MODULE, "input:1:");
  FAILS(flashattnCheck(NULL, 0, NULL), FLASHATTN_ERROR_INVALID_ARGUMENT,
        "expected the text of a module but got null");

  CHECK(flashattnCheckMask("#flashattn.all_of<[#flashattn.causal, #flashattn.sink<2>]>") ==
        FLASHATTN_OK);
  FAILS(flashattnCheckMask("#flashattn.window<left = -1>"), FLASHATTN_ERROR_INVALID_ARGUMENT,
        "expected window bound 'left' between 0 and 2147483648 but got -1");
  FAILS(flashattnCheckMask("#flashattn.set<\"(p)[nq, nk] : (p >= 0)\">"),
        FLASHATTN_ERROR_INVALID_ARGUMENT, "but got 1 dimensions and 2 symbols");
  FAILS(flashattnCheckMask("42 : i32"), FLASHATTN_ERROR_INVALID_ARGUMENT,
        "expected a mask attribute but got 42 : i32");
  FAILS(flashattnCheckMask("#flashattn.caus"), FLASHATTN_ERROR_INVALID_ARGUMENT, "caus");
  FAILS(flashattnCheckMask(""), FLASHATTN_ERROR_INVALID_ARGUMENT, "expected");
  FAILS(flashattnCheckMask(NULL), FLASHATTN_ERROR_INVALID_ARGUMENT,
        "expected the text of a mask but got null");
}

static void checkHandles(void) {
  FlashAttnKernel kernel = compileFor("cpu", attentionText(kDense, "", "", ""));
  FlashAttnKernelInfo info = {.size = sizeof(info)};
  FlashAttnArgumentInfo argument = {.size = sizeof(argument)};
  const char *text = NULL;
  FAILS(flashattnKernelGetArgument(kernel, 4, &argument), FLASHATTN_ERROR_INVALID_ARGUMENT,
        "expected an argument number below 4 but got 4");
  argument.size = 1;
  FAILS(flashattnKernelGetArgument(kernel, 0, &argument), FLASHATTN_ERROR_INVALID_ARGUMENT,
        "bytes but got 1 in its field 'size'");
  FAILS(flashattnGetCacheInfo(NULL), FLASHATTN_ERROR_INVALID_ARGUMENT,
        "expected a FlashAttnCacheInfo but got null");
  FlashAttnCacheInfo cache = {.size = 1};
  FAILS(flashattnGetCacheInfo(&cache), FLASHATTN_ERROR_INVALID_ARGUMENT,
        "bytes but got 1 in its field 'size'");
  FAILS(flashattnKernelGetInfo(kernel, NULL), FLASHATTN_ERROR_INVALID_ARGUMENT,
        "expected a FlashAttnKernelInfo but got null");
  FAILS(flashattnKernelGetStage(kernel, -1, &text), FLASHATTN_ERROR_INVALID_ARGUMENT,
        "expected a stage number below 4 but got -1");
  FAILS(flashattnKernelGetText(kernel, "ptx", &text, NULL), FLASHATTN_ERROR_INVALID_ARGUMENT,
        "expected the stage to be one of 'mlir', 'schedule', 'tiled', 'lowered' but got 'ptx'");
  FAILS(flashattnKernelGetInfo(NULL, &info), FLASHATTN_ERROR_INVALID_HANDLE,
        "expected a kernel but got null");
  FAILS(flashattnKernelGetInfo((FlashAttnKernel)(void *)&info, &info),
        FLASHATTN_ERROR_INVALID_HANDLE, "expected a kernel but got an invalid handle");
  FAILS(flashattnLaunch(NULL, NULL, NULL, 0), FLASHATTN_ERROR_INVALID_HANDLE, "null");
  CHECK(flashattnKernelFree(NULL) == FLASHATTN_OK);
  CHECK(flashattnKernelFree(kernel) == FLASHATTN_OK);
  FAILS(flashattnKernelFree(kernel), FLASHATTN_ERROR_INVALID_HANDLE,
        "expected a kernel but got one that was freed");
  FAILS(flashattnLaunch(kernel, NULL, NULL, 0), FLASHATTN_ERROR_INVALID_HANDLE,
        "expected a kernel but got one that was freed");
}

static void checkNotLaunchable(void) {
  FlashAttnKernel gpu = compileFor("sm_80", attentionText(kDense, "", "", ""));
  FAILS(flashattnLaunch(gpu, NULL, NULL, 4), FLASHATTN_ERROR_DEVICE,
        "the kernel cannot be launched: cannot open the CUDA driver library");
  FlashAttnKernel result = compileFor("cpu", "func.func @f(%x: memref<4xf32>) -> memref<4xf32> {\n"
                                             "  return %x : memref<4xf32>\n}");
  FAILS(flashattnLaunch(result, NULL, NULL, 1), FLASHATTN_ERROR_UNSUPPORTED,
        "function 'f': expected no results, because results are stored to memrefs, but got 1");
  FlashAttnKernel tensor = compileFor("cpu", "func.func @f(%x: tensor<4xf32>) {\n  return\n}");
  FAILS(flashattnLaunch(tensor, NULL, NULL, 1), FLASHATTN_ERROR_UNSUPPORTED,
        "argument 0 of function 'f': expected a memref but got tensor<4xf32>");
  FlashAttnKernel rank =
      compileFor("cpu", "func.func @f(%x: memref<1x1x1x1x1x1xf32>) {\n return\n}");
  FAILS(flashattnLaunch(rank, NULL, NULL, 1), FLASHATTN_ERROR_UNSUPPORTED,
        "expected a rank of at most 5 but got memref<1x1x1x1x1x1xf32>");
  flashattnKernelFree(gpu);
  flashattnKernelFree(result);
  flashattnKernelFree(tensor);
  flashattnKernelFree(rank);
}

static FlashAttnTensor good[6], bad[6];

/* Restores the good tensors, so that a test can change one of them. */
static FlashAttnTensor *reset(void) {
  memcpy(bad, good, sizeof(good));
  return bad;
}

/* The same checks for packed launches. */
static void checkPacked(FlashAttnKernel dense) {
  FlashAttnTensor *t = reset();
  FlashAttnPackedLaunch packed = {.kernel = dense, .tensors = t, .numTensors = 5};
  FAILS(flashattnLaunchPacked(&packed), FLASHATTN_ERROR_TENSOR,
        "expected data of argument 0 ('q') but got null");
  for (int i = 0; i < 5; ++i)
    packed.data[i] = t[i].data;
  CHECK(flashattnLaunchPacked(&packed) == FLASHATTN_OK);
  packed.data[3] = (char *)t[3].data + 2;
  FAILS(flashattnLaunchPacked(&packed), FLASHATTN_ERROR_TENSOR,
        "expected data of argument 3 ('o') at an address that is a multiple of 4 bytes but got 0x");
  packed.data[3] = t[0].data; /* as large as o, so that no other tensor begins in it */
  FAILS(flashattnLaunchPacked(&packed), FLASHATTN_ERROR_TENSOR,
        "expected the output argument 3 ('o') to share no memory with argument 0 ('q')");
  packed.match = 17;
  FAILS(flashattnLaunchPacked(&packed), FLASHATTN_ERROR_INVALID_ARGUMENT,
        "expected field 'match' to be 0 or a result of flashattnMatchPythonTensors but got 17");
  packed.numTensors = FLASHATTN_MAX_PACKED + 1;
  FAILS(flashattnLaunchPacked(&packed), FLASHATTN_ERROR_INVALID_ARGUMENT,
        "expected 0 to 64 tensors but got 65");
  packed = (FlashAttnPackedLaunch){.kernel = dense, .numTensors = 5};
  FAILS(flashattnLaunchPacked(&packed), FLASHATTN_ERROR_INVALID_ARGUMENT,
        "expected tensors but got null");
  packed.kernel = NULL;
  FAILS(flashattnLaunchPacked(&packed), FLASHATTN_ERROR_INVALID_HANDLE,
        "expected a kernel but got null");
  FAILS(flashattnLaunchPacked(NULL), FLASHATTN_ERROR_INVALID_ARGUMENT,
        "expected a FlashAttnPackedLaunch but got null");
}

static void checkTensors(void) {
  FlashAttnKernel dense = compileFor("cpu", attentionText(kDense, "", "", "memref<?x?x?xf32>"));
  FlashAttnKernel strided = compileFor(
      "cpu", attentionText(kStrided, " {flashattn.aligned_rows}", "", "memref<?x?x?xf32>"));
  int64_t q[4] = {2, 4, 8, 16}, k[4] = {2, 2, 8, 16};
  good[0] = makeTensor(4, q, 1), good[1] = makeTensor(4, k, 2), good[2] = makeTensor(4, k, 3);
  good[3] = makeTensor(4, q, 0), good[4] = makeTensor(3, q, 0);
  FlashAttnTensor *t = reset();
  CHECK(flashattnLaunch(dense, NULL, t, 5) == FLASHATTN_OK);
  CHECK(flashattnLaunch(strided, NULL, t, 5) == FLASHATTN_OK);

#define BAD(kernel, change, text)                                                                  \
  do {                                                                                             \
    t = reset();                                                                                   \
    change;                                                                                        \
    FAILS(flashattnLaunch(kernel, NULL, t, 5), FLASHATTN_ERROR_TENSOR, text);                      \
  } while (0)

  FAILS(flashattnLaunch(dense, NULL, t, 4), FLASHATTN_ERROR_TENSOR, "expected 5 tensors but got 4");
  FAILS(flashattnLaunch(dense, NULL, NULL, 5), FLASHATTN_ERROR_INVALID_ARGUMENT,
        "expected tensors but got null");
  BAD(dense, t[1].elementType = FLASHATTN_F16,
      "expected argument 1 ('k') with element type f32 but got f16");
  BAD(dense, t[1].elementType = 99,
      "expected argument 1 ('k') with element type f32 but got no element type");
  BAD(dense, t[0].rank = 3, "expected rank 4 of argument 0 ('q') but got 3");
  BAD(dense, t[2].sizes[3] = 32, "expected size 16 in dimension 3 of argument 2 ('v') but got 32");
  BAD(dense, t[2].sizes[2] = -1,
      "expected size 0 to 2147483647 in dimension 2 of argument 2 ('v') but got -1");
  BAD(dense, t[1].sizes[2] = 1ll << 31,
      "expected size 0 to 2147483647 in dimension 2 of argument 1 ('k') but got 2147483648");
  BAD(dense, t[3].data = NULL, "expected data of argument 3 ('o') but got null");
  BAD(dense, t[3].data = (char *)t[3].data + 2,
      "expected data of argument 3 ('o') at an address that is a multiple of 4 bytes but got 0x");
  BAD(strided, t[3].data = (char *)t[3].data + 4,
      "expected data of argument 3 ('o') at an address that is a multiple of 16 bytes but got 0x");
  BAD(dense, t[0].strides[2] = 20,
      "expected stride 16 in dimension 2 of argument 0 ('q') but got 20");
  BAD(dense, t[4].strides[1] = 4,
      "expected stride 8 in dimension 1 of argument 4 ('lse') but got 4");
  BAD(strided, t[0].strides[3] = 2,
      "expected stride 1 in dimension 3 of argument 0 ('q') but got 2");
  BAD(strided, t[0].strides[1] = -128,
      "expected stride 0 or more in dimension 1 of argument 0 ('q') but got -128");
  BAD(strided, t[0].strides[2] = 18,
      "expected a stride that is a multiple of 4 elements, 16 bytes, in dimension 2 of argument 0 "
      "('q') but got 18");
  BAD(strided, t[3].strides[0] = 0,
      "expected each element of output argument 3 ('o') at its own address but got stride 0 in "
      "dimension 0 of size 2");
  BAD(strided, t[1].sizes[0] = 1,
      "expected batch size of argument 1 ('k') to be 2 as in argument 0 ('q') but got 1");
  BAD(strided, t[2].sizes[1] = 1,
      "expected head count of argument 2 ('v') to be 2 as in argument 1 ('k') but got 1");
  BAD(strided, t[2].sizes[2] = 7,
      "expected key length of argument 2 ('v') to be 8 as in argument 1 ('k') but got 7");
  BAD(strided, t[3].sizes[2] = 7,
      "expected query length of argument 3 ('o') to be 8 as in argument 0 ('q') but got 7");
  BAD(dense, (t[4].sizes[1] = 3, t[4].strides[0] = 24),
      "expected head count of argument 4 ('lse') to be 4 as in argument 0 ('q') but got 3");
  BAD(strided, t[1].sizes[1] = t[2].sizes[1] = 3,
      "expected the query head count to be a multiple of the key/value head count, 3, but got 4 "
      "(query heads of argument 0 ('q'), key/value heads of argument 1 ('k'))");
  /* Outputs must not share memory with other arguments. */
  BAD(dense, t[3].data = t[0].data,
      "expected the output argument 3 ('o') to share no memory with argument 0 ('q') but got "
      "addresses 0x");
  BAD(dense, t[1].data = (char *)t[3].data + 4 * (2 * 4 * 8 * 16 - 1),
      "expected the output argument 3 ('o') to share no memory with argument 1 ('k')");
  BAD(dense, t[4].data = t[3].data,
      "expected the output argument 4 ('lse') to share no memory with argument 3 ('o')");
  t = reset();
  t[1].data = t[2].data = t[0].data; /* inputs may */
  CHECK(flashattnLaunch(dense, NULL, t, 5) == FLASHATTN_OK);
  int64_t workspace = -1; /* does not depend on addresses */
  t[3].data = t[0].data;
  CHECK(flashattnKernelGetWorkspace(dense, t, 5, &workspace) == FLASHATTN_OK && workspace == 0);

  checkPacked(dense);
  /* The stride of a dimension of size 1 is ignored. Inputs may be broadcast with stride 0. */
  t = reset();
  t[1].sizes[0] = t[2].sizes[0] = t[0].sizes[0] = t[3].sizes[0] = t[4].sizes[0] = 1;
  t[1].strides[0] = 7;
  CHECK(flashattnLaunch(strided, NULL, t, 5) == FLASHATTN_OK);
  t = reset();
  t[1].strides[1] = 0;
  CHECK(flashattnLaunch(strided, NULL, t, 5) == FLASHATTN_OK);
  for (int i = 0; i < 5; ++i)
    free(good[i].data);
  flashattnKernelFree(dense);
  flashattnKernelFree(strided);
}

/* Operands that modify the scores. Each size is that of the scores, or a static 1 for broadcast. */
static void checkScoreOperands(void) {
  FlashAttnKernel kernel = compileFor(
      "cpu", "func.func @attention(%q: memref<?x?x?x16xf32>, %bias: memref<?x?x1x?xf32>,\n"
             "    %attn_mask: memref<1x1x?x?xi1>, %sinks: memref<?xf32>, %len: memref<?xi32>,\n"
             "    %o: memref<?x?x?x16xf32>) {\n"
             "  flashattn.attention ins(%q, %q, %q : memref<?x?x?x16xf32>, memref<?x?x?x16xf32>,\n"
             "                                       memref<?x?x?x16xf32>)\n"
             "      bias(%bias : memref<?x?x1x?xf32>) attn_mask(%attn_mask : memref<1x1x?x?xi1>)\n"
             "      sink_logits(%sinks : memref<?xf32>) kv_len(%len : memref<?xi32>)\n"
             "      outs(%o : memref<?x?x?x16xf32>)\n"
             "  return\n}\n");
  FlashAttnArgumentInfo info = {.size = sizeof(info)};
  const char *const roles[] = {"q", "bias", "attn_mask", "sink_logits", "kv_len", "o"};
  for (int i = 0; i < 6; ++i) {
    CHECK(flashattnKernelGetArgument(kernel, i, &info) == FLASHATTN_OK);
    CHECK(!strcmp(info.role, roles[i]));
  }
  int64_t q[4] = {2, 4, 8, 16}, bias[4] = {2, 4, 1, 8}, attnMask[4] = {1, 1, 8, 8};
  good[0] = makeTensor(4, q, 1), good[1] = makeTensor(4, bias, 2);
  good[2] = makeTensor(4, attnMask, 3);
  good[3] = makeTensor(1, &q[1], 1), good[4] = makeTensor(1, q, 1), good[5] = makeTensor(4, q, 0);
  good[2].elementType = FLASHATTN_I1, good[4].elementType = FLASHATTN_I32;
  memset(good[2].data, 1, 8 * 8);
  FlashAttnTensor *t = reset();
  CHECK(flashattnLaunch(kernel, NULL, t, 6) == FLASHATTN_OK);

#define BAD_SCORES(change, text)                                                                   \
  do {                                                                                             \
    t = reset();                                                                                   \
    change;                                                                                        \
    FAILS(flashattnLaunch(kernel, NULL, t, 6), FLASHATTN_ERROR_TENSOR, text);                      \
  } while (0)

  BAD_SCORES(t[1].sizes[0] = 1,
             "expected batch size of argument 1 ('bias') to be 2 as in argument 0 ('q') but got 1");
  BAD_SCORES((t[1].sizes[1] = 3, t[1].strides[0] = 24),
             "expected head count of argument 1 ('bias') to be 4 as in argument 0 ('q') but got 3");
  BAD_SCORES((t[1].sizes[3] = 7, t[1].strides[2] = t[1].strides[1] = 7, t[1].strides[0] = 28),
             "expected key length of argument 1 ('bias') to be 8 as in argument 0 ('q') but got 7");
  BAD_SCORES(t[2].sizes[0] = 2,
             "expected size 1 in dimension 0 of argument 2 ('attn_mask') but got 2");
  BAD_SCORES(
      (t[2].sizes[2] = 7, t[2].strides[1] = t[2].strides[0] = 56),
      "expected query length of argument 2 ('attn_mask') to be 8 as in argument 0 ('q') but got 7");
  BAD_SCORES(
      t[3].sizes[0] = 3,
      "expected head count of argument 3 ('sink_logits') to be 4 as in argument 0 ('q') but got 3");
  BAD_SCORES(
      t[4].sizes[0] = 3,
      "expected batch size of argument 4 ('kv_len') to be 2 as in argument 0 ('q') but got 3");
  for (int i = 0; i < 6; ++i)
    free(good[i].data);
  flashattnKernelFree(kernel);
}

/* The operands of a projection share sizes like those of attention, with an attention or alone. */
static void checkProjection(void) {
  FlashAttnKernel kernel = compileFor(
      "cpu", "func.func @projection(%q: memref<?x?x?x16xf32>, %o: memref<?x?x?x16xf32>,\n"
             "                      %w: memref<?x16x?xf32>, %p: memref<?x?x?xf32>) {\n"
             "  flashattn.attention ins(%q, %q, %q : memref<?x?x?x16xf32>, memref<?x?x?x16xf32>,\n"
             "                                       memref<?x?x?x16xf32>)\n"
             "      outs(%o : memref<?x?x?x16xf32>)\n"
             "  flashattn.project ins(%o, %w : memref<?x?x?x16xf32>, memref<?x16x?xf32>)\n"
             "      outs(%p : memref<?x?x?xf32>)\n"
             "  return\n}\n");
  FlashAttnArgumentInfo info = {.size = sizeof(info)};
  const char *const roles[] = {"q", "o", "w", "p"};
  for (int i = 0; i < 4; ++i) {
    CHECK(flashattnKernelGetArgument(kernel, i, &info) == FLASHATTN_OK);
    CHECK(!strcmp(info.role, roles[i]));
  }
  int64_t q[4] = {2, 4, 8, 16}, w[3] = {4, 16, 24}, p[3] = {2, 8, 24};
  good[0] = makeTensor(4, q, 1), good[1] = makeTensor(4, q, 0);
  good[2] = makeTensor(3, w, 2), good[3] = makeTensor(3, p, 0);
  FlashAttnTensor *t = reset();
  CHECK(flashattnLaunch(kernel, NULL, t, 4) == FLASHATTN_OK);
  t[2].sizes[0] = 3;
  FAILS(flashattnLaunch(kernel, NULL, t, 4), FLASHATTN_ERROR_TENSOR,
        "expected head count of argument 2 ('w') to be 4 as in argument 1 ('o') but got 3");
  t = reset(), t[3].sizes[0] = 1;
  FAILS(flashattnLaunch(kernel, NULL, t, 4), FLASHATTN_ERROR_TENSOR,
        "expected batch size of argument 3 ('p') to be 2 as in argument 1 ('o') but got 1");
  t = reset(), t[2].sizes[2] = t[2].strides[1] = 16, t[2].strides[0] = 256;
  FAILS(flashattnLaunch(kernel, NULL, t, 4), FLASHATTN_ERROR_TENSOR,
        "expected width of argument 3 ('p') to be 16 as in argument 2 ('w') but got 24");
  for (int i = 0; i < 4; ++i)
    free(good[i].data);
  flashattnKernelFree(kernel);
}

static void checkOperands(void) {
  FlashAttnOperandInfo info = {.size = sizeof(info)};
  FAILS(flashattnGetOperand(NULL, 0, &info), FLASHATTN_ERROR_INVALID_ARGUMENT,
        "expected the name of an op but got null");
  FAILS(flashattnGetOperand("softmax", 0, &info), FLASHATTN_ERROR_INVALID_ARGUMENT,
        "expected the op to be 'attention', 'attention_backward', 'combine' or 'project' "
        "but got 'softmax'");
  FAILS(flashattnGetOperand("project", 3, &info), FLASHATTN_ERROR_INVALID_ARGUMENT,
        "expected an operand number below 3 but got 3");
  FAILS(flashattnGetOperand("project", -1, &info), FLASHATTN_ERROR_INVALID_ARGUMENT,
        "expected an operand number below 3 but got -1");
  FAILS(flashattnGetOperand("project", 0, NULL), FLASHATTN_ERROR_INVALID_ARGUMENT,
        "expected a FlashAttnOperandInfo but got null");
}

/* The scale has a limited range. */
static void checkScale(void) {
  FlashAttnKernel kernel =
      compileFor("cpu", "func.func @attention(%q: memref<?x?x?x16xf32>, %scale: f32,\n"
                        "                     %o: memref<?x?x?x16xf32>) {\n"
                        "  flashattn.attention scale(%scale)\n"
                        "      ins(%q, %q, %q : memref<?x?x?x16xf32>, memref<?x?x?x16xf32>,\n"
                        "                       memref<?x?x?x16xf32>)\n"
                        "      outs(%o : memref<?x?x?x16xf32>)\n"
                        "  return\n}\n");
  int64_t q[4] = {2, 4, 8, 16};
  good[0] = makeTensor(4, q, 1), good[2] = makeTensor(4, q, 0);
  const float scales[] = {0.3f, 1e-18f, 1e18f, 0, -1, NAN};
  const char *const errors[] = {NULL,
                                NULL,
                                NULL,
                                "expected argument 1 ('scale') from 1e-18 to 1e18 but got 0",
                                "expected argument 1 ('scale') from 1e-18 to 1e18 but got -1",
                                "expected argument 1 ('scale') from 1e-18 to 1e18 but got nan"};
  for (int i = 0; i < 6; ++i) {
    FlashAttnTensor *t = reset();
    memcpy(&t[1].scalar, &scales[i], sizeof(float));
    if (errors[i])
      FAILS(flashattnLaunch(kernel, NULL, t, 3), FLASHATTN_ERROR_TENSOR, errors[i]);
    else
      CHECK(flashattnLaunch(kernel, NULL, t, 3) == FLASHATTN_OK);
  }
  free(good[0].data), free(good[2].data);
  flashattnKernelFree(kernel);
}

/* Positions have 32 bits. */
static void checkOffset(void) {
  FlashAttnKernel kernel =
      compileFor("cpu", "func.func @attention(%q: memref<?x?x?x16xf32>, %offset: index,\n"
                        "                     %o: memref<?x?x?x16xf32>) {\n"
                        "  flashattn.attention mask(#flashattn.causal)\n"
                        "      ins(%q, %q, %q : memref<?x?x?x16xf32>, memref<?x?x?x16xf32>,\n"
                        "                       memref<?x?x?x16xf32>)\n"
                        "      offset(%offset) outs(%o : memref<?x?x?x16xf32>)\n"
                        "  return\n}\n");
  int64_t q[4] = {2, 4, 8, 16};
  good[0] = makeTensor(4, q, 1), good[2] = makeTensor(4, q, 0);
  good[1] = (FlashAttnTensor){.scalar = INT32_MAX};
  FlashAttnTensor *t = reset();
  CHECK(flashattnLaunch(kernel, NULL, t, 3) == FLASHATTN_OK);
  t[1].scalar = INT32_MIN;
  CHECK(flashattnLaunch(kernel, NULL, t, 3) == FLASHATTN_OK);
  t[1].scalar = (int64_t)INT32_MAX + 1;
  FAILS(flashattnLaunch(kernel, NULL, t, 3), FLASHATTN_ERROR_TENSOR,
        "expected argument 1 ('offset') from -2147483648 to 2147483647 but got 2147483648");
  free(good[0].data), free(good[2].data);
  flashattnKernelFree(kernel);
}

static void checkDevices(void) {
  int32_t devices = 7;
  FAILS(flashattnGetDeviceCount(&devices), FLASHATTN_ERROR_DEVICE,
        "cannot open the CUDA driver library '/nowhere/libcuda.so'");
  CHECK(devices == 0);
  FAILS(flashattnGetDeviceCount(NULL), FLASHATTN_ERROR_INVALID_ARGUMENT, "but got null");
  FlashAttnDeviceInfo info = {.size = sizeof(info)};
  FAILS(flashattnGetDeviceInfo(0, &info), FLASHATTN_ERROR_DEVICE, "cannot open the CUDA driver");
  CHECK(flashattnGetDeviceInfo(FLASHATTN_DEVICE_CPU, &info) == FLASHATTN_OK);
  CHECK(!strcmp(info.chip, "cpu") && info.computeUnits > 0 && info.vectorWidth >= 4);
}

int main(void) {
  CHECK(!strcmp(flashattnGetLastError(), ""));
  checkModules();
  checkAttentionOnly();
  checkOptions();
  checkChecks();
  checkHandles();
  checkNotLaunchable();
  checkTensors();
  checkScoreOperands();
  checkProjection();
  checkOperands();
  checkOffset();
  checkScale();
  checkDevices();
  return finish();
}
