//===- TensorExpr.h - elements of tensors as expressions --------*- C++ -*-===//

#ifndef LIB_DIALECT_FLASHATTN_TRANSFORMS_RAISE_TENSOREXPR_H
#define LIB_DIALECT_FLASHATTN_TRANSFORMS_RAISE_TENSOREXPR_H

#include "mlir/Dialect/Linalg/IR/Linalg.h"
#include "mlir/Dialect/Tensor/IR/Tensor.h"
#include "mlir/IR/AffineExpr.h"
#include "mlir/IR/BuiltinAttributes.h"
#include "llvm/ADT/SetVector.h"
#include <deque>

namespace mlir::flashattn {

/// An element of a tensor, at indices that are affine in variables.
struct Element {
  enum class Kind {
    Load,   ///< an element of `value` at `indices`, not expanded yet
    Reduce, ///< such an element, if the op that defines `value` reduces with the op `name`
    Const,  ///< `constant`: a float, an i1, or an integer that is not an index
    Index,  ///< the integer `indices[0]`
    Scalar, ///< the scalar `value`, defined outside
    Op      ///< `name` applied to `operands`; `op` has the attributes, if there are any
  };
  Kind kind;
  Type type;
  Value value;
  SmallVector<AffineExpr, 4> indices;
  /// For a load: the sizes of `value`, of which more may be known than from its type.
  SmallVector<int64_t, 4> shape;
  Attribute constant;
  Operation *op = nullptr;
  StringRef name;
  SmallVector<Element *, 3> operands;

  bool is(StringRef opName) const { return kind == Kind::Op && name == opName; }
  /// Whether the element only rounds or extends a float.
  bool isFloatCast() const { return is("arith.extf") || is("arith.truncf"); }
};

/// Whether `holds` is true for `root` and all of its transitive operands, visited in their order
/// and once each, up to the first element for which `holds` is false.
bool allParts(Element *root, llvm::function_ref<bool(Element *)> holds);

/// Elements of tensors, expanded op by op on request. Views, copies and broadcasts only change the
/// indices; a variable that a reshape splits is replaced by its digits.
class TensorExprs {
public:
  /// Bound on the absolute value of indices, so that their sums and products do not wrap.
  static constexpr int64_t mostIndex = int64_t(1) << 31;

  explicit TensorExprs(MLIRContext *context) : context(context) {}

  /// Creates a variable from 0 to `extent`, exclusive, maybe dynamic. Returns 0 if `extent` is 1.
  AffineExpr makeVariable(int64_t extent);
  /// Returns `expr` in terms of the remaining variables, simplified by their ranges.
  AffineExpr simplify(AffineExpr expr);
  /// Replaces `variable` by `expr` from now on. Returns false if this is not possible.
  bool replaceVariable(AffineExpr variable, AffineExpr expr);
  /// Splits variables to remove divisions and remainders from `expr`, and returns the result.
  AffineExpr cutDigits(AffineExpr expr);
  int64_t getExtent(unsigned variable) const { return extents[variable]; }
  /// Returns the smallest and the largest value of `expr`, if known. Unknown lengths, and absolute
  /// values of symbols, are assumed to be at most `unknown`.
  std::pair<std::optional<int64_t>, std::optional<int64_t>>
  getRange(AffineExpr expr, std::optional<int64_t> unknown = std::nullopt);
  /// Adds the variables in `expr`, after simplification, to `variables`.
  void collectVariables(AffineExpr expr, llvm::SmallSetVector<unsigned, 8> &variables);

  /// Returns the leaf that a symbol of an index stands for: an integer that is the same everywhere.
  Element *getSymbol(unsigned position) const { return symbols[position]; }

  Element *makeLoad(Value value, ArrayRef<AffineExpr> indices, ArrayRef<int64_t> shape = {});
  Element *makeConstant(Attribute constant, Type type);
  Element *makeIndex(AffineExpr expr, Type type);
  Element *makeNumber(Attribute number, Type type);
  Element *makeOp(StringRef name, Type type, ArrayRef<Element *> operands, Operation *op = nullptr);

  /// Expands a load by one op. Returns null if this is not possible.
  Element *expand(Element *load);
  /// Expands the loads of `element` until an op, a reduction or a leaf is reached.
  Element *resolve(Element *element);
  /// Expands `element` completely. Integer arithmetic on indices becomes an index.
  Element *force(Element *element);
  /// Expands all of `element`, up to reductions, so that its ops count as visited.
  void touch(Element *element);
  /// Returns the element that a reduction reduces, at `indices` of the reduction loops.
  Element *getReduced(Element *reduction, ArrayRef<AffineExpr> indices);
  /// Returns the sizes of the reduction loops.
  SmallVector<int64_t> getReducedSizes(Element *reduction);
  /// Returns the value of an element that is one number for all indices, and nullopt otherwise.
  std::optional<double> getConstant(Element *element);
  /// Whether both elements are the same except for rounding.
  bool areEqual(Element *a, Element *b);
  /// Whether the indices of `load` are sums of variables times strides, without divisions.
  bool isLinear(Element *load);
  /// Whether the value of `element` depends on one of `variables`.
  bool dependsOn(Element *element, ArrayRef<AffineExpr> variables);

  /// Returns the ops that were expanded.
  const llvm::SetVector<Operation *> &getVisited() const { return visited; }

private:
  friend class ElementBuilder;
  Element *create(Element::Kind kind, Type type);
  Element *expandUncached(Element *load);
  Element *expandLinalg(linalg::LinalgOp op, Element *load,
                        std::optional<ArrayRef<AffineExpr>> reduced);
  Element *expandSoftmax(linalg::SoftmaxOp op, Element *load);
  Element *expandReshape(Operation *op, Element *load);
  Element *expandReshapeBySizes(tensor::ReshapeOp op, Element *load);
  Element *expandSlice(Operation *op, Element *load);
  Element *expandConstant(Attribute value, Element *load);
  bool fits(AffineExpr expr, Type type);
  Element *findChosen(Element *element);
  Element *fold(Element *element);
  Element *nameSymbol(Element *element);
  bool isZero(Element *element);
  bool splitVariable(unsigned variable, int64_t stride);
  bool cutOnce(AffineExpr expr);
  std::optional<double> getConstant(Element *element, unsigned depth);

  MLIRContext *context;
  std::deque<Element> elements;
  SmallVector<int64_t> extents;
  SmallVector<AffineExpr> replacements;
  SmallVector<Element *> symbols;
  llvm::DenseMap<Element *, Element *> expanded, forced;
  llvm::DenseSet<std::pair<Element *, Element *>> equal;
  llvm::DenseSet<Element *> touched;
  llvm::SetVector<Operation *> visited;
  /// Number of elements that may still be created, which bounds the work for each candidate.
  unsigned budget = 20000;
};

/// Returns the integers of a constant tensor; empty if they are not known.
std::vector<int64_t> readIntegers(Attribute value);

} // namespace mlir::flashattn

#endif // LIB_DIALECT_FLASHATTN_TRANSFORMS_RAISE_TENSOREXPR_H
