//===- Features.h - what shapes scores, drawn at random ----------*- C++ -*-===//

#ifndef FLASH_NUMBERS_FEATURES_H
#define FLASH_NUMBERS_FEATURES_H

#include "SymbolMasks.h"

#include <random>

namespace mlir::flashattn {

/// Operands, attributes and region of one attention beyond its mask (rules A2, A3, A5, A7, M7).
struct Features {
  std::string bias, attnMask; ///< shapes and types as "1x?x?x?xbf16"; empty where left out
  bool hasOffset = false, hasSinkLogits = false, hasKvLen = false;
  bool isPacked = false, hasQLen = false; ///< rules S1 to S4
  int64_t pageRows = 0;    ///< rows of a page (rule P1), 0 for none; only queries are then packed
  bool hasLeftpad = false; ///< rule P3
  std::string softcap;     ///< a number, or empty
  unsigned scoreMod = 0;   ///< number of a score modification of getNumScoreMods(), 0 for none
  /// Of gradients (rules B1, B3 to B5).
  bool hasDLse = false, hasDBias = false, hasDSinkLogits = false, isDeterministic = false;
  SymbolMask symbolMask; ///< instead of the module's mask; empty for none

  static Features draw(std::mt19937 &random);
  /// For makeLarge: leaves out score modifications that would round scores of different keys to
  /// one number, and gives gradients a bias.
  void prepareLarge(bool isBackward);
  /// Packs sequences, limits their queries, or both. Leaves out features that exclude this.
  void pack(std::mt19937 &random);
  /// Puts keys into pages, and packs queries as `pack` does. Leaves out features that exclude this.
  void page(std::mt19937 &random);
  void drawGradients(std::mt19937 &random);
  /// Draws a mask with symbols, after the features that it must fit. `clause` is that of the
  /// module's mask.
  void drawSymbols(std::mt19937 &random, StringRef clause);
  static unsigned getNumScoreMods();

  std::string name() const;
  /// Parameters of the function, each with a comma behind it.
  std::string parameters() const;
  std::string attributeClauses() const;
  /// Clauses behind `ins`.
  std::string operandClauses() const;
};

/// Puts NaN into rows of pages that no query sees, and numbers out of range into entries of the
/// table whose pages no query sees (rule P2). `arguments` are the program's.
void plantInPages(const OpOfFunction &op, const AttentionProblem &problem,
                  MutableArrayRef<HostTensor> arguments);

/// Makes most of `attn_mask` blocks of one value, hidden for the greater part.
void hideBlocks(HostTensor &attnMask, std::mt19937 &random);

/// Makes scores large. Numbers in the bias hide some keys of a row, or all of them; without a bias
/// the products of `q` and `k` grow, and stay exact in f32. Scores reach 3e38 in f32 and bf16, and
/// 6e4 in f16. `arguments` are the program's.
void makeLarge(const OpOfFunction &op, std::mt19937 &random, MutableArrayRef<HostTensor> arguments);

/// Puts NaN where it must not matter: in rows of no sequence (rule S3); in `k`, `v` and the bias at
/// keys past kv_len (rule A7); in `k` and `v` at keys outside the first and the last that any query
/// sees (rule A7), and in tiles that the mask hides from every query (rule M3, except with symbols
/// where other tiles may be visited), or `attn_mask` does (rule M7) where `listsTiles`: neither the
/// gradients do, nor programs of a part of the keys; and in `q`, `o`, `d_o` and `lse` at queries
/// outside the first and the last that see any key. `arguments` are the program's.
void plantNaN(const OpOfFunction &op, const AttentionProblem &problem, bool listsTiles,
              MutableArrayRef<HostTensor> arguments);

} // namespace mlir::flashattn

#endif // FLASH_NUMBERS_FEATURES_H
