// Threads that add what they hold of dq themselves (docs/kernel.md), against float64: consumers that share a program, with a
// part of the columns each or with the rows of as many queries; and those that split its sums.
//
// This test and the other one of these functions have each failed once in some hundred runs, for a reason that is not known
// yet: a run that is reported as flaky is to be
// looked into.
// ALLOW_RETRIES: 2
// RUN: flash-run %s --device=model:sm_90a --function=columns --verify --model-seeds=2 | FileCheck %s
// RUN: flash-run %s --device=model:sm_90a --function=rows --verify --model-seeds=1 | FileCheck %s
// RUN: sed 's/section = 1>>/section = 1, direct_adds = 1>>/' %S/split-sums.mlir > %t.mlir
// RUN: flash-run %t.mlir --device=model:sm_90a --function=lengths --verify --model-seeds=2 | FileCheck %s
// RUN: flash-run %t.mlir --device=model:sm_90a --function=capped --verify --model-seeds=2 | FileCheck %s
// CHECK: model: {{[12]}} interleaving{{s?}} from seed 1, no report
// CHECK: verify dq: {{.*}}PASS
// CHECK: verify dk: {{.*}}PASS
// CHECK: verify dv: {{.*}}PASS

// RUN: flash-run %s --device=model:sm_90a --function=rows --emit=ptx | FileCheck %s --check-prefix=PTX --implicit-check-not=cp.reduce
// PTX: .version 8.1
// PTX: red.relaxed.gpu.global.add.v4.f32

func.func @columns(%q: tensor<1x4x150x128xbf16>, %k: tensor<1x2x140x128xbf16>, %v: tensor<1x2x140x128xbf16>, %o: tensor<1x4x150x128xbf16>, %lse: tensor<1x4x150xf32>, %d_o: tensor<1x4x150x128xbf16>) -> (tensor<1x4x150x128xbf16>, tensor<1x2x140x128xbf16>, tensor<1x2x140x128xbf16>) {
  %dqi = tensor.empty() : tensor<1x4x150x128xbf16>
  %dki = tensor.empty() : tensor<1x2x140x128xbf16>
  %r:3 = flashattn.attention_backward mask(#flashattn.causal)
      schedule(<tile_m = 128, tile_n = 64, warps = 8, stages = 3, lanes = 4, dot_type = bf16, roles = <consumers = 2, along = query_tile, registers = 240, producer_registers = 24, rescale = 0, section = 1, direct_adds = 1>>)
      ins(%q, %k, %v, %o, %lse, %d_o : tensor<1x4x150x128xbf16>, tensor<1x2x140x128xbf16>, tensor<1x2x140x128xbf16>, tensor<1x4x150x128xbf16>, tensor<1x4x150xf32>, tensor<1x4x150x128xbf16>)
      outs(%dqi, %dki, %dki : tensor<1x4x150x128xbf16>, tensor<1x2x140x128xbf16>, tensor<1x2x140x128xbf16>) -> tensor<1x4x150x128xbf16>, tensor<1x2x140x128xbf16>, tensor<1x2x140x128xbf16>
  return %r#0, %r#1, %r#2 : tensor<1x4x150x128xbf16>, tensor<1x2x140x128xbf16>, tensor<1x2x140x128xbf16>
}

// Parts of the program whose keys all queries see add up dk and dv too.
func.func @rows(%q: tensor<1x16x1100x64xf16>, %k: tensor<1x1x1100x64xf16>, %v: tensor<1x1x1100x64xf16>, %o: tensor<1x16x1100x64xf16>, %lse: tensor<1x16x1100xf32>, %d_o: tensor<1x16x1100x64xf16>) -> (tensor<1x16x1100x64xf16>, tensor<1x1x1100x64xf16>, tensor<1x1x1100x64xf16>) {
  %dqi = tensor.empty() : tensor<1x16x1100x64xf16>
  %dki = tensor.empty() : tensor<1x1x1100x64xf16>
  %r:3 = flashattn.attention_backward mask(#flashattn.any_of<[#flashattn.window<left = 63, right = 0>, #flashattn.all_of<[#flashattn.sink<4>, #flashattn.causal]>]>)
      schedule(<tile_m = 128, tile_n = 128, warps = 8, stages = 2, lanes = 4, dot_type = f16, roles = <consumers = 2, along = query_tile, registers = 240, producer_registers = 24, rescale = 0, section = 1, direct_adds = 1>>)
      ins(%q, %k, %v, %o, %lse, %d_o : tensor<1x16x1100x64xf16>, tensor<1x1x1100x64xf16>, tensor<1x1x1100x64xf16>, tensor<1x16x1100x64xf16>, tensor<1x16x1100xf32>, tensor<1x16x1100x64xf16>)
      outs(%dqi, %dki, %dki : tensor<1x16x1100x64xf16>, tensor<1x1x1100x64xf16>, tensor<1x1x1100x64xf16>) -> tensor<1x16x1100x64xf16>, tensor<1x1x1100x64xf16>, tensor<1x1x1100x64xf16>
  return %r#0, %r#1, %r#2 : tensor<1x16x1100x64xf16>, tensor<1x1x1100x64xf16>, tensor<1x1x1100x64xf16>
}
