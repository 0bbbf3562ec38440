// Consumers that split the sums of a program (docs/kernel-backward.md): masks, heads that share keys, lengths, and
// everything else that shapes scores, against float64.
//
// RUN: flash-run %s --device=model:sm_90a --function=causal --verify %model_seeds | FileCheck %s
// RUN: flash-run %s --device=model:sm_90a --function=window --verify %model_seeds | FileCheck %s
// RUN: flash-run %s --device=model:sm_90a --function=lengths --verify %model_seeds | FileCheck %s
// RUN: flash-run %s --device=model:sm_90a --function=hidden --verify %model_seeds --input=2x2x70x256xbf16 \
// RUN:   --input=2x1x140x256xbf16 --input=2x1x140x256xbf16 --input=2x2x70x256xbf16 --input=2x2x70xf32 \
// RUN:   --input=2x2x70x256xbf16 --input='2xi32=[30 140]' | FileCheck %s
// RUN: rm -rf %t && mkdir %t && %python %S/../Inputs/make_special.py %t
// RUN: flash-run %s --device=model:sm_90a --function=poisoned --verify %model_seeds --input=@%t/rows-70-40-70.npy \
// RUN:   --input=random --input=random --input=@%t/rows-70-40-70.npy --input=random --input=@%t/rows-70-40-70.npy \
// RUN:   --input='1xi32=30' | FileCheck %s
// RUN: flash-run %s --device=model:sm_90a --function=kept --verify %model_seeds | FileCheck %s
// RUN: flash-run %s --device=model:sm_90a --function=capped --verify %model_seeds | FileCheck %s
// CHECK: model: {{[12]}} interleaving{{s?}} from seed 1, no report
// CHECK: verify dq: {{.*}}PASS
// CHECK: verify dk: {{.*}}PASS
// CHECK: verify dv: {{.*}}PASS

func.func @causal(%q: tensor<1x4x150x256xbf16>, %k: tensor<1x2x150x256xbf16>, %v: tensor<1x2x150x256xbf16>, %o: tensor<1x4x150x256xbf16>, %lse: tensor<1x4x150xf32>, %d_o: tensor<1x4x150x256xbf16>) -> (tensor<1x4x150x256xbf16>, tensor<1x2x150x256xbf16>, tensor<1x2x150x256xbf16>) {
  %dqi = tensor.empty() : tensor<1x4x150x256xbf16>
  %dki = tensor.empty() : tensor<1x2x150x256xbf16>
  %dvi = tensor.empty() : tensor<1x2x150x256xbf16>
  %r:3 = flashattn.attention_backward mask(#flashattn.causal)
      schedule(<tile_m = 64, tile_n = 48, stages = 2, dot_type = bf16, algorithm = split_dk_dv, mapping = hopper<consumers = 2, cooperative = 1, along = query_tile, registers = 240, producer_registers = 24, rescale_threshold = 0, l2_head_group = 1>>)
      ins(%q, %k, %v, %o, %lse, %d_o : tensor<1x4x150x256xbf16>, tensor<1x2x150x256xbf16>, tensor<1x2x150x256xbf16>, tensor<1x4x150x256xbf16>, tensor<1x4x150xf32>, tensor<1x4x150x256xbf16>)
       outs(%dqi, %dki, %dvi : tensor<1x4x150x256xbf16>, tensor<1x2x150x256xbf16>, tensor<1x2x150x256xbf16>) -> tensor<1x4x150x256xbf16>, tensor<1x2x150x256xbf16>, tensor<1x2x150x256xbf16>
  return %r#0, %r#1, %r#2 : tensor<1x4x150x256xbf16>, tensor<1x2x150x256xbf16>, tensor<1x2x150x256xbf16>
}

// Rows that see no key, and lengths of which none fills a tile.
func.func @window(%q: tensor<1x2x200x256xf16>, %k: tensor<1x1x130x256xf16>, %v: tensor<1x1x130x136xf16>, %o: tensor<1x2x200x136xf16>, %lse: tensor<1x2x200xf32>, %d_o: tensor<1x2x200x136xf16>) -> (tensor<1x2x200x256xf16>, tensor<1x1x130x256xf16>, tensor<1x1x130x136xf16>) {
  %dqi = tensor.empty() : tensor<1x2x200x256xf16>
  %dki = tensor.empty() : tensor<1x1x130x256xf16>
  %dvi = tensor.empty() : tensor<1x1x130x136xf16>
  %r:3 = flashattn.attention_backward mask(#flashattn.window<left = 40, right = 3>)
      schedule(<tile_m = 64, tile_n = 48, stages = 2, dot_type = f16, algorithm = split_dk_dv, mapping = hopper<consumers = 2, cooperative = 1, along = query_tile, registers = 240, producer_registers = 24, rescale_threshold = 0, l2_head_group = 1>>)
      ins(%q, %k, %v, %o, %lse, %d_o : tensor<1x2x200x256xf16>, tensor<1x1x130x256xf16>, tensor<1x1x130x136xf16>, tensor<1x2x200x136xf16>, tensor<1x2x200xf32>, tensor<1x2x200x136xf16>)
       outs(%dqi, %dki, %dvi : tensor<1x2x200x256xf16>, tensor<1x1x130x256xf16>, tensor<1x1x130x136xf16>) -> tensor<1x2x200x256xf16>, tensor<1x1x130x256xf16>, tensor<1x1x130x136xf16>
  return %r#0, %r#1, %r#2 : tensor<1x2x200x256xf16>, tensor<1x1x130x256xf16>, tensor<1x1x130x136xf16>
}

func.func @lengths(%q: tensor<2x2x70x256xbf16>, %k: tensor<2x1x140x256xbf16>, %v: tensor<2x1x140x256xbf16>, %o: tensor<2x2x70x256xbf16>, %lse: tensor<2x2x70xf32>, %d_o: tensor<2x2x70x256xbf16>, %bias: tensor<2x2x1x140xf32>, %sinks: tensor<2xf32>, %len: tensor<2xi32>) -> (tensor<2x2x70x256xbf16>, tensor<2x1x140x256xbf16>, tensor<2x1x140x256xbf16>, tensor<2xf32>) {
  %dsi = tensor.empty() : tensor<2xf32>
  %dqi = tensor.empty() : tensor<2x2x70x256xbf16>
  %dki = tensor.empty() : tensor<2x1x140x256xbf16>
  %dvi = tensor.empty() : tensor<2x1x140x256xbf16>
  %r:4 = flashattn.attention_backward mask(#flashattn.causal) align(top_left)
      schedule(<tile_m = 64, tile_n = 48, stages = 2, dot_type = bf16, algorithm = split_dk_dv, mapping = hopper<consumers = 2, cooperative = 1, along = query_tile, registers = 240, producer_registers = 24, rescale_threshold = 0, l2_head_group = 1>>)
      ins(%q, %k, %v, %o, %lse, %d_o : tensor<2x2x70x256xbf16>, tensor<2x1x140x256xbf16>, tensor<2x1x140x256xbf16>, tensor<2x2x70x256xbf16>, tensor<2x2x70xf32>, tensor<2x2x70x256xbf16>) bias(%bias : tensor<2x2x1x140xf32>) sink_logits(%sinks : tensor<2xf32>) kv_len(%len : tensor<2xi32>)
       outs(%dqi, %dki, %dvi : tensor<2x2x70x256xbf16>, tensor<2x1x140x256xbf16>, tensor<2x1x140x256xbf16>) d_sink_logits(%dsi : tensor<2xf32>) -> tensor<2x2x70x256xbf16>, tensor<2x1x140x256xbf16>, tensor<2x1x140x256xbf16>, tensor<2xf32>
  return %r#0, %r#1, %r#2, %r#3 : tensor<2x2x70x256xbf16>, tensor<2x1x140x256xbf16>, tensor<2x1x140x256xbf16>, tensor<2xf32>
}

// Queries before position 0 see no key: each consumer clears their rows of one tile.
func.func @hidden(%q: tensor<2x2x70x256xbf16>, %k: tensor<2x1x140x256xbf16>, %v: tensor<2x1x140x256xbf16>, %o: tensor<2x2x70x256xbf16>, %lse: tensor<2x2x70xf32>, %d_o: tensor<2x2x70x256xbf16>, %len: tensor<2xi32>) -> (tensor<2x2x70x256xbf16>, tensor<2x1x140x256xbf16>, tensor<2x1x140x256xbf16>) {
  %dqi = tensor.empty() : tensor<2x2x70x256xbf16>
  %dki = tensor.empty() : tensor<2x1x140x256xbf16>
  %dvi = tensor.empty() : tensor<2x1x140x256xbf16>
  %r:3 = flashattn.attention_backward mask(#flashattn.causal)
      schedule(<tile_m = 64, tile_n = 48, stages = 2, dot_type = bf16, algorithm = split_dk_dv, mapping = hopper<consumers = 2, cooperative = 1, along = query_tile, registers = 240, producer_registers = 24, rescale_threshold = 0, l2_head_group = 1>>)
      ins(%q, %k, %v, %o, %lse, %d_o : tensor<2x2x70x256xbf16>, tensor<2x1x140x256xbf16>, tensor<2x1x140x256xbf16>, tensor<2x2x70x256xbf16>, tensor<2x2x70xf32>, tensor<2x2x70x256xbf16>) kv_len(%len : tensor<2xi32>)
       outs(%dqi, %dki, %dvi : tensor<2x2x70x256xbf16>, tensor<2x1x140x256xbf16>, tensor<2x1x140x256xbf16>) -> tensor<2x2x70x256xbf16>, tensor<2x1x140x256xbf16>, tensor<2x1x140x256xbf16>
  return %r#0, %r#1, %r#2 : tensor<2x2x70x256xbf16>, tensor<2x1x140x256xbf16>, tensor<2x1x140x256xbf16>
}

// The first 40 queries see no key, and their memory holds NaN: no product may read it, in whichever consumer.
func.func @poisoned(%q: tensor<1x1x70x192xf16>, %k: tensor<1x1x33x192xf16>, %v: tensor<1x1x33x192xf16>, %o: tensor<1x1x70x192xf16>, %lse: tensor<1x1x70xf32>, %d_o: tensor<1x1x70x192xf16>, %len: tensor<1xi32>) -> (tensor<1x1x70x192xf16>, tensor<1x1x33x192xf16>, tensor<1x1x33x192xf16>) {
  %dqi = tensor.empty() : tensor<1x1x70x192xf16>
  %dki = tensor.empty() : tensor<1x1x33x192xf16>
  %r:3 = flashattn.attention_backward mask(#flashattn.causal)
      schedule(<tile_m = 64, tile_n = 48, stages = 2, dot_type = f16, algorithm = split_dk_dv, mapping = hopper<consumers = 2, cooperative = 1, along = query_tile, registers = 240, producer_registers = 24, rescale_threshold = 0, l2_head_group = 1>>)
      ins(%q, %k, %v, %o, %lse, %d_o : tensor<1x1x70x192xf16>, tensor<1x1x33x192xf16>, tensor<1x1x33x192xf16>, tensor<1x1x70x192xf16>, tensor<1x1x70xf32>, tensor<1x1x70x192xf16>) kv_len(%len : tensor<1xi32>)
       outs(%dqi, %dki, %dki : tensor<1x1x70x192xf16>, tensor<1x1x33x192xf16>, tensor<1x1x33x192xf16>) -> tensor<1x1x70x192xf16>, tensor<1x1x33x192xf16>, tensor<1x1x33x192xf16>
  return %r#0, %r#1, %r#2 : tensor<1x1x70x192xf16>, tensor<1x1x33x192xf16>, tensor<1x1x33x192xf16>
}

func.func @kept(%q: tensor<1x2x130x256xbf16>, %k: tensor<1x1x200x256xbf16>, %v: tensor<1x1x200x256xbf16>, %o: tensor<1x2x130x256xbf16>, %lse: tensor<1x2x130xf32>, %d_o: tensor<1x2x130x256xbf16>, %attn_mask: tensor<1x1x130x200xi1>) -> (tensor<1x2x130x256xbf16>, tensor<1x1x200x256xbf16>, tensor<1x1x200x256xbf16>) {
  %dqi = tensor.empty() : tensor<1x2x130x256xbf16>
  %dki = tensor.empty() : tensor<1x1x200x256xbf16>
  %dvi = tensor.empty() : tensor<1x1x200x256xbf16>
  %r:3 = flashattn.attention_backward mask(#flashattn.causal)
      schedule(<tile_m = 64, tile_n = 48, stages = 2, dot_type = bf16, algorithm = split_dk_dv, mapping = hopper<consumers = 2, cooperative = 1, along = query_tile, registers = 240, producer_registers = 24, rescale_threshold = 0, l2_head_group = 1>>)
      ins(%q, %k, %v, %o, %lse, %d_o : tensor<1x2x130x256xbf16>, tensor<1x1x200x256xbf16>, tensor<1x1x200x256xbf16>, tensor<1x2x130x256xbf16>, tensor<1x2x130xf32>, tensor<1x2x130x256xbf16>) attn_mask(%attn_mask : tensor<1x1x130x200xi1>)
       outs(%dqi, %dki, %dvi : tensor<1x2x130x256xbf16>, tensor<1x1x200x256xbf16>, tensor<1x1x200x256xbf16>) -> tensor<1x2x130x256xbf16>, tensor<1x1x200x256xbf16>, tensor<1x1x200x256xbf16>
  return %r#0, %r#1, %r#2 : tensor<1x2x130x256xbf16>, tensor<1x1x200x256xbf16>, tensor<1x1x200x256xbf16>
}

// Weights and slopes in one tile; three panels of columns, for two consumers.
func.func @capped(%q: tensor<1x2x150x192xf16>, %k: tensor<1x1x90x192xf16>, %v: tensor<1x1x90x192xf16>, %o: tensor<1x2x150x192xf16>, %lse: tensor<1x2x150xf32>, %d_o: tensor<1x2x150x192xf16>) -> (tensor<1x2x150x192xf16>, tensor<1x1x90x192xf16>, tensor<1x1x90x192xf16>) {
  %dqi = tensor.empty() : tensor<1x2x150x192xf16>
  %dki = tensor.empty() : tensor<1x1x90x192xf16>
  %dvi = tensor.empty() : tensor<1x1x90x192xf16>
  %r:3 = flashattn.attention_backward mask(#flashattn.causal) softcap(8.0)
      schedule(<tile_m = 64, tile_n = 48, stages = 2, dot_type = f16, algorithm = split_dk_dv, mapping = hopper<consumers = 2, cooperative = 1, along = query_tile, registers = 240, producer_registers = 24, rescale_threshold = 0, l2_head_group = 1>>)
      ins(%q, %k, %v, %o, %lse, %d_o : tensor<1x2x150x192xf16>, tensor<1x1x90x192xf16>, tensor<1x1x90x192xf16>, tensor<1x2x150x192xf16>, tensor<1x2x150xf32>, tensor<1x2x150x192xf16>)
       outs(%dqi, %dki, %dvi : tensor<1x2x150x192xf16>, tensor<1x1x90x192xf16>, tensor<1x1x90x192xf16>) -> tensor<1x2x150x192xf16>, tensor<1x1x90x192xf16>, tensor<1x1x90x192xf16>
  return %r#0, %r#1, %r#2 : tensor<1x2x150x192xf16>, tensor<1x1x90x192xf16>, tensor<1x1x90x192xf16>
}
