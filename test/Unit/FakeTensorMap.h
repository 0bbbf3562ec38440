//===- FakeTensorMap.h - tensor maps recorded by FakeCUDA.cpp ---*- C++ -*-===//

#ifndef FLASHATTN_TEST_UNIT_FAKETENSORMAP_H
#define FLASHATTN_TEST_UNIT_FAKETENSORMAP_H

#include <cstdint>

/// The arguments of a thread's last call of cuTensorMapEncodeTiled.
struct FakeTensorMap {
  int dataType, rank;
  void *base;
  uint64_t sizes[5], strides[4];
  uint32_t box[5], elementStrides[5];
  int interleave, swizzle, l2Promotion, fill;
};

#endif // FLASHATTN_TEST_UNIT_FAKETENSORMAP_H
