// RUN: flash-opt %s -split-input-file -flashattn-to-nvvm=chip=sm_90a | FileCheck %s --check-prefixes=CHECK,HOPPER
// RUN: flash-opt %s -split-input-file -flashattn-to-nvvm=chip=sm_80 | FileCheck %s --check-prefixes=CHECK,AMPERE
// RUN: flash-opt %s -split-input-file -flashattn-to-nvvm=chip=sm_90 | FileCheck %s --check-prefix=SM90
// RUN: flash-opt %s -split-input-file -flashattn-to-cpu | FileCheck %s --check-prefix=CPU

// Few queries of many keys, down to PTX: a kernel for where all keys are one part, as it is without
// parts; else room for the parts' outputs, a kernel over the parts, and one that merges them.
// AMPERE-NOT: flashattnSetLaunchFlags
// CHECK-LABEL: llvm.func @decode
// CHECK: llvm.call @flashattnMultiprocessorCount
// CHECK-NOT: llvm.call @_mlir_memref_to_llvm_alloc
// HOPPER-COUNT-4: llvm.call @flashattnEncodeTensorMap
// CHECK-NOT: flashattnSetLaunchFlags
// CHECK: gpu.launch_func @decode_kernel::
// CHECK: llvm.call @_mlir_memref_to_llvm_alloc
// The kernel over the parts stores f32 itself, without a tensor copy.
// HOPPER-COUNT-3: llvm.call @flashattnEncodeTensorMap
// CHECK-NOT: llvm.call @flashattnEncodeTensorMap
// CHECK-NOT: flashattnSetLaunchFlags
// CHECK: gpu.launch_func @decode_kernel_0
// Its launch may overlap with the end of the one before, and no other.
// AMPERE-NOT: flashattnSetLaunchFlags
// HOPPER: llvm.call @flashattnSetLaunchFlags
// CHECK: gpu.launch_func @decode_kernel_1
// CHECK: llvm.call @_mlir_memref_to_llvm_free
// HOPPER: gpu.binary @decode_kernel{{ }}
// HOPPER-NOT: griddepcontrol
// HOPPER-SAME: cp.async.bulk.tensor.5d.global
// CHECK: gpu.binary @decode_kernel_0
// HOPPER-SAME: griddepcontrol.launch_dependents;
// HOPPER-NOT: griddepcontrol
// HOPPER-SAME: cp.async.bulk.tensor.5d.shared::cluster
// HOPPER-SAME: wgmma.mma_async
// AMPERE-SAME: mma.sync
// AMPERE-NOT: griddepcontrol
// CHECK-SAME: st.global.v2.{{(b|f)}}32
// CHECK: gpu.binary @decode_kernel_1
// The merge starts beside the end of the one before, and reads nothing before that.
// HOPPER-NOT: ld.global
// HOPPER-SAME: griddepcontrol.wait;
// AMPERE-NOT: griddepcontrol
// CHECK-SAME: ex2.approx.ftz.f32
// SM90: gpu.binary @decode_kernel_0
// SM90-SAME: griddepcontrol.launch_dependents;
// SM90-SAME: mma.sync
// SM90: gpu.binary @decode_kernel_1
// SM90-SAME: griddepcontrol.wait;
// CPU-LABEL: llvm.func @decode
// CPU: llvm.call @flashattnThreadCount
// CPU: llvm.call @_mlir_memref_to_llvm_alloc
// CPU: llvm.call @flashattnParallelFor
// CPU: llvm.call @flashattnParallelFor
// CPU: llvm.call @_mlir_memref_to_llvm_free
// CPU: llvm.return
func.func @decode(%q: memref<?x32x1x128xbf16>, %k: memref<?x8x?x128xbf16>, %v: memref<?x8x?x128xbf16>, %n: memref<?xi32>, %o: memref<?x32x1x128xbf16>) {
  flashattn.attention mask(#flashattn.causal)
    ins(%q, %k, %v : memref<?x32x1x128xbf16>, memref<?x8x?x128xbf16>, memref<?x8x?x128xbf16>)
    kv_len(%n : memref<?xi32>) outs(%o : memref<?x32x1x128xbf16>)
  return
}
