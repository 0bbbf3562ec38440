//===- MicroKernel.cpp ----------------------------------------------------===//

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
  // Three quarters of the registers are accumulators (24 of 32, 12 of 16). The others contain a
  // column of lhs and broadcast elements.
  int64_t registersPerColumn = llvm::divideCeil(rows, registers.lanes);
  int64_t most = std::max<int64_t>(1, registers.count * 3 / 4 / registersPerColumn);
  // A divisor leaves no partial block. Half of the maximum still hides the latency of an FMA.
  for (int64_t block = std::min(most, columns); block >= std::max<int64_t>(1, most / 2); --block)
    if (columns % block == 0)
      return block;
  return llvm::divideCeil(columns, llvm::divideCeil(columns, most));
}

/// Returns rows or columns [first, first + count) of a matrix in memory.
static Value buildSlice(OpBuilder &b, Location loc, Value matrix, unsigned dim, Value first,
                        int64_t count) {
  auto type = cast<MemRefType>(matrix.getType());
  SmallVector<OpFoldResult> offsets(2, b.getIndexAttr(0)), strides(2, b.getIndexAttr(1));
  SmallVector<OpFoldResult> sizes = {b.getIndexAttr(type.getDimSize(0)),
                                     b.getIndexAttr(type.getDimSize(1))};
  offsets[dim] = first;
  sizes[dim] = b.getIndexAttr(count);
  return memref::SubViewOp::create(b, loc, matrix, offsets, sizes, strides);
}

/// Computes columns [first, first + count) of the product.
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
  // Slices, so that the elements of a block are at constant distances.
  Value rhs = buildSlice(b, loc, product.rhs, product.transposedRhs ? 0 : 1, first, count);
  Value result = buildSlice(b, loc, product.result, 0, first, count);
  Value zero = index(0);
  // Not unrolled: LLVM would hoist the broadcasts of all iterations to the top and spill them.
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

//===----------------------------------------------------------------------===//
// Few rows
//===----------------------------------------------------------------------===//

/// Returns the number of f32 elements of `rhs` that are loaded at once if there are few rows.
static int64_t getWidth(const Product &product, RegisterFile registers) {
  int64_t along = product.transposedRhs ? product.depth : product.columns;
  return std::min(registers.lanes, along & -along);
}

bool mlir::flashattn::cpu::hasFewRows(const Product &product, RegisterFile registers) {
  auto isDense = [](Value matrix) {
    auto [strides, offset] = cast<MemRefType>(matrix.getType()).getStridesAndOffset();
    return strides.back() == 1;
  };
  return product.rows > 1 && llvm::isPowerOf2_64(product.rows) &&
         getWidth(product, registers) >= 2 * product.rows && isDense(product.rhs);
}

namespace {
/// A product with so few rows that most lanes of a register would be unused. Broadcasts an element
/// of each row, and loads adjacent elements of `rhs`.
class FewRowsProduct {
public:
  FewRowsProduct(OpBuilder &b, Location loc, const Product &product, RegisterFile registers)
      : b(b), loc(loc), product(product), width(getWidth(product, registers)),
        type(VectorType::get({width}, b.getF32Type())), accumulators(registers.count / 2) {}

  LogicalResult build() { return product.transposedRhs ? buildTransposed() : buildAlongColumns(); }

private:
  Value index(int64_t i) { return arith::ConstantIndexOp::create(b, loc, i); }
  Value add(Value x, Value y) { return b.createOrFold<arith::AddIOp>(loc, x, y); }
  void forEach(int64_t count, int64_t step, function_ref<void(Value)> body) {
    auto loop = scf::ForOp::create(b, loc, index(0), index(count), index(step));
    OpBuilder::InsertionGuard guard(b);
    b.setInsertionPointToStart(loop.getBody());
    body(loop.getInductionVar());
  }

  /// Loads `width` elements of each row, from `first` on, of memref<N x M> with interleaved rows.
  Value loadAll(Value matrix, Value first);
  SmallVector<Value> split(Value alternating, int64_t rows);
  Value join(ArrayRef<Value> rows);
  /// Sums over k < depth in steps of `step`: each row of `lhs` times each of `count` rhs vectors.
  SmallVector<Value> sumUp(ArrayRef<Value> sums, int64_t step, int64_t count,
                           function_ref<Value(Value k, int64_t row)> lhs,
                           function_ref<Value(Value k, int64_t i)> rhs);

  LogicalResult buildTransposed();
  LogicalResult buildAlongColumns();
  LogicalResult buildDots(Value first, int64_t count);

  OpBuilder &b;
  Location loc;
  const Product &product;
  int64_t width;
  VectorType type;
  int64_t accumulators; ///< number of accumulator registers; the others contain operands
};
} // namespace

static Value flatten(OpBuilder &b, Location loc, Value matrix) {
  return memref::CollapseShapeOp::create(b, loc, matrix, ArrayRef<ReassociationIndices>{{0, 1}});
}

Value FewRowsProduct::loadAll(Value matrix, Value first) {
  auto all = VectorType::get({width * product.rows}, b.getF32Type());
  Value at = arith::MulIOp::create(b, loc, first, index(product.rows));
  return vector::LoadOp::create(b, loc, all, flatten(b, loc, matrix), at);
}

SmallVector<Value> FewRowsProduct::split(Value alternating, int64_t rows) {
  if (rows == 1)
    return {alternating};
  auto halves = vector::DeinterleaveOp::create(b, loc, alternating);
  SmallVector<Value> even = split(halves.getRes1(), rows / 2),
                     odd = split(halves.getRes2(), rows / 2), all;
  for (auto [x, y] : llvm::zip_equal(even, odd))
    all.append({x, y});
  return all;
}

Value FewRowsProduct::join(ArrayRef<Value> rows) {
  if (rows.size() == 1)
    return rows[0];
  SmallVector<Value> even, odd;
  for (auto [i, row] : llvm::enumerate(rows))
    (i % 2 == 0 ? even : odd).push_back(row);
  return vector::InterleaveOp::create(b, loc, join(even), join(odd));
}

SmallVector<Value> FewRowsProduct::sumUp(ArrayRef<Value> sums, int64_t step, int64_t count,
                                         function_ref<Value(Value k, int64_t row)> lhs,
                                         function_ref<Value(Value k, int64_t i)> rhs) {
  auto loop = scf::ForOp::create(b, loc, index(0), index(product.depth), index(step), sums);
  OpBuilder::InsertionGuard guard(b);
  b.setInsertionPointToEnd(loop.getBody());
  Value k = loop.getInductionVar();
  SmallVector<Value> left, next;
  for (int64_t row = 0; row < product.rows; ++row)
    left.push_back(lhs(k, row));
  for (int64_t i = 0; i < count; ++i) {
    Value right = rhs(k, i);
    for (int64_t row = 0; row < product.rows; ++row)
      next.push_back(vector::FMAOp::create(b, loc, left[row], right,
                                           loop.getRegionIterArg(i * product.rows + row)));
  }
  scf::YieldOp::create(b, loc, next);
  return loop.getResults();
}

/// Computes columns [first, first + count), each a dot product of every row with a row of `rhs`.
LogicalResult FewRowsProduct::buildDots(Value first, int64_t count) {
  Value rhs = buildSlice(b, loc, product.rhs, 0, first, count);
  Value zero = arith::ConstantOp::create(b, loc, b.getZeroAttr(type));
  SmallVector<Value> sums = sumUp(
      SmallVector<Value>(count * product.rows, zero), width, count,
      [&](Value k, int64_t row) -> Value {
        return vector::LoadOp::create(b, loc, type, product.lhsRows, ValueRange{index(row), k});
      },
      [&](Value k, int64_t i) -> Value {
        return vector::LoadOp::create(b, loc, type, rhs, ValueRange{index(i), k});
      });
  for (int64_t i = 0; i < count; ++i) {
    Value column = add(first, index(i)), init = product.init(column);
    if (!init)
      return failure();
    SmallVector<Value> dots;
    for (Value sum : ArrayRef(sums).slice(i * product.rows, product.rows))
      dots.push_back(vector::ReductionOp::create(b, loc, vector::CombiningKind::ADD, sum,
                                                 arith::FastMathFlags::reassoc));
    Value all = vector::FromElementsOp::create(b, loc, cast<VectorType>(init.getType()), dots);
    vector::StoreOp::create(b, loc, arith::AddFOp::create(b, loc, init, all), product.result,
                            ValueRange{column, index(0)});
  }
  return success();
}

LogicalResult FewRowsProduct::buildTransposed() {
  forEach(product.depth, width, [&](Value k) {
    for (auto [i, row] : llvm::enumerate(split(loadAll(product.lhs, k), product.rows)))
      vector::StoreOp::create(b, loc, row, product.lhsRows, ValueRange{index(i), k});
  });
  int64_t block = std::min(accumulators / product.rows, product.columns);
  int64_t whole = product.columns / block * block;
  LogicalResult built = success();
  forEach(whole, block, [&](Value first) { built = buildDots(first, block); });
  if (succeeded(built) && whole != product.columns)
    built = buildDots(index(whole), product.columns - whole);
  return built;
}

LogicalResult FewRowsProduct::buildAlongColumns() {
  LogicalResult built = success();
  forEach(product.columns, 1, [&](Value column) {
    Value init = product.init(column);
    built = success(init != nullptr);
    if (init)
      vector::StoreOp::create(b, loc, init, product.result, ValueRange{column, index(0)});
  });
  if (failed(built))
    return failure();
  int64_t vectors = product.columns / width, count = std::min(accumulators / product.rows, vectors);
  while (vectors % count != 0)
    --count;
  forEach(product.columns, count * width, [&](Value first) {
    SmallVector<Value> sums;
    for (int64_t i = 0; i < count; ++i)
      llvm::append_range(
          sums, split(loadAll(product.result, add(first, index(i * width))), product.rows));
    sums = sumUp(
        sums, 1, count,
        [&](Value k, int64_t row) -> Value {
          Value x = memref::LoadOp::create(b, loc, product.lhs, ValueRange{k, index(row)});
          return vector::BroadcastOp::create(b, loc, type, x);
        },
        [&](Value k, int64_t i) -> Value {
          return vector::LoadOp::create(b, loc, type, product.rhs,
                                        ValueRange{k, add(first, index(i * width))});
        });
    for (int64_t i = 0; i < count; ++i) {
      Value column = add(first, index(i * width));
      Value at = arith::MulIOp::create(b, loc, column, index(product.rows));
      vector::StoreOp::create(b, loc, join(ArrayRef(sums).slice(i * product.rows, product.rows)),
                              flatten(b, loc, product.result), at);
    }
  });
  return success();
}

LogicalResult mlir::flashattn::cpu::buildProduct(OpBuilder &b, Location loc, const Product &product,
                                                 RegisterFile registers) {
  if (hasFewRows(product, registers))
    return FewRowsProduct(b, loc, product, registers).build();
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
