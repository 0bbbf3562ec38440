//===- Schedules.cpp - schedules as text, and tuned schedules -------------===//

#include "flashattn/Target/Schedules.h"
#include "Status.h"
#include "flashattn/Pipelines/Compile.h"
#include "flashattn/Target/Tuned.h"
#include "mlir/IR/MLIRContext.h"

using namespace mlir;
using namespace mlir::flashattn;
using namespace mlir::flashattn::capi;

/// Keeps the text that was last returned on this thread.
static const char *keepText(std::string text) {
  static thread_local std::string kept;
  kept = std::move(text);
  return kept.c_str();
}

/// Returns f16, bf16 or f32; null, with the message set, for any other type.
static FloatType getElementType(int32_t number) {
  // Only its built-in types are read, which several threads may do at once.
  static MLIRContext context(MLIRContext::Threading::DISABLED);
  switch (number) {
  case FLASHATTN_F16:
    return Float16Type::get(&context);
  case FLASHATTN_BF16:
    return BFloat16Type::get(&context);
  case FLASHATTN_F32:
    return Float32Type::get(&context);
  }
  failWith(FLASHATTN_ERROR_INVALID_ARGUMENT,
           "expected FLASHATTN_F16, FLASHATTN_BF16 or FLASHATTN_F32 as element type but got {0}",
           number);
  return {};
}

extern "C" int32_t flashattnScheduleComplete(const char *fields, int32_t elementType, int32_t onCPU,
                                             const char **text) {
  if (!fields || !text)
    return fail(FLASHATTN_ERROR_INVALID_ARGUMENT,
                "expected non-null pointers 'fields' and 'text' but got null");
  *text = "";
  FloatType element = getElementType(elementType);
  if (!element)
    return FLASHATTN_ERROR_INVALID_ARGUMENT;
  auto completed = completeSchedule(fields, element, onCPU != 0);
  if (!completed)
    return fail(FLASHATTN_ERROR_INVALID_ARGUMENT, completed.takeError());
  // Omitted sizes are chosen when the op is compiled.
  *text = keepText(*completed ? formatFields(**completed) : fields);
  return FLASHATTN_OK;
}

extern "C" int32_t flashattnGetTrials(const FlashAttnTrialOptions *options, const char **text) {
  if (int32_t status =
          checkStruct(options, "FlashAttnTrialOptions", offsetof(FlashAttnTrialOptions, gradients)))
    return status;
  if (!options->chip || !text)
    return fail(FLASHATTN_ERROR_INVALID_ARGUMENT,
                "expected non-null pointers 'options->chip' and 'text' but got null");
  *text = "";
  FloatType element = getElementType(options->elementType);
  if (!element)
    return FLASHATTN_ERROR_INVALID_ARGUMENT;
  auto machine = Machine::get(options->chip,
                              options->vectorWidth ? options->vectorWidth : getHostVectorWidth());
  if (!machine)
    return fail(FLASHATTN_ERROR_INVALID_ARGUMENT, machine.takeError());
  if (options->group < 1)
    return failWith(FLASHATTN_ERROR_INVALID_ARGUMENT,
                    "expected a group of at least 1 head but got {0}", options->group);
  auto take = [](const FlashAttnNumbers &numbers) {
    return SmallVector<int64_t>(numbers.values, numbers.values + numbers.count);
  };
  TrialGrid grid{take(options->tileM),       take(options->tileN),     take(options->warps),
                 take(options->stages),      take(options->consumers), take(options->registers),
                 take(options->blocksPerSM), take(options->pack)};
  TrialProblem problem;
  problem.element = element;
  problem.group = options->group;
  problem.packs = options->packs != 0;
  problem.gradients = options->size == sizeof(*options) && options->gradients != 0;
  std::string lines;
  for (const ScheduleFields &fields : getTrials(problem, *machine, grid))
    lines += (lines.empty() ? "" : "\n") + formatFields(fields);
  *text = keepText(std::move(lines));
  return FLASHATTN_OK;
}

extern "C" int32_t flashattnTunedGetPath(const char **path) {
  if (!path)
    return fail(FLASHATTN_ERROR_INVALID_ARGUMENT,
                "expected a pointer that receives the path but got null");
  *path = keepText(getTunedSchedulesPath());
  return FLASHATTN_OK;
}

/// Returns `file`, or the user's file if it is null.
static llvm::Expected<std::string> getFile(const char *file) {
  std::string path = file ? file : getTunedSchedulesPath();
  if (path.empty())
    return llvm::createStringError(
        "expected a file for tuned schedules or a home folder but got neither");
  return path;
}

extern "C" int32_t flashattnTunedLoad(const char *file, const char **json) {
  if (!json)
    return fail(FLASHATTN_ERROR_INVALID_ARGUMENT,
                "expected a pointer that receives the text but got null");
  *json = "";
  auto path = getFile(file);
  if (!path)
    return fail(FLASHATTN_ERROR_INVALID_ARGUMENT, path.takeError());
  auto found = loadTunedSchedules(*path);
  if (!found)
    return fail(FLASHATTN_ERROR_INVALID_ARGUMENT, found.takeError());
  *json = keepText(llvm::formatv("{0}", llvm::json::Value(std::move(*found))));
  return FLASHATTN_OK;
}

extern "C" int32_t flashattnTunedStore(const char *file, const char *key, const char *finding) {
  auto store = [&]() -> llvm::Error {
    auto path = getFile(file);
    if (!path)
      return path.takeError();
    if (!finding)
      return checkTunedSchedules(*path);
    if (!key)
      return llvm::createStringError("expected the key of a finding but got null");
    auto value = llvm::json::parse(finding);
    if (!value)
      return value.takeError();
    llvm::json::Object *object = value->getAsObject();
    if (!object || !object->getString("schedule"))
      return llvm::createStringError(
          "expected the finding to be a JSON object with a schedule but got " +
          llvm::Twine(finding));
    return storeTunedSchedule(*path, key, std::move(*object));
  };
  if (llvm::Error error = store())
    return fail(FLASHATTN_ERROR_INVALID_ARGUMENT, std::move(error));
  return FLASHATTN_OK;
}
