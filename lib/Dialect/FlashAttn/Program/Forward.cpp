//===- Forward.cpp - flashattn-tile: the forward pass as tile programs ----===//
//
// Builds the grid of programs and the order of their operations. Operands defines tiles in memory,
// Scores defines the scores, and OnlineSoftmax the softmax.
//
//===----------------------------------------------------------------------===//

#include "CompactKeys.h"
#include "OnlineSoftmax.h"
#include "Operands.h"
#include "ScoreMod.h"
#include "Scores.h"
#include "SplitKeys.h"
#include "TileLists.h"
#include "flashattn/Analysis/MaskShape.h"
#include "flashattn/Analysis/MaskTiles.h"
#include "flashattn/Dialect/FlashAttn/Transforms/Transforms.h"
#include "mlir/Dialect/MemRef/IR/MemRef.h"
#include "mlir/Dialect/SCF/IR/SCF.h"
#include "mlir/IR/PatternMatch.h"

#include <cmath>

using namespace mlir;
using namespace mlir::flashattn;

namespace {

/// Builds the programs of one attention op. With split-KV, the op's schedule is that of programs of
/// splits, and `given` is the original schedule.
class ForwardBuilder : TileBuilder {
public:
  ForwardBuilder(AttentionOp op, ScheduleAttr given, OpBuilder &b)
      : TileBuilder(b, op.getLoc()), op(op), given(given), schedule(op.getScheduleAttr()),
        operands(b, op), sizes(operands.getSizes()), all(operands.getAll()),
        counted(operands, TileAxis::Keys, all),
        visible(op.getVisibleSets()), to{op.getOInit(), op.getLseInit(), op.getLayout(),
                                         cast<FloatType>(
                                             op.getOInit().getType().getElementType())} {}

  ProgramOp build();

private:
  // Split-KV.
  Value estimateKeyTiles(int64_t columns);
  void makeSplits(Value programs);
  void buildWithoutSplits(Value programs);
  void combineSplits();
  // Lists of key tiles.
  void makeLists(Value heads, Value queryTiles);
  SmallVector<Value> getListPlace(const ProgramPoint &at) const;

  /// Some queries, and the first and the last position of those that exist.
  struct Queries {
    Operands::RowTile rows;
    Value first, last;
  };
  Queries getQueries(const Sequence &sequence, Value head, Value row, int64_t rows) const;
  SmallVector<TileInterval> getIntervals(const Sequence &sequence, const Queries &queries,
                                         int64_t columns,
                                         std::optional<Operands::RowTile> keys = {}) const;
  SmallVector<TileInterval> getPages(const Sequence &sequence, const Queries &queries) const;
  void buildProgram(ProgramPoint at, const ScoreBuilder &scores, const OnlineSoftmax &softmax);
  RowState loopOverKeys(const OnlineSoftmax &softmax, const ScoreBuilder &scores,
                        const ProgramPoint &at, Value position, ArrayRef<TileInterval> intervals,
                        ArrayRef<TileInterval> pages, Value q);

  mutable AttentionOp op; ///< a handle, whose accessors are not const
  ScheduleAttr given, schedule;
  Operands operands;
  const Sizes &sizes;
  Sequence all;
  CountedRows counted; ///< keys that have an effect
  SmallVector<IntegerSet> visible;
  Destination to;
  /// With split-KV: the number of splits, and their results.
  Value parts, partsBuffer, oParts, lseParts, lseRests;
  /// With lists of key tiles: the head tiles of programs that share a list.
  std::optional<TileLists> lists;
  int64_t listHeads = 1;
};

} // namespace

//===----------------------------------------------------------------------===//
// Split-KV
//===----------------------------------------------------------------------===//

/// Builds a branch for a single split, which needs no merge: the program without splits. The code
/// that follows is for several splits.
void ForwardBuilder::buildWithoutSplits(Value programs) {
  // S8: the number of splits of a batch must not decide how its rows are rounded.
  if (op.getInvariant())
    return;
  // With `attn_mask`, a kernel for lists would cost more than a merge. With packed heads, only a
  // merge applies sinks. On the CPU, a merge is a loop, not a launch.
  if (!schedule.getMapping().isOnGPU() || op.getAttnMask() ||
      (op.getSinkLogits() && schedule.getPack() > 1))
    return;
  Value isOne = arith::CmpIOp::create(b, loc, arith::CmpIPredicate::eq, parts, index(1));
  auto branch = scf::IfOp::create(b, loc, isOne, /*withElseRegion=*/true);
  b.setInsertionPointToStart(branch.thenBlock());
  auto buildWhole = [&](ScheduleAttr ofWhole) {
    auto whole = cast<AttentionOp>(b.clone(*op));
    whole.setScheduleAttr(ofWhole);
    ForwardBuilder(whole, ofWhole, b).build();
    whole.erase();
  };
  if (given.getSmallBlocksPerSM() != 0) {
    Value isNarrow =
        PrefersSmallBlocksOp::create(b, loc, programs, estimateKeyTiles(given.getTileN()), given);
    auto blocks = scf::IfOp::create(b, loc, isNarrow, /*withElseRegion=*/true);
    b.setInsertionPointToStart(blocks.thenBlock());
    buildWhole(given.withSmallBlocks());
    b.setInsertionPointToStart(blocks.elseBlock());
  }
  buildWhole(given.withSplits(1));
  b.setInsertionPointToStart(branch.elseBlock());
}

/// Returns about how many tiles of `columns` keys a program visits at most. A window shows few of
/// the keys for which a cache has room.
Value ForwardBuilder::estimateKeyTiles(int64_t columns) {
  Value tiles = ceilDiv(sizes.keys, columns);
  std::optional<int64_t> width = classifyMask(visible).width;
  if (!width)
    return tiles;
  // Each interval begins and ends with a partial tile.
  int64_t keys = *width + operands.getPositions(), partial = 2 * visible.size();
  return min(tiles, index(llvm::divideCeil(keys, columns) + partial));
}

/// Computes the number of splits and allocates their results; `programs` is the number of programs
/// without splits.
void ForwardBuilder::makeSplits(Value programs) {
  // S8: a split has a fixed number of tiles, so that there must be splits for all keys.
  int64_t columns = schedule.getTileN();
  if (op.getInvariant())
    parts = max(ceilDiv(sizes.keys, columns * given.getMinSplitTiles()), index(1));
  else
    parts = CountSplitsOp::create(b, loc, programs, estimateKeyTiles(columns), given);
  buildWithoutSplits(programs);
  // One allocation for all: on a GPU, an allocation costs the host as much as a launch.
  constexpr int64_t kFloatBytes = 4;
  Value rows = parts;
  SmallVector<int64_t> shape = {ShapedType::kDynamic};
  SmallVector<Value> dynamicSizes = {parts};
  for (Value size : {sizes.batches, sizes.heads, operands.getRowsPerSequence(TileAxis::Queries)}) {
    rows = mul(rows, size);
    shape.push_back(getConstantIntValue(size).value_or(ShapedType::kDynamic));
    if (ShapedType::isDynamic(shape.back()))
      dynamicSizes.push_back(size);
  }
  auto bytesOf = [&](int64_t columns) { return mul(rows, columns * kFloatBytes); };
  auto bytesType = MemRefType::get({ShapedType::kDynamic}, b.getI8Type());
  FloatType f32 = b.getF32Type();
  partsBuffer = memref::AllocOp::create(b, loc, bytesType, ValueRange{bytesOf(op.getDv() + 2)});
  auto viewRows = [&](int64_t column) -> Value {
    return memref::ViewOp::create(b, loc, MemRefType::get(shape, f32), partsBuffer, bytesOf(column),
                                  dynamicSizes);
  };
  lseParts = viewRows(op.getDv());
  lseRests = viewRows(op.getDv() + 1);
  shape.push_back(op.getDv());
  oParts = memref::ViewOp::create(b, loc, MemRefType::get(shape, f32), partsBuffer, index(0),
                                  dynamicSizes);
  // To programs, the splits are additional batches.
  to.o = memref::CollapseShapeOp::create(b, loc, oParts,
                                         ArrayRef<ReassociationIndices>{{0, 1}, {2}, {3}, {4}});
  auto joinParts = [&](Value rows) -> Value {
    return memref::CollapseShapeOp::create(b, loc, rows,
                                           ArrayRef<ReassociationIndices>{{0, 1}, {2}, {3}});
  };
  to.lse = joinParts(lseParts);
  to.lseRest = joinParts(lseRests);
  to.layout = Layout::BHSD;
  to.type = f32;
}

/// Merges the results of all splits, after their programs.
void ForwardBuilder::combineSplits() {
  CombineOp::create(b, loc, TypeRange(), oParts, lseParts, lseRests, op.getSinkLogits(),
                    op.getCuSeqlensQ(), op.getOInit(), op.getLseInit(), op.getLayoutAttr(),
                    op.getMinSeqlenQAttr());
  memref::DeallocOp::create(b, loc, partsBuffer);
}

//===----------------------------------------------------------------------===//
// Keys
//===----------------------------------------------------------------------===//

/// Returns the `rows` queries of `head` from `row` on.
ForwardBuilder::Queries ForwardBuilder::getQueries(const Sequence &sequence, Value head, Value row,
                                                   int64_t rows) const {
  Value first = add(row, sequence.offset), end = min(add(row, index(rows)), sequence.queries);
  return {{head, row, rows}, first, sub(add(end, sequence.offset), index(1))};
}

/// Returns the tiles of `columns` keys that the mask shows to `queries`. See Operands::findKeys for
/// `tile`.
SmallVector<TileInterval>
ForwardBuilder::getIntervals(const Sequence &sequence, const Queries &queries, int64_t columns,
                             std::optional<Operands::RowTile> tile) const {
  // A tile without a query sees no key.
  Value keys = sequence.keys;
  if (op.hasPackedSequences() || op.getQLen())
    keys = select(less(queries.last, queries.first), index(0), keys);
  SymbolValues symbols = operands.getSymbols(sequence, queries.rows, tile);
  symbols.nk = keys;
  return buildKeyIntervals(b, loc, visible, queries.first, queries.last, symbols, columns,
                           /*constants=*/schedule.compactsKV());
}

/// Returns the pages of `sequence` with a key that the mask shows to `queries` (P2), as intervals.
SmallVector<TileInterval> ForwardBuilder::getPages(const Sequence &sequence,
                                                   const Queries &queries) const {
  int64_t size = op.getK().getType().getDimSize(op.getSeqDim());
  if (!sequence.leftpad)
    return getIntervals(sequence, queries, size);
  SmallVector<TileInterval> pages = getIntervals(sequence, queries, /*columns=*/1);
  for (TileInterval &keys : pages) {
    keys.begin = div(add(keys.begin, sequence.leftpad), index(size));
    keys.end = ceilDiv(add(keys.end, sequence.leftpad), size);
  }
  return pages;
}

/// Lists the key tiles of the mask's intervals that contain a visible pair, with one list for all
/// programs that a block runs side by side: they share their tiles. Programs with the same
/// `attn_mask` and mask share a list, too.
void ForwardBuilder::makeLists(Value heads, Value queryTiles) {
  listHeads = schedule.countProgramsPerBlock(ProgramAxis::Head);
  int64_t positions = operands.getPositions(),
          together = schedule.countProgramsPerBlock(ProgramAxis::QueryTile);
  ListedPrograms programs{TileAxis::Queries, queryTiles, positions, together * positions, together};
  int64_t rows = together * positions, columns = schedule.getTileN();
  Value attnMask = op.getAttnMask(), numbers = ceilDiv(queryTiles, together);
  if (attnMask && AttentionOp::isBroadcastDim(attnMask, 2) && !op.getMask())
    numbers = index(1);
  auto [batches, ofHeads] = countLists(op, operands, TileAxis::Queries, ceilDiv(heads, listHeads));
  auto find = [&](ValueRange place, Value tile) {
    auto [sequence, first] = programs.locate(operands, all, place);
    // A list for several heads knows none of their own values.
    Value head = listHeads == 1 ? place[1] : Value();
    std::optional<Operands::RowTile> keys;
    if (tile)
      keys = {head ? div(head, sizes.headTiles) : Value(), mul(tile, columns), columns};
    return getIntervals(sequence, getQueries(sequence, head, first, rows),
                        schedule.getVisitedKeys(), keys);
  };
  lists.emplace();
  lists->build(
      b, loc, attnMask, {batches, ofHeads, numbers}, TileAxis::Keys, sizes.keys,
      {listHeads, rows, columns}, [&](ValueRange place) { return find(place, Value()); }, find);
  lists->programs = programs;
}

/// Returns the position of a program's list: batch, head tile and query tile.
SmallVector<Value> ForwardBuilder::getListPlace(const ProgramPoint &at) const {
  return {at.sequence.batch, listHeads == 1 ? at.head : divide32(at.head, index(listHeads)),
          lists->programs.getNumber(operands, at.sequence, at.tile)};
}

RowState ForwardBuilder::loopOverKeys(const OnlineSoftmax &softmax, const ScoreBuilder &scores,
                                      const ProgramPoint &at, Value position,
                                      ArrayRef<TileInterval> intervals,
                                      ArrayRef<TileInterval> pages, Value q) {
  const Sequence &sequence = at.sequence;
  RowState state = softmax.begin();
  if (intervals.empty())
    return state;
  // With compacted keys, a tile number counts along their sequence.
  CompactKeys compact;
  if (schedule.compactsKV()) {
    compact = compactIntervals(b, loc, intervals, schedule.getTileN());
    intervals = compact.interval;
  }
  // Memory past kv_len exists and must not be read. A product sums over rows of V, so that rows of
  // keys that no query sees are read as 0. No product sums over rows of K.
  IndexRange existing{Value(), op.getKvLen() ? sequence.keys : Value()},
      seen = counted.get(sequence);
  auto buildMap = [&](const IndexRange &rows) {
    return op.hasPages() ? operands.buildPageMap(rows, sequence, pages)
                         : operands.buildRowMap(rows, compact.segments);
  };
  Value keyRows = buildMap(existing), valueRows = buildMap(seen);
  Value keyScale = operands.loadScale(op.getKScale(), at);
  SmallVector<Value> place;
  if (lists)
    place = getListPlace(at);
  TileLoopOp loop =
      createTileLoop(b, loc, lists, intervals, place, /*when=*/Value(), state.values());
  OpBuilder::InsertionGuard guard(b);
  b.setInsertionPointToStart(loop.getBody());
  RowState inner = state.with(SmallVector<Value>(loop.getState().begin(), loop.getState().end()));
  Value tile = loop.getTile(), key = mul(tile, schedule.getTileN());
  Value k = operands.loadKeys(op.getK(), at, tile, keyRows, /*ones=*/false, op.getKScale());
  Value products = scores.multiply(q, k);
  if (keyScale)
    products = arith::MulFOp::create(b, loc, products,
                                     broadcast(cast<VectorType>(products.getType()), keyScale));
  StageOp::create(b, loc);
  Value shaped = scores.shape(products, {sequence, at.head, at.tile, tile, position, key, keyRows});
  SmallVector<Value> factors;
  // Recomputed scores are products alone.
  if (schedule.getMapping().rescalesLazily() && !keyScale)
    factors = {q, k};
  Value p = softmax.step(inner, shaped, factors, [&](ValueRange factors) {
    return scores.multiply(factors.front(), factors.back());
  });
  // With warp specialization, this product runs one step late. It is issued together with Q K^T of
  // the next step, on which it does not depend, and overlaps the softmax of that step.
  StageOp::create(b, loc, /*lag=*/schedule.getLag());
  Value v = operands.loadKeys(op.getV(), at, tile, valueRows, schedule.sumsByProducts(op.getDv()),
                              op.getVScale());
  softmax.addProduct(inner, p, v);
  TileYieldOp::create(b, loc, inner.values());
  return state.with(loop.getResults());
}

//===----------------------------------------------------------------------===//
// Programs
//===----------------------------------------------------------------------===//

/// Builds the body of the program at `at`, whose `tile` also counts splits.
void ForwardBuilder::buildProgram(ProgramPoint at, const ScoreBuilder &scores,
                                  const OnlineSoftmax &softmax) {
  Value part;
  if (parts) {
    Value number = at.tile;
    at.tile = divide32(number, parts);
    part = sub(number, mul(at.tile, parts));
    at.outBatch = add(mul(part, sizes.batches), at.outBatch);
  }
  at.kvHead = div(at.head, sizes.headTiles);
  at.sequence = operands.getSequence(all, at.sequence.batch, TileAxis::Queries);
  const Sequence &sequence = at.sequence;
  Value row = mul(at.tile, operands.getPositions());
  Queries queries = getQueries(sequence, at.head, row, operands.getPositions());
  // Programs that share tiles of compacted keys compact the keys that any of the programs sees.
  int64_t together = schedule.countProgramsPerBlock(ProgramAxis::QueryTile);
  int64_t rows = together * operands.getPositions();
  Queries seeing = queries;
  if (together > 1 && schedule.compactsKV())
    seeing = getQueries(sequence, at.head, mul(divide32(at.tile, index(together)), rows), rows);
  // S6: rows of other sequences must not take part in the votes of a warp that change exponents.
  Value q = operands.loadQueries(at, /*exist=*/true);
  SmallVector<TileInterval> intervals, pages;
  if (lists)
    intervals = {lists->getInterval(b, loc, getListPlace(at))};
  else
    intervals = getIntervals(sequence, seeing, schedule.getVisitedKeys());
  // A block whose first program is this one reads the pages that any of its programs sees.
  if (op.hasPages())
    pages = getPages(sequence, getQueries(sequence, at.head, row, rows));
  int64_t splitTiles = given.getMinSplitTiles();
  if (parts && op.getInvariant())
    intervals = takeTiles(b, loc, intervals, mul(part, splitTiles), index(splitTiles));
  else if (parts)
    intervals = takeShare(b, loc, intervals, part, parts);

  RowState state = loopOverKeys(softmax, scores, at, queries.first, intervals, pages, q);

  FinishedRows finished = softmax.finish(state, [&]() -> Value {
    // With split-KV, only the merge applies the sink.
    if (!op.getSinkLogits() || parts)
      return {};
    return memref::LoadOp::create(b, loc, op.getSinkLogits(), at.head);
  });
  if (Value scale = operands.loadScale(op.getVScale(), at)) {
    auto type = cast<VectorType>(finished.out.getType());
    Value scaled = arith::MulFOp::create(b, loc, finished.out, broadcast(type, scale));
    // A6: the scale may be NaN if a row sees no key.
    Value isEmpty = arith::CmpFOp::create(b, loc, arith::CmpFPredicate::OEQ, finished.base,
                                          minusInf(f32Vector({type.getDimSize(0)})));
    finished.out = arith::SelectOp::create(b, loc, alongRow(isEmpty, type.getDimSize(1)),
                                           splat(type, 0), scaled);
  }
  if (!to.type.isF32())
    finished.out = arith::TruncFOp::create(
        b, loc, VectorType::get(cast<VectorType>(finished.out.getType()).getShape(), to.type),
        finished.out);
  operands.storeOutput(operands.hideMissingQueries(finished.out, at, 0), to, at);
  if (to.lseRest) {
    auto [lse, rest] = softmax.logSumExpParts(finished);
    operands.storePerRow(lse, to.lse, to, at);
    operands.storePerRow(rest, to.lseRest, to, at);
  } else if (to.lse) {
    operands.storePerRow(operands.hideMissingQueries(softmax.logSumExp(finished), at, -INFINITY),
                         to.lse, to, at);
  }
}

ProgramOp ForwardBuilder::build() {
  // Programs of a block share keys, and so belong to one sequence.
  int64_t positions = operands.getPositions(),
          whole = positions * schedule.countProgramsPerBlock(ProgramAxis::QueryTile);
  Value tiles = operands.countTiles(TileAxis::Queries, positions, whole), heads = sizes.heads;
  if (schedule.getPack() > 1)
    heads = mul(sizes.kvHeads, sizes.headTiles);
  if (schedule.getSplits() > 1) {
    makeSplits(mul(mul(sizes.batches, heads), tiles));
    tiles = mul(tiles, parts);
  }
  operands.makeRanges(all, positions, schedule.getTileN(),
                      /*copiesKeys=*/schedule.getMapping().loadsKeyValuesAhead());
  // Splits are for few queries, for which another kernel costs more than it saves.
  if (schedule.getSplits() == 1 && TileLists::areUsed(op, TileAxis::Keys))
    makeLists(heads, tiles);
  operands.packHeads(to);
  // Built outside the program: values that depend only on the scale are the same for all programs.
  ScoreBuilder scores(b, op, TileAxis::Keys, operands.getPattern(),
                      /*fullTilesKeep=*/lists.has_value());
  scores.useKeyRanges(operands.getKeyRanges());
  OnlineSoftmax softmax(b, loc, schedule, operands.padColumns(op.getDv()), scores.getFactor(),
                        /*wantsLse=*/to.lse != nullptr);
  ProgramOp program =
      operands.createProgram(TileAxis::Queries, heads, tiles, positions, whole, schedule);
  program.setUnusedRowHalf(operands.leavesRowHalfUnused());
  OpBuilder::InsertionGuard guard(b);
  b.setInsertionPointToStart(program.getBody());
  Value batch = program.getNumbers()[0];
  Sequence sequence;
  sequence.batch = batch;
  buildProgram({sequence, program.getNumbers()[1], /*kvHead=*/Value(), program.getNumbers()[2],
                /*outBatch=*/batch},
               scores, softmax);
  b.setInsertionPointAfter(program);
  if (parts)
    combineSplits();
  operands.freeRanges();
  if (lists)
    lists->free(b, loc);
  return program;
}

FailureOr<ProgramOp> mlir::flashattn::tileAttention(RewriterBase &rewriter, AttentionOp op) {
  if (!op.hasPureBufferSemantics())
    return op.emitOpError() << "expected memrefs; bufferize before tiling";
  if (!op.getSchedule())
    return op.emitOpError() << "expected a schedule; run flashattn-select-schedule before tiling";
  if (failed(verifyScoreModVectorizes(op)))
    return failure();
  warnHiddenRows(op);
  remarkInexactTiles(op, op.getScheduleAttr().getVisitedKeys());
  OpBuilder::InsertionGuard guard(rewriter);
  rewriter.setInsertionPoint(op);
  ScheduleAttr given = op.getScheduleAttr();
  op.setScheduleAttr(given.forSplits());
  ProgramOp program = ForwardBuilder(op, given, rewriter).build();
  rewriter.eraseOp(op);
  return program;
}
