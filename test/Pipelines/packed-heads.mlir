// RUN: flash-opt %s -split-input-file -flashattn-to-nvvm=chip=sm_90a | FileCheck %s

// Heads of a group in the rows of one tile, down to PTX: tensor copies have a dimension for the
// heads of a group, of any number of heads and either order of dimensions.

#mask = #flashattn.all_of<[#flashattn.causal, #flashattn.any_of<[#flashattn.window<left = 127, right = 0>, #flashattn.sink<4>]>]>
#schedule = #flashattn.schedule<tile_m = 64, tile_n = 64, stages = 2, dot_type = bf16, pack = 8, mapping = hopper<consumers = 1, along = query_tile, registers = 128, producer_registers = 32, rescale_threshold = 1, l2_head_group = 1, blocks_per_sm = 3>>
// CHECK-LABEL: llvm.func @bhsd
// CHECK-COUNT-4: llvm.call @flashattnEncodeTensorMap
// CHECK: gpu.binary @bhsd_kernel
// CHECK-SAME: cp.async.bulk.tensor.5d.shared::cluster
// CHECK-SAME: cp.async.bulk.tensor.5d.global
// CHECK-SAME: cp.async.bulk.tensor.4d.shared::cluster
func.func @bhsd(%q: memref<?x?x?x64xbf16>, %k: memref<?x?x?x64xbf16>, %v: memref<?x?x?x64xbf16>, %o: memref<?x?x?x64xbf16>, %lse: memref<?x?x?xf32>) {
  flashattn.attention mask(#mask) schedule(#schedule)
    ins(%q, %k, %v : memref<?x?x?x64xbf16>, memref<?x?x?x64xbf16>, memref<?x?x?x64xbf16>)
    outs(%o, %lse : memref<?x?x?x64xbf16>, memref<?x?x?xf32>)
  return
}

// -----

// One position of each head (more rows than a group has heads); rows of the output that begin
// anywhere, which threads store themselves.
#schedule = #flashattn.schedule<tile_m = 64, tile_n = 64, stages = 2, dot_type = bf16, pack = 64, mapping = hopper<consumers = 1, along = query_tile, registers = 128, producer_registers = 32, rescale_threshold = 1, l2_head_group = 1, blocks_per_sm = 3>>
// CHECK-LABEL: llvm.func @bshd
// CHECK-COUNT-2: llvm.call @flashattnEncodeTensorMap
// CHECK-NOT: llvm.call @flashattnEncodeTensorMap
// CHECK: gpu.binary @bshd_kernel
// CHECK-SAME: cp.async.bulk.tensor.5d.shared::cluster
// CHECK-NOT: cp.async.bulk.tensor.5d.global
func.func @bshd(%q: memref<2x1x64x64xbf16>, %k: memref<2x5000x8x64xbf16>, %o: memref<2x1x64x64xbf16, strided<[?, ?, ?, 1], offset: ?>>, %lse: memref<2x64x1xf32>) {
  flashattn.attention mask(#flashattn.causal) layout(bshd) schedule(#schedule)
    ins(%q, %k, %k : memref<2x1x64x64xbf16>, memref<2x5000x8x64xbf16>, memref<2x5000x8x64xbf16>)
    outs(%o, %lse : memref<2x1x64x64xbf16, strided<[?, ?, ?, 1], offset: ?>>, memref<2x64x1xf32>)
  return
}

// -----

// The same one after the other in memory.
#schedule = #flashattn.schedule<tile_m = 64, tile_n = 64, stages = 2, dot_type = bf16, pack = 64, mapping = hopper<consumers = 1, along = query_tile, registers = 128, producer_registers = 32, rescale_threshold = 1, l2_head_group = 1, blocks_per_sm = 3>>
// CHECK-LABEL: llvm.func @one_position
// CHECK: gpu.binary @one_position_kernel
// CHECK-SAME: cp.async.bulk.tensor.5d.global
func.func @one_position(%q: memref<?x64x?x64xbf16>, %k: memref<?x1x?x64xbf16>, %o: memref<?x64x?x64xbf16>, %lse: memref<?x64x?xf32>) {
  flashattn.attention mask(#flashattn.causal) schedule(#schedule)
    ins(%q, %k, %k : memref<?x64x?x64xbf16>, memref<?x1x?x64xbf16>, memref<?x1x?x64xbf16>)
    outs(%o, %lse : memref<?x64x?x64xbf16>, memref<?x64x?xf32>)
  return
}
