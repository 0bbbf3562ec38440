//===- ContractToWgmma.cpp - flashattn-contract-to-wgmma -------------------===//

#include "flashattn/Conversion/Passes.h"
#include "flashattn/Dialect/FlashAttn/IR/FlashAttn.h"
#include "flashattn/Dialect/FlashAttn/Program/TileBuilder.h"
#include "flashattn/Dialect/Hopper/IR/Hopper.h"
#include "mlir/Dialect/SCF/IR/SCF.h"
#include "mlir/Dialect/Vector/IR/VectorOps.h"
#include "mlir/IR/Matchers.h"
#include "mlir/IR/PatternMatch.h"

namespace mlir::flashattn {
#define GEN_PASS_DEF_CONTRACTTOWGMMA
#include "flashattn/Conversion/Passes.h.inc"
} // namespace mlir::flashattn

using namespace mlir;
using namespace mlir::flashattn;

/// `op` as an asynchronous product; null with an error where its operands are not those of
/// one.
static hopper::WgmmaOp issue(RewriterBase &b, vector::ContractionOp op) {
  auto rhs = op.getRhs().getDefiningOp<hopper::LoadTileOp>();
  auto lhs = op.getLhs().getDefiningOp<hopper::LoadTileOp>();
  if (!rhs) {
    op.emitOpError() << "expected a right-hand side in shared memory; run "
                        "flashattn-specialize-warps first";
    return {};
  }
  std::optional<bool> transposed = isRhsTransposed(op);
  if (!transposed) {
    op.emitOpError() << "expected lhs[m,k] times rhs[n,k] or rhs[k,n], as wgmma has, but got "
                     << op.getIndexingMaps();
    return {};
  }
  Value a = lhs ? Value(lhs.getTile()) : op.getLhs();
  Value acc = op.getAcc();
  if (matchPattern(acc, m_AnyZeroFloat()) || matchPattern(acc, m_PosZeroFloat()))
    acc = {};
  b.setInsertionPoint(op);
  int64_t depth = op.getLhsType().getDimSize(1);
  IntegerAttr part;
  if (lhs && hopper::SharedTile::get(a.getType())->getColumns() != depth)
    part = b.getI64IntegerAttr(depth);
  auto product = hopper::WgmmaOp::create(b, op.getLoc(), op.getResultType(), a, rhs.getTile(), acc,
                                         *transposed ? UnitAttr() : b.getUnitAttr(), part);
  b.replaceOp(op, product.getD());
  if (lhs && lhs != rhs && lhs->use_empty())
    b.eraseOp(lhs);
  if (rhs->use_empty())
    b.eraseOp(rhs);
  return product;
}

/// The arrivals right behind `product`, up to the next op with an effect.
static SmallVector<Operation *> arrivalsBehind(hopper::WgmmaOp product) {
  SmallVector<Operation *> arrivals;
  for (Operation *op = product->getNextNode(); op; op = op->getNextNode()) {
    if (isa<hopper::BarrierArriveOp>(op))
      arrivals.push_back(op);
    else if (!isPure(op))
      break;
  }
  return arrivals;
}

/// Waits for `product` in front of its first use.
static void insertWait(RewriterBase &b, hopper::WgmmaOp product) {
  Location loc = product.getLoc();
  Block *block = product->getBlock();
  Operation *first = nullptr;
  for (Operation *user : product->getUsers()) {
    Operation *here = block->findAncestorOpInBlock(*user);
    if (!first || here->isBeforeInBlock(first))
      first = here;
  }
  if (!first)
    first = product->getNextNode();
  SmallVector<Operation *> arrivals = arrivalsBehind(product);
  int64_t pending = 0;
  for (Operation *op = product->getNextNode(); op != first; op = op->getNextNode())
    pending += isa<hopper::WgmmaOp>(op);
  auto wait = [&](bool held) {
    return hopper::WgmmaWaitOp::create(b, loc, TypeRange{product.getD().getType()},
                                       ValueRange{product.getD()}, b.getI64IntegerAttr(pending),
                                       held ? b.getUnitAttr() : UnitAttr());
  };
  auto branch = dyn_cast<scf::IfOp>(first);
  bool inArms = branch && branch.elseBlock() &&
                llvm::all_of(product->getUsers(),
                             [&](Operation *user) { return branch->isProperAncestor(user); });
  Operation *behind = nullptr;
  if (inArms) {
    // ptxas moves a wait up as far as its block reaches; the branch holds it. One of the
    // two is marked, or LLVM would make one of them, in front of the branch.
    for (Block *arm : {branch.thenBlock(), branch.elseBlock()}) {
      b.setInsertionPointToStart(arm);
      auto waited = wait(/*held=*/arm == branch.elseBlock());
      b.replaceUsesWithIf(product.getD(), waited.getResult(0), [&](OpOperand &use) {
        return use.getOwner() != waited && arm->findAncestorOpInBlock(*use.getOwner());
      });
    }
    behind = branch;
  } else {
    b.setInsertionPoint(first);
    auto waited = wait(/*held=*/false);
    b.replaceAllUsesExcept(product.getD(), waited.getResult(0), waited);
    behind = waited;
  }
  for (Operation *arrival : arrivals) {
    b.moveOpAfter(arrival, behind);
    behind = arrival;
  }
}

namespace {
struct ContractToWgmmaPass : flashattn::impl::ContractToWgmmaBase<ContractToWgmmaPass> {
  void runOnOperation() override {
    IRRewriter rewriter(&getContext());
    SmallVector<vector::ContractionOp> contractions;
    getOperation()->walk([&](OnThreadsOp threads) {
      if (threads.getSchedule().getRoles())
        threads.walk([&](vector::ContractionOp op) { contractions.push_back(op); });
    });
    SmallVector<hopper::WgmmaOp> products;
    for (vector::ContractionOp op : contractions) {
      products.push_back(issue(rewriter, op));
      if (!products.back())
        return signalPassFailure();
    }
    for (hopper::WgmmaOp product : products)
      insertWait(rewriter, product);
  }
};
} // namespace
