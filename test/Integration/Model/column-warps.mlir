// Warps that share rows, with lengths that fill no tile, heads that share keys, and what scores have beside their mask.
//
// RUN: flash-run %s --device=model:sm_80 --function=causal --verify | FileCheck %s
// RUN: flash-run %s --device=model:sm_80 --function=columns --verify | FileCheck %s
// RUN: flash-run %s --device=model:sm_80 --function=shaped --verify | FileCheck %s
// CHECK: model: 1 interleaving from seed 1, no report
// CHECK: verify dq: {{.*}}PASS
// CHECK: verify dk: {{.*}}PASS
// CHECK: verify dv: {{.*}}PASS

func.func @causal(%q: tensor<1x4x133x128xbf16>, %k: tensor<1x2x165x128xbf16>, %v: tensor<1x2x165x128xbf16>, %o: tensor<1x4x133x128xbf16>,
                %lse: tensor<1x4x133xf32>, %d_o: tensor<1x4x133x128xbf16>) -> (tensor<1x4x133x128xbf16>, tensor<1x2x165x128xbf16>, tensor<1x2x165x128xbf16>) {
  %dq_init = tensor.empty() : tensor<1x4x133x128xbf16>
  %dk_init = tensor.empty() : tensor<1x2x165x128xbf16>
  %dv_init = tensor.empty() : tensor<1x2x165x128xbf16>
  %dq, %dk, %dv = flashattn.attention_backward mask(#flashattn.causal)
      schedule(<tile_m = 128, tile_n = 64, stages = 2, dot_type = bf16, algorithm = accumulate_dq, mapping = mma_sync<warps = 8, column_warps = 2>>)
      ins(%q, %k, %v, %o, %lse, %d_o : tensor<1x4x133x128xbf16>, tensor<1x2x165x128xbf16>, tensor<1x2x165x128xbf16>, tensor<1x4x133x128xbf16>, tensor<1x4x133xf32>, tensor<1x4x133x128xbf16>)
      outs(%dq_init, %dk_init, %dv_init : tensor<1x4x133x128xbf16>, tensor<1x2x165x128xbf16>, tensor<1x2x165x128xbf16>) -> tensor<1x4x133x128xbf16>, tensor<1x2x165x128xbf16>, tensor<1x2x165x128xbf16>
  return %dq, %dk, %dv : tensor<1x4x133x128xbf16>, tensor<1x2x165x128xbf16>, tensor<1x2x165x128xbf16>
}

// Heads narrower than their columns in shared memory, of which the second warp of two has fewer.
func.func @columns(%q: tensor<2x1x77x56xf16>, %k: tensor<2x1x200x56xf16>, %v: tensor<2x1x200x120xf16>, %o: tensor<2x1x77x120xf16>,
                %lse: tensor<2x1x77xf32>, %d_o: tensor<2x1x77x120xf16>, %len: tensor<2xi32>) -> (tensor<2x1x77x56xf16>, tensor<2x1x200x56xf16>, tensor<2x1x200x120xf16>) {
  %dq_init = tensor.empty() : tensor<2x1x77x56xf16>
  %dk_init = tensor.empty() : tensor<2x1x200x56xf16>
  %dv_init = tensor.empty() : tensor<2x1x200x120xf16>
  %dq, %dk, %dv = flashattn.attention_backward 
      schedule(<tile_m = 128, tile_n = 64, stages = 2, dot_type = f16, algorithm = accumulate_dq, mapping = mma_sync<warps = 8, column_warps = 2>>)
      ins(%q, %k, %v, %o, %lse, %d_o : tensor<2x1x77x56xf16>, tensor<2x1x200x56xf16>, tensor<2x1x200x120xf16>, tensor<2x1x77x120xf16>, tensor<2x1x77xf32>, tensor<2x1x77x120xf16>)
      kv_len(%len : tensor<2xi32>)
      outs(%dq_init, %dk_init, %dv_init : tensor<2x1x77x56xf16>, tensor<2x1x200x56xf16>, tensor<2x1x200x120xf16>) -> tensor<2x1x77x56xf16>, tensor<2x1x200x56xf16>, tensor<2x1x200x120xf16>
  return %dq, %dk, %dv : tensor<2x1x77x56xf16>, tensor<2x1x200x56xf16>, tensor<2x1x200x120xf16>
}

func.func @shaped(%q: tensor<1x2x100x64xbf16>, %k: tensor<1x1x140x64xbf16>, %v: tensor<1x1x140x128xbf16>, %o: tensor<1x2x100x128xbf16>,
                %lse: tensor<1x2x100xf32>, %d_o: tensor<1x2x100x128xbf16>, %attn_mask: tensor<1x1x100x140xi1>, %bias: tensor<1x2x100x140xbf16>) -> (tensor<1x2x100x64xbf16>, tensor<1x1x140x64xbf16>, tensor<1x1x140x128xbf16>) {
  %dq_init = tensor.empty() : tensor<1x2x100x64xbf16>
  %dk_init = tensor.empty() : tensor<1x1x140x64xbf16>
  %dv_init = tensor.empty() : tensor<1x1x140x128xbf16>
  %dq, %dk, %dv = flashattn.attention_backward mask(#flashattn.window<left = 50, right = 9>)
      schedule(<tile_m = 128, tile_n = 64, stages = 2, dot_type = bf16, algorithm = accumulate_dq, mapping = mma_sync<warps = 8, column_warps = 2>>)
      ins(%q, %k, %v, %o, %lse, %d_o : tensor<1x2x100x64xbf16>, tensor<1x1x140x64xbf16>, tensor<1x1x140x128xbf16>, tensor<1x2x100x128xbf16>, tensor<1x2x100xf32>, tensor<1x2x100x128xbf16>)
      bias(%bias : tensor<1x2x100x140xbf16>) attn_mask(%attn_mask : tensor<1x1x100x140xi1>)
      outs(%dq_init, %dk_init, %dv_init : tensor<1x2x100x64xbf16>, tensor<1x1x140x64xbf16>, tensor<1x1x140x128xbf16>) -> tensor<1x2x100x64xbf16>, tensor<1x1x140x64xbf16>, tensor<1x1x140x128xbf16>
  return %dq, %dk, %dv : tensor<1x2x100x64xbf16>, tensor<1x1x140x64xbf16>, tensor<1x1x140x128xbf16>
}
