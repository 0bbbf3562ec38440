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
  info = ProjectionInfo{*w, findOutput(function, program, op, op.getPInit(), 0),
                        getArgumentIndex(op.getPInit(), function)};
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
  if (Value offset = op.getOffset()) {
    info.hasOffset = true;
    info.offsetArgument = getArgumentIndex(offset, function);
    llvm::APInt constant;
    if (matchPattern(offset, m_ConstantInt(&constant)))
      info.offsetConstant = constant.getSExtValue();
    else if (!info.offsetArgument)
      return "expected the offset to be a constant or an argument";
  }
  for (auto [name, operand, argument] : {std::tuple("bias", op.getBias(), &info.bias),
                                         {"keep", op.getKeep(), &info.keep},
                                         {"sink_logits", op.getSinkLogits(), &info.sinkLogits},
                                         {"kv_len", op.getKvLen(), &info.kvLen}}) {
    *argument = getArgumentIndex(operand, function);
    if (operand && !*argument)
      return llvm::formatv("expected {0} to be an argument of function '{1}'", name,
                           function.getName())
          .str();
  }
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
  info.oArgument = getArgumentIndex(op.getOInit(), function);
  info.lseArgument = getArgumentIndex(op.getLseInit(), function);

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
            return isa<AttentionOp, ProjectOp>(use.getOwner()) && op.isDpsInit(&use);
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

Expected<AttentionProblem> flashattn::getProblem(const Program &program,
                                                 ArrayRef<const HostTensor *> arguments) {
  const AttentionInfo &info = *program.attention;
  const HostTensor &q = *arguments[info.q], &k = *arguments[info.k], &v = *arguments[info.v];
  unsigned heads = info.isBSHD ? 2 : 1, length = info.isBSHD ? 1 : 2;
  AttentionProblem problem;
  problem.batch = q.getShape()[0];
  problem.queryHeads = q.getShape()[heads];
  problem.keyHeads = k.getShape()[heads];
  problem.numQueries = q.getShape()[length];
  problem.numKeys = k.getShape()[length];
  problem.dim = q.getShape()[3];
  problem.valueDim = v.getShape()[3];
  problem.scale = info.scale;
  problem.isBSHD = info.isBSHD;
  problem.sets = info.sets;
  problem.scalar = q.getScalar();
  problem.offset = info.isBottomRight ? problem.numKeys - problem.numQueries : 0;
  if (info.hasOffset)
    problem.offset = info.offsetArgument ? int64_t(arguments[*info.offsetArgument]->get(0))
                                         : info.offsetConstant;
  problem.softcap = info.softcap;
  problem.scoreMod = info.scoreMod;
  for (auto [argument, tensor] : {std::pair(info.bias, &problem.bias),
                                  {info.keep, &problem.keep},
                                  {info.sinkLogits, &problem.sinkLogits},
                                  {info.kvLen, &problem.kvLen}})
    if (argument)
      *tensor = arguments[*argument];
  problem.followsKvLen = problem.kvLen && info.isBottomRight && !info.hasOffset;

  if (problem.offset != llvm::SignExtend64<32>(problem.offset))
    return llvm::createStringError("the inputs do not fit together: expected an offset from "
                                   "-2147483648 to 2147483647 but got " +
                                   llvm::Twine(problem.offset));
  auto check = [&](const char *what, int64_t expected, int64_t found) -> Error {
    if (expected == found)
      return Error::success();
    return llvm::createStringError(
        llvm::formatv("the inputs do not fit together: expected {0} {1} but got {2}", what,
                      expected, found)
            .str());
  };
  for (auto [what, expected, found] :
       {std::tuple("a batch of k of", problem.batch, k.getShape()[0]),
        {"a batch of v of", problem.batch, v.getShape()[0]},
        {"heads of v to be", problem.keyHeads, v.getShape()[heads]},
        {"a length of v of", problem.numKeys, v.getShape()[length]},
        {"a row of k of", problem.dim, k.getShape()[3]}})
    if (Error error = check(what, expected, found))
      return error;
  if (problem.keyHeads == 0 ? problem.queryHeads != 0 : problem.queryHeads % problem.keyHeads != 0)
    return llvm::createStringError(
        llvm::formatv("the inputs do not fit together: expected the {0} heads of q to be a "
                      "multiple of the {1} heads of k",
                      problem.queryHeads, problem.keyHeads)
            .str());
  auto checkShape = [&](const char *what, std::optional<unsigned> argument,
                        ArrayRef<int64_t> expected) -> Error {
    if (!argument || arguments[*argument]->getShape() == expected)
      return Error::success();
    return llvm::createStringError(
        llvm::formatv("the inputs do not fit together: expected {0} of {1} but got {2}", what,
                      formatShape(expected, arguments[*argument]->getScalar()),
                      arguments[*argument]->getTypeName())
            .str());
  };
  SmallVector<int64_t> oShape(q.getShape());
  oShape[3] = problem.valueDim;
  if (Error error = checkShape("o", info.oArgument, oShape))
    return error;
  if (Error error = checkShape("lse", info.lseArgument,
                               {problem.batch, problem.queryHeads, problem.numQueries}))
    return error;
  if (info.projection) {
    int64_t width = arguments[info.projection->w]->getShape().back();
    if (Error error =
            checkShape("w", info.projection->w, {problem.queryHeads, problem.valueDim, width}))
      return error;
    if (Error error =
            checkShape("p", info.projection->pArgument, {problem.batch, problem.numQueries, width}))
      return error;
  }
  // What is declared as 1 is broadcast; all else is as large as the scores.
  SmallVector<int64_t> scores = {problem.batch, problem.queryHeads, problem.numQueries,
                                 problem.numKeys};
  for (auto [what, argument, whole] :
       {std::tuple("bias", info.bias, scores),
        {"keep", info.keep, scores},
        {"sink_logits", info.sinkLogits, SmallVector<int64_t>{problem.queryHeads}},
        {"kv_len", info.kvLen, SmallVector<int64_t>{problem.batch}}}) {
    if (!argument)
      continue;
    SmallVector<int64_t> expected = whole;
    for (auto [size, declared] : llvm::zip_equal(expected, program.arguments[*argument].shape))
      if (whole.size() == 4 && declared == 1)
        size = 1;
    if (Error error = checkShape(what, argument, expected))
      return error;
  }
  return problem;
}
