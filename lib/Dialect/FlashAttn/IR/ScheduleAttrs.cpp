//===- ScheduleAttrs.cpp - schedules --------------------------------------===//

#include "FieldText.h"
#include "llvm/ADT/StringSwitch.h"

using namespace mlir;
using namespace mlir::flashattn;

StringRef flashattn::getTypeName(FloatType type) {
  return type.isF16()                  ? "f16"
         : type.isBF16()               ? "bf16"
         : type.isF32()                ? "f32"
         : isa<Float8E4M3FNType>(type) ? "f8E4M3FN"
                                       : "";
}

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
      .Cases({"claims_below", "dynamic_scheduler_max_len"}, "dynamic_scheduler")
      .Case("add_stages", "dq_reduce_stages")
      .Case("joins", "compact_kv")
      .Case("in_flight", "prefetch_kib_per_sm")
      .Case("query_columns", "q_register_columns")
      .Default("");
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

int64_t ScheduleAttr::padColumns(int64_t columns) const {
  // Columns of a product of f8.
  constexpr int64_t kProductColumns = 32;
  return isF8(getDotType()) ? llvm::alignTo(columns, kProductColumns)
                            : getMapping().padColumns(columns);
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
    hopper.compactKV = hopper.dynamicScheduler = 0;
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
    return emitError()
           << "expected schedule field 'dot_type' to be f16, bf16, f32 or f8E4M3FN but got "
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
