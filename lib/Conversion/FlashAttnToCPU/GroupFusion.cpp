//===- GroupFusion.cpp ----------------------------------------------------===//

#include "GroupFusion.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Math/IR/Math.h"
#include "mlir/Dialect/SCF/IR/SCF.h"

using namespace mlir;
using namespace mlir::flashattn::cpu;

/// Returns the type of the tile that determines the number of columns of `op`.
static VectorType getTileType(Operation *op) {
  if (auto reduction = dyn_cast<vector::MultiDimReductionOp>(op))
    return reduction.getSourceVectorType();
  return cast<VectorType>(op->getResult(0).getType());
}

bool FusionGroup::isWaitedForBy(Operation *op) const {
  return llvm::any_of(op->getOperands(), [&](Value operand) {
    Operation *def = operand.getDefiningOp();
    return isa_and_nonnull<vector::MultiDimReductionOp>(def) && ops.contains(def);
  });
}

bool FusionGroup::accepts(Operation *op) const {
  return ops.empty() || (getTileType(op).getDimSize(1) == columns && !isWaitedForBy(op));
}

void FusionGroup::add(Operation *op) {
  columns = getTileType(op).getDimSize(1);
  ops.insert(op);
}

/// Returns the buffer of a tile that `op` reads, directly or through ops of the group, and that is
/// dead at `next`. A column is read before it is written, so the result may overwrite this buffer.
/// Ops in `seen`, whose values several ops share, read none.
Value FusionGroup::findDeadOperandBuffer(Operation *op, Type type, Operation *next,
                                         ArrayRef<Value> taken,
                                         SmallPtrSetImpl<Operation *> &seen) {
  if (!seen.insert(op).second)
    return nullptr;
  for (Value operand : op->getOperands()) {
    if (Value buffer = values.getBuffer(operand)) {
      if (operand.getType() == type && isDeadAt(operand, next) &&
          !llvm::is_contained(taken, buffer))
        return buffer;
      continue;
    }
    Operation *def = operand.getDefiningOp();
    if (def && ops.contains(def) && !isa<vector::MultiDimReductionOp>(def))
      if (Value buffer = findDeadOperandBuffer(def, type, next, taken, seen))
        return buffer;
  }
  return nullptr;
}

Value FusionGroup::chooseBuffer(Operation *op, Operation *next, ArrayRef<Value> taken) {
  Value tile = op->getResult(0);
  SmallPtrSet<Operation *, 16> seen;
  if (Value buffer = findDeadOperandBuffer(op, tile.getType(), next, taken, seen))
    return buffer;
  return values.allocate(op->getLoc(), tile);
}

/// Returns the neutral element of `kind`, or null.
static Value buildNeutral(OpBuilder &b, Location loc, vector::CombiningKind kind, VectorType type) {
  auto floatType = dyn_cast<FloatType>(type.getElementType());
  if (!floatType)
    return nullptr;
  APFloat zero = APFloat::getZero(floatType.getFloatSemantics());
  APFloat inf = APFloat::getInf(floatType.getFloatSemantics());
  if (kind == vector::CombiningKind::ADD)
    return arith::ConstantOp::create(b, loc, DenseElementsAttr::get(type, zero));
  if (kind == vector::CombiningKind::MAXNUMF)
    return arith::ConstantOp::create(b, loc, DenseElementsAttr::get(type, -inf));
  return nullptr;
}

static Value buildCombine(OpBuilder &b, Location loc, vector::CombiningKind kind, Value x,
                          Value acc) {
  if (kind != vector::CombiningKind::MAXNUMF)
    return vector::makeArithReduction(b, loc, kind, x, acc);
  // The accumulators start at -inf and never become NaN, so this is maxnumf, in one x86 instruction
  // instead of three.
  Value larger = arith::CmpFOp::create(b, loc, arith::CmpFPredicate::OGT, x, acc);
  return arith::SelectOp::create(b, loc, larger, x, acc);
}

namespace {
/// A row reduction and its running values in the column loop. If the kind has a neutral element
/// there are several, because one would be a dependency chain as long as the row.
struct RunningReduction {
  vector::MultiDimReductionOp op;
  Value acc; ///< combined at the end; null if the loop starts from it
  unsigned first;
  unsigned count;
};
} // namespace

LogicalResult FusionGroup::emit(Operation *next) {
  if (ops.empty())
    return success();
  OpBuilder &b = values.b;
  Location loc = ops.front()->getLoc();
  // An exponential needs a dozen registers, so four of them would spill.
  bool heavy = llvm::any_of(ops, llvm::IsaPred<math::Exp2Op, math::TanhOp>);
  int64_t unroll = columns % 4 == 0 && !heavy ? 4 : columns % 2 == 0 ? 2 : 1;

  SmallVector<RunningReduction> reductions;
  SmallVector<Value> initial, stored, storedTo;
  for (Operation *op : ops) {
    if (auto reduction = dyn_cast<vector::MultiDimReductionOp>(op)) {
      Value acc = values.get(reduction.getAcc());
      if (!acc)
        return failure();
      Value neutral = buildNeutral(b, loc, reduction.getKind(), cast<VectorType>(acc.getType()));
      unsigned count = neutral ? unroll : 1;
      reductions.push_back(
          {reduction, neutral ? acc : Value(), static_cast<unsigned>(initial.size()), count});
      initial.append(count, neutral ? neutral : acc);
    } else if (llvm::any_of(op->getUsers(), [&](Operation *user) { return !ops.contains(user); })) {
      storedTo.push_back(chooseBuffer(op, next, storedTo));
      stored.push_back(op->getResult(0));
    }
  }

  auto index = [&](int64_t i) -> Value { return arith::ConstantIndexOp::create(b, loc, i); };
  auto loop = scf::ForOp::create(b, loc, index(0), index(columns), index(unroll), initial);
  {
    OpBuilder::InsertionGuard guard(b);
    if (initial.empty())
      b.setInsertionPointToStart(loop.getBody());
    else
      b.setInsertionPointToEnd(loop.getBody());
    SmallVector<Value> running(loop.getRegionIterArgs());
    SmallVector<ColumnPoint> points;
    for (int64_t u = 0; u < unroll; ++u) {
      Value column = loop.getInductionVar();
      ColumnPoint &point =
          points.emplace_back(u == 0 ? column : arith::AddIOp::create(b, loc, column, index(u)));
      for (Value tile : stored)
        if (!values.at(tile, point))
          return failure();
      for (RunningReduction &reduction : reductions) {
        Value x = values.at(reduction.op.getSource(), point);
        if (!x)
          return failure();
        Value &acc = running[reduction.first + u % reduction.count];
        acc = buildCombine(b, loc, reduction.op.getKind(), x, acc);
      }
    }
    for (ColumnPoint &point : points)
      for (auto [tile, buffer] : llvm::zip_equal(stored, storedTo))
        values.store(values.at(tile, point), buffer, point.column);
    if (!initial.empty())
      scf::YieldOp::create(b, loc, running);
  }

  for (RunningReduction &reduction : reductions) {
    vector::CombiningKind kind = reduction.op.getKind();
    Value result = reduction.acc;
    for (Value part : loop.getResults().slice(reduction.first, reduction.count))
      result = result ? vector::makeArithReduction(b, loc, kind, part, result) : part;
    values.map(reduction.op.getResult(), result);
  }
  for (auto [tile, buffer] : llvm::zip_equal(stored, storedTo))
    values.setBuffer(tile, buffer);
  ops.clear();
  return success();
}
