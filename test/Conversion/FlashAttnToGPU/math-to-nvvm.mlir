// RUN: flash-opt %s -flashattn-math-to-nvvm | FileCheck %s

// CHECK-LABEL: func @scalar
// CHECK: llvm.call_intrinsic "llvm.nvvm.ex2.approx.ftz.f"(%{{.*}}) : (f32) -> f32
func.func @scalar(%x: f32) -> f32 {
  %y = math.exp2 %x : f32
  return %y : f32
}

// CHECK-LABEL: func @vector
// CHECK: %[[E:.*]]:2 = vector.to_elements
// CHECK: %[[A:.*]] = llvm.call_intrinsic "llvm.nvvm.lg2.approx.ftz.f"(%[[E]]#0)
// CHECK: %[[B:.*]] = llvm.call_intrinsic "llvm.nvvm.lg2.approx.ftz.f"(%[[E]]#1)
// CHECK: vector.from_elements %[[A]], %[[B]] : vector<2xf32>
func.func @vector(%x: vector<2xf32>) -> vector<2xf32> {
  %y = math.log2 %x : vector<2xf32>
  return %y : vector<2xf32>
}

// Only f32 has the instruction.
// CHECK-LABEL: func @double
// CHECK: math.exp2
func.func @double(%x: f64) -> f64 {
  %y = math.exp2 %x : f64
  return %y : f64
}
