// REQUIRES: package, mlir-runner, mlir-translate
// Code for the CPU runs without flash-run: in MLIR's own runner, and linked to a program in C. Both need
// one small library, which asks for no LLVM.

// RUN: flash-opt %s -flashattn-to-cpu -o %t.mlir
// RUN: mlir-runner %t.mlir -e sum --entry-point-result=f32 --shared-libs=%flashattn_lib/libFlashAttnCPURuntime.so | FileCheck %s
// RUN: mlir-translate --mlir-to-llvmir %t.mlir -o %t.ll
// RUN: %cc -Wno-override-module -O1 %t.ll %S/Inputs/stock.c -o %t.exe -L%flashattn_lib -lFlashAttnCPURuntime -lm -Wl,-rpath,%flashattn_lib
// RUN: %t.exe | FileCheck %s
// RUN: nm -D --defined-only %flashattn_lib/libFlashAttnCPURuntime.so | sed -n 's/.* T //p' | FileCheck %s --check-prefix=SYMBOLS
// RUN: nm -D --undefined-only %flashattn_lib/libFlashAttnCPURuntime.so | FileCheck %s --check-prefix=PLAIN --allow-empty
// SYMBOLS: _mlir_memref_to_llvm_aligned_alloc
// SYMBOLS-NEXT: _mlir_memref_to_llvm_aligned_free
// SYMBOLS-NEXT: _mlir_memref_to_llvm_alloc
// SYMBOLS-NEXT: _mlir_memref_to_llvm_free
// SYMBOLS-NEXT: flashattnParallelFor
// SYMBOLS-NEXT: flashattnThreadCount
// SYMBOLS-NOT: {{.}}
// PLAIN-NOT: llvm
// PLAIN-NOT: mlir

// The mean of equal rows of V is that row, 0 to 15: 32 of them add up to 3840.
// CHECK: {{3840|3.840000e\+03}}

!t = tensor<1x2x16x16xf32>
func.func @sum() -> f32 attributes {llvm.emit_c_interface} {
  %q = tensor.generate {
  ^bb0(%b: index, %h: index, %i: index, %j: index):
    %number = arith.index_cast %j : index to i32
    %value = arith.sitofp %number : i32 to f32
    tensor.yield %value : f32
  } : !t
  %e = tensor.empty() : !t
  %o = flashattn.attention mask(#flashattn.causal) ins(%q, %q, %q : !t, !t, !t) outs(%e : !t) -> !t
  %zero = arith.constant dense<0.0> : tensor<f32>
  %sum = linalg.reduce ins(%o : !t) outs(%zero : tensor<f32>) dimensions = [0, 1, 2, 3]
    (%x: f32, %s: f32) {
      %y = arith.addf %x, %s : f32
      linalg.yield %y : f32
    }
  %r = tensor.extract %sum[] : tensor<f32>
  return %r : f32
}
