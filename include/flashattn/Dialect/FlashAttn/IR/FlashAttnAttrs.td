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
    Defines the position of query `i` if the op has no `offset`: `i` with `top_left`, and
    `i + Nk - Nq` with `bottom_right`, so that the last query is aligned with the last key. With
    `kv_len`, the last key is the last valid key of the batch, and `kv_len[b]` replaces `Nk`. The op
    prints the attribute as, for example, `align(top_left)`.
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
    change. The op prints the attribute as, for example, `layout(bshd)`.
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
  let summary = "axis of the index space of tile programs";
  let assemblyFormat = "`<` $value `>`";
}

def FlashAttn_BackwardAlgorithm
    : I64EnumAttr<"BackwardAlgorithm", "which programs of a backward pass compute which gradients", [
    I64EnumAttrCase<"SeparateDq", 0, "separate_dq">,
    I64EnumAttrCase<"AccumulateDq", 1, "accumulate_dq">,
    I64EnumAttrCase<"SplitDkDv", 2, "split_dk_dv">,
    I64EnumAttrCase<"SeparateDkDv", 3, "separate_dk_dv">]> {
  let cppNamespace = "::mlir::flashattn";
  let genSpecializedAttr = 0;
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
    `p` is the query's position (rule A3); by default the last query sees every key. On the op,
    `mask(causal)` is short for `mask(#flashattn.causal)`.
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
    On its own, the mask shows these keys also to queries at earlier positions. In combination with
    a causal window, `any_of<[window<left = 255, right = 0>, all_of<[sink<4>, causal]>]>`, the first
    4 keys stay visible (rule M2). Sink tokens differ from the learned sink logits of some models,
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
    of an `affine_set`. An `affine_set` cannot be spelled out inside the attribute, because `>=`
    would unbalance the angle brackets of a dialect attribute. In `mask(…)`, an `affine_set` is
    accepted directly: `mask(affine_set<(p, k)[nq, nk] : (p - k >= 0)>)`.
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
  let summary = "intersection: a pair is visible if all of the masks show it";
  let description = [{
    `all_of<[causal, sink<4>]>` shows the first 4 keys, but not to queries at earlier positions. An
    intersection of unions is expanded to a union of at most 64 sets.
  }];
  let parameters = (ins "::mlir::ArrayAttr":$masks);
  let assemblyFormat = "`<` custom<Masks>($masks) `>`";
  let genVerifyDecl = 1;
}

//===----------------------------------------------------------------------===//
// Schedule
//===----------------------------------------------------------------------===//

class FlashAttn_Mapping<string name, string attrMnemonic, list<string> overridden>
    : AttrDef<FlashAttn_Dialect, name,
              [DeclareAttrInterfaceMethods<FlashAttn_MappingAttrInterface, overridden>]> {
  let mnemonic = attrMnemonic;
}

def FlashAttn_CPUAttr : FlashAttn_Mapping<"CPU", "cpu", ["isOnGPU"]> {
  let summary = "mapping to a CPU: a program runs on one thread";
  let description = [{
    Rows are along the lanes of vector registers.
  }];
}

def FlashAttn_MmaSyncAttr : FlashAttn_Mapping<"MmaSync", "mma_sync", []> {
  let summary = "mapping to Ampere and later GPUs: all warps of a program do the same work";
  let description = [{
    A program is a thread block, and computes contractions by `mma.sync`. 4 threads share a row.

    - `warps`: warps of a program.
    - `column_warps` (1 if omitted): in a backward pass with `accumulate_dq`, the number of warps
      that share the rows of a tile, each with a range of the columns. Matrix products then read
      less shared memory, but the warps exchange P and dS through shared memory.
    - `q_in_registers` (optional): whether a thread keeps its fragment of Q in registers during all
      steps instead of loading it at every step. In the backward pass, the field applies to the
      fragments of both resident tiles (Q and dO, or K and V). If it is omitted, the number of
      available registers decides.
  }];
  let parameters = (ins "int64_t":$warps, "int64_t":$columnWarps,
                        OptionalParameter<"::std::optional<bool>">:$qInRegisters);
  let builders = [AttrBuilder<(ins "const ::mlir::flashattn::MmaSyncFields &":$fields), [{
    return $_get($_ctxt, fields.warps, fields.columnWarps, fields.qInRegisters);
  }]>];
  let extraClassDeclaration = [{
    ::mlir::flashattn::MmaSyncFields getFields() const;
  }];
  let hasCustomAssemblyFormat = 1;
  let genVerifyDecl = 1;
}

def FlashAttn_HopperAttr : FlashAttn_Mapping<"Hopper", "hopper", [
    "getLag", "getThresholdOfRescale", "rescalesLazily", "loadsKeyValuesAhead", "mayRunWithoutTile",
    "hasRegistersForBases", "keepsRowLimits", "hidesPairsAtOnce", "addsByBulkCopy",
    "hasSpaceForWideTiles"]> {
  let summary = "mapping to Hopper: the producer and consumer warpgroups of a thread block";
  let description = [{
    A warp-specialized thread block has one producer warpgroup (128 threads), which loads tiles into
    shared memory, and consumer warpgroups, which compute contractions by `wgmma`. 4 threads share a
    row. The programs that a block runs at the same time form a group; they share the tiles of `k`
    and `v`.

    - `consumers`: number of consumer warpgroups of a block.
    - `cooperative` (0 if omitted): with 1, all consumers share one program; with 0, each runs its
      own. A backward pass with `accumulate_dq` or `split_dk_dv` requires 1.
    - `along`: axis along which the programs of a group are neighbors: `query_tile`, or `head`
      within the query heads that share a key/value head.
    - `registers`: registers per consumer thread.
    - `producer_registers`: registers per producer thread.
    - `rescale_threshold`: threshold of the online softmax, as a power of 2. The output is rescaled
      only if an exponent of a row has grown by more than this number; with 0 it is rescaled
      whenever an exponent has grown.
    - `l2_head_group`: number of heads whose programs start together, the longest program first.
      With 0, as many heads as provide a group of programs for nearly every block that runs at once.
    - `blocks_per_sm` (1 if omitted): thread blocks that run at once on a multiprocessor.
    - `small_blocks_per_sm` (0 if omitted): with `splits` and one consumer, the number of small
      blocks per multiprocessor. A small block has half as many keys per tile and a proportional
      share of the registers.
    - `q_stages` (1 if omitted): query-tile buffers per consumer. With 2, the kernel is persistent:
      it launches only as many blocks as run at once, each block runs one group after the other, and
      the tiles of the next group are prefetched.
    - `lazy_rescale` (0 if omitted): with 1, the probabilities of a tile are first computed against
      the old base, and the decision to rescale is based on these probabilities instead of on the
      scores. If some probability exceeds the threshold, the scores are computed a second time.
    - `dynamic_scheduler` (0 if omitted): with 1, the kernel is persistent and uses a dynamic
      scheduler: blocks fetch groups from an atomic counter in global memory, so that blocks whose
      groups differ in length finish together. With 0, each block has a fixed share of the groups.
    - `dq_reduce_stages` (0 if omitted): in a backward pass with `accumulate_dq`, the number of
      shared memory buffers through which consumers pass each step's contribution to dQ to the spare
      warps of the producer warpgroup, which add it to global memory. With 0, each consumer warp
      adds its own fragment.
    - `compact_kv` (0 if omitted): with 1, the intervals of keys that a program's mask shows are
      split into pieces of 8 keys, and the pieces are concatenated and divided into tiles (compacted
      keys). A program with a narrow band, or with few scattered keys, then has no tile that is
      mostly hidden.
    - `prefetch_kib_per_sm` (0 if omitted): cap on the bytes of streamed tiles in flight, in KiB per
      multiprocessor, in total over all blocks that run at once. With 0, every block prefetches up
      to `stages` steps.
    - `q_register_columns` (0 if omitted): number of leading columns of Q that the threads of a
      forward program keep in registers: a multiple of 16, or all columns if Q has fewer. `wgmma`
      then reads these columns from registers instead of shared memory for each key tile.

    For bf16, a `rescale_threshold` of more than 3 requires a Dv of 64, 128 or 192: 8 columns of
    ones are appended to V, so that the product P V also computes the row sums.

    `lazy_rescale` requires that only the mask modifies the scores. In partial tiles, the decision
    to rescale is based on the scores.

    `dynamic_scheduler` with `q_stages` 1: the next group's tiles reuse the buffers of the
    current group as soon as its steps have read them. This requires that there is no `attn_mask`
    operand and no `compact_kv` and, in the backward pass, that consumers are `cooperative`.

    `dynamic_scheduler` with few groups: each block runs one group and exits if there are
    fewer than 4 groups for each block that runs at once (with `q_stages` 1, if all groups run at
    once).

    `dq_reduce_stages`: the first spare warp that reaches a tile of dQ also sets the tile to zero,
    unless dQ must be deterministic or the bias has a gradient.

    `compact_kv` requires that only the mask depends on the index of a key. The programs of a group
    share one sequence of compacted keys: the keys that any of them sees. In the backward pass,
    `compact_kv` applies to the programs over query tiles, and `tile_n`, `pack` and the fields of
    the mapping describe these programs; the programs over key tiles process at least 64 queries per
    step, in at most 2 blocks per multiprocessor.

    `prefetch_kib_per_sm`: with few programs, each block prefetches up to `stages` steps; with more
    programs, as many steps as the cap allows, but at least two. More bytes in flight would not
    increase the memory throughput, and blocks that share a multiprocessor would finish later than
    blocks that have one to themselves.

    With `small_blocks_per_sm`, splits run in small blocks. Unsplit programs do so too if they
    finish as soon in small blocks as in `blocks_per_sm` full-size blocks
    (`flashattn.prefers_small_blocks`). `min_split_tiles` then counts the tiles of small blocks.
  }];
  let parameters = (ins "int64_t":$consumers, "int64_t":$cooperative,
                        "::mlir::flashattn::ProgramAxis":$along,
                        "int64_t":$registers, "int64_t":$producerRegisters,
                        "int64_t":$rescaleThreshold, "int64_t":$l2HeadGroup,
                        "int64_t":$blocksPerSM, "int64_t":$smallBlocksPerSM, "int64_t":$qStages,
                        "int64_t":$lazyRescale, "int64_t":$dynamicScheduler,
                        "int64_t":$dqReduceStages, "int64_t":$compactKV,
                        "int64_t":$prefetchKiBPerSM, "int64_t":$qRegisterColumns);
  let builders = [AttrBuilder<(ins "const ::mlir::flashattn::HopperFields &":$fields), [{
    return $_get($_ctxt, fields.consumers, fields.cooperative, fields.along, fields.registers,
                 fields.producerRegisters, fields.rescaleThreshold, fields.l2HeadGroup,
                 fields.blocksPerSM, fields.smallBlocksPerSM, fields.qStages, fields.lazyRescale,
                 fields.dynamicScheduler, fields.dqReduceStages,
                 fields.compactKV, fields.prefetchKiBPerSM, fields.qRegisterColumns);
  }]>];
  let extraClassDeclaration = [{
    ::mlir::flashattn::HopperFields getFields() const;
    /// Returns the attribute for a kernel whose blocks run one group each, with at most `section`
    /// heads at once (`l2_head_group`).
    bool isCooperative() const { return getCooperative() != 0; }
    /// Whether blocks are persistent but only have buffers for the tiles of one group, so that the
    /// next group's tiles reuse the buffers.
    bool reusesResidentBuffers() const { return getDynamicScheduler() > 0 && getQStages() == 1; }
  }];
  let hasCustomAssemblyFormat = 1;
  let genVerifyDecl = 1;
}

def FlashAttn_ScheduleAttr : AttrDef<FlashAttn_Dialect, "Schedule"> {
  let mnemonic = "schedule";
  let summary = "every choice of a tile program, as data";
  let description = [{
    - `tile_m`: rows of one program: queries, or keys in the programs that compute dK and dV.
    - `tile_n`: rows of the other operand that one step processes: keys, or queries.
    - `stages`: K and V tiles that shared memory holds at once. With 1, loads do not overlap with
      computation.
    - `dot_type`: element type of the operands of contractions.
    - `pack` (1 if omitted): packed heads: query heads of one key/value head whose rows share a tile
      (PackGQA). The tile has `tile_m / pack` positions of each head, in their memory order.
    - `splits` (1 if omitted): split-KV, for few queries with many keys: the maximum number of
      splits of the keys. Each split has its own programs, and `flashattn.combine` merges their
      outputs.
    - `min_split_tiles` (2 if omitted): with `splits`, the minimum number of key tiles per split if
      there are several splits; with `invariant`, the number of tiles of each split but the last.
    - `dq_tile_m` (`tile_m` if omitted): in a backward pass mapped to `mma_sync` or `cpu`, rows of a
      program that computes dQ.
    - `algorithm` (backward pass only): which programs compute which gradients.
      - `separate_dq` (default): programs over key tiles compute dK and dV, and programs over query
        tiles compute dQ.
      - `accumulate_dq`: programs over key tiles compute dK and dV and accumulate dQ in global
        memory, as FlashAttention does. This computes scores once, for 16-bit types.
      - `split_dk_dv`: as `separate_dq`, but each of two cooperative consumers computes all rows of
        one of dK and dV, for heads whose accumulators do not fit in one warpgroup.
      - `separate_dk_dv`: as `separate_dq`, but separate programs compute dK and dV. This supports
        wider heads but computes the scores once more.
    - `mapping`: how programs map to the machine: `cpu`, `mma_sync` or `hopper`, each with its own
      fields.

    With `splits`, the number of splits is chosen at each call.

    `flashattn-select-schedule` fills in the schedule; it keeps a schedule that the op already has.
  }];
  let parameters = (ins "int64_t":$tileM, "int64_t":$tileN, "int64_t":$stages,
                        "::mlir::FloatType":$dotType, "int64_t":$pack, "int64_t":$splits,
                        "int64_t":$minSplitTiles, "int64_t":$dqTileM,
                        OptionalParameter<"::std::optional<::mlir::flashattn::BackwardAlgorithm>">
                        :$algorithm,
                        "::mlir::flashattn::MappingAttrInterface":$mapping);
  let builders = [AttrBuilder<(ins "const ::mlir::flashattn::ScheduleFields &":$fields), [{
    return $_get($_ctxt, fields.tileM, fields.tileN, fields.stages, fields.dotType, fields.pack,
                 fields.splits, fields.minSplitTiles, fields.dqTileM, fields.algorithm,
                 fields.getMapping($_ctxt));
  }]>];
  let extraClassDeclaration = [{
    ::mlir::flashattn::ScheduleFields getFields() const;
    /// Returns the schedule with `fields`, or null after an error. Unlike `getChecked`, it also
    /// verifies the mapping.
    static ScheduleAttr getVerified(
        ::llvm::function_ref<::mlir::InFlightDiagnostic()> emitError, ::mlir::MLIRContext *context,
        const ::mlir::flashattn::ScheduleFields &fields);
    ScheduleAttr withHopper(HopperAttr hopper) const;
    /// Returns the schedule for programs beside those of a backward pass, with the same rows but
    /// without warp specialization and algorithm: each warp has its own rows, and there are at most
    /// two stages.
    ScheduleAttr withoutHopper() const;
    /// Returns the schedule with at most `splits` splits of the keys. With 1 the keys are not
    /// split, and the other fields of split-KV are reset.
    ScheduleAttr withSplits(int64_t splits) const;
    /// Returns the schedule of unsplit programs in small blocks, with half of `tile_n` keys per
    /// tile. `small_blocks_per_sm` must not be 0. The small blocks of a multiprocessor share the
    /// registers of its `blocks_per_sm` full-size blocks.
    ScheduleAttr withSmallBlocks() const;
    /// Returns the schedule of programs over splits of the keys: in small blocks, if the schedule
    /// has `small_blocks_per_sm`.
    ScheduleAttr forSplits() const;
    /// Returns the mapping of one kind; null if the mapping is of another kind.
    HopperAttr getHopper() const { return ::llvm::dyn_cast<HopperAttr>(getMapping()); }
    MmaSyncAttr getMmaSync() const { return ::llvm::dyn_cast<MmaSyncAttr>(getMapping()); }
    /// Whether a block has producer and consumer warpgroups (`hopper`).
    bool isWarpSpecialized() const { return static_cast<bool>(getHopper()); }
    int64_t getWarps() const { return getMapping().getWarps(); }
    int64_t getThreadsPerRow() const { return getMapping().getThreadsPerRow(); }
    /// Returns the number of warps that share the rows of a tile (`column_warps`).
    int64_t getColumnWarps() const { return getMmaSync() ? getMmaSync().getColumnWarps() : 1; }
    /// Returns the field `q_in_registers`; nullopt if it is omitted.
    std::optional<bool> getQInRegisters() const {
      return getMmaSync() ? getMmaSync().getQInRegisters() : std::nullopt;
    }
    /// Returns the number of small blocks per multiprocessor; 0 if there are none.
    int64_t getSmallBlocksPerSM() const {
      return isWarpSpecialized() ? getHopper().getSmallBlocksPerSM() : 0;
    }
    int64_t getLag() const { return getMapping().getLag(); }
    /// Returns the number of consumer warpgroups of a block; 1 without warp specialization.
    int64_t getConsumers() const;
    /// Returns the number of programs that a block runs side by side, or those of them that are
    /// neighbors along `axis`.
    int64_t countProgramsPerBlock() const;
    int64_t countProgramsPerBlock(::mlir::flashattn::ProgramAxis axis) const;
    /// Whether spare warps of the producer warpgroup add dQ.
    bool hasReduceWarps() const;
    /// Whether the accumulators of dP start from -delta instead of 0, which saves a subtraction for
    /// each element. If a step has fewer queries than its program has keys, products would wait for
    /// the deltas (docs/rationale/dp-deltas.md).
    bool beginsWithDeltas() const;
    /// Whether the consumers of a block share one program. Each consumer computes a range of the
    /// program's rows or, if `splitsSums`, one of its accumulators.
    bool sharesProgram() const { return isWarpSpecialized() && getHopper().isCooperative(); }
    /// The largest power of 2 up to which unnormalized bf16 probabilities may grow if row sums are
    /// computed by additions. Results are then no less accurate than with sums by products and a
    /// `rescale_threshold` of 8 (docs/rationale/rescale.md).
    static constexpr int64_t kMostAdded = 3;
    /// Whether columns of ones are appended to the `dv` columns of V, so that the product P V also
    /// computes the row sums, as sums of the rounded probabilities. The rounding error of a large
    /// bf16 probability then cancels, and probabilities may grow further; f16 does not need this.
    bool sumsByProducts(int64_t dv) const;
    /// Returns the number of columns of a tile for rows of `columns` elements.
    int64_t padColumns(int64_t columns) const;
    /// Whether programs over query tiles compact the keys that they see.
    bool compactsKV() const;
    /// Returns the number of keys that programs over query tiles visit or skip as a unit: those of
    /// a tile or, with compacted keys, of a piece.
    int64_t getVisitedKeys() const;
    /// Whether consumers share a program and each of them computes all rows of one accumulator (dK
    /// or dV).
    bool splitsSums() const { return getAlgorithm() == BackwardAlgorithm::SplitDkDv; }
    /// Whether separate programs compute dK and dV.
    bool separatesDkDv() const { return getAlgorithm() == BackwardAlgorithm::SeparateDkDv; }
    /// Returns the number of warps among which the rows of a tile are divided: all warps of the
    /// program, or those of one consumer if `splitsSums`.
    int64_t getWarpsOfRows() const;
    /// Returns the number of ranges into which the columns of a dQ tile are divided, in a backward
    /// pass whose programs accumulate dQ. A warp has 16 * `column_warps` rows of one range.
    int64_t countColumnParts() const;
    /// Returns the schedule of the programs over query tiles of a backward pass, whose rows are
    /// `tile_m`.
    ScheduleAttr forQueryTiles() const;
    /// Returns the schedule of programs with wider steps in a warp-specialized backward pass, whose
    /// products read less shared memory. These are the programs that compute only dV (if
    /// `separate_dk_dv`), or dK and dV with one accumulator per consumer. If programs over query
    /// tiles compact keys and pack heads, these are the programs over key tiles, which do neither.
    ScheduleAttr forWideSteps() const;
    /// Whether the programs over key tiles of a backward pass also accumulate dQ, each adding its
    /// contribution in any order.
    bool addsQueries() const { return getAlgorithm() == BackwardAlgorithm::AccumulateDq; }
    /// Returns the schedule of the programs that compute the elements of a bias's gradient, for
    /// heads of `d` and `dv` columns, which differs from that of other programs only with warp
    /// specialization; null otherwise.
    ScheduleAttr forBiasElements(int64_t d, int64_t dv) const;
  }];
  let hasCustomAssemblyFormat = 1;
  let genVerifyDecl = 1;
}

#endif // FLASHATTN_ATTRS_TD
