//===- HostCode.h - from lowered modules to objects -------------*- C++ -*-===//

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

/// What the functions of a lowered module have that a caller calls begins with it: one for each
/// `func.func` with `llvm.emit_c_interface`.
inline constexpr StringLiteral kCInterfacePrefix = "_mlir_ciface_";

/// Makes a lowered module ready for its translation to LLVM IR: registers the translations, and
/// removes what functions' arguments promised to passes, of which LLVM would warn as unknown.
void prepareTranslation(ModuleOp lowered);

/// Adds `name`.entry, void (void **values), around the C interface of a function of `code`: each of
/// `values` is the address of an argument's value, and a result goes to the one behind them.
llvm::Function *addEntry(llvm::Module &code, StringRef name);

/// Makes all that `code` defines, but `kept`, visible in it alone, so that it may go where it is
/// used up.
void hideAllBut(llvm::Module &code, ArrayRef<llvm::Function *> kept);

/// Bounds the number of memory accesses that LLVM's instruction scheduler orders one by one. Its
/// time is the square of that number, and a step of gradients has thousands. Sets LLVM's option
/// `dag-maps-huge-region` for the process, unless the process has set it.
void boundScheduling();

/// What host code is compiled for.
enum class HostTarget {
  Native,   ///< this processor alone
  Portable, ///< of a GPU's kernels, which it only launches: every processor of getPortableHostCPU
  Model,    ///< of kernels on a model: this processor, with the least of LLVM's work
};

/// Whether code for this processor alone gets all of LLVM's passes, as it does unless the variable
/// FLASHATTN_OPTIMIZE_CPU is off. Without them it compiles in about a third of the time and runs
/// slower.
bool optimizesForCPU();

/// What other processors like this one have too: "x86-64-v3", or less where this one has less.
StringRef getPortableHostCPU();

/// The host code of a lowered module: what an Executable is made of.
struct HostImage {
  /// An ELF object, to be linked with the images of kernels.
  std::string object;
  /// These by the names of their symbols, in the order of the module.
  std::vector<std::pair<std::string, std::string>> kernels;
  /// Functions that can be called, by their names in the module. The object has their entries.
  std::vector<std::string> functions;
};

/// The symbol of the image that a `gpu.binary` of that name has.
std::string getKernelsSymbol(StringRef name);

/// Names of an image's functions that run before all others, and after them: void ().
inline constexpr StringLiteral kInitializeName = "flashattn.initialize";
inline constexpr StringLiteral kFinishName = "flashattn.finish";

/// Compiles host code. Beside the runtime's functions the module may call those in `symbols`.
/// Errors: what LLVM says; functions that nobody defines.
llvm::Expected<HostImage> compileHostCode(ModuleOp lowered, HostTarget target,
                                          ArrayRef<StringRef> symbols = {});

} // namespace mlir::flashattn

#endif // FLASHATTN_RUNTIME_HOSTCODE_H
