//===- Report.cpp ---------------------------------------------------------===//

#include "Report.h"
#include "CheckedOp.h"
#include "flashattn/Support/OutputFile.h"
#include "llvm/Support/FormatVariadic.h"

#include <cmath>

using namespace mlir;
using namespace mlir::flashattn;
using llvm::Error;

llvm::json::Value flashattn::jsonNumber(double value) {
  return std::isfinite(value) ? llvm::json::Value(value) : llvm::json::Value(nullptr);
}

static StringRef nameSeverity(DiagnosticSeverity severity) {
  switch (severity) {
  case DiagnosticSeverity::Error:
    return "error";
  case DiagnosticSeverity::Warning:
    return "warning";
  case DiagnosticSeverity::Remark:
    return "remark";
  case DiagnosticSeverity::Note:
    return "note";
  }
  llvm_unreachable("unknown severity");
}

void Report::add(Diagnostic &diagnostic) {
  auto describe = [](Diagnostic &one) {
    return llvm::json::Object{{"severity", nameSeverity(one.getSeverity())},
                              {"place", formatPlace(one.getLocation())},
                              {"message", llvm::json::fixUTF8(one.str())}};
  };
  llvm::json::Object found = describe(diagnostic);
  llvm::json::Array notes;
  for (Diagnostic &note : diagnostic.getNotes())
    notes.push_back(describe(note));
  if (!notes.empty())
    found["notes"] = std::move(notes);
  diagnostics.push_back(std::move(found));
}

Error Report::write(llvm::json::Object content) const {
  std::string text = llvm::formatv("{0:2}\n", llvm::json::Value(std::move(content)));
  auto print = [&](raw_ostream &os) { os << text; };
  return file == "-" ? writeStandardOutput(valuesFile, print) : writeOutputFile(file, print);
}

Error Report::finish(bool pass, StringRef error) {
  if (!hasBegun || !isWanted())
    return Error::success();
  fields["pass"] = pass;
  if (!error.empty())
    fields["error"] = llvm::json::fixUTF8(error);
  if (!diagnostics.empty())
    fields["diagnostics"] = std::move(diagnostics);
  return write(std::move(fields));
}

Error Report::finishUnfinished(StringRef error) const {
  return isWanted() ? write(llvm::json::Object{{"pass", false}, {"error", error}})
                    : Error::success();
}
