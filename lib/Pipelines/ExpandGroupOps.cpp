//===- ExpandGroupOps.cpp -------------------------------------------------===//

#include "ExpandGroupOps.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/GPU/Transforms/Passes.h"
#include "mlir/Dialect/Vector/IR/VectorOps.h"
#include "mlir/Transforms/GreedyPatternRewriteDriver.h"

using namespace mlir;

static constexpr unsigned kWarpThreads = 32;

/// Returns the number of a thread in its block.
static Value getThreadNumber(OpBuilder &b, Location loc) {
  auto thread = [&](gpu::Dimension d) { return gpu::ThreadIdOp::create(b, loc, d).getResult(); };
  auto size = [&](gpu::Dimension d) { return gpu::BlockDimOp::create(b, loc, d).getResult(); };
  Value plane = arith::MulIOp::create(b, loc, thread(gpu::Dimension::z), size(gpu::Dimension::y));
  Value row = arith::AddIOp::create(b, loc, plane, thread(gpu::Dimension::y));
  Value before = arith::MulIOp::create(b, loc, row, size(gpu::Dimension::x));
  return arith::AddIOp::create(b, loc, before, thread(gpu::Dimension::x));
}

/// Returns the number of threads in a block.
static Value countThreads(OpBuilder &b, Location loc) {
  Value count = gpu::BlockDimOp::create(b, loc, gpu::Dimension::x);
  for (auto dimension : {gpu::Dimension::y, gpu::Dimension::z})
    count = arith::MulIOp::create(b, loc, count, gpu::BlockDimOp::create(b, loc, dimension));
  return count;
}

/// Expands the number of a thread's warp, the number of warps, and the size of a warp.
static void expandNumbers(gpu::GPUFuncOp kernel) {
  kernel.walk([](Operation *op) {
    if (!isa<gpu::SubgroupIdOp, gpu::SubgroupSizeOp, gpu::NumSubgroupsOp>(op))
      return;
    OpBuilder b(op);
    Location loc = op->getLoc();
    Value warp = arith::ConstantIndexOp::create(b, loc, kWarpThreads);
    Value result = warp;
    if (isa<gpu::SubgroupIdOp>(op))
      result = arith::DivUIOp::create(b, loc, getThreadNumber(b, loc), warp);
    if (isa<gpu::NumSubgroupsOp>(op)) {
      Value last = arith::ConstantIndexOp::create(b, loc, kWarpThreads - 1);
      Value raised = arith::AddIOp::create(b, loc, countThreads(b, loc), last);
      result = arith::DivUIOp::create(b, loc, raised, warp);
    }
    op->getResult(0).replaceAllUsesWith(result);
    op->erase();
  });
}

/// Expands shuffles of fewer than 32 bits, or of vectors of 32 bits, to shuffles of an i32.
static void expandShuffles(gpu::GPUFuncOp kernel) {
  SmallVector<gpu::ShuffleOp> shuffles;
  kernel.walk([&](gpu::ShuffleOp op) { shuffles.push_back(op); });
  for (gpu::ShuffleOp op : shuffles) {
    OpBuilder b(op);
    Location loc = op.getLoc();
    Type type = op.getValue().getType(), i32 = b.getI32Type();
    auto vector = dyn_cast<VectorType>(type);
    int64_t bits = vector ? vector.getNumElements() * vector.getElementTypeBitWidth()
                          : int64_t(type.getIntOrFloatBitWidth());
    if (type == i32 || type.isF32() || bits > 32 || (vector && bits != 32))
      continue;
    Type integer = b.getIntegerType(bits), whole = VectorType::get(1, i32);
    Value value = op.getValue();
    if (vector)
      value = vector::ExtractOp::create(b, loc, vector::BitCastOp::create(b, loc, whole, value), 0);
    else if (type != integer)
      value = arith::BitcastOp::create(b, loc, integer, value);
    if (bits < 32)
      value = arith::ExtUIOp::create(b, loc, i32, value);
    auto shuffle =
        gpu::ShuffleOp::create(b, loc, value, op.getOffset(), op.getWidth(), op.getMode());
    Value result = shuffle.getShuffleResult();
    if (bits < 32)
      result = arith::TruncIOp::create(b, loc, integer, result);
    if (vector)
      result = vector::BitCastOp::create(b, loc, type,
                                         vector::BroadcastOp::create(b, loc, whole, result));
    else if (type != integer)
      result = arith::BitcastOp::create(b, loc, type, result);
    op.replaceAllUsesWith(ValueRange{result, shuffle.getValid()});
    op.erase();
  }
}

/// Whether a kernel has an op that the gpu dialect's patterns expand. The project's kernels have
/// none.
static bool hasCombined(gpu::GPUFuncOp kernel) {
  return kernel
      .walk([](Operation *op) {
        auto shuffle = dyn_cast<gpu::ShuffleOp>(op);
        bool isCombined =
            shuffle
                ? shuffle.getValue().getType().isInteger(64) || shuffle.getValue().getType().isF64()
                : isa<gpu::AllReduceOp, gpu::SubgroupReduceOp, gpu::GlobalIdOp>(op);
        return isCombined ? WalkResult::interrupt() : WalkResult::advance();
      })
      .wasInterrupted();
}

LogicalResult mlir::flashattn::expandGroupOps(gpu::GPUModuleOp container) {
  auto kernels = container.getOps<gpu::GPUFuncOp>();
  if (llvm::any_of(kernels, hasCombined)) {
    RewritePatternSet patterns(container.getContext());
    populateGpuRewritePatterns(patterns);
    populateGpuBreakDownSubgroupReducePatterns(patterns);
    // Values of up to 32 bits use shuffles of 32 bits, all others shuffles of 64 bits.
    for (auto [bits, benefit] : {std::pair(32u, 2), {64u, 1}}) {
      populateGpuLowerSubgroupReduceToShufflePatterns(patterns, kWarpThreads, bits, benefit);
      populateGpuLowerClusteredSubgroupReduceToShufflePatterns(patterns, kWarpThreads, bits,
                                                               benefit);
    }
    if (failed(applyPatternsGreedily(container, std::move(patterns),
                                     GreedyRewriteConfig().enableFolding(false))))
      return failure();
  }
  for (gpu::GPUFuncOp kernel : kernels) {
    expandShuffles(kernel);
    expandNumbers(kernel);
  }
  return success();
}
