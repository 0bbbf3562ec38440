//===- flash-run.cpp - runs a function of an .mlir file --------------------===//
//
// Compiles a module for a device, calls a function of it on given or random inputs, and
// checks, writes or times what comes out.
//
//===----------------------------------------------------------------------===//

#include "Compare.h"
#include "Emit.h"
#include "Inputs.h"
#include "Npy.h"
#include "Observer.h"
#include "Progress.h"
#include "Runner.h"
#include "Tune.h"
#include "Verify.h"
#include "flashattn/Dialect/FlashAttn/IR/FlashAttn.h"
#include "flashattn/InitAll.h"
#include "flashattn/Pipelines/Pipelines.h"
#include "flashattn/Runtime/Model.h"
#include "flashattn/Target/Machine.h"
#include "flashattn/Target/Tuned.h"
#include "flashattn/ToolContext.h"
#include "mlir/Parser/Parser.h"
#include "mlir/Support/FileUtilities.h"
#include "llvm/Support/CommandLine.h"
#include "llvm/Support/FileSystem.h"
#include "llvm/Support/Format.h"
#include "llvm/Support/FormatVariadic.h"
#include "llvm/Support/InitLLVM.h"
#include "llvm/Support/JSON.h"
#include "llvm/Support/Process.h"

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

cl::list<std::string> files(cl::Positional, cl::desc("[FILE.mlir|-]"), cl::cat(runCategory));
cl::opt<std::string> functionName("function", cl::value_desc("name"),
                                  cl::desc("Function to call (default: the only public one)"),
                                  cl::cat(runCategory));
cl::opt<std::string> deviceName("device", cl::value_desc("auto|cuda[:N]|cpu|model:sm_XX"),
                                cl::init("auto"),
                                cl::desc("Where to run (auto: the first GPU, or the CPU; model: a "
                                         "model of a GPU, which finds races and deadlocks)"),
                                cl::cat(runCategory));
cl::opt<bool> listDevices("list-devices", cl::desc("Print the devices of this machine and stop"),
                          cl::cat(runCategory));
cl::opt<double> timeout("timeout", cl::value_desc("seconds"),
                        cl::desc("Stop with exit status 124 when it takes longer"),
                        cl::cat(runCategory));

cl::opt<int64_t>
    modelSeeds("model-seeds", cl::value_desc("N"), cl::init(1),
               cl::desc("Run so many interleavings on a model: the outputs of all must "
                        "be the same"),
               cl::cat(runCategory));
cl::opt<int64_t> modelSeed("model-seed", cl::value_desc("S"), cl::init(1),
                           cl::desc("The first of them (default 1): a seed repeats a run exactly"),
                           cl::cat(runCategory));

cl::opt<bool>
    modelStatistics("model-statistics",
                    cl::desc("Print what the kernels do on a model: ops of each role, bytes, "
                             "waits, bank conflicts, and the time of a block"),
                    cl::cat(runCategory));
cl::opt<std::string> modelTrace("model-trace", cl::value_desc("FILE"),
                                cl::desc("Write that time as a Chrome trace (JSON)"),
                                cl::cat(runCategory));

cl::list<std::string> inputs(
    "input", cl::value_desc("[TYPE=]SOURCE"),
    cl::desc("The next argument: TYPE as 2x32x1024x128xf16; SOURCE @FILE.npy, "
             "@- (standard input), random[:SEED] (the default), zeros, ones, poison (NaN) "
             "or, for scalars, a "
             "number. "
             "Arguments without: poison where only written, otherwise random. Without a seed "
             "an attention_backward's o and lse are what its attention gives"),
    cl::cat(dataCategory));
cl::list<std::string> outputs("output", cl::value_desc("@FILE.npy"),
                              cl::desc("Write the next output: the function's results, or, "
                                       "without any, the memrefs that it writes. @-: to standard "
                                       "output, and all text to standard error"),
                              cl::cat(dataCategory));
cl::opt<bool> printOutputs("print-outputs", cl::desc("Print every element of the outputs"),
                           cl::cat(dataCategory));
cl::list<std::string> expectedOutputs("expected-output", cl::value_desc("@FILE.npy"),
                                      cl::desc("Compare the next output with a file"),
                                      cl::cat(dataCategory));

cl::opt<bool> verifyFlag(
    "verify",
    cl::desc(
        "Compare each attention, attention_backward, combine and project, where it "
        "stands, with a float64 reference: in a run of its own, whose outputs must be the same"),
    cl::cat(checkCategory));
cl::opt<std::string> plantedFault("verify-plant-fault", cl::Hidden,
                                  cl::value_desc("OP[.RESULT]:ELEMENT"),
                                  cl::desc("Make an element wrong before --verify sees it"),
                                  cl::cat(checkCategory));
cl::opt<std::string> benchFlag("bench", cl::ValueOptional, cl::value_desc("seconds"),
                               cl::desc("Time calls for so long (default 1)"),
                               cl::cat(checkCategory));
cl::opt<std::string> jsonFile("json", cl::value_desc("FILE"),
                              cl::desc("Write what was checked and timed; -: to standard output"),
                              cl::cat(checkCategory));
cl::opt<double> absoluteTolerance("atol", cl::value_desc("x"),
                                  cl::desc("Absolute tolerance of --expected-output"),
                                  cl::cat(checkCategory));
cl::opt<double> relativeTolerance("rtol", cl::value_desc("x"),
                                  cl::desc("Relative tolerance of --expected-output"),
                                  cl::cat(checkCategory));

cl::opt<Emit> emitFlag(
    "emit", cl::desc("Print what the module becomes, and run nothing"),
    cl::values(clEnumValN(Emit::PTX, "ptx", "the kernels' PTX; with --chip no GPU is needed"),
               clEnumValN(Emit::LLVM, "llvm", "LLVM IR of the code for the CPU"),
               clEnumValN(Emit::Schedule, "schedule", "the schedules that were chosen"),
               clEnumValN(Emit::Tiles, "tiles", "tile programs: the softmax on tile values")),
    cl::init(Emit::None), cl::cat(compileCategory));
cl::opt<std::string> emitFile("o", cl::value_desc("FILE"), cl::init("-"),
                              cl::desc("Where --emit writes (default: standard output)"),
                              cl::cat(compileCategory));
cl::opt<std::string> chip("chip", cl::value_desc("sm_XX"),
                          cl::desc("Compile for this GPU (default: the device's)"),
                          cl::cat(compileCategory));
cl::opt<std::string>
    schedule("schedule", cl::value_desc("tile_m = …, …"),
             cl::desc("Fields of the schedule to pin, as 'tile_m = 64'; those left out are chosen"),
             cl::cat(compileCategory));
cl::opt<bool> fuseFlag("fuse-projection",
                       cl::desc("CPU: multiply each head's output as soon as it is finished"),
                       cl::cat(compileCategory));
cl::opt<bool> raiseFlag("raise",
                        cl::desc("Make attention ops of matmul, softmax, matmul in linalg "
                                 "(flashattn-raise-attention), and say of how many"),
                        cl::cat(compileCategory));
cl::opt<bool>
    tuneFlag("tune",
             cl::desc("Time the schedules that fit and keep for later runs the one that is "
                      "faster than the compiler's own choice by 2% and by more than they "
                      "vary, if any"),
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

/// `auto`, `cpu`, `cuda` or `cuda:N` to a device. `noGPU` says why `auto` is the CPU.
static Expected<std::unique_ptr<Device>> openDevice(std::string &noGPU) {
  StringRef name = deviceName;
  if (name == "cpu")
    return createCPUDevice();
  if (name == "auto") {
    Expected<std::unique_ptr<Device>> device = createCUDADevice(0);
    if (device)
      return device;
    noGPU = llvm::toString(device.takeError());
    return createCPUDevice();
  }
  if (name.consume_front("model:")) {
    Expected<Machine> machine = Machine::get(name);
    if (!machine)
      return llvm::createStringError("--device=model: " + llvm::toString(machine.takeError()));
    if (machine->isCPU())
      return llvm::createStringError("--device=model: expected a GPU but got 'cpu'");
    return createModelDevice(name, machine->getSharedMemoryPerBlock());
  }
  int ordinal = 0;
  if (name.consume_front("cuda") &&
      (name.empty() || (name.consume_front(":") && !name.getAsInteger(10, ordinal))))
    return createCUDADevice(ordinal);
  return llvm::createStringError(
      "expected --device to be auto, cuda, cuda:N, cpu or model:sm_XX but got '" + deviceName +
      "'");
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

/// [[1, 2], [3, 4]], a line for each row.
static void printValues(const HostTensor &output, size_t dim, int64_t &next) {
  size_t rank = output.getShape().size();
  if (dim == rank) {
    llvm::outs() << llvm::format("%g", output.get(next++));
    return;
  }
  llvm::outs() << "[";
  for (int64_t i = 0; i < output.getShape()[dim]; ++i) {
    if (i)
      llvm::outs() << (dim + 1 == rank ? ", " : ",\n");
    printValues(output, dim + 1, next);
  }
  llvm::outs() << "]";
}

/// A line about an output, so that there is something to see: with all values where they are few.
static void printOutput(unsigned index, const HostTensor &output) {
  constexpr int64_t kFew = 16;
  bool showsAll = output.getNumElements() <= kFew;
  int64_t shown = printOutputs ? 0 : showsAll ? output.getNumElements() : 4;
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
  llvm::outs() << (!shown ? "" : showsAll ? ", values" : ", first");
  for (int64_t i = 0; i < shown; ++i)
    llvm::outs() << llvm::formatv(" {0:f4}", output.get(i));
  llvm::outs() << "\n";
  if (!printOutputs)
    return;
  int64_t next = 0;
  printValues(output, 0, next);
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

/// What a model is asked to do.
static Error checkModel() {
  bool isModel = StringRef(deviceName).starts_with("model:");
  for (const cl::Option *flag :
       {static_cast<const cl::Option *>(&tuneFlag), static_cast<const cl::Option *>(&benchFlag)})
    if (isModel && flag->getNumOccurrences())
      return llvm::createStringError(
          "--" + flag->ArgStr +
          ": expected a device whose time counts but got --device=" + deviceName);
  for (const cl::Option *flag : {static_cast<const cl::Option *>(&modelStatistics),
                                 static_cast<const cl::Option *>(&modelTrace)})
    if (!isModel && flag->getNumOccurrences())
      return llvm::createStringError(
          "--" + flag->ArgStr + ": expected --device=model:sm_XX but got --device=" + deviceName);
  for (auto *flag : {&modelSeeds, &modelSeed}) {
    if (flag->getNumOccurrences() && !isModel)
      return llvm::createStringError(
          "--" + flag->ArgStr + ": expected --device=model:sm_XX but got --device=" + deviceName);
    if (*flag < 1 || *flag > kMaxModelSeeds)
      return llvm::createStringError(llvm::formatv("expected --{0} to be from 1 to {1} but got {2}",
                                                   flag->ArgStr, kMaxModelSeeds, int64_t(*flag))
                                         .str());
  }
  return Error::success();
}

/// Standard input and output serve one each, and -o has something to write.
static Error checkStreams() {
  auto isStandard = [](const std::string &value) { return StringRef(value).ends_with("@-"); };
  size_t readers = llvm::count_if(inputs, isStandard) + llvm::count_if(expectedOutputs, isStandard);
  if (readers + (files.empty() || files[0] == "-") > 1)
    return llvm::createStringError("expected one reader of standard input but got several: FILE, "
                                   "where it is none or -, and each @-");
  if (llvm::count_if(outputs, isStandard) + (jsonFile == "-") > 1)
    return llvm::createStringError("expected one writer of standard output but got several: each "
                                   "--output=@-, and --json=-");
  if (tuneFlag && !jsonFile.empty())
    return llvm::createStringError(
        "--json: expected a run that is checked or timed but got --tune, "
        "which keeps what it finds in --tuned-schedules");
  if (emitFile.getNumOccurrences() && emitFlag == Emit::None)
    return llvm::createStringError("-o: expected --emit, whose text it takes; outputs are written "
                                   "by --output=@FILE.npy");
  return Error::success();
}

/// Whether the chip, the time and the file that the flags name are such.
static Error checkFlags(double &benchSeconds) {
  if (files.size() > 1)
    return llvm::createStringError("expected one FILE but got '" + files[0] + "' and '" + files[1] +
                                   "': a value is joined to its flag, as in --bench=1");
  for (auto *tolerance : {&absoluteTolerance, &relativeTolerance})
    if (tolerance->getNumOccurrences() && !(*tolerance >= 0))
      return llvm::createStringError(
          llvm::formatv("expected --{0} to be a number of at least 0 but got {1}",
                        tolerance->ArgStr, double(*tolerance))
              .str());
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
  // The user's own file may well not be there yet; one that is named is to be read.
  if (!tuneFlag && !tunedFile.empty() && tunedFile != "none")
    if (std::error_code code = llvm::sys::fs::access(tunedFile, llvm::sys::fs::AccessMode::Exist))
      return llvm::createStringError("--tuned-schedules: cannot read '" + tunedFile +
                                     "': " + code.message() + "; --tune writes it");
  if (Error error = checkModel())
    return error;
  return checkStreams();
}

/// Whether more than a compilation is asked for.
static bool asksToRun() {
  return verifyFlag || benchFlag.getNumOccurrences() || tuneFlag || !outputs.empty() ||
         !expectedOutputs.empty() || !jsonFile.empty() || modelStatistics || !modelTrace.empty();
}

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

static LoweringOptions getLoweringOptions(StringRef function, StringRef chip) {
  LoweringOptions lowering;
  lowering.function = function;
  lowering.chip = chip;
  lowering.schedule = schedule;
  lowering.fuseProjection = fuseFlag;
  lowering.dumpDir = dumpDir;
  lowering.tunedFile = tunedFile == "none" ? ""
                       : tunedFile.empty() ? getTunedSchedulesFile()
                                           : tunedFile;
  return lowering;
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

static llvm::json::Object describe(const BenchResult &result) {
  return llvm::json::Object{{"median_ms", result.median},
                            {"min_ms", result.min},
                            {"max_ms", result.max},
                            {"lower_quartile_ms", result.lowerQuartile},
                            {"upper_quartile_ms", result.upperQuartile},
                            {"batches", result.batches},
                            {"calls_per_batch", result.repeats}};
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
    printOutput(i, output);

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
