// Upstream's sharding-propagation and shard-partition on the dialect's ops: what each process does, and what it does together
// with others. numbers.test runs such parts.
// RUN: flash-opt %s --pass-pipeline='builtin.module(func.func(sharding-propagation,shard-partition,canonicalize,cse))' | FileCheck %s

shard.grid @grid(shape = 2x4)

// CHECK-DAG: #[[BEFORE:.*]] = affine_map<()[s0] -> (s0 * -8)>
// CHECK-DAG: #[[SHIFTED:.*]] = affine_map<()[s0, s1] -> (s0 + s1 * 8)>
// CHECK-DAG: #[[FIRST:.*]] = affine_map<()[s0] -> (s0 * 8)>
// CHECK-DAG: #[[HEADS:.*]] = affine_map<()[s0] -> (s0 * 4)>

// One annotation says how all is cut: the 4 key/value heads by 4 processes, and with each its 2 query heads (A4). Positions are
// the whole's, so that nothing says where they begin.
// CHECK-LABEL: func @heads
// CHECK-SAME: tensor<1x2x32x64xf32>, %{{.*}}: tensor<1x1x32x64xf32>
// CHECK-NEXT: %[[O:.*]] = flashattn.attention mask(#flashattn.causal)
// CHECK-NOT: offset
// CHECK-NEXT: return %[[O]] : tensor<1x2x32x64xf32>
func.func @heads(%q: tensor<2x8x32x64xf32>, %k: tensor<2x4x32x64xf32>, %v: tensor<2x4x32x64xf32>,
                 %init: tensor<2x8x32x64xf32>) -> tensor<2x8x32x64xf32> {
  %s = shard.sharding @grid split_axes = [[0], [1]] : !shard.sharding
  %qs = shard.shard %q to %s annotate_for_users : tensor<2x8x32x64xf32>
  %o = flashattn.attention mask(#flashattn.causal)
      ins(%qs, %k, %v : tensor<2x8x32x64xf32>, tensor<2x4x32x64xf32>, tensor<2x4x32x64xf32>)
      outs(%init : tensor<2x8x32x64xf32>) -> tensor<2x8x32x64xf32>
  return %o : tensor<2x8x32x64xf32>
}

// The annotation of a result goes back to what it is made of. The op's own offset is added to the process's (A3).
// CHECK-LABEL: func @queries
// CHECK-SAME: tensor<2x4x8x64xf32>, %{{.*}}: tensor<2x2x32x64xf32>, %{{.*}}: tensor<2x2x32x64xf32>, %[[OWN:.*]]: index)
// CHECK: %[[I:.*]] = shard.process_multi_index on @grid axes = [1] : index
// CHECK: %[[OFFSET:.*]] = affine.apply #[[SHIFTED]]()[%[[OWN]], %[[I]]]
// CHECK: flashattn.attention mask(#flashattn.causal) {{.*}} offset(%[[OFFSET]])
// CHECK-NOT: shard.all
func.func @queries(%q: tensor<2x8x32x64xf32>, %k: tensor<2x4x32x64xf32>, %v: tensor<2x4x32x64xf32>,
                   %offset: index) -> tensor<2x8x32x64xf32> {
  %s = shard.sharding @grid split_axes = [[], [0], [1]] : !shard.sharding
  %init = tensor.empty() : tensor<2x8x32x64xf32>
  %o = flashattn.attention mask(#flashattn.causal)
      ins(%q, %k, %v : tensor<2x8x32x64xf32>, tensor<2x4x32x64xf32>, tensor<2x4x32x64xf32>) offset(%offset)
      outs(%init : tensor<2x8x32x64xf32>) -> tensor<2x8x32x64xf32>
  %os = shard.shard %o to %s : tensor<2x8x32x64xf32>
  return %os : tensor<2x8x32x64xf32>
}

// Keys: an output and a log-sum-exp of each process, which all of them merge. The first key is where positions begin, and the
// sinks join the merged row only.
// CHECK-LABEL: func @keys
// CHECK-SAME: %[[Q:.*]]: tensor<1x8x32x64xf16>, %[[K:.*]]: tensor<1x4x8x64xf16>, %[[V:.*]]: tensor<1x4x8x64xf16>, %[[SINKS:.*]]: tensor<8xf32>)
// CHECK: %[[OFFSET:.*]] = affine.apply #[[BEFORE]]()[%{{.*}}]
// CHECK: %[[PART:.*]]:2 = flashattn.attention mask(#flashattn.causal) ins(%[[Q]], %[[K]], %[[V]] : {{.*}}) offset(%[[OFFSET]])
// CHECK-SAME: -> tensor<1x8x32x64xf32>, tensor<1x8x32xf32>
// CHECK: %[[ONE:.*]] = tensor.expand_shape %[[PART]]#0
// CHECK: %[[PARTS:.*]] = shard.all_gather %[[ONE]] on @grid grid_axes = [1] gather_axis = 0 : tensor<1x1x8x32x64xf32> -> tensor<4x1x8x32x64xf32>
// CHECK: %[[LSE:.*]] = tensor.expand_shape %[[PART]]#1
// CHECK: %[[SUMS:.*]] = shard.all_gather %[[LSE]] on @grid grid_axes = [1] gather_axis = 0 : tensor<1x1x8x32xf32> -> tensor<4x1x8x32xf32>
// CHECK: %[[O:.*]] = flashattn.combine ins(%[[PARTS]], %[[SUMS]] : {{.*}}) sink_logits(%[[SINKS]] : tensor<8xf32>)
// CHECK: return %[[O]] : tensor<1x8x32x64xf16>
func.func @keys(%q: tensor<2x8x32x64xf16>, %k: tensor<2x4x32x64xf16>, %v: tensor<2x4x32x64xf16>,
                %sinks: tensor<8xf32>) -> tensor<2x8x32x64xf16> {
  %s = shard.sharding @grid split_axes = [[0], [], [1]] : !shard.sharding
  %ks = shard.shard %k to %s annotate_for_users : tensor<2x4x32x64xf16>
  %init = tensor.empty() : tensor<2x8x32x64xf16>
  %o = flashattn.attention mask(#flashattn.causal)
      ins(%q, %ks, %v : tensor<2x8x32x64xf16>, tensor<2x4x32x64xf16>, tensor<2x4x32x64xf16>)
      sink_logits(%sinks : tensor<8xf32>)
      outs(%init : tensor<2x8x32x64xf16>) -> tensor<2x8x32x64xf16>
  return %o : tensor<2x8x32x64xf16>
}

// Without a mask no position is asked for. Lengths may be dynamic: the processes' own are the same.
// CHECK-LABEL: func @dynamic
// CHECK: %[[LENGTH:.*]] = linalg.generic
// CHECK: arith.maxsi
// CHECK: arith.subi
// CHECK: flashattn.attention ins({{.*}}tensor<2x4x?x64xf32>{{.*}}) kv_len(%[[LENGTH]] : tensor<2xi32>) outs
// CHECK: shard.all_gather %{{.*}} on @grid grid_axes = [0, 1] gather_axis = 0 : tensor<1x2x8x?x64xf32> -> tensor<8x2x8x?x64xf32>
func.func @dynamic(%q: tensor<2x8x?x64xf32>, %k: tensor<2x4x?x64xf32>, %v: tensor<2x4x?x64xf32>, %n: tensor<2xi32>,
                   %init: tensor<2x8x?x64xf32>) -> tensor<2x8x?x64xf32> {
  %s = shard.sharding @grid split_axes = [[], [], [0, 1]] : !shard.sharding
  %ks = shard.shard %k to %s annotate_for_users : tensor<2x4x?x64xf32>
  %o = flashattn.attention
      ins(%q, %ks, %v : tensor<2x8x?x64xf32>, tensor<2x4x?x64xf32>, tensor<2x4x?x64xf32>)
      kv_len(%n : tensor<2xi32>) outs(%init : tensor<2x8x?x64xf32>) -> tensor<2x8x?x64xf32>
  return %o : tensor<2x8x?x64xf32>
}

// A score modification goes by the whole's batches, heads, positions and keys.
// CHECK-LABEL: func @score_mod
// CHECK-SAME: %[[SLOPE:[^:]*]]: f32)
// CHECK: %[[KEY:.*]] = affine.apply #[[FIRST]]()
// CHECK: %[[OFFSET:.*]] = affine.apply #[[BEFORE]]()
// CHECK: %[[HEAD:.*]] = affine.apply #[[HEADS]]()
// CHECK: flashattn.attention {{.*}} offset(%[[OFFSET]]) score_mod
// CHECK-NEXT: ^bb0(%{{.*}}: f32, %{{.*}}: index, %[[H:.*]]: index, %[[P:.*]]: index, %[[K:.*]]: index)
// CHECK-NEXT: arith.addi %[[H]], %[[HEAD]]
// CHECK-NEXT: arith.addi %[[P]], %[[KEY]]
// CHECK-NEXT: arith.addi %[[K]], %[[KEY]]
// CHECK: math.fma %{{.*}}, %[[SLOPE]],
func.func @score_mod(%q: tensor<2x8x32x64xf32>, %k: tensor<2x4x32x64xf32>, %init: tensor<2x8x32x64xf32>,
                     %slope: f32) -> tensor<2x8x32x64xf32> {
  %s = shard.sharding @grid split_axes = [[], [0], [1]] : !shard.sharding
  %ks = shard.shard %k to %s annotate_for_users : tensor<2x4x32x64xf32>
  %o = flashattn.attention
      ins(%q, %ks, %ks : tensor<2x8x32x64xf32>, tensor<2x4x32x64xf32>, tensor<2x4x32x64xf32>)
      score_mod {
      ^bb0(%x: f32, %b: index, %h: index, %p: index, %key: index):
        %d0 = arith.subi %key, %p : index
        %d1 = arith.addi %d0, %h : index
        %d2 = arith.index_cast %d1 : index to i32
        %d3 = arith.sitofp %d2 : i32 to f32
        %y = math.fma %d3, %slope, %x : f32
        flashattn.yield %y : f32
      }
      outs(%init : tensor<2x8x32x64xf32>) -> tensor<2x8x32x64xf32>
  return %o : tensor<2x8x32x64xf32>
}

// A10: each process has the whole tensor, and reads the elements of its heads.
// CHECK-LABEL: func @loads
// CHECK-SAME: %[[SLOPES:[^:]*]]: tensor<2x8xf32>)
// CHECK: %[[HEAD:.*]] = affine.apply #[[HEADS]]()
// CHECK: flashattn.attention {{.*}} score_mod
// CHECK-NEXT: ^bb0(%{{.*}}: f32, %[[B:.*]]: index, %[[H:.*]]: index, %{{.*}}: index, %{{.*}}: index)
// CHECK-NEXT: %[[SUM:.*]] = arith.addi %[[H]], %[[HEAD]]
// CHECK-NEXT: tensor.extract %[[SLOPES]][%[[B]], %[[SUM]]] : tensor<2x8xf32>
func.func @loads(%q: tensor<2x8x32x64xf32>, %k: tensor<2x4x32x64xf32>, %init: tensor<2x8x32x64xf32>,
                 %slopes: tensor<2x8xf32>) -> tensor<2x8x32x64xf32> {
  %s = shard.sharding @grid split_axes = [[], [0]] : !shard.sharding
  %ks = shard.shard %k to %s annotate_for_users : tensor<2x4x32x64xf32>
  %o = flashattn.attention
      ins(%q, %ks, %ks : tensor<2x8x32x64xf32>, tensor<2x4x32x64xf32>, tensor<2x4x32x64xf32>)
      score_mod {
      ^bb0(%x: f32, %b: index, %h: index, %p: index, %key: index):
        %m = tensor.extract %slopes[%b, %h] : tensor<2x8xf32>
        %y = arith.mulf %m, %x : f32
        flashattn.yield %y : f32
      }
      outs(%init : tensor<2x8x32x64xf32>) -> tensor<2x8x32x64xf32>
  return %o : tensor<2x8x32x64xf32>
}

// B2: dk and dv are sums over the queries, in f32 (B8); dq has all of a process's keys.
// CHECK-LABEL: func @backward
// CHECK: %[[G:.*]]:3 = flashattn.attention_backward {{.*}} offset(
// CHECK: shard.all_reduce %[[G]]#1 on @grid grid_axes = [1] : tensor<1x4x32x64xf16> -> tensor<1x4x32x64xf32>
// CHECK: arith.truncf
// CHECK: shard.all_reduce %[[G]]#2 on @grid grid_axes = [1] : tensor<1x4x32x64xf16> -> tensor<1x4x32x64xf32>
// CHECK: return %[[G]]#0, %{{.*}}, %{{.*}} : tensor<1x8x8x64xf16>, tensor<1x4x32x64xf16>, tensor<1x4x32x64xf16>
func.func @backward(%q: tensor<2x8x32x64xf16>, %k: tensor<2x4x32x64xf16>, %v: tensor<2x4x32x64xf16>,
                    %o: tensor<2x8x32x64xf16>, %lse: tensor<2x8x32xf32>, %do: tensor<2x8x32x64xf16>)
    -> (tensor<2x8x32x64xf16>, tensor<2x4x32x64xf16>, tensor<2x4x32x64xf16>) {
  %s = shard.sharding @grid split_axes = [[0], [], [1]] : !shard.sharding
  %qs = shard.shard %q to %s annotate_for_users : tensor<2x8x32x64xf16>
  %dq_init = tensor.empty() : tensor<2x8x32x64xf16>
  %dk_init = tensor.empty() : tensor<2x4x32x64xf16>
  %dv_init = tensor.empty() : tensor<2x4x32x64xf16>
  %dq, %dk, %dv = flashattn.attention_backward mask(#flashattn.causal)
      ins(%qs, %k, %v, %o, %lse, %do : tensor<2x8x32x64xf16>, tensor<2x4x32x64xf16>, tensor<2x4x32x64xf16>,
          tensor<2x8x32x64xf16>, tensor<2x8x32xf32>, tensor<2x8x32x64xf16>)
      outs(%dq_init, %dk_init, %dv_init : tensor<2x8x32x64xf16>, tensor<2x4x32x64xf16>, tensor<2x4x32x64xf16>)
      -> tensor<2x8x32x64xf16>, tensor<2x4x32x64xf16>, tensor<2x4x32x64xf16>
  return %dq, %dk, %dv : tensor<2x8x32x64xf16>, tensor<2x4x32x64xf16>, tensor<2x4x32x64xf16>
}

// Rows of the matrix go with heads, a sum; its columns with those of the result.
// CHECK-LABEL: func @project
// CHECK-SAME: tensor<2x4x32x64xf32>, %{{.*}}: tensor<4x64x32xf32>
// CHECK: %[[P:.*]] = flashattn.project
// CHECK: %[[SUM:.*]] = shard.all_reduce %[[P]] on @grid grid_axes = [0] : tensor<2x32x32xf32> -> tensor<2x32x32xf32>
// CHECK: return %[[SUM]]
func.func @project(%o: tensor<2x8x32x64xf32>, %w: tensor<8x64x128xf32>) -> tensor<2x32x128xf32> {
  %s = shard.sharding @grid split_axes = [[0], [], [1]] : !shard.sharding
  %ws = shard.shard %w to %s annotate_for_users : tensor<8x64x128xf32>
  %init = tensor.empty() : tensor<2x32x128xf32>
  %p = flashattn.project ins(%o, %ws : tensor<2x8x32x64xf32>, tensor<8x64x128xf32>)
      outs(%init : tensor<2x32x128xf32>) -> tensor<2x32x128xf32>
  return %p : tensor<2x32x128xf32>
}

// CHECK-LABEL: func @combine
// CHECK: flashattn.combine ins({{.*}} : tensor<3x1x2x32x64xf32>, tensor<3x1x2x32xf32>)
func.func @combine(%parts: tensor<3x2x8x32x64xf32>, %sums: tensor<3x2x8x32xf32>) -> tensor<2x8x32x64xf32> {
  %s = shard.sharding @grid split_axes = [[], [0], [1]] : !shard.sharding
  %ss = shard.shard %sums to %s annotate_for_users : tensor<3x2x8x32xf32>
  %init = tensor.empty() : tensor<2x8x32x64xf32>
  %o = flashattn.combine ins(%parts, %ss : tensor<3x2x8x32x64xf32>, tensor<3x2x8x32xf32>)
      outs(%init : tensor<2x8x32x64xf32>) -> tensor<2x8x32x64xf32>
  return %o : tensor<2x8x32x64xf32>
}

// Memrefs have no shardings: each process does all of such an op.
// CHECK-LABEL: func @memrefs
// CHECK: flashattn.attention ins({{.*}}) outs({{.*}} : memref<2x8x32x64xf32>)
func.func @memrefs(%x: tensor<8xf32>, %q: memref<2x8x32x64xf32>, %o: memref<2x8x32x64xf32>) -> tensor<8xf32> {
  %s = shard.sharding @grid split_axes = [[0]] : !shard.sharding
  %xs = shard.shard %x to %s : tensor<8xf32>
  flashattn.attention ins(%q, %q, %q : memref<2x8x32x64xf32>, memref<2x8x32x64xf32>, memref<2x8x32x64xf32>)
      outs(%o : memref<2x8x32x64xf32>)
  return %xs : tensor<8xf32>
}
