//===- EmitScores.cpp - bias, mask, factors and score_mod of the op -------===//

#include "AttentionEmitter.h"
#include "mlir/Dialect/Math/IR/Math.h"
#include "mlir/Dialect/Tensor/IR/Tensor.h"
#include <cmath>

using namespace mlir;
using namespace mlir::flashattn;

/// Whether `x` can be computed from its loads for the digits of `roles`.
bool AttentionEmitter::isMadeOf(Element *x, const Roles &roles) {
  SmallVector<Element *> loads;
  collectLoads(x, loads);
  return llvm::all_of(loads, [&](Element *load) {
    llvm::SmallSetVector<unsigned, 8> used;
    for (AffineExpr index : load->indices)
      exprs.collectVariables(index, used);
    return exprs.isLinear(load) && llvm::all_of(used, [&](unsigned variable) {
             return llvm::any_of(roles,
                                 [&](auto &role) { return llvm::is_contained(role, variable); });
           });
  });
}

/// Returns the last element behind views in `x` that can be computed for `roles`, or null.
Element *AttentionEmitter::findSource(Element *x, const Roles &roles) {
  Element *source = nullptr;
  for (Element *next = x; next; next = exprs.expand(next)) {
    if ((next == x || next->kind == Element::Kind::Load) && isMadeOf(next, roles))
      source = next;
    if (next->kind != Element::Kind::Load)
      break;
  }
  return source;
}

Value AttentionEmitter::makeOperand(Element *x, const Roles &roles, bool negated) {
  if (x->kind == Element::Kind::Load && !negated)
    return gather(x, roles);
  return compute(x, roles, negated);
}

Value AttentionEmitter::makeBias() {
  // The position argument of a score_mod must be the index of the query.
  bool isPosition =
      !mask.offset && (mask.align == Align::TopLeft ||
                       getExtent(exprs, match.dims.query) == getExtent(exprs, match.dims.key));
  llvm::erase_if(biases, [&](Term &bias) {
    Element *x = exprs.force(bias.element);
    if (!isPosition || mask.lengths || !x->type.isF32() || x->kind == Element::Kind::Const ||
        !isComputed(x))
      return false;
    scoreMods.push_back({x, bias.factor});
    return true;
  });
  if (biases.empty())
    return {};
  Element *first = findSource(biases[0].element, pairRoles(biases[0].element));
  if (biases.size() == 1 && std::abs(biases[0].factor) == 1)
    return makeOperand(first, pairRoles(first), biases[0].factor < 0);
  Type f32 = rewriter.getF32Type();
  Element *sum = nullptr;
  for (Term bias : biases) {
    Element *x = findSource(bias.element, pairRoles(bias.element));
    if (!x->type.isF32())
      x = exprs.makeOp("arith.extf", f32, {x});
    if (bias.factor != 1)
      x = exprs.makeOp("arith.mulf", f32,
                       {x, exprs.makeConstant(rewriter.getF32FloatAttr(bias.factor), f32)});
    sum = sum ? exprs.makeOp("arith.addf", f32, {sum, x}) : x;
  }
  return makeOperand(sum, pairRoles(sum), false);
}

Value AttentionEmitter::makeAttnMask() {
  Element *all = nullptr;
  bool hides = false;
  Type i1 = rewriter.getI1Type();
  Element *truth = exprs.makeConstant(rewriter.getBoolAttr(true), i1);
  auto flip = [&](Element *x) { return exprs.makeOp("arith.xori", i1, {x, truth}); };
  for (auto [value, shows] : mask.others) {
    Element *x = findSource(value, pairRoles(value));
    if (!all) {
      all = x;
      hides = !shows;
    } else if (hides) {
      all = exprs.makeOp("arith.ori", i1, {all, shows ? flip(x) : x});
    } else {
      all = exprs.makeOp("arith.andi", i1, {all, shows ? x : flip(x)});
    }
  }
  return all ? makeOperand(all, pairRoles(all), hides) : Value();
}

/// Returns the dimensions of an operand that gives a symbol its values.
Roles AttentionEmitter::symbolRoles(Element *x, RaisedMask::SymbolKind kind) {
  Roles used = pairRoles(x);
  if (kind == RaisedMask::PerSequence)
    return {used[0]};
  bool isQuery = kind == RaisedMask::PerQuery;
  if (!isQuery && !used[1].empty())
    used[1] = match.dims.head;
  return {used[0], used[1], isQuery ? match.dims.query : match.dims.key};
}

SmallVector<Value> AttentionEmitter::makeSymbols(RaisedMask::SymbolKind kind) {
  return llvm::map_to_vector(mask.symbols[kind], [&](Element *x) {
    return makeOperand(x, symbolRoles(x, kind), /*negated=*/false);
  });
}

Value AttentionEmitter::makeSink() {
  if (!match.sink)
    return {};
  SmallVector<unsigned> heads(match.dims.head);
  llvm::append_range(heads, match.dims.group);
  Element *source = findSource(match.sink, {heads});
  return convert(makeOperand(source, {heads}, false), rewriter.getF32Type());
}

/// Extracts the single element of a leaf that is the same for all scores.
Value AttentionEmitter::extractScalar(Element *leaf) {
  if (leaf->kind != Element::Kind::Load)
    return leaf->value;
  SmallVector<Value> indices;
  for (AffineExpr index : leaf->indices)
    indices.push_back(arith::ConstantIndexOp::create(
        rewriter, loc, cast<AffineConstantExpr>(exprs.simplify(index)).getValue()));
  return tensor::ExtractOp::create(rewriter, loc, leaf->value, indices);
}

Value AttentionEmitter::toIndex(Value value) {
  Type index = rewriter.getIndexType();
  return value.getType() == index ? value : arith::IndexCastOp::create(rewriter, loc, index, value);
}

/// Whether a bias depends only on positions and scalars, so that a score_mod can compute it.
bool AttentionEmitter::isComputed(Element *x) {
  return allParts(x, [](Element *part) {
    if (part->kind == Element::Kind::Scalar)
      return part->type.isF32() || part->type.isIntOrIndex();
    return part->kind != Element::Kind::Load && part->kind != Element::Kind::Reduce;
  });
}

/// Whether a factor is positive for all inputs.
static bool isAboveZero(const RunTimeFactor &factor) {
  Element *x = factor.value;
  while (x->isFloatCast())
    x = x->operands[0];
  return x->is(factor.divides ? "math.sqrt" : "math.rsqrt");
}

/// Creates one factor, in f32, before the op.
Value AttentionEmitter::emitFactor(const RunTimeFactor &factor) {
  SmallVector<Element *> loads;
  collectLoads(factor.value, loads);
  SmallVector<Value> scalars;
  for (Element *load : loads)
    scalars.push_back(extractScalar(load));
  Value value =
      emit(rewriter, factor.value, loads, scalars, [](unsigned) -> Value { return nullptr; });
  Type f32 = rewriter.getF32Type();
  if (value.getType() != f32)
    value = arith::ExtFOp::create(rewriter, loc, f32, value);
  if (!factor.divides)
    return value;
  Value one = arith::ConstantOp::create(rewriter, loc, rewriter.getF32FloatAttr(1));
  return arith::DivFOp::create(rewriter, loc, one, value);
}

/// Returns the op's scale if run-time factors are part of it. If any factor may be 0 or less, a
/// score_mod applies the factors instead, and the softcap if a factor precedes it.
Value AttentionEmitter::emitFactors() {
  bool isScale = llvm::all_of(match.factors, [](const RunTimeFactor &factor) {
    return isAboveZero(factor) && !factor.isBehindCap;
  });
  Value scale;
  for (const RunTimeFactor &factor : match.factors) {
    Value value = emitFactor(factor);
    if (!isScale)
      (factor.isBehindCap ? factors : cappedFactors).push_back(value);
    else
      scale = scale ? arith::MulFOp::create(rewriter, loc, scale, value).getResult() : value;
  }
  if (!scale || std::abs(match.scale - 1) <= 1e-6)
    return scale;
  Value constant = arith::ConstantOp::create(rewriter, loc, rewriter.getF32FloatAttr(match.scale));
  return arith::MulFOp::create(rewriter, loc, scale, constant);
}

/// Multiplies `score` by the factors, with the softcap between those before and after it.
Value AttentionEmitter::emitFactors(Value score) {
  auto multiply = [&](Value factor) {
    score = arith::MulFOp::create(rewriter, loc, score, factor);
  };
  llvm::for_each(cappedFactors, multiply);
  if (match.softcap && !cappedFactors.empty()) {
    auto number = [&](double value) {
      return arith::ConstantOp::create(rewriter, loc, rewriter.getF32FloatAttr(value));
    };
    multiply(number(1 / *match.softcap));
    score = math::TanhOp::create(rewriter, loc, score);
    multiply(number(*match.softcap));
  }
  llvm::for_each(factors, multiply);
  return score;
}

void AttentionEmitter::emitScoreMod(AttentionOp op) {
  OpBuilder::InsertionGuard guard(rewriter);
  Region &region = op.getScoreMods()[0];
  Type f32 = rewriter.getF32Type(), index = rewriter.getIndexType();
  Block *block = rewriter.createBlock(&region, {}, {f32, index, index, index, index},
                                      SmallVector<Location>(5, loc));
  llvm::DenseMap<unsigned, Value> values;
  auto setDigits = [&](ArrayRef<unsigned> digits, Value argument) {
    // Splits an index into digits; the last digit varies fastest.
    for (unsigned digit : llvm::reverse(digits)) {
      Value extent = arith::ConstantIndexOp::create(rewriter, loc, exprs.getExtent(digit));
      bool isFirst = digit == digits.front();
      values[digit] =
          isFirst ? argument : arith::RemSIOp::create(rewriter, loc, argument, extent).getResult();
      if (!isFirst)
        argument = arith::DivSIOp::create(rewriter, loc, argument, extent);
    }
  };
  SmallVector<unsigned> heads(match.dims.head);
  llvm::append_range(heads, match.dims.group);
  setDigits(match.dims.batch, block->getArgument(1));
  setDigits(heads, block->getArgument(2));
  setDigits(match.dims.query, block->getArgument(3));
  setDigits(match.dims.key, block->getArgument(4));
  Value score = emitFactors(block->getArgument(0));
  for (auto [bias, factor] : scoreMods) {
    Value value = emit(rewriter, bias, {}, {}, [&](unsigned digit) { return values[digit]; });
    if (std::abs(factor) != 1) {
      Value number =
          arith::ConstantOp::create(rewriter, loc, rewriter.getF32FloatAttr(std::abs(factor)));
      value = arith::MulFOp::create(rewriter, loc, value, number);
    }
    score = factor < 0 ? arith::SubFOp::create(rewriter, loc, score, value).getResult()
                       : arith::AddFOp::create(rewriter, loc, score, value).getResult();
  }
  YieldOp::create(rewriter, loc, score);
}
