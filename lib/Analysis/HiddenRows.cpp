//===- HiddenRows.cpp - rows that see no key, whatever the lengths ---------===//

#include "flashattn/Analysis/MaskTiles.h"
#include "flashattn/Dialect/FlashAttn/IR/FlashAttn.h"
#include "mlir/Analysis/FlatLinearValueConstraints.h"
#include "mlir/Analysis/Presburger/PresburgerRelation.h"
#include "mlir/IR/Diagnostics.h"

using namespace mlir;
using namespace mlir::flashattn;
using llvm::DynamicAPInt;
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
    SmallVector<DynamicAPInt> row(bounded.getNumCols(), DynamicAPInt(0));
    row.front() = 1;
    row.back() = -from;
    bounded.addInequality(row);
    auto point = bounded.findIntegerLexMin();
    if (point.isBounded() && (!least || (*point)[0] < *least))
      least = (*point)[0];
  }
  return least;
}

// M6
void flashattn::warnHiddenRows(AttentionOp op) {
  if (op.getConstantKeep() == false) {
    op.emitWarning() << "keep hides every pair";
    return;
  }
  if (!op.getMask())
    return;
  PresburgerSpace rows = PresburgerSpace::getSetSpace(/*numDims=*/1);
  PresburgerSet visible = PresburgerSet::getEmpty(rows);
  bool seesAny = false;
  for (IntegerSet set : op.getVisibleSets()) {
    IntegerPolyhedron poly = FlatLinearValueConstraints(set);
    SmallVector<int64_t> row(poly.getNumCols(), 0);
    auto add = [&](int64_t k, int64_t nq, int64_t nk, int64_t constant) {
      row[1] = k;
      row[2] = nq;
      row[3] = nk;
      row.back() = constant;
      poly.addInequality(row);
    };
    add(1, 0, 0, 0);
    add(-1, 0, 1, -1); // 0 <= k < nk, and so nk >= 1
    add(0, 1, 0, -1);
    if (poly.isIntegerEmpty())
      continue;
    seesAny = true;
    row.assign(row.size(), 0);
    row[0] = 1;
    poly.addInequality(row);
    // Exists k, nq, nk.
    poly.convertVarKind(VarKind::SetDim, 1, 2, VarKind::Local);
    poly.convertVarKind(VarKind::Symbol, 0, 2, VarKind::Local);
    visible.unionInPlace(IntegerRelation(poly).computeReprWithOnlyDivLocals());
  }
  if (!seesAny) {
    op.emitWarning() << "mask hides every pair";
    return;
  }

  PresburgerSet hidden = visible.complement();
  std::string runs;
  llvm::raw_string_ostream os(runs);
  constexpr unsigned kMaxNamed = 3;
  DynamicAPInt from(0);
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
    std::optional<DynamicAPInt> next = findLeast(visible, *first);
    os << *first;
    if (!next) {
      os << " on";
      break;
    }
    if (*next - 1 != *first)
      os << " to " << *next - 1;
    from = *next;
  }
  if (!runs.empty())
    op.emitWarning() << "mask hides every key from query positions " << runs << " for every length";
}
