// Two consumers that split the sums of a program, and three tiles of queries.
!q = tensor<1x1x160x256xf16>
!k = tensor<1x1x64x256xf16>
!l = tensor<1x1x160xf32>
func.func @gradients(%q: !q, %k: !k, %v: !k, %o: !q, %lse: !l, %d_o: !q) -> (!q, !k, !k) {
  %dq_init = tensor.empty() : !q
  %dk_init = tensor.empty() : !k
  %dq, %dk, %dv = flashattn.attention_backward
      ins(%q, %k, %v, %o, %lse, %d_o : !q, !k, !k, !q, !l, !q)
      outs(%dq_init, %dk_init, %dk_init : !q, !k, !k) -> !q, !k, !k
  return %dq, %dk, %dv : !q, !k, !k
}
