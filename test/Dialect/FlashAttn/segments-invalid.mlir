// RUN: flash-opt %s -split-input-file -verify-diagnostics -o /dev/null

// Generic text says how many values each operand has. Before anything reads an operand, one that must be there is.

func.func @f(%q: memref<1x2x8x16xf32>, %n: memref<1xi32>) {
  // expected-error@+1 {{expected 1 operand 'v' in 'operandSegmentSizes' but got 0}}
  "flashattn.attention"(%q, %q, %q, %q) <{operandSegmentSizes = array<i32: 1, 1, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 0>}>
    : (memref<1x2x8x16xf32>, memref<1x2x8x16xf32>, memref<1x2x8x16xf32>, memref<1x2x8x16xf32>) -> ()
  return
}

// -----

// The last required operand, behind which none is.
func.func @f(%q: memref<1x2x8x16xf32>) {
  // expected-error@+1 {{expected 1 operand 'oInit' in 'operandSegmentSizes' but got 0}}
  "flashattn.attention"(%q, %q, %q, %q) <{operandSegmentSizes = array<i32: 1, 1, 1, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0>}>
    : (memref<1x2x8x16xf32>, memref<1x2x8x16xf32>, memref<1x2x8x16xf32>, memref<1x2x8x16xf32>) -> ()
  return
}

// -----

func.func @f(%q: memref<1x2x8x16xf32>) {
  // expected-error@+1 {{expected 1 operand 'q' in 'operandSegmentSizes' but got 2}}
  "flashattn.attention"(%q, %q, %q, %q, %q) <{operandSegmentSizes = array<i32: 2, 1, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 0>}>
    : (memref<1x2x8x16xf32>, memref<1x2x8x16xf32>, memref<1x2x8x16xf32>, memref<1x2x8x16xf32>, memref<1x2x8x16xf32>) -> ()
  return
}

// -----

// In 32 bits they add up to 4.
func.func @f(%q: memref<1x2x8x16xf32>) {
  // expected-error@+1 {{operand count (4) does not match with the total size (4294967300)}}
  "flashattn.attention"(%q, %q, %q, %q) <{operandSegmentSizes = array<i32: 1, 1, 1, 2147483647, 2147483647, 2, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 0>}>
    : (memref<1x2x8x16xf32>, memref<1x2x8x16xf32>, memref<1x2x8x16xf32>, memref<1x2x8x16xf32>) -> ()
  return
}

// -----

func.func @f(%q: memref<1x2x8x16xf32>) {
  // expected-error@+1 {{attribute cannot have negative elements}}
  "flashattn.attention"(%q, %q, %q, %q) <{operandSegmentSizes = array<i32: 1, 1, 1, -1, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 0>}>
    : (memref<1x2x8x16xf32>, memref<1x2x8x16xf32>, memref<1x2x8x16xf32>, memref<1x2x8x16xf32>) -> ()
  return
}

// -----

func.func @f(%q: memref<1x2x8x16xf32>) {
  // expected-error@+1 {{operand count (4) does not match with the total size (0) specified in attribute 'operandSegmentSizes'}}
  "flashattn.attention"(%q, %q, %q, %q)
    : (memref<1x2x8x16xf32>, memref<1x2x8x16xf32>, memref<1x2x8x16xf32>, memref<1x2x8x16xf32>) -> ()
  return
}

// -----

// Of an optional operand there is one at most.
func.func @f(%q: memref<1x2x8x16xf32>, %b: memref<1x2x8x8xf32>) {
  // expected-error@+1 {{operand group starting at #3 requires 0 or 1 element, but found 2}}
  "flashattn.attention"(%q, %q, %q, %b, %b, %q) <{operandSegmentSizes = array<i32: 1, 1, 1, 2, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 0>}>
    : (memref<1x2x8x16xf32>, memref<1x2x8x16xf32>, memref<1x2x8x16xf32>, memref<1x2x8x8xf32>, memref<1x2x8x8xf32>, memref<1x2x8x16xf32>) -> ()
  return
}

// -----

func.func @f(%q: memref<1x2x8x16xf32>, %lse: memref<1x2x8xf32>) {
  // expected-error@+1 {{expected 1 operand 'dkInit' in 'operandSegmentSizes' but got 0}}
  "flashattn.attention_backward"(%q, %q, %q, %q, %lse, %q, %q, %q, %lse) <{
    operandSegmentSizes = array<i32: 1, 1, 1, 1, 1, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 0, 1, 1, 0>
  }> : (memref<1x2x8x16xf32>, memref<1x2x8x16xf32>, memref<1x2x8x16xf32>, memref<1x2x8x16xf32>, memref<1x2x8xf32>, memref<1x2x8x16xf32>,
        memref<1x2x8x16xf32>, memref<1x2x8x16xf32>, memref<1x2x8xf32>) -> ()
  return
}

// -----

func.func @f(%op: memref<3x2x8x1x64xf32>, %lp: memref<3x2x8x1xf32>, %o: memref<2x8x1x64xf16>) {
  // expected-error@+1 {{expected 1 operand 'lseParts' in 'operandSegmentSizes' but got 2}}
  "flashattn.combine"(%op, %lp, %lp, %o) <{operandSegmentSizes = array<i32: 1, 2, 0, 0, 0, 1, 0>}>
    : (memref<3x2x8x1x64xf32>, memref<3x2x8x1xf32>, memref<3x2x8x1xf32>, memref<2x8x1x64xf16>) -> ()
  return
}

// -----

func.func @f(%m: memref<4x64xf32>, %i: index) {
  // expected-error@+1 {{expected 1 operand 'source' in 'operandSegmentSizes' but got 0}}
  %t = "flashattn.load_tile"(%i, %i) <{dims = array<i64: 0, 1>, inBounds = array<i1: true, true>, operandSegmentSizes = array<i32: 0, 2, 0, 0>}>
    : (index, index) -> vector<16x64xf32>
  return
}

// -----

func.func @f(%t: vector<16x64xf32>, %m: memref<64x64xf32>, %i: index) {
  // expected-error@+1 {{expected 1 operand 'target' in 'operandSegmentSizes' but got 2}}
  "flashattn.add_tile"(%t, %m, %m, %i, %i) <{parts = 1 : i64, operandSegmentSizes = array<i32: 1, 2, 2, 0, 0>}>
    : (vector<16x64xf32>, memref<64x64xf32>, memref<64x64xf32>, index, index) -> ()
  return
}

// -----

func.func @f(%i: index) {
  // expected-error@+1 {{operand count (4) does not match with the total size (4294967300)}}
  "flashattn.tile_loop"(%i, %i, %i, %i) <{operandSegmentSizes = array<i32: 2147483647, 0, 0, 2147483647, 0, 6>}> ({
  ^bb0(%a: index, %b: index):
    "flashattn.tile_yield"() : () -> ()
  }) : (index, index, index, index) -> ()
  return
}

// -----

func.func @f(%s: vector<64x64xf32>, %old: vector<64xf32>) {
  // expected-error@+1 {{expected 1 operand 'factor' in 'operandSegmentSizes' but got 0}}
  %0:3 = "flashattn.softmax_step"(%s, %old, %old) <{threads_per_row = 4 : i64, operandSegmentSizes = array<i32: 1, 1, 0, 1, 0>}> ({
  }) : (vector<64x64xf32>, vector<64xf32>, vector<64xf32>) -> (vector<64x64xf32>, vector<64x4xf32>, vector<64xf32>)
  return
}
