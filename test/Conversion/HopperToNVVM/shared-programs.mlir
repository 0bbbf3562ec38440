// What warpgroups that share a program need of the machine.
// RUN: flash-opt %s -convert-hopper-to-nvvm -canonicalize -cse | FileCheck %s

#shared = #gpu.address_space<workgroup>

// A transposed left-hand side: both descriptors count rows of 128 bytes, 16 of them a step.
// CHECK-LABEL: func @transposed_a
// CHECK: llvm.inline_asm has_side_effects
// CHECK-SAME: add.s64 da, $4, 0;\0Aadd.s64 db, $5, 0;\0Awgmma.mma_async.sync.aligned.m64n8k16.f32.f16.f16 {$0, $1, $2, $3}, da, db, overwrite, 1, 1, 1, 1;
// CHECK-SAME: add.s64 da, $4, 128;\0Aadd.s64 db, $5, 128;\0Awgmma.mma_async.sync.aligned.m64n8k16.f32.f16.f16 {$0, $1, $2, $3}, da, db, accumulate, 1, 1, 1, 1;
func.func @transposed_a(%a: memref<1x32x64xf16, #shared>, %b: memref<1x32x64xf16, #shared>) -> vector<4xf32> {
  %d = hopper.wgmma %a, %b transposed_a transposed : memref<1x32x64xf16, #shared>, memref<1x32x64xf16, #shared> -> vector<4xf32>
  return %d : vector<4xf32>
}

// 64 of 128 rows: the next panel is 16384 bytes further, 1024 units, in the left-hand side, and 512 in the other.
// CHECK-LABEL: func @rows_of_panels
// CHECK: llvm.inline_asm has_side_effects
// CHECK-SAME: add.s64 da, $4, 6;\0Aadd.s64 db, $5, 6;
// CHECK-SAME: add.s64 da, $4, 1024;\0Aadd.s64 db, $5, 512;
func.func @rows_of_panels(%a: memref<2x64x64xf16, strided<[8192, 64, 1], offset: ?>, #shared>, %b: memref<2x64x64xf16, #shared>) -> vector<4xf32> {
  %d = hopper.wgmma %a, %b : memref<2x64x64xf16, strided<[8192, 64, 1], offset: ?>, #shared>, memref<2x64x64xf16, #shared> -> vector<4xf32>
  return %d : vector<4xf32>
}

// CHECK-LABEL: func @store_rows_of_panels
// CHECK-DAG: %[[PANEL:.*]] = llvm.mlir.constant(16384 : i32)
// CHECK-COUNT-4: stmatrix
// CHECK: %[[AT:.*]] = llvm.add %{{.*}}, %[[PANEL]]
// CHECK-NEXT: llvm.inline_asm {{.*}}stmatrix{{.*}} %[[AT]],
func.func @store_rows_of_panels(%x: vector<64xf16>, %t: memref<2x64x64xf16, strided<[8192, 64, 1], offset: ?>, #shared>) {
  hopper.store_tile %x to %t : vector<64xf16>, memref<2x64x64xf16, strided<[8192, 64, 1], offset: ?>, #shared>
  return
}

// All registers pass through one inline asm, whose side effect depends on each. The side effect accesses no memory, so
// that the op holds for any bits.
// CHECK-LABEL: func @pin
// CHECK: %[[P:.*]] = llvm.inline_asm has_side_effects "{{.*}}mov.b32 t, $0;\0Alop3.b32 t, t, $1, $1, 0xFE;\0Asetp.eq.u32 p, t, 0xFFFFFFFF;\0A@p pmevent 0;{{.*}}", "=r,=r,0,1" %{{.*}}, %{{.*}} : (i32, i32)
// CHECK: llvm.extractvalue %[[P]][0]
// CHECK: llvm.extractvalue %[[P]][1]
func.func @pin(%x: vector<4xf16>) -> vector<4xf16> {
  %r = hopper.pin %x : vector<4xf16>
  return %r : vector<4xf16>
}

// As many bytes as a place has, to the place of the turn, known to the barrier.
// CHECK-LABEL: func @bulk_load
// CHECK: %[[PLACE:.*]] = llvm.ptrtoint %{{.*}} : !llvm.ptr<3> to i32
// CHECK: %[[BARS:.*]] = llvm.ptrtoint %{{.*}} : !llvm.ptr<3> to i32
// CHECK: %[[BAR:.*]] = llvm.add %[[BARS]],
// CHECK: %[[FROM:.*]] = llvm.ptrtoint %{{.*}} : !llvm.ptr to i64
// CHECK: llvm.inline_asm has_side_effects "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [$0], [$1], 256, [$2];", "r,l,r" %[[PLACE]], %[[FROM]], %[[BAR]] :
func.func @bulk_load(%s: memref<?x?xf32>, %p: memref<3x64xf32, #shared>, %bars: memref<4xi64, #shared>, %i: index) {
  hopper.bulk_load %s[%i, %i] to %p[%i], %bars[%i] : memref<?x?xf32> to memref<3x64xf32, #shared>, memref<4xi64, #shared>
  return
}

// Each thread makes its writes known to products, the warp meets, and one of it arrives.
// CHECK-LABEL: func @publish
// CHECK: %[[BARS:.*]] = llvm.ptrtoint %{{.*}} : !llvm.ptr<3> to i32
// CHECK: %[[AT:.*]] = llvm.add %[[BARS]],
// CHECK: %[[THREAD:.*]] = nvvm.read.ptx.sreg.tid.x
// CHECK: %[[LANE:.*]] = llvm.and %[[THREAD]], %{{.*}}
// CHECK: llvm.inline_asm has_side_effects "{\0A.reg .pred p;\0Afence.proxy.async.shared::cta;\0Abar.warp.sync -1;\0Asetp.eq.b32 p, $1, 0;\0A@p mbarrier.arrive.shared::cta.b64 _, [$0];\0A}", "r,r" %[[AT]], %[[LANE]] :
func.func @publish(%bars: memref<4xi64, #shared>, %i: index) {
  hopper.publish %bars[%i] : memref<4xi64, #shared>
  return
}

// The warp's last copy has read its place; four elements of a thread, those of the next one 16 bytes further; one copy
// of the warp's 1024 bytes, to where they lie behind those of the warps before it.
// CHECK-LABEL: func @add_tile
// CHECK-SAME: %[[X:[a-z0-9]+]]: vector<8xf32>, {{.*}}, %[[WARP:[a-z0-9]+]]: index)
// CHECK-DAG: %[[BYTES:.*]] = llvm.mlir.constant(1024 : i64)
// CHECK-DAG: %[[ELEMENTS:.*]] = llvm.mlir.constant(256 : index)
// CHECK-DAG: %[[C16:.*]] = llvm.mlir.constant(16 : i32)
// CHECK-DAG: %[[W:.*]] = builtin.unrealized_conversion_cast %[[WARP]] : index to i64
// CHECK: %[[LANE:.*]] = llvm.and
// CHECK: llvm.mul %[[W]], %[[ELEMENTS]]
// CHECK: %[[STAGING:.*]] = llvm.ptrtoint %{{.*}} : !llvm.ptr<3> to i32
// CHECK: %[[OFLANE:.*]] = llvm.mul %[[LANE]], %[[C16]]
// CHECK: %[[MINE:.*]] = llvm.add %[[STAGING]], %[[OFLANE]]
// CHECK: llvm.inline_asm has_side_effects "{\0A.reg .pred p;\0Asetp.eq.b32 p, $0, 0;\0A@p cp.async.bulk.wait_group.read 0;\0A}\0Abar.warp.sync -1;", "r" %[[LANE]]
// CHECK: llvm.inline_asm has_side_effects "st.shared.v4.f32 [$0+0], {$1, $2, $3, $4};", "r,f,f,f,f" %[[MINE]],
// CHECK: llvm.inline_asm has_side_effects "st.shared.v4.f32 [$0+512], {$1, $2, $3, $4};", "r,f,f,f,f" %[[MINE]],
// CHECK: %[[START:.*]] = llvm.ptrtoint %{{.*}} : !llvm.ptr to i64
// CHECK: %[[BEFORE:.*]] = llvm.mul %[[W]], %[[BYTES]]
// CHECK: %[[WARPS:.*]] = llvm.add %[[START]], %[[BEFORE]]
// The row, of 512 bytes, comes last.
// CHECK: %[[OFROW:.*]] = llvm.mul %{{.*}}, %{{.*}} : i64
// CHECK: %[[TO:.*]] = llvm.add %[[WARPS]], %[[OFROW]]
// CHECK: llvm.inline_asm has_side_effects
// CHECK-SAME: fence.proxy.async.shared::cta;\0Abar.warp.sync -1;\0Asetp.eq.b32 p, $2, 0;\0A@p cp.reduce.async.bulk.global.shared::cta.bulk_group.add.f32 [$0], [$1], 1024;\0A@p cp.async.bulk.commit_group;\0A}", "l,r,r" %[[TO]], %[[MINE]], %[[LANE]] :
func.func @add_tile(%x: vector<8xf32>, %s: memref<4x256xf32, #shared>, %t: memref<?x128xf32>, %row: index, %column: index, %warp: index) {
  hopper.add_tile %x through %s to %t[%row, %column] warp %warp : vector<8xf32>, memref<4x256xf32, #shared>, memref<?x128xf32>
  return
}

// Twice as many as are staged, in halves of the place: the first one waits for all that was copied before, the second one
// for nothing, and those behind for the copy but one. The second part goes behind what all four warps have added of the first,
// 4096 bytes further.
// CHECK-LABEL: func @add_parts
// CHECK-DAG: %[[BYTES:.*]] = llvm.mlir.constant(1024 : i64)
// CHECK-DAG: %[[ALL:.*]] = llvm.mlir.constant(4096 : i64)
// CHECK: llvm.inline_asm {{.*}}wait_group.read 0
// CHECK-NEXT: llvm.extractelement
// CHECK: llvm.inline_asm {{.*}}st.shared.v4.f32 [$0+0]
// CHECK: %[[BEFORE:.*]] = llvm.mul %{{.*}}, %[[BYTES]]
// CHECK: %[[WARPS:.*]] = llvm.add %{{.*}}, %[[BEFORE]]
// CHECK: %[[TO:.*]] = llvm.add %[[WARPS]], %{{.*}}
// CHECK: llvm.inline_asm {{.*}}[$0], [$1], 512;{{.*}} %[[TO]],
// CHECK-NOT: wait_group
// CHECK: llvm.inline_asm {{.*}}st.shared.v4.f32 [$0+512]
// CHECK: llvm.inline_asm {{.*}}[$0+512], [$1+512], 512;{{.*}} %[[TO]],
// CHECK: llvm.inline_asm {{.*}}wait_group.read 1
// CHECK: llvm.inline_asm {{.*}}st.shared.v4.f32 [$0+0]
// CHECK: %[[NEXT:.*]] = llvm.add %[[TO]], %[[ALL]]
// CHECK: llvm.inline_asm {{.*}}[$0], [$1], 512;{{.*}} %[[NEXT]],
// CHECK: llvm.inline_asm {{.*}}wait_group.read 1
// CHECK: llvm.inline_asm {{.*}}st.shared.v4.f32 [$0+512]
// CHECK: llvm.inline_asm {{.*}}[$0+512], [$1+512], 512;{{.*}} %[[NEXT]],
// CHECK-NOT: wait_group.read
func.func @add_parts(%x: vector<16xf32>, %s: memref<4x256xf32, #shared>, %t: memref<?x128xf32>, %row: index, %column: index, %warp: index) {
  hopper.add_tile %x through %s to %t[%row, %column] warp %warp : vector<16xf32>, memref<4x256xf32, #shared>, memref<?x128xf32>
  return
}

// Both by themselves: the copy has no fence of its own.
// CHECK-LABEL: func @stage_and_add
// CHECK: llvm.inline_asm {{.*}}wait_group.read
// CHECK-COUNT-2: llvm.inline_asm {{.*}}st.shared.v4.f32
// CHECK-NOT: st.shared
// CHECK: nvvm.fence.proxy {kind = #nvvm.proxy_kind<async.shared>, space = #nvvm.shared_space<cta>}
// CHECK: llvm.inline_asm has_side_effects "{\0A.reg .pred p;\0Abar.warp.sync -1;\0Asetp.eq.b32 p, $2, 0;\0A@p cp.reduce.async.bulk.global.shared::cta.bulk_group.add.f32 [$0], [$1], 1024;\0A@p cp.async.bulk.commit_group;\0A}", "l,r,r"
func.func @stage_and_add(%x: vector<8xf32>, %s: memref<4x256xf32, #shared>, %t: memref<?x128xf32>, %row: index, %column: index, %warp: index) {
  hopper.stage_tile %x to %s warp %warp : vector<8xf32>, memref<4x256xf32, #shared>
  hopper.fence_async_shared
  hopper.add_staged %s to %t[%row, %column] warp %warp : memref<4x256xf32, #shared>, memref<?x128xf32>
  return
}

// One warp copies what all four have staged.
// CHECK-LABEL: func @add_all
// CHECK: llvm.inline_asm {{.*}}cp.reduce.async.bulk{{.*}} [$0], [$1], 4096;
func.func @add_all(%s: memref<4x256xf32, #shared>, %t: memref<?x128xf32>, %row: index, %column: index) {
  hopper.add_staged %s to %t[%row, %column] : memref<4x256xf32, #shared>, memref<?x128xf32>
  return
}

// A warp arrives once, behind all of its threads.
// CHECK-LABEL: func @warp_arrive
// CHECK: llvm.inline_asm has_side_effects "{\0A.reg .pred p;\0Abar.warp.sync -1;\0Asetp.eq.b32 p, $1, 0;\0A@p mbarrier.arrive.shared::cta.b64 _, [$0];\0A}", "r,r"
func.func @warp_arrive(%bars: memref<4xi64, #shared>, %i: index) {
  hopper.warp_arrive %bars[%i] : memref<4xi64, #shared>
  return
}

// Numbers of which no two threads of the grid get the same.
// CHECK-LABEL: func @claim
// CHECK: %[[NUMBER:.*]] = llvm.inline_asm has_side_effects "atom.relaxed.gpu.global.add.u32 $0, [$1], 1;", "=r,l" %{{.*}} : (i64) -> i32
// CHECK: return %[[NUMBER]] : i32
func.func @claim(%counter: memref<?xi32>, %i: index) -> i32 {
  %number = hopper.claim %counter[%i] : memref<?xi32>
  return %number : i32
}

// One thread makes 0 a 1, all others come back with 2.
// CHECK-LABEL: func @first
// CHECK: %[[FLAG:.*]] = llvm.inline_asm has_side_effects "{\0A.reg .pred p;\0A.reg .b32 seen;\0Amov.b32 seen, $2;\0AWAIT_${:uid}:\0Asetp.eq.b32 p, seen, 2;\0A@p bra DONE_${:uid};\0Aatom.relaxed.gpu.global.cas.b32 seen, [$1], 0, 1;\0Asetp.ne.b32 p, seen, 0;\0A@p bra WAIT_${:uid};\0ADONE_${:uid}:\0Asetp.eq.b32 p, seen, 0;\0Aselp.b32 $0, 1, 0, p;\0A}", "=r,l,r" %{{.*}}, %{{.*}} : (i64, i32) -> i32
// CHECK: llvm.trunc %[[FLAG]] : i32 to i1
func.func @first(%order: memref<?xi32>, %i: index, %seen: i32) -> i1 {
  %first = hopper.take_first %order[%i] seen %seen : memref<?xi32>
  return %first : i1
}

// 512 bytes of a warp at once, and a fence for the copies that add to them.
// CHECK-LABEL: func @clear
// CHECK: llvm.inline_asm has_side_effects "{\0A.reg .f32 zero;\0A.reg .b32 lane;\0A.reg .b64 at;\0Amov.f32 zero, 0f00000000;\0Amov.u32 lane, %laneid;\0Amad.wide.u32 at, lane, 16, $0;\0Ast.global.v4.f32 [at+0], {zero, zero, zero, zero};\0Ast.global.v4.f32 [at+512], {zero, zero, zero, zero};\0Afence.proxy.async.global;\0Abar.warp.sync -1;\0A}", "l" %{{.*}} : (i64) -> ()
func.func @clear(%sums: memref<?x128xf32>, %i: index) {
  hopper.clear %sums[%i, %i] elements 256 : memref<?x128xf32>
  return
}

// Threads of each warpgroup at one barrier, and at the other to let the other one go on.
// CHECK-LABEL: func @peers
// CHECK: llvm.inline_asm has_side_effects "{\0A.reg .pred p;\0A.reg .b32 thread;\0Amov.u32 thread, %tid.x;\0Asetp.lt.u32 p, thread, 256;\0A@p bar.sync 2, 256;\0A@!p bar.sync 3, 256;\0A}", ""
// CHECK: llvm.inline_asm has_side_effects "{\0A.reg .pred p;\0A.reg .b32 thread;\0Amov.u32 thread, %tid.x;\0Asetp.lt.u32 p, thread, 256;\0A@p bar.arrive 3, 256;\0A@!p bar.arrive 2, 256;\0A}", ""
func.func @peers() {
  hopper.await_peer 2
  hopper.wake_peer 2
  return
}

// A warp's copies have added before one of its threads counts it; whoever waits sees all that is behind the count.
// CHECK-LABEL: func @counts
// CHECK: llvm.inline_asm has_side_effects "{\0A.reg .pred p;\0Asetp.eq.b32 p, $1, 0;\0A@p cp.async.bulk.wait_group 0;\0A@p red.release.gpu.global.add.u32 [$0], 1;\0A}", "l,r" %{{.*}}, %{{.*}} :
// CHECK: llvm.inline_asm has_side_effects "{\0A.reg .pred p;\0A.reg .b32 seen;\0AWAIT_${:uid}:\0Ald.acquire.gpu.global.b32 seen, [$0];\0Asetp.eq.b32 p, seen, $1;\0A@p bra DONE_${:uid};\0Ananosleep.u32 100;\0Abra WAIT_${:uid};\0ADONE_${:uid}:\0A}", "l,r" %{{.*}}, %{{.*}} :
func.func @counts(%done: memref<?xi32>, %i: index, %count: i32) {
  hopper.signal_added %done[%i] : memref<?xi32>
  hopper.await_added %done[%i] is %count : memref<?xi32>
  return
}

// Whoever waits looks again and again, behind what it had seen before; the last turn's copies have added when the next one
// begins.
// CHECK-LABEL: func @turns
// CHECK: %[[PLACE:.*]] = llvm.zext %{{.*}} : i32 to i64
// CHECK: %[[BYTES:.*]] = llvm.mul %[[PLACE]], %{{.*}} : i64
// CHECK: %[[AT:.*]] = llvm.add %{{.*}}, %[[BYTES]] : i64
// CHECK: %[[SEEN:.*]] = llvm.inline_asm has_side_effects "ld.relaxed.gpu.global.b32 $0, [$1];", "=r,l" %[[AT]] : (i64) -> i32
// CHECK: llvm.inline_asm has_side_effects "{\0A.reg .pred p;\0A.reg .b32 seen;\0Amov.b32 seen, $2;\0AWAIT_${:uid}:\0Asetp.eq.b32 p, seen, $1;\0A@p bra.uni DONE_${:uid};\0Ald.relaxed.gpu.global.b32 seen, [$0];\0Abra.uni WAIT_${:uid};\0ADONE_${:uid}:\0A}", "l,r,r" %{{.*}}, %{{.*}}, %[[SEEN]] :
// CHECK: llvm.inline_asm has_side_effects "{\0A.reg .pred p;\0A.reg .b32 next;\0Asetp.eq.b32 p, $2, 0;\0Aadd.s32 next, $1, 1;\0A@p cp.async.bulk.wait_group 0;\0A@p st.release.gpu.global.b32 [$0], next;\0A}", "l,r,r" %{{.*}}, %{{.*}}, %{{.*}} :
func.func @turns(%order: memref<?x?xi32>, %i: index, %turn: i32) {
  %seen = hopper.read_turn %order[%i, %i] : memref<?x?xi32>
  hopper.await_turn %order[%i, %i] is %turn seen %seen : memref<?x?xi32>
  hopper.pass_turn %turn at %order[%i, %i] : memref<?x?xi32>
  return
}
