//===- MmaSync.cpp - products by mma.sync ---------------------------------===//
//
// PTX ISA, "Matrix fragments for mma.m16n8k16 with floating point type" and
// "mma.m16n8k8": which thread holds which element of A, B and C.
//
//===----------------------------------------------------------------------===//

#include "Distribute.h"
#include "flashattn/Target/ResourcePlans.h"
#include "mlir/Dialect/LLVMIR/LLVMDialect.h"
#include "mlir/Dialect/LLVMIR/NVVMDialect.h"
#include "mlir/Dialect/MemRef/IR/MemRef.h"

using namespace mlir;
using namespace mlir::flashattn;

static SharedTile sharedTile(VectorTransferOpInterface op) {
  VectorType type = op.getVectorType();
  return {type.getDimSize(1), type.getElementTypeBitWidth() / 8};
}

namespace {
/// Addresses of one tile in shared memory for this thread: row `rowOfLane` plus a constant multiple
/// of 8, chunk `chunkOfLane` plus a constant even number.
///
/// The swizzle repeats every 8 rows and stays within 8 chunks, so a thread needs only a few column
/// values. All other columns are constant offsets, which fold into the loads.
class SharedAddresses {
public:
  SharedAddresses(OpBuilder &b, Location loc, VectorTransferOpInterface tile, Value rowOfLane,
                  Value chunkOfLane, Value inChunk = {})
      : b(b), loc(loc), tile(tile), shared(sharedTile(tile)), row(rowOfLane), chunk(chunkOfLane),
        inChunk(inChunk) {}

  /// Returns the indices of element `inChunk` + `element` of a chunk.
  SmallVector<Value> at(int64_t rows, int64_t chunks, int64_t element = 0) {
    int64_t rest = (chunks - chunks % getPeriod()) * shared.chunkElements() + element;
    return {tile.getIndices().front(), add(row, rows), add(getColumn(chunks), rest)};
  }

  /// Returns the same address as a pointer, with few registers: a constant offset from one of up to
  /// 8 pointers, each the first pointer xor constant bits. Requires that `chunkOfLane` and `chunks`
  /// have no bits in common, and that tiles begin at a line of all banks, as planned.
  Value pointerTo(int64_t rows, int64_t chunks) {
    int64_t inPeriod = chunks % getPeriod();
    if (!pointers[0])
      pointers[0] = getPointer(b, loc, tile.getBase(), at(0, 0));
    Value &first = pointers[inPeriod];
    if (!first) {
      Value address = LLVM::PtrToIntOp::create(b, loc, b.getI32Type(), pointers[0]);
      Value bits = arith::ConstantIntOp::create(b, loc, kChunkBytes * inPeriod, 32);
      address = arith::XOrIOp::create(b, loc, address, bits);
      first = LLVM::IntToPtrOp::create(b, loc, pointers[0].getType(), address);
    }
    int64_t rest = (chunks - inPeriod) * shared.chunkElements();
    return LLVM::GEPOp::create(b, loc, first.getType(), tile.getVectorType().getElementType(),
                               first, LLVM::GEPArg(rows * shared.columns + rest));
  }

private:
  static constexpr int64_t kChunkBytes = 16;

  int64_t getPeriod() const {
    return std::min<int64_t>(8, shared.chunksPerRow() & -shared.chunksPerRow());
  }

  Value getColumn(int64_t chunks) {
    Value &column = columns[chunks % getPeriod()];
    if (!column) {
      column = mul(shared.swizzle(b, loc, row, add(chunk, chunks % getPeriod())),
                   shared.chunkElements());
      if (inChunk)
        column = arith::AddIOp::create(b, loc, column, inChunk);
    }
    return column;
  }

  Value index(int64_t v) { return arith::ConstantIndexOp::create(b, loc, v); }
  Value add(Value v, int64_t c) { return c == 0 ? v : arith::AddIOp::create(b, loc, v, index(c)); }
  Value mul(Value v, int64_t c) { return arith::MulIOp::create(b, loc, v, index(c)); }

  OpBuilder &b;
  Location loc;
  VectorTransferOpInterface tile;
  SharedTile shared;
  Value row, chunk, inChunk;
  std::array<Value, 8> columns, pointers;
};
} // namespace

/// Loads four 8x8 matrices of 16-bit elements with ldmatrix, a pair of elements of each per lane.
/// With pointers, ptxas folds constants into the instruction. With indices, LLVM would share
/// partial sums between products, in registers.
static SmallVector<Value> loadMatrices(OpBuilder &b, Location loc, VectorTransferOpInterface tile,
                                       SharedAddresses &places, int64_t rows, int64_t chunks,
                                       bool transpose) {
  constexpr int64_t kMatrices = 4;
  auto result = LLVM::LLVMStructType::getLiteral(b.getContext(),
                                                 SmallVector<Type>(kMatrices, b.getI32Type()));
  auto shape = NVVM::LdStMatrixShapeAttr::get(b.getContext(), 8, 8);
  Value words = NVVM::LdMatrixOp::create(b, loc, result, places.pointerTo(rows, chunks), kMatrices,
                                         transpose ? NVVM::MMALayout::col : NVVM::MMALayout::row,
                                         shape, NVVM::LdStMatrixEltType::B16);
  auto pairType = VectorType::get({2}, tile.getVectorType().getElementType());
  SmallVector<Value> pairs;
  for (int64_t i = 0; i < kMatrices; ++i)
    pairs.push_back(
        LLVM::BitcastOp::create(b, loc, pairType, LLVM::ExtractValueOp::create(b, loc, words, i)));
  return pairs;
}

/// Loads this thread's fragment of an A operand in shared memory, in accumulator order.
Value Distributor::loadTileFromShared(vector::TransferReadOp op) {
  VectorType type = op.getVectorType();
  int64_t columns = type.getDimSize(1);
  SmallVector<Value> elements;
  if (type.getElementType().isF32()) {
    // ldmatrix does not support 32-bit elements in this order: columns 2(lane%4) and the next of
    // each group of 8, which are elements 2((lane%4)%2) and the next of chunk (lane%4)/2.
    SharedAddresses places(b, loc, op, add(warpRow, laneRow),
                           arith::DivUIOp::create(b, loc, laneColumn, index(4)),
                           arith::AndIOp::create(b, loc, laneColumn, index(2)));
    for (int64_t r = 0; r < layout.rowBlocks; ++r)
      for (int64_t g = 0; g < columns / 8; ++g)
        for (int64_t half = 0; half < 2; ++half)
          for (int64_t c = 0; c < 2; ++c)
            elements.push_back(memref::LoadOp::create(b, loc, op.getBase(),
                                                      places.at(16 * r + 8 * half, 2 * g, c)));
  } else {
    // Matrices (rows 0-7, columns 0-7), (8-15, 0-7), (0-7, 8-15), (8-15, 8-15): lane l supplies the
    // address of row l%8 of matrix l/8.
    SharedAddresses places(b, loc, op, add(warpRow, arith::AndIOp::create(b, loc, lane, index(15))),
                           arith::DivUIOp::create(b, loc, lane, index(16)));
    for (int64_t r = 0; r < layout.rowBlocks; ++r)
      for (int64_t k = 0; k < columns; k += 16) {
        for (Value pair : loadMatrices(b, loc, op, places, 16 * r, k / 8, /*transpose=*/false)) {
          auto split = vector::ToElementsOp::create(b, loc, pair);
          elements.append(split->result_begin(), split->result_end());
        }
      }
  }
  return vector::FromElementsOp::create(b, loc, layout.threadType(type), elements);
}

/// Computes lhs[m,k] times rhs, both in shared memory, for this warp's rows and columns.
Value Distributor::contractShared(vector::TransferReadOp lhs, vector::TransferReadOp rhs,
                                  bool transposed, Value acc) {
  VectorType type = rhs.getVectorType();
  SharedAddresses places(b, loc, lhs, add(warpRow, arith::AndIOp::create(b, loc, lane, index(15))),
                         arith::DivUIOp::create(b, loc, lane, index(16)));
  auto loadRows = [&](int64_t r, int64_t k) {
    return loadMatrices(b, loc, lhs, places, 16 * r, k / 8, /*transpose=*/false);
  };
  return multiplyHalf(loadRows, layout.rowBlocks, rhs, transposed, acc,
                      lhs.getVectorType().getDimSize(1),
                      layout.warpColumns(type.getDimSize(transposed ? 0 : 1)), columnWarp);
}

/// Computes a product that contracts the rows of `lhs`, in shared memory. The columns of `lhs` are
/// the rows of the product. This warp computes some blocks of 16 rows, for its range of columns.
Value Distributor::contractTransposed(vector::TransferReadOp lhs, vector::TransferReadOp rhs,
                                      Value acc, int64_t nSize) {
  VectorType type = lhs.getVectorType();
  // Matrices (k, m), (k, m+8), (k+8, m), (k+8, m+8), transposed by ldmatrix.
  Value inMatrix = arith::AndIOp::create(b, loc, lane, index(7));
  Value matrix = arith::DivUIOp::create(b, loc, lane, index(8));
  Value low = arith::AndIOp::create(b, loc, matrix, index(1));
  Value high = arith::DivUIOp::create(b, loc, matrix, index(2));
  int64_t rowBlocks = layout.columnWarps;
  auto [rowWarp, part] = splitWarp(type.getDimSize(1) / (16 * rowBlocks));
  SharedAddresses places(b, loc, lhs, add(mul(high, 8), inMatrix),
                         add(mul(rowWarp, 2 * rowBlocks), low));
  auto loadRows = [&](int64_t r, int64_t k) {
    return loadMatrices(b, loc, lhs, places, k, 2 * r, /*transpose=*/true);
  };
  return multiplyHalf(loadRows, rowBlocks, rhs, /*transposed=*/false, acc, type.getDimSize(0),
                      nSize, part);
}

/// Stores this thread's fragment of a tile to shared memory, for other warps.
LogicalResult Distributor::write(vector::TransferWriteOp op) {
  auto memory = dyn_cast<MemRefType>(op.getBase().getType());
  VectorType type = op.getVectorType();
  Value held = mapped(op.getVector());
  if (!memory || !isSharedMemory(memory) || !held || !layout.isTile(type) ||
      type.getElementTypeBitWidth() != 16)
    return op.emitOpError() << "expected a tile of " << layout.tileM
                            << " rows of 16-bit elements, to be stored to shared memory, but got "
                            << type << " for " << op.getBase().getType();
  int64_t columns = type.getDimSize(1), groups = layout.warpColumns(columns) / 8;
  Value firstChunk = columnWarp ? mul(columnWarp, groups) : index(0);
  SharedAddresses places(b, loc, op, add(warpRow, laneRow), firstChunk, laneColumn);
  for (int64_t r = 0; r < layout.rowBlocks; ++r)
    for (int64_t g = 0; g < groups; ++g)
      for (int64_t half = 0; half < 2; ++half)
        LLVM::StoreOp::create(b, loc, slice(held, 4 * (r * groups + g) + 2 * half, 2),
                              places.pointerTo(16 * r + 8 * half, g), /*alignment=*/4);
  return success();
}

/// Returns `v` as a 32-bit operand register of mma.sync: a pair of f16, or an i32.
static Value operandRegister(OpBuilder &b, Location loc, Value v) {
  if (auto pair = dyn_cast<VectorType>(v.getType())) {
    if (pair.getElementType().isF16())
      return v;
    Value word = vector::BitCastOp::create(b, loc, VectorType::get({1}, b.getI32Type()), v);
    return vector::ExtractOp::create(b, loc, word, 0);
  }
  return arith::BitcastOp::create(b, loc, b.getI32Type(), v);
}

/// Computes c += a b on one m16n8 block. `c` is this thread's 4 accumulators.
void Distributor::mma(ValueRange a, ValueRange rhs, MutableArrayRef<Value> c, Type element) {
  bool tf32 = element.isF32();
  auto type = tf32               ? NVVM::MMATypes::tf32
              : element.isBF16() ? NVVM::MMATypes::bf16
                                 : NVVM::MMATypes::f16;
  auto result =
      LLVM::LLVMStructType::getLiteral(b.getContext(), SmallVector<Type>(4, b.getF32Type()));
  auto toRegister = [&](Value v) { return operandRegister(b, loc, v); };
  Value sums = NVVM::MmaOp::create(b, loc, result, llvm::map_to_vector(a, toRegister),
                                   llvm::map_to_vector(rhs, toRegister), ValueRange(c),
                                   ArrayRef<int64_t>{16, 8, tf32 ? 8 : 16}, /*b1Op=*/std::nullopt,
                                   /*intOverflow=*/std::nullopt, std::array{type, type},
                                   std::array{NVVM::MMALayout::row, NVVM::MMALayout::col});
  for (int64_t i = 0; i < 4; ++i)
    c[i] = LLVM::ExtractValueOp::create(b, loc, sums, i);
}

Value Distributor::contractHalf(Value lhs, vector::TransferReadOp rhs, bool transposed, Value acc,
                                int64_t kSize, int64_t nSize) {
  auto takeRows = [&](int64_t r, int64_t k) {
    SmallVector<Value> operands;
    for (int64_t i = 0; i < 8; i += 2)
      operands.push_back(slice(lhs, r * kSize / 2 + k / 2 + i, 2));
    return operands;
  };
  return multiplyHalf(takeRows, layout.rowBlocks, rhs, transposed, acc, kSize, nSize,
                      /*part=*/Value());
}

/// Computes an f16 or bf16 product with m16n8k16, accumulated in f32 (A1). `lhsAt` returns the
/// operand of a block of 16 rows at column k. With a `part`, the warp computes that range of
/// `nSize` columns.
Value Distributor::multiplyHalf(function_ref<SmallVector<Value>(int64_t, int64_t)> lhsAt,
                                int64_t rowBlocks, vector::TransferReadOp rhs, bool transposed,
                                Value acc, int64_t kSize, int64_t nSize, Value part) {
  SmallVector<Value> c(vector::ToElementsOp::create(b, loc, acc).getResults());
  Type element = rhs.getVectorType().getElementType();
  // Lane l supplies ldmatrix with the address of row l%8 of matrix l/8. If stored [n][k], the
  // matrices are (n, k), (n, k+8), (n+8, k), (n+8, k+8), not transposed. If stored [k][n], they are
  // (k, n), (k+8, n), (k, n+8), (k+8, n+8), transposed by ldmatrix. In both cases the results are
  // the operand of columns [n, n+8), then the operand of [n+8, n+16).
  Value inMatrix = arith::AndIOp::create(b, loc, lane, index(7));
  Value matrix = arith::DivUIOp::create(b, loc, lane, index(8));
  Value low = arith::AndIOp::create(b, loc, matrix, index(1));
  Value high = arith::DivUIOp::create(b, loc, matrix, index(2));
  Value chunk = transposed ? low : high;
  Value row = add(mul(transposed ? high : low, 8), inMatrix);
  if (part && transposed)
    row = add(row, mul(part, nSize));
  else if (part)
    chunk = add(chunk, mul(part, nSize / 8));
  SharedAddresses places(b, loc, rhs, row, chunk);
  int64_t accBlock = nSize / 2;
  for (int64_t k = 0; k < kSize; k += 16) {
    SmallVector<SmallVector<Value>> a;
    for (int64_t r = 0; r < rowBlocks; ++r)
      a.push_back(lhsAt(r, k));
    for (int64_t n = 0; n < nSize; n += 16) {
      SmallVector<Value> operands =
          transposed ? loadMatrices(b, loc, rhs, places, n, k / 8, /*transpose=*/false)
                     : loadMatrices(b, loc, rhs, places, k, n / 8, /*transpose=*/true);
      for (int64_t half = 0; half < 2; ++half)
        for (int64_t r = 0; r < rowBlocks; ++r)
          mma(a[r], ValueRange(operands).slice(2 * half, 2),
              MutableArrayRef(c).slice(r * accBlock + n / 2 + 4 * half, 4), element);
    }
  }
  return vector::FromElementsOp::create(b, loc, acc.getType(), c);
}

/// Computes an f32 product as three TF32 products (A9): x = hi + lo, where hi has the 10 leading
/// mantissa bits, and x y = hi hi + lo hi + hi lo up to a relative error of 2^-21. On both sides,
/// slot t of the reduction is column 2t of a group of 8, and slot t + 4 is column 2t + 1. So the
/// accumulators of one product are the A operand of the next without a shuffle.
Value Distributor::contractF32(Value lhs, vector::TransferReadOp rhs, bool transposed, Value acc,
                               int64_t kSize, int64_t nSize) {
  SmallVector<Value> c(vector::ToElementsOp::create(b, loc, acc).getResults());
  Type f32 = b.getF32Type(), i32 = b.getI32Type();
  Value mask = arith::ConstantOp::create(b, loc, b.getIntegerAttr(i32, 0xffffe000u));
  // Rounds to nearest, which halves the loss of the lower half, which has 10 mantissa bits too.
  Value half = arith::ConstantOp::create(b, loc, b.getIntegerAttr(i32, 0x1000));
  auto split = [&](ValueRange values) {
    std::pair<SmallVector<Value>, SmallVector<Value>> result;
    for (Value x : values) {
      Value bits = arith::BitcastOp::create(b, loc, i32, x);
      bits = arith::AddIOp::create(b, loc, bits, half);
      Value hi = arith::BitcastOp::create(b, loc, f32, arith::AndIOp::create(b, loc, bits, mask));
      result.first.push_back(hi);
      result.second.push_back(arith::SubFOp::create(b, loc, x, hi));
    }
    return result;
  };
  // Slots t and t + 4 are adjacent along the reduction: adjacent columns if stored [n][k], adjacent
  // rows if stored [k][n].
  Value quadColumn = arith::DivUIOp::create(b, loc, laneColumn, index(4));
  Value inChunk = arith::AndIOp::create(b, loc, laneColumn, index(2));
  SharedAddresses along(b, loc, rhs, laneRow, quadColumn, inChunk);
  SharedAddresses across[2] = {
      {b, loc, rhs, laneColumn, arith::DivUIOp::create(b, loc, laneRow, index(4)),
       arith::AndIOp::create(b, loc, laneRow, index(3))},
      {b, loc, rhs, add(laneColumn, 1), arith::DivUIOp::create(b, loc, laneRow, index(4)),
       arith::AndIOp::create(b, loc, laneRow, index(3))}};
  auto lhsElements = vector::ToElementsOp::create(b, loc, lhs).getResults();
  int64_t lhsBlock = kSize / 2, accBlock = nSize / 2;
  using Halves = std::pair<SmallVector<Value>, SmallVector<Value>>;
  // Accumulator order is (row, column 2t), (row, 2t+1), (row+8, 2t), (row+8, 2t+1). Operand order
  // is (row, slot t), (row+8, t), (row, t+4), (row+8, t+4).
  auto lhsAt = [&](int64_t r, int64_t k) -> Halves {
    ValueRange e = ValueRange(lhsElements).slice(r * lhsBlock + k / 2, 4);
    return split(SmallVector<Value>{e[0], e[2], e[1], e[3]});
  };
  auto rhsAt = [&](int64_t k, int64_t n) -> Halves {
    SmallVector<Value> slots;
    for (int64_t slot = 0; slot < 2; ++slot)
      slots.push_back(memref::LoadOp::create(b, loc, rhs.getBase(),
                                             transposed ? along.at(n, k / 4, slot)
                                                        : across[slot].at(k, n / 4)));
    return split(slots);
  };
  auto multiply = [&](const Halves &x, const Halves &y, MutableArrayRef<Value> sum) {
    mma(x.second, y.first, sum, f32);
    mma(x.first, y.second, sum, f32);
    mma(x.first, y.first, sum, f32);
  };
  // Tensor cores round sums toward zero, so long sums drift. `sums` are added to the accumulator
  // with correct rounding.
  Value zero = arith::ConstantOp::create(b, loc, b.getF32FloatAttr(0));
  auto addSums = [&](ArrayRef<Value> sums, MutableArrayRef<Value> totals) {
    for (auto [sum, total] : llvm::zip_equal(sums, totals))
      total = arith::AddFOp::create(b, loc, total, sum);
  };
  if (transposed) {
    // Scores start from zero and are one sum of kSize products. A large kSize is split into a sum
    // for each step: if P is 1 and dP equals delta, the gradient consists only of the error of the
    // sum. Wide tiles leave no registers for separate sums, but do not occur in the backward pass.
    const bool sumsSteps = kSize > 64 && nSize <= 16;
    for (int64_t k = 0; k < kSize; k += 8) {
      SmallVector<Halves> a;
      for (int64_t r = 0; r < layout.rowBlocks; ++r)
        a.push_back(lhsAt(r, k));
      for (int64_t n = 0; n < nSize; n += 8) {
        Halves operand = rhsAt(k, n);
        for (int64_t r = 0; r < layout.rowBlocks; ++r) {
          MutableArrayRef<Value> totals = MutableArrayRef(c).slice(r * accBlock + n / 2, 4);
          if (!sumsSteps) {
            multiply(a[r], operand, totals);
            continue;
          }
          SmallVector<Value> sums(4, zero);
          multiply(a[r], operand, sums);
          addSums(sums, totals);
        }
      }
    }
    return vector::FromElementsOp::create(b, loc, acc.getType(), c);
  }
  // P V, over thousands of keys: each tile has a separate sum.
  SmallVector<SmallVector<Halves>> a(layout.rowBlocks);
  for (int64_t r = 0; r < layout.rowBlocks; ++r)
    for (int64_t k = 0; k < kSize; k += 8)
      a[r].push_back(lhsAt(r, k));
  for (int64_t n = 0; n < nSize; n += 8) {
    SmallVector<SmallVector<Value>> sums(layout.rowBlocks, SmallVector<Value>(4, zero));
    for (int64_t k = 0; k < kSize; k += 8) {
      Halves operand = rhsAt(k, n);
      for (int64_t r = 0; r < layout.rowBlocks; ++r)
        multiply(a[r][k / 8], operand, sums[r]);
    }
    for (int64_t r = 0; r < layout.rowBlocks; ++r)
      addSums(sums[r], MutableArrayRef(c).slice(r * accBlock + n / 2, 4));
  }
  return vector::FromElementsOp::create(b, loc, acc.getType(), c);
}

/// Computes lhs[k,m]^T rhs[k,n] with fewer rows than the program: warps also divide the columns.
LogicalResult Distributor::contractPart(vector::ContractionOp op) {
  auto lhs = op.getLhs().getDefiningOp<vector::TransferReadOp>();
  auto rhs = op.getRhs().getDefiningOp<vector::TransferReadOp>();
  auto type = cast<VectorType>(op.getAccType());
  Value acc = mapped(op.getAcc());
  int64_t rows = type.getDimSize(0), columns = type.getDimSize(1) / layout.countParts(rows);
  if (!lhs || !rhs || !acc || !layout.isPart(type) || !isWholePart(columns) ||
      op.getLhsType().getElementTypeBitWidth() != 16)
    return op.emitOpError()
           << "expected 16-bit tiles in shared memory, whose product has an equal part for each of "
           << layout.warps << " warps, but got " << type;
  values[op] = contractTransposed(lhs, rhs, acc, columns);
  return success();
}

LogicalResult Distributor::contract(vector::ContractionOp op) {
  if (isLhsTransposed(op))
    return contractPart(op);
  if (op.getRhs().getDefiningOp<hopper::LoadTileOp>())
    return contractPanels(op);
  std::optional<bool> transposed = isRhsTransposed(op);
  auto rhs = op.getRhs().getDefiningOp<vector::TransferReadOp>();
  if (!transposed || !rhs)
    return op.emitOpError() << "expected lhs[m,k] times rhs[n,k] or rhs[k,n] with rhs read from "
                               "shared memory";
  auto accType = cast<VectorType>(op.getAccType());
  Value lhs = mapped(op.getLhs()), acc = mapped(op.getAcc());
  if (auto shared = op.getLhs().getDefiningOp<vector::TransferReadOp>();
      shared && acc && layout.columnWarps > 1 && op.getLhsType().getElementTypeBitWidth() == 16) {
    values[op] = contractShared(shared, rhs, *transposed, acc);
    return success();
  }
  if (!lhs || !acc || layout.columnWarps > 1)
    return op.emitOpError()
           << "cannot be distributed to threads: its operands have no thread layout";
  int64_t kSize = op.getLhsType().getDimSize(1), nSize = accType.getDimSize(1);
  bool f32 = op.getLhsType().getElementType().isF32();
  values[op] = f32 ? contractF32(lhs, rhs, *transposed, acc, kSize, nSize)
                   : contractHalf(lhs, rhs, *transposed, acc, kSize, nSize);
  return success();
}
