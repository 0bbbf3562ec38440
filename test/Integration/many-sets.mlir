// A mask of many sets: a loop over a table of the linear ones, and divisions that queries and keys share.

// RUN: flash-run %s --device=cpu --function=slopes --verify | FileCheck %s
// RUN: %if !asan %{ flash-run %s --device=model:sm_80 --function=slopes --verify | FileCheck %s %}
// RUN: flash-run %s --device=model:sm_90a --function=slopes --verify | FileCheck %s
// RUN: flash-run %s --device=cpu --function=mixed --verify | FileCheck %s
// RUN: %if !asan %{ flash-run %s --device=model:sm_80 --function=mixed --verify | FileCheck %s %}
// RUN: flash-run %s --device=model:sm_90a --function=mixed --verify | FileCheck %s

// CHECK: verify o: {{.*}}: PASS
// CHECK: verify lse {{.*}}: PASS
// CHECK: verify dq: {{.*}}: PASS
// CHECK: verify dk: {{.*}}: PASS
// CHECK: verify dv: {{.*}}: PASS

#slopes = #flashattn.any_of<[
  set<"(p, k)[nq, nk] : (1 * p - 2 * k - 0 >= 0, 3 * k - 1 * p + 0 >= 0)">,
  set<"(p, k)[nq, nk] : (2 * p - 3 * k - 1 >= 0, 4 * k - 2 * p + 5 >= 0)">,
  set<"(p, k)[nq, nk] : (3 * p - 4 * k - 2 >= 0, 5 * k - 3 * p + 10 >= 0)">,
  set<"(p, k)[nq, nk] : (4 * p - 5 * k - 3 >= 0, 6 * k - 4 * p + 15 >= 0)">,
  set<"(p, k)[nq, nk] : (5 * p - 6 * k - 4 >= 0, 7 * k - 5 * p + 20 >= 0)">,
  set<"(p, k)[nq, nk] : (6 * p - 7 * k - 5 >= 0, 8 * k - 6 * p + 25 >= 0)">,
  set<"(p, k)[nq, nk] : (7 * p - 8 * k - 6 >= 0, 9 * k - 7 * p + 30 >= 0)">,
  set<"(p, k)[nq, nk] : (8 * p - 9 * k - 7 >= 0, 10 * k - 8 * p + 35 >= 0)">,
  set<"(p, k)[nq, nk] : (9 * p - 10 * k - 8 >= 0, 11 * k - 9 * p + 40 >= 0)">,
  set<"(p, k)[nq, nk] : (10 * p - 11 * k - 9 >= 0, 12 * k - 10 * p + 45 >= 0)">,
  set<"(p, k)[nq, nk] : (11 * p - 12 * k - 10 >= 0, 13 * k - 11 * p + 50 >= 0)">,
  set<"(p, k)[nq, nk] : (12 * p - 13 * k - 11 >= 0, 14 * k - 12 * p + 55 >= 0)">]>
func.func @slopes(%q: memref<1x2x70x16xf16>, %k: memref<1x1x90x16xf16>, %v: memref<1x1x90x16xf16>, %o: memref<1x2x70x16xf16>, %lse: memref<1x2x70xf32>, %d_o: memref<1x2x70x16xf16>,
    %dq: memref<1x2x70x16xf16>, %dk: memref<1x1x90x16xf16>, %dv: memref<1x1x90x16xf16>) {
  flashattn.attention mask(#slopes) ins(%q, %k, %v : memref<1x2x70x16xf16>, memref<1x1x90x16xf16>, memref<1x1x90x16xf16>)
      outs(%o, %lse : memref<1x2x70x16xf16>, memref<1x2x70xf32>)
  flashattn.attention_backward mask(#slopes)
      ins(%q, %k, %v, %o, %lse, %d_o : memref<1x2x70x16xf16>, memref<1x1x90x16xf16>, memref<1x1x90x16xf16>, memref<1x2x70x16xf16>, memref<1x2x70xf32>, memref<1x2x70x16xf16>)
      outs(%dq, %dk, %dv : memref<1x2x70x16xf16>, memref<1x1x90x16xf16>, memref<1x1x90x16xf16>)
  return
}

#mixed = #flashattn.any_of<[
  set<"(p, k)[nq, nk] : ((p + 2 * k) mod 9 - 0 == 0, p floordiv 3 - k floordiv 2 >= 0)">,
  set<"(p, k)[nq, nk] : (p - k - 3 == 0)">,
  set<"(p, k)[nq, nk] : ((p + 2 * k) mod 11 - 2 == 0, p floordiv 3 - k floordiv 4 >= 0)">,
  set<"(p, k)[nq, nk] : (p - k - 9 == 0)">,
  set<"(p, k)[nq, nk] : ((p + 2 * k) mod 13 - 4 == 0, p floordiv 3 - k floordiv 6 >= 0)">,
  set<"(p, k)[nq, nk] : (p - k - 15 == 0)">,
  set<"(p, k)[nq, nk] : ((p + 2 * k) mod 15 - 6 == 0, p floordiv 3 - k floordiv 8 >= 0)">,
  set<"(p, k)[nq, nk] : (p - k - 21 == 0)">,
  set<"(p, k)[nq, nk] : ((p + 2 * k) mod 17 - 8 == 0, p floordiv 3 - k floordiv 10 >= 0)">,
  set<"(p, k)[nq, nk] : (p - k - 27 == 0)">,
  set<"(p, k)[nq, nk] : ((p + 2 * k) mod 19 - 10 == 0, p floordiv 3 - k floordiv 12 >= 0)">,
  set<"(p, k)[nq, nk] : (p - k - 33 == 0)">,
  set<"(p, k)[nq, nk] : ((p + 2 * k) mod 21 - 12 == 0, p floordiv 3 - k floordiv 14 >= 0)">,
  set<"(p, k)[nq, nk] : (p - k - 39 == 0)">]>
func.func @mixed(%q: memref<1x2x70x16xf16>, %k: memref<1x1x90x16xf16>, %v: memref<1x1x90x16xf16>, %o: memref<1x2x70x16xf16>, %lse: memref<1x2x70xf32>, %d_o: memref<1x2x70x16xf16>,
    %dq: memref<1x2x70x16xf16>, %dk: memref<1x1x90x16xf16>, %dv: memref<1x1x90x16xf16>) {
  flashattn.attention mask(#mixed) ins(%q, %k, %v : memref<1x2x70x16xf16>, memref<1x1x90x16xf16>, memref<1x1x90x16xf16>)
      outs(%o, %lse : memref<1x2x70x16xf16>, memref<1x2x70xf32>)
  flashattn.attention_backward mask(#mixed)
      ins(%q, %k, %v, %o, %lse, %d_o : memref<1x2x70x16xf16>, memref<1x1x90x16xf16>, memref<1x1x90x16xf16>, memref<1x2x70x16xf16>, memref<1x2x70xf32>, memref<1x2x70x16xf16>)
      outs(%dq, %dk, %dv : memref<1x2x70x16xf16>, memref<1x1x90x16xf16>, memref<1x1x90x16xf16>)
  return
}
