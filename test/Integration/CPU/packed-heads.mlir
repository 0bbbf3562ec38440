// Query heads of one key/value head in the rows of a tile, against the float64 reference: rules A4 to A7.

// DEFINE: %{run} = flash-run %s --device=cpu --verify

#pack = #flashattn.schedule<tile_m = 16, tile_n = 16, stages = 1, dot_type = f32, pack = 4, mapping = cpu>
#parts = #flashattn.schedule<tile_m = 32, tile_n = 16, stages = 1, dot_type = f32, pack = 2, splits = 5, min_split_tiles = 1, mapping = cpu>

// Groups of one tile of heads, of one and a half, of a part of one, of one head; queries that fill no tile.
// RUN: %{run} --function=plain --input=2x8x4x24xf32 --input=2x2x112x24xf32 --input=2x2x112x40xf32 | FileCheck %s
// RUN: %{run} --function=plain --input=2x12x7x24xf32 --input=2x2x131x24xf32 --input=2x2x131x40xf32 | FileCheck %s
// RUN: %{run} --function=plain --input=1x9x1x24xf32 --input=1x3x33x24xf32 --input=1x3x33x40xf32 | FileCheck %s
// RUN: %{run} --function=plain --input=1x2x3x24xf32 --input=1x2x5x24xf32 --input=1x2x5x40xf32 | FileCheck %s
// RUN: %{run} --function=plain --input=1x4x3x24xf32 --input=1x1x0x24xf32 --input=1x1x0x40xf32 | FileCheck %s
// CHECK: verify o: {{.*}}: PASS
// CHECK: verify lse {{.*}}: PASS
func.func @plain(%q: memref<?x?x?x24xf32>, %k: memref<?x?x?x24xf32>, %v: memref<?x?x?x40xf32>,
                 %o: memref<?x?x?x40xf32>, %lse: memref<?x?x?xf32>) {
  flashattn.attention schedule(#pack)
      ins(%q, %k, %v : memref<?x?x?x24xf32>, memref<?x?x?x24xf32>, memref<?x?x?x40xf32>)
      outs(%o, %lse : memref<?x?x?x40xf32>, memref<?x?x?xf32>)
  return
}

// A mask of positions, whose rows are heads first in one layout, and positions first in the other.
// RUN: %{run} --function=window --input=2x6x9x16xf16 --input=2x2x70x16xf16 --input=2x2x70x16xf16 | FileCheck %s
// RUN: %{run} --function=window --input=1x4x37x16xf16 --input=1x1x37x16xf16 --input=1x1x37x16xf16 | FileCheck %s
func.func @window(%q: memref<?x?x?x16xf16>, %k: memref<?x?x?x16xf16>, %v: memref<?x?x?x16xf16>,
                  %o: memref<?x?x?x16xf16>, %lse: memref<?x?x?xf32>) {
  flashattn.attention mask(#flashattn.window<left = 19, right = 0>) softcap(2.0) schedule(#pack)
      ins(%q, %k, %v : memref<?x?x?x16xf16>, memref<?x?x?x16xf16>, memref<?x?x?x16xf16>)
      outs(%o, %lse : memref<?x?x?x16xf16>, memref<?x?x?xf32>)
  return
}
// RUN: %{run} --function=rows --input=2x9x6x16xbf16 --input=2x70x2x16xbf16 --input=2x70x2x16xbf16 | FileCheck %s
// RUN: %{run} --function=rows --input=1x37x4x16xbf16 --input=1x37x1x16xbf16 --input=1x37x1x16xbf16 | FileCheck %s
func.func @rows(%q: memref<?x?x?x16xbf16>, %k: memref<?x?x?x16xbf16>, %v: memref<?x?x?x16xbf16>,
                %o: memref<?x?x?x16xbf16>, %lse: memref<?x?x?xf32>) {
  flashattn.attention mask(#flashattn.causal) layout(bshd) schedule(#pack)
      ins(%q, %k, %v : memref<?x?x?x16xbf16>, memref<?x?x?x16xbf16>, memref<?x?x?x16xbf16>)
      outs(%o, %lse : memref<?x?x?x16xbf16>, memref<?x?x?xf32>)
  return
}

// In parts, whose merge has the sinks; keys that exist, of each batch its own. As many threads ask for
// all parts that there may be, one for none.
// RUN: rm -rf %t && mkdir %t && %python %S/../Inputs/make_special.py %t
// RUN: env FLASHATTN_NUM_THREADS=1 %{run} --function=parts --input=3x4x1x16xf32 --input=3x2x990x16xf32 --input=3x2x990x16xf32 --input=@%t/lengths.npy --input=4xf32 | FileCheck %s
// RUN: env FLASHATTN_NUM_THREADS=61 %{run} --function=parts --input=3x6x7x16xf32 --input=3x3x90x16xf32 --input=3x3x90x16xf32 --input=@%t/lengths.npy --input=6xf32 | FileCheck %s
// RUN: env FLASHATTN_NUM_THREADS=61 %{run} --function=parts --input=3x4x1x16xf32 --input=3x2x990x16xf32 --input=3x2x990x16xf32 --input=3xi32=zeros --input=4xf32 | FileCheck %s
func.func @parts(%q: memref<?x?x?x16xf32>, %k: memref<?x?x?x16xf32>, %v: memref<?x?x?x16xf32>,
                 %len: memref<?xi32>, %sinks: memref<?xf32>, %o: memref<?x?x?x16xf32>,
                 %lse: memref<?x?x?xf32>) {
  flashattn.attention mask(#flashattn.causal) schedule(#parts)
      ins(%q, %k, %v : memref<?x?x?x16xf32>, memref<?x?x?x16xf32>, memref<?x?x?x16xf32>)
      sink_logits(%sinks : memref<?xf32>) kv_len(%len : memref<?xi32>)
      outs(%o, %lse : memref<?x?x?x16xf32>, memref<?x?x?xf32>)
  return
}

// What the compiler chooses for a decoder's step: all heads of a group in a tile.
// RUN: env FLASHATTN_NUM_THREADS=7 %{run} --function=step | FileCheck %s --check-prefix=STEP
// RUN: flash-opt %s -flashattn-select-schedule=chip=cpu | FileCheck %s --check-prefix=CHOSEN
// STEP: verify o: {{.*}}: PASS
// CHOSEN: func @step
// CHOSEN: schedule(<tile_m = 8, tile_n = 64, {{.*}}, pack = 8, splits = 64, min_split_tiles = 4, mapping = cpu>)
func.func @step(%q: tensor<2x10x1x32xf32>, %k: tensor<2x2x900x32xf32>) -> tensor<2x10x1x32xf32> {
  %init = tensor.empty() : tensor<2x10x1x32xf32>
  %o = flashattn.attention
      ins(%q, %k, %k : tensor<2x10x1x32xf32>, tensor<2x2x900x32xf32>, tensor<2x2x900x32xf32>)
      outs(%init : tensor<2x10x1x32xf32>) -> tensor<2x10x1x32xf32>
  return %o : tensor<2x10x1x32xf32>
}
