// Sizes that only the inputs say must agree, before anything runs.

// DEFINE: %{run} = flash-run %s --device=cpu

// RUN: not %{run} --input=1x4x8x16xf16=ones --input=1x2x8x16xf16=ones --input=1x2x9x16xf16=ones 2>&1 | FileCheck %s --check-prefix=KEYS
// KEYS: error: the inputs do not fit together: expected a length of v of 8 but got 9

// RUN: not %{run} --input=2x4x8x16xf16=ones --input=1x2x8x16xf16=ones --input=1x2x8x16xf16=ones 2>&1 | FileCheck %s --check-prefix=BATCH
// BATCH: expected a batch of k of 2 but got 1

// RUN: not %{run} --input=1x4x8x16xf16=ones --input=1x3x8x16xf16=ones --input=1x3x8x16xf16=ones 2>&1 | FileCheck %s --check-prefix=HEADS
// HEADS: expected the 4 heads of q to be a multiple of the 3 heads of k

// RUN: not %{run} --input=1x4x8x16xf16=ones --input=1x2x8x16xf16=ones --input=1x2x8x16xf16=ones --input=1x4x7x16xf16=poison 2>&1 | FileCheck %s --check-prefix=OUT
// OUT: expected o of 1x4x8x16xf16 but got 1x4x7x16xf16

func.func @attention(%q: memref<?x?x?x16xf16>, %k: memref<?x?x?x16xf16>, %v: memref<?x?x?x16xf16>,
                     %o: memref<?x?x?x16xf16>, %lse: memref<?x?x?xf32>) {
  flashattn.attention
      ins(%q, %k, %v : memref<?x?x?x16xf16>, memref<?x?x?x16xf16>, memref<?x?x?x16xf16>)
      outs(%o, %lse : memref<?x?x?x16xf16>, memref<?x?x?xf32>)
  return
}
