//===- ContractToWgmma.cpp - flashattn-contract-to-wgmma ------------------===//

#include "flashattn/Conversion/Passes.h"
#include "flashattn/Dialect/FlashAttn/IR/FlashAttn.h"
#include "flashattn/Dialect/FlashAttn/Program/TileBuilder.h"
#include "flashattn/Dialect/Hopper/IR/Hopper.h"
#include "mlir/Dialect/Math/IR/Math.h"
#include "mlir/Dialect/MemRef/IR/MemRef.h"
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

/// Whether `condition` may differ between the warps of a warpgroup.
static bool isWarpDivergent(Value condition) {
  Operation *def = condition.getDefiningOp();
  return isa_and_nonnull<AnyRowOp>(def) ||
         (isa_and_nonnull<arith::OrIOp>(def) && llvm::any_of(def->getOperands(), isWarpDivergent));
}

/// Whether `op` may be executed by some warps of a warpgroup only. wgmma requires all four.
static bool isOnBranchOfWarps(Operation *op) {
  for (auto branch = op->getParentOfType<scf::IfOp>(); branch;
       branch = branch->getParentOfType<scf::IfOp>())
    if (isWarpDivergent(branch.getCondition()))
      return true;
  return false;
}

/// Replaces `op` by an asynchronous product. Emits an error and returns null for other operands.
static hopper::WgmmaOp issue(RewriterBase &b, vector::ContractionOp op) {
  auto rhs = op.getRhs().getDefiningOp<hopper::LoadTileOp>();
  auto lhs = op.getLhs().getDefiningOp<hopper::LoadTileOp>();
  if (!rhs) {
    op.emitOpError() << "expected a right-hand side in shared memory; run "
                        "flashattn-specialize-warps first";
    return {};
  }
  std::optional<bool> transposed = isRhsTransposed(op);
  // A transposed left-hand side can only come from shared memory.
  bool transposedLhs = lhs && isLhsTransposed(op);
  if (!transposed && !transposedLhs) {
    op.emitOpError() << "expected lhs[m,k] times rhs[n,k] or rhs[k,n], as wgmma has, but got "
                     << op.getIndexingMaps();
    return {};
  }
  Value a = lhs ? Value(lhs.getTile()) : op.getLhs(), first = lhs ? lhs.getFirst() : Value();
  std::optional<hopper::SharedTile> tile = hopper::SharedTile::get(a.getType());
  Value acc = op.getAcc();
  if (matchPattern(acc, m_AnyZeroFloat()) || matchPattern(acc, m_PosZeroFloat()))
    acc = {};
  b.setInsertionPoint(op);
  int64_t depth = op.getLhsType().getDimSize(transposedLhs ? 0 : 1);
  if (first && cast<VectorType>(first.getType()).getDimSize(1) == depth)
    a = std::exchange(first, {});
  IntegerAttr part;
  // The depth applies to both operands: a right-hand tile has as many panels.
  if (tile && !transposedLhs && tile->getColumns() != depth)
    part = b.getI64IntegerAttr(depth);
  auto product =
      hopper::WgmmaOp::create(b, op.getLoc(), op.getResultType(), a, first, rhs.getTile(), acc,
                              transposed.value_or(false) ? UnitAttr() : b.getUnitAttr(), part,
                              transposedLhs ? b.getUnitAttr() : UnitAttr(),
                              /*overwritten=*/UnitAttr());
  b.replaceOp(op, product.getD());
  if (lhs && lhs != rhs && lhs->use_empty())
    b.eraseOp(lhs);
  if (rhs->use_empty())
    b.eraseOp(rhs);
  return product;
}

/// Returns the op that adds `op`, a tile's sums of f8 products in their own registers (F3), to
/// those of a loop, or null.
static math::FmaOp findSum(vector::ContractionOp op) {
  auto sum = op->hasOneUse() ? dyn_cast<math::FmaOp>(*op->user_begin()) : math::FmaOp();
  bool isProduct = isF8(op.getLhsType().getElementType()) && isRhsTransposed(op) == true &&
                   op.getRhs().getDefiningOp<hopper::LoadTileOp>() &&
                   !op.getLhs().getDefiningOp<hopper::LoadTileOp>();
  bool isSum = sum && sum.getC() == op.getResult() && sum->getBlock() == op->getBlock();
  return isProduct && isSum ? sum : math::FmaOp();
}

/// Issues `op`, whose sums `sum` adds to others, in ranges of `columns` columns, each of which is
/// added before the next is issued.
static void issueInParts(RewriterBase &b, vector::ContractionOp op, math::FmaOp sum,
                         int64_t columns, SmallVectorImpl<hopper::WgmmaOp> &products) {
  Location loc = op.getLoc();
  auto rhs = op.getRhs().getDefiningOp<hopper::LoadTileOp>();
  auto tile = cast<MemRefType>(rhs.getTile().getType());
  auto type = cast<VectorType>(op.getResultType());
  // The tile is in use until the last part is complete.
  Operation *behind = sum;
  for (Operation *next = op->getNextNode(); next != sum;) {
    Operation *arrival = std::exchange(next, next->getNextNode());
    if (!isa<hopper::BarrierArriveOp>(arrival))
      continue;
    b.moveOpAfter(arrival, behind);
    behind = arrival;
  }
  b.setInsertionPoint(sum);
  Value result = sum.getA(), last;
  for (int64_t from = 0; from < type.getDimSize(1); from += columns) {
    columns = std::min(columns, type.getDimSize(1) - from);
    SmallVector<OpFoldResult> offsets(3, b.getIndexAttr(0)), strides(3, b.getIndexAttr(1)), sizes;
    for (int64_t extent : {tile.getDimSize(0), columns, tile.getDimSize(2)})
      sizes.push_back(b.getIndexAttr(extent));
    offsets[1] = b.getIndexAttr(from);
    Value rows = memref::SubViewOp::create(b, loc, rhs.getTile(), offsets, sizes, strides);
    auto part = VectorType::get({type.getDimSize(0), columns}, type.getElementType());
    // Otherwise ptxas would issue all parts before the first is added.
    Value acc = last && last.getType() == part ? last : Value();
    products.push_back(hopper::WgmmaOp::create(b, loc, part, op.getLhs(), /*first=*/Value(), rows,
                                               acc, /*transposed=*/UnitAttr(),
                                               /*depth=*/IntegerAttr(), /*transposedA=*/UnitAttr(),
                                               /*overwritten=*/acc ? b.getUnitAttr() : UnitAttr()));
    last = products.back().getD();
    auto take = [&](Value whole) -> Value {
      return vector::ExtractStridedSliceOp::create(b, loc, whole, ArrayRef<int64_t>{0, from},
                                                   part.getShape(), ArrayRef<int64_t>{1, 1});
    };
    Value added = math::FmaOp::create(b, loc, take(sum.getA()), take(sum.getB()), last);
    if (from + columns < type.getDimSize(1))
      added = hopper::PinOp::create(b, loc, part, added, /*weak=*/true);
    result = vector::InsertStridedSliceOp::create(b, loc, added, result, ArrayRef<int64_t>{0, from},
                                                  ArrayRef<int64_t>{1, 1});
  }
  b.replaceOp(sum, result);
  b.eraseOp(op);
  if (rhs->use_empty())
    b.eraseOp(rhs);
}

/// Returns the arrivals right after `product`, up to `end` or the next op with a side effect.
static SmallVector<Operation *> arrivalsBehind(hopper::WgmmaOp product, Operation *end) {
  SmallVector<Operation *> arrivals;
  for (Operation *op = product->getNextNode(); op != end; op = op->getNextNode()) {
    if (isa<hopper::BarrierArriveOp>(op))
      arrivals.push_back(op);
    else if (!isPure(op))
      break;
  }
  return arrivals;
}

/// Returns the first op in the block of `product` that uses it or contains a use.
static Operation *findFirstUse(hopper::WgmmaOp product) {
  Operation *first = nullptr;
  for (Operation *user : product->getUsers()) {
    Operation *here = product->getBlock()->findAncestorOpInBlock(*user);
    if (!first || here->isBeforeInBlock(first))
      first = here;
  }
  return first ? first : product->getNextNode();
}

/// Returns the number of products that are issued after `product` and before `end`.
static int64_t countBehind(hopper::WgmmaOp product, Operation *end) {
  int64_t count = 0;
  for (Operation *op = product->getNextNode(); op != end; op = op->getNextNode())
    count += isa<hopper::WgmmaOp>(op);
  return count;
}

/// Returns a wait between `product` and `end` after which `product` is complete too, because
/// products complete in issue order; null if there is none.
static hopper::WgmmaWaitOp findWaitThatCovers(hopper::WgmmaOp product, Operation *end) {
  int64_t behind = 0;
  for (Operation *op = product->getNextNode(); op != end; op = op->getNextNode()) {
    behind += isa<hopper::WgmmaOp>(op);
    if (auto wait = dyn_cast<hopper::WgmmaWaitOp>(op);
        wait && static_cast<int64_t>(wait.getPending()) <= behind)
      return wait;
  }
  return {};
}

/// Returns the register operand of `product` if the next step's value is computed before the wait
/// at `end`. Its registers must not change before that wait.
static Value findReplacedOperand(hopper::WgmmaOp product, Operation *end) {
  auto argument = dyn_cast<BlockArgument>(product.getA());
  auto loop = dyn_cast<scf::ForOp>(product->getParentOp());
  if (!argument || !loop || argument.getOwner() != loop.getBody() || argument.getArgNumber() == 0)
    return {};
  Value next = loop.getYieldedValues()[argument.getArgNumber() - 1];
  Operation *def = next.getDefiningOp();
  bool isBefore = def && def->getBlock() == loop.getBody() && def->isBeforeInBlock(end);
  return isBefore ? product.getA() : Value();
}

/// Returns the next product in the block if results of an earlier product are used before it.
static Operation *findProductBehindWork(hopper::WgmmaOp product) {
  bool works = false;
  for (Operation *op = product->getNextNode(); op; op = op->getNextNode()) {
    if (isa<hopper::WgmmaOp>(op))
      return works ? op : nullptr;
    works |= llvm::any_of(op->getOperands(), [](Value operand) {
      return isa_and_nonnull<hopper::WgmmaOp>(operand.getDefiningOp());
    });
  }
  return nullptr;
}

/// Inserts a wait for `product` in front of its first use.
static void insertWait(RewriterBase &b, hopper::WgmmaOp product) {
  Location loc = product.getLoc();
  Operation *first = findFirstUse(product);
  // The product is likely complete by then, and the wait frees the registers of its operand.
  if (isa<BlockArgument>(product.getA()) && isa<VectorType>(product.getA().getType()))
    if (Operation *next = findProductBehindWork(product); next && next->isBeforeInBlock(first))
      first = next;
  SmallVector<Operation *> arrivals = arrivalsBehind(product, first);
  int64_t pending = countBehind(product, first);
  SmallVector<Value> values = {product.getD()};
  auto wait = [&](bool held) {
    return hopper::WgmmaWaitOp::create(b, loc, ValueRange(values).getTypes(), values,
                                       b.getI64IntegerAttr(pending),
                                       held ? b.getUnitAttr() : UnitAttr());
  };
  auto branch = dyn_cast<scf::IfOp>(first);
  // A wait after which other products are pending is not moved above them.
  bool inArms = branch && branch.elseBlock() && pending == 0 &&
                llvm::all_of(product->getUsers(),
                             [&](Operation *user) { return branch->isProperAncestor(user); });
  Operation *behind = nullptr;
  if (inArms) {
    // ptxas hoists a wait to the start of its basic block, but not out of a branch. One of the two
    // waits is marked so that LLVM does not merge them in front of the branch.
    for (Block *arm : {branch.thenBlock(), branch.elseBlock()}) {
      b.setInsertionPointToStart(arm);
      auto waited = wait(/*held=*/arm == branch.elseBlock());
      b.replaceUsesWithIf(product.getD(), waited.getResult(0), [&](OpOperand &use) {
        return use.getOwner() != waited && arm->findAncestorOpInBlock(*use.getOwner());
      });
    }
    behind = branch;
  } else {
    if (hopper::WgmmaWaitOp covering = findWaitThatCovers(product, first)) {
      first = covering;
      pending = covering.getPending();
    }
    if (Value replaced = findReplacedOperand(product, first))
      values.push_back(replaced);
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

/// Moves the op that adds a tile's sums to those of a loop (F3) to the end of the loop's body, so
/// that the product overlaps everything else. Threads lack the registers for wider sums.
static void sinkSum(hopper::WgmmaOp product) {
  auto loop = dyn_cast<scf::ForOp>(product->getParentOp());
  auto sum = product->hasOneUse() ? dyn_cast<math::FmaOp>(*product->user_begin()) : math::FmaOp();
  constexpr int64_t kWidest = 64;
  if (!loop || !sum || product.getColumns() > kWidest || sum->getBlock() != loop.getBody())
    return;
  Operation *yield = loop.getBody()->getTerminator();
  if (llvm::all_of(sum->getUsers(), [&](Operation *user) { return user == yield; }))
    sum->moveBefore(yield);
}

namespace {
struct ContractToWgmmaPass : flashattn::impl::ContractToWgmmaBase<ContractToWgmmaPass> {
  void runOnOperation() override {
    IRRewriter rewriter(&getContext());
    SmallVector<vector::ContractionOp> contractions;
    getOperation()->walk([&](OnThreadsOp threads) {
      if (threads.getSchedule().getHopper())
        threads.walk([&](vector::ContractionOp op) {
          if (!isOnBranchOfWarps(op))
            contractions.push_back(op);
        });
    });
    SmallVector<hopper::WgmmaOp> products;
    for (vector::ContractionOp op : contractions) {
      int64_t columns = cast<VectorType>(op.getResultType()).getDimSize(1);
      math::FmaOp sum = findSum(op);
      if (int64_t part = hopper::getSumColumns(columns); sum && part < columns) {
        issueInParts(rewriter, op, sum, part, products);
        continue;
      }
      products.push_back(issue(rewriter, op));
      if (!products.back())
        return signalPassFailure();
    }
    for (hopper::WgmmaOp product : products)
      sinkSum(product);
    // In reverse order: the wait of a later product may cover the products before it.
    for (hopper::WgmmaOp product : llvm::reverse(products))
      insertWait(rewriter, product);
  }
};
} // namespace
