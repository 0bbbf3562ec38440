// Gradients on the CPU are the same bits from run to run, whatever the number of threads, also where they need not be
// (rule B4).
//
// RUN: rm -rf %t && mkdir %t && cd %t
// DEFINE: %{must} = flash-run %s --device=cpu --function=must --output=@dq.npy --output=@dk.npy --output=@dv.npy \
// DEFINE:   --output=@d_bias.npy --output=@d_sinks.npy
// DEFINE: %{need_not} = flash-run %s --device=cpu --function=need_not --output=@dq.npy --output=@dk.npy \
// DEFINE:   --output=@dv.npy --output=@d_bias.npy --output=@d_sinks.npy
// DEFINE: %{all} = cat dq.npy dk.npy dv.npy d_bias.npy d_sinks.npy
// RUN: env FLASHATTN_NUM_THREADS=1 %{must} | FileCheck %s --implicit-check-not=nan
// CHECK-COUNT-5: output {{[0-4]}}: {{.*}}, min -{{[0-9.e+-]+}}, max {{[0-9.e+-]+}},
// RUN: %{all} > first
// RUN: env FLASHATTN_NUM_THREADS=2 %{must} && %{all} > again && cmp first again
// RUN: env FLASHATTN_NUM_THREADS=2 %{must} && %{all} > again && cmp first again
// RUN: env FLASHATTN_NUM_THREADS=2 %{need_not} && %{all} > again && cmp first again

!q = tensor<2x4x150x24xf32>
!k = tensor<2x2x150x24xf32>
!l = tensor<2x4x150xf32>
!b = tensor<1x4x1x150xf32>
!s = tensor<4xf32>

func.func @must(%q: !q, %k: !k, %v: !k, %bias: !b, %sinks: !s, %o: !q, %lse: !l, %d_o: !q) -> (!q, !k, !k, !b, !s) {
  %eq = tensor.empty() : !q
  %ek = tensor.empty() : !k
  %eb = tensor.empty() : !b
  %es = tensor.empty() : !s
  %dq, %dk, %dv, %db, %ds = flashattn.attention_backward mask(#flashattn.causal) deterministic
      ins(%q, %k, %v, %o, %lse, %d_o : !q, !k, !k, !q, !l, !q) bias(%bias : !b) sink_logits(%sinks : !s)
      outs(%eq, %ek, %ek : !q, !k, !k) d_bias(%eb : !b) d_sink_logits(%es : !s) -> !q, !k, !k, !b, !s
  return %dq, %dk, %dv, %db, %ds : !q, !k, !k, !b, !s
}

func.func @need_not(%q: !q, %k: !k, %v: !k, %bias: !b, %sinks: !s, %o: !q, %lse: !l, %d_o: !q) -> (!q, !k, !k, !b, !s) {
  %eq = tensor.empty() : !q
  %ek = tensor.empty() : !k
  %eb = tensor.empty() : !b
  %es = tensor.empty() : !s
  %dq, %dk, %dv, %db, %ds = flashattn.attention_backward mask(#flashattn.causal)
      ins(%q, %k, %v, %o, %lse, %d_o : !q, !k, !k, !q, !l, !q) bias(%bias : !b) sink_logits(%sinks : !s)
      outs(%eq, %ek, %ek : !q, !k, !k) d_bias(%eb : !b) d_sink_logits(%es : !s) -> !q, !k, !k, !b, !s
  return %dq, %dk, %dv, %db, %ds : !q, !k, !k, !b, !s
}
