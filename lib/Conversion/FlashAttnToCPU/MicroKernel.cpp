//===- MicroKernel.cpp -----------------------------------------------------===//

#include "MicroKernel.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/MemRef/IR/MemRef.h"
#include "mlir/Dialect/SCF/IR/SCF.h"
#include "mlir/Dialect/Vector/IR/VectorOps.h"
#include "llvm/Support/MathExtras.h"

using namespace mlir;
using namespace mlir::flashattn::cpu;

int64_t mlir::flashattn::cpu::chooseColumnsPerBlock(int64_t rows, int64_t columns,
                                                    RegisterFile registers) {
  // Three quarters of the registers are accumulators (24 of 32, 12 of 16); the others hold
  // a column of lhs and broadcast elements.
  int64_t registersPerColumn = llvm::divideCeil(rows, registers.lanes);
  int64_t most = std::max<int64_t>(1, registers.count * 3 / 4 / registersPerColumn);
  // A divisor leaves no remainder; half of the most still hides the latency of an FMA.
  for (int64_t block = std::min(most, columns); block >= std::max<int64_t>(1, most / 2); --block)
    if (columns % block == 0)
      return block;
  return llvm::divideCeil(columns, llvm::divideCeil(columns, most));
}

/// Rows or columns [first, first + count) of a matrix in memory.
static Value buildSlice(OpBuilder &b, Location loc, Value matrix, unsigned dim, Value first,
                        int64_t count) {
  auto type = cast<MemRefType>(matrix.getType());
  SmallVector<OpFoldResult> offsets(2, b.getIndexAttr(0)), strides(2, b.getIndexAttr(1));
  SmallVector<OpFoldResult> sizes = {b.getIndexAttr(type.getDimSize(0)), b.getIndexAttr(type.getDimSize(1))};
  offsets[dim] = first;
  sizes[dim] = b.getIndexAttr(count);
  return memref::SubViewOp::create(b, loc, matrix, offsets, sizes, strides);
}

/// Columns [first, first + count) of the product.
static LogicalResult buildBlock(OpBuilder &b, Location loc, const Product &product, Value first,
                                int64_t count) {
  auto index = [&](int64_t i) -> Value { return arith::ConstantIndexOp::create(b, loc, i); };
  auto type = VectorType::get({product.rows}, b.getF32Type());
  SmallVector<Value> accumulators;
  for (int64_t i = 0; i < count; ++i) {
    accumulators.push_back(product.init(b.createOrFold<arith::AddIOp>(loc, first, index(i))));
    if (!accumulators.back())
      return failure();
  }
  // Slices, so that the elements of a block lie at constant distances.
  Value rhs = buildSlice(b, loc, product.rhs, product.transposedRhs ? 0 : 1, first, count);
  Value result = buildSlice(b, loc, product.result, 0, first, count);
  Value zero = index(0);
  // Not unrolled: LLVM would move the broadcasts of all copies to the top and spill them.
  auto loop = scf::ForOp::create(b, loc, zero, index(product.depth), index(1), accumulators);
  {
    OpBuilder::InsertionGuard guard(b);
    b.setInsertionPointToEnd(loop.getBody());
    accumulators.assign(loop.getRegionIterArgs().begin(), loop.getRegionIterArgs().end());
    Value k = loop.getInductionVar();
    Value lanes = vector::LoadOp::create(b, loc, type, product.lhs, ValueRange{k, zero});
    for (auto [i, sum] : llvm::enumerate(accumulators)) {
      SmallVector<Value> at = {index(i), k};
      if (!product.transposedRhs)
        std::swap(at[0], at[1]);
      Value element = memref::LoadOp::create(b, loc, rhs, at);
      Value broadcast = vector::BroadcastOp::create(b, loc, type, element);
      sum = vector::FMAOp::create(b, loc, broadcast, lanes, sum);
    }
    scf::YieldOp::create(b, loc, accumulators);
  }
  for (auto [i, sum] : llvm::enumerate(loop.getResults()))
    vector::StoreOp::create(b, loc, sum, result, ValueRange{index(i), zero});
  return success();
}

LogicalResult mlir::flashattn::cpu::buildProduct(OpBuilder &b, Location loc, const Product &product,
                                                 RegisterFile registers) {
  int64_t block = chooseColumnsPerBlock(product.rows, product.columns, registers);
  int64_t whole = product.columns / block * block;
  auto index = [&](int64_t i) -> Value { return arith::ConstantIndexOp::create(b, loc, i); };
  auto loop = scf::ForOp::create(b, loc, index(0), index(whole), index(block));
  {
    OpBuilder::InsertionGuard guard(b);
    b.setInsertionPointToStart(loop.getBody());
    if (failed(buildBlock(b, loc, product, loop.getInductionVar(), block)))
      return failure();
  }
  if (whole == product.columns)
    return success();
  return buildBlock(b, loc, product, index(whole), product.columns - whole);
}
