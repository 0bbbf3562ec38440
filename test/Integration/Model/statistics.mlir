// What kernels do on a model, counted: ops by role, bytes through the rings, waits, bank conflicts, and the
// time of the first block as a picture and as a Chrome trace.
//
// RUN: flash-run %s --device=model:sm_90a --model-statistics --model-trace=%t.json | FileCheck %s
// CHECK: statistics of kernel 'attention_kernel', 1 blocks:
// Four key tiles of k and v come, which each of three consumers reads.
// CHECK-DAG: hopper.tma_load runs by threads of each warpgroup: 11{{$}}
// CHECK-DAG: hopper.wgmma runs by threads of each warpgroup: 0 [[#%d,N:]] [[#N]] [[#N]]
// CHECK-DAG: hopper.barrier_wait runs by threads of each warpgroup: 8 {{.*}}, waits {{[0-9]+}}
// CHECK-DAG: hopper.store_tile runs {{.*}}, bank conflicts 0 in {{[0-9]+}} accesses
// CHECK-DAG: barrier {{[0-9]+}} {{ *}}16384 bytes to shared memory
// CHECK: block 0, {{[0-9]+}} cycles by the cost table ('#' busy, '.' waiting):
// CHECK-NEXT: warpgroup 0 |{{[#.]+}}|
// CHECK: products |{{[#.]+}}|
//
// RUN: %python -c "import json, sys; events = json.load(open(sys.argv[1]))['traceEvents']; print(len(events) > 10, sorted({e['tid'] for e in events}))" %t.json | FileCheck %s --check-prefix=TRACE
// TRACE: True ['products', 'warpgroup 0', 'warpgroup 1', 'warpgroup 2', 'warpgroup 3']
!t = tensor<1x1x192x64xf16>
!k = tensor<1x1x512x64xf16>
func.func @attention(%q: !t, %k: !k, %v: !k) -> !t {
  %init = tensor.empty() : !t
  %o = flashattn.attention ins(%q, %k, %v : !t, !k, !k) outs(%init : !t) -> !t
  return %o : !t
}
