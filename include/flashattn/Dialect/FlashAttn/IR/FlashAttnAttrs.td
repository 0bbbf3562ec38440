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
    Without an `offset` query `i` is at position `i` with `top_left`, and at `i + Nk - Nq` with
    `bottom_right`, where the last query is beside the last key. With `kv_len` that is the last key
    which the batch has. It stands as `align(top_left)` on the op.
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
    `bhsd` is `[B, H, N, D]`: batch, head, position, element of a row. `bshd` is `[B, N, H, D]`, for
    `q`, `k`, `v`, `o` and their gradients; all other operands stay as they are. It stands as
    `layout(bshd)` on the op.
  }];
  let assemblyFormat = "$value";
}

def FlashAttn_ProgramAxis : I64EnumAttr<"ProgramAxis", "what a dimension of a tile program counts", [
    I64EnumAttrCase<"Batch", 0, "batch">,
    I64EnumAttrCase<"Head", 1, "head">,
    I64EnumAttrCase<"QueryTile", 2, "query_tile">,
    I64EnumAttrCase<"ColumnTile", 3, "column_tile">,
    I64EnumAttrCase<"KeyTile", 4, "key_tile">]> {
  let cppNamespace = "::mlir::flashattn";
  let genSpecializedAttr = 0;
}
def FlashAttn_ProgramAxisAttr : EnumAttr<FlashAttn_Dialect, FlashAttn_ProgramAxis, "program_axis"> {
  let summary = "what a number of a tile program counts";
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
    Where the first query is, the op says (rule A3): by default the last query sees every key.
    `mask(causal)` on the op is `mask(#flashattn.causal)`.
  }];
}

def FlashAttn_WindowAttr : FlashAttn_Mask<"Window", "window"> {
  let summary = "`p - left <= k <= p + right`; a bound left out does not bind";
  let description = [{
    `left` and `right` are counts of keys beside the query's own position, at
    least 0 (rule R1). A window of W keys that ends at the query itself is
    `#flashattn.window<left = W-1, right = 0>` (rule M1).
  }];
  let parameters = (ins OptionalParameter<"::std::optional<int64_t>">:$left,
                        OptionalParameter<"::std::optional<int64_t>">:$right);
  let assemblyFormat = "(`<` struct($left, $right)^ `>`)?";
  let genVerifyDecl = 1;
}

def FlashAttn_SinkAttr : FlashAttn_Mask<"Sink", "sink"> {
  let summary = "`k < count`: the first keys are visible to every query";
  let description = [{
    Alone it shows these keys to queries before them too. Beside a causal window,
    `any_of<[window<left = 255, right = 0>, all_of<[sink<4>, causal]>]>`, it keeps the first 4 keys
    in sight (rule M2). The learned sinks of some models are an operand of the op, `sink_logits`.
  }];
  let parameters = (ins "int64_t":$count);
  let assemblyFormat = "`<` $count `>`";
  let genVerifyDecl = 1;
}

def FlashAttn_SetAttr : FlashAttn_Mask<"Set", "set"> {
  let summary = "the pairs of an integer set over `(p, k)[nq, nk]`";
  let description = [{
    The set stands in quotes, `#flashattn.set<"(p, k)[nq, nk] : (p - k >= 0)">`, or is an
    `affine_set` behind an alias. An `affine_set` cannot stand here in full: the text of a
    dialect's attribute needs balanced angle brackets, and `>=` is not. In `mask(…)` one stands
    for its set, `mask(affine_set<(p, k)[nq, nk] : (p - k >= 0)>)`.
  }];
  let parameters = (ins "::mlir::IntegerSetAttr":$set);
  let assemblyFormat = "`<` custom<VisibleSet>($set) `>`";
  let genVerifyDecl = 1;
}

def FlashAttn_AnyOfAttr : FlashAttn_Mask<"AnyOf", "any_of"> {
  let summary = "union: a pair is visible where any of the masks shows it";
  let description = [{
    A window of W keys with S sinks (rule M2) is
    `any_of<[window<left = W-1, right = 0>, all_of<[sink<S>, causal]>]>`. The names of this
    dialect's masks need no `#flashattn.` before them, here and in `mask(…)`; they print with it.
  }];
  let parameters = (ins "::mlir::ArrayAttr":$masks);
  let assemblyFormat = "`<` custom<Masks>($masks) `>`";
  let genVerifyDecl = 1;
}

def FlashAttn_AllOfAttr : FlashAttn_Mask<"AllOf", "all_of"> {
  let summary = "intersection: a pair is visible where all of the masks show it";
  let description = [{
    `all_of<[causal, sink<4>]>`: the first 4 keys, for queries that are not before them. An
    intersection of unions is multiplied out to a union, of 64 sets at most.
  }];
  let parameters = (ins "::mlir::ArrayAttr":$masks);
  let assemblyFormat = "`<` custom<Masks>($masks) `>`";
  let genVerifyDecl = 1;
}

//===----------------------------------------------------------------------===//
// Schedule
//===----------------------------------------------------------------------===//

def FlashAttn_RolesAttr : AttrDef<FlashAttn_Dialect, "Roles"> {
  let mnemonic = "roles";
  let summary = "how a block of specialised warpgroups runs several programs at once";
  let description = [{
    One warpgroup (128 threads) is the producer and only brings tiles to shared memory;
    every other one runs a program of its own. The programs of a block share the tiles of
    `k` and `v`.

    | field | meaning |
    | --- | --- |
    | `consumers` | programs of a block, each on a warpgroup |
    | `along` | the axis on which a block's programs are neighbours: `query_tile`, or `head` within a group that shares a key/value head |
    | `registers` | registers of a consumer's thread |
    | `producer_registers` | registers of a producer's thread |
    | `rescale` | the output is rescaled only where a row's exponents have grown by more than this, as a power of 2; with 0 wherever they have grown. More than 3 for bf16 only with 64, 128 or 192 columns of `v`: sums of rows are products then, with 8 columns of ones behind |
    | `section` | heads whose programs are started together, longest first; with 0 as many as have a group of programs for nearly each block that runs at once |
    | `blocks` (1 if left out) | blocks that a multiprocessor runs at once |
    | `query_stages` (1 if left out) | tiles of queries that a consumer has room for; with 2 blocks are persistent: no more are launched than run at once, each runs one group of programs after the other, and the next one's tiles come meanwhile |
    | `late_rescale` (0 if left out) | with 1, whether the output is rescaled is judged by the weights of a tile and not, before these, by its scores: the scores of one whose weights outgrew the base are made a second time. Where nothing but the mask shapes them, which then is judged by scores in tiles that it cuts |
    | `claims_below` (0 if left out) | up to so many keys, of gradients queries, a block takes whichever group is next when it has room for it, from a counter in global memory: blocks whose groups differ in length end together so. With `query_stages` 1, for which there must be no keep and no `joins`, and of gradients consumers that share a program, the next tiles come where this one's were once its steps have read them. Where each block would have fewer than 4 groups, with `query_stages` 1 fewer than 2, and with more keys, a block runs one group and ends; with more keys in a kernel without room for two, and 8 heads at once at most. With 0 each block has its share of the groups from the start |
    | `add_stages` (0 if left out) | of gradients whose consumers share a program, and add up those of queries: through so many places of shared memory they hand what they have of a step to warps of the producer's group that bring no tiles, which add it, and make zeros of what nobody has added to. With 0 each of their warps adds its own |
    | `joins` (0 if left out) | with 1, the intervals of keys that a program's mask shows are cut into pieces of 8 keys, joined to one sequence, and that is cut into tiles: a program of a narrow band, or of a few keys here and there, has no tile that is mostly hidden. Programs of a block join those that any of them sees. Where the mask alone asks for a key's number. Of gradients in programs over queries, whose `tile_n`, `pack` and roles the schedule's are then: those over keys have 64 queries a step or more, in 2 blocks at most |
    | `in_flight` (0 if left out) | KiB of the tiles of a step that a multiprocessor's share of the blocks may have on their way, all blocks that run at once taken together: of few programs each goes ahead as far as there are `stages`, of more two steps or as many as come to this. More would make memory no faster, and blocks that share a multiprocessor wait for those that do not. With 0 all go as far as there are stages |
    | `query_columns` (0 if left out) | of a forward program's queries, the first columns that its threads hold in registers, a multiple of 16, or all where there are fewer: products take them from there, and read no shared memory for them at each tile of keys |
  }];
  let parameters = (ins "int64_t":$consumers, "::mlir::flashattn::ProgramAxis":$along,
                        "int64_t":$registers, "int64_t":$producerRegisters,
                        "int64_t":$rescale, "int64_t":$section,
                        "int64_t":$blocks, "int64_t":$queryStages,
                        "int64_t":$lateRescale, "int64_t":$claimsBelow,
                        "int64_t":$addStages, "int64_t":$joins, "int64_t":$inFlight,
                        "int64_t":$queryColumns);
  let builders = [AttrBuilder<(ins "const ::mlir::flashattn::RolesFields &":$fields), [{
    return $_get($_ctxt, fields.consumers, fields.along, fields.registers, fields.producerRegisters,
                 fields.rescale, fields.section, fields.blocks, fields.queryStages,
                 fields.lateRescale, fields.claimsBelow, fields.addStages, fields.joins, fields.inFlight,
                 fields.queryColumns);
  }]>];
  let extraClassDeclaration = [{
    ::mlir::flashattn::RolesFields getFields() const;
    /// Of blocks that run one group each, with `section` heads at once at most.
    RolesAttr withoutClaims(int64_t section) const;
    /// Whether blocks go from one group to the next with room for the tiles that one keeps.
    bool reloads() const { return getClaimsBelow() > 0 && getQueryStages() == 1; }
  }];
  let hasCustomAssemblyFormat = 1;
  let genVerifyDecl = 1;
}

def FlashAttn_ScheduleAttr : AttrDef<FlashAttn_Dialect, "Schedule"> {
  let mnemonic = "schedule";
  let summary = "every choice of the tile program, as data";
  let description = [{
    | field | meaning |
    | --- | --- |
    | `tile_m` | rows of one program: queries, or, where the gradients of keys and values are made, keys |
    | `tile_n` | what one step takes of the other: keys, or queries |
    | `warps` | warps of a program; on the CPU 1 |
    | `stages` | K/V tiles held in shared memory at once; 1 loads without overlap |
    | `lanes` | threads that share a row: the row sum is kept as so many partial sums and reduced once at the end |
    | `dot_type` | element type of the contractions' operands |
    | `pack` (1 if left out) | query heads of one key/value head whose rows share a tile: `tile_m / pack` positions of each, in the order in which they lie in memory |
    | `splits` (1 if left out) | most parts that the keys are cut into, each a program of its own whose outputs `flashattn.combine` merges: for few queries of many keys. How many they are is decided at each call |
    | `min_part_tiles` (2 if left out) | with `splits`: the fewest key tiles of a part where there are several |
    | `narrow_blocks` (0 if left out) | with `splits` and one consumer: so many blocks to a multiprocessor, with half as many keys a tile and their share of the registers, for parts, and for whole programs where these are done as soon in them as in `blocks` of whole tiles (`flashattn.prefers_narrow`). `min_part_tiles` are such tiles then |
    | `tile_q` (`tile_m` if left out) | of gradients: rows of a program that makes those of queries. Without it there may be none: programs of 128 keys and more of 16 bits add up those of queries too, each its share, unless they are `apart` |
    | `column_warps` (1 if left out) | of gradients, in programs that add up those of queries: warps that have the same rows of a tile, each its share of the columns. Products read less of shared memory so, through which the warps hand each other what they have of the weights |
    | `queries_in_registers` (optional) | whether a thread holds its part of the queries all along or reads it again at every step; of gradients, its part of both tiles that a program keeps. Without it as registers allow. Not with `roles` |
    | `apart` (optional) | of gradients: whether those of keys and those of values are made by programs of their own, which have room for wider heads and make the scores twice |
    | `roles` (optional) | warpgroups with roles of their own, contractions by `wgmma`; without it every warp does the same |

    `flashattn-select-schedule` fills it in; one already on the op is kept.
  }];
  let parameters = (ins "int64_t":$tileM, "int64_t":$tileN, "int64_t":$warps,
                        "int64_t":$stages, "int64_t":$lanes, "::mlir::FloatType":$dotType,
                        "int64_t":$pack, "int64_t":$splits, "int64_t":$minPartTiles,
                        "int64_t":$narrowBlocks,
                        "int64_t":$tileQ, "int64_t":$columnWarps,
                        OptionalParameter<"::std::optional<bool>">:$queriesInRegisters,
                        OptionalParameter<"::std::optional<bool>">:$apart,
                        OptionalParameter<"::mlir::flashattn::RolesAttr">:$roles);
  let builders = [AttrBuilder<(ins "const ::mlir::flashattn::ScheduleFields &":$fields), [{
    return $_get($_ctxt, fields.tileM, fields.tileN, fields.warps, fields.stages, fields.lanes,
                 fields.dotType, fields.pack, fields.splits, fields.minPartTiles,
                 fields.narrowBlocks, fields.tileQ, fields.columnWarps, fields.queriesInRegisters, fields.apart,
                 fields.roles ? RolesAttr::get($_ctxt, *fields.roles) : RolesAttr());
  }]>];
  let extraClassDeclaration = [{
    ::mlir::flashattn::ScheduleFields getFields() const;
    /// That of `fields`; null after an error. `getChecked` takes roles as they are, which are an
    /// attribute with rules of its own.
    static ScheduleAttr getVerified(
        ::llvm::function_ref<::mlir::InFlightDiagnostic()> emitError, ::mlir::MLIRContext *context,
        const ::mlir::flashattn::ScheduleFields &fields);
    ScheduleAttr withRoles(RolesAttr roles) const;
    /// For programs of the same rows whose warps all do the same, each with rows of its own, which
    /// have two stages at most.
    ScheduleAttr withoutRoles() const;
    /// At most so many parts. With 1 there are none, and what is said of them is left out.
    ScheduleAttr withSplits(int64_t splits) const;
    /// Without parts, in the blocks that `narrow_blocks` tells, which there must be: they share out the
    /// registers that `blocks` have. Half of `tile_n` keys a tile.
    ScheduleAttr withNarrowBlocks() const;
    /// That of programs over parts of the keys: in narrow blocks, where there are any.
    ScheduleAttr forParts() const;
    /// Whether the warpgroups of a block with roles run one program, each some of its rows or, where
    /// there are fewer than 16 a warp, some of its sums.
    bool sharesProgram() const;
    /// Weights of bf16 may grow to 2 to this where sums of rows are additions: results are then no
    /// rougher than with products and a `rescale` of 8 (docs/rationale/rescale.md).
    static constexpr int64_t kMostAdded = 3;
    /// Whether sums of rows are products with columns of ones behind `dv` columns of values: sums of
    /// the weights as they are rounded. What rounding takes from a large weight of bf16 then cancels,
    /// and weights may grow further; those of f16 need it not.
    bool sumsByProducts(int64_t dv) const;
    /// Whether programs over query tiles join the keys that they see, and how many keys they visit
    /// together or not at all: of a tile, or of a piece.
    bool joinsKeys() const;
    int64_t getVisitedKeys() const;
    /// Whether each of these warpgroups has all rows of one sum.
    bool splitsSums() const;
    /// Warps that have the rows of a tile between them: all, or those of a sum.
    int64_t getWarpsOfRows() const;
    /// Of gradients whose programs add up those of queries: how many parts there are of the columns
    /// of one of their tiles. A warp has one of them, of 16 rows or, where warps share rows, of as
    /// many times 16.
    int64_t countColumnParts() const;
    /// Of gradients: that of the programs over query tiles, whose rows are `tile_m`.
    ScheduleAttr forQueryTiles() const;
    /// Of gradients with roles: that of the programs that make dv alone, where they are apart, or dk
    /// and dv, of which each consumer has one: they have room for wider steps, for which products
    /// read less of shared memory. And, where programs over query tiles join keys and pack heads,
    /// that of those which do neither.
    ScheduleAttr forWideSteps() const;
    /// Of gradients: whether programs over key tiles make those of queries too, of which each adds
    /// its share in any order: where its warps share a program of keys enough for it to pay.
    bool addsQueries() const;
  }];
  let hasCustomAssemblyFormat = 1;
  let genVerifyDecl = 1;
}

#endif // FLASHATTN_ATTRS_TD
