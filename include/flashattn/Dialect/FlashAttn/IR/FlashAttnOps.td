#ifndef FLASHATTN_OPS_TD
#define FLASHATTN_OPS_TD

include "mlir/IR/OpBase.td"
include "mlir/Interfaces/ControlFlowInterfaces.td"
include "mlir/Interfaces/DestinationStyleOpInterface.td"
include "mlir/Interfaces/InferTypeOpInterface.td"
include "mlir/Interfaces/SideEffectInterfaces.td"
include "mlir/Interfaces/TilingInterface.td"
include "flashattn/Dialect/FlashAttn/IR/FlashAttnAttrs.td"
include "flashattn/Dialect/OperandSegments.td"

def FlashAttn_Shaped : Type<Or<[AnyRankedTensor.predicate, AnyNon0RankedMemRef.predicate]>,
                            "ranked tensor or memref", "::mlir::ShapedType">;

/// An op that reads memrefs or tensors and writes its destinations.
class FlashAttn_DestinationOp<string mnemonic, list<Trait> traits = []>
    : Op<FlashAttn_Dialect, mnemonic, [
        DestinationStyleOpInterface,
        DeclareOpInterfaceMethods<FlashAttn_KernelOpInterface>,
        DeclareOpInterfaceMethods<MemoryEffectsOpInterface>,
        DeclareOpInterfaceMethods<ReifyRankedShapedTypeOpInterface, ["reifyResultShapes"]>,
        OperandSegments] # traits> {
  code segments = OperandSegmentsOf<arguments>.declaration;
  /// The destinations `o` and, if present, `lse`, for an op's extraClassDeclaration.
  code destinationDeclaration = [{
    ::mlir::MutableOperandRange getDpsInitsMutable() {
      return ::mlir::MutableOperandRange(getOperation(), getOInitMutable().getOperandNumber(),
                                         getLseInit() ? 2 : 1);
    }
  }];
  let extraClassDefinition = [{
    void $cppClass::getEffects(
        ::llvm::SmallVectorImpl<
            ::mlir::SideEffects::EffectInstance<::mlir::MemoryEffects::Effect>> &effects) {
      getDestinationEffects(*this, effects);
    }
    ::llvm::LogicalResult $cppClass::reifyResultShapes(
        ::mlir::OpBuilder &builder, ::mlir::ReifiedRankedShapedTypeDims &shapes) {
      return reifyDestinationShapes(*this, builder, shapes);
    }
  }];
}

def FlashAttn_AttentionOp : FlashAttn_DestinationOp<"attention", [
    FlashAttn_AttentionOpInterface,
    DeclareOpInterfaceMethods<TilingInterface,
      ["getLoopIteratorTypes", "getIterationDomain", "getTiledImplementation",
       "getResultTilePosition"]>]> {
  let summary = "scaled dot-product attention with masks and grouped-query heads";
  let description = [{
    Computes `o = softmax(mask(score_mod(softcap(scale * q k^T)) + bias)) v` and, optionally, the
    log-sum-exp (LSE) of each row of scores, in destination-passing style on tensors or memrefs.

    | name | type |
    | --- | --- |
    | `q` | `[B, Hq, Nq, D]`, f16, bf16 or f32 |
    | `k` | `[B, Hkv, Nk, D]`, the type of `q`, f8E4M3FN, f8E5M2 or i8 |
    | `v` | `[B, Hkv, Nk, Dv]`, the type of `q`, f8E4M3FN, f8E5M2 or i8 |
    | `bias` (optional) | broadcastable to `[B, Hq, Nq, Nk]`, f16, bf16 or f32: added to scores |
    | `attn_mask` (optional) | broadcastable to `[B, Hq, Nq, Nk]`, i1: false hides a (query, key) pair |
    | `sink_logits` (optional) | `[Hq]`, f32: logits that enter only the softmax denominators |
    | `kv_len` (optional) | `[B]`, i32: number of valid keys of each batch, from key 0 on |
    | `q_len` (optional) | `[B]`, i32: number of valid queries of each batch, from query 0 on |
    | `cu_seqlens_q` (optional) | `[B+1]`, i32: first row of each sequence in `q`, `o` and `lse` |
    | `cu_seqlens_k` (optional) | `[B+1]`, i32: first row of each sequence in `k` and `v` |
    | `page_table` (optional) | `[B, P]`, i32: pages of `k` and `v` that hold the keys of each batch |
    | `leftpad_k` (optional) | `[B]`, i32: number of rows of `k` and `v` before key 0 of each batch |
    | `k_scale` (optional) | `[B or 1, Hkv or 1, Nk or 1, blocks of D]`, f32: scales of `k` |
    | `v_scale` (optional) | `[B or 1, Hkv or 1, Nk or 1, blocks of Dv]`, f32: scales of `v` |
    | `offset` (optional) | index: position of query 0; or `[B]`, i32: one position for each batch |
    | `scale` (optional) | f32: scale factor of the scores, instead of the attribute |
    | `per_sequence` (any number) | `[B]` or `[1]`, i32: symbol of the mask with a value per batch |
    | `per_query` (any number) | `[B or 1, Hq or 1, Nq]`, i32: symbol with a value per query |
    | `per_key` (any number) | `[B or 1, Hkv or 1, Nk]`, i32: symbol with a value per key |
    | `o` | `[B, Hq, Nq, Dv]`, the type of `q`, or f32: rows are not rounded to the type of `q` |
    | `lse` (optional) | `[B, Hq, Nq]`, f32, natural logarithm |

    With `layout(bshd)` the second and third dimensions of `q`, `k`, `v`, their scales and `o` are
    swapped; the layout of the other operands does not change. B, H, Nq and Nk may be dynamic; the head
    dimensions D and Dv are static. A dimension of `bias` or `attn_mask` is broadcast if its static
    size is 1; otherwise its size must be that of the scores.

    The optional region `score_mod` computes a new score from `(score, b, h, p, k)`: the f32 score
    and the indices of batch, query head, query position (A3) and key. It contains `arith` and
    `math` ops on scalars, may use scalars defined outside, may load elements of tensors or memrefs
    defined outside (A10), and ends with `flashattn.yield`. It is also evaluated for hidden pairs;
    for these, an integer division by 0 yields an unspecified number.

    Rules (the code that implements a rule refers to its number):

    - A1: `s[i,j] = scale * sum_d q[i,d] k[j,d]`; `scale` defaults to `1/sqrt(D)`. Products of f16
      and bf16 accumulate in f32. `scale` and `softcap` must be in the range from 1e-18 to 1e18.
      `scale(%x)` passes the factor at run time, so that one compiled kernel serves every scale; the
      caller is then responsible for the range.
    - A2: the order is: scale, `softcap` (`s <- c tanh(s/c)`), `score_mod`, `bias`, mask and
      `attn_mask`, softmax, `P V`.
    - A3: the position of query `i` is `p = i + offset`. With an offset of type `[B]`, that is
      `offset[b]`, for batch or sequence (S1) `b`. Without the operand, the offset is 0 with
      `align(top_left)`, and `Nk - Nq`, or `kv_len[b] - Nq`, with `align(bottom_right)`, the
      default. Positions are 32-bit integers.
    - A4: query head `h` reads key/value head `h / (Hq / Hkv)`.
    - A5: `o = sum_j e^(s-m) v_j / l` and `lse = m + ln l`, with the row maximum `m` and the row sum
      `l = sum_j e^(s-m)`. With `sink_logits`, `l` also includes `e^(sink-m)`.
    - A6: a row without a visible key, or whose visible scores are all -inf, has `o = 0` and
      `lse = -inf`, or `lse = sink` with `sink_logits`.
    - A7: elements past Nq, Nk or `kv_len` have no effect, whatever memory contains there, and only
      `o` and `lse` are written. `kv_len` is clamped to the range from 0 to Nk. Keys outside the
      range from the first to the last key that the mask shows to any query of the batch have no
      effect either. The range is derived from the mask's sets and, for symbols per sequence (Y1),
      from their values. It may be larger than necessary for sets with `mod`, `floordiv` or
      multiples of `p` or `k`, and for sets with symbols per query or per key (Y2), which count as
      if they could have any value.
    - A8: `+inf` or NaN in a visible score produces NaN in that row and in no other row. An infinity
      or NaN in `v` may produce NaN even in a row that does not see its key, if the key is in the
      range of A7: the probability is 0, and 0 times an infinity or NaN is NaN.
    - A9: f32 computations have f32 precision: a relative error of 1e-5 against float64, without
      implicit TF32.
    - A10: `score_mod` may load elements of tensors by `tensor.extract`, or of memrefs by
      `memref.load`, if these have rank 0, 1 or 2. The indices depend only on `b`, `h`, constants
      and scalars defined outside, not on the score, `p` or `k`, so that a program loads an element
      once for all its scores. The caller is responsible for indices in range. `b` and `h` are those
      of a batch (or sequence, S1) and a query head that exist, also in hidden pairs and in rows of
      no sequence (S3).
    - S1: with `cu_seqlens_q`, the sequences are packed: `q` and `o` are `[1, Hq, T, D]`, `lse` is
      `[1, Hq, T]`, and row `i` of sequence `b` is row `cu_seqlens_q[b] + i`. B is the number of
      sequences, one less than the size of `cu_seqlens_q`, and at least 1. `cu_seqlens_k` has the
      same meaning for `k` and `v`. Without one of them, the operands on its side have B batches of
      equal length. `b` of `score_mod` is the sequence.
    - S2: the starts do not decrease and are at most T. A sequence may be empty (A6). Other starts
      are clamped: the results are then unspecified, but no other memory is accessed.
    - S3: rows of `q` that belong to no sequence (before the first start, from the last on, or from
      `q_len[b]` on in their sequence) have `o = 0` and `lse = -inf`. They affect no other row,
      whatever they contain, and neither do such rows of `k` and `v`.
    - S4: Nq of a sequence is `q_len[b]`, or else the difference of its starts. Nk is `kv_len[b]`,
      or else the difference of its starts. Both lengths are clamped to that difference, or to the
      size of the dimension. Masks and A3 use these numbers, and all rules apply to each sequence
      separately.
    - S5: there is no maximum length, and the host reads no start.
    - S6: `o` and `lse` of a packed sequence are bitwise those of the sequence alone with the same
      schedule. In ops with `max_seqlen_q` (S7), that needs `invariant` (S8).
    - S7: with `max_seqlen_q(n)`, only sequences with at most n rows of `q` are computed, and with
      `min_seqlen_q(n)` only those with at least n. The rows of `o` and `lse` of other sequences
      keep their values. With `max_seqlen_q`, so do rows of no sequence (S3). Both need
      `cu_seqlens_q`, and exclude `cu_seqlens_k`. Kernels with `max_seqlen_q` have a program for
      each sequence, which may split its keys and pack heads.
    - S8: with `invariant`, `o` and `lse` of a batch, or of a packed sequence, are bitwise functions of
      its own queries, keys, numbers of queries and keys, and position: other batches or sequences,
      their number and order, and the sizes of `page_table`, `k` and `v` do not matter. Where keys are
      split, each split then has `min_split_tiles` key tiles, so that the workspace grows with the
      keys that `k`, or the table, has room for. Without the attribute, the number of splits depends
      on the number of programs.
    - P1: with `page_table`, `k` and `v` are pools of pages, `[pages, Hkv, S, D]` and
      `[pages, Hkv, S, Dv]` with the static page size S, and the keys have at most P S rows. Key `j`
      of batch or sequence `b` is row `j mod S` of page `page_table[b, j floordiv S]`. `kv_len` is
      required. Strides are those of any memref, so that a pool may be a view of another tensor. A
      page may belong to several sequences.
    - P2: an entry of the table has no effect, whatever it contains, if no query of its sequence
      sees a key of its page, and neither does such a page. That applies to pages past
      `kv_len[b]`, before a window, and between the parts of a mask, except for sets with `mod`,
      `floordiv` or multiples of `p` or `k`, and for sets with symbols per query or per key (Y2).
      The caller is responsible for all other entries, from 0 to pages - 1: another entry reads as a
      page of zeros or as other memory.
    - P3: with `leftpad_k`, key `j` is row `leftpad_k[b] + j` of the rows of its batch: of `k[b]`,
      or of the pages of the sequence. The paddings are clamped to the range from 0 to the number of
      these rows, and Nk is at most the number of rows that follow. Rows of padding have no effect.
    - P4: with a `page_table` of one column, S may be dynamic: `page_table[b, 0]` is the index of
      batch `b` in `k` and `v`.
    - F1: `k` and `v` may have elements of 8 bits, each of its own type. An element of `k` stands for the
      stored number times its scale in `k_scale` or, without that operand, for the stored number;
      likewise for `v`. A row of D elements has one scale, or one for each of several blocks of equal size, a
      multiple of 16. If the scales have one row, statically, it
      serves all keys of batch or sequence `b`; if their first size is 1, of all of them. Otherwise
      scales are arranged like the rows of `k`:
      packed with `cu_seqlens_k` (S1), and in the pages of `k` with `page_table` (P1). A scale may
      be any number, such as 0 or NaN. Scales of rows that have no effect (A7, P2, P3) have no effect
      either.
    - F2: scores, `lse`, `softcap` and `score_mod` are computed from the scaled elements. On GPUs, one
      scale for all rows and columns of a sequence multiplies the scores or the output, in f32. Other
      scales multiply elements in f32, and the products are rounded to the type of `q`; the caller is
      responsible for products within its range. If one scale for all rows is infinite, or if a
      scaled element exceeds f32, the result is that of this product: 0, an infinity or NaN.
    - F3: `q` may have elements of f8E4M3FN or f8E5M2 beside `k` and `v` of 8 bits. `o` is then f16,
      bf16 or f32. `k_scale` may include the scale of the queries, because both multiply the scores.
      On CPUs, elements are converted. On sm_90a, `q`, `k` and `v` are f8E4M3FN and are multiplied as
      such: `k_scale` and `v_scale` then have one scale for all rows and columns of a sequence.
      Unnormalized probabilities are rounded to f8E4M3FN, in which the greatest one of a row so far
      is 2^8. The products of a key tile are summed by the tensor cores, and added to sums in f32.
    - M3, M4: only key tiles that contain a visible pair are visited, and full tiles, whose pairs
      are all visible, are computed without code for the mask. A remark reports a mask for which
      other tiles may be visited too: a mask with a set whose keys are further apart than a tile, as
      in `k mod 256 == 0`, or whose coefficients of `p` and `k` are not 1 or -1. A tile that only
      the union of several sets shows completely counts as partial.
    - M5: one compiled kernel serves all values of the dynamic sizes among B, Hq, Nq and Nk.
    - M6: if the mask hides every key of some rows, for all lengths or for the static lengths, a
      warning names the rows.
    - Y1: the sets of the mask may have symbols after `nq` and `nk`. The operands of `per_sequence`,
      then those of `per_query` and then those of `per_key` give their values, in order; a set with
      fewer symbols uses the first ones. An element of `per_sequence` is the value of its symbol for
      all pairs of batch or sequence `b`. M3 and M4 apply: each program computes the bounds of its
      tiles from the values of its own sequence.
    - Y2: an element of `per_query` or `per_key` is the value of its symbol for all pairs of one
      query or key. In packed sequences (S1), these operands are packed like the queries or keys:
      `[1, Hq, T]`, with dimensions of size 1 broadcast. With `page_table`, `per_key` counts the
      keys of a sequence: `[B, Hkv, P S]`. A tile is tested with the least and the greatest value of
      a symbol in its rows, so that tiles without a visible pair may be visited where a set depends
      on several such symbols, on one with both signs, in an equation, in `mod` or in `floordiv`, or
      on one and on the index beside it (`p` for queries, `k` for keys). A remark reports that, and
      every set that depends on symbols per key or, for `dk` and `dv`, per query. Where keys are
      split, values per key skip no tile.
    - M7: `mask`, `attn_mask`, `kv_len` and `bias` can be combined; all of them apply. Packed
      sequences, `q_len`, `page_table` and `leftpad_k` exclude `attn_mask` and `bias`, and
      `cu_seqlens_k` excludes `page_table` and `leftpad_k`.

    The clauses may be written in any order, each at most once, and are printed in this order:
    `mask`, `scale`, `softcap`, `align`, `layout`, `invariant`, `schedule`, `ins`, `bias`,
    `attn_mask`, `sink_logits`, `kv_len`, `q_len`, `cu_seqlens_q`, `cu_seqlens_k`, `min_seqlen_q`,
    `max_seqlen_q`, `page_table`, `leftpad_k`, `k_scale`, `v_scale`, `offset`, `per_sequence`,
    `per_query`, `per_key`, `score_mod`, `outs`. Only `ins` and `outs` are required.

    On tensors the op implements upstream's `ShardingInterface`. Batches, heads and queries can be
    sharded freely. Query heads are sharded together with their key/value heads (A4); a single
    key/value head is replicated to every process. Each shard has its own positions (A3). Keys can
    be sharded if the mask depends only on `p - k`: each process computes an output and a
    log-sum-exp for its keys, an all-gather collects these, and `flashattn.combine` merges them.

    Example:

    ```mlir
    %o, %lse = flashattn.attention mask(#flashattn.causal)
        ins(%q, %k, %v : tensor<2x32x?x128xf16>, tensor<2x8x?x128xf16>, tensor<2x8x?x128xf16>)
        outs(%o_init, %lse_init : tensor<2x32x?x128xf16>, tensor<2x32x?xf32>)
        -> tensor<2x32x?x128xf16>, tensor<2x32x?xf32>
    ```

    A mask that shows the first `%prefix[b]` keys of batch `b`, and to each query the keys before it
    from the start of its document on:

    ```mlir
    #prefix = affine_set<(p, k)[nq, nk, prefix, start] : (prefix - 1 - k >= 0)>
    #document = affine_set<(p, k)[nq, nk, prefix, start] : (p - k >= 0, k - start >= 0)>
    flashattn.attention mask(any_of<[#prefix, #document]>)
        ins(%q, %k, %v : memref<2x32x?x128xf16>, memref<2x8x?x128xf16>, memref<2x8x?x128xf16>)
        per_sequence(%prefix : memref<2xi32>) per_query(%start : memref<2x1x?xi32>)
        outs(%o : memref<2x32x?x128xf16>)
    ```

    A score modification that is linear in the distance from query to key (ALiBi), with a slope for
    each query head, and with the number of valid keys of each batch:

    ```mlir
    flashattn.attention mask(#flashattn.causal)
        ins(%q, %k, %v : memref<2x32x?x128xf16>, memref<2x8x?x128xf16>, memref<2x8x?x128xf16>)
        kv_len(%n : memref<2xi32>)
        score_mod {
        ^bb0(%s: f32, %b: index, %h: index, %p: index, %key: index):
          %slope = memref.load %slopes[%h] : memref<32xf32>
          %d = arith.subi %key, %p : index
          %i = arith.index_cast %d : index to i32
          %x = arith.sitofp %i : i32 to f32
          %y = math.fma %x, %slope, %s : f32
          flashattn.yield %y : f32
        }
        outs(%o : memref<2x32x?x128xf16>)
    ```
  }];

  let arguments = (ins
    FlashAttn_Shaped:$q, FlashAttn_Shaped:$k, FlashAttn_Shaped:$v,
    Optional<FlashAttn_Shaped>:$bias, Optional<FlashAttn_Shaped>:$attnMask,
    Optional<FlashAttn_Shaped>:$sinkLogits, Optional<FlashAttn_Shaped>:$kvLen,
    Optional<FlashAttn_Shaped>:$qLen, Optional<FlashAttn_Shaped>:$cuSeqlensQ,
    Optional<FlashAttn_Shaped>:$cuSeqlensK, Optional<FlashAttn_Shaped>:$pageTable,
    Optional<FlashAttn_Shaped>:$leftpadK, Optional<FlashAttn_Shaped>:$kScale,
    Optional<FlashAttn_Shaped>:$vScale, Optional<Index>:$offset,
    Optional<FlashAttn_Shaped>:$offsets, Optional<F32>:$scaleValue,
    Variadic<FlashAttn_Shaped>:$perSequence, Variadic<FlashAttn_Shaped>:$perQuery,
    Variadic<FlashAttn_Shaped>:$perKey,
    FlashAttn_Shaped:$oInit, Optional<FlashAttn_Shaped>:$lseInit,
    OptionalAttr<FlashAttn_MaskAttrInterface>:$mask, OptionalAttr<F32Attr>:$scale,
    OptionalAttr<F32Attr>:$softcap,
    DefaultValuedAttr<FlashAttn_AlignAttr, "::mlir::flashattn::Align::BottomRight">:$align,
    DefaultValuedAttr<FlashAttn_LayoutAttr, "::mlir::flashattn::Layout::BHSD">:$layout,
    OptionalAttr<FlashAttn_ScheduleAttr>:$schedule,
    OptionalAttr<ConfinedAttr<I64Attr, [IntPositive]>>:$min_seqlen_q,
    OptionalAttr<ConfinedAttr<I64Attr, [IntPositive]>>:$max_seqlen_q, UnitAttr:$invariant);
  let results = (outs Variadic<AnyRankedTensor>:$results);
  // At most one region, and none if there is no score modification: upstream's patterns cannot
  // clone an op with an empty region.
  let regions = (region VariadicRegion<SizedRegion<1>>:$scoreMods);

  let hasCustomAssemblyFormat = 1;
  let extraClassDeclaration = segments # destinationDeclaration # [{
    /// Returns the name, for diagnostics, of an optional input that differs between query heads, or
    /// an empty string if there is none. With split-KV (`inParts`), sink logits do not count,
    /// because `flashattn.combine` reads them.
    ::llvm::StringRef findInputOfHeads(bool inParts);
  }];

  let hasVerifier = 1;
  let hasRegionVerifier = 1;
  let hasCanonicalizer = 1;
}

def FlashAttn_AttentionBackwardOp : FlashAttn_DestinationOp<"attention_backward", [
    FlashAttn_AttentionOpInterface,
    DeclareOpInterfaceMethods<TilingInterface,
      ["getLoopIteratorTypes", "getIterationDomain", "getTiledImplementation",
       "getResultTilePosition"]>]> {
  let summary = "backward pass of scaled dot-product attention";
  let description = [{
    Computes the gradients of a loss with respect to `q`, `k` and `v`, and optionally `bias` and
    `sink_logits`, from the gradients `d_o` and `d_lse` with respect to the outputs `o` and `lse` of
    `flashattn.attention`, in destination-passing style on tensors or memrefs.

    | name | type |
    | --- | --- |
    | `q` | `[B, Hq, Nq, D]`, f16, bf16 or f32 |
    | `k` | `[B, Hkv, Nk, D]`, the type of `q` |
    | `v` | `[B, Hkv, Nk, Dv]`, the type of `q` |
    | `o` | `[B, Hq, Nq, Dv]`, the type of `q`, or f32 |
    | `d_o` | `[B, Hq, Nq, Dv]`, the type of `q` |
    | `lse` | `[B, Hq, Nq]`, f32, natural logarithm |
    | `d_lse` (optional) | `[B, Hq, Nq]`, f32 |
    | `bias`, `attn_mask`, `sink_logits`, `kv_len`, `q_len`, `cu_seqlens_q`, `cu_seqlens_k`, `offset`, `scale` (optional) | as in the forward op |
    | `dq`, `dk`, `dv` | like `q`, `k` and `v` |
    | `d_bias` (optional) | like `bias` |
    | `d_sink_logits` (optional) | `[Hq]`, f32 |

    `d_bias` has the shape of `bias`, with size 1 in every dimension in which `bias` is broadcast.
    On memrefs, the gradients must not share memory.

    All attributes and regions that determine the scores must be the same as in the forward pass:
    mask, `scale`, `softcap`, `align`, `layout`, `score_mod`. `score_mod` is differentiated
    automatically with respect to the score; an op without a derivative on the path from the score
    to the result is an error. No gradients are computed for other values that `score_mod` reads,
    such as the elements of tensors (A10).

    Rules, in addition to those of `flashattn.attention`:

    - B1: `delta[i] = sum_d d_o[i,d] o[i,d] - d_lse[i]`, `P = e^(s-lse)`, `dv = P^T d_o`,
      `dP = d_o v^T`, `dS = P (dP - delta)` and, after dS is multiplied by the derivatives of B6,
      `dq = scale dS k`, `dk = scale dS^T q`.
    - B2: `dk` and `dv` of a key/value head are sums over the query heads that read the head.
    - B3: `d_sink_logits[h] = -sum_i e^(sink_logits[h] - lse[i]) delta[i]`.
    - B4: with `deterministic`, results are bitwise equal from run to run. Without it, the order of
      additions may differ between runs.
    - B5: `d_bias` is the gradient with respect to the final scores (A2), before the scale, summed
      over every dimension in which `bias` is broadcast.
    - B6: the chain rule includes the score modification and the softcap, whose derivative is
      `1 - tanh^2`.
    - B7: a hidden pair contributes to no gradient. A row that sees no key has zero gradients, and
      its `d_lse` is ignored. Keys from `kv_len` on have zero gradients. Keys outside the range of
      A7 have no effect on any gradient; likewise, queries outside the range, derived in the same
      way, from the first to the last query that sees a key have no effect on `dk` and `dv`. For
      such queries, B3 uses the passed `o` and `lse`, because these may include more keys; if their
      values are infinite or NaN, those of A6 are used instead. Within these ranges of keys and
      queries, 0 times an infinity or NaN may produce NaN: in `dq`, from `k` at keys that a row does
      not see; in `dk` and `dv`, from any operand at queries that do not see a key.
    - B8: gradients are written in the types of the operands and accumulated in f32.
    - S3: rows that belong to no sequence have zero gradients.

    The clauses are those of the forward op and `deterministic`, `d_lse`, `d_bias` and
    `d_sink_logits`, in any order.

    On tensors the op implements upstream's `ShardingInterface`, like the forward op. A gradient
    that is a sum over a sharded dimension is reduced over the processes in f32.

    Example:

    ```mlir
    %dq, %dk, %dv = flashattn.attention_backward mask(#flashattn.causal)
        ins(%q, %k, %v, %o, %lse, %d_o : tensor<2x32x?x128xf16>, tensor<2x8x?x128xf16>,
            tensor<2x8x?x128xf16>, tensor<2x32x?x128xf16>, tensor<2x32x?xf32>,
            tensor<2x32x?x128xf16>)
        outs(%dq_init, %dk_init, %dv_init : tensor<2x32x?x128xf16>, tensor<2x8x?x128xf16>,
             tensor<2x8x?x128xf16>)
        -> tensor<2x32x?x128xf16>, tensor<2x8x?x128xf16>, tensor<2x8x?x128xf16>
    ```
  }];

  let arguments = (ins
    FlashAttn_Shaped:$q, FlashAttn_Shaped:$k, FlashAttn_Shaped:$v, FlashAttn_Shaped:$o,
    FlashAttn_Shaped:$lse, FlashAttn_Shaped:$dO, Optional<FlashAttn_Shaped>:$dLse,
    Optional<FlashAttn_Shaped>:$bias, Optional<FlashAttn_Shaped>:$attnMask,
    Optional<FlashAttn_Shaped>:$sinkLogits, Optional<FlashAttn_Shaped>:$kvLen,
    Optional<FlashAttn_Shaped>:$qLen, Optional<FlashAttn_Shaped>:$cuSeqlensQ,
    Optional<FlashAttn_Shaped>:$cuSeqlensK, Optional<Index>:$offset,
    Optional<FlashAttn_Shaped>:$offsets, Optional<F32>:$scaleValue,
    Variadic<FlashAttn_Shaped>:$perSequence, Variadic<FlashAttn_Shaped>:$perQuery,
    Variadic<FlashAttn_Shaped>:$perKey,
    FlashAttn_Shaped:$dqInit, FlashAttn_Shaped:$dkInit, FlashAttn_Shaped:$dvInit,
    Optional<FlashAttn_Shaped>:$dBiasInit, Optional<FlashAttn_Shaped>:$dSinkLogitsInit,
    OptionalAttr<FlashAttn_MaskAttrInterface>:$mask, OptionalAttr<F32Attr>:$scale,
    OptionalAttr<F32Attr>:$softcap,
    DefaultValuedAttr<FlashAttn_AlignAttr, "::mlir::flashattn::Align::BottomRight">:$align,
    DefaultValuedAttr<FlashAttn_LayoutAttr, "::mlir::flashattn::Layout::BHSD">:$layout,
    UnitAttr:$deterministic, OptionalAttr<FlashAttn_ScheduleAttr>:$schedule);
  let results = (outs Variadic<AnyRankedTensor>:$results);
  // At most one region, and none if there is no score modification: upstream's patterns cannot
  // clone an op with an empty region.
  let regions = (region VariadicRegion<SizedRegion<1>>:$scoreMods);

  let hasCustomAssemblyFormat = 1;
  let extraClassDeclaration = segments # [{
    ::mlir::MutableOperandRange getDpsInitsMutable() {
      return ::mlir::MutableOperandRange(getOperation(), getDqInitMutable().getOperandNumber(),
                                         3 + (getDBiasInit() ? 1 : 0) +
                                             (getDSinkLogitsInit() ? 1 : 0));
    }
    /// Gradients of pools are not supported (P1, P3).
    ::mlir::TypedValue<::mlir::ShapedType> getPageTable() { return {}; }
    ::mlir::TypedValue<::mlir::ShapedType> getLeftpadK() { return {}; }
    /// Operands of 8 bits are not supported (F1).
    ::mlir::TypedValue<::mlir::ShapedType> getKScale() { return {}; }
    ::mlir::TypedValue<::mlir::ShapedType> getVScale() { return {}; }
  }];

  let hasVerifier = 1;
  let hasRegionVerifier = 1;
  let hasCanonicalizer = 1;
}

def FlashAttn_CombineOp : FlashAttn_DestinationOp<"combine"> {
  let summary = "merge the partial attention outputs of split-KV";
  let description = [{
    Merges the results of `flashattn.attention` for S disjoint splits of the keys, each with its own
    output and log-sum-exp, in destination-passing style on tensors or memrefs.

    | name | type |
    | --- | --- |
    | `o_parts` | `[S, B, Hq, Nq, Dv]`, f32 |
    | `lse_parts` | `[S, B, Hq, Nq]`, f32, natural logarithm |
    | `lse_rests` (optional) | `[S, B, Hq, Nq]`, f32: rounding errors of `lse_parts` |
    | `sink_logits` (optional) | `[Hq]`, f32: logits that enter only the softmax denominators |
    | `cu_seqlens_q` (optional) | `[B+1]`, i32: first row of each sequence in `o` and `lse` |
    | `o` | `[B, Hq, Nq, Dv]`, f16, bf16 or f32; with `layout(bshd)` `[B, Nq, Hq, Dv]` |
    | `lse` (optional) | `[B, Hq, Nq]`, f32 |

    `lse_parts` is rounded to f32; the exact log-sum-exp of a split is `lse_parts + lse_rests`. The
    results of the splits do not include the sink logits.

    - A5: let `lse_s` be the exact sum of a row's `lse_parts` and `lse_rests`, and `m` the maximum
      of all `lse_s` and of the sink logit. Then `l = sum_s e^(lse_s-m)`, plus `e^(sink-m)`, and
      `o = sum_s e^(lse_s-m) o_s / l`, `lse = m + ln l`.
    - A6: a split in which the row sees no key has `lse_s = -inf`. It contributes nothing, whatever
      `o_s` contains. If this holds for all splits, `o = 0` and `lse` is -inf or the sink logit.
    - S1, S7: with `cu_seqlens_q`, `o` is `[1, Hq, T, Dv]` and `lse` is `[1, Hq, T]`, and row `i` of
      sequence `b` is row `cu_seqlens_q[b] + i`. Sequences of more than Nq rows, of fewer than `n`
      with `min_seqlen_q(n)`, and rows of no sequence keep their values.

    The clauses may be written in any order: `layout`, `ins`, `lse_rests`, `sink_logits`,
    `cu_seqlens_q`, `min_seqlen_q`, `outs`.

    Example:

    ```mlir
    flashattn.combine ins(%o_parts, %lse_parts : memref<?x2x8x1x128xf32>, memref<?x2x8x1xf32>)
        outs(%o : memref<2x8x1x128xbf16>)
    ```
  }];

  let arguments = (ins FlashAttn_Shaped:$oParts, FlashAttn_Shaped:$lseParts,
                       Optional<FlashAttn_Shaped>:$lseRests,
                       Optional<FlashAttn_Shaped>:$sinkLogits,
                       Optional<FlashAttn_Shaped>:$cuSeqlensQ,
                       FlashAttn_Shaped:$oInit, Optional<FlashAttn_Shaped>:$lseInit,
                       DefaultValuedAttr<FlashAttn_LayoutAttr,
                                         "::mlir::flashattn::Layout::BHSD">:$layout,
                       OptionalAttr<ConfinedAttr<I64Attr, [IntPositive]>>:$min_seqlen_q);
  let results = (outs Variadic<AnyRankedTensor>:$results);

  let hasCustomAssemblyFormat = 1;
  let extraClassDeclaration = segments # destinationDeclaration # [{
    /// Returns the dimension of heads and the dimension of positions in `o`.
    unsigned getHeadDim() { return getLayout() == Layout::BHSD ? 1 : 2; }
    unsigned getSeqDim() { return getLayout() == Layout::BHSD ? 2 : 1; }
  }];

  let hasVerifier = 1;
}

def FlashAttn_ProjectOp : Op<FlashAttn_Dialect, "project", [
    DestinationStyleOpInterface,
    DeclareOpInterfaceMethods<FlashAttn_KernelOpInterface>,
    DeclareOpInterfaceMethods<MemoryEffectsOpInterface>,
    DeclareOpInterfaceMethods<ReifyRankedShapedTypeOpInterface, ["reifyResultShapes"]>]> {
  let summary = "output projection: the concatenated heads of attention times a matrix";
  let description = [{
    Computes `p[b,n,e] = sum_h sum_d o[b,h,n,d] w[h,d,e]`, in destination-passing style on tensors
    or memrefs.

    | name | type |
    | --- | --- |
    | `o` | `[B, Hq, Nq, Dv]`, f16, bf16 or f32; with `layout(bshd)` `[B, Nq, Hq, Dv]` |
    | `w` | `[Hq, Dv, E]`, the type of `o` |
    | `p` | `[B, Nq, E]`, the type of `o` or f32 |

    Products of f16 and bf16 accumulate in f32 (A1), f32 has f32 precision (A9), and the sum is
    rounded once, to the type of `p`. Every element of `p` is written and none is read. A `linalg`
    contraction would instead add to an f32 destination that is first filled with 0 and later
    truncated; `flashattn-raise-linalg` replaces such a sequence by `flashattn.project`. All sizes
    may be dynamic except Dv, which is a multiple of 8.

    The clauses may be written in any order: `layout`, `schedule`, `ins`, `outs`.

    Example:

    ```mlir
    flashattn.project ins(%o, %w : memref<2x32x?x128xf16>, memref<32x128x4096xf16>)
        outs(%p : memref<2x?x4096xf16>)
    ```
  }];

  let arguments = (ins FlashAttn_Shaped:$o, FlashAttn_Shaped:$w, FlashAttn_Shaped:$pInit,
                       DefaultValuedAttr<FlashAttn_LayoutAttr,
                                         "::mlir::flashattn::Layout::BHSD">:$layout,
                       OptionalAttr<FlashAttn_ScheduleAttr>:$schedule);
  let results = (outs Variadic<AnyRankedTensor>:$results);

  let hasCustomAssemblyFormat = 1;
  let extraClassDeclaration = [{
    ::mlir::MutableOperandRange getDpsInitsMutable() {
      return ::mlir::MutableOperandRange(getOperation(), getPInitMutable().getOperandNumber(), 1);
    }
    /// Returns the dimension of heads and the dimension of positions in `o`.
    unsigned getHeadDim() { return getLayout() == Layout::BHSD ? 1 : 2; }
    unsigned getSeqDim() { return getLayout() == Layout::BHSD ? 2 : 1; }
    /// Returns Dv, the number of elements in a row of `o`.
    int64_t getDv() { return getO().getType().getDimSize(3); }
    ::mlir::FloatType getElementType() {
      return ::llvm::cast<::mlir::FloatType>(getO().getType().getElementType());
    }
    /// Whether there are so few rows per batch (16) that a tile contains rows of several batches.
    bool hasFewRows() {
      int64_t rows = getO().getType().getDimSize(getSeqDim());
      return !::mlir::ShapedType::isDynamic(rows) && rows <= 16;
    }
    /// Returns the number of elements of a row of `o` that one step of a program multiplies.
    int64_t getStepDepth(::mlir::flashattn::ScheduleAttr schedule);
  }];

  let hasVerifier = 1;
}

def FlashAttn_CountSplitsOp : Op<FlashAttn_Dialect, "count_splits", [Pure]> {
  let summary = "number of splits of the keys (split-KV)";
  let description = [{
    Returns the number of splits, from 1 to the schedule's `splits`, for `programs` tile programs
    over `key_tiles` key tiles each. The target chooses the number so that the splits of all
    programs fill the machine.

    Example: test/Dialect/FlashAttn/tile-splits.mlir
  }];
  let arguments = (ins Index:$programs, Index:$keyTiles, FlashAttn_ScheduleAttr:$schedule);
  let results = (outs Index:$splits);
  let assemblyFormat = "$programs `,` $keyTiles `schedule` `(` $schedule `)` attr-dict";
}

def FlashAttn_PrefersSmallBlocksOp : Op<FlashAttn_Dialect, "prefers_small_blocks", [Pure]> {
  let summary = "whether small thread blocks are as fast as full-size ones";
  let description = [{
    Returns whether `programs` tile programs over `key_tiles` full-size key tiles each, without
    split-KV, are expected to finish as soon with the schedule's `small_blocks_per_sm` small blocks
    per multiprocessor as with its `blocks_per_sm` full-size blocks.

    Example: test/Dialect/FlashAttn/tile-splits.mlir
  }];
  let arguments = (ins Index:$programs, Index:$keyTiles, FlashAttn_ScheduleAttr:$schedule);
  let results = (outs I1:$result);
  let assemblyFormat = "$programs `,` $keyTiles `schedule` `(` $schedule `)` attr-dict";
}

def FlashAttn_ListTilesOp : Op<FlashAttn_Dialect, "list_tiles", [RecursiveMemoryEffects]> {
  let summary = "list the tiles that contain a visible pair";
  let description = [{
    For each batch and each tile of heads and queries, the op lists the key tiles that are in the
    intervals yielded by the region `intervals` and contain a visible pair: one that `attn_mask`,
    broadcastable to `[B, H, Nq, Nk]`, shows, or one according to the region `test`. There is either
    an `attn_mask`, which is read once, or a `test`. `tile` holds the numbers of heads, queries and
    keys of a tile. With `of_queries`, the op lists query tiles for each key tile instead, and
    queries and keys are exchanged in the description below.

    | name | type |
    | --- | --- |
    | `attn_mask` (optional) | `[B or 1, H or 1, Nq or 1, Nk or 1]`, i1 |
    | `bounds` | `[b, h, t, 2]`, i32: begin and end of each list, as indices in its row of `tiles` |
    | `tiles` | `[b, h, t, 2 K]`, i32: indices of key tiles; K is the total number of key tiles |

    List (b, h, t) belongs to batch b, to the heads from `h * tile[0]` on and to the queries from
    `t * tile[1]` on. A list grows from the middle of its row outwards: full tiles, whose pairs are
    all visible, are stored below index K, and partial tiles from index K upwards. Nothing is
    written outside the bounds.

    `intervals` takes (b, h, t) and yields the mask's intervals for this list as tile indices, for
    each interval: first tile, first full tile, end of the full tiles, end. `test` takes (b, h, t)
    and a tile index, and yields intervals of the same form. A tile is listed if one of them
    contains it, and full if it is full in one of them.

    Example: test/Dialect/FlashAttn/list-tiles.mlir
  }];
  let arguments = (ins
    Arg<Optional<MemRefRankOf<[I1], [4]>>, "", [MemRead]>:$attnMask,
    Arg<MemRefRankOf<[I32], [4]>, "", [MemWrite]>:$bounds,
    Arg<MemRefRankOf<[I32], [4]>, "", [MemWrite]>:$tiles,
    DenseI64ArrayAttr:$tile, UnitAttr:$ofQueries);
  let regions = (region SizedRegion<1>:$intervals, MaxSizedRegion<1>:$test);
  let assemblyFormat = [{
    (`of_queries` $ofQueries^)? `tile` $tile (`ins` `(` $attnMask^ `:` type($attnMask) `)`)?
    `outs` `(` $bounds `,` $tiles `:` type($bounds) `,` type($tiles) `)`
    `within` $intervals (`test` $test^)? attr-dict
  }];
  let hasVerifier = 1;
}

def FlashAttn_TileRangesOp : Op<FlashAttn_Dialect, "tile_ranges", [
    RecursiveMemoryEffects, SingleBlock]> {
  let summary = "least and greatest value in each tile of rows";
  let description = [{
    Writes the least and the greatest of the values of some rows to each element (b, h, t) of
    `ranges`. The region takes (b, h, t) and yields the batch, the first row and the end of the
    rows. Without rows, the least value is the greatest i32, and vice versa. An index along a
    dimension of `values` of static size 1 is 0 instead of `b` or `h`. With `copies`, the region
    also yields an index: the values of these rows are copied there, bit by bit, so that the values
    of a tile are aligned and contiguous. Other elements of `copies` keep their values.

    | name | type |
    | --- | --- |
    | `values` | `[B or 1, H or 1, N]`, i32 |
    | `ranges` | `[b, h, t, 2]`, i32 |
    | `copies` (optional) | `[b, h, n]`, f32: the bits of i32 |

    Example:

    ```mlir
    flashattn.tile_ranges ins(%starts : memref<2x1x?xi32>) outs(%ranges : memref<2x1x?x2xi32>) of {
    ^bb0(%b: index, %h: index, %t: index):
      %first = arith.muli %t, %c64 : index
      %last = arith.addi %first, %c64 : index
      %end = arith.minsi %last, %n : index
      flashattn.yield_intervals %b, %first, %end
    }
    ```
  }];
  let arguments = (ins Arg<MemRefRankOf<[I32], [3]>, "", [MemRead]>:$values,
                       Arg<MemRefRankOf<[I32], [4]>, "", [MemWrite]>:$ranges,
                       Arg<Optional<MemRefRankOf<[F32], [3]>>, "", [MemWrite]>:$copies);
  let regions = (region SizedRegion<1>:$rows);
  let assemblyFormat = [{
    `ins` `(` $values `:` type($values) `)`
    `outs` `(` $ranges (`,` $copies^)? `:` type($ranges) (`,` type($copies)^)? `)` `of` $rows
    attr-dict
  }];
  let hasVerifier = 1;
}

def FlashAttn_YieldIntervalsOp : Op<FlashAttn_Dialect, "yield_intervals", [
    Pure, ReturnLike, Terminator, ParentOneOf<["ListTilesOp", "TileRangesOp"]>]> {
  let summary = "yield intervals of tiles or of rows";
  let description = [{
    Terminates a region of `flashattn.list_tiles` or `flashattn.tile_ranges`. For lists, it yields,
    for each interval in turn, the first tile, the first full tile, the end of the full tiles, and
    the end, as indices of key tiles. For ranges, it yields a batch, the first row and the end of
    the rows and, with copies, the index of the copy of the first row.
  }];
  let arguments = (ins Variadic<Index>:$bounds);
  let assemblyFormat = "$bounds attr-dict";
}

def FlashAttn_YieldOp : Op<FlashAttn_Dialect, "yield", [
    Pure, ReturnLike, Terminator, ParentOneOf<["AttentionOp", "AttentionBackwardOp"]>]> {
  let summary = "yield the result of a score modification";
  let description = [{
    Terminates the `score_mod` region of an attention op. The operand replaces the score, the
    region's first argument.

    ```mlir
    score_mod {
    ^bb0(%s: f32, %b: index, %h: index, %p: index, %k: index):
      %t = math.tanh %s : f32
      flashattn.yield %t : f32
    }
    ```
  }];
  let arguments = (ins F32:$score);
  let assemblyFormat = "$score attr-dict `:` type($score)";
}

def FlashAttn_AnyRowOp : Op<FlashAttn_Dialect, "any_row", [Pure]> {
  let summary = "whether a condition holds in any row of a tile program";
  let description = [{
    Returns true if any element of `condition` is true. A target may evaluate groups of rows
    separately (on a GPU, the rows of a warp); each group then continues with its own result. Code
    that depends on the result must therefore be correct for either result in rows in which
    `condition` is false.
  }];
  let arguments = (ins VectorOfRankAndType<[1, 2], [I1]>:$condition);
  let results = (outs I1:$result);
  let assemblyFormat = "$condition attr-dict `:` type($condition)";
}

#endif // FLASHATTN_OPS_TD
