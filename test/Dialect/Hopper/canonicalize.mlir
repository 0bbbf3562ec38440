// RUN: flash-opt %s -canonicalize | FileCheck %s

!bars = memref<4xi64, #gpu.address_space<workgroup>>

// A fence behind another, hopper.publish's own among them, and nothing that writes orders nothing more.
// CHECK-LABEL: func @twice
// CHECK: hopper.publish
// CHECK-NOT: hopper.fence_async_shared
// CHECK: memref.store
// CHECK: hopper.fence_async_shared
// CHECK-NOT: hopper.fence_async_shared
// CHECK: return
func.func @twice(%bars: !bars, %i: index, %m: memref<8xf32, #gpu.address_space<workgroup>>, %x: f32) {
  hopper.publish %bars[%i] : !bars
  hopper.barrier_arrive %bars[%i] : !bars
  hopper.fence_async_shared
  memref.store %x, %m[%i] : memref<8xf32, #gpu.address_space<workgroup>>
  hopper.fence_async_shared
  %j = arith.addi %i, %i : index
  hopper.barrier_arrive %bars[%j] : !bars
  hopper.fence_async_shared
  return
}

// The first of a block has what came before it to order.
// CHECK-LABEL: func @first
// CHECK: hopper.fence_async_shared
func.func @first() {
  hopper.fence_async_shared
  return
}
