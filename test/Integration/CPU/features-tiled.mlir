// Tiled by upstream's transform ops the features give what they give as a whole.

// DEFINE: %{inputs} = --input=3x4x64x16xf32 --input=3x2x96x16xf32 --input=3x1x64x96xf16 --input=1x4x1x96xi1 --input=4xf32 --input=@%t/lengths.npy
// RUN: rm -rf %t && mkdir %t && %python %S/../Inputs/make_special.py %t
// RUN: flash-opt %s -transform-interpreter | sed '/^  transform.named_sequence/,/^  }/d' > %t/tiled.mlir
// RUN: FileCheck %s < %t/tiled.mlir
// RUN: sed '/^  transform.named_sequence/,/^  }/d' %s > %t/whole.mlir
// RUN: flash-run %t/whole.mlir --device=cpu --verify %{inputs} --output=@%t/o.npy | FileCheck %s --check-prefix=WHOLE
// RUN: flash-run %t/tiled.mlir --device=cpu %{inputs} --expected-output=@%t/o.npy | FileCheck %s --check-prefix=TILED
// CHECK-COUNT-3: scf.for
// CHECK: flashattn.attention
// WHOLE: verify o: {{.*}}: PASS
// TILED: expected-output 0: {{.*}}: PASS
module attributes {transform.with_named_sequence} {
  func.func @attention(%q: tensor<3x4x64x16xf32>, %kv: tensor<3x2x96x16xf32>,
                       %bias: tensor<3x1x64x96xf16>, %attn_mask: tensor<1x4x1x96xi1>,
                       %sinks: tensor<4xf32>, %len: tensor<3xi32>) -> tensor<3x4x64x16xf32> {
    %o = tensor.empty() : tensor<3x4x64x16xf32>
    %r = flashattn.attention mask(#flashattn.causal) softcap(30.0) align(top_left)
        ins(%q, %kv, %kv : tensor<3x4x64x16xf32>, tensor<3x2x96x16xf32>, tensor<3x2x96x16xf32>)
        bias(%bias : tensor<3x1x64x96xf16>) attn_mask(%attn_mask : tensor<1x4x1x96xi1>)
        sink_logits(%sinks : tensor<4xf32>) kv_len(%len : tensor<3xi32>)
        score_mod {
        ^bb0(%s: f32, %b: index, %h: index, %i: index, %j: index):
          %n = arith.addi %b, %h : index
          %d = arith.subi %i, %j : index
          %m = arith.muli %n, %d : index
          %n32 = arith.index_cast %m : index to i32
          %x = arith.sitofp %n32 : i32 to f32
          %c = arith.constant 0.05 : f32
          %y = math.fma %x, %c, %s : f32
          flashattn.yield %y : f32
        }
        outs(%o : tensor<3x4x64x16xf32>) -> tensor<3x4x64x16xf32>
    return %r : tensor<3x4x64x16xf32>
  }
  transform.named_sequence @__transform_main(%root: !transform.any_op {transform.readonly}) {
    %op = transform.structured.match ops{["flashattn.attention"]} in %root
        : (!transform.any_op) -> !transform.any_op
    %tiled, %loops:3 = transform.structured.tile_using_for %op tile_sizes [1, 1, 24]
        : (!transform.any_op) -> (!transform.any_op, !transform.any_op, !transform.any_op, !transform.any_op)
    transform.yield
  }
}
