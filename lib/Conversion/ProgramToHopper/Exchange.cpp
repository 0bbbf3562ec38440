//===- Exchange.cpp - what consumers of one program have of each other -----===//
//
// Of each step they hand each other what products take transposed, and spare warps what is added;
// and they issue their products one after the other.
//
//===----------------------------------------------------------------------===//

#include "Block.h"

using namespace mlir;
using namespace mlir::flashattn;

/// Lets consumers of one program hand each other what products take transposed: it goes through
/// shared memory, by turns through one of two places. Whoever writes a place again has waited for
/// what its peers wrote a step later, and they for the products that read it.
void ConsumerBuilder::exchange(TileLoopOp loop, Value first, Value step) {
  constexpr int64_t kPlaces = 2;
  SmallVector<vector::ContractionOp> products =
      llvm::filter_to_vector(loop.getBody()->getOps<vector::ContractionOp>(), isLhsTransposed);
  Operation *published = nullptr;
  for (auto [i, product] : llvm::enumerate(products)) {
    Value tiles = block.exchanged[i], tile = product.getLhs();
    int64_t ready = plan.memory.exchangeReady + kPlaces * i;
    b.setInsertionPointAfter(tile.getDefiningOp());
    Value place = placeOf(now(loop, first, step), kPlaces);
    hopper::StoreTileOp::create(b, loc, tile, tileAt(tiles, place));
    published = hopper::PublishOp::create(b, loc, block.barriers, add(place, index(ready)));
    // In front of the product, or in a stage of its own if the program has left one empty.
    b.setInsertionPoint(product);
    if (StageOp stage = getStage(product); stage && isa_and_nonnull<StageOp>(stage->getPrevNode()))
      b.setInsertionPoint(stage);
    Value turn = now(loop, first, step);
    place = placeOf(turn, kPlaces);
    hopper::BarrierWaitOp::create(b, loc, block.barriers, add(place, index(ready)),
                                  parityOf(turn, kPlaces));
    b.setInsertionPoint(product);
    place = placeOf(now(loop, first, step), kPlaces);
    Value held =
        hopper::LoadTileOp::create(b, loc, cast<VectorType>(tile.getType()), tileAt(tiles, place));
    product.getLhsMutable().assign(held);
  }
  for (AddTileOp added : llvm::make_early_inc_range(loop.getBody()->getOps<AddTileOp>())) {
    b.setInsertionPoint(added);
    // Others add it, and let its place go.
    Value staging = block.staging.front();
    if (int64_t places = plan.getDqReduceStages()) {
      Value turn = now(loop, first, step);
      hopper::BarrierWaitOp::create(b, loc, block.barriers, stagingFree(turn),
                                    parityOf(turn, places, /*inverted=*/true));
      staging = stagingAt(turn);
    }
    hopper::StageTileOp::create(b, loc, added.getTile(), staging, /*warp=*/Value());
    // One fence a step for both: it waits for all that was written, behind what products read.
    if (published) {
      b.setInsertionPoint(loop.getBody()->getTerminator());
      StageOp::create(b, loc, /*lag=*/1, countStagesBefore(published));
    }
    hopper::FenceAsyncSharedOp::create(b, loc);
    if (plan.getDqReduceStages()) {
      Value place = placeOf(now(loop, first, step), WarpgroupBlockPlan::kSpareWarps);
      hopper::WarpArriveOp::create(b, loc, block.barriers, add(place, index(plan.memory.staged)));
    } else {
      hopper::AddStagedOp::create(b, loc, staging, added.getTarget(), getPlace(added),
                                  div(threadInGroup, index(32)));
    }
    b.eraseOp(added);
  }
}

/// Elements where the tile of `added` begins.
SmallVector<Value> ConsumerBuilder::getPlace(AddTileOp added) {
  SmallVector<Value> indices(added.getIndices());
  Value &row = indices[indices.size() - 2];
  row = mul(row, cast<VectorType>(added.getTile().getType()).getDimSize(0));
  return indices;
}

/// Adds tiles that `body` has behind its loop by way of the block's staging.
void ConsumerBuilder::addTiles(mlir::Block *body, Value step) {
  SmallVector<AddTileOp> tiles;
  body->walk([&](AddTileOp added) { tiles.push_back(added); });
  for (AddTileOp added : tiles) {
    b.setInsertionPoint(added);
    // Through the first place, of which others have read what is added of the last step there.
    if (int64_t places = plan.getDqReduceStages(); places && added == tiles.front()) {
      Value steps = add(toI32(step), i32(places - 1));
      hopper::BarrierWaitOp::create(b, loc, block.barriers, index(plan.memory.stagingFree),
                                    parityOf(steps, places, /*inverted=*/true));
    }
    hopper::AddTileOp::create(b, loc, added.getTile(), block.staging.front(), added.getTarget(),
                              getPlace(added), /*warp=*/Value());
    b.eraseOp(added);
  }
}

//===----------------------------------------------------------------------===//
// Turns
//===----------------------------------------------------------------------===//

/// Whether the two consumers of a program issue the first products of their steps by turns: where
/// something is made of these in a stage behind.
bool ConsumerBuilder::alternates(TileLoopOp loop) const {
  return plan.sharesProgram() && !plan.splitsSums() && plan.getConsumers() == 2 &&
         !loop.getBody()->getOps<StageOp>().empty();
}

/// Consumers of one program, which hand each other something in each step, would run their steps
/// side by side: both have products, then none has. So each issues its step's first ones when the
/// other has issued its own, and what is made of these runs beside the other's
/// (docs/rationale/gradient-step.md).
void ConsumerBuilder::alternate(TileLoopOp loop) {
  b.setInsertionPoint(*loop.getBody()->getOps<vector::ContractionOp>().begin());
  hopper::AwaitPeerOp::create(b, loc, kPeerBarriers);
  b.setInsertionPointAfter(*loop.getBody()->getOps<StageOp>().begin());
  hopper::WakePeerOp::create(b, loc, kPeerBarriers);
}
