//===- ScoreMod.cpp -------------------------------------------------------===//

#include "ScoreMod.h"
#include "Differentiate.h"
#include "flashattn/Dialect/FlashAttn/Program/TileBuilder.h"
#include "flashattn/Dialect/FlashAttn/Program/TileLoops.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/MemRef/IR/MemRef.h"
#include "mlir/Dialect/Vector/IR/VectorOps.h"
#include "mlir/IR/IRMapping.h"
#include "mlir/IR/Matchers.h"
#include "mlir/Interfaces/InferIntRangeInterface.h"

using namespace mlir;
using namespace mlir::flashattn;

LogicalResult mlir::flashattn::verifyScoreModVectorizes(AttentionOpInterface op) {
  if (!op.hasScoreMod())
    return success();
  for (Operation &inner : op.getScoreMod().front().without_terminator())
    if (!isa<arith::ConstantOp>(inner) && !isScoreModLoad(&inner) &&
        (!OpTrait::hasElementwiseMappableTraits(&inner) || inner.getNumResults() != 1))
      return inner.emitOpError() << "expected an elementwise op with one result in score_mod but "
                                    "got '"
                                 << inner.getName() << "'";
  return success();
}

/// Returns the tangent of the result of `op`; `tangents` contains those of earlier values.
static std::optional<Value> lookUpTangent(OpBuilder &b, Operation *op, const IRMapping &tangents) {
  return buildTangent(b, op, llvm::map_to_vector(op->getOperands(), [&](Value operand) {
                        return tangents.lookupOrNull(operand);
                      }));
}

LogicalResult mlir::flashattn::verifyScoreModHasDerivative(AttentionOpInterface op) {
  if (!op.hasScoreMod())
    return success();
  // Builds the tangents of the region's scalars to check that they all exist.
  Block scratch;
  OpBuilder b(op->getContext());
  b.setInsertionPointToEnd(&scratch);
  IRMapping tangents;
  Block &body = op.getScoreMod().front();
  tangents.map(body.getArgument(0),
               arith::ConstantOp::create(b, op->getLoc(), b.getF32FloatAttr(1)).getResult());
  for (Operation &inner : body.without_terminator()) {
    std::optional<Value> tangent = lookUpTangent(b, &inner, tangents);
    if (!tangent)
      return inner.emitOpError()
             << "expected an op with a derivative between the score and the result of score_mod "
                "but got '"
             << inner.getName() << "'";
    if (*tangent)
      tangents.map(inner.getResult(0), *tangent);
  }
  return success();
}

namespace {
class TileCloner {
public:
  TileCloner(OpBuilder &b, Location loc, VectorType tile)
      : b(b), loc(loc), m(tile.getDimSize(0)), n(tile.getDimSize(1)) {}

  /// Returns first, first + 1, ... along the rows or columns, as vector<Mx1> or vector<1xN>.
  Value indices(Value first, bool alongRows) {
    Type index = b.getIndexType();
    Value step = vector::StepOp::create(b, loc, VectorType::get({alongRows ? m : n}, index));
    auto type = VectorType::get({alongRows ? m : 1, alongRows ? 1 : n}, index);
    step = vector::ShapeCastOp::create(b, loc, type, step);
    return arith::AddIOp::create(b, loc, broadcast(first, type.getShape()), step);
  }

  /// Broadcasts `value`, a scalar or a vector of rank 2, to `shape`, which is empty for scalars.
  Value broadcast(Value value, ArrayRef<int64_t> shape) {
    if (shape.empty() || getShape(value) == shape)
      return value;
    return b.createOrFold<vector::BroadcastOp>(
        loc, VectorType::get(shape, getElementTypeOrSelf(value.getType())), value);
  }

  /// Clones `op` at the smallest shape that holds its operands. Returns the clone.
  Operation *clone(Operation &op, IRMapping &mapping) {
    SmallVector<int64_t> shape;
    SmallVector<Value> operands;
    for (Value operand : op.getOperands()) {
      operands.push_back(mapping.lookupOrDefault(operand));
      ArrayRef<int64_t> own = getShape(operands.back());
      if (own.empty())
        continue;
      shape.resize(2, 1);
      for (auto [size, ownSize] : llvm::zip_equal(shape, own))
        size = std::max(size, ownSize);
    }
    for (Value &operand : operands)
      operand = broadcast(operand, shape);
    if (isa<arith::DivSIOp, arith::DivUIOp, arith::CeilDivSIOp, arith::CeilDivUIOp,
            arith::FloorDivSIOp, arith::RemSIOp, arith::RemUIOp>(op))
      operands[1] = getDivisor(operands[0], operands[1]);
    Operation *made = b.insert(op.cloneWithoutRegions());
    made->setOperands(operands);
    Value result = made->getResult(0);
    if (!shape.empty())
      result.setType(VectorType::get(shape, result.getType()));
    // A10: the element is the same for the whole tile, and is loaded before the loop over tiles.
    if (auto load = dyn_cast<memref::LoadOp>(made))
      made = hoistLoad(b, load);
    mapping.map(op.getResult(0), made->getResult(0));
    return made;
  }

  /// Builds the tangent of `made` at the shape of `made`; `tangents` contains those of its
  /// operands.
  void cloneTangent(Operation *made, IRMapping &tangents) {
    ArrayRef<int64_t> shape = getShape(made->getResult(0));
    IRMapping spread;
    for (Value operand : made->getOperands())
      if (Value tangent = findTangent(operand, tangents))
        spread.map(operand, broadcast(tangent, shape));
    std::optional<Value> tangent = lookUpTangent(b, made, spread);
    assert(tangent && "expected a score_mod that verifyScoreModHasDerivative accepts");
    if (*tangent)
      tangents.map(made->getResult(0), *tangent);
  }

private:
  /// Returns the tangent of `value`. That of a broadcast is the tangent of its source.
  static Value findTangent(Value value, const IRMapping &tangents) {
    Value known = tangents.lookupOrNull(value);
    auto broadcast = value.getDefiningOp<vector::BroadcastOp>();
    return known || !broadcast ? known : tangents.lookupOrNull(broadcast.getSource());
  }

  /// Returns the divisor, replaced by 1 if the division would trap. A tile also contains pairs that
  /// are hidden or do not exist, for which the region was not written.
  Value getDivisor(Value dividend, Value divisor) {
    Type type = divisor.getType();
    auto integer = [&](const APInt &value) -> Value {
      TypedAttr attr = b.getIntegerAttr(getElementTypeOrSelf(type), value);
      if (auto vector = dyn_cast<VectorType>(type))
        attr = DenseElementsAttr::get(vector, Attribute(attr));
      return arith::ConstantOp::create(b, loc, attr);
    };
    APInt known;
    if (matchPattern(divisor, m_ConstantInt(&known)) && !known.isZero() && !known.isAllOnes())
      return divisor;
    unsigned bits = ConstantIntRanges::getStorageBitwidth(type);
    auto isEqual = [&](Value value, const APInt &to) {
      return arith::CmpIOp::create(b, loc, arith::CmpIPredicate::eq, value, integer(to));
    };
    Value overflows = arith::AndIOp::create(b, loc, isEqual(divisor, APInt::getAllOnes(bits)),
                                            isEqual(dividend, APInt::getSignedMinValue(bits)));
    Value traps = arith::OrIOp::create(b, loc, isEqual(divisor, APInt::getZero(bits)), overflows);
    return arith::SelectOp::create(b, loc, traps, integer(APInt(bits, 1)), divisor);
  }

  static ArrayRef<int64_t> getShape(Value value) {
    auto type = dyn_cast<VectorType>(value.getType());
    return type ? type.getShape() : ArrayRef<int64_t>();
  }

  OpBuilder &b;
  Location loc;
  int64_t m, n;
};
} // namespace

Value mlir::flashattn::applyScoreMod(OpBuilder &b, AttentionOpInterface op, Value scores,
                                     const ScoreModPlace &at, TileAxis columns, Value *slope) {
  auto tile = cast<VectorType>(scores.getType());
  TileCloner cloner(b, op->getLoc(), tile);
  Block &body = op.getScoreMod().front();
  IRMapping mapping, tangents;
  mapping.map(body.getArgument(0), scores);
  mapping.map(body.getArgument(1), at.batch);
  mapping.map(body.getArgument(2), at.head);
  bool queriesAlongRows = columns == TileAxis::Keys;
  for (auto [argument, first, alongRows] :
       {std::tuple(body.getArgument(3), at.position, queriesAlongRows),
        {body.getArgument(4), at.key, !queriesAlongRows}})
    if (!argument.use_empty())
      mapping.map(argument, cloner.indices(first, alongRows));
  bool isFirst = slope && !*slope;
  if (isFirst)
    *slope = TileBuilder(b, op->getLoc()).splat(tile, 1);
  if (slope)
    tangents.map(scores, *slope);
  for (Operation &inner : body.without_terminator()) {
    Operation *made = cloner.clone(inner, mapping);
    if (slope)
      cloner.cloneTangent(made, tangents);
  }
  Value result = mapping.lookupOrDefault(cast<YieldOp>(body.getTerminator()).getScore());
  if (isFirst && op.addsToScore()) {
    *slope = Value();
  } else if (slope) {
    Value tangent = tangents.lookupOrNull(result);
    *slope = tangent ? cloner.broadcast(tangent, tile.getShape())
                     : TileBuilder(b, op->getLoc()).splat(tile, 0);
  }
  return cloner.broadcast(result, tile.getShape());
}
