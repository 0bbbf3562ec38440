// RUN: flash-opt %s -split-input-file -verify-diagnostics -o /dev/null
// RUN: %python -c "print('#m = #flashattn.' + 'any_of<[' * 3000 + '#flashattn.causal' + ']>' * 3000)" | not flash-opt 2>&1 | FileCheck %s --check-prefix=DEEP
// RUN: %python -c "print('func.func private @f() attributes {m = [' + '#flashattn.all_of<[' * 3000 + ']>' * 3000 + ']}')" | not flash-opt 2>&1 | FileCheck %s --check-prefix=DEEP
// RUN: %python %S/Inputs/nested_score_mod.py 3000 | not flash-opt 2>&1 | FileCheck %s --check-prefix=NESTED

// What is wrong with the text of a clause is said at it.

// DEEP: expected any_of and all_of to nest at most 64 deep but got more
// NESTED: expected an op of arith or math, or a load, in score_mod but got 'flashattn.attention'

//===----------------------------------------------------------------------===//
// Names
//===----------------------------------------------------------------------===//

func.func @unknown(%q: tensor<1x2x8x16xf32>) {
  // expected-error@+1 {{expected one of the clauses mask, scale, softcap, align, layout, invariant, schedule, ins, bias, attn_mask, sink_logits, kv_len, q_len, cu_seqlens_q, cu_seqlens_k, min_seqlen_q, max_seqlen_q, page_table, leftpad_k, k_scale, v_scale, offset, per_sequence, per_query, per_key, score_mod or outs but got 'maks'; did you mean 'mask'?}}
  %r = flashattn.attention maks(causal) ins(%q, %q, %q : tensor<1x2x8x16xf32>, tensor<1x2x8x16xf32>, tensor<1x2x8x16xf32>)
      outs(%q : tensor<1x2x8x16xf32>) -> tensor<1x2x8x16xf32>
  return
}

// -----

func.func @renamed(%q: tensor<1x2x8x16xf32>, %m: tensor<1x1x8x8xi1>) {
  // expected-error@+1 {{but got 'keep', which is now named 'attn_mask'}}
  %r = flashattn.attention ins(%q, %q, %q : tensor<1x2x8x16xf32>, tensor<1x2x8x16xf32>, tensor<1x2x8x16xf32>) keep(%m : tensor<1x1x8x8xi1>)
      outs(%q : tensor<1x2x8x16xf32>) -> tensor<1x2x8x16xf32>
  return
}

// -----

func.func @nothing_like_it(%q: tensor<1x2x8x16xf32>) {
  // expected-error@+1 {{score_mod or outs but got 'dropout_p'}}
  %r = flashattn.attention dropout_p(0.1) ins(%q, %q, %q : tensor<1x2x8x16xf32>, tensor<1x2x8x16xf32>, tensor<1x2x8x16xf32>)
      outs(%q : tensor<1x2x8x16xf32>) -> tensor<1x2x8x16xf32>
  return
}

// -----

// Behind all that the op needs.
func.func @behind(%q: tensor<1x2x8x16xf32>, %n: tensor<1xi32>) {
  %r = flashattn.attention ins(%q, %q, %q : tensor<1x2x8x16xf32>, tensor<1x2x8x16xf32>, tensor<1x2x8x16xf32>)
      // expected-error@+1 {{but got 'kvlen'; did you mean 'kv_len'?}}
      outs(%q : tensor<1x2x8x16xf32>) kvlen(%n : tensor<1xi32>) -> tensor<1x2x8x16xf32>
  return
}

// -----

// Without parentheses.
func.func @flag(%q: tensor<1x2x8x16xf32>) {
  // expected-error@+1 {{but got 'deterministic', a clause of 'flashattn.attention_backward'}}
  %r = flashattn.attention deterministic ins(%q, %q, %q : tensor<1x2x8x16xf32>, tensor<1x2x8x16xf32>, tensor<1x2x8x16xf32>)
      outs(%q : tensor<1x2x8x16xf32>) -> tensor<1x2x8x16xf32>
  return
}

// -----

func.func @of_another(%q: memref<1x2x8x16xf32>, %b: memref<1x2x8x8xf32>, %o: memref<1x2x8x16xf32>) {
  flashattn.attention ins(%q, %q, %q : memref<1x2x8x16xf32>, memref<1x2x8x16xf32>, memref<1x2x8x16xf32>)
      // expected-error@+1 {{but got 'd_bias', a clause of 'flashattn.attention_backward'}}
      outs(%o : memref<1x2x8x16xf32>) d_bias(%b : memref<1x2x8x8xf32>)
  return
}

// -----

func.func @combine(%op: memref<3x2x8x1x64xf32>, %lp: memref<3x2x8x1xf32>, %o: memref<2x8x1x64xf16>) {
  // expected-error@+1 {{expected one of the clauses layout, ins, lse_rests, sink_logits, cu_seqlens_q, min_seqlen_q or outs but got 'mask', a clause of 'flashattn.attention'}}
  flashattn.combine mask(causal) ins(%op, %lp : memref<3x2x8x1x64xf32>, memref<3x2x8x1xf32>) outs(%o : memref<2x8x1x64xf16>)
  return
}

// -----

func.func @missing(%q: tensor<1x2x8x16xf32>) {
  %r = flashattn.attention ins(%q, %q, %q : tensor<1x2x8x16xf32>, tensor<1x2x8x16xf32>, tensor<1x2x8x16xf32>)
  // expected-error@+1 {{expected the clause 'outs' of 'flashattn.attention' but got 'return'}}
  return
}

// -----

func.func @missing_all(%o: memref<2x4x6x16xf16>, %p: memref<2x6x64xf16>) {
  // expected-error@+1 {{expected the clause 'ins' of 'flashattn.project' but got none}}
  flashattn.project outs(%p : memref<2x6x64xf16>) {note}
  return
}

// -----

//===----------------------------------------------------------------------===//
// Once
//===----------------------------------------------------------------------===//

func.func @twice(%q: tensor<1x2x8x16xf32>) {
  // expected-error@+2 {{expected each clause once but got 'mask' twice}}
  %r = flashattn.attention mask(causal) ins(%q, %q, %q : tensor<1x2x8x16xf32>, tensor<1x2x8x16xf32>, tensor<1x2x8x16xf32>)
      mask(sink<4>) outs(%q : tensor<1x2x8x16xf32>) -> tensor<1x2x8x16xf32>
  return
}

// -----

func.func @both_scales(%q: tensor<1x2x8x16xf32>, %x: f32) {
  // expected-error@+2 {{expected each clause once but got 'scale' twice}}
  %r = flashattn.attention scale(%x) ins(%q, %q, %q : tensor<1x2x8x16xf32>, tensor<1x2x8x16xf32>, tensor<1x2x8x16xf32>)
      outs(%q : tensor<1x2x8x16xf32>) scale(0.5) -> tensor<1x2x8x16xf32>
  return
}

// -----

func.func @operands_twice(%o: memref<2x4x6x16xf16>, %w: memref<4x16x64xf16>, %p: memref<2x6x64xf16>) {
  // expected-error@+2 {{expected each clause once but got 'outs' twice}}
  flashattn.project ins(%o, %w : memref<2x4x6x16xf16>, memref<4x16x64xf16>) outs(%p : memref<2x6x64xf16>)
      outs(%p : memref<2x6x64xf16>)
  return
}

// -----

func.func @and_in_dictionary(%q: tensor<1x2x8x16xf32>) {
  // expected-error@+2 {{expected each clause once but got 'softcap' twice}}
  %r = flashattn.attention softcap(2.0) ins(%q, %q, %q : tensor<1x2x8x16xf32>, tensor<1x2x8x16xf32>, tensor<1x2x8x16xf32>)
      outs(%q : tensor<1x2x8x16xf32>) {softcap = 4.0 : f32} -> tensor<1x2x8x16xf32>
  return
}

// -----

//===----------------------------------------------------------------------===//
// What stands between the parentheses
//===----------------------------------------------------------------------===//

func.func @masks(%q: tensor<1x2x8x16xf32>) {
  // expected-error@+1 {{expected one mask but got two: combine them by any_of<[…]> (union) or all_of<[…]> (intersection)}}
  %r = flashattn.attention mask(causal, sink<4>) ins(%q, %q, %q : tensor<1x2x8x16xf32>, tensor<1x2x8x16xf32>, tensor<1x2x8x16xf32>)
      outs(%q : tensor<1x2x8x16xf32>) -> tensor<1x2x8x16xf32>
  return
}

// -----

func.func @fields(%q: tensor<1x2x8x16xf32>) {
  // expected-error@+1 {{expected schedule field 'tile_n', in the fields' order, but got none}}
  %r = flashattn.attention schedule(<tile_m = 17>) ins(%q, %q, %q : tensor<1x2x8x16xf32>, tensor<1x2x8x16xf32>, tensor<1x2x8x16xf32>)
      outs(%q : tensor<1x2x8x16xf32>) -> tensor<1x2x8x16xf32>
  return
}

// -----

func.func @fields_order(%q: tensor<1x2x8x16xf32>) {
  // expected-error@+1 {{expected schedule field 'stages', in the fields' order, but got dot_type}}
  %r = flashattn.attention schedule(<tile_m = 64, tile_n = 64, dot_type = f16>)
      ins(%q, %q, %q : tensor<1x2x8x16xf32>, tensor<1x2x8x16xf32>, tensor<1x2x8x16xf32>)
      outs(%q : tensor<1x2x8x16xf32>) -> tensor<1x2x8x16xf32>
  return
}

// -----

// expected-error@+1 {{expected schedule field 'consumers', in the fields' order, but got none}}
func.func @f() attributes {m = #flashattn.schedule<tile_m = 64, tile_n = 64, stages = 2, dot_type = f16, mapping = hopper<>>} { return }

// -----

func.func @too_few(%q: tensor<1x2x8x16xf32>) {
  // expected-error@+1 {{expected the 3 operands q, k and v but got 2}}
  %r = flashattn.attention ins(%q, %q : tensor<1x2x8x16xf32>, tensor<1x2x8x16xf32>) outs(%q : tensor<1x2x8x16xf32>) -> tensor<1x2x8x16xf32>
  return
}

// -----

func.func @too_many(%q: tensor<1x2x8x16xf32>) {
  // expected-error@+2 {{expected the 1 or 2 operands o and lse but got 3}}
  %r = flashattn.attention ins(%q, %q, %q : tensor<1x2x8x16xf32>, tensor<1x2x8x16xf32>, tensor<1x2x8x16xf32>)
      outs(%q, %q, %q : tensor<1x2x8x16xf32>) -> tensor<1x2x8x16xf32>
  return
}

// -----

func.func @one(%o: memref<2x4x6x16xf16>, %w: memref<4x16x64xf16>, %p: memref<2x6x64xf16>) {
  // expected-error@+1 {{expected the 1 operand p but got 2}}
  flashattn.project ins(%o, %w : memref<2x4x6x16xf16>, memref<4x16x64xf16>) outs(%p, %p : memref<2x6x64xf16>, memref<2x6x64xf16>)
  return
}

// -----

//===----------------------------------------------------------------------===//
// Masks in masks, deeper and longer than their text
//===----------------------------------------------------------------------===//

#m0 = #flashattn.any_of<[#flashattn.causal]>
#m1 = #flashattn.all_of<[#flashattn.all_of<[#flashattn.all_of<[#flashattn.all_of<[#flashattn.all_of<[#flashattn.all_of<[#flashattn.all_of<[#flashattn.all_of<[#flashattn.all_of<[#flashattn.all_of<[#m0]>]>]>]>]>]>]>]>]>]>
#m2 = #flashattn.all_of<[#flashattn.all_of<[#flashattn.all_of<[#flashattn.all_of<[#flashattn.all_of<[#flashattn.all_of<[#flashattn.all_of<[#flashattn.all_of<[#flashattn.all_of<[#flashattn.all_of<[#m1]>]>]>]>]>]>]>]>]>]>
#m3 = #flashattn.all_of<[#flashattn.all_of<[#flashattn.all_of<[#flashattn.all_of<[#flashattn.all_of<[#flashattn.all_of<[#flashattn.all_of<[#flashattn.all_of<[#flashattn.all_of<[#flashattn.all_of<[#m2]>]>]>]>]>]>]>]>]>]>
#m4 = #flashattn.all_of<[#flashattn.all_of<[#flashattn.all_of<[#flashattn.all_of<[#flashattn.all_of<[#flashattn.all_of<[#flashattn.all_of<[#flashattn.all_of<[#flashattn.all_of<[#flashattn.all_of<[#m3]>]>]>]>]>]>]>]>]>]>
#m5 = #flashattn.all_of<[#flashattn.all_of<[#flashattn.all_of<[#flashattn.all_of<[#flashattn.all_of<[#flashattn.all_of<[#flashattn.all_of<[#flashattn.all_of<[#flashattn.all_of<[#flashattn.all_of<[#m4]>]>]>]>]>]>]>]>]>]>
#m6 = #flashattn.all_of<[#flashattn.all_of<[#flashattn.all_of<[#flashattn.all_of<[#flashattn.all_of<[#flashattn.all_of<[#flashattn.all_of<[#flashattn.all_of<[#flashattn.all_of<[#flashattn.all_of<[#m5]>]>]>]>]>]>]>]>]>]>
// expected-error@+1 {{expected any_of and all_of to nest at most 64 deep but got more}}
#m7 = #flashattn.all_of<[#flashattn.all_of<[#flashattn.all_of<[#flashattn.all_of<[#flashattn.all_of<[#flashattn.all_of<[#flashattn.all_of<[#flashattn.all_of<[#flashattn.all_of<[#flashattn.all_of<[#m6]>]>]>]>]>]>]>]>]>]>

// -----

// No set at all, and many masks to find that out of.
#m0 = #flashattn.any_of<[]>
#m1 = #flashattn.any_of<[#m0, #m0, #m0]>
#m2 = #flashattn.any_of<[#m1, #m1, #m1]>
#m3 = #flashattn.any_of<[#m2, #m2, #m2]>
#m4 = #flashattn.any_of<[#m3, #m3, #m3]>
#m5 = #flashattn.any_of<[#m4, #m4, #m4]>
#m6 = #flashattn.any_of<[#m5, #m5, #m5]>
#m7 = #flashattn.any_of<[#m6, #m6, #m6]>
// expected-error@+1 {{expected a mask of at most 4096 parts, with each use counted, but got more}}
#m8 = #flashattn.any_of<[#m7, #m7]>
