//===- CHeader.h - C headers of compiled objects ----------------*- C++ -*-===//

#ifndef FLASHATTN_FLASHCOMPILE_CHEADER_H
#define FLASHATTN_FLASHCOMPILE_CHEADER_H

#include "CForm.h"

namespace mlir::flashattn {

/// Returns the text of the header `fileName` for functions that are compiled for `chips` ("sm_90a,
/// sm_80 and cpu"). It includes only headers of the C library.
std::string makeCHeader(ArrayRef<CFunction> functions, StringRef chips, StringRef fileName);

} // namespace mlir::flashattn

#endif // FLASHATTN_FLASHCOMPILE_CHEADER_H
