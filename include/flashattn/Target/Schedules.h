//===- Schedules.h - the schedules that a chip offers an op ------*- C++ -*-===//
//
// One table per kind of chip, and the resources that a schedule needs there. A
// target knows nothing of another's table.
//
//===----------------------------------------------------------------------===//

#ifndef FLASHATTN_TARGET_SCHEDULES_H
#define FLASHATTN_TARGET_SCHEDULES_H

#include "flashattn/Dialect/FlashAttn/IR/FlashAttn.h"

namespace mlir::flashattn {

/// Where a schedule is to run.
struct Chip {
  /// "cpu", or a GPU as "sm_XX" ("sm_90a" with its architecture-specific features).
  std::string name;
  /// f32 lanes of a vector register; the CPU's only.
  int64_t vectorWidth = 16;

  bool isCPU() const { return name == "cpu"; }
  /// 80 of "sm_80"; 0 where the name is no GPU's.
  int getComputeCapability() const;
  /// Whether it has wgmma and warp roles: sm_90a.
  bool hasWarpgroups() const;
  /// Whether a kernel can wait itself for the one before it (`griddepcontrol`): sm_90 and newer.
  bool hasDependentLaunch() const { return getComputeCapability() >= 90; }
  /// Shared memory that one block may use, bytes (CUDA programming guide, "technical
  /// specifications per compute capability").
  int64_t getSharedMemoryPerBlock() const;
};

/// Error at `loc` if `chip` is none that the project compiles for.
LogicalResult verifyChip(function_ref<InFlightDiagnostic()> emitError, const Chip &chip);

/// The growth of exponents, as a power of 2, up to which weights of type `element` put off a
/// rescaling without losing accuracy to rule A9.
int64_t getDefaultRescale(FloatType element);

/// Whether `op` has few queries, at most 16 whatever its lengths: its time is that of reading the
/// keys and values.
bool isDecode(AttentionOp op);

/// Schedules to try for `op` on `chip`, best first.
SmallVector<ScheduleAttr> getScheduleCandidates(AttentionOp op, const Chip &chip);

/// Most rows of a batch that a projection's tile takes from each of several batches.
constexpr int64_t kFewProjectRows = 16;

/// The same for a projection: `tile_m` rows of `o` and `tile_n` columns of `w` a program.
SmallVector<ScheduleAttr> getScheduleCandidates(ProjectOp op, const Chip &chip);

/// Elements of a row of `o` that one step of a projection's program multiplies.
int64_t getProjectDepth(ProjectOp op, ScheduleAttr schedule);

/// Why `schedule` cannot compile `op` for `chip`: needed and available of what is
/// short, by buffer; empty where it can (rule R2, principle "refuse early and in full").
std::string explainRefusal(AttentionOp op, ScheduleAttr schedule, const Chip &chip);
std::string explainRefusal(ProjectOp op, ScheduleAttr schedule, const Chip &chip);

} // namespace mlir::flashattn

#endif // FLASHATTN_TARGET_SCHEDULES_H
