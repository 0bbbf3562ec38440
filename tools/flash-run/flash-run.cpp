//===- flash-run.cpp - runs a function of an .mlir file -------------------===//
//
// Compiles a module for a device, calls one of its functions on given or random inputs, and checks,
// writes or times the outputs.
//
//===----------------------------------------------------------------------===//

#include "Compare.h"
#include "Emit.h"
#include "Flags.h"
#include "Inputs.h"
#include "Npy.h"
#include "Print.h"
#include "Report.h"
#include "Runner.h"
#include "Tune.h"
#include "Watch.h"
#include "flashattn/InitAll.h"
#include "flashattn/Runtime/Model.h"
#include "flashattn/Support/OutputFile.h"
#include "flashattn/Support/Progress.h"
#include "flashattn/Target/Machine.h"
#include "flashattn/Target/Tuned.h"
#include "flashattn/ToolContext.h"
#include "mlir/Parser/Parser.h"
#include "mlir/Support/FileUtilities.h"
#include "llvm/Support/CommandLine.h"
#include "llvm/Support/FormatVariadic.h"
#include "llvm/Support/InitLLVM.h"
#include "llvm/Support/JSON.h"
#include "llvm/Support/Process.h"
#include "llvm/Support/Signals.h"

#include <thread>
#include <unistd.h>

using namespace mlir;
using namespace mlir::flashattn;
using namespace mlir::flashattn::flags;
using llvm::Error;
using llvm::Expected;
namespace cl = llvm::cl;

/// Adds a note to a diagnostic about an unknown dialect that explains which dialects are expected.
static LogicalResult explainDialect(Diagnostic &diagnostic) {
  std::string text = diagnostic.str();
  if (StringRef(text).contains("unregistered dialect") ||
      StringRef(text).contains("not found for custom op"))
    diagnostic.attachNote() << "expected a module in linalg, arith, math, tensor and the other "
                               "dialects that flash-opt --help lists: lower it to linalg on "
                               "tensors before, as stablehlo-opt --stablehlo-legalize-to-linalg, "
                               "mlir-opt --tosa-to-linalg and torch-mlir-opt do";
  return failure(); // the next handler prints it
}

/// Implements --raise. Prints the number of raised ops and, if it is 0, how to find the reason.
static LogicalResult raise(ModuleOp module) {
  FailureOr<int64_t> raised = raiseAttention(module);
  if (failed(raised))
    return failure();
  // Standard output is reserved for the text of --emit.
  (emitFlag == Emit::None ? llvm::outs() : llvm::errs())
      << "raise: " << *raised << " attention op" << (*raised == 1 ? "" : "s")
      << (*raised ? ""
                  : "; flash-opt -flashattn-raise-attention "
                    "--remarks-filter=flashattn-raise-attention "
                    "--remark-format=emitRemark reports the reason")
      << "\n";
  return success();
}

/// Returns the module of the file or of standard input; null after a diagnostic.
static Expected<OwningOpRef<ModuleOp>> readModule(ToolContext &tool) {
  if (files.empty() && llvm::sys::Process::StandardInIsUserInput())
    return llvm::createStringError("expected an .mlir file; see --help");
  if (Error error = checkInputFile(files.empty() ? "-" : StringRef(files[0])))
    return error;
  std::string message;
  std::unique_ptr<llvm::MemoryBuffer> file =
      openInputFile(files.empty() ? "-" : StringRef(files[0]), &message);
  if (!file)
    return llvm::createStringError(message);
  if (files.empty() && file->getBuffer().trim().empty())
    return llvm::createStringError("expected an .mlir file, or a module on standard input");
  tool.sources.AddNewSourceBuffer(std::move(file), llvm::SMLoc());
  OwningOpRef<ModuleOp> module;
  {
    ScopedDiagnosticHandler handler(&tool.context, explainDialect);
    module = parseSourceFile<ModuleOp>(tool.sources, &tool.context);
  }
  if (!module)
    return OwningOpRef<ModuleOp>();
  if (raiseFlag && failed(raise(*module)))
    return OwningOpRef<ModuleOp>();
  if (failed(raiseLinalg(*module)))
    return OwningOpRef<ModuleOp>();
  return std::move(module);
}

/// Implements --emit, and --chip without a GPU: compiles without running. Returns false if there is
/// something to run. `device` is opened if that is necessary.
static Expected<bool> compileOnly(ModuleOp module, std::unique_ptr<Device> &device,
                                  std::string &noGPU) {
  bool emits = emitFlag != Emit::None;
  if (!emits && chip.empty())
    return false;
  if (emits && asksToRun())
    return llvm::createStringError("--emit: expected no flag that runs the function but got one");
  if (!emits || chip.empty()) {
    Expected<std::unique_ptr<Device>> opened = openDevice(noGPU);
    if (!opened)
      return opened.takeError();
    device = std::move(*opened);
  }
  if (!emits && device->isCUDA())
    return false;
  if (!emits && device->isModel())
    return llvm::createStringError("--chip: expected no --chip with --device=" + deviceName +
                                   ", which determines the chip, but got one");
  if (!emits && (asksToRun() || dumpDir.empty()))
    return llvm::createStringError(
        "--chip: expected a CUDA device to run code for " + chip + " but got the CPU" +
        (noGPU.empty() ? "" : " (" + noGPU + ")") +
        ": to compile only, use --emit=ptx, or --dump-dir without a flag that runs the function");
  Expected<func::FuncOp> function = findFunction(module, functionName, "--function");
  if (!function && !functionName.empty())
    return function.takeError();
  llvm::consumeError(function.takeError()); // of several functions, all are compiled
  Progress progress("compiling");
  Expected<std::string> text = emitText(
      module, getLoweringOptions(functionName, chip.empty() ? device->getChip() : chip), emitFlag);
  if (!text)
    return text.takeError();
  if (!emits) {
    llvm::outs() << "nothing was run: compiled for " << chip << ", kept in " << dumpDir << "\n";
    return true;
  }
  if (Error error = writeOutputFile(emitFile, [&](raw_ostream &os) { os << *text; }))
    return error;
  return true;
}

/// Sets the tuned schedules of earlier runs on attention ops. Prints their number, because they
/// affect the results of this run.
static Error useTuned(ArrayRef<ModuleOp> modules, LoweringOptions &lowering) {
  std::string file = std::exchange(lowering.tunedFile, "");
  if (file.empty() || !lowering.schedule.empty())
    return Error::success();
  Expected<Machine> machine = Machine::get(lowering.chip, getHostVectorWidth());
  if (!machine)
    return machine.takeError();
  for (ModuleOp module : modules) {
    int64_t count = applyTunedSchedules(module, *machine, file);
    if (count == 0)
      break;
    if (module == modules.front())
      llvm::outs() << "schedule: tuned for " << count << " attention op" << (count > 1 ? "s" : "")
                   << ", in " << file << "\n";
  }
  return Error::success();
}

/// Writes the file of --model-trace.
static Error writeTrace(ModelDevice &model) {
  if (modelTrace.empty())
    return Error::success();
  llvm::json::Value trace = llvm::json::Object{{"traceEvents", model.takeTrace()}};
  return writeOutputFile(modelTrace, [&](raw_ostream &os) { os << trace << "\n"; });
}

namespace {
/// A run of the function, in steps. Each step uses the results of earlier ones.
class Run {
public:
  /// Output for other programs is written to `valuesFile`, and results of checks to `report`.
  Run(ModuleOp module, double benchSeconds, int valuesFile, Report &report)
      : module(module), benchSeconds(benchSeconds), valuesFile(valuesFile), report(report) {}

  /// Reads the files that the flags name, so that errors are reported before any work that takes
  /// time.
  Error prepare();
  /// Uses `opened` as the device; if it is null, opens the device of the flags.
  Error open(std::unique_ptr<Device> opened, std::string noGPU);
  Error tune();
  Error compile();
  Error call();
  Error check();
  Error write();

  bool holds() const { return pass; }

private:
  Error checkSeeds();
  Error checkWatched();
  Error checkExpected();
  Error bench();

  ModuleOp module;
  double benchSeconds;
  int valuesFile;
  Report &report;
  std::optional<Progress> progress;
  Program program;
  SmallVector<HostTensor> expected;
  SmallVector<StringRef> outputPaths;
  Watch watch;
  Inputs data;
  SmallVector<const HostTensor *> arguments;
  std::unique_ptr<Device> device;
  ModelDevice *model = nullptr; ///< `device`, if it is a model
  LoweringOptions lowering;
  std::optional<GuardedDevice> guarded;
  std::unique_ptr<Executable> executable;
  std::optional<Runner> runner;
  SmallVector<HostTensor> results;
  bool pass = true;
};
} // namespace

Error Run::prepare() {
  if (Error error = analyze(module, functionName).moveInto(program))
    return error;
  if (Error error = readOutputFlags(program, expected, outputPaths))
    return error;
  if (Error error = Watch::create(module, program).moveInto(watch))
    return error;
  progress.emplace("reading inputs");
  if (Error error = makeInputs(program, inputs).moveInto(data))
    return error;
  for (const HostTensor &tensor : data.tensors)
    arguments.push_back(&tensor);
  return checkInputs(program, arguments);
}

Error Run::open(std::unique_ptr<Device> opened, std::string noGPU) {
  device = std::move(opened);
  if (!device)
    if (Error error = openDevice(noGPU).moveInto(device))
      return error;
  if (device->isModel()) {
    model = static_cast<ModelDevice *>(device.get());
    model->setSeed(modelSeed);
    if (modelMultiprocessors)
      model->setMultiprocessors(modelMultiprocessors);
  }
  // Not an error, because most machines have no GPU, but users of a GPU need to know.
  if (!noGPU.empty())
    llvm::errs() << "flash-run: note: running on the CPU: " << noGPU << "\n";
  llvm::outs() << "device: " << device->getId() << " (" << device->getDescription() << ")\n";
  llvm::outs().flush();
  report.set("device", device->getId());
  report.set("description", device->getDescription());
  report.set("function", program.function);
  lowering = getLoweringOptions(program.function, chip.empty() ? device->getChip() : chip);
  lowering.forModel = device->isModel();
  return Error::success();
}

Error Run::tune() {
  progress.reset();
  std::string file = std::exchange(lowering.tunedFile, "");
  if (file.empty())
    return llvm::createStringError("--tune: expected --tuned-schedules=FILE or a cache folder, to "
                                   "store the schedule, but got neither");
  return flashattn::tune(module, program, data, *device, lowering, file,
                         benchFlag.getNumOccurrences() ? benchSeconds : 0.2);
}

Error Run::compile() {
  SmallVector<ModuleOp> modules = {module};
  if (watch.module)
    modules.push_back(*watch.module);
  if (Error error = useTuned(modules, lowering))
    return error;
  progress.emplace("compiling");
  if (Error error = lower(module, lowering))
    return error;
  if (watch.observer) {
    progress.emplace(verifyFlag ? "verifying" : "counting");
    if (Error error = watch.observer->run(*watch.module, program, data, *device, lowering)
                          .moveInto(watch.outputs))
      return error;
  }
  guarded.emplace(*device);
  return Executable::create(module, *guarded).moveInto(executable);
}

Error Run::call() {
  if (model)
    model->setCollecting(modelStatistics || !modelTrace.empty());
  progress.emplace("running");
  runner.emplace(program, *guarded, *executable);
  if (Error error = runner->upload(arguments, data.poisoned))
    return error;
  if (Error error = runner->run().moveInto(results))
    return error;
  progress.reset();
  for (auto [i, output] : llvm::enumerate(results))
    printOutput(i, output, printOutputs);
  return Error::success();
}

Error Run::check() {
  if (model)
    if (Error error = checkSeeds())
      return error;
  if (verifyFlag)
    if (Error error = checkWatched())
      return error;
  return checkExpected();
}

/// Runs the remaining interleavings and compares their results with those of the first.
Error Run::checkSeeds() {
  model->setCollecting(false);
  if (modelStatistics)
    llvm::outs() << model->getStatistics();
  if (Error error = writeTrace(*model))
    return error;
  progress.emplace("running");
  for (int64_t i = 1; i < modelSeeds; ++i) {
    int64_t seed = modelSeed + i;
    progress->set(llvm::formatv("running interleaving {0} of {1}", i + 1, int64_t(modelSeeds)));
    model->setSeed(seed);
    SmallVector<HostTensor> others;
    if (Error error = runner->run().moveInto(others))
      return error;
    for (auto [output, pair] : llvm::enumerate(llvm::zip(results, others)))
      if (!isSame(std::get<0>(pair), std::get<1>(pair), watch.isDeterministic())) {
        llvm::outs() << llvm::formatv("model: output {0} is not the same with seeds {1} and {2}: "
                                      "FAIL\n",
                                      output, int64_t(modelSeed), seed);
        pass = false;
        return Error::success();
      }
  }
  progress.reset();
  llvm::outs() << "model: " << modelSeeds << " interleaving" << (modelSeeds > 1 ? "s" : "")
               << " from seed " << modelSeed << ", no report\n";
  return Error::success();
}

Error Run::checkWatched() {
  pass &= watch.report(module, results);
  std::optional<unsigned> changed;
  if (Error error = runner->findChangedInput(arguments, data.poisoned).moveInto(changed))
    return error;
  if (changed) {
    llvm::outs() << "verify: argument " << *changed << ", an input, was written: FAIL\n";
    pass = false;
  }
  report.set("verify", pass);
  report.set("ops", watch.observer->describe());
  return Error::success();
}

Error Run::checkExpected() {
  llvm::json::Array comparisons;
  Tolerance tolerance;
  if (absoluteTolerance.getNumOccurrences())
    tolerance.absolute = absoluteTolerance;
  if (relativeTolerance.getNumOccurrences())
    tolerance.relative = relativeTolerance;
  for (auto [i, tensor] : llvm::enumerate(expected)) {
    FileComparison same;
    if (Error error =
            compareExpected(i, results[i], tensor, tolerance, llvm::outs()).moveInto(same))
      return error;
    pass &= same.wrong == 0;
    comparisons.push_back(llvm::json::Object{{"max_error", jsonNumber(same.maxError)},
                                             {"not_finite", same.notFinite},
                                             {"wrong", same.wrong},
                                             {"elements", same.elements}});
  }
  report.set("expected_output", std::move(comparisons));
  return Error::success();
}

Error Run::write() {
  for (auto [path, output] : llvm::zip(outputPaths, results))
    if (Error error = path == "-" ? writeNpy(valuesFile, output) : writeNpy(path, output))
      return error;
  if (benchFlag.getNumOccurrences())
    return bench();
  return Error::success();
}

Error Run::bench() {
  progress.emplace("timing");
  BenchResult result;
  if (Error error = runner->bench(benchSeconds).moveInto(result))
    return error;
  progress.reset();
  Work work(data, results, watch.observer.get());
  printBench(result, work);
  report.set("bench", describe(result, work));
  return Error::success();
}

/// Does the work that the flags request. Returns false if a check fails. Output for other programs
/// is written to `valuesFile`.
static Expected<bool> runTool(int valuesFile, Report &report) {
  if (listDevices) {
    if (Error error = printDevices())
      return error;
    return true;
  }
  // Check the flags before any work that takes time.
  double benchSeconds = 1;
  if (Error error = checkFlags(benchSeconds))
    return error;
  report.begin();
  ToolContext tool;
  ScopedDiagnosticHandler keep(&tool.context, [&](Diagnostic &diagnostic) {
    report.add(diagnostic);
    return failure(); // the next handler prints it
  });
  Expected<OwningOpRef<ModuleOp>> module = readModule(tool);
  if (!module)
    return module.takeError();
  if (!*module)
    return false;
  std::string noGPU;
  std::unique_ptr<Device> device;
  Expected<bool> isDone = compileOnly(**module, device, noGPU);
  if (!isDone || *isDone)
    return isDone;
  Run run(**module, benchSeconds, valuesFile, report);
  if (Error error = run.prepare())
    return error;
  if (Error error = run.open(std::move(device), noGPU))
    return error;
  if (tuneFlag) {
    if (Error error = run.tune())
      return error;
    return true;
  }
  for (Error (Run::*step)() : {&Run::compile, &Run::call, &Run::check, &Run::write})
    if (Error error = (run.*step)())
      return error;
  return run.holds();
}

int main(int argc, char **argv) {
  llvm::InitLLVM init(argc, argv);
  initializeBackEnds();
  registerVersionPrinter();
  hideOtherFlags();
  cl::ParseCommandLineOptions(argc, argv,
                              "Runs a function of an .mlir file on the CPU or a GPU\n\n"
                              "Exit status 0 only if all that was asked for held.\n");
  // If standard output is reserved for another program, all text goes to standard error.
  int valuesFile = STDOUT_FILENO;
  if (jsonFile == "-" || llvm::is_contained(outputs, "@-")) {
    valuesFile = dup(STDOUT_FILENO);
    dup2(STDERR_FILENO, STDOUT_FILENO);
  }
  Report report(jsonFile, valuesFile);
  if (timeout.getNumOccurrences()) {
    if (!(timeout > 0)) {
      llvm::errs() << "flash-run: error: expected --timeout to be a positive number of seconds but "
                      "got "
                   << llvm::formatv("{0}", double(timeout)) << "\n";
      return 1;
    }
    // A kernel or driver that hangs cannot be stopped, so the process exits.
    std::thread([&report] {
      std::this_thread::sleep_for(std::chrono::duration<double>(timeout));
      std::string why = llvm::formatv("timed out after {0} seconds", double(timeout));
      llvm::errs() << "\nflash-run: error: " << why << "\n";
      if (Error error = report.finishUnfinished(why))
        llvm::errs() << "flash-run: error: " << llvm::toString(std::move(error)) << "\n";
      llvm::sys::RunInterruptHandlers(); // removes temporary files
      _exit(124);
    }).detach();
  }
  Expected<bool> result = runTool(valuesFile, report);
  bool pass = result && *result;
  std::string error = llvm::toString(result.takeError());
  if (Error unwritten = report.finish(pass, error))
    error += (error.empty() ? "" : "; ") + llvm::toString(std::move(unwritten));
  llvm::outs().flush();
  if (!error.empty())
    llvm::errs() << "flash-run: error: " << error << "\n";
  return pass && error.empty() ? 0 : 1;
}
