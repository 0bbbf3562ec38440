//===- HostCode.h - compile lowered modules to objects ----------*- C++ -*-===//

#ifndef FLASHATTN_RUNTIME_HOSTCODE_H
#define FLASHATTN_RUNTIME_HOSTCODE_H

#include "mlir/IR/BuiltinOps.h"
#include "llvm/Support/Error.h"

#include <string>
#include <vector>

namespace llvm {
class Function;
class Module;
} // namespace llvm

namespace mlir::flashattn {

/// Prefix of the names of callable functions of a lowered module, one for each `func.func` with
/// `llvm.emit_c_interface`.
inline constexpr StringLiteral kCInterfacePrefix = "_mlir_ciface_";

/// Prepares a lowered module for the translation to LLVM IR: registers the translations, and
/// removes argument attributes that only passes use, because LLVM would warn about unknown
/// attributes.
void prepareTranslation(ModuleOp lowered);

/// Adds and returns the function `name`.entry, void (void **values), which calls the C interface of
/// function `name` of `code`. `values` holds the address of each argument's value, followed by the
/// address of the result, if any.
llvm::Function *addEntry(llvm::Module &code, StringRef name);

/// Sets internal linkage on all definitions of `code` except `kept`, so that unused definitions can
/// be removed.
void hideAllBut(llvm::Module &code, ArrayRef<llvm::Function *> kept);

/// Limits the number of memory accesses that LLVM's instruction scheduler orders individually,
/// because compile time is quadratic in this number, and a step of a backward pass has thousands of
/// accesses. Sets LLVM's option `dag-maps-huge-region` for the process, unless it is already set.
void boundScheduling();

/// The target of host code.
enum class HostTarget {
  Native,   ///< code for this processor only
  Portable, ///< code that only launches GPU kernels, for getPortableHostCPU
  Model,    ///< kernels on a model: code for this processor, with minimal LLVM optimization
};

/// Whether code for HostTarget::Native is compiled with all of LLVM's passes: true unless the
/// environment variable FLASHATTN_OPTIMIZE_CPU is off. Without these passes, compilation takes
/// about a third of the time and the code is slower.
bool optimizesForCPU();

/// Returns the x86-64 level for code that also runs on similar processors: "x86-64-v3", or a lower
/// level if this processor supports less.
StringRef getPortableHostCPU();

/// The host code of a lowered module, from which an Executable is loaded.
struct HostImage {
  /// An ELF object, to be linked with the images of kernels.
  std::string object;
  /// The symbol name and the image of each group of kernels, in the order of the module.
  std::vector<std::pair<std::string, std::string>> kernels;
  /// The names of the callable functions in the module. The object contains their entries
  /// (`addEntry`).
  std::vector<std::string> functions;
};

/// Returns the symbol name of the image of the `gpu.binary` `name`.
std::string getKernelsSymbol(StringRef name);

/// Names of the functions of an image, void (), that run before all other functions and after them.
inline constexpr StringLiteral kInitializeName = "flashattn.initialize";
inline constexpr StringLiteral kFinishName = "flashattn.finish";

/// Compiles the host code of a lowered module. Besides the runtime's functions, the module may call
/// the functions `symbols`. Errors: those of LLVM; undefined functions.
llvm::Expected<HostImage> compileHostCode(ModuleOp lowered, HostTarget target,
                                          ArrayRef<StringRef> symbols = {});

} // namespace mlir::flashattn

#endif // FLASHATTN_RUNTIME_HOSTCODE_H
