// RUN: split-file %s %t
// RUN: flash-opt %t/strided.mlir -flashattn-print-mask-tiles="tile-m=2 tile-n=4" -o /dev/null 2>&1 | FileCheck %t/strided.mlir --check-prefix=NARROW
// RUN: flash-opt %t/strided.mlir -flashattn-print-mask-tiles="tile-m=2 tile-n=8" -o /dev/null 2>&1 | FileCheck %t/strided.mlir --implicit-check-not=remark:
// RUN: flash-opt %t/symbols.mlir -flashattn-print-mask-tiles="symbols=3,3,3" -verify-diagnostics -o /dev/null

//--- strided.mlir

// Rule M3: each sixth key before a query. A tile of 4 keys may lie between two of them, one of 8 cannot.
// NARROW: remark: tiles of 4 keys may be visited without a visible pair under mask #flashattn.set<"(p, k)[nq, nk] : (p - k >= 0, (p - k) mod 6 == 0)">
// CHECK: mask #flashattn.set<{{.*}}tile-n = 8
#strided = affine_set<(p, k)[nq, nk] : (p - k >= 0, (p - k) mod 6 == 0)>
func.func @strided(%q: tensor<1x1x64x16xf32>) -> tensor<1x1x64x16xf32> {
  %r = flashattn.attention mask(#flashattn.set<#strided>) ins(%q, %q, %q : tensor<1x1x64x16xf32>, tensor<1x1x64x16xf32>, tensor<1x1x64x16xf32>)
       outs(%q : tensor<1x1x64x16xf32>) -> tensor<1x1x64x16xf32>
  return %r : tensor<1x1x64x16xf32>
}

//--- symbols.mlir

// Rule Y2: a tile is tested with the least and the greatest value of each symbol of its queries.
!t = tensor<1x1x64x16xf32>
func.func @symbols(%q: !t, %a: tensor<1xi32>, %b: tensor<1x1x64xi32>) {
  // Exact: a symbol per sequence in any place, a symbol per query with one sign.
  %0 = flashattn.attention mask(set<"(p, k)[nq, nk, a, b, c] : (k - a >= 0, p - k + a >= 0)">) ins(%q, %q, %q : !t, !t, !t)
       per_sequence(%a : tensor<1xi32>) per_query(%b, %b : tensor<1x1x64xi32>, tensor<1x1x64xi32>) outs(%q : !t) -> !t
  %1 = flashattn.attention mask(set<"(p, k)[nq, nk, a, b, c] : (k - b >= 0, k - a >= 0)">) ins(%q, %q, %q : !t, !t, !t)
       per_sequence(%a : tensor<1xi32>) per_query(%b, %b : tensor<1x1x64xi32>, tensor<1x1x64xi32>) outs(%q : !t) -> !t
  // A symbol with both signs, a symbol beside the position, two symbols, and one that varies between the keys.
  // expected-remark @below {{tiles of 64 keys may be visited without a visible pair under mask #flashattn.set<"(p, k)[nq, nk, s2, s3, s4] : (k - s3 >= 0, -k + s3 + 9 >= 0)">}}
  %2 = flashattn.attention mask(set<"(p, k)[nq, nk, a, b, c] : (k - b >= 0, b - k + 9 >= 0)">) ins(%q, %q, %q : !t, !t, !t)
       per_sequence(%a : tensor<1xi32>) per_query(%b, %b : tensor<1x1x64xi32>, tensor<1x1x64xi32>) outs(%q : !t) -> !t
  // expected-remark @below {{tiles of 64 keys may be visited without a visible pair}}
  %3 = flashattn.attention mask(set<"(p, k)[nq, nk, a, b, c] : (k - b >= 0, p - k >= 0)">) ins(%q, %q, %q : !t, !t, !t)
       per_sequence(%a : tensor<1xi32>) per_query(%b, %b : tensor<1x1x64xi32>, tensor<1x1x64xi32>) outs(%q : !t) -> !t
  // expected-remark @below {{tiles of 64 keys may be visited without a visible pair}}
  %4 = flashattn.attention mask(set<"(p, k)[nq, nk, a, b, c] : (k - b >= 0, c - k >= 0)">) ins(%q, %q, %q : !t, !t, !t)
       per_sequence(%a : tensor<1xi32>) per_query(%b, %b : tensor<1x1x64xi32>, tensor<1x1x64xi32>) outs(%q : !t) -> !t
  // expected-remark @below {{tiles of 64 keys may be visited without a visible pair}}
  %5 = flashattn.attention mask(set<"(p, k)[nq, nk, a, b, c] : (p - k >= 0, c - p >= 0)">) ins(%q, %q, %q : !t, !t, !t)
       per_sequence(%a : tensor<1xi32>) per_query(%b : tensor<1x1x64xi32>) per_key(%b : tensor<1x1x64xi32>) outs(%q : !t) -> !t
  return
}
