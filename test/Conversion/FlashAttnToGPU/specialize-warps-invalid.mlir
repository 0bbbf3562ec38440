// RUN: flash-opt %s -split-input-file -verify-diagnostics -flashattn-tile -flashattn-specialize-warps

#schedule = #flashattn.schedule<tile_m = 64, tile_n = 32, warps = 4, stages = 2, lanes = 4, dot_type = f16, roles = <consumers = 2, along = query_tile, registers = 240, producer_registers = 24, rescale = 8, section = 1>>

// The key loops as flashattn-tile makes them.
func.func @not_pipelined(%q: memref<?x?x?x64xf16>, %o: memref<?x?x?x64xf16>) {
  // expected-error@+1 {{expected the key loops as flashattn-tile and flashattn-pipeline-keys leave them, with no simplification in between, but got no key loops with 'flashattn.key_run'}}
  flashattn.attention schedule(#schedule)
    ins(%q, %q, %q : memref<?x?x?x64xf16>, memref<?x?x?x64xf16>, memref<?x?x?x64xf16>)
    outs(%o : memref<?x?x?x64xf16>)
  return
}

// -----

#schedule = #flashattn.schedule<tile_m = 64, tile_n = 32, warps = 4, stages = 2, lanes = 4, dot_type = f16, roles = <consumers = 2, along = query_tile, registers = 240, producer_registers = 24, rescale = 8, section = 1>>

func.func @two_dimensions(%n: index) {
  // expected-error@+1 {{expected a tile program over (batch, head, query tile) that counts from 0 by 1}}
  scf.forall (%b, %h) in (%n, %n) {
  } {flashattn.schedule = #schedule}
  return
}

// -----

#schedule = #flashattn.schedule<tile_m = 64, tile_n = 32, warps = 4, stages = 2, lanes = 4, dot_type = f16, roles = <consumers = 2, along = query_tile, registers = 240, producer_registers = 24, rescale = 8, section = 1>>

func.func @step(%n: index) {
  // expected-error@+1 {{expected a tile program over (batch, head, query tile) that counts from 0 by 1}}
  scf.forall (%b, %h, %t) = (0, 0, 0) to (%n, %n, %n) step (1, 1, 64) {
  } {flashattn.schedule = #schedule}
  return
}

// -----

#schedule = #flashattn.schedule<tile_m = 64, tile_n = 32, warps = 4, stages = 2, lanes = 4, dot_type = f16, roles = <consumers = 2, along = query_tile, registers = 240, producer_registers = 24, rescale = 8, section = 1>>

// A row that is no multiple of the tile's rows: no number of a tile.
func.func @row(%q: memref<?x64xf16>, %n: index) {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %zero = arith.constant 0.0 : f16
  %none = arith.constant dense<0.0> : vector<64x32xf32>
  scf.forall (%b, %h, %t) in (%n, %n, %n) {
    %qt = vector.transfer_read %q[%t, %c0], %zero {in_bounds = [false, true]} : memref<?x64xf16>, vector<64x64xf16>
    %r = scf.for %j = %c0 to %n step %c1 iter_args(%acc = %none) -> (vector<64x32xf32>) {
      // expected-error@+1 {{expected the read of a key tile, used once as the right-hand side of a contraction}}
      %kt = vector.transfer_read %q[%j, %c0], %zero {in_bounds = [false, true]} : memref<?x64xf16>, vector<32x64xf16>
      %s = vector.contract {indexing_maps = [affine_map<(m, n, k) -> (m, k)>, affine_map<(m, n, k) -> (n, k)>, affine_map<(m, n, k) -> (m, n)>], iterator_types = ["parallel", "parallel", "reduction"], kind = #vector.kind<add>} %qt, %kt, %acc : vector<64x64xf16>, vector<32x64xf16> into vector<64x32xf32>
      scf.yield %s : vector<64x32xf32>
    }
  } {flashattn.schedule = #schedule}
  return
}

// -----

#schedule = #flashattn.schedule<tile_m = 64, tile_n = 32, warps = 4, stages = 2, lanes = 4, dot_type = f16, roles = <consumers = 2, along = query_tile, registers = 240, producer_registers = 24, rescale = 8, section = 1>>

// A read for two uses.
func.func @uses(%q: memref<?x64xf16>, %n: index) {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %c32 = arith.constant 32 : index
  %zero = arith.constant 0.0 : f16
  %none = arith.constant dense<0.0> : vector<64x32xf32>
  scf.forall (%b, %h, %t) in (%n, %n, %n) {
    %qt = vector.transfer_read %q[%t, %c0], %zero {in_bounds = [false, true]} : memref<?x64xf16>, vector<64x64xf16>
    %r = scf.for %j = %c0 to %n step %c1 iter_args(%acc = %none) -> (vector<64x32xf32>) {
      %row = arith.muli %j, %c32 : index
      // expected-error@+1 {{expected the read of a key tile, used once as the right-hand side of a contraction}}
      %kt = vector.transfer_read %q[%row, %c0], %zero {in_bounds = [false, true]} : memref<?x64xf16>, vector<32x64xf16>
      %s = vector.contract {indexing_maps = [affine_map<(m, n, k) -> (m, k)>, affine_map<(m, n, k) -> (n, k)>, affine_map<(m, n, k) -> (m, n)>], iterator_types = ["parallel", "parallel", "reduction"], kind = #vector.kind<add>} %qt, %kt, %acc : vector<64x64xf16>, vector<32x64xf16> into vector<64x32xf32>
      %s2 = vector.contract {indexing_maps = [affine_map<(m, n, k) -> (m, k)>, affine_map<(m, n, k) -> (n, k)>, affine_map<(m, n, k) -> (m, n)>], iterator_types = ["parallel", "parallel", "reduction"], kind = #vector.kind<add>} %qt, %kt, %s : vector<64x64xf16>, vector<32x64xf16> into vector<64x32xf32>
      scf.yield %s2 : vector<64x32xf32>
    }
  } {flashattn.schedule = #schedule}
  return
}
