// UNSUPPORTED: asan

// Tiles of wide heads are more than a small stack has: those of gradients of 1024 columns are on the heap.
// RUN: %python %S/Inputs/limit_stack.py 1024 flash-run %s --device=cpu --verify --function=gradients | FileCheck %s --check-prefix=GRADIENTS
// GRADIENTS: 2 of 2 ops compared
func.func @gradients(%q: memref<1x1x8x1024xf32>, %k: memref<1x1x8x1024xf32>, %v: memref<1x1x8x1024xf32>, %d_o: memref<1x1x8x1024xf32>,
                     %dq: memref<1x1x8x1024xf32>, %dk: memref<1x1x8x1024xf32>, %dv: memref<1x1x8x1024xf32>) {
  %o = memref.alloc() : memref<1x1x8x1024xf32>
  %lse = memref.alloc() : memref<1x1x8xf32>
  flashattn.attention ins(%q, %k, %v : memref<1x1x8x1024xf32>, memref<1x1x8x1024xf32>, memref<1x1x8x1024xf32>)
      outs(%o, %lse : memref<1x1x8x1024xf32>, memref<1x1x8xf32>)
  flashattn.attention_backward
      ins(%q, %k, %v, %o, %lse, %d_o : memref<1x1x8x1024xf32>, memref<1x1x8x1024xf32>, memref<1x1x8x1024xf32>,
          memref<1x1x8x1024xf32>, memref<1x1x8xf32>, memref<1x1x8x1024xf32>)
      outs(%dq, %dk, %dv : memref<1x1x8x1024xf32>, memref<1x1x8x1024xf32>, memref<1x1x8x1024xf32>)
  memref.dealloc %o : memref<1x1x8x1024xf32>
  memref.dealloc %lse : memref<1x1x8xf32>
  return
}

// Keys and values of 16384 columns, of 64 rows each a tile, need more than 8 MiB.
// RUN: %python %S/Inputs/limit_stack.py 8192 flash-run %s --device=cpu --verify --function=forward | FileCheck %s --check-prefix=FORWARD
// FORWARD: verify o: {{.*}} PASS
func.func @forward(%q: memref<1x1x2x16384xf16>, %k: memref<1x1x8x16384xf16>, %o: memref<1x1x2x16384xf16>) {
  flashattn.attention ins(%q, %k, %k : memref<1x1x2x16384xf16>, memref<1x1x8x16384xf16>, memref<1x1x8x16384xf16>)
      outs(%o : memref<1x1x2x16384xf16>)
  return
}
