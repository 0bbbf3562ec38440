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
    op.attention.leastQueries = combine.getMinSeqlenQ();
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
  if (!attention.getCuSeqlensQ() && attention.getCuSeqlensK())
    op.obstacle = "expected packed queries, or keys that are not packed, for a reference";
  op.attention.scale = attention.getScaleOrDefault();
  op.attention.sets = attention.getVisibleSets();
  if (std::optional<APFloat> softcap = attention.getSoftcap())
    op.attention.softcap = softcap->convertToFloat();
  op.attention.leastQueries = attention.getLeastQueries();
  op.attention.mostQueries = attention.getMostQueries();
  if (attention.hasScoreMod()) {
    Expected<ScoreMod> scoreMod = ScoreMod::create(attention.getScoreMod());
    if (scoreMod)
      op.attention.scoreMod = std::move(*scoreMod);
    else
      op.obstacle = llvm::toString(scoreMod.takeError());
  }
  return op;
}

StringRef flashattn::getScaled(const OperandRole &role) {
  StringRef name = role.getName();
  return name.consume_back("_scale") ? name : StringRef();
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
  problem.starts = values.get("cu_seqlens_q");
  problem.leastQueries = op.attention.leastQueries.value_or(0);
  return problem;
}

namespace {
/// Gathers the keys of sequences that are not where the reference reads them: in pages (P1, P4),
/// behind padding (P3), or in batches beside packed queries (S1).
class KeyGatherer {
public:
  KeyGatherer(AttentionProblem &problem, const OperandSizes &sizes)
      : problem(problem), table(problem.getOperand("page_table")),
        leftpad(problem.getOperand("leftpad_k")), lengths(problem.getOperand("kv_len")),
        isPacked(problem.getOperand("cu_seqlens_q")), batches(sizes.get('B')), rows(sizes.get('K')),
        pageRows(table ? sizes.get('Z') : rows), tablePages(table ? sizes.get('T') : 1),
        pages(batches, llvm::BitVector(tablePages)) {}

  bool isNeeded() const {
    return table || leftpad || (isPacked && !problem.getOperand("cu_seqlens_k"));
  }
  Error run();

private:
  int64_t getPadding(int64_t b) const {
    return leftpad ? std::clamp<int64_t>(leftpad->get(b), 0, rows) : 0;
  }
  Expected<HostTensor *> add(StringRef name, Scalar scalar, ArrayRef<int64_t> shape);
  Error addLengths();
  Error findPages();
  Error gather(StringRef name);

  AttentionProblem &problem;
  const HostTensor *table, *leftpad, *lengths;
  bool isPacked;
  int64_t batches, rows, pageRows, tablePages;
  std::vector<llvm::BitVector> pages; ///< by sequence: the pages that are seen
};
} // namespace

Expected<HostTensor *> KeyGatherer::add(StringRef name, Scalar scalar, ArrayRef<int64_t> shape) {
  Expected<HostTensor> tensor = HostTensor::create(scalar, shape);
  if (!tensor)
    return tensor.takeError();
  HostTensor *added =
      problem.gathered.emplace_back(std::make_shared<HostTensor>(std::move(*tensor))).get();
  llvm::erase_if(problem.operands, [&](auto &of) { return of.first == name; });
  problem.operands.emplace_back(name, added);
  return added;
}

/// Replaces `k`, `v`, or scales of their rows. Other rows than those of pages that are seen are 0.
Error KeyGatherer::gather(StringRef name) {
  const HostTensor &from = *problem.getOperand(name);
  // Scales may serve all pages or heads.
  int64_t most = from.getShape().front() - 1;
  int64_t heads = from.getShape()[problem.isBSHD ? 2 : 1], width = from.getShape().back();
  SmallVector<int64_t> shape = {isPacked ? 1 : batches, heads, isPacked ? batches * rows : rows,
                                width};
  if (problem.isBSHD)
    std::swap(shape[1], shape[2]);
  Expected<HostTensor *> to = add(name, from.getScalar(), shape);
  if (!to)
    return to.takeError();
  int64_t bytes = width * getByteWidth(from.getScalar());
  for (int64_t b = 0; b < batches; ++b)
    for (int64_t j = 0; j < rows - getPadding(b); ++j) {
      int64_t row = getPadding(b) + j;
      if (!pages[b][row / pageRows])
        continue;
      int64_t page =
          std::min(table ? int64_t(table->get(b * tablePages + row / pageRows)) : b, most);
      for (int64_t h = 0; h < heads; ++h) {
        int64_t source =
            getRowStart(problem.isBSHD, page, h, row % pageRows, heads, pageRows, bytes);
        int64_t target =
            isPacked ? getRowStart(problem.isBSHD, 0, h, b * rows + j, heads, batches * rows, bytes)
                     : getRowStart(problem.isBSHD, b, h, j, heads, rows, bytes);
        std::copy_n(from.data() + source, bytes, (*to)->data() + target);
      }
    }
  return Error::success();
}

/// Sets `kv_len` to numbers of rows that exist and, with packed queries, `cu_seqlens_k`.
Error KeyGatherer::addLengths() {
  const HostTensor *given = lengths;
  Expected<HostTensor *> lengths = add("kv_len", Scalar::I32, batches);
  if (!lengths)
    return lengths.takeError();
  for (int64_t b = 0; b < batches; ++b) {
    int64_t most = rows - getPadding(b);
    (*lengths)->set(b, given ? std::clamp<int64_t>(given->get(b), 0, most) : most);
  }
  if (!isPacked)
    return Error::success();
  Expected<HostTensor *> starts = add("cu_seqlens_k", Scalar::I32, batches + 1);
  if (!starts)
    return starts.takeError();
  for (int64_t b = 0; b <= batches; ++b)
    (*starts)->set(b, b * rows);
  problem.numKeys = batches * rows;
  return Error::success();
}

/// P2: finds the pages of which a query of their sequence sees a key. Returns an error if the
/// table's entry of such a page is out of range.
Error KeyGatherer::findPages() {
  bool isWhole = mayCountMoreRows(problem);
  for (int64_t batch = 0; batch < problem.batch; ++batch)
    for (const AttentionProblem::Sequence &of : problem.getSequences(batch)) {
      auto set = [&](KeyInterval keys) {
        int64_t shift = getPadding(of.b) - of.firstKey;
        if (keys.begin < keys.end)
          pages[of.b].set((keys.begin + shift) / pageRows, (keys.end - 1 + shift) / pageRows + 1);
      };
      if (isWhole && of.numQueries)
        set({of.firstKey, of.firstKey + of.numKeys});
      for (int64_t i = 0; i < of.numQueries && !isWhole; ++i)
        for (KeyInterval keys : getVisibleKeys(problem, of.firstQuery + i, batch, /*h=*/0))
          set(keys);
    }
  int64_t pool = problem.getOperand("k")->getShape().front();
  for (int64_t b = 0; table && b < batches; ++b)
    for (unsigned page : pages[b].set_bits())
      if (int64_t entry = table->get(b * tablePages + page); entry < 0 || entry >= pool)
        return llvm::createStringError(
            llvm::formatv("expected pages from 0 to {0} in 'page_table' but got {1} for page {2} "
                          "of sequence {3}",
                          pool - 1, entry, page, b)
                .str());
  return Error::success();
}

Error KeyGatherer::run() {
  if (Error error = addLengths())
    return error;
  if (Error error = findPages())
    return error;
  for (StringRef name : {"k", "v"})
    if (Error error = gather(name))
      return error;
  for (StringRef name : problem.rowScales)
    if (Error error = gather(name))
      return error;
  return Error::success();
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
  problem.leastQueries = op.attention.leastQueries;
  problem.mostQueries = op.attention.mostQueries;
  if (op.attention.scoreMod) {
    problem.scoreMod = op.attention.scoreMod;
    for (auto [i, value] : llvm::enumerate(values.captured))
      if (value.tensor)
        problem.scoreMod->setCaptured(i, *value.tensor);
      else
        problem.scoreMod->setCaptured(i, value.real, value.integer);
  }
  problem.scalar = problem.outputScalar = values.get("q")->getScalar();
  if (const HostTensor *o = values.get("o"))
    problem.outputScalar = o->getScalar();
  for (const OperandRole &role : op.roles)
    if (const HostTensor *value = values.get(role.getName())) {
      problem.operands.emplace_back(role.getName(), value);
      if (!getScaled(role).empty() && role.dims[op.isBSHD ? 1 : 2] != '1')
        problem.rowScales.push_back(role.getName());
      if (role.rule->is(OperandRule::Variadic))
        (role.rule->dims.contains('N')   ? problem.perQuery
         : role.rule->dims.contains('K') ? problem.perKey
                                         : problem.perSequence)
            .push_back(value);
    }
  problem.hasPackedKeys = values.get("cu_seqlens_k");
  const HostTensor *offset = values.get("offset");
  problem.offset = offset                       ? int64_t(offset->get(0))
                   : op.attention.isBottomRight ? problem.numKeys - problem.numQueries
                                                : 0;
  problem.followsLengths = op.attention.hasOwnLengths && op.attention.isBottomRight && !offset;
  for (const OperandRole &role : op.roles)
    if (const HostTensor *value = values.get(role.getName()))
      if (Error error = checkScalar(role, *value))
        return error;
  if (KeyGatherer gatherer(problem, *sizes); gatherer.isNeeded())
    if (Error error = gatherer.run())
      return error;
  return problem;
}
