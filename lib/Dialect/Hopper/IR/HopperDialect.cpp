//===- HopperDialect.cpp - the dialect, types and tiles -------------------===//

#include "flashattn/Dialect/Hopper/IR/Hopper.h"
#include "mlir/Dialect/GPU/IR/GPUDialect.h"
#include "mlir/IR/Builders.h"
#include "mlir/IR/DialectImplementation.h"
#include "llvm/ADT/TypeSwitch.h"

using namespace mlir;
using namespace mlir::flashattn::hopper;

#include "flashattn/Dialect/Hopper/IR/HopperDialect.cpp.inc"
#include "flashattn/Dialect/Hopper/IR/HopperEnums.cpp.inc"

#define GET_ATTRDEF_CLASSES
#include "flashattn/Dialect/Hopper/IR/HopperAttrs.cpp.inc"
#define GET_TYPEDEF_CLASSES
#include "flashattn/Dialect/Hopper/IR/HopperTypes.cpp.inc"

void HopperDialect::initialize() {
  addAttributes<
#define GET_ATTRDEF_LIST
#include "flashattn/Dialect/Hopper/IR/HopperAttrs.cpp.inc"
      >();
  addTypes<
#define GET_TYPEDEF_LIST
#include "flashattn/Dialect/Hopper/IR/HopperTypes.cpp.inc"
      >();
  addOperations<
#define GET_OP_LIST
#include "flashattn/Dialect/Hopper/IR/HopperOps.cpp.inc"
      >();
}

/// Whether elements have 8 or 16 bits: floats, or integers of 8 bits.
static bool isCopied(Type element) {
  return element.isF16() || element.isBF16() || element.isInteger(8) ||
         isa<Float8E4M3FNType, Float8E5M2Type>(element);
}

/// Whether a row has the width of a swizzle: 32, 64 or 128 bytes.
static bool isSwizzledRow(int64_t columns, Type element) {
  int64_t bytes = columns * (element.getIntOrFloatBitWidth() / 8);
  return bytes == 32 || bytes == 64 || bytes == 128;
}

//===----------------------------------------------------------------------===//
// Tensor map
//===----------------------------------------------------------------------===//

Type TensorMapType::parse(AsmParser &parser) {
  SMLoc loc = parser.getCurrentLocation();
  SmallVector<int64_t> box;
  Type elementType;
  if (parser.parseLess() || parser.parseDimensionList(box, /*allowDynamic=*/false) ||
      parser.parseType(elementType) || parser.parseGreater())
    return {};
  if (box.size() != 2) {
    parser.emitError(loc) << "expected a box of rows and columns but got " << box.size()
                          << " dimensions";
    return {};
  }
  return parser.getChecked<TensorMapType>(loc, parser.getContext(), box[0], box[1], elementType);
}

void TensorMapType::print(AsmPrinter &printer) const {
  printer << "<" << getRows() << "x" << getColumns() << "x" << getElementType() << ">";
}

LogicalResult TensorMapType::verify(function_ref<InFlightDiagnostic()> emitError, int64_t rows,
                                    int64_t columns, Type elementType) {
  if (!isCopied(elementType))
    return emitError() << "expected element type f16, bf16, f8E4M3FN, f8E5M2 or i8 but got "
                       << elementType;
  if (rows < 1 || rows > 256)
    return emitError() << "expected 1 to 256 rows but got " << rows;
  if (!isSwizzledRow(columns, elementType))
    return emitError() << "expected "
                       << (elementType.getIntOrFloatBitWidth() == 8 ? "32, 64 or 128"
                                                                    : "16, 32 or 64")
                       << " columns but got " << columns;
  return success();
}

//===----------------------------------------------------------------------===//
// Ring buffer
//===----------------------------------------------------------------------===//

Type RingType::parse(AsmParser &parser) {
  SMLoc loc = parser.getCurrentLocation();
  SmallVector<int64_t> shape;
  Type elementType;
  if (parser.parseLess() || parser.parseDimensionList(shape, /*allowDynamic=*/false) ||
      parser.parseType(elementType) || parser.parseGreater())
    return {};
  if (shape.size() != 4) {
    parser.emitError(loc) << "expected stages, panels, rows and columns but got " << shape.size()
                          << " dimensions";
    return {};
  }
  return parser.getChecked<RingType>(loc, parser.getContext(), shape[0], shape[1], shape[2],
                                     shape[3], elementType);
}

void RingType::print(AsmPrinter &printer) const {
  printer << "<" << getStages() << "x" << getPanels() << "x" << getRows() << "x" << getColumns()
          << "x" << getElementType() << ">";
}

LogicalResult RingType::verify(function_ref<InFlightDiagnostic()> emitError, int64_t stages,
                               int64_t panels, int64_t rows, int64_t columns, Type elementType) {
  if (stages < 1 || panels < 1)
    return emitError() << "expected one stage and panel or more but got " << stages << " and "
                       << panels;
  if (rows % 8 != 0)
    return emitError() << "expected rows that are a multiple of 8 but got " << rows;
  // A panel must be a valid box of a tensor map.
  if (failed(TensorMapType::verify(emitError, rows, columns, elementType)))
    return failure();
  int64_t most =
      SharedTile::kMostBytes / (rows * columns * (elementType.getIntOrFloatBitWidth() / 8));
  if (stages > most || panels > most / stages)
    return emitError() << "expected tiles of " << SharedTile::kMostBytes
                       << " bytes at most but got " << stages << " stages of " << panels
                       << " panels of " << rows << "x" << columns;
  return success();
}

MemRefType RingType::getTilesType() {
  auto space = gpu::AddressSpaceAttr::get(getContext(), gpu::AddressSpace::Workgroup);
  return MemRefType::get({getStages(), getPanels(), getRows(), getColumns()}, getElementType(),
                         MemRefLayoutAttrInterface{}, space);
}

MemRefType RingType::getTileType() {
  int64_t panel = getRows() * getColumns();
  auto layout =
      StridedLayoutAttr::get(getContext(), ShapedType::kDynamic, {panel, getColumns(), 1});
  return MemRefType::get({getPanels(), getRows(), getColumns()}, getElementType(), layout,
                         getTilesType().getMemorySpace());
}

//===----------------------------------------------------------------------===//
// Tiles in shared memory
//===----------------------------------------------------------------------===//

std::optional<SharedTile> SharedTile::get(Type type) {
  auto memref = dyn_cast<MemRefType>(type);
  if (!memref || memref.getRank() != 3 || !memref.hasStaticShape() ||
      !gpu::GPUDialect::hasWorkgroupMemoryAddressSpace(memref))
    return std::nullopt;
  SharedTile tile{memref.getDimSize(0), memref.getDimSize(1), memref.getDimSize(2),
                  /*panelStride=*/0, memref.getElementType()};
  if (!isCopied(tile.elementType) || !isSwizzledRow(tile.panelColumns, tile.elementType) ||
      tile.panels < 1 || tile.rows < 1 || tile.panels > SharedTile::kMostBytes ||
      tile.rows > SharedTile::kMostBytes || tile.getBytes() > SharedTile::kMostBytes)
    return std::nullopt;
  SmallVector<int64_t> strides;
  int64_t offset;
  if (failed(memref.getStridesAndOffset(strides, offset)) || strides[2] != 1 ||
      strides[1] != tile.panelColumns)
    return std::nullopt;
  // Panels after the first must begin at a multiple of the swizzle's period, eight rows.
  tile.panelStride = strides[0];
  if (tile.panels > 1 &&
      (ShapedType::isDynamic(strides[0]) || tile.rows % 8 != 0 ||
       strides[0] > SharedTile::kMostBytes || strides[0] < tile.rows * tile.panelColumns ||
       strides[0] % (8 * tile.panelColumns) != 0))
    return std::nullopt;
  return tile;
}

FailureOr<SharedTile> SharedTile::verify(Operation *op, StringRef name, Value operand) {
  if (std::optional<SharedTile> tile = get(operand.getType()))
    return *tile;
  return op->emitOpError()
         << "expected '" << name
         << "' to be a contiguous tile in shared memory, of panels x rows x 16, 32 or 64 elements "
            "of f16 or bf16, or 32, 64 or 128 elements of 8 bits, with a multiple of 8 rows if "
            "there are several panels, of "
         << kMostBytes << " bytes at most but got " << operand.getType();
}
