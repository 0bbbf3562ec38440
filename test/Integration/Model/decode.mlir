// Few queries of many keys: heads that are packed, parts of the keys, and the kernel that merges them.
//
// RUN: flash-run %s --function=decode --device=model:sm_90a --model-seeds=3 --verify | FileCheck %s
// RUN: flash-run %s --function=decode --device=model:sm_80 --model-seeds=3 --verify | FileCheck %s
// RUN: flash-run %s --function=listed --device=model:sm_90a --model-seeds=3 --verify | FileCheck %s
// RUN: flash-run %s --function=listed --device=model:sm_80 --model-seeds=3 --verify | FileCheck %s
// RUN: flash-run %s --function=many --device=model:sm_90a --model-multiprocessors=4 --model-seeds=3 --verify --model-statistics | FileCheck %s --check-prefixes=NARROW,CHECK
// NARROW: statistics of kernel 'many_kernel', 10 blocks:
// Of each block the queries, and 5 tiles of 64 keys and values: wide ones would be 3.
// NARROW: hopper.tma_load {{ *}}runs by threads of each warpgroup: 110
// RUN: flash-run %s --function=eight --device=model:sm_90a --model-multiprocessors=4 --model-seeds=3 --verify | FileCheck %s
// RUN: flash-run %s --function=seven --device=model:sm_90a --model-seeds=3 --verify | FileCheck %s
// RUN: flash-run %s --function=eight --chip=sm_90a --emit=tiles | FileCheck %s --check-prefix=HALF
// RUN: flash-run %s --function=seven --chip=sm_90a --emit=tiles | FileCheck %s --check-prefix=HALF
// HALF: unused_row_half {
// CHECK: model: 3 interleavings from seed 1, no report
// CHECK: verify o: {{.*}}PASS

func.func @decode(%q: tensor<1x8x1x64xf16>, %k: tensor<1x2x1500x64xf16>, %v: tensor<1x2x1500x64xf16>,
                  %kv_len: tensor<1xi32>) -> tensor<1x8x1x64xf16> {
  %init = tensor.empty() : tensor<1x8x1x64xf16>
  %o = flashattn.attention
      ins(%q, %k, %v : tensor<1x8x1x64xf16>, tensor<1x2x1500x64xf16>, tensor<1x2x1500x64xf16>)
      kv_len(%kv_len : tensor<1xi32>)
      outs(%init : tensor<1x8x1x64xf16>) -> tensor<1x8x1x64xf16>
  return %o : tensor<1x8x1x64xf16>
}

// A list of the key tiles that `attn_mask` shows.
func.func @listed(%q: tensor<1x2x130x64xbf16>, %k: tensor<1x2x300x64xbf16>, %v: tensor<1x2x300x64xbf16>,
                  %attn_mask: tensor<1x1x1x300xi1>) -> tensor<1x2x130x64xbf16> {
  %init = tensor.empty() : tensor<1x2x130x64xbf16>
  %o = flashattn.attention
      ins(%q, %k, %v : tensor<1x2x130x64xbf16>, tensor<1x2x300x64xbf16>, tensor<1x2x300x64xbf16>)
      attn_mask(%attn_mask : tensor<1x1x1x300xi1>)
      outs(%init : tensor<1x2x130x64xbf16>) -> tensor<1x2x130x64xbf16>
  return %o : tensor<1x2x130x64xbf16>
}

// More programs than multiprocessors, in small blocks.
func.func @many(%q: tensor<2x20x1x64xf16>, %k: tensor<2x5x300x64xf16>, %v: tensor<2x5x300x64xf16>)
    -> tensor<2x20x1x64xf16> {
  %init = tensor.empty() : tensor<2x20x1x64xf16>
  %o = flashattn.attention
      ins(%q, %k, %v : tensor<2x20x1x64xf16>, tensor<2x5x300x64xf16>, tensor<2x5x300x64xf16>)
      outs(%init : tensor<2x20x1x64xf16>) -> tensor<2x20x1x64xf16>
  return %o : tensor<2x20x1x64xf16>
}

// Rows of 16 of which the second half has no query, in whole programs and in parts: 8 heads of one query, of which a
// tile would hold 64; and 7 queries of each of 3 heads, of which it holds 16.
func.func @eight(%q: tensor<3x16x1x128xbf16>, %k: tensor<3x2x500x128xbf16>, %v: tensor<3x2x500x64xbf16>)
    -> (tensor<3x16x1x64xbf16>, tensor<3x16x1xf32>) {
  %init = tensor.empty() : tensor<3x16x1x64xbf16>
  %init_lse = tensor.empty() : tensor<3x16x1xf32>
  %o, %lse = flashattn.attention softcap(2.0e+01)
      ins(%q, %k, %v : tensor<3x16x1x128xbf16>, tensor<3x2x500x128xbf16>, tensor<3x2x500x64xbf16>)
      outs(%init, %init_lse : tensor<3x16x1x64xbf16>, tensor<3x16x1xf32>) -> tensor<3x16x1x64xbf16>, tensor<3x16x1xf32>
  return %o, %lse : tensor<3x16x1x64xbf16>, tensor<3x16x1xf32>
}

func.func @seven(%q: tensor<1x3x7x40xf16>, %k: tensor<1x1x900x40xf16>, %v: tensor<1x1x900x40xf16>, %sinks: tensor<3xf32>)
    -> tensor<1x3x7x40xf16> {
  %init = tensor.empty() : tensor<1x3x7x40xf16>
  %o = flashattn.attention mask(#flashattn.causal)
      ins(%q, %k, %v : tensor<1x3x7x40xf16>, tensor<1x1x900x40xf16>, tensor<1x1x900x40xf16>)
      sink_logits(%sinks : tensor<3xf32>)
      outs(%init : tensor<1x3x7x40xf16>) -> tensor<1x3x7x40xf16>
  return %o : tensor<1x3x7x40xf16>
}
