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

/// Prefix of the functions of a lowered module that a caller may call: there is one for each
/// `func.func` with `llvm.emit_c_interface`.
inline constexpr StringLiteral kCInterfacePrefix = "_mlir_ciface_";

/// Prepares a lowered module for its translation to LLVM IR: registers the translations, and
/// removes argument attributes that are promises to passes, because LLVM would warn about them as
/// unknown.
void prepareTranslation(ModuleOp lowered);

/// Adds `name`.entry, void (void **values), around the C interface of a function of `code`. Each of
/// `values` is the address of an argument's value; the address of a result comes after them.
llvm::Function *addEntry(llvm::Module &code, StringRef name);

/// Gives internal linkage to all definitions of `code` except `kept`, so that unused ones can be
/// removed.
void hideAllBut(llvm::Module &code, ArrayRef<llvm::Function *> kept);

/// Limits the number of memory accesses that LLVM's instruction scheduler orders individually. The
/// time that this takes is quadratic in their number, and a step of a backward pass has thousands.
/// Sets LLVM's option `dag-maps-huge-region` for the process, unless the process has set it.
void boundScheduling();

/// The target of host code.
enum class HostTarget {
  Native,   ///< this processor only
  Portable, ///< host code of GPU kernels, which it only launches: see getPortableHostCPU
  Model,    ///< kernels on a model: this processor, with minimal LLVM optimization
};

/// Whether code for HostTarget::Native is compiled with all of LLVM's passes. It is, unless the
/// environment variable FLASHATTN_OPTIMIZE_CPU is off. Without these passes, compilation takes
/// about a third of the time and the code is slower.
bool optimizesForCPU();

/// Returns the architecture level of other processors like this one: "x86-64-v3", or less if this
/// processor has less.
StringRef getPortableHostCPU();

/// The host code of a lowered module, from which an Executable is loaded.
struct HostImage {
  /// An ELF object, to be linked with the images of kernels.
  std::string object;
  /// The images of kernels with the names of their symbols, in the order of the module.
  std::vector<std::pair<std::string, std::string>> kernels;
  /// The names in the module of the functions that can be called. The object contains their
  /// entries.
  std::vector<std::string> functions;
};

/// Returns the symbol of the image of a `gpu.binary` with that name.
std::string getKernelsSymbol(StringRef name);

/// Names of the functions of an image that run before all others, and after them: void ().
inline constexpr StringLiteral kInitializeName = "flashattn.initialize";
inline constexpr StringLiteral kFinishName = "flashattn.finish";

/// Compiles host code. Besides the runtime's functions, the module may call those in `symbols`.
/// Errors: those of LLVM; undefined functions.
llvm::Expected<HostImage> compileHostCode(ModuleOp lowered, HostTarget target,
                                          ArrayRef<StringRef> symbols = {});

} // namespace mlir::flashattn

#endif // FLASHATTN_RUNTIME_HOSTCODE_H
