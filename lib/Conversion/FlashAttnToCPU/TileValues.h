//===- TileValues.h - CPU form of a program's values ------------*- C++ -*-===//
//
// The M rows of a tile run along the lanes of a vector<M>. Its columns are consecutive in memory.
//
//   vector<M>, vector<Mx1>      row values       one SSA value vector<M>
//   vector<N>, vector<1xN>      column values    a scalar, computed for the current column
//   vector<MxN>                 tile values      a buffer memref<NxM>, or computed for the
//                                                current column (constants, broadcasts)
//
//===----------------------------------------------------------------------===//

#ifndef FLASHATTN_LIB_CONVERSION_FLASHATTNTOCPU_TILEVALUES_H
#define FLASHATTN_LIB_CONVERSION_FLASHATTNTOCPU_TILEVALUES_H

#include "Scratch.h"
#include "mlir/Dialect/Vector/IR/VectorOps.h"
#include "mlir/IR/IRMapping.h"

namespace mlir::flashattn::cpu {

enum class Holding { Scalar, Row, Column, Tile, Other };

/// One column of all tiles: its index, and the values computed for it so far.
struct ColumnPoint {
  explicit ColumnPoint(Value column) : column(column) {}
  Value column;                   ///< index
  DenseMap<Value, Value> lanes;   ///< tile value to its column, vector<M>
  DenseMap<Value, Value> scalars; ///< column value to its element
};

/// Maps values of the tile program to their CPU form. Functions that return a value return null
/// after an error at an op that they do not support.
class TileValues {
public:
  TileValues(OpBuilder &b, ScratchPool &scratch, IRMapping &mapping, int64_t rows)
      : b(b), scratch(scratch), mapping(mapping), rows(rows) {}

  int64_t getRows() const { return rows; }
  Holding classify(Type type) const;
  Holding classify(Value value) const { return classify(value.getType()); }
  /// Returns vector<M> with the element type of `type`.
  VectorType getLaneType(Type type) const;
  /// Returns vector<M> for the type of a row value, and other types unchanged.
  Type getHeldType(Type type) const;

  void map(Value value, Value held) { mapping.map(value, held); }
  /// Returns the CPU form of a scalar or row value.
  Value get(Value value);

  /// Returns column `point` of a tile value, as vector<M>.
  Value at(Value tile, ColumnPoint &point);
  /// Stores `lanes` as column `column` of `buffer`.
  void store(Value lanes, Value buffer, Value column);

  /// Allocates a buffer for a tile of this type.
  Value allocate(Location loc, Value tile);
  void setBuffer(Value tile, Value buffer) { buffers[tile] = buffer; }
  /// Returns the tile's buffer, or null if it has none.
  Value getBuffer(Value tile) const { return buffers.lookup(tile); }
  /// Returns the tile's buffer. If it has none, allocates and fills one.
  Value materialize(Value tile);
  /// Stores all columns of `tile` to `buffer`.
  LogicalResult copy(Value tile, Value buffer);

  /// Clones a single-result elementwise op with other operands.
  Value cloneElementwise(Operation *op, ValueRange operands, Type resultType);

  OpBuilder &b;
  ScratchPool &scratch;

private:
  Value elementAt(Value columnValue, ColumnPoint &point);

  IRMapping &mapping;
  int64_t rows;
  DenseMap<Value, Value> buffers;
};

/// Whether `op` has one result that is computed elementwise from its operands.
bool isElementwise(Operation *op);

/// Whether `tile` depends on no stored tile and is cheap to recompute at each use: masks, which are
/// integers computed from row and column indices.
bool isRecomputed(Value tile);

/// Whether the elementwise `op` only scales or fills the accumulator of a contraction. The
/// contraction then computes `op` when it loads its accumulators.
bool isFoldedIntoContraction(Operation *op);

/// Whether no op from `next` on, in the block that defines `tile`, reads `tile`.
bool isDeadAt(Value tile, Operation *next);

/// Builds: for (column = 0; column < columns; column += step) body(column)
void buildColumnLoop(OpBuilder &b, Location loc, int64_t columns, int64_t step,
                     function_ref<void(Value)> body);

} // namespace mlir::flashattn::cpu

#endif // FLASHATTN_LIB_CONVERSION_FLASHATTNTOCPU_TILEVALUES_H
