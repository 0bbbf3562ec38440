// RUN: flash-opt %s -split-input-file -flashattn-tile -flashattn-specialize-warps -flashattn-expand-loops -flashattn-expand-rescale -hopper-expand-rings -canonicalize -cse -flashattn-contract-to-wgmma | FileCheck %s --implicit-check-not=hopper.load_tile

#schedule = #flashattn.schedule<tile_m = 64, tile_n = 32, stages = 2, dot_type = f16, mapping = hopper<consumers = 2, along = query_tile, registers = 240, producer_registers = 24, rescale_threshold = 8, l2_head_group = 1>>

// CHECK-LABEL: func @causal
// The first product has no accumulator but zero, so none.
// CHECK: scf.if {{.*}} -> (vector<64xf32>, vector<64x4xf32>, vector<64x64xf32>)
// CHECK:   %[[S0:.*]] = hopper.wgmma %[[QS:.*]], %{{.*}} : memref<1x64x64xf16, {{.*}}>, memref<1x32x64xf16, {{.*}}> -> vector<64x32xf32>
// It is waited for where it is used, and only then is its tile free.
// CHECK-NOT: hopper.barrier_arrive
// CHECK:   %[[S0W:.*]] = hopper.wgmma_wait %[[S0]] : vector<64x32xf32>
// CHECK-NEXT: hopper.barrier_arrive
// CHECK-NEXT: arith.select %{{.*}}, %[[S0W]]

// CHECK:   scf.for {{.*}} iter_args(%{{.*}}, %{{.*}}, %[[O:.*]] = %{{.*}}, %[[P:.*]] = %{{.*}})
// CHECK:     hopper.barrier_wait
// CHECK:     %[[S:.*]] = hopper.wgmma %[[QS]], %{{.*}} -> vector<64x32xf32>
// CHECK-NOT: hopper.wgmma_wait
// CHECK:     hopper.barrier_wait
// CHECK:     %[[PV:.*]] = hopper.wgmma %[[P]], %{{.*}}, %[[O]] transposed : vector<64x32xf16>, memref<1x32x64xf16, {{.*}}>, vector<64x64xf32>
// The scores are waited for while the output is pending; the arrivals follow their waits.
// CHECK-NOT: hopper.barrier_arrive
// CHECK:     %[[SW:.*]] = hopper.wgmma_wait %[[S]] {pending = 1 : i64} : vector<64x32xf32>
// CHECK-NEXT: hopper.barrier_arrive
// CHECK-NOT: hopper
// CHECK:     vector.shape_cast %[[SW]]
// CHECK:     %[[ANY:.*]] = flashattn.any_row
// The softmax runs beside the output's product,
// CHECK-NOT: hopper
// CHECK:     math.exp2 %{{.*}} : vector<64x32xf32>
// CHECK-NOT: hopper
// which is waited for in each arm; one wait is marked, so that the two are not merged.
// CHECK:     scf.if %[[ANY]] -> (vector<64x4xf32>, vector<64x64xf32>)
// CHECK:       %[[OW:.*]] = hopper.wgmma_wait %[[PV]] : vector<64x64xf32>
// CHECK:       arith.mulf %[[OW]]
// CHECK:     } else {
// CHECK-NEXT:  %[[HELD:.*]] = hopper.wgmma_wait %[[PV]] {held} : vector<64x64xf32>
// CHECK-NEXT:  scf.yield %{{.*}}, %[[HELD]]
// CHECK-NEXT: }
// CHECK-NEXT: hopper.barrier_arrive
// CHECK-NOT: hopper
// The weights become f16 behind that wait.
// CHECK:     arith.truncf %{{.*}} : vector<64x32xf32> to vector<64x32xf16>
// CHECK:     scf.yield

// CHECK:   scf.for
// CHECK:   }
// CHECK:   %[[LAST:.*]] = hopper.wgmma %{{.*}}, %{{.*}}, %{{.*}} transposed
// CHECK:   %[[LASTW:.*]] = hopper.wgmma_wait %[[LAST]] : vector<64x64xf32>
// CHECK-NEXT: hopper.barrier_arrive
// CHECK-NEXT: scf.yield %{{.*}}, %{{.*}}, %[[LASTW]]
// CHECK-NOT: hopper.wgmma
func.func @causal(%q: memref<?x?x?x64xf16>, %k: memref<?x?x?x64xf16>, %v: memref<?x?x?x64xf16>, %o: memref<?x?x?x64xf16>, %lse: memref<?x?x?xf32>) {
  flashattn.attention mask(#flashattn.causal) schedule(#schedule)
    ins(%q, %k, %v : memref<?x?x?x64xf16>, memref<?x?x?x64xf16>, memref<?x?x?x64xf16>)
    outs(%o, %lse : memref<?x?x?x64xf16>, memref<?x?x?xf32>)
  return
}

// -----

#schedule = #flashattn.schedule<tile_m = 64, tile_n = 32, stages = 2, dot_type = f16, mapping = hopper<consumers = 2, along = query_tile, registers = 240, producer_registers = 24, rescale_threshold = 8, l2_head_group = 1>>

// With 128 columns one loop runs full and partial tiles. The wait for the scores, behind whose product
// the output's is pending, stands in front of the branch with the mask, and the keys are free there.
// CHECK-LABEL: func @wide
// CHECK: hopper.set_registers
// CHECK: scf.for {{.*}} -> (vector<64xf32>, vector<64x4xf32>, vector<64x128xf32>, vector<64x32xf16>)
// CHECK:   %[[S:.*]] = hopper.wgmma {{.*}} -> vector<64x32xf32>
// CHECK:   hopper.wgmma {{.*}} transposed
// CHECK:   %[[SW:.*]] = hopper.wgmma_wait %[[S]] {pending = 1 : i64} : vector<64x32xf32>
// CHECK-NEXT: hopper.barrier_arrive
// CHECK-NOT: hopper
// CHECK:   %[[SHOWN:.*]] = scf.if %{{.*}} -> (vector<64x32xf32>) {
// CHECK-NEXT: scf.yield %[[SW]]
// CHECK-NEXT: } else {
// CHECK-NOT: hopper
// CHECK:     %[[MASKED:.*]] = arith.select %{{.*}}, %[[SW]],
// CHECK-NEXT: scf.yield %[[MASKED]]
// CHECK-NEXT: }
// CHECK-NEXT: vector.shape_cast %[[SHOWN]]
// CHECK-NOT: scf.for {{.*}} vector<64x128xf32>
// CHECK: return
func.func @wide(%q: memref<?x?x?x128xf16>, %o: memref<?x?x?x128xf16>) {
  flashattn.attention mask(#flashattn.causal) schedule(#schedule)
    ins(%q, %q, %q : memref<?x?x?x128xf16>, memref<?x?x?x128xf16>, memref<?x?x?x128xf16>)
    outs(%o : memref<?x?x?x128xf16>)
  return
}

// -----

#schedule = #flashattn.schedule<tile_m = 64, tile_n = 32, stages = 2, dot_type = bf16, mapping = hopper<consumers = 2, along = query_tile, registers = 240, producer_registers = 24, rescale_threshold = 8, l2_head_group = 1>>

// Rows of 80 in two panels of 64: only the columns that there are are contracted, and of the
// values' columns only so many used.
// CHECK-LABEL: func @depth
// CHECK: hopper.wgmma %{{.*}}, %{{.*}} depth(80) : memref<2x64x64xbf16, {{.*}}>, memref<2x32x64xbf16, {{.*}}> -> vector<64x32xf32>
// CHECK: hopper.wgmma %{{.*}}, %{{.*}}, %{{.*}} transposed : vector<64x32xbf16>, memref<2x32x64xbf16, {{.*}}>, vector<64x80xf32>
func.func @depth(%q: memref<?x?x?x80xbf16>, %o: memref<?x?x?x80xbf16>) {
  flashattn.attention schedule(#schedule)
    ins(%q, %q, %q : memref<?x?x?x80xbf16>, memref<?x?x?x80xbf16>, memref<?x?x?x80xbf16>)
    outs(%o : memref<?x?x?x80xbf16>)
  return
}

// -----

#late = #flashattn.schedule<tile_m = 64, tile_n = 32, stages = 2, dot_type = f16, mapping = hopper<consumers = 2, along = query_tile, registers = 240, producer_registers = 24, rescale_threshold = 8, l2_head_group = 1, lazy_rescale = 1>>

// Each warp decides for itself whether scores are made again: that product is no asynchronous one, which all four warps
// of a group issue. The ones around it are.
// CHECK-LABEL: func @late
// CHECK: scf.for {{.*}} iter_args(%{{.*}}, %{{.*}}, %[[O:.*]] = %{{.*}}, %[[P:.*]] = %{{.*}})
// CHECK:   hopper.barrier_wait
// CHECK:   %[[KEYS:.*]] = memref.subview
// CHECK:   %[[S:.*]] = hopper.wgmma %[[QS:.*]], %[[KEYS]] : {{.*}} -> vector<64x32xf32>
// CHECK:   hopper.barrier_wait
// CHECK:   %[[PV:.*]] = hopper.wgmma %[[P]], %{{.*}}, %[[O]] transposed
// The keys stay until the branch is over.
// CHECK-NOT: hopper.barrier_arrive
// CHECK:   %[[SW:.*]] = hopper.wgmma_wait %[[S]] {pending = 1 : i64} : vector<64x32xf32>
// CHECK-NOT: hopper
// CHECK:   math.fma %[[SW]],
// CHECK:   %[[ANY:.*]] = flashattn.any_row %{{.*}} : vector<64x4xi1>
// CHECK:   scf.if %[[ANY]] -> (
// CHECK-NEXT: hopper.wgmma_wait %[[PV]] : vector<64x64xf32>
// CHECK-NEXT: %[[QT:.*]] = hopper.load_tile %[[QS]]
// CHECK-NEXT: %[[KT:.*]] = hopper.load_tile %[[KEYS]]
// CHECK-NEXT: vector.contract {{.*}} %[[QT]], %[[KT]],
// CHECK-NOT: hopper
// A branch for rows whose base lies far from 0, and no product in it.
// CHECK:     %[[FAR:.*]] = flashattn.any_row %{{.*}} : vector<64xi1>
// CHECK-NOT: hopper
// CHECK:     scf.if %[[FAR]]
// CHECK-NOT: hopper
// CHECK:     } else {
// CHECK-NOT: hopper
// CHECK:   } else {
// CHECK-NEXT: hopper.wgmma_wait %[[PV]] {held} : vector<64x64xf32>
// CHECK-NEXT: scf.yield
// CHECK-NEXT: }
// CHECK-COUNT-2: hopper.barrier_arrive
// CHECK:   scf.yield
// Tiles that the mask cuts, and the last output.
// CHECK-NOT: vector.contract
// CHECK: return
func.func @late(%q: memref<?x?x?x64xf16>, %k: memref<?x?x?x64xf16>, %v: memref<?x?x?x64xf16>, %o: memref<?x?x?x64xf16>) {
  flashattn.attention mask(#flashattn.causal) schedule(#late)
    ins(%q, %k, %v : memref<?x?x?x64xf16>, memref<?x?x?x64xf16>, memref<?x?x?x64xf16>)
    outs(%o : memref<?x?x?x64xf16>)
  return
}

// -----

#mk = affine_map<(m, n, k) -> (m, k)>
#nk = affine_map<(m, n, k) -> (n, k)>
#mn = affine_map<(m, n, k) -> (m, n)>
#shared = #gpu.address_space<workgroup>

// Wherever it is a warp's rows that decide, alone or among others, around the product or around what it is in.
// CHECK-LABEL: func @branches
// CHECK-SAME: %[[ALL:[a-z0-9]+]]: i1
// CHECK: %[[ANY:.*]] = flashattn.any_row
// CHECK: %[[SOME:.*]] = arith.ori %[[ALL]], %[[ANY]]
// CHECK: scf.if %[[ANY]]
// CHECK:   hopper.load_tile
// CHECK:   hopper.load_tile
// CHECK:   vector.contract
// CHECK: scf.if %[[SOME]]
// CHECK:   hopper.load_tile
// CHECK:   hopper.load_tile
// CHECK:   vector.contract
// CHECK: scf.if %[[ALL]]
// CHECK-NEXT: %[[S:.*]] = hopper.wgmma
// CHECK-NEXT: hopper.wgmma_wait %[[S]]
// CHECK: scf.if %[[ANY]]
// CHECK:   scf.if %[[OTHER:.*]] -> (vector<64x32xf32>) {
// CHECK:     hopper.load_tile
// CHECK:     hopper.load_tile
// CHECK:     vector.contract
// CHECK-NOT: vector.contract
// CHECK-NOT: hopper.wgmma
// CHECK: return
func.func @branches(%all: i1, %other: i1, %grown: vector<64x4xi1>, %q: memref<1x64x64xf16, #shared>, %k: memref<1x32x64xf16, #shared>, %o: memref<64x32xf32>) {
  %c0 = arith.constant 0 : index
  flashattn.on_threads %c0 schedule(<tile_m = 64, tile_n = 32, stages = 2, dot_type = f16, mapping = hopper<consumers = 1, along = query_tile, registers = 240, producer_registers = 24, rescale_threshold = 8, l2_head_group = 1, lazy_rescale = 1>>) {
    %none = arith.constant dense<0.0> : vector<64x32xf32>
    %any = flashattn.any_row %grown : vector<64x4xi1>
    %some = arith.ori %all, %any : i1
    %r1 = scf.if %any -> (vector<64x32xf32>) {
      %a = hopper.load_tile %q : memref<1x64x64xf16, #shared> -> vector<64x64xf16>
      %b = hopper.load_tile %k : memref<1x32x64xf16, #shared> -> vector<32x64xf16>
      %s = vector.contract {indexing_maps = [#mk, #nk, #mn], iterator_types = ["parallel", "parallel", "reduction"], kind = #vector.kind<add>} %a, %b, %none : vector<64x64xf16>, vector<32x64xf16> into vector<64x32xf32>
      scf.yield %s : vector<64x32xf32>
    } else {
      scf.yield %none : vector<64x32xf32>
    }
    vector.transfer_write %r1, %o[%c0, %c0] {in_bounds = [true, true]} : vector<64x32xf32>, memref<64x32xf32>
    %r2 = scf.if %some -> (vector<64x32xf32>) {
      %a = hopper.load_tile %q : memref<1x64x64xf16, #shared> -> vector<64x64xf16>
      %b = hopper.load_tile %k : memref<1x32x64xf16, #shared> -> vector<32x64xf16>
      %s = vector.contract {indexing_maps = [#mk, #nk, #mn], iterator_types = ["parallel", "parallel", "reduction"], kind = #vector.kind<add>} %a, %b, %none : vector<64x64xf16>, vector<32x64xf16> into vector<64x32xf32>
      scf.yield %s : vector<64x32xf32>
    } else {
      scf.yield %none : vector<64x32xf32>
    }
    vector.transfer_write %r2, %o[%c0, %c0] {in_bounds = [true, true]} : vector<64x32xf32>, memref<64x32xf32>
    %r3 = scf.if %all -> (vector<64x32xf32>) {
      %a = hopper.load_tile %q : memref<1x64x64xf16, #shared> -> vector<64x64xf16>
      %b = hopper.load_tile %k : memref<1x32x64xf16, #shared> -> vector<32x64xf16>
      %s = vector.contract {indexing_maps = [#mk, #nk, #mn], iterator_types = ["parallel", "parallel", "reduction"], kind = #vector.kind<add>} %a, %b, %none : vector<64x64xf16>, vector<32x64xf16> into vector<64x32xf32>
      scf.yield %s : vector<64x32xf32>
    } else {
      scf.yield %none : vector<64x32xf32>
    }
    vector.transfer_write %r3, %o[%c0, %c0] {in_bounds = [true, true]} : vector<64x32xf32>, memref<64x32xf32>
    scf.if %any {
      %r4 = scf.if %other -> (vector<64x32xf32>) {
        %a = hopper.load_tile %q : memref<1x64x64xf16, #shared> -> vector<64x64xf16>
        %b = hopper.load_tile %k : memref<1x32x64xf16, #shared> -> vector<32x64xf16>
        %s = vector.contract {indexing_maps = [#mk, #nk, #mn], iterator_types = ["parallel", "parallel", "reduction"], kind = #vector.kind<add>} %a, %b, %none : vector<64x64xf16>, vector<32x64xf16> into vector<64x32xf32>
        scf.yield %s : vector<64x32xf32>
      } else {
        scf.yield %none : vector<64x32xf32>
      }
      vector.transfer_write %r4, %o[%c0, %c0] {in_bounds = [true, true]} : vector<64x32xf32>, memref<64x32xf32>
    }
  }
  return
}

// -----

#mk = affine_map<(m, n, k) -> (m, k)>
#nk = affine_map<(m, n, k) -> (n, k)>
#mn = affine_map<(m, n, k) -> (m, n)>
#shared = #gpu.address_space<workgroup>

// Columns in registers are taken from there; where these are all, so is the whole side, and shared memory has
// panels of more columns on the right.
// CHECK-LABEL: func @held
// CHECK-SAME: (%[[Q:.*]]: memref<2x64x64xf16, {{.*}}>, %[[K:.*]]: memref<2x32x64xf16, {{.*}}>, %[[SOME:.*]]: vector<64x32xf16>, %[[ALL:.*]]: vector<64x96xf16>,
// CHECK: hopper.wgmma %[[Q]] first %[[SOME]], %[[K]] depth(96) : memref<2x64x64xf16, {{.*}}> first vector<64x32xf16>, memref<2x32x64xf16, {{.*}}> -> vector<64x32xf32>
// CHECK: hopper.wgmma %[[ALL]], %[[K]] depth(96) : vector<64x96xf16>, memref<2x32x64xf16, {{.*}}> -> vector<64x32xf32>
func.func @held(%q: memref<2x64x64xf16, #shared>, %k: memref<2x32x64xf16, #shared>, %some: vector<64x32xf16>, %all: vector<64x96xf16>, %o: memref<64x32xf32>) {
  %c0 = arith.constant 0 : index
  %none = arith.constant dense<0.0> : vector<64x32xf32>
  flashattn.on_threads %c0 schedule(<tile_m = 64, tile_n = 32, stages = 2, dot_type = f16, mapping = hopper<consumers = 2, along = query_tile, registers = 240, producer_registers = 24, rescale_threshold = 8, l2_head_group = 1, q_register_columns = 32>>) {
    %a = hopper.load_tile %q first %some : memref<2x64x64xf16, #shared>, vector<64x32xf16> -> vector<64x96xf16>
    %b = hopper.load_tile %k : memref<2x32x64xf16, #shared> -> vector<32x96xf16>
    %s = vector.contract {indexing_maps = [#mk, #nk, #mn], iterator_types = ["parallel", "parallel", "reduction"], kind = #vector.kind<add>} %a, %b, %none : vector<64x96xf16>, vector<32x96xf16> into vector<64x32xf32>
    vector.transfer_write %s, %o[%c0, %c0] {in_bounds = [true, true]} : vector<64x32xf32>, memref<64x32xf32>
    %c = hopper.load_tile %q first %all : memref<2x64x64xf16, #shared>, vector<64x96xf16> -> vector<64x96xf16>
    %t = vector.contract {indexing_maps = [#mk, #nk, #mn], iterator_types = ["parallel", "parallel", "reduction"], kind = #vector.kind<add>} %c, %b, %none : vector<64x96xf16>, vector<32x96xf16> into vector<64x32xf32>
    vector.transfer_write %t, %o[%c0, %c0] {in_bounds = [true, true]} : vector<64x32xf32>, memref<64x32xf32>
  }
  return
}

// -----

#mk = affine_map<(m, n, k) -> (m, k)>
#nk = affine_map<(m, n, k) -> (n, k)>
#mn = affine_map<(m, n, k) -> (m, n)>
#shared = #gpu.address_space<workgroup>

// F3: wide sums of f8 products are computed and added in ranges of columns, all in the same registers. The tile is
// released behind the last one.
// CHECK-LABEL: func @parts
// CHECK-SAME: (%[[P:.*]]: vector<64x64xf8E4M3FN>, %[[V:.*]]: memref<1x144x64xf8E4M3FN, {{.*}}>, %[[OUT:.*]]: vector<64x144xf32>, %[[FACTOR:.*]]: vector<64x144xf32>,
// CHECK: %[[V0:.*]] = memref.subview %[[V]][0, 0, 0] [1, 48, 64] [1, 1, 1]
// CHECK: %[[T0:.*]] = hopper.wgmma %[[P]], %[[V0]] : vector<64x64xf8E4M3FN>, memref<1x48x64xf8E4M3FN, {{.*}}> -> vector<64x48xf32>
// CHECK: %[[O0:.*]] = vector.extract_strided_slice %[[OUT]] {offsets = [0, 0], sizes = [64, 48], strides = [1, 1]}
// CHECK: %[[F0:.*]] = vector.extract_strided_slice %[[FACTOR]] {offsets = [0, 0], sizes = [64, 48], strides = [1, 1]}
// CHECK: %[[T0W:.*]] = hopper.wgmma_wait %[[T0]]
// CHECK: %[[S0:.*]] = math.fma %[[O0]], %[[F0]], %[[T0W]] : vector<64x48xf32>
// Otherwise LLVM would move the sum behind the next products.
// CHECK: %[[S0P:.*]] = hopper.pin %[[S0]] weak : vector<64x48xf32>
// CHECK: %[[R0:.*]] = vector.insert_strided_slice %[[S0P]], %[[OUT]] {offsets = [0, 0], strides = [1, 1]}
// CHECK: %[[V1:.*]] = memref.subview %[[V]][0, 48, 0] [1, 48, 64] [1, 1, 1]
// CHECK: %[[T1:.*]] = hopper.wgmma %[[P]], %[[V1]], %[[T0W]] overwritten
// CHECK: %[[T1W:.*]] = hopper.wgmma_wait %[[T1]]
// CHECK: hopper.pin
// CHECK: %[[R1:.*]] = vector.insert_strided_slice %{{.*}}, %[[R0]] {offsets = [0, 48], strides = [1, 1]}
// CHECK: %[[T2:.*]] = hopper.wgmma %[[P]], %{{.*}}, %[[T1W]] overwritten
// CHECK-NOT: hopper.barrier_arrive
// CHECK: hopper.wgmma_wait %[[T2]]
// CHECK: math.fma
// CHECK-NOT: hopper.pin
// CHECK: %[[R2:.*]] = vector.insert_strided_slice %{{.*}}, %[[R1]] {offsets = [0, 96], strides = [1, 1]}
// CHECK: hopper.barrier_arrive
// CHECK: vector.transfer_write %[[R2]]
func.func @parts(%p: vector<64x64xf8E4M3FN>, %v: memref<1x144x64xf8E4M3FN, #shared>, %out: vector<64x144xf32>, %factor: vector<64x144xf32>,
                 %bars: memref<2xi64, #shared>, %o: memref<64x144xf32>) {
  %c0 = arith.constant 0 : index
  %none = arith.constant dense<0.0> : vector<64x144xf32>
  flashattn.on_threads %c0 schedule(<tile_m = 64, tile_n = 64, stages = 2, dot_type = f8E4M3FN, mapping = hopper<consumers = 2, along = query_tile, registers = 232, producer_registers = 40, rescale_threshold = 0, l2_head_group = 1>>) {
    %b = hopper.load_tile %v : memref<1x144x64xf8E4M3FN, #shared> -> vector<144x64xf8E4M3FN>
    %s = vector.contract {indexing_maps = [#mk, #nk, #mn], iterator_types = ["parallel", "parallel", "reduction"], kind = #vector.kind<add>} %p, %b, %none : vector<64x64xf8E4M3FN>, vector<144x64xf8E4M3FN> into vector<64x144xf32>
    hopper.barrier_arrive %bars[%c0] : memref<2xi64, #shared>
    %r = math.fma %out, %factor, %s : vector<64x144xf32>
    vector.transfer_write %r, %o[%c0, %c0] {in_bounds = [true, true]} : vector<64x144xf32>, memref<64x144xf32>
  }
  return
}

// -----

// A program without warp specialization keeps its contractions.
// CHECK-LABEL: func @no_roles
// CHECK: vector.contract
// CHECK-NOT: hopper
func.func @no_roles(%o: memref<?x16xf32>, %a: vector<16x16xf16>, %b: vector<16x16xf16>, %acc: vector<16x16xf32>) {
  %c0 = arith.constant 0 : index
  flashattn.on_threads %c0 schedule(<tile_m = 16, tile_n = 16, stages = 1, dot_type = f16, mapping = mma_sync<warps = 1>>) {
    %s = vector.contract {indexing_maps = [affine_map<(m, n, k) -> (m, k)>, affine_map<(m, n, k) -> (k, n)>, affine_map<(m, n, k) -> (m, n)>], iterator_types = ["parallel", "parallel", "reduction"], kind = #vector.kind<add>} %a, %b, %acc : vector<16x16xf16>, vector<16x16xf16> into vector<16x16xf32>
    vector.transfer_write %s, %o[%c0, %c0] {in_bounds = [false, true]} : vector<16x16xf32>, memref<?x16xf32>
  }
  return
}
