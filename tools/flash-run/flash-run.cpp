//===- flash-run.cpp - runs a function of an .mlir file --------------------===//
//
// Compiles a module for a device, calls a function of it on given or random inputs, and
// checks, writes or times what comes out.
//
//===----------------------------------------------------------------------===//

#include "Inputs.h"
#include "Npy.h"
#include "Progress.h"
#include "Runner.h"
#include "Tune.h"
#include "Verify.h"
#include "flashattn/Dialect/FlashAttn/Transforms/Transforms.h"
#include "flashattn/InitAll.h"
#include "flashattn/Pipelines/Pipelines.h"
#include "flashattn/Target/Machine.h"
#include "flashattn/Target/Tuned.h"
#include "mlir/IR/DialectRegistry.h"
#include "mlir/IR/MLIRContext.h"
#include "mlir/Parser/Parser.h"
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

cl::opt<bool> verifyFlag("verify",
                         cl::desc("Compare attention with a float64 reference of its own"),
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
                       const Program &program, const std::optional<AttentionProblem> &problem) {
  llvm::outs() << llvm::formatv(
      "bench: median {0} ms (quartiles {1} and {2}, min {3}, max {4}; {5} batches of {6} calls)",
      formatMilliseconds(result.median), formatMilliseconds(result.lowerQuartile),
      formatMilliseconds(result.upperQuartile), formatMilliseconds(result.min),
      formatMilliseconds(result.max), result.batches, result.repeats);
  if (problem) {
    // A pair costs a product and a sum for each element of a row of K and of V.
    double pairs = countVisiblePairs(*problem);
    double flops = pairs * 2 * (problem->dim + problem->valueDim);
    if (const std::optional<ProjectionInfo> &projection = program.attention->projection)
      flops +=
          2.0 * problem->numQueries * problem->batch * data.tensors[projection->w].getNumElements();
    llvm::outs() << llvm::formatv(", {0:f3} TFLOP/s of {1} visible pairs",
                                  flops / result.median * 1e-9, uint64_t(pairs));
  }
  double bytes = 0;
  for (auto [i, tensor] : llvm::enumerate(data.tensors))
    if (!data.poisoned[i])
      bytes += tensor.getNumBytes();
  for (const HostTensor &output : results)
    bytes += output.getNumBytes();
  llvm::outs() << llvm::formatv(", {0:f3} GB/s of inputs and outputs\n",
                                bytes / result.median * 1e-6);
}

/// All that the flags ask for. False where a check does not hold.
static Expected<bool> runTool() {
  if (listDevices) {
    if (Error error = printDevices())
      return error;
    return true;
  }
  if (inputFile.empty())
    return llvm::createStringError("expected an .mlir file");
  double benchSeconds = 1;
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

  // What can be wrong with the file and the flags comes before anything takes time.
  DialectRegistry registry;
  registerAllFlashAttnDialects(registry);
  registerAllFlashAttnExtensions(registry);
  MLIRContext context(registry);
  // The source line says enough; kernels are long.
  context.printOpOnDiagnostic(false);
  std::string message;
  std::unique_ptr<llvm::MemoryBuffer> file = openInputFile(inputFile, &message);
  if (!file)
    return llvm::createStringError(message);
  llvm::SourceMgr sources;
  sources.AddNewSourceBuffer(std::move(file), llvm::SMLoc());
  SourceMgrDiagnosticHandler diagnostics(sources, &context);
  OwningOpRef<ModuleOp> module = parseSourceFile<ModuleOp>(sources, &context);
  if (!module)
    return false;
  // As the pipelines do first, so that what they make of linalg can be verified.
  IRRewriter rewriter(&context);
  raiseLinalg(rewriter, *module);
  Expected<Program> program = analyze(*module, functionName);
  if (!program)
    return program.takeError();
  for (auto [flag, list] : {std::pair("output", &outputs), {"expected-output", &expectedOutputs}})
    if (list->size() > program->outputs.size())
      return llvm::createStringError(
          llvm::formatv("expected at most {0} --{1} for function '{2}' but got {3}",
                        program->outputs.size(), flag, program->function, list->size())
              .str());
  if (verifyFlag && !program->attention)
    return llvm::createStringError("--verify: " + program->noAttention);

  std::optional<Progress> progress(std::in_place, "reading inputs");
  Expected<Inputs> data = makeInputs(*program, inputs);
  if (!data)
    return data.takeError();
  SmallVector<const HostTensor *> arguments;
  for (const HostTensor &tensor : data->tensors)
    arguments.push_back(&tensor);
  std::optional<AttentionProblem> problem;
  if (program->attention) {
    Expected<AttentionProblem> made = getProblem(*program, arguments);
    if (!made)
      return made.takeError();
    problem = std::move(*made);
  }
  SmallVector<HostTensor> expected;
  for (const std::string &value : expectedOutputs) {
    Expected<StringRef> path = getPath("expected-output", value);
    if (!path)
      return path.takeError();
    Expected<HostTensor> tensor = readNpy(*path);
    if (!tensor)
      return tensor.takeError();
    expected.push_back(std::move(*tensor));
  }
  SmallVector<StringRef> outputPaths;
  for (const std::string &value : outputs) {
    Expected<StringRef> path = getPath("output", value);
    if (!path)
      return path.takeError();
    outputPaths.push_back(*path);
  }

  Expected<std::unique_ptr<Device>> device = openDevice();
  if (!device)
    return device.takeError();
  llvm::outs() << "device: " << (*device)->getId() << " (" << (*device)->getDescription() << ")\n";
  llvm::outs().flush();
  progress.emplace("compiling");
  LoweringOptions lowering;
  lowering.function = program->function;
  lowering.chip = (*device)->isCUDA() && !chip.empty() ? chip : (*device)->getChip();
  lowering.schedule = schedule;
  lowering.fuseProjection = fuseFlag;
  lowering.dumpDir = dumpDir;
  lowering.tunedFile = tunedFile == "none" ? ""
                       : tunedFile.empty() ? getTunedSchedulesFile()
                                           : tunedFile;
  if (tuneFlag) {
    std::string file = lowering.tunedFile;
    if (file.empty())
      return llvm::createStringError("--tune: expected a file to keep the schedule in: "
                                     "--tuned-schedules=FILE, or a cache folder of the user's");
    lowering.tunedFile.clear();
    progress.reset();
    if (Error error = tune(*module, *program, *data, **device, lowering, file,
                           benchFlag.getNumOccurrences() ? benchSeconds : 0.2))
      return error;
    return true;
  }
  if (Error error = lower(*module, lowering))
    return error;
  GuardedDevice guarded(**device);
  Expected<std::unique_ptr<Executable>> executable = Executable::create(*module, guarded);
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
    progress.emplace("verifying");
    SmallVector<const HostTensor *> pointers;
    for (const HostTensor &output : *results)
      pointers.push_back(&output);
    std::string text;
    llvm::raw_string_ostream stream(text);
    pass &= verify(*problem, *program->attention, arguments, pointers, stream);
    auto changed = runner.findChangedInput(arguments, data->poisoned);
    if (!changed)
      return changed.takeError();
    progress.reset();
    llvm::outs() << text;
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
    printBench(*result, *data, *results, *program, problem);
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
