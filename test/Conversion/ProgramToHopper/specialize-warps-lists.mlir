// RUN: flash-opt %s -flashattn-tile -flashattn-specialize-warps -canonicalize -cse | FileCheck %s

// Key tiles by a list that the programs of a block share: its places are what the rings and the
// loop count, and groups of programs begin at multiples of the consumers.

#schedule = #flashattn.schedule<tile_m = 64, tile_n = 32, stages = 2, dot_type = f16, mapping = hopper<consumers = 2, along = query_tile, registers = 240, producer_registers = 24, rescale_threshold = 0, l2_head_group = 1>>
// CHECK-LABEL: func @attn_mask
// CHECK: flashattn.list_tiles tile [1, 128, 32] {{.*}} outs(%[[BOUNDS:.*]], %[[LIST:.*]] : memref<1x1x?x2xi32>, memref<1x1x?x?xi32>)
// CHECK: gpu.launch
// CHECK: %[[PLACE:.*]] = arith.subi %{{.*}}, %c1_i32
// CHECK: %[[TILE32:.*]] = arith.muli %[[PLACE]], %c2_i32
// CHECK: %[[TILE:.*]] = arith.index_castui %[[TILE32]]
// No shared range: the bounds are the list's.
// CHECK-NOT: memref.store %{{.*}} : memref<1x1x2xi32, #gpu.address_space<workgroup>>

// The producer's rows are those of the listed tiles.
// CHECK: hopper.set_registers decrease
// CHECK: %[[BEGIN32:.*]] = memref.load %[[BOUNDS]][%c0, %c0, %[[N:.*]], %c0]
// CHECK: %[[BEGIN:.*]] = arith.index_cast %[[BEGIN32]]
// CHECK: %[[END32:.*]] = memref.load %[[BOUNDS]][%c0, %c0, %[[N]], %c1]
// CHECK: %[[END:.*]] = arith.index_cast %[[END32]]
// CHECK: scf.for %[[I:.*]] = %[[BEGIN]] to %[[END]] step %c1
// CHECK: %[[STEP:.*]] = arith.subi %[[I]], %[[BEGIN]]
// CHECK: %[[KT32:.*]] = memref.load %[[LIST]][%c0, %c0, %[[N]], %[[I]]]
// CHECK: %[[KT:.*]] = arith.index_castui %[[KT32]]
// CHECK: %[[ROW:.*]] = arith.muli %[[KT]], %c32
// CHECK: hopper.ring_put %{{.*}} at %[[STEP]] from %{{.*}}[%{{.*}}, %{{.*}}, %[[ROW]], %c0]
// CHECK: hopper.ring_put %{{.*}} at %[[STEP]] from %{{.*}}[%{{.*}}, %{{.*}}, %[[ROW]], %c0]

// A consumer counts steps from the list's first place. One without a program passes all of them by.
// CHECK: hopper.set_registers increase
// CHECK: %[[CB32:.*]] = memref.load %[[BOUNDS]]
// CHECK: %[[CB:.*]] = arith.index_cast %[[CB32]]
// CHECK: %[[CE32:.*]] = memref.load %[[BOUNDS]]
// CHECK: %[[CE:.*]] = arith.index_cast %[[CE32]]
// CHECK: %[[SOME:.*]] = arith.cmpi slt, %[[CB]], %[[CE]]
// CHECK: %[[IS:.*]] = arith.cmpi slt, %{{.*}}, %{{.*}}
// CHECK: %[[RUNS:.*]] = arith.andi %[[SOME]], %[[IS]]
// CHECK: %[[PASSED:.*]] = arith.select %[[RUNS]], %[[CB]], %[[CE]]
// CHECK: scf.for %{{.*}} = %[[CB]] to %[[PASSED]]
// CHECK: flashattn.tile_loop (%[[J:[a-z0-9]+]], %{{.*}}) in [(%[[CB]], %[[CB]], %{{.*}}, %[[CE]])] list(%[[LIST]][%c0, %c0, %{{.*}}] : {{.*}}) when %[[IS]]
// CHECK: %[[NOW:.*]] = arith.subi %[[J]], %[[CB]]
// CHECK: hopper.ring_get %{{.*}} at %[[NOW]]
func.func @attn_mask(%q: memref<?x8x?x64xf16>, %k: memref<?x2x?x64xf16>, %attn_mask: memref<1x1x?x?xi1>, %o: memref<?x8x?x64xf16>) {
  flashattn.attention mask(#flashattn.causal) schedule(#schedule)
      ins(%q, %k, %k : memref<?x8x?x64xf16>, memref<?x2x?x64xf16>, memref<?x2x?x64xf16>)
      attn_mask(%attn_mask : memref<1x1x?x?xi1>)
      outs(%o : memref<?x8x?x64xf16>)
  return
}
