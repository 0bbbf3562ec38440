// Attention that is matmul, softmax, matmul runs as it is, against the op, in memory of its own size. The first
// two are as JAX's StableHLO and torch-mlir lower to linalg.

// DEFINE: %{same} = --device=cpu --input=random:1 --input=random:2 --input=random:3 --expected-output=@%t.npy
// RUN: flash-run %s --device=cpu --function=op --input=random:1 --input=random:2 --input=random:3 --output=@%t.npy
// RUN: flash-run %s --function=stablehlo %{same} | FileCheck %s
// RUN: flash-run %s --function=softmax %{same} | FileCheck %s
// RUN: flash-run %s --function=calls %{same} | FileCheck %s
// CHECK: expected-output 0: {{.*}}: PASS

// Without a buffer for each element of a reduction; with one, where an element needs it, for as long as
// it does; and without the buffers of a chain that are done with.
// RUN: %if !asan %{ %python %S/../Inputs/peak_memory.py 300 flash-run %s --function=stablehlo %{same} %}
// RUN: %if !asan %{ %python %S/../Inputs/peak_memory.py 500 flash-run %s --function=picks --device=cpu %}
// RUN: %if !asan %{ %python %S/../Inputs/peak_memory.py 600 flash-run %s --function=chain --device=cpu %}

// Arguments and results of any rank; what is not a float is said in its type.
// RUN: flash-run %s --device=cpu --function=ranks --input=zeros --input=ones --input=ones | FileCheck %s --check-prefix=RANKS
// RANKS: output 0: f32, {{.*}} values 64.0000
// RANKS: output 1: 2x1x1x1x2xi32, {{.*}} values 1.0000 1.0000 1.0000 1.0000

!q = tensor<2x4x128x32xf32>
!s = tensor<2x4x128x128xf32>
!r = tensor<2x4x128xf32>
#kt = affine_map<(b, h, i, j) -> (b, h, j, i)>
#id = affine_map<(b, h, i, j) -> (b, h, i, j)>
#row = affine_map<(b, h, i, j) -> (b, h, i)>
#scalar = affine_map<(b, h, i, j) -> ()>
#a = affine_map<(b, h, i, j, k) -> (b, h, i, k)>
#b = affine_map<(b, h, i, j, k) -> (b, h, k, j)>
#c = affine_map<(b, h, i, j, k) -> (b, h, i, j)>

func.func @op(%q: !q, %k: !q, %v: !q) -> !q {
  %e = tensor.empty() : !q
  %o = flashattn.attention ins(%q, %k, %v : !q, !q, !q) outs(%e : !q) -> !q
  return %o : !q
}

func.func private @scores(%q: !q, %k: !q) -> !s {
  %scale = arith.constant dense<0.17677669529> : tensor<f32>
  %zero = arith.constant 0.0 : f32
  %et = tensor.empty() : tensor<2x4x32x128xf32>
  %t = linalg.generic {indexing_maps = [#kt, #id], iterator_types = ["parallel", "parallel", "parallel", "parallel"]} ins(%k : !q) outs(%et : tensor<2x4x32x128xf32>) {
  ^bb0(%in: f32, %out: f32):
    linalg.yield %in : f32
  } -> tensor<2x4x32x128xf32>
  %e = tensor.empty() : !s
  %f = linalg.fill ins(%zero : f32) outs(%e : !s) -> !s
  %p = linalg.generic {indexing_maps = [#a, #b, #c], iterator_types = ["parallel", "parallel", "parallel", "parallel", "reduction"]} ins(%q, %t : !q, tensor<2x4x32x128xf32>) outs(%f : !s) {
  ^bb0(%x: f32, %y: f32, %out: f32):
    %m = arith.mulf %x, %y : f32
    %s = arith.addf %out, %m : f32
    linalg.yield %s : f32
  } -> !s
  %es = tensor.empty() : !s
  %ss = linalg.generic {indexing_maps = [#scalar, #id], iterator_types = ["parallel", "parallel", "parallel", "parallel"]} ins(%scale : tensor<f32>) outs(%es : !s) {
  ^bb0(%in: f32, %out: f32):
    linalg.yield %in : f32
  } -> !s
  %s = arith.mulf %p, %ss : !s
  return %s : !s
}

func.func private @values(%p: !s, %v: !q) -> !q {
  %zero = arith.constant 0.0 : f32
  %e = tensor.empty() : !q
  %f = linalg.fill ins(%zero : f32) outs(%e : !q) -> !q
  %o = linalg.generic {indexing_maps = [#a, #b, #c], iterator_types = ["parallel", "parallel", "parallel", "parallel", "reduction"]} ins(%p, %v : !s, !q) outs(%f : !q) {
  ^bb0(%x: f32, %y: f32, %out: f32):
    %m = arith.mulf %x, %y : f32
    %s = arith.addf %out, %m : f32
    linalg.yield %s : f32
  } -> !q
  return %o : !q
}

func.func @stablehlo(%q: !q, %k: !q, %v: !q) -> !q {
  %s = func.call @scores(%q, %k) : (!q, !q) -> !s
  %low = arith.constant 0xFF800000 : f32
  %zero = arith.constant 0.0 : f32
  %er = tensor.empty() : !r
  %fr = linalg.fill ins(%low : f32) outs(%er : !r) -> !r
  %max = linalg.generic {indexing_maps = [#id, #row], iterator_types = ["parallel", "parallel", "parallel", "reduction"]} ins(%s : !s) outs(%fr : !r) {
  ^bb0(%in: f32, %out: f32):
    %1 = tensor.from_elements %in : tensor<f32>
    %2 = tensor.from_elements %out : tensor<f32>
    %3 = tensor.extract %2[] : tensor<f32>
    %4 = tensor.extract %1[] : tensor<f32>
    %5 = arith.maximumf %3, %4 : f32
    %6 = tensor.from_elements %5 : tensor<f32>
    %7 = tensor.extract %6[] : tensor<f32>
    linalg.yield %7 : f32
  } -> !r
  %em = tensor.empty() : !s
  %maxs = linalg.generic {indexing_maps = [#row, #id], iterator_types = ["parallel", "parallel", "parallel", "parallel"]} ins(%max : !r) outs(%em : !s) {
  ^bb0(%in: f32, %out: f32):
    linalg.yield %in : f32
  } -> !s
  %d = arith.subf %s, %maxs : !s
  %x = math.exp %d : !s
  %es = tensor.empty() : !r
  %fs = linalg.fill ins(%zero : f32) outs(%es : !r) -> !r
  %sum = linalg.generic {indexing_maps = [#id, #row], iterator_types = ["parallel", "parallel", "parallel", "reduction"]} ins(%x : !s) outs(%fs : !r) {
  ^bb0(%in: f32, %out: f32):
    %1 = tensor.from_elements %in : tensor<f32>
    %2 = tensor.from_elements %out : tensor<f32>
    %3 = tensor.extract %2[] : tensor<f32>
    %4 = tensor.extract %1[] : tensor<f32>
    %5 = arith.addf %3, %4 : f32
    %6 = tensor.from_elements %5 : tensor<f32>
    %7 = tensor.extract %6[] : tensor<f32>
    linalg.yield %7 : f32
  } -> !r
  %eq = tensor.empty() : !s
  %sums = linalg.generic {indexing_maps = [#row, #id], iterator_types = ["parallel", "parallel", "parallel", "parallel"]} ins(%sum : !r) outs(%eq : !s) {
  ^bb0(%in: f32, %out: f32):
    linalg.yield %in : f32
  } -> !s
  %p = arith.divf %x, %sums : !s
  %o = func.call @values(%p, %v) : (!s, !q) -> !q
  return %o : !q
}

func.func @softmax(%q: !q, %k: !q, %v: !q) -> !q {
  %zero = arith.constant 0.0 : f32
  %scale = arith.constant dense<0.17677669529> : tensor<8x128x128xf32>
  %q3 = tensor.collapse_shape %q [[0, 1], [2], [3]] : !q into tensor<8x128x32xf32>
  %k3 = tensor.collapse_shape %k [[0, 1], [2], [3]] : !q into tensor<8x128x32xf32>
  %v3 = tensor.collapse_shape %v [[0, 1], [2], [3]] : !q into tensor<8x128x32xf32>
  %et = tensor.empty() : tensor<8x32x128xf32>
  %t = linalg.transpose ins(%k3 : tensor<8x128x32xf32>) outs(%et : tensor<8x32x128xf32>) permutation = [0, 2, 1]
  %e = tensor.empty() : tensor<8x128x128xf32>
  %f = linalg.fill ins(%zero : f32) outs(%e : tensor<8x128x128xf32>) -> tensor<8x128x128xf32>
  %m = linalg.batch_matmul ins(%q3, %t : tensor<8x128x32xf32>, tensor<8x32x128xf32>) outs(%f : tensor<8x128x128xf32>) -> tensor<8x128x128xf32>
  %s = arith.mulf %m, %scale : tensor<8x128x128xf32>
  %p = linalg.softmax dimension(2) ins(%s : tensor<8x128x128xf32>) outs(%e : tensor<8x128x128xf32>) -> tensor<8x128x128xf32>
  %eo = tensor.empty() : tensor<8x128x32xf32>
  %fo = linalg.fill ins(%zero : f32) outs(%eo : tensor<8x128x32xf32>) -> tensor<8x128x32xf32>
  %o3 = linalg.batch_matmul ins(%p, %v3 : tensor<8x128x128xf32>, tensor<8x128x32xf32>) outs(%fo : tensor<8x128x32xf32>) -> tensor<8x128x32xf32>
  %o = tensor.expand_shape %o3 [[0, 1], [2], [3]] output_shape [2, 4, 128, 32] : tensor<8x128x32xf32> into !q
  return %o : !q
}

func.func private @normalized(%s: !s) -> !s {
  %e = tensor.empty() : !s
  %p = linalg.softmax dimension(3) ins(%s : !s) outs(%e : !s) -> !s
  return %p : !s
}

func.func @calls(%q: !q, %k: !q, %v: !q) -> !q {
  %s = func.call @scores(%q, %k) : (!q, !q) -> !s
  %p = func.call @normalized(%s) : (!s) -> !s
  %o = func.call @values(%p, %v) : (!s, !q) -> !q
  return %o : !q
}

// A tensor that each element really needs.
func.func @picks(%x: !s) -> !s {
  %e = tensor.empty() : !s
  %r = linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel", "parallel", "parallel", "parallel"]} ins(%x : !s) outs(%e : !s) {
  ^bb0(%in: f32, %out: f32):
    %j = linalg.index 3 : index
    %c2 = arith.constant 2 : index
    %odd = arith.remui %j, %c2 : index
    %n = arith.negf %in : f32
    %t = tensor.from_elements %in, %n : tensor<2xf32>
    %y = tensor.extract %t[%odd] : tensor<2xf32>
    linalg.yield %y : f32
  } -> !s
  return %r : !s
}

// Twenty buffers of 32 MiB, of which two are needed at a time; up to 256 MiB that are freed are kept for a while.
func.func @chain(%x: tensor<4096x2048xf32>) -> tensor<4096x2048xf32> {
  %e0 = tensor.empty() : tensor<2048x4096xf32>
  %0 = linalg.transpose ins(%x : tensor<4096x2048xf32>) outs(%e0 : tensor<2048x4096xf32>) permutation = [1, 0]
  %e1 = tensor.empty() : tensor<4096x2048xf32>
  %1 = linalg.transpose ins(%0 : tensor<2048x4096xf32>) outs(%e1 : tensor<4096x2048xf32>) permutation = [1, 0]
  %e2 = tensor.empty() : tensor<2048x4096xf32>
  %2 = linalg.transpose ins(%1 : tensor<4096x2048xf32>) outs(%e2 : tensor<2048x4096xf32>) permutation = [1, 0]
  %e3 = tensor.empty() : tensor<4096x2048xf32>
  %3 = linalg.transpose ins(%2 : tensor<2048x4096xf32>) outs(%e3 : tensor<4096x2048xf32>) permutation = [1, 0]
  %e4 = tensor.empty() : tensor<2048x4096xf32>
  %4 = linalg.transpose ins(%3 : tensor<4096x2048xf32>) outs(%e4 : tensor<2048x4096xf32>) permutation = [1, 0]
  %e5 = tensor.empty() : tensor<4096x2048xf32>
  %5 = linalg.transpose ins(%4 : tensor<2048x4096xf32>) outs(%e5 : tensor<4096x2048xf32>) permutation = [1, 0]
  %e6 = tensor.empty() : tensor<2048x4096xf32>
  %6 = linalg.transpose ins(%5 : tensor<4096x2048xf32>) outs(%e6 : tensor<2048x4096xf32>) permutation = [1, 0]
  %e7 = tensor.empty() : tensor<4096x2048xf32>
  %7 = linalg.transpose ins(%6 : tensor<2048x4096xf32>) outs(%e7 : tensor<4096x2048xf32>) permutation = [1, 0]
  %e8 = tensor.empty() : tensor<2048x4096xf32>
  %8 = linalg.transpose ins(%7 : tensor<4096x2048xf32>) outs(%e8 : tensor<2048x4096xf32>) permutation = [1, 0]
  %e9 = tensor.empty() : tensor<4096x2048xf32>
  %9 = linalg.transpose ins(%8 : tensor<2048x4096xf32>) outs(%e9 : tensor<4096x2048xf32>) permutation = [1, 0]
  %e10 = tensor.empty() : tensor<2048x4096xf32>
  %10 = linalg.transpose ins(%9 : tensor<4096x2048xf32>) outs(%e10 : tensor<2048x4096xf32>) permutation = [1, 0]
  %e11 = tensor.empty() : tensor<4096x2048xf32>
  %11 = linalg.transpose ins(%10 : tensor<2048x4096xf32>) outs(%e11 : tensor<4096x2048xf32>) permutation = [1, 0]
  %e12 = tensor.empty() : tensor<2048x4096xf32>
  %12 = linalg.transpose ins(%11 : tensor<4096x2048xf32>) outs(%e12 : tensor<2048x4096xf32>) permutation = [1, 0]
  %e13 = tensor.empty() : tensor<4096x2048xf32>
  %13 = linalg.transpose ins(%12 : tensor<2048x4096xf32>) outs(%e13 : tensor<4096x2048xf32>) permutation = [1, 0]
  %e14 = tensor.empty() : tensor<2048x4096xf32>
  %14 = linalg.transpose ins(%13 : tensor<4096x2048xf32>) outs(%e14 : tensor<2048x4096xf32>) permutation = [1, 0]
  %e15 = tensor.empty() : tensor<4096x2048xf32>
  %15 = linalg.transpose ins(%14 : tensor<2048x4096xf32>) outs(%e15 : tensor<4096x2048xf32>) permutation = [1, 0]
  %e16 = tensor.empty() : tensor<2048x4096xf32>
  %16 = linalg.transpose ins(%15 : tensor<4096x2048xf32>) outs(%e16 : tensor<2048x4096xf32>) permutation = [1, 0]
  %e17 = tensor.empty() : tensor<4096x2048xf32>
  %17 = linalg.transpose ins(%16 : tensor<2048x4096xf32>) outs(%e17 : tensor<4096x2048xf32>) permutation = [1, 0]
  %e18 = tensor.empty() : tensor<2048x4096xf32>
  %18 = linalg.transpose ins(%17 : tensor<4096x2048xf32>) outs(%e18 : tensor<2048x4096xf32>) permutation = [1, 0]
  %e19 = tensor.empty() : tensor<4096x2048xf32>
  %19 = linalg.transpose ins(%18 : tensor<2048x4096xf32>) outs(%e19 : tensor<4096x2048xf32>) permutation = [1, 0]
  return %19 : tensor<4096x2048xf32>
}

func.func @ranks(%x: tensor<f32>, %y: tensor<64xf32>, %z: tensor<2x1x1x1x2xi32>) -> (tensor<f32>, tensor<2x1x1x1x2xi32>) {
  %s = linalg.generic {indexing_maps = [affine_map<(i) -> (i)>, affine_map<(i) -> ()>], iterator_types = ["reduction"]} ins(%y : tensor<64xf32>) outs(%x : tensor<f32>) {
  ^bb0(%in: f32, %out: f32):
    %a = arith.addf %in, %out : f32
    linalg.yield %a : f32
  } -> tensor<f32>
  return %s, %z : tensor<f32>, tensor<2x1x1x1x2xi32>
}
