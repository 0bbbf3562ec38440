//===- AttentionMatch.h - attention among tensor ops -------------*- C++ -*-===//

#ifndef LIB_DIALECT_FLASHATTN_TRANSFORMS_RAISE_ATTENTIONMATCH_H
#define LIB_DIALECT_FLASHATTN_TRANSFORMS_RAISE_ATTENTIONMATCH_H

#include "TensorExpr.h"
#include "flashattn/Dialect/FlashAttn/IR/FlashAttn.h"

namespace mlir::flashattn {

/// What stood in the way: an op, what was expected there and what was found.
struct NearMiss {
  Operation *op = nullptr;
  std::string expected, found;
};

/// What is added to a score: `element` times `factor`.
struct Term {
  Element *element;
  double factor;
};

/// Where scores are shown or hidden: by an i1 of each pair, or by a float that is 0 where they are
/// shown.
struct Condition {
  Element *value;
  /// Whether pairs are visible where `value` is true.
  bool shows;
  /// Whether hidden scores are a finite number: a row without a visible key then has equal weights.
  bool isFinite;
  /// The bias that says the same, where there is one.
  std::optional<Term> bias;
  /// Whether weights of hidden pairs are set to 0 behind the softmax.
  bool isGuarded = false;
};

/// A factor of all scores that is known at run time alone, and of which sign is not.
struct RunTimeFactor {
  Element *value;
  bool divides;
  /// Whether scores are capped before they are multiplied.
  bool isBehindCap;
};

/// A factor that the scores of a query, or of a key, have in common.
struct OperandFactor {
  Element *value;
  bool divides, isOfKeys;
  /// What multiplies or divides by it.
  Element *product;
};

/// Digits of the variables that each dimension of the operands counts, most significant first.
struct Dimensions {
  SmallVector<unsigned> batch, head, group, query, key, inner, value;
};

/// An attention, as elements of its operands at the indices of one element of the result.
struct AttentionMatch {
  /// The value that the op gives, at `indices`.
  Value result;
  SmallVector<AffineExpr> indices;
  /// The products: of probabilities and values, and of queries and keys.
  Operation *output = nullptr, *scores = nullptr;
  Element *q = nullptr, *k = nullptr, *v = nullptr;
  AffineExpr key, inner;
  double scale = 1;
  SmallVector<RunTimeFactor> factors; ///< beside `scale`
  SmallVector<OperandFactor> operandFactors;
  std::optional<double> softcap;
  SmallVector<Term> biases;
  SmallVector<Condition> conditions;
  Element *sink = nullptr;
  /// What probabilities are divided by, and a value that is the log-sum-exp at `lseIndices`.
  Element *sum = nullptr;
  Value lse;
  SmallVector<AffineExpr> lseIndices;
  Dimensions dims;
};

/// The attention whose second product is `op`, of which nothing else reads scores or probabilities;
/// none where it is not, and `miss` says why where it nearly is.
std::optional<AttentionMatch> matchAttention(TensorExprs &exprs, linalg::LinalgOp op,
                                             NearMiss &miss);

/// What conditions show, as far as it is a set: the mask, null where every pair is visible, and how
/// queries and keys are aligned. Conditions that are none are left in `others`, or in `biases`.
/// None where a row of hidden scores that are finite would see nothing, if that is not up to the
/// data.
struct RaisedMask {
  Attribute mask;
  Align align = Align::BottomRight;
  /// Booleans, and whether pairs are visible where they are true.
  SmallVector<std::pair<Element *, bool>> others;
  Element *offset = nullptr;  ///< position of query 0
  Element *lengths = nullptr; ///< number of keys of each batch
  SmallVector<Term> biases;   ///< conditions that are biases after all
  bool mayHideRows = false;   ///< whether data may hide whole rows by a finite number
};
std::optional<RaisedMask> raiseMask(TensorExprs &exprs, const AttentionMatch &match,
                                    NearMiss &miss);

/// Replaces `match.result`. False, and nothing is changed, where the operands cannot be brought to
/// the op's form; `miss` says why.
bool emitAttention(RewriterBase &rewriter, TensorExprs &exprs, const AttentionMatch &match,
                   const RaisedMask &mask, NearMiss &miss);

/// Extent of a list of digits.
int64_t getExtent(TensorExprs &exprs, ArrayRef<unsigned> digits);

} // namespace mlir::flashattn

#endif // LIB_DIALECT_FLASHATTN_TRANSFORMS_RAISE_ATTENTIONMATCH_H
