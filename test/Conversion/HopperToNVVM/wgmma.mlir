// RUN: flash-opt %s -convert-hopper-to-nvvm -canonicalize | FileCheck %s

// Descriptors: leading offset / 16 in bits 16 to 29, stride offset / 16 in 32 to 45, the swizzle
// in 62 and 63. Offsets of the steps count in units of 16 bytes, too.

// Columns of both: stride of 8 rows = 1024 bytes, 128-byte swizzle; a step is 32 bytes, and after
// four of them the next panel, 8192 bytes (A) and 1024 bytes (B) further. No accumulator: the first
// step overwrites.
// CHECK-LABEL: func @shared_128
// CHECK-DAG: %[[FIELDS:.*]] = llvm.mlir.constant(4611686293305360384 : i64) : i64
// CHECK-DAG: %[[C4:.*]] = llvm.mlir.constant(4 : i32) : i32
// CHECK: %[[AT:.*]] = llvm.ptrtoint %{{.*}} : !llvm.ptr<3> to i32
// CHECK: %[[A32:.*]] = llvm.add %[[AT]],
// CHECK: %[[AU:.*]] = llvm.lshr %[[A32]], %[[C4]]
// CHECK: %[[AW:.*]] = llvm.zext %[[AU]] : i32 to i64
// CHECK: %[[A:.*]] = llvm.or %[[AW]], %[[FIELDS]]
// CHECK: %[[B:.*]] = llvm.or %{{.*}}, %[[FIELDS]]
// CHECK: llvm.inline_asm has_side_effects
// CHECK-SAME: setp.eq.b32 accumulate, 0, 0;\0Asetp.ne.b32 overwrite, 0, 0;\0Awgmma.fence.sync.aligned;\0A
// CHECK-SAME: add.s64 da, $4, 0;\0Aadd.s64 db, $5, 0;\0Awgmma.mma_async.sync.aligned.m64n8k16.f32.f16.f16 {$0, $1, $2, $3}, da, db, overwrite, 1, 1, 0, 0;
// CHECK-SAME: add.s64 da, $4, 2;\0Aadd.s64 db, $5, 2;\0Awgmma.mma_async.sync.aligned.m64n8k16.f32.f16.f16 {$0, $1, $2, $3}, da, db, accumulate, 1, 1, 0, 0;
// CHECK-SAME: add.s64 da, $4, 6;\0Aadd.s64 db, $5, 6;
// CHECK-SAME: add.s64 da, $4, 512;\0Aadd.s64 db, $5, 64;
// CHECK-SAME: add.s64 da, $4, 514;\0Aadd.s64 db, $5, 66;
// CHECK-SAME: add.s64 da, $4, 518;\0Aadd.s64 db, $5, 70;
// CHECK-NOT: add.s64
// CHECK-SAME: wgmma.commit_group.sync.aligned;\0A}", "=f,=f,=f,=f,l,l" %[[A]], %[[B]] : (i64, i64) -> !llvm.struct<(f32, f32, f32, f32)>
func.func @shared_128(%a: memref<2x64x64xf16, #gpu.address_space<workgroup>>,
                      %b: memref<2x8x64xf16, #gpu.address_space<workgroup>>) -> vector<4xf32> {
  %d = hopper.wgmma %a, %b : memref<2x64x64xf16, #gpu.address_space<workgroup>>,
    memref<2x8x64xf16, #gpu.address_space<workgroup>> -> vector<4xf32>
  return %d : vector<4xf32>
}

// The first step's columns are in four registers, and A's descriptor is behind these.
// CHECK-LABEL: func @first
// CHECK: wgmma.fence.sync.aligned;\0A
// CHECK-SAME: add.s64 db, $9, 0;\0Awgmma.mma_async.sync.aligned.m64n8k16.f32.f16.f16 {$0, $1, $2, $3}, {$4, $5, $6, $7}, db, overwrite, 1, 1, 0;
// CHECK-SAME: add.s64 da, $8, 2;\0Aadd.s64 db, $9, 2;\0Awgmma.mma_async.sync.aligned.m64n8k16.f32.f16.f16 {$0, $1, $2, $3}, da, db, accumulate, 1, 1, 0, 0;
// CHECK-SAME: add.s64 da, $8, 6;\0Aadd.s64 db, $9, 6;
// CHECK-NOT: add.s64
// CHECK-SAME: "=f,=f,=f,=f,r,r,r,r,l,l"
func.func @first(%a: memref<1x64x64xf16, #gpu.address_space<workgroup>>, %held: vector<8xf16>,
                 %b: memref<1x8x64xf16, #gpu.address_space<workgroup>>) -> vector<4xf32> {
  %d = hopper.wgmma %a first %held, %b : memref<1x64x64xf16, #gpu.address_space<workgroup>> first vector<8xf16>,
    memref<1x8x64xf16, #gpu.address_space<workgroup>> -> vector<4xf32>
  return %d : vector<4xf32>
}

// 64-byte rows: a stride of 512 bytes, swizzle 2, two steps in a panel. Depth 48 of 64.
// CHECK-LABEL: func @shared_64
// CHECK: llvm.mlir.constant(-9223371899415756800 : i64)
// CHECK: m64n8k16.f32.bf16.bf16
// CHECK-SAME: add.s64 da, $4, 2;\0Aadd.s64 db, $5, 2;
// CHECK-SAME: add.s64 da, $4, 256;\0Aadd.s64 db, $5, 32;
// CHECK-NOT: add.s64
// CHECK-SAME: commit_group
func.func @shared_64(%a: memref<2x64x32xbf16, #gpu.address_space<workgroup>>,
                     %b: memref<2x8x32xbf16, #gpu.address_space<workgroup>>) -> vector<4xf32> {
  %d = hopper.wgmma %a, %b depth(48) : memref<2x64x32xbf16, #gpu.address_space<workgroup>>,
    memref<2x8x32xbf16, #gpu.address_space<workgroup>> -> vector<4xf32>
  return %d : vector<4xf32>
}

// 32-byte rows: a stride of 256 bytes, swizzle 3, one step in a panel.
// CHECK-LABEL: func @shared_32
// CHECK: llvm.mlir.constant(-4611685949707845632 : i64)
// CHECK: add.s64 da, $4, 0;\0Aadd.s64 db, $5, 0;
// CHECK-SAME: add.s64 da, $4, 128;\0Aadd.s64 db, $5, 16;
// CHECK-NOT: add.s64
// CHECK-SAME: commit_group
func.func @shared_32(%a: memref<2x64x16xf16, #gpu.address_space<workgroup>>,
                     %b: memref<2x8x16xf16, #gpu.address_space<workgroup>>) -> vector<4xf32> {
  %d = hopper.wgmma %a, %b : memref<2x64x16xf16, #gpu.address_space<workgroup>>,
    memref<2x8x16xf16, #gpu.address_space<workgroup>> -> vector<4xf32>
  return %d : vector<4xf32>
}

// A from registers, pairs of f16 as i32, four to a step. B's rows are contracted: a step is 16 rows,
// 2048 bytes; the leading offset is a panel, 4096 bytes. The accumulator is tied.
// CHECK-LABEL: func @registers_transposed
// CHECK-SAME: (%[[P:.*]]: vector<16xf16>, %{{.*}}, %[[ACC:.*]]: vector<4xf32>)
// CHECK-DAG: llvm.mlir.constant(4611686293322072064 : i64)
// CHECK-DAG: %[[PAIRS:.*]] = llvm.bitcast %[[P]] : vector<16xf16> to vector<8xi32>
// CHECK-COUNT-8: llvm.extractelement %[[PAIRS]]
// CHECK-COUNT-4: llvm.extractelement %[[ACC]]
// CHECK: %[[D:.*]] = llvm.inline_asm has_side_effects
// CHECK-SAME: add.s64 db, $12, 0;\0Awgmma.mma_async.sync.aligned.m64n8k16.f32.f16.f16 {$0, $1, $2, $3}, {$4, $5, $6, $7}, db, accumulate, 1, 1, 1;
// CHECK-SAME: add.s64 db, $12, 128;\0Awgmma.mma_async.sync.aligned.m64n8k16.f32.f16.f16 {$0, $1, $2, $3}, {$8, $9, $10, $11}, db, accumulate, 1, 1, 1;
// CHECK-SAME: "=f,=f,=f,=f,r,r,r,r,r,r,r,r,l,0,1,2,3"
// CHECK: llvm.extractvalue %[[D]][0]
// CHECK-COUNT-4: llvm.insertelement
func.func @registers_transposed(%p: vector<16xf16>,
                                %v: memref<2x32x64xf16, #gpu.address_space<workgroup>>,
                                %acc: vector<4xf32>) -> vector<4xf32> {
  %d = hopper.wgmma %p, %v, %acc transposed : vector<16xf16>,
    memref<2x32x64xf16, #gpu.address_space<workgroup>>, vector<4xf32>
  return %d : vector<4xf32>
}

// Narrow rows, transposed: a leading offset of a panel (1024 and 512 bytes), a stride of 8 rows, a
// step of 16.
// CHECK-LABEL: func @registers_transposed_64
// CHECK: llvm.mlir.constant(-9223371899411628032 : i64)
// CHECK: add.s64 db, $8, 0;
func.func @registers_transposed_64(%p: vector<8xf16>,
                                   %v: memref<2x16x32xf16, #gpu.address_space<workgroup>>)
    -> vector<4xf32> {
  %d = hopper.wgmma %p, %v transposed : vector<8xf16>,
    memref<2x16x32xf16, #gpu.address_space<workgroup>> -> vector<4xf32>
  return %d : vector<4xf32>
}

// CHECK-LABEL: func @shared_transposed_32
// CHECK-DAG: llvm.mlir.constant(-4611685949707845632 : i64)
// CHECK-DAG: llvm.mlir.constant(-4611685949703716864 : i64)
// CHECK: add.s64 da, $4, 0;\0Aadd.s64 db, $5, 0;
// CHECK-SAME: da, db, overwrite, 1, 1, 0, 1;
// CHECK-SAME: add.s64 da, $4, 128;\0Aadd.s64 db, $5, 32;
func.func @shared_transposed_32(%a: memref<2x64x16xf16, #gpu.address_space<workgroup>>,
                                %v: memref<2x32x16xf16, #gpu.address_space<workgroup>>)
    -> vector<4xf32> {
  %d = hopper.wgmma %a, %v transposed : memref<2x64x16xf16, #gpu.address_space<workgroup>>,
    memref<2x32x16xf16, #gpu.address_space<workgroup>> -> vector<4xf32>
  return %d : vector<4xf32>
}

// f8: steps of 32 columns, 32 bytes, and no transpose operands. Types may differ.
// CHECK-LABEL: func @f8
// CHECK: llvm.inline_asm has_side_effects
// CHECK-SAME: add.s64 da, $4, 0;\0Aadd.s64 db, $5, 0;\0Awgmma.mma_async.sync.aligned.m64n8k32.f32.e4m3.e5m2 {$0, $1, $2, $3}, da, db, overwrite, 1, 1;\0A
// CHECK-SAME: add.s64 da, $4, 6;\0Aadd.s64 db, $5, 6;
// CHECK-SAME: add.s64 da, $4, 512;\0Aadd.s64 db, $5, 64;
// CHECK-SAME: da, db, accumulate, 1, 1;\0A
// CHECK-SAME: commit_group
func.func @f8(%a: memref<2x64x128xf8E4M3FN, #gpu.address_space<workgroup>>,
              %b: memref<2x8x128xf8E5M2, #gpu.address_space<workgroup>>) -> vector<4xf32> {
  %d = hopper.wgmma %a, %b depth(160) : memref<2x64x128xf8E4M3FN, #gpu.address_space<workgroup>>,
    memref<2x8x128xf8E5M2, #gpu.address_space<workgroup>> -> vector<4xf32>
  return %d : vector<4xf32>
}

// Each register holds the elements of one row in two groups of 8 columns, also through a wait.
// CHECK-LABEL: func @f8_registers
// CHECK-SAME: (%[[P:.*]]: vector<16xf8E4M3FN>,
// CHECK: %[[BYTES:.*]] = builtin.unrealized_conversion_cast %[[P]] : vector<16xf8E4M3FN> to vector<16xi8>
// CHECK: %[[ROWS:.*]] = llvm.shufflevector %[[BYTES]], %[[BYTES]] [0, 1, 4, 5, 2, 3, 6, 7, 8, 9, 12, 13, 10, 11, 14, 15] : vector<16xi8>
// CHECK: %[[WORDS:.*]] = llvm.bitcast %[[ROWS]] : vector<16xi8> to vector<4xi32>
// CHECK-COUNT-4: llvm.extractelement %[[WORDS]]
// CHECK: m64n8k32.f32.e4m3.e4m3 {$0, $1, $2, $3}, {$4, $5, $6, $7}, db, overwrite, 1, 1;
// CHECK: llvm.shufflevector {{.*}} [0, 1, 4, 5, 2, 3, 6, 7, 8, 9, 12, 13, 10, 11, 14, 15] : vector<16xi8>
// CHECK: wgmma.wait_group.sync.aligned 0;", "=f,=f,=f,=f,=r,=r,=r,=r,0,1,2,3,4,5,6,7"
// CHECK: llvm.shufflevector {{.*}} [0, 1, 4, 5, 2, 3, 6, 7, 8, 9, 12, 13, 10, 11, 14, 15] : vector<16xi8>
func.func @f8_registers(%p: vector<16xf8E4M3FN>, %v: memref<1x8x32xf8E4M3FN, #gpu.address_space<workgroup>>)
    -> (vector<4xf32>, vector<16xf8E4M3FN>) {
  %d = hopper.wgmma %p, %v : vector<16xf8E4M3FN>, memref<1x8x32xf8E4M3FN, #gpu.address_space<workgroup>> -> vector<4xf32>
  %r:2 = hopper.wgmma_wait %d, %p : vector<4xf32>, vector<16xf8E4M3FN>
  return %r#0, %r#1 : vector<4xf32>, vector<16xf8E4M3FN>
}

// A product that overwrites an accumulator takes its registers and does not add its values.
// CHECK-LABEL: func @f8_overwritten
// CHECK: m64n8k32.f32.e4m3.e4m3 {$0, $1, $2, $3}, {$4, $5, $6, $7}, db, overwrite, 1, 1;
// CHECK-SAME: "=f,=f,=f,=f,r,r,r,r,l,0,1,2,3"
// LLVM, but not ptxas, computes a weakly pinned value here.
// CHECK: llvm.inline_asm has_side_effects "// pinned", "=f,=f,=f,=f,0,1,2,3"
func.func @f8_overwritten(%p: vector<16xf8E4M3FN>, %v: memref<1x8x32xf8E4M3FN, #gpu.address_space<workgroup>>,
                          %x: vector<4xf32>) -> (vector<4xf32>) {
  %d = hopper.wgmma %p, %v, %x overwritten : vector<16xf8E4M3FN>, memref<1x8x32xf8E4M3FN, #gpu.address_space<workgroup>>, vector<4xf32>
  %w = hopper.pin %d weak : vector<4xf32>
  return %w : vector<4xf32>
}

// Values go through the wait in their registers.
// CHECK-LABEL: func @wait
// CHECK-NOT: // held
// CHECK: %[[W:.*]] = llvm.inline_asm has_side_effects "wgmma.wait_group.sync.aligned 1;", "=f,=f,=r,0,1,2" %{{.*}}, %{{.*}}, %{{.*}} : (f32, f32, i32) -> !llvm.struct<(f32, f32, i32)>
// CHECK: llvm.extractvalue %[[W]][0]
// CHECK: llvm.bitcast %{{.*}} : vector<1xi32> to vector<2xbf16>
func.func @wait(%x: vector<2xf32>, %y: vector<2xbf16>) -> (vector<2xf32>, vector<2xbf16>) {
  %r:2 = hopper.wgmma_wait %x, %y {pending = 1} : vector<2xf32>, vector<2xbf16>
  return %r#0, %r#1 : vector<2xf32>, vector<2xbf16>
}

// One register is no struct.
// CHECK-LABEL: func @held
// CHECK: llvm.inline_asm has_side_effects "// held", ""
// CHECK-NEXT: llvm.inline_asm has_side_effects "wgmma.wait_group.sync.aligned 0;", "=f,0" %{{.*}} : (f32) -> f32
func.func @held(%x: vector<1xf32>) -> vector<1xf32> {
  %r = hopper.wgmma_wait %x {held} : vector<1xf32>
  return %r : vector<1xf32>
}

// Bytes 0 and 2 of the registers of 8 rows each are one column, bytes 1 and 3 the next. Lanes from 16 on exchange them.
// CHECK-LABEL: func @transpose
// CHECK-DAG: %[[FIRST:.*]] = llvm.mlir.constant(25632 : i32)
// CHECK-DAG: %[[SECOND:.*]] = llvm.mlir.constant(30001 : i32)
// CHECK: %[[R:.*]] = llvm.inline_asm has_side_effects "ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {$0, $1, $2, $3}, [$4];"
// CHECK-DAG: %[[R0:.*]] = llvm.extractvalue %[[R]][0]
// CHECK-DAG: %[[R1:.*]] = llvm.extractvalue %[[R]][1]
// CHECK-DAG: %[[A:.*]] = llvm.select %{{.*}}, %[[SECOND]], %[[FIRST]]
// CHECK-DAG: %[[B:.*]] = llvm.select %{{.*}}, %[[FIRST]], %[[SECOND]]
// CHECK: llvm.call_intrinsic "llvm.nvvm.prmt"(%[[R0]], %[[R1]], %[[A]])
// CHECK: llvm.call_intrinsic "llvm.nvvm.prmt"(%[[R0]], %[[R1]], %[[B]])
// CHECK-COUNT-2: llvm.call_intrinsic "llvm.nvvm.prmt"
// CHECK-NOT: llvm.and %{{.*}} : vector
// CHECK: "stmatrix.sync.aligned.m8n8.x4.shared.b16 [$0], {$1, $2, $3, $4};"
func.func @transpose(%v: memref<1x128x64xf8E4M3FN, #gpu.address_space<workgroup>>,
                     %t: memref<1x64x128xf8E4M3FN, #gpu.address_space<workgroup>>, %row: i32, %column: i32) {
  hopper.transpose %v[%row, %column] to %t : memref<1x128x64xf8E4M3FN, #gpu.address_space<workgroup>>,
    memref<1x64x128xf8E4M3FN, #gpu.address_space<workgroup>>
  return
}

// Bytes of rows that are left out are zeros.
// CHECK-LABEL: func @transpose_some
// CHECK-SAME: %[[BEGIN:[a-z0-9]+]]: i32, %[[END:[a-z0-9]+]]: i32)
// CHECK-COUNT-4: llvm.icmp "sge" %{{.*}}, %[[BEGIN]]
// CHECK-COUNT-4: llvm.and %{{.*}} : i32
// CHECK: stmatrix
func.func @transpose_some(%v: memref<1x128x64xf8E4M3FN, #gpu.address_space<workgroup>>,
                          %t: memref<1x64x128xf8E4M3FN, #gpu.address_space<workgroup>>, %row: i32, %begin: i32, %end: i32) {
  hopper.transpose %v[%row, %row] rows(%begin, %end) to %t : memref<1x128x64xf8E4M3FN, #gpu.address_space<workgroup>>,
    memref<1x64x128xf8E4M3FN, #gpu.address_space<workgroup>>
  return
}
