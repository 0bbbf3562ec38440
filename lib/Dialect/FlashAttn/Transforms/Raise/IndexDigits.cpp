//===- IndexDigits.cpp - indices as sums of digits ------------------------===//
//
// A chain of reshapes computes quotients and remainders of an index. Each variable that is divided
// is replaced by its digits, so that every index becomes a sum of variables times strides.
//
//===----------------------------------------------------------------------===//

#include "TensorExpr.h"

using namespace mlir;
using namespace mlir::flashattn;

namespace {
/// A constant plus a sum of atoms (variables, quotients and remainders) times factors.
struct Linear {
  SmallVector<std::pair<AffineExpr, int64_t>> terms;
  int64_t constant = 0;

  void add(AffineExpr atom, int64_t factor) {
    for (auto &[other, sum] : terms)
      if (other == atom) {
        sum += factor;
        return;
      }
    terms.emplace_back(atom, factor);
  }
  void add(const Linear &other, int64_t factor) {
    for (auto [atom, f] : other.terms)
      add(atom, f * factor);
    constant += other.constant * factor;
  }
  AffineExpr get(MLIRContext *context) {
    llvm::erase_if(terms, [](auto &term) { return term.second == 0; });
    // All sums of the same terms have the same order.
    llvm::sort(terms, [](auto &a, auto &b) {
      auto key = [](AffineExpr atom) {
        auto dim = dyn_cast<AffineDimExpr>(atom);
        return std::pair(dim ? dim.getPosition() : UINT_MAX, atom.getAsOpaquePointer());
      };
      return key(a.first) < key(b.first);
    });
    AffineExpr sum = getAffineConstantExpr(constant, context);
    for (auto [atom, factor] : terms)
      sum = sum + atom * factor;
    return sum;
  }
};

class Simplifier {
public:
  Simplifier(TensorExprs &exprs, MLIRContext *context) : exprs(exprs), context(context) {}

  Linear simplify(AffineExpr expr) {
    Linear sum;
    if (auto constant = dyn_cast<AffineConstantExpr>(expr)) {
      sum.constant = constant.getValue();
      return sum;
    }
    auto binary = dyn_cast<AffineBinaryOpExpr>(expr);
    if (!binary) {
      sum.add(expr, 1);
      return sum;
    }
    Linear lhs = simplify(binary.getLHS());
    auto rhs = dyn_cast<AffineConstantExpr>(binary.getRHS());
    switch (binary.getKind()) {
    case AffineExprKind::Add:
      lhs.add(simplify(binary.getRHS()), 1);
      return lhs;
    case AffineExprKind::Mul:
      if (rhs) {
        sum.add(lhs, rhs.getValue());
        return sum;
      }
      break;
    case AffineExprKind::FloorDiv:
      if (rhs && rhs.getValue() > 0)
        return divide(lhs, rhs.getValue());
      break;
    case AffineExprKind::Mod:
      if (rhs && rhs.getValue() > 0)
        return takeRemainder(lhs, rhs.getValue());
      break;
    default:
      break;
    }
    sum.add(expr, 1);
    return sum;
  }

private:
  /// Returns the terms that `divisor` divides, divided by it, and the remaining terms.
  std::pair<Linear, Linear> split(const Linear &lhs, int64_t divisor) {
    Linear quotient, rest;
    for (auto [atom, factor] : lhs.terms)
      factor % divisor == 0 ? quotient.add(atom, factor / divisor) : rest.add(atom, factor);
    quotient.constant = llvm::divideFloorSigned(lhs.constant, divisor);
    rest.constant = lhs.constant - quotient.constant * divisor;
    return {quotient, rest};
  }
  bool isBelow(AffineExpr expr, int64_t bound) {
    auto [low, high] = exprs.getRange(expr);
    return low && high && *low >= 0 && *high < bound;
  }
  Linear divide(const Linear &lhs, int64_t divisor) {
    auto [quotient, rest] = split(lhs, divisor);
    AffineExpr restExpr = rest.get(context);
    if (!isBelow(restExpr, divisor))
      quotient.add(restExpr.floorDiv(divisor), 1);
    return quotient;
  }
  Linear takeRemainder(const Linear &lhs, int64_t divisor) {
    Linear rest = split(lhs, divisor).second;
    AffineExpr restExpr = rest.get(context);
    if (isBelow(restExpr, divisor))
      return rest;
    Linear sum;
    sum.add(restExpr % divisor, 1);
    return sum;
  }

  TensorExprs &exprs;
  MLIRContext *context;
};
} // namespace

AffineExpr TensorExprs::makeVariable(int64_t extent) {
  if (extent == 1)
    return getAffineConstantExpr(0, context);
  extents.push_back(extent);
  replacements.push_back(getAffineDimExpr(extents.size() - 1, context));
  return replacements.back();
}

AffineExpr TensorExprs::simplify(AffineExpr expr) {
  return Simplifier(*this, context).simplify(expr.replaceDims(replacements)).get(context);
}

bool TensorExprs::replaceVariable(AffineExpr variable, AffineExpr expr) {
  auto dim = dyn_cast<AffineDimExpr>(simplify(variable));
  expr = simplify(expr);
  if (!dim)
    return variable == expr;
  if (dim == expr)
    return true;
  llvm::SmallSetVector<unsigned, 8> inside;
  collectVariables(expr, inside);
  if (inside.contains(dim.getPosition()))
    return false;
  SmallVector<AffineExpr> only;
  for (unsigned i = 0; i < replacements.size(); ++i)
    only.push_back(i == dim.getPosition() ? expr : getAffineDimExpr(i, context));
  for (AffineExpr &replacement : replacements)
    replacement = Simplifier(*this, context).simplify(replacement.replaceDims(only)).get(context);
  return true;
}

std::pair<std::optional<int64_t>, std::optional<int64_t>>
TensorExprs::getRange(AffineExpr expr, std::optional<int64_t> unknown) {
  using Range = std::pair<std::optional<int64_t>, std::optional<int64_t>>;
  if (auto constant = dyn_cast<AffineConstantExpr>(expr))
    return {constant.getValue(), constant.getValue()};
  if (auto dim = dyn_cast<AffineDimExpr>(expr)) {
    int64_t extent = extents[dim.getPosition()];
    return {0, ShapedType::isDynamic(extent) ? unknown : std::optional(extent - 1)};
  }
  if (unknown && isa<AffineSymbolExpr>(expr))
    return {-*unknown, *unknown};
  auto binary = dyn_cast<AffineBinaryOpExpr>(expr);
  if (!binary)
    return {};
  Range lhs = getRange(binary.getLHS(), unknown);
  if (binary.getKind() == AffineExprKind::Add) {
    Range rhs = getRange(binary.getRHS(), unknown), sum;
    if (lhs.first && rhs.first)
      sum.first = *lhs.first + *rhs.first;
    if (lhs.second && rhs.second)
      sum.second = *lhs.second + *rhs.second;
    return sum;
  }
  auto rhs = dyn_cast<AffineConstantExpr>(binary.getRHS());
  if (!rhs)
    return {};
  int64_t c = rhs.getValue();
  auto apply = [](std::optional<int64_t> bound, auto function) {
    return bound ? std::optional<int64_t>(function(*bound)) : std::nullopt;
  };
  if (binary.getKind() == AffineExprKind::Mul) {
    auto scale = [&](int64_t bound) { return bound * c; };
    Range scaled = {apply(lhs.first, scale), apply(lhs.second, scale)};
    return c < 0 ? Range{scaled.second, scaled.first} : scaled;
  }
  if (binary.getKind() == AffineExprKind::Mod && c > 0)
    return {0, c - 1};
  if (binary.getKind() == AffineExprKind::FloorDiv && c > 0) {
    auto divide = [&](int64_t bound) { return llvm::divideFloorSigned(bound, c); };
    return {apply(lhs.first, divide), apply(lhs.second, divide)};
  }
  return {};
}

void TensorExprs::collectVariables(AffineExpr expr, llvm::SmallSetVector<unsigned, 8> &variables) {
  simplify(expr).walk([&](AffineExpr part) {
    if (auto dim = dyn_cast<AffineDimExpr>(part))
      variables.insert(dim.getPosition());
  });
}

bool TensorExprs::splitVariable(unsigned variable, int64_t stride) {
  int64_t extent = extents[variable];
  if (stride <= 1 || (!ShapedType::isDynamic(extent) && (extent <= stride || extent % stride)) ||
      ShapedType::isDynamic(extent))
    return false;
  AffineExpr high = makeVariable(extent / stride), low = makeVariable(stride);
  return replaceVariable(getAffineDimExpr(variable, context), high * stride + low);
}

/// Splits a variable of the innermost division or remainder for which this is possible.
bool TensorExprs::cutOnce(AffineExpr expr) {
  bool cut = false;
  expr.walk([&](AffineExpr part) {
    auto binary = dyn_cast<AffineBinaryOpExpr>(part);
    if (cut || !binary ||
        (binary.getKind() != AffineExprKind::FloorDiv && binary.getKind() != AffineExprKind::Mod))
      return;
    auto divisor = dyn_cast<AffineConstantExpr>(binary.getRHS());
    if (!divisor)
      return;
    for (auto [atom, factor] : Simplifier(*this, context).simplify(binary.getLHS()).terms) {
      auto dim = dyn_cast<AffineDimExpr>(atom);
      if (!dim || factor <= 0 || divisor.getValue() % factor != 0)
        continue;
      if (splitVariable(dim.getPosition(), divisor.getValue() / factor)) {
        cut = true;
        return;
      }
    }
  });
  return cut;
}

AffineExpr TensorExprs::cutDigits(AffineExpr expr) {
  expr = simplify(expr);
  for (unsigned round = 0; round < 16 && cutOnce(expr); ++round)
    expr = simplify(expr);
  return expr;
}

bool TensorExprs::isLinear(Element *load) {
  return llvm::all_of(load->indices, [&](AffineExpr index) {
    bool isSum = true;
    simplify(index).walk([&](AffineExpr part) {
      isSum &= !llvm::is_contained(
          {AffineExprKind::Mod, AffineExprKind::FloorDiv, AffineExprKind::CeilDiv}, part.getKind());
    });
    return isSum;
  });
}
