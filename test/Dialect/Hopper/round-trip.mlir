// RUN: flash-opt %s | flash-opt | FileCheck %s
// RUN: flash-opt %s -mlir-print-op-generic | flash-opt | FileCheck %s

!ws_a = memref<2x64x64xf16, #gpu.address_space<workgroup>>
!ws_b = memref<2x80x64xf16, #gpu.address_space<workgroup>>
!bars = memref<4xi64, #gpu.address_space<workgroup>>

// CHECK-LABEL: func @tensor_map
// CHECK: %[[M:.*]] = hopper.make_tensor_map %{{.*}} row_dim(2) : memref<?x?x?x128xf16> to !hopper.tensor_map<80x64xf16>
// CHECK: hopper.make_tensor_map %{{.*}} row_dim(2) outer_dim(1) outer_rows(4) : memref<?x?x?x128xf16> to !hopper.tensor_map<80x64xf16>
// CHECK: hopper.make_tensor_map %{{.*}} row_dim(0) : memref<100x32xbf16, strided<[?, 1], offset: ?>> to !hopper.tensor_map<256x16xbf16>
func.func @tensor_map(%k: memref<?x?x?x128xf16>, %m: memref<100x32xbf16, strided<[?, 1], offset: ?>>)
    -> !hopper.tensor_map<80x64xf16> {
  %0 = hopper.make_tensor_map %k row_dim(2) : memref<?x?x?x128xf16> to !hopper.tensor_map<80x64xf16>
  %2 = hopper.make_tensor_map %k row_dim(2) outer_dim(1) outer_rows(4)
      : memref<?x?x?x128xf16> to !hopper.tensor_map<80x64xf16>
  %1 = hopper.make_tensor_map %m row_dim(0)
      : memref<100x32xbf16, strided<[?, 1], offset: ?>> to !hopper.tensor_map<256x16xbf16>
  return %0 : !hopper.tensor_map<80x64xf16>
}

// CHECK-LABEL: func @tma_load
// CHECK: hopper.tma_load %{{.*}}[%{{.*}}, %{{.*}}, %{{.*}}, %{{.*}}] to %{{.*}}, %{{.*}}[%{{.*}}] : !hopper.tensor_map<80x64xf16> to memref<2x80x64xf16, #gpu.address_space<workgroup>>, memref<4xi64, #gpu.address_space<workgroup>>
func.func @tma_load(%m: !hopper.tensor_map<80x64xf16>, %tile: !ws_b, %bars: !bars, %i: index) {
  hopper.tma_load %m[%i, %i, %i, %i] to %tile, %bars[%i] : !hopper.tensor_map<80x64xf16> to !ws_b, !bars
  return
}

// CHECK-LABEL: func @tma_store
// CHECK: hopper.tma_store %{{.*}} to %{{.*}}[%{{.*}}, %{{.*}}, %{{.*}}, %{{.*}}] : memref<2x64x64xf16, #gpu.address_space<workgroup>> to !hopper.tensor_map<64x64xf16>
// CHECK: hopper.tma_store %{{.*}} to %{{.*}}[%{{.*}}, %{{.*}}] : memref<1x64x16xbf16, #gpu.address_space<workgroup>> to !hopper.tensor_map<64x16xbf16>
func.func @tma_store(%tile: !ws_a, %m: !hopper.tensor_map<64x64xf16>,
                     %narrow: memref<1x64x16xbf16, #gpu.address_space<workgroup>>,
                     %n: !hopper.tensor_map<64x16xbf16>, %i: index) {
  hopper.tma_store %tile to %m[%i, %i, %i, %i] : !ws_a to !hopper.tensor_map<64x64xf16>
  hopper.tma_store %narrow to %n[%i, %i]
      : memref<1x64x16xbf16, #gpu.address_space<workgroup>> to !hopper.tensor_map<64x16xbf16>
  return
}

// CHECK-LABEL: func @barriers
// CHECK: hopper.barrier_init %{{.*}}[%{{.*}}], 3 : memref<4xi64, #gpu.address_space<workgroup>>
// CHECK: hopper.fence_barrier_init
// CHECK: hopper.barrier_expect %{{.*}}[%{{.*}}], 20480 : memref<4xi64, #gpu.address_space<workgroup>>
// CHECK: hopper.barrier_arrive %{{.*}}[%{{.*}}] : memref<4xi64, #gpu.address_space<workgroup>>
// CHECK: hopper.barrier_arrive %{{.*}}[%{{.*}}] if %{{.*}} : memref<4xi64, #gpu.address_space<workgroup>>
// CHECK: hopper.barrier_wait %{{.*}}[%{{.*}}], %{{.*}} : memref<4xi64, #gpu.address_space<workgroup>>
func.func @barriers(%bars: !bars, %i: index, %first: i1, %parity: i32) {
  hopper.barrier_init %bars[%i], 3 : !bars
  hopper.fence_barrier_init
  hopper.barrier_expect %bars[%i], 20480 : !bars
  hopper.barrier_arrive %bars[%i] : !bars
  hopper.barrier_arrive %bars[%i] if %first : !bars
  hopper.barrier_wait %bars[%i], %parity : !bars
  return
}

// CHECK-LABEL: func @tiles
// CHECK: %[[S:.*]] = hopper.wgmma %{{.*}}, %{{.*}} : memref<2x64x64xf16, #gpu.address_space<workgroup>>, memref<2x80x64xf16, #gpu.address_space<workgroup>> -> vector<64x80xf32>
// CHECK: hopper.wgmma %{{.*}}, %{{.*}} depth(96) : {{.*}} -> vector<64x80xf32>
// CHECK: hopper.wgmma %{{.*}} first %[[HELD:.*]], %{{.*}} : memref<2x64x64xf16, #gpu.address_space<workgroup>> first vector<64x80xf16>, memref<2x80x64xf16, #gpu.address_space<workgroup>> -> vector<64x80xf32>
// CHECK: hopper.load_tile %{{.*}} first %[[HELD]] : memref<2x64x64xf16, #gpu.address_space<workgroup>>, vector<64x80xf16> -> vector<64x128xf16>
// CHECK: %[[O:.*]] = hopper.wgmma %{{.*}}, %{{.*}}, %{{.*}} transposed : vector<64x80xf16>, memref<2x80x64xf16, #gpu.address_space<workgroup>>, vector<64x128xf32>
// CHECK: %{{.*}}:2 = hopper.wgmma_wait %[[S]], %[[O]] {pending = 1 : i64} : vector<64x80xf32>, vector<64x128xf32>
// CHECK: hopper.wgmma_wait %{{.*}} {held} : vector<64x128xf32>
func.func @tiles(%q: !ws_a, %k: !ws_b, %v: !ws_b, %p: vector<64x80xf16>, %acc: vector<64x128xf32>) {
  %s = hopper.wgmma %q, %k : !ws_a, !ws_b -> vector<64x80xf32>
  %t = hopper.wgmma %q, %k depth(96) : !ws_a, !ws_b -> vector<64x80xf32>
  %u = hopper.wgmma %q first %p, %k : !ws_a first vector<64x80xf16>, !ws_b -> vector<64x80xf32>
  %w = hopper.load_tile %q first %p : !ws_a, vector<64x80xf16> -> vector<64x128xf16>
  %o = hopper.wgmma %p, %v, %acc transposed : vector<64x80xf16>, !ws_b, vector<64x128xf32>
  %x:2 = hopper.wgmma_wait %s, %o {pending = 1} : vector<64x80xf32>, vector<64x128xf32>
  %y = hopper.wgmma_wait %x#1 {held} : vector<64x128xf32>
  return
}

// Warpgroups that share a product: 64 rows of each, or a part of the columns of 64. Of a transposed
// left-hand side rows are the contraction.
// CHECK-LABEL: func @shared
// CHECK: hopper.wgmma %{{.*}}, %{{.*}} : memref<2x128x64xf16, #gpu.address_space<workgroup>>, memref<2x80x64xf16, #gpu.address_space<workgroup>> -> vector<128x80xf32>
// CHECK: %[[D:.*]] = hopper.wgmma %{{.*}}, %{{.*}} transposed_a transposed : memref<1x128x64xf16, #gpu.address_space<workgroup>>, memref<2x128x64xf16, #gpu.address_space<workgroup>> -> vector<64x128xf32>
// CHECK: hopper.wgmma %{{.*}}, %{{.*}}, %[[D]] transposed_a transposed depth(64) : {{.*}}, vector<64x128xf32>
// CHECK: hopper.wgmma %{{.*}}, %{{.*}} transposed_a : {{.*}} -> vector<64x80xf32>
func.func @shared(%k: memref<2x128x64xf16, #gpu.address_space<workgroup>>, %q: !ws_b,
                  %p: memref<1x128x64xf16, #gpu.address_space<workgroup>>) {
  %s = hopper.wgmma %k, %q : memref<2x128x64xf16, #gpu.address_space<workgroup>>, !ws_b -> vector<128x80xf32>
  %d = hopper.wgmma %p, %k transposed_a transposed
      : memref<1x128x64xf16, #gpu.address_space<workgroup>>, memref<2x128x64xf16, #gpu.address_space<workgroup>>
        -> vector<64x128xf32>
  %e = hopper.wgmma %p, %k, %d transposed_a transposed depth(64)
      : memref<1x128x64xf16, #gpu.address_space<workgroup>>, memref<2x128x64xf16, #gpu.address_space<workgroup>>,
        vector<64x128xf32>
  %f = hopper.wgmma %p, %q transposed_a
      : memref<1x128x64xf16, #gpu.address_space<workgroup>>, !ws_b -> vector<64x80xf32>
  return
}

// What warpgroups that share a program hand each other and add up: whole tiles, and a thread's part.
// CHECK-LABEL: func @exchange
// CHECK: hopper.pin %{{.*}} : vector<128x64xf16>
// CHECK: hopper.pin %{{.*}} : vector<32xf16>
// CHECK: hopper.pin %{{.*}} weak : vector<32xf32>
// CHECK: hopper.publish %{{.*}}[%{{.*}}] : memref<4xi64, #gpu.address_space<workgroup>>
// CHECK: hopper.add_tile %{{.*}} through %{{.*}} to %{{.*}}[%{{.*}}, %{{.*}}] : vector<64x128xf32>, memref<8x1024xf32, #gpu.address_space<workgroup>>, memref<?x128xf32>
// CHECK: hopper.add_tile %{{.*}} through %{{.*}} to %{{.*}}[%{{.*}}, %{{.*}}] warp %{{.*}} : vector<32xf32>, memref<8x1024xf32, #gpu.address_space<workgroup>>, memref<?x128xf32>
// CHECK: hopper.stage_tile %{{.*}} to %{{.*}} : vector<64x128xf32>, memref<8x1024xf32, #gpu.address_space<workgroup>>
// CHECK: hopper.stage_tile %{{.*}} to %{{.*}} warp %{{.*}} : vector<32xf32>, memref<8x1024xf32, #gpu.address_space<workgroup>>
// CHECK: hopper.add_staged %{{.*}} to %{{.*}}[%{{.*}}, %{{.*}}] warp %{{.*}} : memref<8x1024xf32, #gpu.address_space<workgroup>>, memref<?x128xf32>
// CHECK: hopper.add_staged %{{.*}} to %{{.*}}[%{{.*}}, %{{.*}}] : memref<8x1024xf32, #gpu.address_space<workgroup>>, memref<?x128xf32>
// CHECK: hopper.warp_arrive %{{.*}}[%{{.*}}] : memref<4xi64, #gpu.address_space<workgroup>>
func.func @exchange(%p: vector<128x64xf16>, %h: vector<32xf16>, %bars: !bars, %i: index, %dq: vector<64x128xf32>,
                    %held: vector<32xf32>, %s: memref<8x1024xf32, #gpu.address_space<workgroup>>, %t: memref<?x128xf32>) {
  %0 = hopper.pin %p : vector<128x64xf16>
  %1 = hopper.pin %h : vector<32xf16>
  %2 = hopper.pin %held weak : vector<32xf32>
  hopper.publish %bars[%i] : !bars
  hopper.add_tile %dq through %s to %t[%i, %i]
      : vector<64x128xf32>, memref<8x1024xf32, #gpu.address_space<workgroup>>, memref<?x128xf32>
  hopper.add_tile %held through %s to %t[%i, %i] warp %i
      : vector<32xf32>, memref<8x1024xf32, #gpu.address_space<workgroup>>, memref<?x128xf32>
  hopper.stage_tile %dq to %s : vector<64x128xf32>, memref<8x1024xf32, #gpu.address_space<workgroup>>
  hopper.stage_tile %held to %s warp %i : vector<32xf32>, memref<8x1024xf32, #gpu.address_space<workgroup>>
  hopper.add_staged %s to %t[%i, %i] warp %i : memref<8x1024xf32, #gpu.address_space<workgroup>>, memref<?x128xf32>
  hopper.add_staged %s to %t[%i, %i] : memref<8x1024xf32, #gpu.address_space<workgroup>>, memref<?x128xf32>
  hopper.warp_arrive %bars[%i] : !bars
  return
}

// CHECK-LABEL: func @claim
// CHECK: hopper.claim %{{.*}}[%{{.*}}] : memref<?xi32>
func.func @claim(%counter: memref<?xi32>, %i: index) -> i32 {
  %number = hopper.claim %counter[%i] : memref<?xi32>
  return %number : i32
}

// Blocks that wait for each other.
// CHECK-LABEL: func @turns
// CHECK: %[[SEEN:.*]] = hopper.read_turn %{{.*}}[%{{.*}}, %{{.*}}] : memref<?x?xi32>
// CHECK: hopper.await_turn %{{.*}}[%{{.*}}, %{{.*}}] is %{{.*}} seen %[[SEEN]] : memref<?x?xi32>
// CHECK: hopper.pass_turn %{{.*}} at %{{.*}}[%{{.*}}, %{{.*}}] : memref<?x?xi32>
func.func @turns(%order: memref<?x?xi32>, %i: index, %turn: i32) {
  %seen = hopper.read_turn %order[%i, %i] : memref<?x?xi32>
  hopper.await_turn %order[%i, %i] is %turn seen %seen : memref<?x?xi32>
  hopper.pass_turn %turn at %order[%i, %i] : memref<?x?xi32>
  return
}

// Warpgroups that let each other go on.
// CHECK-LABEL: func @peers
// CHECK: hopper.await_peer 2
// CHECK: hopper.wake_peer 2
func.func @peers() {
  hopper.await_peer 2
  hopper.wake_peer 2
  return
}

// Blocks that wait for what other blocks add.
// CHECK-LABEL: func @counts
// CHECK: hopper.signal_added %{{.*}}[%{{.*}}] : memref<?xi32>
// CHECK: hopper.await_added %{{.*}}[%{{.*}}] is %{{.*}} : memref<?xi32>
func.func @counts(%done: memref<?xi32>, %i: index, %count: i32) {
  hopper.signal_added %done[%i] : memref<?xi32>
  hopper.await_added %done[%i] is %count : memref<?xi32>
  return
}

// CHECK-LABEL: func @clears
// CHECK: hopper.take_first %{{.*}}[%{{.*}}] seen %{{.*}} : memref<?xi32>
// CHECK: hopper.clear %{{.*}}[%{{.*}}, %{{.*}}] elements 8192 : memref<?x128xf32>
func.func @clears(%order: memref<?xi32>, %sums: memref<?x128xf32>, %i: index, %seen: i32) -> i1 {
  %first = hopper.take_first %order[%i] seen %seen : memref<?xi32>
  hopper.clear %sums[%i, %i] elements 8192 : memref<?x128xf32>
  return %first : i1
}

// Elements that come beside a tile.
// CHECK-LABEL: func @elements
// CHECK: hopper.bulk_load %{{.*}}[%{{.*}}, %{{.*}}] to %{{.*}}[%{{.*}}], %{{.*}}[%{{.*}}] : memref<?x?xf32> to memref<3x64xf32, #gpu.address_space<workgroup>>, memref<4xi64, #gpu.address_space<workgroup>>
// CHECK: hopper.ring_put %{{.*}} at %{{.*}} idle %{{.*}} from %{{.*}}[%{{.*}}, %{{.*}}] beside 256 : !hopper.ring<3x2x80x64xf16>, !hopper.tensor_map<80x64xf16>
// CHECK: hopper.ring_put_row %{{.*}} at %{{.*}} from %{{.*}}[%{{.*}}, %{{.*}}] to %{{.*}} : !hopper.ring<3x2x80x64xf16>, memref<?x?xf32>, memref<3x64xf32, #gpu.address_space<workgroup>>
func.func @elements(%s: memref<?x?xf32>, %p: memref<3x64xf32, #gpu.address_space<workgroup>>, %bars: !bars, %i: index,
                    %ring: !hopper.ring<3x2x80x64xf16>, %m: !hopper.tensor_map<80x64xf16>, %n: i32) {
  hopper.bulk_load %s[%i, %i] to %p[%i], %bars[%i]
      : memref<?x?xf32> to memref<3x64xf32, #gpu.address_space<workgroup>>, !bars
  hopper.ring_put %ring at %i idle %n from %m[%i, %i] beside 256 : !hopper.ring<3x2x80x64xf16>, !hopper.tensor_map<80x64xf16>
  hopper.ring_put_row %ring at %i from %s[%i, %i] to %p
      : !hopper.ring<3x2x80x64xf16>, memref<?x?xf32>, memref<3x64xf32, #gpu.address_space<workgroup>>
  return
}

// What one thread holds of a tile; 112 of 128 columns of the right-hand side.
// CHECK-LABEL: func @distributed
// CHECK: hopper.wgmma %{{.*}}, %{{.*}}, %{{.*}} transposed : vector<40xf16>, {{.*}}, vector<56xf32>
func.func @distributed(%v: !ws_b, %p: vector<40xf16>, %acc: vector<56xf32>) {
  %o = hopper.wgmma %p, %v, %acc transposed : vector<40xf16>, !ws_b, vector<56xf32>
  %x:2 = hopper.wgmma_wait %o, %p : vector<56xf32>, vector<40xf16>
  return
}

// Values to and from shared memory: whole tiles or their first columns; what one thread holds of 64
// rows and 112 of 128 columns.
// CHECK-LABEL: func @tile_values
// CHECK: %[[K:.*]] = hopper.load_tile %{{.*}} : memref<2x80x64xf16, #gpu.address_space<workgroup>> -> vector<80x112xf16>
// CHECK: hopper.store_tile %{{.*}} to %{{.*}} : vector<64x128xf16>, memref<2x64x64xf16, #gpu.address_space<workgroup>>
// CHECK: hopper.store_tile %{{.*}} to %{{.*}} : vector<64x80xf16>, memref<2x64x64xf16, #gpu.address_space<workgroup>>
// CHECK: hopper.store_tile %{{.*}} to %{{.*}} : vector<56xf16>, memref<2x64x64xf16, #gpu.address_space<workgroup>>
// CHECK: hopper.store_tile %{{.*}} to %{{.*}} : vector<8xbf16>, memref<1x64x16xbf16, #gpu.address_space<workgroup>>
// CHECK: hopper.wait_stores consumer(1)
// CHECK: hopper.read_tile %{{.*}} : memref<2x64x64xf16, #gpu.address_space<workgroup>> -> vector<64x128xf16>
// CHECK: hopper.read_tile %{{.*}} : memref<2x64x64xf16, #gpu.address_space<workgroup>> -> vector<56xf16>
// CHECK: hopper.read_tile %{{.*}} from 80 : memref<2x64x64xf16, #gpu.address_space<workgroup>> -> vector<64x48xf16>
// CHECK: hopper.read_tile %{{.*}} from 112 by %{{.*}} : memref<2x64x64xf16, #gpu.address_space<workgroup>> -> vector<8xf16>
// The rows of a single warp.
// CHECK: hopper.read_tile %{{.*}} by %{{.*}} : memref<2x16x64xf16, #gpu.address_space<workgroup>> -> vector<8xf16>
// CHECK: hopper.read_tile %{{.*}} from 64 : memref<2x16x64xf16, #gpu.address_space<workgroup>> -> vector<32xf16>
func.func @tile_values(%k: !ws_b, %o: !ws_a, %whole: vector<64x128xf16>, %first: vector<64x80xf16>,
                       %part: vector<56xf16>, %few: vector<8xbf16>,
                       %narrow: memref<1x64x16xbf16, #gpu.address_space<workgroup>>,
                       %rows: memref<2x16x64xf16, #gpu.address_space<workgroup>>, %thread: i32) -> vector<80x112xf16> {
  %0 = hopper.load_tile %k : !ws_b -> vector<80x112xf16>
  hopper.store_tile %whole to %o : vector<64x128xf16>, !ws_a
  hopper.store_tile %first to %o : vector<64x80xf16>, !ws_a
  hopper.store_tile %part to %o : vector<56xf16>, !ws_a
  hopper.store_tile %few to %narrow : vector<8xbf16>, memref<1x64x16xbf16, #gpu.address_space<workgroup>>
  hopper.wait_stores consumer(1)
  %1 = hopper.read_tile %o : !ws_a -> vector<64x128xf16>
  %2 = hopper.read_tile %o : !ws_a -> vector<56xf16>
  %3 = hopper.read_tile %o from 80 : !ws_a -> vector<64x48xf16>
  %4 = hopper.read_tile %o from 112 by %thread : !ws_a -> vector<8xf16>
  %5 = hopper.read_tile %rows by %thread : memref<2x16x64xf16, #gpu.address_space<workgroup>> -> vector<8xf16>
  %6 = hopper.read_tile %rows from 64 : memref<2x16x64xf16, #gpu.address_space<workgroup>> -> vector<32xf16>
  return %0 : vector<80x112xf16>
}

// CHECK-LABEL: func @rings
// CHECK: %[[R:.*]] = hopper.make_ring %{{.*}}, %{{.*}}[3] : memref<3x2x80x64xf16, #gpu.address_space<workgroup>>, memref<9xi64, #gpu.address_space<workgroup>> to !hopper.ring<3x2x80x64xf16>
// CHECK: hopper.ring_init %[[R]], 2 : !hopper.ring<3x2x80x64xf16>
// CHECK: hopper.ring_put %[[R]] at %{{.*}} from %{{.*}}[%{{.*}}, %{{.*}}] : !hopper.ring<3x2x80x64xf16>, !hopper.tensor_map<80x64xf16>
// CHECK: %[[T:.*]] = hopper.ring_get %[[R]] at %{{.*}} : !hopper.ring<3x2x80x64xf16>
// CHECK: hopper.load_tile %[[T]] : memref<2x80x64xf16, strided<[5120, 64, 1], offset: ?>, #gpu.address_space<workgroup>> -> vector<80x128xf16>
// CHECK: hopper.ring_release %[[R]] at %{{.*}} : !hopper.ring<3x2x80x64xf16>
// CHECK: hopper.ring_release %[[R]] at %{{.*}} if %{{.*}} : !hopper.ring<3x2x80x64xf16>
// CHECK: hopper.ring_drain %[[R]] at %{{.*}} : !hopper.ring<3x2x80x64xf16>
func.func @rings(%tiles: memref<3x2x80x64xf16, #gpu.address_space<workgroup>>,
                 %bars: memref<9xi64, #gpu.address_space<workgroup>>,
                 %m: !hopper.tensor_map<80x64xf16>, %i: index, %c: i1) {
  %ring = hopper.make_ring %tiles, %bars[3]
      : memref<3x2x80x64xf16, #gpu.address_space<workgroup>>,
        memref<9xi64, #gpu.address_space<workgroup>> to !hopper.ring<3x2x80x64xf16>
  hopper.ring_init %ring, 2 : !hopper.ring<3x2x80x64xf16>
  hopper.ring_put %ring at %i from %m[%i, %i]
      : !hopper.ring<3x2x80x64xf16>, !hopper.tensor_map<80x64xf16>
  %tile = hopper.ring_get %ring at %i : !hopper.ring<3x2x80x64xf16>
  %value = hopper.load_tile %tile
      : memref<2x80x64xf16, strided<[5120, 64, 1], offset: ?>, #gpu.address_space<workgroup>>
        -> vector<80x128xf16>
  hopper.ring_release %ring at %i : !hopper.ring<3x2x80x64xf16>
  hopper.ring_release %ring at %i if %c : !hopper.ring<3x2x80x64xf16>
  hopper.ring_drain %ring at %i : !hopper.ring<3x2x80x64xf16>
  return
}

// CHECK-LABEL: func @groups
// CHECK: hopper.set_registers decrease 24 blocks(2)
// CHECK: hopper.set_registers increase 160 blocks(2)
// CHECK: hopper.group_arrive %{{.*}} threads(384)
// CHECK: hopper.group_barrier %{{.*}} threads(128)
// CHECK: hopper.fence_async_shared
// CHECK: hopper.wait_stores
func.func @groups(%id: i32) {
  hopper.set_registers decrease 24 blocks(2)
  hopper.set_registers increase 160 blocks(2)
  hopper.group_arrive %id threads(384)
  hopper.group_barrier %id threads(128)
  hopper.fence_async_shared
  hopper.wait_stores
  return
}

// Pieces of pages.
// CHECK-LABEL: func @pages
// CHECK: hopper.ring_put %{{.*}} at %{{.*}} from %{{.*}}[%{{.*}}, %{{.*}}, %{{.*}}] pieces(%{{.*}}, %{{.*}}) along 1 pages(%{{.*}}, %{{.*}}) : !hopper.ring<3x1x16x64xf16>, !hopper.tensor_map<8x64xf16>
func.func @pages(%ring: !hopper.ring<3x1x16x64xf16>, %m: !hopper.tensor_map<8x64xf16>, %i: index, %j: index) {
  hopper.ring_put %ring at %i from %m[%i, %i, %i] pieces(%i, %i) along 1 pages(%i, %j)
      : !hopper.ring<3x1x16x64xf16>, !hopper.tensor_map<8x64xf16>
  return
}

// A tile that comes in pieces.
// CHECK-LABEL: func @pieces
// CHECK: hopper.ring_put %{{.*}} at %{{.*}} from %{{.*}}[%{{.*}}, %{{.*}}] pieces(%{{.*}}, %{{.*}}) along 0 panels 1 : !hopper.ring<3x2x16x64xf16>, !hopper.tensor_map<8x64xf16>
func.func @pieces(%ring: !hopper.ring<3x2x16x64xf16>, %m: !hopper.tensor_map<8x64xf16>, %i: index, %j: index) {
  hopper.ring_put %ring at %i from %m[%i, %i] pieces(%i, %j) along 0 panels 1
      : !hopper.ring<3x2x16x64xf16>, !hopper.tensor_map<8x64xf16>
  return
}

!ws_v = memref<1x128x64xf8E4M3FN, #gpu.address_space<workgroup>>
!ws_vt = memref<1x64x128xf8E4M3FN, #gpu.address_space<workgroup>>
// CHECK-LABEL: func @transpose
func.func @transpose(%v: !ws_v, %t: !ws_vt, %row: i32, %column: i32) {
  // CHECK: hopper.transpose %{{.*}}[%{{.*}}, %{{.*}}] to %{{.*}} : memref<1x128x64xf8E4M3FN, #gpu.address_space<workgroup>>, memref<1x64x128xf8E4M3FN, #gpu.address_space<workgroup>>
  hopper.transpose %v[%row, %column] to %t : !ws_v, !ws_vt
  // CHECK: hopper.transpose %{{.*}}[%{{.*}}, %{{.*}}] rows(%{{.*}}, %{{.*}}) to %{{.*}} :
  hopper.transpose %v[%row, %column] rows(%row, %column) to %t : !ws_v, !ws_vt
  return
}
