// RUN: flash-opt %s -pass-pipeline='builtin.module(gpu.module(flashattn-declare-dynamic-shared-memory))' | FileCheck %s

gpu.module @kernels {
  // CHECK: llvm.mlir.global external @__dynamic_shmem__0() {addr_space = 3 : i32, alignment = 1024 : i64} : !llvm.array<0 x i8>
  llvm.mlir.global internal @__dynamic_shmem__0() {addr_space = 3 : i32, alignment = 16 : i64} : !llvm.array<0 x i8>
  // A static buffer stays one, and so does what is not shared.
  // CHECK: llvm.mlir.global internal @static() {addr_space = 3 : i32, alignment = 16 : i64}
  llvm.mlir.global internal @static() {addr_space = 3 : i32, alignment = 16 : i64} : !llvm.array<8 x i8>
  // CHECK: llvm.mlir.global internal @elements() {addr_space = 3 : i32, alignment = 16 : i64}
  llvm.mlir.global internal @elements() {addr_space = 3 : i32} : !llvm.array<512 x f32>
  // CHECK: llvm.mlir.global internal @wide() {addr_space = 3 : i32, alignment = 128 : i64}
  llvm.mlir.global internal @wide() {addr_space = 3 : i32, alignment = 128 : i64} : !llvm.array<8 x f32>
  // CHECK: llvm.mlir.global internal @nothing()
  llvm.mlir.global internal @nothing() {alignment = 16 : i64} : !llvm.array<0 x i8>
}
