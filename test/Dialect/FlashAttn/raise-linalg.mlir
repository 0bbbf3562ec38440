// RUN: flash-opt %s -split-input-file -flashattn-raise-linalg | FileCheck %s

#o = affine_map<(b, n, e, h, d) -> (b, h, n, d)>
#w = affine_map<(b, n, e, h, d) -> (h, d, e)>
#p = affine_map<(b, n, e, h, d) -> (b, n, e)>
#id = affine_map<(b, n, e) -> (b, n, e)>

// The fills of both destinations and the truncation go.
// CHECK-LABEL: func @tensors
// CHECK-SAME: %[[Q:[a-z0-9]+]]: tensor<2x4x37x16xbf16>, %[[W:[a-z0-9]+]]: tensor<4x16x40xbf16>
// CHECK-NOT: linalg
// CHECK: %[[O:.*]] = flashattn.attention
// CHECK: %[[P:.*]] = flashattn.project ins(%[[O]], %[[W]] : tensor<2x4x37x16xbf16>, tensor<4x16x40xbf16>) outs(%{{.*}} : tensor<2x37x40xbf16>) -> tensor<2x37x40xbf16>
// CHECK-NEXT: return %[[P]]
func.func @tensors(%q: tensor<2x4x37x16xbf16>, %w: tensor<4x16x40xbf16>) -> tensor<2x37x40xbf16> {
  %oi = tensor.empty() : tensor<2x4x37x16xbf16>
  %zero16 = arith.constant 0.0 : bf16
  %zero = arith.constant 0.0 : f32
  %of = linalg.fill ins(%zero16 : bf16) outs(%oi : tensor<2x4x37x16xbf16>) -> tensor<2x4x37x16xbf16>
  %o = flashattn.attention ins(%q, %q, %q : tensor<2x4x37x16xbf16>, tensor<2x4x37x16xbf16>, tensor<2x4x37x16xbf16>) outs(%of : tensor<2x4x37x16xbf16>) -> tensor<2x4x37x16xbf16>
  %e = tensor.empty() : tensor<2x37x40xf32>
  %f = linalg.fill ins(%zero : f32) outs(%e : tensor<2x37x40xf32>) -> tensor<2x37x40xf32>
  %s = linalg.contract indexing_maps = [#o, #w, #p] ins(%o, %w : tensor<2x4x37x16xbf16>, tensor<4x16x40xbf16>) outs(%f : tensor<2x37x40xf32>) -> tensor<2x37x40xf32>
  %t = tensor.empty() : tensor<2x37x40xbf16>
  %p = linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel", "parallel", "parallel"]} ins(%s : tensor<2x37x40xf32>) outs(%t : tensor<2x37x40xbf16>) {
    ^bb0(%in: f32, %out: bf16):
      %x = arith.truncf %in : f32 to bf16
      linalg.yield %x : bf16
  } -> tensor<2x37x40xbf16>
  return %p : tensor<2x37x40xbf16>
}

// -----

// By any name, with the loops and the operands in any order.
// CHECK-LABEL: func @memrefs
// CHECK-SAME: %[[O:[a-z0-9]+]]: memref<2x37x4x16xf16>, %[[W:[a-z0-9]+]]: memref<4x16x40xf16>, %[[P:[a-z0-9]+]]: memref<2x37x40xf32>
// CHECK-NOT: linalg
// CHECK: flashattn.project layout(bshd) ins(%[[O]], %[[W]] : memref<2x37x4x16xf16>, memref<4x16x40xf16>) outs(%[[P]] : memref<2x37x40xf32>)
func.func @memrefs(%o: memref<2x37x4x16xf16>, %w: memref<4x16x40xf16>, %p: memref<2x37x40xf32>) {
  %zero = arith.constant 0.0 : f32
  linalg.fill ins(%zero : f32) outs(%p : memref<2x37x40xf32>)
  linalg.generic {indexing_maps = [affine_map<(b, n, h, d, e) -> (h, d, e)>, affine_map<(b, n, h, d, e) -> (b, n, h, d)>, affine_map<(b, n, h, d, e) -> (b, n, e)>], iterator_types = ["parallel", "parallel", "reduction", "reduction", "parallel"]} ins(%w, %o : memref<4x16x40xf16>, memref<2x37x4x16xf16>) outs(%p : memref<2x37x40xf32>) {
    ^bb0(%x: f16, %y: f16, %acc: f32):
      %x32 = arith.extf %x : f16 to f32
      %y32 = arith.extf %y : f16 to f32
      %m = arith.mulf %x32, %y32 : f32
      %s = arith.addf %m, %acc : f32
      linalg.yield %s : f32
  }
  return
}

// -----

#o = affine_map<(b, n, e, h, d) -> (b, h, n, d)>
#w = affine_map<(b, n, e, h, d) -> (h, d, e)>
#p = affine_map<(b, n, e, h, d) -> (b, n, e)>

// What the destination holds is added to: not the same.
// CHECK-LABEL: func @adds
// CHECK: linalg.contract
func.func @adds(%o: memref<2x4x37x16xf32>, %w: memref<4x16x40xf32>, %p: memref<2x37x40xf32>) {
  linalg.contract indexing_maps = [#o, #w, #p] ins(%o, %w : memref<2x4x37x16xf32>, memref<4x16x40xf32>) outs(%p : memref<2x37x40xf32>)
  return
}

// Not with 0, and not between the two.
// CHECK-LABEL: func @other_fill
// CHECK: linalg.contract
// CHECK: linalg.fill
// CHECK: memref.store
// CHECK: linalg.contract
func.func @other_fill(%o: memref<2x4x37x16xf32>, %w: memref<4x16x40xf32>, %p: memref<2x37x40xf32>, %i: index) {
  %one = arith.constant 1.0 : f32
  %zero = arith.constant 0.0 : f32
  linalg.fill ins(%one : f32) outs(%p : memref<2x37x40xf32>)
  linalg.contract indexing_maps = [#o, #w, #p] ins(%o, %w : memref<2x4x37x16xf32>, memref<4x16x40xf32>) outs(%p : memref<2x37x40xf32>)
  linalg.fill ins(%zero : f32) outs(%p : memref<2x37x40xf32>)
  memref.store %one, %p[%i, %i, %i] : memref<2x37x40xf32>
  linalg.contract indexing_maps = [#o, #w, #p] ins(%o, %w : memref<2x4x37x16xf32>, memref<4x16x40xf32>) outs(%p : memref<2x37x40xf32>)
  return
}

// Not what is read by another name in between.
// CHECK-LABEL: func @viewed
// CHECK: linalg.fill
// CHECK: linalg.copy
// CHECK: flashattn.project
func.func @viewed(%o: memref<2x4x37x16xf32>, %w: memref<4x16x40xf32>, %p: memref<2x37x40xf32>, %x: memref<1x37x40xf32>) {
  %one = arith.constant 1.0 : f32
  linalg.fill ins(%one : f32) outs(%p : memref<2x37x40xf32>)
  %part = memref.subview %p[0, 0, 0] [1, 37, 40] [1, 1, 1] : memref<2x37x40xf32> to memref<1x37x40xf32, strided<[1480, 40, 1]>>
  linalg.copy ins(%part : memref<1x37x40xf32, strided<[1480, 40, 1]>>) outs(%x : memref<1x37x40xf32>)
  flashattn.project ins(%o, %w : memref<2x4x37x16xf32>, memref<4x16x40xf32>) outs(%p : memref<2x37x40xf32>)
  return
}

// Heads are not summed, rows of 12, a matrix that is transposed, a difference.
// CHECK-LABEL: func @others
// CHECK-COUNT-3: linalg.contract
// CHECK: linalg.generic
// CHECK-NOT: flashattn.project
func.func @others(%o: tensor<2x4x37x16xf32>, %w: tensor<4x16x40xf32>, %o12: tensor<2x4x37x12xf32>, %w12: tensor<4x12x40xf32>, %wt: tensor<4x40x16xf32>, %p: tensor<2x37x40xf32>, %ph: tensor<2x4x37x40xf32>)
    -> (tensor<2x4x37x40xf32>, tensor<2x37x40xf32>, tensor<2x37x40xf32>, tensor<2x37x40xf32>) {
  %zero = arith.constant 0.0 : f32
  %fh = linalg.fill ins(%zero : f32) outs(%ph : tensor<2x4x37x40xf32>) -> tensor<2x4x37x40xf32>
  %f = linalg.fill ins(%zero : f32) outs(%p : tensor<2x37x40xf32>) -> tensor<2x37x40xf32>
  %0 = linalg.contract indexing_maps = [#o, #w, affine_map<(b, n, e, h, d) -> (b, h, n, e)>] ins(%o, %w : tensor<2x4x37x16xf32>, tensor<4x16x40xf32>) outs(%fh : tensor<2x4x37x40xf32>) -> tensor<2x4x37x40xf32>
  %1 = linalg.contract indexing_maps = [#o, #w, #p] ins(%o12, %w12 : tensor<2x4x37x12xf32>, tensor<4x12x40xf32>) outs(%f : tensor<2x37x40xf32>) -> tensor<2x37x40xf32>
  %2 = linalg.contract indexing_maps = [#o, affine_map<(b, n, e, h, d) -> (h, e, d)>, #p] ins(%o, %wt : tensor<2x4x37x16xf32>, tensor<4x40x16xf32>) outs(%f : tensor<2x37x40xf32>) -> tensor<2x37x40xf32>
  %3 = linalg.generic {indexing_maps = [#o, #w, #p], iterator_types = ["parallel", "parallel", "parallel", "reduction", "reduction"]} ins(%o, %w : tensor<2x4x37x16xf32>, tensor<4x16x40xf32>) outs(%f : tensor<2x37x40xf32>) {
    ^bb0(%x: f32, %y: f32, %acc: f32):
      %m = arith.mulf %x, %y : f32
      %s = arith.subf %acc, %m : f32
      linalg.yield %s : f32
  } -> tensor<2x37x40xf32>
  return %0, %1, %2, %3 : tensor<2x4x37x40xf32>, tensor<2x37x40xf32>, tensor<2x37x40xf32>, tensor<2x37x40xf32>
}

// -----

// The gradients' destinations are not read: of their fills the optional ones' go too, but not that of an operand.
// CHECK-LABEL: func @gradients
// CHECK-SAME: (%{{[a-z0-9]+}}: tensor<1x2x8x16xf32>, %[[DQ:[a-z0-9]+]]: tensor<1x2x8x16xf32>,
// CHECK: %[[LSE:.*]] = linalg.fill
// CHECK-NOT: linalg.fill
// CHECK: flashattn.attention_backward ins({{.*}}) d_lse(%[[LSE]] : {{.*}}) {{.*}} outs(%[[DQ]], %[[DQ]], %[[DQ]] : {{.*}}) d_bias(%{{.*}} : tensor<1x1x8x8xf32>) d_sink_logits(
func.func @gradients(%q: tensor<1x2x8x16xf32>, %dq: tensor<1x2x8x16xf32>, %lse: tensor<1x2x8xf32>, %bias: tensor<1x1x8x8xf32>, %sinks: tensor<2xf32>)
    -> (tensor<1x2x8x16xf32>, tensor<1x1x8x8xf32>, tensor<2xf32>) {
  %zero = arith.constant 0.0 : f32
  %l = linalg.fill ins(%zero : f32) outs(%lse : tensor<1x2x8xf32>) -> tensor<1x2x8xf32>
  %f = linalg.fill ins(%zero : f32) outs(%dq : tensor<1x2x8x16xf32>) -> tensor<1x2x8x16xf32>
  %b = linalg.fill ins(%zero : f32) outs(%bias : tensor<1x1x8x8xf32>) -> tensor<1x1x8x8xf32>
  %s = linalg.fill ins(%zero : f32) outs(%sinks : tensor<2xf32>) -> tensor<2xf32>
  %r:5 = flashattn.attention_backward
      ins(%q, %q, %q, %q, %lse, %q : tensor<1x2x8x16xf32>, tensor<1x2x8x16xf32>, tensor<1x2x8x16xf32>, tensor<1x2x8x16xf32>, tensor<1x2x8xf32>, tensor<1x2x8x16xf32>)
      d_lse(%l : tensor<1x2x8xf32>) bias(%bias : tensor<1x1x8x8xf32>) sink_logits(%sinks : tensor<2xf32>)
      outs(%f, %f, %f : tensor<1x2x8x16xf32>, tensor<1x2x8x16xf32>, tensor<1x2x8x16xf32>)
      d_bias(%b : tensor<1x1x8x8xf32>) d_sink_logits(%s : tensor<2xf32>)
      -> tensor<1x2x8x16xf32>, tensor<1x2x8x16xf32>, tensor<1x2x8x16xf32>, tensor<1x1x8x8xf32>, tensor<2xf32>
  return %r#0, %r#3, %r#4 : tensor<1x2x8x16xf32>, tensor<1x1x8x8xf32>, tensor<2xf32>
}

// On memrefs, over other ops that have nothing to do with them.
// CHECK-LABEL: func @gradients_in_memory
// CHECK-NOT: linalg.fill
// CHECK-COUNT-2: flashattn.attention_backward
func.func @gradients_in_memory(%q: memref<1x2x8x16xf32>, %lse: memref<1x2x8xf32>, %dq: memref<1x2x8x16xf32>, %dk: memref<1x2x8x16xf32>, %dv: memref<1x2x8x16xf32>,
                               %dq2: memref<1x2x8x16xf32>, %dk2: memref<1x2x8x16xf32>, %dv2: memref<1x2x8x16xf32>) {
  %zero = arith.constant 0.0 : f32
  linalg.fill ins(%zero : f32) outs(%dq2 : memref<1x2x8x16xf32>)
  linalg.fill ins(%zero : f32) outs(%dv : memref<1x2x8x16xf32>)
  flashattn.attention_backward
      ins(%q, %q, %q, %q, %lse, %q : memref<1x2x8x16xf32>, memref<1x2x8x16xf32>, memref<1x2x8x16xf32>, memref<1x2x8x16xf32>, memref<1x2x8xf32>, memref<1x2x8x16xf32>)
      outs(%dq, %dk, %dv : memref<1x2x8x16xf32>, memref<1x2x8x16xf32>, memref<1x2x8x16xf32>)
  flashattn.attention_backward
      ins(%q, %q, %q, %q, %lse, %q : memref<1x2x8x16xf32>, memref<1x2x8x16xf32>, memref<1x2x8x16xf32>, memref<1x2x8x16xf32>, memref<1x2x8xf32>, memref<1x2x8x16xf32>)
      outs(%dq2, %dk2, %dv2 : memref<1x2x8x16xf32>, memref<1x2x8x16xf32>, memref<1x2x8x16xf32>)
  return
}

// What the op reads too is filled still.
// CHECK-LABEL: func @read_and_written
// CHECK: linalg.fill
// CHECK-NEXT: flashattn.attention
func.func @read_and_written(%q: memref<1x2x8x16xf32>, %k: memref<1x2x8x16xf32>, %out_q: memref<1x2x8x16xf32>) {
  %one = arith.constant 1.0 : f32
  linalg.fill ins(%one : f32) outs(%q : memref<1x2x8x16xf32>)
  flashattn.attention ins(%q, %k, %k : memref<1x2x8x16xf32>, memref<1x2x8x16xf32>, memref<1x2x8x16xf32>) outs(%out_q : memref<1x2x8x16xf32>)
  return
}
