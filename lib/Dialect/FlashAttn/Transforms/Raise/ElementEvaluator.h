//===- ElementEvaluator.h - evaluation of elements --------------*- C++ -*-===//

#ifndef LIB_DIALECT_FLASHATTN_TRANSFORMS_RAISE_ELEMENTEVALUATOR_H
#define LIB_DIALECT_FLASHATTN_TRANSFORMS_RAISE_ELEMENTEVALUATOR_H

#include "TensorExpr.h"

namespace mlir::flashattn {

/// A number of some type: a signed integer or a float.
union Number {
  int64_t integer;
  double real;
};

/// Evaluates an element with the semantics of its ops: integers wrap and floats round.
class ElementEvaluator {
public:
  /// Returns false if `root` has parts other than constants, indices, `given` and supported ops.
  bool prepare(TensorExprs &exprs, Element *root, ArrayRef<Element *> given = {});
  /// Returns the value of `root` for these values of `variables` and of the given elements.
  Number run(ArrayRef<int64_t> variables, ArrayRef<Number> given = {});
  /// Returns the number of parts that `run` computes.
  size_t getNumParts() const { return parts.size(); }

private:
  enum class Code : uint8_t;
  struct Part {
    Code code;
    Type type, source; ///< of the result, and of the first operand
    int64_t immediate = 0;
    std::array<unsigned, 3> operands = {};
    SmallVector<AffineExpr, 4> indices;
    SmallVector<int64_t, 4> strides;
    std::vector<Number> numbers;
  };
  static Code getCode(StringRef name);
  static Number compute(const Part &part, Number a, Number b, Number c);
  std::optional<unsigned> add(TensorExprs &exprs, Element *element);
  bool addConstants(TensorExprs &exprs, Element *load, Part &part);

  std::vector<Part> parts;
  std::vector<Number> values;
  llvm::DenseMap<Element *, unsigned> known;
};

/// Returns the numbers of a constant tensor; empty if they are not known.
std::vector<Number> readNumbers(Attribute constant);

/// Converts a number of type `type` to a double.
double toDouble(Number number, Type type);

/// Rounds `x` to the float type `type`.
double roundTo(Type type, double x);

/// The values that an element takes, as a function of leaves with two possible values each.
struct ValueTable {
  struct Leaf {
    Element *element;
    std::array<double, 2> values; ///< 0 and 1 for an i1
  };
  SmallVector<Leaf, 4> leaves;
  /// Indexed by the choices of the leaves as bits; the first leaf is the lowest bit.
  SmallVector<double> values;
};
std::optional<ValueTable> tabulate(TensorExprs &exprs, Element *element);

} // namespace mlir::flashattn

#endif // LIB_DIALECT_FLASHATTN_TRANSFORMS_RAISE_ELEMENTEVALUATOR_H
