// A short window, whose tiles pay to be of several heads: the tuner packs where the group is a
// multiple. The driver is a fake one, whose kernels do nothing.
//
// REQUIRES: fakecuda
// RUN: rm -rf %t && mkdir %t
// RUN: env FLASHATTN_CUDA_DRIVER=%fakecuda flash-run %s --device=cuda --tune --tuned-schedules=%t/schedules.json --bench=0.0001 | FileCheck %s
// CHECK-DAG: tune: tile_m = 64, tile_n = 32, {{.*}}, pack = 2, roles = <consumers = 1, along = query_tile, registers = 240, producer_registers = 24, rescale = 4, section = 1>: {{[0-9.]+}} ms
// CHECK-DAG: tune: tile_m = 64, tile_n = 32, {{.*}}, pack = 2, roles = <consumers = 1, along = query_tile, registers = 240, producer_registers = 24, rescale = 4, section = 1, query_stages = 2>: {{[0-9.]+}} ms
// CHECK-NOT: pack = 4
func.func @attention(%q: tensor<1x2x64x256xf16>, %k: tensor<1x1x64x256xf16>, %v: tensor<1x1x64x256xf16>)
    -> tensor<1x2x64x256xf16> {
  %o_init = tensor.empty() : tensor<1x2x64x256xf16>
  %o = flashattn.attention mask(#flashattn.window<left = 15, right = 0>)
      ins(%q, %k, %v : tensor<1x2x64x256xf16>, tensor<1x1x64x256xf16>, tensor<1x1x64x256xf16>)
      outs(%o_init : tensor<1x2x64x256xf16>) -> tensor<1x2x64x256xf16>
  return %o : tensor<1x2x64x256xf16>
}
