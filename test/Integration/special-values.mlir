// Rule A8: a NaN in a query, or a score of +Inf, gives NaN in the rows that see it and in no other. Query 1 is NaN;
// key 3 gives +Inf to queries 3, 4 and 5, which see it, and nothing to 0 and 2.
//
// RUN: rm -rf %t && mkdir %t && %python %S/Inputs/make_special.py %t
// RUN: flash-run %s --device=cpu --verify --input=@%t/q.npy --input=@%t/k.npy --input=@%t/v.npy | FileCheck %s
// RUN: %if cuda %{ flash-run %s --device=cuda --verify --input=@%t/q.npy --input=@%t/k.npy --input=@%t/v.npy | FileCheck %s %}
// Four rows of 16 are not finite.
// CHECK: output 0: 1x1x6x16xf32, {{.*}} 64 not finite
// CHECK: verify o: {{.*}}PASS
// CHECK: verify lse {{.*}}PASS

func.func @attention(%q: tensor<1x1x6x16xf32>, %k: tensor<1x1x6x16xf32>, %v: tensor<1x1x6x16xf32>)
    -> (tensor<1x1x6x16xf32>, tensor<1x1x6xf32>) {
  %o_init = tensor.empty() : tensor<1x1x6x16xf32>
  %lse_init = tensor.empty() : tensor<1x1x6xf32>
  %o, %lse = flashattn.attention mask(#flashattn.causal)
      ins(%q, %k, %v : tensor<1x1x6x16xf32>, tensor<1x1x6x16xf32>, tensor<1x1x6x16xf32>)
      outs(%o_init, %lse_init : tensor<1x1x6x16xf32>, tensor<1x1x6xf32>)
      -> tensor<1x1x6x16xf32>, tensor<1x1x6xf32>
  return %o, %lse : tensor<1x1x6x16xf32>, tensor<1x1x6xf32>
}
