#ifndef FLASHATTN_HOPPER_OPS_TD
#define FLASHATTN_HOPPER_OPS_TD

include "mlir/IR/EnumAttr.td"
include "mlir/IR/OpBase.td"
include "mlir/Interfaces/InferTypeOpInterface.td"
include "mlir/Interfaces/SideEffectInterfaces.td"
include "flashattn/Dialect/Hopper/IR/HopperDialect.td"
include "flashattn/Dialect/OperandSegments.td"

class Hopper_Op<string mnemonic, list<Trait> traits> : Op<Hopper_Dialect, mnemonic, traits> {
  code segments = OperandSegmentsOf<arguments>.declaration;
  let hasVerifier = 1;
}

/// Ordered among themselves and with every other access: what a barrier or a group of
/// asynchronous products says of memory is not in its operands.
class Hopper_OrderedOp<string mnemonic, list<Trait> traits = []>
    : Hopper_Op<mnemonic, !listconcat([MemoryEffects<[MemRead, MemWrite]>], traits)>;

//===----------------------------------------------------------------------===//
// Tensor copies
//===----------------------------------------------------------------------===//

/// Without the C++ type, which would let the printer leave `!hopper.tensor_map` out.
def Hopper_AnyTensorMap : Type<Hopper_TensorMap.predicate, "tensor map">;

def Hopper_MakeTensorMapOp : Hopper_Op<"make_tensor_map", [Pure]> {
  let summary = "describe a memref to the tensor copy unit (host)";
  let description = [{
    The descriptor of a memref of rank 2 to 5 of f16 or bf16 in global memory, with unit
    stride in its last dimension. The box covers `rows` indices along dimension `row_dim`,
    `columns` along the last one and one along every other. With `outer_dim` it covers
    `outer_rows` indices along that one and `rows / outer_rows` along `row_dim`: `rows` in all,
    those of one outer index next to each other.

    Examples:

    ```mlir
    %m = hopper.make_tensor_map %k row_dim(2)
        : memref<?x?x?x128xf16> to !hopper.tensor_map<80x64xf16>
    %n = hopper.make_tensor_map %q row_dim(3) outer_dim(2) outer_rows(4)
        : memref<?x?x?x?x128xf16> to !hopper.tensor_map<64x64xf16>
    ```
  }];
  let arguments = (ins AnyStridedMemRef:$memref, I64Attr:$rowDim, OptionalAttr<I64Attr>:$outerDim,
                       OptionalAttr<I64Attr>:$outerRows);
  let results = (outs Hopper_AnyTensorMap:$map);
  let assemblyFormat = [{
    $memref `row_dim` `(` $rowDim `)`
    (`outer_dim` `(` $outerDim^ `)` `outer_rows` `(` $outerRows `)`)?
    attr-dict `:` type($memref) `to` type($map)
  }];
  let extraClassDeclaration = [{
    TensorMapType getMapType() { return ::llvm::cast<TensorMapType>(getMap().getType()); }
  }];
}

def Hopper_TmaLoadOp : Hopper_OrderedOp<"tma_load"> {
  let summary = "copy a tile to shared memory asynchronously";
  let description = [{
    Issued by every thread that runs it, so by one: one instruction per panel of the tile,
    panel `p` from column `col + p*C`. The coordinates are in the order of the memref's
    dimensions. Completes `P*R*C` elements' bytes on the barrier; elements outside of the
    memref are read as 0 and count as well. With `panels` only so many, the first, are copied.

    Example:

    ```mlir
    hopper.tma_load %m[%b, %h, %row, %col] to %tile, %full[%stage]
        : !hopper.tensor_map<80x64xf16> to memref<2x80x64xf16, #gpu.address_space<workgroup>>,
          memref<4xi64, #gpu.address_space<workgroup>>
    ```
  }];
  let arguments = (ins Hopper_AnyTensorMap:$map, Variadic<Index>:$coordinates, AnyMemRef:$tile,
                       AnyMemRef:$barriers, Index:$index,
                       OptionalAttr<ConfinedAttr<I64Attr, [IntPositive]>>:$panels);
  let assemblyFormat = [{
    $map `[` $coordinates `]` `to` $tile `,` $barriers `[` $index `]` (`panels` $panels^)? attr-dict
    `:` type($map)
    `to` type($tile) `,` type($barriers)
  }];
  let extraClassDeclaration = [{
    TensorMapType getMapType() { return ::llvm::cast<TensorMapType>(getMap().getType()); }
    /// What is copied: the tile or its first panels.
    SharedTile getCopied();
  }];
}

def Hopper_BulkLoadOp : Hopper_OrderedOp<"bulk_load"> {
  let summary = "copy elements to shared memory asynchronously";
  let description = [{
    As many as place `place` of `places`, memref<S x E x T>, has, from `indices` of a memref in global
    memory on, where they lie next to each other; 16 bytes or a multiple, which begin at one. Issued by
    every thread that runs it, so by one. Completes their bytes on the barrier.

    Example:

    ```mlir
    hopper.bulk_load %sums[%b, %h, %row] to %places[%stage], %full[%stage]
        : memref<?x?x?xf32> to memref<3x64xf32, #gpu.address_space<workgroup>>,
          memref<4xi64, #gpu.address_space<workgroup>>
    ```
  }];
  let arguments = (ins AnyMemRef:$source, Variadic<Index>:$indices, AnyMemRef:$places, Index:$place,
                       AnyMemRef:$barriers, Index:$index);
  let assemblyFormat = [{
    $source `[` $indices `]` `to` $places `[` $place `]` `,` $barriers `[` $index `]` attr-dict
    `:` type($source) `to` type($places) `,` type($barriers)
  }];
}

def Hopper_TmaStoreOp : Hopper_OrderedOp<"tma_store"> {
  let summary = "copy a tile from shared memory asynchronously";
  let description = [{
    The counterpart of `hopper.tma_load`, issued by one thread after a fence of the
    asynchronous proxy (`hopper.fence_async_shared`) by all that have written the tile; one
    group of copies (`hopper.wait_stores` of the same thread waits for it). Elements outside
    of the memref are not written.

    Example:

    ```mlir
    hopper.tma_store %tile to %m[%b, %h, %row, %col]
        : memref<2x64x64xf16, #gpu.address_space<workgroup>> to !hopper.tensor_map<64x64xf16>
    ```
  }];
  let arguments = (ins AnyMemRef:$tile, Hopper_AnyTensorMap:$map, Variadic<Index>:$coordinates);
  let assemblyFormat = [{
    $tile `to` $map `[` $coordinates `]` attr-dict `:` type($tile) `to` type($map)
  }];
  let extraClassDeclaration = [{
    TensorMapType getMapType() { return ::llvm::cast<TensorMapType>(getMap().getType()); }
  }];
}

def Hopper_WaitStoresOp : Hopper_OrderedOp<"wait_stores"> {
  let summary = "wait until this thread's copies from shared memory have read it";
  let description = [{
    What they read may be written again behind it; it need not yet be in global memory.

    Where consumers have branches of their own, `consumer` says whose end it is, lest LLVM makes one
    block of ends that are the same: copies would begin in a block of two roles.

    Example: `hopper.wait_stores`, `hopper.wait_stores consumer(1)`
  }];
  let arguments = (ins OptionalAttr<I64Attr>:$consumer);
  let assemblyFormat = "(`consumer` `(` $consumer^ `)`)? attr-dict";
  let hasVerifier = 0;
}

def Hopper_FenceAsyncSharedOp : Hopper_OrderedOp<"fence_async_shared"> {
  let summary = "what this thread wrote to shared memory before what copies and products read";
  let description = [{
    Tensor copies and asynchronous products reach shared memory by a way of their own, the
    asynchronous proxy, and see what a thread wrote only behind its fence.

    Behind `hopper.publish`, which has one, and nothing that writes, it is erased.

    Example: `hopper.fence_async_shared`
  }];
  let assemblyFormat = "attr-dict";
  let hasVerifier = 0;
  let hasCanonicalizeMethod = 1;
}

//===----------------------------------------------------------------------===//
// Barriers
//===----------------------------------------------------------------------===//

class Hopper_BarrierOp<string mnemonic> : Hopper_OrderedOp<mnemonic>;

def Hopper_BarrierInitOp : Hopper_BarrierOp<"barrier_init"> {
  let summary = "make a barrier of a number of arrivals per phase";
  let description = [{
    Run by one thread. Others may use the barrier after `hopper.fence_barrier_init` of that
    thread and a barrier of the block.

    Example: `hopper.barrier_init %bars[%i], 3 : memref<4xi64, #gpu.address_space<workgroup>>`
  }];
  let arguments = (ins AnyMemRef:$barriers, Index:$index, I64Attr:$count);
  let assemblyFormat = "$barriers `[` $index `]` `,` $count attr-dict `:` type($barriers)";
}

def Hopper_FenceBarrierInitOp : Hopper_OrderedOp<"fence_barrier_init"> {
  let summary = "make initialised barriers visible to asynchronous copies";
  let description = "Example: `hopper.fence_barrier_init`";
  let assemblyFormat = "attr-dict";
  let hasVerifier = 0;
}

def Hopper_BarrierExpectOp : Hopper_BarrierOp<"barrier_expect"> {
  let summary = "arrive, and let the phase wait for a number of bytes as well";
  let description = [{
    Example: `hopper.barrier_expect %bars[%i], 20480 : memref<4xi64, #gpu.address_space<workgroup>>`
  }];
  let arguments = (ins AnyMemRef:$barriers, Index:$index, I64Attr:$bytes);
  let assemblyFormat = "$barriers `[` $index `]` `,` $bytes attr-dict `:` type($barriers)";
}

def Hopper_BarrierArriveOp : Hopper_BarrierOp<"barrier_arrive"> {
  let summary = "arrive at a barrier";
  let description = [{
    With a predicate only the threads for which it holds arrive. That is no branch: control
    flow between an asynchronous product and its wait would serialise the two.

    Example:

    ```mlir
    hopper.barrier_arrive %bars[%i] if %first : memref<4xi64, #gpu.address_space<workgroup>>
    ```
  }];
  let arguments = (ins AnyMemRef:$barriers, Index:$index, Optional<I1>:$predicate);
  let assemblyFormat = [{
    $barriers `[` $index `]` (`if` $predicate^)? attr-dict `:` type($barriers)
  }];
}

def Hopper_BarrierWaitOp : Hopper_BarrierOp<"barrier_wait"> {
  let summary = "wait until the phase of a parity has completed";
  let description = [{
    The first phase has parity 0. To wait for parity 1 at a new barrier returns at once.

    Example: `hopper.barrier_wait %bars[%i], %parity : memref<4xi64, #gpu.address_space<workgroup>>`
  }];
  let arguments = (ins AnyMemRef:$barriers, Index:$index, I32:$parity);
  let assemblyFormat = "$barriers `[` $index `]` `,` $parity attr-dict `:` type($barriers)";
}

//===----------------------------------------------------------------------===//
// Rings
//===----------------------------------------------------------------------===//

/// Without the C++ type, which would let the printer leave `!hopper.ring` out.
def Hopper_AnyRing : Type<Hopper_Ring.predicate, "ring">;

def Hopper_MakeRingOp : Hopper_Op<"make_ring", [Pure]> {
  let summary = "a ring in shared memory";
  let description = [{
    Of the places in `tiles`, with as many of `barriers` from number `first` on that they are
    full and as many behind those that they are empty.

    Example:

    ```mlir
    %ring = hopper.make_ring %tiles, %bars[4]
        : memref<3x2x80x64xf16, #gpu.address_space<workgroup>>,
          memref<16xi64, #gpu.address_space<workgroup>> to !hopper.ring<3x2x80x64xf16>
    ```
  }];
  let arguments = (ins AnyMemRef:$tiles, AnyMemRef:$barriers, I64Attr:$first);
  let results = (outs Hopper_AnyRing:$ring);
  let assemblyFormat = [{
    $tiles `,` $barriers `[` $first `]` attr-dict `:` type($tiles) `,` type($barriers) `to`
    type($ring)
  }];
  let extraClassDeclaration = [{
    RingType getRingType() { return ::llvm::cast<RingType>(getRing().getType()); }
    /// Number of the first barrier that a tile is full, and that it is empty.
    int64_t getFull() { return getFirst(); }
    int64_t getEmpty() { return getFirst() + getRingType().getStages(); }
  }];
}

class Hopper_RingOp<string mnemonic, list<Trait> traits = []>
    : Hopper_OrderedOp<mnemonic, traits> {
  code ringDeclaration = [{
    RingType getRingType() { return ::llvm::cast<RingType>(getRing().getType()); }
  }];
  let extraClassDeclaration = ringDeclaration;
}

def Hopper_RingInitOp : Hopper_RingOp<"ring_init"> {
  let summary = "make the barriers of a ring with a number of consumers";
  let description = [{
    Run by one thread, like `hopper.barrier_init`.

    Example: `hopper.ring_init %ring, 3 : !hopper.ring<3x2x80x64xf16>`
  }];
  let arguments = (ins Hopper_AnyRing:$ring, I64Attr:$consumers);
  let assemblyFormat = "$ring `,` $consumers attr-dict `:` type($ring)";
}

def Hopper_RingPutOp : Hopper_RingOp<"ring_put", [OperandSegments]> {
  let summary = "bring the tile of a step";
  let description = [{
    Waits until all consumers have released the tile that was in its place, and begins the
    copy (`hopper.tma_load`) from `coordinates` on. Run by one thread.

    Example:

    ```mlir
    hopper.ring_put %ring at %step from %m[%b, %h, %row, %c0]
        : !hopper.ring<3x2x80x64xf16>, !hopper.tensor_map<80x64xf16>
    ```

    With `beside` so many bytes come beside the tile, each by a `hopper.ring_put_row` behind. With
    `panels` only so many of a tile, the first, are brought; the others stay as they are. With
    `pieces` the tile comes in as many, of as many rows as the map's box: each from its own
    coordinate along dimension `along`, in place of that of `coordinates`:

    ```mlir
    hopper.ring_put %ring at %step from %m[%b, %h, %row, %c0] pieces(%row, %next) along 2
        : !hopper.ring<3x1x16x64xf16>, !hopper.tensor_map<8x64xf16>
    ```

    With `idle` it goes so many steps less ahead, and as many of the ring's places, fewer than all,
    have nothing on its way: it waits until the tile is released that is one of the others before.
    Blocks that ask for less wait no longer where memory has enough to do:

    ```mlir
    hopper.ring_put %ring at %step idle %one from %m[%b, %h, %row, %c0]
        : !hopper.ring<3x2x80x64xf16>, !hopper.tensor_map<80x64xf16>
    ```
  }];
  let arguments = (ins Hopper_AnyRing:$ring, Index:$step, Optional<I32>:$idle,
                       Hopper_AnyTensorMap:$map, Variadic<Index>:$coordinates,
                       Variadic<Index>:$pieces,
                       OptionalAttr<I64Attr>:$along, OptionalAttr<I64Attr>:$beside,
                       OptionalAttr<ConfinedAttr<I64Attr, [IntPositive]>>:$panels);
  let assemblyFormat = [{
    $ring `at` $step (`idle` $idle^)? `from` $map `[` $coordinates `]`
    (`pieces` `(` $pieces^ `)` `along` $along)?
    (`beside` $beside^)? (`panels` $panels^)? attr-dict
    `:` type($ring) `,` type($map)
  }];
  let extraClassDeclaration = segments # ringDeclaration # [{
    TensorMapType getMapType() { return ::llvm::cast<TensorMapType>(getMap().getType()); }
  }];
}

def Hopper_RingPutRowOp : Hopper_RingOp<"ring_put_row"> {
  let summary = "bring elements that come beside the tile of a step";
  let description = [{
    Behind the `hopper.ring_put` of the step, of the same thread: begins the copy
    (`hopper.bulk_load`) to the step's place of `places`, of which there are as many as of the ring's,
    and which is got and released with the tile.

    Example:

    ```mlir
    hopper.ring_put_row %ring at %step from %sums[%b, %h, %row] to %places
        : !hopper.ring<3x2x64x64xf16>, memref<?x?x?xf32>,
          memref<3x64xf32, #gpu.address_space<workgroup>>
    ```
  }];
  let arguments = (ins Hopper_AnyRing:$ring, Index:$step, AnyMemRef:$source, Variadic<Index>:$indices,
                       AnyMemRef:$places);
  let assemblyFormat = [{
    $ring `at` $step `from` $source `[` $indices `]` `to` $places attr-dict
    `:` type($ring) `,` type($source) `,` type($places)
  }];
  let extraClassDeclaration = ringDeclaration # [{
    /// Bytes of a place.
    int64_t getBytes();
  }];
}

def Hopper_RingGetOp : Hopper_RingOp<"ring_get", [
    DeclareOpInterfaceMethods<InferTypeOpInterface>]> {
  let summary = "wait for the tile of a step";
  let description = [{
    Gives its place. Whoever got a tile may get it again before it is released.

    Example: `%tile = hopper.ring_get %ring at %step : !hopper.ring<3x2x80x64xf16>`
  }];
  let arguments = (ins Hopper_AnyRing:$ring, Index:$step);
  let results = (outs AnyMemRef:$tile);
  let assemblyFormat = "$ring `at` $step attr-dict `:` type($ring)";
  let hasVerifier = 0;
}

def Hopper_RingReleaseOp : Hopper_RingOp<"ring_release"> {
  let summary = "give the tile of a step back";
  let description = [{
    One thread of each consumer does, that for which `predicate` holds, when all of it has
    read the tile.

    Example: `hopper.ring_release %ring at %step if %first : !hopper.ring<3x2x80x64xf16>`
  }];
  let arguments = (ins Hopper_AnyRing:$ring, Index:$step, Optional<I1>:$predicate);
  let assemblyFormat = "$ring `at` $step (`if` $predicate^)? attr-dict `:` type($ring)";
  let hasVerifier = 0;
}

def Hopper_RingDrainOp : Hopper_RingOp<"ring_drain"> {
  let summary = "wait until the tile of a step was given back";
  let description = [{
    By all consumers; of a step whose tile was put and none in its place since. Run by the thread
    that puts.

    Example: `hopper.ring_drain %ring at %step : !hopper.ring<3x2x80x64xf16>`
  }];
  let arguments = (ins Hopper_AnyRing:$ring, Index:$step);
  let assemblyFormat = "$ring `at` $step attr-dict `:` type($ring)";
  let hasVerifier = 0;
}

//===----------------------------------------------------------------------===//
// Groups of warps
//===----------------------------------------------------------------------===//

class Hopper_GroupOp<string mnemonic> : Hopper_OrderedOp<mnemonic> {
  let arguments = (ins I32:$id, I64Attr:$threads);
  let assemblyFormat = "$id `threads` `(` $threads `)` attr-dict";
}

def Hopper_GroupBarrierOp : Hopper_GroupOp<"group_barrier"> {
  let summary = "wait until the threads of a group have come";
  let description = [{
    `threads` of them in whole warps, at the block's barrier of number `id`, 0 to 15. What they
    wrote before it, all of them see behind it.

    Example: `hopper.group_barrier %id threads(128)`
  }];
}

def Hopper_GroupArriveOp : Hopper_GroupOp<"group_arrive"> {
  let summary = "come to a group's barrier without waiting";
  let description = [{
    Counts towards the threads of the `hopper.group_barrier` of the same number.

    Example: `hopper.group_arrive %id threads(384)`
  }];
}

/// Of two warpgroups, behind the producer's, at the block's barriers `barrier` and the next one: each
/// waits at one of them.
class Hopper_SisterOp<string mnemonic> : Hopper_OrderedOp<mnemonic> {
  let arguments = (ins ConfinedAttr<I64Attr, [IntMinValue<1>, IntMaxValue<14>]>:$barrier);
  let assemblyFormat = "$barrier attr-dict";
  let hasVerifier = 0;
  let extraClassDeclaration = [{
    static constexpr int64_t kThreads = 256;      ///< of both
    static constexpr int64_t kSecondThread = 256; ///< the second one's first; behind the producer's
  }];
}

def Hopper_AwaitSisterOp : Hopper_SisterOp<"await_sister"> {
  let summary = "wait until the other warpgroup lets this one go on";
  let description = [{
    Of two warpgroups, threads 128 to 255 and 256 to 383 of the block, each waits until the other
    has come to `hopper.wake_sister` as often as itself to here. Which of them a thread is of takes no
    register all along.

    Example: `hopper.await_sister 2`
  }];
}

def Hopper_WakeSisterOp : Hopper_SisterOp<"wake_sister"> {
  let summary = "let the other warpgroup go on";
  let description = [{
    From `hopper.await_sister` of the same number. It does not wait.

    Example: `hopper.wake_sister 2`
  }];
}

def Hopper_RegisterChange : I32EnumAttr<"RegisterChange", "which way a register count goes", [
    I32EnumAttrCase<"Increase", 0, "increase">,
    I32EnumAttrCase<"Decrease", 1, "decrease">]> {
  let cppNamespace = "::mlir::flashattn::hopper";
  let genSpecializedAttr = 0;
}
def Hopper_RegisterChangeAttr : EnumAttr<Hopper_Dialect, Hopper_RegisterChange, "register_change"> {
  let assemblyFormat = "$value";
}

def Hopper_SetRegistersOp : Hopper_OrderedOp<"set_registers"> {
  let summary = "change the number of registers of a warpgroup's threads";
  let description = [{
    From what the kernel begins with to `count`, 24 to 256 in steps of 8. An increase waits
    until so many are free. A multiprocessor runs `blocks` blocks of the kernel at once, among
    which its registers are shared out at the start: the same number in all of a kernel's.

    Example: `hopper.set_registers increase 160 blocks(1)`
  }];
  let arguments = (ins Hopper_RegisterChangeAttr:$change, I64Attr:$count, I64Attr:$blocks);
  let assemblyFormat = "$change $count `blocks` `(` $blocks `)` attr-dict";
}

//===----------------------------------------------------------------------===//
// Asynchronous products
//===----------------------------------------------------------------------===//

def Hopper_F16Vector : VectorOfAnyRankOf<[F16, BF16]>;
def Hopper_F32Vector : VectorOfAnyRankOf<[F32]>;
def Hopper_WgmmaA : AnyTypeOf<[AnyMemRef, Hopper_F16Vector]>;
def Hopper_Accumulator : VectorOfAnyRankOf<[F16, BF16, F32]>;

def Hopper_WgmmaOp : Hopper_OrderedOp<"wgmma", [OperandSegments]> {
  let summary = "issue a product of a warpgroup";
  let description = [{
    Begins `d = a * b^T`, or with an accumulator `d = acc + a * b^T`, as one group of
    asynchronous instructions; with `transposed`, `b` is stored with its rows along the
    contraction and `d = acc + a * b`. `d` has 64 rows and must pass a `hopper.wgmma_wait`
    before it is used; so must, before they change, the registers of `a`.

    | | rows | columns |
    | --- | --- | --- |
    | `a` in shared memory (`PxRxC`) | R = 64 | P*C = K |
    | `a` with `transposed_a`, in shared memory | K | 64 |
    | `a` in registers | 64 | K |
    | `first`, in registers, of `a` in shared memory | 64 | a multiple of 16 below K |
    | `b` | N | K |
    | `b` with `transposed` | K | N |
    | `acc`, `d` | 64 | N |

    K is a multiple of 16 and the same in `a` and `b`; with `depth` only so much of both is
    contracted. Registers may hold the first columns of `a` (`first`), which are not read from shared
    memory then. N is a multiple of 8 up to 256, and may be less than what `b` has. On whole tiles
    several warpgroups may share a product: each has 64 of its rows or, of 64 rows in all, a part of
    the columns.

    Examples:

    ```mlir
    %s = hopper.wgmma %q, %k : memref<2x64x64xf16, #gpu.address_space<workgroup>>,
        memref<2x80x64xf16, #gpu.address_space<workgroup>> -> vector<64x80xf32>
    %o = hopper.wgmma %p, %v, %acc transposed : vector<64x80xf16>,
        memref<2x80x64xf16, #gpu.address_space<workgroup>>, vector<64x128xf32>
    %t = hopper.wgmma %q first %held, %k : memref<2x64x64xf16, #gpu.address_space<workgroup>>
        first vector<64x32xf16>, memref<2x80x64xf16, #gpu.address_space<workgroup>>
        -> vector<64x80xf32>
    ```
  }];
  let arguments = (ins Hopper_WgmmaA:$a, Optional<Hopper_F16Vector>:$first, AnyMemRef:$b,
                       Optional<Hopper_F32Vector>:$acc, UnitAttr:$transposed,
                       OptionalAttr<I64Attr>:$depth, UnitAttr:$transposedA);
  let results = (outs Hopper_F32Vector:$d);
  let assemblyFormat = [{
    $a (`first` $first^)? `,` $b (`,` $acc^)? (`transposed_a` $transposedA^)?
    (`transposed` $transposed^)? (`depth` `(` $depth^ `)`)? attr-dict
    `:` custom<WgmmaTypes>(type($a), type($first), type($b), type($acc), type($d))
  }];
  let extraClassDeclaration = segments # [{
    /// N, the columns of the result.
    int64_t getColumns();
    /// The length of the contraction: `depth`, or all columns of `a`.
    int64_t getContraction();
  }];
}

def Hopper_WgmmaWaitOp : Hopper_OrderedOp<"wgmma_wait", [
    DeclareOpInterfaceMethods<InferTypeOpInterface>]> {
  let summary = "wait until at most some groups of products are pending";
  let description = [{
    Gives the values back, so that no use of a result can move above the wait that makes it
    valid. Those of groups that may still be pending pass through as well, for they are in
    the same registers after it.

    `held` marks one of two equal waits in the arms of a branch, lest LLVM merges them: the
    block boundary before it keeps ptxas from waiting earlier.

    Example:

    ```mlir
    %x:2 = hopper.wgmma_wait %a, %b {pending = 1} : vector<64x80xf32>, vector<64x128xf32>
    ```
  }];
  let arguments = (ins Variadic<Hopper_Accumulator>:$values,
                       DefaultValuedAttr<I64Attr, "0">:$pending, UnitAttr:$held);
  let results = (outs Variadic<Hopper_Accumulator>:$results);
  let assemblyFormat = "$values attr-dict `:` type($values)";
}

def Hopper_LoadTileOp : Hopper_Op<"load_tile", [MemoryEffects<[MemRead]>]> {
  let summary = "the tile that lies in shared memory, as a value";
  let description = [{
    The first columns of the tile where the result has fewer. Stands in a tile program for
    the operand of a contraction until that becomes a `hopper.wgmma`, which reads shared
    memory itself: no threads hold the value, and there is no lowering of its own. Where threads
    do hold its first columns, or all (`first`), a product that has it on its left takes these from
    there.

    Example:

    ```mlir
    %k = hopper.load_tile %slot
        : memref<2x80x64xf16, #gpu.address_space<workgroup>> -> vector<80x128xf16>
    ```
  }];
  let arguments = (ins AnyMemRef:$tile, Optional<Hopper_F16Vector>:$first);
  let results = (outs Hopper_F16Vector:$result);
  let assemblyFormat = [{
    $tile (`first` $first^)? attr-dict `:` type($tile) (`,` type($first)^)? `->` type($result)
  }];
  let builders = [OpBuilder<(ins "Type":$result, "Value":$tile), [{
    build($_builder, $_state, result, tile, /*first=*/Value());
  }]>];
}

def Hopper_StoreTileOp : Hopper_Op<"store_tile", [MemoryEffects<[MemWrite]>]> {
  let summary = "write a tile value to shared memory";
  let description = [{
    In the swizzle that the tile's rows have. The value is a whole tile of 64 rows, or what
    a thread of the warpgroup holds of it; its columns are a multiple of 16.

    Example:

    ```mlir
    hopper.store_tile %o to %slot
        : vector<64x128xf16>, memref<2x64x64xf16, #gpu.address_space<workgroup>>
    ```
  }];
  let arguments = (ins Hopper_F16Vector:$value, AnyMemRef:$tile);
  let assemblyFormat = "$value `to` $tile attr-dict `:` type($value) `,` type($tile)";
}

def Hopper_ReadTileOp : Hopper_OrderedOp<"read_tile"> {
  let summary = "what warps have written to a tile of shared memory, as a value";
  let description = [{
    The counterpart of `hopper.store_tile`: each thread gets what the same thread of the warpgroup that
    stored the tile had, from column `from` on, a multiple of 16. All threads of the warp run it, and
    any of them may write the warp's rows again behind it. A tile of 16 rows is every warp's.
    `thread` is the thread's number in the block, where what is made of it should not be made
    before that is known.

    Example:

    ```mlir
    %p = hopper.read_tile %place
        : memref<1x64x64xf16, #gpu.address_space<workgroup>> -> vector<64x64xf16>
    ```
  }];
  let arguments = (ins AnyMemRef:$tile, Optional<I32>:$thread,
                       DefaultValuedAttr<I64Attr, "0">:$from);
  let results = (outs Hopper_F16Vector:$result);
  let assemblyFormat = "$tile (`from` $from^)? (`by` $thread^)? attr-dict `:` type($tile) `->` type($result)";
}

def Hopper_PinOp : Hopper_OrderedOp<"pin", [AllTypesMatch<["value", "result"]>]> {
  let summary = "a value that is made here";
  let description = [{
    Gives the value. What makes it runs before, where LLVM would move it to its first use: past waits,
    with all that it is made of in registers until then.

    Example: `%p = hopper.pin %weights : vector<128x64xf16>`
  }];
  let arguments = (ins Hopper_F16Vector:$value);
  let results = (outs Hopper_F16Vector:$result);
  let assemblyFormat = "$value attr-dict `:` type($value)";
}

def Hopper_PublishOp : Hopper_BarrierOp<"publish"> {
  let summary = "what a warp wrote to shared memory is there for products: arrive";
  let description = [{
    All threads of the warp run it, and one arrives: behind the barrier's phase, asynchronous products
    of whoever waited for it see what the warps that arrived had written.

    Example: `hopper.publish %bars[%i] : memref<4xi64, #gpu.address_space<workgroup>>`
  }];
  let arguments = (ins AnyMemRef:$barriers, Index:$index);
  let assemblyFormat = "$barriers `[` $index `]` attr-dict `:` type($barriers)";
}

def Hopper_WarpArriveOp : Hopper_BarrierOp<"warp_arrive"> {
  let summary = "a warp arrives";
  let description = [{
    All threads of the warp run it, and one arrives, behind what each of them has done.

    Example: `hopper.warp_arrive %bars[%i] : memref<4xi64, #gpu.address_space<workgroup>>`
  }];
  let arguments = (ins AnyMemRef:$barriers, Index:$index);
  let assemblyFormat = "$barriers `[` $index `]` attr-dict `:` type($barriers)";
}

def Hopper_StageTileOp : Hopper_OrderedOp<"stage_tile"> {
  let summary = "a tile for a copy that adds it";
  let description = [{
    Writes a tile to `staging` in shared memory, memref<W x E x f32> of E elements for each of W warps:
    a warp's accumulators as they are, four of a thread next to each other, threads in turn. It begins
    by waiting until the warp's last copy from there (`hopper.add_staged`) has read it. On whole tiles
    the value is the tile; or it is what a thread holds, and `warp` the number of its warp.

    Example:

    ```mlir
    hopper.stage_tile %dq to %staging
        : vector<64x128xf32>, memref<8x1024xf32, #gpu.address_space<workgroup>>
    ```
  }];
  let arguments = (ins Hopper_F32Vector:$value, AnyMemRef:$staging, Optional<Index>:$warp);
  let assemblyFormat = [{
    $value `to` $staging (`warp` $warp^)? attr-dict `:` type($value) `,` type($staging)
  }];
}

def Hopper_AddStagedOp : Hopper_OrderedOp<"add_staged", [OperandSegments]> {
  let summary = "add to global memory what is staged";
  let description = [{
    Begins a copy of each warp, which adds what the warp of number `warp` has staged to `target`.
    All threads of the warp run it, each behind a fence of its writes (`hopper.fence_async_shared`).
    Without `warp` one warp begins a copy of what all have staged, behind their fences.

    Example:

    ```mlir
    hopper.add_staged %staging to %sums[%b, %h, %row, %c0] warp %warp
        : memref<8x1024xf32, #gpu.address_space<workgroup>>, memref<?x?x?x128xf32>
    ```
  }];
  let arguments = (ins AnyMemRef:$staging, AnyMemRef:$target, Variadic<Index>:$indices,
                       Optional<Index>:$warp);
  let extraClassDeclaration = segments;
  let assemblyFormat = [{
    $staging `to` $target `[` $indices `]` (`warp` $warp^)? attr-dict
    `:` type($staging) `,` type($target)
  }];
}

class Hopper_TurnOp<string mnemonic> : Hopper_OrderedOp<mnemonic> {
  dag place = (ins MemRefOf<[I32]>:$order, Variadic<Index>:$indices);
}

def Hopper_ReadTurnOp : Hopper_TurnOp<"read_turn"> {
  let summary = "whose turn it is";
  let description = [{
    The element of `order`, in global memory, which other blocks write: what `hopper.await_turn` then
    begins with. Between the two is time for the load.

    Example: `%seen = hopper.read_turn %order[%b, %h, %i] : memref<?x?x?xi32>`
  }];
  let arguments = place;
  let results = (outs I32:$turn);
  let assemblyFormat = "$order `[` $indices `]` attr-dict `:` type($order)";
}

def Hopper_ClaimOp : Hopper_TurnOp<"claim"> {
  let summary = "take the next number of a counter";
  let description = [{
    Adds 1 to the element of `order`, in global memory, and gives what it was: a number that no other
    thread of the grid gets. Nothing else is ordered by it.

    Example: `%number = hopper.claim %counter[%c0] : memref<1xi32>`
  }];
  let arguments = place;
  let results = (outs I32:$number);
  let assemblyFormat = "$order `[` $indices `]` attr-dict `:` type($order)";
}

def Hopper_AwaitTurnOp : Hopper_TurnOp<"await_turn"> {
  let summary = "wait until it is one's turn";
  let description = [{
    Waits until the element of `order`, last `seen` as that, is `turn`: until the block that had the
    turn before has passed it on. All threads of a warp run it. What follows in program order may rely
    on sums that the other block's copies had added before, and only on these: nothing else of it
    need be visible.

    Blocks of which one waits for the other must run in the order of their numbers.

    Example: `hopper.await_turn %order[%b, %h, %i] is %turn seen %seen : memref<?x?x?xi32>`
  }];
  let arguments = !con(place, (ins I32:$turn, I32:$seen));
  let assemblyFormat = [{
    $order `[` $indices `]` `is` $turn `seen` $seen attr-dict `:` type($order)
  }];
}

def Hopper_TakeFirstOp : Hopper_TurnOp<"take_first"> {
  let summary = "whether one is the first to come";
  let description = [{
    True for one thread of the grid alone, if the element of `order`, last `seen` as that, is 0, which
    it makes 1. Everyone else waits until it is 2, as `hopper.pass_turn` of turn 1 makes it, and may
    then rely on what that warp had cleared before (`hopper.clear`). One thread of a warp runs it.

    Example: `%first = hopper.take_first %order[%b, %h, %i] seen %seen : memref<?x?x?xi32>`
  }];
  let arguments = !con(place, (ins I32:$seen));
  let results = (outs I1:$first);
  let assemblyFormat = "$order `[` $indices `]` `seen` $seen attr-dict `:` type($order)";
}

def Hopper_PassTurnOp : Hopper_TurnOp<"pass_turn"> {
  let summary = "give a turn to the next block";
  let description = [{
    Waits until the warp's copies that add have added, and makes the element of `order` `turn` + 1.
    All threads of the warp run it.

    Example: `hopper.pass_turn %turn at %order[%b, %h, %i] : memref<?x?x?xi32>`
  }];
  let arguments = !con(place, (ins I32:$turn));
  let assemblyFormat = "$turn `at` $order `[` $indices `]` attr-dict `:` type($order)";
}

def Hopper_SignalAddedOp : Hopper_TurnOp<"signal_added"> {
  let summary = "count a warp whose sums are there";
  let description = [{
    Waits until the warp's copies that add have added, and adds 1 to the element of `order`, behind
    which whoever reads it has them all. All threads of the warp run it.

    Example: `hopper.signal_added %done[%b, %h] : memref<?x?xi32>`
  }];
  let arguments = place;
  let assemblyFormat = "$order `[` $indices `]` attr-dict `:` type($order)";
}

def Hopper_AwaitAddedOp : Hopper_TurnOp<"await_added"> {
  let summary = "wait for sums that warps count";
  let description = [{
    Waits until the element of `order` is `count`. What warps have done before they counted
    themselves (`hopper.signal_added`) is visible behind it. They may be of a grid before this one
    that still runs: then all of its blocks have begun.

    Example: `hopper.await_added %done[%b, %h] is %count : memref<?x?xi32>`
  }];
  let arguments = !con(place, (ins I32:$count));
  let assemblyFormat = "$order `[` $indices `]` `is` $count attr-dict `:` type($order)";
}

def Hopper_ClearOp : Hopper_OrderedOp<"clear"> {
  let summary = "zeros for what copies add to";
  let description = [{
    Makes zeros of `elements` f32 of `target`, in global memory, from `indices` on. All threads of a
    warp run it, and copies that add may follow once its turn is passed on (`hopper.pass_turn`).

    Example: `hopper.clear %sums[%b, %h, %row, %c0] elements 8192 : memref<?x?x?x128xf32>`
  }];
  let arguments = (ins AnyMemRef:$target, Variadic<Index>:$indices,
                       ConfinedAttr<I64Attr, [IntPositive]>:$elements);
  let assemblyFormat = [{
    $target `[` $indices `]` `elements` $elements attr-dict `:` type($target)
  }];
}

def Hopper_AddTileOp : Hopper_OrderedOp<"add_tile", [OperandSegments]> {
  let summary = "add a tile to global memory asynchronously";
  let description = [{
    `flashattn.add_tile` by way of `staging` in shared memory, memref<W x E x f32> of E elements for
    each of W warps: a warp's accumulators as they are, four of a thread next to each other, threads
    in turn. One copy that adds, a warp; it begins by waiting until the warp's last one has read the
    staging. Where a warp has a multiple of E elements there are several such parts, each of all
    warps behind the one before, which are copied in halves: one is written while the other one's copy
    reads. On whole tiles the value is the tile; or it is what a thread holds,
    and `warp` the number of its warp.

    Example:

    ```mlir
    hopper.add_tile %dq through %staging to %sums[%b, %h, %row, %c0]
        : vector<64x128xf32>, memref<8x1024xf32, #gpu.address_space<workgroup>>, memref<?x?x?x128xf32>
    ```
  }];
  let arguments = (ins Hopper_F32Vector:$value, AnyMemRef:$staging, AnyMemRef:$target,
                       Variadic<Index>:$indices, Optional<Index>:$warp);
  let assemblyFormat = [{
    $value `through` $staging `to` $target `[` $indices `]` (`warp` $warp^)? attr-dict
    `:` type($value) `,` type($staging) `,` type($target)
  }];
  let extraClassDeclaration = segments # [{
    /// How the part of a thread, the op's value, goes through the staging.
    ::llvm::SmallVector<::mlir::flashattn::hopper::StagedStep> getStagedSteps();
  }];
}

#endif // FLASHATTN_HOPPER_OPS_TD
