//===- TensorMapTest.cpp - arguments of encoded tensor maps ---------------===//

#include "FakeDriver.h"
#include "flashattn/Runtime/Device.h"

using namespace mlir;
using namespace mlir::flashattn;

namespace {

struct TensorMapTest : ::testing::Test {
  /// A box of 80 rows and 64 columns of a tensor (2, 3, 1000, 128).
  TensorMapTest() {
    shape.base = reinterpret_cast<void *>(0x1000);
    shape.sizes = sizes;
    shape.strides = strides;
    shape.rowDim = 2;
    shape.boxRows = 80;
    shape.boxColumns = 64;
  }
  std::string encode() { return message(device->encodeTensorMap(map, shape)); }

  const FakeTensorMap &seen = *getFake<const FakeTensorMap *()>("fakeCUDATensorMap")();
  std::unique_ptr<Device> device = llvm::cantFail(createCUDADevice(0));
  int64_t sizes[4] = {2, 3, 1000, 128}, strides[4] = {3 * 128000, 128000, 128, 1};
  TensorMapShape shape;
  alignas(64) char map[128];
};

TEST_F(TensorMapTest, ReversesTheDimensions) {
  ASSERT_EQ(encode(), "no error");
  EXPECT_EQ(seen.dataType, 6);
  EXPECT_EQ(seen.rank, 4);
  EXPECT_EQ(seen.base, shape.base);
  EXPECT_EQ(llvm::ArrayRef(seen.sizes, 4), llvm::ArrayRef<uint64_t>({128, 1000, 3, 2}));
  EXPECT_EQ(llvm::ArrayRef(seen.strides, 3), llvm::ArrayRef<uint64_t>({256, 256000, 768000}));
  EXPECT_EQ(llvm::ArrayRef(seen.box, 4), llvm::ArrayRef<uint32_t>({64, 80, 1, 1}));
  EXPECT_EQ(llvm::ArrayRef(seen.elementStrides, 4), llvm::ArrayRef<uint32_t>({1, 1, 1, 1}));
  EXPECT_EQ(seen.interleave, 0);
  EXPECT_EQ(seen.swizzle, 3);
  EXPECT_EQ(seen.l2Promotion, 3);
  EXPECT_EQ(seen.fill, 0);
}

TEST_F(TensorMapTest, RowsOfAnyDimension) {
  shape.element = TensorMapElement::BF16;
  shape.rowDim = 1;
  shape.boxColumns = 32;
  ASSERT_EQ(encode(), "no error");
  EXPECT_EQ(seen.dataType, 9);
  EXPECT_EQ(llvm::ArrayRef(seen.box, 4), llvm::ArrayRef<uint32_t>({32, 1, 80, 1}));
  EXPECT_EQ(seen.swizzle, 2);
  shape.boxColumns = 16;
  ASSERT_EQ(encode(), "no error");
  EXPECT_EQ(seen.swizzle, 1);
}

TEST_F(TensorMapTest, RowsOfTwoDimensions) {
  shape.outerDim = 1;
  shape.outerRows = 2;
  ASSERT_EQ(encode(), "no error");
  EXPECT_EQ(llvm::ArrayRef(seen.box, 4), llvm::ArrayRef<uint32_t>({64, 80, 2, 1}));
}

TEST_F(TensorMapTest, StridesOfOneElementDoNotMatter) {
  int64_t ones[] = {1, 1, 1000, 128}, odd[] = {-7, int64_t(1) << 50, 128, 1};
  shape.sizes = ones;
  shape.strides = odd;
  ASSERT_EQ(encode(), "no error");
  EXPECT_EQ(llvm::ArrayRef(seen.sizes, 4), llvm::ArrayRef<uint64_t>({128, 1000, 1, 1}));
  EXPECT_EQ(llvm::ArrayRef(seen.strides, 3), llvm::ArrayRef<uint64_t>({256, 256, 256}));
}

TEST_F(TensorMapTest, BroadcastsByStrideZero) {
  strides[1] = 0;
  ASSERT_EQ(encode(), "no error");
  EXPECT_EQ(llvm::ArrayRef(seen.strides, 3), llvm::ArrayRef<uint64_t>({256, 0, 768000}));
}

TEST_F(TensorMapTest, NothingToLoad) {
  int64_t none[] = {2, 3, 0, 128}, odd[] = {3, 1, 1, 5};
  shape.base = nullptr;
  shape.sizes = none;
  shape.strides = odd;
  ASSERT_EQ(encode(), "no error");
  EXPECT_NE(seen.base, nullptr);
  EXPECT_EQ(llvm::ArrayRef(seen.sizes, 4), llvm::ArrayRef<uint64_t>({1, 1, 1, 1}));
  EXPECT_EQ(llvm::ArrayRef(seen.strides, 3), llvm::ArrayRef<uint64_t>({16, 16, 16}));
  // A load has zeros from memory of the GPU, which is that of the stand-in driver.
  const void *zeros = seen.base;
  EXPECT_EQ(*static_cast<const uint16_t *>(zeros), 0);
  ASSERT_EQ(encode(), "no error");
  EXPECT_EQ(seen.base, zeros);
}

TEST_F(TensorMapTest, RefusesTheBase) {
  shape.base = reinterpret_cast<void *>(0x1008);
  EXPECT_EQ(encode(), "cuda:0 cannot make a tensor map: expected the tensor's first element at an "
                      "address that is a multiple of 16 bytes but got 0x1008");
}

TEST_F(TensorMapTest, RefusesStrides) {
  strides[3] = 2;
  EXPECT_EQ(encode(), "cuda:0 cannot make a tensor map: expected stride 1 of dimension 3, the "
                      "last, but got 2");
  strides[3] = 1;
  for (int64_t stride : {int64_t(132), int64_t(-128), int64_t(1) << 39}) {
    strides[2] = stride;
    EXPECT_EQ(encode(), "cuda:0 cannot make a tensor map: expected a stride of dimension 2 that is "
                        "a multiple of 8 elements from 0 to below 2^39 but got " +
                            std::to_string(stride));
  }
  strides[2] = (int64_t(1) << 39) - 8;
  EXPECT_EQ(encode(), "no error");
}

TEST_F(TensorMapTest, RefusesSizes) {
  sizes[0] = int64_t(1) << 32;
  EXPECT_EQ(encode(), "no error");
  ++sizes[0];
  EXPECT_EQ(encode(), "cuda:0 cannot make a tensor map: expected at most 4294967296 elements along "
                      "dimension 0 but got 4294967297");
  int64_t six[6] = {1, 1, 1, 1, 1, 64};
  shape.sizes = shape.strides = six;
  EXPECT_EQ(encode(), "cuda:0 cannot make a tensor map: expected 1 to 5 dimensions but got 6");
}

TEST_F(TensorMapTest, RefusesTheBox) {
  shape.boxColumns = 128;
  EXPECT_EQ(encode(), "cuda:0 cannot make a tensor map: expected rows of the box of 32, 64 or 128 "
                      "bytes but got 256");
}

TEST_F(TensorMapTest, NotBeforeCUDA12) {
  // Simulate a library without this function. The process has a single function table.
  cuda::Driver &driver = getDriver();
  auto *function = std::exchange(driver.tensorMapEncodeTiled, nullptr);
  EXPECT_EQ(encode(), "cuda:0 cannot make a tensor map, because the CUDA driver is too old: "
                      "expected CUDA 12.0 or newer but got CUDA 12.4");
  driver.tensorMapEncodeTiled = function;
}

TEST_F(TensorMapTest, SaysWhatTheDriverSays) {
  ScopedEnv fail("FAKE_CUDA_FAIL", "cuTensorMapEncodeTiled=1");
  EXPECT_EQ(encode(), "cuda:0 cannot make a tensor map: CUDA_ERROR_INVALID_VALUE (as the fake "
                      "driver was told)");
}

TEST_F(TensorMapTest, NotOnTheCPU) {
  auto cpu = llvm::cantFail(createCPUDevice());
  EXPECT_EQ(message(cpu->encodeTensorMap(map, shape)),
            "expected a CUDA device for a tensor map but got cpu");
}

} // namespace
