//===- Exchange.cpp - exchange between consumers of one program -----------===//
//
// In each step, consumers exchange the tiles that products read transposed, pass the tiles to be
// added to spare warps, and take turns to issue products.
//
//===----------------------------------------------------------------------===//

#include "Block.h"

using namespace mlir;
using namespace mlir::flashattn;

/// Lets the consumers of a program exchange the operands that products read transposed, through two
/// alternating buffers in shared memory. A consumer that overwrites a buffer has waited for its
/// peers' tiles of the next step, and the peers had waited for the products that read the buffer.
void ConsumerBuilder::exchange(TileLoopOp loop, Value first, Value step) {
  constexpr int64_t kBuffers = 2;
  SmallVector<vector::ContractionOp> products =
      llvm::filter_to_vector(loop.getBody()->getOps<vector::ContractionOp>(), isLhsTransposed);
  Operation *published = nullptr;
  for (auto [i, product] : llvm::enumerate(products)) {
    Value tiles = block.exchanged[i], tile = product.getLhs();
    int64_t ready = plan.memory.exchangeReady + kBuffers * i;
    b.setInsertionPointAfter(tile.getDefiningOp());
    Value place = slotOf(now(loop, first, step), kBuffers);
    hopper::StoreTileOp::create(b, loc, tile, tileAt(tiles, place));
    published = hopper::PublishOp::create(b, loc, block.barriers, add(place, index(ready)));
    // Waits in front of the product or, if the program has left a stage empty, in that stage.
    b.setInsertionPoint(product);
    if (StageOp stage = getStage(product); stage && isa_and_nonnull<StageOp>(stage->getPrevNode()))
      b.setInsertionPoint(stage);
    Value turn = now(loop, first, step);
    place = slotOf(turn, kBuffers);
    hopper::BarrierWaitOp::create(b, loc, block.barriers, add(place, index(ready)),
                                  parityOf(turn, kBuffers));
    b.setInsertionPoint(product);
    place = slotOf(now(loop, first, step), kBuffers);
    Value held =
        hopper::LoadTileOp::create(b, loc, cast<VectorType>(tile.getType()), tileAt(tiles, place));
    product.getLhsMutable().assign(held);
  }
  for (AddTileOp added : llvm::make_early_inc_range(loop.getBody()->getOps<AddTileOp>())) {
    b.setInsertionPoint(added);
    // Spare warps add the tile and free its buffer.
    Value staging = block.staging.front();
    if (int64_t places = plan.getDqReduceStages()) {
      Value turn = now(loop, first, step);
      hopper::BarrierWaitOp::create(b, loc, block.barriers, stagingFree(turn),
                                    parityOf(turn, places, /*inverted=*/true));
      staging = stagingAt(turn);
    }
    hopper::StageTileOp::create(b, loc, added.getTile(), staging, /*warp=*/Value());
    // One fence per step serves both: it waits for all earlier writes, after the products' reads.
    if (published) {
      b.setInsertionPoint(loop.getBody()->getTerminator());
      StageOp::create(b, loc, /*lag=*/1, countStagesBefore(published));
    }
    hopper::FenceAsyncSharedOp::create(b, loc);
    if (plan.getDqReduceStages()) {
      Value place = slotOf(now(loop, first, step), WarpgroupBlockPlan::kSpareWarps);
      hopper::WarpArriveOp::create(b, loc, block.barriers, add(place, index(plan.memory.staged)));
    } else {
      hopper::AddStagedOp::create(b, loc, staging, added.getTarget(), getPosition(added),
                                  div(threadInGroup, index(32)));
    }
    b.eraseOp(added);
  }
}

/// Returns the element indices at which the tile of `added` begins.
SmallVector<Value> ConsumerBuilder::getPosition(AddTileOp added) {
  SmallVector<Value> indices(added.getIndices());
  Value &row = indices[indices.size() - 2];
  row = mul(row, cast<VectorType>(added.getTile().getType()).getDimSize(0));
  return indices;
}

/// Adds the tiles that `body` adds after its loop, through the staging buffer.
void ConsumerBuilder::addTiles(mlir::Block *body, Value step) {
  SmallVector<AddTileOp> tiles;
  body->walk([&](AddTileOp added) { tiles.push_back(added); });
  for (AddTileOp added : tiles) {
    b.setInsertionPoint(added);
    // The tiles use the first staging buffer. Waits until the last step's tile there has been read.
    if (int64_t places = plan.getDqReduceStages(); places && added == tiles.front()) {
      Value steps = add(toI32(step), i32(places - 1));
      hopper::BarrierWaitOp::create(b, loc, block.barriers, index(plan.memory.stagingFree),
                                    parityOf(steps, places, /*inverted=*/true));
    }
    hopper::AddTileOp::create(b, loc, added.getTile(), block.staging.front(), added.getTarget(),
                              getPosition(added), /*warp=*/Value());
    b.eraseOp(added);
  }
}

//===----------------------------------------------------------------------===//
// Turns
//===----------------------------------------------------------------------===//

/// Whether the two consumers of a program take turns to issue the first products of their steps.
/// This requires that a later stage works on the results of these products.
bool ConsumerBuilder::alternates(TileLoopOp loop) const {
  return plan.sharesProgram() && !plan.splitsSums() && plan.getConsumers() == 2 &&
         !loop.getBody()->getOps<StageOp>().empty();
}

/// Exchanging tiles in each step would run the two consumers in phase: both would have products in
/// flight, then neither. So each consumer issues the first products of a step after its peer has
/// issued its own. The work on their results then overlaps with the peer's products
/// (docs/rationale/gradient-step.md).
void ConsumerBuilder::alternate(TileLoopOp loop) {
  b.setInsertionPoint(*loop.getBody()->getOps<vector::ContractionOp>().begin());
  hopper::AwaitPeerOp::create(b, loc, kPeerBarriers);
  b.setInsertionPointAfter(*loop.getBody()->getOps<StageOp>().begin());
  hopper::WakePeerOp::create(b, loc, kPeerBarriers);
}
