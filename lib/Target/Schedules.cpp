//===- Schedules.cpp - schedules for all machines -------------------------===//

#include "flashattn/Target/Schedules.h"
#include "MachineSchedules.h"
#include "flashattn/Analysis/MaskShape.h"
#include "llvm/ADT/SetVector.h"
#include "llvm/Support/FormatVariadic.h"

using namespace mlir;
using namespace mlir::flashattn;

int64_t mlir::flashattn::getDefaultRescale(FloatType element) {
  // A row's largest probability is exact if its base is the row maximum. bf16 rounds any other to 8
  // bits, so rescaling pays if a score stands out far, unless row sums use the probabilities as
  // rounded (ScheduleAttr::sumsByProducts). In f16 a threshold above 4 gains nothing
  // (docs/rationale/rescale.md).
  return element.isBF16() ? ScheduleAttr::kMostAdded : 4;
}

HopperFields mlir::flashattn::completeHopper(int64_t consumers, int64_t blocks, FloatType element,
                                             std::optional<int64_t> producerRegisters) {
  consumers = std::max<int64_t>(consumers, 1);
  HopperFields hopper;
  hopper.consumers = consumers;
  hopper.blocksPerSM = std::max<int64_t>(blocks, 1);
  // A multiprocessor has 512 registers per thread of a warpgroup. All counts are multiples of 8,
  // and the threads of a block start with the same count. Fewer registers would not admit another
  // block.
  int64_t available = 512 / hopper.blocksPerSM / (consumers + 1) / 8 * 8 * (consumers + 1);
  hopper.producerRegisters =
      producerRegisters.value_or(consumers < 3 && hopper.blocksPerSM == 1 ? 24 : 32);
  hopper.registers =
      std::clamp<int64_t>((available - hopper.producerRegisters) / consumers / 8 * 8, 24, 248);
  hopper.rescaleThreshold = getDefaultRescale(element);
  return hopper;
}

static constexpr int64_t kMaxDecodeQueries = 16;

bool mlir::flashattn::isDecode(AttentionOp op) {
  int64_t queries = op.getMostQueries().value_or(op.getStaticQueries());
  return !ShapedType::isDynamic(queries) && queries <= kMaxDecodeQueries;
}

int64_t mlir::flashattn::getMostDecodeQueries(AttentionOp op) {
  constexpr int64_t kTileRows = 64;
  int64_t heads = llvm::PowerOf2Ceil(op.getKnownGroup());
  return std::clamp<int64_t>(kTileRows / heads, 1, kMaxDecodeQueries);
}

//===----------------------------------------------------------------------===//
// Candidates
//===----------------------------------------------------------------------===//

/// Whether the number of queries differs between batches, or the rows of keys are packed.
static bool hasOwnQueries(AttentionOpInterface op) {
  return op.hasPackedSequences() || op.getQLen();
}

/// Checks the fields for which all batches must have the same queries and rows.
static std::string explainSequenceRefusal(AttentionOpInterface op, ScheduleAttr schedule) {
  if (!hasOwnQueries(op))
    return "";
  StringRef name = op.hasPackedSequences() ? "packed sequences" : "q_len";
  // Programs over packed keys signal for all sequences of a head.
  bool isMixed = !op.getCuSeqlensQ() != !op.getCuSeqlensK();
  if (schedule.getHopper() && isMixed && isa<AttentionBackwardOp>(*op))
    return "expected no warp specialization of gradients where only queries, or only keys, are "
           "packed";
  // S7: programs of sequences, of which each stores its own rows.
  auto forward = dyn_cast<AttentionOp>(*op);
  bool hasPrograms = forward && op.getMostQueries() && isDecode(forward) && !op.getQLen();
  for (auto [field, value] :
       {std::pair("pack", schedule.getPack()), std::pair("splits", schedule.getSplits())})
    if (value != 1 && !hasPrograms)
      return llvm::formatv("expected {0} 1 with {1} but got {2}", field, name, value);
  // S8: the rows of the next sequence in a tile must not vote on new exponents.
  HopperAttr hopper = schedule.getHopper();
  if (hasPrograms && forward.getInvariant() && schedule.getPack() != 1 && hopper &&
      hopper.getRescaleThreshold() != 0)
    return llvm::formatv(
        "expected rescale_threshold 0 with invariant, packed sequences and pack {0} "
        "but got {1}",
        schedule.getPack(), hopper.getRescaleThreshold());
  return "";
}

bool mlir::flashattn::hasCostlyMask(AttentionOpInterface op) {
  constexpr int64_t kMostDivisions = 64;
  return countPairDivisions(op.getVisibleSets()) > kMostDivisions;
}

Candidates mlir::flashattn::getScheduleCandidates(AttentionOp op, const Machine &machine) {
  if (machine.isCPU())
    return cpu::getCandidates(op, machine);
  // F3: no product of mma.sync takes f8.
  if (isF8(op.getElementType()))
    return warpgroups::getCandidates(op);
  Candidates candidates;
  if (machine.hasWarpgroups() && !op.getElementType().isF32() && !hasCostlyMask(op))
    candidates = warpgroups::getCandidates(op);
  llvm::append_range(candidates, ampere::getCandidates(op));
  return candidates;
}

Candidates mlir::flashattn::getScheduleCandidates(AttentionBackwardOp op, const Machine &machine) {
  if (machine.isCPU())
    return cpu::getCandidates(op, machine);
  Candidates candidates;
  if (machine.hasWarpgroups() && !op.getElementType().isF32() && !hasCostlyMask(op))
    candidates = warpgroups::getCandidates(op);
  llvm::append_range(candidates, ampere::getCandidates(op));
  return candidates;
}

Candidates mlir::flashattn::getScheduleCandidates(ProjectOp op, const Machine &machine) {
  return machine.isCPU() ? cpu::getCandidates(op, machine) : ampere::getCandidates(op);
}

//===----------------------------------------------------------------------===//
// Refusals
//===----------------------------------------------------------------------===//

SharedMemoryPlan mlir::flashattn::planSharedMemory(AttentionOp op, ScheduleAttr schedule) {
  return schedule.getHopper() ? warpgroups::planSharedMemory(op, schedule)
                              : ampere::planSharedMemory(op, schedule);
}

SharedMemoryPlan mlir::flashattn::planSharedMemory(ProjectOp op, ScheduleAttr schedule) {
  return ampere::planSharedMemory(op, schedule);
}

/// F3: checks what products of f8 need.
static std::string explainF8Refusal(AttentionOpInterface op, const Machine &machine) {
  FloatType element = op.getElementType();
  if (!isF8(element))
    return "";
  if (!machine.hasWarpgroups())
    return llvm::formatv("expected q of f16, bf16 or f32 on {0} but got f8", machine.getName());
  for (auto [name, operand] :
       {std::pair("q", op.getQ()), std::pair("k", op.getK()), std::pair("v", op.getV())})
    if (!isa<Float8E4M3FNType>(operand.getType().getElementType())) {
      std::string text;
      llvm::raw_string_ostream(text) << operand.getType().getElementType();
      return llvm::formatv("expected {0} of f8E4M3FN for products of f8 but got {1}", name, text);
    }
  for (auto [name, scale] :
       {std::pair("k_scale", op.getKScale()), std::pair("v_scale", op.getVScale())})
    if (scale && !(AttentionOpInterface::isBroadcastDim(scale, op.getSeqDim()) &&
                   AttentionOpInterface::isBroadcastDim(scale, 3)))
      return llvm::formatv("expected {0} with one scale for all rows and columns of a sequence "
                           "beside q of f8 but got more",
                           name);
  return "";
}

std::string mlir::flashattn::explainRefusal(AttentionOpInterface op, const Machine &machine) {
  // The row lengths that tensor cores require.
  if (machine.isCPU())
    return "";
  for (auto [name, value] : {std::pair("D", op.getD()), std::pair("Dv", op.getDv())})
    if (value % 8 != 0 || value > 256)
      return llvm::formatv("expected {0} to be a multiple of 8 up to 256 but got {1}", name, value);
  return explainF8Refusal(op, machine);
}

/// Rejects fields of the backward pass for other ops.
static std::string explainGradientFields(ScheduleAttr schedule) {
  if (schedule.getDqTileM())
    return llvm::formatv("expected no dq_tile_m outside a backward pass but got {0}",
                         schedule.getDqTileM());
  if (schedule.getColumnWarps() != 1)
    return llvm::formatv("expected column_warps 1 outside a backward pass but got {0}",
                         schedule.getColumnWarps());
  if (std::optional<BackwardAlgorithm> algorithm = schedule.getAlgorithm())
    return llvm::formatv("expected no algorithm outside a backward pass but got {0}",
                         stringifyBackwardAlgorithm(*algorithm));
  return "";
}

/// Checks the operands and the mapping that tensor cores require.
static std::string explainElementRefusal(FloatType element, ScheduleAttr schedule) {
  if (schedule.getDotType() != element)
    return llvm::formatv("expected dot_type {0}, the operands' element type, but got {1}",
                         getTypeName(element), getTypeName(schedule.getDotType()));
  if (!schedule.getMapping().isOnGPU())
    return "expected mapping mma_sync or hopper on a GPU but got cpu";
  return "";
}

std::string mlir::flashattn::explainRefusal(AttentionOp op, ScheduleAttr schedule,
                                            const Machine &machine) {
  if (std::string reason = explainSequenceRefusal(op, schedule); !reason.empty())
    return reason;
  int64_t pack = schedule.getPack();
  if (pack != 1 && !schedule.getHopper() && !machine.isCPU())
    return llvm::formatv("expected pack 1 without warp specialization but got {0}", pack);
  // Inputs of a query head are loaded once for all rows of a tile.
  StringRef ofHeads = op.findInputOfHeads(schedule.getSplits() > 1);
  if (pack != 1 && !ofHeads.empty())
    return llvm::formatv("expected pack 1 with {0} but got {1}", ofHeads, pack);
  if (std::string reason = explainGradientFields(schedule); !reason.empty())
    return reason;
  if (machine.isCPU())
    return cpu::explainRefusal(op, schedule);
  FloatType element = op.getElementType();
  if (schedule.getDotType() == element)
    if (std::string reason = explainRefusal(op, machine); !reason.empty())
      return reason;
  if (std::string reason = explainElementRefusal(element, schedule); !reason.empty())
    return reason;
  return schedule.getHopper() ? warpgroups::explainRefusal(op, schedule, machine)
                              : ampere::explainRefusal(op, schedule, machine);
}

std::string mlir::flashattn::explainRefusal(AttentionBackwardOp op, ScheduleAttr schedule,
                                            const Machine &machine) {
  if (std::string reason = explainSequenceRefusal(op, schedule); !reason.empty())
    return reason;
  if (schedule.getPack() != 1 && !schedule.compactsKV())
    return llvm::formatv("expected pack 1 in a backward pass without compact_kv but got {0}",
                         schedule.getPack());
  if (schedule.getSplits() != 1)
    return llvm::formatv("expected splits 1 in a backward pass but got {0}", schedule.getSplits());
  if (schedule.getHopper() && schedule.getDqTileM())
    return llvm::formatv("expected no dq_tile_m with warp specialization but got {0}",
                         schedule.getDqTileM());
  if (machine.isCPU())
    return cpu::explainRefusal(op, schedule);
  FloatType element = op.getElementType();
  if (std::string reason = explainRefusal(op, machine); !reason.empty())
    return reason;
  if (std::string reason = explainElementRefusal(element, schedule); !reason.empty())
    return reason;
  return schedule.getHopper() ? warpgroups::explainRefusal(op, schedule, machine)
                              : ampere::explainRefusal(op, schedule, machine);
}

std::string mlir::flashattn::explainRefusal(ProjectOp op, ScheduleAttr schedule,
                                            const Machine &machine) {
  if (schedule.getHopper())
    return "expected mapping cpu or mma_sync for a projection but got hopper";
  for (auto [name, value] :
       {std::pair("pack", schedule.getPack()), std::pair("splits", schedule.getSplits())})
    if (value != 1)
      return llvm::formatv("expected {0} 1 for a projection but got {1}", name, value);
  if (std::string reason = explainGradientFields(schedule); !reason.empty())
    return reason;
  if (machine.isCPU())
    return cpu::explainRefusal(op, schedule);
  if (std::string reason = explainElementRefusal(op.getElementType(), schedule); !reason.empty())
    return reason;
  return ampere::explainRefusal(op, schedule, machine);
}

//===----------------------------------------------------------------------===//
// Trials
//===----------------------------------------------------------------------===//

TrialProblem TrialProblem::of(AttentionOp op) {
  int64_t queries = op.getStaticQueries();
  bool isShort = !ShapedType::isDynamic(queries) && queries < 64;
  TrialProblem problem;
  problem.element = op.getElementType();
  problem.group = op.getKnownGroup();
  problem.packs = isShort || classifyMask(op.getVisibleSets()).shape == MaskShape::Banded;
  return problem;
}

TrialProblem TrialProblem::of(AttentionBackwardOp op) {
  TrialProblem problem;
  problem.element = op.getElementType();
  problem.group = op.getKnownGroup();
  problem.gradients = true;
  problem.packs = classifyMask(op.getVisibleSets()).shape == MaskShape::Banded;
  return problem;
}

std::vector<ScheduleFields> mlir::flashattn::getTrials(const TrialProblem &problem,
                                                       const Machine &machine,
                                                       const TrialGrid &grid) {
  std::vector<ScheduleFields> trials;
  auto add = [&](const ScheduleFields &fields) {
    if (!llvm::is_contained(trials, fields))
      trials.push_back(fields);
  };
  if (machine.isCPU()) {
    cpu::addTrials(problem, machine, grid, add);
    return trials;
  }
  if (machine.hasWarpgroups() && !problem.element.isF32())
    warpgroups::addTrials(problem, grid, add);
  bool wantsHopper = !grid.consumers.empty() || !grid.registers.empty() || !grid.blocks.empty() ||
                     !grid.pack.empty();
  if (!wantsHopper)
    ampere::addTrials(problem, grid, add);
  return trials;
}
