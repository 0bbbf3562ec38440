//===- ElementEvaluator.h - numbers that an element takes --------*- C++ -*-===//

#ifndef LIB_DIALECT_FLASHATTN_TRANSFORMS_RAISE_ELEMENTEVALUATOR_H
#define LIB_DIALECT_FLASHATTN_TRANSFORMS_RAISE_ELEMENTEVALUATOR_H

#include "TensorExpr.h"

namespace mlir::flashattn {

/// A number of some type: an integer with its sign, or a float.
union Number {
  int64_t integer;
  double real;
};

/// Computes an element as its ops do: integers wrap, floats round.
class ElementEvaluator {
public:
  /// False where `root` has parts that are neither constants, positions, `given`, nor made of such.
  bool prepare(TensorExprs &exprs, Element *root, ArrayRef<Element *> given = {});
  /// The value of `root` where `variables` and what was given have these values.
  Number run(ArrayRef<int64_t> variables, ArrayRef<Number> given = {});
  /// How many parts `run` computes.
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

/// Reads a constant tensor; empty where its numbers are not known.
std::vector<Number> readNumbers(Attribute constant);

/// A number as a float.
double toDouble(Number number, Type type);

/// `x` as a float of `type`.
double roundTo(Type type, double x);

/// The few values that an element takes, by parts that have one of two values each.
struct ValueTable {
  struct Leaf {
    Element *element;
    std::array<double, 2> values; ///< 0 and 1 of an i1
  };
  SmallVector<Leaf, 4> leaves;
  /// By the choices of the leaves as bits, the first one lowest.
  SmallVector<double> values;
};
std::optional<ValueTable> tabulate(TensorExprs &exprs, Element *element);

} // namespace mlir::flashattn

#endif // LIB_DIALECT_FLASHATTN_TRANSFORMS_RAISE_ELEMENTEVALUATOR_H
