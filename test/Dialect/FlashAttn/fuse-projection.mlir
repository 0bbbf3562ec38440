// RUN: flash-opt %s -split-input-file -flashattn-select-schedule=chip=cpu -flashattn-tile -flashattn-fuse-projection -canonicalize -cse | FileCheck %s
// RUN: flash-opt %s -split-input-file -flashattn-to-cpu=fuse-projection | FileCheck %s --check-prefix=LLVM
// RUN: flash-opt %s -split-input-file -flashattn-select-schedule=chip=sm_80 -flashattn-tile -flashattn-fuse-projection -canonicalize -cse | FileCheck %s --check-prefix=GPU
// RUN: not flash-opt %s -split-input-file -flashattn-to-nvvm=fuse-projection 2>&1 | FileCheck %s --check-prefix=OPTION

// OPTION: no such option fuse-projection

// One program for both: the heads in a loop, and o, which no one else reads, is not written.
// CHECK-LABEL: func @local
// CHECK-SAME: %[[Q:[a-z0-9]+]]: memref<2x8x?x64xf16>, %[[W:[a-z0-9]+]]: memref<8x64x1000xf16>, %[[P:[a-z0-9]+]]: memref<2x?x1000xf16>
// CHECK: %[[SPACE:.*]] = flashattn.dense_space(%c2, %{{.*}}) axes(batch, query_tile)
// CHECK: flashattn.program (%[[B:.*]], %[[T:.*]]) in %[[SPACE]]
// CHECK: %[[SUMS:.*]]:2 = scf.for %[[H:.*]] = %c0 to %c8 step %c1 iter_args(%[[S0:.*]] = %{{.*}}, %[[S1:.*]] = %{{.*}}) -> (vector<32x512xf32>, vector<32x512xf32>)
// CHECK: flashattn.load_tile %[[Q]][%[[B]], %[[H]], %[[T]],
// CHECK: flashattn.tile_loop
// CHECK: %[[OUT:.*]] = arith.mulf %{{.*}}#2, %{{.*}} : vector<32x64xf32>
// CHECK-NOT: flashattn.store_tile
// CHECK: %[[W0:.*]] = flashattn.load_tile %[[W]][%[[H]], %c0, %c0]
// CHECK: %[[F0:.*]] = arith.extf %[[W0]]
// CHECK: %[[N0:.*]] = vector.contract {{.*}} %[[OUT]], %[[F0]], %[[S0]] : vector<32x64xf32>, vector<64x512xf32> into vector<32x512xf32>
// CHECK: %[[W1:.*]] = flashattn.load_tile %[[W]][%[[H]], %c0, %c1]
// CHECK: %[[F1:.*]] = arith.extf %[[W1]]
// CHECK: %[[N1:.*]] = vector.contract {{.*}} %[[OUT]], %[[F1]], %[[S1]]
// CHECK: scf.yield %[[N0]], %[[N1]]
// CHECK: flashattn.store_tile %{{.*}} to %[[P]][%[[B]], %[[T]], %c0] dims [1, 2]
// CHECK: flashattn.store_tile %{{.*}} to %[[P]][%[[B]], %[[T]], %c1] dims [1, 2]
// CHECK-NOT: flashattn.project
// On a GPU the heads of a row run side by side.
// GPU-LABEL: func @local
// GPU: flashattn.project
// LLVM: llvm.func @local
// LLVM: llvm.call @flashattnParallelFor
// LLVM-NOT: llvm.call @flashattnParallelFor
// LLVM: llvm.func @seen
func.func @local(%q: memref<2x8x?x64xf16>, %w: memref<8x64x1000xf16>, %p: memref<2x?x1000xf16>) {
  %c2 = arith.constant 2 : index
  %n = memref.dim %q, %c2 : memref<2x8x?x64xf16>
  %o = memref.alloc(%n) : memref<2x8x?x64xf16>
  flashattn.attention mask(#flashattn.causal) ins(%q, %q, %q : memref<2x8x?x64xf16>, memref<2x8x?x64xf16>, memref<2x8x?x64xf16>) outs(%o : memref<2x8x?x64xf16>)
  flashattn.project ins(%o, %w : memref<2x8x?x64xf16>, memref<8x64x1000xf16>) outs(%p : memref<2x?x1000xf16>)
  memref.dealloc %o : memref<2x8x?x64xf16>
  return
}

// -----

// The caller's o is written beside it.
// CHECK-LABEL: func @seen
// CHECK-SAME: %[[O:[a-z0-9]+]]: memref<2x?x8x64xf32>, %[[W:[a-z0-9]+]]: memref<8x64x40xf32>
// CHECK: scf.for %[[H:.*]] = %c0 to %c8
// CHECK: flashattn.store_tile %{{.*}} to %[[O]][%{{.*}}, %{{.*}}, %[[H]], %c0]
// CHECK: flashattn.load_tile %[[W]][%[[H]], %c0, %c0]
// CHECK-NOT: flashattn.project
// GPU-LABEL: func @seen
// GPU: flashattn.project
func.func @seen(%q: memref<2x?x8x64xf32>, %o: memref<2x?x8x64xf32>, %w: memref<8x64x40xf32>, %p: memref<2x?x40xf32>) {
  flashattn.attention layout(bshd) ins(%q, %q, %q : memref<2x?x8x64xf32>, memref<2x?x8x64xf32>, memref<2x?x8x64xf32>) outs(%o : memref<2x?x8x64xf32>)
  flashattn.project layout(bshd) ins(%o, %w : memref<2x?x8x64xf32>, memref<8x64x40xf32>) outs(%p : memref<2x?x40xf32>)
  return
}

// -----

// No attention before it, another order of dimensions, columns that only a run knows, more than fit, o changed meanwhile.
// CHECK-LABEL: func @others
// CHECK-COUNT-4: flashattn.project
// GPU-LABEL: func @others
// GPU-COUNT-4: flashattn.project
func.func @others(%q: memref<2x8x8x64xf32>, %o: memref<2x8x8x64xf32>, %w: memref<8x64x40xf32>, %p: memref<2x8x40xf32>,
                  %wd: memref<8x64x?xf32>, %pd: memref<2x8x?xf32>, %wide: memref<8x64x65536xf32>, %pw: memref<2x8x65536xf32>) {
  flashattn.project ins(%o, %w : memref<2x8x8x64xf32>, memref<8x64x40xf32>) outs(%p : memref<2x8x40xf32>)
  flashattn.attention ins(%q, %q, %q : memref<2x8x8x64xf32>, memref<2x8x8x64xf32>, memref<2x8x8x64xf32>) outs(%o : memref<2x8x8x64xf32>)
  flashattn.project layout(bshd) ins(%o, %w : memref<2x8x8x64xf32>, memref<8x64x40xf32>) outs(%p : memref<2x8x40xf32>)
  flashattn.attention ins(%q, %q, %q : memref<2x8x8x64xf32>, memref<2x8x8x64xf32>, memref<2x8x8x64xf32>) outs(%o : memref<2x8x8x64xf32>)
  flashattn.project ins(%o, %wd : memref<2x8x8x64xf32>, memref<8x64x?xf32>) outs(%pd : memref<2x8x?xf32>)
  flashattn.attention ins(%q, %q, %q : memref<2x8x8x64xf32>, memref<2x8x8x64xf32>, memref<2x8x8x64xf32>) outs(%o : memref<2x8x8x64xf32>)
  flashattn.project ins(%o, %wide : memref<2x8x8x64xf32>, memref<8x64x65536xf32>) outs(%pw : memref<2x8x65536xf32>)
  return
}

// -----

// Few queries: tiles of several heads, and behind keys in parts their merge.
// CHECK-LABEL: func @few
// CHECK: flashattn.program {{.*}} pack = 4, mapping = cpu>
// CHECK: flashattn.project
// CHECK: flashattn.program {{.*}} splits = 64,
// CHECK: flashattn.combine
// CHECK: flashattn.project
func.func @few(%q: memref<2x8x1x64xf32>, %k: memref<2x2x100x64xf32>, %o: memref<2x8x1x64xf32>, %w: memref<8x64x40xf32>, %p: memref<2x1x40xf32>,
               %long: memref<2x8x?x64xf32>) {
  flashattn.attention ins(%q, %k, %k : memref<2x8x1x64xf32>, memref<2x2x100x64xf32>, memref<2x2x100x64xf32>) outs(%o : memref<2x8x1x64xf32>)
  flashattn.project ins(%o, %w : memref<2x8x1x64xf32>, memref<8x64x40xf32>) outs(%p : memref<2x1x40xf32>)
  flashattn.attention ins(%q, %long, %long : memref<2x8x1x64xf32>, memref<2x8x?x64xf32>, memref<2x8x?x64xf32>) outs(%o : memref<2x8x1x64xf32>)
  flashattn.project ins(%o, %w : memref<2x8x1x64xf32>, memref<8x64x40xf32>) outs(%p : memref<2x1x40xf32>)
  return
}
