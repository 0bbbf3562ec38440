//===- TileBuilder.h - arithmetic of tile programs --------------*- C++ -*-===//
//
// Arithmetic on index values and tiles, for the code that builds and lowers tile programs.
//
//===----------------------------------------------------------------------===//

#ifndef FLASHATTN_DIALECT_FLASHATTN_PROGRAM_TILEBUILDER_H
#define FLASHATTN_DIALECT_FLASHATTN_PROGRAM_TILEBUILDER_H

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/IR/IRMapping.h"

namespace mlir::vector {
class ContractionOp;
} // namespace mlir::vector

namespace mlir::flashattn {

/// A factor: the product of the constant `number` and, unless null, the f32 run-time `value`.
struct Factor {
  Factor(double number = 1, Value value = {}) : number(number), value(value) {}

  double number;
  Value value;

  Factor operator*(double x) const { return {number * x, value}; }
  Factor operator/(double x) const { return {number / x, value}; }
  Factor operator-() const { return {-number, value}; }
  bool isOne() const { return number == 1 && !value; }
};

/// Builds ops at the insertion point of `b` and folds them if possible.
struct TileBuilder {
  TileBuilder(OpBuilder &b, Location loc) : b(b), loc(loc) {}

  Value index(int64_t v) const { return arith::ConstantIndexOp::create(b, loc, v); }
  Value i32(int64_t v) const { return arith::ConstantIntOp::create(b, loc, v, 32); }
  Value add(Value x, Value y) const { return b.createOrFold<arith::AddIOp>(loc, x, y); }
  Value sub(Value x, Value y) const { return b.createOrFold<arith::SubIOp>(loc, x, y); }
  Value mul(Value x, Value y) const { return b.createOrFold<arith::MulIOp>(loc, x, y); }
  Value mul(Value x, int64_t y) const { return mul(x, index(y)); }
  /// Unsigned division.
  Value div(Value x, Value y) const { return b.createOrFold<arith::DivUIOp>(loc, x, y); }
  Value ceilDiv(Value x, int64_t y) const {
    return b.createOrFold<arith::CeilDivUIOp>(loc, x, index(y));
  }
  /// Signed comparisons.
  Value min(Value x, Value y) const { return b.createOrFold<arith::MinSIOp>(loc, x, y); }
  Value max(Value x, Value y) const { return b.createOrFold<arith::MaxSIOp>(loc, x, y); }
  Value less(Value x, Value y) const {
    return arith::CmpIOp::create(b, loc, arith::CmpIPredicate::slt, x, y);
  }
  Value select(Value condition, Value x, Value y) const {
    return b.createOrFold<arith::SelectOp>(loc, condition, x, y);
  }

  /// Converts between index values and i32. The value must be at least 0 and below 2^31.
  Value toI32(Value v) const {
    return b.createOrFold<arith::IndexCastUIOp>(loc, b.getI32Type(), v);
  }
  Value toIndex(Value v) const {
    return b.createOrFold<arith::IndexCastUIOp>(loc, b.getIndexType(), v);
  }
  /// Returns x / y for index values below 2^31, as a 32-bit division: on a GPU, a 64-bit division
  /// needs as many instructions as a function call.
  Value divide32(Value x, Value y) const;

  Value dim(Value memref, int64_t i) const;

  // Tiles.
  VectorType f32Vector(ArrayRef<int64_t> shape) const {
    return VectorType::get(shape, b.getF32Type());
  }
  /// Returns a vector whose elements are all `value`, rounded to the element type.
  Value splat(VectorType type, double value) const;
  Value splat(VectorType type, const Factor &value) const;
  /// Returns a vector whose elements are all `value`; a constant if `value` is a constant.
  Value broadcast(VectorType type, Value value) const;
  /// Returns the factor as an f32 scalar.
  Value scalar(const Factor &value) const;
  Value minusInf(VectorType type) const;
  /// Broadcasts vector<M> to vector<Mx`columns`> with equal columns.
  Value alongRow(Value row, int64_t columns) const;
  /// Returns a vector<`rows`xi1> whose elements state whether the index of a row is below `end`, an
  /// index value.
  Value isBelow(Value end, int64_t rows) const;
  /// Returns acc[m,n] + lhs[m,k] rhs[k,n] or, with `transposedRhs`, acc[m,n] + lhs[m,k] rhs[n,k]^T.
  Value product(Value lhs, Value rhs, Value acc, bool transposedRhs = false) const;
  /// Returns acc[m,n] + lhs[k,m]^T rhs[k,n].
  Value productOfTransposed(Value lhs, Value rhs, Value acc) const;

  /// Recomputes `v` at the insertion point with the replacements in `mapping` and returns the
  /// result. The ops inside `scope` that compute `v` are cloned, each once, and added to `mapping`.
  /// Values from outside `scope` are used as they are.
  Value clone(Value v, IRMapping &mapping, Operation *scope) const;

  OpBuilder &b;
  Location loc;
};

/// Returns whether `op` is lhs[m,k] rhs[n,k]^T (true) or lhs[m,k] rhs[k,n] (false); nullopt if `op`
/// is neither.
std::optional<bool> isRhsTransposed(vector::ContractionOp op);

/// Whether `op` is lhs[k,m]^T rhs[k,n].
bool isLhsTransposed(vector::ContractionOp op);

/// Whether a contraction uses `tile` as its left-hand or right-hand side, and not only as the
/// accumulator. Such a tile must be in shared memory if matrix products read shared memory.
bool isFactor(Value tile);

/// Whether `v` is computed from `from`.
bool dependsOn(Value v, Value from);

} // namespace mlir::flashattn

#endif // FLASHATTN_DIALECT_FLASHATTN_PROGRAM_TILEBUILDER_H
