// What each pass leaves is text that flash-opt reads: any of them can be run alone.

// RUN: %python %S/Inputs/read_back.py -flashattn-to-cpu %s | FileCheck %s --check-prefix=CPU
// RUN: %python %S/Inputs/read_back.py -flashattn-to-nvvm=chip=sm_80 %s | FileCheck %s --check-prefix=GPU
// RUN: %python %S/Inputs/read_back.py -flashattn-to-nvvm=chip=sm_90a %s | FileCheck %s --check-prefix=GPU
// CPU: {{[234][0-9]}} stages read back
// GPU: {{[0-9]*[4-9][0-9]|1[0-9][0-9]}} stages read back

func.func @attention(%q: memref<2x8x?x64xf16>, %k: memref<2x2x?x64xf16>, %v: memref<2x2x?x64xf16>,
                     %bias: memref<1x8x?x?xf16>, %attn_mask: memref<2x1x?x?xi1>, %sinks: memref<8xf32>,
                     %len: memref<2xi32>, %o: memref<2x8x?x64xf16>, %lse: memref<2x8x?xf32>) {
  flashattn.attention mask(#flashattn.window<left = 99, right = 0>) softcap(30.0)
      ins(%q, %k, %v : memref<2x8x?x64xf16>, memref<2x2x?x64xf16>, memref<2x2x?x64xf16>)
      bias(%bias : memref<1x8x?x?xf16>) attn_mask(%attn_mask : memref<2x1x?x?xi1>)
      sink_logits(%sinks : memref<8xf32>) kv_len(%len : memref<2xi32>)
      score_mod {
      ^bb0(%s: f32, %b: index, %h: index, %p: index, %key: index):
        %d = arith.remsi %p, %key : index
        %i = arith.index_cast %d : index to i32
        %f = arith.sitofp %i : i32 to f32
        %x = math.sin %f : f32
        %y = arith.addf %s, %x : f32
        flashattn.yield %y : f32
      }
      outs(%o, %lse : memref<2x8x?x64xf16>, memref<2x8x?xf32>)
  return
}

func.func @decode(%q: memref<2x8x1x64xf16>, %k: memref<2x2x?x64xf16>, %o: memref<2x8x1x64xf16>) {
  flashattn.attention
      ins(%q, %k, %k : memref<2x8x1x64xf16>, memref<2x2x?x64xf16>, memref<2x2x?x64xf16>)
      outs(%o : memref<2x8x1x64xf16>)
  return
}

func.func @full(%q: tensor<2x8x300x96xf16>, %k: tensor<2x2x300x96xf16>) -> tensor<2x8x300x96xf16> {
  %o = tensor.empty() : tensor<2x8x300x96xf16>
  %r = flashattn.attention mask(#flashattn.causal)
      ins(%q, %k, %k : tensor<2x8x300x96xf16>, tensor<2x2x300x96xf16>, tensor<2x2x300x96xf16>)
      outs(%o : tensor<2x8x300x96xf16>) -> tensor<2x8x300x96xf16>
  return %r : tensor<2x8x300x96xf16>
}
