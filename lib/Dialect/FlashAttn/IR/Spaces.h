//===- Spaces.h - text of the axes of spaces --------------------*- C++ -*-===//

#ifndef FLASHATTN_LIB_DIALECT_FLASHATTN_IR_SPACES_H
#define FLASHATTN_LIB_DIALECT_FLASHATTN_IR_SPACES_H

#include "flashattn/Dialect/FlashAttn/IR/FlashAttn.h"

namespace mlir::flashattn {

/// The directive `custom<ProgramAxes>`: names of axes, separated by commas.
ParseResult parseProgramAxes(OpAsmParser &parser, ArrayAttr &axes);
void printProgramAxes(OpAsmPrinter &printer, Operation *op, ArrayAttr axes);

} // namespace mlir::flashattn

#endif // FLASHATTN_LIB_DIALECT_FLASHATTN_IR_SPACES_H
