//===- TensorExpr.h - what an element of a tensor is made of -----*- C++ -*-===//

#ifndef LIB_DIALECT_FLASHATTN_TRANSFORMS_RAISE_TENSOREXPR_H
#define LIB_DIALECT_FLASHATTN_TRANSFORMS_RAISE_TENSOREXPR_H

#include "mlir/Dialect/Linalg/IR/Linalg.h"
#include "mlir/Dialect/Tensor/IR/Tensor.h"
#include "mlir/IR/AffineExpr.h"
#include "mlir/IR/BuiltinAttributes.h"
#include "llvm/ADT/SetVector.h"
#include <deque>

namespace mlir::flashattn {

/// What one element of a tensor is, at indices that are affine in variables.
struct Element {
  enum class Kind {
    Load,   ///< an element of `value` at `indices`, of which nothing more is known yet
    Reduce, ///< the same, where the op that makes `value` reduces with the op `name`
    Const,  ///< `constant`: a float, an i1 or an integer that is no index
    Index,  ///< the integer `indices[0]`
    Scalar, ///< the scalar `value`, from outside
    Op      ///< `name` applied to `operands`; `op` has the attributes, where it has any
  };
  Kind kind;
  Type type;
  Value value;
  SmallVector<AffineExpr, 4> indices;
  /// Of a load: the sizes of `value`, more of which may be known than its type says.
  SmallVector<int64_t, 4> shape;
  Attribute constant;
  Operation *op = nullptr;
  StringRef name;
  SmallVector<Element *, 3> operands;

  bool is(StringRef opName) const { return kind == Kind::Op && name == opName; }
  /// Whether it only rounds or extends a float.
  bool isFloatCast() const { return is("arith.extf") || is("arith.truncf"); }
};

/// Whether `holds` is true of `root` and of all that it is made of, operands in their order; asked
/// once of each, up to the first of which it is not.
bool allParts(Element *root, llvm::function_ref<bool(Element *)> holds);

/// Elements of tensors, taken apart op by op on request. What a view, a copy or a broadcast does
/// shows in the indices alone; a variable that a reshape cuts is replaced by its digits.
class TensorExprs {
public:
  /// Indices lie below this, and above its negative, so that their sums and products do not wrap.
  static constexpr int64_t mostIndex = int64_t(1) << 31;

  explicit TensorExprs(MLIRContext *context) : context(context) {}

  /// A variable from 0 to `extent`, exclusive, which may be dynamic; 0 where that is 1.
  AffineExpr makeVariable(int64_t extent);
  /// `expr` in terms of the variables that are left, simplified by their ranges.
  AffineExpr simplify(AffineExpr expr);
  /// From now on `variable` stands for `expr`. False where `variable` is none.
  bool replaceVariable(AffineExpr variable, AffineExpr expr);
  /// Cuts variables until no division or remainder is left in `expr`; the rest stays.
  AffineExpr cutDigits(AffineExpr expr);
  int64_t getExtent(unsigned variable) const { return extents[variable]; }
  /// The smallest and largest value of `expr`, where lengths that are not known are at most
  /// `unknown`, and symbols no further from 0.
  std::pair<std::optional<int64_t>, std::optional<int64_t>>
  getRange(AffineExpr expr, std::optional<int64_t> unknown = std::nullopt);
  /// The variables in `expr`, simplified.
  void collectVariables(AffineExpr expr, llvm::SmallSetVector<unsigned, 8> &variables);

  /// The leaf that a symbol of an index stands for: an integer that is the same everywhere.
  Element *getSymbol(unsigned position) const { return symbols[position]; }

  Element *makeLoad(Value value, ArrayRef<AffineExpr> indices, ArrayRef<int64_t> shape = {});
  Element *makeConstant(Attribute constant, Type type);
  Element *makeIndex(AffineExpr expr, Type type);
  Element *makeNumber(Attribute number, Type type);
  Element *makeOp(StringRef name, Type type, ArrayRef<Element *> operands, Operation *op = nullptr);

  /// What a load is made of, one op further; null where that is not known.
  Element *expand(Element *load);
  /// `element` with its loads taken apart until an op, a reduction or a leaf shows.
  Element *resolve(Element *element);
  /// `element` taken apart all the way; integer arithmetic on indices becomes an index.
  Element *force(Element *element);
  /// Takes all of `element` apart, up to reductions, so that its ops count as visited.
  void touch(Element *element);
  /// What is reduced of a reduction, at `indices` of the loops that reduce.
  Element *getReduced(Element *reduction, ArrayRef<AffineExpr> indices);
  /// The sizes of the loops over which a reduction reduces.
  SmallVector<int64_t> getReducedSizes(Element *reduction);
  /// The one number that a float element is, whatever the indices.
  std::optional<double> getConstant(Element *element);
  /// Whether both are the same but for roundings.
  bool areEqual(Element *a, Element *b);
  /// Whether the indices of `load` are sums of variables times strides, with nothing left to cut.
  bool isLinear(Element *load);
  /// Whether the value differs along one of `variables`.
  bool dependsOn(Element *element, ArrayRef<AffineExpr> variables);

  /// Ops that were taken apart.
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
  /// Elements that may still be made: what bounds the work for each candidate.
  unsigned budget = 20000;
};

/// The integers of a constant tensor; none where they are not known.
std::vector<int64_t> readIntegers(Attribute value);

} // namespace mlir::flashattn

#endif // LIB_DIALECT_FLASHATTN_TRANSFORMS_RAISE_TENSOREXPR_H
