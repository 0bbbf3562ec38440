//===- FlashAttnToCPU.cpp - convert-flashattn-to-cpu -----------------------===//

#include "ProgramOutlining.h"
#include "TileProgramLowering.h"
#include "flashattn/Conversion/Passes.h"
#include "flashattn/Dialect/FlashAttn/Program/TileLoops.h"
#include "mlir/Dialect/Affine/IR/AffineOps.h"
#include "mlir/Dialect/LLVMIR/LLVMDialect.h"
#include "mlir/Dialect/Math/IR/Math.h"
#include "mlir/Dialect/Math/Transforms/Passes.h"
#include "mlir/Dialect/MemRef/IR/MemRef.h"
#include "mlir/Dialect/Vector/IR/VectorOps.h"
#include "mlir/Transforms/GreedyPatternRewriteDriver.h"

namespace mlir::flashattn {
#define GEN_PASS_DEF_CONVERTFLASHATTNTOCPU
#include "flashattn/Conversion/Passes.h.inc"
} // namespace mlir::flashattn

using namespace mlir;
using namespace mlir::flashattn;

/// Functions of rows and tiles become polynomials, where there is one, rather than a call an
/// element.
static LogicalResult approximateMath(func::FuncOp program) {
  SmallVector<Operation *> calls;
  program.walk([&](Operation *op) {
    if (isa_and_nonnull<math::MathDialect>(op->getDialect()) && op->getNumResults() == 1 &&
        isa<VectorType>(op->getResult(0).getType()))
      calls.push_back(op);
  });
  RewritePatternSet patterns(program.getContext());
  // Upstream's reciprocal square root is of x86 alone and crashes on other numbers of lanes; it
  // becomes a square root and a division. A power of integers has none, and no call either.
  populateMathPolynomialApproximationPatterns(patterns,
                                              [](StringRef name) { return name != "math.rsqrt"; });
  math::populateExpansionPatterns(patterns, {"fpowi"});
  return applyOpPatternsGreedily(
      calls, std::move(patterns),
      GreedyRewriteConfig().setStrictness(GreedyRewriteStrictness::ExistingOps));
}

/// Runs `program`, which is no tile program, in parallel, its body as it is.
static LogicalResult runInParallel(ProgramOp program, SymbolTable &symbols) {
  IRMapping mapping;
  FailureOr<func::FuncOp> function = cpu::outlineProgram(program, symbols, mapping);
  if (failed(function))
    return failure();
  OpBuilder b(function->getBody().front().getTerminator());
  for (Operation &op : program.getBody()->without_terminator())
    b.clone(op, mapping);
  program.erase();
  return success();
}

/// As many parts as the schedule says, and no empty ones.
static void countSplits(CountSplitsOp op) {
  OpBuilder b(op);
  auto index = [&](int64_t v) { return arith::ConstantIndexOp::create(b, op.getLoc(), v); };
  Value most = index(op.getSchedule().getSplits());
  Value splits = arith::MaxUIOp::create(
      b, op.getLoc(), arith::MinUIOp::create(b, op.getLoc(), op.getKeyTiles(), most), index(1));
  op.replaceAllUsesWith(splits);
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
    program.erase();
    return success();
  }

  void runOnOperation() override {
    getOperation().walk(countSplits);
    IRRewriter rewriter(&getContext());
    WalkResult walk = getOperation().walk([&](LoadTileOp op) {
      if (op.getOnes() || !op.getCuts().empty()) {
        op.emitOpError() << "expected " << (op.getOnes() ? "ones" : "cuts")
                         << " only where the schedule has roles";
        return WalkResult::interrupt();
      }
      expandToTransfer(rewriter, op);
      return WalkResult::advance();
    });
    if (walk.wasInterrupted())
      return signalPassFailure();
    getOperation().walk([&](StoreTileOp op) { expandToTransfer(rewriter, op); });
    SmallVector<ProgramOp> programs;
    getOperation().walk([&](ProgramOp program) { programs.push_back(program); });
    SymbolTable symbols(getOperation());
    for (ProgramOp program : programs)
      if (failed(program.getScheduleAttr() ? convert(program, symbols)
                                           : runInParallel(program, symbols)))
        return signalPassFailure();
  }
};
} // namespace
