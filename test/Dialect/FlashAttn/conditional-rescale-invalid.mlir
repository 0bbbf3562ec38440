// RUN: flash-opt %s -verify-diagnostics -flashattn-conditional-rescale

#roles = #flashattn.schedule<tile_m = 64, tile_n = 32, warps = 4, stages = 2, lanes = 4, dot_type = f16, roles = <consumers = 2, along = query_tile, registers = 240, producer_registers = 24, rescale = 8, section = 1>>

// A loop with a product and no softmax.
func.func @sum(%q: vector<64x64xf16>, %k: vector<32x64xf16>, %n: index, %s: vector<64x32xf32>) {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  scf.forall (%b, %h, %t) in (%n, %n, %n) {
    // expected-error@+1 {{expected a key loop with the online softmax of flashattn-tile}}
    %r = scf.for %j = %c0 to %n step %c1 iter_args(%acc = %s) -> (vector<64x32xf32>) {
      %x = vector.contract {indexing_maps = [affine_map<(m, n, k) -> (m, k)>, affine_map<(m, n, k) -> (n, k)>, affine_map<(m, n, k) -> (m, n)>], iterator_types = ["parallel", "parallel", "reduction"], kind = #vector.kind<add>} %q, %k, %acc : vector<64x64xf16>, vector<32x64xf16> into vector<64x32xf32>
      scf.yield %x : vector<64x32xf32>
    }
  } {flashattn.schedule = #roles}
  return
}
