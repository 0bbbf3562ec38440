// Persistent blocks that claim their groups, of which there are enough: 26 or 27 for 6 multiprocessors. With few of them
// there is a block for each, and no counter.
//
// RUN: flash-run %s --device=model:sm_90a --model-multiprocessors=6 --function=many --verify %model_seeds --model-statistics | FileCheck %s --check-prefixes=CLAIMS,CHECK
// RUN: flash-run %s --device=model:sm_90a --model-multiprocessors=6 --function=consumers --verify --model-statistics | FileCheck %s --check-prefixes=CLAIMS,CHECK
// RUN: flash-run %s --device=model:sm_90a --function=few --verify | FileCheck %s
// RUN: flash-run %s --device=model:sm_90a --model-multiprocessors=6 --function=list --verify --model-statistics | FileCheck %s --check-prefixes=CLAIMS,CHECK
// RUN: flash-run %s --device=model:sm_90a --model-multiprocessors=6 --function=reload --verify %model_seeds --model-statistics | FileCheck %s --check-prefixes=CLAIMS,CHECK
// RUN: flash-run %s --device=model:sm_90a --model-multiprocessors=6 --function=reload_lengths --verify %model_seeds --model-statistics | FileCheck %s --check-prefixes=CLAIMS,CHECK
// RUN: flash-run %s --device=model:sm_90a --model-multiprocessors=6 --function=reload_lengths --input=random --input=random --input=random --input=zeros --verify %model_seeds --model-statistics | FileCheck %s --check-prefixes=CLAIMS,CHECK
// RUN: flash-run %s --device=model:sm_90a --model-multiprocessors=6 --function=reload_intervals --verify %model_seeds --model-statistics | FileCheck %s --check-prefixes=CLAIMS,CHECK
// RUN: flash-run %s --device=model:sm_90a --model-multiprocessors=6 --function=reload_nothing --input=random --input=1x13x0x64xf16=random --input=1x13x0x64xf16=random --verify | FileCheck %s
// CLAIMS: hopper.claim {{.*}}: {{26|27}}
// CHECK: model: {{1 interleaving|[23] interleavings}} from seed 1, no report
// CHECK: verify o: {{.*}}PASS

func.func @many(%q: tensor<1x9x130x16xf16>, %k: tensor<1x9x130x16xf16>, %v: tensor<1x9x130x16xf16>) -> tensor<1x9x130x16xf16> {
  %init = tensor.empty() : tensor<1x9x130x16xf16>
  %o = flashattn.attention mask(#flashattn.causal)
      schedule(<tile_m = 64, tile_n = 32, stages = 2, dot_type = f16, mapping = hopper<consumers = 1, along = query_tile, registers = 160, producer_registers = 32, rescale_threshold = 4, l2_head_group = 4, q_stages = 2, dynamic_scheduler = 1>>)
      ins(%q, %k, %v : tensor<1x9x130x16xf16>, tensor<1x9x130x16xf16>, tensor<1x9x130x16xf16>)
      outs(%init : tensor<1x9x130x16xf16>) -> tensor<1x9x130x16xf16>
  return %o : tensor<1x9x130x16xf16>
}

// Consumers of which one has no program in each head's shorter group, and several intervals.
func.func @consumers(%q: tensor<1x13x200x16xbf16>, %k: tensor<1x13x200x16xbf16>, %v: tensor<1x13x200x16xbf16>) -> tensor<1x13x200x16xbf16> {
  %init = tensor.empty() : tensor<1x13x200x16xbf16>
  %o = flashattn.attention mask(#flashattn.any_of<[#flashattn.window<left = 40, right = 0>, #flashattn.all_of<[#flashattn.sink<4>, #flashattn.causal]>]>)
      schedule(<tile_m = 64, tile_n = 32, stages = 2, dot_type = bf16, mapping = hopper<consumers = 3, along = query_tile, registers = 160, producer_registers = 32, rescale_threshold = 1, l2_head_group = 3, q_stages = 2, dynamic_scheduler = 1>>)
      ins(%q, %k, %v : tensor<1x13x200x16xbf16>, tensor<1x13x200x16xbf16>, tensor<1x13x200x16xbf16>)
      outs(%init : tensor<1x13x200x16xbf16>) -> tensor<1x13x200x16xbf16>
  return %o : tensor<1x13x200x16xbf16>
}

func.func @few(%q: tensor<1x5x300x64xf16>, %k: tensor<1x5x300x64xf16>, %v: tensor<1x5x300x64xf16>) -> tensor<1x5x300x64xf16> {
  %init = tensor.empty() : tensor<1x5x300x64xf16>
  %o = flashattn.attention mask(#flashattn.causal)
      schedule(<tile_m = 64, tile_n = 112, stages = 3, dot_type = f16, mapping = hopper<consumers = 3, along = query_tile, registers = 160, producer_registers = 32, rescale_threshold = 15, l2_head_group = 64, q_stages = 2, lazy_rescale = 1, dynamic_scheduler = 1>>)
      ins(%q, %k, %v : tensor<1x5x300x64xf16>, tensor<1x5x300x64xf16>, tensor<1x5x300x64xf16>)
      outs(%init : tensor<1x5x300x64xf16>) -> tensor<1x5x300x64xf16>
  return %o : tensor<1x5x300x64xf16>
}

// Programs whose tiles are listed, and some of whose queries see nothing.
func.func @list(%q: tensor<1x13x130x16xf16>, %k: tensor<1x13x130x16xf16>, %v: tensor<1x13x130x16xf16>, %attn_mask: tensor<1x1x130x130xi1>) -> tensor<1x13x130x16xf16> {
  %init = tensor.empty() : tensor<1x13x130x16xf16>
  %o = flashattn.attention mask(#flashattn.causal)
      schedule(<tile_m = 64, tile_n = 32, stages = 2, dot_type = f16, mapping = hopper<consumers = 2, along = query_tile, registers = 160, producer_registers = 32, rescale_threshold = 4, l2_head_group = 8, q_stages = 2, dynamic_scheduler = 1>>)
      ins(%q, %k, %v : tensor<1x13x130x16xf16>, tensor<1x13x130x16xf16>, tensor<1x13x130x16xf16>)
      attn_mask(%attn_mask : tensor<1x1x130x130xi1>)
      outs(%init : tensor<1x13x130x16xf16>) -> tensor<1x13x130x16xf16>
  return %o : tensor<1x13x130x16xf16>
}

// One place for queries, where the next ones come as soon as the last keys have been read.
func.func @reload(%q: tensor<1x13x200x64xf16>, %k: tensor<1x13x200x64xf16>, %v: tensor<1x13x200x64xf16>) -> tensor<1x13x200x64xf16> {
  %init = tensor.empty() : tensor<1x13x200x64xf16>
  %o = flashattn.attention mask(#flashattn.causal)
      schedule(<tile_m = 64, tile_n = 32, stages = 2, dot_type = f16, mapping = hopper<consumers = 2, along = query_tile, registers = 240, producer_registers = 24, rescale_threshold = 4, l2_head_group = 4, dynamic_scheduler = 1, q_register_columns = 32>>)
      ins(%q, %k, %v : tensor<1x13x200x64xf16>, tensor<1x13x200x64xf16>, tensor<1x13x200x64xf16>)
      outs(%init : tensor<1x13x200x64xf16>) -> tensor<1x13x200x64xf16>
  return %o : tensor<1x13x200x64xf16>
}

// Programs of batches without keys pass a tile by, lest the next ones come before they have begun.
func.func @reload_lengths(%q: tensor<13x1x200x64xf16>, %k: tensor<13x1x200x64xf16>, %v: tensor<13x1x200x64xf16>, %lengths: tensor<13xi32>) -> tensor<13x1x200x64xf16> {
  %init = tensor.empty() : tensor<13x1x200x64xf16>
  %o = flashattn.attention 
      schedule(<tile_m = 64, tile_n = 32, stages = 2, dot_type = f16, mapping = hopper<consumers = 2, along = query_tile, registers = 240, producer_registers = 24, rescale_threshold = 4, l2_head_group = 4, dynamic_scheduler = 1, q_register_columns = 32>>)
      ins(%q, %k, %v : tensor<13x1x200x64xf16>, tensor<13x1x200x64xf16>, tensor<13x1x200x64xf16>)
      kv_len(%lengths : tensor<13xi32>)
      outs(%init : tensor<13x1x200x64xf16>) -> tensor<13x1x200x64xf16>
  return %o : tensor<13x1x200x64xf16>
}

// The last tile of several intervals.
func.func @reload_intervals(%q: tensor<1x13x200x64xf16>, %k: tensor<1x13x200x64xf16>, %v: tensor<1x13x200x64xf16>) -> tensor<1x13x200x64xf16> {
  %init = tensor.empty() : tensor<1x13x200x64xf16>
  %o = flashattn.attention mask(#flashattn.any_of<[#flashattn.window<left = 40, right = 0>, #flashattn.all_of<[#flashattn.sink<4>, #flashattn.causal]>]>)
      schedule(<tile_m = 64, tile_n = 32, stages = 2, dot_type = f16, mapping = hopper<consumers = 2, along = query_tile, registers = 240, producer_registers = 24, rescale_threshold = 4, l2_head_group = 4, dynamic_scheduler = 1, q_register_columns = 32>>)
      ins(%q, %k, %v : tensor<1x13x200x64xf16>, tensor<1x13x200x64xf16>, tensor<1x13x200x64xf16>)
      outs(%init : tensor<1x13x200x64xf16>) -> tensor<1x13x200x64xf16>
  return %o : tensor<1x13x200x64xf16>
}

// No keys at all: a block for every group.
func.func @reload_nothing(%q: tensor<1x13x200x64xf16>, %k: tensor<1x13x?x64xf16>, %v: tensor<1x13x?x64xf16>) -> tensor<1x13x200x64xf16> {
  %init = tensor.empty() : tensor<1x13x200x64xf16>
  %o = flashattn.attention 
      schedule(<tile_m = 64, tile_n = 32, stages = 2, dot_type = f16, mapping = hopper<consumers = 2, along = query_tile, registers = 240, producer_registers = 24, rescale_threshold = 4, l2_head_group = 4, dynamic_scheduler = 1, q_register_columns = 32>>)
      ins(%q, %k, %v : tensor<1x13x200x64xf16>, tensor<1x13x?x64xf16>, tensor<1x13x?x64xf16>)
      outs(%init : tensor<1x13x200x64xf16>) -> tensor<1x13x200x64xf16>
  return %o : tensor<1x13x200x64xf16>
}
