//===- DistributeMemory.cpp - flashattn-distribute: reads and writes --------===//
//
// What a thread reads and writes of a tile in global memory.
//
//===----------------------------------------------------------------------===//

#include "Distribute.h"
#include "mlir/Dialect/LLVMIR/LLVMDialect.h"
#include "mlir/Dialect/MemRef/IR/MemRef.h"
#include "mlir/IR/Matchers.h"

using namespace mlir;
using namespace mlir::flashattn;

LogicalResult Distributor::read(vector::TransferReadOp op) {
  auto type = dyn_cast<MemRefType>(op.getBase().getType());
  bool inContract = false, asLhs = false;
  for (Operation *user : op->getUsers())
    if (auto contract = dyn_cast<vector::ContractionOp>(user)) {
      inContract = true;
      asLhs |= contract.getLhs() == op.getResult();
    }
  if (!type || (inContract && !isSharedMemory(type)))
    return op.emitOpError() << "expected a read of shared memory; run flashattn-stage-shared first";
  // A right-hand side is loaded where it is used, piece by piece.
  if (inContract && !asLhs)
    return success();
  if (!layout.isTile(op.getVectorType()))
    return op.emitOpError() << "expected a tile of " << layout.tileM << " rows but got "
                            << op.getVectorType();
  values[op] = isSharedMemory(type) ? loadTileFromShared(op) : loadTileFromGlobal(op);
  return success();
}

/// Every thread loads what it holds. Rows past the end, of which nothing is written, read as the
/// last one; columns as the padding.
Value Distributor::loadTileFromGlobal(vector::TransferReadOp op) {
  VectorType type = op.getVectorType();
  AffineMap map = op.getPermutationMap();
  auto dimOf = [&](unsigned result) -> std::optional<unsigned> {
    auto dim = dyn_cast<AffineDimExpr>(map.getResult(result));
    return dim ? std::optional(dim.getPosition()) : std::nullopt;
  };
  std::optional<unsigned> rowDim = dimOf(0), columnDim = dimOf(1);
  SmallVector<bool> inBounds = op.getInBoundsValues();
  auto last = [&](unsigned dim) {
    Value size = b.createOrFold<memref::DimOp>(loc, op.getBase(), static_cast<int64_t>(dim));
    return b.createOrFold<arith::SubIOp>(loc, size, index(1));
  };
  Value lastRow = rowDim && !inBounds[0] ? last(*rowDim) : Value();
  Value lastColumn = columnDim && !inBounds[1] ? last(*columnDim) : Value();
  bool pairs = columnDim && !lastColumn && !type.getElementType().isInteger(1) &&
               hasAlignedRows(op.getBase());
  Type element = type.getElementType();
  auto pairType = VectorType::get({2}, element);

  SmallVector<Value> elements;
  for (int64_t r = 0; r < layout.rowBlocks; ++r) {
    SmallVector<SmallVector<Value>> rows;
    for (int64_t half = 0; half < 2; ++half) {
      SmallVector<Value> at(op.getIndices());
      if (rowDim) {
        at[*rowDim] = add(at[*rowDim], add(add(warpRow, laneRow), 16 * r + 8 * half));
        if (lastRow)
          at[*rowDim] = arith::MinSIOp::create(b, loc, at[*rowDim], lastRow);
      }
      rows.emplace_back();
      if (!columnDim) {
        rows.back().assign(type.getDimSize(1) / 4,
                           memref::LoadOp::create(b, loc, op.getBase(), at).getResult());
        continue;
      }
      Value firstColumn = add(at[*columnDim], laneColumn);
      for (int64_t g = 0; g < type.getDimSize(1) / 8; ++g) {
        if (pairs) {
          at[*columnDim] = add(firstColumn, 8 * g);
          Value pair = vector::LoadOp::create(b, loc, pairType, op.getBase(), at,
                                              /*nontemporal=*/false,
                                              llvm::Align(2 * element.getIntOrFloatBitWidth() / 8));
          for (int64_t c = 0; c < 2; ++c)
            rows.back().push_back(vector::ExtractOp::create(b, loc, pair, c));
          continue;
        }
        for (int64_t c = 0; c < 2; ++c) {
          Value column = add(firstColumn, 8 * g + c);
          at[*columnDim] =
              lastColumn ? arith::MinSIOp::create(b, loc, column, lastColumn).getResult() : column;
          Value loaded = memref::LoadOp::create(b, loc, op.getBase(), at);
          if (lastColumn) {
            Value inside =
                arith::CmpIOp::create(b, loc, arith::CmpIPredicate::sle, column, lastColumn);
            loaded = arith::SelectOp::create(b, loc, inside, loaded, op.getPadding());
          }
          rows.back().push_back(loaded);
        }
      }
    }
    for (int64_t g = 0; g < type.getDimSize(1) / 8; ++g)
      for (int64_t half = 0; half < 2; ++half)
        llvm::append_range(elements, ArrayRef<Value>(rows[half]).slice(2 * g, 2));
  }
  return vector::FromElementsOp::create(b, loc, layout.threadType(type), elements);
}

LogicalResult Distributor::write(vector::TransferWriteOp op) {
  VectorType type = op.getVectorType();
  Value held = mapped(op.getValueToStore());
  auto isWritten = [&](VectorType type) {
    return (layout.isRow(type) && type.getRank() == 1) || layout.isTile(type);
  };
  // The rows of several heads go along two dimensions.
  auto heads = op.getValueToStore().getDefiningOp<vector::ShapeCastOp>();
  if (!isWritten(type) && heads)
    type = heads.getSourceVectorType();
  bool isRow = type.getRank() == 1;
  int64_t rowDims = op.getTransferRank() - (isRow ? 0 : 1);
  if (!isWritten(type) || rowDims > 2)
    return op.emitOpError() << "has no distribution to threads of " << op.getVectorType();
  int64_t innerRows = op.getVectorType().getDimSize(rowDims - 1);
  SmallVector<Value> sizes;
  for (int64_t i = 0; i < rowDims; ++i)
    sizes.push_back(memref::DimOp::create(
        b, loc, op.getBase(), static_cast<int64_t>(op.getPermutationMap().getDimPosition(i))));
  // One lane of the four that hold a row value writes it.
  Value writer;
  if (isRow)
    writer = arith::CmpIOp::create(b, loc, arith::CmpIPredicate::eq, laneColumn, index(0));
  int64_t perBlock = isRow ? 0 : type.getDimSize(1) / 2;
  for (int64_t r = 0; r < layout.rowBlocks; ++r)
    for (int64_t half = 0; half < 2; ++half) {
      Value number = add(add(warpRow, laneRow), 16 * r + 8 * half), inside = writer;
      SmallVector<Value> at(op.getIndices());
      for (int64_t i = 0; i < rowDims; ++i) {
        Value part = number;
        if (rowDims == 2 && i == 0)
          part = arith::DivUIOp::create(b, loc, number, index(innerRows));
        else if (rowDims == 2)
          part = arith::RemUIOp::create(b, loc, number, index(innerRows));
        Value &row = at[op.getPermutationMap().getDimPosition(i)];
        row = add(row, part);
        Value fits = arith::CmpIOp::create(b, loc, arith::CmpIPredicate::slt, row, sizes[i]);
        inside = inside ? arith::AndIOp::create(b, loc, fits, inside) : fits;
      }
      auto guarded = scf::IfOp::create(b, loc, inside, /*withElseRegion=*/false);
      OpBuilder::InsertionGuard guard(b);
      b.setInsertionPointToStart(guarded.thenBlock());
      if (isRow) {
        Value value = vector::ExtractOp::create(b, loc, held, 2 * r + half);
        memref::StoreOp::create(b, loc, value, op.getBase(), at);
        continue;
      }
      writeRow(op, held, r * perBlock + 2 * half, at);
    }
  return success();
}

/// `memref.atomic_rmw` would order all other accesses too, which costs more than the addition.
void Distributor::addAtomically(Value value, Value memref, ValueRange at) {
  Value linear = at.front();
  for (auto [i, position] : llvm::enumerate(at.drop_front())) {
    Value size = b.createOrFold<memref::DimOp>(loc, memref, static_cast<int64_t>(i + 1));
    linear = add(arith::MulIOp::create(b, loc, linear, size), position);
  }
  Value base = memref::ExtractAlignedPointerAsIndexOp::create(b, loc, memref);
  constexpr int64_t kBytes = 4;
  Value address =
      arith::IndexCastOp::create(b, loc, b.getI64Type(), add(base, mul(linear, kBytes)));
  constexpr unsigned kGlobal = 1;
  Type pointer = LLVM::LLVMPointerType::get(b.getContext(), kGlobal);
  LLVM::AtomicRMWOp::create(b, loc, LLVM::AtomicBinOp::fadd,
                            LLVM::IntToPtrOp::create(b, loc, pointer, address), value,
                            LLVM::AtomicOrdering::monotonic, "device");
}

/// What this thread holds of one row: element `first` and the next of every group of 8 columns.
void Distributor::writeRow(vector::TransferWriteOp op, Value held, int64_t first,
                           SmallVector<Value> at) {
  auto memory = cast<MemRefType>(op.getBase().getType());
  unsigned columnDim = memory.getRank() - 1;
  int64_t columns = op.getVectorType().getShape().back(), width = memory.getDimSize(columnDim);
  // A tile that begins with the row ends with it: nothing is known only when it runs.
  bool inBounds = op.getInBoundsValues().back();
  if (!inBounds && matchPattern(at.back(), m_Zero()) && !ShapedType::isDynamic(width) &&
      width % 8 == 0) {
    columns = std::min(columns, width);
    inBounds = true;
  }
  Value end;
  if (!inBounds)
    end = b.createOrFold<memref::DimOp>(loc, op.getBase(), columnDim);
  auto ifInside = [&](Value column, function_ref<void()> build) {
    if (!end)
      return build();
    Value inside = arith::CmpIOp::create(b, loc, arith::CmpIPredicate::slt, column, end);
    auto guarded = scf::IfOp::create(b, loc, inside, /*withElseRegion=*/false);
    OpBuilder::InsertionGuard guard(b);
    b.setInsertionPointToStart(guarded.thenBlock());
    build();
  };
  // Two columns are both inside of a row of an even number of them, or neither.
  bool adds = op->hasAttr(kAddAttrName);
  bool pairs = !adds && hasAlignedRows(op.getBase()) &&
               (inBounds || (!ShapedType::isDynamic(width) && width % 2 == 0));
  int64_t bytes = memory.getElementTypeBitWidth() / 8;
  Value firstColumn = add(at.back(), laneColumn);
  for (int64_t g = 0; g < columns / 8; ++g) {
    int64_t element = first + 4 * g;
    Value column = add(firstColumn, 8 * g);
    if (pairs) {
      ifInside(column, [&] {
        at.back() = column;
        vector::StoreOp::create(b, loc, slice(held, element, 2), op.getBase(), at,
                                /*nontemporal=*/false, llvm::Align(2 * bytes));
      });
      continue;
    }
    for (int64_t c = 0; c < 2; ++c) {
      Value one = add(column, c);
      ifInside(one, [&] {
        at.back() = one;
        Value value = vector::ExtractOp::create(b, loc, held, element + c);
        if (adds)
          addAtomically(value, op.getBase(), at);
        else
          memref::StoreOp::create(b, loc, value, op.getBase(), at);
      });
    }
  }
}
