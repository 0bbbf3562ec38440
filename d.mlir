func.func @f(%q: memref<?x64x1x128xbf16>, %k: memref<?x8x?x128xbf16>, %v: memref<?x8x?x128xbf16>, %o: memref<?x64x1x128xbf16>) {
  flashattn.attention schedule(<tile_m = 64, tile_n = 64, warps = 4, stages = 3, lanes = 4, dot_type = bf16, pack = 64, splits = 128, roles = <consumers = 1, along = query_tile, registers = 208, producer_registers = 48, rescale = 1, section = 1, blocks = 2, in_flight = 72>>) ins(%q, %k, %v : memref<?x64x1x128xbf16>, memref<?x8x?x128xbf16>, memref<?x8x?x128xbf16>) outs(%o : memref<?x64x1x128xbf16>)
  return
}
