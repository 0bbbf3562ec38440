//===- VisibleSymbols.cpp - symbols in the mask of a partial tile ---------===//

#include "VisibleTile.h"

using namespace mlir;
using namespace mlir::flashattn;
using namespace mlir::flashattn::masktile;

Term MaskBuilder::getSymbol(unsigned i) const {
  Value value = operands[2 + i];
  auto type = dyn_cast<VectorType>(value.getType());
  if (!type)
    return {value, {}};
  bool alongRows = type.getDimSize(0) != 1, alongColumns = type.getDimSize(1) != 1;
  return {value, columns == TileAxis::Keys ? Shape{alongRows, alongColumns}
                                           : Shape{alongColumns, alongRows}};
}

std::optional<unsigned> MaskBuilder::findVarying(const Linear &linear) const {
  std::optional<unsigned> found;
  for (unsigned i = 2; i < operands.size(); ++i) {
    if (linear[i] == 0 || operands[i].getType().isIndex())
      continue;
    if (found || std::abs(linear[i]) != 1)
      return std::nullopt;
    found = i - 2;
  }
  return found && isNarrow(linear) ? found : std::nullopt;
}

/// The symbol u of a pair is compared with limits of fewer elements: u + x + c >= 0 is u >= -x - c,
/// and x + c - u >= 0 is u <= x + c, for one operand x with the factor 1 or -1. Then only the
/// constant may lead beyond 32 bits. It is rounded such that the comparison is right there.
std::optional<Term> MaskBuilder::compareVarying(const Linear &linear, unsigned symbol) {
  Term u = getSymbol(symbol);
  int64_t operandsUsed = 0;
  for (unsigned i = 0; i < operands.size(); ++i)
    if (i != 2 + symbol)
      operandsUsed += std::abs(linear[i]);
  if (!u.shape.queries || !u.shape.keys || operandsUsed > 1)
    return std::nullopt;
  bool isLeast = linear[2 + symbol] > 0;
  int64_t sign = isLeast ? -1 : 1, constantTerm = sign * linear.back();
  // u >= l is u > l - 1, and u <= l is u < l + 1.
  bool isStrict = constantTerm * sign < 0;
  Linear limit = linear;
  limit.back() = constantTerm + (isStrict ? sign : 0);
  for (unsigned i = 0; i < operands.size(); ++i)
    limit[i] *= i == 2 + symbol ? 0 : sign;
  Type index = builder.getIndexType(), i32 = builder.getI32Type();
  Term bound{getBase(limit), {}};
  for (bool queries : {true, false})
    if (int64_t factor = limit[queries ? 0 : 1]) {
      Term steps = step(queries, index);
      bound = factor > 0 ? binary<arith::AddIOp>(bound, steps) : binary<arith::SubIOp>(bound, steps);
    }
  auto splat = [&](int64_t value) { return Term{constant(index, value), {}}; };
  bound = binary<arith::MaxSIOp>(bound, splat(std::numeric_limits<int32_t>::min()));
  bound = binary<arith::MinSIOp>(bound, splat(std::numeric_limits<int32_t>::max()));
  bound.value = make<arith::IndexCastOp>(getType(i32, bound.shape), bound.value);
  using Predicate = arith::CmpIPredicate;
  return compare(isLeast ? isStrict ? Predicate::sgt : Predicate::sge
                         : isStrict ? Predicate::slt : Predicate::sle,
                 u, bound);
}

/// A symbol u and the base b are added as a sum that is clamped like a base: u is limited to the
/// range in which b + u, or b - u, has at most this magnitude.
Sum MaskBuilder::evaluateVarying(const Linear &linear, unsigned symbol) {
  Type index = builder.getIndexType(), i32 = builder.getI32Type();
  constexpr int64_t kLeast = std::numeric_limits<int32_t>::min();
  constexpr int64_t kMost = std::numeric_limits<int32_t>::max();
  auto wide = [&](int64_t value) { return constant(index, value); };
  auto narrow = [&](Value value) {
    value = make<arith::MinSIOp>(make<arith::MaxSIOp>(value, wide(kLeast)), wide(kMost));
    return Term{make<arith::IndexCastOp>(i32, value), {}};
  };
  // Beyond these limits, b decides whatever u is.
  Value base = make<arith::MinSIOp>(getBase(linear), wide(kMost + kBaseLimit));
  base = make<arith::MaxSIOp>(base, wide(kLeast - kBaseLimit));
  bool adds = linear[2 + symbol] > 0;
  Value from = adds ? make<arith::SubIOp>(wide(-kBaseLimit), base)
                    : make<arith::SubIOp>(base, wide(kBaseLimit));
  Value to = make<arith::AddIOp>(from, wide(2 * kBaseLimit));
  Term u = binary<arith::MaxSIOp>(getSymbol(symbol), narrow(from));
  u = binary<arith::MinSIOp>(u, narrow(to));
  // The sum wraps around to its value, which fits 32 bits.
  Term low{make<arith::TruncIOp>(
               i32, make<arith::IndexCastOp>(builder.getI64Type(), base)), {}};
  Term both = adds ? binary<arith::AddIOp>(u, low) : binary<arith::SubIOp>(low, u);

  Sum sum{wide(0), {}, {}, {}};
  for (bool queries : {true, false}) {
    Offset &part = queries ? sum.queries : sum.keys;
    if (int64_t factor = linear[queries ? 0 : 1])
      part.term = scaledStep(queries, factor);
  }
  Offset &part = both.shape.queries && both.shape.keys ? sum.pairs
                 : both.shape.queries                  ? sum.queries
                                                       : sum.keys;
  part.term = part.term.value ? binary<arith::AddIOp>(part.term, both) : both;
  return sum;
}
