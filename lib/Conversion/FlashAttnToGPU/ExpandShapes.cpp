//===- ExpandShapes.cpp - flashattn-reinterpret-expand-shape --------------===//

#include "flashattn/Conversion/Passes.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Arith/Utils/Utils.h"
#include "mlir/Dialect/MemRef/IR/MemRef.h"

namespace mlir::flashattn {
#define GEN_PASS_DEF_REINTERPRETEXPANDSHAPE
#include "flashattn/Conversion/Passes.h.inc"
} // namespace mlir::flashattn

using namespace mlir;

static void reinterpret(memref::ExpandShapeOp op) {
  OpBuilder b(op);
  Location loc = op.getLoc();
  auto metadata = memref::ExtractStridedMetadataOp::create(b, loc, op.getSrc());
  SmallVector<OpFoldResult> sizes = op.getMixedOutputShape(), strides(sizes.size());
  for (auto [dims, stride] :
       llvm::zip(op.getReassociationIndices(), metadata.getConstifiedMixedStrides())) {
    // The innermost dimension keeps the stride. Every other stride spans the next dimension.
    strides[dims.back()] = stride;
    for (int64_t i = dims.size() - 2; i >= 0; --i) {
      Value size = getValueOrCreateConstantIndexOp(b, loc, sizes[dims[i + 1]]);
      Value step = getValueOrCreateConstantIndexOp(b, loc, strides[dims[i + 1]]);
      strides[dims[i]] = getAsOpFoldResult(b.createOrFold<arith::MulIOp>(loc, size, step));
    }
  }
  // Strides and offsets that the type contains must not be operands.
  SmallVector<int64_t> known;
  int64_t offset;
  LogicalResult strided = op.getResultType().getStridesAndOffset(known, offset);
  assert(succeeded(strided) && "expanded memrefs are strided");
  (void)strided;
  for (auto [stride, value] : llvm::zip(strides, known))
    stride = ShapedType::isDynamic(value)
                 ? OpFoldResult(getValueOrCreateConstantIndexOp(b, loc, stride))
                 : b.getIndexAttr(value);
  OpFoldResult start =
      ShapedType::isDynamic(offset) ? OpFoldResult(metadata.getOffset()) : b.getIndexAttr(offset);
  auto cast = memref::ReinterpretCastOp::create(b, loc, op.getResultType(), op.getSrc(), start,
                                                sizes, strides);
  op.replaceAllUsesWith(cast.getResult());
  op.erase();
}

namespace {
struct ReinterpretExpandShapePass
    : flashattn::impl::ReinterpretExpandShapeBase<ReinterpretExpandShapePass> {
  void runOnOperation() override {
    SmallVector<memref::ExpandShapeOp> ops;
    getOperation()->walk([&](memref::ExpandShapeOp op) { ops.push_back(op); });
    llvm::for_each(ops, reinterpret);
    // Skips verification of unchanged modules, which takes time if they contain full kernels.
    if (ops.empty())
      markAllAnalysesPreserved();
  }
};
} // namespace
