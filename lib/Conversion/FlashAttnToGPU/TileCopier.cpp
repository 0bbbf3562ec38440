//===- TileCopier.cpp -----------------------------------------------------===//

#include "TileCopier.h"
#include "TileLayout.h"
#include "flashattn/Dialect/FlashAttn/Program/NarrowElements.h"
#include "flashattn/Dialect/FlashAttn/Program/TileLoops.h"
#include "mlir/Dialect/MemRef/IR/MemRef.h"
#include "mlir/Dialect/NVGPU/IR/NVGPUDialect.h"
#include "mlir/Dialect/SCF/IR/SCF.h"

using namespace mlir;
using namespace mlir::flashattn;

/// Returns the number of bytes of an element that `load` reads.
static int64_t getStoredBytes(LoadTileOp load) {
  return load.getMemRefType().getElementTypeBitWidth() / 8;
}

/// Returns row `row` of a tile. With `inRow`, the indices are those of chunk `inRow` of the row, of
/// `chunk` elements.
TileCopier::Row TileCopier::findRow(const Copy &copy, Value row, Value inRow, Value chunk) {
  LoadTileOp load = copy.load;
  unsigned rowDim = *load.getRowDim();
  Row found{copy.origin, Value()};
  Value &number = found.indices[rowDim];
  number = arith::AddIOp::create(b, loc, number, row);
  if (inRow)
    found.indices.back() = add(found.indices.back(), arith::MulIOp::create(b, loc, inRow, chunk));
  auto require = [&](Value condition) {
    found.exists = found.exists ? arith::AndIOp::create(b, loc, found.exists, condition).getResult()
                                : condition;
  };
  if (!copy.inBounds[0]) {
    require(less(number, load.getEndRow() ? load.getEndRow() : dim(copy.source, rowDim)));
    if (Value first = load.getBeginRow())
      require(arith::CmpIOp::create(b, loc, arith::CmpIPredicate::sge, number, first));
  }
  if (std::optional<PageMap> pages = load.getPages()) {
    PagePlace place = findPage(b, loc, *pages, toI32(number));
    require(place.exists);
    number = toIndex(place.row);
    found.indices.front() = toIndex(loadPage(b, loc, *pages, place.number));
  }
  return found;
}

/// Copies 16-byte chunk `inRow` of row `row`. Rows past the end are set to 0 and not read (A7).
void TileCopier::copyChunk(const Copy &copy, Value buffer, Value stage, Value row, Value inRow) {
  LoadTileOp load = copy.load;
  Value source = copy.source;
  VectorType tile = load.getTileType();
  SharedTile layout{tile.getDimSize(1), getStoredBytes(load)};
  int64_t width = load.getMemRefType().getShape().back();
  // Whether a chunk is either entirely inside a row or entirely past its end.
  bool wholeChunks =
      copy.inBounds[1] || (!ShapedType::isDynamic(width) && width % layout.chunkElements() == 0);
  Value rowElements;
  if (!copy.inBounds[1])
    rowElements = dim(source, load.getMemRefType().getRank() - 1);
  Value chunkElements = index(layout.chunkElements());
  auto [from, inBounds] = findRow(copy, row, inRow, chunkElements);
  auto withColumn = [&](Value rowInBounds, Value column) -> Value {
    Value inside = less(column, rowElements);
    return rowInBounds ? arith::AndIOp::create(b, loc, rowInBounds, inside).getResult() : inside;
  };
  if (rowElements && wholeChunks)
    inBounds = withColumn(inBounds, from.back());
  Value to = arith::MulIOp::create(b, loc, layout.swizzle(b, loc, row, inRow), chunkElements);
  if (hasAlignedRows(source) && wholeChunks) {
    Value count;
    if (inBounds)
      count = arith::SelectOp::create(b, loc, inBounds, chunkElements, index(0));
    nvgpu::DeviceAsyncCopyOp::create(b, loc, nvgpu::DeviceAsyncTokenType::get(b.getContext()),
                                     buffer, ValueRange{stage, row, to}, source, from,
                                     b.getIndexAttr(layout.chunkElements()), count,
                                     b.getUnitAttr());
    return;
  }
  // Rows with unaligned starts are copied element by element.
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
            scf::YieldOp::create(nested, l,
                                 ValueRange{memref::LoadOp::create(nested, l, source, at)});
          },
          [&](OpBuilder &nested, Location l) {
            TypedAttr zero = nested.getZeroAttr(load.getMemRefType().getElementType());
            scf::YieldOp::create(nested, l, ValueRange{arith::ConstantOp::create(nested, l, zero)});
          });
      value = guarded.getResult(0);
    } else {
      value = memref::LoadOp::create(b, loc, source, at);
    }
    memref::StoreOp::create(b, loc, value, buffer,
                            ValueRange{stage, row, arith::AddIOp::create(b, loc, to, index(e))});
  }
}

/// Deals the 16-byte chunks of a tile out to the threads, always in the same way.
void TileCopier::forEachChunk(VectorType tile, int64_t elementBytes,
                              function_ref<void(Value row, Value inRow)> emitChunk) {
  SharedTile layout{tile.getDimSize(1), elementBytes};
  int64_t perRow = layout.chunksPerRow();
  int64_t chunks = tile.getDimSize(0) * perRow;
  // If the number of threads is a multiple of the chunks per row, a thread's column stays the same.
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
      emitChunk(row, inRow);
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

/// Copies a tile to `buffer[stage]`.
void TileCopier::copyTile(const Copy &copy, Value buffer, Value stage) {
  forEachChunk(LoadTileOp(copy.load).getTileType(), getStoredBytes(copy.load),
               [&](Value row, Value inRow) { copyChunk(copy, buffer, stage, row, inRow); });
}

/// Converts a narrow tile to stage `stage` of its buffer (F1). Each thread converts the chunks that
/// it has copied, and so need not wait for other threads.
void TileCopier::convertTile(const Copy &copy, const Vectors &vectors, Value stage) {
  LoadTileOp load = copy.load;
  Value scales = copy.scales;
  VectorType tile = load.getTileType();
  SharedTile from{tile.getDimSize(1), getStoredBytes(load)},
      to{tile.getDimSize(1), tile.getElementTypeBitWidth() / 8};
  int64_t count = from.chunkElements(), perChunk = to.chunkElements(),
          columns = load.getMemRefType().getShape().back();
  forEachChunk(tile, getStoredBytes(load), [&](Value row, Value inRow) {
    Value column = arith::MulIOp::create(b, loc, inRow, index(count));
    Value scale;
    if (scales) {
      auto load = [&](OpBuilder &builder, const Row &at) {
        return loadTileScale(builder, loc, scales, at.indices, column, columns);
      };
      Row at = findRow(copy, row);
      if (!at.exists) {
        scale = load(b, at);
      } else {
        auto guarded = scf::IfOp::create(
            b, loc, at.exists,
            [&](OpBuilder &nested, Location l) {
              scf::YieldOp::create(nested, l, load(nested, at));
            },
            [&](OpBuilder &nested, Location l) {
              Value none = arith::ConstantOp::create(nested, l, nested.getF32FloatAttr(0));
              scf::YieldOp::create(nested, l, none);
            });
        scale = guarded.getResult(0);
      }
    }
    Value parts = index(count / perChunk);
    auto getPart = [&](Value chunk, int64_t part) -> Value {
      return arith::AddIOp::create(b, loc, arith::MulIOp::create(b, loc, chunk, parts),
                                   index(part));
    };
    Value place = from.swizzle(b, loc, row, inRow);
    // The vectors of both tiles have as many elements as a chunk of the converted tile.
    Value perRow = index(to.chunksPerRow()), first = arith::MulIOp::create(b, loc, row, perRow);
    Value ofStage =
        arith::MulIOp::create(b, loc, stage, index(to.chunksPerRow() * tile.getDimSize(0)));
    SmallVector<Value> sources, targets, factors;
    for (int64_t part = 0; part < count / perChunk; ++part) {
      sources.push_back(arith::AddIOp::create(b, loc, first, getPart(place, part)));
      Value at =
          arith::AddIOp::create(b, loc, first, to.swizzle(b, loc, row, getPart(inRow, part)));
      targets.push_back(arith::AddIOp::create(b, loc, at, ofStage));
      if (scale)
        factors.push_back(scale);
    }
    ConvertElementsOp::create(b, loc, vectors.from, sources, factors, vectors.to, targets);
  });
}
