//===- StageShared.cpp - flashattn-stage-shared ---------------------------===//
//
// Tile reads become asynchronous copies to shared memory, double-buffered along the key loops.
// Warps also exchange computed tiles through shared memory.
//
//===----------------------------------------------------------------------===//

#include "TileCopier.h"
#include "TileLayout.h"
#include "flashattn/Conversion/Passes.h"
#include "flashattn/Dialect/FlashAttn/Program/TileBuilder.h"
#include "flashattn/Dialect/FlashAttn/Program/TileLoops.h"
#include "flashattn/Target/ResourcePlans.h"
#include "mlir/Dialect/LLVMIR/NVVMDialect.h"
#include "mlir/Dialect/MemRef/IR/MemRef.h"
#include "mlir/Dialect/NVGPU/IR/NVGPUDialect.h"
#include "mlir/Dialect/SCF/IR/SCF.h"
#include "mlir/Dialect/Vector/IR/VectorOps.h"
#include "mlir/IR/IRMapping.h"
#include "mlir/IR/Matchers.h"
#include "mlir/IR/PatternMatch.h"

namespace mlir::flashattn {
#define GEN_PASS_DEF_STAGESHARED
#include "flashattn/Conversion/Passes.h.inc"
} // namespace mlir::flashattn

using namespace mlir;
using namespace mlir::flashattn;

namespace {

/// Stages the operands of one program's contractions in shared memory.
class Stager : TileCopier {
public:
  Stager(RewriterBase &b, OnThreadsOp program)
      : TileCopier(b, program.getLoc(), program.getThread(),
                   32 * program.getScheduleAttr().getWarps()),
        b(b), program(program), schedule(program.getScheduleAttr()) {}

  /// Returns failure after an error at a tile that cannot be copied in chunks.
  LogicalResult run();

private:
  /// A loop whose tiles are staged. If each round has one interval, rounds are pipelined: the last
  /// step of a round prefetches the first tiles of the next round.
  struct StagedLoop {
    TileLoopOp loop;
    scf::ForOp rounds; ///< the loop over rounds, or null
  };
  /// A step of such a loop.
  struct Step {
    Value place;
    Value round;  ///< null without rounds
    Value number; ///< index over all rounds, which selects the buffer
  };

  /// Tiles that warps exchange in a step, and the products that read them.
  struct Exchange {
    SmallVector<Value> tiles;
    SmallVector<vector::ContractionOp> products;
  };

  Value view(const SharedBuffer &buffer, Type element);
  IRMapping mapTo(const StagedLoop &staged, const Step &step);
  Copy getCopy(TileLoopOp loop, LoadTileOp load, IRMapping &mapping);
  void commit();
  void commitAndWait(ArrayRef<Copy> narrow = {}, Value stage = {});
  vector::TransferReadOp readTile(VectorType tile, Value buffer, Value stage);
  void readFrom(LoadTileOp load, Value buffer, Value stage);
  void exchange(const Exchange &exchanged, const SharedBuffer *buffers);
  Exchange findExchange(TileLoopOp loop);
  Value stageOf(Value number);
  void copyAt(const StagedLoop &staged, const Step &step);
  void stageResident(LoadTileOp load, Value buffer, bool isHeld);
  Step enterRound(const StagedLoop &staged, Value round, Value place);
  void stageLoop(const StagedLoop &staged);

  RewriterBase &b;
  OnThreadsOp program;
  ScheduleAttr schedule;
  Value pool;                            ///< the block's dynamic shared memory, bytes
  DenseMap<Operation *, Value> bufferOf; ///< load to its stages in shared memory
  DenseMap<Operation *, Value> narrowOf; ///< load to its tile before a conversion
  /// Load to its tile before a conversion and to its stages, both as vectors.
  DenseMap<Operation *, Vectors> vectorsOf;
};

} // namespace

/// Returns a view of `buffer` in the block's shared memory.
Value Stager::view(const SharedBuffer &buffer, Type element) {
  auto space = gpu::AddressSpaceAttr::get(b.getContext(), gpu::AddressSpace::Workgroup);
  SmallVector<int64_t> shape(buffer.shape);
  // A narrow tile has one stage.
  if (shape.size() == 2)
    shape.insert(shape.begin(), 1);
  if (auto vector = dyn_cast<VectorType>(element))
    shape = {ShapedType::getNumElements(shape) / vector.getNumElements()};
  auto type = MemRefType::get(shape, element, MemRefLayoutAttrInterface{}, space);
  OpBuilder::InsertionGuard guard(b);
  b.setInsertionPointAfter(pool.getDefiningOp());
  return memref::ViewOp::create(b, loc, type, pool, index(buffer.offset), ValueRange());
}

/// Finds products whose left-hand sides must be exchanged: each warp computes only a part of an
/// operand that is contracted over its rows, or whose rows warps share.
Stager::Exchange Stager::findExchange(TileLoopOp loop) {
  Exchange found;
  for (auto product : loop.getBody()->getOps<vector::ContractionOp>()) {
    Value tile = product.getLhs();
    if (tile.getDefiningOp<LoadTileOp>() ||
        (!isLhsTransposed(product) && schedule.getColumnWarps() == 1))
      continue;
    found.products.push_back(product);
    if (!llvm::is_contained(found.tiles, tile))
      found.tiles.push_back(tile);
  }
  return found;
}

/// Commits the copies issued so far as a group. An nvgpu group without tokens does not round-trip:
/// the parser takes the result on the next line for its token.
void Stager::commit() { NVVM::CpAsyncCommitGroupOp::create(b, loc); }

/// Commits the group, waits for all groups, converts narrow tiles to stage `stage` of their
/// buffers, and makes all tiles visible to all threads.
void Stager::commitAndWait(ArrayRef<Copy> narrow, Value stage) {
  auto tokenType = nvgpu::DeviceAsyncTokenType::get(b.getContext());
  Value group = nvgpu::DeviceAsyncCreateGroupOp::create(b, loc, tokenType, ValueRange());
  nvgpu::DeviceAsyncWaitOp::create(b, loc, group, b.getI32IntegerAttr(0));
  for (const Copy &copy : narrow)
    convertTile(copy, vectorsOf.lookup(copy.load), stage);
  gpu::BarrierOp::create(b, loc);
}

/// Maps a stage of a buffer to rows and columns.
static AffineMap getTileMap(Builder &b) {
  return AffineMap::get(3, 0, {b.getAffineDimExpr(1), b.getAffineDimExpr(2)}, b.getContext());
}

vector::TransferReadOp Stager::readTile(VectorType tile, Value buffer, Value stage) {
  Value zero = index(0);
  Value padding = arith::ConstantOp::create(b, loc, b.getZeroAttr(tile.getElementType()));
  return vector::TransferReadOp::create(b, loc, tile, buffer, ValueRange{stage, zero, zero},
                                        padding, getTileMap(b), ArrayRef<bool>{true, true});
}

void Stager::readFrom(LoadTileOp load, Value buffer, Value stage) {
  b.replaceOp(load, readTile(load.getTileType(), buffer, stage));
}

/// Exchanges tiles that products read across warps. Each warp stores its part where it is computed,
/// and all warps synchronize before the first product that reads a part not yet visible. All warps
/// have also synchronized at the start of the step, so no warp still reads the previous tile.
void Stager::exchange(const Exchange &exchanged, const SharedBuffer *buffers) {
  if (exchanged.products.empty())
    return;
  b.setInsertionPointToStart(exchanged.products.front()->getBlock());
  Value zero = index(0);
  DenseMap<Value, Value> bufferOfTile;
  for (Value tile : exchanged.tiles) {
    Value buffer = bufferOfTile[tile] = view(*buffers++, schedule.getDotType());
    b.setInsertionPointAfterValue(tile);
    vector::TransferWriteOp::create(b, loc, tile, buffer, ValueRange{zero, zero, zero},
                                    getTileMap(b), ArrayRef<bool>{true, true});
  }
  Operation *barrier = nullptr;
  for (vector::ContractionOp product : exchanged.products) {
    Value tile = product.getLhs();
    b.setInsertionPoint(product);
    if (!barrier || barrier->isBeforeInBlock(tile.getDefiningOp()))
      barrier = gpu::BarrierOp::create(b, loc);
    product.getLhsMutable().assign(
        readTile(cast<VectorType>(tile.getType()), bufferOfTile.lookup(tile), zero));
  }
}

Value Stager::stageOf(Value number) {
  if (schedule.getStages() == 1)
    return index(0);
  return arith::AndIOp::create(b, loc, number, index(schedule.getStages() - 1));
}

/// Returns the loads in `block` whose tiles threads share. Tiles that modify scores elementwise,
/// such as a bias, are loaded by each thread for itself.
static SmallVector<LoadTileOp> sharedLoads(Block &block) {
  return llvm::filter_to_vector(block.getOps<LoadTileOp>(),
                                [](LoadTileOp load) { return isFactor(load); });
}

/// Verifies that `load` consists of 16-byte chunks of rows along one dimension.
static LogicalResult verifyChunks(LoadTileOp load) {
  int64_t last = load.getMemRefType().getRank() - 1;
  ArrayRef<int64_t> dims = load.getDims();
  if (dims.size() != 2 || !load.isDense() || dims.back() != last)
    return load.emitOpError() << "expected a contraction's operand with rows along one dimension "
                                 "and columns along the last dimension, "
                              << last << ", but got dims " << dims;
  if (load.getOnes() || !load.getSegments().empty())
    return load.emitOpError() << "expected "
                              << (load.getOnes() ? "columns of ones" : "compacted rows")
                              << " only with warp specialization";
  VectorType tile = load.getTileType();
  if (!tile.getElementType().isIntOrFloat() ||
      tile.getDimSize(1) * load.getMemRefType().getElementTypeBitWidth() % 128 != 0)
    return load.emitOpError() << "expected rows of a multiple of 16 bytes but got " << tile;
  return success();
}

/// Returns the mapping of the values of a step.
IRMapping Stager::mapTo(const StagedLoop &staged, const Step &step) {
  TileLoopOp loop = staged.loop;
  IRMapping mapping;
  mapping.map(loop.getPlace(), step.place);
  mapping.map(loop.getTile(), getTileNumber(b, loc, loop, step.place));
  if (step.round)
    mapping.map(scf::ForOp(staged.rounds).getInductionVar(), step.round);
  return mapping;
}

/// Returns the copy of a tile of the step of `mapping`. The last step's tiles may extend past the
/// end.
TileCopier::Copy Stager::getCopy(TileLoopOp loop, LoadTileOp load, IRMapping &mapping) {
  bool lastIsFull = getRuns(loop).back().isFull;
  SmallVector<Value> indices =
      llvm::map_to_vector(load.getIndices(), [&](Value v) { return clone(v, mapping, loop); });
  Value scales = load.getScales() ? clone(load.getScales(), mapping, loop) : Value();
  Copy copy{load, clone(load.getSource(), mapping, loop), getTileOrigin(b, load, indices),
            SmallVector<bool>(load.getInBounds()), scales};
  for (auto [dim, inside] : llvm::zip_equal(load.getDims(), copy.inBounds))
    inside |= lastIsFull && load.getIndices()[dim] == loop.getTile();
  return copy;
}

/// Issues the copies of all tiles of a step. Narrow tiles are converted later.
void Stager::copyAt(const StagedLoop &staged, const Step &step) {
  TileLoopOp loop = staged.loop;
  Value stage = stageOf(step.number);
  IRMapping mapping = mapTo(staged, step);
  for (LoadTileOp load : sharedLoads(*loop.getBody())) {
    Copy copy = getCopy(loop, load, mapping);
    Value narrow = narrowOf.lookup(load);
    copyTile(copy, narrow ? narrow : bufferOf.lookup(load), narrow ? index(0) : stage);
  }
}

/// Returns the step at `place` of `round`. `round` is null without rounds.
Stager::Step Stager::enterRound(const StagedLoop &staged, Value round, Value place) {
  if (!round)
    return {place, round, place};
  SmallVector<TileRun> runs = getRuns(staged.loop);
  Value steps = sub(runs.back().end, runs.front().begin);
  return {place, round, add(place, mul(round, steps))};
}

void Stager::stageLoop(const StagedLoop &staged) {
  TileLoopOp loop = staged.loop;
  scf::ForOp rounds = staged.rounds;
  SmallVector<TileRun> runs = getRuns(loop);
  if (runs.empty())
    return;
  Value begin = runs.front().begin, end = runs.back().end;
  auto guardedCopy = [&](Value guard, const Step &step) {
    auto guarded = scf::IfOp::create(b, loc, guard, /*withElseRegion=*/false);
    OpBuilder::InsertionGuard inside(b);
    b.setInsertionPointToStart(guarded.thenBlock());
    copyAt(staged, step);
  };
  SmallVector<LoadTileOp> loads = sharedLoads(*loop.getBody());
  bool doubled = schedule.getStages() > 1;
  if (doubled) {
    // All threads must have read the buffers of an earlier interval.
    b.setInsertionPoint(rounds ? rounds.getOperation() : loop.getOperation());
    gpu::BarrierOp::create(b, loc);
    Value any = less(begin, end), first;
    if (rounds) {
      first = rounds.getLowerBound();
      any = arith::AndIOp::create(b, loc, any, less(first, rounds.getUpperBound()));
    }
    // A loop that does not run waits for no copy.
    if (loop.getWhen())
      any = arith::AndIOp::create(b, loc, any, loop.getWhen());
    guardedCopy(any, enterRound(staged, first, begin));
    commit();
  }
  b.setInsertionPointToStart(loop.getBody());
  Step step = enterRound(staged, rounds ? rounds.getInductionVar() : Value(), loop.getPlace());
  SmallVector<Copy> narrow;
  if (llvm::any_of(loads, [](LoadTileOp load) { return load.converts(); })) {
    IRMapping mapping = mapTo(staged, step);
    for (LoadTileOp load : loads)
      if (load.converts())
        narrow.push_back(getCopy(loop, load, mapping));
  }
  if (doubled) {
    // After this, the tile is complete and the other buffer, read in the previous step, is free.
    commitAndWait(narrow, stageOf(step.number));
    Value one = index(1);
    Step next = {arith::AddIOp::create(b, loc, step.place, one), Value(), Value()};
    Value exists = less(next.place, end);
    next.number = rounds ? add(step.number, one) : next.place;
    if (rounds) {
      next.place = select(exists, next.place, begin);
      next.round = select(exists, step.round, add(step.round, one));
      exists = less(next.round, rounds.getUpperBound());
    }
    guardedCopy(exists, next);
    commit();
  } else {
    gpu::BarrierOp::create(b, loc);
    copyAt(staged, step);
    commitAndWait(narrow, stageOf(step.number));
  }
  for (LoadTileOp load : loads) {
    b.setInsertionPoint(load);
    readFrom(load, bufferOf.lookup(load), stageOf(step.number));
  }
}

/// Stages a tile that is loaded once, before the loops, such as the queries.
void Stager::stageResident(LoadTileOp load, Value buffer, bool isHeld) {
  b.setInsertionPoint(load);
  // In a loop over programs, threads may still read the previous tile.
  if (load->getParentOfType<scf::ForOp>())
    gpu::BarrierOp::create(b, loc);
  Copy copy{load, load.getSource(), getTileOrigin(b, load, load.getIndices()),
            SmallVector<bool>(load.getInBounds()), load.getScales()};
  Value narrow = narrowOf.lookup(load);
  copyTile(copy, narrow ? narrow : buffer, index(0));
  commitAndWait(narrow ? ArrayRef(copy) : ArrayRef<Copy>(), index(0));
  if (isHeld) {
    readFrom(load, buffer, index(0));
    return;
  }
  // Too large for registers: reread in every step.
  for (OpOperand &use : llvm::make_early_inc_range(load->getUses())) {
    b.setInsertionPoint(use.getOwner());
    auto copy = cast<LoadTileOp>(b.clone(*load));
    use.set(copy.getResult());
    readFrom(copy, buffer, index(0));
  }
  b.eraseOp(load);
}

/// Returns a thread's registers for residents, for carried accumulators, and for other products.
static MmaRegisters countRegisters(ScheduleAttr schedule, ArrayRef<LoadTileOp> residents,
                                   TileLoopOp loop) {
  auto count = [&](int64_t qRegisterColumns, int64_t scoreColumns, int64_t outputColumns) {
    return countMmaRegisters(schedule.getTileM(), scoreColumns, schedule.getWarps(),
                             qRegisterColumns, outputColumns, schedule.getDotType().isF32(),
                             /*hasAttnMask=*/false);
  };
  int64_t held = 0, scores = 0, sums = 0;
  for (LoadTileOp load : residents)
    held += load.getTileType().getDimSize(1);
  for (auto contraction : loop.getBody()->getOps<vector::ContractionOp>()) {
    // Warps compute these products when the scores are no longer live.
    if (isLhsTransposed(contraction))
      continue;
    bool isSum = !matchPattern(contraction.getAcc(), m_AnyZeroFloat());
    (isSum ? sums : scores) += cast<VectorType>(contraction.getType()).getDimSize(1);
  }
  return count(held, scores, sums);
}

/// Returns the shape of a tile for the memory plan.
static TileShape getShape(Value tile) {
  auto type = cast<VectorType>(tile.getType());
  return {"tile", type.getDimSize(0), type.getDimSize(1)};
}

static SmallVector<TileShape> getShapes(ArrayRef<LoadTileOp> loads) {
  return llvm::map_to_vector(loads, [](LoadTileOp load) {
    TileShape shape = getShape(load.getTile());
    if (load.converts())
      shape.source = {shape.rows, shape.columns};
    return shape;
  });
}

LogicalResult Stager::run() {
  if (!llvm::isPowerOf2_64(schedule.getStages()))
    return program.emitOpError() << "expected stages to be a power of 2 but got "
                                 << schedule.getStages();
  b.setInsertionPointToStart(program.getBody());
  auto space = gpu::AddressSpaceAttr::get(b.getContext(), gpu::AddressSpace::Workgroup);
  auto poolType =
      MemRefType::get({ShapedType::kDynamic}, b.getI8Type(), MemRefLayoutAttrInterface{}, space);
  pool = gpu::DynamicSharedMemoryOp::create(b, loc, poolType);
  SmallVector<TileLoopOp> loops;
  SmallVector<LoadTileOp> resident, streamed;
  bool areValid = true;
  program.walk([&](Operation *op) {
    if (auto loop = dyn_cast<TileLoopOp>(op))
      loops.push_back(loop);
    auto load = dyn_cast<LoadTileOp>(op);
    if (!load || !isFactor(load))
      return;
    areValid &= succeeded(verifyChunks(load));
    if (!load->getParentOfType<TileLoopOp>())
      resident.push_back(load);
  });
  if (!areValid)
    return failure();
  SmallVector<Exchange> exchanges;
  SmallVector<TileShape> exchanged;
  SmallVector<StagedLoop> staged;
  // If warps share rows, each would hold all columns of the queries.
  bool isHeld = schedule.getQInRegisters().value_or(schedule.getColumnWarps() == 1);
  for (TileLoopOp loop : loops) {
    llvm::append_range(streamed, sharedLoads(*loop.getBody()));
    if (!schedule.getQInRegisters())
      isHeld &= holdsQueries(countRegisters(schedule, resident, loop));
    bool isRound = loop.getRounds() && loop.getNumIntervals() == 1;
    scf::ForOp outer = splitIntervals(b, loop);
    if (outer)
      loop = *outer.getBody()->getOps<TileLoopOp>().begin();
    staged.push_back({loop, isRound ? outer : scf::ForOp()});
    exchanges.push_back(findExchange(loop));
    for (Value tile : exchanges.back().tiles)
      exchanged.push_back(getShape(tile));
  }
  SharedMemoryPlan plan =
      planStagedTiles(getShapes(resident), getShapes(streamed), schedule.getStages(),
                      schedule.getDotType().getWidth() / 8, exchanged);
  auto viewOperands = [&](const SharedBuffer &buffer) {
    return view(buffer, schedule.getDotType());
  };
  const SharedBuffer *next = plan.getBuffers().begin(),
                     *ofNarrow = next + resident.size() + streamed.size() + exchanged.size();
  const SharedBuffer *ofLoad = next;
  for (ArrayRef<LoadTileOp> loads : {ArrayRef(resident), ArrayRef(streamed)})
    for (LoadTileOp load : loads) {
      const SharedBuffer &buffer = *ofLoad++;
      if (!load.converts())
        continue;
      Type from = load.getMemRefType().getElementType(), to = schedule.getDotType();
      int64_t count = 16 / (schedule.getDotType().getWidth() / 8);
      vectorsOf[load] = {view(*ofNarrow, VectorType::get({count}, from)),
                         view(buffer, VectorType::get({count}, to))};
      narrowOf[load] = view(*ofNarrow++, from);
    }
  for (LoadTileOp load : resident)
    stageResident(load, viewOperands(*next++), isHeld);
  for (LoadTileOp load : streamed)
    bufferOf[load] = viewOperands(*next++);
  for (const Exchange &exchanged : exchanges) {
    exchange(exchanged, next);
    next += exchanged.tiles.size();
  }
  for (const StagedLoop &loop : staged)
    stageLoop(loop);
  auto launch = program->getParentOfType<gpu::LaunchOp>();
  b.setInsertionPoint(launch);
  launch.getDynamicSharedMemorySizeMutable().assign(i32(plan.getBytes()));
  return success();
}

namespace {
struct StageSharedPass : flashattn::impl::StageSharedBase<StageSharedPass> {
  void runOnOperation() override {
    IRRewriter rewriter(&getContext());
    for (OnThreadsOp program : findTilePrograms(getOperation())) {
      // With warp specialization the tiles are already in shared memory.
      if (program.getScheduleAttr().getHopper())
        continue;
      if (!program->getParentOfType<gpu::LaunchOp>()) {
        program.emitOpError()
            << "expected an enclosing 'gpu.launch'; run flashattn-map-to-gpu first";
        return signalPassFailure();
      }
      if (failed(Stager(rewriter, program).run()))
        return signalPassFailure();
    }
  }
};
} // namespace
