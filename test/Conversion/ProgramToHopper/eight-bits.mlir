// F1: the producer loads tiles of 8 bits into rings of their own. The three spare warps of its warpgroup convert them to
// the rings that products read, and hold the scales of their rows, one for each lane.
// RUN: flash-opt %s -flashattn-tile -flashattn-specialize-warps | FileCheck %s

#schedule = #flashattn.schedule<tile_m = 64, tile_n = 64, stages = 3, dot_type = f16, mapping = hopper<
    consumers = 1, along = query_tile, registers = 200, producer_registers = 56, rescale_threshold = 1,
    l2_head_group = 1, blocks_per_sm = 1>>
!q = memref<1x1x64x128xf16>
!k = memref<1x1x256x128xf8E4M3FN>
!v = memref<1x1x256x128xf16>
// CHECK-LABEL: func.func @keys
// CHECK: hopper.make_tensor_map %{{.*}} to !hopper.tensor_map<64x128xf8E4M3FN>
// CHECK: hopper.make_tensor_map %{{.*}} to !hopper.tensor_map<64x64xf16>
// CHECK: gpu.launch
// CHECK-DAG: hopper.ring_init %{{.*}}, 1 producers 3 : !hopper.ring<2x2x64x64xf16>
// CHECK-DAG: hopper.ring_init %{{.*}}, 3 : !hopper.ring<3x1x64x128xf8E4M3FN>
// The spare warps.
// CHECK: memref.load %{{.*}} : memref<1x1x256x1xf32>
// CHECK: scf.for
// CHECK: hopper.barrier_wait
// CHECK: hopper.barrier_wait
// CHECK: gpu.shuffle {{.*}} : f32
// CHECK: flashattn.convert_elements
// CHECK-SAME: memref<3072xvector<8xf8E4M3FN>, #gpu.address_space<workgroup>>, memref<2048xvector<8xf16>, #gpu.address_space<workgroup>>
// CHECK: hopper.fence_async_shared
// CHECK: hopper.warp_arrive
// CHECK: hopper.warp_arrive
// The producer.
// CHECK: hopper.ring_put %{{.*}} : !hopper.ring<3x1x64x128xf8E4M3FN>, !hopper.tensor_map<64x128xf8E4M3FN>
// CHECK: hopper.ring_put %{{.*}}x64xf16>, !hopper.tensor_map<64x64xf16>
func.func @keys(%q: !q, %k: !k, %v: !v, %s: memref<1x1x256x1xf32>, %o: !q) {
  flashattn.attention schedule(#schedule) ins(%q, %k, %v : !q, !k, !v)
      k_scale(%s : memref<1x1x256x1xf32>) outs(%o : !q)
  return
}

// F3: K goes to consumers as it is loaded. Spare warps transpose V, whose product then has its rows as columns, and
// zeros for keys from kv_len on.
#products = #flashattn.schedule<tile_m = 64, tile_n = 64, stages = 2, dot_type = f8E4M3FN, mapping = hopper<
    consumers = 1, along = query_tile, registers = 200, producer_registers = 56, rescale_threshold = 0,
    l2_head_group = 1, blocks_per_sm = 1>>
!q8 = memref<1x1x64x128xf8E4M3FN>
!k8 = memref<1x1x256x128xf8E4M3FN>
!o = memref<1x1x64x128xf32>
// CHECK-LABEL: func.func @products
// CHECK: gpu.launch
// CHECK-DAG: hopper.ring_init %{{.*}} : !hopper.ring<2x1x64x128xf8E4M3FN>
// CHECK-DAG: hopper.ring_init %{{.*}}, 1 producers 3 : !hopper.ring<2x1x128x64xf8E4M3FN>
// CHECK: hopper.transpose %{{.*}} rows(%{{.*}}, %{{.*}}) to
// CHECK: } else {
// CHECK: hopper.transpose %{{.*}}[%{{.*}}, %{{.*}}] to
// CHECK: hopper.fence_async_shared
// CHECK: hopper.load_tile %{{.*}} -> vector<128x64xf8E4M3FN>
// CHECK: vector.contract {{.*}} : vector<64x64xf8E4M3FN>, vector<128x64xf8E4M3FN> into vector<64x128xf32>
func.func @products(%q: !q8, %k: !k8, %v: !k8, %n: memref<1xi32>, %o: !o) {
  flashattn.attention schedule(#products) ins(%q, %k, %v : !q8, !k8, !k8) kv_len(%n : memref<1xi32>) outs(%o : !o)
  return
}
