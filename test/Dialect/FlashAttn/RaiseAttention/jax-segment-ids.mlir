// By hand, as JAX 0.12 and IREE 3.13 write q_segment_ids == kv_segment_ids and a triangle, with -1e30 for hidden scores.
// RUN: flash-opt %s -flashattn-raise-attention -canonicalize -cse | FileCheck %s
// CHECK: @main
// CHECK-NOT: linalg
// CHECK: %[[Q:.*]] = tensor.expand_shape %arg3 {{.*}} into tensor<2x1x24xi32>
// CHECK: %[[K:.*]] = tensor.expand_shape %arg4 {{.*}} into tensor<2x1x24xi32>
// CHECK: flashattn.attention mask(#flashattn.all_of<[#flashattn.causal, #flashattn.set<"(p, k)[nq, nk, s2, s3] : (s2 - s3 == 0)">]>) ins({{.*}}) per_query(%[[Q]] : tensor<2x1x24xi32>) per_key(%[[K]] : tensor<2x1x24xi32>) outs(
// CHECK-NOT: attn_mask
// CHECK-NOT: linalg

// A row whose segment has no key is another one in the module.
// RUN: flash-opt %s -flashattn-raise-attention -o /dev/null --remarks-filter=flashattn-raise-attention --remark-format=emitRemark 2>&1 | FileCheck %s --check-prefix=REMARK
// REMARK: Remark="flashattn.attention; a row whose keys are all hidden by data gives 0 instead of the mean of the values"

// DEFINE: %{ids} = --input=2x24xi32=[[0,0,0,0,0,0,0,0,0,1,1,1,1,1,1,1,2,2,2,2,2,7,7,7][3,3,3,3,3,-1,-1,-1,-1,-2147483648,-2147483648,2147483647,5,5,5,5,5,5,5,5,5,5,5,5]]
// DEFINE: %{tensors} = --input=2x4x24x16xf32=random:1 --input=2x4x24x16xf32=random:2 --input=2x4x24x16xf32=random:3
// RUN: flash-run %s --device=cpu %{tensors} "%{ids}" "%{ids}" --output=@%t.npy
// RUN: flash-run %s --device=cpu %{tensors} "%{ids}" "%{ids}" --raise --verify --expected-output=@%t.npy --atol=1e-5 | FileCheck %s --check-prefix=NUMBERS
// NUMBERS: raise: 1 attention op
// NUMBERS: verify o: {{.*}} PASS
// NUMBERS: expected-output 0: {{.*}} PASS

#queries = affine_map<(d0, d1, d2) -> (d0, d1)>
#keys = affine_map<(d0, d1, d2) -> (d0, d2)>
#square = affine_map<(d0, d1) -> (d0, d1)>
#triangle = affine_map<(d0, d1, d2) -> (d1, d2)>
#pairs = affine_map<(d0, d1, d2) -> (d0, d1, d2)>
#heads = affine_map<(d0, d1, d2, d3) -> (d0, d2, d3)>
#turned = affine_map<(d0, d1, d2, d3) -> (d0, d1, d3, d2)>
#all = affine_map<(d0, d1, d2, d3) -> (d0, d1, d2, d3)>
#rows = affine_map<(d0, d1, d2, d3) -> (d0, d1, d2)>
func.func @main(%arg0: tensor<2x4x24x16xf32>, %arg1: tensor<2x4x24x16xf32>, %arg2: tensor<2x4x24x16xf32>, %arg3: tensor<2x24xi32>, %arg4: tensor<2x24xi32>) -> tensor<2x4x24x16xf32> {
  %zero = arith.constant 0.0 : f32
  %least = arith.constant 0xFF800000 : f32
  %low = arith.constant -1.0e+30 : f32
  %scale = arith.constant 2.500000e-01 : f32
  %i0 = tensor.empty() : tensor<24x24xi32>
  %i = linalg.generic {indexing_maps = [#square], iterator_types = ["parallel", "parallel"]} outs(%i0 : tensor<24x24xi32>) {
  ^bb0(%out: i32):
    %x = linalg.index 0 : index
    %y = arith.index_cast %x : index to i32
    linalg.yield %y : i32
  } -> tensor<24x24xi32>
  %j = linalg.generic {indexing_maps = [#square], iterator_types = ["parallel", "parallel"]} outs(%i0 : tensor<24x24xi32>) {
  ^bb0(%out: i32):
    %x = linalg.index 1 : index
    %y = arith.index_cast %x : index to i32
    linalg.yield %y : i32
  } -> tensor<24x24xi32>
  %b0 = tensor.empty() : tensor<24x24xi1>
  %causal = linalg.generic {indexing_maps = [#square, #square, #square], iterator_types = ["parallel", "parallel"]} ins(%i, %j : tensor<24x24xi32>, tensor<24x24xi32>) outs(%b0 : tensor<24x24xi1>) {
  ^bb0(%in: i32, %in_0: i32, %out: i1):
    %x = arith.cmpi sge, %in, %in_0 : i32
    linalg.yield %x : i1
  } -> tensor<24x24xi1>
  %s0 = tensor.empty() : tensor<2x24x24xi32>
  %q_ids = linalg.generic {indexing_maps = [#queries, #pairs], iterator_types = ["parallel", "parallel", "parallel"]} ins(%arg3 : tensor<2x24xi32>) outs(%s0 : tensor<2x24x24xi32>) {
  ^bb0(%in: i32, %out: i32):
    linalg.yield %in : i32
  } -> tensor<2x24x24xi32>
  %kv_ids = linalg.generic {indexing_maps = [#keys, #pairs], iterator_types = ["parallel", "parallel", "parallel"]} ins(%arg4 : tensor<2x24xi32>) outs(%s0 : tensor<2x24x24xi32>) {
  ^bb0(%in: i32, %out: i32):
    linalg.yield %in : i32
  } -> tensor<2x24x24xi32>
  %m0 = tensor.empty() : tensor<2x24x24xi1>
  %same = linalg.generic {indexing_maps = [#pairs, #pairs, #pairs], iterator_types = ["parallel", "parallel", "parallel"]} ins(%q_ids, %kv_ids : tensor<2x24x24xi32>, tensor<2x24x24xi32>) outs(%m0 : tensor<2x24x24xi1>) {
  ^bb0(%in: i32, %in_0: i32, %out: i1):
    %x = arith.cmpi eq, %in, %in_0 : i32
    linalg.yield %x : i1
  } -> tensor<2x24x24xi1>
  %both = linalg.generic {indexing_maps = [#pairs, #triangle, #pairs], iterator_types = ["parallel", "parallel", "parallel"]} ins(%same, %causal : tensor<2x24x24xi1>, tensor<24x24xi1>) outs(%m0 : tensor<2x24x24xi1>) {
  ^bb0(%in: i1, %in_0: i1, %out: i1):
    %x = arith.andi %in, %in_0 : i1
    linalg.yield %x : i1
  } -> tensor<2x24x24xi1>
  %kt0 = tensor.empty() : tensor<2x4x16x24xf32>
  %kt = linalg.generic {indexing_maps = [#turned, #all], iterator_types = ["parallel", "parallel", "parallel", "parallel"]} ins(%arg1 : tensor<2x4x24x16xf32>) outs(%kt0 : tensor<2x4x16x24xf32>) {
  ^bb0(%in: f32, %out: f32):
    linalg.yield %in : f32
  } -> tensor<2x4x16x24xf32>
  %q8 = tensor.collapse_shape %arg0 [[0, 1], [2], [3]] : tensor<2x4x24x16xf32> into tensor<8x24x16xf32>
  %k8 = tensor.collapse_shape %kt [[0, 1], [2], [3]] : tensor<2x4x16x24xf32> into tensor<8x16x24xf32>
  %v8 = tensor.collapse_shape %arg2 [[0, 1], [2], [3]] : tensor<2x4x24x16xf32> into tensor<8x24x16xf32>
  %qk0 = tensor.empty() : tensor<8x24x24xf32>
  %qk1 = linalg.fill ins(%zero : f32) outs(%qk0 : tensor<8x24x24xf32>) -> tensor<8x24x24xf32>
  %qk = linalg.batch_matmul ins(%q8, %k8 : tensor<8x24x16xf32>, tensor<8x16x24xf32>) outs(%qk1 : tensor<8x24x24xf32>) -> tensor<8x24x24xf32>
  %scores = tensor.expand_shape %qk [[0, 1], [2], [3]] output_shape [2, 4, 24, 24] : tensor<8x24x24xf32> into tensor<2x4x24x24xf32>
  %f0 = tensor.empty() : tensor<2x4x24x24xf32>
  %masked = linalg.generic {indexing_maps = [#heads, #all, #all], iterator_types = ["parallel", "parallel", "parallel", "parallel"]} ins(%both, %scores : tensor<2x24x24xi1>, tensor<2x4x24x24xf32>) outs(%f0 : tensor<2x4x24x24xf32>) {
  ^bb0(%in: i1, %in_0: f32, %out: f32):
    %x = arith.mulf %in_0, %scale : f32
    %y = arith.select %in, %x, %low : f32
    linalg.yield %y : f32
  } -> tensor<2x4x24x24xf32>
  %r0 = tensor.empty() : tensor<2x4x24xf32>
  %r1 = linalg.fill ins(%least : f32) outs(%r0 : tensor<2x4x24xf32>) -> tensor<2x4x24xf32>
  %max = linalg.generic {indexing_maps = [#all, #rows], iterator_types = ["parallel", "parallel", "parallel", "reduction"]} ins(%masked : tensor<2x4x24x24xf32>) outs(%r1 : tensor<2x4x24xf32>) {
  ^bb0(%in: f32, %out: f32):
    %x = arith.maximumf %out, %in : f32
    linalg.yield %x : f32
  } -> tensor<2x4x24xf32>
  %e = linalg.generic {indexing_maps = [#all, #rows, #all], iterator_types = ["parallel", "parallel", "parallel", "parallel"]} ins(%masked, %max : tensor<2x4x24x24xf32>, tensor<2x4x24xf32>) outs(%f0 : tensor<2x4x24x24xf32>) {
  ^bb0(%in: f32, %in_0: f32, %out: f32):
    %x = arith.subf %in, %in_0 : f32
    %y = math.exp %x : f32
    linalg.yield %y : f32
  } -> tensor<2x4x24x24xf32>
  %l0 = linalg.fill ins(%zero : f32) outs(%r0 : tensor<2x4x24xf32>) -> tensor<2x4x24xf32>
  %l = linalg.generic {indexing_maps = [#all, #rows], iterator_types = ["parallel", "parallel", "parallel", "reduction"]} ins(%e : tensor<2x4x24x24xf32>) outs(%l0 : tensor<2x4x24xf32>) {
  ^bb0(%in: f32, %out: f32):
    %x = arith.addf %out, %in : f32
    linalg.yield %x : f32
  } -> tensor<2x4x24xf32>
  %p = linalg.generic {indexing_maps = [#all, #rows, #all], iterator_types = ["parallel", "parallel", "parallel", "parallel"]} ins(%e, %l : tensor<2x4x24x24xf32>, tensor<2x4x24xf32>) outs(%f0 : tensor<2x4x24x24xf32>) {
  ^bb0(%in: f32, %in_0: f32, %out: f32):
    %x = arith.divf %in, %in_0 : f32
    linalg.yield %x : f32
  } -> tensor<2x4x24x24xf32>
  %p8 = tensor.collapse_shape %p [[0, 1], [2], [3]] : tensor<2x4x24x24xf32> into tensor<8x24x24xf32>
  %o0 = tensor.empty() : tensor<8x24x16xf32>
  %o1 = linalg.fill ins(%zero : f32) outs(%o0 : tensor<8x24x16xf32>) -> tensor<8x24x16xf32>
  %o8 = linalg.batch_matmul ins(%p8, %v8 : tensor<8x24x24xf32>, tensor<8x24x16xf32>) outs(%o1 : tensor<8x24x16xf32>) -> tensor<8x24x16xf32>
  %o = tensor.expand_shape %o8 [[0, 1], [2], [3]] output_shape [2, 4, 24, 16] : tensor<8x24x16xf32> into tensor<2x4x24x16xf32>
  return %o : tensor<2x4x24x16xf32>
}
