//===- KernelLoops.cpp - convert-flashattn-kernels-to-cpu -----------------===//
//
// Kernels before and after the tile programs: lists of key tiles, ranges of values, and the merge of
// split-KV.
//
//===----------------------------------------------------------------------===//

#include "flashattn/Conversion/Passes.h"
#include "flashattn/Dialect/FlashAttn/Program/AttnMaskScan.h"
#include "flashattn/Dialect/FlashAttn/Program/Kernels.h"
#include "flashattn/Dialect/FlashAttn/Program/Merge.h"

namespace mlir::flashattn {
#define GEN_PASS_DEF_CONVERTFLASHATTNKERNELSTOCPU
#include "flashattn/Conversion/Passes.h.inc"
} // namespace mlir::flashattn

using namespace mlir;
using namespace mlir::flashattn;

//===----------------------------------------------------------------------===//
// Lists of key tiles
//===----------------------------------------------------------------------===//

namespace {

/// Builds a program for each list.
class ListLoops : AttnMaskScan {
public:
  ListLoops(OpBuilder &b, ListTilesOp op) : AttnMaskScan(b, op) {}

  void build();

private:
  Found readElements(ArrayRef<Value> row, Value begin, Value end, Found found);
  Found readRow(ArrayRef<Value> row, Value key, Found found);
  Found readTile(const List &list, const ListedTile &tile);
};

} // namespace

/// Reads the elements of a row in [begin, end), or up to the end of the row.
AttnMaskScan::Found ListLoops::readElements(ArrayRef<Value> row, Value begin, Value end,
                                            Found found) {
  auto loop = scf::ForOp::create(b, loc, begin, minUnsigned(dim(attnMask, 3), end), index(1),
                                 ValueRange{found.any, found.all});
  OpBuilder::InsertionGuard guard(b);
  b.setInsertionPointToStart(loop.getBody());
  SmallVector<Value> at(row);
  at.push_back(loop.getInductionVar());
  Value element = memref::LoadOp::create(b, loc, attnMask, at);
  scf::YieldOp::create(b, loc,
                       ValueRange{either(loop.getRegionIterArg(0), element),
                                  both(loop.getRegionIterArg(1), element)});
  return {loop.getResult(0), loop.getResult(1)};
}

/// Reads the elements of a tile's row from `key` on: as one vector, or one by one at the row's end.
AttnMaskScan::Found ListLoops::readRow(ArrayRef<Value> row, Value key, Found found) {
  Value end = add(key, index(tileKeys));
  if (!attnMaskBytes)
    return readElements(row, key, end, found);
  scf::IfOp whole = branch(compare(arith::CmpIPredicate::sle, end, dim(attnMask, 3)));
  OpBuilder::InsertionGuard guard(b);
  b.setInsertionPointToStart(whole.elseBlock());
  Found read = readElements(row, key, end, found);
  scf::YieldOp::create(b, loc, ValueRange{read.any, read.all});
  b.setInsertionPointToStart(whole.thenBlock());
  SmallVector<Value> at(row);
  at.push_back(key);
  Value words = loadWords(at, tileKeys, llvm::Align(1));
  read = judgeWords(words, words);
  scf::YieldOp::create(b, loc, ValueRange{either(found.any, read.any), both(found.all, read.all)});
  return {whole.getResult(0), whole.getResult(1)};
}

/// Reads a tile row by row.
AttnMaskScan::Found ListLoops::readTile(const List &list, const ListedTile &tile) {
  struct Axis {
    unsigned dim;
    Value number;
    int64_t size;
  };
  SmallVector<Value> at = {isSame(0) ? index(0) : list.place[0]};
  std::function<Found(ArrayRef<Axis>, Found)> read = [&](ArrayRef<Axis> axes, Found found) {
    const Axis &axis = axes.front();
    Value begin = firstElement(axis.dim, axis.number, axis.size);
    if (axes.size() == 1)
      return readRow(at, begin, found);
    Value end = minUnsigned(dim(attnMask, axis.dim), add(begin, index(axis.size)));
    auto loop = scf::ForOp::create(b, loc, begin, end, index(1), ValueRange{found.any, found.all});
    OpBuilder::InsertionGuard guard(b);
    b.setInsertionPointToStart(loop.getBody());
    at.push_back(loop.getInductionVar());
    Found inner{loop.getRegionIterArg(0), loop.getRegionIterArg(1)};
    inner = readUntilKnown(inner, [&] { return read(axes.drop_front(), inner); });
    at.pop_back();
    scf::YieldOp::create(b, loc, ValueRange{inner.any, inner.all});
    return Found{loop.getResult(0), loop.getResult(1)};
  };
  auto [rows, keys] = getNumbers(list, tile);
  Axis axes[] = {{1, list.place[1], tileHeads}, {2, rows, tileRows}, {3, keys, tileKeys}};
  return read(axes, {boolean(false), tile.isFull});
}

void ListLoops::build() {
  if (!hasTest() && !isSame(3) && tileKeys % kWord == 0)
    viewAsBytes();
  SmallVector<Value> sizes;
  for (int64_t i = 0; i < 3; ++i)
    sizes.push_back(dim(op.getBounds(), i));
  Value middle = getMiddle();
  ProgramAxis axes[] = {ProgramAxis::Batch, ProgramAxis::Head, ProgramAxis::QueryTile};
  auto program = ProgramOp::create(b, loc, sizes, axes, /*schedule=*/ScheduleAttr());
  b.setInsertionPointToStart(program.getBody());
  List list = enterList(llvm::to_vector_of<Value>(program.getNumbers()));
  auto loop =
      scf::ForOp::create(b, loc, index(0), list.total, index(1), ValueRange{middle, middle});
  {
    OpBuilder::InsertionGuard guard(b);
    b.setInsertionPointToStart(loop.getBody());
    Value begin = loop.getRegionIterArg(0), end = loop.getRegionIterArg(1);
    ListedTile tile = getTile(list, loop.getInductionVar());
    Found found = hasTest() ? testTile(list, tile.number) : readTile(list, tile);
    Value isFull = found.all;
    auto listed = scf::IfOp::create(b, loc, TypeRange{b.getIndexType(), b.getIndexType()},
                                    found.any, /*withElseRegion=*/true);
    scf::YieldOp::create(b, loc, listed.getResults());
    b.setInsertionPointToStart(listed.thenBlock());
    Value before = sub(begin, index(1));
    SmallVector<Value> at = list.place;
    at.push_back(select(isFull, before, end));
    memref::StoreOp::create(b, loc, toI32(tile.number), op.getTiles(), at);
    scf::YieldOp::create(
        b, loc, ValueRange{select(isFull, before, begin), select(isFull, end, add(end, index(1)))});
    b.setInsertionPointToStart(listed.elseBlock());
    scf::YieldOp::create(b, loc, ValueRange{begin, end});
  }
  writeBounds(list.place, toI32(loop.getResult(0)), toI32(loop.getResult(1)));
}

/// Builds a program for each range.
static void buildRanges(OpBuilder &b, TileRangesOp op) {
  RangeBuilder ranges(b, op);
  SmallVector<Value> sizes;
  for (int64_t i = 0; i < 3; ++i)
    sizes.push_back(ranges.dim(op.getRanges(), i));
  ProgramAxis axes[] = {ProgramAxis::Batch, ProgramAxis::Head, ProgramAxis::QueryTile};
  auto program = ProgramOp::create(b, op.getLoc(), sizes, axes, /*schedule=*/ScheduleAttr());
  b.setInsertionPointToStart(program.getBody());
  auto place = llvm::to_vector_of<Value>(program.getNumbers());
  auto [least, greatest] = ranges.reduce(place, ranges.index(0), /*step=*/1);
  ranges.store(place, least, greatest);
}

//===----------------------------------------------------------------------===//
// Merge of split-KV
//===----------------------------------------------------------------------===//

/// Builds a program for each head. It merges one row after another, all columns of a row at once.
static void buildRows(OpBuilder &b, CombineOp op) {
  RowMerger merger(b, op);
  auto size = [&](int64_t i) { return merger.dim(op.getOParts(), i); };
  Value sizes[] = {size(1), size(2)};
  ProgramAxis axes[] = {ProgramAxis::Batch, ProgramAxis::Head};
  auto program = ProgramOp::create(b, op.getLoc(), sizes, axes, /*schedule=*/ScheduleAttr());
  b.setInsertionPointToStart(program.getBody());
  RowMerger::Rows rows = merger.getRows(program.getNumbers()[0]);
  auto loop = scf::ForOp::create(b, op.getLoc(), merger.index(0), rows.count, merger.index(1));
  b.setInsertionPointToStart(loop.getBody());
  SmallVector<Value> row = llvm::to_vector_of<Value>(program.getNumbers());
  row.push_back(loop.getInductionVar());
  int64_t columns = op.getOParts().getType().getDimSize(4);
  Value first = merger.index(0);
  PartialRow merged = merger.mergeParts(merger.mergeSink(row, columns), row, first, columns, first,
                                        /*stride=*/1, /*partsAtOnce=*/1);
  merger.finish(merged, row, rows, first, /*writesLse=*/{});
}

namespace {
struct ConvertFlashAttnKernelsToCPUPass
    : flashattn::impl::ConvertFlashAttnKernelsToCPUBase<ConvertFlashAttnKernelsToCPUPass> {
  void runOnOperation() override {
    if (failed(lowerKernels(getOperation(), buildRows,
                            [](OpBuilder &b, ListTilesOp op) { ListLoops(b, op).build(); },
                            buildRanges)))
      signalPassFailure();
  }
};
} // namespace
