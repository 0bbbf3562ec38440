//===- SymbolMasks.h - masks with symbols, drawn at random -------*- C++ -*-===//

#ifndef FLASH_NUMBERS_SYMBOLMASKS_H
#define FLASH_NUMBERS_SYMBOLMASKS_H

#include "Program.h"

#include <random>

namespace mlir::flashattn {

/// A mask whose sets have symbols after nq and nk, and the operands with their values (rules Y1 and
/// Y2). Without symbols, it is no mask.
class SymbolMask {
public:
  /// Draws a mask of 1 to 3 symbols, alone or combined with `other`, the text of a mask.
  /// `isPacked`: the queries are packed. `arePackedKeys`: so are the keys.
  static SymbolMask draw(std::mt19937 &random, StringRef other, bool isPacked, bool arePackedKeys);

  bool isEmpty() const { return symbols.empty(); }
  /// Returns the clause `mask(...)`.
  std::string clause() const { return "mask(" + mask + ")"; }
  std::string name() const;
  /// Parameters of the function, each with a comma behind it.
  std::string parameters() const;
  /// Clauses behind `ins`.
  std::string operandClauses() const;

  /// Fills the operands. Elements of rows that do not exist get arbitrary numbers. `arguments` are
  /// the program's, and `problem` is the one of their sizes and lengths.
  void fill(const OpOfFunction &op, const AttentionProblem &problem, unsigned seed,
            MutableArrayRef<HostTensor> arguments) const;

private:
  friend class SymbolMaskDrawer;
  enum Kind { PerSequence, PerQuery, PerKey };
  /// What the numbers of a symbol mean. Per sequence, they are all numbers around the keys'.
  enum Meaning {
    Place,  ///< any position or key, or a number a little outside
    Sorted, ///< the same, in order
    Start,  ///< the first index of the document that holds the query or key
    End,    ///< the first index behind it
    Id,     ///< its number
    Tree,   ///< the first index behind the subtree of the key, of a tree in preorder
    Width,  ///< a number of keys
    Small,  ///< -3 to 3
  };
  struct Symbol {
    char letter; ///< its name in the sets
    Kind kind;
    Meaning meaning;
    std::string shape; ///< such as "1x?x?"
    /// Whether some elements are the least or greatest numbers of 32 bits, or close to them.
    bool hasExtremes;
  };
  struct Indices;
  static SmallVector<int64_t> drawValues(const Symbol &symbol, const Indices &indices,
                                         std::mt19937 &random);
  static void fillSequence(const Symbol &symbol, const AttentionProblem &problem, int64_t batch,
                           const AttentionProblem::Sequence &of, unsigned seed,
                           std::mt19937 &random, HostTensor &tensor);
  static StringRef getClauseName(Kind kind);

  SmallVector<Symbol, 3> symbols; ///< in the order of the operands
  std::string mask, pattern;
};

} // namespace mlir::flashattn

#endif // FLASH_NUMBERS_SYMBOLMASKS_H
