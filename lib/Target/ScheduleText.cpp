//===- ScheduleText.cpp - schedules as text -------------------------------===//

#include "flashattn/Target/Schedules.h"
#include "mlir/AsmParser/AsmParser.h"
#include "llvm/ADT/MapVector.h"
#include "llvm/ADT/StringExtras.h"
#include "llvm/Support/FormatVariadic.h"

using namespace mlir;
using namespace mlir::flashattn;
using llvm::Error;
using llvm::Expected;

std::string mlir::flashattn::getScheduleFields(ScheduleAttr schedule) {
  return formatFields(schedule.getFields());
}

ScheduleAttr mlir::flashattn::parseScheduleFields(StringRef fields, MLIRContext *context) {
  // The parser's diagnostics refer to text that is in no file; the caller reports the error better.
  ScopedDiagnosticHandler quiet(context, [](Diagnostic &) { return success(); });
  std::string text = ("#flashattn.schedule<" + fields + ">").str();
  return dyn_cast_if_present<ScheduleAttr>(parseAttribute(text, context));
}

namespace {

/// The fields of "a = 1, b = c<d = 2>" by name.
using GivenFields = llvm::MapVector<StringRef, StringRef>;

GivenFields split(StringRef text) {
  GivenFields fields;
  while (!text.trim().empty()) {
    int depth = 0;
    size_t end = 0;
    for (; end < text.size() && (depth > 0 || text[end] != ','); ++end)
      depth += text[end] == '<' ? 1 : text[end] == '>' ? -1 : 0;
    auto [name, value] = text.take_front(end).split('=');
    fields[name.trim()] = value.trim();
    text = text.drop_front(std::min(end + 1, text.size()));
  }
  return fields;
}

/// Replaces visited fields by the given values. Errors: given fields that no visit names, and
/// missing fields of `required`.
class FieldReader {
public:
  FieldReader(StringRef kind, GivenFields given) : kind(kind), given(std::move(given)) {}

  bool has(StringRef name) const { return given.contains(name); }
  /// Reads a number before the visit, because defaults of other fields depend on it.
  int64_t getNumber(StringRef name, int64_t otherwise) {
    read(name, otherwise);
    return otherwise;
  }
  void require(ArrayRef<StringRef> required) {
    for (StringRef name : required)
      if (!has(name))
        fail(llvm::formatv("expected {0} field {1} but got {2}", kind, name,
                           given.empty() ? "none" : llvm::join(getNames(), ", ")));
  }
  /// Returns the error, if any, after all fields were visited.
  Error finish() {
    SmallVector<StringRef> unknown;
    for (StringRef name : getNames())
      if (!llvm::is_contained(known, name))
        unknown.push_back(name);
    llvm::sort(unknown);
    if (!unknown.empty())
      error = llvm::formatv("expected {0} fields {1} but got {2}", kind, llvm::join(known, ", "),
                            llvm::join(unknown, ", "));
    for (StringRef name : unknown)
      if (StringRef newName = getNewFieldName(name); !newName.empty())
        error += llvm::formatv("; {0} is now {1}", name, newName).str();
    return error.empty() ? Error::success() : llvm::createStringError(error);
  }

  void operator()(const FieldInfo &info, int64_t &value) {
    known.push_back(info.name);
    read(info.name, value);
  }
  void operator()(const FieldInfo &info, ProgramAxis &axis) {
    known.push_back(info.name);
    if (!has(info.name))
      return;
    std::optional<ProgramAxis> found = symbolizeProgramAxis(given[info.name]);
    if (!found || (*found != ProgramAxis::QueryTile && *found != ProgramAxis::Head))
      return failValue("query_tile or head", info.name);
    axis = *found;
  }
  void operator()(const FieldInfo &info, FloatType &type) {
    known.push_back(info.name);
    if (!has(info.name))
      return;
    MLIRContext *ctx = type.getContext();
    for (FloatType found :
         {FloatType(Float16Type::get(ctx)), FloatType(BFloat16Type::get(ctx)),
          FloatType(Float32Type::get(ctx)), FloatType(Float8E4M3FNType::get(ctx))})
      if (getTypeName(found) == given[info.name]) {
        type = found;
        return;
      }
    failValue("f16, bf16, f32 or f8E4M3FN", info.name);
  }
  void operator()(const FieldInfo &info, std::optional<bool> &value) {
    known.push_back(info.name);
    if (!has(info.name))
      return;
    value = given[info.name] == "true";
    if (!*value && given[info.name] != "false")
      failValue("true or false", info.name);
  }
  void operator()(const FieldInfo &info, std::optional<BackwardAlgorithm> &algorithm) {
    known.push_back(info.name);
    if (!has(info.name))
      return;
    algorithm = symbolizeBackwardAlgorithm(given[info.name]);
    if (!algorithm)
      failValue("separate_dq, accumulate_dq, split_dk_dv or separate_dk_dv", info.name);
  }
  /// Read separately, because defaults depend on other fields of the mapping.
  void operator()(const FieldInfo &info, MappingFields &) { known.push_back(info.name); }

private:
  void read(StringRef name, int64_t &value) {
    if (has(name) && !llvm::to_integer(given[name], value, 10))
      failValue("an integer", name);
  }
  void failValue(StringRef expected, StringRef name) {
    fail(llvm::formatv("expected {0} as {1} field {2} but got '{3}'", expected, kind, name,
                       given[name]));
  }
  /// Keeps only the first error.
  void fail(std::string message) {
    if (error.empty())
      error = std::move(message);
  }
  SmallVector<StringRef> getNames() const {
    return llvm::map_to_vector(given, [](const auto &field) { return field.first; });
  }

  StringRef kind;
  GivenFields given;
  SmallVector<StringRef> known;
  std::string error;
};

} // namespace

namespace {
/// A mapping in text such as "hopper<consumers = 3>".
struct GivenMapping {
  MappingFields fields; ///< default fields of the mapping's kind
  GivenFields given;    ///< the fields in angle brackets
};
} // namespace

static Expected<GivenMapping> readMapping(StringRef text) {
  StringRef name = text.take_while([](char c) { return c != '<'; }).rtrim(), inner = text;
  std::optional<MappingFields> fields = makeMapping(name);
  bool hasFields = inner.contains('<');
  if (!fields || (hasFields && !(inner.consume_front(name) && inner.ltrim().consume_front("<") &&
                                 inner.rtrim().ends_with(">"))))
    return llvm::createStringError(
        "expected schedule field mapping to be cpu, mma_sync<...> or hopper<...> but got '" + text +
        "'");
  GivenMapping mapping{*fields, {}};
  if (hasFields)
    mapping.given = split(inner.trim().drop_front().drop_back());
  return mapping;
}

static Expected<HopperFields> completeHopperText(GivenFields given, FloatType element) {
  FieldReader reader("hopper", std::move(given));
  int64_t consumers = reader.getNumber("consumers", 1),
          blocks = reader.getNumber("blocks_per_sm", 1);
  HopperFields hopper = completeHopper(consumers, blocks, element);
  if (reader.has("producer_registers") && !reader.has("registers"))
    hopper.registers =
        completeHopper(consumers, blocks, element, reader.getNumber("producer_registers", 0))
            .registers;
  visitHopperFields(hopper, reader);
  reader.require({"consumers"});
  if (Error error = reader.finish())
    return error;
  return hopper;
}

/// Returns the mapping of `text`. Fields that are not given are those of `base`, if that is a
/// mapping of the same kind, or have defaults for `element`.
static Expected<MappingFields> completeMapping(StringRef text, const MappingFields &base,
                                               FloatType element) {
  Expected<GivenMapping> mapping = readMapping(text);
  if (!mapping)
    return mapping.takeError();
  if (std::holds_alternative<HopperFields>(mapping->fields)) {
    Expected<HopperFields> hopper = completeHopperText(std::move(mapping->given), element);
    if (!hopper)
      return hopper.takeError();
    return *hopper;
  }
  if (base.index() == mapping->fields.index())
    mapping->fields = base;
  FieldReader reader(getMappingName(mapping->fields), std::move(mapping->given));
  visitMappingFields(mapping->fields, reader);
  if (Error error = reader.finish())
    return error;
  return mapping->fields;
}

Expected<std::optional<ScheduleFields>>
mlir::flashattn::completeSchedule(StringRef text, FloatType element, bool onCPU) {
  GivenFields given = split(text);
  FieldReader reader("schedule", given);
  ScheduleFields fields;
  // 64 rows are those of a warpgroup; without warp specialization, each warp has 16 rows.
  fields.tileM = reader.getNumber("tile_m", 64);
  fields.stages = onCPU ? 1 : 2;
  fields.dotType = onCPU ? FloatType(Float32Type::get(element.getContext())) : element;
  if (onCPU)
    fields.mapping = CPUFields();
  else
    fields.getMmaSync()->warps = std::max<int64_t>(1, fields.tileM / 16);
  if (reader.has("mapping")) {
    Expected<MappingFields> mapping = completeMapping(given["mapping"], fields.mapping, element);
    if (!mapping)
      return mapping.takeError();
    fields.mapping = *mapping;
  }
  visitScheduleFields(fields, reader);
  if (Error error = reader.finish())
    return error;
  if (!reader.has("tile_n") || !(fields.getHopper() || reader.has("tile_m")))
    return std::nullopt;
  return fields;
}

Expected<bool> mlir::flashattn::hasFields(const ScheduleFields &fields, StringRef text) {
  GivenFields given = split(text);
  ScheduleFields same = fields;
  if (auto text = given.find("mapping"); text != given.end()) {
    Expected<GivenMapping> mapping = readMapping(text->second);
    if (!mapping)
      return mapping.takeError();
    if (mapping->fields.index() == fields.mapping.index())
      mapping->fields = fields.mapping;
    FieldReader reader(getMappingName(mapping->fields), std::move(mapping->given));
    visitMappingFields(mapping->fields, reader);
    if (Error error = reader.finish())
      return error;
    same.mapping = mapping->fields;
  }
  FieldReader reader("schedule", std::move(given));
  visitScheduleFields(same, reader);
  if (Error error = reader.finish())
    return error;
  return same == fields;
}

/// Returns `fields` with those of `text` replaced. `text` must be valid.
static ScheduleFields replaceFields(ScheduleFields fields, StringRef text, FloatType element) {
  GivenFields given = split(text);
  FieldReader reader("schedule", given);
  int64_t rows = fields.tileM;
  visitScheduleFields(fields, reader);
  // Without warp specialization, keeps the rows per warp.
  if (MmaSyncFields *mmaSync = fields.getMmaSync(); mmaSync && fields.tileM != rows)
    mmaSync->warps = std::max<int64_t>(1, mmaSync->warps * fields.tileM / rows);
  if (reader.has("mapping"))
    fields.mapping = llvm::cantFail(completeMapping(given["mapping"], fields.mapping, element));
  llvm::cantFail(reader.finish());
  return fields;
}

template <typename OpT>
static Expected<ScheduleAttr> pin(OpT op, const Machine &machine, StringRef text) {
  MLIRContext *ctx = op.getContext();
  std::string invalid;
  auto emitError = [&] { return mlir::emitError(op.getLoc()); };
  auto check = [&](const ScheduleFields &fields) -> ScheduleAttr {
    ScopedDiagnosticHandler keep(ctx, [&](Diagnostic &diagnostic) {
      invalid = diagnostic.str();
      return success();
    });
    return ScheduleAttr::getVerified(emitError, ctx, fields);
  };
  auto completed = completeSchedule(text, op.getElementType(), machine.isCPU());
  if (!completed)
    return completed.takeError();
  if (*completed) {
    if (ScheduleAttr schedule = check(**completed))
      return schedule;
    return llvm::createStringError(invalid);
  }
  Refusals refusals;
  SmallVector<ScheduleAttr> candidates = getScheduleCandidates(op, machine);
  for (bool asItIs : {true, false})
    for (ScheduleAttr candidate : candidates) {
      ScheduleFields fields = replaceFields(candidate.getFields(), text, op.getElementType());
      if (asItIs != (fields == candidate.getFields()))
        continue;
      ScheduleAttr schedule = check(fields);
      std::string reason = schedule ? explainRefusal(op, schedule, machine) : invalid;
      if (reason.empty())
        return schedule;
      refusals.add(fields, reason);
    }
  return llvm::createStringError("no schedule with " + text +
                                 " fits: " + llvm::join(refusals.getLines(), "; "));
}

Expected<ScheduleAttr> mlir::flashattn::pinSchedule(AttentionOp op, const Machine &machine,
                                                    StringRef text) {
  return pin(op, machine, text);
}

Expected<ScheduleAttr> mlir::flashattn::pinSchedule(AttentionBackwardOp op, const Machine &machine,
                                                    StringRef text) {
  return pin(op, machine, text);
}

void Refusals::add(const ScheduleFields &schedule, StringRef reason) {
  auto found = llvm::find_if(reasons, [&](const Reason &r) { return r.text == reason; });
  if (found == reasons.end())
    found = reasons.insert(found, Reason{reason.str(), formatFields(schedule)});
  ++found->count;
}

SmallVector<std::string> Refusals::getLines() const {
  return llvm::map_to_vector(reasons, [](const Reason &reason) -> std::string {
    if (reason.count == 1)
      return llvm::formatv("{0}: {1}", reason.text, reason.firstSchedule);
    return llvm::formatv("{0}: {1} schedules, the first of them {2}", reason.text, reason.count,
                         reason.firstSchedule);
  });
}
