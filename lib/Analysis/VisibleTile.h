//===- VisibleTile.h - builds the mask of a partial tile --------*- C++ -*-===//
//
// Values that depend on the queries alone are vector<Mx1>, and values that depend on the keys alone
// are vector<1xN>, or the transposes. The type thus shows a pass that distributes tiles to threads
// what an operand depends on, and every operation runs at the smallest shape that holds its result.
//
//===----------------------------------------------------------------------===//

#ifndef FLASHATTN_LIB_ANALYSIS_VISIBLETILE_H
#define FLASHATTN_LIB_ANALYSIS_VISIBLETILE_H

#include "flashattn/Analysis/MaskTiles.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Vector/IR/VectorOps.h"

namespace mlir::flashattn::masktile {

/// The base of a linear constraint is clamped to this magnitude before it is converted to 32 bits.
/// The queries and keys of a tile must add less than this.
constexpr int64_t kBaseLimit = int64_t(1) << 30;
constexpr int64_t kMaxNarrowCoefficient = int64_t(1) << 20;

/// A linear constraint over [p, k, nq, nk, further symbols, 1].
using Linear = SmallVector<int64_t, 5>;

/// The axes that a value depends on, which determine the shape at which it is computed.
struct Shape {
  bool queries = false, keys = false;
  bool operator==(const Shape &other) const {
    return queries == other.queries && keys == other.keys;
  }
  Shape join(const Shape &other) const { return {queries || other.queries, keys || other.keys}; }
};

struct Term {
  Value value; // null if nothing is emitted yet
  Shape shape;
};

/// The constraint base + rowFactor i + columnFactor j >= 0 for row i and column j of a tile. The
/// base is an i32, and the factors are index values.
struct Slot {
  Value base, rowFactor, columnFactor;
};

/// A 32-bit summand and the bounds of its elements. The value is null if the summand is 0.
struct Offset {
  Term term;
  int64_t least = 0, most = 0;
};

/// The value of an expression: base + queries + keys + pairs. The base is an index scalar. The
/// other summands are vectors that depend on the tile's queries, on its keys, or on both.
struct Sum {
  Value base;
  Offset queries, keys, pairs;
};

struct Constraint {
  AffineExpr expr;
  bool isEquality;
  std::optional<Linear> linear;
};

class MaskBuilder {
public:
  MaskBuilder(OpBuilder &builder, Location loc, Value p0, Value k0, ValueRange symbols, int64_t m,
              int64_t n, RowPattern pattern, TileAxis columns, TileAxis numbers)
      : builder(builder), loc(loc), operands{p0, k0}, m(m), n(n), pattern(pattern),
        columns(columns), numbers(numbers), keyExists(3 + symbols.size(), 0) {
    llvm::append_range(operands, symbols);
    keyExists[1] = -1; // k < nk
    keyExists[3] = 1;
    keyExists.back() = -1;
  }

  Value build(ArrayRef<IntegerSet> visible);

private:
  template <typename Op, typename... Args> Value make(Args &&...args) {
    return builder.createOrFold<Op>(loc, std::forward<Args>(args)...);
  }
  /// A constant of the scalar or vector type `type`.
  Value constant(Type type, int64_t value) {
    TypedAttr attr = builder.getIntegerAttr(getElementTypeOrSelf(type), value);
    if (auto vector = dyn_cast<VectorType>(type))
      attr = DenseElementsAttr::get(vector, cast<Attribute>(attr));
    return arith::ConstantOp::create(builder, loc, attr);
  }
  Type getType(Type element, Shape shape) {
    if (!shape.queries && !shape.keys)
      return element;
    int64_t sizes[] = {shape.queries ? m : 1, shape.keys ? n : 1};
    if (columns == TileAxis::Queries)
      std::swap(sizes[0], sizes[1]);
    return VectorType::get(sizes, element);
  }
  Value broadcast(Term term, Shape shape) {
    if (term.shape == shape)
      return term.value;
    return make<vector::BroadcastOp>(getType(getElementTypeOrSelf(term.value.getType()), shape),
                                     term.value);
  }
  template <typename Op> Term binary(Term a, Term b) {
    Shape shape = a.shape.join(b.shape);
    return {make<Op>(broadcast(a, shape), broadcast(b, shape)), shape};
  }
  template <typename Op> void combine(Term &a, Term b) { a = a.value ? binary<Op>(a, b) : b; }
  /// Returns the offsets of the tile's positions from p0, or of its keys from k0, in type
  /// `element`.
  Term step(bool queries, Type element);
  Term scaledStep(bool queries, int64_t factor);
  Term compare(arith::CmpIPredicate predicate, Term lhs, Term rhs);
  /// Returns lhs >= rhs or, for an equality, lhs == rhs.
  Term compare(bool isEquality, Term lhs, Term rhs);
  Term pick(Term condition, Term yes, Term no);

  /// Return the coefficient of `linear` along the axis of the limits, and along the axis `numbers`.
  int64_t ofLimits(const Linear &linear) const { return linear[areLimitsQueries() ? 0 : 1]; }
  int64_t ofNumbers(const Linear &linear) const { return linear[areLimitsQueries() ? 1 : 0]; }
  bool areLimitsQueries() const { return numbers == TileAxis::Keys; }
  /// Returns the base of a constraint as an i32. Clamping does not change the result of a test
  /// because the queries and keys of a tile together add less than kBaseLimit.
  Value clamp(Value base);
  /// Returns the base of `linear` plus its term along the axis of the limits, as i32; or the base
  /// as an index value if `linear` depends on neither axis.
  Term limit(const Linear &linear);
  /// Returns limit >= -factor * number or, for an equality, limit == -factor * number.
  Term test(Term limit, int64_t factor, bool isEquality);
  /// Returns the operand of symbol `i`, which counts from nq, with its shape.
  Term getSymbol(unsigned i) const;
  /// Whether `linear` has the term of exactly one symbol that varies over the tile, with the factor
  /// 1 or -1, and is narrow without it. Returns this symbol.
  std::optional<unsigned> findVarying(const Linear &linear) const;
  /// Returns whether `linear`, of the varying symbol `symbol`, is at least 0 for each pair, if one
  /// comparison of the symbol with a limit per row or column decides it; otherwise nullopt.
  std::optional<Term> compareVarying(const Linear &linear, unsigned symbol);
  /// Returns `linear`, of the varying symbol `symbol`, as a sum of 32-bit terms.
  Sum evaluateVarying(const Linear &linear, unsigned symbol);
  /// Returns the terms of `linear` that are the same for all pairs, an index value.
  Value getBase(const Linear &linear);
  /// Evaluates an expression in index arithmetic, each subexpression at its own shape.
  Term evaluate(AffineExpr expr);
  /// Evaluates an expression as a sum of 32-bit summands, or returns nullopt if they may not fit.
  /// Divisions separate queries and keys if possible, so that few operations run on pairs.
  std::optional<Sum> evaluateNarrow(AffineExpr expr);
  std::optional<Sum> divide(AffineExprKind kind, Sum sum, int64_t divisor);
  Offset add(Offset a, Offset b);
  /// Returns sum >= 0 or, for an equality, sum == 0.
  Term test(Sum sum, bool isEquality);
  /// Returns `expr` as a constraint of all operands, unless it has a division.
  std::optional<Linear> getLinear(AffineExpr expr) const;
  /// Returns the constraints of `set` that are not implied by the others or by 0 <= k, nq, nk. With
  /// `addKeyExists`, k < nk is one of them.
  SmallVector<Constraint> simplify(IntegerSet set, bool addKeyExists) const;
  /// Whether `linear` has a term of a symbol that varies over the tile.
  bool hasVarying(const Linear &linear) const;
  /// Whether the queries and keys of a tile add less than kBaseLimit to `linear`.
  bool isNarrow(const Linear &linear) const;
  /// Computes the conjunction of the constraints that depend on neither axis, on the keys, on the
  /// queries, and on both: parts[queries][keys].
  void addConstraints(ArrayRef<Constraint> constraints, Term (&parts)[2][2]);

  /// Returns the union of sets of narrow linear constraints. A loop over a table of their
  /// coefficients computes the columns that each row sees, as bits of 32-bit words.
  Term buildTable(ArrayRef<SmallVector<Linear>> table);
  /// Returns the coefficients of set `number`, for `slots` constraints. Missing constraints are 0
  /// >= 0.
  SmallVector<Value> lookUp(ArrayRef<SmallVector<Linear>> table, Value number, size_t slots);
  /// Returns the first and the last column that each row sees. The last is less than the first if
  /// the row sees none. `divides`: column factors other than 0, 1 and -1 may occur.
  std::pair<Term, Term> findColumns(ArrayRef<Slot> constraints, Term rowStep, int64_t columnCount,
                                    bool divides);
  /// Returns a 32-bit word in which the bits below `end` are set.
  Term bitsBelow(Term end);

  OpBuilder &builder;
  Location loc;
  SmallVector<Value> operands; ///< of [p, k, nq, nk, further symbols]
  int64_t m, n;
  RowPattern pattern;
  TileAxis columns, numbers;
  Linear keyExists;
  /// Results of `step` by axis and element type, emitted once.
  Value steps[2][2];
  std::array<Value, 2> positions; // p0 + i, k0 + j in index
};

} // namespace mlir::flashattn::masktile

#endif // FLASHATTN_LIB_ANALYSIS_VISIBLETILE_H
