//===- Tune.cpp ------------------------------------------------------------===//

#include "Tune.h"
#include "Progress.h"
#include "Runner.h"
#include "Verify.h"
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

/// Largest difference of two outputs; infinite where one is no number.
static double getDifference(const HostTensor &a, const HostTensor &b) {
  double largest = 0;
  for (int64_t i = 0; i < a.getNumElements(); ++i) {
    double x = a.get(i), y = b.get(i);
    if (std::isnan(x) || std::isnan(y))
      return HUGE_VAL;
    if (x != y)
      largest = std::max(largest, std::abs(x - y));
  }
  return largest;
}

/// Error unless the outputs of the compiler's own choice are right: by the reference, and numbers.
static Error checkOwn(const Program &program, const Inputs &inputs, ArrayRef<HostTensor> outputs) {
  SmallVector<const HostTensor *> arguments, results;
  for (const HostTensor &tensor : inputs.tensors)
    arguments.push_back(&tensor);
  for (const HostTensor &tensor : outputs)
    results.push_back(&tensor);
  Expected<AttentionProblem> problem = getProblem(program, arguments);
  if (!problem)
    return problem.takeError();
  std::string lines;
  llvm::raw_string_ostream os(lines);
  if (!verify(*problem, *program.attention, arguments, results, os))
    return llvm::createStringError("--tune: the compiler's own choice is wrong: " +
                                   StringRef(lines).rtrim());
  const HostTensor &o = outputs[program.attention->o.value_or(0)];
  if (getDifference(o, o) != 0)
    return llvm::createStringError("--tune: expected inputs whose outputs are numbers but got NaN");
  return Error::success();
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
    if (Error error = checkOwn(program, inputs, *outputs))
      return error;
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
  Expected<Machine> machine = Machine::get(options.chip, getHostVectorWidth());
  if (!machine)
    return machine.takeError();
  std::string key = getTuningKey(op, machine->getName());

  std::vector<Trial> trials;
  std::optional<HostTensor> expected;
  for (const ScheduleFields &fields : listTrials(op, *machine)) {
    Trial &trial = trials.emplace_back(Trial{formatFields(fields), 0, ""});
    trial.refusal = explainRefusal(op, ScheduleAttr::get(op.getContext(), fields), *machine);
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
