//===- Kernel.cpp - handles and queries ------------------------------------===//

#include "Kernel.h"
#include "flashattn/Dialect/FlashAttn/IR/FlashAttn.h"
#include "flashattn/Pipelines/Compile.h"
#include "flashattn/Target/Tuned.h"
#include "llvm/ADT/StringSwitch.h"

#include <atomic>
#include <map>
#include <mutex>

using namespace mlir;
using namespace mlir::flashattn;
using namespace mlir::flashattn::capi;

//===----------------------------------------------------------------------===//
// Handles
//===----------------------------------------------------------------------===//

namespace {

/// A handle is a place in the table and how often that was taken, not an address: a freed one
/// is known for what it is, and no memory of it is read.
constexpr unsigned kIndexBits = 16;
constexpr size_t kNumSlots = size_t(1) << kIndexBits;

struct Slot {
  std::atomic<uint64_t> generation;
  std::atomic<Kernel *> kernel;
};

} // namespace

// Not destroyed: threads may still launch while the process ends.
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
                  "expected fewer than {0} kernels at once: free those that are not in use",
                  kNumSlots);
}

/// Where a handle lies and its generation.
static std::pair<Slot &, uint64_t> getSlot(FlashAttnKernel handle) {
  auto bits = reinterpret_cast<uint64_t>(handle);
  return {slots[bits & (kNumSlots - 1)], bits >> kIndexBits};
}

static int32_t failHandle(FlashAttnKernel handle) {
  auto [slot, generation] = getSlot(handle);
  if (!handle)
    return fail(FLASHATTN_ERROR_INVALID_HANDLE, "expected a kernel but got null");
  bool wasOne = generation != 0 && generation <= slot.generation;
  return fail(FLASHATTN_ERROR_INVALID_HANDLE,
              wasOne ? "expected a kernel but got one that was freed"
                     : "expected a kernel but got a handle that never was one");
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
// Arguments
//===----------------------------------------------------------------------===//

const char *capi::getName(int32_t elementType) {
  static const char *const names[] = {"f16", "bf16", "f32", "f64",  "i1",
                                      "i8",  "i32",  "i64", "index"};
  if (elementType < FLASHATTN_F16 || elementType > FLASHATTN_INDEX)
    return "no element type";
  return names[elementType - FLASHATTN_F16];
}

/// Fills the element type; false for types that have none here.
static bool setElementType(Argument &argument, Type type) {
  std::pair<FlashAttnElementType, int64_t> known = {};
  if (type.isF16())
    known = {FLASHATTN_F16, 2};
  else if (type.isBF16())
    known = {FLASHATTN_BF16, 2};
  else if (type.isF32())
    known = {FLASHATTN_F32, 4};
  else if (type.isF64())
    known = {FLASHATTN_F64, 8};
  else if (type.isInteger(1))
    known = {FLASHATTN_I1, 1};
  else if (type.isInteger(8))
    known = {FLASHATTN_I8, 1};
  else if (type.isInteger(32))
    known = {FLASHATTN_I32, 4};
  else if (type.isInteger(64))
    known = {FLASHATTN_I64, 8};
  else if (type.isIndex())
    known = {FLASHATTN_INDEX, 8};
  else
    return false;
  std::tie(argument.elementType, argument.elementBytes) = known;
  return true;
}

static int64_t orAny(int64_t value) { return ShapedType::isDynamic(value) ? -1 : value; }

/// Returns what was expected of the type; empty if the argument is described.
static std::string describeShaped(Argument &argument, ShapedType type) {
  argument.rank = type.getRank();
  if (argument.rank > FLASHATTN_MAX_RANK)
    return llvm::formatv("a rank of at most {0}", int(FLASHATTN_MAX_RANK)).str();
  llvm::transform(type.getShape(), argument.sizes, orAny);
  auto memref = dyn_cast<MemRefType>(type);
  argument.isDense = !memref || memref.getLayout().isIdentity();
  SmallVector<int64_t> strides;
  int64_t offset = 0;
  if (memref) {
    if (failed(memref.getStridesAndOffset(strides, offset)))
      return "a strided memref";
  } else {
    strides.resize(argument.rank);
    // Products with an unknown size are unknown.
    int64_t known = 1;
    for (int i = argument.rank; i-- > 0;) {
      strides[i] = known;
      known = known == -1 || type.isDynamicDim(i) ? -1 : known * type.getDimSize(i);
    }
  }
  // The pointer of a launch is that of the first element.
  if (offset != 0 && !ShapedType::isDynamic(offset))
    return "a memref with offset 0 or '?'";
  llvm::transform(strides, argument.strides, orAny);
  return {};
}

/// Roles of the arguments that are operands of `op`, and what they share: the sizes of each letter
/// with the first argument that has it.
static void describeOperands(Kernel &kernel, func::FuncOp function, KernelOpInterface op) {
  std::map<char, ArgumentDim> first;
  for (const OperandRole &role : op.getOperandRoles()) {
    std::optional<unsigned> found = getArgumentIndex(role.value, function);
    if (!found)
      continue;
    Argument &argument = kernel.arguments[*found];
    // An argument may be several: the first stays.
    if (!*argument.role)
      argument.role = role.getName().data();
    argument.isPosition |= role.rule->element == ElementRule::Position;
    argument.isFactor |= role.rule->element == ElementRule::Factor;
    if (isa<RankedTensorType>(role.value.getType()))
      argument.direction |= role.rule->is(OperandRule::Output) ? FLASHATTN_OUTPUT : FLASHATTN_INPUT;
    for (auto [i, dim] : llvm::enumerate(role.dims)) {
      if (dim == '1')
        continue;
      ArgumentDim here{int(*found), int(i)};
      auto [known, isNew] = first.try_emplace(dim, here);
      if (!isNew && known->second.argument != here.argument)
        kernel.sharedSizes.push_back({getSizeName(dim).data(), here, known->second});
    }
  }
  if (first.count('H') && first.count('G'))
    kernel.sharedHeads.push_back({first['H'], first['G']});
}

static void describeRoles(Kernel &kernel, func::FuncOp function) {
  SmallVector<KernelOpInterface> ops;
  function.walk([&](KernelOpInterface op) { ops.push_back(op); });
  for (KernelOpInterface op : ops) {
    // Of several of a kind nothing is said: they need not all run.
    if (llvm::count_if(ops, [&](Operation *o) { return o->getName() == op->getName(); }) != 1)
      continue;
    // Masks have the same shape whatever the width of vectors.
    auto attention = dyn_cast<AttentionOpInterface>(*op);
    if (attention && (kernel.tuningKey.empty() || isa<AttentionOp>(*op)))
      kernel.tuningKey = getTuningKey(attention, kernel.chip);
    describeOperands(kernel, function, op);
  }
}

/// Whether a GPU's kernels may move the memref 16 bytes at a time, which their rows must allow:
/// what is known of them decides, unless the memref is nothing but operands without rows.
static bool movesChunks(Value memref) {
  if (!hasAlignedRows(memref))
    return false;
  return llvm::any_of(memref.getUsers(), [&](Operation *user) {
    auto op = dyn_cast<KernelOpInterface>(user);
    return !op || llvm::any_of(op.getOperandRoles(), [&](const OperandRole &role) {
      return role.value == memref && role.rule->hasRows();
    });
  });
}

void capi::describe(Kernel &kernel, func::FuncOp function) {
  kernel.function = function.getName().str();
  auto refuse = [&](const llvm::Twine &what, const llvm::Twine &expected, Type type) {
    if (kernel.reason.empty())
      kernel.reason = llvm::formatv("{0} of function '{1}': expected {2} but got {3}", what.str(),
                                    kernel.function, expected.str(), type)
                          .str();
  };
  for (BlockArgument value : function.getArguments()) {
    Type type = value.getType();
    Argument argument;
    std::string what = ("argument " + llvm::Twine(value.getArgNumber())).str();
    auto shaped = dyn_cast<ShapedType>(type);
    bool known = setElementType(argument, shaped ? shaped.getElementType() : type);
    if (isa<MemRefType, RankedTensorType>(type)) {
      std::string expected = known ? describeShaped(argument, shaped)
                                   : "elements of f16, bf16, f32, f64, i1, i8, i32, i64 or index";
      if (!expected.empty() || isa<RankedTensorType>(type))
        refuse(what, expected.empty() ? "a memref" : expected, type);
      if (!expected.empty()) {
        kernel.arguments.clear();
        return;
      }
    } else {
      argument.kind = FLASHATTN_ARGUMENT_SCALAR;
      argument.direction = FLASHATTN_INPUT;
      if (!known || (isa<FloatType>(type) && !type.isF32())) {
        refuse(what, "a memref, an f32, an index or an integer of 1, 8, 32 or 64 bits", type);
        kernel.arguments.clear();
        return;
      }
    }
    if (isa<MemRefType>(type)) {
      Access access = getAccess(value);
      argument.direction =
          (access.reads ? FLASHATTN_INPUT : 0) | (access.writes ? FLASHATTN_OUTPUT : 0);
      argument.hasAlignedRows = isPromisedAlignedRows(value);
      argument.needsAlignedPointer =
          argument.hasAlignedRows || (kernel.chip != "cpu" && movesChunks(value));
      kernel.descriptorWords += 3 + 2 * argument.rank;
    }
    kernel.arguments.push_back(argument);
  }
  if (function.getNumResults() != 0 && kernel.reason.empty())
    kernel.reason = llvm::formatv("function '{0}': expected no results, what it computes being "
                                  "stored to memrefs, but got {1}",
                                  kernel.function, function.getNumResults())
                        .str();
  describeRoles(kernel, function);
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
  for (const Stage &stage : kernel->stages)
    result.hostBytes += stage.text.capacity();
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

/// A bit for each FlashAttnElementType that the rule allows.
static int32_t getElementTypes(ElementRule rule) {
  switch (rule) {
  case ElementRule::Float:
  case ElementRule::LikeFirst:
  case ElementRule::LikeFirstOrF32:
    return 1 << FLASHATTN_F16 | 1 << FLASHATTN_BF16 | 1 << FLASHATTN_F32;
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
  result.elementTypes = getElementTypes(rule.element);
  result.likeFirst = rule.element == ElementRule::LikeFirst        ? 1
                     : rule.element == ElementRule::LikeFirstOrF32 ? 2
                                                                   : 0;
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
    return fail(FLASHATTN_ERROR_INVALID_ARGUMENT, "expected a place for the name but got null");
  if (index < 0 || size_t(index) >= kernel->stages.size())
    return failWith(FLASHATTN_ERROR_INVALID_ARGUMENT,
                    "expected a stage number below {0} but got {1}", kernel->stages.size(), index);
  *name = kernel->stages[index].name.c_str();
  return FLASHATTN_OK;
}

extern "C" int32_t flashattnKernelGetText(FlashAttnKernel handle, const char *stage,
                                          const char **text, size_t *length) {
  const Kernel *kernel = getKernel(handle);
  if (!kernel)
    return FLASHATTN_ERROR_INVALID_HANDLE;
  if (!stage || !text)
    return fail(FLASHATTN_ERROR_INVALID_ARGUMENT,
                "expected a stage and a place for its text but got null");
  std::string names;
  for (const Stage &known : kernel->stages) {
    if (known.name == stage) {
      *text = known.text.c_str();
      if (length)
        *length = known.text.size();
      return FLASHATTN_OK;
    }
    names += (names.empty() ? "'" : ", '") + known.name + "'";
  }
  return failWith(FLASHATTN_ERROR_INVALID_ARGUMENT,
                  "expected the stage to be one of {0} but got '{1}'", names, stage);
}
