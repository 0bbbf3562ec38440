//===- ScheduleAttrs.cpp - schedules --------------------------------------===//

#include "flashattn/Dialect/FlashAttn/IR/FlashAttn.h"
#include "mlir/IR/DialectImplementation.h"
#include "llvm/ADT/StringSwitch.h"

using namespace mlir;
using namespace mlir::flashattn;

StringRef flashattn::getTypeName(FloatType type) {
  return type.isF16() ? "f16" : type.isBF16() ? "bf16" : type.isF32() ? "f32" : "";
}

namespace {

/// Prints fields as "name = value, …", without fields that have their default value.
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
  void operator()(const FieldInfo &info, const std::optional<HopperFields> &hopper) {
    if (!hopper)
      return;
    begin(info.name) << '<';
    visitHopperFields(*hopper, FieldPrinter{os});
    os << '>';
  }
};

/// Parses the fields that FieldPrinter prints, in the same order.
struct ScheduleFieldParser {
  AsmParser &parser;
  ParseResult result = success();
  bool first = true;
  bool hasComma = false; ///< a comma was parsed, but not the field after it

  /// Whether the field `name` is next; if so, parses up to its value.
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
    llvm::SMLoc location = parser.getCurrentLocation();
    std::string word = readWord();
    InFlightDiagnostic error = parser.emitError(location)
                               << "expected schedule field '" << name
                               << "', in the fields' order, but got " << word;
    return addNewName(std::move(error), word);
  }
  static ParseResult addNewName(InFlightDiagnostic error, StringRef word) {
    if (StringRef name = getNewFieldName(word); !name.empty())
      error << ", which is now named '" << name << "'";
    return error;
  }
  /// Parses the word at the position of a field; "none" if there is no word.
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
  void operator()(const FieldInfo &info, std::optional<HopperFields> &hopper) {
    if (!begin(info.name, /*isOptional=*/true))
      return;
    ScheduleFieldParser inner{parser};
    inner.result = parser.parseLess();
    visitHopperFields(hopper.emplace(), inner);
    result = inner.finish();
  }
  /// Parses the closing `>`.
  ParseResult finish() {
    if (failed(result))
      return failure();
    if (!hasComma)
      return parser.parseGreater();
    llvm::SMLoc location = parser.getCurrentLocation();
    std::string word = readWord();
    InFlightDiagnostic error =
        parser.emitError(location)
        << "expected another field of the schedule, in the fixed order of fields, but got " << word;
    return addNewName(std::move(error), word);
  }
};

/// Emits an error for the first number outside its range.
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

StringRef mlir::flashattn::getNewFieldName(StringRef old) {
  return llvm::StringSwitch<StringRef>(old)
      .Case("lanes", "threads_per_row")
      .Case("min_part_tiles", "min_split_tiles")
      .Case("narrow_blocks", "small_blocks_per_sm")
      .Case("tile_q", "dq_tile_m")
      .Case("queries_in_registers", "q_in_registers")
      .Case("apart", "separate_dk_dv")
      .Case("roles", "hopper")
      .Case("rescale", "rescale_threshold")
      .Case("section", "l2_head_group")
      .Case("blocks", "blocks_per_sm")
      .Case("query_stages", "q_stages")
      .Case("late_rescale", "lazy_rescale")
      .Case("claims_below", "dynamic_scheduler_max_len")
      .Case("add_stages", "dq_reduce_stages")
      .Case("joins", "compact_kv")
      .Case("in_flight", "prefetch_kib_per_sm")
      .Case("query_columns", "q_register_columns")
      .Default("");
}

bool HopperFields::operator==(const HopperFields &o) const {
  auto tie = [](const HopperFields &f) {
    return std::tie(f.consumers, f.along, f.registers, f.producerRegisters, f.rescaleThreshold,
                    f.l2HeadGroup, f.blocksPerSM, f.qStages, f.lazyRescale,
                    f.dynamicSchedulerMaxLen, f.dqReduceStages, f.compactKV, f.prefetchKiBPerSM,
                    f.qRegisterColumns);
  };
  return tie(*this) == tie(o);
}

bool ScheduleFields::operator==(const ScheduleFields &o) const {
  auto tie = [](const ScheduleFields &f) {
    return std::tie(f.tileM, f.tileN, f.warps, f.stages, f.threadsPerRow, f.dotType, f.pack,
                    f.splits, f.minSplitTiles, f.smallBlocksPerSM, f.dqTileM, f.columnWarps,
                    f.qInRegisters, f.separateDkDv, f.hopper);
  };
  return tie(*this) == tie(o);
}

HopperFields HopperAttr::getFields() const {
  return {getConsumers(),        getAlong(),
          getRegisters(),        getProducerRegisters(),
          getRescaleThreshold(), getL2HeadGroup(),
          getBlocksPerSM(),      getQStages(),
          getLazyRescale(),      getDynamicSchedulerMaxLen(),
          getDqReduceStages(),   getCompactKV(),
          getPrefetchKiBPerSM(), getQRegisterColumns()};
}

HopperAttr HopperAttr::withoutDynamicScheduler(int64_t l2HeadGroup) const {
  HopperFields fields = getFields();
  fields.qStages = 1;
  fields.dynamicSchedulerMaxLen = 0;
  fields.l2HeadGroup = std::min(fields.l2HeadGroup, l2HeadGroup);
  return get(getContext(), fields);
}

Attribute HopperAttr::parse(AsmParser &parser, Type) {
  HopperFields fields;
  ScheduleFieldParser visitor{parser};
  visitor.result = parser.parseLess();
  visitHopperFields(fields, visitor);
  if (visitor.finish())
    return {};
  return getChecked([&] { return parser.emitError(parser.getNameLoc()); }, parser.getContext(),
                    fields);
}

void HopperAttr::print(AsmPrinter &printer) const {
  HopperFields fields = getFields();
  printer << '<';
  visitHopperFields(fields, FieldPrinter{printer.getStream()});
  printer << '>';
}

LogicalResult HopperAttr::verify(function_ref<InFlightDiagnostic()> emitError, int64_t consumers,
                                 ProgramAxis along, int64_t registers, int64_t producerRegisters,
                                 int64_t rescaleThreshold, int64_t l2HeadGroup, int64_t blocksPerSM,
                                 int64_t qStages, int64_t lazyRescale,
                                 int64_t dynamicSchedulerMaxLen, int64_t dqReduceStages,
                                 int64_t compactKV, int64_t prefetchKiBPerSM,
                                 int64_t qRegisterColumns) {
  HopperFields fields{
      consumers,      along,       registers,        producerRegisters, rescaleThreshold,
      l2HeadGroup,    blocksPerSM, qStages,          lazyRescale,       dynamicSchedulerMaxLen,
      dqReduceStages, compactKV,   prefetchKiBPerSM, qRegisterColumns};
  FieldVerifier verifier{emitError};
  visitHopperFields(fields, verifier);
  if (failed(verifier.result))
    return failure();
  for (auto [name, value] :
       {std::pair("registers", registers), std::pair("producer_registers", producerRegisters)})
    if (value % 8 != 0)
      return emitError() << "expected schedule field '" << name
                         << "' to be a multiple of 8, as setmaxnreg requires, but got " << value;
  if (qRegisterColumns % 16 != 0)
    return emitError() << "expected schedule field 'q_register_columns' to be a multiple of 16, "
                          "the depth of a wgmma, but got "
                       << qRegisterColumns;
  if (along != ProgramAxis::QueryTile && along != ProgramAxis::Head)
    return emitError() << "expected schedule field 'along' to be query_tile or head but got "
                       << stringifyProgramAxis(along);
  return success();
}

ScheduleAttr ScheduleAttr::getVerified(function_ref<InFlightDiagnostic()> emitError,
                                       MLIRContext *context, const ScheduleFields &fields) {
  if (fields.hopper && !HopperAttr::getChecked(emitError, context, *fields.hopper))
    return {};
  return getChecked(emitError, context, fields);
}

ScheduleFields ScheduleAttr::getFields() const {
  std::optional<HopperFields> hopper;
  if (getHopper())
    hopper = getHopper().getFields();
  return {
      getTileM(),   getTileN(),       getWarps(),        getStages(),        getThreadsPerRow(),
      getDotType(), getPack(),        getSplits(),       getMinSplitTiles(), getSmallBlocksPerSM(),
      getDqTileM(), getColumnWarps(), getQInRegisters(), getSeparateDkDv(),  hopper};
}

ScheduleAttr ScheduleAttr::withHopper(HopperAttr hopper) const {
  ScheduleFields fields = getFields();
  fields.hopper = hopper.getFields();
  return get(getContext(), fields);
}

ScheduleAttr ScheduleAttr::withoutHopper() const {
  ScheduleFields fields = getFields();
  fields.hopper.reset();
  fields.warps = getWarpsOfRows();
  fields.columnWarps = 1;
  fields.smallBlocksPerSM = 0;
  fields.stages = std::min<int64_t>(fields.stages, 2);
  return get(getContext(), fields);
}

ScheduleAttr ScheduleAttr::withSplits(int64_t splits) const {
  ScheduleFields fields = getFields();
  fields.splits = splits;
  if (splits == 1) {
    fields.minSplitTiles = ScheduleFields().minSplitTiles;
    fields.smallBlocksPerSM = 0;
  }
  return get(getContext(), fields);
}

ScheduleAttr ScheduleAttr::withSmallBlocks() const {
  // Register counts are multiples of 8, and a producer needs no more than kProducer. kLeast and
  // kMost are the limits of a thread; the target decides whether the registers suffice.
  constexpr int64_t kEach = 8, kProducer = 40, kLeast = 24, kMost = 248;
  ScheduleFields fields = withSplits(1).getFields();
  HopperFields &hopper = *fields.hopper;
  // Registers of a consumer plus a producer thread. At launch each has half, a multiple of 8.
  int64_t all = hopper.blocksPerSM * (hopper.registers + hopper.producerRegisters);
  int64_t given = all / getSmallBlocksPerSM() / (2 * kEach) * (2 * kEach);
  fields.tileN /= 2;
  hopper.blocksPerSM = getSmallBlocksPerSM();
  hopper.producerRegisters = std::min(hopper.producerRegisters, kProducer);
  hopper.registers = std::clamp(given - hopper.producerRegisters, kLeast, kMost);
  return get(getContext(), fields);
}

ScheduleAttr ScheduleAttr::forSplits() const {
  if (getSmallBlocksPerSM() == 0)
    return *this;
  ScheduleFields fields = withSmallBlocks().getFields();
  fields.splits = getSplits();
  fields.minSplitTiles = getMinSplitTiles();
  return get(getContext(), fields);
}

bool ScheduleAttr::sumsByProducts(int64_t dv) const {
  // Columns of a panel. The appended ones need another panel; a product has at most 256 columns.
  constexpr int64_t kPanel = 64, kMost = 256 - LoadTileOp::kOnes;
  return getHopper() && getDotType().isBF16() && getHopper().getRescaleThreshold() > kMostAdded &&
         dv % kPanel == 0 && dv <= kMost;
}

int64_t ScheduleAttr::getConsumers() const {
  return isWarpSpecialized() ? getHopper().getConsumers() : 1;
}

int64_t ScheduleAttr::countProgramsPerBlock() const { return sharesProgram() ? 1 : getConsumers(); }

int64_t ScheduleAttr::countProgramsPerBlock(ProgramAxis axis) const {
  return isWarpSpecialized() && getHopper().getAlong() == axis ? getConsumers() : 1;
}

std::optional<int64_t> ScheduleAttr::getRescaleThreshold() const {
  if (!isWarpSpecialized())
    return std::nullopt;
  return getHopper().getRescaleThreshold();
}

bool ScheduleAttr::rescalesLazily() const {
  return isWarpSpecialized() && getHopper().getLazyRescale() != 0;
}

bool ScheduleAttr::hasReduceWarps() const {
  return isWarpSpecialized() && getHopper().getDqReduceStages() != 0;
}

bool ScheduleAttr::beginsWithDeltas() const {
  return isWarpSpecialized() && addsQueries() && getTileN() == getTileM();
}

bool ScheduleAttr::sharesProgram() const {
  constexpr int64_t kWarpsOfGroup = 4;
  return getHopper() && getWarps() > kWarpsOfGroup;
}

bool ScheduleAttr::splitsSums() const {
  constexpr int64_t kRowsOfWarp = 16;
  return sharesProgram() && getTileM() < kRowsOfWarp * getWarps();
}

int64_t ScheduleAttr::getWarpsOfRows() const {
  return splitsSums() ? getWarps() / getHopper().getConsumers() : getWarps();
}

int64_t ScheduleAttr::countColumnParts() const {
  constexpr int64_t kRowsOfWarp = 16;
  return kRowsOfWarp * getColumnWarps() * getWarps() / getTileN();
}

ScheduleAttr ScheduleAttr::forQueryTiles() const {
  ScheduleFields fields = getFields();
  fields.warps = getWarpsOfRows();
  fields.columnWarps = 1;
  if (fields.dqTileM)
    fields.tileM = std::exchange(fields.dqTileM, 0);
  return get(getContext(), fields);
}

bool ScheduleAttr::compactsKV() const { return getHopper() && getHopper().getCompactKV(); }

int64_t ScheduleAttr::getVisitedKeys() const {
  return compactsKV() ? CompactRowsOp::kGranularity : getTileN();
}

ScheduleAttr ScheduleAttr::forWideSteps() const {
  constexpr int64_t kWide = 64, kStages = 2;
  ScheduleFields fields = getFields();
  bool hasSpace =
      splitsSums() || compactsKV() || (getHopper() && getSeparateDkDv().value_or(false));
  if (compactsKV()) {
    fields.pack = 1;
    fields.hopper->compactKV = fields.hopper->dynamicSchedulerMaxLen = 0;
    fields.hopper->qStages = 1;
    // Two accumulators fit if at most two blocks share the registers of all blocks.
    if (int64_t all = fields.hopper->blocksPerSM; all > 2) {
      auto share = [&](int64_t &registers) {
        constexpr int64_t kUnit = 8, kMost = 256; // limits of the schedule's fields
        registers = std::min(kMost, registers * all / 2 / kUnit * kUnit);
      };
      fields.hopper->blocksPerSM = 2;
      share(fields.hopper->registers);
      share(fields.hopper->producerRegisters);
    }
  }
  if (hasSpace && fields.tileN < kWide) {
    fields.tileN = kWide;
    if (!compactsKV())
      fields.stages = std::min(fields.stages, kStages);
  }
  return get(getContext(), fields);
}

bool ScheduleAttr::addsQueries() const {
  if (getHopper())
    return sharesProgram() && !splitsSums();
  constexpr int64_t kFewestKeys = 128;
  return getThreadsPerRow() > 1 && getTileM() >= kFewestKeys && !getDqTileM() &&
         !getSeparateDkDv().value_or(false) && !getDotType().isF32();
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
                                   int64_t tileN, int64_t warps, int64_t stages,
                                   int64_t threadsPerRow, FloatType dotType, int64_t pack,
                                   int64_t splits, int64_t minSplitTiles, int64_t smallBlocksPerSM,
                                   int64_t dqTileM, int64_t columnWarps,
                                   std::optional<bool> qInRegisters,
                                   std::optional<bool> separateDkDv, HopperAttr hopper) {
  ScheduleFields fields{tileM,
                        tileN,
                        warps,
                        stages,
                        threadsPerRow,
                        dotType,
                        pack,
                        splits,
                        minSplitTiles,
                        smallBlocksPerSM,
                        dqTileM,
                        columnWarps,
                        qInRegisters,
                        separateDkDv,
                        /*hopper=*/std::nullopt};
  FieldVerifier verifier{emitError};
  visitScheduleFields(fields, verifier);
  if (failed(verifier.result))
    return failure();
  if (tileM % pack != 0)
    return emitError() << "expected schedule field 'tile_m' to be a multiple of 'pack', " << pack
                       << ", but got " << tileM;
  if (tileN % threadsPerRow != 0)
    return emitError() << "expected schedule field 'tile_n' to be a multiple of 'threads_per_row', "
                       << threadsPerRow << ", but got " << tileN;
  if (getTypeName(dotType).empty())
    return emitError() << "expected schedule field 'dot_type' to be f16, bf16 or f32 but got "
                       << dotType;
  if (splits == 1 && minSplitTiles != ScheduleFields().minSplitTiles)
    return emitError() << "expected no schedule field 'min_split_tiles' without splits but got "
                       << minSplitTiles;
  if (smallBlocksPerSM != 0 && (splits == 1 || !hopper || hopper.getConsumers() != 1))
    return emitError() << "expected no schedule field 'small_blocks_per_sm' unless 'splits' is "
                          "above 1 and 'consumers' is 1 but got "
                       << smallBlocksPerSM;
  if (smallBlocksPerSM != 0 && tileN % (2 * threadsPerRow) != 0)
    return emitError()
           << "expected schedule field 'tile_n' to be a multiple of twice 'threads_per_row', "
           << 2 * threadsPerRow << ", with 'small_blocks_per_sm' but got " << tileN;
  if (hopper && qInRegisters)
    return emitError() << "expected no schedule field 'q_in_registers' with 'hopper' but got both";
  if (!llvm::isPowerOf2_64(columnWarps))
    return emitError() << "expected schedule field 'column_warps' to be a power of 2 but got "
                       << columnWarps;
  if (warps % columnWarps != 0)
    return emitError() << "expected schedule field 'warps' to be a multiple of 'column_warps', "
                       << columnWarps << ", but got " << warps;
  if (hopper && columnWarps != 1)
    return emitError() << "expected schedule field 'column_warps' to be 1 with 'hopper' but got "
                       << columnWarps;
  return success();
}
