//===- OptionErrors.h - errors about what was asked of a pass ----*- C++ -*-===//

#ifndef FLASHATTN_DIALECT_FLASHATTN_IR_OPTIONERRORS_H
#define FLASHATTN_DIALECT_FLASHATTN_IR_OPTIONERRORS_H

#include "mlir/IR/Diagnostics.h"

namespace mlir {
class Operation;
namespace flashattn {

/// Error about what was asked of a pass over `root`. It stands at the first op that has a place in
/// a file, and prints none: `root` may be all that there is.
InFlightDiagnostic emitOptionError(Operation *root);

} // namespace flashattn
} // namespace mlir

#endif // FLASHATTN_DIALECT_FLASHATTN_IR_OPTIONERRORS_H
