// What is wrong with the operands of scores and with score modifications, before anything runs.

// DEFINE: %{run} = flash-run %s --device=cpu

// RUN: not %{run} --function=operands --input=1x4x8x16xf16 --input=1x2x9x16xf16 --input=1x2x9x16xf16 --input=1x4x8x8xf16 2>&1 | FileCheck %s --check-prefix=BIAS
// BIAS: error: the inputs do not fit together: expected key length of 'bias' to be 9 as in 'k' but got 8
// RUN: not %{run} --function=operands --input=2x4x8x16xf16 --input=2x2x9x16xf16 --input=2x2x9x16xf16 --input=1x4x8x9xf16 --input=1x1x1x9xi1 2>&1 | FileCheck %s --check-prefix=ATTN_MASK
// ATTN_MASK: expected batch size of 'attn_mask' to be 2 as in 'q' but got 1
// RUN: not %{run} --function=operands --input=2x4x8x16xf16 --input=2x2x9x16xf16 --input=2x2x9x16xf16 --input=1x4x8x9xf16 --input=2x1x1x9xi1 --input=2xf32 2>&1 | FileCheck %s --check-prefix=SINKS
// SINKS: expected head count of 'sink_logits' to be 4 as in 'q' but got 2
// RUN: not %{run} --function=operands --input=2x4x8x16xf16 --input=2x2x9x16xf16 --input=2x2x9x16xf16 --input=1x4x8x9xf16 --input=2x1x1x9xi1 --input=4xf32 --input=1xi32 2>&1 | FileCheck %s --check-prefix=LENGTHS
// LENGTHS: expected batch size of 'kv_len' to be 2 as in 'q' but got 1
func.func @operands(%q: memref<?x?x?x16xf16>, %k: memref<?x?x?x16xf16>, %v: memref<?x?x?x16xf16>,
                    %bias: memref<1x?x?x?xf16>, %attn_mask: memref<?x1x1x?xi1>, %sinks: memref<?xf32>,
                    %len: memref<?xi32>, %o: memref<?x?x?x16xf16>) {
  flashattn.attention
      ins(%q, %k, %v : memref<?x?x?x16xf16>, memref<?x?x?x16xf16>, memref<?x?x?x16xf16>)
      bias(%bias : memref<1x?x?x?xf16>) attn_mask(%attn_mask : memref<?x1x1x?xi1>)
      sink_logits(%sinks : memref<?xf32>) kv_len(%len : memref<?xi32>)
      outs(%o : memref<?x?x?x16xf16>)
  return
}

// The reference takes every operand as it is when the op runs: memory that nobody has written holds
// -1, no key.
// RUN: %{run} --function=computed --verify | FileCheck %s --check-prefix=COMPUTED
// COMPUTED: output 0: 1x1x8x16xf16, min 0.0000, max 0.0000
// COMPUTED: verify o: {{.*}}: PASS
func.func @computed(%q: memref<1x1x8x16xf16>, %o: memref<1x1x8x16xf16>) {
  %len = memref.alloc() : memref<1xi32>
  flashattn.attention
      ins(%q, %q, %q : memref<1x1x8x16xf16>, memref<1x1x8x16xf16>, memref<1x1x8x16xf16>)
      kv_len(%len : memref<1xi32>) outs(%o : memref<1x1x8x16xf16>)
  return
}

// RUN: %{run} --function=outside --verify --input=1x1x8x16xf16 --input=f32=2.0 | FileCheck %s --check-prefix=OUTSIDE
// OUTSIDE: verify o: {{.*}}: PASS
// RUN: %{run} --function=outside --input=1x1x8x16xf16 --input=f32=2.0 | FileCheck %s --check-prefix=RUNS
// RUNS: output 0: 1x1x8x16xf16
func.func @outside(%q: memref<1x1x8x16xf16>, %x: f32, %o: memref<1x1x8x16xf16>) {
  flashattn.attention
      ins(%q, %q, %q : memref<1x1x8x16xf16>, memref<1x1x8x16xf16>, memref<1x1x8x16xf16>)
      score_mod {
      ^bb0(%s: f32, %b: index, %h: index, %p: index, %key: index):
        %y = arith.mulf %s, %x : f32
        flashattn.yield %y : f32
      }
      outs(%o : memref<1x1x8x16xf16>)
  return
}

// An op that neither the reference nor the target knows is named, at its place.
// RUN: not %{run} --function=unknown --verify 2>&1 | FileCheck %s --check-prefix=UNKNOWN
// UNKNOWN: error: --verify: flashattn.attention at {{.*}}features.mlir:[[@LINE+4]]:3 cannot be compared with the reference: the reference does not know 'math.ipowi' in score_mod; --expected-output compares the function's outputs with files instead
// RUN: not %{run} --function=unknown 2>&1 | FileCheck %s --check-prefix=ILLEGAL
// ILLEGAL: features.mlir:[[@LINE+8]]:14: error: failed to legalize operation 'math.ipowi'
func.func @unknown(%q: memref<1x1x8x16xf16>, %o: memref<1x1x8x16xf16>) {
  flashattn.attention
      ins(%q, %q, %q : memref<1x1x8x16xf16>, memref<1x1x8x16xf16>, memref<1x1x8x16xf16>)
      score_mod {
      ^bb0(%s: f32, %b: index, %h: index, %p: index, %key: index):
        %i = arith.index_cast %key : index to i32
        // At this op.
        %j = math.ipowi %i, %i : i32
        %y = arith.sitofp %j : i32 to f32
        flashattn.yield %y : f32
      }
      outs(%o : memref<1x1x8x16xf16>)
  return
}

// Positions have 32 bits.
// RUN: not %{run} --function=offset --input=1x1x8x16xf16 --input=index=2147483648 2>&1 | FileCheck %s --check-prefix=OFFSET
// OFFSET: error: the inputs do not fit together: expected an offset from -2147483648 to 2147483647 but got 2147483648
// RUN: not %{run} --function=offset --input=1x1x8x16xf16 --input=index=-9223372036854775808 2>&1 | FileCheck %s --check-prefix=LEAST
// LEAST: expected an offset from -2147483648 to 2147483647 but got -9223372036854775808
// RUN: %{run} --function=offset --input=1x1x8x16xf16 --input=index=2147483647 | FileCheck %s --check-prefix=RUNS
func.func @offset(%q: memref<1x1x8x16xf16>, %offset: index, %o: memref<1x1x8x16xf16>) {
  flashattn.attention mask(#flashattn.causal)
      ins(%q, %q, %q : memref<1x1x8x16xf16>, memref<1x1x8x16xf16>, memref<1x1x8x16xf16>)
      offset(%offset) outs(%o : memref<1x1x8x16xf16>)
  return
}
