// RUN: flash-opt %s -flashattn-prepare-tensors | FileCheck %s

// CHECK-LABEL: func @elementwise
// CHECK: %[[SUM:.*]] = linalg.generic
// CHECK: arith.addf
// CHECK: linalg.generic {{.*}} ins(%[[SUM]]
// CHECK: math.tanh
func.func @elementwise(%x: tensor<4x?xf32>, %y: tensor<4x?xf32>) -> tensor<4x?xf32> {
  %sum = arith.addf %x, %y : tensor<4x?xf32>
  %z = math.tanh %sum : tensor<4x?xf32>
  return %z : tensor<4x?xf32>
}

// CHECK-LABEL: func @concat
// CHECK-NOT: tensor.concat
// CHECK-COUNT-2: tensor.insert_slice
func.func @concat(%x: tensor<4x?xf32>, %y: tensor<4x8xf32>) -> tensor<4x?xf32> {
  %z = tensor.concat dim(1) %x, %y : (tensor<4x?xf32>, tensor<4x8xf32>) -> tensor<4x?xf32>
  return %z : tensor<4x?xf32>
}

// CHECK-LABEL: func @softmax
// CHECK-NOT: linalg.softmax
// CHECK: arith.maxnumf
// CHECK: math.exp
// CHECK: arith.divf
func.func @softmax(%x: tensor<4x8xf32>, %o: tensor<4x8xf32>) -> tensor<4x8xf32> {
  %s = linalg.softmax dimension(1) ins(%x : tensor<4x8xf32>) outs(%o : tensor<4x8xf32>) -> tensor<4x8xf32>
  return %s : tensor<4x8xf32>
}

// Made whole before it is stored: the input may be the output.
// CHECK-LABEL: func @softmax_in_place
// CHECK-SAME: (%[[X:.*]]: memref<4x8xf32>)
// CHECK: %[[T:.*]] = bufferization.to_tensor %[[X]] restrict
// CHECK: arith.addf
// CHECK: %[[S:.*]] = linalg.generic
// CHECK: arith.divf
// CHECK: bufferization.materialize_in_destination %[[S]] in restrict writable %[[X]]
func.func @softmax_in_place(%x: memref<4x8xf32>) {
  linalg.softmax dimension(1) ins(%x : memref<4x8xf32>) outs(%x : memref<4x8xf32>)
  return
}

// CHECK-LABEL: func @packs
// CHECK: linalg.transpose
// CHECK: linalg.transpose
// CHECK-NOT: pack
func.func @packs(%x: tensor<4x16xf32>, %p: tensor<2x2x2x8xf32>, %y: tensor<4x16xf32>) -> tensor<4x16xf32> {
  %packed = linalg.pack %x inner_dims_pos = [0, 1] inner_tiles = [2, 8] into %p : tensor<4x16xf32> -> tensor<2x2x2x8xf32>
  %z = linalg.unpack %packed inner_dims_pos = [0, 1] inner_tiles = [2, 8] into %y : tensor<2x2x2x8xf32> -> tensor<4x16xf32>
  return %z : tensor<4x16xf32>
}

// What a body wraps into a tensor only to take it out again is gone; what it picks from one is not.
// CHECK-LABEL: func @bodies
// CHECK: linalg.generic
// CHECK-NEXT: ^bb0(%[[IN:.*]]: f32, %[[OUT:.*]]: f32):
// CHECK-NEXT: %[[MAX:.*]] = arith.maximumf %[[OUT]], %[[IN]] : f32
// CHECK-NEXT: linalg.yield %[[MAX]]
// CHECK: linalg.generic
// CHECK: tensor.from_elements
// CHECK-NEXT: tensor.extract
func.func @bodies(%x: tensor<4x8xf32>, %y: tensor<4xf32>, %i: index) -> (tensor<4xf32>, tensor<4xf32>) {
  %max = linalg.generic {indexing_maps = [affine_map<(i, j) -> (i, j)>, affine_map<(i, j) -> (i)>], iterator_types = ["parallel", "reduction"]} ins(%x : tensor<4x8xf32>) outs(%y : tensor<4xf32>) {
  ^bb0(%in: f32, %out: f32):
    %a = tensor.from_elements %in : tensor<f32>
    %b = tensor.from_elements %out : tensor<f32>
    %c = tensor.extract %b[] : tensor<f32>
    %d = tensor.extract %a[] : tensor<f32>
    %e = arith.maximumf %c, %d : f32
    %f = tensor.from_elements %e : tensor<f32>
    %g = tensor.extract %f[] : tensor<f32>
    linalg.yield %g : f32
  } -> tensor<4xf32>
  %picked = linalg.generic {indexing_maps = [affine_map<(i) -> (i)>, affine_map<(i) -> (i)>], iterator_types = ["parallel"]} ins(%y : tensor<4xf32>) outs(%y : tensor<4xf32>) {
  ^bb0(%in: f32, %out: f32):
    %a = tensor.from_elements %in, %out : tensor<2xf32>
    %b = tensor.extract %a[%i] : tensor<2xf32>
    linalg.yield %b : f32
  } -> tensor<4xf32>
  return %max, %picked : tensor<4xf32>, tensor<4xf32>
}

// What can be bufferized stays: scalars, other linalg ops.
// CHECK-LABEL: func @stays
// CHECK-NEXT: arith.mulf %{{.*}} : f32
// CHECK-NEXT: linalg.exp
func.func @stays(%a: f32, %x: tensor<4xf32>, %y: tensor<4xf32>) -> (f32, tensor<4xf32>) {
  %b = arith.mulf %a, %a : f32
  %e = linalg.exp ins(%x : tensor<4xf32>) outs(%y : tensor<4xf32>) -> tensor<4xf32>
  return %b, %e : f32, tensor<4xf32>
}

// -----

// The caller's values are overwritten only where an op has them as its destination, or a view of them.
// CHECK-LABEL: func @arguments
// CHECK-SAME: %{{.*}}: tensor<4xf32> {bufferization.writable = false}, %{{.*}}: tensor<4xf32>, %{{.*}}: tensor<2x2xf32>, %{{.*}}: memref<4xf32>)
func.func @arguments(%x: tensor<4xf32>, %to: tensor<4xf32>, %view: tensor<2x2xf32>, %m: memref<4xf32>) -> (tensor<4xf32>, tensor<4xf32>) {
  %sum = arith.addf %x, %x : tensor<4xf32>
  %flat = tensor.collapse_shape %view [[0, 1]] : tensor<2x2xf32> into tensor<4xf32>
  %a = linalg.exp ins(%sum : tensor<4xf32>) outs(%to : tensor<4xf32>) -> tensor<4xf32>
  %b = linalg.exp ins(%sum : tensor<4xf32>) outs(%flat : tensor<4xf32>) -> tensor<4xf32>
  return %a, %b : tensor<4xf32>, tensor<4xf32>
}

// Of the gradients' op too: the destinations may be written to, what it reads may not.
// CHECK-LABEL: func @gradients
// CHECK-SAME: %{{.*}}: tensor<1x2x8x16xf32> {bufferization.writable = false}, %{{.*}}: tensor<1x2x8xf32> {bufferization.writable = false},
// CHECK-SAME: %{{.*}}: tensor<1x2x8x16xf32>, %{{.*}}: tensor<1x2x8x16xf32>, %{{.*}}: tensor<1x2x8x16xf32>)
func.func @gradients(%q: tensor<1x2x8x16xf32>, %lse: tensor<1x2x8xf32>, %dq: tensor<1x2x8x16xf32>, %dk: tensor<1x2x8x16xf32>, %dv: tensor<1x2x8x16xf32>) -> tensor<1x2x8x16xf32> {
  %r:3 = flashattn.attention_backward
      ins(%q, %q, %q, %q, %lse, %q : tensor<1x2x8x16xf32>, tensor<1x2x8x16xf32>, tensor<1x2x8x16xf32>, tensor<1x2x8x16xf32>, tensor<1x2x8xf32>, tensor<1x2x8x16xf32>)
      outs(%dq, %dk, %dv : tensor<1x2x8x16xf32>, tensor<1x2x8x16xf32>, tensor<1x2x8x16xf32>)
      -> tensor<1x2x8x16xf32>, tensor<1x2x8x16xf32>, tensor<1x2x8x16xf32>
  return %r#0 : tensor<1x2x8x16xf32>
}

// CHECK-LABEL: func private @callee
// CHECK-NOT: writable
func.func private @callee(%x: tensor<4xf32>) -> tensor<4xf32> {
  %sum = arith.addf %x, %x : tensor<4xf32>
  return %sum : tensor<4xf32>
}

// A size that is computed of constants is one, whatever it goes through, and what is asserted of it goes; an element that
// is not known stays.
// CHECK-LABEL: func @known
// CHECK-NEXT: %[[C:.*]] = arith.constant 12 : i64
// CHECK-NEXT: return %[[C]]
func.func @known() -> i64 {
  %c0 = arith.constant 0 : index
  %a = arith.constant dense<3> : tensor<1xi64>
  %b = arith.constant dense<4> : tensor<1xi64>
  %e = tensor.empty() : tensor<1xi64>
  %p = linalg.generic {indexing_maps = [affine_map<(i) -> (i)>, affine_map<(i) -> (i)>, affine_map<(i) -> (i)>], iterator_types = ["parallel"]} ins(%a, %b : tensor<1xi64>, tensor<1xi64>) outs(%e : tensor<1xi64>) {
  ^bb0(%x: i64, %y: i64, %out: i64):
    %z = arith.muli %x, %y : i64
    linalg.yield %z : i64
  } -> tensor<1xi64>
  %all = tensor.concat dim(0) %a, %p : (tensor<1xi64>, tensor<1xi64>) -> tensor<2xi64>
  %part = tensor.extract_slice %all[1] [1] [1] : tensor<2xi64> to tensor<1xi64>
  %scalar = tensor.collapse_shape %part [] : tensor<1xi64> into tensor<i64>
  %size = tensor.extract %scalar[] : tensor<i64>
  %first = tensor.extract %all[%c0] : tensor<2xi64>
  %fits = arith.cmpi sle, %first, %size : i64
  cf.assert %fits, "fits"
  return %size : i64
}

// CHECK-LABEL: func @unknown
// CHECK: tensor.extract
// CHECK: cf.assert
func.func @unknown(%x: tensor<2xi64>) -> i64 {
  %c0 = arith.constant 0 : index
  %c3 = arith.constant 3 : i64
  %first = tensor.extract %x[%c0] : tensor<2xi64>
  %fits = arith.cmpi sle, %first, %c3 : i64
  cf.assert %fits, "fits"
  return %first : i64
}
