// Sums of rows as products with columns of ones: with lengths that fill no tile, whose missing rows are cleared and their
// ones kept, a log-sum-exp, which has a sum of its own, and sinks, which join both.
//
// RUN: flash-run %s --device=model:sm_90a --function=lengths --verify --model-seeds=2 | FileCheck %s
// RUN: flash-run %s --device=model:sm_90a --function=sinks --verify --model-seeds=2 | FileCheck %s --check-prefixes=CHECK,LSE
// RUN: flash-run %s --device=model:sm_90a --function=wide --verify --model-seeds=2 | FileCheck %s
// RUN: flash-opt %s -empty-tensor-to-alloc-tensor -flashattn-select-schedule=chip=sm_90a | FileCheck %s --check-prefix=SCHEDULE
// CHECK: model: 2 interleavings from seed 1, no report
// CHECK: verify o: {{.*}}PASS
// LSE: verify lse {{.*}}PASS

// SCHEDULE-LABEL: func.func @lengths
// SCHEDULE: rescale_threshold = 8
func.func @lengths(%q: tensor<3x2x70x128xbf16>, %k: tensor<3x1x300x128xbf16>, %v: tensor<3x1x300x128xbf16>, %len: tensor<3xi32>) -> tensor<3x2x70x128xbf16> {
  %init = tensor.empty() : tensor<3x2x70x128xbf16>
  %o = flashattn.attention mask(#flashattn.causal) ins(%q, %k, %v : tensor<3x2x70x128xbf16>, tensor<3x1x300x128xbf16>, tensor<3x1x300x128xbf16>) kv_len(%len : tensor<3xi32>)
    outs(%init : tensor<3x2x70x128xbf16>) -> tensor<3x2x70x128xbf16>
  return %o : tensor<3x2x70x128xbf16>
}

// SCHEDULE-LABEL: func.func @sinks
// SCHEDULE: rescale_threshold = 8
func.func @sinks(%q: tensor<1x2x150x128xbf16>, %k: tensor<1x2x200x128xbf16>, %v: tensor<1x2x200x128xbf16>, %s: tensor<2xf32>) -> (tensor<1x2x150x128xbf16>, tensor<1x2x150xf32>) {
  %init = tensor.empty() : tensor<1x2x150x128xbf16>
  %lse_init = tensor.empty() : tensor<1x2x150xf32>
  %o, %lse = flashattn.attention mask(#flashattn.window<left = 90, right = 0>) ins(%q, %k, %v : tensor<1x2x150x128xbf16>, tensor<1x2x200x128xbf16>, tensor<1x2x200x128xbf16>) sink_logits(%s : tensor<2xf32>)
    outs(%init, %lse_init : tensor<1x2x150x128xbf16>, tensor<1x2x150xf32>) -> tensor<1x2x150x128xbf16>, tensor<1x2x150xf32>
  return %o, %lse : tensor<1x2x150x128xbf16>, tensor<1x2x150xf32>
}

// SCHEDULE-LABEL: func.func @wide
// SCHEDULE: rescale_threshold = 8
func.func @wide(%q: tensor<1x2x100x192xbf16>, %k: tensor<1x2x130x192xbf16>, %v: tensor<1x2x130x192xbf16>) -> tensor<1x2x100x192xbf16> {
  %init = tensor.empty() : tensor<1x2x100x192xbf16>
  %o = flashattn.attention ins(%q, %k, %v : tensor<1x2x100x192xbf16>, tensor<1x2x130x192xbf16>, tensor<1x2x130x192xbf16>)
    outs(%init : tensor<1x2x100x192xbf16>) -> tensor<1x2x100x192xbf16>
  return %o : tensor<1x2x100x192xbf16>
}
