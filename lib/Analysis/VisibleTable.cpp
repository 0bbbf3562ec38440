//===- VisibleTable.cpp - the mask of a partial tile from many sets -------===//

#include "VisibleTile.h"
#include "mlir/Dialect/SCF/IR/SCF.h"
#include "llvm/Support/MathExtras.h"

using namespace mlir;
using namespace mlir::flashattn;
using namespace mlir::flashattn::masktile;

SmallVector<Value> MaskBuilder::lookUp(ArrayRef<SmallVector<Linear>> table, Value number,
                                       size_t slots) {
  Type index = builder.getIndexType();
  SmallVector<Type> types(slots * keyExists.size(), index);
  SmallVector<int64_t> cases = llvm::to_vector(llvm::seq<int64_t>(0, table.size() - 1));
  auto chosen = scf::IndexSwitchOp::create(builder, loc, types, number, cases, cases.size());
  OpBuilder::InsertionGuard guard(builder);
  for (auto [i, set] : llvm::enumerate(table)) {
    Region &region = i < cases.size() ? chosen.getCaseRegions()[i] : chosen.getDefaultRegion();
    builder.createBlock(&region);
    SmallVector<Value> values;
    for (size_t slot = 0; slot < slots; ++slot)
      for (int64_t coefficient : slot < set.size() ? set[slot] : Linear(keyExists.size(), 0))
        values.push_back(constant(index, coefficient));
    scf::YieldOp::create(builder, loc, values);
  }
  return llvm::to_vector(ValueRange(chosen.getResults()));
}

Term MaskBuilder::bitsBelow(Term end) {
  Type type = end.value.getType();
  auto splat = [&](int64_t value) { return constant(type, value); };
  Value clamped = make<arith::MinSIOp>(make<arith::MaxSIOp>(end.value, splat(1)), splat(32));
  Value bits = make<arith::ShRUIOp>(splat(-1), make<arith::SubIOp>(splat(32), clamped));
  Value isNone = make<arith::CmpIOp>(arith::CmpIPredicate::sle, end.value, splat(0));
  return {make<arith::SelectOp>(isNone, splat(0), bits), end.shape};
}

std::pair<Term, Term> MaskBuilder::findColumns(ArrayRef<Slot> constraints, Term rowStep,
                                               int64_t columnCount, bool divides) {
  Type i32 = builder.getI32Type();
  auto scalar = [&](Value value) { return Term{value, {}}; };
  auto i32Of = [&](Value value) { return scalar(make<arith::IndexCastOp>(i32, value)); };
  auto number = [&](int64_t value) { return scalar(constant(i32, value)); };
  Term first = number(0), last = number(columnCount - 1);
  for (const Slot &slot : constraints) {
    Term limit = binary<arith::AddIOp>(scalar(slot.base),
                                       binary<arith::MulIOp>(i32Of(slot.rowFactor), rowStep));
    Term factor = i32Of(slot.columnFactor), quotient = limit;
    if (divides) {
      Term size = binary<arith::MaxSIOp>(factor, binary<arith::SubIOp>(number(0), factor));
      quotient = binary<arith::FloorDivSIOp>(limit, binary<arith::MaxSIOp>(size, number(1)));
    }
    Term rises = compare(arith::CmpIPredicate::sgt, factor, number(0));
    Term isFlat = compare(arith::CmpIPredicate::eq, factor, number(0));
    Term holds = compare(arith::CmpIPredicate::sge, limit, number(0));
    Term bound =
        pick(binary<arith::OrIOp>(rises, binary<arith::AndIOp>(isFlat, holds)), last, quotient);
    first = pick(rises, binary<arith::MaxSIOp>(first, binary<arith::SubIOp>(number(0), quotient)),
                 first);
    last = binary<arith::MinSIOp>(last, bound);
  }
  // Clamped to the tile and its neighbours, so that differences fit 32 bits.
  first = binary<arith::MinSIOp>(first, number(columnCount));
  last = binary<arith::MaxSIOp>(last, number(-1));
  return {first, last};
}

Term MaskBuilder::buildTable(ArrayRef<SmallVector<Linear>> table) {
  constexpr int64_t kWordBits = 32;
  bool areRowsQueries = columns == TileAxis::Keys;
  int64_t rowCount = areRowsQueries ? m : n, columnCount = areRowsQueries ? n : m;
  Shape row{areRowsQueries, !areRowsQueries};
  unsigned rowAxis = areRowsQueries ? 0 : 1, columnAxis = 1 - rowAxis;
  Type index = builder.getIndexType(), i32 = builder.getI32Type(), rowType = getType(i32, row);
  auto number = [&](int64_t value) { return Term{constant(i32, value), {}}; };
  size_t slots = 0;
  bool divides = false;
  for (const SmallVector<Linear> &set : table) {
    slots = std::max(slots, set.size());
    for (const Linear &linear : set)
      divides |= std::abs(linear[columnAxis]) > 1;
  }

  // The steps are built before the loop, so that they are computed once.
  Term rowStep = step(areRowsQueries, i32), columnStep = step(!areRowsQueries, i32);
  SmallVector<Value> words(llvm::divideCeil(columnCount, kWordBits), constant(rowType, 0));
  Value zero = constant(index, 0), one = constant(index, 1);
  auto loop = scf::ForOp::create(builder, loc, zero, constant(index, table.size()), one, words);
  {
    OpBuilder::InsertionGuard guard(builder);
    builder.setInsertionPointToStart(loop.getBody());
    SmallVector<Value> coefficients = lookUp(table, loop.getInductionVar(), slots);
    // base + rowFactor i + columnFactor j >= 0 for each slot.
    SmallVector<Slot> constraints;
    const size_t kSize = keyExists.size();
    Value reaches = constant(builder.getI1Type(), 1);
    for (size_t slot = 0; slot < slots; ++slot) {
      ArrayRef<Value> mine = ArrayRef(coefficients).slice(slot * kSize, kSize);
      Value base = mine.back();
      for (unsigned i = 0; i < operands.size(); ++i)
        if (operands[i].getType().isIndex())
          base = make<arith::AddIOp>(base, make<arith::MulIOp>(mine[i], operands[i]));
      constraints.push_back({clamp(base), mine[rowAxis], mine[columnAxis]});
      Value most = base;
      for (auto [factor, last] :
           {std::pair(mine[rowAxis], rowCount - 1), std::pair(mine[columnAxis], columnCount - 1)})
        most = make<arith::AddIOp>(
            most, make<arith::MulIOp>(make<arith::MaxSIOp>(factor, zero), constant(index, last)));
      reaches =
          make<arith::AndIOp>(reaches, make<arith::CmpIOp>(arith::CmpIPredicate::sge, most, zero));
    }
    ValueRange before = loop.getRegionIterArgs();
    auto branch = scf::IfOp::create(builder, loc, before.getTypes(), reaches,
                                    /*withElseRegion=*/true);
    scf::YieldOp::create(builder, loc, branch.getResults());
    builder.setInsertionPointToStart(branch.elseBlock());
    scf::YieldOp::create(builder, loc, before);
    builder.setInsertionPointToStart(branch.thenBlock());
    auto [first, last] = findColumns(constraints, rowStep, columnCount, divides);
    SmallVector<Value> after;
    for (auto [i, word] : llvm::enumerate(before)) {
      Term start = number(i * kWordBits), end = binary<arith::AddIOp>(last, number(1));
      Term inside = bitsBelow(binary<arith::SubIOp>(end, start));
      Term outside = bitsBelow(binary<arith::SubIOp>(first, start));
      Term bits = binary<arith::AndIOp>(inside, binary<arith::XOrIOp>(outside, number(-1)));
      after.push_back(broadcast(binary<arith::OrIOp>({word, row}, bits), row));
    }
    scf::YieldOp::create(builder, loc, after);
  }

  // Selects the bit of each pair from its word.
  Term chosen{loop.getResults().back(), row};
  for (int64_t i = words.size() - 2; i >= 0; --i)
    chosen = pick(compare(arith::CmpIPredicate::slt, columnStep, number((i + 1) * kWordBits)),
                  {loop.getResult(i), row}, chosen);
  Term bit =
      binary<arith::ShRUIOp>(chosen, binary<arith::AndIOp>(columnStep, number(kWordBits - 1)));
  return {make<arith::TruncIOp>(getType(builder.getI1Type(), bit.shape), bit.value), bit.shape};
}
