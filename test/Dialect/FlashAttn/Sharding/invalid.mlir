// Shardings that cannot be made. One traversal, as each says it anew.
// RUN: flash-opt %s --split-input-file --verify-diagnostics --pass-pipeline='builtin.module(func.func(sharding-propagation{traversal=forward}))'

// A4: key/value heads are shared evenly.
shard.grid @grid(shape = 2x4)
func.func @f(%q: tensor<2x12x32x64xf32>, %k: tensor<2x6x32x64xf32>, %init: tensor<2x12x32x64xf32>) -> tensor<2x12x32x64xf32> {
  %s0 = shard.sharding @grid split_axes = [[], [1]] : !shard.sharding
  %qs = shard.shard %q to %s0 annotate_for_users : tensor<2x12x32x64xf32>
  // expected-error @+2 {{expected head count of 'k' to be a multiple of 4, the number of shards, but got 6}}
  // expected-error @+1 {{fail to set sharding annotations}}
  %o = flashattn.attention ins(%qs, %k, %k : tensor<2x12x32x64xf32>, tensor<2x6x32x64xf32>, tensor<2x6x32x64xf32>)
      outs(%init : tensor<2x12x32x64xf32>) -> tensor<2x12x32x64xf32>
  return %o : tensor<2x12x32x64xf32>
}

// -----

// So are queries.
shard.grid @grid(shape = 2x4)
func.func @f(%q: tensor<2x8x36x64xf32>, %k: tensor<2x4x32x64xf32>, %init: tensor<2x8x36x64xf32>) -> tensor<2x8x36x64xf32> {
  %s0 = shard.sharding @grid split_axes = [[], [], [0, 1]] : !shard.sharding
  %qs = shard.shard %q to %s0 annotate_for_users : tensor<2x8x36x64xf32>
  // expected-error @+2 {{expected query length of 'q' to be a multiple of 8, the number of shards, but got 36}}
  // expected-error @+1 {{fail to set sharding annotations}}
  %o = flashattn.attention ins(%qs, %k, %k : tensor<2x8x36x64xf32>, tensor<2x4x32x64xf32>, tensor<2x4x32x64xf32>)
      outs(%init : tensor<2x8x36x64xf32>) -> tensor<2x8x36x64xf32>
  return %o : tensor<2x8x36x64xf32>
}

// -----

// Rows are whole.
shard.grid @grid(shape = 2x4)
func.func @f(%q: tensor<2x8x32x64xf32>, %k: tensor<2x4x32x64xf32>, %init: tensor<2x8x32x64xf32>) -> tensor<2x8x32x64xf32> {
  %s0 = shard.sharding @grid split_axes = [[], [], [], [1]] : !shard.sharding
  %qs = shard.shard %q to %s0 annotate_for_users : tensor<2x8x32x64xf32>
  // expected-error @+2 {{expected head dimension of 'q' whole on each process but got a split along grid axes [1]}}
  // expected-error @+1 {{fail to set sharding annotations}}
  %o = flashattn.attention ins(%qs, %k, %k : tensor<2x8x32x64xf32>, tensor<2x4x32x64xf32>, tensor<2x4x32x64xf32>)
      outs(%init : tensor<2x8x32x64xf32>) -> tensor<2x8x32x64xf32>
  return %o : tensor<2x8x32x64xf32>
}

// -----

// A process has all keys for some queries, or some keys for all of them.
shard.grid @grid(shape = 2x4)
func.func @f(%q: tensor<2x8x32x64xf32>, %k: tensor<2x4x32x64xf32>, %init: tensor<2x8x32x64xf32>) -> tensor<2x8x32x64xf32> {
  %s0 = shard.sharding @grid split_axes = [[], [], [1]] : !shard.sharding
  %qs = shard.shard %q to %s0 annotate_for_users : tensor<2x8x32x64xf32>
  %s1 = shard.sharding @grid split_axes = [[], [], [1]] : !shard.sharding
  %ks = shard.shard %k to %s1 annotate_for_users : tensor<2x4x32x64xf32>
  // expected-error @+2 {{expected different grid axes for batches, heads, queries and keys but got axis 1 for dimensions of 'q' and 'k'}}
  // expected-error @+1 {{fail to get sharding option}}
  %o = flashattn.attention ins(%qs, %ks, %ks : tensor<2x8x32x64xf32>, tensor<2x4x32x64xf32>, tensor<2x4x32x64xf32>)
      outs(%init : tensor<2x8x32x64xf32>) -> tensor<2x8x32x64xf32>
  return %o : tensor<2x8x32x64xf32>
}

// -----

// Query heads follow their key/value heads.
shard.grid @grid(shape = 2x4)
func.func @f(%q: tensor<2x8x32x64xf32>, %k: tensor<2x4x32x64xf32>, %init: tensor<2x8x32x64xf32>) -> tensor<2x8x32x64xf32> {
  %s0 = shard.sharding @grid split_axes = [[], [0]] : !shard.sharding
  %qs = shard.shard %q to %s0 annotate_for_users : tensor<2x8x32x64xf32>
  %s1 = shard.sharding @grid split_axes = [[], [1]] : !shard.sharding
  %ks = shard.shard %k to %s1 annotate_for_users : tensor<2x4x32x64xf32>
  // expected-error @+2 {{expected dimension 1 of 'k' to be split along grid axes [0] as that of 'q' but got [1]}}
  // expected-error @+1 {{fail to get sharding option}}
  %o = flashattn.attention ins(%qs, %ks, %ks : tensor<2x8x32x64xf32>, tensor<2x4x32x64xf32>, tensor<2x4x32x64xf32>)
      outs(%init : tensor<2x8x32x64xf32>) -> tensor<2x8x32x64xf32>
  return %o : tensor<2x8x32x64xf32>
}

// -----

// All on one grid.
shard.grid @grid(shape = 2x4)
shard.grid @other(shape = 2)
func.func @f(%q: tensor<2x8x32x64xf32>, %k: tensor<2x4x32x64xf32>, %init: tensor<2x8x32x64xf32>) -> tensor<2x8x32x64xf32> {
  %s0 = shard.sharding @grid split_axes = [[0]] : !shard.sharding
  %qs = shard.shard %q to %s0 annotate_for_users : tensor<2x8x32x64xf32>
  %s1 = shard.sharding @other split_axes = [[0]] : !shard.sharding
  %ks = shard.shard %k to %s1 annotate_for_users : tensor<2x4x32x64xf32>
  // expected-error @+2 {{expected one grid for all operands but got @other for 'k'}}
  // expected-error @+1 {{fail to get sharding option}}
  %o = flashattn.attention ins(%qs, %ks, %ks : tensor<2x8x32x64xf32>, tensor<2x4x32x64xf32>, tensor<2x4x32x64xf32>)
      outs(%init : tensor<2x8x32x64xf32>) -> tensor<2x8x32x64xf32>
  return %o : tensor<2x8x32x64xf32>
}

// -----

// How many processes there are is known.
shard.grid @grid(shape = ?x4)
func.func @f(%q: tensor<2x8x32x64xf32>, %k: tensor<2x4x32x64xf32>, %init: tensor<2x8x32x64xf32>) -> tensor<2x8x32x64xf32> {
  %s0 = shard.sharding @grid split_axes = [[0], [1]] : !shard.sharding
  %qs = shard.shard %q to %s0 annotate_for_users : tensor<2x8x32x64xf32>
  // expected-error @+2 {{expected a static number of processes, at least 1, along grid axis 0 but got ?}}
  // expected-error @+1 {{fail to set sharding annotations}}
  %o = flashattn.attention ins(%qs, %k, %k : tensor<2x8x32x64xf32>, tensor<2x4x32x64xf32>, tensor<2x4x32x64xf32>)
      outs(%init : tensor<2x8x32x64xf32>) -> tensor<2x8x32x64xf32>
  return %o : tensor<2x8x32x64xf32>
}

// -----

shard.grid @grid(shape = 0x4)
func.func @f(%q: tensor<2x8x32x64xf32>, %k: tensor<2x4x32x64xf32>, %init: tensor<2x8x32x64xf32>) -> tensor<2x8x32x64xf32> {
  %s0 = shard.sharding @grid split_axes = [[0], [1]] : !shard.sharding
  %qs = shard.shard %q to %s0 annotate_for_users : tensor<2x8x32x64xf32>
  // expected-error @+2 {{expected a static number of processes, at least 1, along grid axis 0 but got 0}}
  // expected-error @+1 {{fail to set sharding annotations}}
  %o = flashattn.attention ins(%qs, %k, %k : tensor<2x8x32x64xf32>, tensor<2x4x32x64xf32>, tensor<2x4x32x64xf32>)
      outs(%init : tensor<2x8x32x64xf32>) -> tensor<2x8x32x64xf32>
  return %o : tensor<2x8x32x64xf32>
}

// -----

// The keys of a shard are numbered anew: a mask goes by distances.
shard.grid @grid(shape = 2x4)
func.func @f(%q: tensor<2x8x32x64xf32>, %k: tensor<2x4x32x64xf32>, %init: tensor<2x8x32x64xf32>) -> tensor<2x8x32x64xf32> {
  %s0 = shard.sharding @grid split_axes = [[], [], [1]] : !shard.sharding
  %ks = shard.shard %k to %s0 annotate_for_users : tensor<2x4x32x64xf32>
  // expected-error @+2 {{expected a mask that depends only on p - k to shard the keys but got '#flashattn.any_of<[#flashattn.window<left = 7, right = 0>, #flashattn.sink<4>]>'}}
  // expected-error @+1 {{fail to set sharding annotations}}
  %o = flashattn.attention mask(any_of<[window<left = 7, right = 0>, sink<4>]>) ins(%q, %ks, %ks : tensor<2x8x32x64xf32>, tensor<2x4x32x64xf32>, tensor<2x4x32x64xf32>)
      outs(%init : tensor<2x8x32x64xf32>) -> tensor<2x8x32x64xf32>
  return %o : tensor<2x8x32x64xf32>
}

// -----

// Their number is another.
shard.grid @grid(shape = 2x4)
func.func @f(%q: tensor<2x8x32x64xf32>, %k: tensor<2x4x32x64xf32>, %init: tensor<2x8x32x64xf32>) -> tensor<2x8x32x64xf32> {
  %s0 = shard.sharding @grid split_axes = [[], [], [1]] : !shard.sharding
  %ks = shard.shard %k to %s0 annotate_for_users : tensor<2x4x32x64xf32>
  // expected-error @+2 {{expected a mask without the symbol nk to shard the keys but got '#flashattn.set<"(p, k)[nq, nk] : (k - p + nk >= 0)">'}}
  // expected-error @+1 {{fail to set sharding annotations}}
  %o = flashattn.attention mask(affine_set<(p, k)[nq, nk] : (k - p + nk >= 0)>) ins(%q, %ks, %ks : tensor<2x8x32x64xf32>, tensor<2x4x32x64xf32>, tensor<2x4x32x64xf32>)
      outs(%init : tensor<2x8x32x64xf32>) -> tensor<2x8x32x64xf32>
  return %o : tensor<2x8x32x64xf32>
}

// -----

// So is that of the queries.
shard.grid @grid(shape = 2x4)
func.func @f(%q: tensor<2x8x32x64xf32>, %k: tensor<2x4x32x64xf32>, %init: tensor<2x8x32x64xf32>) -> tensor<2x8x32x64xf32> {
  %s0 = shard.sharding @grid split_axes = [[], [], [1]] : !shard.sharding
  %qs = shard.shard %q to %s0 annotate_for_users : tensor<2x8x32x64xf32>
  // expected-error @+2 {{expected a mask without the symbol nq to shard the queries but got '#flashattn.set<"(p, k)[nq, nk] : (-k + nq >= 0)">'}}
  // expected-error @+1 {{fail to set sharding annotations}}
  %o = flashattn.attention mask(affine_set<(p, k)[nq, nk] : (nq - k >= 0)>) ins(%qs, %k, %k : tensor<2x8x32x64xf32>, tensor<2x4x32x64xf32>, tensor<2x4x32x64xf32>)
      outs(%init : tensor<2x8x32x64xf32>) -> tensor<2x8x32x64xf32>
  return %o : tensor<2x8x32x64xf32>
}

// -----

// A3: positions that each batch has of its own.
shard.grid @grid(shape = 2x4)
func.func @f(%q: tensor<2x8x32x64xf32>, %k: tensor<2x4x32x64xf32>, %init: tensor<2x8x32x64xf32>, %n: tensor<2xi32>) -> tensor<2x8x32x64xf32> {
  %s0 = shard.sharding @grid split_axes = [[], [], [1]] : !shard.sharding
  %ks = shard.shard %k to %s0 annotate_for_users : tensor<2x4x32x64xf32>
  // expected-error @+2 {{expected one offset or align top_left to shard the keys but got an offset or length for each batch}}
  // expected-error @+1 {{fail to set sharding annotations}}
  %o = flashattn.attention mask(causal) ins(%q, %ks, %ks : tensor<2x8x32x64xf32>, tensor<2x4x32x64xf32>, tensor<2x4x32x64xf32>) kv_len(%n : tensor<2xi32>)
      outs(%init : tensor<2x8x32x64xf32>) -> tensor<2x8x32x64xf32>
  return %o : tensor<2x8x32x64xf32>
}

// -----

// Every process has what the heads share.
shard.grid @grid(shape = 2x4)
func.func @f(%q: tensor<2x8x32x64xf32>, %k: tensor<2x1x32x64xf32>, %bias: tensor<2x1x32x32xf32>, %init: tensor<2x8x32x64xf32>) -> tensor<2x8x32x64xf32> {
  %s0 = shard.sharding @grid split_axes = [[], [1]] : !shard.sharding
  %biass = shard.shard %bias to %s0 annotate_for_users : tensor<2x1x32x32xf32>
  // expected-error @+2 {{expected head count of 'k' whole on each process but got a split along grid axes [1]}}
  // expected-error @+1 {{fail to set sharding annotations}}
  %o = flashattn.attention ins(%q, %k, %k : tensor<2x8x32x64xf32>, tensor<2x1x32x64xf32>, tensor<2x1x32x64xf32>) bias(%biass : tensor<2x1x32x32xf32>)
      outs(%init : tensor<2x8x32x64xf32>) -> tensor<2x8x32x64xf32>
  return %o : tensor<2x8x32x64xf32>
}

// -----

shard.grid @grid(shape = 2x4)
func.func @f(%q: tensor<2x8x32x64xf32>, %bias: tensor<2x1x32x32xf32>, %init: tensor<2x8x32x64xf32>) -> tensor<2x8x32x64xf32> {
  %s0 = shard.sharding @grid split_axes = [[], [1]] : !shard.sharding
  %biass = shard.shard %bias to %s0 annotate_for_users : tensor<2x1x32x32xf32>
  // expected-error @+2 {{expected broadcast dimension 1 of 'bias' whole on each process but got a split along grid axes [1]}}
  // expected-error @+1 {{fail to set sharding annotations}}
  %o = flashattn.attention ins(%q, %q, %q : tensor<2x8x32x64xf32>, tensor<2x8x32x64xf32>, tensor<2x8x32x64xf32>) bias(%biass : tensor<2x1x32x32xf32>)
      outs(%init : tensor<2x8x32x64xf32>) -> tensor<2x8x32x64xf32>
  return %o : tensor<2x8x32x64xf32>
}

// -----

// A grid has so many axes.
shard.grid @grid(shape = 2x4)
func.func @f(%q: tensor<2x8x32x64xf32>, %init: tensor<2x8x32x64xf32>) -> tensor<2x8x32x64xf32> {
  %s0 = shard.sharding @grid split_axes = [[], [2]] : !shard.sharding
  %qs = shard.shard %q to %s0 annotate_for_users : tensor<2x8x32x64xf32>
  // expected-error @+2 {{expected one of the 2 grid axes of @grid but got 2}}
  // expected-error @+1 {{fail to set sharding annotations}}
  %o = flashattn.attention ins(%qs, %qs, %qs : tensor<2x8x32x64xf32>, tensor<2x8x32x64xf32>, tensor<2x8x32x64xf32>)
      outs(%init : tensor<2x8x32x64xf32>) -> tensor<2x8x32x64xf32>
  return %o : tensor<2x8x32x64xf32>
}
