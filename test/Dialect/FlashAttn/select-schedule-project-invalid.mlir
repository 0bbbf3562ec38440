// What a schedule of a projection may not be (R2).
// RUN: split-file %s %t
// RUN: flash-opt %t/gpu.mlir -split-input-file -flashattn-select-schedule=chip=sm_80 -verify-diagnostics
// RUN: flash-opt %t/cpu.mlir -split-input-file -flashattn-select-schedule=chip=cpu -verify-diagnostics

//--- gpu.mlir

func.func @roles(%o: memref<2x8x100x64xf16>, %w: memref<8x64x512xf16>, %p: memref<2x100x512xf16>) {
  // expected-error@+1 {{cannot be compiled for sm_80 with the schedule given: expected mapping cpu or mma_sync for a projection but got hopper}}
  flashattn.project schedule(<tile_m = 64, tile_n = 64, stages = 2, dot_type = f16, mapping = hopper<consumers = 1, along = query_tile, registers = 128, producer_registers = 32, rescale_threshold = 1, l2_head_group = 1>>) ins(%o, %w : memref<2x8x100x64xf16>, memref<8x64x512xf16>) outs(%p : memref<2x100x512xf16>)
  return
}

// -----

func.func @pack(%o: memref<2x8x100x64xf16>, %w: memref<8x64x512xf16>, %p: memref<2x100x512xf16>) {
  // expected-error@+1 {{cannot be compiled for sm_80 with the schedule given: expected pack 1 for a projection but got 2}}
  flashattn.project schedule(<tile_m = 64, tile_n = 64, stages = 2, dot_type = f16, pack = 2, mapping = mma_sync<warps = 4>>) ins(%o, %w : memref<2x8x100x64xf16>, memref<8x64x512xf16>) outs(%p : memref<2x100x512xf16>)
  return
}

// -----

func.func @splits(%o: memref<2x8x100x64xf16>, %w: memref<8x64x512xf16>, %p: memref<2x100x512xf16>) {
  // expected-error@+1 {{cannot be compiled for sm_80 with the schedule given: expected splits 1 for a projection but got 3}}
  flashattn.project schedule(<tile_m = 64, tile_n = 64, stages = 2, dot_type = f16, splits = 3, mapping = mma_sync<warps = 4>>) ins(%o, %w : memref<2x8x100x64xf16>, memref<8x64x512xf16>) outs(%p : memref<2x100x512xf16>)
  return
}

// -----

func.func @dot(%o: memref<2x8x100x64xf16>, %w: memref<8x64x512xf16>, %p: memref<2x100x512xf16>) {
  // expected-error@+1 {{cannot be compiled for sm_80 with the schedule given: expected dot_type f16, the operands' element type, but got bf16}}
  flashattn.project schedule(<tile_m = 64, tile_n = 64, stages = 2, dot_type = bf16, mapping = mma_sync<warps = 4>>) ins(%o, %w : memref<2x8x100x64xf16>, memref<8x64x512xf16>) outs(%p : memref<2x100x512xf16>)
  return
}

// -----

func.func @mapping(%o: memref<2x8x100x64xf16>, %w: memref<8x64x512xf16>, %p: memref<2x100x512xf16>) {
  // expected-error@+1 {{cannot be compiled for sm_80 with the schedule given: expected mapping mma_sync or hopper on a GPU but got cpu}}
  flashattn.project schedule(<tile_m = 64, tile_n = 64, stages = 2, dot_type = f16, mapping = cpu>) ins(%o, %w : memref<2x8x100x64xf16>, memref<8x64x512xf16>) outs(%p : memref<2x100x512xf16>)
  return
}

// -----

func.func @rows(%o: memref<2x8x100x64xf16>, %w: memref<8x64x512xf16>, %p: memref<2x100x512xf16>) {
  // expected-error@+1 {{cannot be compiled for sm_80 with the schedule given: expected tile_m to be a multiple of 16 rows times 4 warps but got 48}}
  flashattn.project schedule(<tile_m = 48, tile_n = 64, stages = 2, dot_type = f16, mapping = mma_sync<warps = 4>>) ins(%o, %w : memref<2x8x100x64xf16>, memref<8x64x512xf16>) outs(%p : memref<2x100x512xf16>)
  return
}

// -----

func.func @columns(%o: memref<2x8x100x64xf16>, %w: memref<8x64x512xf16>, %p: memref<2x100x512xf16>) {
  // expected-error@+1 {{cannot be compiled for sm_80 with the schedule given: expected tile_n to be a multiple of 16 but got 24}}
  flashattn.project schedule(<tile_m = 64, tile_n = 24, stages = 2, dot_type = f16, mapping = mma_sync<warps = 4>>) ins(%o, %w : memref<2x8x100x64xf16>, memref<8x64x512xf16>) outs(%p : memref<2x100x512xf16>)
  return
}

// -----

func.func @stages(%o: memref<2x8x100x64xf16>, %w: memref<8x64x512xf16>, %p: memref<2x100x512xf16>) {
  // expected-error@+1 {{cannot be compiled for sm_80 with the schedule given: expected stages to be 1 or 2 but got 3}}
  flashattn.project schedule(<tile_m = 64, tile_n = 64, stages = 3, dot_type = f16, mapping = mma_sync<warps = 4>>) ins(%o, %w : memref<2x8x100x64xf16>, memref<8x64x512xf16>) outs(%p : memref<2x100x512xf16>)
  return
}

// -----

func.func @shared(%o: memref<2x8x100x64xf16>, %w: memref<8x64x512xf16>, %p: memref<2x100x512xf16>) {
  // expected-error@+1 {{cannot be compiled for sm_80 with the schedule given: needs 278528 bytes of shared memory (o 262144, w 16384) of 166912 available}}
  flashattn.project schedule(<tile_m = 1024, tile_n = 64, stages = 2, dot_type = f16, mapping = mma_sync<warps = 16>>) ins(%o, %w : memref<2x8x100x64xf16>, memref<8x64x512xf16>) outs(%p : memref<2x100x512xf16>)
  return
}

// -----

func.func @registers(%o: memref<2x8x100x64xf16>, %w: memref<8x64x512xf16>, %p: memref<2x100x512xf16>) {
  // expected-error@+1 {{cannot be compiled for sm_80 with the schedule given: needs 256 registers per thread (p 256) of 200 available}}
  flashattn.project schedule(<tile_m = 256, tile_n = 128, stages = 2, dot_type = f16, mapping = mma_sync<warps = 4>>) ins(%o, %w : memref<2x8x100x64xf16>, memref<8x64x512xf16>) outs(%p : memref<2x100x512xf16>)
  return
}

//--- cpu.mlir

func.func @mapping(%o: memref<2x8x100x64xf16>, %w: memref<8x64x512xf16>, %p: memref<2x100x512xf16>) {
  // expected-error@+1 {{cannot be compiled for cpu with the schedule given: expected mapping cpu on the CPU but got mma_sync}}
  flashattn.project schedule(<tile_m = 32, tile_n = 64, stages = 1, dot_type = f32, mapping = mma_sync<warps = 2>>) ins(%o, %w : memref<2x8x100x64xf16>, memref<8x64x512xf16>) outs(%p : memref<2x100x512xf16>)
  return
}

// -----

func.func @cpu_dot(%o: memref<2x8x100x64xf16>, %w: memref<8x64x512xf16>, %p: memref<2x100x512xf16>) {
  // expected-error@+1 {{cannot be compiled for cpu with the schedule given: expected dot_type f32 on the CPU but got f16}}
  flashattn.project schedule(<tile_m = 32, tile_n = 64, stages = 1, dot_type = f16, mapping = cpu>) ins(%o, %w : memref<2x8x100x64xf16>, memref<8x64x512xf16>) outs(%p : memref<2x100x512xf16>)
  return
}
