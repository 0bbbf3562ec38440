// Gradients of narrow bands: programs over query tiles, of several heads each, join the keys that they see.
//
// RUN: flash-run %s --device=model:sm_90a --function=sinks --verify | FileCheck %s
// RUN: flash-run %s --device=model:sm_90a --function=heads --verify | FileCheck %s
// RUN: flash-run %s --device=model:sm_90a --function=alone --verify | FileCheck %s
// RUN: flash-run %s --device=model:sm_90a --function=before --verify | FileCheck %s
// RUN: flash-run %s --emit=schedule --chip=sm_90a --function=sinks | FileCheck %s --check-prefix=SCHEDULE
// SCHEDULE: pack = 8, {{.*}}compact_kv = 1
// CHECK: model: 1 interleaving from seed 1, no report
// CHECK: verify dq: {{.*}}PASS
// CHECK: verify dk: {{.*}}PASS
// CHECK: verify dv: {{.*}}PASS

// The first tile of keys has its queries in several programs.
func.func @sinks(%q: tensor<1x8x600x16xbf16>, %k: tensor<1x1x600x16xbf16>, %v: tensor<1x1x600x16xbf16>, %o: tensor<1x8x600x16xbf16>, %lse: tensor<1x8x600xf32>, %do: tensor<1x8x600x16xbf16>) -> (tensor<1x8x600x16xbf16>, tensor<1x1x600x16xbf16>, tensor<1x1x600x16xbf16>) {
  %a = tensor.empty() : tensor<1x8x600x16xbf16>
  %b = tensor.empty() : tensor<1x1x600x16xbf16>
  %c = tensor.empty() : tensor<1x1x600x16xbf16>
  %dq, %dk, %dv = flashattn.attention_backward mask(#flashattn.any_of<[#flashattn.window<left = 15, right = 0>, #flashattn.all_of<[#flashattn.sink<4>, #flashattn.causal]>]>)
      ins(%q, %k, %v, %o, %lse, %do : tensor<1x8x600x16xbf16>, tensor<1x1x600x16xbf16>, tensor<1x1x600x16xbf16>, tensor<1x8x600x16xbf16>, tensor<1x8x600xf32>, tensor<1x8x600x16xbf16>)
      outs(%a, %b, %c : tensor<1x8x600x16xbf16>, tensor<1x1x600x16xbf16>, tensor<1x1x600x16xbf16>) -> tensor<1x8x600x16xbf16>, tensor<1x1x600x16xbf16>, tensor<1x1x600x16xbf16>
  return %dq, %dk, %dv : tensor<1x8x600x16xbf16>, tensor<1x1x600x16xbf16>, tensor<1x1x600x16xbf16>
}

// The heads of a group take turns in a tile's rows; Dv is not D, and the last queries are few.
func.func @heads(%q: tensor<1x75x8x64xf16>, %k: tensor<1x90x2x64xf16>, %v: tensor<1x90x2x32xf16>, %o: tensor<1x75x8x32xf16>, %lse: tensor<1x8x75xf32>, %do: tensor<1x75x8x32xf16>) -> (tensor<1x75x8x64xf16>, tensor<1x90x2x64xf16>, tensor<1x90x2x32xf16>) {
  %a = tensor.empty() : tensor<1x75x8x64xf16>
  %b = tensor.empty() : tensor<1x90x2x64xf16>
  %c = tensor.empty() : tensor<1x90x2x32xf16>
  %dq, %dk, %dv = flashattn.attention_backward mask(#flashattn.any_of<[#flashattn.window<left = 30, right = 0>, #flashattn.all_of<[#flashattn.sink<4>, #flashattn.causal]>]>) layout(bshd)
      ins(%q, %k, %v, %o, %lse, %do : tensor<1x75x8x64xf16>, tensor<1x90x2x64xf16>, tensor<1x90x2x32xf16>, tensor<1x75x8x32xf16>, tensor<1x8x75xf32>, tensor<1x75x8x32xf16>)
      outs(%a, %b, %c : tensor<1x75x8x64xf16>, tensor<1x90x2x64xf16>, tensor<1x90x2x32xf16>) -> tensor<1x75x8x64xf16>, tensor<1x90x2x64xf16>, tensor<1x90x2x32xf16>
  return %dq, %dk, %dv : tensor<1x75x8x64xf16>, tensor<1x90x2x64xf16>, tensor<1x90x2x32xf16>
}

// Single heads, both sides, and the same sums each time.
func.func @alone(%q: tensor<2x3x70x32xbf16>, %k: tensor<2x3x70x32xbf16>, %v: tensor<2x3x70x32xbf16>, %o: tensor<2x3x70x32xbf16>, %lse: tensor<2x3x70xf32>, %do: tensor<2x3x70x32xbf16>) -> (tensor<2x3x70x32xbf16>, tensor<2x3x70x32xbf16>, tensor<2x3x70x32xbf16>) {
  %a = tensor.empty() : tensor<2x3x70x32xbf16>
  %b = tensor.empty() : tensor<2x3x70x32xbf16>
  %c = tensor.empty() : tensor<2x3x70x32xbf16>
  %dq, %dk, %dv = flashattn.attention_backward mask(#flashattn.window<left = 20, right = 13>) deterministic
      ins(%q, %k, %v, %o, %lse, %do : tensor<2x3x70x32xbf16>, tensor<2x3x70x32xbf16>, tensor<2x3x70x32xbf16>, tensor<2x3x70x32xbf16>, tensor<2x3x70xf32>, tensor<2x3x70x32xbf16>)
      outs(%a, %b, %c : tensor<2x3x70x32xbf16>, tensor<2x3x70x32xbf16>, tensor<2x3x70x32xbf16>) -> tensor<2x3x70x32xbf16>, tensor<2x3x70x32xbf16>, tensor<2x3x70x32xbf16>
  return %dq, %dk, %dv : tensor<2x3x70x32xbf16>, tensor<2x3x70x32xbf16>, tensor<2x3x70x32xbf16>
}

// Queries that come before the first key see nothing.
func.func @before(%q: tensor<1x4x90x64xf16>, %k: tensor<1x1x40x64xf16>, %v: tensor<1x1x40x64xf16>, %o: tensor<1x4x90x64xf16>, %lse: tensor<1x4x90xf32>, %do: tensor<1x4x90x64xf16>) -> (tensor<1x4x90x64xf16>, tensor<1x1x40x64xf16>, tensor<1x1x40x64xf16>) {
  %a = tensor.empty() : tensor<1x4x90x64xf16>
  %b = tensor.empty() : tensor<1x1x40x64xf16>
  %c = tensor.empty() : tensor<1x1x40x64xf16>
  %dq, %dk, %dv = flashattn.attention_backward mask(#flashattn.window<left = 50, right = 0>)
      ins(%q, %k, %v, %o, %lse, %do : tensor<1x4x90x64xf16>, tensor<1x1x40x64xf16>, tensor<1x1x40x64xf16>, tensor<1x4x90x64xf16>, tensor<1x4x90xf32>, tensor<1x4x90x64xf16>)
      outs(%a, %b, %c : tensor<1x4x90x64xf16>, tensor<1x1x40x64xf16>, tensor<1x1x40x64xf16>) -> tensor<1x4x90x64xf16>, tensor<1x1x40x64xf16>, tensor<1x1x40x64xf16>
  return %dq, %dk, %dv : tensor<1x4x90x64xf16>, tensor<1x1x40x64xf16>, tensor<1x1x40x64xf16>
}
