// RUN: flash-opt %s -flashattn-map-to-gpu -canonicalize | FileCheck %s

// A part for each multiprocessor, of two tiles or more, no more than said, and none without tiles. One
// where several save fewer tiles than merging takes.
// CHECK-LABEL: func @roles
// CHECK-SAME: %[[P:.*]]: index, %[[T:.*]]: index
// CHECK: %[[ANY:.*]] = arith.maxui %[[P]], %c1
// CHECK: %[[SMS:.*]] = flashattn.multiprocessor_count
// CHECK: %[[TILES:.*]] = arith.divui %[[T]], %c2
// CHECK: %[[MOST:.*]] = arith.minui %[[TILES]], %c32
// CHECK: %[[EACH:.*]] = arith.divui %[[SMS]], %[[ANY]]
// CHECK: %[[FEW:.*]] = arith.minui %[[EACH]], %[[MOST]]
// CHECK: %[[SOME:.*]] = arith.maxui %[[FEW]], %c1
// CHECK: %[[LONGEST:.*]] = arith.ceildivui %[[T]], %[[SOME]]
// CHECK: %[[SAVED:.*]] = arith.subi %[[T]], %[[LONGEST]]
// CHECK: %[[LITTLE:.*]] = arith.cmpi slt, %[[SAVED]], %c3
// CHECK: %[[PARTS:.*]] = arith.select %[[LITTLE]], %c1, %[[SOME]]
// CHECK: %[[SHARE:.*]] = arith.ceildivui %[[T]], %[[PARTS]]
// CHECK: %[[TILE:.*]] = arith.maxui %[[SHARE]], %c1
// CHECK: %[[S:.*]] = arith.ceildivui %[[T]], %[[TILE]]
// CHECK: %[[R:.*]] = arith.maxui %[[S]], %c1
// CHECK: return %[[R]]
func.func @roles(%p: index, %t: index) -> index {
  %s = flashattn.count_splits %p, %t schedule(<tile_m = 64, tile_n = 64, warps = 4, stages = 2, lanes = 4, dot_type = f16, splits = 32, roles = <consumers = 1, along = query_tile, registers = 128, producer_registers = 32, rescale = 8, section = 1, blocks = 3>>)
  return %s : index
}

// Short parts, of several, are cut further: as many as run at once. Of two only where these leave a
// tenth of the multiprocessors without work.
// CHECK-LABEL: func @short
// CHECK-SAME: %[[P:.*]]: index, %[[T:.*]]: index
// CHECK: %[[ANY:.*]] = arith.maxui %[[P]], %c1
// CHECK: %[[SMS:.*]] = flashattn.multiprocessor_count
// CHECK: %[[SOME:.*]] = arith.select %{{.*}}, %c1, %{{.*}}
// CHECK: %[[SHARE:.*]] = arith.ceildivui %[[T]], %[[SOME]]
// CHECK: %[[SHORT:.*]] = arith.cmpi slt, %[[SHARE]], %c9
// CHECK: %[[ALL:.*]] = arith.muli %[[ANY]], %[[SOME]]
// CHECK: %[[TENTHS:.*]] = arith.muli %[[ALL]], %c10
// CHECK: %[[NINE:.*]] = arith.muli %[[SMS]], %c9
// CHECK: %[[IDLE:.*]] = arith.cmpi slt, %[[TENTHS]], %[[NINE]]
// CHECK: %[[LEAST:.*]] = arith.select %[[IDLE]], %c2, %c3
// CHECK: %[[PLACES:.*]] = arith.muli %[[SMS]], %c2
// CHECK: %[[TWO:.*]] = arith.divui %[[PLACES]], %[[ANY]]
// CHECK: %[[FITTING:.*]] = arith.minui %[[TWO]], %{{.*}}
// CHECK: %[[MANY:.*]] = arith.maxui %[[FITTING]], %c1
// CHECK: %[[CUT:.*]] = arith.select %[[SHORT]], %[[MANY]], %[[SOME]]
// CHECK: %[[FEW:.*]] = arith.cmpi slt, %[[SOME]], %[[LEAST]]
// CHECK: %[[PARTS:.*]] = arith.select %[[FEW]], %[[SOME]], %[[CUT]]
// CHECK: arith.ceildivui %[[T]], %[[PARTS]]
func.func @short(%p: index, %t: index) -> index {
  %s = flashattn.count_splits %p, %t schedule(<tile_m = 64, tile_n = 128, warps = 4, stages = 3, lanes = 4, dot_type = f16, splits = 128, min_part_tiles = 1, short_part_tiles = 8, roles = <consumers = 1, along = query_tile, registers = 208, producer_registers = 48, rescale = 8, section = 1, blocks = 2>>)
  return %s : index
}

// Of more programs than multiprocessors with a block each, long ones are in four parts where that
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
  %s = flashattn.count_splits %p, %t schedule(<tile_m = 64, tile_n = 32, warps = 4, stages = 5, lanes = 4, dot_type = f16, splits = 128, min_part_tiles = 4, roles = <consumers = 1, along = query_tile, registers = 248, producer_registers = 24, rescale = 8, section = 1>>)
  return %s : index
}

// Blocks without roles ask for fewer bytes: two to a multiprocessor.
// CHECK-LABEL: func @without_roles
// CHECK: %[[SMS:.*]] = flashattn.multiprocessor_count
// CHECK: %[[PLACES:.*]] = arith.muli %[[SMS]], %c2
// CHECK: arith.divui %[[PLACES]], %{{.*}}
func.func @without_roles(%p: index, %t: index) -> index {
  %s = flashattn.count_splits %p, %t schedule(<tile_m = 32, tile_n = 64, warps = 2, stages = 2, lanes = 4, dot_type = f16, splits = 128>)
  return %s : index
}
