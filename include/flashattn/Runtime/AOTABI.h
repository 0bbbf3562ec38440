//===- AOTABI.h - ahead-of-time compiled code -------------------*- C++ -*-===//
//
// Tables that flash-compile emits next to the code that it compiles ahead of time.
// libFlashAttnAOTRuntime.a, which is linked with this code, uses the tables to check calls and to
// select the code for a device. Every field is a pointer or has 64 bits. Does not depend on LLVM.
//
//===----------------------------------------------------------------------===//

#ifndef FLASHATTN_RUNTIME_AOTABI_H
#define FLASHATTN_RUNTIME_AOTABI_H

#include <cstdint>

namespace mlir::flashattn::aot {

/// Limits of a call.
constexpr int64_t kMaxArguments = 64, kMaxRank = 4;

/// An argument: a scalar, or a tensor passed by the address of its first element. Each size or
/// stride that is -1 here is passed with the call after the address: first the sizes, then the
/// strides.
struct Argument {
  const char *name;
  int64_t isTensor;
  int64_t elementBytes;
  int64_t alignment; ///< alignment of the address, in bytes
  int64_t isWritten;
  int64_t isPosition;     ///< a 32-bit scalar (rule A3)
  int64_t isFactor;       ///< an f32 from 1e-18 to 1e18 (rule A1)
  int64_t hasAlignedRows; ///< all strides but the last are multiples of 16 bytes
  /// The strides are those of a dense array of the sizes and are not passed with the call.
  int64_t isDense;
  int64_t rank;
  const int64_t *sizes, *strides; ///< in elements; the last dimension is the fastest
};

/// A size that two arguments share (rule R1), plus `more` (rule S1), or a number of query heads that
/// must be a multiple of the number of key/value heads (rule A4).
struct Shared {
  const char *what; ///< such as "the number of keys"; null for heads (A4)
  int64_t checked, checkedDim, expected, expectedDim, more;
};

/// The code for one chip.
struct Variant {
  const char *chip;
  int64_t architecture; ///< 90 for sm_90a; 0 for the CPU
  int64_t variant;      ///< 'a' for sm_90a; 0 if there is no suffix
  int64_t ptxVersion;   ///< required of the driver, 10 * major + minor
  int64_t cpuLevel;     ///< for the CPU: N of x86-64-vN
  /// Runs the code. `values` holds the address of each argument's value; for a tensor, the address
  /// of a pointer to its descriptor {allocated, aligned, offset, sizes, strides}.
  void (*entry)(void **values);
};

/// A function and its variants, one for each chip.
struct Function {
  const char *name;
  int64_t numArguments;
  const Argument *arguments;
  int64_t numShared;
  const Shared *shared;
  int64_t numVariants;
  const Variant *variants;
};

/// const char *(const Function *, int32_t device, void *stream, const int64_t *numbers): runs the
/// code for the device. `numbers` are the parameters of the C function in order, 64 bits each.
/// Returns null or an error message.
inline constexpr char kCall[] = "flashattnAOTCall";
/// int32_t (const Function *, const char **reason): returns the first device for which there is
/// code.
inline constexpr char kFindDevice[] = "flashattnAOTFindDevice";

} // namespace mlir::flashattn::aot

#endif // FLASHATTN_RUNTIME_AOTABI_H
