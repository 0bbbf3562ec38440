//===- Signature.cpp ------------------------------------------------------===//

#include "flashattn/Pipelines/Signature.h"
#include "flashattn/Dialect/FlashAttn/IR/FlashAttn.h"
#include "flashattn/Pipelines/Compile.h"
#include "flashattn/Target/Tuned.h"
#include "llvm/ADT/StringExtras.h"

#include <map>

using namespace mlir;
using namespace mlir::flashattn;

const char *flashattn::getName(int32_t elementType) {
  switch (elementType) {
#define ELEMENT(NAME, TEXT, BYTES, CONDITION, CODE, C)                                             \
  case FLASHATTN_##NAME:                                                                           \
    return TEXT;
#include "flashattn/Pipelines/Elements.def"
  }
  return "no element type";
}

std::string flashattn::listElementTypes() {
  SmallVector<StringRef> names = {
#define ELEMENT(NAME, TEXT, BYTES, CONDITION, CODE, C) TEXT,
#include "flashattn/Pipelines/Elements.def"
  };
  StringRef last = names.pop_back_val();
  return llvm::join(names, ", ") + " or " + last.str();
}

/// Sets the element type; returns false for unsupported types.
static bool setElementType(Argument &argument, Type type) {
#define ELEMENT(NAME, TEXT, BYTES, CONDITION, CODE, C)                                             \
  if (CONDITION) {                                                                                 \
    argument.elementType = FLASHATTN_##NAME;                                                       \
    argument.elementBytes = BYTES;                                                                 \
    return true;                                                                                   \
  }
#include "flashattn/Pipelines/Elements.def"
  return false;
}

static int64_t orAny(int64_t value) { return ShapedType::isDynamic(value) ? -1 : value; }

/// Describes the argument. Returns the expected type if the type is unsupported, otherwise empty.
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
    // A product with an unknown size is unknown.
    int64_t known = 1;
    for (int i = argument.rank; i-- > 0;) {
      strides[i] = known;
      known = known == -1 || type.isDynamicDim(i) ? -1 : known * type.getDimSize(i);
    }
  }
  // A launch passes the address of the first element.
  if (offset != 0 && !ShapedType::isDynamic(offset))
    return "a memref with offset 0 or '?'";
  llvm::transform(strides, argument.strides, orAny);
  return {};
}

/// A10: describes the arguments that a score modification of `op` reads. A dimension whose index is
/// the batch or the head has the size of `sizes`, the dimensions of operands by letter.
static void describeLoads(Signature &signature, func::FuncOp function, KernelOpInterface op,
                          const std::map<char, ArgumentDim> &sizes) {
  auto attention = dyn_cast<AttentionOpInterface>(*op);
  if (!attention || !attention.hasScoreMod())
    return;
  Block &body = attention.getScoreMod().front();
  for (Operation &load : body) {
    std::optional<unsigned> found;
    if (isScoreModLoad(&load))
      found = getArgumentIndex(load.getOperand(0), function);
    if (!found)
      continue;
    signature.arguments[*found].direction |= FLASHATTN_INPUT;
    for (auto [dim, index] : llvm::enumerate(load.getOperands().drop_front())) {
      bool isBatch = index == body.getArgument(1);
      if (!isBatch && index != body.getArgument(2))
        continue;
      // S1: there is one start more than sequences.
      auto expected = sizes.find(isBatch ? 'B' : 'H');
      int more = 0;
      if (isBatch && expected == sizes.end()) {
        expected = sizes.find('C');
        more = -1;
      }
      if (expected != sizes.end())
        signature.sharedSizes.push_back({getSizeName(isBatch ? 'B' : 'H').data(),
                                         {int(*found), int(dim)},
                                         expected->second,
                                         more});
    }
  }
}

/// Describes the roles of arguments that are operands of `op`, and the sizes that they share with
/// the first argument that has the same dimension letter.
static void describeOperands(Signature &signature, func::FuncOp function, KernelOpInterface op) {
  std::map<char, ArgumentDim> first;
  std::optional<ArgumentDim> starts;
  for (const OperandRole &role : op.getOperandRoles()) {
    std::optional<unsigned> found = getArgumentIndex(role.value, function);
    if (!found)
      continue;
    Argument &argument = signature.arguments[*found];
    // An argument may have several roles; the first one is kept.
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
      if (dim == 'C' && !starts)
        starts = here;
      auto [known, isNew] = first.try_emplace(dim, here);
      if (!isNew && known->second.argument != here.argument)
        signature.sharedSizes.push_back({getSizeName(dim).data(), here, known->second});
    }
  }
  describeLoads(signature, function, op, first);
  // S1: one start more than batches.
  if (starts && first.count('B'))
    signature.sharedSizes.push_back({getSizeName('C').data(), *starts, first['B'], /*more=*/1});
  if (first.count('H') && first.count('G'))
    signature.sharedHeads.push_back({first['H'], first['G']});
}

static void describeRoles(Signature &signature, func::FuncOp function, StringRef chip) {
  SmallVector<KernelOpInterface> ops;
  function.walk([&](KernelOpInterface op) { ops.push_back(op); });
  for (KernelOpInterface op : ops) {
    // With several ops of a kind, nothing is described, because they need not all run.
    if (llvm::count_if(ops, [&](Operation *o) { return o->getName() == op->getName(); }) != 1)
      continue;
    // The class of a mask does not depend on the vector width.
    auto attention = dyn_cast<AttentionOpInterface>(*op);
    if (attention && (signature.tuningKey.empty() || isa<AttentionOp>(*op)))
      signature.tuningKey = getTuningKey(attention, chip);
    describeOperands(signature, function, op);
  }
}

/// Whether kernels on a GPU may copy the memref in chunks of 16 bytes, which its rows must allow.
/// This depends on what is known about the rows, unless all uses are operands without rows.
static bool movesChunks(Value memref) {
  if (!hasAlignedRows(memref))
    return false;
  return llvm::any_of(memref.getUsers(), [&](Operation *user) {
    if (isScoreModLoad(user))
      return false;
    auto op = dyn_cast<KernelOpInterface>(user);
    return !op || llvm::any_of(op.getOperandRoles(), [&](const OperandRole &role) {
      return role.value == memref && role.rule->hasRows();
    });
  });
}

void flashattn::describe(Signature &signature, func::FuncOp function, StringRef chip) {
  signature.function = function.getName().str();
  auto refuse = [&](const llvm::Twine &what, const llvm::Twine &expected, Type type) {
    if (signature.reason.empty())
      signature.reason = llvm::formatv("{0} of function '{1}': expected {2} but got {3}",
                                       what.str(), signature.function, expected.str(), type)
                             .str();
  };
  for (BlockArgument value : function.getArguments()) {
    Type type = value.getType();
    Argument argument;
    std::string what = ("argument " + llvm::Twine(value.getArgNumber())).str();
    auto shaped = dyn_cast<ShapedType>(type);
    bool known = setElementType(argument, shaped ? shaped.getElementType() : type);
    if (isa<MemRefType, RankedTensorType>(type)) {
      std::string expected =
          known ? describeShaped(argument, shaped) : "elements of " + listElementTypes();
      if (!expected.empty() || isa<RankedTensorType>(type))
        refuse(what, expected.empty() ? "a memref" : expected, type);
      if (!expected.empty()) {
        signature.arguments.clear();
        return;
      }
    } else {
      argument.kind = FLASHATTN_ARGUMENT_SCALAR;
      argument.direction = FLASHATTN_INPUT;
      if (!known || shaped || (isa<FloatType>(type) && !type.isF32())) {
        refuse(what, "a memref, an f32, an index or an integer of 1, 8, 32 or 64 bits", type);
        signature.arguments.clear();
        return;
      }
    }
    if (isa<MemRefType>(type)) {
      Access access = getAccess(value);
      argument.direction =
          (access.reads ? FLASHATTN_INPUT : 0) | (access.writes ? FLASHATTN_OUTPUT : 0);
      argument.hasAlignedRows = isPromisedAlignedRows(value);
      argument.needsAlignedPointer =
          argument.hasAlignedRows || (chip != "cpu" && movesChunks(value));
      signature.descriptorWords += 3 + 2 * argument.rank;
    }
    signature.arguments.push_back(argument);
  }
  if (function.getNumResults() != 0 && signature.reason.empty())
    signature.reason = llvm::formatv("function '{0}': expected no results, because results are "
                                     "stored to memrefs, but got {1}",
                                     signature.function, function.getNumResults())
                           .str();
  describeRoles(signature, function, chip);
}
