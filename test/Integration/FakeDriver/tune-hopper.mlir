// The tuner on Hopper tries schedules with warp specialization beside those of mma.sync, and says of each that
// does not fit why. The driver is a fake one, whose kernels do
// nothing: values of 0 and an output of 0 before the launch are what they leave.
//
// REQUIRES: fakecuda
// What a sanitizer sees of the tuner it sees in CPU/tune.mlir and tune-refused.mlir.
// UNSUPPORTED: asan
// DEFINE: %{inputs} = --input=random --input=random --input=zeros --input=zeros
// RUN: rm -rf %t && mkdir %t
// RUN: env FLASHATTN_CUDA_DRIVER=%fakecuda flash-run %s --device=cuda %{inputs} --tune --schedule='stages = 2' --tuned-schedules=%t/schedules.json --bench=0.0001 | FileCheck %s
// CHECK: device: cuda:0
// CHECK-DAG: tune: tile_m = 64, tile_n = 64, stages = 2, dot_type = f16, mapping = hopper<consumers = 2, along = query_tile, registers = 240, producer_registers = 24, rescale_threshold = 4, l2_head_group = 0, q_register_columns = 128>: {{.*}} ms, {{.*}} (the compiler's own choice)
// CHECK-DAG: mapping = hopper<consumers = 2, along = head, registers = 240, producer_registers = 24, rescale_threshold = 4, l2_head_group = 1>: {{[0-9.]+}} ms
// CHECK-DAG: tune: tile_m = 64, tile_n = 32, stages = 2, dot_type = f16, mapping = mma_sync<warps = 4>: {{[0-9.]+}} ms
// CHECK-DAG: tile_n = 32, {{.*}}mapping = hopper<consumers = 3, along = query_tile, {{.*}}>: needs 180 registers per thread (o 128, scores 16, weights 8, other 28) of 160 that a consumer has
// CHECK-DAG: tile_n = 96, {{.*}}mapping = hopper<consumers = 1, {{.*}}>: needs {{[0-9]+}} bytes of shared memory (q 65536, {{.*}}) of 232448 available
// CHECK: tune: best for sm_90a/256/256/f16/triangular: tile_m = {{.*}}, written to
// RUN: FileCheck %s --check-prefix=FILE < %t/schedules.json
// FILE: "sm_90a/256/256/f16/triangular": {

// Outputs that no kernel writes hold NaN, and two that are wrong alike are no match.
// RUN: not env FLASHATTN_CUDA_DRIVER=%fakecuda flash-run %s --device=cuda --tune --tuned-schedules=%t/none.json --bench=0.0001 2>&1 | FileCheck %s --check-prefix=WRONG
// RUN: not env FLASHATTN_CUDA_DRIVER=%fakecuda flash-run %s --device=cuda --tune --tuned-schedules=%t/none.json --bench=0.0001 --input=random --input=random --input=ones --input=zeros 2>&1 | FileCheck %s --check-prefix=WRONG
// RUN: not ls %t/none.json
// WRONG: error: --tune: the compiler's own choice is wrong: verify: flashattn.attention at {{.*}}, all 128 rows
// WRONG: verify o: {{.*}}FAIL
// RUN: %python %S/../Inputs/make_special.py %t
// RUN: not env FLASHATTN_CUDA_DRIVER=%fakecuda flash-run %s --device=cuda --tune --tuned-schedules=%t/none.json --bench=0.0001 --input=random --input=random --input=@%t/nan.npy --input=poison 2>&1 | FileCheck %s --check-prefix=NAN
// NAN: error: --tune: expected outputs without NaN but got NaN
func.func @attention(%q: memref<1x2x64x256xf16>, %k: memref<1x1x64x256xf16>, %v: memref<1x1x64x256xf16>, %o: memref<1x2x64x256xf16>) {
  flashattn.attention mask(#flashattn.causal)
      ins(%q, %k, %v : memref<1x2x64x256xf16>, memref<1x1x64x256xf16>, memref<1x1x64x256xf16>)
      outs(%o : memref<1x2x64x256xf16>)
  return
}
