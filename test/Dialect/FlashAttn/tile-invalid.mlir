// RUN: flash-opt %s -split-input-file -verify-diagnostics -flashattn-tile

func.func @tensors(%q: tensor<1x1x4x16xf32>) -> tensor<1x1x4x16xf32> {
  // expected-error@+1 {{expected memrefs; bufferize before tiling}}
  %o = flashattn.attention ins(%q, %q, %q : tensor<1x1x4x16xf32>, tensor<1x1x4x16xf32>, tensor<1x1x4x16xf32>)
    outs(%q : tensor<1x1x4x16xf32>) -> tensor<1x1x4x16xf32>
  return %o : tensor<1x1x4x16xf32>
}

// -----

func.func @no_schedule(%q: memref<1x1x4x16xf32>, %o: memref<1x1x4x16xf32>) {
  // expected-error@+1 {{expected a schedule; run flashattn-select-schedule before tiling}}
  flashattn.attention ins(%q, %q, %q : memref<1x1x4x16xf32>, memref<1x1x4x16xf32>, memref<1x1x4x16xf32>)
    outs(%o : memref<1x1x4x16xf32>)
  return
}

// -----

func.func @not_elementwise(%q: memref<1x1x4x16xf32>, %o: memref<1x1x4x16xf32>) {
  flashattn.attention schedule(<tile_m = 4, tile_n = 8, stages = 1, dot_type = f32, mapping = cpu>)
    ins(%q, %q, %q : memref<1x1x4x16xf32>, memref<1x1x4x16xf32>, memref<1x1x4x16xf32>)
    score_mod {
    ^bb0(%s: f32, %b: index, %h: index, %p: index, %k: index):
      // expected-error@+1 {{'math.sincos' op expected an elementwise op with one result in score_mod but got 'math.sincos'}}
      %sin, %cos = math.sincos %s : f32
      %x = arith.addf %sin, %cos : f32
      flashattn.yield %x : f32
    }
    outs(%o : memref<1x1x4x16xf32>)
  return
}
