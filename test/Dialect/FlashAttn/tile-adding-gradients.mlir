// Programs over key tiles that make dq too, without warp specialization: of 128 keys and more.
// RUN: flash-opt %s -flashattn-tile | FileCheck %s

// B7: what K has past kv_len is not read, as a share of dq is a sum over all keys of the tile; V's rows
// only make those of hidden scores.
// CHECK-LABEL: func @lengths
// CHECK: flashattn.dense_space{{.*}} axes(batch, head, key_tile)
// CHECK: flashattn.program
// CHECK: %[[ROWS:.*]] = flashattn.dense_rows below %{{.*}}
// CHECK: flashattn.load_tile %{{.*}} dims [2, 3] rows %[[ROWS]] in_bounds [false, true] : memref<1x2x1000x64xf16> -> vector<128x64xf16>
// CHECK: flashattn.load_tile %{{.*}} dims [2, 3] in_bounds [false, true] : memref<1x2x1000x64xf16> -> vector<128x64xf16>
// Only a mask hides keys that do not exist from that sum: where there are some, no tile is full.
// CHECK: %[[EXIST:.*]] = arith.cmpi sle, %{{.*}}, %{{.*}} : index
// CHECK: %[[FULL:.*]] = arith.select %[[EXIST]], %[[END:.*]], %[[BEGIN:.*]] : index
// CHECK: flashattn.tile_loop {{.*}} in [(%{{.*}}, %[[BEGIN]], %[[FULL]], %{{.*}})]
// A warp has 16 of 64 rows and, of two with the same ones, half of the columns.
// CHECK: flashattn.add_tile %{{.*}} parts 2 adjacent 1 : vector<64x64xf32>, memref<1x2x1024x64xf32>
// CHECK: flashattn.dense_space{{.*}} axes(batch, head, query_tile)
// CHECK: flashattn.program {{.*}} schedule(<tile_m = 64, tile_n = 64,
// CHECK: flashattn.load_added %{{.*}} parts 2 adjacent 1 : memref<1x2x1024x64xf32> -> vector<64x64xf32>
// CHECK-NOT: flashattn.program
func.func @lengths(%q: memref<1x2x1000x64xf16>, %lse: memref<1x2x1000xf32>, %dq: memref<1x2x1000x64xf16>, %dk: memref<1x2x1000x64xf16>, %dv: memref<1x2x1000x64xf16>, %len: memref<1xi32>) {
  flashattn.attention_backward schedule(<tile_m = 128, tile_n = 64, stages = 2, dot_type = f16, algorithm = accumulate_dq, mapping = mma_sync<warps = 8>>)
    ins(%q, %q, %q, %q, %lse, %q : memref<1x2x1000x64xf16>, memref<1x2x1000x64xf16>, memref<1x2x1000x64xf16>, memref<1x2x1000x64xf16>, memref<1x2x1000xf32>, memref<1x2x1000x64xf16>)
    kv_len(%len : memref<1xi32>) outs(%dq, %dk, %dv : memref<1x2x1000x64xf16>, memref<1x2x1000x64xf16>, memref<1x2x1000x64xf16>)
  return
}

// Queries in tiles of their own are made by programs of their own.
// CHECK-LABEL: func @apart
// CHECK-NOT: flashattn.add_tile
// CHECK: flashattn.dense_space{{.*}} axes(batch, head, query_tile)
// CHECK: flashattn.program {{.*}} schedule(<tile_m = 128,
func.func @apart(%q: memref<1x2x1000x64xf16>, %lse: memref<1x2x1000xf32>, %dq: memref<1x2x1000x64xf16>, %dk: memref<1x2x1000x64xf16>, %dv: memref<1x2x1000x64xf16>) {
  flashattn.attention_backward schedule(<tile_m = 128, tile_n = 64, stages = 2, dot_type = f16, dq_tile_m = 128, algorithm = separate_dq, mapping = mma_sync<warps = 8>>)
    ins(%q, %q, %q, %q, %lse, %q : memref<1x2x1000x64xf16>, memref<1x2x1000x64xf16>, memref<1x2x1000x64xf16>, memref<1x2x1000x64xf16>, memref<1x2x1000xf32>, memref<1x2x1000x64xf16>)
    outs(%dq, %dk, %dv : memref<1x2x1000x64xf16>, memref<1x2x1000x64xf16>, memref<1x2x1000x64xf16>)
  return
}

// Two warps share 32 rows: the products of what they exchange, weights and their gradients, stand
// behind both. Of a share each warp has as many rows, and a quarter of the columns.
// CHECK-LABEL: func @column_warps
// CHECK: flashattn.dense_space{{.*}} axes(batch, head, key_tile)
// CHECK: flashattn.program
// CHECK: %[[P:.*]] = arith.truncf %{{.*}} : vector<128x64xf32> to vector<128x64xf16>
// CHECK-NOT: vector.contract {{.*}} %[[P]]
// CHECK: %[[DS:.*]] = arith.truncf %{{.*}} : vector<128x64xf32> to vector<128x64xf16>
// CHECK: %[[DV:.*]] = vector.contract {{.*}} %[[P]], %{{.*}} into vector<128x128xf32>
// CHECK: %[[DK:.*]] = vector.contract {{.*}} %[[DS]], %{{.*}} into vector<128x128xf32>
// CHECK: %[[DQ:.*]] = vector.contract {{.*}} %[[DS]], %{{.*}} into vector<64x128xf32>
// CHECK: flashattn.add_tile %[[DQ]] to %{{.*}} parts 4 adjacent 1
// CHECK: flashattn.tile_yield %[[DK]], %[[DV]]
// Programs that only read have rows of their own.
// CHECK: flashattn.dense_space{{.*}} axes(batch, head, query_tile)
// CHECK: flashattn.program {{.*}} schedule(<tile_m = 64, tile_n = 64, stages = 2, dot_type = f16, mapping = mma_sync<warps = 4>>)
// CHECK: flashattn.load_added %{{.*}} parts 4 adjacent 1
func.func @column_warps(%q: memref<1x2x1000x128xf16>, %lse: memref<1x2x1000xf32>, %dq: memref<1x2x1000x128xf16>, %dk: memref<1x2x1000x128xf16>, %dv: memref<1x2x1000x128xf16>) {
  flashattn.attention_backward schedule(<tile_m = 128, tile_n = 64, stages = 2, dot_type = f16, algorithm = accumulate_dq, mapping = mma_sync<warps = 8, column_warps = 2>>)
    ins(%q, %q, %q, %q, %lse, %q : memref<1x2x1000x128xf16>, memref<1x2x1000x128xf16>, memref<1x2x1000x128xf16>, memref<1x2x1000x128xf16>, memref<1x2x1000xf32>, memref<1x2x1000x128xf16>)
    outs(%dq, %dk, %dv : memref<1x2x1000x128xf16>, memref<1x2x1000x128xf16>, memref<1x2x1000x128xf16>)
  return
}
