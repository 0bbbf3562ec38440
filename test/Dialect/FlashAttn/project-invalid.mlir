// RUN: flash-opt %s -split-input-file -verify-diagnostics

func.func @rank(%o: memref<2x8x64xf16>, %w: memref<8x64x512xf16>, %p: memref<2x16x512xf16>) {
  // expected-error@+1 {{expected 'o' of rank 4 but got rank 3}}
  flashattn.project ins(%o, %w : memref<2x8x64xf16>, memref<8x64x512xf16>) outs(%p : memref<2x16x512xf16>)
  return
}

// -----

func.func @weights_rank(%o: memref<2x8x16x64xf16>, %w: memref<512x512xf16>, %p: memref<2x16x512xf16>) {
  // expected-error@+1 {{expected 'w' of rank 3 but got rank 2}}
  flashattn.project ins(%o, %w : memref<2x8x16x64xf16>, memref<512x512xf16>) outs(%p : memref<2x16x512xf16>)
  return
}

// -----

func.func @result_rank(%o: memref<2x8x16x64xf16>, %w: memref<8x64x512xf16>, %p: memref<2x8x16x512xf16>) {
  // expected-error@+1 {{expected 'p' of rank 3 but got rank 4}}
  flashattn.project ins(%o, %w : memref<2x8x16x64xf16>, memref<8x64x512xf16>) outs(%p : memref<2x8x16x512xf16>)
  return
}

// -----

func.func @kind(%o: memref<2x8x16x64xf16>, %w: tensor<8x64x512xf16>, %p: memref<2x16x512xf16>) {
  // expected-error@+1 {{expected all operands to be memrefs like 'o' but got 'w' of type 'tensor<8x64x512xf16>'}}
  flashattn.project ins(%o, %w : memref<2x8x16x64xf16>, tensor<8x64x512xf16>) outs(%p : memref<2x16x512xf16>)
  return
}

// -----

func.func @element(%o: memref<2x8x16x64xf64>, %w: memref<8x64x512xf16>, %p: memref<2x16x512xf16>) {
  // expected-error@+1 {{expected 'o' with element type f16, bf16 or f32 but got 'f64'}}
  flashattn.project ins(%o, %w : memref<2x8x16x64xf64>, memref<8x64x512xf16>) outs(%p : memref<2x16x512xf16>)
  return
}

// -----

func.func @weights_element(%o: memref<2x8x16x64xf16>, %w: memref<8x64x512xbf16>, %p: memref<2x16x512xf16>) {
  // expected-error@+1 {{expected 'w' with element type 'f16' as in 'o' but got 'bf16'}}
  flashattn.project ins(%o, %w : memref<2x8x16x64xf16>, memref<8x64x512xbf16>) outs(%p : memref<2x16x512xf16>)
  return
}

// -----

func.func @result_element(%o: memref<2x8x16x64xf16>, %w: memref<8x64x512xf16>, %p: memref<2x16x512xbf16>) {
  // expected-error@+1 {{expected 'p' with element type 'f16' as in 'o' or f32 but got 'bf16'}}
  flashattn.project ins(%o, %w : memref<2x8x16x64xf16>, memref<8x64x512xf16>) outs(%p : memref<2x16x512xbf16>)
  return
}

// -----

func.func @result_element_f32(%o: memref<2x8x16x64xf32>, %w: memref<8x64x512xf32>, %p: memref<2x16x512xf16>) {
  // expected-error@+1 {{expected 'p' with element type 'f32' as in 'o' but got 'f16'}}
  flashattn.project ins(%o, %w : memref<2x8x16x64xf32>, memref<8x64x512xf32>) outs(%p : memref<2x16x512xf16>)
  return
}

// -----

func.func @heads(%o: memref<2x8x16x64xf16>, %w: memref<4x64x512xf16>, %p: memref<2x16x512xf16>) {
  // expected-error@+1 {{expected head count of 'w' to be 8 as in 'o' but got 4}}
  flashattn.project ins(%o, %w : memref<2x8x16x64xf16>, memref<4x64x512xf16>) outs(%p : memref<2x16x512xf16>)
  return
}

// -----

func.func @layout(%o: memref<2x8x16x64xf16>, %w: memref<8x64x512xf16>, %p: memref<2x16x512xf16>) {
  // expected-error@+1 {{expected head count of 'w' to be 16 as in 'o' but got 8}}
  flashattn.project layout(bshd) ins(%o, %w : memref<2x8x16x64xf16>, memref<8x64x512xf16>) outs(%p : memref<2x16x512xf16>)
  return
}

// -----

func.func @row(%o: memref<2x8x16x64xf16>, %w: memref<8x32x512xf16>, %p: memref<2x16x512xf16>) {
  // expected-error@+1 {{expected head dimension of 'w' to be 64 as in 'o' but got 32}}
  flashattn.project ins(%o, %w : memref<2x8x16x64xf16>, memref<8x32x512xf16>) outs(%p : memref<2x16x512xf16>)
  return
}

// -----

func.func @batch(%o: memref<2x8x16x64xf16>, %w: memref<8x64x512xf16>, %p: memref<3x16x512xf16>) {
  // expected-error@+1 {{expected batch size of 'p' to be 2 as in 'o' but got 3}}
  flashattn.project ins(%o, %w : memref<2x8x16x64xf16>, memref<8x64x512xf16>) outs(%p : memref<3x16x512xf16>)
  return
}

// -----

func.func @length(%o: memref<2x8x16x64xf16>, %w: memref<8x64x512xf16>, %p: memref<2x17x512xf16>) {
  // expected-error@+1 {{expected query length of 'p' to be 16 as in 'o' but got 17}}
  flashattn.project ins(%o, %w : memref<2x8x16x64xf16>, memref<8x64x512xf16>) outs(%p : memref<2x17x512xf16>)
  return
}

// -----

func.func @width(%o: memref<2x8x16x64xf16>, %w: memref<8x64x512xf16>, %p: memref<2x16x256xf16>) {
  // expected-error@+1 {{expected width of 'p' to be 512 as in 'w' but got 256}}
  flashattn.project ins(%o, %w : memref<2x8x16x64xf16>, memref<8x64x512xf16>) outs(%p : memref<2x16x256xf16>)
  return
}

// -----

func.func @dynamic_row(%o: memref<2x8x16x?xf16>, %w: memref<8x64x512xf16>, %p: memref<2x16x512xf16>) {
  // expected-error@+1 {{expected a static last dimension of 'o' but got 'memref<2x8x16x?xf16>'}}
  flashattn.project ins(%o, %w : memref<2x8x16x?xf16>, memref<8x64x512xf16>) outs(%p : memref<2x16x512xf16>)
  return
}

// -----

func.func @odd_row(%o: memref<2x8x16x12xf16>, %w: memref<8x12x512xf16>, %p: memref<2x16x512xf16>) {
  // expected-error@+1 {{expected a head dimension of 'o' that is a multiple of 8 but got 'memref<2x8x16x12xf16>'}}
  flashattn.project ins(%o, %w : memref<2x8x16x12xf16>, memref<8x12x512xf16>) outs(%p : memref<2x16x512xf16>)
  return
}

// -----

func.func @stride(%o: memref<2x8x16x64xf16>, %w: memref<8x64x512xf16, strided<[32768, 1, 64]>>, %p: memref<2x16x512xf16>) {
  // expected-error@+1 {{expected unit stride in the last dimension of 'w' but got 'memref<8x64x512xf16, strided<[32768, 1, 64]>>'}}
  flashattn.project ins(%o, %w : memref<2x8x16x64xf16>, memref<8x64x512xf16, strided<[32768, 1, 64]>>) outs(%p : memref<2x16x512xf16>)
  return
}

// -----

func.func @space(%o: memref<2x8x16x64xf16>, %w: memref<8x64x512xf16, 3>, %p: memref<2x16x512xf16>) {
  // expected-error@+1 {{expected the default memory space of 'w' but got 'memref<8x64x512xf16, 3>'}}
  flashattn.project ins(%o, %w : memref<2x8x16x64xf16>, memref<8x64x512xf16, 3>) outs(%p : memref<2x16x512xf16>)
  return
}

// -----

func.func @results(%o: tensor<2x8x16x64xf16>, %w: tensor<8x64x512xf16>, %p: tensor<2x16x512xf16>) {
  // expected-error@+1 {{expected 1 results but got 0}}
  flashattn.project ins(%o, %w : tensor<2x8x16x64xf16>, tensor<8x64x512xf16>) outs(%p : tensor<2x16x512xf16>)
  return
}

// -----

func.func @no_results(%o: memref<2x8x16x64xf16>, %w: memref<8x64x512xf16>, %p: memref<2x16x512xf16>) {
  // expected-error@+1 {{expected 0 results but got 1}}
  %r = flashattn.project ins(%o, %w : memref<2x8x16x64xf16>, memref<8x64x512xf16>) outs(%p : memref<2x16x512xf16>) -> tensor<2x16x512xf16>
  return
}

// -----

func.func @result_type(%o: tensor<2x8x16x64xf16>, %w: tensor<8x64x512xf16>, %p: tensor<2x16x512xf16>) {
  // expected-error@+1 {{expected result type 'tensor<2x16x512xf16>' as in 'outs' but got 'tensor<2x16x512xf32>'}}
  %r = flashattn.project ins(%o, %w : tensor<2x8x16x64xf16>, tensor<8x64x512xf16>) outs(%p : tensor<2x16x512xf16>) -> tensor<2x16x512xf32>
  return
}

// -----

func.func @f(%o: memref<2x2x16x16xf16>, %w: memref<2x16x16xf16>) {
  // expected-error@+1 {{expected separate memory for 'p' but got the memory of 'w'}}
  flashattn.project ins(%o, %w : memref<2x2x16x16xf16>, memref<2x16x16xf16>) outs(%w : memref<2x16x16xf16>)
  return
}
