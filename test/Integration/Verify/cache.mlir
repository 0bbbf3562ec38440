// Keys and values that are parts of something larger.
// RUN: %python %S/Inputs/check_modules.py %s

!c = tensor<1x2x64x16xf32>
!q = tensor<1x2x4x16xf32>

// MODULE append --input=random --input=random --input=7: attention(o)
func.func @append(%q: !q, %cache: !c, %at: index) -> (!q, !c) {
  %k = tensor.insert_slice %q into %cache[0, 0, %at, 0] [1, 2, 4, 16] [1, 1, 1, 1] : !q into !c
  %e = tensor.empty() : !q
  %o = flashattn.attention mask(#flashattn.causal) ins(%q, %k, %k : !q, !c, !c) offset(%at) outs(%e : !q) -> !q
  return %o, %k : !q, !c
}

// MODULE begin --input=random --input=random --input=23: attention(o)
func.func @begin(%q: !q, %cache: !c, %n: index) -> !q {
  %k = tensor.extract_slice %cache[0, 0, 0, 0] [1, 2, %n, 16] [1, 1, 1, 1] : !c to tensor<1x2x?x16xf32>
  %e = tensor.empty() : !q
  %o = flashattn.attention mask(#flashattn.causal)
      ins(%q, %k, %k : !q, tensor<1x2x?x16xf32>, tensor<1x2x?x16xf32>) outs(%e : !q) -> !q
  return %o : !q
}

// One layer of a cache of all layers; neighbours of a head are far apart.
// MODULE layer --input=random --input=random --input=random --input=2: attention(o)
func.func @layer(%q: memref<2x4x3x32xf16>, %keys: memref<4x2x40x2x32xf16>, %values: memref<4x2x40x2x32xf16>,
                 %layer: index, %o: memref<2x4x3x32xf16>) {
  %k = memref.subview %keys[%layer, 0, 0, 0, 0] [1, 2, 40, 2, 32] [1, 1, 1, 1, 1]
      : memref<4x2x40x2x32xf16> to memref<2x40x2x32xf16, strided<[2560, 64, 32, 1], offset: ?>>
  %v = memref.subview %values[%layer, 0, 0, 0, 0] [1, 2, 40, 2, 32] [1, 1, 1, 1, 1]
      : memref<4x2x40x2x32xf16> to memref<2x40x2x32xf16, strided<[2560, 64, 32, 1], offset: ?>>
  %kt = memref.transpose %k (b, n, h, d) -> (b, h, n, d)
      : memref<2x40x2x32xf16, strided<[2560, 64, 32, 1], offset: ?>> to memref<2x2x40x32xf16, strided<[2560, 32, 64, 1], offset: ?>>
  %vt = memref.transpose %v (b, n, h, d) -> (b, h, n, d)
      : memref<2x40x2x32xf16, strided<[2560, 64, 32, 1], offset: ?>> to memref<2x2x40x32xf16, strided<[2560, 32, 64, 1], offset: ?>>
  flashattn.attention
      ins(%q, %kt, %vt : memref<2x4x3x32xf16>, memref<2x2x40x32xf16, strided<[2560, 32, 64, 1], offset: ?>>,
          memref<2x2x40x32xf16, strided<[2560, 32, 64, 1], offset: ?>>)
      outs(%o : memref<2x4x3x32xf16>)
  return
}

// q, k, v and o side by side in one buffer: their memory is interleaved, and no byte is shared.
// MODULE packed: attention(o)
!s = memref<1x18x2x16xf32, strided<[2304, 128, 16, 1], offset: ?>>
func.func @packed(%all: memref<1x18x8x16xf32>) {
  %q = memref.subview %all[0, 0, 0, 0] [1, 18, 2, 16] [1, 1, 1, 1] : memref<1x18x8x16xf32> to memref<1x18x2x16xf32, strided<[2304, 128, 16, 1]>>
  %k = memref.subview %all[0, 0, 2, 0] [1, 18, 2, 16] [1, 1, 1, 1] : memref<1x18x8x16xf32> to memref<1x18x2x16xf32, strided<[2304, 128, 16, 1], offset: 32>>
  %v = memref.subview %all[0, 0, 4, 0] [1, 18, 2, 16] [1, 1, 1, 1] : memref<1x18x8x16xf32> to memref<1x18x2x16xf32, strided<[2304, 128, 16, 1], offset: 64>>
  %o = memref.subview %all[0, 0, 6, 0] [1, 18, 2, 16] [1, 1, 1, 1] : memref<1x18x8x16xf32> to memref<1x18x2x16xf32, strided<[2304, 128, 16, 1], offset: 96>>
  %qc = memref.cast %q : memref<1x18x2x16xf32, strided<[2304, 128, 16, 1]>> to !s
  %kc = memref.cast %k : memref<1x18x2x16xf32, strided<[2304, 128, 16, 1], offset: 32>> to !s
  %vc = memref.cast %v : memref<1x18x2x16xf32, strided<[2304, 128, 16, 1], offset: 64>> to !s
  %oc = memref.cast %o : memref<1x18x2x16xf32, strided<[2304, 128, 16, 1], offset: 96>> to !s
  flashattn.attention mask(#flashattn.causal) layout(bshd) ins(%qc, %kc, %vc : !s, !s, !s) outs(%oc : !s)
  return
}

// Each batch has its own number of keys, which the function makes.
// MODULE lengths: attention(o lse)
func.func @lengths(%q: memref<3x2x5x16xbf16>, %k: memref<3x2x30x16xbf16>, %o: memref<3x2x5x16xbf16>,
                   %lse: memref<3x2x5xf32>) {
  %n = memref.alloc() : memref<3xi32>
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %c3 = arith.constant 3 : index
  %c11 = arith.constant 11 : i32
  scf.for %b = %c0 to %c3 step %c1 {
    %i = arith.index_cast %b : index to i32
    %l = arith.muli %i, %c11 : i32
    memref.store %l, %n[%b] : memref<3xi32>
  }
  flashattn.attention mask(#flashattn.causal)
      ins(%q, %k, %k : memref<3x2x5x16xbf16>, memref<3x2x30x16xbf16>, memref<3x2x30x16xbf16>)
      kv_len(%n : memref<3xi32>) outs(%o, %lse : memref<3x2x5x16xbf16>, memref<3x2x5xf32>)
  return
}
