// Programs without a key to visit compile for every target, and for sm_90a without warp specialization.

// RUN: flash-opt %s -flashattn-to-cpu -o /dev/null
// RUN: flash-opt %s -flashattn-to-nvvm=chip=sm_80 -o /dev/null
// RUN: flash-opt %s -flashattn-to-nvvm=chip=sm_90a | FileCheck %s
// RUN: flash-opt %s -flashattn-select-schedule=chip=sm_90a | FileCheck %s --check-prefix=SCHEDULE
// Kernels that read nothing and write the output.
// CHECK: gpu.launch_func @mask_kernel::
// CHECK: gpu.binary @mask_kernel
// CHECK-NOT: {{mma|ld.global}}
// CHECK-SAME: st.global.{{(v4\.)?}}b32
// CHECK: gpu.launch_func @length_kernel::
// CHECK: gpu.binary @length_kernel
// CHECK-NOT: {{mma|ld.global}}
// CHECK-SAME: st.global.{{(v4\.)?}}b32
// CHECK-NOT: wgmma
// SCHEDULE-COUNT-2: flashattn.attention {{.*}}dot_type = f16>)

func.func @mask(%q: memref<?x?x?x64xf16>, %o: memref<?x?x?x64xf16>) {
  flashattn.attention mask(#flashattn.any_of<[]>)
      ins(%q, %q, %q : memref<?x?x?x64xf16>, memref<?x?x?x64xf16>, memref<?x?x?x64xf16>)
      outs(%o : memref<?x?x?x64xf16>)
  return
}

func.func @length(%q: memref<2x4x32x64xf16>, %k: memref<2x4x0x64xf16>, %attn_mask: memref<1x1x32x1xi1>,
                  %sinks: memref<4xf32>, %o: memref<2x4x32x64xf16>) {
  flashattn.attention ins(%q, %k, %k : memref<2x4x32x64xf16>, memref<2x4x0x64xf16>, memref<2x4x0x64xf16>)
      attn_mask(%attn_mask : memref<1x1x32x1xi1>) sink_logits(%sinks : memref<4xf32>)
      outs(%o : memref<2x4x32x64xf16>)
  return
}
