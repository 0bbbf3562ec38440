//===- TileTransfer.cpp ---------------------------------------------------===//

#include "TileTransfer.h"
#include "flashattn/Dialect/FlashAttn/Program/NarrowElements.h"
#include "flashattn/Dialect/FlashAttn/Program/TileBuilder.h"
#include "flashattn/Dialect/FlashAttn/Program/TileLoops.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/SCF/IR/SCF.h"

using namespace mlir;
using namespace mlir::flashattn;
using namespace mlir::flashattn::cpu;

bool mlir::flashattn::cpu::isOnlyBroadcast(Value tile) {
  if (tile.use_empty())
    return false;
  return llvm::all_of(tile.getUses(), [](OpOperand &use) {
    if (isa<vector::ContractionOp>(use.getOwner()))
      return use.getOperandNumber() == 1;
    return isa<arith::ExtFOp>(use.getOwner()) && isOnlyBroadcast(use.getOwner()->getResult(0));
  });
}

namespace {

/// The range of the caller's memory that a transfer accesses: for each vector dimension, the memref
/// dimension that it runs along (none if broadcast), the start, and the steps that are in bounds.
class TransferWindow {
public:
  /// Returns failure after an error at `op` for masks and for maps that are not projected
  /// permutations, possibly with broadcasts.
  static FailureOr<TransferWindow> get(VectorTransferOpInterface op, TileValues &values);

  bool isBroadcast(unsigned vectorDim) const { return !dims[vectorDim]; }
  /// Returns the memref dimension of a vector dimension that is not broadcast.
  unsigned getDim(unsigned vectorDim) const { return *dims[vectorDim]; }
  /// Bounds of the valid steps, [begin, end).
  Value getBegin(unsigned vectorDim) const { return begins[vectorDim]; }
  Value getEnd(unsigned vectorDim) const { return ends[vectorDim]; }
  bool isInBounds() const { return inBounds; }
  /// Returns the indices of the element `steps[i]` after the start along each vector dimension i.
  SmallVector<Value> getIndices(OpBuilder &b, Location loc, ValueRange steps) const {
    SmallVector<Value> at = start;
    for (auto [dim, step] : llvm::zip_equal(dims, steps))
      if (dim)
        at[*dim] = b.createOrFold<arith::AddIOp>(loc, at[*dim], step);
    return at;
  }

  Value memref;
  SmallVector<Value> start;

private:
  SmallVector<std::optional<unsigned>> dims;
  SmallVector<Value> begins, ends;
  bool inBounds = true;
};

} // namespace

/// Whether `op` may begin before the first row of a view that was created for it.
static bool mayBeginBefore(VectorTransferOpInterface op, unsigned dim) {
  auto view = op.getBase().getDefiningOp<memref::SubViewOp>();
  return view && view->getBlock() == op->getBlock() && !isZeroInteger(view.getMixedOffsets()[dim]);
}

FailureOr<TransferWindow> TransferWindow::get(VectorTransferOpInterface op, TileValues &values) {
  OpBuilder &b = values.b;
  Location loc = op.getLoc();
  if (op.getMask() || !isa<MemRefType>(op.getBase().getType()) ||
      !op.getPermutationMap().isProjectedPermutation(/*allowZeroInResults=*/true))
    return op.emitOpError("expected a transfer of a memref without mask in a tile program");
  TransferWindow window;
  window.memref = values.get(op.getBase());
  if (!window.memref)
    return failure();
  for (Value index : op.getIndices()) {
    window.start.push_back(values.get(index));
    if (!window.start.back())
      return failure();
  }
  for (auto [i, result] : llvm::enumerate(op.getPermutationMap().getResults())) {
    std::optional<unsigned> dim;
    if (auto dimExpr = dyn_cast<AffineDimExpr>(result))
      dim = dimExpr.getPosition();
    Value end = arith::ConstantIndexOp::create(b, loc, op.getVectorType().getDimSize(i));
    Value begin = arith::ConstantIndexOp::create(b, loc, 0);
    if (dim && !op.isDimInBounds(i)) {
      window.inBounds = false;
      auto clamp = [&](Value step) -> Value {
        step = arith::MaxSIOp::create(b, loc, step, begin);
        return arith::MinSIOp::create(b, loc, step, end);
      };
      Value size = b.createOrFold<memref::DimOp>(loc, window.memref, static_cast<int64_t>(*dim));
      Value last = clamp(arith::SubIOp::create(b, loc, size, window.start[*dim]));
      if (mayBeginBefore(op, *dim))
        begin = clamp(arith::SubIOp::create(b, loc, begin, window.start[*dim]));
      end = last;
    }
    window.dims.push_back(dim);
    window.begins.push_back(begin);
    window.ends.push_back(end);
  }
  return window;
}

/// Builds: for (i = begin; i < end; i += step) body(i)
static void buildLoop(OpBuilder &b, Location loc, Value begin, Value end, int64_t step,
                      function_ref<void(Value)> body) {
  Value increment = arith::ConstantIndexOp::create(b, loc, step);
  auto loop = scf::ForOp::create(b, loc, begin, end, increment);
  OpBuilder::InsertionGuard guard(b);
  b.setInsertionPointToStart(loop.getBody());
  body(loop.getInductionVar());
}

//===----------------------------------------------------------------------===//
// Rows along the lanes
//===----------------------------------------------------------------------===//

/// The rows of packed heads are several dimensions of a transfer, which a cast merges into one.
static vector::ShapeCastOp findCastOfRows(vector::TransferReadOp read) {
  auto cast = read.getVector().hasOneUse()
                  ? dyn_cast<vector::ShapeCastOp>(*read.getVector().getUsers().begin())
                  : vector::ShapeCastOp();
  bool joins = cast && cast.getResultVectorType().getRank() < read.getVectorType().getRank();
  return joins ? cast : vector::ShapeCastOp();
}

static vector::ShapeCastOp findCastOfRows(vector::TransferWriteOp write) {
  auto cast = write.getVector().getDefiningOp<vector::ShapeCastOp>();
  bool splits = cast && cast.getSourceVectorType().getRank() < write.getVectorType().getRank();
  return splits ? cast : vector::ShapeCastOp();
}

Value mlir::flashattn::cpu::getTile(vector::TransferReadOp read) {
  vector::ShapeCastOp cast = findCastOfRows(read);
  return cast ? cast.getResult() : read.getVector();
}

Value mlir::flashattn::cpu::getTile(vector::TransferWriteOp write) {
  vector::ShapeCastOp cast = findCastOfRows(write);
  return cast ? cast.getSource() : write.getVector();
}

bool mlir::flashattn::cpu::isOfTransfer(vector::ShapeCastOp cast) {
  if (auto read = cast.getSource().getDefiningOp<vector::TransferReadOp>())
    return findCastOfRows(read) == cast;
  return !cast->use_empty() && llvm::all_of(cast->getUsers(), [&](Operation *user) {
    auto write = dyn_cast<vector::TransferWriteOp>(user);
    return write && findCastOfRows(write) == cast;
  });
}

/// Visits the elements of a vector of `shape` that are in bounds, with each element's row and
/// column in the tile and its steps along the dimensions of the vector. If `isRow`, all dimensions
/// are rows, otherwise all except the last.
static void forEachElement(OpBuilder &b, Location loc, const TransferWindow &window,
                           ArrayRef<int64_t> shape, bool isRow,
                           function_ref<void(Value row, Value column, ValueRange steps)> visit) {
  Value zero = arith::ConstantIndexOp::create(b, loc, 0);
  unsigned rowDims = shape.size() - (isRow ? 0 : 1);
  SmallVector<Value> steps;
  std::function<void(Value)> nest = [&](Value row) {
    unsigned dim = steps.size();
    if (dim == shape.size())
      return visit(row, isRow ? zero : steps.back(), steps);
    buildLoop(b, loc, window.getBegin(dim), window.getEnd(dim), 1, [&](Value step) {
      Value inner = row;
      if (dim == 0) {
        inner = step;
      } else if (dim < rowDims) {
        Value size = arith::ConstantIndexOp::create(b, loc, shape[dim]);
        inner = arith::AddIOp::create(b, loc, arith::MulIOp::create(b, loc, row, size), step);
      }
      steps.push_back(step);
      nest(inner);
      steps.pop_back();
    });
  };
  nest(/*row=*/zero);
}

/// Reads into `buffer`, memref<NxM>.
static LogicalResult readTransposed(vector::TransferReadOp read, TileValues &values, Value buffer,
                                    bool isRow) {
  OpBuilder &b = values.b;
  Location loc = read.getLoc();
  FailureOr<TransferWindow> window =
      TransferWindow::get(cast<VectorTransferOpInterface>(read.getOperation()), values);
  if (failed(window))
    return failure();
  Value zero = arith::ConstantIndexOp::create(b, loc, 0);
  if (!window->isInBounds()) {
    Value padding = values.get(read.getPadding());
    if (!padding)
      return failure();
    Value lanes =
        vector::BroadcastOp::create(b, loc, values.getLaneType(read.getVectorType()), padding);
    int64_t columns = cast<MemRefType>(buffer.getType()).getDimSize(0);
    buildColumnLoop(b, loc, columns, 1, [&](Value column) { values.store(lanes, buffer, column); });
  }
  auto load = [&](ValueRange steps) -> Value {
    return memref::LoadOp::create(b, loc, window->memref, window->getIndices(b, loc, steps));
  };
  if (read.getVectorType().getRank() == 2 && !isRow && window->isBroadcast(0)) {
    // One element is broadcast to all rows.
    buildLoop(b, loc, zero, window->getEnd(1), 1, [&](Value column) {
      Value lanes = vector::BroadcastOp::create(b, loc, values.getLaneType(read.getVectorType()),
                                                load({zero, column}));
      values.store(lanes, buffer, column);
    });
    return success();
  }
  Type stored = cast<MemRefType>(buffer.getType()).getElementType();
  forEachElement(b, loc, *window, read.getVectorType().getShape(), isRow,
                 [&](Value row, Value column, ValueRange steps) {
                   Value x = load(steps);
                   if (x.getType() != stored)
                     x = arith::ExtUIOp::create(b, loc, stored, x);
                   memref::StoreOp::create(b, loc, x, buffer, ValueRange{column, row});
                 });
  return success();
}

LogicalResult mlir::flashattn::cpu::lowerTileRead(vector::TransferReadOp read, TileValues &values) {
  Value tile = getTile(read), buffer = values.allocate(read.getLoc(), tile);
  values.setBuffer(tile, buffer);
  return readTransposed(read, values, buffer, /*isRow=*/false);
}

LogicalResult mlir::flashattn::cpu::lowerRowRead(vector::TransferReadOp read, TileValues &values) {
  OpBuilder &b = values.b;
  Location loc = read.getLoc();
  Value row = getTile(read);
  auto rowType = cast<VectorType>(row.getType());
  VectorType type = values.getLaneType(rowType);
  if (rowType.getRank() != 1 || type.getElementType().isInteger(1))
    return read.emitOpError("expected a row of ")
           << values.getRows() << " elements of at least a byte in a tile program but got "
           << rowType;
  Value buffer =
      values.scratch.allocate(loc, MemRefType::get({1, values.getRows()}, type.getElementType()));
  if (failed(readTransposed(read, values, buffer, /*isRow=*/true)))
    return failure();
  Value zero = arith::ConstantIndexOp::create(b, loc, 0);
  values.map(row, vector::LoadOp::create(b, loc, type, buffer, ValueRange{zero, zero}));
  return success();
}

/// Writes the contents of `buffer`, memref<NxM>.
static LogicalResult writeTransposed(vector::TransferWriteOp write, TileValues &values,
                                     Value buffer, bool isRow) {
  OpBuilder &b = values.b;
  Location loc = write.getLoc();
  FailureOr<TransferWindow> window =
      TransferWindow::get(cast<VectorTransferOpInterface>(write.getOperation()), values);
  if (failed(window))
    return failure();
  forEachElement(b, loc, *window, write.getVectorType().getShape(), isRow,
                 [&](Value row, Value column, ValueRange steps) {
                   Value x = memref::LoadOp::create(b, loc, buffer, ValueRange{column, row});
                   memref::StoreOp::create(b, loc, x, window->memref,
                                           window->getIndices(b, loc, steps));
                 });
  return success();
}

LogicalResult mlir::flashattn::cpu::lowerTileWrite(vector::TransferWriteOp write,
                                                   TileValues &values) {
  Value buffer = values.materialize(getTile(write));
  return failure(!buffer || failed(writeTransposed(write, values, buffer, /*isRow=*/false)));
}

LogicalResult mlir::flashattn::cpu::lowerRowWrite(vector::TransferWriteOp write,
                                                  TileValues &values) {
  Location loc = write.getLoc();
  Value row = getTile(write), lanes = values.get(row);
  if (!lanes)
    return failure();
  auto rowType = cast<VectorType>(row.getType());
  Type element = rowType.getElementType();
  if (rowType.getRank() != 1 || element.isInteger(1))
    return write.emitOpError("expected a row of ")
           << values.getRows() << " elements of at least a byte in a tile program but got "
           << rowType;
  Value buffer = values.scratch.allocate(loc, MemRefType::get({1, values.getRows()}, element));
  values.store(lanes, buffer, arith::ConstantIndexOp::create(values.b, loc, 0));
  return writeTransposed(write, values, buffer, /*isRow=*/true);
}

//===----------------------------------------------------------------------===//
// Rows as in memory
//===----------------------------------------------------------------------===//

/// Returns a view of the f32 matrix that `read` reads, if a product can use it in place; null if a
/// copy is better.
static Value viewInPlace(vector::TransferReadOp read, const TransferWindow &window, OpBuilder &b) {
  VectorType type = read.getVectorType();
  auto source = cast<MemRefType>(window.memref.getType());
  auto [strides, offset] = source.getStridesAndOffset();
  int64_t rows = type.getDimSize(0), columns = type.getDimSize(1);
  // Short pieces of long rows at such strides share a few cache sets. A contiguous copy is better.
  constexpr int64_t kConflict = 4096;
  int64_t rowStride = strides[window.getDim(0)];
  bool conflicts =
      source.getShape().back() != columns && rowStride % (kConflict / int64_t(sizeof(float))) == 0;
  if (!window.isInBounds() || !type.getElementType().isF32() || ShapedType::isDynamic(rowStride) ||
      conflicts || window.getDim(0) > window.getDim(1))
    return nullptr;
  SmallVector<OpFoldResult> offsets = getAsOpFoldResult(window.start);
  SmallVector<OpFoldResult> sizes(source.getRank(), b.getIndexAttr(1)), steps = sizes;
  sizes[window.getDim(0)] = b.getIndexAttr(rows);
  sizes[window.getDim(1)] = b.getIndexAttr(columns);
  MemRefType view =
      memref::SubViewOp::inferRankReducedResultType(type.getShape(), source, offsets, sizes, steps);
  return memref::SubViewOp::create(b, read.getLoc(), view, window.memref, offsets, sizes, steps);
}

Value mlir::flashattn::cpu::lowerBroadcastRead(vector::TransferReadOp read, TileValues &values) {
  OpBuilder &b = values.b;
  Location loc = read.getLoc();
  FailureOr<TransferWindow> window =
      TransferWindow::get(cast<VectorTransferOpInterface>(read.getOperation()), values);
  if (failed(window))
    return nullptr;
  VectorType type = read.getVectorType();
  if (type.getRank() != 2 || !isa<FloatType>(type.getElementType()) || window->isBroadcast(0) ||
      window->isBroadcast(1)) {
    read.emitOpError(
        "expected a float matrix without broadcast as a contraction's operand but got ")
        << type;
    return nullptr;
  }
  if (Value view = viewInPlace(read, *window, b))
    return view;
  int64_t rows = type.getDimSize(0), columns = type.getDimSize(1);
  auto source = cast<MemRefType>(window->memref.getType());
  auto [strides, offset] = source.getStridesAndOffset();
  bool contiguous = strides[window->getDim(1)] == 1 && window->getDim(1) + 1 == source.getRank();
  int64_t width = contiguous ? std::min<int64_t>(16, columns & -columns) : 1;
  auto sourceType = VectorType::get({width}, type.getElementType());
  auto f32Type = VectorType::get({width}, b.getF32Type());
  auto extend = [&](Value x) -> Value {
    return sourceType == f32Type ? x : arith::ExtFOp::create(b, loc, f32Type, x).getResult();
  };

  Value buffer = values.scratch.allocate(loc, MemRefType::get({rows, columns}, b.getF32Type()));
  Value zero = arith::ConstantIndexOp::create(b, loc, 0);
  Value padding;
  if (!window->isInBounds()) {
    padding = values.get(read.getPadding());
    if (!padding)
      return nullptr;
  }
  auto extendSplat = [&](Value element, int64_t count) -> Value {
    auto splatType = VectorType::get({count}, type.getElementType());
    Value x = vector::BroadcastOp::create(b, loc, splatType, element);
    if (type.getElementType().isF32())
      return x;
    return arith::ExtFOp::create(b, loc, splatType.clone(b.getF32Type()), x);
  };
  // Copies columns [begin, end) of a row, one at a time.
  auto copyElements = [&](Value row, Value begin, Value end) {
    buildLoop(b, loc, begin, end, 1, [&](Value column) {
      Value x =
          memref::LoadOp::create(b, loc, window->memref, window->getIndices(b, loc, {row, column}));
      vector::StoreOp::create(b, loc, extendSplat(x, 1), buffer, ValueRange{row, column});
    });
  };
  auto padElements = [&](Value row, Value begin) {
    Value end = arith::ConstantIndexOp::create(b, loc, columns);
    buildLoop(b, loc, begin, end, 1, [&](Value column) {
      vector::StoreOp::create(b, loc, extendSplat(padding, 1), buffer, ValueRange{row, column});
    });
  };
  // The range of a row that is copied in whole vectors.
  Value count = window->getEnd(1), whole = count;
  bool wholeRows = read.isDimInBounds(1);
  if (!wholeRows)
    whole = arith::SubIOp::create(
        b, loc, count,
        arith::RemUIOp::create(b, loc, count, arith::ConstantIndexOp::create(b, loc, width)));
  buildLoop(b, loc, window->getBegin(0), window->getEnd(0), 1, [&](Value row) {
    buildLoop(b, loc, zero, whole, width, [&](Value column) {
      SmallVector<Value> at = window->getIndices(b, loc, {row, column});
      Value x;
      if (width == 1)
        x = vector::BroadcastOp::create(b, loc, sourceType,
                                        memref::LoadOp::create(b, loc, window->memref, at));
      else
        x = vector::LoadOp::create(b, loc, sourceType, window->memref, at);
      vector::StoreOp::create(b, loc, extend(x), buffer, ValueRange{row, column});
    });
    if (wholeRows)
      return;
    copyElements(row, whole, count);
    padElements(row, count);
  });
  if (!read.isDimInBounds(0)) {
    Value pad = extendSplat(padding, width);
    auto padRows = [&](Value begin, Value end) {
      buildLoop(b, loc, begin, end, 1, [&](Value row) {
        buildColumnLoop(b, loc, columns, width, [&](Value column) {
          vector::StoreOp::create(b, loc, pad, buffer, ValueRange{row, column});
        });
      });
    };
    if (!isZeroInteger(window->getBegin(0)))
      padRows(zero, window->getBegin(0));
    padRows(window->getEnd(0), arith::ConstantIndexOp::create(b, loc, rows));
  }
  return buffer;
}

//===----------------------------------------------------------------------===//
// Rows in pages, and rows of elements of 8 bits
//===----------------------------------------------------------------------===//

Value mlir::flashattn::cpu::lowerRowLoad(LoadTileOp load, TileValues &values) {
  OpBuilder &b = values.b;
  Location loc = load.getLoc();
  TileBuilder build(b, loc);
  bool isValid = true;
  auto get = [&](Value value) {
    Value held = value ? values.get(value) : Value();
    isValid &= !value || held;
    return held;
  };
  auto getAll = [&](ValueRange from) { return llvm::map_to_vector(from, get); };
  std::optional<PageMap> pages = load.getPages();
  SmallVector<Value> begins, ends, indices = getAll(load.getIndices());
  if (pages) {
    begins = getAll(pages->begins);
    ends = getAll(pages->ends);
    pages = {get(pages->table), get(pages->sequence), pages->size, get(pages->first), begins, ends};
  }
  Value source = get(load.getSource()), scales = get(load.getScales()),
        begin = get(load.getBeginRow()), end = get(load.getEndRow());
  if (!isValid)
    return nullptr;
  int64_t rows = load.getTileType().getDimSize(0), columns = load.getTileType().getDimSize(1);
  int64_t existing = load.getMemRefType().getShape().back();
  auto [strides, offset] = load.getMemRefType().getStridesAndOffset();
  int64_t width = strides.back() == 1 ? std::min<int64_t>(16, existing & -existing) : 1;
  auto type = VectorType::get({width}, load.getMemRefType().getElementType());
  VectorType f32 = type.clone(b.getF32Type());
  auto extend = [&](Value x, ValueRange at) -> Value {
    if (type == f32)
      return x;
    if (!load.converts())
      return arith::ExtFOp::create(b, loc, f32, x);
    Value scale = scales ? loadTileScale(b, loc, scales, at, at.back(), existing) : Value();
    return convertNarrow(b, loc, x, scale, b.getF32Type());
  };
  Value buffer = values.scratch.allocate(loc, MemRefType::get({rows, columns}, b.getF32Type()));
  unsigned rowDim = *load.getRowDim();
  Value firstRow = build.mul(indices[rowDim], rows);
  if (!pages && !end)
    end = build.dim(source, rowDim);
  auto storeZeros = [&](Value row, int64_t from) {
    Value zero = build.splat(VectorType::get({1}, b.getF32Type()), 0);
    buildLoop(b, loc, build.index(from), build.index(columns), 1, [&](Value column) {
      vector::StoreOp::create(b, loc, zero, buffer, ValueRange{row, column});
    });
  };
  buildLoop(b, loc, build.index(0), build.index(rows), 1, [&](Value row) {
    Value number = build.add(firstRow, row);
    PagePlace place{arith::ConstantIntOp::create(b, loc, b.getI1Type(), 1), {}, {}};
    if (pages)
      place = findPage(b, loc, *pages, build.toI32(number));
    Value exists = place.exists;
    auto require = [&](arith::CmpIPredicate is, Value bound) {
      if (bound)
        exists =
            arith::AndIOp::create(b, loc, exists, arith::CmpIOp::create(b, loc, is, number, bound));
    };
    require(arith::CmpIPredicate::sge, begin);
    require(arith::CmpIPredicate::slt, end);
    auto branch = scf::IfOp::create(b, loc, exists, /*withElseRegion=*/true);
    OpBuilder::InsertionGuard guard(b);
    b.setInsertionPointToStart(branch.thenBlock());
    SmallVector<Value> at(indices);
    at[rowDim] = number;
    if (pages) {
      at.front() = build.toIndex(loadPage(b, loc, *pages, place.number));
      at[rowDim] = build.toIndex(place.row);
    }
    buildLoop(b, loc, build.index(0), build.index(existing), width, [&](Value column) {
      at.back() = column;
      Value x = width == 1 ? vector::BroadcastOp::create(b, loc, type,
                                                         memref::LoadOp::create(b, loc, source, at))
                                 .getResult()
                           : vector::LoadOp::create(b, loc, type, source, at).getResult();
      vector::StoreOp::create(b, loc, extend(x, at), buffer, ValueRange{row, column});
    });
    if (existing < columns)
      storeZeros(row, existing);
    b.setInsertionPointToStart(branch.elseBlock());
    storeZeros(row, 0);
  });
  return buffer;
}
