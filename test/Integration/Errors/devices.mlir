// REQUIRES: fakecuda
// What can go wrong on a CUDA device, each with a message of its own. The driver is a fake one
// over host memory (test/Unit/FakeCUDA.cpp) that fails as the environment says.

// DEFINE: %{run} = flash-run %s --device=cuda --input=64xf32=ones
// DEFINE: %{fake} = env FLASHATTN_CUDA_DRIVER=%fakecuda

// RUN: not env FLASHATTN_CUDA_DRIVER=/nowhere/libcuda.so %{run} 2>&1 | FileCheck %s --check-prefix=LIBRARY
// LIBRARY: error: cannot open the CUDA driver library '/nowhere/libcuda.so': {{.*}}No such file or directory

// RUN: not env FLASHATTN_CUDA_DRIVER=libm.so.6 %{run} 2>&1 | FileCheck %s --check-prefix=SYMBOL
// SYMBOL: error: the CUDA driver library 'libm.so.6' has no function 'cuInit': it is too old, or not a CUDA driver

// RUN: not %{fake} FAKE_CUDA_DRIVER_VERSION=10020 %{run} 2>&1 | FileCheck %s --check-prefix=OLD
// OLD: error: the CUDA driver is too old: expected CUDA 11.0 or newer but got 10.2

// RUN: not %{fake} FAKE_CUDA_DRIVER_VERSION=11040 %{run} 2>&1 | FileCheck %s --check-prefix=PTX
// PTX: error: the CUDA driver is too old for the kernels: they are PTX 8.0 but the driver (CUDA 11.4) takes PTX up to 7.4

// RUN: not %{fake} FAKE_CUDA_FAIL=cuModuleLoadDataEx=222 %{run} 2>&1 | FileCheck %s --check-prefix=PTX2
// PTX2: error: the CUDA driver (CUDA 12.4) is too old for PTX 8.0: CUDA_ERROR_UNSUPPORTED_PTX_VERSION

// RUN: not %{fake} FAKE_CUDA_DEVICES=0 %{run} 2>&1 | FileCheck %s --check-prefix=NO-DEVICE
// RUN: not %{fake} FAKE_CUDA_FAIL=cuInit=100 %{run} 2>&1 | FileCheck %s --check-prefix=NO-DEVICE
// NO-DEVICE: error: the CUDA driver finds no device

// RUN: not %{fake} FAKE_CUDA_FAIL=cuInit=999 %{run} 2>&1 | FileCheck %s --check-prefix=INIT
// INIT: error: cannot initialise the CUDA driver: CUDA error 999

// RUN: not %{fake} %{run} --device=cuda:3 2>&1 | FileCheck %s --check-prefix=ORDINAL
// ORDINAL: error: expected a CUDA device number below 1 but got 3

// RUN: not %{fake} FAKE_CUDA_FAIL=cuDevicePrimaryCtxRetain=2 %{run} 2>&1 | FileCheck %s --check-prefix=CONTEXT
// CONTEXT: error: cuda:0 cannot make a context: CUDA_ERROR_OUT_OF_MEMORY

// RUN: not %{fake} FAKE_CUDA_CAPABILITY=80 %{run} --chip=sm_90 2>&1 | FileCheck %s --check-prefix=CHIP
// CHIP: error: wrong architecture: the kernels are for sm_90 but cuda:0 is sm_80

// An `a` variant runs on its own architecture alone.
// RUN: not %{fake} FAKE_CUDA_CAPABILITY=100 FAKE_CUDA_DRIVER_VERSION=13000 %{run} --chip=sm_90a 2>&1 | FileCheck %s --check-prefix=VARIANT
// VARIANT: error: wrong architecture: the kernels are for sm_90a but cuda:0 is sm_100

// RUN: not %{fake} FAKE_CUDA_FAIL=cuModuleLoadDataEx=209 %{run} 2>&1 | FileCheck %s --check-prefix=NO-BINARY
// NO-BINARY: error: wrong architecture: the kernels do not run on cuda:0, which is sm_90: CUDA_ERROR_NO_BINARY_FOR_GPU

// RUN: not %{fake} FAKE_CUDA_FAIL=cuModuleLoadDataEx=218 FAKE_CUDA_LOG="line 7 is bad" %{run} 2>&1 | FileCheck %s --check-prefix=JIT
// JIT: error: cuda:0 cannot load the kernels: CUDA_ERROR_INVALID_PTX (as the fake driver was told); the driver's compiler says:
// JIT-NEXT: line 7 is bad

// RUN: not %{fake} FAKE_CUDA_FAIL=cuModuleGetFunction=500 %{run} 2>&1 | FileCheck %s --check-prefix=KERNEL
// KERNEL: error: cuda:0 cannot find kernel 'twice_kernel': CUDA_ERROR_NOT_FOUND

// RUN: not %{fake} FAKE_CUDA_STATIC_SHARED=300000 %{run} 2>&1 | FileCheck %s --check-prefix=SHARED
// SHARED: error: shared memory beyond the limit of cuda:0: kernel 'twice_kernel' needs 300000 bytes (300000 static, 0 dynamic) but a block has 232448

// RUN: not %{fake} FAKE_CUDA_MEMORY=1000 %{run} 2>&1 | FileCheck %s --check-prefix=MEMORY
// MEMORY: error: out of memory on cuda:0: needed 8448 bytes but 1000 bytes are free

// RUN: not %{fake} FAKE_CUDA_MAX_THREADS=32 %{run} 2>&1 | FileCheck %s --check-prefix=THREADS
// THREADS: error: launch failure on cuda:0: kernel 'twice_kernel' is given 64 threads per block but its 32 registers per thread allow 32

// RUN: not %{fake} FAKE_CUDA_FAIL=cuLaunchKernel=701 %{run} 2>&1 | FileCheck %s --check-prefix=LAUNCH
// LAUNCH: error: cuda:0 cannot launch kernel 'twice_kernel' (grid 1x1x1, block 64x1x1, 0 bytes of dynamic shared memory): CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES

// RUN: not %{fake} FAKE_CUDA_FAIL=cuMemcpyDtoHAsync=700 %{run} 2>&1 | FileCheck %s --check-prefix=FATAL
// FATAL: error: fatal error on cuda:0: cannot copy to the host: CUDA_ERROR_ILLEGAL_ADDRESS (as the fake driver was told); the device refuses all further work of this process, which must be restarted

// RUN: not %{fake} FAKE_CUDA_FAIL=cuLaunchKernel=719 %{run} 2>&1 | FileCheck %s --check-prefix=FAILED
// FAILED: error: fatal error on cuda:0: cannot launch kernel 'twice_kernel' {{.*}}: CUDA_ERROR_LAUNCH_FAILED

// RUN: not %{fake} %{run} --fuse-projection 2>&1 | FileCheck %s --check-prefix=FUSE
// FUSE: error: expected chip cpu for option fuse-projection but got sm_90

// Where nothing is wrong, the same command works; the fake's kernels leave the poison.
// RUN: %{fake} %{run} --bench=0.01 | FileCheck %s --check-prefix=RUNS
// RUNS: device: cuda:0 (Fake GPU, compute capability 9.0, 4.0 GiB)
// RUNS: output 0: 64xf32, 64 not finite
// RUNS: bench: median {{.*}} ms

// auto takes the GPU where there is one and says why where there is none.
// RUN: %{fake} flash-run %s --device=auto --input=64xf32=ones | FileCheck %s --check-prefix=RUNS-AUTO
// RUNS-AUTO: device: cuda:0
// RUN: not %{fake} FAKE_CUDA_DEVICES=0 flash-run %s --input=64xf32=ones 2>&1 | FileCheck %s --check-prefix=NO-GPU
// NO-GPU-DAG: note: running on the CPU: the CUDA driver finds no device
// NO-GPU-DAG: devices.mlir:[[@LINE+12]]:{{.*}}: error: 'gpu.launch' op needs a GPU: expected a CUDA device but got the CPU

// RUN: %{fake} flash-run --list-devices | FileCheck %s --check-prefix=LIST
// LIST: cpu: {{.*}} threads
// LIST-NEXT: cuda:0: Fake GPU, compute capability 9.0, 4.0 GiB, 132 multiprocessors, 232448 bytes of shared memory per block
// RUN: env FLASHATTN_CUDA_DRIVER=/nowhere/libcuda.so flash-run --list-devices | FileCheck %s --check-prefix=LIST-NONE
// LIST-NONE: cpu: {{.*}} threads
// LIST-NONE-NEXT: no cuda devices: cannot open the CUDA driver library

func.func @twice(%x: memref<?xf32>, %y: memref<64xf32>) {
  %c1 = arith.constant 1 : index
  %c64 = arith.constant 64 : index
  gpu.launch blocks(%bx, %by, %bz) in (%gx = %c1, %gy = %c1, %gz = %c1)
             threads(%tx, %ty, %tz) in (%nx = %c64, %ny = %c1, %nz = %c1) {
    %v = memref.load %x[%tx] : memref<?xf32>
    %w = arith.addf %v, %v : f32
    memref.store %w, %y[%tx] : memref<64xf32>
    gpu.terminator
  }
  return
}
