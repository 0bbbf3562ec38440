//===- Combine.cpp - the merge kernel of split-KV -------------------------===//

#include "Kernels.h"
#include "flashattn/Dialect/FlashAttn/Program/Merge.h"
#include "mlir/Dialect/SCF/IR/SCF.h"
#include "mlir/Dialect/Vector/IR/VectorOps.h"

using namespace mlir;
using namespace mlir::flashattn;

namespace {

constexpr int64_t kWarp = 32, kMaxThreads = 1024, kGroups = 4, kPartsAtOnce = 8;

/// A kernel with one block per row or, with packed sequences, one block per head for the few rows
/// of a sequence. Each of `groups` groups of threads merges every `groups`-th split, `width`
/// columns per thread. Shared memory combines the groups' results, one thread per column.
class CombineKernel : RowMerger {
public:
  CombineKernel(OpBuilder &b, CombineOp op)
      : RowMerger(b, op), dv(op.getOParts().getType().getDimSize(4)),
        width(hasAlignedRows(op.getOParts()) ? 4 : 1),
        groups(dv / width * kGroups <= kMaxThreads ? kGroups : 1) {}

  void build();

private:
  gpu::LaunchOp launchBlocks();
  void allocate(gpu::LaunchOp launch);
  SmallVector<Value> getRow(gpu::LaunchOp launch, Value heads, Value queries);
  void buildRow(gpu::LaunchOp launch, ArrayRef<Value> row);
  void buildColumns(ArrayRef<Value> row, Value thread, Value isFirst);
  void buildGroups(gpu::LaunchOp launch, ArrayRef<Value> row, Value isFirst);
  void share(PartialRow merged, Value group, Value lane, Value column);

  int64_t getThreadsPerRow() const { return dv / width; }
  Value equals(Value x, Value y) const {
    return arith::CmpIOp::create(b, loc, arith::CmpIPredicate::eq, x, y);
  }

  int64_t dv, width, groups;
  Rows rows; ///< of the block's batch
  /// The groups' partial results in shared memory: outputs, f32[groups][dv], and bases and sums,
  /// f32[groups][2 or 3].
  Value outs, scalars;
};

} // namespace

/// For rows too wide for several groups: each thread merges all splits of every 1024th column.
void CombineKernel::buildColumns(ArrayRef<Value> row, Value thread, Value isFirst) {
  auto columns = scf::ForOp::create(b, loc, thread, index(dv), index(kMaxThreads));
  b.setInsertionPointToStart(columns.getBody());
  Value column = columns.getInductionVar();
  PartialRow merged = mergeParts(mergeSink(row, 1), row, column, /*columns=*/1, /*first=*/index(0),
                                 /*stride=*/1, kPartsAtOnce);
  finish(merged, row, rows, column, isFirst);
}

/// Writes a thread's partial result to shared memory.
void CombineKernel::share(PartialRow merged, Value group, Value lane, Value column) {
  // Scalar stores, because convert-vector-to-llvm does not support the shared memory space.
  for (int64_t i = 0; i < width; ++i) {
    Value element =
        width == 1 ? merged.out : vector::ExtractOp::create(b, loc, merged.out, i).getResult();
    memref::StoreOp::create(b, loc, element, outs, ValueRange{group, add(column, index(i))});
  }
  auto guarded = scf::IfOp::create(b, loc, equals(lane, index(0)), /*withElseRegion=*/false);
  OpBuilder::InsertionGuard guard(b);
  b.setInsertionPointToStart(guarded.thenBlock());
  SmallVector<Value> values = merged.values();
  values.pop_back();
  for (auto [i, value] : llvm::enumerate(values))
    memref::StoreOp::create(b, loc, value, scalars, ValueRange{group, index(i)});
}

void CombineKernel::buildGroups(gpu::LaunchOp launch, ArrayRef<Value> row, Value isFirst) {
  Value thread = launch.getThreadIds().x;
  Value group = arith::DivUIOp::create(b, loc, thread, index(getThreadsPerRow()));
  Value lane = arith::RemUIOp::create(b, loc, thread, index(getThreadsPerRow()));
  Value column = arith::MulIOp::create(b, loc, lane, index(width));
  PartialRow merged =
      mergeParts(mergeNothing(width), row, column, width, group, groups, kPartsAtOnce);
  share(merged, group, lane, column);
  gpu::BarrierOp::create(b, loc);

  if (getThreadsPerRow() * groups != dv) {
    Value has = arith::CmpIOp::create(b, loc, arith::CmpIPredicate::ult, thread, index(dv));
    auto guarded = scf::IfOp::create(b, loc, has, /*withElseRegion=*/false);
    b.setInsertionPointToStart(guarded.thenBlock());
  }
  SmallVector<PartialRow> others;
  int64_t numScalars = cast<MemRefType>(scalars.getType()).getDimSize(1);
  for (int64_t i = 0; i < groups; ++i) {
    SmallVector<Value> values;
    for (int64_t scalar = 0; scalar < numScalars; ++scalar)
      values.push_back(load(scalars, {index(i), index(scalar)}, 1));
    values.push_back(load(outs, {index(i), thread}, 1));
    others.push_back(merged.with(values));
  }
  finish(merge(mergeSink(row, 1), others), row, rows, thread, isFirst);
}

/// Allocates the shared memory of a block.
void CombineKernel::allocate(gpu::LaunchOp launch) {
  auto space = gpu::AddressSpaceAttr::get(b.getContext(), gpu::AddressSpace::Workgroup);
  auto allocateColumns = [&](int64_t columns) {
    return launch.addWorkgroupAttribution(
        MemRefType::get({groups, columns}, b.getF32Type(), MemRefLayoutAttrInterface(), space),
        loc);
  };
  outs = allocateColumns(dv);
  scalars = allocateColumns(op.getLseRests() ? 3 : 2);
}

/// Launches the blocks, unless there are no rows: the driver rejects a grid of 0 blocks.
gpu::LaunchOp CombineKernel::launchBlocks() {
  int64_t threads = groups == 1 ? std::min<int64_t>(llvm::alignTo(dv, kWarp), kMaxThreads)
                                : getThreadsPerRow() * groups;
  Value blocks = index(1), one = index(1);
  for (int64_t i = 1; i < (op.getCuSeqlensQ() ? 3 : 4); ++i)
    blocks = mul(blocks, dim(op.getOParts(), i));
  Value any = arith::CmpIOp::create(b, loc, arith::CmpIPredicate::ugt, blocks, index(0));
  auto guarded = scf::IfOp::create(b, loc, any, /*withElseRegion=*/false);
  b.setInsertionPointToStart(guarded.thenBlock());
  return gpu::LaunchOp::create(b, loc, blocks, one, one, index(threads), one, one);
}

/// Returns the batch, head and query of the block's row, or of its first one.
SmallVector<Value> CombineKernel::getRow(gpu::LaunchOp launch, Value heads, Value queries) {
  // 32-bit division: a 64-bit division takes as much code as a call.
  Value block = toI32(launch.getBlockIds().x);
  Value rest = arith::DivUIOp::create(b, loc, block, toI32(queries));
  Value query = arith::RemUIOp::create(b, loc, block, toI32(queries));
  Value head = arith::RemUIOp::create(b, loc, rest, toI32(heads));
  Value batch = arith::DivUIOp::create(b, loc, rest, toI32(heads));
  return {toIndex(batch), toIndex(head), toIndex(query)};
}

void CombineKernel::buildRow(gpu::LaunchOp launch, ArrayRef<Value> row) {
  Value thread = launch.getThreadIds().x, isFirst = equals(thread, index(0));
  if (groups == 1)
    buildColumns(row, thread, isFirst);
  else
    buildGroups(launch, row, isFirst);
}

void CombineKernel::build() {
  bool isPacked = op.getCuSeqlensQ() != nullptr;
  Value heads = dim(op.getOParts(), 2), queries = isPacked ? index(1) : dim(op.getOParts(), 3);
  gpu::LaunchOp launch = launchBlocks();
  if (groups != 1)
    allocate(launch);
  b.setInsertionPointToStart(&launch.getBody().front());
  SmallVector<Value> row = getRow(launch, heads, queries);
  rows = getRows(row[0]);
  b.setInsertionPoint(gpu::TerminatorOp::create(b, loc));
  if (isPacked) {
    auto loop = scf::ForOp::create(b, loc, index(0), rows.count, index(1));
    b.setInsertionPointToStart(loop.getBody());
    row[2] = loop.getInductionVar();
    // The threads of a block still read the results of the row before.
    if (groups != 1)
      gpu::BarrierOp::create(b, loc);
  }
  buildRow(launch, row);
  // The previous kernel computes the splits.
  addWaitForPrerequisites(launch.getBody().front());
}

void mlir::flashattn::buildCombineKernel(OpBuilder &b, CombineOp op) {
  CombineKernel(b, op).build();
}
