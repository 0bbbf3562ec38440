// A1: one compiled function serves every scale, against the float64 reference.

// DEFINE: %{run} = flash-run %s --device=cpu --verify --input=2x4x37x24xf32 --input=2x2x85x24xf32 --input=2x2x85x40xf32

// RUN: %{run} --function=plain --input=0.03 | FileCheck %s --check-prefix=PASS
// RUN: %{run} --function=plain --input=3 | FileCheck %s --check-prefix=PASS
// RUN: not %{run} --function=plain --input=0 2>&1 | FileCheck %s --check-prefix=RANGE
// RUN: not %{run} --function=plain --input=-1 2>&1 | FileCheck %s --check-prefix=RANGE
// RANGE: error: the inputs do not fit together: expected a scale from 1e-18 to 1e18 but got {{0|-1}}
func.func @plain(%q: memref<?x?x?x24xf32>, %k: memref<?x?x?x24xf32>, %v: memref<?x?x?x40xf32>,
                 %s: f32, %o: memref<?x?x?x40xf32>, %lse: memref<?x?x?xf32>) {
  flashattn.attention mask(#flashattn.causal) scale(%s)
      ins(%q, %k, %v : memref<?x?x?x24xf32>, memref<?x?x?x24xf32>, memref<?x?x?x40xf32>)
      outs(%o, %lse : memref<?x?x?x40xf32>, memref<?x?x?xf32>)
  return
}

// RUN: %{run} --function=shaped --input=1.5 | FileCheck %s --check-prefix=PASS
func.func @shaped(%q: memref<?x?x?x24xf32>, %k: memref<?x?x?x24xf32>, %v: memref<?x?x?x40xf32>,
                  %s: f32, %bias: memref<1x?x?x?xf32>, %o: memref<?x?x?x40xf32>,
                  %lse: memref<?x?x?xf32>) {
  flashattn.attention scale(%s) softcap(2.0)
      ins(%q, %k, %v : memref<?x?x?x24xf32>, memref<?x?x?x24xf32>, memref<?x?x?x40xf32>)
      bias(%bias : memref<1x?x?x?xf32>)
      outs(%o, %lse : memref<?x?x?x40xf32>, memref<?x?x?xf32>)
  return
}

// RUN: %{run} --function=biased --input=0.7 | FileCheck %s --check-prefix=PASS
func.func @biased(%q: memref<?x?x?x24xf32>, %k: memref<?x?x?x24xf32>, %v: memref<?x?x?x40xf32>,
                  %s: f32, %bias: memref<1x?x?x?xf32>, %o: memref<?x?x?x40xf32>,
                  %lse: memref<?x?x?xf32>) {
  flashattn.attention scale(%s)
      ins(%q, %k, %v : memref<?x?x?x24xf32>, memref<?x?x?x24xf32>, memref<?x?x?x40xf32>)
      bias(%bias : memref<1x?x?x?xf32>)
      outs(%o, %lse : memref<?x?x?x40xf32>, memref<?x?x?xf32>)
  return
}

// PASS: verify o: {{.*}}: PASS
// PASS: verify lse{{.*}}: PASS
