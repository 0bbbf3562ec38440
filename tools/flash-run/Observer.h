//===- Observer.h - compares the ops of a running module --------*- C++ -*-===//
//
// Inserts calls before and after each attention, attention_backward, combine and project op of a
// module. The calls pass the op's operands and results as they are in memory at that time. Each op
// is thus compared with the reference in place, independently of the surrounding code.
//
//===----------------------------------------------------------------------===//

#ifndef FLASH_RUN_OBSERVER_H
#define FLASH_RUN_OBSERVER_H

#include "Inputs.h"
#include "Verify.h"

namespace mlir {
class OpBuilder;
namespace flashattn {

/// An element of an op's result that is changed in memory before the comparison, to test the
/// checks.
struct PlantedFault {
  std::optional<unsigned> op; ///< index in the report; nothing: every op
  std::string result;         ///< name of the result; empty: every result
  int64_t element = 0;        ///< index, modulo the number of elements

  /// Parses `OP[.RESULT]:ELEMENT`, where OP is a number or `all`. Errors: any other text.
  static llvm::Expected<PlantedFault> parse(StringRef text);
};

struct ObserverOptions {
  /// Whether to compare results; otherwise only the work is counted.
  bool compares = true;
  /// Whether flashattn-fuse-projection may fuse a projection with its attention. The o that the
  /// projection reads is then computed by the reference, not read from memory.
  bool fusesProjection = false;
  std::optional<PlantedFault> fault;
  double maxWork = kDefaultVerifyWork; ///< of the reference, per op
};

class Observer {
public:
  /// Inserts the calls into `function` and the functions that it calls. Errors: an op that cannot
  /// be compared, with its location and the reason.
  static llvm::Expected<std::unique_ptr<Observer>> instrument(ModuleOp module, StringRef function,
                                                              ObserverOptions options);
  ~Observer();

  /// Compiles the instrumented module and calls its function once. Returns its outputs. Errors:
  /// those of compiling, of running, and of copying from the device.
  llvm::Expected<SmallVector<HostTensor>> run(ModuleOp module, const Program &program,
                                              const Inputs &inputs, Device &device,
                                              const LoweringOptions &options);

  /// Prints a line for each result of each op, and a summary. Returns true if at least one op was
  /// compared and all comparisons hold.
  bool report(raw_ostream &os) const;

  /// Returns the same for --json: an object for each op.
  llvm::json::Array describe() const;

  bool hasFault() const { return options.fault.has_value(); }
  unsigned getNumOps() const;
  /// Whether outputs are bitwise equal from run to run (rule B4).
  bool isDeterministic() const { return deterministic; }
  /// Totals over all ops: visible pairs of attention, and floating-point operations.
  uint64_t getPairs() const { return pairs; }
  double getFlops() const { return flops; }

private:
  struct Unit;
  struct Slot;

  explicit Observer(ObserverOptions options);
  llvm::Error addOps(ModuleOp module, func::FuncOp function);
  void addCalls(ModuleOp module, Unit &unit, Operation *op, Operation *project);
  void addCall(OpBuilder &builder, ModuleOp module, Location loc, StringRef suffix,
               ValueRange arguments);
  void addSlot(OpBuilder &builder, ModuleOp module, Unit &unit, Slot slot, Value value,
               Location loc);

  // Functions that the module calls.
  static void seeBuffer(int64_t unit, int64_t slot, int64_t *descriptor);
  static void seeScalar(int64_t unit, int64_t slot, int64_t bits);
  static void finish(int64_t unit);
  llvm::Error copyBuffer(Unit &unit, Slot &slot);
  llvm::Error plantFault(const Unit &unit, const Slot &slot);
  llvm::Error finishUnit(Unit &unit);
  llvm::Error compareUnit(Unit &unit);
  void fail(llvm::Error error);

  const ObserverOptions options;
  std::vector<std::unique_ptr<Unit>> units;
  std::vector<Executable::Symbol> symbols;
  Device *device = nullptr;
  /// The first error while the module ran.
  std::string error;
  uint64_t pairs = 0;
  double flops = 0;
  bool deterministic = true;
};

} // namespace flashattn
} // namespace mlir

#endif // FLASH_RUN_OBSERVER_H
