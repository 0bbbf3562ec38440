// Masks with floordiv and mod, with numbers: attention in chunks, blocks and the block before,
// every fourth key of the last 128. Positions begin amid a chunk, and tiles lie across chunks.
// RUN: flash-run %s --device=cpu --function=chunks --verify | FileCheck %s
// RUN: flash-run %s --device=cpu --function=blocks --verify --schedule='tile_m = 16, tile_n = 24' | FileCheck %s
// RUN: flash-run %s --device=cpu --function=dilated --verify --schedule='tile_m = 48' | FileCheck %s
// CHECK: verify {{.*}}PASS

func.func @chunks(%q: tensor<1x2x150x16xf32>, %k: tensor<1x2x310x16xf32>, %v: tensor<1x2x310x16xf32>) -> tensor<1x2x150x16xf32> {
  %o = tensor.empty() : tensor<1x2x150x16xf32>
  %r = flashattn.attention mask(affine_set<(p, k)[nq, nk] : (k - 100 * (p floordiv 100) >= 0, p - k >= 0)>)
       ins(%q, %k, %v : tensor<1x2x150x16xf32>, tensor<1x2x310x16xf32>, tensor<1x2x310x16xf32>)
       outs(%o : tensor<1x2x150x16xf32>) -> tensor<1x2x150x16xf32>
  return %r : tensor<1x2x150x16xf32>
}
func.func @blocks(%q: tensor<1x2x150x16xf32>, %k: tensor<1x2x310x16xf32>, %v: tensor<1x2x310x16xf32>) -> tensor<1x2x150x16xf32> {
  %o = tensor.empty() : tensor<1x2x150x16xf32>
  %r = flashattn.attention mask(affine_set<(p, k)[nq, nk] : (k floordiv 20 - p floordiv 20 + 1 >= 0, p floordiv 20 - k floordiv 20 >= 0)>)
       ins(%q, %k, %v : tensor<1x2x150x16xf32>, tensor<1x2x310x16xf32>, tensor<1x2x310x16xf32>)
       outs(%o : tensor<1x2x150x16xf32>) -> tensor<1x2x150x16xf32>
  return %r : tensor<1x2x150x16xf32>
}
func.func @dilated(%q: tensor<1x2x150x16xf32>, %k: tensor<1x2x310x16xf32>, %v: tensor<1x2x310x16xf32>) -> tensor<1x2x150x16xf32> {
  %o = tensor.empty() : tensor<1x2x150x16xf32>
  %r = flashattn.attention mask(affine_set<(p, k)[nq, nk] : ((p - k) mod 4 == 0, p - k >= 0, k - p + 128 >= 0)>)
       ins(%q, %k, %v : tensor<1x2x150x16xf32>, tensor<1x2x310x16xf32>, tensor<1x2x310x16xf32>)
       outs(%o : tensor<1x2x150x16xf32>) -> tensor<1x2x150x16xf32>
  return %r : tensor<1x2x150x16xf32>
}
