//===- flash-run.cpp - runs a function of an .mlir file --------------------===//
//
// Compiles a module for a device, calls a function of it on given or random inputs, and
// checks, writes or times what comes out.
//
//===----------------------------------------------------------------------===//

#include "Inputs.h"
#include "Npy.h"
#include "Observer.h"
#include "Progress.h"
#include "Runner.h"
#include "Tune.h"
#include "Verify.h"
#include "flashattn/Dialect/FlashAttn/Transforms/Passes.h"
#include "flashattn/InitAll.h"
#include "flashattn/Pipelines/Pipelines.h"
#include "flashattn/Target/Machine.h"
#include "flashattn/Target/Tuned.h"
#include "mlir/IR/DialectRegistry.h"
#include "mlir/IR/MLIRContext.h"
#include "mlir/Parser/Parser.h"
#include "mlir/Pass/PassManager.h"
#include "mlir/Support/FileUtilities.h"
#include "llvm/Support/CommandLine.h"
#include "llvm/Support/Format.h"
#include "llvm/Support/FormatVariadic.h"
#include "llvm/Support/InitLLVM.h"
#include "llvm/Support/SourceMgr.h"

#include <cmath>
#include <thread>
#include <unistd.h>

using namespace mlir;
using namespace mlir::flashattn;
using llvm::Error;
using llvm::Expected;
namespace cl = llvm::cl;

namespace {

cl::OptionCategory runCategory("What to run"), dataCategory("Inputs and outputs"),
    checkCategory("Checks and timing"), compileCategory("Compilation");

cl::opt<std::string> inputFile(cl::Positional, cl::desc("FILE.mlir"), cl::init(""),
                               cl::cat(runCategory));
cl::opt<std::string> functionName("function", cl::value_desc("name"),
                                  cl::desc("Function to call (default: the only public one)"),
                                  cl::cat(runCategory));
cl::opt<std::string> deviceName("device", cl::value_desc("auto|cuda[:N]|cpu"), cl::init("auto"),
                                cl::desc("Where to run (auto: the first GPU, or the CPU)"),
                                cl::cat(runCategory));
cl::opt<bool> listDevices("list-devices", cl::desc("Print the devices of this machine and stop"),
                          cl::cat(runCategory));
cl::opt<double> timeout("timeout", cl::value_desc("seconds"),
                        cl::desc("Stop with exit status 124 when it takes longer"),
                        cl::cat(runCategory));

cl::list<std::string>
    inputs("input", cl::value_desc("[TYPE=]SOURCE"),
           cl::desc("The next argument: TYPE as 2x32x1024x128xf16; SOURCE @FILE.npy, "
                    "random[:SEED] (the default), zeros, ones, poison (NaN) or, for scalars, a "
                    "number. "
                    "Arguments without: poison where only written, otherwise random"),
           cl::cat(dataCategory));
cl::list<std::string> outputs("output", cl::value_desc("@FILE.npy"),
                              cl::desc("Write the next output: the function's results, or, "
                                       "without any, the memrefs that it writes"),
                              cl::cat(dataCategory));
cl::list<std::string> expectedOutputs("expected-output", cl::value_desc("@FILE.npy"),
                                      cl::desc("Compare the next output with a file"),
                                      cl::cat(dataCategory));

cl::opt<bool>
    verifyFlag("verify",
               cl::desc("Compare each attention, combine and project, where it stands, with a "
                        "float64 reference"),
               cl::cat(checkCategory));
cl::opt<std::string> plantedFault("verify-plant-fault", cl::Hidden,
                                  cl::value_desc("OP[.RESULT]:ELEMENT"),
                                  cl::desc("Make an element wrong before --verify sees it"),
                                  cl::cat(checkCategory));
cl::opt<std::string> benchFlag("bench", cl::ValueOptional, cl::value_desc("seconds"),
                               cl::desc("Time calls for so long (default 1)"),
                               cl::cat(checkCategory));
cl::opt<double> absoluteTolerance("atol", cl::value_desc("x"),
                                  cl::desc("Absolute tolerance of --expected-output"),
                                  cl::cat(checkCategory));
cl::opt<double> relativeTolerance("rtol", cl::value_desc("x"),
                                  cl::desc("Relative tolerance of --expected-output"),
                                  cl::cat(checkCategory));

cl::opt<std::string> chip("chip", cl::value_desc("sm_XX"),
                          cl::desc("Compile for this GPU (default: the device's)"),
                          cl::cat(compileCategory));
cl::opt<std::string>
    schedule("schedule", cl::value_desc("tile_m = …, …"),
             cl::desc("Fields of the schedule to pin, as of flashattn-select-schedule"),
             cl::cat(compileCategory));
cl::opt<bool> fuseFlag("fuse-projection",
                       cl::desc("CPU: multiply each head's output as soon as it is finished"),
                       cl::cat(compileCategory));
cl::opt<bool> tuneFlag("tune",
                       cl::desc("Time the schedules that fit and keep the fastest for later runs"),
                       cl::cat(compileCategory));
cl::opt<std::string> tunedFile(
    "tuned-schedules", cl::value_desc("FILE|none"),
    cl::desc("Schedules that were tuned (default: schedules.json in the user's cache folder "
             "for flashattn; none where FLASHATTN_TUNED=0)"),
    cl::cat(compileCategory));
cl::opt<std::string> dumpDir("dump-dir", cl::value_desc("directory"),
                             cl::desc("Keep the IR after each stage, the PTX and ptxas's report"),
                             cl::cat(compileCategory));

} // namespace

/// `auto`, `cpu`, `cuda` or `cuda:N` to a device.
static Expected<std::unique_ptr<Device>> openDevice() {
  StringRef name = deviceName;
  if (name == "cpu")
    return createCPUDevice();
  if (name == "auto") {
    Expected<std::unique_ptr<Device>> device = createCUDADevice(0);
    if (device)
      return device;
    // No error, most machines have no GPU; but who has one wants to know.
    std::string reason = llvm::toString(device.takeError());
    llvm::errs() << "flash-run: note: running on the CPU: " << reason << "\n";
    return createCPUDevice();
  }
  int ordinal = 0;
  if (name.consume_front("cuda") &&
      (name.empty() || (name.consume_front(":") && !name.getAsInteger(10, ordinal))))
    return createCUDADevice(ordinal);
  return llvm::createStringError("expected --device to be auto, cuda, cuda:N or cpu but got '" +
                                 deviceName + "'");
}

static Error printDevices() {
  Expected<std::unique_ptr<Device>> cpu = createCPUDevice();
  if (!cpu)
    return cpu.takeError();
  llvm::outs() << "cpu: " << (*cpu)->getDescription() << "\n";
  auto devices = listCUDADevices();
  if (!devices) {
    llvm::outs() << "no cuda devices: " << llvm::toString(devices.takeError()) << "\n";
    return Error::success();
  }
  for (const CUDADeviceInfo &info : *devices)
    llvm::outs() << llvm::formatv(
        "cuda:{0}: {1}, compute capability {2}.{3}, {4:F1} GiB, {5} multiprocessors, {6} bytes of "
        "shared memory a block\n",
        info.ordinal, info.name, info.computeMajor, info.computeMinor,
        double(info.memoryBytes) / (1 << 30), info.multiprocessors, info.sharedMemoryPerBlock);
  return Error::success();
}

/// The path of `@PATH`.
static Expected<StringRef> getPath(const char *flag, StringRef value) {
  if (value.consume_front("@") && !value.empty())
    return value;
  return llvm::createStringError(
      llvm::formatv("--{0}: expected @FILE.npy but got '{1}'", flag, value).str());
}

/// A line about an output, so that there is something to see.
static void printOutput(unsigned index, const HostTensor &output) {
  constexpr int64_t kShown = 4;
  double sum = 0, low = INFINITY, high = -INFINITY;
  int64_t finite = 0;
  for (int64_t i = 0; i < output.getNumElements(); ++i) {
    double value = output.get(i);
    if (!std::isfinite(value))
      continue;
    ++finite;
    sum += value, low = std::min(low, value), high = std::max(high, value);
  }
  llvm::outs() << llvm::formatv("output {0}: {1}", index, output.getTypeName());
  if (finite)
    llvm::outs() << llvm::formatv(", min {0:f4}, max {1:f4}, mean {2:e3}", low, high, sum / finite);
  if (finite != output.getNumElements())
    llvm::outs() << llvm::formatv(", {0} not finite", output.getNumElements() - finite);
  llvm::outs() << (output.getNumElements() ? ", first" : "");
  for (int64_t i = 0; i < std::min(kShown, output.getNumElements()); ++i)
    llvm::outs() << llvm::formatv(" {0:f4}", output.get(i));
  llvm::outs() << "\n";
}

/// Four digits, whatever the size.
static std::string formatMilliseconds(double value) {
  int decimals = std::clamp(3 - int(std::floor(std::log10(std::max(value, 1e-9)))), 0, 9);
  std::string text;
  llvm::raw_string_ostream(text) << llvm::format("%.*f", decimals, value);
  return text;
}

static void printBench(const BenchResult &result, const Inputs &data, ArrayRef<HostTensor> results,
                       const Observer *observer) {
  llvm::outs() << llvm::formatv(
      "bench: median {0} ms (quartiles {1} and {2}, min {3}, max {4}; {5} batches of {6} calls)",
      formatMilliseconds(result.median), formatMilliseconds(result.lowerQuartile),
      formatMilliseconds(result.upperQuartile), formatMilliseconds(result.min),
      formatMilliseconds(result.max), result.batches, result.repeats);
  if (observer && observer->getPairs())
    llvm::outs() << llvm::formatv(", {0:f3} TFLOP/s of {1} visible pairs",
                                  observer->getFlops() / result.median * 1e-9,
                                  observer->getPairs());
  double bytes = 0;
  for (auto [i, tensor] : llvm::enumerate(data.tensors))
    if (!data.poisoned[i])
      bytes += tensor.getNumBytes();
  for (const HostTensor &output : results)
    bytes += output.getNumBytes();
  llvm::outs() << llvm::formatv(", {0:f3} GB/s of inputs and outputs\n",
                                bytes / result.median * 1e-6);
}

/// Whether the chip, the time and the file that the flags name are such.
static Error checkFlags(double &benchSeconds) {
  if (inputFile.empty())
    return llvm::createStringError("expected an .mlir file");
  if (benchFlag.getNumOccurrences() && !benchFlag.empty() &&
      (StringRef(benchFlag).getAsDouble(benchSeconds) || !(benchSeconds > 0)))
    return llvm::createStringError("expected --bench to be a positive number of seconds but got '" +
                                   benchFlag + "'");
  if (!chip.empty()) {
    Expected<Machine> machine = Machine::get(chip);
    if (!machine)
      return llvm::createStringError("--chip: " + llvm::toString(machine.takeError()));
    if (machine->isCPU())
      return llvm::createStringError("--chip: expected a GPU but got '" + chip + "'");
  }
  return Error::success();
}

/// The module of the file; null after a diagnostic.
static Expected<OwningOpRef<ModuleOp>> readModule(llvm::SourceMgr &sources, MLIRContext &context) {
  std::string message;
  std::unique_ptr<llvm::MemoryBuffer> file = openInputFile(inputFile, &message);
  if (!file)
    return llvm::createStringError(message);
  sources.AddNewSourceBuffer(std::move(file), llvm::SMLoc());
  OwningOpRef<ModuleOp> module = parseSourceFile<ModuleOp>(sources, &context);
  if (!module)
    return OwningOpRef<ModuleOp>();
  // As the pipelines do first, so that what they make of linalg can be verified.
  PassManager pm(&context, ModuleOp::getOperationName());
  pm.addPass(createPrepareTensors());
  pm.addPass(createRaiseLinalg());
  if (failed(pm.run(*module)))
    return OwningOpRef<ModuleOp>();
  return std::move(module);
}

/// The arrays of --expected-output and the paths of --output.
static Error readOutputFlags(const Program &program, SmallVector<HostTensor> &expected,
                             SmallVector<StringRef> &paths) {
  for (auto [flag, list] : {std::pair("output", &outputs), {"expected-output", &expectedOutputs}})
    if (list->size() > program.outputs.size())
      return llvm::createStringError(
          llvm::formatv("expected at most {0} --{1} for function '{2}' but got {3}",
                        program.outputs.size(), flag, program.function, list->size())
              .str());
  for (const std::string &value : expectedOutputs) {
    Expected<StringRef> path = getPath("expected-output", value);
    if (!path)
      return path.takeError();
    Expected<HostTensor> tensor = readNpy(*path);
    if (!tensor)
      return tensor.takeError();
    expected.push_back(std::move(*tensor));
  }
  for (const std::string &value : outputs) {
    Expected<StringRef> path = getPath("output", value);
    if (!path)
      return path.takeError();
    paths.push_back(*path);
  }
  return Error::success();
}

static LoweringOptions getLoweringOptions(const Program &program, const Device &device) {
  LoweringOptions lowering;
  lowering.function = program.function;
  lowering.chip = device.isCUDA() && !chip.empty() ? chip : device.getChip();
  lowering.schedule = schedule;
  lowering.fuseProjection = fuseFlag;
  lowering.dumpDir = dumpDir;
  lowering.tunedFile = tunedFile == "none" ? ""
                       : tunedFile.empty() ? getTunedSchedulesFile()
                                           : tunedFile;
  return lowering;
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
        "--verify: expected a flashattn.attention, combine or project in function '" +
        program.function + "' or one that it calls but got none");
  return watch;
}

static std::vector<std::string> getKernels(ModuleOp compiled) {
  std::vector<std::string> kernels;
  visitPTX(compiled, [&](StringRef name, StringRef ptx) { kernels.push_back((name + ptx).str()); });
  return kernels;
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
  for (auto [i, result] : llvm::enumerate(results))
    if (result.getTypeName() != watch.outputs[i].getTypeName() ||
        std::memcmp(result.data(), watch.outputs[i].data(), result.getNumBytes())) {
      llvm::outs() << "verify: output " << i << " is not the same as with the ops watched: FAIL\n";
      pass = false;
    }
  return pass;
}

/// All that the flags ask for. False where a check does not hold.
static Expected<bool> runTool() {
  if (listDevices) {
    if (Error error = printDevices())
      return error;
    return true;
  }
  // What can be wrong with the file and the flags comes before anything takes time.
  double benchSeconds = 1;
  if (Error error = checkFlags(benchSeconds))
    return error;
  DialectRegistry registry;
  registerAllFlashAttnDialects(registry);
  registerAllFlashAttnExtensions(registry);
  MLIRContext context(registry);
  // The source line says enough; kernels are long.
  context.printOpOnDiagnostic(false);
  llvm::SourceMgr sources;
  SourceMgrDiagnosticHandler diagnostics(sources, &context);
  Expected<OwningOpRef<ModuleOp>> module = readModule(sources, context);
  if (!module)
    return module.takeError();
  if (!*module)
    return false;
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

  Expected<std::unique_ptr<Device>> device = openDevice();
  if (!device)
    return device.takeError();
  llvm::outs() << "device: " << (*device)->getId() << " (" << (*device)->getDescription() << ")\n";
  llvm::outs().flush();
  progress.emplace("compiling");
  LoweringOptions lowering = getLoweringOptions(*program, **device);
  if (tuneFlag) {
    progress.reset();
    if (Error error = runTune(**module, *program, *data, **device, lowering, benchSeconds))
      return error;
    return true;
  }
  if (Error error = lower(**module, lowering))
    return error;
  if (watch->observer) {
    progress.emplace(verifyFlag ? "verifying" : "counting");
    Expected<SmallVector<HostTensor>> seen =
        watch->observer->run(*watch->module, *program, *data, **device, lowering);
    if (!seen)
      return seen.takeError();
    watch->outputs = std::move(*seen);
  }
  GuardedDevice guarded(**device);
  Expected<std::unique_ptr<Executable>> executable = Executable::create(**module, guarded);
  if (!executable)
    return executable.takeError();

  progress.emplace("running");
  Runner runner(*program, guarded, **executable);
  if (Error error = runner.upload(arguments, data->poisoned))
    return error;
  Expected<SmallVector<HostTensor>> results = runner.run();
  if (!results)
    return results.takeError();
  progress.reset();
  for (auto [i, output] : llvm::enumerate(*results))
    printOutput(i, output);

  bool pass = true;
  if (verifyFlag) {
    pass &= reportWatch(*watch, **module, *results);
    auto changed = runner.findChangedInput(arguments, data->poisoned);
    if (!changed)
      return changed.takeError();
    if (*changed) {
      llvm::outs() << "verify: argument " << **changed << ", an input, was written: FAIL\n";
      pass = false;
    }
  }
  Tolerance tolerance;
  if (absoluteTolerance.getNumOccurrences())
    tolerance.absolute = absoluteTolerance;
  if (relativeTolerance.getNumOccurrences())
    tolerance.relative = relativeTolerance;
  for (auto [i, tensor] : llvm::enumerate(expected)) {
    Expected<bool> same = compareExpected(i, (*results)[i], tensor, tolerance, llvm::outs());
    if (!same)
      return same.takeError();
    pass &= *same;
  }
  for (auto [path, output] : llvm::zip(outputPaths, *results))
    if (Error error = writeNpy(path, output))
      return error;
  if (benchFlag.getNumOccurrences()) {
    progress.emplace("timing");
    Expected<BenchResult> result = runner.bench(benchSeconds);
    if (!result)
      return result.takeError();
    progress.reset();
    printBench(*result, *data, *results, watch->observer.get());
  }
  return pass;
}

int main(int argc, char **argv) {
  llvm::InitLLVM init(argc, argv);
  initializeBackEnds();
  const cl::OptionCategory *categories[] = {&runCategory, &dataCategory, &checkCategory,
                                            &compileCategory};
  cl::HideUnrelatedOptions(categories);
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
  Expected<bool> pass = runTool();
  llvm::outs().flush();
  if (!pass) {
    llvm::errs() << "flash-run: error: " << llvm::toString(pass.takeError()) << "\n";
    return 1;
  }
  return *pass ? 0 : 1;
}
