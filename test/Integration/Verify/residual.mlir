// Attention whose result goes on: sums, copies, and what makes its operands.
// RUN: %python %S/Inputs/check_modules.py %s

#id = affine_map<(b, h, n, d) -> (b, h, n, d)>
!x = tensor<1x2x24x16xf16>

// MODULE added: attention(o)
func.func @added(%q: !x, %k: !x) -> !x {
  %e = tensor.empty() : !x
  %o = flashattn.attention mask(#flashattn.causal) ins(%q, %k, %k : !x, !x, !x) outs(%e : !x) -> !x
  %r = linalg.add ins(%o, %q : !x, !x) outs(%e : !x) -> !x
  return %r : !x
}

// MODULE copied: attention(o)
func.func @copied(%q: memref<2x3x17x32xf32>, %k: memref<2x1x40x32xf32>, %v: memref<2x1x40x32xf32>,
                  %out: memref<2x3x17x32xf32>) {
  %o = memref.alloc() : memref<2x3x17x32xf32>
  flashattn.attention ins(%q, %k, %v : memref<2x3x17x32xf32>, memref<2x1x40x32xf32>, memref<2x1x40x32xf32>)
      outs(%o : memref<2x3x17x32xf32>)
  memref.copy %o, %out : memref<2x3x17x32xf32> to memref<2x3x17x32xf32>
  return
}

// MODULE lse_returned: attention(o lse)
func.func @lse_returned(%q: !x, %k: !x) -> (!x, tensor<1x2x24xf32>) {
  %e = tensor.empty() : !x
  %l = tensor.empty() : tensor<1x2x24xf32>
  %o, %lse = flashattn.attention ins(%q, %k, %k : !x, !x, !x) outs(%e, %l : !x, tensor<1x2x24xf32>)
      -> !x, tensor<1x2x24xf32>
  %r = linalg.add ins(%o, %q : !x, !x) outs(%e : !x) -> !x
  return %r, %lse : !x, tensor<1x2x24xf32>
}

// MODULE scaled_before: attention(o)
func.func @scaled_before(%q: tensor<1x4x19x64xbf16>, %k: tensor<1x2x33x64xbf16>) -> tensor<1x4x19x64xbf16> {
  %e = tensor.empty() : tensor<1x4x19x64xbf16>
  %half = arith.constant 0.5 : bf16
  %s = linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel", "parallel", "parallel", "parallel"]}
      ins(%q : tensor<1x4x19x64xbf16>) outs(%e : tensor<1x4x19x64xbf16>) {
  ^bb0(%in: bf16, %old: bf16):
    %y = arith.mulf %in, %half : bf16
    linalg.yield %y : bf16
  } -> tensor<1x4x19x64xbf16>
  %o = flashattn.attention mask(#flashattn.window<left = 7, right = 0>)
      ins(%s, %k, %k : tensor<1x4x19x64xbf16>, tensor<1x2x33x64xbf16>, tensor<1x2x33x64xbf16>)
      outs(%e : tensor<1x4x19x64xbf16>) -> tensor<1x4x19x64xbf16>
  return %o : tensor<1x4x19x64xbf16>
}

// MODULE arith_on_tensors: attention(o)
func.func @arith_on_tensors(%q: !x, %k: !x) -> !x {
  %two = arith.constant dense<2.0> : !x
  %k2 = arith.mulf %k, %two : !x
  %e = tensor.empty() : !x
  %o = flashattn.attention ins(%q, %k2, %k : !x, !x, !x) outs(%e : !x) -> !x
  %r = arith.addf %o, %q : !x
  return %r : !x
}
