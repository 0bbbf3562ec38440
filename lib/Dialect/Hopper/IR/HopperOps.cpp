//===- HopperOps.cpp - assembly and verifiers -----------------------------===//

#include "flashattn/Dialect/Hopper/IR/Hopper.h"
#include "mlir/Dialect/GPU/IR/GPUDialect.h"
#include "mlir/IR/Builders.h"
#include "mlir/IR/OpImplementation.h"

using namespace mlir;
using namespace mlir::flashattn::hopper;

/// Parses `type(a), type(b), type(acc)` or, without an accumulator, `type(a), type(b) -> type(d)`.
/// An accumulator has the type of the result.
static ParseResult parseWgmmaTypes(OpAsmParser &parser, Type &a, Type &first, Type &b, Type &acc,
                                   Type &d) {
  if (parser.parseType(a) ||
      (succeeded(parser.parseOptionalKeyword("first")) && parser.parseType(first)) ||
      parser.parseComma() || parser.parseType(b))
    return failure();
  if (succeeded(parser.parseOptionalArrow()))
    return parser.parseType(d);
  if (parser.parseComma() || parser.parseType(acc))
    return failure();
  d = acc;
  return success();
}

static void printWgmmaTypes(OpAsmPrinter &printer, Operation *, Type a, Type first, Type b,
                            Type acc, Type d) {
  printer << a;
  if (first)
    printer << " first " << first;
  printer << ", " << b;
  if (acc)
    printer << ", " << acc;
  else
    printer << " -> " << d;
}

#define GET_OP_CLASSES
#include "flashattn/Dialect/Hopper/IR/HopperOps.cpp.inc"

//===----------------------------------------------------------------------===//
// Operands
//===----------------------------------------------------------------------===//

static LogicalResult verifyBarriers(Operation *op, Value barriers) {
  auto type = cast<MemRefType>(barriers.getType());
  SmallVector<int64_t> strides;
  int64_t offset;
  if (type.getRank() != 1 || !type.getElementType().isInteger(64) ||
      !gpu::GPUDialect::hasWorkgroupMemoryAddressSpace(type) ||
      failed(type.getStridesAndOffset(strides, offset)) || strides[0] != 1)
    return op->emitOpError() << "expected barriers to be a one-dimensional memref of i64 in "
                                "workgroup memory but got "
                             << type;
  return success();
}

/// An mbarrier counts the arrivals and the bytes of a phase in 20 bits each.
static LogicalResult verifyCount(Operation *op, StringRef name, int64_t count) {
  constexpr int64_t most = (int64_t(1) << 20) - 1;
  if (count < 1 || count > most)
    return op->emitOpError() << "expected '" << name << "' from 1 to " << most << " but got "
                             << count;
  return success();
}

//===----------------------------------------------------------------------===//
// TMA and bulk copies
//===----------------------------------------------------------------------===//

LogicalResult MakeTensorMapOp::verify() {
  auto type = cast<MemRefType>(getMemref().getType());
  int64_t rank = type.getRank(), rowDim = getRowDim();
  if (rank < 2 || rank > 5)
    return emitOpError() << "expected a memref of rank 2 to 5 but got " << type;
  Type element = getMapType().getElementType();
  if (type.getElementType() != element)
    return emitOpError() << "expected a memref with element type " << element << " but got "
                         << type;
  if (rowDim < 0 || rowDim >= rank - 1)
    return emitOpError() << "expected 'row_dim' from 0 to " << rank - 2 << " but got " << rowDim;
  if (getOuterDim().has_value() != getOuterRows().has_value())
    return emitOpError() << "expected both of 'outer_dim' and 'outer_rows' or none but got '"
                         << (getOuterDim() ? "outer_dim" : "outer_rows") << "'";
  if (getOuterDim()) {
    int64_t outerDim = *getOuterDim(), outerRows = *getOuterRows();
    if (outerDim < 0 || outerDim >= rowDim)
      return emitOpError() << "expected 'outer_dim' before 'row_dim', " << rowDim << ", but got "
                           << outerDim;
    if (outerRows < 1 || getMapType().getRows() % outerRows != 0)
      return emitOpError() << "expected 'outer_rows' to divide the box's " << getMapType().getRows()
                           << " rows but got " << outerRows;
  }
  SmallVector<int64_t> strides;
  int64_t offset;
  if (failed(type.getStridesAndOffset(strides, offset)) || strides.back() != 1)
    return emitOpError() << "expected unit stride in the last dimension but got " << type;
  return success();
}

/// Verifies that a TMA copy has 2 to 5 coordinates.
static LogicalResult verifyCoordinates(Operation *op, ValueRange coordinates) {
  size_t rank = coordinates.size();
  if (rank < 2 || rank > 5)
    return op->emitOpError() << "expected 2 to 5 coordinates but got " << rank;
  return success();
}

/// Verifies the number of coordinates of a copy, and that panels have the size of the map's box.
template <typename Op> static LogicalResult verifyCopy(Op op) {
  FailureOr<SharedTile> tile = SharedTile::verify(op, "tile", op.getTile());
  if (failed(tile))
    return failure();
  TensorMapType map = op.getMapType();
  if (map.getRows() != tile->rows || map.getColumns() != tile->panelColumns ||
      map.getElementType() != tile->elementType)
    return op.emitOpError() << "expected the box of " << map
                            << " to be a panel of the tile but got " << op.getTile().getType();
  return verifyCoordinates(op, op.getCoordinates());
}

/// Verifies that a tile of `most` panels has the `panels` that are copied.
static LogicalResult verifyPanels(Operation *op, std::optional<int64_t> panels, int64_t most) {
  if (panels.value_or(1) > most)
    return op->emitOpError() << "expected up to " << most << " panels, as the tile has, but got "
                             << *panels;
  return success();
}

LogicalResult TmaLoadOp::verify() {
  return failure(
      failed(verifyCopy(*this)) ||
      failed(verifyPanels(*this, getPanels(), SharedTile::get(getTile().getType())->panels)) ||
      failed(verifyBarriers(*this, getBarriers())));
}

SharedTile TmaLoadOp::getCopied() {
  SharedTile tile = *SharedTile::get(getTile().getType());
  tile.panels = getPanels().value_or(tile.panels);
  return tile;
}

LogicalResult TmaStoreOp::verify() { return verifyCopy(*this); }

static int64_t getPlaceBytes(MemRefType places) {
  return places.getDimSize(1) * places.getElementTypeBitWidth() / 8;
}

/// Verifies the buffers in shared memory into which elements of `source` are copied.
static LogicalResult verifyElements(Operation *op, Value source, ValueRange indices, Value places) {
  auto type = cast<MemRefType>(places.getType()), from = cast<MemRefType>(source.getType());
  if (type.getRank() != 2 || !type.hasStaticShape() || !type.getLayout().isIdentity() ||
      !gpu::GPUDialect::hasWorkgroupMemoryAddressSpace(type) ||
      !type.getElementType().isIntOrFloat() || getPlaceBytes(type) % 16 != 0)
    return op->emitOpError()
           << "expected buffers in shared memory whose size is a multiple of 16 bytes but got "
           << type;
  if (from.getElementType() != type.getElementType())
    return op->emitOpError() << "expected a source of " << type.getElementType() << " but got "
                             << from;
  if (static_cast<int64_t>(indices.size()) != from.getRank())
    return op->emitOpError() << "expected an index for each of " << from.getRank()
                             << " dimensions but got " << indices.size();
  return success();
}

LogicalResult BulkLoadOp::verify() {
  return failure(failed(verifyElements(*this, getSource(), getIndices(), getPlaces())) ||
                 failed(verifyBarriers(*this, getBarriers())));
}

//===----------------------------------------------------------------------===//
// mbarriers
//===----------------------------------------------------------------------===//

LogicalResult BarrierInitOp::verify() {
  if (failed(verifyBarriers(*this, getBarriers())))
    return failure();
  return verifyCount(*this, "count", getCount());
}

LogicalResult BarrierExpectOp::verify() {
  if (failed(verifyBarriers(*this, getBarriers())))
    return failure();
  return verifyCount(*this, "bytes", getBytes());
}

LogicalResult BarrierArriveOp::verify() { return verifyBarriers(*this, getBarriers()); }

LogicalResult BarrierWaitOp::verify() { return verifyBarriers(*this, getBarriers()); }

//===----------------------------------------------------------------------===//
// Ring buffers
//===----------------------------------------------------------------------===//

LogicalResult MakeRingOp::verify() {
  RingType ring = getRingType();
  if (getTiles().getType() != ring.getTilesType())
    return emitOpError() << "expected tiles of type " << ring.getTilesType() << " but got "
                         << getTiles().getType();
  if (failed(verifyBarriers(*this, getBarriers())))
    return failure();
  auto barriers = cast<MemRefType>(getBarriers().getType());
  int64_t first = getFirst(), count = ring.getNumBarriers();
  if (first < 0 || (!barriers.isDynamicDim(0) && first > barriers.getDimSize(0) - count))
    return emitOpError() << "expected " << count << " barriers from number " << first
                         << " on but got " << barriers;
  return success();
}

LogicalResult RingInitOp::verify() { return verifyCount(*this, "consumers", getConsumers()); }

LogicalResult RingPutOp::verify() {
  RingType ring = getRingType();
  TensorMapType map = getMapType();
  int64_t pieces = std::max<int64_t>(getPieces().size(), 1);
  if (map.getRows() * pieces != ring.getRows() || map.getColumns() != ring.getColumns() ||
      map.getElementType() != ring.getElementType())
    return emitOpError() << "expected the box of " << map << " to be "
                         << (pieces == 1 ? "" : "one of " + std::to_string(pieces) + " pieces of ")
                         << "a panel of a tile of " << ring;
  int64_t rank = getCoordinates().size(), along = getAlong().value_or(-1);
  if (getPieces().empty() ? getAlong().has_value() : along < 0 || along >= rank)
    return emitOpError() << "expected 'along' only with 'pieces', from 0 to " << rank - 1;
  if (!getPages().empty() && (getPages().size() != getPieces().size() || along == 0))
    return emitOpError() << "expected a page for each of " << getPieces().size()
                         << " pieces along another dimension than 0 but got " << getPages().size()
                         << " pages";
  return failure(failed(verifyPanels(*this, getPanels(), ring.getPanels())) ||
                 failed(verifyCoordinates(*this, getCoordinates())));
}

int64_t RingPutRowOp::getBytes() { return getPlaceBytes(cast<MemRefType>(getPlaces().getType())); }

LogicalResult RingPutRowOp::verify() {
  if (failed(verifyElements(*this, getSource(), getIndices(), getPlaces())))
    return failure();
  int64_t places = cast<MemRefType>(getPlaces().getType()).getDimSize(0);
  if (places != getRingType().getStages())
    return emitOpError() << "expected " << getRingType().getStages()
                         << " buffers, the stages of the ring, but got " << places;
  return success();
}

LogicalResult RingGetOp::inferReturnTypes(MLIRContext *, std::optional<Location>,
                                          ValueRange operands, DictionaryAttr, OpaqueProperties,
                                          RegionRange, SmallVectorImpl<Type> &types) {
  types.push_back(cast<RingType>(operands.front().getType()).getTileType());
  return success();
}

//===----------------------------------------------------------------------===//
// Groups of warps
//===----------------------------------------------------------------------===//

template <typename GroupOp> static LogicalResult verifyGroup(GroupOp op) {
  constexpr int64_t warp = 32, most = 1024;
  int64_t threads = op.getThreads();
  if (threads < warp || threads > most || threads % warp != 0)
    return op.emitOpError() << "expected a multiple of " << warp << " up to " << most
                            << " threads but got " << threads;
  return success();
}

LogicalResult GroupBarrierOp::verify() { return verifyGroup(*this); }

LogicalResult GroupArriveOp::verify() { return verifyGroup(*this); }

LogicalResult SetRegistersOp::verify() {
  int64_t count = getCount(), blocks = getBlocks();
  if (count < 24 || count > 256 || count % 8 != 0)
    return emitOpError() << "expected a multiple of 8 from 24 to 256 as registers but got "
                         << count;
  if (blocks < 1 || blocks > 32)
    return emitOpError() << "expected 1 to 32 blocks but got " << blocks;
  return success();
}

LogicalResult PublishOp::verify() { return verifyBarriers(*this, getBarriers()); }
LogicalResult WarpArriveOp::verify() { return verifyBarriers(*this, getBarriers()); }

LogicalResult FenceAsyncSharedOp::canonicalize(FenceAsyncSharedOp op, PatternRewriter &rewriter) {
  for (Operation *before = op->getPrevNode(); before; before = before->getPrevNode()) {
    if (isa<PublishOp, FenceAsyncSharedOp>(before)) {
      rewriter.eraseOp(op);
      return success();
    }
    if (!isPure(before) && !isa<BarrierArriveOp>(before))
      return failure();
  }
  return failure();
}

static LogicalResult verifyStaging(Operation *op, Value memref) {
  auto staging = cast<MemRefType>(memref.getType());
  if (staging.getRank() != 2 || !staging.getElementType().isF32() || !staging.hasStaticShape() ||
      staging.getDimSize(0) == 0 || !gpu::GPUDialect::hasWorkgroupMemoryAddressSpace(staging) ||
      !staging.getLayout().isIdentity())
    return op->emitOpError() << "expected contiguous staging of static size in shared memory, with "
                                "a row of f32 for each warp, but got "
                             << staging;
  return success();
}

static LogicalResult verifyTarget(Operation *op, Value memref, ValueRange indices) {
  auto target = cast<MemRefType>(memref.getType());
  if (!target.getElementType().isF32() || !target.getLayout().isIdentity())
    return op->emitOpError() << "expected a contiguous f32 target but got " << target;
  if (static_cast<int64_t>(indices.size()) != target.getRank())
    return op->emitOpError() << "expected an index for each of " << target.getRank()
                             << " dimensions but got " << indices.size();
  return success();
}

static LogicalResult verifyStaged(Operation *op, Value tile, Value memref, Value warp) {
  auto value = cast<VectorType>(tile.getType());
  auto staging = cast<MemRefType>(memref.getType());
  int64_t elements = value.getRank() == 1 ? 32 * value.getNumElements()
                                          : value.getNumElements() / staging.getDimSize(0);
  int64_t staged = staging.getDimSize(1);
  if (staged == 0 || staged % 128 != 0 || elements == 0 ||
      (isa<AddTileOp>(op) ? elements % staged != 0 : elements != staged))
    return op->emitOpError()
           << "expected staging in which each warp has a multiple of 128 elements that "
           << (isa<AddTileOp>(op) ? "divides " : "equals ") << elements
           << ", the size of the warp's part, but got " << staging;
  if ((value.getRank() == 1) != (warp != nullptr))
    return op->emitOpError() << "expected 'warp' if, and only if, the value is one thread's part";
  return success();
}

SmallVector<StagedStep> AddTileOp::getStagedSteps() {
  constexpr int64_t kLanes = 32, kVector = 4;
  int64_t held = cast<VectorType>(getValue().getType()).getNumElements();
  int64_t part = cast<MemRefType>(getStaging().getType()).getDimSize(1) / kLanes;
  int64_t halves = held > part && part % (2 * kVector) == 0 ? 2 : 1, count = part / halves;
  SmallVector<StagedStep> steps;
  for (int64_t first = 0; first < held; first += count) {
    StagedStep step{first, count, first % part, first / part * part, halves - 1};
    // All earlier copies are of the previous tile.
    if (first < part)
      step.pending = first == 0 ? std::optional<int64_t>(0) : std::nullopt;
    steps.push_back(step);
  }
  return steps;
}

LogicalResult StageTileOp::verify() {
  if (failed(verifyStaging(*this, getStaging())))
    return failure();
  return verifyStaged(*this, getValue(), getStaging(), getWarp());
}

LogicalResult AddStagedOp::verify() {
  if (failed(verifyStaging(*this, getStaging())))
    return failure();
  return verifyTarget(*this, getTarget(), getIndices());
}

static LogicalResult verifyOrder(Operation *op, Value memref, ValueRange indices) {
  auto order = cast<MemRefType>(memref.getType());
  if (static_cast<int64_t>(indices.size()) != order.getRank())
    return op->emitOpError() << "expected an index for each of " << order.getRank()
                             << " dimensions but got " << indices.size();
  return success();
}

LogicalResult ReadTurnOp::verify() { return verifyOrder(*this, getOrder(), getIndices()); }
LogicalResult ClaimOp::verify() { return verifyOrder(*this, getOrder(), getIndices()); }
LogicalResult AwaitTurnOp::verify() { return verifyOrder(*this, getOrder(), getIndices()); }
LogicalResult TakeFirstOp::verify() { return verifyOrder(*this, getOrder(), getIndices()); }
LogicalResult PassTurnOp::verify() { return verifyOrder(*this, getOrder(), getIndices()); }
LogicalResult SignalAddedOp::verify() { return verifyOrder(*this, getOrder(), getIndices()); }
LogicalResult AwaitAddedOp::verify() { return verifyOrder(*this, getOrder(), getIndices()); }

LogicalResult ClearOp::verify() {
  if (failed(verifyTarget(*this, getTarget(), getIndices())))
    return failure();
  constexpr int64_t kAtOnce = 128; // 16 bytes per lane
  if (getElements() % kAtOnce != 0)
    return emitOpError() << "expected a multiple of " << kAtOnce << " elements but got "
                         << getElements();
  return success();
}

LogicalResult AddTileOp::verify() {
  if (failed(verifyStaging(*this, getStaging())) ||
      failed(verifyTarget(*this, getTarget(), getIndices())))
    return failure();
  return verifyStaged(*this, getValue(), getStaging(), getWarp());
}
