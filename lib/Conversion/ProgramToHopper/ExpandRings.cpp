//===- ExpandRings.cpp - hopper-expand-rings ------------------------------===//

#include "KernelBuilder.h"
#include "flashattn/Conversion/Passes.h"
#include "flashattn/Dialect/Hopper/IR/Hopper.h"

namespace mlir::flashattn {
#define GEN_PASS_DEF_EXPANDRINGS
#include "flashattn/Conversion/Passes.h.inc"
} // namespace mlir::flashattn

using namespace mlir;
using namespace mlir::flashattn;
using namespace mlir::flashattn::hopper;

namespace {
/// Expands one op on a ring.
class RingExpander : public KernelBuilder {
public:
  RingExpander(RewriterBase &b, Operation *op, MakeRingOp ring)
      : KernelBuilder(b, op->getLoc()), ring(ring), stages(ring.getRingType().getStages()) {
    b.setInsertionPoint(op);
  }

  void init(RingInitOp op) {
    auto init = [&](int64_t first, int64_t arrivals) {
      for (int64_t i = 0; i < stages; ++i)
        BarrierInitOp::create(b, loc, ring.getBarriers(), index(first + i),
                              b.getI64IntegerAttr(arrivals));
    };
    // Each consumer arrives at an empty barrier.
    init(ring.getFull(), op.getProducers());
    init(ring.getEmpty(), op.getConsumers());
  }

  void put(RingPutOp op) {
    // In the first turn the wait falls through: it names the parity before the first phase. With
    // `idle`, it waits as the put of the step `idle` steps later would.
    Value last = toI32(op.getStep());
    if (op.getIdle())
      last = add(last, op.getIdle());
    wait(ring.getEmpty(), last, /*inverted=*/true);
    Value stage = stageOf(op.getStep()), tile = tileAt(ring.getTiles(), stage);
    Value full = add(stage, index(ring.getFull()));
    SharedTile copied = *SharedTile::get(tile.getType());
    copied.panels = op.getPanels().value_or(copied.panels);
    int64_t bytes = copied.getBytes() + op.getBeside().value_or(0);
    BarrierExpectOp::create(b, loc, ring.getBarriers(), full, b.getI64IntegerAttr(bytes));
    if (op.getPieces().empty()) {
      TmaLoadOp::create(b, loc, op.getMap(), op.getCoordinates(), tile, ring.getBarriers(), full,
                        op.getPanelsAttr());
      return;
    }
    int64_t rows = op.getMapType().getRows();
    SmallVector<Value> coordinates(op.getCoordinates());
    for (auto [number, piece] : llvm::enumerate(op.getPieces())) {
      coordinates[*op.getAlong()] = piece;
      if (!op.getPages().empty())
        coordinates.front() = op.getPages()[number];
      TmaLoadOp::create(b, loc, op.getMap(), coordinates, rowsOf(tile, number * rows, rows),
                        ring.getBarriers(), full, op.getPanelsAttr());
    }
  }

  void putRow(RingPutRowOp op) {
    Value stage = stageOf(op.getStep());
    BulkLoadOp::create(b, loc, op.getSource(), op.getIndices(), op.getPlaces(), stage,
                       ring.getBarriers(), add(stage, index(ring.getFull())));
  }

  Value get(RingGetOp op) {
    wait(ring.getFull(), op.getStep());
    return tileAt(ring.getTiles(), stageOf(op.getStep()));
  }

  void release(RingReleaseOp op) {
    BarrierArriveOp::create(b, loc, ring.getBarriers(),
                            add(stageOf(op.getStep()), index(ring.getEmpty())), op.getPredicate());
  }

  void drain(RingDrainOp op) { wait(ring.getEmpty(), op.getStep()); }

private:
  Value stageOf(Value step) { return slotOf(toI32(step), stages); }

  void wait(int64_t first, Value step, bool inverted = false) {
    Value barrier = add(stageOf(step), index(first));
    BarrierWaitOp::create(b, loc, ring.getBarriers(), barrier,
                          parityOf(toI32(step), stages, inverted));
  }

  MakeRingOp ring;
  int64_t stages;
};

struct ExpandRingsPass : flashattn::impl::ExpandRingsBase<ExpandRingsPass> {
  void runOnOperation() override {
    IRRewriter rewriter(&getContext());
    SmallVector<MakeRingOp> rings;
    SmallVector<Operation *> users;
    getOperation()->walk([&](Operation *op) {
      if (auto ring = dyn_cast<MakeRingOp>(op))
        rings.push_back(ring);
      else if (llvm::any_of(op->getOperandTypes(), llvm::IsaPred<RingType>))
        users.push_back(op);
    });
    for (Operation *op : users) {
      if (!isa<RingInitOp, RingPutOp, RingPutRowOp, RingGetOp, RingReleaseOp, RingDrainOp>(op)) {
        op->emitOpError() << "expected only hopper ops to use a ring but got '" << op->getName()
                          << "'";
        return signalPassFailure();
      }
      auto ring = op->getOperand(0).getDefiningOp<MakeRingOp>();
      if (!ring) {
        op->emitOpError() << "expected a ring of 'hopper.make_ring' but got " << op->getOperand(0);
        return signalPassFailure();
      }
      RingExpander expander(rewriter, op, ring);
      if (auto init = dyn_cast<RingInitOp>(op))
        expander.init(init);
      else if (auto put = dyn_cast<RingPutOp>(op))
        expander.put(put);
      else if (auto put = dyn_cast<RingPutRowOp>(op))
        expander.putRow(put);
      else if (auto get = dyn_cast<RingGetOp>(op))
        rewriter.replaceAllUsesWith(get.getTile(), expander.get(get));
      else if (auto drain = dyn_cast<RingDrainOp>(op))
        expander.drain(drain);
      else
        expander.release(cast<RingReleaseOp>(op));
      rewriter.eraseOp(op);
    }
    for (MakeRingOp ring : rings)
      rewriter.eraseOp(ring);
  }
};
} // namespace
