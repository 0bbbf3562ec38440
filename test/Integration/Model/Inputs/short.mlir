!t = tensor<1x1x192x64xf16>
!l = tensor<1x1x192xf32>
func.func @attention(%q: !t, %k: !t, %v: !t) -> (!t, !l) {
  %o_init = tensor.empty() : !t
  %lse_init = tensor.empty() : !l
  %o, %lse = flashattn.attention mask(#flashattn.causal) ins(%q, %k, %v : !t, !t, !t)
      outs(%o_init, %lse_init : !t, !l) -> !t, !l
  return %o, %lse : !t, !l
}
