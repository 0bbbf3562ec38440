// RUN: flash-opt %s -split-input-file -verify-diagnostics -o /dev/null

// Rule R1: every refusal names what was expected and what was found.

//===----------------------------------------------------------------------===//
// Masks and schedules
//===----------------------------------------------------------------------===//

// expected-error@+1 {{expected window bound 'left' between 0 and 2147483648 but got -1}}
func.func @f() attributes {m = #flashattn.window<left = -1>} { return }

// -----

// expected-error@+1 {{expected window bound 'right' between 0 and 2147483648 but got 2147483649}}
func.func @f() attributes {m = #flashattn.window<left = 1, right = 2147483649>} { return }

// -----

// expected-error@+1 {{expected sink count between 0 and 2147483648 but got -4}}
func.func @f() attributes {m = #flashattn.sink<-4>} { return }

// -----

#s = affine_set<(p, k) : (p - k >= 0)>
// expected-error@+1 {{expected an affine_set over the 2 dimensions (p, k) and 2 to 26 symbols [nq, nk, ...] but got 2 dimensions and 0 symbols}}
func.func @f() attributes {m = #flashattn.set<#s>} { return }

// -----

// expected-error@+1 {{expected coefficients of absolute value at most 2147483648 but got 4294967296}}
func.func @f() attributes {m = #flashattn.set<"(p, k)[nq, nk] : (4294967296 * p - k >= 0)">} { return }

// -----

// expected-error@+1 {{expected divisors and moduli of at least 1 but got 0}}
func.func @f() attributes {m = #flashattn.set<"(p, k)[nq, nk] : (k mod 0 == 0)">} { return }

// -----

// expected-error@+1 {{expected divisors and moduli of at least 1 but got -2}}
func.func @f() attributes {m = #flashattn.set<"(p, k)[nq, nk] : (k floordiv -2 >= 0)">} { return }

// -----

// expected-error@+1 {{expected a pure affine constraint (constant factors, divisors and moduli) but got 'd0 * s0 - d1'}}
func.func @f() attributes {m = #flashattn.set<"(p, k)[nq, nk] : (nq * p - k >= 0)">} { return }

// -----

// expected-error@+1 {{expected an integer set such as "(p, k)[nq, nk] : (p - k >= 0)" but got "(p, k)[nq, nk] : (p >= )": expected }}
func.func @f() attributes {m = #flashattn.set<"(p, k)[nq, nk] : (p >= )">} { return }

// -----

// expected-error@+1 {{invalid kind of attribute specified}}
func.func @f() attributes {m = #flashattn.set<4>} { return }

// -----

// expected-error@+1 {{or an attribute of another dialect, but got 4 : i64}}
func.func @f() attributes {m = #flashattn.any_of<[#flashattn.causal, 4]>} { return }

// -----

func.func @f(%q: tensor<1x2x8x16xf32>) {
  // expected-error@+1 {{or an attribute of another dialect, but got 'casual'}}
  %r = flashattn.attention mask(any_of<[sink<4>, casual]>)
      ins(%q, %q, %q : tensor<1x2x8x16xf32>, tensor<1x2x8x16xf32>, tensor<1x2x8x16xf32>)
      outs(%q : tensor<1x2x8x16xf32>) -> tensor<1x2x8x16xf32>
  return
}

// -----

func.func @f(%q: tensor<1x2x8x16xf32>) {
  // expected-error@+1 {{expected an affine_set over the 2 dimensions (p, k) and 2 to 26 symbols [nq, nk, ...] but got 1 dimensions and 0 symbols}}
  %r = flashattn.attention mask(affine_set<(p) : (p >= 0)>)
      ins(%q, %q, %q : tensor<1x2x8x16xf32>, tensor<1x2x8x16xf32>, tensor<1x2x8x16xf32>)
      outs(%q : tensor<1x2x8x16xf32>) -> tensor<1x2x8x16xf32>
  return
}

// -----

// expected-error@+1 {{or an attribute of another dialect, but got "causal"}}
func.func @f() attributes {m = #flashattn.all_of<["causal"]>} { return }

// -----

#two = #flashattn.any_of<[#flashattn.causal, #flashattn.sink<4>]>
#four = #flashattn.all_of<[#two, #two]>
#sixteen = #flashattn.all_of<[#four, #four]>
// expected-error@+1 {{expected a mask of at most 64 integer sets but got 256}}
func.func @f() attributes {m = #flashattn.all_of<[#sixteen, #sixteen]>} { return }

// -----

#two = #flashattn.any_of<[#flashattn.causal, #flashattn.sink<4>]>
#four = #flashattn.all_of<[#two, #two]>
#sixteen = #flashattn.all_of<[#four, #four]>
// expected-error@+1 {{expected a mask of at most 64 integer sets but got 80}}
func.func @f() attributes {m = #flashattn.any_of<[#sixteen, #sixteen, #sixteen, #sixteen, #sixteen]>} { return }

// -----

// Sums of terms have 64 bits wherever positions and lengths have 31: remainders count with what they are taken of.
// expected-error@+1 {{expected terms with a sum below 2^63 for p, k and symbols below 2^31 but got 'd0 * 2147483648 + (d0 mod 2147483648) * 2147483648 + (d0 mod 2147483647) * 2147483648 - d1 * 2147483648'}}
func.func @f() attributes {m = #flashattn.set<"(p, k)[nq, nk] : (2147483648 * p + 2147483648 * (p mod 2147483648) + 2147483648 * (p mod 2147483647) - 2147483648 * k >= 0)">} { return }

// -----

// expected-error@+1 {{expected terms with a sum below 2^63 for p, k and symbols below 2^31 but got 'd0 * 2147483648 - d1 * 2147483648 + s1 * 4'}}
func.func @f() attributes {m = #flashattn.set<"(p, k)[nq, nk] : (2147483648 * p - 2147483648 * k + 4 * nk >= 0)">} { return }

// -----

// expected-error@+1 {{expected terms with a sum below 2^63 for p, k and symbols below 2^31 but got}}
func.func @f() attributes {m = #flashattn.set<"(p, k)[nq, nk] : (1024 * ((2147483648 * (p floordiv 3)) ceildiv 7) - k == 0)">} { return }

// -----

// Their intersection has 64 sets of 6 long constraints.
#long = #flashattn.set<"(p, k)[nq, nk] : (p - k + nq - nk + 7 >= 0, k - p + nk - nq + 9 >= 0)">
#two = #flashattn.any_of<[#long, #long]>
// expected-error@+1 {{expected a mask of at most 4096 identifiers and constants in its sets but got}}
func.func @f() attributes {m = #flashattn.all_of<[#two, #two, #two, #two, #two, #two]>} { return }

// -----

#mod = #flashattn.set<"(p, k)[nq, nk] : (p mod 3 - k mod 5 >= 0)">
#two = #flashattn.any_of<[#mod, #mod]>
// expected-error@+1 {{expected a mask of at most 256 floordiv, ceildiv and mod in its sets but got 320}}
func.func @f() attributes {m = #flashattn.all_of<[#two, #two, #two, #two, #two, #two]>} { return }

// -----

// Nothing is read when it is written over: the output has memory of its own.
func.func @f(%q: memref<1x2x8x16xf32>, %k: memref<1x2x8x16xf32>) {
  // expected-error@+1 {{expected separate memory for 'o' but got the memory of 'q'}}
  flashattn.attention ins(%q, %k, %k : memref<1x2x8x16xf32>, memref<1x2x8x16xf32>, memref<1x2x8x16xf32>)
      outs(%q : memref<1x2x8x16xf32>)
  return
}

// -----

func.func @f(%q: memref<1x2x8x8xf32>, %k: memref<1x2x8x8xf32>, %bias: memref<1x2x8x8xf32>) {
  // expected-error@+1 {{expected separate memory for 'o' but got the memory of 'bias'}}
  flashattn.attention ins(%q, %k, %k : memref<1x2x8x8xf32>, memref<1x2x8x8xf32>, memref<1x2x8x8xf32>)
      bias(%bias : memref<1x2x8x8xf32>) outs(%bias : memref<1x2x8x8xf32>)
  return
}

// -----

// expected-error@+1 {{expected schedule field 'tile_m' between 1 and 1024 but got 0}}
func.func @f() attributes {m = #flashattn.schedule<tile_m = 0, tile_n = 64, stages = 2, dot_type = f16, mapping = mma_sync<warps = 4>>} { return }

// -----

// expected-error@+1 {{expected schedule field 'tile_n' between 1 and 1024 but got 2048}}
func.func @f() attributes {m = #flashattn.schedule<tile_m = 64, tile_n = 2048, stages = 2, dot_type = f16, mapping = mma_sync<warps = 4>>} { return }

// -----

// expected-error@+1 {{expected schedule field 'warps' between 1 and 32 but got 33}}
func.func @f() attributes {m = #flashattn.schedule<tile_m = 64, tile_n = 64, stages = 2, dot_type = f16, mapping = mma_sync<warps = 33>>} { return }

// -----

// expected-error@+1 {{expected schedule field 'stages' between 1 and 8 but got 9}}
func.func @f() attributes {m = #flashattn.schedule<tile_m = 64, tile_n = 64, stages = 9, dot_type = f16, mapping = mma_sync<warps = 4>>} { return }

// -----

// expected-error@+1 {{expected schedule field 'mapping', in the fields' order, but got none}}
func.func @f() attributes {m = #flashattn.schedule<tile_m = 64, tile_n = 64, stages = 2, dot_type = f16>} { return }

// -----

// expected-error@+1 {{expected schedule field 'tile_n' to be a multiple of 4, the threads that share a row, but got 66}}
func.func @f() attributes {m = #flashattn.schedule<tile_m = 64, tile_n = 66, stages = 2, dot_type = f16, mapping = mma_sync<warps = 4>>} { return }

// -----

// expected-error@+1 {{expected schedule field 'pack' between 1 and 64 but got 128}}
func.func @f() attributes {m = #flashattn.schedule<tile_m = 64, tile_n = 64, stages = 2, dot_type = f16, pack = 128, mapping = mma_sync<warps = 4>>} { return }

// -----

// expected-error@+1 {{expected schedule field 'tile_m' to be a multiple of 'pack', 6, but got 64}}
func.func @f() attributes {m = #flashattn.schedule<tile_m = 64, tile_n = 64, stages = 2, dot_type = f16, pack = 6, mapping = mma_sync<warps = 4>>} { return }

// -----

// expected-error@+1 {{expected another field of the schedule, in the fixed order of fields, but got depth}}
func.func @f() attributes {m = #flashattn.schedule<tile_m = 64, tile_n = 64, stages = 2, dot_type = f16, mapping = mma_sync<warps = 4>, depth = 2>} { return }

// -----

// Fields come in their order.
// expected-error@+1 {{expected schedule field 'mapping', in the fields' order, but got pack}}
func.func @f() attributes {m = #flashattn.schedule<tile_m = 64, tile_n = 64, stages = 2, dot_type = f16, splits = 2, pack = 2, mapping = cpu>} { return }

// -----

// expected-error@+1 {{expected another field of the schedule, in the fixed order of fields, but got none}}
func.func @f() attributes {m = #flashattn.schedule<tile_m = 64, tile_n = 64, stages = 2, dot_type = f16, mapping = cpu, >} { return }

// -----

// expected-error@+1 {{expected schedule field 'min_split_tiles' between 1 and 65535 but got 0}}
func.func @f() attributes {m = #flashattn.schedule<tile_m = 64, tile_n = 64, stages = 2, dot_type = f16, splits = 2, min_split_tiles = 0, mapping = mma_sync<warps = 4>>} { return }

// -----

// expected-error@+1 {{expected no schedule field 'min_split_tiles' without splits but got 4}}
func.func @f() attributes {m = #flashattn.schedule<tile_m = 64, tile_n = 64, stages = 2, dot_type = f16, min_split_tiles = 4, mapping = mma_sync<warps = 4>>} { return }

// -----

// expected-error@+1 {{expected no schedule field 'small_blocks_per_sm' unless 'splits' is above 1 and 'consumers' is 1 but got 3}}
func.func @f() attributes {m = #flashattn.schedule<tile_m = 64, tile_n = 64, stages = 2, dot_type = f16, mapping = hopper<consumers = 1, along = query_tile, registers = 128, producer_registers = 32, rescale_threshold = 1, l2_head_group = 1, small_blocks_per_sm = 3>>} { return }

// -----

// expected-error@+1 {{expected no schedule field 'small_blocks_per_sm' unless 'splits' is above 1 and 'consumers' is 1 but got 3}}
func.func @f() attributes {m = #flashattn.schedule<tile_m = 64, tile_n = 64, stages = 2, dot_type = f16, splits = 2, mapping = hopper<consumers = 2, along = query_tile, registers = 128, producer_registers = 32, rescale_threshold = 1, l2_head_group = 1, small_blocks_per_sm = 3>>} { return }

// -----

// expected-error@+1 {{expected schedule field 'tile_n' to be a multiple of 8 with 'small_blocks_per_sm' but got 44}}
func.func @f() attributes {m = #flashattn.schedule<tile_m = 64, tile_n = 44, stages = 2, dot_type = f16, splits = 2, mapping = hopper<consumers = 1, along = query_tile, registers = 128, producer_registers = 32, rescale_threshold = 1, l2_head_group = 1, small_blocks_per_sm = 3>>} { return }

// -----

// expected-error@+1 {{expected schedule field 'small_blocks_per_sm' between 0 and 8 but got 9}}
func.func @f() attributes {m = #flashattn.schedule<tile_m = 64, tile_n = 64, stages = 2, dot_type = f16, splits = 2, mapping = hopper<consumers = 1, along = query_tile, registers = 128, producer_registers = 32, rescale_threshold = 1, l2_head_group = 1, small_blocks_per_sm = 9>>} { return }

// -----

// expected-error@+1 {{expected 'false'}}
func.func @f() attributes {m = #flashattn.schedule<tile_m = 64, tile_n = 64, stages = 2, dot_type = f16, mapping = mma_sync<warps = 4, q_in_registers = 1>>} { return }

// -----

// expected-error@+1 {{expected schedule field 'dq_tile_m' between 0 and 1024 but got 2048}}
func.func @f() attributes {m = #flashattn.schedule<tile_m = 64, tile_n = 64, stages = 2, dot_type = f16, dq_tile_m = 2048, mapping = mma_sync<warps = 4>>} { return }

// -----

// expected-error@+1 {{expected schedule field 'column_warps' to be a power of 2 but got 3}}
func.func @f() attributes {m = #flashattn.schedule<tile_m = 64, tile_n = 64, stages = 2, dot_type = f16, mapping = mma_sync<warps = 6, column_warps = 3>>} { return }

// -----

// expected-error@+1 {{expected schedule field 'warps' to be a multiple of 'column_warps', 4, but got 2}}
func.func @f() attributes {m = #flashattn.schedule<tile_m = 64, tile_n = 64, stages = 2, dot_type = f16, mapping = mma_sync<warps = 2, column_warps = 4>>} { return }

// -----

// expected-error@+1 {{expected schedule field 'cooperative' 1 with algorithm accumulate_dq but got 0}}
func.func @f() attributes {m = #flashattn.schedule<tile_m = 128, tile_n = 64, stages = 2, dot_type = f16, algorithm = accumulate_dq, mapping = hopper<consumers = 2, along = query_tile, registers = 128, producer_registers = 32, rescale_threshold = 1, l2_head_group = 1>>} { return }

// -----

// expected-error@+1 {{expected mapping 'hopper' with algorithm split_dk_dv but got #flashattn.cpu}}
func.func @f() attributes {m = #flashattn.schedule<tile_m = 64, tile_n = 64, stages = 2, dot_type = f16, algorithm = split_dk_dv, mapping = cpu>} { return }

// -----

// expected-error@+1 {{expected schedule field 'consumers' to be at least 2 with 'cooperative' but got 1}}
func.func @f() attributes {m = #flashattn.schedule<tile_m = 64, tile_n = 64, stages = 2, dot_type = f16, mapping = hopper<consumers = 1, cooperative = 1, along = query_tile, registers = 128, producer_registers = 32, rescale_threshold = 1, l2_head_group = 1>>} { return }

// -----

// expected-error@+1 {{expected mapping cpu, mma_sync or hopper but got gpu}}
func.func @f() attributes {m = #flashattn.schedule<tile_m = 64, tile_n = 64, stages = 2, dot_type = f16, mapping = gpu>} { return }

// -----

// expected-error@+1 {{expected algorithm separate_dq, accumulate_dq, split_dk_dv or separate_dk_dv but got adds}}
func.func @f() attributes {m = #flashattn.schedule<tile_m = 64, tile_n = 64, stages = 2, dot_type = f16, algorithm = adds, mapping = cpu>} { return }

// -----

// expected-error@+1 {{expected schedule field 'dynamic_scheduler' between 0 and 1 but got -1}}
func.func @f() attributes {m = #flashattn.hopper<consumers = 2, along = query_tile, registers = 240, producer_registers = 24, rescale_threshold = 4, l2_head_group = 1, q_stages = 2, dynamic_scheduler = -1>} { return }

// -----

// expected-error@+1 {{expected schedule field 'lazy_rescale' between 0 and 1 but got 2}}
func.func @f() attributes {m = #flashattn.hopper<consumers = 2, along = query_tile, registers = 240, producer_registers = 24, rescale_threshold = 8, l2_head_group = 1, lazy_rescale = 2>} { return }

// -----

// expected-error@+1 {{expected schedule field 'q_register_columns' to be a multiple of 16, the depth of a wgmma, but got 40}}
func.func @f() attributes {m = #flashattn.hopper<consumers = 2, along = query_tile, registers = 240, producer_registers = 24, rescale_threshold = 1, l2_head_group = 1, q_register_columns = 40>} { return }

// -----

// expected-error@+1 {{expected schedule field 'prefetch_kib_per_sm' between 0 and 65535 but got 65536}}
func.func @f() attributes {m = #flashattn.hopper<consumers = 1, along = query_tile, registers = 104, producer_registers = 24, rescale_threshold = 1, l2_head_group = 1, prefetch_kib_per_sm = 65536>} { return }

// -----

// expected-error@+1 {{expected schedule field 'compact_kv' between 0 and 1 but got 2}}
func.func @f() attributes {m = #flashattn.hopper<consumers = 1, along = query_tile, registers = 104, producer_registers = 24, rescale_threshold = 1, l2_head_group = 1, compact_kv = 2>} { return }

// -----

// expected-error@+1 {{expected schedule field 'dq_reduce_stages' between 0 and 2 but got 3}}
func.func @f() attributes {m = #flashattn.hopper<consumers = 2, along = query_tile, registers = 240, producer_registers = 24, rescale_threshold = 0, l2_head_group = 1, dq_reduce_stages = 3>} { return }

// -----

// expected-error@+1 {{expected schedule field 'dot_type' to be f16, bf16, f32 or f8E4M3FN but got 'f64'}}
func.func @f() attributes {m = #flashattn.schedule<tile_m = 64, tile_n = 64, stages = 2, dot_type = f64, mapping = mma_sync<warps = 4>>} { return }

// -----

// expected-error@+1 {{expected schedule field 'consumers' between 1 and 7 but got 0}}
func.func @f() attributes {m = #flashattn.hopper<consumers = 0, along = query_tile, registers = 160, producer_registers = 32, rescale_threshold = 8, l2_head_group = 1>} { return }

// -----

// expected-error@+1 {{expected schedule field 'consumers' between 1 and 7 but got 8}}
func.func @f() attributes {m = #flashattn.hopper<consumers = 8, along = query_tile, registers = 160, producer_registers = 32, rescale_threshold = 8, l2_head_group = 1>} { return }

// -----

// expected-error@+1 {{expected schedule field 'registers' between 24 and 256 but got 16}}
func.func @f() attributes {m = #flashattn.hopper<consumers = 3, along = query_tile, registers = 16, producer_registers = 32, rescale_threshold = 8, l2_head_group = 1>} { return }

// -----

// expected-error@+1 {{expected schedule field 'registers' to be a multiple of 8, as setmaxnreg requires, but got 162}}
func.func @f() attributes {m = #flashattn.hopper<consumers = 3, along = query_tile, registers = 162, producer_registers = 32, rescale_threshold = 8, l2_head_group = 1>} { return }

// -----

// expected-error@+1 {{expected schedule field 'producer_registers' between 24 and 256 but got 264}}
func.func @f() attributes {m = #flashattn.hopper<consumers = 3, along = query_tile, registers = 160, producer_registers = 264, rescale_threshold = 8, l2_head_group = 1>} { return }

// -----

// expected-error@+1 {{expected schedule field 'producer_registers' to be a multiple of 8, as setmaxnreg requires, but got 36}}
func.func @f() attributes {m = #flashattn.hopper<consumers = 3, along = query_tile, registers = 160, producer_registers = 36, rescale_threshold = 8, l2_head_group = 1>} { return }

// -----

// expected-error@+1 {{expected schedule field 'rescale_threshold' between 0 and 15 but got -1}}
func.func @f() attributes {m = #flashattn.hopper<consumers = 3, along = query_tile, registers = 160, producer_registers = 32, rescale_threshold = -1, l2_head_group = 1>} { return }

// -----

// expected-error@+1 {{expected schedule field 'rescale_threshold' between 0 and 15 but got 16}}
func.func @f() attributes {m = #flashattn.hopper<consumers = 3, along = query_tile, registers = 160, producer_registers = 32, rescale_threshold = 16, l2_head_group = 1>} { return }

// -----

// expected-error@+1 {{expected schedule field 'l2_head_group' between 0 and 65535 but got -1}}
func.func @f() attributes {m = #flashattn.hopper<consumers = 3, along = query_tile, registers = 160, producer_registers = 32, rescale_threshold = 8, l2_head_group = -1>} { return }

// -----

// expected-error@+1 {{expected schedule field 'blocks_per_sm' between 1 and 8 but got 0}}
func.func @f() attributes {m = #flashattn.hopper<consumers = 3, along = query_tile, registers = 160, producer_registers = 32, rescale_threshold = 8, l2_head_group = 1, blocks_per_sm = 0>} { return }

// -----

// expected-error@+1 {{expected schedule field 'blocks_per_sm' between 1 and 8 but got 9}}
func.func @f() attributes {m = #flashattn.hopper<consumers = 3, along = query_tile, registers = 160, producer_registers = 32, rescale_threshold = 8, l2_head_group = 1, blocks_per_sm = 9>} { return }

// -----

// expected-error@+1 {{expected schedule field 'along' to be query_tile or head but got batch}}
func.func @f() attributes {m = #flashattn.hopper<consumers = 3, along = batch, registers = 160, producer_registers = 32, rescale_threshold = 8, l2_head_group = 1>} { return }

// -----

//===----------------------------------------------------------------------===//
// Operands, results and clauses of the op
//===----------------------------------------------------------------------===//

func.func @f(%q: tensor<*xf32>, %k: tensor<1x2x8x16xf32>, %v: tensor<1x2x8x16xf32>, %o: tensor<1x2x8x16xf32>) {
  // expected-error@+1 {{operand #0 must be ranked tensor or memref, but got 'tensor<*xf32>'}}
  %r = flashattn.attention
      ins(%q, %k, %v : tensor<*xf32>, tensor<1x2x8x16xf32>, tensor<1x2x8x16xf32>)
      outs(%o : tensor<1x2x8x16xf32>) -> tensor<1x2x8x16xf32>
  return
}

// -----

func.func @f(%q: tensor<1x2x8x16xf32>, %k: memref<1x2x8x16xf32>, %v: tensor<1x2x8x16xf32>, %o: tensor<1x2x8x16xf32>) {
  // expected-error@+1 {{expected all operands to be tensors like 'q' but got 'k' of type 'memref<1x2x8x16xf32>'}}
  %r = flashattn.attention
      ins(%q, %k, %v : tensor<1x2x8x16xf32>, memref<1x2x8x16xf32>, tensor<1x2x8x16xf32>)
      outs(%o : tensor<1x2x8x16xf32>) -> tensor<1x2x8x16xf32>
  return
}

// -----

func.func @f(%q: memref<1x2x8x16xf32>, %k: memref<1x2x8x16xf32>, %v: memref<1x2x8x16xf32>, %o: tensor<1x2x8x16xf32>) {
  // expected-error@+1 {{expected all operands to be memrefs like 'q' but got 'o' of type 'tensor<1x2x8x16xf32>'}}
  %r = flashattn.attention
      ins(%q, %k, %v : memref<1x2x8x16xf32>, memref<1x2x8x16xf32>, memref<1x2x8x16xf32>)
      outs(%o : tensor<1x2x8x16xf32>) -> tensor<1x2x8x16xf32>
  return
}

// -----

func.func @f(%q: tensor<1x2x8x16xf32>, %k: tensor<1x2x8x16xf32>, %v: tensor<1x2x8x16xf32>, %o: tensor<1x2x8x16xf32>, %l: memref<1x2x8xf32>) {
  // expected-error@+1 {{expected all operands to be tensors like 'q' but got 'lse' of type 'memref<1x2x8xf32>'}}
  %r = flashattn.attention
      ins(%q, %k, %v : tensor<1x2x8x16xf32>, tensor<1x2x8x16xf32>, tensor<1x2x8x16xf32>)
      outs(%o, %l : tensor<1x2x8x16xf32>, memref<1x2x8xf32>) -> tensor<1x2x8x16xf32>
  return
}

// -----

func.func @f(%q: tensor<2x8x16xf32>, %k: tensor<1x2x8x16xf32>, %v: tensor<1x2x8x16xf32>, %o: tensor<1x2x8x16xf32>) {
  // expected-error@+1 {{expected 'q' of rank 4 but got rank 3}}
  %r = flashattn.attention
      ins(%q, %k, %v : tensor<2x8x16xf32>, tensor<1x2x8x16xf32>, tensor<1x2x8x16xf32>)
      outs(%o : tensor<1x2x8x16xf32>) -> tensor<1x2x8x16xf32>
  return
}

// -----

func.func @f(%q: tensor<1x2x8x16xf32>, %k: tensor<1x2x8x16xf32>, %v: tensor<1x2x8x16xf32>, %o: tensor<1x1x2x8x16xf32>) {
  // expected-error@+1 {{expected 'o' of rank 4 but got rank 5}}
  %r = flashattn.attention
      ins(%q, %k, %v : tensor<1x2x8x16xf32>, tensor<1x2x8x16xf32>, tensor<1x2x8x16xf32>)
      outs(%o : tensor<1x1x2x8x16xf32>) -> tensor<1x1x2x8x16xf32>
  return
}

// -----

func.func @f(%q: tensor<1x2x8x16xf64>, %k: tensor<1x2x8x16xf32>, %v: tensor<1x2x8x16xf32>, %o: tensor<1x2x8x16xf32>) {
  // expected-error@+1 {{expected 'q' with element type f16, bf16, f32, f8E4M3FN or f8E5M2 but got 'f64'}}
  %r = flashattn.attention
      ins(%q, %k, %v : tensor<1x2x8x16xf64>, tensor<1x2x8x16xf32>, tensor<1x2x8x16xf32>)
      outs(%o : tensor<1x2x8x16xf32>) -> tensor<1x2x8x16xf32>
  return
}

// -----

func.func @f(%q: tensor<1x2x8x16xf32>, %k: tensor<1x2x8x16xf32>, %v: tensor<1x2x8x16xf16>, %o: tensor<1x2x8x16xf32>) {
  // expected-error@+1 {{expected 'v' with element type 'f32' as in 'q', f8E4M3FN, f8E5M2 or i8 but got 'f16'}}
  %r = flashattn.attention
      ins(%q, %k, %v : tensor<1x2x8x16xf32>, tensor<1x2x8x16xf32>, tensor<1x2x8x16xf16>)
      outs(%o : tensor<1x2x8x16xf32>) -> tensor<1x2x8x16xf32>
  return
}

// -----

func.func @f(%q: tensor<1x2x8x16xf32>, %k: tensor<1x2x8x?xf32>, %v: tensor<1x2x8x16xf32>, %o: tensor<1x2x8x16xf32>) {
  // expected-error@+1 {{expected a static last dimension of 'k' but got 'tensor<1x2x8x?xf32>'}}
  %r = flashattn.attention
      ins(%q, %k, %v : tensor<1x2x8x16xf32>, tensor<1x2x8x?xf32>, tensor<1x2x8x16xf32>)
      outs(%o : tensor<1x2x8x16xf32>) -> tensor<1x2x8x16xf32>
  return
}

// -----

func.func @f(%q: memref<1x2x8x16xf32>, %k: memref<1x2x8x16xf32, affine_map<(b, h, n, d) -> (b, h, n floordiv 2, d)>>, %v: memref<1x2x8x16xf32>, %o: memref<1x2x8x16xf32>) {
  // expected-error@+1 {{expected a strided layout of 'k' but got 'memref<1x2x8x16xf32, affine_map<(d0, d1, d2, d3) -> (d0, d1, d2 floordiv 2, d3)>>'}}
  flashattn.attention
      ins(%q, %k, %v : memref<1x2x8x16xf32>, memref<1x2x8x16xf32, affine_map<(b, h, n, d) -> (b, h, n floordiv 2, d)>>, memref<1x2x8x16xf32>)
      outs(%o : memref<1x2x8x16xf32>)
  return
}

// -----

func.func @f(%q: memref<1x2x8x16xf32>, %k: memref<1x2x8x16xf32>, %v: memref<1x2x8x16xf32, strided<[256, 128, 1, 8]>>, %o: memref<1x2x8x16xf32>) {
  // expected-error@+1 {{expected unit stride in the last dimension of 'v' but got 'memref<1x2x8x16xf32, strided<[256, 128, 1, 8]>>'}}
  flashattn.attention
      ins(%q, %k, %v : memref<1x2x8x16xf32>, memref<1x2x8x16xf32>, memref<1x2x8x16xf32, strided<[256, 128, 1, 8]>>)
      outs(%o : memref<1x2x8x16xf32>)
  return
}

// -----

func.func @f(%q: tensor<1x2x8x16xf32>, %k: tensor<3x2x8x16xf32>, %v: tensor<1x2x8x16xf32>, %o: tensor<1x2x8x16xf32>) {
  // expected-error@+1 {{expected batch size of 'k' to be 1 as in 'q' but got 3}}
  %r = flashattn.attention
      ins(%q, %k, %v : tensor<1x2x8x16xf32>, tensor<3x2x8x16xf32>, tensor<1x2x8x16xf32>)
      outs(%o : tensor<1x2x8x16xf32>) -> tensor<1x2x8x16xf32>
  return
}

// -----

func.func @f(%q: tensor<1x2x8x16xf32>, %k: tensor<1x2x8x16xf32>, %v: tensor<3x2x8x16xf32>, %o: tensor<1x2x8x16xf32>) {
  // expected-error@+1 {{expected batch size of 'v' to be 1 as in 'q' but got 3}}
  %r = flashattn.attention
      ins(%q, %k, %v : tensor<1x2x8x16xf32>, tensor<1x2x8x16xf32>, tensor<3x2x8x16xf32>)
      outs(%o : tensor<1x2x8x16xf32>) -> tensor<1x2x8x16xf32>
  return
}

// -----

func.func @f(%q: tensor<1x2x8x16xf32>, %k: tensor<1x2x8x16xf32>, %v: tensor<1x2x8x16xf32>, %o: tensor<3x2x8x16xf32>) {
  // expected-error@+1 {{expected batch size of 'o' to be 1 as in 'q' but got 3}}
  %r = flashattn.attention
      ins(%q, %k, %v : tensor<1x2x8x16xf32>, tensor<1x2x8x16xf32>, tensor<1x2x8x16xf32>)
      outs(%o : tensor<3x2x8x16xf32>) -> tensor<3x2x8x16xf32>
  return
}

// -----

func.func @f(%q: tensor<1x2x8x16xf32>, %k: tensor<1x2x8x16xf32>, %v: tensor<1x1x8x16xf32>, %o: tensor<1x2x8x16xf32>) {
  // expected-error@+1 {{expected head count of 'v' to be 2 as in 'k' but got 1}}
  %r = flashattn.attention
      ins(%q, %k, %v : tensor<1x2x8x16xf32>, tensor<1x2x8x16xf32>, tensor<1x1x8x16xf32>)
      outs(%o : tensor<1x2x8x16xf32>) -> tensor<1x2x8x16xf32>
  return
}

// -----

func.func @f(%q: tensor<1x2x8x16xf32>, %k: tensor<1x2x8x16xf32>, %v: tensor<1x2x8x16xf32>, %o: tensor<1x4x8x16xf32>) {
  // expected-error@+1 {{expected head count of 'o' to be 2 as in 'q' but got 4}}
  %r = flashattn.attention
      ins(%q, %k, %v : tensor<1x2x8x16xf32>, tensor<1x2x8x16xf32>, tensor<1x2x8x16xf32>)
      outs(%o : tensor<1x4x8x16xf32>) -> tensor<1x4x8x16xf32>
  return
}

// -----

func.func @f(%q: tensor<1x2x8x16xf32>, %k: tensor<1x2x8x16xf32>, %v: tensor<1x2x9x16xf32>, %o: tensor<1x2x8x16xf32>) {
  // expected-error@+1 {{expected key length of 'v' to be 8 as in 'k' but got 9}}
  %r = flashattn.attention
      ins(%q, %k, %v : tensor<1x2x8x16xf32>, tensor<1x2x8x16xf32>, tensor<1x2x9x16xf32>)
      outs(%o : tensor<1x2x8x16xf32>) -> tensor<1x2x8x16xf32>
  return
}

// -----

func.func @f(%q: tensor<1x2x8x16xf32>, %k: tensor<1x2x8x16xf32>, %v: tensor<1x2x8x16xf32>, %o: tensor<1x2x7x16xf32>) {
  // expected-error@+1 {{expected query length of 'o' to be 8 as in 'q' but got 7}}
  %r = flashattn.attention
      ins(%q, %k, %v : tensor<1x2x8x16xf32>, tensor<1x2x8x16xf32>, tensor<1x2x8x16xf32>)
      outs(%o : tensor<1x2x7x16xf32>) -> tensor<1x2x7x16xf32>
  return
}

// -----

func.func @f(%q: tensor<1x2x8x16xf32>, %k: tensor<1x2x8x32xf32>, %v: tensor<1x2x8x16xf32>, %o: tensor<1x2x8x16xf32>) {
  // expected-error@+1 {{expected head dimension of 'k' to be 16 as in 'q' but got 32}}
  %r = flashattn.attention
      ins(%q, %k, %v : tensor<1x2x8x16xf32>, tensor<1x2x8x32xf32>, tensor<1x2x8x16xf32>)
      outs(%o : tensor<1x2x8x16xf32>) -> tensor<1x2x8x16xf32>
  return
}

// -----

func.func @f(%q: tensor<1x2x8x16xf32>, %k: tensor<1x2x8x16xf32>, %v: tensor<1x2x8x4xf32>, %o: tensor<1x2x8x16xf32>) {
  // expected-error@+1 {{expected head dimension of 'o' to be 4 as in 'v' but got 16}}
  %r = flashattn.attention
      ins(%q, %k, %v : tensor<1x2x8x16xf32>, tensor<1x2x8x16xf32>, tensor<1x2x8x4xf32>)
      outs(%o : tensor<1x2x8x16xf32>) -> tensor<1x2x8x16xf32>
  return
}

// -----

// The layout says which dimension is which.
func.func @f(%q: tensor<1x8x2x16xf32>, %k: tensor<1x2x8x16xf32>, %v: tensor<1x2x8x16xf32>, %o: tensor<1x2x8x16xf32>) {
  // expected-error@+1 {{expected query length of 'o' to be 8 as in 'q' but got 2}}
  %r = flashattn.attention layout(bshd)
      ins(%q, %k, %v : tensor<1x8x2x16xf32>, tensor<1x2x8x16xf32>, tensor<1x2x8x16xf32>)
      outs(%o : tensor<1x2x8x16xf32>) -> tensor<1x2x8x16xf32>
  return
}

// -----

// What one operand leaves open another may say.
func.func @f(%q: tensor<?x2x8x16xf32>, %k: tensor<2x2x8x16xf32>, %v: tensor<3x2x8x16xf32>, %o: tensor<?x2x8x16xf32>) {
  // expected-error@+1 {{expected batch size of 'v' to be 2 as in 'k' but got 3}}
  %r = flashattn.attention
      ins(%q, %k, %v : tensor<?x2x8x16xf32>, tensor<2x2x8x16xf32>, tensor<3x2x8x16xf32>)
      outs(%o : tensor<?x2x8x16xf32>) -> tensor<?x2x8x16xf32>
  return
}

// -----

func.func @f(%q: tensor<1x2x8x0xf32>, %k: tensor<1x2x8x0xf32>, %v: tensor<1x2x8x16xf32>, %o: tensor<1x2x8x16xf32>) {
  // expected-error@+1 {{expected head dimensions of at least 1 but got 0 of 'q' and 16 of 'v'}}
  %r = flashattn.attention
      ins(%q, %k, %v : tensor<1x2x8x0xf32>, tensor<1x2x8x0xf32>, tensor<1x2x8x16xf32>)
      outs(%o : tensor<1x2x8x16xf32>) -> tensor<1x2x8x16xf32>
  return
}

// -----

// Rule A4: every key/value head serves the same number of query heads.
func.func @f(%q: tensor<1x2x8x16xf32>, %k: tensor<1x0x8x16xf32>, %v: tensor<1x0x8x16xf32>, %o: tensor<1x2x8x16xf32>) {
  // expected-error@+1 {{expected at least 1 key/value head but got 0}}
  %r = flashattn.attention
      ins(%q, %k, %v : tensor<1x2x8x16xf32>, tensor<1x0x8x16xf32>, tensor<1x0x8x16xf32>)
      outs(%o : tensor<1x2x8x16xf32>) -> tensor<1x2x8x16xf32>
  return
}

// -----

func.func @f(%q: tensor<1x2x8x16xf32>, %k: tensor<1x3x8x16xf32>, %v: tensor<1x3x8x16xf32>, %o: tensor<1x2x8x16xf32>) {
  // expected-error@+1 {{expected the query head count to be a multiple of the key/value head count, 3, but got 2}}
  %r = flashattn.attention
      ins(%q, %k, %v : tensor<1x2x8x16xf32>, tensor<1x3x8x16xf32>, tensor<1x3x8x16xf32>)
      outs(%o : tensor<1x2x8x16xf32>) -> tensor<1x2x8x16xf32>
  return
}

// -----

func.func @f(%q: tensor<1x2x8x16xf32>, %k: tensor<1x2x8x16xf32>, %v: tensor<1x2x8x16xf32>, %o: tensor<1x2x8x16xf32>, %l: tensor<1x2x8x1xf32>) {
  // expected-error@+1 {{expected 'lse' of rank 3 but got rank 4}}
  %r:2 = flashattn.attention
      ins(%q, %k, %v : tensor<1x2x8x16xf32>, tensor<1x2x8x16xf32>, tensor<1x2x8x16xf32>)
      outs(%o, %l : tensor<1x2x8x16xf32>, tensor<1x2x8x1xf32>) -> tensor<1x2x8x16xf32>, tensor<1x2x8x1xf32>
  return
}

// -----

func.func @f(%q: tensor<1x2x8x16xf32>, %k: tensor<1x2x8x16xf32>, %v: tensor<1x2x8x16xf32>, %o: tensor<1x2x8x16xf32>, %l: tensor<1x2x8xf16>) {
  // expected-error@+1 {{expected 'lse' with element type f32 but got 'f16'}}
  %r:2 = flashattn.attention
      ins(%q, %k, %v : tensor<1x2x8x16xf32>, tensor<1x2x8x16xf32>, tensor<1x2x8x16xf32>)
      outs(%o, %l : tensor<1x2x8x16xf32>, tensor<1x2x8xf16>) -> tensor<1x2x8x16xf32>, tensor<1x2x8xf16>
  return
}

// -----

func.func @f(%q: tensor<1x2x8x16xf32>, %k: tensor<1x2x8x16xf32>, %v: tensor<1x2x8x16xf32>, %o: tensor<1x2x8x16xf32>, %l: tensor<2x2x8xf32>) {
  // expected-error@+1 {{expected batch size of 'lse' to be 1 as in 'q' but got 2}}
  %r:2 = flashattn.attention
      ins(%q, %k, %v : tensor<1x2x8x16xf32>, tensor<1x2x8x16xf32>, tensor<1x2x8x16xf32>)
      outs(%o, %l : tensor<1x2x8x16xf32>, tensor<2x2x8xf32>) -> tensor<1x2x8x16xf32>, tensor<2x2x8xf32>
  return
}

// -----

func.func @f(%q: tensor<1x2x8x16xf32>, %k: tensor<1x2x8x16xf32>, %v: tensor<1x2x8x16xf32>, %o: tensor<1x2x8x16xf32>, %l: tensor<1x1x8xf32>) {
  // expected-error@+1 {{expected head count of 'lse' to be 2 as in 'q' but got 1}}
  %r:2 = flashattn.attention
      ins(%q, %k, %v : tensor<1x2x8x16xf32>, tensor<1x2x8x16xf32>, tensor<1x2x8x16xf32>)
      outs(%o, %l : tensor<1x2x8x16xf32>, tensor<1x1x8xf32>) -> tensor<1x2x8x16xf32>, tensor<1x1x8xf32>
  return
}

// -----

func.func @f(%q: tensor<1x2x8x16xf32>, %k: tensor<1x2x8x16xf32>, %v: tensor<1x2x8x16xf32>, %o: tensor<1x2x8x16xf32>, %l: tensor<1x2x16xf32>) {
  // expected-error@+1 {{expected query length of 'lse' to be 8 as in 'q' but got 16}}
  %r:2 = flashattn.attention
      ins(%q, %k, %v : tensor<1x2x8x16xf32>, tensor<1x2x8x16xf32>, tensor<1x2x8x16xf32>)
      outs(%o, %l : tensor<1x2x8x16xf32>, tensor<1x2x16xf32>) -> tensor<1x2x8x16xf32>, tensor<1x2x16xf32>
  return
}

// -----

func.func @f(%q: memref<1x2x8x16xf32>, %k: memref<1x2x8x16xf32>, %v: memref<1x2x8x16xf32>, %o: memref<1x2x8x16xf32>, %l: memref<1x2x8xf32, strided<[16, 1, 2]>>) {
  // expected-error@+1 {{expected unit stride in the last dimension of 'lse' but got 'memref<1x2x8xf32, strided<[16, 1, 2]>>'}}
  flashattn.attention
      ins(%q, %k, %v : memref<1x2x8x16xf32>, memref<1x2x8x16xf32>, memref<1x2x8x16xf32>)
      outs(%o, %l : memref<1x2x8x16xf32>, memref<1x2x8xf32, strided<[16, 1, 2]>>)
  return
}

// -----

func.func @f(%q: tensor<1x2x8x16xf32>, %k: tensor<1x2x8x16xf32>, %v: tensor<1x2x8x16xf32>, %o: tensor<1x2x8x16xf32>) {
  // expected-error@+1 {{expected a finite positive scale but got 0}}
  %r = flashattn.attention scale(0.0)
      ins(%q, %k, %v : tensor<1x2x8x16xf32>, tensor<1x2x8x16xf32>, tensor<1x2x8x16xf32>)
      outs(%o : tensor<1x2x8x16xf32>) -> tensor<1x2x8x16xf32>
  return
}

// -----

func.func @f(%q: tensor<1x2x8x16xf32>, %k: tensor<1x2x8x16xf32>, %v: tensor<1x2x8x16xf32>, %o: tensor<1x2x8x16xf32>) {
  // expected-error@+1 {{expected a finite positive scale but got -0.5}}
  %r = flashattn.attention scale(-0.5)
      ins(%q, %k, %v : tensor<1x2x8x16xf32>, tensor<1x2x8x16xf32>, tensor<1x2x8x16xf32>)
      outs(%o : tensor<1x2x8x16xf32>) -> tensor<1x2x8x16xf32>
  return
}

// -----

func.func @f(%q: tensor<1x2x8x16xf32>, %k: tensor<1x2x8x16xf32>, %v: tensor<1x2x8x16xf32>, %o: tensor<1x2x8x16xf32>) {
  // expected-error@+1 {{expected a finite positive scale but got +Inf}}
  %r = flashattn.attention scale(0x7F800000)
      ins(%q, %k, %v : tensor<1x2x8x16xf32>, tensor<1x2x8x16xf32>, tensor<1x2x8x16xf32>)
      outs(%o : tensor<1x2x8x16xf32>) -> tensor<1x2x8x16xf32>
  return
}

// -----

func.func @f(%q: tensor<1x2x8x16xf32>, %k: tensor<1x2x8x16xf32>, %v: tensor<1x2x8x16xf32>, %o: tensor<1x2x8x16xf32>) {
  // expected-error@+1 {{expected a finite positive scale but got NaN}}
  %r = flashattn.attention scale(0x7FC00000)
      ins(%q, %k, %v : tensor<1x2x8x16xf32>, tensor<1x2x8x16xf32>, tensor<1x2x8x16xf32>)
      outs(%o : tensor<1x2x8x16xf32>) -> tensor<1x2x8x16xf32>
  return
}

// -----

func.func @f(%q: tensor<1x2x8x16xf32>, %k: tensor<1x2x8x16xf32>, %v: tensor<1x2x8x16xf32>, %o: tensor<1x2x8x16xf32>, %l: tensor<1x2x8xf32>) {
  // expected-error@+1 {{expected 2 results but got 1}}
  %r = flashattn.attention
      ins(%q, %k, %v : tensor<1x2x8x16xf32>, tensor<1x2x8x16xf32>, tensor<1x2x8x16xf32>)
      outs(%o, %l : tensor<1x2x8x16xf32>, tensor<1x2x8xf32>) -> tensor<1x2x8x16xf32>
  return
}

// -----

func.func @f(%q: memref<1x2x8x16xf32>, %k: memref<1x2x8x16xf32>, %v: memref<1x2x8x16xf32>, %o: memref<1x2x8x16xf32>) {
  // expected-error@+1 {{expected 0 results but got 1}}
  %r = flashattn.attention
      ins(%q, %k, %v : memref<1x2x8x16xf32>, memref<1x2x8x16xf32>, memref<1x2x8x16xf32>)
      outs(%o : memref<1x2x8x16xf32>) -> tensor<1x2x8x16xf32>
  return
}

// -----

func.func @f(%q: tensor<1x2x8x16xf32>, %k: tensor<1x2x8x16xf32>, %v: tensor<1x2x8x16xf32>, %o: tensor<1x2x8x16xf32>) {
  // expected-error@+1 {{expected result type 'tensor<1x2x8x16xf32>' as in 'outs' but got 'tensor<1x2x?x16xf32>'}}
  %r = flashattn.attention
      ins(%q, %k, %v : tensor<1x2x8x16xf32>, tensor<1x2x8x16xf32>, tensor<1x2x8x16xf32>)
      outs(%o : tensor<1x2x8x16xf32>) -> tensor<1x2x?x16xf32>
  return
}

// -----

func.func @f(%q: tensor<1x2x8x16xf32>, %k: tensor<1x2x8x16xf32>, %v: tensor<1x2x8x16xf32>, %o: tensor<1x2x8x16xf32>) {
  // expected-error@+1 {{expected top_left or bottom_right but got 'middle'}}
  %r = flashattn.attention align(middle)
      ins(%q, %k, %v : tensor<1x2x8x16xf32>, tensor<1x2x8x16xf32>, tensor<1x2x8x16xf32>)
      outs(%o : tensor<1x2x8x16xf32>) -> tensor<1x2x8x16xf32>
  return
}

// -----

func.func @f(%q: tensor<1x2x8x16xf32>, %k: tensor<1x2x8x16xf32>, %v: tensor<1x2x8x16xf32>, %o: tensor<1x2x8x16xf32>) {
  // expected-error@+1 {{or an attribute of another dialect, but got 4 : i64}}
  %r = flashattn.attention mask(4)
      ins(%q, %k, %v : tensor<1x2x8x16xf32>, tensor<1x2x8x16xf32>, tensor<1x2x8x16xf32>)
      outs(%o : tensor<1x2x8x16xf32>) -> tensor<1x2x8x16xf32>
  return
}

// -----

func.func @f(%q: tensor<1x2x8x16xf32>) {
  // expected-error@+1 {{expected bhsd or bshd but got ''}}
  %r = flashattn.attention layout("bshd")
      ins(%q, %q, %q : tensor<1x2x8x16xf32>, tensor<1x2x8x16xf32>, tensor<1x2x8x16xf32>)
      outs(%q : tensor<1x2x8x16xf32>) -> tensor<1x2x8x16xf32>
  return
}

// -----

//===----------------------------------------------------------------------===//
// Values of tile programs
//===----------------------------------------------------------------------===//

func.func @f(%x: vector<64xf32>) {
  // expected-error@+1 {{operand #0 must be vector of 1-bit signless integer values of ranks 1/2, but got 'vector<64xf32>'}}
  %r = flashattn.any_row %x : vector<64xf32>
  return
}

// -----

func.func @f(%x: vector<64x4x2xi1>) {
  // expected-error@+1 {{operand #0 must be vector of 1-bit signless integer values of ranks 1/2, but got 'vector<64x4x2xi1>'}}
  %r = flashattn.any_row %x : vector<64x4x2xi1>
  return
}

// -----

// expected-error@+1 {{expected schedule field 'stages', in the fields' order, but got warps, which is now 'mapping = mma_sync<warps = ...>'}}
func.func @f() attributes {m = #flashattn.schedule<tile_m = 64, tile_n = 64, warps = 4, stages = 2, threads_per_row = 4, dot_type = f16>} { return }

// -----

// expected-error@+1 {{expected schedule field 'mapping', in the fields' order, but got apart, which is now 'algorithm = separate_dk_dv'}}
func.func @f() attributes {m = #flashattn.schedule<tile_m = 64, tile_n = 64, stages = 2, dot_type = f16, apart = true, mapping = cpu>} { return }
