// Persistent blocks that claim groups of packed sequences, which a kernel of one block lists before. Sequences of 0 to
// 300 rows, and rows before, behind and without a sequence.
//
// RUN: flash-run %s --device=model:sm_90a --model-multiprocessors=2 --function=forward --input=random --input=random --input=random --input="3 3 303 343 343 543 600" --verify %model_seeds --model-statistics | FileCheck %s --check-prefixes=CHECK,FORWARD
// All rows belong to one sequence, or to none.
// RUN: flash-run %s --device=model:sm_90a --model-multiprocessors=2 --function=forward --input=random --input=random --input=random --input="0 0 0 0 0 0 669" --verify --model-statistics | FileCheck %s --check-prefixes=CHECK,FORWARD
// RUN: flash-run %s --device=model:sm_90a --model-multiprocessors=2 --function=forward --input=random --input=random --input=random --input=zeros --verify --model-statistics | FileCheck %s --check-prefixes=CHECK,FORWARD
// Starts that decrease name more groups than the list has room for.
// RUN: flash-run %s --device=model:sm_90a --model-multiprocessors=2 --function=forward --input=random --input=random --input=random --input="0 669 0 669 0 669 0" | FileCheck %s --check-prefix=REPORT
// RUN: flash-run %s --device=model:sm_90a --model-multiprocessors=2 --function=backward --input=random --input=random --input=random --input=random --input=random --input=random --input="3 3 303 343 343 543 600" --verify --model-statistics | FileCheck %s --check-prefixes=CHECK,BACKWARD
// A warp lists 32 sequences of equal lengths, and the next one some more.
// RUN: flash-run %s --device=model:sm_90a --model-multiprocessors=2 --function=many --input=random --input="0 3 6 9 12 15 18 21 24 27 30 33 36 39 42 45 48 51 54 57 60 63 66 69 72 75 78 81 84 87 90 93 96 99 102 105 108 111 114 117" --verify --model-statistics | FileCheck %s --check-prefixes=CHECK,FORWARD
// REPORT: model: 1 interleaving from seed 1, no report
// CHECK: hopper.claim {{.*}}: {{[1-9]}}
// CHECK: model: {{1 interleaving|2 interleavings}} from seed 1, no report
// FORWARD: verify o: {{.*}}PASS
// FORWARD: verify lse {{.*}}PASS
// BACKWARD: verify dq: {{.*}}PASS
// BACKWARD: verify dk: {{.*}}PASS
// BACKWARD: verify dv: {{.*}}PASS

func.func @forward(%q: memref<1x4x669x64xf16>, %k: memref<1x2x669x64xf16>, %v: memref<1x2x669x64xf16>, %starts: memref<7xi32>, %o: memref<1x4x669x64xf16>, %lse: memref<1x4x669xf32>) {
  flashattn.attention mask(#flashattn.causal)
      schedule(<tile_m = 64, tile_n = 64, stages = 2, dot_type = f16, mapping = hopper<consumers = 2, along = query_tile, registers = 160, producer_registers = 56, rescale_threshold = 4, l2_head_group = 3, q_stages = 2, dynamic_scheduler = 1>>)
      ins(%q, %k, %v : memref<1x4x669x64xf16>, memref<1x2x669x64xf16>, memref<1x2x669x64xf16>)
      cu_seqlens_q(%starts : memref<7xi32>) cu_seqlens_k(%starts : memref<7xi32>)
      outs(%o, %lse : memref<1x4x669x64xf16>, memref<1x4x669xf32>)
  return
}

func.func @many(%q: memref<1x1x130x64xf16>, %starts: memref<40xi32>, %o: memref<1x1x130x64xf16>, %lse: memref<1x1x130xf32>) {
  flashattn.attention mask(#flashattn.causal)
      schedule(<tile_m = 64, tile_n = 64, stages = 2, dot_type = f16, mapping = hopper<consumers = 2, along = query_tile, registers = 160, producer_registers = 56, rescale_threshold = 4, l2_head_group = 3, q_stages = 2, dynamic_scheduler = 1>>)
      ins(%q, %q, %q : memref<1x1x130x64xf16>, memref<1x1x130x64xf16>, memref<1x1x130x64xf16>)
      cu_seqlens_q(%starts : memref<40xi32>) cu_seqlens_k(%starts : memref<40xi32>)
      outs(%o, %lse : memref<1x1x130x64xf16>, memref<1x1x130xf32>)
  return
}

func.func @backward(%q: memref<1x4x669x128xbf16>, %k: memref<1x2x669x128xbf16>, %v: memref<1x2x669x128xbf16>, %o: memref<1x4x669x128xbf16>, %lse: memref<1x4x669xf32>, %d_o: memref<1x4x669x128xbf16>, %starts: memref<7xi32>, %dq: memref<1x4x669x128xbf16>, %dk: memref<1x2x669x128xbf16>, %dv: memref<1x2x669x128xbf16>) {
  flashattn.attention_backward mask(#flashattn.causal)
      schedule(<tile_m = 128, tile_n = 64, stages = 2, dot_type = bf16, algorithm = accumulate_dq, mapping = hopper<consumers = 2, cooperative = 1, along = query_tile, registers = 240, producer_registers = 24, rescale_threshold = 0, l2_head_group = 2, dynamic_scheduler = 1, dq_reduce_stages = 2>>)
      ins(%q, %k, %v, %o, %lse, %d_o : memref<1x4x669x128xbf16>, memref<1x2x669x128xbf16>, memref<1x2x669x128xbf16>, memref<1x4x669x128xbf16>, memref<1x4x669xf32>, memref<1x4x669x128xbf16>)
      cu_seqlens_q(%starts : memref<7xi32>) cu_seqlens_k(%starts : memref<7xi32>)
      outs(%dq, %dk, %dv : memref<1x4x669x128xbf16>, memref<1x2x669x128xbf16>, memref<1x2x669x128xbf16>)
  return
}
