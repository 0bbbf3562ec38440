// A kernel that hangs on a GPU, each warp at a barrier of the block that the other never comes to, ends with
// a report of who waits where.
//
// RUN: not flash-run %s --device=model:sm_90a --timeout=10 2>&1 | FileCheck %s
// CHECK: error: kernel 'hang_kernel', seed 1: deadlock: expected a runnable thread in block (0, 0, 0) but got
// CHECK-NEXT: threads 0 to 31 (warpgroup 0): waits at barrier 1 of the block, to which 32 of 64 threads have come, at hopper.group_barrier ({{.*}}hang.mlir:[[#@LINE+13]]:7, op 0 of hang_kernel{{.*}})
// CHECK-NEXT: threads 32 to 63 (warpgroup 0): waits at barrier 2 of the block, to which 32 of 64 threads have come, at hopper.group_barrier ({{.*}}hang.mlir:[[#@LINE+16]]:7, op 3 of hang_kernel{{.*}})
func.func @hang(%out: memref<64xf32>) {
  %c1 = arith.constant 1 : index
  %c64 = arith.constant 64 : index
  gpu.launch blocks(%bx, %by, %bz) in (%gx = %c1, %gy = %c1, %gz = %c1)
             threads(%tx, %ty, %tz) in (%sx = %c64, %sy = %c1, %sz = %c1) {
    %c32 = arith.constant 32 : index
    %one = arith.constant 1 : i32
    %two = arith.constant 2 : i32
    %zero = arith.constant 0.0 : f32
    %first = arith.cmpi ult, %tx, %c32 : index
    scf.if %first {
      hopper.group_barrier %one threads(64)
      memref.store %zero, %out[%tx] : memref<64xf32>
      hopper.group_barrier %two threads(64)
    } else {
      hopper.group_barrier %two threads(64)
      hopper.group_barrier %one threads(64)
      memref.store %zero, %out[%tx] : memref<64xf32>
    }
    gpu.terminator
  }
  return
}
