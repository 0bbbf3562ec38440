//===- OperandRoles.cpp - tables of operands, and rule R1 -----------------===//

#include "Verify.h"
#include "llvm/Support/FormatVariadic.h"

using namespace mlir;
using namespace mlir::flashattn;

namespace mlir::flashattn {
#include "flashattn/Dialect/FlashAttn/IR/FlashAttnOpInterfaces.cpp.inc"
} // namespace mlir::flashattn

//===----------------------------------------------------------------------===//
// The tables: a row for each operand, in the order of the op's arguments
//===----------------------------------------------------------------------===//

using Rule = OperandRule;

/// Y1, Y2.
static constexpr unsigned kSymbol = Rule::Optional | Rule::Broadcasts | Rule::Variadic;
/// F1.
static constexpr unsigned kScale = Rule::Optional | Rule::Broadcasts | Rule::FollowsLayout;

ArrayRef<OperandRule> AttentionOp::getOperandRules() {
  static constexpr OperandRule rules[] = {
      {"q", ElementRule::FloatOrF8, "BHND", Rule::FollowsLayout},
      {"k", ElementRule::LikeFirstOrNarrow, "BGKD", Rule::FollowsLayout},
      {"v", ElementRule::LikeFirstOrNarrow, "BGKV", Rule::FollowsLayout},
      {"bias", ElementRule::Float, "BHNK", Rule::Optional | Rule::Broadcasts},
      {"attn_mask", ElementRule::I1, "BHNK", Rule::Optional | Rule::Broadcasts},
      {"sink_logits", ElementRule::F32, "H", Rule::Optional},
      {"kv_len", ElementRule::I32, "B", Rule::Optional, /*limit=*/'K'},
      {"q_len", ElementRule::I32, "B", Rule::Optional, /*limit=*/'N'},
      {"cu_seqlens_q", ElementRule::I32, "C", Rule::Optional, /*limit=*/'N'},
      {"cu_seqlens_k", ElementRule::I32, "C", Rule::Optional, /*limit=*/'K'},
      {"page_table", ElementRule::I32, "BT", Rule::Optional, /*limit=*/'L'},
      {"leftpad_k", ElementRule::I32, "B", Rule::Optional, /*limit=*/'K'},
      {"k_scale", ElementRule::F32, "BGKX", kScale},
      {"v_scale", ElementRule::F32, "BGKY", kScale},
      {"offset", ElementRule::Position, "", Rule::Optional},
      {"offsets", ElementRule::I32, "B", Rule::Optional},
      {"scale", ElementRule::Factor, "", Rule::Optional},
      {"per_sequence", ElementRule::I32, "B", kSymbol},
      {"per_query", ElementRule::I32, "BHN", kSymbol},
      {"per_key", ElementRule::I32, "BGK", kSymbol},
      {"o", ElementRule::LikeFirstOrF32, "BHNV", Rule::Output | Rule::FollowsLayout},
      {"lse", ElementRule::F32, "BHN", Rule::Output | Rule::Optional}};
  return rules;
}

ArrayRef<OperandRule> AttentionBackwardOp::getOperandRules() {
  static constexpr OperandRule rules[] = {
      {"q", ElementRule::Float, "BHND", Rule::FollowsLayout},
      {"k", ElementRule::LikeFirst, "BGKD", Rule::FollowsLayout},
      {"v", ElementRule::LikeFirst, "BGKV", Rule::FollowsLayout},
      {"o", ElementRule::LikeFirstOrF32, "BHNV", Rule::FollowsLayout},
      {"lse", ElementRule::F32, "BHN"},
      {"d_o", ElementRule::LikeFirst, "BHNV", Rule::FollowsLayout},
      {"d_lse", ElementRule::F32, "BHN", Rule::Optional},
      {"bias", ElementRule::Float, "BHNK", Rule::Optional | Rule::Broadcasts},
      {"attn_mask", ElementRule::I1, "BHNK", Rule::Optional | Rule::Broadcasts},
      {"sink_logits", ElementRule::F32, "H", Rule::Optional},
      {"kv_len", ElementRule::I32, "B", Rule::Optional, /*limit=*/'K'},
      {"q_len", ElementRule::I32, "B", Rule::Optional, /*limit=*/'N'},
      {"cu_seqlens_q", ElementRule::I32, "C", Rule::Optional, /*limit=*/'N'},
      {"cu_seqlens_k", ElementRule::I32, "C", Rule::Optional, /*limit=*/'K'},
      {"offset", ElementRule::Position, "", Rule::Optional},
      {"offsets", ElementRule::I32, "B", Rule::Optional},
      {"scale", ElementRule::Factor, "", Rule::Optional},
      {"per_sequence", ElementRule::I32, "B", kSymbol},
      {"per_query", ElementRule::I32, "BHN", kSymbol},
      {"per_key", ElementRule::I32, "BGK", kSymbol},
      {"dq", ElementRule::LikeFirst, "BHND", Rule::Output | Rule::FollowsLayout},
      {"dk", ElementRule::LikeFirst, "BGKD", Rule::Output | Rule::FollowsLayout},
      {"dv", ElementRule::LikeFirst, "BGKV", Rule::Output | Rule::FollowsLayout},
      {"d_bias", ElementRule::Float, "BHNK", Rule::Output | Rule::Optional | Rule::Broadcasts},
      {"d_sink_logits", ElementRule::F32, "H", Rule::Output | Rule::Optional}};
  return rules;
}

ArrayRef<OperandRule> CombineOp::getOperandRules() {
  static constexpr OperandRule rules[] = {
      {"o_parts", ElementRule::F32, "SBHNV"},
      {"lse_parts", ElementRule::F32, "SBHN"},
      {"lse_rests", ElementRule::F32, "SBHN", Rule::Optional},
      {"sink_logits", ElementRule::F32, "H", Rule::Optional},
      {"cu_seqlens_q", ElementRule::I32, "C", Rule::Optional, /*limit=*/'R'},
      {"o", ElementRule::Float, "BHRV", Rule::Output | Rule::FollowsLayout},
      {"lse", ElementRule::F32, "BHR", Rule::Output | Rule::Optional}};
  return rules;
}

ArrayRef<OperandRule> ProjectOp::getOperandRules() {
  static constexpr OperandRule rules[] = {{"o", ElementRule::Float, "BHNV", Rule::FollowsLayout},
                                          {"w", ElementRule::LikeFirst, "HVE"},
                                          {"p", ElementRule::LikeFirstOrF32, "BNE", Rule::Output}};
  return rules;
}

bool flashattn::isF8(Type element) { return isa<Float8E4M3FNType, Float8E5M2Type>(element); }

bool flashattn::isNarrow(Type element) { return isF8(element) || element.isSignlessInteger(8); }

bool flashattn::mayHaveScales(int64_t columns, int64_t scales) {
  return scales == 1 || (scales > 1 && columns % (scales * kScaleBlock) == 0);
}

bool OperandRule::hasRows() const {
  return !dims.empty() && StringRef("DVEK").contains(dims.back());
}

llvm::StringLiteral flashattn::getSizeName(char dim) {
  switch (dim) {
  case 'B':
  case 'P':
    return "batch size";
  case 'H':
  case 'G':
    return "head count";
  case 'N':
  case 'R':
    return "query length";
  case 'K':
    return "key length";
  case 'D':
  case 'V':
    return "head dimension";
  case 'E':
    return "width";
  case 'S':
    return "part count";
  case 'C':
    return "number of starts";
  case 'T':
    return "number of pages of a sequence";
  case 'X':
  case 'Y':
    return "number of scales of a row";
  case 'Z':
    return "page size";
  case 'L':
    return "number of pages";
  }
  llvm_unreachable("no letter of a dimension");
}

/// Returns the name of operand `number` of a variadic row.
static StringRef getNumberedName(const OperandRule &rule, unsigned number) {
  static const std::vector<std::string> names = [] {
    std::vector<std::string> all;
    for (const OperandRule &each : AttentionOp::getOperandRules())
      for (unsigned i = 0; each.is(OperandRule::Variadic) && i < OperandRule::kMostOperands; ++i)
        all.push_back((each.name + llvm::Twine(i)).str());
    return all;
  }();
  for (const std::string &name : names)
    if (StringRef(name).drop_back() == rule.name && name.back() == char('0' + number))
      return name;
  return rule.name;
}

SmallVector<OperandRole>
flashattn::collectOperandRoles(ArrayRef<OperandRule> rules, Layout layout,
                               function_ref<ValueRange(unsigned)> getOperands) {
  SmallVector<OperandRole> roles;
  // S1: the rows of these letters are packed.
  std::string packed;
  bool inPages = false;
  for (auto [i, rule] : llvm::enumerate(rules)) {
    if (rule.dims == "C" && !getOperands(i).empty())
      packed += rule.limit;
    inPages |= rule.dims == "BT" && !getOperands(i).empty();
  }
  auto add = [&](const OperandRule &rule, Value value, StringRef name) {
    OperandRole &role = roles.emplace_back();
    role.rule = &rule;
    role.value = value;
    role.name = name;
    role.dims = rule.dims.str();
    auto type = role.value ? dyn_cast<ShapedType>(role.value.getType()) : nullptr;
    bool isBSHD = layout == Layout::BSHD && rule.is(OperandRule::FollowsLayout);
    // F1: a scale for all rows of a sequence belongs to the sequence, wherever its rows are.
    if (size_t row = isBSHD ? 1 : 2; rule.is(OperandRule::Broadcasts) &&
                                     rule.is(OperandRule::FollowsLayout) && type &&
                                     type.getRank() > 2 && type.getDimSize(row) == 1)
      role.dims[2] = '1';
    if (StringRef(role.dims).starts_with("B") &&
        StringRef(role.dims).find_first_of(packed) != StringRef::npos)
      role.dims[0] = 'P';
    // Rows that are not packed are those of the queries.
    if (!StringRef(packed).contains('R'))
      llvm::replace(role.dims, 'R', 'N');
    // P1: k and v, the operands with key rows that follow the layout, are pools.
    if (inPages && rule.is(OperandRule::FollowsLayout) && StringRef(role.dims).contains('K')) {
      role.dims[0] = 'L';
      llvm::replace(role.dims, 'K', 'Z');
    }
    if (isBSHD)
      std::swap(role.dims[1], role.dims[2]);
    if (type && type.hasRank())
      for (auto [dim, size] : llvm::zip(role.dims, type.getShape()))
        dim = size == 1 && rule.broadcasts(dim) ? '1' : dim;
  };
  for (auto [i, rule] : llvm::enumerate(rules)) {
    ValueRange values = getOperands(i);
    if (!rule.is(OperandRule::Variadic))
      add(rule, values.empty() ? Value() : values.front(), rule.name);
    else
      for (auto [number, value] : llvm::enumerate(values))
        add(rule, value, getNumberedName(rule, number));
  }
  return roles;
}

//===----------------------------------------------------------------------===//
// Rule R1
//===----------------------------------------------------------------------===//

std::string OperandSizes::add(const OperandRole &role, ArrayRef<int64_t> shape, bool isType) {
  for (auto [letter, length] : llvm::zip_equal(role.dims, shape)) {
    char dim = letter;
    int64_t size = length;
    if (ShapedType::isDynamic(size) || dim == '1')
      continue;
    // Positions have 32 bits.
    if (size > INT32_MAX)
      return llvm::formatv("expected {0} of '{1}' to be at most {2} but got {3}", getSizeName(dim),
                           role.getName(), INT32_MAX, size)
          .str();
    if (dim == 'P') {
      if (size == 1)
        continue;
      return llvm::formatv("expected {0} of '{1}' to be 1 as its sequences are packed but got {2}",
                           getSizeName(dim), role.getName(), size)
          .str();
    }
    // S1: one start for each sequence, and the end of the last one.
    if (dim == 'C') {
      if (size < 2)
        return llvm::formatv("expected {0} of '{1}' to be at least 2 but got {2}", getSizeName(dim),
                             role.getName(), size)
            .str();
      dim = 'B';
      --size;
    }
    // P1: keys are those of the pages of a sequence, of which 'page_table' and 'k' state the sizes.
    if (int64_t rows = get('K');
        dim == 'K' && sizes.contains('T') && !ShapedType::isDynamic(rows) && rows != size)
      return llvm::formatv("expected {0} of '{1}' to be {2}, the number of rows in the pages of a "
                           "sequence, but got {3}",
                           getSizeName(dim), role.getName(), rows, size)
          .str();
    auto [known, isNew] = sizes.insert({dim, {size, role.getName()}});
    auto [expected, of] = known->second;
    if (size == expected)
      continue;
    if (letter == 'C')
      return llvm::formatv("expected {0} of '{1}' to be {2}, for the batch size {3} of '{4}', but "
                           "got {5}",
                           getSizeName(letter), role.getName(), expected + 1, expected, of, length)
          .str();
    bool mayBeOne = isType && role.rule->broadcasts(letter);
    return llvm::formatv("expected {0} of '{1}' to be {2} but got {3}", getSizeName(dim),
                         role.getName(),
                         mayBeOne ? llvm::formatv("1 or {0}", expected).str()
                                  : llvm::formatv("{0} as in '{1}'", expected, of).str(),
                         size)
        .str();
  }
  return {};
}

int64_t OperandSizes::get(char dim) const {
  auto known = sizes.find(dim);
  if (dim == 'K' && sizes.contains('T')) {
    int64_t rows = get('Z');
    return ShapedType::isDynamic(rows) ? rows : get('T') * rows;
  }
  return known == sizes.end() ? ShapedType::kDynamic : known->second.size;
}

SmallVector<int64_t> OperandSizes::getShape(StringRef dims) const {
  return llvm::map_to_vector(dims, [&](char dim) -> int64_t {
    if (dim == '1' || dim == 'P')
      return 1;
    int64_t size = get(dim == 'C' ? 'B' : dim);
    return dim == 'C' && !ShapedType::isDynamic(size) ? size + 1 : size;
  });
}

std::string flashattn::explainHeads(int64_t queryHeads, int64_t keyHeads) {
  if (keyHeads == 0 && queryHeads != 0)
    return "expected at least 1 key/value head but got 0";
  if (ShapedType::isDynamic(queryHeads) || ShapedType::isDynamic(keyHeads) || keyHeads == 0 ||
      queryHeads % keyHeads == 0)
    return {};
  return llvm::formatv("expected the query head count to be a multiple of the key/value head "
                       "count, {0}, but got {1}",
                       keyHeads, queryHeads)
      .str();
}

static std::string getText(Type type) {
  std::string text;
  llvm::raw_string_ostream(text) << type;
  return text;
}

/// Verifies the element type of an operand; `first` is the first operand of the op.
static LogicalResult verifyElement(KernelOpInterface op, const OperandRole &role, Type found,
                                   const OperandRole &first) {
  ElementRule rule = role.rule->element;
  bool isFloat = found.isF16() || found.isBF16() || found.isF32();
  auto fail = [&](const llvm::Twine &expected) {
    return op->emitOpError() << "expected '" << role.getName() << "' with element type " << expected
                             << " but got " << found;
  };
  switch (rule) {
  case ElementRule::F32:
    return found.isF32() ? success() : LogicalResult(fail("f32"));
  case ElementRule::I1:
    return found.isSignlessInteger(1) ? success() : LogicalResult(fail("i1"));
  case ElementRule::I32:
    return found.isSignlessInteger(32) ? success() : LogicalResult(fail("i32"));
  case ElementRule::Position:
  case ElementRule::Factor:
    return success();
  case ElementRule::Float:
  case ElementRule::FloatOrF8:
  case ElementRule::LikeFirst:
  case ElementRule::LikeFirstOrF32:
  case ElementRule::LikeFirstOrNarrow:
    break;
  }
  if ((rule == ElementRule::LikeFirstOrNarrow && isNarrow(found)) ||
      (rule == ElementRule::FloatOrF8 && isF8(found)))
    return success();
  if (rule == ElementRule::FloatOrF8 && !isFloat)
    return fail("f16, bf16, f32, f8E4M3FN or f8E5M2");
  if (!isFloat)
    return fail(rule == ElementRule::LikeFirstOrNarrow ? "f16, bf16, f32, f8E4M3FN, f8E5M2 or i8"
                                                       : "f16, bf16 or f32");
  if (rule == ElementRule::Float || rule == ElementRule::FloatOrF8)
    return success();
  Type expected = cast<ShapedType>(first.value.getType()).getElementType();
  if (isF8(expected)) {
    if (rule == ElementRule::LikeFirstOrNarrow)
      return fail("f8E4M3FN, f8E5M2 or i8, beside queries of " + getText(expected) + ",");
    return success();
  }
  bool mayBeF32 = rule == ElementRule::LikeFirstOrF32 && !expected.isF32();
  if (found == expected || (mayBeF32 && found.isF32()))
    return success();
  return op->emitOpError() << "expected '" << role.getName() << "' with element type " << expected
                           << " as in '" << first.getName()
                           << (mayBeF32 ? "' or f32"
                               : rule == ElementRule::LikeFirstOrNarrow
                                   ? "', f8E4M3FN, f8E5M2 or i8"
                                   : "'")
                           << " but got " << found;
}

/// Verifies that no other operand shares the memory of an output, because the op writes outputs
/// before it has read all inputs and written all other outputs.
static LogicalResult verifyOwnMemory(KernelOpInterface op, ArrayRef<OperandRole> roles) {
  for (const OperandRole &output : roles)
    for (const OperandRole &other : roles)
      if (output.value && output.rule->is(OperandRule::Output) && output.rule != other.rule &&
          output.value == other.value)
        return op->emitOpError() << "expected separate memory for '" << output.getName()
                                 << "' but got the memory of '" << other.getName() << "'";
  return success();
}

LogicalResult flashattn::verifyOperands(KernelOpInterface op, OperandSizes &sizes) {
  SmallVector<OperandRole> roles = op.getOperandRoles();
  const OperandRole &first = roles.front();
  bool onTensors = isa<RankedTensorType>(first.value.getType());
  for (const OperandRole &role : roles) {
    if (!role.value || role.rule->isScalar())
      continue;
    auto type = cast<ShapedType>(role.value.getType());
    if (isa<RankedTensorType>(type) != onTensors)
      return op->emitOpError() << "expected all operands to be "
                               << (onTensors ? "tensors" : "memrefs") << " like '"
                               << first.getName() << "' but got '" << role.getName() << "' of type "
                               << type;
    if (type.getRank() != int64_t(role.dims.size()))
      return op->emitOpError() << "expected '" << role.getName() << "' of rank " << role.dims.size()
                               << " but got rank " << type.getRank();
    if (failed(verifyElement(op, role, type.getElementType(), first)))
      return failure();
    // The lengths D and Dv of the rows of Q, K, V and O are compile-time constants.
    bool isStatic = StringRef("DVXY").contains(role.dims.back());
    if (isStatic && ShapedType::isDynamic(type.getShape().back()))
      return op->emitOpError() << "expected a static last dimension of '" << role.getName()
                               << "' but got " << type;
    if (size_t packed = role.dims.find('P');
        packed != std::string::npos && ShapedType::isDynamic(type.getDimSize(packed)))
      return op->emitOpError() << "expected a static batch size of 1 of '" << role.getName()
                               << "' as its sequences are packed but got " << type;
    if (failed(verifyMemory(op, role.getName(), type)))
      return failure();
  }
  for (const OperandRole &role : roles) {
    if (!role.value || role.rule->isScalar())
      continue;
    ArrayRef<int64_t> shape = cast<ShapedType>(role.value.getType()).getShape();
    if (std::string wrong = sizes.add(role, shape, /*isType=*/true); !wrong.empty())
      return op->emitOpError() << wrong;
  }
  return onTensors ? success() : verifyOwnMemory(op, roles);
}
