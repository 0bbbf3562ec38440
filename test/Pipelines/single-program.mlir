// RUN: flash-opt %s -flashattn-select-schedule -flashattn-tile -canonicalize | FileCheck %s
// RUN: flash-opt %s -flashattn-to-cpu | FileCheck %s --check-prefix=CPU
// RUN: flash-opt %s -flashattn-to-nvvm=chip=sm_80 | FileCheck %s --check-prefix=PTX

// One batch, one head, one query tile: canonicalisation must not take the loop over programs away,
// nor any of its dimensions.

// CHECK: %[[ONE:.*]] = arith.constant 1 : index
// CHECK: %[[SPACE:.*]] = flashattn.dense_space(%[[ONE]], %[[ONE]], %[[ONE]]) axes(batch, head, query_tile)
// CHECK: flashattn.program ({{.*}}) in %[[SPACE]]
// CPU: llvm.call @flashattnParallelFor
// PTX: gpu.binary
func.func @single(%q: memref<1x1x16x64xf16>, %o: memref<1x1x16x64xf16>) {
  flashattn.attention mask(#flashattn.causal)
      ins(%q, %q, %q : memref<1x1x16x64xf16>, memref<1x1x16x64xf16>, memref<1x1x16x64xf16>)
      outs(%o : memref<1x1x16x64xf16>)
  return
}
