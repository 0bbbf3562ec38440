//===- SymbolMasks.cpp - masks with symbols, drawn at random --------------===//

#include "SymbolMasks.h"
#include "llvm/ADT/STLExtras.h"
#include "llvm/Support/FormatVariadic.h"

using namespace mlir;
using namespace mlir::flashattn;

namespace mlir::flashattn {
/// Draws the sets of a mask, and its symbols as the sets need them.
class SymbolMaskDrawer {
public:
  SymbolMaskDrawer(std::mt19937 &random, SymbolMask &mask) : random(random), result(mask) {}

  /// Returns the text of a union of sets, and appends its name to the mask's.
  std::string drawPattern();
  /// Returns how many more symbols there may be.
  unsigned getNumLeft() const { return kMostSymbols - result.symbols.size(); }
  void drawShapes(bool isPacked, bool arePackedKeys);
  /// Replaces the heading of each set, once all symbols are known.
  std::string finish(StringRef text);

private:
  using Kind = SymbolMask::Kind;
  using Meaning = SymbolMask::Meaning;
  static constexpr unsigned kMostSymbols = 3;
  static constexpr StringLiteral kHeading = "HEADING";

  bool chance(unsigned percent) { return random() % 100 < percent; }
  template <typename T> T pick(std::initializer_list<T> choices) {
    return choices.begin()[random() % choices.size()];
  }
  /// Returns the letter of a new symbol or, if there may be no more, of one that exists.
  std::string use(Meaning meaning, std::initializer_list<Kind> kinds);
  std::string useAny(Meaning meaning) {
    return use(meaning, {SymbolMask::PerSequence, SymbolMask::PerQuery, SymbolMask::PerKey});
  }
  std::string set(const Twine &constraints) {
    return ("#flashattn.set<\"" + kHeading + " : (" + constraints + ")\">").str();
  }
  std::string drawDocuments();
  std::string drawRowIntervals();
  std::string drawPrefix();
  std::string drawWindow();
  std::string drawSegments();
  std::string drawSums();
  std::string drawDivisions();
  std::string drawBothSigns();
  std::string drawSwitch();

  std::mt19937 &random;
  SymbolMask &result;
};
} // namespace mlir::flashattn

std::string SymbolMaskDrawer::use(Meaning meaning, std::initializer_list<Kind> kinds) {
  if (getNumLeft() == 0)
    return std::string(1, result.symbols[random() % kMostSymbols].letter);
  char letter = char('a' + result.symbols.size());
  result.symbols.push_back({letter, pick(kinds), meaning, "", chance(40)});
  return std::string(1, letter);
}

/// The keys of the query's document: from its start on, or also up to its end.
std::string SymbolMaskDrawer::drawDocuments() {
  std::string start = use(SymbolMask::Start, {SymbolMask::PerQuery});
  if (chance(60))
    return set("p - k >= 0, k - " + start + " >= 0");
  return set("k - " + start + " >= 0, " + use(SymbolMask::End, {SymbolMask::PerQuery}) +
             " - 1 - k >= 0");
}

/// FlashMask: a key is hidden in an interval of rows below the diagonal.
std::string SymbolMaskDrawer::drawRowIntervals() {
  Meaning meaning =
      pick({SymbolMask::Tree, SymbolMask::End, SymbolMask::Sorted, SymbolMask::Place});
  std::string begin = use(meaning, {SymbolMask::PerKey});
  std::string causal = chance(75) ? "p - k >= 0, " : "";
  std::string above = set(causal + begin + " - p - 1 >= 0");
  if (chance(50))
    return above;
  return above + ", " +
         set(causal + "p - " + use(SymbolMask::Place, {SymbolMask::PerKey}) + " >= 0");
}

std::string SymbolMaskDrawer::drawPrefix() {
  std::string prefix = set(useAny(SymbolMask::Place) + " - 1 - k >= 0");
  return chance(50) ? prefix : prefix + ", #flashattn.causal";
}

std::string SymbolMaskDrawer::drawWindow() {
  std::string left = useAny(SymbolMask::Width);
  std::string right = chance(50) ? "p - k >= 0" : "p - k + " + useAny(SymbolMask::Width) + " >= 0";
  return set(right + ", k - p + " + left + " >= 0");
}

/// Queries and keys of the same segment.
std::string SymbolMaskDrawer::drawSegments() {
  std::string query = use(SymbolMask::Id, {SymbolMask::PerQuery});
  std::string key = use(SymbolMask::Id, {SymbolMask::PerKey});
  return set(query + " - " + key + " == 0" + (chance(50) ? ", p - k >= 0" : ""));
}

std::string SymbolMaskDrawer::drawSums() {
  std::string constraints;
  unsigned count = 1 + random() % 2;
  for (unsigned i = 0; i < count; ++i) {
    std::string sum = std::to_string(int(random() % 100) - 50);
    for (StringRef term : {"p", "k", "nq", "nk"})
      if (chance(term.size() == 1 ? 70 : 10))
        sum += llvm::formatv(" + {0} * {1}", pick({-2, -1, 1, 2}), term);
    for (unsigned terms = 1 + random() % 2; terms > 0; --terms) {
      Meaning meaning = pick({SymbolMask::Place, SymbolMask::Width});
      std::string u = useAny(meaning);
      sum += llvm::formatv(" + {0} * {1}", pick({-2, -1, 1, 2}), u);
    }
    constraints += (i ? ", " : "") + sum + " >= 0";
  }
  return set(constraints);
}

std::string SymbolMaskDrawer::drawDivisions() {
  Meaning meaning = pick({SymbolMask::Place, SymbolMask::Width});
  std::string u = useAny(meaning);
  const char *before = pick({"p + ", "k - ", "p - k + ", "2 * k - ", "k + p + ", ""});
  std::string dividend = "(" + std::string(before) + u + ")";
  int divisor = pick({2, 3, 4, 7, 16, 60});
  switch (random() % 4) {
  case 0:
    return set(llvm::formatv("{0} mod {1} - {2} >= 0", dividend, divisor, divisor / 2));
  case 1:
    return set(llvm::formatv("{0} mod {1} == 0", dividend, std::min(divisor, 4)));
  case 2:
    return set(llvm::formatv("{0} floordiv {1} - k floordiv {1} == 0", dividend, 8 * divisor));
  default:
    return set(llvm::formatv("p - k >= 0, {0} ceildiv {1} - {2} >= 0", dividend, divisor,
                             useAny(SymbolMask::Small)));
  }
}

/// Sets that neither grow nor shrink with a symbol.
std::string SymbolMaskDrawer::drawBothSigns() {
  std::string u = useAny(SymbolMask::Place);
  switch (random() % 3) {
  case 0:
    return set(u + " - k >= 0, k - " + u + " + " + std::to_string(random() % 60) + " >= 0");
  case 1:
    return set("p - k + " + u + " >= 0, k - " + u + " >= 0");
  default:
    return set("p - " + u + " >= 0, " + u + " + " + useAny(SymbolMask::Width) + " - p >= 0");
  }
}

/// A symbol alone, which hides rows or columns.
std::string SymbolMaskDrawer::drawSwitch() {
  std::string u = useAny(SymbolMask::Small);
  return set(chance(50) ? u + " + 1 >= 0" : "p - k >= 0, " + u + " == 0");
}

std::string SymbolMaskDrawer::drawPattern() {
  static constexpr std::pair<StringLiteral, std::string (SymbolMaskDrawer::*)()> patterns[] = {
      {"documents", &SymbolMaskDrawer::drawDocuments},
      {"row_intervals", &SymbolMaskDrawer::drawRowIntervals},
      {"row_intervals", &SymbolMaskDrawer::drawRowIntervals},
      {"prefix", &SymbolMaskDrawer::drawPrefix},
      {"window", &SymbolMaskDrawer::drawWindow},
      {"segments", &SymbolMaskDrawer::drawSegments},
      {"sums", &SymbolMaskDrawer::drawSums},
      {"sums", &SymbolMaskDrawer::drawSums},
      {"divisions", &SymbolMaskDrawer::drawDivisions},
      {"both_signs", &SymbolMaskDrawer::drawBothSigns},
      {"switch", &SymbolMaskDrawer::drawSwitch}};
  auto [name, draw] = patterns[random() % std::size(patterns)];
  result.pattern += (result.pattern.empty() ? "" : "_") + name.str();
  return (this->*draw)();
}

void SymbolMaskDrawer::drawShapes(bool isPacked, bool arePackedKeys) {
  for (SymbolMask::Symbol &symbol : result.symbols) {
    bool isOfSequence = symbol.kind == SymbolMask::PerSequence;
    bool isOne = symbol.kind == SymbolMask::PerQuery ? isPacked : arePackedKeys && !isOfSequence;
    symbol.shape = isOne || chance(30) ? "1" : "?";
    if (!isOfSequence)
      symbol.shape += chance(50) ? "x1x?" : "x?x?";
  }
  llvm::sort(result.symbols, [](auto &a, auto &b) {
    return std::pair(a.kind, a.letter) < std::pair(b.kind, b.letter);
  });
}

std::string SymbolMaskDrawer::finish(StringRef text) {
  std::string heading = "(p, k)[nq, nk";
  for (const SymbolMask::Symbol &symbol : result.symbols)
    heading += std::string(", ") + symbol.letter;
  SmallVector<StringRef> parts;
  text.split(parts, kHeading);
  return llvm::join(parts, heading + "]");
}

SymbolMask SymbolMask::draw(std::mt19937 &random, StringRef other, bool isPacked,
                            bool arePackedKeys) {
  SymbolMask mask;
  SymbolMaskDrawer drawer(random, mask);
  std::string text = drawer.drawPattern();
  bool isUnion = random() % 2;
  unsigned kind = random() % 10;
  // Two patterns in one mask, or one and the other mask.
  std::string all = "#flashattn.any_of<[" + text + "]>";
  if (kind < 7) {
    std::string second = other.str();
    if (kind < 3 && drawer.getNumLeft() > 0)
      second = "#flashattn.any_of<[" + drawer.drawPattern() + "]>";
    all = llvm::formatv("#flashattn.{0}<[{1}, {2}]>", isUnion ? "any_of" : "all_of", all, second);
    mask.pattern += isUnion ? "_union" : "_intersection";
  }
  drawer.drawShapes(isPacked, arePackedKeys);
  mask.mask = drawer.finish(all);
  return mask;
}

StringRef SymbolMask::getClauseName(Kind kind) {
  return kind == PerSequence ? "per_sequence" : kind == PerQuery ? "per_query" : "per_key";
}

std::string SymbolMask::name() const {
  static constexpr StringLiteral meanings[] = {"place", "sorted", "start", "end",
                                               "id",    "tree",   "width", "small"};
  std::string text = pattern;
  for (const Symbol &symbol : symbols)
    text += llvm::formatv("+{0}_{1}_{2}{3}", getClauseName(symbol.kind), symbol.shape,
                          meanings[symbol.meaning], symbol.hasExtremes ? "_extremes" : "");
  return text;
}

std::string SymbolMask::parameters() const {
  std::string text;
  for (const Symbol &symbol : symbols)
    text += llvm::formatv("%symbol_{0}: memref<{1}xi32>, ", symbol.letter, symbol.shape);
  return text;
}

std::string SymbolMask::operandClauses() const {
  std::string text;
  for (Kind kind : {PerSequence, PerQuery, PerKey}) {
    SmallVector<std::string> values, types;
    for (const Symbol &symbol : symbols) {
      if (symbol.kind != kind)
        continue;
      values.push_back(std::string("%symbol_") + symbol.letter);
      types.push_back("memref<" + symbol.shape + "xi32>");
    }
    if (!values.empty())
      text += llvm::formatv(" {0}({1} : {2})", getClauseName(kind), llvm::join(values, ", "),
                            llvm::join(types, ", "));
  }
  return text;
}

//===----------------------------------------------------------------------===//
// Values
//===----------------------------------------------------------------------===//

constexpr int32_t kLeast = std::numeric_limits<int32_t>::min();
constexpr int32_t kMost = std::numeric_limits<int32_t>::max();
constexpr int32_t extremes[] = {
    kMost, kLeast, kMost - 1, kLeast + 1, kMost / 2, kLeast + 60, (kLeast + 5) / 2 + 7, -1};

/// The queries or keys of a sequence whose symbols are drawn.
struct SymbolMask::Indices {
  int64_t first, count;   ///< the first one, and their number
  int64_t least, end;     ///< of the positions of queries and the keys
  unsigned documentsSeed; ///< equal for queries and keys of the same documents
};

/// Returns the first indices of documents that cover [least, end).
static SmallVector<int64_t> drawDocumentStarts(int64_t least, int64_t end, unsigned seed) {
  std::mt19937 random(seed);
  SmallVector<int64_t> starts = {least};
  while (starts.back() < end) {
    int64_t most = random() % 4 ? 40 : 200;
    starts.push_back(starts.back() + 1 + random() % most);
  }
  return starts;
}

SmallVector<int64_t> SymbolMask::drawValues(const Symbol &symbol, const Indices &indices,
                                            std::mt19937 &random) {
  SmallVector<int64_t> values(indices.count);
  SmallVector<int64_t> starts =
      drawDocumentStarts(indices.least, indices.end, indices.documentsSeed);
  int64_t places = indices.end - indices.least + 41, widths = random() % 4 ? 50 : 300;
  SmallVector<int64_t> open; // nodes whose subtree has not ended
  for (auto [i, value] : llvm::enumerate(values)) {
    int64_t index = indices.first + int64_t(i);
    const int64_t *next = llvm::upper_bound(starts, index);
    switch (symbol.kind == PerSequence && symbol.meaning < Width ? Place : symbol.meaning) {
    case Place:
    case Sorted:
      value = random() % places + indices.least - 20;
      break;
    case Start:
      value = *std::prev(next);
      break;
    case End:
      value = *next;
      break;
    case Id:
      value = next - starts.begin();
      break;
    case Tree:
      while (!open.empty() && random() % 5 == 0)
        values[open.pop_back_val()] = index;
      open.push_back(i);
      value = indices.first + indices.count;
      break;
    case Width:
      value = random() % widths;
      break;
    case Small:
      value = int64_t(random() % 7) - 3;
      break;
    }
  }
  if (symbol.meaning == Sorted)
    llvm::sort(values);
  for (int64_t &value : values)
    if (symbol.hasExtremes && random() % 8 == 0)
      value = extremes[random() % std::size(extremes)];
  return values;
}

/// Fills the elements of sequence `of` of batch `batch` of the queries.
void SymbolMask::fillSequence(const Symbol &symbol, const AttentionProblem &problem, int64_t batch,
                              const AttentionProblem::Sequence &of, unsigned seed,
                              std::mt19937 &random, HostTensor &tensor) {
  ArrayRef<int64_t> shape = tensor.getShape();
  bool isOfQueries = symbol.kind == PerQuery, isOfKeys = symbol.kind == PerKey;
  Indices indices{isOfQueries ? of.offset : 0,
                  isOfQueries ? of.numQueries
                  : isOfKeys  ? of.numKeys
                              : 1,
                  std::min<int64_t>(0, of.offset), std::max(of.numKeys, of.offset + of.numQueries),
                  seed};
  bool isPacked = isOfKeys && problem.hasPackedKeys;
  int64_t slice = isPacked || shape[0] == 1 ? 0 : isOfQueries ? batch : of.b;
  int64_t heads = shape.size() == 1 ? 1 : shape[1], rows = shape.size() == 1 ? 1 : shape[2];
  int64_t firstRow = isOfQueries ? of.firstQuery : isPacked ? of.firstKey : 0;
  int64_t group = isOfQueries ? problem.queryHeads / problem.keyHeads : 1;
  for (int64_t h = 0; h < heads; ++h) {
    // Documents differ between key/value heads, so that it shows if a wrong one is read.
    indices.documentsSeed = seed + 100 * of.b + h / group;
    for (auto [i, value] : llvm::enumerate(drawValues(symbol, indices, random)))
      tensor.set((slice * heads + h) * rows + firstRow + i, value);
  }
}

void SymbolMask::fill(const OpOfFunction &op, const AttentionProblem &problem, unsigned seed,
                      MutableArrayRef<HostTensor> arguments) const {
  std::mt19937 random(seed);
  unsigned counts[3] = {};
  for (const Symbol &symbol : symbols) {
    std::string name = getClauseName(symbol.kind).str() + std::to_string(counts[symbol.kind]++);
    HostTensor &tensor = arguments[*op.getArgument(name)];
    for (int64_t i = 0; i < tensor.getNumElements(); ++i)
      tensor.set(i, random() % 2 ? double(extremes[random() % std::size(extremes)])
                                 : double(int32_t(random())));
    for (int64_t batch = 0; batch < problem.batch; ++batch)
      for (const AttentionProblem::Sequence &of : problem.getSequences(batch))
        fillSequence(symbol, problem, batch, of, seed, random, tensor);
  }
}
