// Attention whose sizes and strides callers give, over views with rows of 16 bytes; gradients, which need
// a workspace on a GPU; and a copy.

!t = memref<?x?x?x64xf16, strided<[?, ?, ?, 1]>>
func.func @attention(%q: !t {flashattn.aligned_rows}, %k: !t {flashattn.aligned_rows},
                     %v: !t {flashattn.aligned_rows}, %o: !t {flashattn.aligned_rows},
                     %offset: index, %scale: f32) {
  flashattn.attention mask(#flashattn.causal) scale(%scale) ins(%q, %k, %v : !t, !t, !t) offset(%offset)
      outs(%o : !t)
  return
}

!q = tensor<1x4x64x64xf16>
!k = tensor<1x2x64x64xf16>
!l = tensor<1x4x64xf32>
func.func @gradients(%q: !q, %k: !k, %v: !k, %o: !q, %lse: !l, %d_o: !q) -> (!q, !k, !k) {
  %dq_init = tensor.empty() : !q
  %dk_init = tensor.empty() : !k
  %dq, %dk, %dv = flashattn.attention_backward mask(#flashattn.causal)
      ins(%q, %k, %v, %o, %lse, %d_o : !q, !k, !k, !q, !l, !q)
      outs(%dq_init, %dk_init, %dk_init : !q, !k, !k) -> !q, !k, !k
  return %dq, %dk, %dv : !q, !k, !k
}

func.func @copy(%x: tensor<4x8xf32>) -> tensor<4x8xf32> {
  return %x : tensor<4x8xf32>
}
