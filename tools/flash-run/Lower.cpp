//===- Lower.cpp - runs the pipelines, dumps their stages -----------------===//

#include "Program.h"
#include "flashattn/Support/OutputFile.h"
#include "mlir/Pass/PassInstrumentation.h"
#include "mlir/Pass/PassManager.h"
#include "llvm/Support/FileSystem.h"
#include "llvm/Support/MemoryBuffer.h"
#include "llvm/Support/Path.h"
#include "llvm/Support/Program.h"

using namespace mlir;
using namespace mlir::flashattn;
using llvm::Error;
using llvm::Expected;

namespace {

/// The folder of --dump-dir. Files of an earlier run are removed first; a list names them, so that
/// no other file is touched.
class DumpFolder {
public:
  /// Errors: the folder, or its list, cannot be created.
  static Expected<DumpFolder> open(StringRef path) {
    if (std::error_code code = llvm::sys::fs::create_directories(path))
      return llvm::createStringError("cannot make directory '" + path + "': " + code.message());
    DumpFolder folder(path);
    if (auto list = llvm::MemoryBuffer::getFile(folder.getPath(kList))) {
      SmallVector<StringRef> names;
      (*list)->getBuffer().split(names, '\n', /*MaxSplit=*/-1, /*KeepEmpty=*/false);
      for (StringRef name : names)
        if (llvm::sys::path::filename(name) == name)
          llvm::sys::fs::remove(folder.getPath(name));
    }
    if (Error error = folder.writeList())
      return error;
    return folder;
  }

  std::string getPath(const llvm::Twine &name) const {
    SmallString<256> file(path);
    llvm::sys::path::append(file, name);
    return file.str().str();
  }

  /// Adds a file to the list before it is created.
  Error add(const llvm::Twine &name) {
    names += (name + "\n").str();
    return writeList();
  }
  Error write(const llvm::Twine &name, llvm::function_ref<void(raw_ostream &)> write) {
    if (Error error = add(name))
      return error;
    return writeOutputFile(getPath(name), write);
  }

private:
  static constexpr StringLiteral kList = ".flash-run-files";

  explicit DumpFolder(StringRef path) : path(path) {}
  Error writeList() const {
    return writeOutputFile(getPath(kList), [&](raw_ostream &os) { os << names; });
  }

  StringRef path;
  std::string names;
};

/// Writes the module after each pass that changed it: NN-pass-name.mlir.
class DumpInstrumentation : public PassInstrumentation {
public:
  /// `error` receives the first file that cannot be written.
  DumpInstrumentation(ModuleOp module, DumpFolder &folder, Error &error)
      : module(module), folder(folder), error(error), last(print()) {
    write("input");
  }

  void runAfterPass(Pass *pass, Operation *op) override {
    // Adaptors only contain other passes.
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
    error = folder.write(file, [&](raw_ostream &os) { os << last << "\n"; });
  }

  ModuleOp module;
  DumpFolder &folder;
  Error &error;
  std::string last;
  unsigned number = 0;
};

} // namespace

/// Writes the kernels' PTX and, if ptxas is installed, its report on them.
static Error dumpKernels(ModuleOp module, DumpFolder &folder) {
  auto ptxas = llvm::sys::findProgramByName("ptxas");
  Error error = Error::success();
  visitPTX(module, [&](StringRef kernels, StringRef ptx) {
    if (error)
      return;
    std::string name = (kernels + ".ptx").str();
    std::string report = (kernels + ".ptxas.txt").str();
    error = folder.write(name, [&](raw_ostream &os) { os << ptx; });
    if (error || !ptxas || (error = folder.add(report)))
      return;
    StringRef chip = ptx.split(".target ").second;
    chip = chip.take_until([](char c) { return c == ',' || isspace(c); });
    std::string arch = ("-arch=" + chip).str(), in = folder.getPath(name),
                to = folder.getPath(report);
    std::optional<StringRef> redirects[] = {StringRef(), StringRef(to), StringRef(to)};
    // Errors are reported too, but do not fail the run: only the driver decides whether the PTX is
    // valid.
    llvm::sys::ExecuteAndWait(*ptxas, {*ptxas, "-v", arch, "-o", "/dev/null", in}, std::nullopt,
                              redirects);
  });
  return error;
}

Error flashattn::lower(ModuleOp module, const LoweringOptions &options) {
  std::optional<DumpFolder> folder;
  if (!options.dumpDir.empty()) {
    if (Error error = DumpFolder::open(options.dumpDir).moveInto(folder))
      return error;
    // The instrumentation prints the whole module, which no other thread may change at that time.
    module.getContext()->disableMultithreading();
  }
  Error dumpError = Error::success();
  bool failed = mlir::failed(compile(module, options, [&](PassManager &pm) {
    if (folder)
      pm.addInstrumentation(std::make_unique<DumpInstrumentation>(module, *folder, dumpError));
  }));
  if (dumpError)
    return dumpError;
  if (failed)
    return llvm::createStringError("the module cannot be compiled for " + options.chip);
  return folder ? dumpKernels(module, *folder) : Error::success();
}
