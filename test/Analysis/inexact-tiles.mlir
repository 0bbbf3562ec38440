// RUN: flash-opt %s -flashattn-print-mask-tiles="tile-m=2 tile-n=4" -o /dev/null 2>&1 | FileCheck %s --check-prefix=NARROW
// RUN: flash-opt %s -flashattn-print-mask-tiles="tile-m=2 tile-n=8" -o /dev/null 2>&1 | FileCheck %s --implicit-check-not=remark:

// Rule M3: each sixth key before a query. A tile of 4 keys may lie between two of them, one of 8 cannot.
// NARROW: remark: tiles of 4 keys may be visited without a visible pair under mask #flashattn.set<"(p, k)[nq, nk] : (p - k >= 0, (p - k) mod 6 == 0)">
// CHECK: mask #flashattn.set<{{.*}}tile-n = 8
#strided = affine_set<(p, k)[nq, nk] : (p - k >= 0, (p - k) mod 6 == 0)>
func.func @strided(%q: tensor<1x1x64x16xf32>) -> tensor<1x1x64x16xf32> {
  %r = flashattn.attention mask(#flashattn.set<#strided>) ins(%q, %q, %q : tensor<1x1x64x16xf32>, tensor<1x1x64x16xf32>, tensor<1x1x64x16xf32>)
       outs(%q : tensor<1x1x64x16xf32>) -> tensor<1x1x64x16xf32>
  return %r : tensor<1x1x64x16xf32>
}
