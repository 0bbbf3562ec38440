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

void ProgramOp::build(OpBuilder &builder, OperationState &state, ValueRange sizes,
                      ArrayRef<ProgramAxis> axes, ScheduleAttr schedule) {
  state.addOperands(sizes);
  SmallVector<Attribute> attributes = llvm::map_to_vector(axes, [&](ProgramAxis axis) -> Attribute {
    return ProgramAxisAttr::get(builder.getContext(), axis);
  });
  auto &properties = state.getOrAddProperties<Properties>();
  properties.axes = builder.getArrayAttr(attributes);
  properties.schedule = schedule;
  properties.operandSegmentSizes = {static_cast<int32_t>(sizes.size()), 0};
  addBlock(builder, state, SmallVector<Type>(sizes.size(), builder.getIndexType()),
           /*terminated=*/true);
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

/// Parses `segments(%starts : memref<?xi32>, rows 64, tiles 1)` or nothing.
static ParseResult parseOptionalSegments(OpAsmParser &parser, OperationState &state,
                                         ProgramOp::Properties &properties) {
  if (failed(parser.parseOptionalKeyword("segments")))
    return success();
  OpAsmParser::UnresolvedOperand starts;
  Type type;
  int64_t rows, tiles;
  if (parser.parseLParen() || parser.parseOperand(starts) || parser.parseColonType(type) ||
      parser.resolveOperand(starts, type, state.operands) || parser.parseComma() ||
      parser.parseKeyword("rows") || parser.parseInteger(rows) || parser.parseComma() ||
      parser.parseKeyword("tiles") || parser.parseInteger(tiles) || parser.parseRParen())
    return failure();
  properties.tile_rows = parser.getBuilder().getI64IntegerAttr(rows);
  properties.segment_tiles = parser.getBuilder().getI64IntegerAttr(tiles);
  return success();
}

ParseResult ProgramOp::parse(OpAsmParser &parser, OperationState &state) {
  Builder &builder = parser.getBuilder();
  SmallVector<OpAsmParser::Argument> numbers;
  SmallVector<OpAsmParser::UnresolvedOperand> sizes;
  SmallVector<Attribute> axes;
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
    axes.push_back(ProgramAxisAttr::get(builder.getContext(), *axis));
    return success();
  };
  auto &properties = state.getOrAddProperties<Properties>();
  if (parser.parseArgumentList(numbers, OpAsmParser::Delimiter::Paren) ||
      parser.parseKeyword("in") || parser.parseOperandList(sizes, OpAsmParser::Delimiter::Paren) ||
      parser.resolveOperands(sizes, builder.getIndexType(), state.operands) ||
      parser.parseKeyword("axes") ||
      parser.parseCommaSeparatedList(OpAsmParser::Delimiter::Paren, parseAxis) ||
      parseOptionalSegments(parser, state, properties) ||
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
  properties.axes = builder.getArrayAttr(axes);
  int32_t numSizes = sizes.size();
  properties.operandSegmentSizes = {numSizes,
                                    static_cast<int32_t>(state.operands.size()) - numSizes};
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
  printer << ") in (" << getSizes() << ") axes(";
  llvm::interleaveComma(getAxes().getAsRange<ProgramAxisAttr>(), printer,
                        [&](ProgramAxisAttr axis) { printer << stringifyEnum(axis.getValue()); });
  printer << ")";
  if (getStarts())
    printer << " segments(" << getStarts() << " : " << getStarts().getType() << ", rows "
            << getTileRows() << ", tiles " << getSegmentTiles() << ")";
  if (getScheduleAttr())
    printSchedule(printer, getScheduleAttr());
  if (getPdlSecondary())
    printer << " pdl_secondary";
  if (getPdlPrimary())
    printer << " pdl_primary";
  if (getUnusedRowHalf())
    printer << " unused_row_half";
  printer.printOptionalAttrDictWithKeyword(
      (*this)->getAttrs(), {"axes", "schedule", "pdl_secondary", "pdl_primary", "unused_row_half",
                            "tile_rows", "segment_tiles", getOperandSegmentSizesAttrName()});
  printer << " ";
  printer.printRegion(getRegion(), /*printEntryBlockArgs=*/false,
                      /*printBlockTerminators=*/false);
}

LogicalResult ProgramOp::verify() {
  size_t count = getSizes().size();
  if (count == 0)
    return emitOpError() << "expected at least one size";
  if (getAxes().size() != count)
    return emitOpError() << "expected an axis for each of " << count << " sizes but got "
                         << getAxes().size();
  if (getBody()->getNumArguments() != count ||
      !llvm::all_of(getBody()->getArgumentTypes(), llvm::IsaPred<IndexType>))
    return emitOpError() << "expected an index argument for each of " << count << " sizes but got "
                         << getBody()->getArgumentTypes();
  if (getBody()->getTerminator()->getNumOperands() != 0)
    return emitOpError() << "expected to yield nothing but got "
                         << getBody()->getTerminator()->getOperandTypes();
  if (getStarts() && (count < 2 || getAxis(0) != ProgramAxis::Batch)) {
    InFlightDiagnostic error =
        emitOpError() << "expected batch as the first of several axes with segments but got (";
    llvm::interleaveComma(getAxes().getAsRange<ProgramAxisAttr>(), error,
                          [&](ProgramAxisAttr axis) { error << stringifyEnum(axis.getValue()); });
    return error << ")";
  }
  // Their product is a number of rows.
  if (getTileRows() > INT32_MAX || getSegmentTiles() > INT32_MAX / getTileRows())
    return emitOpError() << "expected at most " << INT32_MAX
                         << " rows of the tiles of a segment but got " << getSegmentTiles()
                         << " times " << getTileRows();
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
// Tiles in memory
//===----------------------------------------------------------------------===//

template <typename AccessOp> static SmallVector<int64_t> tileShapeOf(AccessOp op) {
  ArrayRef<int64_t> tile = op.getTileType().getShape();
  SmallVector<int64_t> rows;
  if (RowMapOpInterface map = op.getRowMap())
    rows = map.getRowShape();
  if (rows.empty())
    return llvm::to_vector(tile);
  rows.append(tile.begin() + 1, tile.end());
  return rows;
}

/// Returns the dimensions along which rows run, without the dimension of the columns.
template <typename AccessOp> static ArrayRef<int64_t> rowDimsOf(AccessOp op) {
  return op.getDims().drop_back(op.getTileType().getRank() == 2 ? 1 : 0);
}

template <typename AccessOp> static std::optional<unsigned> rowDimOf(AccessOp op) {
  int64_t dim = rowDimsOf(op).back();
  return dim < 0 ? std::nullopt : std::optional<unsigned>(dim);
}

template <typename AccessOp> static int64_t innerRowsOf(AccessOp op) {
  return op.getTileShape()[rowDimsOf(op).size() - 1];
}

/// Verifies a tile in memory. With `mayRepeat`, all of its rows or columns may be the same.
template <typename AccessOp> static LogicalResult verifyAccess(AccessOp op, bool mayRepeat) {
  VectorType tile = op.getTileType();
  MemRefType memref = op.getMemRefType();
  if (static_cast<int64_t>(op.getIndices().size()) != memref.getRank())
    return op.emitOpError() << "expected an index for each of " << memref.getRank()
                            << " dimensions but got " << op.getIndices().size();
  if (tile.getRank() > 2)
    return op.emitOpError() << "expected rows or rows and columns but got " << tile;
  if (tile.getElementType() != memref.getElementType())
    return op.emitOpError() << "expected a tile of " << memref.getElementType() << " but got "
                            << tile;
  ArrayRef<int64_t> dims = op.getDims();
  if (op.getInBounds().size() != dims.size())
    return op.emitOpError() << "expected in_bounds for each of " << dims.size()
                            << " dimensions but got " << op.getInBounds().size();
  for (auto [i, dim] : llvm::enumerate(dims)) {
    if (dim >= memref.getRank() || dim < (mayRepeat ? -1 : 0))
      return op.emitOpError() << "expected a dimension from " << (mayRepeat ? -1 : 0) << " to "
                              << memref.getRank() - 1 << " but got " << dim;
    if (dim >= 0 && llvm::is_contained(dims.take_front(i), dim))
      return op.emitOpError() << "expected each dimension once but got " << dim << " twice";
    if (dim < 0 && !op.getInBounds()[i])
      return op.emitOpError() << "expected in_bounds true for a dimension of -1 but got false";
  }
  if (op.getRows() && !op.getRowMap())
    return op.emitOpError()
           << "expected 'rows' to be defined by an op with RowMapOpInterface but got "
           << (op.getRows().getDefiningOp() ? "another op" : "a block argument");
  SmallVector<int64_t> shape = op.getTileShape();
  if (shape.size() != dims.size())
    return op.emitOpError() << "expected a tile along " << shape.size() << " dimensions but got "
                            << dims.size() << " dims";
  // The sizes are those of the tile, or those that a row map has verified.
  int64_t numRows = 1;
  for (int64_t size : ArrayRef(shape).drop_back(tile.getRank() == 2 ? 1 : 0))
    numRows *= size;
  if (numRows != tile.getDimSize(0))
    return op.emitOpError() << "expected a tile of " << numRows
                            << " rows, as in the row map, but got " << tile;
  return success();
}

SmallVector<int64_t> LoadTileOp::getTileShape() { return tileShapeOf(*this); }
std::optional<unsigned> LoadTileOp::getRowDim() { return rowDimOf(*this); }
int64_t LoadTileOp::getInnerRows() { return innerRowsOf(*this); }

Value LoadTileOp::getBeginRow() { return getRowMap() ? getRowMap().getBegin() : Value(); }
Value LoadTileOp::getEndRow() { return getRowMap() ? getRowMap().getEnd() : Value(); }
void LoadTileOp::dropBeginRow(OpBuilder &builder) {
  if (!getBeginRow())
    return;
  OpBuilder::InsertionGuard guard(builder);
  builder.setInsertionPoint(*this);
  Value rows = getRowMap().buildWithoutBegin(builder);
  getRowsMutable().clear();
  if (rows)
    getRowsMutable().assign(rows);
}
SmallVector<RowSegment> LoadTileOp::getSegments() {
  return getRowMap() ? getRowMap().getSegments() : SmallVector<RowSegment>();
}

LogicalResult LoadTileOp::verify() {
  if (failed(verifyAccess(*this, /*mayRepeat=*/true)))
    return failure();
  if (RowMapOpInterface map = getRowMap()) {
    if (!getRowDim())
      return emitOpError() << "expected no row map for equal rows but got one";
    std::optional<int64_t> granularity = map.getGranularity();
    if (granularity && (getDims().size() != 2 || getTileType().getDimSize(0) % *granularity != 0))
      return emitOpError() << "expected a multiple of " << *granularity
                           << " rows along one dimension, as in the row map, but got "
                           << getTileType();
  }
  if (!getOnes())
    return success();
  int64_t last = getMemRefType().getRank() - 1;
  int64_t columns = getTileType().getRank() == 2 ? getTileType().getDimSize(1) : 0;
  if (getDims().back() != last || getMemRefType().getDimSize(last) + kOnes != columns)
    return emitOpError() << "expected " << kOnes
                         << " columns of ones after all columns of the memref but got "
                         << getMemRefType() << " and " << getTileType();
  return success();
}

SmallVector<int64_t> StoreTileOp::getTileShape() { return tileShapeOf(*this); }
std::optional<unsigned> StoreTileOp::getRowDim() { return rowDimOf(*this); }
int64_t StoreTileOp::getInnerRows() { return innerRowsOf(*this); }

LogicalResult StoreTileOp::verify() {
  if (failed(verifyAccess(*this, /*mayRepeat=*/false)))
    return failure();
  RowMapOpInterface map = getRowMap();
  if (map && (map.getBegin() || map.getEnd() || map.getGranularity()))
    return emitOpError() << "expected a row map without 'from', 'below' and segments but got '"
                         << map->getName() << "' with one of them";
  return success();
}

/// Verifies a tile that programs add to memory, or load after such additions.
static LogicalResult verifyAdded(Operation *op, VectorType tile, MemRefType memref, size_t indices,
                                 int64_t parts) {
  if (memref.getRank() < 2 || !memref.getElementType().isF32() || !memref.getLayout().isIdentity())
    return op->emitOpError() << "expected a contiguous f32 memref of rank 2 or more but got "
                             << memref;
  if (static_cast<int64_t>(indices) != memref.getRank())
    return op->emitOpError() << "expected an index for each of " << memref.getRank()
                             << " dimensions but got " << indices;
  if (tile.getDimSize(1) != memref.getShape().back())
    return op->emitOpError() << "expected a tile of all " << memref.getShape().back()
                             << " columns but got " << tile;
  // Not one test for multiples of `8 * parts`, which may overflow.
  if (tile.getDimSize(0) % 16 != 0 || tile.getDimSize(1) % 8 != 0 ||
      tile.getDimSize(1) / 8 % parts != 0)
    return op->emitOpError() << "expected a multiple of 16 rows, and of 8 columns in each of "
                             << parts << " parts, but got " << tile;
  return success();
}

LogicalResult AddTileOp::verify() {
  if (getTurn() && !getOrder())
    return emitOpError() << "expected 'order' beside 'turn' but got 'turn' alone";
  if (getOrder()) {
    auto order = cast<MemRefType>(getOrder().getType());
    if (order.getRank() + 1 != static_cast<int64_t>(getIndices().size()) ||
        !order.getLayout().isIdentity())
      return emitOpError() << "expected a contiguous 'order' with all dimensions of the target "
                              "except the columns but got "
                           << order;
  }
  return verifyAdded(*this, cast<VectorType>(getTile().getType()),
                     cast<MemRefType>(getTarget().getType()), getIndices().size(), getParts());
}

LogicalResult LoadAddedOp::verify() {
  return verifyAdded(*this, cast<VectorType>(getTile().getType()),
                     cast<MemRefType>(getSource().getType()), getIndices().size(), getParts());
}

static LogicalResult verifyCounter(Operation *op, Value counter, ValueRange indices) {
  auto type = cast<MemRefType>(counter.getType());
  if (type.getRank() != static_cast<int64_t>(indices.size()))
    return op->emitOpError() << "expected an index for each of " << type.getRank()
                             << " dimensions but got " << indices.size();
  return success();
}

LogicalResult SignalAddedOp::verify() { return verifyCounter(*this, getCounter(), getIndices()); }
LogicalResult AwaitAddedOp::verify() { return verifyCounter(*this, getCounter(), getIndices()); }

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
      return stage.emitOpError() << "expected 'behind' to be the number of one of the step's "
                                 << lags.size() << " stages, without a lag, but got " << behind;
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
    return emitOpError() << "expected state of the types " << getInits().getTypes()
                         << " to be yielded and to result but got " << getYielded().getTypes()
                         << " and " << getResultTypes();
  if (!getList())
    return getListIndices().empty()
               ? success()
               : LogicalResult(emitOpError() << "expected no indices without a list");
  auto list = cast<MemRefType>(getList().getType());
  if (!list.getElementType().isInteger(32) ||
      list.getRank() != static_cast<int64_t>(getListIndices().size()) + 1)
    return emitOpError() << "expected an i32 list whose rank is one more than its "
                         << getListIndices().size() << " indices but got " << list;
  return success();
}

LogicalResult TileMaskOp::verify() {
  TypeRange yielded = getBody()->getTerminator()->getOperandTypes();
  if (yielded.size() != 1 || yielded.front() != getShown().getType())
    return emitOpError() << "expected to yield " << getShown().getType() << " but got " << yielded;
  if (!(*this)->getParentOfType<TileLoopOp>())
    return emitOpError() << "expected a 'flashattn.tile_loop' around it";
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
