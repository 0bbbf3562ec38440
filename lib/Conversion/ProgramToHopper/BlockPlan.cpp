//===- BlockPlan.cpp ------------------------------------------------------===//

#include "BlockPlan.h"
#include "flashattn/Dialect/FlashAttn/Program/TileBuilder.h"
#include "mlir/Dialect/GPU/IR/GPUDialect.h"
#include "mlir/Dialect/MemRef/IR/MemRef.h"
#include "mlir/Dialect/Utils/StaticValueUtils.h"
#include "mlir/Dialect/Vector/IR/VectorOps.h"

using namespace mlir;
using namespace mlir::flashattn;

//===----------------------------------------------------------------------===//
// Constraints of TMA copies
//===----------------------------------------------------------------------===//

static Value getMemRef(LoadTileOp load) { return load.getSource(); }
static Value getMemRef(StoreTileOp store) { return store.getTarget(); }

/// Whether the ones after the memref's columns begin in the middle of a panel.
static bool cutsPanel(LoadTileOp load) {
  VectorType tile = load.getTileType();
  return load.getOnes() && (tile.getDimSize(1) - LoadTileOp::kOnes) % getPanelColumns(tile) != 0;
}
static bool cutsPanel(StoreTileOp) { return false; }

/// Returns the first requirement of TMA that `access` does not meet; empty if there is none.
template <typename AccessOp> static StringRef getObstacle(AccessOp access) {
  VectorType tile = access.getTileType();
  MemRefType type = access.getMemRefType();
  ArrayRef<int64_t> dims = access.getDims();
  bool isConverted = isa<LoadTileOp>(access) && isNarrow(type.getElementType());
  if (!type.getElementType().isF16() && !type.getElementType().isBF16() && !isConverted)
    return isa<LoadTileOp>(access) ? "elements of f16, bf16 or 8 bits" : "elements of f16 or bf16";
  if (type.getRank() < 2 || type.getRank() > 5)
    return "a memref of 2 to 5 dimensions";
  if (tile.getRank() != 2 || !access.isDense() || dims.size() > 3 ||
      dims.back() != type.getRank() - 1 || !llvm::is_sorted(dims))
    return "rows along one or two dimensions, in their order, and columns along the last dimension";
  if (tile.getDimSize(0) > 256 || tile.getDimSize(0) % 8 != 0)
    return "up to 256 rows, a multiple of 8";
  if (cutsPanel(access))
    return "columns of ones after columns that fill whole panels";
  // Casts and expanded dimensions do not change row addresses.
  Value memref = getMemRef(access);
  while (isa_and_present<memref::CastOp, memref::ExpandShapeOp>(memref.getDefiningOp()))
    memref = memref.getDefiningOp()->getOperand(0);
  if (!hasAlignedRows(getMemRef(access)) && !hasAlignedRows(memref))
    return "rows that begin at multiples of 16 bytes";
  return "";
}

RowView mlir::flashattn::getRowView(Value memref, ArrayRef<int64_t> dims) {
  auto view = memref.getDefiningOp<memref::SubViewOp>();
  RowView none{memref, Value()}, found = none;
  if (!view || !view.hasUnitStride() || view.getDroppedDims().any())
    return none;
  for (auto [dim, offset] : llvm::enumerate(view.getMixedOffsets())) {
    if (isConstantIntValue(offset, 0))
      continue;
    auto first = dyn_cast<Value>(offset);
    if (!first || found.firstRow || !llvm::is_contained(dims, int64_t(dim)))
      return none;
    found = {view.getSource(), first, unsigned(dim)};
  }
  return found;
}

/// Whether TMA can write the tile of `store`, usually from the buffer of the program's residents.
static bool isCopied(StoreTileOp store, const BlockPlan &plan) {
  // If each consumer runs its own program, that buffer already receives the next group's residents.
  if (plan.reusesResidentBuffers() && !plan.sharesProgram())
    return false;
  VectorType tile = store.getTileType();
  if (store->getBlock() != plan.loop->getBlock() || !plan.loop->isBeforeInBlock(store) ||
      tile.getElementType() != plan.schedule.getDotType() || !getObstacle(store).empty() ||
      !hasAlignedRows(store.getTarget()))
    return false;
  // TMA writes whole panels. Columns beyond the tile must lie past the end of the row.
  int64_t columns = tile.getDimSize(1), written = llvm::alignTo(columns, getPanelColumns(tile));
  int64_t width = store.getMemRefType().getShape().back();
  return tile.getDimSize(0) == plan.schedule.getTileM() &&
         (written == columns || (!ShapedType::isDynamic(width) && width <= columns));
}

//===----------------------------------------------------------------------===//
// The tiles of a program
//===----------------------------------------------------------------------===//

bool mlir::flashattn::sumsOverRows(LoadTileOp load) {
  return llvm::any_of(load->getUses(), [&](OpOperand &use) {
    auto op = dyn_cast<vector::ContractionOp>(use.getOwner());
    if (!op || use.getOperandNumber() > 1)
      return false;
    auto rows =
        dyn_cast<AffineDimExpr>(op.getIndexingMapsArray()[use.getOperandNumber()].getResult(0));
    return rows &&
           op.getIteratorTypesArray()[rows.getPosition()] == vector::IteratorType::reduction;
  });
}

/// Whether a product has the rows of `load` as its own. The rows that do not exist in its row map
/// must then read as zeros too.
static bool isLeftFactor(LoadTileOp load) {
  return llvm::any_of(load->getUses(), [](OpOperand &use) {
    return isa<vector::ContractionOp>(use.getOwner()) && use.getOperandNumber() == 0;
  });
}

LeftOut mlir::flashattn::getLeftOut(LoadTileOp load, bool inBlock) {
  return sumsOverRows(load) || isLeftFactor(load) ? getRowBounds(load, inBlock) : LeftOut();
}

LeftOut mlir::flashattn::getRowBounds(LoadTileOp load, bool inBlock) {
  Operation *program = load->getParentOfType<ProgramOp>(),
            *scope = program ? program : load->getParentOfType<gpu::LaunchOp>();
  auto get = [&](Value end) {
    return end && scope->isAncestor(end.getParentRegion()->getParentOp()) == inBlock ? end
                                                                                     : Value();
  };
  return {get(load.getBeginRow()), get(load.getEndRow())};
}

/// Whether `load` loads a different tile in each step of `loop`.
static bool isStreamed(LoadTileOp load, TileLoopOp loop) {
  return llvm::any_of(load.getIndices(),
                      [&](Value index) { return dependsOn(index, loop.getTile()); });
}

SmallVector<LoadTileOp> BlockPlan::findStreams(TileLoopOp loop) {
  SmallVector<LoadTileOp> streams;
  for (auto load : loop.getBody()->getOps<LoadTileOp>())
    if (isStreamed(load, loop) && isFactor(load))
      streams.push_back(load);
  return streams;
}

/// Whether `index` is the loop's tile, or the sum of the tile and a number that is the same in all
/// steps.
static bool countsFromTile(Value index, TileLoopOp loop) {
  if (index == loop.getTile())
    return true;
  auto sum = index.getDefiningOp<arith::AddIOp>();
  return sum && llvm::is_contained(sum->getOperands(), loop.getTile()) &&
         llvm::count_if(sum->getOperands(),
                        [&](Value v) { return dependsOn(v, loop.getTile()); }) == 1;
}

/// Whether a step reads N contiguous, aligned f32 elements through `load`, those of its tile.
static bool isStreamedRow(LoadTileOp load, TileLoopOp loop) {
  VectorType tile = load.getTileType();
  int64_t last = load.getMemRefType().getRank() - 1;
  return tile.getRank() == 2 && tile.getElementType().isF32() && tile.getDimSize(1) % 4 == 0 &&
         load.getDims() == ArrayRef<int64_t>{-1, last} &&
         llvm::all_of(load.getInBounds(), [](bool b) { return b; }) && !load.getRows() &&
         countsFromTile(load.getIndices()[last], loop) &&
         loop->getParentOp()->isProperAncestor(load) && hasAlignedRows(load.getSource());
}

SmallVector<BlockPlan::Row> BlockPlan::findRows(TileLoopOp loop, const SumSplit &split) {
  // If sums are split, the consumer that reads a row must be the consumer that releases the tile.
  auto haveOneMaker = [&](Operation *x, Operation *y) {
    return llvm::all_of(split.made, [&](const SetVector<Operation *> &made) {
      return made.contains(x) == made.contains(y);
    });
  };
  SmallVector<Row> rows;
  for (auto load : loop.getBody()->getOps<LoadTileOp>()) {
    if (!isStreamedRow(load, loop))
      continue;
    // A single thread releases the stream's tile. A row may only be loaded with that tile if the
    // last product of the tile depends on the row: after that product all threads have read the
    // row.
    for (auto [i, stream] : llvm::enumerate(findStreams(loop))) {
      Operation *last = nullptr;
      for (Operation *user : stream->getUsers())
        if (haveOneMaker(user, *load->user_begin()) && (!last || last->isBeforeInBlock(user)))
          last = user;
      auto product = dyn_cast_if_present<vector::ContractionOp>(last);
      if (product && dependsOn(product.getLhs(), load.getTile())) {
        rows.push_back({load, static_cast<unsigned>(i)});
        break;
      }
    }
  }
  return rows;
}

/// Returns the only loop of `program` that streams tiles.
static FailureOr<TileLoopOp> findLoop(ProgramOp program) {
  SmallVector<TileLoopOp> loops;
  program.walk([&](TileLoopOp loop) {
    if (!BlockPlan::findStreams(loop).empty())
      loops.push_back(loop);
  });
  if (loops.size() != 1)
    return program.emitOpError()
           << "expected one loop that streams operands of contractions but got " << loops.size();
  if (loops.front()->getParentOp() != program)
    return loops.front().emitOpError()
           << "expected the streaming loop at the top level of the program but got a loop in '"
           << loops.front()->getParentOp()->getName() << "'";
  return loops.front();
}

/// Verifies that a tile that contractions read can be loaded into shared memory.
static LogicalResult verifyShared(LoadTileOp load, const BlockPlan &plan) {
  if (!llvm::is_contained(plan.streams, load) && !llvm::is_contained(plan.residents, load))
    return load.emitOpError() << "expected a tile of a contraction to be loaded once per program "
                                 "or once per step but got neither";
  for (Operation *user : load->getUsers())
    if (!isa<vector::ContractionOp, SoftmaxStepOp>(user))
      return load.emitOpError() << "expected only contractions and softmax steps to read a tile in "
                                   "shared memory but got '"
                                << user->getName() << "'";
  if (StringRef obstacle = getObstacle(load); !obstacle.empty())
    return load.emitOpError() << "expected " << obstacle
                              << ", which tensor copies require, but got " << load.getMemRefType()
                              << " and " << load.getTileType();
  if (load.getTileType().getElementType() != plan.schedule.getDotType())
    return load.emitOpError() << "expected a tile of " << plan.schedule.getDotType()
                              << ", the schedule's dot_type, but got " << load.getTileType();
  if (LeftOut missing = getLeftOutInBlock(load);
      !load.getSegments().empty() && (missing.begin || missing.end))
    return load.emitOpError()
           << "expected the ends of compacted rows to be defined outside of the program but got '"
           << (missing.begin ? "from" : "below") << "' defined inside";
  Operation *source = getRowView(load.getSource(), load.getDims()).base.getDefiningOp();
  if (source && plan.program->isProperAncestor(source))
    return load.emitOpError() << "expected a memref that is defined outside of the program, for a "
                                 "tensor map, but got a result of '"
                              << source->getName() << "'";
  TileLoopOp loop = plan.loop;
  SmallVector<RowSegment> segments = load.getSegments();
  if (!segments.empty() && !llvm::is_contained(plan.streams, load))
    return load.emitOpError() << "expected compacted rows only in a tile that each step loads";
  if (load.getPages() && getPieceRows(load) % 8 != 0)
    return load.emitOpError() << "expected pages of a multiple of 8 rows but got "
                              << load.getPages()->size;
  if (load.getPages() && load.getPages()->first)
    return load.emitOpError() << "expected paged rows without 'first' but got 'first'";
  // The producer looks up the pages of a step once.
  auto isOfStep = [&](LoadTileOp other) {
    std::optional<PageMap> pages = load.getPages(), others = other.getPages();
    return !pages || !others ||
           (load.getIndices()[*load.getRowDim()] == loop.getTile() &&
            pages->table == others->table && pages->sequence == others->sequence &&
            load.getTileType().getDimSize(0) == other.getTileType().getDimSize(0));
  };
  if (!llvm::all_of(plan.streams, isOfStep))
    return load.emitOpError() << "expected all tiles of a step in the same pages but got others";
  for (const RowSegment &segment : segments)
    if (llvm::any_of(loop.getBody()->getArguments(), [&](Value argument) {
          return dependsOn(segment.start, argument) || dependsOn(segment.skip, argument);
        }))
      return load.emitOpError()
             << "expected the same compacted rows for all steps but got a start or "
                "a skip that depends on the step";
  // The producer tracks only the tile index and the round, not the state of the loop.
  for (auto [dim, index] : llvm::enumerate(load.getIndices()))
    for (Value argument : loop.getBody()->getArguments())
      if (argument != loop.getRound() && argument != loop.getTile() && dependsOn(index, argument))
        return load.emitOpError() << "expected an index along dimension " << dim
                                  << " that depends only on the step's tile and round but got one "
                                     "that depends on the loop's state";
  return success();
}

/// Whether the programs of a block all iterate over the same tiles.
static bool shareIntervals(const BlockPlan &plan) {
  TileLoopOp loop = plan.loop;
  if (plan.sharesSequence() || plan.getPrograms() == 1)
    return true;
  ProgramOp program = plan.program;
  Value number = program.getNumbers()[plan.getHeadsPerBlock() > 1 ? 1 : 2];
  return llvm::all_of(llvm::seq(0u, loop.getNumIntervals()), [&](unsigned i) {
    ValueRange interval = loop.getInterval(i);
    return !dependsOn(interval.front(), number) && !dependsOn(interval.back(), number);
  });
}

StageOp mlir::flashattn::getStage(Operation *op) {
  while ((op = op->getPrevNode()))
    if (auto stage = dyn_cast<StageOp>(op))
      return stage;
  return {};
}

int64_t mlir::flashattn::countStagesBefore(Operation *op) {
  int64_t count = 0;
  for (StageOp stage = getStage(op); stage; stage = getStage(stage))
    ++count;
  return count;
}

/// Whether products of two steps read the first of `streams`, and each other stream has a single
/// user, a product that precedes the late product.
static bool areSkewed(ArrayRef<LoadTileOp> streams) {
  std::optional<int64_t> behind;
  bool isReadInTime = false;
  for (Operation *user : streams.front()->getUsers())
    if (StageOp stage = getStage(user); stage && stage.getLag() != 0)
      behind = stage.getBehind();
    else
      isReadInTime = true;
  return streams.size() > 1 && isReadInTime && behind &&
         llvm::all_of(streams.drop_front(), [&](LoadTileOp stream) {
           return stream->hasOneUse() && countStagesBefore(*stream->user_begin()) <= *behind;
         });
}

static int64_t countElements(AddTileOp add) {
  return cast<VectorType>(add.getTile().getType()).getNumElements();
}

/// Returns the number of f32 elements of a staging buffer: those of the smallest added tile.
static int64_t countStaged(const BlockPlan &plan) {
  return plan.added.empty()
             ? 0
             : countElements(*llvm::min_element(plan.added, [](AddTileOp x, AddTileOp y) {
                 return countElements(x) < countElements(y);
               }));
}

/// Verifies that consumers can split the sums of the program.
static LogicalResult verifySplit(const BlockPlan &plan) {
  ProgramOp program = plan.program;
  if (plan.schedule.getTileM() != hopper::kWarpgroupRows)
    return program.emitOpError() << "expected tile_m 64 for consumers that split sums but got "
                                 << plan.schedule.getTileM();
  if (plan.getResidentGroups() > 1)
    return program.emitOpError() << "expected q_stages 1 for consumers that split sums but got "
                                 << plan.getResidentGroups();
  for (LoadTileOp stream : plan.streams)
    for (const SetVector<Operation *> &made : plan.split.made)
      if (llvm::none_of(stream->getUsers(), [&](Operation *user) { return made.contains(user); }))
        return stream.emitOpError()
               << "expected each consumer's sum to use the tile but got a sum that does not";
  if (!plan.exchanges.empty())
    return vector::ContractionOp(plan.exchanges.front()).emitOpError()
           << "expected no product of a transposed tile for consumers that split sums but got one";
  if (!plan.added.empty())
    return AddTileOp(plan.added.front()).emitOpError()
           << "expected no tiles that are added to global memory for consumers that split sums but "
              "got one";
  return success();
}

/// Verifies that consumers can share the program.
static LogicalResult verifySharing(const BlockPlan &plan) {
  ProgramOp program = plan.program;
  if (plan.splitsSums())
    return verifySplit(plan);
  if (plan.sharesProgram() &&
      plan.schedule.getTileM() != hopper::kWarpgroupRows * plan.getConsumers())
    return program.emitOpError() << "expected tile_m to be 64, or 64 for each of "
                                 << plan.getConsumers() << " consumers, but got "
                                 << plan.schedule.getTileM();
  for (vector::ContractionOp product : plan.exchanges)
    if (Operation *def = product.getLhs().getDefiningOp();
        !def || def->getBlock() != product->getBlock())
      return product.emitOpError() << "expected a transposed left-hand side that the loop computes";
  // A block has only one set of buffers for exchanged and staged tiles.
  if (plan.getPrograms() > 1 && (!plan.exchanges.empty() || !plan.added.empty()))
    return program.emitOpError() << "expected consumers to share a program with a transposed tile "
                                    "or added tiles but got tile_m "
                                 << plan.schedule.getTileM() << " for " << plan.getConsumers()
                                 << " consumers";
  // A larger tile is added in parts, one after another.
  int64_t staged = countStaged(plan);
  for (AddTileOp add : plan.added)
    if (countElements(add) > staged &&
        countElements(add) != staged * static_cast<int64_t>(add.getParts()))
      return add.emitOpError() << "expected parts of " << staged
                               << " elements, the size of another tile, but got " << add.getParts()
                               << " parts of " << add.getTile().getType();
  return success();
}

/// Verifies that consumers or spare warps can add tiles as the schedule says.
static LogicalResult verifyAdding(const BlockPlan &plan) {
  ProgramOp program = plan.program;
  TileLoopOp loop = plan.loop;
  bool isStep = !plan.added.empty() && AddTileOp(plan.added.front())->getBlock() == loop.getBody();
  if (plan.getDqReduceStages() && (!isStep || plan.splitsSums()))
    return program.emitOpError()
           << "expected dq_reduce_stages 0, unless consumers share a program, add a tile at each "
              "step and do not split the sums, but got "
           << plan.getDqReduceStages();
  if (plan.takesTurns && plan.getDqReduceStages() == 0)
    return program.emitOpError()
           << "expected dq_reduce_stages 1 or 2 for tiles that are added in turns but got 0";
  if (SignalAddedOp signal = plan.signal; signal && !plan.getDqReduceStages())
    return signal.emitOpError()
           << "expected dq_reduce_stages 1 or 2 for a completion counter but got 0";
  for (AddTileOp added : plan.added)
    if (added.getOrder() && (!plan.getDqReduceStages() || added->getBlock() != loop.getBody()))
      return added.emitOpError() << "expected dq_reduce_stages 1 or 2, and a tile that is added at "
                                    "each step, for 'order' but got "
                                 << (plan.getDqReduceStages() ? "a tile added outside of the loop"
                                                              : "dq_reduce_stages 0");
  return success();
}

/// Returns the streams that the loop multiplies by residents; empty if a resident has another use.
static SmallVector<unsigned> findResidentStreams(const BlockPlan &plan) {
  SmallVector<unsigned> residentStreams;
  for (LoadTileOp resident : plan.residents)
    for (Operation *user : resident->getUsers()) {
      auto product = dyn_cast<vector::ContractionOp>(user);
      auto stream = llvm::find_if(plan.streams, [&](LoadTileOp load) {
        return product && llvm::is_contained(product->getOperands(), load.getTile());
      });
      if (stream == plan.streams.end())
        return {};
      unsigned number = stream - plan.streams.begin();
      if (!llvm::is_contained(residentStreams, number))
        residentStreams.push_back(number);
    }
  return residentStreams;
}

/// Verifies that blocks can be persistent.
static LogicalResult verifyPersistent(const BlockPlan &plan) {
  ProgramOp program = plan.program;
  TileLoopOp loop = plan.loop;
  if (plan.reusesResidentBuffers() && (plan.splitsSums() || plan.residents.empty()))
    return program.emitOpError() << "expected dynamic_scheduler 0 with q_stages 1, unless "
                                    "consumers have resident tiles and do not split sums, but got "
                                 << plan.hopper.getDynamicScheduler();
  if (plan.waitsForEmptyRings() &&
      (plan.residentStreams.empty() || plan.countsRounds || plan.sharesSequence()))
    return program.emitOpError() << "expected dynamic_scheduler 0 with q_stages 1, unless "
                                    "consumers multiply every streamed tile by resident tiles, in "
                                    "a loop without tile lists, compacted keys or rounds, but got "
                                 << plan.hopper.getDynamicScheduler();
  // A turn may depend on the first program of a block that has not started, which would deadlock.
  if (plan.isPersistent() && plan.takesTurns)
    return program.emitOpError() << "expected tiles added in any order in a persistent block but "
                                    "got tiles added in turns";
  // The barriers of exchanged and added tiles count steps, and skipped steps would not arrive.
  if (plan.isPersistent() && loop.getWhen() && (!plan.exchanges.empty() || !plan.added.empty()))
    return loop.emitOpError()
           << "expected unconditional steps that exchange or add tiles in a persistent block";
  return success();
}

static WarpgroupBlockPlan planMemory(const BlockPlan &plan) {
  auto shapesOf = [](StringRef name, auto accesses) {
    return llvm::map_to_vector(accesses, [&](auto access) {
      VectorType tile = getReadType(access), copied = getCopiedType(access);
      TileShape shape{name, tile.getDimSize(0), tile.getDimSize(1)};
      if (isRewritten(access))
        shape.source = {copied.getDimSize(0), copied.getDimSize(1)};
      return shape;
    });
  };
  WarpgroupBlock block;
  block.residents = shapesOf("resident", plan.residents);
  block.streamed = shapesOf("streamed", plan.streams);
  block.outputs = shapesOf("output", plan.outputs);
  block.elementBytes = plan.schedule.getDotType().getWidth() / 8;
  block.consumers = plan.getConsumers();
  block.programs = plan.getPrograms();
  for (vector::ContractionOp product : plan.exchanges) {
    VectorType tile = product.getLhsType();
    block.exchanged.push_back({"exchanged", tile.getDimSize(0), tile.getDimSize(1)});
  }
  if (plan.splitsSums()) {
    auto tile = cast<VectorType>(plan.split.passed.getType());
    block.exchanged.push_back({"passed", tile.getDimSize(0), tile.getDimSize(1)});
    block.passes = true;
  }
  for (const BlockPlan::Row &row : plan.rows)
    block.rows.push_back({LoadTileOp(row.load).getTileType().getDimSize(1), row.stream});
  block.added = countStaged(plan);
  block.dqReduceStages = plan.hopper.getDqReduceStages();
  block.stages = plan.getStages();
  block.skews = areSkewed(plan.streams);
  block.slots = plan.getResidentGroups();
  block.claims = plan.claims();
  block.segments = ProgramOp(plan.program).getRagged().has_value();
  block.intervals = plan.intervals;
  return planWarpgroupBlock(block);
}

/// Requires axes that a block's programs can share.
static LogicalResult verifyAxes(const BlockPlan &plan) {
  ProgramOp program = plan.program;
  auto hasAxes = [&](ArrayRef<ProgramAxis> tiles) {
    SmallVector<ProgramAxis> axes = {ProgramAxis::Batch, ProgramAxis::Head};
    llvm::append_range(axes, tiles);
    return llvm::equal(
        axes, program.getAxes().getAsRange<ProgramAxisAttr>(),
        [](ProgramAxis axis, ProgramAxisAttr got) { return axis == got.getValue(); });
  };
  int64_t together = plan.getPrograms() / plan.getHeadsPerBlock();
  std::optional<RaggedAxes> ragged = program.getRagged();
  if (ragged && ragged->segmentTiles % together != 0)
    return program.emitOpError()
           << "expected a multiple of " << together
           << " tiles in a segment, as a block has that many programs, but got "
           << ragged->segmentTiles;
  bool hasBoth = plan.getPrograms() == 1 && hasAxes({ProgramAxis::QueryTile, ProgramAxis::KeyTile});
  if (!hasAxes(ProgramAxis::QueryTile) && !hasAxes(ProgramAxis::KeyTile) && !hasBoth)
    return program.emitOpError() << "expected axes(batch, head, query_tile) or (batch, head, "
                                    "key_tile) with warp specialization, or (batch, head, "
                                    "query_tile, key_tile) with one program per block, but got "
                                 << program.getAxes();
  return success();
}

FailureOr<BlockPlan> BlockPlan::get(ProgramOp program) {
  BlockPlan plan;
  plan.program = program;
  plan.schedule = *program.getSchedule();
  plan.hopper = plan.schedule.getHopper();
  if (failed(verifyAxes(plan)))
    return failure();
  FailureOr<TileLoopOp> loop = findLoop(program);
  if (failed(loop))
    return failure();
  plan.loop = *loop;
  plan.streams = findStreams(*loop);
  if (plan.splitsSums() && failed(splitSums(plan)))
    return failure();
  for (LoadTileOp load : plan.streams)
    plan.warpsRelease |= llvm::any_of(load->getUsers(), llvm::IsaPred<SoftmaxStepOp>);
  plan.rows = findRows(*loop, plan.split);
  plan.intervals = loop->getNumIntervals();
  plan.countsRounds = loop->getRounds() != nullptr;
  if (plan.intervals == 1)
    plan.firstTile = getConstantIntValue(loop->getBounds().front());
  plan.sharesIntervals = shareIntervals(plan);
  Value batch = program.getNumbers()[0];
  WalkResult walk = program.walk([&](LoadTileOp load) {
    if (isFactor(load)) {
      if (load->getBlock() == program.getBody()) {
        plan.residents.push_back(load);
        LeftOut missing = getLeftOutInBlock(load);
        plan.cleared.push_back(missing.begin || missing.end);
      }
      return failed(verifyShared(load, plan)) ? WalkResult::interrupt() : WalkResult::advance();
    }
    // Other tiles that the loop reads, such as a bias, are loaded by each consumer itself.
    plan.batchesShare |=
        plan.loop->isProperAncestor(load) && load.isDense() &&
        llvm::none_of(load.getIndices(), [&](Value index) { return dependsOn(index, batch); });
    return WalkResult::advance();
  });
  if (walk.wasInterrupted())
    return failure();
  for (auto store : program.getBody()->getOps<StoreTileOp>())
    if (isCopied(store, plan))
      plan.outputs.push_back(store);
  for (auto product : plan.loop.getBody()->getOps<vector::ContractionOp>())
    if (isLhsTransposed(product))
      plan.exchanges.push_back(product);
  llvm::append_range(plan.added, plan.loop.getBody()->getOps<AddTileOp>());
  if (plan.added.size() > 1)
    return plan.added.back().emitOpError()
           << "expected at most one added tile per step but got more";
  program.walk([&](AddTileOp add) {
    if (!llvm::is_contained(plan.added, add))
      plan.added.push_back(add);
  });
  for (AddTileOp add : plan.added) {
    if (add.getAdjacent() != 4)
      return add.emitOpError() << "expected 4 adjacent elements but got " << add.getAdjacent();
    // A program passes a turn on at each step, so turns require tiles that are added in steps.
    bool isStep = add->getBlock() == plan.loop.getBody();
    plan.takesTurns |= add.getTurn() != nullptr;
    plan.firstClears |= add.getOrder() && !add.getTurn();
    if (add.getTurn() && (!isStep || plan.intervals != 1 || plan.loop.getList()))
      return add.emitOpError() << "expected the turn in a loop over one interval of tiles but got "
                               << (!isStep ? "a turn outside of the loop"
                                   : plan.loop.getList()
                                       ? "a loop over a list"
                                       : "a loop over " + Twine(plan.intervals) + " intervals");
  }
  for (auto await : program.getBody()->getOps<AwaitAddedOp>())
    return await.emitOpError()
           << "expected a schedule without warp specialization but got one with mapping 'hopper'";
  for (auto signal : program.getBody()->getOps<SignalAddedOp>()) {
    if (plan.signal)
      return signal.emitOpError() << "expected at most one completion counter but got two";
    plan.signal = signal;
  }
  if (plan.waitsForEmptyRings())
    plan.residentStreams = findResidentStreams(plan);
  if (failed(verifySharing(plan)) || failed(verifyAdding(plan)) || failed(verifyPersistent(plan)) ||
      failed(verifyConversion(plan)))
    return failure();
  plan.memory = planMemory(plan);
  // Schedule selection checks against the limit of a chip, which may be lower.
  if (int64_t bytes = plan.memory.memory.getBytes(); bytes > hopper::SharedTile::kMostBytes)
    return program.emitOpError() << "expected tiles of " << hopper::SharedTile::kMostBytes
                                 << " bytes at most in shared memory but got " << bytes;
  return plan;
}
