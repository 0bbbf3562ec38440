// Columns of a projection's tiles that end anywhere: what is copied to shared memory, and what is written.
// RUN: flash-opt %s -split-input-file -flashattn-tile-project -canonicalize -cse -flashattn-map-to-gpu -flashattn-stage-shared -canonicalize -cse | FileCheck %s --check-prefixes=CHECK,STAGE
// RUN: flash-opt %s -split-input-file -flashattn-tile-project -canonicalize -cse -flashattn-map-to-gpu -flashattn-stage-shared -flashattn-expand-loops -flashattn-distribute -canonicalize -cse | FileCheck %s --check-prefixes=CHECK,WRITE

// Rows of whole chunks: a chunk is inside or past the end. Both operands come through shared memory.
// CHECK-LABEL: func @chunks
// CHECK-SAME: %[[O:[a-z0-9]+]]: memref<2x8x?x64xf16>, %[[W:[a-z0-9]+]]: memref<8x64x200xf16>, %[[P:[a-z0-9]+]]: memref<2x?x200xf32>
// STAGE: flashattn.tile_loop (%[[H:.*]], %{{.*}}) in [(%c0, %c0, %c8, %c8)]
// STAGE: nvgpu.device_async_copy %[[O]][%{{.*}}, %[[H]], %{{.*}}, %{{.*}}], %[[OT:.*]][%c0, %{{.*}}, %{{.*}}], 8,
// STAGE: %[[COLUMN:.*]] = arith.muli %{{.*}}, %c64
// STAGE: %[[AT:.*]] = arith.addi %[[COLUMN]], %{{.*}}
// STAGE: %[[INSIDE:.*]] = arith.cmpi slt, %[[AT]], %c200
// STAGE: %[[COUNT:.*]] = arith.select %[[INSIDE]], %c8, %c0
// STAGE: nvgpu.device_async_copy %[[W]][%[[H]], %{{.*}}, %[[AT]]], %[[WT:.*]][%c0, %{{.*}}, %{{.*}}], 8, %[[COUNT]]
// STAGE: %[[X:.*]] = vector.transfer_read %[[OT]][%c0, %c0, %c0]
// STAGE: %[[Y:.*]] = vector.transfer_read %[[WT]][%c0, %c0, %c0]
// STAGE: vector.contract {{.*}} %[[X]], %[[Y]],
// Two columns are both there or neither is.
// WRITE: scf.for
// WRITE: nvvm.mma.sync
// WRITE: %[[ROW:.*]] = arith.cmpi slt, %[[N:.*]], %{{.*}} : index
// WRITE: scf.if %[[ROW]]
// WRITE: %[[PAIR:.*]] = arith.cmpi slt, %[[E:.*]], %c200 : index
// WRITE: scf.if %[[PAIR]]
// WRITE: vector.store %{{.*}}, %[[P]][%{{.*}}, %[[N]], %[[E]]] {alignment = 8 : i64} : memref<2x?x200xf32>, vector<2xf32>
func.func @chunks(%o: memref<2x8x?x64xf16>, %w: memref<8x64x200xf16>, %p: memref<2x?x200xf32>) {
  flashattn.project schedule(<tile_m = 16, tile_n = 64, stages = 1, dot_type = f16, mapping = mma_sync<warps = 1>>)
    ins(%o, %w : memref<2x8x?x64xf16>, memref<8x64x200xf16>) outs(%p : memref<2x?x200xf32>)
  return
}

// -----

// Rows that may begin and end anywhere are copied and written one by one.
// CHECK-LABEL: func @elements
// CHECK-SAME: %[[W:[a-z0-9]+]]: memref<?x16x?xf16>, %[[P:[a-z0-9]+]]: memref<?x?x?xf16>
// STAGE: %[[E:.*]] = memref.dim %[[W]], %c2
// STAGE: flashattn.tile_loop (%[[H:.*]], %{{.*}}) in
// STAGE: %[[INSIDE:.*]] = arith.cmpi slt, %[[AT:.*]], %[[E]]
// STAGE: %[[VALUE:.*]] = scf.if %[[INSIDE]] -> (f16) {
// STAGE-NEXT: memref.load %[[W]][%[[H]], %{{.*}}, %[[AT]]]
// STAGE: memref.store %[[VALUE]]
// STAGE: %[[NEXT:.*]] = arith.addi %[[AT]], %c1
// STAGE: arith.cmpi slt, %[[NEXT]], %[[E]]
// WRITE: nvvm.mma.sync
// WRITE: %[[E:.*]] = memref.dim %[[P]], %c2
// WRITE: %[[INSIDE:.*]] = arith.cmpi slt, %[[AT:.*]], %[[E]]
// WRITE: scf.if %[[INSIDE]]
// WRITE: memref.store %{{.*}}, %[[P]][%{{.*}}, %{{.*}}, %[[AT]]]
// WRITE: %[[NEXT:.*]] = arith.addi %[[AT]], %c1
// WRITE: %[[INSIDE:.*]] = arith.cmpi slt, %[[NEXT]], %[[E]]
// WRITE: memref.store %{{.*}}, %[[P]][%{{.*}}, %{{.*}}, %[[NEXT]]]
func.func @elements(%o: memref<?x?x?x16xf16>, %w: memref<?x16x?xf16>, %p: memref<?x?x?xf16>) {
  flashattn.project schedule(<tile_m = 16, tile_n = 16, stages = 1, dot_type = f16, mapping = mma_sync<warps = 1>>)
    ins(%o, %w : memref<?x?x?x16xf16>, memref<?x16x?xf16>) outs(%p : memref<?x?x?xf16>)
  return
}

// -----

// Tiles that fit ask nothing.
// CHECK-LABEL: func @whole
// WRITE: nvvm.mma.sync
// WRITE: scf.if
// WRITE-NOT: scf.if
// WRITE-COUNT-8: vector.store
// WRITE: scf.if
// WRITE-NOT: scf.if
// WRITE-COUNT-8: vector.store
// WRITE-NOT: vector.store
func.func @whole(%o: memref<2x8x?x64xf16>, %w: memref<8x64x256xf16>, %p: memref<2x?x256xf16>) {
  flashattn.project schedule(<tile_m = 16, tile_n = 64, stages = 1, dot_type = f16, mapping = mma_sync<warps = 1>>)
    ins(%o, %w : memref<2x8x?x64xf16>, memref<8x64x256xf16>) outs(%p : memref<2x?x256xf16>)
  return
}
