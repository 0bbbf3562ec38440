//===- Fields.h - shared by warp-specialized schedules ----------*- C++ -*-===//

#ifndef FLASHATTN_LIB_TARGET_HOPPER_FIELDS_H
#define FLASHATTN_LIB_TARGET_HOPPER_FIELDS_H

#include "../MachineSchedules.h"

namespace mlir::flashattn::warpgroups {

/// Rows of a warpgroup.
constexpr int64_t kRows = 64;
/// `rescale_threshold` if more frequent rescaling would cost more than it saves.
constexpr int64_t kFewRescales = 8;
/// `prefetch_kib_per_sm` for few queries. Memory throughput is highest with this many bytes in
/// flight, in however many blocks; with more, programs that share a multiprocessor finish long
/// after the others (docs/rationale/decode-prefetch.md).
constexpr int64_t kPrefetchKiB = 72;
/// `rescale_threshold` with `lazy_rescale`, which computes a tile's scores again to rescale: the
/// largest power of 2 in f16, so that few tiles are computed again (docs/rationale/rescale.md).
constexpr int64_t kLazyRescale = 15;
/// Maximum number of visible sets of a mask whose keys are compacted. The mask of a tile is
/// computed once for each key interval, so the code size grows with the square of the number of
/// sets.
constexpr size_t kMostCompactSets = 16;

/// Returns fields with the rows of one warpgroup.
ScheduleFields makeFields(int64_t tileN, int64_t stages, int64_t pack, const HopperFields &hopper,
                          FloatType element);

/// Sets the algorithm of a backward pass, whether consumers cooperate, and `tile_m`.
void setAlgorithm(ScheduleFields &fields, BackwardAlgorithm algorithm);

// The functions below return why a requirement is not met; empty if it is met.

/// Checks the alignment that tensor copies require of an operand's rows.
std::string explainRowRefusal(StringRef name, Value operand);
/// Checks the shapes of the op and the schedule.
std::string explainShapeRefusal(AttentionOpInterface op, ScheduleAttr schedule,
                                const Machine &machine);
/// Checks the registers of a consumer thread, which requires `needs`, and of the block.
std::string explainRegisterRefusal(AttentionOpInterface op, ScheduleAttr schedule,
                                   ArrayRef<Need> needs);
/// Checks compacted keys: only the mask may depend on the index of a key.
std::string explainCompactRefusal(AttentionOpInterface op, ScheduleAttr schedule);
/// Checks that `plan` fits in the shared memory of a block.
std::string explainMemoryRefusal(const SharedMemoryPlan &plan, ScheduleAttr schedule,
                                 const Machine &machine);
/// Checks `tile_m`: the tile has the rows of one warpgroup, or those of the cooperative consumers.
std::string explainTileRefusal(ScheduleAttr schedule);

} // namespace mlir::flashattn::warpgroups

#endif // FLASHATTN_LIB_TARGET_HOPPER_FIELDS_H
