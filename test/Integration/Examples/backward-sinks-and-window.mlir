// Gradients under a sliding window of 128 whose first 4 keys stay visible (rule M2), with
// grouped-query heads.
//
// RUN: flash-run %s --verify | FileCheck %s
// RUN: flash-run %s --verify --device=cpu | FileCheck %s
// CHECK: verify dq: {{.*}}PASS
// CHECK: verify dk: {{.*}}PASS
// CHECK: verify dv: {{.*}}PASS

#mask = #flashattn.any_of<[#flashattn.window<left = 127, right = 0>,
                           #flashattn.all_of<[#flashattn.sink<4>, #flashattn.causal]>]>
!q = tensor<1x8x512x64xbf16>
!k = tensor<1x2x512x64xbf16>
!l = tensor<1x8x512xf32>
func.func @gradients(%q: !q, %k: !k, %v: !k, %o: !q, %lse: !l, %d_o: !q) -> (!q, !k, !k) {
  %dq_init = tensor.empty() : !q
  %dk_init = tensor.empty() : !k
  %dq, %dk, %dv = flashattn.attention_backward mask(#mask)
      ins(%q, %k, %v, %o, %lse, %d_o : !q, !k, !k, !q, !l, !q)
      outs(%dq_init, %dk_init, %dk_init : !q, !k, !k) -> !q, !k, !k
  return %dq, %dk, %dv : !q, !k, !k
}
