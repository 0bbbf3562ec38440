// Attention on the CPU against the float64 reference: layouts, offsets, scale, masks that need no
// loop and one that does, the sample of large problems, and what is wrong where it is wrong.

// DEFINE: %{run} = flash-run %s --device=cpu --verify

// RUN: %{run} --function=causal --input=2x4x33x64xf16 --input=2x2x70x64xf16 --input=2x2x70x64xf16 --bench=0.01 | FileCheck %s --check-prefix=CAUSAL
// CAUSAL: output 0: 2x4x33x64xf16, min
// CAUSAL: output 1: 2x4x33xf32, min
// CAUSAL: verify: flashattn.attention at {{.*}}verify.mlir:[[#]]:10, all 264 rows
// CAUSAL: verify o: max error {{.*}}, tolerance {{.*}}, relative Frobenius norm {{.*}}, tolerance 1.000e-03: PASS
// CAUSAL: verify lse (relative to max(1, |lse|)): max error {{.*}}, tolerance 1.{{[0-9]+}}e-05: PASS
// CAUSAL: verify: 1 of 1 ops compared
// Row i of 33 sees 70 - 33 + i + 1 keys: 33 * 38 + 32 * 33 / 2 pairs a head.
// CAUSAL: bench: {{.*}} TFLOP/s of 14256 visible pairs

// Rows that see no key: 0 and -inf (rule A6).
// RUN: %{run} --function=causal --input=1x4x70x64xf16 --input=1x2x33x64xf16 --input=1x2x33x64xf16 | FileCheck %s --check-prefix=EMPTY
// EMPTY: output 1: 1x4x70xf32, {{.*}} 148 not finite, first -INF
// EMPTY: verify o: {{.*}}: PASS
// EMPTY: verify lse {{.*}}: PASS

// RUN: %{run} --function=bshd --input=2x33x6x16xf32 --input=2x20x3x16xf32 --input=2x20x3x24xf32 --input=index=5 | FileCheck %s --check-prefix=PASS
// RUN: %{run} --function=striped --input=1x2x50x32xbf16 --input=1x1x90x32xbf16 --input=1x1x90x32xbf16 --bench=0.01 | FileCheck %s --check-prefixes=PASS,STRIPED
// PASS: verify o: {{.*}}: PASS
// Row i of 50 sees the even keys up to 40 + i: sums of floor((40 + i) / 2) + 1 for two heads.
// STRIPED: TFLOP/s of 3300 visible pairs

// RUN: %{run} --function=large --input=1x32x2048x16xf16 | FileCheck %s --check-prefix=LARGE
// Runs of a loop share what a sample may cost.
// LARGE: verify: flashattn.attention at {{.*}}, 2 runs, a sample of {{[0-9]+}} of 131072 rows (seed 0)
// LARGE: verify o: {{.*}}: PASS

// What several ops do together, in all of their runs, whether it is compared or not: three times the
// lower triangle of 8 keys for two heads and once all 64 pairs.
// RUN: flash-run %s --device=cpu --function=several --bench=0.01 | FileCheck %s --check-prefix=SEVERAL
// SEVERAL-NOT: verify
// SEVERAL: TFLOP/s of 344 visible pairs

// The fake driver's kernels do nothing, which shows.
// RUN: %if fakecuda %{ not env FLASHATTN_CUDA_DRIVER=%fakecuda %{run} --device=cuda --function=causal --input=2x4x33x64xf16 --input=2x2x70x64xf16 --input=2x2x70x64xf16 | FileCheck %s --check-prefix=WRONG %}
// WRONG: verify o: {{.*}}, 16896 elements are not finite where the reference is, or finite where it is not (the first: expected {{.*}} but got nan): FAIL
// WRONG: verify lse {{.*}}: FAIL

func.func @causal(%q: tensor<?x?x?x64xf16>, %k: tensor<?x?x?x64xf16>, %v: tensor<?x?x?x64xf16>,
                  %o: tensor<?x?x?x64xf16>, %lse: tensor<?x?x?xf32>)
    -> (tensor<?x?x?x64xf16>, tensor<?x?x?xf32>) {
  %r:2 = flashattn.attention mask(#flashattn.causal)
      ins(%q, %k, %v : tensor<?x?x?x64xf16>, tensor<?x?x?x64xf16>, tensor<?x?x?x64xf16>)
      outs(%o, %lse : tensor<?x?x?x64xf16>, tensor<?x?x?xf32>)
      -> tensor<?x?x?x64xf16>, tensor<?x?x?xf32>
  return %r#0, %r#1 : tensor<?x?x?x64xf16>, tensor<?x?x?xf32>
}

func.func @bshd(%q: memref<?x?x?x16xf32>, %k: memref<?x?x?x16xf32>, %v: memref<?x?x?x24xf32>,
                %offset: index, %o: memref<?x?x?x24xf32>) {
  flashattn.attention mask(#flashattn.window<left = 7, right = 2>) scale(0.5) layout(bshd)
      ins(%q, %k, %v : memref<?x?x?x16xf32>, memref<?x?x?x16xf32>, memref<?x?x?x24xf32>)
      offset(%offset) outs(%o : memref<?x?x?x24xf32>)
  return
}

#even = affine_set<(p, k)[nq, nk] : (p - k >= 0, k mod 2 == 0)>
func.func @striped(%q: memref<?x?x?x32xbf16>, %k: memref<?x?x?x32xbf16>, %v: memref<?x?x?x32xbf16>,
                   %o: memref<?x?x?x32xbf16>) {
  flashattn.attention mask(#flashattn.set<#even>)
      ins(%q, %k, %v : memref<?x?x?x32xbf16>, memref<?x?x?x32xbf16>, memref<?x?x?x32xbf16>)
      outs(%o : memref<?x?x?x32xbf16>)
  return
}

func.func @large(%q: memref<1x32x2048x16xf16>, %k: memref<1x1x2048x16xf16>,
                 %v: memref<1x1x2048x16xf16>, %o: memref<1x32x2048x16xf16>) {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %c2 = arith.constant 2 : index
  scf.for %i = %c0 to %c2 step %c1 {
    flashattn.attention
        ins(%q, %k, %v : memref<1x32x2048x16xf16>, memref<1x1x2048x16xf16>, memref<1x1x2048x16xf16>)
        outs(%o : memref<1x32x2048x16xf16>)
  }
  return
}

func.func @several(%q: memref<1x2x8x16xf32>, %o: memref<1x2x8x16xf32>) {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %c3 = arith.constant 3 : index
  scf.for %i = %c0 to %c3 step %c1 {
    flashattn.attention mask(#flashattn.causal)
        ins(%q, %q, %q : memref<1x2x8x16xf32>, memref<1x2x8x16xf32>, memref<1x2x8x16xf32>) outs(%o : memref<1x2x8x16xf32>)
  }
  flashattn.attention
      ins(%q, %q, %q : memref<1x2x8x16xf32>, memref<1x2x8x16xf32>, memref<1x2x8x16xf32>) outs(%o : memref<1x2x8x16xf32>)
  return
}
