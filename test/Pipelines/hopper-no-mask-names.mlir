// RUN: split-file %s %t
// RUN: flash-opt %t/causal.mlir -flashattn-to-nvvm=chip=sm_90a | sed 's/TimeInMs = [0-9]*//g' > %t/causal.out
// RUN: flash-opt %t/set.mlir -flashattn-to-nvvm=chip=sm_90a | sed 's/TimeInMs = [0-9]*//g' > %t/set.out
// RUN: flash-opt %t/window.mlir -flashattn-to-nvvm=chip=sm_90a | sed 's/TimeInMs = [0-9]*//g' > %t/window.out
// RUN: cmp %t/causal.out %t/set.out
// RUN: not cmp -s %t/causal.out %t/window.out
// RUN: FileCheck %s < %t/causal.out

// Nothing behind flashattn-tile knows what a mask is called: the set that a causal mask
// stands for gives the same host code and the same PTX, to the letter.

// CHECK: gpu.binary
// CHECK: gpu.binary
// CHECK-SAME: wgmma.mma_async

//--- causal.mlir
func.func @attention(%q: memref<?x?x?x128xf16>, %k: memref<?x?x?x128xf16>, %v: memref<?x?x?x128xf16>, %o: memref<?x?x?x128xf16>) {
  flashattn.attention mask(#flashattn.causal)
    ins(%q, %k, %v : memref<?x?x?x128xf16>, memref<?x?x?x128xf16>, memref<?x?x?x128xf16>)
    outs(%o : memref<?x?x?x128xf16>)
  return
}

//--- set.mlir
func.func @attention(%q: memref<?x?x?x128xf16>, %k: memref<?x?x?x128xf16>, %v: memref<?x?x?x128xf16>, %o: memref<?x?x?x128xf16>) {
  flashattn.attention mask(#flashattn.set<"(p, k)[nq, nk] : (p - k >= 0)">)
    ins(%q, %k, %v : memref<?x?x?x128xf16>, memref<?x?x?x128xf16>, memref<?x?x?x128xf16>)
    outs(%o : memref<?x?x?x128xf16>)
  return
}

//--- window.mlir
func.func @attention(%q: memref<?x?x?x128xf16>, %k: memref<?x?x?x128xf16>, %v: memref<?x?x?x128xf16>, %o: memref<?x?x?x128xf16>) {
  flashattn.attention mask(#flashattn.window<left = 1023, right = 0>)
    ins(%q, %k, %v : memref<?x?x?x128xf16>, memref<?x?x?x128xf16>, memref<?x?x?x128xf16>)
    outs(%o : memref<?x?x?x128xf16>)
  return
}
