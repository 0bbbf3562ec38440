// What kernels do on a model, counted: ops by role, bytes through the rings, waits, bank conflicts, and the
// time of the first block as a picture and as a Chrome trace.
//
// RUN: flash-run %s --function=attention --device=model:sm_90a --model-statistics --model-trace=%t.json \
// RUN:   | FileCheck %s --implicit-check-not="bank conflicts {{[1-9]}}"
// CHECK: statistics of kernel 'attention_kernel', 1 blocks:
// Three consumers with a tile of queries each have two products for each of the four tiles of keys.
// CHECK-DAG: hopper.wgmma runs by threads of each warpgroup: 0 1024 1024 1024{{$}}
// CHECK-DAG: hopper.tma_load runs by threads of each warpgroup: 11{{$}}
// CHECK-DAG: hopper.barrier_wait runs by threads of each warpgroup: 8 1152 1152 1152, waits {{[1-9]}}
// Each thread stores 32 elements of its tile two by two: 16 accesses of each of 12 warps.
// CHECK-DAG: hopper.store_tile runs by threads of each warpgroup: 0 128 128 128, bank conflicts 0 in 192 accesses
// A tile of queries has 64 * 64 elements of 2 bytes, one of keys or values twice as many; the rings of the
// latter have two stages, each with a barrier.
// CHECK-DAG: barrier 0 {{ *}}8192 bytes to shared memory
// CHECK-DAG: barrier 2 {{ *}}8192 bytes to shared memory
// CHECK-DAG: barrier 3 {{ *}}32768 bytes to shared memory
// CHECK-DAG: barrier 4 {{ *}}32768 bytes to shared memory
// CHECK-DAG: barrier 7 {{ *}}32768 bytes to shared memory
// CHECK-DAG: barrier 8 {{ *}}32768 bytes to shared memory
// CHECK: block 0, {{[0-9]+}} cycles by the cost table ('#' busy, '.' waiting):
// CHECK-NEXT: warpgroup 0 {{ *}}|{{[#.]+}}|
// CHECK-NEXT: warpgroup 1 {{ *}}|{{[#.]+}}|
// CHECK-NEXT: warpgroup 2 {{ *}}|{{[#.]+}}|
// CHECK-NEXT: warpgroup 3 {{ *}}|{{[#.]+}}|
// CHECK-NEXT: products {{ *}}|{{[#.]+}}|
//
// RUN: %python %S/Inputs/check_trace.py %t.json | FileCheck %s --check-prefix=TRACE
// TRACE: attention_kernel: warpgroup 0, warpgroup 1, warpgroup 2, warpgroup 3, products
// TRACE-NEXT: 24 spans of hopper.wgmma by products
//
// A seed repeats a run, and all that is counted in it.
// RUN: flash-run %s --function=attention --device=model:sm_90a --model-statistics --model-trace=%t-2.json > /dev/null
// RUN: diff %t.json %t-2.json
!t = tensor<1x1x192x64xf16>
!k = tensor<1x1x512x64xf16>
func.func @attention(%q: !t, %k: !k, %v: !k) -> !t {
  %init = tensor.empty() : !t
  %o = flashattn.attention
      schedule(<tile_m = 64, tile_n = 128, stages = 2, dot_type = f16, mapping = hopper<consumers = 3, along = query_tile, registers = 160, producer_registers = 32, rescale_threshold = 15, l2_head_group = 1, lazy_rescale = 1>>)
      ins(%q, %k, %v : !t, !k, !k) outs(%init : !t) -> !t
  return %o : !t
}

// The words of all threads of a warp in one bank take 32 turns, 31 more than one; one word for all takes none
// more.
//
// RUN: flash-run %s --function=banks --device=model:sm_80 --model-statistics | FileCheck %s --check-prefix=BANKS
// BANKS-DAG: memref.load runs by threads of each warpgroup: 32, bank conflicts 0 in 1 accesses
// BANKS-DAG: memref.store runs by threads of each warpgroup: 64, bank conflicts 31 in 1 accesses
func.func @banks(%out: memref<32xf32>) {
  %c1 = arith.constant 1 : index
  %c32 = arith.constant 32 : index
  gpu.launch blocks(%bx, %by, %bz) in (%gx = %c1, %gy = %c1, %gz = %c1)
             threads(%tx, %ty, %tz) in (%sx = %c32, %sy = %c1, %sz = %c1)
             workgroup(%shared : memref<1024xf32, #gpu.address_space<workgroup>>) {
    %zero = arith.constant 0.0 : f32
    %stride = arith.constant 32 : index
    %far = arith.muli %tx, %stride : index
    memref.store %zero, %shared[%far] : memref<1024xf32, #gpu.address_space<workgroup>>
    gpu.barrier
    %first = arith.constant 0 : index
    %value = memref.load %shared[%first] : memref<1024xf32, #gpu.address_space<workgroup>>
    memref.store %value, %out[%tx] : memref<32xf32>
    gpu.terminator
  }
  return
}
