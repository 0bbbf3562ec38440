// A6 of flashattn.combine: a part with a log-sum-exp of -Inf adds nothing, whatever its output holds, here NaN and +Inf,
// and whatever the rest of its log-sum-exp is. Log-sum-exps of -1e9 in two numbers weigh parts by the second one.
//
// RUN: rm -rf %t && mkdir %t && %python %S/Inputs/make_special.py %t
// RUN: flash-run %s --device=cpu --verify --input=@%t/parts.npy --input=@%t/logs.npy --function=merge | FileCheck %s --check-prefixes=NONE,CHECK
// RUN: flash-run %s --device=cpu --verify --input=@%t/parts.npy --input=@%t/logs.npy --function=sinks --input=2xf32 | FileCheck %s
// RUN: flash-run %s --device=model:sm_90a --verify --input=@%t/parts.npy --input=@%t/logs.npy --function=merge | FileCheck %s --check-prefixes=NONE,CHECK
// RUN: flash-run %s --device=model:sm_90a --verify --input=@%t/parts.npy --input=@%t/logs.npy --function=sinks --input=2xf32 | FileCheck %s
// RUN: flash-run %s --device=cpu --verify --input=@%t/parts.npy --input=@%t/far-logs.npy --input=@%t/rests.npy --function=rests --input=2xf32=-1e9 | FileCheck %s
// RUN: flash-run %s --device=model:sm_90a --verify --input=@%t/parts.npy --input=@%t/far-logs.npy --input=@%t/rests.npy --function=rests --input=2xf32=-1e9 | FileCheck %s
// RUN: %if cuda %{ flash-run %s --device=cuda --verify --input=@%t/parts.npy --input=@%t/far-logs.npy --input=@%t/rests.npy --function=rests --input=2xf32=-1e9 | FileCheck %s %}
// RUN: %if cuda %{ flash-run %s --device=cuda --verify --input=@%t/parts.npy --input=@%t/logs.npy --function=merge | FileCheck %s --check-prefixes=NONE,CHECK %}
// RUN: %if cuda %{ flash-run %s --device=cuda --verify --input=@%t/parts.npy --input=@%t/logs.npy --function=sinks --input=2xf32 | FileCheck %s %}
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

func.func @rests(%o_parts: memref<3x1x2x4x16xf32>, %lse_parts: memref<3x1x2x4xf32>, %lse_rests: memref<3x1x2x4xf32>,
                 %sinks: memref<2xf32>, %o: memref<1x2x4x16xf32>, %lse: memref<1x2x4xf32>) {
  flashattn.combine ins(%o_parts, %lse_parts : memref<3x1x2x4x16xf32>, memref<3x1x2x4xf32>)
      lse_rests(%lse_rests : memref<3x1x2x4xf32>)
      sink_logits(%sinks : memref<2xf32>) outs(%o, %lse : memref<1x2x4x16xf32>, memref<1x2x4xf32>)
  return
}
