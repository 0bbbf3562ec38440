//===- ModelABI.h - what kernels on the model of a GPU agree on --*- C++ -*-===//
//
// Between convert-flashattn-gpu-to-model, which makes calls of what a kernel does to more than its
// own values, and the model that answers them (lib/Runtime/Model).
//
//===----------------------------------------------------------------------===//

#ifndef FLASHATTN_RUNTIME_MODELABI_H
#define FLASHATTN_RUNTIME_MODELABI_H

#include "llvm/ADT/StringRef.h"

#include <cstdint>

namespace mlir::flashattn::model {

/// What the names of the model's functions begin with. Each takes the thread and the number of a
/// place first.
inline constexpr llvm::StringLiteral kPrefix = "flashattnModel";
/// void (const char *kernel, void (*body)(void *arguments, Thread *), int64_t x 6 (blocks of the
/// grid, threads of a block), int32_t sharedBytes, void *arguments): runs a kernel. `kernel` is its
/// name and behind it the text of each place, with line feeds between.
inline constexpr llvm::StringLiteral kLaunch = "flashattnModelLaunch";

/// Set in the number of a place where an op has called before: one with several calls runs once.
inline constexpr int32_t kSameOp = 1 << 16;

/// What a kernel reads of its thread, by position. The rest of a thread lies behind it.
struct ThreadView {
  int32_t thread[3], block[3], blockSize[3], gridSize[3];
  char *shared;        ///< the block's dynamic shared memory, aligned to 1024 bytes
  int64_t sharedBytes; ///< of it
};

/// Bits that say what an access is. One that is atomic reads and writes in one step, and orders
/// what threads do before and behind it.
enum AccessFlags : int32_t { kReads = 0, kWrites = 1, kShared = 2, kAtomic = 4 };

/// Elements of products.
enum class ProductElement : int32_t { F16 = 0, BF16 = 1, TF32 = 2 };

/// How threads exchange values, as gpu.shuffle has it.
enum class ShuffleMode : int32_t { Xor = 0, Up = 1, Down = 2, Idx = 3 };
/// What a vote asks, as flashattn.vote has it.
enum class Vote : int32_t { Any = 0, All = 1, Ballot = 2 };

} // namespace mlir::flashattn::model

#endif // FLASHATTN_RUNTIME_MODELABI_H
