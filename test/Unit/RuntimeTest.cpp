//===- RuntimeTest.cpp - devices, the JIT and the thread pool -------------===//
//
// The CUDA driver is FakeCUDA.cpp, which main() selects before any device is opened.
//
//===----------------------------------------------------------------------===//

#include "FakeDriver.h"
#include "KernelArchiveTest.h"
#include "flashattn/InitAll.h"
#include "flashattn/Pipelines/Pipelines.h"
#include "flashattn/Runtime/Executable.h"
#include "flashattn/Runtime/ParallelFor.h"
#include "mlir/IR/MLIRContext.h"
#include "mlir/Parser/Parser.h"
#include "mlir/Pass/PassManager.h"
#include "llvm/Support/CommandLine.h"
#include "llvm/Support/FileUtilities.h"

#include <atomic>
#include <gtest/gtest.h>
#include <thread>

using namespace mlir;
using namespace mlir::flashattn;

namespace {

//===----------------------------------------------------------------------===//
// Threads
//===----------------------------------------------------------------------===//

struct Counts {
  std::vector<std::atomic<int>> seen;
  explicit Counts(size_t size) : seen(size) {}
  static void add(void *context, int64_t i) { ++static_cast<Counts *>(context)->seen[i]; }
  bool all(int times) const {
    return llvm::all_of(seen, [&](const std::atomic<int> &count) { return count == times; });
  }
};

TEST(ParallelFor, RunsEveryProgramOnce) {
  for (int64_t count : {0, 1, 2, 3, 1000}) {
    Counts counts(count);
    flashattnParallelFor(count, Counts::add, &counts);
    EXPECT_TRUE(counts.all(1)) << count;
  }
}

TEST(ParallelFor, ManyCallsInARow) {
  Counts counts(7);
  for (int i = 0; i < 20000; ++i)
    flashattnParallelFor(7, Counts::add, &counts);
  EXPECT_TRUE(counts.all(20000));
}

TEST(ParallelFor, NestedCalls) {
  Counts counts(64);
  flashattnParallelFor(
      8, [](void *context, int64_t) { flashattnParallelFor(64, Counts::add, context); }, &counts);
  EXPECT_TRUE(counts.all(8));
}

TEST(ParallelFor, ConcurrentCalls) {
  Counts counts(128);
  std::vector<std::thread> callers;
  for (int i = 0; i < 4; ++i)
    callers.emplace_back([&] {
      for (int j = 0; j < 200; ++j)
        flashattnParallelFor(128, Counts::add, &counts);
    });
  for (std::thread &caller : callers)
    caller.join();
  EXPECT_TRUE(counts.all(800));
}

TEST(ParallelFor, WakesAfterSleep) {
  Counts counts(16);
  for (int i = 0; i < 5; ++i) {
    std::this_thread::sleep_for(std::chrono::milliseconds(2));
    flashattnParallelFor(16, Counts::add, &counts);
  }
  EXPECT_TRUE(counts.all(5));
}

//===----------------------------------------------------------------------===//
// PTX versions and headers
//===----------------------------------------------------------------------===//

TEST(CUDADriver, MaxPTXVersion) {
  std::pair<int, int> known[] = {{11000, 70}, {11080, 78}, {12000, 80}, {12040, 84}, {12050, 85},
                                 {12060, 85}, {12070, 86}, {12080, 87}, {12090, 88}, {13000, 90}};
  for (auto [driver, ptx] : known)
    EXPECT_EQ(cuda::getMaxPTXVersion(driver), ptx) << driver;
}

TEST(CUDADriver, PTXHeader) {
  cuda::PTXHeader header =
      cuda::parsePTXHeader("//\n// made\n.version 8.0\n.target sm_90a\n.address_size 64\n");
  EXPECT_EQ(header.version, 80);
  EXPECT_EQ(header.architecture, 90);
  EXPECT_EQ(header.variant, 'a');
  header = cuda::parsePTXHeader(".version 7.8\n\t.target sm_80, debug\n");
  EXPECT_EQ(header.version, 78);
  EXPECT_EQ(header.architecture, 80);
  EXPECT_EQ(header.variant, 0);
  EXPECT_EQ(cuda::parsePTXHeader("nothing of the kind").version, 0);
}

//===----------------------------------------------------------------------===//
// The CPU as a device
//===----------------------------------------------------------------------===//

OwningOpRef<ModuleOp> lowerTo(StringRef chip, StringRef text, MLIRContext &context) {
  OwningOpRef<ModuleOp> module = parseSourceString<ModuleOp>(text, &context);
  PassManager pm(&context);
  if (chip == "cpu") {
    buildFlashAttnToCPUPipeline(pm, FlashAttnToCPUOptions());
  } else {
    FlashAttnToNVVMOptions options;
    options.chip = chip.str();
    buildFlashAttnToNVVMPipeline(pm, options);
  }
  if (!module || failed(pm.run(*module)))
    return nullptr;
  return module;
}

struct ExecutableTest : ::testing::Test {
  ExecutableTest() {
    DialectRegistry registry;
    registerAllFlashAttnDialects(registry);
    registerAllFlashAttnExtensions(registry);
    context.appendDialectRegistry(registry);
  }
  /// Loads a module that is lowered for a chip on `device`: the CPU, or that of the fake driver.
  std::unique_ptr<Executable> load(StringRef chip, StringRef text) {
    auto module = lowerTo(chip, text, context);
    if (!module)
      llvm::report_fatal_error("expected a module that can be lowered");
    device = llvm::cantFail(chip == "cpu" ? createCPUDevice() : createCUDADevice(0));
    return llvm::cantFail(Executable::create(*module, *device));
  }
  MLIRContext context;
  std::unique_ptr<Device> device;
};

TEST_F(ExecutableTest, AddsOnTheCPU) {
  auto executable = load("cpu", R"mlir(
    func.func @add(%x: memref<?xf32>, %by: f32, %n: index) {
      %c0 = arith.constant 0 : index
      %c1 = arith.constant 1 : index
      scf.for %i = %c0 to %n step %c1 {
        %v = memref.load %x[%i] : memref<?xf32>
        %w = arith.addf %v, %by : f32
        memref.store %w, %x[%i] : memref<?xf32>
      }
      return
    })mlir");
  float values[] = {1, 2, 3};
  struct {
    float *allocated, *aligned;
    int64_t offset, size, stride;
  } x{values, values, 0, 3, 1};
  float by = 0.5f;
  int64_t bits = 0;
  std::memcpy(&bits, &by, sizeof(by));
  void *arguments[] = {&x, reinterpret_cast<void *>(bits), reinterpret_cast<void *>(3)};
  EXPECT_EQ(message(executable->invoke("add", arguments)), "no error");
  EXPECT_EQ(values[2], 3.5f);
  EXPECT_EQ(message(executable->invoke("sub", arguments)),
            "the module has no function 'sub' that can be called");
  // The runtime has limited LLVM's scheduler (boundScheduling).
  llvm::cl::Option *bound = llvm::cl::getRegisteredOptions().lookup("dag-maps-huge-region");
  EXPECT_EQ(static_cast<llvm::cl::opt<unsigned> *>(bound)->getValue(), 100u);
}

TEST_F(ExecutableTest, AllocatesOnTheDevice) {
  auto executable = load("cpu", R"mlir(
    func.func @fail(%n: index) {
      %m = memref.alloc(%n) : memref<?xi8>
      memref.dealloc %m : memref<?xi8>
      return
    })mlir");
  void *few[] = {reinterpret_cast<void *>(16)};
  EXPECT_EQ(message(executable->invoke("fail", few)), "no error");
}

TEST_F(ExecutableTest, NamesUndefinedFunctions) {
  auto module = lowerTo("cpu", R"mlir(
    func.func private @nobody_has_this()
    llvm.func @getpid() -> i32
    func.func @f() {
      call @nobody_has_this() : () -> ()
      %id = llvm.call @getpid() : () -> i32
      return
    })mlir",
                        context);
  ASSERT_TRUE(module);
  auto device = llvm::cantFail(createCPUDevice());
  // A function that the process has, but not the runtime, is undefined too.
  std::string error = message(Executable::create(*module, *device));
  for (const char *name : {"nobody_has_this", "getpid"})
    EXPECT_NE(error.find(name), std::string::npos) << error;
}

//===----------------------------------------------------------------------===//
// CUDA
//===----------------------------------------------------------------------===//

constexpr StringRef kPTX = ".version 7.0\n.target sm_80\n.address_size 64\n";

TEST(CUDADevice, LoadsKernelsOnce) {
  auto *loads = getFake<int()>("fakeCUDALoads");
  auto device = llvm::cantFail(createCUDADevice(0));
  auto other = llvm::cantFail(createCUDADevice(0));
  int before = loads();
  void *first = llvm::cantFail(device->addKernels(kPTX));
  EXPECT_EQ(llvm::cantFail(device->addKernels(kPTX)), first);
  EXPECT_EQ(llvm::cantFail(other->addKernels(kPTX)), first);
  // The caller may free the text before it is loaded.
  void *second = llvm::cantFail(device->addKernels((kPTX + "// other\n").str()));
  EXPECT_NE(second, first);
  EXPECT_EQ(loads(), before);
  for (void *kernels : {first, second, first})
    for (const char *name : {"a", "b"})
      llvm::cantFail(device->getKernel(kernels, name));
  EXPECT_EQ(loads(), before + 2);
}

TEST(CUDADevice, LoadsKernelsInACapture) {
  auto device = llvm::cantFail(createCUDADevice(0));
  void *kernels = llvm::cantFail(device->addKernels((kPTX + "// captured\n").str()));
  ScopedEnv capturing("FAKE_CUDA_CAPTURING", "1");
  {
    ScopedEnv fail("FAKE_CUDA_FAIL", "cuThreadExchangeStreamCaptureMode=1");
    EXPECT_EQ(message(device->getKernel(kernels, "k")),
              "cuda:0 cannot load kernels: CUDA_ERROR_INVALID_VALUE (as the fake driver was told)");
  }
  EXPECT_EQ(message(device->getKernel(kernels, "k")), "no error");
  // The capturing thread has its previous mode again.
  int mode = 1;
  getFake<int(int *)>("cuThreadExchangeStreamCaptureMode")(&mode);
  EXPECT_EQ(mode, 0);
  getFake<int(int *)>("cuThreadExchangeStreamCaptureMode")(&mode);
}

TEST(CUDADevice, RefusesWhatDoesNotFit) {
  auto device = llvm::cantFail(createCUDADevice(0));
  EXPECT_EQ(message(device->addKernels(".version 9.0\n.target sm_80\n")),
            "the CUDA driver is too old for the kernels: they are PTX 9.0 but the driver (CUDA "
            "12.4) takes PTX up to 8.4");
  EXPECT_EQ(message(device->addKernels(".version 8.0\n.target sm_100a\n")),
            "wrong architecture: the kernels are for sm_100a but cuda:0 is sm_90");
  void *kernels = llvm::cantFail(device->addKernels(kPTX));
  void *kernel = llvm::cantFail(device->getKernel(kernels, "k"));
  LaunchShape shape;
  shape.block = {128, 1, 1};
  EXPECT_EQ(message(device->launch(kernel, shape, nullptr)), "no error");
  shape.dynamicSharedBytes = 300000;
  EXPECT_EQ(message(device->launch(kernel, shape, nullptr)),
            "shared memory beyond the limit of cuda:0: kernel 'k' needs 300000 bytes (0 static, "
            "300000 dynamic) but a block has 232448");
  shape.dynamicSharedBytes = 0;
  shape.block = {2048, 1, 1};
  EXPECT_EQ(message(device->launch(kernel, shape, nullptr)),
            "launch failure on cuda:0: kernel 'k' is given 2048 threads per block but its 32 "
            "registers per thread allow 1024");
  EXPECT_EQ(message(createCUDADevice(1)), "expected a CUDA device number below 1 but got 1");
}

TEST(CUDADevice, OutOfMemorySaysHowMuch) {
  auto device = llvm::cantFail(createCUDADevice(0));
  std::string text = message(device->allocate(size_t(1) << 40));
  EXPECT_NE(text.find("out of memory on cuda:0: needed 1099511627776 bytes"), std::string::npos)
      << text;
  EXPECT_NE(text.find("are free"), std::string::npos) << text;
}

TEST(CUDADevice, AsksForSharedMemory) {
  auto device = llvm::cantFail(createCUDADevice(0));
  auto *attribute = getFake<int(int)>("fakeCUDAFunctionAttribute");
  void *kernels = llvm::cantFail(device->addKernels((kPTX + "// shared memory\n").str()));
  void *kernel = llvm::cantFail(device->getKernel(kernels, "k"));
  LaunchShape shape;
  // A producer and three consumer warpgroups, with all of a block's shared memory on Hopper.
  shape.block = {512, 1, 1};
  shape.dynamicSharedBytes = 227 * 1024;
  EXPECT_EQ(message(device->launch(kernel, shape, nullptr)), "no error");
  EXPECT_EQ(attribute(cuda::kMaxDynamicSharedSizeBytes), 232448);
  shape.dynamicSharedBytes += 16;
  EXPECT_EQ(message(device->launch(kernel, shape, nullptr)),
            "shared memory beyond the limit of cuda:0: kernel 'k' needs 232464 bytes (0 static, "
            "232464 dynamic) but a block has 232448");
}

TEST_F(ExecutableTest, PassesTensorMapsByValue) {
  auto executable = load("sm_90a", R"mlir(
    module attributes {gpu.container_module} {
      gpu.binary @kernels [#gpu.object<#nvvm.target<chip = "sm_90a">,
        assembly = ".version 8.0\0A.target sm_90a\0A">]
      func.func @f(%k: memref<?x64xf16, strided<[?, 1], offset: ?>>, %n: index) {
        %c1 = arith.constant 1 : index
        %c512 = arith.constant 512 : index
        %bytes = arith.constant 232448 : i32
        %a = hopper.make_tensor_map %k row_dim(0)
            : memref<?x64xf16, strided<[?, 1], offset: ?>> to !hopper.tensor_map<80x64xf16>
        %b = hopper.make_tensor_map %k row_dim(0)
            : memref<?x64xf16, strided<[?, 1], offset: ?>> to !hopper.tensor_map<128x32xf16>
        gpu.launch_func @kernels::@k blocks in (%n, %c1, %c1) threads in (%c512, %c1, %c1)
            dynamic_shared_memory_size %bytes
            args(%a : !hopper.tensor_map<80x64xf16>, %n : index,
                 %b : !hopper.tensor_map<128x32xf16>)
        return
      }
    })mlir");
  struct {
    void *allocated, *aligned;
    int64_t offset, sizes[2], strides[2];
  } k{nullptr, reinterpret_cast<void *>(0x1000), 64, {1000, 64}, {64, 1}};
  void *arguments[] = {&k, reinterpret_cast<void *>(3)};
  auto *watch = getFake<const uint64_t *(int, size_t)>("fakeCUDAWatch");
  auto *launches = getFake<int(void **)>("fakeCUDALaunches");

  const uint64_t *words = watch(0, 128);
  ASSERT_EQ(message(executable->invoke("f", arguments)), "no error");
  uint64_t first = words[0];
  EXPECT_EQ(llvm::ArrayRef(words, 16), llvm::ArrayRef(std::vector<uint64_t>(16, first)));
  const auto &seen = *getFake<const FakeTensorMap *()>("fakeCUDATensorMap")();
  EXPECT_EQ(seen.base, reinterpret_cast<void *>(0x1080));
  EXPECT_EQ(llvm::ArrayRef(seen.sizes, 2), llvm::ArrayRef<uint64_t>({64, 1000}));
  EXPECT_EQ(seen.strides[0], 128u);
  EXPECT_EQ(llvm::ArrayRef(seen.box, 2), llvm::ArrayRef<uint32_t>({32, 128}));
  // Each launch encodes its own maps: two more.
  words = watch(2, 128);
  ASSERT_EQ(message(executable->invoke("f", arguments)), "no error");
  EXPECT_EQ(llvm::ArrayRef(words, 16), llvm::ArrayRef(std::vector<uint64_t>(16, first + 3)));
  watch(-1, 0);

  void *stream;
  int before = launches(&stream);
  k.strides[0] = 65;
  EXPECT_EQ(message(executable->invoke("f", arguments)),
            "cuda:0 cannot make a tensor map: expected a stride of dimension 0 that is a multiple "
            "of 8 elements from 0 to below 2^39 but got 65");
  EXPECT_EQ(launches(&stream), before);
}

//===----------------------------------------------------------------------===//
// Clusters and fatal errors
//===----------------------------------------------------------------------===//

TEST(CUDADevice, ClustersLaunch) {
  auto device = llvm::cantFail(createCUDADevice(0));
  void *kernel = llvm::cantFail(device->getKernel(llvm::cantFail(device->addKernels(kPTX)), "k"));
  LaunchShape shape;
  shape.grid = shape.cluster = {2, 1, 1};
  EXPECT_EQ(message(device->launch(kernel, shape, nullptr)), "no error");
  // An empty grid is not an error.
  shape.grid = {0, 1, 1};
  EXPECT_EQ(message(device->launch(kernel, shape, nullptr)), "no error");
}

//===----------------------------------------------------------------------===//
// Programmatic dependent launch
//===----------------------------------------------------------------------===//

struct DependentLaunchTest : ::testing::Test {
  void SetUp() override {
    device = llvm::cantFail(createCUDADevice(0));
    kernel = llvm::cantFail(device->getKernel(llvm::cantFail(device->addKernels(kPTX)), "k"));
  }
  /// Launches the kernel. Returns whether it may start before the previous kernel ends.
  bool overlaps(bool programmatic = true, int64_t clusterSize = 1) {
    LaunchShape shape;
    shape.grid = shape.cluster = {clusterSize, 1, 1};
    shape.programmatic = programmatic;
    EXPECT_EQ(message(device->launch(kernel, shape, /*parameters=*/nullptr)), "no error");
    auto *attribute = getFake<int(int)>("fakeCUDALaunchAttribute");
    EXPECT_EQ(attribute(cuda::LaunchAttribute::kClusterDimension),
              clusterSize == 1 ? 0 : clusterSize);
    return attribute(cuda::LaunchAttribute::kProgrammaticStreamSerialization);
  }

  std::unique_ptr<Device> device;
  void *kernel;
  /// The only function table of the process.
  cuda::Driver &driver = getDriver();
};

TEST_F(DependentLaunchTest, OnlyWhereTheLaunchSaysSo) {
  EXPECT_FALSE(overlaps(/*programmatic=*/false));
  EXPECT_TRUE(overlaps());
  EXPECT_TRUE(overlaps(/*programmatic=*/true, /*clusterSize=*/2));
  EXPECT_FALSE(overlaps(/*programmatic=*/false, /*clusterSize=*/2));
}

TEST_F(DependentLaunchTest, PlainWhereTheDriverHasNone) {
  auto *function = std::exchange(driver.launchKernelEx, nullptr);
  EXPECT_FALSE(overlaps());
  driver.launchKernelEx = function;
}

TEST_F(DependentLaunchTest, PlainWhileAnOldDriverCaptures) {
  ScopedEnv capturing("FAKE_CUDA_CAPTURING", "1");
  EXPECT_TRUE(overlaps());
  int version = std::exchange(driver.version, 12020);
  EXPECT_FALSE(overlaps());
  {
    ScopedEnv no("FAKE_CUDA_CAPTURING", "0");
    EXPECT_TRUE(overlaps());
    ScopedEnv fail("FAKE_CUDA_FAIL", "cuStreamIsCapturing=906");
    EXPECT_FALSE(overlaps());
  }
  driver.version = version;
}

/// Host code that launches a kernel given as text, with explicit calls of the runtime.
constexpr StringRef kHostOfKernels = R"mlir(
  module attributes {gpu.container_module} {
    gpu.binary @kernels [#gpu.object<#nvvm.target<chip = "sm_90">,
      assembly = ".version 7.8\0A.target sm_90\0A.visible .entry merge()\0A{ griddepcontrol.wait; }">]
    llvm.func @flashattnSetLaunchFlags(i32)
    func.func @f(%flags: i32, %x: index, %y: index) {
      %c1 = arith.constant 1 : index
      llvm.call @flashattnSetLaunchFlags(%flags) : (i32) -> ()
      gpu.launch_func @kernels::@merge blocks in (%x, %c1, %c1) threads in (%c1, %c1, %c1)
      gpu.launch_func @kernels::@merge blocks in (%y, %c1, %c1) threads in (%c1, %c1, %c1)
      return
    }
  })mlir";

TEST_F(ExecutableTest, FlagsAreOfTheNextLaunch) {
  auto executable = load("sm_90", kHostOfKernels);
  auto *attribute = getFake<int(int)>("fakeCUDALaunchAttribute");
  // Returns whether the last launch with blocks was programmatic. The text of the kernel, which
  // waits, does not matter. A launch without blocks consumes its flags.
  auto last = [&](intptr_t flags, intptr_t x, intptr_t y) -> bool {
    void *arguments[] = {reinterpret_cast<void *>(flags), reinterpret_cast<void *>(x),
                         reinterpret_cast<void *>(y)};
    EXPECT_EQ(message(executable->invoke("f", arguments)), "no error");
    return attribute(cuda::LaunchAttribute::kProgrammaticStreamSerialization);
  };
  EXPECT_FALSE(last(/*flags=*/0, /*x=*/1, /*y=*/0));
  EXPECT_TRUE(last(kLaunchProgrammatic, /*x=*/1, /*y=*/0));
  EXPECT_FALSE(last(kLaunchProgrammatic, /*x=*/1, /*y=*/1));
  EXPECT_FALSE(last(kLaunchProgrammatic, /*x=*/0, /*y=*/1));
}

TEST_F(ExecutableTest, RefusesUnknownFlags) {
  auto executable = load("sm_90", kHostOfKernels);
  void *one = reinterpret_cast<void *>(1), *arguments[] = {reinterpret_cast<void *>(6), one, one};
  auto *launches = getFake<int(void **)>("fakeCUDALaunches");
  void *stream;
  int before = launches(&stream);
  EXPECT_EQ(message(executable->invoke("f", arguments)),
            "expected launch flags of at most 1 but got 6");
  EXPECT_EQ(launches(&stream), before);
}

/// Three kernels in separate images. A call launches either the first, or the other two.
constexpr StringRef kHostOfThree = R"mlir(
  module attributes {gpu.container_module} {
    gpu.binary @a [#gpu.object<#nvvm.target<chip = "sm_90">,
      assembly = ".version 7.8\0A.target sm_90\0A// first">]
    gpu.binary @b [#gpu.object<#nvvm.target<chip = "sm_90">,
      assembly = ".version 7.8\0A.target sm_90\0A// second">]
    gpu.binary @c [#gpu.object<#nvvm.target<chip = "sm_90">,
      assembly = ".version 7.8\0A.target sm_90\0A// third">]
    func.func @f(%both: i1) {
      %c1 = arith.constant 1 : index
      scf.if %both {
        gpu.launch_func @b::@k blocks in (%c1, %c1, %c1) threads in (%c1, %c1, %c1)
        gpu.launch_func @c::@k blocks in (%c1, %c1, %c1) threads in (%c1, %c1, %c1)
      } else {
        gpu.launch_func @a::@k blocks in (%c1, %c1, %c1) threads in (%c1, %c1, %c1)
      }
      return
    }
  })mlir";

TEST_F(ExecutableTest, LoadsKernelsThatAreLaunched) {
  auto module = lowerTo("sm_90", kHostOfThree, context);
  ASSERT_TRUE(module);
  auto device = llvm::cantFail(createCUDADevice(0));
  auto *loads = getFake<int()>("fakeCUDALoads");
  auto *launches = getFake<int(void **)>("fakeCUDALaunches");
  int before = loads();
  auto executable = llvm::cantFail(Executable::create(*module, *device));
  EXPECT_EQ(loads(), before);
  Executable::Entry entry = llvm::cantFail(executable->lookup("f"));
  auto launch = [&](bool both) {
    void *addresses[] = {&both};
    return message(executable->launch(entry, addresses, /*stream=*/nullptr));
  };
  void *stream;
  int launchedBefore = launches(&stream);
  {
    ScopedEnv fail("FAKE_CUDA_FAIL", "cuModuleLoadDataEx=218");
    ScopedEnv log("FAKE_CUDA_LOG", "line 7 is bad");
    EXPECT_EQ(launch(true),
              "cuda:0 cannot load the kernels: CUDA_ERROR_INVALID_PTX (as the fake driver was "
              "told); the driver's compiler says:\nline 7 is bad");
    EXPECT_EQ(launches(&stream), launchedBefore);
  }
  {
    // During a capture, the kernels that it needs are loaded.
    ScopedEnv capturing("FAKE_CUDA_CAPTURING", "1");
    auto captured = llvm::cantFail(Executable::create(*module, *device));
    entry = llvm::cantFail(captured->lookup("f"));
    bool both = true;
    void *addresses[] = {&both};
    EXPECT_EQ(message(captured->launch(entry, addresses, /*stream=*/nullptr)), "no error");
    EXPECT_EQ(launches(&stream), launchedBefore + 2);
    EXPECT_EQ(loads(), before + 2);
  }
  entry = llvm::cantFail(executable->lookup("f"));
  EXPECT_EQ(launch(true), "no error");
  EXPECT_EQ(loads(), before + 2);
  EXPECT_EQ(launch(false), "no error");
  EXPECT_EQ(loads(), before + 3);
  EXPECT_EQ(launches(&stream), launchedBefore + 5);
}

TEST_F(ExecutableTest, RefusesUnknownElementsOfTensorMaps) {
  auto executable = load("sm_90", R"mlir(
    llvm.func @flashattnEncodeTensorMap(!llvm.ptr, !llvm.ptr, i64, i64, !llvm.ptr, !llvm.ptr, i32,
                                        i64, i64, i64, i64, i64)
    func.func @f(%element: i32) {
      %null = llvm.mlir.zero : !llvm.ptr
      %zero = llvm.mlir.constant(0 : i64) : i64
      llvm.call @flashattnEncodeTensorMap(%null, %null, %zero, %zero, %null, %null, %element, %zero,
          %zero, %zero, %zero, %zero) : (!llvm.ptr, !llvm.ptr, i64, i64, !llvm.ptr, !llvm.ptr, i32,
                                         i64, i64, i64, i64, i64) -> ()
      return
    })mlir");
  void *arguments[] = {reinterpret_cast<void *>(3)};
  EXPECT_EQ(message(executable->invoke("f", arguments)),
            "expected an element type of a tensor map below 3 but got 3");
}

TEST_F(ExecutableTest, MergeOverlapsWithParts) {
  StringRef source = R"mlir(
    func.func @decode(%q: memref<1x8x1x64xf16>, %k: memref<1x2x8192x64xf16>,
                      %v: memref<1x2x8192x64xf16>, %o: memref<1x8x1x64xf16>) {
      flashattn.attention
        ins(%q, %k, %v : memref<1x8x1x64xf16>, memref<1x2x8192x64xf16>, memref<1x2x8192x64xf16>)
        outs(%o : memref<1x8x1x64xf16>)
      return
    })mlir";
  auto *attribute = getFake<int(int)>("fakeCUDALaunchAttribute");
  auto *launches = getFake<int(void **)>("fakeCUDALaunches");
  auto *programmatic = getFake<int()>("fakeCUDAProgrammaticLaunches");
  for (StringRef chip : {"sm_80", "sm_90", "sm_90a"}) {
    auto executable = load(chip, source);
    struct {
      void *allocated, *aligned;
      int64_t offset, sizes[4], strides[4];
    } memref{nullptr, reinterpret_cast<void *>(0x1000), 0, {}, {}};
    void *arguments[] = {&memref, &memref, &memref, &memref};
    void *stream;
    int before = launches(&stream), programmaticBefore = programmatic();
    ASSERT_EQ(message(executable->invoke("decode", arguments)), "no error");
    EXPECT_EQ(launches(&stream), before + 2);
    // Only the last launch, the merge, is programmatic.
    EXPECT_EQ(programmatic(), programmaticBefore + (chip != "sm_80"));
    EXPECT_EQ(attribute(cuda::LaunchAttribute::kProgrammaticStreamSerialization), chip != "sm_80");
  }
}

// The last test of a device, because nothing works on it afterwards.
TEST(CUDADeviceZ, FatalErrorsStay) {
  auto device = llvm::cantFail(createCUDADevice(0));
  {
    ScopedEnv fail("FAKE_CUDA_FAIL", "cuStreamSynchronize=700");
    std::string text = message(device->synchronize());
    EXPECT_NE(text.find("fatal error on cuda:0"), std::string::npos) << text;
    EXPECT_NE(text.find("CUDA_ERROR_ILLEGAL_ADDRESS"), std::string::npos) << text;
    EXPECT_NE(text.find("must be restarted"), std::string::npos) << text;
  }
  std::string again = "cuda:0 had a fatal error before (CUDA_ERROR_ILLEGAL_ADDRESS (as the fake "
                      "driver was told)) and refuses all further work of this process, which must "
                      "be restarted";
  EXPECT_EQ(message(device->allocate(16)), again);
  EXPECT_EQ(message(device->synchronize()), again);
  EXPECT_EQ(message(createCUDADevice(0)), again);
}

} // namespace

int main(int argc, char **argv) {
  // A pool of several threads, even on one processor, and the fake driver.
  setenv("FLASHATTN_NUM_THREADS", "4", 1);
  setenv("FLASHATTN_CUDA_DRIVER", FLASHATTN_FAKECUDA, 1);
  initializeBackEnds();
  ::testing::InitGoogleTest(&argc, argv);
  std::string archive = makeKernelArchive();
  llvm::FileRemover remover(archive);
  setenv("FLASHATTN_KERNELS", archive.c_str(), 1);
  return RUN_ALL_TESTS();
}
