//===- SpecializeWarps.cpp - flashattn-specialize-warps --------------------===//
//
// A block of warpgroups with roles: one brings tiles, the others compute.
//
//===----------------------------------------------------------------------===//

#include "Block.h"
#include "flashattn/Conversion/Passes.h"

namespace mlir::flashattn {
#define GEN_PASS_DEF_SPECIALIZEWARPS
#include "flashattn/Conversion/Passes.h.inc"
} // namespace mlir::flashattn

using namespace mlir;
using namespace mlir::flashattn;

namespace {
/// The launch, and what its threads share.
class LaunchBuilder : public BlockBuilder {
public:
  LaunchBuilder(RewriterBase &b, const BlockPlan &plan, BlockValues &values)
      : BlockBuilder(b, plan, values), values(values) {}

  void build();

private:
  void makeMaps();
  int64_t allocate(Value pool);
  void initBlock();

  BlockValues &values;
};
} // namespace

/// Tensor maps that copy one panel of a tile at a time.
void LaunchBuilder::makeMaps() {
  auto make = [&](auto access, Value memref) -> Value {
    MemRefType tiles = getTilesType(access, 1);
    auto type = hopper::TensorMapType::get(b.getContext(), tiles.getDimSize(2), tiles.getDimSize(3),
                                           tiles.getElementType());
    IntegerAttr outerDim, outerRows;
    if (access.getDims().size() > 2) {
      outerDim = b.getI64IntegerAttr(access.getDims().front());
      outerRows = b.getI64IntegerAttr(access.getTileShape().front());
    }
    return hopper::MakeTensorMapOp::create(
        b, loc, type, memref, b.getI64IntegerAttr(*access.getRowDim()), outerDim, outerRows);
  };
  for (LoadTileOp load : plan.residents)
    values.residentMaps.push_back(make(load, load.getSource()));
  for (LoadTileOp load : plan.streams)
    values.streamMaps.push_back(make(load, load.getSource()));
  for (StoreTileOp store : plan.outputs)
    values.outputMaps.push_back(make(store, store.getTarget()));
}

/// Lays out shared memory; the bytes of all of it.
int64_t LaunchBuilder::allocate(Value pool) {
  auto space = gpu::AddressSpaceAttr::get(b.getContext(), gpu::AddressSpace::Workgroup);
  int64_t bytes = 0;
  auto view = [&](MemRefType type) -> Value {
    // Dynamic shared memory begins at a period of the widest swizzle, and every tile is a
    // whole number of its own.
    Value shift = index(bytes);
    bytes += type.getNumElements() * llvm::divideCeil(type.getElementTypeBitWidth(), 8);
    return memref::ViewOp::create(b, loc, type, pool, shift, ValueRange());
  };
  auto plain = [&](ArrayRef<int64_t> shape, Type element) {
    return view(MemRefType::get(shape, element, MemRefLayoutAttrInterface{}, space));
  };
  for (LoadTileOp load : plan.residents)
    values.residents.push_back(view(getTilesType(load, plan.getHeldTiles())));
  for (StoreTileOp store : plan.outputs) {
    // By the time a consumer has its output it has done with its own residents, but a sister may
    // not: an output takes their place only where the two are of one size.
    MemRefType type = getTilesType(store, plan.getHeldTiles());
    auto free = llvm::find_if(values.residents, [&](Value resident) {
      return cast<MemRefType>(resident.getType()).getShape() == type.getShape() &&
             !llvm::is_contained(values.outputs, resident);
    });
    values.outputs.push_back(
        free != values.residents.end() ? *free : view(getTilesType(store, plan.getConsumers())));
  }
  SmallVector<Value> tiles;
  for (LoadTileOp load : plan.streams)
    tiles.push_back(view(getTilesType(load, plan.getStages())));
  int64_t first = plan.getFirstOfRings(), perRing = 2 * plan.getStages();
  values.barriers = plain({first + perRing * static_cast<int64_t>(tiles.size())}, b.getI64Type());
  for (Value places : tiles) {
    auto type = cast<MemRefType>(places.getType());
    auto ring =
        hopper::RingType::get(b.getContext(), type.getDimSize(0), type.getDimSize(1),
                              type.getDimSize(2), type.getDimSize(3), type.getElementType());
    values.rings.push_back(
        hopper::MakeRingOp::create(b, loc, ring, places, values.barriers, first));
    first += perRing;
  }
  values.hulls = plain({plan.getSlots(), plan.intervals, 2}, b.getI32Type());
  if (plan.isPersistent())
    values.numbers = plain({plan.getSlots(), 4}, b.getI32Type());
  return bytes;
}

/// One thread, the producer's, prepares what all of the block's need, and its first group.
void LaunchBuilder::initBlock() {
  Value first = compare(arith::CmpIPredicate::eq, values.thread, index(0));
  auto guarded = scf::IfOp::create(b, loc, first, /*withElseRegion=*/false);
  OpBuilder::InsertionGuard guard(b);
  b.setInsertionPointToStart(guarded.thenBlock());
  for (int64_t i = 0; i < plan.getFirstOfRings(); ++i)
    hopper::BarrierInitOp::create(b, loc, values.barriers, index(i), b.getI64IntegerAttr(1));
  for (Value ring : values.rings)
    hopper::RingInitOp::create(b, loc, ring, plan.getConsumers());
  hopper::FenceBarrierInitOp::create(b, loc);
  Group group = values.group;
  if (plan.isPersistent())
    group = GridBuilder(b, plan, block).decode(values.launch.getBlockIds().x);
  ProducerBuilder(b, plan, block).prepare(group, index(0));
}

void LaunchBuilder::build() {
  GridBuilder grid(b, plan, block);
  b.setInsertionPoint(plan.program);
  grid.countGroups(values);
  // A grid of no blocks is an error to the driver.
  Value any = compare(arith::CmpIPredicate::ugt, values.groups, index(0));
  auto guarded = scf::IfOp::create(b, loc, any, /*withElseRegion=*/false);
  b.setInsertionPointToStart(guarded.thenBlock());
  makeMaps();
  Value one = index(1);
  Value blocks = plan.isPersistent() ? grid.countResidentBlocks() : values.groups;
  values.launch =
      gpu::LaunchOp::create(b, loc, blocks, one, one, index(plan.getThreads()), one, one);
  b.setInsertionPointToStart(&values.launch.getBody().front());
  auto space = gpu::AddressSpaceAttr::get(b.getContext(), gpu::AddressSpace::Workgroup);
  auto poolType =
      MemRefType::get({ShapedType::kDynamic}, b.getI8Type(), MemRefLayoutAttrInterface{}, space);
  int64_t bytes = allocate(gpu::DynamicSharedMemoryOp::create(b, loc, poolType));
  values.thread = values.launch.getThreadIds().x;
  if (!plan.isPersistent())
    values.group = grid.decode(values.launch.getBlockIds().x);
  initBlock();
  // So ptxas knows a warp to be of one mind.
  values.warpgroup = fromLane0(div(values.thread, index(hopper::kWarpgroupThreads)));
  Value inGroup =
      arith::AndIOp::create(b, loc, values.thread, index(hopper::kWarpgroupThreads - 1));
  values.signals = compare(arith::CmpIPredicate::eq, inGroup, index(0));
  Value isProducer = compare(arith::CmpIPredicate::eq, values.warpgroup, index(0));
  auto role = scf::IfOp::create(b, loc, isProducer, /*withElseRegion=*/true);
  gpu::TerminatorOp::create(b, loc);
  b.setInsertionPointToStart(role.thenBlock());
  ProducerBuilder(b, plan, block).build();
  b.setInsertionPointToStart(role.elseBlock());
  ConsumerBuilder(b, plan, block).build();
  b.eraseOp(plan.program);
  b.setInsertionPoint(values.launch);
  values.launch.getDynamicSharedMemorySizeMutable().assign(i32(bytes));
}

//===----------------------------------------------------------------------===//
// Programs
//===----------------------------------------------------------------------===//

static LogicalResult specialize(RewriterBase &b, ProgramOp program);

/// Gives long programs blocks of their own that run one group each, and leaves persistent ones to
/// short programs, which have more to hide. Measured on an H100 with D = 128: persistent blocks
/// gain 10 % at 1000 keys, nothing at 2048, and lose 2 % at 4096 and beyond.
static LogicalResult splitByLength(RewriterBase &b, const BlockPlan &plan) {
  constexpr int64_t kLongProgram = 2048; // keys
  Location loc = plan.program->getLoc();
  b.setInsertionPoint(plan.program);
  LoadTileOp load = plan.streams.front();
  Value rows =
      b.createOrFold<memref::DimOp>(loc, load.getSource(), static_cast<int64_t>(*load.getRowDim()));
  Value isLong = arith::CmpIOp::create(b, loc, arith::CmpIPredicate::slt,
                                       arith::ConstantIndexOp::create(b, loc, kLongProgram), rows);
  auto split = scf::IfOp::create(b, loc, isLong, /*withElseRegion=*/true);
  b.setInsertionPointToStart(split.thenBlock());
  auto copy = cast<ProgramOp>(b.clone(*plan.program));
  MLIRContext *ctx = b.getContext();
  ScheduleAttr all = plan.schedule;
  RolesAttr roles = plan.roles;
  auto oneGroup = RolesAttr::get(ctx, roles.getConsumers(), roles.getAlong(), roles.getRegisters(),
                                 roles.getProducerRegisters(), roles.getRescale(),
                                 roles.getSection(), roles.getBlocks(), /*queryStages=*/1);
  copy.setScheduleAttr(ScheduleAttr::get(ctx, all.getTileM(), all.getTileN(), all.getWarps(),
                                         all.getStages(), all.getLanes(), all.getDotType(),
                                         all.getPack(), all.getSplits(), oneGroup));
  b.moveOpBefore(plan.program, split.elseBlock()->getTerminator());
  return specialize(b, copy);
}

static LogicalResult specialize(RewriterBase &b, ProgramOp program) {
  FailureOr<BlockPlan> plan = BlockPlan::get(program);
  if (failed(plan) || (plan->isPersistent() && failed(splitByLength(b, *plan))))
    return failure();
  BlockValues values;
  LaunchBuilder(b, *plan, values).build();
  return success();
}

namespace {
struct SpecializeWarpsPass : flashattn::impl::SpecializeWarpsBase<SpecializeWarpsPass> {
  void runOnOperation() override {
    SmallVector<ProgramOp> programs;
    getOperation()->walk([&](ProgramOp program) {
      if (program.getSchedule() && program.getSchedule()->getRoles())
        programs.push_back(program);
    });
    IRRewriter rewriter(&getContext());
    for (ProgramOp program : programs)
      if (failed(specialize(rewriter, program)))
        return signalPassFailure();
  }
};
} // namespace
