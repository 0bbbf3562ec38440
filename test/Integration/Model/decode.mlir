// Few queries of many keys: heads that are packed, parts of the keys, and the kernel that merges them.
//
// RUN: flash-run %s --function=decode --device=model:sm_90a --model-seeds=3 --verify | FileCheck %s
// RUN: flash-run %s --function=decode --device=model:sm_80 --model-seeds=3 --verify | FileCheck %s
// RUN: flash-run %s --function=listed --device=model:sm_90a --model-seeds=3 --verify | FileCheck %s
// RUN: flash-run %s --function=listed --device=model:sm_80 --model-seeds=3 --verify | FileCheck %s
// CHECK: model: 3 interleavings from seed 1, no report
// CHECK: verify o: {{.*}}PASS

func.func @decode(%q: tensor<1x8x1x64xf16>, %k: tensor<1x2x1500x64xf16>, %v: tensor<1x2x1500x64xf16>,
                  %kv_len: tensor<1xi32>) -> tensor<1x8x1x64xf16> {
  %init = tensor.empty() : tensor<1x8x1x64xf16>
  %o = flashattn.attention
      ins(%q, %k, %v : tensor<1x8x1x64xf16>, tensor<1x2x1500x64xf16>, tensor<1x2x1500x64xf16>)
      kv_len(%kv_len : tensor<1xi32>)
      outs(%init : tensor<1x8x1x64xf16>) -> tensor<1x8x1x64xf16>
  return %o : tensor<1x8x1x64xf16>
}

// A list of the key tiles that `keep` shows.
func.func @listed(%q: tensor<1x2x130x64xbf16>, %k: tensor<1x2x300x64xbf16>, %v: tensor<1x2x300x64xbf16>,
                  %keep: tensor<1x1x1x300xi1>) -> tensor<1x2x130x64xbf16> {
  %init = tensor.empty() : tensor<1x2x130x64xbf16>
  %o = flashattn.attention
      ins(%q, %k, %v : tensor<1x2x130x64xbf16>, tensor<1x2x300x64xbf16>, tensor<1x2x300x64xbf16>)
      keep(%keep : tensor<1x1x1x300xi1>)
      outs(%init : tensor<1x2x130x64xbf16>) -> tensor<1x2x130x64xbf16>
  return %o : tensor<1x2x130x64xbf16>
}
