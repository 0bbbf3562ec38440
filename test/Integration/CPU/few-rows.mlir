// Tiles of 2, 4 and 8 rows, whose products run along columns, against the float64 reference.

// DEFINE: %{run} = flash-run %s --device=cpu --verify

#two = #flashattn.schedule<tile_m = 2, tile_n = 20, stages = 1, dot_type = f32, mapping = cpu>
#four = #flashattn.schedule<tile_m = 4, tile_n = 48, stages = 1, dot_type = f32, mapping = cpu>
#eight = #flashattn.schedule<tile_m = 8, tile_n = 40, stages = 1, dot_type = f32, pack = 2, mapping = cpu>

// Widths that are no whole registers; columns that are no whole blocks: 8 keys and 8 and 4.
// RUN: %{run} --function=two --input=2x4x5x24xf32 --input=2x2x77x24xf32 --input=2x2x77x40xf32 | FileCheck %s
// RUN: %{run} --function=two --input=1x2x1x24xf32 --input=1x2x20x24xf32 --input=1x2x20x40xf32 | FileCheck %s
// CHECK: verify o: {{.*}}: PASS
// CHECK: verify lse {{.*}}: PASS
func.func @two(%q: memref<?x?x?x24xf32>, %k: memref<?x?x?x24xf32>, %v: memref<?x?x?x40xf32>,
               %o: memref<?x?x?x40xf32>, %lse: memref<?x?x?xf32>) {
  flashattn.attention mask(#flashattn.causal) schedule(#two)
      ins(%q, %k, %v : memref<?x?x?x24xf32>, memref<?x?x?x24xf32>, memref<?x?x?x40xf32>)
      outs(%o, %lse : memref<?x?x?x40xf32>, memref<?x?x?xf32>)
  return
}

// Nine registers of values, by threes; and widths of which one is too few for this, so that the other is alone.
// RUN: %{run} --function=four --input=2x4x5x8xf16 --input=2x2x77x8xf16 --input=2x2x77x72xf16 | FileCheck %s
// RUN: %{run} --function=one --input=2x4x5x72xf16 --input=2x2x77x72xf16 --input=2x2x77x12xf16 | FileCheck %s
func.func @four(%q: memref<?x?x?x8xf16>, %k: memref<?x?x?x8xf16>, %v: memref<?x?x?x72xf16>,
                %o: memref<?x?x?x72xf16>, %lse: memref<?x?x?xf32>) {
  flashattn.attention softcap(3.0) schedule(#four)
      ins(%q, %k, %v : memref<?x?x?x8xf16>, memref<?x?x?x8xf16>, memref<?x?x?x72xf16>)
      outs(%o, %lse : memref<?x?x?x72xf16>, memref<?x?x?xf32>)
  return
}
func.func @one(%q: memref<?x?x?x72xf16>, %k: memref<?x?x?x72xf16>, %v: memref<?x?x?x12xf16>,
               %o: memref<?x?x?x12xf16>, %lse: memref<?x?x?xf32>) {
  flashattn.attention schedule(#four)
      ins(%q, %k, %v : memref<?x?x?x72xf16>, memref<?x?x?x72xf16>, memref<?x?x?x12xf16>)
      outs(%o, %lse : memref<?x?x?x12xf16>, memref<?x?x?xf32>)
  return
}

// RUN: %{run} --function=eight --input=2x5x6x64xbf16 --input=2x77x2x64xbf16 --input=2x77x2x64xbf16 | FileCheck %s
func.func @eight(%q: memref<?x?x?x64xbf16>, %k: memref<?x?x?x64xbf16>, %v: memref<?x?x?x64xbf16>,
                 %o: memref<?x?x?x64xbf16>, %lse: memref<?x?x?xf32>) {
  flashattn.attention mask(#flashattn.window<left = 30, right = 0>) layout(bshd) schedule(#eight)
      ins(%q, %k, %v : memref<?x?x?x64xbf16>, memref<?x?x?x64xbf16>, memref<?x?x?x64xbf16>)
      outs(%o, %lse : memref<?x?x?x64xbf16>, memref<?x?x?xf32>)
  return
}
