// RUN: flash-opt %s -convert-hopper-to-nvvm -split-input-file -verify-diagnostics

func.func @whole_tiles(%a: memref<1x64x64xf16, #gpu.address_space<workgroup>>) {
  // expected-error @+1 {{expected vectors distributed to threads but got 'vector<64x64xf32>'}}
  %d = hopper.wgmma %a, %a : memref<1x64x64xf16, #gpu.address_space<workgroup>>,
    memref<1x64x64xf16, #gpu.address_space<workgroup>> -> vector<64x64xf32>
  return
}

// -----

func.func @whole_tile(%x: vector<64x8xf32>) {
  // expected-error @+1 {{expected vectors distributed to threads but got 'vector<64x8xf32>'}}
  %d = hopper.wgmma_wait %x : vector<64x8xf32>
  return
}

// -----

func.func @whole_value(%x: vector<64x64xf16>, %t: memref<1x64x64xf16, #gpu.address_space<workgroup>>) {
  // expected-error @+1 {{expected vectors distributed to threads but got 'vector<64x64xf16>'}}
  hopper.store_tile %x to %t : vector<64x64xf16>, memref<1x64x64xf16, #gpu.address_space<workgroup>>
  return
}

// -----

gpu.module @kernels {
  // expected-error @+1 {{expected kernels with tensor maps to be llvm.func, as convert-gpu-to-nvvm makes them, but got an argument of type '!hopper.tensor_map<80x64xf16>'}}
  gpu.func @kernel(%m: !hopper.tensor_map<80x64xf16>) kernel {
    gpu.return
  }
}

// -----

!bars = memref<4xi64, #gpu.address_space<workgroup>>
func.func @ring(%tiles: memref<2x1x32x64xf16, #gpu.address_space<workgroup>>, %bars: !bars) {
  // expected-error @+1 {{expected no rings; run hopper-expand-rings first}}
  %ring = hopper.make_ring %tiles, %bars[0]
      : memref<2x1x32x64xf16, #gpu.address_space<workgroup>>, !bars to !hopper.ring<2x1x32x64xf16>
  return
}
