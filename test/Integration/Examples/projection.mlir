// Attention and the output projection behind it, p[b,n,e] = sum over h and d of o[b,h,n,d] w[h,d,e], in
// one module. What lies between the two is memory of the function's own.
//
// RUN: flash-run %s --verify | FileCheck %s
// CHECK: verify p: {{.*}}PASS

func.func @attention(%q: tensor<2x8x200x64xf16>, %k: tensor<2x2x200x64xf16>, %v: tensor<2x2x200x64xf16>,
                     %w: tensor<8x64x320xf16>) -> tensor<2x200x320xf16> {
  %o_init = tensor.empty() : tensor<2x8x200x64xf16>
  %o = flashattn.attention mask(#flashattn.causal)
      ins(%q, %k, %v : tensor<2x8x200x64xf16>, tensor<2x2x200x64xf16>, tensor<2x2x200x64xf16>)
      outs(%o_init : tensor<2x8x200x64xf16>) -> tensor<2x8x200x64xf16>
  %p_init = tensor.empty() : tensor<2x200x320xf16>
  %p = flashattn.project ins(%o, %w : tensor<2x8x200x64xf16>, tensor<8x64x320xf16>)
      outs(%p_init : tensor<2x200x320xf16>) -> tensor<2x200x320xf16>
  return %p : tensor<2x200x320xf16>
}
