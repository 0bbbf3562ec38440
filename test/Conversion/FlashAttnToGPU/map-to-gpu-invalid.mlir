// RUN: flash-opt %s -flashattn-map-to-gpu -split-input-file -verify-diagnostics

// A program without a schedule is the CPU's: nothing says which threads run it.
func.func @no_schedule(%b: index, %h: index, %t: index, %m: memref<?x?x?xf32>, %x: f32) {
  %space = flashattn.dense_space(%b, %h, %t) axes(batch, head, query_tile)
  // expected-error @+1 {{'flashattn.program' op expected a schedule with the number of warps but got none}}
  flashattn.program (%i, %j, %k) in %space {
    memref.store %x, %m[%i, %j, %k] : memref<?x?x?xf32>
  }
  return
}

// -----

func.func @five_sizes(%b: index, %t: index, %m: memref<?x?xf32>, %x: f32) {
  %space = flashattn.dense_space(%b, %b, %t, %t, %t) axes(batch, head, query_tile, key_tile, key_tile)
  // expected-error @+1 {{'flashattn.program' op expected a tile program of 1 to 4 sizes but got 5}}
  flashattn.program (%i, %h, %j, %k, %l) in %space
      schedule(<tile_m = 64, tile_n = 64, stages = 2, dot_type = f16, mapping = mma_sync<warps = 4>>) {
    memref.store %x, %m[%i, %k] : memref<?x?xf32>
  }
  return
}

// -----

func.func @signal(%b: index, %m: memref<?xi32>) {
  %space = flashattn.dense_space(%b) axes(batch)
  flashattn.program (%i) in %space
      schedule(<tile_m = 16, tile_n = 64, stages = 1, dot_type = f16, mapping = mma_sync<warps = 1>>) {
    // expected-error @+1 {{'flashattn.signal_added' op expected a schedule with warp specialization and dq_reduce_stages but got one without them}}
    flashattn.signal_added %m[%i] : memref<?xi32>
  }
  return
}
