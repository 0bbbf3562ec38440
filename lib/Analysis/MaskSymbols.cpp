//===- MaskSymbols.cpp - what an op knows of its mask's symbols -----------===//

#include "flashattn/Analysis/MaskTiles.h"
#include "flashattn/Dialect/FlashAttn/IR/FlashAttn.h"
#include "mlir/IR/BuiltinOps.h"

using namespace mlir;
using namespace mlir::flashattn;

bool flashattn::countsAllRows(AttentionOpInterface op, TileAxis axis) {
  // The range is built from unknown values in a scratch module.
  OwningOpRef<ModuleOp> scratch = ModuleOp::create(op->getLoc());
  OpBuilder builder = OpBuilder::atBlockEnd(scratch->getBody());
  SymbolValues symbols;
  auto makeValue = [&]() -> Value {
    return scratch->getBody()->addArgument(builder.getIndexType(), op->getLoc());
  };
  symbols.nq = makeValue();
  symbols.nk = makeValue();
  for (size_t i = 0, e = op.getPerSequence().size(); i < e; ++i) {
    Value value = makeValue();
    symbols.others.push_back({value, value});
  }
  symbols.others.resize(op.countSymbols());
  std::optional<Align> align;
  if (!op.hasOffset())
    align = op.getAlign();
  IndexRange range = buildVisibleRange(builder, op->getLoc(), op.getVisibleSets(), axis,
                                       makeValue(), symbols, align);
  return range.isAll();
}

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

// M3
void flashattn::remarkInexactTiles(AttentionOpInterface op, int64_t tile, TileAxis axis) {
  if (!TileIntervalPlan(op.getVisibleSets(), axis, tile, getSymbolKnowledge(op, axis)).isExact())
    op->emitRemark() << "tiles of " << tile << (axis == TileAxis::Keys ? " keys" : " queries")
                     << " may be visited without a visible pair under mask " << *op.getMask();
}
