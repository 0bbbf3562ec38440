// RUN: flash-opt %s -split-input-file -flashattn-select-schedule=chip=sm_90a -flashattn-tile -verify-diagnostics -o /dev/null

// What a target cannot do, or no target can, is an error at the op before anything is made of it (rule R2).

func.func @pack(%q: memref<1x8x64x64xf16>, %k: memref<1x2x64x64xf16>, %lse: memref<1x8x64xf32>, %dq: memref<1x8x64x64xf16>,
                %dk: memref<1x2x64x64xf16>, %dv: memref<1x2x64x64xf16>) {
  // expected-error@+1 {{cannot be compiled for sm_90a with the schedule given: expected pack 1 in a backward pass without compact_kv but got 4}}
  flashattn.attention_backward
      schedule(<tile_m = 64, tile_n = 64, stages = 2, dot_type = f16, pack = 4, algorithm = separate_dq, mapping = mma_sync<warps = 4>>)
      ins(%q, %k, %k, %q, %lse, %q : memref<1x8x64x64xf16>, memref<1x2x64x64xf16>, memref<1x2x64x64xf16>,
          memref<1x8x64x64xf16>, memref<1x8x64xf32>, memref<1x8x64x64xf16>)
      outs(%dq, %dk, %dv : memref<1x8x64x64xf16>, memref<1x2x64x64xf16>, memref<1x2x64x64xf16>)
  return
}

// -----

func.func @splits(%q: memref<1x8x64x64xf16>, %lse: memref<1x8x64xf32>, %dq: memref<1x8x64x64xf16>,
                  %dk: memref<1x8x64x64xf16>, %dv: memref<1x8x64x64xf16>) {
  // expected-error@+1 {{cannot be compiled for sm_90a with the schedule given: expected splits 1 in a backward pass but got 2}}
  flashattn.attention_backward
      schedule(<tile_m = 64, tile_n = 64, stages = 2, dot_type = f16, splits = 2, algorithm = separate_dq, mapping = mma_sync<warps = 4>>)
      ins(%q, %q, %q, %q, %lse, %q : memref<1x8x64x64xf16>, memref<1x8x64x64xf16>, memref<1x8x64x64xf16>,
          memref<1x8x64x64xf16>, memref<1x8x64xf32>, memref<1x8x64x64xf16>)
      outs(%dq, %dk, %dv : memref<1x8x64x64xf16>, memref<1x8x64x64xf16>, memref<1x8x64x64xf16>)
  return
}

// -----

func.func @head_dimension(%q: memref<1x8x64x20xf16>, %lse: memref<1x8x64xf32>, %dq: memref<1x8x64x20xf16>,
                          %dk: memref<1x8x64x20xf16>, %dv: memref<1x8x64x20xf16>) {
  // expected-error@+1 {{op cannot be compiled for sm_90a: expected D to be a multiple of 8 up to 256 but got 20}}
  flashattn.attention_backward
      ins(%q, %q, %q, %q, %lse, %q : memref<1x8x64x20xf16>, memref<1x8x64x20xf16>, memref<1x8x64x20xf16>,
          memref<1x8x64x20xf16>, memref<1x8x64xf32>, memref<1x8x64x20xf16>)
      outs(%dq, %dk, %dv : memref<1x8x64x20xf16>, memref<1x8x64x20xf16>, memref<1x8x64x20xf16>)
  return
}

// -----

func.func @dot_type(%q: memref<1x8x64x64xf16>, %lse: memref<1x8x64xf32>, %dq: memref<1x8x64x64xf16>,
                    %dk: memref<1x8x64x64xf16>, %dv: memref<1x8x64x64xf16>) {
  // expected-error@+1 {{cannot be compiled for sm_90a with the schedule given: expected}}
  flashattn.attention_backward
      schedule(<tile_m = 64, tile_n = 64, stages = 2, dot_type = bf16, algorithm = separate_dq, mapping = mma_sync<warps = 4>>)
      ins(%q, %q, %q, %q, %lse, %q : memref<1x8x64x64xf16>, memref<1x8x64x64xf16>, memref<1x8x64x64xf16>,
          memref<1x8x64x64xf16>, memref<1x8x64xf32>, memref<1x8x64x64xf16>)
      outs(%dq, %dk, %dv : memref<1x8x64x64xf16>, memref<1x8x64x64xf16>, memref<1x8x64x64xf16>)
  return
}

// -----

// What a step of a program that consumers share adds to dq is a product whose rows are its queries.

func.func @added_rows(%q: memref<1x8x64x64xf16>, %lse: memref<1x8x64xf32>, %dq: memref<1x8x64x64xf16>,
                      %dk: memref<1x8x64x64xf16>, %dv: memref<1x8x64x64xf16>) {
  // expected-error@+1 {{expected tile_n to be a multiple of 64 that divides tile_m, or at least tile_m, but got tile_n 48 and tile_m 128}}
  flashattn.attention_backward
      schedule(<tile_m = 128, tile_n = 48, stages = 2, dot_type = f16, algorithm = accumulate_dq, mapping = hopper<consumers = 2, cooperative = 1, along = query_tile,
          registers = 240, producer_registers = 24, rescale_threshold = 0, l2_head_group = 1>>)
      ins(%q, %q, %q, %q, %lse, %q : memref<1x8x64x64xf16>, memref<1x8x64x64xf16>, memref<1x8x64x64xf16>,
          memref<1x8x64x64xf16>, memref<1x8x64xf32>, memref<1x8x64x64xf16>)
      outs(%dq, %dk, %dv : memref<1x8x64x64xf16>, memref<1x8x64x64xf16>, memref<1x8x64x64xf16>)
  return
}

// -----

func.func @added_columns(%q: memref<1x8x64x64xf16>, %lse: memref<1x8x64xf32>, %dq: memref<1x8x64x64xf16>,
                         %dk: memref<1x8x64x64xf16>, %dv: memref<1x8x64x64xf16>) {
  // expected-error@+1 {{expected D to be a multiple of 128 for tile_m 128 and tile_n 64 but got 64}}
  flashattn.attention_backward
      schedule(<tile_m = 128, tile_n = 64, stages = 2, dot_type = f16, algorithm = accumulate_dq, mapping = hopper<consumers = 2, cooperative = 1, along = query_tile,
          registers = 240, producer_registers = 24, rescale_threshold = 0, l2_head_group = 1>>)
      ins(%q, %q, %q, %q, %lse, %q : memref<1x8x64x64xf16>, memref<1x8x64x64xf16>, memref<1x8x64x64xf16>,
          memref<1x8x64x64xf16>, memref<1x8x64xf32>, memref<1x8x64x64xf16>)
      outs(%dq, %dk, %dv : memref<1x8x64x64xf16>, memref<1x8x64x64xf16>, memref<1x8x64x64xf16>)
  return
}

// -----

func.func @more_queries(%q: memref<1x8x64x64xf16>, %lse: memref<1x8x64xf32>, %dq: memref<1x8x64x64xf16>,
                        %dk: memref<1x8x64x64xf16>, %dv: memref<1x8x64x64xf16>) {
  // expected-error@+1 {{expected tile_n up to tile_m, 128, with algorithm accumulate_dq but got 192}}
  flashattn.attention_backward
      schedule(<tile_m = 128, tile_n = 192, stages = 2, dot_type = f16, algorithm = accumulate_dq, mapping = hopper<consumers = 2, cooperative = 1, along = query_tile,
          registers = 240, producer_registers = 24, rescale_threshold = 0, l2_head_group = 1>>)
      ins(%q, %q, %q, %q, %lse, %q : memref<1x8x64x64xf16>, memref<1x8x64x64xf16>, memref<1x8x64x64xf16>,
          memref<1x8x64x64xf16>, memref<1x8x64xf32>, memref<1x8x64x64xf16>)
      outs(%dq, %dk, %dv : memref<1x8x64x64xf16>, memref<1x8x64x64xf16>, memref<1x8x64x64xf16>)
  return
}

// -----

// B6: an op without a derivative between the score and the result. What does not depend on the score needs none.

func.func @derivative(%q: memref<1x8x64x64xf16>, %lse: memref<1x8x64xf32>, %dq: memref<1x8x64x64xf16>,
                      %dk: memref<1x8x64x64xf16>, %dv: memref<1x8x64x64xf16>, %x: f32) {
  flashattn.attention_backward
      ins(%q, %q, %q, %q, %lse, %q : memref<1x8x64x64xf16>, memref<1x8x64x64xf16>, memref<1x8x64x64xf16>,
          memref<1x8x64x64xf16>, memref<1x8x64xf32>, memref<1x8x64x64xf16>)
      score_mod {
      ^bb0(%s: f32, %b: index, %h: index, %i: index, %j: index):
        %u = arith.remf %x, %x : f32
        %t = arith.mulf %s, %u : f32
        // expected-error@+1 {{'arith.remf' op expected an op with a derivative between the score and the result of score_mod but got 'arith.remf'}}
        %y = arith.remf %t, %x : f32
        flashattn.yield %y : f32
      }
      outs(%dq, %dk, %dv : memref<1x8x64x64xf16>, memref<1x8x64x64xf16>, memref<1x8x64x64xf16>)
  return
}

// -----

// The bits of the score may become a number again.

func.func @bits(%q: memref<1x8x64x64xf16>, %lse: memref<1x8x64xf32>, %dq: memref<1x8x64x64xf16>,
                %dk: memref<1x8x64x64xf16>, %dv: memref<1x8x64x64xf16>, %x: i32) {
  flashattn.attention_backward
      ins(%q, %q, %q, %q, %lse, %q : memref<1x8x64x64xf16>, memref<1x8x64x64xf16>, memref<1x8x64x64xf16>,
          memref<1x8x64x64xf16>, memref<1x8x64xf32>, memref<1x8x64x64xf16>)
      score_mod {
      ^bb0(%s: f32, %b: index, %h: index, %i: index, %j: index):
        // expected-error@+1 {{'arith.bitcast' op expected an op with a derivative between the score and the result of score_mod but got 'arith.bitcast'}}
        %bits = arith.bitcast %s : f32 to i32
        %more = arith.addi %bits, %x : i32
        %y = arith.bitcast %more : i32 to f32
        flashattn.yield %y : f32
      }
      outs(%dq, %dk, %dv : memref<1x8x64x64xf16>, memref<1x8x64x64xf16>, memref<1x8x64x64xf16>)
  return
}

// -----

func.func @elementwise(%q: memref<1x8x64x64xf16>, %lse: memref<1x8x64xf32>, %dq: memref<1x8x64x64xf16>,
                       %dk: memref<1x8x64x64xf16>, %dv: memref<1x8x64x64xf16>) {
  flashattn.attention_backward
      ins(%q, %q, %q, %q, %lse, %q : memref<1x8x64x64xf16>, memref<1x8x64x64xf16>, memref<1x8x64x64xf16>,
          memref<1x8x64x64xf16>, memref<1x8x64xf32>, memref<1x8x64x64xf16>)
      score_mod {
      ^bb0(%s: f32, %b: index, %h: index, %i: index, %j: index):
        // expected-error@+1 {{'math.sincos' op expected an elementwise op with one result in score_mod but got 'math.sincos'}}
        %x, %y = math.sincos %s : f32
        flashattn.yield %y : f32
      }
      outs(%dq, %dk, %dv : memref<1x8x64x64xf16>, memref<1x8x64x64xf16>, memref<1x8x64x64xf16>)
  return
}

// -----

func.func @tensors(%q: tensor<1x8x64x64xf16>, %lse: tensor<1x8x64xf32>) -> tensor<1x8x64x64xf16> {
  // expected-error@+1 {{'flashattn.attention_backward' op expected memrefs; bufferize before tiling}}
  %r:3 = flashattn.attention_backward
      ins(%q, %q, %q, %q, %lse, %q : tensor<1x8x64x64xf16>, tensor<1x8x64x64xf16>, tensor<1x8x64x64xf16>,
          tensor<1x8x64x64xf16>, tensor<1x8x64xf32>, tensor<1x8x64x64xf16>)
      outs(%q, %q, %q : tensor<1x8x64x64xf16>, tensor<1x8x64x64xf16>, tensor<1x8x64x64xf16>)
      -> tensor<1x8x64x64xf16>, tensor<1x8x64x64xf16>, tensor<1x8x64x64xf16>
  return %r#1 : tensor<1x8x64x64xf16>
}
