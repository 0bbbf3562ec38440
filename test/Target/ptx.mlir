// RUN: flash-opt %s -flashattn-to-nvvm=chip=sm_80 | FileCheck %s
// RUN: flash-opt %s -flashattn-to-nvvm=chip=sm_90 | FileCheck %s --check-prefix=SM90

// The lowest PTX version that has the chip, and the instructions the kernel is made of.
// CHECK: gpu.binary @attention_kernel
// CHECK: .version 7.0{{.*}}.target sm_80
// CHECK-SAME: cp.async.cg.shared.global
// CHECK-SAME: ldmatrix.sync.aligned.m8n8.x4.shared.b16
// CHECK-SAME: mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32
// CHECK-SAME: ex2.approx.ftz.f32
// CHECK-SAME: ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16
// No library function, no local memory.
// CHECK-NOT: __nv_
// CHECK-NOT: .local
// SM90: .version 7.8{{.*}}.target sm_90
func.func @attention(%q: memref<?x?x?x64xf16>, %k: memref<?x?x?x64xf16>, %v: memref<?x?x?x64xf16>, %o: memref<?x?x?x64xf16>, %lse: memref<?x?x?xf32>) {
  flashattn.attention mask(#flashattn.causal)
    ins(%q, %k, %v : memref<?x?x?x64xf16>, memref<?x?x?x64xf16>, memref<?x?x?x64xf16>)
    outs(%o, %lse : memref<?x?x?x64xf16>, memref<?x?x?xf32>)
  return
}
