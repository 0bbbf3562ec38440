//===- Lower.cpp - runs the pipelines, keeps what they make ----------------===//

#include "Program.h"
#include "mlir/Pass/PassInstrumentation.h"
#include "mlir/Pass/PassManager.h"
#include "llvm/Support/FileSystem.h"
#include "llvm/Support/Path.h"
#include "llvm/Support/Program.h"
#include "llvm/Support/ToolOutputFile.h"

using namespace mlir;
using namespace mlir::flashattn;
using llvm::Error;

/// Writes a text file of the dump directory.
static Error writeText(StringRef directory, const llvm::Twine &name,
                       llvm::function_ref<void(raw_ostream &)> write) {
  SmallString<256> path(directory);
  llvm::sys::path::append(path, name);
  std::error_code code;
  llvm::ToolOutputFile file(path, code, llvm::sys::fs::OF_Text);
  if (!code) {
    write(file.os());
    file.os().flush();
    code = file.os().error();
  }
  if (code) {
    file.os().clear_error();
    return llvm::createStringError("cannot write '" + path.str() + "': " + code.message());
  }
  file.keep();
  return Error::success();
}

namespace {

/// Writes the module after each pass that changed it: NN-pass-name.mlir.
class DumpInstrumentation : public PassInstrumentation {
public:
  /// `error` receives the first file that cannot be written.
  DumpInstrumentation(ModuleOp module, StringRef directory, Error &error)
      : module(module), directory(directory), error(error), last(print()) {
    write("input");
  }

  void runAfterPass(Pass *pass, Operation *op) override {
    // Adaptors only hold other passes.
    if (!pass->getArgument().empty())
      writeChanged(pass->getArgument());
  }
  void runAfterPassFailed(Pass *pass, Operation *op) override {
    writeChanged((pass->getArgument() + "-failed").str());
  }

private:
  std::string print() {
    std::string text;
    llvm::raw_string_ostream stream(text);
    module->print(stream, OpPrintingFlags().assumeVerified());
    return text;
  }
  void writeChanged(StringRef name) {
    std::string text = print();
    if (text == last)
      return;
    last = std::move(text);
    write(name);
  }
  void write(StringRef name) {
    if (error)
      return;
    std::string file =
        ((number < 10 ? "0" : "") + llvm::Twine(number) + "-" + name + ".mlir").str();
    ++number;
    error = writeText(directory, file, [&](raw_ostream &os) { os << last << "\n"; });
  }

  ModuleOp module;
  StringRef directory;
  Error &error;
  std::string last;
  unsigned number = 0;
};

} // namespace

/// The kernels' PTX, and what ptxas says of it where there is one.
static Error dumpKernels(ModuleOp module, StringRef directory) {
  auto ptxas = llvm::sys::findProgramByName("ptxas");
  Error error = Error::success();
  visitPTX(module, [&](StringRef kernels, StringRef ptx) {
    if (error)
      return;
    std::string name = (kernels + ".ptx").str();
    error = writeText(directory, name, [&](raw_ostream &os) { os << ptx; });
    if (error || !ptxas)
      return;
    StringRef chip = ptx.split(".target ").second;
    chip = chip.take_until([](char c) { return c == ',' || isspace(c); });
    SmallString<256> in(directory), report(directory);
    llvm::sys::path::append(in, name);
    llvm::sys::path::append(report, kernels + ".ptxas.txt");
    std::string arch = ("-arch=" + chip).str();
    std::optional<StringRef> redirects[] = {StringRef(), StringRef(report), StringRef(report)};
    // A report of errors is a report too: the driver has the last word on the PTX.
    llvm::sys::ExecuteAndWait(*ptxas, {*ptxas, "-v", arch, "-o", "/dev/null", in}, std::nullopt,
                              redirects);
  });
  return error;
}

Error flashattn::lower(ModuleOp module, const LoweringOptions &options) {
  if (!options.dumpDir.empty()) {
    if (std::error_code code = llvm::sys::fs::create_directories(options.dumpDir))
      return llvm::createStringError("cannot make directory '" + options.dumpDir +
                                     "': " + code.message());
    // The whole module is printed, which nobody may change meanwhile.
    module.getContext()->disableMultithreading();
  }
  Error dumpError = Error::success();
  bool failed = mlir::failed(compile(module, options, [&](PassManager &pm) {
    if (!options.dumpDir.empty())
      pm.addInstrumentation(
          std::make_unique<DumpInstrumentation>(module, options.dumpDir, dumpError));
  }));
  if (dumpError)
    return dumpError;
  if (failed)
    return llvm::createStringError("the module cannot be compiled for " + options.chip);
  if (!options.dumpDir.empty())
    return dumpKernels(module, options.dumpDir);
  return Error::success();
}
