// RUN: flash-opt %s -split-input-file -verify-diagnostics

// expected-error @+1 {{expected stages, panels, rows and columns but got 3 dimensions}}
func.func private @ring(!hopper.ring<2x80x64xf16>)

// -----

// expected-error @+1 {{expected one stage and panel or more but got 0 and 2}}
func.func private @ring(!hopper.ring<0x2x80x64xf16>)

// -----

// expected-error @+1 {{expected rows that are a multiple of 8 but got 20}}
func.func private @ring(!hopper.ring<3x1x20x64xf16>)

// -----

// expected-error @+1 {{expected 1 to 256 rows but got 264}}
func.func private @ring(!hopper.ring<3x1x264x64xf16>)

// -----

// expected-error @+1 {{expected 16, 32 or 64 columns but got 128}}
func.func private @ring(!hopper.ring<3x1x80x128xf16>)

// -----

// expected-error @+1 {{expected tiles of 262144 bytes at most but got 9223372036854775807 stages of 2 panels of 80x64}}
func.func private @ring(!hopper.ring<9223372036854775807x2x80x64xf16>)

// -----

// expected-error @+1 {{expected element type f16, bf16, f8E4M3FN, f8E5M2 or i8 but got 'f32'}}
func.func private @ring(!hopper.ring<3x1x80x64xf32>)

// -----

!bars = memref<6xi64, #gpu.address_space<workgroup>>
!tiles = memref<2x2x80x64xf16, #gpu.address_space<workgroup>>
func.func @tiles(%t: !tiles, %b: !bars) {
  // expected-error @+1 {{expected tiles of type 'memref<3x2x80x64xf16, #gpu.address_space<workgroup>>' but got 'memref<2x2x80x64xf16, #gpu.address_space<workgroup>>'}}
  %r = hopper.make_ring %t, %b[0] : !tiles, !bars to !hopper.ring<3x2x80x64xf16>
  return
}

// -----

!tiles = memref<3x2x80x64xf16, #gpu.address_space<workgroup>>
func.func @barriers(%t: !tiles, %b: memref<6xi64>) {
  // expected-error @+1 {{expected barriers to be a one-dimensional memref of i64 in workgroup memory but got 'memref<6xi64>'}}
  %r = hopper.make_ring %t, %b[0] : !tiles, memref<6xi64> to !hopper.ring<3x2x80x64xf16>
  return
}

// -----

!bars = memref<6xi64, #gpu.address_space<workgroup>>
!tiles = memref<3x2x80x64xf16, #gpu.address_space<workgroup>>
func.func @barriers_behind_all(%t: !tiles, %b: !bars) {
  // expected-error @+1 {{expected 6 barriers from number 9223372036854775807 on but got 'memref<6xi64, #gpu.address_space<workgroup>>'}}
  %r = hopper.make_ring %t, %b[9223372036854775807] : !tiles, !bars to !hopper.ring<3x2x80x64xf16>
  return
}

// -----

!bars = memref<6xi64, #gpu.address_space<workgroup>>
!tiles = memref<3x2x80x64xf16, #gpu.address_space<workgroup>>
func.func @few_barriers(%t: !tiles, %b: !bars) {
  // expected-error @+1 {{expected 6 barriers from number 1 on but got 'memref<6xi64, #gpu.address_space<workgroup>>'}}
  %r = hopper.make_ring %t, %b[1] : !tiles, !bars to !hopper.ring<3x2x80x64xf16>
  return
}

// -----

func.func @consumers(%r: !hopper.ring<3x2x80x64xf16>) {
  // expected-error @+1 {{expected 'consumers' from 1 to 1048575 but got 0}}
  hopper.ring_init %r, 0 : !hopper.ring<3x2x80x64xf16>
  return
}

// -----

func.func @box(%r: !hopper.ring<3x2x80x64xf16>, %m: !hopper.tensor_map<64x64xf16>, %i: index) {
  // expected-error @+1 {{expected the box of '!hopper.tensor_map<64x64xf16>' to be a panel of a tile of '!hopper.ring<3x2x80x64xf16>'}}
  hopper.ring_put %r at %i from %m[%i, %i] : !hopper.ring<3x2x80x64xf16>, !hopper.tensor_map<64x64xf16>
  return
}

// -----

func.func @coordinates(%r: !hopper.ring<3x2x80x64xf16>, %m: !hopper.tensor_map<80x64xf16>, %i: index) {
  // expected-error @+1 {{expected 2 to 5 coordinates but got 1}}
  hopper.ring_put %r at %i from %m[%i] : !hopper.ring<3x2x80x64xf16>, !hopper.tensor_map<80x64xf16>
  return
}

// -----

func.func @threads(%id: i32) {
  // expected-error @+1 {{expected a multiple of 32 up to 1024 threads but got 100}}
  hopper.group_barrier %id threads(100)
  return
}

// -----

func.func @arrive_threads(%id: i32) {
  // expected-error @+1 {{expected a multiple of 32 up to 1024 threads but got 1056}}
  hopper.group_arrive %id threads(1056)
  return
}

// -----

func.func @registers() {
  // expected-error @+1 {{expected a multiple of 8 from 24 to 256 as registers but got 100}}
  hopper.set_registers increase 100 blocks(1)
  return
}

// -----

func.func @blocks() {
  // expected-error @+1 {{expected 1 to 32 blocks but got 0}}
  hopper.set_registers decrease 24 blocks(0)
  return
}

// -----

func.func @row_places(%ring: !hopper.ring<3x2x80x64xf16>, %s: memref<?xf32>, %p: memref<2x64xf32, #gpu.address_space<workgroup>>, %i: index) {
  // expected-error @+1 {{expected 3 buffers, the stages of the ring, but got 2}}
  hopper.ring_put_row %ring at %i from %s[%i] to %p : !hopper.ring<3x2x80x64xf16>, memref<?xf32>, memref<2x64xf32, #gpu.address_space<workgroup>>
  return
}

// -----

func.func @too_few_pieces(%ring: !hopper.ring<3x1x48x64xf16>, %m: !hopper.tensor_map<8x64xf16>, %i: index) {
  // expected-error @+1 {{expected the box of '!hopper.tensor_map<8x64xf16>' to be one of 2 pieces of a panel of a tile of '!hopper.ring<3x1x48x64xf16>'}}
  hopper.ring_put %ring at %i from %m[%i, %i] pieces(%i, %i) along 0 : !hopper.ring<3x1x48x64xf16>, !hopper.tensor_map<8x64xf16>
  return
}

// -----

func.func @along(%ring: !hopper.ring<3x1x16x64xf16>, %m: !hopper.tensor_map<8x64xf16>, %i: index) {
  // expected-error @+1 {{expected 'along' only with 'pieces', from 0 to 1}}
  hopper.ring_put %ring at %i from %m[%i, %i] pieces(%i, %i) along 2 : !hopper.ring<3x1x16x64xf16>, !hopper.tensor_map<8x64xf16>
  return
}

// -----

func.func @too_few_pages(%ring: !hopper.ring<3x1x16x64xf16>, %m: !hopper.tensor_map<8x64xf16>, %i: index) {
  // expected-error @+1 {{expected a page for each of 2 pieces along another dimension than 0 but got 1 pages}}
  hopper.ring_put %ring at %i from %m[%i, %i, %i] pieces(%i, %i) along 1 pages(%i) : !hopper.ring<3x1x16x64xf16>, !hopper.tensor_map<8x64xf16>
  return
}

// -----

func.func @pages_along_rows(%ring: !hopper.ring<3x1x16x64xf16>, %m: !hopper.tensor_map<8x64xf16>, %i: index) {
  // expected-error @+1 {{expected a page for each of 2 pieces along another dimension than 0 but got 2 pages}}
  hopper.ring_put %ring at %i from %m[%i, %i, %i] pieces(%i, %i) along 0 pages(%i, %i) : !hopper.ring<3x1x16x64xf16>, !hopper.tensor_map<8x64xf16>
  return
}
