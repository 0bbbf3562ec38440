// RUN: flash-opt %s -split-input-file -verify-diagnostics

// expected-error @+1 {{expected element type f16, bf16, f8E4M3FN, f8E5M2 or i8 but got 'f32'}}
func.func private @map(!hopper.tensor_map<80x64xf32>)

// -----

// expected-error @+1 {{expected 1 to 256 rows but got 257}}
func.func private @map(!hopper.tensor_map<257x64xf16>)

// -----

// expected-error @+1 {{expected 16, 32 or 64 columns but got 128}}
func.func private @map(!hopper.tensor_map<80x128xf16>)

// -----

// expected-error @+1 {{expected a box of rows and columns but got 3 dimensions}}
func.func private @map(!hopper.tensor_map<1x80x64xf16>)

// -----

func.func @rank(%m: memref<64xf16>) {
  // expected-error @+1 {{expected a memref of rank 2 to 5 but got 'memref<64xf16>'}}
  %0 = hopper.make_tensor_map %m row_dim(0) : memref<64xf16> to !hopper.tensor_map<80x64xf16>
  return
}

// -----

func.func @element(%m: memref<80x64xbf16>) {
  // expected-error @+1 {{expected a memref with element type 'f16' but got 'memref<80x64xbf16>'}}
  %0 = hopper.make_tensor_map %m row_dim(0) : memref<80x64xbf16> to !hopper.tensor_map<80x64xf16>
  return
}

// -----

func.func @row_dim(%m: memref<2x80x64xf16>) {
  // expected-error @+1 {{expected 'row_dim' from 0 to 1 but got 2}}
  %0 = hopper.make_tensor_map %m row_dim(2) : memref<2x80x64xf16> to !hopper.tensor_map<80x64xf16>
  return
}

// -----

func.func @outer_dim(%m: memref<2x80x64xf16>) {
  // expected-error @+1 {{expected 'outer_dim' before 'row_dim', 1, but got 1}}
  %0 = hopper.make_tensor_map %m row_dim(1) outer_dim(1) outer_rows(2) : memref<2x80x64xf16> to !hopper.tensor_map<80x64xf16>
  return
}

// -----

func.func @outer_rows(%m: memref<2x80x64xf16>) {
  // expected-error @+1 {{expected 'outer_rows' to divide the box's 80 rows but got 3}}
  %0 = hopper.make_tensor_map %m row_dim(1) outer_dim(0) outer_rows(3) : memref<2x80x64xf16> to !hopper.tensor_map<80x64xf16>
  return
}

// -----

func.func @outer(%m: memref<2x80x64xf16>) {
  // expected-error @+1 {{expected both of 'outer_dim' and 'outer_rows' or none but got 'outer_rows'}}
  %0 = "hopper.make_tensor_map"(%m) {rowDim = 1 : i64, outerRows = 2 : i64} : (memref<2x80x64xf16>) -> !hopper.tensor_map<80x64xf16>
  return
}

// -----

func.func @stride(%m: memref<80x64xf16, strided<[64, ?]>>) {
  // expected-error @+1 {{expected unit stride in the last dimension but got 'memref<80x64xf16, strided<[64, ?]>>'}}
  %0 = hopper.make_tensor_map %m row_dim(0)
    : memref<80x64xf16, strided<[64, ?]>> to !hopper.tensor_map<80x64xf16>
  return
}

// -----

!bars = memref<4xi64, #gpu.address_space<workgroup>>
func.func @no_tile(%m: !hopper.tensor_map<80x64xf16>, %t: memref<2x80x64xf16>, %b: !bars, %i: index) {
  // expected-error @+1 {{expected 'tile' to be a contiguous tile in shared memory, of panels x rows x 16, 32 or 64 elements of f16 or bf16, or 32, 64 or 128 elements of 8 bits, with a multiple of 8 rows if there are several panels, of 262144 bytes at most but got 'memref<2x80x64xf16>'}}
  hopper.tma_load %m[%i, %i] to %t, %b[%i] : !hopper.tensor_map<80x64xf16> to memref<2x80x64xf16>, !bars
  return
}

// -----

!bars = memref<4xi64, #gpu.address_space<workgroup>>
!tile = memref<2x80x64xf16, strided<[2560, 64, 1]>, #gpu.address_space<workgroup>>
func.func @gaps(%m: !hopper.tensor_map<80x64xf16>, %t: !tile, %b: !bars, %i: index) {
  // expected-error @+1 {{expected 'tile' to be a contiguous tile in shared memory}}
  hopper.tma_load %m[%i, %i] to %t, %b[%i] : !hopper.tensor_map<80x64xf16> to !tile, !bars
  return
}

// -----

!bars = memref<4xi64, #gpu.address_space<workgroup>>
!tile = memref<2x20x64xf16, #gpu.address_space<workgroup>>
func.func @panel_start(%m: !hopper.tensor_map<20x64xf16>, %t: !tile, %b: !bars, %i: index) {
  // expected-error @+1 {{expected 'tile' to be a contiguous tile in shared memory}}
  hopper.tma_load %m[%i, %i] to %t, %b[%i] : !hopper.tensor_map<20x64xf16> to !tile, !bars
  return
}

// -----

!bars = memref<4xi64, #gpu.address_space<workgroup>>
!tile = memref<2x64x64xf16, #gpu.address_space<workgroup>>
func.func @box(%m: !hopper.tensor_map<80x64xf16>, %t: !tile, %b: !bars, %i: index) {
  // expected-error @+1 {{expected the box of '!hopper.tensor_map<80x64xf16>' to be a panel of the tile but got 'memref<2x64x64xf16, #gpu.address_space<workgroup>>'}}
  hopper.tma_load %m[%i, %i] to %t, %b[%i] : !hopper.tensor_map<80x64xf16> to !tile, !bars
  return
}

// -----

!bars = memref<4xi64, #gpu.address_space<workgroup>>
!tile = memref<2x80x64xf16, #gpu.address_space<workgroup>>
func.func @coordinates(%m: !hopper.tensor_map<80x64xf16>, %t: !tile, %b: !bars, %i: index) {
  // expected-error @+1 {{expected 2 to 5 coordinates but got 1}}
  hopper.tma_load %m[%i] to %t, %b[%i] : !hopper.tensor_map<80x64xf16> to !tile, !bars
  return
}

// -----

func.func @barriers(%b: memref<4xi64>, %i: index) {
  // expected-error @+1 {{expected barriers to be a one-dimensional memref of i64 in workgroup memory but got 'memref<4xi64>'}}
  hopper.barrier_arrive %b[%i] : memref<4xi64>
  return
}

// -----

func.func @barrier_element(%b: memref<4xi32, #gpu.address_space<workgroup>>, %i: index, %p: i32) {
  // expected-error @+1 {{expected barriers to be a one-dimensional memref of i64 in workgroup memory but got 'memref<4xi32, #gpu.address_space<workgroup>>'}}
  hopper.barrier_wait %b[%i], %p : memref<4xi32, #gpu.address_space<workgroup>>
  return
}

// -----

func.func @count(%b: memref<4xi64, #gpu.address_space<workgroup>>, %i: index) {
  // expected-error @+1 {{expected 'count' from 1 to 1048575 but got 0}}
  hopper.barrier_init %b[%i], 0 : memref<4xi64, #gpu.address_space<workgroup>>
  return
}

// -----

func.func @bytes(%b: memref<4xi64, #gpu.address_space<workgroup>>, %i: index) {
  // expected-error @+1 {{expected 'bytes' from 1 to 1048575 but got 1048576}}
  hopper.barrier_expect %b[%i], 1048576 : memref<4xi64, #gpu.address_space<workgroup>>
  return
}

// -----

!t = memref<1x64x64xf16, #gpu.address_space<workgroup>>
func.func @b_tile(%a: !t, %b: memref<64x64xf16, #gpu.address_space<workgroup>>) {
  // expected-error @+1 {{expected 'b' to be a contiguous tile in shared memory}}
  %d = hopper.wgmma %a, %b : !t, memref<64x64xf16, #gpu.address_space<workgroup>> -> vector<64x64xf32>
  return
}

// -----

!t = memref<1x64x64xf16, #gpu.address_space<workgroup>>
func.func @a_tile(%a: memref<64x64xf16, #gpu.address_space<workgroup>>, %b: !t) {
  // expected-error @+1 {{expected 'a' to be a contiguous tile in shared memory}}
  %d = hopper.wgmma %a, %b : memref<64x64xf16, #gpu.address_space<workgroup>>, !t -> vector<64x64xf32>
  return
}

// -----

!t = memref<1x64x64xf16, #gpu.address_space<workgroup>>
!a = memref<1x128x64xf16, #gpu.address_space<workgroup>>
func.func @a_rows(%a: !a, %b: !t) {
  // expected-error @+1 {{expected 64 rows of 'a' but got 'memref<1x128x64xf16, #gpu.address_space<workgroup>>'}}
  %d = hopper.wgmma %a, %b : !a, !t -> vector<64x64xf32>
  return
}

// -----

!t = memref<1x64x64xf16, #gpu.address_space<workgroup>>
func.func @mixed(%a: vector<64x64xf16>, %b: !t) {
  // expected-error @+1 {{expected all vectors to be whole tiles or all to be one thread's part but got 'vector<64x64xf16>' and 'vector<32xf32>'}}
  %d = hopper.wgmma %a, %b : vector<64x64xf16>, !t -> vector<32xf32>
  return
}

// -----

!t = memref<1x64x64xf16, #gpu.address_space<workgroup>>
func.func @rows(%a: !t, %b: !t) {
  // expected-error @+1 {{expected 128 rows of 'a' but got 'memref<1x64x64xf16, #gpu.address_space<workgroup>>'}}
  %d = hopper.wgmma %a, %b : !t, !t -> vector<128x64xf32>
  return
}

// -----

!t = memref<1x64x64xf16, #gpu.address_space<workgroup>>
func.func @dimensions(%a: !t, %b: !t) {
  // expected-error @+1 {{expected vectors of one or two dimensions but got 'vector<1x64x64xf32>'}}
  %d = hopper.wgmma %a, %b : !t, !t -> vector<1x64x64xf32>
  return
}

// -----

!t = memref<1x64x64xf16, #gpu.address_space<workgroup>>
func.func @accumulator(%a: !t, %b: !t, %acc: vector<64x32xf32>) {
  // expected-error @+1 {{expected an accumulator of the result's type, 'vector<64x64xf32>', but got 'vector<64x32xf32>'}}
  %d = "hopper.wgmma"(%a, %b, %acc) <{operandSegmentSizes = array<i32: 1, 0, 1, 1>}> : (!t, !t, vector<64x32xf32>) -> vector<64x64xf32>
  return
}

// -----

func.func @overwritten(%p: vector<64x32xf16>, %b: memref<1x32x64xf16, #gpu.address_space<workgroup>>) {
  // expected-error @+1 {{expected an accumulator with overwritten but got none}}
  %d = hopper.wgmma %p, %b overwritten transposed
      : vector<64x32xf16>, memref<1x32x64xf16, #gpu.address_space<workgroup>> -> vector<64x64xf32>
  return
}

// -----

!t = memref<1x64x64xf16, #gpu.address_space<workgroup>>
func.func @elements(%a: vector<64x64xbf16>, %b: !t) {
  // expected-error @+1 {{expected 'b' with element type 'bf16' as in 'a' but got 'f16'}}
  %d = hopper.wgmma %a, %b : vector<64x64xbf16>, !t -> vector<64x64xf32>
  return
}

// -----

!t = memref<1x64x64xf16, #gpu.address_space<workgroup>>
func.func @all_held(%a: !t, %held: vector<64x64xf16>, %b: !t) {
  // expected-error @+1 {{expected 'first' to be a multiple of 16 columns of 'f16', fewer than 64, but got 'vector<64x64xf16>'}}
  %d = hopper.wgmma %a first %held, %b : !t first vector<64x64xf16>, !t -> vector<64x64xf32>
  return
}

// -----

!t = memref<1x64x64xf16, #gpu.address_space<workgroup>>
func.func @held_elements(%a: !t, %held: vector<64x16xbf16>, %b: !t) {
  // expected-error @+1 {{expected 'first' to be a multiple of 16 columns of 'f16', fewer than 64, but got 'vector<64x16xbf16>'}}
  %d = hopper.wgmma %a first %held, %b : !t first vector<64x16xbf16>, !t -> vector<64x64xf32>
  return
}

// -----

!t = memref<1x64x64xf16, #gpu.address_space<workgroup>>
func.func @held_of_registers(%a: vector<64x64xf16>, %held: vector<64x16xf16>, %b: !t) {
  // expected-error @+1 {{expected no 'first' columns unless 'a' is in shared memory and not transposed}}
  %d = hopper.wgmma %a first %held, %b : vector<64x64xf16> first vector<64x16xf16>, !t -> vector<64x64xf32>
  return
}

// -----

!t = memref<1x64x64xf16, #gpu.address_space<workgroup>>
func.func @held_of_transposed(%a: !t, %held: vector<64x16xf16>, %b: !t) {
  // expected-error @+1 {{expected no 'first' columns unless 'a' is in shared memory and not transposed}}
  %d = hopper.wgmma %a first %held, %b transposed_a : !t first vector<64x16xf16>, !t -> vector<64x64xf32>
  return
}

// -----

!t = memref<1x64x64xf16, #gpu.address_space<workgroup>>
func.func @held_rows(%a: !t, %held: vector<128x16xf16>) {
  // expected-error @+1 {{expected 'first' with 64 rows but got 'vector<128x16xf16>'}}
  %d = hopper.load_tile %a first %held : !t, vector<128x16xf16> -> vector<64x64xf16>
  return
}

// -----

!t = memref<1x64x64xf16, #gpu.address_space<workgroup>>
func.func @held_columns(%a: !t, %held: vector<64x64xf16>) {
  // expected-error @+1 {{expected 'first' to be a multiple of 16 columns of 'f16', at most 32, but got 'vector<64x64xf16>'}}
  %d = hopper.load_tile %a first %held : !t, vector<64x64xf16> -> vector<64x32xf16>
  return
}

// -----

!t = memref<1x64x64xf16, #gpu.address_space<workgroup>>
func.func @depth(%a: !t, %b: !t) {
  // expected-error @+1 {{expected a contraction over a multiple of 16 but got 24}}
  %d = hopper.wgmma %a, %b depth(24) : !t, !t -> vector<64x64xf32>
  return
}

// -----

!t = memref<1x64x64xf16, #gpu.address_space<workgroup>>
func.func @too_deep(%a: !t, %b: !t) {
  // expected-error @+1 {{expected a contraction of 80 but got 64 columns of 'a' and 64 columns of 'b'}}
  %d = hopper.wgmma %a, %b depth(80) : !t, !t -> vector<64x64xf32>
  return
}

// -----

!t = memref<1x64x64xf16, #gpu.address_space<workgroup>>
func.func @contraction(%a: vector<64x80xf16>, %b: !t) {
  // expected-error @+1 {{expected a contraction of 80 but got 80 columns of 'a' and 64 rows of 'b'}}
  %d = hopper.wgmma %a, %b transposed : vector<64x80xf16>, !t -> vector<64x64xf32>
  return
}

// -----

!t = memref<1x64x64xf16, #gpu.address_space<workgroup>>
func.func @columns(%a: !t, %b: !t) {
  // expected-error @+1 {{expected a multiple of 8 up to 256 as number of columns of the result but got 60}}
  %d = hopper.wgmma %a, %b : !t, !t -> vector<64x60xf32>
  return
}

// -----

!t = memref<1x64x64xf16, #gpu.address_space<workgroup>>
func.func @more_columns(%a: !t, %b: !t) {
  // expected-error @+1 {{expected at most 64 columns of the result, the number in 'b', but got 72}}
  %d = hopper.wgmma %a, %b : !t, !t -> vector<36xf32>
  return
}

// -----

!t = memref<1x64x64xf16, #gpu.address_space<workgroup>>
func.func @transposed_in_registers(%a: vector<64x64xf16>, %b: !t) {
  // expected-error @+1 {{expected a transposed 'a' in shared memory but got 'vector<64x64xf16>'}}
  %d = hopper.wgmma %a, %b transposed_a : vector<64x64xf16>, !t -> vector<64x64xf32>
  return
}

// -----

!t = memref<1x64x64xf16, #gpu.address_space<workgroup>>
!a = memref<2x64x64xf16, #gpu.address_space<workgroup>>
func.func @transposed_columns(%a: !a, %b: !t) {
  // expected-error @+1 {{expected 64 columns of 'a' but got 'memref<2x64x64xf16, #gpu.address_space<workgroup>>'}}
  %d = hopper.wgmma %a, %b transposed_a : !a, !t -> vector<64x64xf32>
  return
}

// -----

!t = memref<1x64x64xf16, #gpu.address_space<workgroup>>
!a = memref<1x128x64xf16, #gpu.address_space<workgroup>>
func.func @transposed_contraction(%a: !a, %b: !t) {
  // expected-error @+1 {{expected a contraction of 128 but got 128 rows of 'a' and 64 rows of 'b'}}
  %d = hopper.wgmma %a, %b transposed_a transposed : !a, !t -> vector<64x64xf32>
  return
}

// -----

func.func @place_bytes(%s: memref<?x?xf32>, %p: memref<3x6xf32, #gpu.address_space<workgroup>>, %b: memref<4xi64, #gpu.address_space<workgroup>>, %i: index) {
  // expected-error @+1 {{expected buffers in shared memory whose size is a multiple of 16 bytes but got 'memref<3x6xf32, #gpu.address_space<workgroup>>'}}
  hopper.bulk_load %s[%i, %i] to %p[%i], %b[%i] : memref<?x?xf32> to memref<3x6xf32, #gpu.address_space<workgroup>>, memref<4xi64, #gpu.address_space<workgroup>>
  return
}

// -----

func.func @place_memory(%s: memref<?x?xf32>, %p: memref<3x64xf32>, %b: memref<4xi64, #gpu.address_space<workgroup>>, %i: index) {
  // expected-error @+1 {{expected buffers in shared memory whose size is a multiple of 16 bytes but got 'memref<3x64xf32>'}}
  hopper.bulk_load %s[%i, %i] to %p[%i], %b[%i] : memref<?x?xf32> to memref<3x64xf32>, memref<4xi64, #gpu.address_space<workgroup>>
  return
}

// -----

func.func @source_element(%s: memref<?x?xf16>, %p: memref<3x64xf32, #gpu.address_space<workgroup>>, %b: memref<4xi64, #gpu.address_space<workgroup>>, %i: index) {
  // expected-error @+1 {{expected a source of 'f32' but got 'memref<?x?xf16>'}}
  hopper.bulk_load %s[%i, %i] to %p[%i], %b[%i] : memref<?x?xf16> to memref<3x64xf32, #gpu.address_space<workgroup>>, memref<4xi64, #gpu.address_space<workgroup>>
  return
}

// -----

func.func @source_indices(%s: memref<?x?xf32>, %p: memref<3x64xf32, #gpu.address_space<workgroup>>, %b: memref<4xi64, #gpu.address_space<workgroup>>, %i: index) {
  // expected-error @+1 {{expected an index for each of 2 dimensions but got 1}}
  hopper.bulk_load %s[%i] to %p[%i], %b[%i] : memref<?x?xf32> to memref<3x64xf32, #gpu.address_space<workgroup>>, memref<4xi64, #gpu.address_space<workgroup>>
  return
}

// -----

func.func @bulk_load_barriers(%s: memref<?xf32>, %p: memref<3x64xf32, #gpu.address_space<workgroup>>, %b: memref<4xi64>, %i: index) {
  // expected-error @+1 {{expected barriers to be a one-dimensional memref of i64 in workgroup memory but got 'memref<4xi64>'}}
  hopper.bulk_load %s[%i] to %p[%i], %b[%i] : memref<?xf32> to memref<3x64xf32, #gpu.address_space<workgroup>>, memref<4xi64>
  return
}

// -----

func.func @pinned_pairs(%x: vector<3xf16>) {
  // expected-error @+1 {{'hopper.pin' op expected a multiple of 2 elements of 16 bits but got 'vector<3xf16>'}}
  %0 = hopper.pin %x : vector<3xf16>
  return
}

// -----

func.func @pinned_rows(%x: vector<40x64xf16>) {
  // expected-error @+1 {{'hopper.pin' op expected a multiple of 64 rows but got 'vector<40x64xf16>'}}
  %0 = hopper.pin %x : vector<40x64xf16>
  return
}

// -----

func.func @published(%b: memref<4xi64>, %i: index) {
  // expected-error @+1 {{'hopper.publish' op expected barriers to be a one-dimensional memref of i64 in workgroup memory but got 'memref<4xi64>'}}
  hopper.publish %b[%i] : memref<4xi64>
  return
}

// -----

func.func @staging_memory(%x: vector<64x128xf32>, %s: memref<8x1024xf32>, %t: memref<?x128xf32>, %i: index) {
  // expected-error @+1 {{'hopper.add_tile' op expected contiguous staging of static size in shared memory, with a row of f32 for each warp, but got 'memref<8x1024xf32>'}}
  hopper.add_tile %x through %s to %t[%i, %i] : vector<64x128xf32>, memref<8x1024xf32>, memref<?x128xf32>
  return
}

// -----

!s = memref<0x1024xf32, #gpu.address_space<workgroup>>
func.func @staging_of_no_warp(%x: vector<64x128xf32>, %s: !s, %t: memref<?x128xf32>, %i: index) {
  // expected-error @+1 {{expected contiguous staging of static size in shared memory, with a row of f32 for each warp, but got 'memref<0x1024xf32, #gpu.address_space<workgroup>>'}}
  hopper.add_tile %x through %s to %t[%i, %i] : vector<64x128xf32>, !s, memref<?x128xf32>
  return
}

// -----

!s = memref<8x1024xf32, #gpu.address_space<workgroup>>
func.func @target(%x: vector<64x128xf32>, %s: !s, %t: memref<?x128xbf16>, %i: index) {
  // expected-error @+1 {{expected a contiguous f32 target but got 'memref<?x128xbf16>'}}
  hopper.add_tile %x through %s to %t[%i, %i] : vector<64x128xf32>, !s, memref<?x128xbf16>
  return
}

// -----

!s = memref<8x1024xf32, #gpu.address_space<workgroup>>
func.func @target_indices(%x: vector<64x128xf32>, %s: !s, %t: memref<?x128xf32>, %i: index) {
  // expected-error @+1 {{expected an index for each of 2 dimensions but got 1}}
  hopper.add_tile %x through %s to %t[%i] : vector<64x128xf32>, !s, memref<?x128xf32>
  return
}

// -----

!s = memref<8x384xf32, #gpu.address_space<workgroup>>
func.func @staged_elements(%x: vector<64x128xf32>, %s: !s, %t: memref<?x128xf32>, %i: index) {
  // expected-error @+1 {{expected staging in which each warp has a multiple of 128 elements that divides 1024, the size of the warp's part, but got 'memref<8x384xf32, #gpu.address_space<workgroup>>'}}
  hopper.add_tile %x through %s to %t[%i, %i] : vector<64x128xf32>, !s, memref<?x128xf32>
  return
}

// -----

!s = memref<8x64xf32, #gpu.address_space<workgroup>>
func.func @staged_vectors(%x: vector<2xf32>, %s: !s, %t: memref<?x128xf32>, %i: index) {
  // expected-error @+1 {{expected staging in which each warp has a multiple of 128 elements that divides 64, the size of the warp's part, but got 'memref<8x64xf32, #gpu.address_space<workgroup>>'}}
  hopper.add_tile %x through %s to %t[%i, %i] warp %i : vector<2xf32>, !s, memref<?x128xf32>
  return
}

// -----

!s = memref<8x1024xf32, #gpu.address_space<workgroup>>
func.func @no_warp(%x: vector<32xf32>, %s: !s, %t: memref<?x128xf32>, %i: index) {
  // expected-error @+1 {{expected 'warp' if, and only if, the value is one thread's part}}
  hopper.add_tile %x through %s to %t[%i, %i] : vector<32xf32>, !s, memref<?x128xf32>
  return
}

// -----

!s = memref<8x512xf32, #gpu.address_space<workgroup>>
func.func @staged_parts(%x: vector<64x128xf32>, %s: !s) {
  // expected-error @+1 {{'hopper.stage_tile' op expected staging in which each warp has a multiple of 128 elements that equals 1024, the size of the warp's part, but got 'memref<8x512xf32, #gpu.address_space<workgroup>>'}}
  hopper.stage_tile %x to %s : vector<64x128xf32>, !s
  return
}

// -----

func.func @added_memory(%s: memref<8x1024xf32>, %t: memref<?x128xf32>, %i: index) {
  // expected-error @+1 {{'hopper.add_staged' op expected contiguous staging of static size in shared memory, with a row of f32 for each warp, but got 'memref<8x1024xf32>'}}
  hopper.add_staged %s to %t[%i, %i] warp %i : memref<8x1024xf32>, memref<?x128xf32>
  return
}

// -----

!s = memref<8x1024xf32, #gpu.address_space<workgroup>>
func.func @added_indices(%s: !s, %t: memref<?x128xf32>, %i: index) {
  // expected-error @+1 {{expected an index for each of 2 dimensions but got 1}}
  hopper.add_staged %s to %t[%i] warp %i : !s, memref<?x128xf32>
  return
}

// -----

func.func @turn_indices(%order: memref<?x?xi32>, %i: index, %turn: i32) {
  // expected-error @+1 {{'hopper.pass_turn' op expected an index for each of 2 dimensions but got 1}}
  hopper.pass_turn %turn at %order[%i] : memref<?x?xi32>
  return
}

// -----

func.func @sister_of_the_block() {
  // expected-error @+1 {{'hopper.await_peer' op attribute 'barrier' failed to satisfy constraint: 64-bit signless integer attribute whose minimum value is 1 whose maximum value is 14}}
  hopper.await_peer 0
  return
}

// -----

func.func @sister_without_a_barrier() {
  // expected-error @+1 {{'hopper.wake_peer' op attribute 'barrier' failed to satisfy constraint: 64-bit signless integer attribute whose minimum value is 1 whose maximum value is 14}}
  hopper.wake_peer 15
  return
}

// -----

func.func @signal_indices(%done: memref<?x?xi32>, %i: index) {
  // expected-error @+1 {{'hopper.signal_added' op expected an index for each of 2 dimensions but got 1}}
  hopper.signal_added %done[%i] : memref<?x?xi32>
  return
}

// -----

func.func @await_indices(%done: memref<?xi32>, %i: index, %count: i32) {
  // expected-error @+1 {{'hopper.await_added' op expected an index for each of 1 dimensions but got 2}}
  hopper.await_added %done[%i, %i] is %count : memref<?xi32>
  return
}

// -----

func.func @first_indices(%order: memref<?x?xi32>, %i: index, %seen: i32) {
  // expected-error @+1 {{'hopper.take_first' op expected an index for each of 2 dimensions but got 1}}
  %first = hopper.take_first %order[%i] seen %seen : memref<?x?xi32>
  return
}

// -----

func.func @clear_elements(%sums: memref<?x128xf32>, %i: index) {
  // expected-error @+1 {{'hopper.clear' op expected a multiple of 128 elements but got 100}}
  hopper.clear %sums[%i, %i] elements 100 : memref<?x128xf32>
  return
}

// -----

func.func @clear_type(%sums: memref<?x128xf16>, %i: index) {
  // expected-error @+1 {{'hopper.clear' op expected a contiguous f32 target but got 'memref<?x128xf16>'}}
  hopper.clear %sums[%i, %i] elements 128 : memref<?x128xf16>
  return
}

// -----

func.func @warp_arrive_memory(%bars: memref<4xi64>, %i: index) {
  // expected-error @+1 {{'hopper.warp_arrive' op expected}}
  hopper.warp_arrive %bars[%i] : memref<4xi64>
  return
}

// -----

func.func @nothing() {
  // expected-error @+1 {{expected one value or more but got none}}
  "hopper.wgmma_wait"() : () -> ()
  return
}

// -----

func.func @pending(%x: vector<32xf32>) {
  // expected-error @+1 {{expected 'pending' of 0 or more but got -1}}
  %0 = hopper.wgmma_wait %x {pending = -1} : vector<32xf32>
  return
}

// -----

func.func @pairs(%x: vector<3xf16>) {
  // expected-error @+1 {{expected a multiple of 2 elements of 16 bits but got 'vector<3xf16>'}}
  %0 = hopper.wgmma_wait %x : vector<3xf16>
  return
}

// -----

func.func @mixed_wait(%x: vector<32xf32>, %y: vector<64x64xf32>) {
  // expected-error @+1 {{expected all vectors to be whole tiles or all to be one thread's part but got 'vector<32xf32>' and 'vector<64x64xf32>'}}
  %0:2 = hopper.wgmma_wait %x, %y : vector<32xf32>, vector<64x64xf32>
  return
}

// -----

func.func @store_no_tile(%m: !hopper.tensor_map<64x64xf16>, %t: memref<2x64x64xf16>, %i: index) {
  // expected-error @+1 {{expected 'tile' to be a contiguous tile in shared memory, of panels x rows x 16, 32 or 64 elements of f16 or bf16, or 32, 64 or 128 elements of 8 bits, with a multiple of 8 rows if there are several panels, of 262144 bytes at most but got 'memref<2x64x64xf16>'}}
  hopper.tma_store %t to %m[%i, %i] : memref<2x64x64xf16> to !hopper.tensor_map<64x64xf16>
  return
}

// -----

!tile = memref<2x64x64xf16, #gpu.address_space<workgroup>>
func.func @store_box(%m: !hopper.tensor_map<80x64xf16>, %t: !tile, %i: index) {
  // expected-error @+1 {{expected the box of '!hopper.tensor_map<80x64xf16>' to be a panel of the tile but got 'memref<2x64x64xf16, #gpu.address_space<workgroup>>'}}
  hopper.tma_store %t to %m[%i, %i] : !tile to !hopper.tensor_map<80x64xf16>
  return
}

// -----

!tile = memref<2x64x64xf16, #gpu.address_space<workgroup>>
func.func @store_box_columns(%m: !hopper.tensor_map<64x32xf16>, %t: !tile, %i: index) {
  // expected-error @+1 {{expected the box of '!hopper.tensor_map<64x32xf16>' to be a panel of the tile but got 'memref<2x64x64xf16, #gpu.address_space<workgroup>>'}}
  hopper.tma_store %t to %m[%i, %i] : !tile to !hopper.tensor_map<64x32xf16>
  return
}

// -----

!tile = memref<2x64x64xf16, #gpu.address_space<workgroup>>
func.func @store_box_element(%m: !hopper.tensor_map<64x64xbf16>, %t: !tile, %i: index) {
  // expected-error @+1 {{expected the box of '!hopper.tensor_map<64x64xbf16>' to be a panel of the tile but got 'memref<2x64x64xf16, #gpu.address_space<workgroup>>'}}
  hopper.tma_store %t to %m[%i, %i] : !tile to !hopper.tensor_map<64x64xbf16>
  return
}

// -----

!tile = memref<2x64x64xf16, #gpu.address_space<workgroup>>
func.func @store_coordinates(%m: !hopper.tensor_map<64x64xf16>, %t: !tile, %i: index) {
  // expected-error @+1 {{expected 2 to 5 coordinates but got 1}}
  hopper.tma_store %t to %m[%i] : !tile to !hopper.tensor_map<64x64xf16>
  return
}

// -----

!tile = memref<2x64x64xf16, #gpu.address_space<workgroup>>
func.func @store_six_coordinates(%m: !hopper.tensor_map<64x64xf16>, %t: !tile, %i: index) {
  // expected-error @+1 {{expected 2 to 5 coordinates but got 6}}
  hopper.tma_store %t to %m[%i, %i, %i, %i, %i, %i] : !tile to !hopper.tensor_map<64x64xf16>
  return
}

// -----

func.func @load_tile_memory(%t: memref<2x64x64xf16>) {
  // expected-error @+1 {{expected 'tile' to be a contiguous tile in shared memory, of panels x rows x 16, 32 or 64 elements of f16 or bf16, or 32, 64 or 128 elements of 8 bits, with a multiple of 8 rows if there are several panels, of 262144 bytes at most but got 'memref<2x64x64xf16>'}}
  %0 = hopper.load_tile %t : memref<2x64x64xf16> -> vector<64x128xf16>
  return
}

// -----

!tile = memref<2x64x64xf16, #gpu.address_space<workgroup>>
func.func @load_tile_rows(%t: !tile) {
  // expected-error @+1 {{expected a vector with all rows and the leading columns of the tile 'memref<2x64x64xf16, #gpu.address_space<workgroup>>' but got 'vector<32x128xf16>'}}
  %0 = hopper.load_tile %t : !tile -> vector<32x128xf16>
  return
}

// -----

func.func @store_tile_memory(%x: vector<64x128xf16>, %t: memref<2x64x64xf16>) {
  // expected-error @+1 {{expected 'tile' to be a contiguous tile in shared memory, of panels x rows x 16, 32 or 64 elements of f16 or bf16, or 32, 64 or 128 elements of 8 bits, with a multiple of 8 rows if there are several panels, of 262144 bytes at most but got 'memref<2x64x64xf16>'}}
  hopper.store_tile %x to %t : vector<64x128xf16>, memref<2x64x64xf16>
  return
}

// -----

func.func @store_part_memory(%x: vector<64xf16>, %t: memref<2x64x64xf16>) {
  // expected-error @+1 {{expected 'tile' to be a contiguous tile in shared memory, of panels x rows x 16, 32 or 64 elements of f16 or bf16, or 32, 64 or 128 elements of 8 bits, with a multiple of 8 rows if there are several panels, of 262144 bytes at most but got 'memref<2x64x64xf16>'}}
  hopper.store_tile %x to %t : vector<64xf16>, memref<2x64x64xf16>
  return
}

// -----

!tile = memref<2x64x64xf16, #gpu.address_space<workgroup>>
func.func @read_tile_rows(%t: !tile) {
  // expected-error @+1 {{expected a vector with all rows and the leading columns of the tile 'memref<2x64x64xf16, #gpu.address_space<workgroup>>' but got 'vector<32x128xf16>'}}
  %0 = hopper.read_tile %t : !tile -> vector<32x128xf16>
  return
}

// -----

!tile = memref<2x64x64xf16, #gpu.address_space<workgroup>>
func.func @read_part_multiple(%t: !tile) {
  // expected-error @+1 {{expected one thread's part of 64 rows and a multiple of 16 leading columns of the tile 'memref<2x64x64xf16, #gpu.address_space<workgroup>>' but got 'vector<12xf16>'}}
  %0 = hopper.read_tile %t : !tile -> vector<12xf16>
  return
}

// -----

!tile = memref<2x64x64xf16, #gpu.address_space<workgroup>>
func.func @read_from_between(%t: !tile) {
  // expected-error @+1 {{'hopper.read_tile' op expected 'from' to be a multiple of 16 from 0 to 112, for 16 of 128 columns, but got 72}}
  %0 = hopper.read_tile %t from 72 : !tile -> vector<8xf16>
  return
}

// -----

!tile = memref<2x64x64xf16, #gpu.address_space<workgroup>>
func.func @read_from_below(%t: !tile) {
  // expected-error @+1 {{'hopper.read_tile' op expected 'from' to be a multiple of 16 from 0 to 112, for 16 of 128 columns, but got -16}}
  %0 = hopper.read_tile %t from -16 : !tile -> vector<8xf16>
  return
}

// -----

!tile = memref<2x64x64xf16, #gpu.address_space<workgroup>>
func.func @read_from_past_end(%t: !tile) {
  // expected-error @+1 {{'hopper.read_tile' op expected 'from' to be a multiple of 16 from 0 to 80, for 48 of 128 columns, but got 96}}
  %0 = hopper.read_tile %t from 96 : !tile -> vector<24xf16>
  return
}

// -----

!tile = memref<2x64x64xf16, #gpu.address_space<workgroup>>
func.func @read_tile_from_past_end(%t: !tile) {
  // expected-error @+1 {{'hopper.read_tile' op expected 'from' to be a multiple of 16 from 0 to 64, for 64 of 128 columns, but got 80}}
  %0 = hopper.read_tile %t from 80 : !tile -> vector<64x64xf16>
  return
}

// -----

// 64 rows are a group's, 16 a warp's.
!tile = memref<2x32x64xf16, #gpu.address_space<workgroup>>
func.func @read_part_rows(%t: !tile) {
  // expected-error @+1 {{expected one thread's part of 64 rows and a multiple of 16 leading columns of the tile 'memref<2x32x64xf16, #gpu.address_space<workgroup>>' but got 'vector<8xf16>'}}
  %0 = hopper.read_tile %t : !tile -> vector<8xf16>
  return
}

// -----

// What is written is a group's.
!tile = memref<2x16x64xf16, #gpu.address_space<workgroup>>
func.func @store_part_rows(%x: vector<8xf16>, %t: !tile) {
  // expected-error @+1 {{expected one thread's part of 64 rows and a multiple of 16 leading columns of the tile 'memref<2x16x64xf16, #gpu.address_space<workgroup>>' but got 'vector<8xf16>'}}
  hopper.store_tile %x to %t : vector<8xf16>, !tile
  return
}

// -----

!tile = memref<2x64x64xf16, #gpu.address_space<workgroup>>
func.func @store_tile_rows(%x: vector<32x128xf16>, %t: !tile) {
  // expected-error @+1 {{expected a vector with all rows and the leading columns of the tile 'memref<2x64x64xf16, #gpu.address_space<workgroup>>' but got 'vector<32x128xf16>'}}
  hopper.store_tile %x to %t : vector<32x128xf16>, !tile
  return
}

// -----

!tile = memref<2x64x64xf16, #gpu.address_space<workgroup>>
func.func @store_tile_columns(%x: vector<64x144xf16>, %t: !tile) {
  // expected-error @+1 {{expected a vector with all rows and the leading columns of the tile 'memref<2x64x64xf16, #gpu.address_space<workgroup>>' but got 'vector<64x144xf16>'}}
  hopper.store_tile %x to %t : vector<64x144xf16>, !tile
  return
}

// -----

!tile = memref<2x64x64xf16, #gpu.address_space<workgroup>>
func.func @store_tile_element(%x: vector<64x128xbf16>, %t: !tile) {
  // expected-error @+1 {{expected a vector with all rows and the leading columns of the tile 'memref<2x64x64xf16, #gpu.address_space<workgroup>>' but got 'vector<64x128xbf16>'}}
  hopper.store_tile %x to %t : vector<64x128xbf16>, !tile
  return
}

// -----

func.func @store_tile_of_80(%x: vector<80x64xf16>, %t: memref<1x80x64xf16, #gpu.address_space<workgroup>>) {
  // expected-error @+1 {{expected a multiple of 64 rows but got 'vector<80x64xf16>'}}
  hopper.store_tile %x to %t : vector<80x64xf16>, memref<1x80x64xf16, #gpu.address_space<workgroup>>
  return
}

// -----

!tile = memref<2x64x64xf16, #gpu.address_space<workgroup>>
func.func @store_tile_multiple(%x: vector<64x24xf16>, %t: !tile) {
  // expected-error @+1 {{expected columns in multiples of 16 but got 'vector<64x24xf16>'}}
  hopper.store_tile %x to %t : vector<64x24xf16>, !tile
  return
}

// -----

!tile = memref<2x64x64xf16, #gpu.address_space<workgroup>>
func.func @store_part_multiple(%x: vector<12xf16>, %t: !tile) {
  // expected-error @+1 {{expected one thread's part of 64 rows and a multiple of 16 leading columns of the tile 'memref<2x64x64xf16, #gpu.address_space<workgroup>>' but got 'vector<12xf16>'}}
  hopper.store_tile %x to %t : vector<12xf16>, !tile
  return
}

// -----

!tile = memref<2x64x64xf16, #gpu.address_space<workgroup>>
func.func @store_part_columns(%x: vector<72xf16>, %t: !tile) {
  // expected-error @+1 {{expected one thread's part of 64 rows and a multiple of 16 leading columns of the tile 'memref<2x64x64xf16, #gpu.address_space<workgroup>>' but got 'vector<72xf16>'}}
  hopper.store_tile %x to %t : vector<72xf16>, !tile
  return
}

// -----

!tile = memref<2x64x64xf16, #gpu.address_space<workgroup>>
func.func @store_part_element(%x: vector<64xbf16>, %t: !tile) {
  // expected-error @+1 {{expected one thread's part of 64 rows and a multiple of 16 leading columns of the tile 'memref<2x64x64xf16, #gpu.address_space<workgroup>>' but got 'vector<64xbf16>'}}
  hopper.store_tile %x to %t : vector<64xbf16>, !tile
  return
}

// -----

!tile = memref<2x64x64xf16, #gpu.address_space<workgroup>>
func.func @store_part_dimensions(%x: vector<1x64x128xf16>, %t: !tile) {
  // expected-error @+1 {{expected one thread's part of 64 rows and a multiple of 16 leading columns of the tile 'memref<2x64x64xf16, #gpu.address_space<workgroup>>' but got 'vector<1x64x128xf16>'}}
  hopper.store_tile %x to %t : vector<1x64x128xf16>, !tile
  return
}

// -----

func.func @store_part_of_80(%x: vector<32xf16>, %t: memref<1x80x64xf16, #gpu.address_space<workgroup>>) {
  // expected-error @+1 {{expected one thread's part of 64 rows and a multiple of 16 leading columns of the tile 'memref<1x80x64xf16, #gpu.address_space<workgroup>>' but got 'vector<32xf16>'}}
  hopper.store_tile %x to %t : vector<32xf16>, memref<1x80x64xf16, #gpu.address_space<workgroup>>
  return
}

// -----

!bars = memref<4xi64, #gpu.address_space<workgroup>>
!tile = memref<2x80x64xf16, #gpu.address_space<workgroup>>
func.func @panels(%m: !hopper.tensor_map<80x64xf16>, %t: !tile, %b: !bars, %i: index) {
  // expected-error @+1 {{expected up to 2 panels, as the tile has, but got 3}}
  hopper.tma_load %m[%i, %i] to %t, %b[%i] panels 3 : !hopper.tensor_map<80x64xf16> to !tile, !bars
  return
}

// -----

// A tile of more bytes than an int64_t counts.
!tile = memref<9223372036854775807x8x64xf16, #gpu.address_space<workgroup>>
func.func @read_huge(%t: !tile) {
  // expected-error @+1 {{with a multiple of 8 rows if there are several panels, of 262144 bytes at most but got 'memref<9223372036854775807x8x64xf16, #gpu.address_space<workgroup>>'}}
  %x = hopper.read_tile %t : !tile -> vector<32xf16>
  return
}

// -----

!tile = memref<2x64x64xf16, #gpu.address_space<workgroup>>
func.func @read_huge_part(%t: !tile) {
  // expected-error @+1 {{expected one thread's part of 64 rows and a multiple of 16 leading columns of the tile 'memref<2x64x64xf16, #gpu.address_space<workgroup>>' but got 'vector<9223372036854775800xf16>'}}
  %x = hopper.read_tile %t : !tile -> vector<9223372036854775800xf16>
  return
}

// -----

// Generic text says how many values each operand has.
func.func @segments(%a: memref<2x64x64xf16, #gpu.address_space<workgroup>>, %b: memref<2x80x64xf16, #gpu.address_space<workgroup>>) {
  // expected-error @+1 {{expected 1 operand 'b' in 'operandSegmentSizes' but got 0}}
  %0 = "hopper.wgmma"(%a, %b) <{operandSegmentSizes = array<i32: 1, 1, 0, 0>}> : (memref<2x64x64xf16, #gpu.address_space<workgroup>>, memref<2x80x64xf16, #gpu.address_space<workgroup>>) -> vector<64x80xf32>
  return
}

// -----

func.func @segments(%ring: !hopper.ring<3x2x80x64xf16>, %i: index, %map: !hopper.tensor_map<80x64xf16>) {
  // expected-error @+1 {{expected 1 operand 'ring' in 'operandSegmentSizes' but got 2}}
  "hopper.ring_put"(%ring, %ring, %i, %map, %i, %i, %i, %i) <{operandSegmentSizes = array<i32: 2, 1, 0, 1, 4, 0, 0>}> : (!hopper.ring<3x2x80x64xf16>, !hopper.ring<3x2x80x64xf16>, index, !hopper.tensor_map<80x64xf16>, index, index, index, index) -> ()
  return
}

// -----

func.func @segments(%s: memref<8x1024xf32, #gpu.address_space<workgroup>>, %i: index) {
  // expected-error @+1 {{expected 1 operand 'target' in 'operandSegmentSizes' but got 0}}
  "hopper.add_staged"(%s, %i, %i, %i, %i) <{operandSegmentSizes = array<i32: 1, 0, 4, 0>}> : (memref<8x1024xf32, #gpu.address_space<workgroup>>, index, index, index, index) -> ()
  return
}

// -----

func.func @segments(%v: vector<64x128xf32>, %s: memref<8x1024xf32, #gpu.address_space<workgroup>>, %t: memref<?x?x?x128xf32>, %i: index) {
  // expected-error @+1 {{expected 1 operand 'staging' in 'operandSegmentSizes' but got 0}}
  "hopper.add_tile"(%v, %t, %i, %i, %i, %i) <{operandSegmentSizes = array<i32: 1, 0, 1, 4, 0>}> : (vector<64x128xf32>, memref<?x?x?x128xf32>, index, index, index, index) -> ()
  return
}

// -----

!t = memref<1x64x128xf8E4M3FN, #gpu.address_space<workgroup>>
func.func @f8_transposed(%a: !t, %b: !t) {
  // expected-error @+1 {{expected neither transposed operands nor 'first' with 'f8E4M3FN' but got one}}
  %d = hopper.wgmma %a, %b transposed depth(64) : !t, !t -> vector<64x128xf32>
  return
}

// -----

!t = memref<1x64x128xf8E4M3FN, #gpu.address_space<workgroup>>
func.func @f8_depth(%a: !t, %b: !t) {
  // expected-error @+1 {{expected a contraction over a multiple of 32 but got 48}}
  %d = hopper.wgmma %a, %b depth(48) : !t, !t -> vector<64x64xf32>
  return
}

// -----

!t = memref<1x64x128xi8, #gpu.address_space<workgroup>>
func.func @i8_product(%a: !t, %b: !t) {
  // expected-error @+1 {{expected elements of f16, bf16, f8E4M3FN or f8E5M2 but got 'i8'}}
  %d = hopper.wgmma %a, %b : !t, !t -> vector<64x64xf32>
  return
}

// -----

func.func @f8_registers(%x: vector<12xf8E5M2>) {
  // expected-error @+1 {{expected a multiple of 8 elements of 8 bits but got 'vector<12xf8E5M2>'}}
  %0 = hopper.wgmma_wait %x : vector<12xf8E5M2>
  return
}

// -----

func.func @transpose_types(%s: memref<1x64x64xf16, #gpu.address_space<workgroup>>, %i: i32) {
  // expected-error @+1 {{expected tiles of the same elements of 8 bits but got}}
  hopper.transpose %s[%i, %i] to %s : memref<1x64x64xf16, #gpu.address_space<workgroup>>, memref<1x64x64xf16, #gpu.address_space<workgroup>>
  return
}

// -----

func.func @transpose_source(%s: memref<1x24x64xf8E5M2, #gpu.address_space<workgroup>>, %t: memref<1x64x32xf8E5M2, #gpu.address_space<workgroup>>, %i: i32) {
  // expected-error @+1 {{expected a source with a multiple of 16 rows and of 32 columns but got 'memref<1x24x64xf8E5M2}}
  hopper.transpose %s[%i, %i] to %t : memref<1x24x64xf8E5M2, #gpu.address_space<workgroup>>, memref<1x64x32xf8E5M2, #gpu.address_space<workgroup>>
  return
}

// -----

func.func @transpose_target(%s: memref<1x128x64xf8E5M2, #gpu.address_space<workgroup>>, %t: memref<1x64x64xf8E5M2, #gpu.address_space<workgroup>>, %i: i32) {
  // expected-error @+1 {{expected a target of at most 64 rows, a multiple of 32, and 128 columns but got 'memref<1x64x64xf8E5M2}}
  hopper.transpose %s[%i, %i] to %t : memref<1x128x64xf8E5M2, #gpu.address_space<workgroup>>, memref<1x64x64xf8E5M2, #gpu.address_space<workgroup>>
  return
}

// -----

func.func @transpose_bounds(%s: memref<1x64x64xf8E5M2, #gpu.address_space<workgroup>>, %i: i32) {
  // expected-error @+1 {{expected both ends of 'rows' but got one}}
  "hopper.transpose"(%s, %i, %i, %i, %s) <{operandSegmentSizes = array<i32: 1, 1, 1, 1, 0, 1>}> : (memref<1x64x64xf8E5M2, #gpu.address_space<workgroup>>, i32, i32, i32, memref<1x64x64xf8E5M2, #gpu.address_space<workgroup>>) -> ()
  return
}
