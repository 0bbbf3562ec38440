// REQUIRES: fakecuda
// Memory of a loop over tensors: what a turn no longer needs is free for the next. The driver is a fake
// one with room for a few of the tensors, whose kernels write nothing.

// DEFINE: %{run} = env FLASHATTN_CUDA_DRIVER=%fakecuda FAKE_CUDA_MEMORY=100000 flash-run %s --device=cuda
// RUN: %{run} --function=for --input=random --input=index=200 --bench=0.01 | FileCheck %s
// RUN: %{run} --function=while --input=random --input=index=200 | FileCheck %s
// RUN: not %{run} --function=ten 2>&1 | FileCheck %s --check-prefix=FULL
// CHECK: output 0: 1x2x16x16xf32
// FULL: error: out of memory on cuda:0

!q = tensor<1x2x16x16xf32>

func.func private @layer(%x: !q) -> !q {
  %e = tensor.empty() : !q
  %a = flashattn.attention ins(%x, %x, %x : !q, !q, !q) outs(%e : !q) -> !q
  return %a : !q
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
    %a = func.call @layer(%y) : (!q) -> !q
    %next = arith.addi %i, %c1 : index
    scf.yield %a, %next : !q, index
  }
  return %r#0 : !q
}

// Without a loop all of them live until the call is over.
func.func @ten(%x: !q) -> !q {
  %0 = func.call @layer(%x) : (!q) -> !q
  %1 = func.call @layer(%0) : (!q) -> !q
  %2 = func.call @layer(%1) : (!q) -> !q
  %3 = func.call @layer(%2) : (!q) -> !q
  %4 = func.call @layer(%3) : (!q) -> !q
  %5 = func.call @layer(%4) : (!q) -> !q
  %6 = func.call @layer(%5) : (!q) -> !q
  %7 = func.call @layer(%6) : (!q) -> !q
  %8 = func.call @layer(%7) : (!q) -> !q
  %9 = func.call @layer(%8) : (!q) -> !q
  return %9 : !q
}
