// Keys in parts, and the merge of what each part gives.
// RUN: %python %S/Inputs/check_modules.py %s

// MODULE halves: attention(o lse) attention(o lse) combine(o)
!q = memref<1x2x7x16xf32>
!k = memref<1x1x40x16xf32>
!half = memref<1x1x20x16xf32, strided<[640, 640, 16, 1], offset: ?>>
!op = memref<1x2x7x16xf32, strided<[224, 112, 16, 1], offset: ?>>
!lp = memref<1x2x7xf32, strided<[14, 7, 1], offset: ?>>
func.func private @part(%q: !q, %k: !k, %s: index, %os: memref<2x1x2x7x16xf32>, %ls: memref<2x1x2x7xf32>) {
  %c20 = arith.constant 20 : index
  %at = arith.muli %s, %c20 : index
  %kp = memref.subview %k[0, 0, %at, 0] [1, 1, 20, 16] [1, 1, 1, 1] : !k to !half
  %o = memref.subview %os[%s, 0, 0, 0, 0] [1, 1, 2, 7, 16] [1, 1, 1, 1, 1] : memref<2x1x2x7x16xf32> to !op
  %l = memref.subview %ls[%s, 0, 0, 0] [1, 1, 2, 7] [1, 1, 1, 1] : memref<2x1x2x7xf32> to !lp
  flashattn.attention ins(%q, %kp, %kp : !q, !half, !half) outs(%o, %l : !op, !lp)
  return
}
func.func @halves(%q: !q, %k: !k, %o: !q) {
  %os = memref.alloc() : memref<2x1x2x7x16xf32>
  %ls = memref.alloc() : memref<2x1x2x7xf32>
  %k0 = memref.subview %k[0, 0, 0, 0] [1, 1, 20, 16] [1, 1, 1, 1] : !k to memref<1x1x20x16xf32, strided<[640, 640, 16, 1]>>
  %k1 = memref.subview %k[0, 0, 20, 0] [1, 1, 20, 16] [1, 1, 1, 1] : !k to memref<1x1x20x16xf32, strided<[640, 640, 16, 1], offset: 320>>
  %o0 = memref.subview %os[0, 0, 0, 0, 0] [1, 1, 2, 7, 16] [1, 1, 1, 1, 1] : memref<2x1x2x7x16xf32> to memref<1x2x7x16xf32, strided<[224, 112, 16, 1]>>
  %o1 = memref.subview %os[1, 0, 0, 0, 0] [1, 1, 2, 7, 16] [1, 1, 1, 1, 1] : memref<2x1x2x7x16xf32> to memref<1x2x7x16xf32, strided<[224, 112, 16, 1], offset: 224>>
  %l0 = memref.subview %ls[0, 0, 0, 0] [1, 1, 2, 7] [1, 1, 1, 1] : memref<2x1x2x7xf32> to memref<1x2x7xf32, strided<[14, 7, 1]>>
  %l1 = memref.subview %ls[1, 0, 0, 0] [1, 1, 2, 7] [1, 1, 1, 1] : memref<2x1x2x7xf32> to memref<1x2x7xf32, strided<[14, 7, 1], offset: 14>>
  flashattn.attention
      ins(%q, %k0, %k0 : !q, memref<1x1x20x16xf32, strided<[640, 640, 16, 1]>>, memref<1x1x20x16xf32, strided<[640, 640, 16, 1]>>)
      outs(%o0, %l0 : memref<1x2x7x16xf32, strided<[224, 112, 16, 1]>>, memref<1x2x7xf32, strided<[14, 7, 1]>>)
  flashattn.attention
      ins(%q, %k1, %k1 : !q, memref<1x1x20x16xf32, strided<[640, 640, 16, 1], offset: 320>>, memref<1x1x20x16xf32, strided<[640, 640, 16, 1], offset: 320>>)
      outs(%o1, %l1 : memref<1x2x7x16xf32, strided<[224, 112, 16, 1], offset: 224>>, memref<1x2x7xf32, strided<[14, 7, 1], offset: 14>>)
  flashattn.combine ins(%os, %ls : memref<2x1x2x7x16xf32>, memref<2x1x2x7xf32>) outs(%o : !q)
  return
}

// MODULE loop: combine(o lse) 2 x attention(o lse)
func.func @loop(%q: !q, %k: !k, %o: !q, %lse: memref<1x2x7xf32>) {
  %os = memref.alloc() : memref<2x1x2x7x16xf32>
  %ls = memref.alloc() : memref<2x1x2x7xf32>
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %c2 = arith.constant 2 : index
  scf.for %s = %c0 to %c2 step %c1 {
    func.call @part(%q, %k, %s, %os, %ls) : (!q, !k, index, memref<2x1x2x7x16xf32>, memref<2x1x2x7xf32>) -> ()
  }
  flashattn.combine ins(%os, %ls : memref<2x1x2x7x16xf32>, memref<2x1x2x7xf32>) outs(%o, %lse : !q, memref<1x2x7xf32>)
  return
}

// MODULE sinks: combine(o)
func.func @sinks(%os: tensor<3x2x4x5x32xf32>, %ls: tensor<3x2x4x5xf32>, %sinks: tensor<4xf32>) -> tensor<2x5x4x32xf16> {
  %e = tensor.empty() : tensor<2x5x4x32xf16>
  %o = flashattn.combine layout(bshd) ins(%os, %ls : tensor<3x2x4x5x32xf32>, tensor<3x2x4x5xf32>)
      sink_logits(%sinks : tensor<4xf32>) outs(%e : tensor<2x5x4x32xf16>) -> tensor<2x5x4x32xf16>
  return %o : tensor<2x5x4x32xf16>
}

// Keys that all batches share, and their own: two calls of different lengths, merged.
// MODULE prefix: attention(o lse) attention(o lse) combine(o)
!p = tensor<1x2x6x16xf32>
!l = tensor<1x2x6xf32>
func.func @prefix(%q: !p, %shared: tensor<1x2x31x16xf32>, %own: tensor<1x2x9x16xf32>) -> tensor<1x2x6x16xbf16> {
  %e = tensor.empty() : !p
  %el = tensor.empty() : !l
  %a, %la = flashattn.attention ins(%q, %shared, %shared : !p, tensor<1x2x31x16xf32>, tensor<1x2x31x16xf32>) outs(%e, %el : !p, !l) -> !p, !l
  %b, %lb = flashattn.attention mask(#flashattn.causal) ins(%q, %own, %own : !p, tensor<1x2x9x16xf32>, tensor<1x2x9x16xf32>) outs(%e, %el : !p, !l) -> !p, !l
  %eo = tensor.empty() : tensor<2x1x2x6x16xf32>
  %els = tensor.empty() : tensor<2x1x2x6xf32>
  %o0 = tensor.insert_slice %a into %eo[0, 0, 0, 0, 0] [1, 1, 2, 6, 16] [1, 1, 1, 1, 1] : !p into tensor<2x1x2x6x16xf32>
  %o1 = tensor.insert_slice %b into %o0[1, 0, 0, 0, 0] [1, 1, 2, 6, 16] [1, 1, 1, 1, 1] : !p into tensor<2x1x2x6x16xf32>
  %l0 = tensor.insert_slice %la into %els[0, 0, 0, 0] [1, 1, 2, 6] [1, 1, 1, 1] : !l into tensor<2x1x2x6xf32>
  %l1 = tensor.insert_slice %lb into %l0[1, 0, 0, 0] [1, 1, 2, 6] [1, 1, 1, 1] : !l into tensor<2x1x2x6xf32>
  %er = tensor.empty() : tensor<1x2x6x16xbf16>
  %o = flashattn.combine ins(%o1, %l1 : tensor<2x1x2x6x16xf32>, tensor<2x1x2x6xf32>) outs(%er : tensor<1x2x6x16xbf16>) -> tensor<1x2x6x16xbf16>
  return %o : tensor<1x2x6x16xbf16>
}

// MODULE projected --input=4x1x2x5x16xf32: combine(o) project(p)
func.func @projected(%os: memref<?x1x2x5x16xf32>, %ls: memref<?x1x2x5xf32>, %w: memref<2x16x24xf32>, %p: memref<1x5x24xf32>) {
  %o = memref.alloc() : memref<1x2x5x16xf32>
  flashattn.combine ins(%os, %ls : memref<?x1x2x5x16xf32>, memref<?x1x2x5xf32>) outs(%o : memref<1x2x5x16xf32>)
  flashattn.project ins(%o, %w : memref<1x2x5x16xf32>, memref<2x16x24xf32>) outs(%p : memref<1x5x24xf32>)
  return
}
