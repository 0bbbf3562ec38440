//===- Program.cpp - reads a module and its function -----------------------===//

#include "Program.h"
#include "flashattn/Dialect/FlashAttn/IR/FlashAttn.h"
#include "mlir/IR/Matchers.h"
#include "llvm/ADT/StringExtras.h"

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
    return fail("f16, bf16, f32, f64, i1, i8, i32, i64 or index, or ranked tensors or memrefs "
                "of them");
  info.scalar = *scalar;
  info.isScalar = !shaped;
  if (!shaped)
    return info;
  if (!isa<RankedTensorType, MemRefType>(type))
    return fail("a ranked tensor or memref");
  info.shape.assign(shaped.getShape().begin(), shaped.getShape().end());
  if (auto memref = dyn_cast<MemRefType>(type)) {
    // Buffers are contiguous, which a layout must allow.
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

/// Looks through casts that only change what is known of a shape.
static Value stripCasts(Value value) {
  while (auto *op = value.getDefiningOp()) {
    if (!isa<tensor::CastOp, memref::CastOp>(op))
      break;
    value = op->getOperand(0);
  }
  return value;
}

/// The output that the op's result `index` is, or its destination `init`.
static std::optional<unsigned> findOutput(func::FuncOp function, const Program &program,
                                          Operation *op, Value init, unsigned index) {
  std::optional<unsigned> argument = getArgumentIndex(init, function);
  Operation *end = function.front().getTerminator();
  for (auto [i, output] : llvm::enumerate(program.outputs)) {
    if (output.isArgument) {
      if (argument == output.index)
        return i;
      continue;
    }
    if (output.index >= end->getNumOperands())
      continue;
    Value returned = stripCasts(end->getOperand(output.index));
    if ((index < op->getNumResults() && returned == op->getResult(index)) ||
        returned == stripCasts(init))
      return i;
  }
  return std::nullopt;
}

/// The op's operands that are arguments of the function. An input must be one; returns why it is
/// not.
static std::string findOperands(func::FuncOp function, KernelOpInterface op,
                                SmallVector<OperandInfo> &operands) {
  for (OperandRole role : op.getOperandRoles()) {
    std::optional<unsigned> argument = getArgumentIndex(role.value, function);
    bool mustBe = role.value && !role.rule->isScalar() && !role.rule->is(OperandRule::Output);
    if (mustBe && !argument)
      return llvm::formatv("expected {0} to be an argument of function '{1}'", role.getName(),
                           function.getName())
          .str();
    if (argument)
      operands.push_back({role, *argument});
  }
  return {};
}

/// Finds the projection of the attention's output; returns why there is none to verify though
/// there is a projection.
static std::string findProjection(func::FuncOp function, const Program &program,
                                  AttentionOp attention, std::optional<ProjectionInfo> &info) {
  SmallVector<ProjectOp> ops;
  function.walk([&](ProjectOp op) { ops.push_back(op); });
  if (ops.empty())
    return {};
  std::string name = function.getName().str();
  if (ops.size() != 1)
    return llvm::formatv("expected at most one flashattn.project in function '{0}' but got {1}",
                         name, ops.size())
        .str();
  ProjectOp op = ops.front();
  Value o = stripCasts(op.getO());
  bool follows = attention.getNumResults() != 0 ? o == attention.getResult(0)
                                                : o == stripCasts(attention.getOInit());
  std::optional<unsigned> w = getArgumentIndex(op.getW(), function);
  if (!follows || !w || op.getLayout() != attention.getLayout() || op->getParentOp() != function)
    return llvm::formatv("expected o of the flashattn.project in function '{0}' to be the "
                         "attention's, in its layout, and w to be an argument",
                         name)
        .str();
  SmallVector<OperandRole> roles = op.getOperandRoles();
  info = ProjectionInfo{{}, roles[0], *w, findOutput(function, program, op, op.getPInit(), 0)};
  for (const OperandRole &role : ArrayRef(roles).drop_front())
    if (std::optional<unsigned> argument = getArgumentIndex(role.value, function))
      info->operands.push_back({role, *argument});
  return {};
}

/// Finds the function's attention; returns why there is none to verify.
static std::string findAttention(func::FuncOp function, Program &program) {
  SmallVector<AttentionOp> ops;
  function.walk([&](AttentionOp op) { ops.push_back(op); });
  if (ops.size() != 1)
    return llvm::formatv("expected one flashattn.attention in function '{0}' but got {1}",
                         function.getName(), ops.size())
        .str();
  AttentionOp op = ops.front();
  AttentionInfo info;
  auto q = getArgumentIndex(op.getQ(), function), k = getArgumentIndex(op.getK(), function),
       v = getArgumentIndex(op.getV(), function);
  if (!q || !k || !v || op->getParentOp() != function)
    return llvm::formatv("expected q, k and v of the flashattn.attention in function '{0}' to be "
                         "arguments of it",
                         function.getName())
        .str();
  info.q = *q, info.k = *k, info.v = *v;
  if (std::string reason = findOperands(function, op, info.operands); !reason.empty())
    return reason;
  llvm::APInt constant;
  if (Value offset = op.getOffset(); offset && matchPattern(offset, m_ConstantInt(&constant)))
    info.constantOffset = constant.getSExtValue();
  else if (offset && !info.getArgument("offset"))
    return "expected the offset to be a constant or an argument";
  if (op.getScaleValue() && !info.getArgument("scale"))
    return "expected the scale to be a constant or an argument";
  if (std::optional<APFloat> softcap = op.getSoftcap())
    info.softcap = softcap->convertToFloat();
  if (op.hasScoreMod()) {
    Expected<ScoreMod> scoreMod = ScoreMod::create(op.getScoreMod());
    if (!scoreMod)
      return llvm::toString(scoreMod.takeError());
    info.scoreMod = std::make_shared<ScoreMod>(std::move(*scoreMod));
  }
  info.isBottomRight = op.getAlign() == Align::BottomRight;
  info.isBSHD = op.getLayout() == Layout::BSHD;
  info.scale = op.getScaleOrDefault();
  info.sets = op.getVisibleSets();

  info.o = findOutput(function, program, op, op.getOInit(), 0);
  if (op.getLseInit())
    info.lse = findOutput(function, program, op, op.getLseInit(), 1);
  if (std::string reason = findProjection(function, program, op, info.projection); !reason.empty())
    return reason;
  program.attention = std::move(info);
  return {};
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
      auto [reads, writes] = getAccess(function, argument);
      info->isWriteOnly = writes && !reads;
      if (writes && function.getNumResults() == 0)
        program.outputs.push_back({/*isArgument=*/true, unsigned(i)});
    } else if (isa<RankedTensorType>(argument.getType())) {
      // Inits of the dialect's ops are written whole and not read.
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
  program.noAttention = findAttention(function, program);
  return program;
}

std::optional<unsigned> AttentionInfo::getArgument(StringRef name) const {
  for (const OperandInfo &operand : operands)
    if (operand.role.getName() == name)
      return operand.argument;
  return std::nullopt;
}

Expected<ProgramSizes> flashattn::getSizes(const AttentionInfo &info,
                                           ArrayRef<SmallVector<int64_t>> shapes) {
  ProgramSizes sizes;
  std::string wrong;
  auto add = [&](OperandSizes &to, const OperandRole &role, ArrayRef<int64_t> shape) {
    if (wrong.empty() && !role.rule->isScalar())
      wrong = to.add(role, shape, /*isType=*/false);
  };
  for (const OperandInfo &operand : info.operands)
    add(sizes.attention, operand.role, shapes[operand.argument]);
  if (wrong.empty())
    wrong = explainHeads(sizes.attention.get('H'), sizes.attention.get('G'));
  if (info.projection) {
    const OperandRole &o = info.projection->o;
    add(sizes.projection, o, sizes.attention.getShape(o.dims));
    for (const OperandInfo &operand : info.projection->operands)
      add(sizes.projection, operand.role, shapes[operand.argument]);
  }
  if (!wrong.empty())
    return llvm::createStringError("the inputs do not fit together: " + wrong);
  return sizes;
}

Expected<AttentionProblem> flashattn::getProblem(const Program &program,
                                                 ArrayRef<const HostTensor *> arguments) {
  const AttentionInfo &info = *program.attention;
  auto shapes = llvm::map_to_vector(
      arguments, [](const HostTensor *tensor) { return SmallVector<int64_t>(tensor->getShape()); });
  Expected<ProgramSizes> sizes = getSizes(info, shapes);
  if (!sizes)
    return sizes.takeError();
  AttentionProblem problem;
  problem.batch = sizes->attention.get('B');
  problem.queryHeads = sizes->attention.get('H');
  problem.keyHeads = sizes->attention.get('G');
  problem.numQueries = sizes->attention.get('N');
  problem.numKeys = sizes->attention.get('K');
  problem.dim = sizes->attention.get('D');
  problem.valueDim = sizes->attention.get('V');
  problem.scale = info.scale;
  problem.isBSHD = info.isBSHD;
  problem.sets = info.sets;
  problem.scalar = arguments[info.q]->getScalar();
  problem.softcap = info.softcap;
  problem.scoreMod = info.scoreMod;
  for (const OperandInfo &operand : info.operands)
    problem.operands.emplace_back(operand.role.getName(), arguments[operand.argument]);
  if (const HostTensor *scale = problem.getOperand("scale")) {
    problem.scale = scale->get(0);
    if (!(problem.scale >= 0.999e-18 && problem.scale <= 1.001e18))
      return llvm::createStringError(
          llvm::formatv("expected a scale from 1e-18 to 1e18 but got {0}", problem.scale).str());
  }
  const HostTensor *offset = problem.getOperand("offset");
  bool hasOffset = offset || info.constantOffset;
  problem.offset = info.constantOffset  ? *info.constantOffset
                   : offset             ? int64_t(offset->get(0))
                   : info.isBottomRight ? problem.numKeys - problem.numQueries
                                        : 0;
  problem.followsKvLen = problem.getOperand("kv_len") && info.isBottomRight && !hasOffset;
  if (problem.offset != llvm::SignExtend64<32>(problem.offset))
    return llvm::createStringError("the inputs do not fit together: expected an offset from "
                                   "-2147483648 to 2147483647 but got " +
                                   llvm::Twine(problem.offset));
  return problem;
}
