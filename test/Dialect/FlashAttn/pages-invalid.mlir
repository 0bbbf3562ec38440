// RUN: flash-opt %s -split-input-file -verify-diagnostics -o /dev/null

// Rules P1, P3, P4 and R1: keys in pages.

func.func @no_lengths(%q: memref<2x2x?x64xf16>, %o: memref<2x2x?x64xf16>, %k: memref<?x2x16x64xf16>, %t: memref<2x?xi32>) {
  // expected-error @+1 {{expected 'kv_len' with 'page_table' but got none}}
  flashattn.attention ins(%q, %k, %k : memref<2x2x?x64xf16>, memref<?x2x16x64xf16>, memref<?x2x16x64xf16>)
      page_table(%t : memref<2x?xi32>) outs(%o : memref<2x2x?x64xf16>)
  return
}

// -----

func.func @dynamic_page(%q: memref<2x2x?x64xf16>, %o: memref<2x2x?x64xf16>, %k: memref<?x2x?x64xf16>, %t: memref<2x?xi32>, %n: memref<2xi32>) {
  // expected-error @+1 {{expected a static page size of 'k' and 'v', or a 'page_table' of one column, but got 'memref<?x2x?x64xf16>' and 'memref<2x?xi32>'}}
  flashattn.attention ins(%q, %k, %k : memref<2x2x?x64xf16>, memref<?x2x?x64xf16>, memref<?x2x?x64xf16>)
      kv_len(%n : memref<2xi32>) page_table(%t : memref<2x?xi32>) outs(%o : memref<2x2x?x64xf16>)
  return
}

// -----

func.func @empty_page(%q: memref<2x2x?x64xf16>, %o: memref<2x2x?x64xf16>, %k: memref<?x2x0x64xf16>, %t: memref<2x?xi32>, %n: memref<2xi32>) {
  // expected-error @+1 {{expected a page size of at least 1 but got 0}}
  flashattn.attention ins(%q, %k, %k : memref<2x2x?x64xf16>, memref<?x2x0x64xf16>, memref<?x2x0x64xf16>)
      kv_len(%n : memref<2xi32>) page_table(%t : memref<2x?xi32>) outs(%o : memref<2x2x?x64xf16>)
  return
}

// -----

func.func @page_sizes(%q: memref<2x2x?x64xf16>, %o: memref<2x2x?x64xf16>, %k: memref<?x2x16x64xf16>, %v: memref<?x2x32x64xf16>, %t: memref<2x?xi32>,
                      %n: memref<2xi32>) {
  // expected-error @+1 {{expected page size of 'v' to be 16 as in 'k' but got 32}}
  flashattn.attention ins(%q, %k, %v : memref<2x2x?x64xf16>, memref<?x2x16x64xf16>, memref<?x2x32x64xf16>)
      kv_len(%n : memref<2xi32>) page_table(%t : memref<2x?xi32>) outs(%o : memref<2x2x?x64xf16>)
  return
}

// -----

func.func @pools(%q: memref<2x2x?x64xf16>, %o: memref<2x2x?x64xf16>, %k: memref<5x2x16x64xf16>, %v: memref<6x2x16x64xf16>, %t: memref<2x?xi32>,
                 %n: memref<2xi32>) {
  // expected-error @+1 {{expected number of pages of 'v' to be 5 as in 'k' but got 6}}
  flashattn.attention ins(%q, %k, %v : memref<2x2x?x64xf16>, memref<5x2x16x64xf16>, memref<6x2x16x64xf16>)
      kv_len(%n : memref<2xi32>) page_table(%t : memref<2x?xi32>) outs(%o : memref<2x2x?x64xf16>)
  return
}

// -----

func.func @sequences(%q: memref<2x2x?x64xf16>, %o: memref<2x2x?x64xf16>, %k: memref<?x2x16x64xf16>, %t: memref<3x?xi32>, %n: memref<2xi32>) {
  // expected-error @+1 {{expected batch size of 'page_table' to be 2 as in 'q' but got 3}}
  flashattn.attention ins(%q, %k, %k : memref<2x2x?x64xf16>, memref<?x2x16x64xf16>, memref<?x2x16x64xf16>)
      kv_len(%n : memref<2xi32>) page_table(%t : memref<3x?xi32>) outs(%o : memref<2x2x?x64xf16>)
  return
}

// -----

func.func @rank(%q: memref<2x2x?x64xf16>, %o: memref<2x2x?x64xf16>, %k: memref<?x2x16x64xf16>, %t: memref<2xi32>, %n: memref<2xi32>) {
  // expected-error @+1 {{expected 'page_table' of rank 2 but got rank 1}}
  flashattn.attention ins(%q, %k, %k : memref<2x2x?x64xf16>, memref<?x2x16x64xf16>, memref<?x2x16x64xf16>)
      kv_len(%n : memref<2xi32>) page_table(%t : memref<2xi32>) outs(%o : memref<2x2x?x64xf16>)
  return
}

// -----

func.func @element(%q: memref<2x2x?x64xf16>, %o: memref<2x2x?x64xf16>, %k: memref<?x2x16x64xf16>, %t: memref<2x?xi64>, %n: memref<2xi32>) {
  // expected-error @+1 {{expected 'page_table' with element type i32 but got 'i64'}}
  flashattn.attention ins(%q, %k, %k : memref<2x2x?x64xf16>, memref<?x2x16x64xf16>, memref<?x2x16x64xf16>)
      kv_len(%n : memref<2xi32>) page_table(%t : memref<2x?xi64>) outs(%o : memref<2x2x?x64xf16>)
  return
}

// -----

func.func @rows(%q: memref<2x2x?x64xf16>, %o: memref<2x2x?x64xf16>, %k: memref<?x2x65536x64xf16>, %t: memref<2x65536xi32>, %n: memref<2xi32>) {
  // expected-error @+1 {{expected at most 2147483647 rows in the pages of a sequence but got 4294967296}}
  flashattn.attention ins(%q, %k, %k : memref<2x2x?x64xf16>, memref<?x2x65536x64xf16>, memref<?x2x65536x64xf16>)
      kv_len(%n : memref<2xi32>) page_table(%t : memref<2x65536xi32>) outs(%o : memref<2x2x?x64xf16>)
  return
}

// -----

func.func @packed_keys(%q: memref<1x2x?x64xf16>, %o: memref<1x2x?x64xf16>, %k: memref<?x2x16x64xf16>, %t: memref<2x?xi32>, %n: memref<2xi32>,
                       %s: memref<3xi32>) {
  // expected-error @+1 {{expected no 'page_table' with 'cu_seqlens_k', which packs the keys, but got one}}
  flashattn.attention ins(%q, %k, %k : memref<1x2x?x64xf16>, memref<?x2x16x64xf16>, memref<?x2x16x64xf16>)
      kv_len(%n : memref<2xi32>) cu_seqlens_q(%s : memref<3xi32>) cu_seqlens_k(%s : memref<3xi32>)
      page_table(%t : memref<2x?xi32>) outs(%o : memref<1x2x?x64xf16>)
  return
}

// -----

func.func @packed_and_padded(%q: memref<1x2x?x64xf16>, %o: memref<1x2x?x64xf16>, %n: memref<2xi32>, %s: memref<3xi32>) {
  // expected-error @+1 {{expected no 'leftpad_k' with 'cu_seqlens_k', which packs the keys, but got one}}
  flashattn.attention ins(%q, %q, %q : memref<1x2x?x64xf16>, memref<1x2x?x64xf16>, memref<1x2x?x64xf16>)
      cu_seqlens_q(%s : memref<3xi32>) cu_seqlens_k(%s : memref<3xi32>) leftpad_k(%n : memref<2xi32>)
      outs(%o : memref<1x2x?x64xf16>)
  return
}

// -----

func.func @bias(%q: memref<2x2x?x64xf16>, %o: memref<2x2x?x64xf16>, %k: memref<?x2x16x64xf16>, %t: memref<2x?xi32>, %n: memref<2xi32>,
                %b: memref<1x1x1x?xf16>) {
  // expected-error @+1 {{expected no 'bias' with 'page_table' but got one}}
  flashattn.attention ins(%q, %k, %k : memref<2x2x?x64xf16>, memref<?x2x16x64xf16>, memref<?x2x16x64xf16>)
      bias(%b : memref<1x1x1x?xf16>) kv_len(%n : memref<2xi32>) page_table(%t : memref<2x?xi32>)
      outs(%o : memref<2x2x?x64xf16>)
  return
}

// -----

func.func @attn_mask(%q: memref<2x2x?x64xf16>, %o: memref<2x2x?x64xf16>, %n: memref<2xi32>, %m: memref<1x1x1x?xi1>) {
  // expected-error @+1 {{expected no 'attn_mask' with 'leftpad_k' but got one}}
  flashattn.attention ins(%q, %q, %q : memref<2x2x?x64xf16>, memref<2x2x?x64xf16>, memref<2x2x?x64xf16>)
      attn_mask(%m : memref<1x1x1x?xi1>) leftpad_k(%n : memref<2xi32>) outs(%o : memref<2x2x?x64xf16>)
  return
}

// -----

func.func @gradients(%q: memref<2x2x?x64xf16>, %l: memref<2x2x?xf32>, %t: memref<2x?xi32>) {
  // expected-error @+1 {{but got 'page_table', a clause of 'flashattn.attention'}}
  flashattn.attention_backward page_table(%t : memref<2x?xi32>)
  return
}

// -----

func.func @ends(%t: memref<?x?xi32>, %i: index) {
  // expected-error @+1 {{expected an end for each begin of pages but got 1 begins and 2 ends}}
  %rows = flashattn.paged_rows in %t[%i] size 16 from_pages(%i) to_pages(%i, %i) : memref<?x?xi32>
  return
}

// -----

func.func @other_rows(%k: memref<?x2x16x64xf16>, %t: memref<?x?xi32>, %i: index) {
  %rows = flashattn.paged_rows in %t[%i] size 32 from_pages(%i) to_pages(%i) : memref<?x?xi32>
  // expected-error @+1 {{expected rows along one dimension of size 32, the page size of the row map, after the dimension of the pages but got dims 2, 3 of 'memref<?x2x16x64xf16>'}}
  %0 = flashattn.load_tile %k[%i, %i, %i, %i] dims [2, 3] rows %rows in_bounds [false, true] : memref<?x2x16x64xf16> -> vector<64x64xf16>
  return
}
