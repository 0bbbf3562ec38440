//===- OverlapTest.cpp - whether tensors share memory ---------------------===//

#include "flashattn/Runtime/Overlap.h"
#include "llvm/ADT/DenseSet.h"

#include <chrono>
#include <gtest/gtest.h>
#include <random>

using namespace mlir::flashattn;

namespace {

struct Tensor {
  uintptr_t address;
  std::vector<int64_t> sizes, strides;
  int64_t elementBytes;

  TensorPlace place() const { return {address, sizes, strides, elementBytes}; }
};

/// Returns the addresses of all bytes.
llvm::DenseSet<uintptr_t> getBytes(const Tensor &tensor) {
  llvm::DenseSet<uintptr_t> bytes;
  int64_t count = 1;
  for (int64_t size : tensor.sizes)
    count *= size;
  for (int64_t n = 0; n < count; ++n) {
    uintptr_t at = tensor.address;
    int64_t rest = n;
    for (size_t d = 0; d < tensor.sizes.size(); ++d) {
      at += rest % tensor.sizes[d] * tensor.strides[d] * tensor.elementBytes;
      rest /= tensor.sizes[d];
    }
    for (int64_t byte = 0; byte < tensor.elementBytes; ++byte)
      bytes.insert(at + byte);
  }
  return bytes;
}

TEST(Overlap, AgreesWithEveryByte) {
  std::mt19937 random(11);
  auto pick = [&](int64_t low, int64_t high) {
    return std::uniform_int_distribution<int64_t>(low, high)(random);
  };
  auto make = [&] {
    Tensor tensor;
    tensor.elementBytes = int64_t(1) << pick(0, 2);
    tensor.address = 4096 + pick(0, 300);
    for (int64_t d = pick(0, 4); d > 0; --d) {
      tensor.sizes.push_back(pick(0, 20) ? pick(1, 5) : 0);
      tensor.strides.push_back(pick(0, 3) ? pick(0, 40) : 7);
    }
    return tensor;
  };
  int shared = 0, between = 0;
  for (int round = 0; round < 20000; ++round) {
    Tensor lhs = make(), rhs = make();
    llvm::DenseSet<uintptr_t> bytes = getBytes(lhs);
    bool expected = false;
    for (uintptr_t byte : getBytes(rhs))
      expected |= bytes.contains(byte);
    ASSERT_EQ(shareMemory(lhs.place(), rhs.place()), expected) << "round " << round;
    ASSERT_EQ(shareMemory(rhs.place(), lhs.place()), expected) << "round " << round;
    shared += expected;
    between +=
        !expected && lhs.place().getEnd() > rhs.address && rhs.place().getEnd() > lhs.address;
  }
  // The random tensors cover both results, also for interleaved tensors.
  EXPECT_GT(shared, 1000);
  EXPECT_GT(between, 1000);
}

TEST(Overlap, ViewsOfPackedArrays) {
  // [B, N, 4, H, D] with q, k, v and o side by side, seen as [B, H, N, D].
  constexpr int64_t kB = 4, kN = 8192, kH = 32, kD = 128;
  auto view = [&](int64_t which) {
    return Tensor{uintptr_t(1) << 40 | uintptr_t(which * kH * kD * 2),
                  {kB, kH, kN, kD},
                  {kN * 4 * kH * kD, kD, 4 * kH * kD, 1},
                  2};
  };
  Tensor q = view(0), o = view(3), wide = view(1);
  wide.sizes[1] = 2 * kH + 1; // k, v and one head of o
  EXPECT_FALSE(shareMemory(q.place(), o.place()));
  EXPECT_TRUE(shareMemory(q.place(), q.place()));
  EXPECT_TRUE(shareMemory(wide.place(), o.place()));
  EXPECT_FALSE(shareMemory(wide.place(), q.place()));

  // Each launch makes such checks, so they must be fast.
  constexpr int kCalls = 10000;
  auto start = std::chrono::steady_clock::now();
  int found = 0;
  for (int i = 0; i < kCalls; ++i)
    found += shareMemory(q.place(), o.place());
  std::chrono::duration<double, std::micro> spent = std::chrono::steady_clock::now() - start;
  EXPECT_EQ(found, 0);
  EXPECT_LT(spent.count() / kCalls, 20) << "microseconds a pair";
  RecordProperty("nanoseconds_a_pair", int(spent.count() * 1000 / kCalls));
}

TEST(Overlap, SizesThatNoMemoryHas) {
  constexpr int64_t kHuge = std::numeric_limits<int64_t>::max();
  Tensor huge{4096, {kHuge, kHuge}, {kHuge, 1}, 8}, small{1 << 20, {3}, {1}, 4};
  EXPECT_TRUE(shareMemory(huge.place(), small.place()));
  Tensor one{4096, {1, 1}, {kHuge, kHuge}, 4}, next{4100, {1}, {kHuge}, 4};
  EXPECT_FALSE(shareMemory(one.place(), next.place()));
  // A search that takes too long is given up, and the tensors count as sharing memory.
  Tensor primes{1 << 20, {997, 991, 983, 977}, {2 * 1009, 2 * 1013, 2 * 1019, 2 * 1021}, 1};
  Tensor odd{(1 << 20) + 1001, {997, 991, 983, 977}, {2 * 1031, 2 * 1033, 2 * 1039, 2 * 1049}, 1};
  EXPECT_TRUE(shareMemory(primes.place(), odd.place()));
}

} // namespace
