// RUN: flash-opt %s -convert-hopper-to-nvvm -canonicalize -cse | FileCheck %s

func.func @store_128(%x: vector<48xf16>, %t: memref<2x64x64xf16, #gpu.address_space<workgroup>>) {
  hopper.store_tile %x to %t : vector<48xf16>, memref<2x64x64xf16, #gpu.address_space<workgroup>>
  return
}
func.func @store_64(%x: vector<16xbf16>, %t: memref<1x64x32xbf16, #gpu.address_space<workgroup>>) {
  hopper.store_tile %x to %t : vector<16xbf16>, memref<1x64x32xbf16, #gpu.address_space<workgroup>>
  return
}
func.func @store_32(%x: vector<16xf16>, %t: memref<2x64x16xf16, #gpu.address_space<workgroup>>) {
  hopper.store_tile %x to %t : vector<16xf16>, memref<2x64x16xf16, #gpu.address_space<workgroup>>
  return
}
func.func @tma_store(%m: !hopper.tensor_map<64x64xf16>, %t: memref<2x64x64xf16, #gpu.address_space<workgroup>>, %row: index, %col: index) {
  hopper.tma_store %t to %m[%row, %col] : memref<2x64x64xf16, #gpu.address_space<workgroup>> to !hopper.tensor_map<64x64xf16>
  return
}
