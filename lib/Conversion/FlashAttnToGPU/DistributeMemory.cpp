//===- DistributeMemory.cpp - flashattn-distribute: memory accesses -------===//
//
// The elements of a tile in global memory that a thread loads and stores.
//
//===----------------------------------------------------------------------===//

#include "Distribute.h"
#include "flashattn/Dialect/FlashAttn/Program/TileLoops.h"
#include "mlir/Dialect/LLVMIR/LLVMDialect.h"
#include "mlir/Dialect/LLVMIR/NVVMDialect.h"
#include "mlir/Dialect/MemRef/IR/MemRef.h"
#include "mlir/IR/Matchers.h"

using namespace mlir;
using namespace mlir::flashattn;

LogicalResult Distributor::read(vector::TransferReadOp op) {
  auto type = dyn_cast<MemRefType>(op.getBase().getType());
  if (!type || !isSharedMemory(type))
    return op.emitOpError() << "expected a read of shared memory; run flashattn-stage-shared first";
  // Products load these operands fragment by fragment: right-hand sides, transposed left-hand
  // sides, and left-hand sides of warps that share rows.
  if (llvm::all_of(op->getUses(), [&](OpOperand &use) {
        auto product = dyn_cast<vector::ContractionOp>(use.getOwner());
        return product && (use.getOperandNumber() == 1 || isLhsTransposed(product) ||
                           (use.getOperandNumber() == 0 && layout.columnWarps > 1));
      }))
    return success();
  if (!layout.isTile(op.getVectorType()) || layout.columnWarps > 1)
    return op.emitOpError() << "expected a tile of " << layout.tileM
                            << " rows, each held by one warp, but got " << op.getVectorType();
  values[op] = loadTileFromShared(op);
  return success();
}

LogicalResult Distributor::load(LoadTileOp op) {
  if (isFactor(op))
    return op.emitOpError() << "expected a contraction to read shared memory; run "
                               "flashattn-stage-shared first";
  if (op.getOnes() || !op.getSegments().empty())
    return op.emitOpError() << "expected " << (op.getOnes() ? "columns of ones" : "compacted rows")
                            << " only in a tile that a contraction reads";
  bool hasEnds = op.getBeginRow() || op.getEndRow();
  if (op.getTileType().getRank() == 1 && op.getDims().size() <= 2 && !hasEnds && op.getRowDim() &&
      layout.isRow(op.getTileType())) {
    values[op] = loadRowsFromGlobal(op);
    return success();
  }
  if (op.getDims().size() != 2 || hasEnds || !layout.isTile(op.getTileType()))
    return op.emitOpError() << "expected a tile of " << layout.tileM
                            << " rows along one dimension, without 'from' and 'below'";
  values[op] = loadTileFromGlobal(op);
  return success();
}

/// Returns the indices of this thread's row `number`, counted from its first, in a tile at
/// `origin`. If rows run along two dimensions (packed heads), the last one is contiguous.
SmallVector<Value> Distributor::indicesOfRow(ArrayRef<Value> origin, ArrayRef<int64_t> rowDims,
                                             int64_t innerRows, int64_t number) {
  Value row = add(add(warpRow, laneRow), number);
  SmallVector<Value> at(origin), parts = {row};
  if (rowDims.size() == 2)
    parts = {arith::DivUIOp::create(b, loc, row, index(innerRows)),
             arith::RemUIOp::create(b, loc, row, index(innerRows))};
  for (auto [dim, part] : llvm::zip_equal(rowDims, parts))
    at[dim] = add(at[dim], part);
  return at;
}

/// Loads one value per row. All lanes that share the row load it. Rows past the end, which are
/// never stored, read the last row.
Value Distributor::loadRowsFromGlobal(LoadTileOp op) {
  SmallVector<Value> origin = getTileOrigin(b, op, op.getIndices()), elements, last;
  for (auto [dim, inside] : llvm::zip_equal(op.getDims(), op.getInBounds()))
    last.push_back(
        inside ? Value()
               : b.createOrFold<arith::SubIOp>(
                     loc, b.createOrFold<memref::DimOp>(loc, op.getSource(), dim), index(1)));
  for (int64_t i = 0; i < layout.rowElements(); ++i) {
    SmallVector<Value> at = indicesOfRow(origin, op.getDims(), op.getInnerRows(), layout.rowAt(i));
    for (auto [dim, end] : llvm::zip_equal(op.getDims(), last))
      if (end)
        at[dim] = arith::MinSIOp::create(b, loc, at[dim], end);
    elements.push_back(memref::LoadOp::create(b, loc, op.getSource(), at));
  }
  return vector::FromElementsOp::create(b, loc, layout.threadType(op.getTileType()), elements);
}

Value mlir::flashattn::getPointer(OpBuilder &b, Location loc, Value memref, ArrayRef<Value> at) {
  TileBuilder build(b, loc);
  auto type = cast<MemRefType>(memref.getType());
  auto metadata = memref::ExtractStridedMetadataOp::create(b, loc, memref);
  Value place = metadata.getOffset();
  for (auto [i, stride] : llvm::zip_equal(at, metadata.getStrides()))
    place = build.add(place, build.mul(i, stride));
  place = build.mul(place, llvm::divideCeil(type.getElementTypeBitWidth(), 8));
  Value start = memref::ExtractAlignedPointerAsIndexOp::create(b, loc, memref);
  Value address = arith::IndexCastOp::create(b, loc, b.getI64Type(), build.add(start, place));
  auto space = isSharedMemory(type) ? NVVM::NVVMMemorySpace::Shared : NVVM::NVVMMemorySpace::Global;
  auto pointerType = LLVM::LLVMPointerType::get(b.getContext(), static_cast<unsigned>(space));
  return LLVM::IntToPtrOp::create(b, loc, pointerType, address);
}

/// Loads 16 aligned bytes of `memref` from element `at` on, as vector<4xi32>. A vector.load of i1
/// elements would load bits, but memory contains bytes.
Value Distributor::load16Bytes(Value memref, ArrayRef<Value> at) {
  return LLVM::LoadOp::create(b, loc, VectorType::get({4}, b.getI32Type()),
                              getPointer(b, loc, memref, at),
                              /*alignment=*/16);
}

/// Adds the elements atomically, in any order. The layout lets a warp's simultaneous additions
/// touch as few sectors as possible. memref.atomic_rmw would be ordered with all other accesses.
LogicalResult Distributor::addTile(AddTileOp op) {
  auto tile = cast<VectorType>(op.getTile().getType());
  Value held = mapped(op.getTile());
  if (op.getOrder())
    return op.emitOpError() << "expected no 'order' without warp specialization but got "
                            << op.getOrder().getType();
  if (!held || !layout.isPart(tile) ||
      static_cast<int64_t>(op.getParts()) != layout.countParts(tile.getDimSize(0)))
    return op.emitOpError() << "cannot be distributed to threads: its tile of type " << tile
                            << " in " << op.getParts() << " parts has no thread layout";
  constexpr int64_t kVector = 4;
  int64_t adjacent = op.getAdjacent(), each = cast<VectorType>(held.getType()).getNumElements();
  SmallVector<Value> at(op.getIndices());
  Value &row = at[at.size() - 2];
  row = mul(row, tile.getDimSize(0));
  Value warp = arith::DivUIOp::create(b, loc, program.getThread(), index(32));
  at.back() = add(at.back(), add(mul(warp, 32 * each), mul(lane, adjacent)));
  Value first = getPointer(b, loc, op.getTarget(), at);
  for (auto [i, element] :
       llvm::enumerate(vector::ToElementsOp::create(b, loc, held).getResults())) {
    int64_t number = i, inGroup = number % kVector;
    LLVM::GEPArg place(number / kVector * kVector * 32 + inGroup / adjacent * adjacent * 32 +
                       inGroup % adjacent);
    Value pointer = LLVM::GEPOp::create(b, loc, first.getType(), b.getF32Type(), first, place);
    LLVM::AtomicRMWOp::create(b, loc, LLVM::AtomicBinOp::fadd, pointer, element,
                              LLVM::AtomicOrdering::monotonic, /*syncscope=*/"device",
                              /*alignment=*/4);
  }
  return success();
}

/// Transposes the 4 words of the 4 lanes that share a row: lane l's word i becomes lane i's word l.
SmallVector<Value> Distributor::transposeQuad(Value words) {
  SmallVector<Value> w;
  for (int64_t i = 0; i < 4; ++i)
    w.push_back(vector::ExtractOp::create(b, loc, words, i));
  // Exchanges 2x2 words, then 2x2 blocks. A lane in the upper row keeps the upper column.
  for (int64_t distance : {1, 2}) {
    Value bit = arith::AndIOp::create(b, loc, laneColumn, index(2 * distance));
    Value isUpper = arith::CmpIOp::create(b, loc, arith::CmpIPredicate::ne, bit, index(0));
    auto select = [&](Value upper, Value lower) -> Value {
      return arith::SelectOp::create(b, loc, isUpper, upper, lower);
    };
    auto i32 = [&](int64_t v) { return arith::ConstantIntOp::create(b, loc, v, 32); };
    for (int64_t i = 0; i < 4; ++i) {
      if (i & distance)
        continue;
      Value &low = w[i], &high = w[i + distance];
      Value other = gpu::ShuffleOp::create(b, loc, select(low, high), i32(distance), i32(32),
                                           gpu::ShuffleMode::XOR)
                        .getShuffleResult();
      Value newLow = select(other, low), newHigh = select(high, other);
      low = newLow;
      high = newHigh;
    }
  }
  return w;
}

/// Whether the rows of a tile begin at multiples of 16 bytes and all of its columns exist.
bool Distributor::readsAlignedRows(LoadTileOp op) {
  Type element = op.getTileType().getElementType();
  // Without warp specialization no registers are left for 16 one-byte elements at once.
  return op.getDims().size() == 2 && op.getDims()[1] + 1 == op.getMemRefType().getRank() &&
         op.getInBounds()[1] && !isSharedMemory(op.getMemRefType()) &&
         hasAlignedRows(op.getSource()) && element.isIntOrFloat() &&
         (isWarpSpecialized || !element.isInteger(1));
}

/// Collects the loads from which `tile` is computed elementwise. Returns false if `tile` depends on
/// anything else or an intermediate value has another use.
static bool collectLoads(Value tile, SmallVectorImpl<LoadTileOp> &loads) {
  Operation *def = tile.getDefiningOp();
  if (!def || !tile.hasOneUse())
    return false;
  if (auto load = dyn_cast<LoadTileOp>(def)) {
    loads.push_back(load);
    return true;
  }
  return OpTrait::hasElementwiseMappableTraits(def) &&
         llvm::all_of(def->getOperands(), [&](Value v) { return collectLoads(v, loads); });
}

/// Marks loads that are only combined elementwise and then reduced along rows. Their elements may
/// be in any column order, if all of them use the same order.
void Distributor::findUnordered(vector::MultiDimReductionOp op) {
  SmallVector<LoadTileOp> loads;
  SmallVector<bool> reduced = op.getReductionMask();
  if (ArrayRef(reduced) != ArrayRef{false, true} || !collectLoads(op.getSource(), loads))
    return;
  auto isAlike = [&](LoadTileOp load) {
    if (load.getTileType() != loads.front().getTileType() || !readsAlignedRows(load))
      return false;
    int64_t width = load.getTileType().getElementTypeBitWidth();
    return width == 16 || width == 32;
  };
  if (llvm::all_of(loads, isAlike))
    unordered.insert_range(loads);
}

/// Each thread loads its own elements. Rows past the end, which are never stored, read the last
/// row. Columns past the end read as the padding.
Value Distributor::loadTileFromGlobal(LoadTileOp op) {
  VectorType type = op.getTileType();
  auto dimOf = [&](unsigned i) {
    int64_t dim = op.getDims()[i];
    return dim < 0 ? std::nullopt : std::optional<unsigned>(dim);
  };
  std::optional<unsigned> rowDim = dimOf(0), columnDim = dimOf(1);
  ArrayRef<bool> inBounds = op.getInBounds();
  SmallVector<Value> origin = getTileOrigin(b, op, op.getIndices());
  auto last = [&](unsigned dim) {
    Value size = b.createOrFold<memref::DimOp>(loc, op.getSource(), static_cast<int64_t>(dim));
    return b.createOrFold<arith::SubIOp>(loc, size, index(1));
  };
  Value lastRow = rowDim && !inBounds[0] ? last(*rowDim) : Value();
  bool isAligned = readsAlignedRows(op);
  int64_t columns = layout.warpColumns(type.getDimSize(1));
  if (columnDim)
    origin[*columnDim] = add(origin[*columnDim], firstColumn(type.getDimSize(1)));

  SmallVector<Value> elements;
  for (int64_t r = 0; r < layout.rowBlocks; ++r) {
    SmallVector<SmallVector<Value>> rows;
    for (int64_t half = 0; half < layout.laneRows; ++half) {
      SmallVector<Value> at(origin);
      if (rowDim) {
        at[*rowDim] = add(at[*rowDim], add(add(warpRow, laneRow), 16 * r + 8 * half));
        if (lastRow)
          at[*rowDim] = arith::MinSIOp::create(b, loc, at[*rowDim], lastRow);
      }
      if (!columnDim)
        rows.emplace_back(columns / 4,
                          memref::LoadOp::create(b, loc, op.getSource(), at).getResult());
      else if (isAligned)
        rows.push_back(loadAlignedRow(op.getSource(), at, columns, unordered.contains(op)));
      else
        rows.push_back(loadRow(op, at, *columnDim, inBounds[1] ? Value() : last(*columnDim)));
    }
    for (int64_t g = 0; g < columns / 8; ++g)
      for (int64_t half = 0; half < layout.laneRows; ++half)
        llvm::append_range(elements, ArrayRef<Value>(rows[half]).slice(2 * g, 2));
  }
  return vector::FromElementsOp::create(b, loc, layout.threadType(type), elements);
}

/// Loads this thread's elements of the row at `at`, one by one. Columns past `lastColumn` read as
/// the padding (null: no column is past the end).
SmallVector<Value> Distributor::loadRow(LoadTileOp op, SmallVector<Value> at, unsigned columnDim,
                                        Value lastColumn) {
  SmallVector<Value> row;
  Type element = op.getTileType().getElementType();
  Value padding = arith::ConstantOp::create(b, loc, b.getZeroAttr(element));
  // Compares in 32 bits, which column indices allow: consumers have no registers to spare.
  auto narrow = [&](Value v) {
    return arith::IndexCastUIOp::create(b, loc, b.getI32Type(), v).getResult();
  };
  Value firstColumn = narrow(add(at[columnDim], laneColumn));
  Value end = lastColumn ? narrow(lastColumn) : Value();
  for (int64_t g = 0; g < layout.warpColumns(op.getTileType().getDimSize(1)) / 8; ++g)
    for (int64_t c = 0; c < 2; ++c) {
      Value column = b.createOrFold<arith::AddIOp>(
          loc, firstColumn, arith::ConstantIntOp::create(b, loc, 8 * g + c, 32));
      Value place = end ? arith::MinUIOp::create(b, loc, column, end).getResult() : column;
      at[columnDim] = arith::IndexCastUIOp::create(b, loc, b.getIndexType(), place);
      Value loaded = memref::LoadOp::create(b, loc, op.getSource(), at);
      if (end) {
        Value inside = arith::CmpIOp::create(b, loc, arith::CmpIPredicate::ule, column, end);
        loaded = arith::SelectOp::create(b, loc, inside, loaded, padding);
      }
      row.push_back(loaded);
    }
  return row;
}

/// As `loadRow`, for a row whose columns all exist and whose 16-byte chunks are aligned. The cost
/// is the number of loads, because each touches 8 rows that the cache looks up one by one. With
/// `inAnyOrder`, a thread keeps the elements that it loads.
SmallVector<Value> Distributor::loadAlignedRow(Value memref, SmallVector<Value> at, int64_t columns,
                                               bool inAnyOrder) {
  constexpr int64_t kBytes = 16, kLanes = 4;
  Type element = cast<MemRefType>(memref.getType()).getElementType();
  int64_t width = element.getIntOrFloatBitWidth();
  Value first = at.back();
  SmallVector<Value> row;
  if (element.isInteger(1)) {
    // All four lanes load the same bytes. Each byte is an element.
    auto i32 = [&](int64_t v) { return arith::ConstantIntOp::create(b, loc, v, 32); };
    auto place = arith::IndexCastUIOp::create(b, loc, b.getI32Type(), laneColumn);
    Value isHigh = arith::CmpIOp::create(b, loc, arith::CmpIPredicate::uge, place, i32(4));
    Value shift =
        arith::MulIOp::create(b, loc, arith::AndIOp::create(b, loc, place, i32(2)), i32(8));
    for (int64_t c = 0; c < columns; c += kBytes) {
      at.back() = add(first, c);
      Value words = load16Bytes(memref, at);
      for (int64_t i = 0; i < 4; i += 2) {
        Value word =
            arith::SelectOp::create(b, loc, isHigh, vector::ExtractOp::create(b, loc, words, i + 1),
                                    vector::ExtractOp::create(b, loc, words, i));
        word = arith::ShRUIOp::create(b, loc, word, shift);
        for (int64_t mask : {0xff, 0xff00})
          row.push_back(arith::CmpIOp::create(b, loc, arith::CmpIPredicate::ne,
                                              arith::AndIOp::create(b, loc, word, i32(mask)),
                                              i32(0)));
      }
    }
    return row;
  }
  auto pairType = VectorType::get({2}, element);
  auto take = [&](Value pair) {
    for (int64_t i = 0; i < 2; ++i)
      row.push_back(vector::ExtractOp::create(b, loc, pair, i));
  };
  int64_t column = 0, atOnce = kLanes * kBytes * 8 / width;
  for (; (width == 16 || inAnyOrder) && column + atOnce <= columns; column += atOnce) {
    // The lane's index in the row times the number of elements that it loads.
    at.back() = add(add(first, column), mul(laneColumn, kBytes * 8 / width / 2));
    Value words = load16Bytes(memref, at);
    if (inAnyOrder) {
      auto type = VectorType::get({kBytes * 8 / width}, element);
      auto split =
          vector::ToElementsOp::create(b, loc, vector::BitCastOp::create(b, loc, type, words));
      llvm::append_range(row, split.getResults());
      continue;
    }
    for (Value word : transposeQuad(words))
      take(vector::BitCastOp::create(
          b, loc, pairType,
          vector::BroadcastOp::create(b, loc, VectorType::get({1}, b.getI32Type()), word)));
  }
  for (; column < columns; column += 8) {
    at.back() = add(add(first, laneColumn), column);
    take(vector::LoadOp::create(b, loc, pairType, memref, at, /*nontemporal=*/false,
                                llvm::Align(2 * width / 8)));
  }
  return row;
}

/// Stores a splat tile whose rows are whole and contiguous in memory. The distribution does not
/// matter, so adjacent threads store adjacent chunks of 16 bytes. Returns false for other tiles.
bool Distributor::fill(StoreTileOp op) {
  VectorType type = op.getTileType();
  MemRefType memory = op.getMemRefType();
  int64_t rank = memory.getRank();
  SplatElementsAttr constant;
  if (!matchPattern(op.getTile(), m_Constant(&constant)) || type.getRank() != 2 ||
      op.getDims() != ArrayRef<int64_t>{rank - 2, rank - 1} ||
      llvm::is_contained(op.getInBounds(), false) || !memory.getLayout().isIdentity() ||
      memory.getShape().back() != type.getDimSize(1) || isSharedMemory(memory) ||
      !hasAlignedRows(op.getTarget()))
    return false;
  constexpr int64_t kBits = 128;
  int64_t width = kBits / type.getElementTypeBitWidth(), atOnce = 32 * layout.warps * width;
  if (type.getNumElements() % atOnce != 0)
    return false;
  auto vector = VectorType::get({width}, type.getElementType());
  Value value = arith::ConstantOp::create(b, loc, constant.resizeSplat(vector));
  SmallVector<Value> origin = getTileOrigin(b, op, op.getIndices());
  for (int64_t first = 0; first < type.getNumElements(); first += atOnce) {
    // The element index is relative to the tile's first element, over all its rows.
    Value element = add(mul(program.getThread(), width), first),
          columns = index(type.getDimSize(1));
    SmallVector<Value> at(origin);
    at[rank - 2] = add(at[rank - 2], arith::DivUIOp::create(b, loc, element, columns).getResult());
    at[rank - 1] = arith::RemUIOp::create(b, loc, element, columns);
    vector::StoreOp::create(b, loc, value, op.getTarget(), at, /*nontemporal=*/false,
                            llvm::Align(kBits / 8));
  }
  return true;
}

/// Returns the number of the tile's columns that exist in the rows of its memref, from `first` on;
/// nullopt if it is known only at run time.
static std::optional<int64_t> countColumns(StoreTileOp op, Value first) {
  int64_t columns = op.getTileType().getShape().back();
  int64_t width = op.getMemRefType().getShape().back();
  if (op.getInBounds().back())
    return columns;
  // A tile that begins at the start of a row ends at its end.
  if (matchPattern(first, m_Zero()) && !ShapedType::isDynamic(width) && width % 8 == 0)
    return std::min(columns, width);
  return std::nullopt;
}

/// Gathers the elements of each row into 16-byte vectors, one per lane for every 32 columns, if a
/// program is bound by memory or its stores delay the next program of a persistent block. Storing
/// pairs would take four times the stores, of half a sector each.
SmallVector<Value> Distributor::gatherChunks(StoreTileOp op, Value held, Value firstColumn) {
  constexpr int64_t kColumns = 32, kWords = 4;
  std::optional<int64_t> columns = countColumns(op, firstColumn);
  Type element = op.getTileType().getElementType();
  if ((hasProducts && !isWarpSpecialized) || layout.laneRows != 2 || columnWarp || !columns ||
      element.getIntOrFloatBitWidth() != 16 || !hasAlignedRows(op.getTarget()))
    return {};
  auto wordType = VectorType::get({1}, b.getI32Type());
  auto wordsType = VectorType::get({kWords}, b.getI32Type());
  auto chunkType = VectorType::get({2 * kWords}, element);
  int64_t perBlock = op.getTileType().getDimSize(1) / 2;
  SmallVector<Value> chunks;
  for (int64_t r = 0; r < layout.rowBlocks; ++r)
    for (int64_t half = 0; half < 2; ++half)
      for (int64_t i = 0; i < *columns / kColumns; ++i) {
        SmallVector<Value> words;
        for (int64_t g = kWords * i; g < kWords * (i + 1); ++g) {
          Value pair = slice(held, r * perBlock + 4 * g + 2 * half, 2);
          words.push_back(vector::ExtractOp::create(
              b, loc, vector::BitCastOp::create(b, loc, wordType, pair), 0));
        }
        words = transposeQuad(vector::FromElementsOp::create(b, loc, wordsType, words));
        chunks.push_back(vector::BitCastOp::create(
            b, loc, chunkType, vector::FromElementsOp::create(b, loc, wordsType, words)));
      }
  return chunks;
}

LogicalResult Distributor::store(StoreTileOp op) {
  if (fill(op))
    return success();
  VectorType type = op.getTileType();
  Value held = withOwnRows(mapped(op.getTile()), type);
  bool isRow = type.getRank() == 1;
  ArrayRef<int64_t> rowDims = op.getDims().drop_back(isRow ? 0 : 1);
  Type element = type.getElementType();
  if (!held || !(isRow ? layout.isRow(type) : layout.isTile(type)) || rowDims.size() > 2 ||
      !element.isIntOrFloat() || element.getIntOrFloatBitWidth() < 8)
    return op.emitOpError() << "cannot be distributed to threads: its tile of type " << type
                            << " has no thread layout";
  int64_t last = op.getMemRefType().getRank() - 1;
  if (!isRow && op.getDims().back() != last)
    return op.emitOpError() << "expected columns along the last dimension, " << last << ", but got "
                            << op.getDims().back();
  int64_t innerRows = op.getInnerRows();
  SmallVector<Value> origin = getTileOrigin(b, op, op.getIndices()), sizes;
  for (int64_t dim : rowDims)
    sizes.push_back(memref::DimOp::create(b, loc, op.getTarget(), dim));
  // One of the four lanes that hold a row value stores it.
  Value writer;
  if (isRow)
    writer = arith::CmpIOp::create(b, loc, arith::CmpIPredicate::eq, laneColumn, index(0));
  int64_t perBlock = isRow ? 0 : layout.blockElements(type.getDimSize(1));
  // All lanes of a warp take part in the shuffles, whether or not their rows exist.
  SmallVector<Value> chunks;
  if (!isRow)
    chunks = gatherChunks(op, held, origin.back());
  size_t perRow = chunks.size() / layout.rowElements();
  int64_t laneRows = layout.laneRows;
  for (int64_t r = 0; r < layout.rowBlocks; ++r)
    for (int64_t half = 0; half < laneRows; ++half) {
      SmallVector<Value> at = indicesOfRow(origin, rowDims, innerRows, 16 * r + 8 * half);
      Value inside = writer;
      for (auto [i, dim] : llvm::enumerate(rowDims)) {
        Value fits = arith::CmpIOp::create(b, loc, arith::CmpIPredicate::slt, at[dim], sizes[i]);
        inside = inside ? arith::AndIOp::create(b, loc, fits, inside) : fits;
      }
      auto guarded = scf::IfOp::create(b, loc, inside, /*withElseRegion=*/false);
      OpBuilder::InsertionGuard guard(b);
      b.setInsertionPointToStart(guarded.thenBlock());
      if (isRow) {
        Value value = vector::ExtractOp::create(b, loc, held, laneRows * r + half);
        memref::StoreOp::create(b, loc, value, op.getTarget(), at);
        continue;
      }
      storeRow(op, held, r * perBlock + 2 * half,
               ArrayRef(chunks).slice((laneRows * r + half) * perRow, perRow), at);
    }
  return success();
}

/// Stores this thread's fragment of one row: `chunks`, then, for each remaining group of 8 columns,
/// the pair that begins at element `first` of the group.
void Distributor::storeRow(StoreTileOp op, Value held, int64_t first, ArrayRef<Value> chunks,
                           SmallVector<Value> at) {
  MemRefType memory = op.getMemRefType();
  unsigned columnDim = memory.getRank() - 1;
  int64_t width = memory.getDimSize(columnDim);
  int64_t all = op.getTileType().getShape().back();
  std::optional<int64_t> whole = countColumns(op, at.back());
  // In this case only some of the warps have columns past the end.
  if (columnWarp && whole != all)
    whole.reset();
  int64_t columns = layout.warpColumns(whole.value_or(all));
  Value end;
  if (!whole)
    end = b.createOrFold<memref::DimOp>(loc, op.getTarget(), columnDim);
  auto ifInside = [&](Value column, function_ref<void()> build) {
    if (!end)
      return build();
    Value inside = arith::CmpIOp::create(b, loc, arith::CmpIPredicate::slt, column, end);
    auto guarded = scf::IfOp::create(b, loc, inside, /*withElseRegion=*/false);
    OpBuilder::InsertionGuard guard(b);
    b.setInsertionPointToStart(guarded.thenBlock());
    build();
  };
  // If a row has an even number of columns, both columns of a pair are inside it, or neither.
  bool pairs = hasAlignedRows(op.getTarget()) &&
               (whole || (!ShapedType::isDynamic(width) && width % 2 == 0));
  int64_t bytes = memory.getElementTypeBitWidth() / 8;
  Value origin = add(at.back(), firstColumn(all)), laneFirst = add(origin, laneColumn);
  for (auto [i, chunk] : llvm::enumerate(chunks)) {
    at.back() = add(add(origin, mul(laneColumn, 4)), 32 * i);
    vector::StoreOp::create(b, loc, chunk, op.getTarget(), at, /*nontemporal=*/false,
                            llvm::Align(16));
  }
  for (int64_t g = 4 * chunks.size(); g < columns / 8; ++g) {
    int64_t element = first + 2 * layout.laneRows * g;
    Value column = add(laneFirst, 8 * g);
    if (pairs) {
      ifInside(column, [&] {
        at.back() = column;
        vector::StoreOp::create(b, loc, slice(held, element, 2), op.getTarget(), at,
                                /*nontemporal=*/false, llvm::Align(2 * bytes));
      });
      continue;
    }
    for (int64_t c = 0; c < 2; ++c) {
      Value one = add(column, c);
      ifInside(one, [&] {
        at.back() = one;
        Value value = vector::ExtractOp::create(b, loc, held, element + c);
        memref::StoreOp::create(b, loc, value, op.getTarget(), at);
      });
    }
  }
}
