// RUN: flash-opt %s -split-input-file -verify-diagnostics

// What a pass needs to know of a tile program stands in operands and attributes: none of it can be
// misspelt, mistyped or left out in silence.

func.func @no_sizes() {
  // expected-error @+1 {{'flashattn.dense_space' op expected at least one size}}
  %space = "flashattn.dense_space"() <{axes = []}> : () -> !flashattn.space
  return
}

// -----

func.func @axes(%n: index) {
  // expected-error @+1 {{'flashattn.dense_space' op expected an axis for each of 1 sizes but got 2}}
  %space = flashattn.dense_space(%n) axes(batch, head)
  return
}

// -----

func.func @axis_name(%n: index) {
  // expected-error @+1 {{expected batch, head, query_tile, column_tile or key_tile but got 'row_tile'}}
  %space = flashattn.dense_space(%n) axes(row_tile)
  return
}

// -----

func.func @arguments(%n: index) {
  %space = flashattn.dense_space(%n) axes(batch)
  // expected-error @+1 {{'flashattn.program' op expected an index argument for each of 1 sizes but got 'i32'}}
  "flashattn.program"(%space) ({
  ^bb0(%i: i32):
    "flashattn.tile_yield"() : () -> ()
  }) : (!flashattn.space) -> ()
  return
}

// -----

func.func @unknown_space(%space: !flashattn.space) {
  // expected-error @+1 {{'flashattn.program' op expected a space that an op with SpaceOpInterface defines but got <block argument> of type '!flashattn.space' at index: 0}}
  flashattn.program (%i) in %space {
  }
  return
}

// -----

func.func @yields(%n: index) {
  %space = flashattn.dense_space(%n) axes(batch)
  // expected-error @+1 {{'flashattn.program' op expected to yield nothing but got 'index'}}
  flashattn.program (%i) in %space {
    flashattn.tile_yield %i : index
  }
  return
}

// -----

func.func @schedule_of_another_type(%n: index) {
  %space = flashattn.dense_space(%n) axes(batch)
  // expected-error @+1 {{Invalid attribute `schedule` in property conversion: 7 : i32}}
  "flashattn.program"(%space) <{schedule = 7 : i32}> ({
  ^bb0(%i: index):
    "flashattn.tile_yield"() : () -> ()
  }) : (!flashattn.space) -> ()
  return
}

// -----

func.func @threads_without_schedule(%n: index) {
  // expected-error @+1 {{expected schedule(<...>)}}
  flashattn.on_threads %n {
  }
  return
}

// -----

func.func @indices(%k: memref<?x64xf16>, %n: index) {
  // expected-error @+1 {{'flashattn.load_tile' op expected an index for each of 2 dimensions but got 1}}
  %t = flashattn.load_tile %k[%n] dims [0, 1] in_bounds [false, true]
      : memref<?x64xf16> -> vector<32x64xf16>
  return
}

// -----

func.func @rank(%k: memref<?x64xf16>, %n: index) {
  // expected-error @+1 {{'flashattn.load_tile' op expected a tile of rank 1 (rows) or 2 (rows and columns) but got 'vector<2x32x64xf16>'}}
  %t = flashattn.load_tile %k[%n, %n] dims [0, 1] in_bounds [false, true]
      : memref<?x64xf16> -> vector<2x32x64xf16>
  return
}

// -----

func.func @element(%k: memref<?x64xf16>, %n: index) {
  // expected-error @+1 {{'flashattn.load_tile' op expected a tile of 'f16' but got 'vector<32x64xbf16>'}}
  %t = flashattn.load_tile %k[%n, %n] dims [0, 1] in_bounds [false, true]
      : memref<?x64xf16> -> vector<32x64xbf16>
  return
}

// -----

func.func @in_bounds(%k: memref<?x64xf16>, %n: index) {
  // expected-error @+1 {{'flashattn.load_tile' op expected in_bounds for each of 2 dimensions but got 1}}
  %t = flashattn.load_tile %k[%n, %n] dims [0, 1] in_bounds [false]
      : memref<?x64xf16> -> vector<32x64xf16>
  return
}

// -----

func.func @no_such_dimension(%k: memref<?x64xf16>, %n: index) {
  // expected-error @+1 {{'flashattn.load_tile' op expected a dimension from -1 to 1 but got 2}}
  %t = flashattn.load_tile %k[%n, %n] dims [0, 2] in_bounds [false, true]
      : memref<?x64xf16> -> vector<32x64xf16>
  return
}

// -----

func.func @dimension_twice(%k: memref<?x64xf16>, %n: index) {
  // expected-error @+1 {{'flashattn.load_tile' op expected each dimension once but got 1 twice}}
  %t = flashattn.load_tile %k[%n, %n] dims [1, 1] in_bounds [true, true]
      : memref<?x64xf16> -> vector<64x64xf16>
  return
}

// -----

func.func @repeated_rows(%k: memref<?x64xf16>, %n: index) {
  // expected-error @+1 {{'flashattn.load_tile' op expected in_bounds true for a dimension of -1 but got false}}
  %t = flashattn.load_tile %k[%n, %n] dims [-1, 1] in_bounds [false, true]
      : memref<?x64xf16> -> vector<32x64xf16>
  return
}

// -----

func.func @repeated_rows_end(%k: memref<?x64xf16>, %n: index) {
  %rows = flashattn.dense_rows below %n
  // expected-error @+1 {{'flashattn.load_tile' op expected no row map in a tile whose rows are all the same but got one}}
  %t = flashattn.load_tile %k[%n, %n] dims [-1, 1] rows %rows in_bounds [true, true]
      : memref<?x64xf16> -> vector<32x64xf16>
  return
}

// -----

func.func @sizes(%k: memref<?x?x64xf16>, %n: index) {
  %packed = flashattn.packed_rows [32]
  // expected-error @+1 {{'flashattn.load_tile' op expected a tile along 2 dimensions but got 3 dims}}
  %t = flashattn.load_tile %k[%n, %n, %n] dims [0, 1, 2] rows %packed in_bounds [false, false, true]
      : memref<?x?x64xf16> -> vector<32x64xf16>
  return
}

// -----

func.func @rows_without_a_number() {
  // expected-error @+1 {{'flashattn.packed_rows' op expected one or more positive sizes with a product below 2^63 but got [4, -9223372036854775808]}}
  %packed = flashattn.packed_rows [4, -9223372036854775808]
  return
}

// -----

func.func @no_sizes() {
  // expected-error @+1 {{'flashattn.packed_rows' op expected one or more positive sizes with a product below 2^63 but got []}}
  %packed = flashattn.packed_rows []
  return
}

// -----

func.func @rows_left_out(%t: vector<32x64xf16>, %o: memref<?x64xf16>, %n: index) {
  %rows = flashattn.dense_rows below %n
  // expected-error @+1 {{'flashattn.store_tile' op expected a row map without 'from', 'below', segments and pages but got 'flashattn.dense_rows' with 'below'}}
  flashattn.store_tile %t to %o[%n, %n] dims [0, 1] rows %rows in_bounds [false, true] : vector<32x64xf16>, memref<?x64xf16>
  return
}

// -----

func.func @rows_of_several(%k: memref<?x?x64xf16>, %n: index) {
  %packed = flashattn.packed_rows [4, 4]
  // expected-error @+1 {{'flashattn.load_tile' op expected a tile of 16 rows, as in the row map, but got 'vector<32x64xf16>'}}
  %t = flashattn.load_tile %k[%n, %n, %n] dims [0, 1, 2] rows %packed in_bounds [false, false, true]
      : memref<?x?x64xf16> -> vector<32x64xf16>
  return
}

// -----

func.func @stored_rows(%o: memref<?x64xf16>, %t: vector<32x64xf16>, %n: index) {
  // expected-error @+1 {{'flashattn.store_tile' op expected a dimension from 0 to 1 but got -1}}
  flashattn.store_tile %t to %o[%n, %n] dims [-1, 1] in_bounds [true, true]
      : vector<32x64xf16>, memref<?x64xf16>
  return
}

// -----

func.func @interval(%n: index) {
  // expected-error @+1 {{'flashattn.tile_loop' op expected 4 bounds for each interval but got 3}}
  "flashattn.tile_loop"(%n, %n, %n) <{operandSegmentSizes = array<i32: 3, 0, 0, 0, 0, 0>}> ({
  ^bb0(%i: index, %j: index):
    "flashattn.tile_yield"() : () -> ()
  }) : (index, index, index) -> ()
  return
}

// -----

func.func @step_numbers(%n: index) {
  // expected-error @+1 {{expected arguments for the step's position and tile but got 1 arguments}}
  flashattn.tile_loop (%i) in [(%n, %n, %n, %n)] {
  }
  return
}

// -----

func.func @state_types(%n: index, %x: f32) {
  // expected-error @+1 {{expected 1 types but got 2}}
  %r:2 = flashattn.tile_loop (%i, %j) in [(%n, %n, %n, %n)] iter_args(%a = %x) -> (f32, f32) {
    flashattn.tile_yield %a : f32
  }
  return
}

// -----

func.func @yielded_state(%n: index, %x: f32) {
  // expected-error @+1 {{'flashattn.tile_loop' op expected the types of the initial state, 'f32', for yielded values and results but got 'index' and 'f32'}}
  %r = flashattn.tile_loop (%i, %j) in [(%n, %n, %n, %n)] iter_args(%a = %x) -> (f32) {
    flashattn.tile_yield %i : index
  }
  return
}

// -----

func.func @list(%n: index, %list: memref<?x?xi64>) {
  // expected-error @+1 {{'flashattn.tile_loop' op expected an i32 list of rank 2, one more than the number of its indices, but got 'memref<?x?xi64>'}}
  flashattn.tile_loop (%i, %j) in [(%n, %n, %n, %n)] list(%list[%n] : memref<?x?xi64>) {
  }
  return
}

// -----

func.func @stage() {
  // expected-error @+1 {{'flashattn.stage' op expects parent op 'flashattn.tile_loop'}}
  flashattn.stage
  return
}

// -----

func.func @lag(%n: index) {
  flashattn.tile_loop (%i, %j) in [(%n, %n, %n, %n)] {
    // expected-error @+1 {{attribute 'lag' failed to satisfy constraint}}
    flashattn.stage lag 2
  }
  return
}

// -----

func.func @behind(%n: index) {
  flashattn.tile_loop (%i, %j) in [(%n, %n, %n, %n)] {
    // expected-error @+1 {{'flashattn.stage' op expected 'behind' to be the number of a stage without a lag, from 0 to 1, but got -1}}
    flashattn.stage lag 1 behind -1
  }
  return
}

// -----

func.func @behind_without_lag(%n: index) {
  flashattn.tile_loop (%i, %j) in [(%n, %n, %n, %n)] {
    flashattn.stage
    // expected-error @+1 {{'flashattn.stage' op expected 'lag' 1 for 'behind' 1 but got 0}}
    flashattn.stage behind 1
  }
  return
}

// -----

func.func @behind_none(%n: index) {
  flashattn.tile_loop (%i, %j) in [(%n, %n, %n, %n)] {
    flashattn.stage
    // expected-error @+1 {{'flashattn.stage' op expected 'behind' to be the number of a stage without a lag, from 0 to 2, but got 3}}
    flashattn.stage lag 1 behind 3
  }
  return
}

// -----

func.func @behind_one_that_lags(%n: index) {
  flashattn.tile_loop (%i, %j) in [(%n, %n, %n, %n)] {
    flashattn.stage lag 1
    // expected-error @+1 {{'flashattn.stage' op expected 'behind' to be the number of a stage without a lag, from 0 to 2, but got 1}}
    flashattn.stage lag 1 behind 1
  }
  return
}

// -----

func.func @round_number(%n: index) {
  // expected-error @+1 {{expected arguments for the step's position and tile and round but got 2 arguments}}
  flashattn.tile_loop (%i, %j) in [(%n, %n, %n, %n)] rounds %n {
  }
  return
}

// -----

func.func @round_type(%n: index) {
  // expected-error @+1 {{'flashattn.tile_loop' op expected arguments of the types 'index', 'index', 'index' but got 'index', 'index'}}
  "flashattn.tile_loop"(%n, %n, %n, %n, %n) <{operandSegmentSizes = array<i32: 4, 1, 0, 0, 0, 0>}> ({
  ^bb0(%i: index, %j: index):
    "flashattn.tile_yield"() : () -> ()
  }) : (index, index, index, index, index) -> ()
  return
}

// -----

func.func @added_element(%sums: memref<?x128xf16>, %x: vector<64x128xf32>, %n: index) {
  // expected-error @+1 {{'flashattn.add_tile' op expected a contiguous f32 memref of rank 2 or more but got 'memref<?x128xf16>'}}
  flashattn.add_tile %x to %sums[%n, %n] parts 1 : vector<64x128xf32>, memref<?x128xf16>
  return
}

// -----

func.func @added_with_gaps(%sums: memref<?x128xf32, strided<[256, 1]>>, %n: index) {
  // expected-error @+1 {{'flashattn.load_added' op expected a contiguous f32 memref of rank 2 or more but got 'memref<?x128xf32, strided<[256, 1]>>'}}
  %x = flashattn.load_added %sums[%n, %n] parts 1 : memref<?x128xf32, strided<[256, 1]>> -> vector<64x128xf32>
  return
}

// -----

func.func @added_rank(%sums: memref<128xf32>, %n: index) {
  // expected-error @+1 {{'flashattn.load_added' op expected a contiguous f32 memref of rank 2 or more but got 'memref<128xf32>'}}
  %x = flashattn.load_added %sums[%n] parts 1 : memref<128xf32> -> vector<64x128xf32>
  return
}

// -----

func.func @added_indices(%sums: memref<?x?x128xf32>, %x: vector<64x128xf32>, %n: index) {
  // expected-error @+1 {{'flashattn.add_tile' op expected an index for each of 3 dimensions but got 2}}
  flashattn.add_tile %x to %sums[%n, %n] parts 1 : vector<64x128xf32>, memref<?x?x128xf32>
  return
}

// -----

func.func @signal_indices(%done: memref<?x?xi32>, %n: index) {
  // expected-error @+1 {{'flashattn.signal_added' op expected an index for each of 2 dimensions but got 1}}
  flashattn.signal_added %done[%n] : memref<?x?xi32>
  return
}

// -----

func.func @await_indices(%done: memref<?x?xi32>, %n: index) {
  // expected-error @+1 {{'flashattn.await_added' op expected an index for each of 2 dimensions but got 1}}
  flashattn.await_added %done[%n] of %n : memref<?x?xi32>
  return
}

// -----

func.func @added_columns(%sums: memref<?x128xf32>, %n: index) {
  // expected-error @+1 {{'flashattn.load_added' op expected a tile of all 128 columns but got 'vector<64x64xf32>'}}
  %x = flashattn.load_added %sums[%n, %n] parts 1 : memref<?x128xf32> -> vector<64x64xf32>
  return
}

// -----

func.func @added_rows(%sums: memref<?x128xf32>, %x: vector<40x128xf32>, %n: index) {
  // expected-error @+1 {{'flashattn.add_tile' op expected a multiple of 16 rows, and of 8 columns in each of 1 parts, but got 'vector<40x128xf32>'}}
  flashattn.add_tile %x to %sums[%n, %n] parts 1 : vector<40x128xf32>, memref<?x128xf32>
  return
}

// -----

func.func @added_parts(%sums: memref<?x128xf32>, %x: vector<64x128xf32>, %n: index) {
  // expected-error @+1 {{'flashattn.add_tile' op expected a multiple of 16 rows, and of 8 columns in each of 3 parts, but got 'vector<64x128xf32>'}}
  flashattn.add_tile %x to %sums[%n, %n] parts 3 : vector<64x128xf32>, memref<?x128xf32>
  return
}

// -----

// 8 times as many is 0 in 64 bits.
func.func @added_parts_past_numbers(%sums: memref<?x128xf32>, %x: vector<64x128xf32>, %n: index) {
  // expected-error @+1 {{'flashattn.add_tile' op expected a multiple of 16 rows, and of 8 columns in each of 2305843009213693952 parts, but got 'vector<64x128xf32>'}}
  flashattn.add_tile %x to %sums[%n, %n] parts 2305843009213693952 : vector<64x128xf32>, memref<?x128xf32>
  return
}

// -----

func.func @added_no_parts(%sums: memref<?x128xf32>, %x: vector<64x128xf32>, %n: index) {
  // expected-error @+1 {{attribute 'parts' failed to satisfy constraint}}
  flashattn.add_tile %x to %sums[%n, %n] parts 0 : vector<64x128xf32>, memref<?x128xf32>
  return
}

// -----

func.func @mask_alone(%all: vector<64x64xi1>) {
  // expected-error @+1 {{'flashattn.tile_mask' op expected an enclosing 'flashattn.tile_loop'}}
  %shown = flashattn.tile_mask -> vector<64x64xi1> {
    flashattn.tile_yield %all : vector<64x64xi1>
  }
  return
}

// -----

func.func @mask_type(%n: index, %all: vector<32x64xi1>) {
  flashattn.tile_loop (%i, %j) in [(%n, %n, %n, %n)] {
    // expected-error @+1 {{'flashattn.tile_mask' op expected to yield 'vector<64x64xi1>' but got 'vector<32x64xi1>'}}
    %shown = flashattn.tile_mask -> vector<64x64xi1> {
      flashattn.tile_yield %all : vector<32x64xi1>
    }
  }
  return
}

// -----

func.func @weights_rows(%s: vector<64x64xf32>, %old: vector<32xf32>) {
  %c = arith.constant 1.0 : f32
  // expected-error @+1 {{'flashattn.softmax_step' op expected a value for each of 64 rows but got 'vector<32xf32>'}}
  %p, %sums, %base = flashattn.softmax_step %s from %old factor(%c) threads_per_row 4 : vector<64x64xf32>, vector<32xf32> -> vector<64x4xf32>
  return
}

// -----

func.func @weights_sums_lanes(%s: vector<64x64xf32>, %old: vector<64xf32>) {
  %c = arith.constant 1.0 : f32
  // expected-error @+1 {{'flashattn.softmax_step' op expected sums of 64 rows and 4 lanes but got 'vector<64x2xf32>'}}
  %p, %sums, %base = flashattn.softmax_step %s from %old factor(%c) threads_per_row 4 : vector<64x64xf32>, vector<64xf32> -> vector<64x2xf32>
  return
}

// -----

func.func @weights_sums_rows(%s: vector<64x64xf32>, %old: vector<64xf32>) {
  %c = arith.constant 1.0 : f32
  // expected-error @+1 {{'flashattn.softmax_step' op expected sums of 64 rows and 4 lanes but got 'vector<32x4xf32>'}}
  %p, %sums, %base = flashattn.softmax_step %s from %old factor(%c) threads_per_row 4 : vector<64x64xf32>, vector<64xf32> -> vector<32x4xf32>
  return
}

// -----

func.func @weights_columns(%s: vector<64x20xf32>, %old: vector<64xf32>) {
  %c = arith.constant 1.0 : f32
  // expected-error @+1 {{'flashattn.softmax_step' op expected columns that are a multiple of 8 for 4 lanes but got 'vector<64x20xf32>'}}
  %p, %sums, %base = flashattn.softmax_step %s from %old factor(%c) threads_per_row 4 : vector<64x20xf32>, vector<64xf32> -> vector<64x4xf32>
  return
}

// -----

func.func @weights_pairs(%s: vector<64x5xf32>, %old: vector<64xf32>) {
  %c = arith.constant 1.0 : f32
  // expected-error @+1 {{'flashattn.softmax_step' op expected columns that are a multiple of 2 for 1 lanes but got 'vector<64x5xf32>'}}
  %p, %sums, %base = flashattn.softmax_step %s from %old factor(%c) threshold 1.0 threads_per_row 1 : vector<64x5xf32>, vector<64xf32> -> vector<64x1xf32>
  return
}

// -----

func.func @weights_no_lanes(%s: vector<64x64xf32>, %old: vector<64xf32>) {
  %c = arith.constant 1.0 : f32
  // expected-error @+1 {{'flashattn.softmax_step' op attribute 'threads_per_row' failed to satisfy constraint: 64-bit signless integer attribute whose value is positive}}
  %p, %sums, %base = flashattn.softmax_step %s from %old factor(%c) threads_per_row 0 : vector<64x64xf32>, vector<64xf32> -> vector<64x1xf32>
  return
}

// -----

func.func @rescaled_rows(%s: vector<64x64xf32>, %old: vector<64xf32>, %v: vector<32x64xf32>) {
  %c = arith.constant 1.0 : f32
  // expected-error @+1 {{'flashattn.softmax_step' op expected f32 values of 64 rows to rescale but got 'vector<32x64xf32>'}}
  %p, %sums, %base, %r = flashattn.softmax_step %s from %old factor(%c) threads_per_row 4 rescale(%v : vector<32x64xf32>) : vector<64x64xf32>, vector<64xf32> -> vector<64x4xf32>
  return
}

// -----

func.func @rescaled_type(%s: vector<64x64xf32>, %old: vector<64xf32>, %v: vector<64x64xf16>) {
  %c = arith.constant 1.0 : f32
  // expected-error @+1 {{'flashattn.softmax_step' op expected f32 values of 64 rows to rescale but got 'vector<64x64xf16>'}}
  %p, %sums, %base, %r = flashattn.softmax_step %s from %old factor(%c) threads_per_row 4 rescale(%v : vector<64x64xf16>) : vector<64x64xf32>, vector<64xf32> -> vector<64x4xf32>
  return
}

// -----

func.func @rescaled_rank(%s: vector<64x64xf32>, %old: vector<64xf32>, %v: vector<64x4x4xf32>) {
  %c = arith.constant 1.0 : f32
  // expected-error @+1 {{'flashattn.softmax_step' op expected f32 values of 64 rows to rescale but got 'vector<64x4x4xf32>'}}
  %p, %sums, %base, %r = flashattn.softmax_step %s from %old factor(%c) threads_per_row 4 rescale(%v : vector<64x4x4xf32>) : vector<64x64xf32>, vector<64xf32> -> vector<64x4xf32>
  return
}

// -----

func.func @again_growth(%s: vector<64x64xf32>, %old: vector<64xf32>, %k: vector<64x64xf16>) {
  %c = arith.constant 1.0 : f32
  // expected-error @+1 {{'flashattn.softmax_step' op expected 'threshold' beside recomputed scores but got none}}
  %p, %sums, %base = flashattn.softmax_step %s from %old factor(%c) threads_per_row 4 : vector<64x64xf32>, vector<64xf32> -> vector<64x4xf32>
      recompute(%k : vector<64x64xf16>) {
  ^bb0(%a: vector<64x64xf16>):
    %x = arith.extf %a : vector<64x64xf16> to vector<64x64xf32>
    flashattn.tile_yield %x : vector<64x64xf32>
  }
  return
}

// -----

func.func @again_arguments(%s: vector<64x64xf32>, %old: vector<64xf32>, %k: vector<64x64xf16>) {
  %c = arith.constant 1.0 : f32
  // expected-error @+1 {{'flashattn.softmax_step' op expected arguments of 'vector<64x64xf16>' but got 'vector<64x64xf16>', 'vector<64x64xf16>'}}
  %p, %sums, %base = flashattn.softmax_step %s from %old factor(%c) threshold 8.0 threads_per_row 4 : vector<64x64xf32>, vector<64xf32> -> vector<64x4xf32>
      recompute(%k : vector<64x64xf16>) {
  ^bb0(%a: vector<64x64xf16>, %b: vector<64x64xf16>):
    %x = arith.extf %a : vector<64x64xf16> to vector<64x64xf32>
    flashattn.tile_yield %x : vector<64x64xf32>
  }
  return
}

// -----

func.func @again_type(%s: vector<64x64xf32>, %old: vector<64xf32>, %k: vector<64x64xf16>) {
  %c = arith.constant 1.0 : f32
  // expected-error @+1 {{'flashattn.softmax_step' op expected to yield 'vector<64x64xf32>' but got 'vector<64x64xf16>'}}
  %p, %sums, %base = flashattn.softmax_step %s from %old factor(%c) threshold 8.0 threads_per_row 4 : vector<64x64xf32>, vector<64xf32> -> vector<64x4xf32>
      recompute(%k : vector<64x64xf16>) {
  ^bb0(%a: vector<64x64xf16>):
    flashattn.tile_yield %a : vector<64x64xf16>
  }
  return
}

// -----

func.func @again_two(%s: vector<64x64xf32>, %old: vector<64xf32>, %k: vector<64x64xf16>) {
  %c = arith.constant 1.0 : f32
  // expected-error @+1 {{'flashattn.softmax_step' op expected to yield 'vector<64x64xf32>' but got 'vector<64x64xf32>', 'vector<64x64xf32>'}}
  %p, %sums, %base = flashattn.softmax_step %s from %old factor(%c) threshold 8.0 threads_per_row 4 : vector<64x64xf32>, vector<64xf32> -> vector<64x4xf32>
      recompute(%k : vector<64x64xf16>) {
  ^bb0(%a: vector<64x64xf16>):
    %x = arith.extf %a : vector<64x64xf16> to vector<64x64xf32>
    flashattn.tile_yield %x, %x : vector<64x64xf32>, vector<64x64xf32>
  }
  return
}

// -----

func.func @again_outside(%s: vector<64x64xf32>, %old: vector<64xf32>, %c: f32) {
  // expected-note @+1 {{required by region isolation constraints}}
  %p, %sums, %base = flashattn.softmax_step %s from %old factor(%c) threshold 8.0 threads_per_row 4 : vector<64x64xf32>, vector<64xf32> -> vector<64x4xf32>
      recompute(%old : vector<64xf32>) {
  ^bb0(%a: vector<64xf32>):
    // expected-error @+1 {{'flashattn.tile_yield' op using value defined outside the region}}
    flashattn.tile_yield %s : vector<64x64xf32>
  }
  return
}

// -----

func.func @discardable(%n: index) {
  %c1 = arith.constant 1 : index
  // expected-error @+1 {{'scf.for' op expected no discardable attribute of the flashattn dialect but got 'flashattn.partial'}}
  scf.for %i = %n to %n step %c1 {
  } {flashattn.partial}
  return
}

// -----

func.func @discardable_of_an_op(%n: index) {
  // expected-error @+1 {{'flashattn.tile_loop' op expected no discardable attribute of the flashattn dialect but got 'flashattn.lag'}}
  flashattn.tile_loop (%i, %j) in [(%n, %n, %n, %n)] attributes {flashattn.lag = 1 : i64} {
  }
  return
}

// -----

func.func @adjacent(%n: index, %sums: memref<?x64xf32>) {
  %space = flashattn.dense_space(%n) axes(query_tile)
  flashattn.program (%t) in %space {
    // expected-error @+1 {{attribute 'adjacent' failed to satisfy constraint}}
    %added = flashattn.load_added %sums[%t, %t] parts 2 adjacent 3 : memref<?x64xf32> -> vector<64x64xf32>
  }
  return
}

// -----

func.func @order(%x: vector<64x128xf32>, %sums: memref<2x?x128xf32>, %order: memref<?xi32>, %n: index) {
  // expected-error @+1 {{'flashattn.add_tile' op expected a contiguous 'order' with all dimensions of the target except the columns but got 'memref<?xi32>'}}
  flashattn.add_tile %x to %sums[%n, %n, %n] parts 1 order %order : memref<?xi32> turn %n : vector<64x128xf32>, memref<2x?x128xf32>
  return
}

// -----

func.func @no_order(%x: vector<64x128xf32>, %sums: memref<2x?x128xf32>, %n: index) {
  // expected-error @+1 {{'flashattn.add_tile' op expected 'order' beside 'turn' but got 'turn' alone}}
  flashattn.add_tile %x to %sums[%n, %n, %n] parts 1 turn %n : vector<64x128xf32>, memref<2x?x128xf32>
  return
}

// -----

// Behind the memref's columns, all of them.
func.func @ones(%k: memref<?x64xbf16>, %n: index) {
  // expected-error @+1 {{'flashattn.load_tile' op expected 8 columns of ones after all columns of the memref but got 'memref<?x64xbf16>' and 'vector<32x64xbf16>'}}
  %t = flashattn.load_tile %k[%n, %n] dims [0, 1] in_bounds [false, false] ones
      : memref<?x64xbf16> -> vector<32x64xbf16>
  return
}

// -----

func.func @segments(%n: index, %starts: memref<?xi32>) {
  // expected-error @+1 {{'flashattn.ragged_space' op expected batch as the first of several axes but got (head, query_tile)}}
  %space = flashattn.ragged_space(%n, %n) axes(head, query_tile) starts %starts rows 64 tiles 1 : memref<?xi32>
  return
}

// -----

func.func @segments_of_one_axis(%n: index, %starts: memref<?xi32>) {
  // expected-error @+1 {{'flashattn.ragged_space' op expected batch as the first of several axes but got (batch)}}
  %space = flashattn.ragged_space(%n) axes(batch) starts %starts rows 64 tiles 1 : memref<?xi32>
  return
}

// -----

func.func @segment_rows(%n: index, %starts: memref<?xi32>) {
  // expected-error @+1 {{'flashattn.ragged_space' op expected at most 2147483647 rows in a segment but got 65536 tiles of 65536 rows}}
  %space = flashattn.ragged_space(%n, %n) axes(batch, query_tile) starts %starts rows 65536 tiles 65536 : memref<?xi32>
  return
}

// -----

func.func @largest_beside_threshold(%s: vector<64x32xf32>, %m: vector<64xf32>, %c: f32) {
  // expected-error @+1 {{expected no 'threshold' beside 'log2_largest' but got one}}
  %p, %sums, %base = flashattn.softmax_step %s from %m factor(%c) threshold 4.0 log2_largest 8.0 threads_per_row 4
      : vector<64x32xf32>, vector<64xf32> -> vector<64x4xf32>
  return
}
