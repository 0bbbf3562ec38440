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

AttnMaskScan::List AttnMaskScan::enterList(ArrayRef<Value> place) {
  IRMapping mapping;
  Block &body = op.getIntervals().front();
  mapping.map(body.getArguments(), place);
  for (Operation &inner : body.without_terminator())
    b.clone(inner, mapping);
  auto bounds = llvm::map_to_vector(body.getTerminator()->getOperands(),
                                    [&](Value v) { return mapping.lookupOrDefault(v); });
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
