//===- MaskLimits.cpp - limits on the sets of a mask ----------------------===//
//
// The sets of every mask attribute, of any dialect, are verified against these limits, so analyses
// and lowerings of masks only read sets within the limits.
//
//===----------------------------------------------------------------------===//

#include "MaskLimits.h"
#include "llvm/Support/MathExtras.h"
#include "llvm/Support/ScopedPrinter.h"

using namespace mlir;
using namespace mlir::flashattn;

/// Returns a bound on the absolute value of every partial sum of the terms, in any order, for
/// positions, keys and lengths below 2^31. The bound also holds for the coefficients after the
/// quotients of mod and floordiv have become variables. Saturates.
static uint64_t getReach(AffineExpr expr) {
  if (isa<AffineDimExpr, AffineSymbolExpr>(expr))
    return std::numeric_limits<int32_t>::max();
  if (auto constant = dyn_cast<AffineConstantExpr>(expr))
    return std::abs(constant.getValue());
  auto binary = cast<AffineBinaryOpExpr>(expr);
  uint64_t lhs = getReach(binary.getLHS()), rhs = getReach(binary.getRHS());
  switch (expr.getKind()) {
  case AffineExprKind::Mul:
    return llvm::SaturatingMultiply(lhs, rhs);
  case AffineExprKind::FloorDiv:
    return lhs;
  default: // A sum. A remainder or a rounded-up quotient also adds its divisor.
    return llvm::SaturatingAdd(lhs, rhs);
  }
}

static bool divides(AffineExpr expr) {
  return expr.getKind() == AffineExprKind::FloorDiv || expr.getKind() == AffineExprKind::CeilDiv ||
         expr.getKind() == AffineExprKind::Mod;
}

static LogicalResult verifyConstraint(function_ref<InFlightDiagnostic()> emitError,
                                      AffineExpr constraint) {
  AffineExpr tooLarge, badDivisor;
  constraint.walk([&](AffineExpr e) {
    if (auto c = dyn_cast<AffineConstantExpr>(e))
      if (c.getValue() > kMaxMaskCoefficient || c.getValue() < -kMaxMaskCoefficient)
        tooLarge = e;
    if (!divides(e))
      return;
    AffineExpr divisor = cast<AffineBinaryOpExpr>(e).getRHS();
    if (auto c = dyn_cast<AffineConstantExpr>(divisor); c && c.getValue() < 1)
      badDivisor = divisor;
  });
  if (tooLarge)
    return emitError() << "expected coefficients of absolute value at most " << kMaxMaskCoefficient
                       << " but got " << cast<AffineConstantExpr>(tooLarge).getValue();
  if (badDivisor)
    return emitError() << "expected divisors and moduli of at least 1 but got "
                       << cast<AffineConstantExpr>(badDivisor).getValue();
  if (!constraint.isPureAffine())
    return emitError() << "expected a pure affine constraint (constant factors, divisors and "
                          "moduli) but got '"
                       << llvm::to_string(constraint) << "'";
  if (getReach(constraint) > uint64_t(std::numeric_limits<int64_t>::max()))
    return emitError()
           << "expected terms with a sum below 2^63 for p, k and symbols below 2^31 but got '"
           << llvm::to_string(constraint) << "'";
  return success();
}

/// Verifies that a mask of `size` is within the limits.
static LogicalResult verifySize(function_ref<InFlightDiagnostic()> emitError,
                                const MaskSize &size) {
  if (size.sets > kMaxVisibleSets)
    return emitError() << "expected a mask of at most " << kMaxVisibleSets
                       << " integer sets but got " << size.sets;
  if (size.terms > kMaxMaskTerms)
    return emitError() << "expected a mask of at most " << kMaxMaskTerms
                       << " identifiers and constants in its sets but got " << size.terms;
  if (size.divisions > kMaxMaskDivisions)
    return emitError() << "expected a mask of at most " << kMaxMaskDivisions
                       << " floordiv, ceildiv and mod in its sets but got " << size.divisions;
  return success();
}

FailureOr<MaskSize> flashattn::verifyVisibleSets(function_ref<InFlightDiagnostic()> emitError,
                                                 ArrayRef<IntegerSet> sets) {
  MaskSize size{sets.size(), 0, 0};
  if (failed(verifySize(emitError, size)))
    return failure();
  for (IntegerSet set : sets) {
    if (!set)
      return emitError() << "expected the integer sets of a mask but got a null set";
    constexpr unsigned kMostSymbols = 2 + 3 * OperandRule::kMostOperands;
    if (set.getNumDims() != 2 || set.getNumSymbols() < 2 || set.getNumSymbols() > kMostSymbols)
      return emitError() << "expected an affine_set over the 2 dimensions (p, k) and 2 to "
                         << kMostSymbols << " symbols [nq, nk, ...] but got "
                         << set.getNumDims() << " dimensions and " << set.getNumSymbols()
                         << " symbols";
    // An expression with shared subexpressions may be much longer than its storage.
    for (AffineExpr constraint : set.getConstraints())
      constraint.walk([&](AffineExpr e) {
        size.terms += !isa<AffineBinaryOpExpr>(e);
        size.divisions += divides(e);
        return WalkResult(success(size.terms <= kMaxMaskTerms));
      });
    if (failed(verifySize(emitError, size)))
      return failure();
    for (AffineExpr constraint : set.getConstraints())
      if (failed(verifyConstraint(emitError, constraint)))
        return failure();
  }
  return size;
}

LogicalResult flashattn::verifyMasks(function_ref<InFlightDiagnostic()> emitError, ArrayAttr masks,
                                     bool multiply) {
  MaskSize all{multiply ? size_t(1) : 0, 0, 0};
  for (Attribute mask : masks) {
    auto interface = dyn_cast_or_null<MaskAttrInterface>(mask);
    if (!interface)
      return emitError() << "expected a mask attribute but got " << mask;
    FailureOr<MaskSize> size = verifyVisibleSets(emitError, interface.getVisibleSets());
    if (failed(size))
      return failure();
    if (multiply)
      all = {all.sets * size->sets, all.terms * size->sets + size->terms * all.sets,
             all.divisions * size->sets + size->divisions * all.sets};
    else
      all = {all.sets + size->sets, all.terms + size->terms, all.divisions + size->divisions};
    if (failed(verifySize(emitError, all)))
      return failure();
  }
  return success();
}
