//===- FuseProjection.cpp - flashattn-fuse-projection ----------------------===//
//
// The output projection in the epilogue of attention's program.
//
//===----------------------------------------------------------------------===//

#include "flashattn/Dialect/FlashAttn/Transforms/Passes.h"
#include "flashattn/Dialect/FlashAttn/Transforms/Transforms.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
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
};

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
  Value addHead(Value out, Value matrix, Value sum);

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

Value FusedBuilder::addHead(Value out, Value matrix, Value sum) {
  AffineExpr i, j, k;
  bindDims(b.getContext(), i, j, k);
  using Maps = ArrayRef<ArrayRef<AffineExpr>>;
  return vector::ContractionOp::create(
      b, loc, out, matrix, sum, Maps{{i, k}, {k, j}, {i, j}},
      ArrayRef<vector::IteratorType>{vector::IteratorType::parallel, vector::IteratorType::parallel,
                                     vector::IteratorType::reduction});
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
      sums.push_back(addHead(out, loadMatrix(head, chunk), sum));
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

/// The program of the attention right before `op` that makes what `op` reads, if it can take `op`
/// in.
static std::optional<Producer> findProducer(ProjectOp op) {
  // The sums of all columns stay in a core's cache.
  constexpr int64_t kMostSums = 1 << 18;
  int64_t width = op.getW().getType().getDimSize(2);
  if (ShapedType::isDynamic(width) || width == 0)
    return std::nullopt;
  Operation *before = op->getPrevNode();
  // Nothing between reads or writes; memory may be made there.
  while (before && !isa<scf::ForallOp>(before) &&
         (isMemoryEffectFree(before) || isa<memref::AllocOp>(before)))
    before = before->getPrevNode();
  auto program = dyn_cast_if_present<scf::ForallOp>(before);
  auto schedule =
      program ? program->getAttrOfType<ScheduleAttr>(kScheduleAttrName) : ScheduleAttr();
  // On a GPU the heads of a row run side by side, and would have to add to memory.
  if (!schedule || schedule.getLanes() != 1 || schedule.getPack() != 1 || program.getRank() != 3 ||
      schedule.getTileM() * width > kMostSums)
    return std::nullopt;
  Producer producer{program, {}, {}, false};
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
  producer.keepsOutput =
      !op.getO().getDefiningOp<memref::AllocOp>() ||
      llvm::any_of(op.getO().getUsers(), [&](Operation *user) {
        return user != op && user != producer.write && !isa<memref::DeallocOp>(user);
      });
  return producer;
}

bool mlir::flashattn::fuseProjection(RewriterBase &rewriter, ProjectOp op) {
  if (!op.hasPureBufferSemantics())
    return false;
  std::optional<Producer> producer = findProducer(op);
  if (!producer)
    return false;
  OpBuilder::InsertionGuard guard(rewriter);
  rewriter.setInsertionPoint(op);
  FusedBuilder(rewriter, op, *producer).build();
  rewriter.eraseOp(op);
  rewriter.eraseOp(producer->program);
  return true;
}

namespace {
struct FuseProjectionPass : flashattn::impl::FuseProjectionBase<FuseProjectionPass> {
  void runOnOperation() override {
    SmallVector<ProjectOp> ops;
    getOperation()->walk([&](ProjectOp op) { ops.push_back(op); });
    IRRewriter rewriter(&getContext());
    for (ProjectOp op : ops)
      fuseProjection(rewriter, op);
  }
};
} // namespace
