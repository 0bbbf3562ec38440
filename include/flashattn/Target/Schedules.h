//===- Schedules.h - the schedules that a machine offers an op ---*- C++ -*-===//
//
// Each kind of machine has a folder with its table, and with what a schedule needs there; it
// knows nothing of another's.
//
//===----------------------------------------------------------------------===//

#ifndef FLASHATTN_TARGET_SCHEDULES_H
#define FLASHATTN_TARGET_SCHEDULES_H

#include "flashattn/Dialect/FlashAttn/IR/FlashAttn.h"
#include "flashattn/Target/Machine.h"
#include "flashattn/Target/ResourcePlans.h"

namespace mlir::flashattn {

/// The growth of exponents, as a power of 2, up to which weights of type `element` put off a
/// rescaling without losing accuracy to rule A9.
int64_t getDefaultRescale(FloatType element);

/// Whether `op` has few queries, at most 16 whatever its lengths: its time is that of reading the
/// keys and values.
bool isDecode(AttentionOp op);

/// Schedules to try for `op` on `machine`, best first.
SmallVector<ScheduleAttr> getScheduleCandidates(AttentionOp op, const Machine &machine);

/// The same for gradients: `tile_m` rows of a program, queries or keys, and `tile_n` of the other a
/// step.
SmallVector<ScheduleAttr> getScheduleCandidates(AttentionBackwardOp op, const Machine &machine);

/// Most rows of a batch that a projection's tile takes from each of several batches.
constexpr int64_t kFewProjectRows = 16;

/// The same for a projection: `tile_m` rows of `o` and `tile_n` columns of `w` a program.
SmallVector<ScheduleAttr> getScheduleCandidates(ProjectOp op, const Machine &machine);

/// Elements of a row of `o` that one step of a projection's program multiplies.
int64_t getProjectDepth(ProjectOp op, ScheduleAttr schedule);

/// Why `schedule` cannot compile `op` for `machine`: needed and available of what is
/// short, by buffer; empty where it can (rule R2, principle "refuse early and in full").
std::string explainRefusal(AttentionOp op, ScheduleAttr schedule, const Machine &machine);
std::string explainRefusal(AttentionBackwardOp op, ScheduleAttr schedule, const Machine &machine);
std::string explainRefusal(ProjectOp op, ScheduleAttr schedule, const Machine &machine);

/// Why no schedule can compile `op` for `machine`; empty where that is for the schedule to say.
std::string explainRefusal(AttentionOpInterface op, const Machine &machine);

/// The shared memory of a program of `op`, on a GPU: the buffers q, k and v of planStagedTiles; and
/// with roles those of the block. What of the op or the schedule does not fit is not looked at.
SharedMemoryPlan planSharedMemory(AttentionOp op, ScheduleAttr schedule);
SharedMemoryPlan planSharedMemory(ProjectOp op, ScheduleAttr schedule);

//===----------------------------------------------------------------------===//
// Schedules as text
//===----------------------------------------------------------------------===//

/// The fields of a schedule, as pins and files have them: "tile_m = 128, tile_n = 64, …".
std::string getScheduleFields(ScheduleAttr schedule);

/// The schedule of `fields`; null where they are none.
ScheduleAttr parseScheduleFields(StringRef fields, MLIRContext *context);

/// The fields of "tile_n = 80, roles = <consumers = 3>", in any order, with what is left out:
/// `warps`, `stages`, `lanes` and `dot_type` by the kind of machine and the operands' element type,
/// `tile_m` and most of the roles by the numbers of consumers and blocks. None where the sizes of
/// the tiles are left out, which pinSchedule chooses. Errors: fields that are unknown, and values
/// that are no numbers; not numbers that no schedule has.
llvm::Expected<std::optional<ScheduleFields>> completeSchedule(StringRef text, FloatType element,
                                                               bool onCPU);

/// Whether a schedule has the fields of "tile_n = 80, roles = <consumers = 3>", whatever others it
/// has. Errors: fields that are unknown, and values that are no numbers.
llvm::Expected<bool> hasFields(const ScheduleFields &fields, StringRef text);

/// The schedule for `op` that has the fields of `text`, in any order. Those left out are what
/// completeSchedule says; or else those of the first candidate that has the given ones and fits, or
/// that fits once it is given them. Errors: those of completeSchedule, numbers that no schedule
/// has, and why none fits.
llvm::Expected<ScheduleAttr> pinSchedule(AttentionOp op, const Machine &machine, StringRef text);
llvm::Expected<ScheduleAttr> pinSchedule(AttentionBackwardOp op, const Machine &machine,
                                         StringRef text);

/// "needs … bytes: 7 schedules, such as tile_m = …", a line for each reason.
class Refusals {
public:
  void add(const ScheduleFields &schedule, StringRef reason);
  SmallVector<std::string> getLines() const;

private:
  struct Reason {
    std::string text, firstSchedule;
    int64_t count = 0;
  };
  std::vector<Reason> reasons;
};

/// The roles of so many consumers and blocks: registers are as many as a multiprocessor has for
/// them.
RolesFields completeRoles(int64_t consumers, int64_t blocks, FloatType element,
                          std::optional<int64_t> producerRegisters = {});

//===----------------------------------------------------------------------===//
// Schedules to time
//===----------------------------------------------------------------------===//

/// What there is to tune.
struct TrialProblem {
  FloatType element;
  int64_t group = 1;      ///< query heads of a key/value head, 1 where unknown
  bool packs = false;     ///< whether tiles of several heads may pay: a short window, few queries
  int64_t splits = 1;     ///< of every trial
  bool gradients = false; ///< whether it is the gradients that are to be tuned
  static TrialProblem of(AttentionOp op);
  static TrialProblem of(AttentionBackwardOp op);
};

/// Values to try in place of the grid's own; those of `consumers`, `registers`, `blocks` and `pack`
/// ask for schedules with roles alone.
struct TrialGrid {
  SmallVector<int64_t> tileM, tileN, warps, stages, consumers, registers, blocks, pack;
};

/// A product of tile sizes, warps, stages and roles, each schedule once. Some will be refused, and
/// what the grid was given no schedule may have.
std::vector<ScheduleFields> getTrials(const TrialProblem &problem, const Machine &machine,
                                      const TrialGrid &grid = {});

} // namespace mlir::flashattn

#endif // FLASHATTN_TARGET_SCHEDULES_H
