//===- Scratch.h - scratch buffers of a tile program ------------*- C++ -*-===//

#ifndef FLASHATTN_LIB_CONVERSION_FLASHATTNTOCPU_SCRATCH_H
#define FLASHATTN_LIB_CONVERSION_FLASHATTNTOCPU_SCRATCH_H

#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/Dialect/MemRef/IR/MemRef.h"
#include "llvm/ADT/DenseMap.h"
#include "llvm/ADT/SmallVector.h"

namespace mlir::flashattn::cpu {

/// Allocates the buffers of a program. All buffers are allocated once, at the top of the program's
/// function, so that loops do not allocate. A buffer that is released at the end of a scope is
/// reused for the next request of the same type.
class ScratchPool {
public:
  /// Limit on the stack bytes of a program's buffers. The caller chooses the stack size; this is
  /// half of the smallest common size of a thread's stack.
  static constexpr int64_t kMostStackBytes = int64_t(1) << 19;

  explicit ScratchPool(func::FuncOp program) : program(program) {}

  /// Returns a buffer of `type`, aligned to 64 bytes, with undefined contents.
  Value allocate(Location loc, MemRefType type);

  /// Must be called once, after the last request. If the buffers exceed the stack limit, they are
  /// allocated on the heap and freed at the end of the program.
  void finish();

  /// At its end, releases all buffers allocated since its beginning: those of one block of the tile
  /// program, whose buffers do not outlive the block.
  class Scope {
  public:
    explicit Scope(ScratchPool &pool) : pool(pool), begin(pool.inUse.size()) {}
    ~Scope() { pool.release(begin); }
    Scope(const Scope &) = delete;
    Scope &operator=(const Scope &) = delete;

  private:
    ScratchPool &pool;
    size_t begin;
  };

private:
  void release(size_t begin);

  func::FuncOp program;
  DenseMap<Type, SmallVector<Value>> free;
  SmallVector<Value> inUse;
  SmallVector<memref::AllocaOp> all;
};

} // namespace mlir::flashattn::cpu

#endif // FLASHATTN_LIB_CONVERSION_FLASHATTNTOCPU_SCRATCH_H
