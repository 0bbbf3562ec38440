#ifndef FLASHATTN_PROGRAM_OPS_TD
#define FLASHATTN_PROGRAM_OPS_TD

// Tile programs: `flashattn-tile` replaces an op by a tile program, and each target distributes the
// program to threads. The operands and attributes of these ops contain all information that passes
// need about a program. The arithmetic in between consists of `arith`, `math` and `vector` ops on
// tile values, `vector<MxN>`.

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
// Spaces of work items
//===----------------------------------------------------------------------===//

def FlashAttn_ProgramAxes : TypedArrayAttrBase<FlashAttn_ProgramAxisAttr, "axes of a tile program">;

def FlashAttn_Space : TypeDef<FlashAttn_Dialect, "Space"> {
  let mnemonic = "space";
  let summary = "the work items of a program";
  let description = [{
    The items of work that `flashattn.program` runs its region for. An op with `SpaceOpInterface`
    defines the value, so that every pass can look up the space.
  }];
}

class FlashAttn_SpaceOp<string mnemonic>
    : FlashAttn_ProgramLevelOp<mnemonic, [Pure, FlashAttn_SpaceOpInterface]> {
  let results = (outs FlashAttn_Space:$space);
}

def FlashAttn_DenseSpaceOp : FlashAttn_SpaceOp<"dense_space"> {
  let summary = "one item for each point of a box";
  let description = [{
    The items are the points of a box of `sizes`, counted from 0 along each axis. `axes` names what
    each coordinate counts.

    Example:

    ```mlir
    %space = flashattn.dense_space(%batches, %heads, %tiles) axes(batch, head, query_tile)
    ```
  }];
  let arguments = (ins Variadic<Index>:$sizes, FlashAttn_ProgramAxes:$axes);
  let assemblyFormat = "`(` $sizes `)` `axes` `(` custom<ProgramAxes>($axes) `)` attr-dict";
  let builders = [OpBuilder<(ins "::mlir::ValueRange":$sizes, "::llvm::ArrayRef<ProgramAxis>":$axes)>];
  let extraClassDeclaration = [{
    ::std::optional<::mlir::flashattn::RaggedAxes> getRagged() { return ::std::nullopt; }
  }];
}

def FlashAttn_RaggedSpaceOp : FlashAttn_SpaceOp<"ragged_space"> {
  let summary = "items of segments of rows that differ in length";
  let description = [{
    The first and the last axis are ragged. `starts`, with n elements, divides rows into n + 1
    segments: segment i consists of the rows from `starts[i-1]` on (from row 0 for segment 0) up to
    `starts[i]` (to the last row for segment n). Each segment is divided into tiles of `rows` rows.
    The first coordinate of an item is a segment, and the last one is the number of a tile in it.

    The first size is 1, and the last one is `(N / W + n + 1) * tiles`, with the number of rows N
    and `W = rows * tiles`. The points of segment i are numbered from
    `(starts[i-1] / W + i) * tiles` on. There may be tiles past the last row of a segment. Segments
    that begin at whole multiples of W rows in another memref can be found in this way, too. Starts
    that decrease are clamped, so that each number is still a tile of one segment. With `least`, the
    items of a segment of fewer rows, unless it is the first or the last, have no effect, and a
    target may leave them out.

    Example:

    ```mlir
    %space = flashattn.ragged_space(%one, %heads, %tiles) axes(batch, head, query_tile)
        starts %starts rows 64 tiles 1 : memref<?xi32>
    ```
  }];
  let arguments = (ins Variadic<Index>:$sizes, FlashAttn_ProgramAxes:$axes,
                       MemRefRankOf<[I32], [1]>:$starts,
                       ConfinedAttr<I64Attr, [IntPositive]>:$rows,
                       ConfinedAttr<I64Attr, [IntPositive]>:$tiles,
                       DefaultValuedAttr<ConfinedAttr<I64Attr, [IntPositive]>, "1">:$least);
  let assemblyFormat = [{
    `(` $sizes `)` `axes` `(` custom<ProgramAxes>($axes) `)` `starts` $starts `rows` $rows
    `tiles` $tiles (`least` $least^)? attr-dict `:` type($starts)
  }];
  let builders = [OpBuilder<(ins "::mlir::ValueRange":$sizes, "::llvm::ArrayRef<ProgramAxis>":$axes,
                                 "const ::mlir::flashattn::RaggedAxes &":$ragged)>];
  let extraClassDeclaration = [{
    ::std::optional<::mlir::flashattn::RaggedAxes> getRagged() {
      return RaggedAxes{getStarts(), static_cast<int64_t>(getRows()),
                        static_cast<int64_t>(getTiles()), static_cast<int64_t>(getLeast())};
    }
  }];
}

//===----------------------------------------------------------------------===//
// Programs
//===----------------------------------------------------------------------===//

def FlashAttn_ProgramOp : FlashAttn_ProgramLevelOp<"program", [
    RecursiveMemoryEffects, AutomaticAllocationScope,
    SingleBlockImplicitTerminator<"TileYieldOp">]> {
  let summary = "run independent programs, one for each item of a space";
  let description = [{
    Runs the region once for each item of `space`, in any order and in parallel. The region's
    arguments are the coordinates of the item, counted from 0. With a `schedule`, the region is a
    tile program: a target distributes the rows of its tile values over the schedule's warps.
    Without a schedule, the region is ordinary code, which runs only on the CPU.

    `pdl_primary` and `pdl_secondary` describe programmatic dependent launch. Programs with
    `pdl_primary` (primary programs) directly precede programs with `pdl_secondary` (secondary
    programs). If the target supports it, secondary programs start while primary programs are still
    running, and wait for the data that they need. Primary programs must not write the resident
    tiles of secondary programs (the tiles that contractions use in all steps), because these tiles
    are loaded before the wait.

    With `unused_row_half`, rows 8 to 15 of every 16 rows of the program's tiles are never used, for
    example in a decode tile. A target need not compute these rows.

    Example:

    ```mlir
    %space = flashattn.dense_space(%batches, %heads, %tiles) axes(batch, head, query_tile)
    flashattn.program (%b, %h, %t) in %space
        schedule(<tile_m = 64, tile_n = 64, stages = 2, dot_type = f16,
                  mapping = mma_sync<warps = 4>>) {
      ...
    }
    ```
  }];
  let arguments = (ins FlashAttn_Space:$space, OptionalAttr<FlashAttn_ScheduleAttr>:$schedule,
                       UnitAttr:$pdl_secondary, UnitAttr:$pdl_primary, UnitAttr:$unused_row_half);
  let regions = (region SizedRegion<1>:$region);
  let hasCustomAssemblyFormat = 1;
  let skipDefaultBuilders = 1;
  let builders = [
    // Creates the region with one block, whose arguments are the coordinates, and a terminator.
    OpBuilder<(ins "::mlir::Value":$space, "::mlir::flashattn::ScheduleAttr":$schedule)>,
    // Creates the dense space of the program, too.
    OpBuilder<(ins "::mlir::ValueRange":$sizes, "::llvm::ArrayRef<ProgramAxis>":$axes,
                   "::mlir::flashattn::ScheduleAttr":$schedule)>];
  let extraClassDeclaration = [{
    ::mlir::Block *getBody() { return &getRegion().front(); }
    /// Returns the coordinates of an item, one for each axis.
    ::llvm::MutableArrayRef<::mlir::BlockArgument> getNumbers() {
      return getBody()->getArguments();
    }
    ::mlir::flashattn::SpaceOpInterface getSpaceOp() {
      return getSpace().getDefiningOp<::mlir::flashattn::SpaceOpInterface>();
    }
    ::mlir::OperandRange getSizes() { return getSpaceOp().getSizes(); }
    ::mlir::ArrayAttr getAxes() { return getSpaceOp().getAxes(); }
    ::std::optional<::mlir::flashattn::RaggedAxes> getRagged() {
      return getSpaceOp().getRagged();
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
    region, and `thread` is the index of a thread among these threads. A tile value is distributed
    over all threads; `flashattn-distribute` replaces it by the fragment of one thread.
    `unused_row_half` is that of the program.

    Example:

    ```mlir
    flashattn.on_threads %thread
        schedule(<tile_m = 64, tile_n = 64, stages = 2, dot_type = f16,
                  mapping = mma_sync<warps = 4>>) {
      ...
    }
    ```
  }];
  let arguments = (ins Index:$thread, FlashAttn_ScheduleAttr:$schedule, UnitAttr:$unused_row_half);
  let regions = (region SizedRegion<1>:$region);
  let hasCustomAssemblyFormat = 1;
  let skipDefaultBuilders = 1;
  let builders = [
    // Creates the region with one block and a terminator.
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
    Yields the next state to a `flashattn.tile_loop`, the mask to a `flashattn.tile_mask` and the
    recomputed scores to a `flashattn.softmax_step`. The regions of the other ops yield nothing.
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
            "getBegin", "getEnd", "getSegments", "getGranularity", "getRowShape", "getPages",
            "buildWithoutBegin"]>] # traits> {
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

def FlashAttn_PagedRowsOp : FlashAttn_RowMapOp<"paged_rows", [OperandSegments]> {
  let summary = "rows in the pages of a pool";
  let description = [{
    The memref is a pool: its first dimension counts pages, and its rows run along the `size` rows
    of a page. Row r of the sequence is row `(first + r) mod size` of page
    `table[sequence, (first + r) floordiv size]`; `first` is 0 by default. Only pages of the
    sequence from `begins[i]` to `ends[i]`, for some `i`, exist: rows of other pages read as 0, and
    the table is not used for them. Rows before `from`, and from `below` on, do not exist either.

    A tile of such rows is accessed at index 0 of the pages.

    Example:

    ```mlir
    %rows = flashattn.paged_rows below %length in %table[%b] size 64 from_pages(%c0) to_pages(%n)
        : memref<?x?xi32>
    ```
  }];
  let arguments = (ins Optional<Index>:$from, Optional<Index>:$below,
                       Optional<Index>:$first, MemRefRankOf<[I32], [2]>:$table, Index:$sequence,
                       ConfinedAttr<I64Attr, [IntPositive]>:$size, Variadic<Index>:$begins,
                       Variadic<Index>:$ends);
  let assemblyFormat = [{
    (`from` $from^)? (`below` $below^)? (`first` $first^)? `in` $table `[` $sequence `]` `size` $size
    `from_pages` `(` $begins `)` `to_pages` `(` $ends `)` attr-dict `:` type($table)
  }];
  let extraClassDeclaration = segments;
}

//===----------------------------------------------------------------------===//
// Tiles in memory
//===----------------------------------------------------------------------===//

/// An op that accesses a tile of a memref: `flashattn.load_tile` or `flashattn.store_tile`.
class FlashAttn_TileAccessOp<string mnemonic, list<Trait> traits>
    : FlashAttn_ProgramLevelOp<mnemonic, traits> {
  code accessDeclaration = [{
    /// Returns the row map; null if the rows of the tile are those of the memref, in order.
    ::mlir::flashattn::RowMapOpInterface getRowMap() {
      return getRows() ? getRows().getDefiningOp<::mlir::flashattn::RowMapOpInterface>() : nullptr;
    }
    /// Returns the sizes of the tile along `dims`.
    ::llvm::SmallVector<int64_t> getTileShape();
    /// Returns the memref dimension along which the rows run (the innermost one if there are
    /// several), or nullopt if the rows are broadcast.
    ::std::optional<unsigned> getRowDim();
    /// Returns the number of rows along `getRowDim()`.
    int64_t getInnerRows();
    /// Whether neither rows nor columns are broadcast: the columns run along one dimension of the
    /// memref, and the rows along one or more other dimensions.
    bool isDense() { return ::llvm::all_of(getDims(), [](int64_t dim) { return dim >= 0; }); }
  }];
}

def FlashAttn_LoadTileOp : FlashAttn_TileAccessOp<"load_tile", [
    MemoryEffects<[MemRead]>, OperandSegments]> {
  let summary = "load a tile of a memref";
  let description = [{
    Loads the tile at `indices`, one index for each dimension of `source`. The rows and columns of
    the value run along the dimensions `dims`. In these dimensions **an index counts tiles**: tile 3
    of 64 rows begins at row 192. In the other dimensions it counts elements. `-1` instead of a
    dimension means that the value is broadcast along its rows, or columns.

    `rows` is a row map, which defines where the rows of the sequence are in memory. Without it, the
    rows of the sequence are the rows of `source`, in order. If rows run along several dimensions
    (`flashattn.packed_rows`), `dims` lists all of them.

    Elements past the end of a dimension read as 0, unless `in_bounds` states that there are none.
    Rows that do not exist in the row map read as 0 too. With `ones`, the tile has 8 more columns
    than the memref, which are 1 in every row, so that a product with the tile also computes row
    sums.

    A tile of floats may be loaded from elements of 8 bits (F1), which are converted. `scales` is
    a memref of f32 with the rank of `source`. Its last dimension has a factor for each block of the
    columns, and every other dimension is that of `source`, or has static size 1 and is broadcast.
    Each element is multiplied by its factor, and the product is rounded to the type of the tile.

    Examples:

    ```mlir
    %rows = flashattn.dense_rows below %length
    %k = flashattn.load_tile %keys[%b, %h, %j, %c0] dims [2, 3] rows %rows
        in_bounds [false, true] : memref<?x?x?x128xf16> -> vector<64x128xf16>
    %bias = flashattn.load_tile %added[%b, %c0, %c0, %j] dims [-1, 3] in_bounds [true, false]
        : memref<?x1x1x?xf16> -> vector<64x64xf16>
    %v = flashattn.load_tile %values[%b, %h, %j, %c0] dims [2, 3] rows %rows
        scales %factors : memref<?x?x?x4xf32>
        in_bounds [false, true] : memref<?x?x?x128xf8E4M3FN> -> vector<64x128xf16>
    ```
  }];
  let arguments = (ins Arg<AnyMemRef, "", [MemRead]>:$source, Variadic<Index>:$indices,
                       Optional<FlashAttn_Rows>:$rows,
                       Arg<Optional<AnyMemRef>, "", [MemRead]>:$scales, DenseI64ArrayAttr:$dims,
                       DenseBoolArrayAttr:$inBounds,
                       UnitAttr:$ones);
  let results = (outs FlashAttn_TileVector:$tile);
  let assemblyFormat = [{
    $source `[` $indices `]` `dims` $dims (`rows` $rows^)? (`scales` $scales^ `:` type($scales))?
    `in_bounds` $inBounds (`ones` $ones^)? attr-dict `:` type($source) `->` type($tile)
  }];
  let builders = [OpBuilder<(ins "::mlir::Type":$tile, "::mlir::Value":$source,
                                 "::mlir::ValueRange":$indices, "::llvm::ArrayRef<int64_t>":$dims,
                                 "::llvm::ArrayRef<bool>":$inBounds,
                                 CArg<"::mlir::Value", "{}">:$rows,
                                 CArg<"bool", "false">:$ones,
                                 CArg<"::mlir::Value", "{}">:$scales), [{
    build($_builder, $_state, tile, source, indices, rows, scales, dims, inBounds, ones);
  }]>];
  let extraClassDeclaration = segments # accessDeclaration # [{
    /// Returns the begin and the end of the rows of memory that exist; null if it is that of the
    /// memref.
    ::mlir::Value getBeginRow();
    ::mlir::Value getEndRow();
    /// Replaces the row map by the same map without `getBegin()`.
    void dropBeginRow(::mlir::OpBuilder &builder);
    /// Returns the segments of the row map.
    ::llvm::SmallVector<::mlir::flashattn::RowSegment> getSegments();
    /// Returns the pages of the row map.
    ::std::optional<::mlir::flashattn::PageMap> getPages();
    /// Whether elements of 8 bits are converted to the type of the tile.
    bool converts() {
      return getTileType().getElementType() != getMemRefType().getElementType();
    }
    /// Number of columns that `ones` appends to the columns of the memref: the smallest number that
    /// matrix products support.
    static constexpr int64_t kOnes = 8;
    ::mlir::VectorType getTileType() {
      return ::llvm::cast<::mlir::VectorType>(getTile().getType());
    }
    ::mlir::MemRefType getMemRefType() {
      return ::llvm::cast<::mlir::MemRefType>(getSource().getType());
    }
  }];
}

def FlashAttn_StoreTileOp : FlashAttn_TileAccessOp<"store_tile", [
    MemoryEffects<[MemWrite]>, OperandSegments]> {
  let summary = "store a tile to a memref";
  let description = [{
    The counterpart of `flashattn.load_tile`. The value is a tile, or a vector with one element per
    row. Elements past the end of a dimension are not written. All rows of the row map must exist,
    in order.

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
    $tile `to` $target `[` $indices `]` `dims` $dims (`rows` $rows^)? `in_bounds` $inBounds
    attr-dict `:` type($tile) `,` type($target)
  }];
  let extraClassDeclaration = segments # accessDeclaration # [{
    ::mlir::VectorType getTileType() {
      return ::llvm::cast<::mlir::VectorType>(getTile().getType());
    }
    ::mlir::MemRefType getMemRefType() {
      return ::llvm::cast<::mlir::MemRefType>(getTarget().getType());
    }
  }];
}

def FlashAttn_Adjacent : ConfinedAttr<I64Attr, [IntPositivePowerOf2, IntMaxValue<4>]>;

def FlashAttn_ConvertElementsOp : FlashAttn_ProgramLevelOp<"convert_elements", [OperandSegments]> {
  let summary = "convert elements of 8 bits in memory";
  let description = [{
    Loads vectors of f8E4M3FN, f8E5M2 or i8 from `source`, and stores their elements to `target`,
    whose vectors are of as many floats (F1). There is an index of each vector in both. With
    `scales`, one for each vector, each element is multiplied by its scale, and the product is
    rounded. All vectors are loaded before any is stored. Each thread runs the op for itself. The
    machine decides about the instructions: chips from sm_89 on convert pairs of f8.

    Example:

    ```mlir
    flashattn.convert_elements %bytes[%i, %j] scales(%s, %t) to %halves[%k, %l]
        : memref<1024xvector<8xf8E4M3FN>, 3>, memref<1024xvector<8xf16>, 3>
    ```
  }];
  let arguments = (ins Arg<AnyMemRef, "", [MemRead]>:$source, Variadic<Index>:$indices,
                       Variadic<F32>:$scales,
                       Arg<AnyMemRef, "", [MemWrite]>:$target, Variadic<Index>:$targetIndices);
  let assemblyFormat = [{
    $source `[` $indices `]` (`scales` `(` $scales^ `)`)? `to` $target `[` $targetIndices `]`
    attr-dict `:` type($source) `,` type($target)
  }];
  let extraClassDeclaration = segments;
  let hasVerifier = 1;
}

def FlashAttn_AddTileOp : FlashAttn_ProgramLevelOp<"add_tile", [
    MemoryEffects<[MemRead, MemWrite]>, OperandSegments]> {
  let summary = "atomically add a tile to a sum of several programs";
  let description = [{
    Adds the tile to the tile at `indices` of `target`, for example a contribution to dQ. The last
    two dimensions of `target` are rows (a whole number of tiles) and the columns of the tile; the
    last index but one counts tiles. Programs add in any order, unless there is a `turn`. `order`, a
    `memref<... x T x i32>` with one element per tile, has two uses:

    - With a `turn`, programs add in turns, so that sums are deterministic: the element is the turn
      of the program that may add next, and this program increments it after the addition.
    - Without a `turn`, the first program to arrive sets the tile to zero, whatever it contains, and
      the others wait until the tile is cleared: the element is 0 if no program has arrived, 1 while
      the first program clears the tile, and 2 afterwards.

    The target defines the order of the elements in memory; only `flashattn.load_added` reads them.
    The columns are divided into `parts` ranges. Each range is stored in the order in which the
    accumulators of a tile of `rows x columns / parts` elements are distributed to threads: a thread
    has four elements in each 8 columns, `adjacent` of which are contiguous.

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
  let summary = "load a tile that programs have accumulated";
  let description = [{
    Loads the tile at `indices` that `flashattn.add_tile` ops with the same numbers of rows,
    columns, `parts` and `adjacent` elements have accumulated.

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
    $source `[` $indices `]` `parts` $parts (`adjacent` $adjacent^)? attr-dict
    `:` type($source) `->` type($tile)
  }];
}

/// An op on an element of `counter`, which counts programs.
class FlashAttn_CountedOp<string mnemonic> : FlashAttn_ProgramLevelOp<mnemonic, [
    MemoryEffects<[MemRead, MemWrite]>]> {
  dag place = (ins Arg<MemRefOf<[I32]>, "", [MemRead, MemWrite]>:$counter,
                   Variadic<Index>:$indices);
}

def FlashAttn_SignalAddedOp : FlashAttn_CountedOp<"signal_added"> {
  let summary = "signal that all contributions of a program have been added";
  let description = [{
    Used at the end of a program whose steps add tiles (`flashattn.add_tile`). When all additions of
    the program are complete in memory, the op increments the element of `counter` at `indices`,
    which is initially 0. `flashattn.await_added` waits for the counter.

    Example: `flashattn.signal_added %done[%b, %h] : memref<?x?xi32>`
  }];
  let arguments = place;
  let assemblyFormat = "$counter `[` $indices `]` attr-dict `:` type($counter)";
}

def FlashAttn_AwaitAddedOp : FlashAttn_CountedOp<"await_added"> {
  let summary = "wait until programs have added their contributions";
  let description = [{
    Waits until `programs` programs have signaled (`flashattn.signal_added`) through the element of
    `counter` at `indices`. A program with `pdl_secondary` and this op starts while the last primary
    programs are still running; the accumulated tiles are the only data that it may read from them.

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
    Runs the region for each tile of each interval in turn, one tile per step. The state is `inits`
    in the first step, and the values that the previous step yielded in every other step. An
    interval is (begin, full begin, full end, end), in tiles, with
    `begin <= full begin <= full end <= end` if it is not empty. The tiles in
    `[full begin, full end)` are full: all pairs of a full tile are visible, and the tile is
    entirely in bounds. The region is correct for every tile. In a full tile, `flashattn.tile_mask`
    is true for all pairs, and no element is out of bounds along a dimension whose index is the tile
    index.

    The region's arguments are the position of the step, the tile index, and the state. Position and
    tile index are equal unless there is a `list`. With a `list`, intervals consist of positions in
    the last dimension of the list, whose elements are tile indices. If `when` is false, the loop
    runs no step.

    With `rounds`, the loop runs that many times in sequence, and the index of the round is an
    additional argument after the tile index. For example, there is one round for each query head of
    a key/value head.

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
    // Creates the region with one block, its arguments and no terminator. There are 4 `bounds` for
    // each interval; `list`, `when` and `rounds` may be null.
    OpBuilder<(ins "::mlir::ValueRange":$bounds, "::mlir::Value":$list,
                   "::mlir::ValueRange":$listIndices, "::mlir::Value":$when,
                   "::mlir::ValueRange":$inits, CArg<"::mlir::Value", "{}">:$rounds)>];
  let extraClassDeclaration = segments # [{
    static constexpr unsigned kBoundsPerInterval = 4;
    ::mlir::Block *getBody() { return &getRegion().front(); }
    unsigned getNumIntervals() { return getBounds().size() / kBoundsPerInterval; }
    /// Returns begin, full begin, full end and end of interval `i`.
    ::mlir::ValueRange getInterval(unsigned i) {
      return getBounds().slice(i * kBoundsPerInterval, kBoundsPerInterval);
    }
    /// Returns the position of the step, which `getInterval` bounds.
    ::mlir::BlockArgument getPlace() { return getBody()->getArgument(0); }
    /// Returns the tile index of the step.
    ::mlir::BlockArgument getTile() { return getBody()->getArgument(1); }
    /// Returns the index of the step's round, or null without `rounds`.
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
    The ops after this op, up to the next `flashattn.stage`, are one stage. A stage with `lag` 1 may
    run one step later than the stages before it (software pipelining), directly after stage
    `behind` (counted from 0) of that later step; only later stages and the next step may use its
    values. If the stage before that of a matrix product is empty, the wait for an operand that
    other threads compute is placed in the empty stage. The op has side effects so that no op moves
    across it.

    Example: `flashattn.stage lag 1 behind 2`
  }];
  let arguments = (ins DefaultValuedAttr<ConfinedAttr<I64Attr, [IntNonNegative, IntMaxValue<1>]>,
                                         "0">:$lag,
                       DefaultValuedAttr<ConfinedAttr<I64Attr, [IntNonNegative]>, "0">:$behind);
  let assemblyFormat = "(`lag` $lag^)? (`behind` $behind^)? attr-dict";
}

def FlashAttn_TileMaskOp : FlashAttn_ProgramLevelOp<"tile_mask", [
    RecursiveMemoryEffects, SingleBlockImplicitTerminator<"TileYieldOp">]> {
  let summary = "mask of the current tile";
  let description = [{
    Returns true for each visible pair of the current tile of the enclosing loop: for all pairs in a
    full tile, and the value that the region yields in a partial tile.

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
  let summary = "step of the online softmax: probabilities of a tile, and rescaled accumulators";
  let description = [{
    Computes one step of the online softmax. The result `weights`, the unnormalized probabilities P,
    is `exp2((scores - base) factor)`, with a positive `factor`. Let `max` be the maximum of `old`
    and of the row's `scores`. The row's `base` is `max` or, with `threshold`, at least
    `max - threshold / factor`. The result is exact for any base, as long as the row sum and the
    output use the same base, so the old base can be kept while no probability exceeds the range of
    its type. If `base` is -inf, in a row that has seen no key, 0 is subtracted instead. `values`,
    the accumulators relative to `old`, are multiplied by `exp2((old - base) factor)` and returned
    as `rescaled`.

    With `log2_largest` e, `max` is replaced by `max - e / factor`, so that the greatest probability
    of a row so far is 2^e and not 1: a short type then represents smaller probabilities. This
    excludes `threshold`.

    `sums` contains partial row sums of P: `threads_per_row` threads share a row, and partial sum l
    adds columns 2 l and 2 l + 1 of every 2 `threads_per_row` columns.

    A target decides about groups of rows, such as the rows of a warp. If no row of a group exceeds
    its old base by more than the threshold, the group keeps its bases and rescales nothing. By
    default, the decision is based on the scores, before any probability is computed. With a region
    `recompute`, it is based on the probabilities against the old base. If some probability exceeds
    the threshold, the region computes the scores a second time from the tiles that are its
    operands, and the probabilities are recomputed from these scores.

    Examples:

    ```mlir
    %p, %sums, %base, %l1, %o1 = flashattn.softmax_step %s from %old factor(%c) threshold 4.0
        threads_per_row 4 rescale(%l, %o : vector<64x4xf32>, vector<64x128xf32>)
        : vector<64x64xf32>, vector<64xf32> -> vector<64x4xf32>
    %p, %sums, %base, %o1 = flashattn.softmax_step %s from %old factor(%c) threshold 8.0
        threads_per_row 4 rescale(%o : vector<64x128xf32>)
        : vector<64x64xf32>, vector<64xf32> -> vector<64x4xf32>
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
                       OptionalAttr<F32Attr>:$log2_largest,
                       ConfinedAttr<I64Attr, [IntPositive]>:$threads_per_row,
                       Variadic<FlashAttn_TileVector>:$values,
                       Variadic<FlashAttn_TileVector>:$factors);
  let results = (outs VectorOfRankAndType<[2], [F32]>:$weights,
                      VectorOfRankAndType<[2], [F32]>:$sums,
                      VectorOfRankAndType<[1], [F32]>:$base,
                      Variadic<FlashAttn_TileVector>:$rescaled);
  let regions = (region MaxSizedRegion<1>:$recompute);
  let assemblyFormat = [{
    $scores `from` $old `factor` `(` $factor `)` (`threshold` $threshold^)?
    (`log2_largest` $log2_largest^)?
    `threads_per_row` $threads_per_row
    (`rescale` `(` $values^ `:` type($values) `)`)? attr-dict
    `:` type($scores) `,` type($old) `->` type($sums)
    (`recompute` `(` $factors^ `:` type($factors) `)` $recompute)?
  }];
  let skipDefaultBuilders = 1;
  let builders = [
    OpBuilder<(ins "::mlir::Value":$scores, "::mlir::Value":$old, "::mlir::Value":$factor,
                   "::mlir::FloatAttr":$threshold, "int64_t":$threadsPerRow,
                   "::mlir::ValueRange":$values)>];
  let extraClassDeclaration = segments # [{
    /// Removes the region `recompute`, so that the decision to rescale is based on the scores.
    void dropRecompute();
  }];
}

#endif // FLASHATTN_PROGRAM_OPS_TD
