//===- Features.cpp --------------------------------------------------------===//

#include "Features.h"
#include "llvm/ADT/BitVector.h"
#include "llvm/Support/FormatVariadic.h"
#include "llvm/Support/MathExtras.h"

#include <array>
#include <cmath>
#include <limits>

using namespace mlir;
using namespace mlir::flashattn;

namespace {
struct NamedText {
  StringRef name, text;
};
} // namespace

const NamedText scoreMods[] = {
    {"", ""},
    // Attention with linear biases: a slope a head.
    {"alibi", R"(
      %h1 = arith.addi %h, %one : index
      %h2 = arith.index_cast %h1 : index to i32
      %h3 = arith.sitofp %h2 : i32 to f32
      %h4 = arith.negf %h3 : f32
      %slope = math.exp2 %h4 : f32
      %d = arith.subi %k, %p : index
      %d1 = arith.index_cast %d : index to i32
      %d2 = arith.sitofp %d1 : i32 to f32
      %y = math.fma %d2, %slope, %s : f32)"},
    // A bias that goes by the distance, up to 16 keys away.
    {"relative", R"(
      %c16 = arith.constant 16 : index
      %m16 = arith.constant -16 : index
      %c = arith.constant 0.05 : f32
      %d = arith.subi %p, %k : index
      %d1 = arith.minsi %d, %c16 : index
      %d2 = arith.maxsi %d1, %m16 : index
      %d3 = arith.index_cast %d2 : index to i32
      %d4 = arith.sitofp %d3 : i32 to f32
      %d5 = arith.mulf %d4, %c : f32
      %y = arith.addf %s, %d5 : f32)"},
    {"tanh", R"(
      %cap = arith.constant 2.5 : f32
      %x = arith.divf %s, %cap : f32
      %t = math.tanh %x : f32
      %y = arith.mulf %t, %cap : f32)"},
    // Every argument, integers and conditions.
    {"select", R"(
      %three = arith.constant 3 : index
      %half = arith.constant 0.5 : f32
      %rest = arith.remui %k, %three : index
      %hit = arith.cmpi eq, %rest, %b : index
      %near = arith.cmpi sge, %k, %p : index
      %both = arith.ori %hit, %near : i1
      %h1 = arith.index_cast %h : index to i32
      %h2 = arith.sitofp %h1 : i32 to f32
      %u = arith.mulf %s, %half : f32
      %w = arith.addf %s, %h2 : f32
      %y = arith.select %both, %u, %w : f32)"},
    {"softplus", R"(
      %e = math.exp %s : f32
      %y = math.log1p %e : f32)"},
};

unsigned Features::getNumScoreMods() { return std::size(scoreMods) - 1; }

Features Features::draw(std::mt19937 &random) {
  auto pick = [&](ArrayRef<StringRef> choices) { return choices[random() % choices.size()].str(); };
  auto chance = [&](unsigned percent) { return random() % 100 < percent; };
  auto drawScores = [&](StringRef element) {
    std::string type;
    for (unsigned i = 0; i < 4; ++i)
      type += chance(50) ? "1x" : "?x";
    return type + element.str();
  };
  Features features;
  if (chance(45))
    features.bias = drawScores(pick({"f16", "bf16", "f32"}));
  if (chance(40))
    features.attnMask = drawScores("i1");
  features.hasOffset = chance(25);
  features.hasSinkLogits = chance(35);
  features.hasKvLen = chance(40);
  if (chance(35))
    features.softcap = pick({"2.0", "30.0"});
  if (chance(40))
    features.scoreMod = 1 + random() % getNumScoreMods();
  return features;
}

void Features::prepareLarge(bool isBackward) {
  if (scoreMods[scoreMod].name != "tanh")
    scoreMod = 0;
  if (isBackward && bias.empty())
    bias = "1x1x?x?xf32";
}

void Features::pack(std::mt19937 &random) {
  bias.clear();
  attnMask.clear();
  isPacked = random() % 4 != 0;
  hasQLen = !isPacked || random() % 3 == 0;
}

void Features::page(std::mt19937 &random) {
  const int64_t sizes[] = {1, 2, 4, 8, 16, 20, 24, 32, 64, 128, 256, 1000};
  pack(random);
  hasQLen &= isPacked;
  pageRows = sizes[random() % std::size(sizes)];
  hasKvLen = true;
  hasLeftpad = random() % 5 == 0;
}

void Features::drawGradients(std::mt19937 &random) {
  hasDLse = random() % 2;
  hasDBias = !bias.empty() && random() % 4;
  hasDSinkLogits = hasSinkLogits && random() % 4;
  isDeterministic = random() % 4 == 0;
}

void Features::drawSymbols(std::mt19937 &random, StringRef clause) {
  bool hasMask = clause.consume_front("mask(") && clause.consume_back(")");
  symbolMask = SymbolMask::draw(random, hasMask ? clause : "#flashattn.causal", isPacked,
                                isPacked && pageRows == 0);
}

std::string Features::name() const {
  std::string text;
  auto add = [&](StringRef part) { text += (text.empty() ? "" : "+") + part.str(); };
  if (!softcap.empty())
    add("softcap_" + softcap);
  if (scoreMod)
    add(scoreMods[scoreMod].name);
  if (!bias.empty())
    add("bias_" + bias);
  if (!attnMask.empty())
    add("attn_mask_" + attnMask);
  if (hasSinkLogits)
    add("sink_logits");
  if (hasKvLen)
    add("kv_len");
  if (isPacked)
    add("packed");
  if (hasQLen)
    add("q_len");
  if (pageRows)
    add("pages_" + std::to_string(pageRows));
  if (hasLeftpad)
    add("leftpad");
  if (hasOffset)
    add("offset");
  if (hasDLse)
    add("d_lse");
  if (hasDBias)
    add("d_bias");
  if (hasDSinkLogits)
    add("d_sink_logits");
  if (isDeterministic)
    add("deterministic");
  if (!symbolMask.isEmpty())
    add(symbolMask.name());
  return text;
}

std::string Features::parameters() const {
  std::string text;
  if (hasOffset)
    text += "%offset: index, ";
  if (isPacked)
    text += pageRows ? "%starts_q: memref<?xi32>, "
                     : "%starts_q: memref<?xi32>, %starts_k: memref<?xi32>, ";
  if (pageRows)
    text += "%table: memref<?x?xi32>, ";
  if (!bias.empty())
    text += "%bias: memref<" + bias + ">, ";
  if (!attnMask.empty())
    text += "%attn_mask: memref<" + attnMask + ">, ";
  if (hasSinkLogits)
    text += "%sinks: memref<?xf32>, ";
  if (hasKvLen)
    text += "%len: memref<?xi32>, ";
  if (hasQLen)
    text += "%q_len: memref<?xi32>, ";
  if (hasLeftpad)
    text += "%leftpad: memref<?xi32>, ";
  return text + symbolMask.parameters();
}

std::string Features::attributeClauses() const {
  return softcap.empty() ? "" : "softcap(" + softcap + ")";
}

std::string Features::operandClauses() const {
  std::string text;
  if (!bias.empty())
    text += " bias(%bias : memref<" + bias + ">)";
  if (!attnMask.empty())
    text += " attn_mask(%attn_mask : memref<" + attnMask + ">)";
  if (hasSinkLogits)
    text += " sink_logits(%sinks : memref<?xf32>)";
  if (hasKvLen)
    text += " kv_len(%len : memref<?xi32>)";
  if (hasQLen)
    text += " q_len(%q_len : memref<?xi32>)";
  if (isPacked)
    text += " cu_seqlens_q(%starts_q : memref<?xi32>)";
  if (isPacked && !pageRows)
    text += " cu_seqlens_k(%starts_k : memref<?xi32>)";
  if (pageRows)
    text += " page_table(%table : memref<?x?xi32>)";
  if (hasLeftpad)
    text += " leftpad_k(%leftpad : memref<?xi32>)";
  if (hasOffset)
    text += " offset(%offset)";
  text += symbolMask.operandClauses();
  if (scoreMod)
    text += "\n    score_mod {\n    ^bb0(%s: f32, %b: index, %h: index, %p: index, %k: index):"
            "\n      %one = arith.constant 1 : index" +
            scoreMods[scoreMod].text.str() + "\n      flashattn.yield %y : f32\n    }";
  return text;
}

/// Element (b, h, row, k) of a tensor that is broadcastable to the scores.
static int64_t getPlace(const HostTensor &tensor, int64_t b, int64_t h, int64_t row, int64_t k) {
  ArrayRef<int64_t> shape = tensor.getShape();
  int64_t place = 0;
  for (auto [index, size] : llvm::zip_equal(std::array<int64_t, 4>{b, h, row, k}, shape))
    place = place * size + (size == 1 ? 0 : index);
  return place;
}

void flashattn::hideBlocks(HostTensor &attnMask, std::mt19937 &random) {
  auto pick = [&](ArrayRef<int64_t> choices) { return choices[random() % choices.size()]; };
  int64_t rows = pick({1, 16, 64, 100, 192, 256}), keys = pick({16, 48, 64, 96, 128, 256});
  ArrayRef<int64_t> shape = attnMask.getShape();
  for (int64_t head = 0; head < shape[0] * shape[1]; ++head)
    for (int64_t row = 0; row < shape[2]; row += rows)
      for (int64_t key = 0; key < shape[3]; key += keys) {
        // One in four is left as it is.
        unsigned kind = random() % 4;
        if (kind == 0)
          continue;
        for (int64_t i = row; i < std::min(shape[2], row + rows); ++i)
          for (int64_t j = key; j < std::min(shape[3], key + keys); ++j)
            attnMask.set((head * shape[2] + i) * shape[3] + j, kind == 1);
      }
}

/// Hides keys by numbers in a bias, row by row; `isF32`: of an attention in f32.
static void hideByNumbers(HostTensor &bias, bool isF32, std::mt19937 &random) {
  auto pick = [&](ArrayRef<double> choices) { return choices[random() % choices.size()]; };
  constexpr double kInf = std::numeric_limits<double>::infinity();
  Scalar type = bias.getScalar();
  double least = type == Scalar::F16    ? -65504
                 : type == Scalar::BF16 ? -3.3895313892515355e38
                                        : -std::numeric_limits<float>::max();
  // Beside these a score is nothing. Other numbers leave a part of it, which f32 rounds.
  SmallVector<double> absorbing, numbers = {-kInf};
  if (type != Scalar::F16)
    absorbing = {least, -1e9, -3e38, 3e38, 1e9, -1e20};
  numbers.append(absorbing);
  if (!isF32)
    numbers.append({-1e4, least});
  int64_t keys = bias.getShape()[3];
  for (int64_t begin = 0; begin < bias.getNumElements(); begin += keys) {
    unsigned kind = random() % 4;
    if (kind == 0)
      continue;
    // What all keys have leaves nothing but rounded scores, unless it absorbs them.
    if (kind == 1 || keys == 1) {
      double number = absorbing.empty() ? 0 : pick(absorbing);
      for (int64_t k = 0; k < keys; ++k)
        bias.set(begin + k, number);
      continue;
    }
    double number = pick(numbers);
    int64_t from = random() % keys, to = from + random() % (keys - from) + 1;
    for (int64_t k = 0; k < keys; ++k)
      if (kind == 2 ? from <= k && k < to : random() % 3 == 0)
        bias.set(begin + k, kind == 2 ? number : pick(numbers));
  }
}

void flashattn::makeLarge(const OpOfFunction &op, std::mt19937 &random,
                          MutableArrayRef<HostTensor> arguments) {
  HostTensor &q = arguments[*op.getArgument("q")], &k = arguments[*op.getArgument("k")];
  bool isF16 = q.getScalar() == Scalar::F16;
  if (std::optional<unsigned> bias = op.getArgument("bias"))
    return hideByNumbers(arguments[*bias], /*isF32=*/q.getScalar() == Scalar::F32, random);
  // Sums of 256 products of these are exact.
  const int mostExponent = isF16 ? 5 : 59;
  double factor = std::ldexp(1.0, random() % (mostExponent + 1));
  for (HostTensor *tensor : {&q, &k})
    for (int64_t i = 0; i < tensor->getNumElements(); ++i)
      tensor->set(i, (int(random() % 5) - 2) * factor);
}

void flashattn::plantNaN(const OpOfFunction &op, const AttentionProblem &problem, bool listsTiles,
                         MutableArrayRef<HostTensor> arguments) {
  constexpr int64_t kTile = 256; // any schedule's tile_n or more
  const HostTensor *attnMask = listsTiles ? problem.getOperand("attn_mask") : nullptr;
  std::optional<unsigned> biasArgument = op.getArgument("bias");
  bool varies = !problem.perQuery.empty() || !problem.perKey.empty();
  int64_t seeingHeads = varies ? problem.queryHeads : 1;
  // Y2: with symbols, tiles without a visible pair may be visited.
  bool visitsOthers = (varies || !problem.perSequence.empty()) && mayCountMoreRows(problem);
  constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();
  for (int64_t b = 0; b < problem.batch; ++b) {
    llvm::BitVector existing(problem.numKeys), seen(problem.numKeys),
        kept(problem.numKeys, !attnMask);
    for (int64_t row = 0; row < problem.numQueries; ++row) {
      for (int64_t h = 0; h < seeingHeads; ++h)
        for (KeyInterval interval : getVisibleKeys(problem, row, b, h))
          seen.set(interval.begin, interval.end);
      for (int64_t k = 0; k < problem.numKeys; ++k)
        for (int64_t h = 0; h < problem.queryHeads && !kept[k]; ++h)
          if (attnMask->get(getPlace(*attnMask, b, h, row, k)))
            kept.set(k);
    }
    auto setRow = [&](StringRef name, int64_t heads, int64_t length, int64_t width, int64_t row) {
      std::optional<unsigned> argument = op.getArgument(name);
      for (int64_t h = 0; argument && h < heads; ++h) {
        int64_t start = getRowStart(problem.isBSHD, b, h, row, heads, length, width);
        for (int64_t d = 0; d < width; ++d)
          arguments[*argument].set(start + d, kNaN);
      }
    };
    for (const AttentionProblem::Sequence &of : problem.getSequences(b))
      if (of.numKeys)
        existing.set(of.firstKey, of.firstKey + of.numKeys);
    CountedRows counted = getCountedRows(problem, b);
    bool isBackward = op.getArgument("d_o").has_value();
    for (int64_t row = 0; row < problem.numQueries; ++row) {
      if (isBackward ? counted.queries[row] : problem.getSequence(b, row).has_value())
        continue;
      setRow("q", problem.queryHeads, problem.numQueries, problem.dim, row);
      if (!isBackward)
        continue;
      for (StringRef name : {"o", "d_o"})
        setRow(name, problem.queryHeads, problem.numQueries, problem.valueDim, row);
      for (int64_t h = 0; h < problem.queryHeads; ++h)
        arguments[*op.getArgument("lse")].set(
            (b * problem.queryHeads + h) * problem.numQueries + row, kNaN);
    }
    // A tile is read that has a pair which the mask shows and one which `attn_mask` does.
    auto mayBeRead = [&](int64_t k) {
      if (!counted.keys[k])
        return false;
      int64_t begin = std::max<int64_t>(0, k - kTile + 1),
              end = std::min(problem.numKeys, k + kTile);
      bool isSeen = visitsOthers || seen.find_first_in(begin, end) != -1;
      return isSeen && kept.find_first_in(begin, end) != -1;
    };
    for (int64_t k = 0; k < problem.numKeys; ++k) {
      if (existing[k] && mayBeRead(k))
        continue;
      setRow("k", problem.keyHeads, problem.numKeys, problem.dim, k);
      setRow("v", problem.keyHeads, problem.numKeys, problem.valueDim, k);
      if (existing[k] || !biasArgument)
        continue;
      HostTensor &bias = arguments[*biasArgument];
      ArrayRef<int64_t> shape = bias.getShape();
      if (shape[0] != problem.batch || shape[3] != problem.numKeys)
        continue;
      int64_t rows = shape[1] * shape[2];
      for (int64_t row = 0; row < rows; ++row)
        bias.set((b * rows + row) * shape[3] + k, kNaN);
    }
  }
}

void flashattn::plantInPages(const OpOfFunction &op, const AttentionProblem &problem,
                             MutableArrayRef<HostTensor> arguments) {
  HostTensor &table = arguments[*op.getArgument("page_table")];
  std::optional<unsigned> leftpad = op.getArgument("leftpad_k");
  int64_t columns = table.getShape()[1], heads = problem.keyHeads;
  ArrayRef<int64_t> shape = arguments[*op.getArgument("k")].getShape();
  int64_t pool = shape[0], pageRows = shape[problem.isBSHD ? 1 : 2];
  llvm::BitVector counted(pool * pageRows), seen(table.getNumElements());
  for (int64_t batch = 0; batch < problem.batch; ++batch) {
    llvm::BitVector keys = getCountedRows(problem, batch).keys;
    for (const AttentionProblem::Sequence &of : problem.getSequences(batch)) {
      int64_t most = columns * pageRows;
      int64_t first = leftpad ? std::clamp<int64_t>(arguments[*leftpad].get(of.b), 0, most) : 0;
      auto getEntry = [&](int64_t k) {
        return of.b * columns + (first + k - of.firstKey) / pageRows;
      };
      auto see = [&](KeyInterval interval) {
        for (int64_t k = interval.begin; k < interval.end; ++k)
          seen.set(getEntry(k));
      };
      if (mayCountMoreRows(problem))
        see({of.firstKey, of.firstKey + of.numKeys});
      for (int64_t row = 0; row < of.numQueries; ++row)
        for (KeyInterval interval : getVisibleKeys(problem, of.firstQuery + row, batch, /*h=*/0))
          see(interval);
      for (int64_t k = of.firstKey; k < of.firstKey + of.numKeys; ++k)
        if (keys[k] && seen[getEntry(k)])
          counted.set(int64_t(table.get(getEntry(k))) * pageRows +
                      (first + k - of.firstKey) % pageRows);
    }
  }
  for (StringRef name : {"k", "v"}) {
    HostTensor &tensor = arguments[*op.getArgument(name)];
    int64_t width = tensor.getShape().back();
    for (int64_t row = 0; row < pool * pageRows; ++row)
      for (int64_t h = 0; h < heads && !counted[row]; ++h) {
        int64_t start =
            getRowStart(problem.isBSHD, row / pageRows, h, row % pageRows, heads, pageRows, width);
        for (int64_t d = 0; d < width; ++d)
          tensor.set(start + d, std::numeric_limits<double>::quiet_NaN());
      }
  }
  const double wrong[] = {-1, double(pool), double(pool + 7), -2147483648.0, 2147483647.0};
  for (int64_t entry = 0; entry < table.getNumElements(); ++entry)
    if (!seen[entry])
      table.set(entry, wrong[entry % std::size(wrong)]);
}
