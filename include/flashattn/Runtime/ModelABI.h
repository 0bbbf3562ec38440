//===- ModelABI.h - ABI of kernels on the GPU model -------------*- C++ -*-===//
//
// The interface between convert-flashattn-gpu-to-model, which generates calls for all effects of a
// kernel on memory, other threads and asynchronous units, and the model, which implements these
// calls (lib/Runtime/Model).
//
//===----------------------------------------------------------------------===//

#ifndef FLASHATTN_RUNTIME_MODELABI_H
#define FLASHATTN_RUNTIME_MODELABI_H

#include "llvm/ADT/StringRef.h"

#include <cstdint>

namespace mlir::flashattn::model {

/// Prefix of the names of the model's functions. The first parameters of each function are the
/// thread and the index of the op's place, its location in the kernel.
inline constexpr llvm::StringLiteral kPrefix = "flashattnModel";
/// void (const char *kernel, void (*body)(void *arguments, Thread *), int64_t x 6 (blocks of the
/// grid, threads of a block), int32_t sharedBytes, void *arguments): runs a kernel. `kernel` is the
/// kernel's name followed by the text of each place, separated by line feeds.
inline constexpr llvm::StringLiteral kLaunch = "flashattnModelLaunch";

/// Flag in the index of a place: the op has already made a call, so that an op with several calls
/// counts only once.
inline constexpr int32_t kSameOp = 1 << 16;

/// The first fields of the model's Thread, which kernels read by their offsets.
struct ThreadView {
  int32_t thread[3], block[3], blockSize[3], gridSize[3];
  char *shared;        ///< the block's dynamic shared memory, aligned to 1024 bytes
  int64_t sharedBytes; ///< bytes of `shared`
};

/// Flags of an access. An atomic access reads and writes in one step, and orders the accesses of
/// threads before and after it.
enum AccessFlags : int32_t { kReads = 0, kWrites = 1, kShared = 2, kAtomic = 4 };

/// Element types of matrix products.
enum class ProductElement : int32_t { F16 = 0, BF16 = 1, TF32 = 2, F8E4M3FN = 3, F8E5M2 = 4 };

/// The mode of a shuffle, as in gpu.shuffle.
enum class ShuffleMode : int32_t { Xor = 0, Up = 1, Down = 2, Idx = 3 };
/// The kind of a vote, as in flashattn.vote.
enum class Vote : int32_t { Any = 0, All = 1, Ballot = 2 };

} // namespace mlir::flashattn::model

#endif // FLASHATTN_RUNTIME_MODELABI_H
