// What shapes scores beyond the mask, against the float64 reference. test/Integration/Numbers draws
// from all of it at random.

// DEFINE: %{run} = flash-run %s --device=cpu --verify

// A2: the order is scale, softcap, score modification, bias, mask; each changes what the next one gets.
// A9: f32 within 1e-5.
// RUN: %{run} --function=order --input=2x4x37x24xf32 --input=2x2x85x24xf32 --input=2x2x85x40xf32 | FileCheck %s --check-prefix=PASS
func.func @order(%q: memref<?x?x?x24xf32>, %k: memref<?x?x?x24xf32>, %v: memref<?x?x?x40xf32>,
                 %bias: memref<1x?x?x?xf32>, %o: memref<?x?x?x40xf32>, %lse: memref<?x?x?xf32>) {
  flashattn.attention mask(#flashattn.causal) scale(0.5) softcap(2.0)
      ins(%q, %k, %v : memref<?x?x?x24xf32>, memref<?x?x?x24xf32>, memref<?x?x?x40xf32>)
      bias(%bias : memref<1x?x?x?xf32>)
      score_mod {
      ^bb0(%s: f32, %b: index, %h: index, %p: index, %key: index):
        %y = arith.mulf %s, %s : f32
        flashattn.yield %y : f32
      }
      outs(%o, %lse : memref<?x?x?x40xf32>, memref<?x?x?xf32>)
  return
}

// A3: query 0 of batch b stands at kv_len[b] - Nq. A7: a length below 0 counts as 0, one above Nk as
// Nk. Rows of batches whose keys end before their position see none (A6).
// RUN: %{run} --function=lengths --input=3x2x33x16xbf16 --input=3x1x90x16xbf16 --input=3x1x90x16xbf16 | FileCheck %s --check-prefix=PASS
// RUN: rm -rf %t && mkdir %t && %python %S/../Inputs/make_special.py %t
// RUN: %{run} --function=lengths --input=3x2x33x16xbf16 --input=3x1x90x16xbf16 --input=3x1x90x16xbf16 --input=@%t/lengths.npy | FileCheck %s --check-prefix=PASS
// A7: with no key at all what the memory of K and V holds cannot matter, here NaN.
// RUN: %{run} --function=lengths --input=3x2x33x16xbf16 --input=3x1x90x16xbf16=poison --input=3x1x90x16xbf16=poison --input=3xi32=zeros | FileCheck %s --check-prefixes=NONE,PASS
// NONE: output 0: 3x2x33x16xbf16, min 0.0000, max 0.0000
// NONE: output 1: 3x2x33xf32, 198 not finite, first -INF
func.func @lengths(%q: memref<?x?x?x16xbf16>, %k: memref<?x?x?x16xbf16>, %v: memref<?x?x?x16xbf16>,
                   %len: memref<?xi32>, %o: memref<?x?x?x16xbf16>, %lse: memref<?x?x?xf32>) {
  flashattn.attention mask(#flashattn.causal)
      ins(%q, %k, %v : memref<?x?x?x16xbf16>, memref<?x?x?x16xbf16>, memref<?x?x?x16xbf16>)
      kv_len(%len : memref<?xi32>)
      outs(%o, %lse : memref<?x?x?x16xbf16>, memref<?x?x?xf32>)
  return
}

// A5: a sink joins the denominator; A6: a row that sees no key, 37 of 70 here, has lse = sink.
// RUN: %{run} --function=sinks --input=1x4x70x64xf16 --input=1x2x33x64xf16 --input=1x2x33x64xf16 --input=4xf32 | FileCheck %s --check-prefix=SINKS
// SINKS-NOT: not finite
// SINKS: verify o: {{.*}}: PASS
// SINKS: verify lse {{.*}}: PASS
func.func @sinks(%q: tensor<?x?x?x64xf16>, %k: tensor<?x?x?x64xf16>, %v: tensor<?x?x?x64xf16>,
                 %sinks: tensor<?xf32>, %o: tensor<?x?x?x64xf16>, %lse: tensor<?x?x?xf32>)
    -> (tensor<?x?x?x64xf16>, tensor<?x?x?xf32>) {
  %r:2 = flashattn.attention mask(#flashattn.causal)
      ins(%q, %k, %v : tensor<?x?x?x64xf16>, tensor<?x?x?x64xf16>, tensor<?x?x?x64xf16>)
      sink_logits(%sinks : tensor<?xf32>)
      outs(%o, %lse : tensor<?x?x?x64xf16>, tensor<?x?x?xf32>)
      -> tensor<?x?x?x64xf16>, tensor<?x?x?xf32>
  return %r#0, %r#1 : tensor<?x?x?x64xf16>, tensor<?x?x?xf32>
}

// A6: attn_mask may hide every key of a row.
// RUN: %{run} --function=attn_mask --input=2x2x40x16xf32 --input=2x2x70x16xf32 --input=2x2x70x16xf32 --input=2x1x40x70xi1=zeros | FileCheck %s --check-prefixes=HIDDEN,PASS
// HIDDEN: output 0: 2x2x40x16xf32, min 0.0000, max 0.0000
// RUN: %{run} --function=attn_mask --input=2x2x40x16xf32 --input=2x2x70x16xf32 --input=2x2x70x16xf32 | FileCheck %s --check-prefix=PASS
func.func @attn_mask(%q: memref<?x?x?x16xf32>, %k: memref<?x?x?x16xf32>, %v: memref<?x?x?x16xf32>,
                %attn_mask: memref<?x1x?x?xi1>, %o: memref<?x?x?x16xf32>, %lse: memref<?x?x?xf32>) {
  flashattn.attention
      ins(%q, %k, %v : memref<?x?x?x16xf32>, memref<?x?x?x16xf32>, memref<?x?x?x16xf32>)
      attn_mask(%attn_mask : memref<?x1x?x?xi1>) outs(%o, %lse : memref<?x?x?x16xf32>, memref<?x?x?xf32>)
  return
}

// A8: a NaN in a query gives NaN in its row; a score of +Inf is at the softcap like any that is large.
// RUN: %{run} --function=special --input=@%t/q.npy --input=@%t/k.npy --input=@%t/v.npy | FileCheck %s --check-prefixes=SPECIAL,PASS
// SPECIAL: output 0: 1x1x6x16xf32, {{.*}} 16 not finite
func.func @special(%q: memref<1x1x6x16xf32>, %k: memref<1x1x6x16xf32>, %v: memref<1x1x6x16xf32>,
                   %o: memref<1x1x6x16xf32>, %lse: memref<1x1x6xf32>) {
  flashattn.attention mask(#flashattn.causal) softcap(20.0)
      ins(%q, %k, %v : memref<1x1x6x16xf32>, memref<1x1x6x16xf32>, memref<1x1x6x16xf32>)
      outs(%o, %lse : memref<1x1x6x16xf32>, memref<1x1x6xf32>)
  return
}

// M7: mask, attn_mask, kv_len and bias at once, with the sinks, an offset, the softcap and ALiBi.
// RUN: %{run} --function=all --input=2x70x6x72xf16 --input=2x130x2x72xf16 --input=2x130x2x200xf16 --input=index=44 | FileCheck %s --check-prefix=PASS
func.func @all(%q: memref<?x?x?x72xf16>, %k: memref<?x?x?x72xf16>, %v: memref<?x?x?x200xf16>,
               %offset: index, %bias: memref<?x?x1x?xbf16>, %attn_mask: memref<1x?x?x?xi1>,
               %sinks: memref<?xf32>, %len: memref<?xi32>, %o: memref<?x?x?x200xf16>,
               %lse: memref<?x?x?xf32>) {
  flashattn.attention mask(#flashattn.window<left = 40, right = 3>) softcap(10.0) layout(bshd)
      ins(%q, %k, %v : memref<?x?x?x72xf16>, memref<?x?x?x72xf16>, memref<?x?x?x200xf16>)
      bias(%bias : memref<?x?x1x?xbf16>) attn_mask(%attn_mask : memref<1x?x?x?xi1>)
      sink_logits(%sinks : memref<?xf32>) kv_len(%len : memref<?xi32>) offset(%offset)
      score_mod {
      ^bb0(%s: f32, %b: index, %h: index, %p: index, %key: index):
        %h32 = arith.index_cast %h : index to i32
        %hf = arith.sitofp %h32 : i32 to f32
        %n = arith.negf %hf : f32
        %slope = math.exp2 %n : f32
        %d = arith.subi %key, %p : index
        %d32 = arith.index_cast %d : index to i32
        %df = arith.sitofp %d32 : i32 to f32
        %y = math.fma %df, %slope, %s : f32
        flashattn.yield %y : f32
      }
      outs(%o, %lse : memref<?x?x?x200xf16>, memref<?x?x?xf32>)
  return
}

// Functions of a score that have no polynomial here become calls; a constant is a score too.
// RUN: %{run} --function=calls --input=1x2x20x16xf32 --input=1x2x33x16xf32 --input=1x2x33x16xf32 | FileCheck %s --check-prefix=PASS
func.func @calls(%q: memref<?x?x?x16xf32>, %k: memref<?x?x?x16xf32>, %v: memref<?x?x?x16xf32>,
                 %o: memref<?x?x?x16xf32>, %lse: memref<?x?x?xf32>) {
  flashattn.attention
      ins(%q, %k, %v : memref<?x?x?x16xf32>, memref<?x?x?x16xf32>, memref<?x?x?x16xf32>)
      score_mod {
      ^bb0(%s: f32, %b: index, %h: index, %p: index, %key: index):
        %k32 = arith.index_cast %key : index to i32
        %kf = arith.sitofp %k32 : i32 to f32
        %x = math.sin %kf : f32
        %y = math.erf %s : f32
        %z = math.powf %x, %y : f32
        %a = math.absf %s : f32
        %w = math.sqrt %a : f32
        %u = arith.cmpf ogt, %x, %w : f32
        %r = arith.select %u, %x, %y : f32
        flashattn.yield %r : f32
      }
      outs(%o, %lse : memref<?x?x?x16xf32>, memref<?x?x?xf32>)
  return
}

// A tile holds pairs that are hidden, of which a division by 0 must not trap; the square root's
// reciprocal has no polynomial that serves every number of lanes.
// RUN: %{run} --function=division --input=1x2x20x16xf32 --input=1x2x33x16xf32 --input=1x2x33x16xf32 | FileCheck %s --check-prefix=PASS
func.func @division(%q: memref<?x?x?x16xf32>, %k: memref<?x?x?x16xf32>, %v: memref<?x?x?x16xf32>,
                    %o: memref<?x?x?x16xf32>, %lse: memref<?x?x?xf32>) {
  flashattn.attention mask(#flashattn.set<"(p, k)[nq, nk] : (p - k >= 0, k - 1 >= 0)">)
      ins(%q, %k, %v : memref<?x?x?x16xf32>, memref<?x?x?x16xf32>, memref<?x?x?x16xf32>)
      score_mod {
      ^bb0(%s: f32, %b: index, %h: index, %p: index, %key: index):
        %quotient = arith.divsi %p, %key : index
        %rest = arith.remui %p, %key : index
        %n = arith.addi %quotient, %rest : index
        %n32 = arith.index_cast %n : index to i32
        %first = arith.floordivsi %n32, %n32 : i32
        %sum = arith.addi %n32, %first : i32
        %f = arith.sitofp %sum : i32 to f32
        %y = math.rsqrt %f : f32
        %r = arith.addf %s, %y : f32
        flashattn.yield %r : f32
      }
      outs(%o, %lse : memref<?x?x?x16xf32>, memref<?x?x?xf32>)
  return
}

// RUN: %{run} --function=constant --input=1x2x20x16xf32 --input=1x2x33x16xf32 --input=1x2x33x16xf32 | FileCheck %s --check-prefix=PASS
func.func @constant(%q: memref<?x?x?x16xf32>, %k: memref<?x?x?x16xf32>, %v: memref<?x?x?x16xf32>,
                    %o: memref<?x?x?x16xf32>, %lse: memref<?x?x?xf32>) {
  flashattn.attention
      ins(%q, %k, %v : memref<?x?x?x16xf32>, memref<?x?x?x16xf32>, memref<?x?x?x16xf32>)
      score_mod {
      ^bb0(%s: f32, %b: index, %h: index, %p: index, %key: index):
        %c = arith.constant 3.0 : f32
        flashattn.yield %c : f32
      }
      outs(%o, %lse : memref<?x?x?x16xf32>, memref<?x?x?xf32>)
  return
}

// PASS: verify o: {{.*}}: PASS
// PASS: verify lse {{.*}}: PASS
