// RUN: flash-opt %s -flashattn-print-mask-tiles -o /dev/null | FileCheck %s
// RUN: flash-opt %s -flashattn-print-mask-tiles="tile-n=24" -o /dev/null | FileCheck %s --check-prefix=OPTION
// RUN: flash-opt %s -flashattn-print-mask-tiles="nq=6400 nk=12900 tile-m=64 tile-n=64" -o /dev/null | FileCheck %s --check-prefix=SCALED

// The tiles are those of the op's schedule; an option comes first.
// CHECK: nq = 48, nk = 48, tile-m = 16, tile-n = 8, offset = 0
// CHECK-NEXT: {{^[+][+][.]{4}$}}
// OPTION: tile-m = 16, tile-n = 24, offset = 0
// OPTION-NEXT: {{^[+][.]$}}

// 100 query tiles are 100 lines, and 202 key tiles 68 characters.
// SCALED: offset = 6500, a character for 1 by 3 tiles
// SCALED-NEXT: {{^#{33}[+]{2}[.]{33}$}}
// SCALED-COUNT-98: {{^[#+.]{68}$}}
// SCALED-NEXT: {{^#{66}[+]{2}$}}
// SCALED-NEXT: full (#)
func.func @pinned(%q: tensor<1x1x48x16xf32>) -> tensor<1x1x48x16xf32> {
  %r = flashattn.attention mask(#flashattn.causal)
       schedule(<tile_m = 16, tile_n = 8, stages = 1, dot_type = f32, mapping = cpu>)
       ins(%q, %q, %q : tensor<1x1x48x16xf32>, tensor<1x1x48x16xf32>, tensor<1x1x48x16xf32>)
       outs(%q : tensor<1x1x48x16xf32>) -> tensor<1x1x48x16xf32>
  return %r : tensor<1x1x48x16xf32>
}
