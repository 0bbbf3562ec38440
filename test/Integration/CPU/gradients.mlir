// Gradients on the CPU: what o and lse are filled with, what is counted, and what is tuned.

// DEFINE: %{run} = flash-run %s --device=cpu

// What nobody gives is what the attention gives, of every operand that shapes it: arguments and constants.
// RUN: rm -rf %t && mkdir %t
// RUN: %{run} --function=forward --input=random --input=random --input=random --input=0.25 --output=@%t/o.npy --output=@%t/lse.npy
// RUN: %{run} --function=backward --input=random --input=random --input=random --input=0.25 --expected-output=@%t/o.npy --expected-output=@%t/lse.npy | FileCheck %s --check-prefix=SAME
// SAME: expected-output 0: {{.*}}: PASS
// SAME: expected-output 1: {{.*}}: PASS

// With a seed the numbers are random, and compared all the same.
// RUN: not %{run} --function=backward --verify --input=random --input=random --input=random --input=0.25 --input=random:1 --input=random --expected-output=@%t/o.npy --expected-output=@%t/lse.npy | FileCheck %s --check-prefix=SEED
// SEED: verify dq: {{.*}}: PASS
// SEED: expected-output 0: {{.*}}: FAIL
// SEED: expected-output 1: {{.*}}: PASS

// A given lse: o is that of the attention.
// RUN: not %{run} --function=backward --input=random --input=random --input=random --input=0.25 --input=random --input=zeros --expected-output=@%t/o.npy --expected-output=@%t/lse.npy | FileCheck %s --check-prefix=GIVEN
// GIVEN: expected-output 0: {{.*}}: PASS
// GIVEN: expected-output 1: {{.*}}: FAIL

// Where what shapes the scores is made in between, or an argument is two operands, they are random numbers.
// RUN: %{run} --function=between --verify | FileCheck %s --check-prefix=RANDOM
// RUN: %{run} --function=shared --verify | FileCheck %s --check-prefix=RANDOM
// RANDOM: output 3: 1x2x12x{{.*}}f32, {{.*}} first -0.9156 -1.3019
// RANDOM: verify dq: {{.*}}: PASS

// Of a visible pair 2 (3 D + 2 Dv) operations; the forward pass has 2 (D + Dv).
// RUN: %{run} --function=forward --bench=0.001 --input=random --input=random --input=random --input=0.25 --json=- 2>/dev/null | FileCheck %s --check-prefix=FORWARD
// FORWARD: "operations": 17280,
// FORWARD: "visible_pairs": 216
// RUN: %{run} --function=backward --bench=0.001 --input=random --input=random --input=random --input=0.25 --json=- 2>/dev/null | FileCheck %s --check-prefix=BACKWARD
// BACKWARD: "operations": 41472,
// BACKWARD: "visible_pairs": 216

// Schedules of gradients are tuned, of one op at a time.
// RUN: %{run} --function=backward --tune --tuned-schedules=%t/schedules.json --bench=0.0005 --input=random --input=random --input=random --input=0.25 | FileCheck %s --check-prefix=TUNE
// TUNE: tune: tile_m = {{.*}} ms, quartiles {{.*}} to
// TUNE: (the compiler's own choice)
// TUNE: tune: best for cpu/16/24/f32/triangular/backward: tile_m = {{.*}}, written to
// RUN: not %{run} --function=step --tune --tuned-schedules=%t/schedules.json --bench=0.0005 2>&1 | FileCheck %s --check-prefix=SEVERAL
// SEVERAL: error: --tune: expected one flashattn.attention or flashattn.attention_backward in function 'step' but got 2
// RUN: not %{run} --function=nothing --tune --tuned-schedules=%t/schedules.json --bench=0.0005 2>&1 | FileCheck %s --check-prefix=NONE
// NONE: error: --tune: expected one flashattn.attention or flashattn.attention_backward in function 'nothing' but got 0

// What was found is used for its own kind alone, and leaves the other's to the compiler.
// RUN: echo '{"version": 4, "schedules": {"cpu/16/16/f32/triangular/backward": {"schedule": "tile_m = 4, tile_n = 8, stages = 1, dot_type = f32, algorithm = separate_dq, mapping = cpu"}}}' > %t/given.json
// RUN: %{run} --function=step --verify --tuned-schedules=%t/given.json --dump-dir=%t/dump | FileCheck %s --check-prefix=USED
// RUN: cat %t/dump/*-flashattn-select-schedule.mlir | FileCheck %s --check-prefix=TUNED
// USED: schedule: tuned for 1 attention op, in {{.*}}given.json
// USED: verify dq: {{.*}}: PASS
// TUNED: flashattn.attention {{.*}}tile_m = {{[0-9]+}}, tile_n = 64
// TUNED: flashattn.attention_backward {{.*}}tile_m = 4, tile_n = 8
// What need not be deterministic says nothing of what must.
// RUN: sed s,triangular,full, %t/given.json > %t/full.json
// RUN: %{run} --function=shared --verify --tuned-schedules=%t/full.json --dump-dir=%t/shared | FileCheck %s --check-prefix=SHARED
// RUN: cat %t/shared/*-flashattn-select-schedule.mlir | FileCheck %s --check-prefix=OWN
// SHARED: verify dq: {{.*}}: PASS
// OWN: flashattn.attention_backward {{.*}}deterministic {{.*}}tile_m = {{[0-9]+}}, tile_n = 64

!q = tensor<1x2x12x16xf32>
!v = tensor<1x2x12x24xf32>
!l = tensor<1x2x12xf32>
#mod = affine_set<(p, k)[nq, nk] : (p - k >= 0)>

func.func @forward(%q: !q, %k: !q, %v: !v, %slope: f32) -> (!v, !l) {
  %c3 = arith.constant 3 : index
  %sinks = arith.constant dense<[0.5, -1.0]> : tensor<2xf32>
  %eo = tensor.empty() : !v
  %el = tensor.empty() : !l
  %o, %lse = flashattn.attention mask(#flashattn.set<#mod>) ins(%q, %k, %v : !q, !q, !v)
      sink_logits(%sinks : tensor<2xf32>) offset(%c3)
      score_mod {
      ^bb0(%s: f32, %b: index, %h: index, %p: index, %key: index):
        %y = arith.mulf %s, %slope : f32
        flashattn.yield %y : f32
      }
      outs(%eo, %el : !v, !l) -> !v, !l
  return %o, %lse : !v, !l
}

func.func @backward(%q: !q, %k: !q, %v: !v, %slope: f32, %o: !v, %lse: !l, %d_o: !v) -> (!v, !l, !q, !q, !v) {
  %c3 = arith.constant 3 : index
  %sinks = arith.constant dense<[0.5, -1.0]> : tensor<2xf32>
  %eq = tensor.empty() : !q
  %ev = tensor.empty() : !v
  %dq, %dk, %dv = flashattn.attention_backward mask(#flashattn.set<#mod>)
      ins(%q, %k, %v, %o, %lse, %d_o : !q, !q, !v, !v, !l, !v) sink_logits(%sinks : tensor<2xf32>) offset(%c3)
      score_mod {
      ^bb0(%s: f32, %b: index, %h: index, %p: index, %key: index):
        %y = arith.mulf %s, %slope : f32
        flashattn.yield %y : f32
      }
      outs(%eq, %eq, %ev : !q, !q, !v) -> !q, !q, !v
  return %o, %lse, %dq, %dk, %dv : !v, !l, !q, !q, !v
}

func.func @between(%lse: !l, %q: !q, %o: !q, %d_o: !q) -> (!q, !q, !q, !l) {
  %e = tensor.empty() : !q
  %k = linalg.add ins(%q, %q : !q, !q) outs(%e : !q) -> !q
  %dq, %dk, %dv = flashattn.attention_backward ins(%q, %k, %k, %o, %lse, %d_o : !q, !q, !q, !q, !l, !q)
      outs(%e, %e, %e : !q, !q, !q) -> !q, !q, !q
  return %dq, %dk, %dv, %lse : !q, !q, !q, !l
}

func.func @step(%q: !q, %d_o: !q) -> (!q, !q, !q) {
  %e = tensor.empty() : !q
  %el = tensor.empty() : !l
  %o, %lse = flashattn.attention mask(#flashattn.causal) ins(%q, %q, %q : !q, !q, !q) outs(%e, %el : !q, !l) -> !q, !l
  %dq, %dk, %dv = flashattn.attention_backward mask(#flashattn.causal)
      ins(%q, %q, %q, %o, %lse, %d_o : !q, !q, !q, !q, !l, !q)
      outs(%e, %e, %e : !q, !q, !q) -> !q, !q, !q
  return %dq, %dk, %dv : !q, !q, !q
}

func.func @nothing(%q: !q) -> !q {
  return %q : !q
}

func.func @shared(%q: !q, %lse: !l) -> (!q, !q, !q, !q) {
  %e = tensor.empty() : !q
  %dq, %dk, %dv = flashattn.attention_backward deterministic ins(%q, %q, %q, %q, %lse, %q : !q, !q, !q, !q, !l, !q)
      outs(%e, %e, %e : !q, !q, !q) -> !q, !q, !q
  return %dq, %dk, %dv, %q : !q, !q, !q, !q
}
