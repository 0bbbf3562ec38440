//===- CheckedOp.cpp ------------------------------------------------------===//

#include "CheckedOp.h"
#include "flashattn/Dialect/FlashAttn/IR/FlashAttn.h"
#include "mlir/IR/Matchers.h"
#include "llvm/Support/MathExtras.h"

using namespace mlir;
using namespace mlir::flashattn;
using llvm::Error;
using llvm::Expected;

std::string flashattn::formatPlace(Location location) {
  std::string text;
  llvm::raw_string_ostream os(text);
  // An op raised from several linalg ops has a fused location; print its first location.
  location->walk([&](Location inner) {
    auto file = dyn_cast<FileLineColLoc>(inner);
    if (!file)
      return WalkResult::advance();
    os << file.getFilename().getValue() << ":" << file.getLine() << ":" << file.getColumn();
    return WalkResult::interrupt();
  });
  if (text.empty())
    os << location;
  return text;
}

std::optional<CheckedOp> CheckedOp::create(Operation *operation) {
  if (!isa<AttentionOpInterface, CombineOp, ProjectOp>(operation))
    return std::nullopt;
  CheckedOp op;
  op.name = operation->getName().getStringRef();
  op.place = formatPlace(operation->getLoc());
  for (const OperandRole &role : cast<KernelOpInterface>(operation).getOperandRoles())
    if (role.value)
      op.roles.push_back(role);
  if (auto combine = dyn_cast<CombineOp>(operation)) {
    op.kind = Kind::Combine;
    op.isBSHD = combine.getLayout() == Layout::BSHD;
    return op;
  }
  if (auto project = dyn_cast<ProjectOp>(operation)) {
    op.kind = Kind::Project;
    op.isBSHD = project.getLayout() == Layout::BSHD;
    return op;
  }
  auto attention = cast<AttentionOpInterface>(operation);
  op.kind = isa<AttentionOp>(operation) ? Kind::Attention : Kind::AttentionBackward;
  op.isBSHD = attention.getLayout() == Layout::BSHD;
  op.attention.isBottomRight = attention.getAlign() == Align::BottomRight;
  op.attention.hasOwnLengths = attention.hasOwnLengths();
  if (!attention.getCuSeqlensQ() != !attention.getCuSeqlensK())
    op.obstacle = "expected both queries and keys to be packed, or neither, for a reference";
  op.attention.scale = attention.getScaleOrDefault();
  op.attention.sets = attention.getVisibleSets();
  if (std::optional<APFloat> softcap = attention.getSoftcap())
    op.attention.softcap = softcap->convertToFloat();
  if (attention.hasScoreMod()) {
    Expected<ScoreMod> scoreMod = ScoreMod::create(attention.getScoreMod());
    if (scoreMod)
      op.attention.scoreMod = std::move(*scoreMod);
    else
      op.obstacle = llvm::toString(scoreMod.takeError());
  }
  return op;
}

std::optional<HostTensor> flashattn::getConstant(Value value) {
  Attribute constant;
  if (!matchPattern(value, m_Constant(&constant)))
    return std::nullopt;
  auto elements = dyn_cast<DenseElementsAttr>(constant);
  auto typed = dyn_cast<TypedAttr>(constant);
  if (!typed)
    return std::nullopt;
  Type type = elements ? elements.getElementType() : typed.getType();
  std::optional<Scalar> scalar = getScalar(type);
  if (!scalar)
    return std::nullopt;
  Expected<HostTensor> tensor =
      HostTensor::create(*scalar, elements ? elements.getType().getShape() : ArrayRef<int64_t>());
  if (!tensor) {
    llvm::consumeError(tensor.takeError());
    return std::nullopt;
  }
  auto setReal = [&](int64_t i, const APFloat &element) {
    tensor->set(i, FloatAttr::get(type, element).getValueAsDouble());
  };
  auto setInteger = [&](int64_t i, const APInt &element) {
    tensor->set(
        i, double(type.isInteger(1) ? int64_t(element.getZExtValue()) : element.getSExtValue()));
  };
  if (!elements) {
    if (auto real = dyn_cast<FloatAttr>(constant))
      setReal(0, real.getValue());
    else if (auto integer = dyn_cast<IntegerAttr>(constant))
      setInteger(0, integer.getValue());
    else
      return std::nullopt;
  } else if (isFloat(*scalar)) {
    for (auto [i, element] : llvm::enumerate(elements.getValues<APFloat>()))
      setReal(i, element);
  } else {
    for (auto [i, element] : llvm::enumerate(elements.getValues<APInt>()))
      setInteger(i, element);
  }
  return std::move(*tensor);
}

const HostTensor *OperandValues::get(StringRef name) const {
  for (auto [given, tensor] : values)
    if (given == name)
      return tensor;
  return nullptr;
}

Expected<OperandSizes>
flashattn::getSizes(const CheckedOp &op,
                    llvm::function_ref<SmallVector<int64_t>(unsigned role)> getShape) {
  OperandSizes sizes;
  std::string wrong;
  for (auto [i, role] : llvm::enumerate(op.roles))
    if (wrong.empty() && !role.rule->isScalar())
      wrong = sizes.add(role, getShape(i), /*isType=*/false);
  if (wrong.empty())
    wrong = explainHeads(sizes.get('H'), sizes.get('G'));
  if (!wrong.empty())
    return llvm::createStringError(wrong);
  return sizes;
}

Error flashattn::checkScalar(const OperandRole &role, const HostTensor &value) {
  if (role.rule->element == ElementRule::Position) {
    auto offset = int64_t(value.get(0));
    if (offset != llvm::SignExtend64<32>(offset))
      return llvm::createStringError("expected an offset from -2147483648 to 2147483647 but got " +
                                     llvm::Twine(offset));
  }
  if (role.rule->element == ElementRule::Factor) {
    double scale = value.get(0);
    if (!(scale >= 0.999e-18 && scale <= 1.001e18))
      return llvm::createStringError(
          llvm::formatv("expected a scale from 1e-18 to 1e18 but got {0}", scale).str());
  }
  return Error::success();
}

Expected<OperandSizes> flashattn::getSizes(const CheckedOp &op, const OperandValues &values) {
  return getSizes(op, [&](unsigned role) {
    const HostTensor *value = values.get(op.roles[role].getName());
    return value ? SmallVector<int64_t>(value->getShape())
                 : SmallVector<int64_t>(op.roles[role].dims.size(), ShapedType::kDynamic);
  });
}

Expected<CombineProblem> flashattn::getCombineProblem(const CheckedOp &op,
                                                      const OperandValues &values) {
  Expected<OperandSizes> sizes = getSizes(op, values);
  if (!sizes)
    return sizes.takeError();
  CombineProblem problem;
  problem.parts = sizes->get('S');
  problem.batch = sizes->get('B');
  problem.heads = sizes->get('H');
  problem.numQueries = sizes->get('N');
  problem.valueDim = sizes->get('V');
  problem.oParts = values.get("o_parts");
  problem.lseParts = values.get("lse_parts");
  problem.lseRests = values.get("lse_rests");
  problem.sinkLogits = values.get("sink_logits");
  return problem;
}

Expected<AttentionProblem> flashattn::getProblem(const CheckedOp &op, const OperandValues &values) {
  Expected<OperandSizes> sizes = getSizes(op, values);
  if (!sizes)
    return sizes.takeError();
  AttentionProblem problem;
  problem.batch = values.get("cu_seqlens_q") ? 1 : sizes->get('B');
  problem.queryHeads = sizes->get('H');
  problem.keyHeads = sizes->get('G');
  problem.numQueries = sizes->get('N');
  problem.numKeys = sizes->get('K');
  problem.dim = sizes->get('D');
  problem.valueDim = sizes->get('V');
  problem.isBSHD = op.isBSHD;
  const HostTensor *scale = values.get("scale");
  problem.scale = scale ? scale->get(0) : op.attention.scale;
  problem.sets = op.attention.sets;
  problem.softcap = op.attention.softcap;
  if (op.attention.scoreMod) {
    problem.scoreMod = op.attention.scoreMod;
    for (auto [i, value] : llvm::enumerate(values.captured))
      if (value.tensor)
        problem.scoreMod->setCaptured(i, *value.tensor);
      else
        problem.scoreMod->setCaptured(i, value.real, value.integer);
  }
  problem.scalar = values.get("q")->getScalar();
  for (const OperandRole &role : op.roles)
    if (const HostTensor *value = values.get(role.getName()))
      problem.operands.emplace_back(role.getName(), value);
  const HostTensor *offset = values.get("offset");
  problem.offset = offset                       ? int64_t(offset->get(0))
                   : op.attention.isBottomRight ? problem.numKeys - problem.numQueries
                                                : 0;
  problem.followsLengths = op.attention.hasOwnLengths && op.attention.isBottomRight && !offset;
  for (const OperandRole &role : op.roles)
    if (const HostTensor *value = values.get(role.getName()))
      if (Error error = checkScalar(role, *value))
        return error;
  return problem;
}
