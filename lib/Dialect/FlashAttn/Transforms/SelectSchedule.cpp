//===- SelectSchedule.cpp - flashattn-select-schedule ----------------------===//

#include "flashattn/Dialect/FlashAttn/Transforms/Passes.h"
#include "flashattn/Target/Tuned.h"

namespace mlir::flashattn {
#define GEN_PASS_DEF_SELECTSCHEDULE
#include "flashattn/Dialect/FlashAttn/Transforms/Passes.h.inc"
} // namespace mlir::flashattn

using namespace mlir;
using namespace mlir::flashattn;

/// R2: an error at `op` with a note for every schedule that was refused.
template <typename OpT>
static LogicalResult selectSchedule(OpT op, const Chip &chip, ScheduleAttr pinned) {
  if (!op.getSchedule() && pinned)
    op.setScheduleAttr(pinned);
  if (ScheduleAttr given = op.getScheduleAttr()) {
    std::string reason = explainRefusal(op, given, chip);
    if (!reason.empty())
      return op.emitOpError() << "cannot be compiled for " << chip.name
                              << " with the schedule given: " << reason;
    return success();
  }
  SmallVector<std::pair<ScheduleAttr, std::string>> refused;
  for (ScheduleAttr candidate : getScheduleCandidates(op, chip)) {
    std::string reason = explainRefusal(op, candidate, chip);
    if (reason.empty()) {
      op.setScheduleAttr(candidate);
      return success();
    }
    refused.push_back({candidate, reason});
  }
  InFlightDiagnostic diag = op.emitOpError()
                            << "cannot be compiled for " << chip.name << ": no schedule fits";
  for (auto &[candidate, reason] : refused)
    diag.attachNote() << candidate << ": " << reason;
  return diag;
}

namespace {
struct SelectSchedulePass : flashattn::impl::SelectScheduleBase<SelectSchedulePass> {
  using SelectScheduleBase::SelectScheduleBase;
  void runOnOperation() override {
    Chip target{chip, vectorWidth};
    Operation *root = getOperation();
    if (failed(verifyChip([&] { return root->emitError(); }, target)))
      return signalPassFailure();
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
        selected = selectSchedule(attention, target, pinned);
      else if (auto projection = dyn_cast<ProjectOp>(op))
        selected = selectSchedule(projection, target, /*pinned=*/{});
      return failed(selected) ? WalkResult::interrupt() : WalkResult::advance();
    });
    if (result.wasInterrupted())
      signalPassFailure();
  }
};
} // namespace
