// Keys in several parts, merged, against the float64 reference: rules A5 and A6 over parts.

// As many threads ask for all parts that there may be.
// DEFINE: %{run} = env FLASHATTN_NUM_THREADS=61 flash-run %s --device=cpu --verify

#split = #flashattn.schedule<tile_m = 16, tile_n = 16, stages = 1, dot_type = f32, splits = 7, min_split_tiles = 1, mapping = cpu>

// Lengths at which the parts have as many tiles each, the last one fewer, some none; no keys at all.
// RUN: %{run} --function=plain --input=2x4x1x24xf32 --input=2x2x112x24xf32 --input=2x2x112x40xf32 | FileCheck %s
// RUN: %{run} --function=plain --input=2x4x16x24xf32 --input=2x2x1003x24xf32 --input=2x2x1003x40xf32 | FileCheck %s
// RUN: %{run} --function=plain --input=2x4x5x24xf32 --input=2x2x131x24xf32 --input=2x2x131x40xf32 | FileCheck %s
// RUN: %{run} --function=plain --input=1x1x3x24xf32 --input=1x1x5x24xf32 --input=1x1x5x40xf32 | FileCheck %s
// RUN: %{run} --function=plain --input=1x2x3x24xf32 --input=1x1x0x24xf32 --input=1x1x0x40xf32 | FileCheck %s --check-prefixes=CHECK,NONE
// RUN: not %{run} --function=plain --input=0x2x3x24xf32 --input=0x1x9x24xf32 --input=0x1x9x40xf32 | FileCheck %s --check-prefix=EMPTY
// NONE: output 0: 1x2x3x40xf32, min 0.0000, max 0.0000
// NONE: output 1: 1x2x3xf32, 6 not finite, values -INF
// EMPTY: verify o: no elements to compare
// CHECK: verify o: {{.*}}: PASS
// CHECK: verify lse {{.*}}: PASS
func.func @plain(%q: memref<?x?x?x24xf32>, %k: memref<?x?x?x24xf32>, %v: memref<?x?x?x40xf32>,
                 %o: memref<?x?x?x40xf32>, %lse: memref<?x?x?xf32>) {
  flashattn.attention schedule(#split)
      ins(%q, %k, %v : memref<?x?x?x24xf32>, memref<?x?x?x24xf32>, memref<?x?x?x40xf32>)
      outs(%o, %lse : memref<?x?x?x40xf32>, memref<?x?x?xf32>)
  return
}

// More queries than keys: whole rows see none of them.
// RUN: %{run} --function=causal --input=2x457x4x16xbf16 --input=2x457x2x16xbf16 --input=2x457x2x16xbf16 | FileCheck %s
// RUN: %{run} --function=causal --input=2x13x4x16xbf16 --input=2x457x2x16xbf16 --input=2x457x2x16xbf16 | FileCheck %s
// RUN: %{run} --function=causal --input=2x40x4x16xbf16 --input=2x27x2x16xbf16 --input=2x27x2x16xbf16 | FileCheck %s
func.func @causal(%q: memref<?x?x?x16xbf16>, %k: memref<?x?x?x16xbf16>, %v: memref<?x?x?x16xbf16>,
                  %o: memref<?x?x?x16xbf16>, %lse: memref<?x?x?xf32>) {
  flashattn.attention mask(#flashattn.causal) layout(bshd) schedule(#split)
      ins(%q, %k, %v : memref<?x?x?x16xbf16>, memref<?x?x?x16xbf16>, memref<?x?x?x16xbf16>)
      outs(%o, %lse : memref<?x?x?x16xbf16>, memref<?x?x?xf32>)
  return
}

// The parts share what the mask shows, two intervals of it. The sink's logit joins once.
// RUN: %{run} --function=sinks --input=2x4x9x16xf16 --input=2x2x703x16xf16 --input=2x2x703x16xf16 --input=4xf32 | FileCheck %s
// RUN: %{run} --function=sinks --input=2x4x16x16xf16 --input=2x2x64x16xf16 --input=2x2x64x16xf16 --input=4xf32 | FileCheck %s
// A6: no keys but a sink.
// RUN: %{run} --function=sinks --input=1x2x3x16xf16 --input=1x1x0x16xf16 --input=1x1x0x16xf16 --input=2xf32 | FileCheck %s
func.func @sinks(%q: memref<?x?x?x16xf16>, %k: memref<?x?x?x16xf16>, %v: memref<?x?x?x16xf16>,
                 %sinks: memref<?xf32>, %o: memref<?x?x?x16xf16>, %lse: memref<?x?x?xf32>) {
  flashattn.attention mask(#flashattn.any_of<[#flashattn.window<left = 99, right = 0>, #flashattn.all_of<[#flashattn.sink<4>, #flashattn.causal]>]>) schedule(#split)
      ins(%q, %k, %v : memref<?x?x?x16xf16>, memref<?x?x?x16xf16>, memref<?x?x?x16xf16>)
      sink_logits(%sinks : memref<?xf32>)
      outs(%o, %lse : memref<?x?x?x16xf16>, memref<?x?x?xf32>)
  return
}

// A7: the parts share the keys that exist, of each batch its own.
// RUN: rm -rf %t && mkdir %t && %python %S/../Inputs/make_special.py %t
// RUN: %{run} --function=lengths --input=3x2x7x16xf32 --input=3x1x90x16xf32 --input=3x1x90x16xf32 --input=@%t/lengths.npy | FileCheck %s
// RUN: %{run} --function=lengths --input=3x2x1x16xf32 --input=3x1x990x16xf32 --input=3x1x990x16xf32 | FileCheck %s
// RUN: %{run} --function=lengths --input=3x2x7x16xf32 --input=3x1x90x16xf32=poison --input=3x1x90x16xf32=poison --input=3xi32=zeros | FileCheck %s
func.func @lengths(%q: memref<?x?x?x16xf32>, %k: memref<?x?x?x16xf32>, %v: memref<?x?x?x16xf32>,
                   %len: memref<?xi32>, %o: memref<?x?x?x16xf32>, %lse: memref<?x?x?xf32>) {
  flashattn.attention mask(#flashattn.causal) schedule(#split)
      ins(%q, %k, %v : memref<?x?x?x16xf32>, memref<?x?x?x16xf32>, memref<?x?x?x16xf32>)
      kv_len(%len : memref<?xi32>)
      outs(%o, %lse : memref<?x?x?x16xf32>, memref<?x?x?xf32>)
  return
}

// On tensors; without a log-sum-exp.
// RUN: %{run} --function=tensors | FileCheck %s --check-prefix=OUT
// OUT: verify o: {{.*}}: PASS
func.func @tensors(%q: tensor<2x4x2x32xf32>, %k: tensor<2x4x300x32xf32>) -> tensor<2x4x2x32xf32> {
  %init = tensor.empty() : tensor<2x4x2x32xf32>
  %o = flashattn.attention schedule(#split)
      ins(%q, %k, %k : tensor<2x4x2x32xf32>, tensor<2x4x300x32xf32>, tensor<2x4x300x32xf32>)
      outs(%init : tensor<2x4x2x32xf32>) -> tensor<2x4x2x32xf32>
  return %o : tensor<2x4x2x32xf32>
}
