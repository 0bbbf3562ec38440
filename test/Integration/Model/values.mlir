// Values with fewer columns than keys: outputs leave from the first panels of the place of their queries, with which the
// program is done, also where the block goes on to another one.
//
// RUN: flash-run %s --function=ends --device=model:sm_90a --model-seeds=2 --verify | FileCheck %s
// RUN: flash-run %s --function=stays --device=model:sm_90a --model-multiprocessors=2 --model-seeds=2 --verify | FileCheck %s
// CHECK: model: 2 interleavings from seed 1, no report
// CHECK: verify o: {{.*}}PASS

func.func @ends(%q: tensor<1x2x300x192xbf16>, %k: tensor<1x1x200x192xbf16>, %v: tensor<1x1x200x128xbf16>) -> tensor<1x2x300x128xbf16> {
  %init = tensor.empty() : tensor<1x2x300x128xbf16>
  %o = flashattn.attention
      ins(%q, %k, %v : tensor<1x2x300x192xbf16>, tensor<1x1x200x192xbf16>, tensor<1x1x200x128xbf16>)
      outs(%init : tensor<1x2x300x128xbf16>) -> tensor<1x2x300x128xbf16>
  return %o : tensor<1x2x300x128xbf16>
}

func.func @stays(%q: tensor<1x2x500x192xf16>, %k: tensor<1x1x500x192xf16>, %v: tensor<1x1x500x128xf16>) -> tensor<1x2x500x128xf16> {
  %init = tensor.empty() : tensor<1x2x500x128xf16>
  %o = flashattn.attention mask(#flashattn.causal)
      ins(%q, %k, %v : tensor<1x2x500x192xf16>, tensor<1x1x500x192xf16>, tensor<1x1x500x128xf16>)
      outs(%init : tensor<1x2x500x128xf16>) -> tensor<1x2x500x128xf16>
  return %o : tensor<1x2x500x128xf16>
}
