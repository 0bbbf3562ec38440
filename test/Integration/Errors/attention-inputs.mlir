// Sizes that only the inputs say must agree, before anything runs.

// DEFINE: %{run} = flash-run %s --device=cpu

// RUN: not %{run} --input=1x4x8x16xf16=ones --input=1x2x8x16xf16=ones --input=1x2x9x16xf16=ones 2>&1 | FileCheck %s --check-prefix=KEYS
// KEYS: error: the inputs do not fit together: expected key length of 'v' to be 8 as in 'k' but got 9

// RUN: not %{run} --input=2x4x8x16xf16=ones --input=1x2x8x16xf16=ones --input=1x2x8x16xf16=ones 2>&1 | FileCheck %s --check-prefix=BATCH
// BATCH: expected batch size of 'k' to be 2 as in 'q' but got 1

// RUN: not %{run} --input=1x4x8x16xf16=ones --input=1x3x8x16xf16=ones --input=1x3x8x16xf16=ones 2>&1 | FileCheck %s --check-prefix=HEADS
// HEADS: expected the query head count to be a multiple of the key/value head count, 3, but got 4

// RUN: not %{run} --input=1x4x8x16xf16=ones --input=1x2x8x16xf16=ones --input=1x2x8x16xf16=ones --input=1x4x7x16xf16=poison 2>&1 | FileCheck %s --check-prefix=OUT
// OUT: expected query length of 'o' to be 8 as in 'q' but got 7

// What others say of an argument need not be said again.
// RUN: %{run} --input=1x4x8x16xf16 --input=1x2x9x16xf16 --verify | FileCheck %s --check-prefix=REST
// REST: output 0: 1x4x8x16xf16
// REST: output 1: 1x4x8xf32
// REST: verify lse {{.*}}: PASS

func.func @attention(%q: memref<?x?x?x16xf16>, %k: memref<?x?x?x16xf16>, %v: memref<?x?x?x16xf16>,
                     %o: memref<?x?x?x16xf16>, %lse: memref<?x?x?xf32>) {
  flashattn.attention
      ins(%q, %k, %v : memref<?x?x?x16xf16>, memref<?x?x?x16xf16>, memref<?x?x?x16xf16>)
      outs(%o, %lse : memref<?x?x?x16xf16>, memref<?x?x?xf32>)
  return
}
