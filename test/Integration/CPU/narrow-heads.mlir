// Rows of one number and of few, odd ones, on the CPU: what fills no register, and of one column
// must not be taken for what a row has one of.

// DEFINE: %{run} = flash-run %s --device=cpu --verify

// RUN: %{run} --function=one --input=1x2x5x1xf32 --input=1x2x7x1xf32 --input=1x2x7x1xf32 | FileCheck %s
// RUN: %{run} --function=one --input=2x4x70x1xf32 --input=2x2x133x1xf32 --input=2x2x133x1xf32 | FileCheck %s
// RUN: %{run} --function=one_key_number --input=2x4x70x1xf16 --input=2x2x100x1xf16 --input=2x2x100x5xf16 | FileCheck %s
// RUN: %{run} --function=one_value_number --input=2x70x4x3xbf16 --input=2x100x2x3xbf16 --input=2x100x2x1xbf16 | FileCheck %s
// RUN: %{run} --function=odd --input=2x4x70x3xf16 --input=2x2x100x3xf16 --input=2x2x100x5xf16 | FileCheck %s
// RUN: %{run} --function=static | FileCheck %s
// RUN: %{run} --function=parts --input=2x4x1x1xf32 --input=2x2x300x1xf32 --input=2x2x300x1xf32 | FileCheck %s
// CHECK: verify o: {{.*}}: PASS
// CHECK: verify lse {{.*}}: PASS

func.func @one(%q: tensor<?x?x?x1xf32>, %k: tensor<?x?x?x1xf32>, %v: tensor<?x?x?x1xf32>,
               %o: tensor<?x?x?x1xf32>, %lse: tensor<?x?x?xf32>) -> (tensor<?x?x?x1xf32>, tensor<?x?x?xf32>) {
  %r:2 = flashattn.attention mask(#flashattn.causal)
      ins(%q, %k, %v : tensor<?x?x?x1xf32>, tensor<?x?x?x1xf32>, tensor<?x?x?x1xf32>)
      outs(%o, %lse : tensor<?x?x?x1xf32>, tensor<?x?x?xf32>) -> tensor<?x?x?x1xf32>, tensor<?x?x?xf32>
  return %r#0, %r#1 : tensor<?x?x?x1xf32>, tensor<?x?x?xf32>
}

func.func @one_key_number(%q: memref<?x?x?x1xf16>, %k: memref<?x?x?x1xf16>, %v: memref<?x?x?x5xf16>,
                          %attn_mask: memref<1x1x?x?xi1>, %sinks: memref<?xf32>, %len: memref<?xi32>,
                          %o: memref<?x?x?x5xf16>, %lse: memref<?x?x?xf32>) {
  flashattn.attention softcap(3.0)
      ins(%q, %k, %v : memref<?x?x?x1xf16>, memref<?x?x?x1xf16>, memref<?x?x?x5xf16>)
      attn_mask(%attn_mask : memref<1x1x?x?xi1>) sink_logits(%sinks : memref<?xf32>) kv_len(%len : memref<?xi32>)
      outs(%o, %lse : memref<?x?x?x5xf16>, memref<?x?x?xf32>)
  return
}

func.func @one_value_number(%q: memref<?x?x?x3xbf16>, %k: memref<?x?x?x3xbf16>, %v: memref<?x?x?x1xbf16>,
                            %bias: memref<1x?x?x?xf32>, %o: memref<?x?x?x1xbf16>, %lse: memref<?x?x?xf32>) {
  flashattn.attention mask(#flashattn.window<left = 9, right = 3>) layout(bshd)
      ins(%q, %k, %v : memref<?x?x?x3xbf16>, memref<?x?x?x3xbf16>, memref<?x?x?x1xbf16>)
      bias(%bias : memref<1x?x?x?xf32>)
      outs(%o, %lse : memref<?x?x?x1xbf16>, memref<?x?x?xf32>)
  return
}

func.func @odd(%q: memref<?x?x?x3xf16>, %k: memref<?x?x?x3xf16>, %v: memref<?x?x?x5xf16>,
               %o: memref<?x?x?x5xf16>, %lse: memref<?x?x?xf32>) {
  flashattn.attention
      ins(%q, %k, %v : memref<?x?x?x3xf16>, memref<?x?x?x3xf16>, memref<?x?x?x5xf16>)
      outs(%o, %lse : memref<?x?x?x5xf16>, memref<?x?x?xf32>)
  return
}

func.func @static(%q: memref<1x2x64x1xbf16>, %k: memref<1x1x64x1xbf16>, %o: memref<1x2x64x1xbf16>, %lse: memref<1x2x64xf32>) {
  flashattn.attention mask(#flashattn.causal)
      ins(%q, %k, %k : memref<1x2x64x1xbf16>, memref<1x1x64x1xbf16>, memref<1x1x64x1xbf16>)
      outs(%o, %lse : memref<1x2x64x1xbf16>, memref<1x2x64xf32>)
  return
}

func.func @parts(%q: memref<?x?x?x1xf32>, %k: memref<?x?x?x1xf32>, %v: memref<?x?x?x1xf32>,
                 %o: memref<?x?x?x1xf32>, %lse: memref<?x?x?xf32>) {
  flashattn.attention schedule(<tile_m = 16, tile_n = 32, stages = 1, dot_type = f32, splits = 3, mapping = cpu>)
      ins(%q, %k, %v : memref<?x?x?x1xf32>, memref<?x?x?x1xf32>, memref<?x?x?x1xf32>)
      outs(%o, %lse : memref<?x?x?x1xf32>, memref<?x?x?xf32>)
  return
}
