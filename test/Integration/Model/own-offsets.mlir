// A3: an offset of each batch or packed sequence, with masks and score modifications that read positions, in kernels of every
// kind and their gradients.
// DEFINE: %{batches} = --function=batches --input=random --input=random --input=random --input="0 80 -20"
// DEFINE: %{few} = --function=few --input=random --input=random --input="17 599"
// DEFINE: %{listed} = --function=listed --input=random --input=random --input=random --input="70 3"
// DEFINE: %{packed} = --function=packed --input=random --input=random --input="5 40 40 151" --input="30 0 -7"
// DEFINE: %{gradients} = --function=gradients --input=random --input=random --input=random --input=random --input=random --input="64 10"
// RUN: flash-run %s --device=cpu --verify %{batches} | FileCheck %s
// RUN: %if !asan %{ flash-run %s --device=model:sm_80 --verify %{batches} | FileCheck %s %}
// RUN: flash-run %s --device=model:sm_90a --verify %{batches} | FileCheck %s
// RUN: flash-run %s --device=cpu --verify %{few} | FileCheck %s
// RUN: %if !asan %{ flash-run %s --device=model:sm_80 --verify %{few} | FileCheck %s %}
// RUN: flash-run %s --device=model:sm_90a --verify %{few} | FileCheck %s
// RUN: flash-run %s --device=cpu --verify %{listed} | FileCheck %s
// RUN: %if !asan %{ flash-run %s --device=model:sm_80 --verify %{listed} | FileCheck %s %}
// RUN: flash-run %s --device=model:sm_90a --verify %{listed} | FileCheck %s
// RUN: flash-run %s --device=cpu --verify %{packed} | FileCheck %s
// RUN: %if !asan %{ flash-run %s --device=model:sm_80 --verify %{packed} | FileCheck %s %}
// RUN: flash-run %s --device=model:sm_90a --verify %{packed} | FileCheck %s
// RUN: flash-run %s --device=cpu --verify %{gradients} | FileCheck %s --check-prefix=GRADIENTS
// RUN: %if !asan %{ flash-run %s --device=model:sm_80 --verify %{gradients} | FileCheck %s --check-prefix=GRADIENTS %}
// RUN: flash-run %s --device=model:sm_90a --verify %{gradients} | FileCheck %s --check-prefix=GRADIENTS

// CHECK: verify o: {{.*}}PASS
// GRADIENTS: verify dq: {{.*}}PASS
// GRADIENTS: verify dk: {{.*}}PASS
// GRADIENTS: verify dv: {{.*}}PASS
// GRADIENTS: verify d_bias: {{.*}}PASS

!q = memref<3x2x70x64xf16>
!k = memref<3x1x150x64xf16>
func.func @batches(%q: !q, %k: !k, %v: !k, %offsets: memref<3xi32>, %o: !q) {
  flashattn.attention mask(#flashattn.window<left = 40, right = 0>) ins(%q, %k, %v : !q, !k, !k)
      offset(%offsets : memref<3xi32>)
      score_mod {
      ^bb0(%s: f32, %b: index, %h: index, %p: index, %key: index):
        %c = arith.constant 0.05 : f32
        %d = arith.subi %key, %p : index
        %i = arith.index_cast %d : index to i32
        %x = arith.sitofp %i : i32 to f32
        %y = math.fma %x, %c, %s : f32
        flashattn.yield %y : f32
      }
      outs(%o : !q)
  return
}

// With 3 queries, splits of the keys merge.
!fq = memref<2x4x3x128xbf16>
!fk = memref<2x4x600x128xbf16>
func.func @few(%q: !fq, %k: !fk, %offsets: memref<2xi32>, %o: !fq) {
  flashattn.attention mask(#flashattn.causal) ins(%q, %k, %k : !fq, !fk, !fk) offset(%offsets : memref<2xi32>) outs(%o : !fq)
  return
}

// The tiles that an attn_mask of all batches shows are listed for each batch, whose mask shows others.
!lq = memref<2x2x70x64xf16>
!lk = memref<2x2x150x64xf16>
func.func @listed(%q: !lq, %k: !lk, %attn_mask: memref<1x1x70x150xi1>, %offsets: memref<2xi32>, %o: !lq) {
  flashattn.attention mask(#flashattn.causal) ins(%q, %k, %k : !lq, !lk, !lk) attn_mask(%attn_mask : memref<1x1x70x150xi1>)
      offset(%offsets : memref<2xi32>) outs(%o : !lq)
  return
}

!pq = memref<1x2x160x64xf16>
func.func @packed(%q: !pq, %k: !pq, %starts: memref<4xi32>, %offsets: memref<3xi32>, %o: !pq) {
  flashattn.attention mask(#flashattn.causal) ins(%q, %k, %k : !pq, !pq, !pq)
      cu_seqlens_q(%starts : memref<4xi32>) cu_seqlens_k(%starts : memref<4xi32>)
      offset(%offsets : memref<3xi32>) outs(%o : !pq)
  return
}

// The gradient of a bias of all batches is a sum over batches, which see other keys.
!gq = memref<2x2x70x64xf16>
!gk = memref<2x1x150x64xf16>
func.func @gradients(%q: !gq, %k: !gk, %v: !gk, %do: !gq, %bias: memref<1x2x70x150xf16>, %offsets: memref<2xi32>, %o: !gq,
                     %lse: memref<2x2x70xf32>, %dq: !gq, %dk: !gk, %dv: !gk, %d_bias: memref<1x2x70x150xf16>) {
  flashattn.attention mask(#flashattn.causal) ins(%q, %k, %v : !gq, !gk, !gk) bias(%bias : memref<1x2x70x150xf16>)
      offset(%offsets : memref<2xi32>) outs(%o, %lse : !gq, memref<2x2x70xf32>)
  flashattn.attention_backward mask(#flashattn.causal)
      ins(%q, %k, %v, %o, %lse, %do : !gq, !gk, !gk, !gq, memref<2x2x70xf32>, !gq)
      bias(%bias : memref<1x2x70x150xf16>) offset(%offsets : memref<2xi32>)
      outs(%dq, %dk, %dv : !gq, !gk, !gk) d_bias(%d_bias : memref<1x2x70x150xf16>)
  return
}
