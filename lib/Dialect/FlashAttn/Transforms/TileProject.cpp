//===- TileProject.cpp - flashattn-tile-project ----------------------------===//
//
// The output projection as a program on tile values: the heads, one after the other, are one long
// reduction.
//
//===----------------------------------------------------------------------===//

#include "Product.h"
#include "flashattn/Dialect/FlashAttn/Transforms/Passes.h"
#include "flashattn/Dialect/FlashAttn/Transforms/Transforms.h"
#include "flashattn/Target/Schedules.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/MemRef/IR/MemRef.h"
#include "mlir/Dialect/SCF/IR/SCF.h"
#include "mlir/Dialect/Vector/IR/VectorOps.h"

namespace mlir::flashattn {
#define GEN_PASS_DEF_TILEPROJECT
#include "flashattn/Dialect/FlashAttn/Transforms/Passes.h.inc"
} // namespace mlir::flashattn

using namespace mlir;
using namespace mlir::flashattn;

namespace {

class ProjectBuilder {
public:
  ProjectBuilder(ProjectOp op, OpBuilder &b)
      : op(op), b(b), loc(op.getLoc()), schedule(op.getScheduleAttr()), m(schedule.getTileM()),
        n(schedule.getTileN()), depth(getProjectDepth(op, schedule)) {}

  scf::ForallOp build();

private:
  Value index(int64_t v) { return arith::ConstantIndexOp::create(b, loc, v); }
  Value dim(Value memref, int64_t i) { return b.createOrFold<memref::DimOp>(loc, memref, i); }
  Value mul(Value x, int64_t y) { return b.createOrFold<arith::MulIOp>(loc, x, index(y)); }
  Value tilesOf(Value size, int64_t tile) {
    return b.createOrFold<arith::CeilDivUIOp>(loc, size, index(tile));
  }
  Value read(Value memref, ArrayRef<int64_t> shape, ValueRange indices, ArrayRef<unsigned> dims,
             ArrayRef<bool> inBounds);
  Value sumHeads(Value row, Value column);

  ProjectOp op;
  OpBuilder &b;
  Location loc;
  ScheduleAttr schedule;
  int64_t m, n, depth;
  bool rowsAlongBatch = false;
  Value zeroElement, other; ///< `other`: the batch or, with rows along batches, the row
};

} // namespace

/// A tile in the contraction's operand type: what lies past the ends is 0.
Value ProjectBuilder::read(Value memref, ArrayRef<int64_t> shape, ValueRange indices,
                           ArrayRef<unsigned> dims, ArrayRef<bool> inBounds) {
  AffineMap map = AffineMap::getMultiDimMapWithTargets(indices.size(), dims, b.getContext());
  auto type = VectorType::get(shape, op.getElementType());
  Value tile =
      vector::TransferReadOp::create(b, loc, type, memref, indices, zeroElement, map, inBounds);
  if (schedule.getDotType() == op.getElementType())
    return tile;
  return arith::ExtFOp::create(b, loc, type.clone(schedule.getDotType()), tile);
}

/// Rows [row, row + m) and columns [column, column + n) of the result, in f32.
Value ProjectBuilder::sumHeads(Value row, Value column) {
  int64_t parts = llvm::divideCeil(op.getDv(), depth), width = op.getW().getType().getDimSize(2);
  auto sumType = VectorType::get({m, n}, b.getF32Type());
  Value sum = arith::ConstantOp::create(b, loc, b.getZeroAttr(sumType));
  Value steps = mul(dim(op.getO(), op.getHeadDim()), parts);
  auto loop = scf::ForOp::create(b, loc, index(0), steps, index(1), sum);
  OpBuilder::InsertionGuard guard(b);
  b.setInsertionPointToStart(loop.getBody());
  Value head = loop.getInductionVar(), first = index(0);
  if (parts > 1) {
    Value step = head;
    head = arith::DivUIOp::create(b, loc, step, index(parts));
    first = mul(arith::RemUIOp::create(b, loc, step, index(parts)), depth);
  }
  SmallVector<Value> at = {other, head, row, first};
  unsigned rowDim = op.getSeqDim();
  if (rowsAlongBatch) {
    std::swap(at[0], at[2]);
    rowDim = 0;
  }
  if (op.getLayout() == Layout::BSHD)
    std::swap(at[1], at[2]);
  bool wholeParts = op.getDv() % depth == 0;
  Value o = read(op.getO(), {m, depth}, at, {rowDim, 3}, {false, wholeParts});
  // The CPU copies its tile of the matrix together, whose rows lie far apart, as it pads it.
  bool wholeColumns = schedule.getLanes() > 1 && !ShapedType::isDynamic(width) && width % n == 0;
  Value w = read(op.getW(), {depth, n}, {head, first, column}, {1, 2}, {wholeParts, wholeColumns});
  scf::YieldOp::create(b, loc, buildProduct(b, loc, o, w, loop.getRegionIterArg(0)));
  return loop.getResult(0);
}

scf::ForallOp ProjectBuilder::build() {
  auto pType = cast<MemRefType>(op.getPInit().getType());
  int64_t length = op.getO().getType().getDimSize(op.getSeqDim());
  rowsAlongBatch = !ShapedType::isDynamic(length) && length <= kFewProjectRows;
  zeroElement = arith::ConstantOp::create(b, loc, b.getFloatAttr(op.getElementType(), 0));
  Value others = dim(op.getO(), 0), rows = dim(op.getO(), op.getSeqDim());
  if (rowsAlongBatch)
    std::swap(others, rows);
  Value columns = dim(op.getW(), 2);
  SmallVector<Attribute> axes;
  for (ProgramAxis axis : {ProgramAxis::Batch, ProgramAxis::QueryTile, ProgramAxis::ColumnTile})
    axes.push_back(ProgramAxisAttr::get(b.getContext(), axis));
  if (rowsAlongBatch)
    std::swap(axes[0], axes[1]);
  auto forall = scf::ForallOp::create(
      b, loc, getAsOpFoldResult({others, tilesOf(rows, m), tilesOf(columns, n)}),
      /*outputs=*/ValueRange(), b.getArrayAttr(axes));
  forall->setAttr(kScheduleAttrName, schedule);
  OpBuilder::InsertionGuard guard(b);
  b.setInsertionPointToStart(forall.getBody());
  other = forall.getInductionVars()[0];
  Value row = mul(forall.getInductionVars()[1], m), column = mul(forall.getInductionVars()[2], n);
  Value sum = sumHeads(row, column);
  if (pType.getElementType() != b.getF32Type())
    sum = arith::TruncFOp::create(b, loc, VectorType::get({m, n}, pType.getElementType()), sum);
  SmallVector<Value> at = {other, row, column};
  if (rowsAlongBatch)
    std::swap(at[0], at[1]);
  AffineMap map =
      AffineMap::getMultiDimMapWithTargets(3, {rowsAlongBatch ? 0u : 1u, 2u}, b.getContext());
  int64_t width = pType.getDimSize(2);
  bool wholeColumns = !ShapedType::isDynamic(width) && width % n == 0;
  vector::TransferWriteOp::create(b, loc, sum, op.getPInit(), at, map,
                                  ArrayRef<bool>{false, wholeColumns});
  return forall;
}

FailureOr<scf::ForallOp> mlir::flashattn::tileProject(RewriterBase &rewriter, ProjectOp op) {
  if (!op.hasPureBufferSemantics())
    return op.emitOpError() << "expected memrefs; bufferize before tiling";
  if (!op.getSchedule())
    return op.emitOpError() << "expected a schedule; run flashattn-select-schedule before tiling";
  OpBuilder::InsertionGuard guard(rewriter);
  rewriter.setInsertionPoint(op);
  scf::ForallOp program = ProjectBuilder(op, rewriter).build();
  rewriter.eraseOp(op);
  return program;
}

namespace {
struct TileProjectPass : flashattn::impl::TileProjectBase<TileProjectPass> {
  void runOnOperation() override {
    SmallVector<ProjectOp> ops;
    getOperation()->walk([&](ProjectOp op) { ops.push_back(op); });
    IRRewriter rewriter(&getContext());
    for (ProjectOp op : ops)
      if (failed(tileProject(rewriter, op)))
        return signalPassFailure();
  }
};
} // namespace
