//===- MaskSymbols.cpp - what an op knows of its mask's symbols -----------===//

#include "MaskBounds.h"
#include "flashattn/Dialect/FlashAttn/IR/FlashAttn.h"

using namespace mlir;
using namespace mlir::flashattn;

SmallVector<SymbolKnowledge> SymbolValues::getKnowledge() const {
  return llvm::map_to_vector(others, [](const SymbolRange &range) {
    return !range.isKnown()  ? SymbolKnowledge::Nothing
           : range.isValue() ? SymbolKnowledge::Value
                             : SymbolKnowledge::Range;
  });
}

SmallVector<SymbolKnowledge> flashattn::getSymbolKnowledge(AttentionOpInterface op, TileAxis axis) {
  SmallVector<SymbolKnowledge> known(op.getPerSequence().size(), SymbolKnowledge::Value);
  bool areKeysTiled = axis == TileAxis::Keys;
  known.append(op.getPerQuery().size(),
               areKeysTiled ? SymbolKnowledge::Range : SymbolKnowledge::Nothing);
  known.append(op.getPerKey().size(),
               areKeysTiled ? SymbolKnowledge::Nothing : SymbolKnowledge::Range);
  return known;
}

SymbolChange bounds::getChange(const FlatSet &set, unsigned column) {
  auto isUsed = [&](const Row &row) { return row[column] != 0; };
  bool rises = false, falls = false;
  for (const Row &row : set.inequalities) {
    rises |= row[column] > 0;
    falls |= row[column] < 0;
  }
  if ((rises && falls) || llvm::any_of(set.equalities, isUsed) ||
      llvm::any_of(set.dividends, isUsed))
    return SymbolChange::Unknown;
  return rises ? SymbolChange::Grows : falls ? SymbolChange::Shrinks : SymbolChange::None;
}

SymbolChange flashattn::getSymbolChange(IntegerSet set, unsigned i) {
  bounds::FlatSet flat = bounds::flatten(set, TileAxis::Keys);
  return flat.complete ? bounds::getChange(flat, flat.columns.getSymbol(i)) : SymbolChange::Unknown;
}

// M3
void flashattn::remarkInexactTiles(AttentionOpInterface op, int64_t tile, TileAxis axis) {
  if (!TileIntervalPlan(op.getVisibleSets(), axis, tile, getSymbolKnowledge(op, axis)).isExact())
    op->emitRemark() << "tiles of " << tile << (axis == TileAxis::Keys ? " keys" : " queries")
                     << " may be visited without a visible pair under mask " << *op.getMask();
}
