//===- ScheduleFields.h - the fields of a schedule as plain data -*- C++ -*-===//
//
// The fields of `#flashattn.schedule` and its `roles`. This is the only list of the fields, with
// their names, ranges and default values; the code that parses, prints, verifies and completes
// schedules uses it.
//
//===----------------------------------------------------------------------===//

#ifndef FLASHATTN_DIALECT_FLASHATTN_IR_SCHEDULEFIELDS_H
#define FLASHATTN_DIALECT_FLASHATTN_IR_SCHEDULEFIELDS_H

#include "mlir/IR/BuiltinTypes.h"

#include <optional>

#include "flashattn/Dialect/FlashAttn/IR/FlashAttnEnums.h.inc"

namespace mlir::flashattn {

/// Maximum number of parts that a schedule may cut the keys into.
constexpr int64_t kMaxSplits = 256;

/// Maximum number of keys.
constexpr int64_t kMostKeys = std::numeric_limits<int32_t>::max();

/// The fields of `#flashattn.roles`; see its description.
struct RolesFields {
  int64_t consumers = 1;
  ProgramAxis along = ProgramAxis::QueryTile;
  int64_t registers = 0, producerRegisters = 0, rescale = 0, section = 1, blocks = 1,
          queryStages = 1;
  int64_t lateRescale = 0, claimsBelow = 0, addStages = 0, joins = 0, inFlight = 0,
          queryColumns = 0;

  bool operator==(const RolesFields &) const;
};

/// The fields of `#flashattn.schedule`.
struct ScheduleFields {
  int64_t tileM = 64, tileN = 64, warps = 4, stages = 2, lanes = 4;
  FloatType dotType;
  int64_t pack = 1, splits = 1, minPartTiles = 2, narrowBlocks = 0, tileQ = 0, columnWarps = 1;
  std::optional<bool> queriesInRegisters, apart;
  std::optional<RolesFields> roles;

  bool operator==(const ScheduleFields &) const;
  bool operator!=(const ScheduleFields &other) const { return !(*this == other); }
};

/// Properties of a field other than its value.
struct FieldInfo {
  StringRef name;
  int64_t min = 0, max = 0;       ///< range of a number
  std::optional<int64_t> leftOut; ///< value of a number that is omitted
};

/// Calls `visit(info, field)` for every field in the order of the text. Fields are numbers,
/// `along`, `dotType`, and a std::optional for each optional field without a default value.
template <typename Fields, typename Visitor>
void visitRolesFields(Fields &fields, Visitor &&visit) {
  constexpr int64_t kMost = 65535;
  const RolesFields leftOut;
  visit(FieldInfo{"consumers", 1, 7, {}}, fields.consumers);
  visit(FieldInfo{"along", 0, 0, {}}, fields.along);
  visit(FieldInfo{"registers", 24, 256, {}}, fields.registers);
  visit(FieldInfo{"producer_registers", 24, 256, {}}, fields.producerRegisters);
  visit(FieldInfo{"rescale", 0, 15, {}}, fields.rescale);
  visit(FieldInfo{"section", 0, kMost, {}}, fields.section);
  visit(FieldInfo{"blocks", 1, 8, leftOut.blocks}, fields.blocks);
  visit(FieldInfo{"query_stages", 1, 2, leftOut.queryStages}, fields.queryStages);
  visit(FieldInfo{"late_rescale", 0, 1, leftOut.lateRescale}, fields.lateRescale);
  visit(FieldInfo{"claims_below", 0, kMostKeys, leftOut.claimsBelow}, fields.claimsBelow);
  visit(FieldInfo{"add_stages", 0, 2, leftOut.addStages}, fields.addStages);
  visit(FieldInfo{"joins", 0, 1, leftOut.joins}, fields.joins);
  visit(FieldInfo{"in_flight", 0, kMost, leftOut.inFlight}, fields.inFlight);
  visit(FieldInfo{"query_columns", 0, 256, leftOut.queryColumns}, fields.queryColumns);
}

template <typename Fields, typename Visitor>
void visitScheduleFields(Fields &fields, Visitor &&visit) {
  constexpr int64_t kMost = 65535;
  const ScheduleFields leftOut;
  visit(FieldInfo{"tile_m", 1, 1024, {}}, fields.tileM);
  visit(FieldInfo{"tile_n", 1, 1024, {}}, fields.tileN);
  visit(FieldInfo{"warps", 1, 32, {}}, fields.warps);
  visit(FieldInfo{"stages", 1, 8, {}}, fields.stages);
  visit(FieldInfo{"lanes", 1, 32, {}}, fields.lanes);
  visit(FieldInfo{"dot_type", 0, 0, {}}, fields.dotType);
  visit(FieldInfo{"pack", 1, fields.tileM, leftOut.pack}, fields.pack);
  visit(FieldInfo{"splits", 1, kMaxSplits, leftOut.splits}, fields.splits);
  visit(FieldInfo{"min_part_tiles", 1, kMost, leftOut.minPartTiles}, fields.minPartTiles);
  visit(FieldInfo{"narrow_blocks", 0, 8, leftOut.narrowBlocks}, fields.narrowBlocks);
  visit(FieldInfo{"tile_q", 0, 1024, leftOut.tileQ}, fields.tileQ);
  visit(FieldInfo{"column_warps", 1, 8, leftOut.columnWarps}, fields.columnWarps);
  visit(FieldInfo{"queries_in_registers", 0, 0, {}}, fields.queriesInRegisters);
  visit(FieldInfo{"apart", 0, 0, {}}, fields.apart);
  visit(FieldInfo{"roles", 0, 0, {}}, fields.roles);
}

/// Returns the text of the fields as used in pins and files: "tile_m = 128, tile_n = 64, …". The
/// fields need not form a valid schedule.
std::string formatFields(const ScheduleFields &fields);

/// Returns "f16", "bf16" or "f32".
StringRef getTypeName(FloatType type);

} // namespace mlir::flashattn

#endif // FLASHATTN_DIALECT_FLASHATTN_IR_SCHEDULEFIELDS_H
