// Blocks that claim programs over keys, with room for one (docs/kernel-backward.md): the next program's tiles overwrite
// this one's, while its sums leave from the place where consumers exchange and stage.
//
// RUN: %if !asan %{ flash-run %s --device=model:sm_90a --model-multiprocessors=3 --function=causal --verify --model-seeds=3 --model-statistics | FileCheck %s %}
// RUN: flash-run %s --device=model:sm_90a --model-multiprocessors=3 --function=window --verify %model_seeds --model-statistics | FileCheck %s
// RUN: %if !asan %{ flash-run %s --device=model:sm_90a --model-multiprocessors=3 --function=plain --verify --model-seeds=2 --model-statistics | FileCheck %s %}
// RUN: flash-run %s --device=model:sm_90a --model-multiprocessors=3 --function=sinks --verify --model-statistics | FileCheck %s
// Without queries the program in front has no blocks.
// RUN: flash-run %s --device=model:sm_90a --model-multiprocessors=3 --function=empty --verify --model-statistics | FileCheck %s --check-prefix=EMPTY
// EMPTY: statistics of kernel 'empty_kernel', 3 blocks
// EMPTY: hopper.claim {{.*}}: {{[1-9]}}
// EMPTY: verify dk: max error 0.000e+00, {{.*}}PASS
// EMPTY: verify dv: max error 0.000e+00, {{.*}}PASS
// CHECK: hopper.claim {{.*}}: {{[1-9]}}
// CHECK: model: {{[123]}} interleaving{{s?}} from seed 1, no report
// CHECK: verify dq: {{.*}}PASS
// CHECK: verify dk: {{.*}}PASS
// CHECK: verify dv: {{.*}}PASS

func.func @causal(%q: tensor<1x8x150x128xbf16>, %k: tensor<1x4x300x128xbf16>, %v: tensor<1x4x300x128xbf16>, %o: tensor<1x8x150x128xbf16>, %lse: tensor<1x8x150xf32>, %d_o: tensor<1x8x150x128xbf16>) -> (tensor<1x8x150x128xbf16>, tensor<1x4x300x128xbf16>, tensor<1x4x300x128xbf16>) {
  %dqi = tensor.empty() : tensor<1x8x150x128xbf16>
  %dki = tensor.empty() : tensor<1x4x300x128xbf16>
  %r:3 = flashattn.attention_backward mask(#flashattn.causal)
      schedule(<tile_m = 128, tile_n = 64, stages = 2, dot_type = bf16, algorithm = accumulate_dq, mapping = hopper<consumers = 2, cooperative = 1, along = query_tile, registers = 240, producer_registers = 24, rescale_threshold = 0, l2_head_group = 2, dynamic_scheduler = 1, dq_reduce_stages = 2>>)
      ins(%q, %k, %v, %o, %lse, %d_o : tensor<1x8x150x128xbf16>, tensor<1x4x300x128xbf16>, tensor<1x4x300x128xbf16>, tensor<1x8x150x128xbf16>, tensor<1x8x150xf32>, tensor<1x8x150x128xbf16>)
      outs(%dqi, %dki, %dki : tensor<1x8x150x128xbf16>, tensor<1x4x300x128xbf16>, tensor<1x4x300x128xbf16>) -> tensor<1x8x150x128xbf16>, tensor<1x4x300x128xbf16>, tensor<1x4x300x128xbf16>
  return %r#0, %r#1, %r#2 : tensor<1x8x150x128xbf16>, tensor<1x4x300x128xbf16>, tensor<1x4x300x128xbf16>
}

func.func @window(%q: tensor<1x6x150x128xf16>, %k: tensor<1x6x280x128xf16>, %v: tensor<1x6x280x128xf16>, %o: tensor<1x6x150x128xf16>, %lse: tensor<1x6x150xf32>, %d_o: tensor<1x6x150x128xf16>) -> (tensor<1x6x150x128xf16>, tensor<1x6x280x128xf16>, tensor<1x6x280x128xf16>) {
  %dqi = tensor.empty() : tensor<1x6x150x128xf16>
  %dki = tensor.empty() : tensor<1x6x280x128xf16>
  %r:3 = flashattn.attention_backward mask(#flashattn.window<left = 90, right = 0>)
      schedule(<tile_m = 128, tile_n = 64, stages = 2, dot_type = f16, algorithm = accumulate_dq, mapping = hopper<consumers = 2, cooperative = 1, along = query_tile, registers = 240, producer_registers = 24, rescale_threshold = 0, l2_head_group = 2, dynamic_scheduler = 1>>)
      ins(%q, %k, %v, %o, %lse, %d_o : tensor<1x6x150x128xf16>, tensor<1x6x280x128xf16>, tensor<1x6x280x128xf16>, tensor<1x6x150x128xf16>, tensor<1x6x150xf32>, tensor<1x6x150x128xf16>)
      outs(%dqi, %dki, %dki : tensor<1x6x150x128xf16>, tensor<1x6x280x128xf16>, tensor<1x6x280x128xf16>) -> tensor<1x6x150x128xf16>, tensor<1x6x280x128xf16>, tensor<1x6x280x128xf16>
  return %r#0, %r#1, %r#2 : tensor<1x6x150x128xf16>, tensor<1x6x280x128xf16>, tensor<1x6x280x128xf16>
}

func.func @plain(%q: tensor<1x6x280x64xf16>, %k: tensor<1x6x150x64xf16>, %v: tensor<1x6x150x64xf16>, %o: tensor<1x6x280x64xf16>, %lse: tensor<1x6x280xf32>, %d_o: tensor<1x6x280x64xf16>) -> (tensor<1x6x280x64xf16>, tensor<1x6x150x64xf16>, tensor<1x6x150x64xf16>) {
  %dqi = tensor.empty() : tensor<1x6x280x64xf16>
  %dki = tensor.empty() : tensor<1x6x150x64xf16>
  %r:3 = flashattn.attention_backward
      schedule(<tile_m = 128, tile_n = 128, stages = 2, dot_type = f16, algorithm = accumulate_dq, mapping = hopper<consumers = 2, cooperative = 1, along = query_tile, registers = 240, producer_registers = 24, rescale_threshold = 0, l2_head_group = 1, dynamic_scheduler = 1, dq_reduce_stages = 2>>)
      ins(%q, %k, %v, %o, %lse, %d_o : tensor<1x6x280x64xf16>, tensor<1x6x150x64xf16>, tensor<1x6x150x64xf16>, tensor<1x6x280x64xf16>, tensor<1x6x280xf32>, tensor<1x6x280x64xf16>)
      outs(%dqi, %dki, %dki : tensor<1x6x280x64xf16>, tensor<1x6x150x64xf16>, tensor<1x6x150x64xf16>) -> tensor<1x6x280x64xf16>, tensor<1x6x150x64xf16>, tensor<1x6x150x64xf16>
  return %r#0, %r#1, %r#2 : tensor<1x6x280x64xf16>, tensor<1x6x150x64xf16>, tensor<1x6x150x64xf16>
}

func.func @sinks(%q: tensor<1x16x700x64xbf16>, %k: tensor<1x2x700x64xbf16>, %v: tensor<1x2x700x64xbf16>, %o: tensor<1x16x700x64xbf16>, %lse: tensor<1x16x700xf32>, %d_o: tensor<1x16x700x64xbf16>) -> (tensor<1x16x700x64xbf16>, tensor<1x2x700x64xbf16>, tensor<1x2x700x64xbf16>) {
  %dqi = tensor.empty() : tensor<1x16x700x64xbf16>
  %dki = tensor.empty() : tensor<1x2x700x64xbf16>
  %r:3 = flashattn.attention_backward mask(#flashattn.any_of<[#flashattn.window<left = 63, right = 0>, #flashattn.all_of<[#flashattn.sink<4>, #flashattn.causal]>]>)
      schedule(<tile_m = 128, tile_n = 128, stages = 2, dot_type = bf16, algorithm = accumulate_dq, mapping = hopper<consumers = 2, cooperative = 1, along = query_tile, registers = 240, producer_registers = 24, rescale_threshold = 0, l2_head_group = 2, dynamic_scheduler = 1, dq_reduce_stages = 1>>)
      ins(%q, %k, %v, %o, %lse, %d_o : tensor<1x16x700x64xbf16>, tensor<1x2x700x64xbf16>, tensor<1x2x700x64xbf16>, tensor<1x16x700x64xbf16>, tensor<1x16x700xf32>, tensor<1x16x700x64xbf16>)
      outs(%dqi, %dki, %dki : tensor<1x16x700x64xbf16>, tensor<1x2x700x64xbf16>, tensor<1x2x700x64xbf16>) -> tensor<1x16x700x64xbf16>, tensor<1x2x700x64xbf16>, tensor<1x2x700x64xbf16>
  return %r#0, %r#1, %r#2 : tensor<1x16x700x64xbf16>, tensor<1x2x700x64xbf16>, tensor<1x2x700x64xbf16>
}

func.func @empty(%q: tensor<1x8x0x128xbf16>, %k: tensor<1x8x700x128xbf16>, %v: tensor<1x8x700x128xbf16>, %o: tensor<1x8x0x128xbf16>, %lse: tensor<1x8x0xf32>, %d_o: tensor<1x8x0x128xbf16>) -> (tensor<1x8x0x128xbf16>, tensor<1x8x700x128xbf16>, tensor<1x8x700x128xbf16>) {
  %dqi = tensor.empty() : tensor<1x8x0x128xbf16>
  %dki = tensor.empty() : tensor<1x8x700x128xbf16>
  %r:3 = flashattn.attention_backward mask(#flashattn.causal)
      ins(%q, %k, %v, %o, %lse, %d_o : tensor<1x8x0x128xbf16>, tensor<1x8x700x128xbf16>, tensor<1x8x700x128xbf16>, tensor<1x8x0x128xbf16>, tensor<1x8x0xf32>, tensor<1x8x0x128xbf16>)
      outs(%dqi, %dki, %dki : tensor<1x8x0x128xbf16>, tensor<1x8x700x128xbf16>, tensor<1x8x700x128xbf16>) -> tensor<1x8x0x128xbf16>, tensor<1x8x700x128xbf16>, tensor<1x8x700x128xbf16>
  return %r#0, %r#1, %r#2 : tensor<1x8x0x128xbf16>, tensor<1x8x700x128xbf16>, tensor<1x8x700x128xbf16>
}
