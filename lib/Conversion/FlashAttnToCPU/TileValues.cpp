//===- TileValues.cpp -----------------------------------------------------===//

#include "TileValues.h"
#include "Exp2.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Math/IR/Math.h"
#include "mlir/Dialect/SCF/IR/SCF.h"

using namespace mlir;
using namespace mlir::flashattn::cpu;

//===----------------------------------------------------------------------===//
// Queries on the tile program
//===----------------------------------------------------------------------===//

bool mlir::flashattn::cpu::isElementwise(Operation *op) {
  return op->getNumResults() == 1 && op->getNumOperands() > 0 && op->getNumRegions() == 0 &&
         OpTrait::hasElementwiseMappableTraits(op);
}

bool mlir::flashattn::cpu::isRecomputed(Value tile) {
  SmallVector<Value> left = {tile};
  // Values that several ops share are visited once.
  SmallPtrSet<Value, 16> seen;
  while (!left.empty()) {
    Value value = left.pop_back_val();
    auto type = dyn_cast<VectorType>(value.getType());
    if (!type || !seen.insert(value).second)
      continue;
    Operation *op = value.getDefiningOp();
    if (!op)
      return false;
    if (isa<arith::ConstantOp, vector::BroadcastOp>(op))
      continue;
    if (!type.getElementType().isIntOrIndex() || !isElementwise(op))
      return false;
    llvm::append_range(left, op->getOperands());
  }
  return true;
}

bool mlir::flashattn::cpu::isFoldedIntoContraction(Operation *op) {
  if (!isElementwise(op) || !op->hasOneUse())
    return false;
  auto contraction = dyn_cast<vector::ContractionOp>(*op->user_begin());
  return contraction && contraction->getBlock() == op->getBlock() &&
         contraction.getAcc() == op->getResult(0);
}

bool mlir::flashattn::cpu::isDeadAt(Value tile, Operation *next) {
  if (tile.getParentBlock() != next->getBlock())
    return false;
  return llvm::all_of(tile.getUsers(), [&](Operation *user) {
    Operation *reader = next->getBlock()->findAncestorOpInBlock(*user);
    if (isFoldedIntoContraction(reader))
      reader = *reader->user_begin();
    return reader->isBeforeInBlock(next);
  });
}

void mlir::flashattn::cpu::buildColumnLoop(OpBuilder &b, Location loc, int64_t columns,
                                           int64_t step, function_ref<void(Value)> body) {
  Value zero = arith::ConstantIndexOp::create(b, loc, 0);
  Value end = arith::ConstantIndexOp::create(b, loc, columns);
  Value increment = arith::ConstantIndexOp::create(b, loc, step);
  auto loop = scf::ForOp::create(b, loc, zero, end, increment);
  OpBuilder::InsertionGuard guard(b);
  b.setInsertionPointToStart(loop.getBody());
  body(loop.getInductionVar());
}

//===----------------------------------------------------------------------===//
// Types
//===----------------------------------------------------------------------===//

Holding TileValues::classify(Type type) const {
  auto vectorType = dyn_cast<VectorType>(type);
  if (!vectorType)
    return Holding::Scalar;
  ArrayRef<int64_t> shape = vectorType.getShape();
  if (shape.size() == 1)
    return shape[0] == rows ? Holding::Row : Holding::Column;
  if (shape.size() != 2)
    return Holding::Other;
  if (shape[0] == rows)
    return shape[1] == 1 ? Holding::Row : Holding::Tile;
  return shape[0] == 1 ? Holding::Column : Holding::Other;
}

VectorType TileValues::getLaneType(Type type) const {
  return VectorType::get({rows}, getElementTypeOrSelf(type));
}

Type TileValues::getHeldType(Type type) const {
  return classify(type) == Holding::Row ? Type(getLaneType(type)) : type;
}

//===----------------------------------------------------------------------===//
// Scalars, rows, columns
//===----------------------------------------------------------------------===//

static Value buildSplat(OpBuilder &b, arith::ConstantOp constant, Type type) {
  auto splat = dyn_cast<SplatElementsAttr>(constant.getValue());
  if (!splat) {
    constant.emitOpError("expected a splat in a tile program but got ") << constant.getValue();
    return nullptr;
  }
  if (auto vectorType = dyn_cast<VectorType>(type))
    return arith::ConstantOp::create(b, constant.getLoc(), splat.resizeSplat(vectorType));
  return arith::ConstantOp::create(b, constant.getLoc(),
                                   cast<TypedAttr>(splat.getSplatValue<Attribute>()));
}

static Value rejectOp(Value value) {
  if (Operation *op = value.getDefiningOp())
    op->emitOpError("has no lowering in a CPU tile program");
  else
    emitError(value.getLoc(),
              "expected a value that a CPU tile program supports but got one of type ")
        << value.getType();
  return nullptr;
}

Value TileValues::get(Value value) {
  if (Value held = mapping.lookupOrNull(value))
    return held;
  // Defined outside the program: recreated here instead of passed in.
  Operation *op = value.getDefiningOp();
  if (!op || classify(value) != Holding::Row)
    return rejectOp(value);
  if (auto constant = dyn_cast<arith::ConstantOp>(op))
    return buildSplat(b, constant, getLaneType(value.getType()));
  if (auto broadcast = dyn_cast<vector::BroadcastOp>(op)) {
    Value source = get(broadcast.getSource());
    return source ? b.createOrFold<vector::BroadcastOp>(op->getLoc(), getLaneType(value.getType()),
                                                        source)
                  : source;
  }
  if (auto shapeCast = dyn_cast<vector::ShapeCastOp>(op))
    return get(shapeCast.getSource());
  if (!isElementwise(op))
    return rejectOp(value);
  SmallVector<Value> operands;
  for (Value operand : op->getOperands()) {
    operands.push_back(get(operand));
    if (!operands.back())
      return nullptr;
  }
  return cloneElementwise(op, operands, getLaneType(value.getType()));
}

Value TileValues::elementAt(Value value, ColumnPoint &point) {
  if (classify(value) == Holding::Scalar)
    return get(value);
  if (Value known = point.scalars.lookup(value))
    return known;
  Operation *op = value.getDefiningOp();
  if (!op)
    return rejectOp(value);
  Value element;
  if (auto constant = dyn_cast<arith::ConstantOp>(op)) {
    element = buildSplat(b, constant, getElementTypeOrSelf(value.getType()));
  } else if (isa<vector::StepOp>(op)) {
    element = point.column;
  } else if (isa<vector::ShapeCastOp, vector::BroadcastOp>(op)) {
    element = elementAt(op->getOperand(0), point);
  } else if (isElementwise(op)) {
    SmallVector<Value> operands;
    for (Value operand : op->getOperands()) {
      operands.push_back(elementAt(operand, point));
      if (!operands.back())
        return nullptr;
    }
    element = cloneElementwise(op, operands, getElementTypeOrSelf(value.getType()));
  } else {
    return rejectOp(value);
  }
  point.scalars[value] = element;
  return element;
}

//===----------------------------------------------------------------------===//
// Tiles
//===----------------------------------------------------------------------===//

Value TileValues::at(Value tile, ColumnPoint &point) {
  if (Value known = point.lanes.lookup(tile))
    return known;
  Location loc = tile.getLoc();
  VectorType type = getLaneType(tile.getType());
  Value lanes;
  Operation *op = tile.getDefiningOp();
  if (Value buffer = getBuffer(tile)) {
    Value zero = arith::ConstantIndexOp::create(b, loc, 0);
    auto stored = VectorType::get({rows}, cast<MemRefType>(buffer.getType()).getElementType());
    lanes = vector::LoadOp::create(b, loc, stored, buffer, ValueRange{point.column, zero});
    if (stored != type)
      lanes = arith::TruncIOp::create(b, loc, type, lanes);
  } else if (!op) {
    return rejectOp(tile);
  } else if (auto constant = dyn_cast<arith::ConstantOp>(op)) {
    lanes = buildSplat(b, constant, type);
  } else if (auto broadcast = dyn_cast<vector::BroadcastOp>(op)) {
    Value source = broadcast.getSource();
    auto sourceType = dyn_cast<VectorType>(source.getType());
    if (sourceType && sourceType.getRank() == 2 && sourceType.getDimSize(0) == rows) {
      lanes = get(source);
    } else if (Value element = elementAt(source, point)) {
      lanes = vector::BroadcastOp::create(b, loc, type, element);
    }
  } else if (isElementwise(op)) {
    SmallVector<Value> operands;
    for (Value operand : op->getOperands()) {
      operands.push_back(classify(operand) == Holding::Scalar ? get(operand) : at(operand, point));
      if (!operands.back())
        return nullptr;
    }
    lanes = cloneElementwise(op, operands, type);
  } else {
    return rejectOp(tile);
  }
  if (lanes)
    point.lanes[tile] = lanes;
  return lanes;
}

void TileValues::store(Value lanes, Value buffer, Value column) {
  Location loc = lanes.getLoc();
  // In memory a boolean takes a byte, because vectors of i1 would be packed.
  auto stored = VectorType::get({rows}, cast<MemRefType>(buffer.getType()).getElementType());
  if (stored != lanes.getType())
    lanes = arith::ExtUIOp::create(b, loc, stored, lanes);
  Value zero = arith::ConstantIndexOp::create(b, loc, 0);
  vector::StoreOp::create(b, loc, lanes, buffer, ValueRange{column, zero});
}

Value TileValues::allocate(Location loc, Value tile) {
  auto type = cast<VectorType>(tile.getType());
  Type element = type.getElementType().isInteger(1) ? b.getI8Type() : type.getElementType();
  return scratch.allocate(loc, MemRefType::get({type.getDimSize(1), rows}, element));
}

Value TileValues::materialize(Value tile) {
  if (Value buffer = getBuffer(tile))
    return buffer;
  Value buffer = allocate(tile.getLoc(), tile);
  return failed(copy(tile, buffer)) ? Value() : buffer;
}

LogicalResult TileValues::copy(Value tile, Value buffer) {
  if (getBuffer(tile) == buffer)
    return success();
  LogicalResult result = success();
  int64_t columns = cast<VectorType>(tile.getType()).getDimSize(1);
  buildColumnLoop(b, tile.getLoc(), columns, 1, [&](Value column) {
    ColumnPoint point(column);
    if (Value lanes = at(tile, point))
      store(lanes, buffer, column);
    else
      result = failure();
  });
  return result;
}

/// Converts f32 to bf16, rounding to nearest even, with integer ops: without AVX512-BF16, LLVM
/// calls a runtime function for each element.
static Value buildTruncToBF16(OpBuilder &b, Location loc, Value x, VectorType type) {
  auto i32 = cast<VectorType>(type.clone(b.getI32Type()));
  auto i16 = cast<VectorType>(type.clone(b.getI16Type()));
  auto integer = [&](int32_t value) -> Value {
    return arith::ConstantOp::create(b, loc, DenseElementsAttr::get(i32, value));
  };
  Value bits = arith::BitcastOp::create(b, loc, i32, x);
  Value high = arith::ShRUIOp::create(b, loc, bits, integer(16));
  Value odd = arith::AndIOp::create(b, loc, high, integer(1));
  Value bias = arith::AddIOp::create(b, loc, odd, integer(0x7fff));
  Value rounded =
      arith::ShRUIOp::create(b, loc, arith::AddIOp::create(b, loc, bits, bias), integer(16));
  // Rounding could carry a NaN into another value.
  Value isNaN = arith::CmpFOp::create(b, loc, arith::CmpFPredicate::UNO, x, x);
  Value quiet = arith::OrIOp::create(b, loc, high, integer(0x40));
  Value result = arith::SelectOp::create(b, loc, isNaN, quiet, rounded);
  return arith::BitcastOp::create(b, loc, type, arith::TruncIOp::create(b, loc, i16, result));
}

Value TileValues::cloneElementwise(Operation *op, ValueRange operands, Type resultType) {
  auto vectorType = dyn_cast<VectorType>(resultType);
  if (vectorType && vectorType.getElementType().isF32()) {
    if (isa<math::Exp2Op>(op))
      return buildExp2(b, op->getLoc(), operands[0]);
    // On a machine without FMA instructions, math.fma would be a call per element.
    if (isa<math::FmaOp>(op))
      return vector::FMAOp::create(b, op->getLoc(), operands[0], operands[1], operands[2]);
  }
  if (isa<arith::TruncFOp>(op) && vectorType && vectorType.getElementType().isBF16() &&
      getElementTypeOrSelf(operands[0].getType()).isF32())
    return buildTruncToBF16(b, op->getLoc(), operands[0], vectorType);
  Operation *clone = op->cloneWithoutRegions();
  clone->setOperands(operands);
  clone->getResult(0).setType(resultType);
  b.insert(clone);
  return clone->getResult(0);
}
