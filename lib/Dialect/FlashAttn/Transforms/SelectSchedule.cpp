//===- SelectSchedule.cpp - flashattn-select-schedule ---------------------===//

#include "flashattn/Analysis/MaskShape.h"
#include "flashattn/Dialect/FlashAttn/IR/OptionErrors.h"
#include "flashattn/Dialect/FlashAttn/Transforms/Passes.h"
#include "flashattn/Target/Schedules.h"

namespace mlir::flashattn {
#define GEN_PASS_DEF_SELECTSCHEDULE
#include "flashattn/Dialect/FlashAttn/Transforms/Passes.h.inc"
} // namespace mlir::flashattn

using namespace mlir;
using namespace mlir::flashattn;

static void remarkCost(AttentionOpInterface op, const Machine &machine) {
  if (machine.hasWarpgroups() && !op.getElementType().isF32() && hasCostlyMask(op))
    emitRemark(op->getLoc()) << "the mask has " << countPairDivisions(op.getVisibleSets())
                             << " divisions of numbers that depend on both the query and the key, "
                                "so the kernel has small tiles and no warp specialization";
}

/// Emits an error at `op` without printing the op, so that the reason comes first.
static InFlightDiagnostic refuse(Operation *op, const Machine &machine) {
  return emitError(op->getLoc()) << "'" << op->getName() << "' op cannot be compiled for "
                                 << machine.getName();
}

/// R2: selects a schedule. Emits an error at `op` if all are rejected, with a note per reason.
template <typename OpT> static LogicalResult selectSchedule(OpT op, const Machine &machine) {
  if (ScheduleAttr given = op.getScheduleAttr()) {
    std::string reason = explainRefusal(op, given, machine);
    if (!reason.empty())
      return refuse(op, machine) << " with the schedule given: " << reason;
    return success();
  }
  Refusals refusals;
  for (ScheduleAttr candidate : getScheduleCandidates(op, machine)) {
    std::string reason = explainRefusal(op, candidate, machine);
    if (reason.empty()) {
      op.setScheduleAttr(candidate);
      if constexpr (!std::is_same_v<OpT, ProjectOp>)
        remarkCost(op, machine);
      return success();
    }
    refusals.add(candidate.getFields(), reason);
  }
  InFlightDiagnostic diag = refuse(op, machine) << ": no schedule fits";
  for (const std::string &line : refusals.getLines())
    diag.attachNote() << line;
  return diag;
}

/// The same, with `fields` pinned. If no schedule can be valid, only this reason is reported.
template <typename OpT>
static LogicalResult selectSchedule(OpT op, const Machine &machine, StringRef fields) {
  if (std::string reason = explainRefusal(op, machine); !reason.empty())
    return refuse(op, machine) << ": " << reason;
  if (op.getSchedule() || fields.empty())
    return selectSchedule(op, machine);
  llvm::Expected<ScheduleAttr> pinned = pinSchedule(op, machine, fields);
  if (!pinned)
    return refuse(op, machine) << ": " << llvm::toString(pinned.takeError());
  op.setScheduleAttr(*pinned);
  return selectSchedule(op, machine);
}

namespace {
struct SelectSchedulePass : flashattn::impl::SelectScheduleBase<SelectSchedulePass> {
  using SelectScheduleBase::SelectScheduleBase;
  void runOnOperation() override {
    Operation *root = getOperation();
    llvm::Expected<Machine> machine = Machine::get(chip, vectorWidth);
    if (!machine) {
      emitOptionError(root) << llvm::toString(machine.takeError());
      return signalPassFailure();
    }
    // Reported once, even if there is no op.
    if (auto fields = completeSchedule(schedule, Float32Type::get(&getContext()), machine->isCPU());
        !fields) {
      emitOptionError(root) << llvm::toString(fields.takeError());
      return signalPassFailure();
    }
    WalkResult result = root->walk([&](Operation *op) {
      LogicalResult selected = success();
      if (auto attention = dyn_cast<AttentionOp>(op))
        selected = selectSchedule(attention, *machine, schedule);
      else if (auto backward = dyn_cast<AttentionBackwardOp>(op))
        selected = selectSchedule(backward, *machine, schedule);
      else if (auto projection = dyn_cast<ProjectOp>(op))
        selected = selectSchedule(projection, *machine);
      return failed(selected) ? WalkResult::interrupt() : WalkResult::advance();
    });
    if (result.wasInterrupted())
      signalPassFailure();
  }
};
} // namespace
