// RUN: flash-opt %s -hopper-expand-rings -cse | FileCheck %s --implicit-check-not='hopper.ring' --implicit-check-not='hopper.make_ring'

!tiles = memref<3x2x80x64xf16, #gpu.address_space<workgroup>>
!bars = memref<16xi64, #gpu.address_space<workgroup>>
!ring = !hopper.ring<3x2x80x64xf16>

// CHECK-LABEL: func @ring
// CHECK-SAME: (%[[TILES:.*]]: memref<3x2x80x64xf16, {{.*}}>, %[[BARS:.*]]: memref<16xi64, {{.*}}>, %[[MAP:.*]]: !hopper.tensor_map<80x64xf16>, %[[STEP:.*]]: index, %[[B:.*]]: index, %[[ROW:.*]]: index, %[[FIRST:.*]]: i1)
func.func @ring(%tiles: !tiles, %bars: !bars, %map: !hopper.tensor_map<80x64xf16>, %step: index,
                %b: index, %row: index, %first: i1) -> vector<80x128xf16> {
  %c0 = arith.constant 0 : index
  %ring = hopper.make_ring %tiles, %bars[4] : !tiles, !bars to !ring

  // Barriers 4 to 6, that a tile is full, take the producer's arrival; 7 to 9, that it is empty,
  // that of each of two consumers.
  // CHECK: hopper.barrier_init %[[BARS]][%c4], 1
  // CHECK: hopper.barrier_init %[[BARS]][%c5], 1
  // CHECK: hopper.barrier_init %[[BARS]][%c6], 1
  // CHECK: hopper.barrier_init %[[BARS]][%c7], 2
  // CHECK: hopper.barrier_init %[[BARS]][%c8], 2
  // CHECK: hopper.barrier_init %[[BARS]][%c9], 2
  // CHECK-NOT: hopper.barrier_init
  hopper.ring_init %ring, 2 : !ring

  // Step s has place s mod 3; it may be used when the turn before has been read, which before the
  // first turn nobody waits for.
  // CHECK: %[[STEP32:.*]] = arith.index_castui %[[STEP]] : index to i32
  // CHECK: %[[AT32:.*]] = arith.remui %[[STEP32]], %c3_i32
  // CHECK: %[[AT:.*]] = arith.index_castui %[[AT32]] : i32 to index
  // CHECK: %[[EMPTY:.*]] = arith.addi %[[AT]], %c7
  // CHECK: %[[TURN:.*]] = arith.divui %[[STEP32]], %c3_i32
  // CHECK: %[[NEXT:.*]] = arith.addi %[[TURN]], %c1_i32
  // CHECK: %[[BEFORE:.*]] = arith.andi %[[NEXT]], %c1_i32
  // CHECK: hopper.barrier_wait %[[BARS]][%[[EMPTY]]], %[[BEFORE]]
  // CHECK: %[[TILE:.*]] = memref.subview %[[TILES]][%[[AT]], 0, 0, 0] [1, 2, 80, 64]
  // CHECK: %[[FULL:.*]] = arith.addi %[[AT]], %c4
  // CHECK: hopper.barrier_expect %[[BARS]][%[[FULL]]], 20480
  // CHECK: hopper.tma_load %[[MAP]][%[[B]], %[[ROW]], %c0] to %[[TILE]], %[[BARS]][%[[FULL]]]
  hopper.ring_put %ring at %step from %map[%b, %row, %c0] : !ring, !hopper.tensor_map<80x64xf16>

  // CHECK: %[[PARITY:.*]] = arith.andi %[[TURN]], %c1_i32
  // CHECK: hopper.barrier_wait %[[BARS]][%[[FULL]]], %[[PARITY]]
  // CHECK: %[[VALUE:.*]] = hopper.load_tile %[[TILE]]
  %tile = hopper.ring_get %ring at %step : !ring
  %value = hopper.load_tile %tile
      : memref<2x80x64xf16, strided<[5120, 64, 1], offset: ?>, #gpu.address_space<workgroup>>
        -> vector<80x128xf16>

  // CHECK: hopper.barrier_arrive %[[BARS]][%[[EMPTY]]] if %[[FIRST]]
  hopper.ring_release %ring at %step if %first : !ring
  // CHECK: return %[[VALUE]]
  return %value : vector<80x128xf16>
}

// Until the turn of the step itself has been read.
// CHECK-LABEL: func @drain
// CHECK-SAME: %[[BARS:[a-z0-9]+]]: memref<16xi64, {{.*}}>, %[[STEP:[a-z0-9]+]]: index
// CHECK: %[[STEP32:.*]] = arith.index_castui %[[STEP]] : index to i32
// CHECK: %[[AT32:.*]] = arith.remui %[[STEP32]], %c3_i32
// CHECK: %[[AT:.*]] = arith.index_castui %[[AT32]] : i32 to index
// CHECK: %[[EMPTY:.*]] = arith.addi %[[AT]], %c7
// CHECK: %[[TURN:.*]] = arith.divui %[[STEP32]], %c3_i32
// CHECK: %[[PARITY:.*]] = arith.andi %[[TURN]], %c1_i32
// CHECK: hopper.barrier_wait %[[BARS]][%[[EMPTY]]], %[[PARITY]]
func.func @drain(%tiles: !tiles, %bars: !bars, %step: index) {
  %ring = hopper.make_ring %tiles, %bars[4] : !tiles, !bars to !ring
  hopper.ring_drain %ring at %step : !ring
  return
}

// With a place that idles it waits for the tile in the next place: with three places for that of step
// s - 2, not s - 3.
// CHECK-LABEL: func @idle
// CHECK-SAME: %[[BARS:[a-z0-9]+]]: memref<16xi64, {{.*}}>, %{{.*}}: !hopper.tensor_map<80x64xf16>, %[[STEP:[a-z0-9]+]]: index, %[[IDLE:[a-z0-9]+]]: i32
// CHECK: %[[STEP32:.*]] = arith.index_castui %[[STEP]] : index to i32
// CHECK: %[[LAST:.*]] = arith.addi %[[STEP32]], %[[IDLE]]
// CHECK: %[[NEXT32:.*]] = arith.remui %[[LAST]], %c3_i32
// CHECK: %[[NEXT:.*]] = arith.index_castui %[[NEXT32]] : i32 to index
// CHECK: %[[EMPTY:.*]] = arith.addi %[[NEXT]], %c7
// CHECK: %[[TURN:.*]] = arith.divui %[[LAST]], %c3_i32
// CHECK: %[[AFTER:.*]] = arith.addi %[[TURN]], %c1_i32
// CHECK: %[[PARITY:.*]] = arith.andi %[[AFTER]], %c1_i32
// CHECK: hopper.barrier_wait %[[BARS]][%[[EMPTY]]], %[[PARITY]]
// CHECK: %[[AT32:.*]] = arith.remui %[[STEP32]], %c3_i32
// CHECK: %[[AT:.*]] = arith.index_castui %[[AT32]] : i32 to index
// CHECK: %[[FULL:.*]] = arith.addi %[[AT]], %c4
// CHECK: hopper.tma_load {{.*}}, %[[BARS]][%[[FULL]]]
func.func @idle(%tiles: !tiles, %bars: !bars, %map: !hopper.tensor_map<80x64xf16>, %step: index, %idle: i32) {
  %ring = hopper.make_ring %tiles, %bars[4] : !tiles, !bars to !ring
  hopper.ring_put %ring at %step idle %idle from %map[%step, %step] : !ring, !hopper.tensor_map<80x64xf16>
  return
}

// What comes beside a tile completes the same barrier, in the place of the same turn.
// CHECK-LABEL: func @beside
// CHECK-SAME: %[[TILES:[a-z0-9]+]]: memref<3x2x80x64xf16, {{.*}}>, %[[BARS:[a-z0-9]+]]: memref<16xi64, {{.*}}>, %[[MAP:[a-z0-9]+]]: !hopper.tensor_map<80x64xf16>, %[[SUMS:[a-z0-9]+]]: memref<?x?xf32>, %[[PLACES:[a-z0-9]+]]: memref<3x64xf32, {{.*}}>, %[[STEP:[a-z0-9]+]]: index, %[[I:[a-z0-9]+]]: index
// CHECK: %[[AT32:.*]] = arith.remui %{{.*}}, %c3_i32
// CHECK: %[[AT:.*]] = arith.index_castui %[[AT32]]
// CHECK: hopper.barrier_wait
// CHECK: %[[FULL:.*]] = arith.addi %[[AT]], %c4
// CHECK: hopper.barrier_expect %[[BARS]][%[[FULL]]], 20736
// CHECK: hopper.tma_load {{.*}}, %[[BARS]][%[[FULL]]]
// CHECK-NOT: hopper.barrier
// CHECK: hopper.bulk_load %[[SUMS]][%[[I]], %[[I]]] to %[[PLACES]][%[[AT]]], %[[BARS]][%[[FULL]]]
func.func @beside(%tiles: !tiles, %bars: !bars, %map: !hopper.tensor_map<80x64xf16>, %sums: memref<?x?xf32>,
                  %places: memref<3x64xf32, #gpu.address_space<workgroup>>, %step: index, %i: index) {
  %ring = hopper.make_ring %tiles, %bars[4] : !tiles, !bars to !ring
  hopper.ring_put %ring at %step from %map[%i, %i] beside 256 : !ring, !hopper.tensor_map<80x64xf16>
  hopper.ring_put_row %ring at %step from %sums[%i, %i] to %places
      : !ring, memref<?x?xf32>, memref<3x64xf32, #gpu.address_space<workgroup>>
  return
}

// A tile in pieces completes one barrier: each has its own row, and its own rows of the place.
// CHECK-LABEL: func @pieces
// CHECK-SAME: %[[MAP:[a-z0-9]+]]: !hopper.tensor_map<40x64xf16>, %[[STEP:[a-z0-9]+]]: index, %[[B:[a-z0-9]+]]: index, %[[R0:[a-z0-9]+]]: index, %[[R1:[a-z0-9]+]]: index
// CHECK: %[[TILE:.*]] = memref.subview %{{.*}}[%{{.*}}, 0, 0, 0] [1, 2, 80, 64]
// CHECK: hopper.barrier_expect %[[BARS:.*]][%[[FULL:.*]]], 20480
// CHECK: %[[FIRST:.*]] = memref.subview %[[TILE]][0, 0, 0] [2, 40, 64] [1, 1, 1]
// CHECK: hopper.tma_load %[[MAP]][%[[B]], %[[R0]], %[[B]]] to %[[FIRST]], %[[BARS]][%[[FULL]]]
// CHECK: %[[SECOND:.*]] = memref.subview %[[TILE]][0, 40, 0] [2, 40, 64] [1, 1, 1]
// CHECK: hopper.tma_load %[[MAP]][%[[B]], %[[R1]], %[[B]]] to %[[SECOND]], %[[BARS]][%[[FULL]]]
// CHECK-NOT: hopper.tma_load
// CHECK: return
func.func @pieces(%tiles: !tiles, %bars: !bars, %map: !hopper.tensor_map<40x64xf16>, %step: index,
                  %b: index, %first: index, %second: index) {
  %ring = hopper.make_ring %tiles, %bars[4] : !tiles, !bars to !ring
  hopper.ring_put %ring at %step from %map[%b, %b, %b] pieces(%first, %second) along 1 : !ring, !hopper.tensor_map<40x64xf16>
  return
}
