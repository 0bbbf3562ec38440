// Programs that add their shares of dq in turns give the same bits whichever blocks run beside each other, with lengths
// that fill no tile and heads that share keys (rule B4).
//
// RUN: flash-run %s --device=model:sm_90a --function=causal --verify %model_seeds | FileCheck %s
// RUN: flash-run %s --device=model:sm_90a --function=window --verify %model_seeds | FileCheck %s
// RUN: flash-run %s --device=model:sm_90a --function=lengths --verify %model_seeds | FileCheck %s
// CHECK: model: {{[12]}} interleaving{{s?}} from seed 1, no report
// CHECK: verify dq: {{.*}}PASS
// CHECK: verify dk: {{.*}}PASS
// CHECK: verify dv: {{.*}}PASS

func.func @causal(%q: tensor<1x4x400x128xbf16>, %k: tensor<1x2x400x128xbf16>, %v: tensor<1x2x400x128xbf16>, %o: tensor<1x4x400x128xbf16>,
                %lse: tensor<1x4x400xf32>, %d_o: tensor<1x4x400x128xbf16>)
    -> (tensor<1x4x400x128xbf16>, tensor<1x2x400x128xbf16>, tensor<1x2x400x128xbf16>) {
  %dq_init = tensor.empty() : tensor<1x4x400x128xbf16>
  %dk_init = tensor.empty() : tensor<1x2x400x128xbf16>
  %dq, %dk, %dv = flashattn.attention_backward mask(#flashattn.causal) deterministic
      schedule(<tile_m = 128, tile_n = 64, stages = 2, dot_type = bf16, algorithm = accumulate_dq, mapping = hopper<consumers = 2, cooperative = 1, along = query_tile, registers = 240, producer_registers = 24, rescale_threshold = 0, l2_head_group = 4, dq_reduce_stages = 1>>)
      ins(%q, %k, %v, %o, %lse, %d_o : tensor<1x4x400x128xbf16>, tensor<1x2x400x128xbf16>, tensor<1x2x400x128xbf16>, tensor<1x4x400x128xbf16>, tensor<1x4x400xf32>, tensor<1x4x400x128xbf16>)
      outs(%dq_init, %dk_init, %dk_init : tensor<1x4x400x128xbf16>, tensor<1x2x400x128xbf16>, tensor<1x2x400x128xbf16>) -> tensor<1x4x400x128xbf16>, tensor<1x2x400x128xbf16>, tensor<1x2x400x128xbf16>
  return %dq, %dk, %dv : tensor<1x4x400x128xbf16>, tensor<1x2x400x128xbf16>, tensor<1x2x400x128xbf16>
}

func.func @window(%q: tensor<1x2x500x64xf16>, %k: tensor<1x2x500x64xf16>, %v: tensor<1x2x500x64xf16>, %o: tensor<1x2x500x64xf16>,
                %lse: tensor<1x2x500xf32>, %d_o: tensor<1x2x500x64xf16>)
    -> (tensor<1x2x500x64xf16>, tensor<1x2x500x64xf16>, tensor<1x2x500x64xf16>) {
  %dq_init = tensor.empty() : tensor<1x2x500x64xf16>
  %dk_init = tensor.empty() : tensor<1x2x500x64xf16>
  %dq, %dk, %dv = flashattn.attention_backward mask(#flashattn.window<left = 200, right = 30>) deterministic
      schedule(<tile_m = 128, tile_n = 128, stages = 2, dot_type = f16, algorithm = accumulate_dq, mapping = hopper<consumers = 2, cooperative = 1, along = query_tile, registers = 240, producer_registers = 24, rescale_threshold = 0, l2_head_group = 1, dq_reduce_stages = 2>>)
      ins(%q, %k, %v, %o, %lse, %d_o : tensor<1x2x500x64xf16>, tensor<1x2x500x64xf16>, tensor<1x2x500x64xf16>, tensor<1x2x500x64xf16>, tensor<1x2x500xf32>, tensor<1x2x500x64xf16>)
      outs(%dq_init, %dk_init, %dk_init : tensor<1x2x500x64xf16>, tensor<1x2x500x64xf16>, tensor<1x2x500x64xf16>) -> tensor<1x2x500x64xf16>, tensor<1x2x500x64xf16>, tensor<1x2x500x64xf16>
  return %dq, %dk, %dv : tensor<1x2x500x64xf16>, tensor<1x2x500x64xf16>, tensor<1x2x500x64xf16>
}

func.func @lengths(%q: tensor<3x2x150x128xf16>, %k: tensor<3x1x300x128xf16>, %v: tensor<3x1x300x128xf16>, %o: tensor<3x2x150x128xf16>,
                %lse: tensor<3x2x150xf32>, %d_o: tensor<3x2x150x128xf16>, %len: tensor<3xi32>)
    -> (tensor<3x2x150x128xf16>, tensor<3x1x300x128xf16>, tensor<3x1x300x128xf16>) {
  %dq_init = tensor.empty() : tensor<3x2x150x128xf16>
  %dk_init = tensor.empty() : tensor<3x1x300x128xf16>
  %dq, %dk, %dv = flashattn.attention_backward deterministic
      schedule(<tile_m = 128, tile_n = 64, stages = 2, dot_type = f16, algorithm = accumulate_dq, mapping = hopper<consumers = 2, cooperative = 1, along = query_tile, registers = 240, producer_registers = 24, rescale_threshold = 0, l2_head_group = 1, dq_reduce_stages = 1>>)
      ins(%q, %k, %v, %o, %lse, %d_o : tensor<3x2x150x128xf16>, tensor<3x1x300x128xf16>, tensor<3x1x300x128xf16>, tensor<3x2x150x128xf16>, tensor<3x2x150xf32>, tensor<3x2x150x128xf16>) kv_len(%len : tensor<3xi32>)
      outs(%dq_init, %dk_init, %dk_init : tensor<3x2x150x128xf16>, tensor<3x1x300x128xf16>, tensor<3x1x300x128xf16>) -> tensor<3x2x150x128xf16>, tensor<3x1x300x128xf16>, tensor<3x1x300x128xf16>
  return %dq, %dk, %dv : tensor<3x2x150x128xf16>, tensor<3x1x300x128xf16>, tensor<3x1x300x128xf16>
}
