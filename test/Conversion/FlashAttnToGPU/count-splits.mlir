// RUN: flash-opt %s -flashattn-map-to-gpu -canonicalize | FileCheck %s --check-prefixes=CHECK,GPU
// RUN: flash-opt %s -convert-flashattn-to-cpu -canonicalize | FileCheck %s --check-prefixes=CHECK,CPU

// The blocks that run at once, 8 tiles or more to a part, and no more parts than said.
// CHECK-LABEL: func @roles
// CHECK-SAME: %[[P:.*]]: index, %[[T:.*]]: index
// GPU: %[[SMS:.*]] = flashattn.multiprocessor_count
// GPU: %[[PLACES:.*]] = arith.muli %[[SMS]], %c3
// GPU: %[[ANY:.*]] = arith.maxui %[[P]], %c1
// GPU: %[[WANTED:.*]] = arith.divui %[[PLACES]], %[[ANY]]
// GPU: %[[TILES:.*]] = arith.divui %[[T]], %c8
// GPU: %[[MOST:.*]] = arith.minui %[[TILES]], %c32
// GPU: %[[S:.*]] = arith.minui %[[WANTED]], %[[MOST]]
// CPU: %[[S:.*]] = arith.minui %[[T]], %c32
// CHECK: %[[R:.*]] = arith.maxui %[[S]], %c1
// CHECK: return %[[R]]
func.func @roles(%p: index, %t: index) -> index {
  %s = flashattn.count_splits %p, %t schedule(<tile_m = 64, tile_n = 64, warps = 4, stages = 2, lanes = 4, dot_type = f16, splits = 32, roles = <consumers = 1, along = query_tile, registers = 128, producer_registers = 32, rescale = 8, section = 1, blocks = 3>>)
  return %s : index
}
