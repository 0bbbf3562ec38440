//===- TileLoops.cpp - flashattn-expand-loops -----------------------------===//

#include "flashattn/Dialect/FlashAttn/Program/TileLoops.h"
#include "flashattn/Dialect/FlashAttn/Program/TileBuilder.h"
#include "mlir/Dialect/LLVMIR/LLVMDialect.h"
#include "mlir/Dialect/MemRef/IR/MemRef.h"
#include "mlir/Dialect/SCF/IR/SCF.h"
#include "mlir/Dialect/Vector/IR/VectorOps.h"
#include "mlir/IR/PatternMatch.h"

using namespace mlir;
using namespace mlir::flashattn;

//===----------------------------------------------------------------------===//
// Intervals
//===----------------------------------------------------------------------===//

SmallVector<TileRun> mlir::flashattn::getRuns(TileLoopOp loop, unsigned i) {
  ValueRange bounds = loop.getInterval(i);
  SmallVector<TileRun> runs;
  for (unsigned r = 0; r + 1 < TileLoopOp::kBoundsPerInterval; ++r) {
    Value begin = bounds[r], end = bounds[r + 1];
    std::optional<int64_t> lower = getConstantIntValue(begin), upper = getConstantIntValue(end);
    if (begin != end && !(lower && upper && *lower >= *upper))
      runs.push_back({begin, end, /*isFull=*/r == 1});
  }
  return runs;
}

SmallVector<Value> mlir::flashattn::pickInterval(OpBuilder &b, Location loc, ValueRange bounds,
                                                 Value number) {
  TileBuilder build(b, loc);
  constexpr unsigned size = TileLoopOp::kBoundsPerInterval;
  SmallVector<Value> picked(bounds.take_back(size));
  for (int64_t i = bounds.size() / size - 2; i >= 0; --i) {
    Value here = arith::CmpIOp::create(b, loc, arith::CmpIPredicate::eq, number, build.index(i));
    for (auto [mine, other] : llvm::zip_equal(bounds.slice(i * size, size), picked))
      other = build.select(here, mine, other);
  }
  return picked;
}

Value mlir::flashattn::countPasses(OpBuilder &b, Location loc, TileLoopOp loop) {
  TileBuilder build(b, loc);
  Value intervals = build.index(loop.getNumIntervals());
  return loop.getRounds() ? build.mul(loop.getRounds(), intervals) : intervals;
}

TilePass mlir::flashattn::enterPass(OpBuilder &b, Location loc, TileLoopOp loop, Value number) {
  if (!loop.getRounds())
    return {number, Value()};
  TileBuilder build(b, loc);
  if (loop.getNumIntervals() == 1)
    return {build.index(0), number};
  Value intervals = build.index(loop.getNumIntervals()), round = build.divide32(number, intervals);
  return {build.sub(number, build.mul(round, intervals)), round};
}

memref::LoadOp mlir::flashattn::hoistLoad(OpBuilder &b, memref::LoadOp load) {
  auto loop = dyn_cast<TileLoopOp>(load->getParentOp());
  if (!loop || llvm::any_of(loop.getBody()->getArguments(),
                            [&](Value argument) { return dependsOn(load, argument); }))
    return load;
  OpBuilder::InsertionGuard guard(b);
  b.setInsertionPoint(loop);
  IRMapping copies;
  Value moved = TileBuilder(b, load.getLoc()).clone(load, copies, loop);
  load.replaceAllUsesWith(moved);
  load.erase();
  return moved.getDefiningOp<memref::LoadOp>();
}

scf::ForOp mlir::flashattn::splitIntervals(RewriterBase &b, TileLoopOp loop) {
  if (loop.getNumIntervals() == 1 && !loop.getRounds())
    return {};
  Location loc = loop.getLoc();
  TileBuilder build(b, loc);
  OpBuilder::InsertionGuard guard(b);
  b.setInsertionPoint(loop);
  auto outer = scf::ForOp::create(b, loc, build.index(0), countPasses(b, loc, loop), build.index(1),
                                  loop.getInits());
  b.setInsertionPointToStart(outer.getBody());
  TilePass pass = enterPass(b, loc, loop, outer.getInductionVar());
  auto inner = TileLoopOp::create(b, loc, pickInterval(b, loc, loop.getBounds(), pass.interval),
                                  loop.getList(), loop.getListIndices(), loop.getWhen(),
                                  outer.getRegionIterArgs());
  SmallVector<Value> arguments(inner.getBody()->getArguments());
  if (pass.round)
    arguments.insert(arguments.begin() + 2, pass.round);
  b.mergeBlocks(loop.getBody(), inner.getBody(), arguments);
  for (auto load : llvm::make_early_inc_range(inner.getBody()->getOps<memref::LoadOp>()))
    hoistLoad(b, load);
  b.setInsertionPointAfter(inner);
  // A loop without state has a terminator already.
  if (!loop.getInits().empty())
    scf::YieldOp::create(b, loc, inner.getResults());
  b.replaceOp(loop, outer.getResults());
  return outer;
}

void mlir::flashattn::keepRolled(Operation *loop) {
  MLIRContext *context = loop->getContext();
  auto unroll = LLVM::LoopUnrollAttr::get(context, /*disable=*/BoolAttr::get(context, true), {}, {},
                                          {}, {}, {}, {});
  loop->setAttr("loop_annotation",
                LLVM::LoopAnnotationAttr::get(context, /*disableNonforced=*/{}, /*vectorize=*/{},
                                              /*interleave=*/{}, unroll, {}, {}, {}, {}, {}, {}, {},
                                              {}, {}, {}, {}));
}

Value mlir::flashattn::getTileNumber(OpBuilder &b, Location loc, TileLoopOp loop, Value place) {
  if (!loop.getList())
    return place;
  SmallVector<Value> indices(loop.getListIndices());
  indices.push_back(place);
  Value number = memref::LoadOp::create(b, loc, loop.getList(), indices);
  return arith::IndexCastOp::create(b, loc, b.getIndexType(), number);
}

//===----------------------------------------------------------------------===//
// Steps
//===----------------------------------------------------------------------===//

/// Returns the mask that is the condition of `op`, a select, and has no other use; otherwise null.
static TileMaskOp getMask(Operation *op) {
  auto select = dyn_cast<arith::SelectOp>(op);
  if (!select || !select.getCondition().hasOneUse())
    return {};
  return select.getCondition().getDefiningOp<TileMaskOp>();
}

namespace {

class LoopExpander : TileBuilder {
public:
  LoopExpander(RewriterBase &b, TileLoopOp loop)
      : TileBuilder(b, loop.getLoc()), b(b), loop(loop), runs(getRuns(loop)) {}

  LogicalResult run();

private:
  struct Stage {
    SmallVector<Operation *> ops;
    bool lags;
    int64_t behind; ///< for a lagging stage: the stage of the next step that it follows
  };
  /// A step that is being built, with its copies of the body's values.
  struct Step {
    IRMapping values;
    bool isFull; ///< whether the tile is known to be full
    /// In one loop over all runs, whether the tile is full at run time; otherwise null.
    Value isFullHere;
  };

  std::optional<TileRun> findBranching();
  Value isWithin(const TileRun &run, Value place);
  std::pair<scf::ForOp, Value> createLoop(Value from, Value to, ValueRange state);
  void findStages();
  /// Calls `visit` for each value of the body that `op` and the ops in its regions use from outside
  /// `op`.
  void forEachRead(Operation *op, function_ref<void(Value)> visit);
  bool isOfLaggingStage(Value v) const;
  void findCarried();

  Step beginStep(Value place, bool isFull);
  LogicalResult copyStages(Step &step, ArrayRef<Stage> which);
  LogicalResult copy(Operation *op, Step &step);
  LogicalResult branch(TileMaskOp mask, Operation *op, Step &step);
  LogicalResult provide(Value operand, Step &step, Operation *reader);
  SmallVector<Value> lookup(ArrayRef<Value> of, const Step &step) const;

  LogicalResult runPlain(SmallVectorImpl<Value> &results);
  LogicalResult runSkewed(SmallVectorImpl<Value> &results);
  LogicalResult copySkewed(Step &step, Step *before);
  void takeState(Step &step, ValueRange state);

  RewriterBase &b;
  TileLoopOp loop;
  SmallVector<TileRun> runs;
  SmallVector<Stage> stages;
  bool isSkewed = false;
  /// The values of the body that a skewed loop carries from step to step.
  SmallVector<Value> carried;
};

} // namespace

/// Creates a loop over positions. Returns the loop and the position of its step. Warpgroups that
/// share a program have no spare register, so their loop counts in 32 bits.
std::pair<scf::ForOp, Value> LoopExpander::createLoop(Value from, Value to, ValueRange state) {
  auto threads = loop->getParentOfType<OnThreadsOp>();
  bool isNarrow = threads && threads.getSchedule().sharesProgram();
  Type type = isNarrow ? Type(b.getI32Type()) : b.getIndexType();
  auto cast = [&](Value v) { return b.createOrFold<arith::IndexCastOp>(loc, type, v); };
  auto made = scf::ForOp::create(b, loc, cast(from), cast(to), cast(index(1)), state);
  OpBuilder::InsertionGuard guard(b);
  b.setInsertionPointToStart(made.getBody());
  Value at = made.getInductionVar();
  return {made, isNarrow ? arith::IndexCastUIOp::create(b, loc, b.getIndexType(), at) : at};
}

void LoopExpander::findStages() {
  stages.push_back({{}, false, 0});
  for (Operation &op : loop.getBody()->without_terminator()) {
    auto stage = dyn_cast<StageOp>(op);
    if (stage)
      stages.push_back({{}, stage.getLag() != 0, static_cast<int64_t>(stage.getBehind())});
    else
      stages.back().ops.push_back(&op);
  }
  isSkewed = llvm::any_of(stages, [](const Stage &stage) { return stage.lags; });
}

void LoopExpander::forEachRead(Operation *op, function_ref<void(Value)> visit) {
  op->walk([&](Operation *inner) {
    for (Value operand : inner->getOperands())
      if (loop.getRegion().isAncestor(operand.getParentRegion()) &&
          !op->isAncestor(operand.getParentBlock()->getParentOp()))
        visit(operand);
  });
}

bool LoopExpander::isOfLaggingStage(Value v) const {
  Operation *def = v.getDefiningOp();
  return llvm::any_of(
      stages, [&](const Stage &stage) { return stage.lags && llvm::is_contained(stage.ops, def); });
}

/// A skewed loop carries the state, except for the values that lagging stages yield. Instead, it
/// carries the tiles from which these stages compute them. Such a tile takes the slot of an omitted
/// state value of its type; the remaining tiles follow.
void LoopExpander::findCarried() {
  SetVector<Value> crossing;
  for (const Stage &stage : stages)
    if (stage.lags)
      for (Operation *op : stage.ops)
        forEachRead(op, [&](Value v) {
          if (isa<VectorType>(v.getType()) && !isOfLaggingStage(v))
            crossing.insert(v);
        });
  for (Value yielded : loop.getYielded()) {
    if (!isOfLaggingStage(yielded)) {
      carried.push_back(yielded);
      continue;
    }
    auto same = llvm::find_if(crossing, [&](Value v) { return v.getType() == yielded.getType(); });
    if (same == crossing.end())
      continue;
    carried.push_back(*same);
    crossing.erase(same);
  }
  carried.append(crossing.begin(), crossing.end());
}

LoopExpander::Step LoopExpander::beginStep(Value place, bool isFull) {
  Step step{{}, isFull, Value()};
  step.values.map(loop.getPlace(), place);
  if (isSkewed)
    step.values.map(loop.getTile(), getTileNumber(b, loc, loop, place));
  return step;
}

SmallVector<Value> LoopExpander::lookup(ArrayRef<Value> of, const Step &step) const {
  return llvm::map_to_vector(of, [&](Value v) { return step.values.lookupOrDefault(v); });
}

/// Adds `operand` to the values of a step that runs only some of the stages. Numbers are
/// recomputed.
LogicalResult LoopExpander::provide(Value operand, Step &step, Operation *reader) {
  if (step.values.contains(operand))
    return success();
  // Built at its first use: a step may begin with a wait for copies, which a load must not delay.
  if (operand == loop.getTile()) {
    Value place = step.values.lookup(loop.getPlace());
    step.values.map(operand, getTileNumber(b, loc, loop, place));
    return success();
  }
  Operation *def = operand.getDefiningOp();
  if (!def || isa<VectorType>(operand.getType()) || !isPure(def) || def->getNumRegions() != 0)
    return reader->emitOpError() << "expected a lagging stage to read only tiles of earlier "
                                    "stages, or scalars computed from the tile's number, but got "
                                 << operand.getType();
  for (Value inner : def->getOperands())
    if (loop.getRegion().isAncestor(inner.getParentRegion()) &&
        failed(provide(inner, step, reader)))
      return failure();
  b.clone(*def, step.values);
  return success();
}

/// Builds `op` and its mask twice, in a branch: for a full tile and for a partial tile.
LogicalResult LoopExpander::branch(TileMaskOp mask, Operation *op, Step &step) {
  auto made = scf::IfOp::create(b, loc, op->getResultTypes(), step.isFullHere,
                                /*addThenBlock=*/true, /*addElseBlock=*/true);
  for (bool isFull : {true, false}) {
    OpBuilder::InsertionGuard guard(b);
    b.setInsertionPointToStart(isFull ? made.thenBlock() : made.elseBlock());
    // Values that are computed for the mask are not used after the branch.
    Step here{step.values, isFull, Value()};
    if (failed(copy(mask, here)) || failed(copy(op, here)))
      return failure();
    scf::YieldOp::create(b, loc, here.values.lookup(op->getResult(0)));
  }
  step.values.map(op->getResults(), made.getResults());
  return success();
}

LogicalResult LoopExpander::copy(Operation *op, Step &step) {
  if (step.isFullHere) {
    if (isa<TileMaskOp>(op) && op->hasOneUse() && getMask(*op->user_begin()))
      return success(); // built with its select
    if (TileMaskOp mask = getMask(op))
      return branch(mask, op, step);
  }
  if (auto mask = dyn_cast<TileMaskOp>(op)) {
    if (step.isFull) {
      auto type = cast<VectorType>(mask.getShown().getType());
      step.values.map(mask.getShown(),
                      arith::ConstantOp::create(b, loc, DenseElementsAttr::get(type, true)));
      return success();
    }
    for (Operation &inner : mask.getBody()->without_terminator())
      if (failed(copy(&inner, step)))
        return failure();
    step.values.map(mask.getShown(),
                    step.values.lookupOrDefault(mask.getBody()->getTerminator()->getOperand(0)));
    return success();
  }
  LogicalResult provided = success();
  forEachRead(op, [&](Value v) {
    if (succeeded(provided))
      provided = provide(v, step, op);
  });
  if (failed(provided))
    return failure();
  Operation *made = b.clone(*op, step.values);
  auto load = dyn_cast<LoadTileOp>(op);
  if (load && step.isFull) {
    SmallVector<bool> inBounds(load.getInBounds());
    for (auto [dim, inside] : llvm::zip_equal(load.getDims(), inBounds))
      inside |= dim >= 0 && load.getIndices()[dim] == loop.getTile();
    auto full = cast<LoadTileOp>(made);
    full.setInBounds(inBounds);
    // A full tile has no row before `from` either.
    if (std::optional<unsigned> rowDim = load.getRowDim();
        rowDim && load.getIndices()[*rowDim] == loop.getTile())
      full.dropBeginRow(b);
  }
  // The region recomputes scores without a mask, so that only full tiles keep it.
  if (auto weights = dyn_cast<SoftmaxStepOp>(made); weights && !step.isFull)
    weights.dropRecompute();
  // The users of an all-true mask fold away.
  SmallVector<Value> folded;
  if (isa<arith::AndIOp, arith::SelectOp>(made))
    while (succeeded(b.tryFold(made, folded)))
      if (!folded.empty()) {
        step.values.map(op->getResults(), folded);
        b.eraseOp(made);
        break;
      }
  return success();
}

LogicalResult LoopExpander::copyStages(Step &step, ArrayRef<Stage> which) {
  for (const Stage &stage : which)
    for (Operation *op : stage.ops)
      if (failed(copy(op, step)))
        return failure();
  return success();
}

//===----------------------------------------------------------------------===//
// Loops
//===----------------------------------------------------------------------===//

LogicalResult LoopExpander::runPlain(SmallVectorImpl<Value> &state) {
  for (const TileRun &run : runs) {
    auto made = scf::ForOp::create(b, loc, run.begin, run.end, index(1), state);
    OpBuilder::InsertionGuard guard(b);
    b.setInsertionPointToStart(made.getBody());
    Step step = beginStep(made.getInductionVar(), run.isFull);
    for (auto [argument, value] : llvm::zip_equal(loop.getState(), made.getRegionIterArgs()))
      step.values.map(argument, value);
    if (failed(copyStages(step, stages)))
      return failure();
    if (!state.empty())
      scf::YieldOp::create(b, loc, lookup(llvm::to_vector(loop.getYielded()), step));
    state.assign(made.result_begin(), made.result_end());
  }
  return success();
}

/// Maps the state of `step` to the values that a skewed loop carries. The values that lagging
/// stages yield are not available yet.
void LoopExpander::takeState(Step &step, ValueRange state) {
  for (auto [argument, yielded] : llvm::zip_equal(loop.getState(), loop.getYielded()))
    if (!isOfLaggingStage(yielded))
      step.values.map(argument, state[llvm::find(carried, yielded) - carried.begin()]);
}

/// Builds the stages of `step` that do not lag, each followed by those lagging stages of the step
/// `before` that belong behind it. `before` is null if there is none and the state is complete.
LogicalResult LoopExpander::copySkewed(Step &step, Step *before) {
  for (auto [number, stage] : llvm::enumerate(stages)) {
    if (stage.lags)
      continue;
    if (failed(copyStages(step, stage)))
      return failure();
    if (!before)
      continue;
    for (const Stage &late : stages)
      if (late.lags && late.behind == static_cast<int64_t>(number) &&
          failed(copyStages(*before, late)))
        return failure();
    for (auto [argument, yielded] : llvm::zip_equal(loop.getState(), loop.getYielded()))
      if (isOfLaggingStage(yielded) && before->values.contains(yielded))
        step.values.map(argument, before->values.lookup(yielded));
  }
  return success();
}

/// Returns the run of full tiles if one loop should run them together with the partial tiles. This
/// takes half to two thirds of the code, and of the driver's compile time. It is as fast if full
/// and partial tiles differ only in a mask, after the wait for a product. It is slower if more is
/// computed from the scores first, if scores are recomputed, if the exponentials of several
/// consumers take longer than their products, or if threads load from global memory and would check
/// bounds in every step. Backward passes whose steps add to dQ lack the registers
/// (docs/rationale/full-and-partial-tiles.md).
std::optional<TileRun> LoopExpander::findBranching() {
  constexpr int64_t kWide = 128;
  auto full = llvm::find_if(runs, [](const TileRun &run) { return run.isFull; });
  auto all = loop.getBody()->getOps<SoftmaxStepOp>();
  if (runs.size() == 1 || full == runs.end() || all.empty())
    return std::nullopt;
  SoftmaxStepOp weights = *all.begin();
  auto select = weights.getScores().getDefiningOp<arith::SelectOp>();
  if (!weights.getRecompute().empty() || !select || !getMask(select) ||
      !select.getTrueValue().getDefiningOp<vector::ContractionOp>())
    return std::nullopt;
  auto threads = loop->getParentOfType<OnThreadsOp>();
  bool isWide = llvm::any_of(loop.getState(), [](Value v) {
    auto type = dyn_cast<VectorType>(v.getType());
    return type && type.getRank() == 2 && type.getDimSize(1) >= kWide;
  });
  if (threads && threads.getSchedule().getConsumers() > 1 && !isWide)
    return std::nullopt;
  for (auto load : loop.getBody()->getOps<LoadTileOp>())
    if (!llvm::all_of(load->getUsers(), llvm::IsaPred<vector::ContractionOp>))
      return std::nullopt;
  return *full;
}

/// Returns whether the tile at `place` is in `run`.
Value LoopExpander::isWithin(const TileRun &run, Value place) {
  Value within;
  if (run.begin != runs.front().begin)
    within = arith::CmpIOp::create(b, loc, arith::CmpIPredicate::sge, place, run.begin);
  if (run.end != runs.back().end) {
    Value below = less(place, run.end);
    within = within ? arith::AndIOp::create(b, loc, within, below) : below;
  }
  return within;
}

LogicalResult LoopExpander::runSkewed(SmallVectorImpl<Value> &results) {
  findCarried();
  Value begin = runs.front().begin, end = runs.back().end;
  // The first and the last step are built for any tile, unless all tiles are full.
  bool allFull = llvm::all_of(runs, [](const TileRun &run) { return run.isFull; });
  Step first = beginStep(begin, allFull);
  first.values.map(loop.getState(), loop.getInits());
  if (failed(copySkewed(first, /*before=*/nullptr)))
    return failure();
  SmallVector<Value> state = lookup(carried, first);
  // In the first step, no row has a base to keep.
  for (Operation &op : *b.getInsertionBlock())
    if (auto weights = dyn_cast<SoftmaxStepOp>(op)) {
      weights.removeThresholdAttr();
      weights.dropRecompute();
    }

  Value second = add(begin, index(1));
  std::optional<TileRun> branching = findBranching();
  SmallVector<TileRun> loops(runs);
  if (branching)
    loops = {{begin, end, /*isFull=*/false}};
  for (const TileRun &run : loops) {
    Value from = run.begin == begin ? second : max(run.begin, second);
    auto [made, iv] = createLoop(from, run.end, state);
    OpBuilder::InsertionGuard guard(b);
    b.setInsertionPointToEnd(made.getBody());
    Step step = beginStep(iv, run.isFull);
    if (branching)
      step.isFullHere = isWithin(*branching, iv);
    takeState(step, made.getRegionIterArgs());
    // The step before the first of a run may belong to the previous run.
    Step before = beginStep(sub(iv, index(1)), run.isFull && run.begin == begin);
    before.values.map(carried, made.getRegionIterArgs());
    if (failed(copySkewed(step, &before)))
      return failure();
    scf::YieldOp::create(b, loc, lookup(carried, step));
    state.assign(made.result_begin(), made.result_end());
  }
  Step last = beginStep(sub(end, index(1)), allFull);
  last.values.map(carried, state);
  for (const Stage &stage : stages)
    if (stage.lags && failed(copyStages(last, stage)))
      return failure();
  for (Value yielded : loop.getYielded())
    results.push_back(isOfLaggingStage(yielded)
                          ? last.values.lookup(yielded)
                          : state[llvm::find(carried, yielded) - carried.begin()]);
  return success();
}

LogicalResult LoopExpander::run() {
  findStages();
  b.setInsertionPoint(loop);
  if (runs.empty()) {
    b.replaceOp(loop, loop.getInits());
    return success();
  }
  SmallVector<Value> results;
  if (!isSkewed && !loop.getWhen()) {
    results.assign(loop.getInits().begin(), loop.getInits().end());
    if (failed(runPlain(results)))
      return failure();
    b.replaceOp(loop, results);
    return success();
  }
  Value any = less(runs.front().begin, runs.back().end);
  if (loop.getWhen())
    any = arith::AndIOp::create(b, loc, any, loop.getWhen());
  auto branch = scf::IfOp::create(b, loc, loop.getResultTypes(), any,
                                  /*withElseRegion=*/loop.getNumResults() != 0);
  if (loop.getNumResults() != 0) {
    b.setInsertionPointToStart(branch.elseBlock());
    scf::YieldOp::create(b, loc, loop.getInits());
  }
  b.setInsertionPointToStart(branch.thenBlock());
  if (!isSkewed)
    results.assign(loop.getInits().begin(), loop.getInits().end());
  if (failed(isSkewed ? runSkewed(results) : runPlain(results)))
    return failure();
  if (loop.getNumResults() != 0)
    scf::YieldOp::create(b, loc, results);
  b.replaceOp(loop, branch.getResults());
  return success();
}

LogicalResult mlir::flashattn::expandTileLoop(RewriterBase &b, TileLoopOp loop) {
  OpBuilder::InsertionGuard guard(b);
  if (scf::ForOp outer = splitIntervals(b, loop)) {
    auto inner = *outer.getBody()->getOps<TileLoopOp>().begin();
    return LoopExpander(b, inner).run();
  }
  return LoopExpander(b, loop).run();
}
