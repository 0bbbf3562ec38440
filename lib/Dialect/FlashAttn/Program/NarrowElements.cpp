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

void mlir::flashattn::expandTruncation(RewriterBase &b, arith::TruncFOp op) {
  auto type = dyn_cast<VectorType>(op.getType());
  if (!type || !isa<Float8E4M3FNType>(type.getElementType()) ||
      !getElementTypeOrSelf(op.getIn().getType()).isF32())
    return;
  Location loc = op.getLoc();
  b.setInsertionPoint(op);
  TileBuilder build(b, loc);
  VectorType i32 = type.clone(b.getI32Type()), f32 = type.clone(b.getF32Type());
  auto bits = [&](int64_t value) -> Value {
    return arith::ConstantOp::create(b, loc,
                                     DenseElementsAttr::get(i32, b.getI32IntegerAttr(value)));
  };
  constexpr int64_t kBits = 20, kBias = 127 - 7; // mantissa bits less than f32, bias less than f32
  constexpr double kMost = 448, kLeastNormal = 0x1p-6, kSubnormals = 0x1p9, kToInteger = 0x1p23;
  Value raw = arith::BitcastOp::create(b, loc, i32, op.getIn());
  Value sign =
      arith::AndIOp::create(b, loc, arith::ShRUIOp::create(b, loc, raw, bits(24)), bits(0x80));
  Value magnitude = arith::AndIOp::create(b, loc, raw, bits(0x7fffffff));
  Value isNaN =
      arith::CmpIOp::create(b, loc, arith::CmpIPredicate::sgt, magnitude, bits(0x7f800000));
  Value x = arith::MinNumFOp::create(b, loc, arith::BitcastOp::create(b, loc, f32, magnitude),
                                     build.splat(f32, kMost));
  Value number = arith::BitcastOp::create(b, loc, i32, x);
  // To nearest even: adds half of the last place, less one if the bit above is even.
  Value odd =
      arith::AndIOp::create(b, loc, arith::ShRUIOp::create(b, loc, number, bits(kBits)), bits(1));
  Value up = arith::AddIOp::create(b, loc, odd, bits((1 << (kBits - 1)) - 1));
  Value normal =
      arith::ShRUIOp::create(b, loc, arith::AddIOp::create(b, loc, number, up), bits(kBits));
  normal = arith::SubIOp::create(b, loc, normal, bits(kBias << 3));
  // Below the normal numbers, the sum with 2^23 rounds to an integer in the last bits.
  Value scaled = arith::MulFOp::create(b, loc, x, build.splat(f32, kSubnormals));
  scaled = arith::AddFOp::create(b, loc, scaled, build.splat(f32, kToInteger));
  Value small =
      arith::SubIOp::create(b, loc, arith::BitcastOp::create(b, loc, i32, scaled),
                            arith::BitcastOp::create(b, loc, i32, build.splat(f32, kToInteger)));
  Value isSmall =
      arith::CmpFOp::create(b, loc, arith::CmpFPredicate::OLT, x, build.splat(f32, kLeastNormal));
  Value found = arith::SelectOp::create(b, loc, isSmall, small, normal);
  found = arith::SelectOp::create(b, loc, isNaN, bits(0x7f), found);
  found = arith::OrIOp::create(b, loc, found, sign);
  found = arith::TruncIOp::create(b, loc, type.clone(b.getI8Type()), found);
  b.replaceOpWithNewOp<arith::BitcastOp>(op, type, found);
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
