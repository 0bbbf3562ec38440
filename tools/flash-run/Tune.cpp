//===- Tune.cpp -----------------------------------------------------------===//

#include "Tune.h"
#include "Observer.h"
#include "Runner.h"
#include "flashattn/Support/Progress.h"
#include "flashattn/Target/Tuned.h"
#include "llvm/ADT/StringExtras.h"
#include "llvm/Support/FormatVariadic.h"

#include <cmath>

using namespace mlir;
using namespace mlir::flashattn;
using llvm::Error;
using llvm::Expected;

namespace {

/// A compiled schedule, with its arguments on the device.
struct Compiled {
  OwningOpRef<ModuleOp> module;
  GuardedDevice device;
  std::unique_ptr<Executable> executable;
  std::optional<Runner> runner;

  Compiled(ModuleOp source, Device &device) : module(source.clone()), device(device) {}
};

struct Trial {
  std::string fields;
  /// Milliseconds per call: the median and the quartiles.
  double median = 0, lowerQuartile = 0, upperQuartile = 0;
  std::string refusal; ///< why it was rejected; empty if it ran
  bool isKept = false; ///< stored in the file by an earlier run
  /// Kept for the compiler's own choice, for the file's schedule, and for the fastest so far.
  std::unique_ptr<Compiled> compiled;

  void setTimes(std::vector<double> times) {
    llvm::sort(times);
    auto quantile = [&](double q) { return times[size_t(std::lround(q * (times.size() - 1)))]; };
    median = quantile(0.5);
    lowerQuartile = quantile(0.25);
    upperQuartile = quantile(0.75);
  }
};

/// The number of schedules that are timed again, in turns with the compiler's own choice.
constexpr size_t kFinalists = 3;
constexpr unsigned kRounds = 7;
/// The gain that another schedule needs to be chosen, because it may be slower in later runs with
/// other lengths.
constexpr double kMargin = 0.02;

} // namespace

/// Returns the compiler's own choice, then the schedule `kept` if it differs, then the schedules of
/// the machine's grid that have the fields of `pins`. Errors: no schedule fits, or neither the
/// compiler's own choice nor the grid has these fields.
template <typename OpT>
static Expected<std::vector<Trial>> listTrials(OpT op, const Machine &machine, StringRef pins,
                                               ScheduleAttr kept) {
  auto refuse = [&](ScheduleAttr schedule) { return explainRefusal(op, schedule, machine); };
  SmallVector<ScheduleAttr> candidates = getScheduleCandidates(op, machine);
  Refusals refusals;
  auto *fitting = llvm::find_if(candidates, [&](ScheduleAttr schedule) {
    std::string reason = refuse(schedule);
    if (!reason.empty())
      refusals.add(schedule.getFields(), reason);
    return reason.empty();
  });
  if (fitting == candidates.end())
    return llvm::createStringError("--tune: no schedule fits: " +
                                   llvm::join(refusals.getLines(), "; "));
  std::vector<Trial> trials;
  auto add = [&](const ScheduleFields &fields) {
    Trial &trial = trials.emplace_back();
    trial.fields = formatFields(fields);
    trial.refusal = refuse(ScheduleAttr::get(op.getContext(), fields));
  };
  ScheduleFields own = fitting->getFields();
  Expected<bool> isWanted = hasFields(own, pins);
  if (!isWanted)
    return isWanted.takeError();
  bool anyWanted = *isWanted;
  add(own);
  if (kept && kept.getFields() != own)
    add(kept.getFields());
  trials.back().isKept = kept != nullptr;
  TrialProblem problem = TrialProblem::of(op);
  // Few queries need split-KV, whichever other fields are tried.
  problem.splits = own.splits;
  for (const ScheduleFields &fields : getTrials(problem, machine)) {
    isWanted = hasFields(fields, pins);
    if (!isWanted)
      return isWanted.takeError();
    anyWanted |= *isWanted;
    if (*isWanted && fields != own && !(kept && fields == kept.getFields()))
      add(fields);
  }
  if (!anyWanted)
    return llvm::createStringError(
        "--tune: expected --schedule to match a schedule that the tuner tries but got '" + pins +
        "'");
  return trials;
}

static Expected<std::vector<Trial>> listTrials(AttentionOpInterface op, const Machine &machine,
                                               StringRef pins, ScheduleAttr kept) {
  if (auto forward = dyn_cast<AttentionOp>(*op))
    return listTrials(forward, machine, pins, kept);
  return listTrials(cast<AttentionBackwardOp>(*op), machine, pins, kept);
}

/// Returns the largest difference of two outputs, relative for values above 1; infinite if an
/// element is NaN.
static double getDifference(const HostTensor &a, const HostTensor &b) {
  double largest = 0;
  for (int64_t i = 0; i < a.getNumElements(); ++i) {
    double x = a.get(i), y = b.get(i);
    if (std::isnan(x) || std::isnan(y))
      return HUGE_VAL;
    if (x != y)
      largest = std::max(largest, std::abs(x - y) / std::max(1.0, std::abs(y)));
  }
  return largest;
}

/// Returns an error if the compiler's own choice fails verification, or its outputs contain NaN.
static Error checkOwn(ModuleOp module, const Program &program, const Inputs &inputs, Device &device,
                      const LoweringOptions &options, ArrayRef<HostTensor> outputs) {
  OwningOpRef<ModuleOp> copy(module.clone());
  Expected<std::unique_ptr<Observer>> observer =
      Observer::instrument(*copy, program.function, ObserverOptions());
  if (!observer)
    return observer.takeError();
  if (Error error = (*observer)->run(*copy, program, inputs, device, options).takeError())
    return error;
  std::string lines;
  llvm::raw_string_ostream os(lines);
  if (!(*observer)->report(os))
    return llvm::createStringError("--tune: the compiler's own choice is wrong: " +
                                   StringRef(lines).rtrim());
  for (const HostTensor &output : outputs)
    if (getDifference(output, output) != 0)
      return llvm::createStringError("--tune: expected outputs without NaN but got NaN");
  return Error::success();
}

/// Returns the largest allowed difference between outputs of two schedules: two roundings of the
/// attention's result, for values of about 1.
static double getBound(AttentionOpInterface op) {
  return op.getElementType().isF16() ? 4e-3 : op.getElementType().isBF16() ? 3e-2 : 1e-4;
}

/// Compiles, runs and times one schedule. `expected` are the outputs of the first one.
static Error runTrial(Trial &trial, ModuleOp module, const Program &program, const Inputs &inputs,
                      Device &device, LoweringOptions options, double seconds, double bound,
                      SmallVector<HostTensor> &expected) {
  options.schedule = trial.fields;
  auto compiled = std::make_unique<Compiled>(module, device);
  if (Error error = lower(*compiled->module, options))
    return error;
  Expected<std::unique_ptr<Executable>> executable =
      Executable::create(*compiled->module, compiled->device);
  if (!executable)
    return executable.takeError();
  compiled->executable = std::move(*executable);
  SmallVector<const HostTensor *> arguments;
  for (const HostTensor &tensor : inputs.tensors)
    arguments.push_back(&tensor);
  Runner &runner = compiled->runner.emplace(program, compiled->device, *compiled->executable);
  if (Error error = runner.upload(arguments, inputs.poisoned))
    return error;
  Expected<SmallVector<HostTensor>> outputs = runner.run();
  if (!outputs)
    return outputs.takeError();
  if (expected.empty()) {
    if (Error error = checkOwn(module, program, inputs, device, options, *outputs))
      return error;
    expected = std::move(*outputs);
  } else {
    double difference = 0;
    for (auto [output, own] : llvm::zip_equal(*outputs, expected))
      difference = std::max(difference, getDifference(output, own));
    if (!(difference <= bound)) {
      trial.refusal = llvm::formatv("differs by {0:e1} from the compiler's own choice", difference);
      return Error::success();
    }
  }
  Expected<BenchResult> result = runner.bench(seconds);
  if (!result)
    return result.takeError();
  trial.median = result->median;
  trial.lowerQuartile = result->lowerQuartile;
  trial.upperQuartile = result->upperQuartile;
  trial.compiled = std::move(compiled);
  return Error::success();
}

/// Keeps the fastest schedules ready to run, and always the first, the compiler's own choice, and
/// that of the file.
static void dropSlow(MutableArrayRef<Trial> trials) {
  SmallVector<Trial *> ready;
  for (Trial &trial : trials.drop_front())
    if (trial.compiled && !trial.isKept)
      ready.push_back(&trial);
  if (ready.size() <= kFinalists)
    return;
  (*llvm::max_element(ready, [](Trial *a, Trial *b) {
    return a->median < b->median;
  }))->compiled.reset();
}

/// Times the ready schedules in turns, so that a temporary slowdown of the machine affects all of
/// them.
static Error runFinal(MutableArrayRef<Trial> trials, double seconds) {
  std::vector<std::vector<double>> times(trials.size());
  for (unsigned round = 0; round < kRounds; ++round)
    for (auto [trial, mine] : llvm::zip(trials, times)) {
      if (!trial.compiled)
        continue;
      Expected<BenchResult> result = trial.compiled->runner->bench(seconds / kRounds);
      if (!result)
        return result.takeError();
      mine.push_back(result->median);
    }
  for (auto [trial, mine] : llvm::zip(trials, times))
    if (trial.compiled)
      trial.setTimes(std::move(mine));
  return Error::success();
}

/// Whether `trial` is faster than the compiler's own choice by the margin, and by more than the
/// variation of both.
static bool isFaster(const Trial &trial, const Trial &own) {
  return trial.median < own.median * (1 - kMargin) && trial.upperQuartile < own.lowerQuartile;
}

/// Prints a line for each trial, fastest first. The first of `trials` is the compiler's own choice.
static void printTrials(ArrayRef<Trial> trials) {
  SmallVector<const Trial *> sorted;
  for (const Trial &trial : trials)
    sorted.push_back(&trial);
  llvm::stable_sort(sorted, [](const Trial *a, const Trial *b) {
    return std::tuple(!a->refusal.empty(), a->median) < std::tuple(!b->refusal.empty(), b->median);
  });
  for (const Trial *trial : sorted) {
    llvm::outs() << "tune: " << trial->fields << ": ";
    if (trial->refusal.empty())
      llvm::outs() << llvm::formatv("{0:F4} ms, quartiles {1:F4} to {2:F4}", trial->median,
                                    trial->lowerQuartile, trial->upperQuartile);
    else
      llvm::outs() << trial->refusal;
    llvm::outs() << (trial == &trials.front() ? " (the compiler's own choice)" : "")
                 << (trial->isKept ? " (kept so far)" : "") << "\n";
  }
}

Error flashattn::tune(ModuleOp module, const Program &program, const Inputs &inputs, Device &device,
                      const LoweringOptions &options, StringRef file, double seconds) {
  auto function = module.lookupSymbol<func::FuncOp>(program.function);
  SmallVector<AttentionOpInterface> ops;
  function.walk([&](AttentionOpInterface found) { ops.push_back(found); });
  if (ops.size() != 1)
    return llvm::createStringError(
        llvm::formatv("--tune: expected one flashattn.attention or flashattn.attention_backward in "
                      "function '{0}' but got {1}",
                      program.function, ops.size())
            .str());
  AttentionOpInterface op = ops.front();
  if (op.getScheduleAttr())
    return llvm::createStringError(
        "--tune: expected an attention op without a schedule of its own");
  Expected<Machine> machine = Machine::get(options.chip, getHostVectorWidth());
  if (!machine)
    return machine.takeError();
  std::string key = getTuningKey(op, machine->getName());

  // Report an unusable file before the time is spent.
  if (Error error = checkTunedSchedules(file))
    return error;

  Expected<llvm::json::Object> found = loadTunedSchedules(file);
  if (!found)
    return found.takeError();
  ScheduleAttr kept;
  if (const llvm::json::Object *finding = found->getObject(key))
    kept = parseScheduleFields(finding->getString("schedule").value_or(""), op->getContext());
  Expected<std::vector<Trial>> listed = listTrials(op, *machine, options.schedule, kept);
  if (!listed)
    return listed.takeError();
  std::vector<Trial> trials = std::move(*listed);
  SmallVector<HostTensor> expected;
  Progress progress("trying schedules");
  for (auto [i, trial] : llvm::enumerate(trials)) {
    if (!trial.refusal.empty())
      continue;
    progress.set(
        llvm::formatv("trying schedule {0} of {1}: {2}", i + 1, trials.size(), trial.fields));
    if (Error error = runTrial(trial, module, program, inputs, device, options, seconds,
                               getBound(op), expected)) {
      // Without the compiler's own choice there is nothing to compare with.
      if (expected.empty())
        return error;
      trial.refusal = llvm::toString(std::move(error));
    }
    dropSlow(trials);
  }
  progress.set("comparing the fastest");
  if (Error error = runFinal(trials, seconds))
    return error;
  const Trial &own = trials.front(), *best = &own;
  for (const Trial &trial : trials)
    if (trial.compiled && isFaster(trial, own) && trial.median < best->median)
      best = &trial;
  printTrials(trials);
  if (best == &own)
    llvm::outs() << llvm::formatv(
        "tune: no schedule is faster than the compiler's own choice by {0}% and by more than the "
        "times vary\n",
        kMargin * 100);
  if (Error error = storeTunedSchedule(
          file, key, llvm::json::Object{{"schedule", best->fields}, {"ms", best->median}}))
    return error;
  llvm::outs() << "tune: best for " << key << ": " << best->fields << ", written to " << file
               << "\n";
  if (kept && !best->isKept)
    llvm::outs() << "tune: the new schedule replaces " << formatFields(kept.getFields()) << "\n";
  return Error::success();
}
