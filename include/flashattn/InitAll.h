//===- InitAll.h - registers everything the project has ----------*- C++ -*-===//
//
// The same dialects, extensions and passes for every tool and embedder.
//
//===----------------------------------------------------------------------===//

#ifndef FLASHATTN_INITALL_H
#define FLASHATTN_INITALL_H

namespace mlir {
class DialectRegistry;
namespace flashattn {

/// The flashattn and hopper dialects and the upstream dialects that its passes read or make.
void registerAllFlashAttnDialects(DialectRegistry &registry);

/// External models: bufferisation, translation to LLVM IR, the NVVM target.
void registerAllFlashAttnExtensions(DialectRegistry &registry);

/// Every pass and pipeline of the project, and the upstream passes they are used with.
void registerAllFlashAttnPasses();

/// Has --version of a tool say "flash-mlir 0.1.0 (LLVM 22.1.8)". Before options are parsed.
void registerVersionPrinter();

/// LLVM's back ends in use: the host's, for the JIT, and NVPTX.
void initializeBackEnds();

} // namespace flashattn
} // namespace mlir

#endif // FLASHATTN_INITALL_H
