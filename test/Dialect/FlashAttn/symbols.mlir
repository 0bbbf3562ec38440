// RUN: split-file %s %t
// RUN: flash-opt %t/text.mlir | flash-opt | FileCheck %t/text.mlir
// RUN: flash-opt %t/text.mlir -mlir-print-op-generic | flash-opt | FileCheck %t/text.mlir
// RUN: flash-opt %t/text.mlir --one-shot-bufferize="bufferize-function-boundaries function-boundary-type-conversion=identity-layout-map" | FileCheck %t/text.mlir --check-prefix=BUFFERS
// RUN: flash-opt %t/canonicalize.mlir -canonicalize | FileCheck %t/canonicalize.mlir
// RUN: flash-opt %t/tiled.mlir -transform-interpreter -canonicalize -cse | FileCheck %t/tiled.mlir
// RUN: flash-opt %t/sharded.mlir --pass-pipeline='builtin.module(func.func(sharding-propagation,shard-partition,canonicalize,cse))' | FileCheck %t/sharded.mlir
// RUN: flash-opt %t/tile.mlir "-flashattn-select-schedule=chip=sm_80 schedule='tile_m = 128, tile_n = 64, stages = 2, dot_type = f16, mapping = mma_sync<warps = 8>'" -flashattn-tile -canonicalize -cse | FileCheck %t/tile.mlir
// RUN: flash-opt %t/invalid.mlir -split-input-file -verify-diagnostics -o /dev/null

// Y1, Y2: sets of the mask may have symbols after nq and nk, whose values are operands.

//--- text.mlir

// The clauses may be written in any order. A set may use the first symbols alone.
// CHECK-LABEL: func @text
// CHECK-SAME: %[[PREFIX:[a-z0-9]+]]: tensor<2xi32>, %[[START:[a-z0-9]+]]: tensor<2x1x8xi32>, %[[END:[a-z0-9]+]]: tensor<1x2x8xi32>
// CHECK: flashattn.attention mask(#flashattn.any_of<[#flashattn.set<"(p, k)[nq, nk, s2] : (-k + s2 - 1 >= 0)">, #flashattn.set<"(p, k)[nq, nk, s2, s3, s4] : (p - k >= 0, k - s3 >= 0, -p + s4 - 1 >= 0)">]>) ins(
// CHECK-SAME: per_sequence(%[[PREFIX]] : tensor<2xi32>) per_query(%[[START]] : tensor<2x1x8xi32>) per_key(%[[END]] : tensor<1x2x8xi32>) outs(
// CHECK: flashattn.attention_backward mask({{.*}}) ins({{.*}}) per_sequence(%[[PREFIX]] : tensor<2xi32>) per_query(%[[START]] : tensor<2x1x8xi32>) per_key(%[[END]] : tensor<1x2x8xi32>) outs(
// BUFFERS-LABEL: func @text
// BUFFERS-SAME: %[[PREFIX:[a-z0-9]+]]: memref<2xi32>, %[[START:[a-z0-9]+]]: memref<2x1x8xi32>, %[[END:[a-z0-9]+]]: memref<1x2x8xi32>
// BUFFERS: flashattn.attention mask({{.*}}) ins({{.*}}) per_sequence(%[[PREFIX]] : memref<2xi32>) per_query(%[[START]] : memref<2x1x8xi32>) per_key(%[[END]] : memref<1x2x8xi32>) outs(
// BUFFERS: flashattn.attention_backward mask({{.*}}) ins({{.*}}) per_sequence(%[[PREFIX]] : memref<2xi32>) per_query(%[[START]] : memref<2x1x8xi32>) per_key(%[[END]] : memref<1x2x8xi32>) outs(
#prefix = affine_set<(p, k)[nq, nk, prefix] : (prefix - 1 - k >= 0)>
#document = affine_set<(p, k)[nq, nk, prefix, start, end] : (p - k >= 0, k - start >= 0, end - 1 - p >= 0)>
!q = tensor<2x4x8x16xf16>
!k = tensor<2x2x8x16xf16>
func.func @text(%q: !q, %k: !k, %prefix: tensor<2xi32>, %start: tensor<2x1x8xi32>, %end: tensor<1x2x8xi32>, %lse: tensor<2x4x8xf32>)
    -> (!q, !q) {
  %e = tensor.empty() : !q
  %ek = tensor.empty() : !k
  %o = flashattn.attention per_key(%end : tensor<1x2x8xi32>) mask(any_of<[#prefix, #document]>) ins(%q, %k, %k : !q, !k, !k)
      per_query(%start : tensor<2x1x8xi32>) per_sequence(%prefix : tensor<2xi32>) outs(%e : !q) -> !q
  %g:3 = flashattn.attention_backward mask(any_of<[#prefix, #document]>)
      ins(%q, %k, %k, %o, %lse, %q : !q, !k, !k, !q, tensor<2x4x8xf32>, !q)
      per_sequence(%prefix : tensor<2xi32>) per_query(%start : tensor<2x1x8xi32>) per_key(%end : tensor<1x2x8xi32>)
      outs(%e, %ek, %ek : !q, !k, !k) -> !q, !k, !k
  return %o, %g#0 : !q, !q
}

// Several operands in each clause. Numbers of two digits are of symbols other than nq and nk.
// CHECK-LABEL: func @several
// CHECK-SAME: %[[A:[a-z0-9]+]]: tensor<2xi32>, %[[B:[a-z0-9]+]]: tensor<1xi32>, %[[C:[a-z0-9]+]]: tensor<2x4x8xi32>, %[[D:[a-z0-9]+]]: tensor<1x1x8xi32>
// CHECK: flashattn.attention mask(#flashattn.set<"(p, k)[nq, nk, s2, s3, s4, s5, s6, s7, s8, s9, s10, s11] : (p - k + s3 >= 0, s4 - s11 == 0, s10 - nk >= 0)">)
// CHECK-SAME: per_sequence(%[[A]], %[[B]] : tensor<2xi32>, tensor<1xi32>) per_query(%[[C]], %[[D]], %[[C]] : tensor<2x4x8xi32>, tensor<1x1x8xi32>, tensor<2x4x8xi32>) per_key(%[[D]], %[[D]], %[[D]], %[[D]], %[[D]] : tensor<1x1x8xi32>,
func.func @several(%q: !q, %a: tensor<2xi32>, %b: tensor<1xi32>, %c: tensor<2x4x8xi32>, %d: tensor<1x1x8xi32>) -> !q {
  %o = flashattn.attention
      mask(set<"(p, k)[nq, nk, a, b, c, d, e, f, g, h, i, j] : (p - k + b >= 0, c - j == 0, i - nk >= 0)">) ins(%q, %q, %q : !q, !q, !q)
      per_sequence(%a, %b : tensor<2xi32>, tensor<1xi32>)
      per_query(%c, %d, %c : tensor<2x4x8xi32>, tensor<1x1x8xi32>, tensor<2x4x8xi32>)
      per_key(%d, %d, %d, %d, %d : tensor<1x1x8xi32>, tensor<1x1x8xi32>, tensor<1x1x8xi32>, tensor<1x1x8xi32>, tensor<1x1x8xi32>)
      outs(%q : !q) -> !q
  return %o : !q
}

//--- canonicalize.mlir

// A mask that hides nothing goes, and its symbols too.
// CHECK-LABEL: func @hides_nothing
// CHECK-NEXT: flashattn.attention ins(%{{.*}} : memref<2x4x8x16xf32>, memref<2x4x8x16xf32>, memref<2x4x8x16xf32>) outs(
// CHECK-NEXT: flashattn.attention_backward ins(%{{.*}} : {{.*}}) outs(
// CHECK-NEXT: return
!q = memref<2x4x8x16xf32>
#all = affine_set<(p, k)[nq, nk, a, b, c] : (3 >= 0)>
#some = affine_set<(p, k)[nq, nk, a, b, c] : (a - k >= 0)>
func.func @hides_nothing(%q: !q, %a: memref<2xi32>, %b: memref<2x4x8xi32>, %lse: memref<2x4x8xf32>, %o: !q, %dq: !q, %dk: !q, %dv: !q) {
  flashattn.attention mask(any_of<[#some, #all]>) ins(%q, %q, %q : !q, !q, !q)
      per_sequence(%a : memref<2xi32>) per_query(%b : memref<2x4x8xi32>) per_key(%b : memref<2x4x8xi32>) outs(%o : !q)
  flashattn.attention_backward mask(#all) ins(%q, %q, %q, %q, %lse, %q : !q, !q, !q, !q, memref<2x4x8xf32>, !q)
      per_sequence(%a : memref<2xi32>) per_query(%b : memref<2x4x8xi32>) per_key(%b : memref<2x4x8xi32>) outs(%dq, %dk, %dv : !q, !q, !q)
  return
}

// Casts of symbols that only forget sizes fold into the op, as those of other operands.
// CHECK-LABEL: func @casts
// CHECK-SAME: %[[START:[a-z0-9]+]]: tensor<2x1x8xi32>
// CHECK: flashattn.attention {{.*}} per_query(%[[START]] : tensor<2x1x8xi32>)
func.func @casts(%q: tensor<2x4x8x16xf32>, %start: tensor<2x1x8xi32>) -> tensor<2x4x8x16xf32> {
  %d = tensor.cast %start : tensor<2x1x8xi32> to tensor<?x1x?xi32>
  %r = flashattn.attention mask(affine_set<(p, k)[nq, nk, start] : (k - start >= 0)>)
      ins(%q, %q, %q : tensor<2x4x8x16xf32>, tensor<2x4x8x16xf32>, tensor<2x4x8x16xf32>)
      per_query(%d : tensor<?x1x?xi32>) outs(%q : tensor<2x4x8x16xf32>) -> tensor<2x4x8x16xf32>
  return %r : tensor<2x4x8x16xf32>
}

//--- tiled.mlir

// A tile has the symbols of its batches, heads and queries. Broadcast dimensions stay, and keys are not divided. A4: the
// key/value head is that of the query head.
// CHECK-LABEL: func @tiled
// CHECK-SAME: %[[A:[a-z0-9]+]]: tensor<2xi32>, %[[B:[a-z0-9]+]]: tensor<1xi32>, %[[C:[a-z0-9]+]]: tensor<2x8x128xi32>, %[[D:[a-z0-9]+]]: tensor<1x1x128xi32>, %[[E:[a-z0-9]+]]: tensor<2x2x128xi32>
// CHECK: scf.forall (%[[I:.*]], %[[H:.*]], %[[T:.*]]) in
// CHECK: %[[N:.*]] = affine.apply #{{.*}}(%[[T]])
// CHECK-DAG: %[[AT:.*]] = tensor.extract_slice %[[A]][%[[I]]] [1] [1]
// CHECK-DAG: %[[CT:.*]] = tensor.extract_slice %[[C]][%[[I]], %[[H]], %[[N]]] [1, 1, 32] [1, 1, 1]
// CHECK-DAG: %[[DT:.*]] = tensor.extract_slice %[[D]][0, 0, %[[N]]] [1, 1, 32] [1, 1, 1]
// CHECK-DAG: %[[ET:.*]] = tensor.extract_slice %[[E]][%[[I]], %{{.*}}, 0] [1, 1, 128] [1, 1, 1]
// CHECK: flashattn.attention mask({{.*}}) {{.*}} per_sequence(%[[AT]], %[[B]] : tensor<1xi32>, tensor<1xi32>) per_query(%[[CT]], %[[DT]] : tensor<1x1x32xi32>, tensor<1x1x32xi32>) per_key(%[[ET]] : tensor<1x1x128xi32>) outs(
module attributes {transform.with_named_sequence} {
  func.func @tiled(%q: tensor<2x8x128x16xf32>, %k: tensor<2x2x128x16xf32>, %a: tensor<2xi32>, %b: tensor<1xi32>,
                   %c: tensor<2x8x128xi32>, %d: tensor<1x1x128xi32>, %e: tensor<2x2x128xi32>) -> tensor<2x8x128x16xf32> {
    %r = flashattn.attention align(top_left) mask(set<"(p, k)[nq, nk, a, b, c, d, e] : (k - a - b >= 0, c - k >= 0, d - e == 0)">)
        ins(%q, %k, %k : tensor<2x8x128x16xf32>, tensor<2x2x128x16xf32>, tensor<2x2x128x16xf32>)
        per_sequence(%a, %b : tensor<2xi32>, tensor<1xi32>) per_query(%c, %d : tensor<2x8x128xi32>, tensor<1x1x128xi32>)
        per_key(%e : tensor<2x2x128xi32>) outs(%q : tensor<2x8x128x16xf32>) -> tensor<2x8x128x16xf32>
    return %r : tensor<2x8x128x16xf32>
  }
  transform.named_sequence @__transform_main(%root: !transform.any_op {transform.readonly}) {
    %op = transform.structured.match ops{["flashattn.attention"]} in %root : (!transform.any_op) -> !transform.any_op
    %tiled, %loop = transform.structured.tile_using_forall %op tile_sizes [1, 1, 32]
        : (!transform.any_op) -> (!transform.any_op, !transform.any_op)
    transform.yield
  }
}

//--- sharded.mlir

// Symbols are sharded like the batches, heads and rows that they are of.
// CHECK-LABEL: func @sharded
// CHECK-SAME: %[[A:[a-z0-9]+]]: tensor<2xi32>, %[[B:[a-z0-9]+]]: tensor<1xi32>, %[[C:[a-z0-9]+]]: tensor<2x2x32xi32>, %[[D:[a-z0-9]+]]: tensor<1x1x32xi32>, %[[E:[a-z0-9]+]]: tensor<2x1x32xi32>) -> tensor<2x2x32x64xf32>
// CHECK: flashattn.attention {{.*}} per_sequence(%[[A]], %[[B]] : tensor<2xi32>, tensor<1xi32>) per_query(%[[C]], %[[D]] : tensor<2x2x32xi32>, tensor<1x1x32xi32>) per_key(%[[E]] : tensor<2x1x32xi32>) outs(
shard.grid @grid(shape = 2x4)
func.func @sharded(%q: tensor<4x8x32x64xf32>, %k: tensor<4x4x32x64xf32>, %init: tensor<4x8x32x64xf32>, %a: tensor<4xi32>, %b: tensor<1xi32>,
                   %c: tensor<4x8x32xi32>, %d: tensor<1x1x32xi32>, %e: tensor<4x4x32xi32>) -> tensor<4x8x32x64xf32> {
  %s = shard.sharding @grid split_axes = [[0], [1]] : !shard.sharding
  %qs = shard.shard %q to %s annotate_for_users : tensor<4x8x32x64xf32>
  %o = flashattn.attention mask(set<"(p, k)[nq, nk, a, b, c, d, e] : (k - a - b >= 0, c - k >= 0, d - e == 0)">)
      ins(%qs, %k, %k : tensor<4x8x32x64xf32>, tensor<4x4x32x64xf32>, tensor<4x4x32x64xf32>)
      per_sequence(%a, %b : tensor<4xi32>, tensor<1xi32>) per_query(%c, %d : tensor<4x8x32xi32>, tensor<1x1x32xi32>)
      per_key(%e : tensor<4x4x32xi32>) outs(%init : tensor<4x8x32x64xf32>) -> tensor<4x8x32x64xf32>
  return %o : tensor<4x8x32x64xf32>
}

// The gradients too.
// CHECK-LABEL: func @gradients
// CHECK-SAME: %[[A:[a-z0-9]+]]: tensor<2xi32>, %[[C:[a-z0-9]+]]: tensor<2x2x32xi32>, %[[E:[a-z0-9]+]]: tensor<1x1x32xi32>)
// CHECK: flashattn.attention_backward {{.*}} per_sequence(%[[A]] : tensor<2xi32>) per_query(%[[C]] : tensor<2x2x32xi32>) per_key(%[[E]] : tensor<1x1x32xi32>) outs(
func.func @gradients(%q: tensor<4x8x32x64xf32>, %k: tensor<4x4x32x64xf32>, %lse: tensor<4x8x32xf32>, %dq: tensor<4x8x32x64xf32>,
                     %dk: tensor<4x4x32x64xf32>, %dv: tensor<4x4x32x64xf32>, %a: tensor<4xi32>, %c: tensor<4x8x32xi32>, %e: tensor<1x1x32xi32>)
    -> (tensor<4x8x32x64xf32>, tensor<4x4x32x64xf32>, tensor<4x4x32x64xf32>) {
  %s = shard.sharding @grid split_axes = [[0], [1]] : !shard.sharding
  %qs = shard.shard %q to %s annotate_for_users : tensor<4x8x32x64xf32>
  %g:3 = flashattn.attention_backward mask(set<"(p, k)[nq, nk, a, c, e] : (k - a >= 0, c - e == 0)">)
      ins(%qs, %k, %k, %q, %lse, %q : tensor<4x8x32x64xf32>, tensor<4x4x32x64xf32>, tensor<4x4x32x64xf32>, tensor<4x8x32x64xf32>, tensor<4x8x32xf32>, tensor<4x8x32x64xf32>)
      per_sequence(%a : tensor<4xi32>) per_query(%c : tensor<4x8x32xi32>) per_key(%e : tensor<1x1x32xi32>)
      outs(%dq, %dk, %dv : tensor<4x8x32x64xf32>, tensor<4x4x32x64xf32>, tensor<4x4x32x64xf32>)
      -> tensor<4x8x32x64xf32>, tensor<4x4x32x64xf32>, tensor<4x4x32x64xf32>
  return %g#0, %g#1, %g#2 : tensor<4x8x32x64xf32>, tensor<4x4x32x64xf32>, tensor<4x4x32x64xf32>
}

//--- tile.mlir

// A partial tile is compared with the values of its rows, in 32 bits. A base beyond 32 bits and a value are first limited so
// that their difference fits. Only the comparisons are of all pairs.
// CHECK-LABEL: func @rows
// CHECK-SAME: %[[START:[a-z0-9]+]]: memref<2x1x?xi32>
// CHECK: flashattn.program (%[[B:.*]], %[[H:.*]], %[[T:.*]]) in
// CHECK: flashattn.tile_loop (%{{.*}}, %[[J:.*]]) in
// CHECK: flashattn.tile_mask -> vector<128x64xi1> {
// CHECK-NEXT: %[[LOADED:.*]] = flashattn.load_tile %[[START]][%[[B]], %c0, %[[T]]] dims [2] in_bounds [false] : memref<2x1x?xi32> -> vector<128xi32>
// CHECK-NEXT: %[[ROWS:.*]] = vector.shape_cast %[[LOADED]] : vector<128xi32> to vector<128x1xi32>
// CHECK: %[[BASE:.*]] = arith.minsi %{{.*}}, %c3221225471 : index
// CHECK: arith.maxsi %[[BASE]], %c-3221225472 : index
// CHECK: %[[ABOVE:.*]] = arith.maxsi %[[ROWS]], %{{.*}} : vector<128x1xi32>
// CHECK: %[[LIMITED:.*]] = arith.minsi %[[ABOVE]], %{{.*}} : vector<128x1xi32>
// CHECK: %[[LIMIT:.*]] = arith.subi %{{.*}}, %[[LIMITED]] : vector<128x1xi32>
// CHECK-NOT: vector<128x64xi32>
// CHECK: %[[SPREAD:.*]] = vector.broadcast %[[LIMIT]] : vector<128x1xi32> to vector<128x64xi32>
// CHECK: %[[FROM:.*]] = arith.cmpi sge, %[[SPREAD]], %{{.*}} : vector<128x64xi32>
// CHECK: %[[UPTO:.*]] = arith.cmpi sge, %{{.*}} : vector<128x64xi32>
// CHECK: %[[BOTH:.*]] = arith.andi %[[FROM]], %[[UPTO]]
// CHECK-NEXT: flashattn.tile_yield %[[BOTH]]
func.func @rows(%q: memref<2x4x?x64xf16>, %k: memref<2x2x?x64xf16>, %v: memref<2x2x?x64xf16>, %start: memref<2x1x?xi32>, %o: memref<2x4x?x64xf16>) {
  flashattn.attention mask(affine_set<(p, k)[nq, nk, start] : (p - k >= 0, k - start >= 0)>)
      ins(%q, %k, %v : memref<2x4x?x64xf16>, memref<2x2x?x64xf16>, memref<2x2x?x64xf16>)
      per_query(%start : memref<2x1x?xi32>) outs(%o : memref<2x4x?x64xf16>)
  return
}

// A4, Y1: values of the sequence are one number, and bounds of the tiles too. Values per key, of the key/value head, are
// loaded as a tile of equal rows.
// CHECK-LABEL: func @columns
// CHECK-SAME: %[[PREFIX:[a-z0-9]+]]: memref<2xi32>, %[[END:[a-z0-9]+]]: memref<1x2x?xi32>
// CHECK: flashattn.program (%[[B:.*]], %[[H:.*]], %[[T:.*]]) in
// CHECK: %[[LOADED:.*]] = memref.load %[[PREFIX]][%[[B]]] : memref<2xi32>
// CHECK: %[[NUMBER:.*]] = arith.index_cast %[[LOADED]] : i32 to index
// CHECK: arith.minsi %{{.*}}, %[[NUMBER]] : index
// CHECK: flashattn.tile_loop (%{{.*}}, %[[J:.*]]) in
// CHECK: flashattn.tile_mask -> vector<128x64xi1> {
// CHECK: %[[H32:.*]] = arith.index_castui %[[H]] : index to i32
// CHECK: %[[KVH32:.*]] = arith.divui %[[H32]], %c2_i32 : i32
// CHECK: %[[KVH:.*]] = arith.index_castui %[[KVH32]] : i32 to index
// CHECK: flashattn.load_tile %[[END]][%c0, %[[KVH]], %[[J]]] dims [-1, 2] in_bounds [true, false] : memref<1x2x?xi32> -> vector<128x64xi32>
func.func @columns(%q: memref<2x4x?x64xf16>, %k: memref<2x2x?x64xf16>, %v: memref<2x2x?x64xf16>, %prefix: memref<2xi32>, %end: memref<1x2x?xi32>, %o: memref<2x4x?x64xf16>) {
  flashattn.attention mask(affine_set<(p, k)[nq, nk, prefix, end] : (prefix - 1 - k >= 0, end - 1 - p >= 0)>)
      ins(%q, %k, %v : memref<2x4x?x64xf16>, memref<2x2x?x64xf16>, memref<2x2x?x64xf16>)
      per_sequence(%prefix : memref<2xi32>) per_key(%end : memref<1x2x?xi32>) outs(%o : memref<2x4x?x64xf16>)
  return
}

//--- invalid.mlir

#s = affine_set<(p, k)[nq, nk, a] : (k - a >= 0)>
!q = tensor<2x4x8x16xf32>
func.func @f(%q: !q) {
  // expected-error@+1 {{expected a mask of at most 0 symbols after nq and nk, one for each operand of 'per_sequence', 'per_query' and 'per_key', but got 1}}
  %r = flashattn.attention mask(#s) ins(%q, %q, %q : !q, !q, !q) outs(%q : !q) -> !q
  return
}

// -----

#s = affine_set<(p, k)[nq, nk, a, b, c] : (k - a >= 0)>
!q = memref<2x4x8x16xf32>
func.func @f(%q: !q, %a: memref<2xi32>, %b: memref<1x1x8xi32>, %lse: memref<2x4x8xf32>, %dq: !q, %dk: !q, %dv: !q) {
  // expected-error@+1 {{expected a mask of at most 2 symbols after nq and nk, one for each operand of 'per_sequence', 'per_query' and 'per_key', but got 3}}
  flashattn.attention_backward mask(any_of<[causal, #s]>) ins(%q, %q, %q, %q, %lse, %q : !q, !q, !q, !q, memref<2x4x8xf32>, !q)
      per_sequence(%a : memref<2xi32>) per_key(%b : memref<1x1x8xi32>) outs(%dq, %dk, %dv : !q, !q, !q)
  return
}

// -----

!q = tensor<2x4x8x16xf32>
func.func @f(%q: !q, %x: tensor<2x4x8xi32>) {
  // expected-error@+1 {{expected a mask with 'per_sequence', 'per_query' or 'per_key' but got none}}
  %r = flashattn.attention ins(%q, %q, %q : !q, !q, !q) per_key(%x : tensor<2x4x8xi32>) outs(%q : !q) -> !q
  return
}

// -----

!q = tensor<2x4x8x16xf32>
func.func @f(%q: !q, %x: tensor<2xi64>) {
  // expected-error@+1 {{expected 'per_sequence0' with element type i32 but got 'i64'}}
  %r = flashattn.attention mask(causal) ins(%q, %q, %q : !q, !q, !q) per_sequence(%x : tensor<2xi64>) outs(%q : !q) -> !q
  return
}

// -----

!q = tensor<2x4x8x16xf32>
func.func @f(%q: !q, %x: tensor<2x4x8xi32>, %y: tensor<2x4x8xf32>) {
  // expected-error@+1 {{expected 'per_query1' with element type i32 but got 'f32'}}
  %r = flashattn.attention mask(causal) ins(%q, %q, %q : !q, !q, !q) per_query(%x, %y : tensor<2x4x8xi32>, tensor<2x4x8xf32>) outs(%q : !q) -> !q
  return
}

// -----

!q = tensor<2x4x8x16xf32>
func.func @f(%q: !q, %x: tensor<2x1xi32>) {
  // expected-error@+1 {{expected 'per_sequence0' of rank 1 but got rank 2}}
  %r = flashattn.attention mask(causal) ins(%q, %q, %q : !q, !q, !q) per_sequence(%x : tensor<2x1xi32>) outs(%q : !q) -> !q
  return
}

// -----

!q = tensor<2x4x8x16xf32>
func.func @f(%q: !q, %x: tensor<2x8xi32>) {
  // expected-error@+1 {{expected 'per_key0' of rank 3 but got rank 2}}
  %r = flashattn.attention mask(causal) ins(%q, %q, %q : !q, !q, !q) per_key(%x : tensor<2x8xi32>) outs(%q : !q) -> !q
  return
}

// -----

!q = tensor<2x4x8x16xf32>
func.func @f(%q: !q, %x: tensor<3xi32>) {
  // expected-error@+1 {{expected batch size of 'per_sequence0' to be 1 or 2 but got 3}}
  %r = flashattn.attention mask(causal) ins(%q, %q, %q : !q, !q, !q) per_sequence(%x : tensor<3xi32>) outs(%q : !q) -> !q
  return
}

// -----

!q = tensor<2x4x8x16xf32>
func.func @f(%q: !q, %x: tensor<2x2x8xi32>) {
  // expected-error@+1 {{expected head count of 'per_query0' to be 1 or 4 but got 2}}
  %r = flashattn.attention mask(causal) ins(%q, %q, %q : !q, !q, !q) per_query(%x : tensor<2x2x8xi32>) outs(%q : !q) -> !q
  return
}

// -----

// Values per key are of key/value heads (A4).
!q = tensor<2x4x8x16xf32>
!k = tensor<2x2x8x16xf32>
func.func @f(%q: !q, %k: !k, %x: tensor<2x4x8xi32>) {
  // expected-error@+1 {{expected head count of 'per_key0' to be 1 or 2 but got 4}}
  %r = flashattn.attention mask(causal) ins(%q, %k, %k : !q, !k, !k) per_key(%x : tensor<2x4x8xi32>) outs(%q : !q) -> !q
  return
}

// -----

// Rows are not broadcast: a value for all queries of a sequence is one of per_sequence.
!q = tensor<2x4x8x16xf32>
func.func @f(%q: !q, %x: tensor<2x4x1xi32>) {
  // expected-error@+1 {{expected query length of 'per_query0' to be 8 as in 'q' but got 1}}
  %r = flashattn.attention mask(causal) ins(%q, %q, %q : !q, !q, !q) per_query(%x : tensor<2x4x1xi32>) outs(%q : !q) -> !q
  return
}

// -----

!q = tensor<2x4x8x16xf32>
func.func @f(%q: !q, %x: tensor<1x1x7xi32>) {
  // expected-error@+1 {{expected key length of 'per_key0' to be 8 as in 'k' but got 7}}
  %r = flashattn.attention mask(causal) ins(%q, %q, %q : !q, !q, !q) per_key(%x : tensor<1x1x7xi32>) outs(%q : !q) -> !q
  return
}

// -----

// S1: packed like the queries.
!q = memref<1x4x20x16xf32>
func.func @f(%q: !q, %o: !q, %starts: memref<3xi32>, %x: memref<2x4x20xi32>) {
  // expected-error@+1 {{expected batch size of 'per_query0' to be 1 as its sequences are packed but got 2}}
  flashattn.attention mask(causal) ins(%q, %q, %q : !q, !q, !q) cu_seqlens_q(%starts : memref<3xi32>) cu_seqlens_k(%starts : memref<3xi32>)
      per_query(%x : memref<2x4x20xi32>) outs(%o : !q)
  return
}

// -----

// P1: keys of a sequence are counted from the first row of its first page: 3 pages of 8 rows.
!q = memref<2x4x20x16xf32>
!pool = memref<9x4x8x16xf32>
func.func @f(%q: !q, %k: !pool, %o: !q, %table: memref<2x3xi32>, %n: memref<2xi32>, %x: memref<2x4x8xi32>) {
  // expected-error@+1 {{expected key length of 'per_key0' to be 24, the number of rows in the pages of a sequence, but got 8}}
  flashattn.attention mask(causal) ins(%q, %k, %k : !q, !pool, !pool) kv_len(%n : memref<2xi32>) page_table(%table : memref<2x3xi32>)
      per_key(%x : memref<2x4x8xi32>) outs(%o : !q)
  return
}

// -----

!q = tensor<2x4x8x16xf32>
func.func @f(%q: !q, %x: memref<2xi32>) {
  // expected-error@+1 {{expected all operands to be tensors like 'q' but got 'per_sequence0' of type 'memref<2xi32>'}}
  %r = flashattn.attention mask(causal) ins(%q, %q, %q : !q, !q, !q) per_sequence(%x : memref<2xi32>) outs(%q : !q) -> !q
  return
}

// -----

!q = tensor<2x4x8x16xf32>
func.func @f(%q: !q, %x: tensor<2xi32>) {
  // expected-error@+2 {{expected each clause once but got 'per_sequence' twice}}
  %r = flashattn.attention mask(causal) ins(%q, %q, %q : !q, !q, !q) per_sequence(%x : tensor<2xi32>)
      per_sequence(%x : tensor<2xi32>) outs(%q : !q) -> !q
  return
}

// -----

!q = tensor<2x4x8x16xf32>
func.func @f(%q: !q, %x: tensor<2xi32>) {
  // expected-error@+1 {{expected a type for each operand of 'per_sequence' but got 1 for 2}}
  %r = flashattn.attention mask(causal) ins(%q, %q, %q : !q, !q, !q) per_sequence(%x, %x : tensor<2xi32>) outs(%q : !q) -> !q
  return
}

// -----

!q = tensor<2x4x8x16xf32>
func.func @f(%q: !q) {
  // expected-error@+1 {{expected ':'}}
  %r = flashattn.attention mask(causal) ins(%q, %q, %q : !q, !q, !q) per_query() outs(%q : !q) -> !q
  return
}

// -----

!q = tensor<2x4x8x16xf32>
!x = tensor<2xi32>
func.func @f(%q: !q, %x: !x) {
  // expected-error@+2 {{expected at most 8 operands of 'per_sequence' but got 9}}
  %r = flashattn.attention mask(causal) ins(%q, %q, %q : !q, !q, !q)
      per_sequence(%x, %x, %x, %x, %x, %x, %x, %x, %x : !x, !x, !x, !x, !x, !x, !x, !x, !x) outs(%q : !q) -> !q
  return
}

// -----

// expected-error@+1 {{expected an affine_set over the 2 dimensions (p, k) and 2 to 26 symbols [nq, nk, ...] but got 2 dimensions and 27 symbols}}
func.func @f() attributes {m = #flashattn.set<"(p, k)[a, b, c, d, e, f, g, h, i, j, l, m, n, o, q, r, s, t, u, v, w, x, y, z, aa, ab, ac] : (p - k >= 0)">} { return }
