//===- MappingAttrs.cpp - how programs map to machines --------------------===//

#include "FieldText.h"

using namespace mlir;
using namespace mlir::flashattn;

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
                    f.lazyRescale, f.dynamicScheduler, f.dqReduceStages, f.compactKV,
                    f.prefetchKiBPerSM, f.qRegisterColumns);
  };
  return tie(*this) == tie(o);
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
          getQStages(),         getLazyRescale(),       getDynamicScheduler(),
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

Attribute HopperAttr::parse(AsmParser &parser, Type) {
  return parseMapping<HopperAttr, HopperFields>(parser);
}

void HopperAttr::print(AsmPrinter &printer) const { printMapping(printer, getFields()); }

LogicalResult HopperAttr::verify(function_ref<InFlightDiagnostic()> emitError, int64_t consumers,
                                 int64_t cooperative, ProgramAxis along, int64_t registers,
                                 int64_t producerRegisters, int64_t rescaleThreshold,
                                 int64_t l2HeadGroup, int64_t blocksPerSM, int64_t smallBlocksPerSM,
                                 int64_t qStages, int64_t lazyRescale, int64_t dynamicScheduler,
                                 int64_t dqReduceStages, int64_t compactKV,
                                 int64_t prefetchKiBPerSM, int64_t qRegisterColumns) {
  HopperFields fields{
      consumers,        cooperative,      along,          registers,        producerRegisters,
      rescaleThreshold, l2HeadGroup,      blocksPerSM,    smallBlocksPerSM, qStages,
      lazyRescale,      dynamicScheduler, dqReduceStages, compactKV,        prefetchKiBPerSM,
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
