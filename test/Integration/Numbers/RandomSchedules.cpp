//===- RandomSchedules.cpp -------------------------------------------------===//

#include "RandomSchedules.h"
#include "flashattn/Target/Schedules.h"
#include "llvm/Support/FormatVariadic.h"

using namespace mlir;
using namespace mlir::flashattn;

namespace {
/// A field, what it may be here, and where it says something.
struct DrawnField {
  StringRef name;
  SmallVector<StringRef> values;
  enum { Always, WithoutRoles, Forward, WithRoles, Backward } where = Always;
};
} // namespace

const DrawnField fields[] = {
    {"tile_m", {"16", "32", "48", "64", "80", "128"}, DrawnField::WithoutRoles},
    {"tile_m", {"64", "128"}, DrawnField::Backward},
    {"tile_n", {"16", "32", "48", "64", "80", "96", "112", "128", "176", "192", "256"}},
    {"stages", {"1", "2", "3", "4", "5", "8"}},
    {"pack", {"2", "3"}, DrawnField::WithRoles},
    {"splits", {"2", "3", "8", "64"}, DrawnField::Forward},
    {"algorithm",
     {"separate_dq", "accumulate_dq", "split_dk_dv", "separate_dk_dv"},
     DrawnField::Backward},
};

const DrawnField mmaSyncFields[] = {
    {"warps", {"1", "2", "4", "8"}},
    {"q_in_registers", {"false", "true"}},
};

const DrawnField hopperFields[] = {
    {"cooperative", {"0", "1"}, DrawnField::Backward},
    {"along", {"query_tile", "head"}, DrawnField::Forward},
    {"registers", {"104", "128", "152", "160", "208", "232", "240"}},
    {"producer_registers", {"24", "32", "40", "48"}},
    {"rescale_threshold", {"0", "1", "4", "8", "15"}, DrawnField::Forward},
    {"l2_head_group", {"0", "1", "2", "3", "8", "64"}},
    {"blocks_per_sm", {"1", "2", "3", "4"}},
    {"q_stages", {"1", "2"}},
    {"lazy_rescale", {"0", "1"}, DrawnField::Forward},
    {"dynamic_scheduler", {"0", "1"}},
    {"dq_reduce_stages", {"0", "1", "2"}, DrawnField::Backward},
    {"compact_kv", {"0", "1"}},
    {"prefetch_kib_per_sm", {"0", "1", "72", "65535"}},
    {"q_register_columns", {"0", "16", "64", "256"}, DrawnField::Forward},
};

static std::string drawText(std::mt19937 &random, bool isWarpSpecialized, bool hasWarps,
                            bool isBackward) {
  auto drawOne = [&](const DrawnField &field) {
    StringRef value = field.values[random() % field.values.size()];
    return llvm::formatv("{0} = {1}", field.name, value).str();
  };
  auto draw = [&](ArrayRef<DrawnField> from, unsigned one) {
    SmallVector<std::string> drawn;
    for (const DrawnField &field : from) {
      bool fits = field.where == DrawnField::WithoutRoles ? !isWarpSpecialized
                  : field.where == DrawnField::Forward    ? !isBackward
                  : field.where == DrawnField::WithRoles  ? isWarpSpecialized
                  : field.where == DrawnField::Backward   ? isBackward
                                                          : true;
      bool isTwice = !drawn.empty() && StringRef(drawn.back()).starts_with(field.name);
      if (fits && !isTwice && random() % one == 0)
        drawn.push_back(drawOne(field));
    }
    return drawn;
  };
  SmallVector<std::string> text = draw(fields, 3);
  if (isWarpSpecialized) {
    std::string hopper = llvm::formatv("mapping = hopper<consumers = {0}", 1 + random() % 4);
    for (const std::string &field : draw(hopperFields, 4))
      hopper += ", " + field;
    text.push_back(hopper + ">");
  } else if (hasWarps) {
    if (SmallVector<std::string> mmaSync = draw(mmaSyncFields, 3); !mmaSync.empty())
      text.push_back("mapping = mma_sync<" + llvm::join(mmaSync, ", ") + ">");
  }
  return llvm::join(text, ", ");
}

template <typename OpT> static bool setSchedule(OpT op, const Machine &machine, StringRef text) {
  llvm::Expected<ScheduleAttr> schedule = pinSchedule(op, machine, text);
  if (!schedule) {
    llvm::consumeError(schedule.takeError());
    return false;
  }
  // One that says all of the tiles' sizes is taken as it is.
  if (!explainRefusal(op, *schedule, machine).empty())
    return false;
  op.setScheduleAttr(*schedule);
  return true;
}

bool flashattn::drawSchedule(AttentionOpInterface op, const Machine &machine,
                             std::mt19937 &random) {
  constexpr unsigned kMostDraws = 100;
  auto backward = dyn_cast<AttentionBackwardOp>(*op);
  // P3: padding in pages excludes warp specialization.
  bool mayHaveRoles = machine.hasWarpgroups() && !op.getElementType().isF32() &&
                      !(op.getPageTable() && op.getLeftpadK());
  for (unsigned i = 0; i < kMostDraws; ++i) {
    bool isWarpSpecialized = mayHaveRoles && random() % 8 != 0;
    std::string text = drawText(random, isWarpSpecialized, !machine.isCPU(), backward != nullptr);
    if (text.empty())
      continue;
    if (backward ? setSchedule(backward, machine, text)
                 : setSchedule(cast<AttentionOp>(*op), machine, text))
      return true;
  }
  return false;
}
