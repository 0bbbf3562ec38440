// Projections before and behind attention, one, several and made with it.
// RUN: %python %S/Inputs/check_modules.py %s

!x = tensor<2x2x16x16xf16>
!w = tensor<2x16x40xf16>
!p = tensor<2x16x40xf16>

// MODULE with_residual: attention(o) project(p)
// MODULE with_residual --fuse-projection: attention+project(p)
func.func @with_residual(%q: !x, %w: !w, %r: !p) -> !p {
  %e = tensor.empty() : !x
  %o = flashattn.attention ins(%q, %q, %q : !x, !x, !x) outs(%e : !x) -> !x
  %ep = tensor.empty() : !p
  %p = flashattn.project ins(%o, %w : !x, !w) outs(%ep : !p) -> !p
  %s = linalg.add ins(%p, %r : !p, !p) outs(%ep : !p) -> !p
  return %s : !p
}

// The sum that linalg has for it becomes a flashattn.project.
// MODULE contraction: attention(o) project(p)
#o = affine_map<(b, n, e, h, d) -> (b, h, n, d)>
#w = affine_map<(b, n, e, h, d) -> (h, d, e)>
#p = affine_map<(b, n, e, h, d) -> (b, n, e)>
func.func @contraction(%q: !x, %w: !w) -> tensor<2x16x40xf32> {
  %e = tensor.empty() : !x
  %o = flashattn.attention mask(#flashattn.causal) ins(%q, %q, %q : !x, !x, !x) outs(%e : !x) -> !x
  %zero = arith.constant 0.0 : f32
  %ep = tensor.empty() : tensor<2x16x40xf32>
  %fill = linalg.fill ins(%zero : f32) outs(%ep : tensor<2x16x40xf32>) -> tensor<2x16x40xf32>
  %p = linalg.generic {indexing_maps = [#o, #w, #p], iterator_types = ["parallel", "parallel", "parallel", "reduction", "reduction"]}
      ins(%o, %w : !x, !w) outs(%fill : tensor<2x16x40xf32>) {
  ^bb0(%a: f16, %b: f16, %sum: f32):
    %af = arith.extf %a : f16 to f32
    %bf = arith.extf %b : f16 to f32
    %ab = arith.mulf %af, %bf : f32
    %s = arith.addf %sum, %ab : f32
    linalg.yield %s : f32
  } -> tensor<2x16x40xf32>
  return %p : tensor<2x16x40xf32>
}

// q, k and v from one input, and the result back to its width.
// MODULE block: attention(o) project(p)
func.func @block(%x: tensor<1x20x32xf32>, %wq: tensor<1x32x32xf32>, %wk: tensor<1x32x32xf32>,
                 %wo: tensor<2x16x32xf32>) -> tensor<1x20x32xf32> {
  %zero = arith.constant 0.0 : f32
  %e = tensor.empty() : tensor<1x20x32xf32>
  %fill = linalg.fill ins(%zero : f32) outs(%e : tensor<1x20x32xf32>) -> tensor<1x20x32xf32>
  %q = linalg.batch_matmul ins(%x, %wq : tensor<1x20x32xf32>, tensor<1x32x32xf32>) outs(%fill : tensor<1x20x32xf32>) -> tensor<1x20x32xf32>
  %k = linalg.batch_matmul ins(%x, %wk : tensor<1x20x32xf32>, tensor<1x32x32xf32>) outs(%fill : tensor<1x20x32xf32>) -> tensor<1x20x32xf32>
  %qh = tensor.expand_shape %q [[0], [1], [2, 3]] output_shape [1, 20, 2, 16] : tensor<1x20x32xf32> into tensor<1x20x2x16xf32>
  %kh = tensor.expand_shape %k [[0], [1], [2, 3]] output_shape [1, 20, 2, 16] : tensor<1x20x32xf32> into tensor<1x20x2x16xf32>
  %eo = tensor.empty() : tensor<1x20x2x16xf32>
  %o = flashattn.attention mask(#flashattn.causal) layout(bshd)
      ins(%qh, %kh, %kh : tensor<1x20x2x16xf32>, tensor<1x20x2x16xf32>, tensor<1x20x2x16xf32>)
      outs(%eo : tensor<1x20x2x16xf32>) -> tensor<1x20x2x16xf32>
  %p = flashattn.project layout(bshd) ins(%o, %wo : tensor<1x20x2x16xf32>, tensor<2x16x32xf32>)
      outs(%e : tensor<1x20x32xf32>) -> tensor<1x20x32xf32>
  %r = linalg.add ins(%p, %x : tensor<1x20x32xf32>, tensor<1x20x32xf32>) outs(%e : tensor<1x20x32xf32>) -> tensor<1x20x32xf32>
  return %r : tensor<1x20x32xf32>
}

// MODULE twice: attention(o) project(p) project(p)
// MODULE twice --fuse-projection: attention+project(o p) project(p)
func.func @twice(%q: !x, %w: !w, %u: !w) -> (!p, !p) {
  %e = tensor.empty() : !x
  %o = flashattn.attention ins(%q, %q, %q : !x, !x, !x) outs(%e : !x) -> !x
  %ep = tensor.empty() : !p
  %a = flashattn.project ins(%o, %w : !x, !w) outs(%ep : !p) -> !p
  %b = flashattn.project ins(%o, %u : !x, !w) outs(%ep : !p) -> !p
  return %a, %b : !p, !p
}

// MODULE alone --input=1x2x9x8xbf16 --input=2x8x24xbf16: project(p)
func.func @alone(%o: memref<?x?x?x8xbf16>, %w: memref<?x8x?xbf16>, %p: memref<?x?x?xf32>) {
  flashattn.project ins(%o, %w : memref<?x?x?x8xbf16>, memref<?x8x?xbf16>) outs(%p : memref<?x?x?xf32>)
  return
}
