//===- OptionErrors.h - errors about pass options ---------------*- C++ -*-===//

#ifndef FLASHATTN_DIALECT_FLASHATTN_IR_OPTIONERRORS_H
#define FLASHATTN_DIALECT_FLASHATTN_IR_OPTIONERRORS_H

#include "mlir/IR/Diagnostics.h"

namespace mlir {
class Operation;
namespace flashattn {

/// Emits an error about the options of a pass over `root`. The error is located at the first op
/// that has a file location. It does not print the op, because `root` may be the whole module.
InFlightDiagnostic emitOptionError(Operation *root);

} // namespace flashattn
} // namespace mlir

#endif // FLASHATTN_DIALECT_FLASHATTN_IR_OPTIONERRORS_H
