#ifndef FLASHATTN_PROGRAM_OPS_TD
#define FLASHATTN_PROGRAM_OPS_TD

// Tile programs: `flashattn-tile` replaces an op by a tile program, and each target distributes the
// program to threads. The operands and attributes of these ops hold everything that a pass needs to
// know about a program; the arithmetic between them is `arith`, `math` and `vector` on tile values,
// `vector<MxN>`.

include "mlir/IR/OpBase.td"
include "mlir/Interfaces/ControlFlowInterfaces.td"
include "mlir/Interfaces/SideEffectInterfaces.td"
include "flashattn/Dialect/FlashAttn/IR/FlashAttnAttrs.td"
include "flashattn/Dialect/FlashAttn/IR/FlashAttnInterfaces.td"
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
  let summary = "run independent programs, one for each point of an index space";
  let description = [{
    Runs the region once for each point of `sizes`, in any order and in parallel. The region's
    arguments are the coordinates of the point, counted from 0; `axes` names what each of them
    counts. With a `schedule`, the region is a tile program: a target distributes the rows of its
    tile values over the schedule's warps. Without one, it is ordinary code, which only the CPU
    runs.

    `pdl_primary` and `pdl_secondary` describe programmatic dependent launch. Programs with
    `pdl_primary` directly precede programs with `pdl_secondary`, which may start while the leading
    programs are still running, on a target where they can wait for the data that they need. The
    leading programs must not write the tiles that the following programs keep for their
    contractions, because these tiles are read first.

    With `unused_row_half`, the contents of rows 8 to 15 of every 16 rows of its tiles are never
    used, for example in a tile for few queries. A target need not compute them.

    Example:

    ```mlir
    flashattn.program (%b, %h, %t) in (%batches, %heads, %tiles) axes(batch, head, query_tile)
        schedule(<tile_m = 64, tile_n = 64, warps = 4, stages = 2, threads_per_row = 4, dot_type = f16>) {
      ...
    }
    ```
  }];
  let arguments = (ins Variadic<Index>:$sizes, FlashAttn_ProgramAxes:$axes,
                       OptionalAttr<FlashAttn_ScheduleAttr>:$schedule, UnitAttr:$pdl_secondary,
                       UnitAttr:$pdl_primary, UnitAttr:$unused_row_half);
  let regions = (region SizedRegion<1>:$region);
  let hasCustomAssemblyFormat = 1;
  let skipDefaultBuilders = 1;
  let builders = [
    // The region is one block, with the coordinates as arguments and a terminator.
    OpBuilder<(ins "::mlir::ValueRange":$sizes, "::llvm::ArrayRef<ProgramAxis>":$axes,
                   "::mlir::flashattn::ScheduleAttr":$schedule)>];
  let extraClassDeclaration = [{
    ::mlir::Block *getBody() { return &getRegion().front(); }
    /// The coordinates of a program, one for each axis.
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
  let summary = "run a tile program on the threads of its warps";
  let description = [{
    Replaces a `flashattn.program` inside a kernel: the threads of the schedule's warps run the
    region, and `thread` is the index of a thread among them. A tile value is spread over all
    threads; `flashattn-distribute` gives each thread its part. `unused_row_half` is that of the
    program.

    Example:

    ```mlir
    flashattn.on_threads %thread
        schedule(<tile_m = 64, tile_n = 64, warps = 4, stages = 2, threads_per_row = 4, dot_type = f16>) {
      ...
    }
    ```
  }];
  let arguments = (ins Index:$thread, FlashAttn_ScheduleAttr:$schedule, UnitAttr:$unused_row_half);
  let regions = (region SizedRegion<1>:$region);
  let hasCustomAssemblyFormat = 1;
  let skipDefaultBuilders = 1;
  let builders = [
    // The region is one block with a terminator.
    OpBuilder<(ins "::mlir::Value":$thread, "::mlir::flashattn::ScheduleAttr":$schedule)>];
  let extraClassDeclaration = [{
    ::mlir::Block *getBody() { return &getRegion().front(); }
  }];
  let hasVerifier = 0;
}

def FlashAttn_TileYieldOp : Op<FlashAttn_Dialect, "tile_yield", [
    Pure, ReturnLike, Terminator,
    ParentOneOf<["ProgramOp", "OnThreadsOp", "TileLoopOp", "TileMaskOp", "SoftmaxStepOp"]>]> {
  let summary = "terminate a region of a tile-level op";
  let description = [{
    Yields the state after a step to a `flashattn.tile_loop`, the value to a `flashattn.tile_mask`
    and the scores to a `flashattn.softmax_step`. The regions of the other ops yield nothing.
  }];
  let arguments = (ins Variadic<AnyType>:$values);
  let builders = [OpBuilder<(ins), [{ build($_builder, $_state, ::mlir::ValueRange()); }]>];
  let assemblyFormat = "attr-dict ($values^ `:` type($values))?";
}

//===----------------------------------------------------------------------===//
// Rows
//===----------------------------------------------------------------------===//

def FlashAttn_Rows : TypeDef<FlashAttn_Dialect, "Rows"> {
  let mnemonic = "rows";
  let summary = "where the rows of a sequence are in memory";
  let description = [{
    A map from the rows of a sequence of queries or keys to the rows of a memref. An op with
    `RowMapOpInterface` defines the value, so that every pass can look up the map.
  }];
}

class FlashAttn_RowMapOp<string mnemonic, list<Trait> traits = []>
    : FlashAttn_ProgramLevelOp<mnemonic, [
          Pure, DeclareOpInterfaceMethods<FlashAttn_RowMapOpInterface, [
            "getBegin", "getEnd", "getSegments", "getGranularity", "getRowShape", "buildWithoutBegin"]>] # traits> {
  let results = (outs FlashAttn_Rows:$rows);
}

def FlashAttn_DenseRowsOp : FlashAttn_RowMapOp<"dense_rows", [OperandSegments]> {
  let summary = "rows that are consecutive in memory";
  let description = [{
    Row r of the sequence is row r of memory. Rows before `from`, and from `below` on, do not exist:
    they read as 0.

    Example: `%rows = flashattn.dense_rows from %first below %length`
  }];
  let arguments = (ins Optional<Index>:$from, Optional<Index>:$below);
  let assemblyFormat = "(`from` $from^)? (`below` $below^)? attr-dict";
  let extraClassDeclaration = segments;
  let hasVerifier = 0;
}

def FlashAttn_CompactRowsOp : FlashAttn_RowMapOp<"compact_rows", [OperandSegments]> {
  let summary = "several ranges of rows as one sequence";
  let description = [{
    The sequence consists of segments, each consecutive in memory. Segment `i` starts at row
    `starts[i]` of the sequence, and `skips[i]` rows of memory lie between it and the segment before
    (or row 0 of memory). So row r of segment `i` is row `r + skips[0] + ... + skips[i]` of memory,
    which is at least `lower_bounds[i]`. Starts and skips are multiples of 8 (`kGranularity`), the
    period of a swizzle, and starts do not decrease. Rows of memory before `from`, and from `below`
    on, do not exist: they read as 0.

    Example: the keys below `%n`, and those from `%n + %hidden` on:

    ```mlir
    %rows = flashattn.compact_rows starts(%c0, %n) skips(%c0, %hidden) lower_bounds [0, 64]
    ```
  }];
  let arguments = (ins Optional<Index>:$from, Optional<Index>:$below, Variadic<Index>:$starts,
                       Variadic<Index>:$skips, DenseI64ArrayAttr:$lowerBounds);
  let assemblyFormat = [{
    (`from` $from^)? (`below` $below^)? `starts` `(` $starts `)` `skips` `(` $skips `)`
    `lower_bounds` $lowerBounds attr-dict
  }];
  let extraClassDeclaration = segments # [{
    /// Rows that are consecutive in memory for any segments.
    static constexpr int64_t kGranularity = 8;
  }];
}

def FlashAttn_PackedRowsOp : FlashAttn_RowMapOp<"packed_rows"> {
  let summary = "rows along several dimensions of memory";
  let description = [{
    The rows of a tile run along several dimensions of a memref, for example the queries of several
    heads (packed heads). `sizes` gives the size of a tile along each of them. The number of rows is
    the product of the sizes, and consecutive rows run along the last of the dimensions.

    Example: the tiles have 16 queries of each of 4 heads:

    ```mlir
    %rows = flashattn.packed_rows [4, 16]
    %q = flashattn.load_tile %queries[%b, %h, %g, %t, %c0] dims [2, 3, 4] rows %rows
        in_bounds [false, false, true] : memref<?x?x?x?x128xf16> -> vector<64x128xf16>
    ```
  }];
  let arguments = (ins DenseI64ArrayAttr:$sizes);
  let assemblyFormat = "$sizes attr-dict";
}

//===----------------------------------------------------------------------===//
// Tiles in memory
//===----------------------------------------------------------------------===//

/// An op that accesses a tile of a memref: `flashattn.load_tile` or `flashattn.store_tile`.
class FlashAttn_TileAccessOp<string mnemonic, list<Trait> traits>
    : FlashAttn_ProgramLevelOp<mnemonic, traits> {
  code accessDeclaration = [{
    /// The row map; null if the tile's rows are those of the memref.
    ::mlir::flashattn::RowMapOpInterface getRowMap() {
      return getRows() ? getRows().getDefiningOp<::mlir::flashattn::RowMapOpInterface>() : nullptr;
    }
    /// The sizes of the tile along `dims`.
    ::llvm::SmallVector<int64_t> getTileShape();
    /// The memref dimension along which the rows run (the innermost one if there are several), or
    /// nullopt if all rows are equal.
    ::std::optional<unsigned> getRowDim();
    /// The number of rows along `getRowDim()`.
    int64_t getInnerRows();
    /// Whether the columns run along one dimension of the memref, and the rows along one or more
    /// others.
    bool isDense() { return ::llvm::all_of(getDims(), [](int64_t dim) { return dim >= 0; }); }
  }];
}

def FlashAttn_LoadTileOp : FlashAttn_TileAccessOp<"load_tile", [
    MemoryEffects<[MemRead]>, OperandSegments]> {
  let summary = "read a tile of a memref";
  let description = [{
    Reads the tile at `indices`, which has one index for each dimension of `source`. The rows and
    columns of the value run along the dimensions `dims`. On these dimensions **an index counts
    tiles**: tile 3 of 64 rows begins at row 192. On the other dimensions it counts elements. `-1`
    in place of a dimension means that all rows, or all columns, are equal.

    With `rows`, the tile's rows are those of a sequence, which the row map places in memory; without
    it, they are consecutive, and all of them exist up to the end of the memref. If the rows run along
    several dimensions (`flashattn.packed_rows`), `dims` names all of them. Elements past the
    end of a dimension read as 0, unless `in_bounds` states that there are none, and so do rows that
    the row map leaves out. With `ones`, the tile has 8 more columns than the memref, which read as 1
    in every row; a product with them computes row sums.

    Examples:

    ```mlir
    %rows = flashattn.dense_rows below %length
    %k = flashattn.load_tile %keys[%b, %h, %j, %c0] dims [2, 3] rows %rows
        in_bounds [false, true] : memref<?x?x?x128xf16> -> vector<64x128xf16>
    %bias = flashattn.load_tile %added[%b, %c0, %c0, %j] dims [-1, 3] in_bounds [true, false]
        : memref<?x1x1x?xf16> -> vector<64x64xf16>
    ```
  }];
  let arguments = (ins Arg<AnyMemRef, "", [MemRead]>:$source, Variadic<Index>:$indices,
                       Optional<FlashAttn_Rows>:$rows, DenseI64ArrayAttr:$dims,
                       DenseBoolArrayAttr:$inBounds,
                       UnitAttr:$ones);
  let results = (outs FlashAttn_TileVector:$tile);
  let assemblyFormat = [{
    $source `[` $indices `]` `dims` $dims (`rows` $rows^)? `in_bounds` $inBounds (`ones` $ones^)? attr-dict `:` type($source) `->` type($tile)
  }];
  let builders = [OpBuilder<(ins "::mlir::Type":$tile, "::mlir::Value":$source,
                                 "::mlir::ValueRange":$indices, "::llvm::ArrayRef<int64_t>":$dims,
                                 "::llvm::ArrayRef<bool>":$inBounds,
                                 CArg<"::mlir::Value", "{}">:$rows,
                                 CArg<"bool", "false">:$ones), [{
    build($_builder, $_state, tile, source, indices, rows, dims, inBounds, ones);
  }]>];
  let extraClassDeclaration = segments # accessDeclaration # [{
    /// The row of memory from which on rows exist, and the one up to which they do; null if the
    /// memref begins, or ends, there.
    ::mlir::Value getBeginRow();
    ::mlir::Value getEndRow();
    /// Replaces the row map by one without rows in front of the first that exists.
    void dropBeginRow(::mlir::OpBuilder &builder);
    /// The segments of the row map.
    ::llvm::SmallVector<::mlir::flashattn::RowSegment> getSegments();
    /// The number of columns that `ones` adds after those of the memref: the smallest number that
    /// products support.
    static constexpr int64_t kOnes = 8;
    ::mlir::VectorType getTileType() { return ::llvm::cast<::mlir::VectorType>(getTile().getType()); }
    ::mlir::MemRefType getMemRefType() {
      return ::llvm::cast<::mlir::MemRefType>(getSource().getType());
    }
  }];
}

def FlashAttn_StoreTileOp : FlashAttn_TileAccessOp<"store_tile", [
    MemoryEffects<[MemWrite]>, OperandSegments]> {
  let summary = "write a tile to a memref";
  let description = [{
    The counterpart of `flashattn.load_tile`, for a tile or, with one value per row, for its rows.
    Elements past the end of a dimension are not written. The row map must not leave out rows.

    Examples:

    ```mlir
    flashattn.store_tile %o to %out[%b, %h, %t, %c0] dims [2, 3] in_bounds [false, true]
        : vector<64x128xf16>, memref<?x?x?x128xf16>
    flashattn.store_tile %lse to %sums[%b, %h, %t] dims [2] in_bounds [false]
        : vector<64xf32>, memref<?x?x?xf32>
    ```
  }];
  let arguments = (ins FlashAttn_TileVector:$tile, Arg<AnyMemRef, "", [MemWrite]>:$target,
                       Variadic<Index>:$indices, Optional<FlashAttn_Rows>:$rows,
                       DenseI64ArrayAttr:$dims, DenseBoolArrayAttr:$inBounds);
  let builders = [OpBuilder<(ins "::mlir::Value":$tile, "::mlir::Value":$target,
                                 "::mlir::ValueRange":$indices, "::llvm::ArrayRef<int64_t>":$dims,
                                 "::llvm::ArrayRef<bool>":$inBounds,
                                 CArg<"::mlir::Value", "{}">:$rows), [{
    build($_builder, $_state, tile, target, indices, rows, dims, inBounds);
  }]>];
  let assemblyFormat = [{
    $tile `to` $target `[` $indices `]` `dims` $dims (`rows` $rows^)? `in_bounds` $inBounds attr-dict
    `:` type($tile) `,` type($target)
  }];
  let extraClassDeclaration = segments # accessDeclaration # [{
    ::mlir::VectorType getTileType() { return ::llvm::cast<::mlir::VectorType>(getTile().getType()); }
    ::mlir::MemRefType getMemRefType() {
      return ::llvm::cast<::mlir::MemRefType>(getTarget().getType());
    }
  }];
}

def FlashAttn_Adjacent : ConfinedAttr<I64Attr, [IntPositivePowerOf2, IntMaxValue<4>]>;

def FlashAttn_AddTileOp : FlashAttn_ProgramLevelOp<"add_tile", [
    MemoryEffects<[MemRead, MemWrite]>, OperandSegments]> {
  let summary = "add a tile to a sum that other programs add to";
  let description = [{
    Adds the tile to the tile at `indices` of `target`. The last two dimensions of `target` are
    rows, a whole number of tiles, and the columns of the tile; the last but one index counts tiles.
    Programs add in any order. `order`, a `memref<... x T x i32>` with one element per tile, has two
    uses:

    - With a `turn`, programs add in turns, so that sums do not depend on the order of execution:
      the element is the turn of the program that may add, and a program that has added sets it to
      the next turn.
    - Without a `turn`, the first program that arrives sets the tile to zero, whatever it contains,
      and the others wait until it has done so: the element is 0 if no program has arrived, 1 while
      the first one clears the tile, and 2 from then on.

    The target defines the order of the elements in memory; only `flashattn.load_added` reads them.
    The columns are divided into `parts`. Each part is stored in the order in which the accumulators
    of a tile of `rows x columns / parts` elements are distributed to threads: a thread has four
    elements in each 8 columns, `adjacent` of which are contiguous.

    Example:

    ```mlir
    flashattn.add_tile %dq to %sums[%b, %h, %t, %c0] parts 2
        : vector<64x128xf32>, memref<?x?x?x128xf32>
    flashattn.add_tile %dq to %sums[%b, %h, %t, %c0] parts 2 order %order : memref<?x?x?xi32>
        : vector<64x128xf32>, memref<?x?x?x128xf32>
    flashattn.add_tile %dq to %sums[%b, %h, %t, %c0] parts 2 order %order : memref<?x?x?xi32>
        turn %j : vector<64x128xf32>, memref<?x?x?x128xf32>
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
  let summary = "read a tile that programs have added to";
  let description = [{
    Reads the tile at `indices` that `flashattn.add_tile` ops with the same numbers of rows,
    columns, parts and adjacent elements have accumulated.

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

/// An op on an element of a memref that counts programs.
class FlashAttn_CountedOp<string mnemonic> : FlashAttn_ProgramLevelOp<mnemonic, [
    MemoryEffects<[MemRead, MemWrite]>]> {
  dag place = (ins Arg<MemRefOf<[I32]>, "", [MemRead, MemWrite]>:$counter, Variadic<Index>:$indices);
}

def FlashAttn_SignalAddedOp : FlashAttn_CountedOp<"signal_added"> {
  let summary = "signal that all contributions of a program have been added";
  let description = [{
    Used at the end of a program whose steps add tiles (`flashattn.add_tile`). Once all that the
    program adds is in memory, the op counts the program in the element of `counter` at `indices`,
    which is initially 0. `flashattn.await_added` reads the counter.

    Example: `flashattn.signal_added %done[%b, %h] : memref<?x?xi32>`
  }];
  let arguments = place;
  let assemblyFormat = "$counter `[` $indices `]` attr-dict `:` type($counter)";
}

def FlashAttn_AwaitAddedOp : FlashAttn_CountedOp<"await_added"> {
  let summary = "wait until programs have added their contributions";
  let description = [{
    Waits until `programs` programs have signaled (`flashattn.signal_added`) through the element of
    `counter` at `indices`. A program with `pdl_secondary` and this op starts while the last of
    those programs are still running; it must read nothing else that they write.

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
  let summary = "loop over the tiles of some intervals";
  let description = [{
    Runs the region for each tile of each interval in turn, with the state that the previous step
    has yielded, and with `inits` in the first step. An interval is (begin, full begin, full end,
    end), in tiles, with `begin <= full begin <= full end <= end` if it is not empty. The tiles in
    `[full begin, full end)` are full: all pairs of a full tile are visible, and it lies entirely
    within the data. The region is correct for every tile. In a full tile, `flashattn.tile_mask` is
    true for all pairs, and no element is out of bounds along a dimension whose index is the tile's
    number.

    The region's arguments are the place of the step, the number of its tile, and the state. Place
    and number are equal unless there is a `list`. With a `list`, intervals count the places of its
    last dimension, which holds the numbers of the tiles. If `when` is false, no step is run.

    With `rounds`, the loop is run that many times in sequence, and the number of the round is an
    additional argument after that of the tile. The query heads that share a key/value head are an
    example of rounds.

    `flashattn.stage` splits a step into stages.

    Example:

    ```mlir
    %m2, %l2, %o2 = flashattn.tile_loop (%i, %j) in [(%b, %fb, %fe, %e)]
        iter_args(%m = %m0, %l = %l0, %o = %o0)
        -> (vector<64xf32>, vector<64x4xf32>, vector<64x64xf32>) {
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
    // The region is one block with its arguments and no terminator. There are 4 `bounds` for each
    // interval; `list`, `when` and `rounds` may be null.
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
    /// The place of the step in its interval.
    ::mlir::BlockArgument getPlace() { return getBody()->getArgument(0); }
    /// The number of the step's tile.
    ::mlir::BlockArgument getTile() { return getBody()->getArgument(1); }
    /// The number of the step's round; null without `rounds`.
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
  let summary = "begin a new stage of a step";
  let description = [{
    The ops after this one, up to the next `flashattn.stage`, are one stage. A stage with `lag` 1
    may run one step later than the stages before it, directly after stage `behind` (counted from 0)
    of that later step; only later stages and the next step may use its values. If the stage before
    that of a product is empty, the wait for an operand that other threads compute is placed in the
    empty stage. The op has side effects so that nothing moves across it.

    Example: `flashattn.stage lag 1 behind 2`
  }];
  let arguments = (ins DefaultValuedAttr<ConfinedAttr<I64Attr, [IntNonNegative, IntMaxValue<1>]>,
                                         "0">:$lag,
                       DefaultValuedAttr<ConfinedAttr<I64Attr, [IntNonNegative]>, "0">:$behind);
  let assemblyFormat = "(`lag` $lag^)? (`behind` $behind^)? attr-dict";
}

def FlashAttn_TileMaskOp : FlashAttn_ProgramLevelOp<"tile_mask", [
    RecursiveMemoryEffects, SingleBlockImplicitTerminator<"TileYieldOp">]> {
  let summary = "which pairs of the current tile are visible";
  let description = [{
    Is true for all pairs in a full tile of the enclosing loop. In any other tile it is the value
    that the region yields.

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

def FlashAttn_SoftmaxStepOp : FlashAttn_ProgramLevelOp<"softmax_step", [
    RecursiveMemoryEffects, IsolatedFromAbove, SingleBlock, OperandSegments,
    AllTypesMatch<["old", "base"]>, AllTypesMatch<["scores", "weights"]>,
    RangedTypesMatchWith<"results are as the values", "values", "rescaled", "$_self">]> {
  let summary = "softmax weights of a tile's scores, and earlier sums rescaled to the same base";
  let description = [{
    Computes one step of the online softmax. `weights`, which are unnormalized probabilities, are
    `exp2((scores - base) factor)`. `base` is at least the maximum of `old` and of the row's
    `scores`, less `threshold / factor`. Any base may be subtracted from the exponents of a row, as
    long as the row's sum and output use the same one, so an old base can be kept while no weight
    exceeds the range of its type. Without `threshold`, `base` is the maximum. If it is -inf, in a
    row that has seen no key, the exponents are computed against 0. `factor` is positive. `values`,
    which were summed against `old`, are multiplied by `exp2((old - base) factor)` and returned as
    `rescaled`.

    `sums` contains the sum of each row's weights by lanes: `threads_per_row` threads share a row,
    and lane l has columns 2 l and 2 l + 1 of every 2 `threads_per_row` columns.

    If none of the rows that a target evaluates together has outgrown the base, the base is kept and
    nothing is rescaled. By default the target decides this from the scores, before it computes any
    weight. If there is a region `recompute`, it decides from the weights. If some have outgrown the
    base, the region computes the scores a second time, from tiles that it takes as operands, and
    the weights are computed again from these scores.

    Examples:

    ```mlir
    %p, %sums, %base, %l1, %o1 = flashattn.softmax_step %s from %old factor(%c) threshold 4.0 threads_per_row 4
        rescale(%l, %o : vector<64x4xf32>, vector<64x128xf32>)
        : vector<64x64xf32>, vector<64xf32> -> vector<64x4xf32>
    %p, %sums, %base, %o1 = flashattn.softmax_step %s from %old factor(%c) threshold 8.0 threads_per_row 4
        rescale(%o : vector<64x128xf32>) : vector<64x64xf32>, vector<64xf32> -> vector<64x4xf32>
        recompute(%q, %k : vector<64x128xf16>, vector<64x128xf16>) {
    ^bb0(%a: vector<64x128xf16>, %b: vector<64x128xf16>):
      %s2 = vector.contract ... %a, %b, %zero
      flashattn.tile_yield %s2 : vector<64x64xf32>
    }
    ```
  }];
  let arguments = (ins VectorOfRankAndType<[2], [F32]>:$scores,
                       VectorOfRankAndType<[1], [F32]>:$old,
                       F32:$factor,
                       OptionalAttr<F32Attr>:$threshold,
                       ConfinedAttr<I64Attr, [IntPositive]>:$threads_per_row,
                       Variadic<FlashAttn_TileVector>:$values,
                       Variadic<FlashAttn_TileVector>:$factors);
  let results = (outs VectorOfRankAndType<[2], [F32]>:$weights,
                      VectorOfRankAndType<[2], [F32]>:$sums,
                      VectorOfRankAndType<[1], [F32]>:$base,
                      Variadic<FlashAttn_TileVector>:$rescaled);
  let regions = (region MaxSizedRegion<1>:$recompute);
  let assemblyFormat = [{
    $scores `from` $old `factor` `(` $factor `)` (`threshold` $threshold^)? `threads_per_row` $threads_per_row
    (`rescale` `(` $values^ `:` type($values) `)`)? attr-dict
    `:` type($scores) `,` type($old) `->` type($sums)
    (`recompute` `(` $factors^ `:` type($factors) `)` $recompute)?
  }];
  let skipDefaultBuilders = 1;
  let builders = [
    OpBuilder<(ins "::mlir::Value":$scores, "::mlir::Value":$old, "::mlir::Value":$factor,
                   "::mlir::FloatAttr":$threshold, "int64_t":$threadsPerRow, "::mlir::ValueRange":$values)>];
  let extraClassDeclaration = segments # [{
    /// Removes the region, so that the decision to rescale is based on the scores.
    void dropAgain();
  }];
}

#endif // FLASHATTN_PROGRAM_OPS_TD
