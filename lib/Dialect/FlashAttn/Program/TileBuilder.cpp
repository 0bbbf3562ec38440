//===- TileBuilder.cpp ----------------------------------------------------===//

#include "flashattn/Dialect/FlashAttn/Program/TileBuilder.h"
#include "mlir/Dialect/MemRef/IR/MemRef.h"
#include "mlir/Dialect/Vector/IR/VectorOps.h"
#include "mlir/Transforms/RegionUtils.h"
#include "llvm/ADT/SetVector.h"

using namespace mlir;
using namespace mlir::flashattn;

/// Returns the values from outside `op` that `op` and the ops in its regions use.
static SetVector<Value> getInputs(Operation *op) {
  SetVector<Value> inputs(op->operand_begin(), op->operand_end());
  getUsedValuesDefinedAbove(op->getRegions(), inputs);
  return inputs;
}

Value TileBuilder::divide32(Value x, Value y) const {
  return toIndex(arith::DivUIOp::create(b, loc, toI32(x), toI32(y)));
}

Value TileBuilder::dim(Value memref, int64_t i) const {
  return b.createOrFold<memref::DimOp>(loc, memref, i);
}

Value TileBuilder::splat(VectorType type, double value) const {
  APFloat rounded = b.getFloatAttr(type.getElementType(), value).getValue();
  return arith::ConstantOp::create(b, loc, DenseElementsAttr::get(type, rounded));
}

Value TileBuilder::scalar(const Factor &value) const {
  if (value.value && value.number == 1)
    return value.value;
  Value number = arith::ConstantOp::create(b, loc, b.getF32FloatAttr(value.number));
  return value.value ? b.createOrFold<arith::MulFOp>(loc, value.value, number) : number;
}

Value TileBuilder::broadcast(VectorType type, Value value) const {
  return b.createOrFold<vector::BroadcastOp>(loc, type, value);
}

Value TileBuilder::splat(VectorType type, const Factor &value) const {
  return value.value ? broadcast(type, scalar(value)) : splat(type, value.number);
}

Value TileBuilder::minusInf(VectorType type) const {
  return arith::ConstantOp::create(
      b, loc,
      DenseElementsAttr::get(type, APFloat::getInf(APFloat::IEEEsingle(), /*Negative=*/true)));
}

Value TileBuilder::alongRow(Value row, int64_t columns) const {
  auto type = cast<VectorType>(row.getType());
  int64_t rows = type.getDimSize(0);
  Type element = type.getElementType();
  Value column = vector::ShapeCastOp::create(b, loc, VectorType::get({rows, 1}, element), row);
  return vector::BroadcastOp::create(b, loc, VectorType::get({rows, columns}, element), column);
}

Value TileBuilder::isBelow(Value end, int64_t rows) const {
  auto column = VectorType::get({rows, 1}, b.getIndexType());
  Value number = vector::StepOp::create(b, loc, VectorType::get({rows}, b.getIndexType()));
  number = vector::ShapeCastOp::create(b, loc, column, number);
  Value below =
      arith::CmpIOp::create(b, loc, arith::CmpIPredicate::slt, number, broadcast(column, end));
  return vector::ShapeCastOp::create(b, loc, VectorType::get({rows}, b.getI1Type()), below);
}

Value TileBuilder::product(Value lhs, Value rhs, Value acc, bool transposedRhs) const {
  AffineExpr i, j, k;
  bindDims(b.getContext(), i, j, k);
  SmallVector<AffineExpr> rhsMap = {k, j};
  if (transposedRhs)
    std::swap(rhsMap[0], rhsMap[1]);
  using Maps = ArrayRef<ArrayRef<AffineExpr>>;
  using vector::IteratorType;
  return vector::ContractionOp::create(b, loc, lhs, rhs, acc, Maps{{i, k}, rhsMap, {i, j}},
                                       ArrayRef<IteratorType>{IteratorType::parallel,
                                                              IteratorType::parallel,
                                                              IteratorType::reduction});
}

Value TileBuilder::productOfTransposed(Value lhs, Value rhs, Value acc) const {
  AffineExpr i, j, k;
  bindDims(b.getContext(), i, j, k);
  using Maps = ArrayRef<ArrayRef<AffineExpr>>;
  using vector::IteratorType;
  return vector::ContractionOp::create(b, loc, lhs, rhs, acc, Maps{{k, i}, {k, j}, {i, j}},
                                       ArrayRef<IteratorType>{IteratorType::parallel,
                                                              IteratorType::parallel,
                                                              IteratorType::reduction});
}

Value TileBuilder::clone(Value v, IRMapping &mapping, Operation *scope) const {
  if (Value known = mapping.lookupOrNull(v))
    return known;
  Operation *def = v.getDefiningOp();
  if (!def || !scope->isProperAncestor(def))
    return v;
  for (Value input : getInputs(def))
    clone(input, mapping, scope);
  b.clone(*def, mapping);
  return mapping.lookup(v);
}

std::optional<bool> mlir::flashattn::isRhsTransposed(vector::ContractionOp op) {
  AffineExpr i, j, k;
  bindDims(op.getContext(), i, j, k);
  SmallVector<AffineMap> maps = op.getIndexingMapsArray();
  auto is = [&](unsigned operand, AffineExpr x, AffineExpr y) {
    return maps[operand] == AffineMap::get(3, 0, {x, y}, op.getContext());
  };
  if (op.getKind() != vector::CombiningKind::ADD || !is(0, i, k) || !is(2, i, j) ||
      (!is(1, k, j) && !is(1, j, k)))
    return std::nullopt;
  return is(1, j, k);
}

bool mlir::flashattn::isLhsTransposed(vector::ContractionOp op) {
  AffineExpr i, j, k;
  bindDims(op.getContext(), i, j, k);
  SmallVector<AffineMap> maps = op.getIndexingMapsArray();
  auto is = [&](unsigned operand, AffineExpr x, AffineExpr y) {
    return maps[operand] == AffineMap::get(3, 0, {x, y}, op.getContext());
  };
  return op.getKind() == vector::CombiningKind::ADD && is(0, k, i) && is(1, k, j) && is(2, i, j);
}

bool mlir::flashattn::isFactor(Value tile) {
  return llvm::any_of(tile.getUses(), [](OpOperand &use) {
    return isa<vector::ContractionOp>(use.getOwner()) && use.getOperandNumber() < 2;
  });
}

bool mlir::flashattn::dependsOn(Value v, Value from) {
  SetVector<Value> slice;
  slice.insert(v);
  for (size_t i = 0; i < slice.size(); ++i)
    if (Operation *def = slice[i].getDefiningOp())
      slice.set_union(getInputs(def));
  return slice.contains(from);
}
