// RUN: flash-opt %s -split-input-file -verify-diagnostics -o /dev/null

// Rule R1 for the op of attention's gradients: every refusal names what was expected and what was found.

//===----------------------------------------------------------------------===//
// What stands between the parentheses
//===----------------------------------------------------------------------===//

// The log-sum-exp is missing.
func.func @f(%q: tensor<1x2x8x16xf32>) {
  // expected-error@+2 {{expected the 6 operands q, k, v, o, lse and d_o but got 5}}
  %r:3 = flashattn.attention_backward
      ins(%q, %q, %q, %q, %q : tensor<1x2x8x16xf32>, tensor<1x2x8x16xf32>, tensor<1x2x8x16xf32>, tensor<1x2x8x16xf32>,
          tensor<1x2x8x16xf32>)
      outs(%q, %q, %q : tensor<1x2x8x16xf32>, tensor<1x2x8x16xf32>, tensor<1x2x8x16xf32>)
      -> tensor<1x2x8x16xf32>, tensor<1x2x8x16xf32>, tensor<1x2x8x16xf32>
  return
}

// -----

func.func @f(%q: tensor<1x2x8x16xf32>, %lse: tensor<1x2x8xf32>) {
  // expected-error@+2 {{expected 6 types, of q, k, v, o, lse and d_o, but got 1}}
  %r:3 = flashattn.attention_backward
      ins(%q, %q, %q, %q, %lse, %q : tensor<1x2x8x16xf32>)
      outs(%q, %q, %q : tensor<1x2x8x16xf32>, tensor<1x2x8x16xf32>, tensor<1x2x8x16xf32>)
      -> tensor<1x2x8x16xf32>, tensor<1x2x8x16xf32>, tensor<1x2x8x16xf32>
  return
}

// -----

func.func @f(%q: memref<1x2x8x16xf32>, %lse: memref<1x2x8xf32>, %dq: memref<1x2x8x16xf32>, %dk: memref<1x2x8x16xf32>) {
  // expected-error@+4 {{expected the 3 operands dq, dk and dv but got 2}}
  flashattn.attention_backward
      ins(%q, %q, %q, %q, %lse, %q : memref<1x2x8x16xf32>, memref<1x2x8x16xf32>, memref<1x2x8x16xf32>,
          memref<1x2x8x16xf32>, memref<1x2x8xf32>, memref<1x2x8x16xf32>)
      outs(%dq, %dk : memref<1x2x8x16xf32>, memref<1x2x8x16xf32>)
  return
}

// -----

func.func @f(%q: memref<1x2x8x16xf32>, %lse: memref<1x2x8xf32>, %dq: memref<1x2x8x16xf32>, %dk: memref<1x2x8x16xf32>) {
  // expected-error@+1 {{expected 9 or more operands, but found 8}}
  "flashattn.attention_backward"(%q, %q, %q, %q, %lse, %q, %dq, %dk) <{
    operandSegmentSizes = array<i32: 1, 1, 1, 1, 1, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 1, 1, 0, 0>
  }> : (memref<1x2x8x16xf32>, memref<1x2x8x16xf32>, memref<1x2x8x16xf32>, memref<1x2x8x16xf32>, memref<1x2x8xf32>,
        memref<1x2x8x16xf32>, memref<1x2x8x16xf32>, memref<1x2x8x16xf32>) -> ()
  return
}

// -----

//===----------------------------------------------------------------------===//
// What the forward pass gave
//===----------------------------------------------------------------------===//

// The log-sum-exp: rank, type, size, where it lies.
func.func @f(%q: tensor<2x4x6x16xf16>, %k: tensor<2x2x8x16xf16>, %v: tensor<2x2x8x4xf16>,
             %o: tensor<2x4x6x4xf16>, %lse: tensor<2x4x6x1xf32>, %d_o: tensor<2x4x6x4xf16>,
             %dq: tensor<2x4x6x16xf16>, %dk: tensor<2x2x8x16xf16>, %dv: tensor<2x2x8x4xf16>) {
  // expected-error@+1 {{expected 'lse' of rank 3 but got rank 4}}
  %r:3 = flashattn.attention_backward
      ins(%q, %k, %v, %o, %lse, %d_o : tensor<2x4x6x16xf16>, tensor<2x2x8x16xf16>, tensor<2x2x8x4xf16>,
          tensor<2x4x6x4xf16>, tensor<2x4x6x1xf32>, tensor<2x4x6x4xf16>)
      outs(%dq, %dk, %dv : tensor<2x4x6x16xf16>, tensor<2x2x8x16xf16>, tensor<2x2x8x4xf16>)
      -> tensor<2x4x6x16xf16>, tensor<2x2x8x16xf16>, tensor<2x2x8x4xf16>
  return
}

// -----

func.func @f(%q: tensor<2x4x6x16xf16>, %k: tensor<2x2x8x16xf16>, %v: tensor<2x2x8x4xf16>,
             %o: tensor<2x4x6x4xf16>, %lse: tensor<2x4x6xf16>, %d_o: tensor<2x4x6x4xf16>,
             %dq: tensor<2x4x6x16xf16>, %dk: tensor<2x2x8x16xf16>, %dv: tensor<2x2x8x4xf16>) {
  // expected-error@+1 {{expected 'lse' with element type f32 but got 'f16'}}
  %r:3 = flashattn.attention_backward
      ins(%q, %k, %v, %o, %lse, %d_o : tensor<2x4x6x16xf16>, tensor<2x2x8x16xf16>, tensor<2x2x8x4xf16>,
          tensor<2x4x6x4xf16>, tensor<2x4x6xf16>, tensor<2x4x6x4xf16>)
      outs(%dq, %dk, %dv : tensor<2x4x6x16xf16>, tensor<2x2x8x16xf16>, tensor<2x2x8x4xf16>)
      -> tensor<2x4x6x16xf16>, tensor<2x2x8x16xf16>, tensor<2x2x8x4xf16>
  return
}

// -----

func.func @f(%q: tensor<2x4x6x16xf16>, %k: tensor<2x2x8x16xf16>, %v: tensor<2x2x8x4xf16>,
             %o: tensor<2x4x6x4xf16>, %lse: tensor<2x4x6xf64>, %d_o: tensor<2x4x6x4xf16>,
             %dq: tensor<2x4x6x16xf16>, %dk: tensor<2x2x8x16xf16>, %dv: tensor<2x2x8x4xf16>) {
  // expected-error@+1 {{expected 'lse' with element type f32 but got 'f64'}}
  %r:3 = flashattn.attention_backward
      ins(%q, %k, %v, %o, %lse, %d_o : tensor<2x4x6x16xf16>, tensor<2x2x8x16xf16>, tensor<2x2x8x4xf16>,
          tensor<2x4x6x4xf16>, tensor<2x4x6xf64>, tensor<2x4x6x4xf16>)
      outs(%dq, %dk, %dv : tensor<2x4x6x16xf16>, tensor<2x2x8x16xf16>, tensor<2x2x8x4xf16>)
      -> tensor<2x4x6x16xf16>, tensor<2x2x8x16xf16>, tensor<2x2x8x4xf16>
  return
}

// -----

func.func @f(%q: tensor<2x4x6x16xf16>, %k: tensor<2x2x8x16xf16>, %v: tensor<2x2x8x4xf16>,
             %o: tensor<2x4x6x4xf16>, %lse: tensor<2x4x8xf32>, %d_o: tensor<2x4x6x4xf16>,
             %dq: tensor<2x4x6x16xf16>, %dk: tensor<2x2x8x16xf16>, %dv: tensor<2x2x8x4xf16>) {
  // expected-error@+1 {{expected query length of 'lse' to be 6 as in 'q' but got 8}}
  %r:3 = flashattn.attention_backward
      ins(%q, %k, %v, %o, %lse, %d_o : tensor<2x4x6x16xf16>, tensor<2x2x8x16xf16>, tensor<2x2x8x4xf16>,
          tensor<2x4x6x4xf16>, tensor<2x4x8xf32>, tensor<2x4x6x4xf16>)
      outs(%dq, %dk, %dv : tensor<2x4x6x16xf16>, tensor<2x2x8x16xf16>, tensor<2x2x8x4xf16>)
      -> tensor<2x4x6x16xf16>, tensor<2x2x8x16xf16>, tensor<2x2x8x4xf16>
  return
}

// -----

func.func @f(%q: tensor<2x4x6x16xf16>, %k: tensor<2x2x8x16xf16>, %v: tensor<2x2x8x4xf16>,
             %o: tensor<2x4x6x4xf16>, %lse: tensor<2x2x6xf32>, %d_o: tensor<2x4x6x4xf16>,
             %dq: tensor<2x4x6x16xf16>, %dk: tensor<2x2x8x16xf16>, %dv: tensor<2x2x8x4xf16>) {
  // expected-error@+1 {{expected head count of 'lse' to be 4 as in 'q' but got 2}}
  %r:3 = flashattn.attention_backward
      ins(%q, %k, %v, %o, %lse, %d_o : tensor<2x4x6x16xf16>, tensor<2x2x8x16xf16>, tensor<2x2x8x4xf16>,
          tensor<2x4x6x4xf16>, tensor<2x2x6xf32>, tensor<2x4x6x4xf16>)
      outs(%dq, %dk, %dv : tensor<2x4x6x16xf16>, tensor<2x2x8x16xf16>, tensor<2x2x8x4xf16>)
      -> tensor<2x4x6x16xf16>, tensor<2x2x8x16xf16>, tensor<2x2x8x4xf16>
  return
}

// -----

// It does not follow the layout: heads come before queries.
func.func @f(%q: tensor<2x6x4x16xf16>, %k: tensor<2x8x2x16xf16>, %v: tensor<2x8x2x4xf16>,
             %o: tensor<2x6x4x4xf16>, %lse: tensor<2x6x4xf32>, %d_o: tensor<2x6x4x4xf16>,
             %dq: tensor<2x6x4x16xf16>, %dk: tensor<2x8x2x16xf16>, %dv: tensor<2x8x2x4xf16>) {
  // expected-error@+1 {{expected head count of 'lse' to be 4 as in 'q' but got 6}}
  %r:3 = flashattn.attention_backward layout(bshd)
      ins(%q, %k, %v, %o, %lse, %d_o : tensor<2x6x4x16xf16>, tensor<2x8x2x16xf16>, tensor<2x8x2x4xf16>,
          tensor<2x6x4x4xf16>, tensor<2x6x4xf32>, tensor<2x6x4x4xf16>)
      outs(%dq, %dk, %dv : tensor<2x6x4x16xf16>, tensor<2x8x2x16xf16>, tensor<2x8x2x4xf16>)
      -> tensor<2x6x4x16xf16>, tensor<2x8x2x16xf16>, tensor<2x8x2x4xf16>
  return
}

// -----

func.func @f(%q: tensor<2x4x6x16xf16>, %k: tensor<2x2x8x16xf16>, %v: tensor<2x2x8x4xf16>,
             %o: tensor<2x4x6x4xf16>, %lse: memref<2x4x6xf32>, %d_o: tensor<2x4x6x4xf16>,
             %dq: tensor<2x4x6x16xf16>, %dk: tensor<2x2x8x16xf16>, %dv: tensor<2x2x8x4xf16>) {
  // expected-error@+1 {{expected all operands to be tensors like 'q' but got 'lse' of type 'memref<2x4x6xf32>'}}
  %r:3 = flashattn.attention_backward
      ins(%q, %k, %v, %o, %lse, %d_o : tensor<2x4x6x16xf16>, tensor<2x2x8x16xf16>, tensor<2x2x8x4xf16>,
          tensor<2x4x6x4xf16>, memref<2x4x6xf32>, tensor<2x4x6x4xf16>)
      outs(%dq, %dk, %dv : tensor<2x4x6x16xf16>, tensor<2x2x8x16xf16>, tensor<2x2x8x4xf16>)
      -> tensor<2x4x6x16xf16>, tensor<2x2x8x16xf16>, tensor<2x2x8x4xf16>
  return
}

// -----

func.func @f(%q: memref<2x4x6x16xf16>, %k: memref<2x2x8x16xf16>, %v: memref<2x2x8x4xf16>,
             %o: memref<2x4x6x4xf16>, %lse: memref<2x4x6xf32, strided<[64, 1, 4]>>,
             %d_o: memref<2x4x6x4xf16>, %dq: memref<2x4x6x16xf16>, %dk: memref<2x2x8x16xf16>,
             %dv: memref<2x2x8x4xf16>) {
  // expected-error@+1 {{expected unit stride in the last dimension of 'lse' but got 'memref<2x4x6xf32, strided<[64, 1, 4]>>'}}
  flashattn.attention_backward
      ins(%q, %k, %v, %o, %lse, %d_o : memref<2x4x6x16xf16>, memref<2x2x8x16xf16>, memref<2x2x8x4xf16>,
          memref<2x4x6x4xf16>, memref<2x4x6xf32, strided<[64, 1, 4]>>, memref<2x4x6x4xf16>)
      outs(%dq, %dk, %dv : memref<2x4x6x16xf16>, memref<2x2x8x16xf16>, memref<2x2x8x4xf16>)
  return
}

// -----

// The output.
func.func @f(%q: tensor<2x4x6x16xf16>, %k: tensor<2x2x8x16xf16>, %v: tensor<2x2x8x4xf16>,
             %o: tensor<2x4x6x4xbf16>, %lse: tensor<2x4x6xf32>, %d_o: tensor<2x4x6x4xf16>,
             %dq: tensor<2x4x6x16xf16>, %dk: tensor<2x2x8x16xf16>, %dv: tensor<2x2x8x4xf16>) {
  // expected-error@+1 {{expected 'o' with element type 'f16' as in 'q' or f32 but got 'bf16'}}
  %r:3 = flashattn.attention_backward
      ins(%q, %k, %v, %o, %lse, %d_o : tensor<2x4x6x16xf16>, tensor<2x2x8x16xf16>, tensor<2x2x8x4xf16>,
          tensor<2x4x6x4xbf16>, tensor<2x4x6xf32>, tensor<2x4x6x4xf16>)
      outs(%dq, %dk, %dv : tensor<2x4x6x16xf16>, tensor<2x2x8x16xf16>, tensor<2x2x8x4xf16>)
      -> tensor<2x4x6x16xf16>, tensor<2x2x8x16xf16>, tensor<2x2x8x4xf16>
  return
}

// -----

func.func @f(%q: tensor<2x4x6x16xf16>, %k: tensor<2x2x8x16xf16>, %v: tensor<2x2x8x4xf16>,
             %o: tensor<2x4x6x16xf16>, %lse: tensor<2x4x6xf32>, %d_o: tensor<2x4x6x4xf16>,
             %dq: tensor<2x4x6x16xf16>, %dk: tensor<2x2x8x16xf16>, %dv: tensor<2x2x8x4xf16>) {
  // expected-error@+1 {{expected head dimension of 'o' to be 4 as in 'v' but got 16}}
  %r:3 = flashattn.attention_backward
      ins(%q, %k, %v, %o, %lse, %d_o : tensor<2x4x6x16xf16>, tensor<2x2x8x16xf16>, tensor<2x2x8x4xf16>,
          tensor<2x4x6x16xf16>, tensor<2x4x6xf32>, tensor<2x4x6x4xf16>)
      outs(%dq, %dk, %dv : tensor<2x4x6x16xf16>, tensor<2x2x8x16xf16>, tensor<2x2x8x4xf16>)
      -> tensor<2x4x6x16xf16>, tensor<2x2x8x16xf16>, tensor<2x2x8x4xf16>
  return
}

// -----

func.func @f(%q: tensor<2x4x6x16xf16>, %k: tensor<2x2x8x16xf16>, %v: tensor<2x2x8x4xf16>,
             %o: tensor<2x2x6x4xf16>, %lse: tensor<2x4x6xf32>, %d_o: tensor<2x4x6x4xf16>,
             %dq: tensor<2x4x6x16xf16>, %dk: tensor<2x2x8x16xf16>, %dv: tensor<2x2x8x4xf16>) {
  // expected-error@+1 {{expected head count of 'o' to be 4 as in 'q' but got 2}}
  %r:3 = flashattn.attention_backward
      ins(%q, %k, %v, %o, %lse, %d_o : tensor<2x4x6x16xf16>, tensor<2x2x8x16xf16>, tensor<2x2x8x4xf16>,
          tensor<2x2x6x4xf16>, tensor<2x4x6xf32>, tensor<2x4x6x4xf16>)
      outs(%dq, %dk, %dv : tensor<2x4x6x16xf16>, tensor<2x2x8x16xf16>, tensor<2x2x8x4xf16>)
      -> tensor<2x4x6x16xf16>, tensor<2x2x8x16xf16>, tensor<2x2x8x4xf16>
  return
}

// -----

func.func @f(%q: tensor<2x4x6x16xf16>, %k: tensor<2x2x8x16xf16>, %v: tensor<2x2x8x4xf16>,
             %o: tensor<4x6x4xf16>, %lse: tensor<2x4x6xf32>, %d_o: tensor<2x4x6x4xf16>,
             %dq: tensor<2x4x6x16xf16>, %dk: tensor<2x2x8x16xf16>, %dv: tensor<2x2x8x4xf16>) {
  // expected-error@+1 {{expected 'o' of rank 4 but got rank 3}}
  %r:3 = flashattn.attention_backward
      ins(%q, %k, %v, %o, %lse, %d_o : tensor<2x4x6x16xf16>, tensor<2x2x8x16xf16>, tensor<2x2x8x4xf16>,
          tensor<4x6x4xf16>, tensor<2x4x6xf32>, tensor<2x4x6x4xf16>)
      outs(%dq, %dk, %dv : tensor<2x4x6x16xf16>, tensor<2x2x8x16xf16>, tensor<2x2x8x4xf16>)
      -> tensor<2x4x6x16xf16>, tensor<2x2x8x16xf16>, tensor<2x2x8x4xf16>
  return
}

// -----

func.func @f(%q: memref<2x4x6x16xf16>, %k: memref<2x2x8x16xf16>, %v: memref<2x2x8x4xf16>,
             %o: memref<2x4x6x4xf16, 3>, %lse: memref<2x4x6xf32>, %d_o: memref<2x4x6x4xf16>,
             %dq: memref<2x4x6x16xf16>, %dk: memref<2x2x8x16xf16>, %dv: memref<2x2x8x4xf16>) {
  // expected-error@+1 {{expected the default memory space of 'o' but got 'memref<2x4x6x4xf16, 3>'}}
  flashattn.attention_backward
      ins(%q, %k, %v, %o, %lse, %d_o : memref<2x4x6x16xf16>, memref<2x2x8x16xf16>, memref<2x2x8x4xf16>,
          memref<2x4x6x4xf16, 3>, memref<2x4x6xf32>, memref<2x4x6x4xf16>)
      outs(%dq, %dk, %dv : memref<2x4x6x16xf16>, memref<2x2x8x16xf16>, memref<2x2x8x4xf16>)
  return
}

// -----

//===----------------------------------------------------------------------===//
// What a loss changes by
//===----------------------------------------------------------------------===//

func.func @f(%q: tensor<2x4x6x16xf16>, %k: tensor<2x2x8x16xf16>, %v: tensor<2x2x8x4xf16>,
             %o: tensor<2x4x6x4xf16>, %lse: tensor<2x4x6xf32>, %d_o: tensor<2x4x8x4xf16>,
             %dq: tensor<2x4x6x16xf16>, %dk: tensor<2x2x8x16xf16>, %dv: tensor<2x2x8x4xf16>) {
  // expected-error@+1 {{expected query length of 'd_o' to be 6 as in 'q' but got 8}}
  %r:3 = flashattn.attention_backward
      ins(%q, %k, %v, %o, %lse, %d_o : tensor<2x4x6x16xf16>, tensor<2x2x8x16xf16>, tensor<2x2x8x4xf16>,
          tensor<2x4x6x4xf16>, tensor<2x4x6xf32>, tensor<2x4x8x4xf16>)
      outs(%dq, %dk, %dv : tensor<2x4x6x16xf16>, tensor<2x2x8x16xf16>, tensor<2x2x8x4xf16>)
      -> tensor<2x4x6x16xf16>, tensor<2x2x8x16xf16>, tensor<2x2x8x4xf16>
  return
}

// -----

// It is not broadcast.
func.func @f(%q: tensor<2x4x6x16xf16>, %k: tensor<2x2x8x16xf16>, %v: tensor<2x2x8x4xf16>,
             %o: tensor<2x4x6x4xf16>, %lse: tensor<2x4x6xf32>, %d_o: tensor<1x4x6x4xf16>,
             %dq: tensor<2x4x6x16xf16>, %dk: tensor<2x2x8x16xf16>, %dv: tensor<2x2x8x4xf16>) {
  // expected-error@+1 {{expected batch size of 'd_o' to be 2 as in 'q' but got 1}}
  %r:3 = flashattn.attention_backward
      ins(%q, %k, %v, %o, %lse, %d_o : tensor<2x4x6x16xf16>, tensor<2x2x8x16xf16>, tensor<2x2x8x4xf16>,
          tensor<2x4x6x4xf16>, tensor<2x4x6xf32>, tensor<1x4x6x4xf16>)
      outs(%dq, %dk, %dv : tensor<2x4x6x16xf16>, tensor<2x2x8x16xf16>, tensor<2x2x8x4xf16>)
      -> tensor<2x4x6x16xf16>, tensor<2x2x8x16xf16>, tensor<2x2x8x4xf16>
  return
}

// -----

func.func @f(%q: tensor<2x4x6x16xf16>, %k: tensor<2x2x8x16xf16>, %v: tensor<2x2x8x4xf16>,
             %o: tensor<2x4x6x4xf16>, %lse: tensor<2x4x6xf32>, %d_o: tensor<2x4x6x4xf32>,
             %dq: tensor<2x4x6x16xf16>, %dk: tensor<2x2x8x16xf16>, %dv: tensor<2x2x8x4xf16>) {
  // expected-error@+1 {{expected 'd_o' with element type 'f16' as in 'q' but got 'f32'}}
  %r:3 = flashattn.attention_backward
      ins(%q, %k, %v, %o, %lse, %d_o : tensor<2x4x6x16xf16>, tensor<2x2x8x16xf16>, tensor<2x2x8x4xf16>,
          tensor<2x4x6x4xf16>, tensor<2x4x6xf32>, tensor<2x4x6x4xf32>)
      outs(%dq, %dk, %dv : tensor<2x4x6x16xf16>, tensor<2x2x8x16xf16>, tensor<2x2x8x4xf16>)
      -> tensor<2x4x6x16xf16>, tensor<2x2x8x16xf16>, tensor<2x2x8x4xf16>
  return
}

// -----

func.func @f(%q: memref<2x4x6x16xf16>, %k: memref<2x2x8x16xf16>, %v: memref<2x2x8x4xf16>,
             %o: memref<2x4x6x4xf16>, %lse: memref<2x4x6xf32>, %d_o: tensor<2x4x6x4xf16>,
             %dq: memref<2x4x6x16xf16>, %dk: memref<2x2x8x16xf16>, %dv: memref<2x2x8x4xf16>) {
  // expected-error@+1 {{expected all operands to be memrefs like 'q' but got 'd_o' of type 'tensor<2x4x6x4xf16>'}}
  flashattn.attention_backward
      ins(%q, %k, %v, %o, %lse, %d_o : memref<2x4x6x16xf16>, memref<2x2x8x16xf16>, memref<2x2x8x4xf16>,
          memref<2x4x6x4xf16>, memref<2x4x6xf32>, tensor<2x4x6x4xf16>)
      outs(%dq, %dk, %dv : memref<2x4x6x16xf16>, memref<2x2x8x16xf16>, memref<2x2x8x4xf16>)
  return
}

// -----

func.func @f(%q: memref<2x4x6x16xf16>, %k: memref<2x2x8x16xf16>, %v: memref<2x2x8x4xf16>,
             %o: memref<2x4x6x4xf16>, %lse: memref<2x4x6xf32>,
             %d_o: memref<2x4x6x4xf16, strided<[96, 24, 1, 6]>>, %dq: memref<2x4x6x16xf16>,
             %dk: memref<2x2x8x16xf16>, %dv: memref<2x2x8x4xf16>) {
  // expected-error@+1 {{expected unit stride in the last dimension of 'd_o' but got 'memref<2x4x6x4xf16, strided<[96, 24, 1, 6]>>'}}
  flashattn.attention_backward
      ins(%q, %k, %v, %o, %lse, %d_o : memref<2x4x6x16xf16>, memref<2x2x8x16xf16>, memref<2x2x8x4xf16>,
          memref<2x4x6x4xf16>, memref<2x4x6xf32>, memref<2x4x6x4xf16, strided<[96, 24, 1, 6]>>)
      outs(%dq, %dk, %dv : memref<2x4x6x16xf16>, memref<2x2x8x16xf16>, memref<2x2x8x4xf16>)
  return
}

// -----

func.func @f(%q: tensor<2x4x6x16xf16>, %k: tensor<2x2x8x16xf16>, %v: tensor<2x2x8x4xf16>,
             %o: tensor<2x4x6x4xf16>, %lse: tensor<2x4x6xf32>, %d_o: tensor<2x4x6x4xf16>,
             %dq: tensor<2x4x6x16xf16>, %dk: tensor<2x2x8x16xf16>, %dv: tensor<2x2x8x4xf16>,
             %d_lse: tensor<2x4x6xf16>) {
  // expected-error@+1 {{expected 'd_lse' with element type f32 but got 'f16'}}
  %r:3 = flashattn.attention_backward
      ins(%q, %k, %v, %o, %lse, %d_o : tensor<2x4x6x16xf16>, tensor<2x2x8x16xf16>, tensor<2x2x8x4xf16>,
          tensor<2x4x6x4xf16>, tensor<2x4x6xf32>, tensor<2x4x6x4xf16>)
      d_lse(%d_lse : tensor<2x4x6xf16>)
      outs(%dq, %dk, %dv : tensor<2x4x6x16xf16>, tensor<2x2x8x16xf16>, tensor<2x2x8x4xf16>)
      -> tensor<2x4x6x16xf16>, tensor<2x2x8x16xf16>, tensor<2x2x8x4xf16>
  return
}

// -----

func.func @f(%q: tensor<2x4x6x16xf16>, %k: tensor<2x2x8x16xf16>, %v: tensor<2x2x8x4xf16>,
             %o: tensor<2x4x6x4xf16>, %lse: tensor<2x4x6xf32>, %d_o: tensor<2x4x6x4xf16>,
             %dq: tensor<2x4x6x16xf16>, %dk: tensor<2x2x8x16xf16>, %dv: tensor<2x2x8x4xf16>,
             %d_lse: tensor<2x4x1xf32>) {
  // expected-error@+1 {{expected query length of 'd_lse' to be 6 as in 'q' but got 1}}
  %r:3 = flashattn.attention_backward
      ins(%q, %k, %v, %o, %lse, %d_o : tensor<2x4x6x16xf16>, tensor<2x2x8x16xf16>, tensor<2x2x8x4xf16>,
          tensor<2x4x6x4xf16>, tensor<2x4x6xf32>, tensor<2x4x6x4xf16>)
      d_lse(%d_lse : tensor<2x4x1xf32>)
      outs(%dq, %dk, %dv : tensor<2x4x6x16xf16>, tensor<2x2x8x16xf16>, tensor<2x2x8x4xf16>)
      -> tensor<2x4x6x16xf16>, tensor<2x2x8x16xf16>, tensor<2x2x8x4xf16>
  return
}

// -----

func.func @f(%q: tensor<2x4x6x16xf16>, %k: tensor<2x2x8x16xf16>, %v: tensor<2x2x8x4xf16>,
             %o: tensor<2x4x6x4xf16>, %lse: tensor<2x4x6xf32>, %d_o: tensor<2x4x6x4xf16>,
             %dq: tensor<2x4x6x16xf16>, %dk: tensor<2x2x8x16xf16>, %dv: tensor<2x2x8x4xf16>,
             %d_lse: tensor<8x6xf32>) {
  // expected-error@+1 {{expected 'd_lse' of rank 3 but got rank 2}}
  %r:3 = flashattn.attention_backward
      ins(%q, %k, %v, %o, %lse, %d_o : tensor<2x4x6x16xf16>, tensor<2x2x8x16xf16>, tensor<2x2x8x4xf16>,
          tensor<2x4x6x4xf16>, tensor<2x4x6xf32>, tensor<2x4x6x4xf16>)
      d_lse(%d_lse : tensor<8x6xf32>)
      outs(%dq, %dk, %dv : tensor<2x4x6x16xf16>, tensor<2x2x8x16xf16>, tensor<2x2x8x4xf16>)
      -> tensor<2x4x6x16xf16>, tensor<2x2x8x16xf16>, tensor<2x2x8x4xf16>
  return
}

// -----

//===----------------------------------------------------------------------===//
// Gradients
//===----------------------------------------------------------------------===//

// One for each key/value head (rule B2), not for each query head.
func.func @f(%q: tensor<2x4x6x16xf16>, %k: tensor<2x2x8x16xf16>, %v: tensor<2x2x8x4xf16>,
             %o: tensor<2x4x6x4xf16>, %lse: tensor<2x4x6xf32>, %d_o: tensor<2x4x6x4xf16>,
             %dq: tensor<2x4x6x16xf16>, %dk: tensor<2x4x8x16xf16>, %dv: tensor<2x2x8x4xf16>) {
  // expected-error@+1 {{expected head count of 'dk' to be 2 as in 'k' but got 4}}
  %r:3 = flashattn.attention_backward
      ins(%q, %k, %v, %o, %lse, %d_o : tensor<2x4x6x16xf16>, tensor<2x2x8x16xf16>, tensor<2x2x8x4xf16>,
          tensor<2x4x6x4xf16>, tensor<2x4x6xf32>, tensor<2x4x6x4xf16>)
      outs(%dq, %dk, %dv : tensor<2x4x6x16xf16>, tensor<2x4x8x16xf16>, tensor<2x2x8x4xf16>)
      -> tensor<2x4x6x16xf16>, tensor<2x4x8x16xf16>, tensor<2x2x8x4xf16>
  return
}

// -----

func.func @f(%q: tensor<2x4x6x16xf16>, %k: tensor<2x2x8x16xf16>, %v: tensor<2x2x8x4xf16>,
             %o: tensor<2x4x6x4xf16>, %lse: tensor<2x4x6xf32>, %d_o: tensor<2x4x6x4xf16>,
             %dq: tensor<2x4x6x16xf16>, %dk: tensor<2x2x8x16xf16>, %dv: tensor<2x2x6x4xf16>) {
  // expected-error@+1 {{expected key length of 'dv' to be 8 as in 'k' but got 6}}
  %r:3 = flashattn.attention_backward
      ins(%q, %k, %v, %o, %lse, %d_o : tensor<2x4x6x16xf16>, tensor<2x2x8x16xf16>, tensor<2x2x8x4xf16>,
          tensor<2x4x6x4xf16>, tensor<2x4x6xf32>, tensor<2x4x6x4xf16>)
      outs(%dq, %dk, %dv : tensor<2x4x6x16xf16>, tensor<2x2x8x16xf16>, tensor<2x2x6x4xf16>)
      -> tensor<2x4x6x16xf16>, tensor<2x2x8x16xf16>, tensor<2x2x6x4xf16>
  return
}

// -----

func.func @f(%q: tensor<2x4x6x16xf16>, %k: tensor<2x2x8x16xf16>, %v: tensor<2x2x8x4xf16>,
             %o: tensor<2x4x6x4xf16>, %lse: tensor<2x4x6xf32>, %d_o: tensor<2x4x6x4xf16>,
             %dq: tensor<2x4x6x16xf16>, %dk: tensor<2x2x8x16xf16>, %dv: tensor<2x2x8x16xf16>) {
  // expected-error@+1 {{expected head dimension of 'dv' to be 4 as in 'v' but got 16}}
  %r:3 = flashattn.attention_backward
      ins(%q, %k, %v, %o, %lse, %d_o : tensor<2x4x6x16xf16>, tensor<2x2x8x16xf16>, tensor<2x2x8x4xf16>,
          tensor<2x4x6x4xf16>, tensor<2x4x6xf32>, tensor<2x4x6x4xf16>)
      outs(%dq, %dk, %dv : tensor<2x4x6x16xf16>, tensor<2x2x8x16xf16>, tensor<2x2x8x16xf16>)
      -> tensor<2x4x6x16xf16>, tensor<2x2x8x16xf16>, tensor<2x2x8x16xf16>
  return
}

// -----

func.func @f(%q: tensor<2x4x6x16xf16>, %k: tensor<2x2x8x16xf16>, %v: tensor<2x2x8x4xf16>,
             %o: tensor<2x4x6x4xf16>, %lse: tensor<2x4x6xf32>, %d_o: tensor<2x4x6x4xf16>,
             %dq: tensor<2x4x6x4xf16>, %dk: tensor<2x2x8x16xf16>, %dv: tensor<2x2x8x4xf16>) {
  // expected-error@+1 {{expected head dimension of 'dq' to be 16 as in 'q' but got 4}}
  %r:3 = flashattn.attention_backward
      ins(%q, %k, %v, %o, %lse, %d_o : tensor<2x4x6x16xf16>, tensor<2x2x8x16xf16>, tensor<2x2x8x4xf16>,
          tensor<2x4x6x4xf16>, tensor<2x4x6xf32>, tensor<2x4x6x4xf16>)
      outs(%dq, %dk, %dv : tensor<2x4x6x4xf16>, tensor<2x2x8x16xf16>, tensor<2x2x8x4xf16>)
      -> tensor<2x4x6x4xf16>, tensor<2x2x8x16xf16>, tensor<2x2x8x4xf16>
  return
}

// -----

// In the type of the operands (rule B8).
func.func @f(%q: tensor<2x4x6x16xf16>, %k: tensor<2x2x8x16xf16>, %v: tensor<2x2x8x4xf16>,
             %o: tensor<2x4x6x4xf16>, %lse: tensor<2x4x6xf32>, %d_o: tensor<2x4x6x4xf16>,
             %dq: tensor<2x4x6x16xf32>, %dk: tensor<2x2x8x16xf16>, %dv: tensor<2x2x8x4xf16>) {
  // expected-error@+1 {{expected 'dq' with element type 'f16' as in 'q' but got 'f32'}}
  %r:3 = flashattn.attention_backward
      ins(%q, %k, %v, %o, %lse, %d_o : tensor<2x4x6x16xf16>, tensor<2x2x8x16xf16>, tensor<2x2x8x4xf16>,
          tensor<2x4x6x4xf16>, tensor<2x4x6xf32>, tensor<2x4x6x4xf16>)
      outs(%dq, %dk, %dv : tensor<2x4x6x16xf32>, tensor<2x2x8x16xf16>, tensor<2x2x8x4xf16>)
      -> tensor<2x4x6x16xf32>, tensor<2x2x8x16xf16>, tensor<2x2x8x4xf16>
  return
}

// -----

func.func @f(%q: tensor<2x4x6x16xf16>, %k: tensor<2x2x8x16xf16>, %v: tensor<2x2x8x4xf16>,
             %o: tensor<2x4x6x4xf16>, %lse: tensor<2x4x6xf32>, %d_o: tensor<2x4x6x4xf16>,
             %dq: tensor<2x4x6x16xf16>, %dk: tensor<2x2x8x16xf32>, %dv: tensor<2x2x8x4xf16>) {
  // expected-error@+1 {{expected 'dk' with element type 'f16' as in 'q' but got 'f32'}}
  %r:3 = flashattn.attention_backward
      ins(%q, %k, %v, %o, %lse, %d_o : tensor<2x4x6x16xf16>, tensor<2x2x8x16xf16>, tensor<2x2x8x4xf16>,
          tensor<2x4x6x4xf16>, tensor<2x4x6xf32>, tensor<2x4x6x4xf16>)
      outs(%dq, %dk, %dv : tensor<2x4x6x16xf16>, tensor<2x2x8x16xf32>, tensor<2x2x8x4xf16>)
      -> tensor<2x4x6x16xf16>, tensor<2x2x8x16xf32>, tensor<2x2x8x4xf16>
  return
}

// -----

func.func @f(%q: tensor<2x4x6x16xf16>, %k: tensor<2x2x8x16xf16>, %v: tensor<2x2x8x4xf16>,
             %o: tensor<2x4x6x4xf16>, %lse: tensor<2x4x6xf32>, %d_o: tensor<2x4x6x4xf16>,
             %dq: tensor<2x4x6x16xf16>, %dk: tensor<2x2x8x16xf16>, %dv: tensor<2x4xf16>) {
  // expected-error@+1 {{expected 'dv' of rank 4 but got rank 2}}
  %r:3 = flashattn.attention_backward
      ins(%q, %k, %v, %o, %lse, %d_o : tensor<2x4x6x16xf16>, tensor<2x2x8x16xf16>, tensor<2x2x8x4xf16>,
          tensor<2x4x6x4xf16>, tensor<2x4x6xf32>, tensor<2x4x6x4xf16>)
      outs(%dq, %dk, %dv : tensor<2x4x6x16xf16>, tensor<2x2x8x16xf16>, tensor<2x4xf16>)
      -> tensor<2x4x6x16xf16>, tensor<2x2x8x16xf16>, tensor<2x4xf16>
  return
}

// -----

func.func @f(%q: tensor<2x4x6x16xf16>, %k: tensor<2x2x8x16xf16>, %v: tensor<2x2x8x4xf16>,
             %o: tensor<2x4x6x4xf16>, %lse: tensor<2x4x6xf32>, %d_o: tensor<2x4x6x4xf16>,
             %dq: memref<2x4x6x16xf16>, %dk: tensor<2x2x8x16xf16>, %dv: tensor<2x2x8x4xf16>) {
  // expected-error@+1 {{expected all operands to be tensors like 'q' but got 'dq' of type 'memref<2x4x6x16xf16>'}}
  %r:2 = flashattn.attention_backward
      ins(%q, %k, %v, %o, %lse, %d_o : tensor<2x4x6x16xf16>, tensor<2x2x8x16xf16>, tensor<2x2x8x4xf16>,
          tensor<2x4x6x4xf16>, tensor<2x4x6xf32>, tensor<2x4x6x4xf16>)
      outs(%dq, %dk, %dv : memref<2x4x6x16xf16>, tensor<2x2x8x16xf16>, tensor<2x2x8x4xf16>)
      -> tensor<2x2x8x16xf16>, tensor<2x2x8x4xf16>
  return
}

// -----

func.func @f(%q: memref<2x4x6x16xf16>, %k: memref<2x2x8x16xf16>, %v: memref<2x2x8x4xf16>,
             %o: memref<2x4x6x4xf16>, %lse: memref<2x4x6xf32>, %d_o: memref<2x4x6x4xf16>,
             %dq: memref<2x4x6x16xf16, affine_map<(d0, d1, d2, d3) -> (d0, d1, d2 floordiv 2, d3)>>,
             %dk: memref<2x2x8x16xf16>, %dv: memref<2x2x8x4xf16>) {
  // expected-error@+1 {{expected a strided layout of 'dq' but got 'memref<2x4x6x16xf16, affine_map<(d0, d1, d2, d3) -> (d0, d1, d2 floordiv 2, d3)>>'}}
  flashattn.attention_backward
      ins(%q, %k, %v, %o, %lse, %d_o : memref<2x4x6x16xf16>, memref<2x2x8x16xf16>, memref<2x2x8x4xf16>,
          memref<2x4x6x4xf16>, memref<2x4x6xf32>, memref<2x4x6x4xf16>)
      outs(%dq, %dk, %dv :
           memref<2x4x6x16xf16, affine_map<(d0, d1, d2, d3) -> (d0, d1, d2 floordiv 2, d3)>>,
           memref<2x2x8x16xf16>, memref<2x2x8x4xf16>)
  return
}

// -----

func.func @f(%q: memref<2x4x6x16xf16>, %k: memref<2x2x8x16xf16>, %v: memref<2x2x8x4xf16>,
             %o: memref<2x4x6x4xf16>, %lse: memref<2x4x6xf32>, %d_o: memref<2x4x6x4xf16>,
             %dq: memref<2x4x6x16xf16>, %dk: memref<2x2x8x16xf16, strided<[256, 128, 1, 8]>>,
             %dv: memref<2x2x8x4xf16>) {
  // expected-error@+1 {{expected unit stride in the last dimension of 'dk' but got 'memref<2x2x8x16xf16, strided<[256, 128, 1, 8]>>'}}
  flashattn.attention_backward
      ins(%q, %k, %v, %o, %lse, %d_o : memref<2x4x6x16xf16>, memref<2x2x8x16xf16>, memref<2x2x8x4xf16>,
          memref<2x4x6x4xf16>, memref<2x4x6xf32>, memref<2x4x6x4xf16>)
      outs(%dq, %dk, %dv : memref<2x4x6x16xf16>, memref<2x2x8x16xf16, strided<[256, 128, 1, 8]>>,
           memref<2x2x8x4xf16>)
  return
}

// -----

// What one program writes another reads.
func.func @f(%q: memref<2x4x6x16xf16>, %k: memref<2x2x8x16xf16>, %v: memref<2x2x8x4xf16>,
             %o: memref<2x4x6x4xf16>, %lse: memref<2x4x6xf32>, %d_o: memref<2x4x6x4xf16>,
             %dq: memref<2x4x6x16xf16>, %dk: memref<2x2x8x16xf16>, %dv: memref<2x2x8x4xf16>) {
  // expected-error@+1 {{expected separate memory for 'dk' but got the memory of 'k'}}
  flashattn.attention_backward
      ins(%q, %k, %v, %o, %lse, %d_o : memref<2x4x6x16xf16>, memref<2x2x8x16xf16>, memref<2x2x8x4xf16>,
          memref<2x4x6x4xf16>, memref<2x4x6xf32>, memref<2x4x6x4xf16>)
      outs(%dq, %k, %dv : memref<2x4x6x16xf16>, memref<2x2x8x16xf16>, memref<2x2x8x4xf16>)
  return
}

// -----

func.func @f(%q: memref<2x4x8x16xf16>, %k: memref<2x4x8x16xf16>, %v: memref<2x4x8x4xf16>,
             %o: memref<2x4x8x4xf16>, %lse: memref<2x4x8xf32>, %d_o: memref<2x4x8x4xf16>,
             %dq: memref<2x4x8x16xf16>, %dk: memref<2x4x8x16xf16>, %dv: memref<2x4x8x4xf16>) {
  // expected-error@+1 {{expected separate memory for 'dq' but got the memory of 'dk'}}
  flashattn.attention_backward
      ins(%q, %k, %v, %o, %lse, %d_o : memref<2x4x8x16xf16>, memref<2x4x8x16xf16>, memref<2x4x8x4xf16>,
          memref<2x4x8x4xf16>, memref<2x4x8xf32>, memref<2x4x8x4xf16>)
      outs(%dq, %dq, %dv : memref<2x4x8x16xf16>, memref<2x4x8x16xf16>, memref<2x4x8x4xf16>)
  return
}

// -----

func.func @f(%q: memref<2x4x6x16xf16>, %k: memref<2x2x8x16xf16>, %v: memref<2x2x8x4xf16>,
             %o: memref<2x4x6x4xf16>, %lse: memref<2x4x6xf32>, %d_o: memref<2x4x6x4xf16>,
             %dq: memref<2x4x6x16xf16>, %dk: memref<2x2x8x16xf16>, %dv: memref<2x2x8x4xf16>,
             %sink_logits: memref<4xf32>, %d_sink_logits: memref<4xf32>) {
  // expected-error@+1 {{expected separate memory for 'd_sink_logits' but got the memory of 'sink_logits'}}
  flashattn.attention_backward
      ins(%q, %k, %v, %o, %lse, %d_o : memref<2x4x6x16xf16>, memref<2x2x8x16xf16>, memref<2x2x8x4xf16>,
          memref<2x4x6x4xf16>, memref<2x4x6xf32>, memref<2x4x6x4xf16>)
      sink_logits(%sink_logits : memref<4xf32>)
      outs(%dq, %dk, %dv : memref<2x4x6x16xf16>, memref<2x2x8x16xf16>, memref<2x2x8x4xf16>)
      d_sink_logits(%sink_logits : memref<4xf32>)
  return
}

// -----

// Of what is not there.
func.func @f(%q: tensor<2x4x6x16xf16>, %k: tensor<2x2x8x16xf16>, %v: tensor<2x2x8x4xf16>,
             %o: tensor<2x4x6x4xf16>, %lse: tensor<2x4x6xf32>, %d_o: tensor<2x4x6x4xf16>,
             %dq: tensor<2x4x6x16xf16>, %dk: tensor<2x2x8x16xf16>, %dv: tensor<2x2x8x4xf16>,
             %d_bias: tensor<1x4x6x8xf32>) {
  // expected-error@+1 {{expected 'bias' for the gradient 'd_bias' but got none}}
  %r:4 = flashattn.attention_backward
      ins(%q, %k, %v, %o, %lse, %d_o : tensor<2x4x6x16xf16>, tensor<2x2x8x16xf16>, tensor<2x2x8x4xf16>,
          tensor<2x4x6x4xf16>, tensor<2x4x6xf32>, tensor<2x4x6x4xf16>)
      outs(%dq, %dk, %dv : tensor<2x4x6x16xf16>, tensor<2x2x8x16xf16>, tensor<2x2x8x4xf16>)
      d_bias(%d_bias : tensor<1x4x6x8xf32>)
      -> tensor<2x4x6x16xf16>, tensor<2x2x8x16xf16>, tensor<2x2x8x4xf16>, tensor<1x4x6x8xf32>
  return
}

// -----

func.func @f(%q: tensor<2x4x6x16xf16>, %k: tensor<2x2x8x16xf16>, %v: tensor<2x2x8x4xf16>,
             %o: tensor<2x4x6x4xf16>, %lse: tensor<2x4x6xf32>, %d_o: tensor<2x4x6x4xf16>,
             %dq: tensor<2x4x6x16xf16>, %dk: tensor<2x2x8x16xf16>, %dv: tensor<2x2x8x4xf16>,
             %d_sink_logits: tensor<4xf32>) {
  // expected-error@+1 {{expected 'sink_logits' for the gradient 'd_sink_logits' but got none}}
  %r:4 = flashattn.attention_backward
      ins(%q, %k, %v, %o, %lse, %d_o : tensor<2x4x6x16xf16>, tensor<2x2x8x16xf16>, tensor<2x2x8x4xf16>,
          tensor<2x4x6x4xf16>, tensor<2x4x6xf32>, tensor<2x4x6x4xf16>)
      outs(%dq, %dk, %dv : tensor<2x4x6x16xf16>, tensor<2x2x8x16xf16>, tensor<2x2x8x4xf16>)
      d_sink_logits(%d_sink_logits : tensor<4xf32>)
      -> tensor<2x4x6x16xf16>, tensor<2x2x8x16xf16>, tensor<2x2x8x4xf16>, tensor<4xf32>
  return
}

// -----

// In the type and with the broadcasts of the bias (rule B5).
func.func @f(%q: tensor<2x4x6x16xf16>, %k: tensor<2x2x8x16xf16>, %v: tensor<2x2x8x4xf16>,
             %o: tensor<2x4x6x4xf16>, %lse: tensor<2x4x6xf32>, %d_o: tensor<2x4x6x4xf16>,
             %dq: tensor<2x4x6x16xf16>, %dk: tensor<2x2x8x16xf16>, %dv: tensor<2x2x8x4xf16>,
             %bias: tensor<1x4x6x8xf16>, %d_bias: tensor<1x4x6x8xf32>) {
  // expected-error@+1 {{expected 'd_bias' of the type of 'bias', 'tensor<1x4x6x8xf16>', but got 'tensor<1x4x6x8xf32>'}}
  %r:4 = flashattn.attention_backward
      ins(%q, %k, %v, %o, %lse, %d_o : tensor<2x4x6x16xf16>, tensor<2x2x8x16xf16>, tensor<2x2x8x4xf16>,
          tensor<2x4x6x4xf16>, tensor<2x4x6xf32>, tensor<2x4x6x4xf16>)
      bias(%bias : tensor<1x4x6x8xf16>)
      outs(%dq, %dk, %dv : tensor<2x4x6x16xf16>, tensor<2x2x8x16xf16>, tensor<2x2x8x4xf16>)
      d_bias(%d_bias : tensor<1x4x6x8xf32>)
      -> tensor<2x4x6x16xf16>, tensor<2x2x8x16xf16>, tensor<2x2x8x4xf16>, tensor<1x4x6x8xf32>
  return
}

// -----

func.func @f(%q: tensor<2x4x6x16xf16>, %k: tensor<2x2x8x16xf16>, %v: tensor<2x2x8x4xf16>,
             %o: tensor<2x4x6x4xf16>, %lse: tensor<2x4x6xf32>, %d_o: tensor<2x4x6x4xf16>,
             %dq: tensor<2x4x6x16xf16>, %dk: tensor<2x2x8x16xf16>, %dv: tensor<2x2x8x4xf16>,
             %bias: tensor<1x4x6x8xf32>, %d_bias: tensor<2x4x6x8xf32>) {
  // expected-error@+1 {{expected 'd_bias' of the type of 'bias', 'tensor<1x4x6x8xf32>', but got 'tensor<2x4x6x8xf32>'}}
  %r:4 = flashattn.attention_backward
      ins(%q, %k, %v, %o, %lse, %d_o : tensor<2x4x6x16xf16>, tensor<2x2x8x16xf16>, tensor<2x2x8x4xf16>,
          tensor<2x4x6x4xf16>, tensor<2x4x6xf32>, tensor<2x4x6x4xf16>)
      bias(%bias : tensor<1x4x6x8xf32>)
      outs(%dq, %dk, %dv : tensor<2x4x6x16xf16>, tensor<2x2x8x16xf16>, tensor<2x2x8x4xf16>)
      d_bias(%d_bias : tensor<2x4x6x8xf32>)
      -> tensor<2x4x6x16xf16>, tensor<2x2x8x16xf16>, tensor<2x2x8x4xf16>, tensor<2x4x6x8xf32>
  return
}

// -----

func.func @f(%q: tensor<2x4x6x16xf16>, %k: tensor<2x2x8x16xf16>, %v: tensor<2x2x8x4xf16>,
             %o: tensor<2x4x6x4xf16>, %lse: tensor<2x4x6xf32>, %d_o: tensor<2x4x6x4xf16>,
             %dq: tensor<2x4x6x16xf16>, %dk: tensor<2x2x8x16xf16>, %dv: tensor<2x2x8x4xf16>,
             %bias: tensor<2x4x6x8xf32>, %d_bias: tensor<2x1x6x8xf32>) {
  // expected-error@+1 {{expected 'd_bias' of the type of 'bias', 'tensor<2x4x6x8xf32>', but got 'tensor<2x1x6x8xf32>'}}
  %r:4 = flashattn.attention_backward
      ins(%q, %k, %v, %o, %lse, %d_o : tensor<2x4x6x16xf16>, tensor<2x2x8x16xf16>, tensor<2x2x8x4xf16>,
          tensor<2x4x6x4xf16>, tensor<2x4x6xf32>, tensor<2x4x6x4xf16>)
      bias(%bias : tensor<2x4x6x8xf32>)
      outs(%dq, %dk, %dv : tensor<2x4x6x16xf16>, tensor<2x2x8x16xf16>, tensor<2x2x8x4xf16>)
      d_bias(%d_bias : tensor<2x1x6x8xf32>)
      -> tensor<2x4x6x16xf16>, tensor<2x2x8x16xf16>, tensor<2x2x8x4xf16>, tensor<2x1x6x8xf32>
  return
}

// -----

func.func @f(%q: tensor<2x4x6x16xf16>, %k: tensor<2x2x8x16xf16>, %v: tensor<2x2x8x4xf16>,
             %o: tensor<2x4x6x4xf16>, %lse: tensor<2x4x6xf32>, %d_o: tensor<2x4x6x4xf16>,
             %dq: tensor<2x4x6x16xf16>, %dk: tensor<2x2x8x16xf16>, %dv: tensor<2x2x8x4xf16>,
             %bias: tensor<1x1x1x8xf32>, %d_bias: tensor<1x1x1x6xf32>) {
  // expected-error@+1 {{expected key length of 'd_bias' to be 1 or 8 but got 6}}
  %r:4 = flashattn.attention_backward
      ins(%q, %k, %v, %o, %lse, %d_o : tensor<2x4x6x16xf16>, tensor<2x2x8x16xf16>, tensor<2x2x8x4xf16>,
          tensor<2x4x6x4xf16>, tensor<2x4x6xf32>, tensor<2x4x6x4xf16>)
      bias(%bias : tensor<1x1x1x8xf32>)
      outs(%dq, %dk, %dv : tensor<2x4x6x16xf16>, tensor<2x2x8x16xf16>, tensor<2x2x8x4xf16>)
      d_bias(%d_bias : tensor<1x1x1x6xf32>)
      -> tensor<2x4x6x16xf16>, tensor<2x2x8x16xf16>, tensor<2x2x8x4xf16>, tensor<1x1x1x6xf32>
  return
}

// -----

func.func @f(%q: tensor<2x4x6x16xf16>, %k: tensor<2x2x8x16xf16>, %v: tensor<2x2x8x4xf16>,
             %o: tensor<2x4x6x4xf16>, %lse: tensor<2x4x6xf32>, %d_o: tensor<2x4x6x4xf16>,
             %dq: tensor<2x4x6x16xf16>, %dk: tensor<2x2x8x16xf16>, %dv: tensor<2x2x8x4xf16>,
             %bias: tensor<1x1x6x8xf32>, %d_bias: tensor<6x8xf32>) {
  // expected-error@+1 {{expected 'd_bias' of rank 4 but got rank 2}}
  %r:4 = flashattn.attention_backward
      ins(%q, %k, %v, %o, %lse, %d_o : tensor<2x4x6x16xf16>, tensor<2x2x8x16xf16>, tensor<2x2x8x4xf16>,
          tensor<2x4x6x4xf16>, tensor<2x4x6xf32>, tensor<2x4x6x4xf16>)
      bias(%bias : tensor<1x1x6x8xf32>)
      outs(%dq, %dk, %dv : tensor<2x4x6x16xf16>, tensor<2x2x8x16xf16>, tensor<2x2x8x4xf16>)
      d_bias(%d_bias : tensor<6x8xf32>)
      -> tensor<2x4x6x16xf16>, tensor<2x2x8x16xf16>, tensor<2x2x8x4xf16>, tensor<6x8xf32>
  return
}

// -----

func.func @f(%q: tensor<2x4x6x16xf16>, %k: tensor<2x2x8x16xf16>, %v: tensor<2x2x8x4xf16>,
             %o: tensor<2x4x6x4xf16>, %lse: tensor<2x4x6xf32>, %d_o: tensor<2x4x6x4xf16>,
             %dq: tensor<2x4x6x16xf16>, %dk: tensor<2x2x8x16xf16>, %dv: tensor<2x2x8x4xf16>,
             %bias: tensor<1x1x6x8xf32>, %d_bias: tensor<1x1x6x8xf64>) {
  // expected-error@+1 {{expected 'd_bias' with element type f16, bf16 or f32 but got 'f64'}}
  %r:4 = flashattn.attention_backward
      ins(%q, %k, %v, %o, %lse, %d_o : tensor<2x4x6x16xf16>, tensor<2x2x8x16xf16>, tensor<2x2x8x4xf16>,
          tensor<2x4x6x4xf16>, tensor<2x4x6xf32>, tensor<2x4x6x4xf16>)
      bias(%bias : tensor<1x1x6x8xf32>)
      outs(%dq, %dk, %dv : tensor<2x4x6x16xf16>, tensor<2x2x8x16xf16>, tensor<2x2x8x4xf16>)
      d_bias(%d_bias : tensor<1x1x6x8xf64>)
      -> tensor<2x4x6x16xf16>, tensor<2x2x8x16xf16>, tensor<2x2x8x4xf16>, tensor<1x1x6x8xf64>
  return
}

// -----

func.func @f(%q: memref<2x4x6x16xf16>, %k: memref<2x2x8x16xf16>, %v: memref<2x2x8x4xf16>,
             %o: memref<2x4x6x4xf16>, %lse: memref<2x4x6xf32>, %d_o: memref<2x4x6x4xf16>,
             %dq: memref<2x4x6x16xf16>, %dk: memref<2x2x8x16xf16>, %dv: memref<2x2x8x4xf16>,
             %bias: memref<1x1x6x8xf32>, %d_bias: memref<1x1x6x8xf32, 1>) {
  // expected-error@+1 {{expected the default memory space of 'd_bias' but got 'memref<1x1x6x8xf32, 1>'}}
  flashattn.attention_backward
      ins(%q, %k, %v, %o, %lse, %d_o : memref<2x4x6x16xf16>, memref<2x2x8x16xf16>, memref<2x2x8x4xf16>,
          memref<2x4x6x4xf16>, memref<2x4x6xf32>, memref<2x4x6x4xf16>)
      bias(%bias : memref<1x1x6x8xf32>)
      outs(%dq, %dk, %dv : memref<2x4x6x16xf16>, memref<2x2x8x16xf16>, memref<2x2x8x4xf16>)
      d_bias(%d_bias : memref<1x1x6x8xf32, 1>)
  return
}

// -----

func.func @f(%q: tensor<2x4x6x16xf16>, %k: tensor<2x2x8x16xf16>, %v: tensor<2x2x8x4xf16>,
             %o: tensor<2x4x6x4xf16>, %lse: tensor<2x4x6xf32>, %d_o: tensor<2x4x6x4xf16>,
             %dq: tensor<2x4x6x16xf16>, %dk: tensor<2x2x8x16xf16>, %dv: tensor<2x2x8x4xf16>,
             %sink_logits: tensor<4xf32>, %d_sink_logits: tensor<2xf32>) {
  // expected-error@+1 {{expected head count of 'd_sink_logits' to be 4 as in 'q' but got 2}}
  %r:4 = flashattn.attention_backward
      ins(%q, %k, %v, %o, %lse, %d_o : tensor<2x4x6x16xf16>, tensor<2x2x8x16xf16>, tensor<2x2x8x4xf16>,
          tensor<2x4x6x4xf16>, tensor<2x4x6xf32>, tensor<2x4x6x4xf16>)
      sink_logits(%sink_logits : tensor<4xf32>)
      outs(%dq, %dk, %dv : tensor<2x4x6x16xf16>, tensor<2x2x8x16xf16>, tensor<2x2x8x4xf16>)
      d_sink_logits(%d_sink_logits : tensor<2xf32>)
      -> tensor<2x4x6x16xf16>, tensor<2x2x8x16xf16>, tensor<2x2x8x4xf16>, tensor<2xf32>
  return
}

// -----

func.func @f(%q: tensor<2x4x6x16xf16>, %k: tensor<2x2x8x16xf16>, %v: tensor<2x2x8x4xf16>,
             %o: tensor<2x4x6x4xf16>, %lse: tensor<2x4x6xf32>, %d_o: tensor<2x4x6x4xf16>,
             %dq: tensor<2x4x6x16xf16>, %dk: tensor<2x2x8x16xf16>, %dv: tensor<2x2x8x4xf16>,
             %sink_logits: tensor<4xf32>, %d_sink_logits: tensor<4xf16>) {
  // expected-error@+1 {{expected 'd_sink_logits' with element type f32 but got 'f16'}}
  %r:4 = flashattn.attention_backward
      ins(%q, %k, %v, %o, %lse, %d_o : tensor<2x4x6x16xf16>, tensor<2x2x8x16xf16>, tensor<2x2x8x4xf16>,
          tensor<2x4x6x4xf16>, tensor<2x4x6xf32>, tensor<2x4x6x4xf16>)
      sink_logits(%sink_logits : tensor<4xf32>)
      outs(%dq, %dk, %dv : tensor<2x4x6x16xf16>, tensor<2x2x8x16xf16>, tensor<2x2x8x4xf16>)
      d_sink_logits(%d_sink_logits : tensor<4xf16>)
      -> tensor<2x4x6x16xf16>, tensor<2x2x8x16xf16>, tensor<2x2x8x4xf16>, tensor<4xf16>
  return
}

// -----

//===----------------------------------------------------------------------===//
// Results
//===----------------------------------------------------------------------===//

func.func @f(%q: tensor<2x4x6x16xf16>, %k: tensor<2x2x8x16xf16>, %v: tensor<2x2x8x4xf16>,
             %o: tensor<2x4x6x4xf16>, %lse: tensor<2x4x6xf32>, %d_o: tensor<2x4x6x4xf16>,
             %dq: tensor<2x4x6x16xf16>, %dk: tensor<2x2x8x16xf16>, %dv: tensor<2x2x8x4xf16>) {
  // expected-error@+1 {{expected 3 results but got 2}}
  %r:2 = flashattn.attention_backward
      ins(%q, %k, %v, %o, %lse, %d_o : tensor<2x4x6x16xf16>, tensor<2x2x8x16xf16>, tensor<2x2x8x4xf16>,
          tensor<2x4x6x4xf16>, tensor<2x4x6xf32>, tensor<2x4x6x4xf16>)
      outs(%dq, %dk, %dv : tensor<2x4x6x16xf16>, tensor<2x2x8x16xf16>, tensor<2x2x8x4xf16>)
      -> tensor<2x4x6x16xf16>, tensor<2x2x8x16xf16>
  return
}

// -----

// The optional gradients are results too.
func.func @f(%q: tensor<2x4x6x16xf16>, %k: tensor<2x2x8x16xf16>, %v: tensor<2x2x8x4xf16>,
             %o: tensor<2x4x6x4xf16>, %lse: tensor<2x4x6xf32>, %d_o: tensor<2x4x6x4xf16>,
             %dq: tensor<2x4x6x16xf16>, %dk: tensor<2x2x8x16xf16>, %dv: tensor<2x2x8x4xf16>,
             %bias: tensor<1x4x6x8xf32>, %d_bias: tensor<1x4x6x8xf32>) {
  // expected-error@+1 {{expected 4 results but got 3}}
  %r:3 = flashattn.attention_backward
      ins(%q, %k, %v, %o, %lse, %d_o : tensor<2x4x6x16xf16>, tensor<2x2x8x16xf16>, tensor<2x2x8x4xf16>,
          tensor<2x4x6x4xf16>, tensor<2x4x6xf32>, tensor<2x4x6x4xf16>)
      bias(%bias : tensor<1x4x6x8xf32>)
      outs(%dq, %dk, %dv : tensor<2x4x6x16xf16>, tensor<2x2x8x16xf16>, tensor<2x2x8x4xf16>)
      d_bias(%d_bias : tensor<1x4x6x8xf32>)
      -> tensor<2x4x6x16xf16>, tensor<2x2x8x16xf16>, tensor<2x2x8x4xf16>
  return
}

// -----

func.func @f(%q: memref<2x4x6x16xf16>, %k: memref<2x2x8x16xf16>, %v: memref<2x2x8x4xf16>,
             %o: memref<2x4x6x4xf16>, %lse: memref<2x4x6xf32>, %d_o: memref<2x4x6x4xf16>,
             %dq: memref<2x4x6x16xf16>, %dk: memref<2x2x8x16xf16>, %dv: memref<2x2x8x4xf16>) {
  // expected-error@+1 {{expected 0 results but got 1}}
  %r:1 = flashattn.attention_backward
      ins(%q, %k, %v, %o, %lse, %d_o : memref<2x4x6x16xf16>, memref<2x2x8x16xf16>, memref<2x2x8x4xf16>,
          memref<2x4x6x4xf16>, memref<2x4x6xf32>, memref<2x4x6x4xf16>)
      outs(%dq, %dk, %dv : memref<2x4x6x16xf16>, memref<2x2x8x16xf16>, memref<2x2x8x4xf16>)
      -> tensor<2x4x6x16xf16>
  return
}

// -----

// In the order dq, dk, dv.
func.func @f(%q: tensor<2x4x6x16xf16>, %k: tensor<2x2x8x16xf16>, %v: tensor<2x2x8x4xf16>,
             %o: tensor<2x4x6x4xf16>, %lse: tensor<2x4x6xf32>, %d_o: tensor<2x4x6x4xf16>,
             %dq: tensor<2x4x6x16xf16>, %dk: tensor<2x2x8x16xf16>, %dv: tensor<2x2x8x4xf16>) {
  // expected-error@+1 {{expected result type 'tensor<2x4x6x16xf16>' as in 'outs' but got 'tensor<2x2x8x16xf16>'}}
  %r:3 = flashattn.attention_backward
      ins(%q, %k, %v, %o, %lse, %d_o : tensor<2x4x6x16xf16>, tensor<2x2x8x16xf16>, tensor<2x2x8x4xf16>,
          tensor<2x4x6x4xf16>, tensor<2x4x6xf32>, tensor<2x4x6x4xf16>)
      outs(%dq, %dk, %dv : tensor<2x4x6x16xf16>, tensor<2x2x8x16xf16>, tensor<2x2x8x4xf16>)
      -> tensor<2x2x8x16xf16>, tensor<2x4x6x16xf16>, tensor<2x2x8x4xf16>
  return
}

// -----

func.func @f(%q: tensor<2x4x6x16xf16>, %k: tensor<2x2x8x16xf16>, %v: tensor<2x2x8x4xf16>,
             %o: tensor<2x4x6x4xf16>, %lse: tensor<2x4x6xf32>, %d_o: tensor<2x4x6x4xf16>,
             %dq: tensor<2x4x6x16xf16>, %dk: tensor<2x2x8x16xf16>, %dv: tensor<2x2x8x4xf16>,
             %sink_logits: tensor<4xf32>, %d_sink_logits: tensor<4xf32>) {
  // expected-error@+1 {{expected result type 'tensor<4xf32>' as in 'outs' but got 'tensor<?xf32>'}}
  %r:4 = flashattn.attention_backward
      ins(%q, %k, %v, %o, %lse, %d_o : tensor<2x4x6x16xf16>, tensor<2x2x8x16xf16>, tensor<2x2x8x4xf16>,
          tensor<2x4x6x4xf16>, tensor<2x4x6xf32>, tensor<2x4x6x4xf16>)
      sink_logits(%sink_logits : tensor<4xf32>)
      outs(%dq, %dk, %dv : tensor<2x4x6x16xf16>, tensor<2x2x8x16xf16>, tensor<2x2x8x4xf16>)
      d_sink_logits(%d_sink_logits : tensor<4xf32>)
      -> tensor<2x4x6x16xf16>, tensor<2x2x8x16xf16>, tensor<2x2x8x4xf16>, tensor<?xf32>
  return
}

// -----

//===----------------------------------------------------------------------===//
// What shapes the scores
//===----------------------------------------------------------------------===//

func.func @f(%q: tensor<2x4x6x16xf16>, %k: tensor<2x3x8x16xf16>, %v: tensor<2x3x8x4xf16>,
             %o: tensor<2x4x6x4xf16>, %lse: tensor<2x4x6xf32>, %d_o: tensor<2x4x6x4xf16>,
             %dq: tensor<2x4x6x16xf16>, %dk: tensor<2x3x8x16xf16>, %dv: tensor<2x3x8x4xf16>) {
  // expected-error@+1 {{expected the query head count to be a multiple of the key/value head count, 3, but got 4}}
  %r:3 = flashattn.attention_backward
      ins(%q, %k, %v, %o, %lse, %d_o : tensor<2x4x6x16xf16>, tensor<2x3x8x16xf16>, tensor<2x3x8x4xf16>,
          tensor<2x4x6x4xf16>, tensor<2x4x6xf32>, tensor<2x4x6x4xf16>)
      outs(%dq, %dk, %dv : tensor<2x4x6x16xf16>, tensor<2x3x8x16xf16>, tensor<2x3x8x4xf16>)
      -> tensor<2x4x6x16xf16>, tensor<2x3x8x16xf16>, tensor<2x3x8x4xf16>
  return
}

// -----

func.func @f(%q: tensor<2x4x6x16xf16>, %k: tensor<2x2x8x16xbf16>, %v: tensor<2x2x8x4xf16>,
             %o: tensor<2x4x6x4xf16>, %lse: tensor<2x4x6xf32>, %d_o: tensor<2x4x6x4xf16>,
             %dq: tensor<2x4x6x16xf16>, %dk: tensor<2x2x8x16xf16>, %dv: tensor<2x2x8x4xf16>) {
  // expected-error@+1 {{expected 'k' with element type 'f16' as in 'q' but got 'bf16'}}
  %r:3 = flashattn.attention_backward
      ins(%q, %k, %v, %o, %lse, %d_o : tensor<2x4x6x16xf16>, tensor<2x2x8x16xbf16>, tensor<2x2x8x4xf16>,
          tensor<2x4x6x4xf16>, tensor<2x4x6xf32>, tensor<2x4x6x4xf16>)
      outs(%dq, %dk, %dv : tensor<2x4x6x16xf16>, tensor<2x2x8x16xf16>, tensor<2x2x8x4xf16>)
      -> tensor<2x4x6x16xf16>, tensor<2x2x8x16xf16>, tensor<2x2x8x4xf16>
  return
}

// -----

func.func @f(%q: tensor<2x4x6x16xf16>, %k: tensor<2x2x8x16xf16>, %v: tensor<2x2x8x4xf16>,
             %o: tensor<2x4x6x4xf16>, %lse: tensor<2x4x6xf32>, %d_o: tensor<2x4x6x4xf16>,
             %dq: tensor<2x4x6x?xf16>, %dk: tensor<2x2x8x16xf16>, %dv: tensor<2x2x8x4xf16>) {
  // expected-error@+1 {{expected a static last dimension of 'dq' but got 'tensor<2x4x6x?xf16>'}}
  %r:3 = flashattn.attention_backward
      ins(%q, %k, %v, %o, %lse, %d_o : tensor<2x4x6x16xf16>, tensor<2x2x8x16xf16>, tensor<2x2x8x4xf16>,
          tensor<2x4x6x4xf16>, tensor<2x4x6xf32>, tensor<2x4x6x4xf16>)
      outs(%dq, %dk, %dv : tensor<2x4x6x?xf16>, tensor<2x2x8x16xf16>, tensor<2x2x8x4xf16>)
      -> tensor<2x4x6x?xf16>, tensor<2x2x8x16xf16>, tensor<2x2x8x4xf16>
  return
}

// -----

func.func @f(%q: tensor<2x4x6x16xf16>, %k: tensor<2x2x8x16xf16>, %v: tensor<2x2x8x0xf16>,
             %o: tensor<2x4x6x0xf16>, %lse: tensor<2x4x6xf32>, %d_o: tensor<2x4x6x0xf16>,
             %dq: tensor<2x4x6x16xf16>, %dk: tensor<2x2x8x16xf16>, %dv: tensor<2x2x8x0xf16>) {
  // expected-error@+1 {{expected head dimensions of at least 1 but got 16 of 'q' and 0 of 'v'}}
  %r:3 = flashattn.attention_backward
      ins(%q, %k, %v, %o, %lse, %d_o : tensor<2x4x6x16xf16>, tensor<2x2x8x16xf16>, tensor<2x2x8x0xf16>,
          tensor<2x4x6x0xf16>, tensor<2x4x6xf32>, tensor<2x4x6x0xf16>)
      outs(%dq, %dk, %dv : tensor<2x4x6x16xf16>, tensor<2x2x8x16xf16>, tensor<2x2x8x0xf16>)
      -> tensor<2x4x6x16xf16>, tensor<2x2x8x16xf16>, tensor<2x2x8x0xf16>
  return
}

// -----

func.func @f(%q: tensor<2x4x6x16xf16>, %k: tensor<2x2x8x16xf16>, %v: tensor<2x2x8x4xf16>,
             %o: tensor<2x4x6x4xf16>, %lse: tensor<2x4x6xf32>, %d_o: tensor<2x4x6x4xf16>,
             %dq: tensor<2x4x6x16xf16>, %dk: tensor<2x2x8x16xf16>, %dv: tensor<2x2x8x4xf16>) {
  // expected-error@+1 {{expected a finite positive scale but got -0.5}}
  %r:3 = flashattn.attention_backward scale(-0.5)
      ins(%q, %k, %v, %o, %lse, %d_o : tensor<2x4x6x16xf16>, tensor<2x2x8x16xf16>, tensor<2x2x8x4xf16>,
          tensor<2x4x6x4xf16>, tensor<2x4x6xf32>, tensor<2x4x6x4xf16>)
      outs(%dq, %dk, %dv : tensor<2x4x6x16xf16>, tensor<2x2x8x16xf16>, tensor<2x2x8x4xf16>)
      -> tensor<2x4x6x16xf16>, tensor<2x2x8x16xf16>, tensor<2x2x8x4xf16>
  return
}

// -----

func.func @f(%q: tensor<2x4x6x16xf16>, %k: tensor<2x2x8x16xf16>, %v: tensor<2x2x8x4xf16>,
             %o: tensor<2x4x6x4xf16>, %lse: tensor<2x4x6xf32>, %d_o: tensor<2x4x6x4xf16>,
             %dq: tensor<2x4x6x16xf16>, %dk: tensor<2x2x8x16xf16>, %dv: tensor<2x2x8x4xf16>) {
  // expected-error@+1 {{expected scale from 1e-18 to 1e18 but got }}
  %r:3 = flashattn.attention_backward scale(1.0e-19)
      ins(%q, %k, %v, %o, %lse, %d_o : tensor<2x4x6x16xf16>, tensor<2x2x8x16xf16>, tensor<2x2x8x4xf16>,
          tensor<2x4x6x4xf16>, tensor<2x4x6xf32>, tensor<2x4x6x4xf16>)
      outs(%dq, %dk, %dv : tensor<2x4x6x16xf16>, tensor<2x2x8x16xf16>, tensor<2x2x8x4xf16>)
      -> tensor<2x4x6x16xf16>, tensor<2x2x8x16xf16>, tensor<2x2x8x4xf16>
  return
}

// -----

func.func @f(%q: tensor<2x4x6x16xf16>, %k: tensor<2x2x8x16xf16>, %v: tensor<2x2x8x4xf16>,
             %o: tensor<2x4x6x4xf16>, %lse: tensor<2x4x6xf32>, %d_o: tensor<2x4x6x4xf16>,
             %dq: tensor<2x4x6x16xf16>, %dk: tensor<2x2x8x16xf16>, %dv: tensor<2x2x8x4xf16>) {
  // expected-error@+1 {{expected a finite positive softcap but got +Inf}}
  %r:3 = flashattn.attention_backward softcap(0x7F800000)
      ins(%q, %k, %v, %o, %lse, %d_o : tensor<2x4x6x16xf16>, tensor<2x2x8x16xf16>, tensor<2x2x8x4xf16>,
          tensor<2x4x6x4xf16>, tensor<2x4x6xf32>, tensor<2x4x6x4xf16>)
      outs(%dq, %dk, %dv : tensor<2x4x6x16xf16>, tensor<2x2x8x16xf16>, tensor<2x2x8x4xf16>)
      -> tensor<2x4x6x16xf16>, tensor<2x2x8x16xf16>, tensor<2x2x8x4xf16>
  return
}

// -----

func.func @f(%q: tensor<2x4x6x16xf16>, %k: tensor<2x2x8x16xf16>, %v: tensor<2x2x8x4xf16>,
             %o: tensor<2x4x6x4xf16>, %lse: tensor<2x4x6xf32>, %d_o: tensor<2x4x6x4xf16>,
             %dq: tensor<2x4x6x16xf16>, %dk: tensor<2x2x8x16xf16>, %dv: tensor<2x2x8x4xf16>) {
  // expected-error@+1 {{expected softcap from 1e-18 to 1e18 but got }}
  %r:3 = flashattn.attention_backward softcap(1.0e19)
      ins(%q, %k, %v, %o, %lse, %d_o : tensor<2x4x6x16xf16>, tensor<2x2x8x16xf16>, tensor<2x2x8x4xf16>,
          tensor<2x4x6x4xf16>, tensor<2x4x6xf32>, tensor<2x4x6x4xf16>)
      outs(%dq, %dk, %dv : tensor<2x4x6x16xf16>, tensor<2x2x8x16xf16>, tensor<2x2x8x4xf16>)
      -> tensor<2x4x6x16xf16>, tensor<2x2x8x16xf16>, tensor<2x2x8x4xf16>
  return
}

// -----

func.func @f(%q: memref<1x2x8x16xf32>, %lse: memref<1x2x8xf32>, %dq: memref<1x2x8x16xf32>, %dk: memref<1x2x8x16xf32>,
             %dv: memref<1x2x8x16xf32>, %s: f32) {
  // expected-error@+1 {{expected one scale but got an attribute, 0.5, and an operand}}
  "flashattn.attention_backward"(%q, %q, %q, %q, %lse, %q, %s, %dq, %dk, %dv) <{
    scale = 0.5 : f32, operandSegmentSizes = array<i32: 1, 1, 1, 1, 1, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0, 1, 1, 1, 0, 0>
  }> : (memref<1x2x8x16xf32>, memref<1x2x8x16xf32>, memref<1x2x8x16xf32>, memref<1x2x8x16xf32>, memref<1x2x8xf32>,
        memref<1x2x8x16xf32>, f32, memref<1x2x8x16xf32>, memref<1x2x8x16xf32>, memref<1x2x8x16xf32>) -> ()
  return
}

// -----

func.func @f(%q: tensor<2x4x6x16xf16>, %k: tensor<2x2x8x16xf16>, %v: tensor<2x2x8x4xf16>,
             %o: tensor<2x4x6x4xf16>, %lse: tensor<2x4x6xf32>, %d_o: tensor<2x4x6x4xf16>,
             %dq: tensor<2x4x6x16xf16>, %dk: tensor<2x2x8x16xf16>, %dv: tensor<2x2x8x4xf16>) {
  // expected-error@+1 {{expected top_left or bottom_right but got 'middle'}}
  %r:3 = flashattn.attention_backward align(middle)
      ins(%q, %k, %v, %o, %lse, %d_o : tensor<2x4x6x16xf16>, tensor<2x2x8x16xf16>, tensor<2x2x8x4xf16>,
          tensor<2x4x6x4xf16>, tensor<2x4x6xf32>, tensor<2x4x6x4xf16>)
      outs(%dq, %dk, %dv : tensor<2x4x6x16xf16>, tensor<2x2x8x16xf16>, tensor<2x2x8x4xf16>)
      -> tensor<2x4x6x16xf16>, tensor<2x2x8x16xf16>, tensor<2x2x8x4xf16>
  return
}

// -----

func.func @f(%q: tensor<2x4x6x16xf16>, %k: tensor<2x2x8x16xf16>, %v: tensor<2x2x8x4xf16>,
             %o: tensor<2x4x6x4xf16>, %lse: tensor<2x4x6xf32>, %d_o: tensor<2x4x6x4xf16>,
             %dq: tensor<2x4x6x16xf16>, %dk: tensor<2x2x8x16xf16>, %dv: tensor<2x2x8x4xf16>,
             %bias: tensor<1x4x8x8xf32>) {
  // expected-error@+1 {{expected query length of 'bias' to be 1 or 6 but got 8}}
  %r:3 = flashattn.attention_backward
      ins(%q, %k, %v, %o, %lse, %d_o : tensor<2x4x6x16xf16>, tensor<2x2x8x16xf16>, tensor<2x2x8x4xf16>,
          tensor<2x4x6x4xf16>, tensor<2x4x6xf32>, tensor<2x4x6x4xf16>)
      bias(%bias : tensor<1x4x8x8xf32>)
      outs(%dq, %dk, %dv : tensor<2x4x6x16xf16>, tensor<2x2x8x16xf16>, tensor<2x2x8x4xf16>)
      -> tensor<2x4x6x16xf16>, tensor<2x2x8x16xf16>, tensor<2x2x8x4xf16>
  return
}

// -----

func.func @f(%q: tensor<2x4x6x16xf16>, %k: tensor<2x2x8x16xf16>, %v: tensor<2x2x8x4xf16>,
             %o: tensor<2x4x6x4xf16>, %lse: tensor<2x4x6xf32>, %d_o: tensor<2x4x6x4xf16>,
             %dq: tensor<2x4x6x16xf16>, %dk: tensor<2x2x8x16xf16>, %dv: tensor<2x2x8x4xf16>,
             %attn_mask: tensor<1x1x6x8xi8>) {
  // expected-error@+1 {{expected 'attn_mask' with element type i1 but got 'i8'}}
  %r:3 = flashattn.attention_backward
      ins(%q, %k, %v, %o, %lse, %d_o : tensor<2x4x6x16xf16>, tensor<2x2x8x16xf16>, tensor<2x2x8x4xf16>,
          tensor<2x4x6x4xf16>, tensor<2x4x6xf32>, tensor<2x4x6x4xf16>)
      attn_mask(%attn_mask : tensor<1x1x6x8xi8>)
      outs(%dq, %dk, %dv : tensor<2x4x6x16xf16>, tensor<2x2x8x16xf16>, tensor<2x2x8x4xf16>)
      -> tensor<2x4x6x16xf16>, tensor<2x2x8x16xf16>, tensor<2x2x8x4xf16>
  return
}

// -----

func.func @f(%q: tensor<2x4x6x16xf16>, %k: tensor<2x2x8x16xf16>, %v: tensor<2x2x8x4xf16>,
             %o: tensor<2x4x6x4xf16>, %lse: tensor<2x4x6xf32>, %d_o: tensor<2x4x6x4xf16>,
             %dq: tensor<2x4x6x16xf16>, %dk: tensor<2x2x8x16xf16>, %dv: tensor<2x2x8x4xf16>,
             %kv_len: tensor<4xi32>) {
  // expected-error@+1 {{expected batch size of 'kv_len' to be 2 as in 'q' but got 4}}
  %r:3 = flashattn.attention_backward
      ins(%q, %k, %v, %o, %lse, %d_o : tensor<2x4x6x16xf16>, tensor<2x2x8x16xf16>, tensor<2x2x8x4xf16>,
          tensor<2x4x6x4xf16>, tensor<2x4x6xf32>, tensor<2x4x6x4xf16>)
      kv_len(%kv_len : tensor<4xi32>)
      outs(%dq, %dk, %dv : tensor<2x4x6x16xf16>, tensor<2x2x8x16xf16>, tensor<2x2x8x4xf16>)
      -> tensor<2x4x6x16xf16>, tensor<2x2x8x16xf16>, tensor<2x2x8x4xf16>
  return
}

// -----

func.func @f(%q: tensor<2x4x6x16xf16>, %k: tensor<2x2x8x16xf16>, %v: tensor<2x2x8x4xf16>,
             %o: tensor<2x4x6x4xf16>, %lse: tensor<2x4x6xf32>, %d_o: tensor<2x4x6x4xf16>,
             %dq: tensor<2x4x6x16xf16>, %dk: tensor<2x2x8x16xf16>, %dv: tensor<2x2x8x4xf16>) {
  // expected-error@+1 {{expected score_mod of (f32, index, index, index, index) but got ('f32')}}
  %r:3 = flashattn.attention_backward
      ins(%q, %k, %v, %o, %lse, %d_o : tensor<2x4x6x16xf16>, tensor<2x2x8x16xf16>, tensor<2x2x8x4xf16>,
          tensor<2x4x6x4xf16>, tensor<2x4x6xf32>, tensor<2x4x6x4xf16>)
      score_mod {
      ^bb0(%s: f32):
        flashattn.yield %s : f32
      }
      outs(%dq, %dk, %dv : tensor<2x4x6x16xf16>, tensor<2x2x8x16xf16>, tensor<2x2x8x4xf16>)
      -> tensor<2x4x6x16xf16>, tensor<2x2x8x16xf16>, tensor<2x2x8x4xf16>
  return
}
