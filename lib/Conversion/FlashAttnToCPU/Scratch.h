//===- Scratch.h - memory of one tile program --------------------*- C++ -*-===//

#ifndef FLASHATTN_LIB_CONVERSION_FLASHATTNTOCPU_SCRATCH_H
#define FLASHATTN_LIB_CONVERSION_FLASHATTNTOCPU_SCRATCH_H

#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/Dialect/MemRef/IR/MemRef.h"
#include "llvm/ADT/DenseMap.h"
#include "llvm/ADT/SmallVector.h"

namespace mlir::flashattn::cpu {

/// Hands out buffers of a program. All are allocated once, at the top of the
/// program's function, so that no loop grows them; a buffer given back when its
/// scope ends serves the next request of the same type.
class ScratchPool {
public:
  /// What the buffers of a program may take of the stack, whose size is the caller's choice: half
  /// of the smallest that threads commonly have.
  static constexpr int64_t kMostStackBytes = int64_t(1) << 19;

  explicit ScratchPool(func::FuncOp program) : program(program) {}

  /// A buffer of `type`, 64-byte aligned, with undefined contents.
  Value allocate(Location loc, MemRefType type);

  /// To be called once, behind the last request: buffers that are too much for the stack are taken
  /// from the heap, and given back at the program's end.
  void finish();

  /// Gives back, at its end, every buffer allocated since its begin: the buffers of one
  /// block of the tile program, none of which outlives it.
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
