//===- Tune.cpp ------------------------------------------------------------===//

#include "Tune.h"
#include "Progress.h"
#include "Runner.h"
#include "flashattn/Analysis/MaskTiles.h"
#include "flashattn/Target/Tuned.h"
#include "llvm/Support/FormatVariadic.h"

#include <cmath>

using namespace mlir;
using namespace mlir::flashattn;
using llvm::Error;
using llvm::Expected;

namespace {

struct Trial {
  std::string fields;
  double milliseconds = 0;
  std::string refusal; ///< empty where it ran
};

} // namespace

/// Whether a tile of 64 queries of one head may well read keys that few of them see.
static bool paysToPack(AttentionOp op) {
  int64_t queries = op.getQ().getType().getDimSize(op.getSeqDim());
  return classifyMask(op.getVisibleSets()) == MaskShape::Banded ||
         (!ShapedType::isDynamic(queries) && queries < 64);
}

/// Tile sizes, warps, stages and roles worth a try; what does not fit is refused with its reason.
static std::vector<ScheduleAttr> getTrials(AttentionOp op, const Chip &chip) {
  MLIRContext *context = op.getContext();
  std::vector<ScheduleAttr> trials(1, getScheduleCandidates(op, chip).front());
  auto add = [&](int64_t m, int64_t n, int64_t warps, int64_t stages, int64_t lanes, FloatType dot,
                 int64_t pack = 1, RolesAttr roles = {}) {
    // Few queries need many parts whatever else is tried.
    auto schedule = ScheduleAttr::get(context, m, n, warps, stages, lanes, dot, pack,
                                      trials.front().getSplits(), roles);
    if (!llvm::is_contained(trials, schedule))
      trials.push_back(schedule);
  };
  if (chip.isCPU()) {
    for (int64_t registers : {1, 2, 4})
      for (int64_t n : {16, 32, 64, 128})
        add(registers * chip.vectorWidth, n, 1, 1, 1, Float32Type::get(context));
    return trials;
  }
  // Registers of a consumer and of the producer, as many as a multiprocessor has for so many: a
  // block has them from its start, so fewer would leave no room for a second one.
  struct Roles {
    int64_t consumers, registers, producerRegisters, blocks = 1;
  };
  if (chip.hasWarpgroups() && !op.getElementType().isF32())
    for (Roles roles :
         {Roles{1, 240, 24}, {1, 208, 48, 2}, {1, 128, 32, 3}, {2, 240, 24}, {3, 160, 32}})
      for (ProgramAxis along : {ProgramAxis::QueryTile, ProgramAxis::Head}) {
        // A single one has no neighbour, and a group of one head no neighbours.
        if (along == ProgramAxis::Head &&
            (roles.consumers == 1 || op.getKnownGroup() % roles.consumers != 0))
          continue;
        auto addRoles = [&](int64_t n, int64_t stages, int64_t section, int64_t queryStages,
                            int64_t pack) {
          add(64, n, 4, stages, 4, op.getElementType(), pack,
              RolesAttr::get(context, roles.consumers, along, roles.registers,
                             roles.producerRegisters, getDefaultRescale(op.getElementType()),
                             section, roles.blocks, queryStages));
        };
        for (int64_t n : {32, 48, 64, 80, 96, 112, 128, 160, 176})
          for (int64_t stages : {2, 3})
            for (auto [section, queryStages] : {std::pair(1, 1), {4, 1}, {16, 1}, {1, 2}})
              addRoles(n, stages, section, queryStages, /*pack=*/1);
        // Fewer positions in a tile have fewer keys between them: of a short window, or of few
        // queries.
        if (along == ProgramAxis::Head || !paysToPack(op))
          continue;
        for (int64_t pack : {2, 4, 8, 16})
          if (op.getKnownGroup() % pack == 0)
            for (int64_t n : {32, 48, 64, 80, 128})
              for (int64_t queryStages : {1, 2})
                addRoles(n, /*stages=*/2, /*section=*/1, queryStages, pack);
      }
  for (int64_t m : {64, 128, 192})
    for (int64_t n : {16, 32, 48, 64, 96, 128})
      for (int64_t rowBlocks : {1, 2}) // 16 rows each, of a warp
        for (int64_t stages : {1, 2})
          add(m, n, m / (16 * rowBlocks), stages, 4, op.getElementType());
  return trials;
}

/// Largest difference of two outputs, infinite where one alone is finite.
static double getDifference(const HostTensor &a, const HostTensor &b) {
  double largest = 0;
  for (int64_t i = 0; i < a.getNumElements(); ++i) {
    double x = a.get(i), y = b.get(i);
    if (std::isnan(x) != std::isnan(y))
      return HUGE_VAL;
    if (x != y && !std::isnan(x))
      largest = std::max(largest, std::abs(x - y));
  }
  return largest;
}

/// Compiles and runs one schedule; fills in its time. `expected` is the first one's output.
static Error runTrial(Trial &trial, ModuleOp module, const Program &program, const Inputs &inputs,
                      Device &device, LoweringOptions options, double seconds,
                      std::optional<HostTensor> &expected) {
  options.schedule = trial.fields;
  OwningOpRef<ModuleOp> copy(module.clone());
  if (Error error = lower(*copy, options))
    return error;
  GuardedDevice guarded(device);
  Expected<std::unique_ptr<Executable>> executable = Executable::create(*copy, guarded);
  if (!executable)
    return executable.takeError();
  SmallVector<const HostTensor *> arguments;
  for (const HostTensor &tensor : inputs.tensors)
    arguments.push_back(&tensor);
  Runner runner(program, guarded, **executable);
  if (Error error = runner.upload(arguments, inputs.poisoned))
    return error;
  Expected<SmallVector<HostTensor>> outputs = runner.run();
  if (!outputs)
    return outputs.takeError();
  HostTensor &o = (*outputs)[program.attention->o.value_or(0)];
  if (!expected) {
    expected = std::move(o);
  } else {
    // Two roundings of the result apart at most, where values are about 1.
    double bound = o.getScalar() == Scalar::F16    ? 4e-3
                   : o.getScalar() == Scalar::BF16 ? 3e-2
                                                   : 1e-4;
    if (double difference = getDifference(o, *expected); !(difference <= bound)) {
      trial.refusal = llvm::formatv("differs by {0:e1} from the compiler's own choice", difference);
      return Error::success();
    }
  }
  Expected<BenchResult> result = runner.bench(seconds);
  if (!result)
    return result.takeError();
  trial.milliseconds = result->median;
  return Error::success();
}

Error flashattn::tune(ModuleOp module, const Program &program, const Inputs &inputs, Device &device,
                      const LoweringOptions &options, StringRef file, double seconds) {
  if (!program.attention)
    return llvm::createStringError("--tune: " + program.noAttention);
  AttentionOp op;
  module.lookupSymbol<func::FuncOp>(program.function).walk([&](AttentionOp found) { op = found; });
  if (op.getSchedule())
    return llvm::createStringError(
        "--tune: expected an attention op without a schedule of its own");
  Chip chip{options.chip, getHostVectorWidth()};
  std::string key = getTuningKey(op, chip);

  std::vector<Trial> trials;
  std::optional<HostTensor> expected;
  for (ScheduleAttr schedule : getTrials(op, chip)) {
    Trial &trial = trials.emplace_back(Trial{getScheduleFields(schedule), 0, ""});
    trial.refusal = explainRefusal(op, schedule, chip);
    if (!trial.refusal.empty())
      continue;
    Progress progress("trying " + trial.fields);
    if (Error error =
            runTrial(trial, module, program, inputs, device, options, seconds, expected)) {
      // Without the compiler's own choice there is nothing to compare with.
      if (!expected)
        return error;
      trial.refusal = llvm::toString(std::move(error));
    }
  }
  std::string own = trials.front().fields;
  llvm::stable_sort(trials, [](const Trial &a, const Trial &b) {
    return std::tuple(!a.refusal.empty(), a.milliseconds) <
           std::tuple(!b.refusal.empty(), b.milliseconds);
  });
  for (const Trial &trial : trials)
    llvm::outs() << "tune: " << trial.fields << ": "
                 << (trial.refusal.empty() ? llvm::formatv("{0:F4} ms", trial.milliseconds).str()
                                           : trial.refusal)
                 << (trial.fields == own ? " (the compiler's own choice)" : "") << "\n";
  const Trial &best = trials.front();
  if (!best.refusal.empty())
    return llvm::createStringError("--tune: no schedule fits");
  if (Error error = storeTunedSchedule(file, key, best.fields, best.milliseconds))
    return error;
  llvm::outs() << "tune: best for " << key << ": " << best.fields << ", written to " << file
               << "\n";
  return Error::success();
}
