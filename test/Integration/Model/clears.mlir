// Sums of dq that spare warps add in any order, of which the first to come makes zeros: memory has NaN there before. Of 300
// queries the first 200 see no keys: nobody comes to their tiles, and dq is 0.
//
// RUN: flash-run %s --device=model:sm_90a --function=plain --verify --model-seeds=4 --model-statistics | FileCheck %s
// RUN: flash-run %s --device=model:sm_90a --model-multiprocessors=3 --function=claims --verify --model-seeds=4 --model-statistics | FileCheck %s
// CHECK-DAG: hopper.clear {{.*}}: {{[1-9]}}
// CHECK-DAG: hopper.take_first {{.*}}: {{[1-9]}}
// CHECK-DAG: hopper.signal_added {{.*}}: {{[1-9]}}
// CHECK-DAG: hopper.await_added {{.*}}: {{[1-9]}}
// CHECK: verify dq: {{.*}}PASS
// CHECK: verify dk: {{.*}}PASS
// CHECK: verify dv: {{.*}}PASS

!q = tensor<1x4x300x128xbf16>
!k = tensor<1x2x100x128xbf16>
!l = tensor<1x4x300xf32>

func.func @plain(%q: !q, %k: !k, %v: !k, %o: !q, %lse: !l, %d_o: !q) -> (!q, !k, !k) {
  %dq_init = tensor.empty() : !q
  %dk_init = tensor.empty() : !k
  %dq, %dk, %dv = flashattn.attention_backward mask(#flashattn.causal)
      schedule(<tile_m = 128, tile_n = 64, stages = 3, dot_type = bf16, algorithm = accumulate_dq, mapping = hopper<consumers = 2, cooperative = 1, along = query_tile, registers = 240, producer_registers = 24, rescale_threshold = 0, l2_head_group = 2, dq_reduce_stages = 1>>)
      ins(%q, %k, %v, %o, %lse, %d_o : !q, !k, !k, !q, !l, !q)
      outs(%dq_init, %dk_init, %dk_init : !q, !k, !k) -> !q, !k, !k
  return %dq, %dk, %dv : !q, !k, !k
}

func.func @claims(%q: !q, %k: !k, %v: !k, %o: !q, %lse: !l, %d_o: !q) -> (!q, !k, !k) {
  %dq_init = tensor.empty() : !q
  %dk_init = tensor.empty() : !k
  %dq, %dk, %dv = flashattn.attention_backward mask(#flashattn.causal)
      schedule(<tile_m = 128, tile_n = 64, stages = 2, dot_type = bf16, algorithm = accumulate_dq, mapping = hopper<consumers = 2, cooperative = 1, along = query_tile, registers = 240, producer_registers = 24, rescale_threshold = 0, l2_head_group = 2, dynamic_scheduler = 1, dq_reduce_stages = 2>>)
      ins(%q, %k, %v, %o, %lse, %d_o : !q, !k, !k, !q, !l, !q)
      outs(%dq_init, %dk_init, %dk_init : !q, !k, !k) -> !q, !k, !k
  return %dq, %dk, %dv : !q, !k, !k
}
