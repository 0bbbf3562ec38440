//===- FlashAttnAttrs.cpp - masks as unions of integer sets ---------------===//

#include "MaskLimits.h"
#include "flashattn/Dialect/FlashAttn/IR/MaskText.h"
#include "mlir/AsmParser/AsmParser.h"
#include "mlir/IR/DialectImplementation.h"
#include "llvm/ADT/TypeSwitch.h"
#include "llvm/Support/SaveAndRestore.h"
#include "llvm/Support/ScopedPrinter.h"
#include "llvm/Support/Threading.h"

using namespace mlir;
using namespace mlir::flashattn;

#include "flashattn/Dialect/FlashAttn/IR/FlashAttnAttrInterfaces.cpp.inc"
#include "flashattn/Dialect/FlashAttn/IR/FlashAttnDialect.cpp.inc"
#include "flashattn/Dialect/FlashAttn/IR/FlashAttnEnums.cpp.inc"
/// Parses the set of `#flashattn.set`: quoted text, or the alias of an affine_set.
static ParseResult parseVisibleSet(AsmParser &parser, IntegerSetAttr &set) {
  SMLoc loc = parser.getCurrentLocation();
  std::string text;
  if (failed(parser.parseOptionalString(&text)))
    return parser.parseAttribute(set);
  // Diagnostics of the nested parser have no location in the file, so only keep their message.
  std::string reason;
  {
    ScopedDiagnosticHandler handler(parser.getContext(),
                                    [&, thread = llvm::get_threadid()](Diagnostic &diagnostic) {
                                      if (llvm::get_threadid() != thread)
                                        return failure();
                                      reason = diagnostic.str();
                                      return success();
                                    });
    set = dyn_cast_if_present<IntegerSetAttr>(
        parseAttribute("affine_set<" + text + ">", parser.getContext()));
  }
  if (!set)
    return parser.emitError(loc) << "expected an integer set such as "
                                    "\"(p, k)[nq, nk] : (p - k >= 0)\" but got \""
                                 << text << "\": " << reason;
  return success();
}

std::string flashattn::toText(IntegerSet set, ArrayRef<std::string> symbols) {
  std::string printed, text;
  llvm::raw_string_ostream stream(printed);
  set.print(stream);
  SmallVector<std::string> dims = {"p", "k"}, all = {"nq", "nk"};
  llvm::append_range(all, symbols);
  for (StringRef rest = printed; !rest.empty();) {
    // A name is a letter and a number, and other words have no digits: mod, floordiv, ceildiv.
    StringRef digits = rest.drop_front().take_while(llvm::isDigit);
    ArrayRef<std::string> names = rest.front() == 'd' ? dims : all;
    unsigned number;
    bool isName = (rest.front() == 'd' || rest.front() == 's') && !digits.getAsInteger(10, number);
    StringRef word = rest.take_front(1 + (isName ? digits.size() : 0));
    text += isName && number < names.size() ? StringRef(names[number]) : word;
    rest = rest.drop_front(word.size());
  }
  return text;
}

/// Prints the set as quoted text, which parses in text without aliases and in bytecode too.
static void printVisibleSet(AsmPrinter &printer, IntegerSetAttr set) {
  printer.printString(toText(set.getValue()));
}

/// Number of masks that enclose the mask that this thread is parsing.
static thread_local unsigned maskDepth = 0;

static InFlightDiagnostic emitTooDeep(function_ref<InFlightDiagnostic()> emitError) {
  return emitError() << "expected any_of and all_of to nest at most " << kMaxMaskDepth
                     << " deep but got more";
}

static ParseResult parseMasks(AsmParser &parser, ArrayAttr &masks) {
  // Checked before the verifier, which runs after the whole mask is parsed: nesting takes stack
  // space.
  llvm::SaveAndRestore<unsigned> guard(maskDepth, maskDepth + 1);
  if (maskDepth > kMaxMaskDepth)
    return emitTooDeep([&] { return parser.emitError(parser.getCurrentLocation()); });
  SmallVector<Attribute> elements;
  auto parseElement = [&]() -> ParseResult {
    MaskAttrInterface mask;
    if (parseMask(parser, mask))
      return failure();
    elements.push_back(mask);
    return success();
  };
  if (parser.parseCommaSeparatedList(AsmParser::Delimiter::Square, parseElement))
    return failure();
  masks = ArrayAttr::get(parser.getContext(), elements);
  return success();
}

static void printMasks(AsmPrinter &printer, ArrayAttr masks) { printer << masks; }

#define GET_ATTRDEF_CLASSES
#include "flashattn/Dialect/FlashAttn/IR/FlashAttnAttrs.cpp.inc"

ParseResult flashattn::parseMask(AsmParser &parser, MaskAttrInterface &mask) {
  SMLoc loc = parser.getCurrentLocation();
  Attribute attribute;
  OptionalParseResult parsed = parser.parseOptionalAttribute(attribute);
  StringRef name;
  if (!parsed.has_value())
    parsed = generatedAttributeParser(parser, &name, Type(), attribute);
  if (parsed.has_value() && failed(*parsed))
    return failure();
  if (auto set = dyn_cast_if_present<IntegerSetAttr>(attribute))
    attribute = SetAttr::getChecked([&] { return parser.emitError(loc); }, set.getContext(), set);
  if (parsed.has_value() && !attribute)
    return failure();
  mask = dyn_cast_if_present<MaskAttrInterface>(attribute);
  if (mask)
    return success();
  InFlightDiagnostic diag =
      parser.emitError(loc)
      << "expected a mask, as causal, window<left = 3, right = 0>, sink<4>, "
         "set<\"(p, k)[nq, nk] : (p - k >= 0)\">, any_of<[…]>, all_of<[…]> or "
         "an attribute of another dialect, but got ";
  return attribute ? diag << attribute : diag << "'" << name << "'";
}

#define GET_TYPEDEF_CLASSES
#include "flashattn/Dialect/FlashAttn/IR/FlashAttnTypes.cpp.inc"

void FlashAttnDialect::initialize() {
  addAttributes<
#define GET_ATTRDEF_LIST
#include "flashattn/Dialect/FlashAttn/IR/FlashAttnAttrs.cpp.inc"
      >();
  addTypes<
#define GET_TYPEDEF_LIST
#include "flashattn/Dialect/FlashAttn/IR/FlashAttnTypes.cpp.inc"
      >();
  addOperations<
#define GET_OP_LIST
#include "flashattn/Dialect/FlashAttn/IR/FlashAttnOps.cpp.inc"
      >();
}

//===----------------------------------------------------------------------===//
// Masks
//===----------------------------------------------------------------------===//

/// Returns the nesting depth of `masks`, and their number including nested masks. Stops counting
/// above kMaxMaskParts.
static std::pair<size_t, size_t> measure(ArrayAttr masks) {
  size_t depth = 0, parts = 0;
  for (Attribute mask : masks) {
    auto anyOf = dyn_cast_or_null<AnyOfAttr>(mask);
    auto allOf = dyn_cast_or_null<AllOfAttr>(mask);
    ArrayAttr inner = anyOf ? anyOf.getMasks() : allOf ? allOf.getMasks() : ArrayAttr();
    auto [innerDepth, innerParts] = inner ? measure(inner) : std::pair<size_t, size_t>();
    depth = std::max(depth, innerDepth);
    parts += 1 + innerParts;
    if (parts > kMaxMaskParts)
      break;
  }
  return {depth + 1, parts};
}

static LogicalResult verifyNesting(function_ref<InFlightDiagnostic()> emitError, ArrayAttr masks) {
  // With aliases, a mask can be deeper and larger than its text, even if it contains no sets.
  auto [depth, parts] = measure(masks);
  if (depth > kMaxMaskDepth)
    return emitTooDeep(emitError);
  if (parts > kMaxMaskParts)
    return emitError() << "expected a mask of at most " << kMaxMaskParts
                       << " parts, with each use counted, but got more";
  return success();
}

/// Returns the set of pairs for which each of `constraints` is at least 0. Constraints are affine
/// expressions over (p, k)[nq, nk].
static IntegerSet makeVisibleSet(MLIRContext *ctx, ArrayRef<AffineExpr> constraints) {
  if (constraints.empty())
    return IntegerSet::get(2, 2, getAffineConstantExpr(0, ctx), /*eqFlags=*/{true});
  return IntegerSet::get(2, 2, constraints, SmallVector<bool>(constraints.size(), false));
}

SmallVector<IntegerSet> CausalAttr::getVisibleSets() const {
  AffineExpr p, k;
  bindDims(getContext(), p, k);
  return {makeVisibleSet(getContext(), {p - k})};
}

SmallVector<IntegerSet> WindowAttr::getVisibleSets() const {
  AffineExpr p, k;
  bindDims(getContext(), p, k);
  SmallVector<AffineExpr> constraints;
  if (getLeft())
    constraints.push_back(k - p + *getLeft());
  if (getRight())
    constraints.push_back(p - k + *getRight());
  return {makeVisibleSet(getContext(), constraints)};
}

SmallVector<IntegerSet> SinkAttr::getVisibleSets() const {
  AffineExpr p, k;
  bindDims(getContext(), p, k);
  return {makeVisibleSet(getContext(), {getCount() - 1 - k})};
}

SmallVector<IntegerSet> SetAttr::getVisibleSets() const { return {getSet().getValue()}; }

SmallVector<IntegerSet> AnyOfAttr::getVisibleSets() const {
  SmallVector<IntegerSet> sets;
  for (Attribute mask : getMasks())
    llvm::append_range(sets, cast<MaskAttrInterface>(mask).getVisibleSets());
  return sets;
}

/// The intersection distributes over the unions: one conjunction per choice of a
/// set from every mask.
SmallVector<IntegerSet> AllOfAttr::getVisibleSets() const {
  SmallVector<IntegerSet> product = {makeVisibleSet(getContext(), {})};
  for (Attribute mask : getMasks()) {
    SmallVector<IntegerSet> next;
    for (IntegerSet lhs : product)
      for (IntegerSet rhs : cast<MaskAttrInterface>(mask).getVisibleSets()) {
        auto constraints = llvm::to_vector(lhs.getConstraints());
        // llvm::to_vector would read {begin, end}, two pointers to bool, as a list of two flags.
        SmallVector<bool> eqFlags(lhs.getEqFlags());
        llvm::append_range(constraints, rhs.getConstraints());
        llvm::append_range(eqFlags, rhs.getEqFlags());
        unsigned symbols = std::max(lhs.getNumSymbols(), rhs.getNumSymbols());
        next.push_back(IntegerSet::get(2, symbols, constraints, eqFlags));
      }
    product = std::move(next);
  }
  return product;
}

static LogicalResult verifyCount(function_ref<InFlightDiagnostic()> emitError, StringRef what,
                                 std::optional<int64_t> value) {
  if (value && (*value < 0 || *value > kMaxMaskCoefficient))
    return emitError() << "expected " << what << " between 0 and " << kMaxMaskCoefficient
                       << " but got " << *value;
  return success();
}

LogicalResult WindowAttr::verify(function_ref<InFlightDiagnostic()> emitError,
                                 std::optional<int64_t> left, std::optional<int64_t> right) {
  if (failed(verifyCount(emitError, "window bound 'left'", left)))
    return failure();
  return verifyCount(emitError, "window bound 'right'", right);
}

LogicalResult SinkAttr::verify(function_ref<InFlightDiagnostic()> emitError, int64_t count) {
  return verifyCount(emitError, "sink count", count);
}

LogicalResult SetAttr::verify(function_ref<InFlightDiagnostic()> emitError, IntegerSetAttr set) {
  return verifyVisibleSets(emitError, set.getValue());
}

LogicalResult AnyOfAttr::verify(function_ref<InFlightDiagnostic()> emitError, ArrayAttr masks) {
  if (failed(verifyNesting(emitError, masks)))
    return failure();
  return verifyMasks(emitError, masks, /*multiply=*/false);
}

LogicalResult AllOfAttr::verify(function_ref<InFlightDiagnostic()> emitError, ArrayAttr masks) {
  if (failed(verifyNesting(emitError, masks)))
    return failure();
  return verifyMasks(emitError, masks, /*multiply=*/true);
}
