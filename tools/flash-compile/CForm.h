//===- CForm.h - functions as C has them ------------------------*- C++ -*-===//

#ifndef FLASHATTN_FLASHCOMPILE_CFORM_H
#define FLASHATTN_FLASHCOMPILE_CFORM_H

#include "flashattn/Pipelines/Signature.h"
#include "llvm/Support/Error.h"

namespace mlir::flashattn {

/// One parameter of a C function, behind the device and the stream.
struct Parameter {
  enum Kind { Data, Scalar, Size, Stride };
  Kind kind;
  std::string name;
  unsigned argument; ///< that it belongs to
  unsigned dim = 0;  ///< of a size or stride
};

/// A function that C can call.
struct CFunction {
  Signature signature;
  /// Names of the arguments: roles in the function's op, otherwise numbered.
  std::vector<std::string> names;
  std::vector<Parameter> parameters;
};

/// Gives every public function of the module with a body, or that of the name alone, arguments in
/// the place of results and memrefs in the place of tensors, and describes them as `chip` needs
/// them. Errors: no function; a name or types that have no C form.
llvm::Expected<std::vector<CFunction>> makeCForm(ModuleOp module, StringRef function,
                                                 StringRef chip);

/// The C type of an element, as "float"; of f16 and bf16 that of their bits.
StringRef getCType(int32_t elementType);

} // namespace mlir::flashattn

#endif // FLASHATTN_FLASHCOMPILE_CFORM_H
