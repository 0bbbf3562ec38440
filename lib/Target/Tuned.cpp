//===- Tuned.cpp - the user's file of tuned schedules ----------------------===//

#include "flashattn/Target/Tuned.h"
#include "flashattn/Analysis/MaskShape.h"
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

static constexpr int64_t kVersion = 1;

std::string mlir::flashattn::getTunedSchedulesFile() {
  if (llvm::sys::Process::GetEnv("FLASHATTN_TUNED").value_or("1") == "0")
    return "";
  // $XDG_CACHE_HOME, or ~/.cache.
  SmallString<128> path;
  if (!llvm::sys::path::cache_directory(path))
    return "";
  llvm::sys::path::append(path, "flashattn", "schedules.json");
  return path.str().str();
}

std::string mlir::flashattn::getTuningKey(AttentionOp op, StringRef machine) {
  MaskShape shape = classifyMask(op.getVisibleSets()).shape;
  StringRef maskClass = shape == MaskShape::Full         ? "full"
                        : shape == MaskShape::Triangular ? "triangular"
                                                         : "banded";
  return llvm::formatv("{0}/{1}/{2}/{3}/{4}{5}", machine, op.getD(), op.getDv(),
                       getTypeName(op.getElementType()), maskClass, isDecode(op) ? "/decode" : "");
}

/// The file's findings; none where there is no file.
static Expected<llvm::json::Object> load(StringRef file) {
  auto buffer = llvm::MemoryBuffer::getFile(file);
  if (!buffer) {
    if (buffer.getError() == std::errc::no_such_file_or_directory)
      return llvm::json::Object();
    return llvm::createStringError("cannot read '" + file + "': " + buffer.getError().message());
  }
  Expected<llvm::json::Value> content = llvm::json::parse((*buffer)->getBuffer());
  if (content)
    if (llvm::json::Object *object = content->getAsObject())
      if (object->getInteger("version") == kVersion)
        if (llvm::json::Object *schedules = object->getObject("schedules"))
          return std::move(*schedules);
  if (!content)
    llvm::consumeError(content.takeError());
  return llvm::createStringError(llvm::formatv(
      "expected tuned schedules of version {0} in {1}; delete it and tune again", kVersion, file));
}

void mlir::flashattn::applyTunedSchedules(ModuleOp module, const Machine &machine, StringRef file) {
  Expected<llvm::json::Object> found = load(file);
  if (!found) {
    module.emitWarning() << llvm::toString(found.takeError());
    return;
  }
  if (found->empty())
    return;
  module.walk([&](AttentionOp op) {
    if (op.getSchedule())
      return;
    const llvm::json::Object *finding = found->getObject(getTuningKey(op, machine.getName()));
    if (!finding)
      return;
    ScheduleAttr schedule =
        parseScheduleFields(finding->getString("schedule").value_or(""), op.getContext());
    if (schedule && explainRefusal(op, schedule, machine).empty())
      op.setScheduleAttr(schedule);
  });
}

Error mlir::flashattn::storeTunedSchedule(StringRef file, StringRef key, StringRef schedule,
                                          double ms) {
  Expected<llvm::json::Object> found = load(file);
  if (!found)
    return found.takeError();
  (*found)[key] = llvm::json::Object{{"schedule", schedule}, {"ms", ms}};
  if (std::error_code code = llvm::sys::fs::create_directories(llvm::sys::path::parent_path(file)))
    return llvm::createStringError("cannot make the folder of '" + file + "': " + code.message());
  llvm::json::Value content =
      llvm::json::Object{{"version", kVersion}, {"schedules", std::move(*found)}};
  return llvm::writeToOutput(file, [&](raw_ostream &os) {
    os << llvm::formatv("{0:1}\n", content);
    return Error::success();
  });
}
