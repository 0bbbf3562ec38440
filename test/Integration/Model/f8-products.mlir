// F3: queries, keys and values of f8, on the CPU, which converts them, and in products of wgmma, for which spare warps
// transpose V. Sums of many columns, which are added in parts, columns that fill no panel, packed sequences, pages, few
// queries, whose heads share a tile and whose keys are split, and keys that no query sees, whose values are NaN.
// DEFINE: %{pages} = --function=pages --input=random --input=random --input=random --input="3xi32=0 4 37" --input="70 17" --input="2x5xi32=1 3 0 5 2 1 8 99 -7 6"
// DEFINE: %{packed} = --function=packed --input=random --input=random --input=random --input="4xi32=0 1 40 90" --input="4xi32=3 30 60 95"
// DEFINE: %{decode} = --function=decode --input=random --input=random --input=random --input="300 129"
// DEFINE: %{columns} = --function=columns
// DEFINE: %{types} = --function=types
// DEFINE: %{unseen} = --function=unseen --input=random --input=random --input=poison --input=0
// RUN: flash-run %s --device=cpu --verify %{pages} | FileCheck %s
// RUN: flash-run %s --device=cpu --verify %{decode} | FileCheck %s
// RUN: flash-run %s --device=cpu --verify %{types} | FileCheck %s
// RUN: flash-run %s --device=model:sm_90a --verify %{pages} --model-seeds=2 | FileCheck %s
// RUN: flash-run %s --device=model:sm_90a --verify %{packed} | FileCheck %s
// RUN: flash-run %s --device=model:sm_90a --verify %{decode} | FileCheck %s
// RUN: flash-run %s --device=model:sm_90a --verify %{columns} | FileCheck %s
// RUN: flash-run %s --device=model:sm_90a --verify --function=wide --model-seeds=2 | FileCheck %s
// RUN: flash-run %s --device=model:sm_90a --verify --function=wide_decode | FileCheck %s
// RUN: flash-run %s --device=model:sm_90a --verify %{unseen} | FileCheck %s --check-prefixes=CHECK,UNSEEN
// UNSEEN: first 0.0000 0.0000 0.0000 0.0000
// CHECK: 1 of 1 ops compared

func.func @pages(%q: memref<1x4x40x64xf8E4M3FN>, %k: memref<9x2x16x64xf8E4M3FN>, %v: memref<9x2x16x64xf8E4M3FN>, %s: memref<3xi32>,
                 %n: memref<2xi32>, %t: memref<2x5xi32>, %ks: memref<2x1x1x1xf32>, %o: memref<1x4x40x64xf16>) {
  flashattn.attention mask(#flashattn.window<left = 40, right = 0>)
      ins(%q, %k, %v : memref<1x4x40x64xf8E4M3FN>, memref<9x2x16x64xf8E4M3FN>, memref<9x2x16x64xf8E4M3FN>)
      kv_len(%n : memref<2xi32>) cu_seqlens_q(%s : memref<3xi32>) page_table(%t : memref<2x5xi32>)
      k_scale(%ks : memref<2x1x1x1xf32>) outs(%o : memref<1x4x40x64xf16>)
  return
}

func.func @packed(%q: memref<1x2x100x64xf8E4M3FN>, %k: memref<1x2x100x64xf8E4M3FN>, %v: memref<1x2x100x64xf8E4M3FN>, %s: memref<4xi32>,
                  %t: memref<4xi32>, %o: memref<1x2x100x64xbf16>) {
  flashattn.attention mask(#flashattn.causal)
      ins(%q, %k, %v : memref<1x2x100x64xf8E4M3FN>, memref<1x2x100x64xf8E4M3FN>, memref<1x2x100x64xf8E4M3FN>)
      cu_seqlens_q(%s : memref<4xi32>) cu_seqlens_k(%t : memref<4xi32>) outs(%o : memref<1x2x100x64xbf16>)
  return
}

func.func @decode(%q: memref<2x8x1x128xf8E4M3FN>, %k: memref<2x2x333x128xf8E4M3FN>, %v: memref<2x2x333x128xf8E4M3FN>, %n: memref<2xi32>,
                  %s: memref<2x2x1x1xf32>, %sinks: memref<8xf32>, %o: memref<2x8x1x128xbf16>, %lse: memref<2x8x1xf32>) {
  flashattn.attention
      ins(%q, %k, %v : memref<2x8x1x128xf8E4M3FN>, memref<2x2x333x128xf8E4M3FN>, memref<2x2x333x128xf8E4M3FN>)
      kv_len(%n : memref<2xi32>) k_scale(%s : memref<2x2x1x1xf32>) v_scale(%s : memref<2x2x1x1xf32>)
      sink_logits(%sinks : memref<8xf32>) outs(%o, %lse : memref<2x8x1x128xbf16>, memref<2x8x1xf32>)
  return
}

func.func @columns(%q: memref<1x130x2x48xf8E4M3FN>, %k: memref<1x257x1x48xf8E4M3FN>, %v: memref<1x257x1x80xf8E4M3FN>,
                   %b: memref<1x2x130x257xf16>, %o: memref<1x130x2x80xf32>) {
  flashattn.attention softcap(20.0) layout(bshd)
      ins(%q, %k, %v : memref<1x130x2x48xf8E4M3FN>, memref<1x257x1x48xf8E4M3FN>, memref<1x257x1x80xf8E4M3FN>)
      bias(%b : memref<1x2x130x257xf16>) outs(%o : memref<1x130x2x80xf32>)
  return
}

func.func @types(%q: memref<1x2x7x24xf8E5M2>, %k: memref<1x2x9x24xi8>, %v: memref<1x2x9x16xf8E4M3FN>, %s: memref<1x1x9x1xf32>,
                 %o: memref<1x2x7x16xf16>) {
  flashattn.attention ins(%q, %k, %v : memref<1x2x7x24xf8E5M2>, memref<1x2x9x24xi8>, memref<1x2x9x16xf8E4M3FN>)
      v_scale(%s : memref<1x1x9x1xf32>) outs(%o : memref<1x2x7x16xf16>)
  return
}

func.func @unseen(%q: memref<1x1x70x32xf8E4M3FN>, %k: memref<1x1x40x32xf8E4M3FN>, %v: memref<1x1x40x32xf8E4M3FN>, %n: memref<1xi32>,
                  %o: memref<1x1x70x32xf32>) {
  flashattn.attention ins(%q, %k, %v : memref<1x1x70x32xf8E4M3FN>, memref<1x1x40x32xf8E4M3FN>, memref<1x1x40x32xf8E4M3FN>)
      kv_len(%n : memref<1xi32>) outs(%o : memref<1x1x70x32xf32>)
  return
}

func.func @wide(%q: memref<1x2x130x256xf8E4M3FN>, %k: memref<1x1x200x256xf8E4M3FN>, %v: memref<1x1x200x208xf8E4M3FN>, %o: memref<1x2x130x208xf16>,
                %lse: memref<1x2x130xf32>) {
  flashattn.attention mask(#flashattn.causal)
      ins(%q, %k, %v : memref<1x2x130x256xf8E4M3FN>, memref<1x1x200x256xf8E4M3FN>, memref<1x1x200x208xf8E4M3FN>)
      outs(%o, %lse : memref<1x2x130x208xf16>, memref<1x2x130xf32>)
  return
}

func.func @wide_decode(%q: memref<1x4x3x192xf8E4M3FN>, %k: memref<1x1x300x192xf8E4M3FN>, %v: memref<1x1x300x256xf8E4M3FN>, %o: memref<1x4x3x256xf32>) {
  flashattn.attention
      ins(%q, %k, %v : memref<1x4x3x192xf8E4M3FN>, memref<1x1x300x192xf8E4M3FN>, memref<1x1x300x256xf8E4M3FN>)
      outs(%o : memref<1x4x3x256xf32>)
  return
}
