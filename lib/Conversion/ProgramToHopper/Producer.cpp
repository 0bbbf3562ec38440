//===- Producer.cpp - the producer warpgroup ------------------------------===//

#include "Block.h"

using namespace mlir;
using namespace mlir::flashattn;

/// Returns the index of `row` along dimension `dim` of the tensor map of `load`, which may begin
/// before its memref, or omit leading rows. Rows before the map have negative indices.
Value ProducerBuilder::toMap(LoadTileOp load, unsigned dim, Value row, IRMapping &mapping) {
  if (RowView view = getRowView(load.getSource(), load.getDims()); view.firstRow && view.dim == dim)
    row = add(row, clone(view.firstRow, mapping));
  Value begin = dim == load.getRowDim() ? getLeftOutByMap(load).begin : Value();
  return begin ? sub(row, begin) : row;
}

/// Issues the loads of the residents of a group's programs.
void ProducerBuilder::loadResidents(MutableArrayRef<IRMapping> programs, Value slot) {
  for (auto [w, mapping] : llvm::enumerate(programs)) {
    Value number = heldNumber(slot, index(w));
    Value full = add(number, index(plan.memory.residentFull));
    if (plan.residents.empty()) {
      // Without residents, an arrival alone signals that the group's numbers are written.
      if (plan.isPersistent())
        hopper::BarrierArriveOp::create(b, loc, block.barriers, full, /*predicate=*/Value());
      continue;
    }
    int64_t bytes = 0;
    SmallVector<Value> tiles;
    SmallVector<SmallVector<Value>> coordinates;
    for (auto [load, buffer] : llvm::zip_equal(plan.residents, block.residents)) {
      tiles.push_back(tileAt(buffer, number));
      LoadTileOp resident = load;
      coordinates.push_back(getOrigin(resident, mapping));
      // With packed heads, rows run along two dimensions.
      for (int64_t dim : resident.getDims().drop_back()) {
        Value &row = coordinates.back()[dim];
        row = toMap(resident, dim, row, mapping);
      }
      bytes += hopper::SharedTile::get(tiles.back().getType())->getBytes();
    }
    hopper::BarrierExpectOp::create(b, loc, block.barriers, full, b.getI64IntegerAttr(bytes));
    for (auto [map, at, tile] : llvm::zip_equal(block.maps.residents, coordinates, tiles))
      hopper::TmaLoadOp::create(b, loc, map, at, tile, block.barriers, full,
                                /*panels=*/IntegerAttr());
  }
}

/// Publishes the numbers and shared ranges of a group and issues the loads of its residents. In a
/// persistent block the loads come last, because their barriers also signal the numbers.
void ProducerBuilder::prepare(const Group &group, Value slot) {
  GridBuilder grid(b, plan, block);
  SmallVector<IRMapping> programs = grid.programsOf(group);
  if (plan.publishesGroups())
    grid.publishGroup(group, slot);
  if (!plan.isPersistent())
    loadResidents(programs, slot);
  SharedRangeBuilder(b, plan, block).publish(programs, slot);
  if (plan.isPersistent())
    loadResidents(programs, slot);
}

/// Returns the rows of the pieces of a tile whose first row is `first`, i32. 32-bit, because the
/// producer has few registers.
SmallVector<Value> ProducerBuilder::findPieces(LoadTileOp load, IRMapping &mapping, Value first) {
  SmallVector<Value> pieces;
  for (int64_t row = 0; row < load.getTileType().getDimSize(0);
       row += CompactRowsOp::kGranularity) {
    Value number = add(first, i32(row)), place = number;
    for (const RowSegment &segment : load.getSegments())
      place = add(place, select(less(number, toI32(clone(segment.start, mapping))), i32(0),
                                toI32(clone(segment.skip, mapping))));
    pieces.push_back(toMap(load, *load.getRowDim(), toIndex(place), mapping));
  }
  return pieces;
}

/// Returns the pages from which the streams load tiles, with values before the loop over tiles;
/// nullopt if there are none.
std::optional<ProducerBuilder::PagedTiles> ProducerBuilder::findPages(IRMapping &mapping) {
  auto load = llvm::find_if(plan.streams, [](LoadTileOp load) { return load.getPages(); });
  if (load == plan.streams.end())
    return std::nullopt;
  PageMap pages = *LoadTileOp(*load).getPages();
  auto cloneAll = [&](ValueRange from) {
    return llvm::map_to_vector(from, [&](Value value) { return clone(value, mapping); });
  };
  return PagedTiles{*load, pages.table, clone(pages.sequence, mapping), cloneAll(pages.begins),
                    cloneAll(pages.ends)};
}

/// Returns the places of the pieces of tile `tile`, an index.
SmallVector<PagePlace> ProducerBuilder::placePieces(const PagedTiles &tiles, Value tile) {
  LoadTileOp load = tiles.load;
  int64_t rows = load.getTileType().getDimSize(0);
  Value first = arith::MulIOp::create(b, loc, toI32(tile), i32(rows));
  SmallVector<PagePlace> places;
  for (int64_t row = 0; row < rows; row += getPieceRows(load))
    places.push_back(findPage(b, loc, tiles.getMap(), add(first, i32(row))));
  return places;
}

/// Loads the pages of the pieces of tile `tile`, i32. If a step loads those of the next one, the
/// producer does not wait for memory.
SmallVector<Value> ProducerBuilder::loadPages(const PagedTiles &tiles, Value tile) {
  return llvm::map_to_vector(placePieces(tiles, tile), [&](const PagePlace &place) {
    return loadPage(b, loc, tiles.getMap(), place.number);
  });
}

/// Returns the pieces of tile `tile` in `pages`, the result of `loadPages`. A page that does not
/// exist is past the pool, so that its rows are zeros.
ProducerBuilder::PagedPieces ProducerBuilder::findPieces(const PagedTiles &tiles, Value tile,
                                                         ValueRange pages) {
  LoadTileOp load = tiles.load;
  Value none = toI32(dim(load.getSource(), 0));
  PagedPieces pieces;
  for (auto [place, page] : llvm::zip_equal(placePieces(tiles, tile), pages)) {
    pieces.rows.push_back(toIndex(place.row));
    pieces.pages.push_back(toIndex(select(place.exists, page, none)));
  }
  return pieces;
}

/// Loads the tile of `step` into a stream's ring: in pieces up to the last cut, then by one copy.
SmallVector<hopper::RingPutOp> ProducerBuilder::put(unsigned stream, IRMapping &mapping, Value step,
                                                    const PagedPieces &paged) {
  LoadTileOp load = plan.streams[stream];
  const BlockValues::StreamMaps &maps = block.maps.streams[stream];
  SmallVector<Value> origin = getOrigin(load, mapping);
  IntegerAttr panels;
  if (load.getOnes() && !isRewritten(load))
    panels = b.getI64IntegerAttr(countCopiedPanels(load));
  Value ring = isRewritten(load) ? block.sources[stream].ring : block.rings[stream];
  auto put = [&](Value map, ValueRange pieces, ValueRange pages = {}) {
    IntegerAttr along;
    if (!pieces.empty())
      along = b.getI64IntegerAttr(*load.getRowDim());
    return hopper::RingPutOp::create(b, loc, ring, step, block.idle, map, origin, pieces, pages,
                                     along,
                                     /*beside=*/IntegerAttr(), panels);
  };
  Value &row = origin[*load.getRowDim()];
  if (load.getPages()) {
    row = paged.rows.front();
    origin.front() = paged.pages.front();
    if (!mayBeCut(load))
      return {put(maps.tile, {})};
    return {put(maps.piece, paged.rows, paged.pages)};
  }
  SmallVector<RowSegment> segments = load.getSegments();
  if (segments.empty()) {
    row = toMap(load, *load.getRowDim(), row, mapping);
    return {put(maps.tile, {})};
  }
  Value first = toI32(row), place = first;
  for (const RowSegment &segment : segments)
    place = add(place, toI32(clone(segment.skip, mapping)));
  row = toMap(load, *load.getRowDim(), toIndex(place), mapping);
  if (!mayBeCut(load))
    return {put(maps.tile, {})};
  Value isCut = less(first, toI32(clone(segments.back().start, mapping)));
  auto branch = scf::IfOp::create(b, loc, isCut, /*withElseRegion=*/true);
  OpBuilder::InsertionGuard guard(b);
  b.setInsertionPointToStart(branch.thenBlock());
  hopper::RingPutOp inPieces = put(maps.piece, findPieces(load, mapping, first));
  b.setInsertionPointToStart(branch.elseBlock());
  return {inPieces, put(maps.tile, {})};
}

/// Loads the tiles of one interval into the rings. Returns the step after it.
Value ProducerBuilder::produceInterval(IRMapping mapping, Value slot, Value interval, Value step) {
  SharedRangeBuilder sharedRanges(b, plan, block);
  TileRange range = plan.sharesIntervals
                        ? sharedRanges.withStep(sharedRanges.boundsOf(mapping, interval), interval)
                        : sharedRanges.read(slot, interval, /*byWarp=*/false);
  // Cloned before the loop: `mapping` caches clones, and nested clones do not dominate other uses.
  TileLoopOp program = plan.loop;
  auto cloneBeforeLoop = [&](ArrayRef<Value> values) {
    for (Value v : values)
      if (!dependsOn(v, program.getTile()))
        clone(v, mapping);
  };
  for (LoadTileOp load : plan.streams) {
    SmallVector<Value> values(load.getIndices());
    if (Value first = getRowView(load.getSource(), load.getDims()).firstRow)
      values.push_back(first);
    SmallVector<RowSegment> segments = load.getSegments();
    for (const RowSegment &segment : segments)
      values.push_back(segment.start);
    for (const RowSegment &segment : segments)
      values.push_back(segment.skip);
    cloneBeforeLoop(values);
  }
  for (const BlockPlan::Row &row : plan.rows) {
    OperandRange indices = LoadTileOp(row.load).getIndices();
    cloneBeforeLoop(llvm::to_vector(indices));
    if (Operation *sum = indices.back().getDefiningOp())
      cloneBeforeLoop(llvm::to_vector(sum->getOperands()));
  }
  SmallVector<Value> place;
  for (Value outer : program.getListIndices())
    place.push_back(clone(outer, mapping));
  std::optional<PagedTiles> tiles = findPages(mapping);
  // With more pieces, the producer lacks the registers for the pages of two tiles.
  constexpr int64_t kMostPrefetched = 8;
  // The next tile of a list is unknown.
  bool prefetches = tiles && tiles->countPieces() <= kMostPrefetched && !program.getList();
  SmallVector<Value> pages;
  if (prefetches) {
    // Without a tile, the table may have no entry.
    SmallVector<Type> types(tiles->countPieces(), b.getI32Type());
    auto first = scf::IfOp::create(b, loc, types, less(range.begin, range.end),
                                   /*withElseRegion=*/true);
    OpBuilder::InsertionGuard guard(b);
    b.setInsertionPointToStart(first.thenBlock());
    scf::YieldOp::create(b, loc, loadPages(*tiles, range.begin));
    b.setInsertionPointToStart(first.elseBlock());
    scf::YieldOp::create(b, loc, SmallVector<Value>(types.size(), i32(0)));
    pages = first.getResults();
  }
  auto loop = scf::ForOp::create(b, loc, range.begin, range.end, index(1), pages);
  // Unrolling by two would double the number of barriers that the thread keeps in registers.
  keepRolled(loop);
  OpBuilder::InsertionGuard guard(b);
  b.setInsertionPointToStart(loop.getBody());
  Value now = add(sub(loop.getInductionVar(), range.begin), step);
  Value number = loop.getInductionVar();
  place.push_back(number);
  // Loaded early, before the wait for an empty stage.
  if (program.getList())
    number = toIndex(memref::LoadOp::create(b, loc, program.getList(), place));
  mapping.map(program.getTile(), number);
  PagedPieces paged;
  if (prefetches) {
    pages = loadPages(*tiles, add(number, index(1)));
    paged = findPieces(*tiles, number, loop.getRegionIterArgs());
  } else if (tiles) {
    paged = findPieces(*tiles, number, loadPages(*tiles, number));
  }
  for (auto [i, ring] : llvm::enumerate(block.rings)) {
    if (!loads(i))
      continue;
    SmallVector<hopper::RingPutOp> puts = put(i, mapping, now, paged);
    int64_t beside = 0;
    for (auto [row, places] : llvm::zip_equal(plan.rows, block.rows)) {
      if (row.stream != i)
        continue;
      LoadTileOp elements = row.load;
      SmallVector<Value> indices;
      for (Value v : elements.getIndices())
        indices.push_back(clone(v, mapping));
      indices.back() = mul(indices.back(), elements.getTileType().getDimSize(1));
      beside +=
          hopper::RingPutRowOp::create(b, loc, ring, now, elements.getSource(), indices, places)
              .getBytes();
    }
    if (beside)
      for (hopper::RingPutOp put : puts)
        put.setBeside(beside);
  }
  if (prefetches)
    scf::YieldOp::create(b, loc, pages);
  b.setInsertionPointAfter(loop);
  return add(step, sub(range.end, range.begin));
}

/// Loads the tiles of one group into the rings, starting at step `step`. Returns the step after it.
Value ProducerBuilder::produce(const Group &group, Value slot, Value step) {
  return forEachPass(GridBuilder(b, plan, block).numbersOf(group, index(0)), step,
                     [&](const IRMapping &mapping, Value interval, Value step) {
                       return produceInterval(mapping, slot, interval, step);
                     });
}

Value BlockBuilder::forEachPass(IRMapping mapping, Value step, PassBody body) {
  if (!plan.hasPasses())
    return body(mapping, /*interval=*/{}, step);
  TileLoopOp program = plan.loop;
  Value passes = index(plan.intervals);
  if (Value rounds = program.getRounds())
    passes = mul(clone(rounds, mapping), passes);
  auto loop = scf::ForOp::create(b, loc, index(0), passes, index(1), step);
  OpBuilder::InsertionGuard guard(b);
  b.setInsertionPointToStart(loop.getBody());
  TilePass pass = enterPass(b, loc, program, loop.getInductionVar());
  if (pass.round)
    mapping.map(program.getRound(), pass.round);
  Value interval = plan.intervals > 1 ? pass.interval : Value();
  scf::YieldOp::create(b, loc, body(mapping, interval, loop.getRegionIterArg(0)));
  return loop.getResult(0);
}

void BlockBuilder::forEachPublishedGroup(
    bool byWarp, function_ref<void(Value barrier)> arrive,
    function_ref<Value(const Group &group, Value slot, Value step)> body) {
  GridBuilder grid(b, plan, block);
  if (!plan.isPersistent()) {
    body(grid.onlyGroup(byWarp), index(0), index(0));
    return;
  }
  auto run = [&](Value round, Value step) {
    Value slot = slotOf(round, plan.getSlots());
    step = body(grid.read(slot, byWarp), slot, step);
    for (int64_t w = 0; w < plan.getPrograms(); ++w)
      arrive(add(heldNumber(slot, index(w)), index(*plan.memory.residentEmpty)));
    return step;
  };
  grid.forEachGroup(byWarp, /*consumer=*/index(0), /*state=*/i32(0), run);
}

/// Waits until the slot of `round` is free: all consumers have read its numbers and no longer need
/// its residents. `step` is the step after the last tile loaded into the rings.
Value ProducerBuilder::awaitSlot(Value round, Value step) {
  Value slot = slotOf(round, plan.getSlots());
  if (plan.waitsForEmptyRings()) {
    for (unsigned stream : plan.residentStreams)
      hopper::RingDrainOp::create(b, loc, block.rings[stream], sub(step, index(1)));
    return slot;
  }
  Value free = parityOf(round, plan.getResidentGroups(), /*inverted=*/true);
  for (int64_t w = 0; w < plan.getPrograms(); ++w)
    hopper::BarrierWaitOp::create(
        b, loc, block.barriers, add(heldNumber(slot, index(w)), index(*plan.memory.residentEmpty)),
        free);
  return slot;
}

/// Prepares the group of the next round, if there is one.
void ProducerBuilder::prepareNext(Value round, Value rounds, Value step) {
  GridBuilder grid(b, plan, block);
  Value next = add(round, i32(1));
  auto another = scf::IfOp::create(b, loc, less(next, rounds), /*withElseRegion=*/false);
  OpBuilder::InsertionGuard guard(b);
  b.setInsertionPointToStart(another.thenBlock());
  Group group = grid.decode(grid.groupOf(next));
  prepare(group, awaitSlot(next, step));
}

/// Claims a group for the next round and prepares it, or signals the end.
void ProducerBuilder::prepareClaimed(Value round, Value step) {
  GridBuilder grid(b, plan, block);
  Value number = grid.claim(), isGroup = grid.isGroup(number);
  prepareIf(isGroup, number, awaitSlot(add(round, i32(1)), step));
}

/// Prepares group `number`, i32, or signals the end unless `isGroup`.
void ProducerBuilder::prepareIf(Value isGroup, Value number, Value slot) {
  GridBuilder grid(b, plan, block);
  auto another = scf::IfOp::create(b, loc, isGroup, /*withElseRegion=*/true);
  OpBuilder::InsertionGuard guard(b);
  b.setInsertionPointToStart(another.thenBlock());
  prepare(grid.decode(toIndex(number)), slot);
  b.setInsertionPointToStart(another.elseBlock());
  grid.publishEnd(slot);
  for (int64_t w = 0; w < plan.getPrograms(); ++w)
    hopper::BarrierArriveOp::create(
        b, loc, block.barriers, add(heldNumber(slot, index(w)), index(plan.memory.residentFull)),
        /*predicate=*/Value());
}

/// Builds the warps behind the first one: they add tiles or convert them, or one of them loads the
/// second stream.
void ProducerBuilder::buildSpareWarps() {
  hopper::GroupBarrierOp::create(b, loc, i32(kBlockBarrier), plan.getThreads());
  if (plan.getDqReduceStages())
    AdderBuilder(b, plan, block).build();
  else if (plan.rewrites())
    ConverterBuilder(b, plan, block).build();
  else
    buildSecondThread();
}

/// Builds the thread that loads the second stream of every group that the first thread publishes.
void ProducerBuilder::buildSecondThread() {
  Value isSecond = compare(arith::CmpIPredicate::eq, block.thread, index(kWarpThreads));
  auto one = scf::IfOp::create(b, loc, isSecond, /*withElseRegion=*/false);
  OpBuilder::InsertionGuard guard(b);
  b.setInsertionPointToStart(one.thenBlock());
  ownStream = 1;
  forEachPublishedGroup(
      /*byWarp=*/false,
      [&](Value barrier) {
        hopper::BarrierArriveOp::create(b, loc, block.barriers, barrier, /*predicate=*/Value());
      },
      [&](const Group &group, Value slot, Value step) { return produce(group, slot, step); });
}

void ProducerBuilder::build() {
  hopper::SetRegistersOp::create(b, loc, hopper::RegisterChange::Decrease,
                                 plan.hopper.getProducerRegisters(), plan.hopper.getBlocksPerSM());
  OpBuilder::InsertionGuard guard(b);
  if (plan.getDqReduceStages() || plan.rewrites() || plan.splitsStreams()) {
    Value isSpare = compare(arith::CmpIPredicate::uge, block.thread, index(kWarpThreads));
    auto spare = scf::IfOp::create(b, loc, isSpare, /*withElseRegion=*/true);
    b.setInsertionPointToStart(spare.thenBlock());
    buildSpareWarps();
    // A separate branch, so that the producer's values are not live in the spare warps' branch.
    b.setInsertionPointToStart(spare.elseBlock());
  }
  // The thread that prepared the block arrives without waiting.
  hopper::GroupArriveOp::create(b, loc, i32(kBlockBarrier), plan.getThreads());
  auto one = scf::IfOp::create(b, loc, block.signals, /*withElseRegion=*/false);
  b.setInsertionPointToStart(one.thenBlock());
  if (plan.splitsStreams())
    ownStream = 0;
  buildFirstThread();
}

/// Builds the thread that prepares groups and loads their tiles.
void ProducerBuilder::buildFirstThread() {
  GridBuilder grid(b, plan, block);
  if (!plan.isPersistent()) {
    produce(grid.onlyGroup(/*byWarp=*/false), index(0), index(0));
    return;
  }
  if (plan.claims()) {
    grid.forEachClaim(/*byWarp=*/false, /*await=*/[](Value) {}, /*step=*/i32(0),
                      [&](Value round, Value step) {
                        Value slot = slotOf(round, plan.getSlots());
                        step = produce(grid.read(slot, /*byWarp=*/false), slot, step);
                        // Claims while consumers still process the last tiles. An earlier claim
                        // would hold the next group for the whole run of this one and keep it from
                        // blocks that have ended.
                        prepareClaimed(round, step);
                        return step;
                      });
    return;
  }
  Value rounds = grid.countRounds();
  grid.forEachRound(rounds, /*step=*/i32(0), [&](Value round, Value step) {
    Value slot = slotOf(round, plan.getSlots());
    step = produce(grid.read(slot, /*byWarp=*/false), slot, step);
    prepareNext(round, rounds, step);
    return step;
  });
}
