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

/// An op that is ordered with respect to all memory accesses and other ordered ops, because its
/// operands do not express which memory a barrier or an asynchronous operation affects.
class Hopper_OrderedOp<string mnemonic, list<Trait> traits = []>
    : Hopper_Op<mnemonic, !listconcat([MemoryEffects<[MemRead, MemWrite]>], traits)>;

//===----------------------------------------------------------------------===//
// TMA copies
//===----------------------------------------------------------------------===//

/// Has no C++ type, because the printer would then omit `!hopper.tensor_map`.
def Hopper_AnyTensorMap : Type<Hopper_TensorMap.predicate, "tensor map">;

def Hopper_MakeTensorMapOp : Hopper_Op<"make_tensor_map", [Pure]> {
  let summary = "create a tensor map for a memref (host)";
  let description = [{
    Creates the TMA descriptor of a memref of rank 2 to 5 of f16 or bf16 in global memory, with unit
    stride in its last dimension. The box covers `rows` indices along dimension `row_dim`, `columns`
    along the last dimension, and one along every other dimension. With `outer_dim`, the box covers
    `outer_rows` indices along that dimension and `rows / outer_rows` along `row_dim`, `rows` in
    all. In shared memory, the rows of one outer index are contiguous.

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
  let summary = "load a tile into shared memory asynchronously (TMA)";
  let description = [{
    Every thread that executes the op issues the load, so only one thread must execute it. The op is
    lowered to one instruction per panel of the tile; panel `p` is loaded from column `col + p*C`.
    The coordinates are in the order of the memref's dimensions. The load completes the bytes of
    `P*R*C` elements on the mbarrier. Elements outside the memref are loaded as 0; their bytes count
    too. With `panels`, only the first `panels` panels are loaded.

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
    /// Returns the layout of the loaded panels: all panels of the tile, or the first `panels`.
    SharedTile getCopied();
  }];
}

def Hopper_BulkLoadOp : Hopper_OrderedOp<"bulk_load"> {
  let summary = "load contiguous elements into shared memory asynchronously (bulk copy)";
  let description = [{
    Loads E contiguous elements of a memref in global memory, from `indices` on, into buffer `place`
    of `places`, a `memref<S x E x T>` of S buffers. The size of a buffer and the global address
    must be multiples of 16 bytes. Every thread that executes the op issues the load, so only one
    thread must execute it. The load completes its bytes on the mbarrier.

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
  let summary = "store a tile from shared memory asynchronously (TMA)";
  let description = [{
    The counterpart of `hopper.tma_load`. One thread issues the store after all threads that have
    written the tile have executed a fence of the async proxy (`hopper.fence_async_shared`). The
    store is committed as one bulk async-group, for which `hopper.wait_stores` in the same thread
    waits. Elements outside the memref are not written.

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
  let summary = "wait until this thread's bulk stores have read shared memory";
  let description = [{
    Waits for the reads of all `hopper.tma_store` and `hopper.add_staged` ops that this thread has
    issued. Their source buffers may then be overwritten; the data may not have arrived in global
    memory yet.

    If consumers have separate branches, `consumer` identifies the consumer whose branch ends here.
    This makes the ends of the branches different; LLVM would otherwise merge equal ends into one
    block, and stores would be issued in a block that consumers share.

    Example: `hopper.wait_stores`, `hopper.wait_stores consumer(1)`
  }];
  let arguments = (ins OptionalAttr<I64Attr>:$consumer);
  let assemblyFormat = "(`consumer` `(` $consumer^ `)`)? attr-dict";
  let hasVerifier = 0;
}

def Hopper_FenceAsyncSharedOp : Hopper_OrderedOp<"fence_async_shared"> {
  let summary = "make this thread's writes to shared memory visible to the async proxy";
  let description = [{
    TMA copies and `wgmma` access shared memory through the async proxy. They see the writes of a
    thread only after the thread has executed this fence.

    The op is erased if it follows `hopper.publish`, which contains a fence, without a write in
    between.

    Example: `hopper.fence_async_shared`
  }];
  let assemblyFormat = "attr-dict";
  let hasVerifier = 0;
  let hasCanonicalizeMethod = 1;
}

//===----------------------------------------------------------------------===//
// mbarriers
//===----------------------------------------------------------------------===//

class Hopper_BarrierOp<string mnemonic> : Hopper_OrderedOp<mnemonic>;

def Hopper_BarrierInitOp : Hopper_BarrierOp<"barrier_init"> {
  let summary = "initialize an mbarrier with a number of arrivals per phase";
  let description = [{
    One thread executes the op and then `hopper.fence_barrier_init`. Other threads may use the
    mbarrier after a subsequent barrier of the block.

    Example: `hopper.barrier_init %bars[%i], 3 : memref<4xi64, #gpu.address_space<workgroup>>`
  }];
  let arguments = (ins AnyMemRef:$barriers, Index:$index, I64Attr:$count);
  let assemblyFormat = "$barriers `[` $index `]` `,` $count attr-dict `:` type($barriers)";
}

def Hopper_FenceBarrierInitOp : Hopper_OrderedOp<"fence_barrier_init"> {
  let summary = "make initialized mbarriers visible to asynchronous copies";
  let description = "Example: `hopper.fence_barrier_init`";
  let assemblyFormat = "attr-dict";
  let hasVerifier = 0;
}

def Hopper_BarrierExpectOp : Hopper_BarrierOp<"barrier_expect"> {
  let summary = "arrive at an mbarrier and expect a number of bytes";
  let description = [{
    The phase completes only after asynchronous copies have completed `bytes` bytes on the mbarrier.

    Example: `hopper.barrier_expect %bars[%i], 20480 : memref<4xi64, #gpu.address_space<workgroup>>`
  }];
  let arguments = (ins AnyMemRef:$barriers, Index:$index, I64Attr:$bytes);
  let assemblyFormat = "$barriers `[` $index `]` `,` $bytes attr-dict `:` type($barriers)";
}

def Hopper_BarrierArriveOp : Hopper_BarrierOp<"barrier_arrive"> {
  let summary = "arrive at an mbarrier";
  let description = [{
    With a predicate, only the threads whose predicate is true arrive. The predicate does not become
    a branch: control flow between a `wgmma` and its wait would serialize the `wgmma`.

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
  let summary = "wait until the phase of an mbarrier with the given parity has completed";
  let description = [{
    The first phase has parity 0. A wait for parity 1 at a new mbarrier returns immediately.

    Example: `hopper.barrier_wait %bars[%i], %parity : memref<4xi64, #gpu.address_space<workgroup>>`
  }];
  let arguments = (ins AnyMemRef:$barriers, Index:$index, I32:$parity);
  let assemblyFormat = "$barriers `[` $index `]` `,` $parity attr-dict `:` type($barriers)";
}

//===----------------------------------------------------------------------===//
// Ring buffers
//===----------------------------------------------------------------------===//

/// Has no C++ type, because the printer would then omit `!hopper.ring`.
def Hopper_AnyRing : Type<Hopper_Ring.predicate, "ring">;

def Hopper_MakeRingOp : Hopper_Op<"make_ring", [Pure]> {
  let summary = "create a ring buffer in shared memory";
  let description = [{
    `tiles` contains the buffers of all stages. The full mbarriers, one per stage, are the elements
    of `barriers` from index `first` on, and the empty mbarriers follow.

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
    /// Returns the index of the first full mbarrier and of the first empty mbarrier.
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
  let summary = "initialize the mbarriers of a ring for a number of consumers";
  let description = [{
    `consumers` is the number of `hopper.ring_release` arrivals that empty a stage. One thread
    executes the op, as for `hopper.barrier_init`. `producers` is the number of arrivals that fill a
    stage: 1 for `hopper.ring_put`, or the number of warps that write a tile and arrive by
    `hopper.publish`.

    Example: `hopper.ring_init %ring, 3 : !hopper.ring<3x2x80x64xf16>`
  }];
  let arguments = (ins Hopper_AnyRing:$ring, I64Attr:$consumers,
                       DefaultValuedAttr<ConfinedAttr<I64Attr, [IntPositive]>, "1">:$producers);
  let assemblyFormat = [{
    $ring `,` $consumers (`producers` $producers^)? attr-dict `:` type($ring)
  }];
}

def Hopper_RingPutOp : Hopper_RingOp<"ring_put", [OperandSegments]> {
  let summary = "load the tile of a step into a ring";
  let description = [{
    Waits until all consumers have released the previous tile of the step's stage, and issues the
    load (`hopper.tma_load`) from `coordinates` on. One thread executes the op.

    Example:

    ```mlir
    hopper.ring_put %ring at %step from %m[%b, %h, %row, %c0]
        : !hopper.ring<3x2x80x64xf16>, !hopper.tensor_map<80x64xf16>
    ```

    `beside` is the number of additional bytes that subsequent `hopper.ring_put_row` ops of the same
    step load. With `panels`, only the first `panels` panels of a tile are loaded; the other panels
    keep their contents. With `pieces`, the tile is loaded in as many pieces, each with the number
    of rows of the map's box. A piece has its own coordinate along dimension `along`, which replaces
    that in `coordinates`:

    ```mlir
    hopper.ring_put %ring at %step from %m[%b, %h, %row, %c0] pieces(%row, %next) along 2
        : !hopper.ring<3x1x16x64xf16>, !hopper.tensor_map<8x64xf16>
    ```

    With `pages`, each piece has its own coordinate along dimension 0 too:

    ```mlir
    hopper.ring_put %ring at %step from %m[%c0, %h, %row, %c0] pieces(%row, %next) along 2
        pages(%p, %q) : !hopper.ring<3x1x16x64xf16>, !hopper.tensor_map<8x64xf16>
    ```

    `idle` limits the prefetch distance: `idle` stages, fewer than all, have no load in flight. The
    op then waits until the stage of the step `idle` steps later is empty. If memory is saturated
    anyway, blocks with fewer loads in flight do not wait longer:

    ```mlir
    hopper.ring_put %ring at %step idle %one from %m[%b, %h, %row, %c0]
        : !hopper.ring<3x2x80x64xf16>, !hopper.tensor_map<80x64xf16>
    ```
  }];
  let arguments = (ins Hopper_AnyRing:$ring, Index:$step, Optional<I32>:$idle,
                       Hopper_AnyTensorMap:$map, Variadic<Index>:$coordinates,
                       Variadic<Index>:$pieces, Variadic<Index>:$pages,
                       OptionalAttr<I64Attr>:$along, OptionalAttr<I64Attr>:$beside,
                       OptionalAttr<ConfinedAttr<I64Attr, [IntPositive]>>:$panels);
  let assemblyFormat = [{
    $ring `at` $step (`idle` $idle^)? `from` $map `[` $coordinates `]`
    (`pieces` `(` $pieces^ `)` `along` $along)? (`pages` `(` $pages^ `)`)?
    (`beside` $beside^)? (`panels` $panels^)? attr-dict
    `:` type($ring) `,` type($map)
  }];
  let extraClassDeclaration = segments # ringDeclaration # [{
    TensorMapType getMapType() { return ::llvm::cast<TensorMapType>(getMap().getType()); }
  }];
}

def Hopper_RingPutRowOp : Hopper_RingOp<"ring_put_row"> {
  let summary = "load additional elements with the tile of a step";
  let description = [{
    The producer thread executes the op after the `hopper.ring_put` of the step. The op issues a
    load (`hopper.bulk_load`) into the buffer of the step's stage in `places`, which has one buffer
    per stage of the ring. Consumers get and release this buffer together with the tile.

    Example:

    ```mlir
    hopper.ring_put_row %ring at %step from %sums[%b, %h, %row] to %places
        : !hopper.ring<3x2x64x64xf16>, memref<?x?x?xf32>,
          memref<3x64xf32, #gpu.address_space<workgroup>>
    ```
  }];
  let arguments = (ins Hopper_AnyRing:$ring, Index:$step, AnyMemRef:$source,
                       Variadic<Index>:$indices, AnyMemRef:$places);
  let assemblyFormat = [{
    $ring `at` $step `from` $source `[` $indices `]` `to` $places attr-dict
    `:` type($ring) `,` type($source) `,` type($places)
  }];
  let extraClassDeclaration = ringDeclaration # [{
    /// Returns the size of a buffer in bytes.
    int64_t getBytes();
  }];
}

def Hopper_RingGetOp : Hopper_RingOp<"ring_get", [
    DeclareOpInterfaceMethods<InferTypeOpInterface>]> {
  let summary = "wait for the tile of a step";
  let description = [{
    Waits for the full mbarrier of the step's stage and returns the buffer of the tile. A consumer
    may get a tile several times before the consumer releases it.

    Example: `%tile = hopper.ring_get %ring at %step : !hopper.ring<3x2x80x64xf16>`
  }];
  let arguments = (ins Hopper_AnyRing:$ring, Index:$step);
  let results = (outs AnyMemRef:$tile);
  let assemblyFormat = "$ring `at` $step attr-dict `:` type($ring)";
  let hasVerifier = 0;
}

def Hopper_RingReleaseOp : Hopper_RingOp<"ring_release"> {
  let summary = "release the tile of a step";
  let description = [{
    Arrives at the empty mbarrier of the step's stage. The thread of each consumer whose `predicate`
    is true arrives, after all threads of the consumer have read the tile.

    Example: `hopper.ring_release %ring at %step if %first : !hopper.ring<3x2x80x64xf16>`
  }];
  let arguments = (ins Hopper_AnyRing:$ring, Index:$step, Optional<I1>:$predicate);
  let assemblyFormat = "$ring `at` $step (`if` $predicate^)? attr-dict `:` type($ring)";
  let hasVerifier = 0;
}

def Hopper_RingDrainOp : Hopper_RingOp<"ring_drain"> {
  let summary = "wait until all consumers have released the tile of a step";
  let description = [{
    The tile of the step must have been put, and no later tile into the same stage. The producer
    thread executes the op.

    Example: `hopper.ring_drain %ring at %step : !hopper.ring<3x2x80x64xf16>`
  }];
  let arguments = (ins Hopper_AnyRing:$ring, Index:$step);
  let assemblyFormat = "$ring `at` $step attr-dict `:` type($ring)";
  let hasVerifier = 0;
}

//===----------------------------------------------------------------------===//
// Named barriers and warpgroups
//===----------------------------------------------------------------------===//

class Hopper_GroupOp<string mnemonic> : Hopper_OrderedOp<mnemonic> {
  let arguments = (ins I32:$id, I64Attr:$threads);
  let assemblyFormat = "$id `threads` `(` $threads `)` attr-dict";
}

def Hopper_GroupBarrierOp : Hopper_GroupOp<"group_barrier"> {
  let summary = "synchronize a group of warps at a named barrier";
  let description = [{
    Waits until `threads` threads, in whole warps, have arrived at the block's named barrier `id`, 0
    to 15. After the op, the threads see all writes of the group before the op.

    Example: `hopper.group_barrier %id threads(128)`
  }];
}

def Hopper_GroupArriveOp : Hopper_GroupOp<"group_arrive"> {
  let summary = "arrive at a named barrier without waiting";
  let description = [{
    Counts towards the threads of the `hopper.group_barrier` with the same `id`.

    Example: `hopper.group_arrive %id threads(384)`
  }];
}

/// An op of two peer warpgroups, which follow the producer warpgroup, at the block's named barriers
/// `barrier` and `barrier + 1`. Each of the two warpgroups waits at one of these barriers.
class Hopper_PeerOp<string mnemonic> : Hopper_OrderedOp<mnemonic> {
  let arguments = (ins ConfinedAttr<I64Attr, [IntMinValue<1>, IntMaxValue<14>]>:$barrier);
  let assemblyFormat = "$barrier attr-dict";
  let hasVerifier = 0;
  let extraClassDeclaration = [{
    static constexpr int64_t kThreads = 256;      ///< number of threads of both warpgroups
    static constexpr int64_t kSecondThread = 256; ///< index of the second warpgroup's first thread
  }];
}

def Hopper_AwaitPeerOp : Hopper_PeerOp<"await_peer"> {
  let summary = "wait until the peer warpgroup has executed hopper.wake_peer";
  let description = [{
    Orders two peer warpgroups, threads 128 to 255 and 256 to 383 of the block. A warpgroup waits
    until its peer has executed `hopper.wake_peer` as often as the warpgroup itself has executed
    this op. The lowering selects the named barrier by predicates, so that no register holds its
    number.

    Example: `hopper.await_peer 2`
  }];
}

def Hopper_WakePeerOp : Hopper_PeerOp<"wake_peer"> {
  let summary = "signal the peer warpgroup";
  let description = [{
    Signals the `hopper.await_peer` of the peer warpgroup with the same `barrier`. The op does not
    wait.

    Example: `hopper.wake_peer 2`
  }];
}

def Hopper_RegisterChange : I32EnumAttr<"RegisterChange", "direction of a register count change", [
    I32EnumAttrCase<"Increase", 0, "increase">,
    I32EnumAttrCase<"Decrease", 1, "decrease">]> {
  let cppNamespace = "::mlir::flashattn::hopper";
  let genSpecializedAttr = 0;
}
def Hopper_RegisterChangeAttr : EnumAttr<Hopper_Dialect, Hopper_RegisterChange, "register_change"> {
  let assemblyFormat = "$value";
}

def Hopper_SetRegistersOp : Hopper_OrderedOp<"set_registers"> {
  let summary = "change the number of registers of a warpgroup's threads (setmaxnreg)";
  let description = [{
    Changes the number of registers per thread from that at the start of the kernel to `count`, 24
    to 256 in steps of 8. An increase waits until enough registers are free. `blocks` is the number
    of blocks of the kernel that run at once on a multiprocessor and share its registers at the
    start; it must be the same in all of these ops of a kernel.

    Example: `hopper.set_registers increase 160 blocks(1)`
  }];
  let arguments = (ins Hopper_RegisterChangeAttr:$change, I64Attr:$count, I64Attr:$blocks);
  let assemblyFormat = "$change $count `blocks` `(` $blocks `)` attr-dict";
}

//===----------------------------------------------------------------------===//
// Asynchronous matrix products (wgmma)
//===----------------------------------------------------------------------===//

def Hopper_F16Vector : VectorOfAnyRankOf<[F16, BF16]>;
def Hopper_FactorVector : VectorOfAnyRankOf<[F16, BF16, F8E4M3FN, F8E5M2]>;
def Hopper_F32Vector : VectorOfAnyRankOf<[F32]>;
def Hopper_WgmmaA : AnyTypeOf<[AnyMemRef, Hopper_FactorVector]>;
def Hopper_Accumulator : VectorOfAnyRankOf<[F16, BF16, F8E4M3FN, F8E5M2, F32]>;

def Hopper_WgmmaOp : Hopper_OrderedOp<"wgmma", [OperandSegments]> {
  let summary = "issue an asynchronous matrix product of a warpgroup";
  let description = [{
    Issues `d = a * b^T` or, with an accumulator, `d = acc + a * b^T`, as one wgmma-group of
    asynchronous instructions. With `transposed`, the rows of `b` run along the contraction, and
    `d = acc + a * b`. `d` has 64 rows and must pass through a `hopper.wgmma_wait` before it is
    used. If `a` is in registers, it must also pass through this wait before the registers change.

    | | rows | columns |
    | --- | --- | --- |
    | `a` in shared memory (`PxRxC`) | R = 64 | P*C = K |
    | `a` with `transposed_a`, in shared memory | K | 64 |
    | `a` in registers | 64 | K |
    | `first`, in registers, of `a` in shared memory | 64 | a multiple of 16 below K |
    | `b` | N | K |
    | `b` with `transposed` | K | N |
    | `acc`, `d` | 64 | N |

    With `overwritten`, the values of `acc` are not added: `d` takes their registers. ptxas does not
    issue such a product before the last use of these values, and needs no other registers for it.

    K is a multiple of 16, or of 32 for elements of 8 bits, and equal in `a` and `b`; with `depth`,
    only the first `depth` elements of K are contracted. If `first` holds the first columns of `a`
    in registers, these columns are not read from shared memory. N is a multiple of 8 up to 256, and
    may be smaller than in `b`. On whole tiles, several warpgroups may share a product: each
    computes 64 of its rows or, if there are 64 rows in all, a range of the columns.

    `a` and `b` have the same type, f16 or bf16, or each f8E4M3FN or f8E5M2. With f8:

    - Nothing is transposed, and `first` is absent.
    - If `a` is in registers, the columns of `b` are in accumulator order: in each group of 16
      columns of `b`, column `8i + 2j + c` of the contraction is at `4j + 2i + c` (i, c below 2, j
      below 4). In this order, a thread's fragment of an accumulator holds what the instruction
      expects of the thread, so that no elements move between threads.
    - Accumulators keep fewer bits than f32: the hardware aligns the accumulator and the products
      of an instruction at the greatest exponent and keeps 14 bits of each (DeepSeek-V3 technical
      report, section 3.5.2). Long sums need an accumulator of their own in f32.

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
                       OptionalAttr<I64Attr>:$depth, UnitAttr:$transposedA,
                       UnitAttr:$overwritten);
  let results = (outs Hopper_F32Vector:$d);
  let assemblyFormat = [{
    $a (`first` $first^)? `,` $b (`,` $acc^)? (`overwritten` $overwritten^)? (`transposed_a` $transposedA^)?
    (`transposed` $transposed^)? (`depth` `(` $depth^ `)`)? attr-dict
    `:` custom<WgmmaTypes>(type($a), type($first), type($b), type($acc), type($d))
  }];
  let extraClassDeclaration = segments # [{
    /// Returns N, the number of columns of the result.
    int64_t getColumns();
    /// Returns K, the length of the contraction: `depth`, or all of `a`.
    int64_t getContraction();
  }];
}

def Hopper_WgmmaWaitOp : Hopper_OrderedOp<"wgmma_wait", [
    DeclareOpInterfaceMethods<InferTypeOpInterface>]> {
  let summary = "wait until at most `pending` wgmma-groups are pending";
  let description = [{
    Returns the values, so that no use of a result can move above the wait that makes the result
    valid. Values of groups that may still be pending are passed through too, because they stay in
    the same registers.

    `held` marks one of two equal waits in the arms of a branch, so that LLVM does not merge the
    waits into one before the branch: the block boundary keeps ptxas from waiting earlier.

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
  let summary = "represent a tile in shared memory as a vector value";
  let description = [{
    In a tile program, the op represents the operand of a contraction until the contraction becomes
    a `hopper.wgmma`, which reads shared memory itself. The value occupies no registers, and the op
    has no lowering. If the result has fewer columns than the tile, it represents the first columns
    of the tile. `first` holds the first columns, or all columns, in registers; a product whose
    left-hand side is this value reads these columns from registers.

    Example:

    ```mlir
    %k = hopper.load_tile %slot
        : memref<2x80x64xf16, #gpu.address_space<workgroup>> -> vector<80x128xf16>
    ```
  }];
  let arguments = (ins AnyMemRef:$tile, Optional<Hopper_F16Vector>:$first);
  let results = (outs Hopper_FactorVector:$result);
  let assemblyFormat = [{
    $tile (`first` $first^)? attr-dict `:` type($tile) (`,` type($first)^)? `->` type($result)
  }];
  let builders = [OpBuilder<(ins "Type":$result, "Value":$tile), [{
    build($_builder, $_state, result, tile, /*first=*/Value());
  }]>];
}

def Hopper_StoreTileOp : Hopper_Op<"store_tile", [MemoryEffects<[MemWrite]>]> {
  let summary = "store a tile value to shared memory";
  let description = [{
    Stores the value in the swizzle of the tile's rows (`stmatrix`). The value is a whole tile of 64
    rows or, after distribution, the fragment of one thread of the warpgroup; its number of columns
    is a multiple of 16.

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
  let summary = "load a tile value from shared memory into registers";
  let description = [{
    The counterpart of `hopper.store_tile`: each thread loads the fragment of the thread with the
    same index in the warpgroup that stored the tile, from column `from` on, a multiple of 16
    (`ldmatrix`). All threads of the warp execute the op; afterwards, any of these threads may
    overwrite the warp's rows. Every warp loads all rows of a tile with 16 rows. `thread` is the
    index of the thread in the block; addresses derived from this operand are computed after its
    definition instead of earlier in the kernel.

    Example:

    ```mlir
    %p = hopper.read_tile %place
        : memref<1x64x64xf16, #gpu.address_space<workgroup>> -> vector<64x64xf16>
    ```
  }];
  let arguments = (ins AnyMemRef:$tile, Optional<I32>:$thread,
                       DefaultValuedAttr<I64Attr, "0">:$from);
  let results = (outs Hopper_F16Vector:$result);
  let assemblyFormat =
      "$tile (`from` $from^)? (`by` $thread^)? attr-dict `:` type($tile) `->` type($result)";
}

def Hopper_PinOp : Hopper_OrderedOp<"pin", [AllTypesMatch<["value", "result"]>]> {
  let summary = "force the computation of a value before this point";
  let description = [{
    Returns the value, whatever its bits are. LLVM and ptxas would otherwise move the computation to
    the first use, past waits, and keep its inputs in registers until then. The op has no effect that
    a program can observe: if all bits are set in the or of a thread's registers, it triggers a
    performance monitor event (`pmevent`). With `weak`, it takes no instructions, and only LLVM keeps
    the computation before this point.

    Example: `%p = hopper.pin %weights : vector<128x64xf16>`
  }];
  let arguments = (ins Hopper_Accumulator:$value, UnitAttr:$weak);
  let results = (outs Hopper_Accumulator:$result);
  let assemblyFormat = "$value (`weak` $weak^)? attr-dict `:` type($value)";
}

def Hopper_TransposeOp : Hopper_Op<"transpose", [
    MemoryEffects<[MemRead, MemWrite]>, OperandSegments]> {
  let summary = "transpose a part of a tile of 8-bit elements in shared memory";
  let description = [{
    A warp reads the part of `source` with 16 rows from `row` on, a multiple of 16, and 32 columns
    from `column` on, a multiple of 32. It writes the columns as rows of `target`, where the 16 rows
    are columns in accumulator order, as `hopper.wgmma` reads them beside f8 in registers: row
    `8i + 2j + c` of the part becomes column `4j + 2i + c` (i, c below 2, j below 4). With `rows`,
    only the rows from `begin` on and before `end` are transposed, and 0 is written for the others.

    | | rows | columns |
    | --- | --- | --- |
    | `source` | a multiple of 16 | a multiple of 32 |
    | `target` | the columns of `source` | the rows of `source` |

    All threads of the warp execute the op, with the same operands.

    Example:

    ```mlir
    hopper.transpose %v[%row, %column] rows(%begin, %end) to %vt
        : memref<1x128x64xf8E4M3FN, #gpu.address_space<workgroup>>,
          memref<1x64x128xf8E4M3FN, #gpu.address_space<workgroup>>
    ```
  }];
  let arguments = (ins AnyMemRef:$source, I32:$row, I32:$column, Optional<I32>:$begin,
                       Optional<I32>:$end, AnyMemRef:$target);
  let assemblyFormat = [{
    $source `[` $row `,` $column `]` (`rows` `(` $begin^ `,` $end `)`)? `to` $target attr-dict
    `:` type($source) `,` type($target)
  }];
  let extraClassDeclaration = segments;
}

def Hopper_PublishOp : Hopper_BarrierOp<"publish"> {
  let summary = "make a warp's writes visible to the async proxy and arrive at an mbarrier";
  let description = [{
    All threads of the warp execute the op: each executes a fence (`hopper.fence_async_shared`), and
    one thread arrives. After a wait for the phase of the mbarrier, a thread may issue a `wgmma`
    that reads the data that the arriving warps have written to shared memory.

    Example: `hopper.publish %bars[%i] : memref<4xi64, #gpu.address_space<workgroup>>`
  }];
  let arguments = (ins AnyMemRef:$barriers, Index:$index);
  let assemblyFormat = "$barriers `[` $index `]` attr-dict `:` type($barriers)";
}

def Hopper_WarpArriveOp : Hopper_BarrierOp<"warp_arrive"> {
  let summary = "arrive at an mbarrier once per warp";
  let description = [{
    All threads of the warp execute the op. One thread arrives when all threads of the warp have
    reached the op.

    Example: `hopper.warp_arrive %bars[%i] : memref<4xi64, #gpu.address_space<workgroup>>`
  }];
  let arguments = (ins AnyMemRef:$barriers, Index:$index);
  let assemblyFormat = "$barriers `[` $index `]` attr-dict `:` type($barriers)";
}

def Hopper_StageTileOp : Hopper_OrderedOp<"stage_tile"> {
  let summary = "stage a tile in shared memory for hopper.add_staged";
  let description = [{
    Stores a tile to `staging` in shared memory, a `memref<W x E x f32>` with E elements for each of
    W warps. Accumulators are stored in register order: four consecutive elements of a thread are
    contiguous, followed by those of the next thread. The op first waits until the warp's last
    `hopper.add_staged` from this buffer has read the buffer. On whole tiles, the value is the tile;
    after distribution, it is the fragment of one thread, and `warp` is the index of the thread's
    warp.

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
  let summary = "add a staged tile to global memory asynchronously";
  let description = [{
    Issues one `cp.reduce.async.bulk` per warp, which adds the elements that warp `warp` has staged
    to `target`. All threads of the warp execute the op, each after a fence of its writes
    (`hopper.fence_async_shared`). Without `warp`, one warp issues one copy for the elements of all
    warps, after their fences.

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
  let summary = "prefetch the current turn";
  let description = [{
    Loads the element of `order`, in global memory, which other blocks update. A later
    `hopper.await_turn` first compares this value, so that the load overlaps with the ops in
    between.

    Example: `%seen = hopper.read_turn %order[%b, %h, %i] : memref<?x?x?xi32>`
  }];
  let arguments = place;
  let results = (outs I32:$turn);
  let assemblyFormat = "$order `[` $indices `]` attr-dict `:` type($order)";
}

def Hopper_ClaimOp : Hopper_TurnOp<"claim"> {
  let summary = "fetch the next value of an atomic counter";
  let description = [{
    Atomically increments the element of `order`, in global memory, and returns its previous value,
    which is unique in the grid. The op is relaxed: it orders no other memory accesses.

    Example: `%number = hopper.claim %counter[%c0] : memref<1xi32>`
  }];
  let arguments = place;
  let results = (outs I32:$number);
  let assemblyFormat = "$order `[` $indices `]` attr-dict `:` type($order)";
}

def Hopper_AwaitTurnOp : Hopper_TurnOp<"await_turn"> {
  let summary = "wait for this block's turn";
  let description = [{
    Waits until the element of `order`, whose last known value is `seen`, equals `turn`: until the
    block with the previous turn has executed `hopper.pass_turn`. All threads of a warp execute the
    op. The op is not an acquire: only the additions that the other block's copies have completed
    are visible, not its other writes.

    If one block waits for another block, blocks must start in the order of their indices.

    Example: `hopper.await_turn %order[%b, %h, %i] is %turn seen %seen : memref<?x?x?xi32>`
  }];
  let arguments = !con(place, (ins I32:$turn, I32:$seen));
  let assemblyFormat = [{
    $order `[` $indices `]` `is` $turn `seen` $seen attr-dict `:` type($order)
  }];
}

def Hopper_TakeFirstOp : Hopper_TurnOp<"take_first"> {
  let summary = "determine whether this thread is the first to arrive";
  let description = [{
    Returns true in a single thread of the grid: the thread that atomically changes the element of
    `order`, whose last known value is `seen`, from 0 to 1. All other threads wait until the element
    is 2, the result of `hopper.pass_turn 1`. They may then rely on the memory that the first warp
    has cleared (`hopper.clear`). One thread of a warp executes the op.

    Example: `%first = hopper.take_first %order[%b, %h, %i] seen %seen : memref<?x?x?xi32>`
  }];
  let arguments = !con(place, (ins I32:$seen));
  let results = (outs I1:$first);
  let assemblyFormat = "$order `[` $indices `]` `seen` $seen attr-dict `:` type($order)";
}

def Hopper_PassTurnOp : Hopper_TurnOp<"pass_turn"> {
  let summary = "pass the turn to the next block";
  let description = [{
    Waits until the warp's additions (`hopper.add_staged`, `hopper.add_tile`) are complete, and sets
    the element of `order` to `turn + 1` with release semantics. All threads of the warp execute the
    op.

    Example: `hopper.pass_turn %turn at %order[%b, %h, %i] : memref<?x?x?xi32>`
  }];
  let arguments = !con(place, (ins I32:$turn));
  let assemblyFormat = "$turn `at` $order `[` $indices `]` attr-dict `:` type($order)";
}

def Hopper_SignalAddedOp : Hopper_TurnOp<"signal_added"> {
  let summary = "signal that a warp's additions are complete";
  let description = [{
    Waits until the warp's additions (`hopper.add_staged`, `hopper.add_tile`) are complete, and
    atomically increments the element of `order` with release semantics. All threads of the warp
    execute the op.

    Example: `hopper.signal_added %done[%b, %h] : memref<?x?xi32>`
  }];
  let arguments = place;
  let assemblyFormat = "$order `[` $indices `]` attr-dict `:` type($order)";
}

def Hopper_AwaitAddedOp : Hopper_TurnOp<"await_added"> {
  let summary = "wait until a number of warps have signaled";
  let description = [{
    Waits until the element of `order` is `count`, with acquire semantics: all additions of the
    warps before `hopper.signal_added` are then visible. The warps may belong to an earlier grid
    that is still running, provided that all of its blocks have started.

    Example: `hopper.await_added %done[%b, %h] is %count : memref<?x?xi32>`
  }];
  let arguments = !con(place, (ins I32:$count));
  let assemblyFormat = "$order `[` $indices `]` `is` $count attr-dict `:` type($order)";
}

def Hopper_ClearOp : Hopper_OrderedOp<"clear"> {
  let summary = "set a range of global memory to zero before additions";
  let description = [{
    Sets `elements` f32 elements of `target`, in global memory, to zero, from `indices` on. All
    threads of a warp execute the op. Copies may add to these elements after `hopper.pass_turn`.

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
    Implements `flashattn.add_tile` through `staging` in shared memory, a `memref<W x E x f32>` with
    E elements for each of W warps. Accumulators are stored in register order: four consecutive
    elements of a thread are contiguous, followed by those of the next thread. Each warp issues one
    `cp.reduce.async.bulk`; the op first waits until the warp's previous copy has read the staging
    buffer.

    If a warp has n E elements with n > 1, the tile is added in n pieces. `target` contains piece
    after piece, each with E elements of every warp. A piece is copied in halves: the warp writes
    one half while the copy of the other half is reading. On whole tiles, the value is the tile;
    after distribution, it is the fragment of one thread, and `warp` is the index of the thread's
    warp.

    Example:

    ```mlir
    hopper.add_tile %dq through %staging to %sums[%b, %h, %row, %c0]
        : vector<64x128xf32>, memref<8x1024xf32, #gpu.address_space<workgroup>>,
          memref<?x?x?x128xf32>
    ```
  }];
  let arguments = (ins Hopper_F32Vector:$value, AnyMemRef:$staging, AnyMemRef:$target,
                       Variadic<Index>:$indices, Optional<Index>:$warp);
  let assemblyFormat = [{
    $value `through` $staging `to` $target `[` $indices `]` (`warp` $warp^)? attr-dict
    `:` type($value) `,` type($staging) `,` type($target)
  }];
  let extraClassDeclaration = segments # [{
    /// Returns the steps in which the op's value, the fragment of one thread, is staged and copied.
    ::llvm::SmallVector<::mlir::flashattn::hopper::StagedStep> getStagedSteps();
  }];
}

#endif // FLASHATTN_HOPPER_OPS_TD
