//===- Fields.h - what schedules with warp specialization have in common -------*- C++ -*-===//

#ifndef FLASHATTN_LIB_TARGET_HOPPER_FIELDS_H
#define FLASHATTN_LIB_TARGET_HOPPER_FIELDS_H

#include "../MachineSchedules.h"

namespace mlir::flashattn::warpgroups {

/// Rows and warps of a warpgroup.
constexpr int64_t kRows = 64, kWarps = 4;
/// `rescale_threshold` where rescaling more often would cost more than it saves.
constexpr int64_t kFewRescales = 8;
/// `prefetch_kib_per_sm` of few queries. Memory is fastest with so many bytes in flight, in however
/// many blocks; with more, programs that share a multiprocessor end long after the others
/// (docs/rationale/decode-prefetch.md).
constexpr int64_t kPrefetchKiB = 72;
/// With `lazy_rescale`, where a rescaling costs a tile's scores: as far as f16 goes, so that few
/// tiles are made again (docs/rationale/rescale.md).
constexpr int64_t kLazyRescale = 15;
/// Most sets of a mask whose keys are joined. The mask of a tile is built once for each interval of
/// keys, so that the code grows with the square of their number.
constexpr size_t kMostCompactSets = 16;

/// Tiles of a warpgroup's rows.
ScheduleFields makeFields(int64_t tileN, int64_t stages, int64_t pack, const HopperFields &hopper,
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
std::string explainCompactRefusal(AttentionOpInterface op, ScheduleAttr schedule);
/// Whether a block finds room for `plan`.
std::string explainMemoryRefusal(const SharedMemoryPlan &plan, ScheduleAttr schedule,
                                 const Machine &machine);
/// A tile of rows of one warpgroup, or that `most` of them share.
std::string explainTileRefusal(ScheduleAttr schedule, int64_t most);

} // namespace mlir::flashattn::warpgroups

#endif // FLASHATTN_LIB_TARGET_HOPPER_FIELDS_H
