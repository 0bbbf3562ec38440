!t = tensor<1x1x256x64xf16>
!l = tensor<1x1x256xf32>
func.func @gradients(%q: !t, %k: !t, %v: !t, %o: !t, %lse: !l, %d_o: !t) -> (!t, !t, !t) {
  %init = tensor.empty() : !t
  %dq, %dk, %dv = flashattn.attention_backward mask(#flashattn.causal)
      ins(%q, %k, %v, %o, %lse, %d_o : !t, !t, !t, !t, !l, !t)
      outs(%init, %init, %init : !t, !t, !t) -> !t, !t, !t
  return %dq, %dk, %dv : !t, !t, !t
}
