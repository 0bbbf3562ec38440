//===- RaiseLinalg.cpp - flashattn-raise-linalg ---------------------------===//
//
// Replaces upstream's structured ops by equivalent ops of the dialect.
//
//===----------------------------------------------------------------------===//

#include "flashattn/Dialect/FlashAttn/Transforms/Passes.h"
#include "flashattn/Dialect/FlashAttn/Transforms/Transforms.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/GPU/IR/GPUDialect.h"
#include "mlir/Dialect/Linalg/IR/Linalg.h"
#include "mlir/Dialect/MemRef/IR/MemRef.h"
#include "mlir/Dialect/Tensor/IR/Tensor.h"
#include "mlir/IR/Matchers.h"
#include "mlir/Interfaces/ViewLikeInterface.h"

namespace mlir::flashattn {
#define GEN_PASS_DEF_RAISELINALG
#include "flashattn/Dialect/FlashAttn/Transforms/Passes.h.inc"
} // namespace mlir::flashattn

using namespace mlir;
using namespace mlir::flashattn;

/// Returns the fill of `destination` of `op`: its definition for a tensor, the last op before `op`
/// that accesses it for a memref.
static linalg::FillOp findFill(Operation *op, Value destination) {
  if (isa<TensorType>(destination.getType()))
    return destination.getDefiningOp<linalg::FillOp>();
  // Memory with several names may be read through another name, even by `op` itself.
  if (llvm::count(op->getOperands(), destination) != 1 ||
      isa_and_nonnull<ViewLikeOpInterface>(destination.getDefiningOp()) ||
      llvm::any_of(destination.getUsers(), llvm::IsaPred<ViewLikeOpInterface>))
    return {};
  for (Operation *before = op->getPrevNode(); before; before = before->getPrevNode()) {
    if (auto fill = dyn_cast<linalg::FillOp>(before))
      if (fill.getOutputs()[0] == destination)
        return fill;
    // Any other op may access the memory.
    bool isKnown = isa<KernelOpInterface, linalg::LinalgOp>(before) &&
                   !llvm::is_contained(before->getOperands(), destination);
    if (!isMemoryEffectFree(before) && !isKnown && !isa<memref::AllocOp>(before))
      return {};
  }
  return {};
}

/// Drops the fill of a destination that `op` does not read. Returns the unfilled destination.
static Value dropFill(RewriterBase &rewriter, Operation *op, Value destination) {
  linalg::FillOp fill = findFill(op, destination);
  if (!fill)
    return destination;
  Value before = fill.getOutputs()[0];
  if (isa<MemRefType>(destination.getType()))
    rewriter.eraseOp(fill);
  return before;
}

/// Returns the number of the block argument of `body` that `value` is, directly or extended.
static std::optional<unsigned> getExtendedArgument(Value value, Block *body) {
  if (auto extend = value.getDefiningOp<arith::ExtFOp>())
    value = extend.getIn();
  auto argument = dyn_cast<BlockArgument>(value);
  return argument && argument.getOwner() == body ? std::optional(argument.getArgNumber())
                                                 : std::nullopt;
}

/// Whether the body adds the product of the inputs to the output.
static bool addsProduct(linalg::LinalgOp op) {
  Block *body = op.getBlock();
  auto add = body->getTerminator()->getOperand(0).getDefiningOp<arith::AddFOp>();
  if (!add)
    return false;
  for (auto [sum, product] :
       {std::pair(add.getLhs(), add.getRhs()), {add.getRhs(), add.getLhs()}}) {
    auto mul = product.getDefiningOp<arith::MulFOp>();
    if (!mul || sum != body->getArgument(2))
      continue;
    auto x = getExtendedArgument(mul.getLhs(), body), y = getExtendedArgument(mul.getRhs(), body);
    return x && y && *x + *y == 1;
  }
  return false;
}

namespace {
/// A linalg op that is a projection.
struct Projection {
  Value o, w;
  Layout layout;
};
} // namespace

/// Matches o[b,h,n,d] (or [b,n,h,d]) times w[h,d,e], in any order, summed over h and d to p[b,n,e].
static std::optional<Projection> matchProjection(linalg::LinalgOp op) {
  if (op.getNumDpsInputs() != 2 || op.getNumDpsInits() != 1 || op.getNumLoops() != 5 ||
      op.hasIndexSemantics() || !addsProduct(op))
    return std::nullopt;
  SmallVector<AffineMap> maps = op.getIndexingMapsArray();
  if (!llvm::all_of(maps, [](AffineMap map) { return map.isProjectedPermutation(); }))
    return std::nullopt;
  unsigned o = maps[0].getNumResults() == 4 ? 0 : 1;
  AffineMap oMap = maps[o], wMap = maps[1 - o], pMap = maps[2];
  if (oMap.getNumResults() != 4 || wMap.getNumResults() != 3 || pMap.getNumResults() != 3)
    return std::nullopt;
  auto dim = [](AffineMap map, unsigned i) { return map.getDimPosition(i); };
  unsigned b = dim(pMap, 0), n = dim(pMap, 1), e = dim(pMap, 2), h = dim(wMap, 0), d = dim(wMap, 1);
  if (dim(wMap, 2) != e || dim(oMap, 0) != b || dim(oMap, 3) != d ||
      llvm::SmallDenseSet<unsigned>{b, n, e, h, d}.size() != 5)
    return std::nullopt;
  Layout layout = dim(oMap, 1) == h ? Layout::BHSD : Layout::BSHD;
  if (dim(oMap, layout == Layout::BHSD ? 1 : 2) != h ||
      dim(oMap, layout == Layout::BHSD ? 2 : 1) != n)
    return std::nullopt;
  SmallVector<utils::IteratorType> iterators = op.getIteratorTypesArray();
  for (auto [loop, type] : llvm::enumerate(iterators)) {
    bool sums = loop == h || loop == d;
    if (type != (sums ? utils::IteratorType::reduction : utils::IteratorType::parallel))
      return std::nullopt;
  }
  Value oValue = op.getDpsInputOperand(o)->get(), wValue = op.getDpsInputOperand(1 - o)->get();
  auto oType = cast<ShapedType>(oValue.getType());
  Type element = oType.getElementType(), w = getElementTypeOrSelf(wValue.getType()),
       p = getElementTypeOrSelf(op.getDpsInits()[0].getType());
  int64_t dv = oType.getShape().back();
  bool known = element.isF16() || element.isBF16() || element.isF32();
  if (!known || w != element || (p != element && !p.isF32()) || ShapedType::isDynamic(dv) ||
      dv % 8 != 0)
    return std::nullopt;
  return Projection{oValue, wValue, layout};
}

/// Returns the only user of `value` if it only rounds elements to `element`; null otherwise.
static linalg::LinalgOp findTruncation(Value value, Type element) {
  if (!value.hasOneUse())
    return {};
  auto op = dyn_cast<linalg::LinalgOp>(*value.user_begin());
  if (!op || op.getNumDpsInputs() != 1 || op.getNumDpsInits() != 1 ||
      op.getDpsInputOperand(0)->get() != value ||
      getElementTypeOrSelf(op.getDpsInits()[0].getType()) != element ||
      !llvm::all_of(op.getIndexingMapsArray(), [](AffineMap map) { return map.isIdentity(); }))
    return {};
  auto truncate = op.getBlock()->getTerminator()->getOperand(0).getDefiningOp<arith::TruncFOp>();
  return truncate && truncate.getIn() == op.getBlock()->getArgument(0) ? op : linalg::LinalgOp();
}

static void raise(RewriterBase &rewriter, linalg::LinalgOp op) {
  std::optional<Projection> found = matchProjection(op);
  if (!found)
    return;
  Value destination = op.getDpsInits()[0];
  linalg::FillOp fill = findFill(op, destination);
  if (!fill || !matchPattern(fill.getInputs()[0], m_AnyZeroFloat()))
    return;
  Type element = getElementTypeOrSelf(found->o.getType());
  linalg::LinalgOp last = op;
  bool onTensors = op->getNumResults() != 0;
  if (onTensors && element != getElementTypeOrSelf(destination.getType()))
    if (linalg::LinalgOp truncation = findTruncation(op->getResult(0), element)) {
      last = truncation;
      destination = truncation.getDpsInits()[0];
    }
  rewriter.setInsertionPoint(last);
  destination = dropFill(rewriter, last, destination);
  auto project = ProjectOp::create(rewriter, op.getLoc(), last->getResultTypes(), found->o,
                                   found->w, destination, found->layout, ScheduleAttr());
  rewriter.replaceOp(last, project->getResults());
  if (last != op)
    rewriter.eraseOp(op);
}

void mlir::flashattn::raiseLinalg(RewriterBase &rewriter, Operation *root) {
  SmallVector<linalg::LinalgOp> ops;
  root->walk([&](linalg::LinalgOp op) {
    // A truncation is matched from its producer.
    if (op.getNumDpsInputs() == 2)
      ops.push_back(op);
  });
  for (linalg::LinalgOp op : ops)
    raise(rewriter, op);
  // The dialect's ops do not read their destinations.
  root->walk([&](DestinationStyleOpInterface op) {
    if (!isa<KernelOpInterface>(op.getOperation()))
      return;
    for (OpOperand &init : op.getDpsInitsMutable()) {
      Value without = dropFill(rewriter, op, init.get());
      rewriter.modifyOpInPlace(op, [&] { init.set(without); });
    }
  });
  SmallVector<linalg::FillOp> unused;
  root->walk([&](linalg::FillOp fill) {
    if (fill->getNumResults() != 0 && fill->use_empty())
      unused.push_back(fill);
  });
  for (linalg::FillOp fill : unused)
    rewriter.eraseOp(fill);
}

namespace {
struct RaiseLinalgPass : flashattn::impl::RaiseLinalgBase<RaiseLinalgPass> {
  void runOnOperation() override {
    IRRewriter rewriter(&getContext());
    raiseLinalg(rewriter, getOperation());
  }
};
} // namespace
