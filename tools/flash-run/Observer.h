//===- Observer.h - watches the dialect's ops of a module at work -*- C++ -*-===//
//
// Calls to the observer stand in the module before and behind each attention, attention_backward,
// combine and project and hand over the op's operands and results as they are in memory at that
// moment. So each is compared with the reference where it stands, whatever lies before and behind
// it.
//
//===----------------------------------------------------------------------===//

#ifndef FLASH_RUN_OBSERVER_H
#define FLASH_RUN_OBSERVER_H

#include "Inputs.h"
#include "Verify.h"

namespace mlir {
class OpBuilder;
namespace flashattn {

/// One element of the results of ops, to be made wrong in memory before it is seen: a check of the
/// checks.
struct PlantedFault {
  std::optional<unsigned> op; ///< by its place in the report; nothing: each
  std::string result;         ///< its name; empty: each
  int64_t element = 0;        ///< modulo their number

  /// Reads `OP[.RESULT]:ELEMENT`, OP a number or `all`. Errors: anything else.
  static llvm::Expected<PlantedFault> parse(StringRef text);
};

struct ObserverOptions {
  /// Without, only the work is counted.
  bool compares = true;
  /// Projections may be made with attention as one (flashattn-fuse-projection): what they read is
  /// not looked at, but computed by the reference.
  bool fusesProjection = false;
  std::optional<PlantedFault> fault;
  double maxWork = kDefaultVerifyWork; ///< of the reference, for each op
};

class Observer {
public:
  /// Puts the calls into `function` of the module and what it calls. Errors: an op that cannot be
  /// compared, its place and why.
  static llvm::Expected<std::unique_ptr<Observer>> instrument(ModuleOp module, StringRef function,
                                                              ObserverOptions options);
  ~Observer();

  /// Compiles the module, which was instrumented, and calls its function once. Returns its outputs.
  /// Errors: of compiling and running; what could not be brought from the device.
  llvm::Expected<SmallVector<HostTensor>> run(ModuleOp module, const Program &program,
                                              const Inputs &inputs, Device &device,
                                              const LoweringOptions &options);

  /// Prints a line for each result of each op, and a summary. True if all that was reached holds
  /// and anything was compared.
  bool report(raw_ostream &os) const;

  /// The same for --json: an object for each op.
  llvm::json::Array describe() const;

  bool hasFault() const { return options.fault.has_value(); }
  unsigned getNumOps() const;
  /// Whether outputs are the same bits from run to run (rule B4).
  bool isDeterministic() const { return deterministic; }
  /// What all ops together did: visible pairs of attention, and floating-point operations.
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

  // What the module calls.
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
