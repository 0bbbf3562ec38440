// RUN: flash-opt %s -flashattn-map-to-gpu -canonicalize | FileCheck %s --check-prefixes=CHECK,GPU
// RUN: flash-opt %s -convert-flashattn-to-cpu -canonicalize | FileCheck %s --check-prefixes=CHECK,CPU

// A part for each multiprocessor, of two tiles or more, no more than said, and none without tiles. One
// where several save fewer tiles than merging takes.
// CHECK-LABEL: func @roles
// CHECK-SAME: %[[P:.*]]: index, %[[T:.*]]: index
// GPU: %[[ANY:.*]] = arith.maxui %[[P]], %c1
// GPU: %[[SMS:.*]] = flashattn.multiprocessor_count
// GPU: %[[TILES:.*]] = arith.divui %[[T]], %c2
// GPU: %[[MOST:.*]] = arith.minui %[[TILES]], %c32
// GPU: %[[EACH:.*]] = arith.divui %[[SMS]], %[[ANY]]
// GPU: %[[FEW:.*]] = arith.minui %[[EACH]], %[[MOST]]
// GPU: %[[SOME:.*]] = arith.maxui %[[FEW]], %c1
// GPU: %[[LONGEST:.*]] = arith.ceildivui %[[T]], %[[SOME]]
// GPU: %[[SAVED:.*]] = arith.subi %[[T]], %[[LONGEST]]
// GPU: %[[LITTLE:.*]] = arith.cmpi slt, %[[SAVED]], %c3
// GPU: %[[PARTS:.*]] = arith.select %[[LITTLE]], %c1, %[[SOME]]
// GPU: %[[SHARE:.*]] = arith.ceildivui %[[T]], %[[PARTS]]
// GPU: %[[TILE:.*]] = arith.maxui %[[SHARE]], %c1
// GPU: %[[S:.*]] = arith.ceildivui %[[T]], %[[TILE]]
// CPU: %[[S:.*]] = arith.minui %[[T]], %c32
// GPU: %[[R:.*]] = arith.maxui %[[S]], %c1
// CPU: %[[R:.*]] = arith.maxui %[[S]], %c1
// CHECK: return %[[R]]
func.func @roles(%p: index, %t: index) -> index {
  %s = flashattn.count_splits %p, %t schedule(<tile_m = 64, tile_n = 64, warps = 4, stages = 2, lanes = 4, dot_type = f16, splits = 32, roles = <consumers = 1, along = query_tile, registers = 128, producer_registers = 32, rescale = 8, section = 1, blocks = 3>>)
  return %s : index
}

// Short parts, of several, are cut further: as many as run at once. Of two only where these leave a
// tenth of the multiprocessors without work.
// CHECK-LABEL: func @short
// CHECK-SAME: %[[P:.*]]: index, %[[T:.*]]: index
// GPU: %[[ANY:.*]] = arith.maxui %[[P]], %c1
// GPU: %[[SMS:.*]] = flashattn.multiprocessor_count
// GPU: %[[SOME:.*]] = arith.select %{{.*}}, %c1, %{{.*}}
// GPU: %[[SHARE:.*]] = arith.ceildivui %[[T]], %[[SOME]]
// GPU: %[[SHORT:.*]] = arith.cmpi slt, %[[SHARE]], %c9
// GPU: %[[ALL:.*]] = arith.muli %[[ANY]], %[[SOME]]
// GPU: %[[TENTHS:.*]] = arith.muli %[[ALL]], %c10
// GPU: %[[NINE:.*]] = arith.muli %[[SMS]], %c9
// GPU: %[[IDLE:.*]] = arith.cmpi slt, %[[TENTHS]], %[[NINE]]
// GPU: %[[LEAST:.*]] = arith.select %[[IDLE]], %c2, %c3
// GPU: %[[PLACES:.*]] = arith.muli %[[SMS]], %c2
// GPU: %[[TWO:.*]] = arith.divui %[[PLACES]], %[[ANY]]
// GPU: %[[FITTING:.*]] = arith.minui %[[TWO]], %{{.*}}
// GPU: %[[MANY:.*]] = arith.maxui %[[FITTING]], %c1
// GPU: %[[CUT:.*]] = arith.select %[[SHORT]], %[[MANY]], %[[SOME]]
// GPU: %[[FEW:.*]] = arith.cmpi slt, %[[SOME]], %[[LEAST]]
// GPU: %[[PARTS:.*]] = arith.select %[[FEW]], %[[SOME]], %[[CUT]]
// GPU: arith.ceildivui %[[T]], %[[PARTS]]
func.func @short(%p: index, %t: index) -> index {
  %s = flashattn.count_splits %p, %t schedule(<tile_m = 64, tile_n = 128, warps = 4, stages = 3, lanes = 4, dot_type = f16, splits = 128, min_part_tiles = 1, short_part_tiles = 8, roles = <consumers = 1, along = query_tile, registers = 208, producer_registers = 48, rescale = 8, section = 1, blocks = 2>>)
  return %s : index
}

// Of more programs than multiprocessors with a block each, long ones are in four parts where that
// saves a sixth: rounds that fill the machine, and a last one of at least 2/3 of the time alone.
// CHECK-LABEL: func @even
// CHECK-SAME: %[[P:.*]]: index, %[[T:.*]]: index
// GPU: %[[ANY:.*]] = arith.maxui %[[P]], %c1
// GPU: %[[SMS:.*]] = flashattn.multiprocessor_count
// GPU: %[[PARTS:.*]] = arith.select %{{.*}}, %c1, %{{.*}}
// GPU: %[[ROUNDS:.*]] = arith.divui %[[ANY]], %[[SMS]]
// GPU: %[[FILLED:.*]] = arith.muli %[[ROUNDS]], %[[SMS]]
// GPU: %[[LAST:.*]] = arith.subi %[[ANY]], %[[FILLED]]
// GPU: %[[DEEP:.*]] = arith.ceildivui %[[LAST]], %[[SMS]]
// GPU: %[[ALONE:.*]] = arith.muli %[[DEEP]], %[[SMS]]
// GPU: %[[TWICE:.*]] = arith.muli %[[ALONE]], %c2
// GPU: %[[RATE:.*]] = arith.divui %[[TWICE]], %c3
// GPU: %[[END:.*]] = arith.maxui %[[LAST]], %[[RATE]]
// GPU: %[[TIME:.*]] = arith.addi %[[FILLED]], %[[END]]
// GPU: %[[WHOLE:.*]] = arith.muli %[[TIME]], %c4
// GPU: %[[FOURTHS:.*]] = arith.muli %[[ANY]], %c4
// GPU: %[[CUT:.*]] = arith.addi %{{.*}}, %{{.*}}
// GPU: %[[LONG:.*]] = arith.cmpi sgt, %[[T]], %c63
// GPU: %[[MANY:.*]] = arith.cmpi slt, %[[SMS]], %[[ANY]]
// GPU: %[[MAY:.*]] = arith.andi %[[LONG]], %[[MANY]]
// GPU: %[[SAVED:.*]] = arith.subi %[[WHOLE]], %[[CUT]]
// GPU: %[[SIXTHS:.*]] = arith.muli %[[SAVED]], %c6
// GPU: %[[MUCH:.*]] = arith.cmpi slt, %[[WHOLE]], %[[SIXTHS]]
// GPU: %[[PAYS:.*]] = arith.andi %[[MAY]], %[[MUCH]]
// GPU: arith.select %[[PAYS]], %c4, %[[PARTS]]
func.func @even(%p: index, %t: index) -> index {
  %s = flashattn.count_splits %p, %t schedule(<tile_m = 64, tile_n = 32, warps = 4, stages = 5, lanes = 4, dot_type = f16, splits = 128, min_part_tiles = 4, roles = <consumers = 1, along = query_tile, registers = 248, producer_registers = 24, rescale = 8, section = 1>>)
  return %s : index
}

// Blocks without roles ask for fewer bytes: two to a multiprocessor.
// CHECK-LABEL: func @without_roles
// GPU: %[[SMS:.*]] = flashattn.multiprocessor_count
// GPU: %[[PLACES:.*]] = arith.muli %[[SMS]], %c2
// GPU: arith.divui %[[PLACES]], %{{.*}}
func.func @without_roles(%p: index, %t: index) -> index {
  %s = flashattn.count_splits %p, %t schedule(<tile_m = 32, tile_n = 64, warps = 2, stages = 2, lanes = 4, dot_type = f16, splits = 128>)
  return %s : index
}
