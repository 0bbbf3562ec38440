func.func @narrow(%q: memref<1x2x9x64xbf16>, %k: memref<1x2x9x64xf8E4M3FN>, %v: memref<1x2x9x64xi8>, %s: memref<1x2x1x1xf32>,
                  %o: memref<1x2x9x64xbf16>) {
  flashattn.attention k_scale(%s : memref<1x2x1x1xf32>)
      ins(%q, %k, %v : memref<1x2x9x64xbf16>, memref<1x2x9x64xf8E4M3FN>, memref<1x2x9x64xi8>) outs(%o : memref<1x2x9x64xbf16>)
  return
}
