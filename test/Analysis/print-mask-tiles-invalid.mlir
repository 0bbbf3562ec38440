// RUN: not flash-opt %s -flashattn-print-mask-tiles="nk=8" 2>&1 | FileCheck %s --check-prefix=MISSING
// RUN: not flash-opt %s -flashattn-print-mask-tiles="nq=0 nk=8" 2>&1 | FileCheck %s --check-prefix=ZERO
// RUN: not flash-opt %s -flashattn-print-mask-tiles="nq=4 nk=8 tile-n=-1" 2>&1 | FileCheck %s --check-prefix=TILE
// RUN: not flash-opt %s -flashattn-print-mask-tiles="nq=4 nk=8" 2>&1 | FileCheck %s --check-prefix=OFFSET
// RUN: not flash-opt %s -flashattn-print-mask-tiles="nq=2147483648 nk=8" 2>&1 | FileCheck %s --check-prefix=SIZE
// RUN: not flash-opt %s -flashattn-print-mask-tiles="nq=1000000 nk=1000000 offset=0" 2>&1 | FileCheck %s --check-prefix=TILES
// RUN: not flash-opt %s -flashattn-print-mask-tiles="nq=4 nk=8 offset=0 symbols=1" 2>&1 | FileCheck %s --check-prefix=SYMBOLS
// RUN: flash-opt %s -flashattn-print-mask-tiles="nq=4 nk=8 offset=0" | FileCheck %s --check-prefix=OK

// MISSING: expected option 'nq' for the dynamic size in 'tensor<1x1x?x16xf32>'
// ZERO: print-mask-tiles-invalid.mlir:18:1: error: expected option 'nq' of at least 1 but got 0
// TILE: expected option 'tile-n' of at least 1 but got -1
// SYMBOLS: expected no option 'symbols' for an op without per_sequence, per_query and per_key but got 1 number
// OFFSET: expected option 'offset' or a constant offset of the op but got neither
// SIZE: expected a size from 1 to 2147483647 for 'nq' but got 2147483648
// TILES: expected at most 67108864 tiles but got 15625 by 15625; decrease 'nq' or 'nk', or increase 'tile-m' or 'tile-n'
// OK: nq = 4, nk = 8, tile-m = 64, tile-n = 64, offset = 0
func.func @sizes(%q: tensor<1x1x?x16xf32>, %o: tensor<1x1x?x16xf32>, %offset: index) -> tensor<1x1x?x16xf32> {
  %0 = flashattn.attention mask(#flashattn.causal) ins(%q, %q, %q : tensor<1x1x?x16xf32>, tensor<1x1x?x16xf32>, tensor<1x1x?x16xf32>)
       offset(%offset) outs(%o : tensor<1x1x?x16xf32>) -> tensor<1x1x?x16xf32>
  return %0 : tensor<1x1x?x16xf32>
}
