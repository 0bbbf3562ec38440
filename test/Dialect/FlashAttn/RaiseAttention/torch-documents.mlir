// By hand, as torch-mlir writes doc[:, None] == doc[None, :] and tril, of ids of 64 bits, and masked_fill: each half of
// an id is a symbol, because ids may differ in either.
// RUN: flash-opt %s -flashattn-raise-attention -canonicalize -cse | FileCheck %s
// CHECK: @main
// CHECK: arith.trunci
// CHECK: %[[LOW:.*]] = tensor.expand_shape {{.*}} into tensor<1x1x20xi32>
// CHECK: arith.shrui
// CHECK: %[[HIGH:.*]] = tensor.expand_shape {{.*}} into tensor<1x1x20xi32>
// CHECK: flashattn.attention mask(#flashattn.all_of<[#flashattn.causal, #flashattn.set<"(p, k)[nq, nk, s2, s3, s4, s5] : (s2 - s4 == 0, s3 - s5 == 0)">]>) scale(1.000000e+00) ins({{.*}}) per_query(%[[LOW]], %[[HIGH]] : {{.*}}) per_key(%[[LOW]], %[[HIGH]] : {{.*}}) outs(
// CHECK-NOT: attn_mask

// DEFINE: %{ids} = --input=20xi64=[0,0,0,0,0,4294967296,4294967296,4294967297,1,1,1,1,1,-1,-1,-4294967297,4294967295,2,2,2]
// DEFINE: %{tensors} = --input=6x20x8xf32=random:1 --input=6x20x8xf32=random:2 --input=6x20x8xf32=random:3
// RUN: flash-run %s --device=cpu %{tensors} "%{ids}" --output=@%t.npy
// RUN: flash-run %s --device=cpu %{tensors} "%{ids}" --raise --verify --expected-output=@%t.npy --atol=1e-5 | FileCheck %s --check-prefix=NUMBERS
// NUMBERS: raise: 1 attention op
// NUMBERS: verify o: {{.*}} PASS
// NUMBERS: expected-output 0: {{.*}} PASS

#row = affine_map<(d0, d1) -> (d0, 0)>
#column = affine_map<(d0, d1) -> (0, d1)>
#square = affine_map<(d0, d1) -> (d0, d1)>
#mask = affine_map<(d0, d1, d2) -> (d1, d2)>
#pairs = affine_map<(d0, d1, d2) -> (d0, d1, d2)>
func.func @main(%q: tensor<6x20x8xf32>, %k: tensor<6x20x8xf32>, %v: tensor<6x20x8xf32>, %doc: tensor<20xi64>) -> tensor<6x20x8xf32> {
  %zero = arith.constant 0.0 : f32
  %least = arith.constant 0xFF800000 : f32
  %true = arith.constant true
  %rows = tensor.expand_shape %doc [[0, 1]] output_shape [20, 1] : tensor<20xi64> into tensor<20x1xi64>
  %columns = tensor.expand_shape %doc [[0, 1]] output_shape [1, 20] : tensor<20xi64> into tensor<1x20xi64>
  %b0 = tensor.empty() : tensor<20x20xi1>
  %same = linalg.generic {indexing_maps = [#row, #column, #square], iterator_types = ["parallel", "parallel"]} ins(%rows, %columns : tensor<20x1xi64>, tensor<1x20xi64>) outs(%b0 : tensor<20x20xi1>) {
  ^bb0(%in: i64, %in_0: i64, %out: i1):
    %x = arith.cmpi eq, %in, %in_0 : i64
    linalg.yield %x : i1
  } -> tensor<20x20xi1>
  %tril = linalg.generic {indexing_maps = [#square], iterator_types = ["parallel", "parallel"]} outs(%b0 : tensor<20x20xi1>) {
  ^bb0(%out: i1):
    %i = linalg.index 0 : index
    %j = linalg.index 1 : index
    %x = arith.cmpi sle, %j, %i : index
    linalg.yield %x : i1
  } -> tensor<20x20xi1>
  %hidden = linalg.generic {indexing_maps = [#square, #square, #square], iterator_types = ["parallel", "parallel"]} ins(%same, %tril : tensor<20x20xi1>, tensor<20x20xi1>) outs(%b0 : tensor<20x20xi1>) {
  ^bb0(%in: i1, %in_0: i1, %out: i1):
    %x = arith.andi %in, %in_0 : i1
    %y = arith.xori %x, %true : i1
    linalg.yield %y : i1
  } -> tensor<20x20xi1>
  %kt0 = tensor.empty() : tensor<6x8x20xf32>
  %kt = linalg.transpose ins(%k : tensor<6x20x8xf32>) outs(%kt0 : tensor<6x8x20xf32>) permutation = [0, 2, 1]
  %s0 = tensor.empty() : tensor<6x20x20xf32>
  %s1 = linalg.fill ins(%zero : f32) outs(%s0 : tensor<6x20x20xf32>) -> tensor<6x20x20xf32>
  %s = linalg.batch_matmul ins(%q, %kt : tensor<6x20x8xf32>, tensor<6x8x20xf32>) outs(%s1 : tensor<6x20x20xf32>) -> tensor<6x20x20xf32>
  %masked = linalg.generic {indexing_maps = [#mask, #pairs, #pairs], iterator_types = ["parallel", "parallel", "parallel"]} ins(%hidden, %s : tensor<20x20xi1>, tensor<6x20x20xf32>) outs(%s0 : tensor<6x20x20xf32>) {
  ^bb0(%in: i1, %in_0: f32, %out: f32):
    %x = arith.select %in, %least, %in_0 : f32
    linalg.yield %x : f32
  } -> tensor<6x20x20xf32>
  %p = linalg.softmax dimension(2) ins(%masked : tensor<6x20x20xf32>) outs(%s0 : tensor<6x20x20xf32>) -> tensor<6x20x20xf32>
  %o0 = tensor.empty() : tensor<6x20x8xf32>
  %o1 = linalg.fill ins(%zero : f32) outs(%o0 : tensor<6x20x8xf32>) -> tensor<6x20x8xf32>
  %o = linalg.batch_matmul ins(%p, %v : tensor<6x20x20xf32>, tensor<6x20x8xf32>) outs(%o1 : tensor<6x20x8xf32>) -> tensor<6x20x8xf32>
  return %o : tensor<6x20x8xf32>
}
