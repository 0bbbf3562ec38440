// Programs without a key to visit compile for every target, and for sm_90a without warp specialization.

// RUN: split-file %s %t
// RUN: flash-opt %t/none.mlir -flashattn-to-cpu -o /dev/null
// RUN: flash-opt %t/none.mlir -flashattn-to-nvvm=chip=sm_80 -o /dev/null
// RUN: flash-opt %t/none.mlir -flashattn-to-nvvm=chip=sm_90a | FileCheck %t/none.mlir
// RUN: flash-opt %t/none.mlir -flashattn-select-schedule=chip=sm_90a | FileCheck %t/none.mlir --check-prefix=SCHEDULE
// RUN: flash-run %t/listed.mlir --device=cpu --verify 2>/dev/null | FileCheck %t/listed.mlir
// RUN: flash-run %t/listed.mlir --device=model:sm_80 --verify 2>/dev/null | FileCheck %t/listed.mlir
// RUN: flash-run %t/listed.mlir --device=model:sm_90a --verify 2>/dev/null | FileCheck %t/listed.mlir

//--- none.mlir

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
// SCHEDULE-COUNT-2: flashattn.attention {{.*}}dot_type = f16, mapping = mma_sync<{{.*}}>>)

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

//--- listed.mlir

// The mask shows no page, but its values per key make a list of the key tiles.
// CHECK: verify o: {{.*}}PASS
#never = affine_set<(p, k)[nq, nk, a, b] : (k - a >= 0, a - 1 - k >= 0, b - p >= 0)>
!q = memref<2x4x8x64xf16>
!pool = memref<9x4x4x64xf16>
func.func @listed(%q: !q, %k: !pool, %n: memref<2xi32>, %table: memref<2x6xi32>, %a: memref<2x4x8xi32>, %b: memref<2x4x24xi32>, %o: !q) {
  flashattn.attention mask(#never) ins(%q, %k, %k : !q, !pool, !pool) kv_len(%n : memref<2xi32>) page_table(%table : memref<2x6xi32>)
      per_query(%a : memref<2x4x8xi32>) per_key(%b : memref<2x4x24xi32>) outs(%o : !q)
  return
}
