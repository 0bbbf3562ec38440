//===- MachineSchedules.h - what each folder of a machine gives --*- C++ -*-===//

#ifndef FLASHATTN_LIB_TARGET_MACHINESCHEDULES_H
#define FLASHATTN_LIB_TARGET_MACHINESCHEDULES_H

#include "flashattn/Target/Schedules.h"

namespace mlir::flashattn {

using Candidates = SmallVector<ScheduleAttr>;

/// Adds a trial, but for one that is there.
using AddTrial = function_ref<void(const ScheduleFields &)>;

/// What the grid was given, or `values`.
inline SmallVector<int64_t> orElse(ArrayRef<int64_t> given, ArrayRef<int64_t> values) {
  return llvm::to_vector(given.empty() ? values : given);
}

namespace cpu {
Candidates getCandidates(AttentionOp op, const Machine &machine);
Candidates getCandidates(AttentionBackwardOp op, const Machine &machine);
Candidates getCandidates(ProjectOp op, const Machine &machine);
std::string explainRefusal(AttentionOpInterface op, ScheduleAttr schedule);
std::string explainRefusal(ProjectOp op, ScheduleAttr schedule);
void addTrials(const TrialProblem &problem, const Machine &machine, const TrialGrid &grid,
               AddTrial add);
} // namespace cpu

/// GPUs from Ampere on: every warp does the same, products by `mma.sync`.
namespace ampere {
Candidates getCandidates(AttentionOp op);
Candidates getCandidates(AttentionBackwardOp op);
Candidates getCandidates(ProjectOp op);
std::string explainRefusal(AttentionOp op, ScheduleAttr schedule, const Machine &machine);
std::string explainRefusal(AttentionBackwardOp op, ScheduleAttr schedule, const Machine &machine);
std::string explainRefusal(ProjectOp op, ScheduleAttr schedule, const Machine &machine);
SharedMemoryPlan planSharedMemory(AttentionOp op, ScheduleAttr schedule);
SharedMemoryPlan planSharedMemory(ProjectOp op, ScheduleAttr schedule);
void addTrials(const TrialProblem &problem, const TrialGrid &grid, AddTrial add);
} // namespace ampere

/// Schedules with warp specialization: warpgroups, tensor copies, products by `wgmma`.
namespace warpgroups {
Candidates getCandidates(AttentionOp op);
Candidates getCandidates(AttentionBackwardOp op);
std::string explainRefusal(AttentionOp op, ScheduleAttr schedule, const Machine &machine);
std::string explainRefusal(AttentionBackwardOp op, ScheduleAttr schedule, const Machine &machine);
SharedMemoryPlan planSharedMemory(AttentionOp op, ScheduleAttr schedule);
void addTrials(const TrialProblem &problem, const TrialGrid &grid, AddTrial add);
} // namespace warpgroups

} // namespace mlir::flashattn

#endif // FLASHATTN_LIB_TARGET_MACHINESCHEDULES_H
