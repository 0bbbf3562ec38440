//===- RowMaps.cpp - where the rows of a sequence are in memory -----------===//

#include "flashattn/Dialect/FlashAttn/IR/FlashAttn.h"
#include "llvm/Support/CheckedArithmetic.h"

using namespace mlir;
using namespace mlir::flashattn;

Value DenseRowsOp::getBegin() { return getFrom(); }
Value DenseRowsOp::getEnd() { return getBelow(); }
SmallVector<RowSegment> DenseRowsOp::getSegments() { return {}; }
std::optional<int64_t> DenseRowsOp::getGranularity() { return std::nullopt; }
SmallVector<int64_t> DenseRowsOp::getRowShape() { return {}; }
std::optional<PageMap> DenseRowsOp::getPages() { return std::nullopt; }
Value DenseRowsOp::buildWithoutBegin(OpBuilder &builder) {
  return getBelow() ? DenseRowsOp::create(builder, getLoc(), /*from=*/Value(), getBelow())
                    : Value();
}

Value CompactRowsOp::getBegin() { return getFrom(); }
Value CompactRowsOp::getEnd() { return getBelow(); }
SmallVector<RowSegment> CompactRowsOp::getSegments() {
  return llvm::map_to_vector(llvm::zip_equal(getStarts(), getSkips(), getLowerBounds()),
                             [](auto of) {
                               return RowSegment{std::get<0>(of), std::get<1>(of), std::get<2>(of)};
                             });
}
std::optional<int64_t> CompactRowsOp::getGranularity() { return kGranularity; }
SmallVector<int64_t> CompactRowsOp::getRowShape() { return {}; }
std::optional<PageMap> CompactRowsOp::getPages() { return std::nullopt; }
Value CompactRowsOp::buildWithoutBegin(OpBuilder &builder) {
  return CompactRowsOp::create(builder, getLoc(), /*from=*/Value(), getBelow(), getStarts(),
                               getSkips(), getLowerBounds());
}

LogicalResult CompactRowsOp::verify() {
  size_t starts = getStarts().size(), skips = getSkips().size(), bounds = getLowerBounds().size();
  if (starts == 0 || skips != starts || bounds != starts)
    return emitOpError() << "expected a skip and a lower bound for each start but got " << starts
                         << " starts, " << skips << " skips and " << bounds << " lower bounds";
  return success();
}

Value PackedRowsOp::getBegin() { return {}; }
Value PackedRowsOp::getEnd() { return {}; }
SmallVector<RowSegment> PackedRowsOp::getSegments() { return {}; }
std::optional<int64_t> PackedRowsOp::getGranularity() { return std::nullopt; }
SmallVector<int64_t> PackedRowsOp::getRowShape() { return llvm::to_vector(getSizes()); }
std::optional<PageMap> PackedRowsOp::getPages() { return std::nullopt; }
Value PackedRowsOp::buildWithoutBegin(OpBuilder &) { return getRows(); }

LogicalResult PackedRowsOp::verify() {
  std::optional<int64_t> rows = 1;
  for (int64_t size : getSizes())
    rows = rows && size > 0 ? llvm::checkedMul(*rows, size) : std::nullopt;
  if (getSizes().empty() || !rows)
    return emitOpError()
           << "expected one or more positive sizes with a product below 2^63 but got ["
           << getSizes() << "]";
  return success();
}

Value PagedRowsOp::getBegin() { return getFrom(); }
Value PagedRowsOp::getEnd() { return getBelow(); }
SmallVector<RowSegment> PagedRowsOp::getSegments() { return {}; }
std::optional<int64_t> PagedRowsOp::getGranularity() { return getSize(); }
SmallVector<int64_t> PagedRowsOp::getRowShape() { return {}; }
std::optional<PageMap> PagedRowsOp::getPages() {
  return PageMap{getTable(), getSequence(), static_cast<int64_t>(getSize()),
                 getFirst(), getBegins(),   getEnds()};
}
Value PagedRowsOp::buildWithoutBegin(OpBuilder &builder) {
  return PagedRowsOp::create(builder, getLoc(), /*from=*/Value(), getBelow(), getFirst(),
                             getTable(), getSequence(), getSize(), getBegins(), getEnds());
}

LogicalResult PagedRowsOp::verify() {
  if (getBegins().size() != getEnds().size())
    return emitOpError() << "expected an end for each begin of pages but got " << getBegins().size()
                         << " begins and " << getEnds().size() << " ends";
  return success();
}
