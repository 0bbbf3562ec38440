//===- FlashAttnToCPU.cpp - convert-flashattn-to-cpu ----------------------===//

#include "ProgramOutlining.h"
#include "TileProgramLowering.h"
#include "flashattn/Conversion/Passes.h"
#include "flashattn/Dialect/FlashAttn/Program/NarrowElements.h"
#include "flashattn/Dialect/FlashAttn/Program/Spaces.h"
#include "flashattn/Dialect/FlashAttn/Program/TileLoops.h"
#include "mlir/Dialect/Affine/IR/AffineOps.h"
#include "mlir/Dialect/LLVMIR/LLVMDialect.h"
#include "mlir/Dialect/Math/IR/Math.h"
#include "mlir/Dialect/Math/Transforms/Passes.h"
#include "mlir/Dialect/MemRef/IR/MemRef.h"
#include "mlir/Dialect/Vector/IR/VectorOps.h"
#include "mlir/Transforms/GreedyPatternRewriteDriver.h"
#include "mlir/Transforms/RegionUtils.h"

namespace mlir::flashattn {
#define GEN_PASS_DEF_CONVERTFLASHATTNTOCPU
#include "flashattn/Conversion/Passes.h.inc"
} // namespace mlir::flashattn

using namespace mlir;
using namespace mlir::flashattn;

/// Replaces math functions of rows and tiles, if possible, by polynomials instead of scalar calls.
static LogicalResult approximateMath(func::FuncOp program) {
  SmallVector<Operation *> calls;
  program.walk([&](Operation *op) {
    if (isa_and_nonnull<math::MathDialect>(op->getDialect()) && op->getNumResults() == 1 &&
        isa<VectorType>(op->getResult(0).getType()))
      calls.push_back(op);
  });
  RewritePatternSet patterns(program.getContext());
  // Upstream's approximation of rsqrt is for x86 only and crashes on other numbers of lanes; rsqrt
  // is lowered to a square root and a division. fpowi has no approximation and no function to call.
  populateMathPolynomialApproximationPatterns(patterns,
                                              [](StringRef name) { return name != "math.rsqrt"; });
  math::populateExpansionPatterns(patterns, {"fpowi"});
  return applyOpPatternsGreedily(
      calls, std::move(patterns),
      GreedyRewriteConfig().setStrictness(GreedyRewriteStrictness::ExistingOps));
}

/// Runs a `program` without a schedule in parallel. Its body is not lowered.
static LogicalResult runInParallel(ProgramOp program, SymbolTable &symbols) {
  // Clones vector constants into the program, because outlining does not capture vectors.
  SetVector<Value> used;
  getUsedValuesDefinedAbove(program.getRegion(), used);
  OpBuilder inside = OpBuilder::atBlockBegin(program.getBody());
  for (Value value : used)
    if (auto constant = value.getDefiningOp<arith::ConstantOp>();
        constant && isa<VectorType>(value.getType()))
      replaceAllUsesInRegionWith(value, inside.clone(*constant)->getResult(0), program.getRegion());
  IRMapping mapping;
  FailureOr<func::FuncOp> function = cpu::outlineProgram(program, symbols, mapping);
  if (failed(function))
    return failure();
  OpBuilder b(function->getBody().front().getTerminator());
  for (Operation &op : program.getBody()->without_terminator())
    b.clone(op, mapping);
  IRRewriter rewriter(program.getContext());
  eraseProgram(rewriter, program);
  return success();
}

/// Chooses one split if all threads run the same number of programs. Otherwise chooses a few splits
/// per thread, of at least `min_split_tiles` tiles. No split is empty.
static void countSplits(CountSplitsOp op, SymbolTable &symbols) {
  constexpr int64_t kForEachThread = 4;
  OpBuilder b(op);
  Location loc = op.getLoc();
  ScheduleAttr schedule = op.getSchedule();
  auto index = [&](int64_t v) -> Value { return arith::ConstantIndexOp::create(b, loc, v); };
  auto ceilDivide = [&](Value x, Value y) -> Value {
    return arith::CeilDivUIOp::create(b, loc, x, y);
  };
  auto atLeastOne = [&](Value x) -> Value { return arith::MaxUIOp::create(b, loc, x, index(1)); };
  Value tiles = op.getKeyTiles(), programs = atLeastOne(op.getPrograms());
  Value threads = cpu::countThreads(b, loc, symbols);
  Value parts = ceilDivide(arith::MulIOp::create(b, loc, threads, index(kForEachThread)), programs);
  Value most = arith::MinUIOp::create(
      b, loc, arith::DivUIOp::create(b, loc, tiles, index(schedule.getMinSplitTiles())),
      index(schedule.getSplits()));
  parts = atLeastOne(arith::MinUIOp::create(b, loc, parts, most));
  Value over = arith::RemUIOp::create(b, loc, programs, threads);
  Value isEven = arith::CmpIOp::create(b, loc, arith::CmpIPredicate::eq, over, index(0));
  parts = arith::SelectOp::create(b, loc, isEven, index(1), parts);
  // All splits except the last get the same number of tiles.
  parts = atLeastOne(ceilDivide(tiles, atLeastOne(ceilDivide(tiles, parts))));
  op.replaceAllUsesWith(parts);
  op.erase();
}

namespace {
struct ConvertFlashAttnToCPUPass
    : flashattn::impl::ConvertFlashAttnToCPUBase<ConvertFlashAttnToCPUPass> {
  using ConvertFlashAttnToCPUBase::ConvertFlashAttnToCPUBase;

  LogicalResult convert(ProgramOp program, SymbolTable &symbols) {
    IRMapping mapping;
    FailureOr<func::FuncOp> function = cpu::outlineProgram(program, symbols, mapping);
    if (failed(function) ||
        failed(cpu::lowerTileProgram(*program.getBody(), *function, mapping,
                                     program.getScheduleAttr().getTileM(),
                                     cpu::RegisterFile::get(vectorWidth))) ||
        failed(approximateMath(*function)))
      return failure();
    IRRewriter rewriter(&getContext());
    eraseProgram(rewriter, program);
    return success();
  }

  void runOnOperation() override {
    SymbolTableCollection tables;
    auto getSymbols = [&](Operation *op) -> SymbolTable & {
      return tables.getSymbolTable(SymbolTable::getNearestSymbolTable(op));
    };
    getOperation().walk([&](CountSplitsOp op) { countSplits(op, getSymbols(op)); });
    IRRewriter rewriter(&getContext());
    WalkResult walk = getOperation().walk([&](LoadTileOp op) {
      if (op.getOnes() || !op.getSegments().empty()) {
        op.emitOpError() << "expected " << (op.getOnes() ? "columns of ones" : "compacted rows")
                         << " only with warp specialization";
        return WalkResult::interrupt();
      }
      if (!op.getPages() && !op.converts())
        expandToTransfer(rewriter, op);
      return WalkResult::advance();
    });
    if (walk.wasInterrupted())
      return signalPassFailure();
    getOperation().walk([&](StoreTileOp op) { expandToTransfer(rewriter, op); });
    SmallVector<ProgramOp> programs;
    getOperation().walk([&](ProgramOp program) { programs.push_back(program); });
    for (ProgramOp program : programs)
      if (failed(program.getScheduleAttr() ? convert(program, getSymbols(program))
                                           : runInParallel(program, getSymbols(program))))
        return signalPassFailure();
    // F3: queries of f8.
    getOperation().walk([&](arith::ExtFOp op) {
      if (!isF8(getElementTypeOrSelf(op.getIn().getType())))
        return;
      rewriter.setInsertionPoint(op);
      Value in = op.getIn();
      auto vector = dyn_cast<VectorType>(in.getType());
      if (!vector)
        in = vector::BroadcastOp::create(rewriter, op.getLoc(), VectorType::get({1}, in.getType()),
                                         in);
      Value x = convertNarrow(rewriter, op.getLoc(), in, /*scale=*/Value(),
                              cast<FloatType>(getElementTypeOrSelf(op.getType())));
      if (!vector)
        x = vector::ExtractOp::create(rewriter, op.getLoc(), x, 0);
      rewriter.replaceOp(op, x);
    });
  }
};
} // namespace
