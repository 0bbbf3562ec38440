// Few queries of many keys: whatever else is tried, keys are cut into parts, and all blocks together have so
// many bytes on their way. The driver is a fake one, whose kernels do nothing: values of 0 and an
// output of 0 before the launch are what they leave.
//
// REQUIRES: fakecuda
// What a sanitizer sees of the tuner it sees in CPU/tune.mlir and tune-refused.mlir.
// UNSUPPORTED: asan
// DEFINE: %{inputs} = --input=random --input=random --input=zeros --input=zeros
// RUN: rm -rf %t && mkdir %t
// RUN: env FLASHATTN_CUDA_DRIVER=%fakecuda flash-run %s --device=cuda %{inputs} --tune --schedule='stages = 3, tile_n = 32' --tuned-schedules=%t/schedules.json --bench=0.0001 > %t/out
// RUN: grep '^tune: tile_m.*mapping = hopper<' %t/out | FileCheck %s
// RUN: grep '^tune: tile_m.*mapping = hopper<' %t/out | not grep -v 'splits = 128, .*prefetch_kib_per_sm = 72>: '
// CHECK: tune: tile_m = 64, tile_n = 32, {{.*}}, splits = 128, {{.*}}, prefetch_kib_per_sm = 72>: {{[0-9.]+}} ms
func.func @attention(%q: memref<1x2x1x256xf16>, %k: memref<1x1x512x256xf16>, %v: memref<1x1x512x256xf16>, %o: memref<1x2x1x256xf16>) {
  flashattn.attention
      ins(%q, %k, %v : memref<1x2x1x256xf16>, memref<1x1x512x256xf16>, memref<1x1x512x256xf16>)
      outs(%o : memref<1x2x1x256xf16>)
  return
}
