//===- WarpRoles.cpp - the producer and the consumers of a block -----------===//
//
// One warpgroup brings tiles, the others compute.
//
//===----------------------------------------------------------------------===//

#include "WarpRoles.h"
#include "mlir/Dialect/Arith/Utils/Utils.h"
#include "mlir/Dialect/LLVMIR/NVVMDialect.h"
#include "mlir/Dialect/MemRef/IR/MemRef.h"

using namespace mlir;
using namespace mlir::flashattn;

static bool isTransposed(vector::ContractionOp op) {
  AffineExpr i, j, k;
  bindDims(op.getContext(), i, j, k);
  return op.getIndexingMapsArray()[1] == AffineMap::get(3, 0, {j, k}, op.getContext());
}

bool mlir::flashattn::dependsOn(Value v, Value from) {
  Operation *def = v.getDefiningOp();
  return v == from || (def && llvm::any_of(def->getOperands(), [&](Value operand) {
                         return dependsOn(operand, from);
                       }));
}

Value mlir::flashattn::getTileNumber(vector::TransferReadOp read) {
  auto product = read.getIndices()[getRowDim(read)].getDefiningOp<arith::MulIOp>();
  if (!product || getConstantIntValue(product.getRhs()) != read.getVectorType().getDimSize(0))
    return {};
  return product.getLhs();
}

memref::LoadOp mlir::flashattn::getListEntry(vector::TransferReadOp read) {
  auto cast = getTileNumber(read).getDefiningOp<arith::IndexCastOp>();
  return cast ? cast.getIn().getDefiningOp<memref::LoadOp>() : memref::LoadOp();
}

//===----------------------------------------------------------------------===//
// Tiles
//===----------------------------------------------------------------------===//

/// Where the tile of `read` stands in its run, which counts places of a list or tiles.
Value WarpRoles::getPosition(vector::TransferReadOp read) {
  memref::LoadOp entry = getListEntry(read);
  return entry ? entry.getIndices().back() : getTileNumber(read);
}

/// The number of the key tile at a position of a run.
Value WarpRoles::tileAt(Value position, IRMapping &mapping) {
  if (!listEntry)
    return position;
  SmallVector<Value> indices;
  for (Value outer : listEntry.getIndices().drop_back())
    indices.push_back(cloneValue(outer, mapping));
  indices.push_back(position);
  return toIndex(memref::LoadOp::create(b, loc, listEntry.getMemRef(), indices));
}

/// The part of its memref that `op` moves from, where the program has cut the others off at kv_len;
/// null where it has not. What is cut outside of the program is a memref like any other.
memref::SubViewOp WarpRoles::getExistingKeys(VectorTransferOpInterface op) {
  auto part = op.getBase().getDefiningOp<memref::SubViewOp>();
  return part && program->isProperAncestor(part) ? part : memref::SubViewOp();
}

/// The memref of `op` with all of its keys.
Value WarpRoles::getWholeMemref(VectorTransferOpInterface op) {
  memref::SubViewOp part = getExistingKeys(op);
  return part ? part.getSource() : op.getBase();
}

/// Tile `number` of `tiles`.
Value WarpRoles::slot(Value tiles, Value number) {
  auto type = cast<MemRefType>(tiles.getType());
  ArrayRef<int64_t> shape = type.getShape();
  SmallVector<OpFoldResult> offsets(4, b.getIndexAttr(0)), strides(4, b.getIndexAttr(1)), sizes;
  offsets[0] = number;
  sizes.push_back(b.getIndexAttr(1));
  for (int64_t size : shape.drop_front())
    sizes.push_back(b.getIndexAttr(size));
  auto reduced = memref::SubViewOp::inferRankReducedResultType(shape.drop_front(), type, offsets,
                                                               sizes, strides);
  return memref::SubViewOp::create(b, loc, cast<MemRefType>(reduced), tiles, offsets, sizes,
                                   strides);
}

/// The program's numbers for one of the block's consumers.
IRMapping WarpRoles::programIds(Value consumer) {
  IRMapping mapping;
  SmallVector<Value> ids = {batch, head, tile};
  if (headsPerBlock > 1) {
    ids[1] = add(head, consumer);
  } else if (consumers > 1) {
    // A consumer too many has the program past the last, which reads zeros and writes nothing.
    ids[2] = add(tile, consumer);
    ids[2] = b.createOrFold<arith::SelectOp>(loc, less(ids[2], programEnd), ids[2], queryTiles);
  }
  mapping.map(program.getInductionVars(), ids);
  return mapping;
}

SmallVector<IRMapping> WarpRoles::programsOfGroup() {
  SmallVector<IRMapping> programs;
  for (int64_t w = 0; w < consumers; ++w)
    programs.push_back(programIds(index(w)));
  return programs;
}

/// Whether there is a program of those numbers: a group may have fewer than consumers.
Value WarpRoles::isProgram(IRMapping &mapping) {
  return less(mapping.lookup(program.getInductionVars()[2]), queryTiles);
}

/// `v` of the tile program with the numbers in `mapping`: copies of what computes it.
Value WarpRoles::cloneValue(Value v, IRMapping &mapping) {
  if (Value known = mapping.lookupOrNull(v))
    return known;
  Operation *def = v.getDefiningOp();
  if (!def || !program->isAncestor(def))
    return v;
  for (Value operand : def->getOperands())
    cloneValue(operand, mapping);
  b.clone(*def, mapping);
  return mapping.lookup(v);
}

/// Copies the tile of `read` that begins at `row` to shared memory.
void WarpRoles::load(vector::TransferReadOp read, Value map, Value tile, Value barrier, Value row,
                     IRMapping &mapping) {
  SmallVector<Value> coordinates;
  for (auto [i, v] : llvm::enumerate(read.getIndices()))
    coordinates.push_back(i == getRowDim(read) && row ? row : cloneValue(v, mapping));
  int64_t bytes = hopper::SharedTile::get(tile.getType())->getBytes();
  hopper::BarrierExpectOp::create(b, loc, barriers, barrier, b.getI64IntegerAttr(bytes));
  hopper::TmaLoadOp::create(b, loc, map, coordinates, tile, barriers, barrier);
}

/// Number of a consumer's queries in a slot, of their tile and of their barriers.
Value WarpRoles::queryNumber(Value slot, Value consumer) {
  return add(mul(slot, index(consumers)), consumer);
}

void WarpRoles::loadQueries(MutableArrayRef<IRMapping> programs, Value querySlot) {
  for (auto [w, mapping] : llvm::enumerate(programs)) {
    Value number = queryNumber(querySlot, index(w));
    load(queryRead, queryMap, slot(queries, number), add(number, index(queriesFull)),
         /*row=*/{}, mapping);
  }
}

//===----------------------------------------------------------------------===//
// Groups of programs, where a block runs one after the other
//===----------------------------------------------------------------------===//

/// The group that this block runs in a round. Each round takes the grid's next groups, a block
/// the one of its own number, which moves on from round to round by as many as there are smaller
/// groups to a head: no block gets large ones alone.
Value WarpRoles::groupOf(Value round) {
  return toIndex(add(mul(round, i32(launch.getGridSize().x)), placeIn(round)));
}

/// The block's number in a round.
Value WarpRoles::placeIn(Value round) {
  Value place = i32(launch.getBlockIds().x);
  if (headsPerBlock == 1)
    place = add(place, mul(round, countSmallerGroups()));
  return arith::RemUIOp::create(b, loc, place, i32(launch.getGridSize().x));
}

Value WarpRoles::countRounds() {
  Value blocks = i32(launch.getGridSize().x), all = i32(groups), full = div(all, blocks);
  Value isInLast = arith::CmpIOp::create(b, loc, arith::CmpIPredicate::ult, placeIn(full),
                                         sub(all, mul(full, blocks)));
  return add(full, arith::ExtUIOp::create(b, loc, b.getI32Type(), isInLast));
}

/// The rounds of a persistent block; `body` gives the steps up to the end of one.
void WarpRoles::forEachRound(Value rounds, function_ref<Value(Value round, Value step)> body) {
  // In 32 bits: consumers have no register to spare.
  auto loop = scf::ForOp::create(b, loc, i32(int64_t(0)), rounds, i32(1), i32(int64_t(0)));
  b.setInsertionPointToStart(loop.getBody());
  Value step = body(loop.getInductionVar(), toIndex(loop.getRegionIterArg(0)));
  scf::YieldOp::create(b, loc, i32(step));
  b.setInsertionPointAfter(loop);
}

/// Tells of the group that was decoded, and sends for its queries: before all else, or last where
/// their barriers let the consumers read what is told.
void WarpRoles::prepareGroup() {
  SmallVector<IRMapping> programs = programsOfGroup();
  if (isPersistent()) {
    Value end = programEnd ? programEnd : index(0);
    for (auto [i, value] : llvm::enumerate(ArrayRef<Value>{batch, head, tile, end}))
      memref::StoreOp::create(b, loc, i32(value), numbers, ValueRange{hullSlot, index(i)});
  } else {
    loadQueries(programs, hullSlot);
  }
  publishHulls(*program.getBody(), programs, index(0));
  if (isPersistent())
    loadQueries(programs, hullSlot);
}

/// What prepareGroup has told, for one thread or `byWarp`.
void WarpRoles::readGroup(Value slot, bool byWarp) {
  int64_t i = 0;
  for (Value *value : {&batch, &head, &tile, &programEnd}) {
    *value = toIndex(memref::LoadOp::create(b, loc, numbers, ValueRange{slot, index(i++)}));
    if (byWarp)
      *value = fromLane0(*value);
  }
}

//===----------------------------------------------------------------------===//
// Rings
//===----------------------------------------------------------------------===//

/// Scores and output read each from a ring of its own, and may read the same memref.
Ring &WarpRoles::ringOf(vector::TransferReadOp read) {
  auto user = cast<vector::ContractionOp>(*read->user_begin());
  return rings[isTransposed(user) ? 0 : 1];
}

/// Steps (i32) of a block are counted from its first key tile; the rings turn with them.
Value WarpRoles::stageOf(Value step, int64_t stages) {
  return toIndex(arith::RemUIOp::create(b, loc, step, i32(stages)));
}

/// 0 in the ring's first turn, 1 in the next and so on; or the other way round.
Value WarpRoles::parityOf(Value step, int64_t stages, bool inverted) {
  Value turn = arith::DivUIOp::create(b, loc, step, i32(stages));
  if (inverted)
    turn = add(turn, i32(1));
  return arith::AndIOp::create(b, loc, turn, i32(1));
}

void WarpRoles::wait(int64_t first, Value step, bool inverted) {
  hopper::BarrierWaitOp::create(b, loc, barriers, add(stageOf(i32(step), stages), index(first)),
                                parityOf(i32(step), stages, inverted));
}

void WarpRoles::release(Ring &ring, Value step) {
  hopper::BarrierArriveOp::create(b, loc, barriers,
                                  add(stageOf(i32(step), stages), index(ring.empty)), signals);
}

//===----------------------------------------------------------------------===//
// Intervals
//===----------------------------------------------------------------------===//

WarpRoles::Bounds WarpRoles::boundsOf(scf::IfOp run, IRMapping &mapping) {
  auto any = run.getCondition().getDefiningOp<arith::CmpIOp>();
  return {cloneValue(any.getLhs(), mapping), cloneValue(any.getRhs(), mapping)};
}

/// Whether `run` has the same bounds for every program of a block.
bool WarpRoles::shareInterval(scf::IfOp run) {
  if (listEntry)
    return true;
  auto any = run.getCondition().getDefiningOp<arith::CmpIOp>();
  Value number = program.getInductionVars()[roles.getAlong() == ProgramAxis::Head ? 1 : 2];
  return consumers == 1 || !(dependsOn(any.getLhs(), number) || dependsOn(any.getRhs(), number));
}

/// The tiles that any of the block's programs reads.
WarpRoles::Bounds WarpRoles::hullOf(scf::IfOp run, MutableArrayRef<IRMapping> programs) {
  Bounds hull;
  bool sameBegin =
      getConstantIntValue(run.getCondition().getDefiningOp<arith::CmpIOp>().getLhs()).has_value();
  for (IRMapping &mapping : programs) {
    Bounds own = boundsOf(run, mapping);
    // An empty interval may lie anywhere, as that of no program does.
    Value any = less(own.begin, own.end);
    if (&mapping != &programs.front())
      any = arith::AndIOp::create(b, loc, any, isProgram(mapping));
    Value begin = b.createOrFold<arith::SelectOp>(loc, any, own.begin,
                                                  index(std::numeric_limits<int32_t>::max()));
    Value end = b.createOrFold<arith::SelectOp>(loc, any, own.end, index(0));
    hull = hull.begin ? Bounds{min(hull.begin, begin), max(hull.end, end)} : Bounds{begin, end};
  }
  if (sameBegin)
    hull.begin = boundsOf(run, programs.front()).begin;
  // Empty where every interval is.
  hull.begin = min(hull.begin, hull.end);
  return hull;
}

/// Writes the hulls of the runs in `block` to shared memory: computed once, they cost the
/// block one thread's time and no other's registers.
void WarpRoles::publishHulls(Block &block, MutableArrayRef<IRMapping> programs, Value interval) {
  for (Operation &op : block) {
    if (isKeyRun(op)) {
      if (shareInterval(cast<scf::IfOp>(op)))
        continue;
      Bounds hull = hullOf(cast<scf::IfOp>(op), programs);
      Value number = add(interval, index(firstInterval.at(&op)));
      memref::StoreOp::create(b, loc, i32(hull.begin), hulls,
                              ValueRange{hullSlot, number, index(0)});
      memref::StoreOp::create(b, loc, i32(hull.end), hulls, ValueRange{hullSlot, number, index(1)});
      continue;
    }
    auto outer = dyn_cast<scf::ForOp>(op);
    if (!outer)
      continue;
    auto loop = scf::ForOp::create(b, loc, index(0), index(countIntervals(outer)), index(1));
    OpBuilder::InsertionGuard guard(b);
    b.setInsertionPointToStart(loop.getBody());
    SmallVector<IRMapping> inner(programs.begin(), programs.end());
    for (IRMapping &mapping : inner)
      mapping.map(outer.getInductionVar(), loop.getInductionVar());
    publishHulls(*outer.getBody(), inner, loop.getInductionVar());
  }
}

/// The hull of `run`, for one thread or `byWarp`.
WarpRoles::Bounds WarpRoles::readHull(scf::IfOp run, IRMapping &mapping, bool byWarp) {
  if (shareInterval(run))
    return boundsOf(run, mapping);
  Value number = index(firstInterval.at(run));
  if (auto outer = dyn_cast<scf::ForOp>(run->getParentOp()))
    number = add(number, mapping.lookupOrDefault(outer.getInductionVar()));
  auto read = [&](int64_t which) {
    Value bound =
        toIndex(memref::LoadOp::create(b, loc, hulls, ValueRange{hullSlot, number, index(which)}));
    return byWarp ? fromLane0(bound) : bound;
  };
  Value begin = run.getCondition().getDefiningOp<arith::CmpIOp>().getLhs();
  return {getConstantIntValue(begin) ? cloneValue(begin, mapping) : read(0), read(1)};
}

//===----------------------------------------------------------------------===//
// Producer
//===----------------------------------------------------------------------===//

/// One thread's work. `step` counts the key tiles so far.
Value WarpRoles::produceBlock(Block &block, IRMapping &mapping, Value step) {
  for (Operation &op : block) {
    if (isKeyRun(op)) {
      Bounds hull = readHull(cast<scf::IfOp>(op), mapping, /*byWarp=*/false);
      // Before the loop, or the copies of one loop would stand in for another's.
      for (Ring &ring : rings)
        for (auto [i, v] : llvm::enumerate(ring.read.getIndices()))
          if (i != getRowDim(ring.read))
            cloneValue(v, mapping);
      if (listEntry)
        for (Value v : listEntry.getIndices().drop_back())
          cloneValue(v, mapping);
      auto loop = scf::ForOp::create(b, loc, hull.begin, hull.end, index(1));
      OpBuilder::InsertionGuard guard(b);
      b.setInsertionPointToStart(loop.getBody());
      Value now = add(sub(loop.getInductionVar(), hull.begin), step);
      // Loaded before what it is loaded for may have to wait.
      Value number = tileAt(loop.getInductionVar(), mapping);
      for (Ring &ring : rings) {
        wait(ring.empty, now, /*inverted=*/true);
        Value row = mul(number, index(schedule.getTileN()));
        Value stage = stageOf(i32(now), stages);
        load(ring.read, ring.map, slot(ring.tiles, stage), add(stage, index(ring.full)), row,
             mapping);
      }
      b.setInsertionPointAfter(loop);
      step = add(step, sub(hull.end, hull.begin));
      continue;
    }
    // The loop over several intervals.
    auto outer = dyn_cast<scf::ForOp>(op);
    if (!outer)
      continue;
    auto loop = scf::ForOp::create(b, loc, index(0), index(countIntervals(outer)), index(1), step);
    OpBuilder::InsertionGuard guard(b);
    b.setInsertionPointToStart(loop.getBody());
    IRMapping inner = mapping;
    inner.map(outer.getInductionVar(), loop.getInductionVar());
    scf::YieldOp::create(b, loc, produceBlock(*outer.getBody(), inner, loop.getRegionIterArg(0)));
    step = loop.getResult(0);
  }
  return step;
}

/// The tiles of one group, sent for by one thread; the steps up to its end.
Value WarpRoles::produceGroup(Value step) {
  IRMapping first = programIds(index(0));
  return produceBlock(*program.getBody(), first, step);
}

void WarpRoles::produce() {
  auto fewer = NVVM::SetMaxRegisterOp::create(b, loc, roles.getProducerRegisters(),
                                              NVVM::SetMaxRegisterAction::decrease);
  fewer->setAttr(hopper::kBlocksAttrName, b.getI32IntegerAttr(roles.getBlocks()));
  // Who has prepared the block need not wait for those who wait for it.
  NVVM::BarrierArriveOp::create(b, loc, i32(kBlockBarrier), i32(getThreads()));
  auto one = scf::IfOp::create(b, loc, signals, /*withElseRegion=*/false);
  OpBuilder::InsertionGuard guard(b);
  b.setInsertionPointToStart(one.thenBlock());
  if (!isPersistent()) {
    produceGroup(index(0));
    return;
  }
  Value rounds = countRounds();
  forEachRound(rounds, [&](Value round, Value step) {
    hullSlot = stageOf(round, queryStages);
    readGroup(hullSlot, /*byWarp=*/false);
    step = produceGroup(step);
    Value next = add(round, i32(1));
    auto another = scf::IfOp::create(b, loc, less(next, rounds), /*withElseRegion=*/false);
    OpBuilder::InsertionGuard guard(b);
    b.setInsertionPointToStart(another.thenBlock());
    decodeGroup(groupOf(next));
    hullSlot = stageOf(next, queryStages);
    // What is said of the group takes the place of what all consumers have read.
    Value free = parityOf(next, queryStages, /*inverted=*/true);
    for (int64_t w = 0; w < consumers; ++w)
      hopper::BarrierWaitOp::create(
          b, loc, barriers, add(queryNumber(hullSlot, index(w)), index(queriesEmpty)), free);
    prepareGroup();
    return step;
  });
}

//===----------------------------------------------------------------------===//
// Consumers
//===----------------------------------------------------------------------===//

/// Waits for and frees the tiles [begin, end), which other programs of the block read.
void WarpRoles::passBy(Value begin, Value end, const Bounds &hull, Value step) {
  auto loop = scf::ForOp::create(b, loc, begin, end, index(1));
  OpBuilder::InsertionGuard guard(b);
  b.setInsertionPointToStart(loop.getBody());
  Value now = add(sub(loop.getInductionVar(), hull.begin), step);
  for (Ring &ring : rings)
    wait(ring.full, now);
  // Lest one warp frees what a sister still waits for.
  NVVM::BarrierOp::create(b, loc, TypeRange(), i32(warpgroup), i32(kWarpgroupThreads), {}, {});
  for (Ring &ring : rings)
    release(ring, now);
}

/// Makes zeros of the rows of `tile` past the part of the memref that `read` reads. Every consumer
/// does, as none may go on before.
void WarpRoles::clearMissingRows(vector::TransferReadOp read, Value tile) {
  memref::SubViewOp part = getExistingKeys(read);
  Value end = getValueOrCreateConstantIndexOp(b, loc, part.getMixedSizes()[getRowDim(read)]);
  ArrayRef<int64_t> shape = cast<MemRefType>(tile.getType()).getShape();
  int64_t panels = shape[0], rows = shape[1], columns = shape[2];
  Value left = sub(end, read.getIndices()[getRowDim(read)]);
  auto partial = scf::IfOp::create(b, loc, less(left, index(rows)), /*withElseRegion=*/false);
  OpBuilder::InsertionGuard guard(b);
  b.setInsertionPointToStart(partial.thenBlock());
  Type element = cast<MemRefType>(tile.getType()).getElementType();
  Value zero = arith::ConstantOp::create(b, loc, b.getZeroAttr(element));
  // Whole rows: the swizzle, which moves what is in one about, does not matter.
  Value inGroup = arith::AndIOp::create(b, loc, thread, index(kWarpgroupThreads - 1));
  Value first = add(mul(max(left, index(0)), index(columns)), inGroup);
  auto loop = scf::ForOp::create(b, loc, first, index(rows * columns), index(kWarpgroupThreads));
  b.setInsertionPointToStart(loop.getBody());
  Value row = div(loop.getInductionVar(), index(columns));
  Value column = sub(loop.getInductionVar(), mul(row, index(columns)));
  for (int64_t panel = 0; panel < panels; ++panel)
    memref::StoreOp::create(b, loc, zero, tile, ValueRange{index(panel), row, column});
  b.setInsertionPointAfter(loop);
  meetBeforeAsyncReads();
}

/// Lets the loops of `run` read from the rings.
void WarpRoles::consumeRun(scf::IfOp run, const Bounds &hull, Value step) {
  SmallVector<vector::TransferReadOp> reads;
  run.walk([&](vector::TransferReadOp read) {
    if (isKeyTile(read))
      reads.push_back(read);
  });
  for (vector::TransferReadOp read : reads) {
    Ring &ring = ringOf(read);
    auto user = cast<vector::ContractionOp>(*read->user_begin());
    b.setInsertionPoint(read);
    Value now = add(sub(getPosition(read), hull.begin), step);
    wait(ring.full, now);
    Value tile = slot(ring.tiles, stageOf(i32(now), stages));
    // Scores of keys that are not there are masked; their weight 0 times a value is 0 for
    // finite ones alone (A7).
    if (getExistingKeys(read) && &ring == &rings[1])
      clearMissingRows(read, tile);
    Value held = hopper::LoadTileOp::create(b, loc, read.getVectorType(), tile);
    b.replaceOp(read, held);
    b.setInsertionPointAfter(user);
    release(ring, now);
  }
}

Value WarpRoles::consumeBlock(Block &block, IRMapping &mapping, Value step) {
  for (Operation &op : llvm::make_early_inc_range(block)) {
    if (isKeyRun(op)) {
      auto run = cast<scf::IfOp>(op);
      b.setInsertionPoint(run);
      Bounds hull = readHull(run, mapping, /*byWarp=*/true);
      auto bounds = run.getCondition().getDefiningOp<arith::CmpIOp>();
      Bounds own{bounds.getLhs(), bounds.getRhs()};
      Value any = bounds;
      bool partOfHull = !shareInterval(run), maybeNone = consumers > 1 && headsPerBlock == 1;
      if (!partOfHull)
        hull = own;
      if (maybeNone) {
        any = arith::AndIOp::create(b, loc, any, isProgram(mapping));
        run.getConditionMutable().assign(any);
      }
      if (partOfHull || maybeNone) {
        Value begin = arith::SelectOp::create(b, loc, any, own.begin, hull.end);
        passBy(hull.begin, begin, hull, step);
      }
      if (partOfHull) {
        b.setInsertionPointAfter(run);
        Value end = arith::SelectOp::create(b, loc, any, own.end, hull.end);
        passBy(end, hull.end, hull, step);
      }
      consumeRun(run, hull, step);
      b.setInsertionPointAfter(run);
      step = add(step, sub(hull.end, hull.begin));
      continue;
    }
    auto outer = dyn_cast<scf::ForOp>(op);
    if (!outer || outer.getBody()->getOps<scf::IfOp>().empty())
      continue;
    // The loop over several intervals counts the steps of all of them.
    auto loop = cast<scf::ForOp>(*outer.replaceWithAdditionalYields(
        b, step, /*replaceInitOperandUsesInLoop=*/false,
        [&](OpBuilder &, Location, ArrayRef<BlockArgument> args) {
          return SmallVector<Value>{args.front()};
        }));
    IRMapping inner = mapping;
    inner.map(loop.getInductionVar(), loop.getInductionVar());
    Value next = consumeBlock(*loop.getBody(), inner, loop.getRegionIterArgs().back());
    auto yield = cast<scf::YieldOp>(loop.getBody()->getTerminator());
    yield->setOperand(yield.getNumOperands() - 1, next);
    step = loop.getResults().back();
  }
  return step;
}

/// What every thread of the warpgroup wrote is there for copies and products, which another proxy
/// of memory makes.
void WarpRoles::meetBeforeAsyncReads() {
  MLIRContext *ctx = b.getContext();
  NVVM::FenceProxyOp::create(b, loc, NVVM::ProxyKindAttr::get(ctx, NVVM::ProxyKind::async_shared),
                             NVVM::SharedSpaceAttr::get(ctx, NVVM::SharedSpace::shared_cta));
  NVVM::BarrierOp::create(b, loc, TypeRange(), i32(warpgroup), i32(kWarpgroupThreads), {}, {});
}

/// Writes the output through shared memory: whole rows at a time, and nothing past the end.
void WarpRoles::storeOutput(Value number) {
  b.setInsertionPoint(outputWrite);
  Value tile = slot(outputs, number);
  hopper::StoreTileOp::create(b, loc, getStored(outputWrite), tile);
  meetBeforeAsyncReads();
  auto one = scf::IfOp::create(b, loc, signals, /*withElseRegion=*/false);
  OpBuilder::InsertionGuard guard(b);
  b.setInsertionPointToStart(one.thenBlock());
  hopper::TmaStoreOp::create(b, loc, tile, outputMap, outputWrite.getIndices());
  // The tile's place must last for the copy's reads of it.
  NVVM::CpAsyncBulkWaitGroupOp::create(b, loc, b.getI32IntegerAttr(0), /*read=*/b.getUnitAttr());
  Operation *split = outputWrite.getValueToStore().getDefiningOp<vector::ShapeCastOp>();
  b.eraseOp(outputWrite);
  if (split && split->use_empty())
    b.eraseOp(split);
}

/// Moves the body of the tile program here as that of one consumer, whose queries are those of
/// number `query`, full at `parity`; the steps up to its end.
Value WarpRoles::consumeGroup(Value consumer, Value query, Value parity, Value step) {
  IRMapping own = programIds(consumer);
  Block *body = program.getBody();
  // Copies are made of the program's own arithmetic, so the body moves last.
  Block *target = b.getInsertionBlock();
  Block::iterator place = b.getInsertionPoint();
  IRMapping mapping = own;
  step = consumeBlock(*body, mapping, step);
  b.setInsertionPoint(queryTile);
  if (!isPersistent())
    hopper::BarrierWaitOp::create(b, loc, barriers, add(query, index(queriesFull)), parity);
  Value held = hopper::LoadTileOp::create(b, loc, getTile(queryRead), slot(queries, query));
  b.replaceOp(queryTile, held);
  if (queryTile != queryRead)
    b.eraseOp(queryRead);
  if (outputWrite)
    storeOutput(outputs == queries ? query : consumer);
  b.eraseOp(body->getTerminator());
  b.inlineBlockBefore(
      body, target, place,
      llvm::map_to_vector(program.getInductionVars(), [&](Value id) { return own.lookup(id); }));
  b.setInsertionPoint(target, place);
  return step;
}

void WarpRoles::consume() {
  NVVM::SetMaxRegisterOp::create(b, loc, roles.getRegisters(),
                                 NVVM::SetMaxRegisterAction::increase);
  NVVM::BarrierOp::create(b, loc, TypeRange(), i32(kBlockBarrier), i32(getThreads()), {}, {});
  Value consumer = toIndex(arith::SubIOp::create(b, loc, i32(warpgroup), i32(1)));
  if (!isPersistent()) {
    consumeGroup(consumer, consumer, i32(0), index(0));
    return;
  }
  forEachRound(countRounds(), [&](Value round, Value step) {
    hullSlot = stageOf(round, queryStages);
    Value query = queryNumber(hullSlot, consumer);
    // What is said of the group comes with the queries.
    Value parity = parityOf(round, queryStages);
    hopper::BarrierWaitOp::create(b, loc, barriers, add(query, index(queriesFull)), parity);
    readGroup(hullSlot, /*byWarp=*/true);
    step = consumeGroup(consumer, query, parity, step);
    // Past the barrier before the output's copy no warp has anything to read there.
    if (!outputWrite)
      NVVM::BarrierOp::create(b, loc, TypeRange(), i32(warpgroup), i32(kWarpgroupThreads), {}, {});
    hopper::BarrierArriveOp::create(b, loc, barriers, add(query, index(queriesEmpty)), signals);
    return step;
  });
}
