// ptxas compiles kernels that convert or multiply elements of 8 bits without a spill and without giving up wgmma or
// setmaxnreg.
// REQUIRES: ptxas
// UNSUPPORTED: asan
// RUN: rm -rf %t && flash-run %s --function=few --chip=sm_90a --emit=ptx --dump-dir=%t -o %t.ptx
// RUN: cat %t/*.ptxas.txt %t.ptx | FileCheck %s --check-prefixes=CHECK,PAIRS,HOPPER
// RUN: rm -rf %t && flash-run %s --function=rows --chip=sm_90a --emit=ptx --dump-dir=%t -o %t.ptx
// RUN: cat %t/*.ptxas.txt %t.ptx | FileCheck %s --check-prefixes=CHECK,PAIRS,HOPPER
// RUN: rm -rf %t && flash-run %s --function=many --chip=sm_90a --emit=ptx --dump-dir=%t -o %t.ptx
// RUN: cat %t/*.ptxas.txt %t.ptx | FileCheck %s --check-prefixes=CHECK,PAIRS,HOPPER
// RUN: rm -rf %t && flash-run %s --function=many --chip=sm_89 --emit=ptx --dump-dir=%t -o %t.ptx
// RUN: cat %t/*.ptxas.txt %t.ptx | FileCheck %s --check-prefixes=CHECK,PAIRS
// RUN: rm -rf %t && flash-run %s --function=many --chip=sm_80 --emit=ptx --dump-dir=%t -o %t.ptx
// RUN: cat %t/*.ptxas.txt %t.ptx | FileCheck %s --check-prefixes=CHECK
// RUN: rm -rf %t && flash-run %s --function=products128 --chip=sm_90a --emit=ptx --dump-dir=%t -o %t.ptx
// RUN: cat %t/*.ptxas.txt %t.ptx | FileCheck %s --check-prefixes=CHECK,PRODUCTS
// RUN: rm -rf %t && flash-run %s --function=products64 --chip=sm_90a --emit=ptx --dump-dir=%t -o %t.ptx
// RUN: cat %t/*.ptxas.txt %t.ptx | FileCheck %s --check-prefixes=CHECK,PRODUCTS
// RUN: rm -rf %t && flash-run %s --function=products256 --chip=sm_90a --emit=ptx --dump-dir=%t -o %t.ptx
// RUN: cat %t/*.ptxas.txt %t.ptx | FileCheck %s --check-prefixes=CHECK,PARTS
// RUN: rm -rf %t && flash-run %s --function=products192 --chip=sm_90a --emit=ptx --dump-dir=%t -o %t.ptx
// RUN: cat %t/*.ptxas.txt %t.ptx | FileCheck %s --check-prefixes=CHECK,PARTS
// CHECK: 0 bytes spill stores, 0 bytes spill loads
// CHECK-NOT: {{[1-9][0-9]*}} bytes spill
// CHECK-NOT: C75
// HOPPER: setmaxnreg.dec
// PAIRS: cvt.rn.f16x2.e4m3x2
// PRODUCTS: wgmma.mma_async.sync.aligned.m64n128k32.f32.e4m3.e4m3
// PARTS: wgmma.mma_async.sync.aligned.m64n64k32.f32.e4m3.e4m3
// PRODUCTS: cvt.rn.satfinite.e4m3x2.f32

!q = memref<64x32x1x128xbf16>
!k = memref<64x8x?x128xf8E4M3FN>
func.func @few(%q: !q, %k: !k, %v: !k, %n: memref<64xi32>, %s: memref<64x8x1x1xf32>, %o: !q) {
  flashattn.attention ins(%q, %k, %v : !q, !k, !k) kv_len(%n : memref<64xi32>)
      k_scale(%s : memref<64x8x1x1xf32>) v_scale(%s : memref<64x8x1x1xf32>) outs(%o : !q)
  return
}

!scales = memref<64x8x?x1xf32>
func.func @rows(%q: !q, %k: !k, %v: !k, %n: memref<64xi32>, %ks: !scales, %vs: !scales, %o: !q) {
  flashattn.attention ins(%q, %k, %v : !q, !k, !k) kv_len(%n : memref<64xi32>)
      k_scale(%ks : !scales) v_scale(%vs : !scales) outs(%o : !q)
  return
}

!qs = memref<1x8x?x64xf16>
!ks = memref<1x2x?x64xf8E4M3FN>
func.func @many(%q: !qs, %k: !ks, %v: !ks, %s: memref<1x2x?x2xf32>, %o: !qs) {
  flashattn.attention mask(#flashattn.causal) ins(%q, %k, %v : !qs, !ks, !ks)
      v_scale(%s : memref<1x2x?x2xf32>) outs(%o : !qs)
  return
}

!q128 = memref<?x16x?x128xf8E4M3FN>
!o128 = memref<?x16x?x128xbf16>
func.func @products128(%q: !q128, %k: !q128, %v: !q128, %s: memref<?x16x1x1xf32>, %o: !o128) {
  flashattn.attention mask(#flashattn.causal) ins(%q, %k, %v : !q128, !q128, !q128)
      k_scale(%s : memref<?x16x1x1xf32>) v_scale(%s : memref<?x16x1x1xf32>) outs(%o : !o128)
  return
}

!q64 = memref<?x16x?x64xf8E4M3FN>
!o64 = memref<?x16x?x64xf16>
func.func @products64(%q: !q64, %k: !q64, %v: !q64, %o: !o64) {
  flashattn.attention ins(%q, %k, %v : !q64, !q64, !q64) outs(%o : !o64)
  return
}

!q256 = memref<?x16x?x256xf8E4M3FN>
!o256 = memref<?x16x?x256xbf16>
func.func @products256(%q: !q256, %k: !q256, %v: !q256, %n: memref<?xi32>, %o: !o256, %lse: memref<?x16x?xf32>) {
  flashattn.attention mask(#flashattn.causal) ins(%q, %k, %v : !q256, !q256, !q256) kv_len(%n : memref<?xi32>)
      outs(%o, %lse : !o256, memref<?x16x?xf32>)
  return
}

!q192 = memref<?x16x?x192xf8E4M3FN>
!o192 = memref<?x16x?x192xf32>
func.func @products192(%q: !q192, %k: !q192, %v: !q192, %o: !o192) {
  flashattn.attention softcap(20.0) ins(%q, %k, %v : !q192, !q192, !q192) outs(%o : !o192)
  return
}
