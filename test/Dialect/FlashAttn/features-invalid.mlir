// RUN: flash-opt %s -split-input-file -verify-diagnostics -o /dev/null

// Rule R1 for the operands, attributes and region beyond q, k and v: every refusal names what was
// expected and what was found.

func.func @f(%q: tensor<2x4x8x16xf32>, %x: memref<1x1x8x8xf32>) {
  // expected-error@+1 {{expected all operands to be tensors like 'q' but got 'bias' of type 'memref<1x1x8x8xf32>'}}
  %r = flashattn.attention ins(%q, %q, %q : tensor<2x4x8x16xf32>, tensor<2x4x8x16xf32>, tensor<2x4x8x16xf32>)
      bias(%x : memref<1x1x8x8xf32>) outs(%q : tensor<2x4x8x16xf32>) -> tensor<2x4x8x16xf32>
  return
}

// -----

func.func @f(%q: tensor<2x4x8x16xf32>, %x: tensor<8x8xf32>) {
  // expected-error@+1 {{expected 'bias' of rank 4 but got rank 2}}
  %r = flashattn.attention ins(%q, %q, %q : tensor<2x4x8x16xf32>, tensor<2x4x8x16xf32>, tensor<2x4x8x16xf32>)
      bias(%x : tensor<8x8xf32>) outs(%q : tensor<2x4x8x16xf32>) -> tensor<2x4x8x16xf32>
  return
}

// -----

func.func @f(%q: tensor<2x4x8x16xf32>, %x: tensor<1x1x8x8xf64>) {
  // expected-error@+1 {{expected 'bias' with element type f16, bf16 or f32 but got 'f64'}}
  %r = flashattn.attention ins(%q, %q, %q : tensor<2x4x8x16xf32>, tensor<2x4x8x16xf32>, tensor<2x4x8x16xf32>)
      bias(%x : tensor<1x1x8x8xf64>) outs(%q : tensor<2x4x8x16xf32>) -> tensor<2x4x8x16xf32>
  return
}

// -----

func.func @f(%q: tensor<2x4x8x16xf32>, %x: tensor<3x1x8x8xf32>) {
  // expected-error@+1 {{expected batch size of 'bias' to be 1 or 2 but got 3}}
  %r = flashattn.attention ins(%q, %q, %q : tensor<2x4x8x16xf32>, tensor<2x4x8x16xf32>, tensor<2x4x8x16xf32>)
      bias(%x : tensor<3x1x8x8xf32>) outs(%q : tensor<2x4x8x16xf32>) -> tensor<2x4x8x16xf32>
  return
}

// -----

func.func @f(%q: tensor<2x4x8x16xf32>, %x: tensor<1x2x8x8xf32>) {
  // expected-error@+1 {{expected head count of 'bias' to be 1 or 4 but got 2}}
  %r = flashattn.attention ins(%q, %q, %q : tensor<2x4x8x16xf32>, tensor<2x4x8x16xf32>, tensor<2x4x8x16xf32>)
      bias(%x : tensor<1x2x8x8xf32>) outs(%q : tensor<2x4x8x16xf32>) -> tensor<2x4x8x16xf32>
  return
}

// -----

func.func @f(%q: tensor<2x4x8x16xf32>, %x: tensor<1x4x7x8xf32>) {
  // expected-error@+1 {{expected query length of 'bias' to be 1 or 8 but got 7}}
  %r = flashattn.attention ins(%q, %q, %q : tensor<2x4x8x16xf32>, tensor<2x4x8x16xf32>, tensor<2x4x8x16xf32>)
      bias(%x : tensor<1x4x7x8xf32>) outs(%q : tensor<2x4x8x16xf32>) -> tensor<2x4x8x16xf32>
  return
}

// -----

func.func @f(%q: tensor<2x4x8x16xf32>, %x: tensor<1x4x8x9xf32>) {
  // expected-error@+1 {{expected key length of 'bias' to be 1 or 8 but got 9}}
  %r = flashattn.attention ins(%q, %q, %q : tensor<2x4x8x16xf32>, tensor<2x4x8x16xf32>, tensor<2x4x8x16xf32>)
      bias(%x : tensor<1x4x8x9xf32>) outs(%q : tensor<2x4x8x16xf32>) -> tensor<2x4x8x16xf32>
  return
}

// -----

func.func @f(%q: tensor<2x4x8x16xf32>, %x: tensor<1x1x8xi1>) {
  // expected-error@+1 {{expected 'attn_mask' of rank 4 but got rank 3}}
  %r = flashattn.attention ins(%q, %q, %q : tensor<2x4x8x16xf32>, tensor<2x4x8x16xf32>, tensor<2x4x8x16xf32>)
      attn_mask(%x : tensor<1x1x8xi1>) outs(%q : tensor<2x4x8x16xf32>) -> tensor<2x4x8x16xf32>
  return
}

// -----

func.func @f(%q: tensor<2x4x8x16xf32>, %x: tensor<1x1x8x8xi8>) {
  // expected-error@+1 {{expected 'attn_mask' with element type i1 but got 'i8'}}
  %r = flashattn.attention ins(%q, %q, %q : tensor<2x4x8x16xf32>, tensor<2x4x8x16xf32>, tensor<2x4x8x16xf32>)
      attn_mask(%x : tensor<1x1x8x8xi8>) outs(%q : tensor<2x4x8x16xf32>) -> tensor<2x4x8x16xf32>
  return
}

// -----

func.func @f(%q: tensor<2x4x8x16xf32>, %x: tensor<2x4x8x0xi1>) {
  // expected-error@+1 {{expected key length of 'attn_mask' to be 1 or 8 but got 0}}
  %r = flashattn.attention ins(%q, %q, %q : tensor<2x4x8x16xf32>, tensor<2x4x8x16xf32>, tensor<2x4x8x16xf32>)
      attn_mask(%x : tensor<2x4x8x0xi1>) outs(%q : tensor<2x4x8x16xf32>) -> tensor<2x4x8x16xf32>
  return
}

// -----

func.func @f(%q: tensor<2x4x8x16xf32>, %x: memref<1x1x8x8xi1>) {
  // expected-error@+1 {{expected all operands to be tensors like 'q' but got 'attn_mask' of type 'memref<1x1x8x8xi1>'}}
  %r = flashattn.attention ins(%q, %q, %q : tensor<2x4x8x16xf32>, tensor<2x4x8x16xf32>, tensor<2x4x8x16xf32>)
      attn_mask(%x : memref<1x1x8x8xi1>) outs(%q : tensor<2x4x8x16xf32>) -> tensor<2x4x8x16xf32>
  return
}

// -----

func.func @f(%q: tensor<2x4x8x16xf32>, %x: tensor<1x4xf32>) {
  // expected-error@+1 {{expected 'sink_logits' of rank 1 but got rank 2}}
  %r = flashattn.attention ins(%q, %q, %q : tensor<2x4x8x16xf32>, tensor<2x4x8x16xf32>, tensor<2x4x8x16xf32>)
      sink_logits(%x : tensor<1x4xf32>) outs(%q : tensor<2x4x8x16xf32>) -> tensor<2x4x8x16xf32>
  return
}

// -----

func.func @f(%q: tensor<2x4x8x16xf32>, %x: tensor<4xf16>) {
  // expected-error@+1 {{expected 'sink_logits' with element type f32 but got 'f16'}}
  %r = flashattn.attention ins(%q, %q, %q : tensor<2x4x8x16xf32>, tensor<2x4x8x16xf32>, tensor<2x4x8x16xf32>)
      sink_logits(%x : tensor<4xf16>) outs(%q : tensor<2x4x8x16xf32>) -> tensor<2x4x8x16xf32>
  return
}

// -----

func.func @f(%q: tensor<2x4x8x16xf32>, %x: tensor<3xf32>) {
  // expected-error@+1 {{expected head count of 'sink_logits' to be 4 as in 'q' but got 3}}
  %r = flashattn.attention ins(%q, %q, %q : tensor<2x4x8x16xf32>, tensor<2x4x8x16xf32>, tensor<2x4x8x16xf32>)
      sink_logits(%x : tensor<3xf32>) outs(%q : tensor<2x4x8x16xf32>) -> tensor<2x4x8x16xf32>
  return
}

// -----

func.func @f(%q: tensor<2x4x8x16xf32>, %x: memref<4xf32>) {
  // expected-error@+1 {{expected all operands to be tensors like 'q' but got 'sink_logits' of type 'memref<4xf32>'}}
  %r = flashattn.attention ins(%q, %q, %q : tensor<2x4x8x16xf32>, tensor<2x4x8x16xf32>, tensor<2x4x8x16xf32>)
      sink_logits(%x : memref<4xf32>) outs(%q : tensor<2x4x8x16xf32>) -> tensor<2x4x8x16xf32>
  return
}

// -----

func.func @f(%q: tensor<2x4x8x16xf32>, %x: tensor<2x1xi32>) {
  // expected-error@+1 {{expected 'kv_len' of rank 1 but got rank 2}}
  %r = flashattn.attention ins(%q, %q, %q : tensor<2x4x8x16xf32>, tensor<2x4x8x16xf32>, tensor<2x4x8x16xf32>)
      kv_len(%x : tensor<2x1xi32>) outs(%q : tensor<2x4x8x16xf32>) -> tensor<2x4x8x16xf32>
  return
}

// -----

func.func @f(%q: tensor<2x4x8x16xf32>, %x: tensor<2xi64>) {
  // expected-error@+1 {{expected 'kv_len' with element type i32 but got 'i64'}}
  %r = flashattn.attention ins(%q, %q, %q : tensor<2x4x8x16xf32>, tensor<2x4x8x16xf32>, tensor<2x4x8x16xf32>)
      kv_len(%x : tensor<2xi64>) outs(%q : tensor<2x4x8x16xf32>) -> tensor<2x4x8x16xf32>
  return
}

// -----

func.func @f(%q: tensor<2x4x8x16xf32>, %x: tensor<4xi32>) {
  // expected-error@+1 {{expected batch size of 'kv_len' to be 2 as in 'q' but got 4}}
  %r = flashattn.attention ins(%q, %q, %q : tensor<2x4x8x16xf32>, tensor<2x4x8x16xf32>, tensor<2x4x8x16xf32>)
      kv_len(%x : tensor<4xi32>) outs(%q : tensor<2x4x8x16xf32>) -> tensor<2x4x8x16xf32>
  return
}

// -----

func.func @f(%q: tensor<2x4x8x16xf32>, %x: memref<2xi32>) {
  // expected-error@+1 {{expected all operands to be tensors like 'q' but got 'kv_len' of type 'memref<2xi32>'}}
  %r = flashattn.attention ins(%q, %q, %q : tensor<2x4x8x16xf32>, tensor<2x4x8x16xf32>, tensor<2x4x8x16xf32>)
      kv_len(%x : memref<2xi32>) outs(%q : tensor<2x4x8x16xf32>) -> tensor<2x4x8x16xf32>
  return
}

// -----

func.func @f(%q: tensor<2x4x8x16xf32>) {
  // expected-error@+1 {{expected a finite positive softcap but got 0}}
  %r = flashattn.attention softcap(0.0) ins(%q, %q, %q : tensor<2x4x8x16xf32>, tensor<2x4x8x16xf32>, tensor<2x4x8x16xf32>)
       outs(%q : tensor<2x4x8x16xf32>) -> tensor<2x4x8x16xf32>
  return
}

// -----

func.func @f(%q: tensor<2x4x8x16xf32>) {
  // expected-error@+1 {{expected a finite positive softcap but got -3}}
  %r = flashattn.attention softcap(-3.0) ins(%q, %q, %q : tensor<2x4x8x16xf32>, tensor<2x4x8x16xf32>, tensor<2x4x8x16xf32>)
       outs(%q : tensor<2x4x8x16xf32>) -> tensor<2x4x8x16xf32>
  return
}

// -----

func.func @f(%q: tensor<2x4x8x16xf32>) {
  // expected-error@+1 {{expected a finite positive softcap but got +Inf}}
  %r = flashattn.attention softcap(0x7F800000) ins(%q, %q, %q : tensor<2x4x8x16xf32>, tensor<2x4x8x16xf32>, tensor<2x4x8x16xf32>)
       outs(%q : tensor<2x4x8x16xf32>) -> tensor<2x4x8x16xf32>
  return
}

// -----

func.func @f(%q: tensor<2x4x8x16xf32>) {
  // expected-error@+1 {{expected a finite positive softcap but got NaN}}
  %r = flashattn.attention softcap(0x7FC00000) ins(%q, %q, %q : tensor<2x4x8x16xf32>, tensor<2x4x8x16xf32>, tensor<2x4x8x16xf32>)
       outs(%q : tensor<2x4x8x16xf32>) -> tensor<2x4x8x16xf32>
  return
}

// -----

func.func @f(%q: memref<2x4x8x16xf32>, %x: memref<1x1x8x8xf32, strided<[64, 64, 1, 8]>>, %out_q: memref<2x4x8x16xf32>) {
  // expected-error@+1 {{expected unit stride in the last dimension of 'bias' but got 'memref<1x1x8x8xf32, strided<[64, 64, 1, 8]>>'}}
  flashattn.attention ins(%q, %q, %q : memref<2x4x8x16xf32>, memref<2x4x8x16xf32>, memref<2x4x8x16xf32>)
      bias(%x : memref<1x1x8x8xf32, strided<[64, 64, 1, 8]>>) outs(%out_q : memref<2x4x8x16xf32>)
  return
}

// -----

func.func @f(%q: memref<2x4x8x16xf32>, %x: memref<1x1x8x8xi1, strided<[64, 64, 1, 8]>>, %out_q: memref<2x4x8x16xf32>) {
  // expected-error@+1 {{expected unit stride in the last dimension of 'attn_mask' but got 'memref<1x1x8x8xi1, strided<[64, 64, 1, 8]>>'}}
  flashattn.attention ins(%q, %q, %q : memref<2x4x8x16xf32>, memref<2x4x8x16xf32>, memref<2x4x8x16xf32>)
      attn_mask(%x : memref<1x1x8x8xi1, strided<[64, 64, 1, 8]>>) outs(%out_q : memref<2x4x8x16xf32>)
  return
}

// -----

func.func @f(%q: memref<2x4x8x16xf32>, %x: memref<1x1x8x8xf32, affine_map<(a, b, c, d) -> (c mod 2, d)>>, %out_q: memref<2x4x8x16xf32>) {
  // expected-error@+1 {{expected a strided layout of 'bias' but got}}
  flashattn.attention ins(%q, %q, %q : memref<2x4x8x16xf32>, memref<2x4x8x16xf32>, memref<2x4x8x16xf32>)
      bias(%x : memref<1x1x8x8xf32, affine_map<(a, b, c, d) -> (c mod 2, d)>>) outs(%out_q : memref<2x4x8x16xf32>)
  return
}

// -----

func.func @f(%q: memref<2x4x8x16xf32>, %x: memref<2xi32, strided<[2]>>, %out_q: memref<2x4x8x16xf32>) {
  // expected-error@+1 {{expected unit stride in the last dimension of 'kv_len' but got 'memref<2xi32, strided<[2]>>'}}
  flashattn.attention ins(%q, %q, %q : memref<2x4x8x16xf32>, memref<2x4x8x16xf32>, memref<2x4x8x16xf32>)
      kv_len(%x : memref<2xi32, strided<[2]>>) outs(%out_q : memref<2x4x8x16xf32>)
  return
}

// -----

func.func @f(%q: memref<2x4x8x16xf32>, %x: memref<4xf32, strided<[2]>>, %out_q: memref<2x4x8x16xf32>) {
  // expected-error@+1 {{expected unit stride in the last dimension of 'sink_logits' but got 'memref<4xf32, strided<[2]>>'}}
  flashattn.attention ins(%q, %q, %q : memref<2x4x8x16xf32>, memref<2x4x8x16xf32>, memref<2x4x8x16xf32>)
      sink_logits(%x : memref<4xf32, strided<[2]>>) outs(%out_q : memref<2x4x8x16xf32>)
  return
}

// -----

func.func @f(%q: tensor<2x4x8x16xf32>) {
  // expected-error@+1 {{expected score_mod of (f32, index, index, index, index) but got ('f32', 'index')}}
  %r = flashattn.attention ins(%q, %q, %q : tensor<2x4x8x16xf32>, tensor<2x4x8x16xf32>, tensor<2x4x8x16xf32>)
      score_mod {
      ^bb0(%s: f32, %b: index):
        flashattn.yield %s : f32
      }
      outs(%q : tensor<2x4x8x16xf32>) -> tensor<2x4x8x16xf32>
  return
}

// -----

func.func @f(%q: tensor<2x4x8x16xf32>) {
  // expected-error@+1 {{expected score_mod of (f32, index, index, index, index) but got ('f16', 'index', 'index', 'index', 'index')}}
  %r = flashattn.attention ins(%q, %q, %q : tensor<2x4x8x16xf32>, tensor<2x4x8x16xf32>, tensor<2x4x8x16xf32>)
      score_mod {
      ^bb0(%s: f16, %b: index, %h: index, %p: index, %k: index):
        %x = arith.extf %s : f16 to f32
        flashattn.yield %x : f32
      }
      outs(%q : tensor<2x4x8x16xf32>) -> tensor<2x4x8x16xf32>
  return
}

// -----

func.func @f(%q: tensor<2x4x8x16xf32>, %c: i1) {
  %r = flashattn.attention ins(%q, %q, %q : tensor<2x4x8x16xf32>, tensor<2x4x8x16xf32>, tensor<2x4x8x16xf32>)
      score_mod {
      ^bb0(%s: f32, %b: index, %h: index, %p: index, %k: index):
        // expected-error@+1 {{'scf.if' op expected an op of arith or math, or a load, in score_mod but got 'scf.if'}}
        %x = scf.if %c -> f32 {
          scf.yield %s : f32
        } else {
          scf.yield %s : f32
        }
        flashattn.yield %x : f32
      }
      outs(%q : tensor<2x4x8x16xf32>) -> tensor<2x4x8x16xf32>
  return
}

// -----

func.func @f(%q: tensor<2x4x8x16xf32>, %v: vector<4xf32>) {
  %r = flashattn.attention ins(%q, %q, %q : tensor<2x4x8x16xf32>, tensor<2x4x8x16xf32>, tensor<2x4x8x16xf32>)
      score_mod {
      ^bb0(%s: f32, %b: index, %h: index, %p: index, %k: index):
        // expected-error@+1 {{'arith.addf' op expected scalars of i1, i8, i16, i32, i64, index, f16, bf16, f32 or f64 in score_mod but got 'vector<4xf32>'}}
        %x = arith.addf %v, %v : vector<4xf32>
        flashattn.yield %s : f32
      }
      outs(%q : tensor<2x4x8x16xf32>) -> tensor<2x4x8x16xf32>
  return
}

// -----

func.func @f(%q: tensor<2x4x8x16xf32>) {
  %r = flashattn.attention ins(%q, %q, %q : tensor<2x4x8x16xf32>, tensor<2x4x8x16xf32>, tensor<2x4x8x16xf32>)
      score_mod {
      ^bb0(%s: f32, %b: index, %h: index, %p: index, %k: index):
        %x = arith.extf %s : f32 to f64
        // expected-error@+1 {{operand #0 must be 32-bit float, but got 'f64'}}
        flashattn.yield %x : f64
      }
      outs(%q : tensor<2x4x8x16xf32>) -> tensor<2x4x8x16xf32>
  return
}

// -----

func.func @f(%q: tensor<2x4x8x16xf32>) {
  %r = flashattn.attention ins(%q, %q, %q : tensor<2x4x8x16xf32>, tensor<2x4x8x16xf32>, tensor<2x4x8x16xf32>)
      score_mod {
      ^bb0(%s: f32, %b: index, %h: index, %p: index, %k: index):
        // expected-error@+1 {{expected 'flashattn.yield' at the end of score_mod but got 'llvm.unreachable'}}
        llvm.unreachable
      }
      outs(%q : tensor<2x4x8x16xf32>) -> tensor<2x4x8x16xf32>
  return
}

// -----

func.func @f(%x: f32) {
  // expected-error@+1 {{'flashattn.yield' op expects parent op to be one of 'flashattn.attention, flashattn.attention_backward'}}
  flashattn.yield %x : f32
}

// -----

func.func @f(%q: tensor<2x4x8x16xf32>) {
  // expected-error@+1 {{expected at most 1 score_mod but got 2}}
  %r = "flashattn.attention"(%q, %q, %q, %q) <{operandSegmentSizes = array<i32: 1, 1, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 0>}> ({
      ^bb0(%s: f32, %b: index, %h: index, %p: index, %k: index):
        flashattn.yield %s : f32
      }, {
      ^bb0(%s: f32, %b: index, %h: index, %p: index, %k: index):
        flashattn.yield %s : f32
      }) : (tensor<2x4x8x16xf32>, tensor<2x4x8x16xf32>, tensor<2x4x8x16xf32>, tensor<2x4x8x16xf32>) -> tensor<2x4x8x16xf32>
  return
}

// -----

func.func @f(%q: memref<2x4x8x16xf32, 3>, %o: memref<2x4x8x16xf32>) {
  // expected-error@+1 {{expected the default memory space of 'q' but got 'memref<2x4x8x16xf32, 3>'}}
  flashattn.attention ins(%q, %q, %q : memref<2x4x8x16xf32, 3>, memref<2x4x8x16xf32, 3>, memref<2x4x8x16xf32, 3>)
      outs(%o : memref<2x4x8x16xf32>)
  return
}

// -----

func.func @f(%q: memref<2x4x8x16xf32>, %x: memref<1x1x8x8xf32, 1>, %out_q: memref<2x4x8x16xf32>) {
  // expected-error@+1 {{expected the default memory space of 'bias' but got 'memref<1x1x8x8xf32, 1>'}}
  flashattn.attention ins(%q, %q, %q : memref<2x4x8x16xf32>, memref<2x4x8x16xf32>, memref<2x4x8x16xf32>)
      bias(%x : memref<1x1x8x8xf32, 1>) outs(%out_q : memref<2x4x8x16xf32>)
  return
}

// -----

func.func @f(%q: memref<2x4x8x16xf32>, %x: memref<1x1x8x8xi1, 1>, %out_q: memref<2x4x8x16xf32>) {
  // expected-error@+1 {{expected the default memory space of 'attn_mask' but got 'memref<1x1x8x8xi1, 1>'}}
  flashattn.attention ins(%q, %q, %q : memref<2x4x8x16xf32>, memref<2x4x8x16xf32>, memref<2x4x8x16xf32>)
      attn_mask(%x : memref<1x1x8x8xi1, 1>) outs(%out_q : memref<2x4x8x16xf32>)
  return
}

// -----

func.func @f(%q: memref<2x4x8x16xf32>, %x: memref<4xf32, #gpu.address_space<workgroup>>, %out_q: memref<2x4x8x16xf32>) {
  // expected-error@+1 {{expected the default memory space of 'sink_logits' but got 'memref<4xf32, #gpu.address_space<workgroup>>'}}
  flashattn.attention ins(%q, %q, %q : memref<2x4x8x16xf32>, memref<2x4x8x16xf32>, memref<2x4x8x16xf32>)
      sink_logits(%x : memref<4xf32, #gpu.address_space<workgroup>>) outs(%out_q : memref<2x4x8x16xf32>)
  return
}

// -----

func.func @f(%q: memref<2x4x8x16xf32>, %x: memref<2xi32, 4>, %out_q: memref<2x4x8x16xf32>) {
  // expected-error@+1 {{expected the default memory space of 'kv_len' but got 'memref<2xi32, 4>'}}
  flashattn.attention ins(%q, %q, %q : memref<2x4x8x16xf32>, memref<2x4x8x16xf32>, memref<2x4x8x16xf32>)
      kv_len(%x : memref<2xi32, 4>) outs(%out_q : memref<2x4x8x16xf32>)
  return
}

// -----

func.func @f(%q: tensor<2x4x8x16xf32>) {
  %r = flashattn.attention ins(%q, %q, %q : tensor<2x4x8x16xf32>, tensor<2x4x8x16xf32>, tensor<2x4x8x16xf32>)
      score_mod {
      ^bb0(%s: f32, %b: index, %h: index, %p: index, %k: index):
        // expected-error@+1 {{'arith.index_cast' op expected scalars of i1, i8, i16, i32, i64, index, f16, bf16, f32 or f64 in score_mod but got 'i7'}}
        %x = arith.index_cast %p : index to i7
        flashattn.yield %s : f32
      }
      outs(%q : tensor<2x4x8x16xf32>) -> tensor<2x4x8x16xf32>
  return
}

// -----

func.func @f(%q: tensor<2x4x8x16xf32>) {
  %r = flashattn.attention ins(%q, %q, %q : tensor<2x4x8x16xf32>, tensor<2x4x8x16xf32>, tensor<2x4x8x16xf32>)
      score_mod {
      ^bb0(%s: f32, %b: index, %h: index, %p: index, %k: index):
        // expected-error@+1 {{'arith.index_cast' op expected scalars of i1, i8, i16, i32, i64, index, f16, bf16, f32 or f64 in score_mod but got 'i128'}}
        %x = arith.index_cast %p : index to i128
        flashattn.yield %s : f32
      }
      outs(%q : tensor<2x4x8x16xf32>) -> tensor<2x4x8x16xf32>
  return
}

// -----

func.func @f(%q: tensor<2x4x8x16xf32>) {
  %r = flashattn.attention ins(%q, %q, %q : tensor<2x4x8x16xf32>, tensor<2x4x8x16xf32>, tensor<2x4x8x16xf32>)
      score_mod {
      ^bb0(%s: f32, %b: index, %h: index, %p: index, %k: index):
        // expected-error@+1 {{'arith.truncf' op expected scalars of i1, i8, i16, i32, i64, index, f16, bf16, f32 or f64 in score_mod but got 'f8E4M3FN'}}
        %x = arith.truncf %s : f32 to f8E4M3FN
        flashattn.yield %s : f32
      }
      outs(%q : tensor<2x4x8x16xf32>) -> tensor<2x4x8x16xf32>
  return
}

// -----

func.func @f(%q: tensor<2x4x8x16xf32>) {
  %r = flashattn.attention ins(%q, %q, %q : tensor<2x4x8x16xf32>, tensor<2x4x8x16xf32>, tensor<2x4x8x16xf32>)
      score_mod {
      ^bb0(%s: f32, %b: index, %h: index, %p: index, %k: index):
        // expected-error@+1 {{'arith.extf' op expected scalars of i1, i8, i16, i32, i64, index, f16, bf16, f32 or f64 in score_mod but got 'f80'}}
        %x = arith.extf %s : f32 to f80
        flashattn.yield %s : f32
      }
      outs(%q : tensor<2x4x8x16xf32>) -> tensor<2x4x8x16xf32>
  return
}

// -----

func.func @f(%q: tensor<2x4x8x16xf32>) {
  %r = flashattn.attention ins(%q, %q, %q : tensor<2x4x8x16xf32>, tensor<2x4x8x16xf32>, tensor<2x4x8x16xf32>)
      score_mod {
      ^bb0(%s: f32, %b: index, %h: index, %p: index, %k: index):
        // expected-error@+1 {{'vector.print' op expected an op of arith or math, or a load, in score_mod but got 'vector.print'}}
        vector.print %s : f32
        flashattn.yield %s : f32
      }
      outs(%q : tensor<2x4x8x16xf32>) -> tensor<2x4x8x16xf32>
  return
}

// -----

func.func @f(%q: tensor<2x4x8x16xf32>) {
  %r = flashattn.attention ins(%q, %q, %q : tensor<2x4x8x16xf32>, tensor<2x4x8x16xf32>, tensor<2x4x8x16xf32>)
      score_mod {
      ^bb0(%s: f32, %b: index, %h: index, %p: index, %k: index):
        // expected-error@+1 {{'func.return' op expects parent op 'func.func'}}
        func.return
      }
      outs(%q : tensor<2x4x8x16xf32>) -> tensor<2x4x8x16xf32>
  return
}

// -----

func.func @f(%q: tensor<2x4x8x16xf32>) {
  // expected-error@+1 {{region #0 ('scoreMods') failed to verify constraint: region with 1 blocks}}
  %r = flashattn.attention ins(%q, %q, %q : tensor<2x4x8x16xf32>, tensor<2x4x8x16xf32>, tensor<2x4x8x16xf32>)
      score_mod {
      }
      outs(%q : tensor<2x4x8x16xf32>) -> tensor<2x4x8x16xf32>
  return
}

// -----

func.func @f(%q: tensor<2x4x8x16xf32>) {
  // expected-error@+1 {{expected score_mod of (f32, index, index, index, index) but got ()}}
  %r = flashattn.attention ins(%q, %q, %q : tensor<2x4x8x16xf32>, tensor<2x4x8x16xf32>, tensor<2x4x8x16xf32>)
      score_mod {
        %x = arith.constant 1.0 : f32
        flashattn.yield %x : f32
      }
      outs(%q : tensor<2x4x8x16xf32>) -> tensor<2x4x8x16xf32>
  return
}

// -----

func.func @f(%q: tensor<2x4x8x16xf32>, %x: tensor<1x1x8x8xi32>) {
  // expected-error@+1 {{expected 'bias' with element type f16, bf16 or f32 but got 'i32'}}
  %r = flashattn.attention ins(%q, %q, %q : tensor<2x4x8x16xf32>, tensor<2x4x8x16xf32>, tensor<2x4x8x16xf32>)
      bias(%x : tensor<1x1x8x8xi32>) outs(%q : tensor<2x4x8x16xf32>) -> tensor<2x4x8x16xf32>
  return
}

// -----

func.func @f(%q: tensor<2x4x8x16xf32>, %x: tensor<2xui32>) {
  // expected-error@+1 {{expected 'kv_len' with element type i32 but got 'ui32'}}
  %r = flashattn.attention ins(%q, %q, %q : tensor<2x4x8x16xf32>, tensor<2x4x8x16xf32>, tensor<2x4x8x16xf32>)
      kv_len(%x : tensor<2xui32>) outs(%q : tensor<2x4x8x16xf32>) -> tensor<2x4x8x16xf32>
  return
}

// -----

func.func @f(%q: tensor<2x4x8x16xf32>) {
  // expected-error@+1 {{expected softcap from 1e-18 to 1e18 but got }}
  %r = flashattn.attention softcap(1.0e-30) ins(%q, %q, %q : tensor<2x4x8x16xf32>, tensor<2x4x8x16xf32>, tensor<2x4x8x16xf32>)
       outs(%q : tensor<2x4x8x16xf32>) -> tensor<2x4x8x16xf32>
  return
}

// -----

func.func @f(%q: tensor<2x4x8x16xf32>) {
  // expected-error@+1 {{expected softcap from 1e-18 to 1e18 but got }}
  %r = flashattn.attention softcap(1.0e+30) ins(%q, %q, %q : tensor<2x4x8x16xf32>, tensor<2x4x8x16xf32>, tensor<2x4x8x16xf32>)
       outs(%q : tensor<2x4x8x16xf32>) -> tensor<2x4x8x16xf32>
  return
}

// -----

func.func @f(%q: tensor<2x4x8x16xf32>) {
  // expected-error@+1 {{expected scale from 1e-18 to 1e18 but got }}
  %r = flashattn.attention scale(1.0e-40) ins(%q, %q, %q : tensor<2x4x8x16xf32>, tensor<2x4x8x16xf32>, tensor<2x4x8x16xf32>)
       outs(%q : tensor<2x4x8x16xf32>) -> tensor<2x4x8x16xf32>
  return
}

// -----

func.func @f(%q: tensor<2x4x8x16xf32>) {
  // expected-error@+1 {{expected scale from 1e-18 to 1e18 but got }}
  %r = flashattn.attention scale(3.0e+38) ins(%q, %q, %q : tensor<2x4x8x16xf32>, tensor<2x4x8x16xf32>, tensor<2x4x8x16xf32>)
       outs(%q : tensor<2x4x8x16xf32>) -> tensor<2x4x8x16xf32>
  return
}
