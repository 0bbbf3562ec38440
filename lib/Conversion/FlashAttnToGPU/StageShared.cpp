//===- StageShared.cpp - flashattn-stage-shared ----------------------------===//
//
// Tile reads become asynchronous copies into shared memory, double-buffered along the
// key loops.
//
//===----------------------------------------------------------------------===//

#include "TileLayout.h"
#include "flashattn/Conversion/Passes.h"
#include "mlir/Dialect/LLVMIR/NVVMDialect.h"
#include "mlir/Dialect/MemRef/IR/MemRef.h"
#include "mlir/Dialect/NVGPU/IR/NVGPUDialect.h"
#include "mlir/Dialect/SCF/IR/SCF.h"
#include "mlir/Dialect/Vector/IR/VectorOps.h"
#include "mlir/IR/IRMapping.h"
#include "mlir/IR/PatternMatch.h"

namespace mlir::flashattn {
#define GEN_PASS_DEF_STAGESHARED
#include "flashattn/Conversion/Passes.h.inc"
} // namespace mlir::flashattn

using namespace mlir;
using namespace mlir::flashattn;

namespace {

/// Stages the tile reads of one launch.
class Stager {
public:
  Stager(RewriterBase &b, gpu::LaunchOp launch)
      : b(b), launch(launch), loc(launch.getLoc()), schedule(getSchedule(launch)) {}

  LogicalResult run();

private:
  using Reads = SmallVector<vector::TransferReadOp>;
  /// Loops one after the other of which each ends where the next begins.
  struct Run {
    SmallVector<scf::ForOp> loops;
    Value begin() { return loops.front().getLowerBound(); }
    Value end() { return loops.back().getUpperBound(); }
  };

  Value index(int64_t v) { return arith::ConstantIndexOp::create(b, loc, v); }
  Value allocate(VectorType tile, int64_t stages);
  void copyTile(vector::TransferReadOp read, ValueRange indices, Value buffer, Value stage);
  void commit();
  void commitAndWait();
  void readFrom(vector::TransferReadOp read, Value buffer, Value stage);
  SmallVector<Value> indicesAt(vector::TransferReadOp read, scf::ForOp loop, Value iv);
  Value stageOf(Value iv);
  void copyAt(Run &run, Value iv);
  void stageRun(Run &run);
  SmallVector<Run> findRuns();

  RewriterBase &b;
  gpu::LaunchOp launch;
  Location loc;
  ScheduleAttr schedule;
  Value pool;                      ///< the block's dynamic shared memory, bytes
  int64_t bytes = 0;               ///< of it in use
  Value thread;                    ///< this thread's number
  DenseMap<Value, Value> bufferOf; ///< global memref to its stages in shared memory
};

} // namespace

/// memref<stages x rows x columns> in shared memory.
Value Stager::allocate(VectorType tile, int64_t stages) {
  auto space = gpu::AddressSpaceAttr::get(b.getContext(), gpu::AddressSpace::Workgroup);
  auto type = MemRefType::get({stages, tile.getDimSize(0), tile.getDimSize(1)},
                              tile.getElementType(), MemRefLayoutAttrInterface{}, space);
  OpBuilder::InsertionGuard guard(b);
  b.setInsertionPointAfter(pool.getDefiningOp());
  Value view = memref::ViewOp::create(b, loc, type, pool, index(bytes), ValueRange());
  bytes += type.getNumElements() * type.getElementTypeBitWidth() / 8;
  return view;
}

/// Copies the tile that `read` would read at `indices` to `buffer[stage]`; every thread
/// moves chunks of 16 bytes. Rows past the end become 0 and are not touched (A7).
void Stager::copyTile(vector::TransferReadOp read, ValueRange indices, Value buffer, Value stage) {
  auto tile = cast<VectorType>(read.getVectorType());
  int64_t rows = tile.getDimSize(0), columns = tile.getDimSize(1);
  SharedTile layout{columns, tile.getElementTypeBitWidth() / 8};
  unsigned rowDim = cast<AffineDimExpr>(read.getPermutationMap().getResult(0)).getPosition();
  int64_t threads = 32 * schedule.getWarps(), chunks = rows * layout.chunksPerRow();
  bool aligned = hasAlignedRows(read.getBase());
  int64_t width = cast<MemRefType>(read.getBase().getType()).getShape().back();
  // Whether a chunk lies inside of a row or past it.
  bool wholeChunks = read.isDimInBounds(1) ||
                     (!ShapedType::isDynamic(width) && width % layout.chunkElements() == 0);
  Value rowElements;
  if (!read.isDimInBounds(1))
    rowElements = b.createOrFold<memref::DimOp>(
        loc, read.getBase(), cast<MemRefType>(read.getBase().getType()).getRank() - 1);
  Value size = memref::DimOp::create(b, loc, read.getBase(), static_cast<int64_t>(rowDim));
  Value zero = index(0), chunkElements = index(layout.chunkElements());
  auto tokenType = nvgpu::DeviceAsyncTokenType::get(b.getContext());

  // Where a row's chunks divide the threads, a thread keeps its column from step to step.
  int64_t perRow = layout.chunksPerRow();
  bool sameColumn = threads % perRow == 0;
  auto divide = [&](Value v) -> std::pair<Value, Value> {
    return {arith::DivUIOp::create(b, loc, v, index(perRow)),
            arith::RemUIOp::create(b, loc, v, index(perRow))};
  };
  auto [firstRow, column] = divide(thread);

  for (int64_t first = 0; first < chunks; first += threads) {
    Value chunk = arith::AddIOp::create(b, loc, thread, index(first));
    auto emit = [&, firstRow = firstRow, column = column] {
      auto [row, inRow] =
          sameColumn
              ? std::pair(Value(arith::AddIOp::create(b, loc, firstRow, index(first / perRow))),
                          column)
              : divide(chunk);
      SmallVector<Value> from(indices);
      from[rowDim] = arith::AddIOp::create(b, loc, indices[rowDim], row);
      from.back() = b.createOrFold<arith::AddIOp>(
          loc, indices.back(), arith::MulIOp::create(b, loc, inRow, chunkElements));
      Value inBounds =
          read.isDimInBounds(0)
              ? Value()
              : Value(arith::CmpIOp::create(b, loc, arith::CmpIPredicate::slt, from[rowDim], size));
      auto withColumn = [&](Value rowInBounds, Value column) -> Value {
        Value inside =
            arith::CmpIOp::create(b, loc, arith::CmpIPredicate::slt, column, rowElements);
        return rowInBounds ? arith::AndIOp::create(b, loc, rowInBounds, inside).getResult()
                           : inside;
      };
      if (rowElements && wholeChunks)
        inBounds = withColumn(inBounds, from.back());
      Value to = arith::MulIOp::create(b, loc, layout.swizzle(b, loc, row, inRow), chunkElements);
      if (aligned && wholeChunks) {
        Value count = inBounds
                          ? Value(arith::SelectOp::create(b, loc, inBounds, chunkElements, zero))
                          : Value();
        nvgpu::DeviceAsyncCopyOp::create(
            b, loc, tokenType, buffer, ValueRange{stage, row, to}, read.getBase(), from,
            b.getIndexAttr(layout.chunkElements()), count, b.getUnitAttr());
        return;
      }
      // Rows that may begin anywhere are copied element by element.
      for (int64_t e = 0; e < layout.chunkElements(); ++e) {
        SmallVector<Value> at(from);
        at.back() = arith::AddIOp::create(b, loc, from.back(), index(e));
        Value value, exists = inBounds;
        if (!wholeChunks)
          exists = withColumn(inBounds, at.back());
        if (exists) {
          auto guarded = scf::IfOp::create(
              b, loc, exists,
              [&](OpBuilder &nested, Location l) {
                scf::YieldOp::create(
                    nested, l, ValueRange{memref::LoadOp::create(nested, l, read.getBase(), at)});
              },
              [&](OpBuilder &nested, Location l) {
                scf::YieldOp::create(nested, l, ValueRange{read.getPadding()});
              });
          value = guarded.getResult(0);
        } else {
          value = memref::LoadOp::create(b, loc, read.getBase(), at);
        }
        memref::StoreOp::create(
            b, loc, value, buffer,
            ValueRange{stage, row, arith::AddIOp::create(b, loc, to, index(e))});
      }
    };
    if (first + threads <= chunks) {
      emit();
      continue;
    }
    Value mine = arith::CmpIOp::create(b, loc, arith::CmpIPredicate::ult, chunk, index(chunks));
    auto guarded = scf::IfOp::create(b, loc, mine, /*withElseRegion=*/false);
    OpBuilder::InsertionGuard guard(b);
    b.setInsertionPointToStart(guarded.thenBlock());
    emit();
  }
}

/// Closes the group of copies issued so far. A group of nvgpu without tokens does not read back as
/// it prints: the parser takes the next line's result for one.
void Stager::commit() { NVVM::CpAsyncCommitGroupOp::create(b, loc); }

/// Closes the group, waits for all groups, and makes the tiles visible to all threads.
void Stager::commitAndWait() {
  auto tokenType = nvgpu::DeviceAsyncTokenType::get(b.getContext());
  Value group = nvgpu::DeviceAsyncCreateGroupOp::create(b, loc, tokenType, ValueRange());
  nvgpu::DeviceAsyncWaitOp::create(b, loc, group, b.getI32IntegerAttr(0));
  gpu::BarrierOp::create(b, loc);
}

void Stager::readFrom(vector::TransferReadOp read, Value buffer, Value stage) {
  Value zero = index(0);
  AffineMap map =
      AffineMap::get(3, 0, {b.getAffineDimExpr(1), b.getAffineDimExpr(2)}, b.getContext());
  b.replaceOpWithNewOp<vector::TransferReadOp>(read, read.getVectorType(), buffer,
                                               ValueRange{stage, zero, zero}, read.getPadding(),
                                               map, ArrayRef<bool>{true, true});
}

/// The read's indices with `iv` for the loop's induction variable: copies of what
/// computes them inside the loop.
SmallVector<Value> Stager::indicesAt(vector::TransferReadOp read, scf::ForOp loop, Value iv) {
  IRMapping mapping;
  mapping.map(loop.getInductionVar(), iv);
  std::function<Value(Value)> at = [&](Value v) -> Value {
    if (Value known = mapping.lookupOrNull(v))
      return known;
    Operation *def = v.getDefiningOp();
    if (!def || def->getBlock() != loop.getBody())
      return v;
    for (Value operand : def->getOperands())
      mapping.map(operand, at(operand));
    b.clone(*def, mapping);
    return mapping.lookup(v);
  };
  return llvm::map_to_vector(read.getIndices(), at);
}

Value Stager::stageOf(Value iv) {
  if (schedule.getStages() == 1)
    return index(0);
  return arith::AndIOp::create(b, loc, iv, index(schedule.getStages() - 1));
}

/// The reads of what threads share. What shapes scores one by one, such as a bias, each needs for
/// itself.
static SmallVector<vector::TransferReadOp> globalReads(Block &block) {
  SmallVector<vector::TransferReadOp> reads;
  for (auto read : block.getOps<vector::TransferReadOp>()) {
    auto type = dyn_cast<MemRefType>(read.getBase().getType());
    if (type && !isSharedMemory(type) &&
        !llvm::all_of(read->getUsers(), OpTrait::hasElementwiseMappableTraits))
      reads.push_back(read);
  }
  return reads;
}

/// Issues the copies of all tiles of step `iv` of the run.
void Stager::copyAt(Run &run, Value iv) {
  scf::ForOp loop = run.loops.back();
  Value stage = stageOf(iv);
  for (vector::TransferReadOp read : globalReads(*loop.getBody()))
    copyTile(read, indicesAt(read, loop, iv), bufferOf.lookup(read.getBase()), stage);
}

void Stager::stageRun(Run &run) {
  // The last loop's reads are the pattern for every copy: its last tile may be cut short,
  // so they check bounds.
  bool doubled = schedule.getStages() > 1;
  auto guardedCopy = [&](Value iv) {
    Value inside = arith::CmpIOp::create(b, loc, arith::CmpIPredicate::slt, iv, run.end());
    auto guarded = scf::IfOp::create(b, loc, inside, /*withElseRegion=*/false);
    OpBuilder::InsertionGuard guard(b);
    b.setInsertionPointToStart(guarded.thenBlock());
    copyAt(run, iv);
  };
  if (doubled) {
    // Whoever still reads the buffers from an earlier run must be done.
    b.setInsertionPoint(run.loops.front());
    gpu::BarrierOp::create(b, loc);
    guardedCopy(run.begin());
    commit();
  }
  for (scf::ForOp loop : run.loops) {
    b.setInsertionPointToStart(loop.getBody());
    Value iv = loop.getInductionVar();
    if (doubled) {
      // After this the tile is whole and the other buffer, read one step ago, is free.
      commitAndWait();
      guardedCopy(arith::AddIOp::create(b, loc, iv, index(1)));
      commit();
    } else {
      gpu::BarrierOp::create(b, loc);
      copyAt(run, iv);
      commitAndWait();
    }
  }
  for (scf::ForOp loop : run.loops)
    for (vector::TransferReadOp read : globalReads(*loop.getBody())) {
      b.setInsertionPoint(read);
      readFrom(read, bufferOf.lookup(read.getBase()), stageOf(loop.getInductionVar()));
    }
}

SmallVector<Stager::Run> Stager::findRuns() {
  SmallVector<Run> runs;
  launch.getBody().walk<WalkOrder::PreOrder>([&](scf::ForOp loop) {
    if (globalReads(*loop.getBody()).empty())
      return;
    if (!runs.empty() && runs.back().loops.back()->getBlock() == loop->getBlock() &&
        runs.back().end() == loop.getLowerBound())
      runs.back().loops.push_back(loop);
    else
      runs.push_back({{loop}});
  });
  return runs;
}

LogicalResult Stager::run() {
  Block &body = launch.getBody().front();
  b.setInsertionPointToStart(&body);
  auto space = gpu::AddressSpaceAttr::get(b.getContext(), gpu::AddressSpace::Workgroup);
  auto poolType =
      MemRefType::get({ShapedType::kDynamic}, b.getI8Type(), MemRefLayoutAttrInterface{}, space);
  pool = gpu::DynamicSharedMemoryOp::create(b, loc, poolType);
  thread = launch.getThreadIds().x;

  SmallVector<Run> runs = findRuns();
  // What is read once, before the loops: the queries.
  for (vector::TransferReadOp read : globalReads(body)) {
    Value buffer = allocate(read.getVectorType(), 1);
    b.setInsertionPoint(read);
    copyTile(read, read.getIndices(), buffer, index(0));
    commitAndWait();
    // Registers of one thread: accumulators of o and scores, and the queries as operands
    // (f32 as two halves).
    int64_t columns = read.getVectorType().getDimSize(1);
    int64_t rowBlocks = schedule.getTileM() / (16 * schedule.getWarps());
    int64_t perPair = read.getVectorType().getElementType().isF32() ? 4 : 1;
    int64_t queries = rowBlocks * columns / 4 * perPair;
    int64_t accumulators = rowBlocks * (columns + schedule.getTileN()) / 2;
    bool inRegisters = queries + accumulators <= 160;
    if (inRegisters) {
      readFrom(read, buffer, index(0));
      continue;
    }
    // Too many to hold: every step reads them again.
    for (OpOperand &use : llvm::make_early_inc_range(read->getUses())) {
      b.setInsertionPoint(use.getOwner());
      auto copy = cast<vector::TransferReadOp>(b.clone(*read));
      use.set(copy.getResult());
      readFrom(copy, buffer, index(0));
    }
    b.eraseOp(read);
  }
  for (Run &run : runs)
    for (scf::ForOp loop : run.loops)
      for (vector::TransferReadOp read : globalReads(*loop.getBody()))
        if (Value &buffer = bufferOf[read.getBase()]; !buffer)
          buffer = allocate(read.getVectorType(), schedule.getStages());
  for (Run &run : runs)
    stageRun(run);

  b.setInsertionPoint(launch);
  Value size = arith::ConstantIntOp::create(b, loc, bytes, 32);
  launch.getDynamicSharedMemorySizeMutable().assign(size);
  return success();
}

namespace {
struct StageSharedPass : flashattn::impl::StageSharedBase<StageSharedPass> {
  void runOnOperation() override {
    IRRewriter rewriter(&getContext());
    for (gpu::LaunchOp launch : findTilePrograms(getOperation()))
      // With roles the tiles are in shared memory already.
      if (!getSchedule(launch).getRoles() && failed(Stager(rewriter, launch).run()))
        return signalPassFailure();
  }
};
} // namespace
