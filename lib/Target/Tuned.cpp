//===- Tuned.cpp - the user's file of tuned schedules ---------------------===//

#include "flashattn/Target/Tuned.h"
#include "flashattn/Analysis/MaskShape.h"
#include "flashattn/Support/Environment.h"
#include "flashattn/Support/OutputFile.h"
#include "flashattn/Support/TrustedFolder.h"
#include "llvm/Support/FileSystem.h"
#include "llvm/Support/FormatVariadic.h"
#include "llvm/Support/JSON.h"
#include "llvm/Support/MemoryBuffer.h"
#include "llvm/Support/Path.h"
#include "llvm/Support/Process.h"

using namespace mlir;
using namespace mlir::flashattn;
using llvm::Error;
using llvm::Expected;

static constexpr int64_t kVersion = 4;

std::string mlir::flashattn::getUserCacheFolder() {
  // The XDG base directory specification requires relative paths to be ignored.
  SmallString<128> path(llvm::sys::Process::GetEnv("XDG_CACHE_HOME").value_or(""));
  if (!llvm::sys::path::is_absolute(path)) {
    if (!llvm::sys::path::home_directory(path))
      return "";
    llvm::sys::path::append(path, ".cache");
  }
  llvm::sys::path::append(path, "flashattn");
  return path.str().str();
}

std::string mlir::flashattn::getTunedSchedulesPath() {
  SmallString<128> path(getUserCacheFolder());
  if (!path.empty())
    llvm::sys::path::append(path, "schedules.json");
  return path.str().str();
}

std::string mlir::flashattn::getTunedSchedulesFile() {
  return getSwitch("FLASHATTN_TUNED", /*byDefault=*/true) ? getTunedSchedulesPath() : "";
}

std::string mlir::flashattn::getTuningKey(AttentionOpInterface op, StringRef machine) {
  MaskShape shape = classifyMask(op.getVisibleSets()).shape;
  StringRef maskClass = shape == MaskShape::Full         ? "full"
                        : shape == MaskShape::Triangular ? "triangular"
                                                         : "banded";
  StringRef kind = "";
  if (auto forward = dyn_cast<AttentionOp>(*op))
    kind = isDecode(forward) ? "/decode" : "";
  else if (auto backward = dyn_cast<AttentionBackwardOp>(*op))
    kind = backward.getDeterministic() ? "/backward/deterministic" : "/backward";
  std::string elements = getTypeName(op.getElementType()).str();
  if (op.hasNarrowKeys() || op.hasNarrowValues())
    elements = llvm::formatv("{0}+{1}+{2}", elements, op.getK().getType().getElementType(),
                             op.getV().getType().getElementType());
  return llvm::formatv("{0}/{1}/{2}/{3}/{4}{5}", machine, op.getD(), op.getDv(), elements,
                       maskClass, kind);
}

/// Opens the folder of the file that compilations read by default. It must be the user's own, so
/// that nobody else controls what is compiled. A file that the user names may belong to anybody.
static Expected<std::optional<TrustedFolder>> openUsersFolder(TrustedFolder::IfMissing ifMissing) {
  return TrustedFolder::open(getUserCacheFolder(), ifMissing);
}
static bool isUsers(StringRef file) { return file == getTunedSchedulesPath(); }

/// Returns the content of the file; null if it does not exist.
static Expected<std::unique_ptr<llvm::MemoryBuffer>> readFile(StringRef file) {
  // Reading a device may never end, and reading a FIFO waits for a writer.
  if (isStream(file))
    return nullptr;
  if (!isUsers(file)) {
    auto buffer = llvm::MemoryBuffer::getFile(file);
    if (buffer)
      return std::move(*buffer);
    if (buffer.getError() == std::errc::no_such_file_or_directory)
      return nullptr;
    return llvm::createStringError(buffer.getError().message().c_str());
  }
  auto folder = openUsersFolder(TrustedFolder::IfMissing::Nothing);
  if (!folder)
    return folder.takeError();
  if (!*folder)
    return nullptr;
  return (*folder)->read(llvm::sys::path::filename(file));
}

Expected<llvm::json::Object> mlir::flashattn::loadTunedSchedules(StringRef file) {
  auto buffer = readFile(file);
  if (!buffer)
    return llvm::createStringError("cannot read '" + file +
                                   "': " + llvm::toString(buffer.takeError()));
  if (!*buffer)
    return llvm::json::Object();
  Expected<llvm::json::Value> content = llvm::json::parse((*buffer)->getBuffer());
  if (content)
    if (llvm::json::Object *object = content->getAsObject())
      if (object->getInteger("version") == kVersion)
        if (llvm::json::Object *schedules = object->getObject("schedules"))
          if (llvm::all_of(*schedules, [](auto &entry) { return entry.second.getAsObject(); }))
            return std::move(*schedules);
  if (!content)
    llvm::consumeError(content.takeError());
  return llvm::createStringError(
      llvm::formatv("expected tuned schedules of version {0} in {1} but got other content; "
                    "delete the file and tune again",
                    kVersion, file));
}

int64_t mlir::flashattn::applyTunedSchedules(ModuleOp module, const Machine &machine,
                                             StringRef file) {
  Expected<llvm::json::Object> found = loadTunedSchedules(file);
  if (!found) {
    module.emitWarning() << llvm::toString(found.takeError());
    return 0;
  }
  int64_t count = 0;
  auto apply = [&](auto op) {
    if (op.getSchedule())
      return;
    const llvm::json::Object *finding = found->getObject(getTuningKey(op, machine.getName()));
    if (!finding)
      return;
    ScheduleAttr schedule =
        parseScheduleFields(finding->getString("schedule").value_or(""), op.getContext());
    if (!schedule || !explainRefusal(op, schedule, machine).empty())
      return;
    op.setScheduleAttr(schedule);
    ++count;
  };
  module.walk([&](AttentionOp op) {
    // A tuned schedule is for one kernel, and for splits that depend on the batch (S8).
    bool isSeparated = !machine.isCPU() && op.getCuSeqlensQ() && !op.getCuSeqlensK() &&
                       !op.getQLen() && !op.getMostQueries();
    if (!isSeparated && !op.getInvariant())
      apply(op);
  });
  module.walk([&](AttentionBackwardOp op) { apply(op); });
  return count;
}

static Error makeFolder(StringRef file) {
  if (isUsers(file))
    return openUsersFolder(TrustedFolder::IfMissing::Make).takeError();
  StringRef folder = llvm::sys::path::parent_path(file); // empty for a plain name
  if (std::error_code code =
          folder.empty() ? std::error_code() : llvm::sys::fs::create_directories(folder))
    return llvm::createStringError("cannot make the folder of '" + file + "': " + code.message());
  return Error::success();
}

Error mlir::flashattn::checkTunedSchedules(StringRef file) {
  if (Expected<llvm::json::Object> found = loadTunedSchedules(file); !found)
    return found.takeError();
  if (Error error = makeFolder(file))
    return error;
  if (llvm::sys::fs::is_directory(file))
    return llvm::createStringError("expected a file for tuned schedules but got the folder '" +
                                   file + "'");
  // Creates a temporary file, as storeTunedSchedule does, and discards it.
  return OutputFiles().create(file).takeError();
}

Error mlir::flashattn::storeTunedSchedule(StringRef file, StringRef key,
                                          llvm::json::Object finding) {
  Expected<llvm::json::Object> found = loadTunedSchedules(file);
  if (!found)
    return found.takeError();
  (*found)[key] = std::move(finding);
  if (Error error = makeFolder(file))
    return error;
  llvm::json::Value content =
      llvm::json::Object{{"version", kVersion}, {"schedules", std::move(*found)}};
  if (isUsers(file)) {
    auto folder = openUsersFolder(TrustedFolder::IfMissing::Make);
    if (!folder)
      return folder.takeError();
    return (*folder)->write(llvm::sys::path::filename(file),
                            {llvm::formatv("{0:1}\n", content).str()});
  }
  return writeOutputFile(file, [&](raw_ostream &os) { os << llvm::formatv("{0:1}\n", content); });
}
