//===- DistributeWarpgroups.cpp - flashattn-distribute: Hopper's ops ------===//
//
// Fragments of wgmma products, and of tiles that are copied to and from shared memory as a whole.
//
//===----------------------------------------------------------------------===//

#include "Distribute.h"
#include "mlir/Dialect/MemRef/IR/MemRef.h"
#include "llvm/ADT/TypeSwitch.h"

using namespace mlir;
using namespace mlir::flashattn;

/// Returns this warpgroup's range of a tile in shared memory: `size` panels (`dim` 0) or rows (1).
Value Distributor::sliceForWarpgroup(Value tile, unsigned dim, int64_t size) {
  auto type = cast<MemRefType>(tile.getType());
  SmallVector<OpFoldResult> offsets(3, b.getIndexAttr(0)), strides(3, b.getIndexAttr(1)), sizes;
  for (int64_t extent : type.getShape())
    sizes.push_back(b.getIndexAttr(extent));
  offsets[dim] = mul(warpgroup, size);
  sizes[dim] = b.getIndexAttr(size);
  return memref::SubViewOp::create(b, loc, tile, offsets, sizes, strides);
}

/// Finds the accumulators of products with a left-hand side in registers. Threads keep both rows of
/// these. Otherwise ptxas would zero the unused row before each product, with no product in flight.
void Distributor::findSums() {
  auto isSum = [&](Value v) { return sums.contains(v); };
  auto isResultSum = [&](Operation *op, unsigned number) {
    return llvm::TypeSwitch<Operation *, bool>(op)
        .Case([&](hopper::WgmmaOp op) { return isDistributed(op.getA().getType()); })
        .Case([&](hopper::WgmmaWaitOp op) { return isSum(op.getValues()[number]); })
        .Case([&](hopper::PinOp op) { return isSum(op.getValue()); })
        .Case([&](vector::InsertStridedSliceOp op) { return isSum(op.getValueToStore()); })
        .Case([&](scf::ForOp op) { return isSum(op.getYieldedValues()[number]); })
        .Case([&](scf::IfOp op) {
          return isSum(op.thenYield().getOperand(number)) ||
                 isSum(op.elseYield().getOperand(number));
        })
        .Default([&](Operation *op) {
          return OpTrait::hasElementwiseMappableTraits(op) &&
                 llvm::any_of(op->getOperands(), isSum);
        });
  };
  for (size_t before = ~size_t(0); before != sums.size();) {
    before = sums.size();
    program.walk([&](Operation *op) {
      for (OpResult result : op->getResults())
        if (isDistributed(result.getType()) && isResultSum(op, result.getResultNumber()))
          sums.insert(result);
      if (auto loop = dyn_cast<scf::ForOp>(op))
        for (auto [argument, yielded] :
             llvm::zip_equal(loop.getRegionIterArgs(), loop.getYieldedValues()))
          if (isSum(yielded))
            sums.insert(argument);
    });
  }
}

/// Whether `held`, a thread's fragment of a tile, includes both rows of a lane.
bool Distributor::hasAllRows(Value held, Type tile) {
  VectorType own = layout.threadType(cast<VectorType>(tile));
  return layout.laneRows == 2 || held.getType() != own;
}

VectorType Distributor::threadTypeOf(Value tile) {
  VectorType own = layout.threadType(cast<VectorType>(tile.getType()));
  if (!own || !sums.contains(tile))
    return own;
  return VectorType::get({2 * own.getNumElements()}, own.getElementType());
}

/// Duplicates the used row of each lane into the unused row.
Value Distributor::withAllRows(Value held, Type tile) {
  if (!held || hasAllRows(held, tile))
    return held;
  SmallVector<int64_t> mask;
  for (int64_t i = 0; i < cast<VectorType>(held.getType()).getNumElements(); i += 2)
    mask.append({i, i + 1, i, i + 1});
  return shuffle(held, mask);
}

Value Distributor::withOwnRows(Value held, Type tile) {
  if (!held || layout.laneRows == 2 || !hasAllRows(held, tile))
    return held;
  SmallVector<int64_t> mask;
  for (int64_t i = 0; i < cast<VectorType>(held.getType()).getNumElements(); i += 4)
    mask.append({i, i + 1});
  return shuffle(held, mask);
}

//===----------------------------------------------------------------------===//
// Columns of a tile
//===----------------------------------------------------------------------===//

/// Returns where columns of `tile`, a contiguous range of a thread's fragment, begin in it. Emits an
/// error at `op` and returns std::nullopt for others, or if an operand has no thread layout.
std::optional<int64_t> Distributor::findColumns(Operation *op, VectorType tile, VectorType part,
                                                ArrayAttr at) {
  constexpr int64_t kGroupColumns = 8;
  auto first = llvm::to_vector(at.getAsValueRange<IntegerAttr>());
  bool areMapped = llvm::all_of(op->getOperands(), [&](Value v) { return mapped(v); });
  if (areMapped && layout.columnWarps == 1 && layout.rowBlocks == 1 && layout.isTile(tile) &&
      layout.isTile(part) && first.size() == 2 && part.getDimSize(0) == tile.getDimSize(0) &&
      first.back().getSExtValue() % kGroupColumns == 0 && part.getDimSize(1) % kGroupColumns == 0)
    return layout.blockElements(first.back().getSExtValue());
  op->emitOpError() << "expected columns in groups of " << kGroupColumns
                    << " of one block of rows but got " << part << " of " << tile;
  return std::nullopt;
}

LogicalResult Distributor::extractColumns(vector::ExtractStridedSliceOp op) {
  VectorType source = op.getSourceVectorType(), type = op.getType();
  Value held = withOwnRows(mapped(op.getSource()), source);
  std::optional<int64_t> first = findColumns(op, source, type, op.getOffsets());
  if (!first)
    return failure();
  values[op] = slice(held, *first, layout.blockElements(type.getDimSize(1)));
  return success();
}

LogicalResult Distributor::insertColumns(vector::InsertStridedSliceOp op) {
  VectorType type = op.getDestVectorType(), part = op.getSourceVectorType();
  Value held = mapped(op.getDest()), columns = mapped(op.getValueToStore());
  std::optional<int64_t> first = findColumns(op, type, part, op.getOffsets());
  if (!first)
    return failure();
  if (sums.contains(op)) {
    held = withAllRows(held, type);
    columns = withAllRows(columns, part);
    *first *= 2 / layout.laneRows;
  } else {
    held = withOwnRows(held, type);
    columns = withOwnRows(columns, part);
  }
  values[op] = vector::InsertStridedSliceOp::create(
      b, loc, columns, held, ArrayRef<int64_t>{*first}, ArrayRef<int64_t>{1});
  return success();
}

//===----------------------------------------------------------------------===//
// Products
//===----------------------------------------------------------------------===//

/// Warpgroups that share a product each compute 64 of its rows or, if there are only 64 rows, a
/// range of its columns.
LogicalResult Distributor::wgmma(hopper::WgmmaOp op) {
  auto tile = cast<VectorType>(op.getD().getType());
  VectorType type = layout.threadType(tile);
  Value a = isDistributed(op.getA().getType()) ? mapped(op.getA()) : op.getA();
  Value acc = op.getAcc() ? mapped(op.getAcc()) : Value(), rhs = op.getB();
  Value first = op.getFirst() ? mapped(op.getFirst()) : Value();
  if (!type || !a || (op.getAcc() && !acc) || (op.getFirst() && !first))
    return op.emitOpError()
           << "cannot be distributed to threads: an operand or the result has no thread layout";
  if (layout.laneRows == 1) {
    type = VectorType::get({2 * type.getNumElements()}, type.getElementType());
    if (isDistributed(op.getA().getType()))
      a = withAllRows(a, op.getA().getType());
    acc = withAllRows(acc, tile);
  }
  constexpr int64_t kRows = hopper::kWarpgroupRows;
  if (warpgroup && isa<MemRefType>(a.getType()) && tile.getDimSize(0) > kRows) {
    int64_t panelColumns = cast<MemRefType>(a.getType()).getDimSize(2);
    a = op.getTransposedA() ? sliceForWarpgroup(a, 0, kRows / panelColumns)
                            : sliceForWarpgroup(a, 1, kRows);
  }
  if (layout.isPart(tile)) {
    auto memref = cast<MemRefType>(rhs.getType());
    int64_t parts = layout.tileM / tile.getDimSize(0);
    // A column range begins with a panel.
    if (!op.getTransposed() || memref.getDimSize(0) % parts != 0 ||
        memref.getDimSize(0) * memref.getDimSize(2) != tile.getDimSize(1))
      return op.emitOpError() << "expected a transposed right-hand side with the columns of "
                              << tile << ", in whole panels for each of " << parts
                              << " warpgroups, but got " << memref;
    rhs = sliceForWarpgroup(rhs, 0, memref.getDimSize(0) / parts);
  }
  values[op.getD()] =
      hopper::WgmmaOp::create(b, loc, type, a, first, rhs, acc, op.getTransposedAttr(),
                              op.getDepthAttr(), op.getTransposedAAttr(), op.getOverwrittenAttr());
  return success();
}

/// Computes a product that only some warps of a warpgroup execute, with mma.sync, from tiles in
/// wgmma's layout. Each warp computes its own rows. A read of 16 rows and 16 columns of K yields
/// the operands of two column blocks.
LogicalResult Distributor::contractPanels(vector::ContractionOp op) {
  auto lhs = op.getLhs().getDefiningOp<hopper::LoadTileOp>();
  auto rhs = op.getRhs().getDefiningOp<hopper::LoadTileOp>();
  Value acc = mapped(op.getAcc());
  constexpr int64_t kRows = 16, kColumns = 16, kRegisters = 4, kElements = 2;
  int64_t k = op.getLhsType().getDimSize(1), n = op.getRhsType().getDimSize(0);
  if (!lhs || !acc || isRhsTransposed(op) != true || warpgroup || n % kRows != 0 ||
      op.getLhsType().getDimSize(0) != hopper::kWarpgroupRows)
    return op.emitOpError() << "expected lhs[m,k] with " << hopper::kWarpgroupRows
                            << " rows times rhs[n,k] with a multiple of " << kRows
                            << " rows, both in shared memory, for a product that only some warps "
                               "of a warpgroup compute";
  // LLVM cannot analyze a shuffle. Otherwise it would hoist the addresses out of the surrounding
  // loop, into registers that are needed there.
  Value thread = arith::IndexCastOp::create(b, loc, b.getI32Type(), program.getThread());
  thread = gpu::ShuffleOp::create(b, loc, thread, /*offset=*/0, /*width=*/32, gpu::ShuffleMode::XOR)
               .getShuffleResult();
  // 16 columns at a time, because few registers are left for operands beside the accumulators.
  Type element = op.getLhsType().getElementType();
  auto type = VectorType::get({kRegisters * kElements}, element);
  auto panels = cast<MemRefType>(rhs.getTile().getType());
  SmallVector<Value> sums(vector::ToElementsOp::create(b, loc, acc).getResults());
  for (int64_t column = 0; column < k; column += kColumns) {
    auto read = [&](Value tile) {
      Value held = hopper::ReadTileOp::create(b, loc, type, tile, thread, column);
      SmallVector<Value> registers;
      for (int64_t i = 0; i < kRegisters; ++i)
        registers.push_back(slice(held, i * kElements, kElements));
      return registers;
    };
    SmallVector<Value> left = read(lhs.getTile());
    for (int64_t row = 0; row < n; row += kRows) {
      SmallVector<OpFoldResult> offsets(3, b.getIndexAttr(0)), strides(3, b.getIndexAttr(1)), sizes;
      for (int64_t extent : {panels.getDimSize(0), kRows, panels.getDimSize(2)})
        sizes.push_back(b.getIndexAttr(extent));
      offsets[1] = b.getIndexAttr(row);
      SmallVector<Value> right =
          read(memref::SubViewOp::create(b, loc, rhs.getTile(), offsets, sizes, strides));
      for (int64_t half = 0; half < 2; ++half)
        mma(left, {right[half], right[half + 2]},
            MutableArrayRef(sums).slice(row / 2 + kRegisters * half, kRegisters), element);
    }
  }
  values[op] = vector::FromElementsOp::create(b, loc, acc.getType(), sums);
  return success();
}

LogicalResult Distributor::wgmmaWait(hopper::WgmmaWaitOp op) {
  SmallVector<Value> held;
  for (Value value : op.getValues()) {
    held.push_back(mapped(value));
    if (!held.back())
      return op.emitOpError()
             << "cannot be distributed to threads: its operand has no thread layout";
  }
  auto wait = hopper::WgmmaWaitOp::create(b, loc, ValueRange(held).getTypes(), held,
                                          op.getPendingAttr(), op.getHeldAttr());
  for (auto [oldResult, newResult] : llvm::zip(op.getResults(), wait.getResults()))
    values[oldResult] =
        sums.contains(oldResult) ? newResult : withOwnRows(newResult, oldResult.getType());
  return success();
}

LogicalResult Distributor::storeTile(hopper::StoreTileOp op) {
  Value held = mapped(op.getValue());
  if (!held)
    return op.emitOpError() << "cannot be distributed to threads: its operand has no thread layout";
  Value tile = op.getTile();
  if (warpgroup)
    tile = sliceForWarpgroup(tile, 1, hopper::kWarpgroupRows);
  held = withAllRows(held, op.getValue().getType());
  hopper::StoreTileOp::create(b, loc, held, tile);
  return success();
}

LogicalResult Distributor::readTile(hopper::ReadTileOp op) {
  VectorType type = layout.threadType(cast<VectorType>(op.getResult().getType()));
  if (!type)
    return op.emitOpError() << "cannot be distributed to threads: its result has no thread layout";
  Value tile = op.getTile();
  if (warpgroup)
    tile = sliceForWarpgroup(tile, 1, hopper::kWarpgroupRows);
  // Products take both rows of a lane.
  type = VectorType::get({2 * type.getNumElements() / layout.laneRows}, type.getElementType());
  values[op.getResult()] =
      hopper::ReadTileOp::create(b, loc, type, tile, op.getThread(), op.getFrom());
  return success();
}

LogicalResult Distributor::pin(hopper::PinOp op) {
  Value held = mapped(op.getValue());
  if (!held)
    return op.emitOpError() << "cannot be distributed to threads: its operand has no thread layout";
  values[op.getResult()] = hopper::PinOp::create(b, loc, held.getType(), held, op.getWeakAttr());
  return success();
}

LogicalResult Distributor::addTile(hopper::AddTileOp op) {
  Value held = mapped(op.getValue());
  if (!held)
    return op.emitOpError() << "cannot be distributed to threads: its operand has no thread layout";
  hopper::AddTileOp::create(b, loc, held, op.getStaging(), op.getTarget(), op.getIndices(),
                            findWarp());
  return success();
}

LogicalResult Distributor::stageTile(hopper::StageTileOp op) {
  Value held = mapped(op.getValue());
  if (!held)
    return op.emitOpError() << "cannot be distributed to threads: its operand has no thread layout";
  hopper::StageTileOp::create(b, loc, held, op.getStaging(), findWarp());
  return success();
}

Value Distributor::findWarp() {
  return arith::DivUIOp::create(b, loc, program.getThread(), index(32));
}

/// Reloads the fragments of warp w in column range p. In each group of 8 columns a lane has four
/// elements, two in each of its rows. `adjacent` of them are contiguous in memory.
LogicalResult Distributor::loadAdded(LoadAddedOp op) {
  auto tile = cast<VectorType>(op.getTile().getType());
  int64_t parts = op.getParts(), groups = tile.getDimSize(1) / 8 / parts;
  int64_t adjacent = op.getAdjacent();
  if (!layout.isTile(tile) || layout.rowBlocks != 1)
    return op.emitOpError() << "expected a tile of " << 16 * layout.warps << " rows but got "
                            << tile;
  constexpr int64_t kVector = 4, kGroup = 32 * kVector;
  auto source = cast<MemRefType>(op.getSource().getType());
  int64_t columns = tile.getDimSize(1), rank = source.getRank();
  // The element index is relative to the tile's first element, over all its rows.
  Value warp = arith::DivUIOp::create(b, loc, program.getThread(), index(32));
  SmallVector<Value> at(op.getIndices());
  at[rank - 2] = mul(at[rank - 2], tile.getDimSize(0));
  auto vector = VectorType::get({adjacent}, b.getF32Type());
  SmallVector<Value> elements;
  for (int64_t part = 0; part < parts; ++part)
    for (int64_t run = 0; run < groups * kVector / adjacent; ++run) {
      Value element = add(add(mul(warp, groups * kGroup), mul(lane, adjacent)),
                          part * layout.warps * groups * kGroup + run * 32 * adjacent);
      SmallVector<Value> place(at);
      place[rank - 2] =
          add(at[rank - 2], arith::DivUIOp::create(b, loc, element, index(columns)).getResult());
      place[rank - 1] = arith::RemUIOp::create(b, loc, element, index(columns));
      auto loaded = vector::LoadOp::create(b, loc, vector, op.getSource(), place,
                                           /*nontemporal=*/false, llvm::Align(4 * adjacent));
      auto split = vector::ToElementsOp::create(b, loc, loaded);
      elements.append(split->result_begin(), split->result_end());
    }
  values[op.getTile()] = vector::FromElementsOp::create(b, loc, layout.threadType(tile), elements);
  return success();
}
