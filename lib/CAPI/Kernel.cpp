//===- Kernel.cpp - handles and queries -----------------------------------===//

#include "Kernel.h"
#include "flashattn/Dialect/FlashAttn/IR/FlashAttn.h"
#include "llvm/ADT/StringSwitch.h"

#include <atomic>
#include <mutex>

using namespace mlir;
using namespace mlir::flashattn;
using namespace mlir::flashattn::capi;

//===----------------------------------------------------------------------===//
// Handles
//===----------------------------------------------------------------------===//

namespace {

/// A handle consists of the index and the generation of a slot. It is not an address, so a freed
/// handle is recognized without reading freed memory.
constexpr unsigned kIndexBits = 16;
constexpr size_t kNumSlots = size_t(1) << kIndexBits;

struct Slot {
  std::atomic<uint64_t> generation;
  std::atomic<Kernel *> kernel;
};

} // namespace

// Not destroyed: threads may still launch while the process exits.
static Slot slots[kNumSlots];
static std::mutex slotMutex;
static size_t nextSlot = 0;

int32_t capi::makeHandle(std::unique_ptr<Kernel> kernel, FlashAttnKernel *handle) {
  std::lock_guard<std::mutex> lock(slotMutex);
  for (size_t tried = 0; tried < kNumSlots; ++tried) {
    size_t index = nextSlot++ % kNumSlots;
    Slot &slot = slots[index];
    if (slot.kernel)
      continue;
    // Counts from 1, so that no handle is NULL.
    uint64_t generation = ++slot.generation;
    slot.kernel = kernel.release();
    *handle = reinterpret_cast<FlashAttnKernel>(generation << kIndexBits | index);
    return FLASHATTN_OK;
  }
  return failWith(FLASHATTN_ERROR_INVALID_ARGUMENT,
                  "expected at most {0} kernels at once but got one more: free unused kernels",
                  kNumSlots);
}

/// Returns the slot and the generation of a handle.
static std::pair<Slot &, uint64_t> getSlot(FlashAttnKernel handle) {
  auto bits = reinterpret_cast<uint64_t>(handle);
  return {slots[bits & (kNumSlots - 1)], bits >> kIndexBits};
}

static int32_t failHandle(FlashAttnKernel handle) {
  auto [slot, generation] = getSlot(handle);
  if (!handle)
    return fail(FLASHATTN_ERROR_INVALID_HANDLE, "expected a kernel but got null");
  bool wasOne = generation != 0 && generation <= slot.generation;
  return fail(FLASHATTN_ERROR_INVALID_HANDLE, wasOne
                                                  ? "expected a kernel but got one that was freed"
                                                  : "expected a kernel but got an invalid handle");
}

const Kernel *capi::getKernel(FlashAttnKernel handle) {
  auto [slot, generation] = getSlot(handle);
  const Kernel *kernel = slot.kernel.load(std::memory_order_acquire);
  if (kernel && slot.generation.load(std::memory_order_relaxed) == generation)
    return kernel;
  failHandle(handle);
  return nullptr;
}

extern "C" int32_t flashattnKernelFree(FlashAttnKernel handle) {
  if (!handle)
    return FLASHATTN_OK;
  std::unique_ptr<Kernel> kernel;
  {
    std::lock_guard<std::mutex> lock(slotMutex);
    auto [slot, generation] = getSlot(handle);
    if (slot.kernel && slot.generation == generation)
      kernel.reset(slot.kernel.exchange(nullptr));
  }
  return kernel ? int32_t(FLASHATTN_OK) : failHandle(handle);
}

//===----------------------------------------------------------------------===//
// Queries
//===----------------------------------------------------------------------===//

extern "C" int32_t flashattnKernelGetInfo(FlashAttnKernel handle, FlashAttnKernelInfo *info) {
  const Kernel *kernel = getKernel(handle);
  if (!kernel)
    return FLASHATTN_ERROR_INVALID_HANDLE;
  if (int32_t status =
          checkStruct(info, "FlashAttnKernelInfo", offsetof(FlashAttnKernelInfo, tuningKey)))
    return status;
  FlashAttnKernelInfo result{};
  result.function = kernel->function.c_str();
  result.chip = kernel->chip.c_str();
  result.device = kernel->deviceNumber;
  result.isLaunchable = kernel->reason.empty();
  result.notLaunchableReason = kernel->reason.c_str();
  result.numArguments = kernel->arguments.size();
  result.numStages = kernel->stages.size();
  result.workspaceBytes = kernel->workspaceBytes;
  result.tuningKey = kernel->tuningKey.c_str();
  {
    std::lock_guard<std::mutex> lock(kernel->textsMutex);
    for (const Stage &stage : kernel->texts)
      result.hostBytes += stage.text.capacity();
  }
  if (kernel->executable)
    result.hostBytes += kernel->executable->getCodeBytes();
  fillStruct(info, result);
  return FLASHATTN_OK;
}

extern "C" int32_t flashattnKernelGetArgument(FlashAttnKernel handle, int32_t index,
                                              FlashAttnArgumentInfo *info) {
  const Kernel *kernel = getKernel(handle);
  if (!kernel)
    return FLASHATTN_ERROR_INVALID_HANDLE;
  if (int32_t status = checkStruct(info, "FlashAttnArgumentInfo"))
    return status;
  if (index < 0 || size_t(index) >= kernel->arguments.size())
    return failWith(FLASHATTN_ERROR_INVALID_ARGUMENT,
                    "expected an argument number below {0} but got {1}", kernel->arguments.size(),
                    index);
  const Argument &argument = kernel->arguments[index];
  FlashAttnArgumentInfo result{};
  result.kind = argument.kind;
  result.elementType = argument.elementType;
  result.elementBytes = argument.elementBytes;
  result.rank = argument.rank;
  result.direction = argument.direction;
  result.alignedRows = argument.hasAlignedRows;
  llvm::copy(argument.sizes, result.sizes);
  llvm::copy(argument.strides, result.strides);
  result.role = argument.role;
  fillStruct(info, result);
  return FLASHATTN_OK;
}

/// Returns a bit for each FlashAttnElementType that the rule allows.
static int32_t getElementTypes(ElementRule rule) {
  switch (rule) {
  case ElementRule::Float:
  case ElementRule::LikeFirst:
  case ElementRule::LikeFirstOrF32:
    return 1 << FLASHATTN_F16 | 1 << FLASHATTN_BF16 | 1 << FLASHATTN_F32;
  case ElementRule::FloatOrF8:
    return getElementTypes(ElementRule::Float) | 1 << FLASHATTN_F8E4M3FN | 1 << FLASHATTN_F8E5M2;
  case ElementRule::LikeFirstOrNarrow:
    return getElementTypes(ElementRule::LikeFirst) | 1 << FLASHATTN_F8E4M3FN |
           1 << FLASHATTN_F8E5M2 | 1 << FLASHATTN_I8;
  case ElementRule::F32:
  case ElementRule::Factor:
    return 1 << FLASHATTN_F32;
  case ElementRule::I1:
    return 1 << FLASHATTN_I1;
  case ElementRule::I32:
    return 1 << FLASHATTN_I32;
  case ElementRule::Position:
    return 1 << FLASHATTN_INDEX;
  }
  llvm_unreachable("unknown rule");
}

/// Returns FlashAttnOperandInfo::likeFirst.
static int32_t getLikeFirst(ElementRule rule) {
  switch (rule) {
  case ElementRule::LikeFirst:
    return 1;
  case ElementRule::LikeFirstOrF32:
    return 2;
  case ElementRule::LikeFirstOrNarrow:
    return 3;
  default:
    return 0;
  }
}

extern "C" int32_t flashattnGetOperand(const char *op, int32_t index, FlashAttnOperandInfo *info) {
  if (!op)
    return fail(FLASHATTN_ERROR_INVALID_ARGUMENT, "expected the name of an op but got null");
  if (int32_t status = checkStruct(info, "FlashAttnOperandInfo"))
    return status;
  auto rules = llvm::StringSwitch<ArrayRef<OperandRule>>(op)
                   .Case("attention", AttentionOp::getOperandRules())
                   .Case("attention_backward", AttentionBackwardOp::getOperandRules())
                   .Case("combine", CombineOp::getOperandRules())
                   .Case("project", ProjectOp::getOperandRules())
                   .Default({});
  if (rules.empty())
    return failWith(FLASHATTN_ERROR_INVALID_ARGUMENT,
                    "expected the op to be 'attention', 'attention_backward', 'combine' or "
                    "'project' but got '{0}'",
                    op);
  if (index < 0 || size_t(index) >= rules.size())
    return failWith(FLASHATTN_ERROR_INVALID_ARGUMENT,
                    "expected an operand number below {0} but got {1}", rules.size(), index);
  const OperandRule &rule = rules[index];
  FlashAttnOperandInfo result{};
  result.numOperands = rules.size();
  result.kind = rule.isScalar() ? FLASHATTN_ARGUMENT_SCALAR : FLASHATTN_ARGUMENT_MEMREF;
  result.direction = rule.is(OperandRule::Output) ? FLASHATTN_OUTPUT : FLASHATTN_INPUT;
  result.isOptional = rule.is(OperandRule::Optional);
  result.broadcasts = rule.is(OperandRule::Broadcasts);
  result.followsLayout = rule.is(OperandRule::FollowsLayout);
  result.isVariadic = rule.is(OperandRule::Variadic);
  result.elementTypes = getElementTypes(rule.element);
  result.likeFirst = getLikeFirst(rule.element);
  result.name = rule.name.data();
  result.dims = rule.dims.data();
  fillStruct(info, result);
  return FLASHATTN_OK;
}

extern "C" int32_t flashattnKernelGetStage(FlashAttnKernel handle, int32_t index,
                                           const char **name) {
  const Kernel *kernel = getKernel(handle);
  if (!kernel)
    return FLASHATTN_ERROR_INVALID_HANDLE;
  if (!name)
    return fail(FLASHATTN_ERROR_INVALID_ARGUMENT,
                "expected a pointer that receives the name but got null");
  if (index < 0 || size_t(index) >= kernel->stages.size())
    return failWith(FLASHATTN_ERROR_INVALID_ARGUMENT,
                    "expected a stage number below {0} but got {1}", kernel->stages.size(), index);
  *name = kernel->stages[index].c_str();
  return FLASHATTN_OK;
}

extern "C" int32_t flashattnKernelGetText(FlashAttnKernel handle, const char *stage,
                                          const char **text, size_t *length) {
  const Kernel *kernel = getKernel(handle);
  if (!kernel)
    return FLASHATTN_ERROR_INVALID_HANDLE;
  if (!stage || !text)
    return fail(FLASHATTN_ERROR_INVALID_ARGUMENT,
                "expected non-null pointers 'stage' and 'text' but got null");
  if (!llvm::is_contained(kernel->stages, stage))
    return failWith(FLASHATTN_ERROR_INVALID_ARGUMENT,
                    "expected the stage to be one of '{0}' but got '{1}'",
                    llvm::join(kernel->stages, "', '"), stage);
  const std::string *found = getText(*kernel, stage);
  if (!found)
    return FLASHATTN_ERROR_COMPILE;
  *text = found->c_str();
  if (length)
    *length = found->size();
  return FLASHATTN_OK;
}
