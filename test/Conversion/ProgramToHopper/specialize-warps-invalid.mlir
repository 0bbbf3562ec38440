// RUN: flash-opt %s -split-input-file -verify-diagnostics -flashattn-tile -flashattn-specialize-warps

#mk = affine_map<(m, n, k) -> (m, k)>
#nk = affine_map<(m, n, k) -> (n, k)>
#mn = affine_map<(m, n, k) -> (m, n)>

func.func @axes(%q: memref<?x?x?x64xf16>, %k: memref<?x?x?x64xf16>, %n: index) {
  %c0 = arith.constant 0 : index
  %none = arith.constant dense<0.0> : vector<64x32xf32>
  %space = flashattn.dense_space(%n, %n) axes(batch, head)
  // expected-error @+1 {{expected axes(batch, head, query_tile) or (batch, head, key_tile) with warp specialization, or (batch, head, query_tile, key_tile) with one program per block, but got}}
  flashattn.program (%b, %h) in %space
      schedule(<tile_m = 64, tile_n = 32, stages = 2, dot_type = f16, mapping = hopper<consumers = 2, along = query_tile, registers = 240, producer_registers = 24, rescale_threshold = 0, l2_head_group = 1>>) {
  }
  return
}

// -----

func.func @both_tiles(%n: index) {
  %space = flashattn.dense_space(%n, %n, %n, %n) axes(batch, head, query_tile, key_tile)
  // expected-error @+1 {{expected axes(batch, head, query_tile) or (batch, head, key_tile) with warp specialization, or (batch, head, query_tile, key_tile) with one program per block, but got}}
  flashattn.program (%b, %h, %t, %u) in %space
      schedule(<tile_m = 64, tile_n = 32, stages = 2, dot_type = f16, mapping = hopper<consumers = 2, along = query_tile, registers = 240, producer_registers = 24, rescale_threshold = 0, l2_head_group = 1>>) {
  }
  return
}

// -----

#mk = affine_map<(m, n, k) -> (m, k)>
#nk = affine_map<(m, n, k) -> (n, k)>
#mn = affine_map<(m, n, k) -> (m, n)>

// A program with warp specialization brings tiles to those who have them.
func.func @no_stream(%q: memref<?x?x?x64xf16>, %k: memref<?x?x?x64xf16>, %n: index) {
  %c0 = arith.constant 0 : index
  %none = arith.constant dense<0.0> : vector<64x32xf32>
  %space = flashattn.dense_space(%n, %n, %n) axes(batch, head, query_tile)
  // expected-error @+1 {{expected one loop that streams operands of contractions but got 0}}
  flashattn.program (%b, %h, %t) in %space
      schedule(<tile_m = 64, tile_n = 32, stages = 2, dot_type = f16, mapping = hopper<consumers = 2, along = query_tile, registers = 240, producer_registers = 24, rescale_threshold = 0, l2_head_group = 1>>) {
    %qt = flashattn.load_tile %q[%b, %h, %t, %c0] dims [2, 3] in_bounds [false, true] : memref<?x?x?x64xf16> -> vector<64x64xf16>
  }
  return
}

// -----

#mk = affine_map<(m, n, k) -> (m, k)>
#nk = affine_map<(m, n, k) -> (n, k)>
#mn = affine_map<(m, n, k) -> (m, n)>

// A tile that no contraction reads is the consumer's own, and no stream.
func.func @own(%bias: memref<?x?x?x?xf32>, %n: index) {
  %c0 = arith.constant 0 : index
  %none = arith.constant dense<0.0> : vector<64x32xf32>
  %space = flashattn.dense_space(%n, %n, %n) axes(batch, head, query_tile)
  // expected-error @+1 {{expected one loop that streams operands of contractions but got 0}}
  flashattn.program (%b, %h, %t) in %space
      schedule(<tile_m = 64, tile_n = 32, stages = 2, dot_type = f16, mapping = hopper<consumers = 2, along = query_tile, registers = 240, producer_registers = 24, rescale_threshold = 0, l2_head_group = 1>>) {
    %r = flashattn.tile_loop (%i, %j) in [(%c0, %c0, %n, %n)] iter_args(%acc = %none) -> (vector<64x32xf32>) {
      %x = flashattn.load_tile %bias[%b, %h, %t, %j] dims [2, 3] in_bounds [false, false] : memref<?x?x?x?xf32> -> vector<64x32xf32>
      %s = arith.addf %x, %acc : vector<64x32xf32>
      flashattn.tile_yield %s : vector<64x32xf32>
    }
  }
  return
}

// -----

#mk = affine_map<(m, n, k) -> (m, k)>
#nk = affine_map<(m, n, k) -> (n, k)>
#mn = affine_map<(m, n, k) -> (m, n)>

func.func @two_loops(%q: memref<?x?x?x64xf16>, %k: memref<?x?x?x64xf16>, %n: index) {
  %c0 = arith.constant 0 : index
  %none = arith.constant dense<0.0> : vector<64x32xf32>
  %space = flashattn.dense_space(%n, %n, %n) axes(batch, head, query_tile)
  // expected-error @+1 {{expected one loop that streams operands of contractions but got 2}}
  flashattn.program (%b, %h, %t) in %space
      schedule(<tile_m = 64, tile_n = 32, stages = 2, dot_type = f16, mapping = hopper<consumers = 2, along = query_tile, registers = 240, producer_registers = 24, rescale_threshold = 0, l2_head_group = 1>>) {
    %qt = flashattn.load_tile %q[%b, %h, %t, %c0] dims [2, 3] in_bounds [false, true] : memref<?x?x?x64xf16> -> vector<64x64xf16>
    %r = flashattn.tile_loop (%i, %j) in [(%c0, %c0, %n, %n)] iter_args(%acc = %none) -> (vector<64x32xf32>) {
      %kt = flashattn.load_tile %k[%b, %h, %j, %c0] dims [2, 3] in_bounds [false, true] : memref<?x?x?x64xf16> -> vector<32x64xf16>
      %s = vector.contract {indexing_maps = [#mk, #nk, #mn], iterator_types = ["parallel", "parallel", "reduction"], kind = #vector.kind<add>} %qt, %kt, %acc : vector<64x64xf16>, vector<32x64xf16> into vector<64x32xf32>
      flashattn.tile_yield %s : vector<64x32xf32>
    }
    %r2 = flashattn.tile_loop (%i, %j) in [(%c0, %c0, %n, %n)] iter_args(%acc = %none) -> (vector<64x32xf32>) {
      %kt = flashattn.load_tile %k[%b, %h, %j, %c0] dims [2, 3] in_bounds [false, true] : memref<?x?x?x64xf16> -> vector<32x64xf16>
      %s = vector.contract {indexing_maps = [#mk, #nk, #mn], iterator_types = ["parallel", "parallel", "reduction"], kind = #vector.kind<add>} %qt, %kt, %acc : vector<64x64xf16>, vector<32x64xf16> into vector<64x32xf32>
      flashattn.tile_yield %s : vector<64x32xf32>
    }
  }
  return
}

// -----

#mk = affine_map<(m, n, k) -> (m, k)>
#nk = affine_map<(m, n, k) -> (n, k)>
#mn = affine_map<(m, n, k) -> (m, n)>

func.func @nested(%q: memref<?x?x?x64xf16>, %k: memref<?x?x?x64xf16>, %n: index, %c: i1) {
  %c0 = arith.constant 0 : index
  %none = arith.constant dense<0.0> : vector<64x32xf32>
  %space = flashattn.dense_space(%n, %n, %n) axes(batch, head, query_tile)
  flashattn.program (%b, %h, %t) in %space
      schedule(<tile_m = 64, tile_n = 32, stages = 2, dot_type = f16, mapping = hopper<consumers = 2, along = query_tile, registers = 240, producer_registers = 24, rescale_threshold = 0, l2_head_group = 1>>) {
    %qt = flashattn.load_tile %q[%b, %h, %t, %c0] dims [2, 3] in_bounds [false, true] : memref<?x?x?x64xf16> -> vector<64x64xf16>
    scf.if %c {
      // expected-error @+1 {{expected the streaming loop at the top level of the program but got a loop in 'scf.if'}}
      %r = flashattn.tile_loop (%i, %j) in [(%c0, %c0, %n, %n)] iter_args(%acc = %none) -> (vector<64x32xf32>) {
        %kt = flashattn.load_tile %k[%b, %h, %j, %c0] dims [2, 3] in_bounds [false, true] : memref<?x?x?x64xf16> -> vector<32x64xf16>
        %s = vector.contract {indexing_maps = [#mk, #nk, #mn], iterator_types = ["parallel", "parallel", "reduction"], kind = #vector.kind<add>} %qt, %kt, %acc : vector<64x64xf16>, vector<32x64xf16> into vector<64x32xf32>
        flashattn.tile_yield %s : vector<64x32xf32>
      }
    }
  }
  return
}

// -----

#mk = affine_map<(m, n, k) -> (m, k)>
#nk = affine_map<(m, n, k) -> (n, k)>
#mn = affine_map<(m, n, k) -> (m, n)>

// The same tile in every step.
func.func @invariant(%q: memref<?x?x?x64xf16>, %k: memref<?x?x?x64xf16>, %n: index) {
  %c0 = arith.constant 0 : index
  %none = arith.constant dense<0.0> : vector<64x32xf32>
  %space = flashattn.dense_space(%n, %n, %n) axes(batch, head, query_tile)
  flashattn.program (%b, %h, %t) in %space
      schedule(<tile_m = 64, tile_n = 32, stages = 2, dot_type = f16, mapping = hopper<consumers = 2, along = query_tile, registers = 240, producer_registers = 24, rescale_threshold = 0, l2_head_group = 1>>) {
    %qt = flashattn.load_tile %q[%b, %h, %t, %c0] dims [2, 3] in_bounds [false, true] : memref<?x?x?x64xf16> -> vector<64x64xf16>
    %r = flashattn.tile_loop (%i, %j) in [(%c0, %c0, %n, %n)] iter_args(%acc = %none) -> (vector<64x32xf32>) {
      %kt = flashattn.load_tile %k[%b, %h, %j, %c0] dims [2, 3] in_bounds [false, true] : memref<?x?x?x64xf16> -> vector<32x64xf16>
      // expected-error @+1 {{expected a tile of a contraction to be loaded once per program or once per step but got neither}}
      %k0 = flashattn.load_tile %k[%b, %h, %t, %c0] dims [2, 3] in_bounds [false, true] : memref<?x?x?x64xf16> -> vector<32x64xf16>
      %s0 = vector.contract {indexing_maps = [#mk, #nk, #mn], iterator_types = ["parallel", "parallel", "reduction"], kind = #vector.kind<add>} %qt, %kt, %acc : vector<64x64xf16>, vector<32x64xf16> into vector<64x32xf32>
      %s = vector.contract {indexing_maps = [#mk, #nk, #mn], iterator_types = ["parallel", "parallel", "reduction"], kind = #vector.kind<add>} %qt, %k0, %s0 : vector<64x64xf16>, vector<32x64xf16> into vector<64x32xf32>
      flashattn.tile_yield %s : vector<64x32xf32>
    }
  }
  return
}

// -----

#mk = affine_map<(m, n, k) -> (m, k)>
#nk = affine_map<(m, n, k) -> (n, k)>
#mn = affine_map<(m, n, k) -> (m, n)>

func.func @other_use(%q: memref<?x?x?x64xf16>, %k: memref<?x?x?x64xf16>, %n: index) {
  %c0 = arith.constant 0 : index
  %none = arith.constant dense<0.0> : vector<64x32xf32>
  %space = flashattn.dense_space(%n, %n, %n) axes(batch, head, query_tile)
  flashattn.program (%b, %h, %t) in %space
      schedule(<tile_m = 64, tile_n = 32, stages = 2, dot_type = f16, mapping = hopper<consumers = 2, along = query_tile, registers = 240, producer_registers = 24, rescale_threshold = 0, l2_head_group = 1>>) {
    %qt = flashattn.load_tile %q[%b, %h, %t, %c0] dims [2, 3] in_bounds [false, true] : memref<?x?x?x64xf16> -> vector<64x64xf16>
    %r = flashattn.tile_loop (%i, %j) in [(%c0, %c0, %n, %n)] iter_args(%acc = %none) -> (vector<64x32xf32>) {
      // expected-error @+1 {{expected only contractions and softmax steps to read a tile in shared memory but got 'arith.extf'}}
      %kt = flashattn.load_tile %k[%b, %h, %j, %c0] dims [2, 3] in_bounds [false, true] : memref<?x?x?x64xf16> -> vector<32x64xf16>
      %x = arith.extf %kt : vector<32x64xf16> to vector<32x64xf32>
      %s = vector.contract {indexing_maps = [#mk, #nk, #mn], iterator_types = ["parallel", "parallel", "reduction"], kind = #vector.kind<add>} %qt, %kt, %acc : vector<64x64xf16>, vector<32x64xf16> into vector<64x32xf32>
      flashattn.tile_yield %s : vector<64x32xf32>
    }
  }
  return
}

// -----

#mk = affine_map<(m, n, k) -> (m, k)>
#nk = affine_map<(m, n, k) -> (n, k)>
#mn = affine_map<(m, n, k) -> (m, n)>

func.func @element(%q: memref<?x?x?x64xf32>, %k: memref<?x?x?x64xf32>, %n: index) {
  %c0 = arith.constant 0 : index
  %none = arith.constant dense<0.0> : vector<64x32xf32>
  %space = flashattn.dense_space(%n, %n, %n) axes(batch, head, query_tile)
  flashattn.program (%b, %h, %t) in %space
      schedule(<tile_m = 64, tile_n = 32, stages = 2, dot_type = f16, mapping = hopper<consumers = 2, along = query_tile, registers = 240, producer_registers = 24, rescale_threshold = 0, l2_head_group = 1>>) {
    // expected-error @+1 {{expected elements of f16, bf16 or 8 bits, which tensor copies require, but got 'memref<?x?x?x64xf32>' and 'vector<64x64xf32>'}}
    %qt = flashattn.load_tile %q[%b, %h, %t, %c0] dims [2, 3] in_bounds [false, true] : memref<?x?x?x64xf32> -> vector<64x64xf32>
    %r = flashattn.tile_loop (%i, %j) in [(%c0, %c0, %n, %n)] iter_args(%acc = %none) -> (vector<64x32xf32>) {
      %kt = flashattn.load_tile %k[%b, %h, %j, %c0] dims [2, 3] in_bounds [false, true] : memref<?x?x?x64xf32> -> vector<32x64xf32>
      %s = vector.contract {indexing_maps = [#mk, #nk, #mn], iterator_types = ["parallel", "parallel", "reduction"], kind = #vector.kind<add>} %qt, %kt, %acc : vector<64x64xf32>, vector<32x64xf32> into vector<64x32xf32>
      flashattn.tile_yield %s : vector<64x32xf32>
    }
  }
  return
}

// -----

#mk = affine_map<(m, n, k) -> (m, k)>
#nk = affine_map<(m, n, k) -> (n, k)>
#mn = affine_map<(m, n, k) -> (m, n)>

func.func @rank(%q: memref<?x?x?x64xf16>, %k: memref<?x?x?x?x?x64xf16>, %n: index) {
  %c0 = arith.constant 0 : index
  %none = arith.constant dense<0.0> : vector<64x32xf32>
  %space = flashattn.dense_space(%n, %n, %n) axes(batch, head, query_tile)
  flashattn.program (%b, %h, %t) in %space
      schedule(<tile_m = 64, tile_n = 32, stages = 2, dot_type = f16, mapping = hopper<consumers = 2, along = query_tile, registers = 240, producer_registers = 24, rescale_threshold = 0, l2_head_group = 1>>) {
    %qt = flashattn.load_tile %q[%b, %h, %t, %c0] dims [2, 3] in_bounds [false, true] : memref<?x?x?x64xf16> -> vector<64x64xf16>
    %r = flashattn.tile_loop (%i, %j) in [(%c0, %c0, %n, %n)] iter_args(%acc = %none) -> (vector<64x32xf32>) {
      // expected-error @+1 {{expected a memref of 2 to 5 dimensions, which tensor copies require, but got 'memref<?x?x?x?x?x64xf16>' and 'vector<32x64xf16>'}}
      %kt = flashattn.load_tile %k[%c0, %c0, %b, %h, %j, %c0] dims [4, 5] in_bounds [false, true] : memref<?x?x?x?x?x64xf16> -> vector<32x64xf16>
      %s = vector.contract {indexing_maps = [#mk, #nk, #mn], iterator_types = ["parallel", "parallel", "reduction"], kind = #vector.kind<add>} %qt, %kt, %acc : vector<64x64xf16>, vector<32x64xf16> into vector<64x32xf32>
      flashattn.tile_yield %s : vector<64x32xf32>
    }
  }
  return
}

// -----

#mk = affine_map<(m, n, k) -> (m, k)>
#nk = affine_map<(m, n, k) -> (n, k)>
#mn = affine_map<(m, n, k) -> (m, n)>

func.func @dims(%q: memref<?x?x?x64xf16>, %k: memref<?x?x64x?xf16>, %n: index) {
  %c0 = arith.constant 0 : index
  %none = arith.constant dense<0.0> : vector<64x32xf32>
  %space = flashattn.dense_space(%n, %n, %n) axes(batch, head, query_tile)
  flashattn.program (%b, %h, %t) in %space
      schedule(<tile_m = 64, tile_n = 32, stages = 2, dot_type = f16, mapping = hopper<consumers = 2, along = query_tile, registers = 240, producer_registers = 24, rescale_threshold = 0, l2_head_group = 1>>) {
    %qt = flashattn.load_tile %q[%b, %h, %t, %c0] dims [2, 3] in_bounds [false, true] : memref<?x?x?x64xf16> -> vector<64x64xf16>
    %r = flashattn.tile_loop (%i, %j) in [(%c0, %c0, %n, %n)] iter_args(%acc = %none) -> (vector<64x32xf32>) {
      // expected-error @+1 {{expected rows along one or two dimensions, in their order, and columns along the last dimension, which tensor copies require, but got 'memref<?x?x64x?xf16>' and 'vector<32x64xf16>'}}
      %kt = flashattn.load_tile %k[%b, %h, %c0, %j] dims [3, 2] in_bounds [false, true] : memref<?x?x64x?xf16> -> vector<32x64xf16>
      %s = vector.contract {indexing_maps = [#mk, #nk, #mn], iterator_types = ["parallel", "parallel", "reduction"], kind = #vector.kind<add>} %qt, %kt, %acc : vector<64x64xf16>, vector<32x64xf16> into vector<64x32xf32>
      flashattn.tile_yield %s : vector<64x32xf32>
    }
  }
  return
}

// -----

#mk = affine_map<(m, n, k) -> (m, k)>
#nk = affine_map<(m, n, k) -> (n, k)>
#mn = affine_map<(m, n, k) -> (m, n)>

func.func @rows(%q: memref<?x?x?x64xf16>, %k: memref<?x?x?x64xf16>, %n: index, %few: vector<64x20xf32>) {
  %c0 = arith.constant 0 : index
  %none = arith.constant dense<0.0> : vector<64x32xf32>
  %space = flashattn.dense_space(%n, %n, %n) axes(batch, head, query_tile)
  flashattn.program (%b, %h, %t) in %space
      schedule(<tile_m = 64, tile_n = 32, stages = 2, dot_type = f16, mapping = hopper<consumers = 2, along = query_tile, registers = 240, producer_registers = 24, rescale_threshold = 0, l2_head_group = 1>>) {
    %qt = flashattn.load_tile %q[%b, %h, %t, %c0] dims [2, 3] in_bounds [false, true] : memref<?x?x?x64xf16> -> vector<64x64xf16>
    %r = flashattn.tile_loop (%i, %j) in [(%c0, %c0, %n, %n)] iter_args(%acc = %few) -> (vector<64x20xf32>) {
      // expected-error @+1 {{expected up to 256 rows, a multiple of 8, which tensor copies require, but got 'memref<?x?x?x64xf16>' and 'vector<20x64xf16>'}}
      %kt = flashattn.load_tile %k[%b, %h, %j, %c0] dims [2, 3] in_bounds [false, true] : memref<?x?x?x64xf16> -> vector<20x64xf16>
      %s = vector.contract {indexing_maps = [#mk, #nk, #mn], iterator_types = ["parallel", "parallel", "reduction"], kind = #vector.kind<add>} %qt, %kt, %acc : vector<64x64xf16>, vector<20x64xf16> into vector<64x20xf32>
      flashattn.tile_yield %s : vector<64x20xf32>
    }
  }
  return
}

// -----

#mk = affine_map<(m, n, k) -> (m, k)>
#nk = affine_map<(m, n, k) -> (n, k)>
#mn = affine_map<(m, n, k) -> (m, n)>

func.func @unaligned(%q: memref<?x?x?x64xf16>, %k: memref<?x?x?x64xf16, strided<[?, ?, ?, 1], offset: ?>>, %n: index) {
  %c0 = arith.constant 0 : index
  %none = arith.constant dense<0.0> : vector<64x32xf32>
  %space = flashattn.dense_space(%n, %n, %n) axes(batch, head, query_tile)
  flashattn.program (%b, %h, %t) in %space
      schedule(<tile_m = 64, tile_n = 32, stages = 2, dot_type = f16, mapping = hopper<consumers = 2, along = query_tile, registers = 240, producer_registers = 24, rescale_threshold = 0, l2_head_group = 1>>) {
    %qt = flashattn.load_tile %q[%b, %h, %t, %c0] dims [2, 3] in_bounds [false, true] : memref<?x?x?x64xf16> -> vector<64x64xf16>
    %r = flashattn.tile_loop (%i, %j) in [(%c0, %c0, %n, %n)] iter_args(%acc = %none) -> (vector<64x32xf32>) {
      // expected-error @+1 {{expected rows that begin at multiples of 16 bytes, which tensor copies require, but got}}
      %kt = flashattn.load_tile %k[%b, %h, %j, %c0] dims [2, 3] in_bounds [false, true] : memref<?x?x?x64xf16, strided<[?, ?, ?, 1], offset: ?>> -> vector<32x64xf16>
      %s = vector.contract {indexing_maps = [#mk, #nk, #mn], iterator_types = ["parallel", "parallel", "reduction"], kind = #vector.kind<add>} %qt, %kt, %acc : vector<64x64xf16>, vector<32x64xf16> into vector<64x32xf32>
      flashattn.tile_yield %s : vector<64x32xf32>
    }
  }
  return
}

// -----

#mk = affine_map<(m, n, k) -> (m, k)>
#nk = affine_map<(m, n, k) -> (n, k)>
#mn = affine_map<(m, n, k) -> (m, n)>

// A part that the program takes is none that the host could describe.
func.func @inside(%q: memref<?x?x?x64xf16>, %k: memref<2x2x512x64xf16>, %n: index) {
  %c0 = arith.constant 0 : index
  %none = arith.constant dense<0.0> : vector<64x32xf32>
  %space = flashattn.dense_space(%n, %n, %n) axes(batch, head, query_tile)
  flashattn.program (%b, %h, %t) in %space
      schedule(<tile_m = 64, tile_n = 32, stages = 2, dot_type = f16, mapping = hopper<consumers = 2, along = query_tile, registers = 240, producer_registers = 24, rescale_threshold = 0, l2_head_group = 1>>) {
    %qt = flashattn.load_tile %q[%b, %h, %t, %c0] dims [2, 3] in_bounds [false, true] : memref<?x?x?x64xf16> -> vector<64x64xf16>
    %part = memref.subview %k[0, 0, 8, 0] [2, 2, 64, 64] [1, 1, 1, 1] : memref<2x2x512x64xf16> to memref<2x2x64x64xf16, strided<[65536, 32768, 64, 1], offset: 512>>
    %r = flashattn.tile_loop (%i, %j) in [(%c0, %c0, %n, %n)] iter_args(%acc = %none) -> (vector<64x32xf32>) {
      // expected-error @+1 {{expected a memref that is defined outside of the program, for a tensor map, but got a result of 'memref.subview'}}
      %kt = flashattn.load_tile %part[%b, %h, %j, %c0] dims [2, 3] in_bounds [false, true] : memref<2x2x64x64xf16, strided<[65536, 32768, 64, 1], offset: 512>> -> vector<32x64xf16>
      %s = vector.contract {indexing_maps = [#mk, #nk, #mn], iterator_types = ["parallel", "parallel", "reduction"], kind = #vector.kind<add>} %qt, %kt, %acc : vector<64x64xf16>, vector<32x64xf16> into vector<64x32xf32>
      flashattn.tile_yield %s : vector<64x32xf32>
    }
  }
  return
}

// -----

#mk = affine_map<(m, n, k) -> (m, k)>
#nk = affine_map<(m, n, k) -> (n, k)>
#mn = affine_map<(m, n, k) -> (m, n)>

// A page that the step itself finds: the producer has none of its values.
func.func @step_index(%q: memref<?x?x?x64xf16>, %k: memref<?x?x?x64xf16>, %n: index) {
  %c0 = arith.constant 0 : index
  %none = arith.constant dense<0.0> : vector<64x32xf32>
  %space = flashattn.dense_space(%n, %n, %n) axes(batch, head, query_tile)
  flashattn.program (%b, %h, %t) in %space
      schedule(<tile_m = 64, tile_n = 32, stages = 2, dot_type = f16, mapping = hopper<consumers = 2, along = query_tile, registers = 240, producer_registers = 24, rescale_threshold = 0, l2_head_group = 1>>) {
    %qt = flashattn.load_tile %q[%b, %h, %t, %c0] dims [2, 3] in_bounds [false, true] : memref<?x?x?x64xf16> -> vector<64x64xf16>
    %r = flashattn.tile_loop (%i, %j) in [(%c0, %c0, %n, %n)] iter_args(%acc = %none) -> (vector<64x32xf32>) {
      %head = arith.addi %h, %i : index
      // expected-error @+1 {{expected an index along dimension 1 that depends only on the step's tile and round but got one that depends on the loop's state}}
      %kt = flashattn.load_tile %k[%b, %head, %j, %c0] dims [2, 3] in_bounds [false, true] : memref<?x?x?x64xf16> -> vector<32x64xf16>
      %s = vector.contract {indexing_maps = [#mk, #nk, #mn], iterator_types = ["parallel", "parallel", "reduction"], kind = #vector.kind<add>} %qt, %kt, %acc : vector<64x64xf16>, vector<32x64xf16> into vector<64x32xf32>
      flashattn.tile_yield %s : vector<64x32xf32>
    }
  }
  return
}

// -----

#mk = affine_map<(m, n, k) -> (m, k)>
#nk = affine_map<(m, n, k) -> (n, k)>
#mn = affine_map<(m, n, k) -> (m, n)>

func.func @dot_type(%q: memref<?x?x?x64xf16>, %k: memref<?x?x?x64xf16>, %n: index) {
  %c0 = arith.constant 0 : index
  %none = arith.constant dense<0.0> : vector<64x32xf32>
  %space = flashattn.dense_space(%n, %n, %n) axes(batch, head, query_tile)
  flashattn.program (%b, %h, %t) in %space
      schedule(<tile_m = 64, tile_n = 32, stages = 2, dot_type = bf16, mapping = hopper<consumers = 2, along = query_tile, registers = 240, producer_registers = 24, rescale_threshold = 0, l2_head_group = 1>>) {
    // expected-error @+1 {{expected a tile of 'bf16', the schedule's dot_type, but got 'vector<64x64xf16>'}}
    %qt = flashattn.load_tile %q[%b, %h, %t, %c0] dims [2, 3] in_bounds [false, true] : memref<?x?x?x64xf16> -> vector<64x64xf16>
    %r = flashattn.tile_loop (%i, %j) in [(%c0, %c0, %n, %n)] iter_args(%acc = %none) -> (vector<64x32xf32>) {
      %kt = flashattn.load_tile %k[%b, %h, %j, %c0] dims [2, 3] in_bounds [false, true] : memref<?x?x?x64xf16> -> vector<32x64xf16>
      %s = vector.contract {indexing_maps = [#mk, #nk, #mn], iterator_types = ["parallel", "parallel", "reduction"], kind = #vector.kind<add>} %qt, %kt, %acc : vector<64x64xf16>, vector<32x64xf16> into vector<64x32xf32>
      flashattn.tile_yield %s : vector<64x32xf32>
    }
  }
  return
}

// -----

#mk = affine_map<(m, n, k) -> (m, k)>
#km = affine_map<(m, n, k) -> (k, m)>
#nk = affine_map<(m, n, k) -> (n, k)>
#kn = affine_map<(m, n, k) -> (k, n)>
#mn = affine_map<(m, n, k) -> (m, n)>

// Consumers that share a program have 64 of its rows each.
func.func @shared_rows(%q: memref<?x?x?x64xf16>, %k: memref<?x?x?x64xf16>, %sums: memref<?x64xf32>, %given: vector<128x64xf16>, %n: index) {
  %c0 = arith.constant 0 : index
  %none = arith.constant dense<0.0> : vector<128x64xf32>
  %zeros = arith.constant dense<0.0> : vector<64x64xf32>
  %space = flashattn.dense_space(%n, %n, %n) axes(batch, head, key_tile)
  // expected-error @+1 {{expected tile_m to be 64, or 64 for each of 3 consumers, but got 128}}
  flashattn.program (%b, %h, %t) in %space
      schedule(<tile_m = 128, tile_n = 64, stages = 2, dot_type = f16, mapping = hopper<consumers = 3, cooperative = 1, along = query_tile, registers = 240, producer_registers = 24, rescale_threshold = 0, l2_head_group = 1>>) {
    %qt = flashattn.load_tile %q[%b, %h, %t, %c0] dims [2, 3] in_bounds [false, true] : memref<?x?x?x64xf16> -> vector<128x64xf16>
    %r = flashattn.tile_loop (%i, %j) in [(%c0, %c0, %n, %n)] iter_args(%acc = %none) -> (vector<128x64xf32>) {
      %kt = flashattn.load_tile %k[%b, %h, %j, %c0] dims [2, 3] in_bounds [false, true] : memref<?x?x?x64xf16> -> vector<64x64xf16>
      %s = vector.contract {indexing_maps = [#mk, #nk, #mn], iterator_types = ["parallel", "parallel", "reduction"], kind = #vector.kind<add>} %qt, %kt, %acc : vector<128x64xf16>, vector<64x64xf16> into vector<128x64xf32>
      flashattn.tile_yield %s : vector<128x64xf32>
    }
  }
  return
}

// -----

#mk = affine_map<(m, n, k) -> (m, k)>
#km = affine_map<(m, n, k) -> (k, m)>
#nk = affine_map<(m, n, k) -> (n, k)>
#kn = affine_map<(m, n, k) -> (k, n)>
#mn = affine_map<(m, n, k) -> (m, n)>

func.func @given(%q: memref<?x?x?x64xf16>, %k: memref<?x?x?x64xf16>, %sums: memref<?x64xf32>, %given: vector<128x64xf16>, %n: index) {
  %c0 = arith.constant 0 : index
  %none = arith.constant dense<0.0> : vector<128x64xf32>
  %zeros = arith.constant dense<0.0> : vector<64x64xf32>
  %space = flashattn.dense_space(%n, %n, %n) axes(batch, head, key_tile)
  flashattn.program (%b, %h, %t) in %space
      schedule(<tile_m = 128, tile_n = 64, stages = 2, dot_type = f16, mapping = hopper<consumers = 2, cooperative = 1, along = query_tile, registers = 240, producer_registers = 24, rescale_threshold = 0, l2_head_group = 1>>) {
    %qt = flashattn.load_tile %q[%b, %h, %t, %c0] dims [2, 3] in_bounds [false, true] : memref<?x?x?x64xf16> -> vector<128x64xf16>
    %r = flashattn.tile_loop (%i, %j) in [(%c0, %c0, %n, %n)] iter_args(%acc = %none) -> (vector<128x64xf32>) {
      %kt = flashattn.load_tile %k[%b, %h, %j, %c0] dims [2, 3] in_bounds [false, true] : memref<?x?x?x64xf16> -> vector<64x64xf16>
      %s = vector.contract {indexing_maps = [#mk, #nk, #mn], iterator_types = ["parallel", "parallel", "reduction"], kind = #vector.kind<add>} %qt, %kt, %acc : vector<128x64xf16>, vector<64x64xf16> into vector<128x64xf32>
      // expected-error @+1 {{expected a transposed left-hand side that the loop computes}}
      %dq = vector.contract {indexing_maps = [#km, #kn, #mn], iterator_types = ["parallel", "parallel", "reduction"], kind = #vector.kind<add>} %given, %qt, %zeros : vector<128x64xf16>, vector<128x64xf16> into vector<64x64xf32>
      flashattn.tile_yield %s : vector<128x64xf32>
    }
  }
  return
}

// -----

#mk = affine_map<(m, n, k) -> (m, k)>
#km = affine_map<(m, n, k) -> (k, m)>
#nk = affine_map<(m, n, k) -> (n, k)>
#kn = affine_map<(m, n, k) -> (k, n)>
#mn = affine_map<(m, n, k) -> (m, n)>

// What consumers hand each other, and what they add, has one place in the block.
func.func @exchange_of_programs(%q: memref<?x?x?x64xf16>, %k: memref<?x?x?x64xf16>, %sums: memref<?x64xf32>, %given: vector<64x64xf16>, %n: index) {
  %c0 = arith.constant 0 : index
  %none = arith.constant dense<0.0> : vector<64x64xf32>
  %zeros = arith.constant dense<0.0> : vector<64x64xf32>
  %space = flashattn.dense_space(%n, %n, %n) axes(batch, head, key_tile)
  // expected-error @+1 {{expected consumers to share a program with a transposed tile or added tiles but got tile_m 64 for 2 consumers}}
  flashattn.program (%b, %h, %t) in %space
      schedule(<tile_m = 64, tile_n = 64, stages = 2, dot_type = f16, mapping = hopper<consumers = 2, along = query_tile, registers = 240, producer_registers = 24, rescale_threshold = 0, l2_head_group = 1>>) {
    %qt = flashattn.load_tile %q[%b, %h, %t, %c0] dims [2, 3] in_bounds [false, true] : memref<?x?x?x64xf16> -> vector<64x64xf16>
    %r = flashattn.tile_loop (%i, %j) in [(%c0, %c0, %n, %n)] iter_args(%acc = %none) -> (vector<64x64xf32>) {
      %kt = flashattn.load_tile %k[%b, %h, %j, %c0] dims [2, 3] in_bounds [false, true] : memref<?x?x?x64xf16> -> vector<64x64xf16>
      %s = vector.contract {indexing_maps = [#mk, #nk, #mn], iterator_types = ["parallel", "parallel", "reduction"], kind = #vector.kind<add>} %qt, %kt, %acc : vector<64x64xf16>, vector<64x64xf16> into vector<64x64xf32>
      %p = arith.truncf %s : vector<64x64xf32> to vector<64x64xf16>
      %dq = vector.contract {indexing_maps = [#km, #kn, #mn], iterator_types = ["parallel", "parallel", "reduction"], kind = #vector.kind<add>} %p, %qt, %zeros : vector<64x64xf16>, vector<64x64xf16> into vector<64x64xf32>
      flashattn.tile_yield %s : vector<64x64xf32>
    }
  }
  return
}

// -----

#mk = affine_map<(m, n, k) -> (m, k)>
#km = affine_map<(m, n, k) -> (k, m)>
#nk = affine_map<(m, n, k) -> (n, k)>
#kn = affine_map<(m, n, k) -> (k, n)>
#mn = affine_map<(m, n, k) -> (m, n)>

func.func @sums_of_programs(%q: memref<?x?x?x64xf16>, %k: memref<?x?x?x64xf16>, %sums: memref<?x64xf32>, %given: vector<64x64xf16>, %n: index) {
  %c0 = arith.constant 0 : index
  %none = arith.constant dense<0.0> : vector<64x64xf32>
  %zeros = arith.constant dense<0.0> : vector<64x64xf32>
  %space = flashattn.dense_space(%n, %n, %n) axes(batch, head, key_tile)
  // expected-error @+1 {{expected consumers to share a program with a transposed tile or added tiles but got tile_m 64 for 2 consumers}}
  flashattn.program (%b, %h, %t) in %space
      schedule(<tile_m = 64, tile_n = 64, stages = 2, dot_type = f16, mapping = hopper<consumers = 2, along = query_tile, registers = 240, producer_registers = 24, rescale_threshold = 0, l2_head_group = 1>>) {
    %qt = flashattn.load_tile %q[%b, %h, %t, %c0] dims [2, 3] in_bounds [false, true] : memref<?x?x?x64xf16> -> vector<64x64xf16>
    %r = flashattn.tile_loop (%i, %j) in [(%c0, %c0, %n, %n)] iter_args(%acc = %none) -> (vector<64x64xf32>) {
      %kt = flashattn.load_tile %k[%b, %h, %j, %c0] dims [2, 3] in_bounds [false, true] : memref<?x?x?x64xf16> -> vector<64x64xf16>
      %s = vector.contract {indexing_maps = [#mk, #nk, #mn], iterator_types = ["parallel", "parallel", "reduction"], kind = #vector.kind<add>} %qt, %kt, %acc : vector<64x64xf16>, vector<64x64xf16> into vector<64x64xf32>
      flashattn.add_tile %zeros to %sums[%j, %c0] parts 1 : vector<64x64xf32>, memref<?x64xf32>
      flashattn.tile_yield %s : vector<64x64xf32>
    }
  }
  return
}

// -----

#mk = affine_map<(m, n, k) -> (m, k)>
#km = affine_map<(m, n, k) -> (k, m)>
#nk = affine_map<(m, n, k) -> (n, k)>
#kn = affine_map<(m, n, k) -> (k, n)>
#mn = affine_map<(m, n, k) -> (m, n)>

func.func @two_sums(%q: memref<?x?x?x64xf16>, %k: memref<?x?x?x64xf16>, %sums: memref<?x64xf32>, %given: vector<128x64xf16>, %n: index) {
  %c0 = arith.constant 0 : index
  %none = arith.constant dense<0.0> : vector<128x64xf32>
  %zeros = arith.constant dense<0.0> : vector<64x64xf32>
  %space = flashattn.dense_space(%n, %n, %n) axes(batch, head, key_tile)
  flashattn.program (%b, %h, %t) in %space
      schedule(<tile_m = 128, tile_n = 64, stages = 2, dot_type = f16, mapping = hopper<consumers = 2, cooperative = 1, along = query_tile, registers = 240, producer_registers = 24, rescale_threshold = 0, l2_head_group = 1>>) {
    %qt = flashattn.load_tile %q[%b, %h, %t, %c0] dims [2, 3] in_bounds [false, true] : memref<?x?x?x64xf16> -> vector<128x64xf16>
    %r = flashattn.tile_loop (%i, %j) in [(%c0, %c0, %n, %n)] iter_args(%acc = %none) -> (vector<128x64xf32>) {
      %kt = flashattn.load_tile %k[%b, %h, %j, %c0] dims [2, 3] in_bounds [false, true] : memref<?x?x?x64xf16> -> vector<64x64xf16>
      %s = vector.contract {indexing_maps = [#mk, #nk, #mn], iterator_types = ["parallel", "parallel", "reduction"], kind = #vector.kind<add>} %qt, %kt, %acc : vector<128x64xf16>, vector<64x64xf16> into vector<128x64xf32>
      flashattn.add_tile %zeros to %sums[%j, %c0] parts 1 : vector<64x64xf32>, memref<?x64xf32>
      // expected-error @+1 {{expected at most one added tile per step but got more}}
      flashattn.add_tile %zeros to %sums[%j, %c0] parts 1 : vector<64x64xf32>, memref<?x64xf32>
      flashattn.tile_yield %s : vector<128x64xf32>
    }
  }
  return
}

// -----

#mk = affine_map<(m, n, k) -> (m, k)>
#km = affine_map<(m, n, k) -> (k, m)>
#nk = affine_map<(m, n, k) -> (n, k)>
#kn = affine_map<(m, n, k) -> (k, n)>
#mn = affine_map<(m, n, k) -> (m, n)>

func.func @whole_tile(%q: memref<?x?x?x64xf16>, %k: memref<?x?x?x64xf16>, %sums: memref<?x64xf32>, %given: vector<128x64xf16>, %n: index) {
  %c0 = arith.constant 0 : index
  %none = arith.constant dense<0.0> : vector<128x64xf32>
  %zeros = arith.constant dense<0.0> : vector<64x64xf32>
  %space = flashattn.dense_space(%n, %n, %n) axes(batch, head, key_tile)
  flashattn.program (%b, %h, %t) in %space
      schedule(<tile_m = 128, tile_n = 64, stages = 2, dot_type = f16, mapping = hopper<consumers = 2, cooperative = 1, along = query_tile, registers = 240, producer_registers = 24, rescale_threshold = 0, l2_head_group = 1>>) {
    %qt = flashattn.load_tile %q[%b, %h, %t, %c0] dims [2, 3] in_bounds [false, true] : memref<?x?x?x64xf16> -> vector<128x64xf16>
    %r = flashattn.tile_loop (%i, %j) in [(%c0, %c0, %n, %n)] iter_args(%acc = %none) -> (vector<128x64xf32>) {
      %kt = flashattn.load_tile %k[%b, %h, %j, %c0] dims [2, 3] in_bounds [false, true] : memref<?x?x?x64xf16> -> vector<64x64xf16>
      %s = vector.contract {indexing_maps = [#mk, #nk, #mn], iterator_types = ["parallel", "parallel", "reduction"], kind = #vector.kind<add>} %qt, %kt, %acc : vector<128x64xf16>, vector<64x64xf16> into vector<128x64xf32>
      flashattn.add_tile %zeros to %sums[%j, %c0] parts 1 : vector<64x64xf32>, memref<?x64xf32>
      flashattn.tile_yield %s : vector<128x64xf32>
    }
    // expected-error @+1 {{expected parts of 4096 elements, the size of another tile, but got 1 parts of 'vector<128x64xf32>'}}
    flashattn.add_tile %r to %sums[%t, %c0] parts 1 : vector<128x64xf32>, memref<?x64xf32>
  }
  return
}

// -----

#mk = affine_map<(m, n, k) -> (m, k)>
#km = affine_map<(m, n, k) -> (k, m)>
#nk = affine_map<(m, n, k) -> (n, k)>
#kn = affine_map<(m, n, k) -> (k, n)>
#mn = affine_map<(m, n, k) -> (m, n)>

func.func @turns_behind(%q: memref<?x?x?x64xf16>, %k: memref<?x?x?x64xf16>, %sums: memref<?x64xf32>, %order: memref<?xi32>, %given: vector<128x64xf16>, %n: index) {
  %c0 = arith.constant 0 : index
  %none = arith.constant dense<0.0> : vector<128x64xf32>
  %zeros = arith.constant dense<0.0> : vector<64x64xf32>
  %space = flashattn.dense_space(%n, %n, %n) axes(batch, head, key_tile)
  flashattn.program (%b, %h, %t) in %space
      schedule(<tile_m = 128, tile_n = 64, stages = 2, dot_type = f16, mapping = hopper<consumers = 2, cooperative = 1, along = query_tile, registers = 240, producer_registers = 24, rescale_threshold = 0, l2_head_group = 1>>) {
    %qt = flashattn.load_tile %q[%b, %h, %t, %c0] dims [2, 3] in_bounds [false, true] : memref<?x?x?x64xf16> -> vector<128x64xf16>
    %r = flashattn.tile_loop (%i, %j) in [(%c0, %c0, %n, %n)] iter_args(%acc = %none) -> (vector<128x64xf32>) {
      %kt = flashattn.load_tile %k[%b, %h, %j, %c0] dims [2, 3] in_bounds [false, true] : memref<?x?x?x64xf16> -> vector<64x64xf16>
      %s = vector.contract {indexing_maps = [#mk, #nk, #mn], iterator_types = ["parallel", "parallel", "reduction"], kind = #vector.kind<add>} %qt, %kt, %acc : vector<128x64xf16>, vector<64x64xf16> into vector<128x64xf32>
      flashattn.add_tile %zeros to %sums[%j, %c0] parts 1 : vector<64x64xf32>, memref<?x64xf32>
      flashattn.tile_yield %s : vector<128x64xf32>
    }
    // expected-error @+1 {{expected the turn in a loop over one interval of tiles but got a turn outside of the loop}}
    flashattn.add_tile %r to %sums[%t, %c0] parts 2 order %order : memref<?xi32> turn %t : vector<128x64xf32>, memref<?x64xf32>
  }
  return
}

// -----

#mk = affine_map<(m, n, k) -> (m, k)>
#km = affine_map<(m, n, k) -> (k, m)>
#nk = affine_map<(m, n, k) -> (n, k)>
#kn = affine_map<(m, n, k) -> (k, n)>
#mn = affine_map<(m, n, k) -> (m, n)>

func.func @turns_of_intervals(%q: memref<?x?x?x64xf16>, %k: memref<?x?x?x64xf16>, %sums: memref<?x64xf32>, %order: memref<?xi32>, %given: vector<128x64xf16>, %n: index) {
  %c0 = arith.constant 0 : index
  %none = arith.constant dense<0.0> : vector<128x64xf32>
  %zeros = arith.constant dense<0.0> : vector<64x64xf32>
  %space = flashattn.dense_space(%n, %n, %n) axes(batch, head, key_tile)
  flashattn.program (%b, %h, %t) in %space
      schedule(<tile_m = 128, tile_n = 64, stages = 2, dot_type = f16, mapping = hopper<consumers = 2, cooperative = 1, along = query_tile, registers = 240, producer_registers = 24, rescale_threshold = 0, l2_head_group = 1>>) {
    %qt = flashattn.load_tile %q[%b, %h, %t, %c0] dims [2, 3] in_bounds [false, true] : memref<?x?x?x64xf16> -> vector<128x64xf16>
    %r = flashattn.tile_loop (%i, %j) in [(%c0, %c0, %n, %n), (%n, %n, %t, %t)] iter_args(%acc = %none) -> (vector<128x64xf32>) {
      %kt = flashattn.load_tile %k[%b, %h, %j, %c0] dims [2, 3] in_bounds [false, true] : memref<?x?x?x64xf16> -> vector<64x64xf16>
      %s = vector.contract {indexing_maps = [#mk, #nk, #mn], iterator_types = ["parallel", "parallel", "reduction"], kind = #vector.kind<add>} %qt, %kt, %acc : vector<128x64xf16>, vector<64x64xf16> into vector<128x64xf32>
      // expected-error @+1 {{expected the turn in a loop over one interval of tiles but got a loop over 2 intervals}}
      flashattn.add_tile %zeros to %sums[%j, %c0] parts 1 order %order : memref<?xi32> turn %t : vector<64x64xf32>, memref<?x64xf32>
      flashattn.tile_yield %s : vector<128x64xf32>
    }
  }
  return
}

// -----

#mk = affine_map<(m, n, k) -> (m, k)>
#km = affine_map<(m, n, k) -> (k, m)>
#nk = affine_map<(m, n, k) -> (n, k)>
#kn = affine_map<(m, n, k) -> (k, n)>
#mn = affine_map<(m, n, k) -> (m, n)>

// Consumers that split sums have one each, and 64 rows.
func.func @split_one(%k: memref<2x4x?x128xf16>, %v: memref<2x4x?x128xf16>, %q: memref<2x4x?x128xf16>, %do: memref<2x4x?x128xf16>, %sums: memref<2x4x?x128xf32>, %n: index) {
  %c0 = arith.constant 0 : index
  %zeros = arith.constant dense<0.0> : vector<64x128xf32>
  %none = arith.constant dense<0.0> : vector<64x64xf32>
  %no_dq = arith.constant dense<0.0> : vector<64x128xf32>
  %space = flashattn.dense_space(%n, %n, %n) axes(batch, head, key_tile)
  flashattn.program (%b, %h, %t) in %space
      schedule(<tile_m = 64, tile_n = 64, stages = 2, dot_type = f16, algorithm = split_dk_dv, mapping = hopper<consumers = 2, cooperative = 1, along = query_tile, registers = 240, producer_registers = 24, rescale_threshold = 0, l2_head_group = 1>>) {
    %kt = flashattn.load_tile %k[%b, %h, %t, %c0] dims [2, 3] in_bounds [false, true] : memref<2x4x?x128xf16> -> vector<64x128xf16>
    %vt = flashattn.load_tile %v[%b, %h, %t, %c0] dims [2, 3] in_bounds [false, true] : memref<2x4x?x128xf16> -> vector<64x128xf16>
    // expected-error @+1 {{expected 2 sums and 2 consumers, one for each sum, but got 1 and 2}}
    %r = flashattn.tile_loop (%i, %j) in [(%c0, %c0, %n, %n)] iter_args(%dv = %zeros) -> (vector<64x128xf32>) {
      %qt = flashattn.load_tile %q[%b, %h, %j, %c0] dims [2, 3] in_bounds [false, true] : memref<2x4x?x128xf16> -> vector<64x128xf16>
      %dot = flashattn.load_tile %do[%b, %h, %j, %c0] dims [2, 3] in_bounds [false, true] : memref<2x4x?x128xf16> -> vector<64x128xf16>
      %s = vector.contract {indexing_maps = [#mk, #nk, #mn], iterator_types = ["parallel", "parallel", "reduction"], kind = #vector.kind<add>} %kt, %qt, %none : vector<64x128xf16>, vector<64x128xf16> into vector<64x64xf32>
      %p = arith.truncf %s : vector<64x64xf32> to vector<64x64xf16>
      %pf = arith.extf %p : vector<64x64xf16> to vector<64x64xf32>
      flashattn.stage
      %ndv = vector.contract {indexing_maps = [#mk, #kn, #mn], iterator_types = ["parallel", "parallel", "reduction"], kind = #vector.kind<add>} %p, %dot, %dv : vector<64x64xf16>, vector<64x128xf16> into vector<64x128xf32>
      flashattn.tile_yield %ndv : vector<64x128xf32>
    }
  }
  return
}

// -----

#mk = affine_map<(m, n, k) -> (m, k)>
#km = affine_map<(m, n, k) -> (k, m)>
#nk = affine_map<(m, n, k) -> (n, k)>
#kn = affine_map<(m, n, k) -> (k, n)>
#mn = affine_map<(m, n, k) -> (m, n)>

func.func @split_given(%k: memref<2x4x?x128xf16>, %v: memref<2x4x?x128xf16>, %q: memref<2x4x?x128xf16>, %do: memref<2x4x?x128xf16>, %sums: memref<2x4x?x128xf32>, %n: index) {
  %c0 = arith.constant 0 : index
  %zeros = arith.constant dense<0.0> : vector<64x128xf32>
  %none = arith.constant dense<0.0> : vector<64x64xf32>
  %no_dq = arith.constant dense<0.0> : vector<64x128xf32>
  %space = flashattn.dense_space(%n, %n, %n) axes(batch, head, key_tile)
  flashattn.program (%b, %h, %t) in %space
      schedule(<tile_m = 64, tile_n = 64, stages = 2, dot_type = f16, algorithm = split_dk_dv, mapping = hopper<consumers = 2, cooperative = 1, along = query_tile, registers = 240, producer_registers = 24, rescale_threshold = 0, l2_head_group = 1>>) {
    %kt = flashattn.load_tile %k[%b, %h, %t, %c0] dims [2, 3] in_bounds [false, true] : memref<2x4x?x128xf16> -> vector<64x128xf16>
    %vt = flashattn.load_tile %v[%b, %h, %t, %c0] dims [2, 3] in_bounds [false, true] : memref<2x4x?x128xf16> -> vector<64x128xf16>
    // expected-error @+1 {{expected one sum of the loop for each consumer}}
    %r:2 = flashattn.tile_loop (%i, %j) in [(%c0, %c0, %n, %n)] iter_args(%dk = %zeros, %dv = %zeros) -> (vector<64x128xf32>, vector<64x128xf32>) {
      %qt = flashattn.load_tile %q[%b, %h, %j, %c0] dims [2, 3] in_bounds [false, true] : memref<2x4x?x128xf16> -> vector<64x128xf16>
      %dot = flashattn.load_tile %do[%b, %h, %j, %c0] dims [2, 3] in_bounds [false, true] : memref<2x4x?x128xf16> -> vector<64x128xf16>
      %s = vector.contract {indexing_maps = [#mk, #nk, #mn], iterator_types = ["parallel", "parallel", "reduction"], kind = #vector.kind<add>} %kt, %qt, %none : vector<64x128xf16>, vector<64x128xf16> into vector<64x64xf32>
      %dp = vector.contract {indexing_maps = [#mk, #nk, #mn], iterator_types = ["parallel", "parallel", "reduction"], kind = #vector.kind<add>} %vt, %dot, %none : vector<64x128xf16>, vector<64x128xf16> into vector<64x64xf32>
      %p = arith.truncf %s : vector<64x64xf32> to vector<64x64xf16>
      %pf = arith.extf %p : vector<64x64xf16> to vector<64x64xf32>
      %g = arith.mulf %dp, %pf : vector<64x64xf32>
      %ds = arith.truncf %g : vector<64x64xf32> to vector<64x64xf16>
      flashattn.stage
      %ndv = vector.contract {indexing_maps = [#mk, #kn, #mn], iterator_types = ["parallel", "parallel", "reduction"], kind = #vector.kind<add>} %p, %dot, %dv : vector<64x64xf16>, vector<64x128xf16> into vector<64x128xf32>
      %ndk = vector.contract {indexing_maps = [#mk, #kn, #mn], iterator_types = ["parallel", "parallel", "reduction"], kind = #vector.kind<add>} %ds, %qt, %dk : vector<64x64xf16>, vector<64x128xf16> into vector<64x128xf32>
      %dq = vector.contract {indexing_maps = [#km, #kn, #mn], iterator_types = ["parallel", "parallel", "reduction"], kind = #vector.kind<add>} %ds, %kt, %no_dq : vector<64x64xf16>, vector<64x128xf16> into vector<64x128xf32>
      flashattn.add_tile %dq to %sums[%b, %h, %j, %c0] parts 4 adjacent 4 : vector<64x128xf32>, memref<2x4x?x128xf32>
      flashattn.tile_yield %ndk, %zeros : vector<64x128xf32>, vector<64x128xf32>
    }
  }
  return
}

// -----

#mk = affine_map<(m, n, k) -> (m, k)>
#km = affine_map<(m, n, k) -> (k, m)>
#nk = affine_map<(m, n, k) -> (n, k)>
#kn = affine_map<(m, n, k) -> (k, n)>
#mn = affine_map<(m, n, k) -> (m, n)>

func.func @split_two_tiles(%k: memref<2x4x?x128xf16>, %v: memref<2x4x?x128xf16>, %q: memref<2x4x?x128xf16>, %do: memref<2x4x?x128xf16>, %sums: memref<2x4x?x128xf32>, %n: index) {
  %c0 = arith.constant 0 : index
  %zeros = arith.constant dense<0.0> : vector<64x128xf32>
  %none = arith.constant dense<0.0> : vector<64x64xf32>
  %no_dq = arith.constant dense<0.0> : vector<64x128xf32>
  %space = flashattn.dense_space(%n, %n, %n) axes(batch, head, key_tile)
  flashattn.program (%b, %h, %t) in %space
      schedule(<tile_m = 64, tile_n = 64, stages = 2, dot_type = f16, algorithm = split_dk_dv, mapping = hopper<consumers = 2, cooperative = 1, along = query_tile, registers = 240, producer_registers = 24, rescale_threshold = 0, l2_head_group = 1>>) {
    %kt = flashattn.load_tile %k[%b, %h, %t, %c0] dims [2, 3] in_bounds [false, true] : memref<2x4x?x128xf16> -> vector<64x128xf16>
    %vt = flashattn.load_tile %v[%b, %h, %t, %c0] dims [2, 3] in_bounds [false, true] : memref<2x4x?x128xf16> -> vector<64x128xf16>
    // expected-error @+1 {{expected one tile of 'f16' that one consumer passes to the other, for consumers that split sums, but got none}}
    %r:2 = flashattn.tile_loop (%i, %j) in [(%c0, %c0, %n, %n)] iter_args(%dk = %zeros, %dv = %zeros) -> (vector<64x128xf32>, vector<64x128xf32>) {
      %qt = flashattn.load_tile %q[%b, %h, %j, %c0] dims [2, 3] in_bounds [false, true] : memref<2x4x?x128xf16> -> vector<64x128xf16>
      %dot = flashattn.load_tile %do[%b, %h, %j, %c0] dims [2, 3] in_bounds [false, true] : memref<2x4x?x128xf16> -> vector<64x128xf16>
      %s = vector.contract {indexing_maps = [#mk, #nk, #mn], iterator_types = ["parallel", "parallel", "reduction"], kind = #vector.kind<add>} %kt, %qt, %none : vector<64x128xf16>, vector<64x128xf16> into vector<64x64xf32>
      %dp = vector.contract {indexing_maps = [#mk, #nk, #mn], iterator_types = ["parallel", "parallel", "reduction"], kind = #vector.kind<add>} %vt, %dot, %none : vector<64x128xf16>, vector<64x128xf16> into vector<64x64xf32>
      %p = arith.truncf %s : vector<64x64xf32> to vector<64x64xf16>
      %x = math.exp2 %s : vector<64x64xf32>
      %pf = arith.addf %s, %x : vector<64x64xf32>
      %pp = arith.truncf %x : vector<64x64xf32> to vector<64x64xf16>
      %g0 = arith.mulf %dp, %s : vector<64x64xf32>
      %g = arith.mulf %g0, %x : vector<64x64xf32>
      %ds = arith.truncf %g : vector<64x64xf32> to vector<64x64xf16>
      flashattn.stage
      %ndv = vector.contract {indexing_maps = [#mk, #kn, #mn], iterator_types = ["parallel", "parallel", "reduction"], kind = #vector.kind<add>} %pp, %dot, %dv : vector<64x64xf16>, vector<64x128xf16> into vector<64x128xf32>
      %ndk = vector.contract {indexing_maps = [#mk, #kn, #mn], iterator_types = ["parallel", "parallel", "reduction"], kind = #vector.kind<add>} %ds, %qt, %dk : vector<64x64xf16>, vector<64x128xf16> into vector<64x128xf32>
      %dq = vector.contract {indexing_maps = [#km, #kn, #mn], iterator_types = ["parallel", "parallel", "reduction"], kind = #vector.kind<add>} %ds, %kt, %no_dq : vector<64x64xf16>, vector<64x128xf16> into vector<64x128xf32>
      flashattn.add_tile %dq to %sums[%b, %h, %j, %c0] parts 4 adjacent 4 : vector<64x128xf32>, memref<2x4x?x128xf32>
      flashattn.tile_yield %ndk, %ndv : vector<64x128xf32>, vector<64x128xf32>
    }
  }
  return
}

// -----

#mk = affine_map<(m, n, k) -> (m, k)>
#km = affine_map<(m, n, k) -> (k, m)>
#nk = affine_map<(m, n, k) -> (n, k)>
#kn = affine_map<(m, n, k) -> (k, n)>
#mn = affine_map<(m, n, k) -> (m, n)>

func.func @split_tile_m(%k: memref<2x4x?x128xf16>, %v: memref<2x4x?x128xf16>, %q: memref<2x4x?x128xf16>, %do: memref<2x4x?x128xf16>, %sums: memref<2x4x?x128xf32>, %n: index) {
  %c0 = arith.constant 0 : index
  %zeros = arith.constant dense<0.0> : vector<96x128xf32>
  %none = arith.constant dense<0.0> : vector<96x64xf32>
  %no_dq = arith.constant dense<0.0> : vector<64x128xf32>
  %space = flashattn.dense_space(%n, %n, %n) axes(batch, head, key_tile)
  // expected-error @+1 {{expected tile_m 64 for consumers that split sums but got 96}}
  flashattn.program (%b, %h, %t) in %space
      schedule(<tile_m = 96, tile_n = 64, stages = 2, dot_type = f16, algorithm = split_dk_dv, mapping = hopper<consumers = 2, cooperative = 1, along = query_tile, registers = 240, producer_registers = 24, rescale_threshold = 0, l2_head_group = 1>>) {
    %kt = flashattn.load_tile %k[%b, %h, %t, %c0] dims [2, 3] in_bounds [false, true] : memref<2x4x?x128xf16> -> vector<96x128xf16>
    %vt = flashattn.load_tile %v[%b, %h, %t, %c0] dims [2, 3] in_bounds [false, true] : memref<2x4x?x128xf16> -> vector<96x128xf16>
    %r:2 = flashattn.tile_loop (%i, %j) in [(%c0, %c0, %n, %n)] iter_args(%dk = %zeros, %dv = %zeros) -> (vector<96x128xf32>, vector<96x128xf32>) {
      %qt = flashattn.load_tile %q[%b, %h, %j, %c0] dims [2, 3] in_bounds [false, true] : memref<2x4x?x128xf16> -> vector<64x128xf16>
      %dot = flashattn.load_tile %do[%b, %h, %j, %c0] dims [2, 3] in_bounds [false, true] : memref<2x4x?x128xf16> -> vector<64x128xf16>
      %s = vector.contract {indexing_maps = [#mk, #nk, #mn], iterator_types = ["parallel", "parallel", "reduction"], kind = #vector.kind<add>} %kt, %qt, %none : vector<96x128xf16>, vector<64x128xf16> into vector<96x64xf32>
      %dp = vector.contract {indexing_maps = [#mk, #nk, #mn], iterator_types = ["parallel", "parallel", "reduction"], kind = #vector.kind<add>} %vt, %dot, %none : vector<96x128xf16>, vector<64x128xf16> into vector<96x64xf32>
      %p = arith.truncf %s : vector<96x64xf32> to vector<96x64xf16>
      %pf = arith.extf %p : vector<96x64xf16> to vector<96x64xf32>
      %g = arith.mulf %dp, %pf : vector<96x64xf32>
      %ds = arith.truncf %g : vector<96x64xf32> to vector<96x64xf16>
      flashattn.stage
      %ndv = vector.contract {indexing_maps = [#mk, #kn, #mn], iterator_types = ["parallel", "parallel", "reduction"], kind = #vector.kind<add>} %p, %dot, %dv : vector<96x64xf16>, vector<64x128xf16> into vector<96x128xf32>
      %ndk = vector.contract {indexing_maps = [#mk, #kn, #mn], iterator_types = ["parallel", "parallel", "reduction"], kind = #vector.kind<add>} %ds, %qt, %dk : vector<96x64xf16>, vector<64x128xf16> into vector<96x128xf32>
      %dq = vector.contract {indexing_maps = [#km, #kn, #mn], iterator_types = ["parallel", "parallel", "reduction"], kind = #vector.kind<add>} %ds, %kt, %no_dq : vector<96x64xf16>, vector<96x128xf16> into vector<64x128xf32>
      flashattn.add_tile %dq to %sums[%b, %h, %j, %c0] parts 4 adjacent 4 : vector<64x128xf32>, memref<2x4x?x128xf32>
      flashattn.tile_yield %ndk, %ndv : vector<96x128xf32>, vector<96x128xf32>
    }
  }
  return
}

// -----

#mk = affine_map<(m, n, k) -> (m, k)>
#km = affine_map<(m, n, k) -> (k, m)>
#nk = affine_map<(m, n, k) -> (n, k)>
#kn = affine_map<(m, n, k) -> (k, n)>
#mn = affine_map<(m, n, k) -> (m, n)>

func.func @split_slots(%k: memref<2x4x?x128xf16>, %v: memref<2x4x?x128xf16>, %q: memref<2x4x?x128xf16>, %do: memref<2x4x?x128xf16>, %sums: memref<2x4x?x128xf32>, %n: index) {
  %c0 = arith.constant 0 : index
  %zeros = arith.constant dense<0.0> : vector<64x128xf32>
  %none = arith.constant dense<0.0> : vector<64x64xf32>
  %no_dq = arith.constant dense<0.0> : vector<64x128xf32>
  %space = flashattn.dense_space(%n, %n, %n) axes(batch, head, key_tile)
  // expected-error @+1 {{expected q_stages 1 for consumers that split sums but got 2}}
  flashattn.program (%b, %h, %t) in %space
      schedule(<tile_m = 64, tile_n = 64, stages = 2, dot_type = f16, algorithm = split_dk_dv, mapping = hopper<consumers = 2, cooperative = 1, along = query_tile, registers = 240, producer_registers = 24, rescale_threshold = 0, l2_head_group = 1, q_stages = 2>>) {
    %kt = flashattn.load_tile %k[%b, %h, %t, %c0] dims [2, 3] in_bounds [false, true] : memref<2x4x?x128xf16> -> vector<64x128xf16>
    %vt = flashattn.load_tile %v[%b, %h, %t, %c0] dims [2, 3] in_bounds [false, true] : memref<2x4x?x128xf16> -> vector<64x128xf16>
    %r:2 = flashattn.tile_loop (%i, %j) in [(%c0, %c0, %n, %n)] iter_args(%dk = %zeros, %dv = %zeros) -> (vector<64x128xf32>, vector<64x128xf32>) {
      %qt = flashattn.load_tile %q[%b, %h, %j, %c0] dims [2, 3] in_bounds [false, true] : memref<2x4x?x128xf16> -> vector<64x128xf16>
      %dot = flashattn.load_tile %do[%b, %h, %j, %c0] dims [2, 3] in_bounds [false, true] : memref<2x4x?x128xf16> -> vector<64x128xf16>
      %s = vector.contract {indexing_maps = [#mk, #nk, #mn], iterator_types = ["parallel", "parallel", "reduction"], kind = #vector.kind<add>} %kt, %qt, %none : vector<64x128xf16>, vector<64x128xf16> into vector<64x64xf32>
      %dp = vector.contract {indexing_maps = [#mk, #nk, #mn], iterator_types = ["parallel", "parallel", "reduction"], kind = #vector.kind<add>} %vt, %dot, %none : vector<64x128xf16>, vector<64x128xf16> into vector<64x64xf32>
      %p = arith.truncf %s : vector<64x64xf32> to vector<64x64xf16>
      %pf = arith.extf %p : vector<64x64xf16> to vector<64x64xf32>
      %g = arith.mulf %dp, %pf : vector<64x64xf32>
      %ds = arith.truncf %g : vector<64x64xf32> to vector<64x64xf16>
      flashattn.stage
      %ndv = vector.contract {indexing_maps = [#mk, #kn, #mn], iterator_types = ["parallel", "parallel", "reduction"], kind = #vector.kind<add>} %p, %dot, %dv : vector<64x64xf16>, vector<64x128xf16> into vector<64x128xf32>
      %ndk = vector.contract {indexing_maps = [#mk, #kn, #mn], iterator_types = ["parallel", "parallel", "reduction"], kind = #vector.kind<add>} %ds, %qt, %dk : vector<64x64xf16>, vector<64x128xf16> into vector<64x128xf32>
      %dq = vector.contract {indexing_maps = [#km, #kn, #mn], iterator_types = ["parallel", "parallel", "reduction"], kind = #vector.kind<add>} %ds, %kt, %no_dq : vector<64x64xf16>, vector<64x128xf16> into vector<64x128xf32>
      flashattn.add_tile %dq to %sums[%b, %h, %j, %c0] parts 4 adjacent 4 : vector<64x128xf32>, memref<2x4x?x128xf32>
      flashattn.tile_yield %ndk, %ndv : vector<64x128xf32>, vector<64x128xf32>
    }
  }
  return
}

// -----

#mk = affine_map<(m, n, k) -> (m, k)>
#km = affine_map<(m, n, k) -> (k, m)>
#nk = affine_map<(m, n, k) -> (n, k)>
#kn = affine_map<(m, n, k) -> (k, n)>
#mn = affine_map<(m, n, k) -> (m, n)>

func.func @split_stream(%k: memref<2x4x?x128xf16>, %v: memref<2x4x?x128xf16>, %q: memref<2x4x?x128xf16>, %do: memref<2x4x?x128xf16>, %sums: memref<2x4x?x128xf32>, %n: index) {
  %c0 = arith.constant 0 : index
  %zeros = arith.constant dense<0.0> : vector<64x128xf32>
  %none = arith.constant dense<0.0> : vector<64x64xf32>
  %no_dq = arith.constant dense<0.0> : vector<64x128xf32>
  %space = flashattn.dense_space(%n, %n, %n) axes(batch, head, key_tile)
  flashattn.program (%b, %h, %t) in %space
      schedule(<tile_m = 64, tile_n = 64, stages = 2, dot_type = f16, algorithm = split_dk_dv, mapping = hopper<consumers = 2, cooperative = 1, along = query_tile, registers = 240, producer_registers = 24, rescale_threshold = 0, l2_head_group = 1>>) {
    %kt = flashattn.load_tile %k[%b, %h, %t, %c0] dims [2, 3] in_bounds [false, true] : memref<2x4x?x128xf16> -> vector<64x128xf16>
    %vt = flashattn.load_tile %v[%b, %h, %t, %c0] dims [2, 3] in_bounds [false, true] : memref<2x4x?x128xf16> -> vector<64x128xf16>
    %r:2 = flashattn.tile_loop (%i, %j) in [(%c0, %c0, %n, %n)] iter_args(%dk = %zeros, %dv = %zeros) -> (vector<64x128xf32>, vector<64x128xf32>) {
      // expected-error @+1 {{expected each consumer's sum to use the tile but got a sum that does not}}
      %qt = flashattn.load_tile %q[%b, %h, %j, %c0] dims [2, 3] in_bounds [false, true] : memref<2x4x?x128xf16> -> vector<64x128xf16>
      %dot = flashattn.load_tile %do[%b, %h, %j, %c0] dims [2, 3] in_bounds [false, true] : memref<2x4x?x128xf16> -> vector<64x128xf16>
      %s = vector.contract {indexing_maps = [#mk, #nk, #mn], iterator_types = ["parallel", "parallel", "reduction"], kind = #vector.kind<add>} %kt, %dot, %none : vector<64x128xf16>, vector<64x128xf16> into vector<64x64xf32>
      %dp = vector.contract {indexing_maps = [#mk, #nk, #mn], iterator_types = ["parallel", "parallel", "reduction"], kind = #vector.kind<add>} %vt, %dot, %none : vector<64x128xf16>, vector<64x128xf16> into vector<64x64xf32>
      %p = arith.truncf %s : vector<64x64xf32> to vector<64x64xf16>
      %pf = arith.extf %p : vector<64x64xf16> to vector<64x64xf32>
      %g = arith.mulf %dp, %pf : vector<64x64xf32>
      %ds = arith.truncf %g : vector<64x64xf32> to vector<64x64xf16>
      flashattn.stage
      %ndv = vector.contract {indexing_maps = [#mk, #kn, #mn], iterator_types = ["parallel", "parallel", "reduction"], kind = #vector.kind<add>} %p, %dot, %dv : vector<64x64xf16>, vector<64x128xf16> into vector<64x128xf32>
      %ndk = vector.contract {indexing_maps = [#mk, #kn, #mn], iterator_types = ["parallel", "parallel", "reduction"], kind = #vector.kind<add>} %ds, %qt, %dk : vector<64x64xf16>, vector<64x128xf16> into vector<64x128xf32>
      %dq = vector.contract {indexing_maps = [#km, #kn, #mn], iterator_types = ["parallel", "parallel", "reduction"], kind = #vector.kind<add>} %ds, %kt, %no_dq : vector<64x64xf16>, vector<64x128xf16> into vector<64x128xf32>
      flashattn.add_tile %dq to %sums[%b, %h, %j, %c0] parts 4 adjacent 4 : vector<64x128xf32>, memref<2x4x?x128xf32>
      flashattn.tile_yield %ndk, %ndv : vector<64x128xf32>, vector<64x128xf32>
    }
  }
  return
}

// -----

#mk = affine_map<(m, n, k) -> (m, k)>
#km = affine_map<(m, n, k) -> (k, m)>
#nk = affine_map<(m, n, k) -> (n, k)>
#kn = affine_map<(m, n, k) -> (k, n)>
#mn = affine_map<(m, n, k) -> (m, n)>

func.func @split_added(%k: memref<2x4x?x128xf16>, %v: memref<2x4x?x128xf16>, %q: memref<2x4x?x128xf16>, %do: memref<2x4x?x128xf16>, %sums: memref<2x4x?x128xf32>, %n: index) {
  %c0 = arith.constant 0 : index
  %zeros = arith.constant dense<0.0> : vector<64x128xf32>
  %none = arith.constant dense<0.0> : vector<64x64xf32>
  %no_dq = arith.constant dense<0.0> : vector<64x128xf32>
  %space = flashattn.dense_space(%n, %n, %n) axes(batch, head, key_tile)
  flashattn.program (%b, %h, %t) in %space
      schedule(<tile_m = 64, tile_n = 64, stages = 2, dot_type = f16, algorithm = split_dk_dv, mapping = hopper<consumers = 2, cooperative = 1, along = query_tile, registers = 240, producer_registers = 24, rescale_threshold = 0, l2_head_group = 1>>) {
    %kt = flashattn.load_tile %k[%b, %h, %t, %c0] dims [2, 3] in_bounds [false, true] : memref<2x4x?x128xf16> -> vector<64x128xf16>
    %vt = flashattn.load_tile %v[%b, %h, %t, %c0] dims [2, 3] in_bounds [false, true] : memref<2x4x?x128xf16> -> vector<64x128xf16>
    %r:2 = flashattn.tile_loop (%i, %j) in [(%c0, %c0, %n, %n)] iter_args(%dk = %zeros, %dv = %zeros) -> (vector<64x128xf32>, vector<64x128xf32>) {
      %qt = flashattn.load_tile %q[%b, %h, %j, %c0] dims [2, 3] in_bounds [false, true] : memref<2x4x?x128xf16> -> vector<64x128xf16>
      %dot = flashattn.load_tile %do[%b, %h, %j, %c0] dims [2, 3] in_bounds [false, true] : memref<2x4x?x128xf16> -> vector<64x128xf16>
      %s = vector.contract {indexing_maps = [#mk, #nk, #mn], iterator_types = ["parallel", "parallel", "reduction"], kind = #vector.kind<add>} %kt, %qt, %none : vector<64x128xf16>, vector<64x128xf16> into vector<64x64xf32>
      %dp = vector.contract {indexing_maps = [#mk, #nk, #mn], iterator_types = ["parallel", "parallel", "reduction"], kind = #vector.kind<add>} %vt, %dot, %none : vector<64x128xf16>, vector<64x128xf16> into vector<64x64xf32>
      %p = arith.truncf %s : vector<64x64xf32> to vector<64x64xf16>
      %pf = arith.extf %p : vector<64x64xf16> to vector<64x64xf32>
      %g = arith.mulf %dp, %pf : vector<64x64xf32>
      %ds = arith.truncf %g : vector<64x64xf32> to vector<64x64xf16>
      flashattn.stage
      %ndv = vector.contract {indexing_maps = [#mk, #kn, #mn], iterator_types = ["parallel", "parallel", "reduction"], kind = #vector.kind<add>} %p, %dot, %dv : vector<64x64xf16>, vector<64x128xf16> into vector<64x128xf32>
      %ndk = vector.contract {indexing_maps = [#mk, #kn, #mn], iterator_types = ["parallel", "parallel", "reduction"], kind = #vector.kind<add>} %ds, %qt, %dk : vector<64x64xf16>, vector<64x128xf16> into vector<64x128xf32>
      // expected-error @+1 {{expected no product of a transposed tile for consumers that split sums but got one}}
      %dq = vector.contract {indexing_maps = [#km, #kn, #mn], iterator_types = ["parallel", "parallel", "reduction"], kind = #vector.kind<add>} %p, %kt, %no_dq : vector<64x64xf16>, vector<64x128xf16> into vector<64x128xf32>
      flashattn.add_tile %dq to %sums[%b, %h, %j, %c0] parts 4 adjacent 4 : vector<64x128xf32>, memref<2x4x?x128xf32>
      flashattn.tile_yield %ndk, %ndv : vector<64x128xf32>, vector<64x128xf32>
    }
  }
  return
}

// -----

#mk = affine_map<(m, n, k) -> (m, k)>
#km = affine_map<(m, n, k) -> (k, m)>
#nk = affine_map<(m, n, k) -> (n, k)>
#kn = affine_map<(m, n, k) -> (k, n)>
#mn = affine_map<(m, n, k) -> (m, n)>

func.func @split_adds(%k: memref<2x4x?x128xf16>, %v: memref<2x4x?x128xf16>, %q: memref<2x4x?x128xf16>, %do: memref<2x4x?x128xf16>, %sums: memref<2x4x?x64xf32>, %n: index) {
  %c0 = arith.constant 0 : index
  %zeros = arith.constant dense<0.0> : vector<64x128xf32>
  %none = arith.constant dense<0.0> : vector<64x64xf32>
  %no_dq = arith.constant dense<0.0> : vector<64x128xf32>
  %space = flashattn.dense_space(%n, %n, %n) axes(batch, head, key_tile)
  flashattn.program (%b, %h, %t) in %space
      schedule(<tile_m = 64, tile_n = 64, stages = 2, dot_type = f16, algorithm = split_dk_dv, mapping = hopper<consumers = 2, cooperative = 1, along = query_tile, registers = 240, producer_registers = 24, rescale_threshold = 0, l2_head_group = 1>>) {
    %kt = flashattn.load_tile %k[%b, %h, %t, %c0] dims [2, 3] in_bounds [false, true] : memref<2x4x?x128xf16> -> vector<64x128xf16>
    %vt = flashattn.load_tile %v[%b, %h, %t, %c0] dims [2, 3] in_bounds [false, true] : memref<2x4x?x128xf16> -> vector<64x128xf16>
    %r:2 = flashattn.tile_loop (%i, %j) in [(%c0, %c0, %n, %n)] iter_args(%dk = %zeros, %dv = %zeros) -> (vector<64x128xf32>, vector<64x128xf32>) {
      %qt = flashattn.load_tile %q[%b, %h, %j, %c0] dims [2, 3] in_bounds [false, true] : memref<2x4x?x128xf16> -> vector<64x128xf16>
      %dot = flashattn.load_tile %do[%b, %h, %j, %c0] dims [2, 3] in_bounds [false, true] : memref<2x4x?x128xf16> -> vector<64x128xf16>
      %s = vector.contract {indexing_maps = [#mk, #nk, #mn], iterator_types = ["parallel", "parallel", "reduction"], kind = #vector.kind<add>} %kt, %qt, %none : vector<64x128xf16>, vector<64x128xf16> into vector<64x64xf32>
      %dp = vector.contract {indexing_maps = [#mk, #nk, #mn], iterator_types = ["parallel", "parallel", "reduction"], kind = #vector.kind<add>} %vt, %dot, %none : vector<64x128xf16>, vector<64x128xf16> into vector<64x64xf32>
      %p = arith.truncf %s : vector<64x64xf32> to vector<64x64xf16>
      %pf = arith.extf %p : vector<64x64xf16> to vector<64x64xf32>
      %g = arith.mulf %dp, %pf : vector<64x64xf32>
      %ds = arith.truncf %g : vector<64x64xf32> to vector<64x64xf16>
      flashattn.stage
      %ndv = vector.contract {indexing_maps = [#mk, #kn, #mn], iterator_types = ["parallel", "parallel", "reduction"], kind = #vector.kind<add>} %p, %dot, %dv : vector<64x64xf16>, vector<64x128xf16> into vector<64x128xf32>
      %ndk = vector.contract {indexing_maps = [#mk, #kn, #mn], iterator_types = ["parallel", "parallel", "reduction"], kind = #vector.kind<add>} %ds, %qt, %dk : vector<64x64xf16>, vector<64x128xf16> into vector<64x128xf32>
      // expected-error @+1 {{expected no tiles that are added to global memory for consumers that split sums but got one}}
      flashattn.add_tile %g to %sums[%b, %h, %j, %c0] parts 1 adjacent 4 : vector<64x64xf32>, memref<2x4x?x64xf32>
      flashattn.tile_yield %ndk, %ndv : vector<64x128xf32>, vector<64x128xf32>
    }
  }
  return
}

// -----

func.func @wide(%q: memref<?x?x?x1024xf16>, %o: memref<?x?x?x1024xf16>) {
  // expected-error @+1 {{expected tiles of 262144 bytes at most in shared memory but got 524376}}
  flashattn.attention schedule(<tile_m = 64, tile_n = 32, stages = 2, dot_type = f16, mapping = hopper<consumers = 2, along = query_tile, registers = 240, producer_registers = 24, rescale_threshold = 0, l2_head_group = 1>>)
    ins(%q, %q, %q : memref<?x?x?x1024xf16>, memref<?x?x?x1024xf16>, memref<?x?x?x1024xf16>)
    outs(%o : memref<?x?x?x1024xf16>)
  return
}

// -----

#mk = affine_map<(m, n, k) -> (m, k)>
#km = affine_map<(m, n, k) -> (k, m)>
#nk = affine_map<(m, n, k) -> (n, k)>
#kn = affine_map<(m, n, k) -> (k, n)>
#mn = affine_map<(m, n, k) -> (m, n)>
!mem = memref<2x4x?x128xf16>

func.func @turns_of_consumers(%order: memref<2x8x?xi32>, %k: !mem, %q: !mem, %do: !mem, %dk: !mem, %sums: memref<2x8x?x128xf32>, %tiles: index, %steps: index, %group: index) {
  %c0 = arith.constant 0 : index
  %c2 = arith.constant 2 : index
  %c4 = arith.constant 4 : index
  %zs = arith.constant dense<0.0> : vector<128x64xf32>
  %zo = arith.constant dense<0.0> : vector<128x128xf32>
  %zq = arith.constant dense<0.0> : vector<64x128xf32>
  %space = flashattn.dense_space(%c2, %c4, %tiles) axes(batch, head, key_tile)
  // expected-error @+1 {{expected dq_reduce_stages 1 or 2 for tiles that are added in turns but got 0}}
  flashattn.program (%b, %h, %t) in %space
      schedule(<tile_m = 128, tile_n = 64, stages = 2, dot_type = f16, mapping = hopper<consumers = 2, cooperative = 1, along = query_tile, registers = 240, producer_registers = 24, rescale_threshold = 0, l2_head_group = 1>>) {
    %kt = flashattn.load_tile %k[%b, %h, %t, %c0] dims [2, 3] in_bounds [false, true] : !mem -> vector<128x128xf16>
    %r = flashattn.tile_loop (%i, %j, %g) in [(%t, %t, %steps, %steps)] rounds %group iter_args(%ak = %zo) -> (vector<128x128xf32>) {
      %first = arith.muli %h, %group : index
      %head = arith.addi %first, %g : index
      %qt = flashattn.load_tile %q[%b, %head, %j, %c0] dims [2, 3] in_bounds [false, true] : !mem -> vector<64x128xf16>
      %s = vector.contract {indexing_maps = [#mk, #nk, #mn], iterator_types = ["parallel", "parallel", "reduction"], kind = #vector.kind<add>} %kt, %qt, %zs : vector<128x128xf16>, vector<64x128xf16> into vector<128x64xf32>
      flashattn.stage
      %d16 = arith.truncf %s : vector<128x64xf32> to vector<128x64xf16>
      flashattn.stage lag 1
      %ak1 = vector.contract {indexing_maps = [#mk, #kn, #mn], iterator_types = ["parallel", "parallel", "reduction"], kind = #vector.kind<add>} %d16, %qt, %ak : vector<128x64xf16>, vector<64x128xf16> into vector<128x128xf32>
      flashattn.stage lag 1 behind 1
      %dq = vector.contract {indexing_maps = [#km, #kn, #mn], iterator_types = ["parallel", "parallel", "reduction"], kind = #vector.kind<add>} %d16, %kt, %zq : vector<128x64xf16>, vector<128x128xf16> into vector<64x128xf32>
      flashattn.add_tile %dq to %sums[%b, %head, %j, %c0] parts 2 order %order : memref<2x8x?xi32> turn %t : vector<64x128xf32>, memref<2x8x?x128xf32>
      flashattn.tile_yield %ak1 : vector<128x128xf32>
    }
    %k16 = arith.truncf %r : vector<128x128xf32> to vector<128x128xf16>
    flashattn.store_tile %k16 to %dk[%b, %h, %t, %c0] dims [2, 3] in_bounds [false, true] : vector<128x128xf16>, !mem
  }
  return
}

// -----

#mk = affine_map<(m, n, k) -> (m, k)>
#km = affine_map<(m, n, k) -> (k, m)>
#nk = affine_map<(m, n, k) -> (n, k)>
#kn = affine_map<(m, n, k) -> (k, n)>
#mn = affine_map<(m, n, k) -> (m, n)>
!mem = memref<2x4x?x128xf16>

func.func @order_of_consumers(%order: memref<2x8x?xi32>, %k: !mem, %q: !mem, %do: !mem, %dk: !mem, %sums: memref<2x8x?x128xf32>, %tiles: index, %steps: index, %group: index) {
  %c0 = arith.constant 0 : index
  %c2 = arith.constant 2 : index
  %c4 = arith.constant 4 : index
  %zs = arith.constant dense<0.0> : vector<128x64xf32>
  %zo = arith.constant dense<0.0> : vector<128x128xf32>
  %zq = arith.constant dense<0.0> : vector<64x128xf32>
  %space = flashattn.dense_space(%c2, %c4, %tiles) axes(batch, head, key_tile)
  flashattn.program (%b, %h, %t) in %space
      schedule(<tile_m = 128, tile_n = 64, stages = 2, dot_type = f16, mapping = hopper<consumers = 2, cooperative = 1, along = query_tile, registers = 240, producer_registers = 24, rescale_threshold = 0, l2_head_group = 1>>) {
    %kt = flashattn.load_tile %k[%b, %h, %t, %c0] dims [2, 3] in_bounds [false, true] : !mem -> vector<128x128xf16>
    %r = flashattn.tile_loop (%i, %j, %g) in [(%t, %t, %steps, %steps)] rounds %group iter_args(%ak = %zo) -> (vector<128x128xf32>) {
      %first = arith.muli %h, %group : index
      %head = arith.addi %first, %g : index
      %qt = flashattn.load_tile %q[%b, %head, %j, %c0] dims [2, 3] in_bounds [false, true] : !mem -> vector<64x128xf16>
      %s = vector.contract {indexing_maps = [#mk, #nk, #mn], iterator_types = ["parallel", "parallel", "reduction"], kind = #vector.kind<add>} %kt, %qt, %zs : vector<128x128xf16>, vector<64x128xf16> into vector<128x64xf32>
      flashattn.stage
      %d16 = arith.truncf %s : vector<128x64xf32> to vector<128x64xf16>
      flashattn.stage lag 1
      %ak1 = vector.contract {indexing_maps = [#mk, #kn, #mn], iterator_types = ["parallel", "parallel", "reduction"], kind = #vector.kind<add>} %d16, %qt, %ak : vector<128x64xf16>, vector<64x128xf16> into vector<128x128xf32>
      flashattn.stage lag 1 behind 1
      %dq = vector.contract {indexing_maps = [#km, #kn, #mn], iterator_types = ["parallel", "parallel", "reduction"], kind = #vector.kind<add>} %d16, %kt, %zq : vector<128x64xf16>, vector<128x128xf16> into vector<64x128xf32>
      // expected-error @+1 {{expected dq_reduce_stages 1 or 2, and a tile that is added at each step, for 'order' but got dq_reduce_stages 0}}
      flashattn.add_tile %dq to %sums[%b, %head, %j, %c0] parts 2 order %order : memref<2x8x?xi32> : vector<64x128xf32>, memref<2x8x?x128xf32>
      flashattn.tile_yield %ak1 : vector<128x128xf32>
    }
    %k16 = arith.truncf %r : vector<128x128xf32> to vector<128x128xf16>
    flashattn.store_tile %k16 to %dk[%b, %h, %t, %c0] dims [2, 3] in_bounds [false, true] : vector<128x128xf16>, !mem
  }
  return
}

// -----

#mk = affine_map<(m, n, k) -> (m, k)>
#km = affine_map<(m, n, k) -> (k, m)>
#nk = affine_map<(m, n, k) -> (n, k)>
#kn = affine_map<(m, n, k) -> (k, n)>
#mn = affine_map<(m, n, k) -> (m, n)>
!mem = memref<2x4x?x128xf16>

func.func @signal_by_consumers(%told: memref<2x4xi32>, %k: !mem, %q: !mem, %do: !mem, %dk: !mem, %sums: memref<2x8x?x128xf32>, %tiles: index, %steps: index, %group: index) {
  %c0 = arith.constant 0 : index
  %c2 = arith.constant 2 : index
  %c4 = arith.constant 4 : index
  %zs = arith.constant dense<0.0> : vector<128x64xf32>
  %zo = arith.constant dense<0.0> : vector<128x128xf32>
  %zq = arith.constant dense<0.0> : vector<64x128xf32>
  %space = flashattn.dense_space(%c2, %c4, %tiles) axes(batch, head, key_tile)
  flashattn.program (%b, %h, %t) in %space
      schedule(<tile_m = 128, tile_n = 64, stages = 2, dot_type = f16, mapping = hopper<consumers = 2, cooperative = 1, along = query_tile, registers = 240, producer_registers = 24, rescale_threshold = 0, l2_head_group = 1>>) {
    %kt = flashattn.load_tile %k[%b, %h, %t, %c0] dims [2, 3] in_bounds [false, true] : !mem -> vector<128x128xf16>
    %r = flashattn.tile_loop (%i, %j, %g) in [(%t, %t, %steps, %steps)] rounds %group iter_args(%ak = %zo) -> (vector<128x128xf32>) {
      %first = arith.muli %h, %group : index
      %head = arith.addi %first, %g : index
      %qt = flashattn.load_tile %q[%b, %head, %j, %c0] dims [2, 3] in_bounds [false, true] : !mem -> vector<64x128xf16>
      %s = vector.contract {indexing_maps = [#mk, #nk, #mn], iterator_types = ["parallel", "parallel", "reduction"], kind = #vector.kind<add>} %kt, %qt, %zs : vector<128x128xf16>, vector<64x128xf16> into vector<128x64xf32>
      flashattn.stage
      %d16 = arith.truncf %s : vector<128x64xf32> to vector<128x64xf16>
      flashattn.stage lag 1
      %ak1 = vector.contract {indexing_maps = [#mk, #kn, #mn], iterator_types = ["parallel", "parallel", "reduction"], kind = #vector.kind<add>} %d16, %qt, %ak : vector<128x64xf16>, vector<64x128xf16> into vector<128x128xf32>
      flashattn.stage lag 1 behind 1
      %dq = vector.contract {indexing_maps = [#km, #kn, #mn], iterator_types = ["parallel", "parallel", "reduction"], kind = #vector.kind<add>} %d16, %kt, %zq : vector<128x64xf16>, vector<128x128xf16> into vector<64x128xf32>
      flashattn.add_tile %dq to %sums[%b, %head, %j, %c0] parts 2 : vector<64x128xf32>, memref<2x8x?x128xf32>
      flashattn.tile_yield %ak1 : vector<128x128xf32>
    }
    %k16 = arith.truncf %r : vector<128x128xf32> to vector<128x128xf16>
    flashattn.store_tile %k16 to %dk[%b, %h, %t, %c0] dims [2, 3] in_bounds [false, true] : vector<128x128xf16>, !mem
    // expected-error @+1 {{expected dq_reduce_stages 1 or 2 for a completion counter but got 0}}
    flashattn.signal_added %told[%b, %h] : memref<2x4xi32>
  }
  return
}

// -----

#mk = affine_map<(m, n, k) -> (m, k)>
#km = affine_map<(m, n, k) -> (k, m)>
#nk = affine_map<(m, n, k) -> (n, k)>
#kn = affine_map<(m, n, k) -> (k, n)>
#mn = affine_map<(m, n, k) -> (m, n)>
!mem = memref<2x4x?x128xf16>

func.func @signal_twice(%told: memref<2x4xi32>, %k: !mem, %q: !mem, %do: !mem, %dk: !mem, %sums: memref<2x8x?x128xf32>, %tiles: index, %steps: index, %group: index) {
  %c0 = arith.constant 0 : index
  %c2 = arith.constant 2 : index
  %c4 = arith.constant 4 : index
  %zs = arith.constant dense<0.0> : vector<128x64xf32>
  %zo = arith.constant dense<0.0> : vector<128x128xf32>
  %zq = arith.constant dense<0.0> : vector<64x128xf32>
  %space = flashattn.dense_space(%c2, %c4, %tiles) axes(batch, head, key_tile)
  flashattn.program (%b, %h, %t) in %space
      schedule(<tile_m = 128, tile_n = 64, stages = 2, dot_type = f16, mapping = hopper<consumers = 2, cooperative = 1, along = query_tile, registers = 240, producer_registers = 24, rescale_threshold = 0, l2_head_group = 1>>) {
    %kt = flashattn.load_tile %k[%b, %h, %t, %c0] dims [2, 3] in_bounds [false, true] : !mem -> vector<128x128xf16>
    %r = flashattn.tile_loop (%i, %j, %g) in [(%t, %t, %steps, %steps)] rounds %group iter_args(%ak = %zo) -> (vector<128x128xf32>) {
      %first = arith.muli %h, %group : index
      %head = arith.addi %first, %g : index
      %qt = flashattn.load_tile %q[%b, %head, %j, %c0] dims [2, 3] in_bounds [false, true] : !mem -> vector<64x128xf16>
      %s = vector.contract {indexing_maps = [#mk, #nk, #mn], iterator_types = ["parallel", "parallel", "reduction"], kind = #vector.kind<add>} %kt, %qt, %zs : vector<128x128xf16>, vector<64x128xf16> into vector<128x64xf32>
      flashattn.stage
      %d16 = arith.truncf %s : vector<128x64xf32> to vector<128x64xf16>
      flashattn.stage lag 1
      %ak1 = vector.contract {indexing_maps = [#mk, #kn, #mn], iterator_types = ["parallel", "parallel", "reduction"], kind = #vector.kind<add>} %d16, %qt, %ak : vector<128x64xf16>, vector<64x128xf16> into vector<128x128xf32>
      flashattn.stage lag 1 behind 1
      %dq = vector.contract {indexing_maps = [#km, #kn, #mn], iterator_types = ["parallel", "parallel", "reduction"], kind = #vector.kind<add>} %d16, %kt, %zq : vector<128x64xf16>, vector<128x128xf16> into vector<64x128xf32>
      flashattn.add_tile %dq to %sums[%b, %head, %j, %c0] parts 2 : vector<64x128xf32>, memref<2x8x?x128xf32>
      flashattn.tile_yield %ak1 : vector<128x128xf32>
    }
    %k16 = arith.truncf %r : vector<128x128xf32> to vector<128x128xf16>
    flashattn.store_tile %k16 to %dk[%b, %h, %t, %c0] dims [2, 3] in_bounds [false, true] : vector<128x128xf16>, !mem
    flashattn.signal_added %told[%b, %h] : memref<2x4xi32>
    // expected-error @+1 {{expected at most one completion counter but got two}}
    flashattn.signal_added %told[%b, %h] : memref<2x4xi32>
  }
  return
}

// -----

#mk = affine_map<(m, n, k) -> (m, k)>
#km = affine_map<(m, n, k) -> (k, m)>
#nk = affine_map<(m, n, k) -> (n, k)>
#kn = affine_map<(m, n, k) -> (k, n)>
#mn = affine_map<(m, n, k) -> (m, n)>
!mem = memref<2x4x?x128xf16>

func.func @await_with_roles(%told: memref<2x4xi32>, %k: !mem, %q: !mem, %do: !mem, %dk: !mem, %sums: memref<2x8x?x128xf32>, %tiles: index, %steps: index, %group: index) {
  %c0 = arith.constant 0 : index
  %c2 = arith.constant 2 : index
  %c4 = arith.constant 4 : index
  %zs = arith.constant dense<0.0> : vector<128x64xf32>
  %zo = arith.constant dense<0.0> : vector<128x128xf32>
  %zq = arith.constant dense<0.0> : vector<64x128xf32>
  %space = flashattn.dense_space(%c2, %c4, %tiles) axes(batch, head, key_tile)
  flashattn.program (%b, %h, %t) in %space
      schedule(<tile_m = 128, tile_n = 64, stages = 2, dot_type = f16, mapping = hopper<consumers = 2, cooperative = 1, along = query_tile, registers = 240, producer_registers = 24, rescale_threshold = 0, l2_head_group = 1>>) {
    %kt = flashattn.load_tile %k[%b, %h, %t, %c0] dims [2, 3] in_bounds [false, true] : !mem -> vector<128x128xf16>
    %r = flashattn.tile_loop (%i, %j, %g) in [(%t, %t, %steps, %steps)] rounds %group iter_args(%ak = %zo) -> (vector<128x128xf32>) {
      %first = arith.muli %h, %group : index
      %head = arith.addi %first, %g : index
      %qt = flashattn.load_tile %q[%b, %head, %j, %c0] dims [2, 3] in_bounds [false, true] : !mem -> vector<64x128xf16>
      %s = vector.contract {indexing_maps = [#mk, #nk, #mn], iterator_types = ["parallel", "parallel", "reduction"], kind = #vector.kind<add>} %kt, %qt, %zs : vector<128x128xf16>, vector<64x128xf16> into vector<128x64xf32>
      flashattn.stage
      %d16 = arith.truncf %s : vector<128x64xf32> to vector<128x64xf16>
      flashattn.stage lag 1
      %ak1 = vector.contract {indexing_maps = [#mk, #kn, #mn], iterator_types = ["parallel", "parallel", "reduction"], kind = #vector.kind<add>} %d16, %qt, %ak : vector<128x64xf16>, vector<64x128xf16> into vector<128x128xf32>
      flashattn.stage lag 1 behind 1
      %dq = vector.contract {indexing_maps = [#km, #kn, #mn], iterator_types = ["parallel", "parallel", "reduction"], kind = #vector.kind<add>} %d16, %kt, %zq : vector<128x64xf16>, vector<128x128xf16> into vector<64x128xf32>
      flashattn.add_tile %dq to %sums[%b, %head, %j, %c0] parts 2 : vector<64x128xf32>, memref<2x8x?x128xf32>
      flashattn.tile_yield %ak1 : vector<128x128xf32>
    }
    %k16 = arith.truncf %r : vector<128x128xf32> to vector<128x128xf16>
    flashattn.store_tile %k16 to %dk[%b, %h, %t, %c0] dims [2, 3] in_bounds [false, true] : vector<128x128xf16>, !mem
    // expected-error @+1 {{expected a schedule without warp specialization but got one with mapping 'hopper'}}
    flashattn.await_added %told[%b, %h] of %tiles : memref<2x4xi32>
  }
  return
}

// -----

#mk = affine_map<(m, n, k) -> (m, k)>
#km = affine_map<(m, n, k) -> (k, m)>
#nk = affine_map<(m, n, k) -> (n, k)>
#kn = affine_map<(m, n, k) -> (k, n)>
#mn = affine_map<(m, n, k) -> (m, n)>
!mem = memref<2x4x?x128xf16>

func.func @order_behind_loop(%order: memref<2x8x?xi32>, %k: !mem, %q: !mem, %do: !mem, %dk: !mem, %sums: memref<2x8x?x128xf32>, %tiles: index, %steps: index, %group: index) {
  %c0 = arith.constant 0 : index
  %c2 = arith.constant 2 : index
  %c4 = arith.constant 4 : index
  %zs = arith.constant dense<0.0> : vector<128x64xf32>
  %zo = arith.constant dense<0.0> : vector<128x128xf32>
  %zq = arith.constant dense<0.0> : vector<64x128xf32>
  %space = flashattn.dense_space(%c2, %c4, %tiles) axes(batch, head, key_tile)
  flashattn.program (%b, %h, %t) in %space
      schedule(<tile_m = 128, tile_n = 64, stages = 2, dot_type = f16, mapping = hopper<consumers = 2, cooperative = 1, along = query_tile, registers = 240, producer_registers = 24, rescale_threshold = 0, l2_head_group = 1, dq_reduce_stages = 1>>) {
    %kt = flashattn.load_tile %k[%b, %h, %t, %c0] dims [2, 3] in_bounds [false, true] : !mem -> vector<128x128xf16>
    %r = flashattn.tile_loop (%i, %j, %g) in [(%t, %t, %steps, %steps)] rounds %group iter_args(%ak = %zo) -> (vector<128x128xf32>) {
      %first = arith.muli %h, %group : index
      %head = arith.addi %first, %g : index
      %qt = flashattn.load_tile %q[%b, %head, %j, %c0] dims [2, 3] in_bounds [false, true] : !mem -> vector<64x128xf16>
      %s = vector.contract {indexing_maps = [#mk, #nk, #mn], iterator_types = ["parallel", "parallel", "reduction"], kind = #vector.kind<add>} %kt, %qt, %zs : vector<128x128xf16>, vector<64x128xf16> into vector<128x64xf32>
      flashattn.stage
      %d16 = arith.truncf %s : vector<128x64xf32> to vector<128x64xf16>
      flashattn.stage lag 1
      %ak1 = vector.contract {indexing_maps = [#mk, #kn, #mn], iterator_types = ["parallel", "parallel", "reduction"], kind = #vector.kind<add>} %d16, %qt, %ak : vector<128x64xf16>, vector<64x128xf16> into vector<128x128xf32>
      flashattn.stage lag 1 behind 1
      %dq = vector.contract {indexing_maps = [#km, #kn, #mn], iterator_types = ["parallel", "parallel", "reduction"], kind = #vector.kind<add>} %d16, %kt, %zq : vector<128x64xf16>, vector<128x128xf16> into vector<64x128xf32>
      flashattn.add_tile %dq to %sums[%b, %head, %j, %c0] parts 2 : vector<64x128xf32>, memref<2x8x?x128xf32>
      flashattn.tile_yield %ak1 : vector<128x128xf32>
    }
    // expected-error @+1 {{expected dq_reduce_stages 1 or 2, and a tile that is added at each step, for 'order' but got a tile added outside of the loop}}
    flashattn.add_tile %r to %sums[%b, %h, %t, %c0] parts 2 order %order : memref<2x8x?xi32> : vector<128x128xf32>, memref<2x8x?x128xf32>
    %k16 = arith.truncf %r : vector<128x128xf32> to vector<128x128xf16>
    flashattn.store_tile %k16 to %dk[%b, %h, %t, %c0] dims [2, 3] in_bounds [false, true] : vector<128x128xf16>, !mem
  }
  return
}

// -----

#mk = affine_map<(m, n, k) -> (m, k)>
#km = affine_map<(m, n, k) -> (k, m)>
#nk = affine_map<(m, n, k) -> (n, k)>
#kn = affine_map<(m, n, k) -> (k, n)>
#mn = affine_map<(m, n, k) -> (m, n)>
!mem = memref<2x4x?x128xf16>

func.func @nothing_added(%order: memref<2x8x?xi32>, %k: !mem, %q: !mem, %do: !mem, %dk: !mem, %sums: memref<2x8x?x128xf32>, %tiles: index, %steps: index, %group: index) {
  %c0 = arith.constant 0 : index
  %c2 = arith.constant 2 : index
  %c4 = arith.constant 4 : index
  %zs = arith.constant dense<0.0> : vector<128x64xf32>
  %zo = arith.constant dense<0.0> : vector<128x128xf32>
  %zq = arith.constant dense<0.0> : vector<64x128xf32>
  %space = flashattn.dense_space(%c2, %c4, %tiles) axes(batch, head, key_tile)
  // expected-error @+1 {{expected dq_reduce_stages 0, unless consumers share a program, add a tile at each step and do not split the sums, but got 1}}
  flashattn.program (%b, %h, %t) in %space
      schedule(<tile_m = 128, tile_n = 64, stages = 2, dot_type = f16, mapping = hopper<consumers = 2, cooperative = 1, along = query_tile, registers = 240, producer_registers = 24, rescale_threshold = 0, l2_head_group = 1, dq_reduce_stages = 1>>) {
    %kt = flashattn.load_tile %k[%b, %h, %t, %c0] dims [2, 3] in_bounds [false, true] : !mem -> vector<128x128xf16>
    %r = flashattn.tile_loop (%i, %j, %g) in [(%t, %t, %steps, %steps)] rounds %group iter_args(%ak = %zo) -> (vector<128x128xf32>) {
      %first = arith.muli %h, %group : index
      %head = arith.addi %first, %g : index
      %qt = flashattn.load_tile %q[%b, %head, %j, %c0] dims [2, 3] in_bounds [false, true] : !mem -> vector<64x128xf16>
      %s = vector.contract {indexing_maps = [#mk, #nk, #mn], iterator_types = ["parallel", "parallel", "reduction"], kind = #vector.kind<add>} %kt, %qt, %zs : vector<128x128xf16>, vector<64x128xf16> into vector<128x64xf32>
      flashattn.stage
      %d16 = arith.truncf %s : vector<128x64xf32> to vector<128x64xf16>
      flashattn.stage lag 1
      %ak1 = vector.contract {indexing_maps = [#mk, #kn, #mn], iterator_types = ["parallel", "parallel", "reduction"], kind = #vector.kind<add>} %d16, %qt, %ak : vector<128x64xf16>, vector<64x128xf16> into vector<128x128xf32>
      flashattn.stage lag 1 behind 1
      flashattn.tile_yield %ak1 : vector<128x128xf32>
    }
    %k16 = arith.truncf %r : vector<128x128xf32> to vector<128x128xf16>
    flashattn.store_tile %k16 to %dk[%b, %h, %t, %c0] dims [2, 3] in_bounds [false, true] : vector<128x128xf16>, !mem
  }
  return
}

// -----

#mk = affine_map<(m, n, k) -> (m, k)>
#km = affine_map<(m, n, k) -> (k, m)>
#nk = affine_map<(m, n, k) -> (n, k)>
#kn = affine_map<(m, n, k) -> (k, n)>
#mn = affine_map<(m, n, k) -> (m, n)>
!mem = memref<2x4x?x128xf16>

func.func @claims_apart(%order: memref<2x8x?xi32>, %k: !mem, %q: !mem, %do: !mem, %dk: !mem, %sums: memref<2x8x?x128xf32>, %tiles: index, %steps: index, %group: index) {
  %c0 = arith.constant 0 : index
  %c2 = arith.constant 2 : index
  %c4 = arith.constant 4 : index
  %zs = arith.constant dense<0.0> : vector<64x64xf32>
  %zo = arith.constant dense<0.0> : vector<64x128xf32>
  %zq = arith.constant dense<0.0> : vector<64x128xf32>
  %space = flashattn.dense_space(%c2, %c4, %tiles) axes(batch, head, key_tile)
  // expected-error @+1 {{expected dynamic_scheduler 0 with q_stages 1, unless consumers multiply every streamed tile by resident tiles, in a loop without tile lists, compacted keys or rounds, but got 1}}
  flashattn.program (%b, %h, %t) in %space
      schedule(<tile_m = 64, tile_n = 64, stages = 2, dot_type = f16, mapping = hopper<consumers = 2, along = query_tile, registers = 240, producer_registers = 24, rescale_threshold = 0, l2_head_group = 1, dynamic_scheduler = 1>>) {
    %kt = flashattn.load_tile %k[%b, %h, %t, %c0] dims [2, 3] in_bounds [false, true] : !mem -> vector<64x128xf16>
    %r = flashattn.tile_loop (%i, %j, %g) in [(%t, %t, %steps, %steps)] rounds %group iter_args(%ak = %zo) -> (vector<64x128xf32>) {
      %first = arith.muli %h, %group : index
      %head = arith.addi %first, %g : index
      %qt = flashattn.load_tile %q[%b, %head, %j, %c0] dims [2, 3] in_bounds [false, true] : !mem -> vector<64x128xf16>
      %s = vector.contract {indexing_maps = [#mk, #nk, #mn], iterator_types = ["parallel", "parallel", "reduction"], kind = #vector.kind<add>} %kt, %qt, %zs : vector<64x128xf16>, vector<64x128xf16> into vector<64x64xf32>
      flashattn.stage
      %d16 = arith.truncf %s : vector<64x64xf32> to vector<64x64xf16>
      flashattn.stage lag 1
      %ak1 = vector.contract {indexing_maps = [#mk, #kn, #mn], iterator_types = ["parallel", "parallel", "reduction"], kind = #vector.kind<add>} %d16, %qt, %ak : vector<64x64xf16>, vector<64x128xf16> into vector<64x128xf32>
      flashattn.stage lag 1 behind 1
      flashattn.tile_yield %ak1 : vector<64x128xf32>
    }
    %k16 = arith.truncf %r : vector<64x128xf32> to vector<64x128xf16>
    flashattn.store_tile %k16 to %dk[%b, %h, %t, %c0] dims [2, 3] in_bounds [false, true] : vector<64x128xf16>, !mem
  }
  return
}

// -----

#mk = affine_map<(m, n, k) -> (m, k)>
#km = affine_map<(m, n, k) -> (k, m)>
#nk = affine_map<(m, n, k) -> (n, k)>
#kn = affine_map<(m, n, k) -> (k, n)>
#mn = affine_map<(m, n, k) -> (m, n)>
!mem = memref<2x4x?x128xf16>

func.func @claims_without_tiles(%order: memref<2x8x?xi32>, %k: !mem, %q: !mem, %do: !mem, %dk: !mem, %sums: memref<2x8x?x128xf32>, %tiles: index, %steps: index, %group: index) {
  %c0 = arith.constant 0 : index
  %c2 = arith.constant 2 : index
  %c4 = arith.constant 4 : index
  %zs = arith.constant dense<0.0> : vector<64x64xf32>
  %zo = arith.constant dense<0.0> : vector<64x128xf32>
  %zq = arith.constant dense<0.0> : vector<64x128xf32>
  %space = flashattn.dense_space(%c2, %c4, %tiles) axes(batch, head, key_tile)
  // expected-error @+1 {{expected dynamic_scheduler 0 with q_stages 1, unless consumers have resident tiles and do not split sums, but got 1}}
  flashattn.program (%b, %h, %t) in %space
      schedule(<tile_m = 64, tile_n = 64, stages = 2, dot_type = f16, mapping = hopper<consumers = 2, along = query_tile, registers = 240, producer_registers = 24, rescale_threshold = 0, l2_head_group = 1, dynamic_scheduler = 1>>) {
    %r = flashattn.tile_loop (%i, %j, %g) in [(%t, %t, %steps, %steps)] rounds %group iter_args(%ak = %zo) -> (vector<64x128xf32>) {
      %first = arith.muli %h, %group : index
      %head = arith.addi %first, %g : index
      %kt = flashattn.load_tile %k[%b, %h, %j, %c0] dims [2, 3] in_bounds [false, true] : !mem -> vector<64x128xf16>
      %qt = flashattn.load_tile %q[%b, %head, %j, %c0] dims [2, 3] in_bounds [false, true] : !mem -> vector<64x128xf16>
      %s = vector.contract {indexing_maps = [#mk, #nk, #mn], iterator_types = ["parallel", "parallel", "reduction"], kind = #vector.kind<add>} %kt, %qt, %zs : vector<64x128xf16>, vector<64x128xf16> into vector<64x64xf32>
      flashattn.stage
      %d16 = arith.truncf %s : vector<64x64xf32> to vector<64x64xf16>
      flashattn.stage lag 1
      %ak1 = vector.contract {indexing_maps = [#mk, #kn, #mn], iterator_types = ["parallel", "parallel", "reduction"], kind = #vector.kind<add>} %d16, %qt, %ak : vector<64x64xf16>, vector<64x128xf16> into vector<64x128xf32>
      flashattn.stage lag 1 behind 1
      flashattn.tile_yield %ak1 : vector<64x128xf32>
    }
    %k16 = arith.truncf %r : vector<64x128xf32> to vector<64x128xf16>
    flashattn.store_tile %k16 to %dk[%b, %h, %t, %c0] dims [2, 3] in_bounds [false, true] : vector<64x128xf16>, !mem
  }
  return
}

// -----

#mk = affine_map<(m, n, k) -> (m, k)>
#km = affine_map<(m, n, k) -> (k, m)>
#nk = affine_map<(m, n, k) -> (n, k)>
#kn = affine_map<(m, n, k) -> (k, n)>
#mn = affine_map<(m, n, k) -> (m, n)>
!mem = memref<2x4x?x128xf16>

func.func @turns_of_blocks_that_stay(%order: memref<2x8x?xi32>, %k: !mem, %q: !mem, %do: !mem, %dk: !mem, %sums: memref<2x8x?x128xf32>, %tiles: index, %steps: index, %group: index) {
  %c0 = arith.constant 0 : index
  %c2 = arith.constant 2 : index
  %c4 = arith.constant 4 : index
  %zs = arith.constant dense<0.0> : vector<128x64xf32>
  %zo = arith.constant dense<0.0> : vector<128x128xf32>
  %zq = arith.constant dense<0.0> : vector<64x128xf32>
  %space = flashattn.dense_space(%c2, %c4, %tiles) axes(batch, head, key_tile)
  // expected-error @+1 {{expected tiles added in any order in a persistent block but got tiles added in turns}}
  flashattn.program (%b, %h, %t) in %space
      schedule(<tile_m = 128, tile_n = 64, stages = 2, dot_type = f16, mapping = hopper<consumers = 2, cooperative = 1, along = query_tile, registers = 240, producer_registers = 24, rescale_threshold = 0, l2_head_group = 1, dynamic_scheduler = 1, dq_reduce_stages = 1>>) {
    %kt = flashattn.load_tile %k[%b, %h, %t, %c0] dims [2, 3] in_bounds [false, true] : !mem -> vector<128x128xf16>
    %r = flashattn.tile_loop (%i, %j, %g) in [(%t, %t, %steps, %steps)] rounds %group iter_args(%ak = %zo) -> (vector<128x128xf32>) {
      %first = arith.muli %h, %group : index
      %head = arith.addi %first, %g : index
      %qt = flashattn.load_tile %q[%b, %head, %j, %c0] dims [2, 3] in_bounds [false, true] : !mem -> vector<64x128xf16>
      %s = vector.contract {indexing_maps = [#mk, #nk, #mn], iterator_types = ["parallel", "parallel", "reduction"], kind = #vector.kind<add>} %kt, %qt, %zs : vector<128x128xf16>, vector<64x128xf16> into vector<128x64xf32>
      flashattn.stage
      %d16 = arith.truncf %s : vector<128x64xf32> to vector<128x64xf16>
      flashattn.stage lag 1
      %ak1 = vector.contract {indexing_maps = [#mk, #kn, #mn], iterator_types = ["parallel", "parallel", "reduction"], kind = #vector.kind<add>} %d16, %qt, %ak : vector<128x64xf16>, vector<64x128xf16> into vector<128x128xf32>
      flashattn.stage lag 1 behind 1
      %dq = vector.contract {indexing_maps = [#km, #kn, #mn], iterator_types = ["parallel", "parallel", "reduction"], kind = #vector.kind<add>} %d16, %kt, %zq : vector<128x64xf16>, vector<128x128xf16> into vector<64x128xf32>
      flashattn.add_tile %dq to %sums[%b, %head, %j, %c0] parts 2 order %order : memref<2x8x?xi32> turn %t : vector<64x128xf32>, memref<2x8x?x128xf32>
      flashattn.tile_yield %ak1 : vector<128x128xf32>
    }
    %k16 = arith.truncf %r : vector<128x128xf32> to vector<128x128xf16>
    flashattn.store_tile %k16 to %dk[%b, %h, %t, %c0] dims [2, 3] in_bounds [false, true] : vector<128x128xf16>, !mem
  }
  return
}

// -----

#mk = affine_map<(m, n, k) -> (m, k)>
#km = affine_map<(m, n, k) -> (k, m)>
#nk = affine_map<(m, n, k) -> (n, k)>
#kn = affine_map<(m, n, k) -> (k, n)>
#mn = affine_map<(m, n, k) -> (m, n)>
!mem = memref<2x4x?x128xf16>

func.func @condition_of_blocks_that_stay(%order: memref<2x8x?xi32>, %k: !mem, %q: !mem, %do: !mem, %dk: !mem, %sums: memref<2x8x?x128xf32>, %tiles: index, %steps: index, %group: index) {
  %c0 = arith.constant 0 : index
  %c2 = arith.constant 2 : index
  %c4 = arith.constant 4 : index
  %zs = arith.constant dense<0.0> : vector<128x64xf32>
  %zo = arith.constant dense<0.0> : vector<128x128xf32>
  %zq = arith.constant dense<0.0> : vector<64x128xf32>
  %space = flashattn.dense_space(%c2, %c4, %tiles) axes(batch, head, key_tile)
  flashattn.program (%b, %h, %t) in %space
      schedule(<tile_m = 128, tile_n = 64, stages = 2, dot_type = f16, mapping = hopper<consumers = 2, cooperative = 1, along = query_tile, registers = 240, producer_registers = 24, rescale_threshold = 0, l2_head_group = 1, dynamic_scheduler = 1>>) {
    %kt = flashattn.load_tile %k[%b, %h, %t, %c0] dims [2, 3] in_bounds [false, true] : !mem -> vector<128x128xf16>
    %any = arith.cmpi slt, %t, %steps : index
    // expected-error @+1 {{expected unconditional steps that exchange or add tiles in a persistent block}}
    %r = flashattn.tile_loop (%i, %j, %g) in [(%t, %t, %steps, %steps)] rounds %group when %any iter_args(%ak = %zo) -> (vector<128x128xf32>) {
      %first = arith.muli %h, %group : index
      %head = arith.addi %first, %g : index
      %qt = flashattn.load_tile %q[%b, %head, %j, %c0] dims [2, 3] in_bounds [false, true] : !mem -> vector<64x128xf16>
      %s = vector.contract {indexing_maps = [#mk, #nk, #mn], iterator_types = ["parallel", "parallel", "reduction"], kind = #vector.kind<add>} %kt, %qt, %zs : vector<128x128xf16>, vector<64x128xf16> into vector<128x64xf32>
      flashattn.stage
      %d16 = arith.truncf %s : vector<128x64xf32> to vector<128x64xf16>
      flashattn.stage lag 1
      %ak1 = vector.contract {indexing_maps = [#mk, #kn, #mn], iterator_types = ["parallel", "parallel", "reduction"], kind = #vector.kind<add>} %d16, %qt, %ak : vector<128x64xf16>, vector<64x128xf16> into vector<128x128xf32>
      flashattn.stage lag 1 behind 1
      %dq = vector.contract {indexing_maps = [#km, #kn, #mn], iterator_types = ["parallel", "parallel", "reduction"], kind = #vector.kind<add>} %d16, %kt, %zq : vector<128x64xf16>, vector<128x128xf16> into vector<64x128xf32>
      flashattn.add_tile %dq to %sums[%b, %head, %j, %c0] parts 2 : vector<64x128xf32>, memref<2x8x?x128xf32>
      flashattn.tile_yield %ak1 : vector<128x128xf32>
    }
    %k16 = arith.truncf %r : vector<128x128xf32> to vector<128x128xf16>
    flashattn.store_tile %k16 to %dk[%b, %h, %t, %c0] dims [2, 3] in_bounds [false, true] : vector<128x128xf16>, !mem
  }
  return
}

// -----

#mk = affine_map<(m, n, k) -> (m, k)>
#nk = affine_map<(m, n, k) -> (n, k)>
#mn = affine_map<(m, n, k) -> (m, n)>
!mem = memref<2x4x?x64xf16>

func.func @compact_resident(%q: !mem, %k: !mem, %o: memref<2x4x?x32xf32>, %tiles: index, %n: index) {
  %c0 = arith.constant 0 : index
  %c2 = arith.constant 2 : index
  %c4 = arith.constant 4 : index
  %zs = arith.constant dense<0.0> : vector<64x32xf32>
  %space = flashattn.dense_space(%c2, %c4, %tiles) axes(batch, head, query_tile)
  flashattn.program (%b, %h, %t) in %space
      schedule(<tile_m = 64, tile_n = 32, stages = 2, dot_type = f16, mapping = hopper<consumers = 1, along = query_tile, registers = 160, producer_registers = 32, rescale_threshold = 0, l2_head_group = 1>>) {
    %rows = flashattn.compact_rows starts(%n) skips(%n) lower_bounds [0]
    // expected-error @+1 {{'flashattn.load_tile' op expected compacted rows only in a tile that each step loads}}
    %qt = flashattn.load_tile %q[%b, %h, %t, %c0] dims [2, 3] rows %rows in_bounds [false, true] : !mem -> vector<64x64xf16>
    %r = flashattn.tile_loop (%i, %j) in [(%c0, %c0, %n, %n)] iter_args(%s0 = %zs) -> (vector<64x32xf32>) {
      %kt = flashattn.load_tile %k[%b, %h, %j, %c0] dims [2, 3] in_bounds [false, true] : !mem -> vector<32x64xf16>
      %s = vector.contract {indexing_maps = [#mk, #nk, #mn], iterator_types = ["parallel", "parallel", "reduction"], kind = #vector.kind<add>} %qt, %kt, %s0 : vector<64x64xf16>, vector<32x64xf16> into vector<64x32xf32>
      flashattn.tile_yield %s : vector<64x32xf32>
    }
    flashattn.store_tile %r to %o[%b, %h, %t, %c0] dims [2, 3] in_bounds [false, true] : vector<64x32xf32>, memref<2x4x?x32xf32>
  }
  return
}

// -----

#mk = affine_map<(m, n, k) -> (m, k)>
#nk = affine_map<(m, n, k) -> (n, k)>
#mn = affine_map<(m, n, k) -> (m, n)>
!mem = memref<2x4x?x64xf16>

func.func @compact_rows_of_a_step(%q: !mem, %k: !mem, %o: memref<2x4x?x32xf32>, %tiles: index, %n: index) {
  %c0 = arith.constant 0 : index
  %c2 = arith.constant 2 : index
  %c4 = arith.constant 4 : index
  %zs = arith.constant dense<0.0> : vector<64x32xf32>
  %space = flashattn.dense_space(%c2, %c4, %tiles) axes(batch, head, query_tile)
  flashattn.program (%b, %h, %t) in %space
      schedule(<tile_m = 64, tile_n = 32, stages = 2, dot_type = f16, mapping = hopper<consumers = 1, along = query_tile, registers = 160, producer_registers = 32, rescale_threshold = 0, l2_head_group = 1>>) {
    %qt = flashattn.load_tile %q[%b, %h, %t, %c0] dims [2, 3] in_bounds [false, true] : !mem -> vector<64x64xf16>
    %r = flashattn.tile_loop (%i, %j) in [(%c0, %c0, %n, %n)] iter_args(%s0 = %zs) -> (vector<64x32xf32>) {
      %rows = flashattn.compact_rows starts(%c0) skips(%j) lower_bounds [0]
      // expected-error @+1 {{'flashattn.load_tile' op expected the same compacted rows for all steps but got a start or a skip that depends on the step}}
      %kt = flashattn.load_tile %k[%b, %h, %j, %c0] dims [2, 3] rows %rows in_bounds [false, true] : !mem -> vector<32x64xf16>
      %s = vector.contract {indexing_maps = [#mk, #nk, #mn], iterator_types = ["parallel", "parallel", "reduction"], kind = #vector.kind<add>} %qt, %kt, %s0 : vector<64x64xf16>, vector<32x64xf16> into vector<64x32xf32>
      flashattn.tile_yield %s : vector<64x32xf32>
    }
    flashattn.store_tile %r to %o[%b, %h, %t, %c0] dims [2, 3] in_bounds [false, true] : vector<64x32xf32>, memref<2x4x?x32xf32>
  }
  return
}

// -----

#mk = affine_map<(m, n, k) -> (m, k)>
#nk = affine_map<(m, n, k) -> (n, k)>
#kn = affine_map<(m, n, k) -> (k, n)>
#mn = affine_map<(m, n, k) -> (m, n)>
!mem = memref<2x4x?x64xf16>

func.func @ends_of_compact_rows(%q: !mem, %k: !mem, %o: memref<2x4x?x64xf32>, %tiles: index, %n: index) {
  %c0 = arith.constant 0 : index
  %c2 = arith.constant 2 : index
  %c4 = arith.constant 4 : index
  %zs = arith.constant dense<0.0> : vector<64x32xf32>
  %zo = arith.constant dense<0.0> : vector<64x64xf32>
  %space = flashattn.dense_space(%c2, %c4, %tiles) axes(batch, head, query_tile)
  flashattn.program (%b, %h, %t) in %space
      schedule(<tile_m = 64, tile_n = 32, stages = 2, dot_type = f16, mapping = hopper<consumers = 1, along = query_tile, registers = 160, producer_registers = 32, rescale_threshold = 0, l2_head_group = 1>>) {
    %qt = flashattn.load_tile %q[%b, %h, %t, %c0] dims [2, 3] in_bounds [false, true] : !mem -> vector<64x64xf16>
    %r = flashattn.tile_loop (%i, %j) in [(%c0, %c0, %n, %n)] iter_args(%o0 = %zo) -> (vector<64x64xf32>) {
      %rows = flashattn.compact_rows below %t starts(%c0) skips(%n) lower_bounds [0]
      // expected-error @+1 {{'flashattn.load_tile' op expected the ends of compacted rows to be defined outside of the program but got 'below' defined inside}}
      %kt = flashattn.load_tile %k[%b, %h, %j, %c0] dims [2, 3] rows %rows in_bounds [false, true] : !mem -> vector<32x64xf16>
      %s = vector.contract {indexing_maps = [#mk, #nk, #mn], iterator_types = ["parallel", "parallel", "reduction"], kind = #vector.kind<add>} %qt, %kt, %zs : vector<64x64xf16>, vector<32x64xf16> into vector<64x32xf32>
      %p = arith.truncf %s : vector<64x32xf32> to vector<64x32xf16>
      %o1 = vector.contract {indexing_maps = [#mk, #kn, #mn], iterator_types = ["parallel", "parallel", "reduction"], kind = #vector.kind<add>} %p, %kt, %o0 : vector<64x32xf16>, vector<32x64xf16> into vector<64x64xf32>
      flashattn.tile_yield %o1 : vector<64x64xf32>
    }
    flashattn.store_tile %r to %o[%b, %h, %t, %c0] dims [2, 3] in_bounds [false, true] : vector<64x64xf32>, memref<2x4x?x64xf32>
  }
  return
}

// -----

#mk = affine_map<(m, n, k) -> (m, k)>
#nk = affine_map<(m, n, k) -> (n, k)>
#mn = affine_map<(m, n, k) -> (m, n)>
!mem = memref<2x4x?x64xf16>
!pool = memref<?x4x20x64xf16>

func.func @odd_pages(%q: !mem, %k: !pool, %o: memref<2x4x?x32xf32>, %tiles: index, %n: index, %table: memref<?x?xi32>) {
  %c0 = arith.constant 0 : index
  %c2 = arith.constant 2 : index
  %c4 = arith.constant 4 : index
  %zs = arith.constant dense<0.0> : vector<64x32xf32>
  %space = flashattn.dense_space(%c2, %c4, %tiles) axes(batch, head, query_tile)
  flashattn.program (%b, %h, %t) in %space
      schedule(<tile_m = 64, tile_n = 32, stages = 2, dot_type = f16, mapping = hopper<consumers = 1, along = query_tile, registers = 160, producer_registers = 32, rescale_threshold = 0, l2_head_group = 1>>) {
    %rows = flashattn.paged_rows below %n in %table[%b] size 20 from_pages(%c0) to_pages(%n) : memref<?x?xi32>
    %qt = flashattn.load_tile %q[%b, %h, %t, %c0] dims [2, 3] in_bounds [false, true] : !mem -> vector<64x64xf16>
    %r = flashattn.tile_loop (%i, %j) in [(%c0, %c0, %n, %n)] iter_args(%s0 = %zs) -> (vector<64x32xf32>) {
      %next = arith.addi %j, %c2 : index
      // expected-error @+1 {{'flashattn.load_tile' op expected pages of a multiple of 8 rows but got 20}}
      %kt = flashattn.load_tile %k[%c0, %h, %j, %c0] dims [2, 3] rows %rows in_bounds [false, true] : !pool -> vector<32x64xf16>
      %s = vector.contract {indexing_maps = [#mk, #nk, #mn], iterator_types = ["parallel", "parallel", "reduction"], kind = #vector.kind<add>} %qt, %kt, %s0 : vector<64x64xf16>, vector<32x64xf16> into vector<64x32xf32>
      flashattn.tile_yield %s : vector<64x32xf32>
    }
    flashattn.store_tile %r to %o[%b, %h, %t, %c0] dims [2, 3] in_bounds [false, true] : vector<64x32xf32>, memref<2x4x?x32xf32>
  }
  return
}

// -----

#mk = affine_map<(m, n, k) -> (m, k)>
#nk = affine_map<(m, n, k) -> (n, k)>
#mn = affine_map<(m, n, k) -> (m, n)>
!mem = memref<2x4x?x64xf16>
!pool = memref<?x4x16x64xf16>

func.func @padded_pages(%q: !mem, %k: !pool, %o: memref<2x4x?x32xf32>, %tiles: index, %n: index, %table: memref<?x?xi32>) {
  %c0 = arith.constant 0 : index
  %c2 = arith.constant 2 : index
  %c4 = arith.constant 4 : index
  %zs = arith.constant dense<0.0> : vector<64x32xf32>
  %space = flashattn.dense_space(%c2, %c4, %tiles) axes(batch, head, query_tile)
  flashattn.program (%b, %h, %t) in %space
      schedule(<tile_m = 64, tile_n = 32, stages = 2, dot_type = f16, mapping = hopper<consumers = 1, along = query_tile, registers = 160, producer_registers = 32, rescale_threshold = 0, l2_head_group = 1>>) {
    %rows = flashattn.paged_rows below %n first %n in %table[%b] size 16 from_pages(%c0) to_pages(%n) : memref<?x?xi32>
    %qt = flashattn.load_tile %q[%b, %h, %t, %c0] dims [2, 3] in_bounds [false, true] : !mem -> vector<64x64xf16>
    %r = flashattn.tile_loop (%i, %j) in [(%c0, %c0, %n, %n)] iter_args(%s0 = %zs) -> (vector<64x32xf32>) {
      %next = arith.addi %j, %c2 : index
      // expected-error @+1 {{'flashattn.load_tile' op expected paged rows without 'first' but got 'first'}}
      %kt = flashattn.load_tile %k[%c0, %h, %j, %c0] dims [2, 3] rows %rows in_bounds [false, true] : !pool -> vector<32x64xf16>
      %s = vector.contract {indexing_maps = [#mk, #nk, #mn], iterator_types = ["parallel", "parallel", "reduction"], kind = #vector.kind<add>} %qt, %kt, %s0 : vector<64x64xf16>, vector<32x64xf16> into vector<64x32xf32>
      flashattn.tile_yield %s : vector<64x32xf32>
    }
    flashattn.store_tile %r to %o[%b, %h, %t, %c0] dims [2, 3] in_bounds [false, true] : vector<64x32xf32>, memref<2x4x?x32xf32>
  }
  return
}

// -----

#mk = affine_map<(m, n, k) -> (m, k)>
#nk = affine_map<(m, n, k) -> (n, k)>
#mn = affine_map<(m, n, k) -> (m, n)>
!mem = memref<2x4x?x64xf16>
!pool = memref<?x4x16x64xf16>

func.func @pages_of_another_step(%q: !mem, %k: !pool, %o: memref<2x4x?x32xf32>, %tiles: index, %n: index, %table: memref<?x?xi32>) {
  %c0 = arith.constant 0 : index
  %c2 = arith.constant 2 : index
  %c4 = arith.constant 4 : index
  %zs = arith.constant dense<0.0> : vector<64x32xf32>
  %space = flashattn.dense_space(%c2, %c4, %tiles) axes(batch, head, query_tile)
  flashattn.program (%b, %h, %t) in %space
      schedule(<tile_m = 64, tile_n = 32, stages = 2, dot_type = f16, mapping = hopper<consumers = 1, along = query_tile, registers = 160, producer_registers = 32, rescale_threshold = 0, l2_head_group = 1>>) {
    %rows = flashattn.paged_rows below %n in %table[%b] size 16 from_pages(%c0) to_pages(%n) : memref<?x?xi32>
    %qt = flashattn.load_tile %q[%b, %h, %t, %c0] dims [2, 3] in_bounds [false, true] : !mem -> vector<64x64xf16>
    %r = flashattn.tile_loop (%i, %j) in [(%c0, %c0, %n, %n)] iter_args(%s0 = %zs) -> (vector<64x32xf32>) {
      %next = arith.addi %j, %c2 : index
      // expected-error @+1 {{'flashattn.load_tile' op expected all tiles of a step in the same pages but got others}}
      %kt = flashattn.load_tile %k[%c0, %h, %next, %c0] dims [2, 3] rows %rows in_bounds [false, true] : !pool -> vector<32x64xf16>
      %s = vector.contract {indexing_maps = [#mk, #nk, #mn], iterator_types = ["parallel", "parallel", "reduction"], kind = #vector.kind<add>} %qt, %kt, %s0 : vector<64x64xf16>, vector<32x64xf16> into vector<64x32xf32>
      flashattn.tile_yield %s : vector<64x32xf32>
    }
    flashattn.store_tile %r to %o[%b, %h, %t, %c0] dims [2, 3] in_bounds [false, true] : vector<64x32xf32>, memref<2x4x?x32xf32>
  }
  return
}

// -----

// Warps that convert tiles of 8 bits (F1) cannot signal that the queries of the next group may be loaded.
func.func @eight_bits_one_slot(%q: memref<1x1x64x128xf16>, %k: memref<1x1x256x128xf8E4M3FN>, %o: memref<1x1x64x128xf16>) {
  // expected-error @+1 {{'flashattn.program' op expected tiles of 16 bits with dynamic_scheduler and q_stages 1 but got 8 bits}}
  flashattn.attention schedule(<tile_m = 64, tile_n = 64, stages = 2, dot_type = f16,
      mapping = hopper<consumers = 1, along = query_tile, registers = 200, producer_registers = 56, rescale_threshold = 1, l2_head_group = 1, blocks_per_sm = 1, dynamic_scheduler = 1>>)
      ins(%q, %k, %k : memref<1x1x64x128xf16>, memref<1x1x256x128xf8E4M3FN>, memref<1x1x256x128xf8E4M3FN>)
      outs(%o : memref<1x1x64x128xf16>)
  return
}

// -----

// Scales of rows have no row map of compacted keys.
func.func @eight_bits_compact(%q: memref<1x1x64x128xf16>, %k: memref<1x1x256x128xf8E4M3FN>, %o: memref<1x1x64x128xf16>) {
  // expected-error @+1 {{'flashattn.program' op expected tiles of 16 bits with compact_kv but got 8 bits}}
  flashattn.attention mask(#flashattn.any_of<[#flashattn.window<left = 100, right = 0>, #flashattn.all_of<[#flashattn.sink<4>, #flashattn.causal]>]>)
      schedule(<tile_m = 64, tile_n = 64, stages = 2, dot_type = f16, mapping = hopper<consumers = 1, along = query_tile, registers = 200, producer_registers = 56, rescale_threshold = 1, l2_head_group = 1, blocks_per_sm = 1, compact_kv = 1>>)
      ins(%q, %k, %k : memref<1x1x64x128xf16>, memref<1x1x256x128xf8E4M3FN>, memref<1x1x256x128xf8E4M3FN>)
      outs(%o : memref<1x1x64x128xf16>)
  return
}
