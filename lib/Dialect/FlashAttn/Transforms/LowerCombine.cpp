//===- LowerCombine.cpp - flashattn-lower-combine --------------------------===//
//
// Rules A5 and A6 over parts of the keys, row by row.
//
//===----------------------------------------------------------------------===//

#include "flashattn/Dialect/FlashAttn/Transforms/Passes.h"
#include "flashattn/Dialect/FlashAttn/Transforms/Transforms.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/GPU/IR/GPUDialect.h"
#include "mlir/Dialect/Math/IR/Math.h"
#include "mlir/Dialect/MemRef/IR/MemRef.h"
#include "mlir/Dialect/SCF/IR/SCF.h"
#include "mlir/Dialect/Vector/IR/VectorOps.h"

#include <cmath>

namespace mlir::flashattn {
#define GEN_PASS_DEF_LOWERCOMBINE
#include "flashattn/Dialect/FlashAttn/Transforms/Passes.h.inc"
} // namespace mlir::flashattn

using namespace mlir;
using namespace mlir::flashattn;

namespace {

class CombineBuilder {
public:
  CombineBuilder(RewriterBase &b, CombineOp op)
      : b(b), op(op), loc(op.getLoc()), dv(op.getOParts().getType().getDimSize(4)),
        f32(b.getF32Type()) {}

  void buildLoops();
  void buildLaunch();

private:
  Value index(int64_t v) { return arith::ConstantIndexOp::create(b, loc, v); }
  Value number(double v) { return arith::ConstantOp::create(b, loc, b.getF32FloatAttr(v)); }
  Value dim(Value memref, int64_t i) { return b.createOrFold<memref::DimOp>(loc, memref, i); }
  Value mul(Value x, Value y) { return b.createOrFold<arith::MulFOp>(loc, x, y); }
  Value exponential(Value x, Value base) {
    Value difference = arith::SubFOp::create(b, loc, x, base);
    return math::Exp2Op::create(b, loc, mul(difference, number(M_LOG2E)));
  }
  Value isNone(Value v) {
    return arith::CmpFOp::create(b, loc, arith::CmpFPredicate::OEQ, v, number(-INFINITY));
  }
  /// `v` for every column at hand: a vector<Dv> of it, or itself.
  Value spread(Value v, int64_t columns) {
    return columns == 1 ? v
                        : vector::BroadcastOp::create(b, loc, VectorType::get({columns}, f32), v)
                              .getResult();
  }
  void buildRow(ArrayRef<Value> row, Value column, int64_t columns, int64_t partsAtOnce,
                Value writesLse);

  RewriterBase &b;
  CombineOp op;
  Location loc;
  int64_t dv;
  FloatType f32;
};

} // namespace

/// The output of row (batch, head, query) at `columns` columns from `column` on, and, where
/// `writesLse` (null: always), its log-sum-exp. `partsAtOnce` parts are read side by side.
void CombineBuilder::buildRow(ArrayRef<Value> row, Value column, int64_t columns,
                              int64_t partsAtOnce, Value writesLse) {
  auto vectorType = VectorType::get({columns}, f32);
  Value parts = dim(op.getOParts(), 0), last = arith::SubIOp::create(b, loc, parts, index(1));
  // The sink joins as one more part would whose output is 0.
  Value max = number(-INFINITY), sum = number(0), out = spread(number(0), columns);
  if (Value sinks = op.getSinkLogits()) {
    max = memref::LoadOp::create(b, loc, sinks, row[1]);
    sum = arith::SelectOp::create(b, loc, isNone(max), number(0), number(1));
  }
  auto loop =
      scf::ForOp::create(b, loc, index(0), parts, index(partsAtOnce), ValueRange{max, sum, out});
  {
    OpBuilder::InsertionGuard guard(b);
    b.setInsertionPointToStart(loop.getBody());
    max = loop.getRegionIterArg(0), sum = loop.getRegionIterArg(1), out = loop.getRegionIterArg(2);
    SmallVector<Value> logs, outs;
    for (int64_t i = 0; i < partsAtOnce; ++i) {
      Value part = loop.getInductionVar(), exists;
      if (i != 0) {
        part = arith::AddIOp::create(b, loc, part, index(i));
        exists = arith::CmpIOp::create(b, loc, arith::CmpIPredicate::ule, part, last);
        part = arith::MinUIOp::create(b, loc, part, last);
      }
      SmallVector<Value> at = {part, row[0], row[1], row[2]};
      Value log = memref::LoadOp::create(b, loc, op.getLseParts(), at);
      logs.push_back(
          exists ? arith::SelectOp::create(b, loc, exists, log, number(-INFINITY)).getResult()
                 : log);
      at.push_back(column);
      outs.push_back(
          columns == 1
              ? memref::LoadOp::create(b, loc, op.getOParts(), at).getResult()
              : vector::LoadOp::create(b, loc, vectorType, op.getOParts(), at).getResult());
    }
    Value largest = max;
    for (Value log : logs)
      largest = arith::MaxNumFOp::create(b, loc, largest, log);
    // A6: -inf - -inf would be NaN.
    Value base = arith::SelectOp::create(b, loc, isNone(largest), number(0), largest);
    Value rescale = exponential(max, base);
    sum = mul(sum, rescale);
    out = mul(out, spread(rescale, columns));
    for (auto [log, partOut] : llvm::zip_equal(logs, outs)) {
      Value weight = exponential(log, base);
      sum = arith::AddFOp::create(b, loc, sum, weight);
      out = math::FmaOp::create(b, loc, partOut, spread(weight, columns), out);
    }
    scf::YieldOp::create(b, loc, ValueRange{largest, sum, out});
  }
  max = loop.getResult(0), sum = loop.getResult(1), out = loop.getResult(2);

  Value empty = arith::CmpFOp::create(b, loc, arith::CmpFPredicate::OEQ, sum, number(0));
  Value inverse = arith::DivFOp::create(b, loc, number(1), sum);
  inverse = arith::SelectOp::create(b, loc, empty, number(0), inverse);
  out = mul(out, spread(inverse, columns));
  Type element = op.getOInit().getType().getElementType();
  if (element != f32)
    out = arith::TruncFOp::create(b, loc, columns == 1 ? element : vectorType.clone(element), out);
  SmallVector<Value> at = {row[0], row[1], row[2], column};
  if (op.getLayout() == Layout::BSHD)
    std::swap(at[1], at[2]);
  if (columns == 1)
    memref::StoreOp::create(b, loc, out, op.getOInit(), at);
  else
    vector::StoreOp::create(b, loc, out, op.getOInit(), at);
  if (!op.getLseInit())
    return;
  auto store = [&] {
    // lse = max + ln 2 log2 sum
    Value log = math::Log2Op::create(b, loc, sum);
    Value lse = math::FmaOp::create(b, loc, log, number(M_LN2), max);
    lse = arith::SelectOp::create(b, loc, empty, number(-INFINITY), lse);
    memref::StoreOp::create(b, loc, lse, op.getLseInit(), row);
  };
  if (!writesLse)
    return store();
  auto guarded = scf::IfOp::create(b, loc, writesLse, /*withElseRegion=*/false);
  OpBuilder::InsertionGuard guard(b);
  b.setInsertionPointToStart(guarded.thenBlock());
  store();
}

void CombineBuilder::buildLoops() {
  SmallVector<Value> row;
  for (int64_t i : {1, 2, 3}) {
    auto loop = scf::ForOp::create(b, loc, index(0), dim(op.getOParts(), i), index(1));
    b.setInsertionPointToStart(loop.getBody());
    row.push_back(loop.getInductionVar());
  }
  buildRow(row, index(0), dv, /*partsAtOnce=*/1, /*writesLse=*/{});
}

void CombineBuilder::buildLaunch() {
  constexpr int64_t kWarp = 32, kMaxThreads = 1024, kPartsAtOnce = 8;
  int64_t threads = std::min<int64_t>(llvm::alignTo(dv, kWarp), kMaxThreads);
  Value rows = index(1), one = index(1);
  for (int64_t i : {1, 2, 3})
    rows = b.createOrFold<arith::MulIOp>(loc, rows, dim(op.getOParts(), i));
  Value heads = dim(op.getOParts(), 2), queries = dim(op.getOParts(), 3);
  // A grid of no blocks is an error to the driver.
  Value any = arith::CmpIOp::create(b, loc, arith::CmpIPredicate::ugt, rows, index(0));
  auto guarded = scf::IfOp::create(b, loc, any, /*withElseRegion=*/false);
  b.setInsertionPointToStart(guarded.thenBlock());
  auto launch = gpu::LaunchOp::create(b, loc, rows, one, one, index(threads), one, one);
  b.setInsertionPointToStart(&launch.getBody().front());
  // 32-bit division: 64-bit division is a call's worth of code.
  auto narrow = [&](Value v) {
    return arith::IndexCastUIOp::create(b, loc, b.getI32Type(), v).getResult();
  };
  auto wide = [&](Value v) {
    return arith::IndexCastUIOp::create(b, loc, b.getIndexType(), v).getResult();
  };
  Value block = narrow(launch.getBlockIds().x);
  Value rest = arith::DivUIOp::create(b, loc, block, narrow(queries));
  Value query = arith::RemUIOp::create(b, loc, block, narrow(queries));
  Value head = arith::RemUIOp::create(b, loc, rest, narrow(heads));
  Value batch = arith::DivUIOp::create(b, loc, rest, narrow(heads));
  SmallVector<Value> row = {wide(batch), wide(head), wide(query)};
  Value thread = launch.getThreadIds().x;
  Value isFirst = arith::CmpIOp::create(b, loc, arith::CmpIPredicate::eq, thread, index(0));
  auto columns = scf::ForOp::create(b, loc, thread, index(dv), index(threads));
  gpu::TerminatorOp::create(b, loc);
  b.setInsertionPointToStart(columns.getBody());
  buildRow(row, columns.getInductionVar(), /*columns=*/1, kPartsAtOnce, isFirst);
}

LogicalResult mlir::flashattn::lowerCombine(RewriterBase &rewriter, CombineOp op, bool onGPU) {
  if (!op.hasPureBufferSemantics())
    return op.emitOpError() << "expected memrefs; bufferize before lowering";
  OpBuilder::InsertionGuard guard(rewriter);
  rewriter.setInsertionPoint(op);
  CombineBuilder builder(rewriter, op);
  if (onGPU)
    builder.buildLaunch();
  else
    builder.buildLoops();
  rewriter.eraseOp(op);
  return success();
}

namespace {
struct LowerCombinePass : flashattn::impl::LowerCombineBase<LowerCombinePass> {
  using LowerCombineBase::LowerCombineBase;
  void runOnOperation() override {
    SmallVector<CombineOp> ops;
    getOperation()->walk([&](CombineOp op) { ops.push_back(op); });
    IRRewriter rewriter(&getContext());
    for (CombineOp op : ops)
      if (failed(lowerCombine(rewriter, op, gpu)))
        return signalPassFailure();
  }
};
} // namespace
