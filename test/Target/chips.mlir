// A chip that no row of the table has is an error that names those that there are, not the code
// generator's end. Every row's PTX is of the lowest version that has it.
//
// RUN: not flash-opt %s -flashattn-to-nvvm=chip=sm_99 2>&1 | FileCheck %s --check-prefix=UNKNOWN --implicit-check-not="current operation" -DCHIP=sm_99
// RUN: not flash-opt %s -flashattn-to-nvvm=chip=sm_75 2>&1 | FileCheck %s --check-prefix=UNKNOWN --implicit-check-not="current operation" -DCHIP=sm_75
// RUN: not flash-opt %s -flashattn-to-nvvm=chip=sm_101a 2>&1 | FileCheck %s --check-prefix=UNKNOWN --implicit-check-not="current operation" -DCHIP=sm_101a
// RUN: not flash-opt %s -flashattn-to-nvvm=chip=cpu 2>&1 | FileCheck %s --check-prefix=UNKNOWN --implicit-check-not="current operation" -DCHIP=cpu
// UNKNOWN: chips.mlir:[[@LINE+17]]:1: error: expected chip 'sm_80', 'sm_86', 'sm_87', 'sm_89', 'sm_90', 'sm_90a', 'sm_100', {{.*}} but got '[[CHIP]]'
//
// RUN: flash-opt %s -flashattn-to-nvvm=chip=sm_80 | FileCheck %s -DVERSION=7.0 -DCHIP=sm_80
// RUN: flash-opt %s -flashattn-to-nvvm=chip=sm_86 | FileCheck %s -DVERSION=7.1 -DCHIP=sm_86
// RUN: flash-opt %s -flashattn-to-nvvm=chip=sm_87 | FileCheck %s -DVERSION=7.4 -DCHIP=sm_87
// RUN: flash-opt %s -flashattn-to-nvvm=chip=sm_89 | FileCheck %s -DVERSION=8.1 -DCHIP=sm_89
// RUN: flash-opt %s -flashattn-to-nvvm=chip=sm_90 | FileCheck %s -DVERSION=7.8 -DCHIP=sm_90
// RUN: flash-opt %s -flashattn-to-nvvm=chip=sm_90a | FileCheck %s -DVERSION=8.0 -DCHIP=sm_90a
// RUN: flash-opt %s -flashattn-to-nvvm=chip=sm_100 | FileCheck %s -DVERSION=8.6 -DCHIP=sm_100
// RUN: flash-opt %s -flashattn-to-nvvm=chip=sm_100a | FileCheck %s -DVERSION=8.6 -DCHIP=sm_100a
// RUN: flash-opt %s -flashattn-to-nvvm=chip=sm_103 | FileCheck %s -DVERSION=8.8 -DCHIP=sm_103
// RUN: flash-opt %s -flashattn-to-nvvm=chip=sm_103a | FileCheck %s -DVERSION=8.8 -DCHIP=sm_103a
// RUN: flash-opt %s -flashattn-to-nvvm=chip=sm_120 | FileCheck %s -DVERSION=8.7 -DCHIP=sm_120
// RUN: flash-opt %s -flashattn-to-nvvm=chip=sm_120a | FileCheck %s -DVERSION=8.7 -DCHIP=sm_120a
// RUN: flash-opt %s -flashattn-to-nvvm=chip=sm_121 | FileCheck %s -DVERSION=8.8 -DCHIP=sm_121
// RUN: flash-opt %s -flashattn-to-nvvm=chip=sm_121a | FileCheck %s -DVERSION=8.8 -DCHIP=sm_121a
// CHECK: .version [[VERSION]]\0A.target [[CHIP]]\0A
func.func @attention(%q: memref<?x?x?x64xf16>, %o: memref<?x?x?x64xf16>) {
  flashattn.attention ins(%q, %q, %q : memref<?x?x?x64xf16>, memref<?x?x?x64xf16>, memref<?x?x?x64xf16>)
    outs(%o : memref<?x?x?x64xf16>)
  return
}
