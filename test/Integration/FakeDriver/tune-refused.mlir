// What no schedule of a chip fits is not tuned.
//
// REQUIRES: fakecuda
// RUN: not env FLASHATTN_CUDA_DRIVER=%fakecuda flash-run %s --device=cuda --tune --bench=0.0001 --tuned-schedules=%t.json 2>&1 | FileCheck %s
// CHECK: error: --tune: no schedule fits: expected D to be a multiple of 8 up to 256 but got 20: {{[0-9]+}} schedules, the first of them tile_m = {{.*}}
// RUN: not ls %t.json

!x = memref<1x1x64x20xf16>
!l = memref<1x1x64xf32>
func.func @odd(%x: !x, %o: !x, %lse: !l, %d_o: !x, %dq: !x, %dk: !x, %dv: !x) {
  flashattn.attention_backward ins(%x, %x, %x, %o, %lse, %d_o : !x, !x, !x, !x, !l, !x) outs(%dq, %dk, %dv : !x, !x, !x)
  return
}
