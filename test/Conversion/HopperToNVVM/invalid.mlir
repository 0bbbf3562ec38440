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
