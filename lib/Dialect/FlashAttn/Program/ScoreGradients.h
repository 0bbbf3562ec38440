//===- ScoreGradients.h - gradients of scores, in one place ------*- C++ -*-===//

#ifndef FLASHATTN_LIB_DIALECT_FLASHATTN_PROGRAM_SCOREGRADIENTS_H
#define FLASHATTN_LIB_DIALECT_FLASHATTN_PROGRAM_SCOREGRADIENTS_H

#include "Operands.h"
#include "Scores.h"

namespace mlir::flashattn {

/// What the gradients need of each query, f32, made once before them: B1's delta, and the
/// log-sum-exp as an exponent of 2.
class QuerySums : public TileBuilder {
public:
  /// Makes room for them and, in programs of their own, the sums.
  QuerySums(OpBuilder &b, AttentionBackwardOp op, const Operands &operands);
  void free() const;

  /// Of the schedule's rows, vector<M>, or of the columns of a tile, each of whose rows is the same.
  struct Loaded {
    Value exponent, delta;
  };
  Loaded loadRows(const ScorePlace &at) const;
  Loaded loadColumns(const ScorePlace &at) const;

private:
  void buildProgram(AttentionBackwardOp op, const Operands &operands);
  /// Where a value of `number` 0, the exponent, or 1, delta, is.
  SmallVector<Value> indicesOf(int64_t number, const ScorePlace &at) const;

  ScheduleAttr schedule;
  Value batches;
  Value buffer; ///< memref<2B x Hq x Nq x f32>: the exponents of all batches, and their deltas
};

/// P and dS of tiles (B1, B6, B7), with rows and columns as ScoreBuilder has them.
class ScoreGradientBuilder : public TileBuilder {
public:
  ScoreGradientBuilder(OpBuilder &b, AttentionBackwardOp op, TileAxis columns)
      : TileBuilder(b, op.getLoc()), scores(b, op, columns, RowPattern(), /*fullTilesKeep=*/false),
        factor(scores.getFactor()), dotType(op.getScheduleAttr().getDotType()) {}

  /// Each query of q times each key of k; and, of d_o and v, dP.
  Value multiply(Value q, Value k) const { return scores.multiply(q, k); }
  /// P, f32, inside of a loop over tiles. `derivative` is set to the scores'.
  Value buildWeights(Value products, const ScorePlace &at, const QuerySums::Loaded &sums,
                     ScoreDerivative &derivative) const;
  /// The gradient of the final scores, f32: what a bias has.
  Value buildFinal(Value weights, Value dP, const QuerySums::Loaded &sums,
                   const ScoreDerivative &derivative) const;
  /// What the gradient of the final scores is for the products before their scale.
  Value buildInner(Value final, const ScoreDerivative &derivative) const;
  /// An operand of the next product.
  Value toDotType(Value tile) const;

private:
  Value spread(Value sums, VectorType tile) const;

  ScoreBuilder scores;
  Factor factor;
  FloatType dotType;
};

} // namespace mlir::flashattn

#endif // FLASHATTN_LIB_DIALECT_FLASHATTN_PROGRAM_SCOREGRADIENTS_H
