//===- SpecializeWarps.cpp - flashattn-specialize-warps -------------------===//
//
// Builds thread blocks with warp specialization: a producer warpgroup loads tiles, and consumer
// warpgroups compute.
//
//===----------------------------------------------------------------------===//

#include "Block.h"
#include "flashattn/Conversion/KernelsToGPU/KernelsToGPU.h"
#include "flashattn/Conversion/Passes.h"
#include "flashattn/Dialect/FlashAttn/Program/Spaces.h"

namespace mlir::flashattn {
#define GEN_PASS_DEF_SPECIALIZEWARPS
#include "flashattn/Conversion/Passes.h.inc"
} // namespace mlir::flashattn

using namespace mlir;
using namespace mlir::flashattn;

/// Number of warps in a warpgroup.
static constexpr int64_t kWarps = hopper::kWarpgroupThreads / kWarpThreads;

namespace {
/// Builds the launch and the values that its threads share.
class LaunchBuilder : public BlockBuilder {
public:
  LaunchBuilder(RewriterBase &b, const BlockPlan &plan, BlockValues &values)
      : BlockBuilder(b, plan, values), values(values) {}

  void build();

private:
  void makeMaps();
  void makeCounter();
  int64_t allocate();
  void initBlock();

  BlockValues &values;
  Value blocks;      ///< number of blocks in the grid
  ProgramOp primary; ///< primary program of the programmatic dependent launch, or null
};
} // namespace

/// Builds tensor maps that copy one panel of a tile at a time.
void LaunchBuilder::makeMaps() {
  auto make = [&](auto access, Value memref, int64_t rows) -> Value {
    VectorType tile = getCopiedType(access);
    auto type = hopper::TensorMapType::get(b.getContext(), rows, getPanelColumns(tile),
                                           tile.getElementType());
    IntegerAttr outerDim, outerRows;
    if (access.getDims().size() > 2) {
      outerDim = b.getI64IntegerAttr(access.getDims().front());
      outerRows = b.getI64IntegerAttr(access.getTileShape().front());
    }
    return hopper::MakeTensorMapOp::create(
        b, loc, type, memref, b.getI64IntegerAttr(*access.getRowDim()), outerDim, outerRows);
  };
  auto rowsOf = [](auto access) { return access.getTileType().getDimSize(0); };
  auto getSource = [&](LoadTileOp load) -> Value {
    LeftOut rows = getLeftOutByMap(load);
    if (!rows.begin && !rows.end)
      return getRowView(load.getSource(), load.getDims()).base;
    // A tensor map cannot be empty. If no row is to be read, no copy is issued, so map all rows.
    Value begin = rows.begin ? rows.begin : index(0);
    Value all = dim(load.getSource(), *load.getRowDim()), end = rows.end ? rows.end : all;
    Value any = b.createOrFold<arith::CmpIOp>(loc, arith::CmpIPredicate::slt, begin, end);
    return takeRows(b, loc, load.getSource(), *load.getRowDim(), select(any, begin, index(0)),
                    select(any, end, all));
  };
  for (LoadTileOp load : plan.residents)
    values.maps.residents.push_back(make(load, getSource(load), rowsOf(load)));
  for (LoadTileOp load : plan.streams) {
    Value source = getSource(load);
    // Pieces of pages serve every tile.
    values.maps.streams.push_back(
        {load.getPages() && mayBeCut(load) ? Value() : make(load, source, rowsOf(load)),
         mayBeCut(load) ? make(load, source, getPieceRows(load)) : Value()});
  }
  for (StoreTileOp store : plan.outputs)
    values.maps.outputs.push_back(
        make(store, getRowView(store.getTarget(), store.getDims()).base, rowsOf(store)));
}

/// Returns the primary program of the programmatic dependent launch of `program`, the program right
/// before it; null if there is none.
static ProgramOp findLeader(ProgramOp program) {
  if (program.getPdlSecondary())
    for (Operation *op = program->getPrevNode(); op; op = op->getPrevNode())
      if (auto before = dyn_cast<ProgramOp>(op))
        return before.getPdlPrimary() ? before : ProgramOp();
  return {};
}

/// Allocates the atomic counter of claimed groups and sets it to 0 before the grid runs: in the
/// kernel that lists the groups or in the primary program if there is one, else in a grid of one
/// thread. There is no such grid if each
/// block runs one group. No other kernel writes the counter while the grid runs.
void LaunchBuilder::makeCounter() {
  Value more = compare(arith::CmpIPredicate::ult, blocks, values.groups);
  auto allocate = [&](Value size) {
    values.scheduler.counter = memref::AllocOp::create(
        b, loc, MemRefType::get({ShapedType::kDynamic}, b.getI32Type()), ValueRange{size});
  };
  auto clear = [&] {
    memref::StoreOp::create(b, loc, i32(0), values.scheduler.counter, ValueRange{index(0)});
  };
  if (plan.listsGroups()) {
    allocate(index(1));
    GroupLister lister(b, plan, block);
    values.scheduler.list = lister.allocate(values.tileGroups);
    lister.build(values.scheduler.list, values.scheduler.counter);
    return;
  }
  if (primary) {
    {
      OpBuilder::InsertionGuard guard(b);
      b.setInsertionPoint(primary);
      allocate(index(1));
      b.setInsertionPointToStart(primary.getBody());
      Value number = index(0);
      for (Value each : primary.getNumbers())
        number = arith::OrIOp::create(b, loc, number, each);
      auto first = scf::IfOp::create(b, loc, compare(arith::CmpIPredicate::eq, number, index(0)),
                                     /*withElseRegion=*/false);
      b.setInsertionPointToStart(first.thenBlock());
      clear();
    }
    // The primary program may have no blocks.
    Value programs = countPoints(b, primary.getSpaceOp());
    more =
        arith::AndIOp::create(b, loc, more, compare(arith::CmpIPredicate::eq, programs, index(0)));
  } else {
    allocate(select(more, index(1), index(0)));
  }
  auto guarded = scf::IfOp::create(b, loc, more, /*withElseRegion=*/false);
  OpBuilder::InsertionGuard guard(b);
  b.setInsertionPointToStart(guarded.thenBlock());
  Value one = index(1);
  auto launch = gpu::LaunchOp::create(b, loc, one, one, one, one, one, one);
  b.setInsertionPointToStart(&launch.getBody().front());
  LaunchDependentsOp::create(b, loc);
  // A grid that waits for the counter's grid must also wait for that grid's primary.
  if (ProgramOp program = plan.program; program.getPdlSecondary())
    WaitPrerequisiteGridsOp::create(b, loc);
  clear();
  gpu::TerminatorOp::create(b, loc);
}

/// Creates views of the block's shared memory for all planned buffers. Returns its size in bytes.
int64_t LaunchBuilder::allocate() {
  FloatType element = plan.schedule.getDotType();
  const WarpgroupBlockPlan &planned = plan.memory;
  auto space = gpu::AddressSpaceAttr::get(b.getContext(), gpu::AddressSpace::Workgroup);
  auto view = [&](unsigned number, Type type) -> Value {
    const SharedBuffer &buffer = planned.memory[number];
    return memref::ViewOp::create(
        b, loc, MemRefType::get(buffer.shape, type, MemRefLayoutAttrInterface{}, space),
        values.pool, index(buffer.offset), ValueRange());
  };
  auto viewVectors = [&](unsigned number, Type type) -> Value {
    const SharedBuffer &buffer = planned.memory[number];
    int64_t count = ShapedType::getNumElements(buffer.shape) / ConverterBuilder::kElements;
    auto vectors = MemRefType::get({count}, VectorType::get({ConverterBuilder::kElements}, type),
                                   MemRefLayoutAttrInterface{}, space);
    return memref::ViewOp::create(b, loc, vectors, values.pool, index(buffer.offset), ValueRange());
  };
  for (unsigned number : planned.residents)
    values.residents.push_back(view(number, element));
  for (unsigned number : planned.outputs) {
    auto shared = llvm::find(planned.residents, number);
    values.outputs.push_back(shared != planned.residents.end()
                                 ? values.residents[shared - planned.residents.begin()]
                                 : view(number, element));
  }
  SmallVector<Value> tiles = llvm::map_to_vector(
      planned.rings, [&](const RingPlan &ring) { return view(ring.buffer, element); });
  values.barriers = view(planned.barriers, b.getI64Type());
  auto makeRing = [&](Value places, const RingPlan &ring) -> Value {
    auto tiles = cast<MemRefType>(places.getType());
    ArrayRef<int64_t> shape = tiles.getShape();
    auto type = hopper::RingType::get(b.getContext(), shape[0], shape[1], shape[2], shape[3],
                                      tiles.getElementType());
    return hopper::MakeRingOp::create(b, loc, type, places, values.barriers, ring.full);
  };
  for (auto [places, ring] : llvm::zip_equal(tiles, planned.rings))
    values.rings.push_back(makeRing(places, ring));
  for (auto [load, ring, source] : llvm::zip_equal(plan.streams, planned.rings, planned.sources)) {
    BlockValues::Source &made = values.sources.emplace_back();
    if (!source)
      continue;
    Type narrow = LoadTileOp(load).getMemRefType().getElementType();
    made.ring = makeRing(view(source->buffer, narrow), *source);
    bool isWhole = isTransposed(load);
    made.from = isWhole ? view(source->buffer, narrow) : viewVectors(source->buffer, narrow);
    made.to = isWhole ? view(ring.buffer, element) : viewVectors(ring.buffer, element);
  }
  for (unsigned number : planned.exchanged)
    values.exchanged.push_back(view(number, element));
  for (unsigned number : planned.rows)
    values.rows.push_back(view(number, b.getF32Type()));
  for (unsigned number : planned.staging)
    values.staging.push_back(view(number, b.getF32Type()));
  values.sharedRanges = view(planned.bounds, b.getI32Type());
  if (planned.numbers)
    values.numbers = view(*planned.numbers, b.getI32Type());
  return planned.memory.getBytes();
}

/// Thread 0, in the producer warpgroup, initializes the barriers and prepares the first group.
void LaunchBuilder::initBlock() {
  Value first = compare(arith::CmpIPredicate::eq, values.thread, index(0));
  auto guarded = scf::IfOp::create(b, loc, first, /*withElseRegion=*/false);
  OpBuilder::InsertionGuard guard(b);
  b.setInsertionPointToStart(guarded.thenBlock());
  // One thread issues the loads of a program's residents. Their readers release the buffer.
  for (int64_t i = 0; i < plan.memory.rings.front().full; ++i) {
    bool isEmpty = plan.memory.residentEmpty && i >= *plan.memory.residentEmpty;
    hopper::BarrierInitOp::create(b, loc, values.barriers, index(i),
                                  b.getI64IntegerAttr(isEmpty ? plan.countSlotReleases() : 1));
  }
  constexpr int64_t kBuffers = 2;
  for (auto [ring, source] : llvm::zip_equal(values.rings, values.sources)) {
    constexpr int64_t kConverters = WarpgroupBlockPlan::kSpareWarps;
    hopper::RingInitOp::create(b, loc, ring, plan.getConsumers() * (plan.warpsRelease ? kWarps : 1),
                               source.ring ? kConverters : 1);
    if (source.ring)
      hopper::RingInitOp::create(b, loc, source.ring, kConverters);
  }
  auto initBuffers = [&](int64_t first, int64_t count, int64_t arrivals) {
    for (int64_t i = 0; i < count; ++i)
      hopper::BarrierInitOp::create(b, loc, values.barriers, index(first + i),
                                    b.getI64IntegerAttr(arrivals));
  };
  bool splits = plan.splitsSums();
  initBuffers(plan.memory.exchangeReady, kBuffers * values.exchanged.size(),
              kWarps * (splits ? 1 : plan.getConsumers()));
  if (splits)
    initBuffers(plan.memory.bufferFree, kBuffers, kWarps);
  if (plan.getDqReduceStages()) {
    initBuffers(plan.memory.staged, WarpgroupBlockPlan::kSpareWarps, kWarps * plan.getConsumers());
    initBuffers(plan.memory.stagingFree, plan.getDqReduceStages(), 1);
  }
  hopper::FenceBarrierInitOp::create(b, loc);
  Group group = values.group;
  Value number = values.launch.getBlockIds().x;
  ProducerBuilder producer(b, plan, block);
  GridBuilder grid(b, plan, block);
  if (plan.listsGroups())
    return producer.prepareIf(grid.isGroup(toI32(number)), toI32(number), index(0));
  if (plan.publishesGroups())
    group = grid.decode(number);
  producer.prepare(group, index(0));
}

void LaunchBuilder::build() {
  ProgramOp program = plan.program;
  GridBuilder grid(b, plan, block);
  primary = findLeader(program);
  b.setInsertionPoint(program);
  grid.countGroups(values);
  // The driver rejects a grid of 0 blocks.
  Value any = compare(arith::CmpIPredicate::ugt, values.groups, index(0));
  auto guarded = scf::IfOp::create(b, loc, any, /*withElseRegion=*/false);
  b.setInsertionPointToStart(guarded.thenBlock());
  makeMaps();
  Value one = index(1);
  blocks = plan.isPersistent() ? grid.countBlocks() : values.groups;
  if (plan.claims())
    makeCounter();
  if (plan.hopper.getL2HeadGroup() == 0)
    values.section = grid.countHeadsPerSection();
  if (plan.hopper.getPrefetchKiBPerSM())
    values.idle = grid.countIdleStages();
  values.launch =
      gpu::LaunchOp::create(b, loc, blocks, one, one, index(plan.getThreads()), one, one);
  b.setInsertionPointToStart(&values.launch.getBody().front());
  auto space = gpu::AddressSpaceAttr::get(b.getContext(), gpu::AddressSpace::Workgroup);
  auto poolType =
      MemRefType::get({ShapedType::kDynamic}, b.getI8Type(), MemRefLayoutAttrInterface{}, space);
  values.pool = gpu::DynamicSharedMemoryOp::create(b, loc, poolType);
  int64_t bytes = allocate();
  values.thread = values.launch.getThreadIds().x;
  if (!plan.publishesGroups())
    values.group = grid.decode(values.launch.getBlockIds().x);
  if (plan.listsGroups()) {
    WaitPrerequisiteGridsOp::create(b, loc);
  } else if (plan.claims() && !program.getPdlSecondary()) {
    // Without a counter kernel, the previous grid may be any kernel that writes the inputs.
    Value last = arith::XOrIOp::create(b, loc, grid.hasMoreGroups(),
                                       arith::ConstantIntOp::create(b, loc, 1, /*width=*/1));
    auto guarded = scf::IfOp::create(b, loc, last, /*withElseRegion=*/false);
    OpBuilder::InsertionGuard guard(b);
    b.setInsertionPointToStart(guarded.thenBlock());
    WaitPrerequisiteGridsOp::create(b, loc);
  }
  initBlock();
  // The barriers are initialized and the loads of residents are in flight.
  if ((program.getPdlSecondary() || plan.claims()) && !plan.listsGroups())
    WaitPrerequisiteGridsOp::create(b, loc);
  // The shuffle makes the value warp-uniform for ptxas.
  values.warpgroup = fromLane0(div(values.thread, index(hopper::kWarpgroupThreads)));
  Value inGroup =
      arith::AndIOp::create(b, loc, values.thread, index(hopper::kWarpgroupThreads - 1));
  values.signals = compare(arith::CmpIPredicate::eq, inGroup, index(0));
  values.releases = values.signals;
  if (plan.warpsRelease) {
    Value inWarp = arith::AndIOp::create(b, loc, values.thread, index(kWarpThreads - 1));
    values.releases = compare(arith::CmpIPredicate::eq, inWarp, index(0));
  }
  Value isProducer = compare(arith::CmpIPredicate::eq, values.warpgroup, index(0));
  auto role = scf::IfOp::create(b, loc, isProducer, /*withElseRegion=*/true);
  gpu::TerminatorOp::create(b, loc);
  b.setInsertionPointToStart(role.thenBlock());
  ProducerBuilder(b, plan, block).build();
  b.setInsertionPointToStart(role.elseBlock());
  ConsumerBuilder(b, plan, block).build();
  if (program.getPdlPrimary() || plan.schedule.getSplits() > 1)
    addLaunchDependents(values.launch.getBody().front());
  eraseProgram(b, program);
  if (values.scheduler.list) {
    b.setInsertionPointAfter(values.launch);
    memref::DeallocOp::create(b, loc, values.scheduler.list);
    memref::DeallocOp::create(b, loc, values.scheduler.counter);
  } else if (values.scheduler.counter) {
    b.setInsertionPointAfter(primary ? guarded : values.launch.getOperation());
    memref::DeallocOp::create(b, loc, values.scheduler.counter);
  }
  b.setInsertionPoint(values.launch);
  values.launch.getDynamicSharedMemorySizeMutable().assign(i32(bytes));
}

//===----------------------------------------------------------------------===//
// Programs
//===----------------------------------------------------------------------===//

static LogicalResult specialize(RewriterBase &b, ProgramOp program) {
  FailureOr<BlockPlan> plan = BlockPlan::get(program);
  if (failed(plan))
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
      if (program.getSchedule() && program.getSchedule()->getHopper())
        programs.push_back(program);
    });
    IRRewriter rewriter(&getContext());
    for (ProgramOp program : programs)
      if (failed(specialize(rewriter, program)))
        return signalPassFailure();
  }
};
} // namespace
