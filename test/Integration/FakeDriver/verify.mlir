// --verify looks at every op on a GPU too, in the memory of the device. The driver is a fake one, whose
// kernels do nothing: values of 0 and outputs of 0 before the launches are right.
//
// REQUIRES: fakecuda
// DEFINE: %{run} = env FLASHATTN_CUDA_DRIVER=%fakecuda flash-run %s --device=cuda --verify
// RUN: %{run} --function=layers --input=random --input=zeros --input=3 --input=zeros --input=zeros | FileCheck %s --check-prefix=LAYERS
// LAYERS: verify: flashattn.attention at {{.*}}:[[#]]:5, 3 runs, all 384 rows
// LAYERS-NEXT: verify o: {{.*}}: PASS
// LAYERS-NEXT: verify: flashattn.project at {{.*}}, 3 runs, all 192 rows
// LAYERS-NEXT: verify p: {{.*}}: PASS
// LAYERS-NEXT: verify: 2 of 2 ops compared

// RUN: not %{run} --function=layers --input=random --input=zeros --input=3 --input=zeros --input=zeros --verify-plant-fault=1:77 | FileCheck %s --check-prefix=PLANTED
// PLANTED: verify o: {{.*}}: PASS
// No kernel writes over the errors of the runs before: 1, 1 + 2, 3 + 4.
// PLANTED: verify p: max error 7.000e+00, {{.*}}: FAIL

// RUN: not %{run} --function=layers --input=random --input=random --input=1 --input=zeros --input=zeros | FileCheck %s --check-prefix=WRONG
// WRONG: verify o: {{.*}}: FAIL
func.func @layers(%q: memref<1x2x64x64xf16>, %v: memref<1x1x64x64xf16>, %n: index, %o: memref<1x2x64x64xf16>, %p: memref<1x64x128xf16>) {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  scf.for %i = %c0 to %n step %c1 {
    flashattn.attention mask(#flashattn.causal)
        ins(%q, %v, %v : memref<1x2x64x64xf16>, memref<1x1x64x64xf16>, memref<1x1x64x64xf16>) outs(%o : memref<1x2x64x64xf16>)
    func.call @project(%o, %p) : (memref<1x2x64x64xf16>, memref<1x64x128xf16>) -> ()
  }
  return
}
func.func private @project(%o: memref<1x2x64x64xf16>, %p: memref<1x64x128xf16>) {
  %w = memref.reinterpret_cast %o to offset: [0], sizes: [2, 64, 64], strides: [4096, 64, 1] : memref<1x2x64x64xf16> to memref<2x64x64xf16, strided<[4096, 64, 1]>>
  %c = memref.cast %w : memref<2x64x64xf16, strided<[4096, 64, 1]>> to memref<2x64x?xf16, strided<[4096, 64, 1]>>
  %pc = memref.subview %p[0, 0, 0] [1, 64, 64] [1, 1, 1] : memref<1x64x128xf16> to memref<1x64x64xf16, strided<[8192, 128, 1]>>
  %pd = memref.cast %pc : memref<1x64x64xf16, strided<[8192, 128, 1]>> to memref<1x64x?xf16, strided<[8192, 128, 1]>>
  flashattn.project ins(%o, %c : memref<1x2x64x64xf16>, memref<2x64x?xf16, strided<[4096, 64, 1]>>) outs(%pd : memref<1x64x?xf16, strided<[8192, 128, 1]>>)
  return
}

// What the pipelines make of linalg is what is looked at: a sum that is truncated is one projection.
// RUN: not %{run} --function=contraction --input=random --input=zeros | FileCheck %s --check-prefix=LINALG
// LINALG: output 0: 1x64x128xf16
// LINALG: verify: flashattn.attention at
// LINALG-NEXT: verify o: {{.*}}, 8192 elements are not finite where the reference is, {{.*}}: FAIL
// LINALG-NEXT: verify: flashattn.project at
// LINALG-NEXT: verify p: {{.*}}
// LINALG-NEXT: verify: 2 of 2 ops compared
#o = affine_map<(b, n, e, h, d) -> (b, h, n, d)>
#w = affine_map<(b, n, e, h, d) -> (h, d, e)>
#p = affine_map<(b, n, e, h, d) -> (b, n, e)>
func.func @contraction(%q: tensor<1x2x64x64xf16>, %w: tensor<2x64x128xf16>) -> tensor<1x64x128xf16> {
  %e = tensor.empty() : tensor<1x2x64x64xf16>
  %o = flashattn.attention mask(#flashattn.causal)
      ins(%q, %q, %q : tensor<1x2x64x64xf16>, tensor<1x2x64x64xf16>, tensor<1x2x64x64xf16>)
      outs(%e : tensor<1x2x64x64xf16>) -> tensor<1x2x64x64xf16>
  %zero = arith.constant 0.0 : f32
  %ep = tensor.empty() : tensor<1x64x128xf32>
  %fill = linalg.fill ins(%zero : f32) outs(%ep : tensor<1x64x128xf32>) -> tensor<1x64x128xf32>
  %sum = linalg.generic {indexing_maps = [#o, #w, #p], iterator_types = ["parallel", "parallel", "parallel", "reduction", "reduction"]}
      ins(%o, %w : tensor<1x2x64x64xf16>, tensor<2x64x128xf16>) outs(%fill : tensor<1x64x128xf32>) {
  ^bb0(%x: f16, %y: f16, %s: f32):
    %xf = arith.extf %x : f16 to f32
    %yf = arith.extf %y : f16 to f32
    %xy = arith.mulf %xf, %yf : f32
    %r = arith.addf %s, %xy : f32
    linalg.yield %r : f32
  } -> tensor<1x64x128xf32>
  %p = arith.truncf %sum : tensor<1x64x128xf32> to tensor<1x64x128xf16>
  return %p : tensor<1x64x128xf16>
}
