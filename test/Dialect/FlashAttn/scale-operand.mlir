// RUN: flash-opt %s -split-input-file -verify-diagnostics | flash-opt -split-input-file -verify-diagnostics | FileCheck %s --check-prefix=READ
// RUN: flash-opt %s -split-input-file -verify-diagnostics -canonicalize | FileCheck %s --check-prefix=FOLD
// RUN: flash-opt %s -split-input-file -verify-diagnostics -flashattn-select-schedule=chip=cpu -flashattn-tile -cse | FileCheck %s --check-prefix=CPU
// RUN: flash-opt %s -split-input-file -verify-diagnostics -flashattn-select-schedule=chip=sm_90a -flashattn-tile -cse | FileCheck %s --check-prefix=HOPPER

// A1: the scale as an operand, of which each program makes once what its steps need.
// READ-LABEL: func @operand
// READ-SAME: %[[S:[a-z0-9]*]]: f32)
// READ: flashattn.attention mask(#flashattn.causal) scale(%[[S]])
// CPU-LABEL: func @operand
// CPU-SAME: %[[S:[a-z0-9]*]]: f32)
// CPU: %[[LOG2E:.*]] = arith.constant 1.44269502 : f32
// CPU: %[[C:.*]] = arith.mulf %[[S]], %[[LOG2E]] : f32
// CPU: flashattn.tile_loop
// CPU: %[[FACTORS:.*]] = vector.broadcast %[[C]] : f32 to vector<[[M:.*]]x[[N:.*]]xf32>
// CPU: math.fma %{{.*}}, %[[FACTORS]], %{{.*}} : vector<[[M]]x[[N]]xf32>
// HOPPER-LABEL: func @operand
// HOPPER-SAME: %[[S:[a-z0-9]*]]: f32)
// HOPPER: %[[C:.*]] = arith.mulf %[[S]], %{{.*}} : f32
// HOPPER: flashattn.tile_loop
// HOPPER: flashattn.softmax_step %{{.*}} factor(%[[C]])
// HOPPER-NOT: %[[S]]{{[^0-9]}}
// HOPPER: return
func.func @operand(%q: memref<?x?x?x64xf16>, %o: memref<?x?x?x64xf16>, %s: f32) {
  flashattn.attention mask(#flashattn.causal) scale(%s)
      ins(%q, %q, %q : memref<?x?x?x64xf16>, memref<?x?x?x64xf16>, memref<?x?x?x64xf16>)
      outs(%o : memref<?x?x?x64xf16>)
  return
}

// -----

// Before what a softcap does to the scores it is divided by the cap; the exponents do not know it.
// CPU-LABEL: func @softcap
// CPU-SAME: %[[S:[a-z0-9]*]]: f32)
// CPU: flashattn.tile_loop
// CPU: %[[PART:.*]] = arith.mulf %[[S]], %{{.*}} : f32
// CPU: %[[PARTS:.*]] = vector.broadcast %[[PART]]
// CPU: %[[X:.*]] = arith.mulf %{{.*}}, %[[PARTS]]
// CPU: math.tanh %[[X]]
// CPU-NOT: %[[S]]{{[^0-9]}}
// CPU: return
func.func @softcap(%q: memref<?x?x?x64xf32>, %o: memref<?x?x?x64xf32>, %s: f32) {
  flashattn.attention scale(%s) softcap(2.0)
      ins(%q, %q, %q : memref<?x?x?x64xf32>, memref<?x?x?x64xf32>, memref<?x?x?x64xf32>)
      outs(%o : memref<?x?x?x64xf32>)
  return
}

// -----

// FOLD-LABEL: func @constant
// FOLD-NOT: arith.constant
// FOLD: flashattn.attention scale(2.500000e-01)
func.func @constant(%q: memref<?x?x?x64xf16>, %o: memref<?x?x?x64xf16>) {
  %s = arith.constant 0.25 : f32
  flashattn.attention scale(%s)
      ins(%q, %q, %q : memref<?x?x?x64xf16>, memref<?x?x?x64xf16>, memref<?x?x?x64xf16>)
      outs(%o : memref<?x?x?x64xf16>)
  return
}

// -----

// An attribute could not say it.
// FOLD-LABEL: func @out_of_range
// FOLD: %[[ZERO:.*]] = arith.constant 0.000000e+00 : f32
// FOLD: flashattn.attention scale(%[[ZERO]])
func.func @out_of_range(%q: memref<?x?x?x64xf16>, %o: memref<?x?x?x64xf16>) {
  %s = arith.constant 0.0 : f32
  flashattn.attention scale(%s)
      ins(%q, %q, %q : memref<?x?x?x64xf16>, memref<?x?x?x64xf16>, memref<?x?x?x64xf16>)
      outs(%o : memref<?x?x?x64xf16>)
  return
}

// -----

func.func @both(%q: memref<?x?x?x64xf16>, %o: memref<?x?x?x64xf16>, %s: f32) {
  // expected-error@+1 {{expected one scale but got an attribute, 0.5, and an operand}}
  "flashattn.attention"(%q, %q, %q, %s, %o) <{
    scale = 0.5 : f32, operandSegmentSizes = array<i32: 1, 1, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0, 1, 0>
  }> : (memref<?x?x?x64xf16>, memref<?x?x?x64xf16>, memref<?x?x?x64xf16>, f32, memref<?x?x?x64xf16>) -> ()
  return
}

// -----

func.func @type(%q: memref<?x?x?x64xf16>, %o: memref<?x?x?x64xf16>, %s: f64) {
  // expected-note@-1 {{prior use here}}
  // expected-error@+1 {{use of value '%s' expects different type than prior uses: 'f32' vs 'f64'}}
  flashattn.attention scale(%s)
      ins(%q, %q, %q : memref<?x?x?x64xf16>, memref<?x?x?x64xf16>, memref<?x?x?x64xf16>)
      outs(%o : memref<?x?x?x64xf16>)
  return
}
