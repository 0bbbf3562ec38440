//===- PrintMaskTiles.cpp - draws a mask's tile map -----------------------===//

#include "flashattn/Analysis/MaskTiles.h"
#include "flashattn/Analysis/Passes.h"
#include "flashattn/Dialect/FlashAttn/IR/FlashAttn.h"
#include "flashattn/Dialect/FlashAttn/IR/OptionErrors.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Utils/StaticValueUtils.h"
#include "mlir/IR/AffineExpr.h"
#include "mlir/IR/BuiltinOps.h"
#include "llvm/ADT/StringExtras.h"
#include "llvm/Support/FormatVariadic.h"
#include "llvm/Support/InterleavedRange.h"
#include "llvm/Support/MathExtras.h"

namespace mlir::flashattn {
#define GEN_PASS_DEF_PRINTMASKTILES
#include "flashattn/Analysis/Passes.h.inc"
} // namespace mlir::flashattn

using namespace mlir;
using namespace mlir::flashattn;

// The reference of `flash-run --verify` has its own evaluator, so that it does not depend on this
// one.
static int64_t evaluate(AffineExpr expr, ArrayRef<int64_t> operands) {
  if (auto constant = dyn_cast<AffineConstantExpr>(expr))
    return constant.getValue();
  if (auto dim = dyn_cast<AffineDimExpr>(expr))
    return operands[dim.getPosition()];
  if (auto symbol = dyn_cast<AffineSymbolExpr>(expr))
    return operands[2 + symbol.getPosition()];
  auto binary = cast<AffineBinaryOpExpr>(expr);
  int64_t lhs = evaluate(binary.getLHS(), operands), rhs = evaluate(binary.getRHS(), operands);
  switch (expr.getKind()) {
  case AffineExprKind::Add:
    return lhs + rhs;
  case AffineExprKind::Mul:
    return lhs * rhs;
  case AffineExprKind::Mod:
    return llvm::mod(lhs, rhs);
  case AffineExprKind::FloorDiv:
    return llvm::divideFloorSigned(lhs, rhs);
  case AffineExprKind::CeilDiv:
    return llvm::divideCeilSigned(lhs, rhs);
  default:
    llvm_unreachable("leaves are done above");
  }
}

bool flashattn::isVisible(ArrayRef<IntegerSet> visible, int64_t p, int64_t k,
                          ArrayRef<int64_t> symbols) {
  SmallVector<int64_t> operands = {p, k};
  llvm::append_range(operands, symbols);
  return llvm::any_of(visible, [&](IntegerSet set) {
    return llvm::all_of(llvm::zip(set.getConstraints(), set.getEqFlags()), [&](auto constraint) {
      int64_t value = evaluate(std::get<0>(constraint), operands);
      return std::get<1>(constraint) ? value == 0 : value >= 0;
    });
  });
}

namespace {

struct PrintMaskTiles : flashattn::impl::PrintMaskTilesBase<PrintMaskTiles> {
  using PrintMaskTilesBase::PrintMaskTilesBase;

  void runOnOperation() override {
    for (auto [option, name] : {std::pair(&tileM, "tile-m"), std::pair(&tileN, "tile-n"),
                                std::pair(&nq, "nq"), std::pair(&nk, "nk")}) {
      bool given = option->hasValue() || *option != 0;
      if (given && *option < 1) {
        emitOptionError(getOperation())
            << "expected option '" << name << "' of at least 1 but got " << option->getValue();
        return signalPassFailure();
      }
    }
    WalkResult result = getOperation()->walk([&](AttentionOpInterface op) {
      warnHiddenRows(op);
      return WalkResult(draw(op));
    });
    if (result.wasInterrupted())
      signalPassFailure();
  }

private:
  LogicalResult draw(AttentionOpInterface op);
};

} // namespace

namespace {

/// Draws and counts the tiles of a mask. A line stands for `tileM` queries and a character for
/// `tileN` keys, or vice versa.
struct TileMap : TileMapSizes {
  TileMap(const TileMapSizes &sizes, TileAxis axis, ArrayRef<IntegerSet> sets)
      : TileMapSizes(sizes), axis(axis),
        visible(llvm::filter_to_vector(sets, [&](IntegerSet set) { return hasValues(set); })),
        certain(plan(visible)) {
    if (visible.size() != sets.size())
      possible.emplace(plan(sets));
    for (IntegerSet set : visible)
      for (AffineExpr constraint : set.getConstraints())
        constraint.walk([&](AffineExpr) { ++termsOfPair; });
  }

  TileAxis axis; ///< the axis whose tiles are characters
  /// The sets whose symbols all have values, and the intervals of these sets. Without a value for a
  /// symbol of another set, `possible` are the intervals of all sets, for any values.
  SmallVector<IntegerSet> visible;
  TileIntervalPlan certain;
  std::optional<TileIntervalPlan> possible;
  int64_t full = 0, partial = 0, open = 0, empty = 0, pairs = 0;
  bool countsAll = true; ///< whether `pairs` includes every visible pair

  bool areLinesQueries() const { return axis == TileAxis::Keys; }
  int64_t getLineLength() const { return areLinesQueries() ? nq : nk; }
  int64_t getLength() const { return areLinesQueries() ? nk : nq; }

  /// Returns the line that begins at query (or key) `first`, with a character for each tile, and
  /// counts its tiles.
  std::string draw(Location loc, int64_t first);

private:
  /// The maximum number of evaluated terms, about one second.
  static constexpr int64_t kMostTerms = int64_t(1) << 27;

  bool hasValues(IntegerSet set) const {
    return llvm::all_of(llvm::seq<unsigned>(2 + symbols.size(), set.getNumSymbols()),
                        [&](unsigned i) {
                          return llvm::none_of(set.getConstraints(), [&](AffineExpr constraint) {
                            return constraint.isFunctionOfSymbol(i);
                          });
                        });
  }
  TileIntervalPlan plan(ArrayRef<IntegerSet> sets) const {
    return {sets, axis, tileN,
            SmallVector<SymbolKnowledge>(symbols.size(), SymbolKnowledge::Value)};
  }
  void countPairs(int64_t p, int64_t k, int64_t queries, int64_t keys);

  int64_t termsOfPair = 1, termsLeft = kMostTerms;
};

} // namespace

void TileMap::countPairs(int64_t p, int64_t k, int64_t queries, int64_t keys) {
  countsAll &= queries * keys <= termsLeft / termsOfPair;
  if (!countsAll)
    return;
  termsLeft -= queries * keys * termsOfPair;
  SmallVector<int64_t> values = {nq, nk};
  llvm::append_range(values, symbols);
  for (int64_t i = 0; i < queries; ++i)
    for (int64_t j = 0; j < keys; ++j)
      pairs += isVisible(visible, p + i, k + j, values);
}

std::string TileMap::draw(Location loc, int64_t first) {
  // The intervals are folded from constants in a scratch module.
  OwningOpRef<ModuleOp> scratch = ModuleOp::create(loc);
  OpBuilder builder = OpBuilder::atBlockEnd(scratch->getBody());
  auto constant = [&](int64_t value) -> Value {
    return arith::ConstantIndexOp::create(builder, loc, value);
  };
  int64_t rows = std::min(tileM, getLineLength() - first);
  int64_t start = areLinesQueries() ? offset + first : first;
  std::string line(llvm::divideCeil(getLength(), tileN), '.');
  SymbolValues values{constant(nq), constant(nk)};
  for (int64_t symbol : symbols) {
    Value value = constant(symbol);
    values.others.push_back({value, value});
  }
  auto emit = [&](const TileIntervalPlan &plan) {
    return plan.emit(builder, loc, constant(start), constant(start + rows - 1), constant(offset),
                     values);
  };
  if (possible)
    for (const TileInterval &interval : emit(*possible)) {
      int64_t begin = *getConstantIntValue(interval.begin),
              end = *getConstantIntValue(interval.end);
      std::fill(line.begin() + begin, line.begin() + std::max(begin, end), '?');
    }
  for (const TileInterval &interval : emit(certain)) {
    int64_t begin = *getConstantIntValue(interval.begin);
    int64_t fullBegin = *getConstantIntValue(interval.fullBegin);
    int64_t fullEnd = *getConstantIntValue(interval.fullEnd);
    int64_t end = *getConstantIntValue(interval.end);
    for (int64_t t = begin; t < end; ++t) {
      int64_t columns = std::min(tileN, getLength() - t * tileN);
      if (t >= fullBegin && t < fullEnd) {
        line[t] = '#';
        ++full;
        pairs += rows * columns;
        continue;
      }
      line[t] = '+';
      ++partial;
      if (areLinesQueries())
        countPairs(start, t * tileN, rows, columns);
      else
        countPairs(offset + t * tileN, start, columns, rows);
    }
  }
  open += llvm::count(line, '?');
  empty += llvm::count(line, '.');
  return line;
}

/// Returns the character that represents several tiles.
static char merge(StringRef tiles) {
  return tiles.find_first_not_of('#') == StringRef::npos    ? '#'
         : tiles.find_first_not_of('.') == StringRef::npos  ? '.'
         : tiles.find_first_not_of("?.") == StringRef::npos ? '?'
                                                            : '+';
}

void flashattn::printTileMap(raw_ostream &os, MaskAttrInterface mask, ArrayRef<IntegerSet> visible,
                             Location loc, const TileMapSizes &sizes, TileAxis axis) {
  constexpr int64_t kMost = 100; // maximum number of characters along an axis
  TileMap map(sizes, axis, visible);
  int64_t down = llvm::divideCeil(llvm::divideCeil(map.getLineLength(), map.tileM), kMost);
  int64_t across = llvm::divideCeil(llvm::divideCeil(map.getLength(), map.tileN), kMost);

  os << "mask ";
  if (mask)
    os << mask;
  else
    os << "none";
  os << ": nq = " << map.nq << ", nk = " << map.nk << ", tile-m = " << map.tileM
     << ", tile-n = " << map.tileN << ", offset = " << map.offset;
  if (!map.symbols.empty())
    os << ", symbols = " << llvm::interleaved_array(map.symbols);
  if (map.possible)
    os << ", any values of " << (map.symbols.empty() ? "symbols" : "other symbols");
  if (!map.areLinesQueries())
    os << ", a line for tile-m keys, a character for tile-n queries";
  if (down > 1 || across > 1)
    os << ", a character for " << down << " by " << across << " tiles";
  os << "\n";
  for (int64_t first = 0; first < map.getLineLength();) {
    SmallVector<std::string> lines;
    for (int64_t i = 0; i < down && first < map.getLineLength(); ++i, first += map.tileM)
      lines.push_back(map.draw(loc, first));
    for (size_t tile = 0; tile < lines.front().size(); tile += across) {
      std::string tiles;
      for (const std::string &line : lines)
        tiles += line.substr(tile, across);
      os << merge(tiles);
    }
    os << "\n";
  }
  os << map.full << " full (#), " << map.partial << " partial (+), ";
  if (map.possible) {
    os << map.open << " that the values decide (?), " << map.empty << " never visited (.)\n";
    return;
  }
  os << map.empty << " not visited (.); " << (map.countsAll ? "" : "at least ") << map.pairs
     << " of " << map.nq * map.nk << " pairs visible\n";
}

/// Emits the remark about a map directly before the map.
static void printTiles(AttentionOpInterface op, const TileMapSizes &sizes, TileAxis axis) {
  remarkInexactTiles(op, sizes.tileN, axis);
  printTileMap(llvm::outs(), op.getMaskAttr(), op.getVisibleSets(), op->getLoc(), sizes, axis);
  llvm::outs().flush();
}

LogicalResult PrintMaskTiles::draw(AttentionOpInterface op) {
  int64_t sizes[2];
  for (auto [size, option, name, type] : {std::tuple(&sizes[0], &nq, "nq", op.getQ().getType()),
                                          std::tuple(&sizes[1], &nk, "nk", op.getK().getType())}) {
    // P1: a dimension of pages is not the number of keys.
    bool isOfPage = op.getPageTable() && size == &sizes[1];
    *size = *option != 0 ? option->getValue()
            : isOfPage   ? ShapedType::kDynamic
                         : type.getDimSize(op.getSeqDim());
    if (ShapedType::isDynamic(*size))
      return op->emitError() << "expected option '" << name << "' for the dynamic size in " << type;
    constexpr int64_t kMostSize = std::numeric_limits<int32_t>::max(); // pairs fit 64 bits
    if (*size < 1 || *size > kMostSize)
      return op->emitError() << "expected a size from 1 to " << kMostSize << " for '" << name
                             << "' but got " << *size;
  }
  auto [numQueries, numKeys] = sizes;

  // A3
  int64_t start = op.getAlign() == Align::TopLeft ? 0 : numKeys - numQueries;
  if (offset.hasValue() || offset != 0) {
    start = offset;
  } else if (op.hasOffset()) {
    std::optional<int64_t> constant;
    if (op.getOffset())
      constant = getConstantIntValue(op.getOffset());
    if (!constant)
      return op->emitError()
             << "expected option 'offset' or a constant offset of the op but got neither";
    start = *constant;
  }

  ScheduleAttr schedule = op.getScheduleAttr();
  TileMapSizes map;
  map.nq = numQueries;
  map.nk = numKeys;
  map.offset = start;
  if (symbols.size() != op.countSymbols()) {
    SmallVector<std::string> operands;
    for (auto [clause, count] : {std::pair("per_sequence", op.getPerSequence().size()),
                                 std::pair("per_query", op.getPerQuery().size()),
                                 std::pair("per_key", op.getPerKey().size())})
      for (size_t i = 0; i < count; ++i)
        operands.push_back(llvm::formatv("{0}[{1}]", clause, i));
    InFlightDiagnostic error = op->emitError();
    if (operands.empty())
      return error << "expected no option 'symbols' for an op without per_sequence, per_query and "
                      "per_key but got "
                   << symbols.size() << (symbols.size() == 1 ? " number" : " numbers");
    return error << "expected option 'symbols' with a number for each of "
                 << llvm::join(operands, ", ") << ", as in 'symbols="
                 << llvm::join(SmallVector<StringRef>(operands.size(), "0"), ",") << "', but got "
                 << (symbols.empty() ? "none" : std::to_string(symbols.size()));
  }
  for (int64_t symbol : symbols)
    if (!llvm::isInt<32>(symbol))
      return op->emitError() << "expected values from " << std::numeric_limits<int32_t>::min()
                             << " to " << std::numeric_limits<int32_t>::max()
                             << " for 'symbols' but got " << symbol;
  map.symbols.assign(symbols.begin(), symbols.end());
  // With packed heads, a tile has an equal share of the rows for each head.
  map.tileM = tileM != 0 ? tileM : schedule ? schedule.getTileM() / schedule.getPack() : 64;
  map.tileN = tileN != 0 ? tileN : schedule ? schedule.getTileN() : 64;
  // Larger maps would take many minutes; the length is probably a mistake.
  constexpr int64_t kMostTiles = int64_t(1) << 26;
  int64_t down = llvm::divideCeil(map.nq, map.tileM), across = llvm::divideCeil(map.nk, map.tileN);
  if (down > kMostTiles / across)
    return op->emitError() << "expected at most " << kMostTiles << " tiles but got " << down
                           << " by " << across
                           << "; decrease 'nq' or 'nk', or increase 'tile-m' or 'tile-n'";
  printTiles(op, map, TileAxis::Keys);
  if (isa<AttentionBackwardOp>(*op))
    printTiles(op, map, TileAxis::Queries);
  return success();
}
