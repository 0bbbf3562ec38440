//===- Consumer.cpp - the consumer warpgroups -----------------------------===//

#include "Block.h"
#include "mlir/Dialect/Vector/IR/VectorOps.h"

using namespace mlir;
using namespace mlir::flashattn;

/// Synchronizes all threads that run the program: one warpgroup, or all consumers that share it.
void ConsumerBuilder::syncProgram() {
  if (plan.sharesProgram()) {
    hopper::GroupBarrierOp::create(b, loc, i32(1), hopper::kWarpgroupThreads * plan.getConsumers());
    return;
  }
  hopper::GroupBarrierOp::create(b, loc, toI32(block.warpgroup), hopper::kWarpgroupThreads);
}

/// Synchronizes the warpgroup if it runs a copy of the program. Otherwise the same as
/// `syncProgram`.
void ConsumerBuilder::syncWarpgroup() {
  if (!plan.splitsSums())
    return syncProgram();
  Value number = add(toI32(block.warpgroup), i32(1));
  hopper::GroupBarrierOp::create(b, loc, number, hopper::kWarpgroupThreads);
}

//===----------------------------------------------------------------------===//
// Streams
//===----------------------------------------------------------------------===//

/// Waits for and releases the tiles [begin, end), which only other programs of the block read.
/// `first` is the tile of step `step`.
void ConsumerBuilder::skipTiles(Value begin, Value end, Value first, Value step) {
  auto loop = scf::ForOp::create(b, loc, begin, end, index(1));
  OpBuilder::InsertionGuard guard(b);
  b.setInsertionPointToStart(loop.getBody());
  Value now = add(sub(loop.getInductionVar(), first), step);
  for (Value ring : block.rings)
    hopper::RingGetOp::create(b, loc, ring, now);
  // Otherwise a warp could release a tile that a peer still waits for.
  syncProgram();
  for (Value ring : block.rings)
    hopper::RingReleaseOp::create(b, loc, ring, now, block.releases);
}

/// Sets the `missing` rows of `tile` to zero; at least one bound is set. All threads of the program
/// wait, because none may proceed before. Consumers that split sums clear one tile each.
void ConsumerBuilder::clearMissingRows(LoadTileOp load, const LeftOut &missing, Value tile) {
  auto type = cast<MemRefType>(tile.getType());
  int64_t panels = countCopiedPanels(load), rows = type.getDimSize(1), columns = type.getDimSize(2);
  Value row = mul(load.getIndices()[*load.getRowDim()], load.getInnerRows());
  Value before, left, any;
  if (missing.begin) {
    before = sub(missing.begin, row);
    any = less(index(0), before);
  }
  if (missing.end) {
    left = sub(missing.end, row);
    Value some = less(left, index(rows));
    any = any ? arith::OrIOp::create(b, loc, any, some).getResult() : some;
  }
  auto partial = scf::IfOp::create(b, loc, any, /*withElseRegion=*/false);
  OpBuilder::InsertionGuard guard(b);
  b.setInsertionPointToStart(partial.thenBlock());
  // Threads do not share a word of elements of 8 bits.
  int64_t width = type.getElementTypeBitWidth() == 8 ? 4 : 1;
  Value zero = arith::ConstantOp::create(b, loc, b.getZeroAttr(type.getElementType()));
  bool isShared = plan.sharesProgram() && !plan.splitsSums();
  int64_t threads = hopper::kWarpgroupThreads * (isShared ? plan.getConsumers() : 1);
  // Clears whole rows, so the swizzle, which permutes the elements of a row, does not matter.
  auto clear = [&](Value begin, Value end) {
    Value first = add(begin, mul(threadInGroup, width));
    auto loop = scf::ForOp::create(b, loc, first, end, index(threads * width));
    OpBuilder::InsertionGuard inLoop(b);
    b.setInsertionPointToStart(loop.getBody());
    Value at = div(loop.getInductionVar(), index(columns));
    Value column = sub(loop.getInductionVar(), mul(at, index(columns)));
    for (int64_t panel = 0; panel < panels; ++panel)
      for (int64_t i = 0; i < width; ++i)
        memref::StoreOp::create(b, loc, zero, tile,
                                ValueRange{index(panel), at, i ? add(column, index(i)) : column});
  };
  if (before)
    clear(index(0), mul(min(before, index(rows)), index(columns)));
  if (left)
    clear(mul(max(left, index(0)), index(columns)), index(rows * columns));
  hopper::FenceAsyncSharedOp::create(b, loc);
  syncProgram();
}

/// Returns the step of the tile that `loop` is at. `first` is the tile or list position of `step`.
Value ConsumerBuilder::stepAt(TileLoopOp loop, Value first, Value step) {
  if (!plan.sharesProgram())
    return add(sub(loop.getPlace(), first), step);
  // One offset for the loop to keep in a register, whichever step is meant.
  Value offset;
  {
    OpBuilder::InsertionGuard guard(b);
    b.setInsertionPoint(loop);
    offset = sub(step, first);
  }
  return add(loop.getPlace(), offset);
}

Value ConsumerBuilder::now(TileLoopOp loop, Value first, Value step) {
  return toI32(stepAt(loop, first, step));
}

/// Makes `product`, lhs[m,k] times rhs[k,n], one of lhs[m,k] times rhs[n,k].
static void transposeRhs(OpBuilder &b, vector::ContractionOp product) {
  SmallVector<AffineMap> maps = product.getIndexingMapsArray();
  maps[1] = AffineMap::get(maps[1].getNumDims(), 0, {maps[1].getResult(1), maps[1].getResult(0)},
                           b.getContext());
  product.setIndexingMapsAttr(b.getAffineMapArrayAttr(maps));
}

/// Replaces the load of stream `number` by the tile in the stream's ring, which is released
/// after its last use. `step` is the step of tile or list position `first`.
void ConsumerBuilder::useStream(TileLoopOp loop, unsigned number, LoadTileOp load, Value first,
                                Value step) {
  Value ring = block.rings[number];
  SmallVector<Operation *> users;
  for (Operation *user : load->getUsers())
    if (Operation *inBody = loop.getBody()->findAncestorOpInBlock(*user);
        !llvm::is_contained(users, inBody))
      users.push_back(inBody);
  llvm::sort(users, [](Operation *x, Operation *y) { return x->isBeforeInBlock(y); });
  // A consumer that clears a tile for all that split sums may not need zeros itself.
  LeftOut missing;
  if (isTransposed(load))
    missing = {}; // spare warps write zeros
  else if (!plan.consumer)
    missing = getLeftOutInBlock(load);
  else if (plan.split.clearedBy[number] == *plan.consumer)
    missing = getRowBounds(load, /*inBlock=*/true);
  bool clears = missing.begin || missing.end;
  // The tile is waited for at its load. If sums are split, the load may be placed for the other
  // consumer, so the wait is at the first use. A lagging stage works on another step and waits
  // again. A softmax that recomputes scores uses a tile that its scores have waited for.
  StageOp stage;
  Value now, held;
  for (Operation *user : users) {
    StageOp own = getStage(user);
    bool atLoad = own == getStage(load) || (!plan.splitsSums() && own.getLag() == 0);
    bool isSame = own == stage || (held && atLoad) || isa<SoftmaxStepOp>(user);
    if (!held || !isSame) {
      stage = own;
      b.setInsertionPoint(atLoad ? load : user);
      now = stepAt(loop, first, step);
      Value tile = hopper::RingGetOp::create(b, loc, ring, now);
      if (clears && !held)
        clearMissingRows(load, missing, tile);
      held = hopper::LoadTileOp::create(b, loc, getReadType(load), tile);
    }
    if (isTransposed(load))
      transposeRhs(b, cast<vector::ContractionOp>(user));
    b.replaceUsesWithIf(load, held,
                        [&](OpOperand &use) { return user->isAncestor(use.getOwner()); });
  }
  b.setInsertionPointAfter(users.back());
  hopper::RingReleaseOp::create(b, loc, ring, now, block.releases);
  b.eraseOp(load);
}

/// Reads the rows that are loaded with the tiles of streams from their buffers.
void ConsumerBuilder::useRows(TileLoopOp loop, Value first, Value step) {
  for (auto [row, places] : llvm::zip_equal(plan.rows, block.rows)) {
    LoadTileOp load = row.load, stream = plan.streams[row.stream];
    if (!load)
      continue;
    b.setInsertionPoint(load);
    Value now = stepAt(loop, first, step);
    bool isFirst = plan.splitsSums() || load->isBeforeInBlock(stream);
    // Full tiles do not read what only their mask would read.
    Operation *user = load->hasOneUse() ? *load->user_begin() : nullptr;
    if (user && isa<TileMaskOp>(user->getParentOp()))
      b.setInsertionPoint(user);
    // A copy of the program may read the stream's tile only in a later stage.
    if (isFirst)
      hopper::RingGetOp::create(b, loc, block.rings[row.stream], now);
    Value place = slotOf(toI32(now), plan.memory.rings[row.stream].stages);
    auto read = LoadTileOp::create(b, loc, load.getTileType(), places, ValueRange{place, index(0)},
                                   ArrayRef<int64_t>{-1, 1}, load.getInBounds());
    b.replaceOp(load, read);
  }
}

/// Computes register operands in the stage that defines them, even if a product of another stage
/// uses them. With several accumulators no registers are left for the operands of an operand.
void ConsumerBuilder::pinOperands(TileLoopOp loop) {
  SetVector<Value> operands;
  for (auto product : loop.getBody()->getOps<vector::ContractionOp>()) {
    Operation *def = product.getLhs().getDefiningOp();
    // An operand that peers read is stored where it is computed.
    if (def && def->getBlock() == loop.getBody() && !isa<hopper::LoadTileOp>(def) &&
        getStage(def) != getStage(product) && llvm::none_of(def->getUsers(), [](Operation *user) {
          auto other = dyn_cast<vector::ContractionOp>(user);
          return other && isLhsTransposed(other);
        }))
      operands.insert(product.getLhs());
  }
  for (Value operand : operands) {
    b.setInsertionPointAfter(operand.getDefiningOp());
    auto pinned = hopper::PinOp::create(b, loc, operand.getType(), operand, /*weak=*/false);
    b.replaceAllUsesExcept(operand, pinned, pinned);
  }
}

//===----------------------------------------------------------------------===//
// The loop
//===----------------------------------------------------------------------===//

/// Makes `loop`, over one interval, take its tiles from the rings. Returns the step after it.
Value ConsumerBuilder::consumeInterval(TileLoopOp loop, Value slot, Value interval, Value tile,
                                       Value step) {
  b.setInsertionPoint(loop);
  SharedRangeBuilder sharedRanges(b, plan, block);
  TileRange own{loop.getBounds().front(), loop.getBounds().back()};
  TileRange sharedRange = plan.sharesIntervals ? sharedRanges.withStep(own, interval)
                                               : sharedRanges.read(slot, interval, /*byWarp=*/true);
  Value any = less(own.begin, own.end);
  if (plan.mayLackPrograms()) {
    Value when = GridBuilder(b, plan, block).isProgram(tile);
    if (loop.getWhen())
      when = arith::AndIOp::create(b, loc, loop.getWhen(), when);
    loop.getWhenMutable().assign(when);
  }
  if (loop.getWhen())
    any = arith::AndIOp::create(b, loc, any, loop.getWhen());
  if (!plan.sharesIntervals || plan.waitsForEmptyRings() || loop.getWhen())
    skipTiles(sharedRange.begin, arith::SelectOp::create(b, loc, any, own.begin, sharedRange.end),
              sharedRange.begin, step);
  if (!plan.sharesIntervals) {
    b.setInsertionPointAfter(loop);
    skipTiles(arith::SelectOp::create(b, loc, any, own.end, sharedRange.end), sharedRange.end,
              sharedRange.begin, step);
  }
  useRows(loop, sharedRange.begin, step);
  for (auto [number, load] : llvm::enumerate(BlockPlan::findStreams(loop)))
    useStream(loop, number, load, sharedRange.begin, step);
  if (plan.splitsSums()) {
    passTile(loop, sharedRange.begin, step);
  } else {
    if (plan.sharesProgram())
      pinOperands(loop);
    if (alternates(loop))
      alternate(loop);
    exchange(loop, sharedRange.begin, step);
  }
  b.setInsertionPointAfter(loop);
  return add(step, sub(sharedRange.end, sharedRange.begin));
}

/// Hides the bounds of `loop` from LLVM behind shuffles. Otherwise LLVM hoists the masks of partial
/// tiles out of all rounds, which takes a register for each pair of a tile.
void ConsumerBuilder::hideBounds(TileLoopOp loop) {
  b.setInsertionPoint(loop);
  for (OpOperand &bound : loop.getBoundsMutable())
    bound.assign(fromLane0(bound.get()));
}

/// Builds the loop of the program with tile index `tile`. Returns the step after it.
Value ConsumerBuilder::consumeLoop(Value slot, Value tile, Value step) {
  TileLoopOp loop = plan.loop;
  if (!plan.hasPasses())
    return consumeInterval(loop, slot, /*interval=*/{}, tile, step);
  // The loop over passes carries the number of steps of all of them.
  b.setInsertionPoint(loop);
  scf::ForOp outer = splitIntervals(b, loop);
  outer = cast<scf::ForOp>(
      *outer.replaceWithAdditionalYields(b, step, /*replaceInitOperandUsesInLoop=*/false,
                                         [&](OpBuilder &, Location, ArrayRef<BlockArgument> args) {
                                           return SmallVector<Value>{args.front()};
                                         }));
  auto inner = *outer.getOps<TileLoopOp>().begin();
  b.setInsertionPointToStart(outer.getBody());
  Value interval;
  if (plan.intervals > 1)
    interval = plan.countsRounds
                   ? arith::RemUIOp::create(b, loc, outer.getInductionVar(), index(plan.intervals))
                         .getResult()
                   : Value(outer.getInductionVar());
  if (plan.countsRounds)
    hideBounds(inner);
  Value next = consumeInterval(inner, slot, interval, tile, outer.getRegionIterArgs().back());
  auto yield = cast<scf::YieldOp>(outer.getBody()->getTerminator());
  yield->setOperand(yield.getNumOperands() - 1, next);
  b.setInsertionPointAfter(outer);
  return outer.getResults().back();
}

//===----------------------------------------------------------------------===//
// The program
//===----------------------------------------------------------------------===//

/// Loads the first columns of `tile` into registers if the schedule keeps columns of the queries
/// there, else returns null. A product reads its left-hand side from shared memory in every step.
Value ConsumerBuilder::holdFirstColumns(LoadTileOp resident, Value tile) {
  bool isLeft = llvm::all_of(resident->getUses(), [](OpOperand &use) {
    auto product = dyn_cast<vector::ContractionOp>(use.getOwner());
    return isa<SoftmaxStepOp>(use.getOwner()) ||
           (product && use.getOperandNumber() == 0 && !isLhsTransposed(product));
  });
  VectorType type = resident.getTileType();
  int64_t columns = std::min(plan.hopper.getQRegisterColumns(), type.getDimSize(1));
  if (!isLeft || columns == 0)
    return {};
  auto held = VectorType::get({type.getDimSize(0), columns}, type.getElementType());
  return hopper::ReadTileOp::create(b, loc, held, tile, /*thread=*/Value(), /*from=*/0);
}

/// Replaces the loads of residents by reads of their buffers, waiting for them if they are pending.
void ConsumerBuilder::useResidents(const Held &held) {
  if (plan.residents.empty())
    return;
  b.setInsertionPoint(plan.residents.front());
  if (held.pending)
    hopper::BarrierWaitOp::create(b, loc, block.barriers,
                                  add(held.number, index(plan.memory.residentFull)), i32(0));
  for (auto [load, buffer, clears] :
       llvm::zip_equal(plan.residents, block.residents, plan.cleared)) {
    LoadTileOp resident = load;
    b.setInsertionPoint(resident);
    Value tile = tileAt(buffer, held.number);
    if (clears)
      clearMissingRows(resident, getLeftOutInBlock(resident), tile);
    Value first = holdFirstColumns(resident, tile);
    b.replaceOpWithNewOp<hopper::LoadTileOp>(resident, resident.getTileType(), tile, first);
  }
}

/// Whether the wait for an output's TMA store is deferred until the buffer is written again: the
/// output has its own buffer, and other programs follow.
bool ConsumerBuilder::waitsForStoreLater(Value buffer) {
  return plan.isPersistent() && !llvm::is_contained(block.residents, buffer);
}

/// Waits until all tiles that were staged before step `step` have been read.
void ConsumerBuilder::awaitStaging(Value step) {
  int64_t places = plan.getDqReduceStages();
  for (int64_t place = 0; place < places; ++place)
    hopper::BarrierWaitOp::create(
        b, loc, block.barriers, index(plan.memory.stagingFree + place),
        parityOf(add(toI32(step), i32(places - 1 - place)), places, /*inverted=*/true));
  hopper::WaitStoresOp::create(b, loc, /*consumer=*/IntegerAttr());
}

/// If `output` is written to a packed sequence, whose end no tensor map knows, builds a branch: the
/// threads store the tile if some of its rows are past the end, and the insertion point is then in
/// the other region.
void ConsumerBuilder::storePartial(StoreTileOp output) {
  RowView view = getRowView(output.getTarget(), output.getDims());
  if (!view.firstRow)
    return;
  int64_t at = llvm::find(output.getDims(), int64_t(view.dim)) - output.getDims().begin();
  Value end = mul(add(output.getIndices()[view.dim], index(1)), output.getTileShape()[at]);
  Value isWhole = compare(arith::CmpIPredicate::sle, end, dim(output.getTarget(), view.dim));
  auto whole = scf::IfOp::create(b, loc, isWhole, /*withElseRegion=*/true);
  b.setInsertionPointToStart(whole.elseBlock());
  b.clone(*output);
  syncWarpgroup();
  b.setInsertionPointToStart(whole.thenBlock());
}

/// Stores the outputs through shared memory with TMA, which omits rows past the end. `step` is the
/// step after the program's last one.
void ConsumerBuilder::storeOutputs(const Held &held, Value consumer, Value step) {
  bool isFirst = true;
  for (auto [store, buffer, map] :
       llvm::zip_equal(plan.outputs, block.outputs, block.maps.outputs)) {
    StoreTileOp output = store;
    if (!output)
      continue;
    b.setInsertionPoint(output);
    bool inPlace = llvm::is_contained(block.residents, buffer);
    bool waitsLater = waitsForStoreLater(buffer);
    VectorType type = output.getTileType();
    Value tile = panelsOf(tileAt(buffer, inPlace ? held.number : consumer),
                          llvm::divideCeil(type.getDimSize(1), getPanelColumns(type)));
    if (plan.reusesResidentBuffers()) {
      // Stores of the previous program completed before this one began.
      if (plan.memory.overlaysStaging && isFirst)
        awaitStaging(step);
    } else if (waitsLater) {
      hopper::WaitStoresOp::create(b, loc, /*consumer=*/IntegerAttr());
    }
    // Peers, or the previous program's store, may still read the buffer.
    if (plan.reusesResidentBuffers() ? isFirst
                                     : (plan.sharesProgram() && !plan.splitsSums()) || waitsLater)
      syncProgram();
    isFirst = false;
    storePartial(output);
    hopper::StoreTileOp::create(b, loc, output.getTile(), tile);
    hopper::FenceAsyncSharedOp::create(b, loc);
    syncWarpgroup();
    Value first = block.signals;
    if (plan.sharesProgram() && !plan.splitsSums())
      first = arith::AndIOp::create(b, loc, first,
                                    compare(arith::CmpIPredicate::eq, block.warpgroup, index(1)));
    auto one = scf::IfOp::create(b, loc, first, /*withElseRegion=*/false);
    b.setInsertionPointToStart(one.thenBlock());
    IRMapping none;
    SmallVector<Value> origin = getOrigin(output, none);
    if (RowView view = getRowView(output.getTarget(), output.getDims()); view.firstRow)
      origin[view.dim] = add(origin[view.dim], view.firstRow);
    hopper::TmaStoreOp::create(b, loc, tile, map, origin);
    // The buffer must not be overwritten before the store has read it.
    if (!waitsLater)
      hopper::WaitStoresOp::create(b, loc, /*consumer=*/IntegerAttr());
    b.eraseOp(output);
  }
}

/// Rereads the program's `numbers` from shared memory for all uses after the insertion point.
/// Otherwise they would take registers through the loop.
void ConsumerBuilder::rereadNumbers(ArrayRef<Value> numbers, Value slot, Value consumer) {
  GridBuilder grid(b, plan, block);
  mlir::Block *target = b.getInsertionBlock();
  Operation *last = &*std::prev(b.getInsertionPoint());
  SmallVector<Value> again = grid.listNumbers(grid.read(slot, /*byWarp=*/true), consumer);
  for (auto [number, late] : llvm::zip_equal(numbers, again))
    b.replaceUsesWithIf(number, late, [&](OpOperand &use) {
      Operation *here = target->findAncestorOpInBlock(*use.getOwner());
      return here && last->isBeforeInBlock(here);
    });
}

/// Recomputes the numbers that ops after the loop of the program read, such as the rows of a packed
/// sequence. Otherwise they would take registers through the loop.
void ConsumerBuilder::recomputeNumbers() {
  ProgramOp program = plan.program;
  Operation *loop = plan.loop;
  OpBuilder::InsertionGuard guard(b);
  b.setInsertionPointAfter(loop);
  SmallVector<Operation *> later;
  for (Operation *op = loop->getNextNode(); op; op = op->getNextNode())
    later.push_back(op);
  IRMapping again;
  for (Operation *op : later)
    op->walk([&](Operation *inner) {
      for (OpOperand &operand : inner->getOpOperands()) {
        Operation *def = operand.get().getDefiningOp();
        if (def && def->getBlock() == program.getBody() && def->isBeforeInBlock(loop) &&
            !isa<VectorType>(operand.get().getType()))
          operand.set(clone(operand.get(), again));
      }
    });
}

/// Inlines the body of the program here for one consumer. Returns the step after it.
Value ConsumerBuilder::consume(const Group &group, Value consumer, const Held &held, Value step) {
  ProgramOp program = plan.program;
  SmallVector<Value> numbers = GridBuilder(b, plan, block).listNumbers(group, consumer);
  mlir::Block *target = b.getInsertionBlock();
  mlir::Block::iterator place = b.getInsertionPoint();
  bool rereads = plan.reusesResidentBuffers() || program.getRagged();
  if (program.getRagged())
    recomputeNumbers();
  b.eraseOp(program.getBody()->getTerminator());
  b.inlineBlockBefore(program.getBody(), target, place, numbers);
  step = consumeLoop(held.slot, numbers[2], step);
  if (rereads)
    rereadNumbers(numbers, held.slot, consumer);
  if (plan.reusesResidentBuffers() && !plan.waitsForEmptyRings())
    hopper::WarpArriveOp::create(b, loc, block.barriers,
                                 add(held.number, index(*plan.memory.residentEmpty)));
  useResidents(held);
  addTiles(target, step);
  // The spare warps signal instead.
  if (SignalAddedOp signal = plan.signal)
    b.eraseOp(signal);
  if (plan.splitsSums() && !plan.outputs.empty()) {
    // The consumers synchronize once, whether or not this one stores outputs with TMA.
    auto first = llvm::find_if(plan.outputs, [](StoreTileOp store) { return store != nullptr; });
    if (first != plan.outputs.end())
      b.setInsertionPoint(*first);
    else
      b.setInsertionPoint(target, place);
    syncProgram();
  }
  storeOutputs(held, consumer, step);
  if ((!plan.added.empty() || plan.splitsSums()) && !plan.reusesResidentBuffers()) {
    // Staged tiles must not be overwritten before the last copy has read them. If consumers split
    // sums, the consumer's number keeps LLVM from merging the ends of their branches.
    b.setInsertionPoint(target, place);
    hopper::WaitStoresOp::create(
        b, loc, plan.consumer ? b.getI64IntegerAttr(*plan.consumer) : IntegerAttr());
  }
  b.setInsertionPoint(target, place);
  return step;
}

/// Fills the panels of ones in the rings' tiles, which TMA does not write, once for all steps.
void ConsumerBuilder::fillOnes() {
  constexpr int64_t kWord = 4, kWordBits = 32;
  bool any = false;
  for (auto [load, ring] : llvm::zip_equal(plan.streams, plan.memory.rings)) {
    LoadTileOp stream = load;
    if (!stream.getOnes())
      continue;
    any = true;
    const SharedBuffer &buffer = plan.memory.memory[ring.buffer];
    int64_t stages = buffer.shape[0], panels = buffer.shape[1], rows = buffer.shape[2];
    int64_t words = buffer.shape[3] * buffer.elementBytes / kWord;
    auto space = gpu::AddressSpaceAttr::get(b.getContext(), gpu::AddressSpace::Workgroup);
    auto type = MemRefType::get({stages, panels, rows * words}, b.getI32Type(),
                                MemRefLayoutAttrInterface{}, space);
    Value tiles =
        memref::ViewOp::create(b, loc, type, block.pool, index(buffer.offset), ValueRange());
    llvm::APInt one = FloatAttr::get(plan.schedule.getDotType(), 1.0).getValue().bitcastToAPInt();
    Value ones = b.createOrFold<arith::ConstantOp>(
        loc, b.getIntegerAttr(b.getI32Type(), llvm::APInt::getSplat(kWordBits, one)));
    Value first = sub(block.thread, index(hopper::kWarpgroupThreads));
    auto loop = scf::ForOp::create(b, loc, first, index(rows * words),
                                   index(hopper::kWarpgroupThreads * plan.getConsumers()));
    OpBuilder::InsertionGuard guard(b);
    b.setInsertionPointToStart(loop.getBody());
    for (int64_t stage = 0; stage < stages; ++stage)
      for (int64_t panel = countCopiedPanels(stream); panel < panels; ++panel)
        memref::StoreOp::create(b, loc, ones, tiles,
                                ValueRange{index(stage), index(panel), loop.getInductionVar()});
  }
  if (any)
    hopper::FenceAsyncSharedOp::create(b, loc);
}

void ConsumerBuilder::buildThreads() {
  auto inGroup = [&]() -> Value {
    return arith::AndIOp::create(b, loc, block.thread, index(hopper::kWarpgroupThreads - 1));
  };
  threadOfProgram =
      plan.sharesProgram() ? sub(block.thread, index(hopper::kWarpgroupThreads)) : inGroup();
  threadInGroup = plan.splitsSums() ? inGroup() : threadOfProgram;
  auto threads = OnThreadsOp::create(b, loc, threadInGroup, plan.schedule);
  ProgramOp program = plan.program;
  threads.setUnusedRowHalf(program.getUnusedRowHalf());
  OpBuilder::InsertionGuard guard(b);
  b.setInsertionPointToStart(threads.getBody());
  hopper::SetRegistersOp::create(b, loc, hopper::RegisterChange::Increase,
                                 plan.hopper.getRegisters(), plan.hopper.getBlocksPerSM());
  hopper::GroupBarrierOp::create(b, loc, i32(kBlockBarrier), plan.getThreads());
  if (alternates(plan.loop)) {
    // The first consumer issues first.
    Value second = compare(arith::CmpIPredicate::eq, block.warpgroup, index(plan.getConsumers()));
    auto guarded = scf::IfOp::create(b, loc, second, /*withElseRegion=*/false);
    OpBuilder::InsertionGuard inSecond(b);
    b.setInsertionPointToStart(guarded.thenBlock());
    hopper::WakePeerOp::create(b, loc, kPeerBarriers);
  }
  Value consumer = plan.sharesProgram() ? index(0) : toIndex(sub(toI32(block.warpgroup), i32(1)));
  GridBuilder grid(b, plan, block);
  if (!plan.isPersistent()) {
    consume(grid.onlyGroup(/*byWarp=*/true), consumer, {index(0), consumer, /*pending=*/true},
            index(0));
    return;
  }
  // A wait for the residents also covers the numbers of the group.
  grid.forEachGroup(/*byWarp=*/true, consumer, /*step=*/i32(0), [&](Value round, Value step) {
    Value slot = slotOf(round, plan.getSlots()), number = heldNumber(slot, consumer);
    Group group = grid.read(slot, /*byWarp=*/true);
    if (plan.reusesResidentBuffers() && plan.sharesProgram()) {
      // Steps write to the buffers that the stores of the previous program's outputs read.
      hopper::WaitStoresOp::create(b, loc, /*consumer=*/IntegerAttr());
      syncProgram();
    }
    step = consume(group, consumer, {slot, number, /*pending=*/false}, step);
    if (plan.reusesResidentBuffers())
      return step;
    // After the barrier in front of an output's store, no warp reads the slot any more.
    if (plan.outputs.empty())
      syncProgram();
    hopper::BarrierArriveOp::create(b, loc, block.barriers,
                                    add(number, index(*plan.memory.residentEmpty)), block.signals);
    return step;
  });
  if ((plan.reusesResidentBuffers() && plan.sharesProgram()) ||
      llvm::any_of(block.outputs, [&](Value buffer) { return waitsForStoreLater(buffer); }))
    hopper::WaitStoresOp::create(b, loc, /*consumer=*/IntegerAttr());
}

void ConsumerBuilder::build() {
  fillOnes();
  if (!plan.splitsSums())
    return buildThreads();
  OpBuilder::InsertionGuard guard(b);
  for (int64_t i = 0; i < plan.getConsumers(); ++i) {
    scf::IfOp mine;
    if (i + 1 < plan.getConsumers()) {
      mine = scf::IfOp::create(b, loc,
                               compare(arith::CmpIPredicate::eq, block.warpgroup, index(i + 1)),
                               /*withElseRegion=*/true);
      b.setInsertionPointToStart(mine.thenBlock());
    }
    BlockPlan share = cloneForSum(i);
    ConsumerBuilder(b, share, block).buildThreads();
    b.eraseOp(share.program);
    if (mine)
      b.setInsertionPointToStart(mine.elseBlock());
  }
}
