/* Queries about a kernel, and its texts, which include PTX even without a GPU.

   REQUIRES: capi
   RUN: env FLASHATTN_CUDA_DRIVER=/nowhere/libcuda.so capi-query | FileCheck %s
   CHECK: PASS
*/

#include "Inputs/Testing.h"

#include <unistd.h>

static const char *getText(FlashAttnKernel kernel, const char *stage) {
  const char *text = NULL;
  size_t length = 0;
  REQUIRE(flashattnKernelGetText(kernel, stage, &text, &length) == FLASHATTN_OK);
  CHECK(length > 0 && strlen(text) == length);
  return text;
}

static void checkArguments(FlashAttnKernel kernel) {
  static const struct {
    const char *role;
    int32_t type, bytes, rank, direction, aligned;
    int64_t sizes[FLASHATTN_MAX_RANK], strides[FLASHATTN_MAX_RANK];
  } expected[] = {
      {"q", FLASHATTN_F16, 2, 4, FLASHATTN_INPUT, 1, {-1, -1, -1, 64}, {-1, -1, -1, 1}},
      {"k", FLASHATTN_F16, 2, 4, FLASHATTN_INPUT, 1, {-1, -1, -1, 64}, {-1, -1, -1, 1}},
      {"v", FLASHATTN_F16, 2, 4, FLASHATTN_INPUT, 1, {-1, -1, -1, 64}, {-1, -1, -1, 1}},
      {"o", FLASHATTN_F16, 2, 4, FLASHATTN_OUTPUT, 1, {-1, -1, -1, 64}, {-1, -1, -1, 1}},
      {"lse", FLASHATTN_F32, 4, 3, FLASHATTN_OUTPUT, 0, {2, 3, 100}, {300, 100, 1}}};
  FlashAttnKernelInfo info = {.size = sizeof(info)};
  REQUIRE(flashattnKernelGetInfo(kernel, &info) == FLASHATTN_OK);
  REQUIRE(info.numArguments == 5);
  CHECK(!strcmp(info.function, "attention"));
  for (int i = 0; i < 5; ++i) {
    FlashAttnArgumentInfo found = {.size = sizeof(found)};
    REQUIRE(flashattnKernelGetArgument(kernel, i, &found) == FLASHATTN_OK);
    CHECK(!strcmp(found.role, expected[i].role) && found.kind == FLASHATTN_ARGUMENT_MEMREF);
    CHECK(found.elementType == expected[i].type && found.elementBytes == expected[i].bytes);
    CHECK(found.rank == expected[i].rank && found.direction == expected[i].direction);
    CHECK(found.alignedRows == expected[i].aligned);
    CHECK(!memcmp(found.sizes, expected[i].sizes, sizeof(found.sizes)));
    CHECK(!memcmp(found.strides, expected[i].strides, sizeof(found.strides)));
  }
}

/* Tuned schedules are stored in a file; invalid ones are rejected. */
static void checkTuned(void) {
  const char *path = NULL, *json = NULL;
  setenv("HOME", "/nowhere", 1);
  setenv("XDG_CACHE_HOME", "relative", 1);
  CHECK(flashattnTunedGetPath(&path) == FLASHATTN_OK);
  CHECK(!strcmp(path, "/nowhere/.cache/flashattn/schedules.json"));
  char folder[] = "/tmp/flashattn-query-XXXXXX", file[64];
  REQUIRE(mkdtemp(folder));
  setenv("XDG_CACHE_HOME", folder, 1);
  CHECK(flashattnTunedGetPath(&path) == FLASHATTN_OK && strstr(path, folder) == path);
  snprintf(file, sizeof(file), "%s/a.json", folder);
  CHECK(flashattnTunedLoad(file, &json) == FLASHATTN_OK && !strcmp(json, "{}"));
  CHECK(flashattnTunedStore(file, NULL, NULL) == FLASHATTN_OK && access(file, F_OK) != 0);
  CHECK(flashattnTunedStore(file, "key", "{\"schedule\": \"tile_m = 8\", \"ms\": 1}") ==
        FLASHATTN_OK);
  CHECK(flashattnTunedLoad(file, &json) == FLASHATTN_OK);
  CHECK(!strcmp(json, "{\"key\":{\"ms\":1,\"schedule\":\"tile_m = 8\"}}"));
  CHECK(flashattnTunedStore(file, "key", "3") == FLASHATTN_ERROR_INVALID_ARGUMENT);
  CHECK(
      strstr(flashattnGetLastError(), "expected the finding to be a JSON object with a schedule"));
  CHECK(flashattnTunedStore(file, NULL, "{}") == FLASHATTN_ERROR_INVALID_ARGUMENT);
  CHECK(flashattnTunedGetPath(NULL) == FLASHATTN_ERROR_INVALID_ARGUMENT);
  CHECK(flashattnTunedLoad(file, NULL) == FLASHATTN_ERROR_INVALID_ARGUMENT);
  CHECK(remove(file) == 0 && rmdir(folder) == 0);
}

/* The operands of an op, independent of any kernel. */
static void checkOperands(void) {
  enum {
    kFloats = 1 << FLASHATTN_F16 | 1 << FLASHATTN_BF16 | 1 << FLASHATTN_F32,
    kQueries = kFloats | 1 << FLASHATTN_F8E4M3FN | 1 << FLASHATTN_F8E5M2,
    kCached = kQueries | 1 << FLASHATTN_I8
  };
  static const struct {
    const char *name, *dims;
    int32_t types, likeFirst, isOptional, broadcasts, followsLayout, isOutput;
  } expected[] = {{"q", "BHND", kQueries, 0, 0, 0, 1, 0},
                  {"k", "BGKD", kCached, 3, 0, 0, 1, 0},
                  {"v", "BGKV", kCached, 3, 0, 0, 1, 0},
                  {"bias", "BHNK", kFloats, 0, 1, 1, 0, 0},
                  {"attn_mask", "BHNK", 1 << FLASHATTN_I1, 0, 1, 1, 0, 0},
                  {"sink_logits", "H", 1 << FLASHATTN_F32, 0, 1, 0, 0, 0},
                  {"kv_len", "B", 1 << FLASHATTN_I32, 0, 1, 0, 0, 0},
                  {"q_len", "B", 1 << FLASHATTN_I32, 0, 1, 0, 0, 0},
                  {"cu_seqlens_q", "C", 1 << FLASHATTN_I32, 0, 1, 0, 0, 0},
                  {"cu_seqlens_k", "C", 1 << FLASHATTN_I32, 0, 1, 0, 0, 0},
                  {"page_table", "BT", 1 << FLASHATTN_I32, 0, 1, 0, 0, 0},
                  {"leftpad_k", "B", 1 << FLASHATTN_I32, 0, 1, 0, 0, 0},
                  {"k_scale", "BGKX", 1 << FLASHATTN_F32, 0, 1, 1, 1, 0},
                  {"v_scale", "BGKY", 1 << FLASHATTN_F32, 0, 1, 1, 1, 0},
                  {"offset", "", 1 << FLASHATTN_INDEX, 0, 1, 0, 0, 0},
                  {"offsets", "B", 1 << FLASHATTN_I32, 0, 1, 0, 0, 0},
                  {"scale", "", 1 << FLASHATTN_F32, 0, 1, 0, 0, 0},
                  {"per_sequence", "B", 1 << FLASHATTN_I32, 0, 1, 1, 0, 0},
                  {"per_query", "BHN", 1 << FLASHATTN_I32, 0, 1, 1, 0, 0},
                  {"per_key", "BGK", 1 << FLASHATTN_I32, 0, 1, 1, 0, 0},
                  {"o", "BHNV", kFloats, 2, 0, 0, 1, 1},
                  {"lse", "BHN", 1 << FLASHATTN_F32, 0, 1, 0, 0, 1}};
  enum { kCount = sizeof(expected) / sizeof(expected[0]) };
  for (int i = 0; i < kCount; ++i) {
    FlashAttnOperandInfo found = {.size = sizeof(found)};
    REQUIRE(flashattnGetOperand("attention", i, &found) == FLASHATTN_OK);
    CHECK(found.numOperands == kCount && found.size == sizeof(found));
    CHECK(!strcmp(found.name, expected[i].name) && !strcmp(found.dims, expected[i].dims));
    CHECK(found.elementTypes == expected[i].types && found.likeFirst == expected[i].likeFirst);
    CHECK(found.isOptional == expected[i].isOptional);
    CHECK(found.broadcasts == expected[i].broadcasts);
    CHECK(found.followsLayout == expected[i].followsLayout);
    CHECK(found.isVariadic == !strncmp(found.name, "per_", 4));
    CHECK(found.direction == (expected[i].isOutput ? FLASHATTN_OUTPUT : FLASHATTN_INPUT));
    CHECK(found.kind ==
          (*expected[i].dims ? FLASHATTN_ARGUMENT_MEMREF : FLASHATTN_ARGUMENT_SCALAR));
  }
  /* The operands of the backward op, all of which a packed launch may have. */
  static const char *const gradients[] = {"q",
                                          "k",
                                          "v",
                                          "o",
                                          "lse",
                                          "d_o",
                                          "d_lse",
                                          "bias",
                                          "attn_mask",
                                          "sink_logits",
                                          "kv_len",
                                          "q_len",
                                          "cu_seqlens_q",
                                          "cu_seqlens_k",
                                          "offset",
                                          "offsets",
                                          "scale",
                                          "per_sequence",
                                          "per_query",
                                          "per_key",
                                          "dq",
                                          "dk",
                                          "dv",
                                          "d_bias",
                                          "d_sink_logits"};
  enum { kGradients = sizeof(gradients) / sizeof(*gradients), kFirstOutput = 20 };
  /* Each of three operands may have 8 tensors, and a score_mod may read 4. */
  CHECK(kGradients + 3 * 7 + 4 <= FLASHATTN_MAX_PACKED);
  for (int i = 0; i < kGradients; ++i) {
    FlashAttnOperandInfo found = {.size = sizeof(found)};
    REQUIRE(flashattnGetOperand("attention_backward", i, &found) == FLASHATTN_OK);
    CHECK(found.numOperands == kGradients && !strcmp(found.name, gradients[i]));
    CHECK(found.direction == (i < kFirstOutput ? FLASHATTN_INPUT : FLASHATTN_OUTPUT));
  }
  FlashAttnOperandInfo p = {.size = sizeof(p)}, parts = {.size = sizeof(parts)};
  CHECK(flashattnGetOperand("project", 2, &p) == FLASHATTN_OK);
  CHECK(!strcmp(p.name, "p") && !strcmp(p.dims, "BNE") && p.likeFirst == 2);
  CHECK(flashattnGetOperand("combine", 0, &parts) == FLASHATTN_OK && !strcmp(parts.dims, "SBHNV"));
}

/* Keys and values of 8 bits, and their scales. */
static void checkNarrow(void) {
  static const char *const kText =
      "func.func @f(%q: memref<1x2x?x64xf16>, %k: memref<1x1x?x64xf8E4M3FN>,\n"
      "             %v: memref<1x1x?x64xf8E5M2>, %s: memref<1x1x?x4xf32>,\n"
      "             %t: memref<1x1x1x1xf32>, %o: memref<1x2x?x64xf16>) {\n"
      "  flashattn.attention k_scale(%s : memref<1x1x?x4xf32>) v_scale(%t : memref<1x1x1x1xf32>)\n"
      "      ins(%q, %k, %v : memref<1x2x?x64xf16>, memref<1x1x?x64xf8E4M3FN>,\n"
      "          memref<1x1x?x64xf8E5M2>)\n"
      "      outs(%o : memref<1x2x?x64xf16>)\n"
      "  return\n}";
  static const struct {
    const char *role;
    int32_t type, bytes;
    int64_t sizes[4];
  } expected[] = {
      {"q", FLASHATTN_F16, 2, {1, 2, -1, 64}},     {"k", FLASHATTN_F8E4M3FN, 1, {1, 1, -1, 64}},
      {"v", FLASHATTN_F8E5M2, 1, {1, 1, -1, 64}},  {"k_scale", FLASHATTN_F32, 4, {1, 1, -1, 4}},
      {"v_scale", FLASHATTN_F32, 4, {1, 1, 1, 1}}, {"o", FLASHATTN_F16, 2, {1, 2, -1, 64}}};
  FlashAttnKernel kernel = compileFor("cpu", kText);
  FlashAttnTensor t[6];
  for (int i = 0; i < 6; ++i) {
    FlashAttnArgumentInfo found = {.size = sizeof(found)};
    REQUIRE(flashattnKernelGetArgument(kernel, i, &found) == FLASHATTN_OK);
    CHECK(!strcmp(found.role, expected[i].role) && found.rank == 4);
    CHECK(found.elementType == expected[i].type && found.elementBytes == expected[i].bytes);
    CHECK(!memcmp(found.sizes, expected[i].sizes, sizeof(expected[i].sizes)));
    int64_t sizes[4];
    for (int d = 0; d < 4; ++d)
      sizes[d] = expected[i].sizes[d] < 0 ? 3 : expected[i].sizes[d];
    t[i] = describe(expected[i].type, 4, sizes);
    t[i].data = calloc(2 * 3 * 64, 4);
  }
  CHECK(flashattnLaunch(kernel, NULL, t, 6) == FLASHATTN_OK);
  t[1].elementType = FLASHATTN_F8E5M2;
  FAILS(flashattnLaunch(kernel, NULL, t, 6), FLASHATTN_ERROR_TENSOR,
        "expected argument 1 ('k') with element type f8E4M3FN but got f8E5M2");
  t[1].elementType = FLASHATTN_F8E4M3FN, t[2].elementType = 12;
  FAILS(flashattnLaunch(kernel, NULL, t, 6), FLASHATTN_ERROR_TENSOR,
        "expected argument 2 ('v') with element type f8E5M2 but got no element type");
  t[2].elementType = FLASHATTN_F8E5M2, t[3].sizes[2] = 2;
  FAILS(flashattnLaunch(kernel, NULL, t, 6), FLASHATTN_ERROR_TENSOR,
        "expected key length of argument 3 ('k_scale') to be 3 as in argument 1 ('k') but got 2");
  for (int i = 0; i < 6; ++i)
    free(t[i].data);
  CHECK(flashattnKernelFree(kernel) == FLASHATTN_OK);
}

/* The tiled stage is the same on every chip: tile values, and nothing specific to a target. */
static void checkTiled(const char *text) {
  CHECK(strstr(text, "flashattn.program") && strstr(text, "vector.contract"));
  /* With warp specialization, flashattn.softmax_step contains the exponentials. */
  CHECK(strstr(text, "math.exp2") || strstr(text, "flashattn.softmax_step"));
  CHECK(strstr(text, "vector.multi_reduction"));
  static const char *const later[] = {"flashattn.attention",
                                      "gpu.",
                                      "nvvm.",
                                      "nvgpu.",
                                      "hopper.",
                                      "wgmma",
                                      "memref.alloc",
                                      "llvm.func",
                                      "flashattnParallelFor"};
  for (size_t i = 0; i < sizeof(later) / sizeof(*later); ++i)
    CHECK(!strstr(text, later[i]));
}

/* Few queries use split-KV. The number of splits depends on the sizes and on the GPU. */
static void checkWorkspace(void) {
  static const char *const chips[] = {"sm_80", "sm_90a", "cpu"};
  for (int i = 0; i < 3; ++i) {
    int isCPU = i == 2;
    FlashAttnKernel kernel = compileFor(chips[i], kDecodeText);
    FlashAttnKernelInfo info = {.size = sizeof(info)};
    CHECK(flashattnKernelGetInfo(kernel, &info) == FLASHATTN_OK);
    CHECK(info.workspaceBytes == (isCPU ? 0 : -1));
    FlashAttnTensor tensors[4];
    for (int t = 0; t < 4; ++t)
      tensors[t] = describe(FLASHATTN_F16, 4, (int64_t[]){1, 2, t == 1 || t == 2 ? 9000 : 1, 64});
    int64_t bytes = -1;
    int32_t status = flashattnKernelGetWorkspace(kernel, tensors, 4, &bytes);
    CHECK(isCPU ? status == FLASHATTN_OK && bytes == 0 : status == FLASHATTN_ERROR_DEVICE);
    CHECK(flashattnKernelFree(kernel) == FLASHATTN_OK);
  }
}

/* Schedules worth timing. A program built before the field `gradients` existed gets those of the
   forward pass. */
static void checkTrials(void) {
  FlashAttnTrialOptions options = {.size = offsetof(FlashAttnTrialOptions, gradients),
                                   .chip = "sm_80",
                                   .elementType = FLASHATTN_F16,
                                   .group = 1,
                                   .gradients = 1};
  const char *text = NULL;
  CHECK(flashattnGetTrials(&options, &text) == FLASHATTN_OK);
  CHECK(strstr(text, "tile_m = 192") && !strstr(text, "separate_dk_dv"));
  options.size = sizeof(options);
  CHECK(flashattnGetTrials(&options, &text) == FLASHATTN_OK);
  CHECK(!strstr(text, "tile_m = 192") && strstr(text, "algorithm = separate_dk_dv"));
  options.size = offsetof(FlashAttnTrialOptions, gradients) - 1;
  FAILS(flashattnGetTrials(&options, &text), FLASHATTN_ERROR_INVALID_ARGUMENT,
        "expected a FlashAttnTrialOptions of ");
}

/* A second compilation takes its code from the cache, and has the same texts. */
static void checkCache(void) {
  char folder[] = "/tmp/flashattn-cache-XXXXXX", code[64];
  REQUIRE(mkdtemp(folder));
  snprintf(code, sizeof(code), "%s/code", folder);
  FlashAttnCacheInfo info = {.size = sizeof(info)};
  setenv("FLASHATTN_CACHE", "off", 1);
  CHECK(flashattnGetCacheInfo(&info) == FLASHATTN_OK &&
        !strcmp(info.offReason, "FLASHATTN_CACHE=off"));
  int64_t made = info.made;
  setenv("FLASHATTN_CACHE", code, 1);
  CHECK(flashattnGetCacheInfo(&info) == FLASHATTN_OK && !*info.offReason);
  CHECK(!strcmp(info.folder, code) && info.files == 0 && access(code, F_OK) != 0);
  FlashAttnKernel first = compileFor("sm_80", kDecodeText),
                  second = compileFor("sm_80", kDecodeText);
  CHECK(!strcmp(getText(first, "ptx"), getText(second, "ptx")));
  CHECK(flashattnGetCacheInfo(&info) == FLASHATTN_OK && info.files == 1);
  /* main() has disabled the archive. Callers with the older structure still get the older
     fields. */
  CHECK(!strcmp(info.archiveOffReason, "FLASHATTN_KERNELS=off") && !*info.archiveFile);
  CHECK(info.archiveMembers == 0 && info.archiveFound == 0);
  FlashAttnCacheInfo old = {.size = offsetof(FlashAttnCacheInfo, archiveFile), .archiveFound = 7};
  CHECK(flashattnGetCacheInfo(&old) == FLASHATTN_OK && old.files == 1 && old.archiveFound == 7);
  CHECK(info.made == made + 1 && info.found == 1 &&
        info.bytes > (int64_t)strlen(getText(first, "ptx")));
  CHECK(flashattnKernelFree(first) == FLASHATTN_OK && flashattnKernelFree(second) == FLASHATTN_OK);
  char command[128];
  snprintf(command, sizeof(command), "rm -r %s", folder);
  CHECK(system(command) == 0);
}

int main(void) {
  setenv("FLASHATTN_KERNELS", "off", 1);
  checkOperands();
  checkNarrow();
  CHECK(strstr(flashattnGetVersion(), "."));
  const char *text =
      attentionText("memref<?x?x?x64xf16, strided<[?, ?, ?, 1], offset: ?>>",
                    " {flashattn.aligned_rows}", "mask(#flashattn.causal)", "memref<2x3x100xf32>");
  static const char *const chips[] = {"sm_80", "sm_90", "sm_90a", "cpu"};
  for (int i = 0; i < 4; ++i) {
    const char *chip = chips[i];
    int isCPU = i == 3;
    FlashAttnKernel kernel = compileFor(chip, text);
    checkArguments(kernel);
    FlashAttnKernelInfo info = {.size = sizeof(info)};
    CHECK(flashattnKernelGetInfo(kernel, &info) == FLASHATTN_OK && !strcmp(info.chip, chip));
    CHECK(info.isLaunchable == isCPU);
    /* The dynamic scheduler needs a counter, unless there are few programs. */
    CHECK(info.workspaceBytes == (i == 2 ? -1 : 0));
    CHECK(info.device == (isCPU ? FLASHATTN_DEVICE_CPU : FLASHATTN_DEVICE_AUTO));
    char key[64];
    snprintf(key, sizeof(key), "%s/64/64/f16/triangular", chip);
    CHECK(!strcmp(info.tuningKey, key));
    /* A program built before this field existed gets the other fields. */
    FlashAttnKernelInfo older = {.size = offsetof(FlashAttnKernelInfo, tuningKey)};
    CHECK(flashattnKernelGetInfo(kernel, &older) == FLASHATTN_OK && !older.tuningKey);
    /* At least the text of the module; the size grows when long texts are requested. */
    CHECK(info.hostBytes > (int64_t)strlen(text));
    int64_t lowered = strlen(getText(kernel, "lowered")), before = info.hostBytes;
    CHECK(flashattnKernelGetInfo(kernel, &info) == FLASHATTN_OK &&
          info.hostBytes > before + lowered);
    CHECK(older.numStages == info.numStages && older.size < sizeof(older));
    CHECK(!!strstr(info.notLaunchableReason, "cannot open the CUDA driver library") == !isCPU);

    static const char *const stages[] = {"mlir", "schedule", "tiled", "lowered", "ptx"};
    CHECK(info.numStages == (isCPU ? 4 : 5));
    for (int s = 0; s < info.numStages; ++s) {
      const char *name = NULL;
      CHECK(flashattnKernelGetStage(kernel, s, &name) == FLASHATTN_OK && !strcmp(name, stages[s]));
    }
    CHECK(!strcmp(getText(kernel, "mlir"), text));
    CHECK(!strncmp(getText(kernel, "schedule"), "tile_m = ", 9));
    checkTiled(getText(kernel, "tiled"));
    CHECK(strstr(getText(kernel, "lowered"), "llvm.func"));
    if (!isCPU) {
      const char *ptx = getText(kernel, "ptx");
      CHECK(strstr(ptx, i == 0 ? ".target sm_80" : ".target sm_90"));
      CHECK(strstr(ptx, "cp.async") && strstr(ptx, i == 2 ? "wgmma.mma_async" : "mma.sync"));
    }

    /* The printed schedule can be pinned. */
    FlashAttnCompileOptions options;
    flashattnCompileOptionsInit(&options);
    options.chip = chip;
    options.schedule = getText(kernel, "schedule");
    FlashAttnKernel again = NULL;
    CHECK(flashattnCompile(text, strlen(text), &options, &again) == FLASHATTN_OK);
    CHECK(!strcmp(getText(again, "schedule"), options.schedule));
    CHECK(flashattnKernelFree(again) == FLASHATTN_OK);
    CHECK(flashattnKernelFree(kernel) == FLASHATTN_OK);
  }
  checkWorkspace();
  checkTuned();
  checkCache();
  checkTrials();
  return finish();
}
