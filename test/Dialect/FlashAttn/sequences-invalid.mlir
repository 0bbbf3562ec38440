// RUN: flash-opt %s -split-input-file -verify-diagnostics -o /dev/null

// Rules S1 and R1: the operands of packed sequences.

func.func @batch(%q: memref<2x2x?x64xf16>, %starts: memref<?xi32>) {
  // expected-error @+1 {{expected batch size of 'q' to be 1 as its sequences are packed but got 2}}
  flashattn.attention ins(%q, %q, %q : memref<2x2x?x64xf16>, memref<2x2x?x64xf16>, memref<2x2x?x64xf16>)
      cu_seqlens_q(%starts : memref<?xi32>) cu_seqlens_k(%starts : memref<?xi32>) outs(%q : memref<2x2x?x64xf16>)
  return
}

// -----

func.func @dynamic_batch(%q: memref<?x2x?x64xf16>, %starts: memref<?xi32>, %o: memref<1x2x?x64xf16>) {
  // expected-error @+1 {{expected a static batch size of 1 of 'q' as its sequences are packed but got 'memref<?x2x?x64xf16>'}}
  flashattn.attention ins(%q, %q, %q : memref<?x2x?x64xf16>, memref<?x2x?x64xf16>, memref<?x2x?x64xf16>)
      cu_seqlens_q(%starts : memref<?xi32>) outs(%o : memref<1x2x?x64xf16>)
  return
}

// -----

func.func @one_start(%q: memref<1x2x?x64xf16>, %starts: memref<1xi32>, %o: memref<1x2x?x64xf16>) {
  // expected-error @+1 {{expected number of starts of 'cu_seqlens_q' to be at least 2 but got 1}}
  flashattn.attention ins(%q, %q, %q : memref<1x2x?x64xf16>, memref<1x2x?x64xf16>, memref<1x2x?x64xf16>)
      cu_seqlens_q(%starts : memref<1xi32>) outs(%o : memref<1x2x?x64xf16>)
  return
}

// -----

func.func @sequences(%q: memref<1x2x?x64xf16>, %starts_q: memref<4xi32>, %starts_k: memref<5xi32>, %o: memref<1x2x?x64xf16>) {
  // expected-error @+1 {{expected number of starts of 'cu_seqlens_k' to be 4, for the batch size 3 of 'cu_seqlens_q', but got 5}}
  flashattn.attention ins(%q, %q, %q : memref<1x2x?x64xf16>, memref<1x2x?x64xf16>, memref<1x2x?x64xf16>)
      cu_seqlens_q(%starts_q : memref<4xi32>) cu_seqlens_k(%starts_k : memref<5xi32>) outs(%o : memref<1x2x?x64xf16>)
  return
}

// -----

func.func @lengths(%q: memref<1x2x?x64xf16>, %starts: memref<4xi32>, %len: memref<4xi32>, %o: memref<1x2x?x64xf16>) {
  // expected-error @+1 {{expected number of starts of 'cu_seqlens_q' to be 5, for the batch size 4 of 'kv_len', but got 4}}
  flashattn.attention ins(%q, %q, %q : memref<1x2x?x64xf16>, memref<1x2x?x64xf16>, memref<1x2x?x64xf16>)
      kv_len(%len : memref<4xi32>) cu_seqlens_q(%starts : memref<4xi32>) cu_seqlens_k(%starts : memref<4xi32>)
      outs(%o : memref<1x2x?x64xf16>)
  return
}

// -----

func.func @element(%q: memref<1x2x?x64xf16>, %starts: memref<?xi64>, %o: memref<1x2x?x64xf16>) {
  // expected-error @+1 {{expected 'cu_seqlens_q' with element type i32 but got 'i64'}}
  flashattn.attention ins(%q, %q, %q : memref<1x2x?x64xf16>, memref<1x2x?x64xf16>, memref<1x2x?x64xf16>)
      cu_seqlens_q(%starts : memref<?xi64>) outs(%o : memref<1x2x?x64xf16>)
  return
}

// -----

func.func @bias(%q: memref<1x2x?x64xf16>, %starts: memref<?xi32>, %bias: memref<1x1x1x?xf16>, %o: memref<1x2x?x64xf16>) {
  // expected-error @+1 {{expected no 'bias' with packed sequences but got one}}
  flashattn.attention ins(%q, %q, %q : memref<1x2x?x64xf16>, memref<1x2x?x64xf16>, memref<1x2x?x64xf16>)
      bias(%bias : memref<1x1x1x?xf16>) cu_seqlens_q(%starts : memref<?xi32>) cu_seqlens_k(%starts : memref<?xi32>)
      outs(%o : memref<1x2x?x64xf16>)
  return
}

// -----

func.func @attn_mask(%q: memref<3x2x?x64xf16>, %len: memref<?xi32>, %shown: memref<1x1x?x?xi1>, %o: memref<3x2x?x64xf16>) {
  // expected-error @+1 {{expected no 'attn_mask' with 'q_len' but got one}}
  flashattn.attention ins(%q, %q, %q : memref<3x2x?x64xf16>, memref<3x2x?x64xf16>, memref<3x2x?x64xf16>)
      attn_mask(%shown : memref<1x1x?x?xi1>) q_len(%len : memref<?xi32>) outs(%o : memref<3x2x?x64xf16>)
  return
}

// -----

func.func @limit_without_starts(%q: memref<1x2x?x64xf16>, %o: memref<1x2x?x64xf16>) {
  // expected-error @+1 {{expected 'cu_seqlens_q' with 'max_seqlen_q' but got none}}
  flashattn.attention ins(%q, %q, %q : memref<1x2x?x64xf16>, memref<1x2x?x64xf16>, memref<1x2x?x64xf16>)
      max_seqlen_q(4) outs(%o : memref<1x2x?x64xf16>)
  return
}

// -----

func.func @limit_of_packed_keys(%q: memref<1x2x?x64xf16>, %starts: memref<?xi32>, %o: memref<1x2x?x64xf16>) {
  // expected-error @+1 {{expected no 'cu_seqlens_k' with 'min_seqlen_q' but got one}}
  flashattn.attention ins(%q, %q, %q : memref<1x2x?x64xf16>, memref<1x2x?x64xf16>, memref<1x2x?x64xf16>)
      cu_seqlens_q(%starts : memref<?xi32>) cu_seqlens_k(%starts : memref<?xi32>) min_seqlen_q(4)
      outs(%o : memref<1x2x?x64xf16>)
  return
}

// -----

func.func @no_length(%q: memref<1x2x?x64xf16>, %k: memref<?x2x?x64xf16>, %starts: memref<?xi32>, %o: memref<1x2x?x64xf16>) {
  // expected-error @+1 {{expected 'min_seqlen_q' of at most 'max_seqlen_q', 4, but got 5}}
  flashattn.attention ins(%q, %k, %k : memref<1x2x?x64xf16>, memref<?x2x?x64xf16>, memref<?x2x?x64xf16>)
      cu_seqlens_q(%starts : memref<?xi32>) min_seqlen_q(5) max_seqlen_q(4) outs(%o : memref<1x2x?x64xf16>)
  return
}

// -----

func.func @large_limit(%q: memref<1x2x?x64xf16>, %k: memref<?x2x?x64xf16>, %starts: memref<?xi32>, %o: memref<1x2x?x64xf16>) {
  // expected-error @+1 {{expected 'max_seqlen_q' of at most 2147483647 but got 2147483648}}
  flashattn.attention ins(%q, %k, %k : memref<1x2x?x64xf16>, memref<?x2x?x64xf16>, memref<?x2x?x64xf16>)
      cu_seqlens_q(%starts : memref<?xi32>) max_seqlen_q(2147483648) outs(%o : memref<1x2x?x64xf16>)
  return
}

// -----

func.func @zero_limit(%q: memref<1x2x?x64xf16>, %k: memref<?x2x?x64xf16>, %starts: memref<?xi32>, %o: memref<1x2x?x64xf16>) {
  // expected-error @+1 {{attribute 'max_seqlen_q' failed to satisfy constraint}}
  flashattn.attention ins(%q, %k, %k : memref<1x2x?x64xf16>, memref<?x2x?x64xf16>, memref<?x2x?x64xf16>)
      cu_seqlens_q(%starts : memref<?xi32>) max_seqlen_q(0) outs(%o : memref<1x2x?x64xf16>)
  return
}

// -----

func.func @limit_is_a_number(%q: memref<1x2x?x64xf16>, %starts: memref<?xi32>, %o: memref<1x2x?x64xf16>) {
  flashattn.attention ins(%q, %q, %q : memref<1x2x?x64xf16>, memref<1x2x?x64xf16>, memref<1x2x?x64xf16>)
      // expected-error @+1 {{invalid kind of attribute specified}}
      cu_seqlens_q(%starts : memref<?xi32>) max_seqlen_q("x") outs(%o : memref<1x2x?x64xf16>)
  return
}
