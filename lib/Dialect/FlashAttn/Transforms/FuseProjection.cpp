//===- FuseProjection.cpp - flashattn-fuse-projection ---------------------===//
//
// Fuses the output projection into the epilogue of attention's program.
//
//===----------------------------------------------------------------------===//

#include "flashattn/Dialect/FlashAttn/Program/Spaces.h"
#include "flashattn/Dialect/FlashAttn/Program/TileBuilder.h"
#include "flashattn/Dialect/FlashAttn/Transforms/Passes.h"
#include "flashattn/Dialect/FlashAttn/Transforms/Transforms.h"
#include "mlir/Dialect/MemRef/IR/MemRef.h"
#include "mlir/Dialect/SCF/IR/SCF.h"
#include "mlir/IR/PatternMatch.h"
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
  ProgramOp program;
  StoreTileOp store; ///< stores the output
  Value out;         ///< the stored value in f32: vector<MxDv>
  bool keepsOutput;  ///< another op reads the output
};

/// Builds the program of attention and projection.
class FusedBuilder : TileBuilder {
public:
  FusedBuilder(OpBuilder &b, ProjectOp op, const Producer &attention)
      : TileBuilder(b, op.getLoc()), op(op), program(attention.program), attention(attention) {
    int64_t width = op.getW().getType().getDimSize(2);
    chunks = llvm::divideCeil(width, kMostColumns);
    columns = llvm::alignTo(llvm::divideCeil(width, chunks), 16);
  }

  void build();

private:
  static constexpr int64_t kMostColumns = 512; ///< of a chunk; each chunk has its own code

  Value loadMatrix(Value head, int64_t chunk);
  SmallVector<Value> sumHeads(Value batch, Value tile);

  ProjectOp op;
  ProgramOp program;
  const Producer &attention;
  int64_t columns, chunks;
};

} // namespace

/// Returns the chunk's columns of a head's matrix, in f32.
Value FusedBuilder::loadMatrix(Value head, int64_t chunk) {
  auto type = VectorType::get({op.getDv(), columns}, op.getElementType());
  // Not in bounds, so that the CPU copies the rows, which are far apart, to contiguous memory.
  Value matrix =
      LoadTileOp::create(b, loc, type, op.getW(), ValueRange{head, index(0), index(chunk)},
                         ArrayRef<int64_t>{1, 2}, ArrayRef<bool>{true, false});
  if (op.getElementType().isF32())
    return matrix;
  return arith::ExtFOp::create(b, loc, type.clone(b.getF32Type()), matrix);
}

/// Returns the sums of a row tile, one value per chunk. The loop over the heads multiplies each
/// head's output as soon as it is finished.
SmallVector<Value> FusedBuilder::sumHeads(Value batch, Value tile) {
  Value zero = splat(f32Vector({program.getScheduleAttr().getTileM(), columns}), 0);
  auto loop = scf::ForOp::create(b, loc, index(0), program.getSizes()[1], index(1),
                                 SmallVector<Value>(chunks, zero));
  OpBuilder::InsertionGuard guard(b);
  b.setInsertionPointToStart(loop.getBody());
  Value head = loop.getInductionVar();
  IRMapping mapping;
  mapping.map(program.getBody()->getArguments(), ValueRange{batch, head, tile});
  for (Operation &inside : program.getBody()->without_terminator())
    if (&inside != attention.store || attention.keepsOutput)
      b.clone(inside, mapping);
  Value out = mapping.lookup(attention.out);
  SmallVector<Value> sums;
  for (auto [chunk, sum] : llvm::enumerate(loop.getRegionIterArgs()))
    sums.push_back(product(out, loadMatrix(head, chunk), sum));
  scf::YieldOp::create(b, loc, sums);
  return SmallVector<Value>(loop.getResults());
}

/// Builds one program for each batch and row tile.
void FusedBuilder::build() {
  auto fused = ProgramOp::create(b, loc, ValueRange{program.getSizes()[0], program.getSizes()[2]},
                                 ArrayRef<ProgramAxis>{ProgramAxis::Batch, ProgramAxis::QueryTile},
                                 program.getScheduleAttr());
  OpBuilder::InsertionGuard guard(b);
  b.setInsertionPointToStart(fused.getBody());
  Value batch = fused.getNumbers()[0], tile = fused.getNumbers()[1];
  Type element = cast<MemRefType>(op.getPInit().getType()).getElementType();
  for (auto [chunk, sum] : llvm::enumerate(sumHeads(batch, tile))) {
    Value rounded = sum;
    if (!element.isF32())
      rounded =
          arith::TruncFOp::create(b, loc, cast<VectorType>(sum.getType()).clone(element), sum);
    StoreTileOp::create(b, loc, rounded, op.getPInit(), ValueRange{batch, tile, index(chunk)},
                        ArrayRef<int64_t>{1, 2}, ArrayRef<bool>{false, false});
  }
}

/// Returns the program of the attention before `op` that computes the input of `op`, if the
/// projection can be fused into it.
static std::optional<Producer> findProducer(ProjectOp op) {
  // The sums of all columns must fit in a core's cache.
  constexpr int64_t kMostSums = 1 << 17;
  int64_t width = op.getW().getType().getDimSize(2);
  Operation *before = op->getPrevNode();
  // No op in between may access memory; allocations are allowed.
  while (before && !isa<ProgramOp>(before) &&
         (isMemoryEffectFree(before) || isa<memref::AllocOp>(before)))
    before = before->getPrevNode();
  auto program = dyn_cast_if_present<ProgramOp>(before);
  ScheduleAttr schedule = program ? program.getScheduleAttr() : ScheduleAttr();
  // On a GPU, the sums of all columns would not fit in registers.
  if (!schedule || schedule.getMapping().isOnGPU() || schedule.getPack() != 1 ||
      program.getRagged() || program.getSizes().size() != 3 ||
      program.getAxis(1) != ProgramAxis::Head || ShapedType::isDynamic(width) || width == 0 ||
      schedule.getTileM() * width > kMostSums)
    return std::nullopt;
  Producer producer{program, {}, {}, false};
  for (auto store : program.getBody()->getOps<StoreTileOp>())
    if (store.getTarget() == op.getO())
      producer.store = store;
  if (!producer.store || producer.store.getRowDim() != op.getSeqDim())
    return std::nullopt;
  producer.out = producer.store.getTile();
  if (auto truncate = producer.out.getDefiningOp<arith::TruncFOp>())
    producer.out = truncate.getIn();
  if (!getElementTypeOrSelf(producer.out.getType()).isF32())
    return std::nullopt;
  producer.keepsOutput =
      !op.getO().getDefiningOp<memref::AllocOp>() ||
      llvm::any_of(op.getO().getUsers(), [&](Operation *user) {
        return user != op && user != producer.store && !isa<memref::DeallocOp>(user);
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
  eraseProgram(rewriter, producer->program);
  rewriter.eraseOp(op);
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
