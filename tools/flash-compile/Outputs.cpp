//===- Outputs.cpp ---------------------------------------------------------===//

#include "Outputs.h"
#include "llvm/ADT/StringExtras.h"
#include "llvm/Support/FileUtilities.h"
#include "llvm/Support/MemoryBuffer.h"
#include "llvm/Support/Path.h"
#include "llvm/Support/Process.h"
#include "llvm/Support/Program.h"

#include <sys/stat.h>

using namespace mlir;
using namespace mlir::flashattn;
using llvm::Error;
using llvm::Expected;
namespace fs = llvm::sys::fs;

static Error failToWrite(StringRef path, Error error) {
  return llvm::createStringError("cannot write '" + path +
                                 "': " + llvm::toString(std::move(error)));
}
static Error failToWrite(StringRef path, std::error_code code) {
  return failToWrite(path, llvm::errorCodeToError(code));
}

Outputs::~Outputs() {
  for (auto &[path, file] : files)
    llvm::consumeError(file.discard());
}

Expected<std::string> Outputs::create(StringRef path) {
  if (fs::is_directory(path))
    return failToWrite(path, std::make_error_code(std::errc::is_a_directory));
  Expected<fs::TempFile> file = fs::TempFile::create(path + ".temp-%%%%%%", 0666 & ~fs::getUmask());
  if (!file)
    return failToWrite(path, file.takeError());
  files.emplace_back(path.str(), std::move(*file));
  return files.back().second.TmpName;
}

Error Outputs::write(StringRef path, StringRef content) {
  if (Expected<std::string> made = create(path); !made)
    return made.takeError();
  llvm::raw_fd_ostream stream(files.back().second.FD, /*shouldClose=*/false);
  stream << content;
  stream.flush();
  if (std::error_code code = stream.error()) {
    stream.clear_error();
    return failToWrite(path, code);
  }
  return Error::success();
}

Error Outputs::keep() {
  while (!files.empty()) {
    auto [path, file] = std::move(files.back());
    files.pop_back();
    if (Error error = file.keep(path)) {
      llvm::consumeError(file.discard());
      return failToWrite(path, std::move(error));
    }
  }
  return Error::success();
}

Expected<std::string> flashattn::findTool(StringRef name, ArrayRef<StringRef> folders,
                                          StringRef advice) {
  // A path is given back as it is.
  auto isThere = [](const llvm::ErrorOr<std::string> &found) {
    return found && fs::can_execute(*found);
  };
  llvm::ErrorOr<std::string> found = llvm::sys::findProgramByName(name);
  if (!isThere(found) && !folders.empty())
    found = llvm::sys::findProgramByName(name, folders);
  if (isThere(found))
    return *found;
  return llvm::createStringError("expected the program '" + name + "' but found none: " + advice);
}

Error flashattn::runTool(StringRef program, ArrayRef<StringRef> arguments) {
  SmallString<128> log;
  if (std::error_code code = fs::createTemporaryFile("flash-compile", "log", log))
    return failToWrite("a temporary file", code);
  llvm::FileRemover remover(log);
  SmallVector<StringRef> command = {program};
  llvm::append_range(command, arguments);
  std::optional<StringRef> redirects[] = {StringRef(), StringRef(log), StringRef(log)};
  std::string message;
  int status = llvm::sys::ExecuteAndWait(program, command, std::nullopt, redirects,
                                         /*SecondsToWait=*/0, /*MemoryLimit=*/0, &message);
  if (status == 0)
    return Error::success();
  if (auto said = llvm::MemoryBuffer::getFile(log); said && message.empty())
    message = (*said)->getBuffer().trim().str();
  return llvm::createStringError("'" + program + "' failed with status " + llvm::Twine(status) +
                                 (message.empty() ? "" : ":\n" + message));
}

Expected<std::string> flashattn::assemble(StringRef ptx, StringRef chip) {
  std::string named = llvm::sys::Process::GetEnv("FLASHATTN_PTXAS").value_or("ptxas");
  Expected<std::string> ptxas =
      findTool(named, {"/usr/local/cuda/bin"},
               "FLASHATTN_PTXAS names the one of a CUDA toolkit; PTX needs none");
  if (!ptxas)
    return ptxas.takeError();
  SmallString<128> source, cubin;
  if (std::error_code code = fs::createTemporaryFile("flash-compile", "ptx", source))
    return failToWrite("a temporary file", code);
  llvm::FileRemover removeSource(source);
  if (std::error_code code = fs::createTemporaryFile("flash-compile", "cubin", cubin))
    return failToWrite("a temporary file", code);
  llvm::FileRemover removeCubin(cubin);
  if (Error error = llvm::writeToOutput(source, [&](raw_ostream &os) {
        os << ptx;
        return Error::success();
      }))
    return failToWrite(source, std::move(error));
  std::string arch = ("-arch=" + chip).str();
  if (Error error = runTool(*ptxas, {arch, source, "-o", cubin}))
    return error;
  auto bytes = llvm::MemoryBuffer::getFile(cubin);
  if (!bytes)
    return llvm::createStringError("cannot read what '" + *ptxas +
                                   "' made: " + bytes.getError().message());
  return (*bytes)->getBuffer().str();
}

/// libFlashAttnAOTRuntime.a, from the folder of this program.
static Expected<std::string> findRuntime() {
  static int here;
  SmallString<256> tool(fs::getMainExecutable("flash-compile", &here));
  StringRef prefix = llvm::sys::path::parent_path(llvm::sys::path::parent_path(tool));
  SmallString<256> path;
  for (StringRef folder : {"lib", FLASHATTN_LIBDIR}) {
    path = prefix;
    llvm::sys::path::append(path, folder, "libFlashAttnAOTRuntime.a");
    if (fs::exists(path))
      return path.str().str();
  }
  return llvm::createStringError("expected libFlashAttnAOTRuntime.a as '" + path +
                                 "' but found none: --emit=object needs none");
}

Error flashattn::linkShared(StringRef linker, StringRef object, StringRef output,
                            StringRef soname) {
  Expected<std::string> program =
      findTool(linker, {}, "--linker=PROGRAM names another C compiler; --emit=object needs none");
  if (!program)
    return program.takeError();
  Expected<std::string> runtime = findRuntime();
  if (!runtime)
    return runtime.takeError();
  std::string name = ("-Wl,-soname," + soname).str();
  // Nothing of the runtime is for others: what is exported are the functions of the header.
  return runTool(*program,
                 {"-shared", "-o", output, name, object, *runtime, "-Wl,--gc-sections",
                  "-Wl,--as-needed", "-Wl,-z,defs", "-lm", "-ldl", "-lpthread", "-static-libgcc"});
}
