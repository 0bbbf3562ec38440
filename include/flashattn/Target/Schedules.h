//===- Schedules.h - schedules of an op on a machine ------------*- C++ -*-===//
//
// Each kind of machine has a folder with its table and the requirements of its schedules; it does
// not depend on other machines.
//
//===----------------------------------------------------------------------===//

#ifndef FLASHATTN_TARGET_SCHEDULES_H
#define FLASHATTN_TARGET_SCHEDULES_H

#include "flashattn/Dialect/FlashAttn/IR/FlashAttn.h"
#include "flashattn/Target/Machine.h"
#include "flashattn/Target/ResourcePlans.h"

namespace mlir::flashattn {

/// Returns the threshold of exponents, as a power of 2, up to which weights of type `element` allow
/// a rescaling to be postponed without a loss of accuracy with respect to rule A9.
int64_t getDefaultRescale(FloatType element);

/// Whether `op` has at most 16 queries, whatever its lengths, so that its time is that of reading
/// keys and values.
bool isDecode(AttentionOp op);

/// Whether the mask of `op` divides so often for each pair of a query and a key that a kernel with
/// large tiles would take too long to compile.
bool hasCostlyMask(AttentionOpInterface op);

/// Returns the schedules to try for `op` on `machine`, best first.
SmallVector<ScheduleAttr> getScheduleCandidates(AttentionOp op, const Machine &machine);

/// Same for the backward pass: `tile_m` rows of a program, queries or keys, and `tile_n` rows of
/// the other operand per step.
SmallVector<ScheduleAttr> getScheduleCandidates(AttentionBackwardOp op, const Machine &machine);

/// Maximum number of rows of a batch for which a projection's tile has rows of several batches.
constexpr int64_t kFewProjectRows = 16;

/// Same for a projection: `tile_m` rows of `o` and `tile_n` columns of `w` per program.
SmallVector<ScheduleAttr> getScheduleCandidates(ProjectOp op, const Machine &machine);

/// Returns the number of elements of a row of `o` that one step of a projection's program
/// multiplies.
int64_t getProjectDepth(ProjectOp op, ScheduleAttr schedule);

/// Returns why `schedule` cannot compile `op` for `machine`: the required and available amounts of
/// the resource that is short, by buffer; empty if it can (rule R2, principle "refuse early and in
/// full").
std::string explainRefusal(AttentionOp op, ScheduleAttr schedule, const Machine &machine);
std::string explainRefusal(AttentionBackwardOp op, ScheduleAttr schedule, const Machine &machine);
std::string explainRefusal(ProjectOp op, ScheduleAttr schedule, const Machine &machine);

/// Returns why no schedule can compile `op` for `machine`; empty if it depends on the schedule.
std::string explainRefusal(AttentionOpInterface op, const Machine &machine);

/// Returns the shared memory of a program of `op` on a GPU: the buffers q, k and v of
/// planStagedTiles or, with warp specialization, those of the block. Does not check whether the op
/// and the schedule are compatible.
SharedMemoryPlan planSharedMemory(AttentionOp op, ScheduleAttr schedule);
SharedMemoryPlan planSharedMemory(ProjectOp op, ScheduleAttr schedule);

//===----------------------------------------------------------------------===//
// Schedules as text
//===----------------------------------------------------------------------===//

/// Returns the fields of a schedule as used in pins and files: "tile_m = 128, tile_n = 64, …".
std::string getScheduleFields(ScheduleAttr schedule);

/// Returns the schedule with `fields`; null if they are invalid.
ScheduleAttr parseScheduleFields(StringRef fields, MLIRContext *context);

/// Returns the fields of a text such as "tile_n = 80, hopper = <consumers = 3>", in any order, with
/// defaults for omitted fields: `warps`, `stages`, `threads_per_row` and `dot_type` depend on the
/// kind of machine and the operands' element type; `tile_m` and most fields of `hopper` depend on
/// the numbers of consumers and blocks. Returns nullopt if the tile sizes are omitted; pinSchedule
/// chooses these. Errors: unknown fields, and values that are not numbers, but not numbers that no
/// schedule can have.
llvm::Expected<std::optional<ScheduleFields>> completeSchedule(StringRef text, FloatType element,
                                                               bool onCPU);

/// Whether a schedule has the fields of a text such as "tile_n = 80, hopper = <consumers = 3>",
/// whatever its other fields are. Errors: unknown fields, and values that are not numbers.
llvm::Expected<bool> hasFields(const ScheduleFields &fields, StringRef text);

/// Returns the schedule for `op` that has the fields of `text`, in any order. Omitted fields are
/// those of completeSchedule; or else those of the first candidate that has the given fields and
/// fits, or that fits once it has them. Errors: those of completeSchedule, numbers that no schedule
/// can have, and the reason why no schedule fits.
llvm::Expected<ScheduleAttr> pinSchedule(AttentionOp op, const Machine &machine, StringRef text);
llvm::Expected<ScheduleAttr> pinSchedule(AttentionBackwardOp op, const Machine &machine,
                                         StringRef text);

/// A list of reasons, one line each: "needs … bytes: 7 schedules, such as tile_m = …".
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

/// Returns the fields of `hopper` for these numbers of consumers and blocks, with as many registers
/// as a multiprocessor has for them.
HopperFields completeHopper(int64_t consumers, int64_t blocks, FloatType element,
                            std::optional<int64_t> producerRegisters = {});

//===----------------------------------------------------------------------===//
// Schedules to time
//===----------------------------------------------------------------------===//

/// A problem to tune.
struct TrialProblem {
  FloatType element;
  int64_t group = 1;      ///< query heads per key/value head, 1 if unknown
  bool packs = false;     ///< whether packing may be faster: short window or few queries
  int64_t splits = 1;     ///< `splits` of every trial
  bool gradients = false; ///< whether the backward pass is tuned
  static TrialProblem of(AttentionOp op);
  static TrialProblem of(AttentionBackwardOp op);
};

/// Values to try in place of the default ones. Values of `consumers`, `registers`, `blocks_per_sm`
/// and `pack` restrict the trials to schedules with warp specialization.
struct TrialGrid {
  SmallVector<int64_t> tileM, tileN, warps, stages, consumers, registers, blocks, pack;
};

/// Returns the product of tile sizes, warps, stages and roles, each schedule once. Some of the
/// schedules will be rejected, and values of the caller's grid may not be valid for any schedule.
std::vector<ScheduleFields> getTrials(const TrialProblem &problem, const Machine &machine,
                                      const TrialGrid &grid = {});

} // namespace mlir::flashattn

#endif // FLASHATTN_TARGET_SCHEDULES_H
