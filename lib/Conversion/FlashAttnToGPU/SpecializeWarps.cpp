//===- SpecializeWarps.cpp - flashattn-specialize-warps --------------------===//
//
// A block of warpgroups with roles: one brings tiles, the others compute.
//
//===----------------------------------------------------------------------===//

#include "TileLayout.h"
#include "flashattn/Conversion/Passes.h"
#include "flashattn/Dialect/FlashAttn/Transforms/Transforms.h"
#include "flashattn/Dialect/Hopper/IR/Hopper.h"
#include "mlir/Dialect/LLVMIR/NVVMDialect.h"
#include "mlir/Dialect/MemRef/IR/MemRef.h"
#include "mlir/Dialect/SCF/IR/SCF.h"
#include "mlir/Dialect/Vector/IR/VectorOps.h"
#include "mlir/IR/IRMapping.h"
#include "mlir/IR/PatternMatch.h"

namespace mlir::flashattn {
#define GEN_PASS_DEF_SPECIALIZEWARPS
#include "flashattn/Conversion/Passes.h.inc"
} // namespace mlir::flashattn

using namespace mlir;
using namespace mlir::flashattn;

namespace {

constexpr int64_t kWarpgroupThreads = 128;
/// Numbers of named barriers: the block's, and each consumer's is that of its warpgroup.
constexpr int64_t kBlockBarrier = 0;

/// One operand of the key loops on its way through shared memory: as many tiles as there
/// are stages, each with a barrier that it is full and one that it is empty.
struct Ring {
  vector::TransferReadOp read; ///< a read of it, whose row index is `tile number * rows`
  Value map;                   ///< tensor map
  Value tiles;                 ///< memref<stages x panels x rows x columns>
  int64_t full, empty;         ///< number of the first of its barriers of each kind
};

/// Builds the block of one tile program.
class Specializer {
public:
  Specializer(RewriterBase &b, scf::ForallOp program)
      : b(b), program(program), loc(program.getLoc()), schedule(getSchedule(program)),
        roles(schedule.getRoles()), consumers(roles.getConsumers()),
        stages(schedule.getStages()) {}

  LogicalResult run();

private:
  /// First tile and end of an interval, as index values.
  struct Bounds {
    Value begin, end;
  };

  // Small builders.
  Value index(int64_t v) { return arith::ConstantIndexOp::create(b, loc, v); }
  Value add(Value x, Value y) { return b.createOrFold<arith::AddIOp>(loc, x, y); }
  Value sub(Value x, Value y) { return b.createOrFold<arith::SubIOp>(loc, x, y); }
  Value mul(Value x, Value y) { return b.createOrFold<arith::MulIOp>(loc, x, y); }
  Value div(Value x, Value y) { return b.createOrFold<arith::DivUIOp>(loc, x, y); }
  Value min(Value x, Value y) { return b.createOrFold<arith::MinSIOp>(loc, x, y); }
  Value max(Value x, Value y) { return b.createOrFold<arith::MaxSIOp>(loc, x, y); }
  Value less(Value x, Value y) {
    return arith::CmpIOp::create(b, loc, arith::CmpIPredicate::slt, x, y);
  }
  Value i32(Value v) { return arith::IndexCastUIOp::create(b, loc, b.getI32Type(), v); }
  Value i32(int64_t v) { return arith::ConstantIntOp::create(b, loc, v, 32); }
  Value toIndex(Value v) { return arith::IndexCastUIOp::create(b, loc, b.getIndexType(), v); }

  /// Lane 0's `v`, below 2^31, for all of a warp.
  Value fromLane0(Value v) {
    return toIndex(gpu::ShuffleOp::create(b, loc, i32(v), i32(0), i32(32), gpu::ShuffleMode::IDX)
                       .getShuffleResult());
  }

  int64_t getThreads() const { return kWarpgroupThreads * (consumers + 1); }

  // The launch.
  LogicalResult findReads();
  Value countBlocks();
  void decodeBlock(Value block);
  Value makeMap(Value memref, VectorType tile, unsigned rowDim);
  void allocate();
  void initBlock();

  // Tiles.
  static MemRefType getTileType(MLIRContext *ctx, VectorType tile, int64_t copies);
  Value slot(Value tiles, Value number);
  IRMapping programIds(Value consumer);
  Value isProgram(IRMapping &mapping);
  Value cloneValue(Value v, IRMapping &mapping);
  void load(vector::TransferReadOp read, Value map, Value tile, Value barrier, Value row,
            IRMapping &mapping);

  // Rings.
  Ring &ringOf(vector::TransferReadOp read);
  Value stageOf(Value step);
  Value parityOf(Value step, bool inverted = false);
  void wait(int64_t first, Value step, bool inverted = false);
  void release(Ring &ring, Value step);

  // Roles.
  bool shareInterval(scf::IfOp run);
  Bounds boundsOf(scf::IfOp run, IRMapping &mapping);
  Bounds hullOf(scf::IfOp run, MutableArrayRef<IRMapping> programs);
  void publishHulls(Block &block, MutableArrayRef<IRMapping> programs, Value interval);
  Bounds readHull(scf::IfOp run, IRMapping &mapping);
  void produce();
  Value produceBlock(Block &block, IRMapping &mapping, Value step);
  void storeOutput(Value consumer);
  void consume();
  Value consumeBlock(Block &block, IRMapping &mapping, Value step);
  void consumeRun(scf::IfOp run, const Bounds &hull, Value step);
  void passBy(Value begin, Value end, const Bounds &hull, Value step);

  RewriterBase &b;
  scf::ForallOp program;
  Location loc;
  ScheduleAttr schedule;
  RolesAttr roles;
  int64_t consumers, stages;

  vector::TransferReadOp queryRead;
  vector::TransferWriteOp outputWrite; ///< null where tensor copies cannot make it
  SmallVector<Ring> rings; ///< keys, values
  /// Number in `hulls` of each run's first interval, and of them all.
  DenseMap<Operation *, int64_t> firstInterval;
  int64_t intervals = 0;

  // Outside of the launch.
  Value batches, heads, queryTiles, queryMap, outputMap, tileGroups;
  int64_t headsPerBlock = 1;
  gpu::LaunchOp launch;
  // In the launch.
  Value pool;             ///< dynamic shared memory, bytes
  int64_t poolBytes = 0;  ///< in use
  Value queries;          ///< memref<consumers x panels x 64 x columns>
  Value outputs;          ///< the same for the output, in the queries' place
  Value barriers;         ///< memref<N x i64>: queries full by consumer, then the rings'
  Value hulls;            ///< memref<I x 2 x i32>: tiles that the block reads, by interval
  Value batch, head, tile; ///< of the block's first program
  Value thread, warpgroup; ///< number in the block; uniform over a warp
  Value signals;           ///< whether this thread is its warpgroup's first
};

} // namespace

//===----------------------------------------------------------------------===//
// The program and what it reads
//===----------------------------------------------------------------------===//

static bool isKeyRun(Operation &op) { return op.hasAttr(kKeyRunAttrName); }

/// Rounds of the loop over several intervals.
static int64_t countIntervals(scf::ForOp outer) {
  return getConstantIntValue(outer.getUpperBound()).value_or(0);
}

/// Whether `v` is computed from `from`.
static bool dependsOn(Value v, Value from) {
  Operation *def = v.getDefiningOp();
  return v == from || (def && llvm::any_of(def->getOperands(), [&](Value operand) {
                         return dependsOn(operand, from);
                       }));
}

static bool isTransposed(vector::ContractionOp op) {
  AffineExpr i, j, k;
  bindDims(op.getContext(), i, j, k);
  return op.getIndexingMapsArray()[1] == AffineMap::get(3, 0, {j, k}, op.getContext());
}

/// The dimension of its memref that the rows of a tile go along.
static unsigned getRowDim(VectorTransferOpInterface op) {
  return cast<AffineDimExpr>(op.getPermutationMap().getResult(0)).getPosition();
}

/// The number x of the tile that `read` reads: its row is x * rows.
static Value tileNumber(vector::TransferReadOp read) {
  auto product = read.getIndices()[getRowDim(read)].getDefiningOp<arith::MulIOp>();
  if (!product ||
      getConstantIntValue(product.getRhs()) != read.getVectorType().getDimSize(0))
    return {};
  return product.getLhs();
}

/// Scores and output read each from a ring of its own, and may read the same memref.
Ring &Specializer::ringOf(vector::TransferReadOp read) {
  auto user = cast<vector::ContractionOp>(*read->user_begin());
  return rings[isTransposed(user) ? 0 : 1];
}

LogicalResult Specializer::findReads() {
  rings.resize(2);
  WalkResult walk = program.walk([&](Operation *op) {
    if (isKeyRun(*op)) {
      firstInterval[op] = intervals;
      auto outer = dyn_cast<scf::ForOp>(op->getParentOp());
      intervals += outer ? countIntervals(outer) : 1;
    }
    if (auto write = dyn_cast<vector::TransferWriteOp>(op);
        write && write.getVectorType().getRank() == 2 && hasAlignedRows(write.getBase()))
      outputWrite = write;
    auto read = dyn_cast<vector::TransferReadOp>(op);
    if (!read)
      return WalkResult::advance();
    if (read->getBlock() == program.getBody()) {
      queryRead = read;
      return WalkResult::advance();
    }
    auto user = read->hasOneUse() ? dyn_cast<vector::ContractionOp>(*read->user_begin())
                                  : vector::ContractionOp();
    if (!user || user.getRhs() != read.getResult() || !tileNumber(read)) {
      read.emitOpError() << "expected the read of a key tile, used once as the right-hand side "
                            "of a contraction";
      return WalkResult::interrupt();
    }
    ringOf(read).read = read;
    return WalkResult::advance();
  });
  if (walk.wasInterrupted())
    return failure();
  if (intervals == 0 || !queryRead || !rings[0].read || !rings[1].read)
    return program.emitOpError() << "expected a tile program with pipelined key loops; run "
                                    "flashattn-pipeline-keys first";
  return success();
}

//===----------------------------------------------------------------------===//
// The launch
//===----------------------------------------------------------------------===//

Value Specializer::countBlocks() {
  SmallVector<Value> sizes = program.getUpperBound(b);
  batches = sizes[0];
  heads = sizes[1];
  queryTiles = sizes[2];
  tileGroups = queryTiles;
  Value headGroups = heads;
  if (roles.getAlong() == ProgramAxis::Head) {
    headsPerBlock = consumers;
    headGroups = div(heads, index(consumers));
  } else {
    tileGroups = b.createOrFold<arith::CeilDivUIOp>(loc, queryTiles, index(consumers));
  }
  return mul(mul(batches, headGroups), tileGroups);
}

/// Sections of `section` heads; within one, query tiles from the last to the first and the
/// heads of the section next to each other.
void Specializer::decodeBlock(Value block) {
  // 32-bit division: block numbers are below 2^31.
  Value number = i32(block), groups = i32(tileGroups);
  Value headGroups = div(i32(heads), i32(headsPerBlock));
  Value perSection = i32(roles.getSection());
  Value section = div(number, mul(groups, perSection));
  Value rest = sub(number, mul(section, mul(groups, perSection)));
  Value flatHead = section, row = rest;
  if (roles.getSection() > 1) {
    Value firstHead = mul(section, perSection);
    Value inSection = min(perSection, sub(mul(i32(batches), headGroups), firstHead));
    row = div(rest, inSection);
    flatHead = add(firstHead, sub(rest, mul(row, inSection)));
  }
  Value group = sub(sub(groups, row), i32(1));
  Value batchNumber = div(flatHead, headGroups);
  batch = toIndex(batchNumber);
  head = toIndex(mul(sub(flatHead, mul(batchNumber, headGroups)), i32(headsPerBlock)));
  tile = toIndex(headsPerBlock == 1 ? mul(group, i32(consumers)) : group);
}

/// The tensor map that copies one panel of `tile` at a time.
Value Specializer::makeMap(Value memref, VectorType tile, unsigned rowDim) {
  MemRefType tiles = getTileType(b.getContext(), tile, 1);
  auto type = hopper::TensorMapType::get(b.getContext(), tiles.getDimSize(2), tiles.getDimSize(3),
                                         tiles.getElementType());
  return hopper::MakeTensorMapOp::create(b, loc, type, memref, static_cast<int64_t>(rowDim));
}

/// The memref of `copies` tiles, with panels as wide as the widest swizzle that fits.
MemRefType Specializer::getTileType(MLIRContext *ctx, VectorType tile, int64_t copies) {
  int64_t columns = tile.getDimSize(1);
  constexpr int64_t widest = 64; // 128 bytes
  int64_t panel = columns <= 16 ? 16 : columns <= 32 ? 32 : widest;
  auto space = gpu::AddressSpaceAttr::get(ctx, gpu::AddressSpace::Workgroup);
  return MemRefType::get({copies, (columns + panel - 1) / panel, tile.getDimSize(0), panel},
                         tile.getElementType(), MemRefLayoutAttrInterface{}, space);
}

void Specializer::allocate() {
  auto view = [&](MemRefType type) -> Value {
    // Dynamic shared memory begins at a period of the widest swizzle, and every tile is a
    // whole number of its own.
    Value shift = index(poolBytes);
    poolBytes += type.getNumElements() * llvm::divideCeil(type.getElementTypeBitWidth(), 8);
    return memref::ViewOp::create(b, loc, type, pool, shift, ValueRange());
  };
  MLIRContext *ctx = b.getContext();
  queries = view(getTileType(ctx, queryRead.getVectorType(), consumers));
  if (outputWrite) {
    // By the time a consumer has its output it has done with its own queries, but a sister may
    // not: the output takes their place only where the two are of one size.
    int64_t behind = poolBytes;
    MemRefType type = getTileType(ctx, outputWrite.getVectorType(), consumers);
    if (type.getShape() == cast<MemRefType>(queries.getType()).getShape())
      poolBytes = 0;
    outputs = view(type);
    poolBytes = std::max(poolBytes, behind);
  }
  int64_t barrierCount = consumers;
  for (Ring &ring : rings) {
    ring.tiles = view(getTileType(ctx, ring.read.getVectorType(), stages));
    ring.full = barrierCount;
    ring.empty = barrierCount + stages;
    barrierCount += 2 * stages;
  }
  auto space = gpu::AddressSpaceAttr::get(ctx, gpu::AddressSpace::Workgroup);
  barriers = view(
      MemRefType::get({barrierCount}, b.getI64Type(), MemRefLayoutAttrInterface{}, space));
  hulls = view(
      MemRefType::get({intervals, 2}, b.getI32Type(), MemRefLayoutAttrInterface{}, space));
}

/// One thread prepares what all of the block's need, and sends for the queries.
void Specializer::initBlock() {
  Value first = arith::CmpIOp::create(b, loc, arith::CmpIPredicate::eq, thread, index(0));
  auto guarded = scf::IfOp::create(b, loc, first, /*withElseRegion=*/false);
  {
    OpBuilder::InsertionGuard guard(b);
    b.setInsertionPointToStart(guarded.thenBlock());
    auto init = [&](int64_t firstBarrier, int64_t count, int64_t arrivals) {
      for (int64_t i = 0; i < count; ++i)
        hopper::BarrierInitOp::create(b, loc, barriers, index(firstBarrier + i),
                                      b.getI64IntegerAttr(arrivals));
    };
    init(0, consumers, 1);
    for (Ring &ring : rings) {
      init(ring.full, stages, 1);
      init(ring.empty, stages, consumers);
    }
    hopper::FenceBarrierInitOp::create(b, loc);
    SmallVector<IRMapping> programs;
    for (int64_t w = 0; w < consumers; ++w) {
      programs.push_back(programIds(index(w)));
      load(queryRead, queryMap, slot(queries, index(w)), index(w), /*row=*/{}, programs.back());
    }
    publishHulls(*program.getBody(), programs, index(0));
  }
}

//===----------------------------------------------------------------------===//
// Tiles
//===----------------------------------------------------------------------===//

/// Tile `number` of `tiles`.
Value Specializer::slot(Value tiles, Value number) {
  auto type = cast<MemRefType>(tiles.getType());
  ArrayRef<int64_t> shape = type.getShape();
  SmallVector<OpFoldResult> offsets(4, b.getIndexAttr(0)), strides(4, b.getIndexAttr(1)), sizes;
  offsets[0] = number;
  sizes.push_back(b.getIndexAttr(1));
  for (int64_t size : shape.drop_front())
    sizes.push_back(b.getIndexAttr(size));
  auto reduced = memref::SubViewOp::inferRankReducedResultType(shape.drop_front(), type, offsets,
                                                               sizes, strides);
  return memref::SubViewOp::create(b, loc, cast<MemRefType>(reduced), tiles, offsets, sizes,
                                   strides);
}

/// The program's numbers for one of the block's consumers.
IRMapping Specializer::programIds(Value consumer) {
  IRMapping mapping;
  SmallVector<Value> ids = {batch, head, tile};
  if (headsPerBlock > 1)
    ids[1] = add(head, consumer);
  else
    ids[2] = add(tile, consumer);
  mapping.map(program.getInductionVars(), ids);
  return mapping;
}

/// Whether there is a program of those numbers: the last block may have fewer than consumers.
Value Specializer::isProgram(IRMapping &mapping) {
  return less(mapping.lookup(program.getInductionVars()[2]), queryTiles);
}

/// `v` of the tile program with the numbers in `mapping`: copies of what computes it.
Value Specializer::cloneValue(Value v, IRMapping &mapping) {
  if (Value known = mapping.lookupOrNull(v))
    return known;
  Operation *def = v.getDefiningOp();
  if (!def || !program->isAncestor(def))
    return v;
  for (Value operand : def->getOperands())
    cloneValue(operand, mapping);
  b.clone(*def, mapping);
  return mapping.lookup(v);
}

/// Copies the tile of `read` that begins at `row` to shared memory.
void Specializer::load(vector::TransferReadOp read, Value map, Value tile, Value barrier,
                       Value row, IRMapping &mapping) {
  SmallVector<Value> coordinates;
  for (auto [i, v] : llvm::enumerate(read.getIndices()))
    coordinates.push_back(i == getRowDim(read) && row ? row : cloneValue(v, mapping));
  int64_t bytes = hopper::SharedTile::get(tile.getType())->getBytes();
  hopper::BarrierExpectOp::create(b, loc, barriers, barrier, b.getI64IntegerAttr(bytes));
  hopper::TmaLoadOp::create(b, loc, map, coordinates, tile, barriers, barrier);
}

//===----------------------------------------------------------------------===//
// Rings
//===----------------------------------------------------------------------===//

/// Steps of a block are counted from its first key tile; the rings turn with them.
Value Specializer::stageOf(Value step) {
  return toIndex(arith::RemUIOp::create(b, loc, i32(step), i32(stages)));
}

/// 0 in the ring's first turn, 1 in the next and so on; or the other way round.
Value Specializer::parityOf(Value step, bool inverted) {
  Value turn = arith::DivUIOp::create(b, loc, i32(step), i32(stages));
  if (inverted)
    turn = add(turn, i32(1));
  return arith::AndIOp::create(b, loc, turn, i32(1));
}

void Specializer::wait(int64_t first, Value step, bool inverted) {
  hopper::BarrierWaitOp::create(b, loc, barriers, add(stageOf(step), index(first)),
                                parityOf(step, inverted));
}

void Specializer::release(Ring &ring, Value step) {
  hopper::BarrierArriveOp::create(b, loc, barriers, add(stageOf(step), index(ring.empty)),
                                  signals);
}

//===----------------------------------------------------------------------===//
// Intervals
//===----------------------------------------------------------------------===//

Specializer::Bounds Specializer::boundsOf(scf::IfOp run, IRMapping &mapping) {
  auto any = run.getCondition().getDefiningOp<arith::CmpIOp>();
  return {cloneValue(any.getLhs(), mapping), cloneValue(any.getRhs(), mapping)};
}

/// Whether `run` has the same bounds for every program of a block.
bool Specializer::shareInterval(scf::IfOp run) {
  auto any = run.getCondition().getDefiningOp<arith::CmpIOp>();
  Value number = program.getInductionVars()[roles.getAlong() == ProgramAxis::Head ? 1 : 2];
  return consumers == 1 || !(dependsOn(any.getLhs(), number) || dependsOn(any.getRhs(), number));
}

/// The tiles that any of the block's programs reads.
Specializer::Bounds Specializer::hullOf(scf::IfOp run, MutableArrayRef<IRMapping> programs) {
  Bounds hull;
  bool sameBegin = getConstantIntValue(
      run.getCondition().getDefiningOp<arith::CmpIOp>().getLhs()).has_value();
  for (IRMapping &mapping : programs) {
    Bounds own = boundsOf(run, mapping);
    // An empty interval may lie anywhere, as that of no program does.
    Value any = less(own.begin, own.end);
    if (&mapping != &programs.front())
      any = arith::AndIOp::create(b, loc, any, isProgram(mapping));
    Value begin = b.createOrFold<arith::SelectOp>(
        loc, any, own.begin, index(std::numeric_limits<int32_t>::max()));
    Value end = b.createOrFold<arith::SelectOp>(loc, any, own.end, index(0));
    hull = hull.begin ? Bounds{min(hull.begin, begin), max(hull.end, end)} : Bounds{begin, end};
  }
  if (sameBegin)
    hull.begin = boundsOf(run, programs.front()).begin;
  // Empty where every interval is.
  hull.begin = min(hull.begin, hull.end);
  return hull;
}

/// Writes the hulls of the runs in `block` to shared memory: computed once, they cost the
/// block one thread's time and no other's registers.
void Specializer::publishHulls(Block &block, MutableArrayRef<IRMapping> programs,
                               Value interval) {
  for (Operation &op : block) {
    if (isKeyRun(op)) {
      if (shareInterval(cast<scf::IfOp>(op)))
        continue;
      Bounds hull = hullOf(cast<scf::IfOp>(op), programs);
      Value number = add(interval, index(firstInterval.at(&op)));
      memref::StoreOp::create(b, loc, i32(hull.begin), hulls, ValueRange{number, index(0)});
      memref::StoreOp::create(b, loc, i32(hull.end), hulls, ValueRange{number, index(1)});
      continue;
    }
    auto outer = dyn_cast<scf::ForOp>(op);
    if (!outer)
      continue;
    auto loop = scf::ForOp::create(b, loc, index(0), index(countIntervals(outer)), index(1));
    OpBuilder::InsertionGuard guard(b);
    b.setInsertionPointToStart(loop.getBody());
    SmallVector<IRMapping> inner(programs.begin(), programs.end());
    for (IRMapping &mapping : inner)
      mapping.map(outer.getInductionVar(), loop.getInductionVar());
    publishHulls(*outer.getBody(), inner, loop.getInductionVar());
  }
}

/// The hull of `run` for every thread of the block.
Specializer::Bounds Specializer::readHull(scf::IfOp run, IRMapping &mapping) {
  if (shareInterval(run))
    return boundsOf(run, mapping);
  Value number = index(firstInterval.at(run));
  if (auto outer = dyn_cast<scf::ForOp>(run->getParentOp()))
    number = add(number, mapping.lookupOrDefault(outer.getInductionVar()));
  auto read = [&](int64_t which) {
    return fromLane0(
        toIndex(memref::LoadOp::create(b, loc, hulls, ValueRange{number, index(which)})));
  };
  Value begin = run.getCondition().getDefiningOp<arith::CmpIOp>().getLhs();
  return {getConstantIntValue(begin) ? cloneValue(begin, mapping) : read(0), read(1)};
}

//===----------------------------------------------------------------------===//
// Producer
//===----------------------------------------------------------------------===//

/// One thread's work. `step` counts the key tiles so far.
Value Specializer::produceBlock(Block &block, IRMapping &mapping, Value step) {
  for (Operation &op : block) {
    if (isKeyRun(op)) {
      Bounds hull = readHull(cast<scf::IfOp>(op), mapping);
      // Before the loop, or the copies of one loop would stand in for another's.
      for (Ring &ring : rings)
        for (auto [i, v] : llvm::enumerate(ring.read.getIndices()))
          if (i != getRowDim(ring.read))
            cloneValue(v, mapping);
      auto loop = scf::ForOp::create(b, loc, hull.begin, hull.end, index(1));
      OpBuilder::InsertionGuard guard(b);
      b.setInsertionPointToStart(loop.getBody());
      Value now = add(sub(loop.getInductionVar(), hull.begin), step);
      for (Ring &ring : rings) {
        wait(ring.empty, now, /*inverted=*/true);
        Value row = mul(loop.getInductionVar(), index(schedule.getTileN()));
        Value stage = stageOf(now);
        load(ring.read, ring.map, slot(ring.tiles, stage), add(stage, index(ring.full)), row,
             mapping);
      }
      b.setInsertionPointAfter(loop);
      step = add(step, sub(hull.end, hull.begin));
      continue;
    }
    // The loop over several intervals.
    auto outer = dyn_cast<scf::ForOp>(op);
    if (!outer)
      continue;
    auto loop = scf::ForOp::create(b, loc, index(0), index(countIntervals(outer)), index(1), step);
    OpBuilder::InsertionGuard guard(b);
    b.setInsertionPointToStart(loop.getBody());
    IRMapping inner = mapping;
    inner.map(outer.getInductionVar(), loop.getInductionVar());
    scf::YieldOp::create(b, loc,
                         produceBlock(*outer.getBody(), inner, loop.getRegionIterArg(0)));
    step = loop.getResult(0);
  }
  return step;
}

void Specializer::produce() {
  auto fewer = NVVM::SetMaxRegisterOp::create(b, loc, roles.getProducerRegisters(),
                                              NVVM::SetMaxRegisterAction::decrease);
  fewer->setAttr(hopper::kBlocksAttrName, b.getI32IntegerAttr(roles.getBlocks()));
  // Who has prepared the block need not wait for those who wait for it.
  NVVM::BarrierArriveOp::create(b, loc, i32(kBlockBarrier), i32(getThreads()));
  auto one = scf::IfOp::create(b, loc, signals, /*withElseRegion=*/false);
  OpBuilder::InsertionGuard guard(b);
  b.setInsertionPointToStart(one.thenBlock());
  IRMapping first = programIds(index(0));
  produceBlock(*program.getBody(), first, index(0));
}

//===----------------------------------------------------------------------===//
// Consumers
//===----------------------------------------------------------------------===//

/// Waits for and frees the tiles [begin, end), which other programs of the block read.
void Specializer::passBy(Value begin, Value end, const Bounds &hull, Value step) {
  auto loop = scf::ForOp::create(b, loc, begin, end, index(1));
  OpBuilder::InsertionGuard guard(b);
  b.setInsertionPointToStart(loop.getBody());
  Value now = add(sub(loop.getInductionVar(), hull.begin), step);
  for (Ring &ring : rings)
    wait(ring.full, now);
  // Lest one warp frees what a sister still waits for.
  NVVM::BarrierOp::create(b, loc, TypeRange(), i32(warpgroup), i32(kWarpgroupThreads), {}, {});
  for (Ring &ring : rings)
    release(ring, now);
}

/// Lets the loops of `run` read from the rings.
void Specializer::consumeRun(scf::IfOp run, const Bounds &hull, Value step) {
  SmallVector<vector::TransferReadOp> reads;
  run.walk([&](vector::TransferReadOp read) { reads.push_back(read); });
  for (vector::TransferReadOp read : reads) {
    Ring &ring = ringOf(read);
    auto user = cast<vector::ContractionOp>(*read->user_begin());
    b.setInsertionPoint(read);
    Value now = add(sub(tileNumber(read), hull.begin), step);
    wait(ring.full, now);
    Value held = hopper::LoadTileOp::create(b, loc, read.getVectorType(),
                                            slot(ring.tiles, stageOf(now)));
    b.replaceOp(read, held);
    b.setInsertionPointAfter(user);
    release(ring, now);
  }
}

Value Specializer::consumeBlock(Block &block, IRMapping &mapping, Value step) {
  for (Operation &op : llvm::make_early_inc_range(block)) {
    if (isKeyRun(op)) {
      auto run = cast<scf::IfOp>(op);
      b.setInsertionPoint(run);
      Bounds hull = readHull(run, mapping);
      auto bounds = run.getCondition().getDefiningOp<arith::CmpIOp>();
      Bounds own{bounds.getLhs(), bounds.getRhs()};
      Value any = bounds;
      bool partOfHull = !shareInterval(run), maybeNone = consumers > 1 && headsPerBlock == 1;
      if (!partOfHull)
        hull = own;
      if (maybeNone) {
        any = arith::AndIOp::create(b, loc, any, isProgram(mapping));
        run.getConditionMutable().assign(any);
      }
      if (partOfHull || maybeNone) {
        Value begin = arith::SelectOp::create(b, loc, any, own.begin, hull.end);
        passBy(hull.begin, begin, hull, step);
      }
      if (partOfHull) {
        b.setInsertionPointAfter(run);
        Value end = arith::SelectOp::create(b, loc, any, own.end, hull.end);
        passBy(end, hull.end, hull, step);
      }
      consumeRun(run, hull, step);
      b.setInsertionPointAfter(run);
      step = add(step, sub(hull.end, hull.begin));
      continue;
    }
    auto outer = dyn_cast<scf::ForOp>(op);
    if (!outer || outer.getBody()->getOps<scf::IfOp>().empty())
      continue;
    // The loop over several intervals counts the steps of all of them.
    auto loop = cast<scf::ForOp>(*outer.replaceWithAdditionalYields(
        b, step, /*replaceInitOperandUsesInLoop=*/false,
        [&](OpBuilder &, Location, ArrayRef<BlockArgument> args) {
          return SmallVector<Value>{args.front()};
        }));
    IRMapping inner = mapping;
    inner.map(loop.getInductionVar(), loop.getInductionVar());
    Value next = consumeBlock(*loop.getBody(), inner, loop.getRegionIterArgs().back());
    auto yield = cast<scf::YieldOp>(loop.getBody()->getTerminator());
    yield->setOperand(yield.getNumOperands() - 1, next);
    step = loop.getResults().back();
  }
  return step;
}

/// Writes the output through shared memory: whole rows at a time, and nothing past the end.
void Specializer::storeOutput(Value consumer) {
  b.setInsertionPoint(outputWrite);
  Value tile = slot(outputs, consumer);
  hopper::StoreTileOp::create(b, loc, outputWrite.getValueToStore(), tile);
  // What every thread wrote must be there for the copy, which another proxy of memory makes.
  MLIRContext *ctx = b.getContext();
  NVVM::FenceProxyOp::create(b, loc,
                             NVVM::ProxyKindAttr::get(ctx, NVVM::ProxyKind::async_shared),
                             NVVM::SharedSpaceAttr::get(ctx, NVVM::SharedSpace::shared_cta));
  NVVM::BarrierOp::create(b, loc, TypeRange(), i32(warpgroup), i32(kWarpgroupThreads), {}, {});
  auto one = scf::IfOp::create(b, loc, signals, /*withElseRegion=*/false);
  OpBuilder::InsertionGuard guard(b);
  b.setInsertionPointToStart(one.thenBlock());
  hopper::TmaStoreOp::create(b, loc, tile, outputMap, outputWrite.getIndices());
  // A block's shared memory must outlive the copy's reads of it.
  NVVM::CpAsyncBulkWaitGroupOp::create(b, loc, b.getI32IntegerAttr(0), /*read=*/b.getUnitAttr());
  b.eraseOp(outputWrite);
}

/// Turns the body of the tile program, which has moved into the consumers' region, into
/// that of one consumer.
void Specializer::consume() {
  NVVM::SetMaxRegisterOp::create(b, loc, roles.getRegisters(),
                                 NVVM::SetMaxRegisterAction::increase);
  NVVM::BarrierOp::create(b, loc, TypeRange(), i32(kBlockBarrier), i32(getThreads()), {}, {});
  Value consumer = toIndex(arith::SubIOp::create(b, loc, i32(warpgroup), i32(1)));
  IRMapping own = programIds(consumer);
  Block *body = program.getBody();
  Block *target = b.getInsertionBlock();
  // Copies are made of the program's own arithmetic, so the body moves last.
  IRMapping mapping = own;
  consumeBlock(*body, mapping, index(0));
  b.setInsertionPoint(queryRead);
  hopper::BarrierWaitOp::create(b, loc, barriers, consumer, i32(0));
  Value held = hopper::LoadTileOp::create(b, loc, queryRead.getVectorType(),
                                          slot(queries, consumer));
  b.replaceOp(queryRead, held);
  if (outputWrite)
    storeOutput(consumer);
  b.eraseOp(body->getTerminator());
  b.inlineBlockBefore(body, target, target->getTerminator()->getIterator(),
                      llvm::map_to_vector(program.getInductionVars(),
                                          [&](Value id) { return own.lookup(id); }));
}

//===----------------------------------------------------------------------===//
// All of it
//===----------------------------------------------------------------------===//

LogicalResult Specializer::run() {
  if (program.getRank() != 3 || !program.isNormalized() || program.getNumResults() != 0)
    return program.emitOpError() << "expected a tile program over (batch, head, query tile) that "
                                    "counts from 0 by 1";
  if (failed(findReads()))
    return failure();
  b.setInsertionPoint(program);
  Value blocks = countBlocks();
  Value any = arith::CmpIOp::create(b, loc, arith::CmpIPredicate::ugt, blocks, index(0));
  auto guarded = scf::IfOp::create(b, loc, any, /*withElseRegion=*/false);
  b.setInsertionPointToStart(guarded.thenBlock());
  auto mapOf = [&](VectorTransferOpInterface op) {
    return makeMap(op.getBase(), op.getVectorType(), getRowDim(op));
  };
  queryMap = mapOf(queryRead);
  for (Ring &ring : rings)
    ring.map = mapOf(ring.read);
  if (outputWrite)
    outputMap = mapOf(outputWrite);

  Value one = index(1);
  launch = gpu::LaunchOp::create(b, loc, blocks, one, one,
                                 index(getThreads()), one, one);
  launch->setAttr(kScheduleAttrName, schedule);
  b.setInsertionPointToStart(&launch.getBody().front());
  auto space = gpu::AddressSpaceAttr::get(b.getContext(), gpu::AddressSpace::Workgroup);
  auto poolType =
      MemRefType::get({ShapedType::kDynamic}, b.getI8Type(), MemRefLayoutAttrInterface{}, space);
  pool = gpu::DynamicSharedMemoryOp::create(b, loc, poolType);
  allocate();
  thread = launch.getThreadIds().x;
  decodeBlock(launch.getBlockIds().x);
  initBlock();
  // So ptxas knows a warp to be of one mind.
  warpgroup = fromLane0(div(thread, index(kWarpgroupThreads)));
  signals = arith::CmpIOp::create(
      b, loc, arith::CmpIPredicate::eq,
      arith::AndIOp::create(b, loc, thread, index(kWarpgroupThreads - 1)), index(0));
  Value isProducer = arith::CmpIOp::create(b, loc, arith::CmpIPredicate::eq, warpgroup, index(0));
  auto role = scf::IfOp::create(b, loc, isProducer, /*withElseRegion=*/true);
  gpu::TerminatorOp::create(b, loc);
  b.setInsertionPointToStart(role.thenBlock());
  produce();
  b.setInsertionPointToStart(role.elseBlock());
  consume();
  b.eraseOp(program);

  b.setInsertionPoint(launch);
  launch.getDynamicSharedMemorySizeMutable().assign(i32(poolBytes));
  return success();
}

namespace {
struct SpecializeWarpsPass : flashattn::impl::SpecializeWarpsBase<SpecializeWarpsPass> {
  void runOnOperation() override {
    IRRewriter rewriter(&getContext());
    for (scf::ForallOp program : findSpecializedPrograms(getOperation()))
      if (failed(Specializer(rewriter, program).run()))
        return signalPassFailure();
  }
};
} // namespace
