// Tiles that are judged by their weights, whose scores are made again by the warps that have to. Scores are large, so
// that weights often outgrow what they are taken against.
//
// RUN: flash-run %s --device=model:sm_90a --function=full --verify --model-seeds=2 | FileCheck %s
// RUN: flash-run %s --device=model:sm_90a --function=causal --verify | FileCheck %s --check-prefixes=CHECK,LSE
// RUN: flash-run %s --device=model:sm_90a --function=window --verify | FileCheck %s
// RUN: flash-run %s --device=model:sm_90a --function=lengths --verify | FileCheck %s
// CHECK: model: {{1 interleaving|2 interleavings}} from seed 1, no report
// CHECK: verify o: {{.*}}PASS
// LSE: verify lse {{.*}}PASS

// Only the last tile of keys is judged by its scores.
func.func @full(%q: tensor<1x2x200x64xf16>, %k: tensor<1x1x500x64xf16>, %v: tensor<1x1x500x64xf16>) -> tensor<1x2x200x64xf16> {
  %init = tensor.empty() : tensor<1x2x200x64xf16>
  %o = flashattn.attention scale(20.0)
      schedule(<tile_m = 64, tile_n = 128, stages = 2, dot_type = f16, mapping = hopper<consumers = 3, along = query_tile, registers = 160, producer_registers = 32, rescale_threshold = 8, l2_head_group = 1, lazy_rescale = 1>>)
      ins(%q, %k, %v : tensor<1x2x200x64xf16>, tensor<1x1x500x64xf16>, tensor<1x1x500x64xf16>)
      outs(%init : tensor<1x2x200x64xf16>) -> tensor<1x2x200x64xf16>
  return %o : tensor<1x2x200x64xf16>
}

// Two panels of queries and keys, and a log-sum-exp, by which sums show.
func.func @causal(%q: tensor<1x1x300x128xf16>, %k: tensor<1x1x300x128xf16>, %v: tensor<1x1x300x128xf16>)
    -> (tensor<1x1x300x128xf16>, tensor<1x1x300xf32>) {
  %init = tensor.empty() : tensor<1x1x300x128xf16>
  %lse_init = tensor.empty() : tensor<1x1x300xf32>
  %o, %lse = flashattn.attention mask(#flashattn.causal) scale(20.0)
      schedule(<tile_m = 64, tile_n = 64, stages = 3, dot_type = f16, mapping = hopper<consumers = 3, along = query_tile, registers = 160, producer_registers = 32, rescale_threshold = 8, l2_head_group = 8, lazy_rescale = 1>>)
      ins(%q, %k, %v : tensor<1x1x300x128xf16>, tensor<1x1x300x128xf16>, tensor<1x1x300x128xf16>)
      outs(%init, %lse_init : tensor<1x1x300x128xf16>, tensor<1x1x300xf32>) -> tensor<1x1x300x128xf16>, tensor<1x1x300xf32>
  return %o, %lse : tensor<1x1x300x128xf16>, tensor<1x1x300xf32>
}

// Sums of rows are products: of the weights the largest is judged.
func.func @window(%q: tensor<1x1x200x128xbf16>, %k: tensor<1x1x500x128xbf16>, %v: tensor<1x1x500x128xbf16>) -> tensor<1x1x200x128xbf16> {
  %init = tensor.empty() : tensor<1x1x200x128xbf16>
  %o = flashattn.attention mask(#flashattn.window<left = 250, right = 0>) scale(20.0)
      schedule(<tile_m = 64, tile_n = 64, stages = 3, dot_type = bf16, mapping = hopper<consumers = 3, along = query_tile, registers = 160, producer_registers = 32, rescale_threshold = 8, l2_head_group = 1, lazy_rescale = 1>>)
      ins(%q, %k, %v : tensor<1x1x200x128xbf16>, tensor<1x1x500x128xbf16>, tensor<1x1x500x128xbf16>)
      outs(%init : tensor<1x1x200x128xbf16>) -> tensor<1x1x200x128xbf16>
  return %o : tensor<1x1x200x128xbf16>
}

// Batches of other lengths, some of which have no full tile.
func.func @lengths(%q: tensor<3x1x70x64xf16>, %k: tensor<3x1x300x64xf16>, %v: tensor<3x1x300x64xf16>, %len: tensor<3xi32>) -> tensor<3x1x70x64xf16> {
  %init = tensor.empty() : tensor<3x1x70x64xf16>
  %o = flashattn.attention scale(20.0)
      schedule(<tile_m = 64, tile_n = 80, stages = 2, dot_type = f16, mapping = hopper<consumers = 2, along = query_tile, registers = 240, producer_registers = 24, rescale_threshold = 8, l2_head_group = 1, lazy_rescale = 1>>)
      ins(%q, %k, %v : tensor<3x1x70x64xf16>, tensor<3x1x300x64xf16>, tensor<3x1x300x64xf16>) kv_len(%len : tensor<3xi32>)
      outs(%init : tensor<3x1x70x64xf16>) -> tensor<3x1x70x64xf16>
  return %o : tensor<3x1x70x64xf16>
}
