//===- MmaSync.cpp - contractions by mma.sync, operands by ldmatrix --------===//
//
// PTX ISA, "Matrix fragments for mma.m16n8k16 with floating point type" and
// "mma.m16n8k8": which thread holds which element of A, B and C.
//
//===----------------------------------------------------------------------===//

#include "Distribute.h"
#include "mlir/Dialect/NVGPU/IR/NVGPUDialect.h"

using namespace mlir;
using namespace mlir::flashattn;

static SharedTile sharedTile(vector::TransferReadOp op) {
  VectorType type = op.getVectorType();
  return {type.getDimSize(1), type.getElementTypeBitWidth() / 8};
}

/// The A operand of a tile in shared memory: what this thread holds of it, in the
/// accumulators' order.
Value Distributor::loadTileFromShared(vector::TransferReadOp op) {
  VectorType type = op.getVectorType();
  VectorType mine = layout.threadType(type);
  SharedTile shared = sharedTile(op);
  int64_t columns = type.getDimSize(1);
  Value stage = op.getIndices()[0];
  SmallVector<Value> elements;
  if (type.getElementType().isF32()) {
    // 32-bit elements have no ldmatrix in this order: two neighbours at a time.
    for (int64_t r = 0; r < layout.rowBlocks; ++r)
      for (int64_t g = 0; g < columns / 8; ++g)
        for (int64_t half = 0; half < 2; ++half) {
          Value row = add(add(warpRow, laneRow), 16 * r + 8 * half);
          // Columns 2(lane%4) of group g: chunk 2g + (lane%4)/2, element 2((lane%4)%2).
          Value chunk = add(arith::DivUIOp::create(b, loc, laneColumn, index(4)), 2 * g);
          Value column = add(mul(shared.swizzle(b, loc, row, chunk), 4),
                             arith::AndIOp::create(b, loc, laneColumn, index(2)));
          Value pair = vector::LoadOp::create(b, loc, VectorType::get({2}, b.getF32Type()), op.getBase(),
                                              ValueRange{stage, row, column}, /*nontemporal=*/false,
                                              llvm::Align(8));
          for (int64_t c = 0; c < 2; ++c)
            elements.push_back(vector::ExtractOp::create(b, loc, pair, c));
        }
    return vector::FromElementsOp::create(b, loc, mine, elements);
  }
  // Matrices (rows 0-7, columns 0-7), (8-15, 0-7), (0-7, 8-15), (8-15, 8-15): lane l gives
  // the address of row l%8 of matrix l/8.
  Value row = add(warpRow, arith::AndIOp::create(b, loc, lane, index(15)));
  Value chunkInStep = arith::DivUIOp::create(b, loc, lane, index(16));
  auto fragment = VectorType::get({4, 2}, type.getElementType());
  for (int64_t r = 0; r < layout.rowBlocks; ++r)
    for (int64_t k = 0; k < columns; k += 16) {
      Value at = add(row, 16 * r);
      Value column = mul(shared.swizzle(b, loc, at, add(chunkInStep, k / 8)), 8);
      Value loaded = nvgpu::LdMatrixOp::create(b, loc, fragment, op.getBase(), ValueRange{stage, at, column},
                                               /*transpose=*/false, /*numTiles=*/4);
      auto split = vector::ToElementsOp::create(b, loc, loaded);
      elements.append(split->result_begin(), split->result_end());
    }
  return vector::FromElementsOp::create(b, loc, mine, elements);
}

/// B operands for reduction rows [k, k+16) and columns [n, n+16): vector<2x2> each for
/// columns n and n + 8.
SmallVector<Value> Distributor::loadRhs(vector::TransferReadOp rhs, bool transposed, int64_t k, int64_t n) {
  SharedTile shared = sharedTile(rhs);
  Type element = rhs.getVectorType().getElementType();
  Value inMatrix = arith::AndIOp::create(b, loc, lane, index(7));
  Value matrix = arith::DivUIOp::create(b, loc, lane, index(8));
  Value low = arith::AndIOp::create(b, loc, matrix, index(1));
  Value high = arith::DivUIOp::create(b, loc, matrix, index(2));
  Value row, chunk;
  if (transposed) {
    // Stored [n][k]: matrices (n, k), (n, k+8), (n+8, k), (n+8, k+8), as they lie.
    row = add(add(mul(high, 8), inMatrix), n);
    chunk = add(low, k / 8);
  } else {
    // Stored [k][n]: matrices (k, n), (k+8, n), (k, n+8), (k+8, n+8), transposed on the way.
    row = add(add(mul(low, 8), inMatrix), k);
    chunk = add(high, n / 8);
  }
  Value column = mul(shared.swizzle(b, loc, row, chunk), 8);
  Value loaded = nvgpu::LdMatrixOp::create(b, loc, VectorType::get({4, 2}, element), rhs.getBase(),
                                           ValueRange{rhs.getIndices()[0], row, column},
                                           /*transpose=*/!transposed, /*numTiles=*/4);
  SmallVector<Value> operands;
  for (int64_t half = 0; half < 2; ++half)
    operands.push_back(vector::ExtractStridedSliceOp::create(b, loc, loaded, ArrayRef<int64_t>{2 * half},
                                                             ArrayRef<int64_t>{2}, ArrayRef<int64_t>{1}));
  return operands;
}

Value Distributor::mma(Value a, Value rhs, Value c, bool tf32) {
  return nvgpu::MmaSyncOp::create(b, loc, a, rhs, c, ArrayRef<int64_t>{16, 8, tf32 ? 8 : 16}, tf32);
}

namespace {
/// The accumulators of a product, one vector<2x2xf32> per row block and column group.
struct Accumulators {
  Accumulators(OpBuilder &b, Location loc, Value flat) : b(b), loc(loc), type(cast<VectorType>(flat.getType())) {
    auto split = vector::ToElementsOp::create(b, loc, flat);
    auto fragment = VectorType::get({2, 2}, b.getF32Type());
    for (unsigned i = 0; i < split.getNumResults(); i += 4)
      fragments.push_back(vector::FromElementsOp::create(
          b, loc, fragment, ValueRange(split.getResults()).slice(i, 4)));
  }
  Value join() {
    SmallVector<Value> elements;
    for (Value fragment : fragments) {
      auto split = vector::ToElementsOp::create(b, loc, fragment);
      elements.append(split->result_begin(), split->result_end());
    }
    return vector::FromElementsOp::create(b, loc, type, elements);
  }

  OpBuilder &b;
  Location loc;
  VectorType type;
  SmallVector<Value> fragments;
};
} // namespace

/// f16 and bf16: m16n8k16, accumulated in f32 (A1).
Value Distributor::contractHalf(Value lhs, vector::TransferReadOp rhs, bool transposed, Value acc,
                                int64_t kSize, int64_t nSize) {
  Accumulators c(b, loc, acc);
  Type element = rhs.getVectorType().getElementType();
  auto lhsElements = vector::ToElementsOp::create(b, loc, lhs).getResults();
  auto fragment = VectorType::get({4, 2}, element);
  int64_t lhsBlock = kSize / 2, groups = nSize / 8;
  for (int64_t k = 0; k < kSize; k += 16) {
    SmallVector<Value> a;
    for (int64_t r = 0; r < layout.rowBlocks; ++r)
      a.push_back(vector::FromElementsOp::create(
          b, loc, fragment, ValueRange(lhsElements).slice(r * lhsBlock + k / 2, 8)));
    for (int64_t n = 0; n < nSize; n += 16) {
      SmallVector<Value> operands = loadRhs(rhs, transposed, k, n);
      for (auto [half, operand] : llvm::enumerate(operands))
        for (int64_t r = 0; r < layout.rowBlocks; ++r) {
          Value &sum = c.fragments[r * groups + n / 8 + half];
          sum = mma(a[r], operand, sum, /*tf32=*/false);
        }
    }
  }
  return c.join();
}

/// f32 as three products of TF32 halves (A9): x = hi + lo with hi the 10 leading mantissa
/// bits, and x y = hi hi + lo hi + hi lo up to 2^-21 of it. Slot t of the reduction takes
/// column 2t of a group of 8 and slot t + 4 column 2t + 1, on both sides: so the
/// accumulators of one product are the A operand of the next as they stand.
Value Distributor::contractF32(Value lhs, vector::TransferReadOp rhs, bool transposed, Value acc,
                               int64_t kSize, int64_t nSize) {
  Accumulators c(b, loc, acc);
  SharedTile shared = sharedTile(rhs);
  Type f32 = b.getF32Type();
  Value stage = rhs.getIndices()[0];
  auto halves = [&](Value x) -> std::pair<Value, Value> {
    auto ints = VectorType::get(cast<VectorType>(x.getType()).getShape(), b.getI32Type());
    Value bits = arith::BitcastOp::create(b, loc, ints, x);
    Value mask = arith::ConstantOp::create(
        b, loc, DenseElementsAttr::get(ints, APInt(32, 0xffffe000u)));
    Value hi = arith::BitcastOp::create(b, loc, x.getType(), arith::AndIOp::create(b, loc, bits, mask));
    return {hi, arith::SubFOp::create(b, loc, x, hi)};
  };
  auto load = [&](Value row, Value column) {
    Value chunk = arith::DivUIOp::create(b, loc, column, index(4));
    Value inChunk = arith::AndIOp::create(b, loc, column, index(3));
    Value at = add(mul(shared.swizzle(b, loc, row, chunk), 4), inChunk);
    return SmallVector<Value>{stage, row, at};
  };
  auto lhsElements = vector::ToElementsOp::create(b, loc, lhs).getResults();
  auto aType = VectorType::get({4, 1}, f32), bType = VectorType::get({2, 1}, f32);
  int64_t lhsBlock = kSize / 2, groups = nSize / 8;
  for (int64_t k = 0; k < kSize; k += 8) {
    SmallVector<std::pair<Value, Value>> a;
    for (int64_t r = 0; r < layout.rowBlocks; ++r) {
      // Accumulator order is (row, column 2t), (row, 2t+1), (row+8, 2t), (row+8, 2t+1);
      // the operand's is (row, slot t), (row+8, t), (row, t+4), (row+8, t+4).
      ValueRange e = ValueRange(lhsElements).slice(r * lhsBlock + k / 2, 4);
      a.push_back(halves(vector::FromElementsOp::create(b, loc, aType, ValueRange{e[0], e[2], e[1], e[3]})));
    }
    for (int64_t n = 0; n < nSize; n += 8) {
      Value pair;
      if (transposed) {
        Value loaded = vector::LoadOp::create(b, loc, VectorType::get({2}, f32), rhs.getBase(),
                                              load(add(laneRow, n), add(laneColumn, k)),
                                              /*nontemporal=*/false, llvm::Align(8));
        pair = vector::ShapeCastOp::create(b, loc, bType, loaded);
      } else {
        SmallVector<Value> elements;
        for (int64_t slot = 0; slot < 2; ++slot) {
          Value one = vector::LoadOp::create(b, loc, VectorType::get({1}, f32), rhs.getBase(),
                                             load(add(laneColumn, k + slot), add(laneRow, n)));
          elements.push_back(vector::ExtractOp::create(b, loc, one, 0));
        }
        pair = vector::FromElementsOp::create(b, loc, bType, elements);
      }
      auto [bHi, bLo] = halves(pair);
      for (int64_t r = 0; r < layout.rowBlocks; ++r) {
        Value &sum = c.fragments[r * groups + n / 8];
        sum = mma(a[r].second, bHi, sum, /*tf32=*/true);
        sum = mma(a[r].first, bLo, sum, /*tf32=*/true);
        sum = mma(a[r].first, bHi, sum, /*tf32=*/true);
      }
    }
  }
  return c.join();
}
