// Shardings of which upstream's partition cannot be made.
// RUN: flash-opt %s --split-input-file --verify-diagnostics --pass-pipeline='builtin.module(func.func(shard-partition))'

// What is annotated by hand is held to the same.
shard.grid @grid(shape = 2x4)
func.func @f(%q: tensor<2x8x32x64xf32>, %k: tensor<2x4x32x64xf32>) -> tensor<2x8x32x64xf32> {
  %s = shard.sharding @grid split_axes = [[], [0]] : !shard.sharding
  %t = shard.sharding @grid split_axes = [[], [1]] : !shard.sharding
  %q0 = shard.shard %q to %s : tensor<2x8x32x64xf32>
  %qs = shard.shard %q0 to %s annotate_for_users : tensor<2x8x32x64xf32>
  %k0 = shard.shard %k to %t : tensor<2x4x32x64xf32>
  %ks = shard.shard %k0 to %t annotate_for_users : tensor<2x4x32x64xf32>
  // expected-error @+1 {{expected dimension 1 of 'k' to be split along grid axes [0] as that of 'q' but got [1]}}
  %o = flashattn.attention ins(%qs, %ks, %ks : tensor<2x8x32x64xf32>, tensor<2x4x32x64xf32>, tensor<2x4x32x64xf32>)
      outs(%qs : tensor<2x8x32x64xf32>) -> tensor<2x8x32x64xf32>
  %os = shard.shard %o to %s : tensor<2x8x32x64xf32>
  return %os : tensor<2x8x32x64xf32>
}

// -----

// Shards are of one size.
shard.grid @grid(shape = 2x4)
func.func @f(%q: tensor<2x8x32x64xf32>) -> tensor<2x8x32x64xf32> {
  %s = shard.sharding @grid split_axes = [[0]] sharded_dims_offsets = [0, 2, 2] : !shard.sharding
  %q0 = shard.shard %q to %s : tensor<2x8x32x64xf32>
  %qs = shard.shard %q0 to %s annotate_for_users : tensor<2x8x32x64xf32>
  // expected-error @+1 {{expected shards of one size of 'q' but got halo_sizes or sharded_dims_offsets}}
  %o = flashattn.attention ins(%qs, %qs, %qs : tensor<2x8x32x64xf32>, tensor<2x8x32x64xf32>, tensor<2x8x32x64xf32>)
      outs(%qs : tensor<2x8x32x64xf32>) -> tensor<2x8x32x64xf32>
  %os = shard.shard %o to %s : tensor<2x8x32x64xf32>
  return %os : tensor<2x8x32x64xf32>
}

// -----

// A tensor has so many dimensions.
shard.grid @grid(shape = 2x4)
func.func @f(%q: tensor<2x8x32x64xf32>) -> tensor<2x8x32x64xf32> {
  %s = shard.sharding @grid split_axes = [[0], [], [], [], [1]] : !shard.sharding
  %q0 = shard.shard %q to %s : tensor<2x8x32x64xf32>
  %qs = shard.shard %q0 to %s annotate_for_users : tensor<2x8x32x64xf32>
  // expected-error @+1 {{expected at most 4 lists of split axes, one for each dimension of 'q', but got 5}}
  %o = flashattn.attention ins(%qs, %qs, %qs : tensor<2x8x32x64xf32>, tensor<2x8x32x64xf32>, tensor<2x8x32x64xf32>)
      outs(%qs : tensor<2x8x32x64xf32>) -> tensor<2x8x32x64xf32>
  %os = shard.shard %o to %s : tensor<2x8x32x64xf32>
  return %os : tensor<2x8x32x64xf32>
}

// -----

// A10: a score modification reads elements of all heads.
shard.grid @grid(shape = 2x4)
func.func @f(%q: tensor<2x8x32x64xf32>, %t: tensor<8xf32>) -> tensor<2x8x32x64xf32> {
  %s = shard.sharding @grid split_axes = [[], [0]] : !shard.sharding
  %h = shard.sharding @grid split_axes = [[0]] : !shard.sharding
  %q0 = shard.shard %q to %s : tensor<2x8x32x64xf32>
  %qs = shard.shard %q0 to %s annotate_for_users : tensor<2x8x32x64xf32>
  %t0 = shard.shard %t to %h : tensor<8xf32>
  %ts = shard.shard %t0 to %h annotate_for_users : tensor<8xf32>
  %o = flashattn.attention ins(%qs, %qs, %qs : tensor<2x8x32x64xf32>, tensor<2x8x32x64xf32>, tensor<2x8x32x64xf32>)
      score_mod {
      ^bb0(%x: f32, %b: index, %i: index, %p: index, %k: index):
        // expected-error @+1 {{expected a tensor that is whole on each process in score_mod but got shards}}
        %m = tensor.extract %ts[%i] : tensor<8xf32>
        %y = arith.mulf %m, %x : f32
        flashattn.yield %y : f32
      }
      outs(%qs : tensor<2x8x32x64xf32>) -> tensor<2x8x32x64xf32>
  %os = shard.shard %o to %s : tensor<2x8x32x64xf32>
  return %os : tensor<2x8x32x64xf32>
}
