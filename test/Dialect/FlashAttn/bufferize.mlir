// RUN: flash-opt %s -split-input-file \
// RUN:   --one-shot-bufferize="bufferize-function-boundaries function-boundary-type-conversion=identity-layout-map" \
// RUN:   | FileCheck %s
// RUN: flash-opt %s -split-input-file --one-shot-bufferize="bufferize-function-boundaries" \
// RUN:   -verify-diagnostics=only-expected -o /dev/null

// The destinations become the results, with no copy.

// CHECK-LABEL: func @in_place
// CHECK-SAME: (%[[Q:.*]]: memref<1x2x?x16xf16>, %[[K:.*]]: memref<1x2x?x16xf16>, %[[V:.*]]: memref<1x2x?x8xf16>, %[[P:.*]]: index, %[[O:.*]]: memref<1x2x?x8xf16>, %[[LSE:.*]]: memref<1x2x?xf32>)
// CHECK-NOT: alloc
// CHECK: flashattn.attention mask(#flashattn.causal) ins(%[[Q]], %[[K]], %[[V]] : {{.*}}) offset(%[[P]]) outs(%[[O]], %[[LSE]] : memref<1x2x?x8xf16>, memref<1x2x?xf32>)
// CHECK-NEXT: return %[[O]], %[[LSE]]
func.func @in_place(%q: tensor<1x2x?x16xf16>, %k: tensor<1x2x?x16xf16>, %v: tensor<1x2x?x8xf16>,
                    %p: index, %o: tensor<1x2x?x8xf16>, %lse: tensor<1x2x?xf32>)
    -> (tensor<1x2x?x8xf16>, tensor<1x2x?xf32>) {
  // expected-error@below {{'flashattn.attention' op expected unit stride in the last dimension of the buffer of operand 0 but got 'memref<1x2x?x16xf16, strided<[?, ?, ?, ?], offset: ?>>'; bufferize functions with function-boundary-type-conversion=identity-layout-map}}
  // expected-error@below {{failed to bufferize op}}
  %r:2 = flashattn.attention mask(#flashattn.causal)
      ins(%q, %k, %v : tensor<1x2x?x16xf16>, tensor<1x2x?x16xf16>, tensor<1x2x?x8xf16>)
      offset(%p) outs(%o, %lse : tensor<1x2x?x8xf16>, tensor<1x2x?xf32>)
      -> tensor<1x2x?x8xf16>, tensor<1x2x?xf32>
  return %r#0, %r#1 : tensor<1x2x?x8xf16>, tensor<1x2x?xf32>
}

// -----

// A destination whose contents are read later is left alone; what it held is not copied (rule A7).

// CHECK-LABEL: func @keeps_what_is_read
// CHECK-SAME: %[[Q:[a-z0-9]+]]: memref<1x1x4x8xf32>
// CHECK: %[[O:.*]] = memref.alloc() {{.*}} : memref<1x1x4x8xf32>
// CHECK-NOT: memref.copy
// CHECK: flashattn.attention ins(%[[Q]], %[[Q]], %[[Q]] : {{.*}}) outs(%[[O]] : memref<1x1x4x8xf32>)
// CHECK: return %[[O]], %[[Q]]
func.func @keeps_what_is_read(%q: tensor<1x1x4x8xf32>)
    -> (tensor<1x1x4x8xf32>, tensor<1x1x4x8xf32>) {
  // expected-error@below {{expected unit stride in the last dimension of the buffer of operand 0}}
  // expected-error@below {{failed to bufferize op}}
  %r = flashattn.attention
      ins(%q, %q, %q : tensor<1x1x4x8xf32>, tensor<1x1x4x8xf32>, tensor<1x1x4x8xf32>)
      outs(%q : tensor<1x1x4x8xf32>) -> tensor<1x1x4x8xf32>
  return %r, %q : tensor<1x1x4x8xf32>, tensor<1x1x4x8xf32>
}

// -----

// Without function boundaries the casts in and out stay.

// CHECK-LABEL: func @from_empty
// CHECK: %[[O:.*]] = memref.alloc
// CHECK: flashattn.attention {{.*}} outs(%[[O]] : memref<1x1x4x8xf32>)
// CHECK-NOT: memref.copy
func.func @from_empty(%q: memref<1x1x4x8xf32>) -> f32 {
  %c0 = arith.constant 0 : index
  %t = bufferization.to_tensor %q restrict : memref<1x1x4x8xf32> to tensor<1x1x4x8xf32>
  %init = tensor.empty() : tensor<1x1x4x8xf32>
  %r = flashattn.attention
      ins(%t, %t, %t : tensor<1x1x4x8xf32>, tensor<1x1x4x8xf32>, tensor<1x1x4x8xf32>)
      outs(%init : tensor<1x1x4x8xf32>) -> tensor<1x1x4x8xf32>
  %x = tensor.extract %r[%c0, %c0, %c0, %c0] : tensor<1x1x4x8xf32>
  return %x : f32
}
