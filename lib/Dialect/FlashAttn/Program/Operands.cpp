//===- Operands.cpp -------------------------------------------------------===//

#include "Operands.h"
#include "flashattn/Dialect/FlashAttn/Program/TileLoops.h"
#include "mlir/Dialect/MemRef/IR/MemRef.h"
#include "mlir/Dialect/Utils/StaticValueUtils.h"
#include "mlir/Dialect/Vector/IR/VectorOps.h"

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
  Value table = op.getPageTable();
  if (op.hasPages())
    sizes.keys = mul(sizes.keys, dim(table, 1));
  sizes.batches = dim(!op.getCuSeqlensQ() ? op.getQ() : table ? table : op.getK(), 0);
  sizes.heads = dim(op.getQ(), op.getHeadDim());
  sizes.kvHeads = dim(op.getK(), op.getHeadDim());
  // A4. Without key/value heads there are no query heads, and nothing runs.
  Value divisor = b.createOrFold<arith::MaxUIOp>(loc, sizes.kvHeads, index(1));
  sizes.group = sizes.headTiles = div(sizes.heads, divisor);
  if (packsHeads())
    sizes.headTiles = ceilDiv(sizes.group, schedule.getPack());
}

int64_t Operands::padColumns(int64_t columns) const { return schedule.padColumns(columns); }

void Operands::packHeads(Destination &destination) {
  q = splitHeads(op.getQ(), op.getHeadDim());
  destination.o = splitHeads(destination.o, destination.layout == Layout::BHSD ? 1 : 2);
  for (Value *perRow : {&destination.lse, &destination.lseRest})
    if (*perRow)
      *perRow = splitHeads(*perRow, /*headDim=*/1);
}

Value Operands::splitHeads(Value memref, int64_t headDim) const {
  if (!packsHeads())
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

Sequence Operands::getAll() const {
  Sequence all{/*batch=*/Value(), sizes.queries, sizes.keys, op.getOffset()};
  // A3: the position of query 0. It depends on the batch if the lengths do, or if it is given so.
  if (!all.offset && !op.hasOwnSequences())
    all.offset = op.getAlign() == Align::TopLeft ? index(0) : sub(sizes.keys, sizes.queries);
  return all;
}

Value Operands::getStarts(TileAxis axis) const {
  return axis == TileAxis::Queries ? op.getCuSeqlensQ() : op.getCuSeqlensK();
}

Value Operands::getSegmentStarts(TileAxis axis) const {
  return op.getMostQueries() ? Value() : getStarts(axis);
}

Sequence Operands::getSequence(const Sequence &all, Value batch, TileAxis axis) const {
  Sequence own = all;
  own.batch = batch;
  if (!op.hasOwnSequences())
    return own;
  auto load = [&](Value memref, Value at) {
    Value length = memref::LoadOp::create(b, loc, memref, at);
    return arith::IndexCastOp::create(b, loc, b.getIndexType(), length).getResult();
  };
  auto clamp = [&](Value length, Value most) { return min(max(length, index(0)), most); };
  // S3: the first segment has the rows before all sequences, and the last one those after them.
  Value isSequence;
  if (Value starts = getSegmentStarts(axis)) {
    Value before = sub(batch, index(1)), last = sub(dim(starts, 0), index(2));
    own.batch = clamp(before, last);
    isSequence = arith::CmpIOp::create(b, loc, arith::CmpIPredicate::eq, before, own.batch);
  }
  for (TileAxis of : {TileAxis::Queries, TileAxis::Keys}) {
    bool isQueries = of == TileAxis::Queries;
    Value &count = isQueries ? own.queries : own.keys;
    if (Value starts = getStarts(of)) {
      Value rows = count, after = add(own.batch, index(1));
      Sequence::Packed packed{clamp(load(starts, own.batch), rows), Value(), after};
      Value end = max(min(load(starts, after), rows), packed.first);
      if (of == axis && isSequence) {
        packed.segment = batch;
        Value isFirst = arith::CmpIOp::create(b, loc, arith::CmpIPredicate::eq, batch, index(0));
        // In the first segment, `first` is the end, and in the last one, `end` is the first row.
        Value first = packed.first;
        packed.first = select(isSequence, first, select(isFirst, index(0), end));
        end = select(isSequence, end, select(isFirst, first, rows));
      }
      packed.count = sub(end, packed.first);
      if (isQueries)
        packed.count = limitQueries(packed.count, isSequence);
      count = packed.count;
      (isQueries ? own.packedQueries : own.packedKeys) = packed;
    }
    if (Value given = isQueries ? Value() : op.getLeftpadK()) {
      own.leftpad = clamp(load(given, own.batch), count);
      count = sub(count, own.leftpad);
    }
    // S4, A7: lengths are clamped.
    if (Value given = isQueries ? op.getQLen() : op.getKvLen())
      count = clamp(load(given, own.batch), count);
    if (isSequence)
      count = select(isSequence, count, index(0));
  }
  if (Value given = op.getOffsets())
    own.offset = load(given, own.batch);
  for (Value given : op.getPerSequence())
    own.symbols.push_back(
        load(given, AttentionOpInterface::isBroadcastDim(given, 0) ? index(0) : own.batch));
  if (op.getPageTable() && !op.hasPages()) {
    Value at[] = {own.batch, index(0)};
    own.slot = arith::IndexCastOp::create(b, loc, b.getIndexType(),
                                          memref::LoadOp::create(b, loc, op.getPageTable(), at));
  }
  if (!own.offset)
    own.offset = op.getAlign() == Align::TopLeft ? index(0) : sub(own.keys, own.queries);
  if (!op.hasPackedSequences())
    return own;
  // Numbers of rows have 32 bits. Kept as such, they take half the registers of a thread.
  auto narrow = [&](Value v) -> Value {
    Type i32 = b.getI32Type(), i64 = b.getI64Type();
    v = arith::IndexCastOp::create(b, loc, i64, v);
    v = arith::ExtSIOp::create(b, loc, i64, arith::TruncIOp::create(b, loc, i32, v));
    return arith::IndexCastOp::create(b, loc, b.getIndexType(), v);
  };
  for (Value *number : {&own.queries, &own.keys, &own.offset})
    *number = narrow(*number);
  for (std::optional<Sequence::Packed> *packed : {&own.packedQueries, &own.packedKeys})
    if (*packed) {
      (*packed)->first = narrow((*packed)->first);
      (*packed)->count = narrow((*packed)->count);
    }
  return own;
}

Value Operands::limitQueries(Value count, Value isSequence) const {
  std::optional<int64_t> least = op.getLeastQueries(), most = op.getMostQueries();
  Value isComputed;
  auto require = [&](arith::CmpIPredicate predicate, std::optional<int64_t> limit) {
    if (!limit)
      return;
    Value fits = arith::CmpIOp::create(b, loc, predicate, count, index(*limit));
    isComputed = isComputed ? arith::AndIOp::create(b, loc, isComputed, fits).getResult() : fits;
  };
  require(arith::CmpIPredicate::sge, least);
  require(arith::CmpIPredicate::sle, most);
  if (!isComputed)
    return count;
  Value limited = select(isComputed, count, index(0));
  return isSequence ? select(isSequence, limited, count) : limited;
}

Value Operands::countTiles(TileAxis axis, int64_t rows, int64_t whole) const {
  Value size = axis == TileAxis::Queries ? sizes.queries : sizes.keys;
  Value starts = getSegmentStarts(axis);
  auto ifAny = [&](Value tiles) {
    Value any = arith::CmpIOp::create(b, loc, arith::CmpIPredicate::ne, size, index(0));
    return select(any, tiles, index(0));
  };
  if (!starts) {
    Value tiles = ceilDiv(getRowsPerSequence(axis), rows);
    // Without rows, programs of sequences must not read one.
    return getStarts(axis) ? ifAny(tiles) : tiles;
  }
  // One segment more than starts. Segment i begins at multiple `first row / whole + i` of `whole`.
  Value segments = add(dim(starts, 0), index(1));
  return ifAny(mul(add(div(size, index(whole)), segments), whole / rows));
}

ProgramOp Operands::createProgram(TileAxis axis, Value heads, Value tiles, int64_t rows,
                                  int64_t whole, ScheduleAttr of) const {
  Value starts = getSegmentStarts(axis);
  ProgramAxis axes[] = {ProgramAxis::Batch, ProgramAxis::Head,
                        axis == TileAxis::Queries ? ProgramAxis::QueryTile : ProgramAxis::KeyTile};
  if (!starts)
    return ProgramOp::create(b, loc, ValueRange{sizes.batches, heads, tiles}, axes, of);
  RaggedAxes ragged{starts, rows, whole / rows, op.getLeastQueries().value_or(1)};
  Value space = RaggedSpaceOp::create(b, loc, ValueRange{index(1), heads, tiles}, axes, ragged);
  return ProgramOp::create(b, loc, space, of);
}

std::pair<Value, Value> Operands::takeRows(Value memref, TileAxis axis, const Sequence &sequence,
                                           bool exist) const {
  const auto &packed = axis == TileAxis::Queries ? sequence.packedQueries : sequence.packedKeys;
  if (axis == TileAxis::Keys && !packed) {
    if (op.hasPages())
      return {memref, index(0)};
    Value slot = sequence.slot ? sequence.slot : sequence.batch;
    if (!sequence.leftpad)
      return {memref, slot};
    // As below, there must be a last row.
    return {flashattn::takeRows(b, loc, memref, op.getSeqDim(),
                                min(sequence.leftpad, sub(sizes.keys, index(1))), Value()),
            slot};
  }
  if (!packed)
    return {memref, sequence.batch};
  unsigned rank = cast<MemRefType>(memref.getType()).getRank();
  return takePackedRows(memref, rank == 4 ? op.getSeqDim() : 2, axis, sequence, exist);
}

std::pair<Value, Value> Operands::takePackedRows(Value memref, unsigned rowDim, TileAxis axis,
                                                 const Sequence &sequence, bool exist) const {
  const auto &packed = axis == TileAxis::Queries ? sequence.packedQueries : sequence.packedKeys;
  unsigned rank = cast<MemRefType>(memref.getType()).getRank();
  SmallVector<OpFoldResult> lengths = memref::getMixedSizes(b, loc, memref);
  SmallVector<OpFoldResult> offsets(rank, b.getIndexAttr(0)), strides(rank, b.getIndexAttr(1));
  Value first = packed->first, count = packed->count;
  if (exist) {
    // A thread reads the last row in place of rows past the end, which have no effect, so that
    // there must be one.
    count = max(axis == TileAxis::Queries ? sequence.queries : sequence.keys, index(1));
    first = min(first, sub(axis == TileAxis::Queries ? sizes.queries : sizes.keys, index(1)));
  }
  offsets[rowDim] = getAsOpFoldResult(first);
  lengths[rowDim] = getAsOpFoldResult(count);
  return {memref::SubViewOp::create(b, loc, memref, offsets, lengths, strides), index(0)};
}

void Operands::makeRanges(const Sequence &all, int64_t queries, int64_t keys, bool copiesKeys) {
  queryRanges = std::make_shared<SymbolRanges>(*this, op, all, TileAxis::Queries, queries,
                                               /*copies=*/false);
  keyRanges = std::make_shared<SymbolRanges>(*this, op, all, TileAxis::Keys, keys, copiesKeys);
}

void Operands::freeRanges() const {
  queryRanges->free();
  keyRanges->free();
}

SymbolValues Operands::getSymbols(const Sequence &sequence, std::optional<RowTile> queries,
                                  std::optional<RowTile> keys) const {
  SymbolValues values{sequence.queries, sequence.keys};
  for (Value value : sequence.symbols)
    values.others.push_back({value, value});
  for (auto [rows, ranges, count] : {std::tuple(queries, queryRanges, op.getPerQuery().size()),
                                     std::tuple(keys, keyRanges, op.getPerKey().size())}) {
    SmallVector<SymbolRange> known;
    if (rows && ranges)
      known = ranges->get(sequence, rows->head, rows->first, rows->count);
    known.resize(count);
    llvm::append_range(values.others, known);
  }
  return values;
}

IndexRange Operands::getVisible(TileAxis axis, const Sequence &sequence) const {
  IndexRange range;
  if (op.getMask()) {
    std::optional<Align> align;
    if (!op.hasOffset())
      align = op.getAlign();
    range = buildVisibleRange(b, loc, visible, axis, sequence.offset, getSymbols(sequence), align);
  }
  bool isQueries = axis == TileAxis::Queries;
  bool hasMissing = isQueries ? op.getQLen() != nullptr : op.getKvLen() != nullptr;
  if ((hasMissing || getStarts(axis)) && !range.end)
    range.end = isQueries ? sequence.queries : sequence.keys;
  return range;
}

SmallVector<TileInterval> Operands::findKeys(const Sequence &sequence, const RowTile &queries,
                                             int64_t columns, std::optional<RowTile> tile) const {
  Value firstQuery = queries.first;
  Value end = min(add(firstQuery, index(queries.count)), sequence.queries), keys = sequence.keys;
  // A tile without a query sees no key.
  if (op.hasPackedSequences() || op.getQLen())
    keys = select(less(firstQuery, sequence.queries), keys, index(0));
  SymbolValues symbols = getSymbols(sequence, queries, tile);
  symbols.nk = keys;
  return buildKeyIntervals(b, loc, visible, add(firstQuery, sequence.offset),
                           sub(add(end, sequence.offset), index(1)), symbols, columns,
                           /*constants=*/op.getScheduleAttr().compactsKV());
}

SmallVector<TileInterval> Operands::findQueries(const Sequence &sequence, const RowTile &keys,
                                                int64_t columns,
                                                std::optional<RowTile> tile) const {
  Value firstKey = keys.first;
  // A tile past kv_len has no key, but the last key must not be before the first.
  Value lastKey = sub(min(add(firstKey, index(keys.count)), sequence.keys), index(1));
  if (op.hasOwnLengths())
    lastKey = max(lastKey, firstKey);
  Value queries = sequence.queries;
  // No query sees a tile without a key.
  if (sequence.packedKeys)
    queries = select(less(firstKey, sequence.keys), queries, index(0));
  SymbolValues symbols = getSymbols(sequence, tile, keys);
  symbols.nq = queries;
  return buildQueryIntervals(b, loc, visible, firstKey, lastKey, sequence.offset, symbols, columns);
}

CountedRows::CountedRows(const Operands &operands, TileAxis axis, const Sequence &all)
    : operands(operands), axis(axis) {
  if (!operands.op.hasOwnSequences())
    ofAll = operands.getVisible(axis, all);
}

IndexRange CountedRows::get(const Sequence &sequence) const {
  return operands.op.hasOwnSequences() ? operands.getVisible(axis, sequence) : ofAll;
}

Value Operands::toDotType(Value tile) const {
  auto type = cast<VectorType>(tile.getType());
  // An f32 output of operands of 16 bits is no operand of a product.
  if (schedule.getDotType() == op.getElementType() ||
      type.getElementType() == schedule.getDotType())
    return tile;
  return arith::ExtFOp::create(b, loc, type.clone(schedule.getDotType()), tile);
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

/// Returns the dimension of positions of a memref with split heads.
static unsigned getPositionDim(Value memref, Layout memory) {
  bool isLse = cast<MemRefType>(memref.getType()).getRank() == 4;
  return memory == Layout::BSHD && !isLse ? 1 : 3;
}

std::pair<Value, Value> Operands::takePacked(Value memref, Layout memory, const ProgramPoint &at,
                                             bool exist) const {
  if (!at.sequence.packedQueries)
    return {memref, at.sequence.batch};
  return takePackedRows(memref, getPositionDim(memref, memory), TileAxis::Queries, at.sequence,
                        exist);
}

std::pair<Value, Value> Operands::takeOutput(Value memref, const Destination &to,
                                             const ProgramPoint &at) const {
  bool isPacked = at.sequence.packedQueries.has_value();
  if (isPacked && to.isOfSplits()) {
    // Rows past the end of the sequence are not merged.
    unsigned rowDim = packsHeads() ? 3 : 2;
    return {flashattn::takeRows(b, loc, memref, rowDim, Value(), at.sequence.queries), at.outBatch};
  }
  if (!isPacked)
    return {memref, at.outBatch};
  return packsHeads() ? takePacked(memref, to.layout, at, /*exist=*/false)
                      : takeRows(memref, TileAxis::Queries, at.sequence, /*exist=*/false);
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

Value Operands::buildPageMap(const IndexRange &existing, const Sequence &sequence,
                             ArrayRef<TileInterval> pages) const {
  int64_t size = cast<ShapedType>(op.getK().getType()).getDimSize(op.getSeqDim());
  auto begins = llvm::map_to_vector(pages, [](const TileInterval &of) { return of.begin; });
  auto ends = llvm::map_to_vector(pages, [](const TileInterval &of) { return of.end; });
  return PagedRowsOp::create(b, loc, existing.begin, existing.end, sequence.leftpad,
                             op.getPageTable(), sequence.batch, size, begins, ends);
}

/// Whether a scale serves all rows of a sequence, and all columns.
static bool isOneScale(AttentionOpInterface op, Value scales) {
  auto isOne = [&](unsigned dim) { return AttentionOpInterface::isBroadcastDim(scales, dim); };
  return isOne(op.getSeqDim()) && isOne(3);
}

Value Operands::takeScales(Value scales, const Sequence &sequence) const {
  if (!scales || isOneScale(op, scales))
    return {};
  auto type = cast<MemRefType>(scales.getType());
  if (!AttentionOpInterface::isBroadcastDim(scales, op.getSeqDim()))
    return takeRows(scales, TileAxis::Keys, sequence, /*exist=*/true).first;
  if (type.getDimSize(0) == 1)
    return scales;
  // Scales of the sequence, whereas the load's first index may be that of a page.
  SmallVector<OpFoldResult> lengths = memref::getMixedSizes(b, loc, scales);
  SmallVector<OpFoldResult> offsets(4, b.getIndexAttr(0)), strides(4, b.getIndexAttr(1));
  offsets[0] = sequence.batch;
  lengths[0] = b.getIndexAttr(1);
  return memref::SubViewOp::create(b, loc, scales, offsets, lengths, strides);
}

Value Operands::loadScale(Value scales, const ProgramPoint &at) const {
  if (!scales || !isOneScale(op, scales))
    return {};
  SmallVector<Value> indices(4, index(0));
  if (!AttentionOpInterface::isBroadcastDim(scales, 0))
    indices[0] = at.sequence.batch;
  if (!AttentionOpInterface::isBroadcastDim(scales, op.getHeadDim()))
    indices[op.getHeadDim()] = at.kvHead;
  return memref::LoadOp::create(b, loc, scales, indices);
}

Value Operands::loadRows(Value memref, TileAxis axis, const Sequence &sequence, Value head,
                         Value tile, int64_t count, Value rows, bool ones, Value scales) const {
  Value batch;
  scales = takeScales(scales, sequence);
  std::tie(memref, batch) = takeRows(memref, axis, sequence, /*exist=*/true);
  int64_t columns = padColumns(getColumns(memref)) + (ones ? LoadTileOp::kOnes : 0);
  Type element = cast<MemRefType>(memref.getType()).getElementType();
  if (isNarrow(element) && axis == TileAxis::Keys)
    element = schedule.getDotType();
  auto type = VectorType::get({count, columns}, element);
  SmallVector<Value> indices = {batch, head, tile, index(0)};
  if (op.getLayout() == Layout::BSHD)
    std::swap(indices[1], indices[2]);
  int64_t dims[] = {op.getSeqDim(), 3};
  bool inBounds[] = {false, columns == getColumns(memref)};
  return toDotType(
      LoadTileOp::create(b, loc, type, memref, indices, dims, inBounds, rows, ones, scales));
}

Value Operands::loadQueries(const ProgramPoint &at, bool exist) const {
  bool mayLack = !packsHeads() && (op.getQLen() || at.sequence.packedQueries);
  return loadQueryTile(q, at,
                       exist && mayLack ? buildRowMap({Value(), at.sequence.queries}) : Value());
}

Value Operands::loadQueryTile(Value memref, const ProgramPoint &at, Value rows) const {
  if (!packsHeads())
    return loadRows(memref, TileAxis::Queries, at.sequence, at.head, at.tile, schedule.getTileM(),
                    rows);
  auto type =
      VectorType::get({schedule.getTileM(), padColumns(getColumns(memref))}, op.getElementType());
  auto [source, batch] = takePacked(memref, op.getLayout(), at, /*exist=*/true);
  Packed packed = pack(source, op.getLayout(), batch, at);
  return toDotType(LoadTileOp::create(b, loc, type, source, packed.indices, packed.dims,
                                      packed.inBounds, packed.rows));
}

Value Operands::loadQueryRows(Value memref, Value batch, const ProgramPoint &at,
                              bool inBounds) const {
  VectorType type = f32Vector({schedule.getTileM()});
  if (!packsHeads())
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
  std::optional<int64_t> queries = getConstantIntValue(getRowsPerSequence(TileAxis::Queries));
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

Value Operands::loadKeys(Value memref, const ProgramPoint &at, Value tile, Value rows, bool ones,
                         Value scales) const {
  return loadRows(memref, TileAxis::Keys, at.sequence, at.kvHead, tile, schedule.getTileN(), rows,
                  ones, scales);
}

Value Operands::hideMissingQueries(Value rows, const ProgramPoint &at, double missing) const {
  // With packed heads, only queries that exist are stored.
  if (packsHeads() || (!op.getQLen() && !at.sequence.packedQueries))
    return rows;
  auto type = cast<VectorType>(rows.getType());
  Value exists =
      isBelow(sub(at.sequence.queries, mul(at.tile, getPositions())), type.getDimSize(0));
  if (type.getRank() == 2) {
    exists = vector::ShapeCastOp::create(
        b, loc, VectorType::get({type.getDimSize(0), 1}, b.getI1Type()), exists);
    exists = vector::BroadcastOp::create(b, loc, type.clone(b.getI1Type()), exists);
  }
  return arith::SelectOp::create(b, loc, exists, rows, splat(type, missing));
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

void Operands::storeRows(Value rows, Value memref, TileAxis axis, const Sequence &sequence,
                         Value head, Value tile) const {
  Value batch;
  std::tie(memref, batch) = takeRows(memref, axis, sequence, /*exist=*/false);
  storeSequence(b, loc, rows, memref, op.getLayout(), {batch, head, tile});
}

void Operands::storeOutput(Value rows, const Destination &to, const ProgramPoint &at) const {
  auto [target, batch] = takeOutput(to.o, to, at);
  if (packsHeads()) {
    Packed packed = pack(target, to.layout, batch, at);
    StoreTileOp::create(b, loc, rows, target, packed.indices, packed.dims, packed.inBounds,
                        packed.rows);
    return;
  }
  storeSequence(b, loc, rows, target, to.layout, {batch, at.head, at.tile});
}

void Operands::storePerRow(Value rows, Value memref, const Destination &to,
                           const ProgramPoint &at) const {
  auto [target, batch] = takeOutput(memref, to, at);
  if (packsHeads()) {
    Packed packed = pack(target, Layout::BHSD, batch, at);
    StoreTileOp::create(b, loc, rows, target, packed.indices, packed.dims, packed.inBounds,
                        packed.rows);
    return;
  }
  StoreTileOp::create(b, loc, rows, target, ValueRange{batch, at.head, at.tile},
                      ArrayRef<int64_t>{2}, ArrayRef<bool>{false});
}
