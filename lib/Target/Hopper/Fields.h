//===- Fields.h - what schedules with roles have in common -------*- C++ -*-===//

#ifndef FLASHATTN_LIB_TARGET_HOPPER_FIELDS_H
#define FLASHATTN_LIB_TARGET_HOPPER_FIELDS_H

#include "../MachineSchedules.h"

namespace mlir::flashattn::warpgroups {

/// Rows and warps of a warpgroup.
constexpr int64_t kRows = 64, kWarps = 4;
/// `rescale` where rescaling more often would cost more than it saves.
constexpr int64_t kFewRescales = 8;
/// `in_flight` of few queries. Memory is fastest with some 9 MB on their way to an H100's 132
/// multiprocessors, whether that is 5 steps of 32 KB in each of 48 blocks or 2 in each of 136, or 3
/// of 16 KB in 192 narrow ones; with more, programs that share a multiprocessor are done long after
/// the others. 144 programs of 8192 keys, D = 128, take 198 us with 2 steps and 213 with 3, 80 with
/// D = 256 219 with 4 and 237 with 5.
constexpr int64_t kInFlight = 72;
/// With `late_rescale`, where it costs a tile's scores: as far as f16 goes. Of rows whose scores,
/// times the scale, have a standard deviation of 4, a warp makes 1 tile of 250 again, of 128 keys
/// each; with 8 in its place 1 of 25.
constexpr int64_t kLateRescale = 15;

/// Tiles of a warpgroup's rows.
ScheduleFields makeFields(int64_t tileN, int64_t stages, int64_t pack, const RolesFields &roles,
                          FloatType element);

/// What tensor copies ask of an operand.
std::string explainRowRefusal(StringRef name, Value operand);
/// What the shapes of the op and the schedule must be.
std::string explainShapeRefusal(AttentionOpInterface op, ScheduleAttr schedule,
                                const Machine &machine);
/// Registers of the consumers, of which they need `needs`, and of the block.
std::string explainRegisterRefusal(AttentionOpInterface op, ScheduleAttr schedule,
                                   ArrayRef<Need> needs);
/// What joining keys asks: that the mask alone reads a key's number.
std::string explainJoinRefusal(AttentionOpInterface op, ScheduleAttr schedule);
/// Whether a block finds room for `plan`.
std::string explainMemoryRefusal(const SharedMemoryPlan &plan, ScheduleAttr schedule,
                                 const Machine &machine);
/// A tile of rows of one warpgroup, or that `most` of them share.
std::string explainTileRefusal(ScheduleAttr schedule, int64_t most);

} // namespace mlir::flashattn::warpgroups

#endif // FLASHATTN_LIB_TARGET_HOPPER_FIELDS_H
