// RUN: flash-opt %s -flashattn-map-to-gpu -canonicalize | FileCheck %s --check-prefixes=CHECK,GPU
// RUN: flash-opt %s -convert-flashattn-to-cpu -canonicalize | FileCheck %s --check-prefixes=CHECK,CPU

// A part for each multiprocessor, of two tiles or more, no more than said, and none without tiles.
// CHECK-LABEL: func @roles
// CHECK-SAME: %[[P:.*]]: index, %[[T:.*]]: index
// GPU: %[[ANY:.*]] = arith.maxui %[[P]], %c1
// GPU: %[[TILES:.*]] = arith.divui %[[T]], %c2
// GPU: %[[MOST:.*]] = arith.minui %[[TILES]], %c32
// GPU: %[[SMS:.*]] = flashattn.multiprocessor_count
// GPU: %[[EACH:.*]] = arith.divui %[[SMS]], %[[ANY]]
// GPU: %[[FEW:.*]] = arith.minui %[[EACH]], %[[MOST]]
// GPU: %[[SOME:.*]] = arith.maxui %[[FEW]], %c1
// GPU: %[[SHARE:.*]] = arith.ceildivui %[[T]], %[[SOME]]
// GPU: %[[TILE:.*]] = arith.maxui %[[SHARE]], %c1
// GPU: %[[S:.*]] = arith.ceildivui %[[T]], %[[TILE]]
// CPU: %[[S:.*]] = arith.minui %[[T]], %c32
// CHECK: %[[R:.*]] = arith.maxui %[[S]], %c1
// CHECK: return %[[R]]
func.func @roles(%p: index, %t: index) -> index {
  %s = flashattn.count_splits %p, %t schedule(<tile_m = 64, tile_n = 64, warps = 4, stages = 2, lanes = 4, dot_type = f16, splits = 32, roles = <consumers = 1, along = query_tile, registers = 128, producer_registers = 32, rescale = 8, section = 1, blocks = 3>>)
  return %s : index
}

// Short parts, of several, are cut further: as many as run at once.
// CHECK-LABEL: func @short
// CHECK-SAME: %[[P:.*]]: index, %[[T:.*]]: index
// GPU: %[[MOST:.*]] = arith.minui %[[T]], %c128
// GPU: %[[SMS:.*]] = flashattn.multiprocessor_count
// GPU: %[[FEW:.*]] = arith.minui %{{.*}}, %[[MOST]]
// GPU: %[[SOME:.*]] = arith.maxui %[[FEW]], %c1
// GPU: %[[SHARE:.*]] = arith.ceildivui %[[T]], %[[SOME]]
// GPU: %[[SHORT:.*]] = arith.cmpi ule, %[[SHARE]], %c8
// GPU: %[[MERGED:.*]] = arith.cmpi ugt, %[[SOME]], %c1
// GPU: %[[BOTH:.*]] = arith.andi %[[SHORT]], %[[MERGED]]
// GPU: %[[PLACES:.*]] = arith.muli %[[SMS]], %c2
// GPU: %[[TWO:.*]] = arith.divui %[[PLACES]], %{{.*}}
// GPU: %[[MANY:.*]] = arith.minui %[[TWO]], %[[MOST]]
// GPU: %[[ALL:.*]] = arith.maxui %[[MANY]], %c1
// GPU: arith.select %[[BOTH]], %[[ALL]], %[[SOME]]
func.func @short(%p: index, %t: index) -> index {
  %s = flashattn.count_splits %p, %t schedule(<tile_m = 64, tile_n = 128, warps = 4, stages = 3, lanes = 4, dot_type = f16, splits = 128, min_part_tiles = 1, short_part_tiles = 8, roles = <consumers = 1, along = query_tile, registers = 208, producer_registers = 48, rescale = 8, section = 1, blocks = 2>>)
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
