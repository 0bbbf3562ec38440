// Compacted keys: the intervals that a program's mask shows, in pieces of 8 keys, as one sequence of tiles.
//
// RUN: flash-run %s --device=model:sm_90a --function=sinks --verify --model-multiprocessors=1 | FileCheck %s
// RUN: flash-run %s --device=model:sm_90a --function=one_tile --verify | FileCheck %s
// RUN: flash-run %s --device=model:sm_90a --function=both_sides --verify | FileCheck %s
// RUN: flash-run %s --device=model:sm_90a --function=three --verify | FileCheck %s
// RUN: flash-run %s --device=model:sm_90a --function=panels --verify | FileCheck %s
// RUN: flash-run %s --device=model:sm_90a --function=before --verify | FileCheck %s
// RUN: flash-run %s --device=model:sm_90a --function=chunks --verify | FileCheck %s
// RUN: flash-run %s --device=model:sm_90a --function=consumers --model-multiprocessors=1 --verify | FileCheck %s
// RUN: flash-run %s --device=model:sm_90a --function=heads --verify | FileCheck %s
// CHECK: model: 1 interleaving from seed 1, no report
// CHECK: verify o: {{.*}}PASS

// Sinks and what a window shows, in tiles that hold some of both; the first queries' window begins among the sinks.
func.func @sinks(%q: tensor<1x16x70x64xbf16>, %k: tensor<1x2x210x64xbf16>, %v: tensor<1x2x210x64xbf16>) -> tensor<1x16x70x64xbf16> {
  %init = tensor.empty() : tensor<1x16x70x64xbf16>
  %o = flashattn.attention mask(#flashattn.any_of<[#flashattn.window<left = 127, right = 0>, #flashattn.all_of<[#flashattn.sink<4>, #flashattn.causal]>]>)
      schedule(<tile_m = 64, tile_n = 48, stages = 2, dot_type = bf16, pack = 8, mapping = hopper<consumers = 1, along = query_tile, registers = 104, producer_registers = 24, rescale_threshold = 1, l2_head_group = 1, blocks_per_sm = 4, q_stages = 2, dynamic_scheduler = 1, compact_kv = 1>>)
      ins(%q, %k, %v : tensor<1x16x70x64xbf16>, tensor<1x2x210x64xbf16>, tensor<1x2x210x64xbf16>)
      outs(%init : tensor<1x16x70x64xbf16>) -> tensor<1x16x70x64xbf16>
  return %o : tensor<1x16x70x64xbf16>
}

// A whole program in one tile.
func.func @one_tile(%q: tensor<1x8x40x64xf16>, %k: tensor<1x1x40x64xf16>, %v: tensor<1x1x40x64xf16>) -> tensor<1x8x40x64xf16> {
  %init = tensor.empty() : tensor<1x8x40x64xf16>
  %o = flashattn.attention mask(#flashattn.any_of<[#flashattn.window<left = 127, right = 0>, #flashattn.all_of<[#flashattn.sink<4>, #flashattn.causal]>]>)
      schedule(<tile_m = 64, tile_n = 144, stages = 1, dot_type = f16, pack = 8, mapping = hopper<consumers = 1, along = query_tile, registers = 208, producer_registers = 48, rescale_threshold = 4, l2_head_group = 1, blocks_per_sm = 2, compact_kv = 1>>)
      ins(%q, %k, %v : tensor<1x8x40x64xf16>, tensor<1x1x40x64xf16>, tensor<1x1x40x64xf16>)
      outs(%init : tensor<1x8x40x64xf16>) -> tensor<1x8x40x64xf16>
  return %o : tensor<1x8x40x64xf16>
}

// One interval, that begins at any multiple of 8.
func.func @both_sides(%q: tensor<2x2x75x32xbf16>, %k: tensor<2x2x75x32xbf16>, %v: tensor<2x2x75x32xbf16>) -> tensor<2x2x75x32xbf16> {
  %init = tensor.empty() : tensor<2x2x75x32xbf16>
  %o = flashattn.attention mask(#flashattn.window<left = 20, right = 13>)
      schedule(<tile_m = 64, tile_n = 32, stages = 2, dot_type = bf16, mapping = hopper<consumers = 1, along = query_tile, registers = 104, producer_registers = 24, rescale_threshold = 1, l2_head_group = 1, blocks_per_sm = 4, compact_kv = 1>>)
      ins(%q, %k, %v : tensor<2x2x75x32xbf16>, tensor<2x2x75x32xbf16>, tensor<2x2x75x32xbf16>)
      outs(%init : tensor<2x2x75x32xbf16>) -> tensor<2x2x75x32xbf16>
  return %o : tensor<2x2x75x32xbf16>
}

// Three intervals, of which none is one tile for all queries: cuts anywhere, also in tiles behind the first.
func.func @three(%q: tensor<1x2x130x64xf16>, %k: tensor<1x1x330x64xf16>, %v: tensor<1x1x330x64xf16>) -> tensor<1x2x130x64xf16> {
  %init = tensor.empty() : tensor<1x2x130x64xf16>
  %o = flashattn.attention mask(#flashattn.any_of<[#flashattn.set<"(p, k)[nq, nk] : (p - k >= 0, 30 - p + k >= 0)">, #flashattn.set<"(p, k)[nq, nk] : (p - k - 100 >= 0, 120 - p + k >= 0)">, #flashattn.all_of<[#flashattn.sink<17>, #flashattn.causal]>]>)
      schedule(<tile_m = 64, tile_n = 48, stages = 2, dot_type = f16, pack = 2, mapping = hopper<consumers = 1, along = query_tile, registers = 104, producer_registers = 24, rescale_threshold = 4, l2_head_group = 1, blocks_per_sm = 4, compact_kv = 1>>)
      ins(%q, %k, %v : tensor<1x2x130x64xf16>, tensor<1x1x330x64xf16>, tensor<1x1x330x64xf16>)
      outs(%init : tensor<1x2x130x64xf16>) -> tensor<1x2x130x64xf16>
  return %o : tensor<1x2x130x64xf16>
}

// Two panels of keys.
func.func @panels(%q: tensor<1x2x40x128xbf16>, %k: tensor<1x2x130x128xbf16>, %v: tensor<1x2x130x64xbf16>) -> tensor<1x2x40x64xbf16> {
  %init = tensor.empty() : tensor<1x2x40x64xbf16>
  %o = flashattn.attention mask(#flashattn.any_of<[#flashattn.window<left = 50, right = 0>, #flashattn.all_of<[#flashattn.sink<4>, #flashattn.causal]>]>)
      schedule(<tile_m = 64, tile_n = 64, stages = 2, dot_type = bf16, mapping = hopper<consumers = 1, along = query_tile, registers = 240, producer_registers = 24, rescale_threshold = 1, l2_head_group = 1, compact_kv = 1>>)
      ins(%q, %k, %v : tensor<1x2x40x128xbf16>, tensor<1x2x130x128xbf16>, tensor<1x2x130x64xbf16>)
      outs(%init : tensor<1x2x40x64xbf16>) -> tensor<1x2x40x64xbf16>
  return %o : tensor<1x2x40x64xbf16>
}

// Queries that come before the first key see nothing.
func.func @before(%q: tensor<1x2x90x64xf16>, %k: tensor<1x2x30x64xf16>, %v: tensor<1x2x30x64xf16>) -> tensor<1x2x90x64xf16> {
  %init = tensor.empty() : tensor<1x2x90x64xf16>
  %o = flashattn.attention mask(#flashattn.any_of<[#flashattn.window<left = 50, right = 0>, #flashattn.all_of<[#flashattn.sink<4>, #flashattn.causal]>]>)
      schedule(<tile_m = 64, tile_n = 48, stages = 2, dot_type = f16, mapping = hopper<consumers = 1, along = query_tile, registers = 104, producer_registers = 24, rescale_threshold = 4, l2_head_group = 1, blocks_per_sm = 4, compact_kv = 1>>)
      ins(%q, %k, %v : tensor<1x2x90x64xf16>, tensor<1x2x30x64xf16>, tensor<1x2x30x64xf16>)
      outs(%init : tensor<1x2x90x64xf16>) -> tensor<1x2x90x64xf16>
  return %o : tensor<1x2x90x64xf16>
}

// Ends that are divisions, and a softcap.
func.func @chunks(%q: tensor<1x2x130x64xf16>, %k: tensor<1x2x130x64xf16>, %v: tensor<1x2x130x64xf16>) -> tensor<1x2x130x64xf16> {
  %init = tensor.empty() : tensor<1x2x130x64xf16>
  %o = flashattn.attention mask(affine_set<(p, k)[nq, nk] : (k - 40 * (p floordiv 40) >= 0, p - k >= 0)>) softcap(20.0)
      schedule(<tile_m = 64, tile_n = 48, stages = 2, dot_type = f16, mapping = hopper<consumers = 1, along = query_tile, registers = 104, producer_registers = 24, rescale_threshold = 4, l2_head_group = 1, blocks_per_sm = 4, compact_kv = 1>>)
      ins(%q, %k, %v : tensor<1x2x130x64xf16>, tensor<1x2x130x64xf16>, tensor<1x2x130x64xf16>)
      outs(%init : tensor<1x2x130x64xf16>) -> tensor<1x2x130x64xf16>
  return %o : tensor<1x2x130x64xf16>
}

// Consumers share the sequence of all their queries; the last block lacks some.
func.func @consumers(%q: tensor<1x8x300x128xbf16>, %k: tensor<1x2x310x128xbf16>, %v: tensor<1x2x310x128xbf16>) -> tensor<1x8x300x128xbf16> {
  %init = tensor.empty() : tensor<1x8x300x128xbf16>
  %o = flashattn.attention mask(#flashattn.any_of<[#flashattn.window<left = 100, right = 0>, #flashattn.all_of<[#flashattn.sink<4>, #flashattn.causal]>]>)
      schedule(<tile_m = 64, tile_n = 64, stages = 3, dot_type = bf16, pack = 4, mapping = hopper<consumers = 3, along = query_tile, registers = 160, producer_registers = 32, rescale_threshold = 8, l2_head_group = 8, q_stages = 2, dynamic_scheduler = 1, compact_kv = 1>>)
      ins(%q, %k, %v : tensor<1x8x300x128xbf16>, tensor<1x2x310x128xbf16>, tensor<1x2x310x128xbf16>)
      outs(%init : tensor<1x8x300x128xbf16>) -> tensor<1x8x300x128xbf16>
  return %o : tensor<1x8x300x128xbf16>
}

func.func @heads(%q: tensor<1x8x300x128xbf16>, %k: tensor<1x2x310x128xbf16>, %v: tensor<1x2x310x128xbf16>) -> tensor<1x8x300x128xbf16> {
  %init = tensor.empty() : tensor<1x8x300x128xbf16>
  %o = flashattn.attention mask(#flashattn.any_of<[#flashattn.window<left = 100, right = 0>, #flashattn.all_of<[#flashattn.sink<4>, #flashattn.causal]>]>)
      schedule(<tile_m = 64, tile_n = 64, stages = 3, dot_type = bf16, mapping = hopper<consumers = 2, along = head, registers = 160, producer_registers = 32, rescale_threshold = 8, l2_head_group = 8, q_stages = 2, dynamic_scheduler = 1, compact_kv = 1>>)
      ins(%q, %k, %v : tensor<1x8x300x128xbf16>, tensor<1x2x310x128xbf16>, tensor<1x2x310x128xbf16>)
      outs(%init : tensor<1x8x300x128xbf16>) -> tensor<1x8x300x128xbf16>
  return %o : tensor<1x8x300x128xbf16>
}
