// RUN: flash-opt %s -split-input-file -verify-diagnostics

func.func @rank(%op: memref<2x8x1x64xf32>, %lp: memref<3x2x8x1xf32>, %o: memref<2x8x1x64xf16>) {
  // expected-error@+1 {{expected 'o_parts' of rank 5 but got rank 4}}
  flashattn.combine ins(%op, %lp : memref<2x8x1x64xf32>, memref<3x2x8x1xf32>) outs(%o : memref<2x8x1x64xf16>)
  return
}

// -----

func.func @kind(%op: memref<3x2x8x1x64xf32>, %lp: tensor<3x2x8x1xf32>, %o: memref<2x8x1x64xf16>) {
  // expected-error@+1 {{expected all operands to be memrefs like 'o_parts' but got 'lse_parts' of type 'tensor<3x2x8x1xf32>'}}
  flashattn.combine ins(%op, %lp : memref<3x2x8x1x64xf32>, tensor<3x2x8x1xf32>) outs(%o : memref<2x8x1x64xf16>)
  return
}

// -----

func.func @element(%op: memref<3x2x8x1x64xf16>, %lp: memref<3x2x8x1xf32>, %o: memref<2x8x1x64xf16>) {
  // expected-error@+1 {{expected 'o_parts' with element type f32 but got 'f16'}}
  flashattn.combine ins(%op, %lp : memref<3x2x8x1x64xf16>, memref<3x2x8x1xf32>) outs(%o : memref<2x8x1x64xf16>)
  return
}

// -----

func.func @output_element(%op: memref<3x2x8x1x64xf32>, %lp: memref<3x2x8x1xf32>, %o: memref<2x8x1x64xf64>) {
  // expected-error@+1 {{expected 'o' with element type f16, bf16 or f32 but got 'f64'}}
  flashattn.combine ins(%op, %lp : memref<3x2x8x1x64xf32>, memref<3x2x8x1xf32>) outs(%o : memref<2x8x1x64xf64>)
  return
}

// -----

func.func @parts(%op: memref<3x2x8x1x64xf32>, %lp: memref<4x2x8x1xf32>, %o: memref<2x8x1x64xf16>) {
  // expected-error@+1 {{expected part count of 'lse_parts' to be 3 as in 'o_parts' but got 4}}
  flashattn.combine ins(%op, %lp : memref<3x2x8x1x64xf32>, memref<4x2x8x1xf32>) outs(%o : memref<2x8x1x64xf16>)
  return
}

// -----

func.func @layout(%op: memref<3x2x8x1x64xf32>, %lp: memref<3x2x8x1xf32>, %o: memref<2x8x1x64xf16>) {
  // expected-error@+1 {{expected query length of 'o' to be 1 as in 'o_parts' but got 8}}
  flashattn.combine layout(bshd) ins(%op, %lp : memref<3x2x8x1x64xf32>, memref<3x2x8x1xf32>) outs(%o : memref<2x8x1x64xf16>)
  return
}

// -----

func.func @width(%op: memref<3x2x8x1x64xf32>, %lp: memref<3x2x8x1xf32>, %o: memref<2x8x1x32xf16>) {
  // expected-error@+1 {{expected head dimension of 'o' to be 64 as in 'o_parts' but got 32}}
  flashattn.combine ins(%op, %lp : memref<3x2x8x1x64xf32>, memref<3x2x8x1xf32>) outs(%o : memref<2x8x1x32xf16>)
  return
}

// -----

func.func @sinks(%op: memref<3x2x8x1x64xf32>, %lp: memref<3x2x8x1xf32>, %s: memref<4xf32>, %o: memref<2x8x1x64xf16>) {
  // expected-error@+1 {{expected head count of 'sink_logits' to be 8 as in 'o_parts' but got 4}}
  flashattn.combine ins(%op, %lp : memref<3x2x8x1x64xf32>, memref<3x2x8x1xf32>) sink_logits(%s : memref<4xf32>) outs(%o : memref<2x8x1x64xf16>)
  return
}

// -----

func.func @lse(%op: memref<3x2x8x1x64xf32>, %lp: memref<3x2x8x1xf32>, %o: memref<2x8x1x64xf16>, %l: memref<2x8x2xf32>) {
  // expected-error@+1 {{expected query length of 'lse' to be 1 as in 'o_parts' but got 2}}
  flashattn.combine ins(%op, %lp : memref<3x2x8x1x64xf32>, memref<3x2x8x1xf32>) outs(%o, %l : memref<2x8x1x64xf16>, memref<2x8x2xf32>)
  return
}

// -----

func.func @stride(%op: memref<3x2x8x1x64xf32>, %lp: memref<3x2x8x1xf32>, %o: memref<2x8x1x64xf16, strided<[2048, 256, 256, 2]>>) {
  // expected-error@+1 {{expected unit stride in the last dimension of 'o' but got 'memref<2x8x1x64xf16, strided<[2048, 256, 256, 2]>>'}}
  flashattn.combine ins(%op, %lp : memref<3x2x8x1x64xf32>, memref<3x2x8x1xf32>) outs(%o : memref<2x8x1x64xf16, strided<[2048, 256, 256, 2]>>)
  return
}

// -----

func.func @dynamic(%op: memref<3x2x8x1x?xf32>, %lp: memref<3x2x8x1xf32>, %o: memref<2x8x1x64xf16>) {
  // expected-error@+1 {{expected a static last dimension of 'o_parts' but got 'memref<3x2x8x1x?xf32>'}}
  flashattn.combine ins(%op, %lp : memref<3x2x8x1x?xf32>, memref<3x2x8x1xf32>) outs(%o : memref<2x8x1x64xf16>)
  return
}

// -----

func.func @no_part(%op: memref<0x2x8x1x64xf32>, %lp: memref<0x2x8x1xf32>, %o: memref<2x8x1x64xf16>) {
  // expected-error@+1 {{expected at least 1 part but got 0}}
  flashattn.combine ins(%op, %lp : memref<0x2x8x1x64xf32>, memref<0x2x8x1xf32>) outs(%o : memref<2x8x1x64xf16>)
  return
}

// -----

func.func @results(%op: tensor<3x2x8x1x64xf32>, %lp: tensor<3x2x8x1xf32>, %o: tensor<2x8x1x64xf16>) {
  // expected-error@+1 {{expected 1 results but got 0}}
  flashattn.combine ins(%op, %lp : tensor<3x2x8x1x64xf32>, tensor<3x2x8x1xf32>) outs(%o : tensor<2x8x1x64xf16>)
  return
}

// -----

func.func @result_type(%op: tensor<3x2x8x1x64xf32>, %lp: tensor<3x2x8x1xf32>, %o: tensor<2x8x1x64xf16>) {
  // expected-error@+1 {{expected result type 'tensor<2x8x1x64xf16>' as in 'outs' but got 'tensor<2x8x1x64xf32>'}}
  %r = flashattn.combine ins(%op, %lp : tensor<3x2x8x1x64xf32>, tensor<3x2x8x1xf32>) outs(%o : tensor<2x8x1x64xf16>) -> tensor<2x8x1x64xf32>
  return
}

// -----

// expected-error@+1 {{expected schedule field 'splits' between 1 and 256 but got 257}}
func.func @f() attributes {m = #flashattn.schedule<tile_m = 64, tile_n = 64, stages = 2, dot_type = f16, splits = 257, mapping = mma_sync<warps = 4>>} { return }

// -----

func.func @memory(%op: memref<3x2x8x1x64xf32, 3>, %lp: memref<3x2x8x1xf32>, %o: memref<2x8x1x64xf16>) {
  // expected-error@+1 {{expected the default memory space of 'o_parts' but got 'memref<3x2x8x1x64xf32, 3>'}}
  flashattn.combine ins(%op, %lp : memref<3x2x8x1x64xf32, 3>, memref<3x2x8x1xf32>) outs(%o : memref<2x8x1x64xf16>)
  return
}

// -----

func.func @rests(%op: memref<3x2x8x1x64xf32>, %lp: memref<3x2x8x1xf32>, %lr: memref<3x2x4x1xf32>, %o: memref<2x8x1x64xf16>) {
  // expected-error@+1 {{expected head count of 'lse_rests' to be 8 as in 'o_parts' but got 4}}
  flashattn.combine ins(%op, %lp : memref<3x2x8x1x64xf32>, memref<3x2x8x1xf32>) lse_rests(%lr : memref<3x2x4x1xf32>) outs(%o : memref<2x8x1x64xf16>)
  return
}

// -----

func.func @limit(%op: memref<3x2x8x4x64xf32>, %lp: memref<3x2x8x4xf32>, %o: memref<2x8x4x64xf16>) {
  // expected-error@+1 {{expected 'cu_seqlens_q' with 'min_seqlen_q' but got none}}
  flashattn.combine ins(%op, %lp : memref<3x2x8x4x64xf32>, memref<3x2x8x4xf32>) min_seqlen_q(2) outs(%o : memref<2x8x4x64xf16>)
  return
}

// -----

func.func @starts(%op: memref<3x2x8x4x64xf32>, %lp: memref<3x2x8x4xf32>, %starts: memref<4xi32>, %o: memref<1x8x?x64xf16>) {
  // expected-error@+1 {{expected number of starts of 'cu_seqlens_q' to be 3, for the batch size 2 of 'o_parts', but got 4}}
  flashattn.combine ins(%op, %lp : memref<3x2x8x4x64xf32>, memref<3x2x8x4xf32>) cu_seqlens_q(%starts : memref<4xi32>) outs(%o : memref<1x8x?x64xf16>)
  return
}
