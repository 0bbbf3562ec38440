//===- ListTiles.cpp - the kernels for visible tiles and ranges of values -===//

#include "Kernels.h"
#include "flashattn/Dialect/FlashAttn/Program/AttnMaskScan.h"
#include "mlir/Dialect/Math/IR/Math.h"
#include "mlir/Dialect/MemRef/IR/MemRef.h"
#include "mlir/Dialect/Vector/IR/VectorOps.h"

using namespace mlir;
using namespace mlir::flashattn;

namespace {

constexpr int64_t kWarp = 32;
/// One warp per lane of a warp, so that one ballot covers the tiles of all warps.
constexpr int64_t kWarps = 32;
constexpr int64_t kVector = 16; ///< elements of `attn_mask` that a lane loads at once
/// Kinds of tiles.
constexpr int64_t kHidden = 0, kPartial = 1, kFull = 2;

/// A kernel with one block per list. In each round, it classifies 32 adjacent tiles, and ballots
/// determine each tile's position: its warps read the elements of one tile each or, with a test, the
/// lanes of its only warp test one tile each.
class ListKernel : AttnMaskScan {
public:
  ListKernel(OpBuilder &b, ListTilesOp op) : AttnMaskScan(b, op) {}

  void build();

private:
  /// The range of list positions written so far, i32.
  struct Ends {
    Value begin, end;
  };

  gpu::LaunchOp launchBlocks();
  SmallVector<Value> getOrigin(const List &list, const ListedTile &tile);
  SmallVector<Value> getElement(ArrayRef<Value> origin, Value item, int64_t width);
  Found readItems(ArrayRef<Value> origin, Value first, int64_t width, Found found);
  Found readByWarp(const List &list, const ListedTile &tile, int64_t width);
  Found readTile(const List &list, const ListedTile &tile);
  Value findKind(const List &list, Value number);
  Value shareKinds(Value first, Value own);
  int64_t countWarps() { return hasTest() ? 1 : kWarps; }
  Ends placeTiles(const List &list, Value first, Value kind, Ends ends);

  /// Returns the number of items in a tile of `attn_mask`, of `width` elements each.
  int64_t countItems(int64_t width) {
    return (isSame(1) ? 1 : tileHeads) * getTileRows() * getItemsPerRow(width);
  }
  int64_t getTileRows() { return isSame(2) ? 1 : tileRows; }
  int64_t getItemsPerRow(int64_t width) { return isSame(3) ? 1 : tileKeys / width; }

  /// Returns the number of items that each lane loads at once. More would spill.
  static int64_t countAtOnce(int64_t items) {
    constexpr int64_t kMost = 4;
    return std::min<int64_t>(kMost, llvm::divideCeil(items, kWarp));
  }
  Value equals(Value x, Value y) { return compare(arith::CmpIPredicate::eq, x, y); }

  Value kinds;      ///< kinds of the warps' tiles, double-buffered to save a barrier
  Value warp, lane; ///< index values
  Value laneNumber; ///< the lane, i32
};

} // namespace

/// Returns the indices of a tile's first element in `attn_mask`.
SmallVector<Value> ListKernel::getOrigin(const List &list, const ListedTile &tile) {
  Value head = firstElement(1, list.place[1], tileHeads);
  auto [rows, keys] = getNumbers(list, tile);
  return {isSame(0) ? index(0) : list.place[0], head, firstElement(2, rows, tileRows),
          firstElement(3, keys, tileKeys)};
}

/// Returns the indices in `attn_mask` at which item `item`, i32, of the tile at `origin` begins.
/// Indices past the end are clamped to the last element. Vectors are in bounds.
SmallVector<Value> ListKernel::getElement(ArrayRef<Value> origin, Value item, int64_t width) {
  auto last = [&](unsigned i) { return sub(dim(attnMask, i), index(1)); };
  // 32-bit division by constants.
  auto divide = [&](Value v, int64_t by) { return div(v, i32(by)); };
  auto rest = [&](Value v, int64_t by) { return b.createOrFold<arith::RemUIOp>(loc, v, i32(by)); };
  int64_t perRow = getItemsPerRow(width), rows = getTileRows();
  Value line = divide(item, perRow), key = toIndex(rest(item, perRow));
  SmallVector<Value> at = {origin[0],
                           minUnsigned(add(origin[1], toIndex(divide(line, rows))), last(1)),
                           minUnsigned(add(origin[2], toIndex(rest(line, rows))), last(2)),
                           add(origin[3], width == 1 ? key : mul(key, width))};
  if (width == 1)
    at[3] = minUnsigned(at[3], last(3));
  return at;
}

/// Returns the state of the tile at `origin` after the next items were read. This lane reads item
/// `first` and every 32nd item after it.
AttnMaskScan::Found ListKernel::readItems(ArrayRef<Value> origin, Value first, int64_t width,
                                          Found found) {
  int64_t items = countItems(width), batch = countAtOnce(items);
  Value any, all;
  for (int64_t i = 0; i < batch; ++i) {
    Value item = add(first, i32(i * kWarp));
    if (items % (batch * kWarp) != 0)
      item = minUnsigned(item, i32(items - 1));
    SmallVector<Value> at = getElement(origin, item, width);
    // As bytes, not predicates: if the result of `and` is unused, ptxas 13.0 merges `or` and `and`
    // of the same predicates into one instruction that returns the wrong one.
    Value elements = width == 1 ? memref::LoadOp::create(b, loc, attnMaskBytes, at).getResult()
                                : loadWords(at, width, llvm::Align(width));
    any = any ? either(any, elements) : elements;
    all = all ? both(all, elements) : elements;
  }
  if (width > 1) {
    Found read = judgeWords(any, all);
    any = read.any;
    all = read.all;
  } else {
    Value zero = arith::ConstantOp::create(b, loc, b.getZeroAttr(any.getType()));
    any = compare(arith::CmpIPredicate::ne, any, zero);
    all = compare(arith::CmpIPredicate::ne, all, zero);
  }
  return {either(found.any, VoteOp::create(b, loc, VoteKind::Any, any)),
          both(found.all, VoteOp::create(b, loc, VoteKind::All, all))};
}

/// Reads a tile's elements, `width` adjacent ones at a time: 1, or 16 if the tile is within
/// `attn_mask`.
AttnMaskScan::Found ListKernel::readByWarp(const List &list, const ListedTile &tile,
                                           int64_t width) {
  int64_t items = countItems(width);
  SmallVector<Value> origin = getOrigin(list, tile);
  auto loop = scf::ForOp::create(b, loc, index(0), index(items), index(countAtOnce(items) * kWarp),
                                 ValueRange{boolean(false), tile.isFull});
  OpBuilder::InsertionGuard guard(b);
  b.setInsertionPointToStart(loop.getBody());
  Found found{loop.getRegionIterArg(0), loop.getRegionIterArg(1)};
  Value first = toI32(add(loop.getInductionVar(), lane));
  found = readUntilKnown(found, [&] { return readItems(origin, first, width, found); });
  scf::YieldOp::create(b, loc, ValueRange{found.any, found.all});
  return {loop.getResult(0), loop.getResult(1)};
}

/// Reads a tile with vector loads if they are aligned and the tile lies within `attn_mask`.
AttnMaskScan::Found ListKernel::readTile(const List &list, const ListedTile &tile) {
  if (isSame(3) || tileKeys % kVector != 0 || !hasAlignedRows(attnMask))
    return readByWarp(list, tile, /*width=*/1);
  Value end = mul(add(getNumbers(list, tile).second, index(1)), tileKeys);
  scf::IfOp whole = branch(compare(arith::CmpIPredicate::sle, end, dim(attnMask, 3)));
  OpBuilder::InsertionGuard guard(b);
  for (auto [block, width] :
       {std::pair(whole.thenBlock(), kVector), {whole.elseBlock(), int64_t(1)}}) {
    b.setInsertionPointToStart(block);
    Found found = readByWarp(list, tile, width);
    scf::YieldOp::create(b, loc, ValueRange{found.any, found.all});
  }
  return {whole.getResult(0), whole.getResult(1)};
}

/// Returns the kind of tile `number` of the list, i32; hidden if there is no such tile.
Value ListKernel::findKind(const List &list, Value number) {
  auto exists = scf::IfOp::create(b, loc, TypeRange{b.getI32Type()}, less(number, list.total),
                                  /*withElseRegion=*/true);
  OpBuilder::InsertionGuard guard(b);
  b.setInsertionPointToStart(exists.elseBlock());
  scf::YieldOp::create(b, loc, i32(kHidden));
  b.setInsertionPointToStart(exists.thenBlock());
  ListedTile tile = getTile(list, number);
  Found found = hasTest() ? testTile(list, tile.number) : readTile(list, tile);
  Value shown = select(found.all, i32(kFull), i32(kPartial));
  scf::YieldOp::create(b, loc, select(found.any, shown, i32(kHidden)));
  return exists.getResult(0);
}

/// Exchanges kinds between warps. Returns to lane i the kind of warp i's tile in the round that
/// begins with tile `first`. `own` is the kind of this warp's tile.
Value ListKernel::shareKinds(Value first, Value own) {
  Value turn = b.createOrFold<arith::AndIOp>(loc, div(first, index(kWarps)), index(1));
  auto published = scf::IfOp::create(b, loc, equals(lane, index(0)), /*withElseRegion=*/false);
  {
    OpBuilder::InsertionGuard guard(b);
    b.setInsertionPointToStart(published.thenBlock());
    memref::StoreOp::create(b, loc, own, kinds, ValueRange{turn, warp});
  }
  gpu::BarrierOp::create(b, loc);
  return memref::LoadOp::create(b, loc, kinds, ValueRange{turn, lane});
}

/// Writes a round's tiles to the list: full ones before `ends.begin`, partial ones from `ends.end`.
ListKernel::Ends ListKernel::placeTiles(const List &list, Value first, Value kind, Ends ends) {
  Value below = sub(arith::ShLIOp::create(b, loc, i32(1), laneNumber), i32(1));
  auto ones = [&](Value v) { return math::CtPopOp::create(b, loc, v).getResult(); };
  Value isWriter = equals(warp, index(0));
  Value own = toI32(getTile(list, add(first, lane)).number);
  for (int64_t which : {kFull, kPartial}) {
    Value mine = equals(kind, i32(which));
    Value all = VoteOp::create(b, loc, VoteKind::Ballot, mine), earlier = ones(both(all, below));
    Value where = which == kFull ? sub(sub(ends.begin, i32(1)), earlier) : add(ends.end, earlier);
    auto written = scf::IfOp::create(b, loc, both(mine, isWriter), /*withElseRegion=*/false);
    OpBuilder::InsertionGuard guard(b);
    b.setInsertionPointToStart(written.thenBlock());
    SmallVector<Value> at = list.place;
    at.push_back(toIndex(where));
    memref::StoreOp::create(b, loc, own, op.getTiles(), at);
    b.setInsertionPointAfter(written);
    if (which == kFull)
      ends.begin = sub(ends.begin, ones(all));
    else
      ends.end = add(ends.end, ones(all));
  }
  return ends;
}

/// Launches one block per list, unless there are no lists: the driver rejects a grid of 0 blocks.
gpu::LaunchOp ListKernel::launchBlocks() {
  Value lists = index(1), one = index(1);
  for (int64_t i = 0; i < 3; ++i)
    lists = mul(lists, dim(op.getBounds(), i));
  auto guarded = scf::IfOp::create(b, loc, compare(arith::CmpIPredicate::ugt, lists, index(0)),
                                   /*withElseRegion=*/false);
  b.setInsertionPointToStart(guarded.thenBlock());
  auto space = gpu::AddressSpaceAttr::get(b.getContext(), gpu::AddressSpace::Workgroup);
  auto kindsType = MemRefType::get({2, kWarps}, b.getI32Type(), MemRefLayoutAttrInterface{}, space);
  auto launch = gpu::LaunchOp::create(b, loc, lists, one, one, index(kWarp * countWarps()), one, one,
                                      /*dynamicSharedMemorySize=*/{}, /*asyncTokenType=*/{},
                                      /*asyncDependencies=*/{},
                                      hasTest() ? TypeRange() : TypeRange{kindsType});
  if (!hasTest())
    kinds = launch.getWorkgroupAttributions().front();
  return launch;
}

void ListKernel::build() {
  if (!hasTest())
    viewAsBytes();
  Value heads = dim(op.getBounds(), 1), lists = dim(op.getBounds(), 2), middle = getMiddle();
  gpu::LaunchOp launch = launchBlocks();
  b.setInsertionPointToStart(&launch.getBody().front());
  // 32-bit division: a 64-bit division takes as much code as a call.
  auto divide = [&](Value x, Value y) -> std::pair<Value, Value> {
    return {arith::DivUIOp::create(b, loc, x, y), arith::RemUIOp::create(b, loc, x, y)};
  };
  auto [rest, number] = divide(toI32(launch.getBlockIds().x), toI32(lists));
  auto [batch, head] = divide(rest, toI32(heads));
  Value warpNumber;
  std::tie(warpNumber, laneNumber) = divide(toI32(launch.getThreadIds().x), i32(kWarp));
  SmallVector<Value> place = {toIndex(batch), toIndex(head), toIndex(number)};
  warp = toIndex(warpNumber);
  lane = toIndex(laneNumber);
  List list = enterList(place);

  Value start = toI32(middle);
  auto loop =
      scf::ForOp::create(b, loc, index(0), list.total, index(kWarps), ValueRange{start, start});
  {
    OpBuilder::InsertionGuard guard(b);
    b.setInsertionPointToStart(loop.getBody());
    Value first = loop.getInductionVar();
    Value kind = hasTest() ? findKind(list, add(first, lane))
                           : shareKinds(first, findKind(list, add(first, warp)));
    Ends ends = placeTiles(list, first, kind, {loop.getRegionIterArg(0), loop.getRegionIterArg(1)});
    scf::YieldOp::create(b, loc, ValueRange{ends.begin, ends.end});
  }
  Value isFirst = equals(launch.getThreadIds().x, index(0));
  auto written = scf::IfOp::create(b, loc, isFirst, /*withElseRegion=*/false);
  gpu::TerminatorOp::create(b, loc);
  b.setInsertionPointToStart(written.thenBlock());
  writeBounds(list.place, loop.getResult(0), loop.getResult(1));
}

void mlir::flashattn::buildListKernel(OpBuilder &b, ListTilesOp op) { ListKernel(b, op).build(); }

void mlir::flashattn::buildRangeKernel(OpBuilder &b, TileRangesOp op) {
  constexpr int64_t kWarpsOfBlock = 8;
  RangeBuilder ranges(b, op);
  Location loc = op.getLoc();
  Value heads = ranges.dim(op.getRanges(), 1), tiles = ranges.dim(op.getRanges(), 2);
  Value count = ranges.mul(ranges.mul(ranges.dim(op.getRanges(), 0), heads), tiles);
  Value one = ranges.index(1);
  auto guarded = scf::IfOp::create(b, loc, ranges.less(ranges.index(0), count),
                                   /*withElseRegion=*/false);
  b.setInsertionPointToStart(guarded.thenBlock());
  auto launch = gpu::LaunchOp::create(b, loc, ranges.ceilDiv(count, kWarpsOfBlock), one, one,
                                      ranges.index(kWarp * kWarpsOfBlock), one, one);
  b.setInsertionPointToStart(&launch.getBody().front());
  // 32-bit division: a 64-bit division takes as much code as a call.
  auto divide = [&](Value x, Value y) -> std::pair<Value, Value> {
    return {arith::DivUIOp::create(b, loc, x, y), arith::RemUIOp::create(b, loc, x, y)};
  };
  auto [warp, lane] = divide(ranges.toI32(launch.getThreadIds().x), ranges.i32(kWarp));
  Value number = ranges.add(
      ranges.mul(ranges.toI32(launch.getBlockIds().x), ranges.i32(kWarpsOfBlock)), warp);
  Value exists = arith::CmpIOp::create(b, loc, arith::CmpIPredicate::ult, number, ranges.toI32(count));
  auto ofWarp = scf::IfOp::create(b, loc, exists, /*withElseRegion=*/false);
  gpu::TerminatorOp::create(b, loc);
  b.setInsertionPointToStart(ofWarp.thenBlock());
  auto [rest, tile] = divide(number, ranges.toI32(tiles));
  auto [batch, head] = divide(rest, ranges.toI32(heads));
  SmallVector<Value> place = {ranges.toIndex(batch), ranges.toIndex(head), ranges.toIndex(tile)};
  auto [least, greatest] = ranges.reduce(place, ranges.toIndex(lane), kWarp);
  for (int64_t distance = kWarp / 2; distance > 0; distance /= 2) {
    auto other = [&](Value v) {
      return gpu::ShuffleOp::create(b, loc, v, ranges.i32(distance), ranges.i32(kWarp),
                                    gpu::ShuffleMode::XOR)
          .getShuffleResult();
    };
    least = ranges.min(least, other(least));
    greatest = ranges.max(greatest, other(greatest));
  }
  Value isFirst = arith::CmpIOp::create(b, loc, arith::CmpIPredicate::eq, lane, ranges.i32(0));
  auto written = scf::IfOp::create(b, loc, isFirst, /*withElseRegion=*/false);
  b.setInsertionPointToStart(written.thenBlock());
  ranges.store(place, least, greatest);
}
