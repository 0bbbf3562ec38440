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

/// Some parts of a row: the largest log-sum-exp among them, and against it their weights' sum and
/// their weighted outputs at the columns at hand.
struct Merged {
  Value max, sum, out;
};

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
  Value add(Value x, Value y) { return b.createOrFold<arith::AddIOp>(loc, x, y); }
  Value exponential(Value x, Value base) {
    Value difference = arith::SubFOp::create(b, loc, x, base);
    return math::Exp2Op::create(b, loc, mul(difference, number(M_LOG2E)));
  }
  Value isNone(Value v) {
    return arith::CmpFOp::create(b, loc, arith::CmpFPredicate::OEQ, v, number(-INFINITY));
  }
  Type columnsType(int64_t columns, Type element) {
    return columns == 1 ? element : VectorType::get({columns}, element);
  }
  /// `v` for each of `columns` columns: a vector of it, or itself.
  Value spread(Value v, int64_t columns) {
    return columns == 1
               ? v
               : vector::BroadcastOp::create(b, loc, cast<VectorType>(columnsType(columns, f32)), v)
                     .getResult();
  }
  Value load(Value memref, ValueRange at, int64_t columns);
  void store(Value v, Value memref, ValueRange at);

  Merged mergeNothing(int64_t columns) {
    return {number(-INFINITY), number(0), spread(number(0), columns)};
  }
  Merged mergeSink(ArrayRef<Value> row, int64_t columns);
  Merged merge(Merged merged, ArrayRef<Merged> others, int64_t columns);
  Merged mergeParts(Merged merged, ArrayRef<Value> row, Value column, int64_t columns, Value first,
                    int64_t stride, int64_t partsAtOnce);
  void finish(Merged merged, ArrayRef<Value> row, Value column, int64_t columns, Value writesLse);
  void buildBlock(gpu::LaunchOp launch, ArrayRef<Value> row, int64_t width, int64_t groups);

  RewriterBase &b;
  CombineOp op;
  Location loc;
  int64_t dv;
  FloatType f32;
};

} // namespace

Value CombineBuilder::load(Value memref, ValueRange at, int64_t columns) {
  if (columns == 1)
    return memref::LoadOp::create(b, loc, memref, at);
  // What flashattn-tile makes, and what is promised: LLVM knows neither.
  constexpr uint64_t kAlignment = 16;
  llvm::MaybeAlign alignment;
  if (columns * sizeof(float) == kAlignment && hasAlignedRows(memref))
    alignment = llvm::Align(kAlignment);
  return vector::LoadOp::create(b, loc, cast<VectorType>(columnsType(columns, f32)), memref, at,
                                /*nontemporal=*/false, alignment);
}

void CombineBuilder::store(Value v, Value memref, ValueRange at) {
  if (isa<VectorType>(v.getType()))
    vector::StoreOp::create(b, loc, v, memref, at);
  else
    memref::StoreOp::create(b, loc, v, memref, at);
}

/// The sink joins as a part would whose output is 0.
Merged CombineBuilder::mergeSink(ArrayRef<Value> row, int64_t columns) {
  Merged merged = mergeNothing(columns);
  if (Value sinks = op.getSinkLogits()) {
    merged.max = memref::LoadOp::create(b, loc, sinks, row[1]);
    merged.sum = arith::SelectOp::create(b, loc, isNone(merged.max), number(0), number(1));
  }
  return merged;
}

/// A5. One part has the sum 1, which is left out here: null.
Merged CombineBuilder::merge(Merged merged, ArrayRef<Merged> others, int64_t columns) {
  Value largest = merged.max;
  for (const Merged &other : others)
    largest = arith::MaxNumFOp::create(b, loc, largest, other.max);
  // A6: -inf - -inf would be NaN.
  Value base = arith::SelectOp::create(b, loc, isNone(largest), number(0), largest);
  Value rescale = exponential(merged.max, base);
  Value sum = mul(merged.sum, rescale), out = mul(merged.out, spread(rescale, columns));
  for (const Merged &other : others) {
    Value weight = exponential(other.max, base);
    sum = other.sum ? math::FmaOp::create(b, loc, other.sum, weight, sum).getResult()
                    : arith::AddFOp::create(b, loc, sum, weight).getResult();
    out = math::FmaOp::create(b, loc, other.out, spread(weight, columns), out);
  }
  return {largest, sum, out};
}

/// Joins part `first` of the row and every `stride`-th after it, at `columns` columns from `column`
/// on. `partsAtOnce` are read side by side.
Merged CombineBuilder::mergeParts(Merged merged, ArrayRef<Value> row, Value column, int64_t columns,
                                  Value first, int64_t stride, int64_t partsAtOnce) {
  Value parts = dim(op.getOParts(), 0), last = arith::SubIOp::create(b, loc, parts, index(1));
  auto loop = scf::ForOp::create(b, loc, first, parts, index(stride * partsAtOnce),
                                 ValueRange{merged.max, merged.sum, merged.out});
  OpBuilder::InsertionGuard guard(b);
  b.setInsertionPointToStart(loop.getBody());
  SmallVector<Merged> read;
  for (int64_t i = 0; i < partsAtOnce; ++i) {
    Value part = loop.getInductionVar(), exists;
    if (i != 0) {
      part = add(part, index(i * stride));
      exists = arith::CmpIOp::create(b, loc, arith::CmpIPredicate::ule, part, last);
      part = arith::MinUIOp::create(b, loc, part, last);
    }
    SmallVector<Value> at = {part, row[0], row[1], row[2]};
    Value log = memref::LoadOp::create(b, loc, op.getLseParts(), at);
    if (exists)
      log = arith::SelectOp::create(b, loc, exists, log, number(-INFINITY));
    at.push_back(column);
    read.push_back({log, /*sum=*/Value(), load(op.getOParts(), at, columns)});
  }
  auto before = loop.getRegionIterArgs();
  Merged after = merge({before[0], before[1], before[2]}, read, columns);
  scf::YieldOp::create(b, loc, ValueRange{after.max, after.sum, after.out});
  return {loop.getResult(0), loop.getResult(1), loop.getResult(2)};
}

/// Writes the row's output at `columns` columns from `column` on and, where `writesLse` (null:
/// always), its log-sum-exp.
void CombineBuilder::finish(Merged merged, ArrayRef<Value> row, Value column, int64_t columns,
                            Value writesLse) {
  Value empty = arith::CmpFOp::create(b, loc, arith::CmpFPredicate::OEQ, merged.sum, number(0));
  Value inverse = arith::DivFOp::create(b, loc, number(1), merged.sum);
  inverse = arith::SelectOp::create(b, loc, empty, number(0), inverse);
  Value out = mul(merged.out, spread(inverse, columns));
  Type element = op.getOInit().getType().getElementType();
  if (element != f32)
    out = arith::TruncFOp::create(b, loc, columnsType(columns, element), out);
  SmallVector<Value> at = {row[0], row[1], row[2], column};
  if (op.getLayout() == Layout::BSHD)
    std::swap(at[1], at[2]);
  store(out, op.getOInit(), at);
  if (!op.getLseInit())
    return;
  OpBuilder::InsertionGuard guard(b);
  if (writesLse) {
    auto guarded = scf::IfOp::create(b, loc, writesLse, /*withElseRegion=*/false);
    b.setInsertionPointToStart(guarded.thenBlock());
  }
  // lse = max + ln 2 log2 sum
  Value log = math::Log2Op::create(b, loc, merged.sum);
  Value lse = math::FmaOp::create(b, loc, log, number(M_LN2), merged.max);
  lse = arith::SelectOp::create(b, loc, empty, number(-INFINITY), lse);
  memref::StoreOp::create(b, loc, lse, op.getLseInit(), row);
}

void CombineBuilder::buildLoops() {
  SmallVector<Value> row;
  for (int64_t i : {1, 2, 3}) {
    auto loop = scf::ForOp::create(b, loc, index(0), dim(op.getOParts(), i), index(1));
    b.setInsertionPointToStart(loop.getBody());
    row.push_back(loop.getInductionVar());
  }
  Merged merged = mergeParts(mergeSink(row, dv), row, index(0), dv, /*first=*/index(0),
                             /*stride=*/1, /*partsAtOnce=*/1);
  finish(merged, row, index(0), dv, /*writesLse=*/{});
}

constexpr int64_t kMaxThreads = 1024, kGroups = 4, kPartsAtOnce = 8;

/// A row by a block: `groups` groups of threads, each thread with `width` columns, have every
/// `groups`-th part. What they have merged goes through shared memory, to a thread a column.
void CombineBuilder::buildBlock(gpu::LaunchOp launch, ArrayRef<Value> row, int64_t width,
                                int64_t groups) {
  Value thread = launch.getThreadIds().x;
  Value isFirst = arith::CmpIOp::create(b, loc, arith::CmpIPredicate::eq, thread, index(0));
  if (groups == 1) {
    auto columns = scf::ForOp::create(b, loc, thread, index(dv), index(kMaxThreads));
    b.setInsertionPointToStart(columns.getBody());
    Value column = columns.getInductionVar();
    finish(mergeParts(mergeSink(row, 1), row, column, /*columns=*/1, /*first=*/index(0),
                      /*stride=*/1, kPartsAtOnce),
           row, column, /*columns=*/1, isFirst);
    return;
  }
  auto space = gpu::AddressSpaceAttr::get(b.getContext(), gpu::AddressSpace::Workgroup);
  auto share = [&](int64_t columns) {
    return launch.addWorkgroupAttribution(
        MemRefType::get({groups, columns}, f32, MemRefLayoutAttrInterface(), space), loc);
  };
  Value outs = share(dv), scalars = share(2);

  int64_t lanes = dv / width;
  Value group = arith::DivUIOp::create(b, loc, thread, index(lanes));
  Value lane = arith::RemUIOp::create(b, loc, thread, index(lanes));
  Value column = arith::MulIOp::create(b, loc, lane, index(width));
  Merged merged = mergeParts(mergeNothing(width), row, column, width, group, groups, kPartsAtOnce);
  // One by one: convert-vector-to-llvm does not know what shared memory is.
  for (int64_t i = 0; i < width; ++i) {
    Value element =
        width == 1 ? merged.out : vector::ExtractOp::create(b, loc, merged.out, i).getResult();
    memref::StoreOp::create(b, loc, element, outs, ValueRange{group, add(column, index(i))});
  }
  Value isFirstLane = arith::CmpIOp::create(b, loc, arith::CmpIPredicate::eq, lane, index(0));
  {
    auto guarded = scf::IfOp::create(b, loc, isFirstLane, /*withElseRegion=*/false);
    OpBuilder::InsertionGuard guard(b);
    b.setInsertionPointToStart(guarded.thenBlock());
    memref::StoreOp::create(b, loc, merged.max, scalars, ValueRange{group, index(0)});
    memref::StoreOp::create(b, loc, merged.sum, scalars, ValueRange{group, index(1)});
  }
  gpu::BarrierOp::create(b, loc);

  if (lanes * groups != dv) {
    Value has = arith::CmpIOp::create(b, loc, arith::CmpIPredicate::ult, thread, index(dv));
    auto guarded = scf::IfOp::create(b, loc, has, /*withElseRegion=*/false);
    b.setInsertionPointToStart(guarded.thenBlock());
  }
  SmallVector<Merged> others;
  for (int64_t i = 0; i < groups; ++i)
    others.push_back({load(scalars, {index(i), index(0)}, 1),
                      load(scalars, {index(i), index(1)}, 1), load(outs, {index(i), thread}, 1)});
  finish(merge(mergeSink(row, 1), others, 1), row, thread, /*columns=*/1, isFirst);
}

void CombineBuilder::buildLaunch() {
  int64_t width = hasAlignedRows(op.getOParts()) ? 4 : 1;
  int64_t groups = dv / width * kGroups <= kMaxThreads ? kGroups : 1;
  constexpr int64_t kWarp = 32;
  int64_t threads =
      groups == 1 ? std::min<int64_t>(llvm::alignTo(dv, kWarp), kMaxThreads) : dv / width * groups;
  Value rows = index(1), one = index(1);
  for (int64_t i : {1, 2, 3})
    rows = b.createOrFold<arith::MulIOp>(loc, rows, dim(op.getOParts(), i));
  Value heads = dim(op.getOParts(), 2), queries = dim(op.getOParts(), 3);
  // A grid of no blocks is an error to the driver.
  Value any = arith::CmpIOp::create(b, loc, arith::CmpIPredicate::ugt, rows, index(0));
  auto guarded = scf::IfOp::create(b, loc, any, /*withElseRegion=*/false);
  b.setInsertionPointToStart(guarded.thenBlock());
  auto launch = gpu::LaunchOp::create(b, loc, rows, one, one, index(threads), one, one);
  launch->setAttr(kMergesPartsAttrName, b.getUnitAttr());
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
  Operation *terminator = gpu::TerminatorOp::create(b, loc);
  b.setInsertionPoint(terminator);
  buildBlock(launch, row, width, groups);
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
