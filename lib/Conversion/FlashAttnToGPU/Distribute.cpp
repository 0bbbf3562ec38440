//===- Distribute.cpp - flashattn-distribute ------------------------------===//

#include "Distribute.h"
#include "flashattn/Conversion/Passes.h"
#include "mlir/Dialect/MemRef/IR/MemRef.h"
#include "mlir/IR/Matchers.h"
#include "llvm/ADT/TypeSwitch.h"

namespace mlir::flashattn {
#define GEN_PASS_DEF_DISTRIBUTE
#include "flashattn/Conversion/Passes.h.inc"
} // namespace mlir::flashattn

using namespace mlir;
using namespace mlir::flashattn;

//===----------------------------------------------------------------------===//
// Layout
//===----------------------------------------------------------------------===//

/// Number of lanes that share a row.
static constexpr int64_t kQuad = 4;

bool ThreadLayout::isRow(VectorType type) const {
  return type.getDimSize(0) == tileM &&
         (type.getRank() == 1 ||
          (type.getRank() == 2 && (type.getDimSize(1) == 1 || type.getDimSize(1) == kQuad)));
}

bool ThreadLayout::isColumn(VectorType type) const {
  return type.getRank() == 2 && type.getDimSize(0) == 1 &&
         type.getDimSize(1) % (8 * columnWarps) == 0;
}

bool ThreadLayout::isTile(VectorType type) const {
  return type.getRank() == 2 && type.getDimSize(0) == tileM &&
         type.getDimSize(1) % (8 * columnWarps) == 0;
}

bool ThreadLayout::isSplitTile(VectorType type) const {
  return type.getRank() == 4 && type.getDimSize(0) == tileM && type.getDimSize(2) == kQuad &&
         type.getDimSize(3) == 2;
}

bool ThreadLayout::isPart(VectorType type) const {
  if (type.getRank() != 2)
    return false;
  int64_t rows = type.getDimSize(0);
  return rows % (16 * columnWarps) == 0 && rows < tileM && 16 * columnWarps * warps % rows == 0 &&
         type.getDimSize(1) % (8 * countParts(rows)) == 0;
}

VectorType ThreadLayout::threadType(VectorType type) const {
  int64_t elements = 0;
  if (isRow(type))
    elements = rowElements();
  else if (isColumn(type))
    elements = columnElements(type.getDimSize(1));
  else if (isTile(type))
    elements = tileElements(type.getDimSize(1));
  else if (isSplitTile(type))
    elements = tileElements(type.getDimSize(1) * kQuad * 2);
  else if (isPart(type))
    elements = type.getNumElements() / (32 * warps);
  else
    return {};
  return VectorType::get({elements}, type.getElementType());
}

//===----------------------------------------------------------------------===//
// Distributor
//===----------------------------------------------------------------------===//

Distributor::Distributor(RewriterBase &b, OnThreadsOp program)
    : b(b), program(program), loc(program.getLoc()) {
  ScheduleAttr schedule = program.getScheduleAttr();
  int64_t warps = schedule.getWarpsOfRows();
  layout = {schedule.getTileM(), 0, warps, schedule.getColumnWarps()};
  layout.rowBlocks = layout.tileM / (16 * layout.rowWarps());
  isWarpSpecialized = schedule.isWarpSpecialized();
}

LogicalResult Distributor::run() {
  int64_t warps = layout.warps, rowWarps = layout.rowWarps();
  if (layout.tileM % (16 * rowWarps) != 0)
    return program.emitOpError() << "expected tile_m to be a multiple of 16 rows times " << rowWarps
                                 << " warps but got " << layout.tileM;
  b.setInsertionPointToStart(program.getBody());
  Value thread = program.getThread();
  lane = arith::AndIOp::create(b, loc, thread, index(31));
  laneRow = arith::DivUIOp::create(b, loc, lane, index(kQuad));
  laneColumn = mul(arith::AndIOp::create(b, loc, lane, index(kQuad - 1)), 2);
  if (isWarpSpecialized && warps > 4) {
    auto i32 = [&](int64_t v) { return arith::ConstantIntOp::create(b, loc, v, 32); };
    Value number = arith::IndexCastUIOp::create(b, loc, b.getI32Type(),
                                                arith::DivUIOp::create(b, loc, thread, index(128)));
    number = gpu::ShuffleOp::create(b, loc, number, i32(0), i32(32), gpu::ShuffleMode::IDX)
                 .getShuffleResult();
    warpgroup = arith::IndexCastUIOp::create(b, loc, b.getIndexType(), number);
  }
  Value rowWarp = findWarp();
  if (layout.columnWarps > 1)
    std::tie(rowWarp, columnWarp) = splitWarp(rowWarps);
  warpRow = mul(rowWarp, 16 * layout.rowBlocks);
  // mma.sync products, and tiles that are added to memory, need both rows of a lane.
  WalkResult paired = program.walk([](Operation *op) {
    return isa<vector::ContractionOp, AddTileOp, hopper::AddTileOp, hopper::StageTileOp,
               LoadAddedOp>(op)
               ? WalkResult::interrupt()
               : WalkResult::advance();
  });
  if (program.getUnusedRowHalf() && isWarpSpecialized && layout.rowBlocks == 1 &&
      !paired.wasInterrupted()) {
    layout.laneRows = 1;
    findSums();
  }
  program.walk([&](Operation *op) {
    hasProducts |= isa<vector::ContractionOp, hopper::WgmmaOp>(op);
    if (auto sum = dyn_cast<vector::MultiDimReductionOp>(op))
      findUnordered(sum);
  });
  return block(*program.getBody());
}

/// Whether `v` is a vector.step, possibly cast. Its use decides whether it is a row or column
/// index.
static bool isStep(Value v) {
  Operation *def = v.getDefiningOp();
  if (isa_and_nonnull<arith::IndexCastOp, arith::IndexCastUIOp>(def))
    def = def->getOperand(0).getDefiningOp();
  return isa_and_nonnull<vector::StepOp>(def);
}

/// Whether values of `type` are distributed over threads: every vector in a tile program is.
bool Distributor::isDistributed(Type type) const { return isa<VectorType>(type); }

/// Rewrites a block from top to bottom, then erases the replaced ops from bottom to top.
LogicalResult Distributor::block(Block &body) {
  SmallVector<Operation *> ops =
      llvm::map_to_vector(body.without_terminator(), [](Operation &op) { return &op; });
  SmallVector<Operation *> replaced;
  for (Operation *op : ops) {
    auto touches = [&](TypeRange types) {
      return llvm::any_of(types, [&](Type type) { return isDistributed(type); });
    };
    if (touches(op->getResultTypes()) || touches(op->getOperandTypes())) {
      // `ops` was collected before, so ops built by the distributor are not visited.
      b.setInsertionPoint(op);
      loc = op->getLoc();
      if (failed(distribute(op)))
        return failure();
      replaced.push_back(op);
      continue;
    }
    for (Region &region : op->getRegions())
      for (Block &inner : region)
        if (failed(block(inner)))
          return failure();
  }
  Operation *terminator = body.getTerminator();
  b.setInsertionPoint(terminator);
  for (OpOperand &operand : terminator->getOpOperands())
    if (Type type = operand.get().getType(); isDistributed(type)) {
      Value held = mapped(operand.get()),
            result = terminator->getParentOp()->getResult(operand.getOperandNumber());
      operand.set(held && held.getType() != result.getType() ? withAllRows(held, type) : held);
    }
  for (Operation *op : llvm::reverse(replaced))
    b.eraseOp(op);
  return success();
}

LogicalResult Distributor::distribute(Operation *op) {
  return llvm::TypeSwitch<Operation *, LogicalResult>(op)
      .Case([&](scf::ForOp op) { return forOp(op); })
      .Case([&](scf::IfOp op) { return ifOp(op); })
      .Case([&](AnyRowOp op) { return anyRow(op); })
      .Case([&](hopper::WgmmaOp op) { return wgmma(op); })
      .Case([&](hopper::WgmmaWaitOp op) { return wgmmaWait(op); })
      .Case([&](hopper::StoreTileOp op) { return storeTile(op); })
      .Case([&](hopper::ReadTileOp op) { return readTile(op); })
      .Case([&](hopper::PinOp op) { return pin(op); })
      .Case([&](hopper::AddTileOp op) { return addTile(op); })
      .Case([&](hopper::StageTileOp op) { return stageTile(op); })
      .Case([&](AddTileOp op) { return addTile(op); })
      .Case([&](LoadAddedOp op) { return loadAdded(op); })
      // Products read tiles in shared memory directly.
      .Case<arith::ConstantOp, hopper::LoadTileOp>([](Operation *) { return success(); })
      .Case([&](vector::ShapeCastOp op) { return shapeCast(op); })
      .Case([&](vector::BroadcastOp op) { return broadcast(op); })
      .Case([&](vector::ExtractStridedSliceOp op) { return extractColumns(op); })
      .Case([&](vector::InsertStridedSliceOp op) { return insertColumns(op); })
      .Case([&](vector::MultiDimReductionOp op) { return reduction(op); })
      .Case([&](vector::TransferReadOp op) { return read(op); })
      .Case([&](LoadTileOp op) { return load(op); })
      .Case([&](StoreTileOp op) { return store(op); })
      .Case([&](vector::TransferWriteOp op) { return write(op); })
      .Case([&](vector::ContractionOp op) { return contract(op); })
      // Whether these are rows or columns is known at the cast to vector<Mx1> or vector<1xN>.
      .Case([&](vector::StepOp op) { return success(); })
      .Default([&](Operation *op) -> LogicalResult {
        if (OpTrait::hasElementwiseMappableTraits(op) && op->getNumResults() == 1)
          return elementwise(op);
        return op->emitOpError() << "cannot be distributed to threads in a tile program";
      });
}

LogicalResult Distributor::forOp(scf::ForOp op) {
  SmallVector<Value> inits;
  for (auto [init, argument] : llvm::zip_equal(op.getInitArgs(), op.getRegionIterArgs())) {
    inits.push_back(isDistributed(init.getType()) ? mapped(init) : init);
    if (!inits.back())
      return op.emitOpError() << "cannot be distributed to threads: its operand of type "
                              << init.getType() << " has no thread layout";
    if (sums.contains(argument))
      inits.back() = withAllRows(inits.back(), init.getType());
  }
  auto loop =
      scf::ForOp::create(b, loc, op.getLowerBound(), op.getUpperBound(), op.getStep(), inits);
  Block *body = loop.getBody();
  if (!body->empty())
    b.eraseOp(&body->back());
  body->getOperations().splice(body->end(), op.getBody()->getOperations());
  b.replaceAllUsesWith(op.getInductionVar(), loop.getInductionVar());
  for (auto [oldArg, newArg] : llvm::zip(op.getRegionIterArgs(), loop.getRegionIterArgs())) {
    if (isDistributed(oldArg.getType()))
      values[oldArg] = newArg;
    else
      b.replaceAllUsesWith(oldArg, newArg);
  }
  if (failed(block(*body)))
    return failure();
  // `op` is an empty shell now. It needs a terminator to be erased.
  b.setInsertionPointToStart(op.getBody());
  scf::YieldOp::create(b, loc, op.getRegionIterArgs());
  for (auto [oldResult, newResult] : llvm::zip(op.getResults(), loop.getResults())) {
    if (isDistributed(oldResult.getType()))
      values[oldResult] = newResult;
    else
      b.replaceAllUsesWith(oldResult, newResult);
  }
  return success();
}

LogicalResult Distributor::ifOp(scf::IfOp op) {
  SmallVector<Type> types;
  for (Value result : op.getResults()) {
    Type type = result.getType();
    types.push_back(isDistributed(type) ? threadTypeOf(result) : type);
    if (!types.back())
      return op.emitOpError() << "cannot be distributed to threads: its result of type " << type
                              << " has no thread layout";
  }
  auto branch = scf::IfOp::create(b, loc, types, op.getCondition(), /*withElseRegion=*/true);
  for (auto [to, from] : {std::pair(&branch.getThenRegion(), &op.getThenRegion()),
                          std::pair(&branch.getElseRegion(), &op.getElseRegion())}) {
    to->takeBody(*from);
    if (failed(block(to->front())))
      return failure();
  }
  for (auto [oldResult, newResult] : llvm::zip(op.getResults(), branch.getResults())) {
    if (isDistributed(oldResult.getType()))
      values[oldResult] = newResult;
    else
      b.replaceAllUsesWith(oldResult, newResult);
  }
  return success();
}

Value Distributor::mapped(Value v) {
  if (Value known = values.lookup(v))
    return known;
  // Constants may be defined outside the launch. Each use creates its own.
  auto constant = v.getDefiningOp<arith::ConstantOp>();
  if (!constant)
    return {};
  auto splat = dyn_cast<SplatElementsAttr>(constant.getValue());
  VectorType mine = layout.threadType(cast<VectorType>(v.getType()));
  if (!splat || !mine)
    return {};
  return arith::ConstantOp::create(b, loc,
                                   DenseElementsAttr::get(mine, splat.getSplatValue<Attribute>()));
}

LogicalResult Distributor::elementwise(Operation *op) {
  // Index vectors, and ops on them, are distributed at their cast to a row or column shape.
  if (isStep(op->getResult(0)))
    return success();
  if (auto compare = dyn_cast<arith::CmpIOp>(op);
      compare && isWarpSpecialized && columnParts.contains(compare.getRhs()))
    return compareColumns(compare);
  VectorType mine = layout.threadType(cast<VectorType>(op->getResult(0).getType()));
  if (!mine)
    return op->emitOpError() << "expected a row, column or tile value but got "
                             << op->getResult(0).getType();
  SmallVector<Value> operands;
  // A scalar may be a new value, in the place of a sum that was erased.
  bool hasSums = llvm::any_of(op->getOperands(), [&](Value v) {
    return isDistributed(v.getType()) && sums.contains(v);
  });
  for (Value operand : op->getOperands()) {
    operands.push_back(isDistributed(operand.getType()) ? mapped(operand) : operand);
    if (!operands.back())
      return op->emitOpError() << "cannot be distributed to threads: its operand of type "
                               << operand.getType() << " has no thread layout";
    if (hasSums && isDistributed(operand.getType()))
      operands.back() = withAllRows(operands.back(), operand.getType());
  }
  if (hasSums)
    mine = threadTypeOf(op->getResult(0));
  OperationState state(loc, op->getName(), operands, mine, op->getAttrs());
  values[op->getResult(0)] = b.create(state)->getResult(0);
  if (auto product = dyn_cast<arith::MulIOp>(op)) {
    APInt factor;
    auto known = columnParts.find(product.getLhs());
    if (known != columnParts.end() && matchPattern(product.getRhs(), m_ConstantInt(&factor)))
      splitColumns(product, factor.getSExtValue(), NumberParts(known->second));
  }
  return success();
}

std::pair<Value, Value> Distributor::splitWarp(int64_t count) {
  Value warp = findWarp();
  return {arith::RemUIOp::create(b, loc, warp, index(count)),
          arith::DivUIOp::create(b, loc, warp, index(count))};
}

Value Distributor::firstColumn(int64_t columns) {
  return columnWarp ? mul(columnWarp, layout.warpColumns(columns)) : index(0);
}

/// Returns the row indices (`type` vector<Mx1>) or column indices (vector<1xN>) of this thread's
/// elements, as a per-thread value plus a constant for each element.
Distributor::NumberParts Distributor::numberParts(VectorType type) {
  bool columns = layout.isColumn(type);
  NumberParts parts;
  parts.thread = columns ? add(firstColumn(type.getDimSize(1)), laneColumn) : add(warpRow, laneRow);
  if (Type element = type.getElementType(); !element.isIndex())
    parts.thread = arith::IndexCastOp::create(b, loc, element, parts.thread);
  for (int64_t i = 0; i < layout.threadType(type).getNumElements(); ++i)
    parts.constants.push_back(columns ? 8 * (i / 2) + i % 2 : layout.rowAt(i));
  return parts;
}

Value Distributor::getConstants(const NumberParts &parts, VectorType type) {
  SmallVector<Attribute> constants = llvm::map_to_vector(parts.constants, [&](int64_t v) {
    return Attribute(b.getIntegerAttr(type.getElementType(), v));
  });
  return arith::ConstantOp::create(b, loc, DenseElementsAttr::get(type, constants));
}

Value Distributor::numbers(VectorType type) {
  VectorType mine = layout.threadType(type);
  NumberParts parts = numberParts(type);
  Value spread = vector::BroadcastOp::create(b, loc, mine, parts.thread);
  return arith::AddIOp::create(b, loc, spread, getConstants(parts, mine));
}

/// Records that `columns` is `factor` times the indices `from`.
void Distributor::splitColumns(Value columns, int64_t factor, NumberParts from) {
  Value scale = arith::ConstantIntOp::create(b, loc, factor, 32);
  from.thread = b.createOrFold<arith::MulIOp>(loc, from.thread, scale);
  for (int64_t &constant : from.constants)
    constant *= factor;
  columnParts[columns] = std::move(from);
}

/// Rewrites rows >= thread + constant to rows - thread >= constant, whose right-hand sides are
/// immediate operands. The sums would each take a register through the loops. Without warp
/// specialization all registers are in use, and ptxas would spill the differences. The limits of a
/// mask are far enough from overflow for any tile's columns.
LogicalResult Distributor::compareColumns(arith::CmpIOp op) {
  const NumberParts &parts = columnParts.at(op.getRhs());
  Value rows = mapped(op.getLhs());
  if (!rows)
    return op.emitOpError() << "cannot be distributed to threads: its operand of type "
                            << op.getLhs().getType() << " has no thread layout";
  auto type = cast<VectorType>(rows.getType());
  Value thread = vector::BroadcastOp::create(b, loc, type, parts.thread);
  values[op] =
      arith::CmpIOp::create(b, loc, op.getPredicate(), arith::SubIOp::create(b, loc, rows, thread),
                            getConstants(parts, type));
  return success();
}

LogicalResult Distributor::shapeCast(vector::ShapeCastOp op) {
  VectorType type = op.getResultVectorType();
  if (isStep(op.getSource()) && layout.threadType(type)) {
    values[op] = numbers(type);
    if (layout.isColumn(type) && type.getElementType().isInteger(32))
      splitColumns(op, 1, numberParts(type));
    return success();
  }
  if (Value source = mapped(op.getSource())) {
    // Between shapes of the same row values, or to a tile whose columns are split by lane, of which
    // a thread holds the same elements in the same order.
    bool sameRow = layout.isRow(op.getSourceVectorType()) && layout.isRow(type);
    bool split = layout.isTile(op.getSourceVectorType()) && layout.isSplitTile(type);
    if (sameRow || split) {
      values[op] = source;
      return success();
    }
  }
  return op.emitOpError() << "cannot be distributed to threads: its cast from "
                          << op.getSourceVectorType() << " to " << type << " has no thread layout";
}

LogicalResult Distributor::broadcast(vector::BroadcastOp op) {
  VectorType type = op.getResultVectorType();
  VectorType mine = layout.threadType(type);
  if (!mine)
    return op.emitOpError() << "expected a row, column or tile value but got " << type;
  auto source = dyn_cast<VectorType>(op.getSourceType());
  if (!source) {
    values[op] = vector::BroadcastOp::create(b, loc, mine, op.getSource());
    return success();
  }
  // A vector<N> is broadcast along the rows: column values without the unit dimension.
  bool flatColumn = source.getRank() == 1 && layout.isTile(type);
  if (flatColumn)
    source = VectorType::get({1, source.getDimSize(0)}, source.getElementType());
  Value held = flatColumn && isStep(op.getSource()) ? numbers(source) : mapped(op.getSource());
  if (!held)
    return op.emitOpError() << "cannot be distributed to threads: its operand has no thread layout";
  if (!flatColumn && layout.isRow(source) && layout.isRow(type)) {
    values[op] = held;
    return success();
  }
  SmallVector<int64_t> mask;
  if (!flatColumn && layout.isRow(source) && layout.isTile(type)) {
    int64_t perBlock = layout.blockElements(type.getDimSize(1));
    for (int64_t i = 0; i < mine.getNumElements(); ++i)
      mask.push_back(layout.laneRows * (i / perBlock) + (i / 2) % layout.laneRows);
  } else if (layout.isColumn(source) && layout.isTile(type)) {
    int64_t perBlock = layout.blockElements(type.getDimSize(1));
    for (int64_t i = 0; i < mine.getNumElements(); ++i)
      mask.push_back(2 * ((i % perBlock) / (2 * layout.laneRows)) + i % 2);
    if (flatColumn && isStep(op.getSource()) && source.getElementType().isInteger(32))
      splitColumns(op.getSource(), 1, numberParts(source));
    if (auto known = columnParts.find(op.getSource()); known != columnParts.end()) {
      NumberParts spread{known->second.thread, {}};
      for (int64_t i : mask)
        spread.constants.push_back(known->second.constants[i]);
      columnParts[op] = std::move(spread);
    }
  } else {
    return op.emitOpError() << "cannot be distributed to threads: its broadcast from " << source
                            << " to " << type << " has no thread layout";
  }
  values[op] = shuffle(held, mask);
  return success();
}

//===----------------------------------------------------------------------===//
// Reductions
//===----------------------------------------------------------------------===//

/// Whether `v` is the neutral element of `kind`: 0 for a sum, -inf for a maximum.
static bool isNeutral(vector::CombiningKind kind, Value v) {
  return kind == vector::CombiningKind::ADD ? matchPattern(v, m_AnyZeroFloat())
                                            : matchPattern(v, m_NegInfFloat());
}

Value Distributor::slice(Value v, int64_t offset, int64_t size) {
  return shuffle(v, llvm::to_vector(llvm::seq(offset, offset + size)));
}

Value Distributor::combine(vector::CombiningKind kind, Value x, Value y) {
  if (isNeutral(kind, x))
    return y;
  return vector::makeArithReduction(b, loc, kind, x, y);
}

Value Distributor::reduceInThread(vector::CombiningKind kind, Value tile) {
  int64_t perBlock = cast<VectorType>(tile.getType()).getNumElements() / layout.rowBlocks;
  Value rows;
  SmallVector<int64_t> joined;
  int64_t laneRows = layout.laneRows, perGroup = 2 * laneRows;
  for (int64_t r = 0; r < layout.rowBlocks; ++r) {
    Value part = layout.rowBlocks == 1 ? tile : slice(tile, r * perBlock, perBlock);
    // A few chains over groups of columns keep the (row, column) pattern and limit the number of
    // live intermediates. The number of chains is the largest without spills.
    int64_t chains = isWarpSpecialized ? 2 : 3;
    SmallVector<Value> folded;
    for (int64_t g = 0; g < perBlock / perGroup; ++g) {
      Value group = slice(part, perGroup * g, perGroup);
      if (g < chains)
        folded.push_back(group);
      else
        folded[g % chains] = combine(kind, folded[g % chains], group);
    }
    part = folded.front();
    for (Value chain : ArrayRef(folded).drop_front())
      part = combine(kind, part, chain);
    SmallVector<int64_t> even, odd;
    for (int64_t i = 0; i < laneRows; ++i) {
      even.push_back(2 * i);
      odd.push_back(2 * i + 1);
    }
    Value row = combine(kind, shuffle(part, even), shuffle(part, odd));
    if (!rows) {
      rows = row;
    } else {
      joined = llvm::to_vector(llvm::seq<int64_t>(0, laneRows * (r + 1)));
      rows = vector::ShuffleOp::create(b, loc, rows, row, joined);
    }
  }
  return rows;
}

Value Distributor::reduceQuad(vector::CombiningKind kind, Value row) {
  Value width = arith::ConstantIntOp::create(b, loc, 32, 32);
  int64_t elements = layout.rowElements();
  for (int distance : {1, 2}) {
    Value offset = arith::ConstantIntOp::create(b, loc, distance, 32);
    SmallVector<Value> other;
    for (int64_t i = 0; i < elements; ++i) {
      Value scalar = vector::ExtractOp::create(b, loc, row, i);
      other.push_back(gpu::ShuffleOp::create(b, loc, scalar, offset, width, gpu::ShuffleMode::XOR)
                          .getShuffleResult());
    }
    Value others = vector::FromElementsOp::create(b, loc, row.getType(), other);
    row = combine(kind, row, others);
  }
  return row;
}

/// The warp decides for its 16 rows: one vote, without an exchange of values.
LogicalResult Distributor::anyRow(AnyRowOp op) {
  Value held = mapped(op.getCondition());
  if (!held)
    return op.emitOpError() << "cannot be distributed to threads: its operand has no thread layout";
  Value mine;
  for (Value element : vector::ToElementsOp::create(b, loc, held).getResults())
    mine = mine ? Value(arith::OrIOp::create(b, loc, mine, element)) : element;
  b.replaceAllUsesWith(op.getResult(), VoteOp::create(b, loc, VoteKind::Any, mine));
  return success();
}

LogicalResult Distributor::reduction(vector::MultiDimReductionOp op) {
  vector::CombiningKind kind = op.getKind();
  if (kind != vector::CombiningKind::ADD && kind != vector::CombiningKind::MAXNUMF &&
      kind != vector::CombiningKind::MAXSI)
    return op.emitOpError() << "expected a reduction by add, maxnumf or maxsi in a tile program";
  VectorType source = op.getSourceVectorType();
  if (layout.columnWarps > 1)
    return op.emitOpError() << "expected one warp for each row of the reduced " << source
                            << " but got " << layout.columnWarps;
  Value held = withOwnRows(mapped(op.getSource()), source), acc = mapped(op.getAcc());
  SmallVector<bool> reduced = op.getReductionMask();
  if (layout.isTile(source) && ArrayRef<bool>(reduced) == ArrayRef<bool>{false, true}) {
    Value row = reduceQuad(kind, reduceInThread(kind, held));
    values[op.getResult()] = combine(kind, acc, row);
    return success();
  }
  // One partial sum for each lane of a row, without an exchange between lanes.
  if (source.getRank() == 4 &&
      ArrayRef<bool>(reduced) == ArrayRef<bool>{false, true, false, true}) {
    values[op.getResult()] = combine(kind, acc, reduceInThread(kind, held));
    return success();
  }
  if (source.getRank() == 2 && source.getDimSize(1) == kQuad &&
      ArrayRef<bool>(reduced) == ArrayRef<bool>{false, true}) {
    values[op.getResult()] = combine(kind, acc, reduceQuad(kind, held));
    return success();
  }
  return op.emitOpError() << "cannot be distributed to threads: its reduction of " << source
                          << " has no thread layout";
}

namespace {
struct DistributePass : flashattn::impl::DistributeBase<DistributePass> {
  void runOnOperation() override {
    IRRewriter rewriter(&getContext());
    for (OnThreadsOp program : findTilePrograms(getOperation())) {
      if (failed(Distributor(rewriter, program).run()))
        return signalPassFailure();
      rewriter.eraseOp(program.getBody()->getTerminator());
      rewriter.inlineBlockBefore(program.getBody(), program);
      rewriter.eraseOp(program);
    }
  }
};
} // namespace
