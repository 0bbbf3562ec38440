// RUN: flash-opt %s -pass-pipeline='builtin.module(one-shot-bufferize{bufferize-function-boundaries function-boundary-type-conversion=identity-layout-map},canonicalize,cse,flashattn-select-schedule{chip=sm_90a},flashattn-tile,flashattn-specialize-warps,flashattn-expand-loops,flashattn-expand-rescale,hopper-expand-rings,canonicalize,cse,flashattn-contract-to-wgmma,flashattn-distribute,canonicalize,cse,flashattn-outline-kernels,convert-vector-to-scf,expand-strided-metadata,lower-affine,convert-scf-to-cf,gpu.module(flashattn-math-to-nvvm,convert-vector-to-llvm,convert-math-to-llvm,convert-arith-to-llvm,convert-gpu-to-nvvm,flashattn-declare-dynamic-shared-memory,convert-hopper-to-nvvm,cse,reconcile-unrealized-casts))' | FileCheck %s

// From tensors to the NVVM dialect with the passes one by one, as an embedder strings them
// between their own.

// CHECK-LABEL: func @attention
// CHECK-COUNT-3: hopper.make_tensor_map
// CHECK: gpu.launch_func @attention_kernel::@attention_kernel
// CHECK: gpu.module @attention_kernel
// CHECK: llvm.func @attention_kernel
// CHECK: nvvm.setmaxregister decrease
// CHECK: nvvm.setmaxregister increase
// CHECK: wgmma.mma_async
// CHECK-NOT: builtin.unrealized_conversion_cast
// CHECK-NOT: hopper.
func.func @attention(%q: tensor<2x8x?x128xbf16>, %k: tensor<2x2x?x128xbf16>, %v: tensor<2x2x?x128xbf16>, %o: tensor<2x8x?x128xbf16>) -> tensor<2x8x?x128xbf16> {
  %r = flashattn.attention mask(#flashattn.causal)
    ins(%q, %k, %v : tensor<2x8x?x128xbf16>, tensor<2x2x?x128xbf16>, tensor<2x2x?x128xbf16>)
    outs(%o : tensor<2x8x?x128xbf16>) -> tensor<2x8x?x128xbf16>
  return %r : tensor<2x8x?x128xbf16>
}
