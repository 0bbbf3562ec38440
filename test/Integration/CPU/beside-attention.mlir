// What stands beside attention in a function on the CPU: each op against what it is made of by hand,
// or against attention on operands that the test makes itself.

// DEFINE: %{run} = flash-run %s --device=cpu
// RUN: %{run} --function=by_hand --output=@%t.1.npy --output=@%t.2.npy
// RUN: %{run} --function=ops --expected-output=@%t.1.npy --expected-output=@%t.2.npy | FileCheck %s --check-prefix=SAME2

// A place in a cache, and keys put together.
// RUN: %{run} --function=append --input=random:1 --input=random:2 --input=index=7 --output=@%t.o.npy --output=@%t.k.npy
// RUN: %{run} --function=plain --input=random:1 --input=@%t.k.npy --expected-output=@%t.o.npy | FileCheck %s --check-prefix=SAME
// RUN: %{run} --function=concat --input=random:1 --input=@%t.k.npy --input=index=23 --expected-output=@%t.o.npy | FileCheck %s --check-prefix=SAME

// Layers in a loop: none, two, and as calls.
// RUN: %{run} --function=calls --input=random:3 --output=@%t.calls.npy
// RUN: %{run} --function=for --input=random:3 --input=index=2 --expected-output=@%t.calls.npy | FileCheck %s --check-prefix=SAME
// RUN: %{run} --function=while --input=random:3 --input=index=2 --expected-output=@%t.calls.npy | FileCheck %s --check-prefix=SAME
// RUN: %{run} --function=for --input=random:3 --input=index=0 --output=@%t.none.npy
// RUN: %{run} --function=while --input=@%t.none.npy --input=index=0 --expected-output=@%t.none.npy | FileCheck %s --check-prefix=SAME
// RUN: %{run} --function=if --input=@%t.none.npy --input=index=0 --expected-output=@%t.none.npy | FileCheck %s --check-prefix=SAME

// What is computed from an argument, in a loop or a call too, does not write it.
// RUN: %{run} --function=residual --verify --input=random:4 --input=index=2 | FileCheck %s --check-prefix=KEPT
// KEPT-NOT: was written
// KEPT: verify: 2 of 2 ops compared

// Heads and batch in one dimension, split into two sizes that nobody knows before.
// RUN: %{run} --function=split --input=2x16x16xf32=random:5 --input=index=1 --input=index=2 --output=@%t.split.npy
// RUN: %{run} --function=layer_of --input=random:5 --expected-output=@%t.split.npy | FileCheck %s --check-prefix=SAME

// SAME: expected-output 0: {{.*}}: PASS
// SAME2: expected-output 0: {{.*}}: PASS
// SAME2: expected-output 1: {{.*}}: PASS

!q = tensor<1x2x16x16xf32>
#id = affine_map<(b, h, i, j) -> (b, h, i, j)>
#row = affine_map<(b, h, i, j) -> (b, h, i)>

func.func private @layer(%x: !q) -> !q {
  %e = tensor.empty() : !q
  %a = flashattn.attention mask(#flashattn.causal) ins(%x, %x, %x : !q, !q, !q) outs(%e : !q) -> !q
  return %a : !q
}

func.func @layer_of(%x: !q) -> !q {
  %a = func.call @layer(%x) : (!q) -> !q
  return %a : !q
}

!d = tensor<?x?x16x16xf32>
func.func @split(%x: tensor<?x16x16xf32>, %batch: index, %heads: index) -> !d {
  %q = tensor.expand_shape %x [[0, 1], [2], [3]] output_shape [%batch, %heads, 16, 16] : tensor<?x16x16xf32> into !d
  %e = tensor.empty(%batch, %heads) : !d
  %a = flashattn.attention mask(#flashattn.causal) ins(%q, %q, %q : !d, !d, !d) outs(%e : !d) -> !d
  return %a : !d
}

func.func @residual(%x: !q, %layers: index) -> (!q, !q) {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %half = arith.constant dense<0.5> : !q
  %doubled = arith.addf %x, %x : !q
  %y = scf.for %i = %c0 to %layers step %c1 iter_args(%z = %x) -> !q {
    %a = func.call @layer(%z) : (!q) -> !q
    %sum = arith.addf %z, %a : !q
    %scaled = arith.mulf %sum, %half : !q
    scf.yield %scaled : !q
  }
  %e = tensor.empty() : !q
  %o = flashattn.attention ins(%doubled, %y, %y : !q, !q, !q) outs(%e : !q) -> !q
  return %o, %y : !q, !q
}

func.func @ops(%x: !q) -> (!q, tensor<1x20x32xf32>) {
  %a = func.call @layer(%x) : (!q) -> !q
  %two = arith.constant dense<2.0> : !q
  %sum = arith.addf %a, %x : !q
  %scaled = arith.mulf %sum, %two : !q
  %e = tensor.empty() : !q
  %s = linalg.softmax dimension(3) ins(%scaled : !q) outs(%e : !q) -> !q
  %t = tensor.empty() : tensor<1x16x2x16xf32>
  %turned = linalg.transpose ins(%a : !q) outs(%t : tensor<1x16x2x16xf32>) permutation = [0, 2, 1, 3]
  %heads = tensor.collapse_shape %turned [[0], [1], [2, 3]] : tensor<1x16x2x16xf32> into tensor<1x16x32xf32>
  %zero = arith.constant 0.0 : f32
  %padded = tensor.pad %heads low[0, 1, 0] high[0, 3, 0] {
  ^bb0(%b: index, %i: index, %j: index):
    tensor.yield %zero : f32
  } : tensor<1x16x32xf32> to tensor<1x20x32xf32>
  return %s, %padded : !q, tensor<1x20x32xf32>
}

func.func @by_hand(%x: !q) -> (!q, tensor<1x20x32xf32>) {
  %a = func.call @layer(%x) : (!q) -> !q
  %zero = arith.constant 0.0 : f32
  %two = arith.constant 2.0 : f32
  %e = tensor.empty() : !q
  %exp = linalg.generic {indexing_maps = [#id, #id, #id], iterator_types = ["parallel", "parallel", "parallel", "parallel"]}
      ins(%a, %x : !q, !q) outs(%e : !q) {
  ^bb0(%u: f32, %v: f32, %old: f32):
    %1 = arith.addf %u, %v : f32
    %2 = arith.mulf %1, %two : f32
    %3 = math.exp %2 : f32
    linalg.yield %3 : f32
  } -> !q
  %r = tensor.empty() : tensor<1x2x16xf32>
  %fill = linalg.fill ins(%zero : f32) outs(%r : tensor<1x2x16xf32>) -> tensor<1x2x16xf32>
  %sums = linalg.generic {indexing_maps = [#id, #row], iterator_types = ["parallel", "parallel", "parallel", "reduction"]}
      ins(%exp : !q) outs(%fill : tensor<1x2x16xf32>) {
  ^bb0(%u: f32, %old: f32):
    %1 = arith.addf %u, %old : f32
    linalg.yield %1 : f32
  } -> tensor<1x2x16xf32>
  %s = linalg.generic {indexing_maps = [#id, #row, #id], iterator_types = ["parallel", "parallel", "parallel", "parallel"]}
      ins(%exp, %sums : !q, tensor<1x2x16xf32>) outs(%e : !q) {
  ^bb0(%u: f32, %v: f32, %old: f32):
    %1 = arith.divf %u, %v : f32
    linalg.yield %1 : f32
  } -> !q
  %h = tensor.generate {
  ^bb0(%b: index, %i: index, %j: index):
    %c1 = arith.constant 1 : index
    %c15 = arith.constant 15 : index
    %c16 = arith.constant 16 : index
    %row = arith.subi %i, %c1 : index
    %inside = arith.cmpi ult, %row, %c16 : index
    %clamped = arith.minui %row, %c15 : index
    %head = arith.divui %j, %c16 : index
    %d = arith.remui %j, %c16 : index
    %v = tensor.extract %a[%b, %head, %clamped, %d] : !q
    %w = arith.select %inside, %v, %zero : f32
    tensor.yield %w : f32
  } : tensor<1x20x32xf32>
  return %s, %h : !q, tensor<1x20x32xf32>
}

func.func @plain(%q: tensor<1x2x4x16xf32>, %k: tensor<1x2x64x16xf32>) -> tensor<1x2x4x16xf32> {
  %e = tensor.empty() : tensor<1x2x4x16xf32>
  %a = flashattn.attention ins(%q, %k, %k : tensor<1x2x4x16xf32>, tensor<1x2x64x16xf32>, tensor<1x2x64x16xf32>)
      outs(%e : tensor<1x2x4x16xf32>) -> tensor<1x2x4x16xf32>
  return %a : tensor<1x2x4x16xf32>
}

func.func @append(%q: tensor<1x2x4x16xf32>, %cache: tensor<1x2x64x16xf32>, %at: index)
    -> (tensor<1x2x4x16xf32>, tensor<1x2x64x16xf32>) {
  %k = tensor.insert_slice %q into %cache[0, 0, %at, 0] [1, 2, 4, 16] [1, 1, 1, 1] : tensor<1x2x4x16xf32> into tensor<1x2x64x16xf32>
  %a = func.call @plain(%q, %k) : (tensor<1x2x4x16xf32>, tensor<1x2x64x16xf32>) -> tensor<1x2x4x16xf32>
  return %a, %k : tensor<1x2x4x16xf32>, tensor<1x2x64x16xf32>
}

func.func @concat(%q: tensor<1x2x4x16xf32>, %cache: tensor<1x2x64x16xf32>, %at: index) -> tensor<1x2x4x16xf32> {
  %c64 = arith.constant 64 : index
  %rest = arith.subi %c64, %at : index
  %a = tensor.extract_slice %cache[0, 0, 0, 0] [1, 2, %at, 16] [1, 1, 1, 1] : tensor<1x2x64x16xf32> to tensor<1x2x?x16xf32>
  %b = tensor.extract_slice %cache[0, 0, %at, 0] [1, 2, %rest, 16] [1, 1, 1, 1] : tensor<1x2x64x16xf32> to tensor<1x2x?x16xf32>
  %k = tensor.concat dim(2) %a, %b : (tensor<1x2x?x16xf32>, tensor<1x2x?x16xf32>) -> tensor<1x2x?x16xf32>
  %whole = tensor.cast %k : tensor<1x2x?x16xf32> to tensor<1x2x64x16xf32>
  %o = func.call @plain(%q, %whole) : (tensor<1x2x4x16xf32>, tensor<1x2x64x16xf32>) -> tensor<1x2x4x16xf32>
  return %o : tensor<1x2x4x16xf32>
}

func.func @calls(%x: !q) -> !q {
  %a = func.call @layer(%x) : (!q) -> !q
  %b = func.call @layer(%a) : (!q) -> !q
  return %b : !q
}

func.func @for(%x: !q, %n: index) -> !q {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %r = scf.for %i = %c0 to %n step %c1 iter_args(%y = %x) -> !q {
    %a = func.call @layer(%y) : (!q) -> !q
    scf.yield %a : !q
  }
  return %r : !q
}

func.func @while(%x: !q, %n: index) -> !q {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %r:2 = scf.while (%y = %x, %i = %c0) : (!q, index) -> (!q, index) {
    %more = arith.cmpi slt, %i, %n : index
    scf.condition(%more) %y, %i : !q, index
  } do {
  ^bb0(%y: !q, %i: index):
    %e = tensor.empty() : !q
    %a = flashattn.attention mask(#flashattn.causal) ins(%y, %y, %y : !q, !q, !q) outs(%e : !q) -> !q
    %next = arith.addi %i, %c1 : index
    scf.yield %a, %next : !q, index
  }
  return %r#0 : !q
}

func.func @if(%x: !q, %n: index) -> !q {
  %c0 = arith.constant 0 : index
  %more = arith.cmpi sgt, %n, %c0 : index
  %r = scf.if %more -> !q {
    %a = func.call @layer(%x) : (!q) -> !q
    scf.yield %a : !q
  } else {
    scf.yield %x : !q
  }
  return %r : !q
}
