//===- AOTABI.h - what code compiled ahead of time says of itself -*- C++ -*-===//
//
// Needs no LLVM. flash-compile writes these tables beside the code; libFlashAttnAOTRuntime.a, which
// is linked to it, checks calls by them and picks the code. Every field is a pointer or has 64
// bits.
//
//===----------------------------------------------------------------------===//

#ifndef FLASHATTN_RUNTIME_AOTABI_H
#define FLASHATTN_RUNTIME_AOTABI_H

#include <cstdint>

namespace mlir::flashattn::aot {

/// As many as a call has room for.
constexpr int64_t kMaxArguments = 64, kMaxRank = 4;

/// A scalar, or a tensor given by the address of its first element. A size or stride of -1 is a
/// number of the call, behind the address: first those sizes, then those strides.
struct Argument {
  const char *name;
  int64_t isTensor;
  int64_t elementBytes;
  int64_t alignment; ///< of the address, in bytes
  int64_t isWritten;
  int64_t isPosition;     ///< a scalar of 32 bits (rule A3)
  int64_t isFactor;       ///< an f32 from 1e-18 to 1e18 (rule A1)
  int64_t hasAlignedRows; ///< strides but the last are multiples of 16 bytes
  /// The strides are those of a dense array of the sizes, and no numbers of the call.
  int64_t isDense;
  int64_t rank;
  const int64_t *sizes, *strides; ///< in elements; the last dimension runs fastest
};

/// A size that two arguments share: rule R1, or query heads that are a multiple of key heads (A4).
struct Shared {
  const char *what; ///< "the number of keys"; null of heads
  int64_t checked, checkedDim, expected, expectedDim;
};

/// The code for a chip.
struct Variant {
  const char *chip;
  int64_t architecture; ///< 90 of sm_90a; 0 of the CPU
  int64_t variant;      ///< 'a' of sm_90a; 0 without
  int64_t ptxVersion;   ///< that a driver must take, 10 * major + minor
  int64_t cpuLevel;     ///< of the CPU: N of x86-64-vN
  /// Takes the address of each argument's value: for a tensor, that of the address of its
  /// descriptor {allocated, aligned, offset, sizes, strides}.
  void (*entry)(void **values);
};

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
/// code for the device. `numbers` are the arguments in the order of the C function, 64 bits each.
/// Returns null, or what went wrong.
inline constexpr char kCall[] = "flashattnAOTCall";
/// int32_t (const Function *, const char **reason): the first device that there is code for.
inline constexpr char kFindDevice[] = "flashattnAOTFindDevice";

} // namespace mlir::flashattn::aot

#endif // FLASHATTN_RUNTIME_AOTABI_H
