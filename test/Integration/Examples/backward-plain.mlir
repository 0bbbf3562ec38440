// Gradients of attention: what a loss changes by with q, k and v, of what it changes by with o. As
// inputs, o and lse are what the attention gives for the others.
//
// RUN: flash-run %s --verify | FileCheck %s
// RUN: flash-run %s --verify --device=cpu | FileCheck %s
// CHECK: verify dq: {{.*}}PASS
// CHECK: verify dk: {{.*}}PASS
// CHECK: verify dv: {{.*}}PASS

!t = tensor<1x4x256x64xf16>
func.func @gradients(%q: !t, %k: !t, %v: !t, %o: !t, %lse: tensor<1x4x256xf32>, %d_o: !t) -> (!t, !t, !t) {
  %init = tensor.empty() : !t
  %dq, %dk, %dv = flashattn.attention_backward
      ins(%q, %k, %v, %o, %lse, %d_o : !t, !t, !t, !t, tensor<1x4x256xf32>, !t)
      outs(%init, %init, %init : !t, !t, !t) -> !t, !t, !t
  return %dq, %dk, %dv : !t, !t, !t
}
