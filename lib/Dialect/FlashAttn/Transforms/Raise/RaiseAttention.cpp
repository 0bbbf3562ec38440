//===- RaiseAttention.cpp - flashattn-raise-attention ---------------------===//

#include "AttentionMatch.h"
#include "flashattn/Dialect/FlashAttn/Transforms/Passes.h"
#include "flashattn/Dialect/FlashAttn/Transforms/Transforms.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/Dialect/Tensor/IR/Tensor.h"
#include "mlir/IR/Remarks.h"

namespace mlir::flashattn {
#define GEN_PASS_DEF_RAISEATTENTION
#include "flashattn/Dialect/FlashAttn/Transforms/Passes.h.inc"
} // namespace mlir::flashattn

using namespace mlir;
using namespace mlir::flashattn;

/// Whether `op` is a sum of products, as both products of an attention are.
static bool isContraction(linalg::LinalgOp op) {
  if (op->getNumResults() != 1 || op.getNumReductionLoops() == 0 || op.getNumDpsInputs() < 2)
    return false;
  Operation *sum = op.getBlock()->getTerminator()->getOperand(0).getDefiningOp();
  return isa_and_nonnull<arith::AddFOp>(sum) && llvm::any_of(sum->getOperands(), [](Value x) {
           return isa_and_nonnull<arith::MulFOp, arith::DivFOp, arith::ExtFOp, arith::TruncFOp>(
               x.getDefiningOp());
         });
}

/// Erases `root` and the ops that are dead without it.
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
    // Constants that bodies capture are left for canonicalization.
    rewriter.eraseOp(op);
  }
}

static void report(const NearMiss &miss) {
  remark::missed(
      miss.op->getLoc(),
      remark::RemarkOpts::name("attention-not-raised").category("flashattn-raise-attention"))
      << (miss.expected + " but got " + miss.found);
}

/// Whether `lse` is only read after `last`, before which the op is created.
static bool comesFirst(Operation *last, Value lse, NearMiss &miss) {
  if (!lse)
    return true;
  for (Operation *user : lse.getUsers()) {
    Operation *inBlock = last->getBlock()->findAncestorOpInBlock(*user);
    if (inBlock && last->isBeforeInBlock(inBlock))
      continue;
    miss = {user, "expected all uses of the log-sum-exp after the attention's result",
            ("a use before it by '" + user->getName().getStringRef() + "'").str()};
    return false;
  }
  return true;
}

/// Raises the attention whose second product is `op`. Returns whether it was raised.
static bool raise(RewriterBase &rewriter, linalg::LinalgOp op) {
  TensorExprs exprs(op->getContext());
  NearMiss miss;
  std::optional<AttentionMatch> match = matchAttention(exprs, op, miss);
  std::optional<RaisedMask> mask = match ? raiseMask(exprs, *match, miss) : std::nullopt;
  Operation *last = mask ? match->result.getDefiningOp() : nullptr;
  if (last && !comesFirst(last, match->lse, miss))
    last = nullptr;
  if (last)
    rewriter.setInsertionPoint(last);
  if (!last || !emitAttention(rewriter, exprs, *match, *mask, miss)) {
    if (miss.op)
      report(miss);
    return false;
  }
  remark::passed(last->getLoc(),
                 remark::RemarkOpts::name("attention-raised").category("flashattn-raise-attention"))
      << (mask->mayHideRows ? "flashattn.attention; a row whose keys are all hidden by data gives "
                              "0 instead of the mean of the values"
                            : "flashattn.attention");
  if (match->lse)
    eraseDead(rewriter, match->lse.getDefiningOp());
  eraseDead(rewriter, last);
  return true;
}

static bool raiseBelow(RewriterBase &rewriter, Operation *root) {
  SmallVector<linalg::LinalgOp> candidates;
  root->walk([&](linalg::LinalgOp op) {
    if (isContraction(op) && isa<RankedTensorType>(op->getResult(0).getType()))
      candidates.push_back(op);
  });
  struct Listener : RewriterBase::Listener {
    llvm::SmallPtrSet<Operation *, 16> erased;
    void notifyOperationErased(Operation *op) override { erased.insert(op); }
  } listener;
  rewriter.setListener(&listener);
  bool raised = false;
  // Second products first: raising one also erases its first product.
  for (linalg::LinalgOp op : llvm::reverse(candidates))
    if (!listener.erased.contains(op))
      raised |= raise(rewriter, op);
  rewriter.setListener(nullptr);
  return raised;
}

void mlir::flashattn::raiseAttention(RewriterBase &rewriter, Operation *root) {
  SmallVector<func::FuncOp> callers;
  root->walk([&](func::FuncOp function) {
    bool calls = false;
    function.walk([&](func::CallOp call) { calls |= bool(findInlinable(call, function)); });
    if (calls)
      callers.push_back(function);
  });
  raiseBelow(rewriter, root);
  // A callee may contain part of an attention. Callers without an attention do not change.
  for (func::FuncOp function : callers) {
    OwningOpRef<func::FuncOp> clone = function.clone();
    constexpr unsigned kMostCalls = 256;
    inlineCalls(rewriter, *clone, function, kMostCalls, [](func::FuncOp) { return true; });
    if (raiseBelow(rewriter, *clone))
      function.getBody().takeBody(clone->getBody());
  }
}

namespace {
struct RaiseAttentionPass : flashattn::impl::RaiseAttentionBase<RaiseAttentionPass> {
  void runOnOperation() override {
    IRRewriter rewriter(&getContext());
    raiseAttention(rewriter, getOperation());
  }
};
} // namespace
