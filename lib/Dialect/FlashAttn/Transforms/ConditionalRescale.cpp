//===- ConditionalRescale.cpp - flashattn-conditional-rescale --------------===//
//
// Any base at all may be taken off the exponents of a row, as long as sum and output
// keep to the same one. An old maximum does while no weight outgrows its type.
//
//===----------------------------------------------------------------------===//

#include "flashattn/Dialect/FlashAttn/Transforms/Passes.h"
#include "flashattn/Dialect/FlashAttn/Transforms/Transforms.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Math/IR/Math.h"
#include "mlir/Dialect/SCF/IR/SCF.h"
#include "mlir/Dialect/Vector/IR/VectorOps.h"
#include "mlir/IR/IRMapping.h"
#include "mlir/IR/Matchers.h"
#include "mlir/IR/PatternMatch.h"

namespace mlir::flashattn {
#define GEN_PASS_DEF_CONDITIONALRESCALE
#include "flashattn/Dialect/FlashAttn/Transforms/Passes.h.inc"
} // namespace mlir::flashattn

using namespace mlir;
using namespace mlir::flashattn;

namespace {
/// The online softmax of one key loop, as flashattn-tile writes it.
struct OnlineSoftmax {
  vector::MultiDimReductionOp max;      ///< of the scores and the maximum so far
  arith::SubFOp difference;             ///< old max - base
  arith::MulFOp exponent;               ///< difference * c
  math::Exp2Op rescale;                 ///< exp2(exponent)
  double factor;                        ///< c, scale * log2(e)
  SmallVector<arith::MulFOp> rescaled;  ///< sum and output times `rescale`
  vector::MultiDimReductionOp sum;      ///< of the weights and the rescaled sum

  static FailureOr<OnlineSoftmax> find(scf::ForOp loop);
};
} // namespace

/// Looks through what only spreads row values along a tile.
static void collectUsers(Value row, SmallVectorImpl<Operation *> &users) {
  for (Operation *user : row.getUsers())
    if (isa<vector::ShapeCastOp, vector::BroadcastOp>(user))
      collectUsers(user->getResult(0), users);
    else
      users.push_back(user);
}

FailureOr<OnlineSoftmax> OnlineSoftmax::find(scf::ForOp loop) {
  OnlineSoftmax found{};
  for (auto op : loop.getBody()->getOps<vector::MultiDimReductionOp>())
    if (op.getKind() == vector::CombiningKind::MAXNUMF &&
        llvm::is_contained(loop.getRegionIterArgs(), op.getAcc()))
      found.max = op;
  if (!found.max)
    return failure();
  // (old max - base) c is the only exponent made of the old maximum.
  for (Operation *user : found.max.getAcc().getUsers())
    if (auto difference = dyn_cast<arith::SubFOp>(user); difference && difference->hasOneUse())
      found.difference = difference;
  if (!found.difference)
    return failure();
  found.exponent = dyn_cast<arith::MulFOp>(*found.difference->user_begin());
  DenseFPElementsAttr c;
  if (!found.exponent || !found.exponent->hasOneUse() ||
      !matchPattern(found.exponent.getRhs(), m_Constant(&c)) || !c.isSplat())
    return failure();
  found.factor = c.getSplatValue<APFloat>().convertToFloat();
  found.rescale = dyn_cast<math::Exp2Op>(*found.exponent->user_begin());
  if (!found.rescale)
    return failure();
  SmallVector<Operation *> users;
  collectUsers(found.rescale, users);
  for (Operation *user : users) {
    auto product = dyn_cast<arith::MulFOp>(user);
    if (!product)
      return failure();
    found.rescaled.push_back(product);
    if (product->hasOneUse())
      if (auto sum = dyn_cast<vector::MultiDimReductionOp>(*product->user_begin()))
        found.sum = sum;
  }
  if (!found.sum)
    return failure();
  llvm::sort(found.rescaled, [](Operation *x, Operation *y) { return x->isBeforeInBlock(y); });
  return found;
}

static Value splat(OpBuilder &b, Location loc, VectorType type, const APFloat &value) {
  return arith::ConstantOp::create(b, loc, DenseElementsAttr::get(type, value));
}

/// Makes the rescaling of `softmax` depend on whether a maximum grew by more than
/// 2^`growth`, in the exponent's terms.
static void makeConditional(RewriterBase &b, OnlineSoftmax &softmax, int64_t lanes,
                            int64_t growth) {
  Location loc = softmax.max.getLoc();
  Value scores = softmax.max.getSource(), oldMax = softmax.max.getAcc();
  auto tile = cast<VectorType>(scores.getType());
  int64_t m = tile.getDimSize(0), n = tile.getDimSize(1);
  Type f32 = tile.getElementType();
  auto f32Vector = [&](ArrayRef<int64_t> shape) { return VectorType::get(shape, f32); };
  auto rowType = f32Vector({m}), laneType = f32Vector({m, lanes});

  // The maximum by lane, as each thread has it before any exchange.
  b.setInsertionPoint(softmax.max);
  constexpr int64_t pair = 2; // adjacent columns that one lane holds
  Value grouped = vector::ShapeCastOp::create(
      b, loc, f32Vector({m, n / (lanes * pair), lanes, pair}), scores);
  Value lowest = splat(b, loc, laneType, APFloat::getInf(APFloat::IEEEsingle(), /*Negative=*/true));
  Value laneMax = vector::MultiDimReductionOp::create(b, loc, grouped, lowest,
                                                      ArrayRef<bool>{false, true, false, true},
                                                      vector::CombiningKind::MAXNUMF);
  Value limit = arith::AddFOp::create(
      b, loc, oldMax,
      splat(b, loc, rowType, APFloat(static_cast<float>(growth / softmax.factor))));
  limit = vector::ShapeCastOp::create(b, loc, f32Vector({m, 1}), limit);
  limit = vector::BroadcastOp::create(b, loc, laneType, limit);
  // -inf beside -inf, a row that has seen nothing, compares false; -inf beside anything, true.
  Value grown = arith::CmpFOp::create(b, loc, arith::CmpFPredicate::OGT, laneMax, limit);
  Value any = AnyRowOp::create(b, loc, grown);
  auto newMax = scf::IfOp::create(
      b, loc, any,
      [&](OpBuilder &nested, Location l) {
        Value max = vector::MultiDimReductionOp::create(nested, l, laneMax, oldMax,
                                                        ArrayRef<bool>{false, true},
                                                        vector::CombiningKind::MAXNUMF);
        scf::YieldOp::create(nested, l, max);
      },
      [&](OpBuilder &nested, Location l) { scf::YieldOp::create(nested, l, oldMax); });
  b.replaceOp(softmax.max, newMax.getResult(0));

  // The weights' own sum does not wait for the rescaled one.
  vector::MultiDimReductionOp sum = softmax.sum;
  b.setInsertionPoint(sum);
  auto sumType = cast<VectorType>(sum.getDestType());
  Value zero = splat(b, loc, sumType, APFloat(0.0f));
  Value weightSum = vector::MultiDimReductionOp::create(
      b, loc, sum.getSource(), zero, sum.getReductionMask(), vector::CombiningKind::ADD);
  Operation *last = softmax.rescaled.back();
  b.setInsertionPointAfter(last->isBeforeInBlock(sum) ? sum.getOperation() : last);

  SmallVector<Value> unscaled;
  for (arith::MulFOp product : softmax.rescaled)
    unscaled.push_back(product.getLhs());
  auto rescaled = scf::IfOp::create(
      b, loc, any,
      [&](OpBuilder &nested, Location l) {
        IRMapping mapping;
        // The factor and its spread along tiles are computed here alone.
        Operation *factor[] = {softmax.difference, softmax.exponent, softmax.rescale};
        std::function<void(Operation *)> clone = [&](Operation *op) {
          for (Value operand : op->getOperands())
            if (Operation *def = operand.getDefiningOp();
                def && !mapping.contains(operand) &&
                (isa<vector::ShapeCastOp, vector::BroadcastOp>(def) ||
                 llvm::is_contained(factor, def)))
              clone(def);
          nested.clone(*op, mapping);
        };
        SmallVector<Value> products;
        for (arith::MulFOp product : softmax.rescaled) {
          clone(product);
          products.push_back(mapping.lookup(product.getResult()));
        }
        scf::YieldOp::create(nested, l, products);
      },
      [&](OpBuilder &nested, Location l) { scf::YieldOp::create(nested, l, unscaled); });
  Value oldSum = sum.getAcc();
  for (auto [product, value] : llvm::zip(softmax.rescaled, rescaled.getResults()))
    if (product.getResult() == oldSum)
      b.replaceOp(sum, arith::AddFOp::create(b, loc, value, weightSum));
    else
      b.replaceOp(product, value);
  // What only led to the factor is dead.
  for (Operation &op : llvm::make_early_inc_range(llvm::reverse(*rescaled->getBlock())))
    if (isOpTriviallyDead(&op))
      b.eraseOp(&op);
}

LogicalResult mlir::flashattn::rescaleConditionally(RewriterBase &rewriter, scf::ForOp loop,
                                                    int64_t lanes, int64_t growth) {
  FailureOr<OnlineSoftmax> softmax = OnlineSoftmax::find(loop);
  if (failed(softmax))
    return failure();
  makeConditional(rewriter, *softmax, lanes, growth);
  return success();
}

namespace {
struct ConditionalRescalePass
    : flashattn::impl::ConditionalRescaleBase<ConditionalRescalePass> {
  void runOnOperation() override {
    IRRewriter rewriter(&getContext());
    for (scf::ForallOp program : findSpecializedPrograms(getOperation())) {
      auto schedule = program->getAttrOfType<ScheduleAttr>(kScheduleAttrName);
      int64_t growth = schedule.getRoles().getRescale();
      SmallVector<scf::ForOp> loops;
      program.walk([&](scf::ForOp loop) {
        if (!loop.getBody()->getOps<vector::ContractionOp>().empty())
          loops.push_back(loop);
      });
      for (scf::ForOp loop : loops)
        if (failed(rescaleConditionally(rewriter, loop, schedule.getLanes(), growth))) {
          loop.emitOpError() << "expected a key loop with the online softmax of flashattn-tile";
          return signalPassFailure();
        }
    }
  }
};
} // namespace
