// RUN: flash-opt %s -flashattn-map-to-gpu -canonicalize | FileCheck %s

// Small blocks where all programs run at once in them: of more than there are multiprocessors, but of
// short ones, up to 15 whole tiles, only where a third of these have a second.
// CHECK-LABEL: func @narrow
// CHECK-SAME: %[[P:.*]]: index, %[[T:.*]]: index
// CHECK: %[[ANY:.*]] = arith.maxui %[[P]], %c1
// CHECK: %[[SMS:.*]] = flashattn.multiprocessor_count
// CHECK: %[[PLACES:.*]] = arith.muli %[[SMS]], %c3
// CHECK: %[[END:.*]] = arith.addi %[[PLACES]], %c1
// CHECK: %[[FITS:.*]] = arith.cmpi slt, %[[ANY]], %[[END]]
// CHECK: %[[SHARE:.*]] = arith.cmpi slt, %[[SMS]], %[[ANY]]
// CHECK: %[[FOUR:.*]] = arith.muli %[[SMS]], %c4
// CHECK: %[[THREE:.*]] = arith.muli %[[ANY]], %c3
// CHECK: %[[THIRD:.*]] = arith.cmpi slt, %[[FOUR]], %[[THREE]]
// CHECK: %[[LONG:.*]] = arith.cmpi sgt, %[[T]], %c15
// CHECK: %[[LONG_SHARE:.*]] = arith.andi %[[SHARE]], %[[LONG]]
// CHECK: %[[EITHER:.*]] = arith.ori %[[THIRD]], %[[LONG_SHARE]]
// CHECK: %[[BOTH:.*]] = arith.andi %[[FITS]], %[[EITHER]]
// CHECK: return %[[BOTH]]
func.func @narrow(%p: index, %t: index) -> i1 {
  %s = flashattn.prefers_small_blocks %p, %t schedule(<tile_m = 64, tile_n = 128, stages = 3, dot_type = f16, splits = 128, min_split_tiles = 1, mapping = hopper<consumers = 1, along = query_tile, registers = 208, producer_registers = 48, rescale_threshold = 8, l2_head_group = 1, blocks_per_sm = 2, small_blocks_per_sm = 3>>)
  return %s : i1
}
