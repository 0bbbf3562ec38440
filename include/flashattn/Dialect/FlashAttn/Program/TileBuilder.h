//===- TileBuilder.h - arithmetic of tile programs ---------------*- C++ -*-===//
//
// What builds tile programs, and what lowers them, writes the same arithmetic on index values and
// tiles: here it is written once.
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

/// What numbers are multiplied with: `number`, times an f32 that is known at run time, if any.
struct Factor {
  Factor(double number = 1, Value value = {}) : number(number), value(value) {}

  double number;
  Value value;

  Factor operator*(double x) const { return {number * x, value}; }
  Factor operator/(double x) const { return {number / x, value}; }
  Factor operator-() const { return {-number, value}; }
  bool isOne() const { return number == 1 && !value; }
};

/// Builds at the insertion point of `b`; results fold where they can.
struct TileBuilder {
  TileBuilder(OpBuilder &b, Location loc) : b(b), loc(loc) {}

  Value index(int64_t v) const { return arith::ConstantIndexOp::create(b, loc, v); }
  Value i32(int64_t v) const { return arith::ConstantIntOp::create(b, loc, v, 32); }
  Value add(Value x, Value y) const { return b.createOrFold<arith::AddIOp>(loc, x, y); }
  Value sub(Value x, Value y) const { return b.createOrFold<arith::SubIOp>(loc, x, y); }
  Value mul(Value x, Value y) const { return b.createOrFold<arith::MulIOp>(loc, x, y); }
  Value mul(Value x, int64_t y) const { return mul(x, index(y)); }
  /// Unsigned.
  Value div(Value x, Value y) const { return b.createOrFold<arith::DivUIOp>(loc, x, y); }
  Value ceilDiv(Value x, int64_t y) const {
    return b.createOrFold<arith::CeilDivUIOp>(loc, x, index(y));
  }
  /// Signed.
  Value min(Value x, Value y) const { return b.createOrFold<arith::MinSIOp>(loc, x, y); }
  Value max(Value x, Value y) const { return b.createOrFold<arith::MaxSIOp>(loc, x, y); }
  Value less(Value x, Value y) const {
    return arith::CmpIOp::create(b, loc, arith::CmpIPredicate::slt, x, y);
  }
  Value select(Value condition, Value x, Value y) const {
    return b.createOrFold<arith::SelectOp>(loc, condition, x, y);
  }

  /// Between index values and 32 bits, for numbers from 0 to below 2^31.
  Value toI32(Value v) const {
    return b.createOrFold<arith::IndexCastUIOp>(loc, b.getI32Type(), v);
  }
  Value toIndex(Value v) const {
    return b.createOrFold<arith::IndexCastUIOp>(loc, b.getIndexType(), v);
  }
  /// x / y of index values below 2^31: 64-bit division is a call's worth of code on a GPU.
  Value divide32(Value x, Value y) const;

  Value dim(Value memref, int64_t i) const;

  // Tiles.
  VectorType f32Vector(ArrayRef<int64_t> shape) const {
    return VectorType::get(shape, b.getF32Type());
  }
  /// All elements are `value`, rounded to the type's.
  Value splat(VectorType type, double value) const;
  Value splat(VectorType type, const Factor &value) const;
  /// All elements are `value`; a constant where it is one.
  Value broadcast(VectorType type, Value value) const;
  /// f32.
  Value scalar(const Factor &value) const;
  Value minusInf(VectorType type) const;
  /// vector<M> to vector<Mx`columns`>, every column the same.
  Value alongRow(Value row, int64_t columns) const;
  /// Whether the number of a row is below `end`, an index value: vector<`rows`xi1>.
  Value isBelow(Value end, int64_t rows) const;
  /// acc[m,n] + lhs[m,k] rhs[k,n] or, `transposedRhs`, acc[m,n] + lhs[m,k] rhs[n,k]^T.
  Value product(Value lhs, Value rhs, Value acc, bool transposedRhs = false) const;
  /// acc[m,n] + lhs[k,m]^T rhs[k,n]
  Value productOfTransposed(Value lhs, Value rhs, Value acc) const;

  /// `v` at the insertion point with what `mapping` says: copies of the ops inside of `scope` that
  /// compute it, each made once and then known to `mapping`. What stands outside stays.
  Value clone(Value v, IRMapping &mapping, Operation *scope) const;

  OpBuilder &b;
  Location loc;
};

/// Whether the right-hand side of `op`, lhs[m,k] times rhs[k,n], is given as rhs[n,k]; nothing
/// where `op` is no such product.
std::optional<bool> isRhsTransposed(vector::ContractionOp op);

/// Whether `op` is lhs[k,m]^T rhs[k,n].
bool isLhsTransposed(vector::ContractionOp op);

/// Whether a contraction multiplies `tile`, and not only adds to it: where products are made of
/// what is in shared memory it comes from there.
bool isFactor(Value tile);

/// Whether `v` is computed from `from`.
bool dependsOn(Value v, Value from);

} // namespace mlir::flashattn

#endif // FLASHATTN_DIALECT_FLASHATTN_PROGRAM_TILEBUILDER_H
