//===- VisibleTile.h - builds the mask of a partial tile --------*- C++ -*-===//
//
// Queries are vector<Mx1>, keys vector<1xN>, or the transposes: a pass that
// distributes tiles to threads sees at the type what an operand depends on, and
// every operation runs at the smallest shape that holds its result.
//
//===----------------------------------------------------------------------===//

#ifndef FLASHATTN_LIB_ANALYSIS_VISIBLETILE_H
#define FLASHATTN_LIB_ANALYSIS_VISIBLETILE_H

#include "flashattn/Analysis/MaskTiles.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Vector/IR/VectorOps.h"

namespace mlir::flashattn::masktile {

/// The base of a linear constraint is clamped to this magnitude before it becomes
/// 32 bits wide; what the queries and keys of a tile add must be less.
constexpr int64_t kBaseLimit = int64_t(1) << 30;
constexpr int64_t kMaxNarrowCoefficient = int64_t(1) << 20;

/// A linear constraint over [p, k, nq, nk, 1].
using Linear = std::array<int64_t, 5>;
constexpr Linear kKeyExists = {0, -1, 0, 1, -1}; // k < nk

/// What a value depends on, and so the shape it is computed at.
struct Shape {
  bool queries = false, keys = false;
  bool operator==(const Shape &other) const {
    return queries == other.queries && keys == other.keys;
  }
  Shape join(const Shape &other) const { return {queries || other.queries, keys || other.keys}; }
};

struct Term {
  Value value; // null: nothing emitted yet
  Shape shape;
};

/// base + rowFactor i + columnFactor j >= 0 for row i and column j of a tile. The base is 32 bits
/// wide, and the factors are indices.
struct Slot {
  Value base, rowFactor, columnFactor;
};

/// A 32-bit part of a sum and the bounds of its elements. The value is null for 0.
struct Offset {
  Term term;
  int64_t least = 0, most = 0;
};

/// The value of an expression: base + queries + keys + pairs. The base is a scalar in index, and
/// the others are vectors that depend on the tile's queries, on its keys, or on both.
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
  MaskBuilder(OpBuilder &builder, Location loc, Value p0, Value k0, Value nq, Value nk, int64_t m,
              int64_t n, RowPattern pattern, TileAxis columns, TileAxis numbers)
      : builder(builder), loc(loc), operands{p0, k0, nq, nk}, m(m), n(n), pattern(pattern),
        columns(columns), numbers(numbers) {}

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
  /// Positions or keys after the first, in `element`.
  Term step(bool queries, Type element);
  Term scaledStep(bool queries, int64_t factor);
  Term compare(arith::CmpIPredicate predicate, Term lhs, Term rhs);
  /// lhs >= rhs, or lhs == rhs.
  Term compare(bool isEquality, Term lhs, Term rhs);
  Term pick(Term condition, Term yes, Term no);

  /// Coefficients of `linear` along the axis of limits and along that of `numbers`.
  int64_t ofLimits(const Linear &linear) const { return linear[areLimitsQueries() ? 0 : 1]; }
  int64_t ofNumbers(const Linear &linear) const { return linear[areLimitsQueries() ? 1 : 0]; }
  bool areLimitsQueries() const { return numbers == TileAxis::Keys; }
  /// The base of a constraint in 32 bits. Clamping it keeps the answer of the test, as the queries
  /// and keys of a tile together add less than the limit.
  Value clamp(Value base);
  /// The base and the limits' part of `linear`, in 32 bits; in index where it depends on neither
  /// axis.
  Term limit(const Linear &linear);
  /// limit >= -factor * number, or equal.
  Term test(Term limit, int64_t factor, bool isEquality);
  /// The value of an expression in index arithmetic, each part at its own shape.
  Term evaluate(AffineExpr expr);
  /// The same as a sum whose parts are 32 bits wide, or nothing if they might not fit. Divisions
  /// take queries and keys apart where they can, so that few operations run on pairs.
  std::optional<Sum> evaluateNarrow(AffineExpr expr);
  std::optional<Sum> divide(AffineExprKind kind, Sum sum, int64_t divisor);
  Offset add(Offset a, Offset b);
  /// base + sum >= 0, or equal to 0.
  Term test(Sum sum, bool isEquality);
  /// The constraints of `set` that the others, and what always holds, do not imply.
  SmallVector<Constraint> simplify(IntegerSet set, bool addKeyExists) const;
  /// Whether the queries and keys of a tile add less to `linear` than the limit of its base.
  bool isNarrow(const Linear &linear) const;
  /// The conjunction of a set's constraints that depend on neither axis, on
  /// either, and on both, each its own.
  void addConstraints(ArrayRef<Constraint> constraints, Term (&parts)[2][2]);

  /// The union of sets of narrow linear constraints. A loop over a table of their coefficients
  /// finds the columns that each row sees, as bits of 32-bit words.
  Term buildTable(ArrayRef<SmallVector<Linear>> table);
  /// The coefficients of set `number`: `slots` constraints, of which the missing ones always hold.
  SmallVector<Value> lookUp(ArrayRef<SmallVector<Linear>> table, Value number, size_t slots);
  /// The first and the last column that each row sees; the last is less than the first if there are
  /// none. `divides`: factors of columns may be other than 0, 1 and -1.
  std::pair<Term, Term> findColumns(ArrayRef<Slot> constraints, Term rowStep, int64_t columnCount,
                                    bool divides);
  /// Bits below `end`, of 32.
  Term bitsBelow(Term end);

  OpBuilder &builder;
  Location loc;
  std::array<Value, 4> operands;
  int64_t m, n;
  RowPattern pattern;
  TileAxis columns, numbers;
  /// Steps by axis and element type; emitted once.
  Value steps[2][2];
  std::array<Value, 2> positions; // p0 + i, k0 + j in index
};

} // namespace mlir::flashattn::masktile

#endif // FLASHATTN_LIB_ANALYSIS_VISIBLETILE_H
