// Which memrefs a function writes: through whatever shares their memory, ops say it by their interfaces. What is written is
// an output of a function without results.

// DEFINE: %{run} = flash-run %s --device=cpu --input=2x2xf32=1 --input=2x2xf32=2
// RUN: %{run} --function=transposed | FileCheck %s --check-prefix=SECOND
// RUN: %{run} --function=carried | FileCheck %s --check-prefix=SECOND
// RUN: %{run} --function=chosen --input=1 | FileCheck %s --check-prefix=BOTH
// RUN: %{run} --function=returned | FileCheck %s --check-prefix=SECOND
// RUN: %{run} --function=branched --input=1 | FileCheck %s --check-prefix=BOTH
// SECOND: output 0: 2x2xf32{{.*}}values 1.0000 1.0000 1.0000 1.0000
// SECOND-NOT: output 1
// BOTH: output 0: 2x2xf32
// BOTH: output 1: 2x2xf32
// BOTH-NOT: output 2

// What is written is no input that was changed, and can be kept.
// RUN: flash-run %s --device=cpu --function=attention --verify --output=@%t.npy | FileCheck %s --check-prefix=VERIFIED --implicit-check-not=FAIL
// VERIFIED: output 0: 1x1x4x2xf32
// VERIFIED: verify: 1 of 1 ops compared

// A read alone makes no output.
// RUN: flash-run %s --device=cpu --function=read --input=2x2xf32=1 | FileCheck %s --check-prefix=NOTHING --implicit-check-not=output
// NOTHING: device: cpu

!m = memref<2x2xf32>
func.func @transposed(%x: !m, %y: !m) {
  %t = memref.transpose %y (i, j) -> (j, i) : !m to memref<2x2xf32, strided<[1, 2]>>
  memref.copy %x, %t : !m to memref<2x2xf32, strided<[1, 2]>>
  return
}
func.func @carried(%x: !m, %y: !m) {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %last = scf.for %i = %c0 to %c1 step %c1 iter_args(%m = %y) -> (!m) {
    scf.yield %m : !m
  }
  memref.copy %x, %last : !m to !m
  return
}
func.func @chosen(%x: !m, %y: !m, %first: i1) {
  %c0 = arith.constant 0 : index
  %one = arith.constant 1.0 : f32
  %m = arith.select %first, %x, %y : !m
  memref.store %one, %m[%c0, %c0] : !m
  return
}
func.func private @give(%m: !m) -> !m {
  return %m : !m
}
func.func @returned(%x: !m, %y: !m) {
  %m = call @give(%y) : (!m) -> !m
  memref.copy %x, %m : !m to !m
  return
}
func.func @branched(%x: !m, %y: !m, %first: i1) {
  %c0 = arith.constant 0 : index
  %one = arith.constant 1.0 : f32
  cf.cond_br %first, ^write(%x : !m), ^write(%y : !m)
^write(%m: !m):
  memref.store %one, %m[%c0, %c0] : !m
  return
}
func.func @attention(%q: memref<1x1x2x4xf32>, %o: memref<1x1x4x2xf32>) {
  %t = memref.transpose %o (b, h, d, n) -> (b, h, n, d) : memref<1x1x4x2xf32> to memref<1x1x2x4xf32, strided<[8, 8, 1, 2]>>
  %own = memref.alloc() : memref<1x1x2x4xf32>
  flashattn.attention ins(%q, %q, %q : memref<1x1x2x4xf32>, memref<1x1x2x4xf32>, memref<1x1x2x4xf32>) outs(%own : memref<1x1x2x4xf32>)
  memref.copy %own, %t : memref<1x1x2x4xf32> to memref<1x1x2x4xf32, strided<[8, 8, 1, 2]>>
  memref.dealloc %own : memref<1x1x2x4xf32>
  return
}
func.func @read(%x: !m) {
  %c0 = arith.constant 0 : index
  %value = memref.load %x[%c0, %c0] : !m
  return
}
