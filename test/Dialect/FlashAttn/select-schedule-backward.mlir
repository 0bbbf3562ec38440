// RUN: flash-opt %s -flashattn-select-schedule=chip=sm_80 | FileCheck %s
// RUN: flash-opt %s -flashattn-select-schedule=chip=sm_86 | FileCheck %s --check-prefix=SM86
// RUN: flash-opt %s "-flashattn-select-schedule=chip=sm_80 schedule='tile_n = 16'" | FileCheck %s --check-prefix=PINNED
// RUN: flash-opt %s "-flashattn-select-schedule=chip=sm_80 schedule='algorithm = separate_dk_dv, stages = 1'" | FileCheck %s --check-prefix=APART
// RUN: flash-opt %s "-flashattn-select-schedule=chip=cpu schedule='dq_tile_m = 8, algorithm = separate_dk_dv'" | FileCheck %s --check-prefix=CPU

// Programs over keys make the gradients of queries too, where there is shared memory for what their
// warps exchange.
// CHECK-LABEL: @half
// CHECK: schedule(<tile_m = 128, tile_n = 64, stages = 2, dot_type = f16, algorithm = accumulate_dq, mapping = mma_sync<warps = 8, column_warps = 2>>)
// SM86-LABEL: @half
// SM86: schedule(<tile_m = 64, tile_n = 32, stages = 2, dot_type = f16, algorithm = separate_dq, mapping = mma_sync<warps = 4>>)
// What is left out of a pin comes from the row of the table that has it.
// PINNED-LABEL: @half
// PINNED: schedule(<tile_m = 64, tile_n = 16, stages = 2, dot_type = f16, algorithm = separate_dk_dv, mapping = mma_sync<warps = 4>>)
// APART-LABEL: @half
// APART: schedule(<tile_m = 64, tile_n = 32, stages = 1, dot_type = f16, algorithm = separate_dk_dv, mapping = mma_sync<warps = 4>>)
// CPU-LABEL: @half
// CPU: dot_type = f32, dq_tile_m = 8, algorithm = separate_dk_dv, mapping = cpu>)
func.func @half(%q: memref<?x?x?x128xf16>, %dq: memref<?x?x?x128xf16>, %dk: memref<?x?x?x128xf16>, %dv: memref<?x?x?x128xf16>, %lse: memref<?x?x?xf32>) {
  flashattn.attention_backward ins(%q, %q, %q, %q, %lse, %q
      : memref<?x?x?x128xf16>, memref<?x?x?x128xf16>, memref<?x?x?x128xf16>, memref<?x?x?x128xf16>, memref<?x?x?xf32>, memref<?x?x?x128xf16>)
    outs(%dq, %dk, %dv : memref<?x?x?x128xf16>, memref<?x?x?x128xf16>, memref<?x?x?x128xf16>)
  return
}

// B4: programs that add theirs do so in any order.
// CHECK-LABEL: @deterministic
// CHECK: schedule(<tile_m = 64, tile_n = 32, stages = 2, dot_type = f16, algorithm = separate_dq, mapping = mma_sync<warps = 4>>)
func.func @deterministic(%q: memref<?x?x?x128xf16>, %dq: memref<?x?x?x128xf16>, %dk: memref<?x?x?x128xf16>, %dv: memref<?x?x?x128xf16>, %lse: memref<?x?x?xf32>) {
  flashattn.attention_backward deterministic ins(%q, %q, %q, %q, %lse, %q
      : memref<?x?x?x128xf16>, memref<?x?x?x128xf16>, memref<?x?x?x128xf16>, memref<?x?x?x128xf16>, memref<?x?x?xf32>, memref<?x?x?x128xf16>)
    outs(%dq, %dk, %dv : memref<?x?x?x128xf16>, memref<?x?x?x128xf16>, memref<?x?x?x128xf16>)
  return
}

// Two sums of a wide head do not fit one program.
// CHECK-LABEL: @wide
// CHECK: schedule(<tile_m = 64, tile_n = 16, stages = 2, dot_type = f16, algorithm = separate_dk_dv, mapping = mma_sync<warps = 4>>)
func.func @wide(%q: memref<?x?x?x256xf16>, %dq: memref<?x?x?x256xf16>, %dk: memref<?x?x?x256xf16>, %dv: memref<?x?x?x256xf16>, %lse: memref<?x?x?xf32>) {
  flashattn.attention_backward ins(%q, %q, %q, %q, %lse, %q
      : memref<?x?x?x256xf16>, memref<?x?x?x256xf16>, memref<?x?x?x256xf16>, memref<?x?x?x256xf16>, memref<?x?x?xf32>, memref<?x?x?x256xf16>)
    outs(%dq, %dk, %dv : memref<?x?x?x256xf16>, memref<?x?x?x256xf16>, memref<?x?x?x256xf16>)
  return
}

// With less shared memory a block has fewer rows.
// CHECK-LABEL: @single
// CHECK: schedule(<tile_m = 64, tile_n = 16, stages = 1, dot_type = f32, algorithm = separate_dk_dv, mapping = mma_sync<warps = 4>>)
// SM86-LABEL: @single
// SM86: schedule(<tile_m = 32, tile_n = 16, stages = 1, dot_type = f32, algorithm = separate_dk_dv, mapping = mma_sync<warps = 2>>)
func.func @single(%q: memref<?x?x?x256xf32>, %dq: memref<?x?x?x256xf32>, %dk: memref<?x?x?x256xf32>, %dv: memref<?x?x?x256xf32>, %lse: memref<?x?x?xf32>) {
  flashattn.attention_backward ins(%q, %q, %q, %q, %lse, %q
      : memref<?x?x?x256xf32>, memref<?x?x?x256xf32>, memref<?x?x?x256xf32>, memref<?x?x?x256xf32>, memref<?x?x?xf32>, memref<?x?x?x256xf32>)
    outs(%dq, %dk, %dv : memref<?x?x?x256xf32>, memref<?x?x?x256xf32>, memref<?x?x?x256xf32>)
  return
}
