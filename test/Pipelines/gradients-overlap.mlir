// RUN: flash-opt %s -flashattn-to-nvvm=chip=sm_90a | FileCheck %s --check-prefixes=CHECK,SUMS
// RUN: flash-opt %s -flashattn-to-nvvm=chip=sm_90 | FileCheck %s --check-prefix=BASES
// RUN: flash-opt %s -flashattn-to-nvvm=chip=sm_80 | FileCheck %s --check-prefix=ALONE --implicit-check-not=griddepcontrol --implicit-check-not=SetLaunchFlags

// Gradients are kernels that start beside the end of each other. The first one, whose launch is that
// of any kernel, has waited for all that was before it; each of the others waits, whatever it has to
// do: when the last one has ended, so have all.
// CHECK-LABEL: llvm.func @gradients
// CHECK-NOT: flashattnSetLaunchFlags
// CHECK: gpu.launch_func @gradients_kernel::
// CHECK-COUNT-2: llvm.call @flashattnSetLaunchFlags
// CHECK-NOT: flashattnSetLaunchFlags
// CHECK: gpu.launch_func @gradients_kernel_1::
// Two more make large rows again: the first finds their sums, which the second waits for.
// CHECK: llvm.call @flashattnSetLaunchFlags
// CHECK: gpu.launch_func @gradients_kernel_2::
// CHECK: llvm.call @flashattnSetLaunchFlags
// CHECK: gpu.launch_func @gradients_kernel_3::
// CHECK-NOT: gpu.launch_func
// CHECK: gpu.binary @gradients_kernel{{ }}
// CHECK-NOT: griddepcontrol.wait
// CHECK-SAME: griddepcontrol.launch_dependents;
// CHECK-NOT: griddepcontrol.wait
// The tiles that it keeps, of keys and values, come from no other kernel.
// CHECK: gpu.binary @gradients_kernel_0
// SUMS-SAME: cp.async.bulk.tensor.4d.shared::cluster
// CHECK-NOT: ld.global
// CHECK-NOT: cp.reduce
// CHECK-SAME: griddepcontrol.wait;
// CHECK-SAME: griddepcontrol.launch_dependents;
// SUMS-SAME: cp.reduce.async.bulk.global
// The last one waits for the sums that it reads, and for the kernel before it at its end; or for that at first.
// CHECK: gpu.binary @gradients_kernel_1
// CHECK-NOT: ld.global
// SUMS-NOT: griddepcontrol.wait;
// SUMS-SAME: ld.acquire.gpu.global.b32
// SUMS-SAME: ld.global
// SUMS-SAME: st.global
// CHECK-SAME: griddepcontrol.wait;
// CHECK-NOT: griddepcontrol.launch_dependents
// CHECK: gpu.binary @gradients_kernel_2
// CHECK-NOT: ld.global
// CHECK-SAME: griddepcontrol.wait;
// CHECK-SAME: griddepcontrol.launch_dependents;
// CHECK: gpu.binary @gradients_kernel_3
// CHECK-NOT: ld.global
// CHECK-NOT: st.global
// CHECK-SAME: griddepcontrol.wait;
// Without roles one kernel more finds the sums of large rows again: it waits for the flags, and the next one for it.
// BASES-LABEL: llvm.func @gradients
// BASES-NOT: flashattnSetLaunchFlags
// BASES: gpu.launch_func @gradients_kernel::
// BASES: llvm.call @flashattnSetLaunchFlags
// BASES-NOT: flashattnSetLaunchFlags
// BASES: gpu.launch_func @gradients_kernel_0::
// BASES: llvm.call @flashattnSetLaunchFlags
// BASES-NOT: flashattnSetLaunchFlags
// BASES: gpu.launch_func @gradients_kernel_1::
// BASES: llvm.call @flashattnSetLaunchFlags
// BASES-NOT: flashattnSetLaunchFlags
// BASES: gpu.launch_func @gradients_kernel_2::
// BASES-NOT: gpu.launch_func
// BASES: gpu.binary @gradients_kernel{{ }}
// BASES-NOT: griddepcontrol.wait
// BASES-SAME: griddepcontrol.launch_dependents;
// BASES-NOT: griddepcontrol.wait
// BASES: gpu.binary @gradients_kernel_0
// BASES-NOT: ld.global
// BASES-NOT: st.global
// BASES-SAME: griddepcontrol.wait;
// BASES-SAME: griddepcontrol.launch_dependents;
// BASES-SAME: ld.global.b32
// BASES-SAME: st.global.b32
// BASES: gpu.binary @gradients_kernel_1
// BASES-NOT: ld.global
// BASES-NOT: red.global
// BASES-SAME: griddepcontrol.wait;
// BASES-SAME: griddepcontrol.launch_dependents;
// BASES-SAME: ld.global
// BASES: gpu.binary @gradients_kernel_2
// BASES-NOT: ld.global
// BASES-SAME: griddepcontrol.wait;
// BASES-NOT: griddepcontrol.launch_dependents
// ALONE-LABEL: llvm.func @gradients
// ALONE: gpu.launch_func @gradients_kernel::
// ALONE: gpu.launch_func @gradients_kernel_0::
// ALONE: gpu.launch_func @gradients_kernel_1::
// ALONE: gpu.launch_func @gradients_kernel_2::
// ALONE-NOT: gpu.launch_func
// ALONE-COUNT-4: gpu.binary
// ALONE-NOT: gpu.binary
func.func @gradients(%q: memref<1x2x?x64xf16>, %k: memref<1x2x?x64xf16>, %v: memref<1x2x?x64xf16>, %o: memref<1x2x?x64xf16>, %lse: memref<1x2x?xf32>, %do: memref<1x2x?x64xf16>, %dq: memref<1x2x?x64xf16>, %dk: memref<1x2x?x64xf16>, %dv: memref<1x2x?x64xf16>) {
  flashattn.attention_backward
      ins(%q, %k, %v, %o, %lse, %do : memref<1x2x?x64xf16>, memref<1x2x?x64xf16>, memref<1x2x?x64xf16>, memref<1x2x?x64xf16>, memref<1x2x?xf32>, memref<1x2x?x64xf16>)
      outs(%dq, %dk, %dv : memref<1x2x?x64xf16>, memref<1x2x?x64xf16>, memref<1x2x?x64xf16>)
  return
}
