//===- ProgramOps.cpp - the ops of tile programs --------------------------===//

#include "flashattn/Dialect/FlashAttn/IR/FlashAttn.h"
#include "mlir/IR/Builders.h"
#include "mlir/IR/OpImplementation.h"

using namespace mlir;
using namespace mlir::flashattn;

//===----------------------------------------------------------------------===//
// Programs
//===----------------------------------------------------------------------===//

/// Adds a region of one block with arguments of `types` and, if `terminated`, an empty terminator.
static Block *addBlock(OpBuilder &builder, OperationState &state, TypeRange types,
                       bool terminated) {
  OpBuilder::InsertionGuard guard(builder);
  SmallVector<Location> locations(types.size(), state.location);
  Block *block = builder.createBlock(state.addRegion(), {}, types, locations);
  if (terminated)
    TileYieldOp::create(builder, state.location);
  return block;
}

void ProgramOp::build(OpBuilder &builder, OperationState &state, Value space,
                      ScheduleAttr schedule) {
  state.addOperands(space);
  state.getOrAddProperties<Properties>().schedule = schedule;
  size_t count = space.getDefiningOp<SpaceOpInterface>().getSizes().size();
  addBlock(builder, state, SmallVector<Type>(count, builder.getIndexType()), /*terminated=*/true);
}

void ProgramOp::build(OpBuilder &builder, OperationState &state, ValueRange sizes,
                      ArrayRef<ProgramAxis> axes, ScheduleAttr schedule) {
  build(builder, state, DenseSpaceOp::create(builder, state.location, sizes, axes), schedule);
}

/// Parses `schedule(<...>)` or nothing.
static ParseResult parseOptionalSchedule(OpAsmParser &parser, ScheduleAttr &schedule) {
  if (failed(parser.parseOptionalKeyword("schedule")))
    return success();
  if (parser.parseLParen())
    return failure();
  schedule = dyn_cast_or_null<ScheduleAttr>(ScheduleAttr::parse(parser, Type()));
  return failure(!schedule || parser.parseRParen());
}

static void printSchedule(OpAsmPrinter &printer, ScheduleAttr schedule) {
  printer << " schedule(";
  schedule.print(printer);
  printer << ")";
}

ParseResult ProgramOp::parse(OpAsmParser &parser, OperationState &state) {
  Builder &builder = parser.getBuilder();
  SmallVector<OpAsmParser::Argument> numbers;
  OpAsmParser::UnresolvedOperand space;
  auto &properties = state.getOrAddProperties<Properties>();
  if (parser.parseArgumentList(numbers, OpAsmParser::Delimiter::Paren) ||
      parser.parseKeyword("in") || parser.parseOperand(space) ||
      parser.resolveOperand(space, SpaceType::get(builder.getContext()), state.operands) ||
      parseOptionalSchedule(parser, properties.schedule))
    return failure();
  if (succeeded(parser.parseOptionalKeyword("pdl_secondary")))
    properties.pdl_secondary = builder.getUnitAttr();
  if (succeeded(parser.parseOptionalKeyword("pdl_primary")))
    properties.pdl_primary = builder.getUnitAttr();
  if (succeeded(parser.parseOptionalKeyword("unused_row_half")))
    properties.unused_row_half = builder.getUnitAttr();
  if (parser.parseOptionalAttrDictWithKeyword(state.attributes))
    return failure();
  for (OpAsmParser::Argument &number : numbers)
    number.type = builder.getIndexType();
  Region *region = state.addRegion();
  if (parser.parseRegion(*region, numbers))
    return failure();
  ensureTerminator(*region, builder, state.location);
  return success();
}

void ProgramOp::print(OpAsmPrinter &printer) {
  printer << " (";
  llvm::interleaveComma(getNumbers(), printer);
  printer << ") in " << getSpace();
  if (getScheduleAttr())
    printSchedule(printer, getScheduleAttr());
  if (getPdlSecondary())
    printer << " pdl_secondary";
  if (getPdlPrimary())
    printer << " pdl_primary";
  if (getUnusedRowHalf())
    printer << " unused_row_half";
  printer.printOptionalAttrDictWithKeyword(
      (*this)->getAttrs(), {"schedule", "pdl_secondary", "pdl_primary", "unused_row_half"});
  printer << " ";
  printer.printRegion(getRegion(), /*printEntryBlockArgs=*/false,
                      /*printBlockTerminators=*/false);
}

LogicalResult ProgramOp::verify() {
  SpaceOpInterface space = getSpaceOp();
  if (!space)
    return emitOpError() << "expected a space that an op with SpaceOpInterface defines but got "
                         << getSpace();
  size_t count = space.getSizes().size();
  if (getBody()->getNumArguments() != count ||
      !llvm::all_of(getBody()->getArgumentTypes(), llvm::IsaPred<IndexType>))
    return emitOpError() << "expected an index argument for each of " << count << " sizes but got "
                         << getBody()->getArgumentTypes();
  if (getBody()->getTerminator()->getNumOperands() != 0)
    return emitOpError() << "expected to yield nothing but got "
                         << getBody()->getTerminator()->getOperandTypes();
  return success();
}

void OnThreadsOp::build(OpBuilder &builder, OperationState &state, Value thread,
                        ScheduleAttr schedule) {
  state.addOperands(thread);
  state.getOrAddProperties<Properties>().schedule = schedule;
  addBlock(builder, state, {}, /*terminated=*/true);
}

ParseResult OnThreadsOp::parse(OpAsmParser &parser, OperationState &state) {
  OpAsmParser::UnresolvedOperand thread;
  ScheduleAttr schedule;
  if (parser.parseOperand(thread) ||
      parser.resolveOperand(thread, parser.getBuilder().getIndexType(), state.operands))
    return failure();
  SMLoc loc = parser.getCurrentLocation();
  if (parseOptionalSchedule(parser, schedule))
    return failure();
  if (!schedule)
    return parser.emitError(loc) << "expected schedule(<...>)";
  auto &properties = state.getOrAddProperties<Properties>();
  properties.schedule = schedule;
  if (succeeded(parser.parseOptionalKeyword("unused_row_half")))
    properties.unused_row_half = parser.getBuilder().getUnitAttr();
  Region *region = state.addRegion();
  if (parser.parseOptionalAttrDictWithKeyword(state.attributes) || parser.parseRegion(*region))
    return failure();
  ensureTerminator(*region, parser.getBuilder(), state.location);
  return success();
}

void OnThreadsOp::print(OpAsmPrinter &printer) {
  printer << " " << getThread();
  printSchedule(printer, getScheduleAttr());
  if (getUnusedRowHalf())
    printer << " unused_row_half";
  printer.printOptionalAttrDictWithKeyword((*this)->getAttrs(), {"schedule", "unused_row_half"});
  printer << " ";
  printer.printRegion(getRegion(), /*printEntryBlockArgs=*/false,
                      /*printBlockTerminators=*/false);
}

//===----------------------------------------------------------------------===//
// Loops over tiles
//===----------------------------------------------------------------------===//

void TileLoopOp::build(OpBuilder &builder, OperationState &state, ValueRange bounds, Value list,
                       ValueRange listIndices, Value when, ValueRange inits, Value rounds) {
  state.addOperands(bounds);
  if (rounds)
    state.addOperands(rounds);
  if (list)
    state.addOperands(list);
  state.addOperands(listIndices);
  if (when)
    state.addOperands(when);
  state.addOperands(inits);
  state.addTypes(inits.getTypes());
  auto count = [](size_t n) { return static_cast<int32_t>(n); };
  state.getOrAddProperties<Properties>().setOperandSegmentSizes(
      {count(bounds.size()), rounds ? 1 : 0, list ? 1 : 0, count(listIndices.size()), when ? 1 : 0,
       count(inits.size())});
  SmallVector<Type> types(rounds ? 3 : 2, builder.getIndexType());
  llvm::append_range(types, inits.getTypes());
  addBlock(builder, state, types, /*terminated=*/false);
}

ParseResult TileLoopOp::parse(OpAsmParser &parser, OperationState &state) {
  Builder &builder = parser.getBuilder();
  Type index = builder.getIndexType();
  SmallVector<OpAsmParser::Argument> arguments;
  SmallVector<OpAsmParser::UnresolvedOperand> bounds, listIndices, inits;
  auto parseInterval = [&]() -> ParseResult {
    SmallVector<OpAsmParser::UnresolvedOperand> interval;
    if (parser.parseOperandList(interval, kBoundsPerInterval, OpAsmParser::Delimiter::Paren))
      return failure();
    bounds.append(interval);
    return success();
  };
  SMLoc loc = parser.getCurrentLocation();
  if (parser.parseArgumentList(arguments, OpAsmParser::Delimiter::Paren) ||
      parser.parseKeyword("in") ||
      parser.parseCommaSeparatedList(OpAsmParser::Delimiter::Square, parseInterval) ||
      parser.resolveOperands(bounds, index, state.operands))
    return failure();
  bool hasRounds = succeeded(parser.parseOptionalKeyword("rounds"));
  if (hasRounds) {
    OpAsmParser::UnresolvedOperand rounds;
    if (parser.parseOperand(rounds) || parser.resolveOperand(rounds, index, state.operands))
      return failure();
  }
  if (arguments.size() != (hasRounds ? 3 : 2))
    return parser.emitError(loc) << "expected arguments for the step's position and tile"
                                 << (hasRounds ? " and round" : "") << " but got "
                                 << arguments.size() << " arguments";
  for (OpAsmParser::Argument &argument : arguments)
    argument.type = index;
  bool hasList = succeeded(parser.parseOptionalKeyword("list"));
  if (hasList) {
    OpAsmParser::UnresolvedOperand list;
    Type type;
    if (parser.parseLParen() || parser.parseOperand(list) ||
        parser.parseOperandList(listIndices, OpAsmParser::Delimiter::Square) ||
        parser.parseColonType(type) || parser.parseRParen() ||
        parser.resolveOperand(list, type, state.operands) ||
        parser.resolveOperands(listIndices, index, state.operands))
      return failure();
  }
  bool hasWhen = succeeded(parser.parseOptionalKeyword("when"));
  if (hasWhen) {
    OpAsmParser::UnresolvedOperand when;
    if (parser.parseOperand(when) ||
        parser.resolveOperand(when, builder.getI1Type(), state.operands))
      return failure();
  }
  SmallVector<OpAsmParser::Argument> carried;
  SMLoc initsLoc = parser.getCurrentLocation();
  if (succeeded(parser.parseOptionalKeyword("iter_args"))) {
    if (parser.parseAssignmentList(carried, inits) || parser.parseArrowTypeList(state.types))
      return failure();
    if (carried.size() != state.types.size())
      return parser.emitError(initsLoc)
             << "expected " << carried.size() << " types but got " << state.types.size();
    for (auto [argument, type] : llvm::zip_equal(carried, state.types))
      argument.type = type;
  }
  if (parser.resolveOperands(inits, state.types, initsLoc, state.operands) ||
      parser.parseOptionalAttrDictWithKeyword(state.attributes))
    return failure();
  auto count = [](size_t n) { return static_cast<int32_t>(n); };
  state.getOrAddProperties<Properties>().setOperandSegmentSizes(
      {count(bounds.size()), hasRounds ? 1 : 0, hasList ? 1 : 0, count(listIndices.size()),
       hasWhen ? 1 : 0, count(inits.size())});
  arguments.append(carried);
  Region *region = state.addRegion();
  if (parser.parseRegion(*region, arguments))
    return failure();
  ensureTerminator(*region, builder, state.location);
  return success();
}

void TileLoopOp::print(OpAsmPrinter &printer) {
  printer << " (" << getPlace() << ", " << getTile();
  if (getRound())
    printer << ", " << getRound();
  printer << ") in [";
  llvm::interleaveComma(llvm::seq(0u, getNumIntervals()), printer,
                        [&](unsigned i) { printer << "(" << getInterval(i) << ")"; });
  printer << "]";
  if (getRounds())
    printer << " rounds " << getRounds();
  if (getList())
    printer << " list(" << getList() << "[" << getListIndices() << "] : " << getList().getType()
            << ")";
  if (getWhen())
    printer << " when " << getWhen();
  if (!getInits().empty()) {
    printer << " iter_args(";
    llvm::interleaveComma(llvm::zip_equal(getState(), getInits()), printer, [&](auto pair) {
      printer << std::get<0>(pair) << " = " << std::get<1>(pair);
    });
    printer << ")";
    printer.printArrowTypeList(getResultTypes());
  }
  printer.printOptionalAttrDictWithKeyword((*this)->getAttrs(), {"operandSegmentSizes"});
  printer << " ";
  printer.printRegion(getRegion(), /*printEntryBlockArgs=*/false,
                      /*printBlockTerminators=*/!getInits().empty());
}

/// Verifies that each stage that lags is placed behind a stage that does not lag.
static LogicalResult verifyStages(TileLoopOp loop) {
  // The first stage of a step has no op.
  SmallVector<bool> lags = {false};
  for (auto stage : loop.getBody()->getOps<StageOp>())
    lags.push_back(stage.getLag() != 0);
  for (auto stage : loop.getBody()->getOps<StageOp>()) {
    int64_t behind = stage.getBehind();
    if (stage.getLag() == 0 && behind != 0)
      return stage.emitOpError() << "expected 'lag' 1 for 'behind' " << behind << " but got 0";
    if (behind < 0 || behind >= static_cast<int64_t>(lags.size()) || lags[behind])
      return stage.emitOpError()
             << "expected 'behind' to be the number of a stage without a lag, from 0 to "
             << lags.size() - 1 << ", but got " << behind;
  }
  return success();
}

LogicalResult TileLoopOp::verify() {
  if (getBounds().empty() || getBounds().size() % kBoundsPerInterval != 0)
    return emitOpError() << "expected " << kBoundsPerInterval
                         << " bounds for each interval but got " << getBounds().size();
  SmallVector<Type> expected(getRounds() ? 3 : 2, IndexType::get(getContext()));
  llvm::append_range(expected, getInits().getTypes());
  if (TypeRange(getBody()->getArgumentTypes()) != TypeRange(expected))
    return emitOpError() << "expected arguments of the types " << expected << " but got "
                         << getBody()->getArgumentTypes();
  if (failed(verifyStages(*this)))
    return failure();
  if (getYielded().getTypes() != getResultTypes() || getInits().getTypes() != getResultTypes())
    return emitOpError() << "expected the types of the initial state, " << getInits().getTypes()
                         << ", for yielded values and results but got " << getYielded().getTypes()
                         << " and " << getResultTypes();
  if (!getList())
    return getListIndices().empty()
               ? success()
               : LogicalResult(emitOpError() << "expected no indices without a list");
  auto list = cast<MemRefType>(getList().getType());
  if (!list.getElementType().isInteger(32) ||
      list.getRank() != static_cast<int64_t>(getListIndices().size()) + 1)
    return emitOpError() << "expected an i32 list of rank " << getListIndices().size() + 1
                         << ", one more than the number of its indices, but got " << list;
  return success();
}

LogicalResult TileMaskOp::verify() {
  TypeRange yielded = getBody()->getTerminator()->getOperandTypes();
  if (yielded.size() != 1 || yielded.front() != getShown().getType())
    return emitOpError() << "expected to yield " << getShown().getType() << " but got " << yielded;
  if (!(*this)->getParentOfType<TileLoopOp>())
    return emitOpError() << "expected an enclosing 'flashattn.tile_loop'";
  return success();
}

//===----------------------------------------------------------------------===//
// Online softmax
//===----------------------------------------------------------------------===//

void SoftmaxStepOp::build(OpBuilder &b, OperationState &state, Value scores, Value old,
                          Value factor, FloatAttr threshold, int64_t lanes, ValueRange values) {
  auto rows = cast<VectorType>(old.getType());
  auto sums = VectorType::get({rows.getDimSize(0), lanes}, rows.getElementType());
  state.addTypes({scores.getType(), sums, rows});
  state.addTypes(values.getTypes());
  state.addOperands({scores, old, factor});
  state.addOperands(values);
  Properties &properties = state.getOrAddProperties<Properties>();
  properties.threshold = threshold;
  properties.threads_per_row = b.getI64IntegerAttr(lanes);
  properties.operandSegmentSizes = {1, 1, 1, static_cast<int32_t>(values.size()), 0};
  state.addRegion();
}

void SoftmaxStepOp::dropRecompute() {
  getFactorsMutable().clear();
  if (!getRecompute().empty())
    getRecompute().front().erase();
}

LogicalResult SoftmaxStepOp::verify() {
  auto scores = cast<VectorType>(getScores().getType());
  int64_t rows = scores.getDimSize(0), lanes = getThreadsPerRow();
  if (cast<VectorType>(getOld().getType()).getDimSize(0) != rows)
    return emitOpError() << "expected a value for each of " << rows << " rows but got "
                         << getOld().getType();
  if (cast<VectorType>(getSums().getType()).getShape() != ArrayRef<int64_t>{rows, lanes})
    return emitOpError() << "expected sums of " << rows << " rows and " << lanes
                         << " lanes but got " << getSums().getType();
  if (scores.getDimSize(1) % (2 * lanes) != 0)
    return emitOpError() << "expected columns that are a multiple of " << 2 * lanes << " for "
                         << lanes << " lanes but got " << scores;
  for (Type type : getValues().getTypes()) {
    auto value = cast<VectorType>(type);
    if (!value.getElementType().isF32() || value.getRank() > 2 || value.getDimSize(0) != rows)
      return emitOpError() << "expected f32 values of " << rows << " rows to rescale but got "
                           << value;
  }
  if (getThreshold() && getLog2Largest())
    return emitOpError() << "expected no 'threshold' beside 'log2_largest' but got one";
  if (getRecompute().empty())
    return success();
  if (!getThreshold())
    return emitOpError() << "expected 'threshold' beside recomputed scores but got none";
  if (getRecompute().getArgumentTypes() != getFactors().getTypes())
    return emitOpError() << "expected arguments of " << getFactors().getTypes() << " but got "
                         << getRecompute().getArgumentTypes();
  TypeRange yielded = getRecompute().front().getTerminator()->getOperandTypes();
  if (yielded.size() != 1 || yielded.front() != scores)
    return emitOpError() << "expected to yield " << scores << " but got " << yielded;
  return success();
}
