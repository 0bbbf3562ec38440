// What cannot be translated to LLVM IR is an error where it stands, not a silent rest.
// RUN: flash-opt %s -flashattn-to-cpu -verify-diagnostics -o /dev/null
// RUN: flash-opt %s -flashattn-to-nvvm=chip=sm_80 -verify-diagnostics -o /dev/null
// RUN: sed s/expected-error/x/ %s > %t.mlir
// RUN: not flash-opt %t.mlir -flashattn-to-cpu 2>&1 | FileCheck %s --implicit-check-not=llvm.func
// RUN: not flash-run %t.mlir --device=cpu --input=random --input=index=0 2>&1 | FileCheck %s
// CHECK: mlir:[[@LINE+5]]:3: error: 'memref.dma_wait' op is left after the lowering to LLVM IR

func.func @waits(%x: memref<1xi32>, %n: index) {
  %c0 = arith.constant 0 : index
  // expected-error@below {{'memref.dma_wait' op is left after the lowering to LLVM IR: expected an op of arith, bufferization, flashattn, func, linalg, math, memref, scf, tensor or vector that the pipelines lower}}
  memref.dma_wait %x[%c0], %n : memref<1xi32>
  return
}
