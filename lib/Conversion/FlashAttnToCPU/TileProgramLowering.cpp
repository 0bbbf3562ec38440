//===- TileProgramLowering.cpp --------------------------------------------===//

#include "TileProgramLowering.h"
#include "GroupFusion.h"
#include "TileTransfer.h"
#include "TileValues.h"
#include "flashattn/Dialect/FlashAttn/IR/FlashAttn.h"
#include "mlir/Dialect/Affine/IR/AffineOps.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Math/IR/Math.h"

using namespace mlir;
using namespace mlir::flashattn;
using namespace mlir::flashattn::cpu;

namespace {

class TileProgramLowering {
public:
  TileProgramLowering(OpBuilder &b, ScratchPool &scratch, IRMapping &mapping, int64_t rows,
                      RegisterFile registers)
      : b(b), scratch(scratch), values(b, scratch, mapping, rows), group(values),
        registers(registers) {}

  /// Lowers all ops of the block except its terminator.
  LogicalResult lowerBlock(Block &block);

private:
  LogicalResult lower(Operation *op);
  LogicalResult lowerScalarOrRow(Operation *op);
  LogicalResult lowerAnyRow(AnyRowOp op);
  LogicalResult lowerRead(vector::TransferReadOp read);
  LogicalResult lowerRowLoad(LoadTileOp load);
  LogicalResult lowerWrite(vector::TransferWriteOp write);
  LogicalResult lowerContraction(vector::ContractionOp op);
  LogicalResult lowerFor(scf::ForOp op);
  LogicalResult lowerChoice(Operation *op);
  LogicalResult lowerBranch(Region &region, Region &lowered, ValueRange results);
  LogicalResult yieldTiles(ValueRange yielded, ValueRange buffers);
  LogicalResult yieldOthers(Operation *terminator);
  LogicalResult getAll(ValueRange from, SmallVectorImpl<Value> &held);
  LogicalResult reject(Operation *op) {
    return op->emitOpError("has no lowering in a CPU tile program");
  }
  bool isTile(Value value) const { return values.classify(value) == Holding::Tile; }

  OpBuilder &b;
  ScratchPool &scratch;
  TileValues values;
  FusionGroup group;
  RegisterFile registers;
  DenseMap<Value, Value> matrices; ///< K and V, row-major
};

} // namespace

LogicalResult TileProgramLowering::lowerBlock(Block &block) {
  for (Operation &op : block.without_terminator())
    if (failed(lower(&op)))
      return failure();
  return group.emit(block.getTerminator());
}

LogicalResult TileProgramLowering::lower(Operation *op) {
  // The loads that use a row map look it up.
  if (isa<RowMapOpInterface>(op))
    return success();
  if (auto cast = dyn_cast<vector::ShapeCastOp>(op); cast && isOfTransfer(cast))
    return success();
  // Ops on K and V, which keep their layout in memory.
  if (op->getNumResults() == 1 && isOnlyBroadcast(op->getResult(0))) {
    if (auto extend = dyn_cast<arith::ExtFOp>(op))
      op = extend.getIn().getDefiningOp();
    if (auto load = dyn_cast_or_null<LoadTileOp>(op))
      return lowerRowLoad(load);
    auto read = dyn_cast_or_null<vector::TransferReadOp>(op);
    return read ? lowerRead(read) : reject(op);
  }

  // Ops that run in the loop of a group, or whose value is computed at each use.
  if (auto reduction = dyn_cast<vector::MultiDimReductionOp>(op)) {
    if (!isTile(reduction.getSource()) ||
        reduction.getReductionMask() != SmallVector<bool>{false, true})
      return reject(op);
    if (!group.accepts(op) && failed(group.emit(op)))
      return failure();
    group.add(op);
    return success();
  }
  if (op->getNumResults() == 1 && op->getNumRegions() == 0) {
    Value result = op->getResult(0);
    Holding holding = values.classify(result);
    bool made =
        isElementwise(op) ||
        isa<arith::ConstantOp, vector::BroadcastOp, vector::ShapeCastOp, vector::StepOp>(op);
    if (made && holding == Holding::Column)
      return success();
    if (made && holding == Holding::Tile) {
      if (group.isWaitedForBy(op) && failed(group.emit(op)))
        return failure();
      if (isa<vector::ShapeCastOp, vector::StepOp>(op))
        return reject(op);
      if (isRecomputed(result) || isFoldedIntoContraction(op))
        return success();
      if (!group.accepts(op) && failed(group.emit(op)))
        return failure();
      group.add(op);
      return success();
    }
    if (made && (holding == Holding::Row || holding == Holding::Scalar)) {
      if (group.isWaitedForBy(op) && failed(group.emit(op)))
        return failure();
      return lowerScalarOrRow(op);
    }
  }

  // A memref.load reads only memory that the program does not write.
  if (llvm::all_of(op->getOperandTypes(),
                   llvm::IsaPred<IndexType, IntegerType, FloatType, MemRefType>) &&
      llvm::none_of(op->getResultTypes(), llvm::IsaPred<VectorType>) && op->getNumRegions() == 0 &&
      (isMemoryEffectFree(op) || isa<memref::LoadOp>(op)))
    return lowerScalarOrRow(op);

  // All other ops read tiles from memory.
  if (failed(group.emit(op)))
    return failure();
  if (auto read = dyn_cast<vector::TransferReadOp>(op))
    return lowerRead(read);
  if (auto write = dyn_cast<vector::TransferWriteOp>(op))
    return lowerWrite(write);
  if (isa<memref::StoreOp>(op))
    return lowerScalarOrRow(op);
  if (auto any = dyn_cast<AnyRowOp>(op))
    return lowerAnyRow(any);
  if (auto contraction = dyn_cast<vector::ContractionOp>(op))
    return lowerContraction(contraction);
  if (auto loop = dyn_cast<scf::ForOp>(op))
    return lowerFor(loop);
  if (isa<scf::IfOp, scf::IndexSwitchOp>(op))
    return lowerChoice(op);
  return reject(op);
}

LogicalResult TileProgramLowering::getAll(ValueRange from, SmallVectorImpl<Value> &held) {
  for (Value value : from) {
    held.push_back(values.get(value));
    if (!held.back())
      return failure();
  }
  return success();
}

LogicalResult TileProgramLowering::lowerAnyRow(AnyRowOp op) {
  Value condition =
      values.classify(op.getCondition()) == Holding::Row ? values.get(op.getCondition()) : Value();
  if (!condition)
    return reject(op);
  values.map(op.getResult(),
             vector::ReductionOp::create(b, op.getLoc(), vector::CombiningKind::OR, condition));
  return success();
}

LogicalResult TileProgramLowering::lowerScalarOrRow(Operation *op) {
  Value result = op->getNumResults() == 1 ? op->getResult(0) : Value();
  bool isRow = result && values.classify(result) == Holding::Row;
  Location loc = op->getLoc();
  if (isRow && isa<arith::ConstantOp>(op))
    return success(); // recreated at each use, which may be in another block
  if (auto step = dyn_cast<vector::StepOp>(op)) {
    values.map(result, vector::StepOp::create(b, loc, values.getLaneType(result.getType())));
    return success();
  }
  // A vector<M> of column values with M = N is computed at its uses, for the current column.
  if (isRow && isa<vector::ShapeCastOp>(op) && values.classify(op->getOperand(0)) != Holding::Row)
    return reject(op);
  SmallVector<Value> operands;
  if (failed(getAll(op->getOperands(), operands)))
    return failure();
  if (!isRow) {
    Operation *clone = op->cloneWithoutRegions();
    clone->setOperands(operands);
    b.insert(clone);
    for (auto [from, to] : llvm::zip_equal(op->getResults(), clone->getResults()))
      values.map(from, to);
    return success();
  }
  if (isa<vector::ShapeCastOp>(op))
    values.map(result, operands[0]);
  else if (isa<vector::BroadcastOp>(op))
    values.map(result, b.createOrFold<vector::BroadcastOp>(
                           loc, values.getLaneType(result.getType()), operands[0]));
  else
    values.map(result, values.cloneElementwise(op, operands, values.getLaneType(result.getType())));
  return success();
}

//===----------------------------------------------------------------------===//
// Memory
//===----------------------------------------------------------------------===//

LogicalResult TileProgramLowering::lowerRead(vector::TransferReadOp read) {
  if (isOnlyBroadcast(read.getVector())) {
    Value &matrix = matrices[read.getVector()];
    if (!matrix)
      matrix = lowerBroadcastRead(read, values);
    return success(matrix != nullptr);
  }
  switch (values.classify(getTile(read))) {
  case Holding::Tile:
    return lowerTileRead(read, values);
  case Holding::Row:
    return lowerRowRead(read, values);
  default:
    return reject(read);
  }
}

LogicalResult TileProgramLowering::lowerRowLoad(LoadTileOp load) {
  Value &matrix = matrices[load.getTile()];
  if (!matrix)
    matrix = cpu::lowerRowLoad(load, values);
  return success(matrix != nullptr);
}

LogicalResult TileProgramLowering::lowerWrite(vector::TransferWriteOp write) {
  switch (values.classify(getTile(write))) {
  case Holding::Tile:
    return lowerTileWrite(write, values);
  case Holding::Row:
    return lowerRowWrite(write, values);
  default:
    return reject(write);
  }
}

//===----------------------------------------------------------------------===//
// Contractions
//===----------------------------------------------------------------------===//

LogicalResult TileProgramLowering::lowerContraction(vector::ContractionOp op) {
  MLIRContext *context = op.getContext();
  AffineExpr m, n, k;
  bindDims(context, m, n, k);
  using MapList = ArrayRef<ArrayRef<AffineExpr>>;
  auto mapsWith = [&](ArrayRef<AffineExpr> rhs) {
    return AffineMap::inferFromExprList(MapList{{m, k}, rhs, {m, n}}, context);
  };
  SmallVector<AffineMap> maps = op.getIndexingMapsArray();
  bool transposed = maps == mapsWith({n, k});
  if ((!transposed && maps != mapsWith({k, n})) || op.getKind() != vector::CombiningKind::ADD)
    return op.emitOpError(
        "expected a contraction that adds lhs[m,k] * rhs[n,k] or lhs[m,k] * rhs[k,n]");
  auto lhsType = op.getLhsType();
  auto resultType = dyn_cast<VectorType>(op.getResultType());
  for (VectorType type : {lhsType, op.getRhsType(), resultType})
    if (!type.getElementType().isF32())
      return op.emitOpError("expected a contraction of f32 on the CPU but got ") << type;
  if (!isTile(op.getLhs()) || !isTile(op.getResult()))
    return reject(op);

  Value read = op.getRhs();
  if (auto extend = read.getDefiningOp<arith::ExtFOp>())
    read = extend.getIn();
  Value matrix = matrices.lookup(read);
  if (!matrix)
    return op.emitOpError(
        "expected a right-hand side that is loaded from memory and has no other use");

  Value lhs = values.materialize(op.getLhs());
  if (!lhs)
    return failure();
  // Overwrites the accumulator's buffer if the accumulator is dead afterwards: a block of columns
  // is loaded before it is stored.
  Value result;
  SmallVector<Value> accumulators = {op.getAcc()};
  if (Operation *folded = op.getAcc().getDefiningOp(); folded && isFoldedIntoContraction(folded))
    accumulators.append(folded->operand_begin(), folded->operand_end());
  for (Value acc : accumulators) {
    Value buffer = values.getBuffer(acc);
    if (buffer && buffer != lhs && acc.getType() == resultType && isDeadAt(acc, op->getNextNode()))
      result = buffer;
  }
  if (!result)
    result = values.allocate(op.getLoc(), op.getResult());

  Location loc = op.getLoc();
  auto init = [&](Value column) {
    ColumnPoint point(column);
    return values.at(op.getAcc(), point);
  };
  Product product{values.getRows(),
                  resultType.getDimSize(1),
                  lhsType.getDimSize(1),
                  lhs,
                  matrix,
                  transposed,
                  result,
                  init,
                  /*lhsRows=*/{}};
  if (transposed && hasFewRows(product, registers))
    product.lhsRows = scratch.allocate(
        loc, MemRefType::get({product.rows, product.depth}, lhsType.getElementType()));
  if (failed(buildProduct(b, loc, product, registers)))
    return failure();
  values.setBuffer(op.getResult(), result);
  return success();
}

//===----------------------------------------------------------------------===//
// Control flow: scalars and rows are results, tiles stay in their buffers
//===----------------------------------------------------------------------===//

/// Copies the tiles that a block yields to the buffers that its parent expects.
LogicalResult TileProgramLowering::yieldTiles(ValueRange yielded, ValueRange buffers) {
  SmallVector<Value> tiles = llvm::filter_to_vector(yielded, [&](Value v) { return isTile(v); });
  SmallVector<std::pair<Value, Value>> late; // temporary, destination
  for (auto [tile, buffer] : llvm::zip_equal(tiles, buffers)) {
    Value current = values.getBuffer(tile);
    if (current && current != buffer && llvm::is_contained(buffers, current)) {
      // Another copy may overwrite the tile first.
      Value temporary = values.allocate(tile.getLoc(), tile);
      if (failed(values.copy(tile, temporary)))
        return failure();
      late.push_back({temporary, buffer});
    }
  }
  for (auto [tile, buffer] : llvm::zip_equal(tiles, buffers)) {
    Value current = values.getBuffer(tile);
    if (current && current != buffer && llvm::is_contained(buffers, current))
      continue;
    if (failed(values.copy(tile, buffer)))
      return failure();
  }
  for (auto [temporary, buffer] : late)
    memref::CopyOp::create(b, temporary.getLoc(), temporary, buffer);
  return success();
}

LogicalResult TileProgramLowering::yieldOthers(Operation *terminator) {
  SmallVector<Value> held;
  if (failed(getAll(
          llvm::filter_to_vector(terminator->getOperands(), [&](Value v) { return !isTile(v); }),
          held)))
    return failure();
  scf::YieldOp::create(b, terminator->getLoc(), held);
  return success();
}

LogicalResult TileProgramLowering::lowerFor(scf::ForOp op) {
  Location loc = op.getLoc();
  SmallVector<Value> bounds, inits, buffers;
  if (failed(getAll({op.getLowerBound(), op.getUpperBound(), op.getStep()}, bounds)))
    return failure();
  for (Value init : op.getInitArgs()) {
    if (!isTile(init)) {
      if (failed(getAll(init, inits)))
        return failure();
      continue;
    }
    // The loop takes over the buffer of a tile without other readers.
    Value buffer = values.getBuffer(init);
    bool readInside =
        llvm::any_of(init.getUsers(), [&](Operation *user) { return op->isProperAncestor(user); });
    if (!buffer || readInside || llvm::is_contained(buffers, buffer) ||
        !isDeadAt(init, op->getNextNode())) {
      buffer = values.allocate(loc, init);
      if (failed(values.copy(init, buffer)))
        return failure();
    }
    buffers.push_back(buffer);
  }

  auto loop = scf::ForOp::create(b, loc, bounds[0], bounds[1], bounds[2], inits);
  if (inits.empty())
    loop.getBody()->getTerminator()->erase();
  values.map(op.getInductionVar(), loop.getInductionVar());
  auto mapCarried = [&](ValueRange from, ValueRange to) {
    unsigned nextBuffer = 0, next = 0;
    for (Value value : from) {
      if (isTile(value))
        values.setBuffer(value, buffers[nextBuffer++]);
      else
        values.map(value, to[next++]);
    }
  };
  mapCarried(op.getRegionIterArgs(), loop.getRegionIterArgs());
  {
    OpBuilder::InsertionGuard guard(b);
    ScratchPool::Scope scope(scratch);
    b.setInsertionPointToEnd(loop.getBody());
    Operation *yield = op.getBody()->getTerminator();
    if (failed(lowerBlock(*op.getBody())) || failed(yieldTiles(yield->getOperands(), buffers)) ||
        failed(yieldOthers(yield)))
      return failure();
  }
  mapCarried(op.getResults(), loop.getResults());
  return success();
}

LogicalResult TileProgramLowering::lowerBranch(Region &region, Region &lowered,
                                               ValueRange buffers) {
  if (region.empty())
    return success();
  OpBuilder::InsertionGuard guard(b);
  ScratchPool::Scope scope(scratch);
  b.createBlock(&lowered);
  Operation *yield = region.front().getTerminator();
  return failure(failed(lowerBlock(region.front())) ||
                 failed(yieldTiles(yield->getOperands(), buffers)) || failed(yieldOthers(yield)));
}

/// Lowers scf.if or scf.index_switch, whose only operand selects the region that runs.
LogicalResult TileProgramLowering::lowerChoice(Operation *op) {
  Value chosen = values.get(op->getOperand(0));
  if (!chosen)
    return failure();
  SmallVector<Type> types;
  SmallVector<Value> buffers;
  for (Value result : op->getResults()) {
    if (isTile(result)) {
      buffers.push_back(values.allocate(op->getLoc(), result));
      values.setBuffer(result, buffers.back());
    } else {
      types.push_back(values.getHeldType(result.getType()));
    }
  }
  OperationState state(op->getLoc(), op->getName(), chosen, types, op->getAttrs());
  for (unsigned i = 0; i < op->getNumRegions(); ++i)
    state.addRegion();
  Operation *choice = b.create(state);
  for (auto [region, lowered] : llvm::zip_equal(op->getRegions(), choice->getRegions()))
    if (failed(lowerBranch(region, lowered, buffers)))
      return failure();
  unsigned next = 0;
  for (Value result : op->getResults())
    if (!isTile(result))
      values.map(result, choice->getResult(next++));
  return success();
}

LogicalResult mlir::flashattn::cpu::lowerTileProgram(Block &body, func::FuncOp function,
                                                     IRMapping &mapping, int64_t rows,
                                                     RegisterFile registers) {
  OpBuilder b(function.getBody().front().getTerminator());
  ScratchPool scratch(function);
  if (failed(TileProgramLowering(b, scratch, mapping, rows, registers).lowerBlock(body)))
    return failure();
  scratch.finish();
  return success();
}
