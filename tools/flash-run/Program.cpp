//===- Program.cpp - collects the properties of a function ----------------===//

#include "Program.h"
#include "flashattn/Dialect/FlashAttn/IR/FlashAttn.h"
#include "flashattn/Pipelines/Signature.h"

using namespace mlir;
using namespace mlir::flashattn;
using llvm::Error;
using llvm::Expected;

static Expected<ValueInfo> getInfo(Type type, const llvm::Twine &what) {
  auto fail = [&](const llvm::Twine &expected) {
    std::string text;
    llvm::raw_string_ostream(text) << type;
    return llvm::createStringError(what + ": expected " + expected + " but got " + text);
  };
  ValueInfo info;
  auto shaped = dyn_cast<ShapedType>(type);
  std::optional<Scalar> scalar = getScalar(shaped ? shaped.getElementType() : type);
  if (!scalar)
    return fail(listElementTypes() + ", or a ranked tensor or memref of one of these types");
  info.scalar = *scalar;
  info.isScalar = !shaped;
  if (!shaped)
    return info;
  if (!isa<RankedTensorType, MemRefType>(type))
    return fail("a ranked tensor or memref");
  info.shape.assign(shaped.getShape().begin(), shaped.getShape().end());
  if (auto memref = dyn_cast<MemRefType>(type)) {
    // flash-run passes contiguous buffers, which the layout must allow.
    SmallVector<int64_t> strides;
    int64_t offset, expected = 1;
    bool fits = succeeded(memref.getStridesAndOffset(strides, offset)) &&
                (offset == 0 || ShapedType::isDynamic(offset));
    for (int64_t i = int64_t(strides.size()) - 1; fits && i >= 0; --i) {
      fits = ShapedType::isDynamic(strides[i]) || ShapedType::isDynamic(expected) ||
             strides[i] == expected || info.shape[i] == 1;
      expected = ShapedType::isDynamic(expected) || ShapedType::isDynamic(info.shape[i])
                     ? ShapedType::kDynamic
                     : expected * info.shape[i];
    }
    if (!fits)
      return fail("a contiguous memref");
  }
  return info;
}

/// Looks through casts that only change the static information about a shape.
static Value stripCasts(Value value) {
  while (auto *op = value.getDefiningOp()) {
    if (!isa<tensor::CastOp, memref::CastOp>(op))
      break;
    value = op->getOperand(0);
  }
  return value;
}

/// Returns the ops in the function's body and the sources of their operands.
static std::vector<OpOfFunction> findOps(func::FuncOp function) {
  std::vector<OpOfFunction> ops;
  // For each value: the op that produced it, or the last op that wrote it, and the role there.
  DenseMap<Value, std::pair<unsigned, unsigned>> producers;
  function.walk([&](Operation *operation) {
    std::optional<CheckedOp> op = CheckedOp::create(operation);
    if (!op)
      return;
    OpOfFunction &found = ops.emplace_back();
    found.op = std::move(*op);
    unsigned result = 0;
    for (auto [i, role] : llvm::enumerate(found.op.roles)) {
      OpOfFunction::Source &source = found.sources.emplace_back();
      source.argument = getArgumentIndex(role.value, function);
      if (auto type = dyn_cast<ShapedType>(role.value.getType()))
        source.shape = SmallVector<int64_t>(type.getShape());
      Value value = stripCasts(role.value);
      if (role.rule->is(OperandRule::Output)) {
        if (result < operation->getNumResults())
          value = operation->getResult(result++);
        producers[value] = {unsigned(ops.size() - 1), unsigned(i)};
      } else if (auto producer = producers.find(value); producer != producers.end()) {
        source.producer = producer->second;
      } else if (std::optional<HostTensor> constant = getConstant(value)) {
        source.constant = std::make_shared<HostTensor>(std::move(*constant));
      }
    }
    if (found.op.attention.scoreMod)
      for (Value value : found.op.attention.scoreMod->getCaptured()) {
        OpOfFunction::Source &source = found.captured.emplace_back();
        source.argument = getArgumentIndex(value, function);
        source.isTensor = isa<ShapedType>(value.getType());
        if (std::optional<HostTensor> constant = getConstant(stripCasts(value)))
          source.constant = std::make_shared<HostTensor>(std::move(*constant));
      }
  });
  return ops;
}

Expected<Program> flashattn::analyze(ModuleOp module, StringRef name) {
  Expected<func::FuncOp> found = findFunction(module, name, "--function");
  if (!found)
    return found.takeError();
  func::FuncOp function = *found;
  Program program;
  program.function = function.getName().str();
  for (auto [i, argument] : llvm::enumerate(function.getArguments())) {
    Expected<ValueInfo> info =
        getInfo(argument.getType(),
                "argument " + llvm::Twine(i) + " of function '" + program.function + "'");
    if (!info)
      return info.takeError();
    if (isa<MemRefType>(argument.getType())) {
      auto [reads, writes] = getAccess(argument);
      info->isWriteOnly = writes && !reads;
      info->isWritten = writes;
      if (writes && function.getNumResults() == 0)
        program.outputs.push_back({/*isArgument=*/true, unsigned(i)});
    } else if (isa<RankedTensorType>(argument.getType())) {
      // The dialect's ops overwrite their inits completely and do not read them.
      info->isWriteOnly =
          !argument.use_empty() && llvm::all_of(argument.getUses(), [&](OpOperand &use) {
            auto op = dyn_cast<DestinationStyleOpInterface>(use.getOwner());
            return isa<KernelOpInterface>(use.getOwner()) && op.isDpsInit(&use);
          });
    }
    program.arguments.push_back(*info);
  }
  for (auto [i, type] : llvm::enumerate(function.getResultTypes())) {
    Expected<ValueInfo> info =
        getInfo(type, "result " + llvm::Twine(i) + " of function '" + program.function + "'");
    if (!info)
      return info.takeError();
    if (info->isScalar)
      return llvm::createStringError(
          llvm::formatv("result {0} of function '{1}': expected a tensor or memref but got {2}", i,
                        program.function, type)
              .str());
    program.results.push_back(*info);
    program.outputs.push_back({/*isArgument=*/false, unsigned(i)});
  }
  program.ops = findOps(function);
  return program;
}

std::optional<unsigned> OpOfFunction::getArgument(StringRef name) const {
  for (auto [role, source] : llvm::zip_equal(op.roles, sources))
    if (role.getName() == name)
      return source.argument;
  return std::nullopt;
}

Expected<std::vector<OperandSizes>> flashattn::getSizes(const Program &program,
                                                        ArrayRef<SmallVector<int64_t>> shapes) {
  std::vector<OperandSizes> sizes;
  for (const OpOfFunction &op : program.ops) {
    Expected<OperandSizes> known = getSizes(op.op, [&](unsigned role) {
      const OpOfFunction::Source &source = op.sources[role];
      if (source.argument)
        return shapes[*source.argument];
      if (!source.producer)
        return source.shape;
      auto [producer, place] = *source.producer;
      return sizes[producer].getShape(program.ops[producer].op.roles[place].dims);
    });
    if (!known)
      return llvm::createStringError("the inputs do not fit together: " +
                                     llvm::toString(known.takeError()));
    sizes.push_back(std::move(*known));
  }
  return sizes;
}

llvm::Error flashattn::checkInputs(const Program &program, ArrayRef<const HostTensor *> arguments) {
  auto shapes = llvm::map_to_vector(
      arguments, [](const HostTensor *tensor) { return SmallVector<int64_t>(tensor->getShape()); });
  Expected<std::vector<OperandSizes>> sizes = getSizes(program, shapes);
  if (!sizes)
    return sizes.takeError();
  for (const OpOfFunction &op : program.ops)
    for (auto [role, source] : llvm::zip_equal(op.op.roles, op.sources))
      if (source.argument)
        if (Error error = checkScalar(role, *arguments[*source.argument]))
          return llvm::createStringError("the inputs do not fit together: " +
                                         llvm::toString(std::move(error)));
  return Error::success();
}
