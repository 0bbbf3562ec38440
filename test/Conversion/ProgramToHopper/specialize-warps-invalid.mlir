// RUN: flash-opt %s -split-input-file -verify-diagnostics -flashattn-specialize-warps

#mk = affine_map<(m, n, k) -> (m, k)>
#nk = affine_map<(m, n, k) -> (n, k)>
#mn = affine_map<(m, n, k) -> (m, n)>

func.func @axes(%q: memref<?x?x?x64xf16>, %k: memref<?x?x?x64xf16>, %n: index) {
  %c0 = arith.constant 0 : index
  %none = arith.constant dense<0.0> : vector<64x32xf32>
  // expected-error @+1 {{expected axes(batch, head, query_tile) or (batch, head, key_tile) where the schedule has roles, or (batch, head, query_tile, key_tile) where a block has one program, but got}}
  flashattn.program (%b, %h) in (%n, %n) axes(batch, head)
      schedule(<tile_m = 64, tile_n = 32, warps = 4, stages = 2, lanes = 4, dot_type = f16, roles = <consumers = 2, along = query_tile, registers = 240, producer_registers = 24, rescale = 0, section = 1>>) {
  }
  return
}

// -----

func.func @both_tiles(%n: index) {
  // expected-error @+1 {{expected axes(batch, head, query_tile) or (batch, head, key_tile) where the schedule has roles, or (batch, head, query_tile, key_tile) where a block has one program, but got}}
  flashattn.program (%b, %h, %t, %u) in (%n, %n, %n, %n) axes(batch, head, query_tile, key_tile)
      schedule(<tile_m = 64, tile_n = 32, warps = 4, stages = 2, lanes = 4, dot_type = f16, roles = <consumers = 2, along = query_tile, registers = 240, producer_registers = 24, rescale = 0, section = 1>>) {
  }
  return
}

// -----

#mk = affine_map<(m, n, k) -> (m, k)>
#nk = affine_map<(m, n, k) -> (n, k)>
#mn = affine_map<(m, n, k) -> (m, n)>

// A program with roles brings tiles to those who have them.
func.func @no_stream(%q: memref<?x?x?x64xf16>, %k: memref<?x?x?x64xf16>, %n: index) {
  %c0 = arith.constant 0 : index
  %none = arith.constant dense<0.0> : vector<64x32xf32>
  // expected-error @+1 {{expected one loop that streams tiles for contractions but got 0}}
  flashattn.program (%b, %h, %t) in (%n, %n, %n) axes(batch, head, query_tile)
      schedule(<tile_m = 64, tile_n = 32, warps = 4, stages = 2, lanes = 4, dot_type = f16, roles = <consumers = 2, along = query_tile, registers = 240, producer_registers = 24, rescale = 0, section = 1>>) {
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
  // expected-error @+1 {{expected one loop that streams tiles for contractions but got 0}}
  flashattn.program (%b, %h, %t) in (%n, %n, %n) axes(batch, head, query_tile)
      schedule(<tile_m = 64, tile_n = 32, warps = 4, stages = 2, lanes = 4, dot_type = f16, roles = <consumers = 2, along = query_tile, registers = 240, producer_registers = 24, rescale = 0, section = 1>>) {
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
  // expected-error @+1 {{expected one loop that streams tiles for contractions but got 2}}
  flashattn.program (%b, %h, %t) in (%n, %n, %n) axes(batch, head, query_tile)
      schedule(<tile_m = 64, tile_n = 32, warps = 4, stages = 2, lanes = 4, dot_type = f16, roles = <consumers = 2, along = query_tile, registers = 240, producer_registers = 24, rescale = 0, section = 1>>) {
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
  flashattn.program (%b, %h, %t) in (%n, %n, %n) axes(batch, head, query_tile)
      schedule(<tile_m = 64, tile_n = 32, warps = 4, stages = 2, lanes = 4, dot_type = f16, roles = <consumers = 2, along = query_tile, registers = 240, producer_registers = 24, rescale = 0, section = 1>>) {
    %qt = flashattn.load_tile %q[%b, %h, %t, %c0] dims [2, 3] in_bounds [false, true] : memref<?x?x?x64xf16> -> vector<64x64xf16>
    scf.if %c {
      // expected-error @+1 {{expected the loop that streams tiles directly in the program but got it in 'scf.if'}}
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
  flashattn.program (%b, %h, %t) in (%n, %n, %n) axes(batch, head, query_tile)
      schedule(<tile_m = 64, tile_n = 32, warps = 4, stages = 2, lanes = 4, dot_type = f16, roles = <consumers = 2, along = query_tile, registers = 240, producer_registers = 24, rescale = 0, section = 1>>) {
    %qt = flashattn.load_tile %q[%b, %h, %t, %c0] dims [2, 3] in_bounds [false, true] : memref<?x?x?x64xf16> -> vector<64x64xf16>
    %r = flashattn.tile_loop (%i, %j) in [(%c0, %c0, %n, %n)] iter_args(%acc = %none) -> (vector<64x32xf32>) {
      %kt = flashattn.load_tile %k[%b, %h, %j, %c0] dims [2, 3] in_bounds [false, true] : memref<?x?x?x64xf16> -> vector<32x64xf16>
      // expected-error @+1 {{expected a tile that contractions read to be loaded in the program itself, or one for each step of its loop, but got neither}}
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
  flashattn.program (%b, %h, %t) in (%n, %n, %n) axes(batch, head, query_tile)
      schedule(<tile_m = 64, tile_n = 32, warps = 4, stages = 2, lanes = 4, dot_type = f16, roles = <consumers = 2, along = query_tile, registers = 240, producer_registers = 24, rescale = 0, section = 1>>) {
    %qt = flashattn.load_tile %q[%b, %h, %t, %c0] dims [2, 3] in_bounds [false, true] : memref<?x?x?x64xf16> -> vector<64x64xf16>
    %r = flashattn.tile_loop (%i, %j) in [(%c0, %c0, %n, %n)] iter_args(%acc = %none) -> (vector<64x32xf32>) {
      // expected-error @+1 {{expected contractions alone to read a tile in shared memory but got 'arith.extf'}}
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
  flashattn.program (%b, %h, %t) in (%n, %n, %n) axes(batch, head, query_tile)
      schedule(<tile_m = 64, tile_n = 32, warps = 4, stages = 2, lanes = 4, dot_type = f16, roles = <consumers = 2, along = query_tile, registers = 240, producer_registers = 24, rescale = 0, section = 1>>) {
    // expected-error @+1 {{expected elements of f16 or bf16, as tensor copies need, but got 'memref<?x?x?x64xf32>' and 'vector<64x64xf32>'}}
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
  flashattn.program (%b, %h, %t) in (%n, %n, %n) axes(batch, head, query_tile)
      schedule(<tile_m = 64, tile_n = 32, warps = 4, stages = 2, lanes = 4, dot_type = f16, roles = <consumers = 2, along = query_tile, registers = 240, producer_registers = 24, rescale = 0, section = 1>>) {
    %qt = flashattn.load_tile %q[%b, %h, %t, %c0] dims [2, 3] in_bounds [false, true] : memref<?x?x?x64xf16> -> vector<64x64xf16>
    %r = flashattn.tile_loop (%i, %j) in [(%c0, %c0, %n, %n)] iter_args(%acc = %none) -> (vector<64x32xf32>) {
      // expected-error @+1 {{expected a memref of 2 to 5 dimensions, as tensor copies need, but got 'memref<?x?x?x?x?x64xf16>' and 'vector<32x64xf16>'}}
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
  flashattn.program (%b, %h, %t) in (%n, %n, %n) axes(batch, head, query_tile)
      schedule(<tile_m = 64, tile_n = 32, warps = 4, stages = 2, lanes = 4, dot_type = f16, roles = <consumers = 2, along = query_tile, registers = 240, producer_registers = 24, rescale = 0, section = 1>>) {
    %qt = flashattn.load_tile %q[%b, %h, %t, %c0] dims [2, 3] in_bounds [false, true] : memref<?x?x?x64xf16> -> vector<64x64xf16>
    %r = flashattn.tile_loop (%i, %j) in [(%c0, %c0, %n, %n)] iter_args(%acc = %none) -> (vector<64x32xf32>) {
      // expected-error @+1 {{expected rows along one or two dimensions, in their order, and columns along the last, as tensor copies need, but got 'memref<?x?x64x?xf16>' and 'vector<32x64xf16>'}}
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
  flashattn.program (%b, %h, %t) in (%n, %n, %n) axes(batch, head, query_tile)
      schedule(<tile_m = 64, tile_n = 32, warps = 4, stages = 2, lanes = 4, dot_type = f16, roles = <consumers = 2, along = query_tile, registers = 240, producer_registers = 24, rescale = 0, section = 1>>) {
    %qt = flashattn.load_tile %q[%b, %h, %t, %c0] dims [2, 3] in_bounds [false, true] : memref<?x?x?x64xf16> -> vector<64x64xf16>
    %r = flashattn.tile_loop (%i, %j) in [(%c0, %c0, %n, %n)] iter_args(%acc = %few) -> (vector<64x20xf32>) {
      // expected-error @+1 {{expected up to 256 rows, a multiple of 8, as tensor copies need, but got 'memref<?x?x?x64xf16>' and 'vector<20x64xf16>'}}
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
  flashattn.program (%b, %h, %t) in (%n, %n, %n) axes(batch, head, query_tile)
      schedule(<tile_m = 64, tile_n = 32, warps = 4, stages = 2, lanes = 4, dot_type = f16, roles = <consumers = 2, along = query_tile, registers = 240, producer_registers = 24, rescale = 0, section = 1>>) {
    %qt = flashattn.load_tile %q[%b, %h, %t, %c0] dims [2, 3] in_bounds [false, true] : memref<?x?x?x64xf16> -> vector<64x64xf16>
    %r = flashattn.tile_loop (%i, %j) in [(%c0, %c0, %n, %n)] iter_args(%acc = %none) -> (vector<64x32xf32>) {
      // expected-error @+1 {{expected rows that begin at multiples of 16 bytes, as tensor copies need, but got}}
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
  flashattn.program (%b, %h, %t) in (%n, %n, %n) axes(batch, head, query_tile)
      schedule(<tile_m = 64, tile_n = 32, warps = 4, stages = 2, lanes = 4, dot_type = f16, roles = <consumers = 2, along = query_tile, registers = 240, producer_registers = 24, rescale = 0, section = 1>>) {
    %qt = flashattn.load_tile %q[%b, %h, %t, %c0] dims [2, 3] in_bounds [false, true] : memref<?x?x?x64xf16> -> vector<64x64xf16>
    %part = memref.subview %k[0, 0, 8, 0] [2, 2, 64, 64] [1, 1, 1, 1] : memref<2x2x512x64xf16> to memref<2x2x64x64xf16, strided<[65536, 32768, 64, 1], offset: 512>>
    %r = flashattn.tile_loop (%i, %j) in [(%c0, %c0, %n, %n)] iter_args(%acc = %none) -> (vector<64x32xf32>) {
      // expected-error @+1 {{expected a memref from outside of the program, of which the host makes a tensor map, but got a result of 'memref.subview'}}
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
  flashattn.program (%b, %h, %t) in (%n, %n, %n) axes(batch, head, query_tile)
      schedule(<tile_m = 64, tile_n = 32, warps = 4, stages = 2, lanes = 4, dot_type = f16, roles = <consumers = 2, along = query_tile, registers = 240, producer_registers = 24, rescale = 0, section = 1>>) {
    %qt = flashattn.load_tile %q[%b, %h, %t, %c0] dims [2, 3] in_bounds [false, true] : memref<?x?x?x64xf16> -> vector<64x64xf16>
    %r = flashattn.tile_loop (%i, %j) in [(%c0, %c0, %n, %n)] iter_args(%acc = %none) -> (vector<64x32xf32>) {
      %head = arith.addi %h, %i : index
      // expected-error @+1 {{expected an index along dimension 1 of the step's tile and round alone but got one that depends on the loop's state}}
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
  flashattn.program (%b, %h, %t) in (%n, %n, %n) axes(batch, head, query_tile)
      schedule(<tile_m = 64, tile_n = 32, warps = 4, stages = 2, lanes = 4, dot_type = bf16, roles = <consumers = 2, along = query_tile, registers = 240, producer_registers = 24, rescale = 0, section = 1>>) {
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
  // expected-error @+1 {{expected tile_m to be 64, or 64 for each of 3 consumers, but got 128}}
  flashattn.program (%b, %h, %t) in (%n, %n, %n) axes(batch, head, key_tile)
      schedule(<tile_m = 128, tile_n = 64, warps = 8, stages = 2, lanes = 4, dot_type = f16, roles = <consumers = 3, along = query_tile, registers = 240, producer_registers = 24, rescale = 0, section = 1>>) {
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
  flashattn.program (%b, %h, %t) in (%n, %n, %n) axes(batch, head, key_tile)
      schedule(<tile_m = 128, tile_n = 64, warps = 8, stages = 2, lanes = 4, dot_type = f16, roles = <consumers = 2, along = query_tile, registers = 240, producer_registers = 24, rescale = 0, section = 1>>) {
    %qt = flashattn.load_tile %q[%b, %h, %t, %c0] dims [2, 3] in_bounds [false, true] : memref<?x?x?x64xf16> -> vector<128x64xf16>
    %r = flashattn.tile_loop (%i, %j) in [(%c0, %c0, %n, %n)] iter_args(%acc = %none) -> (vector<128x64xf32>) {
      %kt = flashattn.load_tile %k[%b, %h, %j, %c0] dims [2, 3] in_bounds [false, true] : memref<?x?x?x64xf16> -> vector<64x64xf16>
      %s = vector.contract {indexing_maps = [#mk, #nk, #mn], iterator_types = ["parallel", "parallel", "reduction"], kind = #vector.kind<add>} %qt, %kt, %acc : vector<128x64xf16>, vector<64x64xf16> into vector<128x64xf32>
      // expected-error @+1 {{expected a transposed left-hand side that is made in the loop}}
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
  // expected-error @+1 {{expected consumers to share a program that multiplies by a transposed tile or adds tiles, but got tile_m 64 for 2 consumers}}
  flashattn.program (%b, %h, %t) in (%n, %n, %n) axes(batch, head, key_tile)
      schedule(<tile_m = 64, tile_n = 64, warps = 4, stages = 2, lanes = 4, dot_type = f16, roles = <consumers = 2, along = query_tile, registers = 240, producer_registers = 24, rescale = 0, section = 1>>) {
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
  // expected-error @+1 {{expected consumers to share a program that multiplies by a transposed tile or adds tiles, but got tile_m 64 for 2 consumers}}
  flashattn.program (%b, %h, %t) in (%n, %n, %n) axes(batch, head, key_tile)
      schedule(<tile_m = 64, tile_n = 64, warps = 4, stages = 2, lanes = 4, dot_type = f16, roles = <consumers = 2, along = query_tile, registers = 240, producer_registers = 24, rescale = 0, section = 1>>) {
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
  flashattn.program (%b, %h, %t) in (%n, %n, %n) axes(batch, head, key_tile)
      schedule(<tile_m = 128, tile_n = 64, warps = 8, stages = 2, lanes = 4, dot_type = f16, roles = <consumers = 2, along = query_tile, registers = 240, producer_registers = 24, rescale = 0, section = 1>>) {
    %qt = flashattn.load_tile %q[%b, %h, %t, %c0] dims [2, 3] in_bounds [false, true] : memref<?x?x?x64xf16> -> vector<128x64xf16>
    %r = flashattn.tile_loop (%i, %j) in [(%c0, %c0, %n, %n)] iter_args(%acc = %none) -> (vector<128x64xf32>) {
      %kt = flashattn.load_tile %k[%b, %h, %j, %c0] dims [2, 3] in_bounds [false, true] : memref<?x?x?x64xf16> -> vector<64x64xf16>
      %s = vector.contract {indexing_maps = [#mk, #nk, #mn], iterator_types = ["parallel", "parallel", "reduction"], kind = #vector.kind<add>} %qt, %kt, %acc : vector<128x64xf16>, vector<64x64xf16> into vector<128x64xf32>
      flashattn.add_tile %zeros to %sums[%j, %c0] parts 1 : vector<64x64xf32>, memref<?x64xf32>
      // expected-error @+1 {{expected at most one tile of a step to be added}}
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
  flashattn.program (%b, %h, %t) in (%n, %n, %n) axes(batch, head, key_tile)
      schedule(<tile_m = 128, tile_n = 64, warps = 8, stages = 2, lanes = 4, dot_type = f16, roles = <consumers = 2, along = query_tile, registers = 240, producer_registers = 24, rescale = 0, section = 1>>) {
    %qt = flashattn.load_tile %q[%b, %h, %t, %c0] dims [2, 3] in_bounds [false, true] : memref<?x?x?x64xf16> -> vector<128x64xf16>
    %r = flashattn.tile_loop (%i, %j) in [(%c0, %c0, %n, %n)] iter_args(%acc = %none) -> (vector<128x64xf32>) {
      %kt = flashattn.load_tile %k[%b, %h, %j, %c0] dims [2, 3] in_bounds [false, true] : memref<?x?x?x64xf16> -> vector<64x64xf16>
      %s = vector.contract {indexing_maps = [#mk, #nk, #mn], iterator_types = ["parallel", "parallel", "reduction"], kind = #vector.kind<add>} %qt, %kt, %acc : vector<128x64xf16>, vector<64x64xf16> into vector<128x64xf32>
      flashattn.add_tile %zeros to %sums[%j, %c0] parts 1 : vector<64x64xf32>, memref<?x64xf32>
      flashattn.tile_yield %s : vector<128x64xf32>
    }
    // expected-error @+1 {{expected parts of 4096 elements, as few as another tile has, but got 1 parts of 'vector<128x64xf32>'}}
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
  flashattn.program (%b, %h, %t) in (%n, %n, %n) axes(batch, head, key_tile)
      schedule(<tile_m = 128, tile_n = 64, warps = 8, stages = 2, lanes = 4, dot_type = f16, roles = <consumers = 2, along = query_tile, registers = 240, producer_registers = 24, rescale = 0, section = 1>>) {
    %qt = flashattn.load_tile %q[%b, %h, %t, %c0] dims [2, 3] in_bounds [false, true] : memref<?x?x?x64xf16> -> vector<128x64xf16>
    %r = flashattn.tile_loop (%i, %j) in [(%c0, %c0, %n, %n)] iter_args(%acc = %none) -> (vector<128x64xf32>) {
      %kt = flashattn.load_tile %k[%b, %h, %j, %c0] dims [2, 3] in_bounds [false, true] : memref<?x?x?x64xf16> -> vector<64x64xf16>
      %s = vector.contract {indexing_maps = [#mk, #nk, #mn], iterator_types = ["parallel", "parallel", "reduction"], kind = #vector.kind<add>} %qt, %kt, %acc : vector<128x64xf16>, vector<64x64xf16> into vector<128x64xf32>
      flashattn.add_tile %zeros to %sums[%j, %c0] parts 1 : vector<64x64xf32>, memref<?x64xf32>
      flashattn.tile_yield %s : vector<128x64xf32>
    }
    // expected-error @+1 {{expected turns only in steps over one interval of tiles but got one outside of them}}
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
  flashattn.program (%b, %h, %t) in (%n, %n, %n) axes(batch, head, key_tile)
      schedule(<tile_m = 128, tile_n = 64, warps = 8, stages = 2, lanes = 4, dot_type = f16, roles = <consumers = 2, along = query_tile, registers = 240, producer_registers = 24, rescale = 0, section = 1>>) {
    %qt = flashattn.load_tile %q[%b, %h, %t, %c0] dims [2, 3] in_bounds [false, true] : memref<?x?x?x64xf16> -> vector<128x64xf16>
    %r = flashattn.tile_loop (%i, %j) in [(%c0, %c0, %n, %n), (%n, %n, %t, %t)] iter_args(%acc = %none) -> (vector<128x64xf32>) {
      %kt = flashattn.load_tile %k[%b, %h, %j, %c0] dims [2, 3] in_bounds [false, true] : memref<?x?x?x64xf16> -> vector<64x64xf16>
      %s = vector.contract {indexing_maps = [#mk, #nk, #mn], iterator_types = ["parallel", "parallel", "reduction"], kind = #vector.kind<add>} %qt, %kt, %acc : vector<128x64xf16>, vector<64x64xf16> into vector<128x64xf32>
      // expected-error @+1 {{expected turns only in steps over one interval of tiles but got 2 intervals}}
      flashattn.add_tile %zeros to %sums[%j, %c0] parts 1 order %order : memref<?xi32> turn %t : vector<64x64xf32>, memref<?x64xf32>
      flashattn.tile_yield %s : vector<128x64xf32>
    }
  }
  return
}
