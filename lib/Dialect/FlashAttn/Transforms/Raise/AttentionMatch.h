//===- AttentionMatch.h - attention among tensor ops ------------*- C++ -*-===//

#ifndef LIB_DIALECT_FLASHATTN_TRANSFORMS_RAISE_ATTENTIONMATCH_H
#define LIB_DIALECT_FLASHATTN_TRANSFORMS_RAISE_ATTENTIONMATCH_H

#include "TensorExpr.h"
#include "flashattn/Dialect/FlashAttn/IR/FlashAttn.h"

namespace mlir::flashattn {

/// Why nearly matching ops are not raised: an op, and what was expected and found there.
struct NearMiss {
  Operation *op = nullptr;
  std::string expected, found;
};

/// A summand of a score: `element` times `factor`.
struct Term {
  Element *element;
  double factor;
};

/// A condition that shows or hides scores: an i1 for each pair, or a float that is 0 for visible
/// pairs.
struct Condition {
  Element *value;
  /// Whether pairs are visible if `value` is true.
  bool shows;
  /// Whether hidden scores are finite. A row without a visible key then has equal probabilities.
  bool isFinite;
  /// The bias that is equivalent to the condition, if there is one.
  std::optional<Term> bias;
  /// Whether the probabilities of hidden pairs are set to 0 after the softmax.
  bool isGuarded = false;
};

/// A factor of all scores that is only known at run time, including its sign.
struct RunTimeFactor {
  Element *value;
  bool divides;
  /// Whether scores are capped before they are multiplied by the factor.
  bool isBehindCap;
};

/// A factor that is common to the scores of a query, or of a key.
struct OperandFactor {
  Element *value;
  bool divides, isOfKeys;
  /// The multiplication or division by `value`.
  Element *product;
};

/// The digits (variables) that index each dimension of the operands, most significant first.
struct Dimensions {
  SmallVector<unsigned> batch, head, group, query, key, inner, value;
};

/// A matched attention: elements of its operands at the indices of one element of the result.
struct AttentionMatch {
  /// The value that the op replaces, at `indices`.
  Value result;
  SmallVector<AffineExpr> indices;
  /// The two products: of probabilities and values, and of queries and keys.
  Operation *output = nullptr, *scores = nullptr;
  Element *q = nullptr, *k = nullptr, *v = nullptr;
  AffineExpr key, inner;
  double scale = 1;
  SmallVector<RunTimeFactor> factors; ///< in addition to `scale`
  SmallVector<OperandFactor> operandFactors;
  std::optional<double> softcap;
  SmallVector<Term> biases;
  SmallVector<Condition> conditions;
  Element *sink = nullptr;
  /// The divisor of the probabilities, and a value that is the log-sum-exp at `lseIndices`.
  Element *sum = nullptr;
  Value lse;
  SmallVector<AffineExpr> lseIndices;
  Dimensions dims;
};

/// Returns the attention whose second product is `op`, if no other op reads its scores or
/// probabilities. Otherwise returns nullopt, and sets `miss` to the reason if `op` nearly matches.
std::optional<AttentionMatch> matchAttention(TensorExprs &exprs, linalg::LinalgOp op,
                                             NearMiss &miss);

/// The conditions of a match as a mask of the op (null: every pair is visible) and an alignment of
/// queries and keys, as far as they are sets. All others are in `others` or `biases`.
struct RaisedMask {
  /// What a symbol of the mask has a value for.
  enum SymbolKind { PerSequence, PerQuery, PerKey, NumSymbolKinds };

  Attribute mask;
  Align align = Align::BottomRight;
  /// Booleans, and whether pairs are visible if they are true.
  SmallVector<std::pair<Element *, bool>> others;
  Element *offset = nullptr;  ///< position of query 0
  Element *lengths = nullptr; ///< number of keys of each batch
  /// The values of the mask's symbols after nq and nk, as i32, in their order.
  std::array<SmallVector<Element *, 2>, NumSymbolKinds> symbols;
  SmallVector<Term> biases;   ///< conditions that remain biases
  bool mayHideRows = false;   ///< whether data may hide whole rows by a finite number
};
/// Returns the mask of `match`. Returns nullopt, and sets `miss`, if a row with finite hidden
/// scores sees no key, independently of data.
std::optional<RaisedMask> raiseMask(TensorExprs &exprs, const AttentionMatch &match,
                                    NearMiss &miss);

/// Replaces `match.result` by the op. Returns false, without a change, if the operands cannot be
/// converted to the form of the op; `miss` is set to the reason.
bool emitAttention(RewriterBase &rewriter, TensorExprs &exprs, const AttentionMatch &match,
                   const RaisedMask &mask, NearMiss &miss);

/// Returns the product of the extents of `digits`.
int64_t getExtent(TensorExprs &exprs, ArrayRef<unsigned> digits);

} // namespace mlir::flashattn

#endif // LIB_DIALECT_FLASHATTN_TRANSFORMS_RAISE_ATTENTIONMATCH_H
