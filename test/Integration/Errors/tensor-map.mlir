// REQUIRES: fakecuda
// What the tensor copy unit cannot take is found when a launch makes its map.

// DEFINE: %{run} = env FLASHATTN_CUDA_DRIVER=%fakecuda flash-run %s --device=cuda --chip=sm_90a

// RUN: %{run} --input=200x72xf16=ones
// RUN: not %{run} --input=200x68xf16=ones 2>&1 | FileCheck %s
// CHECK: error: cuda:0 cannot make a tensor map: expected a stride of dimension 0 that is a multiple of 8 elements from 0 to below 2^39 but got 68

// RUN: not env FAKE_CUDA_FAIL=cuTensorMapEncodeTiled=1 %{run} --input=200x72xf16=ones 2>&1 | FileCheck %s --check-prefix=DRIVER
// DRIVER: error: cuda:0 cannot make a tensor map: CUDA_ERROR_INVALID_VALUE

func.func @load(%x: memref<?x?xf16>) {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %c128 = arith.constant 128 : index
  %bytes = arith.constant 10248 : i32
  %map = hopper.make_tensor_map %x row_dim(0) : memref<?x?xf16> to !hopper.tensor_map<80x64xf16>
  gpu.launch blocks(%bx, %by, %bz) in (%gx = %c1, %gy = %c1, %gz = %c1)
      threads(%tx, %ty, %tz) in (%sx = %c128, %sy = %c1, %sz = %c1)
      dynamic_shared_memory_size %bytes {
    %pool = gpu.dynamic_shared_memory : memref<?xi8, #gpu.address_space<workgroup>>
    %tile = memref.view %pool[%c0][] : memref<?xi8, #gpu.address_space<workgroup>>
        to memref<1x80x64xf16, #gpu.address_space<workgroup>>
    %c10240 = arith.constant 10240 : index
    %bars = memref.view %pool[%c10240][] : memref<?xi8, #gpu.address_space<workgroup>>
        to memref<1xi64, #gpu.address_space<workgroup>>
    hopper.tma_load %map[%c0, %c0] to %tile, %bars[%c0]
        : !hopper.tensor_map<80x64xf16> to memref<1x80x64xf16, #gpu.address_space<workgroup>>,
          memref<1xi64, #gpu.address_space<workgroup>>
    gpu.terminator
  }
  return
}
