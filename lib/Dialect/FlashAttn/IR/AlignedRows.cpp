//===- AlignedRows.cpp - memrefs with rows aligned to 16 bytes ------------===//

#include "flashattn/Dialect/FlashAttn/IR/FlashAttn.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/Dialect/MemRef/IR/MemRef.h"
#include "mlir/Dialect/Utils/StaticValueUtils.h"
#include "mlir/IR/Matchers.h"

using namespace mlir;
using namespace mlir::flashattn;

LogicalResult FlashAttnDialect::verifyRegionArgAttribute(Operation *op, unsigned regionIndex,
                                                         unsigned argIndex,
                                                         NamedAttribute attribute) {
  if (attribute.getName() != getAlignedRowsAttrName())
    return op->emitOpError() << "expected no argument attribute of the flashattn dialect except '"
                             << getAlignedRowsAttrName() << "' but got '"
                             << attribute.getName().getValue() << "' on argument " << argIndex;
  if (!isa<UnitAttr>(attribute.getValue()))
    return op->emitOpError() << "expected a unit attribute '" << getAlignedRowsAttrName()
                             << "' on argument " << argIndex << " but got " << attribute.getValue();
  // Other function ops only exist after lowering, when memrefs are already pointers.
  auto function = dyn_cast<func::FuncOp>(op);
  if (!function)
    return success();
  Type type = function.getArgumentTypes()[argIndex];
  if (!isa<MemRefType>(type))
    return op->emitOpError() << "expected '" << getAlignedRowsAttrName()
                             << "' on a memref but got argument " << argIndex << " of type "
                             << type;
  return success();
}

/// Ops carry all information of the dialect in operands and inherent attributes, so nothing reads
/// any other attribute.
LogicalResult FlashAttnDialect::verifyOperationAttribute(Operation *op, NamedAttribute attribute) {
  return op->emitOpError() << "expected no discardable attribute of the flashattn dialect but got '"
                           << attribute.getName().getValue() << "'";
}

bool flashattn::isPromisedAlignedRows(Value memref) {
  // Casts and expanded dimensions do not change where rows begin.
  while (Operation *def = memref.getDefiningOp()) {
    if (!isa<memref::CastOp, memref::ExpandShapeOp>(def))
      return false;
    memref = def->getOperand(0);
  }
  auto argument = dyn_cast<BlockArgument>(memref);
  auto function = argument ? dyn_cast<func::FuncOp>(argument.getOwner()->getParentOp()) : nullptr;
  return function && argument.getOwner()->isEntryBlock() &&
         function.getArgAttr(argument.getArgNumber(), FlashAttnDialect::getAlignedRowsAttrName());
}

/// Whether `size` is a product with a multiple of `factor`, as in allocations of the compiler.
static bool isMultipleOf(Value size, int64_t factor) {
  APInt constant;
  auto product = size.getDefiningOp<arith::MulIOp>();
  return product && matchPattern(product.getRhs(), m_ConstantInt(&constant)) &&
         constant.getSExtValue() % factor == 0;
}

/// Returns the source of the view `memref` if aligned source rows imply aligned view rows, or null.
static Value findOwnerOfRows(Value memref, int64_t chunk) {
  if (auto transpose = memref.getDefiningOp<memref::TransposeOp>()) {
    AffineMap order = transpose.getPermutation();
    unsigned rank = order.getNumDims();
    return rank && order.getDimPosition(rank - 1) == rank - 1 ? transpose.getIn() : Value();
  }
  auto part = memref.getDefiningOp<memref::SubViewOp>();
  if (!part || part.getSourceType().getRank() == 0)
    return {};
  std::optional<int64_t> offset = getConstantIntValue(part.getMixedOffsets().back());
  bool keepsRows = getConstantIntValue(part.getMixedStrides().back()) == 1 &&
                   !part.getDroppedDims().test(part.getSourceType().getRank() - 1);
  return keepsRows && offset && *offset % chunk == 0 ? part.getSource() : Value();
}

bool flashattn::hasAlignedRows(Value memref) {
  auto type = cast<MemRefType>(memref.getType());
  if (isPromisedAlignedRows(memref))
    return true;
  // An i1 takes a byte. Copies do not support negative strides.
  int64_t chunk = 16 / llvm::divideCeil(type.getElementTypeBitWidth(), 8);
  auto aligned = [&](int64_t v) { return !ShapedType::isDynamic(v) && v >= 0 && v % chunk == 0; };
  SmallVector<int64_t> strides;
  int64_t offset;
  if (type.getRank() == 0 || failed(type.getStridesAndOffset(strides, offset)))
    return false;
  // The identity layout is contiguous even if its sizes are dynamic.
  if (type.getLayout().isIdentity()) {
    auto buffer = memref.getDefiningOp<memref::AllocOp>();
    return aligned(type.getShape().back()) ||
           (buffer && type.isDynamicDim(type.getRank() - 1) &&
            isMultipleOf(buffer.getDynamicSizes().back(), chunk));
  }
  if (aligned(offset) && llvm::all_of(ArrayRef(strides).drop_back(), aligned))
    return true;
  Value owner = findOwnerOfRows(memref, chunk);
  return owner && hasAlignedRows(owner);
}
