// RUN: flash-opt %s -split-input-file -verify-diagnostics -o /dev/null

// Rules F1 and R1: keys and values of 8 bits, and their scales.

func.func @type_of_k(%q: memref<2x4x?x64xf16>, %k: memref<2x2x?x64xf8E4M3FNUZ>, %v: memref<2x2x?x64xi8>, %o: memref<2x4x?x64xf16>) {
  // expected-error @+1 {{expected 'k' with element type f16, bf16, f32, f8E4M3FN, f8E5M2 or i8 but got 'f8E4M3FNUZ'}}
  flashattn.attention ins(%q, %k, %v : memref<2x4x?x64xf16>, memref<2x2x?x64xf8E4M3FNUZ>, memref<2x2x?x64xi8>)
      outs(%o : memref<2x4x?x64xf16>)
  return
}

// -----

func.func @unsigned(%q: memref<2x4x?x64xf16>, %k: memref<2x2x?x64xf8E4M3FN>, %v: memref<2x2x?x64xui8>, %o: memref<2x4x?x64xf16>) {
  // expected-error @+1 {{expected 'v' with element type f16, bf16, f32, f8E4M3FN, f8E5M2 or i8 but got 'ui8'}}
  flashattn.attention ins(%q, %k, %v : memref<2x4x?x64xf16>, memref<2x2x?x64xf8E4M3FN>, memref<2x2x?x64xui8>)
      outs(%o : memref<2x4x?x64xf16>)
  return
}

// -----

func.func @other_than_q(%q: memref<2x4x?x64xf16>, %k: memref<2x2x?x64xbf16>, %v: memref<2x2x?x64xi8>, %o: memref<2x4x?x64xf16>) {
  // expected-error @+1 {{expected 'k' with element type 'f16' as in 'q', f8E4M3FN, f8E5M2 or i8 but got 'bf16'}}
  flashattn.attention ins(%q, %k, %v : memref<2x4x?x64xf16>, memref<2x2x?x64xbf16>, memref<2x2x?x64xi8>)
      outs(%o : memref<2x4x?x64xf16>)
  return
}

// -----

func.func @output(%q: memref<2x4x?x64xf16>, %k: memref<2x2x?x64xf8E4M3FN>, %v: memref<2x2x?x64xi8>, %o: memref<2x4x?x64xf8E5M2>) {
  // expected-error @+1 {{expected 'o' with element type f16, bf16 or f32 but got 'f8E5M2'}}
  flashattn.attention ins(%q, %k, %v : memref<2x4x?x64xf16>, memref<2x2x?x64xf8E4M3FN>, memref<2x2x?x64xi8>)
      outs(%o : memref<2x4x?x64xf8E5M2>)
  return
}

// -----

func.func @no_scale_of_16_bits(%q: memref<2x4x?x64xf16>, %k: memref<2x2x?x64xf16>, %v: memref<2x2x?x64xi8>, %o: memref<2x4x?x64xf16>, %s: memref<1x1x1x1xf32>) {
  // expected-error @+1 {{expected no 'k_scale' with 'k' of 'f16' but got one}}
  flashattn.attention ins(%q, %k, %v : memref<2x4x?x64xf16>, memref<2x2x?x64xf16>, memref<2x2x?x64xi8>)
      k_scale(%s : memref<1x1x1x1xf32>) outs(%o : memref<2x4x?x64xf16>)
  return
}

// -----

func.func @no_scale_of_32_bits(%q: memref<2x4x?x64xf32>, %k: memref<2x2x?x64xf8E4M3FN>, %v: memref<2x2x?x64xf32>, %o: memref<2x4x?x64xf32>, %t: memref<1x1x1x1xf32>) {
  // expected-error @+1 {{expected no 'v_scale' with 'v' of 'f32' but got one}}
  flashattn.attention ins(%q, %k, %v : memref<2x4x?x64xf32>, memref<2x2x?x64xf8E4M3FN>, memref<2x2x?x64xf32>)
      v_scale(%t : memref<1x1x1x1xf32>) outs(%o : memref<2x4x?x64xf32>)
  return
}

// -----

func.func @element(%q: memref<2x4x?x64xf16>, %k: memref<2x2x?x64xf8E4M3FN>, %v: memref<2x2x?x64xi8>, %o: memref<2x4x?x64xf16>, %s: memref<1x1x1x1xf16>) {
  // expected-error @+1 {{expected 'k_scale' with element type f32 but got 'f16'}}
  flashattn.attention ins(%q, %k, %v : memref<2x4x?x64xf16>, memref<2x2x?x64xf8E4M3FN>, memref<2x2x?x64xi8>)
      k_scale(%s : memref<1x1x1x1xf16>) outs(%o : memref<2x4x?x64xf16>)
  return
}

// -----

func.func @rank(%q: memref<2x4x?x64xf16>, %k: memref<2x2x?x64xf8E4M3FN>, %v: memref<2x2x?x64xi8>, %o: memref<2x4x?x64xf16>, %s: memref<2x2x1xf32>) {
  // expected-error @+1 {{expected 'k_scale' of rank 4 but got rank 3}}
  flashattn.attention ins(%q, %k, %v : memref<2x4x?x64xf16>, memref<2x2x?x64xf8E4M3FN>, memref<2x2x?x64xi8>)
      k_scale(%s : memref<2x2x1xf32>) outs(%o : memref<2x4x?x64xf16>)
  return
}

// -----

func.func @dynamic_blocks(%q: memref<2x4x?x64xf16>, %k: memref<2x2x?x64xf8E4M3FN>, %v: memref<2x2x?x64xi8>, %o: memref<2x4x?x64xf16>, %t: memref<2x2x?x?xf32>) {
  // expected-error @+1 {{expected a static last dimension of 'v_scale' but got 'memref<2x2x?x?xf32>'}}
  flashattn.attention ins(%q, %k, %v : memref<2x4x?x64xf16>, memref<2x2x?x64xf8E4M3FN>, memref<2x2x?x64xi8>)
      v_scale(%t : memref<2x2x?x?xf32>) outs(%o : memref<2x4x?x64xf16>)
  return
}

// -----

func.func @small_blocks(%q: memref<2x4x?x64xf16>, %k: memref<2x2x?x64xf8E4M3FN>, %v: memref<2x2x?x64xi8>, %o: memref<2x4x?x64xf16>, %s: memref<2x2x?x8xf32>) {
  // expected-error @+1 {{expected 'k_scale' with one scale of a row of 64, or scales of blocks of a multiple of 16 elements, but got 8 scales}}
  flashattn.attention ins(%q, %k, %v : memref<2x4x?x64xf16>, memref<2x2x?x64xf8E4M3FN>, memref<2x2x?x64xi8>)
      k_scale(%s : memref<2x2x?x8xf32>) outs(%o : memref<2x4x?x64xf16>)
  return
}

// -----

func.func @uneven_blocks(%q: memref<2x4x?x64xf16>, %k: memref<2x2x?x64xf8E4M3FN>, %v: memref<2x2x?x64xi8>, %o: memref<2x4x?x64xf16>, %t: memref<2x2x?x3xf32>) {
  // expected-error @+1 {{expected 'v_scale' with one scale of a row of 64, or scales of blocks of a multiple of 16 elements, but got 3 scales}}
  flashattn.attention ins(%q, %k, %v : memref<2x4x?x64xf16>, memref<2x2x?x64xf8E4M3FN>, memref<2x2x?x64xi8>)
      v_scale(%t : memref<2x2x?x3xf32>) outs(%o : memref<2x4x?x64xf16>)
  return
}

// -----

func.func @no_block(%q: memref<2x4x?x64xf16>, %k: memref<2x2x?x64xf8E4M3FN>, %v: memref<2x2x?x64xi8>, %o: memref<2x4x?x64xf16>, %s: memref<2x2x?x0xf32>) {
  // expected-error @+1 {{expected 'k_scale' with one scale of a row of 64, or scales of blocks of a multiple of 16 elements, but got 0 scales}}
  flashattn.attention ins(%q, %k, %v : memref<2x4x?x64xf16>, memref<2x2x?x64xf8E4M3FN>, memref<2x2x?x64xi8>)
      k_scale(%s : memref<2x2x?x0xf32>) outs(%o : memref<2x4x?x64xf16>)
  return
}

// -----

func.func @heads(%q: memref<2x4x?x64xf16>, %k: memref<2x2x?x64xf8E4M3FN>, %v: memref<2x2x?x64xi8>, %o: memref<2x4x?x64xf16>, %s: memref<2x4x?x1xf32>) {
  // expected-error @+1 {{expected head count of 'k_scale' to be 1 or 2 but got 4}}
  flashattn.attention ins(%q, %k, %v : memref<2x4x?x64xf16>, memref<2x2x?x64xf8E4M3FN>, memref<2x2x?x64xi8>)
      k_scale(%s : memref<2x4x?x1xf32>) outs(%o : memref<2x4x?x64xf16>)
  return
}

// -----

func.func @rows(%q: memref<2x4x?x64xf16>, %k: memref<2x2x9x64xi8>, %v: memref<2x2x9x64xi8>, %o: memref<2x4x?x64xf16>, %s: memref<2x2x8x1xf32>) {
  // expected-error @+1 {{expected key length of 'k_scale' to be 1 or 9 but got 8}}
  flashattn.attention ins(%q, %k, %v : memref<2x4x?x64xf16>, memref<2x2x9x64xi8>, memref<2x2x9x64xi8>)
      k_scale(%s : memref<2x2x8x1xf32>) outs(%o : memref<2x4x?x64xf16>)
  return
}

// -----

func.func @batches(%q: memref<2x4x?x64xf16>, %k: memref<2x2x?x64xf8E4M3FN>, %v: memref<2x2x?x64xi8>, %o: memref<2x4x?x64xf16>, %t: memref<3x2x1x1xf32>) {
  // expected-error @+1 {{expected batch size of 'v_scale' to be 1 or 2 but got 3}}
  flashattn.attention ins(%q, %k, %v : memref<2x4x?x64xf16>, memref<2x2x?x64xf8E4M3FN>, memref<2x2x?x64xi8>)
      v_scale(%t : memref<3x2x1x1xf32>) outs(%o : memref<2x4x?x64xf16>)
  return
}

// -----

func.func @layout(%q: memref<2x?x4x64xf16>, %k: memref<2x9x2x64xi8>, %v: memref<2x9x2x64xi8>, %o: memref<2x?x4x64xf16>, %s: memref<2x2x9x1xf32>) {
  // expected-error @+1 {{expected key length of 'k_scale' to be 1 or 9 but got 2}}
  flashattn.attention layout(bshd) ins(%q, %k, %v : memref<2x?x4x64xf16>, memref<2x9x2x64xi8>, memref<2x9x2x64xi8>)
      k_scale(%s : memref<2x2x9x1xf32>) outs(%o : memref<2x?x4x64xf16>)
  return
}

// -----

func.func @sequences(%q: memref<1x4x?x64xf16>, %k: memref<1x2x?x64xi8>, %v: memref<1x2x?x64xi8>, %o: memref<1x4x?x64xf16>, %s: memref<2x2x1x1xf32>, %c: memref<4xi32>) {
  // expected-error @+1 {{expected batch size of 'k_scale' to be 1 or 3 but got 2}}
  flashattn.attention ins(%q, %k, %v : memref<1x4x?x64xf16>, memref<1x2x?x64xi8>, memref<1x2x?x64xi8>)
      k_scale(%s : memref<2x2x1x1xf32>) cu_seqlens_q(%c : memref<4xi32>) cu_seqlens_k(%c : memref<4xi32>) outs(%o : memref<1x4x?x64xf16>)
  return
}

// -----

func.func @packed_rows(%q: memref<1x4x?x64xf16>, %k: memref<1x2x?x64xi8>, %v: memref<1x2x?x64xi8>, %o: memref<1x4x?x64xf16>, %s: memref<3x2x?x1xf32>, %c: memref<4xi32>) {
  // expected-error @+1 {{expected batch size of 'k_scale' to be 1 as its sequences are packed but got 3}}
  flashattn.attention ins(%q, %k, %v : memref<1x4x?x64xf16>, memref<1x2x?x64xi8>, memref<1x2x?x64xi8>)
      k_scale(%s : memref<3x2x?x1xf32>) cu_seqlens_q(%c : memref<4xi32>) cu_seqlens_k(%c : memref<4xi32>) outs(%o : memref<1x4x?x64xf16>)
  return
}

// -----

func.func @page_size(%q: memref<2x4x?x64xf16>, %k: memref<?x2x16x64xi8>, %v: memref<?x2x16x64xi8>, %o: memref<2x4x?x64xf16>, %s: memref<?x2x32x1xf32>, %n: memref<2xi32>, %p: memref<2x?xi32>) {
  // expected-error @+1 {{expected page size of 'k_scale' to be 1 or 16 but got 32}}
  flashattn.attention ins(%q, %k, %v : memref<2x4x?x64xf16>, memref<?x2x16x64xi8>, memref<?x2x16x64xi8>)
      k_scale(%s : memref<?x2x32x1xf32>) kv_len(%n : memref<2xi32>) page_table(%p : memref<2x?xi32>) outs(%o : memref<2x4x?x64xf16>)
  return
}

// -----

func.func @pages(%q: memref<2x4x?x64xf16>, %k: memref<7x2x16x64xi8>, %v: memref<7x2x16x64xi8>, %o: memref<2x4x?x64xf16>, %t: memref<2x2x16x1xf32>, %n: memref<2xi32>, %p: memref<2x?xi32>) {
  // expected-error @+1 {{expected number of pages of 'v_scale' to be 1 or 7 but got 2}}
  flashattn.attention ins(%q, %k, %v : memref<2x4x?x64xf16>, memref<7x2x16x64xi8>, memref<7x2x16x64xi8>)
      v_scale(%t : memref<2x2x16x1xf32>) kv_len(%n : memref<2xi32>) page_table(%p : memref<2x?xi32>) outs(%o : memref<2x4x?x64xf16>)
  return
}

// -----

func.func @gradients(%q: memref<1x2x8x64xf16>, %k: memref<1x2x8x64xi8>, %l: memref<1x2x8xf32>) {
  // expected-error @+1 {{expected 'k' with element type f16, bf16 or f32 but got 'i8'}}
  flashattn.attention_backward ins(%q, %k, %q, %q, %l, %q : memref<1x2x8x64xf16>, memref<1x2x8x64xi8>, memref<1x2x8x64xf16>,
          memref<1x2x8x64xf16>, memref<1x2x8xf32>, memref<1x2x8x64xf16>)
      outs(%q, %q, %q : memref<1x2x8x64xf16>, memref<1x2x8x64xf16>, memref<1x2x8x64xf16>)
  return
}

// -----

func.func @scales_of_gradients(%s: memref<1x1x1x1xf32>) {
  // expected-error @+1 {{but got 'k_scale', a clause of 'flashattn.attention'}}
  flashattn.attention_backward k_scale(%s : memref<1x1x1x1xf32>)
  return
}

// -----

func.func @scales_of_16_bits(%k: memref<2x2x?x64xf16>, %s: memref<2x2x?x4xf32>, %i: index) {
  // expected-error @+1 {{expected no scales of a tile with the element type of the memref but got 'memref<2x2x?x4xf32>'}}
  %0 = flashattn.load_tile %k[%i, %i, %i, %i] dims [2, 3] scales %s : memref<2x2x?x4xf32> in_bounds [false, true] : memref<2x2x?x64xf16> -> vector<16x64xf16>
  return
}

// -----

func.func @scales_of_f16(%k: memref<2x2x?x64xf8E4M3FN>, %s: memref<2x2x?x4xf16>, %i: index) {
  // expected-error @+1 {{expected scales of f32 with rank 4 but got 'memref<2x2x?x4xf16>'}}
  %0 = flashattn.load_tile %k[%i, %i, %i, %i] dims [2, 3] scales %s : memref<2x2x?x4xf16> in_bounds [false, true] : memref<2x2x?x64xf8E4M3FN> -> vector<16x64xf16>
  return
}

// -----

func.func @scales_of_rank_3(%k: memref<2x2x?x64xf8E4M3FN>, %s: memref<2x?x4xf32>, %i: index) {
  // expected-error @+1 {{expected scales of f32 with rank 4 but got 'memref<2x?x4xf32>'}}
  %0 = flashattn.load_tile %k[%i, %i, %i, %i] dims [2, 3] scales %s : memref<2x?x4xf32> in_bounds [false, true] : memref<2x2x?x64xf8E4M3FN> -> vector<16x64xf16>
  return
}

// -----

func.func @scales_of_small_blocks(%k: memref<2x2x?x64xf8E4M3FN>, %s: memref<2x2x?x8xf32>, %i: index) {
  // expected-error @+1 {{expected 1 scale for the columns, or scales for blocks of a multiple of 16 of 64 columns, but got 'memref<2x2x?x8xf32>'}}
  %0 = flashattn.load_tile %k[%i, %i, %i, %i] dims [2, 3] scales %s : memref<2x2x?x8xf32> in_bounds [false, true] : memref<2x2x?x64xf8E4M3FN> -> vector<16x64xf16>
  return
}

// -----

func.func @integer_tile(%k: memref<2x2x?x64xf8E4M3FN>, %s: memref<2x2x?x4xf32>, %i: index) {
  // expected-error @+1 {{expected a tile of 'f8E4M3FN' but got 'vector<16x64xi32>'}}
  %0 = flashattn.load_tile %k[%i, %i, %i, %i] dims [2, 3] in_bounds [false, true] : memref<2x2x?x64xf8E4M3FN> -> vector<16x64xi32>
  return
}

// -----

func.func @scales_of_one_row(%k: memref<2x2x?x64xf8E4M3FN>, %s: memref<2x2x?x4xf32>, %i: index) {
  // expected-error @+1 {{expected scales only of rows along one dimension and columns along the last dimension but got 'memref<2x2x?x4xf32>'}}
  %0 = flashattn.load_tile %k[%i, %i, %i, %i] dims [3] scales %s : memref<2x2x?x4xf32> in_bounds [true] : memref<2x2x?x64xf8E4M3FN> -> vector<64xf16>
  return
}

// -----

func.func @convert_source(%from: memref<64xvector<8xf16>>, %to: memref<64xvector<8xf16>>, %i: index) {
  // expected-error @+1 {{expected a source of vectors of f8E4M3FN, f8E5M2 or i8 but got 'memref<64xvector<8xf16>>'}}
  flashattn.convert_elements %from[%i] to %to[%i] : memref<64xvector<8xf16>>, memref<64xvector<8xf16>>
  return
}

// -----

func.func @convert_target(%from: memref<64xvector<8xi8>>, %to: memref<64xvector<4xf16>>, %i: index) {
  // expected-error @+1 {{expected a target of vectors of 8 f16, bf16 or f32 but got 'memref<64xvector<4xf16>>'}}
  flashattn.convert_elements %from[%i] to %to[%i] : memref<64xvector<8xi8>>, memref<64xvector<4xf16>>
  return
}

// -----

func.func @convert_rank(%from: memref<8x8xvector<8xi8>>, %to: memref<64xvector<8xf16>>, %i: index) {
  // expected-error @+1 {{expected memrefs of rank 1 but got 'memref<8x8xvector<8xi8>>'}}
  flashattn.convert_elements %from[%i] to %to[%i] : memref<8x8xvector<8xi8>>, memref<64xvector<8xf16>>
  return
}

// -----

func.func @convert_counts(%from: memref<64xvector<8xi8>>, %to: memref<64xvector<8xf16>>, %i: index, %s: f32) {
  // expected-error @+1 {{expected one source, one target and at most one scale for each vector but got 2, 2 and 1}}
  flashattn.convert_elements %from[%i, %i] scales(%s) to %to[%i, %i] : memref<64xvector<8xi8>>, memref<64xvector<8xf16>>
  return
}

// -----

func.func @k_beside_f8(%q: memref<2x4x?x64xf8E4M3FN>, %k: memref<2x2x?x64xf16>, %o: memref<2x4x?x64xf16>) {
  // expected-error @+1 {{expected 'k' with element type f8E4M3FN, f8E5M2 or i8, beside queries of f8E4M3FN, but got 'f16'}}
  flashattn.attention ins(%q, %k, %k : memref<2x4x?x64xf8E4M3FN>, memref<2x2x?x64xf16>, memref<2x2x?x64xf16>)
      outs(%o : memref<2x4x?x64xf16>)
  return
}

// -----

func.func @output_of_f8(%q: memref<2x4x?x64xf8E4M3FN>, %o: memref<2x4x?x64xf8E4M3FN>) {
  // expected-error @+1 {{expected 'o' with element type f16, bf16 or f32 but got 'f8E4M3FN'}}
  flashattn.attention ins(%q, %q, %q : memref<2x4x?x64xf8E4M3FN>, memref<2x4x?x64xf8E4M3FN>, memref<2x4x?x64xf8E4M3FN>)
      outs(%o : memref<2x4x?x64xf8E4M3FN>)
  return
}

// -----

func.func @i8_queries(%q: memref<2x4x?x64xi8>, %o: memref<2x4x?x64xf16>) {
  // expected-error @+1 {{expected 'q' with element type f16, bf16, f32, f8E4M3FN or f8E5M2 but got 'i8'}}
  flashattn.attention ins(%q, %q, %q : memref<2x4x?x64xi8>, memref<2x4x?x64xi8>, memref<2x4x?x64xi8>)
      outs(%o : memref<2x4x?x64xf16>)
  return
}

// -----

func.func @gradients_of_f8(%q: memref<1x1x?x64xf8E4M3FN>, %l: memref<1x1x?xf32>) {
  // expected-error @+1 {{expected 'q' with element type f16, bf16 or f32 but got 'f8E4M3FN'}}
  flashattn.attention_backward ins(%q, %q, %q, %q, %l, %q : memref<1x1x?x64xf8E4M3FN>, memref<1x1x?x64xf8E4M3FN>, memref<1x1x?x64xf8E4M3FN>, memref<1x1x?x64xf8E4M3FN>, memref<1x1x?xf32>, memref<1x1x?x64xf8E4M3FN>)
      outs(%q, %q, %q : memref<1x1x?x64xf8E4M3FN>, memref<1x1x?x64xf8E4M3FN>, memref<1x1x?x64xf8E4M3FN>)
  return
}
