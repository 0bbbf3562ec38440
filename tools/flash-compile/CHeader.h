//===- CHeader.h - what C sees of an object ---------------------*- C++ -*-===//

#ifndef FLASHATTN_FLASHCOMPILE_CHEADER_H
#define FLASHATTN_FLASHCOMPILE_CHEADER_H

#include "CForm.h"

namespace mlir::flashattn {

/// The header for functions that are compiled for `chips` ("sm_90a, sm_80 and cpu"), which is to be
/// called `fileName`. It includes nothing but the C library's headers.
std::string makeCHeader(ArrayRef<CFunction> functions, StringRef chips, StringRef fileName);

} // namespace mlir::flashattn

#endif // FLASHATTN_FLASHCOMPILE_CHEADER_H
