// Keys and values of 8 bits in kernels of both kinds: threads that convert what they have copied, and spare warps that
// convert tiles. Rows of a panel that lanes divide evenly and others, scales that lanes hold and others, pages, one
// operand of 16 bits, and persistent blocks.
// DEFINE: %{decode} = --function=decode --input=random --input=random --input=random --input="333 129"
// DEFINE: %{pages} = --function=pages --input=random --input=9x2x16x64xf8E5M2 --input=9x2x16x64xi8 --input="70 17" --input="2x5xi32=-1 3 0 5 2 1 8 99 -7 6"
// DEFINE: %{rows} = --function=rows
// DEFINE: %{mixed} = --function=mixed
// A sequence without keys, whose scales are NaN and infinite: its rows are 0 (A6).
// DEFINE: %{empty} = --function=empty --input=random --input=random --input=random --input="2xi32=0 30" --input="2x2x1x1xf32=nan inf 0.5 1"
// RUN: flash-run %s --device=cpu --verify %{empty} | FileCheck %s --check-prefixes=EMPTY,CHECK
// RUN: flash-run %s --device=model:sm_90a --verify %{empty} | FileCheck %s --check-prefixes=EMPTY,CHECK
// EMPTY: first 0.0000 0.0000 0.0000 0.0000
// RUN: flash-run %s --device=model:sm_80 --verify %{decode} | FileCheck %s
// RUN: flash-run %s --device=model:sm_90a --verify %{decode} | FileCheck %s
// RUN: flash-run %s --device=model:sm_80 --verify %{pages} | FileCheck %s
// RUN: flash-run %s --device=model:sm_90a --verify %{pages} | FileCheck %s
// RUN: flash-run %s --device=model:sm_90a --verify %{rows} | FileCheck %s
// RUN: flash-run %s --device=model:sm_90a --verify %{mixed} | FileCheck %s
// CHECK: 1 of 1 ops compared

func.func @decode(%q: memref<2x8x1x128xbf16>, %k: memref<2x2x333x128xf8E4M3FN>, %v: memref<2x2x333x128xf8E4M3FN>,
                  %n: memref<2xi32>, %ks: memref<2x2x333x1xf32>, %vs: memref<2x2x1x1xf32>, %o: memref<2x8x1x128xbf16>) {
  flashattn.attention
      ins(%q, %k, %v : memref<2x8x1x128xbf16>, memref<2x2x333x128xf8E4M3FN>, memref<2x2x333x128xf8E4M3FN>)
      kv_len(%n : memref<2xi32>) k_scale(%ks : memref<2x2x333x1xf32>) v_scale(%vs : memref<2x2x1x1xf32>)
      outs(%o : memref<2x8x1x128xbf16>)
  return
}

func.func @pages(%q: memref<2x4x5x64xf16>, %k: memref<?x2x16x64xf8E5M2>, %v: memref<?x2x16x64xi8>, %n: memref<2xi32>,
                 %t: memref<2x5xi32>, %ks: memref<?x2x16x2xf32>, %vs: memref<?x1x16x1xf32>, %o: memref<2x4x5x64xf16>) {
  flashattn.attention mask(#flashattn.window<left = 40, right = 0>)
      ins(%q, %k, %v : memref<2x4x5x64xf16>, memref<?x2x16x64xf8E5M2>, memref<?x2x16x64xi8>)
      kv_len(%n : memref<2xi32>) page_table(%t : memref<2x5xi32>) k_scale(%ks : memref<?x2x16x2xf32>)
      v_scale(%vs : memref<?x1x16x1xf32>) outs(%o : memref<2x4x5x64xf16>)
  return
}

// 48 columns are no power of 2 vectors; 16 columns have more rows in a unit than a warp has lanes.
func.func @rows(%q: memref<1x150x2x16xf16>, %k: memref<1x130x1x16xf8E4M3FN>, %v: memref<1x130x1x48xi8>,
                %ks: memref<1x130x1x1xf32>, %vs: memref<1x130x1x1xf32>, %o: memref<1x150x2x48xf16>) {
  flashattn.attention mask(#flashattn.causal) layout(bshd)
      ins(%q, %k, %v : memref<1x150x2x16xf16>, memref<1x130x1x16xf8E4M3FN>, memref<1x130x1x48xi8>)
      k_scale(%ks : memref<1x130x1x1xf32>) v_scale(%vs : memref<1x130x1x1xf32>) outs(%o : memref<1x150x2x48xf16>)
  return
}

func.func @mixed(%q: memref<3x2x200x128xbf16>, %k: memref<3x1x200x128xbf16>, %v: memref<3x1x200x128xf8E5M2>,
                 %vs: memref<3x1x200x1xf32>, %o: memref<3x2x200x128xbf16>) {
  flashattn.attention mask(#flashattn.causal)
      ins(%q, %k, %v : memref<3x2x200x128xbf16>, memref<3x1x200x128xbf16>, memref<3x1x200x128xf8E5M2>)
      v_scale(%vs : memref<3x1x200x1xf32>) outs(%o : memref<3x2x200x128xbf16>)
  return
}

func.func @empty(%q: memref<2x4x5x64xf16>, %k: memref<2x2x40x64xf8E4M3FN>, %v: memref<2x2x40x64xf8E4M3FN>,
                 %n: memref<2xi32>, %s: memref<2x2x1x1xf32>, %o: memref<2x4x5x64xf16>) {
  flashattn.attention ins(%q, %k, %v : memref<2x4x5x64xf16>, memref<2x2x40x64xf8E4M3FN>, memref<2x2x40x64xf8E4M3FN>)
      kv_len(%n : memref<2xi32>) k_scale(%s : memref<2x2x1x1xf32>) v_scale(%s : memref<2x2x1x1xf32>)
      outs(%o : memref<2x4x5x64xf16>)
  return
}
