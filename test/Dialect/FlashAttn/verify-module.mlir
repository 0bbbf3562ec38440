// What no pipeline could give a place or a name to is an error before all else, and the only one.
// RUN: flash-opt %s -split-input-file -flashattn-verify-module -verify-diagnostics
// RUN: flash-opt %s -split-input-file -flashattn-to-cpu -verify-diagnostics -o /dev/null
// RUN: flash-opt %s -split-input-file -flashattn-to-nvvm=chip=sm_90a -verify-diagnostics -o /dev/null
// RUN: flash-opt %s -split-input-file -flashattn-to-model=chip=sm_80 -verify-diagnostics -o /dev/null

!t = memref<1x1x16x16xf32>
func.func @f(%a: !t, %b: !t) {
  flashattn.attention ins(%a, %a, %a : !t, !t, !t) outs(%b : !t)
  return
}
// expected-error@+1 {{'builtin.module' op is nested in another module: expected all functions in one module}}
module @inner {
  func.func @g(%a: !t, %b: !t) {
    flashattn.attention ins(%a, %a, %a : !t, !t, !t) outs(%b : !t)
    return
  }
}

// -----

// expected-error@+1 {{'func.func' op expected a name without a zero byte, and other than the reserved names 'llvm.*', '_mlir_*', 'flashattn[A-Z]*' and 'mgpu[A-Z]*', but got 'llvm.memcpy'}}
func.func @llvm.memcpy(%x: memref<4xf32>) {
  return
}

// -----

// expected-error@+1 {{and other than the reserved names 'llvm.*', '_mlir_*', 'flashattn[A-Z]*' and 'mgpu[A-Z]*', but got 'flashattnParallelFor'}}
func.func @flashattnParallelFor(%x: memref<4xf32>) {
  return
}

// -----

// expected-error@+1 {{but got '_mlir_ciface_f'}}
func.func @_mlir_ciface_f(%x: memref<4xf32>) {
  return
}

// -----

// expected-error@+1 {{but got 'mgpuStreamCreate'}}
func.func private @mgpuStreamCreate() {
  return
}

// -----

// expected-error@+1 {{without a zero byte}}
func.func @"a\00b"(%x: memref<4xf32>) {
  return
}

// -----

// These are free, and so is what has no body.
func.func @flashattn(%x: memref<4xf32>) {
  return
}
func.func @mgpu_(%x: memref<4xf32>) {
  return
}
func.func @malloc(%x: memref<4xf32>) {
  return
}
