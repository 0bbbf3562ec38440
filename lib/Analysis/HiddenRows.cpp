//===- HiddenRows.cpp - rows that see no key, whatever the lengths ---------===//

#include "flashattn/Analysis/MaskTiles.h"
#include "flashattn/Dialect/FlashAttn/IR/FlashAttn.h"
#include "mlir/Analysis/FlatLinearValueConstraints.h"
#include "mlir/Analysis/Presburger/PresburgerRelation.h"
#include "mlir/Dialect/Utils/StaticValueUtils.h"
#include "mlir/IR/Diagnostics.h"

using namespace mlir;
using namespace mlir::flashattn;
using llvm::DynamicAPInt;
using presburger::BoundType;
using presburger::IntegerPolyhedron;
using presburger::IntegerRelation;
using presburger::PresburgerSet;
using presburger::PresburgerSpace;
using presburger::VarKind;

/// The least point of a set of numbers from `from` on.
static std::optional<DynamicAPInt> findLeast(const PresburgerSet &set, const DynamicAPInt &from) {
  std::optional<DynamicAPInt> least;
  for (const IntegerRelation &disjunct : set.getAllDisjuncts()) {
    IntegerRelation bounded = disjunct;
    bounded.addBound(BoundType::LB, 0, from);
    auto point = bounded.findIntegerLexMin();
    if (point.isBounded() && (!least || (*point)[0] < *least))
      least = (*point)[0];
  }
  return least;
}

namespace {

/// What is known of an op's lengths: all of them and where its queries are, or nothing.
struct Lengths {
  std::optional<int64_t> nq, nk;
  int64_t firstPosition = 0;
  std::optional<int64_t> lastPosition;

  explicit Lengths(AttentionOpInterface op) {
    int64_t queries = op.getQ().getType().getDimSize(op.getSeqDim());
    int64_t keys = op.getK().getType().getDimSize(op.getSeqDim());
    if (ShapedType::isDynamic(queries) || ShapedType::isDynamic(keys) || op.getKvLen() ||
        queries == 0 || keys == 0)
      return;
    int64_t start = op.getAlign() == Align::TopLeft ? 0 : keys - queries; // A3
    if (Value offset = op.getOffset()) {
      std::optional<int64_t> constant = getConstantIntValue(offset);
      if (!constant)
        return;
      start = *constant;
    }
    nq = queries;
    nk = keys;
    firstPosition = start;
    lastPosition = start + queries - 1;
  }

  /// Bounds the variable at `index` by the positions there are.
  void addPositions(IntegerRelation &set, unsigned index) const {
    set.addBound(BoundType::LB, index, firstPosition);
    if (lastPosition)
      set.addBound(BoundType::UB, index, *lastPosition);
  }
};

} // namespace

/// The positions that see a key.
static PresburgerSet getSeeing(ArrayRef<IntegerSet> visible, const Lengths &lengths) {
  PresburgerSet seeing = PresburgerSet::getEmpty(PresburgerSpace::getSetSpace(/*numDims=*/1));
  for (IntegerSet set : visible) {
    IntegerPolyhedron poly = FlatLinearValueConstraints(set);
    lengths.addPositions(poly, 0);
    poly.addBound(BoundType::LB, 1, 0);
    SmallVector<int64_t> keyExists(poly.getNumCols(), 0); // k < nk, and so nk >= 1
    keyExists[1] = keyExists.back() = -1;
    keyExists[3] = 1;
    poly.addInequality(keyExists);
    for (auto [index, length] : {std::pair(2, lengths.nq), std::pair(3, lengths.nk)})
      poly.addBound(length ? BoundType::EQ : BoundType::LB, index, length.value_or(1));
    if (poly.isIntegerEmpty())
      continue;
    // Exists k, nq, nk.
    poly.convertVarKind(VarKind::SetDim, 1, 2, VarKind::Local);
    poly.convertVarKind(VarKind::Symbol, 0, 2, VarKind::Local);
    seeing.unionInPlace(IntegerRelation(poly).computeReprWithOnlyDivLocals());
  }
  return seeing;
}

// M6
void flashattn::warnHiddenRows(AttentionOpInterface op) {
  if (op.getConstantKeep() == false) {
    op->emitWarning() << "keep hides every pair";
    return;
  }
  if (!op.getMask())
    return;
  Lengths lengths(op);
  PresburgerSet seeing = getSeeing(op.getVisibleSets(), lengths);
  // Where no length is known a set may be seen through from negative positions alone.
  Lengths anywhere = lengths;
  if (!lengths.lastPosition)
    anywhere.firstPosition = -(int64_t(1) << 31);
  bool seesAny = seeing.getNumDisjuncts() != 0 ||
                 getSeeing(op.getVisibleSets(), anywhere).getNumDisjuncts() != 0;
  if (!seesAny) {
    op->emitWarning() << "mask hides every pair";
    return;
  }

  IntegerPolyhedron positions(PresburgerSpace::getSetSpace(/*numDims=*/1));
  lengths.addPositions(positions, 0);
  PresburgerSet hidden = PresburgerSet(positions).subtract(seeing);
  std::string runs;
  llvm::raw_string_ostream os(runs);
  constexpr unsigned kMaxNamed = 3;
  DynamicAPInt from(lengths.firstPosition);
  for (unsigned count = 0;; ++count) {
    std::optional<DynamicAPInt> first = findLeast(hidden, from);
    if (!first)
      break;
    if (count == kMaxNamed) {
      os << " and others";
      break;
    }
    if (count)
      os << ", ";
    std::optional<DynamicAPInt> next = findLeast(seeing, *first);
    os << *first;
    if (!next && !lengths.lastPosition) {
      os << " on";
      break;
    }
    DynamicAPInt last = next ? *next - 1 : DynamicAPInt(*lengths.lastPosition);
    if (last != *first)
      os << " to " << last;
    from = last + 1;
  }
  if (runs.empty())
    return;
  InFlightDiagnostic diag = op->emitWarning()
                            << "mask hides every key from query positions " << runs;
  if (lengths.nk)
    diag << " for " << *lengths.nq << " queries and " << *lengths.nk << " keys";
  else
    diag << " for every length";
}
