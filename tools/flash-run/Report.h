//===- Report.h - the report of --json --------------------------*- C++ -*-===//

#ifndef FLASH_RUN_REPORT_H
#define FLASH_RUN_REPORT_H

#include "mlir/IR/Diagnostics.h"
#include "llvm/Support/Error.h"
#include "llvm/Support/JSON.h"

namespace mlir::flashattn {

/// The results of a run for programs; docs/flash-run.md lists the keys. The report is written even
/// if the run fails, once the flags are valid.
class Report {
public:
  /// `file` is the path of --json; if it is empty, nothing is written. "-" represents the open file
  /// `valuesFile`.
  Report(std::string file, int valuesFile) : file(std::move(file)), valuesFile(valuesFile) {}

  /// Enables the report.
  void begin() { hasBegun = true; }
  bool isWanted() const { return !file.empty(); }

  void set(StringRef key, llvm::json::Value value) { fields[key] = std::move(value); }
  /// Records a diagnostic of the compiler.
  void add(Diagnostic &diagnostic);

  /// Writes the report, with `pass` and, if not empty, the error that ended the run.
  llvm::Error finish(bool pass, StringRef error);
  /// Writes only the error, while the run is still active in another thread.
  llvm::Error finishUnfinished(StringRef error) const;

private:
  llvm::Error write(llvm::json::Object content) const;

  const std::string file;
  const int valuesFile;
  bool hasBegun = false;
  llvm::json::Object fields;
  llvm::json::Array diagnostics;
};

/// Returns a number, or null if it is not finite.
llvm::json::Value jsonNumber(double value);

} // namespace mlir::flashattn

#endif // FLASH_RUN_REPORT_H
