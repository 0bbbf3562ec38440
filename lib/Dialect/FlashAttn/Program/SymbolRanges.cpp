//===- SymbolRanges.cpp ---------------------------------------------------===//

#include "SymbolRanges.h"
#include "Operands.h"
#include "flashattn/Dialect/FlashAttn/Program/Spaces.h"
#include "mlir/Dialect/MemRef/IR/MemRef.h"
#include "mlir/Dialect/Utils/StaticValueUtils.h"

using namespace mlir;
using namespace mlir::flashattn;

SymbolRanges::SymbolRanges(const Operands &operands, AttentionOpInterface op, const Sequence &all,
                           TileAxis axis, int64_t rows, bool copies)
    : TileBuilder(operands.b, operands.loc), op(op), axis(axis), rows(rows),
      starts(operands.getStarts(axis)) {
  bool ofQueries = axis == TileAxis::Queries;
  OperandRange symbols = ofQueries ? op.getPerQuery() : op.getPerKey();
  if (symbols.empty())
    return;
  const Sizes &sizes = operands.getSizes();
  Value size = ofQueries ? sizes.queries : sizes.keys;
  // Packed sequences have tiles of their own, as segments of programs do.
  tiles = starts ? add(div(size, index(rows)), add(dim(starts, 0), index(1))) : ceilDiv(size, rows);
  constexpr int64_t kBytes = 8; // two i32
  struct Shape {
    SmallVector<int64_t> sizes;
    SmallVector<Value> dynamic;
    Value begin; ///< in bytes
  };
  SmallVector<Shape> shapes;
  Value bytes = index(0);
  for (Value values : symbols) {
    auto isSame = [&](unsigned dim) { return AttentionOpInterface::isBroadcastDim(values, dim); };
    // Batches of different lengths have different ranges of the same values.
    bool areBatchesSame = starts || (isSame(0) && !op.hasOwnLengths());
    Value heads = ofQueries ? sizes.heads : sizes.kvHeads, count = index(kBytes);
    Shape &shape = shapes.emplace_back();
    shape.begin = bytes;
    for (Value length :
         {areBatchesSame ? index(1) : sizes.batches, isSame(1) ? index(1) : heads, tiles}) {
      shape.sizes.push_back(getConstantIntValue(length).value_or(ShapedType::kDynamic));
      if (ShapedType::isDynamic(shape.sizes.back()))
        shape.dynamic.push_back(length);
      count = mul(count, length);
    }
    shape.sizes.push_back(2);
    bytes = add(bytes, count);
  }
  // One allocation for all: on a GPU, an allocation costs the host as much as a launch.
  auto type = MemRefType::get({ShapedType::kDynamic}, b.getI8Type());
  buffer = memref::AllocOp::create(b, loc, type, ValueRange{bytes});
  for (auto [values, shape] : llvm::zip_equal(symbols, shapes)) {
    auto type = MemRefType::get(shape.sizes, b.getI32Type());
    ranges.push_back(memref::ViewOp::create(b, loc, type, buffer, shape.begin, shape.dynamic));
    Value copy;
    if (copies) {
      SmallVector<int64_t> sizes(ArrayRef(shape.sizes).drop_back(2));
      SmallVector<Value> dynamic = shape.dynamic;
      if (!getConstantIntValue(tiles))
        dynamic.pop_back();
      sizes.push_back(ShapedType::kDynamic);
      dynamic.push_back(mul(tiles, rows));
      copy = memref::AllocOp::create(b, loc, MemRefType::get(sizes, b.getF32Type()), dynamic);
      this->copies.push_back(copy);
    }
    build(operands, all, values, ranges.back(), copy);
  }
}

void SymbolRanges::build(const Operands &operands, const Sequence &all, Value values, Value ranges,
                         Value copies) {
  auto written = TileRangesOp::create(b, loc, values, ranges, copies);
  OpBuilder::InsertionGuard guard(b);
  SmallVector<Type> types(3, b.getIndexType());
  Block *body = b.createBlock(&written.getRows(), {}, types, SmallVector<Location>(3, loc));
  Value batch = body->getArgument(0), tile = body->getArgument(2);
  if (starts) {
    std::tie(batch, tile) =
        findSegment(b, loc, {starts, rows, /*segmentTiles=*/1, /*leastRows=*/1}, tiles, tile);
    // S7: programs of sequences, not of segments. Other rows have no programs.
    if (!operands.getSegmentStarts(axis)) {
      Value last = sub(dim(starts, 0), index(2));
      batch = min(max(sub(batch, index(1)), index(0)), last);
    }
  }
  Sequence sequence = operands.getSequence(all, batch, axis);
  Value count = axis == TileAxis::Queries ? sequence.queries : sequence.keys;
  Value first = mul(tile, rows), end = min(add(first, index(rows)), count);
  if (const std::optional<Sequence::Packed> &packed = getPacked(sequence)) {
    first = add(first, packed->first);
    end = add(end, packed->first);
    batch = index(0);
  }
  SmallVector<Value> yielded = {batch, first, end};
  if (copies)
    yielded.push_back(mul(body->getArgument(2), rows));
  YieldIntervalsOp::create(b, loc, yielded);
}

Value SymbolRanges::getFirstTile(const Sequence &sequence) const {
  const std::optional<Sequence::Packed> &packed = getPacked(sequence);
  return packed ? add(div(packed->first, index(rows)), packed->segment) : index(0);
}

Value SymbolRanges::loadCopy(unsigned i, const Sequence &sequence, Value head, Value tile,
                             VectorType columns) const {
  if (copies.empty() || columns.getDimSize(1) != rows)
    return {};
  Value memref = copies[i];
  auto isSame = [&](unsigned dim) { return AttentionOpInterface::isBroadcastDim(memref, dim); };
  Value indices[] = {isSame(0) ? index(0) : sequence.batch, isSame(1) ? index(0) : head,
                     add(getFirstTile(sequence), tile)};
  return LoadTileOp::create(b, loc, columns, memref, indices, ArrayRef<int64_t>{-1, 2},
                            ArrayRef<bool>{true, true});
}

SmallVector<SymbolRange> SymbolRanges::get(const Sequence &sequence, Value head, Value first,
                                           int64_t count) const {
  SmallVector<SymbolRange> result;
  if (ranges.empty())
    return result;
  Value exist = axis == TileAxis::Queries ? sequence.queries : sequence.keys;
  Value base = getFirstTile(sequence),
        last = div(sub(max(exist, index(1)), index(1)), index(rows));
  Value tile = div(first, index(rows));
  int64_t tiles = rows % count == 0 ? 1 : count % rows == 0 ? count / rows : (count - 1) / rows + 2;
  for (Value memref : ranges) {
    auto isSame = [&](unsigned dim) { return AttentionOpInterface::isBroadcastDim(memref, dim); };
    SymbolRange &range = result.emplace_back();
    if (!isSame(1) && !head)
      continue;
    auto load = [&](Value tile, int64_t which) -> Value {
      Value at[] = {isSame(0) ? index(0) : sequence.batch, isSame(1) ? index(0) : head, tile,
                    index(which)};
      return memref::LoadOp::create(b, loc, memref, at);
    };
    for (int64_t i = 0; i < tiles; ++i) {
      Value number = add(base, min(add(tile, index(i)), last));
      Value least = load(number, 0), greatest = load(number, 1);
      range.least = i == 0 ? least : min(range.least, least);
      range.greatest = i == 0 ? greatest : max(range.greatest, greatest);
    }
    range.least = arith::IndexCastOp::create(b, loc, b.getIndexType(), range.least);
    range.greatest = arith::IndexCastOp::create(b, loc, b.getIndexType(), range.greatest);
  }
  return result;
}

void SymbolRanges::free() const {
  if (buffer)
    memref::DeallocOp::create(b, loc, buffer);
  for (Value copy : copies)
    memref::DeallocOp::create(b, loc, copy);
}
