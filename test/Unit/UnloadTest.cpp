//===- UnloadTest.cpp - unloading of kernels ------------------------------===//

#include "FakeDriver.h"
#include "flashattn/Runtime/Device.h"

#include <gtest/gtest.h>

using namespace mlir::flashattn;
using llvm::StringRef;

namespace {

constexpr StringRef kPTX = ".version 7.0\n.target sm_80\n.address_size 64\n";

TEST(CUDADevice, UnloadsKernelsWithTheirLastUser) {
  auto *loads = getFake<int()>("fakeCUDALoads"), *unloads = getFake<int()>("fakeCUDAUnloads");
  auto device = llvm::cantFail(createCUDADevice(0));
  auto other = llvm::cantFail(createCUDADevice(0));
  std::string ptx = (kPTX + "// unloaded\n").str();
  void *kernels = llvm::cantFail(device->addKernels(ptx));
  EXPECT_EQ(llvm::cantFail(other->addKernels(ptx)), kernels);
  llvm::cantFail(device->getKernel(kernels, "k"));
  int loaded = loads(), before = unloads();
  EXPECT_EQ(message(device->removeKernels(kernels)), "no error");
  EXPECT_EQ(unloads(), before);
  {
    // A concurrent stream capture is not affected.
    ScopedEnv capturing("FAKE_CUDA_CAPTURING", "1");
    EXPECT_EQ(message(other->removeKernels(kernels)), "no error");
  }
  EXPECT_EQ(unloads(), before + 1);
  // The same kernels are loaded again.
  kernels = llvm::cantFail(device->addKernels(ptx));
  llvm::cantFail(device->getKernel(kernels, "k"));
  EXPECT_EQ(loads(), loaded + 1);
  {
    ScopedEnv fail("FAKE_CUDA_FAIL", "cuModuleUnload=1");
    EXPECT_EQ(message(device->removeKernels(kernels)),
              "cuda:0 cannot unload kernels: CUDA_ERROR_INVALID_VALUE (as the fake driver was "
              "told)");
  }
  // Kernels that were never loaded, and a null handle.
  kernels = llvm::cantFail(device->addKernels(ptx));
  EXPECT_EQ(message(device->removeKernels(kernels)), "no error");
  EXPECT_EQ(message(device->removeKernels(nullptr)), "no error");
  EXPECT_EQ(unloads(), before + 1);
}

TEST(CUDADevice, KeepsWhatAGraphMayHold) {
  auto *loads = getFake<int()>("fakeCUDALoads"), *unloads = getFake<int()>("fakeCUDAUnloads");
  auto device = llvm::cantFail(createCUDADevice(0));
  int before = unloads();
  for (const char *state : {"captures", "unknown"}) {
    std::string ptx = (kPTX + "// of a graph: " + state + "\n").str();
    void *kernels = llvm::cantFail(device->addKernels(ptx));
    void *kernel = llvm::cantFail(device->getKernel(kernels, "k"));
    {
      ScopedEnv capturing("FAKE_CUDA_CAPTURING", *state == 'c' ? "1" : "0");
      ScopedEnv fail("FAKE_CUDA_FAIL", *state == 'c' ? "" : "cuStreamIsCapturing=906");
      EXPECT_EQ(message(device->launch(kernel, {{1, 1, 1}, {1, 1, 1}, {1, 1, 1}}, nullptr)),
                "no error");
    }
    int loaded = loads();
    EXPECT_EQ(message(device->removeKernels(kernels)), "no error");
    // The same kernels, without another load.
    EXPECT_EQ(llvm::cantFail(device->addKernels(ptx)), kernels);
    EXPECT_EQ(llvm::cantFail(device->getKernel(kernels, "k")), kernel);
    EXPECT_EQ(loads(), loaded);
    EXPECT_EQ(message(device->removeKernels(kernels)), "no error");
  }
  EXPECT_EQ(unloads(), before);
}

} // namespace
