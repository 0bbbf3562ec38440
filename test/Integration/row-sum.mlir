// A weighted row sum in upstream dialects: y[r] = sum over c of w[c] * x[r, c], one block a row.
// Any module with gpu.launch on memrefs runs like this one.

// RUN: flash-opt %s --flashattn-to-nvvm=chip=sm_80 | FileCheck %s
// CHECK: gpu.binary @row_sum_kernel
// CHECK-SAME: .version 7.0
// CHECK-SAME: .target sm_80
// RUN: %if cuda %{ flash-run %s --device=cuda --input=1000xf32=ones --input=64x1000xf32=ones | FileCheck %s --check-prefix=RESULT %}
// RUN: %if fakecuda %{ env FLASHATTN_CUDA_DRIVER=%fakecuda flash-run %s --device=cuda --dump-dir=%t --input=1000xf32 --input=64x1000xf32 %}
// RUN: %if fakecuda %{ FileCheck %s --check-prefix=PTX < %t/row_sum_kernel.ptx %}
// PTX: .entry row_sum_kernel
// RUN: %if fakecuda %{ %if ptxas %{ ls %t | FileCheck %s --check-prefix=DUMP %} %}
// DUMP: gpu-kernel-outlining.mlir
// DUMP: row_sum_kernel.ptxas.txt
// RESULT: output 0: 64xf32, min 1000.0000, max 1000.0000

func.func @row_sum(%w: memref<?xf32>, %x: memref<64x?xf32>, %y: memref<64xf32>) {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %c64 = arith.constant 64 : index
  %threads = arith.constant 128 : index
  %zero = arith.constant 0.0 : f32
  %columns = memref.dim %x, %c1 : memref<64x?xf32>
  gpu.launch blocks(%row, %by, %bz) in (%gx = %c64, %gy = %c1, %gz = %c1)
             threads(%t, %ty, %tz) in (%nx = %threads, %ny = %c1, %nz = %c1) {
    %partial = scf.for %c = %t to %columns step %nx iter_args(%sum = %zero) -> (f32) {
      %weight = memref.load %w[%c] : memref<?xf32>
      %value = memref.load %x[%row, %c] : memref<64x?xf32>
      %product = arith.mulf %weight, %value : f32
      %next = arith.addf %sum, %product : f32
      scf.yield %next : f32
    }
    %total = gpu.all_reduce add %partial {} : (f32) -> f32
    %isFirst = arith.cmpi eq, %t, %c0 : index
    scf.if %isFirst {
      memref.store %total, %y[%row] : memref<64xf32>
    }
    gpu.terminator
  }
  return
}
