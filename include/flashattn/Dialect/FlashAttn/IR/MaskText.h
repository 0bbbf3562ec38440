//===- MaskText.h - the sets of masks as text -------------------*- C++ -*-===//

#ifndef FLASHATTN_DIALECT_FLASHATTN_IR_MASKTEXT_H
#define FLASHATTN_DIALECT_FLASHATTN_IR_MASKTEXT_H

#include "mlir/IR/IntegerSet.h"
#include "mlir/Support/LLVM.h"

#include <string>

namespace mlir::flashattn {

/// Returns a set of a mask as text, such as "(p, k)[nq, nk, start] : (k - start >= 0)". `symbols`
/// are the names of symbols after nq and nk; symbols without a name are s2, s3 and so on.
std::string toText(IntegerSet set, ArrayRef<std::string> symbols = {});

} // namespace mlir::flashattn

#endif // FLASHATTN_DIALECT_FLASHATTN_IR_MASKTEXT_H
