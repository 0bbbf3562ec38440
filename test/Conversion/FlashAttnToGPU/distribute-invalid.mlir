// RUN: flash-opt %s -flashattn-distribute -split-input-file -verify-diagnostics

// Threads hold the rows of one tile, from shared memory where a contraction multiplies it. What is not
// so is an error at the op.

#mk = affine_map<(m, n, k) -> (m, k)>
#nk = affine_map<(m, n, k) -> (n, k)>
#mn = affine_map<(m, n, k) -> (m, n)>
func.func @factor(%thread: index, %q: memref<?x64xf16>, %k: memref<?x64xf16>) {
  flashattn.on_threads %thread
      schedule(<tile_m = 64, tile_n = 16, stages = 1, dot_type = f16, mapping = mma_sync<warps = 4>>) {
    %none = arith.constant dense<0.0> : vector<64x16xf32>
    // expected-error @+1 {{'flashattn.load_tile' op expected a contraction to read shared memory; run flashattn-stage-shared first}}
    %qt = flashattn.load_tile %q[%thread, %thread] dims [0, 1] in_bounds [false, true] : memref<?x64xf16> -> vector<64x64xf16>
    %kt = flashattn.load_tile %k[%thread, %thread] dims [0, 1] in_bounds [false, true] : memref<?x64xf16> -> vector<16x64xf16>
    %s = vector.contract {indexing_maps = [#mk, #nk, #mn], iterator_types = ["parallel", "parallel", "reduction"], kind = #vector.kind<add>} %qt, %kt, %none : vector<64x64xf16>, vector<16x64xf16> into vector<64x16xf32>
  }
  return
}

// -----

func.func @transfer(%thread: index, %q: memref<?x64xf16>) {
  %zero = arith.constant 0.0 : f16
  flashattn.on_threads %thread
      schedule(<tile_m = 64, tile_n = 16, stages = 1, dot_type = f16, mapping = mma_sync<warps = 4>>) {
    // expected-error @+1 {{'vector.transfer_read' op expected a read of shared memory; run flashattn-stage-shared first}}
    %qt = vector.transfer_read %q[%thread, %thread], %zero {in_bounds = [true, true]} : memref<?x64xf16>, vector<64x64xf16>
  }
  return
}

// -----

// Not the right-hand side of every product that reads it: it must be a tile then.
#shared = #gpu.address_space<workgroup>
func.func @rows_of_a_factor(%thread: index, %k: memref<1x16x64xf16, #shared>) {
  %zero = arith.constant 0.0 : f16
  flashattn.on_threads %thread
      schedule(<tile_m = 64, tile_n = 16, stages = 1, dot_type = f16, mapping = mma_sync<warps = 4>>) {
    // expected-error @+1 {{'vector.transfer_read' op expected a tile of 64 rows, each held by one warp, but got 'vector<16x64xf16>'}}
    %kt = vector.transfer_read %k[%thread, %thread, %thread], %zero {in_bounds = [true, true]} : memref<1x16x64xf16, #shared>, vector<16x64xf16>
    %two = arith.addf %kt, %kt : vector<16x64xf16>
  }
  return
}

// -----

func.func @below(%thread: index, %bias: memref<?x?xf32>) {
  flashattn.on_threads %thread
      schedule(<tile_m = 64, tile_n = 16, stages = 1, dot_type = f16, mapping = mma_sync<warps = 4>>) {
    %rows = flashattn.dense_rows below %thread
    // expected-error @+1 {{'flashattn.load_tile' op expected a tile of 64 rows along one dimension, without 'from' and 'below'}}
    %t = flashattn.load_tile %bias[%thread, %thread] dims [0, 1] rows %rows in_bounds [false, false] : memref<?x?xf32> -> vector<64x16xf32>
  }
  return
}

// -----

func.func @compact_rows(%thread: index, %bias: memref<?x?xf32>) {
  flashattn.on_threads %thread
      schedule(<tile_m = 64, tile_n = 16, stages = 1, dot_type = f16, mapping = mma_sync<warps = 4>>) {
    %rows = flashattn.compact_rows starts(%thread) skips(%thread) lower_bounds [0]
    // expected-error @+1 {{'flashattn.load_tile' op expected compacted rows only in a tile that a contraction reads}}
    %t = flashattn.load_tile %bias[%thread, %thread] dims [0, 1] rows %rows in_bounds [false, false] : memref<?x?xf32> -> vector<64x16xf32>
  }
  return
}

// -----

func.func @ones(%thread: index, %bias: memref<?x8xf32>) {
  flashattn.on_threads %thread
      schedule(<tile_m = 64, tile_n = 16, stages = 1, dot_type = f16, mapping = mma_sync<warps = 4>>) {
    // expected-error @+1 {{'flashattn.load_tile' op expected columns of ones only in a tile that a contraction reads}}
    %t = flashattn.load_tile %bias[%thread, %thread] dims [0, 1] in_bounds [false, false] ones : memref<?x8xf32> -> vector<64x16xf32>
  }
  return
}

// -----

func.func @rows_of_heads(%thread: index, %bias: memref<?x?x?xf32>) {
  flashattn.on_threads %thread
      schedule(<tile_m = 64, tile_n = 16, stages = 1, dot_type = f16, mapping = mma_sync<warps = 4>>) {
    %packed = flashattn.packed_rows [4, 16]
    // expected-error @+1 {{'flashattn.load_tile' op expected a tile of 64 rows along one dimension, without 'from' and 'below'}}
    %t = flashattn.load_tile %bias[%thread, %thread, %thread] dims [0, 1, 2] rows %packed in_bounds [false, false, false] : memref<?x?x?xf32> -> vector<64x16xf32>
  }
  return
}

// -----

func.func @other_rows(%thread: index, %bias: memref<?x?xf32>) {
  flashattn.on_threads %thread
      schedule(<tile_m = 64, tile_n = 16, stages = 1, dot_type = f16, mapping = mma_sync<warps = 4>>) {
    // expected-error @+1 {{'flashattn.load_tile' op expected a tile of 64 rows along one dimension, without 'from' and 'below'}}
    %t = flashattn.load_tile %bias[%thread, %thread] dims [0, 1] in_bounds [false, false] : memref<?x?xf32> -> vector<32x16xf32>
  }
  return
}

// -----

// Rows go along two dimensions at the most.
func.func @stored_along_three(%thread: index, %o: memref<?x?x?x64xf32>, %x: f32) {
  flashattn.on_threads %thread
      schedule(<tile_m = 64, tile_n = 16, stages = 1, dot_type = f16, mapping = mma_sync<warps = 4>>) {
    %t = vector.broadcast %x : f32 to vector<64x64xf32>
    %packed = flashattn.packed_rows [2, 2, 16]
    // expected-error @+1 {{'flashattn.store_tile' op cannot be distributed to threads: its tile of type 'vector<64x64xf32>' has no thread layout}}
    flashattn.store_tile %t to %o[%thread, %thread, %thread, %thread] dims [0, 1, 2, 3] rows %packed in_bounds [false, false, false, true] : vector<64x64xf32>, memref<?x?x?x64xf32>
  }
  return
}

// -----

func.func @stored_bits(%thread: index, %o: memref<?x64xi1>, %x: i1) {
  flashattn.on_threads %thread
      schedule(<tile_m = 64, tile_n = 16, stages = 1, dot_type = f16, mapping = mma_sync<warps = 4>>) {
    %t = vector.broadcast %x : i1 to vector<64x64xi1>
    // expected-error @+1 {{'flashattn.store_tile' op cannot be distributed to threads: its tile of type 'vector<64x64xi1>' has no thread layout}}
    flashattn.store_tile %t to %o[%thread, %thread] dims [0, 1] in_bounds [false, true] : vector<64x64xi1>, memref<?x64xi1>
  }
  return
}

// -----

func.func @stored_columns(%thread: index, %o: memref<64x?xf32>, %x: f32) {
  flashattn.on_threads %thread
      schedule(<tile_m = 64, tile_n = 16, stages = 1, dot_type = f16, mapping = mma_sync<warps = 4>>) {
    %t = vector.broadcast %x : f32 to vector<64x64xf32>
    // expected-error @+1 {{'flashattn.store_tile' op expected columns along the last dimension, 1, but got 0}}
    flashattn.store_tile %t to %o[%thread, %thread] dims [1, 0] in_bounds [false, true] : vector<64x64xf32>, memref<64x?xf32>
  }
  return
}

// -----

#mk = affine_map<(m, n, k) -> (m, k)>
#nk = affine_map<(m, n, k) -> (n, k)>
#mn = affine_map<(m, n, k) -> (m, n)>
func.func @made_factor(%thread: index, %x: f16) {
  flashattn.on_threads %thread
      schedule(<tile_m = 64, tile_n = 16, stages = 1, dot_type = f16, mapping = mma_sync<warps = 4>>) {
    %none = arith.constant dense<0.0> : vector<64x16xf32>
    %a = vector.broadcast %x : f16 to vector<64x64xf16>
    %c = arith.constant dense<1.0> : vector<16x64xf16>
    // expected-error @+1 {{'vector.contract' op expected lhs[m,k] times rhs[n,k] or rhs[k,n] with rhs read from shared memory}}
    %s = vector.contract {indexing_maps = [#mk, #nk, #mn], iterator_types = ["parallel", "parallel", "reduction"], kind = #vector.kind<add>} %a, %c, %none : vector<64x64xf16>, vector<16x64xf16> into vector<64x16xf32>
  }
  return
}

// -----

func.func @warps(%thread: index) {
  // expected-error @+1 {{'flashattn.on_threads' op expected tile_m to be a multiple of 16 rows times 4 warps but got 32}}
  flashattn.on_threads %thread
      schedule(<tile_m = 32, tile_n = 16, stages = 1, dot_type = f16, mapping = mma_sync<warps = 4>>) {
  }
  return
}

// -----

func.func @added_rows(%thread: index, %sums: memref<?x128xf32>) {
  flashattn.on_threads %thread
      schedule(<tile_m = 64, tile_n = 16, stages = 1, dot_type = f16, mapping = mma_sync<warps = 4>>) {
    // expected-error @+1 {{'flashattn.load_added' op expected a tile of 64 rows but got 'vector<32x128xf32>'}}
    %t = flashattn.load_added %sums[%thread, %thread] parts 1 : memref<?x128xf32> -> vector<32x128xf32>
  }
  return
}

// -----

// Each of two warpgroups has a half of the columns, which must be panels.
#shared = #gpu.address_space<workgroup>
func.func @half_a_panel(%thread: index, %ds: memref<1x128x64xf16, #shared>, %k: memref<1x128x64xf16, #shared>) {
  flashattn.on_threads %thread
      schedule(<tile_m = 128, tile_n = 64, stages = 2, dot_type = f16, mapping = hopper<consumers = 2, cooperative = 1, along = query_tile, registers = 240, producer_registers = 24, rescale_threshold = 0, l2_head_group = 1>>) {
    // expected-error @+1 {{'hopper.wgmma' op expected a transposed right-hand side with the columns of 'vector<64x64xf32>', in whole panels for each of 2 warpgroups, but got 'memref<1x128x64xf16, #gpu.address_space<workgroup>>'}}
    %dq = hopper.wgmma %ds, %k transposed_a transposed : memref<1x128x64xf16, #shared>, memref<1x128x64xf16, #shared> -> vector<64x64xf32>
  }
  return
}

// -----

// The second of them would begin at column 64, and not at 40.
#shared = #gpu.address_space<workgroup>
func.func @part_of_a_panel(%thread: index, %ds: memref<1x128x64xf16, #shared>, %k: memref<2x128x64xf16, #shared>) {
  flashattn.on_threads %thread
      schedule(<tile_m = 128, tile_n = 64, stages = 2, dot_type = f16, mapping = hopper<consumers = 2, cooperative = 1, along = query_tile, registers = 240, producer_registers = 24, rescale_threshold = 0, l2_head_group = 1>>) {
    // expected-error @+1 {{'hopper.wgmma' op expected a transposed right-hand side with the columns of 'vector<64x80xf32>', in whole panels for each of 2 warpgroups, but got 'memref<2x128x64xf16, #gpu.address_space<workgroup>>'}}
    %dq = hopper.wgmma %ds, %k transposed_a transposed : memref<1x128x64xf16, #shared>, memref<2x128x64xf16, #shared> -> vector<64x80xf32>
  }
  return
}

// -----

// Of tiles as wgmma takes them, by mma.sync.
#mk = affine_map<(m, n, k) -> (m, k)>
#nk = affine_map<(m, n, k) -> (n, k)>
#mn = affine_map<(m, n, k) -> (m, n)>
#shared = #gpu.address_space<workgroup>
func.func @made_factor(%thread: index, %x: f16, %k: memref<1x16x64xf16, #shared>) {
  flashattn.on_threads %thread
      schedule(<tile_m = 64, tile_n = 16, stages = 2, dot_type = f16, mapping = hopper<consumers = 1, along = query_tile, registers = 240, producer_registers = 24, rescale_threshold = 8, l2_head_group = 1, lazy_rescale = 1>>) {
    %none = arith.constant dense<0.0> : vector<64x16xf32>
    %a = vector.broadcast %x : f16 to vector<64x64xf16>
    %b = hopper.load_tile %k : memref<1x16x64xf16, #shared> -> vector<16x64xf16>
    // expected-error @+1 {{'vector.contract' op expected lhs[m,k] with 64 rows times rhs[n,k] with a multiple of 16 rows, both in shared memory, for a product that only some warps of a warpgroup compute}}
    %s = vector.contract {indexing_maps = [#mk, #nk, #mn], iterator_types = ["parallel", "parallel", "reduction"], kind = #vector.kind<add>} %a, %b, %none : vector<64x64xf16>, vector<16x64xf16> into vector<64x16xf32>
  }
  return
}

// -----

#mk = affine_map<(m, n, k) -> (m, k)>
#nk = affine_map<(m, n, k) -> (n, k)>
#mn = affine_map<(m, n, k) -> (m, n)>
#shared = #gpu.address_space<workgroup>
func.func @few_columns(%thread: index, %q: memref<1x64x64xf16, #shared>, %k: memref<1x24x64xf16, #shared>) {
  flashattn.on_threads %thread
      schedule(<tile_m = 64, tile_n = 16, stages = 2, dot_type = f16, mapping = hopper<consumers = 1, along = query_tile, registers = 240, producer_registers = 24, rescale_threshold = 8, l2_head_group = 1, lazy_rescale = 1>>) {
    %none = arith.constant dense<0.0> : vector<64x24xf32>
    %a = hopper.load_tile %q : memref<1x64x64xf16, #shared> -> vector<64x64xf16>
    %b = hopper.load_tile %k : memref<1x24x64xf16, #shared> -> vector<24x64xf16>
    // expected-error @+1 {{'vector.contract' op expected lhs[m,k] with 64 rows times rhs[n,k] with a multiple of 16 rows, both in shared memory, for a product that only some warps of a warpgroup compute}}
    %s = vector.contract {indexing_maps = [#mk, #nk, #mn], iterator_types = ["parallel", "parallel", "reduction"], kind = #vector.kind<add>} %a, %b, %none : vector<64x64xf16>, vector<24x64xf16> into vector<64x24xf32>
  }
  return
}

// -----

#mk = affine_map<(m, n, k) -> (m, k)>
#kn = affine_map<(m, n, k) -> (k, n)>
#mn = affine_map<(m, n, k) -> (m, n)>
#shared = #gpu.address_space<workgroup>
func.func @other_columns(%thread: index, %q: memref<1x64x64xf16, #shared>, %k: memref<1x64x64xf16, #shared>) {
  flashattn.on_threads %thread
      schedule(<tile_m = 64, tile_n = 16, stages = 2, dot_type = f16, mapping = hopper<consumers = 1, along = query_tile, registers = 240, producer_registers = 24, rescale_threshold = 8, l2_head_group = 1, lazy_rescale = 1>>) {
    %none = arith.constant dense<0.0> : vector<64x64xf32>
    %a = hopper.load_tile %q : memref<1x64x64xf16, #shared> -> vector<64x64xf16>
    %b = hopper.load_tile %k : memref<1x64x64xf16, #shared> -> vector<64x64xf16>
    // expected-error @+1 {{'vector.contract' op expected lhs[m,k] with 64 rows times rhs[n,k] with a multiple of 16 rows, both in shared memory, for a product that only some warps of a warpgroup compute}}
    %s = vector.contract {indexing_maps = [#mk, #kn, #mn], iterator_types = ["parallel", "parallel", "reduction"], kind = #vector.kind<add>} %a, %b, %none : vector<64x64xf16>, vector<64x64xf16> into vector<64x64xf32>
  }
  return
}

// -----

#mk = affine_map<(m, n, k) -> (m, k)>
#nk = affine_map<(m, n, k) -> (n, k)>
#mn = affine_map<(m, n, k) -> (m, n)>
#shared = #gpu.address_space<workgroup>
func.func @two_groups(%thread: index, %q: memref<1x128x64xf16, #shared>, %k: memref<1x16x64xf16, #shared>) {
  flashattn.on_threads %thread
      schedule(<tile_m = 128, tile_n = 16, stages = 2, dot_type = f16, mapping = hopper<consumers = 2, cooperative = 1, along = query_tile, registers = 240, producer_registers = 24, rescale_threshold = 0, l2_head_group = 1>>) {
    %none = arith.constant dense<0.0> : vector<128x16xf32>
    %a = hopper.load_tile %q : memref<1x128x64xf16, #shared> -> vector<128x64xf16>
    %b = hopper.load_tile %k : memref<1x16x64xf16, #shared> -> vector<16x64xf16>
    // expected-error @+1 {{'vector.contract' op expected lhs[m,k] with 64 rows times rhs[n,k] with a multiple of 16 rows, both in shared memory, for a product that only some warps of a warpgroup compute}}
    %s = vector.contract {indexing_maps = [#mk, #nk, #mn], iterator_types = ["parallel", "parallel", "reduction"], kind = #vector.kind<add>} %a, %b, %none : vector<128x64xf16>, vector<16x64xf16> into vector<128x16xf32>
  }
  return
}

// -----

#shared = #gpu.address_space<workgroup>
func.func @reduction(%thread: index, %q: memref<1x64x32xf16, #shared>, %k: memref<1x16x32xf16, #shared>) {
  flashattn.on_threads %thread
      schedule(<tile_m = 64, tile_n = 16, stages = 2, dot_type = f16, mapping = hopper<consumers = 1, along = query_tile, registers = 240, producer_registers = 24, rescale_threshold = 8, l2_head_group = 1, lazy_rescale = 1>>) {
    %none = arith.constant dense<1.0> : vector<64xf32>
    %s = hopper.wgmma %q, %k : memref<1x64x32xf16, #shared>, memref<1x16x32xf16, #shared> -> vector<64x16xf32>
    %sw = hopper.wgmma_wait %s : vector<64x16xf32>
    // expected-error @+1 {{'vector.multi_reduction' op expected a reduction by add, maxnumf or maxsi in a tile program}}
    %product = vector.multi_reduction <mul>, %sw, %none [1] : vector<64x16xf32> to vector<64xf32>
  }
  return
}

// -----

#km = affine_map<(m, n, k) -> (k, m)>
#kn = affine_map<(m, n, k) -> (k, n)>
#mn = affine_map<(m, n, k) -> (m, n)>
func.func @made_share(%thread: index, %x: f16) {
  flashattn.on_threads %thread
      schedule(<tile_m = 64, tile_n = 16, stages = 1, dot_type = f16, mapping = mma_sync<warps = 4>>) {
    %none = arith.constant dense<0.0> : vector<16x64xf32>
    %a = vector.broadcast %x : f16 to vector<64x16xf16>
    %c = arith.constant dense<1.0> : vector<64x64xf16>
    // expected-error @+1 {{'vector.contract' op expected 16-bit tiles in shared memory, whose product has an equal part for each of 4 warps, but got 'vector<16x64xf32>'}}
    %s = vector.contract {indexing_maps = [#km, #kn, #mn], iterator_types = ["parallel", "parallel", "reduction"], kind = #vector.kind<add>} %a, %c, %none : vector<64x16xf16>, vector<64x64xf16> into vector<16x64xf32>
  }
  return
}

// -----

func.func @added_parts(%thread: index, %sums: memref<?x64xf32>) {
  flashattn.on_threads %thread
      schedule(<tile_m = 64, tile_n = 16, stages = 1, dot_type = f16, mapping = mma_sync<warps = 4>>) {
    %none = arith.constant dense<0.0> : vector<16x64xf32>
    // expected-error @+1 {{'flashattn.add_tile' op cannot be distributed to threads: its tile of type 'vector<16x64xf32>' in 2 parts has no thread layout}}
    flashattn.add_tile %none to %sums[%thread, %thread] parts 2 : vector<16x64xf32>, memref<?x64xf32>
  }
  return
}

// -----

func.func @added_in_turns(%thread: index, %sums: memref<?x64xf32>, %order: memref<?xi32>) {
  flashattn.on_threads %thread
      schedule(<tile_m = 64, tile_n = 16, stages = 1, dot_type = f16, mapping = mma_sync<warps = 4>>) {
    %none = arith.constant dense<0.0> : vector<16x64xf32>
    // expected-error @+1 {{'flashattn.add_tile' op expected no 'order' without warp specialization but got 'memref<?xi32>'}}
    flashattn.add_tile %none to %sums[%thread, %thread] parts 4 order %order : memref<?xi32> turn %thread : vector<16x64xf32>, memref<?x64xf32>
  }
  return
}

// -----

func.func @written(%thread: index, %tile: memref<64x64xf16>, %x: f16) {
  flashattn.on_threads %thread
      schedule(<tile_m = 64, tile_n = 16, stages = 1, dot_type = f16, mapping = mma_sync<warps = 4>>) {
    %t = vector.broadcast %x : f16 to vector<64x64xf16>
    // expected-error @+1 {{'vector.transfer_write' op expected a tile of 64 rows of 16-bit elements, to be stored to shared memory, but got 'vector<64x64xf16>' for 'memref<64x64xf16>'}}
    vector.transfer_write %t, %tile[%thread, %thread] : vector<64x64xf16>, memref<64x64xf16>
  }
  return
}

// -----

func.func @shared_rows(%thread: index, %x: f32) {
  flashattn.on_threads %thread
      schedule(<tile_m = 64, tile_n = 32, stages = 1, dot_type = f16, mapping = mma_sync<warps = 4, column_warps = 2>>) {
    %s = vector.broadcast %x : f32 to vector<64x32xf32>
    %none = arith.constant dense<0.0> : vector<64xf32>
    // expected-error @+1 {{'vector.multi_reduction' op expected one warp for each row of the reduced 'vector<64x32xf32>' but got 2}}
    %r = vector.multi_reduction <add>, %s, %none [1] : vector<64x32xf32> to vector<64xf32>
  }
  return
}
