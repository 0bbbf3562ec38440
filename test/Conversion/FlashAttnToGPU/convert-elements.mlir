// F1: elements of 8 bits. Chips from sm_89 on convert pairs of f8; the others shift and mask the bits.
// RUN: flash-opt %s -split-input-file -flashattn-math-to-nvvm | FileCheck %s

!bytes = memref<64xvector<8xf8E4M3FN>, 3>
!halves = memref<64xvector<8xf16>, 3>
gpu.module @pairs [#nvvm.target<chip = "sm_90a">] {
  // CHECK-LABEL: gpu.func @pairs
  // Both vectors are loaded before one is stored.
  // CHECK: memref.load
  // CHECK: memref.load
  // CHECK-COUNT-4: llvm.nvvm.e4m3x2.to.f16x2.rn
  // CHECK: memref.store
  // CHECK-COUNT-4: llvm.nvvm.e4m3x2.to.f16x2.rn
  // CHECK: memref.store
  gpu.func @pairs(%from: !bytes, %to: !halves, %i: index, %j: index) kernel {
    flashattn.convert_elements %from[%i, %j] to %to[%j, %i] : !bytes, !halves
    gpu.return
  }
}

// -----

!bytes = memref<64xvector<8xf8E4M3FN>, 3>
!halves = memref<64xvector<8xf16>, 3>
gpu.module @shifts [#nvvm.target<chip = "sm_80">] {
  // CHECK-LABEL: gpu.func @shifts
  // CHECK: %[[RAW:.*]] = arith.extui %{{.*}} : vector<8xi8> to vector<8xi16>
  // CHECK: arith.mulf %{{.*}} : vector<8xf16>
  // CHECK: arith.select
  // CHECK-NOT: llvm.nvvm
  gpu.func @shifts(%from: !bytes, %to: !halves, %i: index) kernel {
    flashattn.convert_elements %from[%i] to %to[%i] : !bytes, !halves
    gpu.return
  }
}

// -----

!bytes = memref<64xvector<8xi8>, 3>
!halves = memref<64xvector<8xbf16>, 3>
gpu.module @scaled [#nvvm.target<chip = "sm_90a">] {
  // CHECK-LABEL: gpu.func @scaled
  // CHECK: arith.sitofp
  // CHECK: arith.mulf {{.*}} : vector<8xf32>
  // CHECK: memref.store {{.*}} : memref<64xvector<8xbf16>, 3>
  gpu.func @scaled(%from: !bytes, %to: !halves, %i: index, %s: f32) kernel {
    flashattn.convert_elements %from[%i] scales(%s) to %to[%i] : !bytes, !halves
    gpu.return
  }
}
