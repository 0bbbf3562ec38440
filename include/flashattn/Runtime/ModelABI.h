//===- ModelABI.h - ABI of kernels on the GPU model -------------*- C++ -*-===//
//
// The interface between convert-flashattn-gpu-to-model, which generates calls for all effects of a
// kernel beyond its own values, and the model that implements these calls (lib/Runtime/Model).
//
//===----------------------------------------------------------------------===//

#ifndef FLASHATTN_RUNTIME_MODELABI_H
#define FLASHATTN_RUNTIME_MODELABI_H

#include "llvm/ADT/StringRef.h"

#include <cstdint>

namespace mlir::flashattn::model {

/// Prefix of the names of the model's functions. The first parameters of each function are the
/// thread and the number of a place.
inline constexpr llvm::StringLiteral kPrefix = "flashattnModel";
/// void (const char *kernel, void (*body)(void *arguments, Thread *), int64_t x 6 (blocks of the
/// grid, threads of a block), int32_t sharedBytes, void *arguments): runs a kernel. `kernel` is its
/// name followed by the text of each place, separated by line feeds.
inline constexpr llvm::StringLiteral kLaunch = "flashattnModelLaunch";

/// Set in the number of a place if the op has made an earlier call: an op with several calls runs
/// once.
inline constexpr int32_t kSameOp = 1 << 16;

/// The part of a thread that a kernel reads, by position. The rest of a thread follows it.
struct ThreadView {
  int32_t thread[3], block[3], blockSize[3], gridSize[3];
  char *shared;        ///< the block's dynamic shared memory, aligned to 1024 bytes
  int64_t sharedBytes; ///< bytes of `shared`
};

/// Flags of an access. An atomic access reads and writes in one step, and orders the accesses of
/// threads before and after it.
enum AccessFlags : int32_t { kReads = 0, kWrites = 1, kShared = 2, kAtomic = 4 };

/// Element types of products.
enum class ProductElement : int32_t { F16 = 0, BF16 = 1, TF32 = 2 };

/// How threads exchange values, as in gpu.shuffle.
enum class ShuffleMode : int32_t { Xor = 0, Up = 1, Down = 2, Idx = 3 };
/// The kind of a vote, as in flashattn.vote.
enum class Vote : int32_t { Any = 0, All = 1, Ballot = 2 };

} // namespace mlir::flashattn::model

#endif // FLASHATTN_RUNTIME_MODELABI_H
