//===- Converter.cpp - spare warps that convert or transpose tiles --------===//
//
// F1: the producer thread loads tiles of elements of 8 bits into rings of their own. The other
// warps of its warpgroup convert them, step by step, and write them to the rings that products
// read. A thread converts vectors of 8 elements: 16 threads read a row of 128 bytes, and each group
// of 8 writes one, so that no bank is accessed twice.
//
// F3: tiles over whose rows products of f8 sum are transposed in the same way.
//
//===----------------------------------------------------------------------===//

#include "Block.h"
#include "flashattn/Dialect/FlashAttn/Program/NarrowElements.h"

using namespace mlir;
using namespace mlir::flashattn;

static constexpr int64_t kWarps = WarpgroupBlockPlan::kSpareWarps, kThreads = kWarps * kWarpThreads;

/// Vectors that a thread loads before it stores the first of them. With more, registers spill.
static constexpr int64_t kAtOnce = 4;

LogicalResult mlir::flashattn::verifyConversion(const BlockPlan &plan) {
  if (!plan.rewrites())
    return success();
  ProgramOp program = plan.program;
  StringRef other = !plan.rows.empty()             ? "rows that are loaded with them"
                    : plan.schedule.compactsKV()   ? "compact_kv"
                    : plan.getDqReduceStages()     ? "dq_reduce_stages"
                    : plan.reusesResidentBuffers() ? "dynamic_scheduler and q_stages 1"
                                                   : "";
  if (other.empty())
    return success();
  return program.emitOpError() << "expected tiles of 16 bits with " << other << " but got 8 bits";
}

ConverterBuilder::Stream::Stream(const BlockPlan &plan, unsigned number)
    : number(number), load(plan.streams[number]) {
  if (isTransposed(load))
    return;
  VectorType tile = getCopiedType(load);
  int64_t rows = tile.getDimSize(0);
  perRow = tile.getDimSize(1) / kElements;
  vectors = tile.getNumElements() / kElements;
  int64_t inPanel = std::min(perRow, getPanelColumns(tile) / kElements);
  bool isRegular = kWarpThreads % inPanel == 0 && perRow % inPanel == 0;
  // The swizzle repeats every 8 rows.
  constexpr int64_t kPeriod = 8;
  int64_t atOnce = kAtOnce * kWarpThreads / inPanel;
  if (isRegular && atOnce % kPeriod == 0 && rows % atOnce == 0) {
    unitRows = atOnce;
    unitVectors = inPanel;
    unitsPerRow = perRow / inPanel;
    units = rows / atOnce * unitsPerRow;
  }
  // A register holds the scales of whole units.
  if (!load.getScales() || !unitRows || unitRows > kWarpThreads)
    return;
  if (cast<MemRefType>(load.getScales().getType()).getShape().back() == 1)
    held = llvm::divideCeil(llvm::divideCeil(units, kWarps) * unitRows, kWarpThreads);
}

/// Returns the row of vector `turn` of the thread, and the vector in the row, i32.
std::pair<Value, Value> ConverterBuilder::locate(const Stream &stream, Value turn) {
  Value thread = sub(toI32(block.thread), i32(kWarpThreads));
  Value vector = add(thread, mul(turn, i32(kThreads)));
  return {arith::DivUIOp::create(b, loc, vector, i32(stream.perRow)),
          arith::RemUIOp::create(b, loc, vector, i32(stream.perRow))};
}

ConverterBuilder::VectorLayout::VectorLayout(VectorType tile) {
  constexpr int64_t kLine = 128, kChunk = 16;
  int64_t columns = getPanelColumns(tile), bytes = tile.getElementTypeBitWidth() / 8;
  vectorsPerRow = columns / kElements;
  vectorsPerChunk = kChunk / (kElements * bytes);
  rows = tile.getDimSize(0);
  panels = llvm::divideCeil(tile.getDimSize(1), columns);
  rowsPerLine = kLine / (columns * bytes);
  chunks = columns * bytes / kChunk;
}

/// Returns the index of vector `vector` of row `row` among the vectors of all stages, i32.
Value ConverterBuilder::placeIn(const VectorLayout &layout, Value stage, Value row, Value vector) {
  auto divide = [&](Value x, int64_t y) { return arith::DivUIOp::create(b, loc, x, i32(y)); };
  auto rest = [&](Value x, int64_t y) { return arith::RemUIOp::create(b, loc, x, i32(y)); };
  Value panel = divide(vector, layout.vectorsPerRow), inRow = rest(vector, layout.vectorsPerRow);
  Value key = rest(divide(row, layout.rowsPerLine), layout.chunks);
  Value chunk = arith::XOrIOp::create(b, loc, divide(inRow, layout.vectorsPerChunk), key);
  Value at = add(mul(chunk, i32(layout.vectorsPerChunk)), rest(inRow, layout.vectorsPerChunk));
  Value line = add(mul(add(mul(stage, i32(layout.panels)), panel), i32(layout.rows)), row);
  return add(mul(line, i32(layout.vectorsPerRow)), at);
}

Value ConverterBuilder::getLane() {
  return arith::AndIOp::create(b, loc, toI32(block.thread), i32(kWarpThreads - 1));
}

/// Returns the first unit of the warp, i32. Another warp has more units of the next stream.
Value ConverterBuilder::getFirstUnit(const Stream &stream) {
  return firstUnits[stream.number % kWarps];
}

//===----------------------------------------------------------------------===//
// Scales
//===----------------------------------------------------------------------===//

/// Returns the scale of vector `vector` of row `row` (i32) of the tile that `mapping` determines; 0
/// if the row does not exist. The address exists in any case.
Value ConverterBuilder::loadScale(const Stream &stream, IRMapping &mapping, Value row,
                                  Value vector) {
  LoadTileOp load = stream.load;
  unsigned rowDim = *load.getRowDim();
  SmallVector<Value> at = getOrigin(load, mapping);
  Value scales = clone(load.getScales(), mapping), exists;
  if (std::optional<PageMap> pages = load.getPages()) {
    auto cloneAll = [&](ValueRange values) {
      return llvm::map_to_vector(values, [&](Value value) { return clone(value, mapping); });
    };
    SmallVector<Value> begins = cloneAll(pages->begins), ends = cloneAll(pages->ends);
    pages = {pages->table, clone(pages->sequence, mapping), pages->size, Value(), begins, ends};
    PagePlace place = findPage(b, loc, *pages, add(toI32(at[rowDim]), row));
    Value page = loadPage(b, loc, *pages, place.number);
    exists = place.exists;
    at.front() = toIndex(select(exists, page, i32(0)));
    at[rowDim] = toIndex(place.row);
  } else {
    Value size = dim(clone(load.getSource(), mapping), rowDim), end = size;
    if (load.getEndRow())
      end = min(clone(load.getEndRow(), mapping), size);
    Value number = add(at[rowDim], toIndex(row));
    exists = less(number, end);
    at[rowDim] = min(number, max(sub(size, index(1)), index(0)));
  }
  Value column = toIndex(mul(vector, i32(kElements)));
  Value scale = loadTileScale(b, loc, scales, at, column, load.getMemRefType().getShape().back());
  return select(exists, scale, arith::ConstantOp::create(b, loc, b.getF32FloatAttr(0)));
}

/// Loads the scales of the rows of a warp, one for each lane. The lane of row r of the warp's units
/// is r modulo 32.
SmallVector<Value> ConverterBuilder::loadHeldScales(const Stream &stream, IRMapping mapping) {
  SmallVector<Value> scales;
  for (int64_t i = 0; i < stream.held; ++i) {
    Value row = add(getLane(), i32(i * kWarpThreads));
    Value unit = add(mul(arith::DivUIOp::create(b, loc, row, i32(stream.unitRows)), i32(kWarps)),
                     getFirstUnit(stream));
    Value inUnit = arith::RemUIOp::create(b, loc, row, i32(stream.unitRows));
    unit = arith::DivUIOp::create(b, loc, unit, i32(stream.unitsPerRow));
    scales.push_back(
        loadScale(stream, mapping, add(mul(unit, i32(stream.unitRows)), inUnit), i32(0)));
  }
  return scales;
}

/// Returns the scale of row `row` of the warp's unit `turn`, both i32, from those of all its rows.
Value ConverterBuilder::takeHeldScale(const Stream &stream, ValueRange held, Value turn,
                                      Value row) {
  Value number = add(mul(turn, i32(stream.unitRows)), row);
  Value from = arith::RemUIOp::create(b, loc, number, i32(kWarpThreads)), scales = held.front();
  for (int64_t i = 1; i < stream.held; ++i)
    scales = select(less(mul(turn, i32(stream.unitRows)), i32(i * kWarpThreads)), scales, held[i]);
  return gpu::ShuffleOp::create(b, loc, scales, from, i32(kWarpThreads), gpu::ShuffleMode::IDX)
      .getShuffleResult();
}

//===----------------------------------------------------------------------===//
// Tiles
//===----------------------------------------------------------------------===//

/// Converts `count` vectors of the thread, from `turn` (i32) on.
void ConverterBuilder::convert(const Stream &stream, IRMapping &mapping, const Stages &stages,
                               Value turn, int64_t count) {
  const BlockValues::Source &vectors = block.sources[stream.number];
  LoadTileOp load = stream.load;
  SmallVector<Value> sources, targets, scales;
  for (int64_t i = 0; i < count; ++i) {
    auto [row, vector] = locate(stream, add(turn, i32(i)));
    sources.push_back(toIndex(placeIn(getCopiedType(load), stages.from, row, vector)));
    targets.push_back(toIndex(placeIn(load.getTileType(), stages.to, row, vector)));
    if (load.getScales())
      scales.push_back(loadScale(stream, mapping, row, vector));
  }
  ConvertElementsOp::create(b, loc, vectors.from, sources, scales, vectors.to, targets);
}

/// Converts the warp's unit `turn`, i32. Rows of a unit differ only in bits of the row's number in
/// which its first row and the lane's first row have zeros, so that one place serves them all.
void ConverterBuilder::convertUnit(const Stream &stream, ValueRange held, IRMapping &mapping,
                                   const Stages &stages, Value turn) {
  const BlockValues::Source &vectors = block.sources[stream.number];
  LoadTileOp load = stream.load;
  VectorType narrow = getCopiedType(load), wide = load.getTileType();
  Value unit = add(mul(turn, i32(kWarps)), getFirstUnit(stream));
  int64_t atOnce = kWarpThreads / stream.unitVectors;
  Value inUnit = arith::DivUIOp::create(b, loc, getLane(), i32(stream.unitVectors));
  Value first =
      mul(arith::DivUIOp::create(b, loc, unit, i32(stream.unitsPerRow)), i32(stream.unitRows));
  Value vector = add(
      mul(arith::RemUIOp::create(b, loc, unit, i32(stream.unitsPerRow)), i32(stream.unitVectors)),
      arith::RemUIOp::create(b, loc, getLane(), i32(stream.unitVectors)));
  Value row = add(first, inUnit);
  Value source = placeIn(narrow, stages.from, row, vector),
        target = placeIn(wide, stages.to, row, vector);
  // Returns the place `rows` rows below `place`.
  auto below = [&](VectorType tile, Value place, int64_t rows) {
    VectorLayout layout(tile);
    Value at = arith::XOrIOp::create(
        b, loc, place, i32(rows / layout.rowsPerLine % layout.chunks * layout.vectorsPerChunk));
    return toIndex(add(at, i32(rows * layout.vectorsPerRow)));
  };
  SmallVector<Value> sources, targets, scales;
  for (int64_t i = 0; i < kAtOnce; ++i) {
    sources.push_back(below(narrow, source, i * atOnce));
    targets.push_back(below(wide, target, i * atOnce));
    Value rowInUnit = add(inUnit, i32(i * atOnce));
    if (stream.held)
      scales.push_back(takeHeldScale(stream, held, turn, rowInUnit));
    else if (load.getScales())
      scales.push_back(loadScale(stream, mapping, add(first, rowInUnit), vector));
  }
  ConvertElementsOp::create(b, loc, vectors.from, sources, scales, vectors.to, targets);
}

/// Converts the warp's vectors of a tile that has units.
void ConverterBuilder::convertUnits(const Stream &stream, ValueRange held, IRMapping &mapping,
                                    const Stages &stages) {
  Value left = sub(i32(stream.units + kWarps - 1), getFirstUnit(stream));
  Value turns = arith::DivUIOp::create(b, loc, left, i32(kWarps));
  auto loop = scf::ForOp::create(b, loc, i32(0), turns, i32(1));
  keepRolled(loop);
  OpBuilder::InsertionGuard guard(b);
  b.setInsertionPointToStart(loop.getBody());
  IRMapping inLoop = mapping;
  convertUnit(stream, held, inLoop, stages, loop.getInductionVar());
}

/// Converts the warp's vectors of a tile without units.
void ConverterBuilder::convertVectors(const Stream &stream, IRMapping &mapping,
                                      const Stages &stages) {
  int64_t turns = stream.vectors / kThreads, looped = turns / kAtOnce * kAtOnce;
  if (looped) {
    // Unrolled, the addresses of all vectors would be computed before the first step.
    auto loop = scf::ForOp::create(b, loc, i32(0), i32(looped), i32(kAtOnce));
    keepRolled(loop);
    OpBuilder::InsertionGuard guard(b);
    b.setInsertionPointToStart(loop.getBody());
    IRMapping inLoop = mapping;
    convert(stream, inLoop, stages, loop.getInductionVar(), kAtOnce);
  }
  if (looped < turns)
    convert(stream, mapping, stages, i32(looped), turns - looped);
  // Not all threads have a last vector.
  if (int64_t last = stream.vectors % kThreads) {
    auto mine = scf::IfOp::create(b, loc, less(block.thread, index(kWarpThreads + last)),
                                  /*withElseRegion=*/false);
    OpBuilder::InsertionGuard guard(b);
    b.setInsertionPointToStart(mine.thenBlock());
    convert(stream, mapping, stages, i32(turns), 1);
  }
}

/// Transposes the warp's parts of a tile of f8: 16 rows and 32 columns each. Keys that no query
/// sees become zeros.
void ConverterBuilder::transpose(const Stream &stream, IRMapping &mapping, const Stages &stages) {
  constexpr int64_t kRows = 16, kColumns = 32;
  LoadTileOp load = stream.load;
  VectorType tile = getCopiedType(load);
  int64_t perRow = tile.getDimSize(1) / kColumns, parts = tile.getDimSize(0) / kRows * perRow;
  const BlockValues::Source &tiles = block.sources[stream.number];
  Value source = tileAt(tiles.from, toIndex(stages.from)),
        target = tileAt(tiles.to, toIndex(stages.to));
  LeftOut seen = getLeftOutInBlock(load);
  Value begin, end, isPartial;
  if (seen.begin || seen.end) {
    Value first =
        toI32(mul(clone(load.getIndices()[*load.getRowDim()], mapping), load.getInnerRows()));
    begin = seen.begin ? sub(toI32(clone(seen.begin, mapping)), first) : i32(0);
    end = seen.end ? sub(toI32(clone(seen.end, mapping)), first) : i32(tile.getDimSize(0));
    isPartial =
        arith::OrIOp::create(b, loc, less(i32(0), begin), less(end, i32(tile.getDimSize(0))));
  }
  auto build = [&](Value from, Value to) {
    auto loop = scf::ForOp::create(b, loc, getFirstUnit(stream), i32(parts), i32(kWarps));
    keepRolled(loop);
    OpBuilder::InsertionGuard guard(b);
    b.setInsertionPointToStart(loop.getBody());
    Value part = loop.getInductionVar();
    Value row = mul(arith::DivUIOp::create(b, loc, part, i32(perRow)), i32(kRows)),
          column = mul(arith::RemUIOp::create(b, loc, part, i32(perRow)), i32(kColumns));
    hopper::TransposeOp::create(b, loc, source, row, column, from, to, target);
  };
  if (!isPartial)
    return build(Value(), Value());
  auto partial = scf::IfOp::create(b, loc, isPartial, /*withElseRegion=*/true);
  OpBuilder::InsertionGuard guard(b);
  b.setInsertionPointToStart(partial.thenBlock());
  build(begin, end);
  b.setInsertionPointToStart(partial.elseBlock());
  build(Value(), Value());
}

ConverterBuilder::Stages ConverterBuilder::findStages(const Stream &stream, Value now) {
  return {toI32(slotOf(now, plan.memory.sources[stream.number]->stages)),
          toI32(slotOf(now, plan.memory.rings[stream.number].stages))};
}

/// Waits until the tile of step `now` (i32) is loaded and the stage for its elements is free.
ConverterBuilder::Stages ConverterBuilder::awaitStages(const Stream &stream, Value now) {
  const RingPlan &ring = plan.memory.rings[stream.number],
                 &source = *plan.memory.sources[stream.number];
  Stages stages = findStages(stream, now);
  hopper::BarrierWaitOp::create(b, loc, block.barriers,
                                add(toIndex(stages.from), index(source.full)),
                                parityOf(now, source.stages));
  // In the first turn, the wait falls through.
  hopper::BarrierWaitOp::create(b, loc, block.barriers, add(toIndex(stages.to), index(ring.empty)),
                                parityOf(now, ring.stages, /*inverted=*/true));
  return stages;
}

/// Converts the tile of step `now`, i32, without signaling it.
ConverterBuilder::Stages ConverterBuilder::convertTile(const Stream &stream, ValueRange held,
                                                       IRMapping mapping, Value now) {
  Stages stages = awaitStages(stream, now);
  if (isTransposed(stream.load))
    transpose(stream, mapping, stages);
  else if (stream.unitRows)
    convertUnits(stream, held, mapping, stages);
  else
    convertVectors(stream, mapping, stages);
  return stages;
}

/// Signals that the warp has converted its part of a tile. A fence precedes it.
void ConverterBuilder::signal(const Stream &stream, const Stages &stages) {
  int64_t empty = plan.memory.sources[stream.number]->empty,
          full = plan.memory.rings[stream.number].full;
  for (Value barrier :
       {add(toIndex(stages.from), index(empty)), add(toIndex(stages.to), index(full))})
    hopper::WarpArriveOp::create(b, loc, block.barriers, barrier);
}

/// Returns the mapping of the values of the step at `position` of the tiles, or of their list.
IRMapping ConverterBuilder::mapTo(const IRMapping &mapping, Value position) {
  IRMapping mapped = mapping;
  TileLoopOp program = plan.loop;
  if (program.getList()) {
    SmallVector<Value> at;
    for (Value outer : program.getListIndices())
      at.push_back(clone(outer, mapped));
    at.push_back(position);
    position = toIndex(memref::LoadOp::create(b, loc, program.getList(), at));
  }
  mapped.map(program.getTile(), position);
  return mapped;
}

/// Converts the tiles of one interval, which the producer thread loads. Returns the step after it.
///
/// Products read the tile of the last stream one step later than that of the first one. It is
/// converted one step later too: otherwise, it would have to wait for a stage in which products
/// still read the tile of the last step, and products would wait for the tile.
Value ConverterBuilder::convertInterval(IRMapping mapping, Value slot, Value interval, Value step) {
  SharedRangeBuilder sharedRanges(b, plan, block);
  TileRange range = plan.sharesIntervals
                        ? sharedRanges.withStep(sharedRanges.boundsOf(mapping, interval), interval)
                        : sharedRanges.read(slot, interval, /*byWarp=*/true);
  SmallVector<Stream> streams;
  for (auto [i, load] : llvm::enumerate(plan.streams))
    if (isRewritten(load))
      streams.push_back(Stream(plan, i));
  const Stream *ahead = streams.size() > 1 ? &streams.front() : nullptr, &last = streams.back();
  Value one = index(1), final = sub(range.end, one);
  auto loadHeld = [&](const Stream &stream, Value position) {
    return stream.held ? loadHeldScales(stream, mapTo(mapping, position)) : SmallVector<Value>();
  };
  auto mapIfNeeded = [&](const Stream &stream, Value position) {
    LoadTileOp load = stream.load;
    bool isNeeded = isTransposed(load) || (load.getScales() && !stream.held);
    return isNeeded ? mapTo(mapping, position) : mapping;
  };
  auto stepOf = [&](Value position) { return toI32(add(sub(position, range.begin), step)); };
  // Without a tile, there may be no scale.
  SmallVector<Type> types((ahead ? ahead->held : 0) + last.held, b.getF32Type());
  auto any = scf::IfOp::create(b, loc, types, less(range.begin, range.end),
                               /*withElseRegion=*/!types.empty());
  {
    OpBuilder::InsertionGuard guard(b);
    b.setInsertionPointToStart(any.thenBlock());
    SmallVector<Value> first;
    if (ahead) {
      SmallVector<Value> held = loadHeld(*ahead, range.begin);
      first = loadHeld(*ahead, min(add(range.begin, one), final));
      Stages stages =
          convertTile(*ahead, held, mapIfNeeded(*ahead, range.begin), stepOf(range.begin));
      hopper::FenceAsyncSharedOp::create(b, loc);
      signal(*ahead, stages);
    }
    llvm::append_range(first, loadHeld(last, range.begin));
    if (!types.empty()) {
      scf::YieldOp::create(b, loc, first);
      b.setInsertionPointToStart(any.elseBlock());
      Value zero = arith::ConstantOp::create(b, loc, b.getF32FloatAttr(0));
      scf::YieldOp::create(b, loc, SmallVector<Value>(types.size(), zero));
    }
  }
  auto loop = scf::ForOp::create(b, loc, range.begin, range.end, one, any.getResults());
  keepRolled(loop);
  OpBuilder::InsertionGuard guard(b);
  b.setInsertionPointToStart(loop.getBody());
  // The scales of the next step are loaded while this step is converted.
  Value position = loop.getInductionVar(), following = add(position, one);
  ValueRange held = loop.getRegionIterArgs();
  SmallVector<Value> next;
  if (ahead)
    next = loadHeld(*ahead, min(add(following, one), final));
  llvm::append_range(next, loadHeld(last, min(following, final)));
  Value more = less(following, range.end);
  auto ifMore = [&](function_ref<void()> build) {
    auto guarded = scf::IfOp::create(b, loc, more, /*withElseRegion=*/false);
    OpBuilder::InsertionGuard guard(b);
    b.setInsertionPointToStart(guarded.thenBlock());
    build();
  };
  if (ahead)
    ifMore([&] {
      convertTile(*ahead, held.take_front(ahead->held), mapIfNeeded(*ahead, following),
                  stepOf(following));
    });
  Stages stages =
      convertTile(last, held.take_back(last.held), mapIfNeeded(last, position), stepOf(position));
  // A fence waits for all memory accesses of the warp, so that there is one for both tiles.
  hopper::FenceAsyncSharedOp::create(b, loc);
  signal(last, stages);
  if (ahead)
    ifMore([&] { signal(*ahead, findStages(*ahead, stepOf(following))); });
  if (!types.empty())
    scf::YieldOp::create(b, loc, next);
  b.setInsertionPointAfter(loop);
  return add(step, sub(range.end, range.begin));
}

void ConverterBuilder::build() {
  // LLVM moves no shuffle out of a loop.
  Value warp = toI32(fromLane0(div(block.thread, index(kWarpThreads))));
  for (int64_t i = 0; i < kWarps; ++i)
    firstUnits.push_back(
        arith::RemUIOp::create(b, loc, add(warp, i32(kWarps - 1 + i)), i32(kWarps)));
  forEachPublishedGroup(
      /*byWarp=*/true,
      [&](Value barrier) { hopper::WarpArriveOp::create(b, loc, block.barriers, barrier); },
      [&](const Group &group, Value slot, Value step) {
        return forEachPass(GridBuilder(b, plan, block).numbersOf(group, index(0)), step,
                           [&](const IRMapping &mapping, Value interval, Value step) {
                             return convertInterval(mapping, slot, interval, step);
                           });
      });
}
