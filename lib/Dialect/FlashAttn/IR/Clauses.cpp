//===- Clauses.cpp - assembly format of ops with clauses ------------------===//
//
// The text of an op is a list of clauses, `name(...)`, parsed in any order and printed in a fixed
// order. A clause of a given name means the same on every op: an attribute, the operand with this
// name in the op's table (OperandRoles.cpp), the operands without a clause of their own (`ins`,
// `outs`), or the region `score_mod`.
//
//===----------------------------------------------------------------------===//

#include "flashattn/Dialect/FlashAttn/IR/FlashAttn.h"
#include "mlir/IR/OpImplementation.h"
#include "llvm/ADT/SmallSet.h"
#include "llvm/ADT/StringExtras.h"
#include "llvm/ADT/StringSwitch.h"
#include "llvm/Support/SaveAndRestore.h"

using namespace mlir;
using namespace mlir::flashattn;

//===----------------------------------------------------------------------===//
// The table: clauses that are attributes
//===----------------------------------------------------------------------===//

static ParseResult parseMaskClause(OpAsmParser &parser, Attribute &attribute) {
  MaskAttrInterface mask;
  if (parseMask(parser, mask))
    return failure();
  attribute = mask;
  SMLoc loc = parser.getCurrentLocation();
  if (succeeded(parser.parseOptionalComma()))
    return parser.emitError(loc) << "expected one mask but got two: combine them by any_of<[…]> "
                                    "(union) or all_of<[…]> (intersection)";
  return success();
}

/// Parses a number without its type, the one that the builder's method `getType` returns.
template <typename AttrT, auto getType>
static ParseResult parseNumber(OpAsmParser &parser, Attribute &attribute) {
  AttrT number;
  if (parser.parseAttribute(number, (parser.getBuilder().*getType)()))
    return failure();
  attribute = number;
  return success();
}
static constexpr auto parseF32 = parseNumber<FloatAttr, &Builder::getF32Type>;
static constexpr auto parseI64 = parseNumber<IntegerAttr, &Builder::getI64Type>;

static void printNumber(OpAsmPrinter &printer, Attribute attribute) {
  printer.printAttributeWithoutType(attribute);
}

/// Parses the bare keyword; the attribute's own printer would print a space before it.
template <typename EnumAttrT>
static ParseResult parseEnum(OpAsmParser &parser, Attribute &attribute) {
  using Enum = decltype(std::declval<EnumAttrT>().getValue());
  SMLoc loc = parser.getCurrentLocation();
  StringRef keyword;
  if (failed(parser.parseOptionalKeyword(&keyword)))
    keyword = "";
  std::string known;
  for (uint32_t i = 0; !stringifyEnum(Enum(i)).empty(); ++i) {
    known += (i ? " or " : "") + stringifyEnum(Enum(i)).str();
    if (stringifyEnum(Enum(i)) == keyword) {
      attribute = EnumAttrT::get(parser.getContext(), Enum(i));
      return success();
    }
  }
  return parser.emitError(loc) << "expected " << known << " but got '" << keyword << "'";
}

template <typename EnumAttrT> static void printEnum(OpAsmPrinter &printer, Attribute attribute) {
  printer << stringifyEnum(cast<EnumAttrT>(attribute).getValue());
}

template <typename EnumAttrT, auto value> static Attribute getEnum(MLIRContext *context) {
  return EnumAttrT::get(context, value);
}

static ParseResult parseSchedule(OpAsmParser &parser, Attribute &attribute) {
  ScheduleAttr schedule;
  if (parser.parseCustomAttributeWithFallback(schedule))
    return failure();
  attribute = schedule;
  return success();
}

namespace {
struct AttributeClause {
  llvm::StringLiteral name; ///< also the name of the op's attribute
  /// Parses and prints the text in the parentheses; null for a unit attribute without parentheses.
  ParseResult (*parse)(OpAsmParser &, Attribute &) = nullptr;
  void (*print)(OpAsmPrinter &, Attribute) = nullptr;
  /// Returns the default value, which is not printed; null if there is no default.
  Attribute (*getLeftOut)(MLIRContext *) = nullptr;
};
} // namespace

static const AttributeClause *findAttributeClause(StringRef name) {
  static constexpr AttributeClause clauses[] = {
      {"mask", parseMaskClause, [](OpAsmPrinter &printer, Attribute mask) { printer << mask; }},
      {"scale", parseF32, printNumber},
      {"softcap", parseF32, printNumber},
      {"align", parseEnum<AlignAttr>, printEnum<AlignAttr>, getEnum<AlignAttr, Align::BottomRight>},
      {"layout", parseEnum<LayoutAttr>, printEnum<LayoutAttr>, getEnum<LayoutAttr, Layout::BHSD>},
      {"deterministic"},
      {"invariant"},
      {"min_seqlen_q", parseI64, printNumber},
      {"max_seqlen_q", parseI64, printNumber},
      {"schedule", parseSchedule, [](OpAsmPrinter &printer, Attribute schedule) {
         printer.printStrippedAttrOrType(cast<ScheduleAttr>(schedule));
       }}};
  const auto *clause = llvm::find_if(clauses, [&](auto &clause) { return clause.name == name; });
  return clause == std::end(clauses) ? nullptr : clause;
}

//===----------------------------------------------------------------------===//
// The clauses of each op, in the order in which they are printed
//===----------------------------------------------------------------------===//

static constexpr llvm::StringLiteral kAttention[] = {
    "mask",      "scale",        "softcap",      "align",        "layout",       "invariant",
    "schedule",  "ins",          "bias",         "attn_mask",    "sink_logits",  "kv_len",
    "q_len",     "cu_seqlens_q", "cu_seqlens_k", "min_seqlen_q", "max_seqlen_q", "page_table",
    "leftpad_k", "k_scale",      "v_scale",      "offset",       "per_sequence", "per_query",
    "per_key",   "score_mod",    "outs"};

static constexpr llvm::StringLiteral kAttentionBackward[] = {
    "mask",     "scale",  "softcap",      "align",        "layout",    "deterministic",
    "schedule", "ins",    "d_lse",        "bias",         "attn_mask", "sink_logits",
    "kv_len",   "q_len",  "cu_seqlens_q", "cu_seqlens_k", "offset",    "per_sequence",
    "per_query", "per_key", "score_mod",  "outs",         "d_bias",    "d_sink_logits"};

static constexpr llvm::StringLiteral kCombine[] = {
    "layout", "ins", "lse_rests", "sink_logits", "cu_seqlens_q", "min_seqlen_q", "outs"};

static constexpr llvm::StringLiteral kProject[] = {"layout", "schedule", "ins", "outs"};

static ArrayRef<llvm::StringLiteral> getClauses(StringRef op) {
  return llvm::StringSwitch<ArrayRef<llvm::StringLiteral>>(op)
      .Case(AttentionOp::getOperationName(), kAttention)
      .Case(AttentionBackwardOp::getOperationName(), kAttentionBackward)
      .Case(CombineOp::getOperationName(), kCombine)
      .Case(ProjectOp::getOperationName(), kProject);
}

/// Returns the clause of an operand that has one. The row of offsets follows that of the offset.
static StringRef getClause(const OperandRule &rule) {
  return rule.name == "offsets" ? StringRef("offset") : StringRef(rule.name);
}

/// Returns the rows of `ins` or `outs`: operands without a clause of their own.
static SmallVector<unsigned> getListed(ArrayRef<llvm::StringLiteral> clauses,
                                       ArrayRef<OperandRule> rules, StringRef list) {
  SmallVector<unsigned> rows;
  for (auto [row, rule] : llvm::enumerate(rules))
    if (rule.is(OperandRule::Output) == (list == "outs") &&
        !llvm::is_contained(clauses, getClause(rule)))
      rows.push_back(row);
  return rows;
}

/// Returns "a, b and c" with `last` in place of "and".
template <typename Range> static std::string joinNames(Range &&names, StringRef last) {
  SmallVector<StringRef> all(names.begin(), names.end());
  std::string text = llvm::join(ArrayRef(all).drop_back(), ", ");
  return (text.empty() ? "" : text + " " + last.str() + " ") + all.back().str();
}

//===----------------------------------------------------------------------===//
// Parsing
//===----------------------------------------------------------------------===//

/// Whether this thread is parsing a score modification, which must not contain ops with clauses.
static thread_local bool inScoreMod = false;

namespace {
class ClauseParser {
public:
  ClauseParser(OpAsmParser &parser, OperationState &state, ArrayRef<OperandRule> rules)
      : parser(parser), state(state), clauses(getClauses(state.name.getStringRef())), rules(rules),
        operands(rules.size()) {}

  ParseResult parse() {
    // Checked here, not in the verifier: each nesting level of the parser takes stack space.
    if (inScoreMod)
      return parser.emitError(parser.getNameLoc())
             << "expected an op of arith or math, or a load, in score_mod but got '" << state.name
             << "'";
    while (true) {
      SMLoc loc = parser.getCurrentLocation();
      FailureOr<StringRef> name = parseName();
      if (failed(name))
        return failure();
      if (name->empty())
        break;
      if (!seen.insert(*name).second)
        return parser.emitError(loc) << "expected each clause once but got '" << *name << "' twice";
      if (parseClause(*name))
        return failure();
    }
    return failure(parseAttributes() || parseResults() || resolveOperands());
  }

private:
  struct GivenOperand {
    OpAsmParser::UnresolvedOperand value;
    Type type;
  };

  bool isComplete() const { return seen.contains("ins") && seen.contains("outs"); }

  /// Parses the name of the next clause; empty if there is none. The word after a complete op may
  /// be the name of the next op.
  FailureOr<StringRef> parseName() {
    StringRef name;
    if (succeeded(parser.parseOptionalKeyword(
            &name, SmallVector<StringRef>(clauses.begin(), clauses.end()))))
      return name;
    SMLoc loc = parser.getCurrentLocation();
    auto [word, isCalled] = peekWord();
    StringRef owner = findOwner(word), meant = owner.empty() ? findMeant(word) : StringRef();
    // The clause was named `keep` before.
    bool isRenamed = word == "keep" && llvm::is_contained(clauses, "attn_mask");
    if (isRenamed)
      meant = "attn_mask";
    bool isKnown = !owner.empty() || !meant.empty();
    if (isComplete() ? isCalled && isKnown : isCalled || isKnown) {
      InFlightDiagnostic error = parser.emitError(loc)
                                 << "expected one of the clauses " << joinNames(clauses, "or")
                                 << " but got '" << word << "'";
      if (isRenamed)
        error << ", which is now named '" << meant << "'";
      else if (!owner.empty())
        error << ", a clause of '" << owner << "'";
      else if (!meant.empty())
        error << "; did you mean '" << meant << "'?";
      return error;
    }
    if (isComplete())
      return StringRef();
    InFlightDiagnostic error = parser.emitError(loc)
                               << "expected the clause '" << (seen.contains("ins") ? "outs" : "ins")
                               << "' of '" << state.name << "' but got ";
    return word.empty() ? error << "none" : error << "'" << word << "'";
  }

  /// Returns the next word without consuming it, and whether it is followed by a parenthesis.
  /// Clauses are; names of ops without a dialect prefix are not.
  std::pair<StringRef, bool> peekWord() {
    const char *begin = parser.getCurrentLocation().getPointer(), *end = begin;
    while (llvm::isAlnum(*end) || *end == '_' || *end == '.')
      ++end;
    StringRef word(begin, end - begin);
    while (*end == ' ')
      ++end;
    return {word, !word.empty() && !word.contains('.') && *end == '('};
  }

  /// Returns the clause of this op that `word` probably misspells, or an empty name.
  StringRef findMeant(StringRef word) const {
    const unsigned most = word.size() < 4 ? 1 : 2;
    StringRef best;
    unsigned distance = most + 1;
    for (StringRef clause : clauses)
      if (unsigned found = clause.edit_distance(word, /*AllowReplacements=*/true, most);
          !word.empty() && found < distance) {
        best = clause;
        distance = found;
      }
    return best;
  }

  /// Returns the op that has the clause `word`, or an empty name.
  static StringRef findOwner(StringRef word) {
    for (StringRef op : {AttentionOp::getOperationName(), AttentionBackwardOp::getOperationName(),
                         CombineOp::getOperationName(), ProjectOp::getOperationName()})
      if (llvm::is_contained(getClauses(op), word))
        return op;
    return {};
  }

  ParseResult parseClause(StringRef name) {
    if (name == "score_mod") {
      llvm::SaveAndRestore<bool> guard(inScoreMod, true);
      return parser.parseRegion(*state.addRegion());
    }
    const AttributeClause *attribute = findAttributeClause(name);
    if (attribute && !attribute->parse) {
      state.addAttribute(name, parser.getBuilder().getUnitAttr());
      return success();
    }
    if (parser.parseLParen())
      return failure();
    if (name == "ins" || name == "outs")
      return failure(parseList(getListed(clauses, rules, name)) || parser.parseRParen());
    const auto *rule = llvm::find_if(rules, [&](auto &rule) { return rule.name == name; });
    if (rule != rules.end() && rule->is(OperandRule::Variadic))
      return failure(parseVariadic(*rule) || parser.parseRParen());
    if (rule != rules.end()) {
      // A1: `scale(0.1)` is the attribute, `scale(%x)` the operand.
      OpAsmParser::UnresolvedOperand value;
      OptionalParseResult parsed = parser.parseOptionalOperand(value);
      if (parsed.has_value() || !attribute) {
        if (parsed.has_value() ? failed(*parsed) : failed(parser.parseOperand(value)))
          return failure();
        // A3: `offset(%x)` is an index, `offset(%x : tensor<2xi32>)` has one for each batch.
        if (rule->element == ElementRule::Position && succeeded(parser.parseOptionalColon())) {
          Type type;
          if (parser.parseType(type))
            return failure();
          operands[rule - rules.begin() + 1] = {{value, type}};
          return parser.parseRParen();
        }
        return failure(parseOperandType(*rule, value) || parser.parseRParen());
      }
    }
    Attribute value;
    if (attribute->parse(parser, value) || parser.parseRParen())
      return failure();
    state.addAttribute(name, value);
    return success();
  }

  /// Parses the type of an operand. An index or a factor has an implicit type.
  ParseResult parseOperandType(const OperandRule &rule, OpAsmParser::UnresolvedOperand value) {
    Type type;
    if (rule.element == ElementRule::Position)
      type = parser.getBuilder().getIndexType();
    else if (rule.element == ElementRule::Factor)
      type = parser.getBuilder().getF32Type();
    else if (parser.parseColonType(type))
      return failure();
    operands[&rule - rules.begin()] = {{value, type}};
    return success();
  }

  /// Parses the operands of a variadic row, at least one, and their types.
  ParseResult parseVariadic(const OperandRule &rule) {
    SmallVector<OpAsmParser::UnresolvedOperand> values;
    SmallVector<Type> types;
    SMLoc loc = parser.getCurrentLocation();
    if (parser.parseOperandList(values) || parser.parseColonTypeList(types))
      return failure();
    if (values.size() != types.size())
      return parser.emitError(loc) << "expected a type for each operand of '" << rule.name
                                   << "' but got " << types.size() << " for " << values.size();
    if (values.size() > OperandRule::kMostOperands)
      return parser.emitError(loc) << "expected at most " << OperandRule::kMostOperands
                                   << " operands of '" << rule.name << "' but got "
                                   << values.size();
    for (auto [value, type] : llvm::zip_equal(values, types))
      operands[&rule - rules.begin()].push_back({value, type});
    return success();
  }

  /// Parses operands for `rows`, the optional ones last, and their types. Operands are identified
  /// only by their position.
  ParseResult parseList(ArrayRef<unsigned> rows) {
    auto getNames = [&](size_t count) {
      return joinNames(llvm::map_range(rows.take_front(count),
                                       [&](unsigned row) -> StringRef { return rules[row].name; }),
                       "and");
    };
    size_t least =
        llvm::count_if(rows, [&](unsigned row) { return !rules[row].is(OperandRule::Optional); });
    SmallVector<OpAsmParser::UnresolvedOperand> values;
    SmallVector<Type> types;
    SMLoc loc = parser.getCurrentLocation();
    if (parser.parseOperandList(values))
      return failure();
    if (values.size() < least || values.size() > rows.size()) {
      InFlightDiagnostic error = parser.emitError(loc) << "expected the ";
      if (least != rows.size())
        error << least << " or ";
      return error << rows.size() << (rows.size() == 1 ? " operand " : " operands ")
                   << getNames(rows.size()) << " but got " << values.size();
    }
    loc = parser.getCurrentLocation();
    if (parser.parseColonTypeList(types))
      return failure();
    if (types.size() != values.size())
      return parser.emitError(loc)
             << "expected " << values.size() << (values.size() == 1 ? " type, of " : " types, of ")
             << getNames(values.size()) << ", but got " << types.size();
    for (auto [row, value, type] : llvm::zip(rows, values, types))
      operands[row] = {{value, type}};
    return success();
  }

  /// Parses the attribute dictionary after the clauses, which may replace attribute clauses.
  ParseResult parseAttributes() {
    NamedAttrList attributes;
    SMLoc loc = parser.getCurrentLocation();
    if (parser.parseOptionalAttrDict(attributes) ||
        failed(state.name.verifyInherentAttrs(
            attributes, [&] { return parser.emitError(loc) << "'" << state.name << "' op "; })))
      return failure();
    for (NamedAttribute attribute : attributes)
      if (state.attributes.get(attribute.getName()))
        return parser.emitError(loc) << "expected each clause once but got '"
                                     << attribute.getName().getValue() << "' twice";
    state.addAttributes(attributes);
    return success();
  }

  ParseResult parseResults() {
    if (failed(parser.parseOptionalArrow()))
      return success();
    return parser.parseTypeList(state.types);
  }

  ParseResult resolveOperands() {
    SmallVector<int32_t> segments;
    for (const SmallVector<GivenOperand, 1> &given : operands) {
      segments.push_back(given.size());
      for (const GivenOperand &operand : given)
        if (parser.resolveOperand(operand.value, operand.type, state.operands))
          return failure();
    }
    if (state.name.hasTrait<OpTrait::AttrSizedOperandSegments>())
      state.addAttribute("operandSegmentSizes", parser.getBuilder().getDenseI32ArrayAttr(segments));
    return success();
  }

  OpAsmParser &parser;
  OperationState &state;
  ArrayRef<llvm::StringLiteral> clauses;
  ArrayRef<OperandRule> rules;
  SmallVector<SmallVector<GivenOperand, 1>> operands; ///< indexed by row of the table
  llvm::SmallSet<StringRef, 16> seen;
};
} // namespace

//===----------------------------------------------------------------------===//
// Printing
//===----------------------------------------------------------------------===//

static void printOperands(OpAsmPrinter &printer, StringRef clause, ValueRange values) {
  printer << " " << clause << "(" << values << " : " << values.getTypes() << ")";
}

static void printClauses(OpAsmPrinter &printer, KernelOpInterface op) {
  ArrayRef<llvm::StringLiteral> clauses = getClauses(op->getName().getStringRef());
  SmallVector<OperandRole> roles = op.getOperandRoles();
  for (StringRef name : clauses) {
    if (name == "ins" || name == "outs") {
      SmallVector<Value> values;
      for (unsigned row : getListed(clauses, op.getOperandRules(), name))
        for (const OperandRole &role : roles)
          if (role.value && role.rule == &op.getOperandRules()[row])
            values.push_back(role.value);
      printOperands(printer, name, values);
      continue;
    }
    if (name == "score_mod") {
      for (Region &region : op->getRegions()) {
        printer << " score_mod ";
        printer.printRegion(region);
      }
      continue;
    }
    SmallVector<Value> values;
    for (const OperandRole &role : roles) {
      if (!role.value || getClause(*role.rule) != name)
        continue;
      if (role.rule->isScalar())
        printer << " " << name << "(" << role.value << ")";
      else
        values.push_back(role.value);
    }
    if (!values.empty())
      printOperands(printer, name, values);
    const AttributeClause *clause = findAttributeClause(name);
    Attribute value = clause ? op->getInherentAttr(name).value_or(Attribute()) : Attribute();
    if (!value || (clause->getLeftOut && clause->getLeftOut(op->getContext()) == value))
      continue;
    printer << " " << name;
    if (!clause->print)
      continue;
    printer << "(";
    clause->print(printer, value);
    printer << ")";
  }
  printer.printOptionalAttrDict(op->getDiscardableAttrDictionary().getValue());
  if (op->getNumResults() != 0)
    printer << " -> " << op->getResultTypes();
}

#define FLASHATTN_CLAUSES_OF(Op)                                                                   \
  ParseResult Op::parse(OpAsmParser &parser, OperationState &state) {                              \
    return ClauseParser(parser, state, getOperandRules()).parse();                                 \
  }                                                                                                \
  void Op::print(OpAsmPrinter &printer) { printClauses(printer, *this); }

FLASHATTN_CLAUSES_OF(AttentionOp)
FLASHATTN_CLAUSES_OF(AttentionBackwardOp)
FLASHATTN_CLAUSES_OF(CombineOp)
FLASHATTN_CLAUSES_OF(ProjectOp)
