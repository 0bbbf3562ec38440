//===- NarrowElements.cpp -------------------------------------------------===//

#include "flashattn/Dialect/FlashAttn/Program/NarrowElements.h"
#include "flashattn/Dialect/FlashAttn/Program/TileBuilder.h"
#include "mlir/Dialect/MemRef/IR/MemRef.h"
#include "mlir/Dialect/Vector/IR/VectorOps.h"
#include "mlir/IR/PatternMatch.h"

using namespace mlir;
using namespace mlir::flashattn;

/// Returns elements of f8 as f16 by integer arithmetic and a product.
static Value buildF16(OpBuilder &b, Location loc, Value elements) {
  TileBuilder build(b, loc);
  auto type = cast<VectorType>(elements.getType());
  VectorType i16 = type.clone(b.getI16Type()), f16 = type.clone(b.getF16Type());
  auto bits = [&](int64_t value) -> Value {
    return arith::ConstantOp::create(b, loc,
                                     DenseElementsAttr::get(i16, b.getI16IntegerAttr(value)));
  };
  Value raw = arith::BitcastOp::create(b, loc, type.clone(b.getI8Type()), elements);
  raw = arith::ExtUIOp::create(b, loc, i16, raw);
  Value high = arith::ShLIOp::create(b, loc, raw, bits(8));
  // f8E5M2 is the upper half of f16.
  if (isa<Float8E5M2Type>(type.getElementType()))
    return arith::BitcastOp::create(b, loc, f16, high);
  // The exponent of f8E4M3FN has one bit less, and a bias that is smaller by 8.
  Value sign = arith::AndIOp::create(b, loc, high, bits(int16_t(0x8000)));
  Value magnitude = arith::AndIOp::create(b, loc, raw, bits(0x7f));
  Value shifted = arith::ShLIOp::create(b, loc, magnitude, bits(7));
  Value small = arith::BitcastOp::create(b, loc, f16, arith::OrIOp::create(b, loc, sign, shifted));
  Value number = arith::MulFOp::create(b, loc, small, build.splat(f16, 256));
  Value isNaN = arith::CmpIOp::create(b, loc, arith::CmpIPredicate::eq, magnitude, bits(0x7f));
  Value nan = arith::BitcastOp::create(b, loc, f16, bits(0x7e00));
  return arith::SelectOp::create(b, loc, isNaN, nan, number);
}

Value mlir::flashattn::convertNarrow(OpBuilder &b, Location loc, Value elements, Value scale,
                                     FloatType to, F8Converter toF16) {
  auto type = cast<VectorType>(elements.getType());
  VectorType f32 = type.clone(b.getF32Type());
  Value x = elements;
  if (isa<FloatType>(type.getElementType())) {
    x = toF16 ? toF16(b, loc, elements) : buildF16(b, loc, elements);
    if (!scale && to.isF16())
      return x;
    x = arith::ExtFOp::create(b, loc, f32, x);
  } else {
    x = arith::SIToFPOp::create(b, loc, f32, x);
  }
  if (scale)
    x = arith::MulFOp::create(b, loc, x, vector::BroadcastOp::create(b, loc, f32, scale));
  return to.isF32() ? x : arith::TruncFOp::create(b, loc, type.clone(to), x).getResult();
}

void mlir::flashattn::expandConversion(RewriterBase &b, ConvertElementsOp op, F8Converter toF16) {
  Location loc = op.getLoc();
  b.setInsertionPoint(op);
  auto to = cast<VectorType>(cast<MemRefType>(op.getTarget().getType()).getElementType());
  SmallVector<Value> loaded = llvm::map_to_vector(op.getIndices(), [&](Value at) -> Value {
    return memref::LoadOp::create(b, loc, op.getSource(), at);
  });
  for (auto [i, elements] : llvm::enumerate(loaded)) {
    Value scale = op.getScales().empty() ? Value() : op.getScales()[i];
    Value converted =
        convertNarrow(b, loc, elements, scale, cast<FloatType>(to.getElementType()), toF16);
    memref::StoreOp::create(b, loc, converted, op.getTarget(), op.getTargetIndices()[i]);
  }
  b.eraseOp(op);
}

Value mlir::flashattn::loadTileScale(OpBuilder &b, Location loc, Value scales, ValueRange indices,
                                     Value column, int64_t columns) {
  TileBuilder build(b, loc);
  auto type = cast<MemRefType>(scales.getType());
  SmallVector<Value> at(indices);
  int64_t last = type.getRank() - 1;
  at[last] = build.divide32(column, build.index(columns / type.getDimSize(last)));
  for (auto [index, size] : llvm::zip_equal(at, type.getShape()))
    if (size == 1)
      index = build.index(0);
  return memref::LoadOp::create(b, loc, scales, at);
}
