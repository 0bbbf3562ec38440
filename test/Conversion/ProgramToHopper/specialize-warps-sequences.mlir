// RUN: flash-opt %s "-flashattn-select-schedule=chip=sm_90a" -flashattn-tile -flashattn-specialize-warps | FileCheck %s

// CHECK-LABEL: func.func @batched_keys
// CHECK: gpu.launch {{.*}} = %c512
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

// A kernel of one block lists the groups of packed queries by counting sort, and blocks that claim groups find them in
// the list. Row 0 has their number.

// CHECK-LABEL: func.func @packed_queries
// CHECK: %[[LIST:.*]] = memref.alloc(%{{.*}}) : memref<?x2xi32>
// CHECK: gpu.launch {{.*}} = %c1024{{.*}}, {{.*}} workgroup(%[[COUNTS:.*]] : memref<1056xi32
// CHECK: flashattn.launch_dependents
// CHECK: memref.atomic_rmw addi %{{.*}}, %[[COUNTS]]
// CHECK: gpu.barrier
// CHECK: memref.store %{{.*}}, %[[LIST]][%{{.*}}, %{{.*}}]
// CHECK: memref.atomic_rmw addi %{{.*}}, %[[COUNTS]]
// CHECK: gpu.launch {{.*}} = %c512
// CHECK: flashattn.wait_prerequisite_grids
// CHECK: memref.load %[[LIST]]
// CHECK: hopper.tma_load
// CHECK: hopper.claim
// CHECK: memref.load %[[LIST]]
// CHECK: memref.dealloc %[[LIST]]
func.func @packed_queries(%q: memref<1x?x?x128xbf16>, %k: memref<1x?x?x128xbf16>, %v: memref<1x?x?x128xbf16>,
                          %o: memref<1x?x?x128xbf16>, %starts: memref<?xi32>) {
  flashattn.attention mask(#flashattn.causal)
      ins(%q, %k, %v : memref<1x?x?x128xbf16>, memref<1x?x?x128xbf16>, memref<1x?x?x128xbf16>)
      cu_seqlens_q(%starts : memref<?xi32>) cu_seqlens_k(%starts : memref<?xi32>) outs(%o : memref<1x?x?x128xbf16>)
  return
}

// A tile within a sequence is stored by a copy, and a tile that its end cuts by the threads.

// CHECK-LABEL: func.func @stores
// CHECK: gpu.launch {{.*}} = %c512
// CHECK: %[[WHOLE:.*]] = arith.cmpi sle
// CHECK: scf.if %[[WHOLE]] {
// CHECK: hopper.tma_store
// CHECK: } else {
// CHECK: flashattn.store_tile
func.func @stores(%q: memref<1x?x?x128xbf16>, %k: memref<1x?x?x128xbf16>, %v: memref<1x?x?x128xbf16>,
                  %o: memref<1x?x?x128xbf16>, %starts: memref<?xi32>) {
  flashattn.attention
      ins(%q, %k, %v : memref<1x?x?x128xbf16>, memref<1x?x?x128xbf16>, memref<1x?x?x128xbf16>)
      cu_seqlens_q(%starts : memref<?xi32>) cu_seqlens_k(%starts : memref<?xi32>) outs(%o : memref<1x?x?x128xbf16>)
  return
}
