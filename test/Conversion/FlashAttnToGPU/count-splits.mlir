// RUN: flash-opt %s -flashattn-map-to-gpu -canonicalize | FileCheck %s

// A part for each multiprocessor, of two tiles or more, no more than said, and none without tiles. One
// where several save fewer tiles than merging takes, where half of the multiprocessors have a program,
// and of long ones in two where 5 of 12 have.
// CHECK-LABEL: func @roles
// CHECK-SAME: %[[P:.*]]: index, %[[T:.*]]: index
// CHECK: %[[ANY:.*]] = arith.maxui %[[P]], %c1
// CHECK: %[[SMS:.*]] = flashattn.multiprocessor_count
// CHECK: %[[TILES:.*]] = arith.divui %[[T]], %c2
// CHECK: %[[MOST:.*]] = arith.minui %[[TILES]], %c3
// CHECK: %[[EACH:.*]] = arith.divui %[[SMS]], %[[ANY]]
// CHECK: %[[FEW:.*]] = arith.minui %[[EACH]], %[[MOST]]
// CHECK: %[[SOME:.*]] = arith.maxui %[[FEW]], %c1
// CHECK: %[[SHARE:.*]] = arith.ceildivui %[[T]], %[[SOME]]
// CHECK: %[[TILE:.*]] = arith.maxui %[[SHARE]], %c1
// CHECK: %[[S:.*]] = arith.ceildivui %[[T]], %[[TILE]]
// CHECK: %[[R:.*]] = arith.maxui %[[S]], %c1
// CHECK: %[[LONGEST:.*]] = arith.ceildivui %[[T]], %[[R]]
// CHECK: %[[SAVED:.*]] = arith.subi %[[T]], %[[LONGEST]]
// CHECK: %[[LITTLE:.*]] = arith.cmpi slt, %[[SAVED]], %c3
// CHECK: %[[TWICE:.*]] = arith.muli %[[ANY]], %c2
// CHECK: %[[HALF:.*]] = arith.cmpi slt, %[[SMS]], %[[TWICE]]
// CHECK: %[[TWO:.*]] = arith.cmpi slt, %[[R]], %c3
// CHECK: %[[LONG:.*]] = arith.cmpi sgt, %[[T]], %c16
// CHECK: %[[LONG_TWO:.*]] = arith.andi %[[TWO]], %[[LONG]]
// CHECK: %[[FIVE:.*]] = arith.muli %[[SMS]], %c5
// CHECK: %[[TWELVE:.*]] = arith.muli %[[ANY]], %c12
// CHECK: %[[HAVE:.*]] = arith.cmpi slt, %[[FIVE]], %[[TWELVE]]
// CHECK: %[[NEITHER:.*]] = arith.andi %[[LONG_TWO]], %[[HAVE]]
// CHECK: %[[BUSY:.*]] = arith.ori %[[HALF]], %[[NEITHER]]
// CHECK: %[[WHOLE:.*]] = arith.ori %[[LITTLE]], %[[BUSY]]
// CHECK: %[[PARTS:.*]] = arith.select %[[WHOLE]], %c1, %[[R]]
// CHECK: return %[[PARTS]]
func.func @roles(%p: index, %t: index) -> index {
  %s = flashattn.count_splits %p, %t schedule(<tile_m = 64, tile_n = 64, stages = 2, dot_type = f16, splits = 3, mapping = hopper<consumers = 1, along = query_tile, registers = 128, producer_registers = 32, rescale_threshold = 8, l2_head_group = 1, blocks_per_sm = 3>>)
  return %s : index
}

// In small blocks two to a multiprocessor, or as many as run at once where these have fewer tiles in
// all, and half a tile's time more for each block. Merging takes as long as six of them.
// CHECK-LABEL: func @narrow
// CHECK-SAME: %[[P:.*]]: index, %[[T:.*]]: index
// CHECK: %[[ANY:.*]] = arith.maxui %[[P]], %c1
// CHECK: %[[SMS:.*]] = flashattn.multiprocessor_count
// CHECK: %[[TWICE:.*]] = arith.muli %[[SMS]], %c2
// CHECK: arith.divui %[[TWICE]], %[[ANY]]
// CHECK: %[[TWO:.*]] = arith.maxui
// CHECK: arith.ceildivui
// CHECK: arith.maxui
// CHECK: arith.ceildivui
// CHECK: %[[PAIRS:.*]] = arith.maxui
// CHECK: %[[THRICE:.*]] = arith.muli %[[SMS]], %c3
// CHECK: arith.divui %[[THRICE]], %[[ANY]]
// CHECK: %[[ALL:.*]] = arith.maxui %{{.*}}, %c1
// CHECK: %[[MORE:.*]] = arith.maxui %{{.*}}, %c1
// CHECK: %[[THIRDS:.*]] = arith.maxui %{{.*}}, %c1
// CHECK: %[[SHORT:.*]] = arith.ceildivui %[[T]], %[[THIRDS]]
// CHECK: %[[HALVES:.*]] = arith.muli %[[SHORT]], %c2
// CHECK: %[[BEGUN:.*]] = arith.addi %[[HALVES]], %c1
// CHECK: %[[TIME:.*]] = arith.muli %[[THIRDS]], %[[BEGUN]]
// CHECK: %[[OTHER:.*]] = arith.muli %[[PAIRS]], %{{.*}}
// CHECK: %[[PAYS:.*]] = arith.cmpi slt, %[[TIME]], %[[OTHER]]
// CHECK: %[[PARTS:.*]] = arith.select %[[PAYS]], %[[THIRDS]], %[[PAIRS]]
// CHECK: %[[LONGEST:.*]] = arith.ceildivui %[[T]], %[[PARTS]]
// CHECK: %[[SAVED:.*]] = arith.subi %[[T]], %[[LONGEST]]
// CHECK: arith.cmpi slt, %[[SAVED]], %c6
func.func @narrow(%p: index, %t: index) -> index {
  %s = flashattn.count_splits %p, %t schedule(<tile_m = 64, tile_n = 128, stages = 3, dot_type = f16, splits = 128, min_split_tiles = 1, mapping = hopper<consumers = 1, along = query_tile, registers = 208, producer_registers = 48, rescale_threshold = 8, l2_head_group = 1, blocks_per_sm = 2, small_blocks_per_sm = 3>>)
  return %s : index
}

// Of more programs than places, here one to a multiprocessor, long ones are in four parts where that
// saves a sixth: rounds that fill the machine, and a last one of at least 2/3 of the time alone.
// CHECK-LABEL: func @even
// CHECK-SAME: %[[P:.*]]: index, %[[T:.*]]: index
// CHECK: %[[ANY:.*]] = arith.maxui %[[P]], %c1
// CHECK: %[[SMS:.*]] = flashattn.multiprocessor_count
// CHECK: %[[PARTS:.*]] = arith.select %{{.*}}, %c1, %{{.*}}
// CHECK: %[[ROUNDS:.*]] = arith.divui %[[ANY]], %[[SMS]]
// CHECK: %[[FILLED:.*]] = arith.muli %[[ROUNDS]], %[[SMS]]
// CHECK: %[[LAST:.*]] = arith.subi %[[ANY]], %[[FILLED]]
// CHECK: %[[DEEP:.*]] = arith.ceildivui %[[LAST]], %[[SMS]]
// CHECK: %[[ALONE:.*]] = arith.muli %[[DEEP]], %[[SMS]]
// CHECK: %[[TWICE:.*]] = arith.muli %[[ALONE]], %c2
// CHECK: %[[RATE:.*]] = arith.divui %[[TWICE]], %c3
// CHECK: %[[END:.*]] = arith.maxui %[[LAST]], %[[RATE]]
// CHECK: %[[TIME:.*]] = arith.addi %[[FILLED]], %[[END]]
// CHECK: %[[WHOLE:.*]] = arith.muli %[[TIME]], %c4
// CHECK: %[[FOURTHS:.*]] = arith.muli %[[ANY]], %c4
// CHECK: %[[CUT:.*]] = arith.addi %{{.*}}, %{{.*}}
// CHECK: %[[LONG:.*]] = arith.cmpi sgt, %[[T]], %c63
// CHECK: %[[MANY:.*]] = arith.cmpi slt, %[[SMS]], %[[ANY]]
// CHECK: %[[MAY:.*]] = arith.andi %[[LONG]], %[[MANY]]
// CHECK: %[[SAVED:.*]] = arith.subi %[[WHOLE]], %[[CUT]]
// CHECK: %[[SIXTHS:.*]] = arith.muli %[[SAVED]], %c6
// CHECK: %[[MUCH:.*]] = arith.cmpi slt, %[[WHOLE]], %[[SIXTHS]]
// CHECK: %[[PAYS:.*]] = arith.andi %[[MAY]], %[[MUCH]]
// CHECK: arith.select %[[PAYS]], %c4, %[[PARTS]]
func.func @even(%p: index, %t: index) -> index {
  %s = flashattn.count_splits %p, %t schedule(<tile_m = 64, tile_n = 32, stages = 5, dot_type = f16, splits = 128, min_split_tiles = 4, mapping = hopper<consumers = 1, along = query_tile, registers = 248, producer_registers = 24, rescale_threshold = 8, l2_head_group = 1>>)
  return %s : index
}

// Blocks without warp specialization ask for fewer bytes: two to a multiprocessor.
// CHECK-LABEL: func @without_roles
// CHECK: %[[SMS:.*]] = flashattn.multiprocessor_count
// CHECK: %[[PLACES:.*]] = arith.muli %[[SMS]], %c2
// CHECK: arith.divui %[[PLACES]], %{{.*}}
func.func @without_roles(%p: index, %t: index) -> index {
  %s = flashattn.count_splits %p, %t schedule(<tile_m = 32, tile_n = 64, stages = 2, dot_type = f16, splits = 128, mapping = mma_sync<warps = 2>>)
  return %s : index
}
