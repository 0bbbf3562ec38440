//===- Schedules.cpp - schedules for mma.sync -----------------------------===//
//
// For Ampere and later GPUs: all warps of a block do the same work, and tiles are loaded by
// asynchronous copies.
//
//===----------------------------------------------------------------------===//

#include "../MachineSchedules.h"
#include "llvm/Support/FormatVariadic.h"

using namespace mlir;
using namespace mlir::flashattn;

static constexpr int64_t kDecodeSplits = 128;
/// The tiles for masks that divide often. Their code grows with the pairs of a thread times the
/// divisions, so a thread has as few pairs as a product allows.
static constexpr int64_t kCostlyTileM = 64, kCostlyTileN = 16, kCostlyWarps = 4;
/// Maximum number of accumulator registers per thread. The others of its 255 registers are for
/// operands and addresses.
static constexpr int64_t kMaxAccumulators = 200;

namespace {
struct AttentionRow {
  int64_t bits, maxD, tileM, tileN, warps, stages;
};
struct GradientRow {
  int64_t bits, maxD, tileM, tileN, warps, columnWarps, stages, dqTileM;
  BackwardAlgorithm algorithm;
};
struct DecodeRow {
  int64_t bits, maxD, tileN;
};
} // namespace

static constexpr AttentionRow kAttentionTable[] = {
#define ATTENTION(...) {__VA_ARGS__},
#include "Schedules.def"
};
static constexpr GradientRow kGradientTable[] = {
#define GRADIENTS(bits, maxD, tileM, tileN, warps, columnWarps, stages, dqTileM, algorithm)        \
  {bits, maxD, tileM, tileN, warps, columnWarps, stages, dqTileM, BackwardAlgorithm::algorithm},
#include "Schedules.def"
};
static constexpr DecodeRow kDecodeTable[] = {
#define DECODE(...) {__VA_ARGS__},
#include "Schedules.def"
};

static ScheduleFields makeFields(int64_t m, int64_t n, int64_t warps, int64_t stages,
                                 FloatType element) {
  ScheduleFields fields;
  fields.tileM = m;
  fields.tileN = n;
  fields.getMmaSync()->warps = warps;
  fields.stages = stages;
  fields.dotType = element;
  return fields;
}

static int64_t getBytes(FloatType type) { return type.getIntOrFloatBitWidth() / 8; }

/// Pads columns of a tile to the 16 that a product processes at a time.
static int64_t padded(int64_t columns) { return llvm::alignTo(columns, 16); }

//===----------------------------------------------------------------------===//
// Candidates
//===----------------------------------------------------------------------===//

Candidates ampere::getCandidates(AttentionOp op) {
  FloatType element = op.getElementType();
  int64_t d = std::max(op.getD(), op.getDv()), bits = element.getIntOrFloatBitWidth();
  Candidates candidates;
  bool isCostly = hasCostlyMask(op);
  if (isDecode(op))
    for (const DecodeRow &row : kDecodeTable)
      if (row.bits == bits && d <= row.maxD) {
        int64_t tileN = isCostly ? kCostlyTileN : row.tileN;
        ScheduleFields fields = makeFields(32, tileN, 2, 2, element);
        fields.splits = kDecodeSplits;
        if (op.getInvariant())
          fields.minSplitTiles = std::max<int64_t>(kInvariantKeys / tileN, 1);
        candidates.push_back(ScheduleAttr::get(op.getContext(), fields));
      }
  auto add = [&](const AttentionRow &row) {
    candidates.push_back(ScheduleAttr::get(
        op.getContext(), makeFields(row.tileM, row.tileN, row.warps, row.stages, element)));
  };
  if (isCostly)
    for (int64_t stages : {2, 1})
      add({bits, d, kCostlyTileM, kCostlyTileN, kCostlyWarps, stages});
  const AttentionRow *widest = nullptr;
  for (const AttentionRow &row : kAttentionTable) {
    if (row.bits != bits)
      continue;
    widest = &row;
    if (d <= row.maxD)
      add(row);
  }
  // No row is wide enough. The diagnostic of the widest row states what is expected.
  if (candidates.empty())
    add(*widest);
  return candidates;
}

Candidates ampere::getCandidates(AttentionBackwardOp op) {
  FloatType element = op.getElementType();
  int64_t d = std::max(op.getD(), op.getDv()), bits = element.getIntOrFloatBitWidth();
  Candidates candidates;
  auto add = [&](const GradientRow &row) {
    ScheduleFields fields = makeFields(row.tileM, row.tileN, row.warps, row.stages, element);
    fields.dqTileM = row.dqTileM == row.tileM ? 0 : row.dqTileM;
    fields.getMmaSync()->columnWarps = row.columnWarps;
    fields.algorithm = row.algorithm;
    candidates.push_back(ScheduleAttr::get(op.getContext(), fields));
  };
  if (hasCostlyMask(op) && !element.isF32()) {
    // Programs over keys of narrow heads also accumulate dQ, so that no other program has a mask.
    constexpr int64_t kWidestAdding = 64;
    // The accumulators of both dK and dV of wider heads take all registers.
    constexpr int64_t kWidestTogether = 128;
    bool adds = d <= kWidestAdding;
    add({bits, d, adds ? 2 * kCostlyTileM : kCostlyTileM, kCostlyTileN, kCostlyWarps,
         /*columnWarps=*/1, /*stages=*/2, adds ? 0 : kCostlyTileM,
         adds                  ? BackwardAlgorithm::AccumulateDq
         : d > kWidestTogether ? BackwardAlgorithm::SeparateDkDv
                               : BackwardAlgorithm::SeparateDq});
  }
  const GradientRow *widest = nullptr;
  for (const GradientRow &row : kGradientTable) {
    if (row.bits != bits)
      continue;
    widest = &row;
    if (d <= row.maxD)
      add(row);
  }
  if (candidates.empty())
    add(*widest);
  return candidates;
}

Candidates ampere::getCandidates(ProjectOp op) {
  FloatType element = op.getElementType();
  Candidates candidates;
  auto add = [&](int64_t m, int64_t n, int64_t warps, int64_t stages) {
    candidates.push_back(
        ScheduleAttr::get(op.getContext(), makeFields(m, n, warps, stages, element)));
  };
  // With few rows, the time is that of reading the matrix, which many small blocks do fastest.
  if (op.hasFewRows())
    add(32, 32, 2, 2);
  // Two 16-row blocks per warp halve its reads of the matrix.
  if (!element.isF32())
    add(128, 128, 4, 2);
  add(64, 64, 4, 2);
  add(64, 64, 4, 1);
  return candidates;
}

//===----------------------------------------------------------------------===//
// Requirements
//===----------------------------------------------------------------------===//

SharedMemoryPlan ampere::planSharedMemory(AttentionOp op, ScheduleAttr schedule) {
  int64_t n = schedule.getTileN(), d = padded(op.getD()), dv = padded(op.getDv());
  return planStagedTiles({{"q", schedule.getTileM(), d}},
                         {makeTileShape("k", n, d, op.hasNarrowKeys()),
                          makeTileShape("v", n, dv, op.hasNarrowValues())},
                         schedule.getStages(), getBytes(op.getElementType()));
}

SharedMemoryPlan ampere::planSharedMemory(ProjectOp op, ScheduleAttr schedule) {
  int64_t depth = op.getStepDepth(schedule);
  return planStagedTiles({}, {{"o", schedule.getTileM(), depth}, {"w", depth, schedule.getTileN()}},
                         schedule.getStages(), getBytes(op.getElementType()));
}

/// Checks the fields that attention and projection programs have in common.
static std::string explainRefusal(ScheduleAttr schedule) {
  int64_t m = schedule.getTileM(), warps = schedule.getWarps() / schedule.getColumnWarps();
  if (m % (16 * warps) != 0)
    return llvm::formatv("expected tile_m to be a multiple of 16 rows times {0} warps but got {1}",
                         warps, m);
  if (schedule.getTileN() % 16 != 0)
    return llvm::formatv("expected tile_n to be a multiple of 16 but got {0}", schedule.getTileN());
  if (schedule.getStages() > 2)
    return llvm::formatv("expected stages to be 1 or 2 but got {0}", schedule.getStages());
  return "";
}

std::string ampere::explainRefusal(AttentionOp op, ScheduleAttr schedule, const Machine &machine) {
  FloatType element = op.getElementType();
  if (std::string reason = ::explainRefusal(schedule); !reason.empty())
    return reason;
  if (std::string reason =
          ampere::planSharedMemory(op, schedule).explainRefusal(machine.getSharedMemoryPerBlock());
      !reason.empty())
    return reason;
  MmaRegisters registers =
      countMmaRegisters(schedule.getTileM(), schedule.getTileN(), schedule.getWarps(),
                        padded(op.getD()), padded(op.getDv()), element.isF32(), !!op.getAttnMask());
  SmallVector<Need> needs = {
      {"o", registers.output}, {"scores", registers.scores}, {"attn_mask", registers.attnMask}};
  // Without an explicit `q_in_registers`, Q is kept in registers only if it fits.
  if (schedule.getQInRegisters().value_or(false))
    needs.push_back({"q", registers.queries});
  return explainNeeds("registers per thread for accumulators", needs, kMaxAccumulators);
}

/// Same for the programs over key tiles or over query tiles, whose rows are `tile_m` of `schedule`.
static std::string explainRefusal(AttentionBackwardOp op, ScheduleAttr schedule, bool overKeys,
                                  const Machine &machine) {
  if (std::string reason = explainRefusal(schedule); !reason.empty())
    return reason;
  FloatType element = op.getElementType();
  int64_t m = schedule.getTileM(), n = schedule.getTileN();
  int64_t d = padded(op.getD()), dv = padded(op.getDv());
  SmallVector<TileShape> exchanged;
  int64_t columnWarps = schedule.getColumnWarps();
  if (columnWarps > 1)
    exchanged = {{"p", m, n}};
  if (overKeys && schedule.addsQueries())
    exchanged.push_back({"ds", m, n});
  SharedMemoryPlan plan =
      planStagedTiles({{overKeys ? "k" : "q", m, d}, {overKeys ? "v" : "d_o", m, dv}},
                      {{overKeys ? "q" : "k", n, d}, {overKeys ? "d_o" : "v", n, dv}},
                      schedule.getStages(), getBytes(element), exchanged);
  if (std::string reason = plan.explainRefusal(machine.getSharedMemoryPerBlock()); !reason.empty())
    return reason;
  // 16 rows of n f32 elements are n / 2 registers per lane. Warps that share rows also divide the
  // columns.
  int64_t rowBlocks = m * columnWarps / (16 * schedule.getWarps());
  auto count = [&](int64_t columns) { return rowBlocks * columns / columnWarps / 2; };
  int64_t scores = count(n);
  SmallVector<Need> needs = {
      {overKeys ? "dk" : "dq", count(d)}, {"scores", scores}, {"gradients", scores}};
  if (overKeys && !schedule.separatesDkDv())
    needs.push_back({"dv", count(dv)});
  if (schedule.getQInRegisters().value_or(false))
    needs.push_back(
        {overKeys ? "k and v" : "q and d_o", rowBlocks * (d + dv) / 4 * (element.isF32() ? 4 : 1)});
  return explainNeeds("registers per thread for accumulators", needs, kMaxAccumulators);
}

/// Checks `column_warps`, the number of warps that share rows.
static std::string explainColumnRefusal(AttentionBackwardOp op, ScheduleAttr schedule) {
  int64_t warps = schedule.getColumnWarps();
  if (warps == 1)
    return "";
  if (!schedule.addsQueries())
    return llvm::formatv("expected column_warps 1 without algorithm accumulate_dq but got {0}",
                         warps);
  if (schedule.getQInRegisters().value_or(false))
    return "expected q_in_registers false for column_warps above 1 but got true";
  for (auto [name, columns] :
       {std::pair("tile_n", schedule.getTileN()), std::pair("D", padded(op.getD())),
        std::pair("Dv", padded(op.getDv()))})
    if (columns % warps != 0 || !isWholePart(columns / warps))
      return llvm::formatv(
          "expected {0} to be column_warps, {1}, times a power of 2 of at least 16 but got {2}",
          name, warps, columns);
  return "";
}

/// Checks programs over key tiles that accumulate dQ. Each warp has 16 * `column_warps` rows of a
/// contribution to dQ, and warps with the same rows have equal ranges of its columns.
static std::string explainShareRefusal(AttentionBackwardOp op, ScheduleAttr schedule) {
  if (op.getDeterministic())
    return "expected another algorithm for a deterministic backward pass without warp "
           "specialization but got accumulate_dq";
  if (op.getElementType().isF32())
    return "expected another algorithm for f32 but got accumulate_dq";
  if (int64_t rows = schedule.getDqTileM())
    return llvm::formatv("expected no dq_tile_m with algorithm accumulate_dq but got {0}", rows);
  int64_t n = schedule.getTileN(), rows = 16 * schedule.getColumnWarps() * schedule.getWarps();
  if (rows % n != 0 || n == schedule.getTileM())
    return llvm::formatv("expected tile_n to be below tile_m and to divide {0}, the rows that {1} "
                         "warps process at once, but got {2}",
                         rows, schedule.getWarps(), n);
  if (int64_t d = padded(op.getD()), parts = schedule.countColumnParts();
      d % parts != 0 || !isWholePart(d / parts))
    return llvm::formatv("expected D to be {0} times a power of 2 of at least 16, for {0} warps "
                         "with the same rows, but got {1}",
                         parts, d);
  return "";
}

std::string ampere::explainRefusal(AttentionBackwardOp op, ScheduleAttr schedule,
                                   const Machine &machine) {
  if (std::string reason = ::explainRefusal(op, schedule, /*overKeys=*/true, machine);
      !reason.empty())
    return reason;
  if (std::string reason = explainColumnRefusal(op, schedule); !reason.empty())
    return reason;
  return schedule.addsQueries()
             ? explainShareRefusal(op, schedule)
             : ::explainRefusal(op, schedule.forQueryTiles(), /*overKeys=*/false, machine);
}

std::string ampere::explainRefusal(ProjectOp op, ScheduleAttr schedule, const Machine &machine) {
  FloatType element = op.getElementType();
  if (schedule.getQInRegisters())
    return "expected no q_in_registers for a projection but got one";
  if (std::string reason = ::explainRefusal(schedule); !reason.empty())
    return reason;
  if (std::string reason =
          ampere::planSharedMemory(op, schedule).explainRefusal(machine.getSharedMemoryPerBlock());
      !reason.empty())
    return reason;
  // The accumulators and, for f32, the two halves of the operand `o` of a step.
  int64_t rowBlocks = schedule.getTileM() / (16 * schedule.getWarps());
  return explainNeeds("registers per thread",
                      {{"p", rowBlocks * schedule.getTileN() / 2},
                       {"o", element.isF32() ? rowBlocks * op.getStepDepth(schedule) : 0}},
                      kMaxAccumulators);
}

//===----------------------------------------------------------------------===//
// Trials
//===----------------------------------------------------------------------===//

/// Tries tiles of keys and, separately, of queries, and each algorithm. With fewer keys than
/// `kFewestKeys`, additions to dQ take longer than computing the scores twice.
static void addGradientTrials(const TrialProblem &problem, const TrialGrid &grid, AddTrial add) {
  constexpr int64_t kFewestKeys = 128;
  for (int64_t m : orElse(grid.tileM, {32, 64, 128}))
    for (int64_t n : orElse(grid.tileN, {16, 32, 48, 64}))
      for (int64_t warps :
           orElse(grid.warps, {std::max<int64_t>(1, m / 16), std::max<int64_t>(1, m / 32)}))
        for (int64_t stages : orElse(grid.stages, {1, 2}))
          for (int64_t q : {m, int64_t(64)})
            for (BackwardAlgorithm algorithm :
                 {BackwardAlgorithm::SeparateDq, BackwardAlgorithm::SeparateDkDv,
                  BackwardAlgorithm::AccumulateDq}) {
              bool adds = algorithm == BackwardAlgorithm::AccumulateDq;
              if (adds && (q != m || m < kFewestKeys || problem.element.isF32()))
                continue;
              ScheduleFields fields = makeFields(m, n, warps, stages, problem.element);
              fields.dqTileM = q == m ? 0 : q;
              fields.algorithm = algorithm;
              add(fields);
              // Two warps share 32 rows in programs that accumulate dQ.
              fields.getMmaSync()->columnWarps = 2;
              if (adds && warps % 2 == 0)
                add(fields);
            }
}

void ampere::addTrials(const TrialProblem &problem, const TrialGrid &grid, AddTrial add) {
  if (problem.gradients)
    return addGradientTrials(problem, grid, add);
  for (int64_t m : orElse(grid.tileM, {64, 128, 192}))
    for (int64_t n : orElse(grid.tileN, {16, 32, 48, 64, 96, 128}))
      // One or two blocks of 16 rows per warp.
      for (int64_t warps :
           orElse(grid.warps, {std::max<int64_t>(1, m / 16), std::max<int64_t>(1, m / 32)}))
        for (int64_t stages : orElse(grid.stages, {1, 2})) {
          ScheduleFields fields = makeFields(m, n, warps, stages, problem.element);
          fields.splits = problem.splits;
          add(fields);
        }
}
