// Keys and values of 8 bits (rules F1 and F2), on the CPU: every element type, scales of every kind, and rows that are
// contiguous, packed, in pages, in slots and behind padding. Numbers of rows are odd.

// RUN: flash-run %s --device=cpu --verify --function=contiguous --input=random --input=random --input=random --input="53 7" | FileCheck %s --check-prefix=SIX
// RUN: flash-run %s --device=cpu --verify --function=packed --input=random --input=random --input=random --input="0 9 9 37" --input="0 21 30 53" --input="19 5 23" | FileCheck %s --check-prefix=FOUR
// The last entry of each row of the table is no page, and no key is in it.
// RUN: flash-run %s --device=cpu --verify --function=pages --input=random --input=random --input=random --input="61 17" \
// RUN:   --input="3 0 5 1 99 2 4 -7 -7 -7" --input="2 11" --input="0 9 37" | FileCheck %s --check-prefix=FIVE
// Every value of each type: a row that sees one key is its value. f8E4M3FN has 2 NaN, f8E5M2 6 and 2 infinities.
// RUN: flash-run %s --device=cpu --verify --function=codes | FileCheck %s --check-prefix=CODES
// CODES: output 0: 1x1x1x256xf32, min -448.0000, max 448.0000, {{.*}}, 2 not finite
// CODES: output 1: 1x1x1x256xf32, min -57344.0000, max 57344.0000, {{.*}}, 8 not finite
// CODES: output 2: 1x1x1x256xf32, min -128.0000, max 127.0000, mean -5.000e-01, first
// CODES: verify: 3 of 3 ops compared
// A row with the scale NaN is NaN where it is seen, and its scale has no effect where it is not (A7). The scale 0 gives 0.
// RUN: flash-run %s --device=cpu --verify --function=special --input=random --input=random --input=random \
// RUN:   --input="1x1x5x1xf32=1 0 1 nan nan" --input="1x1x5x1xf32=0 1 2 nan nan" --input="1xi32=3" | FileCheck %s --check-prefixes=SPECIAL,FINITE
// RUN: flash-run %s --device=cpu --verify --function=special --input=random --input=random --input=random \
// RUN:   --input="1x1x5x1xf32=1 0 1 nan nan" --input="1x1x5x1xf32=0 1 2 1 nan" --input="1xi32=4" | FileCheck %s --check-prefixes=SPECIAL,SEEN
// FINITE: output 0: 1x1x5x16xf32, min
// FINITE-NOT: not finite
// SEEN: output 0: 1x1x5x16xf32, {{.*}}, 32 not finite
// SPECIAL: verify: 1 of 1 ops compared
// The same memory is keys and values, each with scales of its own.
// RUN: flash-run %s --device=cpu --verify --function=same | FileCheck %s --check-prefix=TWO
// TWO: verify: 2 of 2 ops compared
// SIX: verify: 6 of 6 ops compared
// FOUR: verify: 4 of 4 ops compared
// FIVE: verify: 5 of 5 ops compared

func.func @contiguous(%q: memref<2x4x37x64xf32>, %q16: memref<2x4x37x64xf16>, %qb: memref<2x37x4x64xbf16>, %n: memref<2xi32>,
                      %k4: memref<2x2x53x64xf8E4M3FN>, %k5: memref<2x2x53x64xf8E5M2>, %k8: memref<2x2x53x64xi8>,
                      %v4: memref<2x2x53x32xf8E4M3FN>, %v5: memref<2x2x53x32xf8E5M2>, %v8: memref<2x2x53x32xi8>,
                      %kb: memref<2x53x2x64xi8>, %vb: memref<2x53x2x64xf8E4M3FN>, %v16: memref<2x2x53x32xf16>, %all: memref<1x1x1x1xf32>, %heads: memref<2x2x1x1xf32>,
                      %rows: memref<2x2x53x1xf32>, %row_blocks: memref<2x2x53x2xf32>, %blocks: memref<1x1x1x2xf32>,
                      %every_head: memref<1x53x1x2xf32>, %kheads: memref<2x2x1x1xf32>, %krows: memref<2x2x53x1xf32>) {
  %o = memref.alloc() : memref<2x4x37x32xf32>
  %o16 = memref.alloc() : memref<2x4x37x32xf16>
  %ob = memref.alloc() : memref<2x37x4x64xbf16>
  %lse = memref.alloc() : memref<2x4x37xf32>
  // No scale, and rows of one type beside rows of another.
  flashattn.attention kv_len(%n : memref<2xi32>)
      ins(%q16, %k4, %v5 : memref<2x4x37x64xf16>, memref<2x2x53x64xf8E4M3FN>, memref<2x2x53x32xf8E5M2>)
      outs(%o16, %lse : memref<2x4x37x32xf16>, memref<2x4x37xf32>)
  flashattn.attention mask(#flashattn.causal) scale(0.001)
      ins(%q, %k8, %v4 : memref<2x4x37x64xf32>, memref<2x2x53x64xi8>, memref<2x2x53x32xf8E4M3FN>)
      outs(%o, %lse : memref<2x4x37x32xf32>, memref<2x4x37xf32>)
  // One scale for all, and for each batch and head. Softcap sees the scaled scores.
  flashattn.attention mask(#flashattn.causal) softcap(2.0)
      ins(%q, %k5, %v8 : memref<2x4x37x64xf32>, memref<2x2x53x64xf8E5M2>, memref<2x2x53x32xi8>)
      k_scale(%all : memref<1x1x1x1xf32>) v_scale(%heads : memref<2x2x1x1xf32>)
      outs(%o, %lse : memref<2x4x37x32xf32>, memref<2x4x37xf32>)
  // A scale for each row, and for blocks of 32 elements of each row.
  flashattn.attention mask(#flashattn.window<left = 11, right = 3>) kv_len(%n : memref<2xi32>)
      ins(%q16, %k8, %v5 : memref<2x4x37x64xf16>, memref<2x2x53x64xi8>, memref<2x2x53x32xf8E5M2>)
      k_scale(%row_blocks : memref<2x2x53x2xf32>) v_scale(%rows : memref<2x2x53x1xf32>)
      outs(%o16, %lse : memref<2x4x37x32xf16>, memref<2x4x37xf32>)
  // Values of 16 bits beside keys of 8.
  flashattn.attention
      ins(%q16, %k8, %v16 : memref<2x4x37x64xf16>, memref<2x2x53x64xi8>, memref<2x2x53x32xf16>)
      k_scale(%krows : memref<2x2x53x1xf32>) outs(%o16, %lse : memref<2x4x37x32xf16>, memref<2x4x37xf32>)
  // Blocks whose scale serves all rows, and scales of rows that serve all heads.
  flashattn.attention mask(#flashattn.causal) layout(bshd)
      ins(%qb, %kb, %vb : memref<2x37x4x64xbf16>, memref<2x53x2x64xi8>, memref<2x53x2x64xf8E4M3FN>)
      k_scale(%blocks : memref<1x1x1x2xf32>) v_scale(%every_head : memref<1x53x1x2xf32>)
      outs(%ob, %lse : memref<2x37x4x64xbf16>, memref<2x4x37xf32>)
  return
}

func.func @packed(%q: memref<1x4x41x64xf32>, %qb: memref<1x41x4x64xbf16>, %kb: memref<1x53x2x64xf8E4M3FN>, %starts: memref<4xi32>,
                  %key_starts: memref<4xi32>, %n: memref<3xi32>, %k4: memref<1x2x53x64xf8E4M3FN>, %v8: memref<1x2x53x32xi8>,
                  %vb: memref<1x53x2x64xf8E5M2>, %slots: memref<3x2x29x64xi8>, %vs: memref<3x2x29x64xf8E4M3FN>, %ksequences: memref<3x2x1x1xf32>, %vsequences: memref<3x1x1x1xf32>,
                  %krows: memref<1x2x53x4xf32>, %vrows: memref<1x53x1x2xf32>, %kslots: memref<3x2x29x1xf32>,
                  %vslots: memref<3x2x1x2xf32>) {
  %o = memref.alloc() : memref<1x4x41x32xf32>
  %o64 = memref.alloc() : memref<1x4x41x64xf32>
  %ob = memref.alloc() : memref<1x41x4x64xbf16>
  %lse = memref.alloc() : memref<1x4x41xf32>
  // A scale for each sequence.
  flashattn.attention mask(#flashattn.causal) cu_seqlens_q(%starts : memref<4xi32>) cu_seqlens_k(%key_starts : memref<4xi32>)
      ins(%q, %k4, %v8 : memref<1x4x41x64xf32>, memref<1x2x53x64xf8E4M3FN>, memref<1x2x53x32xi8>)
      k_scale(%ksequences : memref<3x2x1x1xf32>) v_scale(%vsequences : memref<3x1x1x1xf32>)
      outs(%o, %lse : memref<1x4x41x32xf32>, memref<1x4x41xf32>)
  // Scales are packed like the rows.
  flashattn.attention mask(#flashattn.causal) cu_seqlens_q(%starts : memref<4xi32>) cu_seqlens_k(%key_starts : memref<4xi32>)
      kv_len(%n : memref<3xi32>)
      ins(%q, %k4, %v8 : memref<1x4x41x64xf32>, memref<1x2x53x64xf8E4M3FN>, memref<1x2x53x32xi8>)
      k_scale(%krows : memref<1x2x53x4xf32>) outs(%o, %lse : memref<1x4x41x32xf32>, memref<1x4x41xf32>)
  flashattn.attention layout(bshd) cu_seqlens_q(%starts : memref<4xi32>) cu_seqlens_k(%key_starts : memref<4xi32>)
      ins(%qb, %kb, %vb : memref<1x41x4x64xbf16>, memref<1x53x2x64xf8E4M3FN>, memref<1x53x2x64xf8E5M2>)
      v_scale(%vrows : memref<1x53x1x2xf32>) outs(%ob, %lse : memref<1x41x4x64xbf16>, memref<1x4x41xf32>)
  // Packed queries over keys in batches.
  flashattn.attention mask(#flashattn.causal) cu_seqlens_q(%starts : memref<4xi32>) kv_len(%n : memref<3xi32>)
      ins(%q, %slots, %vs : memref<1x4x41x64xf32>, memref<3x2x29x64xi8>, memref<3x2x29x64xf8E4M3FN>)
      k_scale(%kslots : memref<3x2x29x1xf32>) v_scale(%vslots : memref<3x2x1x2xf32>)
      outs(%o64, %lse : memref<1x4x41x64xf32>, memref<1x4x41xf32>)
  return
}

func.func @pages(%q: memref<2x4x37x64xf32>, %one: memref<2x4x1x64xf16>, %qp: memref<1x37x4x64xbf16>, %n: memref<2xi32>, %t: memref<2x5xi32>,
                 %padding: memref<2xi32>, %starts: memref<3xi32>, %k: memref<6x2x16x64xi8>, %v: memref<6x2x16x64xf8E5M2>,
                 %kp: memref<6x16x2x64xf8E4M3FN>, %vpool: memref<6x16x2x64xi8>, %keys: memref<2x2x75x64xf8E4M3FN>, %values: memref<2x2x75x64xf8E5M2>, %krows: memref<6x2x16x1xf32>,
                 %vrows: memref<6x1x16x4xf32>, %kheads: memref<2x2x1x1xf32>, %vblocks: memref<1x2x1x2xf32>,
                 %kprows: memref<6x16x2x2xf32>, %vp: memref<2x1x2x1xf32>, %slot: memref<2x1xi32>, %padded: memref<2x2x75x2xf32>) {
  %o = memref.alloc() : memref<2x4x37x64xf32>
  %lse = memref.alloc() : memref<2x4x37xf32>
  %o_one = memref.alloc() : memref<2x4x1x64xf16>
  %lse_one = memref.alloc() : memref<2x4x1xf32>
  %op = memref.alloc() : memref<1x37x4x64xbf16>
  %lse_p = memref.alloc() : memref<1x4x37xf32>
  // Scales in the pages of the rows.
  flashattn.attention mask(#flashattn.causal) kv_len(%n : memref<2xi32>) page_table(%t : memref<2x5xi32>)
      ins(%q, %k, %v : memref<2x4x37x64xf32>, memref<6x2x16x64xi8>, memref<6x2x16x64xf8E5M2>)
      k_scale(%krows : memref<6x2x16x1xf32>) v_scale(%vrows : memref<6x1x16x4xf32>)
      outs(%o, %lse : memref<2x4x37x64xf32>, memref<2x4x37xf32>)
  // One query, whose heads share a tile; scales of a sequence, wherever its pages are, and of all.
  flashattn.attention kv_len(%n : memref<2xi32>) page_table(%t : memref<2x5xi32>)
      ins(%one, %k, %v : memref<2x4x1x64xf16>, memref<6x2x16x64xi8>, memref<6x2x16x64xf8E5M2>)
      k_scale(%kheads : memref<2x2x1x1xf32>) v_scale(%vblocks : memref<1x2x1x2xf32>)
      outs(%o_one, %lse_one : memref<2x4x1x64xf16>, memref<2x4x1xf32>)
  // Packed queries.
  flashattn.attention mask(#flashattn.causal) layout(bshd) cu_seqlens_q(%starts : memref<3xi32>) kv_len(%n : memref<2xi32>)
      page_table(%t : memref<2x5xi32>)
      ins(%qp, %kp, %vpool : memref<1x37x4x64xbf16>, memref<6x16x2x64xf8E4M3FN>, memref<6x16x2x64xi8>)
      k_scale(%kprows : memref<6x16x2x2xf32>) v_scale(%vp : memref<2x1x2x1xf32>)
      outs(%op, %lse_p : memref<1x37x4x64xbf16>, memref<1x4x37xf32>)
  // Padding before the keys, in pages and without.
  flashattn.attention mask(#flashattn.causal) kv_len(%n : memref<2xi32>) page_table(%t : memref<2x5xi32>) leftpad_k(%padding : memref<2xi32>)
      ins(%q, %k, %v : memref<2x4x37x64xf32>, memref<6x2x16x64xi8>, memref<6x2x16x64xf8E5M2>)
      k_scale(%krows : memref<6x2x16x1xf32>) v_scale(%vrows : memref<6x1x16x4xf32>)
      outs(%o, %lse : memref<2x4x37x64xf32>, memref<2x4x37xf32>)
  flashattn.attention mask(#flashattn.causal) kv_len(%n : memref<2xi32>) leftpad_k(%padding : memref<2xi32>)
      ins(%q, %keys, %values : memref<2x4x37x64xf32>, memref<2x2x75x64xf8E4M3FN>, memref<2x2x75x64xf8E5M2>)
      k_scale(%padded : memref<2x2x75x2xf32>) v_scale(%kheads : memref<2x2x1x1xf32>)
      outs(%o, %lse : memref<2x4x37x64xf32>, memref<2x4x37xf32>)
  return
}

func.func @same(%q: memref<1x2x19x64xf32>, %k: memref<1x1x23x64xi8>, %ks: memref<1x1x23x1xf32>, %vs: memref<1x1x1x4xf32>) {
  %o = memref.alloc() : memref<1x2x19x64xf32>
  flashattn.attention mask(#flashattn.causal)
      ins(%q, %k, %k : memref<1x2x19x64xf32>, memref<1x1x23x64xi8>, memref<1x1x23x64xi8>)
      k_scale(%ks : memref<1x1x23x1xf32>) v_scale(%vs : memref<1x1x1x4xf32>) outs(%o : memref<1x2x19x64xf32>)
  // Keys without scales, and any strides.
  %c = memref.alloc() : memref<1x2x19x64xf32>
  %r = memref.cast %k : memref<1x1x23x64xi8> to memref<?x?x?x64xi8, strided<[?, ?, ?, 1], offset: ?>>
  flashattn.attention mask(#flashattn.causal) scale(0.001)
      ins(%q, %r, %r : memref<1x2x19x64xf32>, memref<?x?x?x64xi8, strided<[?, ?, ?, 1], offset: ?>>,
          memref<?x?x?x64xi8, strided<[?, ?, ?, 1], offset: ?>>)
      v_scale(%vs : memref<1x1x1x4xf32>) outs(%c : memref<1x2x19x64xf32>)
  return
}

func.func @codes(%q: tensor<1x1x1x16xf32>, %k: tensor<1x1x1x16xf8E5M2>) -> (tensor<1x1x1x256xf32>, tensor<1x1x1x256xf32>, tensor<1x1x1x256xf32>) {
  %o = tensor.empty() : tensor<1x1x1x256xf32>
  %v4 = arith.constant dense<"0x000102030405060708090A0B0C0D0E0F101112131415161718191A1B1C1D1E1F202122232425262728292A2B2C2D2E2F303132333435363738393A3B3C3D3E3F404142434445464748494A4B4C4D4E4F505152535455565758595A5B5C5D5E5F606162636465666768696A6B6C6D6E6F707172737475767778797A7B7C7D7E7F808182838485868788898A8B8C8D8E8F909192939495969798999A9B9C9D9E9FA0A1A2A3A4A5A6A7A8A9AAABACADAEAFB0B1B2B3B4B5B6B7B8B9BABBBCBDBEBFC0C1C2C3C4C5C6C7C8C9CACBCCCDCECFD0D1D2D3D4D5D6D7D8D9DADBDCDDDEDFE0E1E2E3E4E5E6E7E8E9EAEBECEDEEEFF0F1F2F3F4F5F6F7F8F9FAFBFCFDFEFF"> : tensor<1x1x1x256xf8E4M3FN>
  %v5 = arith.constant dense<"0x000102030405060708090A0B0C0D0E0F101112131415161718191A1B1C1D1E1F202122232425262728292A2B2C2D2E2F303132333435363738393A3B3C3D3E3F404142434445464748494A4B4C4D4E4F505152535455565758595A5B5C5D5E5F606162636465666768696A6B6C6D6E6F707172737475767778797A7B7C7D7E7F808182838485868788898A8B8C8D8E8F909192939495969798999A9B9C9D9E9FA0A1A2A3A4A5A6A7A8A9AAABACADAEAFB0B1B2B3B4B5B6B7B8B9BABBBCBDBEBFC0C1C2C3C4C5C6C7C8C9CACBCCCDCECFD0D1D2D3D4D5D6D7D8D9DADBDCDDDEDFE0E1E2E3E4E5E6E7E8E9EAEBECEDEEEFF0F1F2F3F4F5F6F7F8F9FAFBFCFDFEFF"> : tensor<1x1x1x256xf8E5M2>
  %v8 = arith.constant dense<"0x000102030405060708090A0B0C0D0E0F101112131415161718191A1B1C1D1E1F202122232425262728292A2B2C2D2E2F303132333435363738393A3B3C3D3E3F404142434445464748494A4B4C4D4E4F505152535455565758595A5B5C5D5E5F606162636465666768696A6B6C6D6E6F707172737475767778797A7B7C7D7E7F808182838485868788898A8B8C8D8E8F909192939495969798999A9B9C9D9E9FA0A1A2A3A4A5A6A7A8A9AAABACADAEAFB0B1B2B3B4B5B6B7B8B9BABBBCBDBEBFC0C1C2C3C4C5C6C7C8C9CACBCCCDCECFD0D1D2D3D4D5D6D7D8D9DADBDCDDDEDFE0E1E2E3E4E5E6E7E8E9EAEBECEDEEEFF0F1F2F3F4F5F6F7F8F9FAFBFCFDFEFF"> : tensor<1x1x1x256xi8>
  %0 = flashattn.attention ins(%q, %k, %v4 : tensor<1x1x1x16xf32>, tensor<1x1x1x16xf8E5M2>, tensor<1x1x1x256xf8E4M3FN>)
      outs(%o : tensor<1x1x1x256xf32>) -> tensor<1x1x1x256xf32>
  %1 = flashattn.attention ins(%q, %k, %v5 : tensor<1x1x1x16xf32>, tensor<1x1x1x16xf8E5M2>, tensor<1x1x1x256xf8E5M2>)
      outs(%o : tensor<1x1x1x256xf32>) -> tensor<1x1x1x256xf32>
  %2 = flashattn.attention ins(%q, %k, %v8 : tensor<1x1x1x16xf32>, tensor<1x1x1x16xf8E5M2>, tensor<1x1x1x256xi8>)
      outs(%o : tensor<1x1x1x256xf32>) -> tensor<1x1x1x256xf32>
  return %0, %1, %2 : tensor<1x1x1x256xf32>, tensor<1x1x1x256xf32>, tensor<1x1x1x256xf32>
}

func.func @special(%q: memref<1x1x5x16xf32>, %k: memref<1x1x5x16xf8E4M3FN>, %v: memref<1x1x5x16xi8>, %ks: memref<1x1x5x1xf32>,
                   %vs: memref<1x1x5x1xf32>, %n: memref<1xi32>, %o: memref<1x1x5x16xf32>) {
  flashattn.attention mask(#flashattn.causal) align(top_left)
      ins(%q, %k, %v : memref<1x1x5x16xf32>, memref<1x1x5x16xf8E4M3FN>, memref<1x1x5x16xi8>)
      k_scale(%ks : memref<1x1x5x1xf32>) v_scale(%vs : memref<1x1x5x1xf32>) kv_len(%n : memref<1xi32>)
      outs(%o : memref<1x1x5x16xf32>)
  return
}
