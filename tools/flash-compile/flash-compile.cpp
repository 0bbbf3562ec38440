//===- flash-compile.cpp - ahead-of-time compiler for .mlir files ---------===//
//
// Generates an object or a shared library with code for several chips, and a C header for it.
//
//===----------------------------------------------------------------------===//

#include "CForm.h"
#include "CHeader.h"
#include "ExternalTools.h"
#include "HostObject.h"
#include "flashattn/Dialect/FlashAttn/IR/FlashAttn.h"
#include "flashattn/InitAll.h"
#include "flashattn/Pipelines/Compile.h"
#include "flashattn/Support/OutputFile.h"
#include "flashattn/Support/Progress.h"
#include "flashattn/ToolContext.h"
#include "mlir/Dialect/GPU/IR/GPUDialect.h"
#include "mlir/Parser/Parser.h"
#include "mlir/Support/FileUtilities.h"
#include "llvm/Support/CommandLine.h"
#include "llvm/Support/FormatVariadic.h"
#include "llvm/Support/InitLLVM.h"
#include "llvm/Support/Path.h"
#include "llvm/Support/Process.h"

using namespace mlir;
using namespace mlir::flashattn;
using llvm::Error;
using llvm::Expected;
namespace cl = llvm::cl;

namespace {

enum class Emit { Object, Shared, PTX, Cubin };
enum class CPU { V1, V2, V3, V4, Native };

cl::OptionCategory category("Compilation");

cl::opt<std::string> inputFile(cl::Positional, cl::desc("FILE.mlir|-"), cl::init("-"),
                               cl::cat(category));
cl::list<std::string> chips("chip", cl::CommaSeparated, cl::value_desc("sm_90a,sm_80,cpu"),
                            cl::desc("What to compile for: a call takes the code of its device"),
                            cl::cat(category));
cl::opt<Emit> emitFlag(
    "emit", cl::desc("What to make"),
    cl::values(clEnumValN(Emit::Object, "object",
                          "an object, to link with libFlashAttnAOTRuntime.a (default)"),
               clEnumValN(Emit::Shared, "shared", "a shared library that needs libc alone"),
               clEnumValN(Emit::PTX, "ptx", "the PTX of one chip's kernels"),
               clEnumValN(Emit::Cubin, "cubin",
                          "the machine code of one chip's kernels, by ptxas")),
    cl::init(Emit::Object), cl::cat(category));
cl::opt<std::string> outputFile("o", cl::value_desc("FILE"), cl::desc("Where to write it"),
                                cl::cat(category));
cl::opt<std::string> headerFile("header", cl::value_desc("FILE.h"),
                                cl::desc("Where to write the C header (default: beside -o)"),
                                cl::cat(category));
cl::opt<std::string>
    functionName("function", cl::value_desc("name"),
                 cl::desc("The only function to compile (default: all public ones)"),
                 cl::cat(category));
cl::opt<CPU> cpuFlag("cpu", cl::desc("The oldest processor that the CPU's code runs on"),
                     cl::values(clEnumValN(CPU::V1, "x86-64", "any"),
                                clEnumValN(CPU::V2, "x86-64-v2", "with SSE 4.2"),
                                clEnumValN(CPU::V3, "x86-64-v3", "with AVX2 and FMA (default)"),
                                clEnumValN(CPU::V4, "x86-64-v4", "with AVX-512"),
                                clEnumValN(CPU::Native, "native",
                                           "the newest of these that is like this machine's")),
                     cl::init(CPU::V3), cl::cat(category));
cl::opt<bool> embedCubin("cubin",
                         cl::desc("Put machine code, by ptxas, in the place of PTX into objects: "
                                  "the first call needs no compiler, and the code runs on its "
                                  "chips alone"),
                         cl::cat(category));
cl::opt<bool> raiseFlag("raise",
                        cl::desc("Make attention ops of matmul, softmax, matmul in linalg "
                                 "(flashattn-raise-attention)"),
                        cl::cat(category));
cl::opt<std::string> linker("linker", cl::value_desc("PROGRAM"), cl::init("cc"),
                            cl::desc("The C compiler that links --emit=shared (default: cc)"),
                            cl::cat(category));

} // namespace

static bool makesObject() { return emitFlag == Emit::Object || emitFlag == Emit::Shared; }

static CPULevel getLevel() {
  return cpuFlag == CPU::Native ? CPULevel::getHost() : CPULevel{int(cpuFlag.getValue()) + 1};
}

/// Checks the flags before any work that takes time.
static Error checkFlags() {
  if (chips.empty())
    return llvm::createStringError("expected --chip, as in --chip=sm_90a,sm_80,cpu, but got none");
  llvm::SmallDenseSet<StringRef> seen;
  for (const std::string &chip : chips) {
    if (Expected<Machine> machine = Machine::get(chip); !machine)
      return llvm::createStringError("--chip: " + llvm::toString(machine.takeError()));
    if (!seen.insert(chip).second)
      return llvm::createStringError("--chip: expected each chip once but got '" + chip +
                                     "' twice");
  }
  if (outputFile.empty() || outputFile == "-")
    return llvm::createStringError("expected an output file, as in -o attention.o, but got none");
  StringRef emitted = emitFlag == Emit::PTX ? "ptx" : "cubin";
  if (!makesObject() && (chips.size() != 1 || chips[0] == Machine::kCPU))
    return llvm::createStringError("--emit=" + emitted + ": expected one GPU in --chip but got '" +
                                   llvm::join(chips, ",") + "'");
  if (!makesObject() && headerFile.getNumOccurrences())
    return llvm::createStringError(
        "--header: expected --emit=object or --emit=shared, which C can call, but got --emit=" +
        emitted);
  if (embedCubin && !makesObject())
    return llvm::createStringError("--cubin: expected --emit=object or --emit=shared but got "
                                   "--emit=" +
                                   emitted);
  if (embedCubin && chips.size() == 1 && chips[0] == Machine::kCPU)
    return llvm::createStringError("--cubin: expected a GPU in --chip but got 'cpu'");
  return Error::success();
}

/// Implements --raise. Returns an error if there is nothing to raise.
static Error raise(ModuleOp module) {
  FailureOr<int64_t> raised = raiseAttention(module);
  if (failed(raised))
    return llvm::createStringError("--raise failed");
  if (*raised)
    return Error::success();
  return llvm::createStringError("--raise: expected attention in linalg but found none; flash-opt "
                                 "-flashattn-raise-attention "
                                 "--remarks-filter=flashattn-raise-attention "
                                 "--remark-format=emitRemark reports the reason");
}

/// Returns the module of the input file; null after a diagnostic.
static Expected<OwningOpRef<ModuleOp>> readModule(ToolContext &tool) {
  if (inputFile == "-" && llvm::sys::Process::StandardInIsUserInput())
    return llvm::createStringError("expected an .mlir file; see --help");
  if (Error error = checkInputFile(inputFile))
    return error;
  std::string message;
  std::unique_ptr<llvm::MemoryBuffer> file = openInputFile(inputFile, &message);
  if (!file)
    return llvm::createStringError(message);
  tool.sources.AddNewSourceBuffer(std::move(file), llvm::SMLoc());
  auto module = parseSourceFile<ModuleOp>(tool.sources, &tool.context);
  if (!module)
    return OwningOpRef<ModuleOp>();
  if (raiseFlag)
    if (Error error = raise(*module))
      return error;
  if (failed(raiseLinalg(*module)))
    return OwningOpRef<ModuleOp>();
  return module;
}

/// Replaces the PTX in a compiled module by machine code.
static Error assembleKernels(ModuleOp compiled, StringRef chip) {
  for (auto binary : compiled.getOps<gpu::BinaryOp>()) {
    SmallVector<Attribute> objects;
    for (auto object : binary.getObjects().getAsRange<gpu::ObjectAttr>()) {
      Expected<std::string> cubin = assemble(object.getObject().getValue().rtrim('\0'), chip);
      if (!cubin)
        return cubin.takeError();
      objects.push_back(gpu::ObjectAttr::get(compiled.getContext(), object.getTarget(),
                                             gpu::CompilationTarget::Binary,
                                             StringAttr::get(compiled.getContext(), *cubin),
                                             object.getProperties(), object.getKernels()));
    }
    binary.setObjectsAttr(ArrayAttr::get(compiled.getContext(), objects));
  }
  return Error::success();
}

static LogicalResult compileFor(ModuleOp module, StringRef chip, Progress &progress) {
  progress.set(("compiling for " + chip).str());
  CompileOptions options;
  options.function = functionName;
  options.chip = chip.str();
  options.vectorWidth = getLevel().getVectorWidth();
  return compile(module, options);
}

/// Implements --emit=ptx and --emit=cubin: writes only the kernels.
static Error emitKernels(ModuleOp module, OutputFiles &outputs, Progress &progress) {
  if (failed(compileFor(module, chips[0], progress)))
    return llvm::createStringError("the module cannot be compiled for " + chips[0]);
  SmallVector<std::string> names;
  std::string ptx;
  visitPTX(module, [&](StringRef name, StringRef text) {
    names.push_back(("'" + name + "'").str());
    ptx = text.str();
  });
  if (names.empty())
    return llvm::createStringError("expected kernels but the module has none");
  if (emitFlag == Emit::PTX)
    return outputs.write(outputFile, [&](raw_ostream &os) { os << getPTX(module); });
  if (names.size() > 1)
    return llvm::createStringError(
        llvm::formatv("--emit=cubin: expected one group of kernels but got {0}, {1}: --function "
                      "selects one function, and --emit=object compiles all functions",
                      names.size(), llvm::join(names, ", "))
            .str());
  progress.set("assembling for " + chips[0]);
  Expected<std::string> cubin = assemble(ptx, chips[0]);
  if (!cubin)
    return cubin.takeError();
  return outputs.write(outputFile, [&](raw_ostream &os) { os << *cubin; });
}

/// Returns the path of the header; by default next to the output, such as attention.h for
/// libattention.so. Empty if --header is not given and the output is a device or a FIFO.
static std::string getHeaderFile() {
  if (headerFile.getNumOccurrences())
    return headerFile;
  if (isStream(outputFile))
    return "";
  SmallString<128> path(outputFile);
  StringRef stem = llvm::sys::path::stem(path);
  if (emitFlag == Emit::Shared)
    stem.consume_front("lib");
  std::string name = (stem + ".h").str();
  llvm::sys::path::remove_filename(path);
  llvm::sys::path::append(path, name);
  return path.str().str();
}

/// Returns the chips as text, such as "sm_90a, sm_80 and cpu".
static std::string listChips() {
  ArrayRef<std::string> names(&chips[0], chips.size());
  if (names.size() == 1)
    return names.front();
  return llvm::join(names.drop_back(), ", ") + " and " + names.back();
}

static Error emitObject(ModuleOp module, OutputFiles &outputs, Progress &progress) {
  // GPU code has stricter requirements on arguments than CPU code.
  StringRef strictest = chips[0] == Machine::kCPU ? chips[chips.size() - 1] : chips[0];
  Expected<std::vector<CFunction>> functions = makeCForm(module, functionName, strictest);
  if (!functions)
    return functions.takeError();
  HostObject object(*functions, getLevel());
  for (const std::string &chip : chips) {
    OwningOpRef<ModuleOp> copy(module.clone());
    if (failed(compileFor(*copy, chip, progress)))
      return llvm::createStringError("the module cannot be compiled for " + chip);
    if (embedCubin) {
      progress.set("assembling for " + chip);
      if (Error error = assembleKernels(*copy, chip))
        return error;
    }
    if (Error error = object.add(*copy, chip))
      return error;
  }
  progress.set("making the object");
  Expected<SmallVector<char, 0>> bytes = object.emit();
  if (!bytes)
    return bytes.takeError();
  StringRef content(bytes->data(), bytes->size());
  if (emitFlag == Emit::Object) {
    if (Error error = outputs.write(outputFile, [&](raw_ostream &os) { os << content; }))
      return error;
  } else {
    Expected<std::string> library = outputs.create(outputFile);
    if (!library)
      return library.takeError();
    if (Error error = linkShared(linker, content, *library, llvm::sys::path::filename(outputFile)))
      return error;
  }
  std::string header = getHeaderFile();
  if (header.empty())
    return Error::success();
  return outputs.write(header, [&](raw_ostream &os) {
    os << makeCHeader(*functions, listChips(), llvm::sys::path::filename(header));
  });
}

static Error run(bool &isDiagnosed) {
  if (Error error = checkFlags())
    return error;
  ToolContext tool;
  Expected<OwningOpRef<ModuleOp>> module = readModule(tool);
  if (!module)
    return module.takeError();
  isDiagnosed = !*module;
  if (isDiagnosed)
    return Error::success();
  OutputFiles outputs;
  Progress progress("compiling");
  if (Error error = makesObject() ? emitObject(**module, outputs, progress)
                                  : emitKernels(**module, outputs, progress))
    return error;
  return outputs.keep();
}

int main(int argc, char **argv) {
  llvm::InitLLVM init(argc, argv);
  initializeBackEnds();
  registerVersionPrinter();
  cl::HideUnrelatedOptions(category);
  cl::ParseCommandLineOptions(
      argc, argv,
      "Compiles the functions of an .mlir file ahead of time, for several chips\n\n"
      "Writes an object or a library, and a C header with a function for each of them.\n");
  bool isDiagnosed = false;
  if (Error error = run(isDiagnosed)) {
    llvm::errs() << "flash-compile: error: " << llvm::toString(std::move(error)) << "\n";
    return 1;
  }
  return isDiagnosed ? 1 : 0;
}
