// RUN: flash-opt %s -flashattn-print-mask-tiles="nq=2048 nk=2048" -o /dev/null | FileCheck %s --check-prefix=CHUNKS
// RUN: flash-opt %s -flashattn-print-mask-tiles="nq=1000 nk=1400 tile-m=48 tile-n=80" -o /dev/null | FileCheck %s --check-prefix=ACROSS

// Rule M3 with floordiv: attention in chunks of 512 positions. Of the 1024 tiles 144 hold a pair, and
// in 112 of them every pair is visible.

// CHUNKS: mask #flashattn.set<{{.*}}: nq = 2048, nk = 2048, tile-m = 64, tile-n = 64, offset = 0
// CHUNKS-NEXT: {{^[+][.]{31}$}}
// CHUNKS-NEXT: {{^#[+][.]{30}$}}
// CHUNKS-NEXT: {{^##[+][.]{29}$}}
// CHUNKS-NEXT: {{^#{3}[+][.]{28}$}}
// CHUNKS-NEXT: {{^#{4}[+][.]{27}$}}
// CHUNKS-NEXT: {{^#{5}[+][.]{26}$}}
// CHUNKS-NEXT: {{^#{6}[+][.]{25}$}}
// CHUNKS-NEXT: {{^#{7}[+][.]{24}$}}
// CHUNKS-NEXT: {{^[.]{8}[+][.]{23}$}}
// CHUNKS: 112 full (#), 32 partial (+), 880 not visited (.); 525312 of 4194304 pairs visible

// Tiles that lie across two chunks, as the offset is no multiple.
// ACROSS: tile-m = 48, tile-n = 80, offset = 400
// ACROSS: 45 full (#), 51 partial (+), 282 not visited (.); 253332 of 1400000 pairs visible
#chunks = affine_set<(p, k)[nq, nk] : (k - 512 * (p floordiv 512) >= 0, p - k >= 0)>
func.func @chunks(%q: tensor<1x1x?x16xf32>, %k: tensor<1x1x?x16xf32>) -> tensor<1x1x?x16xf32> {
  %r = flashattn.attention mask(#flashattn.set<#chunks>)
       ins(%q, %k, %k : tensor<1x1x?x16xf32>, tensor<1x1x?x16xf32>, tensor<1x1x?x16xf32>)
       outs(%q : tensor<1x1x?x16xf32>) -> tensor<1x1x?x16xf32>
  return %r : tensor<1x1x?x16xf32>
}
