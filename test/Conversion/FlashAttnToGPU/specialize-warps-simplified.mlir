// What simplification takes from the key loops is named: pipelined loops of one tile fold.

// RUN: not flash-opt %s -flashattn-select-schedule=chip=sm_90a -flashattn-tile -flashattn-pipeline-keys -canonicalize -flashattn-specialize-warps -o /dev/null 2>&1 | FileCheck %s
// RUN: not flash-opt %s -flashattn-select-schedule=chip=sm_90a -flashattn-tile -canonicalize -flashattn-pipeline-keys -flashattn-specialize-warps -o /dev/null 2>&1 | FileCheck %s
// CHECK: [[@LINE+2]]:3: error: 'scf.forall' op expected the key loops as flashattn-tile and flashattn-pipeline-keys leave them, with no simplification in between, but got no key loops with 'flashattn.key_run'
func.func @attention(%q: memref<1x2x64x64xf16>, %o: memref<1x2x64x64xf16>) {
  flashattn.attention mask(#flashattn.causal)
      ins(%q, %q, %q : memref<1x2x64x64xf16>, memref<1x2x64x64xf16>, memref<1x2x64x64xf16>)
      outs(%o : memref<1x2x64x64xf16>)
  return
}
