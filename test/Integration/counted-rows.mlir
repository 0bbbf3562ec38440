// Rules A7 and B7: keys before the first and behind the last that any query sees have no effect, nor have in gradients queries
// before the first and behind the last that see a key. Memory holds NaN there.
//
// RUN: rm -rf %t && mkdir %t && %python %S/Inputs/make_special.py %t
// RUN: flash-run %s --device=cpu --verify --function=sinks --input=1x4x40x64xf16 --input=@%t/rows-90-0-20.npy --input=@%t/rows-90-0-20.npy | FileCheck %s
// RUN: flash-run %s --device=cpu --verify --function=window --input=1x4x4x64xf16 --input=@%t/rows-200-42-54.npy --input=@%t/rows-200-42-54.npy --input=index=50 | FileCheck %s
// RUN: flash-run %s --device=cpu --verify --function=union --input=1x4x4x64xf16 --input=@%t/rows-200-42-54.npy --input=@%t/rows-200-42-54.npy | FileCheck %s
// RUN: flash-run %s --device=cpu --verify --function=top_left --input=1x4x33x64xf16 --input=@%t/rows-100-0-33.npy --input=@%t/rows-100-0-33.npy | FileCheck %s
// RUN: flash-run %s --device=cpu --verify --function=window_gradients --input=@%t/rows-95-40-95.npy --input=@%t/rows-60-0-55.npy --input=@%t/rows-60-0-55.npy --input=@%t/rows-95-40-95.npy --input=index=-40 | FileCheck %s --check-prefix=GRADIENTS
// RUN: flash-run %s --device=cpu --verify --function=causal_gradients --input=@%t/rows-150-50-150.npy --input=random:2 --input=random:3 --input=@%t/rows-150-50-150.npy | FileCheck %s --check-prefix=GRADIENTS
// RUN: %if !asan %{ flash-run %s --device=model:sm_80 --verify --function=sinks --input=1x4x40x64xf16 --input=@%t/rows-90-0-20.npy --input=@%t/rows-90-0-20.npy | FileCheck %s %}
// RUN: %if !asan %{ flash-run %s --device=model:sm_80 --verify --function=window --input=1x4x4x64xf16 --input=@%t/rows-200-42-54.npy --input=@%t/rows-200-42-54.npy --input=index=50 | FileCheck %s %}
// RUN: %if !asan %{ flash-run %s --device=model:sm_80 --verify --function=union --input=1x4x4x64xf16 --input=@%t/rows-200-42-54.npy --input=@%t/rows-200-42-54.npy | FileCheck %s %}
// RUN: %if !asan %{ flash-run %s --device=model:sm_80 --verify --function=top_left --input=1x4x33x64xf16 --input=@%t/rows-100-0-33.npy --input=@%t/rows-100-0-33.npy | FileCheck %s %}
// RUN: %if !asan %{ flash-run %s --device=model:sm_80 --verify --function=window_gradients --input=@%t/rows-95-40-95.npy --input=@%t/rows-60-0-55.npy --input=@%t/rows-60-0-55.npy --input=@%t/rows-95-40-95.npy --input=index=-40 | FileCheck %s --check-prefix=GRADIENTS %}
// RUN: %if !asan %{ flash-run %s --device=model:sm_80 --verify --function=causal_gradients --input=@%t/rows-150-50-150.npy --input=random:2 --input=random:3 --input=@%t/rows-150-50-150.npy | FileCheck %s --check-prefix=GRADIENTS %}
// RUN: flash-run %s --device=model:sm_90a --verify --function=sinks --input=1x4x40x64xf16 --input=@%t/rows-90-0-20.npy --input=@%t/rows-90-0-20.npy | FileCheck %s
// RUN: flash-run %s --device=model:sm_90a --verify --function=window --input=1x4x4x64xf16 --input=@%t/rows-200-42-54.npy --input=@%t/rows-200-42-54.npy --input=index=50 | FileCheck %s
// RUN: flash-run %s --device=model:sm_90a --verify --function=union --input=1x4x4x64xf16 --input=@%t/rows-200-42-54.npy --input=@%t/rows-200-42-54.npy | FileCheck %s
// RUN: flash-run %s --device=model:sm_90a --verify --function=top_left --input=1x4x33x64xf16 --input=@%t/rows-100-0-33.npy --input=@%t/rows-100-0-33.npy | FileCheck %s
// RUN: flash-run %s --device=model:sm_90a --verify --function=window_gradients --input=@%t/rows-95-40-95.npy --input=@%t/rows-60-0-55.npy --input=@%t/rows-60-0-55.npy --input=@%t/rows-95-40-95.npy --input=index=-40 | FileCheck %s --check-prefix=GRADIENTS
// RUN: flash-run %s --device=model:sm_90a --verify --function=causal_gradients --input=@%t/rows-150-50-150.npy --input=random:2 --input=random:3 --input=@%t/rows-150-50-150.npy | FileCheck %s --check-prefix=GRADIENTS
// RUN: %if cuda %{ flash-run %s --device=cuda --verify --function=sinks --input=1x4x40x64xf16 --input=@%t/rows-90-0-20.npy --input=@%t/rows-90-0-20.npy | FileCheck %s %}
// RUN: %if cuda %{ flash-run %s --device=cuda --verify --function=window --input=1x4x4x64xf16 --input=@%t/rows-200-42-54.npy --input=@%t/rows-200-42-54.npy --input=index=50 | FileCheck %s %}
// RUN: %if cuda %{ flash-run %s --device=cuda --verify --function=union --input=1x4x4x64xf16 --input=@%t/rows-200-42-54.npy --input=@%t/rows-200-42-54.npy | FileCheck %s %}
// RUN: %if cuda %{ flash-run %s --device=cuda --verify --function=top_left --input=1x4x33x64xf16 --input=@%t/rows-100-0-33.npy --input=@%t/rows-100-0-33.npy | FileCheck %s %}
// RUN: %if cuda %{ flash-run %s --device=cuda --verify --function=window_gradients --input=@%t/rows-95-40-95.npy --input=@%t/rows-60-0-55.npy --input=@%t/rows-60-0-55.npy --input=@%t/rows-95-40-95.npy --input=index=-40 | FileCheck %s --check-prefix=GRADIENTS %}
// RUN: %if cuda %{ flash-run %s --device=cuda --verify --function=causal_gradients --input=@%t/rows-150-50-150.npy --input=random:2 --input=random:3 --input=@%t/rows-150-50-150.npy | FileCheck %s --check-prefix=GRADIENTS %}
// RUN: flash-run %s --device=cpu --verify --function=sink_gradients --input=@%t/rows-150-50-150.npy --input=random:2 --input=random:3 --input=@%t/rows-150-50-150.npy | FileCheck %s --check-prefixes=GRADIENTS,SINK
// RUN: %if !asan %{ flash-run %s --device=model:sm_80 --verify --function=sink_gradients --input=@%t/rows-150-50-150.npy --input=random:2 --input=random:3 --input=@%t/rows-150-50-150.npy | FileCheck %s --check-prefixes=GRADIENTS,SINK %}
// RUN: flash-run %s --device=model:sm_90a --verify --function=sink_gradients --input=@%t/rows-150-50-150.npy --input=random:2 --input=random:3 --input=@%t/rows-150-50-150.npy | FileCheck %s --check-prefixes=GRADIENTS,SINK
// RUN: %if !asan %{ flash-run %s --device=model:sm_80 --verify --function=low_gradients --input=5 --input=-5 --input=random:2 --input=random:3 --input=1xi32=90 | FileCheck %s --check-prefix=GRADIENTS %}
// RUN: flash-run %s --device=model:sm_90a --verify --function=low_gradients --input=5 --input=-5 --input=random:2 --input=random:3 --input=1xi32=90 | FileCheck %s --check-prefix=GRADIENTS
// More keys than there are count as all.
// RUN: %if !asan %{ flash-run %s --device=model:sm_80 --verify --function=low_gradients --input=5 --input=-5 --input=random:2 --input=random:3 --input=1xi32=500 | FileCheck %s --check-prefix=GRADIENTS %}
// RUN: flash-run %s --device=cpu --verify --function=no_key_gradients --input=@%t/rows-35-0-0.npy --input=random:2 --input=random:3 --input=@%t/rows-35-0-0.npy --input=1xi32=0 | FileCheck %s --check-prefixes=GRADIENTS,BIAS,SINK
// RUN: flash-run %s --device=cpu --verify --function=key_bias_gradients --input=random:1 --input=@%t/rows-100-0-33.npy --input=@%t/rows-100-0-33.npy --input=random:4 | FileCheck %s --check-prefixes=GRADIENTS,BIAS
// RUN: %if !asan %{ flash-run %s --device=model:sm_80 --verify --function=no_key_gradients --input=@%t/rows-35-0-0.npy --input=random:2 --input=random:3 --input=@%t/rows-35-0-0.npy --input=1xi32=0 | FileCheck %s --check-prefixes=GRADIENTS,BIAS,SINK %}
// RUN: %if !asan %{ flash-run %s --device=model:sm_80 --verify --function=key_bias_gradients --input=random:1 --input=@%t/rows-100-0-33.npy --input=@%t/rows-100-0-33.npy --input=random:4 | FileCheck %s --check-prefixes=GRADIENTS,BIAS %}
// RUN: flash-run %s --device=model:sm_90a --verify --function=no_key_gradients --input=@%t/rows-35-0-0.npy --input=random:2 --input=random:3 --input=@%t/rows-35-0-0.npy --input=1xi32=0 | FileCheck %s --check-prefixes=GRADIENTS,BIAS,SINK
// RUN: flash-run %s --device=model:sm_90a --verify --function=key_bias_gradients --input=random:1 --input=@%t/rows-100-0-33.npy --input=@%t/rows-100-0-33.npy --input=random:4 | FileCheck %s --check-prefixes=GRADIENTS,BIAS
// CHECK-NOT: not finite
// CHECK: verify o: {{.*}}PASS
// GRADIENTS-NOT: not finite
// GRADIENTS: verify dq: {{.*}}PASS
// GRADIENTS: verify dk: {{.*}}PASS
// GRADIENTS: verify dv: {{.*}}PASS
// BIAS: verify d_bias: {{.*}}PASS
// SINK: verify d_sink_logits: {{.*}}PASS

func.func @sinks(%q: memref<1x4x40x64xf16>, %k: memref<1x2x90x64xf16>, %v: memref<1x2x90x64xf16>, %o: memref<1x4x40x64xf16>) {
  flashattn.attention mask(#flashattn.sink<20>)
      ins(%q, %k, %v : memref<1x4x40x64xf16>, memref<1x2x90x64xf16>, memref<1x2x90x64xf16>) outs(%o : memref<1x4x40x64xf16>)
  return
}

// Positions 50 to 53 of 200 keys.
func.func @window(%q: memref<?x?x?x64xf16>, %k: memref<?x?x?x64xf16>, %v: memref<?x?x?x64xf16>, %p: index,
                  %o: memref<?x?x?x64xf16>) {
  flashattn.attention mask(#flashattn.window<left = 8, right = 0>)
      ins(%q, %k, %v : memref<?x?x?x64xf16>, memref<?x?x?x64xf16>, memref<?x?x?x64xf16>) offset(%p)
      outs(%o : memref<?x?x?x64xf16>)
  return
}

#early = affine_set<(p, k)[nq, nk] : (k - 42 >= 0, 44 - k >= 0)>
#late = affine_set<(p, k)[nq, nk] : (p - k >= 146, k - 51 >= 0)>
func.func @union(%q: memref<?x?x?x64xf16>, %k: memref<?x?x?x64xf16>, %v: memref<?x?x?x64xf16>, %o: memref<?x?x?x64xf16>) {
  flashattn.attention mask(any_of<[#late, #early]>)
      ins(%q, %k, %v : memref<?x?x?x64xf16>, memref<?x?x?x64xf16>, memref<?x?x?x64xf16>) outs(%o : memref<?x?x?x64xf16>)
  return
}

func.func @top_left(%q: memref<?x?x?x64xf16>, %k: memref<?x?x?x64xf16>, %v: memref<?x?x?x64xf16>, %o: memref<?x?x?x64xf16>) {
  flashattn.attention mask(#flashattn.causal) align(top_left)
      ins(%q, %k, %v : memref<?x?x?x64xf16>, memref<?x?x?x64xf16>, memref<?x?x?x64xf16>) outs(%o : memref<?x?x?x64xf16>)
  return
}

// Positions from -40 on: the first 40 of 95 queries see nothing, and none the last 5 of 60 keys.
func.func @window_gradients(%q: memref<?x?x?x64xf16>, %k: memref<?x?x?x64xf16>, %v: memref<?x?x?x64xf16>,
                            %d_o: memref<?x?x?x64xf16>, %p: index, %o: memref<?x?x?x64xf16>, %lse: memref<?x?x?xf32>,
                            %dq: memref<?x?x?x64xf16>, %dk: memref<?x?x?x64xf16>, %dv: memref<?x?x?x64xf16>) {
  flashattn.attention_backward mask(#flashattn.window<left = 8, right = 0>)
      ins(%q, %k, %v, %o, %lse, %d_o : memref<?x?x?x64xf16>, memref<?x?x?x64xf16>, memref<?x?x?x64xf16>, memref<?x?x?x64xf16>, memref<?x?x?xf32>, memref<?x?x?x64xf16>)
      offset(%p) outs(%dq, %dk, %dv : memref<?x?x?x64xf16>, memref<?x?x?x64xf16>, memref<?x?x?x64xf16>)
  return
}

func.func @causal_gradients(%q: memref<1x4x150x64xf16>, %k: memref<1x2x100x64xf16>, %v: memref<1x2x100x64xf16>,
                            %d_o: memref<1x4x150x64xf16>, %o: memref<1x4x150x64xf16>, %lse: memref<1x4x150xf32>,
                            %dq: memref<1x4x150x64xf16>, %dk: memref<1x2x100x64xf16>, %dv: memref<1x2x100x64xf16>) {
  flashattn.attention_backward mask(#flashattn.causal)
      ins(%q, %k, %v, %o, %lse, %d_o : memref<1x4x150x64xf16>, memref<1x2x100x64xf16>, memref<1x2x100x64xf16>, memref<1x4x150x64xf16>, memref<1x4x150xf32>, memref<1x4x150x64xf16>)
      outs(%dq, %dk, %dv : memref<1x4x150x64xf16>, memref<1x2x100x64xf16>, memref<1x2x100x64xf16>)
  return
}

// What d_o holds at a query that sees no key is not the sink's either.
func.func @sink_gradients(%q: memref<1x4x150x64xf16>, %k: memref<1x2x100x64xf16>, %v: memref<1x2x100x64xf16>,
                          %d_o: memref<1x4x150x64xf16>, %o: memref<1x4x150x64xf16>, %lse: memref<1x4x150xf32>, %sinks: memref<4xf32>,
                          %dq: memref<1x4x150x64xf16>, %dk: memref<1x2x100x64xf16>, %dv: memref<1x2x100x64xf16>,
                          %d_sinks: memref<4xf32>) {
  flashattn.attention_backward mask(#flashattn.causal)
      ins(%q, %k, %v, %o, %lse, %d_o : memref<1x4x150x64xf16>, memref<1x2x100x64xf16>, memref<1x2x100x64xf16>, memref<1x4x150x64xf16>, memref<1x4x150xf32>, memref<1x4x150x64xf16>)
      sink_logits(%sinks : memref<4xf32>)
      outs(%dq, %dk, %dv : memref<1x4x150x64xf16>, memref<1x2x100x64xf16>, memref<1x2x100x64xf16>) d_sink_logits(%d_sinks : memref<4xf32>)
  return
}

// Scores of -200: against them the score that a key past kv_len has, 0, would be one of infinite weight.
func.func @low_gradients(%q: memref<1x2x150x64xf16>, %k: memref<1x1x150x64xf16>, %v: memref<1x1x150x64xf16>,
                         %d_o: memref<1x2x150x64xf16>, %len: memref<1xi32>, %o: memref<1x2x150x64xf16>, %lse: memref<1x2x150xf32>,
                         %dq: memref<1x2x150x64xf16>, %dk: memref<1x1x150x64xf16>, %dv: memref<1x1x150x64xf16>) {
  flashattn.attention_backward ins(%q, %k, %v, %o, %lse, %d_o : memref<1x2x150x64xf16>, memref<1x1x150x64xf16>, memref<1x1x150x64xf16>, memref<1x2x150x64xf16>, memref<1x2x150xf32>, memref<1x2x150x64xf16>)
      kv_len(%len : memref<1xi32>)
      outs(%dq, %dk, %dv : memref<1x2x150x64xf16>, memref<1x1x150x64xf16>, memref<1x1x150x64xf16>)
  return
}

// A batch without a key: its queries' d_o is neither the bias's nor the sink's.
func.func @no_key_gradients(%q: memref<1x4x35x64xf16>, %k: memref<1x2x100x64xf16>, %v: memref<1x2x100x64xf16>,
                            %d_o: memref<1x4x35x64xf16>, %len: memref<1xi32>, %o: memref<1x4x35x64xf16>, %lse: memref<1x4x35xf32>,
                            %bias: memref<1x1x35x100xf32>, %sinks: memref<4xf32>, %d_lse: memref<1x4x35xf32>,
                            %dq: memref<1x4x35x64xf16>, %dk: memref<1x2x100x64xf16>, %dv: memref<1x2x100x64xf16>,
                            %d_bias: memref<1x1x35x100xf32>, %d_sinks: memref<4xf32>) {
  flashattn.attention_backward
      ins(%q, %k, %v, %o, %lse, %d_o : memref<1x4x35x64xf16>, memref<1x2x100x64xf16>, memref<1x2x100x64xf16>, memref<1x4x35x64xf16>, memref<1x4x35xf32>, memref<1x4x35x64xf16>)
      bias(%bias : memref<1x1x35x100xf32>) sink_logits(%sinks : memref<4xf32>) kv_len(%len : memref<1xi32>) d_lse(%d_lse : memref<1x4x35xf32>)
      outs(%dq, %dk, %dv : memref<1x4x35x64xf16>, memref<1x2x100x64xf16>, memref<1x2x100x64xf16>)
      d_bias(%d_bias : memref<1x1x35x100xf32>) d_sink_logits(%d_sinks : memref<4xf32>)
  return
}

// The first key that no query sees is beside what lies past the last query.
func.func @key_bias_gradients(%q: memref<1x4x33x64xf16>, %k: memref<1x2x100x64xf16>, %v: memref<1x2x100x64xf16>,
                              %d_o: memref<1x4x33x64xf16>, %o: memref<1x4x33x64xf16>, %lse: memref<1x4x33xf32>,
                              %bias: memref<1x4x1x100xf32>,
                              %dq: memref<1x4x33x64xf16>, %dk: memref<1x2x100x64xf16>, %dv: memref<1x2x100x64xf16>,
                              %d_bias: memref<1x4x1x100xf32>) {
  flashattn.attention_backward mask(#flashattn.causal) align(top_left)
      ins(%q, %k, %v, %o, %lse, %d_o : memref<1x4x33x64xf16>, memref<1x2x100x64xf16>, memref<1x2x100x64xf16>, memref<1x4x33x64xf16>, memref<1x4x33xf32>, memref<1x4x33x64xf16>)
      bias(%bias : memref<1x4x1x100xf32>)
      outs(%dq, %dk, %dv : memref<1x4x33x64xf16>, memref<1x2x100x64xf16>, memref<1x2x100x64xf16>)
      d_bias(%d_bias : memref<1x4x1x100xf32>)
  return
}
