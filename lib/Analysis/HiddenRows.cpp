//===- HiddenRows.cpp - warnings about rows that see no key ---------------===//

#include "MaskBounds.h"
#include "flashattn/Dialect/FlashAttn/IR/FlashAttn.h"
#include "mlir/Dialect/Utils/StaticValueUtils.h"
#include "mlir/IR/Diagnostics.h"

using namespace mlir;
using namespace mlir::flashattn;
using namespace mlir::flashattn::bounds;

namespace {

/// The lengths of an op and the positions of its queries, if all of them are static. Otherwise, no
/// length is known, and the positions are all p >= 0.
struct Lengths {
  std::optional<int64_t> nq, nk;
  PositionRange positions;

  explicit Lengths(AttentionOpInterface op) {
    int64_t queries = op.getStaticQueries(), keys = op.getStaticKeys();
    if (ShapedType::isDynamic(queries) || ShapedType::isDynamic(keys) || op.getKvLen() ||
        op.getOffsets() || queries == 0 || keys == 0)
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

/// Finds the positions that see a key: as ranges, and one by one in ranges that are not exact.
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

  /// Returns whether it is proven that `position` sees no key, and the last position up to which
  /// the same result holds, or nullopt if it holds for all later positions.
  std::pair<bool, std::optional<int64_t>> isHidden(int64_t position);

  /// Whether the limit of positions that are examined one by one was exceeded, or some of these
  /// positions could not be decided.
  bool isUnknown() const { return isSpent || someUnknown; }
  bool isSpent = false;

private:
  /// The maximum number of sets that are projected for single positions.
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
    // Takes the range that ends last.
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

/// Returns the hidden positions as text, for example "0 to 7, 9 and others", with at most kMostRuns
/// runs of positions.
static std::string listHidden(Seeing &seeing, const PositionRange &positions) {
  constexpr unsigned kMostRuns = 3;
  std::string text;
  llvm::raw_string_ostream os(text);
  unsigned runs = 0;
  std::optional<int64_t> begin; // of the current run
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
        os << (runs ? ", " : "") << *begin << " and above";
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
  if (op.getConstantAttnMask() == false) {
    op->emitWarning() << "attn_mask hides every pair";
    return;
  }
  if (!op.getMask())
    return;
  Lengths lengths(op);
  SmallVector<IntegerSet> visible = op.getVisibleSets();
  Seeing seeing(visible, lengths);
  // If no length is known, a set may show keys to negative positions only.
  Lengths anywhere = lengths;
  if (!lengths.nk)
    anywhere.positions.first = -(int64_t(1) << 31);
  if (seeing.isEmpty() && (lengths.nk || Seeing(visible, anywhere).isEmpty())) {
    op->emitWarning() << "mask hides every pair";
    return;
  }

  std::string runs = listHidden(seeing, lengths.positions);
  if (seeing.isUnknown())
    op->emitRemark()
        << "mask " << op.getMaskAttr()
        << " may hide every key from further queries: not all query positions could be examined";
  if (runs.empty())
    return;
  InFlightDiagnostic diag = op->emitWarning()
                            << "mask hides every key from the queries at positions " << runs;
  if (lengths.nk)
    diag << " for " << *lengths.nq << " queries and " << *lengths.nk << " keys";
  else
    diag << " for all lengths";
}
