// What bufferization would not take is refused before it, in the pipelines too.
// RUN: flash-opt %s -split-input-file -flashattn-verify-tensors -verify-diagnostics
// RUN: flash-opt %s -split-input-file -flashattn-to-cpu -verify-diagnostics -o /dev/null

func.func @gather(%x: tensor<16x8xf32>, %i: tensor<4x1xi64>) -> tensor<4x1x8xf32> {
  // expected-error@+1 {{'tensor.gather' op on tensors cannot be bufferized: expected an op of arith, flashattn, func, linalg, math, scf, tensor or vector that can, such as linalg.generic}}
  %r = tensor.gather %x[%i] gather_dims([0]) : (tensor<16x8xf32>, tensor<4x1xi64>) -> tensor<4x1x8xf32>
  return %r : tensor<4x1x8xf32>
}

// -----

// In bodies too.
#id = affine_map<(i) -> (i)>
func.func @body(%x: tensor<4xf32>) -> tensor<4xf32> {
  %r = linalg.generic {indexing_maps = [#id], iterator_types = ["parallel"]} outs(%x : tensor<4xf32>) {
  ^bb0(%o: f32):
    %i = linalg.index 0 : index
    // expected-error@+1 {{'tensor.bitcast' op on tensors cannot be bufferized}}
    %t = tensor.bitcast %x : tensor<4xf32> to tensor<4xi32>
    %v = tensor.extract %t[%i] : tensor<4xi32>
    %f = arith.bitcast %v : i32 to f32
    linalg.yield %f : f32
  } -> tensor<4xf32>
  return %r : tensor<4xf32>
}

// -----

func.func @fine(%x: tensor<4xf32>) -> tensor<4xf32> {
  %0 = tensor.cast %x : tensor<4xf32> to tensor<?xf32>
  %1 = tensor.cast %0 : tensor<?xf32> to tensor<4xf32>
  return %1 : tensor<4xf32>
}

// -----

// Branches between blocks, on buffers alone.
func.func @branch(%first: i1, %x: tensor<4xf32>, %y: tensor<4xf32>) -> tensor<4xf32> {
  // expected-error@+1 {{'cf.cond_br' op on tensors cannot be bufferized}}
  cf.cond_br %first, ^end(%x : tensor<4xf32>), ^end(%y : tensor<4xf32>)
^end(%z: tensor<4xf32>):
  return %z : tensor<4xf32>
}

// -----

func.func @fine_branch(%first: i1, %x: memref<4xf32>, %y: memref<4xf32>) -> memref<4xf32> {
  cf.cond_br %first, ^end(%x : memref<4xf32>), ^end(%y : memref<4xf32>)
^end(%z: memref<4xf32>):
  return %z : memref<4xf32>
}
