// RUN: flash-opt %s | flash-opt | FileCheck %s
// RUN: flash-opt %s -mlir-print-op-generic | flash-opt | FileCheck %s

!ws_a = memref<2x64x64xf16, #gpu.address_space<workgroup>>
!ws_b = memref<2x80x64xf16, #gpu.address_space<workgroup>>
!bars = memref<4xi64, #gpu.address_space<workgroup>>

// CHECK-LABEL: func @tensor_map
// CHECK: %[[M:.*]] = hopper.make_tensor_map %{{.*}} row_dim(2) : memref<?x?x?x128xf16> to !hopper.tensor_map<80x64xf16>
// CHECK: hopper.make_tensor_map %{{.*}} row_dim(0) : memref<100x32xbf16, strided<[?, 1], offset: ?>> to !hopper.tensor_map<256x16xbf16>
func.func @tensor_map(%k: memref<?x?x?x128xf16>, %m: memref<100x32xbf16, strided<[?, 1], offset: ?>>)
    -> !hopper.tensor_map<80x64xf16> {
  %0 = hopper.make_tensor_map %k row_dim(2) : memref<?x?x?x128xf16> to !hopper.tensor_map<80x64xf16>
  %1 = hopper.make_tensor_map %m row_dim(0)
      : memref<100x32xbf16, strided<[?, 1], offset: ?>> to !hopper.tensor_map<256x16xbf16>
  return %0 : !hopper.tensor_map<80x64xf16>
}

// CHECK-LABEL: func @tma_load
// CHECK: hopper.tma_load %{{.*}}[%{{.*}}, %{{.*}}, %{{.*}}, %{{.*}}] to %{{.*}}, %{{.*}}[%{{.*}}] : !hopper.tensor_map<80x64xf16> to memref<2x80x64xf16, #gpu.address_space<workgroup>>, memref<4xi64, #gpu.address_space<workgroup>>
func.func @tma_load(%m: !hopper.tensor_map<80x64xf16>, %tile: !ws_b, %bars: !bars, %i: index) {
  hopper.tma_load %m[%i, %i, %i, %i] to %tile, %bars[%i] : !hopper.tensor_map<80x64xf16> to !ws_b, !bars
  return
}

// CHECK-LABEL: func @barriers
// CHECK: hopper.barrier_init %{{.*}}[%{{.*}}], 3 : memref<4xi64, #gpu.address_space<workgroup>>
// CHECK: hopper.fence_barrier_init
// CHECK: hopper.barrier_expect %{{.*}}[%{{.*}}], 20480 : memref<4xi64, #gpu.address_space<workgroup>>
// CHECK: hopper.barrier_arrive %{{.*}}[%{{.*}}] : memref<4xi64, #gpu.address_space<workgroup>>
// CHECK: hopper.barrier_arrive %{{.*}}[%{{.*}}] if %{{.*}} : memref<4xi64, #gpu.address_space<workgroup>>
// CHECK: hopper.barrier_wait %{{.*}}[%{{.*}}], %{{.*}} : memref<4xi64, #gpu.address_space<workgroup>>
func.func @barriers(%bars: !bars, %i: index, %first: i1, %parity: i32) {
  hopper.barrier_init %bars[%i], 3 : !bars
  hopper.fence_barrier_init
  hopper.barrier_expect %bars[%i], 20480 : !bars
  hopper.barrier_arrive %bars[%i] : !bars
  hopper.barrier_arrive %bars[%i] if %first : !bars
  hopper.barrier_wait %bars[%i], %parity : !bars
  return
}

// CHECK-LABEL: func @tiles
// CHECK: %[[S:.*]] = hopper.wgmma %{{.*}}, %{{.*}} : memref<2x64x64xf16, #gpu.address_space<workgroup>>, memref<2x80x64xf16, #gpu.address_space<workgroup>> -> vector<64x80xf32>
// CHECK: hopper.wgmma %{{.*}}, %{{.*}} depth(96) : {{.*}} -> vector<64x80xf32>
// CHECK: %[[O:.*]] = hopper.wgmma %{{.*}}, %{{.*}}, %{{.*}} transposed : vector<64x80xf16>, memref<2x80x64xf16, #gpu.address_space<workgroup>>, vector<64x128xf32>
// CHECK: %{{.*}}:2 = hopper.wgmma_wait %[[S]], %[[O]] {pending = 1 : i64} : vector<64x80xf32>, vector<64x128xf32>
// CHECK: hopper.wgmma_wait %{{.*}} {held} : vector<64x128xf32>
func.func @tiles(%q: !ws_a, %k: !ws_b, %v: !ws_b, %p: vector<64x80xf16>, %acc: vector<64x128xf32>) {
  %s = hopper.wgmma %q, %k : !ws_a, !ws_b -> vector<64x80xf32>
  %t = hopper.wgmma %q, %k depth(96) : !ws_a, !ws_b -> vector<64x80xf32>
  %o = hopper.wgmma %p, %v, %acc transposed : vector<64x80xf16>, !ws_b, vector<64x128xf32>
  %x:2 = hopper.wgmma_wait %s, %o {pending = 1} : vector<64x80xf32>, vector<64x128xf32>
  %y = hopper.wgmma_wait %x#1 {held} : vector<64x128xf32>
  return
}

// What one thread holds of a tile; 112 of 128 columns of the right-hand side.
// CHECK-LABEL: func @distributed
// CHECK: hopper.wgmma %{{.*}}, %{{.*}}, %{{.*}} transposed : vector<40xf16>, {{.*}}, vector<56xf32>
func.func @distributed(%v: !ws_b, %p: vector<40xf16>, %acc: vector<56xf32>) {
  %o = hopper.wgmma %p, %v, %acc transposed : vector<40xf16>, !ws_b, vector<56xf32>
  %x:2 = hopper.wgmma_wait %o, %p : vector<56xf32>, vector<40xf16>
  return
}
