// RUN: split-file %s %t
// RUN: flash-opt %t/op.mlir -flashattn-select-schedule=chip=cpu | FileCheck %s --check-prefix=CPU
// RUN: flash-opt %t/op.mlir "-flashattn-select-schedule=chip=cpu vector-width=8" | FileCheck %s --check-prefix=AVX2
// RUN: flash-opt %t/op.mlir -flashattn-select-schedule=chip=sm_80 | FileCheck %s --check-prefix=SM80
// RUN: flash-opt %t/op.mlir -flashattn-select-schedule=chip=sm_86 | FileCheck %s --check-prefix=SM86
// RUN: flash-opt %t/op.mlir "-flashattn-select-schedule=chip=sm_90 schedule='tile_m = 64, tile_n = 32, stages = 1, dot_type = f16, mapping = mma_sync<warps = 4>'" \
// RUN:   | FileCheck %s --check-prefix=PINNED
// RUN: flash-opt %t/given.mlir -flashattn-select-schedule=chip=sm_80 | FileCheck %s --check-prefix=GIVEN

//--- op.mlir
// CPU-LABEL: @half
// CPU: schedule(<tile_m = 32, tile_n = 64, stages = 1, dot_type = f32, mapping = cpu>)
// AVX2-LABEL: @half
// AVX2: schedule(<tile_m = 16,
// SM80-LABEL: @half
// SM80: schedule(<tile_m = 128, tile_n = 32, stages = 2, dot_type = f16, mapping = mma_sync<warps = 4>>)
// PINNED-LABEL: @half
// PINNED: schedule(<tile_m = 64, tile_n = 32, stages = 1, dot_type = f16, mapping = mma_sync<warps = 4>>)
func.func @half(%q: memref<?x?x?x128xf16>, %k: memref<?x?x?x128xf16>, %v: memref<?x?x?x128xf16>, %o: memref<?x?x?x128xf16>) {
  flashattn.attention ins(%q, %k, %v : memref<?x?x?x128xf16>, memref<?x?x?x128xf16>, memref<?x?x?x128xf16>)
    outs(%o : memref<?x?x?x128xf16>)
  return
}

// A larger head takes a smaller tile, and a chip with less shared memory a smaller one still.
// SM80-LABEL: @wide
// SM80: schedule(<tile_m = 64, tile_n = 32, stages = 2, dot_type = f16, mapping = mma_sync<warps = 4>>)
// SM86-LABEL: @wide
// SM86: schedule(<tile_m = 64, tile_n = 32, stages = 2, dot_type = f16, mapping = mma_sync<warps = 4>>)
func.func @wide(%q: memref<?x?x?x256xf16>, %k: memref<?x?x?x256xf16>, %v: memref<?x?x?x256xf16>, %o: memref<?x?x?x256xf16>) {
  flashattn.attention ins(%q, %k, %v : memref<?x?x?x256xf16>, memref<?x?x?x256xf16>, memref<?x?x?x256xf16>)
    outs(%o : memref<?x?x?x256xf16>)
  return
}

//--- given.mlir
// A schedule already there is kept.
// GIVEN-LABEL: @given
// GIVEN: schedule(<tile_m = 64, tile_n = 16, stages = 1, dot_type = f16, mapping = mma_sync<warps = 2>>)
func.func @given(%q: memref<?x?x?x64xf16>, %k: memref<?x?x?x64xf16>, %v: memref<?x?x?x64xf16>, %o: memref<?x?x?x64xf16>) {
  flashattn.attention schedule(<tile_m = 64, tile_n = 16, stages = 1, dot_type = f16, mapping = mma_sync<warps = 2>>)
    ins(%q, %k, %v : memref<?x?x?x64xf16>, memref<?x?x?x64xf16>, memref<?x?x?x64xf16>)
    outs(%o : memref<?x?x?x64xf16>)
  return
}
