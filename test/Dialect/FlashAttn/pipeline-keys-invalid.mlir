// RUN: flash-opt %s -split-input-file -verify-diagnostics -flashattn-pipeline-keys

#roles = #flashattn.schedule<tile_m = 64, tile_n = 32, warps = 4, stages = 2, lanes = 4, dot_type = f16, roles = <consumers = 2, along = query_tile, registers = 240, producer_registers = 24, rescale = 8, section = 1>>

// A loop with one product.
func.func @one(%q: vector<64x64xf16>, %k: memref<?x64xf16>, %n: index, %s: vector<64x32xf32>) {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %zero = arith.constant 0.0 : f16
  scf.forall (%b, %h, %t) in (%n, %n, %n) {
    // expected-error@+1 {{expected a key loop with two contractions, the second of which reads its right-hand side from memory and is yielded}}
    %r = scf.for %j = %c0 to %n step %c1 iter_args(%acc = %s) -> (vector<64x32xf32>) {
      %kt = vector.transfer_read %k[%j, %c0], %zero {in_bounds = [true, true]} : memref<?x64xf16>, vector<32x64xf16>
      %x = vector.contract {indexing_maps = [affine_map<(m, n, k) -> (m, k)>, affine_map<(m, n, k) -> (n, k)>, affine_map<(m, n, k) -> (m, n)>], iterator_types = ["parallel", "parallel", "reduction"], kind = #vector.kind<add>} %q, %kt, %acc : vector<64x64xf16>, vector<32x64xf16> into vector<64x32xf32>
      scf.yield %x : vector<64x32xf32>
    }
  } {flashattn.schedule = #roles}
  return
}

// -----

#roles = #flashattn.schedule<tile_m = 64, tile_n = 32, warps = 4, stages = 2, lanes = 4, dot_type = f16, roles = <consumers = 2, along = query_tile, registers = 240, producer_registers = 24, rescale = 8, section = 1>>

// The values do not come from memory.
func.func @values(%q: vector<64x64xf16>, %k: memref<?x64xf16>, %v: vector<32x64xf16>, %n: index, %s: vector<64x32xf32>, %o: vector<64x64xf32>) {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %zero = arith.constant 0.0 : f16
  scf.forall (%b, %h, %t) in (%n, %n, %n) {
    // expected-error@+1 {{expected a key loop with two contractions}}
    %r = scf.for %j = %c0 to %n step %c1 iter_args(%acc = %o) -> (vector<64x64xf32>) {
      %kt = vector.transfer_read %k[%j, %c0], %zero {in_bounds = [true, true]} : memref<?x64xf16>, vector<32x64xf16>
      %x = vector.contract {indexing_maps = [affine_map<(m, n, k) -> (m, k)>, affine_map<(m, n, k) -> (n, k)>, affine_map<(m, n, k) -> (m, n)>], iterator_types = ["parallel", "parallel", "reduction"], kind = #vector.kind<add>} %q, %kt, %s : vector<64x64xf16>, vector<32x64xf16> into vector<64x32xf32>
      %p = arith.truncf %x : vector<64x32xf32> to vector<64x32xf16>
      %y = vector.contract {indexing_maps = [affine_map<(m, n, k) -> (m, k)>, affine_map<(m, n, k) -> (k, n)>, affine_map<(m, n, k) -> (m, n)>], iterator_types = ["parallel", "parallel", "reduction"], kind = #vector.kind<add>} %p, %v, %acc : vector<64x32xf16>, vector<32x64xf16> into vector<64x64xf32>
      scf.yield %y : vector<64x64xf32>
    }
  } {flashattn.schedule = #roles}
  return
}
