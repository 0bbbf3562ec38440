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

// Pairs of f32 become words of bf16, the second the upper half.
// CHECK-LABEL: func @words
// CHECK: %[[X:.*]]:4 = vector.to_elements
// CHECK: %[[FIRST:.*]] = llvm.call_intrinsic "llvm.nvvm.ff2bf16x2.rn"(%[[X]]#1, %[[X]]#0) : (f32, f32) -> vector<2xbf16>
// CHECK: %[[WORD:.*]] = vector.bitcast %[[FIRST]] : vector<2xbf16> to vector<1xi32>
// CHECK: llvm.call_intrinsic "llvm.nvvm.ff2bf16x2.rn"(%[[X]]#3, %[[X]]#2)
// CHECK: %[[WORDS:.*]] = vector.from_elements %{{.*}}, %{{.*}} : vector<2xi32>
// CHECK: vector.bitcast %[[WORDS]] : vector<2xi32> to vector<4xbf16>
// CHECK: arith.truncf %{{.*}} : vector<3xf32> to vector<3xbf16>
// CHECK: arith.truncf %{{.*}} : vector<4xf32> to vector<4xf16>
func.func @words(%x: vector<4xf32>, %odd: vector<3xf32>) -> (vector<4xbf16>, vector<3xbf16>, vector<4xf16>) {
  %a = arith.truncf %x : vector<4xf32> to vector<4xbf16>
  %b = arith.truncf %odd : vector<3xf32> to vector<3xbf16>
  %c = arith.truncf %x : vector<4xf32> to vector<4xf16>
  return %a, %b, %c : vector<4xbf16>, vector<3xbf16>, vector<4xf16>
}

// For a chip with warpgroups. Pairs of 16 bits stay in a register.
// CHECK: gpu.module @hopper
gpu.module @hopper [#nvvm.target<chip = "sm_90a">] {
  // CHECK-LABEL: func @pairs
  // CHECK-SAME: (%[[W:.*]]: vector<2xbf16>, %[[D:.*]]: vector<2xbf16>, %[[H:.*]]: vector<2xf16>, %[[O:.*]]: vector<3xbf16>)
  // CHECK: %[[WORD:.*]] = vector.to_elements %{{.*}} : vector<1xi32>
  // CHECK: %[[LOW:.*]] = arith.shli %[[WORD]], %c16_i32
  // CHECK: %[[HIGH:.*]] = arith.andi %[[WORD]], %c-65536_i32
  // CHECK: arith.bitcast %[[LOW]] : i32 to f32
  // CHECK: arith.bitcast %[[HIGH]] : i32 to f32
  // CHECK: %[[MASK:.*]] = llvm.inline_asm "set.neu.u32.bf16x2 $0, $1, $2;"
  // CHECK: arith.andi %{{.*}}, %[[MASK]] : i32
  // CHECK: "set.neu.u32.f16x2 $0, $1, $2;"
  // CHECK: arith.extf %[[O]] : vector<3xbf16>
  func.func @pairs(%w: vector<2xbf16>, %d: vector<2xbf16>, %h: vector<2xf16>, %odd: vector<3xbf16>) -> (vector<2xf32>, vector<2xbf16>, vector<2xf16>, vector<3xf32>) {
    %zero = arith.constant dense<0.0> : vector<2xbf16>
    %none = arith.constant dense<0.0> : vector<2xf16>
    %f = arith.extf %w : vector<2xbf16> to vector<2xf32>
    %shown = arith.cmpf une, %w, %zero : vector<2xbf16>
    %s = arith.select %shown, %d, %zero : vector<2xi1>, vector<2xbf16>
    %seen = arith.cmpf une, %h, %none : vector<2xf16>
    %t = arith.select %seen, %h, %none : vector<2xi1>, vector<2xf16>
    %o = arith.extf %odd : vector<3xbf16> to vector<3xf32>
    return %f, %s, %t, %o : vector<2xf32>, vector<2xbf16>, vector<2xf16>, vector<3xf32>
  }

  // Of what is cut to 16 bits LLVM keeps words of its own accord.
  // CHECK-LABEL: func @rounded
  // CHECK: arith.truncf %{{.*}} : vector<2xf32> to vector<2xbf16>
  func.func @rounded(%x: vector<2xf32>) -> vector<2xbf16> {
    %r = arith.truncf %x : vector<2xf32> to vector<2xbf16>
    return %r : vector<2xbf16>
  }

  // A choice by several conditions is one, and is made an element after the other: conditions are few registers.
  // CHECK-LABEL: func @several
  // CHECK: %[[X:.*]]:2 = vector.to_elements %{{.*}} : vector<2xf32>
  // CHECK: %[[NEAR:.*]] = arith.cmpi sge
  // CHECK: %[[PAST:.*]] = arith.cmpi sge
  // CHECK: %[[BOTH:.*]] = arith.andi %[[NEAR]], %[[PAST]] : i1
  // CHECK: %[[ANY:.*]] = arith.ori %[[BOTH]], %{{.*}} : i1
  // CHECK: %[[FIRST:.*]] = llvm.inline_asm "selp.f32 $0, $1, $2, $3;", "=f,f,f,b" %[[X]]#0, %{{.*}}, %[[ANY]]
  // CHECK: arith.cmpi sge
  // CHECK: arith.cmpi sge
  // CHECK: %[[SECOND:.*]] = llvm.inline_asm {{.*}} %[[X]]#1,
  // CHECK: vector.from_elements %[[FIRST]], %[[SECOND]]
  func.func @several(%x: vector<2xf32>, %p: vector<2xi32>, %k: vector<2xi32>, %sink: vector<2xi1>) -> vector<2xf32> {
    %hidden = arith.constant dense<0xFF800000> : vector<2xf32>
    %near = arith.cmpi sge, %p, %k : vector<2xi32>
    %past = arith.cmpi sge, %k, %p : vector<2xi32>
    %both = arith.andi %near, %past : vector<2xi1>
    %any = arith.ori %both, %sink : vector<2xi1>
    %y = arith.select %any, %x, %hidden : vector<2xi1>, vector<2xf32>
    return %y : vector<2xf32>
  }

  // Which of two conditions decides, as before a cut and behind it, may be known: then one choice goes away.
  // CHECK-LABEL: func @either
  // CHECK-SAME: %[[BEHIND:[a-z0-9]+]]: vector<2xi1>
  // CHECK: %[[HERE:.*]] = arith.select %{{.*}}, %{{.*}}, %{{.*}} : vector<2xi1>, vector<2xf32>
  // CHECK-COUNT-2: "selp.f32 $0, $1, $2, $3;"
  // CHECK: %[[THERE:.*]] = vector.from_elements
  // CHECK: %[[Y:.*]] = arith.select %[[BEHIND]], %[[HERE]], %[[THERE]] : vector<2xi1>, vector<2xf32>
  // CHECK: return %[[Y]]
  func.func @either(%behind: vector<2xi1>, %x: vector<2xf32>, %near: vector<2xi1>, %past: vector<2xi1>, %sink: vector<2xi1>) -> vector<2xf32> {
    %hidden = arith.constant dense<0xFF800000> : vector<2xf32>
    %any = arith.ori %past, %sink : vector<2xi1>
    %shown = arith.select %behind, %near, %any : vector<2xi1>, vector<2xi1>
    %y = arith.select %shown, %x, %hidden : vector<2xi1>, vector<2xf32>
    return %y : vector<2xf32>
  }

  // Conditions that share parts would have twice as many with each op. Beyond a limit they stay as they are.
  // CHECK-LABEL: func @shared_parts
  // CHECK-NOT: selp
  // CHECK: arith.select {{.*}} : vector<2xi1>, vector<2xf32>
  func.func @shared_parts(%x: vector<2xf32>, %y: vector<2xf32>, %a0: vector<2xi1>, %o0: vector<2xi1>) -> vector<2xf32> {
    %a1 = arith.andi %a0, %o0 : vector<2xi1>
    %o1 = arith.ori %a0, %o0 : vector<2xi1>
    %a2 = arith.andi %a1, %o1 : vector<2xi1>
    %o2 = arith.ori %a1, %o1 : vector<2xi1>
    %a3 = arith.andi %a2, %o2 : vector<2xi1>
    %o3 = arith.ori %a2, %o2 : vector<2xi1>
    %a4 = arith.andi %a3, %o3 : vector<2xi1>
    %o4 = arith.ori %a3, %o3 : vector<2xi1>
    %a5 = arith.andi %a4, %o4 : vector<2xi1>
    %o5 = arith.ori %a4, %o4 : vector<2xi1>
    %a6 = arith.andi %a5, %o5 : vector<2xi1>
    %o6 = arith.ori %a5, %o5 : vector<2xi1>
    %a7 = arith.andi %a6, %o6 : vector<2xi1>
    %o7 = arith.ori %a6, %o6 : vector<2xi1>
    %z = arith.select %a7, %x, %y : vector<2xi1>, vector<2xf32>
    return %z : vector<2xf32>
  }

  // CHECK-LABEL: func @shared_choices
  // CHECK-COUNT-1: arith.select {{.*}} : vector<2xi1>, vector<2xf32>
  // CHECK-NEXT: return
  func.func @shared_choices(%x: vector<2xf32>, %y: vector<2xf32>, %a: vector<2xi1>, %b: vector<2xi1>, %s0: vector<2xi1>, %t0: vector<2xi1>) -> vector<2xf32> {
    %s1 = arith.select %a, %s0, %t0 : vector<2xi1>, vector<2xi1>
    %t1 = arith.select %b, %s0, %t0 : vector<2xi1>, vector<2xi1>
    %s2 = arith.select %a, %s1, %t1 : vector<2xi1>, vector<2xi1>
    %t2 = arith.select %b, %s1, %t1 : vector<2xi1>, vector<2xi1>
    %s3 = arith.select %a, %s2, %t2 : vector<2xi1>, vector<2xi1>
    %t3 = arith.select %b, %s2, %t2 : vector<2xi1>, vector<2xi1>
    %s4 = arith.select %a, %s3, %t3 : vector<2xi1>, vector<2xi1>
    %t4 = arith.select %b, %s3, %t3 : vector<2xi1>, vector<2xi1>
    %s5 = arith.select %a, %s4, %t4 : vector<2xi1>, vector<2xi1>
    %t5 = arith.select %b, %s4, %t4 : vector<2xi1>, vector<2xi1>
    %z = arith.select %s5, %x, %y : vector<2xi1>, vector<2xf32>
    return %z : vector<2xf32>
  }

  // LLVM has one selection for one condition.
  // CHECK-LABEL: func @one
  // CHECK: arith.cmpi sge, %{{.*}} : vector<2xi32>
  // CHECK: arith.select {{.*}} : vector<2xi1>, vector<2xf32>
  func.func @one(%x: vector<2xf32>, %p: vector<2xi32>, %k: vector<2xi32>) -> vector<2xf32> {
    %hidden = arith.constant dense<0xFF800000> : vector<2xf32>
    %near = arith.cmpi sge, %p, %k : vector<2xi32>
    %y = arith.select %near, %x, %hidden : vector<2xi1>, vector<2xf32>
    return %y : vector<2xf32>
  }
}

// Others have no registers to spare.
// CHECK: gpu.module @ampere
gpu.module @ampere [#nvvm.target<chip = "sm_80">] {
  // CHECK-LABEL: func @pairs
  // CHECK: arith.extf
  // CHECK: arith.select {{.*}} : vector<2xi1>, vector<2xbf16>
  func.func @pairs(%w: vector<2xbf16>, %d: vector<2xbf16>) -> (vector<2xf32>, vector<2xbf16>) {
    %zero = arith.constant dense<0.0> : vector<2xbf16>
    %f = arith.extf %w : vector<2xbf16> to vector<2xf32>
    %shown = arith.cmpf une, %w, %zero : vector<2xbf16>
    %s = arith.select %shown, %d, %zero : vector<2xi1>, vector<2xbf16>
    return %f, %s : vector<2xf32>, vector<2xbf16>
  }

  // CHECK-LABEL: func @several
  // CHECK: arith.select {{.*}} : vector<2xi1>, vector<2xf32>
  func.func @several(%x: vector<2xf32>, %near: vector<2xi1>, %past: vector<2xi1>) -> vector<2xf32> {
    %hidden = arith.constant dense<0xFF800000> : vector<2xf32>
    %both = arith.andi %near, %past : vector<2xi1>
    %y = arith.select %both, %x, %hidden : vector<2xi1>, vector<2xf32>
    return %y : vector<2xf32>
  }
}

// Nor is anything known of a chip that has no row.
// CHECK: gpu.module @unknown
gpu.module @unknown [#nvvm.target<chip = "sm_123">] {
  // CHECK-LABEL: func @pairs
  // CHECK: arith.extf
  func.func @pairs(%w: vector<2xbf16>) -> vector<2xf32> {
    %f = arith.extf %w : vector<2xbf16> to vector<2xf32>
    return %f : vector<2xf32>
  }
}

// F3: pairs of probabilities as f8, the second one as the upper byte.
// CHECK-LABEL: func @to_f8
// CHECK: %[[P:.*]]:4 = vector.to_elements
// CHECK: %[[LOW:.*]] = llvm.call_intrinsic "llvm.nvvm.ff.to.e4m3x2.rn"(%[[P]]#1, %[[P]]#0) : (f32, f32) -> i16
// CHECK: %[[HIGH:.*]] = llvm.call_intrinsic "llvm.nvvm.ff.to.e4m3x2.rn"(%[[P]]#3, %[[P]]#2) : (f32, f32) -> i16
// CHECK: %[[PAIRS:.*]] = vector.from_elements %[[LOW]], %[[HIGH]] : vector<2xi16>
// CHECK: vector.bitcast %[[PAIRS]] : vector<2xi16> to vector<4xf8E4M3FN>
func.func @to_f8(%p: vector<4xf32>) -> vector<4xf8E4M3FN> {
  %q = arith.truncf %p : vector<4xf32> to vector<4xf8E4M3FN>
  return %q : vector<4xf8E4M3FN>
}
