//===- Flags.cpp ----------------------------------------------------------===//

#include "Flags.h"
#include "Npy.h"
#include "flashattn/Runtime/Model.h"
#include "flashattn/Target/Machine.h"
#include "flashattn/Target/Tuned.h"
#include "llvm/Support/FileSystem.h"
#include "llvm/Support/FormatVariadic.h"

using namespace mlir;
using namespace mlir::flashattn;
using namespace mlir::flashattn::flags;
using llvm::Error;
using llvm::Expected;
namespace cl = llvm::cl;

//===----------------------------------------------------------------------===//
// Flags
//===----------------------------------------------------------------------===//

static cl::OptionCategory runCategory("What to run"), dataCategory("Inputs and outputs"),
    checkCategory("Checks and timing"), compileCategory("Compilation");

namespace mlir::flashattn::flags {

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
cl::opt<int64_t> modelMultiprocessors(
    "model-multiprocessors", cl::value_desc("N"), cl::init(0),
    cl::desc(
        "Of a model: few of them are filled by few programs (default: as many as the GPU has)"),
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
             "@- (standard input), random[:SEED] (the default), zeros, ones, poison (NaN), "
             "a number, or one for each element. "
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
             cl::desc("Fields of the schedule to pin, as 'tile_m = 64'; those left out are chosen. "
                      "With --tune only schedules with these are tried"),
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
                      "faster than the compiler's own choice by 2% and by more than the "
                      "times vary, if any"),
             cl::cat(compileCategory));
cl::opt<std::string> tunedFile(
    "tuned-schedules", cl::value_desc("FILE|none"),
    cl::desc("Schedules that were tuned (default: schedules.json in the user's cache folder "
             "for flashattn; none where FLASHATTN_TUNED=0)"),
    cl::cat(compileCategory));
cl::opt<std::string> dumpDir("dump-dir", cl::value_desc("directory"),
                             cl::desc("Keep the IR after each stage, the PTX and ptxas's report"),
                             cl::cat(compileCategory));

} // namespace mlir::flashattn::flags

void mlir::flashattn::hideOtherFlags() {
  const cl::OptionCategory *categories[] = {&runCategory, &dataCategory, &checkCategory,
                                            &compileCategory};
  cl::HideUnrelatedOptions(categories);
}

//===----------------------------------------------------------------------===//
// Checks
//===----------------------------------------------------------------------===//

/// Checks the flags for a model.
static Error checkModel() {
  bool isModel = StringRef(deviceName).starts_with("model:");
  for (const cl::Option *flag :
       {static_cast<const cl::Option *>(&tuneFlag), static_cast<const cl::Option *>(&benchFlag)})
    if (isModel && flag->getNumOccurrences())
      return llvm::createStringError(
          "--" + flag->ArgStr + ": expected a real device to time but got --device=" + deviceName);
  for (const cl::Option *flag : {static_cast<const cl::Option *>(&modelStatistics),
                                 static_cast<const cl::Option *>(&modelTrace)})
    if (!isModel && flag->getNumOccurrences())
      return llvm::createStringError(
          "--" + flag->ArgStr + ": expected --device=model:sm_XX but got --device=" + deviceName);
  const std::pair<const cl::opt<int64_t> *, int64_t> counts[] = {
      {&modelSeeds, kMaxModelSeeds},
      {&modelSeed, kMaxModelSeeds},
      {&modelMultiprocessors, kMaxModelMultiprocessors}};
  for (auto [flag, most] : counts) {
    if (!flag->getNumOccurrences())
      continue;
    if (!isModel)
      return llvm::createStringError(
          "--" + flag->ArgStr + ": expected --device=model:sm_XX but got --device=" + deviceName);
    if (*flag < 1 || *flag > most)
      return llvm::createStringError(llvm::formatv("expected --{0} to be from 1 to {1} but got {2}",
                                                   flag->ArgStr, most, int64_t(*flag))
                                         .str());
  }
  return Error::success();
}

/// Checks that standard input has at most one reader and standard output at most one writer, and
/// that there is output for -o, --json and --dump-dir.
static Error checkStreams() {
  auto isStandard = [](const std::string &value) { return StringRef(value).ends_with("@-"); };
  size_t readers = llvm::count_if(inputs, isStandard) + llvm::count_if(expectedOutputs, isStandard);
  if (readers + (files.empty() || files[0] == "-") > 1)
    return llvm::createStringError("expected one reader of standard input but got several: a "
                                   "missing FILE, FILE '-' and each @- read it");
  if (llvm::count_if(outputs, isStandard) + (jsonFile == "-") > 1)
    return llvm::createStringError("expected one writer of standard output but got several: each "
                                   "--output=@- and --json=- write to it");
  if (tuneFlag && !jsonFile.empty())
    return llvm::createStringError("--json: expected a checked or timed run but got --tune, which "
                                   "writes only to --tuned-schedules");
  if (tuneFlag && !dumpDir.empty())
    return llvm::createStringError(
        "--dump-dir: expected one compilation but got --tune, which compiles many schedules");
  if (emitFile.getNumOccurrences() && emitFlag == Emit::None)
    return llvm::createStringError("-o: expected --emit, whose text -o writes, but got none; "
                                   "--output=@FILE.npy writes outputs");
  return Error::success();
}

Error mlir::flashattn::checkFlags(double &benchSeconds) {
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
  if (!chip.empty())
    if (Expected<Machine> machine = Machine::getGPU(chip); !machine)
      return llvm::createStringError("--chip: " + llvm::toString(machine.takeError()));
  // The default file may not exist yet, but a named file must, because it is read.
  if (!tuneFlag && !tunedFile.empty() && tunedFile != "none")
    if (std::error_code code = llvm::sys::fs::access(tunedFile, llvm::sys::fs::AccessMode::Exist))
      return llvm::createStringError("--tuned-schedules: cannot read '" + tunedFile +
                                     "': " + code.message() + "; --tune writes it");
  if (Error error = checkModel())
    return error;
  return checkStreams();
}

bool mlir::flashattn::asksToRun() {
  return verifyFlag || benchFlag.getNumOccurrences() || tuneFlag || !outputs.empty() ||
         !expectedOutputs.empty() || !jsonFile.empty() || modelStatistics || !modelTrace.empty();
}

//===----------------------------------------------------------------------===//
// Values of flags
//===----------------------------------------------------------------------===//

Expected<std::unique_ptr<Device>> mlir::flashattn::openDevice(std::string &noGPU) {
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
    Expected<Machine> machine = Machine::getGPU(name);
    if (!machine)
      return llvm::createStringError("--device=model: " + llvm::toString(machine.takeError()));
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

/// Returns PATH of `@PATH`.
static Expected<StringRef> getPath(const char *flag, StringRef value) {
  if (value.consume_front("@") && !value.empty())
    return value;
  return llvm::createStringError(
      llvm::formatv("--{0}: expected @FILE.npy but got '{1}'", flag, value).str());
}

Error mlir::flashattn::readOutputFlags(const Program &program, SmallVector<HostTensor> &expected,
                                       SmallVector<StringRef> &paths) {
  for (auto [flag, list] : {std::pair("output", &outputs), {"expected-output", &expectedOutputs}})
    if (list->size() > program.outputs.size())
      return llvm::createStringError(
          llvm::formatv("expected at most {0} --{1} for function '{2}' but got {3}",
                        program.outputs.size(), flag, program.function, list->size())
              .str());
  for (auto [output, value] : llvm::zip(program.outputs, expectedOutputs)) {
    Expected<StringRef> path = getPath("expected-output", value);
    if (!path)
      return path.takeError();
    Expected<HostTensor> tensor = readNpy(*path, program.getInfo(output).scalar);
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

LoweringOptions mlir::flashattn::getLoweringOptions(StringRef function, StringRef chip) {
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
