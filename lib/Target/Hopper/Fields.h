//===- Fields.h - what schedules with roles have in common -------*- C++ -*-===//

#ifndef FLASHATTN_LIB_TARGET_HOPPER_FIELDS_H
#define FLASHATTN_LIB_TARGET_HOPPER_FIELDS_H

#include "../MachineSchedules.h"

namespace mlir::flashattn::warpgroups {

/// Rows and warps of a warpgroup.
constexpr int64_t kRows = 64, kWarps = 4;
/// `rescale` where rescaling more often would cost more than it saves.
constexpr int64_t kFewRescales = 8;

/// Tiles of a warpgroup's rows.
ScheduleFields makeFields(int64_t tileN, int64_t stages, int64_t pack, const RolesFields &roles,
                          FloatType element);

} // namespace mlir::flashattn::warpgroups

#endif // FLASHATTN_LIB_TARGET_HOPPER_FIELDS_H
