// RUN: flash-opt %s -flashattn-map-to-gpu -canonicalize | FileCheck %s

// Narrow blocks where all programs run at once in them, and take no longer: one alone 8/7 of its share
// of the time, in wide blocks 2/3 of as many rounds as a multiprocessor has blocks.
// CHECK-LABEL: func @narrow
// CHECK-SAME: %[[P:.*]]: index
// CHECK: %[[ANY:.*]] = arith.maxui %[[P]], %c1
// CHECK: %[[SMS:.*]] = flashattn.multiprocessor_count
// CHECK: %[[EIGHT:.*]] = arith.muli %[[SMS]], %c8
// CHECK: %[[ALONE:.*]] = arith.divui %[[EIGHT]], %c7
// CHECK: %[[PLACES:.*]] = arith.muli %[[SMS]], %c3
// CHECK: %[[END:.*]] = arith.addi %[[PLACES]], %c1
// CHECK: %[[FITS:.*]] = arith.cmpi slt, %[[ANY]], %[[END]]
// CHECK: %[[NARROW:.*]] = arith.maxui %[[ANY]], %[[ALONE]]
// CHECK: %[[TWO:.*]] = arith.muli %[[SMS]], %c2
// CHECK: %[[ROUNDS:.*]] = arith.divui %[[ANY]], %[[TWO]]
// CHECK: %[[FILLED:.*]] = arith.muli %[[ROUNDS]], %[[TWO]]
// CHECK: %[[LAST:.*]] = arith.subi %[[ANY]], %[[FILLED]]
// CHECK: %[[RATE:.*]] = arith.divui %{{.*}}, %c3
// CHECK: %[[REST:.*]] = arith.maxui %[[LAST]], %[[RATE]]
// CHECK: %[[WIDE:.*]] = arith.addi %[[FILLED]], %[[REST]]
// CHECK: %[[MOST:.*]] = arith.addi %[[WIDE]], %c1
// CHECK: %[[FAST:.*]] = arith.cmpi slt, %[[NARROW]], %[[MOST]]
// CHECK: %[[BOTH:.*]] = arith.andi %[[FITS]], %[[FAST]]
// CHECK: return %[[BOTH]]
func.func @narrow(%p: index) -> i1 {
  %s = flashattn.prefers_narrow %p schedule(<tile_m = 64, tile_n = 128, warps = 4, stages = 3, lanes = 4, dot_type = f16, splits = 128, min_part_tiles = 1, narrow_blocks = 3, roles = <consumers = 1, along = query_tile, registers = 208, producer_registers = 48, rescale = 8, section = 1, blocks = 2>>)
  return %s : i1
}
