//===- HiddenRows.cpp - rows that see no key, whatever the lengths ---------===//

#include "MaskBounds.h"
#include "flashattn/Dialect/FlashAttn/IR/FlashAttn.h"
#include "mlir/Dialect/Utils/StaticValueUtils.h"
#include "mlir/IR/Diagnostics.h"

using namespace mlir;
using namespace mlir::flashattn;
using namespace mlir::flashattn::bounds;

namespace {

/// What is known of an op's lengths: all of them and where its queries are, or nothing.
struct Lengths {
  std::optional<int64_t> nq, nk;
  PositionRange positions;

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
    positions.first = start;
    positions.last = start + queries - 1;
  }
};

/// Which positions see a key: ranges, and where these are not exact position by position.
class Seeing {
public:
  Seeing(ArrayRef<IntegerSet> visible, const Lengths &lengths) : lengths(lengths) {
    for (IntegerSet visibleSet : visible) {
      FlatSet set = flatten(visibleSet, TileAxis::Keys);
      PositionRange range = project(set, lengths.positions, rangeBudget);
      if (!range.empty)
        sets.push_back({std::move(set), range});
    }
  }

  bool isEmpty() const { return sets.empty(); }

  /// Whether a position is proven to see no key, and the last one from there on of which that is
  /// the same: none if it is so for all.
  std::pair<bool, std::optional<int64_t>> isHidden(int64_t position);

  /// Whether there were more positions than are looked at one by one, or some whose keys are not
  /// known.
  bool isUnknown() const { return isSpent || someUnknown; }
  bool isSpent = false;

private:
  /// Most sets that are looked at for positions of their own.
  static constexpr int64_t kMostLooks = 2048;

  PositionRange project(const FlatSet &set, const PositionRange &within, Budget &budget) const {
    return projectPositions(set, lengths.nq, lengths.nk, within, budget);
  }

  const Lengths &lengths;
  SmallVector<std::pair<FlatSet, PositionRange>, 0> sets;
  Budget rangeBudget, lookBudget;
  int64_t looks = 0;
  bool someUnknown = false;
};

} // namespace

std::pair<bool, std::optional<int64_t>> Seeing::isHidden(int64_t position) {
  bool seen = false, alone = false;
  std::optional<int64_t> last = lengths.positions.last;
  for (const auto &[set, range] : sets) {
    if (!range.exact || !range.contains(position))
      continue;
    // The one that goes furthest.
    bool isFurther = !seen || (last && (!range.last || *range.last > *last));
    last = isFurther ? range.last : last;
    seen = true;
  }
  if (seen)
    return {false, last};
  for (const auto &[set, range] : sets) {
    if (!range.empty && range.first > position)
      last = std::min(last.value_or(range.first - 1), range.first - 1);
    if (!range.contains(position))
      continue;
    alone = true;
    if (++looks > kMostLooks) {
      isSpent = true;
      return {false, position};
    }
    PositionRange here;
    here.first = position;
    here.last = position;
    here = project(set, here, lookBudget);
    someUnknown |= !here.empty && !here.exact;
    if (!here.empty)
      return {false, position};
  }
  return {true, alone ? position : last};
}

/// "0 to 7, 9 and others": the positions that are hidden, at most so many runs of them.
static std::string listHidden(Seeing &seeing, const PositionRange &positions) {
  constexpr unsigned kMostRuns = 3;
  std::string text;
  llvm::raw_string_ostream os(text);
  unsigned runs = 0;
  std::optional<int64_t> begin; // of the run so far
  auto end = [&](int64_t last) {
    if (!begin)
      return;
    os << (runs++ ? ", " : "") << *begin;
    if (last != *begin)
      os << " to " << last;
    begin.reset();
  };
  for (int64_t at = positions.first; !positions.last || at <= *positions.last;) {
    auto [hidden, last] = seeing.isHidden(at);
    if (hidden && runs == kMostRuns) {
      os << " and others";
      return text;
    }
    if (!hidden)
      end(at - 1);
    else if (!begin)
      begin = at;
    if (!last) {
      if (begin)
        os << (runs ? ", " : "") << *begin << " on";
      return text;
    }
    if (seeing.isSpent)
      return text;
    at = *last + 1;
  }
  end(*positions.last);
  return text;
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
  SmallVector<IntegerSet> visible = op.getVisibleSets();
  Seeing seeing(visible, lengths);
  // Where no length is known a set may be seen through from negative positions alone.
  Lengths anywhere = lengths;
  if (!lengths.nk)
    anywhere.positions.first = -(int64_t(1) << 31);
  if (seeing.isEmpty() && (lengths.nk || Seeing(visible, anywhere).isEmpty())) {
    op->emitWarning() << "mask hides every pair";
    return;
  }

  std::string runs = listHidden(seeing, lengths.positions);
  if (seeing.isUnknown())
    op->emitRemark() << "query positions from which mask " << op.getMaskAttr()
                     << " hides every key are not all known";
  if (runs.empty())
    return;
  InFlightDiagnostic diag = op->emitWarning()
                            << "mask hides every key from query positions " << runs;
  if (lengths.nk)
    diag << " for " << *lengths.nq << " queries and " << *lengths.nk << " keys";
  else
    diag << " for every length";
}
