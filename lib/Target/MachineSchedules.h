//===- MachineSchedules.h - functions of each machine folder ----*- C++ -*-===//

#ifndef FLASHATTN_LIB_TARGET_MACHINESCHEDULES_H
#define FLASHATTN_LIB_TARGET_MACHINESCHEDULES_H

#include "flashattn/Target/Schedules.h"

namespace mlir::flashattn {

using Candidates = SmallVector<ScheduleAttr>;

/// S8: the number of keys of a split with `invariant`, on every machine.
constexpr int64_t kInvariantKeys = 1024;

/// Adds a trial unless it is already present.
using AddTrial = function_ref<void(const ScheduleFields &)>;

/// Returns the values of the grid, or else `values`.
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

/// Ampere and later GPUs: all warps do the same work, products by `mma.sync`.
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

/// Warp specialization: warpgroups, tensor copies (TMA), products by `wgmma`.
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
