//===- Fields.h - what schedules with roles have in common -------*- C++ -*-===//

#ifndef FLASHATTN_LIB_TARGET_HOPPER_FIELDS_H
#define FLASHATTN_LIB_TARGET_HOPPER_FIELDS_H

#include "../MachineSchedules.h"

namespace mlir::flashattn::warpgroups {

/// Rows and warps of a warpgroup.
constexpr int64_t kRows = 64, kWarps = 4;
/// `rescale` where rescaling more often would cost more than it saves.
constexpr int64_t kFewRescales = 8;
/// With `late_rescale`, where it costs a tile's scores: as far as f16 goes. Of rows whose scores,
/// times the scale, have a standard deviation of 4, a warp makes 1 tile of 250 again, of 128 keys
/// each; with 8 in its place 1 of 25.
constexpr int64_t kLateRescale = 15;

/// Tiles of a warpgroup's rows.
ScheduleFields makeFields(int64_t tileN, int64_t stages, int64_t pack, const RolesFields &roles,
                          FloatType element);

} // namespace mlir::flashattn::warpgroups

#endif // FLASHATTN_LIB_TARGET_HOPPER_FIELDS_H
