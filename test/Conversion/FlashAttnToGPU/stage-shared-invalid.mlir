// RUN: flash-opt %s -flashattn-stage-shared -split-input-file -verify-diagnostics

// Shared memory is that of a launch.
func.func @no_launch(%thread: index) {
  // expected-error @+1 {{'flashattn.on_threads' op expected an enclosing 'gpu.launch'; run flashattn-map-to-gpu first}}
  flashattn.on_threads %thread
      schedule(<tile_m = 64, tile_n = 16, stages = 2, dot_type = f16, mapping = mma_sync<warps = 4>>) {
  }
  return
}

// -----

// A step's stage is its number, cut to so many bits.
func.func @three_stages(%c1: index) {
  gpu.launch blocks(%bx, %by, %bz) in (%gx = %c1, %gy = %c1, %gz = %c1) threads(%tx, %ty, %tz) in (%sx = %c1, %sy = %c1, %sz = %c1) {
    // expected-error @+1 {{'flashattn.on_threads' op expected stages to be a power of 2 but got 3}}
    flashattn.on_threads %tx
        schedule(<tile_m = 64, tile_n = 16, stages = 3, dot_type = f16, mapping = mma_sync<warps = 4>>) {
    }
    gpu.terminator
  }
  return
}

// -----

#mk = affine_map<(m, n, k) -> (m, k)>
#nk = affine_map<(m, n, k) -> (n, k)>
#mn = affine_map<(m, n, k) -> (m, n)>

// What is copied by 16 bytes lies in rows, next to each other, and these along one dimension.
func.func @heads(%c1: index, %q: memref<?x?x64xf16>) {
  gpu.launch blocks(%bx, %by, %bz) in (%gx = %c1, %gy = %c1, %gz = %c1) threads(%tx, %ty, %tz) in (%sx = %c1, %sy = %c1, %sz = %c1) {
    flashattn.on_threads %tx
        schedule(<tile_m = 64, tile_n = 16, stages = 2, dot_type = f16, mapping = mma_sync<warps = 4>>) {
      %none = arith.constant dense<0.0> : vector<64x16xf32>
      %one = arith.constant dense<1.0> : vector<16x64xf16>
      %packed = flashattn.packed_rows [4, 16]
      // expected-error @+1 {{'flashattn.load_tile' op expected a contraction's operand with rows along one dimension and columns along the last dimension, 2, but got dims 0, 1, 2}}
      %qt = flashattn.load_tile %q[%bx, %bx, %c1] dims [0, 1, 2] rows %packed in_bounds [false, false, true] : memref<?x?x64xf16> -> vector<64x64xf16>
      %s = vector.contract {indexing_maps = [#mk, #nk, #mn], iterator_types = ["parallel", "parallel", "reduction"], kind = #vector.kind<add>} %qt, %one, %none : vector<64x64xf16>, vector<16x64xf16> into vector<64x16xf32>
    }
    gpu.terminator
  }
  return
}

// -----

#mk = affine_map<(m, n, k) -> (m, k)>
#nk = affine_map<(m, n, k) -> (n, k)>
#mn = affine_map<(m, n, k) -> (m, n)>
func.func @repeated(%c1: index, %k: memref<?x64xf16>) {
  gpu.launch blocks(%bx, %by, %bz) in (%gx = %c1, %gy = %c1, %gz = %c1) threads(%tx, %ty, %tz) in (%sx = %c1, %sy = %c1, %sz = %c1) {
    flashattn.on_threads %tx
        schedule(<tile_m = 64, tile_n = 16, stages = 2, dot_type = f16, mapping = mma_sync<warps = 4>>) {
      %none = arith.constant dense<0.0> : vector<64x16xf32>
      %one = arith.constant dense<1.0> : vector<64x64xf16>
      flashattn.tile_loop (%i, %j) in [(%bx, %bx, %c1, %c1)] {
        // expected-error @+1 {{'flashattn.load_tile' op expected a contraction's operand with rows along one dimension and columns along the last dimension, 1, but got dims -1, 1}}
        %kt = flashattn.load_tile %k[%j, %c1] dims [-1, 1] in_bounds [true, true] : memref<?x64xf16> -> vector<16x64xf16>
        %s = vector.contract {indexing_maps = [#mk, #nk, #mn], iterator_types = ["parallel", "parallel", "reduction"], kind = #vector.kind<add>} %one, %kt, %none : vector<64x64xf16>, vector<16x64xf16> into vector<64x16xf32>
      }
    }
    gpu.terminator
  }
  return
}

// -----

#mk = affine_map<(m, n, k) -> (m, k)>
#nk = affine_map<(m, n, k) -> (n, k)>
#mn = affine_map<(m, n, k) -> (m, n)>
func.func @short_rows(%c1: index, %k: memref<?x4xf16>) {
  gpu.launch blocks(%bx, %by, %bz) in (%gx = %c1, %gy = %c1, %gz = %c1) threads(%tx, %ty, %tz) in (%sx = %c1, %sy = %c1, %sz = %c1) {
    flashattn.on_threads %tx
        schedule(<tile_m = 64, tile_n = 16, stages = 2, dot_type = f16, mapping = mma_sync<warps = 4>>) {
      %none = arith.constant dense<0.0> : vector<64x16xf32>
      %one = arith.constant dense<1.0> : vector<64x4xf16>
      // expected-error @+1 {{'flashattn.load_tile' op expected rows of a multiple of 16 bytes but got 'vector<16x4xf16>'}}
      %kt = flashattn.load_tile %k[%bx, %c1] dims [0, 1] in_bounds [true, true] : memref<?x4xf16> -> vector<16x4xf16>
      %s = vector.contract {indexing_maps = [#mk, #nk, #mn], iterator_types = ["parallel", "parallel", "reduction"], kind = #vector.kind<add>} %one, %kt, %none : vector<64x4xf16>, vector<16x4xf16> into vector<64x16xf32>
    }
    gpu.terminator
  }
  return
}

// -----

#mk = affine_map<(m, n, k) -> (m, k)>
#nk = affine_map<(m, n, k) -> (n, k)>
#mn = affine_map<(m, n, k) -> (m, n)>

func.func @ones(%c1: index, %q: memref<?x64xf16>) {
  gpu.launch blocks(%bx, %by, %bz) in (%gx = %c1, %gy = %c1, %gz = %c1) threads(%tx, %ty, %tz) in (%sx = %c1, %sy = %c1, %sz = %c1) {
    flashattn.on_threads %tx
        schedule(<tile_m = 64, tile_n = 16, stages = 2, dot_type = f16, mapping = mma_sync<warps = 4>>) {
      %none = arith.constant dense<0.0> : vector<64x16xf32>
      %one = arith.constant dense<1.0> : vector<16x72xf16>
      // expected-error @+1 {{'flashattn.load_tile' op expected columns of ones only with warp specialization}}
      %qt = flashattn.load_tile %q[%bx, %c1] dims [0, 1] in_bounds [false, false] ones : memref<?x64xf16> -> vector<64x72xf16>
      %s = vector.contract {indexing_maps = [#mk, #nk, #mn], iterator_types = ["parallel", "parallel", "reduction"], kind = #vector.kind<add>} %qt, %one, %none : vector<64x72xf16>, vector<16x72xf16> into vector<64x16xf32>
    }
    gpu.terminator
  }
  return
}

// -----

#mk = affine_map<(m, n, k) -> (m, k)>
#nk = affine_map<(m, n, k) -> (n, k)>
#mn = affine_map<(m, n, k) -> (m, n)>

func.func @compact_rows(%c1: index, %q: memref<?x64xf16>) {
  gpu.launch blocks(%bx, %by, %bz) in (%gx = %c1, %gy = %c1, %gz = %c1) threads(%tx, %ty, %tz) in (%sx = %c1, %sy = %c1, %sz = %c1) {
    flashattn.on_threads %tx
        schedule(<tile_m = 64, tile_n = 16, stages = 2, dot_type = f16, mapping = mma_sync<warps = 4>>) {
      %none = arith.constant dense<0.0> : vector<64x16xf32>
      %one = arith.constant dense<1.0> : vector<16x64xf16>
      %rows = flashattn.compact_rows starts(%c1) skips(%c1) lower_bounds [0]
      // expected-error @+1 {{'flashattn.load_tile' op expected compacted rows only with warp specialization}}
      %qt = flashattn.load_tile %q[%bx, %c1] dims [0, 1] rows %rows in_bounds [false, false] : memref<?x64xf16> -> vector<64x64xf16>
      %s = vector.contract {indexing_maps = [#mk, #nk, #mn], iterator_types = ["parallel", "parallel", "reduction"], kind = #vector.kind<add>} %qt, %one, %none : vector<64x64xf16>, vector<16x64xf16> into vector<64x16xf32>
    }
    gpu.terminator
  }
  return
}
