// Tiles are judged by their weights, of which so large a scale makes many too large: warps read keys again.
!t = tensor<1x1x320x128xf16>
!l = tensor<1x1x320xf32>
func.func @attention(%q: !t, %k: !t, %v: !t) -> (!t, !l) {
  %o_init = tensor.empty() : !t
  %lse_init = tensor.empty() : !l
  %o, %lse = flashattn.attention mask(#flashattn.causal) scale(20.0)
      schedule(<tile_m = 64, tile_n = 64, warps = 4, stages = 3, lanes = 4, dot_type = f16, roles = <consumers = 3, along = query_tile, registers = 160, producer_registers = 32, rescale = 8, section = 8, late_rescale = 1>>)
      ins(%q, %k, %v : !t, !t, !t)
      outs(%o_init, %lse_init : !t, !l) -> !t, !l
  return %o, %lse : !t, !l
}
