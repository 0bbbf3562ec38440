//===- OptionErrors.cpp - errors about pass options -----------------------===//

#include "flashattn/Dialect/FlashAttn/IR/OptionErrors.h"
#include "mlir/IR/Operation.h"

using namespace mlir;

InFlightDiagnostic mlir::flashattn::emitOptionError(Operation *root) {
  // A top-level module that the file does not contain explicitly has line 0.
  Location found = root->getLoc();
  root->walk<WalkOrder::PreOrder>([&](Operation *op) {
    auto place = op->getLoc()->findInstanceOf<FileLineColLoc>();
    if (!place || place.getLine() == 0)
      return WalkResult::advance();
    found = op->getLoc();
    return WalkResult::interrupt();
  });
  return emitError(found);
}
