//===- Compile.cpp - from text to kernel ----------------------------------===//

#include "flashattn/Pipelines/Compile.h"
#include "Cache.h"
#include "Input.h"
#include "Kernel.h"
#include "flashattn/Conversion/KernelsToPTX/KernelsToPTX.h"
#include "flashattn/Dialect/FlashAttn/IR/FlashAttn.h"
#include "flashattn/InitAll.h"
#include "flashattn/Runtime/StageTimer.h"
#include "flashattn/Target/Schedules.h"
#include "flashattn/Target/Tuned.h"
#include "mlir/IR/Diagnostics.h"
#include "mlir/IR/MLIRContext.h"
#include "llvm/TargetParser/Host.h"

#include <set>

using namespace mlir;
using namespace mlir::flashattn;
using namespace mlir::flashattn::capi;

namespace {

/// Passes diagnostics to the caller and collects the errors.
class Diagnostics {
public:
  Diagnostics(MLIRContext *context, const FlashAttnCompileOptions &options)
      : options(options), handler(context, [this](Diagnostic &diagnostic) {
          take(diagnostic);
          return success();
        }) {}

  /// Returns the errors so far, or else `otherwise`.
  std::string getErrors(const llvm::Twine &otherwise) const {
    return errors.empty() ? otherwise.str() : errors;
  }
  /// Returns the diagnostics since the last call.
  std::vector<Remark> takeRemarks() { return std::exchange(remarks, {}); }

  void hand(const Remark &remark) {
    if (options.diagnostic)
      options.diagnostic(options.diagnosticUser, remark.severity, remark.file.c_str(), remark.line,
                         remark.column, remark.message.c_str());
  }

private:
  void take(Diagnostic &diagnostic, bool isNote = false) {
    auto place = diagnostic.getLocation()->findInstanceOf<FileLineColLoc>();
    std::string file = place ? place.getFilename().str() : "", message = diagnostic.str();
    unsigned line = place ? place.getLine() : 0, column = place ? place.getColumn() : 0;
    if (diagnostic.getSeverity() == DiagnosticSeverity::Error)
      isError = true;
    else if (!isNote)
      isError = false;
    if (isError) {
      errors += errors.empty() ? "" : "\n";
      if (place)
        errors += llvm::formatv("{0}:{1}:{2}: ", file, line, column).str();
      errors += (isNote ? "note: " : "") + message;
    }
    hand(remarks.emplace_back(
        Remark{getSeverity(diagnostic.getSeverity()), file, line, column, message}));
    for (Diagnostic &note : diagnostic.getNotes())
      take(note, /*isNote=*/true);
  }

  static FlashAttnSeverity getSeverity(DiagnosticSeverity severity) {
    switch (severity) {
    case DiagnosticSeverity::Note:
      return FLASHATTN_NOTE;
    case DiagnosticSeverity::Remark:
      return FLASHATTN_REMARK;
    case DiagnosticSeverity::Warning:
      return FLASHATTN_WARNING;
    case DiagnosticSeverity::Error:
      return FLASHATTN_ERROR;
    }
    llvm_unreachable("unknown severity");
  }

  const FlashAttnCompileOptions &options;
  std::string errors;
  std::vector<Remark> remarks;
  bool isError = false; ///< whether the last diagnostic, to which notes belong, is an error
  ScopedDiagnosticHandler handler;
};

} // namespace

static std::string print(ModuleOp module) {
  std::string text;
  llvm::raw_string_ostream stream(text);
  module->print(stream, OpPrintingFlags().assumeVerified());
  return text;
}

/// Returns the fields of each attention's schedule, one line each.
static std::string printSchedules(ModuleOp module) {
  std::string text;
  module->walk([&](AttentionOpInterface attention) {
    if (ScheduleAttr schedule = attention.getScheduleAttr())
      text += (text.empty() ? "" : "\n") + getScheduleFields(schedule);
  });
  return text;
}

/// Names of the texts, in the order in which they are generated; kPTX only for GPUs.
static constexpr StringLiteral kSource = "mlir", kSchedule = "schedule", kTiled = "tiled",
                               kLowered = "lowered", kPTX = "ptx";

/// Appends the text of a stage.
template <typename Stages>
static void keepStage(Stages &stages, PipelineStage stage, ModuleOp module) {
  switch (stage) {
  case PipelineStage::Scheduled:
    stages.push_back({kSchedule.str(), printSchedules(module)});
    return;
  case PipelineStage::Tiled:
    stages.push_back({kTiled.str(), print(module)});
    return;
  case PipelineStage::Lowered:
    stages.push_back({kLowered.str(), print(module)});
    return;
  }
  llvm_unreachable("unknown stage");
}

/// Same for FLASHATTN_DEVICE_MODEL.
static int32_t chooseModel(Kernel &kernel) {
  if (kernel.chip.empty() || kernel.chip == "cpu")
    return failWith(FLASHATTN_ERROR_INVALID_ARGUMENT,
                    "expected a GPU's chip, as 'sm_90a', for FLASHATTN_DEVICE_MODEL but got {0}",
                    kernel.chip.empty() ? "none" : "'cpu'");
  auto machine = Machine::getGPU(kernel.chip);
  if (!machine)
    return fail(FLASHATTN_ERROR_INVALID_ARGUMENT, machine.takeError());
  auto model = createModelDevice(kernel.chip, machine->getSharedMemoryPerBlock());
  kernel.model = model.get();
  kernel.device = std::move(model);
  kernel.deviceNumber = FLASHATTN_DEVICE_MODEL;
  return FLASHATTN_OK;
}

/// Opens the device and selects the chip.
static int32_t chooseDevice(Kernel &kernel, const FlashAttnCompileOptions &options) {
  kernel.chip = options.chip ? options.chip : "";
  if (options.device < FLASHATTN_DEVICE_MODEL)
    return failWith(FLASHATTN_ERROR_INVALID_ARGUMENT,
                    "expected a CUDA device's number, FLASHATTN_DEVICE_AUTO, "
                    "FLASHATTN_DEVICE_CPU or FLASHATTN_DEVICE_MODEL as device but got {0}",
                    options.device);
  if (options.device == FLASHATTN_DEVICE_MODEL)
    return chooseModel(kernel);
  bool wantsCPU = options.device == FLASHATTN_DEVICE_CPU;
  if (wantsCPU && kernel.chip.empty())
    kernel.chip = "cpu";
  if (kernel.chip == "cpu" ? options.device >= 0 : wantsCPU)
    return failWith(FLASHATTN_ERROR_INVALID_ARGUMENT, "expected {0} but got '{1}'",
                    wantsCPU ? "chip 'cpu' for the CPU" : "the chip of a CUDA device", kernel.chip);
  if (kernel.chip != "cpu") {
    int ordinal = std::max(options.device, 0);
    auto device = createCUDADevice(ordinal, /*ownStream=*/false);
    if (device) {
      kernel.device = std::move(*device);
      kernel.deviceNumber = ordinal;
      if (kernel.chip.empty())
        kernel.chip = kernel.device->getChip();
      return FLASHATTN_OK;
    }
    std::string message = llvm::toString(device.takeError());
    if (options.device != FLASHATTN_DEVICE_AUTO)
      return fail(FLASHATTN_ERROR_DEVICE, message);
    if (!kernel.chip.empty()) {
      kernel.reason = message;
      kernel.reasonStatus = FLASHATTN_ERROR_DEVICE;
      return FLASHATTN_OK;
    }
    kernel.chip = "cpu";
  }
  auto device = createCPUDevice();
  if (!device)
    return fail(FLASHATTN_ERROR_DEVICE, device.takeError());
  kernel.device = std::move(*device);
  kernel.deviceNumber = FLASHATTN_DEVICE_CPU;
  return FLASHATTN_OK;
}

namespace {
/// A module that is being compiled.
struct Compilation {
  Kernel &kernel;
  ModuleOp module;
  CompileOptions options;
  Diagnostics &diagnostics;
  StageTimer &timer;
  /// Whether the caller named the chip, and receives the texts even without a device for them.
  bool keepsTexts;
  /// The schedules, if any of them is from the user's file; otherwise empty.
  std::string tuned;

  /// Whether the code is for a GPU, present or not.
  bool isForCard() const { return kernel.chip != "cpu" && !kernel.model; }
};
} // namespace

/// Returns the error that a kernel cannot be loaded, or stores it as the reason not to launch it.
static int32_t refuse(const Compilation &compilation, llvm::Error error) {
  Kernel &kernel = compilation.kernel;
  bool isCPU = kernel.chip == "cpu" || kernel.model;
  FlashAttnStatus status = isCPU ? FLASHATTN_ERROR_COMPILE : FLASHATTN_ERROR_DEVICE;
  // There is no device that could launch the kernel.
  if (!kernel.reason.empty()) {
    llvm::consumeError(std::move(error));
    return FLASHATTN_OK;
  }
  std::string message = llvm::toString(std::move(error));
  if (!compilation.keepsTexts || isCPU)
    return fail(status, message);
  kernel.reason = message;
  kernel.reasonStatus = status;
  return FLASHATTN_OK;
}

/// Returns the PTX of all groups of kernels that an image loads.
static std::string joinPTX(const HostImage &image) {
  std::string text;
  for (const auto &kernels : image.kernels)
    text += kernels.second;
  return text;
}

/// Stores the PTX of `kernels` in the image. If the PTX of `kernels` and of the module differs from
/// that of the image, it is stored as a text too.
static void addPTX(ModuleOp module, const KernelsToPTX &kernels, KernelCode &code) {
  std::string text;
  visitPTX(module, [&](StringRef, StringRef ptx) { text += ptx; });
  for (const auto &[name, ptx] : kernels.getPTX()) {
    text += ptx;
    for (auto &[symbol, image] : code.image.kernels)
      if (symbol == getKernelsSymbol(name))
        image = ptx;
  }
  if (text != joinPTX(code.image))
    code.stages.push_back({kPTX.str(), std::move(text)});
}

/// Compiles the module and its host code; with `scheduleOnly`, only selects schedules.
static int32_t makeCode(Compilation &compilation, KernelCode &code) {
  static const bool initialized = [] {
    initializeBackEnds();
    return true;
  }();
  (void)initialized;
  Kernel &kernel = compilation.kernel;
  ModuleOp module = compilation.module;
  // If schedules were found, the chip can compute the module.
  bool isScheduled = false;
  compilation.options.visitStage = [&](PipelineStage stage, ModuleOp staged) {
    isScheduled = true;
    if (stage == PipelineStage::Lowered)
      compilation.timer.end("passes");
    // The other texts would be nine tenths of the stored bytes and can be generated again, except
    // if the user's file has changed by then.
    if (stage == PipelineStage::Scheduled || !compilation.tuned.empty())
      keepStage(code.stages, stage, staged);
  };
  compilation.options.verifyEach = false;
  KernelsToPTX background;
  compilation.options.background = &background;
  compilation.diagnostics.takeRemarks();
  auto failToCompile = [&] {
    return fail(
        isScheduled ? FLASHATTN_ERROR_COMPILE : FLASHATTN_ERROR_UNSUPPORTED,
        compilation.diagnostics.getErrors("the module cannot be compiled for " + kernel.chip));
  };
  if (failed(compile(module, compilation.options))) {
    // The threads must report their diagnostics before these are read.
    (void)background.finish();
    return failToCompile();
  }
  if (compilation.options.scheduleOnly)
    return FLASHATTN_OK;
  if (kernel.chip != "cpu")
    code.workspaceBytes = allocatesMemory(module) ? -1 : 0;
  // Compiled even without such a GPU: the cached code may be read on a machine that has one.
  llvm::Expected<HostImage> image(compileHostCode(module, kernel.model ? HostTarget::Model
                                                          : compilation.isForCard()
                                                              ? HostTarget::Portable
                                                              : HostTarget::Native));
  compilation.timer.end("host code");
  // The kernels were compiled in the background.
  bool hasKernels = succeeded(background.finish());
  compilation.timer.end("kernels");
  code.remarks = compilation.diagnostics.takeRemarks();
  llvm::Error refused = image.takeError();
  if (!hasKernels) {
    llvm::consumeError(std::move(refused));
    return failToCompile();
  }
  if (!refused)
    code.image = std::move(*image);
  if (compilation.isForCard())
    addPTX(module, background, code);
  return refused ? refuse(compilation, std::move(refused)) : int32_t(FLASHATTN_OK);
}

const std::string *capi::getText(const Kernel &kernel, StringRef stage) {
  std::lock_guard<std::mutex> lock(kernel.textsMutex);
  auto find = [&]() -> const std::string * {
    for (const Stage &known : kernel.texts)
      if (known.name == stage)
        return &known.text;
    return nullptr;
  };
  if (const std::string *text = find())
    return text;
  MLIRContext context(getInputRegistry(), MLIRContext::Threading::DISABLED);
  std::string errors;
  ScopedDiagnosticHandler handler(&context, [&](Diagnostic &diagnostic) {
    if (diagnostic.getSeverity() == DiagnosticSeverity::Error)
      errors += (errors.empty() ? "" : "\n") + diagnostic.str();
    return success();
  });
  OwningOpRef<ModuleOp> module = parseModule(&context, kernel.texts.front().text);
  CompileOptions options = kernel.options;
  options.visitStage = [&](PipelineStage made, ModuleOp staged) {
    if (made != PipelineStage::Scheduled)
      keepStage(kernel.texts, made, staged);
  };
  // The same text was compiled before.
  if (!module || failed(compile(*module, options)) || !find()) {
    fail(FLASHATTN_ERROR_COMPILE,
         llvm::formatv("cannot compile the kernel again to print its '{0}': {1}", stage, errors)
             .str());
    return nullptr;
  }
  return find();
}

/// Moves the texts of the code to the kernel.
static void keepTexts(const Compilation &compilation, StringRef source, KernelCode &code) {
  Kernel &kernel = compilation.kernel;
  kernel.options = compilation.options;
  kernel.options.visitStage = nullptr;
  kernel.options.background = nullptr;
  kernel.stages = {kSource.str(), kSchedule.str(), kTiled.str(), kLowered.str()};
  kernel.texts.push_back({kSource.str(), source.str()});
  llvm::move(code.stages, std::back_inserter(kernel.texts));
  if (!compilation.isForCard())
    return;
  kernel.stages.push_back(kPTX.str());
  if (kernel.texts.back().name != kPTX)
    kernel.texts.push_back({kPTX.str(), joinPTX(code.image)});
}

/// Returns everything that `makeCode` depends on, except for the build of the library.
static std::vector<std::string> getInput(const Compilation &compilation, StringRef text) {
  const Kernel &kernel = compilation.kernel;
  const CompileOptions &options = compilation.options;
  std::vector<std::string> input = {text.str(),       options.function,
                                    options.chip,     kernel.model ? "model" : "",
                                    options.schedule, compilation.tuned};
  // Machines with the same kind of GPU share the code.
  if (compilation.isForCard()) {
    input.push_back(getPortableHostCPU().str());
    return input;
  }
  input.push_back(std::to_string(options.vectorWidth));
  input.push_back(optimizesForCPU() ? "" : "not optimized");
  input.push_back(llvm::sys::getHostCPUName().str());
  // Host code uses the features of this processor.
  std::set<std::string> features;
  for (const auto &feature : llvm::sys::getHostCPUFeatures())
    if (feature.second)
      features.insert(feature.first().str());
  input.insert(input.end(), features.begin(), features.end());
  return input;
}

/// Finds the code on disk, or generates it and stores it there.
static int32_t findCode(Compilation &compilation, StringRef text, KernelCode &code) {
  int32_t status = FLASHATTN_OK;
  std::vector<std::string> input = getInput(compilation, text);
  auto use = [&](StringRef bytes) {
    KernelCode found;
    if (!found.fromBytes(bytes))
      return false;
    code = std::move(found);
    for (const Remark &remark : code.remarks)
      compilation.diagnostics.hand(remark);
    return true;
  };
  auto make = [&]() -> std::optional<std::string> {
    status = makeCode(compilation, code);
    if (status || code.image.object.empty())
      return std::nullopt;
    return code.toBytes();
  };
  getDiskCache().find(SmallVector<StringRef>(input.begin(), input.end()), use, make);
  return status;
}

/// Without a `handle`, only finds the errors that precede code generation.
static int32_t compileKernel(StringRef text, const FlashAttnCompileOptions &options,
                             FlashAttnKernel *handle) {
  StageTimer timer(handle ? "compile" : "check");
  auto kernel = std::make_unique<Kernel>();
  if (int32_t status = chooseDevice(*kernel, options))
    return status;
  if (options.vectorWidth < 0)
    return failWith(FLASHATTN_ERROR_INVALID_ARGUMENT,
                    "expected a vector width of at least 0 but got {0}", options.vectorWidth);
  timer.end("device");

  // A module is one function: threads would cost more than they save, and are lost in a fork.
  const bool attentionOnly = options.attentionOnly;
  MLIRContext context(getInputRegistry(attentionOnly), MLIRContext::Threading::DISABLED);
  Diagnostics diagnostics(&context, options);
  auto machine =
      Machine::get(kernel->chip, options.vectorWidth ? options.vectorWidth : getHostVectorWidth());
  if (!machine)
    return fail(FLASHATTN_ERROR_INVALID_ARGUMENT, machine.takeError());

  OwningOpRef<ModuleOp> module = parseModule(&context, text, attentionOnly);
  if (!module)
    return fail(FLASHATTN_ERROR_INVALID_MODULE, diagnostics.getErrors("the text does not parse"));
  auto function = findFunction(*module, options.function ? options.function : "", "the function");
  if (!function)
    return fail(FLASHATTN_ERROR_INVALID_ARGUMENT, function.takeError());
  describe(*kernel, *function, kernel->chip);
  timer.end("parse");

  Compilation compilation{*kernel,     *module, {},
                          diagnostics, timer,   /*keepsTexts=*/options.chip != nullptr,
                          /*tuned=*/""};
  compilation.options.function = kernel->function;
  compilation.options.chip = kernel->chip;
  compilation.options.forModel = kernel->model != nullptr;
  compilation.options.schedule = options.schedule ? options.schedule : "";
  // The cache key has the tuned schedules of this module, and not the file: tuning one shape
  // recompiles no other.
  std::string tunedFile = options.useTuned ? getTunedSchedulesFile() : "";
  if (compilation.options.schedule.empty() && !tunedFile.empty() &&
      applyTunedSchedules(*module, *machine, tunedFile) > 0)
    compilation.tuned = printSchedules(*module);
  compilation.options.vectorWidth = machine->getVectorWidth();
  compilation.options.scheduleOnly = !handle;
  KernelCode code;
  if (!handle)
    return makeCode(compilation, code);
  if (int32_t status = findCode(compilation, text, code))
    return status;
  timer.end("disk");
  keepTexts(compilation, text, code);
  kernel->workspaceBytes = code.workspaceBytes;
  if (kernel->reason.empty()) {
    auto executable = Executable::load(code.image, *kernel->device);
    if (executable) {
      kernel->executable = std::move(*executable);
      auto entry = kernel->executable->lookup(kernel->function);
      if (!entry)
        return fail(FLASHATTN_ERROR_COMPILE, entry.takeError());
      kernel->entry = *entry;
    } else if (int32_t status = refuse(compilation, executable.takeError())) {
      return status;
    }
    timer.end("link");
  }
  return makeHandle(std::move(kernel), handle);
}

extern "C" int32_t flashattnCompileOptionsInit(FlashAttnCompileOptions *options) {
  if (!options)
    return fail(FLASHATTN_ERROR_INVALID_ARGUMENT,
                "expected a FlashAttnCompileOptions but got null");
  // Must write only the fields of version 0.1: callers that were built with it have no space for
  // more.
  *options = FlashAttnCompileOptions{};
  options->size = sizeof(FlashAttnCompileOptions);
  options->device = FLASHATTN_DEVICE_AUTO;
  options->useTuned = 1;
  return FLASHATTN_OK;
}

static int32_t compileKernel(const char *mlir, size_t length,
                             const FlashAttnCompileOptions *options, FlashAttnKernel *kernel) {
  if (!mlir)
    return fail(FLASHATTN_ERROR_INVALID_ARGUMENT, "expected the text of a module but got null");
  FlashAttnCompileOptions given;
  flashattnCompileOptionsInit(&given);
  if (options) {
    if (int32_t status = checkStruct(options, "FlashAttnCompileOptions"))
      return status;
    std::memcpy(&given, options, options->size);
  }
  return compileKernel(StringRef(mlir, length), given, kernel);
}

extern "C" int32_t flashattnCompile(const char *mlir, size_t length,
                                    const FlashAttnCompileOptions *options,
                                    FlashAttnKernel *kernel) {
  if (!kernel)
    return fail(FLASHATTN_ERROR_INVALID_ARGUMENT,
                "expected a pointer that receives the kernel but got null");
  *kernel = nullptr;
  return compileKernel(mlir, length, options, kernel);
}

extern "C" int32_t flashattnCheck(const char *mlir, size_t length,
                                  const FlashAttnCompileOptions *options) {
  return compileKernel(mlir, length, options, /*handle=*/nullptr);
}
