#ifndef FLASHATTN_CONVERSION_PASSES_TD
#define FLASHATTN_CONVERSION_PASSES_TD

include "mlir/Pass/PassBase.td"

def ConvertFlashAttnToCPU : Pass<"convert-flashattn-to-cpu", "::mlir::ModuleOp"> {
  let summary = "lower tile programs to vector code that runs in parallel over programs";
  let description = [{
    The rows of a tile lie along the lanes of a vector register and its columns
    along a loop: a row reduction is elementwise and nothing is ever shuffled.
    Each `scf.forall` becomes a function of one program and a call of
    `flashattnParallelFor` (flashattn/Runtime/ParallelFor.h).
  }];
  let options = [
    Option<"vectorWidth", "vector-width", "int64_t", "16",
           "f32 lanes of the CPU's vector registers: 16 has 32 registers, less has 16">,
  ];
  let dependentDialects = [
    "::mlir::affine::AffineDialect", "::mlir::arith::ArithDialect", "::mlir::func::FuncDialect",
    "::mlir::LLVM::LLVMDialect", "::mlir::math::MathDialect", "::mlir::memref::MemRefDialect",
    "::mlir::scf::SCFDialect", "::mlir::vector::VectorDialect"];
}

#endif // FLASHATTN_CONVERSION_PASSES_TD
