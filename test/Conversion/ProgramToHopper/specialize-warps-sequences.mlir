// RUN: flash-opt %s "-flashattn-select-schedule=chip=sm_90a" -flashattn-tile -flashattn-specialize-warps | FileCheck %s

// The host knows the number of keys of each batch element, and chooses by it between a dynamic scheduler and a block for
// each program.

// CHECK-LABEL: func.func @batched_keys
// CHECK: %[[LONG:.*]] = arith.cmpi slt
// CHECK: scf.if %[[LONG]]
// CHECK-COUNT-2: gpu.launch {{.*}} = %c512
// CHECK-NOT: gpu.launch {{.*}} = %c512
func.func @batched_keys(%q: memref<?x?x?x128xbf16>, %k: memref<?x?x?x128xbf16>, %v: memref<?x?x?x128xbf16>,
                        %o: memref<?x?x?x128xbf16>) {
  flashattn.attention mask(#flashattn.causal)
      ins(%q, %k, %v : memref<?x?x?x128xbf16>, memref<?x?x?x128xbf16>, memref<?x?x?x128xbf16>)
      outs(%o : memref<?x?x?x128xbf16>)
  return
}

// The lengths of packed sequences of keys are in the GPU's memory.

// CHECK-LABEL: func.func @packed_keys
// CHECK: gpu.launch {{.*}} = %c512
// CHECK-NOT: gpu.launch {{.*}} = %c512
func.func @packed_keys(%q: memref<?x?x?x128xbf16>, %k: memref<1x?x?x128xbf16>, %v: memref<1x?x?x128xbf16>,
                       %o: memref<?x?x?x128xbf16>, %starts: memref<?xi32>) {
  flashattn.attention mask(#flashattn.causal)
      ins(%q, %k, %v : memref<?x?x?x128xbf16>, memref<1x?x?x128xbf16>, memref<1x?x?x128xbf16>)
      cu_seqlens_k(%starts : memref<?xi32>) outs(%o : memref<?x?x?x128xbf16>)
  return
}
