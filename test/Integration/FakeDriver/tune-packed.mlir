// A short window, whose tiles pay to be of several heads: the tuner packs where the group is a
// multiple. The driver is a fake one, whose kernels do
// nothing: values of 0 and an output of 0 before the launch are what they leave.
//
// REQUIRES: fakecuda
// What a sanitizer sees of the tuner it sees in CPU/tune.mlir and tune-refused.mlir.
// UNSUPPORTED: asan
// DEFINE: %{inputs} = --input=random --input=random --input=zeros --input=zeros
// RUN: rm -rf %t && mkdir %t
// RUN: env FLASHATTN_CUDA_DRIVER=%fakecuda flash-run %s --device=cuda %{inputs} --tune --schedule='stages = 2, tile_n = 32' --tuned-schedules=%t/schedules.json --bench=0.0001 | FileCheck %s
// CHECK-DAG: tune: tile_m = 64, tile_n = 32, {{.*}}, pack = 2, mapping = hopper<consumers = 1, along = query_tile, registers = 248, producer_registers = 24, rescale_threshold = 4, l2_head_group = 1>: {{[0-9.]+}} ms
// CHECK-DAG: tune: tile_m = 64, tile_n = 32, {{.*}}, pack = 2, mapping = hopper<consumers = 1, along = query_tile, registers = 248, producer_registers = 24, rescale_threshold = 4, l2_head_group = 1, q_stages = 2>: {{[0-9.]+}} ms
// CHECK-NOT: pack = 4
func.func @attention(%q: memref<1x2x64x256xf16>, %k: memref<1x1x64x256xf16>, %v: memref<1x1x64x256xf16>, %o: memref<1x2x64x256xf16>) {
  flashattn.attention mask(#flashattn.window<left = 15, right = 0>)
      ins(%q, %k, %v : memref<1x2x64x256xf16>, memref<1x1x64x256xf16>, memref<1x1x64x256xf16>)
      outs(%o : memref<1x2x64x256xf16>)
  return
}
