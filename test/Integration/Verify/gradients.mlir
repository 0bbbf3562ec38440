// Gradients of attention: every result, whoever uses it.
// RUN: %python %S/Inputs/check_modules.py %s

!t = tensor<1x2x20x16xf16>
!l = tensor<1x2x20xf32>
!m = memref<1x2x20x16xf32>
!ml = memref<1x2x20xf32>

// Of three results one is used.
// MODULE unused: attention_backward(dq dk dv)
func.func @unused(%q: !t, %k: !t, %v: !t, %o: !t, %lse: !l, %d_o: !t) -> !t {
  %e = tensor.empty() : !t
  %dq, %dk, %dv = flashattn.attention_backward ins(%q, %k, %v, %o, %lse, %d_o : !t, !t, !t, !t, !l, !t)
      outs(%e, %e, %e : !t, !t, !t) -> !t, !t, !t
  return %dk : !t
}

// A step of training: what the loss changes by with o is made of o.
// MODULE step: attention(o lse) attention_backward(dq dk dv)
func.func @step(%q: !t, %k: !t, %v: !t, %target: !t) -> (!t, !t, !t) {
  %e = tensor.empty() : !t
  %el = tensor.empty() : !l
  %o, %lse = flashattn.attention mask(#flashattn.causal) ins(%q, %k, %v : !t, !t, !t) outs(%e, %el : !t, !l) -> !t, !l
  %d_o = linalg.sub ins(%o, %target : !t, !t) outs(%e : !t) -> !t
  %dq, %dk, %dv = flashattn.attention_backward mask(#flashattn.causal)
      ins(%q, %k, %v, %o, %lse, %d_o : !t, !t, !t, !t, !l, !t) outs(%e, %e, %e : !t, !t, !t) -> !t, !t, !t
  return %dq, %dk, %dv : !t, !t, !t
}

// Memrefs that each run writes anew.
// MODULE loop --input=random --input=random --input=random --input=random --input=random --input=random --input=2: 2 x attention_backward(dq dk dv)
func.func @loop(%q: !m, %k: !m, %v: !m, %o: !m, %lse: !ml, %d_o: !m, %n: index, %dq: !m, %dk: !m, %dv: !m) {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  scf.for %i = %c0 to %n step %c1 {
    flashattn.attention_backward mask(#flashattn.window<left = 4, right = 4>)
        ins(%q, %k, %v, %o, %lse, %d_o : !m, !m, !m, !m, !ml, !m) outs(%dq, %dk, %dv : !m, !m, !m)
  }
  return
}

// Operands of all kinds, in the other layout, with D other than Dv; some rows see no key.
// MODULE features --input=random --input=random --input=random --input=random --input=random --input=random --input=random --input=random --input=random --input=random --input=random --input=3 --input=0.25: attention_backward(dq dk dv)
func.func @features(%q: memref<2x12x4x16xbf16>, %k: memref<2x27x2x16xbf16>, %v: memref<2x27x2x24xbf16>,
                    %o: memref<2x12x4x24xbf16>, %lse: memref<2x4x12xf32>, %d_o: memref<2x12x4x24xbf16>,
                    %d_lse: memref<2x4x12xf32>, %bias: memref<1x4x1x27xf32>, %attn_mask: memref<2x1x12x27xi1>,
                    %sinks: memref<4xf32>, %len: memref<2xi32>, %offset: index, %scale: f32,
                    %dq: memref<2x12x4x16xbf16>, %dk: memref<2x27x2x16xbf16>, %dv: memref<2x27x2x24xbf16>) {
  flashattn.attention_backward mask(#flashattn.causal) scale(%scale) softcap(8.0) layout(bshd)
      ins(%q, %k, %v, %o, %lse, %d_o : memref<2x12x4x16xbf16>, memref<2x27x2x16xbf16>, memref<2x27x2x24xbf16>,
          memref<2x12x4x24xbf16>, memref<2x4x12xf32>, memref<2x12x4x24xbf16>)
      d_lse(%d_lse : memref<2x4x12xf32>) bias(%bias : memref<1x4x1x27xf32>) attn_mask(%attn_mask : memref<2x1x12x27xi1>)
      sink_logits(%sinks : memref<4xf32>) kv_len(%len : memref<2xi32>) offset(%offset)
      outs(%dq, %dk, %dv : memref<2x12x4x16xbf16>, memref<2x27x2x16xbf16>, memref<2x27x2x24xbf16>)
  return
}

// A score modification that reads what the function makes.
// MODULE captured --input=random --input=random --input=random --input=random --input=random --input=random --input=0.25: attention_backward(dq dk dv)
func.func @captured(%q: !m, %k: !m, %v: !m, %o: !m, %lse: !ml, %d_o: !m, %x: f32, %dq: !m, %dk: !m, %dv: !m) {
  %steep = arith.mulf %x, %x : f32
  flashattn.attention_backward mask(#flashattn.causal) ins(%q, %k, %v, %o, %lse, %d_o : !m, !m, !m, !m, !ml, !m)
      score_mod {
      ^bb0(%s: f32, %b: index, %h: index, %p: index, %key: index):
        %t = math.sin %s : f32
        %y = math.fma %t, %steep, %s : f32
        flashattn.yield %y : f32
      }
      outs(%dq, %dk, %dv : !m, !m, !m)
  return
}
