//===- Project.cpp - flashattn-tile-project: the projection as a program --===//
//
// Builds the output projection as a tile program: one long reduction over the heads in turn.
//
//===----------------------------------------------------------------------===//

#include "flashattn/Dialect/FlashAttn/Program/TileBuilder.h"
#include "flashattn/Dialect/FlashAttn/Transforms/Transforms.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/MemRef/IR/MemRef.h"
#include "mlir/IR/PatternMatch.h"

using namespace mlir;
using namespace mlir::flashattn;

namespace {

class ProjectBuilder : TileBuilder {
public:
  ProjectBuilder(ProjectOp op, OpBuilder &b)
      : TileBuilder(b, op.getLoc()), op(op), schedule(op.getScheduleAttr()), m(schedule.getTileM()),
        n(schedule.getTileN()), depth(op.getStepDepth(schedule)) {}

  ProgramOp build();

private:
  Value read(Value memref, ArrayRef<int64_t> shape, ValueRange indices, ArrayRef<int64_t> dims,
             ArrayRef<bool> inBounds);
  Value sumHeads(Value other, Value rowTile, Value columnTile);

  ProjectOp op;
  ScheduleAttr schedule;
  int64_t m, n, depth;
  bool rowsAlongBatch = false;
};

} // namespace

/// Reads a tile in the operand type of the product; elements past the ends are 0.
Value ProjectBuilder::read(Value memref, ArrayRef<int64_t> shape, ValueRange indices,
                           ArrayRef<int64_t> dims, ArrayRef<bool> inBounds) {
  auto type = VectorType::get(shape, op.getElementType());
  Value tile = LoadTileOp::create(b, loc, type, memref, indices, dims, inBounds);
  if (schedule.getDotType() == op.getElementType())
    return tile;
  return arith::ExtFOp::create(b, loc, type.clone(schedule.getDotType()), tile);
}

/// Returns a tile of rows and columns of the result in f32. `other` is the batch or, if rows are
/// along batches, the row.
Value ProjectBuilder::sumHeads(Value other, Value rowTile, Value columnTile) {
  int64_t parts = llvm::divideCeil(op.getDv(), depth), width = op.getW().getType().getDimSize(2);
  Value sum = splat(f32Vector({m, n}), 0);
  Value none = index(0), steps = mul(dim(op.getO(), op.getHeadDim()), parts);
  auto loop = TileLoopOp::create(b, loc, ValueRange{none, none, steps, steps}, /*list=*/Value(),
                                 ValueRange(), /*when=*/Value(), sum);
  OpBuilder::InsertionGuard guard(b);
  b.setInsertionPointToStart(loop.getBody());
  Value step = loop.getTile(), head = step, part = index(0);
  if (parts > 1) {
    head = div(step, index(parts));
    part = arith::RemUIOp::create(b, loc, step, index(parts));
  }
  SmallVector<Value> at = {other, head, rowTile, part};
  int64_t rowDim = op.getSeqDim();
  if (rowsAlongBatch) {
    std::swap(at[0], at[2]);
    rowDim = 0;
  }
  if (op.getLayout() == Layout::BSHD)
    std::swap(at[1], at[2]);
  bool wholeParts = op.getDv() % depth == 0;
  Value o = read(op.getO(), {m, depth}, at, {rowDim, 3}, {false, wholeParts});
  // On the CPU the tile is not in bounds, so that padding copies its rows, which are far apart, to
  // contiguous memory.
  bool wholeColumns =
      schedule.getMapping().isOnGPU() && !ShapedType::isDynamic(width) && width % n == 0;
  Value w =
      read(op.getW(), {depth, n}, {head, part, columnTile}, {1, 2}, {wholeParts, wholeColumns});
  TileYieldOp::create(b, loc, product(o, w, loop.getState().front()));
  return loop.getResult(0);
}

ProgramOp ProjectBuilder::build() {
  auto pType = cast<MemRefType>(op.getPInit().getType());
  rowsAlongBatch = op.hasFewRows();
  Value others = dim(op.getO(), 0), rows = dim(op.getO(), op.getSeqDim());
  SmallVector<ProgramAxis> axes = {ProgramAxis::Batch, ProgramAxis::QueryTile,
                                   ProgramAxis::ColumnTile};
  if (rowsAlongBatch) {
    std::swap(others, rows);
    std::swap(axes[0], axes[1]);
  }
  auto program = ProgramOp::create(
      b, loc, ValueRange{others, ceilDiv(rows, m), ceilDiv(dim(op.getW(), 2), n)}, axes, schedule);
  OpBuilder::InsertionGuard guard(b);
  b.setInsertionPointToStart(program.getBody());
  SmallVector<Value> at(program.getNumbers().begin(), program.getNumbers().end());
  Value sum = sumHeads(at[0], at[1], at[2]);
  if (pType.getElementType() != b.getF32Type())
    sum = arith::TruncFOp::create(b, loc, VectorType::get({m, n}, pType.getElementType()), sum);
  if (rowsAlongBatch)
    std::swap(at[0], at[1]);
  int64_t width = pType.getDimSize(2), dims[] = {rowsAlongBatch ? 0 : 1, 2};
  bool wholeColumns = !ShapedType::isDynamic(width) && width % n == 0;
  StoreTileOp::create(b, loc, sum, op.getPInit(), at, dims, ArrayRef<bool>{false, wholeColumns});
  return program;
}

FailureOr<ProgramOp> mlir::flashattn::tileProject(RewriterBase &rewriter, ProjectOp op) {
  if (!op.hasPureBufferSemantics())
    return op.emitOpError() << "expected memrefs; bufferize before tiling";
  if (!op.getSchedule())
    return op.emitOpError() << "expected a schedule; run flashattn-select-schedule before tiling";
  OpBuilder::InsertionGuard guard(rewriter);
  rewriter.setInsertionPoint(op);
  ProgramOp program = ProjectBuilder(op, rewriter).build();
  rewriter.eraseOp(op);
  return program;
}
