// Scores far from 0: float masks that hide keys, and whole rows, by large finite numbers, and scales and caps that
// make scores as large. A row that one such number hides is the mean of its values. Outputs, log-sum-exps and
// gradients are as near to float64 as those of other scores.

// RUN: mkdir -p %t && %python %S/Inputs/make_special.py %t

// RUN: flash-run %s --device=cpu --function=masked_f16 --verify --input=random --input=random --input=random --input=@%t/mask.npy | FileCheck %s --check-prefix=FORWARD
// RUN: %if !asan %{ flash-run %s --device=model:sm_80 --function=masked_f16 --verify --input=random --input=random --input=random --input=@%t/mask.npy | FileCheck %s --check-prefix=FORWARD %}
// RUN: flash-run %s --device=model:sm_90a --function=masked_f16 --verify --input=random --input=random --input=random --input=@%t/mask.npy | FileCheck %s --check-prefix=FORWARD
// RUN: flash-run %s --device=cpu --function=masked_f32 --verify --input=random --input=random --input=random --input=@%t/mask.npy | FileCheck %s --check-prefix=FORWARD
// RUN: %if !asan %{ flash-run %s --device=model:sm_80 --function=masked_f32 --verify --input=random --input=random --input=random --input=@%t/mask.npy | FileCheck %s --check-prefix=FORWARD %}
// RUN: flash-run %s --device=cpu --function=masked_gradients_f32 --verify --input=random --input=random --input=random --input=@%t/mask.npy | FileCheck %s --check-prefix=GRADIENTS
// RUN: flash-run %s --device=cpu --function=masked_gradients_f16 --verify --input=random --input=random --input=random --input=@%t/constant.npy | FileCheck %s --check-prefix=GRADIENTS
// RUN: %if !asan %{ flash-run %s --device=model:sm_80 --function=masked_gradients_f32 --verify --input=random --input=random --input=random --input=@%t/mask.npy | FileCheck %s --check-prefix=GRADIENTS %}
// RUN: %if !asan %{ flash-run %s --device=model:sm_80 --function=masked_gradients_f16 --verify --input=random --input=random --input=random --input=@%t/constant.npy | FileCheck %s --check-prefix=GRADIENTS %}
// RUN: flash-run %s --device=cpu --function=masked_gradients_f32 --verify --input=random --input=random --input=random --input=@%t/constant.npy | FileCheck %s --check-prefix=GRADIENTS
// RUN: flash-run %s --device=model:sm_90a --function=masked_gradients_f16 --verify --input=random --input=random --input=random --input=@%t/mask.npy | FileCheck %s --check-prefix=GRADIENTS
// RUN: %if !asan %{ flash-run %s --device=model:sm_90a --function=masked_bias_gradients --verify --input=random --input=random --input=random --input=@%t/mask.npy --input=random | FileCheck %s --check-prefixes=GRADIENTS,SUMS %}
// RUN: flash-run %s --device=cpu --function=scaled --verify --input=random --input=random --input=random | FileCheck %s --check-prefix=FORWARD
// RUN: flash-run %s --device=model:sm_90a --function=scaled --verify --input=random --input=random --input=random | FileCheck %s --check-prefix=FORWARD
// RUN: flash-run %s --device=cpu --function=capped --verify --input=random --input=random --input=random | FileCheck %s --check-prefix=FORWARD
// RUN: flash-run %s --device=model:sm_90a --function=capped --verify --input=random --input=random --input=random | FileCheck %s --check-prefix=FORWARD
// The keys of one query come in parts. One part has 40 keys with a weight, and others have only such keys.
// RUN: flash-run %s --device=cpu --function=parts --verify --input=random --input=random --input=random --input=@%t/parts-mask.npy | FileCheck %s --check-prefix=FORWARD
// RUN: %if !asan %{ flash-run %s --device=model:sm_80 --function=parts --verify --input=random --input=random --input=random --input=@%t/parts-mask.npy | FileCheck %s --check-prefix=FORWARD %}
// RUN: flash-run %s --device=model:sm_90a --function=parts --verify --input=random --input=random --input=random --input=@%t/parts-mask.npy | FileCheck %s --check-prefix=FORWARD
// A query that sees one key has its value, however the exponent of 2 of its score rounds.
// RUN: flash-run %s --device=cpu --function=one_key --verify --input=1x2x40x64xf16=63 --input=1x2x40x64xf16=61 --input=random | FileCheck %s --check-prefix=ONE
// RUN: %if !asan %{ flash-run %s --device=model:sm_80 --function=one_key --verify --input=1x2x40x64xf16=63 --input=1x2x40x64xf16=61 --input=random | FileCheck %s --check-prefix=ONE %}
// RUN: flash-run %s --device=model:sm_90a --function=one_key --verify --input=1x2x40x64xf16=63 --input=1x2x40x64xf16=61 --input=random | FileCheck %s --check-prefix=ONE
// A given log-sum-exp may cover more keys than the op has, as under sharding: twice as many here.
// RUN: flash-run %s --device=cpu --function=masked_gradients_f32 --verify --input=1x2x40x32xf32=0 --input=random --input=random --input=1x1x40x150xf32=-100 --input=random --input=1x2x40xf32=-94.2963 | FileCheck %s --check-prefix=GRADIENTS
// RUN: %if !asan %{ flash-run %s --device=model:sm_80 --function=masked_gradients_f32 --verify --input=1x2x40x32xf32=0 --input=random --input=random --input=1x1x40x150xf32=-100 --input=random --input=1x2x40xf32=-94.2963 | FileCheck %s --check-prefix=GRADIENTS %}
// RUN: flash-run %s --device=cpu --function=masked_gradients_f16 --verify --input=1x2x40x32xf16=0 --input=random --input=random --input=1x1x40x150xf32=-3000 --input=random --input=1x2x40xf32=-2994.2963 | FileCheck %s --check-prefix=GRADIENTS
// RUN: flash-run %s --device=model:sm_90a --function=masked_gradients_f16 --verify --input=1x2x40x32xf16=0 --input=random --input=random --input=1x1x40x150xf32=-3000 --input=random --input=1x2x40xf32=-2994.2963 | FileCheck %s --check-prefix=GRADIENTS
// ONE: verify o: max error 0.000e+00,
// FORWARD: verify o: {{.*}}: PASS
// FORWARD: verify lse {{.*}}: PASS
// GRADIENTS: verify dq: {{.*}}: PASS
// GRADIENTS: verify dk: {{.*}}: PASS
// GRADIENTS: verify dv: {{.*}}: PASS
// SUMS: verify d_bias: {{.*}}: PASS
// SUMS: verify d_sink_logits: {{.*}}: PASS

func.func @masked_f16(%q: memref<1x2x40x32xf16>, %k: memref<1x1x150x32xf16>, %v: memref<1x1x150x32xf16>, %bias: memref<1x1x40x150xf32>, %o: memref<1x2x40x32xf16>, %lse: memref<1x2x40xf32>) {
  flashattn.attention ins(%q, %k, %v : memref<1x2x40x32xf16>, memref<1x1x150x32xf16>, memref<1x1x150x32xf16>) bias(%bias : memref<1x1x40x150xf32>) outs(%o, %lse : memref<1x2x40x32xf16>, memref<1x2x40xf32>)
  return
}

func.func @masked_f32(%q: memref<1x2x40x32xf32>, %k: memref<1x1x150x32xf32>, %v: memref<1x1x150x32xf32>, %bias: memref<1x1x40x150xf32>, %o: memref<1x2x40x32xf32>, %lse: memref<1x2x40xf32>) {
  flashattn.attention ins(%q, %k, %v : memref<1x2x40x32xf32>, memref<1x1x150x32xf32>, memref<1x1x150x32xf32>) bias(%bias : memref<1x1x40x150xf32>) outs(%o, %lse : memref<1x2x40x32xf32>, memref<1x2x40xf32>)
  return
}

func.func @masked_gradients_f32(%q: memref<1x2x40x32xf32>, %k: memref<1x1x150x32xf32>, %v: memref<1x1x150x32xf32>, %bias: memref<1x1x40x150xf32>, %o: memref<1x2x40x32xf32>, %lse: memref<1x2x40xf32>, %do: memref<1x2x40x32xf32>, %dq: memref<1x2x40x32xf32>, %dk: memref<1x1x150x32xf32>, %dv: memref<1x1x150x32xf32>) {
  flashattn.attention_backward ins(%q, %k, %v, %o, %lse, %do : memref<1x2x40x32xf32>, memref<1x1x150x32xf32>, memref<1x1x150x32xf32>, memref<1x2x40x32xf32>, memref<1x2x40xf32>, memref<1x2x40x32xf32>) bias(%bias : memref<1x1x40x150xf32>)
      outs(%dq, %dk, %dv : memref<1x2x40x32xf32>, memref<1x1x150x32xf32>, memref<1x1x150x32xf32>)
  return
}

func.func @masked_gradients_f16(%q: memref<1x2x40x32xf16>, %k: memref<1x1x150x32xf16>, %v: memref<1x1x150x32xf16>, %bias: memref<1x1x40x150xf32>, %o: memref<1x2x40x32xf16>, %lse: memref<1x2x40xf32>, %do: memref<1x2x40x32xf16>, %dq: memref<1x2x40x32xf16>, %dk: memref<1x1x150x32xf16>, %dv: memref<1x1x150x32xf16>) {
  flashattn.attention_backward ins(%q, %k, %v, %o, %lse, %do : memref<1x2x40x32xf16>, memref<1x1x150x32xf16>, memref<1x1x150x32xf16>, memref<1x2x40x32xf16>, memref<1x2x40xf32>, memref<1x2x40x32xf16>) bias(%bias : memref<1x1x40x150xf32>)
      outs(%dq, %dk, %dv : memref<1x2x40x32xf16>, memref<1x1x150x32xf16>, memref<1x1x150x32xf16>)
  return
}

func.func @scaled(%q: memref<1x2x40x32xf16>, %k: memref<1x1x150x32xf16>, %v: memref<1x1x150x32xf16>, %o: memref<1x2x40x32xf16>, %lse: memref<1x2x40xf32>) {
  flashattn.attention scale(1.0e+12) ins(%q, %k, %v : memref<1x2x40x32xf16>, memref<1x1x150x32xf16>, memref<1x1x150x32xf16>) outs(%o, %lse : memref<1x2x40x32xf16>, memref<1x2x40xf32>)
  return
}

func.func @capped(%q: memref<1x2x40x32xf16>, %k: memref<1x1x150x32xf16>, %v: memref<1x1x150x32xf16>, %o: memref<1x2x40x32xf16>, %lse: memref<1x2x40xf32>) {
  flashattn.attention softcap(1.0e+15) ins(%q, %k, %v : memref<1x2x40x32xf16>, memref<1x1x150x32xf16>, memref<1x1x150x32xf16>) outs(%o, %lse : memref<1x2x40x32xf16>, memref<1x2x40xf32>)
  return
}

func.func @masked_bias_gradients(%q: memref<1x2x40x128xbf16>, %k: memref<1x1x150x128xbf16>, %v: memref<1x1x150x128xbf16>, %bias: memref<1x1x40x150xf32>, %sink: memref<2xf32>, %o: memref<1x2x40x128xbf16>, %lse: memref<1x2x40xf32>, %do: memref<1x2x40x128xbf16>, %dq: memref<1x2x40x128xbf16>, %dk: memref<1x1x150x128xbf16>, %dv: memref<1x1x150x128xbf16>, %dbias: memref<1x1x40x150xf32>, %dsink: memref<2xf32>) {
  flashattn.attention_backward ins(%q, %k, %v, %o, %lse, %do : memref<1x2x40x128xbf16>, memref<1x1x150x128xbf16>, memref<1x1x150x128xbf16>, memref<1x2x40x128xbf16>, memref<1x2x40xf32>, memref<1x2x40x128xbf16>) bias(%bias : memref<1x1x40x150xf32>) sink_logits(%sink : memref<2xf32>)
      outs(%dq, %dk, %dv : memref<1x2x40x128xbf16>, memref<1x1x150x128xbf16>, memref<1x1x150x128xbf16>) d_bias(%dbias : memref<1x1x40x150xf32>) d_sink_logits(%dsink : memref<2xf32>)
  return
}

func.func @parts(%q: memref<1x2x1x64xf16>, %k: memref<1x1x4096x64xf16>, %v: memref<1x1x4096x64xf16>, %bias: memref<1x2x1x4096xf32>, %o: memref<1x2x1x64xf16>, %lse: memref<1x2x1xf32>) {
  flashattn.attention ins(%q, %k, %v : memref<1x2x1x64xf16>, memref<1x1x4096x64xf16>, memref<1x1x4096x64xf16>) bias(%bias : memref<1x2x1x4096xf32>) outs(%o, %lse : memref<1x2x1x64xf16>, memref<1x2x1xf32>)
  return
}

func.func @one_key(%q: memref<1x2x40x64xf16>, %k: memref<1x2x40x64xf16>, %v: memref<1x2x40x64xf16>, %o: memref<1x2x40x64xf16>) {
  flashattn.attention mask(#flashattn.window<left = 0, right = 0>) ins(%q, %k, %v : memref<1x2x40x64xf16>, memref<1x2x40x64xf16>, memref<1x2x40x64xf16>) outs(%o : memref<1x2x40x64xf16>)
  return
}
