//===- InitAll.h - registration of all dialects and passes ------*- C++ -*-===//
//
// Registers the same dialects, extensions and passes for every tool and embedder.
//
//===----------------------------------------------------------------------===//

#ifndef FLASHATTN_INITALL_H
#define FLASHATTN_INITALL_H

namespace mlir {
class DialectRegistry;
namespace flashattn {

/// Registers the flashattn and hopper dialects, and the upstream dialects that the project's passes
/// read or create.
void registerAllFlashAttnDialects(DialectRegistry &registry);

/// Registers dialect extensions and external models: bufferization, translation to LLVM IR, the
/// NVVM target.
void registerAllFlashAttnExtensions(DialectRegistry &registry);

/// Registers every pass and pipeline of the project, and the upstream passes that are used with
/// these.
void registerAllFlashAttnPasses();

/// Sets the output of a tool's --version, such as "flash-mlir 0.1.0 (LLVM 22.1.8)". Must be called
/// before options are parsed.
void registerVersionPrinter();

/// Initializes the LLVM back ends that the project uses: the host's back end, for the JIT, and
/// NVPTX.
void initializeBackEnds();

} // namespace flashattn
} // namespace mlir

#endif // FLASHATTN_INITALL_H
