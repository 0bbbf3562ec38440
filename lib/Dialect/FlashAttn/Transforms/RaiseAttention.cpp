//===- RaiseAttention.cpp - flashattn-raise-attention ----------------------===//

#include "AttentionMatch.h"
#include "flashattn/Dialect/FlashAttn/Transforms/Passes.h"
#include "flashattn/Dialect/FlashAttn/Transforms/Transforms.h"
#include "mlir/Dialect/Affine/IR/AffineOps.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Math/IR/Math.h"
#include "mlir/Dialect/Tensor/IR/Tensor.h"
#include "mlir/IR/Remarks.h"
#include "mlir/Transforms/RegionUtils.h"

namespace mlir::flashattn {
#define GEN_PASS_DEF_RAISEATTENTION
#include "flashattn/Dialect/FlashAttn/Transforms/Passes.h.inc"
} // namespace mlir::flashattn

using namespace mlir;
using namespace mlir::flashattn;

/// Whether `op` sums products, as both products of an attention do.
static bool isContraction(linalg::LinalgOp op) {
  if (op->getNumResults() != 1 || op.getNumReductionLoops() == 0 || op.getNumDpsInputs() < 2)
    return false;
  Operation *sum = op.getBlock()->getTerminator()->getOperand(0).getDefiningOp();
  return isa_and_nonnull<arith::AddFOp>(sum) && llvm::any_of(sum->getOperands(), [](Value x) {
           return isa_and_nonnull<arith::MulFOp, arith::DivFOp, arith::ExtFOp, arith::TruncFOp>(
               x.getDefiningOp());
         });
}

/// The op that reads what `scores` leads to and is neither part of the match nor unused.
static Operation *findOtherUser(Operation *scores, Value result, TensorExprs &exprs) {
  SmallVector<Operation *> work = {scores};
  llvm::SmallPtrSet<Operation *, 32> seen;
  Operation *last = result.getDefiningOp();
  while (!work.empty()) {
    Operation *op = work.pop_back_val();
    if (op == last || !seen.insert(op).second)
      continue;
    for (Operation *user : op->getUsers()) {
      bool isKnown =
          exprs.getVisited().contains(user) || isa<tensor::DimOp>(user) || isOpTriviallyDead(user);
      if (!isKnown)
        return user;
      if (!isa<tensor::DimOp>(user))
        work.push_back(user);
    }
  }
  return nullptr;
}

/// Erases `root`, and what it alone had use for.
static void eraseDead(RewriterBase &rewriter, Operation *root) {
  llvm::SetVector<Operation *> work;
  work.insert(root);
  while (!work.empty()) {
    Operation *op = work.pop_back_val();
    if (!isOpTriviallyDead(op))
      continue;
    for (Value operand : op->getOperands())
      if (Operation *definition = operand.getDefiningOp())
        work.insert(definition);
    // What bodies read from outside stays for canonicalization, if it is a constant.
    rewriter.eraseOp(op);
  }
}

static void report(const NearMiss &miss) {
  remark::missed(
      miss.op->getLoc(),
      remark::RemarkOpts::name("attention-not-raised").category("flashattn-raise-attention"))
      << (miss.expected + " but got " + miss.found);
}

static void raise(RewriterBase &rewriter, linalg::LinalgOp op) {
  TensorExprs exprs(op->getContext());
  NearMiss miss;
  auto refuse = [&] {
    if (miss.op)
      report(miss);
  };
  std::optional<AttentionMatch> match = matchAttention(exprs, op, miss);
  if (!match)
    return refuse();
  if (Operation *user = findOtherUser(match->scores, match->result, exprs)) {
    miss = {user, "expected scores and probabilities that nothing else reads",
            ("a use by '" + user->getName().getStringRef() + "'").str()};
    return refuse();
  }
  std::optional<RaisedMask> mask = raiseMask(exprs, *match, miss);
  if (!mask)
    return refuse();
  Operation *last = match->result.getDefiningOp();
  rewriter.setInsertionPoint(last);
  if (!emitAttention(rewriter, exprs, *match, *mask, miss))
    return refuse();
  remark::passed(last->getLoc(),
                 remark::RemarkOpts::name("attention-raised").category("flashattn-raise-attention"))
      << "flashattn.attention";
  eraseDead(rewriter, last);
}

void mlir::flashattn::raiseAttention(RewriterBase &rewriter, Operation *root) {
  // In order: a second attention may read what the first one gives.
  SmallVector<linalg::LinalgOp> candidates;
  root->walk([&](linalg::LinalgOp op) {
    if (isContraction(op) && isa<RankedTensorType>(op->getResult(0).getType()))
      candidates.push_back(op);
  });
  llvm::SmallPtrSet<Operation *, 16> erased;
  struct Listener : RewriterBase::Listener {
    llvm::SmallPtrSet<Operation *, 16> &erased;
    explicit Listener(llvm::SmallPtrSet<Operation *, 16> &erased) : erased(erased) {}
    void notifyOperationErased(Operation *op) override { erased.insert(op); }
  } listener(erased);
  rewriter.setListener(&listener);
  for (linalg::LinalgOp op : llvm::reverse(candidates))
    if (!erased.contains(op))
      raise(rewriter, op);
  rewriter.setListener(nullptr);
}

namespace {
struct RaiseAttentionPass : flashattn::impl::RaiseAttentionBase<RaiseAttentionPass> {
  void runOnOperation() override {
    IRRewriter rewriter(&getContext());
    raiseAttention(rewriter, getOperation());
  }
};
} // namespace
