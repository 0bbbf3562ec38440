//===- Tune.cpp ------------------------------------------------------------===//

#include "Tune.h"
#include "Observer.h"
#include "Progress.h"
#include "Runner.h"
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

/// The compiler's own choice, and after it what the machine's grid has.
static std::vector<ScheduleFields> listTrials(AttentionOp op, const Machine &machine) {
  ScheduleFields own = getScheduleCandidates(op, machine).front().getFields();
  TrialProblem problem = TrialProblem::of(op);
  // Few queries need many parts whatever else is tried.
  problem.splits = own.splits;
  std::vector<ScheduleFields> trials = {own};
  for (const ScheduleFields &fields : getTrials(problem, machine))
    if (fields != own)
      trials.push_back(fields);
  return trials;
}

/// Largest difference of two outputs, relative to values above 1; infinite where one is no number.
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

/// Error unless the compiler's own choice is right, by the reference, and its outputs are numbers.
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
      return llvm::createStringError(
          "--tune: expected inputs whose outputs are numbers but got NaN");
  return Error::success();
}

/// The most that outputs of two schedules differ by: two roundings of the attention's result, where
/// values are about 1.
static double getBound(AttentionOp op) {
  return op.getElementType().isF16() ? 4e-3 : op.getElementType().isBF16() ? 3e-2 : 1e-4;
}

/// Compiles and runs one schedule; fills in its time. `expected` are the first one's outputs.
static Error runTrial(Trial &trial, ModuleOp module, const Program &program, const Inputs &inputs,
                      Device &device, LoweringOptions options, double seconds, double bound,
                      SmallVector<HostTensor> &expected) {
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
  trial.milliseconds = result->median;
  return Error::success();
}

Error flashattn::tune(ModuleOp module, const Program &program, const Inputs &inputs, Device &device,
                      const LoweringOptions &options, StringRef file, double seconds) {
  SmallVector<AttentionOp> ops;
  module.lookupSymbol<func::FuncOp>(program.function).walk([&](AttentionOp found) {
    ops.push_back(found);
  });
  if (ops.size() != 1)
    return llvm::createStringError(
        llvm::formatv("--tune: expected one flashattn.attention in function '{0}' but got {1}",
                      program.function, ops.size())
            .str());
  AttentionOp op = ops.front();
  if (op.getSchedule())
    return llvm::createStringError(
        "--tune: expected an attention op without a schedule of its own");
  Expected<Machine> machine = Machine::get(options.chip, getHostVectorWidth());
  if (!machine)
    return machine.takeError();
  std::string key = getTuningKey(op, machine->getName());

  // Not when all the time is spent.
  if (Error error = checkTunedSchedules(file))
    return error;

  std::vector<Trial> trials;
  SmallVector<HostTensor> expected;
  for (const ScheduleFields &fields : listTrials(op, *machine)) {
    Trial &trial = trials.emplace_back(Trial{formatFields(fields), 0, ""});
    trial.refusal = explainRefusal(op, ScheduleAttr::get(op.getContext(), fields), *machine);
    if (!trial.refusal.empty())
      continue;
    Progress progress("trying " + trial.fields);
    if (Error error = runTrial(trial, module, program, inputs, device, options, seconds,
                               getBound(op), expected)) {
      // Without the compiler's own choice there is nothing to compare with.
      if (expected.empty())
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
  if (Error error = storeTunedSchedule(
          file, key, llvm::json::Object{{"schedule", best.fields}, {"ms", best.milliseconds}}))
    return error;
  llvm::outs() << "tune: best for " << key << ": " << best.fields << ", written to " << file
               << "\n";
  return Error::success();
}
