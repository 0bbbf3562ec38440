//===- TileAccessOps.cpp - ops that read and write tiles in memory --------===//

#include "flashattn/Dialect/FlashAttn/IR/FlashAttn.h"
#include "mlir/IR/Builders.h"

using namespace mlir;
using namespace mlir::flashattn;

template <typename AccessOp> static SmallVector<int64_t> tileShapeOf(AccessOp op) {
  ArrayRef<int64_t> tile = op.getTileType().getShape();
  SmallVector<int64_t> rows;
  if (RowMapOpInterface map = op.getRowMap())
    rows = map.getRowShape();
  if (rows.empty())
    return llvm::to_vector(tile);
  rows.append(tile.begin() + 1, tile.end());
  return rows;
}

/// Returns the dimensions along which rows run, without the dimension of the columns.
template <typename AccessOp> static ArrayRef<int64_t> rowDimsOf(AccessOp op) {
  return op.getDims().drop_back(op.getTileType().getRank() == 2 ? 1 : 0);
}

template <typename AccessOp> static std::optional<unsigned> rowDimOf(AccessOp op) {
  int64_t dim = rowDimsOf(op).back();
  return dim < 0 ? std::nullopt : std::optional<unsigned>(dim);
}

template <typename AccessOp> static int64_t innerRowsOf(AccessOp op) {
  return op.getTileShape()[rowDimsOf(op).size() - 1];
}

/// Verifies a tile in memory. With `mayRepeat`, all of its rows or columns may be the same.
template <typename AccessOp> static LogicalResult verifyAccess(AccessOp op, bool mayRepeat) {
  VectorType tile = op.getTileType();
  MemRefType memref = op.getMemRefType();
  if (static_cast<int64_t>(op.getIndices().size()) != memref.getRank())
    return op.emitOpError() << "expected an index for each of " << memref.getRank()
                            << " dimensions but got " << op.getIndices().size();
  if (tile.getRank() > 2)
    return op.emitOpError() << "expected a tile of rank 1 (rows) or 2 (rows and columns) but got "
                            << tile;
  bool mayConvert = isa<LoadTileOp>(op) && isNarrow(memref.getElementType()) &&
                    isa<FloatType>(tile.getElementType());
  if (tile.getElementType() != memref.getElementType() && !mayConvert)
    return op.emitOpError() << "expected a tile of " << memref.getElementType() << " but got "
                            << tile;
  ArrayRef<int64_t> dims = op.getDims();
  if (op.getInBounds().size() != dims.size())
    return op.emitOpError() << "expected in_bounds for each of " << dims.size()
                            << " dimensions but got " << op.getInBounds().size();
  for (auto [i, dim] : llvm::enumerate(dims)) {
    if (dim >= memref.getRank() || dim < (mayRepeat ? -1 : 0))
      return op.emitOpError() << "expected a dimension from " << (mayRepeat ? -1 : 0) << " to "
                              << memref.getRank() - 1 << " but got " << dim;
    if (dim >= 0 && llvm::is_contained(dims.take_front(i), dim))
      return op.emitOpError() << "expected each dimension once but got " << dim << " twice";
    if (dim < 0 && !op.getInBounds()[i])
      return op.emitOpError() << "expected in_bounds true for a dimension of -1 but got false";
  }
  if (op.getRows() && !op.getRowMap())
    return op.emitOpError()
           << "expected 'rows' to be defined by an op with RowMapOpInterface but got "
           << (op.getRows().getDefiningOp() ? "another op" : "a block argument");
  SmallVector<int64_t> shape = op.getTileShape();
  if (shape.size() != dims.size())
    return op.emitOpError() << "expected a tile along " << shape.size() << " dimensions but got "
                            << dims.size() << " dims";
  // The sizes are those of the tile, or those that a row map has verified.
  int64_t numRows = 1;
  for (int64_t size : ArrayRef(shape).drop_back(tile.getRank() == 2 ? 1 : 0))
    numRows *= size;
  if (numRows != tile.getDimSize(0))
    return op.emitOpError() << "expected a tile of " << numRows
                            << " rows, as in the row map, but got " << tile;
  return success();
}

SmallVector<int64_t> LoadTileOp::getTileShape() { return tileShapeOf(*this); }
std::optional<unsigned> LoadTileOp::getRowDim() { return rowDimOf(*this); }
int64_t LoadTileOp::getInnerRows() { return innerRowsOf(*this); }

Value LoadTileOp::getBeginRow() { return getRowMap() ? getRowMap().getBegin() : Value(); }
Value LoadTileOp::getEndRow() { return getRowMap() ? getRowMap().getEnd() : Value(); }
void LoadTileOp::dropBeginRow(OpBuilder &builder) {
  if (!getBeginRow())
    return;
  OpBuilder::InsertionGuard guard(builder);
  builder.setInsertionPoint(*this);
  Value rows = getRowMap().buildWithoutBegin(builder);
  getRowsMutable().clear();
  if (rows)
    getRowsMutable().assign(rows);
}
std::optional<PageMap> LoadTileOp::getPages() {
  return getRowMap() ? getRowMap().getPages() : std::nullopt;
}
SmallVector<RowSegment> LoadTileOp::getSegments() {
  return getRowMap() ? getRowMap().getSegments() : SmallVector<RowSegment>();
}

/// F1.
static LogicalResult verifyTileScales(LoadTileOp op) {
  if (!op.getScales())
    return success();
  MemRefType memref = op.getMemRefType();
  auto scales = cast<MemRefType>(op.getScales().getType());
  auto fail = [&](const llvm::Twine &expected) {
    return op.emitOpError() << "expected " << expected << " but got " << scales;
  };
  if (!op.converts())
    return fail("no scales of a tile with the element type of the memref");
  if (!scales.getElementType().isF32() || scales.getRank() != memref.getRank())
    return fail("scales of f32 with rank " + llvm::Twine(memref.getRank()));
  int64_t last = memref.getRank() - 1, columns = memref.getDimSize(last),
          blocks = scales.getDimSize(last);
  if (op.getDims().size() != 2 || op.getDims().back() != last || !op.getRowDim())
    return fail("scales only of rows along one dimension and columns along the last dimension");
  if (ShapedType::isDynamic(blocks) || ShapedType::isDynamic(columns) ||
      !mayHaveScales(columns, blocks))
    return fail("1 scale for the columns, or scales for blocks of a multiple of " +
                llvm::Twine(kScaleBlock) + " of " + llvm::Twine(columns) + " columns,");
  return success();
}

LogicalResult LoadTileOp::verify() {
  if (failed(verifyAccess(*this, /*mayRepeat=*/true)))
    return failure();
  if (RowMapOpInterface map = getRowMap()) {
    if (!getRowDim())
      return emitOpError()
             << "expected no row map in a tile whose rows are all the same but got one";
    std::optional<int64_t> granularity = map.getGranularity();
    if (std::optional<PageMap> pages = map.getPages()) {
      // A tile may end within a page.
      if (getDims().size() != 2 || llvm::is_contained(getDims(), 0) ||
          getMemRefType().getDimSize(*getRowDim()) != pages->size)
        return emitOpError()
               << "expected rows along one dimension of size " << pages->size
               << ", the page size of the row map, after the dimension of the pages but got dims "
               << getDims() << " of " << getMemRefType();
    } else if (granularity &&
               (getDims().size() != 2 || getTileType().getDimSize(0) % *granularity != 0)) {
      return emitOpError() << "expected a multiple of " << *granularity
                           << " rows along one dimension, as in the row map, but got "
                           << getTileType();
    }
  }
  if (failed(verifyTileScales(*this)))
    return failure();
  if (!getOnes())
    return success();
  int64_t last = getMemRefType().getRank() - 1;
  int64_t columns = getTileType().getRank() == 2 ? getTileType().getDimSize(1) : 0;
  if (getDims().back() != last || getMemRefType().getDimSize(last) + kOnes != columns)
    return emitOpError() << "expected " << kOnes
                         << " columns of ones after all columns of the memref but got "
                         << getMemRefType() << " and " << getTileType();
  return success();
}

SmallVector<int64_t> StoreTileOp::getTileShape() { return tileShapeOf(*this); }
std::optional<unsigned> StoreTileOp::getRowDim() { return rowDimOf(*this); }
int64_t StoreTileOp::getInnerRows() { return innerRowsOf(*this); }

LogicalResult StoreTileOp::verify() {
  if (failed(verifyAccess(*this, /*mayRepeat=*/false)))
    return failure();
  RowMapOpInterface map = getRowMap();
  if (map && (map.getBegin() || map.getEnd() || map.getGranularity()))
    return emitOpError()
           << "expected a row map without 'from', 'below', segments and pages but got '"
           << map->getName() << "' with "
           << (map.getBegin()   ? "'from'"
               : map.getEnd()   ? "'below'"
               : map.getPages() ? "pages"
                                : "segments");
  return success();
}

LogicalResult ConvertElementsOp::verify() {
  auto source = cast<MemRefType>(getSource().getType()),
       target = cast<MemRefType>(getTarget().getType());
  auto from = dyn_cast<VectorType>(source.getElementType()),
       to = dyn_cast<VectorType>(target.getElementType());
  if (!from || from.getRank() != 1 || !isNarrow(from.getElementType()))
    return emitOpError() << "expected a source of vectors of f8E4M3FN, f8E5M2 or i8 but got "
                         << source;
  Type element = to ? to.getElementType() : Type();
  if (!to || to.getShape() != from.getShape() ||
      (!element.isF16() && !element.isBF16() && !element.isF32()))
    return emitOpError() << "expected a target of vectors of " << from.getNumElements()
                         << " f16, bf16 or f32 but got " << target;
  for (MemRefType type : {source, target})
    if (type.getRank() != 1)
      return emitOpError() << "expected memrefs of rank 1 but got " << type;
  size_t count = getIndices().size();
  if (count == 0 || getTargetIndices().size() != count ||
      (!getScales().empty() && getScales().size() != count))
    return emitOpError() << "expected one source, one target and at most one scale for each vector "
                            "but got "
                         << count << ", " << getTargetIndices().size() << " and "
                         << getScales().size();
  return success();
}

/// Verifies a tile that programs add to memory, or load after such additions.
static LogicalResult verifyAdded(Operation *op, VectorType tile, MemRefType memref, size_t indices,
                                 int64_t parts) {
  if (memref.getRank() < 2 || !memref.getElementType().isF32() || !memref.getLayout().isIdentity())
    return op->emitOpError() << "expected a contiguous f32 memref of rank 2 or more but got "
                             << memref;
  if (static_cast<int64_t>(indices) != memref.getRank())
    return op->emitOpError() << "expected an index for each of " << memref.getRank()
                             << " dimensions but got " << indices;
  if (tile.getDimSize(1) != memref.getShape().back())
    return op->emitOpError() << "expected a tile of all " << memref.getShape().back()
                             << " columns but got " << tile;
  // Not one test for multiples of `8 * parts`, which may overflow.
  if (tile.getDimSize(0) % 16 != 0 || tile.getDimSize(1) % 8 != 0 ||
      tile.getDimSize(1) / 8 % parts != 0)
    return op->emitOpError() << "expected a multiple of 16 rows, and of 8 columns in each of "
                             << parts << " parts, but got " << tile;
  return success();
}

LogicalResult AddTileOp::verify() {
  if (getTurn() && !getOrder())
    return emitOpError() << "expected 'order' beside 'turn' but got 'turn' alone";
  if (getOrder()) {
    auto order = cast<MemRefType>(getOrder().getType());
    if (order.getRank() + 1 != static_cast<int64_t>(getIndices().size()) ||
        !order.getLayout().isIdentity())
      return emitOpError() << "expected a contiguous 'order' with all dimensions of the target "
                              "except the columns but got "
                           << order;
  }
  return verifyAdded(*this, cast<VectorType>(getTile().getType()),
                     cast<MemRefType>(getTarget().getType()), getIndices().size(), getParts());
}

LogicalResult LoadAddedOp::verify() {
  return verifyAdded(*this, cast<VectorType>(getTile().getType()),
                     cast<MemRefType>(getSource().getType()), getIndices().size(), getParts());
}

static LogicalResult verifyCounter(Operation *op, Value counter, ValueRange indices) {
  auto type = cast<MemRefType>(counter.getType());
  if (type.getRank() != static_cast<int64_t>(indices.size()))
    return op->emitOpError() << "expected an index for each of " << type.getRank()
                             << " dimensions but got " << indices.size();
  return success();
}

LogicalResult SignalAddedOp::verify() { return verifyCounter(*this, getCounter(), getIndices()); }
LogicalResult AwaitAddedOp::verify() { return verifyCounter(*this, getCounter(), getIndices()); }
