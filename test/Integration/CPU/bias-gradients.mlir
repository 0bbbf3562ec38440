// Gradients of a bias and of sinks.

// B3, B5, B7: by hand. Where all scores are 0 and so is lse, dS[i,j] = d_o[i] (v[j] - o[i]) where a
// query sees a key, and a sink's is -e^sink times the sum of d_o o over its head's queries: head 0
// has 0.5 + 2, head 1, behind a sink of ln 2, 4.5 - 2.
// RUN: flash-run %s --device=cpu --function=values --print-outputs | FileCheck %s --check-prefix=VALUES
// VALUES: output 0: 1x2x2x3xf16
// VALUES-NEXT: {{\[+}}0.5, 1.5, 0],
// VALUES-NEXT: {{\[}}0, 2, 6]],
// VALUES-NEXT: {{\[+}}-1.5, 1.5, 0],
// VALUES-NEXT: {{\[}}1, 0, -2]]]]
// VALUES-NEXT: output 1: 2xf32
// VALUES-NEXT: {{\[}}-2.5, -5]
func.func @values() -> (tensor<1x2x2x3xf16>, tensor<2xf32>) {
  %q = arith.constant dense<0.0> : tensor<1x2x2x8xf32>
  %k = arith.constant dense<0.0> : tensor<1x1x3x8xf32>
  %v = arith.constant dense<[[[[1.0], [2.0], [4.0]]]]> : tensor<1x1x3x1xf32>
  %o = arith.constant dense<[[[[0.5], [1.0]], [[1.5], [2.0]]]]> : tensor<1x2x2x1xf32>
  %d_o = arith.constant dense<[[[[1.0], [2.0]], [[3.0], [-1.0]]]]> : tensor<1x2x2x1xf32>
  %lse = arith.constant dense<0.0> : tensor<1x2x2xf32>
  %bias = arith.constant dense<0.0> : tensor<1x2x2x3xf16>
  %sinks = arith.constant dense<[0.0, 0.693147182]> : tensor<2xf32>
  %dq = tensor.empty() : tensor<1x2x2x8xf32>
  %dk = tensor.empty() : tensor<1x1x3x8xf32>
  %dv = tensor.empty() : tensor<1x1x3x1xf32>
  %d_bias = tensor.empty() : tensor<1x2x2x3xf16>
  %d_sinks = tensor.empty() : tensor<2xf32>
  %r:5 = flashattn.attention_backward mask(#flashattn.causal)
      ins(%q, %k, %v, %o, %lse, %d_o : tensor<1x2x2x8xf32>, tensor<1x1x3x8xf32>,
          tensor<1x1x3x1xf32>, tensor<1x2x2x1xf32>, tensor<1x2x2xf32>, tensor<1x2x2x1xf32>)
      bias(%bias : tensor<1x2x2x3xf16>) sink_logits(%sinks : tensor<2xf32>)
      outs(%dq, %dk, %dv : tensor<1x2x2x8xf32>, tensor<1x1x3x8xf32>, tensor<1x1x3x1xf32>)
      d_bias(%d_bias : tensor<1x2x2x3xf16>) d_sink_logits(%d_sinks : tensor<2xf32>)
      -> tensor<1x2x2x8xf32>, tensor<1x1x3x8xf32>, tensor<1x1x3x1xf32>, tensor<1x2x2x3xf16>,
         tensor<2xf32>
  return %r#3, %r#4 : tensor<1x2x2x3xf16>, tensor<2xf32>
}

// B5: what a bias is broadcast along is summed over: nothing is left of a gradient less the one of
// every pair. A7: the batches' keys end apart.
// RUN: flash-run %s --device=cpu --function=sums | FileCheck %s --check-prefix=SUMS
// SUMS: output 0: 2x4x70x90xf32, min -0.{{[0-9]*[1-9]}}
// SUMS: output 1: 1x4x70x90xf32, min {{-?}}0.0000, max 0.0000
// SUMS: output 2: 2x1x1x90xf32, min {{-?}}0.0000, max 0.0000
// SUMS: output 3: 1x1x1x1xf32, min {{-?}}0.0000, max 0.0000
func.func @sums(%q: tensor<2x4x70x16xf32>, %k: tensor<2x2x90x16xf32>, %v: tensor<2x2x90x16xf32>, %o: tensor<2x4x70x16xf32>,
                %d_o: tensor<2x4x70x16xf32>,
                %dq: tensor<2x4x70x16xf32>, %dk: tensor<2x2x90x16xf32>, %dv: tensor<2x2x90x16xf32>)
    -> (tensor<2x4x70x90xf32>, tensor<1x4x70x90xf32>, tensor<2x1x1x90xf32>, tensor<1x1x1x1xf32>) {
  %lse = arith.constant dense<8.0> : tensor<2x4x70xf32>
  %len = arith.constant dense<[37, 90]> : tensor<2xi32>
  %zeros_all = arith.constant dense<0.0> : tensor<2x4x70x90xf32>
  %init_all = tensor.empty() : tensor<2x4x70x90xf32>
  %all:4 = flashattn.attention_backward mask(#flashattn.causal)
      ins(%q, %k, %v, %o, %lse, %d_o : tensor<2x4x70x16xf32>, tensor<2x2x90x16xf32>, tensor<2x2x90x16xf32>, tensor<2x4x70x16xf32>, tensor<2x4x70xf32>, tensor<2x4x70x16xf32>)
      bias(%zeros_all : tensor<2x4x70x90xf32>) kv_len(%len : tensor<2xi32>)
      outs(%dq, %dk, %dv : tensor<2x4x70x16xf32>, tensor<2x2x90x16xf32>, tensor<2x2x90x16xf32>) d_bias(%init_all : tensor<2x4x70x90xf32>)
      -> tensor<2x4x70x16xf32>, tensor<2x2x90x16xf32>, tensor<2x2x90x16xf32>, tensor<2x4x70x90xf32>
  %zeros_a = arith.constant dense<0.0> : tensor<1x4x70x90xf32>
  %init_a = tensor.empty() : tensor<1x4x70x90xf32>
  %a:4 = flashattn.attention_backward mask(#flashattn.causal)
      ins(%q, %k, %v, %o, %lse, %d_o : tensor<2x4x70x16xf32>, tensor<2x2x90x16xf32>, tensor<2x2x90x16xf32>, tensor<2x4x70x16xf32>, tensor<2x4x70xf32>, tensor<2x4x70x16xf32>)
      bias(%zeros_a : tensor<1x4x70x90xf32>) kv_len(%len : tensor<2xi32>)
      outs(%dq, %dk, %dv : tensor<2x4x70x16xf32>, tensor<2x2x90x16xf32>, tensor<2x2x90x16xf32>) d_bias(%init_a : tensor<1x4x70x90xf32>)
      -> tensor<2x4x70x16xf32>, tensor<2x2x90x16xf32>, tensor<2x2x90x16xf32>, tensor<1x4x70x90xf32>
  %rest_a = linalg.generic {
      indexing_maps = [affine_map<(d0, d1, d2, d3) -> (d0, d1, d2, d3)>,
                       affine_map<(d0, d1, d2, d3) -> (0, d1, d2, d3)>],
      iterator_types = ["reduction", "parallel", "parallel", "parallel"]}
      ins(%all#3 : tensor<2x4x70x90xf32>) outs(%a#3 : tensor<1x4x70x90xf32>) {
  ^bb0(%x: f32, %sum: f32):
    %y = arith.subf %sum, %x : f32
    linalg.yield %y : f32
  } -> tensor<1x4x70x90xf32>
  %zeros_b = arith.constant dense<0.0> : tensor<2x1x1x90xf32>
  %init_b = tensor.empty() : tensor<2x1x1x90xf32>
  %b:4 = flashattn.attention_backward mask(#flashattn.causal)
      ins(%q, %k, %v, %o, %lse, %d_o : tensor<2x4x70x16xf32>, tensor<2x2x90x16xf32>, tensor<2x2x90x16xf32>, tensor<2x4x70x16xf32>, tensor<2x4x70xf32>, tensor<2x4x70x16xf32>)
      bias(%zeros_b : tensor<2x1x1x90xf32>) kv_len(%len : tensor<2xi32>)
      outs(%dq, %dk, %dv : tensor<2x4x70x16xf32>, tensor<2x2x90x16xf32>, tensor<2x2x90x16xf32>) d_bias(%init_b : tensor<2x1x1x90xf32>)
      -> tensor<2x4x70x16xf32>, tensor<2x2x90x16xf32>, tensor<2x2x90x16xf32>, tensor<2x1x1x90xf32>
  %rest_b = linalg.generic {
      indexing_maps = [affine_map<(d0, d1, d2, d3) -> (d0, d1, d2, d3)>,
                       affine_map<(d0, d1, d2, d3) -> (d0, 0, 0, d3)>],
      iterator_types = ["parallel", "reduction", "reduction", "parallel"]}
      ins(%all#3 : tensor<2x4x70x90xf32>) outs(%b#3 : tensor<2x1x1x90xf32>) {
  ^bb0(%x: f32, %sum: f32):
    %y = arith.subf %sum, %x : f32
    linalg.yield %y : f32
  } -> tensor<2x1x1x90xf32>
  %zeros_c = arith.constant dense<0.0> : tensor<1x1x1x1xf32>
  %init_c = tensor.empty() : tensor<1x1x1x1xf32>
  %c:4 = flashattn.attention_backward mask(#flashattn.causal)
      ins(%q, %k, %v, %o, %lse, %d_o : tensor<2x4x70x16xf32>, tensor<2x2x90x16xf32>, tensor<2x2x90x16xf32>, tensor<2x4x70x16xf32>, tensor<2x4x70xf32>, tensor<2x4x70x16xf32>)
      bias(%zeros_c : tensor<1x1x1x1xf32>) kv_len(%len : tensor<2xi32>)
      outs(%dq, %dk, %dv : tensor<2x4x70x16xf32>, tensor<2x2x90x16xf32>, tensor<2x2x90x16xf32>) d_bias(%init_c : tensor<1x1x1x1xf32>)
      -> tensor<2x4x70x16xf32>, tensor<2x2x90x16xf32>, tensor<2x2x90x16xf32>, tensor<1x1x1x1xf32>
  %rest_c = linalg.generic {
      indexing_maps = [affine_map<(d0, d1, d2, d3) -> (d0, d1, d2, d3)>,
                       affine_map<(d0, d1, d2, d3) -> (0, 0, 0, 0)>],
      iterator_types = ["reduction", "reduction", "reduction", "reduction"]}
      ins(%all#3 : tensor<2x4x70x90xf32>) outs(%c#3 : tensor<1x1x1x1xf32>) {
  ^bb0(%x: f32, %sum: f32):
    %y = arith.subf %sum, %x : f32
    linalg.yield %y : f32
  } -> tensor<1x1x1x1xf32>
  return %all#3, %rest_a, %rest_b, %rest_c
      : tensor<2x4x70x90xf32>, tensor<1x4x70x90xf32>, tensor<2x1x1x90xf32>, tensor<1x1x1x1xf32>
}
