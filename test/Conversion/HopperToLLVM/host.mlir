// RUN: flash-opt %s -convert-hopper-host-to-llvm | FileCheck %s
// RUN: flash-opt %s -flashattn-to-nvvm=chip=sm_90a | FileCheck %s --check-prefix=LLVM

module attributes {gpu.container_module} {
  gpu.binary @kernels [#gpu.object<#nvvm.target<chip = "sm_90a">, assembly = ".version 8.0\0A">]

  // CHECK-LABEL: func.func @launch
  // CHECK: %[[STRIDES:.*]] = llvm.alloca %{{.*}} x !llvm.array<3 x i64> {alignment = 8 : i64}
  // CHECK: %[[SIZES:.*]] = llvm.alloca %{{.*}} x !llvm.array<3 x i64> {alignment = 8 : i64}
  // CHECK: %[[MAP:.*]] = llvm.alloca %{{.*}} x !llvm.array<16 x i64> {alignment = 64 : i64}
  // CHECK: scf.for
  // CHECK: %[[INDEX:.*]] = memref.extract_aligned_pointer_as_index
  // CHECK: %[[I64:.*]] = arith.index_cast %[[INDEX]]
  // CHECK: %[[ADDRESS:.*]] = llvm.inttoptr %[[I64]]
  // CHECK: %{{.*}}, %[[OFFSET:.*]], %[[SIZE:.*]]:3, %[[STRIDE:.*]]:3 = memref.extract_strided_metadata
  // CHECK: %[[AT:.*]] = llvm.getelementptr %[[SIZES]][1]
  // CHECK: %[[VALUE:.*]] = arith.index_cast %[[SIZE]]#1
  // CHECK: llvm.store %[[VALUE]], %[[AT]]
  // CHECK: %[[AT:.*]] = llvm.getelementptr %[[STRIDES]][1]
  // CHECK: %[[VALUE:.*]] = arith.index_cast %[[STRIDE]]#1
  // CHECK: llvm.store %[[VALUE]], %[[AT]]
  // CHECK: %[[BF16:.*]] = llvm.mlir.constant(1 : i32)
  // CHECK: %[[OFFSET64:.*]] = arith.index_cast %[[OFFSET]]
  // CHECK: %[[RANK:.*]] = llvm.mlir.constant(3 : i64)
  // CHECK: %[[ROW_DIM:.*]] = llvm.mlir.constant(1 : i64)
  // CHECK: %[[ROWS:.*]] = llvm.mlir.constant(80 : i64)
  // CHECK: %[[OUTER_DIM:.*]] = llvm.mlir.constant(0 : i64)
  // CHECK: %[[OUTER_ROWS:.*]] = llvm.mlir.constant(1 : i64)
  // CHECK: %[[COLUMNS:.*]] = llvm.mlir.constant(64 : i64)
  // CHECK: llvm.call @flashattnEncodeTensorMap(%[[MAP]], %[[ADDRESS]], %[[OFFSET64]], %[[RANK]], %[[SIZES]], %[[STRIDES]], %[[BF16]], %[[ROW_DIM]], %[[ROWS]], %[[OUTER_DIM]], %[[OUTER_ROWS]], %[[COLUMNS]])
  // CHECK: %[[BYTES:.*]] = llvm.load %[[MAP]] : !llvm.ptr -> !llvm.array<16 x i64>
  // CHECK: gpu.launch_func {{.*}} args(%[[BYTES]] : !llvm.array<16 x i64>, %{{.*}} : index)

  // LLVM-LABEL: llvm.func @launch(
  // LLVM: llvm.call @flashattnEncodeTensorMap
  // LLVM: %[[BYTES:.*]] = llvm.load %{{.*}} : !llvm.ptr -> !llvm.array<16 x i64>
  // LLVM: gpu.launch_func {{.*}} args(%[[BYTES]] : !llvm.array<16 x i64>, %{{.*}} : i64)
  func.func @launch(%k: memref<?x?x128xbf16, strided<[?, ?, 1], offset: ?>>, %n: index) {
    %c0 = arith.constant 0 : index
    %c1 = arith.constant 1 : index
    %c128 = arith.constant 128 : index
    scf.for %i = %c0 to %n step %c1 {
      %map = hopper.make_tensor_map %k row_dim(1)
          : memref<?x?x128xbf16, strided<[?, ?, 1], offset: ?>> to !hopper.tensor_map<80x64xbf16>
      gpu.launch_func @kernels::@kernel blocks in (%n, %c1, %c1) threads in (%c128, %c1, %c1)
          args(%map : !hopper.tensor_map<80x64xbf16>, %n : index)
    }
    return
  }

  // Rows along two dimensions: 16 along one of each of 4 along the other.
  // CHECK-LABEL: func.func @multiprocessors
  // CHECK: %[[COUNT:.*]] = llvm.call @flashattnMultiprocessorCount() : () -> i64
  // CHECK: %[[INDEX:.*]] = arith.index_cast %[[COUNT]] : i64 to index
  // CHECK: return %[[INDEX]]
  func.func @multiprocessors() -> index {
    %n = flashattn.multiprocessor_count
    return %n : index
  }

  // CHECK-LABEL: func.func @launch_outer
  // CHECK: %[[ROW_DIM:.*]] = llvm.mlir.constant(2 : i64)
  // CHECK: %[[ROWS:.*]] = llvm.mlir.constant(16 : i64)
  // CHECK: %[[OUTER_DIM:.*]] = llvm.mlir.constant(1 : i64)
  // CHECK: %[[OUTER_ROWS:.*]] = llvm.mlir.constant(4 : i64)
  // CHECK: llvm.call @flashattnEncodeTensorMap({{.*}}, %[[ROW_DIM]], %[[ROWS]], %[[OUTER_DIM]], %[[OUTER_ROWS]], %{{[^,]*}}) :
  func.func @launch_outer(%q: memref<?x?x?x64xf16>, %n: index) {
    %c1 = arith.constant 1 : index
    %c128 = arith.constant 128 : index
    %map = hopper.make_tensor_map %q row_dim(2) outer_dim(1) outer_rows(4)
        : memref<?x?x?x64xf16> to !hopper.tensor_map<64x64xf16>
    gpu.launch_func @kernels::@kernel blocks in (%n, %c1, %c1) threads in (%c128, %c1, %c1)
        args(%map : !hopper.tensor_map<64x64xf16>, %n : index)
    return
  }
}
