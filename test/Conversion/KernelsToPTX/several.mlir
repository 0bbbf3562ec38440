// Each gpu.module becomes PTX for its target, in the module's order, with what else it says.
// RUN: flash-opt %s -convert-flashattn-kernels-to-ptx | FileCheck %s
// The same text as of upstream's pass, which takes them one by one.
// RUN: flash-opt %s -convert-flashattn-kernels-to-ptx -o - | grep -o 'assembly = .*' > %t.here
// RUN: flash-opt %s -gpu-module-to-binary=format=isa -o - | grep -o 'assembly = .*' > %t.upstream
// RUN: diff %t.here %t.upstream

// CHECK: gpu.binary @first [#gpu.object<#nvvm.target<chip = "sm_80">, properties = {O = 2 : i32}
// CHECK-SAME: .target sm_80
// CHECK-SAME: .visible .entry add(
gpu.module @first [#nvvm.target<chip = "sm_80">] {
  llvm.func @add(%place: !llvm.ptr<1>) attributes {gpu.kernel, nvvm.kernel} {
    %id = nvvm.read.ptx.sreg.tid.x : i32
    llvm.store %id, %place : i32, !llvm.ptr<1>
    llvm.return
  }
}

// CHECK-NOT: gpu.module
// CHECK: gpu.binary @second <#gpu.select_object<0 : i64>> [#gpu.object<#nvvm.target<O = 3, chip = "sm_90a", features = "+ptx80">
// CHECK-SAME: .target sm_90a
// CHECK-SAME: .visible .entry multiply(
gpu.module @second <#gpu.select_object<0 : i64>> [#nvvm.target<O = 3, chip = "sm_90a", features = "+ptx80">] {
  llvm.func @multiply(%place: !llvm.ptr<1>) attributes {gpu.kernel, nvvm.kernel} {
    %id = nvvm.read.ptx.sreg.tid.x : i32
    %square = llvm.mul %id, %id : i32
    llvm.store %square, %place : i32, !llvm.ptr<1>
    llvm.return
  }
}

// CHECK: llvm.func @host
llvm.func @host() {
  llvm.return
}
