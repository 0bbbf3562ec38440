// A6 of flashattn.combine: a part with a log-sum-exp of -Inf adds nothing, whatever its output holds, here NaN and +Inf.
//
// RUN: rm -rf %t && mkdir %t && %python %S/Inputs/make_special.py %t
// DEFINE: %{device} = cpu
// DEFINE: %{run} = flash-run %s --device=%{device} --verify --input=@%t/parts.npy --input=@%t/logs.npy --function
// RUN: %{run}=merge | FileCheck %s --check-prefixes=NONE,CHECK
// RUN: %{run}=sinks --input=2xf32 | FileCheck %s
// REDEFINE: %{device} = model:sm_90a
// RUN: %{run}=merge | FileCheck %s --check-prefixes=NONE,CHECK
// RUN: %{run}=sinks --input=2xf32 | FileCheck %s
// REDEFINE: %{device} = cuda
// RUN: %if cuda %{ %{run}=merge | FileCheck %s --check-prefixes=NONE,CHECK %}
// RUN: %if cuda %{ %{run}=sinks --input=2xf32 | FileCheck %s %}
// The last row has no part at all.
// NONE: output 0: 1x2x4x16xf32, min {{[^,]*}}, max {{[^,]*}}, mean {{[^,]*}}, first
// NONE: output 1: 1x2x4xf32, {{.*}} 1 not finite, values {{.*}} -INF
// CHECK: verify o: {{.*}}PASS
// CHECK: verify lse {{.*}}PASS

func.func @merge(%o_parts: memref<3x1x2x4x16xf32>, %lse_parts: memref<3x1x2x4xf32>, %o: memref<1x2x4x16xf32>,
                 %lse: memref<1x2x4xf32>) {
  flashattn.combine ins(%o_parts, %lse_parts : memref<3x1x2x4x16xf32>, memref<3x1x2x4xf32>)
      outs(%o, %lse : memref<1x2x4x16xf32>, memref<1x2x4xf32>)
  return
}

func.func @sinks(%o_parts: memref<3x1x2x4x16xf32>, %lse_parts: memref<3x1x2x4xf32>, %sinks: memref<2xf32>,
                 %o: memref<1x2x4x16xf32>, %lse: memref<1x2x4xf32>) {
  flashattn.combine ins(%o_parts, %lse_parts : memref<3x1x2x4x16xf32>, memref<3x1x2x4xf32>)
      sink_logits(%sinks : memref<2xf32>) outs(%o, %lse : memref<1x2x4x16xf32>, memref<1x2x4xf32>)
  return
}
