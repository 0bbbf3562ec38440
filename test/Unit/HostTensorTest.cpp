//===- HostTensorTest.cpp - host arrays in files and memory ---------------===//

#include "HostTensor.h"
#include "Footprint.h"
#include "Npy.h"
#include "Verify.h"
#include "llvm/ADT/APFloat.h"
#include "llvm/Support/FileSystem.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <gtest/gtest.h>
#include <random>

using namespace mlir;
using namespace mlir::flashattn;

namespace {

uint16_t narrow(float value, const llvm::fltSemantics &semantics) {
  llvm::APFloat wide(value);
  bool losesInfo;
  wide.convert(semantics, llvm::APFloat::rmNearestTiesToEven, &losesInfo);
  return wide.bitcastToAPInt().getZExtValue();
}

/// Returns floats of all exponents, some of them at or next to the midpoint of two narrow floats.
std::vector<float> someFloats() {
  std::mt19937 random(1);
  std::vector<float> values = {0.0f, -0.0f, INFINITY, -INFINITY, 65504, 65519.996f, 65520, 65536,
                               // At and above the largest f8E4M3FN and f8E5M2.
                               448, 464, 464.001f, 480, 512, 57344, 61440, 61440.004f, 0x1p-10f,
                               0x1.8p-10f, 0x1p-17f, 0x1.8p-17f};
  auto add = [&](uint32_t word) {
    float value;
    std::memcpy(&value, &word, 4);
    if (!std::isnan(value))
      values.push_back(value);
  };
  for (int i = 0; i < 200000; ++i) {
    add(random());
    uint32_t half = random() & ~0x1fffu; // an f16, to which half a unit is added
    add(half | 0x1000), add(half | 0x1001), add(half | 0x0fff);
    add(half | 0x8000), add((half & ~0xffffu) | 0x7fff);
    // An f8, of an exponent that it has, to which half a unit or less is added.
    uint32_t eighth = random() & 0x80700000u;
    eighth |= (110 + random() % 35) << 23;
    add(eighth | 0x80000), add(eighth | 0x80001), add(eighth | 0x7ffff), add(eighth | 0x100000);
  }
  return values;
}

TEST(HostTensor, NarrowsLikeAPFloat) {
  for (float value : someFloats()) {
    ASSERT_EQ(toF16(value), narrow(value, llvm::APFloat::IEEEhalf())) << value;
    ASSERT_EQ(toBF16(value), narrow(value, llvm::APFloat::BFloat())) << value;
    // Without saturation: a larger number is infinite, or NaN if there is no infinity.
    ASSERT_EQ(toF8E4M3FN(value), narrow(value, llvm::APFloat::Float8E4M3FN())) << value;
    ASSERT_EQ(toF8E5M2(value), narrow(value, llvm::APFloat::Float8E5M2())) << value;
  }
  EXPECT_EQ(fromF8E4M3FN(toF8E4M3FN(464)), 448);
  EXPECT_TRUE(std::isnan(fromF8E4M3FN(toF8E4M3FN(-465))));
  EXPECT_EQ(fromF8E5M2(toF8E5M2(-61440)), -INFINITY);
  EXPECT_TRUE(std::isnan(fromF8E4M3FN(toF8E4M3FN(NAN))));
  EXPECT_TRUE(std::isnan(fromF8E5M2(toF8E5M2(NAN))));
  EXPECT_TRUE(std::isnan(fromF16(toF16(NAN))));
  EXPECT_TRUE(std::isnan(fromBF16(toBF16(NAN))));
}

TEST(HostTensor, WidensAndNarrowsToTheSame) {
  for (uint32_t bits = 0; bits < (1 << 16); ++bits) {
    float half = fromF16(bits), brain = fromBF16(bits);
    if (!std::isnan(half)) {
      ASSERT_EQ(toF16(half), bits);
    }
    if (!std::isnan(brain)) {
      ASSERT_EQ(toBF16(brain), bits);
    }
  }
}

TEST(HostTensor, EightBitsAreWhatLLVMSaysTheyAre) {
  for (auto [scalar, semantics, widen, narrow] :
       {std::tuple(Scalar::F8E4M3FN, &llvm::APFloat::Float8E4M3FN(), &fromF8E4M3FN, &toF8E4M3FN),
        std::tuple(Scalar::F8E5M2, &llvm::APFloat::Float8E5M2(), &fromF8E5M2, &toF8E5M2)}) {
    HostTensor all = llvm::cantFail(HostTensor::create(scalar, {256}));
    ASSERT_EQ(all.getNumBytes(), 256u);
    float floats[256];
    for (int word = 0; word < 256; ++word)
      all.data()[word] = word;
    all.getFloats(0, 256, floats);
    for (int word = 0; word < 256; ++word) {
      llvm::APFloat value(*semantics, llvm::APInt(8, word));
      ASSERT_EQ(std::isnan(floats[word]), value.isNaN()) << word;
      if (value.isNaN())
        continue;
      ASSERT_EQ(floats[word], value.convertToFloat()) << word;
      ASSERT_EQ(all.get(word), floats[word]);
      ASSERT_EQ(widen(word), floats[word]);
      ASSERT_EQ(narrow(floats[word]), word);
      ASSERT_EQ(roundTo(scalar, floats[word]), floats[word]);
      all.set(word, floats[word]);
      ASSERT_EQ(all.data()[word], word);
    }
  }
  HostTensor bytes = llvm::cantFail(HostTensor::create(Scalar::I8, {3}));
  bytes.set(0, -128), bytes.set(1, 127), bytes.set(2, -1);
  float floats[2];
  bytes.getFloats(1, 2, floats);
  EXPECT_EQ(floats[0], 127);
  EXPECT_EQ(floats[1], -1);
}

TEST(HostTensor, UniformCoversTheRange) {
  HostTensor bytes = llvm::cantFail(HostTensor::create(Scalar::I8, {20001}));
  bytes.fillUniform(3, -128, 128);
  std::vector<int> counts(256);
  for (int64_t i = 0; i < bytes.getNumElements(); ++i)
    ++counts[int(bytes.get(i)) + 128];
  EXPECT_GT(*std::min_element(counts.begin(), counts.end()), 40);
  HostTensor scales = llvm::cantFail(HostTensor::create(Scalar::F32, {1000}));
  scales.fillUniform(3, 0.5, 1.5);
  for (int64_t i = 0; i < scales.getNumElements(); ++i) {
    EXPECT_GE(scales.get(i), 0.5);
    EXPECT_LE(scales.get(i), 1.5);
  }
}

TEST(HostTensor, RandomIsNormalAndTheSameEverywhere) {
  HostTensor tensor = llvm::cantFail(HostTensor::create(Scalar::F32, {100001}));
  tensor.fillRandom(7);
  double sum = 0, squares = 0;
  for (int64_t i = 0; i < tensor.getNumElements(); ++i) {
    sum += tensor.get(i);
    squares += tensor.get(i) * tensor.get(i);
  }
  EXPECT_NEAR(sum / tensor.getNumElements(), 0, 0.02);
  EXPECT_NEAR(squares / tensor.getNumElements(), 1, 0.02);
  EXPECT_NEAR(tensor.get(0), -0.2232, 5e-5);
  // An element depends on its index, not on the number of elements.
  HostTensor few = llvm::cantFail(HostTensor::create(Scalar::F32, {3}));
  few.fillRandom(7);
  EXPECT_EQ(few.get(2), tensor.get(2));
}

TEST(Npy, RoundTrips) {
  SmallString<128> path;
  ASSERT_FALSE(llvm::sys::fs::createTemporaryFile("flash-run", "npy", path));
  for (Scalar scalar : {Scalar::F16, Scalar::BF16, Scalar::F32, Scalar::F64, Scalar::I1, Scalar::I8,
                        Scalar::I32, Scalar::I64, Scalar::F8E4M3FN, Scalar::F8E5M2})
    for (SmallVector<int64_t> shape :
         {SmallVector<int64_t>{}, {5}, {2, 3}, {0, 4}, {1, 2, 3, 4, 5}}) {
      HostTensor tensor = llvm::cantFail(HostTensor::create(scalar, shape));
      tensor.fillRandom(1);
      ASSERT_FALSE(bool(writeNpy(path, tensor)));
      HostTensor read = llvm::cantFail(readNpy(path, scalar));
      EXPECT_EQ(read.getTypeName(), tensor.getTypeName());
      EXPECT_EQ(std::memcmp(read.data(), tensor.data(), tensor.getNumBytes()), 0);
    }
  // Bits of a type that NumPy lacks are those of the type that is wanted.
  HostTensor eight = llvm::cantFail(HostTensor::create(Scalar::F8E4M3FN, {2}));
  eight.set(0, 448), eight.set(1, -0.5);
  ASSERT_FALSE(bool(writeNpy(path, eight)));
  EXPECT_EQ(llvm::cantFail(readNpy(path, Scalar::F8E4M3FN)).get(0), 448);
  EXPECT_EQ(llvm::cantFail(readNpy(path, Scalar::F8E5M2)).getTypeName(), "2xf8E5M2");
  EXPECT_NE(llvm::toString(readNpy(path, Scalar::I8).takeError()).find("|u1 for a tensor of i8"),
            std::string::npos);
  llvm::sys::fs::remove(path);
}

TEST(Footprint, IsWhereTheElementsAre) {
  Footprint footprint;
  footprint.shape = {2, 3, 4}, footprint.strides = {0, 0, 0};
  const int64_t descriptor[] = {7, 1000, 5, 2, 3, 4, 40, 8, 2};
  footprint.setDescriptor(descriptor);
  EXPECT_EQ(footprint.address, 1020u);
  int64_t index = 0, last = 0;
  for (int64_t i = 0; i < 2; ++i)
    for (int64_t j = 0; j < 3; ++j)
      for (int64_t k = 0; k < 4; ++k)
        EXPECT_EQ(footprint.getByteOffset(index++), last = (i * 40 + j * 8 + k * 2) * 4);
  EXPECT_EQ(footprint.getHullBytes(), last + 4);
  EXPECT_FALSE(footprint.isContiguous());
  footprint.strides = {12, 4, 1};
  EXPECT_TRUE(footprint.isContiguous());
  footprint.strides = {24, 4, 1};
  EXPECT_FALSE(footprint.isContiguous());
  footprint.shape[0] = 1; // the stride of a single element does not matter
  EXPECT_TRUE(footprint.isContiguous());
}

// Rule B4: how much two runs may differ if the order of sums is not fixed.
TEST(Verify, RunsAreCloseOrNot) {
  for (auto [scalar, near, far] :
       {std::tuple(Scalar::F32, 1e-4, 1e-3), std::tuple(Scalar::F16, 0.0625, 0.25),
        std::tuple(Scalar::BF16, 0.5, 2.0)}) {
    HostTensor a = llvm::cantFail(HostTensor::create(scalar, {3}));
    HostTensor b = llvm::cantFail(HostTensor::create(scalar, {3}));
    auto isCloseWith = [&](double x, double y) {
      a.set(0, 64), b.set(0, 64), a.set(1, -16), b.set(1, -16), a.set(2, x), b.set(2, y);
      return areClose(a, b);
    };
    EXPECT_TRUE(isCloseWith(16, 16 + near));
    EXPECT_FALSE(isCloseWith(16, 16 + far));
    EXPECT_TRUE(isCloseWith(NAN, NAN));
    EXPECT_TRUE(isCloseWith(-INFINITY, -INFINITY));
    EXPECT_FALSE(isCloseWith(NAN, 0));
    EXPECT_FALSE(isCloseWith(INFINITY, 64));
  }
}

} // namespace
