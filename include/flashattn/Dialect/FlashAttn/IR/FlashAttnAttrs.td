#ifndef FLASHATTN_ATTRS_TD
#define FLASHATTN_ATTRS_TD

include "mlir/IR/AttrTypeBase.td"
include "mlir/IR/EnumAttr.td"
include "mlir/IR/BuiltinAttributeInterfaces.td"
include "flashattn/Dialect/FlashAttn/IR/FlashAttnDialect.td"
include "flashattn/Dialect/FlashAttn/IR/FlashAttnInterfaces.td"

//===----------------------------------------------------------------------===//
// Enumerations
//===----------------------------------------------------------------------===//

def FlashAttn_Align : I32EnumAttr<"Align", "position of query 0 (rule A3)", [
    I32EnumAttrCase<"TopLeft", 0, "top_left">,
    I32EnumAttrCase<"BottomRight", 1, "bottom_right">]> {
  let cppNamespace = "::mlir::flashattn";
  let genSpecializedAttr = 0;
}
def FlashAttn_AlignAttr : EnumAttr<FlashAttn_Dialect, FlashAttn_Align, "align"> {
  let description = [{
    Defines the position of query `i` if the op has no `offset`. With `top_left` it is `i`. With
    `bottom_right` it is `i + Nk - Nq`, so that the last query is aligned with the last key; with
    `kv_len`, the last key is the last one that exists in the batch. The op prints it as, for
    example, `align(top_left)`.
  }];
  let assemblyFormat = "$value";
}

def FlashAttn_Layout : I32EnumAttr<"Layout", "order of the operands' dimensions", [
    I32EnumAttrCase<"BHSD", 0, "bhsd">,
    I32EnumAttrCase<"BSHD", 1, "bshd">]> {
  let cppNamespace = "::mlir::flashattn";
  let genSpecializedAttr = 0;
}
def FlashAttn_LayoutAttr : EnumAttr<FlashAttn_Dialect, FlashAttn_Layout, "layout"> {
  let description = [{
    `bhsd` is `[B, H, N, D]`: batch, head, position, element of a row. `bshd` is `[B, N, H, D]` and
    applies to `q`, `k`, `v`, `o` and their gradients; the layout of all other operands does not
    change. The op prints it as, for example, `layout(bshd)`.
  }];
  let assemblyFormat = "$value";
}

def FlashAttn_ProgramAxis : I64EnumAttr<"ProgramAxis", "axis of a tile program", [
    I64EnumAttrCase<"Batch", 0, "batch">,
    I64EnumAttrCase<"Head", 1, "head">,
    I64EnumAttrCase<"QueryTile", 2, "query_tile">,
    I64EnumAttrCase<"ColumnTile", 3, "column_tile">,
    I64EnumAttrCase<"KeyTile", 4, "key_tile">]> {
  let cppNamespace = "::mlir::flashattn";
  let genSpecializedAttr = 0;
}
def FlashAttn_ProgramAxisAttr : EnumAttr<FlashAttn_Dialect, FlashAttn_ProgramAxis, "program_axis"> {
  let summary = "what a region argument of a tile program counts";
  let assemblyFormat = "`<` $value `>`";
}

//===----------------------------------------------------------------------===//
// Masks
//===----------------------------------------------------------------------===//

class FlashAttn_Mask<string name, string attrMnemonic> : AttrDef<FlashAttn_Dialect, name,
    [DeclareAttrInterfaceMethods<FlashAttn_MaskAttrInterface>]> {
  let mnemonic = attrMnemonic;
}

def FlashAttn_CausalAttr : FlashAttn_Mask<"Causal", "causal"> {
  let summary = "`k <= p`: a query sees the keys up to its own position";
  let description = [{
    The op defines the position of the first query (rule A3); by default the last query sees every
    key. On the op, `mask(causal)` stands for `mask(#flashattn.causal)`.
  }];
}

def FlashAttn_WindowAttr : FlashAttn_Mask<"Window", "window"> {
  let summary = "`p - left <= k <= p + right`; an omitted bound does not restrict the keys";
  let description = [{
    `left` and `right` are the numbers of visible keys before and after the query's own position,
    each at least 0 (rule R1). A window of W keys that ends at the query itself is
    `#flashattn.window<left = W-1, right = 0>` (rule M1).
  }];
  let parameters = (ins OptionalParameter<"::std::optional<int64_t>">:$left,
                        OptionalParameter<"::std::optional<int64_t>">:$right);
  let assemblyFormat = "(`<` struct($left, $right)^ `>`)?";
  let genVerifyDecl = 1;
}

def FlashAttn_SinkAttr : FlashAttn_Mask<"Sink", "sink"> {
  let summary = "`k < count`: the first keys (sink tokens) are visible to every query";
  let description = [{
    On its own, the mask shows these keys also to queries that come before them. Combined with a
    causal window, `any_of<[window<left = 255, right = 0>, all_of<[sink<4>, causal]>]>`, it keeps
    the first 4 keys visible (rule M2). Sink tokens are not the learned sink logits of some models,
    which are the op's operand `sink_logits`.
  }];
  let parameters = (ins "int64_t":$count);
  let assemblyFormat = "`<` $count `>`";
  let genVerifyDecl = 1;
}

def FlashAttn_SetAttr : FlashAttn_Mask<"Set", "set"> {
  let summary = "the pairs of an integer set over `(p, k)[nq, nk]`";
  let description = [{
    The set is written in quotes, `#flashattn.set<"(p, k)[nq, nk] : (p - k >= 0)">`, or as the alias
    of an `affine_set`. An `affine_set` cannot be spelled out inside the attribute: the text of a
    dialect attribute must have balanced angle brackets, and `>=` breaks this rule. In `mask(…)`, an
    `affine_set` stands for the mask of its pairs:
    `mask(affine_set<(p, k)[nq, nk] : (p - k >= 0)>)`.
  }];
  let parameters = (ins "::mlir::IntegerSetAttr":$set);
  let assemblyFormat = "`<` custom<VisibleSet>($set) `>`";
  let genVerifyDecl = 1;
}

def FlashAttn_AnyOfAttr : FlashAttn_Mask<"AnyOf", "any_of"> {
  let summary = "union: a pair is visible if any of the masks shows it";
  let description = [{
    A window of W keys with S sink tokens (rule M2) is
    `any_of<[window<left = W-1, right = 0>, all_of<[sink<S>, causal]>]>`. Here and in `mask(…)`, the
    masks of this dialect need no `#flashattn.` prefix; they are printed with it.
  }];
  let parameters = (ins "::mlir::ArrayAttr":$masks);
  let assemblyFormat = "`<` custom<Masks>($masks) `>`";
  let genVerifyDecl = 1;
}

def FlashAttn_AllOfAttr : FlashAttn_Mask<"AllOf", "all_of"> {
  let summary = "intersection: a pair is visible where all of the masks show it";
  let description = [{
    `all_of<[causal, sink<4>]>` shows the first 4 keys to queries that are not before them. An
    intersection of unions is expanded to a union of at most 64 sets.
  }];
  let parameters = (ins "::mlir::ArrayAttr":$masks);
  let assemblyFormat = "`<` custom<Masks>($masks) `>`";
  let genVerifyDecl = 1;
}

//===----------------------------------------------------------------------===//
// Schedule
//===----------------------------------------------------------------------===//

def FlashAttn_HopperAttr : AttrDef<FlashAttn_Dialect, "Hopper"> {
  let mnemonic = "hopper";
  let summary = "warp specialization: the producer and consumer warpgroups of a thread block";
  let description = [{
    A thread block with warp specialization has one producer warpgroup (128 threads), which copies
    tiles to shared memory, and consumer warpgroups, which compute. Each consumer runs a tile
    program of its own, or all consumers share one program (see `warps` of `#flashattn.schedule`).
    The programs that a block runs at the same time are a group; they share the tiles of `k` and
    `v`.

    - `consumers`: consumer warpgroups of a block.
    - `along`: the axis along which the programs of a group are neighbors: `query_tile`, or `head`
      within the query heads that share a key/value head.
    - `registers`: registers per thread of a consumer.
    - `producer_registers`: registers per thread of the producer.
    - `rescale_threshold`: threshold of the online softmax, as a power of 2. The output is rescaled
      only if an exponent of a row has grown by more than this number; with 0 it is rescaled
      whenever an exponent has grown.
    - `l2_head_group`: heads whose programs are started together, the longest program first. With
      0, as many heads as provide a group of programs for nearly every block that runs at once.
    - `blocks_per_sm` (1 if omitted): thread blocks that run at once on a multiprocessor.
    - `q_stages` (1 if omitted): query-tile buffers of a consumer. With 2, blocks are
      persistent: only as many are launched as run at once, each runs one group after the other, and
      the tiles of the next group are prefetched.
    - `lazy_rescale` (0 if omitted): with 1, the decision to rescale is based on the weights of a
      tile after they are computed, instead of on its scores before. If weights have outgrown the
      old base, their scores are computed a second time.
    - `dynamic_scheduler_max_len` (0 if omitted): with at most this many keys (backward pass:
      queries), thread blocks are persistent and fetch groups dynamically from an atomic counter in
      global memory, so that blocks whose groups differ in length finish together. With 0, each
      block has a fixed share of the groups.
    - `dq_reduce_stages` (0 if omitted): in a backward pass whose consumers share a program and
      accumulate dq, the number of shared memory buffers through which consumers hand each step's
      contribution to dq to the spare warps of the producer warpgroup, which add it to global
      memory. With 0, each consumer warp adds its own part.
    - `compact_kv` (0 if omitted): with 1, the intervals of keys that a program's mask shows are
      cut into pieces of 8 keys, the pieces are joined to one sequence, and the sequence is cut
      into tiles. A program of a narrow band, or of a few scattered keys, then has no tile that is
      mostly hidden.
    - `prefetch_kib_per_sm` (0 if omitted): cap on the bytes of streamed tiles in flight, in KiB per
      multiprocessor, for all blocks that run at once taken together. With 0, every block prefetches
      up to `stages` steps.
    - `q_register_columns` (0 if omitted): the number of leading columns of the queries that the
      threads of a forward program hold in registers: a multiple of 16, or all columns if there are
      fewer. Products read these columns from registers instead of from shared memory at each key
      tile.

    For bf16, a `rescale_threshold` of more than 3 requires 64, 128 or 192 columns of `v`: row sums
    are then computed as products with 8 columns of ones that follow the columns of `v`.

    `lazy_rescale` requires that nothing but the mask shapes the scores. In tiles that the mask
    cuts, the decision to rescale is based on the scores.

    `dynamic_scheduler_max_len` with `q_stages` 1: the next group's tiles reuse the buffers of the
    current group as soon as its steps have read them. This requires that there is no `keep`
    operand and no `compact_kv` and, in the backward pass, that consumers share a program.

    `dynamic_scheduler_max_len` with few groups or many keys: each block runs one group and ends if
    there are fewer than 4 groups for each block (with `q_stages` 1, fewer than 2). With more than
    `dynamic_scheduler_max_len` keys, each block also runs one group and ends, in a kernel with one
    query-tile buffer and at most 8 heads at once.

    `dq_reduce_stages`: the spare warps also set a tile of dq to zero if nothing was added to it
    yet.

    `compact_kv` requires that only the mask depends on the index of a key. The programs of a group
    join the keys that any of them sees. In the backward pass, `compact_kv` applies to the programs
    over query tiles, and `tile_n`, `pack` and the roles are those of these programs; the programs
    over key tiles process at least 64 queries a step, in at most 2 blocks per multiprocessor.

    `prefetch_kib_per_sm`: with few programs, each block prefetches up to `stages` steps; with more
    programs, as many steps as the cap allows, but at least two. More bytes in flight would not
    make memory faster, and blocks that share a multiprocessor would finish later than those that
    do not.
  }];
  let parameters = (ins "int64_t":$consumers, "::mlir::flashattn::ProgramAxis":$along,
                        "int64_t":$registers, "int64_t":$producerRegisters,
                        "int64_t":$rescaleThreshold, "int64_t":$l2HeadGroup,
                        "int64_t":$blocksPerSM, "int64_t":$qStages,
                        "int64_t":$lazyRescale, "int64_t":$dynamicSchedulerMaxLen,
                        "int64_t":$dqReduceStages, "int64_t":$compactKV, "int64_t":$prefetchKiBPerSM,
                        "int64_t":$qRegisterColumns);
  let builders = [AttrBuilder<(ins "const ::mlir::flashattn::HopperFields &":$fields), [{
    return $_get($_ctxt, fields.consumers, fields.along, fields.registers, fields.producerRegisters,
                 fields.rescaleThreshold, fields.l2HeadGroup, fields.blocksPerSM, fields.qStages,
                 fields.lazyRescale, fields.dynamicSchedulerMaxLen, fields.dqReduceStages, fields.compactKV, fields.prefetchKiBPerSM,
                 fields.qRegisterColumns);
  }]>];
  let extraClassDeclaration = [{
    ::mlir::flashattn::HopperFields getFields() const;
    /// The attribute for blocks that run one group each, with at most `l2_head_group` heads at once.
    HopperAttr withoutClaims(int64_t section) const;
    /// Whether blocks are persistent but have buffers for the tiles of one group only, so that the
    /// next group's tiles reuse them.
    bool reloads() const { return getDynamicSchedulerMaxLen() > 0 && getQStages() == 1; }
  }];
  let hasCustomAssemblyFormat = 1;
  let genVerifyDecl = 1;
}

def FlashAttn_ScheduleAttr : AttrDef<FlashAttn_Dialect, "Schedule"> {
  let mnemonic = "schedule";
  let summary = "every choice of a tile program, as data";
  let description = [{
    - `tile_m`: rows of one program: queries, or keys in the programs that compute the gradients of
      keys and values.
    - `tile_n`: rows of the other operand that one step processes: keys, or queries.
    - `warps`: warps of a program; 1 on the CPU. With `hopper`, a program of more than 4 warps is
      shared by the consumers.
    - `stages`: tiles of `k` and `v` in shared memory at once. With 1, loads do not overlap with
      computation.
    - `threads_per_row`: threads that share a row. The row's sum is kept as this many partial sums
      and reduced once at the end.
    - `dot_type`: element type of the operands of contractions.
    - `pack` (1 if omitted): query heads of one key/value head whose rows share a tile. The tile has
      `tile_m / pack` positions of each head, in the order in which they are stored in memory.
    - `splits` (1 if omitted): split-KV: the maximum number of parts that the keys are cut into, for
      few queries with many keys. Each part has programs of its own, and `flashattn.combine` merges
      their outputs.
    - `min_split_tiles` (2 if omitted): with `splits`, the minimum number of key tiles in a part if
      there are several parts.
    - `small_blocks_per_sm` (0 if omitted): with `splits` and one consumer, the number of small
      blocks per multiprocessor. A small block has half as many keys per tile and a proportional
      share of the registers.
    - `dq_tile_m` (`tile_m` if omitted): in the backward pass, rows of a program that computes dq.
    - `column_warps` (1 if omitted): in a backward pass whose programs accumulate dq, the number of
      warps that share the rows of a tile; each has a part of the columns. Products then read less
      from shared memory; the warps exchange their parts of the weights through it. Not allowed with
      `hopper`.
    - `q_in_registers` (optional): whether a thread keeps its part of the queries in registers
      during all steps, or reads it again at every step. In the backward pass it applies to the
      thread's part of both tiles that a program keeps. If it is omitted, the number of available
      registers decides. Not allowed with `hopper`.
    - `separate_dk_dv` (optional): in the backward pass, whether the gradients of keys and those of
      values are computed by separate programs. These support wider heads and compute the scores
      twice.
    - `hopper` (optional): warp specialization on Hopper, with contractions by `wgmma`. If it is
      omitted, all warps do the same work.

    The number of parts with `splits` is chosen at each call. Parts run in small blocks if there
    are `small_blocks_per_sm`, and so do whole programs if these finish as soon in small blocks as
    in `blocks_per_sm` blocks with whole tiles (`flashattn.prefers_small_blocks`).
    `min_split_tiles` then counts the tiles of small blocks.

    Without `dq_tile_m`, there may be no programs that only compute dq: the programs over tiles of
    at least 128 keys of a 16-bit type then accumulate dq too, each its contribution, unless they
    are `separate_dk_dv`.

    `flashattn-select-schedule` fills in the schedule; it keeps a schedule that the op already has.
  }];
  let parameters = (ins "int64_t":$tileM, "int64_t":$tileN, "int64_t":$warps,
                        "int64_t":$stages, "int64_t":$threadsPerRow, "::mlir::FloatType":$dotType,
                        "int64_t":$pack, "int64_t":$splits, "int64_t":$minSplitTiles,
                        "int64_t":$smallBlocksPerSM,
                        "int64_t":$dqTileM, "int64_t":$columnWarps,
                        OptionalParameter<"::std::optional<bool>">:$qInRegisters,
                        OptionalParameter<"::std::optional<bool>">:$separateDkDv,
                        OptionalParameter<"::mlir::flashattn::HopperAttr">:$hopper);
  let builders = [AttrBuilder<(ins "const ::mlir::flashattn::ScheduleFields &":$fields), [{
    return $_get($_ctxt, fields.tileM, fields.tileN, fields.warps, fields.stages, fields.threadsPerRow,
                 fields.dotType, fields.pack, fields.splits, fields.minSplitTiles,
                 fields.smallBlocksPerSM, fields.dqTileM, fields.columnWarps, fields.qInRegisters, fields.separateDkDv,
                 fields.hopper ? HopperAttr::get($_ctxt, *fields.hopper) : HopperAttr());
  }]>];
  let extraClassDeclaration = [{
    ::mlir::flashattn::ScheduleFields getFields() const;
    /// The schedule with `fields`, or null after an error. `getChecked` does not verify the roles,
    /// which are an attribute with rules of their own; this function does.
    static ScheduleAttr getVerified(
        ::llvm::function_ref<::mlir::InFlightDiagnostic()> emitError, ::mlir::MLIRContext *context,
        const ::mlir::flashattn::ScheduleFields &fields);
    ScheduleAttr withHopper(HopperAttr hopper) const;
    /// The schedule for programs of the same rows without warp specialization: each warp has rows
    /// of its own, and there are at most two stages.
    ScheduleAttr withoutHopper() const;
    /// The schedule with at most `splits` parts. With 1 there are no parts, and the fields that
    /// describe parts are reset.
    ScheduleAttr withSplits(int64_t splits) const;
    /// The schedule without parts in small blocks, with half of `tile_n` keys per tile.
    /// `small_blocks_per_sm` must not be 0. The small blocks of a multiprocessor share the registers
    /// that its `blocks_per_sm` blocks have.
    ScheduleAttr withSmallBlocks() const;
    /// The schedule of programs over parts of the keys: in small blocks, if the schedule has them.
    ScheduleAttr forParts() const;
    /// Whether the consumers of a block share one program. Each consumer has some of the program's
    /// rows or, if there are fewer than 16 rows per warp, some of its sums.
    bool sharesProgram() const;
    /// If row sums are computed by additions, bf16 weights may grow up to 2 to this power: results
    /// are then no less accurate than with sums by products and a `rescale_threshold` of 8
    /// (docs/rationale/rescale.md).
    static constexpr int64_t kMostAdded = 3;
    /// Whether row sums are computed as products with columns of ones that follow the `dv` columns
    /// of values, so that they are sums of the rounded weights. The rounding error of a large bf16
    /// weight then cancels, and weights may grow further; f16 weights do not need this.
    bool sumsByProducts(int64_t dv) const;
    /// Whether programs over query tiles join the keys that they see; and the number of keys that
    /// they visit or skip as a unit: those of a tile, or of a piece.
    bool compactsKV() const;
    int64_t getVisitedKeys() const;
    /// Whether each of these consumers has all rows of one sum.
    bool splitsSums() const;
    /// The number of warps among which the rows of a tile are divided: all warps, or those of one
    /// sum.
    int64_t getWarpsOfRows() const;
    /// In a backward pass whose programs accumulate dq: the number of parts into which the columns
    /// of one of their tiles are divided. A warp has one part, of 16 rows or, if warps share rows,
    /// of as many times 16 rows.
    int64_t countColumnParts() const;
    /// In the backward pass: the schedule of the programs over query tiles, whose rows are
    /// `tile_m`.
    ScheduleAttr forQueryTiles() const;
    /// In a backward pass with warp specialization: the schedule of the programs that compute dv alone (if
    /// `separate_dk_dv`), or dk and dv with one sum for each consumer. They have room for wider steps, whose
    /// products read less shared memory. If programs over query tiles join keys and pack heads, it
    /// is the schedule of the other programs, which do neither.
    ScheduleAttr forWideSteps() const;
    /// In the backward pass: whether the programs over key tiles also accumulate dq, each adding
    /// its contribution in any order. They do if their warps share a program of enough keys for it
    /// to pay off.
    bool addsQueries() const;
  }];
  let hasCustomAssemblyFormat = 1;
  let genVerifyDecl = 1;
}

#endif // FLASHATTN_ATTRS_TD
