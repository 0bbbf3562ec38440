// Several attentions: one behind the other, in loops, in branches and in functions that are called.
// RUN: %python %S/Inputs/check_modules.py %s

!x = tensor<1x2x16x16xf32>

// MODULE two: attention(o) attention(o)
func.func @two(%q: !x, %k: tensor<1x1x40x16xf32>) -> !x {
  %e = tensor.empty() : !x
  %a = flashattn.attention mask(#flashattn.causal) ins(%q, %q, %q : !x, !x, !x) outs(%e : !x) -> !x
  %b = flashattn.attention ins(%a, %k, %k : !x, tensor<1x1x40x16xf32>, tensor<1x1x40x16xf32>) outs(%e : !x) -> !x
  return %b : !x
}

// MODULE loop --input=random --input=3: 3 x attention(o)
func.func @loop(%x: !x, %n: index) -> !x {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %r = scf.for %i = %c0 to %n step %c1 iter_args(%y = %x) -> !x {
    %e = tensor.empty() : !x
    %a = flashattn.attention mask(#flashattn.causal) ins(%y, %y, %y : !x, !x, !x) outs(%e : !x) -> !x
    %s = linalg.add ins(%a, %y : !x, !x) outs(%e : !x) -> !x
    scf.yield %s : !x
  }
  return %r : !x
}

func.func private @layer(%x: !x) -> !x {
  %e = tensor.empty() : !x
  %a = flashattn.attention mask(#flashattn.window<left = 4, right = 4>) ins(%x, %x, %x : !x, !x, !x) outs(%e : !x) -> !x
  return %a : !x
}

// MODULE calls: 2 x attention(o)
func.func @calls(%x: !x) -> !x {
  %a = call @layer(%x) : (!x) -> !x
  %b = call @layer(%a) : (!x) -> !x
  return %b : !x
}

// MODULE either --input=random --input=1: attention(o) not reached
// MODULE either --input=random --input=0: not reached attention(o)
func.func @either(%x: !x, %n: index) -> !x {
  %c0 = arith.constant 0 : index
  %more = arith.cmpi sgt, %n, %c0 : index
  %r = scf.if %more -> !x {
    %e = tensor.empty() : !x
    %a = flashattn.attention mask(#flashattn.causal) ins(%x, %x, %x : !x, !x, !x) outs(%e : !x) -> !x
    scf.yield %a : !x
  } else {
    %e = tensor.empty() : !x
    %a = flashattn.attention ins(%x, %x, %x : !x, !x, !x) outs(%e : !x) -> !x
    scf.yield %a : !x
  }
  return %r : !x
}

// MODULE batches: 4 x attention(o)
func.func @batches(%q: memref<4x2x9x16xf16>, %k: memref<4x1x21x16xf16>, %o: memref<4x2x9x16xf16>) {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %c4 = arith.constant 4 : index
  scf.for %b = %c0 to %c4 step %c1 {
    %qb = memref.subview %q[%b, 0, 0, 0] [1, 2, 9, 16] [1, 1, 1, 1] : memref<4x2x9x16xf16> to memref<1x2x9x16xf16, strided<[288, 144, 16, 1], offset: ?>>
    %kb = memref.subview %k[%b, 0, 0, 0] [1, 1, 21, 16] [1, 1, 1, 1] : memref<4x1x21x16xf16> to memref<1x1x21x16xf16, strided<[336, 336, 16, 1], offset: ?>>
    %ob = memref.subview %o[%b, 0, 0, 0] [1, 2, 9, 16] [1, 1, 1, 1] : memref<4x2x9x16xf16> to memref<1x2x9x16xf16, strided<[288, 144, 16, 1], offset: ?>>
    flashattn.attention
        ins(%qb, %kb, %kb : memref<1x2x9x16xf16, strided<[288, 144, 16, 1], offset: ?>>,
            memref<1x1x21x16xf16, strided<[336, 336, 16, 1], offset: ?>>, memref<1x1x21x16xf16, strided<[336, 336, 16, 1], offset: ?>>)
        outs(%ob : memref<1x2x9x16xf16, strided<[288, 144, 16, 1], offset: ?>>)
  }
  return
}
