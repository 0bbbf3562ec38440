// RUN: flash-opt %s -split-input-file \
// RUN:   --one-shot-bufferize="bufferize-function-boundaries function-boundary-type-conversion=identity-layout-map" \
// RUN:   | FileCheck %s
// RUN: flash-opt %s -split-input-file --one-shot-bufferize="bufferize-function-boundaries" \
// RUN:   -verify-diagnostics=only-expected -o /dev/null

// The destinations become the results, the optional ones too, with no copy; the score modification comes along.

// CHECK-LABEL: func @in_place
// CHECK-SAME: (%[[Q:[a-z0-9]+]]: memref<1x4x?x16xf16>, %[[K:[a-z0-9]+]]: memref<1x2x?x16xf16>, %[[LSE:[a-z0-9]+]]: memref<1x4x?xf32>, %[[BIAS:[a-z0-9]+]]: memref<1x4x?x?xf32>, %[[SINKS:[a-z0-9]+]]: memref<4xf32>, %[[DQ:[a-z0-9]+]]: memref<1x4x?x16xf16>, %[[DK:[a-z0-9]+]]: memref<1x2x?x16xf16>, %[[DV:[a-z0-9]+]]: memref<1x2x?x16xf16>, %[[DB:[a-z0-9]+]]: memref<1x4x?x?xf32>, %[[DS:[a-z0-9]+]]: memref<4xf32>)
// CHECK-NOT: alloc
// CHECK: flashattn.attention_backward mask(#flashattn.causal) deterministic ins(%[[Q]], %[[K]], %[[K]], %[[Q]], %[[LSE]], %[[Q]] : {{.*}}) d_lse(%[[LSE]] : memref<1x4x?xf32>) bias(%[[BIAS]] : memref<1x4x?x?xf32>) sink_logits(%[[SINKS]] : memref<4xf32>) score_mod {
// CHECK: math.absf
// CHECK: } outs(%[[DQ]], %[[DK]], %[[DV]] : {{.*}}) d_bias(%[[DB]] : memref<1x4x?x?xf32>) d_sink_logits(%[[DS]] : memref<4xf32>)
// CHECK-NEXT: return %[[DQ]], %[[DK]], %[[DV]], %[[DB]], %[[DS]]
func.func @in_place(%q: tensor<1x4x?x16xf16>, %k: tensor<1x2x?x16xf16>, %lse: tensor<1x4x?xf32>, %bias: tensor<1x4x?x?xf32>,
                    %sinks: tensor<4xf32>, %dq: tensor<1x4x?x16xf16>, %dk: tensor<1x2x?x16xf16>,
                    %dv: tensor<1x2x?x16xf16>, %db: tensor<1x4x?x?xf32>, %ds: tensor<4xf32>)
    -> (tensor<1x4x?x16xf16>, tensor<1x2x?x16xf16>, tensor<1x2x?x16xf16>, tensor<1x4x?x?xf32>, tensor<4xf32>) {
  // expected-error@below {{'flashattn.attention_backward' op expected unit stride in the last dimension of the buffer of operand 0 but got 'memref<1x4x?x16xf16, strided<[?, ?, ?, ?], offset: ?>>'; bufferize functions with function-boundary-type-conversion=identity-layout-map}}
  // expected-error@below {{failed to bufferize op}}
  %r:5 = flashattn.attention_backward mask(#flashattn.causal) deterministic
      ins(%q, %k, %k, %q, %lse, %q : tensor<1x4x?x16xf16>, tensor<1x2x?x16xf16>, tensor<1x2x?x16xf16>,
          tensor<1x4x?x16xf16>, tensor<1x4x?xf32>, tensor<1x4x?x16xf16>)
      d_lse(%lse : tensor<1x4x?xf32>) bias(%bias : tensor<1x4x?x?xf32>) sink_logits(%sinks : tensor<4xf32>)
      score_mod {
      ^bb0(%s: f32, %b: index, %h: index, %i: index, %j: index):
        %x = math.absf %s : f32
        flashattn.yield %x : f32
      }
      outs(%dq, %dk, %dv : tensor<1x4x?x16xf16>, tensor<1x2x?x16xf16>, tensor<1x2x?x16xf16>)
      d_bias(%db : tensor<1x4x?x?xf32>) d_sink_logits(%ds : tensor<4xf32>)
      -> tensor<1x4x?x16xf16>, tensor<1x2x?x16xf16>, tensor<1x2x?x16xf16>, tensor<1x4x?x?xf32>, tensor<4xf32>
  return %r#0, %r#1, %r#2, %r#3, %r#4
      : tensor<1x4x?x16xf16>, tensor<1x2x?x16xf16>, tensor<1x2x?x16xf16>, tensor<1x4x?x?xf32>, tensor<4xf32>
}

// -----

// A gradient does not take the place of what the op reads, though nobody reads it later; what a destination held is
// not copied (rule A7).

// CHECK-LABEL: func @not_where_operands_are
// CHECK-SAME: (%[[Q:[a-z0-9]+]]: memref<1x2x8x16xf32>, %[[K:[a-z0-9]+]]: memref<1x2x8x16xf32>, %{{.*}}, %[[DV:[a-z0-9]+]]: memref<1x2x8x16xf32>)
// CHECK-DAG: %[[DQ:.*]] = memref.alloc()
// CHECK-DAG: %[[DK:.*]] = memref.alloc()
// CHECK-NOT: memref.copy
// CHECK: flashattn.attention_backward ins(%[[Q]], %[[K]], %[[K]], %[[Q]], {{.*}}) outs(%[[DQ]], %[[DK]], %[[DV]] :
// CHECK-NEXT: return %[[DQ]], %[[DK]], %[[DV]]
func.func @not_where_operands_are(%q: tensor<1x2x8x16xf32>, %k: tensor<1x2x8x16xf32>, %lse: tensor<1x2x8xf32>,
                                  %dv: tensor<1x2x8x16xf32>)
    -> (tensor<1x2x8x16xf32>, tensor<1x2x8x16xf32>, tensor<1x2x8x16xf32>) {
  // expected-error@below {{expected unit stride in the last dimension of the buffer of operand 0}}
  // expected-error@below {{failed to bufferize op}}
  %r:3 = flashattn.attention_backward
      ins(%q, %k, %k, %q, %lse, %q : tensor<1x2x8x16xf32>, tensor<1x2x8x16xf32>, tensor<1x2x8x16xf32>,
          tensor<1x2x8x16xf32>, tensor<1x2x8xf32>, tensor<1x2x8x16xf32>)
      outs(%q, %k, %dv : tensor<1x2x8x16xf32>, tensor<1x2x8x16xf32>, tensor<1x2x8x16xf32>)
      -> tensor<1x2x8x16xf32>, tensor<1x2x8x16xf32>, tensor<1x2x8x16xf32>
  return %r#0, %r#1, %r#2 : tensor<1x2x8x16xf32>, tensor<1x2x8x16xf32>, tensor<1x2x8x16xf32>
}

// -----

// One empty tensor, as simplification leaves it, is three buffers: those of results that nobody reads too, of any size.

// CHECK-LABEL: func @one_empty
// CHECK: %[[DQ:.*]] = memref.alloc(%{{.*}}) {{.*}} : memref<1x2x?x16xf32>
// CHECK: %[[DV:.*]] = memref.alloc(%{{.*}}) {{.*}} : memref<1x2x?x16xf32>
// CHECK: %[[N:.*]] = memref.dim %[[DQ]], %{{.*}}
// CHECK: %[[DK:.*]] = memref.alloc(%[[N]]) {{.*}} : memref<1x2x?x16xf32>
// CHECK: flashattn.attention_backward {{.*}} outs(%[[DQ]], %[[DK]], %[[DV]] :
// CHECK-NEXT: return %[[DV]]
func.func @one_empty(%q: tensor<1x2x?x16xf32>, %lse: tensor<1x2x?xf32>, %n: index) -> tensor<1x2x?x16xf32> {
  %e = tensor.empty(%n) : tensor<1x2x?x16xf32>
  // expected-error@below {{expected unit stride in the last dimension of the buffer of operand 0}}
  // expected-error@below {{failed to bufferize op}}
  %r:3 = flashattn.attention_backward
      ins(%q, %q, %q, %q, %lse, %q : tensor<1x2x?x16xf32>, tensor<1x2x?x16xf32>, tensor<1x2x?x16xf32>,
          tensor<1x2x?x16xf32>, tensor<1x2x?xf32>, tensor<1x2x?x16xf32>)
      outs(%e, %e, %e : tensor<1x2x?x16xf32>, tensor<1x2x?x16xf32>, tensor<1x2x?x16xf32>)
      -> tensor<1x2x?x16xf32>, tensor<1x2x?x16xf32>, tensor<1x2x?x16xf32>
  return %r#2 : tensor<1x2x?x16xf32>
}
