// Functions without attention on the CPU: tensors with results, memrefs that are written, scalars,
// narrow floats, inputs and outputs by way of files.

// RUN: flash-run %s --device=cpu --function=scale --input=5x4xf32=random:7 --input=5x4xf32=poison --output=@%t.npy | FileCheck %s --check-prefix=SCALE
// SCALE: device: cpu
// SCALE: output 0: 5x4xf32, min -{{.*}}, max {{.*}}, mean {{.*}}, first -0.4464 -2.4667 -1.7687 -0.5670
// RUN: flash-run %s --device=cpu --function=half --input=@%t.npy --output=@%t.half.npy
// RUN: flash-run %s --device=cpu --function=half --input=5x4xf32=random:7 --expected-output=@%t.half.npy --atol=0.6 --rtol=1 | FileCheck %s --check-prefix=WITHIN
// WITHIN: expected-output 0: max error {{.*}}, tolerance 6.000e-01 + 1.000e+00 * |expected|: PASS
// RUN: flash-run %s --device=cpu --function=scale --input=5x4xf32=random:7 --expected-output=@%t.npy --input=5x4xf32=poison | FileCheck %s --check-prefix=SAME
// SAME: expected-output 0: max error 0.000e+00, {{.*}}: PASS

// RUN: flash-run %s --device=cpu --function=narrow --input=1000xf32=random:1 --bench=0.01 | FileCheck %s --check-prefix=NARROW
// NARROW: output 0: 1000xf16, min -{{[34]}}.{{.*}}
// NARROW: output 1: 1000xbf16, min -{{[34]}}.{{.*}}
// NARROW: bench: median {{.*}} ms (quartiles {{.*}} and {{.*}}, min {{.*}}, max {{.*}}; {{.*}} batches of {{.*}} calls), {{.*}} GB/s

// RUN: flash-run %s --device=cpu --function=fill --input=2.5 --input=index=3 --dump-dir=%t.dump | FileCheck %s --check-prefix=FILL
// FILL: output 0: 8xf32, min 2.5000, max 2.5000, mean 2.500e+00, 5 not finite, values 2.5000 2.5000 2.5000 nan nan nan nan nan
// RUN: FileCheck %s --check-prefix=DUMP < %t.dump/00-input.mlir
// DUMP: func.func @fill
// RUN: ls %t.dump | FileCheck %s --check-prefix=FILES
// FILES: 00-input.mlir
// FILES: -convert-func-to-llvm.mlir

// What is written through a view, or by a function that is called, is an output; so are two.
// RUN: flash-run %s --device=cpu --function=views --input=2.5 --output=@%t.x.npy --output=@%t.y.npy | FileCheck %s --check-prefix=VIEWS
// VIEWS: output 0: 3x8xf32, min 2.5000, max 2.5000, mean 2.500e+00, 16 not finite
// VIEWS: output 1: 8xf32, min 2.5000, max 2.5000, mean 2.500e+00, 5 not finite
func.func @views(%s: f32, %x: memref<3x8xf32>, %y: memref<8xf32>) {
  %c3 = arith.constant 3 : index
  %row = memref.subview %x[1, 0] [1, 8] [1, 1] : memref<3x8xf32> to memref<8xf32, strided<[1], offset: 8>>
  linalg.fill ins(%s : f32) outs(%row : memref<8xf32, strided<[1], offset: 8>>)
  call @fill(%s, %c3, %y) : (f32, index, memref<8xf32>) -> ()
  return
}

// What is read as a tensor is read: it is not left without values because it is written, too.
// RUN: flash-run %s --device=cpu --function=in_place --input=ones | FileCheck %s --check-prefix=PLACE
// PLACE: output 0: 2x8xf32, min 0.1250, max 0.1250
func.func @in_place(%x: memref<2x8xf32>) {
  linalg.softmax dimension(1) ins(%x : memref<2x8xf32>) outs(%x : memref<2x8xf32>)
  return
}

func.func @scale(%x: memref<?x4xf32>, %y: memref<?x4xf32>) {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %c4 = arith.constant 4 : index
  %two = arith.constant 2.0 : f32
  %rows = memref.dim %x, %c0 : memref<?x4xf32>
  scf.for %i = %c0 to %rows step %c1 {
    scf.for %j = %c0 to %c4 step %c1 {
      %v = memref.load %x[%i, %j] : memref<?x4xf32>
      %w = arith.mulf %v, %two : f32
      memref.store %w, %y[%i, %j] : memref<?x4xf32>
    }
  }
  return
}

func.func @half(%x: tensor<?x4xf32>) -> tensor<?x4xf32> {
  %c0 = arith.constant 0 : index
  %half = arith.constant 0.5 : f32
  %rows = tensor.dim %x, %c0 : tensor<?x4xf32>
  %empty = tensor.empty(%rows) : tensor<?x4xf32>
  %result = linalg.generic {
      indexing_maps = [affine_map<(i, j) -> (i, j)>, affine_map<(i, j) -> (i, j)>],
      iterator_types = ["parallel", "parallel"]}
      ins(%x : tensor<?x4xf32>) outs(%empty : tensor<?x4xf32>) {
  ^bb0(%v: f32, %old: f32):
    %w = arith.mulf %v, %half : f32
    linalg.yield %w : f32
  } -> tensor<?x4xf32>
  return %result : tensor<?x4xf32>
}

#id = affine_map<(i) -> (i)>
func.func @narrow(%x: tensor<?xf32>) -> (tensor<?xf16>, tensor<?xbf16>) {
  %c0 = arith.constant 0 : index
  %n = tensor.dim %x, %c0 : tensor<?xf32>
  %e16 = tensor.empty(%n) : tensor<?xf16>
  %eb16 = tensor.empty(%n) : tensor<?xbf16>
  %r:2 = linalg.generic {indexing_maps = [#id, #id, #id], iterator_types = ["parallel"]}
      ins(%x : tensor<?xf32>) outs(%e16, %eb16 : tensor<?xf16>, tensor<?xbf16>) {
  ^bb0(%v: f32, %old: f16, %oldb: bf16):
    %a = arith.truncf %v : f32 to f16
    %b = arith.truncf %v : f32 to bf16
    linalg.yield %a, %b : f16, bf16
  } -> (tensor<?xf16>, tensor<?xbf16>)
  return %r#0, %r#1 : tensor<?xf16>, tensor<?xbf16>
}

func.func @fill(%s: f32, %n: index, %y: memref<8xf32>) {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  scf.for %i = %c0 to %n step %c1 {
    memref.store %s, %y[%i] : memref<8xf32>
  }
  return
}
