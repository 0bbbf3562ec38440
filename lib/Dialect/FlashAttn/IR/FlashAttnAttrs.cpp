//===- FlashAttnAttrs.cpp - masks as unions of integer sets, schedules ----===//

#include "flashattn/Dialect/FlashAttn/IR/FlashAttn.h"
#include "mlir/AsmParser/AsmParser.h"
#include "mlir/IR/DialectImplementation.h"
#include "llvm/ADT/TypeSwitch.h"
#include "llvm/Support/ScopedPrinter.h"
#include "llvm/Support/Threading.h"

using namespace mlir;
using namespace mlir::flashattn;

#include "flashattn/Dialect/FlashAttn/IR/FlashAttnAttrInterfaces.cpp.inc"
#include "flashattn/Dialect/FlashAttn/IR/FlashAttnDialect.cpp.inc"
#include "flashattn/Dialect/FlashAttn/IR/FlashAttnEnums.cpp.inc"
/// The set of `#flashattn.set`: quoted text, or the alias of an affine_set.
static ParseResult parseVisibleSet(AsmParser &parser, IntegerSetAttr &set) {
  SMLoc loc = parser.getCurrentLocation();
  std::string text;
  if (failed(parser.parseOptionalString(&text)))
    return parser.parseAttribute(set);
  // What the nested parser says has no place in the file: keep its message, and say where.
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

/// Quoted, so that it reads back from every form: text without aliases and bytecode too.
static void printVisibleSet(AsmPrinter &printer, IntegerSetAttr set) {
  std::string text;
  llvm::raw_string_ostream stream(text);
  set.getValue().print(stream);
  // The verifier leaves exactly these four names, none of which is part of another.
  for (auto [from, to] : {std::pair("d0", "p"), {"d1", "k"}, {"s0", "nq"}, {"s1", "nk"}})
    for (size_t at = 0; (at = text.find(from, at)) != std::string::npos;)
      text.replace(at, 2, to);
  printer.printString(text);
}

/// The fields of roles that are 1 where they are left out.
static ParseResult parseOptionalFields(AsmParser &parser, int64_t &blocks, int64_t &queryStages) {
  blocks = queryStages = 1;
  bool hasComma = succeeded(parser.parseOptionalComma());
  if (hasComma && succeeded(parser.parseOptionalKeyword("blocks"))) {
    if (parser.parseEqual() || parser.parseInteger(blocks))
      return failure();
    hasComma = succeeded(parser.parseOptionalComma());
  }
  if (hasComma && (parser.parseKeyword("query_stages") || parser.parseEqual() ||
                   parser.parseInteger(queryStages)))
    return failure();
  return success();
}

static void printOptionalFields(AsmPrinter &printer, int64_t blocks, int64_t queryStages) {
  if (blocks != 1)
    printer << ", blocks = " << blocks;
  if (queryStages != 1)
    printer << ", query_stages = " << queryStages;
}

/// The last fields of a schedule, in this order, each of which may be left out.
static ParseResult parseLastFields(AsmParser &parser, int64_t &pack, int64_t &splits,
                                   RolesAttr &roles) {
  pack = splits = 1;
  if (failed(parser.parseOptionalComma()))
    return success();
  for (auto [name, value] : {std::pair("pack", &pack), std::pair("splits", &splits)}) {
    if (failed(parser.parseOptionalKeyword(name)))
      continue;
    if (parser.parseEqual() || parser.parseInteger(*value))
      return failure();
    if (failed(parser.parseOptionalComma()))
      return success();
  }
  return failure(parser.parseKeyword("roles") || parser.parseEqual() ||
                 parser.parseCustomAttributeWithFallback(roles));
}

static void printLastFields(AsmPrinter &printer, int64_t pack, int64_t splits, RolesAttr roles) {
  if (pack != 1)
    printer << ", pack = " << pack;
  if (splits != 1)
    printer << ", splits = " << splits;
  if (roles) {
    printer << ", roles = ";
    printer.printStrippedAttrOrType(roles);
  }
}

#define GET_ATTRDEF_CLASSES
#include "flashattn/Dialect/FlashAttn/IR/FlashAttnAttrs.cpp.inc"

void FlashAttnDialect::initialize() {
  addAttributes<
#define GET_ATTRDEF_LIST
#include "flashattn/Dialect/FlashAttn/IR/FlashAttnAttrs.cpp.inc"
      >();
  addOperations<
#define GET_OP_LIST
#include "flashattn/Dialect/FlashAttn/IR/FlashAttnOps.cpp.inc"
      >();
}

//===----------------------------------------------------------------------===//
// Masks
//===----------------------------------------------------------------------===//

/// The set of pairs where every one of `constraints`, affine expressions over
/// (p, k)[nq, nk], is at least 0.
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
        // Not to_vector: its {begin, end} of bool pointers reads as a list of two flags.
        SmallVector<bool> eqFlags(lhs.getEqFlags());
        llvm::append_range(constraints, rhs.getConstraints());
        llvm::append_range(eqFlags, rhs.getEqFlags());
        next.push_back(IntegerSet::get(2, 2, constraints, eqFlags));
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
  IntegerSet value = set.getValue();
  if (value.getNumDims() != 2 || value.getNumSymbols() != 2)
    return emitError() << "expected an affine_set over the 2 dimensions (p, k) and the 2 symbols "
                          "[nq, nk] but got "
                       << value.getNumDims() << " dimensions and " << value.getNumSymbols()
                       << " symbols";
  for (AffineExpr constraint : value.getConstraints()) {
    AffineExpr tooLarge;
    constraint.walk([&](AffineExpr e) {
      if (auto c = dyn_cast<AffineConstantExpr>(e))
        if (c.getValue() > kMaxMaskCoefficient || c.getValue() < -kMaxMaskCoefficient)
          tooLarge = e;
    });
    if (tooLarge)
      return emitError() << "expected coefficients of absolute value at most "
                         << kMaxMaskCoefficient << " but got "
                         << cast<AffineConstantExpr>(tooLarge).getValue();
    AffineExpr badDivisor;
    constraint.walk([&](AffineExpr e) {
      bool divides = e.getKind() == AffineExprKind::FloorDiv ||
                     e.getKind() == AffineExprKind::CeilDiv || e.getKind() == AffineExprKind::Mod;
      if (!divides)
        return;
      AffineExpr divisor = cast<AffineBinaryOpExpr>(e).getRHS();
      if (auto c = dyn_cast<AffineConstantExpr>(divisor); c && c.getValue() < 1)
        badDivisor = divisor;
    });
    if (badDivisor)
      return emitError() << "expected divisors and moduli of at least 1 but got "
                         << cast<AffineConstantExpr>(badDivisor).getValue();
    if (!constraint.isPureAffine())
      return emitError() << "expected a pure affine constraint (constant factors, divisors and "
                            "moduli) but got '"
                         << llvm::to_string(constraint) << "'";
  }
  return success();
}

static LogicalResult verifyMasks(function_ref<InFlightDiagnostic()> emitError, ArrayAttr masks,
                                 bool multiply) {
  size_t sets = multiply ? 1 : 0;
  for (Attribute mask : masks) {
    auto interface = dyn_cast_or_null<MaskAttrInterface>(mask);
    if (!interface)
      return emitError() << "expected a mask attribute but got " << mask;
    size_t n = interface.getVisibleSets().size();
    sets = multiply ? sets * n : sets + n;
    if (sets > kMaxVisibleSets)
      return emitError() << "expected a mask of at most " << kMaxVisibleSets
                         << " integer sets but got " << sets;
  }
  return success();
}

LogicalResult AnyOfAttr::verify(function_ref<InFlightDiagnostic()> emitError, ArrayAttr masks) {
  return verifyMasks(emitError, masks, /*multiply=*/false);
}

LogicalResult AllOfAttr::verify(function_ref<InFlightDiagnostic()> emitError, ArrayAttr masks) {
  return verifyMasks(emitError, masks, /*multiply=*/true);
}

//===----------------------------------------------------------------------===//
// Program axes
//===----------------------------------------------------------------------===//

int64_t ProgramAxisAttr::getMappingId() const { return static_cast<int64_t>(getValue()); }
bool ProgramAxisAttr::isLinearMapping() const { return false; }
int64_t ProgramAxisAttr::getRelativeIndex() const { return getMappingId(); }

//===----------------------------------------------------------------------===//
// Schedule
//===----------------------------------------------------------------------===//

/// Error unless `value`, of the field `name` of a schedule, lies between `min` and `max`.
static LogicalResult verifyField(function_ref<InFlightDiagnostic()> emitError, StringRef name,
                                 int64_t value, int64_t min, int64_t max) {
  if (value < min || value > max)
    return emitError() << "expected schedule field '" << name << "' between " << min << " and "
                       << max << " but got " << value;
  return success();
}

LogicalResult RolesAttr::verify(function_ref<InFlightDiagnostic()> emitError, int64_t consumers,
                                ProgramAxis along, int64_t registers, int64_t producerRegisters,
                                int64_t rescale, int64_t section, int64_t blocks,
                                int64_t queryStages) {
  if (failed(verifyField(emitError, "consumers", consumers, 1, 7)) ||
      failed(verifyField(emitError, "registers", registers, 24, 256)) ||
      failed(verifyField(emitError, "producer_registers", producerRegisters, 24, 256)) ||
      failed(verifyField(emitError, "rescale", rescale, 0, 15)) ||
      failed(verifyField(emitError, "section", section, 1, 65535)) ||
      failed(verifyField(emitError, "blocks", blocks, 1, 8)) ||
      failed(verifyField(emitError, "query_stages", queryStages, 1, 2)))
    return failure();
  for (auto [name, value] :
       {std::pair("registers", registers), std::pair("producer_registers", producerRegisters)})
    if (value % 8 != 0)
      return emitError() << "expected schedule field '" << name
                         << "' to be a multiple of 8, as setmaxnreg takes it, but got " << value;
  if (along != ProgramAxis::QueryTile && along != ProgramAxis::Head)
    return emitError() << "expected schedule field 'along' to be query_tile or head but got "
                       << stringifyProgramAxis(along);
  return success();
}

LogicalResult ScheduleAttr::verify(function_ref<InFlightDiagnostic()> emitError, int64_t tileM,
                                   int64_t tileN, int64_t warps, int64_t stages, int64_t lanes,
                                   FloatType dotType, int64_t pack, int64_t splits,
                                   RolesAttr roles) {
  auto inRange = [&](StringRef name, int64_t value, int64_t max) {
    return verifyField(emitError, name, value, 1, max);
  };
  if (failed(inRange("tile_m", tileM, 1024)) || failed(inRange("tile_n", tileN, 1024)) ||
      failed(inRange("warps", warps, 32)) || failed(inRange("stages", stages, 8)) ||
      failed(inRange("lanes", lanes, 32)) || failed(inRange("pack", pack, tileM)) ||
      failed(inRange("splits", splits, kMaxSplits)))
    return failure();
  if (tileM % pack != 0)
    return emitError() << "expected schedule field 'tile_m' to be a multiple of 'pack', " << pack
                       << ", but got " << tileM;
  if (tileN % lanes != 0)
    return emitError() << "expected schedule field 'tile_n' to be a multiple of 'lanes', " << lanes
                       << ", but got " << tileN;
  if (!dotType.isF16() && !dotType.isBF16() && !dotType.isF32())
    return emitError() << "expected schedule field 'dot_type' to be f16, bf16 or f32 but got "
                       << dotType;
  return success();
}
