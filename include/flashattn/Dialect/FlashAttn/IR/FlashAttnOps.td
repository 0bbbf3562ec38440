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

/// An op that reads memrefs or tensors and writes others, its destinations.
class FlashAttn_DestinationOp<string mnemonic, list<Trait> traits = []>
    : Op<FlashAttn_Dialect, mnemonic, [
        DestinationStyleOpInterface,
        DeclareOpInterfaceMethods<FlashAttn_KernelOpInterface>,
        DeclareOpInterfaceMethods<MemoryEffectsOpInterface>,
        DeclareOpInterfaceMethods<ReifyRankedShapedTypeOpInterface, ["reifyResultShapes"]>,
        OperandSegments] # traits> {
  code segments = OperandSegmentsOf<arguments>.declaration;
  /// To stand in the extraClassDeclaration of ops that write `o` and `lse`.
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
    `o = softmax(mask(score_mod(softcap(scale * q k^T)) + bias)) v`, and optionally the
    log-sum-exp of each row's scores, in destination-passing style on tensors or memrefs.

    | name | type |
    | --- | --- |
    | `q` | `[B, Hq, Nq, D]`, f16, bf16 or f32 |
    | `k` | `[B, Hkv, Nk, D]`, the type of `q` |
    | `v` | `[B, Hkv, Nk, Dv]`, the type of `q` |
    | `bias` (optional) | broadcastable to `[B, Hq, Nq, Nk]`, f16, bf16 or f32: added to the scores |
    | `keep` (optional) | broadcastable to `[B, Hq, Nq, Nk]`, i1: false hides a pair |
    | `sink_logits` (optional) | `[Hq]`, f32: a logit that joins each row's denominator only |
    | `kv_len` (optional) | `[B]`, i32: keys at or past it do not exist |
    | `offset` (optional) | index: position of query 0 |
    | `scale` (optional) | f32: the factor of the scores, in place of the attribute |
    | `o` | `[B, Hq, Nq, Dv]`, the type of `q` |
    | `lse` (optional) | `[B, Hq, Nq]`, f32, natural logarithm |

    With `layout(bshd)` the second and third dimensions of `q`, `k`, `v` and `o`
    change places; the others stay as they are. B, H, Nq and Nk may be dynamic, D and Dv
    are static. A dimension of `bias` and `keep` is broadcast where its static size is 1; any
    other has the size that it is broadcastable to.

    The region `score_mod`, where there is one, makes a score of `(score, b, h, p, k)`, f32 and
    index values: batch, query head, position (A3) and key. It holds `arith` and `math` ops on
    scalars and may read scalars from outside; `flashattn.yield` ends it. It is also asked for
    pairs that the mask hides, where a division of integers by 0 gives some number.

    Rules (their numbers stand at the code that carries them out):

    - A1: `s[i,j] = scale * sum_d q[i,d] k[j,d]`, `scale` defaulting to `1/sqrt(D)`;
      products of f16 and bf16 accumulate in f32. `scale` and `softcap` lie from 1e-18 to 1e18.
      `scale(%x)` gives the factor at run time, where who calls sees to its range: one compiled
      kernel serves every scale.
    - A2: in this order: scale, `softcap` (`s <- c tanh(s/c)`), `score_mod`, `bias`, mask and
      `keep`, softmax, `P V`.
    - A3: the position of query `i` is `p = i + offset`. Without the operand,
      `align(top_left)` means 0 and `align(bottom_right)`, the default, `Nk - Nq`, or
      `kv_len[b] - Nq`. Positions have 32 bits.
    - A4: query head `h` reads key/value head `h / (Hq / Hkv)`.
    - A5: `o = sum_j e^(s-m) v_j / l`, `l = sum_j e^(s-m)`, plus `e^(sink-m)` with
      `sink_logits`, and `lse = m + ln l`.
    - A6: a row that sees no key, or only scores of -inf, gives `o = 0` and `lse = -inf`, with
      `sink_logits` `lse = sink`.
    - A7: nothing past Nq, Nk or `kv_len` has an effect, whatever lies in memory there, and nothing
      but `o` and `lse` is written. A `kv_len` below 0 counts as 0, one above Nk as Nk. Nor has a
      key an effect that is before the first or behind the last which the mask shows to any query of
      the batch. These two follow from the mask's sets; of sets with `mod`, `floordiv` or multiples of
      `p` or `k` they may lie further out.
    - A8: `+inf` or NaN in a visible score gives NaN in that row and in no other. An infinity or NaN
      in `v`, at a key between those two of A7 that the mask or `keep` hides from a row, may give NaN
      in that row: its weight is 0, and 0 times it is NaN.
    - A9: f32 means f32: a relative error of 1e-5 against float64, no silent TF32.
    - M3, M4: the key tiles that hold a visible pair are visited and no others; of those, tiles
      whose pairs are all visible have no code for the mask. A remark says so where some other tile
      may be visited: where the keys that a set shows lie further apart than a tile, as under
      `k mod 256 == 0`, or for coefficients of `p` and `k` other than 1 and -1. Tiles that several
      sets show together count as partial.
    - M5: one compiled kernel serves every B, Hq, Nq and Nk that is dynamic.
    - M6: a mask that hides whole rows, whatever the lengths or for static ones, gets a warning
      that names them.
    - M7: `mask`, `keep`, `kv_len` and `bias` compose; none is dropped for another.

    Its clauses stand in any order, each once, and print in this one: `mask`, `scale`, `softcap`,
    `align`, `layout`, `schedule`, `ins`, `bias`, `keep`, `sink_logits`, `kv_len`, `offset`,
    `score_mod`, `outs`. All but `ins` and `outs` may be left out.

    On tensors the op has upstream's `ShardingInterface`. Batches, heads and queries are cut freely:
    query heads follow their key/value heads (A4), but for a single one, which every process then
    has, and each shard has its own positions (A3). Keys are cut where the mask goes by `p - k` alone:
    each process has an output and a log-sum-exp of its own keys, which an all-gather brings together
    and `flashattn.combine` merges.

    Example:

    ```mlir
    %o, %lse = flashattn.attention mask(#flashattn.causal)
        ins(%q, %k, %v : tensor<2x32x?x128xf16>, tensor<2x8x?x128xf16>, tensor<2x8x?x128xf16>)
        outs(%o_init, %lse_init : tensor<2x32x?x128xf16>, tensor<2x32x?xf32>)
        -> tensor<2x32x?x128xf16>, tensor<2x32x?xf32>
    ```

    A bias along the distance from query to key, and keys of which each batch has its own
    number:

    ```mlir
    flashattn.attention mask(#flashattn.causal)
        ins(%q, %k, %v : memref<2x32x?x128xf16>, memref<2x8x?x128xf16>, memref<2x8x?x128xf16>)
        kv_len(%n : memref<2xi32>)
        score_mod {
        ^bb0(%s: f32, %b: index, %h: index, %p: index, %key: index):
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
    Optional<FlashAttn_Shaped>:$bias, Optional<FlashAttn_Shaped>:$keep,
    Optional<FlashAttn_Shaped>:$sinkLogits, Optional<FlashAttn_Shaped>:$kvLen,
    Optional<Index>:$offset, Optional<F32>:$scaleValue,
    FlashAttn_Shaped:$oInit, Optional<FlashAttn_Shaped>:$lseInit,
    OptionalAttr<FlashAttn_MaskAttrInterface>:$mask, OptionalAttr<F32Attr>:$scale,
    OptionalAttr<F32Attr>:$softcap,
    DefaultValuedAttr<FlashAttn_AlignAttr, "::mlir::flashattn::Align::BottomRight">:$align,
    DefaultValuedAttr<FlashAttn_LayoutAttr, "::mlir::flashattn::Layout::BHSD">:$layout,
    OptionalAttr<FlashAttn_ScheduleAttr>:$schedule);
  let results = (outs Variadic<AnyRankedTensor>:$results);
  // None or one: upstream's patterns cannot clone an op with an empty region.
  let regions = (region VariadicRegion<SizedRegion<1>>:$scoreMods);

  let hasCustomAssemblyFormat = 1;
  let extraClassDeclaration = segments # destinationDeclaration # [{
    /// What is read of each query head beside `q`, as messages name it; empty where nothing is. With
    /// the keys in several parts the sinks do not count: who merges the parts reads them.
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
  let summary = "gradients of scaled dot-product attention";
  let description = [{
    What a loss changes by with `q`, `k` and `v`, and on request with `bias` and `sink_logits`, of
    which `flashattn.attention` made `o` and `lse`, where it changes by `d_o` with `o` and by
    `d_lse` with `lse`. In destination-passing style on tensors or memrefs.

    | name | type |
    | --- | --- |
    | `q` | `[B, Hq, Nq, D]`, f16, bf16 or f32 |
    | `k` | `[B, Hkv, Nk, D]`, the type of `q` |
    | `v` | `[B, Hkv, Nk, Dv]`, the type of `q` |
    | `o`, `d_o` | `[B, Hq, Nq, Dv]`, the type of `q` |
    | `lse` | `[B, Hq, Nq]`, f32, natural logarithm |
    | `d_lse` (optional) | `[B, Hq, Nq]`, f32 |
    | `bias`, `keep`, `sink_logits`, `kv_len`, `offset`, `scale` (optional) | as those of `flashattn.attention` |
    | `dq`, `dk`, `dv` | as `q`, `k` and `v` |
    | `d_bias` (optional) | as `bias` |
    | `d_sink_logits` (optional) | `[Hq]`, f32 |

    `d_bias` has the shape of `bias`, with a size of 1 where that is broadcast. On memrefs each
    gradient has memory of its own.

    Everything that shaped the forward pass stands here as it did there: mask, `scale`, `softcap`,
    `align`, `layout`, `score_mod`. The derivative of `score_mod` is derived from its region; an op
    without one between the score and the result is an error. What a `score_mod` reads beside the
    score has no gradient.

    Rules, beside those of `flashattn.attention`:

    - B1: `delta[i] = sum_d d_o[i,d] o[i,d] - d_lse[i]`, `P = e^(s-lse)`, `dv = P^T d_o`,
      `dP = d_o v^T`, `dS = P (dP - delta)` and, behind the derivatives of B6, `dq = scale dS k`,
      `dk = scale dS^T q`.
    - B2: `dk` and `dv` of a key/value head sum over the query heads that read it.
    - B3: `d_sink_logits[h] = -sum_i e^(sink_logits[h] - lse[i]) delta[i]`.
    - B4: `deterministic` gives the same bits from run to run. Without it the order of a sum may
      change.
    - B5: `d_bias` is the gradient of the final scores (A2), before the scale, summed over every
      dimension in which `bias` is broadcast.
    - B6: a score modification and the softcap are links of the chain, the softcap's `1 - tanh^2`.
    - B7: a hidden pair adds nothing to any gradient. A row that sees nothing has zero gradients and
      its `d_lse` counts nothing. Keys at or past `kv_len` have zero gradients. Keys that have no
      effect by A7 have none on any gradient, nor has a query before the first or behind the last
      that sees a key on `dk` and `dv`. For B3 its `o` and `lse` count as they are, as those of more
      keys than these; where they are no numbers, A6 says what they are. Between these 0 times
      an infinity or NaN may be NaN: in `dq`, of `k` at keys that a row does not see; in `dk` and
      `dv`, of any operand at queries that do not see a key.
    - B8: gradients are written in the operands' types; sums are f32.

    Its clauses are those of the forward op, in any order, and `deterministic`, `d_lse`, `d_bias` and
    `d_sink_logits`.

    On tensors the op has upstream's `ShardingInterface`, as the forward op does; a gradient that sums
    over what is cut is reduced over those processes, in f32.

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
    Optional<FlashAttn_Shaped>:$bias, Optional<FlashAttn_Shaped>:$keep,
    Optional<FlashAttn_Shaped>:$sinkLogits, Optional<FlashAttn_Shaped>:$kvLen,
    Optional<Index>:$offset, Optional<F32>:$scaleValue,
    FlashAttn_Shaped:$dqInit, FlashAttn_Shaped:$dkInit, FlashAttn_Shaped:$dvInit,
    Optional<FlashAttn_Shaped>:$dBiasInit, Optional<FlashAttn_Shaped>:$dSinkLogitsInit,
    OptionalAttr<FlashAttn_MaskAttrInterface>:$mask, OptionalAttr<F32Attr>:$scale,
    OptionalAttr<F32Attr>:$softcap,
    DefaultValuedAttr<FlashAttn_AlignAttr, "::mlir::flashattn::Align::BottomRight">:$align,
    DefaultValuedAttr<FlashAttn_LayoutAttr, "::mlir::flashattn::Layout::BHSD">:$layout,
    UnitAttr:$deterministic, OptionalAttr<FlashAttn_ScheduleAttr>:$schedule);
  let results = (outs Variadic<AnyRankedTensor>:$results);
  // None or one: upstream's patterns cannot clone an op with an empty region.
  let regions = (region VariadicRegion<SizedRegion<1>>:$scoreMods);

  let hasCustomAssemblyFormat = 1;
  let extraClassDeclaration = segments # [{
    ::mlir::MutableOperandRange getDpsInitsMutable() {
      return ::mlir::MutableOperandRange(getOperation(), getDqInitMutable().getOperandNumber(),
                                         3 + (getDBiasInit() ? 1 : 0) +
                                             (getDSinkLogitsInit() ? 1 : 0));
    }
  }];

  let hasVerifier = 1;
  let hasRegionVerifier = 1;
  let hasCanonicalizer = 1;
}

def FlashAttn_CombineOp : FlashAttn_DestinationOp<"combine"> {
  let summary = "one attention from those over parts of the keys";
  let description = [{
    Merges what `flashattn.attention` gives for S parts of one set of keys, each part with an
    output and a log-sum-exp of its own, in destination-passing style on tensors or memrefs.

    | name | type |
    | --- | --- |
    | `o_parts` | `[S, B, Hq, Nq, Dv]`, f32 |
    | `lse_parts` | `[S, B, Hq, Nq]`, f32, natural logarithm |
    | `lse_rests` (optional) | `[S, B, Hq, Nq]`, f32: the exact log-sum-exps less `lse_parts`, which f32 rounds |
    | `sink_logits` (optional) | `[Hq]`, f32: a logit that joins each row's denominator only; the parts are without it |
    | `o` | `[B, Hq, Nq, Dv]`, f16, bf16 or f32; with `layout(bshd)` `[B, Nq, Hq, Dv]` |
    | `lse` (optional) | `[B, Hq, Nq]`, f32 |

    - A5: with `lse_s` a row's `lse_parts`, plus `lse_rests` without any rounding, and `m` the
      largest of these and of the sink's logit, `l = sum_s e^(lse_s-m)`, plus `e^(sink-m)`, and
      `o = sum_s e^(lse_s-m) o_s / l`, `lse = m + ln l`.
    - A6: a part in which the row saw no key has `lse_s = -inf`. It adds nothing, whatever `o_s`
      holds. Where all of them are such, `o = 0` and `lse = -inf`, or the sink's logit.

    Its clauses stand in any order: `layout`, `ins`, `lse_rests`, `sink_logits`, `outs`.

    Example:

    ```mlir
    flashattn.combine ins(%o_parts, %lse_parts : memref<?x2x8x1x128xf32>, memref<?x2x8x1xf32>)
        outs(%o : memref<2x8x1x128xbf16>)
    ```
  }];

  let arguments = (ins FlashAttn_Shaped:$oParts, FlashAttn_Shaped:$lseParts,
                       Optional<FlashAttn_Shaped>:$lseRests,
                       Optional<FlashAttn_Shaped>:$sinkLogits,
                       FlashAttn_Shaped:$oInit, Optional<FlashAttn_Shaped>:$lseInit,
                       DefaultValuedAttr<FlashAttn_LayoutAttr,
                                         "::mlir::flashattn::Layout::BHSD">:$layout);
  let results = (outs Variadic<AnyRankedTensor>:$results);

  let hasCustomAssemblyFormat = 1;
  let extraClassDeclaration = segments # destinationDeclaration # [{
    /// Dimension of heads and of sequence in `o`.
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
  let summary = "output projection: the heads of attention, side by side, times a matrix";
  let description = [{
    `p[b,n,e] = sum_h sum_d o[b,h,n,d] w[h,d,e]`, in destination-passing style on tensors or memrefs.

    | name | type |
    | --- | --- |
    | `o` | `[B, Hq, Nq, Dv]`, f16, bf16 or f32; with `layout(bshd)` `[B, Nq, Hq, Dv]` |
    | `w` | `[Hq, Dv, E]`, the type of `o` |
    | `p` | `[B, Nq, E]`, the type of `o` or f32 |

    Products of f16 and bf16 accumulate in f32 (A1), f32 means f32 (A9), and the sum is rounded once,
    to the type of `p`. Every element of `p` is written and none is read: this is one op rather than a
    `linalg` contraction, which would add to an f32 destination filled with 0 before and truncated
    after. `flashattn-raise-linalg` makes it of these. All sizes but Dv, a multiple of 8, may be
    dynamic.

    Its clauses stand in any order: `layout`, `schedule`, `ins`, `outs`.

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
    /// Dimension of heads and of sequence in `o`.
    unsigned getHeadDim() { return getLayout() == Layout::BHSD ? 1 : 2; }
    unsigned getSeqDim() { return getLayout() == Layout::BHSD ? 2 : 1; }
    /// Dv, the length of a row of `o` in elements.
    int64_t getDv() { return getO().getType().getDimSize(3); }
    ::mlir::FloatType getElementType() {
      return ::llvm::cast<::mlir::FloatType>(getO().getType().getElementType());
    }
  }];

  let hasVerifier = 1;
}

def FlashAttn_CountSplitsOp : Op<FlashAttn_Dialect, "count_splits", [Pure]> {
  let summary = "parts to cut the keys into, as the machine has room for programs";
  let description = [{
    A number from 1 to the schedule's `splits` for `programs` tile programs over `key_tiles` tiles
    of keys each: a target chooses it so that the parts of all of them keep the machine busy.

    Example: test/Dialect/FlashAttn/tile-splits.mlir
  }];
  let arguments = (ins Index:$programs, Index:$keyTiles, FlashAttn_ScheduleAttr:$schedule);
  let results = (outs Index:$splits);
  let assemblyFormat = "$programs `,` $keyTiles `schedule` `(` $schedule `)` attr-dict";
}

def FlashAttn_PrefersNarrowOp : Op<FlashAttn_Dialect, "prefers_narrow", [Pure]> {
  let summary = "whether narrow blocks are as fast, as the machine has room for programs";
  let description = [{
    Whether `programs` tile programs over `key_tiles` whole tiles of keys each, none of which is cut
    into parts, are done as soon in the blocks that the schedule's `narrow_blocks` tells as in those
    of `blocks`.

    Example: test/Dialect/FlashAttn/tile-splits.mlir
  }];
  let arguments = (ins Index:$programs, Index:$keyTiles, FlashAttn_ScheduleAttr:$schedule);
  let results = (outs I1:$result);
  let assemblyFormat = "$programs `,` $keyTiles `schedule` `(` $schedule `)` attr-dict";
}

def FlashAttn_ListTilesOp : Op<FlashAttn_Dialect, "list_tiles", [
    RecursiveMemoryEffects, SingleBlock]> {
  let summary = "the tiles that hold a pair that `keep` shows";
  let description = [{
    Reads `keep`, broadcastable to `[B, H, Nq, Nk]`, once and lists for each batch and tile of heads
    and queries the tiles of keys that matter to it: of those in the intervals that the region
    gives, the ones with a pair that `keep` shows. `tile` is the heads, queries and keys of a tile.
    With `of_queries` it is the other way round, tiles of queries for each tile of keys: what is said
    of keys below then holds for queries, and of queries for keys.

    | name | type |
    | --- | --- |
    | `keep` | `[B or 1, H or 1, Nq or 1, Nk or 1]`, i1 |
    | `bounds` | `[b, h, t, 2]`, i32: first place of a list, and its end |
    | `tiles` | `[b, h, t, 2 K]`, i32: numbers of key tiles, K all of them |

    List (b, h, t) is of batch b, the heads from `h * tile[0]` and the queries from `t * tile[1]` on.
    It grows from the middle of its row outwards: from place K downwards stand the full tiles, all
    of whose pairs are visible, and from K upwards the others. Of what lies outside of the bounds
    nothing is written.

    The region takes (b, h, t) and yields the mask's intervals of that list, as tile numbers: first,
    first full, end of the full ones, end, for each.

    Example: test/Dialect/FlashAttn/list-tiles.mlir
  }];
  let arguments = (ins
    Arg<MemRefRankOf<[I1], [4]>, "", [MemRead]>:$keep,
    Arg<MemRefRankOf<[I32], [4]>, "", [MemWrite]>:$bounds,
    Arg<MemRefRankOf<[I32], [4]>, "", [MemWrite]>:$tiles,
    DenseI64ArrayAttr:$tile, UnitAttr:$ofQueries);
  let regions = (region SizedRegion<1>:$intervals);
  let assemblyFormat = [{
    (`of_queries` $ofQueries^)? `tile` $tile `ins` `(` $keep `:` type($keep) `)`
    `outs` `(` $bounds `,` $tiles `:` type($bounds) `,` type($tiles) `)`
    `within` $intervals attr-dict
  }];
  let hasVerifier = 1;
}

def FlashAttn_YieldIntervalsOp : Op<FlashAttn_Dialect, "yield_intervals", [
    Pure, ReturnLike, Terminator, HasParent<"ListTilesOp">]> {
  let summary = "the intervals of a list of key tiles, 4 bounds each";
  let description = [{
    Ends the region of `flashattn.list_tiles`. Of each interval in turn: its first tile, its first
    full one, the end of the full ones, and its end, all of them numbers of key tiles.
  }];
  let arguments = (ins Variadic<Index>:$bounds);
  let assemblyFormat = "$bounds attr-dict";
}

def FlashAttn_YieldOp : Op<FlashAttn_Dialect, "yield", [
    Pure, ReturnLike, Terminator, ParentOneOf<["AttentionOp", "AttentionBackwardOp"]>]> {
  let summary = "the score that a score modification makes";
  let description = [{
    Ends the region `score_mod` of an attention op with what takes the place of the score, the
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
    True if any element of `condition` is. A target may judge the rows in groups, on a
    GPU those of a warp, each of which goes on with an answer of its own. So what depends
    on the result must be right for rows without the condition whichever way it goes.
  }];
  let arguments = (ins VectorOfRankAndType<[1, 2], [I1]>:$condition);
  let results = (outs I1:$result);
  let assemblyFormat = "$condition attr-dict `:` type($condition)";
}

#endif // FLASHATTN_OPS_TD
