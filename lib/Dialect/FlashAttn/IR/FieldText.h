//===- FieldText.h - fields of schedules in text ----------------*- C++ -*-===//
//
// Visitors that print, parse and verify the fields of `#flashattn.schedule` and its mappings.
//
//===----------------------------------------------------------------------===//

#ifndef FLASHATTN_LIB_DIALECT_FLASHATTN_IR_FIELDTEXT_H
#define FLASHATTN_LIB_DIALECT_FLASHATTN_IR_FIELDTEXT_H

#include "flashattn/Dialect/FlashAttn/IR/FlashAttn.h"
#include "mlir/IR/DialectImplementation.h"

namespace mlir::flashattn {

/// Prints fields as "name = value, …", without fields that have their default value.
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
  void operator()(const FieldInfo &info, std::optional<BackwardAlgorithm> algorithm) {
    if (algorithm)
      begin(info.name) << stringifyBackwardAlgorithm(*algorithm);
  }
  void operator()(const FieldInfo &info, const MappingFields &mapping) {
    begin(info.name) << getMappingName(mapping);
    if (std::holds_alternative<CPUFields>(mapping))
      return;
    os << '<';
    visitMappingFields(mapping, FieldPrinter{os});
    os << '>';
  }
};

/// Parses the fields that FieldPrinter prints, in the same order.
struct ScheduleFieldParser {
  AsmParser &parser;
  ParseResult result = success();
  bool first = true;
  bool hasComma = false; ///< a comma was parsed, but not the field after it

  /// Whether the field `name` is next; if so, parses up to its value.
  bool begin(StringRef name, bool isOptional) {
    if (failed(result))
      return false;
    if (!first && !hasComma && failed(parser.parseOptionalComma())) {
      if (!isOptional)
        result = failMissing(name);
      return false;
    }
    hasComma = !first;
    if (failed(parser.parseOptionalKeyword(name))) {
      if (!isOptional)
        result = failMissing(name);
      return false;
    }
    result = parser.parseEqual();
    first = hasComma = false;
    return succeeded(result);
  }
  ParseResult failMissing(StringRef name) {
    llvm::SMLoc location = parser.getCurrentLocation();
    std::string word = readWord();
    InFlightDiagnostic error = parser.emitError(location)
                               << "expected schedule field '" << name
                               << "', in the fields' order, but got " << word;
    return addNewName(std::move(error), word);
  }
  static ParseResult addNewName(InFlightDiagnostic error, StringRef word) {
    if (StringRef name = getNewFieldName(word); !name.empty())
      error << ", which is now '" << name << "'";
    return error;
  }
  /// Parses the word at the position of a field; "none" if there is no word.
  std::string readWord() {
    StringRef word;
    return succeeded(parser.parseOptionalKeyword(&word)) ? word.str() : "none";
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
  void operator()(const FieldInfo &info, std::optional<BackwardAlgorithm> &algorithm) {
    if (!begin(info.name, /*isOptional=*/true))
      return;
    llvm::SMLoc location = parser.getCurrentLocation();
    std::string word = readWord();
    algorithm = symbolizeBackwardAlgorithm(word);
    if (!algorithm)
      result = parser.emitError(location) << "expected algorithm separate_dq, accumulate_dq, "
                                             "split_dk_dv or separate_dk_dv but got "
                                          << word;
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
  void operator()(const FieldInfo &info, MappingFields &mapping) {
    if (!begin(info.name, /*isOptional=*/false))
      return;
    llvm::SMLoc location = parser.getCurrentLocation();
    std::string name = readWord();
    std::optional<MappingFields> made = makeMapping(name);
    if (!made) {
      result = parser.emitError(location)
               << "expected mapping cpu, mma_sync or hopper but got " << name;
      return;
    }
    mapping = *made;
    if (!std::holds_alternative<CPUFields>(mapping))
      result = parseFields(parser, mapping);
  }
  /// Parses the fields of a mapping in angle brackets.
  static ParseResult parseFields(AsmParser &parser, MappingFields &mapping) {
    ScheduleFieldParser inner{parser};
    inner.result = parser.parseLess();
    visitMappingFields(mapping, inner);
    return inner.finish();
  }
  /// Parses the closing `>`.
  ParseResult finish() {
    if (failed(result))
      return failure();
    if (!hasComma && failed(parser.parseOptionalComma()))
      return parser.parseGreater();
    llvm::SMLoc location = parser.getCurrentLocation();
    std::string word = readWord();
    InFlightDiagnostic error =
        parser.emitError(location)
        << "expected another field of the schedule, in the fixed order of fields, but got " << word;
    return addNewName(std::move(error), word);
  }
};

/// Emits an error for the first number outside its range.
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

} // namespace mlir::flashattn

#endif // FLASHATTN_LIB_DIALECT_FLASHATTN_IR_FIELDTEXT_H
