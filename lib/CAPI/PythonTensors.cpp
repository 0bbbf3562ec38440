//===- PythonTensors.cpp - Python tensors, read without Python ------------===//
//
// A Python tensor type exposes its tensors to C through a table of functions, the DLPackExchangeAPI
// of DLPack 1.3. One function describes a tensor in a structure on the stack. Each attribute of the
// object would instead cost an interpreter call and a new object. The structures are declared here
// as in DLPack's binary interface.
//
//===----------------------------------------------------------------------===//

#include "PythonTensors.h"

using namespace mlir::flashattn;
using namespace mlir::flashattn::capi;

// Names and signatures are DLPack's, in the global namespace as in DLPack: a call through a pointer
// is defined only if the function has the pointer's type.

enum DLDeviceType : int32_t { kDLCPU = 1, kDLCUDA = 2 };
enum DLDataTypeCode : uint8_t {
  kDLInt = 0,
  kDLFloat = 2,
  kDLBfloat = 4,
  kDLBool = 6,
  kDLFloat8_e4m3fn = 10,
  kDLFloat8_e5m2 = 12
};

struct DLTensor {
  void *data;
  int32_t deviceType, device;
  int32_t rank;
  uint8_t code, bits;
  uint16_t lanes;
  const int64_t *sizes, *strides; ///< strides in elements, null if dense
  uint64_t byteOffset;
};
static_assert(sizeof(DLTensor) == 48, "layout of DLTensor");

struct DLPackExchangeAPI {
  uint32_t majorVersion, minorVersion;
  const DLPackExchangeAPI *previous;
  void *allocate, *fromObject, *toObject;
  int (*describe)(void *object, DLTensor *tensor);
  int (*getCurrentStream)(DLDeviceType deviceType, int32_t device, void **stream);
};

/// Layouts change only with the major version.
constexpr uint32_t kMajorVersion = 1;

static bool hasElementType(const DLTensor &found, int32_t elementType) {
  auto has = [&](DLDataTypeCode code, int bytes) {
    return found.code == code && found.bits == 8 * bytes && found.lanes == 1;
  };
  switch (elementType) {
#define ELEMENT(NAME, TEXT, BYTES, CONDITION, CODE, C)                                             \
  case FLASHATTN_##NAME:                                                                           \
    return has(CODE, BYTES);
#include "flashattn/Pipelines/Elements.def"
  }
  return false;
}

static bool matches(const DLTensor &found, const FlashAttnTensor &tensor, int32_t device) {
  bool isCPU = device == FLASHATTN_DEVICE_CPU;
  if (found.deviceType != (isCPU ? kDLCPU : kDLCUDA) || (!isCPU && found.device != device) ||
      found.rank != tensor.rank || !hasElementType(found, tensor.elementType))
    return false;
  int64_t dense = 1;
  for (int d = found.rank - 1; d >= 0; --d) {
    int64_t size = found.sizes[d];
    if (size != tensor.sizes[d])
      return false;
    if (size != 1 && (found.strides ? found.strides[d] : dense) != tensor.strides[d])
      return false;
    dense *= size;
  }
  return true;
}

// Between a match and its launch, the interpreter may run other code on the thread (finalizers,
// signal handlers), which may launch too. So each match has its own entry.
constexpr int32_t kNumMatches = 16;
static thread_local Match matchRing[kNumMatches];
static thread_local int32_t nextMatch = 0;

const Match *capi::getMatch(int64_t number) {
  return number >= 1 && number <= kNumMatches ? &matchRing[number - 1] : nullptr;
}

extern "C" int32_t flashattnMatchPythonTensors(const FlashAttnPythonTensors *match) {
  if (!match || !match->exchange || !match->tensors)
    return 0;
  auto *exchange = static_cast<const DLPackExchangeAPI *>(match->exchange);
  if (exchange->majorVersion != kMajorVersion || !exchange->describe)
    return 0;
  Match result{};
  bool isAligned = true;
  for (int i = 0; i < FLASHATTN_MAX_OPERANDS; ++i) {
    enum { kO = 3, kLSE = 4 };
    if (!match->objects[i] && i >= kO)
      break;
    DLTensor found;
    if (!match->objects[i] || exchange->describe(match->objects[i], &found) != 0 ||
        !matches(found, match->tensors[i], match->device))
      return 0;
    constexpr uintptr_t kChunkBytes = 16;
    uintptr_t address = reinterpret_cast<uintptr_t>(found.data) + found.byteOffset;
    isAligned &= i == kLSE || address % kChunkBytes == 0;
    result.data[i] = reinterpret_cast<void *>(address);
  }
  if (isAligned != bool(match->isAligned))
    return 0;
  if (match->device != FLASHATTN_DEVICE_CPU &&
      exchange->getCurrentStream(kDLCUDA, match->device, &result.stream) != 0)
    return 0;
  int32_t index = nextMatch;
  nextMatch = (index + 1) % kNumMatches;
  matchRing[index] = result;
  return index + 1;
}
