// A transformer block as a front end leaves it: the attention in it is raised and verified, and the rest, norms,
// projections, residuals and the perceptron, runs through linalg's own lowering, with the same numbers.

// RUN: flash-run %s --device=cpu --output=@%t.npy | FileCheck %s --check-prefix=PLAIN
// PLAIN-NOT: raise:
// RUN: flash-run %s --device=cpu --raise --verify --expected-output=@%t.npy --atol=4e-3 | FileCheck %s
// CHECK: raise: 1 attention op{{$}}
// CHECK: verify: 1 of 1 ops compared
// CHECK: expected-output 0: {{.*}}: PASS

// Both pipelines have the option.
// RUN: flash-opt %s -flashattn-to-cpu=raise=true | FileCheck %s --check-prefix=CPU
// CPU: flashattnParallelFor

// A GPU has no lowering for the rest: the error lists it.
// RUN: not flash-run %s --raise --chip=sm_90a --emit=ptx 2>&1 | FileCheck %s --check-prefix=GPU
// RUN: not flash-opt %s -flashattn-to-nvvm="chip=sm_80 raise=true" 2>&1 | FileCheck %s --check-prefix=GPU
// GPU: error: 'linalg.{{.*}} would run on the host, which cannot read a GPU's memory
// GPU: note: would also run on the host: 'linalg.
// GPU: note: would also run on the host: 'linalg.

// What is no attention is not raised, and that is said.
// RUN: echo 'func.func @f(%%x: tensor<4xf32>) -> tensor<4xf32> { return %%x : tensor<4xf32> }' | flash-run --device=cpu --raise | FileCheck %s --check-prefix=NONE
// NONE: raise: 0 attention ops; flash-opt -flashattn-raise-attention {{.*}} reports the reason
// RUN: not flash-run %s --device=cpu --verify 2>&1 | FileCheck %s --check-prefix=HINT
// HINT: --raise makes attention of matmul, softmax, matmul

#id2 = affine_map<(i, j) -> (i, j)>
#row2 = affine_map<(i, j) -> (i)>
#column2 = affine_map<(i, j) -> (j)>
#id3 = affine_map<(b, i, j) -> (b, i, j)>

func.func private @norm(%x: tensor<64x64xf32>, %gain: tensor<64xf32>) -> tensor<64x64xf32> {
  %zero = arith.constant 0.0 : f32
  %width = arith.constant 64.0 : f32
  %epsilon = arith.constant 1.0e-5 : f32
  %er = tensor.empty() : tensor<64xf32>
  %r0 = linalg.fill ins(%zero : f32) outs(%er : tensor<64xf32>) -> tensor<64xf32>
  %sums = linalg.generic {indexing_maps = [#id2, #row2], iterator_types = ["parallel", "reduction"]} ins(%x : tensor<64x64xf32>) outs(%r0 : tensor<64xf32>) {
  ^bb0(%in: f32, %out: f32):
    %m = arith.mulf %in, %in : f32
    %s = arith.addf %out, %m : f32
    linalg.yield %s : f32
  } -> tensor<64xf32>
  %e = tensor.empty() : tensor<64x64xf32>
  %y = linalg.generic {indexing_maps = [#id2, #row2, #column2, #id2], iterator_types = ["parallel", "parallel"]} ins(%x, %sums, %gain : tensor<64x64xf32>, tensor<64xf32>, tensor<64xf32>) outs(%e : tensor<64x64xf32>) {
  ^bb0(%in: f32, %sum: f32, %g: f32, %out: f32):
    %mean = arith.divf %sum, %width : f32
    %safe = arith.addf %mean, %epsilon : f32
    %root = math.rsqrt %safe : f32
    %n = arith.mulf %in, %root : f32
    %r = arith.mulf %n, %g : f32
    linalg.yield %r : f32
  } -> tensor<64x64xf32>
  return %y : tensor<64x64xf32>
}

func.func private @project(%x: tensor<64x64xf32>, %w: tensor<64x64xf32>) -> tensor<64x64xf32> {
  %zero = arith.constant 0.0 : f32
  %e = tensor.empty() : tensor<64x64xf32>
  %f = linalg.fill ins(%zero : f32) outs(%e : tensor<64x64xf32>) -> tensor<64x64xf32>
  %y = linalg.matmul ins(%x, %w : tensor<64x64xf32>, tensor<64x64xf32>) outs(%f : tensor<64x64xf32>) -> tensor<64x64xf32>
  return %y : tensor<64x64xf32>
}

func.func private @split(%x: tensor<64x64xf32>) -> tensor<2x4x32x16xf32> {
  %h = tensor.expand_shape %x [[0, 1], [2, 3]] output_shape [2, 32, 4, 16] : tensor<64x64xf32> into tensor<2x32x4x16xf32>
  %e = tensor.empty() : tensor<2x4x32x16xf32>
  %t = linalg.transpose ins(%h : tensor<2x32x4x16xf32>) outs(%e : tensor<2x4x32x16xf32>) permutation = [0, 2, 1, 3]
  return %t : tensor<2x4x32x16xf32>
}

func.func @block(%x: tensor<64x64xf32>, %gains: tensor<2x64xf32>, %wq: tensor<64x64xf32>, %wk: tensor<64x64xf32>, %wv: tensor<64x64xf32>,
                 %wo: tensor<64x64xf32>, %up: tensor<64x256xf32>, %down: tensor<256x64xf32>) -> tensor<64x64xf32> {
  %zero = arith.constant 0.0 : f32
  %low = arith.constant 0xFF800000 : f32
  %scale = arith.constant 0.25 : f32
  %g0 = tensor.extract_slice %gains[0, 0] [1, 64] [1, 1] : tensor<2x64xf32> to tensor<64xf32>
  %n0 = func.call @norm(%x, %g0) : (tensor<64x64xf32>, tensor<64xf32>) -> tensor<64x64xf32>
  %q2 = func.call @project(%n0, %wq) : (tensor<64x64xf32>, tensor<64x64xf32>) -> tensor<64x64xf32>
  %k2 = func.call @project(%n0, %wk) : (tensor<64x64xf32>, tensor<64x64xf32>) -> tensor<64x64xf32>
  %v2 = func.call @project(%n0, %wv) : (tensor<64x64xf32>, tensor<64x64xf32>) -> tensor<64x64xf32>
  %q4 = func.call @split(%q2) : (tensor<64x64xf32>) -> tensor<2x4x32x16xf32>
  %k4 = func.call @split(%k2) : (tensor<64x64xf32>) -> tensor<2x4x32x16xf32>
  %v4 = func.call @split(%v2) : (tensor<64x64xf32>) -> tensor<2x4x32x16xf32>
  %q = tensor.collapse_shape %q4 [[0, 1], [2], [3]] : tensor<2x4x32x16xf32> into tensor<8x32x16xf32>
  %k = tensor.collapse_shape %k4 [[0, 1], [2], [3]] : tensor<2x4x32x16xf32> into tensor<8x32x16xf32>
  %v = tensor.collapse_shape %v4 [[0, 1], [2], [3]] : tensor<2x4x32x16xf32> into tensor<8x32x16xf32>
  %et = tensor.empty() : tensor<8x16x32xf32>
  %kt = linalg.transpose ins(%k : tensor<8x32x16xf32>) outs(%et : tensor<8x16x32xf32>) permutation = [0, 2, 1]
  %es = tensor.empty() : tensor<8x32x32xf32>
  %fs = linalg.fill ins(%zero : f32) outs(%es : tensor<8x32x32xf32>) -> tensor<8x32x32xf32>
  %s = linalg.batch_matmul ins(%q, %kt : tensor<8x32x16xf32>, tensor<8x16x32xf32>) outs(%fs : tensor<8x32x32xf32>) -> tensor<8x32x32xf32>
  %masked = linalg.generic {indexing_maps = [#id3, #id3], iterator_types = ["parallel", "parallel", "parallel"]} ins(%s : tensor<8x32x32xf32>) outs(%es : tensor<8x32x32xf32>) {
  ^bb0(%in: f32, %out: f32):
    %i = linalg.index 1 : index
    %j = linalg.index 2 : index
    %sees = arith.cmpi sle, %j, %i : index
    %m = arith.mulf %in, %scale : f32
    %r = arith.select %sees, %m, %low : f32
    linalg.yield %r : f32
  } -> tensor<8x32x32xf32>
  %ep = tensor.empty() : tensor<8x32x32xf32>
  %p = linalg.softmax dimension(2) ins(%masked : tensor<8x32x32xf32>) outs(%ep : tensor<8x32x32xf32>) -> tensor<8x32x32xf32>
  %eo = tensor.empty() : tensor<8x32x16xf32>
  %fo = linalg.fill ins(%zero : f32) outs(%eo : tensor<8x32x16xf32>) -> tensor<8x32x16xf32>
  %o3 = linalg.batch_matmul ins(%p, %v : tensor<8x32x32xf32>, tensor<8x32x16xf32>) outs(%fo : tensor<8x32x16xf32>) -> tensor<8x32x16xf32>
  %o4 = tensor.expand_shape %o3 [[0, 1], [2], [3]] output_shape [2, 4, 32, 16] : tensor<8x32x16xf32> into tensor<2x4x32x16xf32>
  %em = tensor.empty() : tensor<2x32x4x16xf32>
  %om = linalg.transpose ins(%o4 : tensor<2x4x32x16xf32>) outs(%em : tensor<2x32x4x16xf32>) permutation = [0, 2, 1, 3]
  %o = tensor.collapse_shape %om [[0, 1], [2, 3]] : tensor<2x32x4x16xf32> into tensor<64x64xf32>
  %a = func.call @project(%o, %wo) : (tensor<64x64xf32>, tensor<64x64xf32>) -> tensor<64x64xf32>
  %x1 = arith.addf %x, %a : tensor<64x64xf32>
  %g1 = tensor.extract_slice %gains[1, 0] [1, 64] [1, 1] : tensor<2x64xf32> to tensor<64xf32>
  %n1 = func.call @norm(%x1, %g1) : (tensor<64x64xf32>, tensor<64xf32>) -> tensor<64x64xf32>
  %eu = tensor.empty() : tensor<64x256xf32>
  %fu = linalg.fill ins(%zero : f32) outs(%eu : tensor<64x256xf32>) -> tensor<64x256xf32>
  %u = linalg.matmul ins(%n1, %up : tensor<64x64xf32>, tensor<64x256xf32>) outs(%fu : tensor<64x256xf32>) -> tensor<64x256xf32>
  %gelu = linalg.generic {indexing_maps = [#id2, #id2], iterator_types = ["parallel", "parallel"]} ins(%u : tensor<64x256xf32>) outs(%eu : tensor<64x256xf32>) {
  ^bb0(%in: f32, %out: f32):
    %half = arith.constant 0.5 : f32
    %one = arith.constant 1.0 : f32
    %root = arith.constant 0.70710678 : f32
    %t = arith.mulf %in, %root : f32
    %erf = math.erf %t : f32
    %plus = arith.addf %erf, %one : f32
    %m = arith.mulf %plus, %half : f32
    %r = arith.mulf %m, %in : f32
    linalg.yield %r : f32
  } -> tensor<64x256xf32>
  %ed = tensor.empty() : tensor<64x64xf32>
  %fd = linalg.fill ins(%zero : f32) outs(%ed : tensor<64x64xf32>) -> tensor<64x64xf32>
  %d = linalg.matmul ins(%gelu, %down : tensor<64x256xf32>, tensor<256x64xf32>) outs(%fd : tensor<64x64xf32>) -> tensor<64x64xf32>
  %y = arith.addf %x1, %d : tensor<64x64xf32>
  return %y : tensor<64x64xf32>
}
