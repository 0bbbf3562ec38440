//===- Trials.cpp - trials of warp-specialized schedules ------------------===//

#include "Fields.h"

using namespace mlir;
using namespace mlir::flashattn;
using namespace mlir::flashattn::warpgroups;

/// Warps of a warpgroup.
static constexpr int64_t kWarps = 4;

namespace {
/// The order in which groups of programs run.
struct Order {
  int64_t section, qStages, dynamicScheduler = 0;
};
} // namespace

/// Whether the grid allows programs of `m` rows and `warps` warps.
static bool allows(const TrialGrid &grid, int64_t m, int64_t warps) {
  return llvm::is_contained(orElse(grid.tileM, {m}), m) &&
         llvm::is_contained(orElse(grid.warps, {warps}), warps);
}

/// Tries the algorithms, which decide whether consumers cooperate.
static void addGradientTrials(const TrialProblem &problem, const TrialGrid &grid, AddTrial add) {
  auto addTiles = [&](const HopperFields &hopper, BackwardAlgorithm algorithm) {
    for (int64_t pack : orElse(grid.pack, {1}))
      for (int64_t n : orElse(grid.tileN, {32, 48, 64, 80, 96, 128}))
        for (int64_t stages : orElse(grid.stages, {2, 3})) {
          ScheduleFields fields = makeFields(n, stages, pack, hopper, problem.element);
          setAlgorithm(fields, algorithm);
          int64_t warps = kWarps * (fields.getHopper()->cooperative ? hopper.consumers : 1);
          if (allows(grid, fields.tileM, warps))
            add(fields);
        }
  };
  for (int64_t consumers : orElse(grid.consumers, {1, 2, 3}))
    for (int64_t blocks : orElse(grid.blocks, {1})) {
      HopperFields hopper = completeHopper(consumers, blocks, problem.element);
      hopper.rescaleThreshold = 0; // no row maximum
      for (int64_t registers : orElse(grid.registers, {hopper.registers}))
        for (int64_t section : {1, 4, 16}) {
          hopper.registers = registers;
          hopper.l2HeadGroup = section;
          hopper.dqReduceStages = hopper.dynamicScheduler = 0;
          addTiles(hopper, BackwardAlgorithm::SeparateDq);
          addTiles(hopper, BackwardAlgorithm::SeparateDkDv);
          if (consumers == 2)
            addTiles(hopper, BackwardAlgorithm::SplitDkDv);
          if (consumers == 1)
            continue;
          // Which warps add contributions to dQ, and whether the scheduler is dynamic.
          for (int64_t dynamicScheduler : {0, 1})
            for (int64_t dqReduceStages : {0, 1, 2}) {
              hopper.dqReduceStages = dqReduceStages;
              hopper.dynamicScheduler = dynamicScheduler;
              addTiles(hopper, BackwardAlgorithm::AccumulateDq);
            }
        }
    }
}

/// Tries, for a band, programs that compute dQ from compacted keys, and others for dK and dV.
static void addCompactedBackwardTrials(const TrialProblem &problem, const TrialGrid &grid,
                                       AddTrial add) {
  if (!problem.packs || !llvm::is_contained(orElse(grid.consumers, {1}), 1) ||
      !allows(grid, kRows, kWarps))
    return;
  for (int64_t blocks : orElse(grid.blocks, {2, 3})) {
    HopperFields hopper = completeHopper(/*consumers=*/1, blocks, problem.element);
    hopper.rescaleThreshold = 0;
    hopper.compactKV = 1;
    for (int64_t registers : orElse(grid.registers, {hopper.registers}))
      for (int64_t n : orElse(grid.tileN, {32, 48, 64}))
        for (int64_t stages : orElse(grid.stages, {2, 3}))
          for (auto [qStages, dynamicScheduler] : {std::pair<int64_t, int64_t>(1, 0), {2, 1}})
            for (int64_t pack : orElse(grid.pack, {1, 4, 8})) {
              hopper.registers = registers;
              hopper.qStages = qStages;
              hopper.dynamicScheduler = dynamicScheduler;
              ScheduleFields fields = makeFields(n, stages, pack, hopper, problem.element);
              setAlgorithm(fields, BackwardAlgorithm::SeparateDq);
              if (problem.group % pack == 0)
                add(fields);
            }
  }
}

void warpgroups::addTrials(const TrialProblem &problem, const TrialGrid &grid, AddTrial add) {
  if (problem.gradients) {
    addGradientTrials(problem, grid, add);
    addCompactedBackwardTrials(problem, grid, add);
    return;
  }
  if (!allows(grid, kRows, kWarps))
    return;
  auto addAll = [&](HopperFields hopper, ArrayRef<int64_t> tiles, ArrayRef<int64_t> stages,
                    ArrayRef<Order> orders, int64_t pack) {
    for (int64_t n : orElse(grid.tileN, tiles))
      for (int64_t held : orElse(grid.stages, stages))
        for (auto [section, qStages, dynamicScheduler] : orders) {
          hopper.l2HeadGroup = section;
          hopper.qStages = qStages;
          hopper.dynamicScheduler = dynamicScheduler;
          ScheduleFields fields = makeFields(n, held, pack, hopper, problem.element);
          fields.splits = problem.splits;
          if (problem.splits > 1)
            fields.getHopper()->prefetchKiBPerSM = kPrefetchKiB;
          add(fields);
          // Rejected if more than the mask depends on the index of a key.
          if (hopper.consumers == 1 && problem.packs && problem.splits == 1) {
            fields.getHopper()->compactKV = 1;
            add(fields);
            fields.getHopper()->compactKV = 0;
          }
          // Rejected if row sums cannot be products, or scores cannot be computed again.
          fields.getHopper()->rescaleThreshold = kFewRescales;
          if (problem.element.isBF16() && hopper.blocksPerSM == 1)
            add(fields);
          fields.getHopper()->rescaleThreshold = kLazyRescale;
          fields.getHopper()->lazyRescale = 1;
          if (hopper.blocksPerSM == 1)
            add(fields);
        }
  };
  for (int64_t consumers : orElse(grid.consumers, {1, 2, 3}))
    // Several blocks fit only with one consumer each.
    for (int64_t blocks : orElse(grid.blocks, consumers == 1 ? ArrayRef<int64_t>({1, 2, 3, 4})
                                                             : ArrayRef<int64_t>({1})))
      for (ProgramAxis along : {ProgramAxis::QueryTile, ProgramAxis::Head}) {
        // A single consumer has no neighboring head, and neither has a group of one head.
        if (along == ProgramAxis::Head && (consumers < 2 || problem.group % consumers != 0))
          continue;
        HopperFields hopper = completeHopper(consumers, blocks, problem.element);
        hopper.along = along;
        for (int64_t registers : orElse(grid.registers, {hopper.registers})) {
          hopper.registers = registers;
          if (llvm::is_contained(orElse(grid.pack, {1}), 1))
            addAll(hopper, {32, 48, 64, 80, 96, 112, 128, 160, 176}, {2, 3},
                   {{1, 1}, {4, 1}, {16, 1}, {1, 2}, {1, 1, 1}, {16, 2, 1}, {64, 2, 1}},
                   /*pack=*/1);
          // Fewer positions in a tile see fewer keys. This helps with a short window or few
          // queries.
          if (along == ProgramAxis::Head || (!problem.packs && grid.pack.empty()))
            continue;
          for (int64_t pack : orElse(grid.pack, {2, 4, 8, 16}))
            if (pack > 1 && (!grid.pack.empty() || problem.group % pack == 0))
              addAll(hopper, {32, 48, 64, 80, 128}, {2}, {{1, 1}, {1, 2}, {1, 2, 1}}, pack);
        }
      }
}
