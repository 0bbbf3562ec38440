//===- FlashAttnToCPU.cpp - convert-flashattn-to-cpu -----------------------===//

#include "ProgramOutlining.h"
#include "TileProgramLowering.h"
#include "flashattn/Conversion/Passes.h"
#include "flashattn/Dialect/FlashAttn/IR/FlashAttn.h"
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

/// Runs `forall`, which is no tile program, in parallel, its body as it is.
static LogicalResult runInParallel(scf::ForallOp forall, SymbolTable &symbols) {
  IRMapping mapping;
  FailureOr<func::FuncOp> program = cpu::outlineProgram(forall, symbols, mapping);
  if (failed(program))
    return failure();
  OpBuilder b(program->getBody().front().getTerminator());
  for (Operation &op : forall.getBody()->without_terminator())
    b.clone(op, mapping);
  forall.erase();
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

static ScheduleAttr getSchedule(scf::ForallOp forall) {
  return forall->getAttrOfType<ScheduleAttr>(kScheduleAttrName);
}

namespace {
struct ConvertFlashAttnToCPUPass
    : flashattn::impl::ConvertFlashAttnToCPUBase<ConvertFlashAttnToCPUPass> {
  using ConvertFlashAttnToCPUBase::ConvertFlashAttnToCPUBase;

  LogicalResult convert(scf::ForallOp forall, ScheduleAttr schedule, SymbolTable &symbols) {
    IRMapping mapping;
    FailureOr<func::FuncOp> program = cpu::outlineProgram(forall, symbols, mapping);
    if (failed(program) ||
        failed(cpu::lowerTileProgram(forall, *program, mapping, schedule.getTileM(),
                                     cpu::RegisterFile::get(vectorWidth))) ||
        failed(approximateMath(*program)))
      return failure();
    forall.erase();
    return success();
  }

  void runOnOperation() override {
    getOperation().walk(countSplits);
    SmallVector<scf::ForallOp> programs;
    getOperation().walk([&](scf::ForallOp forall) {
      if (getSchedule(forall) || forall->hasAttr(kParallelAttrName))
        programs.push_back(forall);
    });
    SymbolTable symbols(getOperation());
    for (scf::ForallOp forall : programs) {
      ScheduleAttr schedule = getSchedule(forall);
      if (failed(schedule ? convert(forall, schedule, symbols) : runInParallel(forall, symbols)))
        return signalPassFailure();
    }
  }
};
} // namespace
