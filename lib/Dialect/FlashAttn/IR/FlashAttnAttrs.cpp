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

static ParseResult parseMasks(AsmParser &parser, ArrayAttr &masks) {
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
// Schedule
//===----------------------------------------------------------------------===//

StringRef flashattn::getTypeName(FloatType type) {
  return type.isF16() ? "f16" : type.isBF16() ? "bf16" : type.isF32() ? "f32" : "";
}

namespace {

/// Writes fields as "name = value, …", without those that hold what they do where they are left
/// out.
struct FieldPrinter {
  raw_ostream &os;
  bool first = true;

  raw_ostream &begin(StringRef name) {
    os << (first ? "" : ", ") << name << " = ";
    first = false;
    return os;
  }
  void operator()(const FieldInfo &info, int64_t value) {
    if (info.leftOut != value)
      begin(info.name) << value;
  }
  void operator()(const FieldInfo &info, ProgramAxis axis) {
    begin(info.name) << stringifyProgramAxis(axis);
  }
  void operator()(const FieldInfo &info, FloatType type) { begin(info.name) << type; }
  void operator()(const FieldInfo &info, std::optional<bool> value) {
    if (value)
      begin(info.name) << (*value ? "true" : "false");
  }
  void operator()(const FieldInfo &info, const std::optional<RolesFields> &roles) {
    if (!roles)
      return;
    begin(info.name) << '<';
    visitRolesFields(*roles, FieldPrinter{os});
    os << '>';
  }
};

/// Reads what FieldPrinter writes, fields in their order.
struct ScheduleFieldParser {
  AsmParser &parser;
  ParseResult result = success();
  bool first = true;
  bool hasComma = false; ///< one was read whose field was not

  /// Whether the field is there; reads up to its value.
  bool begin(StringRef name, bool isOptional) {
    if (failed(result))
      return false;
    if (!first && !hasComma && failed(parser.parseOptionalComma())) {
      if (!isOptional)
        result = parser.parseComma();
      return false;
    }
    hasComma = !first;
    if (isOptional && failed(parser.parseOptionalKeyword(name)))
      return false;
    if (!isOptional)
      result = parser.parseKeyword(name);
    if (succeeded(result))
      result = parser.parseEqual();
    first = hasComma = false;
    return succeeded(result);
  }
  void operator()(const FieldInfo &info, int64_t &value) {
    if (begin(info.name, info.leftOut.has_value()))
      result = parser.parseInteger(value);
  }
  void operator()(const FieldInfo &info, ProgramAxis &axis) {
    if (!begin(info.name, /*isOptional=*/false))
      return;
    FailureOr<ProgramAxis> found = mlir::FieldParser<ProgramAxis>::parse(parser);
    result = failure(failed(found));
    axis = found.value_or(axis);
  }
  void operator()(const FieldInfo &info, FloatType &type) {
    if (begin(info.name, /*isOptional=*/false))
      result = parser.parseType(type);
  }
  void operator()(const FieldInfo &info, std::optional<bool> &value) {
    if (!begin(info.name, /*isOptional=*/true))
      return;
    value = succeeded(parser.parseOptionalKeyword("true"));
    if (!*value)
      result = parser.parseKeyword("false");
  }
  void operator()(const FieldInfo &info, std::optional<RolesFields> &roles) {
    if (!begin(info.name, /*isOptional=*/true))
      return;
    ScheduleFieldParser inner{parser};
    inner.result = parser.parseLess();
    visitRolesFields(roles.emplace(), inner);
    result = inner.finish();
  }
  /// Reads the end, `>`.
  ParseResult finish() {
    if (failed(result))
      return failure();
    if (!hasComma)
      return parser.parseGreater();
    SMLoc loc = parser.getCurrentLocation();
    StringRef word;
    if (failed(parser.parseOptionalKeyword(&word)))
      word = "none";
    return parser.emitError(loc)
           << "expected another field of the schedule, in their order, but got " << word;
  }
};

/// Errors of numbers outside of their ranges, the first alone.
struct FieldVerifier {
  function_ref<InFlightDiagnostic()> emitError;
  LogicalResult result = success();

  void operator()(const FieldInfo &info, int64_t value) {
    if (succeeded(result) && (value < info.min || value > info.max))
      result = emitError() << "expected schedule field '" << info.name << "' between " << info.min
                           << " and " << info.max << " but got " << value;
  }
  template <typename T> void operator()(const FieldInfo &, const T &) {}
};

} // namespace

std::string flashattn::formatFields(const ScheduleFields &fields) {
  std::string text;
  llvm::raw_string_ostream os(text);
  visitScheduleFields(fields, FieldPrinter{os});
  return text;
}

bool RolesFields::operator==(const RolesFields &o) const {
  auto tie = [](const RolesFields &f) {
    return std::tie(f.consumers, f.along, f.registers, f.producerRegisters, f.rescale, f.section,
                    f.blocks, f.queryStages, f.persistentBelow);
  };
  return tie(*this) == tie(o);
}

bool ScheduleFields::operator==(const ScheduleFields &o) const {
  auto tie = [](const ScheduleFields &f) {
    return std::tie(f.tileM, f.tileN, f.warps, f.stages, f.lanes, f.dotType, f.pack, f.splits,
                    f.minPartTiles, f.tileQ, f.queriesInRegisters, f.apart, f.roles);
  };
  return tie(*this) == tie(o);
}

RolesFields RolesAttr::getFields() const {
  return {getConsumers(), getAlong(),  getRegisters(),   getProducerRegisters(), getRescale(),
          getSection(),   getBlocks(), getQueryStages(), getPersistentBelow()};
}

RolesAttr RolesAttr::withQueryStages(int64_t queryStages) const {
  RolesFields fields = getFields();
  fields.queryStages = queryStages;
  if (queryStages == 1)
    fields.persistentBelow = RolesFields().persistentBelow;
  return get(getContext(), fields);
}

Attribute RolesAttr::parse(AsmParser &parser, Type) {
  RolesFields fields;
  ScheduleFieldParser visitor{parser};
  visitor.result = parser.parseLess();
  visitRolesFields(fields, visitor);
  if (visitor.finish())
    return {};
  return getChecked([&] { return parser.emitError(parser.getNameLoc()); }, parser.getContext(),
                    fields);
}

void RolesAttr::print(AsmPrinter &printer) const {
  RolesFields fields = getFields();
  printer << '<';
  visitRolesFields(fields, FieldPrinter{printer.getStream()});
  printer << '>';
}

LogicalResult RolesAttr::verify(function_ref<InFlightDiagnostic()> emitError, int64_t consumers,
                                ProgramAxis along, int64_t registers, int64_t producerRegisters,
                                int64_t rescale, int64_t section, int64_t blocks,
                                int64_t queryStages, int64_t persistentBelow) {
  RolesFields fields{consumers, along,  registers,   producerRegisters, rescale,
                     section,   blocks, queryStages, persistentBelow};
  FieldVerifier verifier{emitError};
  visitRolesFields(fields, verifier);
  if (failed(verifier.result))
    return failure();
  for (auto [name, value] :
       {std::pair("registers", registers), std::pair("producer_registers", producerRegisters)})
    if (value % 8 != 0)
      return emitError() << "expected schedule field '" << name
                         << "' to be a multiple of 8, as setmaxnreg takes it, but got " << value;
  if (along != ProgramAxis::QueryTile && along != ProgramAxis::Head)
    return emitError() << "expected schedule field 'along' to be query_tile or head but got "
                       << stringifyProgramAxis(along);
  if (queryStages == 1 && persistentBelow != RolesFields().persistentBelow)
    return emitError() << "expected schedule field 'persistent_below' only with query_stages 2 but "
                          "got "
                       << persistentBelow << " with 1";
  return success();
}

ScheduleFields ScheduleAttr::getFields() const {
  return {getTileM(),
          getTileN(),
          getWarps(),
          getStages(),
          getLanes(),
          getDotType(),
          getPack(),
          getSplits(),
          getMinPartTiles(),
          getTileQ(),
          getQueriesInRegisters(),
          getApart(),
          getRoles() ? std::optional(getRoles().getFields()) : std::nullopt};
}

ScheduleAttr ScheduleAttr::withRoles(RolesAttr roles) const {
  ScheduleFields fields = getFields();
  fields.roles = roles.getFields();
  return get(getContext(), fields);
}

ScheduleAttr ScheduleAttr::withoutRoles() const {
  ScheduleFields fields = getFields();
  fields.roles.reset();
  fields.warps = getWarpsOfRows();
  fields.stages = std::min<int64_t>(fields.stages, 2);
  return get(getContext(), fields);
}

ScheduleAttr ScheduleAttr::withSplits(int64_t splits) const {
  ScheduleFields fields = getFields();
  fields.splits = splits;
  if (splits == 1)
    fields.minPartTiles = ScheduleFields().minPartTiles;
  return get(getContext(), fields);
}

bool ScheduleAttr::sumsByProducts(int64_t dv) const {
  // Columns of a panel, behind which ones have one of their own; a product has 256 at most.
  constexpr int64_t kPanel = 64, kMost = 256 - LoadTileOp::kOnes;
  return getRoles() && getDotType().isBF16() && getRoles().getRescale() > 1 && dv % kPanel == 0 &&
         dv <= kMost;
}

bool ScheduleAttr::sharesProgram() const {
  constexpr int64_t kWarpsOfGroup = 4;
  return getRoles() && getWarps() > kWarpsOfGroup;
}

bool ScheduleAttr::splitsSums() const {
  constexpr int64_t kRowsOfWarp = 16;
  return sharesProgram() && getTileM() < kRowsOfWarp * getWarps();
}

int64_t ScheduleAttr::getWarpsOfRows() const {
  return splitsSums() ? getWarps() / getRoles().getConsumers() : getWarps();
}

ScheduleAttr ScheduleAttr::forQueryTiles() const {
  ScheduleFields fields = getFields();
  if (fields.tileQ)
    fields.tileM = std::exchange(fields.tileQ, 0);
  return get(getContext(), fields);
}

ScheduleAttr ScheduleAttr::forValues() const {
  constexpr int64_t kWide = 64, kStages = 2;
  ScheduleFields fields = getFields();
  if (getRoles() && getApart().value_or(false) && fields.tileN < kWide) {
    fields.tileN = kWide;
    fields.stages = std::min(fields.stages, kStages);
  }
  return get(getContext(), fields);
}

bool ScheduleAttr::addsQueries() const {
  if (getRoles())
    return sharesProgram();
  constexpr int64_t kFewestKeys = 128;
  return getLanes() > 1 && getTileM() >= kFewestKeys && !getTileQ() &&
         !getApart().value_or(false) && !getDotType().isF32();
}

Attribute ScheduleAttr::parse(AsmParser &parser, Type) {
  ScheduleFields fields;
  ScheduleFieldParser visitor{parser};
  visitor.result = parser.parseLess();
  visitScheduleFields(fields, visitor);
  if (visitor.finish())
    return {};
  auto emitError = [&] { return parser.emitError(parser.getNameLoc()); };
  // The roles are an attribute of their own, with rules of their own.
  RolesAttr roles;
  if (fields.roles &&
      !(roles = RolesAttr::getChecked(emitError, parser.getContext(), *fields.roles)))
    return {};
  return getChecked(emitError, parser.getContext(), fields.tileM, fields.tileN, fields.warps,
                    fields.stages, fields.lanes, fields.dotType, fields.pack, fields.splits,
                    fields.minPartTiles, fields.tileQ, fields.queriesInRegisters, fields.apart,
                    roles);
}

void ScheduleAttr::print(AsmPrinter &printer) const {
  printer << '<' << formatFields(getFields()) << '>';
}

LogicalResult ScheduleAttr::verify(function_ref<InFlightDiagnostic()> emitError, int64_t tileM,
                                   int64_t tileN, int64_t warps, int64_t stages, int64_t lanes,
                                   FloatType dotType, int64_t pack, int64_t splits,
                                   int64_t minPartTiles, int64_t tileQ,
                                   std::optional<bool> queriesInRegisters,
                                   std::optional<bool> apart, RolesAttr roles) {
  ScheduleFields fields{tileM,
                        tileN,
                        warps,
                        stages,
                        lanes,
                        dotType,
                        pack,
                        splits,
                        minPartTiles,
                        tileQ,
                        queriesInRegisters,
                        apart,
                        {}};
  FieldVerifier verifier{emitError};
  visitScheduleFields(fields, verifier);
  if (failed(verifier.result))
    return failure();
  if (tileM % pack != 0)
    return emitError() << "expected schedule field 'tile_m' to be a multiple of 'pack', " << pack
                       << ", but got " << tileM;
  if (tileN % lanes != 0)
    return emitError() << "expected schedule field 'tile_n' to be a multiple of 'lanes', " << lanes
                       << ", but got " << tileN;
  if (getTypeName(dotType).empty())
    return emitError() << "expected schedule field 'dot_type' to be f16, bf16 or f32 but got "
                       << dotType;
  if (splits == 1 && minPartTiles != ScheduleFields().minPartTiles)
    return emitError() << "expected schedule field 'min_part_tiles' only with splits but got "
                       << minPartTiles << " without";
  if (roles && queriesInRegisters)
    return emitError()
           << "expected schedule field 'queries_in_registers' only without roles, whose "
              "products read the queries from shared memory";
  return success();
}
