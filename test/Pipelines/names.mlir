// Functions have any name: kernels get names that PTX takes, each its own, and nobody meets the entry of another.
// RUN: flash-opt %s -flashattn-to-nvvm=chip=sm_80 -emit=ptx | FileCheck %s
// RUN: flash-run %s --device=cpu --function='jit(f)' --verify | FileCheck %s --check-prefix=SAME
// RUN: flash-run %s --device=model:sm_80 --function=f --verify | FileCheck %s --check-prefix=SAME
// RUN: flash-run %s --device=cpu --function=f --verify | FileCheck %s --check-prefix=SAME
// RUN: flash-run %s --device=cpu --function=f.entry --verify | FileCheck %s --check-prefix=SAME
// CHECK-DAG: .entry jit_f__kernel(
// CHECK-DAG: .entry jit_f__kernel_0(
// CHECK-DAG: .entry ___kernel(
// CHECK-DAG: .entry _2nd_kernel(
// CHECK-DAG: .entry f_entry_kernel(
// CHECK-DAG: .entry f_kernel(
// SAME: verify: 1 of 1 ops compared

!t = memref<1x1x16x16xf32>
func.func @"jit(f)"(%q: !t, %o: !t) {
  flashattn.attention ins(%q, %q, %q : !t, !t, !t) outs(%o : !t)
  return
}
func.func @"jit<f>"(%q: !t, %o: !t) {
  flashattn.attention mask(#flashattn.causal) ins(%q, %q, %q : !t, !t, !t) outs(%o : !t)
  return
}
func.func @"\C3\A9"(%q: !t, %o: !t) {
  flashattn.attention mask(#flashattn.sink<2>) ins(%q, %q, %q : !t, !t, !t) outs(%o : !t)
  return
}
func.func @"2nd"(%q: !t, %o: !t) {
  flashattn.attention mask(#flashattn.sink<3>) ins(%q, %q, %q : !t, !t, !t) outs(%o : !t)
  return
}
func.func @f.entry(%q: !t, %o: !t) {
  flashattn.attention mask(#flashattn.sink<4>) ins(%q, %q, %q : !t, !t, !t) outs(%o : !t)
  return
}
func.func @f(%q: !t, %o: !t) {
  flashattn.attention mask(#flashattn.sink<5>) ins(%q, %q, %q : !t, !t, !t) outs(%o : !t)
  return
}
