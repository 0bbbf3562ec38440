//===- Spaces.cpp - the work items of programs ----------------------------===//

#include "Spaces.h"
#include "mlir/IR/OpImplementation.h"

using namespace mlir;
using namespace mlir::flashattn;

ParseResult mlir::flashattn::parseProgramAxes(OpAsmParser &parser, ArrayAttr &axes) {
  Builder &builder = parser.getBuilder();
  SmallVector<Attribute> parsed;
  auto parseAxis = [&]() -> ParseResult {
    SMLoc loc = parser.getCurrentLocation();
    StringRef keyword;
    if (parser.parseKeyword(&keyword))
      return failure();
    std::optional<ProgramAxis> axis = symbolizeProgramAxis(keyword);
    if (!axis)
      return parser.emitError(loc)
             << "expected batch, head, query_tile, column_tile or key_tile but got '" << keyword
             << "'";
    parsed.push_back(ProgramAxisAttr::get(builder.getContext(), *axis));
    return success();
  };
  if (parser.parseCommaSeparatedList(parseAxis))
    return failure();
  axes = builder.getArrayAttr(parsed);
  return success();
}

static void printAxes(llvm::raw_ostream &out, ArrayAttr axes) {
  llvm::interleaveComma(axes.getAsRange<ProgramAxisAttr>(), out,
                        [&](ProgramAxisAttr axis) { out << stringifyEnum(axis.getValue()); });
}

void mlir::flashattn::printProgramAxes(OpAsmPrinter &printer, Operation *, ArrayAttr axes) {
  printAxes(printer.getStream(), axes);
}

static ArrayAttr makeAxes(Builder &builder, ArrayRef<ProgramAxis> axes) {
  return builder.getArrayAttr(llvm::map_to_vector(axes, [&](ProgramAxis axis) -> Attribute {
    return ProgramAxisAttr::get(builder.getContext(), axis);
  }));
}

static LogicalResult verifySpace(SpaceOpInterface space) {
  size_t count = space.getSizes().size();
  if (count == 0)
    return space->emitOpError() << "expected at least one size";
  if (space.getAxes().size() != count)
    return space->emitOpError() << "expected an axis for each of " << count << " sizes but got "
                                << space.getAxes().size();
  return success();
}

void DenseSpaceOp::build(OpBuilder &builder, OperationState &state, ValueRange sizes,
                         ArrayRef<ProgramAxis> axes) {
  build(builder, state, SpaceType::get(builder.getContext()), sizes, makeAxes(builder, axes));
}

LogicalResult DenseSpaceOp::verify() { return verifySpace(*this); }

void RaggedSpaceOp::build(OpBuilder &builder, OperationState &state, ValueRange sizes,
                          ArrayRef<ProgramAxis> axes, const RaggedAxes &ragged) {
  build(builder, state, SpaceType::get(builder.getContext()), sizes, makeAxes(builder, axes),
        ragged.starts, ragged.tileRows, ragged.segmentTiles, ragged.leastRows);
}

LogicalResult RaggedSpaceOp::verify() {
  if (failed(verifySpace(*this)))
    return failure();
  if (getSizes().size() < 2 ||
      cast<ProgramAxisAttr>(getAxes()[0]).getValue() != ProgramAxis::Batch) {
    InFlightDiagnostic error = emitOpError()
                               << "expected batch as the first of several axes but got (";
    std::string axes;
    llvm::raw_string_ostream stream(axes);
    printAxes(stream, getAxes());
    return error << axes << ")";
  }
  // Their product is a number of rows.
  if (getRows() > INT32_MAX || getTiles() > INT32_MAX / getRows())
    return emitOpError() << "expected at most " << INT32_MAX << " rows in a segment but got "
                         << getTiles() << " tiles of " << getRows() << " rows";
  return success();
}
