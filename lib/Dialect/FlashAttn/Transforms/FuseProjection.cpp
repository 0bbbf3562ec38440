//===- FuseProjection.cpp - flashattn-fuse-projection ----------------------===//
//
// The output projection in the epilogue of attention's program.
//
//===----------------------------------------------------------------------===//

#include "flashattn/Dialect/FlashAttn/Program/TileBuilder.h"
#include "flashattn/Dialect/FlashAttn/Transforms/Passes.h"
#include "flashattn/Dialect/FlashAttn/Transforms/Transforms.h"
#include "flashattn/Target/Schedules.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/GPU/IR/GPUDialect.h"
#include "mlir/Dialect/MemRef/IR/MemRef.h"
#include "mlir/Dialect/SCF/IR/SCF.h"
#include "mlir/Dialect/Vector/IR/VectorOps.h"
#include "mlir/IR/IRMapping.h"
#include "llvm/Support/MathExtras.h"

namespace mlir::flashattn {
#define GEN_PASS_DEF_FUSEPROJECTION
#include "flashattn/Dialect/FlashAttn/Transforms/Passes.h.inc"
} // namespace mlir::flashattn

using namespace mlir;
using namespace mlir::flashattn;

namespace {

/// The attention whose output a projection reads.
struct Producer {
  scf::ForallOp program;
  vector::TransferWriteOp write; ///< of the output
  Value out;                     ///< what it writes, in f32: vector<MxDv>
  bool keepsOutput;              ///< someone else reads it
  bool onGPU;
};

/// Columns of a head's part that a GPU's program adds to memory at once.
constexpr int64_t kAddedColumns = 32;

/// Builds the program of both.
class FusedBuilder {
public:
  FusedBuilder(OpBuilder &b, ProjectOp op, const Producer &attention)
      : b(b), op(op), attention(attention), loc(op.getLoc()),
        schedule(attention.program->getAttrOfType<ScheduleAttr>(kScheduleAttrName)),
        width(op.getW().getType().getDimSize(2)) {
    chunks = llvm::divideCeil(width, kMostColumns);
    columns = llvm::alignTo(llvm::divideCeil(width, chunks), 16);
  }

  scf::ForallOp build();

private:
  static constexpr int64_t kMostColumns = 512; ///< of a chunk, which has code of its own

  Value index(int64_t v) { return arith::ConstantIndexOp::create(b, loc, v); }
  Value loadMatrix(Value head, int64_t chunk);

  OpBuilder &b;
  ProjectOp op;
  const Producer &attention;
  Location loc;
  ScheduleAttr schedule;
  int64_t width, columns, chunks;
};

} // namespace

/// The chunk's columns of a head's matrix, in f32.
Value FusedBuilder::loadMatrix(Value head, int64_t chunk) {
  Value zero = arith::ConstantOp::create(b, loc, b.getFloatAttr(op.getElementType(), 0));
  AffineMap map = AffineMap::getMultiDimMapWithTargets(3, {1, 2}, b.getContext());
  auto type = VectorType::get({op.getDv(), columns}, op.getElementType());
  // Not in bounds, so that the CPU copies together what lies far apart.
  Value matrix = vector::TransferReadOp::create(b, loc, type, op.getW(),
                                                ValueRange{head, index(0), index(chunk * columns)},
                                                zero, map, ArrayRef<bool>{true, false});
  if (op.getElementType().isF32())
    return matrix;
  return arith::ExtFOp::create(b, loc, type.clone(b.getF32Type()), matrix);
}

/// One program for each batch and row tile: the heads one after the other, each one's output
/// multiplied as soon as it is finished.
scf::ForallOp FusedBuilder::build() {
  scf::ForallOp program = attention.program;
  SmallVector<OpFoldResult> sizes = program.getMixedUpperBound();
  SmallVector<Attribute> axes;
  for (ProgramAxis axis : {ProgramAxis::Batch, ProgramAxis::QueryTile})
    axes.push_back(ProgramAxisAttr::get(b.getContext(), axis));
  Value heads = getValueOrCreateConstantIndexOp(b, loc, sizes[1]);
  auto forall = scf::ForallOp::create(b, loc, ArrayRef<OpFoldResult>{sizes[0], sizes[2]},
                                      /*outputs=*/ValueRange(), b.getArrayAttr(axes));
  forall->setAttr(kScheduleAttrName, schedule);
  OpBuilder::InsertionGuard guard(b);
  b.setInsertionPointToStart(forall.getBody());
  Value batch = forall.getInductionVars()[0], tile = forall.getInductionVars()[1];
  auto sumType = VectorType::get({schedule.getTileM(), columns}, b.getF32Type());
  Value zero = arith::ConstantOp::create(b, loc, b.getZeroAttr(sumType));
  auto loop =
      scf::ForOp::create(b, loc, index(0), heads, index(1), SmallVector<Value>(chunks, zero));
  {
    OpBuilder::InsertionGuard inner(b);
    b.setInsertionPointToStart(loop.getBody());
    Value head = loop.getInductionVar();
    IRMapping mapping;
    mapping.map(program.getInductionVars(), ValueRange{batch, head, tile});
    for (Operation &inside : program.getBody()->without_terminator())
      if (&inside != attention.write || attention.keepsOutput)
        b.clone(inside, mapping);
    Value out = mapping.lookup(attention.out);
    SmallVector<Value> sums;
    for (auto [chunk, sum] : llvm::enumerate(loop.getRegionIterArgs()))
      sums.push_back(TileBuilder(b, loc).product(out, loadMatrix(head, chunk), sum));
    scf::YieldOp::create(b, loc, sums);
  }
  Value row = arith::MulIOp::create(b, loc, tile, index(schedule.getTileM()));
  AffineMap map = AffineMap::getMultiDimMapWithTargets(3, {1, 2}, b.getContext());
  auto element = cast<MemRefType>(op.getPInit().getType()).getElementType();
  for (auto [chunk, sum] : llvm::enumerate(loop.getResults())) {
    Value rounded = sum;
    if (!element.isF32())
      rounded = arith::TruncFOp::create(b, loc, sumType.clone(element), sum);
    vector::TransferWriteOp::create(b, loc, rounded, op.getPInit(),
                                    ValueRange{batch, row, index(chunk * columns)}, map,
                                    ArrayRef<bool>{false, false});
  }
  return forall;
}

/// On a GPU, where the heads of a row run side by side: fills `p` with 0, a block of threads for so
/// many elements.
static void buildZeros(OpBuilder &b, Location loc, Value p) {
  constexpr int64_t kThreads = 256, kEach = 4;
  auto index = [&](int64_t v) { return arith::ConstantIndexOp::create(b, loc, v).getResult(); };
  Value flat =
      memref::CollapseShapeOp::create(b, loc, p, ArrayRef<ReassociationIndices>{{0, 1, 2}});
  Value all = b.createOrFold<memref::DimOp>(loc, flat, 0), one = index(1);
  // A grid of no blocks is an error to the driver.
  Value any = arith::CmpIOp::create(b, loc, arith::CmpIPredicate::ugt, all, index(0));
  auto guarded = scf::IfOp::create(b, loc, any, /*withElseRegion=*/false);
  OpBuilder::InsertionGuard guard(b);
  b.setInsertionPointToStart(guarded.thenBlock());
  Value blocks = arith::CeilDivUIOp::create(b, loc, all, index(kThreads * kEach));
  auto launch = gpu::LaunchOp::create(b, loc, blocks, one, one, index(kThreads), one, one);
  b.setInsertionPointToStart(&launch.getBody().front());
  Value block = arith::MulIOp::create(b, loc, launch.getBlockIds().x, index(kThreads * kEach));
  Value first = arith::AddIOp::create(b, loc, block, launch.getThreadIds().x);
  Value end = arith::MinUIOp::create(
      b, loc, arith::AddIOp::create(b, loc, block, index(kThreads * kEach)), all);
  auto loop = scf::ForOp::create(b, loc, first, end, index(kThreads));
  gpu::TerminatorOp::create(b, loc);
  b.setInsertionPointToStart(loop.getBody());
  Value zero = arith::ConstantOp::create(b, loc, b.getF32FloatAttr(0));
  memref::StoreOp::create(b, loc, zero, flat, loop.getInductionVar());
}

/// Into the attention's program itself, for a GPU: its output, a head's, times the head's matrix is
/// added to memory, some columns at a time.
static void addToMemory(OpBuilder &b, ProjectOp op, const Producer &attention) {
  Location loc = op.getLoc();
  auto index = [&](int64_t v) { return arith::ConstantIndexOp::create(b, loc, v).getResult(); };
  scf::ForallOp program = attention.program;
  buildZeros(b, loc, op.getPInit());
  // Behind what fills it, and behind what makes `w` and `p`.
  program->moveBefore(op);
  OpBuilder::InsertionGuard guard(b);
  b.setInsertionPoint(program.getBody()->getTerminator());
  vector::TransferWriteOp write = attention.write;
  Value out = write.getValueToStore(), head = program.getInductionVars()[1];
  auto outType = cast<VectorType>(out.getType());
  int64_t rows = outType.getDimSize(0), depth = outType.getDimSize(1);
  int64_t width = op.getW().getType().getDimSize(2);
  Value columns = b.createOrFold<memref::DimOp>(loc, op.getW(), 2);
  Value tiles = b.createOrFold<arith::CeilDivUIOp>(loc, columns, index(kAddedColumns));
  auto loop = scf::ForOp::create(b, loc, index(0), tiles, index(1));
  b.setInsertionPointToStart(loop.getBody());
  Value column = arith::MulIOp::create(b, loc, loop.getInductionVar(), index(kAddedColumns));
  AffineMap map = AffineMap::getMultiDimMapWithTargets(3, {1, 2}, b.getContext());
  bool whole = !ShapedType::isDynamic(width) && width % kAddedColumns == 0;
  Value padding = arith::ConstantOp::create(b, loc, b.getFloatAttr(op.getElementType(), 0));
  Value matrix = vector::TransferReadOp::create(
      b, loc, VectorType::get({depth, kAddedColumns}, op.getElementType()), op.getW(),
      ValueRange{head, index(0), column}, padding, map, ArrayRef<bool>{depth == op.getDv(), whole});
  auto sumType = VectorType::get({rows, kAddedColumns}, b.getF32Type());
  Value zero = arith::ConstantOp::create(b, loc, b.getZeroAttr(sumType));
  Value product = TileBuilder(b, loc).product(out, matrix, zero);
  auto add = vector::TransferWriteOp::create(
      b, loc, product, op.getPInit(),
      ValueRange{write.getIndices()[0], write.getIndices()[op.getSeqDim()], column}, map,
      ArrayRef<bool>{false, whole});
  add->setAttr(kAddAttrName, b.getUnitAttr());
  if (!attention.keepsOutput)
    write.erase();
}

/// Bytes of shared memory that a GPU's program needs for the tiles of its products, and for the
/// matrix's beside them.
static int64_t countSharedBytes(const Producer &attention, ScheduleAttr schedule) {
  DenseMap<Value, int64_t> bytesOf; // memref to its tiles'
  attention.program->walk([&](vector::ContractionOp op) {
    for (Value operand : {op.getLhs(), op.getRhs()}) {
      auto read = operand.getDefiningOp<vector::TransferReadOp>();
      if (!read)
        continue;
      VectorType type = read.getVectorType();
      bool inLoop = read->getParentOp() != attention.program;
      bytesOf[read.getBase()] = (inLoop ? schedule.getStages() : 1) * type.getNumElements() *
                                type.getElementTypeBitWidth() / 8;
    }
  });
  vector::TransferWriteOp write = attention.write;
  auto out = cast<VectorType>(write.getValueToStore().getType());
  int64_t bytes = schedule.getStages() * out.getShape().back() * kAddedColumns *
                  out.getElementTypeBitWidth() / 8;
  for (auto [memref, tiles] : bytesOf)
    bytes += tiles;
  return bytes;
}

/// The program of the attention right before `op` that makes what `op` reads, if it can take `op`
/// in.
static std::optional<Producer> findProducer(ProjectOp op, int64_t sharedMemory) {
  // The sums of all columns stay in a core's cache.
  constexpr int64_t kMostSums = 1 << 17;
  int64_t width = op.getW().getType().getDimSize(2);
  Operation *before = op->getPrevNode();
  // Nothing between reads or writes; memory may be made there.
  while (before && !isa<scf::ForallOp>(before) &&
         (isMemoryEffectFree(before) || isa<memref::AllocOp>(before)))
    before = before->getPrevNode();
  auto program = dyn_cast_if_present<scf::ForallOp>(before);
  auto schedule =
      program ? program->getAttrOfType<ScheduleAttr>(kScheduleAttrName) : ScheduleAttr();
  if (!schedule || schedule.getRoles() || schedule.getPack() != 1 || program.getRank() != 3)
    return std::nullopt;
  Producer producer{program, {}, {}, false, schedule.getLanes() > 1};
  auto pType = cast<MemRefType>(op.getPInit().getType());
  // A9: tensor cores round sums towards zero, and a head's would be one sum of all of its columns.
  if (producer.onGPU && op.getElementType().isF32())
    return std::nullopt;
  if (producer.onGPU
          ? !pType.getElementType().isF32() || !pType.getLayout().isIdentity()
          : ShapedType::isDynamic(width) || width == 0 || schedule.getTileM() * width > kMostSums)
    return std::nullopt;
  for (auto write : program.getBody()->getOps<vector::TransferWriteOp>())
    if (write.getBase() == op.getO())
      producer.write = write;
  if (!producer.write)
    return std::nullopt;
  auto axes = program.getMapping();
  auto isHead = [](Attribute axis) {
    auto programAxis = dyn_cast<ProgramAxisAttr>(axis);
    return programAxis && programAxis.getValue() == ProgramAxis::Head;
  };
  unsigned rowDim = producer.write.getPermutationMap().getDimPosition(0);
  if (!axes || axes->size() != 3 || !isHead((*axes)[1]) || rowDim != op.getSeqDim())
    return std::nullopt;
  producer.out = producer.write.getValueToStore();
  if (auto truncate = producer.out.getDefiningOp<arith::TruncFOp>())
    producer.out = truncate.getIn();
  if (!getElementTypeOrSelf(producer.out.getType()).isF32())
    return std::nullopt;
  if (producer.onGPU && countSharedBytes(producer, schedule) > sharedMemory)
    return std::nullopt;
  producer.keepsOutput =
      !op.getO().getDefiningOp<memref::AllocOp>() ||
      llvm::any_of(op.getO().getUsers(), [&](Operation *user) {
        return user != op && user != producer.write && !isa<memref::DeallocOp>(user);
      });
  return producer;
}

bool mlir::flashattn::fuseProjection(RewriterBase &rewriter, ProjectOp op, int64_t sharedMemory) {
  if (!op.hasPureBufferSemantics())
    return false;
  std::optional<Producer> producer = findProducer(op, sharedMemory);
  if (!producer)
    return false;
  OpBuilder::InsertionGuard guard(rewriter);
  rewriter.setInsertionPoint(op);
  if (producer->onGPU) {
    addToMemory(rewriter, op, *producer);
  } else {
    FusedBuilder(rewriter, op, *producer).build();
    rewriter.eraseOp(producer->program);
  }
  rewriter.eraseOp(op);
  return true;
}

namespace {
struct FuseProjectionPass : flashattn::impl::FuseProjectionBase<FuseProjectionPass> {
  using FuseProjectionBase::FuseProjectionBase;
  void runOnOperation() override {
    SmallVector<ProjectOp> ops;
    llvm::Expected<Machine> machine = Machine::get(chip);
    if (!machine) {
      getOperation()->emitError() << llvm::toString(machine.takeError());
      return signalPassFailure();
    }
    getOperation()->walk([&](ProjectOp op) { ops.push_back(op); });
    IRRewriter rewriter(&getContext());
    for (ProjectOp op : ops)
      fuseProjection(rewriter, op, machine->getSharedMemoryPerBlock());
  }
};
} // namespace
