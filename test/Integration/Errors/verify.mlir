// What --verify refuses, and what it says where there is nothing to compare.

// DEFINE: %{run} = flash-run %s --device=cpu --verify

// An output in the memory of an input.
// RUN: not %{run} --function=overlap | FileCheck %s --check-prefix=OVERLAP
// OVERLAP: verify: flashattn.attention at {{.*}}verify.mlir:[[#@LINE+3]]:3, all 32 rows: expected separate memory for o but got memory of k: FAIL
func.func @overlap(%q: memref<1x2x16x16xf32>, %k: memref<1x2x16x16xf32>) {
  %o = memref.cast %k : memref<1x2x16x16xf32> to memref<1x2x16x16xf32, strided<[512, 256, 16, 1]>>
  flashattn.attention ins(%q, %k, %k : memref<1x2x16x16xf32>, memref<1x2x16x16xf32>, memref<1x2x16x16xf32>)
    outs(%o : memref<1x2x16x16xf32, strided<[512, 256, 16, 1]>>)
  return
}

// Rows that belong to both, of two places in one buffer.
// RUN: not %{run} --function=part | FileCheck %s --check-prefix=PART
// PART: expected separate memory for o but got memory of q: FAIL
!s = memref<1x1x16x16xf32, strided<[384, 384, 16, 1], offset: ?>>
func.func @part(%x: memref<1x1x24x16xf32>) {
  %a = memref.subview %x[0, 0, 0, 0] [1, 1, 16, 16] [1, 1, 1, 1] : memref<1x1x24x16xf32> to memref<1x1x16x16xf32, strided<[384, 384, 16, 1]>>
  %b = memref.subview %x[0, 0, 8, 0] [1, 1, 16, 16] [1, 1, 1, 1] : memref<1x1x24x16xf32> to memref<1x1x16x16xf32, strided<[384, 384, 16, 1], offset: 128>>
  %q = memref.cast %a : memref<1x1x16x16xf32, strided<[384, 384, 16, 1]>> to !s
  %o = memref.cast %b : memref<1x1x16x16xf32, strided<[384, 384, 16, 1], offset: 128>> to !s
  flashattn.attention ins(%q, %q, %q : !s, !s, !s) outs(%o : !s)
  return
}

// A gradient in the memory of what it is made of, where the op does not show it.
// RUN: not %{run} --function=gradient | FileCheck %s --check-prefix=GRADIENT
// GRADIENT: verify: flashattn.attention_backward at {{.*}}verify.mlir:[[#@LINE+6]]:3, {{.*}}: expected separate memory for dk but got memory of d_o: FAIL
!g = memref<1x2x16x16xf32>
!h = memref<1x2x16x16xf32, strided<[512, 256, 16, 1]>>
!l = memref<1x2x16xf32>
func.func @gradient(%q: !g, %o: !g, %lse: !l, %d_o: !g, %dq: !g, %dv: !g) {
  %dk = memref.cast %d_o : !g to !h
  flashattn.attention_backward ins(%q, %q, %q, %o, %lse, %d_o : !g, !g, !g, !g, !l, !g) outs(%dq, %dk, %dv : !g, !h, !g)
  return
}

// RUN: not %{run} --function=never --input=random --input=0 | FileCheck %s --check-prefix=NEVER
// NEVER: verify: flashattn.attention at {{.*}}verify.mlir:[[#@LINE+6]]:5, not reached
// NEVER-NEXT: verify: 0 of 1 ops compared: FAIL
func.func @never(%q: memref<1x2x16x16xf32>, %n: index, %o: memref<1x2x16x16xf32>) {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  scf.for %i = %c0 to %n step %c1 {
    flashattn.attention ins(%q, %q, %q : memref<1x2x16x16xf32>, memref<1x2x16x16xf32>, memref<1x2x16x16xf32>) outs(%o : memref<1x2x16x16xf32>)
  }
  return
}

// RUN: not %{run} --function=parallel 2>&1 | FileCheck %s --check-prefix=PARALLEL
// PARALLEL: error: --verify: flashattn.attention at {{.*}}verify.mlir:[[#@LINE+5]]:5 cannot be compared with the reference: expected no enclosing parallel loop but got scf.parallel; --expected-output compares the function's outputs with files instead
func.func @parallel(%q: memref<1x2x16x16xf32>, %o: memref<1x2x16x16xf32>) {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  scf.parallel (%i) = (%c0) to (%c1) step (%c1) {
    flashattn.attention ins(%q, %q, %q : memref<1x2x16x16xf32>, memref<1x2x16x16xf32>, memref<1x2x16x16xf32>) outs(%o : memref<1x2x16x16xf32>)
  }
  return
}

// RUN: not %{run} --function=dynamic --input=1x0x8x16xf16 --input=1x0x8x16xf16 | FileCheck %s --check-prefix=EMPTY
// EMPTY: verify: flashattn.attention at {{.*}}, all 0 rows
// EMPTY-NEXT: verify o: no elements to compare
// EMPTY-NEXT: verify: 0 of 1 ops compared: FAIL

// Sizes that only show inside.
// RUN: not %{run} --function=outer --input=1x2x8x16xf16 --input=1x2x9x16xf16 --input=4 2>&1 | FileCheck %s --check-prefix=SIZES
// SIZES: error: the operands of flashattn.attention at {{.*}}verify.mlir:[[#@LINE+3]]:8 do not fit together: expected batch size of 'k' to be 1 as in 'q' but got 4
!d = tensor<?x?x?x16xf16>
func.func @dynamic(%q: !d, %k: !d, %o: !d) -> !d {
  %r = flashattn.attention ins(%q, %k, %k : !d, !d, !d) outs(%o : !d) -> !d
  return %r : !d
}
func.func @outer(%q: !d, %k: !d, %n: index) -> !d {
  %more = tensor.empty(%n, %n, %n) : !d
  %r = call @dynamic(%q, %more, %q) : (!d, !d, !d) -> !d
  return %r : !d
}

// RUN: not %{run} --function=overlap --verify-plant-fault=all 2>&1 | FileCheck %s --check-prefix=FAULT
// FAULT: error: --verify-plant-fault: expected OP[.RESULT]:ELEMENT with OP a number or all but got 'all'
// RUN: not %{run} --function=overlap --verify-plant-fault=3:1 2>&1 | FileCheck %s --check-prefix=NUMBER
// NUMBER: error: expected the number of an op below 1 for the fault but got 3

// RUN: echo 'func.func private @flashattn_observe_x() func.func @f() { return }' > %t.name.mlir
// RUN: not flash-run %t.name.mlir --device=cpu --verify 2>&1 | FileCheck %s --check-prefix=NAME
// NAME: error: --verify: expected no symbol named flashattn_observe_… but got 'flashattn_observe_x'

// A module that has been lowered.
// RUN: flash-opt %s -flashattn-to-cpu -o %t.lowered.mlir
// RUN: not flash-run %t.lowered.mlir --device=cpu 2>&1 | FileCheck %s --check-prefix=LOWERED
// LOWERED: error: expected a module with a func.func but got a module that is already lowered, with llvm.func '{{.+}}'
