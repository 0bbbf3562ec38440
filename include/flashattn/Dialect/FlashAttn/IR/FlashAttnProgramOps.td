#ifndef FLASHATTN_PROGRAM_OPS_TD
#define FLASHATTN_PROGRAM_OPS_TD

// Tile programs: what `flashattn-tile` makes of an op, and what each target makes threads of. What a
// pass needs to know of a program stands in the operands and attributes of these ops; the arithmetic
// between them is `arith`, `math` and `vector` on tile values, `vector<MxN>`.

include "mlir/IR/OpBase.td"
include "mlir/Interfaces/ControlFlowInterfaces.td"
include "mlir/Interfaces/SideEffectInterfaces.td"
include "flashattn/Dialect/FlashAttn/IR/FlashAttnAttrs.td"
include "flashattn/Dialect/OperandSegments.td"

def FlashAttn_TileVector : VectorOfAnyRankOf<[AnyFloat, AnyInteger, Index]>;

class FlashAttn_ProgramLevelOp<string mnemonic, list<Trait> traits = []>
    : Op<FlashAttn_Dialect, mnemonic, traits> {
  code segments = OperandSegmentsOf<arguments>.declaration;
  let hasVerifier = 1;
}

//===----------------------------------------------------------------------===//
// Programs
//===----------------------------------------------------------------------===//

def FlashAttn_ProgramAxes : TypedArrayAttrBase<FlashAttn_ProgramAxisAttr, "axes of a tile program">;

def FlashAttn_ProgramOp : FlashAttn_ProgramLevelOp<"program", [
    RecursiveMemoryEffects, AutomaticAllocationScope,
    SingleBlockImplicitTerminator<"TileYieldOp">]> {
  let summary = "programs that know nothing of each other, one for each of some numbers";
  let description = [{
    Runs the region once for each point of `sizes`, in any order and in parallel. Its arguments are
    the point's numbers, counted from 0; `axes` names what each of them counts. With a `schedule` the
    region is a tile program: a target gives the rows of its tile values to the warps that the
    schedule names. Without one it is ordinary code, which only the CPU runs.

    Programs that `lead` come right before such that `follow`: those may begin while these still run,
    on a target that lets them wait for what they need. The tiles that their contractions keep, which
    are read first, these do not write.

    With `half_rows` nobody reads what rows 8 to 15 of every 16 of its tiles hold, as where a tile
    is for few queries: a target need not compute them.

    Example:

    ```mlir
    flashattn.program (%b, %h, %t) in (%batches, %heads, %tiles) axes(batch, head, query_tile)
        schedule(<tile_m = 64, tile_n = 64, warps = 4, stages = 2, lanes = 4, dot_type = f16>) {
      ...
    }
    ```
  }];
  let arguments = (ins Variadic<Index>:$sizes, FlashAttn_ProgramAxes:$axes,
                       OptionalAttr<FlashAttn_ScheduleAttr>:$schedule, UnitAttr:$follows,
                       UnitAttr:$leads, UnitAttr:$half_rows);
  let regions = (region SizedRegion<1>:$region);
  let hasCustomAssemblyFormat = 1;
  let skipDefaultBuilders = 1;
  let builders = [
    // The region is one block with the numbers as arguments and its terminator.
    OpBuilder<(ins "::mlir::ValueRange":$sizes, "::llvm::ArrayRef<ProgramAxis>":$axes,
                   "::mlir::flashattn::ScheduleAttr":$schedule)>];
  let extraClassDeclaration = [{
    ::mlir::Block *getBody() { return &getRegion().front(); }
    /// The numbers of a program, one for each axis.
    ::llvm::MutableArrayRef<::mlir::BlockArgument> getNumbers() {
      return getBody()->getArguments();
    }
    ::mlir::flashattn::ProgramAxis getAxis(unsigned i) {
      return ::llvm::cast<ProgramAxisAttr>(getAxes()[i]).getValue();
    }
  }];
}

def FlashAttn_OnThreadsOp : FlashAttn_ProgramLevelOp<"on_threads", [
    RecursiveMemoryEffects, SingleBlockImplicitTerminator<"TileYieldOp">]> {
  let summary = "a tile program on the threads of its warps";
  let description = [{
    What a `flashattn.program` becomes inside of a kernel: the region is run by the threads of the
    warps that `schedule` names, `thread` is the number of one among them. A tile value lies across
    them; `flashattn-distribute` gives each thread its part. `half_rows` is the program's.

    Example:

    ```mlir
    flashattn.on_threads %thread
        schedule(<tile_m = 64, tile_n = 64, warps = 4, stages = 2, lanes = 4, dot_type = f16>) {
      ...
    }
    ```
  }];
  let arguments = (ins Index:$thread, FlashAttn_ScheduleAttr:$schedule, UnitAttr:$half_rows);
  let regions = (region SizedRegion<1>:$region);
  let hasCustomAssemblyFormat = 1;
  let skipDefaultBuilders = 1;
  let builders = [
    // The region is one block with its terminator.
    OpBuilder<(ins "::mlir::Value":$thread, "::mlir::flashattn::ScheduleAttr":$schedule)>];
  let extraClassDeclaration = [{
    ::mlir::Block *getBody() { return &getRegion().front(); }
  }];
  let hasVerifier = 0;
}

def FlashAttn_TileYieldOp : Op<FlashAttn_Dialect, "tile_yield", [
    Pure, ReturnLike, Terminator,
    ParentOneOf<["ProgramOp", "OnThreadsOp", "TileLoopOp", "TileMaskOp", "WeightsOp"]>]> {
  let summary = "ends a region of the tile level";
  let description = [{
    Gives a `flashattn.tile_loop` the state after a step, a `flashattn.tile_mask` its value, a
    `flashattn.weights` the scores, and the others nothing.
  }];
  let arguments = (ins Variadic<AnyType>:$values);
  let builders = [OpBuilder<(ins), [{ build($_builder, $_state, ::mlir::ValueRange()); }]>];
  let assemblyFormat = "attr-dict ($values^ `:` type($values))?";
}

//===----------------------------------------------------------------------===//
// Tiles in memory
//===----------------------------------------------------------------------===//

/// What `flashattn.load_tile` and `flashattn.store_tile` say of the memref.
class FlashAttn_TileAccessOp<string mnemonic, list<Trait> traits>
    : FlashAttn_ProgramLevelOp<mnemonic, traits> {
  code accessDeclaration = [{
    /// The sizes of the tile along `dims`: `shape`, or those of the value.
    ::llvm::SmallVector<int64_t> getTileShape();
    /// The dimension of the memref that the rows go along, the inner one of several; nothing where
    /// the rows are all the same.
    ::std::optional<unsigned> getRowDim();
    /// Rows along `getRowDim()`.
    int64_t getInnerRows();
    /// Whether columns are those of one dimension of the memref, and rows of another or others.
    bool isDense() { return ::llvm::all_of(getDims(), [](int64_t dim) { return dim >= 0; }); }
  }];
}

def FlashAttn_LoadTileOp : FlashAttn_TileAccessOp<"load_tile", [
    MemoryEffects<[MemRead]>, OperandSegments]> {
  let summary = "a tile of a memref";
  let description = [{
    Reads the tile at `indices`, one for each dimension of `source`. The value's rows and columns go
    along the dimensions `dims`, on which **an index counts tiles**: tile 3 of 64 rows begins at row
    192. On the others it counts elements. `-1` in place of a dimension means that all rows, or all
    columns, are the same.

    Rows may go along several dimensions, as those of several heads do: `shape` then gives the sizes
    along each of `dims`, and the value has as many rows as all but the last make, the last of them
    next to each other.

    What lies past the end of a dimension reads as 0, where `in_bounds` does not say that nothing
    does; so do rows of `source` before `from` and from `below` on. With `ones` the tile has 8
    columns more than the memref, which read as 1 in every row: a product with them sums up.

    Rows need not follow each other in memory: those from `cuts[i]` on, counted from the first tile's
    first row, lie `skips[i]` rows further on. Both are multiples of 8, `kPieceRows`, and cuts do
    not decrease.

    Examples:

    ```mlir
    %k = flashattn.load_tile %keys[%b, %h, %j, %c0] dims [2, 3] below %length in_bounds [false, true]
        : memref<?x?x?x128xf16> -> vector<64x128xf16>
    %q = flashattn.load_tile %queries[%b, %h, %g, %t, %c0] dims [2, 3, 4] shape [4, 16, 128]
        in_bounds [false, false, true] : memref<?x?x?x?x128xf16> -> vector<64x128xf16>
    %bias = flashattn.load_tile %added[%b, %c0, %c0, %j] dims [-1, 3] in_bounds [true, false]
        : memref<?x1x1x?xf16> -> vector<64x64xf16>
    %joined = flashattn.load_tile %keys[%b, %h, %j, %c0] dims [2, 3] cuts(%c0, %n) skips(%c0, %hidden)
        in_bounds [false, true] : memref<?x?x?x128xf16> -> vector<64x128xf16>
    ```
  }];
  let arguments = (ins Arg<AnyMemRef, "", [MemRead]>:$source, Variadic<Index>:$indices,
                       Optional<Index>:$from, Optional<Index>:$below, Variadic<Index>:$cuts,
                       Variadic<Index>:$skips, DenseI64ArrayAttr:$dims,
                       OptionalAttr<DenseI64ArrayAttr>:$shape, DenseBoolArrayAttr:$inBounds,
                       UnitAttr:$ones);
  let results = (outs FlashAttn_TileVector:$tile);
  let assemblyFormat = [{
    $source `[` $indices `]` `dims` $dims (`shape` $shape^)? (`from` $from^)? (`below` $below^)?
    (`cuts` `(` $cuts^ `)` `skips` `(` $skips `)`)?
    `in_bounds` $inBounds (`ones` $ones^)? attr-dict `:` type($source) `->` type($tile)
  }];
  let builders = [OpBuilder<(ins "::mlir::Type":$tile, "::mlir::Value":$source,
                                 "::mlir::ValueRange":$indices, "::mlir::Value":$below,
                                 "::llvm::ArrayRef<int64_t>":$dims,
                                 "::mlir::DenseI64ArrayAttr":$shape,
                                 "::llvm::ArrayRef<bool>":$inBounds,
                                 CArg<"bool", "false">:$ones), [{
    build($_builder, $_state, tile, source, indices, /*from=*/::mlir::Value(), below,
          /*cuts=*/::mlir::ValueRange(), /*skips=*/::mlir::ValueRange(), dims, shape, inBounds, ones);
  }]>];
  let extraClassDeclaration = segments # accessDeclaration # [{
    /// Rows that follow each other in memory, whatever is cut: as many as a swizzle's period has.
    static constexpr int64_t kPieceRows = 8;
    /// Columns behind the memref's that `ones` adds: as few as products come with.
    static constexpr int64_t kOnes = 8;
    ::mlir::VectorType getTileType() { return ::llvm::cast<::mlir::VectorType>(getTile().getType()); }
    ::mlir::MemRefType getMemRefType() {
      return ::llvm::cast<::mlir::MemRefType>(getSource().getType());
    }
  }];
}

def FlashAttn_StoreTileOp : FlashAttn_TileAccessOp<"store_tile", [MemoryEffects<[MemWrite]>]> {
  let summary = "write a tile to a memref";
  let description = [{
    The counterpart of `flashattn.load_tile`, of a tile or, with one value a row, of its rows. What
    lies past the end of a dimension is not written.

    Examples:

    ```mlir
    flashattn.store_tile %o to %out[%b, %h, %t, %c0] dims [2, 3] in_bounds [false, true]
        : vector<64x128xf16>, memref<?x?x?x128xf16>
    flashattn.store_tile %lse to %sums[%b, %h, %t] dims [2] in_bounds [false]
        : vector<64xf32>, memref<?x?x?xf32>
    ```
  }];
  let arguments = (ins FlashAttn_TileVector:$tile, Arg<AnyMemRef, "", [MemWrite]>:$target,
                       Variadic<Index>:$indices, DenseI64ArrayAttr:$dims,
                       OptionalAttr<DenseI64ArrayAttr>:$shape, DenseBoolArrayAttr:$inBounds);
  let assemblyFormat = [{
    $tile `to` $target `[` $indices `]` `dims` $dims (`shape` $shape^)? `in_bounds` $inBounds attr-dict
    `:` type($tile) `,` type($target)
  }];
  let extraClassDeclaration = accessDeclaration # [{
    ::mlir::VectorType getTileType() { return ::llvm::cast<::mlir::VectorType>(getTile().getType()); }
    ::mlir::MemRefType getMemRefType() {
      return ::llvm::cast<::mlir::MemRefType>(getTarget().getType());
    }
  }];
}

def FlashAttn_Adjacent : ConfinedAttr<I64Attr, [IntPositivePowerOf2, IntMaxValue<4>]>;

def FlashAttn_AddTileOp : FlashAttn_ProgramLevelOp<"add_tile", [
    MemoryEffects<[MemRead, MemWrite]>, OperandSegments]> {
  let summary = "add a tile to what other programs add to as well";
  let description = [{
    Adds the tile to that at `indices` of `target`, whose last two dimensions have rows in whole tiles
    and the tile's columns; the last but one index counts tiles. Programs add in any order. With
    `order`, memref<... x T x i32> of an element for each tile:

    - where sums must not depend on the order, programs add in turns: it names whose `turn` it is, and
      whoever has added names the number behind its own;
    - without a `turn` the first program to come makes the tile zeros, whatever lies there, and the
      others wait until it has: it is 0 where none has come, 1 where one is at it and 2 from then on.

    Where an element of the tile lies within its place is the target's own affair: of `parts` parts
    of its columns, each as `rows x columns / parts` threads' accumulators have them, of the four
    that a thread has of 8 columns `adjacent` ones next to each other. Only `flashattn.load_added`
    reads them.

    Example:

    ```mlir
    flashattn.add_tile %dq to %sums[%b, %h, %t, %c0] parts 2
        : vector<64x128xf32>, memref<?x?x?x128xf32>
    flashattn.add_tile %dq to %sums[%b, %h, %t, %c0] parts 2 order %order : memref<?x?x?xi32>
        : vector<64x128xf32>, memref<?x?x?x128xf32>
    flashattn.add_tile %dq to %sums[%b, %h, %t, %c0] parts 2 order %order : memref<?x?x?xi32> turn %j
        : vector<64x128xf32>, memref<?x?x?x128xf32>
    ```
  }];
  let arguments = (ins VectorOfRankAndType<[2], [F32]>:$tile,
                       Arg<AnyMemRef, "", [MemRead, MemWrite]>:$target, Variadic<Index>:$indices,
                       Arg<Optional<MemRefOf<[I32]>>, "", [MemRead, MemWrite]>:$order,
                       Optional<Index>:$turn,
                       ConfinedAttr<I64Attr, [IntPositive]>:$parts,
                       DefaultValuedAttr<FlashAttn_Adjacent, "4">:$adjacent);
  let assemblyFormat = [{
    $tile `to` $target `[` $indices `]` `parts` $parts (`adjacent` $adjacent^)?
    (`order` $order^ `:` type($order))? (`turn` $turn^)? attr-dict `:` type($tile) `,` type($target)
  }];
  let extraClassDeclaration = segments;
}

def FlashAttn_LoadAddedOp : FlashAttn_ProgramLevelOp<"load_added", [MemoryEffects<[MemRead]>]> {
  let summary = "a tile that programs have added to";
  let description = [{
    What `flashattn.add_tile` of as many rows, columns, parts and adjacent elements has made of the
    place at `indices`.

    Example:

    ```mlir
    %dq = flashattn.load_added %sums[%b, %h, %t, %c0] parts 2
        : memref<?x?x?x128xf32> -> vector<64x128xf32>
    ```
  }];
  let arguments = (ins Arg<AnyMemRef, "", [MemRead]>:$source, Variadic<Index>:$indices,
                       ConfinedAttr<I64Attr, [IntPositive]>:$parts,
                       DefaultValuedAttr<FlashAttn_Adjacent, "4">:$adjacent);
  let results = (outs VectorOfRankAndType<[2], [F32]>:$tile);
  let assemblyFormat = [{
    $source `[` $indices `]` `parts` $parts (`adjacent` $adjacent^)? attr-dict `:` type($source) `->` type($tile)
  }];
}

/// An element of a memref that counts programs.
class FlashAttn_CountedOp<string mnemonic> : FlashAttn_ProgramLevelOp<mnemonic, [
    MemoryEffects<[MemRead, MemWrite]>]> {
  dag place = (ins Arg<MemRefOf<[I32]>, "", [MemRead, MemWrite]>:$counter, Variadic<Index>:$indices);
}

def FlashAttn_SignalAddedOp : FlashAttn_CountedOp<"signal_added"> {
  let summary = "tell that what a program adds is there";
  let description = [{
    At the end of a program whose steps add tiles (`flashattn.add_tile`): when all that it adds is in
    its place, the element of `counter` at `indices`, of 0 at first, is told so. It is
    `flashattn.await_added` that reads it.

    Example: `flashattn.signal_added %done[%b, %h] : memref<?x?xi32>`
  }];
  let arguments = place;
  let assemblyFormat = "$counter `[` $indices `]` attr-dict `:` type($counter)";
}

def FlashAttn_AwaitAddedOp : FlashAttn_CountedOp<"await_added"> {
  let summary = "wait until programs have added";
  let description = [{
    Waits until `programs` programs have told (`flashattn.signal_added`) the element of `counter` at
    `indices` that what they add is there. A program that `follows` them and has the op begins while
    the last of them run, and reads nothing else of theirs.

    Example: `flashattn.await_added %done[%b, %h] of %programs : memref<?x?xi32>`
  }];
  let arguments = !con(place, (ins Index:$programs));
  let assemblyFormat = "$counter `[` $indices `]` `of` $programs attr-dict `:` type($counter)";
}

//===----------------------------------------------------------------------===//
// Loops over tiles
//===----------------------------------------------------------------------===//

def FlashAttn_TileLoopOp : FlashAttn_ProgramLevelOp<"tile_loop", [
    RecursiveMemoryEffects, OperandSegments,
    SingleBlockImplicitTerminator<"TileYieldOp">]> {
  let summary = "a loop over the tiles of some intervals";
  let description = [{
    Runs the region for each tile of each interval in turn, with the state that the step before has
    yielded, `inits` at first. An interval is (begin, full begin, full end, end), in tiles:
    `begin <= full begin <= full end <= end` where it is not empty, and `[full begin, full end)` are
    full, which means that all pairs of a tile are visible and that it ends before the data does. The
    region is right for every tile; in a full one `flashattn.tile_mask` is true throughout, and
    nothing lies out of bounds along a dimension whose index is the tile's number.

    The region's arguments are the step's place, the number of its tile and the state. The two numbers
    are the same but with a `list`: then intervals count the places of its last dimension, which
    holds the tiles' numbers. Where `when` is false no step is run.

    With `rounds` all of this is done so many times, one round behind the other, and the round's
    number stands behind the tile's: the query heads that share a key/value head are such rounds.

    `flashattn.stage` splits a step into stages.

    Example:

    ```mlir
    %m2, %l2, %o2 = flashattn.tile_loop (%i, %j) in [(%b, %fb, %fe, %e)]
        iter_args(%m = %m0, %l = %l0, %o = %o0) -> (vector<64xf32>, vector<64x4xf32>, vector<64x64xf32>) {
      ...
      flashattn.tile_yield %m1, %l1, %o1 : vector<64xf32>, vector<64x4xf32>, vector<64x64xf32>
    }
    ```
  }];
  let arguments = (ins Variadic<Index>:$bounds, Optional<Index>:$rounds, Optional<AnyMemRef>:$list,
                       Variadic<Index>:$listIndices, Optional<I1>:$when,
                       Variadic<AnyType>:$inits);
  let results = (outs Variadic<AnyType>:$results);
  let regions = (region SizedRegion<1>:$region);
  let hasCustomAssemblyFormat = 1;
  let skipDefaultBuilders = 1;
  let builders = [
    // The region is one block with its arguments and no terminator. `bounds` are 4 for each interval;
    // `list`, `when` and `rounds` may be null.
    OpBuilder<(ins "::mlir::ValueRange":$bounds, "::mlir::Value":$list,
                   "::mlir::ValueRange":$listIndices, "::mlir::Value":$when,
                   "::mlir::ValueRange":$inits, CArg<"::mlir::Value", "{}">:$rounds)>];
  let extraClassDeclaration = segments # [{
    static constexpr unsigned kBoundsPerInterval = 4;
    ::mlir::Block *getBody() { return &getRegion().front(); }
    unsigned getNumIntervals() { return getBounds().size() / kBoundsPerInterval; }
    /// Begin, full begin, full end and end of interval `i`.
    ::mlir::ValueRange getInterval(unsigned i) {
      return getBounds().slice(i * kBoundsPerInterval, kBoundsPerInterval);
    }
    /// Where the step stands in its interval.
    ::mlir::BlockArgument getPlace() { return getBody()->getArgument(0); }
    /// The number of its tile.
    ::mlir::BlockArgument getTile() { return getBody()->getArgument(1); }
    /// The number of its round; null without `rounds`.
    ::mlir::Value getRound() {
      return getRounds() ? ::mlir::Value(getBody()->getArgument(2)) : ::mlir::Value();
    }
    ::llvm::MutableArrayRef<::mlir::BlockArgument> getState() {
      return getBody()->getArguments().drop_front(getRounds() ? 3 : 2);
    }
    ::mlir::ValueRange getYielded() { return getBody()->getTerminator()->getOperands(); }
  }];
}

def FlashAttn_StageOp : Op<FlashAttn_Dialect, "stage", [
    HasParent<"TileLoopOp">, MemoryEffects<[MemRead, MemWrite]>]> {
  let summary = "a new stage of a step begins";
  let description = [{
    What stands behind it, up to the next one, is a stage of its own. One with `lag` 1 may run a step
    later than the stages before it, right behind stage `behind` of that step, counted from 0; only
    stages behind it and the next step's may use its values. Where an empty one stands in front of a
    product's, the product's operand from other threads is waited for there. It has effects so that
    nothing moves across it.

    Example: `flashattn.stage lag 1 behind 2`
  }];
  let arguments = (ins DefaultValuedAttr<ConfinedAttr<I64Attr, [IntNonNegative, IntMaxValue<1>]>,
                                         "0">:$lag,
                       DefaultValuedAttr<ConfinedAttr<I64Attr, [IntNonNegative]>, "0">:$behind);
  let assemblyFormat = "(`lag` $lag^)? (`behind` $behind^)? attr-dict";
}

def FlashAttn_TileMaskOp : FlashAttn_ProgramLevelOp<"tile_mask", [
    RecursiveMemoryEffects, SingleBlockImplicitTerminator<"TileYieldOp">]> {
  let summary = "which pairs of the tile at hand are visible";
  let description = [{
    True throughout in a full tile of the loop around it; in any other what the region yields.

    Example:

    ```mlir
    %shown = flashattn.tile_mask -> vector<64x64xi1> {
      ...
      flashattn.tile_yield %visible : vector<64x64xi1>
    }
    ```
  }];
  let results = (outs VectorOfRankAndType<[2], [I1]>:$shown);
  let regions = (region SizedRegion<1>:$region);
  let assemblyFormat = "attr-dict `->` type($shown) $region";
  let extraClassDeclaration = [{
    ::mlir::Block *getBody() { return &getRegion().front(); }
  }];
}

//===----------------------------------------------------------------------===//
// Online softmax
//===----------------------------------------------------------------------===//

def FlashAttn_WeightsOp : FlashAttn_ProgramLevelOp<"weights", [
    RecursiveMemoryEffects, IsolatedFromAbove, SingleBlock, OperandSegments,
    AllTypesMatch<["old", "base"]>, AllTypesMatch<["scores", "weights"]>,
    RangedTypesMatchWith<"results are as the values", "values", "rescaled", "$_self">]> {
  let summary = "the weights of a tile's scores, and what was summed before against the same base";
  let description = [{
    `weights` are `exp2((scores - base) factor)`, where `base` is at least the largest of `old` and of
    the row's `scores`, less `growth / factor`: any base at all may be taken off the exponents of a row
    as long as its sum and output keep to the same one, and an old one does while no weight outgrows
    its type. Without `growth` it is the largest. Where it is -inf, in a row that has seen no key, the
    exponents are taken against 0. `factor` is positive. What was summed against `old`, `values`, is
    multiplied with `exp2((old - base) factor)`.

    `sums` has the sum of each row's weights by lanes: `lanes` threads share a row, and lane l has
    columns 2 l and 2 l + 1 of every 2 `lanes`.

    The base stays where none of the rows that a target judges together has outgrown it, and nothing
    is rescaled. It looks at the scores for that, before any weight is made; or, where the region
    yields the scores `again`, of other tiles, at the weights, and has those that outgrew the base made
    of these.

    Examples:

    ```mlir
    %p, %sums, %base, %l1, %o1 = flashattn.weights %s from %old factor(%c) growth 4.0 lanes 4
        rescale(%l, %o : vector<64x4xf32>, vector<64x128xf32>)
        : vector<64x64xf32>, vector<64xf32> -> vector<64x4xf32>
    %p, %sums, %base, %o1 = flashattn.weights %s from %old factor(%c) growth 8.0 lanes 4
        rescale(%o : vector<64x128xf32>) : vector<64x64xf32>, vector<64xf32> -> vector<64x4xf32>
        again(%q, %k : vector<64x128xf16>, vector<64x128xf16>) {
    ^bb0(%a: vector<64x128xf16>, %b: vector<64x128xf16>):
      %s2 = vector.contract ... %a, %b, %zero
      flashattn.tile_yield %s2 : vector<64x64xf32>
    }
    ```
  }];
  let arguments = (ins VectorOfRankAndType<[2], [F32]>:$scores,
                       VectorOfRankAndType<[1], [F32]>:$old,
                       F32:$factor,
                       OptionalAttr<F32Attr>:$growth,
                       ConfinedAttr<I64Attr, [IntPositive]>:$lanes,
                       Variadic<FlashAttn_TileVector>:$values,
                       Variadic<FlashAttn_TileVector>:$factors);
  let results = (outs VectorOfRankAndType<[2], [F32]>:$weights,
                      VectorOfRankAndType<[2], [F32]>:$sums,
                      VectorOfRankAndType<[1], [F32]>:$base,
                      Variadic<FlashAttn_TileVector>:$rescaled);
  let regions = (region MaxSizedRegion<1>:$again);
  let assemblyFormat = [{
    $scores `from` $old `factor` `(` $factor `)` (`growth` $growth^)? `lanes` $lanes
    (`rescale` `(` $values^ `:` type($values) `)`)? attr-dict
    `:` type($scores) `,` type($old) `->` type($sums)
    (`again` `(` $factors^ `:` type($factors) `)` $again)?
  }];
  let skipDefaultBuilders = 1;
  let builders = [
    OpBuilder<(ins "::mlir::Value":$scores, "::mlir::Value":$old, "::mlir::Value":$factor,
                   "::mlir::FloatAttr":$growth, "int64_t":$lanes, "::mlir::ValueRange":$values)>];
  let extraClassDeclaration = segments # [{
    /// Has the scores judged, and no region.
    void dropAgain();
  }];
}

#endif // FLASHATTN_PROGRAM_OPS_TD
