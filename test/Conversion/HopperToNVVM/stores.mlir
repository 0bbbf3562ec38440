// RUN: flash-opt %s -convert-hopper-to-nvvm -canonicalize -cse | FileCheck %s

#shared = #gpu.address_space<workgroup>

// Lane l of a warp has the address of row l % 8 of matrix l / 8: matrices are rows 0 and 8 of the
// warp's sixteen at one chunk of 16 bytes, then at the next. A chunk c of a 128-byte row r lies at
// c ^ r % 8. Each step stores two chunks: 32 bytes further, by exclusive or, until the next panel.
// CHECK-LABEL: func @store_128
// CHECK-DAG: %[[PANEL:.*]] = llvm.mlir.constant(8192 : i32)
// CHECK-DAG: %[[C128:.*]] = llvm.mlir.constant(128 : i32)
// CHECK-DAG: %[[C96:.*]] = llvm.mlir.constant(96 : i32)
// CHECK-DAG: %[[C64:.*]] = llvm.mlir.constant(64 : i32)
// CHECK-DAG: %[[C32:.*]] = llvm.mlir.constant(32 : i32)
// CHECK-DAG: %[[C16:.*]] = llvm.mlir.constant(16 : i32)
// CHECK-DAG: %[[C8:.*]] = llvm.mlir.constant(8 : i32)
// CHECK-DAG: %[[C7:.*]] = llvm.mlir.constant(7 : i32)
// CHECK-DAG: %[[C5:.*]] = llvm.mlir.constant(5 : i32)
// CHECK-DAG: %[[C3:.*]] = llvm.mlir.constant(3 : i32)
// CHECK-DAG: %[[C2:.*]] = llvm.mlir.constant(2 : i32)
// CHECK-DAG: %[[C1:.*]] = llvm.mlir.constant(1 : i32)
// CHECK-DAG: %[[C0:.*]] = llvm.mlir.constant(0 : i32)
// CHECK: %[[THREAD:.*]] = nvvm.read.ptx.sreg.tid.x
// CHECK: %[[WARPS:.*]] = llvm.lshr %[[THREAD]], %[[C5]]
// CHECK: %[[WARP:.*]] = llvm.and %[[WARPS]], %[[C3]]
// CHECK: %[[MATRICES:.*]] = llvm.lshr %[[THREAD]], %[[C3]]
// CHECK: %[[MATRIX:.*]] = llvm.and %[[MATRICES]], %[[C3]]
// CHECK: %[[HALF:.*]] = llvm.and %[[MATRIX]], %[[C1]]
// CHECK: %[[HALFROW:.*]] = llvm.mul %[[HALF]], %[[C8]]
// CHECK: %[[IN8:.*]] = llvm.and %[[THREAD]], %[[C7]]
// CHECK: %[[IN16:.*]] = llvm.add %[[HALFROW]], %[[IN8]]
// CHECK: %[[WARPROW:.*]] = llvm.mul %[[WARP]], %[[C16]]
// CHECK: %[[ROW:.*]] = llvm.add %[[WARPROW]], %[[IN16]]
// CHECK: %[[SWIZZLE:.*]] = llvm.and %[[ROW]], %[[C7]]
// CHECK: %[[SIDES:.*]] = llvm.lshr %[[MATRIX]], %[[C1]]
// CHECK: %[[SIDE:.*]] = llvm.and %[[SIDES]], %[[C1]]
// CHECK: %[[CHUNK:.*]] = llvm.xor %[[SIDE]], %[[SWIZZLE]]
// The tile's offset is one of elements, of 2 bytes; all of it is added up in 32 bits.
// CHECK: %[[BUFFER:.*]] = llvm.ptrtoint %{{.*}} : !llvm.ptr<3> to i32
// CHECK: %[[OFFSET:.*]] = llvm.trunc %{{.*}} : i64 to i32
// CHECK: %[[BYTES:.*]] = llvm.mul %[[OFFSET]], %[[C2]]
// CHECK: %[[TILE:.*]] = llvm.add %[[BUFFER]], %[[BYTES]]
// CHECK: %[[ROWAT:.*]] = llvm.mul %[[ROW]], %[[C128]]
// CHECK: %[[CHUNKAT:.*]] = llvm.mul %[[CHUNK]], %[[C16]]
// CHECK: %[[INTILE:.*]] = llvm.add %[[ROWAT]], %[[CHUNKAT]]
// CHECK: %[[BASE:.*]] = llvm.add %[[TILE]], %[[INTILE]]
// Pairs of elements, in the order in which a thread holds them.
// CHECK: %[[PAIRS:.*]] = llvm.bitcast %{{.*}} : vector<40xf16> to vector<20xi32>
// CHECK: %[[R0:.*]] = llvm.extractelement %[[PAIRS]][%[[C0]] : i32]
// CHECK: %[[R1:.*]] = llvm.extractelement %[[PAIRS]][%[[C1]] : i32]
// CHECK: %[[R2:.*]] = llvm.extractelement
// CHECK: %[[R3:.*]] = llvm.extractelement %[[PAIRS]][%[[C3]] : i32]
// CHECK: %[[R4:.*]] = llvm.extractelement
// CHECK: %[[R5:.*]] = llvm.extractelement %[[PAIRS]][%[[C5]] : i32]
// CHECK: %[[X0:.*]] = llvm.xor %[[BASE]], %[[C0]]
// CHECK: %[[A0:.*]] = llvm.add %[[X0]], %[[C0]]
// CHECK: llvm.inline_asm has_side_effects "stmatrix.sync.aligned.m8n8.x4.shared.b16 [$0], {$1, $2, $3, $4};", "r,r,r,r,r" %[[A0]], %[[R0]], %[[R1]], %[[R2]], %[[R3]] :
// CHECK: %[[X1:.*]] = llvm.xor %[[BASE]], %[[C32]]
// CHECK: %[[A1:.*]] = llvm.add %[[X1]], %[[C0]]
// CHECK: llvm.inline_asm {{.*}} %[[A1]], %[[R4]], %[[R5]], %{{.*}}, %{{.*}} :
// CHECK: llvm.xor %[[BASE]], %[[C64]]
// CHECK: llvm.inline_asm
// CHECK: llvm.xor %[[BASE]], %[[C96]]
// CHECK: llvm.inline_asm
// CHECK: %[[A4:.*]] = llvm.add %[[X0]], %[[PANEL]]
// CHECK: llvm.inline_asm {{.*}} %[[A4]],
// CHECK-NOT: stmatrix
// CHECK: return
func.func @store_128(%x: vector<40xf16>, %t: memref<2x64x64xf16, #shared>) {
  hopper.store_tile %x to %t : vector<40xf16>, memref<2x64x64xf16, #shared>
  return
}

// 64-byte rows: chunk c lies at c ^ r / 2 % 4.
// CHECK-LABEL: func @store_64
// CHECK-DAG: %[[C64:.*]] = llvm.mlir.constant(64 : i32)
// CHECK-DAG: %[[C32:.*]] = llvm.mlir.constant(32 : i32)
// CHECK-DAG: %[[C3:.*]] = llvm.mlir.constant(3 : i32)
// CHECK-DAG: %[[C1:.*]] = llvm.mlir.constant(1 : i32)
// CHECK: nvvm.read.ptx.sreg.tid.x
// CHECK: %[[IN16:.*]] = llvm.add
// CHECK: %[[ROW:.*]] = llvm.add %{{.*}}, %[[IN16]]
// CHECK: %[[PAIR:.*]] = llvm.lshr %[[ROW]], %[[C1]]
// CHECK: %[[SWIZZLE:.*]] = llvm.and %[[PAIR]], %[[C3]]
// CHECK: llvm.xor %{{.*}}, %[[SWIZZLE]]
// CHECK: llvm.mul %[[ROW]], %[[C64]]
// CHECK: %[[BASE:.*]] = llvm.add
// CHECK: llvm.bitcast %{{.*}} : vector<16xbf16> to vector<8xi32>
// CHECK: stmatrix
// CHECK: llvm.xor %{{.*}}, %[[C32]]
// CHECK: stmatrix
// CHECK-NOT: stmatrix
// CHECK: return
func.func @store_64(%x: vector<16xbf16>, %t: memref<1x64x32xbf16, #shared>) {
  hopper.store_tile %x to %t : vector<16xbf16>, memref<1x64x32xbf16, #shared>
  return
}

// 32-byte rows: c ^ r / 4 % 2, and a panel, 2048 bytes, for each two chunks.
// CHECK-LABEL: func @store_32
// CHECK-DAG: %[[PANEL:.*]] = llvm.mlir.constant(2048 : i32)
// CHECK-DAG: %[[C32:.*]] = llvm.mlir.constant(32 : i32)
// CHECK-DAG: %[[C2:.*]] = llvm.mlir.constant(2 : i32)
// CHECK-DAG: %[[C1:.*]] = llvm.mlir.constant(1 : i32)
// CHECK-DAG: %[[C0:.*]] = llvm.mlir.constant(0 : i32)
// CHECK: nvvm.read.ptx.sreg.tid.x
// CHECK: %[[IN16:.*]] = llvm.add
// CHECK: %[[ROW:.*]] = llvm.add %{{.*}}, %[[IN16]]
// CHECK: %[[FOUR:.*]] = llvm.lshr %[[ROW]], %[[C2]]
// CHECK: %[[SWIZZLE:.*]] = llvm.and %[[FOUR]], %[[C1]]
// CHECK: llvm.xor %{{.*}}, %[[SWIZZLE]]
// CHECK: llvm.mul %[[ROW]], %[[C32]]
// CHECK: %[[X:.*]] = llvm.xor %{{.*}}, %[[C0]]
// CHECK: llvm.inline_asm {{.*}}stmatrix
// CHECK: %[[NEXT:.*]] = llvm.add %[[X]], %[[PANEL]]
// CHECK: llvm.inline_asm {{.*}}stmatrix{{.*}} %[[NEXT]],
// CHECK-NOT: stmatrix
// CHECK: return
func.func @store_32(%x: vector<16xf16>, %t: memref<2x64x16xf16, #shared>) {
  hopper.store_tile %x to %t : vector<16xf16>, memref<2x64x16xf16, #shared>
  return
}

// One copy per panel, 8192 bytes and 64 columns further, and one group of them.
// CHECK-LABEL: func @tma_store
// CHECK-SAME: (%[[M:[^:]*]]: !hopper.tensor_map<64x64xf16>, %{{.*}}, %[[ROW:[^:]*]]: index, %[[COL:[^:]*]]: index)
// CHECK-DAG: %[[C64:.*]] = llvm.mlir.constant(64 : i32)
// CHECK-DAG: %[[PANEL:.*]] = llvm.mlir.constant(8192 : i32)
// CHECK-DAG: %[[MAP:.*]] = builtin.unrealized_conversion_cast %[[M]] : !hopper.tensor_map<64x64xf16> to !llvm.ptr
// CHECK-DAG: %[[COL64:.*]] = builtin.unrealized_conversion_cast %[[COL]] : index to i64
// CHECK-DAG: %[[ROW64:.*]] = builtin.unrealized_conversion_cast %[[ROW]] : index to i64
// CHECK: %[[BUFFER:.*]] = llvm.ptrtoint %{{.*}} : !llvm.ptr<3> to i32
// CHECK: %[[AT:.*]] = llvm.add %[[BUFFER]], %{{.*}}
// CHECK: %[[X:.*]] = llvm.trunc %[[COL64]] : i64 to i32
// CHECK: %[[Y:.*]] = llvm.trunc %[[ROW64]] : i64 to i32
// CHECK: llvm.inline_asm has_side_effects "cp.async.bulk.tensor.2d.global.shared::cta.tile.bulk_group [$1, {$2, $3}], [$0];", "r,l,r,r" %[[AT]], %[[MAP]], %[[X]], %[[Y]] :
// CHECK: %[[AT1:.*]] = llvm.add %[[AT]], %[[PANEL]]
// CHECK: %[[X1:.*]] = llvm.add %[[X]], %[[C64]]
// CHECK: llvm.inline_asm {{.*}} %[[AT1]], %[[MAP]], %[[X1]], %[[Y]] :
// CHECK-NEXT: nvvm.cp.async.bulk.commit.group
// CHECK-NEXT: return
func.func @tma_store(%m: !hopper.tensor_map<64x64xf16>, %t: memref<2x64x64xf16, #shared>,
                     %row: index, %col: index) {
  hopper.tma_store %t to %m[%row, %col] : memref<2x64x64xf16, #shared> to !hopper.tensor_map<64x64xf16>
  return
}

// CHECK-LABEL: func @tma_store_rank5
// CHECK: "cp.async.bulk.tensor.5d.global.shared::cta.tile.bulk_group [$1, {$2, $3, $4, $5, $6}], [$0];", "r,l,r,r,r,r,r"
func.func @tma_store_rank5(%m: !hopper.tensor_map<64x16xbf16>, %t: memref<1x64x16xbf16, #shared>,
                           %i: index) {
  hopper.tma_store %t to %m[%i, %i, %i, %i, %i]
      : memref<1x64x16xbf16, #shared> to !hopper.tensor_map<64x16xbf16>
  return
}

// With a number of blocks a kernel takes all of the registers that those leave it.
// CHECK-LABEL: llvm.func @blocks
// CHECK-SAME: nvvm.minctasm = 3 : i32
// CHECK: nvvm.setmaxregister decrease 32
// CHECK: nvvm.setmaxregister increase 128
llvm.func @blocks() attributes {nvvm.kernel} {
  hopper.set_registers decrease 32 blocks(3)
  hopper.set_registers increase 128 blocks(3)
  llvm.return
}

// CHECK-LABEL: llvm.func @no_roles
// CHECK-NOT: minctasm
// CHECK: llvm.return
llvm.func @no_roles() attributes {nvvm.kernel} {
  llvm.return
}

// A fence, a wait for this thread's copies, and barriers of some of the block's threads.
// CHECK-LABEL: func @groups
// CHECK-SAME: (%[[ID:.*]]: i32)
// CHECK-DAG: %[[ALL:.*]] = llvm.mlir.constant(384 : i32)
// CHECK-DAG: %[[GROUP:.*]] = llvm.mlir.constant(128 : i32)
// CHECK: nvvm.barrier.arrive id = %[[ID]] number_of_threads = %[[ALL]]
// CHECK: nvvm.fence.proxy {kind = #nvvm.proxy_kind<async.shared>, space = #nvvm.shared_space<cta>}
// CHECK: nvvm.barrier id = %[[ID]] number_of_threads = %[[GROUP]]
// CHECK: nvvm.cp.async.bulk.wait_group 0 {read}
// CHECK-NOT: hopper
func.func @groups(%id: i32) {
  hopper.group_arrive %id threads(384)
  hopper.fence_async_shared
  hopper.group_barrier %id threads(128)
  hopper.wait_stores
  return
}

// What `hopper.store_tile` writes comes back by the same addresses, and the warp may write there again.
// CHECK-LABEL: func @read_64
// CHECK: %[[BUFFER:.*]] = llvm.ptrtoint
// CHECK: %[[TILE:.*]] = llvm.add %[[BUFFER]],
// CHECK: %[[BASE:.*]] = llvm.add %[[TILE]],
// CHECK: %[[X0:.*]] = llvm.xor %[[BASE]],
// CHECK: %[[A0:.*]] = llvm.add %[[X0]],
// CHECK: llvm.inline_asm has_side_effects "ldmatrix.sync.aligned.m8n8.x4.shared.b16 {$0, $1, $2, $3}, [$4];", "=r,=r,=r,=r,r" %[[A0]] : (i32) -> !llvm.struct<(i32, i32, i32, i32)>
// CHECK: llvm.xor %[[BASE]],
// CHECK: llvm.inline_asm {{.*}} "ldmatrix
// CHECK: llvm.inline_asm has_side_effects "bar.warp.sync -1;", ""
// CHECK: llvm.bitcast %{{.*}} : vector<8xi32> to vector<16xf16>
// CHECK-NOT: hopper
func.func @read_64(%tile: memref<1x64x64xf16, #shared>) -> vector<16xf16> {
  %0 = hopper.read_tile %tile : memref<1x64x64xf16, #shared> -> vector<16xf16>
  return %0 : vector<16xf16>
}

// From column 80 on: of the second panel, 8192 bytes further, the second 32 bytes of a row.
// CHECK-LABEL: func @read_from
// CHECK-DAG: %[[PANEL:.*]] = llvm.mlir.constant(8192 : i32)
// CHECK-DAG: %[[C32:.*]] = llvm.mlir.constant(32 : i32)
// CHECK: %[[X:.*]] = llvm.xor %{{.*}}, %[[C32]]
// CHECK: %[[AT:.*]] = llvm.add %[[X]], %[[PANEL]]
// CHECK: llvm.inline_asm {{.*}} "ldmatrix{{.*}} %[[AT]] :
// CHECK-NOT: ldmatrix
// CHECK: return
func.func @read_from(%tile: memref<2x64x64xf16, #shared>) -> vector<8xf16> {
  %0 = hopper.read_tile %tile from 80 : memref<2x64x64xf16, #shared> -> vector<8xf16>
  return %0 : vector<8xf16>
}

// The number of the thread may be given; of a tile of 16 rows every warp has all.
// CHECK-LABEL: func @read_rows
// CHECK-SAME: , %[[THREAD:[a-z0-9]+]]: i32)
// CHECK-DAG: %[[C8:.*]] = llvm.mlir.constant(8 : i32)
// CHECK-DAG: %[[C7:.*]] = llvm.mlir.constant(7 : i32)
// CHECK-DAG: %[[C3:.*]] = llvm.mlir.constant(3 : i32)
// CHECK-DAG: %[[C1:.*]] = llvm.mlir.constant(1 : i32)
// CHECK-NOT: nvvm.read.ptx.sreg.tid.x
// CHECK: %[[MATRICES:.*]] = llvm.lshr %[[THREAD]], %[[C3]]
// CHECK: %[[MATRIX:.*]] = llvm.and %[[MATRICES]], %[[C3]]
// CHECK: %[[HALF:.*]] = llvm.and %[[MATRIX]], %[[C1]]
// CHECK: %[[HALFROW:.*]] = llvm.mul %[[HALF]], %[[C8]]
// CHECK: %[[IN8:.*]] = llvm.and %[[THREAD]], %[[C7]]
// CHECK: %[[ROW:.*]] = llvm.add %[[HALFROW]], %[[IN8]]
// Where a warp's rows would be added to these, the swizzle follows.
// CHECK-NEXT: llvm.and %[[ROW]], %[[C7]]
// CHECK: ldmatrix
// CHECK-NOT: ldmatrix
// CHECK: return
func.func @read_rows(%tile: memref<1x16x64xf16, #shared>, %thread: i32) -> vector<8xf16> {
  %0 = hopper.read_tile %tile by %thread : memref<1x16x64xf16, #shared> -> vector<8xf16>
  return %0 : vector<8xf16>
}
