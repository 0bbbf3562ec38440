//===- ABI.h - ABI between compiled code and runtime ------------*- C++ -*-===//
//
// The binary interface of the runtime functions that the project's own lowerings call. Upstream's
// lowerings call other functions, for memory and `mgpu*` (lib/Runtime/RuntimeSymbols.cpp). Does not
// depend on LLVM.
//
//===----------------------------------------------------------------------===//

#ifndef FLASHATTN_RUNTIME_ABI_H
#define FLASHATTN_RUNTIME_ABI_H

#include <cstdint>

namespace mlir::flashattn {

/// Names of the runtime functions.
namespace abi {
/// void (int64_t count, void (*body)(void *context, int64_t i), void *context): runs a parallel
/// loop.
inline constexpr char kParallelFor[] = "flashattnParallelFor";
/// int64_t (): returns the number of threads of a parallel loop.
inline constexpr char kThreadCount[] = "flashattnThreadCount";
/// void (void *map, void *alignedPointer, int64_t offset, int64_t rank, const int64_t *sizes,
/// const int64_t *strides, int32_t element, int64_t rowDim, int64_t boxRows, int64_t outerDim,
/// int64_t outerRows, int64_t boxColumns): writes a CUtensorMap; `element` is a TensorMapElement.
inline constexpr char kEncodeTensorMap[] = "flashattnEncodeTensorMap";
/// int64_t (): returns the number of multiprocessors of the device.
inline constexpr char kMultiprocessorCount[] = "flashattnMultiprocessorCount";
/// void (int32_t flags): sets the flags of the next kernel launch of the current call, a
/// combination of LaunchFlags.
inline constexpr char kSetLaunchFlags[] = "flashattnSetLaunchFlags";
} // namespace abi

/// Element types of tensors that a tensor map supports.
enum class TensorMapElement : int32_t { F16 = 0, BF16 = 1, Byte = 2 };
constexpr int32_t kNumTensorMapElements = 3;

constexpr int64_t getElementBytes(TensorMapElement element) {
  switch (element) {
  case TensorMapElement::F16:
  case TensorMapElement::BF16:
    return 2;
  case TensorMapElement::Byte:
    return 1;
  }
  return 0;
}

/// Flags of a kernel launch.
enum LaunchFlags : int32_t {
  /// Programmatic dependent launch: the kernel itself waits for the previous grids
  /// (`griddepcontrol.wait`), so it may start while the previous kernel in the stream is running.
  kLaunchProgrammatic = 1,
};
constexpr int32_t kAllLaunchFlags = kLaunchProgrammatic;

} // namespace mlir::flashattn

#endif // FLASHATTN_RUNTIME_ABI_H
