//===- flash-run.cpp - runs a function of an .mlir file --------------------===//
//
// Compiles a module for a device, calls a function of it on given or random inputs, and
// checks, writes or times what comes out.
//
//===----------------------------------------------------------------------===//

#include "Compare.h"
#include "Emit.h"
#include "Flags.h"
#include "Inputs.h"
#include "Npy.h"
#include "Observer.h"
#include "Print.h"
#include "Progress.h"
#include "Runner.h"
#include "Tune.h"
#include "Verify.h"
#include "flashattn/InitAll.h"
#include "flashattn/Pipelines/Compile.h"
#include "flashattn/Runtime/Model.h"
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

#include <thread>
#include <unistd.h>

using namespace mlir;
using namespace mlir::flashattn;
using namespace mlir::flashattn::flags;
using llvm::Error;
using llvm::Expected;
namespace cl = llvm::cl;

/// Says of a module in a dialect that nobody knows here what it is to become.
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

/// --raise. Nothing of it stays unsaid: how many ops were made, and how to learn why it is none.
static LogicalResult raise(ModuleOp module) {
  FailureOr<int64_t> raised = raiseAttention(module);
  if (failed(raised))
    return failure();
  // What --emit prints has standard output to itself.
  (emitFlag == Emit::None ? llvm::outs() : llvm::errs())
      << "raise: " << *raised << " attention op" << (*raised == 1 ? "" : "s")
      << (*raised ? ""
                  : "; flash-opt -flashattn-raise-attention "
                    "--remarks-filter=flashattn-raise-attention "
                    "--remark-format=emitRemark says what was in the way")
      << "\n";
  return success();
}

/// The module of the file or of standard input; null after a diagnostic.
static Expected<OwningOpRef<ModuleOp>> readModule(ToolContext &tool) {
  if (files.empty() && llvm::sys::Process::StandardInIsUserInput())
    return llvm::createStringError("expected an .mlir file; see --help");
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

/// --emit, and --chip where no GPU is: compiles and runs nothing. False where there is something to
/// run, on `device`, which is opened as far as it is needed.
static Expected<bool> compileOnly(ModuleOp module, std::unique_ptr<Device> &device,
                                  std::string &noGPU) {
  bool emits = emitFlag != Emit::None;
  if (!emits && chip.empty())
    return false;
  if (emits && asksToRun())
    return llvm::createStringError("--emit: expected no flag that asks for a run of the function");
  if (!emits || chip.empty()) {
    Expected<std::unique_ptr<Device>> opened = openDevice(noGPU);
    if (!opened)
      return opened.takeError();
    device = std::move(*opened);
  }
  if (!emits && device->isCUDA())
    return false;
  if (!emits && device->isModel())
    return llvm::createStringError("--chip: expected none with --device=" + deviceName +
                                   ", which says what to compile for");
  if (!emits && (asksToRun() || dumpDir.empty()))
    return llvm::createStringError(
        "--chip: expected a CUDA device to run code for " + chip + " but got the CPU" +
        (noGPU.empty() ? "" : " (" + noGPU + ")") +
        ": to compile only, give --emit=ptx, or --dump-dir without a flag that asks for a run");
  Expected<func::FuncOp> function = findFunction(module, functionName, "--function");
  if (!function && !functionName.empty())
    return function.takeError();
  llvm::consumeError(function.takeError()); // all of several are compiled
  Expected<std::string> text = emitText(
      module, getLoweringOptions(functionName, chip.empty() ? device->getChip() : chip), emitFlag);
  if (!text)
    return text.takeError();
  if (!emits) {
    llvm::outs() << "nothing was run: compiled for " << chip << ", kept in " << dumpDir << "\n";
    return true;
  }
  if (Error error = llvm::writeToOutput(emitFile, [&](raw_ostream &os) {
        os << *text;
        return Error::success();
      }))
    return llvm::createStringError("cannot write '" + emitFile +
                                   "': " + llvm::toString(std::move(error)));
  return true;
}

/// Writes what --json asks for, whole or not at all.
static Error writeReport(llvm::json::Object report, int valuesFile) {
  std::string text = llvm::formatv("{0:2}\n", llvm::json::Value(std::move(report)));
  if (jsonFile == "-") {
    llvm::raw_fd_ostream(valuesFile, /*shouldClose=*/false) << text;
    return Error::success();
  }
  if (Error error = llvm::writeToOutput(jsonFile, [&](raw_ostream &os) {
        os << text;
        return Error::success();
      }))
    return llvm::createStringError("cannot write '" + jsonFile +
                                   "': " + llvm::toString(std::move(error)));
  return Error::success();
}

/// Gives the attention ops the schedules that were tuned, and says so: they are another run's.
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

static Error runTune(ModuleOp module, const Program &program, const Inputs &data, Device &device,
                     LoweringOptions lowering, double benchSeconds) {
  std::string file = lowering.tunedFile;
  if (file.empty())
    return llvm::createStringError("--tune: expected a file to keep the schedule in: "
                                   "--tuned-schedules=FILE, or a cache folder of the user's");
  lowering.tunedFile.clear();
  return tune(module, program, data, device, lowering, file,
              benchFlag.getNumOccurrences() ? benchSeconds : 0.2);
}

namespace {
/// A module whose ops are watched, where --verify or --bench wants that, and what became of them.
struct Watch {
  OwningOpRef<ModuleOp> module;
  std::unique_ptr<Observer> observer; ///< null: nothing is watched
  SmallVector<HostTensor> outputs;

  static Expected<Watch> create(ModuleOp plain, const Program &program);
};
} // namespace

/// Before anything takes time: what cannot be verified is said.
Expected<Watch> Watch::create(ModuleOp plain, const Program &program) {
  Watch watch;
  if (tuneFlag || (!verifyFlag && !benchFlag.getNumOccurrences()))
    return watch;
  ObserverOptions options;
  options.compares = verifyFlag;
  options.fusesProjection = fuseFlag;
  if (!plantedFault.empty()) {
    Expected<PlantedFault> fault = PlantedFault::parse(plantedFault);
    if (!fault)
      return llvm::createStringError("--verify-plant-fault: " + llvm::toString(fault.takeError()));
    options.fault = *fault;
  }
  watch.module = plain.clone();
  Expected<std::unique_ptr<Observer>> observer =
      Observer::instrument(*watch.module, program.function, options);
  if (!observer)
    return llvm::createStringError("--verify: " + llvm::toString(observer.takeError()));
  watch.observer = std::move(*observer);
  if (verifyFlag && watch.observer->getNumOps() == 0)
    return llvm::createStringError(
        "--verify: expected a flashattn.attention, attention_backward, combine or project in "
        "function '" +
        program.function + "' or one that it calls but got none" +
        (raiseFlag ? "" : "; --raise makes attention of matmul, softmax, matmul"));
  return watch;
}

static std::vector<std::string> getKernels(ModuleOp compiled) {
  std::vector<std::string> kernels;
  visitPTX(compiled, [&](StringRef name, StringRef ptx) { kernels.push_back((name + ptx).str()); });
  return kernels;
}

/// Whether an output is the same in two runs: bit by bit or, where the order of sums may differ
/// (rule B4), but for a rounding or two of its type.
static bool isSame(const HostTensor &a, const HostTensor &b, bool isExact) {
  if (a.getTypeName() != b.getTypeName())
    return false;
  if (isExact || !isFloat(a.getScalar()))
    return std::memcmp(a.data(), b.data(), a.getNumBytes()) == 0;
  return areClose(a, b);
}

/// Prints what the watched ops have done; `results` are those of `plain`, the module without the
/// calls, whose code must be the same.
static bool reportWatch(const Watch &watch, ModuleOp plain, ArrayRef<HostTensor> results) {
  bool pass = watch.observer->report(llvm::outs());
  if (getKernels(plain) != getKernels(*watch.module)) {
    llvm::outs() << "verify: the kernels are not the same as with the ops watched: FAIL\n";
    pass = false;
  }
  if (watch.observer->hasFault())
    return pass;
  bool isExact = watch.observer->isDeterministic();
  for (auto [i, result] : llvm::enumerate(results))
    if (!isSame(result, watch.outputs[i], isExact)) {
      llvm::outs() << "verify: output " << i << " is not the same as with the ops watched: FAIL\n";
      pass = false;
    }
  return pass;
}

/// What --model-trace asks for.
static Error writeTrace(ModelDevice &model) {
  if (modelTrace.empty())
    return Error::success();
  llvm::json::Object trace{{"traceEvents", model.takeTrace()}};
  if (Error error = llvm::writeToOutput(modelTrace, [&](raw_ostream &os) {
        os << llvm::json::Value(std::move(trace)) << "\n";
        return Error::success();
      }))
    return llvm::createStringError("cannot write '" + modelTrace +
                                   "': " + llvm::toString(std::move(error)));
  return Error::success();
}

/// Runs the interleavings behind the first one, whose `results` theirs must be.
static Expected<bool> runSeeds(ModelDevice &model, Runner &runner, ArrayRef<HostTensor> results,
                               bool isDeterministic) {
  for (int64_t i = 1; i < modelSeeds; ++i) {
    int64_t seed = modelSeed + i;
    model.setSeed(seed);
    Expected<SmallVector<HostTensor>> others = runner.run();
    if (!others)
      return others.takeError();
    for (auto [output, pair] : llvm::enumerate(llvm::zip(results, *others)))
      if (!isSame(std::get<0>(pair), std::get<1>(pair), isDeterministic)) {
        llvm::outs() << llvm::formatv("model: output {0} is not the same with seeds {1} and {2}: "
                                      "FAIL\n",
                                      output, int64_t(modelSeed), seed);
        return false;
      }
  }
  llvm::outs() << "model: " << modelSeeds << " interleaving" << (modelSeeds > 1 ? "s" : "")
               << " from seed " << modelSeed << ", no report\n";
  return true;
}

/// All that the flags ask for. False where a check does not hold. What another program reads goes
/// to `valuesFile`.
static Expected<bool> runTool(int valuesFile) {
  if (listDevices) {
    if (Error error = printDevices())
      return error;
    return true;
  }
  // What can be wrong with the file and the flags comes before anything takes time.
  double benchSeconds = 1;
  if (Error error = checkFlags(benchSeconds))
    return error;
  ToolContext tool;
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
  Expected<Program> program = analyze(**module, functionName);
  if (!program)
    return program.takeError();
  SmallVector<HostTensor> expected;
  SmallVector<StringRef> outputPaths;
  if (Error error = readOutputFlags(*program, expected, outputPaths))
    return error;
  Expected<Watch> watch = Watch::create(**module, *program);
  if (!watch)
    return watch.takeError();

  std::optional<Progress> progress(std::in_place, "reading inputs");
  Expected<Inputs> data = makeInputs(*program, inputs);
  if (!data)
    return data.takeError();
  SmallVector<const HostTensor *> arguments;
  for (const HostTensor &tensor : data->tensors)
    arguments.push_back(&tensor);
  if (Error error = checkInputs(*program, arguments))
    return error;

  if (!device) {
    Expected<std::unique_ptr<Device>> opened = openDevice(noGPU);
    if (!opened)
      return opened.takeError();
    device = std::move(*opened);
  }
  auto *model = device->isModel() ? static_cast<ModelDevice *>(device.get()) : nullptr;
  if (model)
    model->setSeed(modelSeed);
  // No error, most machines have no GPU; but who has one wants to know.
  if (!noGPU.empty())
    llvm::errs() << "flash-run: note: running on the CPU: " << noGPU << "\n";
  llvm::outs() << "device: " << device->getId() << " (" << device->getDescription() << ")\n";
  llvm::outs().flush();
  llvm::json::Object report{{"device", device->getId()},
                            {"description", device->getDescription()},
                            {"function", program->function}};
  LoweringOptions lowering =
      getLoweringOptions(program->function, chip.empty() ? device->getChip() : chip);
  lowering.forModel = device->isModel();
  if (tuneFlag) {
    progress.reset();
    if (Error error = runTune(**module, *program, *data, *device, lowering, benchSeconds))
      return error;
    return true;
  }
  SmallVector<ModuleOp> modules = {**module};
  if (watch->module)
    modules.push_back(*watch->module);
  if (Error error = useTuned(modules, lowering))
    return error;
  progress.emplace("compiling");
  if (Error error = lower(**module, lowering))
    return error;
  if (watch->observer) {
    progress.emplace(verifyFlag ? "verifying" : "counting");
    Expected<SmallVector<HostTensor>> seen =
        watch->observer->run(*watch->module, *program, *data, *device, lowering);
    if (!seen)
      return seen.takeError();
    watch->outputs = std::move(*seen);
  }
  GuardedDevice guarded(*device);
  Expected<std::unique_ptr<Executable>> executable = Executable::create(**module, guarded);
  if (!executable)
    return executable.takeError();

  if (model)
    model->setCollecting(modelStatistics || !modelTrace.empty());
  progress.emplace("running");
  Runner runner(*program, guarded, **executable);
  if (Error error = runner.upload(arguments, data->poisoned))
    return error;
  Expected<SmallVector<HostTensor>> results = runner.run();
  if (!results)
    return results.takeError();
  progress.reset();
  for (auto [i, output] : llvm::enumerate(*results))
    printOutput(i, output, printOutputs);

  bool pass = true;
  if (model) {
    model->setCollecting(false);
    if (modelStatistics)
      llvm::outs() << model->getStatistics();
    if (Error error = writeTrace(*model))
      return error;
    Expected<bool> same =
        runSeeds(*model, runner, *results, !watch->observer || watch->observer->isDeterministic());
    if (!same)
      return same.takeError();
    pass &= *same;
  }
  if (verifyFlag) {
    pass &= reportWatch(*watch, **module, *results);
    auto changed = runner.findChangedInput(arguments, data->poisoned);
    if (!changed)
      return changed.takeError();
    if (*changed) {
      llvm::outs() << "verify: argument " << **changed << ", an input, was written: FAIL\n";
      pass = false;
    }
    report["verify"] = pass;
  }
  llvm::json::Array comparisons;
  Tolerance tolerance;
  if (absoluteTolerance.getNumOccurrences())
    tolerance.absolute = absoluteTolerance;
  if (relativeTolerance.getNumOccurrences())
    tolerance.relative = relativeTolerance;
  for (auto [i, tensor] : llvm::enumerate(expected)) {
    Expected<FileComparison> same =
        compareExpected(i, (*results)[i], tensor, tolerance, llvm::outs());
    if (!same)
      return same.takeError();
    pass &= same->wrong == 0;
    comparisons.push_back(llvm::json::Object{{"max_error", same->maxError},
                                             {"not_finite", same->notFinite},
                                             {"wrong", same->wrong},
                                             {"elements", same->elements}});
  }
  report["expected_output"] = std::move(comparisons);
  for (auto [path, output] : llvm::zip(outputPaths, *results))
    if (Error error = path == "-" ? writeNpy(valuesFile, output) : writeNpy(path, output))
      return error;
  if (benchFlag.getNumOccurrences()) {
    progress.emplace("timing");
    Expected<BenchResult> result = runner.bench(benchSeconds);
    if (!result)
      return result.takeError();
    progress.reset();
    printBench(*result, *data, *results, watch->observer.get());
    llvm::json::Object bench = describe(*result);
    if (watch->observer) {
      bench["visible_pairs"] = watch->observer->getPairs();
      bench["operations"] = watch->observer->getFlops();
    }
    report["bench"] = std::move(bench);
  }
  report["pass"] = pass;
  if (!jsonFile.empty())
    if (Error error = writeReport(std::move(report), valuesFile))
      return error;
  return pass;
}

int main(int argc, char **argv) {
  llvm::InitLLVM init(argc, argv);
  initializeBackEnds();
  registerVersionPrinter();
  hideOtherFlags();
  cl::ParseCommandLineOptions(argc, argv,
                              "Runs a function of an .mlir file on the CPU or a GPU\n\n"
                              "Exit status 0 only if all that was asked for held.\n");
  if (timeout.getNumOccurrences()) {
    if (!(timeout > 0)) {
      llvm::errs() << "flash-run: error: expected --timeout to be a positive number of seconds but "
                      "got "
                   << llvm::formatv("{0}", double(timeout)) << "\n";
      return 1;
    }
    // Whatever hangs, a kernel or the driver, cannot be asked to stop.
    std::thread([] {
      std::this_thread::sleep_for(std::chrono::duration<double>(timeout));
      llvm::errs() << llvm::formatv("\nflash-run: error: timed out after {0} seconds\n",
                                    double(timeout));
      _exit(124);
    }).detach();
  }
  // What another program reads has standard output to itself.
  int valuesFile = STDOUT_FILENO;
  if (jsonFile == "-" || llvm::is_contained(outputs, "@-")) {
    valuesFile = dup(STDOUT_FILENO);
    dup2(STDERR_FILENO, STDOUT_FILENO);
  }
  Expected<bool> pass = runTool(valuesFile);
  llvm::outs().flush();
  if (!pass) {
    llvm::errs() << "flash-run: error: " << llvm::toString(pass.takeError()) << "\n";
    return 1;
  }
  return *pass ? 0 : 1;
}
