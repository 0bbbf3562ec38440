//===- CForm.h - functions with C signatures --------------------*- C++ -*-===//

#ifndef FLASHATTN_FLASHCOMPILE_CFORM_H
#define FLASHATTN_FLASHCOMPILE_CFORM_H

#include "flashattn/Pipelines/Signature.h"
#include "llvm/Support/Error.h"

namespace mlir::flashattn {

/// A parameter of a C function, after the device and the stream.
struct Parameter {
  enum Kind { Data, Scalar, Size, Stride };
  Kind kind;
  std::string name;
  unsigned argument; ///< index of the argument that it describes
  unsigned dim = 0;  ///< dimension of a size or stride
};

/// A function that C can call.
struct CFunction {
  Signature signature;
  /// Names of the arguments: their roles in the function's op, or numbered names.
  std::vector<std::string> names;
  std::vector<Parameter> parameters;
};

/// Converts every public function of the module with a body, or only `function` if that is not
/// empty: results become arguments, and tensors become memrefs. Returns descriptions of the
/// functions as compiled for `chip`. Errors: no function; a name or types without an equivalent in
/// C.
llvm::Expected<std::vector<CFunction>> makeCForm(ModuleOp module, StringRef function,
                                                 StringRef chip);

/// Returns the C type of an element, such as "float"; for f16 and bf16, the type of their bits.
StringRef getCType(int32_t elementType);

} // namespace mlir::flashattn

#endif // FLASHATTN_FLASHCOMPILE_CFORM_H
