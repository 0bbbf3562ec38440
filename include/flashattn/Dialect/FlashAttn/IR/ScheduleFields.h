//===- ScheduleFields.h - fields of schedules as plain data -----*- C++ -*-===//
//
// The fields of `#flashattn.schedule` and its mappings. This is the only list of the fields, with
// their names, ranges and default values; the code that parses, prints, verifies and completes
// schedules uses this list.
//
//===----------------------------------------------------------------------===//

#ifndef FLASHATTN_DIALECT_FLASHATTN_IR_SCHEDULEFIELDS_H
#define FLASHATTN_DIALECT_FLASHATTN_IR_SCHEDULEFIELDS_H

#include "mlir/IR/BuiltinTypes.h"

#include <optional>
#include <variant>

#include "flashattn/Dialect/FlashAttn/IR/FlashAttnEnums.h.inc"

namespace mlir::flashattn {

class MappingAttrInterface;

/// Maximum number of splits of the keys (split-KV).
constexpr int64_t kMaxSplits = 256;

/// The fields of `#flashattn.cpu`: none.
struct CPUFields {
  bool operator==(const CPUFields &) const { return true; }
};

/// The fields of `#flashattn.mma_sync`; see its description.
struct MmaSyncFields {
  int64_t warps = 4, columnWarps = 1;
  std::optional<bool> qInRegisters;

  bool operator==(const MmaSyncFields &) const;
};

/// The fields of `#flashattn.hopper`; see its description.
struct HopperFields {
  int64_t consumers = 1, cooperative = 0;
  ProgramAxis along = ProgramAxis::QueryTile;
  int64_t registers = 0, producerRegisters = 0, rescaleThreshold = 0, l2HeadGroup = 1,
          blocksPerSM = 1, smallBlocksPerSM = 0, qStages = 1;
  int64_t lazyRescale = 0, dynamicScheduler = 0, dqReduceStages = 0, compactKV = 0,
          prefetchKiBPerSM = 0, qRegisterColumns = 0;

  bool operator==(const HopperFields &) const;
};

using MappingFields = std::variant<CPUFields, MmaSyncFields, HopperFields>;

/// The fields of `#flashattn.schedule`; see its description.
struct ScheduleFields {
  int64_t tileM = 64, tileN = 64, stages = 2;
  FloatType dotType;
  int64_t pack = 1, splits = 1, minSplitTiles = 2, dqTileM = 0;
  std::optional<BackwardAlgorithm> algorithm;
  MappingFields mapping = MmaSyncFields();

  /// Returns the fields of one kind of mapping; null if the mapping is of another kind.
  MmaSyncFields *getMmaSync() { return std::get_if<MmaSyncFields>(&mapping); }
  const MmaSyncFields *getMmaSync() const { return std::get_if<MmaSyncFields>(&mapping); }
  HopperFields *getHopper() { return std::get_if<HopperFields>(&mapping); }
  const HopperFields *getHopper() const { return std::get_if<HopperFields>(&mapping); }
  bool isOnCPU() const { return std::holds_alternative<CPUFields>(mapping); }
  MappingAttrInterface getMapping(MLIRContext *context) const;

  bool operator==(const ScheduleFields &) const;
  bool operator!=(const ScheduleFields &other) const { return !(*this == other); }
};

/// Properties of a field other than its value.
struct FieldInfo {
  StringRef name;
  int64_t min = 0, max = 0;       ///< range of an integer field
  std::optional<int64_t> leftOut; ///< default value of an integer field; nullopt: required
};

/// Calls `visit(info, field)` for every field, in the order of the textual form. A field is an
/// int64_t, an enum, `dotType`, `mapping`, or a std::optional for an optional field without a
/// default value.
template <typename Fields, typename Visitor>
void visitMmaSyncFields(Fields &fields, Visitor &&visit) {
  const MmaSyncFields leftOut;
  visit(FieldInfo{"warps", 1, 32, {}}, fields.warps);
  visit(FieldInfo{"column_warps", 1, 8, leftOut.columnWarps}, fields.columnWarps);
  visit(FieldInfo{"q_in_registers", 0, 0, {}}, fields.qInRegisters);
}

template <typename Fields, typename Visitor>
void visitHopperFields(Fields &fields, Visitor &&visit) {
  constexpr int64_t kMost = 65535;
  const HopperFields leftOut;
  visit(FieldInfo{"consumers", 1, 7, {}}, fields.consumers);
  visit(FieldInfo{"cooperative", 0, 1, leftOut.cooperative}, fields.cooperative);
  visit(FieldInfo{"along", 0, 0, {}}, fields.along);
  visit(FieldInfo{"registers", 24, 256, {}}, fields.registers);
  visit(FieldInfo{"producer_registers", 24, 256, {}}, fields.producerRegisters);
  visit(FieldInfo{"rescale_threshold", 0, 15, {}}, fields.rescaleThreshold);
  visit(FieldInfo{"l2_head_group", 0, kMost, {}}, fields.l2HeadGroup);
  visit(FieldInfo{"blocks_per_sm", 1, 8, leftOut.blocksPerSM}, fields.blocksPerSM);
  visit(FieldInfo{"small_blocks_per_sm", 0, 8, leftOut.smallBlocksPerSM}, fields.smallBlocksPerSM);
  visit(FieldInfo{"q_stages", 1, 2, leftOut.qStages}, fields.qStages);
  visit(FieldInfo{"lazy_rescale", 0, 1, leftOut.lazyRescale}, fields.lazyRescale);
  visit(FieldInfo{"dynamic_scheduler", 0, 1, leftOut.dynamicScheduler}, fields.dynamicScheduler);
  visit(FieldInfo{"dq_reduce_stages", 0, 2, leftOut.dqReduceStages}, fields.dqReduceStages);
  visit(FieldInfo{"compact_kv", 0, 1, leftOut.compactKV}, fields.compactKV);
  visit(FieldInfo{"prefetch_kib_per_sm", 0, kMost, leftOut.prefetchKiBPerSM},
        fields.prefetchKiBPerSM);
  visit(FieldInfo{"q_register_columns", 0, 256, leftOut.qRegisterColumns}, fields.qRegisterColumns);
}

template <typename Fields, typename Visitor>
void visitScheduleFields(Fields &fields, Visitor &&visit) {
  constexpr int64_t kMost = 65535;
  const ScheduleFields leftOut;
  visit(FieldInfo{"tile_m", 1, 1024, {}}, fields.tileM);
  visit(FieldInfo{"tile_n", 1, 1024, {}}, fields.tileN);
  visit(FieldInfo{"stages", 1, 8, {}}, fields.stages);
  visit(FieldInfo{"dot_type", 0, 0, {}}, fields.dotType);
  visit(FieldInfo{"pack", 1, fields.tileM, leftOut.pack}, fields.pack);
  visit(FieldInfo{"splits", 1, kMaxSplits, leftOut.splits}, fields.splits);
  visit(FieldInfo{"min_split_tiles", 1, kMost, leftOut.minSplitTiles}, fields.minSplitTiles);
  visit(FieldInfo{"dq_tile_m", 0, 1024, leftOut.dqTileM}, fields.dqTileM);
  visit(FieldInfo{"algorithm", 0, 0, {}}, fields.algorithm);
  visit(FieldInfo{"mapping", 0, 0, {}}, fields.mapping);
}

/// Calls `visit` for every field of a mapping.
template <typename Mapping, typename Visitor>
void visitMappingFields(Mapping &mapping, Visitor &&visit) {
  if (auto *mmaSync = std::get_if<MmaSyncFields>(&mapping))
    visitMmaSyncFields(*mmaSync, visit);
  else if (auto *hopper = std::get_if<HopperFields>(&mapping))
    visitHopperFields(*hopper, visit);
}

/// Returns "cpu", "mma_sync" or "hopper".
StringRef getMappingName(const MappingFields &mapping);

/// Returns default fields of the mapping `name`; nullopt if there is no such mapping.
std::optional<MappingFields> makeMapping(StringRef name);

/// Returns the fields as text, as used for pinned fields and in files: "tile_m = 128, tile_n = 64,
/// …". The fields need not form a valid schedule.
std::string formatFields(const ScheduleFields &fields);

/// Returns what a renamed field is called now, or an empty string.
StringRef getNewFieldName(StringRef old);

/// Returns "f16", "bf16" or "f32".
StringRef getTypeName(FloatType type);

} // namespace mlir::flashattn

#endif // FLASHATTN_DIALECT_FLASHATTN_IR_SCHEDULEFIELDS_H
