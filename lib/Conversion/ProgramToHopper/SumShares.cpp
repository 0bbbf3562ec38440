//===- SumShares.cpp - consumers that split the sums of a program ---------===//
//
// Each consumer runs a copy of the program with one of the loop's sums (dK or dV). A tile that both
// sums depend on is computed once and passed on through shared memory.
//
//===----------------------------------------------------------------------===//

#include "Block.h"
#include "mlir/Analysis/SliceAnalysis.h"
#include "mlir/Analysis/TopologicalSortUtils.h"
#include "mlir/Dialect/Vector/IR/VectorOps.h"
#include "mlir/Interfaces/SideEffectInterfaces.h"
#include "mlir/Transforms/RegionUtils.h"

using namespace mlir;
using namespace mlir::flashattn;

/// Buffers of the tile that is passed on.
static constexpr int64_t kBuffers = 2;

//===----------------------------------------------------------------------===//
// Assigning ops to consumers
//===----------------------------------------------------------------------===//

/// Returns the loop's ops that `v` depends on.
static FailureOr<SetVector<Operation *>> findProducers(TileLoopOp loop, Value v) {
  SetVector<Operation *> producers;
  BackwardSliceOptions options;
  options.inclusive = true;
  options.omitUsesFromAbove = false;
  options.filter = [&](Operation *op) { return op->getBlock() == loop.getBody(); };
  if (v.getParentBlock() != loop.getBody() || !v.getDefiningOp() ||
      failed(getBackwardSlice(v, &producers, options)))
    return failure();
  return producers;
}

/// Whether `v` is computed, unlike a constant or a tile that every consumer can load.
static bool isComputed(Value v) {
  Operation *def = v.getDefiningOp();
  return isa<VectorType>(v.getType()) && def && !isa<LoadTileOp>(def) &&
         !def->hasTrait<OpTrait::ConstantLike>();
}

/// Returns the computed results of `producers` that `others` use.
static SetVector<Value> findPassed(const SetVector<Operation *> &producers,
                                   const SetVector<Operation *> &others) {
  SetVector<Value> passed;
  for (Operation *op : others) {
    if (producers.contains(op))
      continue;
    SetVector<Value> inputs(op->operand_begin(), op->operand_end());
    getUsedValuesDefinedAbove(op->getRegions(), inputs);
    for (Value input : inputs)
      if (isComputed(input) && producers.contains(input.getDefiningOp()))
        passed.insert(input);
  }
  return passed;
}

/// Finds one operand tile through which `producers` can pass all values that `others` need. For
/// that, `producers` may take over ops from `others` up to that tile, except products. Returns null
/// if there is no such tile.
static Value findOnlyPassed(TileLoopOp loop, FloatType element, SetVector<Operation *> &producers,
                            const SetVector<Operation *> &others) {
  auto isOperand = [&](Value v) { return getElementTypeOrSelf(v) == element; };
  SetVector<Value> passed = findPassed(producers, others);
  if (passed.size() == 1 && isOperand(passed.front()))
    return passed.front();
  for (Operation &op : *loop.getBody()) {
    if (!others.contains(&op) || op.getNumResults() != 1 || !isComputed(op.getResult(0)) ||
        !isOperand(op.getResult(0)))
      continue;
    FailureOr<SetVector<Operation *>> more = findProducers(loop, op.getResult(0));
    if (failed(more))
      continue;
    more->set_subtract(producers);
    if (llvm::any_of(*more, llvm::IsaPred<vector::ContractionOp>))
      continue;
    SetVector<Operation *> all = producers;
    all.set_union(*more);
    if (passed = findPassed(all, others); passed.size() == 1 && passed.front() == op.getResult(0)) {
      producers = std::move(all);
      return op.getResult(0);
    }
  }
  return {};
}

/// Assigns the stream that each consumer reads first in a step to this consumer, which sets missing
/// rows to zero, if there are any. All consumers wait for each other behind that, so that none
/// reads a tile that another one is still writing to.
static LogicalResult assignStreams(BlockPlan &plan) {
  SumSplit &split = plan.split;
  split.clearedBy.assign(plan.streams.size(), -1);
  for (auto [consumer, made] : llvm::enumerate(split.made)) {
    SmallVector<Operation *> inOrder(made.begin(), made.end());
    llvm::sort(inOrder, [](Operation *x, Operation *y) { return x->isBeforeInBlock(y); });
    for (Operation *op : inOrder) {
      auto stream = llvm::find_if(plan.streams, [&](LoadTileOp load) {
        return llvm::is_contained(op->getOperands(), load.getResult());
      });
      if (stream == plan.streams.end())
        continue;
      split.clearedBy[stream - plan.streams.begin()] = consumer;
      break;
    }
  }
  for (auto [load, consumer] : llvm::zip_equal(plan.streams, split.clearedBy)) {
    LeftOut missing = getLeftOutInBlock(load);
    if (!missing.begin && !missing.end)
      consumer = -1;
    else if (consumer < 0)
      return load->emitOpError() << "expected one consumer that reads a tile with missing rows "
                                    "first, for consumers that split sums, but got none";
  }
  return success();
}

LogicalResult mlir::flashattn::splitSums(BlockPlan &plan) {
  TileLoopOp loop = plan.loop;
  SumSplit &split = plan.split;
  SmallVector<SetVector<Operation *>> producers;
  for (Value sum : loop.getYielded()) {
    FailureOr<SetVector<Operation *>> of = findProducers(loop, sum);
    if (failed(of))
      return loop.emitOpError() << "expected one sum of the loop for each consumer";
    producers.push_back(*of);
  }
  if (producers.size() != 2 || plan.getConsumers() != 2)
    return loop.emitOpError() << "expected 2 sums and 2 consumers, one for each sum, but got "
                              << producers.size() << " and " << plan.getConsumers();
  // The consumer with fewer ops computes and passes on the tile that both need.
  split.sums = {0, 1};
  if (producers[1].size() < producers[0].size())
    std::swap(split.sums[0], split.sums[1]);
  split.made = {producers[split.sums[0]], producers[split.sums[1]]};
  split.passed = findOnlyPassed(loop, plan.schedule.getDotType(), split.made[0], split.made[1]);
  if (!split.passed)
    return loop.emitOpError()
           << "expected one tile of " << plan.schedule.getDotType()
           << " that one consumer passes to the other, for consumers that split sums, but got none";
  split.made[1].set_subtract(split.made[0]);
  return assignStreams(plan);
}

//===----------------------------------------------------------------------===//
// Copies of the program
//===----------------------------------------------------------------------===//

/// Erases dead ops, except `kept`.
static void eraseDead(RewriterBase &b, mlir::Block &body, ArrayRef<Operation *> kept) {
  for (Operation &op : llvm::make_early_inc_range(llvm::reverse(body)))
    if (isOpTriviallyDead(&op) && !llvm::is_contained(kept, &op))
      b.eraseOp(&op);
}

/// Rebuilds `loop` with only state number `sum`. Keeps `passed`; erases users of other results.
static TileLoopOp keepSum(RewriterBase &b, TileLoopOp loop, unsigned sum, Value passed) {
  OpBuilder::InsertionGuard guard(b);
  b.setInsertionPoint(loop);
  auto own =
      TileLoopOp::create(b, loop.getLoc(), loop.getBounds(), loop.getList(), loop.getListIndices(),
                         loop.getWhen(), loop.getInits()[sum], loop.getRounds());
  for (auto [i, result] : llvm::enumerate(loop.getResults())) {
    if (i == sum)
      continue;
    SetVector<Operation *> users;
    getForwardSlice(result, &users);
    users = topologicalSort(users);
    for (Operation *user : llvm::reverse(users))
      b.eraseOp(user);
  }
  Operation *terminator = loop.getBody()->getTerminator();
  b.setInsertionPoint(terminator);
  TileYieldOp::create(b, loop.getLoc(), terminator->getOperand(sum));
  b.eraseOp(terminator);
  eraseDead(b, *loop.getBody(), passed ? passed.getDefiningOp() : nullptr);
  // The state of the other sums has no uses left.
  SmallVector<Value> arguments(own.getBody()->getArguments().drop_back());
  for (auto [i, init] : llvm::enumerate(loop.getInits()))
    arguments.push_back(i == sum ? Value(own.getState().front()) : init);
  b.mergeBlocks(loop.getBody(), own.getBody(), arguments);
  b.replaceAllUsesWith(loop.getResult(sum), own.getResult(0));
  b.eraseOp(loop);
  return own;
}

/// Returns the first use of the passed tile, where it is read. Ops that only use the tile are moved
/// to their own first use, so that waits that do not need the tile come first.
static Operation *findFirstUse(RewriterBase &b, Value passed) {
  auto firstOf = [](Value v) {
    Operation *first = nullptr;
    for (Operation *user : v.getUsers()) {
      Operation *here = v.getParentBlock()->findAncestorOpInBlock(*user);
      if (!first || here->isBeforeInBlock(first))
        first = here;
    }
    return first;
  };
  for (Operation *user : llvm::make_early_inc_range(passed.getUsers()))
    if (user->getNumOperands() == 1 && user->getNumResults() == 1 && isPure(user))
      b.moveOpBefore(user, firstOf(user->getResult(0)));
  return firstOf(passed);
}

namespace {
/// Records the ops that a rewriter erases during this object's lifetime. The IR cannot be queried
/// for an erased op, because a new op may have its address.
class Erasures : public RewriterBase::Listener {
public:
  explicit Erasures(RewriterBase &b) : b(b), before(b.getListener()) { b.setListener(this); }
  ~Erasures() override { b.setListener(before); }
  void notifyOperationErased(Operation *op) override { erased.insert(op); }
  bool contains(Operation *op) const { return erased.contains(op); }

private:
  RewriterBase &b;
  OpBuilder::Listener *before;
  DenseSet<Operation *> erased;
};
} // namespace

/// Clones the program for `consumer`, with only the sum that this consumer computes.
BlockPlan ConsumerBuilder::cloneForSum(int64_t consumer) {
  OpBuilder::InsertionGuard guard(b);
  b.setInsertionPoint(plan.program);
  IRMapping copies;
  auto copyOf = [&](auto op) {
    using Op = decltype(op);
    return cast<Op>(copies.lookup(op.getOperation()));
  };
  BlockPlan share = plan;
  share.consumer = consumer;
  share.program = cast<ProgramOp>(b.clone(*plan.program, copies));
  for (LoadTileOp &load : share.residents)
    load = copyOf(load);
  for (LoadTileOp &load : share.streams)
    load = copyOf(load);
  for (BlockPlan::Row &row : share.rows)
    row.load = copyOf(row.load);
  for (StoreTileOp &store : share.outputs)
    store = copyOf(store);
  if (consumer == 0) {
    share.passed = copies.lookup(plan.split.passed);
  } else {
    Value passed = copies.lookup(plan.split.passed);
    b.setInsertionPoint(findFirstUse(b, passed));
    auto read = hopper::ReadTileOp::create(b, loc, passed.getType(),
                                           tileAt(block.exchanged.front(), index(0)));
    b.replaceAllUsesWith(passed, read);
  }
  TileLoopOp loop = plan.loop;
  Erasures erased(b);
  share.loop = keepSum(b, copyOf(loop), plan.split.sums[consumer], share.passed);
  eraseDead(b, *share.program.getBody(),
            SmallVector<Operation *>(share.residents.begin(), share.residents.end()));
  for (BlockPlan::Row &row : share.rows)
    if (erased.contains(row.load))
      row.load = {};
  for (StoreTileOp &store : share.outputs)
    if (erased.contains(store))
      store = {};
  return share;
}

/// Passes the first consumer's tile to the second consumer through two alternating buffers. The
/// second consumer's warps signal that they have read a buffer, and the first consumer waits for
/// that.
void ConsumerBuilder::passTile(TileLoopOp loop, Value first, Value step) {
  Value tiles = block.exchanged.front();
  const WarpgroupBlockPlan &memory = plan.memory;
  auto wait = [&](Value turn, Value place, int64_t barriers, bool inverted = false) {
    hopper::BarrierWaitOp::create(b, loc, block.barriers, add(place, index(barriers)),
                                  parityOf(turn, kBuffers, inverted));
  };
  if (plan.passed) {
    b.setInsertionPointAfterValue(plan.passed);
    Value turn = now(loop, first, step), place = slotOf(turn, kBuffers);
    wait(turn, place, memory.bufferFree, /*inverted=*/true);
    hopper::StoreTileOp::create(b, loc, plan.passed, tileAt(tiles, place));
    hopper::PublishOp::create(b, loc, block.barriers, add(place, index(memory.exchangeReady)));
  }
  for (auto read : loop.getBody()->getOps<hopper::ReadTileOp>()) {
    b.setInsertionPoint(read);
    Value turn = now(loop, first, step), place = slotOf(turn, kBuffers);
    wait(turn, place, memory.exchangeReady);
    read.getTileMutable().assign(tileAt(tiles, place));
    b.setInsertionPointAfter(read);
    hopper::WarpArriveOp::create(b, loc, block.barriers, add(place, index(memory.bufferFree)));
  }
}
