//===- Schedules.h - schedules of an op on a machine ------------*- C++ -*-===//
//
// Each kind of machine has a folder in lib/Target with its table and the requirements of its
// schedules, independent of other machines.
//
//===----------------------------------------------------------------------===//

#ifndef FLASHATTN_TARGET_SCHEDULES_H
#define FLASHATTN_TARGET_SCHEDULES_H

#include "flashattn/Dialect/FlashAttn/IR/FlashAttn.h"
#include "flashattn/Target/Machine.h"
#include "flashattn/Target/ResourcePlans.h"

namespace mlir::flashattn {

/// Returns the default `rescale_threshold`, a power of 2, for probabilities of type `element`: the
/// largest threshold that keeps the accuracy of rule A9.
int64_t getDefaultRescale(FloatType element);

/// Whether the type of `op`, or `max_seqlen_q`, states at most 16 queries, so that its time is that
/// of reading K and V.
bool isDecode(AttentionOp op);
/// Returns the largest number of queries of a sequence for which a tile has rows for all heads of a
/// key/value head, so that a decode kernel reads the keys once.
int64_t getMostDecodeQueries(AttentionOp op);

/// Whether the mask of `op` has so many divisions per (query, key) pair that a kernel with large
/// tiles would take too long to compile.
bool hasCostlyMask(AttentionOpInterface op);

/// Returns the schedules to try for `op` on `machine`, best first.
SmallVector<ScheduleAttr> getScheduleCandidates(AttentionOp op, const Machine &machine);

/// Returns the schedules to try for a backward pass, with `tile_m` rows of a program (queries or
/// keys) and `tile_n` rows of the other operand per step.
SmallVector<ScheduleAttr> getScheduleCandidates(AttentionBackwardOp op, const Machine &machine);

/// Returns the schedules to try for a projection, with `tile_m` rows of `o` and `tile_n` columns of
/// `w` per program.
SmallVector<ScheduleAttr> getScheduleCandidates(ProjectOp op, const Machine &machine);

/// Returns the reason why `op` cannot be compiled with `schedule` for `machine`: the required and
/// available amounts of the resource that is short, by buffer; empty if it can be compiled (rule
/// R2, principle "refuse early and in full").
std::string explainRefusal(AttentionOp op, ScheduleAttr schedule, const Machine &machine);
std::string explainRefusal(AttentionBackwardOp op, ScheduleAttr schedule, const Machine &machine);
std::string explainRefusal(ProjectOp op, ScheduleAttr schedule, const Machine &machine);

/// Returns the reason why `op` cannot be compiled for `machine` with any schedule; empty if there
/// is no such reason.
std::string explainRefusal(AttentionOpInterface op, const Machine &machine);

/// Returns the shared memory plan of a program of `op` on a GPU: the buffers q, k and v of
/// planStagedTiles or, with warp specialization, those of planWarpgroupBlock. The functions do not
/// check whether the op and the schedule are compatible.
SharedMemoryPlan planSharedMemory(AttentionOp op, ScheduleAttr schedule);
SharedMemoryPlan planSharedMemory(ProjectOp op, ScheduleAttr schedule);

//===----------------------------------------------------------------------===//
// Schedules as text
//===----------------------------------------------------------------------===//

/// Returns the fields of a schedule as text, as used for pinned fields and in files: "tile_m = 128,
/// tile_n = 64, …".
std::string getScheduleFields(ScheduleAttr schedule);

/// Returns the schedule with the text `fields`, or null if they are invalid.
ScheduleAttr parseScheduleFields(StringRef fields, MLIRContext *context);

/// Returns the fields of a text such as "tile_n = 80, mapping = hopper<consumers = 3>", in any
/// order, with defaults for omitted fields: `stages`, `dot_type` and `mapping` depend on the kind of
/// machine and the operands' element type; `warps` on `tile_m`; most fields of `hopper` on the
/// numbers of consumers and blocks. Returns nullopt if the tile sizes are omitted; pinSchedule
/// chooses these. Errors: unknown fields and mappings, and values that are not numbers. Numbers out
/// of range are not an error.
llvm::Expected<std::optional<ScheduleFields>> completeSchedule(StringRef text, FloatType element,
                                                               bool onCPU);

/// Whether `fields` contain the fields of a text such as "tile_n = 80, mapping =
/// hopper<consumers = 3>", whatever the other fields are. Errors: those of completeSchedule.
llvm::Expected<bool> hasFields(const ScheduleFields &fields, StringRef text);

/// Returns the schedule for `op` with the fields of `text`, in any order. Omitted fields are those
/// of completeSchedule; or else those of the first candidate that fits and has the fields of
/// `text`, or that fits after its fields are replaced by those of `text`. Errors: those of
/// completeSchedule, numbers out of range, and the reason why no schedule fits.
llvm::Expected<ScheduleAttr> pinSchedule(AttentionOp op, const Machine &machine, StringRef text);
llvm::Expected<ScheduleAttr> pinSchedule(AttentionBackwardOp op, const Machine &machine,
                                         StringRef text);

/// Collects the reasons why schedules were rejected, and prints one line per reason: "needs …
/// bytes: 7 schedules, such as tile_m = …".
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

/// Returns the fields of `hopper` for `consumers` consumer warpgroups and `blocks` blocks per
/// multiprocessor, with as many registers per thread as a multiprocessor provides.
HopperFields completeHopper(int64_t consumers, int64_t blocks, FloatType element,
                            std::optional<int64_t> producerRegisters = {});

//===----------------------------------------------------------------------===//
// Schedules to try in tuning
//===----------------------------------------------------------------------===//

/// A problem to tune.
struct TrialProblem {
  FloatType element;
  int64_t group = 1;      ///< query heads per key/value head; 1 if unknown
  bool packs = false;     ///< whether packed heads may be faster: short window or few queries
  int64_t splits = 1;     ///< `splits` of every trial
  bool gradients = false; ///< backward pass
  static TrialProblem of(AttentionOp op);
  static TrialProblem of(AttentionBackwardOp op);
};

/// Values to try instead of the defaults. Values of `consumers`, `registers`, `blocks` or `pack`
/// restrict the trials to schedules with warp specialization.
struct TrialGrid {
  SmallVector<int64_t> tileM, tileN, warps, stages, consumers, registers, blocks, pack;
};

/// Returns the Cartesian product of tile sizes, warps, stages and fields of `hopper`, without
/// duplicates. Some schedules may be rejected later, and values of `grid` may be out of range.
std::vector<ScheduleFields> getTrials(const TrialProblem &problem, const Machine &machine,
                                      const TrialGrid &grid = {});

} // namespace mlir::flashattn

#endif // FLASHATTN_TARGET_SCHEDULES_H
