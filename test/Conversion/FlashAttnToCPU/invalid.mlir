// RUN: flash-opt %s --convert-flashattn-to-cpu --split-input-file --verify-diagnostics

func.func @unknown(%x: memref<16x8xf32>, %y: memref<8x16xf32>) {
  %c0 = arith.constant 0 : index
  %pad = arith.constant 0.0 : f32
  %n1 = arith.constant 1 : index
  %space = flashattn.dense_space(%n1) axes(query_tile)
  flashattn.program (%t) in %space
      schedule(<tile_m = 16, tile_n = 8, stages = 1, dot_type = f32, mapping = cpu>) {
    %v = vector.transfer_read %x[%c0, %c0], %pad {in_bounds = [true, true]} : memref<16x8xf32>, vector<16x8xf32>
    // expected-error @below {{'vector.transpose' op has no lowering in a CPU tile program}}
    %w = vector.transpose %v, [1, 0] : vector<16x8xf32> to vector<8x16xf32>
    vector.transfer_write %w, %y[%c0, %c0] {in_bounds = [true, true]} : vector<8x16xf32>, memref<8x16xf32>
  }
  return
}

// -----

func.func @list(%x: memref<16x8xf32>) {
  %c0 = arith.constant 0 : index
  // expected-error @below {{expected a splat in a tile program but got dense<[}}
  %list = arith.constant dense<[0.0, 1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0]> : vector<8xf32>
  %tile = vector.broadcast %list : vector<8xf32> to vector<16x8xf32>
  %n1 = arith.constant 1 : index
  %space = flashattn.dense_space(%n1) axes(query_tile)
  flashattn.program (%t) in %space
      schedule(<tile_m = 16, tile_n = 8, stages = 1, dot_type = f32, mapping = cpu>) {
    vector.transfer_write %tile, %x[%c0, %c0] {in_bounds = [true, true]} : vector<16x8xf32>, memref<16x8xf32>
  }
  return
}

// -----

#mk = affine_map<(m, n, k) -> (m, k)>
#kn = affine_map<(m, n, k) -> (k, n)>
#mn = affine_map<(m, n, k) -> (m, n)>

func.func @half(%p: memref<16x8xf16>, %v: memref<8x4xf16>, %o: memref<16x4xf32>) {
  %c0 = arith.constant 0 : index
  %pad = arith.constant 0.0 : f16
  %zero = arith.constant dense<0.0> : vector<16x4xf32>
  %n1 = arith.constant 1 : index
  %space = flashattn.dense_space(%n1) axes(query_tile)
  flashattn.program (%t) in %space
      schedule(<tile_m = 16, tile_n = 8, stages = 1, dot_type = f32, mapping = cpu>) {
    %pt = vector.transfer_read %p[%c0, %c0], %pad {in_bounds = [true, true]} : memref<16x8xf16>, vector<16x8xf16>
    %vt = vector.transfer_read %v[%c0, %c0], %pad {in_bounds = [true, true]} : memref<8x4xf16>, vector<8x4xf16>
    // expected-error @below {{expected a contraction of f32 on the CPU but got 'vector<16x8xf16>'}}
    %ot = vector.contract {indexing_maps = [#mk, #kn, #mn], iterator_types = ["parallel", "parallel", "reduction"], kind = #vector.kind<add>}
        %pt, %vt, %zero : vector<16x8xf16>, vector<8x4xf16> into vector<16x4xf32>
    vector.transfer_write %ot, %o[%c0, %c0] {in_bounds = [true, true]} : vector<16x4xf32>, memref<16x4xf32>
  }
  return
}

// -----

#mk = affine_map<(m, n, k) -> (m, k)>
#kn = affine_map<(m, n, k) -> (k, n)>
#mn = affine_map<(m, n, k) -> (m, n)>

func.func @computed_rhs(%p: memref<16x8xf32>, %v: memref<8x4xf32>, %o: memref<16x4xf32>) {
  %c0 = arith.constant 0 : index
  %pad = arith.constant 0.0 : f32
  %zero = arith.constant dense<0.0> : vector<16x4xf32>
  %n1 = arith.constant 1 : index
  %space = flashattn.dense_space(%n1) axes(query_tile)
  flashattn.program (%t) in %space
      schedule(<tile_m = 16, tile_n = 8, stages = 1, dot_type = f32, mapping = cpu>) {
    %pt = vector.transfer_read %p[%c0, %c0], %pad {in_bounds = [true, true]} : memref<16x8xf32>, vector<16x8xf32>
    // expected-error @below {{'vector.transfer_read' op has no lowering in a CPU tile program}}
    %vt = vector.transfer_read %v[%c0, %c0], %pad {in_bounds = [true, true]} : memref<8x4xf32>, vector<8x4xf32>
    %neg = arith.negf %vt : vector<8x4xf32>
    %ot = vector.contract {indexing_maps = [#mk, #kn, #mn], iterator_types = ["parallel", "parallel", "reduction"], kind = #vector.kind<add>}
        %pt, %neg, %zero : vector<16x8xf32>, vector<8x4xf32> into vector<16x4xf32>
    vector.transfer_write %ot, %o[%c0, %c0] {in_bounds = [true, true]} : vector<16x4xf32>, memref<16x4xf32>
  }
  return
}

// -----

#mk = affine_map<(m, n, k) -> (m, k)>
#kn = affine_map<(m, n, k) -> (k, n)>
#mn = affine_map<(m, n, k) -> (m, n)>

func.func @broadcast_rhs(%p: memref<16x8xf32>, %v: memref<1x4xf32>, %o: memref<16x4xf32>) {
  %c0 = arith.constant 0 : index
  %pad = arith.constant 0.0 : f32
  %zero = arith.constant dense<0.0> : vector<16x4xf32>
  %n1 = arith.constant 1 : index
  %space = flashattn.dense_space(%n1) axes(query_tile)
  flashattn.program (%t) in %space
      schedule(<tile_m = 16, tile_n = 8, stages = 1, dot_type = f32, mapping = cpu>) {
    %pt = vector.transfer_read %p[%c0, %c0], %pad {in_bounds = [true, true]} : memref<16x8xf32>, vector<16x8xf32>
    // expected-error @below {{expected a float matrix without broadcast as a contraction's operand but got 'vector<8x4xf32>'}}
    %vt = vector.transfer_read %v[%c0, %c0], %pad {in_bounds = [true, true], permutation_map = affine_map<(k, n) -> (0, n)>} : memref<1x4xf32>, vector<8x4xf32>
    %ot = vector.contract {indexing_maps = [#mk, #kn, #mn], iterator_types = ["parallel", "parallel", "reduction"], kind = #vector.kind<add>}
        %pt, %vt, %zero : vector<16x8xf32>, vector<8x4xf32> into vector<16x4xf32>
    vector.transfer_write %ot, %o[%c0, %c0] {in_bounds = [true, true]} : vector<16x4xf32>, memref<16x4xf32>
  }
  return
}

// -----

func.func @masked(%x: memref<16x8xf32>, %mask: vector<16x8xi1>, %y: memref<16x8xf32>) {
  %c0 = arith.constant 0 : index
  %pad = arith.constant 0.0 : f32
  %n1 = arith.constant 1 : index
  %space = flashattn.dense_space(%n1) axes(query_tile)
  flashattn.program (%t) in %space
      schedule(<tile_m = 16, tile_n = 8, stages = 1, dot_type = f32, mapping = cpu>) {
    // expected-error @below {{expected a transfer of a memref without mask in a tile program}}
    %v = vector.transfer_read %x[%c0, %c0], %pad, %mask {in_bounds = [true, true]} : memref<16x8xf32>, vector<16x8xf32>
    vector.transfer_write %v, %y[%c0, %c0] {in_bounds = [true, true]} : vector<16x8xf32>, memref<16x8xf32>
  }
  return
}

// -----

func.func @ones(%x: memref<16x8xf32>, %y: memref<16x16xf32>) {
  %n1 = arith.constant 1 : index
  %space = flashattn.dense_space(%n1) axes(query_tile)
  flashattn.program (%t) in %space
      schedule(<tile_m = 16, tile_n = 8, stages = 1, dot_type = f32, mapping = cpu>) {
    // expected-error @below {{expected columns of ones only with warp specialization}}
    %v = flashattn.load_tile %x[%t, %t] dims [0, 1] in_bounds [true, false] ones : memref<16x8xf32> -> vector<16x16xf32>
    flashattn.store_tile %v to %y[%t, %t] dims [0, 1] in_bounds [true, true] : vector<16x16xf32>, memref<16x16xf32>
  }
  return
}

// -----

func.func @compact_rows(%x: memref<16x16xf32>, %y: memref<16x16xf32>, %n: index) {
  %n1 = arith.constant 1 : index
  %space = flashattn.dense_space(%n1) axes(query_tile)
  flashattn.program (%t) in %space
      schedule(<tile_m = 16, tile_n = 8, stages = 1, dot_type = f32, mapping = cpu>) {
    %rows = flashattn.compact_rows starts(%n) skips(%n) lower_bounds [0]
    // expected-error @below {{expected compacted rows only with warp specialization}}
    %v = flashattn.load_tile %x[%t, %t] dims [0, 1] rows %rows in_bounds [true, false] : memref<16x16xf32> -> vector<16x16xf32>
    flashattn.store_tile %v to %y[%t, %t] dims [0, 1] in_bounds [true, true] : vector<16x16xf32>, memref<16x16xf32>
  }
  return
}
