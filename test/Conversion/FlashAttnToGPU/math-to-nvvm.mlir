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

// The base changes before or after.
// CHECK-LABEL: func @other_bases
// CHECK: %[[X:.*]] = arith.mulf %{{.*}}, %{{.*}} : f32
// CHECK: llvm.call_intrinsic "llvm.nvvm.ex2.approx.ftz.f"(%[[X]])
// CHECK: %[[L:.*]] = llvm.call_intrinsic "llvm.nvvm.lg2.approx.ftz.f"
// CHECK: arith.mulf %[[L]], %{{.*}} : f32
// CHECK: llvm.call_intrinsic "llvm.nvvm.rsqrt.approx.ftz.f"
func.func @other_bases(%x: f32) -> (f32, f32, f32) {
  %e = math.exp %x : f32
  %l = math.log %x : f32
  %r = math.rsqrt %x : f32
  return %e, %l, %r : f32, f32, f32
}

// One instruction where 11 bits will do; otherwise two of that unit, and a series near 0.
// CHECK-LABEL: func @tanh
// CHECK: %[[A:.*]] = math.tanh %{{.*}} fastmath<afn>
// CHECK-NOT: math.tanh
// CHECK: llvm.call_intrinsic "llvm.nvvm.ex2.approx.ftz.f"
// CHECK: llvm.call_intrinsic "llvm.nvvm.rcp.approx.ftz.f"
// CHECK: %[[FAR:.*]] = math.fma
// CHECK-COUNT-5: math.fma
// CHECK: %[[NEAR:.*]] = arith.mulf
// CHECK: arith.select %{{.*}}, %[[NEAR]], %[[FAR]]
func.func @tanh(%x: f32) -> (f32, f32) {
  %a = math.tanh %x fastmath<afn> : f32
  %y = math.tanh %x : f32
  return %a, %y : f32, f32
}

// What is made of others, or of a polynomial, and what is an intrinsic.
// CHECK-LABEL: func @others
// CHECK-NOT: math.{{sinh|powf|erf|sin|atan2}}
// CHECK: llvm.call_intrinsic "llvm.nvvm.sqrt.rn.f"
func.func @others(%x: vector<2xf32>) -> (vector<2xf32>, vector<2xf32>, vector<2xf32>, vector<2xf32>, vector<2xf32>, vector<2xf32>) {
  %a = math.sinh %x : vector<2xf32>
  %b = math.powf %x, %x : vector<2xf32>
  %c = math.erf %x : vector<2xf32>
  %d = math.sin %x : vector<2xf32>
  %e = math.atan2 %x, %x : vector<2xf32>
  %f = math.sqrt %x : vector<2xf32>
  return %a, %b, %c, %d, %e, %f : vector<2xf32>, vector<2xf32>, vector<2xf32>, vector<2xf32>, vector<2xf32>, vector<2xf32>
}

// gpu-to-nvvm takes none of their intrinsics.
// CHECK-LABEL: func @bits
// CHECK-SAME: %[[X:.*]]: vector<2xf32>, %[[S:.*]]: vector<2xf32>
// CHECK-DAG: %[[SIGN:.*]] = arith.constant dense<-2147483648> : vector<2xi32>
// CHECK-DAG: %[[REST:.*]] = arith.constant dense<2147483647> : vector<2xi32>
// CHECK: %[[XBITS:.*]] = arith.bitcast %[[X]] : vector<2xf32> to vector<2xi32>
// CHECK: %[[A:.*]] = arith.andi %[[XBITS]], %[[REST]]
// CHECK: %[[SBITS:.*]] = arith.bitcast %[[S]]
// CHECK: %[[B:.*]] = arith.andi %[[SBITS]], %[[SIGN]]
// CHECK: %[[AB:.*]] = arith.ori %[[A]], %[[B]]
// CHECK: arith.bitcast %[[AB]] : vector<2xi32> to vector<2xf32>
// CHECK: llvm.call_intrinsic "llvm.nvvm.lg2.approx.ftz.f"
// CHECK: arith.mulf %{{.*}}, %cst{{.*}} : vector<2xf32>
// CHECK-NOT: math.
func.func @bits(%x: vector<2xf32>, %s: vector<2xf32>) -> (vector<2xf32>, vector<2xf32>, vector<2xf32>) {
  %a = math.copysign %x, %s : vector<2xf32>
  %b = math.log10 %x : vector<2xf32>
  %c = math.round %x : vector<2xf32>
  return %a, %b, %c : vector<2xf32>, vector<2xf32>, vector<2xf32>
}
