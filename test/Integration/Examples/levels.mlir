// Llama 3's heads with any length: the example whose IR docs/walk.md shows after each level.
//
// RUN: flash-opt %s -flashattn-to-nvvm=chip=sm_80 | FileCheck %s --check-prefix=PTX
// RUN: flash-run %s --verify --input=2x32x300x128xbf16 --input=2x8x300x128xbf16 --input=2x8x300x128xbf16 | FileCheck %s
// PTX: gpu.binary
// CHECK: verify o: {{.*}}PASS

func.func @attention(%q: memref<2x32x?x128xbf16>, %k: memref<2x8x?x128xbf16>, %v: memref<2x8x?x128xbf16>,
                     %o: memref<2x32x?x128xbf16>) {
  flashattn.attention mask(#flashattn.causal)
      ins(%q, %k, %v : memref<2x32x?x128xbf16>, memref<2x8x?x128xbf16>, memref<2x8x?x128xbf16>)
      outs(%o : memref<2x32x?x128xbf16>)
  return
}
