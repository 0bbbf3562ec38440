//===- PythonTensors.cpp - tensors of Python, read without Python ----------===//
//
// A type of Python's shows its tensors to C by a table of functions, the DLPackExchangeAPI of
// DLPack 1.3. One of them describes a tensor in a structure on the stack, where the attributes of
// the object would each cost a call of the interpreter and a new object. The structures are
// declared here as DLPack's binary interface has them.
//
//===----------------------------------------------------------------------===//

#include "PythonTensors.h"

using namespace mlir::flashattn;
using namespace mlir::flashattn::capi;

namespace dlpack {
namespace {

constexpr int32_t kCPU = 1, kCUDA = 2;
constexpr uint8_t kFloat = 2, kBFloat = 4;
/// Layouts change with the major version only.
constexpr uint32_t kMajorVersion = 1;

/// DLTensor.
struct Tensor {
  void *data;
  int32_t deviceType, device;
  int32_t rank;
  uint8_t code, bits;
  uint16_t lanes;
  const int64_t *sizes, *strides; ///< strides in elements, null where dense
  uint64_t byteOffset;
};
static_assert(sizeof(Tensor) == 48, "layout of DLTensor");

/// DLPackExchangeAPI.
struct Exchange {
  uint32_t majorVersion, minorVersion;
  const Exchange *previous;
  void *allocate, *fromObject, *toObject;
  int (*describe)(void *object, Tensor *tensor);
  int (*getCurrentStream)(int32_t deviceType, int32_t device, void **stream);
};

} // namespace
} // namespace dlpack

static bool hasElementType(const dlpack::Tensor &found, int32_t elementType) {
  bool isBF16 = elementType == FLASHATTN_BF16;
  int bits = elementType == FLASHATTN_F32 ? 32 : 16;
  return found.code == (isBF16 ? dlpack::kBFloat : dlpack::kFloat) && found.bits == bits &&
         found.lanes == 1;
}

static bool matches(const dlpack::Tensor &found, const FlashAttnTensor &tensor, int32_t device) {
  bool isCPU = device == FLASHATTN_DEVICE_CPU;
  if (found.deviceType != (isCPU ? dlpack::kCPU : dlpack::kCUDA) ||
      (!isCPU && found.device != device) || found.rank != tensor.rank ||
      !hasElementType(found, tensor.elementType))
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

// Between a match and its launch the interpreter may run other code of the thread (finalizers,
// signal handlers), which may launch too: each match has a place of its own.
constexpr int32_t kNumMatches = 16;
static thread_local Match matchRing[kNumMatches];
static thread_local int32_t nextMatch = 0;

const Match *capi::getMatch(int64_t number) {
  return number >= 1 && number <= kNumMatches ? &matchRing[number - 1] : nullptr;
}

extern "C" int32_t flashattnMatchPythonTensors(const FlashAttnPythonTensors *match) {
  if (!match || !match->exchange || !match->tensors)
    return 0;
  auto *exchange = static_cast<const dlpack::Exchange *>(match->exchange);
  if (exchange->majorVersion != dlpack::kMajorVersion || !exchange->describe)
    return 0;
  Match result{};
  bool isAligned = true;
  for (int i = 0; i < FLASHATTN_MAX_OPERANDS; ++i) {
    enum { kO = 3, kLSE = 4 };
    if (!match->objects[i] && i >= kO)
      break;
    dlpack::Tensor found;
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
      exchange->getCurrentStream(dlpack::kCUDA, match->device, &result.stream) != 0)
    return 0;
  int32_t index = nextMatch;
  nextMatch = (index + 1) % kNumMatches;
  matchRing[index] = result;
  return index + 1;
}
