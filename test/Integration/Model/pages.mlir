// Keys in pages and slots (rules P1 to P4), on the CPU and in kernels of every kind.
// A table without columns: no sequence has a key, and no entry is read.
// DEFINE: %{empty} = --function=empty --input=2x8x5x64xf16 --input=0x2x16x64xf16 --input="3 9"
// Slots of a cache, with padding before the keys.
// DEFINE: %{slots} = --function=slots --input=2x8x50x64xf16 --input=5x2x100x64xf16 --input="2xi32=30 90" --input="2x1xi32=4 1" --input="2xi32=7 0"
// One query for each sequence, whose heads share a tile, in parts of the keys. Pages in any order, one of them twice;
// entries past the keys, and before the window, are no pages.
// DEFINE: %{decode} = --function=decode --input=random --input=6x2x16x64xbf16 --input="70 17" --input="2x5xi32=-1 3 0 5 2 1 3 99 -7 6"
// RUN: flash-run %s --device=cpu --verify %{empty} | FileCheck %s
// RUN: flash-run %s --device=model:sm_80 --verify %{empty} | FileCheck %s
// RUN: flash-run %s --device=model:sm_90a --verify %{empty} | FileCheck %s
// RUN: flash-run %s --device=cpu --verify %{slots} | FileCheck %s
// RUN: flash-run %s --device=model:sm_80 --verify %{slots} | FileCheck %s
// RUN: flash-run %s --device=model:sm_90a --verify %{slots} | FileCheck %s
// RUN: flash-run %s --device=cpu --verify %{decode} | FileCheck %s
// RUN: flash-run %s --device=model:sm_80 --verify %{decode} | FileCheck %s
// RUN: flash-run %s --device=model:sm_90a --verify %{decode} | FileCheck %s
// A page that a query sees must be in the pool: the reference names it.
// RUN: not flash-run %s --device=cpu --verify --function=decode --input=random --input=6x2x16x64xbf16 --input="70 17" \
// RUN:   --input="2x5xi32=-1 3 0 5 6 1 3 99 -7 6" 2>&1 | FileCheck %s --check-prefix=WRONG
// CHECK: 1 of 1 ops compared
// WRONG: expected pages from 0 to 5 in 'page_table' but got 6 for page 4 of sequence 0

func.func @empty(%q: memref<2x8x5x64xf16>, %k: memref<?x2x16x64xf16>, %n: memref<2xi32>, %t: memref<2x0xi32>,
                 %o: memref<2x8x5x64xf16>, %l: memref<2x8x5xf32>) {
  flashattn.attention mask(#flashattn.causal)
      ins(%q, %k, %k : memref<2x8x5x64xf16>, memref<?x2x16x64xf16>, memref<?x2x16x64xf16>)
      kv_len(%n : memref<2xi32>) page_table(%t : memref<2x0xi32>)
      outs(%o, %l : memref<2x8x5x64xf16>, memref<2x8x5xf32>)
  return
}

func.func @slots(%q: memref<?x8x?x64xf16>, %k: memref<?x2x?x64xf16>, %n: memref<?xi32>, %t: memref<?x1xi32>,
                 %p: memref<?xi32>, %o: memref<?x8x?x64xf16>, %l: memref<?x8x?xf32>) {
  flashattn.attention mask(#flashattn.causal)
      ins(%q, %k, %k : memref<?x8x?x64xf16>, memref<?x2x?x64xf16>, memref<?x2x?x64xf16>)
      kv_len(%n : memref<?xi32>) page_table(%t : memref<?x1xi32>) leftpad_k(%p : memref<?xi32>)
      outs(%o, %l : memref<?x8x?x64xf16>, memref<?x8x?xf32>)
  return
}

func.func @decode(%q: memref<2x8x1x64xbf16>, %k: memref<?x2x16x64xbf16>, %n: memref<2xi32>, %t: memref<2x5xi32>,
                  %o: memref<2x8x1x64xbf16>, %l: memref<2x8x1xf32>) {
  flashattn.attention mask(#flashattn.window<left = 50, right = 0>)
      ins(%q, %k, %k : memref<2x8x1x64xbf16>, memref<?x2x16x64xbf16>, memref<?x2x16x64xbf16>)
      kv_len(%n : memref<2xi32>) page_table(%t : memref<2x5xi32>)
      outs(%o, %l : memref<2x8x1x64xbf16>, memref<2x8x1xf32>)
  return
}
