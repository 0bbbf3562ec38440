// Gradients through a score modification (rule B6): its derivative follows from its region, here of a
// cap that is soft and of a bias along the distance.
//
// RUN: flash-run %s --verify | FileCheck %s
// RUN: flash-run %s --verify --device=cpu | FileCheck %s
// CHECK: verify dq: {{.*}}PASS
// CHECK: verify dk: {{.*}}PASS
// CHECK: verify dv: {{.*}}PASS

!t = tensor<1x4x200x32xf32>
!l = tensor<1x4x200xf32>
func.func @gradients(%q: !t, %k: !t, %v: !t, %o: !t, %lse: !l, %d_o: !t) -> (!t, !t, !t) {
  %cap = arith.constant 5.0 : f32
  %slope = arith.constant 0.125 : f32
  %init = tensor.empty() : !t
  %dq, %dk, %dv = flashattn.attention_backward mask(#flashattn.causal)
      ins(%q, %k, %v, %o, %lse, %d_o : !t, !t, !t, !t, !l, !t)
      score_mod {
      ^bb0(%s: f32, %b: index, %h: index, %p: index, %key: index):
        %x = arith.divf %s, %cap : f32
        %t = math.tanh %x : f32
        %c = arith.mulf %t, %cap : f32
        %d = arith.subi %key, %p : index
        %i = arith.index_cast %d : index to i32
        %f = arith.sitofp %i : i32 to f32
        %y = math.fma %f, %slope, %c : f32
        flashattn.yield %y : f32
      }
      outs(%init, %init, %init : !t, !t, !t) -> !t, !t, !t
  return %dq, %dk, %dv : !t, !t, !t
}
