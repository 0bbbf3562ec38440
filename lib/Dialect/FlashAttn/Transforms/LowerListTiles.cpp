//===- LowerListTiles.cpp - flashattn-lower-list-tiles ---------------------===//
//
// Reads a `keep` once and writes, list by list, the key tiles that it shows.
//
//===----------------------------------------------------------------------===//

#include "flashattn/Analysis/MaskTiles.h"
#include "flashattn/Dialect/FlashAttn/Transforms/Passes.h"
#include "flashattn/Dialect/FlashAttn/Transforms/Transforms.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/GPU/IR/GPUDialect.h"
#include "mlir/Dialect/LLVMIR/NVVMDialect.h"
#include "mlir/Dialect/Math/IR/Math.h"
#include "mlir/Dialect/MemRef/IR/MemRef.h"
#include "mlir/Dialect/SCF/IR/SCF.h"
#include "mlir/Dialect/Vector/IR/VectorOps.h"
#include "mlir/IR/IRMapping.h"

namespace mlir::flashattn {
#define GEN_PASS_DEF_LOWERLISTTILES
#include "flashattn/Dialect/FlashAttn/Transforms/Passes.h.inc"
} // namespace mlir::flashattn

using namespace mlir;
using namespace mlir::flashattn;

namespace {

class ListBuilder {
public:
  ListBuilder(RewriterBase &b, ListTilesOp op)
      : b(b), op(op), loc(op.getLoc()), keep(op.getKeep()), tileHeads(op.getTile()[0]),
        tileRows(op.getTile()[1]), tileKeys(op.getTile()[2]) {}

  void buildLoops();
  void buildLaunch();

private:
  /// What is known of a tile after some of its elements of `keep`, as i1 values.
  struct Found {
    Value any; ///< some element is true
    Value all; ///< none is false, and the mask hides no pair: the tile may be full
  };
  /// A key tile of those of a list.
  struct KeyTile {
    Value number;
    Value isFull; ///< for the mask
  };

  Value index(int64_t v) { return arith::ConstantIndexOp::create(b, loc, v); }
  Value i32(int64_t v) { return arith::ConstantIntOp::create(b, loc, v, 32); }
  Value i32(Value v) { return arith::IndexCastUIOp::create(b, loc, b.getI32Type(), v); }
  Value toIndex(Value v) { return arith::IndexCastUIOp::create(b, loc, b.getIndexType(), v); }
  Value boolean(bool v) { return arith::ConstantOp::create(b, loc, b.getBoolAttr(v)); }
  Value dim(Value memref, int64_t i) { return b.createOrFold<memref::DimOp>(loc, memref, i); }
  Value add(Value x, Value y) { return b.createOrFold<arith::AddIOp>(loc, x, y); }
  Value sub(Value x, Value y) { return b.createOrFold<arith::SubIOp>(loc, x, y); }
  Value mul(Value x, Value y) { return b.createOrFold<arith::MulIOp>(loc, x, y); }
  Value min(Value x, Value y) { return b.createOrFold<arith::MinUIOp>(loc, x, y); }
  Value both(Value x, Value y) { return arith::AndIOp::create(b, loc, x, y); }
  Value either(Value x, Value y) { return arith::OrIOp::create(b, loc, x, y); }
  Value negate(Value x) { return arith::XOrIOp::create(b, loc, x, boolean(true)); }
  Value compare(arith::CmpIPredicate predicate, Value x, Value y) {
    return arith::CmpIOp::create(b, loc, predicate, x, y);
  }
  Value select(Value condition, Value x, Value y) {
    return b.createOrFold<arith::SelectOp>(loc, condition, x, y);
  }
  bool isSame(unsigned i) const { return AttentionOp::isBroadcastDim(keep, i); }

  void viewAsBytes();
  Value loadWords(ArrayRef<Value> at, int64_t count, llvm::Align alignment);
  Found judgeWords(Value anyOf, Value allOf);
  void enterList(ArrayRef<Value> place);
  KeyTile getKeyTile(Value number);
  Value firstElement(unsigned dim, Value number, int64_t size);
  Found readRow(ArrayRef<Value> row, Value key, Found found);
  Found readByRow(const KeyTile &tile);
  Found readUntilKnown(Found found, function_ref<Found()> read);
  Found readByWarp(Value lane, const KeyTile &tile, int64_t width);
  Value vote(NVVM::VoteSyncKind kind, Value condition);

  RewriterBase &b;
  ListTilesOp op;
  Location loc;
  TypedValue<MemRefType> keep;
  int64_t tileHeads, tileRows, tileKeys;
  /// `keep` as bytes, which vectors are read of; null where they cannot be.
  Value keepBytes;

  // Of the list being built.
  SmallVector<Value> list;
  SmallVector<TileInterval> intervals;
  SmallVector<Value> before; ///< tiles of the intervals before each
  Value total;               ///< tiles of all of them
};

} // namespace

/// The intervals of the list at `place`.
void ListBuilder::enterList(ArrayRef<Value> place) {
  list.assign(place.begin(), place.end());
  IRMapping mapping;
  Block &body = op.getIntervals().front();
  mapping.map(body.getArguments(), place);
  for (Operation &inner : body.without_terminator())
    b.clone(inner, mapping);
  auto bounds = llvm::map_to_vector(body.getTerminator()->getOperands(),
                                    [&](Value v) { return mapping.lookupOrDefault(v); });
  total = index(0);
  for (size_t i = 0; i < bounds.size(); i += 4) {
    intervals.push_back({bounds[i], bounds[i + 1], bounds[i + 2], bounds[i + 3]});
    before.push_back(total);
    total = add(total, sub(bounds[i + 3], bounds[i]));
  }
}

/// Tile `number` of the intervals', one after the other.
ListBuilder::KeyTile ListBuilder::getKeyTile(Value number) {
  Value shift, fullBegin, fullEnd;
  for (auto [keys, skipped] : llvm::zip_equal(intervals, before)) {
    Value own = sub(keys.begin, skipped);
    if (!shift) {
      shift = own, fullBegin = keys.fullBegin, fullEnd = keys.fullEnd;
      continue;
    }
    Value reached = compare(arith::CmpIPredicate::sge, number, skipped);
    shift = select(reached, own, shift);
    fullBegin = select(reached, keys.fullBegin, fullBegin);
    fullEnd = select(reached, keys.fullEnd, fullEnd);
  }
  // A mask may have no interval, and its lists no tile.
  if (!shift)
    shift = fullBegin = fullEnd = index(0);
  Value tile = add(number, shift);
  return {tile, both(compare(arith::CmpIPredicate::sge, tile, fullBegin),
                     compare(arith::CmpIPredicate::slt, tile, fullEnd))};
}

/// Index into dimension `dim` of `keep` of the first element of a tile of `size`.
Value ListBuilder::firstElement(unsigned dim, Value number, int64_t size) {
  return isSame(dim) ? index(0) : mul(number, index(size));
}

/// `read` where more elements matter: those of a tile that is shown and not full do not.
ListBuilder::Found ListBuilder::readUntilKnown(Found found, function_ref<Found()> read) {
  Value known = both(found.any, negate(found.all));
  auto branch = scf::IfOp::create(b, loc, TypeRange{b.getI1Type(), b.getI1Type()}, known,
                                  /*withElseRegion=*/true);
  OpBuilder::InsertionGuard guard(b);
  b.setInsertionPointToStart(branch.thenBlock());
  scf::YieldOp::create(b, loc, ValueRange{found.any, found.all});
  b.setInsertionPointToStart(branch.elseBlock());
  Found more = read();
  scf::YieldOp::create(b, loc, ValueRange{more.any, more.all});
  return {branch.getResult(0), branch.getResult(1)};
}

/// Booleans are bytes in memory, but vectors of them are bits.
void ListBuilder::viewAsBytes() {
  MemRefType type = keep.getType();
  auto bytes =
      MemRefType::get(type.getShape(), b.getI8Type(), type.getLayout(), type.getMemorySpace());
  keepBytes = UnrealizedConversionCastOp::create(b, loc, bytes, keep).getResult(0);
}

constexpr int64_t kWord = 4; // booleans

/// `count` elements of `keep`, vector<(count / 4)xi32>.
Value ListBuilder::loadWords(ArrayRef<Value> at, int64_t count, llvm::Align alignment) {
  auto bytes = VectorType::get({count}, b.getI8Type());
  auto words = VectorType::get({count / kWord}, b.getI32Type());
  Value loaded =
      vector::LoadOp::create(b, loc, bytes, keepBytes, at, /*nontemporal=*/false, alignment);
  return vector::BitCastOp::create(b, loc, words, loaded);
}

/// Whether any element is true of words whose bits were joined by or, and all of those joined by
/// and.
ListBuilder::Found ListBuilder::judgeWords(Value anyOf, Value allOf) {
  Value ones = i32(0x01010101);
  Value any = both(vector::ReductionOp::create(b, loc, vector::CombiningKind::OR, anyOf), ones);
  Value all = both(vector::ReductionOp::create(b, loc, vector::CombiningKind::AND, allOf), ones);
  return {compare(arith::CmpIPredicate::ne, any, i32(int64_t(0))),
          compare(arith::CmpIPredicate::eq, all, ones)};
}

//===----------------------------------------------------------------------===//
// Loops
//===----------------------------------------------------------------------===//

/// The elements of a tile's row from `key` on: as one vector, or those that there are.
ListBuilder::Found ListBuilder::readRow(ArrayRef<Value> row, Value key, Found found) {
  SmallVector<Value> at(row);
  Value size = dim(keep, 3), end = add(key, index(tileKeys));
  auto readElements = [&] {
    auto loop =
        scf::ForOp::create(b, loc, key, min(size, end), index(1), ValueRange{found.any, found.all});
    OpBuilder::InsertionGuard guard(b);
    b.setInsertionPointToStart(loop.getBody());
    at.push_back(loop.getInductionVar());
    Value element = memref::LoadOp::create(b, loc, keep, at);
    at.pop_back();
    scf::YieldOp::create(b, loc,
                         ValueRange{either(loop.getRegionIterArg(0), element),
                                    both(loop.getRegionIterArg(1), element)});
    return Found{loop.getResult(0), loop.getResult(1)};
  };
  if (!keepBytes)
    return readElements();
  auto whole = scf::IfOp::create(b, loc, TypeRange{b.getI1Type(), b.getI1Type()},
                                 compare(arith::CmpIPredicate::sle, end, size),
                                 /*withElseRegion=*/true);
  OpBuilder::InsertionGuard guard(b);
  b.setInsertionPointToStart(whole.elseBlock());
  Found read = readElements();
  scf::YieldOp::create(b, loc, ValueRange{read.any, read.all});
  b.setInsertionPointToStart(whole.thenBlock());
  at.push_back(key);
  Value words = loadWords(at, tileKeys, llvm::Align(1));
  read = judgeWords(words, words);
  scf::YieldOp::create(b, loc, ValueRange{either(found.any, read.any), both(found.all, read.all)});
  return {whole.getResult(0), whole.getResult(1)};
}

/// A key tile row by row.
ListBuilder::Found ListBuilder::readByRow(const KeyTile &tile) {
  struct Axis {
    unsigned dim;
    Value number;
    int64_t size;
  };
  SmallVector<Value> at = {isSame(0) ? index(0) : list[0]};
  std::function<Found(ArrayRef<Axis>, Found)> read = [&](ArrayRef<Axis> axes, Found found) {
    const Axis &axis = axes.front();
    Value begin = firstElement(axis.dim, axis.number, axis.size);
    if (axes.size() == 1)
      return readRow(at, begin, found);
    Value end = min(dim(keep, axis.dim), add(begin, index(axis.size)));
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
  return read({{1, list[1], tileHeads}, {2, list[2], tileRows}, {3, tile.number, tileKeys}},
              {boolean(false), tile.isFull});
}

void ListBuilder::buildLoops() {
  if (!isSame(3) && tileKeys % kWord == 0)
    viewAsBytes();
  SmallVector<OpFoldResult> sizes;
  for (int64_t i = 0; i < 3; ++i)
    sizes.push_back(getAsOpFoldResult(dim(op.getBounds(), i)));
  Value middle = b.createOrFold<arith::DivUIOp>(loc, dim(op.getTiles(), 3), index(2));
  auto forall = scf::ForallOp::create(b, loc, sizes, /*outputs=*/ValueRange(), std::nullopt);
  forall->setAttr(kParallelAttrName, b.getUnitAttr());
  b.setInsertionPointToStart(forall.getBody());
  SmallVector<Value> place(forall.getInductionVars());
  enterList(place);
  auto loop = scf::ForOp::create(b, loc, index(0), total, index(1), ValueRange{middle, middle});
  {
    OpBuilder::InsertionGuard guard(b);
    b.setInsertionPointToStart(loop.getBody());
    Value begin = loop.getRegionIterArg(0), end = loop.getRegionIterArg(1);
    KeyTile tile = getKeyTile(loop.getInductionVar());
    Found found = readByRow(tile);
    Value isFull = found.all;
    auto listed = scf::IfOp::create(b, loc, TypeRange{b.getIndexType(), b.getIndexType()},
                                    found.any, /*withElseRegion=*/true);
    scf::YieldOp::create(b, loc, listed.getResults());
    b.setInsertionPointToStart(listed.thenBlock());
    Value before = sub(begin, index(1));
    SmallVector<Value> at = place;
    at.push_back(select(isFull, before, end));
    memref::StoreOp::create(b, loc, i32(tile.number), op.getTiles(), at);
    scf::YieldOp::create(
        b, loc, ValueRange{select(isFull, before, begin), select(isFull, end, add(end, index(1)))});
    b.setInsertionPointToStart(listed.elseBlock());
    scf::YieldOp::create(b, loc, ValueRange{begin, end});
  }
  for (int64_t i = 0; i < 2; ++i) {
    SmallVector<Value> at = place;
    at.push_back(index(i));
    memref::StoreOp::create(b, loc, i32(loop.getResult(i)), op.getBounds(), at);
  }
}

//===----------------------------------------------------------------------===//
// A kernel
//===----------------------------------------------------------------------===//

constexpr int64_t kWarp = 32;
/// A warp for each lane of a warp, so that one ballot has the word of all.
constexpr int64_t kWarps = 32;

/// A condition of all lanes of the warp.
Value ListBuilder::vote(NVVM::VoteSyncKind kind, Value condition) {
  Type type = kind == NVVM::VoteSyncKind::ballot ? b.getI32Type() : b.getI1Type();
  return NVVM::VoteSyncOp::create(b, loc, type, i32(-1), condition, kind);
}

/// The elements of a key tile, `width` next to each other at a time: one, or 16 of a tile that
/// lies within `keep`. What lies past its end is read as what lies before it.
ListBuilder::Found ListBuilder::readByWarp(Value lane, const KeyTile &tile, int64_t width) {
  int64_t perRow = isSame(3) ? 1 : tileKeys / width;
  int64_t rows = isSame(2) ? 1 : tileRows, heads = isSame(1) ? 1 : tileHeads;
  int64_t items = heads * rows * perRow;
  // On their way at once: more would spill.
  constexpr int64_t kMost = 4;
  int64_t batch = std::min<int64_t>(kMost, llvm::divideCeil(items, kWarp)), step = batch * kWarp;
  auto last = [&](unsigned i) { return sub(dim(keep, i), index(1)); };
  Value firstHead = firstElement(1, list[1], tileHeads);
  Value firstRow = firstElement(2, list[2], tileRows);
  Value firstKey = firstElement(3, tile.number, tileKeys);
  Value batchNumber = isSame(0) ? index(0) : list[0];

  auto loop = scf::ForOp::create(b, loc, index(0), index(items), index(step),
                                 ValueRange{boolean(false), tile.isFull});
  OpBuilder::InsertionGuard guard(b);
  b.setInsertionPointToStart(loop.getBody());
  Found found{loop.getRegionIterArg(0), loop.getRegionIterArg(1)};
  Value first = i32(add(loop.getInductionVar(), lane));
  found = readUntilKnown(found, [&] {
    Value any, all;
    for (int64_t i = 0; i < batch; ++i) {
      Value item = add(first, i32(i * kWarp));
      if (items % step != 0)
        item = min(item, i32(items - 1));
      // 32-bit division, by constants.
      auto divide = [&](Value v, int64_t by) {
        return b.createOrFold<arith::DivUIOp>(loc, v, i32(by));
      };
      auto rest = [&](Value v, int64_t by) {
        return b.createOrFold<arith::RemUIOp>(loc, v, i32(by));
      };
      Value line = divide(item, perRow), key = toIndex(rest(item, perRow));
      SmallVector<Value> at = {batchNumber,
                               min(add(firstHead, toIndex(divide(line, rows))), last(1)),
                               min(add(firstRow, toIndex(rest(line, rows))), last(2)),
                               add(firstKey, width == 1 ? key : mul(key, index(width)))};
      Value elements;
      if (width == 1) {
        at[3] = min(at[3], last(3));
        // As bytes: of `or` and `and` of the same predicates, the second unused, ptxas 13.0 makes
        // one instruction that keeps the wrong result.
        elements = memref::LoadOp::create(b, loc, keepBytes, at);
      } else {
        elements = loadWords(at, width, llvm::Align(width));
      }
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
    return Found{either(found.any, vote(NVVM::VoteSyncKind::any, any)),
                 both(found.all, vote(NVVM::VoteSyncKind::all, all))};
  });
  scf::YieldOp::create(b, loc, ValueRange{found.any, found.all});
  return {loop.getResult(0), loop.getResult(1)};
}

void ListBuilder::buildLaunch() {
  constexpr int64_t kHidden = 0, kPartial = 1, kFull = 2, kVector = 16;
  viewAsBytes();
  bool hasVectors = !isSame(3) && tileKeys % kVector == 0 && hasAlignedRows(keep);
  Value lists = index(1), one = index(1);
  for (int64_t i = 0; i < 3; ++i)
    lists = mul(lists, dim(op.getBounds(), i));
  Value heads = dim(op.getBounds(), 1), queryTiles = dim(op.getBounds(), 2);
  Value middle = b.createOrFold<arith::DivUIOp>(loc, dim(op.getTiles(), 3), index(2));
  // A grid of no blocks is an error to the driver.
  auto guarded = scf::IfOp::create(b, loc, compare(arith::CmpIPredicate::ugt, lists, index(0)),
                                   /*withElseRegion=*/false);
  b.setInsertionPointToStart(guarded.thenBlock());
  auto space = gpu::AddressSpaceAttr::get(b.getContext(), gpu::AddressSpace::Workgroup);
  auto kindsType = MemRefType::get({2, kWarps}, b.getI32Type(), MemRefLayoutAttrInterface{}, space);
  auto launch = gpu::LaunchOp::create(b, loc, lists, one, one, index(kWarp * kWarps), one, one,
                                      /*dynamicSharedMemorySize=*/{}, /*asyncTokenType=*/{},
                                      /*asyncDependencies=*/{}, TypeRange{kindsType});
  b.setInsertionPointToStart(&launch.getBody().front());
  // Of the warps' tiles, in turns, so that one barrier a round is enough.
  Value kinds = launch.getWorkgroupAttributions().front();
  // 32-bit division: 64-bit division is a call's worth of code.
  auto divide = [&](Value x, Value y) -> std::pair<Value, Value> {
    return {arith::DivUIOp::create(b, loc, x, y), arith::RemUIOp::create(b, loc, x, y)};
  };
  auto [rest, queryTile] = divide(i32(launch.getBlockIds().x), i32(queryTiles));
  auto [batch, head] = divide(rest, i32(heads));
  auto [warpNumber, laneNumber] = divide(i32(launch.getThreadIds().x), i32(kWarp));
  SmallVector<Value> place = {toIndex(batch), toIndex(head), toIndex(queryTile)};
  Value warp = toIndex(warpNumber), lane = toIndex(laneNumber);
  enterList(place);

  Value start = i32(middle);
  auto loop = scf::ForOp::create(b, loc, index(0), total, index(kWarps), ValueRange{start, start});
  {
    OpBuilder::InsertionGuard guard(b);
    b.setInsertionPointToStart(loop.getBody());
    Value begin = loop.getRegionIterArg(0), end = loop.getRegionIterArg(1);
    Value first = loop.getInductionVar(), number = add(first, warp);
    auto exists =
        scf::IfOp::create(b, loc, TypeRange{b.getI32Type()},
                          compare(arith::CmpIPredicate::slt, number, total), /*withElse=*/true);
    b.setInsertionPointToStart(exists.elseBlock());
    scf::YieldOp::create(b, loc, i32(kHidden));
    b.setInsertionPointToStart(exists.thenBlock());
    KeyTile tile = getKeyTile(number);
    Found found;
    if (hasVectors) {
      Value tileEnd = mul(add(tile.number, index(1)), index(tileKeys));
      Value inside = compare(arith::CmpIPredicate::sle, tileEnd, dim(keep, 3));
      auto whole = scf::IfOp::create(b, loc, TypeRange{b.getI1Type(), b.getI1Type()}, inside,
                                     /*withElseRegion=*/true);
      OpBuilder::InsertionGuard guard(b);
      for (auto [block, width] :
           {std::pair(whole.thenBlock(), kVector), {whole.elseBlock(), int64_t(1)}}) {
        b.setInsertionPointToStart(block);
        found = readByWarp(lane, tile, width);
        scf::YieldOp::create(b, loc, ValueRange{found.any, found.all});
      }
      found = {whole.getResult(0), whole.getResult(1)};
    } else {
      found = readByWarp(lane, tile, /*width=*/1);
    }
    Value shown = select(found.all, i32(kFull), i32(kPartial));
    scf::YieldOp::create(b, loc, select(found.any, shown, i32(kHidden)));

    b.setInsertionPointAfter(exists);
    Value turn = b.createOrFold<arith::AndIOp>(
        loc, b.createOrFold<arith::DivUIOp>(loc, first, index(kWarps)), index(1));
    Value isFirstLane = compare(arith::CmpIPredicate::eq, lane, index(0));
    auto told = scf::IfOp::create(b, loc, isFirstLane, /*withElseRegion=*/false);
    b.setInsertionPointToStart(told.thenBlock());
    memref::StoreOp::create(b, loc, exists.getResult(0), kinds, ValueRange{turn, warp});
    b.setInsertionPointAfter(told);
    gpu::BarrierOp::create(b, loc);
    // A lane has the tile of the warp of its number now.
    Value kind = memref::LoadOp::create(b, loc, kinds, ValueRange{turn, lane});
    Value below = sub(arith::ShLIOp::create(b, loc, i32(1), laneNumber), i32(1));
    auto ones = [&](Value v) { return math::CtPopOp::create(b, loc, v).getResult(); };
    Value isWriter = compare(arith::CmpIPredicate::eq, warp, index(0));
    Value own = i32(getKeyTile(add(first, lane)).number);
    for (int64_t which : {kFull, kPartial}) {
      Value mine = compare(arith::CmpIPredicate::eq, kind, i32(which));
      Value all = vote(NVVM::VoteSyncKind::ballot, mine), earlier = ones(both(all, below));
      Value where = which == kFull ? sub(sub(begin, i32(1)), earlier) : add(end, earlier);
      auto written = scf::IfOp::create(b, loc, both(mine, isWriter), /*withElseRegion=*/false);
      OpBuilder::InsertionGuard guard(b);
      b.setInsertionPointToStart(written.thenBlock());
      SmallVector<Value> at = place;
      at.push_back(toIndex(where));
      memref::StoreOp::create(b, loc, own, op.getTiles(), at);
      b.setInsertionPointAfter(written);
      if (which == kFull)
        begin = sub(begin, ones(all));
      else
        end = add(end, ones(all));
    }
    scf::YieldOp::create(b, loc, ValueRange{begin, end});
  }
  Value isFirst = compare(arith::CmpIPredicate::eq, launch.getThreadIds().x, index(0));
  auto written = scf::IfOp::create(b, loc, isFirst, /*withElseRegion=*/false);
  gpu::TerminatorOp::create(b, loc);
  b.setInsertionPointToStart(written.thenBlock());
  for (int64_t i = 0; i < 2; ++i) {
    SmallVector<Value> at = place;
    at.push_back(index(i));
    memref::StoreOp::create(b, loc, loop.getResult(i), op.getBounds(), at);
  }
}

void mlir::flashattn::lowerListTiles(RewriterBase &rewriter, ListTilesOp op, bool onGPU) {
  OpBuilder::InsertionGuard guard(rewriter);
  rewriter.setInsertionPoint(op);
  ListBuilder builder(rewriter, op);
  if (onGPU)
    builder.buildLaunch();
  else
    builder.buildLoops();
  rewriter.eraseOp(op);
}

namespace {
struct LowerListTilesPass : flashattn::impl::LowerListTilesBase<LowerListTilesPass> {
  using LowerListTilesBase::LowerListTilesBase;
  void runOnOperation() override {
    SmallVector<ListTilesOp> ops;
    getOperation()->walk([&](ListTilesOp op) { ops.push_back(op); });
    IRRewriter rewriter(&getContext());
    for (ListTilesOp op : ops)
      lowerListTiles(rewriter, op, gpu);
  }
};
} // namespace
