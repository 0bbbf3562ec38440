//===- ScheduleAttrs.cpp - schedules ---------------------------------------===//

#include "flashattn/Dialect/FlashAttn/IR/FlashAttn.h"
#include "mlir/IR/DialectImplementation.h"

using namespace mlir;
using namespace mlir::flashattn;

StringRef flashattn::getTypeName(FloatType type) {
  return type.isF16() ? "f16" : type.isBF16() ? "bf16" : type.isF32() ? "f32" : "";
}

namespace {

/// Writes fields as "name = value, …", without those that hold what they do where they are left
/// out.
struct FieldPrinter {
  raw_ostream &os;
  bool first = true;

  raw_ostream &begin(StringRef name) {
    os << (first ? "" : ", ") << name << " = ";
    first = false;
    return os;
  }
  void operator()(const FieldInfo &info, int64_t value) {
    if (info.leftOut != value)
      begin(info.name) << value;
  }
  void operator()(const FieldInfo &info, ProgramAxis axis) {
    begin(info.name) << stringifyProgramAxis(axis);
  }
  void operator()(const FieldInfo &info, FloatType type) { begin(info.name) << type; }
  void operator()(const FieldInfo &info, std::optional<bool> value) {
    if (value)
      begin(info.name) << (*value ? "true" : "false");
  }
  void operator()(const FieldInfo &info, const std::optional<RolesFields> &roles) {
    if (!roles)
      return;
    begin(info.name) << '<';
    visitRolesFields(*roles, FieldPrinter{os});
    os << '>';
  }
};

/// Reads what FieldPrinter writes, fields in their order.
struct ScheduleFieldParser {
  AsmParser &parser;
  ParseResult result = success();
  bool first = true;
  bool hasComma = false; ///< one was read whose field was not

  /// Whether the field is there; reads up to its value.
  bool begin(StringRef name, bool isOptional) {
    if (failed(result))
      return false;
    if (!first && !hasComma && failed(parser.parseOptionalComma())) {
      if (!isOptional)
        result = failMissing(name);
      return false;
    }
    hasComma = !first;
    if (failed(parser.parseOptionalKeyword(name))) {
      if (!isOptional)
        result = failMissing(name);
      return false;
    }
    result = parser.parseEqual();
    first = hasComma = false;
    return succeeded(result);
  }
  ParseResult failMissing(StringRef name) {
    return parser.emitError(parser.getCurrentLocation())
           << "expected schedule field '" << name << "', in the fields' order, but got "
           << readWord();
  }
  /// What stands in a field's place.
  std::string readWord() {
    StringRef word;
    return succeeded(parser.parseOptionalKeyword(&word)) ? word.str() : "none";
  }
  void operator()(const FieldInfo &info, int64_t &value) {
    if (begin(info.name, info.leftOut.has_value()))
      result = parser.parseInteger(value);
  }
  void operator()(const FieldInfo &info, ProgramAxis &axis) {
    if (!begin(info.name, /*isOptional=*/false))
      return;
    FailureOr<ProgramAxis> found = mlir::FieldParser<ProgramAxis>::parse(parser);
    result = failure(failed(found));
    axis = found.value_or(axis);
  }
  void operator()(const FieldInfo &info, FloatType &type) {
    if (begin(info.name, /*isOptional=*/false))
      result = parser.parseType(type);
  }
  void operator()(const FieldInfo &info, std::optional<bool> &value) {
    if (!begin(info.name, /*isOptional=*/true))
      return;
    value = succeeded(parser.parseOptionalKeyword("true"));
    if (!*value)
      result = parser.parseKeyword("false");
  }
  void operator()(const FieldInfo &info, std::optional<RolesFields> &roles) {
    if (!begin(info.name, /*isOptional=*/true))
      return;
    ScheduleFieldParser inner{parser};
    inner.result = parser.parseLess();
    visitRolesFields(roles.emplace(), inner);
    result = inner.finish();
  }
  /// Reads the end, `>`.
  ParseResult finish() {
    if (failed(result))
      return failure();
    if (!hasComma)
      return parser.parseGreater();
    return parser.emitError(parser.getCurrentLocation())
           << "expected another field of the schedule, in their order, but got " << readWord();
  }
};

/// Errors of numbers outside of their ranges, the first alone.
struct FieldVerifier {
  function_ref<InFlightDiagnostic()> emitError;
  LogicalResult result = success();

  void operator()(const FieldInfo &info, int64_t value) {
    if (succeeded(result) && (value < info.min || value > info.max))
      result = emitError() << "expected schedule field '" << info.name << "' between " << info.min
                           << " and " << info.max << " but got " << value;
  }
  template <typename T> void operator()(const FieldInfo &, const T &) {}
};

} // namespace

std::string flashattn::formatFields(const ScheduleFields &fields) {
  std::string text;
  llvm::raw_string_ostream os(text);
  visitScheduleFields(fields, FieldPrinter{os});
  return text;
}

bool RolesFields::operator==(const RolesFields &o) const {
  auto tie = [](const RolesFields &f) {
    return std::tie(f.consumers, f.along, f.registers, f.producerRegisters, f.rescale, f.section,
                    f.blocks, f.queryStages, f.lateRescale, f.claimsBelow, f.addStages, f.joins,
                    f.inFlight, f.queryColumns);
  };
  return tie(*this) == tie(o);
}

bool ScheduleFields::operator==(const ScheduleFields &o) const {
  auto tie = [](const ScheduleFields &f) {
    return std::tie(f.tileM, f.tileN, f.warps, f.stages, f.lanes, f.dotType, f.pack, f.splits,
                    f.minPartTiles, f.narrowBlocks, f.tileQ, f.columnWarps, f.queriesInRegisters,
                    f.apart, f.roles);
  };
  return tie(*this) == tie(o);
}

RolesFields RolesAttr::getFields() const {
  return {getConsumers(), getAlong(),  getRegisters(),   getProducerRegisters(), getRescale(),
          getSection(),   getBlocks(), getQueryStages(), getLateRescale(),       getClaimsBelow(),
          getAddStages(), getJoins(),  getInFlight(),    getQueryColumns()};
}

RolesAttr RolesAttr::withoutClaims(int64_t section) const {
  RolesFields fields = getFields();
  fields.queryStages = 1;
  fields.claimsBelow = 0;
  fields.section = std::min(fields.section, section);
  return get(getContext(), fields);
}

Attribute RolesAttr::parse(AsmParser &parser, Type) {
  RolesFields fields;
  ScheduleFieldParser visitor{parser};
  visitor.result = parser.parseLess();
  visitRolesFields(fields, visitor);
  if (visitor.finish())
    return {};
  return getChecked([&] { return parser.emitError(parser.getNameLoc()); }, parser.getContext(),
                    fields);
}

void RolesAttr::print(AsmPrinter &printer) const {
  RolesFields fields = getFields();
  printer << '<';
  visitRolesFields(fields, FieldPrinter{printer.getStream()});
  printer << '>';
}

LogicalResult RolesAttr::verify(function_ref<InFlightDiagnostic()> emitError, int64_t consumers,
                                ProgramAxis along, int64_t registers, int64_t producerRegisters,
                                int64_t rescale, int64_t section, int64_t blocks,
                                int64_t queryStages, int64_t lateRescale, int64_t claimsBelow,
                                int64_t addStages, int64_t joins, int64_t inFlight,
                                int64_t queryColumns) {
  RolesFields fields{consumers, along,  registers,   producerRegisters, rescale,
                     section,   blocks, queryStages, lateRescale,       claimsBelow,
                     addStages, joins,  inFlight,    queryColumns};
  FieldVerifier verifier{emitError};
  visitRolesFields(fields, verifier);
  if (failed(verifier.result))
    return failure();
  for (auto [name, value] :
       {std::pair("registers", registers), std::pair("producer_registers", producerRegisters)})
    if (value % 8 != 0)
      return emitError() << "expected schedule field '" << name
                         << "' to be a multiple of 8, as setmaxnreg takes it, but got " << value;
  if (queryColumns % 16 != 0)
    return emitError()
           << "expected schedule field 'query_columns' to be a multiple of 16, of which "
              "wgmma takes registers, but got "
           << queryColumns;
  if (along != ProgramAxis::QueryTile && along != ProgramAxis::Head)
    return emitError() << "expected schedule field 'along' to be query_tile or head but got "
                       << stringifyProgramAxis(along);
  return success();
}

ScheduleAttr ScheduleAttr::getVerified(function_ref<InFlightDiagnostic()> emitError,
                                       MLIRContext *context, const ScheduleFields &fields) {
  if (fields.roles && !RolesAttr::getChecked(emitError, context, *fields.roles))
    return {};
  return getChecked(emitError, context, fields);
}

ScheduleFields ScheduleAttr::getFields() const {
  std::optional<RolesFields> roles;
  if (getRoles())
    roles = getRoles().getFields();
  return {getTileM(),
          getTileN(),
          getWarps(),
          getStages(),
          getLanes(),
          getDotType(),
          getPack(),
          getSplits(),
          getMinPartTiles(),
          getNarrowBlocks(),
          getTileQ(),
          getColumnWarps(),
          getQueriesInRegisters(),
          getApart(),
          roles};
}

ScheduleAttr ScheduleAttr::withRoles(RolesAttr roles) const {
  ScheduleFields fields = getFields();
  fields.roles = roles.getFields();
  return get(getContext(), fields);
}

ScheduleAttr ScheduleAttr::withoutRoles() const {
  ScheduleFields fields = getFields();
  fields.roles.reset();
  fields.warps = getWarpsOfRows();
  fields.columnWarps = 1;
  fields.narrowBlocks = 0;
  fields.stages = std::min<int64_t>(fields.stages, 2);
  return get(getContext(), fields);
}

ScheduleAttr ScheduleAttr::withSplits(int64_t splits) const {
  ScheduleFields fields = getFields();
  fields.splits = splits;
  if (splits == 1) {
    fields.minPartTiles = ScheduleFields().minPartTiles;
    fields.narrowBlocks = 0;
  }
  return get(getContext(), fields);
}

ScheduleAttr ScheduleAttr::withNarrowBlocks() const {
  // Registers come in eights; a producer needs no more than these. The rest are what a thread may
  // have: whether they are enough is the target's to say.
  constexpr int64_t kEach = 8, kProducer = 40, kLeast = 24, kMost = 248;
  ScheduleFields fields = withSplits(1).getFields();
  RolesFields &roles = *fields.roles;
  // Of the consumer and the producer, which begin with as many each.
  int64_t all = roles.blocks * (roles.registers + roles.producerRegisters);
  int64_t given = all / getNarrowBlocks() / (2 * kEach) * (2 * kEach);
  fields.tileN /= 2;
  roles.blocks = getNarrowBlocks();
  roles.producerRegisters = std::min(roles.producerRegisters, kProducer);
  roles.registers = std::clamp(given - roles.producerRegisters, kLeast, kMost);
  return get(getContext(), fields);
}

ScheduleAttr ScheduleAttr::forParts() const {
  if (getNarrowBlocks() == 0)
    return *this;
  ScheduleFields fields = withNarrowBlocks().getFields();
  fields.splits = getSplits();
  fields.minPartTiles = getMinPartTiles();
  return get(getContext(), fields);
}

bool ScheduleAttr::sumsByProducts(int64_t dv) const {
  // Columns of a panel, behind which ones have one of their own; a product has 256 at most.
  constexpr int64_t kPanel = 64, kMost = 256 - LoadTileOp::kOnes;
  return getRoles() && getDotType().isBF16() && getRoles().getRescale() > kMostAdded &&
         dv % kPanel == 0 && dv <= kMost;
}

bool ScheduleAttr::sharesProgram() const {
  constexpr int64_t kWarpsOfGroup = 4;
  return getRoles() && getWarps() > kWarpsOfGroup;
}

bool ScheduleAttr::splitsSums() const {
  constexpr int64_t kRowsOfWarp = 16;
  return sharesProgram() && getTileM() < kRowsOfWarp * getWarps();
}

int64_t ScheduleAttr::getWarpsOfRows() const {
  return splitsSums() ? getWarps() / getRoles().getConsumers() : getWarps();
}

int64_t ScheduleAttr::countColumnParts() const {
  constexpr int64_t kRowsOfWarp = 16;
  return kRowsOfWarp * getColumnWarps() * getWarps() / getTileN();
}

ScheduleAttr ScheduleAttr::forQueryTiles() const {
  ScheduleFields fields = getFields();
  fields.warps = getWarpsOfRows();
  fields.columnWarps = 1;
  if (fields.tileQ)
    fields.tileM = std::exchange(fields.tileQ, 0);
  return get(getContext(), fields);
}

bool ScheduleAttr::joinsKeys() const { return getRoles() && getRoles().getJoins(); }

int64_t ScheduleAttr::getVisitedKeys() const {
  return joinsKeys() ? LoadTileOp::kPieceRows : getTileN();
}

ScheduleAttr ScheduleAttr::forWideSteps() const {
  constexpr int64_t kWide = 64, kStages = 2;
  ScheduleFields fields = getFields();
  bool haveRoom = splitsSums() || joinsKeys() || (getRoles() && getApart().value_or(false));
  if (joinsKeys()) {
    fields.pack = 1;
    fields.roles->joins = fields.roles->claimsBelow = 0;
    fields.roles->queryStages = 1;
    // Two sums have room in two blocks, which share out the registers of all.
    if (int64_t all = fields.roles->blocks; all > 2) {
      auto share = [&](int64_t &registers) {
        constexpr int64_t kUnit = 8, kMost = 256; // as a schedule's fields may have them
        registers = std::min(kMost, registers * all / 2 / kUnit * kUnit);
      };
      fields.roles->blocks = 2;
      share(fields.roles->registers);
      share(fields.roles->producerRegisters);
    }
  }
  if (haveRoom && fields.tileN < kWide) {
    fields.tileN = kWide;
    if (!joinsKeys())
      fields.stages = std::min(fields.stages, kStages);
  }
  return get(getContext(), fields);
}

bool ScheduleAttr::addsQueries() const {
  if (getRoles())
    return sharesProgram() && !splitsSums();
  constexpr int64_t kFewestKeys = 128;
  return getLanes() > 1 && getTileM() >= kFewestKeys && !getTileQ() &&
         !getApart().value_or(false) && !getDotType().isF32();
}

Attribute ScheduleAttr::parse(AsmParser &parser, Type) {
  ScheduleFields fields;
  ScheduleFieldParser visitor{parser};
  visitor.result = parser.parseLess();
  visitScheduleFields(fields, visitor);
  if (visitor.finish())
    return {};
  return getVerified([&] { return parser.emitError(parser.getNameLoc()); }, parser.getContext(),
                     fields);
}

void ScheduleAttr::print(AsmPrinter &printer) const {
  printer << '<' << formatFields(getFields()) << '>';
}

LogicalResult ScheduleAttr::verify(function_ref<InFlightDiagnostic()> emitError, int64_t tileM,
                                   int64_t tileN, int64_t warps, int64_t stages, int64_t lanes,
                                   FloatType dotType, int64_t pack, int64_t splits,
                                   int64_t minPartTiles, int64_t narrowBlocks, int64_t tileQ,
                                   int64_t columnWarps, std::optional<bool> queriesInRegisters,
                                   std::optional<bool> apart, RolesAttr roles) {
  ScheduleFields fields{tileM,
                        tileN,
                        warps,
                        stages,
                        lanes,
                        dotType,
                        pack,
                        splits,
                        minPartTiles,
                        narrowBlocks,
                        tileQ,
                        columnWarps,
                        queriesInRegisters,
                        apart,
                        /*roles=*/std::nullopt};
  FieldVerifier verifier{emitError};
  visitScheduleFields(fields, verifier);
  if (failed(verifier.result))
    return failure();
  if (tileM % pack != 0)
    return emitError() << "expected schedule field 'tile_m' to be a multiple of 'pack', " << pack
                       << ", but got " << tileM;
  if (tileN % lanes != 0)
    return emitError() << "expected schedule field 'tile_n' to be a multiple of 'lanes', " << lanes
                       << ", but got " << tileN;
  if (getTypeName(dotType).empty())
    return emitError() << "expected schedule field 'dot_type' to be f16, bf16 or f32 but got "
                       << dotType;
  if (splits == 1 && minPartTiles != ScheduleFields().minPartTiles)
    return emitError() << "expected schedule field 'min_part_tiles' only with splits but got "
                       << minPartTiles << " without";
  if (narrowBlocks != 0 && (splits == 1 || !roles || roles.getConsumers() != 1))
    return emitError() << "expected schedule field 'narrow_blocks' only with splits and one "
                          "consumer but got "
                       << narrowBlocks << " without";
  if (narrowBlocks != 0 && tileN % (2 * lanes) != 0)
    return emitError() << "expected schedule field 'tile_n' to be a multiple of 2 'lanes', "
                       << 2 * lanes << ", with narrow_blocks but got " << tileN;
  if (roles && queriesInRegisters)
    return emitError()
           << "expected schedule field 'queries_in_registers' only without roles, whose "
              "products read the queries from shared memory";
  if (!llvm::isPowerOf2_64(columnWarps))
    return emitError() << "expected schedule field 'column_warps' to be a power of 2 but got "
                       << columnWarps;
  if (warps % columnWarps != 0)
    return emitError() << "expected schedule field 'warps' to be a multiple of 'column_warps', "
                       << columnWarps << ", but got " << warps;
  if (roles && columnWarps != 1)
    return emitError() << "expected schedule field 'column_warps' only without roles, whose "
                          "warps have whole rows, but got "
                       << columnWarps;
  return success();
}
