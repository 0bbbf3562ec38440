// By hand, lengths that are not known: a prefix of each batch or causal, from the first key of each query's document on.
// RUN: flash-opt %s -flashattn-raise-attention -canonicalize -cse | FileCheck %s
// CHECK: @main
// CHECK: %[[STARTS:.*]] = tensor.expand_shape %arg4 {{.*}} into tensor<?x1x?xi32>
// CHECK: flashattn.attention mask(#flashattn.any_of<[#flashattn.set<"(p, k)[nq, nk, s2, s3] : (-k + s2 - 1 >= 0, k - s3 >= 0)">, #flashattn.all_of<[#flashattn.causal, #flashattn.set<"(p, k)[nq, nk, s2, s3] : (k - s3 >= 0)">]>]>) scale(1.000000e+00) align(top_left) ins(%arg0, %arg1, %arg2 : {{.*}}) per_sequence(%arg3 : tensor<?xi32>) per_query(%[[STARTS]] : tensor<?x1x?xi32>) outs(
// CHECK-NOT: attn_mask

// DEFINE: %{prefixes} = "--input=2xi32=[5,11]" "--input=2x12xi32=[[0,0,0,0,2,2,2,0,0,0,5,5][0,0,1,2,3,4,4,4,4,4,4,4]]"
// DEFINE: %{tensors} = --input=2x3x12x8xf32=random:1 --input=2x3x15x8xf32=random:2 --input=2x3x15x8xf32=random:3
// RUN: flash-run %s --device=cpu %{tensors} %{prefixes} --output=@%t.npy
// RUN: flash-run %s --device=cpu %{tensors} %{prefixes} --raise --verify --expected-output=@%t.npy --atol=1e-5 | FileCheck %s --check-prefix=NUMBERS
// NUMBERS: raise: 1 attention op
// NUMBERS: verify o: {{.*}} PASS
// NUMBERS: expected-output 0: {{.*}} PASS

#batch = affine_map<(d0, d1, d2, d3) -> (d0)>
#rows = affine_map<(d0, d1, d2, d3) -> (d0, d2)>
#pairs = affine_map<(d0, d1, d2, d3) -> (d0, d1, d2, d3)>
#left = affine_map<(d0, d1, d2, d3, d4) -> (d0, d1, d2, d4)>
#right = affine_map<(d0, d1, d2, d3, d4) -> (d0, d1, d3, d4)>
#value = affine_map<(d0, d1, d2, d3, d4) -> (d0, d1, d4, d3)>
#out = affine_map<(d0, d1, d2, d3, d4) -> (d0, d1, d2, d3)>
func.func @main(%q: tensor<?x3x?x8xf32>, %k: tensor<?x3x?x8xf32>, %v: tensor<?x3x?x8xf32>, %prefix: tensor<?xi32>, %starts: tensor<?x?xi32>) -> tensor<?x3x?x8xf32> {
  %c0 = arith.constant 0 : index
  %c2 = arith.constant 2 : index
  %zero = arith.constant 0.0 : f32
  %least = arith.constant 0xFF800000 : f32
  %b = tensor.dim %q, %c0 : tensor<?x3x?x8xf32>
  %n = tensor.dim %q, %c2 : tensor<?x3x?x8xf32>
  %nk = tensor.dim %k, %c2 : tensor<?x3x?x8xf32>
  %s0 = tensor.empty(%b, %n, %nk) : tensor<?x3x?x?xf32>
  %s1 = linalg.fill ins(%zero : f32) outs(%s0 : tensor<?x3x?x?xf32>) -> tensor<?x3x?x?xf32>
  %s = linalg.generic {indexing_maps = [#left, #right, #out], iterator_types = ["parallel", "parallel", "parallel", "parallel", "reduction"]} ins(%q, %k : tensor<?x3x?x8xf32>, tensor<?x3x?x8xf32>) outs(%s1 : tensor<?x3x?x?xf32>) {
  ^bb0(%in: f32, %in_0: f32, %acc: f32):
    %x = arith.mulf %in, %in_0 : f32
    %y = arith.addf %acc, %x : f32
    linalg.yield %y : f32
  } -> tensor<?x3x?x?xf32>
  %masked = linalg.generic {indexing_maps = [#pairs, #batch, #rows, #pairs], iterator_types = ["parallel", "parallel", "parallel", "parallel"]} ins(%s, %prefix, %starts : tensor<?x3x?x?xf32>, tensor<?xi32>, tensor<?x?xi32>) outs(%s0 : tensor<?x3x?x?xf32>) {
  ^bb0(%in: f32, %length: i32, %start: i32, %acc: f32):
    %i = linalg.index 2 : index
    %j = linalg.index 3 : index
    %p = arith.index_cast %i : index to i32
    %key = arith.index_cast %j : index to i32
    %in_prefix = arith.cmpi slt, %key, %length : i32
    %causal = arith.cmpi sge, %p, %key : i32
    %either = arith.ori %in_prefix, %causal : i1
    %begun = arith.cmpi sle, %start, %key : i32
    %shown = arith.andi %either, %begun : i1
    %y = arith.select %shown, %in, %least : f32
    linalg.yield %y : f32
  } -> tensor<?x3x?x?xf32>
  %w = linalg.softmax dimension(3) ins(%masked : tensor<?x3x?x?xf32>) outs(%s0 : tensor<?x3x?x?xf32>) -> tensor<?x3x?x?xf32>
  %o0 = tensor.empty(%b, %n) : tensor<?x3x?x8xf32>
  %o1 = linalg.fill ins(%zero : f32) outs(%o0 : tensor<?x3x?x8xf32>) -> tensor<?x3x?x8xf32>
  %o = linalg.generic {indexing_maps = [#left, #value, #out], iterator_types = ["parallel", "parallel", "parallel", "parallel", "reduction"]} ins(%w, %v : tensor<?x3x?x?xf32>, tensor<?x3x?x8xf32>) outs(%o1 : tensor<?x3x?x8xf32>) {
  ^bb0(%in: f32, %in_0: f32, %acc: f32):
    %x = arith.mulf %in, %in_0 : f32
    %y = arith.addf %acc, %x : f32
    linalg.yield %y : f32
  } -> tensor<?x3x?x8xf32>
  return %o : tensor<?x3x?x8xf32>
}
