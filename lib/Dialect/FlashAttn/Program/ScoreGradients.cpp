//===- ScoreGradients.cpp --------------------------------------------------===//

#include "ScoreGradients.h"
#include "mlir/Dialect/Math/IR/Math.h"
#include "mlir/Dialect/MemRef/IR/MemRef.h"
#include "mlir/Dialect/Utils/StaticValueUtils.h"
#include "mlir/Dialect/Vector/IR/VectorOps.h"

#include <cmath>

using namespace mlir;
using namespace mlir::flashattn;

//===----------------------------------------------------------------------===//
// Sums
//===----------------------------------------------------------------------===//

QuerySums::QuerySums(OpBuilder &b, AttentionBackwardOp op, const Operands &operands)
    : TileBuilder(b, op.getLoc()), schedule(op.getScheduleAttr()),
      batches(operands.getSizes().batches) {
  const Sizes &sizes = operands.getSizes();
  SmallVector<int64_t> shape;
  SmallVector<Value> dynamicSizes;
  for (Value size : {mul(sizes.batches, 2), sizes.heads, sizes.queries}) {
    shape.push_back(getConstantIntValue(size).value_or(ShapedType::kDynamic));
    if (ShapedType::isDynamic(shape.back()))
      dynamicSizes.push_back(size);
  }
  buffer = memref::AllocOp::create(b, loc, MemRefType::get(shape, b.getF32Type()), dynamicSizes);
  buildProgram(op, operands);
}

void QuerySums::free() const { memref::DeallocOp::create(b, loc, buffer); }

/// B1: delta = sum_d d_o o - d_lse, and the exponent of 2 that P's are taken against.
void QuerySums::buildProgram(AttentionBackwardOp op, const Operands &operands) {
  const Sizes &sizes = operands.getSizes();
  int64_t rows = schedule.getTileM();
  auto program = ProgramOp::create(
      b, loc, ValueRange{sizes.batches, sizes.heads, ceilDiv(sizes.queries, rows)},
      ArrayRef<ProgramAxis>{ProgramAxis::Batch, ProgramAxis::Head, ProgramAxis::QueryTile},
      schedule.withRoles({}));
  OpBuilder::InsertionGuard guard(b);
  b.setInsertionPointToStart(program.getBody());
  ScorePlace at;
  at.batch = program.getNumbers()[0];
  at.head = program.getNumbers()[1];
  at.queryTile = program.getNumbers()[2];
  VectorType rowType = f32Vector({rows});
  auto loadTile = [&](Value memref) {
    Value tile = operands.loadRows(memref, at.batch, at.head, at.queryTile, rows);
    auto type = cast<VectorType>(tile.getType());
    if (type.getElementType().isF32())
      return tile;
    return arith::ExtFOp::create(b, loc, type.clone(b.getF32Type()), tile).getResult();
  };
  auto loadRow = [&](Value memref) -> Value {
    return LoadTileOp::create(b, loc, rowType, memref, ValueRange{at.batch, at.head, at.queryTile},
                              /*below=*/Value(), ArrayRef<int64_t>{2}, /*shape=*/nullptr,
                              ArrayRef<bool>{false});
  };
  Value products = arith::MulFOp::create(b, loc, loadTile(op.getDO()), loadTile(op.getO()));
  Value delta = vector::MultiDimReductionOp::create(b, loc, products, splat(rowType, 0),
                                                    ArrayRef<bool>{false, true},
                                                    vector::CombiningKind::ADD);
  if (op.getDLse())
    delta = arith::SubFOp::create(b, loc, delta, loadRow(op.getDLse()));
  Value lse = loadRow(op.getLse());
  // A6: a row that sees nothing has only hidden scores, -inf, which are taken against 0.
  Value empty =
      arith::CmpFOp::create(b, loc, arith::CmpFPredicate::OEQ, lse, minusInf(rowType));
  Value exponent = arith::MulFOp::create(b, loc, lse, splat(rowType, M_LOG2E));
  exponent = arith::SelectOp::create(b, loc, empty, splat(rowType, 0), exponent);
  for (auto [number, value] : {std::pair(0, exponent), {1, delta}})
    StoreTileOp::create(b, loc, value, buffer, indicesOf(number, at), ArrayRef<int64_t>{2},
                        /*shape=*/nullptr, ArrayRef<bool>{false});
}

SmallVector<Value> QuerySums::indicesOf(int64_t number, const ScorePlace &at) const {
  return {number ? add(at.batch, batches) : at.batch, at.head, at.queryTile};
}

QuerySums::Loaded QuerySums::loadRows(const ScorePlace &at) const {
  auto load = [&](int64_t number) -> Value {
    return LoadTileOp::create(b, loc, f32Vector({schedule.getTileM()}), buffer,
                              indicesOf(number, at), /*below=*/Value(), ArrayRef<int64_t>{2},
                              /*shape=*/nullptr, ArrayRef<bool>{false});
  };
  Value exponent = load(0);
  return {exponent, load(1)};
}

QuerySums::Loaded QuerySums::loadColumns(const ScorePlace &at) const {
  auto load = [&](int64_t number) -> Value {
    return LoadTileOp::create(b, loc, f32Vector({schedule.getTileM(), schedule.getTileN()}), buffer,
                              indicesOf(number, at), /*below=*/Value(), ArrayRef<int64_t>{-1, 2},
                              /*shape=*/nullptr, ArrayRef<bool>{true, false});
  };
  Value exponent = load(0);
  return {exponent, load(1)};
}

//===----------------------------------------------------------------------===//
// Gradients
//===----------------------------------------------------------------------===//

/// Sums of rows or columns as a tile.
Value ScoreGradientBuilder::spread(Value sums, VectorType tile) const {
  return sums.getType() == tile ? sums : alongRow(sums, tile.getDimSize(1));
}

Value ScoreGradientBuilder::buildWeights(Value products, const ScorePlace &at,
                                         const QuerySums::Loaded &sums,
                                         ScoreDerivative &derivative) const {
  auto type = cast<VectorType>(products.getType());
  Value shaped = scores.shape(products, at, &derivative);
  // P = exp2(c s - lse log2 e), one FMA and one exp2 an element.
  Value exponent = arith::NegFOp::create(b, loc, sums.exponent);
  exponent = math::FmaOp::create(b, loc, shaped, splat(type, factor), spread(exponent, type));
  return math::Exp2Op::create(b, loc, exponent);
}

Value ScoreGradientBuilder::buildFinal(Value weights, Value dP, const QuerySums::Loaded &sums,
                                       const ScoreDerivative &derivative) const {
  auto type = cast<VectorType>(weights.getType());
  Value difference = arith::SubFOp::create(b, loc, dP, spread(sums.delta, type));
  Value gradient = arith::MulFOp::create(b, loc, weights, difference);
  // B7: where a weight is 0 the difference may be anything, of a key that does not exist NaN.
  return arith::SelectOp::create(b, loc, derivative.shown, gradient, splat(type, 0));
}

Value ScoreGradientBuilder::buildInner(Value final, const ScoreDerivative &derivative) const {
  if (!derivative.slope)
    return final;
  // B7 again: the slope at a hidden score may be infinite.
  Value inner = arith::MulFOp::create(b, loc, final, derivative.slope);
  return arith::SelectOp::create(b, loc, derivative.shown, inner,
                                 splat(cast<VectorType>(final.getType()), 0));
}

Value ScoreGradientBuilder::toDotType(Value tile) const {
  auto type = cast<VectorType>(tile.getType());
  if (type.getElementType() == dotType)
    return tile;
  return arith::TruncFOp::create(b, loc, type.clone(dotType), tile);
}
