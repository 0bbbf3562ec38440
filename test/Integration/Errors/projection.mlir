// What does not fit together around a projection, and what does.

// RUN: not flash-run %s --device=cpu --function=f --input=1x4x16x8xf32 --input=2x8x24xf32 2>&1 | FileCheck %s --check-prefix=HEADS
// HEADS: the inputs do not fit together: expected head count of 'w' to be 4 as in 'o' but got 2
// RUN: not flash-run %s --device=cpu --function=f --input=1x4x16x8xf32 --input=4x8x24xf32 --input=1x4x16x8xf32 --input=1x17x24xf32 2>&1 | FileCheck %s --check-prefix=ROWS
// ROWS: the inputs do not fit together: expected query length of 'p' to be 16 as in 'o' but got 17
// RUN: flash-run %s --device=cpu --function=f --input=1x4x16x8xf32 --input=4x8x24xf32 --verify | FileCheck %s --check-prefix=PASS
// PASS: verify o: {{.*}}: PASS
// PASS: verify p: {{.*}}: PASS
func.func @f(%q: memref<?x?x?x8xf32>, %w: memref<?x8x?xf32>, %o: memref<?x?x?x8xf32>, %p: memref<?x?x?xf32>) {
  flashattn.attention ins(%q, %q, %q : memref<?x?x?x8xf32>, memref<?x?x?x8xf32>, memref<?x?x?x8xf32>) outs(%o : memref<?x?x?x8xf32>)
  flashattn.project ins(%o, %w : memref<?x?x?x8xf32>, memref<?x8x?xf32>) outs(%p : memref<?x?x?xf32>)
  return
}

// A projection of something else, and several, each by itself.
// RUN: flash-run %s --device=cpu --function=other --verify | FileCheck %s --check-prefixes=PASS,OTHER
// OTHER: verify: 2 of 2 ops compared
func.func @other(%q: memref<1x4x16x8xf32>, %w: memref<4x8x24xf32>, %o: memref<1x4x16x8xf32>, %p: memref<1x16x24xf32>) {
  flashattn.attention ins(%q, %q, %q : memref<1x4x16x8xf32>, memref<1x4x16x8xf32>, memref<1x4x16x8xf32>) outs(%o : memref<1x4x16x8xf32>)
  flashattn.project ins(%q, %w : memref<1x4x16x8xf32>, memref<4x8x24xf32>) outs(%p : memref<1x16x24xf32>)
  return
}

// RUN: flash-run %s --device=cpu --function=two --verify | FileCheck %s --check-prefixes=PASS,TWO
// TWO: verify p: {{.*}}: PASS
// TWO: verify: 3 of 3 ops compared
func.func @two(%q: memref<1x4x16x8xf32>, %w: memref<4x8x24xf32>, %o: memref<1x4x16x8xf32>, %p: memref<1x16x24xf32>) {
  flashattn.attention ins(%q, %q, %q : memref<1x4x16x8xf32>, memref<1x4x16x8xf32>, memref<1x4x16x8xf32>) outs(%o : memref<1x4x16x8xf32>)
  flashattn.project ins(%o, %w : memref<1x4x16x8xf32>, memref<4x8x24xf32>) outs(%p : memref<1x16x24xf32>)
  flashattn.project ins(%o, %w : memref<1x4x16x8xf32>, memref<4x8x24xf32>) outs(%p : memref<1x16x24xf32>)
  return
}
