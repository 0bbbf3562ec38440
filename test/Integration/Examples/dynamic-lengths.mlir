// Batch, heads and lengths unknown until run time: one compiled kernel serves every one of them (rule M5).
//
// RUN: flash-run %s --verify --input=2x8x100x64xf16=random:1 --input=2x2x300x64xf16=random:2 \
// RUN:   --input=2x2x300x64xf16=random:3 --input=2x8x100x64xf16=poison --input=2x8x100xf32=poison | FileCheck %s
// CHECK: verify o: {{.*}}PASS
// CHECK: verify lse {{.*}}PASS

func.func @attention(%q: memref<?x?x?x64xf16>, %k: memref<?x?x?x64xf16>, %v: memref<?x?x?x64xf16>,
                     %o: memref<?x?x?x64xf16>, %lse: memref<?x?x?xf32>) {
  flashattn.attention mask(#flashattn.causal)
      ins(%q, %k, %v : memref<?x?x?x64xf16>, memref<?x?x?x64xf16>, memref<?x?x?x64xf16>)
      outs(%o, %lse : memref<?x?x?x64xf16>, memref<?x?x?xf32>)
  return
}
