// RUN: split-file %s %t
// RUN: flash-opt %t/lengths.mlir -flashattn-print-mask-tiles="nq=16 nk=16" -verify-diagnostics -o /dev/null
// RUN: flash-opt %t/symbols.mlir -flashattn-print-mask-tiles="symbols=1,1" -verify-diagnostics -o /dev/null

// Rule M6: rows that see no key whatever the lengths are named in a warning.

//--- lengths.mlir

#from_8 = affine_set<(p, k)[nq, nk] : (p - 8 >= 0, p - k >= 0)>
#below_100 = affine_set<(p, k)[nq, nk] : (99 - p >= 0)>
#even = affine_set<(p, k)[nq, nk] : (p mod 2 == 0)>
#never = affine_set<(p, k)[nq, nk] : (-1 - k >= 0)>
// Hidden for some lengths only: no warning.
#tail = affine_set<(p, k)[nq, nk] : (k - nk + 4 >= 0, p - k >= 0)>

func.func @hidden(%q: tensor<1x1x?x16xf32>, %eight: tensor<1x1x8x16xf32>, %o: tensor<1x1x?x16xf32>) {
  // expected-warning @below {{mask hides every key from the queries at positions 0 to 7 for all lengths}}
  %0 = flashattn.attention mask(#flashattn.set<#from_8>) ins(%q, %q, %q : tensor<1x1x?x16xf32>, tensor<1x1x?x16xf32>, tensor<1x1x?x16xf32>)
       outs(%o : tensor<1x1x?x16xf32>) -> tensor<1x1x?x16xf32>
  // expected-warning @below {{mask hides every key from the queries at positions 100 and above for all lengths}}
  %1 = flashattn.attention mask(#flashattn.set<#below_100>) ins(%q, %q, %q : tensor<1x1x?x16xf32>, tensor<1x1x?x16xf32>, tensor<1x1x?x16xf32>)
       outs(%o : tensor<1x1x?x16xf32>) -> tensor<1x1x?x16xf32>
  // expected-warning @below {{mask hides every key from the queries at positions 1, 3, 5 and others for all lengths}}
  %2 = flashattn.attention mask(#flashattn.set<#even>) ins(%q, %q, %q : tensor<1x1x?x16xf32>, tensor<1x1x?x16xf32>, tensor<1x1x?x16xf32>)
       outs(%o : tensor<1x1x?x16xf32>) -> tensor<1x1x?x16xf32>
  // expected-warning @below {{mask hides every pair}}
  %3 = flashattn.attention mask(#flashattn.set<#never>) ins(%q, %q, %q : tensor<1x1x?x16xf32>, tensor<1x1x?x16xf32>, tensor<1x1x?x16xf32>)
       outs(%o : tensor<1x1x?x16xf32>) -> tensor<1x1x?x16xf32>
  // expected-warning @below {{mask hides every pair}}
  %4 = flashattn.attention mask(#flashattn.any_of<[]>) ins(%q, %q, %q : tensor<1x1x?x16xf32>, tensor<1x1x?x16xf32>, tensor<1x1x?x16xf32>)
       outs(%o : tensor<1x1x?x16xf32>) -> tensor<1x1x?x16xf32>
  %none = arith.constant dense<false> : tensor<1x1x1x8xi1>
  // expected-warning @below {{attn_mask hides every pair}}
  %6 = flashattn.attention ins(%q, %eight, %eight : tensor<1x1x?x16xf32>, tensor<1x1x8x16xf32>, tensor<1x1x8x16xf32>)
       attn_mask(%none : tensor<1x1x1x8xi1>)
       outs(%o : tensor<1x1x?x16xf32>) -> tensor<1x1x?x16xf32>
  %5 = flashattn.attention mask(#flashattn.set<#tail>) ins(%q, %q, %q : tensor<1x1x?x16xf32>, tensor<1x1x?x16xf32>, tensor<1x1x?x16xf32>)
       outs(%o : tensor<1x1x?x16xf32>) -> tensor<1x1x?x16xf32>
  return
}

// Static lengths: the positions that there are, those before the first key (rule A3) among them.
#far = affine_set<(p, k)[nq, nk] : (k - p - 1000 == 0)>
#near = affine_set<(p, k)[nq, nk] : (k - p - 60 == 0)>

func.func @static(%q: tensor<1x1x64x16xf32>, %long: tensor<1x1x100x16xf32>, %n: tensor<1xi32>) {
  // expected-warning @below {{mask hides every pair}}
  %0 = flashattn.attention mask(#flashattn.set<#far>) ins(%q, %q, %q : tensor<1x1x64x16xf32>, tensor<1x1x64x16xf32>, tensor<1x1x64x16xf32>)
       outs(%q : tensor<1x1x64x16xf32>) -> tensor<1x1x64x16xf32>
  // expected-warning @below {{mask hides every key from the queries at positions 4 to 63 for 64 queries and 64 keys}}
  %1 = flashattn.attention mask(#flashattn.set<#near>) ins(%q, %q, %q : tensor<1x1x64x16xf32>, tensor<1x1x64x16xf32>, tensor<1x1x64x16xf32>)
       outs(%q : tensor<1x1x64x16xf32>) -> tensor<1x1x64x16xf32>
  // expected-warning @below {{mask hides every key from the queries at positions -36 to -1 for 100 queries and 64 keys}}
  %2 = flashattn.attention mask(#flashattn.causal) ins(%long, %q, %q : tensor<1x1x100x16xf32>, tensor<1x1x64x16xf32>, tensor<1x1x64x16xf32>)
       outs(%long : tensor<1x1x100x16xf32>) -> tensor<1x1x100x16xf32>
  // No position is known: other lengths and offsets show some.
  %3 = flashattn.attention mask(#flashattn.causal) ins(%long, %q, %q : tensor<1x1x100x16xf32>, tensor<1x1x64x16xf32>, tensor<1x1x64x16xf32>)
       kv_len(%n : tensor<1xi32>) outs(%long : tensor<1x1x100x16xf32>) -> tensor<1x1x100x16xf32>
  %c5 = arith.constant 5 : index
  // expected-warning @below {{mask hides every key from the queries at positions 64 to 68 for 64 queries and 64 keys}}
  %4 = flashattn.attention mask(#flashattn.window<left = 0, right = 0>) ins(%q, %q, %q : tensor<1x1x64x16xf32>, tensor<1x1x64x16xf32>, tensor<1x1x64x16xf32>)
       offset(%c5) outs(%q : tensor<1x1x64x16xf32>) -> tensor<1x1x64x16xf32>
  return
}

//--- symbols.mlir

// Y1: rows that are hidden whatever the symbols are.
!t = tensor<1x1x16x16xf32>
func.func @symbols(%q: !t, %a: tensor<1xi32>) {
  // expected-warning @below {{mask hides every key from the queries at positions 0 to 7}}
  %0 = flashattn.attention mask(set<"(p, k)[nq, nk, a, b] : (p - 8 >= 0, k - a >= 0, b - k >= 0)">) ins(%q, %q, %q : !t, !t, !t)
       per_sequence(%a, %a : tensor<1xi32>, tensor<1xi32>) outs(%q : !t) -> !t
  %1 = flashattn.attention mask(set<"(p, k)[nq, nk, a, b] : (p - a >= 0, b - k >= 0)">) ins(%q, %q, %q : !t, !t, !t)
       per_sequence(%a, %a : tensor<1xi32>, tensor<1xi32>) outs(%q : !t) -> !t
  return
}
