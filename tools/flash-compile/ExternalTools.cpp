//===- ExternalTools.cpp --------------------------------------------------===//

#include "ExternalTools.h"
#include "flashattn/Support/OutputFile.h"
#include "llvm/ADT/StringExtras.h"
#include "llvm/Support/FileSystem.h"
#include "llvm/Support/MemoryBuffer.h"
#include "llvm/Support/Path.h"
#include "llvm/Support/Process.h"
#include "llvm/Support/Program.h"

using namespace mlir;
using namespace mlir::flashattn;
using llvm::Error;
using llvm::Expected;
namespace fs = llvm::sys::fs;

Expected<std::string> flashattn::findTool(StringRef name, ArrayRef<StringRef> folders,
                                          StringRef advice) {
  // findProgramByName returns a path unchanged, even if there is no such file.
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
  Expected<ScratchFile> log = ScratchFile::create();
  if (!log)
    return log.takeError();
  SmallVector<StringRef> command = {program};
  llvm::append_range(command, arguments);
  std::optional<StringRef> redirects[] = {StringRef(), log->getPath(), log->getPath()};
  std::string message;
  int status = llvm::sys::ExecuteAndWait(program, command, std::nullopt, redirects,
                                         /*SecondsToWait=*/0, /*MemoryLimit=*/0, &message);
  if (status == 0)
    return Error::success();
  if (auto said = llvm::MemoryBuffer::getFile(log->getPath()); said && message.empty())
    message = (*said)->getBuffer().trim().str();
  return llvm::createStringError("'" + program + "' failed with status " + llvm::Twine(status) +
                                 (message.empty() ? "" : ":\n" + message));
}

Expected<std::string> flashattn::assemble(StringRef ptx, StringRef chip) {
  std::string named = llvm::sys::Process::GetEnv("FLASHATTN_PTXAS").value_or("ptxas");
  Expected<std::string> ptxas =
      findTool(named, {"/usr/local/cuda/bin"},
               "set FLASHATTN_PTXAS to the ptxas of a CUDA toolkit; code in PTX needs no ptxas");
  if (!ptxas)
    return ptxas.takeError();
  Expected<ScratchFile> source = ScratchFile::create(ptx), cubin = ScratchFile::create();
  if (!source || !cubin)
    return llvm::joinErrors(source.takeError(), cubin.takeError());
  std::string arch = ("-arch=" + chip).str();
  if (Error error = runTool(*ptxas, {arch, source->getPath(), "-o", cubin->getPath()}))
    return error;
  auto bytes = llvm::MemoryBuffer::getFile(cubin->getPath());
  if (!bytes)
    return llvm::createStringError("cannot read what '" + *ptxas +
                                   "' made: " + bytes.getError().message());
  return (*bytes)->getBuffer().str();
}

/// Returns the path of libFlashAttnAOTRuntime.a, searched relative to this program.
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
  return llvm::createStringError(
      "expected libFlashAttnAOTRuntime.a as '" + path +
      "' but found none: use --emit=object, which does not need the file");
}

Error flashattn::linkShared(StringRef linker, StringRef object, StringRef output,
                            StringRef soname) {
  Expected<std::string> program = findTool(linker, {},
                                           "give another C compiler by --linker=PROGRAM, or use "
                                           "--emit=object, which does not need a C compiler");
  if (!program)
    return program.takeError();
  Expected<std::string> runtime = findRuntime();
  if (!runtime)
    return runtime.takeError();
  Expected<ScratchFile> file = ScratchFile::create(object);
  if (!file)
    return file.takeError();
  std::string name = ("-Wl,-soname," + soname).str();
  // The library exports only the functions of its header: the runtime's symbols are hidden.
  return runTool(*program,
                 {"-shared", "-o", output, name, file->getPath(), *runtime, "-Wl,--gc-sections",
                  "-Wl,--as-needed", "-Wl,-z,defs", "-lm", "-ldl", "-lpthread", "-static-libgcc"});
}
