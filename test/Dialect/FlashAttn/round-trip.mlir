// RUN: flash-opt %s | flash-opt | FileCheck %s
// RUN: flash-opt %s --mlir-print-op-generic | flash-opt | FileCheck %s
// RUN: flash-opt %s --mlir-print-local-scope | flash-opt | FileCheck %s
// RUN: flash-opt %s --emit-bytecode | flash-opt | FileCheck %s

#band = affine_set<(p, k)[nq, nk] : (p - k >= 0, k - p + 7 >= 0)>

// CHECK-LABEL: func @plain
// CHECK: flashattn.attention ins(%{{.*}}, %{{.*}}, %{{.*}} : tensor<1x2x8x16xf32>, tensor<1x2x8x16xf32>, tensor<1x2x8x4xf32>) outs(%{{.*}} : tensor<1x2x8x4xf32>) -> tensor<1x2x8x4xf32>
func.func @plain(%q: tensor<1x2x8x16xf32>, %k: tensor<1x2x8x16xf32>, %v: tensor<1x2x8x4xf32>,
                 %o: tensor<1x2x8x4xf32>) -> tensor<1x2x8x4xf32> {
  %r = flashattn.attention
      ins(%q, %k, %v : tensor<1x2x8x16xf32>, tensor<1x2x8x16xf32>, tensor<1x2x8x4xf32>)
      outs(%o : tensor<1x2x8x4xf32>) -> tensor<1x2x8x4xf32>
  return %r : tensor<1x2x8x4xf32>
}

// Every clause, in the order in which it prints; heads grouped four to one (rule A4).

// CHECK-LABEL: func @every_clause
// CHECK: flashattn.attention mask(#flashattn.causal) scale(1.250000e-01) align(top_left) layout(bshd)
// CHECK-SAME: schedule(<tile_m = 64, tile_n = 64, stages = 2, dot_type = bf16, mapping = mma_sync<warps = 4>>)
// CHECK-SAME: ins({{.*}} : tensor<2x?x32x128xbf16>, tensor<2x?x8x128xbf16>, tensor<2x?x8x128xbf16>) offset(%{{.*}}) outs({{.*}} : tensor<2x?x32x128xbf16>, tensor<2x32x?xf32>)
// CHECK-SAME: {note = "kept"} -> tensor<2x?x32x128xbf16>, tensor<2x32x?xf32>
func.func @every_clause(%q: tensor<2x?x32x128xbf16>, %kv: tensor<2x?x8x128xbf16>, %p: index,
                        %o: tensor<2x?x32x128xbf16>, %lse: tensor<2x32x?xf32>)
    -> (tensor<2x?x32x128xbf16>, tensor<2x32x?xf32>) {
  %r:2 = flashattn.attention mask(#flashattn.causal) scale(0.125) align(top_left) layout(bshd)
      schedule(<tile_m = 64, tile_n = 64, stages = 2, dot_type = bf16, mapping = mma_sync<warps = 4>>)
      ins(%q, %kv, %kv : tensor<2x?x32x128xbf16>, tensor<2x?x8x128xbf16>, tensor<2x?x8x128xbf16>)
      offset(%p) outs(%o, %lse : tensor<2x?x32x128xbf16>, tensor<2x32x?xf32>) {note = "kept"}
      -> tensor<2x?x32x128xbf16>, tensor<2x32x?xf32>
  return %r#0, %r#1 : tensor<2x?x32x128xbf16>, tensor<2x32x?xf32>
}

// Memrefs: any strides with a unit last one, and no result.

// CHECK-LABEL: func @memrefs
// CHECK: flashattn.attention ins({{.*}}) outs({{.*}} : memref<?x?x?x16xf16, strided<[?, ?, ?, 1], offset: ?>>, memref<?x?x?xf32>)
// CHECK-NOT: ->
// CHECK: return
func.func @memrefs(%q: memref<?x?x?x16xf16, strided<[?, ?, ?, 1], offset: ?>>,
                   %lse: memref<?x?x?xf32>, %out_q: memref<?x?x?x16xf16, strided<[?, ?, ?, 1], offset: ?>>) {
  flashattn.attention
      ins(%q, %q, %q : memref<?x?x?x16xf16, strided<[?, ?, ?, 1], offset: ?>>,
                       memref<?x?x?x16xf16, strided<[?, ?, ?, 1], offset: ?>>,
                       memref<?x?x?x16xf16, strided<[?, ?, ?, 1], offset: ?>>)
      outs(%out_q, %lse : memref<?x?x?x16xf16, strided<[?, ?, ?, 1], offset: ?>>, memref<?x?x?xf32>)
  return
}

// CHECK-LABEL: func @masks
// CHECK-SAME: any = #flashattn.any_of<[#flashattn.window<left = 1023, right = 0>, #flashattn.all_of<[#flashattn.sink<4>, #flashattn.causal]>]>
// CHECK-SAME: causal = #flashattn.causal
// CHECK-SAME: left = #flashattn.window<left = 3>
// CHECK-SAME: none = #flashattn.any_of<[]>
// CHECK-SAME: program = #flashattn.program_axis<head>
// CHECK-SAME: quoted = #flashattn.set<"(p, k)[nq, nk] : (p - k == 0, k mod 4 + nk - nq >= 0)">
// CHECK-SAME: right = #flashattn.window<right = 3>
// CHECK-SAME: set = #flashattn.set<"(p, k)[nq, nk] : (p - k >= 0, k - p + 7 >= 0)">
// CHECK-SAME: sink = #flashattn.sink<4>
// CHECK-SAME: unbounded = #flashattn.window
func.func @masks() attributes {
  any = #flashattn.any_of<[#flashattn.window<left = 1023, right = 0>,
                           #flashattn.all_of<[#flashattn.sink<4>, #flashattn.causal]>]>,
  causal = #flashattn.causal,
  left = #flashattn.window<left = 3>,
  none = #flashattn.any_of<[]>,
  program = #flashattn.program_axis<head>,
  quoted = #flashattn.set<"(a, b)[n, m] : (a - b == 0, m - n + b mod 4 >= 0)">,
  right = #flashattn.window<right = 3>,
  set = #flashattn.set<#band>,
  sink = #flashattn.sink<4>,
  unbounded = #flashattn.window
} {
  return
}

// CHECK-LABEL: func @roles
// CHECK-SAME: added = #flashattn.hopper<consumers = 2, along = query_tile, registers = 240, producer_registers = 24, rescale_threshold = 0, l2_head_group = 1, dq_reduce_stages = 2>
// CHECK-SAME: alone = #flashattn.hopper<consumers = 3, along = query_tile, registers = 160, producer_registers = 32, rescale_threshold = 8, l2_head_group = 4>
// CHECK-SAME: cut = #flashattn.schedule<tile_m = 64, tile_n = 64, stages = 2, dot_type = f16, splits = 8, min_split_tiles = 1, mapping = hopper<consumers = 1, along = query_tile, registers = 128, producer_registers = 32, rescale_threshold = 1, l2_head_group = 1, blocks_per_sm = 2, small_blocks_per_sm = 3, prefetch_kib_per_sm = 72>>
// CHECK-SAME: gradients = #flashattn.schedule<tile_m = 64, tile_n = 16, stages = 2, dot_type = bf16, dq_tile_m = 128, mapping = mma_sync<warps = 4>>
// CHECK-SAME: late = #flashattn.hopper<consumers = 3, along = query_tile, registers = 160, producer_registers = 32, rescale_threshold = 8, l2_head_group = 1, q_stages = 2, lazy_rescale = 1, dynamic_scheduler = 1>
// CHECK-SAME: late_not = #flashattn.hopper<consumers = 3, along = query_tile, registers = 160, producer_registers = 32, rescale_threshold = 8, l2_head_group = 1>
// CHECK-SAME: leading = #flashattn.hopper<consumers = 2, along = query_tile, registers = 240, producer_registers = 24, rescale_threshold = 1, l2_head_group = 0, q_register_columns = 128>
// CHECK-SAME: limits = #flashattn.hopper<consumers = 7, along = head, registers = 256, producer_registers = 24, rescale_threshold = 0, l2_head_group = 65535>
// One block a multiprocessor goes without saying.
// CHECK-SAME: once = #flashattn.hopper<consumers = 1, along = query_tile, registers = 128, producer_registers = 32, rescale_threshold = 1, l2_head_group = 1>
// CHECK-SAME: packed = #flashattn.schedule<tile_m = 64, tile_n = 80, stages = 2, dot_type = f16, pack = 8, mapping = hopper<consumers = 1,
// CHECK-SAME: packed_all = #flashattn.schedule<tile_m = 32, tile_n = 64, stages = 1, dot_type = f32, pack = 32, mapping = cpu>
// CHECK-SAME: packed_not = #flashattn.schedule<tile_m = 32, tile_n = 64, stages = 1, dot_type = f32, mapping = cpu>
// CHECK-SAME: persistent = #flashattn.schedule<tile_m = 64, tile_n = 64, stages = 2, dot_type = f16, mapping = hopper<consumers = 2, along = query_tile, registers = 240, producer_registers = 24, rescale_threshold = 4, l2_head_group = 1, q_stages = 2>>
// CHECK-SAME: read_again = #flashattn.schedule<tile_m = 64, tile_n = 64, stages = 2, dot_type = f16, splits = 4, min_split_tiles = 3, mapping = mma_sync<warps = 4, q_in_registers = false>>
// CHECK-SAME: scheduled = #flashattn.schedule<tile_m = 64, tile_n = 80, stages = 2, dot_type = f16, mapping = hopper<consumers = 2, along = head, registers = 240, producer_registers = 24, rescale_threshold = 15, l2_head_group = 1>>
// CHECK-SAME: several = #flashattn.schedule<tile_m = 64, tile_n = 64, stages = 2, dot_type = bf16, mapping = hopper<consumers = 1, along = query_tile, registers = 128, producer_registers = 32, rescale_threshold = 1, l2_head_group = 1, blocks_per_sm = 3>>
// CHECK-SAME: shared = #flashattn.schedule<tile_m = 128, tile_n = 64, stages = 2, dot_type = f16, mapping = mma_sync<warps = 8, column_warps = 2>>
// CHECK-SAME: stay = #flashattn.hopper<consumers = 1, along = query_tile, registers = 128, producer_registers = 32, rescale_threshold = 1, l2_head_group = 1, q_stages = 2>
// CHECK-SAME: stay_both = #flashattn.hopper<consumers = 1, along = query_tile, registers = 128, producer_registers = 32, rescale_threshold = 1, l2_head_group = 1, blocks_per_sm = 3, q_stages = 2>
// CHECK-SAME: terse = #flashattn.hopper<consumers = 1, along = query_tile, registers = 24, producer_registers = 24, rescale_threshold = 0, l2_head_group = 1, blocks_per_sm = 8>
func.func @roles() attributes {
  added = #flashattn.hopper<consumers = 2, along = query_tile, registers = 240, producer_registers = 24, rescale_threshold = 0, l2_head_group = 1, dq_reduce_stages = 2>,
  alone = #flashattn.hopper<consumers = 3, along = query_tile, registers = 160, producer_registers = 32, rescale_threshold = 8, l2_head_group = 4>,
  cut = #flashattn.schedule<tile_m = 64, tile_n = 64, stages = 2, dot_type = f16, splits = 8, min_split_tiles = 1, mapping = hopper<consumers = 1, along = query_tile, registers = 128, producer_registers = 32,
      rescale_threshold = 1, l2_head_group = 1, blocks_per_sm = 2, small_blocks_per_sm = 3, prefetch_kib_per_sm = 72>>,
  gradients = #flashattn.schedule<tile_m = 64, tile_n = 16, stages = 2, dot_type = bf16, dq_tile_m = 128, mapping = mma_sync<warps = 4>>,
  late = #flashattn.hopper<consumers = 3, along = query_tile, registers = 160, producer_registers = 32, rescale_threshold = 8, l2_head_group = 1, q_stages = 2, lazy_rescale = 1, dynamic_scheduler = 1>,
  late_not = #flashattn.hopper<consumers = 3, along = query_tile, registers = 160, producer_registers = 32, rescale_threshold = 8, l2_head_group = 1, lazy_rescale = 0, dynamic_scheduler = 0>,
  leading = #flashattn.hopper<consumers = 2, along = query_tile, registers = 240, producer_registers = 24, rescale_threshold = 1, l2_head_group = 0, q_register_columns = 128>,
  limits = #flashattn.hopper<consumers = 7, along = head, registers = 256, producer_registers = 24, rescale_threshold = 0, l2_head_group = 65535>,
  once = #flashattn.hopper<consumers = 1, along = query_tile, registers = 128, producer_registers = 32, rescale_threshold = 1, l2_head_group = 1, blocks_per_sm = 1>,
  packed = #flashattn.schedule<tile_m = 64, tile_n = 80, stages = 2, dot_type = f16, pack = 8, mapping = hopper<consumers = 1, along = query_tile,
      registers = 128, producer_registers = 32, rescale_threshold = 8, l2_head_group = 1>>,
  packed_all = #flashattn.schedule<tile_m = 32, tile_n = 64, stages = 1, dot_type = f32, pack = 32, mapping = cpu>,
  packed_not = #flashattn.schedule<tile_m = 32, tile_n = 64, stages = 1, dot_type = f32, pack = 1, mapping = cpu>,
  persistent = #flashattn.schedule<tile_m = 64, tile_n = 64, stages = 2, dot_type = f16, min_split_tiles = 2, mapping = hopper<consumers = 2, along = query_tile, registers = 240, producer_registers = 24, rescale_threshold = 4, l2_head_group = 1, blocks_per_sm = 1, q_stages = 2>>,
  read_again = #flashattn.schedule<tile_m = 64, tile_n = 64, stages = 2, dot_type = f16, splits = 4, min_split_tiles = 3, mapping = mma_sync<warps = 4, q_in_registers = false>>,
  scheduled = #flashattn.schedule<tile_m = 64, tile_n = 80, stages = 2, dot_type = f16, mapping = hopper<consumers = 2, along = head, registers = 240,
      producer_registers = 24, rescale_threshold = 15, l2_head_group = 1>>,
  several = #flashattn.schedule<tile_m = 64, tile_n = 64, stages = 2, dot_type = bf16, mapping = hopper<consumers = 1, along = query_tile, registers = 128,
      producer_registers = 32, rescale_threshold = 1, l2_head_group = 1, blocks_per_sm = 3>>,
  shared = #flashattn.schedule<tile_m = 128, tile_n = 64, stages = 2, dot_type = f16, mapping = mma_sync<warps = 8, column_warps = 2>>,
  stay = #flashattn.hopper<consumers = 1, along = query_tile, registers = 128, producer_registers = 32, rescale_threshold = 1, l2_head_group = 1, q_stages = 2>,
  stay_both = #flashattn.hopper<consumers = 1, along = query_tile, registers = 128, producer_registers = 32, rescale_threshold = 1, l2_head_group = 1, blocks_per_sm = 3, q_stages = 2>,
  terse = #flashattn.hopper<consumers = 1, along = query_tile, registers = 24, producer_registers = 24, rescale_threshold = 0, l2_head_group = 1, blocks_per_sm = 8>
} {
  return
}

// CHECK-LABEL: func @any_row
// CHECK: flashattn.any_row %{{.*}} : vector<64xi1>
// CHECK: flashattn.any_row %{{.*}} {note = "kept"} : vector<64x4xi1>
func.func @any_row(%row: vector<64xi1>, %lanes: vector<64x4xi1>) -> (i1, i1) {
  %x = flashattn.any_row %row : vector<64xi1>
  %y = flashattn.any_row %lanes {note = "kept"} : vector<64x4xi1>
  return %x, %y : i1, i1
}
