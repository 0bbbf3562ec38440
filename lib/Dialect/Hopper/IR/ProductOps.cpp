//===- ProductOps.cpp - products of warpgroups, and tile values -----------===//

#include "flashattn/Dialect/Hopper/IR/Hopper.h"

using namespace mlir;
using namespace mlir::flashattn::hopper;

static bool isF8(Type type) { return isa<Float8E4M3FNType, Float8E5M2Type>(type); }

/// Returns the number of columns of a value with 64 rows: a whole tile, or the fragment that one of
/// 128 threads holds.
static int64_t getVectorColumns(VectorType type) {
  return type.getRank() == 2 ? type.getDimSize(1)
                             : type.getNumElements() * kWarpgroupThreads / kWarpgroupRows;
}

int64_t WgmmaOp::getColumns() { return getVectorColumns(cast<VectorType>(getD().getType())); }

int64_t WgmmaOp::getContraction() {
  if (std::optional<uint64_t> depth = getDepth())
    return *depth;
  if (auto vector = dyn_cast<VectorType>(getA().getType()))
    return getVectorColumns(vector);
  auto memref = cast<MemRefType>(getA().getType());
  if (getTransposedA())
    return memref.getDimSize(1);
  return memref.getDimSize(0) * memref.getDimSize(2);
}

/// Verifies that vectors are all whole tiles, in multiples of 64 rows, or all thread fragments.
static LogicalResult verifyVectors(Operation *op, ValueRange values) {
  VectorType first;
  for (Value value : values) {
    auto type = dyn_cast<VectorType>(value.getType());
    if (!type)
      continue;
    if (type.isScalable() || type.getRank() < 1 || type.getRank() > 2)
      return op->emitOpError() << "expected vectors of one or two dimensions but got " << type;
    if (type.getRank() == 2 && type.getDimSize(0) % kWarpgroupRows != 0)
      return op->emitOpError() << "expected a multiple of " << kWarpgroupRows << " rows but got "
                               << type;
    if (!first)
      first = type;
    if (type.getRank() != first.getRank())
      return op->emitOpError() << "expected all vectors to be whole tiles or all to be one "
                                  "thread's part but got "
                               << first << " and " << type;
  }
  return success();
}

/// Verifies that `first`, if present, has a valid number of columns: fewer than `columns` or, with
/// `mayBeAll`, as many. It is a tile of 64 rows or the fragment of one thread.
static LogicalResult verifyFirst(Operation *op, Value first, Type element, int64_t columns,
                                 bool mayBeAll) {
  if (!first)
    return success();
  auto type = cast<VectorType>(first.getType());
  int64_t held = getVectorColumns(type);
  int64_t depth = getWgmmaDepth(element);
  if (type.getElementType() == element && held % depth == 0 &&
      (held < columns || (mayBeAll && held == columns)))
    return success();
  return op->emitOpError() << "expected 'first' to be a multiple of " << depth << " columns of "
                           << element << (mayBeAll ? ", at most " : ", fewer than ") << columns
                           << ", but got " << type;
}

LogicalResult WgmmaOp::verify() {
  FailureOr<SharedTile> b = SharedTile::verify(*this, "b", getB());
  SmallVector<Value> vectors{getA(), getD()};
  if (getFirst())
    vectors.push_back(getFirst());
  if (failed(b) || failed(verifyVectors(*this, vectors)))
    return failure();
  if (getAcc() && getAcc().getType() != getD().getType())
    return emitOpError() << "expected an accumulator of the result's type, " << getD().getType()
                         << ", but got " << getAcc().getType();
  if (getOverwritten() && !getAcc())
    return emitOpError() << "expected an accumulator with overwritten but got none";

  int64_t aColumns;
  Type aElement = getElementTypeOrSelf(getA().getType());
  if (auto vector = dyn_cast<VectorType>(getA().getType())) {
    if (getTransposedA())
      return emitOpError() << "expected a transposed 'a' in shared memory but got " << vector;
    aColumns = getVectorColumns(vector);
  } else {
    FailureOr<SharedTile> a = SharedTile::verify(*this, "a", getA());
    if (failed(a))
      return failure();
    auto d = cast<VectorType>(getD().getType());
    int64_t rows = d.getRank() == 2 ? d.getDimSize(0) : kWarpgroupRows;
    if ((getTransposedA() ? a->getColumns() : a->rows) != rows)
      return emitOpError() << "expected " << rows << (getTransposedA() ? " columns" : " rows")
                           << " of 'a' but got " << getA().getType();
    aColumns = getTransposedA() ? a->rows : a->getColumns();
  }
  if (failed(verifyFirst(*this, getFirst(), aElement, getContraction(), /*mayBeAll=*/false)))
    return failure();
  if (getFirst() && (!isa<MemRefType>(getA().getType()) || getTransposedA()))
    return emitOpError()
           << "expected no 'first' columns unless 'a' is in shared memory and not transposed";
  bool areF8 = isF8(aElement) && isF8(b->elementType);
  if (aElement != b->elementType && !areF8)
    return emitOpError() << "expected 'b' with element type " << aElement << " as in 'a' but got "
                         << b->elementType;
  if (!areF8 && !aElement.isF16() && !aElement.isBF16())
    return emitOpError() << "expected elements of f16, bf16, f8E4M3FN or f8E5M2 but got "
                         << aElement;
  if (areF8 && (getTransposed() || getTransposedA() || getFirst()))
    return emitOpError() << "expected neither transposed operands nor 'first' with " << aElement
                         << " but got one";

  int64_t n = getColumns(), k = getContraction();
  int64_t bDepth = getTransposed() ? b->rows : b->getColumns();
  int64_t bColumns = getTransposed() ? b->getColumns() : b->rows;
  if (int64_t depth = getWgmmaDepth(aElement); k < depth || k % depth != 0)
    return emitOpError() << "expected a contraction over a multiple of " << depth << " but got "
                         << k;
  if (getDepth() ? k > aColumns || k > bDepth : k != bDepth)
    return emitOpError() << "expected a contraction of " << k << " but got " << aColumns
                         << (getTransposedA() ? " rows" : " columns") << " of 'a' and " << bDepth
                         << (getTransposed() ? " rows" : " columns") << " of 'b'";
  if (n < 8 || n > 256 || n % 8 != 0)
    return emitOpError()
           << "expected a multiple of 8 up to 256 as number of columns of the result but got " << n;
  if (n > bColumns)
    return emitOpError() << "expected at most " << bColumns
                         << " columns of the result, the number in 'b', but got " << n;
  return success();
}

LogicalResult WgmmaWaitOp::inferReturnTypes(MLIRContext *, std::optional<Location>,
                                            ValueRange operands, DictionaryAttr, OpaqueProperties,
                                            RegionRange, SmallVectorImpl<Type> &types) {
  llvm::append_range(types, operands.getTypes());
  return success();
}

/// Verifies that elements of 8 and 16 bits fill whole registers. The registers of two groups of 8
/// columns share elements of 8 bits.
static LogicalResult verifyRegisters(Operation *op, VectorType type) {
  int64_t bits = type.getElementTypeBitWidth(), count = bits == 8 ? 8 : 32 / bits;
  if (type.getNumElements() % count == 0)
    return success();
  return op->emitOpError() << "expected a multiple of " << count << " elements of " << bits
                           << " bits but got " << type;
}

LogicalResult WgmmaWaitOp::verify() {
  if (getValues().empty())
    return emitOpError() << "expected one value or more but got none";
  if (static_cast<int64_t>(getPending()) < 0)
    return emitOpError() << "expected 'pending' of 0 or more but got "
                         << static_cast<int64_t>(getPending());
  for (Value value : getValues())
    if (failed(verifyRegisters(*this, cast<VectorType>(value.getType()))))
      return failure();
  return verifyVectors(*this, getValues());
}

/// Verifies that `value` is a whole tile with the rows and the first columns of `tile`.
static LogicalResult verifyTileValue(Operation *op, Value tile, Value value) {
  FailureOr<SharedTile> shape = SharedTile::verify(op, "tile", tile);
  if (failed(shape))
    return failure();
  auto type = cast<VectorType>(value.getType());
  if (type.getRank() != 2 || type.getDimSize(0) != shape->rows ||
      type.getDimSize(1) > shape->getColumns() || type.getElementType() != shape->elementType)
    return op->emitOpError()
           << "expected a vector with all rows and the leading columns of the tile "
           << tile.getType() << " but got " << type;
  return success();
}

LogicalResult LoadTileOp::verify() {
  if (failed(verifyTileValue(*this, getTile(), getResult())))
    return failure();
  auto type = cast<VectorType>(getResult().getType());
  if (Value first = getFirst())
    if (auto held = cast<VectorType>(first.getType());
        held.getRank() != 2 || held.getDimSize(0) != type.getDimSize(0))
      return emitOpError() << "expected 'first' with " << type.getDimSize(0) << " rows but got "
                           << held;
  return verifyFirst(*this, getFirst(), type.getElementType(), type.getDimSize(1),
                     /*mayBeAll=*/true);
}

/// Verifies that `value` is such a tile with a multiple of 16 columns, or the fragment of one
/// thread. With `byWarps`, the tile may have 16 rows, all of which every warp loads.
static LogicalResult verifyThreadsTile(Operation *op, Value memref, Value value,
                                       bool byWarps = false) {
  auto type = cast<VectorType>(value.getType());
  if (type.getRank() == 2) {
    if (failed(verifyTileValue(op, memref, value)) || failed(verifyVectors(op, value)))
      return failure();
    if (type.getDimSize(1) % 16 != 0)
      return op->emitOpError() << "expected columns in multiples of 16 but got " << type;
    return success();
  }
  FailureOr<SharedTile> tile = SharedTile::verify(op, "tile", memref);
  if (failed(tile))
    return failure();
  int64_t pairs = type.getRank() == 1 ? type.getNumElements() : 0;
  constexpr int64_t kWarpRows = 16;
  bool hasRows = tile->rows == kWarpgroupRows || (byWarps && tile->rows == kWarpRows);
  if (!hasRows || pairs % 8 != 0 || pairs == 0 || pairs > tile->getColumns() / 2 ||
      type.getElementType() != tile->elementType)
    return op->emitOpError() << "expected one thread's part of " << kWarpgroupRows
                             << " rows and a multiple of 16 leading columns of the tile "
                             << memref.getType() << " but got " << type;
  return success();
}

LogicalResult StoreTileOp::verify() { return verifyThreadsTile(*this, getTile(), getValue()); }

LogicalResult ReadTileOp::verify() {
  FailureOr<SharedTile> tile = SharedTile::verify(*this, "tile", getTile());
  if (failed(tile))
    return failure();
  if (failed(verifyThreadsTile(*this, getTile(), getResult(), /*byWarps=*/true)))
    return failure();
  auto type = cast<VectorType>(getResult().getType());
  int64_t columns = type.getRank() == 2 ? type.getDimSize(1) : 2 * type.getNumElements();
  int64_t from = getFrom();
  if (from < 0 || from % 16 != 0 || from > tile->getColumns() - columns)
    return emitOpError() << "expected 'from' to be a multiple of 16 from 0 to "
                         << tile->getColumns() - columns << ", for " << columns << " of "
                         << tile->getColumns() << " columns, but got " << from;
  return success();
}

LogicalResult TransposeOp::verify() {
  constexpr int64_t kRows = 16, kColumns = 32;
  FailureOr<SharedTile> source = SharedTile::verify(*this, "source", getSource()),
                        target = SharedTile::verify(*this, "target", getTarget());
  if (failed(source) || failed(target))
    return failure();
  if (source->elementType.getIntOrFloatBitWidth() != 8 ||
      source->elementType != target->elementType)
    return emitOpError() << "expected tiles of the same elements of 8 bits but got "
                         << getSource().getType() << " and " << getTarget().getType();
  if (source->rows % kRows != 0 || source->getColumns() % kColumns != 0)
    return emitOpError() << "expected a source with a multiple of " << kRows << " rows and of "
                         << kColumns << " columns but got " << getSource().getType();
  // The last columns of the source may fill a panel.
  if (target->rows % kColumns != 0 || target->rows > source->getColumns() ||
      target->getColumns() < source->rows)
    return emitOpError() << "expected a target of at most " << source->getColumns()
                         << " rows, a multiple of " << kColumns << ", and " << source->rows
                         << " columns but got " << getTarget().getType();
  if (!getBegin() != !getEnd())
    return emitOpError() << "expected both ends of 'rows' but got one";
  return success();
}

LogicalResult PinOp::verify() {
  if (failed(verifyRegisters(*this, cast<VectorType>(getValue().getType()))))
    return failure();
  return verifyVectors(*this, getValue());
}
