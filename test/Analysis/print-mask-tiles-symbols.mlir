// RUN: flash-opt %s -flashattn-print-mask-tiles="tile-m=8 tile-n=8 symbols=12,40" -o /dev/null | FileCheck %s
// RUN: flash-opt %s -flashattn-print-mask-tiles="tile-m=8 tile-n=8 symbols=-2147483648,2147483647" -o /dev/null | FileCheck %s --check-prefix=NONE
// RUN: not flash-opt %s -flashattn-print-mask-tiles="tile-m=8 tile-n=8" 2>&1 | FileCheck %s --check-prefix=MISSING
// RUN: not flash-opt %s -flashattn-print-mask-tiles="symbols=1,2,3" 2>&1 | FileCheck %s --check-prefix=MORE
// RUN: not flash-opt %s -flashattn-print-mask-tiles="symbols=1,2147483648" 2>&1 | FileCheck %s --check-prefix=WIDE

// Y1: values of symbols, the same for all pairs. A prefix of 12 keys, and a document from key 40 on.
// CHECK: nq = 64, nk = 64, tile-m = 8, tile-n = 8, offset = 0, symbols = [12, 40]
// CHECK-NEXT: {{^}}#+......{{$}}
// CHECK-NEXT: {{^}}#+......{{$}}
// CHECK-NEXT: {{^}}#+......{{$}}
// CHECK-NEXT: {{^}}#+......{{$}}
// CHECK-NEXT: {{^}}#+......{{$}}
// CHECK-NEXT: {{^}}#+...+..{{$}}
// CHECK-NEXT: {{^}}#+...#+.{{$}}
// CHECK-NEXT: {{^}}#+...##+{{$}}
// CHECK-NEXT: 11 full (#), 11 partial (+), 42 not visited (.); 1068 of 4096 pairs visible
// CHECK: symbols = [12, 40], a line for tile-m keys, a character for tile-n queries
// CHECK-NEXT: {{^}}########{{$}}
// CHECK-NEXT: {{^}}++++++++{{$}}
// CHECK-NEXT: {{^}}........{{$}}
// CHECK-NEXT: {{^}}........{{$}}
// CHECK-NEXT: {{^}}........{{$}}
// CHECK-NEXT: {{^}}.....+##{{$}}
// CHECK-NEXT: {{^}}......+#{{$}}
// CHECK-NEXT: {{^}}.......+{{$}}
// NONE: symbols = [-2147483648, 2147483647]
// NONE: 0 full (#), 0 partial (+), 64 not visited (.); 0 of 4096 pairs visible
// MISSING: expected option 'symbols' with a number for each of per_sequence[0], per_query[0], as in 'symbols=0,0', but got none
// MORE: expected option 'symbols' with a number for each of per_sequence[0], per_query[0], as in 'symbols=0,0', but got 3
// WIDE: expected values from -2147483648 to 2147483647 for 'symbols' but got 2147483648
#document = affine_set<(p, k)[nq, nk, prefix, start] : (p - k >= 0, k - start >= 0)>
#prefix = affine_set<(p, k)[nq, nk, prefix] : (prefix - 1 - k >= 0)>
!t = memref<1x1x64x16xf32>
func.func @gradients(%q: !t, %lse: memref<1x1x64xf32>, %prefix: memref<1xi32>, %start: memref<1x1x64xi32>, %dq: !t, %dk: !t, %dv: !t) {
  flashattn.attention_backward mask(any_of<[#prefix, #document]>) ins(%q, %q, %q, %q, %lse, %q : !t, !t, !t, !t, memref<1x1x64xf32>, !t)
      per_sequence(%prefix : memref<1xi32>) per_query(%start : memref<1x1x64xi32>) outs(%dq, %dk, %dv : !t, !t, !t)
  return
}
