// RUN: flash-opt %s -split-input-file -verify-diagnostics -hopper-expand-rings

func.func @argument(%ring: !hopper.ring<3x2x80x64xf16>, %step: index) {
  // expected-error @+1 {{expected a ring of 'hopper.make_ring' but got <block argument> of type '!hopper.ring<3x2x80x64xf16>'}}
  hopper.ring_release %ring at %step : !hopper.ring<3x2x80x64xf16>
  return
}

// -----

!tiles = memref<3x2x80x64xf16, #gpu.address_space<workgroup>>
!bars = memref<6xi64, #gpu.address_space<workgroup>>
func.func @returned(%tiles: !tiles, %bars: !bars) -> !hopper.ring<3x2x80x64xf16> {
  %ring = hopper.make_ring %tiles, %bars[0] : !tiles, !bars to !hopper.ring<3x2x80x64xf16>
  // expected-error @+1 {{expected only hopper ops to use a ring but got 'func.return'}}
  return %ring : !hopper.ring<3x2x80x64xf16>
}
