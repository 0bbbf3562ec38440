// RUN: flash-opt %s -split-input-file -verify-diagnostics -flashattn-contract-to-wgmma

func.func @registers(%a: vector<64x64xf16>, %b: vector<64x64xf16>, %acc: vector<64x64xf32>, %o: memref<?x64xf32>) {
  %c0 = arith.constant 0 : index
  flashattn.on_threads %c0 schedule(<tile_m = 64, tile_n = 32, stages = 2, dot_type = f16, mapping = hopper<consumers = 1, along = query_tile, registers = 240, producer_registers = 24, rescale_threshold = 8, l2_head_group = 1>>) {
    // expected-error@+1 {{expected a right-hand side in shared memory; run flashattn-specialize-warps first}}
    %s = vector.contract {indexing_maps = [affine_map<(m, n, k) -> (m, k)>, affine_map<(m, n, k) -> (k, n)>, affine_map<(m, n, k) -> (m, n)>], iterator_types = ["parallel", "parallel", "reduction"], kind = #vector.kind<add>} %a, %b, %acc : vector<64x64xf16>, vector<64x64xf16> into vector<64x64xf32>
    vector.transfer_write %s, %o[%c0, %c0] {in_bounds = [false, true]} : vector<64x64xf32>, memref<?x64xf32>
  }
  return
}

// -----

// Both sides are given transposed.
func.func @transposed_lhs(%a: memref<1x64x64xf16, #gpu.address_space<workgroup>>, %acc: vector<64x64xf32>, %o: memref<?x64xf32>) {
  %c0 = arith.constant 0 : index
  flashattn.on_threads %c0 schedule(<tile_m = 64, tile_n = 32, stages = 2, dot_type = f16, mapping = hopper<consumers = 1, along = query_tile, registers = 240, producer_registers = 24, rescale_threshold = 8, l2_head_group = 1>>) {
    %t = hopper.load_tile %a : memref<1x64x64xf16, #gpu.address_space<workgroup>> -> vector<64x64xf16>
    // expected-error@+1 {{expected lhs[m,k] times rhs[n,k] or rhs[k,n], as wgmma has, but got}}
    %s = vector.contract {indexing_maps = [affine_map<(m, n, k) -> (k, m)>, affine_map<(m, n, k) -> (n, k)>, affine_map<(m, n, k) -> (m, n)>], iterator_types = ["parallel", "parallel", "reduction"], kind = #vector.kind<add>} %t, %t, %acc : vector<64x64xf16>, vector<64x64xf16> into vector<64x64xf32>
    vector.transfer_write %s, %o[%c0, %c0] {in_bounds = [false, true]} : vector<64x64xf32>, memref<?x64xf32>
  }
  return
}
