//===- CHeader.cpp --------------------------------------------------------===//

#include "CHeader.h"
#include "llvm/ADT/StringExtras.h"
#include "llvm/Support/FormatVariadic.h"

using namespace mlir;
using namespace mlir::flashattn;

/// The text of flashattn-c/AheadOfTime.h.
static constexpr StringLiteral kRuntimeHeader =
#include "AheadOfTimeHeader.inc"
    ;

/// Returns text such as "bf16 [1, 32, k_size2, 128]".
static std::string describeTensor(const CFunction &function, unsigned index) {
  const Argument &argument = function.signature.arguments[index];
  auto describe = [&](const int64_t *values, StringRef what) {
    SmallVector<std::string> shown;
    for (int d = 0; d < argument.rank; ++d)
      shown.push_back(values[d] >= 0
                          ? llvm::Twine(values[d]).str()
                          : llvm::formatv("{0}_{1}{2}", function.names[index], what, d).str());
    return "[" + llvm::join(shown, ", ") + "]";
  };
  std::string text =
      (llvm::Twine(getName(argument.elementType)) + " " + describe(argument.sizes, "size")).str();
  text += argument.isDense ? ", dense" : ", strides " + describe(argument.strides, "stride");
  if (argument.needsAlignedPointer)
    text += ", at a multiple of 16 bytes";
  if (argument.hasAlignedRows)
    text += ", strides of the same";
  return text;
}

static std::string describeArgument(const CFunction &function, unsigned index) {
  const Argument &argument = function.signature.arguments[index];
  std::string text;
  if (argument.kind == FLASHATTN_ARGUMENT_SCALAR)
    text = getName(argument.elementType);
  else
    text = describeTensor(function, index);
  StringRef direction = argument.direction == FLASHATTN_OUTPUT  ? "out"
                        : argument.direction & FLASHATTN_OUTPUT ? "in/out"
                                                                : "in";
  return llvm::formatv("|*   {0,-14} {1,-6} {2}\n", function.names[index], direction, text).str();
}

static std::string declareParameter(const CFunction &function, const Parameter &parameter) {
  const Argument &argument = function.signature.arguments[parameter.argument];
  if (parameter.kind == Parameter::Size || parameter.kind == Parameter::Stride)
    return "int64_t " + parameter.name;
  std::string type = getCType(argument.elementType).str();
  if (parameter.kind == Parameter::Scalar)
    return type + " " + parameter.name;
  return (argument.direction & FLASHATTN_OUTPUT ? "" : "const ") + type + " *" + parameter.name;
}

static std::string declare(const CFunction &function, StringRef chips) {
  const std::string &name = function.signature.function;
  std::string text = llvm::formatv("/* {0}, for {1}.\n|*\n", name, chips).str();
  for (unsigned i = 0; i < function.names.size(); ++i)
    text += describeArgument(function, i);
  for (const SharedSize &size : function.signature.sharedSizes)
    if (function.signature.arguments[size.checked.argument].sizes[size.checked.dim] < 0 ||
        function.signature.arguments[size.expected.argument].sizes[size.expected.dim] < 0)
      text += llvm::formatv("|*   {0} of {1} (dimension {2}) is that of {3} (dimension {4}){5}\n",
                            size.name, function.names[size.checked.argument], size.checked.dim,
                            function.names[size.expected.argument], size.expected.dim,
                            size.more ? " plus " + std::to_string(size.more) : "")
                  .str();
  text += "\\*/\n";
  std::string parameters = "int32_t device, void *stream";
  for (const Parameter &parameter : function.parameters)
    parameters += ", " + declareParameter(function, parameter);
  text += "const char *" + name + "(" + parameters + ");\n";
  text += "int32_t " + name + "_device(const char **reason);\n\n";
  return text;
}

std::string flashattn::makeCHeader(ArrayRef<CFunction> functions, StringRef chips,
                                   StringRef fileName) {
  std::string guard = "FLASHATTN_MADE_";
  for (char c : fileName)
    guard += llvm::isAlnum(c) ? llvm::toUpper(c) : '_';
  std::string text = "/*===- " + fileName.str() + R"( - made by flash-compile
|*
|* Each function computes on the memory of a device: `device` is the number of a CUDA device, or
|* FLASHATTN_AOT_CPU. Tensors are given by the addresses of their first elements in the order that
|* their shapes say, the last dimension running fastest; sizes and strides count elements, and
|* those that a shape leaves open follow the address. f16 and bf16 are given as their bits, an i1
|* as a byte of 0 or 1.
|*
|* On a CUDA device the work goes to `stream`, a CUstream or cudaStream_t of the device's primary
|* context (NULL: the legacy default stream), and the call waits for nothing, so it may be captured into
|* a graph; the first call on a device loads the kernels. On the CPU `stream` is NULL, and the work
|* is done when the call returns; FLASHATTN_NUM_THREADS says with how many threads.
|*
|* A function returns NULL where all went well, otherwise what went wrong: arguments that do not fit
|* (a null address, one that is not aligned, sizes that differ), no code for the device, what the
|* driver says. The text is valid until the next failure on the thread. No output may share memory
|* with another argument. Functions may be called from several threads at once.
|*
|* F_device gives the first CUDA device that there is code of F for; otherwise FLASHATTN_AOT_CPU,
|* with why (where `reason` is not NULL).
\*===----------------------------------------------------------------------===*/

#ifndef )" + guard + "\n#define " +
                     guard + "\n\n";
  text += kRuntimeHeader.str() + "\n#ifdef __cplusplus\nextern \"C\" {\n#endif\n\n";
  for (const CFunction &function : functions)
    text += declare(function, chips);
  text += "#ifdef __cplusplus\n}\n#endif\n\n#endif /* " + guard + " */\n";
  return text;
}
