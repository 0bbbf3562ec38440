// What stands beside attention and needs no kernel of its own on a GPU: the same numbers as on the CPU, where it is
// computed as it stands.

// RUN: split-file %s %t
// RUN: flash-run %t/layers.mlir --device=cpu --output=@%t/layers.npy
// RUN: flash-run %t/layers.mlir --device=model:sm_80 --expected-output=@%t/layers.npy | FileCheck %s
// RUN: flash-run %t/transposed.mlir --device=cpu --output=@%t/transposed.npy
// RUN: flash-run %t/transposed.mlir --device=model:sm_80 --expected-output=@%t/transposed.npy | FileCheck %s
// RUN: flash-run %t/batches.mlir --device=cpu --output=@%t/batches.npy
// RUN: flash-run %t/batches.mlir --device=model:sm_80 --expected-output=@%t/batches.npy | FileCheck %s
// RUN: flash-run %t/cache.mlir --device=cpu --output=@%t/cache.npy
// RUN: flash-run %t/cache.mlir --device=model:sm_80 --expected-output=@%t/cache.npy | FileCheck %s
// RUN: flash-run %t/private.mlir --device=cpu --output=@%t/private.npy
// RUN: flash-run %t/private.mlir --device=model:sm_80 --expected-output=@%t/private.npy | FileCheck %s
// RUN: flash-run %t/forall.mlir --device=cpu --output=@%t/forall.npy
// RUN: flash-run %t/forall.mlir --device=model:sm_80 --expected-output=@%t/forall.npy | FileCheck %s
// CHECK: expected-output 0: {{.*}}: PASS

//--- layers.mlir
// Two layers with one kernel, and one of their own.
!t = tensor<1x2x24x16xf32>
func.func @layers(%q: !t, %k: !t, %v: !t) -> !t {
  %e = tensor.empty() : !t
  %x = flashattn.attention ins(%q, %k, %v : !t, !t, !t) outs(%e : !t) -> !t
  %y = flashattn.attention ins(%x, %k, %v : !t, !t, !t) outs(%e : !t) -> !t
  %z = flashattn.attention mask(#flashattn.causal) ins(%q, %y, %x : !t, !t, !t) outs(%e : !t) -> !t
  return %z : !t
}

//--- transposed.mlir
// Heads behind positions, before and after.
!t = tensor<2x3x24x16xf32>
!s = tensor<2x24x3x16xf32>
func.func @transposed(%q: !s, %k: !s, %v: !t) -> !s {
  %e = tensor.empty() : !t
  %qt = linalg.transpose ins(%q : !s) outs(%e : !t) permutation = [0, 2, 1, 3]
  %kt = linalg.transpose ins(%k : !s) outs(%e : !t) permutation = [0, 2, 1, 3]
  %x = flashattn.attention ins(%qt, %kt, %v : !t, !t, !t) outs(%e : !t) -> !t
  %es = tensor.empty() : !s
  %r = linalg.transpose ins(%x : !t) outs(%es : !s) permutation = [0, 2, 1, 3]
  return %r : !s
}

//--- batches.mlir
// A batch at a time.
!t = tensor<3x2x24x16xf32>
!s = tensor<1x2x24x16xf32>
func.func @batches(%q: !t, %k: !t) -> !t {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %c3 = arith.constant 3 : index
  %e = tensor.empty() : !t
  %r = scf.for %b = %c0 to %c3 step %c1 iter_args(%acc = %e) -> !t {
    %qb = tensor.extract_slice %q[%b, 0, 0, 0] [1, 2, 24, 16] [1, 1, 1, 1] : !t to !s
    %kb = tensor.extract_slice %k[%b, 0, 0, 0] [1, 2, 24, 16] [1, 1, 1, 1] : !t to !s
    %eb = tensor.empty() : !s
    %x = flashattn.attention ins(%qb, %kb, %kb : !s, !s, !s) outs(%eb : !s) -> !s
    %n = tensor.insert_slice %x into %acc[%b, 0, 0, 0] [1, 2, 24, 16] [1, 1, 1, 1] : !s into !t
    scf.yield %n : !t
  }
  return %r : !t
}

//--- cache.mlir
// A cache that new keys are appended to.
!q = tensor<1x8x2x16xf32>
!c = tensor<1x32x2x16xf32>
func.func @cache(%q: !q, %new: !q, %cache: !c) -> !q {
  %c = tensor.insert_slice %new into %cache[0, 20, 0, 0] [1, 8, 2, 16] [1, 1, 1, 1] : !q into !c
  %e = tensor.empty() : !q
  %x = flashattn.attention layout(bshd) ins(%q, %c, %c : !q, !c, !c) outs(%e : !q) -> !q
  return %x : !q
}

//--- private.mlir
// Heads by halves, through a function.
!t = tensor<1x4x24x16xf32>
!h = tensor<1x2x24x16xf32>
func.func @halves(%q: !t, %k: !t) -> !t {
  %e = tensor.empty() : !t
  %q0 = tensor.extract_slice %q[0, 0, 0, 0] [1, 2, 24, 16] [1, 1, 1, 1] : !t to !h
  %k0 = tensor.extract_slice %k[0, 0, 0, 0] [1, 2, 24, 16] [1, 1, 1, 1] : !t to !h
  %q1 = tensor.extract_slice %q[0, 2, 0, 0] [1, 2, 24, 16] [1, 1, 1, 1] : !t to !h
  %k1 = tensor.extract_slice %k[0, 2, 0, 0] [1, 2, 24, 16] [1, 1, 1, 1] : !t to !h
  %x = func.call @half(%q0, %k0) : (!h, !h) -> !h
  %y = func.call @half(%q1, %k1) : (!h, !h) -> !h
  %r0 = tensor.insert_slice %x into %e[0, 0, 0, 0] [1, 2, 24, 16] [1, 1, 1, 1] : !h into !t
  %r1 = tensor.insert_slice %y into %r0[0, 2, 0, 0] [1, 2, 24, 16] [1, 1, 1, 1] : !h into !t
  return %r1 : !t
}
func.func private @half(%q: !h, %k: !h) -> !h {
  %e = tensor.empty() : !h
  %x = flashattn.attention ins(%q, %k, %k : !h, !h, !h) outs(%e : !h) -> !h
  return %x : !h
}

//--- forall.mlir
// Tiles of queries, as tiling makes them.
!t = tensor<1x2x48x16xf32>
!s = tensor<1x2x16x16xf32>
func.func @forall(%q: !t, %k: !t) -> !t {
  %e = tensor.empty() : !t
  %r = scf.forall (%i) = (0) to (48) step (16) shared_outs(%acc = %e) -> (!t) {
    %qi = tensor.extract_slice %q[0, 0, %i, 0] [1, 2, 16, 16] [1, 1, 1, 1] : !t to !s
    %oi = tensor.extract_slice %acc[0, 0, %i, 0] [1, 2, 16, 16] [1, 1, 1, 1] : !t to !s
    %x = flashattn.attention ins(%qi, %k, %k : !s, !t, !t) outs(%oi : !s) -> !s
    scf.forall.in_parallel {
      tensor.parallel_insert_slice %x into %acc[0, 0, %i, 0] [1, 2, 16, 16] [1, 1, 1, 1] : !s into !t
    }
  }
  return %r : !t
}
