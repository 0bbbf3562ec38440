//===- Operands.cpp -------------------------------------------------------===//

#include "Operands.h"
#include "mlir/Dialect/MemRef/IR/MemRef.h"
#include "mlir/Dialect/Utils/StaticValueUtils.h"

using namespace mlir;
using namespace mlir::flashattn;

/// Returns the number of elements of a row.
static int64_t getColumns(Value memref) {
  return cast<MemRefType>(memref.getType()).getShape().back();
}

Operands::Operands(OpBuilder &b, AttentionOpInterface op)
    : TileBuilder(b, op->getLoc()), op(op), schedule(op.getScheduleAttr()), q(op.getQ()),
      visible(op.getVisibleSets()) {
  sizes.queries = dim(op.getQ(), op.getSeqDim());
  sizes.keys = dim(op.getK(), op.getSeqDim());
  sizes.batches = dim(op.getQ(), 0);
  sizes.heads = dim(op.getQ(), op.getHeadDim());
  sizes.kvHeads = dim(op.getK(), op.getHeadDim());
  // A4. Without key/value heads there are no query heads, and nothing runs.
  Value divisor = b.createOrFold<arith::MaxUIOp>(loc, sizes.kvHeads, index(1));
  sizes.group = sizes.headTiles = div(sizes.heads, divisor);
  if (isPacked())
    sizes.headTiles = ceilDiv(sizes.group, schedule.getPack());
}

int64_t Operands::padColumns(int64_t columns) const {
  return schedule.getThreadsPerRow() > 1 ? llvm::alignTo(columns, 16)
                                         : std::max<int64_t>(columns, 2);
}

void Operands::packHeads(Destination &destination) {
  q = splitHeads(op.getQ(), op.getHeadDim());
  destination.o = splitHeads(destination.o, destination.layout == Layout::BHSD ? 1 : 2);
  for (Value *perRow : {&destination.lse, &destination.lseRest})
    if (*perRow)
      *perRow = splitHeads(*perRow, /*headDim=*/1);
}

Value Operands::splitHeads(Value memref, int64_t headDim) const {
  if (!isPacked())
    return memref;
  auto type = cast<MemRefType>(memref.getType());
  SmallVector<int64_t> shape(type.getShape());
  SmallVector<OpFoldResult> memrefSizes = memref::getMixedSizes(b, loc, memref);
  SmallVector<OpFoldResult> split = getAsOpFoldResult(ValueRange{sizes.kvHeads, sizes.group});
  SmallVector<int64_t> splitShape = llvm::map_to_vector(split, [](OpFoldResult size) {
    return getConstantIntValue(size).value_or(ShapedType::kDynamic);
  });
  // A static size can only be split into static sizes.
  if (!type.isDynamicDim(headDim) && llvm::any_of(splitShape, ShapedType::isDynamic)) {
    shape[headDim] = ShapedType::kDynamic;
    type = MemRefType::get(shape, type.getElementType(), type.getLayout(), type.getMemorySpace());
    memref = memref::CastOp::create(b, loc, type, memref);
  }
  shape.erase(shape.begin() + headDim);
  memrefSizes.erase(memrefSizes.begin() + headDim);
  shape.insert(shape.begin() + headDim, splitShape.begin(), splitShape.end());
  memrefSizes.insert(memrefSizes.begin() + headDim, split.begin(), split.end());
  SmallVector<ReassociationIndices> reassociation;
  int64_t next = 0;
  for (int64_t i = 0; i < type.getRank(); ++i) {
    reassociation.push_back({next++});
    if (i == headDim)
      reassociation.back().push_back(next++);
  }
  return memref::ExpandShapeOp::create(b, loc, shape, memref, reassociation, memrefSizes);
}

KeyRange Operands::getAllKeys() const {
  KeyRange all{sizes.keys, op.getOffset()};
  // A3: the position of query 0. With kv_len, it depends on the number of keys of the batch.
  if (!all.offset && !op.getKvLen())
    all.offset = op.getAlign() == Align::TopLeft ? index(0) : sub(sizes.keys, sizes.queries);
  return all;
}

KeyRange Operands::getKeys(const KeyRange &all, Value batch) const {
  if (!op.getKvLen())
    return all;
  // A7: kv_len, clamped to [0, all].
  Value length = memref::LoadOp::create(b, loc, op.getKvLen(), batch);
  length = arith::IndexCastOp::create(b, loc, b.getIndexType(), length);
  KeyRange own{min(max(length, index(0)), all.keys), all.offset};
  if (!own.offset)
    own.offset = op.getAlign() == Align::TopLeft ? index(0) : sub(own.keys, sizes.queries);
  return own;
}

IndexRange Operands::getVisible(TileAxis axis, const KeyRange &keys) const {
  IndexRange range;
  if (op.getMask()) {
    std::optional<Align> align;
    if (!op.getOffset())
      align = op.getAlign();
    range = buildVisibleRange(b, loc, visible, axis, keys.offset, sizes.queries, keys.keys, align);
  }
  if (op.getKvLen() && axis == TileAxis::Keys && !range.end)
    range.end = keys.keys;
  return range;
}

SmallVector<TileInterval> Operands::findKeys(const KeyRange &keys, Value firstQuery, int64_t rows,
                                             int64_t columns) const {
  Value end = min(add(firstQuery, index(rows)), sizes.queries);
  return buildKeyIntervals(b, loc, visible, add(firstQuery, keys.offset),
                           sub(add(end, keys.offset), index(1)), sizes.queries, keys.keys, columns,
                           /*constants=*/op.getScheduleAttr().compactsKV());
}

SmallVector<TileInterval> Operands::findQueries(const KeyRange &keys, Value firstKey, int64_t rows,
                                                int64_t columns) const {
  // A tile past kv_len has no key, but the last key must not be before the first.
  Value lastKey = sub(min(add(firstKey, index(rows)), keys.keys), index(1));
  if (op.getKvLen())
    lastKey = max(lastKey, firstKey);
  return buildQueryIntervals(b, loc, visible, firstKey, lastKey, keys.offset, sizes.queries,
                             keys.keys, columns);
}

CountedRows::CountedRows(const Operands &operands, TileAxis axis, const KeyRange &all)
    : operands(operands), axis(axis) {
  if (!operands.op.getKvLen())
    ofAll = operands.getVisible(axis, all);
}

IndexRange CountedRows::get(const KeyRange &keys) const {
  return operands.op.getKvLen() ? operands.getVisible(axis, keys) : ofAll;
}

Value Operands::toDotType(Value tile) const {
  if (schedule.getDotType() == op.getElementType())
    return tile;
  Type type = cast<VectorType>(tile.getType()).clone(schedule.getDotType());
  return arith::ExtFOp::create(b, loc, type, tile);
}

/// `memory` is the order of the memref's dimensions; that of a log-sum-exp is always [B, H, N].
Operands::Packed Operands::pack(Value memref, Layout memory, Value batch,
                                const ProgramPoint &at) const {
  bool isLse = cast<MemRefType>(memref.getType()).getRank() == 4;
  Value inGroup = sub(at.head, mul(at.kvHead, sizes.headTiles));
  Packed packed;
  SmallVector<int64_t> rowSizes = {schedule.getPack(), getPositions()};
  packed.dims = {2, 3};
  packed.indices = {batch, at.kvHead, inGroup, at.tile};
  if (memory == Layout::BSHD && !isLse) {
    packed.dims = {3, 1};
    packed.indices = {batch, at.tile, at.kvHead, inGroup};
  }
  if (op.getLayout() == Layout::BSHD) {
    std::swap(rowSizes[0], rowSizes[1]);
    std::swap(packed.dims[0], packed.dims[1]);
  }
  packed.inBounds = {false, false};
  packed.rows = PackedRowsOp::create(b, loc, rowSizes);
  if (!isLse) {
    packed.dims.push_back(4);
    packed.indices.push_back(index(0));
    packed.inBounds.push_back(padColumns(getColumns(memref)) == getColumns(memref));
  }
  return packed;
}

Value Operands::buildRowMap(const IndexRange &existing, ArrayRef<RowSegment> segments) const {
  if (segments.empty())
    return existing.begin || existing.end
               ? DenseRowsOp::create(b, loc, existing.begin, existing.end).getResult()
               : Value();
  SmallVector<Value> starts, skips;
  SmallVector<int64_t> lowerBounds;
  for (const RowSegment &segment : segments) {
    starts.push_back(segment.start);
    skips.push_back(segment.skip);
    lowerBounds.push_back(segment.lowerBound);
  }
  return CompactRowsOp::create(b, loc, existing.begin, existing.end, starts, skips, lowerBounds);
}

Value Operands::loadRows(Value memref, Value batch, Value head, Value tile, int64_t count,
                         Value rows, bool ones) const {
  int64_t columns = padColumns(getColumns(memref)) + (ones ? LoadTileOp::kOnes : 0);
  auto type = VectorType::get({count, columns}, op.getElementType());
  SmallVector<Value> indices = {batch, head, tile, index(0)};
  if (op.getLayout() == Layout::BSHD)
    std::swap(indices[1], indices[2]);
  int64_t dims[] = {op.getSeqDim(), 3};
  bool inBounds[] = {false, columns == getColumns(memref)};
  return toDotType(LoadTileOp::create(b, loc, type, memref, indices, dims, inBounds, rows, ones));
}

Value Operands::loadQueries(const ProgramPoint &at) const { return loadQueryTile(q, at); }

Value Operands::loadQueryTile(Value memref, const ProgramPoint &at) const {
  if (!isPacked())
    return loadRows(memref, at.batch, at.head, at.tile, schedule.getTileM());
  auto type =
      VectorType::get({schedule.getTileM(), padColumns(getColumns(memref))}, op.getElementType());
  Packed packed = pack(memref, op.getLayout(), at.batch, at);
  return toDotType(LoadTileOp::create(b, loc, type, memref, packed.indices, packed.dims,
                                      packed.inBounds, packed.rows));
}

Value Operands::loadQueryRows(Value memref, Value batch, const ProgramPoint &at,
                              bool inBounds) const {
  VectorType type = f32Vector({schedule.getTileM()});
  if (!isPacked())
    return LoadTileOp::create(b, loc, type, memref, ValueRange{batch, at.head, at.tile},
                              ArrayRef<int64_t>{2}, ArrayRef<bool>{inBounds});
  Packed packed = pack(memref, Layout::BHSD, batch, at);
  return LoadTileOp::create(b, loc, type, memref, packed.indices, packed.dims, packed.inBounds,
                            packed.rows);
}

RowPattern Operands::getPattern() const {
  RowPattern pattern;
  if (op.getLayout() == Layout::BSHD)
    pattern.repeat = schedule.getPack();
  else
    pattern.span = getPositions();
  return pattern;
}

bool Operands::leavesRowHalfUnused() const {
  constexpr int64_t kBlock = 16, kHalf = 8;
  std::optional<int64_t> queries = getConstantIntValue(sizes.queries);
  if (!queries)
    return false;
  RowPattern pattern = getPattern();
  int64_t heads = getConstantIntValue(sizes.group).value_or(schedule.getPack());
  return llvm::none_of(llvm::seq(schedule.getTileM()), [&](int64_t row) {
    int64_t position = row / pattern.repeat % pattern.span;
    int64_t head = row / pattern.span * pattern.repeat + row % pattern.repeat;
    return row % kBlock >= kHalf && position < *queries && head < heads;
  });
}

Value Operands::loadKeys(Value memref, const ProgramPoint &at, Value tile, Value rows,
                         bool ones) const {
  return loadRows(memref, at.batch, at.kvHead, tile, schedule.getTileN(), rows, ones);
}

/// Stores a tile along the sequence of a memref of `layout`.
static void storeSequence(OpBuilder &b, Location loc, Value rows, Value memref, Layout layout,
                          ArrayRef<Value> at) {
  SmallVector<Value> indices(at);
  indices.push_back(arith::ConstantIndexOp::create(b, loc, 0));
  SmallVector<int64_t> dims = {2, 3};
  if (layout == Layout::BSHD) {
    std::swap(indices[1], indices[2]);
    dims[0] = 1;
  }
  bool inBounds[] = {false, cast<VectorType>(rows.getType()).getDimSize(1) == getColumns(memref)};
  StoreTileOp::create(b, loc, rows, memref, indices, dims, inBounds);
}

void Operands::storeRows(Value rows, Value memref, Value batch, Value head, Value tile) const {
  storeSequence(b, loc, rows, memref, op.getLayout(), {batch, head, tile});
}

void Operands::storeOutput(Value rows, const Destination &to, const ProgramPoint &at) const {
  if (isPacked()) {
    Packed packed = pack(to.o, to.layout, at.outBatch, at);
    StoreTileOp::create(b, loc, rows, to.o, packed.indices, packed.dims, packed.inBounds,
                        packed.rows);
    return;
  }
  storeSequence(b, loc, rows, to.o, to.layout, {at.outBatch, at.head, at.tile});
}

void Operands::storePerRow(Value rows, Value memref, const ProgramPoint &at) const {
  if (isPacked()) {
    Packed packed = pack(memref, Layout::BHSD, at.outBatch, at);
    StoreTileOp::create(b, loc, rows, memref, packed.indices, packed.dims, packed.inBounds,
                        packed.rows);
    return;
  }
  StoreTileOp::create(b, loc, rows, memref, ValueRange{at.outBatch, at.head, at.tile},
                      ArrayRef<int64_t>{2}, ArrayRef<bool>{false});
}
