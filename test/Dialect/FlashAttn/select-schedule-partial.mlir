// RUN: flash-opt %s "-flashattn-select-schedule=chip=cpu schedule='tile_m = 16'" | FileCheck %s --check-prefix=CPU
// RUN: flash-opt %s "-flashattn-select-schedule=chip=cpu schedule='tile_m = 128'" | FileCheck %s --check-prefix=CPU-MORE
// RUN: flash-opt %s "-flashattn-select-schedule=chip=sm_80 schedule='stages = 1'" | FileCheck %s --check-prefix=AMPERE
// RUN: flash-opt %s "-flashattn-select-schedule=chip=sm_90a schedule='tile_n = 96'" | FileCheck %s --check-prefix=HOPPER
// RUN: not flash-opt %s "-flashattn-select-schedule=chip=sm_80 schedule='mapping = cpu'" 2>&1 | FileCheck %s --check-prefix=NONE
// RUN: not flash-opt %s "-flashattn-select-schedule=chip=cpu schedule='tile_m = 5000'" 2>&1 | FileCheck %s --check-prefix=RANGE
// RUN: not flash-opt %s "-flashattn-select-schedule=chip=sm_90a schedule='mapping = hopper<consumers = 2, q_stages = 3>'" 2>&1 | FileCheck %s --check-prefix=ROLES
// RUN: not flash-opt %s "-flashattn-select-schedule=chip=sm_90a schedule='mapping = hopper<consumers = 2, registers = 100>'" 2>&1 | FileCheck %s --check-prefix=REGISTERS

// Some fields are pinned, the others chosen with them.
// CPU: schedule(<tile_m = 16, tile_n = {{[0-9]+}}, stages = 1, dot_type = f32, mapping = cpu>)
// CPU-MORE: schedule(<tile_m = 128, tile_n = {{[0-9]+}}, stages = 1, dot_type = f32, mapping = cpu>)
// AMPERE: schedule(<tile_m = 128, tile_n = 48, stages = 1, dot_type = f16
// HOPPER: schedule(<tile_m = 64, tile_n = 96, {{.*}}mapping = hopper<
// NONE: cannot be compiled for sm_80: no schedule with mapping = cpu fits: expected mapping mma_sync or hopper on a GPU but got cpu: {{[0-9]+}} schedules, the first of them tile_m = 128, {{.*}}mapping = cpu
// RANGE: no schedule with tile_m = 5000 fits: expected schedule field 'tile_m' between 1 and 1024 but got 5000: {{.*}}tile_m = 5000
// ROLES: no schedule with mapping = hopper<consumers = 2, q_stages = 3> fits: expected schedule field 'q_stages' between 1 and 2 but got 3
// REGISTERS: no schedule with mapping = hopper<consumers = 2, registers = 100> fits: expected schedule field 'registers' to be a multiple of 8, as setmaxnreg requires, but got 100
func.func @f(%q: memref<2x4x?x64xf16>, %o: memref<2x4x?x64xf16>) {
  flashattn.attention ins(%q, %q, %q : memref<2x4x?x64xf16>, memref<2x4x?x64xf16>, memref<2x4x?x64xf16>)
    outs(%o : memref<2x4x?x64xf16>)
  return
}
