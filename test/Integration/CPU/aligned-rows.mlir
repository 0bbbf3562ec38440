// RUN: flash-run %s --device=cpu --verify 2>&1 | FileCheck %s

// A promise is for the compiler, and nothing that LLVM warns of.
// CHECK-NOT: warning
// CHECK: verify o: {{.*}}: PASS
func.func @attention(%q: memref<1x2x64x64xf16> {flashattn.aligned_rows}, %k: memref<1x2x64x64xf16>,
                     %v: memref<1x2x64x64xf16>, %o: memref<1x2x64x64xf16>) {
  flashattn.attention
    ins(%q, %k, %v : memref<1x2x64x64xf16>, memref<1x2x64x64xf16>, memref<1x2x64x64xf16>)
    outs(%o : memref<1x2x64x64xf16>)
  return
}
