//===- TileValues.h - how the CPU holds the values of a program --*- C++ -*-===//
//
// The M rows of a tile lie along the lanes of a vector<M>; its columns lie one after
// the other in memory.
//
//   vector<M>, vector<Mx1>      row values       one SSA value vector<M>
//   vector<N>, vector<1xN>      column values    a scalar, made for the column at hand
//   vector<MxN>                 tile values      a buffer memref<NxM>, or made for the
//                                                column at hand (constants, broadcasts)
//
//===----------------------------------------------------------------------===//

#ifndef FLASHATTN_LIB_CONVERSION_FLASHATTNTOCPU_TILEVALUES_H
#define FLASHATTN_LIB_CONVERSION_FLASHATTNTOCPU_TILEVALUES_H

#include "Scratch.h"
#include "mlir/Dialect/Vector/IR/VectorOps.h"
#include "mlir/IR/IRMapping.h"

namespace mlir::flashattn::cpu {

enum class Holding { Scalar, Row, Column, Tile, Other };

/// One column of all tiles: its index, and what has been made for it so far.
struct ColumnPoint {
  explicit ColumnPoint(Value column) : column(column) {}
  Value column;                      ///< index
  DenseMap<Value, Value> lanes;      ///< tile value to its column, vector<M>
  DenseMap<Value, Value> scalars;    ///< column value to its element
};

/// What every value of the tile program became. Functions that make a value return null
/// after an error at the op that they do not know.
class TileValues {
public:
  TileValues(OpBuilder &b, ScratchPool &scratch, IRMapping &mapping, int64_t rows)
      : b(b), scratch(scratch), mapping(mapping), rows(rows) {}

  int64_t getRows() const { return rows; }
  Holding classify(Type type) const;
  Holding classify(Value value) const { return classify(value.getType()); }
  /// vector<M> of the elements of `type`.
  VectorType getLaneType(Type type) const;
  /// vector<M> for a row value's type; scalars as they are.
  Type getHeldType(Type type) const;

  void map(Value value, Value held) { mapping.map(value, held); }
  /// A scalar or a row value.
  Value get(Value value);

  /// Column `point` of a tile value, as vector<M>.
  Value at(Value tile, ColumnPoint &point);
  /// Writes `lanes` as column `column` of `buffer`.
  void store(Value lanes, Value buffer, Value column);

  /// A buffer for values of the tile's type.
  Value allocate(Location loc, Value tile);
  void setBuffer(Value tile, Value buffer) { buffers[tile] = buffer; }
  /// The tile's buffer, or null where it has none.
  Value getBuffer(Value tile) const { return buffers.lookup(tile); }
  /// The tile's buffer; fills one first where the tile has none.
  Value materialize(Value tile);
  /// Writes all columns of `tile` to `buffer`.
  LogicalResult copy(Value tile, Value buffer);

  /// A clone of a single-result elementwise op on other operands.
  Value cloneElementwise(Operation *op, ValueRange operands, Type resultType);

  OpBuilder &b;
  ScratchPool &scratch;

private:
  Value elementAt(Value columnValue, ColumnPoint &point);

  IRMapping &mapping;
  int64_t rows;
  DenseMap<Value, Value> buffers;
};

/// Whether `op` has one result that is computed element by element from its operands.
bool isElementwise(Operation *op);

/// Whether `tile` depends on no stored tile and is cheap, so that it is made again at each
/// use: masks, which are integers computed from row and column indices.
bool isRecomputed(Value tile);

/// Whether the elementwise `op` only scales or fills the accumulator of a contraction,
/// which then computes it as it loads its accumulators.
bool isFoldedIntoContraction(Operation *op);

/// Whether no op at or after `next`, which is in the block that defines `tile`, reads it.
bool isDeadAt(Value tile, Operation *next);

/// for (column = 0; column < columns; column += step) body(column)
void buildColumnLoop(OpBuilder &b, Location loc, int64_t columns, int64_t step,
                     function_ref<void(Value)> body);

} // namespace mlir::flashattn::cpu

#endif // FLASHATTN_LIB_CONVERSION_FLASHATTNTOCPU_TILEVALUES_H
