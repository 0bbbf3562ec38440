// What a model of a GPU does not take.

// RUN: not flash-run %s --function=tile --device=model:sm_70 2>&1 | FileCheck %s --check-prefix=CHIP
// CHIP: error: --device=model: expected chip 'sm_80', {{.*}} but got 'sm_70'
// RUN: not flash-run %s --function=tile --device=model:cpu 2>&1 | FileCheck %s --check-prefix=CPU
// CPU: error: --device=model: expected chip 'sm_80', {{.*}} but got 'cpu'
// RUN: not flash-run %s --function=tile --device=model:sm_80 --model-seeds=0 2>&1 | FileCheck %s --check-prefix=SEEDS
// SEEDS: error: expected --model-seeds to be from 1 to 1000000 but got 0
// RUN: not flash-run %s --function=tile --device=model:sm_80 --model-seed=1000001 2>&1 | FileCheck %s --check-prefix=SEED
// SEED: error: expected --model-seed to be from 1 to 1000000 but got 1000001
// RUN: not flash-run %s --function=tile --device=model:sm_80 --model-multiprocessors=1001 2>&1 | FileCheck %s --check-prefix=MULTIPROCESSORS
// MULTIPROCESSORS: error: expected --model-multiprocessors to be from 1 to 1000 but got 1001
// RUN: not flash-run %s --function=tile --device=cpu --model-multiprocessors=2 2>&1 | FileCheck %s --check-prefix=NO-MODEL
// NO-MODEL: error: --model-multiprocessors: expected --device=model:sm_XX but got --device=cpu
// RUN: not flash-run %s --function=tile --device=cpu --model-seeds=2 2>&1 | FileCheck %s --check-prefix=DEVICE
// DEVICE: error: --model-seeds: expected --device=model:sm_XX but got --device=cpu
// RUN: not flash-run %s --function=tile --device=cpu --model-statistics 2>&1 | FileCheck %s --check-prefix=COUNTED
// COUNTED: error: --model-statistics: expected --device=model:sm_XX but got --device=cpu
// RUN: not flash-run %s --function=tile --device=model:sm_80 --model-trace=%t.missing/trace.json 2>&1 | FileCheck %s --check-prefix=TRACE
// TRACE: error: cannot write '{{.*}}trace.json': 
// RUN: not flash-run %s --function=tile --device=model:sm_80 --chip=sm_80 2>&1 | FileCheck %s --check-prefix=TWICE
// TWICE: error: --chip: expected no --chip with --device=model:sm_80, which determines the chip, but got one
// RUN: not flash-run %s --function=tile --device=model:sm_80 --bench 2>&1 | FileCheck %s --check-prefix=BENCH
// BENCH: error: --bench: expected a real device to time but got --device=model:sm_80
// RUN: not flash-run %s --function=tile --device=model:sm_80 --tune 2>&1 | FileCheck %s --check-prefix=TUNE
// TUNE: error: --tune: expected a real device to time but got --device=model:sm_80
// RUN: not flash-numbers --features=1 --interleavings=2 2>&1 | FileCheck %s --check-prefix=NUMBERS
// NUMBERS: error: expected --device=model:sm_XX with --interleavings

// RUN: not flash-run %s --function=many_blocks --device=model:sm_80 2>&1 | FileCheck %s --check-prefix=BLOCKS
// BLOCKS: error: model:sm_80: expected at most 65536 blocks in a grid, {{.*}}, but got 100000: take a smaller problem
func.func @many_blocks(%out: memref<32xf32>) {
  %c1 = arith.constant 1 : index
  %c32 = arith.constant 32 : index
  %blocks = arith.constant 100000 : index
  gpu.launch blocks(%bx, %by, %bz) in (%gx = %blocks, %gy = %c1, %gz = %c1)
             threads(%tx, %ty, %tz) in (%sx = %c32, %sy = %c1, %sz = %c1) {
    %zero = arith.constant 0.0 : f32
    memref.store %zero, %out[%tx] : memref<32xf32>
    gpu.terminator
  }
  return
}

// RUN: not flash-run %s --function=many_threads --device=model:sm_80 2>&1 | FileCheck %s --check-prefix=THREADS
// THREADS: error: model:sm_80: expected at most 1024 threads in a block but got 2048
func.func @many_threads(%out: memref<32xf32>) {
  %c1 = arith.constant 1 : index
  %threads = arith.constant 2048 : index
  gpu.launch blocks(%bx, %by, %bz) in (%gx = %c1, %gy = %c1, %gz = %c1)
             threads(%tx, %ty, %tz) in (%sx = %threads, %sy = %c1, %sz = %c1) {
    %zero = arith.constant 0.0 : f32
    memref.store %zero, %out[%bx] : memref<32xf32>
    gpu.terminator
  }
  return
}

// RUN: not flash-run %s --function=much_memory --device=model:sm_86 2>&1 | FileCheck %s --check-prefix=SHARED
// SHARED: error: model:sm_86: expected at most 101376 bytes of shared memory in a block but got 131072
func.func @much_memory(%out: memref<32xf32>) {
  %c1 = arith.constant 1 : index
  %c32 = arith.constant 32 : index
  %bytes = arith.constant 131072 : i32
  gpu.launch blocks(%bx, %by, %bz) in (%gx = %c1, %gy = %c1, %gz = %c1)
             threads(%tx, %ty, %tz) in (%sx = %c32, %sy = %c1, %sz = %c1)
             dynamic_shared_memory_size %bytes {
    %zero = arith.constant 0.0 : f32
    memref.store %zero, %out[%tx] : memref<32xf32>
    gpu.terminator
  }
  return
}

// RUN: not flash-run %s --function=no_model --device=model:sm_80 2>&1 | FileCheck %s --check-prefix=OP
// OP: error: 'gpu.printf' op expected an op that the GPU model supports but got 'gpu.printf'
func.func @no_model(%out: memref<32xf32>) {
  %c1 = arith.constant 1 : index
  %c32 = arith.constant 32 : index
  gpu.launch blocks(%bx, %by, %bz) in (%gx = %c1, %gy = %c1, %gz = %c1)
             threads(%tx, %ty, %tz) in (%sx = %c32, %sy = %c1, %sz = %c1) {
    gpu.printf "one"
    gpu.terminator
  }
  return
}

// RUN: flash-run %s --function=tile --device=model:sm_80 --model-seeds=2 --verify | FileCheck %s --check-prefix=TILE
// TILE: device: model:sm_80 (a model on {{.*}})
// TILE: model: 2 interleavings from seed 1, no report
// TILE: verify o: {{.*}}PASS
func.func @tile(%q: tensor<1x1x16x16xf16>) -> tensor<1x1x16x16xf16> {
  %o_init = tensor.empty() : tensor<1x1x16x16xf16>
  %o = flashattn.attention
      ins(%q, %q, %q : tensor<1x1x16x16xf16>, tensor<1x1x16x16xf16>, tensor<1x1x16x16xf16>)
      outs(%o_init : tensor<1x1x16x16xf16>) -> tensor<1x1x16x16xf16>
  return %o : tensor<1x1x16x16xf16>
}
