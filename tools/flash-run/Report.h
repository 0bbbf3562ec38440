//===- Report.h - what --json writes ------------------------------*- C++ -*-===//

#ifndef FLASH_RUN_REPORT_H
#define FLASH_RUN_REPORT_H

#include "mlir/IR/Diagnostics.h"
#include "llvm/Support/Error.h"
#include "llvm/Support/JSON.h"

namespace mlir::flashattn {

/// What a run found, for programs: docs/flash-run.md has the keys. It is written whatever becomes
/// of the run, once the flags are known to be good.
class Report {
public:
  /// `file` is where --json wants it, empty where nothing is; "-" stands for the open file
  /// `valuesFile`.
  Report(std::string file, int valuesFile) : file(std::move(file)), valuesFile(valuesFile) {}

  /// From now on there will be a report.
  void begin() { hasBegun = true; }
  bool isWanted() const { return !file.empty(); }

  void set(StringRef key, llvm::json::Value value) { fields[key] = std::move(value); }
  /// Keeps what the compiler says.
  void add(Diagnostic &diagnostic);

  /// Writes it: whether all held, and what stopped the run, if that is not empty.
  llvm::Error finish(bool pass, StringRef error);
  /// Of a run that is still going on, in another thread: that alone.
  llvm::Error finishUnfinished(StringRef error) const;

private:
  llvm::Error write(llvm::json::Object content) const;

  const std::string file;
  const int valuesFile;
  bool hasBegun = false;
  llvm::json::Object fields;
  llvm::json::Array diagnostics;
};

/// A number, or null for what JSON has no number for.
llvm::json::Value jsonNumber(double value);

} // namespace mlir::flashattn

#endif // FLASH_RUN_REPORT_H
