// RUN: flash-opt %s -split-input-file -verify-diagnostics -o /dev/null

// A10: what a score modification may load, and by which indices. Every refusal is at the load.

!q = tensor<2x4x8x16xf32>
!m = memref<2x4x8x16xf32>

func.func @f(%q: !q, %o: !q, %t: tensor<8xf32>) {
  %r = flashattn.attention ins(%q, %q, %q : !q, !q, !q)
      score_mod {
      ^bb0(%s: f32, %b: index, %h: index, %p: index, %k: index):
        // expected-error@+1 {{'tensor.extract' op expected indices that depend only on the batch and the head in score_mod but got one that depends on the key}}
        %x = tensor.extract %t[%k] : tensor<8xf32>
        flashattn.yield %s : f32
      }
      outs(%o : !q) -> !q
  return
}

// -----

!q = tensor<2x4x8x16xf32>
!m = memref<2x4x8x16xf32>

func.func @f(%q: !m, %o: !m, %t: memref<4x8xf32>) {
  flashattn.attention ins(%q, %q, %q : !m, !m, !m)
      score_mod {
      ^bb0(%s: f32, %b: index, %h: index, %p: index, %k: index):
        // expected-error@+1 {{'memref.load' op expected indices that depend only on the batch and the head in score_mod but got one that depends on the query position}}
        %x = memref.load %t[%h, %p] : memref<4x8xf32>
        flashattn.yield %s : f32
      }
      outs(%o : !m)
  return
}

// -----

!q = tensor<2x4x8x16xf32>
!m = memref<2x4x8x16xf32>

func.func @f(%q: !m, %o: !m, %t: memref<8xf32>) {
  flashattn.attention ins(%q, %q, %q : !m, !m, !m)
      score_mod {
      ^bb0(%s: f32, %b: index, %h: index, %p: index, %k: index):
        %d = arith.subi %k, %p : index
        %n = arith.addi %d, %h : index
        // expected-error@+1 {{'memref.load' op expected indices that depend only on the batch and the head in score_mod but got one that depends on the query position}}
        %x = memref.load %t[%n] : memref<8xf32>
        flashattn.yield %s : f32
      }
      outs(%o : !m)
  return
}

// -----

!q = tensor<2x4x8x16xf32>
!m = memref<2x4x8x16xf32>

func.func @f(%q: !q, %o: !q, %t: tensor<8xf32>) {
  %r = flashattn.attention ins(%q, %q, %q : !q, !q, !q)
      score_mod {
      ^bb0(%s: f32, %b: index, %h: index, %p: index, %k: index):
        %i = arith.fptosi %s : f32 to i32
        %n = arith.index_cast %i : i32 to index
        // expected-error@+1 {{'tensor.extract' op expected indices that depend only on the batch and the head in score_mod but got one that depends on the score}}
        %x = tensor.extract %t[%n] : tensor<8xf32>
        flashattn.yield %s : f32
      }
      outs(%o : !q) -> !q
  return
}

// -----

!q = tensor<2x4x8x16xf32>
!m = memref<2x4x8x16xf32>

func.func @f(%q: !q, %o: !q, %t: memref<4xf32>) {
  %r = flashattn.attention ins(%q, %q, %q : !q, !q, !q)
      score_mod {
      ^bb0(%s: f32, %b: index, %h: index, %p: index, %k: index):
        // expected-error@+1 {{'memref.load' op expected a load from a tensor in score_mod, like 'q', but got 'memref<4xf32>'}}
        %x = memref.load %t[%h] : memref<4xf32>
        flashattn.yield %s : f32
      }
      outs(%o : !q) -> !q
  return
}

// -----

!q = tensor<2x4x8x16xf32>
!m = memref<2x4x8x16xf32>

func.func @f(%q: !m, %o: !m, %t: tensor<4xf32>) {
  flashattn.attention ins(%q, %q, %q : !m, !m, !m)
      score_mod {
      ^bb0(%s: f32, %b: index, %h: index, %p: index, %k: index):
        // expected-error@+1 {{'tensor.extract' op expected a load from a memref in score_mod, like 'q', but got 'tensor<4xf32>'}}
        %x = tensor.extract %t[%h] : tensor<4xf32>
        flashattn.yield %s : f32
      }
      outs(%o : !m)
  return
}

// -----

!q = tensor<2x4x8x16xf32>
!m = memref<2x4x8x16xf32>

func.func @f(%q: !q, %o: !q, %t: tensor<2x4x2xf32>) {
  %r = flashattn.attention ins(%q, %q, %q : !q, !q, !q)
      score_mod {
      ^bb0(%s: f32, %b: index, %h: index, %p: index, %k: index):
        // expected-error@+1 {{'tensor.extract' op expected a load from a tensor of rank 0, 1 or 2 in score_mod but got 'tensor<2x4x2xf32>'}}
        %x = tensor.extract %t[%b, %h, %b] : tensor<2x4x2xf32>
        flashattn.yield %s : f32
      }
      outs(%o : !q) -> !q
  return
}

// -----

!q = tensor<2x4x8x16xf32>
!m = memref<2x4x8x16xf32>

func.func @f(%q: !m, %o: !m, %t: memref<4xvector<4xf32>>) {
  flashattn.attention ins(%q, %q, %q : !m, !m, !m)
      score_mod {
      ^bb0(%s: f32, %b: index, %h: index, %p: index, %k: index):
        // expected-error@+1 {{'memref.load' op expected a load of i1, i8, i16, i32, i64, index, f16, bf16, f32 or f64 in score_mod but got 'memref<4xvector<4xf32>>'}}
        %x = memref.load %t[%h] : memref<4xvector<4xf32>>
        flashattn.yield %s : f32
      }
      outs(%o : !m)
  return
}

// -----

!q = tensor<2x4x8x16xf32>
!m = memref<2x4x8x16xf32>

func.func @f(%q: !m, %o: !m, %t: memref<4xf32, 3>) {
  flashattn.attention ins(%q, %q, %q : !m, !m, !m)
      score_mod {
      ^bb0(%s: f32, %b: index, %h: index, %p: index, %k: index):
        // expected-error@+1 {{'memref.load' op expected a load from the default memory space, with a strided layout, in score_mod but got 'memref<4xf32, 3>'}}
        %x = memref.load %t[%h] : memref<4xf32, 3>
        flashattn.yield %s : f32
      }
      outs(%o : !m)
  return
}

// -----

!q = tensor<2x4x8x16xf32>
!m = memref<2x4x8x16xf32>

func.func @f(%q: !m, %o: !m, %t: memref<4xf32, affine_map<(d) -> (d mod 3)>>) {
  flashattn.attention ins(%q, %q, %q : !m, !m, !m)
      score_mod {
      ^bb0(%s: f32, %b: index, %h: index, %p: index, %k: index):
        // expected-error@+1 {{'memref.load' op expected a load from the default memory space, with a strided layout, in score_mod but got}}
        %x = memref.load %t[%h] : memref<4xf32, affine_map<(d) -> (d mod 3)>>
        flashattn.yield %s : f32
      }
      outs(%o : !m)
  return
}

// -----

func.func @f(%q: memref<1x2x8x16xf32>, %lse: memref<1x2x8xf32>, %dq: memref<1x2x8x16xf32>, %dk: memref<1x2x8x16xf32>,
             %dv: memref<1x2x8x16xf32>, %sinks: memref<2xf32>, %d_sinks: memref<2xf32>) {
  flashattn.attention_backward
      ins(%q, %q, %q, %q, %lse, %q : memref<1x2x8x16xf32>, memref<1x2x8x16xf32>, memref<1x2x8x16xf32>,
          memref<1x2x8x16xf32>, memref<1x2x8xf32>, memref<1x2x8x16xf32>)
      sink_logits(%sinks : memref<2xf32>)
      score_mod {
      ^bb0(%s: f32, %b: index, %h: index, %i: index, %j: index):
        // expected-error@+1 {{'memref.load' op expected score_mod to load from other memory than the output 'd_sink_logits' but got 'memref<2xf32>'}}
        %x = memref.load %d_sinks[%h] : memref<2xf32>
        %y = arith.addf %s, %x : f32
        flashattn.yield %y : f32
      }
      outs(%dq, %dk, %dv : memref<1x2x8x16xf32>, memref<1x2x8x16xf32>, memref<1x2x8x16xf32>)
      d_sink_logits(%d_sinks : memref<2xf32>)
  return
}
