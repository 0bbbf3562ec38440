//===- MicroKernel.cpp -----------------------------------------------------===//

#include "MicroKernel.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
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

/// Columns [first, first + count) of the product.
static LogicalResult buildBlock(OpBuilder &b, Location loc, const Product &product, Value first,
                                int64_t count) {
  auto index = [&](int64_t i) -> Value { return arith::ConstantIndexOp::create(b, loc, i); };
  auto type = VectorType::get({product.rows}, b.getF32Type());
  SmallVector<Value> columns, accumulators;
  for (int64_t i = 0; i < count; ++i) {
    columns.push_back(b.createOrFold<arith::AddIOp>(loc, first, index(i)));
    accumulators.push_back(product.init(columns.back()));
    if (!accumulators.back())
      return failure();
  }
  int64_t unroll = product.depth % 4 == 0 ? 4 : product.depth % 2 == 0 ? 2 : 1;
  Value zero = index(0);
  auto loop = scf::ForOp::create(b, loc, zero, index(product.depth), index(unroll), accumulators);
  {
    OpBuilder::InsertionGuard guard(b);
    b.setInsertionPointToEnd(loop.getBody());
    accumulators.assign(loop.getRegionIterArgs().begin(), loop.getRegionIterArgs().end());
    for (int64_t u = 0; u < unroll; ++u) {
      Value k = b.createOrFold<arith::AddIOp>(loc, loop.getInductionVar(), index(u));
      Value lanes = vector::LoadOp::create(b, loc, type, product.lhs, ValueRange{k, zero});
      for (int64_t i = 0; i < count; ++i) {
        Value element = vector::BroadcastOp::create(b, loc, type, product.rhs(columns[i], k));
        accumulators[i] = vector::FMAOp::create(b, loc, element, lanes, accumulators[i]);
      }
    }
    scf::YieldOp::create(b, loc, accumulators);
  }
  for (auto [column, sum] : llvm::zip_equal(columns, loop.getResults()))
    vector::StoreOp::create(b, loc, sum, product.result, ValueRange{column, zero});
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
