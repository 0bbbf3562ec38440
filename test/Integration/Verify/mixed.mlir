// Other types, other ops and other loops around attention.
// RUN: %python %S/Inputs/check_modules.py %s

#id = affine_map<(b, h, n, d) -> (b, h, n, d)>
!f = tensor<1x2x16x32xf32>
!h = tensor<1x2x16x32xf16>

// MODULE f32_around_f16: attention(o)
func.func @f32_around_f16(%x: !f) -> !f {
  %q = arith.truncf %x : !f to !h
  %e = tensor.empty() : !h
  %o = flashattn.attention mask(#flashattn.causal) ins(%q, %q, %q : !h, !h, !h) outs(%e : !h) -> !h
  %w = arith.extf %o : !h to !f
  %ef = tensor.empty() : !f
  %r = linalg.add ins(%w, %x : !f, !f) outs(%ef : !f) -> !f
  return %r : !f
}

// MODULE softmax_behind: attention(o)
func.func @softmax_behind(%x: !f) -> !f {
  %e = tensor.empty() : !f
  %o = flashattn.attention ins(%x, %x, %x : !f, !f, !f) outs(%e : !f) -> !f
  %s = linalg.softmax dimension(3) ins(%o : !f) outs(%e : !f) -> !f
  return %s : !f
}

// Of other sizes: D is not Dv, and the second attention reads the first one's output as keys.
// MODULE cross --input=1x2x18x24xf32: attention(o) attention(o)
func.func @cross(%a: tensor<1x2x?x24xf32>, %b: tensor<1x1x21x24xf32>, %v: tensor<1x1x21x40xf32>,
                 %oa: tensor<1x2x?x40xf32>, %q: tensor<1x2x5x40xf32>) -> tensor<1x2x5x40xf32> {
  %k = flashattn.attention ins(%a, %b, %v : tensor<1x2x?x24xf32>, tensor<1x1x21x24xf32>, tensor<1x1x21x40xf32>)
      outs(%oa : tensor<1x2x?x40xf32>) -> tensor<1x2x?x40xf32>
  %e = tensor.empty() : tensor<1x2x5x40xf32>
  %o = flashattn.attention ins(%q, %k, %k : tensor<1x2x5x40xf32>, tensor<1x2x?x40xf32>, tensor<1x2x?x40xf32>)
      outs(%e : tensor<1x2x5x40xf32>) -> tensor<1x2x5x40xf32>
  return %o : tensor<1x2x5x40xf32>
}

// MODULE while --input=random --input=2: 2 x attention(o)
func.func @while(%x: !h, %n: index) -> !h {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %r:2 = scf.while (%y = %x, %i = %c0) : (!h, index) -> (!h, index) {
    %more = arith.cmpi slt, %i, %n : index
    scf.condition(%more) %y, %i : !h, index
  } do {
  ^bb0(%y: !h, %i: index):
    %e = tensor.empty() : !h
    %a = flashattn.attention mask(#flashattn.causal) ins(%y, %y, %y : !h, !h, !h) outs(%e : !h) -> !h
    %next = arith.addi %i, %c1 : index
    scf.yield %a, %next : !h, index
  }
  return %r#0 : !h
}

// A mask of integers, a residual in place, and the gate of a loop over its rows.
// MODULE gated: attention(o)
#chunks = affine_set<(p, k)[nq, nk] : (p - k >= 0, k - 8 * (p floordiv 8) >= 0)>
func.func @gated(%q: memref<1x2x20x16xf32>, %gate: memref<20xf32>, %o: memref<1x2x20x16xf32>) {
  flashattn.attention mask(#flashattn.set<#chunks>)
      ins(%q, %q, %q : memref<1x2x20x16xf32>, memref<1x2x20x16xf32>, memref<1x2x20x16xf32>) outs(%o : memref<1x2x20x16xf32>)
  linalg.generic {indexing_maps = [affine_map<(b, h, n, d) -> (n)>, #id], iterator_types = ["parallel", "parallel", "parallel", "parallel"]}
      ins(%gate : memref<20xf32>) outs(%o : memref<1x2x20x16xf32>) {
  ^bb0(%g: f32, %x: f32):
    %y = arith.mulf %g, %x : f32
    linalg.yield %y : f32
  }
  return
}
