!q = tensor<1x1x64x64xf8E4M3FN>
!k = tensor<1x1x320x64xf8E4M3FN>
!v = tensor<1x1x320x144xf8E4M3FN>
!o = tensor<1x1x64x144xf32>
func.func @attention(%q: !q, %k: !k, %v: !v) -> !o {
  %o_init = tensor.empty() : !o
  %o = flashattn.attention
      schedule(<tile_m = 64, tile_n = 64, stages = 2, dot_type = f8E4M3FN, mapping = hopper<consumers = 1, along = query_tile, registers = 200, producer_registers = 56, rescale_threshold = 0, l2_head_group = 1>>)
      ins(%q, %k, %v : !q, !k, !v) outs(%o_init : !o) -> !o
  return %o : !o
}
