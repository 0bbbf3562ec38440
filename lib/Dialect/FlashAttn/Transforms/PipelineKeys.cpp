//===- PipelineKeys.cpp - flashattn-pipeline-keys --------------------------===//

#include "flashattn/Dialect/FlashAttn/Transforms/Passes.h"
#include "flashattn/Dialect/FlashAttn/Transforms/Transforms.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/SCF/IR/SCF.h"
#include "mlir/Dialect/Vector/IR/VectorOps.h"
#include "mlir/IR/IRMapping.h"
#include "mlir/IR/PatternMatch.h"

namespace mlir::flashattn {
#define GEN_PASS_DEF_PIPELINEKEYS
#include "flashattn/Dialect/FlashAttn/Transforms/Passes.h.inc"
} // namespace mlir::flashattn

using namespace mlir;
using namespace mlir::flashattn;

namespace {

/// A key loop, taken apart.
struct KeyStep {
  scf::ForOp loop;
  vector::ContractionOp scores; ///< q times the key tile
  vector::ContractionOp output; ///< weights times the value tile; yielded
  vector::TransferReadOp values;
  unsigned outputIndex; ///< of `output` among the loop's results

  static FailureOr<KeyStep> from(scf::ForOp loop);
  bool isPartial() { return loop->hasAttr(kPartialAttrName); }
};

/// Key loops of which each ends where the next begins and passes its state on.
class KeyRun {
public:
  KeyRun(RewriterBase &b, KeyStep first) : b(b), loc(first.loop.getLoc()), steps{first} {}

  bool append(KeyStep step) {
    scf::ForOp last = steps.back().loop;
    if (last->getBlock() != step.loop->getBlock() ||
        last.getUpperBound() != step.loop.getLowerBound() ||
        !llvm::equal(last.getResults(), step.loop.getInitArgs()))
      return false;
    steps.push_back(step);
    return true;
  }
  void pipeline();

private:
  /// What a step hands on: the loop's state with the output before this step's tile, and
  /// the weights of this tile, which are not yet in it.
  struct Pending {
    SmallVector<Value> state;
    Value weights;
  };

  Value index(int64_t v) { return arith::ConstantIndexOp::create(b, loc, v); }
  Value addOutput(KeyStep step, Value iv, Value weights, Value output);
  Pending softmax(KeyStep step, Value iv, ValueRange state, Value weights);

  RewriterBase &b;
  Location loc;
  SmallVector<KeyStep> steps;
};

} // namespace

FailureOr<KeyStep> KeyStep::from(scf::ForOp loop) {
  auto contractions = llvm::to_vector(loop.getBody()->getOps<vector::ContractionOp>());
  KeyStep step{loop, {}, {}, {}, 0};
  for (auto [i, yielded] : llvm::enumerate(loop.getYieldedValues()))
    if (auto output = yielded.getDefiningOp<vector::ContractionOp>()) {
      step.output = output;
      step.outputIndex = i;
    }
  for (vector::ContractionOp op : contractions)
    if (op != step.output)
      step.scores = op;
  if (step.output)
    step.values = step.output.getRhs().getDefiningOp<vector::TransferReadOp>();
  if (contractions.size() != 2 || !step.values)
    return loop.emitOpError() << "expected a key loop with two contractions, the second of which "
                                 "reads its right-hand side from memory and is yielded";
  return step;
}

/// output + weights times the value tile of step `iv`.
Value KeyRun::addOutput(KeyStep step, Value iv, Value weights, Value output) {
  IRMapping mapping;
  mapping.map(step.loop.getInductionVar(), iv);
  // What leads to the tile's place, again for `iv`.
  std::function<void(Operation *)> clone = [&](Operation *op) {
    for (Value operand : op->getOperands())
      if (Operation *def = operand.getDefiningOp();
          def && def->getBlock() == step.loop.getBody() && !mapping.contains(operand))
        clone(def);
    b.clone(*op, mapping);
  };
  clone(step.values);
  mapping.map(step.output.getLhs(), weights);
  mapping.map(step.output.getAcc(), output);
  return b.clone(*step.output.getOperation(), mapping)->getResult(0);
}

/// The scores and weights of step `iv`. With `weights`, those of the step before, their
/// product with that step's values goes into the output first, right behind this step's
/// scores.
KeyRun::Pending KeyRun::softmax(KeyStep step, Value iv, ValueRange state, Value weights) {
  scf::ForOp loop = step.loop;
  IRMapping mapping;
  mapping.map(loop.getInductionVar(), iv);
  mapping.map(loop.getRegionIterArgs(), state);
  for (Operation &op : loop.getBody()->without_terminator()) {
    if (&op == step.output || &op == step.values)
      continue;
    b.clone(op, mapping);
    if (&op == step.scores && weights) {
      Value previous = arith::SubIOp::create(b, loc, iv, index(1));
      mapping.map(loop.getRegionIterArg(step.outputIndex),
                  addOutput(step, previous, weights, state[step.outputIndex]));
    }
  }
  Pending result;
  for (Value yielded : loop.getYieldedValues())
    result.state.push_back(mapping.lookupOrDefault(
        yielded == step.output.getResult() ? step.output.getAcc() : yielded));
  result.weights = mapping.lookup(step.output.getLhs());
  return result;
}

void KeyRun::pipeline() {
  scf::ForOp first = steps.front().loop;
  b.setInsertionPoint(steps.back().loop);
  Value begin = first.getLowerBound(), end = steps.back().loop.getUpperBound();
  SmallVector<Value> inits(first.getInitArgs());
  // A partial step is right for any tile.
  auto partial = llvm::find_if(steps, [](KeyStep &step) { return step.isPartial(); });
  KeyStep general = partial == steps.end() ? steps.front() : *partial;

  Value any = arith::CmpIOp::create(b, loc, arith::CmpIPredicate::slt, begin, end);
  auto run = scf::IfOp::create(b, loc, first.getResultTypes(), any, /*withElseRegion=*/true);
  run->setAttr(kKeyRunAttrName, b.getUnitAttr());
  b.setInsertionPointToStart(run.elseBlock());
  scf::YieldOp::create(b, loc, inits);

  b.setInsertionPointToStart(run.thenBlock());
  Pending pending = softmax(general, begin, inits, /*weights=*/{});
  Value second = arith::AddIOp::create(b, loc, begin, index(1));
  for (KeyStep &step : steps) {
    scf::ForOp old = step.loop;
    Value from = old.getLowerBound() == begin
                     ? second
                     : Value(arith::MaxSIOp::create(b, loc, old.getLowerBound(), second));
    pending.state.push_back(pending.weights);
    auto loop =
        scf::ForOp::create(b, loc, from, old.getUpperBound(), old.getStep(), pending.state);
    if (step.isPartial())
      loop->setAttr(kPartialAttrName, b.getUnitAttr());
    OpBuilder::InsertionGuard guard(b);
    b.setInsertionPointToStart(loop.getBody());
    ValueRange args = loop.getRegionIterArgs();
    Pending inner = softmax(step, loop.getInductionVar(), args.drop_back(), args.back());
    inner.state.push_back(inner.weights);
    scf::YieldOp::create(b, loc, inner.state);
    pending = {SmallVector<Value>(loop.getResults().drop_back()), loop.getResults().back()};
  }
  Value last = arith::SubIOp::create(b, loc, end, index(1));
  Value &output = pending.state[general.outputIndex];
  output = addOutput(general, last, pending.weights, output);
  scf::YieldOp::create(b, loc, pending.state);

  b.replaceAllUsesWith(steps.back().loop.getResults(), run.getResults());
  for (KeyStep &step : llvm::reverse(steps))
    b.eraseOp(step.loop);
}

LogicalResult mlir::flashattn::pipelineKeys(RewriterBase &rewriter, scf::ForallOp program) {
  SmallVector<KeyRun> runs;
  WalkResult walk = program.walk<WalkOrder::PreOrder>([&](scf::ForOp loop) {
    if (loop.getBody()->getOps<vector::ContractionOp>().empty())
      return WalkResult::advance();
    FailureOr<KeyStep> step = KeyStep::from(loop);
    if (failed(step))
      return WalkResult::interrupt();
    if (runs.empty() || !runs.back().append(*step))
      runs.emplace_back(rewriter, *step);
    return WalkResult::skip();
  });
  if (walk.wasInterrupted())
    return failure();
  for (KeyRun &run : runs)
    run.pipeline();
  return success();
}

namespace {
struct PipelineKeysPass : flashattn::impl::PipelineKeysBase<PipelineKeysPass> {
  void runOnOperation() override {
    IRRewriter rewriter(&getContext());
    for (scf::ForallOp program : findSpecializedPrograms(getOperation()))
      if (failed(pipelineKeys(rewriter, program)))
        return signalPassFailure();
  }
};
} // namespace
