//===- Trials.cpp - trials of warp-specialized schedules ------------------===//

#include "Fields.h"

using namespace mlir;
using namespace mlir::flashattn;
using namespace mlir::flashattn::warpgroups;

namespace {
/// The order in which groups of programs run.
struct Order {
  int64_t section, qStages, dynamicSchedulerMaxLen = 0;
};
} // namespace

/// Tries one warpgroup's rows per consumer or a tile that all consumers share, and dK and dV in one
/// program or in two.
static void addGradientTrials(const TrialProblem &problem, const TrialGrid &grid, AddTrial add) {
  auto addTiles = [&](const HopperFields &hopper, int64_t m, int64_t warps, int64_t pack) {
    for (int64_t n : orElse(grid.tileN, {32, 48, 64, 80, 96, 128}))
      for (int64_t stages : orElse(grid.stages, {2, 3}))
        for (bool apart : {false, true}) {
          ScheduleFields fields = makeFields(n, stages, pack, hopper, problem.element);
          fields.tileM = m;
          fields.warps = warps;
          if (apart)
            fields.separateDkDv = true;
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
          for (int64_t m : orElse(grid.tileM, {kRows, kRows * consumers})) {
            // Each consumer has its own rows, or one accumulator of the same rows.
            SmallVector<int64_t> some = {kWarps * std::max<int64_t>(1, m / kRows)};
            if (m == kRows && consumers == 2)
              some.push_back(kWarps * consumers);
            for (int64_t warps : orElse(grid.warps, some)) {
              // If consumers share a program: which warps add contributions to dQ, and whether the
              // scheduler is dynamic.
              SmallVector<std::pair<int64_t, int64_t>> others = {{0, 0}};
              if (m > kRows)
                others.append({{1, 0}, {2, 0}, {0, kMostKeys}, {1, kMostKeys}, {2, kMostKeys}});
              for (auto [dqReduceStages, dynamicSchedulerMaxLen] : others) {
                hopper.dqReduceStages = dqReduceStages;
                hopper.dynamicSchedulerMaxLen = dynamicSchedulerMaxLen;
                for (int64_t pack : orElse(grid.pack, {1}))
                  addTiles(hopper, m, warps, pack);
              }
            }
          }
        }
    }
}

/// Tries, for a band, programs that compute dQ from compacted keys, and others for dK and dV.
static void addCompactedBackwardTrials(const TrialProblem &problem, const TrialGrid &grid,
                                       AddTrial add) {
  if (!problem.packs || !llvm::is_contained(orElse(grid.consumers, {1}), 1) ||
      !llvm::is_contained(orElse(grid.tileM, {kRows}), kRows) ||
      !llvm::is_contained(orElse(grid.warps, {kWarps}), kWarps))
    return;
  for (int64_t blocks : orElse(grid.blocks, {2, 3})) {
    HopperFields hopper = completeHopper(/*consumers=*/1, blocks, problem.element);
    hopper.rescaleThreshold = 0;
    hopper.compactKV = 1;
    for (int64_t registers : orElse(grid.registers, {hopper.registers}))
      for (int64_t n : orElse(grid.tileN, {32, 48, 64}))
        for (int64_t stages : orElse(grid.stages, {2, 3}))
          for (auto [qStages, dynamicSchedulerMaxLen] :
               {std::pair<int64_t, int64_t>(1, 0), {2, kMostKeys}})
            for (int64_t pack : orElse(grid.pack, {1, 4, 8})) {
              hopper.registers = registers;
              hopper.qStages = qStages;
              hopper.dynamicSchedulerMaxLen = dynamicSchedulerMaxLen;
              if (problem.group % pack == 0)
                add(makeFields(n, stages, pack, hopper, problem.element));
            }
  }
}

void warpgroups::addTrials(const TrialProblem &problem, const TrialGrid &grid, AddTrial add) {
  if (problem.gradients) {
    addGradientTrials(problem, grid, add);
    addCompactedBackwardTrials(problem, grid, add);
    return;
  }
  if (!llvm::is_contained(orElse(grid.tileM, {kRows}), kRows) ||
      !llvm::is_contained(orElse(grid.warps, {kWarps}), kWarps))
    return;
  auto addAll = [&](HopperFields hopper, ArrayRef<int64_t> tiles, ArrayRef<int64_t> stages,
                    ArrayRef<Order> orders, int64_t pack) {
    for (int64_t n : orElse(grid.tileN, tiles))
      for (int64_t held : orElse(grid.stages, stages))
        for (auto [section, qStages, dynamicSchedulerMaxLen] : orders) {
          hopper.l2HeadGroup = section;
          hopper.qStages = qStages;
          hopper.dynamicSchedulerMaxLen = dynamicSchedulerMaxLen;
          ScheduleFields fields = makeFields(n, held, pack, hopper, problem.element);
          fields.splits = problem.splits;
          if (problem.splits > 1)
            fields.hopper->prefetchKiBPerSM = kPrefetchKiB;
          add(fields);
          // Rejected if more than the mask depends on the index of a key.
          if (hopper.consumers == 1 && problem.packs && problem.splits == 1) {
            fields.hopper->compactKV = 1;
            add(fields);
            fields.hopper->compactKV = 0;
          }
          // Rejected if row sums cannot be products, or scores cannot be computed again.
          fields.hopper->rescaleThreshold = kFewRescales;
          if (problem.element.isBF16() && hopper.blocksPerSM == 1)
            add(fields);
          fields.hopper->rescaleThreshold = kLazyRescale;
          fields.hopper->lazyRescale = 1;
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
                   {{1, 1},
                    {4, 1},
                    {16, 1},
                    {1, 2},
                    {1, 1, kMostKeys},
                    {16, 2, kMostKeys},
                    {64, 2, kMostKeys}},
                   /*pack=*/1);
          // Fewer positions in a tile see fewer keys. This helps with a short window or few
          // queries.
          if (along == ProgramAxis::Head || (!problem.packs && grid.pack.empty()))
            continue;
          for (int64_t pack : orElse(grid.pack, {2, 4, 8, 16}))
            if (pack > 1 && (!grid.pack.empty() || problem.group % pack == 0))
              addAll(hopper, {32, 48, 64, 80, 128}, {2}, {{1, 1}, {1, 2}, {1, 2, kMostKeys}}, pack);
        }
      }
}
