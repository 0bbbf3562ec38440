//===- AttnMaskScan.cpp -------------------------------------------------------===//

#include "flashattn/Dialect/FlashAttn/Program/AttnMaskScan.h"
#include "mlir/Dialect/MemRef/IR/MemRef.h"
#include "mlir/Dialect/Vector/IR/VectorOps.h"
#include "mlir/IR/IRMapping.h"

using namespace mlir;
using namespace mlir::flashattn;

AttnMaskScan::AttnMaskScan(OpBuilder &b, ListTilesOp op)
    : TileBuilder(b, op.getLoc()), op(op), attnMask(op.getAttnMask()), tileHeads(op.getTile()[0]),
      tileRows(op.getTile()[1]), tileKeys(op.getTile()[2]) {}

/// Clones a region with `arguments` and returns what it yields.
static SmallVector<Value> inlineRegion(OpBuilder &b, Region &region, ArrayRef<Value> arguments) {
  IRMapping mapping;
  Block &body = region.front();
  mapping.map(body.getArguments(), arguments);
  for (Operation &inner : body.without_terminator())
    b.clone(inner, mapping);
  return llvm::map_to_vector(body.getTerminator()->getOperands(),
                             [&](Value v) { return mapping.lookupOrDefault(v); });
}

AttnMaskScan::List AttnMaskScan::enterList(ArrayRef<Value> place) {
  SmallVector<Value> bounds = inlineRegion(b, op.getIntervals(), place);
  List list{llvm::to_vector(place), {}, {}, index(0)};
  for (size_t i = 0; i < bounds.size(); i += 4) {
    list.intervals.push_back({bounds[i], bounds[i + 1], bounds[i + 2], bounds[i + 3]});
    list.before.push_back(list.total);
    list.total = add(list.total, sub(bounds[i + 3], bounds[i]));
  }
  return list;
}

AttnMaskScan::ListedTile AttnMaskScan::getTile(const List &list, Value number) {
  Value shift, fullBegin, fullEnd;
  for (auto [keys, skipped] : llvm::zip_equal(list.intervals, list.before)) {
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
  // If a mask has no interval, its lists have no tile.
  if (!shift)
    shift = fullBegin = fullEnd = index(0);
  Value tile = add(number, shift);
  return {tile, both(compare(arith::CmpIPredicate::sge, tile, fullBegin),
                     compare(arith::CmpIPredicate::slt, tile, fullEnd))};
}

AttnMaskScan::Found AttnMaskScan::testTile(const List &list, Value tile) {
  SmallVector<Value> arguments = list.place;
  arguments.push_back(tile);
  SmallVector<Value> bounds = inlineRegion(b, op.getTest(), arguments);
  auto isWithin = [&](Value begin, Value end) {
    return both(compare(arith::CmpIPredicate::sge, tile, begin), less(tile, end));
  };
  Found found{boolean(false), boolean(false)};
  for (size_t i = 0; i < bounds.size(); i += 4) {
    found.any = either(found.any, isWithin(bounds[i], bounds[i + 3]));
    found.all = either(found.all, isWithin(bounds[i + 1], bounds[i + 2]));
  }
  return found;
}

std::pair<Value, Value> RangeBuilder::reduce(ArrayRef<Value> place, Value first, int64_t step) {
  SmallVector<Value> rows = inlineRegion(b, op.getRows(), place);
  Value values = op.getValues();
  SmallVector<Value> at = {rows[0], place[1], Value()};
  for (unsigned i : {0, 1})
    if (AttentionOp::isBroadcastDim(values, i))
      at[i] = index(0);
  Value none[] = {i32(std::numeric_limits<int32_t>::max()), i32(std::numeric_limits<int32_t>::min())};
  auto loop = scf::ForOp::create(b, loc, add(rows[1], first), rows[2], index(step), none);
  OpBuilder::InsertionGuard guard(b);
  b.setInsertionPointToStart(loop.getBody());
  at[2] = loop.getInductionVar();
  Value value = memref::LoadOp::create(b, loc, values, at);
  if (op.getCopies()) {
    Value copy[] = {place[0], place[1], add(rows[3], sub(loop.getInductionVar(), rows[1]))};
    memref::StoreOp::create(b, loc, arith::BitcastOp::create(b, loc, b.getF32Type(), value),
                            op.getCopies(), copy);
  }
  scf::YieldOp::create(b, loc,
                       ValueRange{min(loop.getRegionIterArg(0), value),
                                  max(loop.getRegionIterArg(1), value)});
  return {loop.getResult(0), loop.getResult(1)};
}

void RangeBuilder::store(ArrayRef<Value> place, Value least, Value greatest) {
  for (auto [i, value] : {std::pair(0, least), {1, greatest}}) {
    SmallVector<Value> at(place);
    at.push_back(index(i));
    memref::StoreOp::create(b, loc, value, op.getRanges(), at);
  }
}

Value AttnMaskScan::firstElement(unsigned dim, Value number, int64_t size) {
  return isSame(dim) ? index(0) : mul(number, size);
}

scf::IfOp AttnMaskScan::branch(Value condition) {
  return scf::IfOp::create(b, loc, TypeRange{b.getI1Type(), b.getI1Type()}, condition,
                           /*withElseRegion=*/true);
}

AttnMaskScan::Found AttnMaskScan::readUntilKnown(Found found, llvm::function_ref<Found()> read) {
  Value known = both(found.any, arith::XOrIOp::create(b, loc, found.all, boolean(true)));
  scf::IfOp stop = branch(known);
  OpBuilder::InsertionGuard guard(b);
  b.setInsertionPointToStart(stop.thenBlock());
  scf::YieldOp::create(b, loc, ValueRange{found.any, found.all});
  b.setInsertionPointToStart(stop.elseBlock());
  Found more = read();
  scf::YieldOp::create(b, loc, ValueRange{more.any, more.all});
  return {stop.getResult(0), stop.getResult(1)};
}

/// Booleans are bytes in memory, but vectors of them are bits.
void AttnMaskScan::viewAsBytes() {
  MemRefType type = attnMask.getType();
  auto bytes =
      MemRefType::get(type.getShape(), b.getI8Type(), type.getLayout(), type.getMemorySpace());
  attnMaskBytes = UnrealizedConversionCastOp::create(b, loc, bytes, attnMask).getResult(0);
}

Value AttnMaskScan::loadWords(ArrayRef<Value> at, int64_t count, llvm::Align alignment) {
  auto bytes = VectorType::get({count}, b.getI8Type());
  auto words = VectorType::get({count / kWord}, b.getI32Type());
  Value loaded =
      vector::LoadOp::create(b, loc, bytes, attnMaskBytes, at, /*nontemporal=*/false, alignment);
  return vector::BitCastOp::create(b, loc, words, loaded);
}

AttnMaskScan::Found AttnMaskScan::judgeWords(Value anyOf, Value allOf) {
  Value ones = i32(0x01010101);
  Value any = both(vector::ReductionOp::create(b, loc, vector::CombiningKind::OR, anyOf), ones);
  Value all = both(vector::ReductionOp::create(b, loc, vector::CombiningKind::AND, allOf), ones);
  return {compare(arith::CmpIPredicate::ne, any, i32(0)),
          compare(arith::CmpIPredicate::eq, all, ones)};
}

void AttnMaskScan::writeBounds(ArrayRef<Value> place, Value begin, Value end) {
  for (auto [i, bound] : {std::pair(0, begin), {1, end}}) {
    SmallVector<Value> at(place);
    at.push_back(index(i));
    memref::StoreOp::create(b, loc, bound, op.getBounds(), at);
  }
}
