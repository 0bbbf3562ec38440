!t = tensor<1x1x320x128xf16>
!l = tensor<1x1x320xf32>
func.func @attention(%q: !t, %k: !t, %v: !t) -> (!t, !l) {
  %o_init = tensor.empty() : !t
  %lse_init = tensor.empty() : !l
  %o, %lse = flashattn.attention mask(#flashattn.causal)
      schedule(<tile_m = 64, tile_n = 64, stages = 3, dot_type = f16, mapping = hopper<consumers = 3, along = query_tile, registers = 160, producer_registers = 32, rescale_threshold = 4, l2_head_group = 8>>)
      ins(%q, %k, %v : !t, !t, !t)
      outs(%o_init, %lse_init : !t, !l) -> !t, !l
  return %o, %lse : !t, !l
}
