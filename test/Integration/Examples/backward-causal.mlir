// A training step's attention, forward and backward, causal and for any length: the backward op reads
// the o and lse that the forward op has written.
//
// DEFINE: %{sizes} = --input=2x4x200x64xf32 --input=2x4x200x64xf32 --input=2x4x200x64xf32
// RUN: flash-run %s --verify %{sizes} | FileCheck %s
// RUN: flash-run %s --verify --device=cpu %{sizes} | FileCheck %s
// CHECK: verify o: {{.*}}PASS
// CHECK: verify lse {{.*}}PASS
// CHECK: verify dq: {{.*}}PASS
// CHECK: verify dk: {{.*}}PASS
// CHECK: verify dv: {{.*}}PASS
// CHECK: verify: 2 of 2 ops compared

!t = memref<2x4x?x64xf32>
!l = memref<2x4x?xf32>
func.func @step(%q: !t, %k: !t, %v: !t, %d_o: !t, %o: !t, %lse: !l, %dq: !t, %dk: !t, %dv: !t) {
  flashattn.attention mask(#flashattn.causal) ins(%q, %k, %v : !t, !t, !t) outs(%o, %lse : !t, !l)
  flashattn.attention_backward mask(#flashattn.causal)
      ins(%q, %k, %v, %o, %lse, %d_o : !t, !t, !t, !t, !l, !t) outs(%dq, %dk, %dv : !t, !t, !t)
  return
}
