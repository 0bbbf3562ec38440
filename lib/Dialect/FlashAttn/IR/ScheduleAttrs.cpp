//===- ScheduleAttrs.cpp - schedules and mappings -------------------------===//

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
  void operator()(const FieldInfo &info, std::optional<BackwardAlgorithm> algorithm) {
    if (algorithm)
      begin(info.name) << stringifyBackwardAlgorithm(*algorithm);
  }
  void operator()(const FieldInfo &info, const MappingFields &mapping) {
    begin(info.name) << getMappingName(mapping);
    if (std::holds_alternative<CPUFields>(mapping))
      return;
    os << '<';
    visitMappingFields(mapping, FieldPrinter{os});
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
      error << ", which is now '" << name << "'";
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
  void operator()(const FieldInfo &info, std::optional<BackwardAlgorithm> &algorithm) {
    if (!begin(info.name, /*isOptional=*/true))
      return;
    llvm::SMLoc location = parser.getCurrentLocation();
    std::string word = readWord();
    algorithm = symbolizeBackwardAlgorithm(word);
    if (!algorithm)
      result = parser.emitError(location) << "expected algorithm separate_dq, accumulate_dq, "
                                             "split_dk_dv or separate_dk_dv but got "
                                          << word;
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
  void operator()(const FieldInfo &info, MappingFields &mapping) {
    if (!begin(info.name, /*isOptional=*/false))
      return;
    llvm::SMLoc location = parser.getCurrentLocation();
    std::string name = readWord();
    std::optional<MappingFields> made = makeMapping(name);
    if (!made) {
      result = parser.emitError(location)
               << "expected mapping cpu, mma_sync or hopper but got " << name;
      return;
    }
    mapping = *made;
    if (!std::holds_alternative<CPUFields>(mapping))
      result = parseFields(parser, mapping);
  }
  /// Parses the fields of a mapping in angle brackets.
  static ParseResult parseFields(AsmParser &parser, MappingFields &mapping) {
    ScheduleFieldParser inner{parser};
    inner.result = parser.parseLess();
    visitMappingFields(mapping, inner);
    return inner.finish();
  }
  /// Parses the closing `>`.
  ParseResult finish() {
    if (failed(result))
      return failure();
    if (!hasComma && failed(parser.parseOptionalComma()))
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
      .Cases({"lanes", "threads_per_row"}, "mapping")
      .Case("warps", "mapping = mma_sync<warps = ...>")
      .Case("column_warps", "mapping = mma_sync<column_warps = ...>")
      .Cases({"queries_in_registers", "q_in_registers"}, "mapping = mma_sync<q_in_registers = ...>")
      .Cases({"roles", "hopper"}, "mapping = hopper<...>")
      .Cases({"narrow_blocks", "small_blocks_per_sm"},
             "mapping = hopper<small_blocks_per_sm = ...>")
      .Cases({"apart", "separate_dk_dv"}, "algorithm = separate_dk_dv")
      .Case("min_part_tiles", "min_split_tiles")
      .Case("tile_q", "dq_tile_m")
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

StringRef flashattn::getMappingName(const MappingFields &mapping) {
  return std::holds_alternative<CPUFields>(mapping)       ? "cpu"
         : std::holds_alternative<MmaSyncFields>(mapping) ? "mma_sync"
                                                          : "hopper";
}

std::optional<MappingFields> flashattn::makeMapping(StringRef name) {
  for (MappingFields made :
       {MappingFields(CPUFields()), MappingFields(MmaSyncFields()), MappingFields(HopperFields())})
    if (getMappingName(made) == name)
      return made;
  return std::nullopt;
}

bool MmaSyncFields::operator==(const MmaSyncFields &o) const {
  auto tie = [](const MmaSyncFields &f) {
    return std::tie(f.warps, f.columnWarps, f.qInRegisters);
  };
  return tie(*this) == tie(o);
}

bool HopperFields::operator==(const HopperFields &o) const {
  auto tie = [](const HopperFields &f) {
    return std::tie(f.consumers, f.cooperative, f.along, f.registers, f.producerRegisters,
                    f.rescaleThreshold, f.l2HeadGroup, f.blocksPerSM, f.smallBlocksPerSM, f.qStages,
                    f.lazyRescale, f.dynamicSchedulerMaxLen, f.dqReduceStages, f.compactKV,
                    f.prefetchKiBPerSM, f.qRegisterColumns);
  };
  return tie(*this) == tie(o);
}

bool ScheduleFields::operator==(const ScheduleFields &o) const {
  auto tie = [](const ScheduleFields &f) {
    return std::tie(f.tileM, f.tileN, f.stages, f.dotType, f.pack, f.splits, f.minSplitTiles,
                    f.dqTileM, f.algorithm, f.mapping);
  };
  return tie(*this) == tie(o);
}

MappingAttrInterface ScheduleFields::getMapping(MLIRContext *context) const {
  if (const MmaSyncFields *mmaSync = getMmaSync())
    return MmaSyncAttr::get(context, *mmaSync);
  if (const HopperFields *hopper = getHopper())
    return HopperAttr::get(context, *hopper);
  return CPUAttr::get(context);
}

//===----------------------------------------------------------------------===//
// CPU
//===----------------------------------------------------------------------===//

int64_t CPUAttr::getWarps() const { return 1; }
int64_t CPUAttr::getThreadsPerRow() const { return 1; }
int64_t CPUAttr::padColumns(int64_t columns) const { return std::max<int64_t>(columns, 2); }
bool CPUAttr::isOnGPU() const { return false; }

//===----------------------------------------------------------------------===//
// mma.sync
//===----------------------------------------------------------------------===//

/// Threads that share a row of an `mma.sync` or `wgmma` accumulator, and the columns of a product.
static constexpr int64_t kQuad = 4, kProductColumns = 16;

MmaSyncFields MmaSyncAttr::getFields() const {
  return {getWarps(), getColumnWarps(), getQInRegisters()};
}

int64_t MmaSyncAttr::getThreadsPerRow() const { return kQuad; }
int64_t MmaSyncAttr::padColumns(int64_t columns) const {
  return llvm::alignTo(columns, kProductColumns);
}

/// Parses the fields of `#flashattn.mma_sync` or `#flashattn.hopper`.
template <typename AttrT, typename Fields> static Attribute parseMapping(AsmParser &parser) {
  MappingFields fields = Fields();
  if (ScheduleFieldParser::parseFields(parser, fields))
    return {};
  return AttrT::getChecked([&] { return parser.emitError(parser.getNameLoc()); },
                           parser.getContext(), std::get<Fields>(fields));
}

static void printMapping(AsmPrinter &printer, const MappingFields &fields) {
  printer << '<';
  visitMappingFields(fields, FieldPrinter{printer.getStream()});
  printer << '>';
}

Attribute MmaSyncAttr::parse(AsmParser &parser, Type) {
  return parseMapping<MmaSyncAttr, MmaSyncFields>(parser);
}

void MmaSyncAttr::print(AsmPrinter &printer) const { printMapping(printer, getFields()); }

LogicalResult MmaSyncAttr::verify(function_ref<InFlightDiagnostic()> emitError, int64_t warps,
                                  int64_t columnWarps, std::optional<bool> qInRegisters) {
  MmaSyncFields fields{warps, columnWarps, qInRegisters};
  FieldVerifier verifier{emitError};
  visitMmaSyncFields(fields, verifier);
  if (failed(verifier.result))
    return failure();
  if (!llvm::isPowerOf2_64(columnWarps))
    return emitError() << "expected schedule field 'column_warps' to be a power of 2 but got "
                       << columnWarps;
  if (warps % columnWarps != 0)
    return emitError() << "expected schedule field 'warps' to be a multiple of 'column_warps', "
                       << columnWarps << ", but got " << warps;
  return success();
}

//===----------------------------------------------------------------------===//
// Hopper
//===----------------------------------------------------------------------===//

HopperFields HopperAttr::getFields() const {
  return {getConsumers(),       getCooperative(),       getAlong(),
          getRegisters(),       getProducerRegisters(), getRescaleThreshold(),
          getL2HeadGroup(),     getBlocksPerSM(),       getSmallBlocksPerSM(),
          getQStages(),         getLazyRescale(),       getDynamicSchedulerMaxLen(),
          getDqReduceStages(),  getCompactKV(),         getPrefetchKiBPerSM(),
          getQRegisterColumns()};
}

int64_t HopperAttr::getWarps() const {
  constexpr int64_t kWarpsOfGroup = 4;
  return isCooperative() ? kWarpsOfGroup * getConsumers() : kWarpsOfGroup;
}

int64_t HopperAttr::getThreadsPerRow() const { return kQuad; }
int64_t HopperAttr::padColumns(int64_t columns) const {
  return llvm::alignTo(columns, kProductColumns);
}
int64_t HopperAttr::getLag() const { return 1; }
std::optional<int64_t> HopperAttr::getThresholdOfRescale() const { return getRescaleThreshold(); }
bool HopperAttr::rescalesLazily() const { return getLazyRescale() != 0; }
bool HopperAttr::loadsKeyValuesAhead() const { return true; }
bool HopperAttr::mayRunWithoutTile() const { return true; }
bool HopperAttr::hasRegistersForBases() const { return false; }
bool HopperAttr::keepsRowLimits() const { return true; }
bool HopperAttr::hidesPairsAtOnce() const { return true; }
bool HopperAttr::addsByBulkCopy() const { return true; }
bool HopperAttr::hasSpaceForWideTiles() const { return true; }

HopperAttr HopperAttr::withoutDynamicScheduler(int64_t l2HeadGroup) const {
  HopperFields fields = getFields();
  fields.qStages = 1;
  fields.dynamicSchedulerMaxLen = 0;
  fields.l2HeadGroup = std::min(fields.l2HeadGroup, l2HeadGroup);
  return get(getContext(), fields);
}

Attribute HopperAttr::parse(AsmParser &parser, Type) {
  return parseMapping<HopperAttr, HopperFields>(parser);
}

void HopperAttr::print(AsmPrinter &printer) const { printMapping(printer, getFields()); }

LogicalResult HopperAttr::verify(function_ref<InFlightDiagnostic()> emitError, int64_t consumers,
                                 int64_t cooperative, ProgramAxis along, int64_t registers,
                                 int64_t producerRegisters, int64_t rescaleThreshold,
                                 int64_t l2HeadGroup, int64_t blocksPerSM, int64_t smallBlocksPerSM,
                                 int64_t qStages, int64_t lazyRescale,
                                 int64_t dynamicSchedulerMaxLen, int64_t dqReduceStages,
                                 int64_t compactKV, int64_t prefetchKiBPerSM,
                                 int64_t qRegisterColumns) {
  HopperFields fields{consumers,       cooperative,       along,
                      registers,       producerRegisters, rescaleThreshold,
                      l2HeadGroup,     blocksPerSM,       smallBlocksPerSM,
                      qStages,         lazyRescale,       dynamicSchedulerMaxLen,
                      dqReduceStages,  compactKV,         prefetchKiBPerSM,
                      qRegisterColumns};
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
  if (cooperative && consumers < 2)
    return emitError() << "expected schedule field 'consumers' to be at least 2 with 'cooperative' "
                          "but got "
                       << consumers;
  if (along != ProgramAxis::QueryTile && along != ProgramAxis::Head)
    return emitError() << "expected schedule field 'along' to be query_tile or head but got "
                       << stringifyProgramAxis(along);
  return success();
}

//===----------------------------------------------------------------------===//
// Schedules
//===----------------------------------------------------------------------===//

ScheduleAttr ScheduleAttr::getVerified(function_ref<InFlightDiagnostic()> emitError,
                                       MLIRContext *context, const ScheduleFields &fields) {
  const HopperFields *hopper = fields.getHopper();
  const MmaSyncFields *mmaSync = fields.getMmaSync();
  if ((hopper && !HopperAttr::getChecked(emitError, context, *hopper)) ||
      (mmaSync && !MmaSyncAttr::getChecked(emitError, context, *mmaSync)))
    return {};
  return getChecked(emitError, context, fields);
}

ScheduleFields ScheduleAttr::getFields() const {
  MappingFields mapping;
  if (getHopper())
    mapping = getHopper().getFields();
  else if (getMmaSync())
    mapping = getMmaSync().getFields();
  return {getTileM(),  getTileN(),         getStages(),  getDotType(),   getPack(),
          getSplits(), getMinSplitTiles(), getDqTileM(), getAlgorithm(), mapping};
}

ScheduleAttr ScheduleAttr::withHopper(HopperAttr hopper) const {
  ScheduleFields fields = getFields();
  fields.mapping = hopper.getFields();
  return get(getContext(), fields);
}

ScheduleAttr ScheduleAttr::withoutHopper() const {
  ScheduleFields fields = getFields();
  if (!fields.isOnCPU()) {
    MmaSyncFields mmaSync;
    mmaSync.warps = getWarpsOfRows();
    mmaSync.qInRegisters = getQInRegisters();
    fields.mapping = mmaSync;
  }
  fields.algorithm.reset();
  fields.stages = std::min<int64_t>(fields.stages, 2);
  return get(getContext(), fields);
}

ScheduleAttr ScheduleAttr::withSplits(int64_t splits) const {
  ScheduleFields fields = getFields();
  fields.splits = splits;
  if (splits == 1) {
    fields.minSplitTiles = ScheduleFields().minSplitTiles;
    if (HopperFields *hopper = fields.getHopper())
      hopper->smallBlocksPerSM = 0;
  }
  return get(getContext(), fields);
}

ScheduleAttr ScheduleAttr::withSmallBlocks() const {
  // Register counts are multiples of 8, and a producer needs no more than kProducer. kLeast and
  // kMost are the limits of a thread; the target decides whether the registers suffice.
  constexpr int64_t kEach = 8, kProducer = 40, kLeast = 24, kMost = 248;
  ScheduleFields fields = withSplits(1).getFields();
  HopperFields &hopper = *fields.getHopper();
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

bool ScheduleAttr::hasReduceWarps() const {
  return isWarpSpecialized() && getHopper().getDqReduceStages() != 0;
}

bool ScheduleAttr::beginsWithDeltas() const {
  return isWarpSpecialized() && addsQueries() && getTileN() == getTileM();
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
  if (MmaSyncFields *mmaSync = fields.getMmaSync())
    mmaSync->columnWarps = 1;
  if (splitsSums()) {
    fields.algorithm = BackwardAlgorithm::SeparateDq;
    fields.getHopper()->cooperative = 0;
  }
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
  bool hasSpace = splitsSums() || compactsKV() || (isWarpSpecialized() && separatesDkDv());
  if (compactsKV()) {
    fields.pack = 1;
    HopperFields &hopper = *fields.getHopper();
    hopper.compactKV = hopper.dynamicSchedulerMaxLen = 0;
    hopper.qStages = 1;
    // Two accumulators fit if at most two blocks share the registers of all blocks.
    if (int64_t all = hopper.blocksPerSM; all > 2) {
      auto share = [&](int64_t &registers) {
        constexpr int64_t kUnit = 8, kMost = 256; // limits of the schedule's fields
        registers = std::min(kMost, registers * all / 2 / kUnit * kUnit);
      };
      hopper.blocksPerSM = 2;
      share(hopper.registers);
      share(hopper.producerRegisters);
    }
  }
  if (hasSpace && fields.tileN < kWide) {
    fields.tileN = kWide;
    if (!compactsKV())
      fields.stages = std::min(fields.stages, kStages);
  }
  return get(getContext(), fields);
}

ScheduleAttr ScheduleAttr::forBiasElements(int64_t d, int64_t dv) const {
  if (!isWarpSpecialized())
    return {};
  // Two warpgroups share a tile, of which a thread holds scores, dP and a sum. Programs are short,
  // with one step per pair of batch and head that they sum, so that blocks are persistent and
  // prefetch the tiles of the next program. Two stages take 213 KB with D = Dv = 128, and one stage
  // as much with 256; in shared memory, columns are whole panels of 64.
  constexpr int64_t kConsumers = 2, kRows = 64, kTwoStages = 256, kPanel = 64;
  HopperFields hopper;
  hopper.consumers = kConsumers;
  hopper.cooperative = 1;
  hopper.registers = 224;
  hopper.producerRegisters = 56;
  hopper.qStages = 2;
  ScheduleFields fields;
  fields.tileM = kConsumers * kRows;
  fields.tileN = kRows;
  fields.stages = llvm::alignTo(d, kPanel) + llvm::alignTo(dv, kPanel) <= kTwoStages ? 2 : 1;
  fields.dotType = getDotType();
  fields.mapping = hopper;
  return get(getContext(), fields);
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
                                   int64_t tileN, int64_t stages, FloatType dotType, int64_t pack,
                                   int64_t splits, int64_t minSplitTiles, int64_t dqTileM,
                                   std::optional<BackwardAlgorithm> algorithm,
                                   MappingAttrInterface mapping) {
  ScheduleFields fields{tileM,  tileN,         stages,  dotType,   pack,
                        splits, minSplitTiles, dqTileM, algorithm, CPUFields()};
  FieldVerifier verifier{emitError};
  visitScheduleFields(fields, verifier);
  if (failed(verifier.result))
    return failure();
  int64_t threadsPerRow = mapping.getThreadsPerRow();
  if (tileM % pack != 0)
    return emitError() << "expected schedule field 'tile_m' to be a multiple of 'pack', " << pack
                       << ", but got " << tileM;
  if (tileN % threadsPerRow != 0)
    return emitError() << "expected schedule field 'tile_n' to be a multiple of " << threadsPerRow
                       << ", the threads that share a row, but got " << tileN;
  if (getTypeName(dotType).empty())
    return emitError() << "expected schedule field 'dot_type' to be f16, bf16 or f32 but got "
                       << dotType;
  if (splits == 1 && minSplitTiles != ScheduleFields().minSplitTiles)
    return emitError() << "expected no schedule field 'min_split_tiles' without splits but got "
                       << minSplitTiles;
  auto hopper = dyn_cast<HopperAttr>(mapping);
  bool isShared =
      algorithm == BackwardAlgorithm::AccumulateDq || algorithm == BackwardAlgorithm::SplitDkDv;
  if (algorithm == BackwardAlgorithm::SplitDkDv && !hopper)
    return emitError() << "expected mapping 'hopper' with algorithm split_dk_dv but got "
                       << mapping;
  if (hopper && isShared && !hopper.isCooperative())
    return emitError() << "expected schedule field 'cooperative' 1 with algorithm "
                       << stringifyBackwardAlgorithm(*algorithm) << " but got 0";
  int64_t smallBlocksPerSM = hopper ? hopper.getSmallBlocksPerSM() : 0;
  if (smallBlocksPerSM != 0 && (splits == 1 || hopper.getConsumers() != 1))
    return emitError() << "expected no schedule field 'small_blocks_per_sm' unless 'splits' is "
                          "above 1 and 'consumers' is 1 but got "
                       << smallBlocksPerSM;
  if (smallBlocksPerSM != 0 && tileN % (2 * threadsPerRow) != 0)
    return emitError() << "expected schedule field 'tile_n' to be a multiple of "
                       << 2 * threadsPerRow << " with 'small_blocks_per_sm' but got " << tileN;
  return success();
}
