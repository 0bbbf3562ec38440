// What would read a GPU's memory from the host is an error, in the pipeline too; on the CPU it runs.
// RUN: flash-opt %s -split-input-file -flashattn-verify-host -verify-diagnostics
// RUN: flash-opt %s -split-input-file -flashattn-to-nvvm=chip=sm_80 -verify-diagnostics -o /dev/null
// RUN: sed 's/expected-error/x/; s/expected-note/x/; /^\/\/ A kernel/,$d' %s | flash-opt -split-input-file -flashattn-to-cpu | FileCheck %s
// CHECK-COUNT-8: llvm.func @{{[a-z]+}}

func.func @elementwise(%x: memref<64x64xf32>, %y: memref<64x64xf32>) {
  // expected-error@+1 {{'linalg.exp' op would run on the host, which cannot read a GPU's memory: expected ops of the flashattn dialect, kernels, contiguous copies, or an output projection in linalg}}
  linalg.exp ins(%x : memref<64x64xf32>) outs(%y : memref<64x64xf32>)
  return
}

// -----

func.func @adds(%o: memref<2x4x37x16xf32>, %w: memref<4x16x40xf32>, %p: memref<2x37x40xf32>) {
  // expected-error@+1 {{'linalg.contract' op would run on the host}}
  linalg.contract indexing_maps = [affine_map<(b, n, e, h, d) -> (b, h, n, d)>, affine_map<(b, n, e, h, d) -> (h, d, e)>, affine_map<(b, n, e, h, d) -> (b, n, e)>] ins(%o, %w : memref<2x4x37x16xf32>, memref<4x16x40xf32>) outs(%p : memref<2x37x40xf32>)
  return
}

// -----

func.func @copies(%x: memref<64xf32>, %y: memref<64xf32, strided<[2]>>) {
  // expected-error@+1 {{'memref.copy' op would run on the host}}
  memref.copy %x, %y : memref<64xf32> to memref<64xf32, strided<[2]>>
  return
}

// -----

func.func @reads(%x: memref<64xf32>, %i: index) -> f32 {
  // expected-error@+1 {{'memref.load' op would run on the host}}
  %v = memref.load %x[%i] : memref<64xf32>
  return %v : f32
}

// -----

func.func @writes(%x: memref<64xf32>, %i: index, %v: f32) {
  // expected-error@+1 {{'memref.store' op would run on the host}}
  memref.store %v, %x[%i] : memref<64xf32>
  return
}

// -----

memref.global "private" constant @slopes : memref<2xf32> = dense<[0.5, 0.25]>
func.func @constants() -> memref<2xf32> {
  // expected-error@+1 {{'memref.get_global' op would run on the host}}
  %x = memref.get_global @slopes : memref<2xf32>
  return %x : memref<2xf32>
}

// -----

// The host's own stack it may use.
func.func @stack(%i: index, %v: f32) -> f32 {
  %x = memref.alloca() : memref<8xf32>
  memref.store %v, %x[%i] : memref<8xf32>
  %w = memref.load %x[%i] : memref<8xf32>
  return %w : f32
}

// -----
// The first one's notes list the others, each once.
func.func @all(%x: memref<64xf32>, %y: memref<64xf32>) {
  // expected-error@+1 {{'linalg.exp' op would run on the host}}
  linalg.exp ins(%x : memref<64xf32>) outs(%y : memref<64xf32>)
  // expected-note@+1 {{would also run on the host: 'linalg.tanh'}}
  linalg.tanh ins(%y : memref<64xf32>) outs(%y : memref<64xf32>)
  return
}

// -----
// A kernel's own loops are its own.
func.func @kernel(%x: memref<64xf32>) {
  %c1 = arith.constant 1 : index
  %zero = arith.constant 0.0 : f32
  gpu.launch blocks(%bx, %by, %bz) in (%gx = %c1, %gy = %c1, %gz = %c1) threads(%tx, %ty, %tz) in (%sx = %c1, %sy = %c1, %sz = %c1) {
    linalg.fill ins(%zero : f32) outs(%x : memref<64xf32>)
    gpu.terminator
  }
  return
}
