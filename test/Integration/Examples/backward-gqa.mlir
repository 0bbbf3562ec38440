// Gradients of causal attention with grouped-query heads: dk and dv of a key/value head sum over the
// query heads that read it (rule B2).
//
// RUN: flash-run %s --verify | FileCheck %s
// RUN: flash-run %s --verify --device=cpu | FileCheck %s
// CHECK: verify dq: {{.*}}PASS
// CHECK: verify dk: {{.*}}PASS
// CHECK: verify dv: {{.*}}PASS

!q = tensor<1x8x512x16xf16>
!k = tensor<1x2x512x16xf16>
!l = tensor<1x8x512xf32>
func.func @gradients(%q: !q, %k: !k, %v: !k, %o: !q, %lse: !l, %d_o: !q) -> (!q, !k, !k) {
  %dq_init = tensor.empty() : !q
  %dk_init = tensor.empty() : !k
  %dq, %dk, %dv = flashattn.attention_backward mask(#flashattn.causal)
      ins(%q, %k, %v, %o, %lse, %d_o : !q, !k, !k, !q, !l, !q)
      outs(%dq_init, %dk_init, %dk_init : !q, !k, !k) -> !q, !k, !k
  return %dq, %dk, %dv : !q, !k, !k
}
