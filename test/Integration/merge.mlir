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
// Attention over two parts of the keys writes f32 outputs, which are merged without rounding in between, and the
// gradients read an f32 output. With one query, the keys are split again.
// RUN: flash-run %s --device=cpu --function=parts --verify | FileCheck %s --check-prefix=PARTS
// RUN: %if !asan %{ flash-run %s --device=model:sm_80 --function=parts --verify | FileCheck %s --check-prefix=PARTS %}
// RUN: flash-run %s --device=model:sm_90a --function=parts --verify | FileCheck %s --check-prefix=PARTS
// RUN: flash-run %s --device=cpu --function=one_query --verify | FileCheck %s --check-prefix=F32
// RUN: flash-run %s --device=model:sm_90a --function=one_query --verify | FileCheck %s --check-prefix=F32
// RUN: flash-run %s --device=cpu --function=gradients --verify | FileCheck %s --check-prefix=GRADIENTS
// RUN: flash-run %s --device=model:sm_90a --function=gradients --verify | FileCheck %s --check-prefix=GRADIENTS
// RUN: %if cuda %{ flash-run %s --device=cuda --function=parts --verify | FileCheck %s --check-prefix=PARTS %}
// RUN: %if cuda %{ flash-run %s --device=cuda --function=one_query --verify | FileCheck %s --check-prefix=F32 %}
// RUN: %if cuda %{ flash-run %s --device=cuda --function=gradients --verify | FileCheck %s --check-prefix=GRADIENTS %}
// The last row has no part at all.
// NONE: output 0: 1x2x4x16xf32, min {{[^,]*}}, max {{[^,]*}}, mean {{[^,]*}}, first
// NONE: output 1: 1x2x4xf32, {{.*}} 1 not finite, values {{.*}} -INF
// CHECK: verify o: {{.*}}PASS
// CHECK: verify lse {{.*}}PASS
// PARTS-COUNT-3: verify o: {{.*}}PASS
// F32: output 0: 1x2x1x64xf32
// F32: verify o: {{.*}}PASS
// GRADIENTS: verify dq: {{.*}}PASS
// GRADIENTS: verify dk: {{.*}}PASS
// GRADIENTS: verify dv: {{.*}}PASS

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

func.func @parts(%q: memref<1x2x70x64xf16>, %k: memref<1x1x150x64xf16>, %v: memref<1x1x150x64xf16>,
                 %o: memref<1x2x70x64xf16>) {
  %o_parts = memref.alloc() : memref<2x1x2x70x64xf32>
  %lse_parts = memref.alloc() : memref<2x1x2x70xf32>
  %k0 = memref.subview %k[0, 0, 0, 0] [1, 1, 80, 64] [1, 1, 1, 1]
      : memref<1x1x150x64xf16> to memref<1x1x80x64xf16, strided<[9600, 9600, 64, 1]>>
  %v0 = memref.subview %v[0, 0, 0, 0] [1, 1, 80, 64] [1, 1, 1, 1]
      : memref<1x1x150x64xf16> to memref<1x1x80x64xf16, strided<[9600, 9600, 64, 1]>>
  %k1 = memref.subview %k[0, 0, 80, 0] [1, 1, 70, 64] [1, 1, 1, 1]
      : memref<1x1x150x64xf16> to memref<1x1x70x64xf16, strided<[9600, 9600, 64, 1], offset: 5120>>
  %v1 = memref.subview %v[0, 0, 80, 0] [1, 1, 70, 64] [1, 1, 1, 1]
      : memref<1x1x150x64xf16> to memref<1x1x70x64xf16, strided<[9600, 9600, 64, 1], offset: 5120>>
  %o0 = memref.subview %o_parts[0, 0, 0, 0, 0] [1, 1, 2, 70, 64] [1, 1, 1, 1, 1]
      : memref<2x1x2x70x64xf32> to memref<1x2x70x64xf32, strided<[8960, 4480, 64, 1]>>
  %o1 = memref.subview %o_parts[1, 0, 0, 0, 0] [1, 1, 2, 70, 64] [1, 1, 1, 1, 1]
      : memref<2x1x2x70x64xf32> to memref<1x2x70x64xf32, strided<[8960, 4480, 64, 1], offset: 8960>>
  %lse0 = memref.subview %lse_parts[0, 0, 0, 0] [1, 1, 2, 70] [1, 1, 1, 1]
      : memref<2x1x2x70xf32> to memref<1x2x70xf32, strided<[140, 70, 1]>>
  %lse1 = memref.subview %lse_parts[1, 0, 0, 0] [1, 1, 2, 70] [1, 1, 1, 1]
      : memref<2x1x2x70xf32> to memref<1x2x70xf32, strided<[140, 70, 1], offset: 140>>
  flashattn.attention
      ins(%q, %k0, %v0 : memref<1x2x70x64xf16>, memref<1x1x80x64xf16, strided<[9600, 9600, 64, 1]>>,
          memref<1x1x80x64xf16, strided<[9600, 9600, 64, 1]>>)
      outs(%o0, %lse0 : memref<1x2x70x64xf32, strided<[8960, 4480, 64, 1]>>, memref<1x2x70xf32, strided<[140, 70, 1]>>)
  flashattn.attention
      ins(%q, %k1, %v1 : memref<1x2x70x64xf16>, memref<1x1x70x64xf16, strided<[9600, 9600, 64, 1], offset: 5120>>,
          memref<1x1x70x64xf16, strided<[9600, 9600, 64, 1], offset: 5120>>)
      outs(%o1, %lse1 : memref<1x2x70x64xf32, strided<[8960, 4480, 64, 1], offset: 8960>>,
          memref<1x2x70xf32, strided<[140, 70, 1], offset: 140>>)
  flashattn.combine ins(%o_parts, %lse_parts : memref<2x1x2x70x64xf32>, memref<2x1x2x70xf32>)
      outs(%o : memref<1x2x70x64xf16>)
  memref.dealloc %o_parts : memref<2x1x2x70x64xf32>
  memref.dealloc %lse_parts : memref<2x1x2x70xf32>
  return
}

func.func @one_query(%q: memref<1x2x1x64xbf16>, %k: memref<1x1x600x64xbf16>, %v: memref<1x1x600x64xbf16>,
                     %o: memref<1x2x1x64xf32>) {
  flashattn.attention ins(%q, %k, %v : memref<1x2x1x64xbf16>, memref<1x1x600x64xbf16>, memref<1x1x600x64xbf16>)
      outs(%o : memref<1x2x1x64xf32>)
  return
}

func.func @gradients(%q: memref<1x2x70x64xf16>, %k: memref<1x1x90x64xf16>, %v: memref<1x1x90x64xf16>,
                     %o: memref<1x2x70x64xf32>, %lse: memref<1x2x70xf32>, %d_o: memref<1x2x70x64xf16>,
                     %dq: memref<1x2x70x64xf16>, %dk: memref<1x1x90x64xf16>, %dv: memref<1x1x90x64xf16>) {
  flashattn.attention_backward
      ins(%q, %k, %v, %o, %lse, %d_o : memref<1x2x70x64xf16>, memref<1x1x90x64xf16>, memref<1x1x90x64xf16>,
          memref<1x2x70x64xf32>, memref<1x2x70xf32>, memref<1x2x70x64xf16>)
      outs(%dq, %dk, %dv : memref<1x2x70x64xf16>, memref<1x1x90x64xf16>, memref<1x1x90x64xf16>)
  return
}
