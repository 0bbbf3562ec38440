// RUN: flash-opt %s -flashattn-inline-private | FileCheck %s
// What is handed to private functions is no copy on a GPU:
// RUN: sed '/^\/\/ What takes memrefs/,$d' %s | flash-opt -flashattn-to-nvvm=chip=sm_90a | FileCheck %s --check-prefix=PTX
// PTX: llvm.func @slices
// PTX-NOT: mgpuMemcpy

!t = tensor<2x8x64x64xf16>
!h = tensor<2x2x64x64xf16>

// CHECK-LABEL: func @slices
// CHECK-COUNT-2: flashattn.attention
// CHECK-NOT: call
// CHECK: return
func.func @slices(%q: !t, %o: !t) -> !t {
  %a = tensor.extract_slice %q[0, 0, 0, 0] [2, 2, 64, 64] [1, 1, 1, 1] : !t to !h
  %b = tensor.extract_slice %q[0, 2, 0, 0] [2, 2, 64, 64] [1, 1, 1, 1] : !t to !h
  %x = func.call @twice(%a, %b) : (!h, !h) -> !h
  %r = tensor.insert_slice %x into %o[0, 4, 0, 0] [2, 2, 64, 64] [1, 1, 1, 1] : !h into !t
  return %r : !t
}

// What is called by nobody else is gone, and so is what was never called.
// CHECK-NOT: @twice
// CHECK-NOT: @once
// CHECK-NOT: @unused
func.func private @twice(%a: !h, %b: !h) -> !h {
  %x = func.call @once(%a, %b) : (!h, !h) -> !h
  %y = func.call @once(%x, %a) : (!h, !h) -> !h
  return %y : !h
}
func.func private @once(%a: !h, %b: !h) -> !h {
  %e = tensor.empty() : !h
  %x = flashattn.attention ins(%a, %b, %b : !h, !h, !h) outs(%e : !h) -> !h
  return %x : !h
}
func.func private @unused(%a: !h) -> !h {
  return %a : !h
}

// What takes memrefs stays a function, and so does one that others outside may call.
// CHECK-LABEL: func @memrefs
// CHECK: call @inner
// CHECK: call @outer
func.func @memrefs(%a: memref<4xf32>, %b: memref<4xf32>) {
  func.call @inner(%a, %b) : (memref<4xf32>, memref<4xf32>) -> ()
  func.call @outer(%a, %b) : (memref<4xf32>, memref<4xf32>) -> ()
  return
}
// CHECK: func private @inner
func.func private @inner(%a: memref<4xf32>, %b: memref<4xf32>) {
  memref.copy %a, %b : memref<4xf32> to memref<4xf32>
  return
}
// CHECK: func @outer
func.func @outer(%a: memref<4xf32>, %b: memref<4xf32>) {
  memref.copy %b, %a : memref<4xf32> to memref<4xf32>
  return
}

// Functions that lead to themselves stay.
// CHECK-LABEL: func @recursive
// CHECK: call @even
// CHECK: func private @even
// CHECK: call @odd
// CHECK: func private @odd
// CHECK: call @even
func.func @recursive(%x: tensor<4xf32>, %n: index) -> tensor<4xf32> {
  %y = func.call @even(%x, %n) : (tensor<4xf32>, index) -> tensor<4xf32>
  return %y : tensor<4xf32>
}
func.func private @even(%x: tensor<4xf32>, %n: index) -> tensor<4xf32> {
  %y = func.call @odd(%x, %n) : (tensor<4xf32>, index) -> tensor<4xf32>
  return %y : tensor<4xf32>
}
func.func private @odd(%x: tensor<4xf32>, %n: index) -> tensor<4xf32> {
  %c0 = arith.constant 0 : index
  %isZero = arith.cmpi eq, %n, %c0 : index
  %y = scf.if %isZero -> tensor<4xf32> {
    scf.yield %x : tensor<4xf32>
  } else {
    %z = func.call @even(%x, %n) : (tensor<4xf32>, index) -> tensor<4xf32>
    scf.yield %z : tensor<4xf32>
  }
  return %y : tensor<4xf32>
}
