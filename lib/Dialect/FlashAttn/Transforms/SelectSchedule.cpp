//===- SelectSchedule.cpp - flashattn-select-schedule ----------------------===//

#include "flashattn/Dialect/FlashAttn/Transforms/Passes.h"
#include "flashattn/Target/Schedules.h"

namespace mlir::flashattn {
#define GEN_PASS_DEF_SELECTSCHEDULE
#include "flashattn/Dialect/FlashAttn/Transforms/Passes.h.inc"
} // namespace mlir::flashattn

using namespace mlir;
using namespace mlir::flashattn;

/// R2: an error at `op` with a note for every schedule that was refused.
template <typename OpT>
static LogicalResult selectSchedule(OpT op, const Machine &machine, ScheduleAttr pinned) {
  if (!op.getSchedule() && pinned)
    op.setScheduleAttr(pinned);
  if (ScheduleAttr given = op.getScheduleAttr()) {
    std::string reason = explainRefusal(op, given, machine);
    if (!reason.empty())
      return op.emitOpError() << "cannot be compiled for " << machine.getName()
                              << " with the schedule given: " << reason;
    return success();
  }
  SmallVector<std::pair<ScheduleAttr, std::string>> refused;
  for (ScheduleAttr candidate : getScheduleCandidates(op, machine)) {
    std::string reason = explainRefusal(op, candidate, machine);
    if (reason.empty()) {
      op.setScheduleAttr(candidate);
      return success();
    }
    refused.push_back({candidate, reason});
  }
  InFlightDiagnostic diag = op.emitOpError() << "cannot be compiled for " << machine.getName()
                                             << ": no schedule fits";
  for (auto &[candidate, reason] : refused)
    diag.attachNote() << candidate << ": " << reason;
  return diag;
}

namespace {
struct SelectSchedulePass : flashattn::impl::SelectScheduleBase<SelectSchedulePass> {
  using SelectScheduleBase::SelectScheduleBase;
  void runOnOperation() override {
    Operation *root = getOperation();
    llvm::Expected<Machine> machine = Machine::get(chip, vectorWidth);
    if (!machine) {
      root->emitError() << llvm::toString(machine.takeError());
      return signalPassFailure();
    }
    ScheduleAttr pinned;
    if (!schedule.empty()) {
      pinned = parseScheduleFields(schedule, &getContext());
      if (!pinned) {
        root->emitError() << "expected schedule fields 'tile_m = …, tile_n = …, warps = …, "
                             "stages = …, lanes = …, dot_type = …' but got '"
                          << schedule << "'";
        return signalPassFailure();
      }
    }
    WalkResult result = root->walk([&](Operation *op) {
      LogicalResult selected = success();
      if (auto attention = dyn_cast<AttentionOp>(op))
        selected = selectSchedule(attention, *machine, pinned);
      else if (auto projection = dyn_cast<ProjectOp>(op))
        selected = selectSchedule(projection, *machine, /*pinned=*/{});
      return failed(selected) ? WalkResult::interrupt() : WalkResult::advance();
    });
    if (result.wasInterrupted())
      signalPassFailure();
  }
};
} // namespace
