//===- AttentionEmitter.h - creation of the attention op --------*- C++ -*-===//

#ifndef LIB_DIALECT_FLASHATTN_TRANSFORMS_RAISE_ATTENTIONEMITTER_H
#define LIB_DIALECT_FLASHATTN_TRANSFORMS_RAISE_ATTENTIONEMITTER_H

#include "AttentionMatch.h"
#include "mlir/Dialect/Arith/IR/Arith.h"

namespace mlir::flashattn {

/// The digits that index each dimension of a tensor.
using Roles = SmallVector<SmallVector<unsigned>>;

/// Creates the op of a match, and the ops that compute its operands.
class AttentionEmitter {
public:
  AttentionEmitter(RewriterBase &rewriter, TensorExprs &exprs, const AttentionMatch &match,
                   const RaisedMask &mask, NearMiss &miss)
      : rewriter(rewriter), exprs(exprs), match(match), mask(mask), miss(miss),
        loc(match.result.getLoc()), context(rewriter.getContext()), biases(match.biases) {
    llvm::append_range(biases, mask.biases);
  }

  bool run();

private:
  AffineExpr linearize(ArrayRef<unsigned> digits);
  bool isDirect(ArrayRef<AffineExpr> indices, const Roles &roles);
  bool isDirectButForOnes(RankedTensorType type, ArrayRef<AffineExpr> indices, const Roles &roles);
  SmallVector<int64_t> findPermutation(ArrayRef<AffineExpr> indices, const Roles &roles);
  OpFoldResult getSize(unsigned digit, ArrayRef<Element *> loads);
  bool isStatic(const Roles &roles);
  Roles rolesOf(ArrayRef<unsigned> heads, ArrayRef<unsigned> rows, ArrayRef<unsigned> columns,
                Layout layout);
  Roles pairRoles(Element *x);
  void collectLoads(Element *x, SmallVectorImpl<Element *> &loads);
  Value gather(Element *x, const Roles &roles);
  Value compute(Element *x, const Roles &roles, bool negated);
  Value makeOperand(Element *x, const Roles &roles, bool negated);
  Value emit(OpBuilder &b, Element *x, ArrayRef<Element *> loads, ValueRange arguments,
             llvm::function_ref<Value(unsigned)> digits);
  Value emit(OpBuilder &b, Element *x, llvm::function_ref<Value(unsigned)> digits,
             llvm::DenseMap<Element *, Value> &made);
  Value emitIndex(OpBuilder &b, AffineExpr expr, llvm::function_ref<Value(unsigned)> digits);
  Value reshape(Value value, ArrayRef<int64_t> shape);
  Value convert(Value value, Type element);
  Value makeFactors(Element *operand, bool isKeys, const Roles &roles);
  Value makeBias();
  Value makeAttnMask();
  Value makeSink();
  Value makeResult(Value o, const Roles &roles, Value replaced, ArrayRef<AffineExpr> indices);
  Layout chooseLayout();
  bool check(Layout layout);
  Value extractScalar(Element *leaf);
  Value toIndex(Value value);
  Value makeOffset();
  Value makeLengths();
  Roles symbolRoles(Element *x, RaisedMask::SymbolKind kind);
  SmallVector<Value> makeSymbols(RaisedMask::SymbolKind kind);
  bool isComputed(Element *x);
  Element *findSource(Element *x, const Roles &roles);
  bool isMadeOf(Element *x, const Roles &roles);
  Value emitFactor(const RunTimeFactor &factor);
  Value emitFactors();
  Value emitFactors(Value score);
  void emitScoreMod(AttentionOp op);

  RewriterBase &rewriter;
  TensorExprs &exprs;
  const AttentionMatch &match;
  const RaisedMask &mask;
  NearMiss &miss;
  Location loc;
  MLIRContext *context;
  SmallVector<Term> biases;
  /// Summands that a score_mod adds or subtracts.
  SmallVector<Term> scoreMods;
  /// Run-time factors after the softcap and before it, by which a score_mod multiplies.
  SmallVector<Value> factors, cappedFactors;
};

} // namespace mlir::flashattn

#endif // LIB_DIALECT_FLASHATTN_TRANSFORMS_RAISE_ATTENTIONEMITTER_H
