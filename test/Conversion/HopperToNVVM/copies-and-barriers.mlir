// RUN: flash-opt %s -convert-hopper-to-nvvm -canonicalize | FileCheck %s

!tile = memref<2x80x64xf16, #gpu.address_space<workgroup>>
!bars = memref<4xi64, #gpu.address_space<workgroup>>

// One copy per panel: 10240 bytes and 64 columns further. Innermost coordinate first.
// CHECK-LABEL: func @panels
// CHECK-SAME: (%[[M:[^:]*]]: !hopper.tensor_map<80x64xf16>, %{{.*}}, %{{.*}}, %[[I:.*]]: index, %[[ROW:.*]]: index, %[[COL:.*]]: index)
// CHECK-DAG: %[[C64:.*]] = llvm.mlir.constant(64 : i32)
// CHECK-DAG: %[[BYTES:.*]] = llvm.mlir.constant(10240 : i32)
// CHECK-DAG: %[[MAP:.*]] = builtin.unrealized_conversion_cast %[[M]] : !hopper.tensor_map<80x64xf16> to !llvm.ptr
// CHECK-DAG: %[[COL64:.*]] = builtin.unrealized_conversion_cast %[[COL]] : index to i64
// CHECK-DAG: %[[ROW64:.*]] = builtin.unrealized_conversion_cast %[[ROW]] : index to i64
// CHECK: %[[TILES:.*]] = llvm.ptrtoint %{{.*}} : !llvm.ptr<3> to i32
// CHECK: %[[TO:.*]] = llvm.add %[[TILES]],
// CHECK: %[[BARRIERS:.*]] = llvm.ptrtoint %{{.*}} : !llvm.ptr<3> to i32
// CHECK: %[[BARRIER:.*]] = llvm.add %[[BARRIERS]],
// CHECK: %[[X:.*]] = llvm.trunc %[[COL64]] : i64 to i32
// CHECK: %[[Y:.*]] = llvm.trunc %[[ROW64]] : i64 to i32
// CHECK: llvm.inline_asm has_side_effects
// CHECK-SAME: "cp.async.bulk.tensor.2d.shared::cluster.global.tile.mbarrier::complete_tx::bytes [$0], [$1, {$3, $4}], [$2];", "r,l,r,r,r"
// CHECK-SAME: %[[TO]], %[[MAP]], %[[BARRIER]], %[[X]], %[[Y]] :
// CHECK: %[[TO1:.*]] = llvm.add %[[TO]], %[[BYTES]]
// CHECK: %[[X1:.*]] = llvm.add %[[X]], %[[C64]]
// CHECK: llvm.inline_asm has_side_effects
// CHECK-SAME: %[[TO1]], %[[MAP]], %[[BARRIER]], %[[X1]], %[[Y]] :
// CHECK-NOT: hopper.tma_load
func.func @panels(%m: !hopper.tensor_map<80x64xf16>, %tile: !tile, %bars: !bars, %i: index,
                  %row: index, %col: index) {
  hopper.tma_load %m[%row, %col] to %tile, %bars[%i] : !hopper.tensor_map<80x64xf16> to !tile, !bars
  return
}

// CHECK-LABEL: func @rank5
// CHECK: "cp.async.bulk.tensor.5d.shared::cluster.global.tile.mbarrier::complete_tx::bytes [$0], [$1, {$3, $4, $5, $6, $7}], [$2];", "r,l,r,r,r,r,r,r"
func.func @rank5(%m: !hopper.tensor_map<8x16xbf16>,
                 %tile: memref<1x8x16xbf16, #gpu.address_space<workgroup>>, %bars: !bars, %i: index) {
  hopper.tma_load %m[%i, %i, %i, %i, %i] to %tile, %bars[%i] : !hopper.tensor_map<8x16xbf16>
    to memref<1x8x16xbf16, #gpu.address_space<workgroup>>, !bars
  return
}

// A stage of a ring: the tile begins at the memref's offset, of elements of 2 bytes. Addresses of shared memory are
// added up in 32 bits.
// CHECK-LABEL: func @offset
// CHECK-DAG: %[[C2:.*]] = llvm.mlir.constant(2 : i32)
// CHECK: %[[FIRST:.*]] = llvm.ptrtoint %{{.*}} : !llvm.ptr<3> to i32
// CHECK: %[[START:.*]] = llvm.extractvalue %{{.*}}[2]
// CHECK: %[[ELEMENT:.*]] = llvm.trunc %[[START]] : i64 to i32
// CHECK: %[[BYTES:.*]] = llvm.mul %[[ELEMENT]], %[[C2]]
// CHECK: %[[AT:.*]] = llvm.add %[[FIRST]], %[[BYTES]]
// CHECK: cp.async.bulk.tensor.2d{{.*}}"r,l,r,r,r" %[[AT]],
func.func @offset(%m: !hopper.tensor_map<80x64xf16>,
                  %tile: memref<2x80x64xf16, strided<[5120, 64, 1], offset: ?>, #gpu.address_space<workgroup>>,
                  %bars: !bars, %i: index) {
  hopper.tma_load %m[%i, %i] to %tile, %bars[%i] : !hopper.tensor_map<80x64xf16>
    to memref<2x80x64xf16, strided<[5120, 64, 1], offset: ?>, #gpu.address_space<workgroup>>, !bars
  return
}

// CHECK-LABEL: func @barriers
// CHECK-DAG: %[[C8:.*]] = llvm.mlir.constant(8 : i32)
// CHECK-DAG: %[[I:.*]] = builtin.unrealized_conversion_cast %{{.*}} : index to i64
// CHECK: %[[FIRST:.*]] = llvm.ptrtoint %{{.*}} : !llvm.ptr<3> to i32
// CHECK: %[[START:.*]] = llvm.trunc %{{.*}} : i64 to i32
// CHECK: %[[NUMBER:.*]] = llvm.trunc %[[I]] : i64 to i32
// CHECK: %[[PLACE:.*]] = llvm.add %[[START]], %[[NUMBER]]
// CHECK: %[[BYTES:.*]] = llvm.mul %[[PLACE]], %[[C8]]
// CHECK: %[[BARRIER:.*]] = llvm.add %[[FIRST]], %[[BYTES]]
// CHECK: llvm.inline_asm has_side_effects "mbarrier.init.shared::cta.b64 [$0], 3;", "r" %[[BARRIER]]
// CHECK: llvm.inline_asm has_side_effects "fence.mbarrier_init.release.cluster;", ""
// CHECK: llvm.inline_asm has_side_effects "mbarrier.arrive.expect_tx.shared::cta.b64 _, [$0], 20480;", "r"
// CHECK: llvm.inline_asm has_side_effects "mbarrier.arrive.shared::cta.b64 _, [$0];", "r"
// CHECK: %[[P:.*]] = llvm.zext %{{.*}} : i1 to i32
// CHECK: llvm.inline_asm has_side_effects "{\0A.reg .pred p;\0Asetp.ne.b32 p, $1, 0;\0A@p mbarrier.arrive.shared::cta.b64 _, [$0];\0A}", "r,r" %{{.*}}, %[[P]]
// CHECK: llvm.inline_asm has_side_effects
// CHECK-SAME: WAIT_${:uid}:\0Ambarrier.try_wait.parity.shared::cta.b64 p, [$0], $1;\0A@p bra.uni DONE_${:uid};\0Abra.uni WAIT_${:uid};\0ADONE_${:uid}:\0A}", "r,r"
// CHECK-NOT: hopper.
func.func @barriers(%bars: !bars, %i: index, %first: i1, %parity: i32) {
  hopper.barrier_init %bars[%i], 3 : !bars
  hopper.fence_barrier_init
  hopper.barrier_expect %bars[%i], 20480 : !bars
  hopper.barrier_arrive %bars[%i] : !bars
  hopper.barrier_arrive %bars[%i] if %first : !bars
  hopper.barrier_wait %bars[%i], %parity : !bars
  return
}
