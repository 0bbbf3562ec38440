// RUN: flash-opt %s -flashattn-map-to-gpu | FileCheck %s

// A block per program and 32 threads a warp; an empty grid is not launched.
// CHECK-LABEL: func @programs
// CHECK-SAME: %[[B:.*]]: index, %[[H:.*]]: index, %[[T:.*]]: index
// CHECK: %[[BH:.*]] = arith.muli %[[B]], %[[H]]
// CHECK: %[[BLOCKS:.*]] = arith.muli %[[BH]], %[[T]]
// CHECK: %[[ANY:.*]] = arith.cmpi ugt, %[[BLOCKS]], %c0
// CHECK: scf.if %[[ANY]]
// CHECK: gpu.launch blocks(%[[X:.*]], %{{.*}}, %{{.*}}) in (%{{.*}} = %[[BLOCKS]], %{{.*}} = %c1, %{{.*}} = %c1) threads(%[[THREAD:.*]], %{{.*}}, %{{.*}}) in (%{{.*}} = %c128, %{{.*}} = %c1, %{{.*}} = %c1)
// Blocks count tiles fastest, from the last one down.
// CHECK: flashattn.on_threads %[[THREAD]] schedule(<tile_m = 64, tile_n = 64, stages = 2, dot_type = f16, mapping = mma_sync<warps = 4>>) {
// CHECK: %[[BLOCK:.*]] = arith.index_castui %[[X]] : index to i32
// CHECK: %[[REM:.*]] = arith.remui %[[BLOCK]], %[[T32:.*]] : i32
// CHECK: %[[REST:.*]] = arith.divui %[[BLOCK]], %[[T32]] : i32
// CHECK: %[[DOWN:.*]] = arith.subi %[[T32]], %[[REM]]
// CHECK: %[[TILE32:.*]] = arith.subi %[[DOWN]], %c1_i32
// CHECK: %[[BATCH:.*]] = arith.index_castui %{{.*}} : i32 to index
// CHECK: %[[HEAD:.*]] = arith.index_castui %{{.*}} : i32 to index
// CHECK: %[[TILE:.*]] = arith.index_castui %[[TILE32]] : i32 to index
// CHECK: memref.store %{{.*}}, %{{.*}}[%[[BATCH]], %[[HEAD]], %[[TILE]]]
// CHECK: gpu.terminator
// CHECK-NOT: flashattn.program
func.func @programs(%b: index, %h: index, %t: index, %m: memref<?x?x?xf32>, %x: f32) {
  %space = flashattn.dense_space(%b, %h, %t) axes(batch, head, query_tile)
  flashattn.program (%i, %j, %k) in %space
      schedule(<tile_m = 64, tile_n = 64, stages = 2, dot_type = f16, mapping = mma_sync<warps = 4>>) {
    memref.store %x, %m[%i, %j, %k] : memref<?x?x?xf32>
  }
  return
}

// The first tile of keys comes first.
// CHECK-LABEL: func @four_sizes
// CHECK-SAME: %[[B:.*]]: index, %[[H:.*]]: index, %[[I:.*]]: index, %[[J:.*]]: index
// CHECK: %[[BH:.*]] = arith.muli %[[B]], %[[H]]
// CHECK: %[[BHI:.*]] = arith.muli %[[BH]], %[[I]]
// CHECK: %[[BLOCKS:.*]] = arith.muli %[[BHI]], %[[J]]
// CHECK: gpu.launch blocks(%[[X:.*]], %{{.*}}, %{{.*}}) in (%{{.*}} = %[[BLOCKS]],
// CHECK: %[[BLOCK:.*]] = arith.index_castui %[[X]]
// CHECK: %[[J32:.*]] = arith.index_castui %[[J]]
// CHECK: %[[LAST:.*]] = arith.remui %[[BLOCK]], %[[J32]]
// CHECK: %[[REST:.*]] = arith.divui %[[BLOCK]], %[[J32]]
// CHECK: arith.remui %[[REST]], %{{.*}}
// CHECK: %[[KEYS:.*]] = arith.index_castui %[[LAST]]
// CHECK: memref.store %{{.*}}, %{{.*}}[%{{.*}}, %{{.*}}, %{{.*}}, %[[KEYS]]]
func.func @four_sizes(%b: index, %h: index, %i: index, %j: index, %m: memref<?x?x?x?xf32>, %x: f32) {
  %space = flashattn.dense_space(%b, %h, %i, %j) axes(batch, head, query_tile, key_tile)
  flashattn.program (%p, %q, %r, %s) in %space
      schedule(<tile_m = 64, tile_n = 64, stages = 2, dot_type = f16, mapping = mma_sync<warps = 4>>) {
    memref.store %x, %m[%p, %q, %r, %s] : memref<?x?x?x?xf32>
  }
  return
}

// Programs of one size are blocks as they are.
// CHECK-LABEL: func @one_size
// CHECK-SAME: %[[H:[a-z0-9]+]]: index
// CHECK: gpu.launch blocks(%[[X:.*]], %{{.*}}, %{{.*}}) in (%{{.*}} = %[[H]],
// CHECK: %[[BLOCK:.*]] = arith.index_castui %[[X]]
// CHECK-NOT: arith.remui
// CHECK: gpu.terminator
func.func @one_size(%h: index, %m: memref<?xf32>, %x: f32) {
  %space = flashattn.dense_space(%h) axes(head)
  flashattn.program (%p) in %space
      schedule(<tile_m = 16, tile_n = 64, stages = 1, dot_type = f16, mapping = mma_sync<warps = 1>>) {
    memref.store %x, %m[%p] : memref<?xf32>
  }
  return
}

// Each kernel but the last lets the next one start, and each but the first waits for the one before
// it: in front of its first access to memory, and before it lets another start. The first and the
// last one begin with the last head.
// CHECK-LABEL: func @chain
// CHECK: gpu.launch
// CHECK-NOT: flashattn.wait_prerequisite_grids
// CHECK: flashattn.launch_dependents
// CHECK: %[[TILE:.*]] = arith.remui
// CHECK: %[[REST:.*]] = arith.divui
// CHECK: arith.subi %{{.*}}, %[[TILE]]
// CHECK: %[[DOWN:.*]] = arith.subi %{{.*}}, %[[REST]]
// CHECK: %[[HEAD32:.*]] = arith.subi %[[DOWN]], %c1_i32
// CHECK: %[[HEAD:.*]] = arith.index_castui %[[HEAD32]]
// CHECK: memref.store %{{.*}}, %{{.*}}[%[[HEAD]],
// CHECK: gpu.launch
// CHECK: arith.remui
// CHECK-NOT: arith.subi
// CHECK-NOT: memref.load
// CHECK: flashattn.wait_prerequisite_grids
// CHECK-NEXT: flashattn.launch_dependents
// CHECK: memref.load
// CHECK: gpu.launch
// CHECK-COUNT-4: arith.subi
// CHECK-NOT: memref.load
// CHECK: flashattn.wait_prerequisite_grids
// CHECK-NOT: flashattn.launch_dependents
// CHECK: memref.load
// CHECK-NOT: flashattn.launch_dependents
// CHECK: return
func.func @chain(%h: index, %t: index, %m: memref<?x?xf32>, %x: f32) {
  %space = flashattn.dense_space(%h, %t) axes(head, query_tile)
  flashattn.program (%p, %q) in %space
      schedule(<tile_m = 16, tile_n = 64, stages = 1, dot_type = f16, mapping = mma_sync<warps = 1>>) pdl_primary {
    memref.store %x, %m[%p, %q] : memref<?x?xf32>
  }
  %space1 = flashattn.dense_space(%h, %t) axes(head, key_tile)
  flashattn.program (%p, %q) in %space1
      schedule(<tile_m = 16, tile_n = 64, stages = 1, dot_type = f16, mapping = mma_sync<warps = 1>>) pdl_secondary pdl_primary {
    %y = memref.load %m[%p, %q] : memref<?x?xf32>
    memref.store %y, %m[%q, %p] : memref<?x?xf32>
  }
  %space2 = flashattn.dense_space(%h, %t) axes(head, query_tile)
  flashattn.program (%p, %q) in %space2
      schedule(<tile_m = 16, tile_n = 64, stages = 1, dot_type = f16, mapping = mma_sync<warps = 1>>) pdl_secondary {
    %y = memref.load %m[%q, %p] : memref<?x?xf32>
    memref.store %y, %m[%p, %q] : memref<?x?xf32>
  }
  return
}

// One that waits for sums begins with the first head, whose sums are there first. It does not wait for the kernel before it,
// each of whose programs has three warps that count themselves, until it is done.
// CHECK-LABEL: func @awaits
// CHECK-SAME: %[[PROGRAMS:[a-z0-9]+]]: index)
// CHECK: gpu.launch
// CHECK: %[[TILE:.*]] = arith.remui
// CHECK: %[[REST:.*]] = arith.divui
// CHECK: arith.subi %{{.*}}, %[[TILE]]
// CHECK: %[[HEAD:.*]] = arith.index_castui %[[REST]]
// CHECK-NOT: flashattn.wait_prerequisite_grids
// CHECK: %[[EACH:.*]] = arith.index_castui %[[PROGRAMS]]
// CHECK: %[[COUNT:.*]] = arith.muli %[[EACH]], %c3_i32
// CHECK: hopper.await_added %{{.*}}[%[[HEAD]]] is %[[COUNT]]
// CHECK: memref.store
// CHECK-NEXT: flashattn.wait_prerequisite_grids
// CHECK-NOT: flashattn.launch_dependents
func.func @awaits(%h: index, %t: index, %m: memref<?x?xf32>, %done: memref<?xi32>, %programs: index) {
  %space = flashattn.dense_space(%h, %t) axes(head, query_tile)
  flashattn.program (%p, %q) in %space
      schedule(<tile_m = 16, tile_n = 64, stages = 1, dot_type = f16, mapping = mma_sync<warps = 1>>) pdl_secondary {
    flashattn.await_added %done[%p] of %programs : memref<?xi32>
    %y = memref.load %m[%q, %p] : memref<?x?xf32>
    memref.store %y, %m[%p, %q] : memref<?x?xf32>
  }
  return
}

// A loop that is no program stays.
// CHECK-LABEL: func @other
// CHECK-NEXT: scf.forall
func.func @other(%b: index, %m: memref<?xf32>, %x: f32) {
  scf.forall (%i) in (%b) {
    memref.store %x, %m[%i] : memref<?xf32>
  }
  return
}
