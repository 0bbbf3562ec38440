#ifndef FLASHATTN_TRANSFORMS_PASSES_TD
#define FLASHATTN_TRANSFORMS_PASSES_TD

include "mlir/Pass/PassBase.td"

def SelectSchedule : Pass<"flashattn-select-schedule"> {
  let summary = "choose tile sizes, warps and stages for every attention op and projection";
  let description = [{
    Adds a `#flashattn.schedule` to every `flashattn.attention`, `flashattn.attention_backward` and
    `flashattn.project` without one: the first row of the chip's table whose requirements (shared
    memory, registers) are met. An existing schedule is verified and kept. If no schedule fits, the
    error lists each reason with the schedules that were rejected for this reason (rule R2).

    Example: test/Dialect/FlashAttn/select-schedule.mlir
  }];
  let options = [
    Option<"chip", "chip", "std::string", "\"cpu\"", "cpu, or a GPU as sm_XX">,
    Option<"vectorWidth", "vector-width", "int64_t", "16",
           "f32 lanes of the CPU's vector registers">,
    Option<"schedule", "schedule", "std::string", "\"\"",
           "schedule fields to pin on every attention op without a schedule, such as "
           "'tile_m = 128'; other fields are chosen">,
  ];
  let dependentDialects = ["::mlir::flashattn::FlashAttnDialect"];
}

def SeparateDecode : Pass<"flashattn-separate-decode"> {
  let summary = "attend to packed sequences with few queries in a kernel of their own";
  let description = [{
    Replaces a `flashattn.attention` on memrefs with packed queries, and keys that are not packed, by
    three ops (rule S7): for the sequences with one query, for those with few queries, and for all
    others. A decode kernel splits the keys of a sequence and packs the query heads that share them;
    with many queries, both would be slower. The host need not know which sequences have few
    queries. Ops with a schedule, or with one of the limits, are not changed.

    Example: test/Dialect/FlashAttn/separate-decode.mlir
  }];
  let dependentDialects = ["::mlir::flashattn::FlashAttnDialect"];
}

def ShareKernels : Pass<"flashattn-share-kernels"> {
  let summary = "call one function for ops that differ only in their operands";
  let description = [{
    Replaces ops of the dialect on memrefs that have the same attributes, regions and types by calls
    of one private function, whose arguments are the operands. The kernels of a model's layers are
    then compiled only once. Constant scalars are compiled into the function, so ops share a
    function only if these constants are equal. Corresponding memref operands must also agree on
    whether all of their rows are known to begin at multiples of 16 bytes. An op without an equal op
    is not changed.

    Example: test/Dialect/FlashAttn/share-kernels.mlir
  }];
  let dependentDialects = ["::mlir::func::FuncDialect"];
}

def Tile : Pass<"flashattn-tile"> {
  let summary = "replace every attention op on memrefs by a program on tile values";
  let description = [{
    Creates a `flashattn.program` over batches, query heads and query tiles, whose body operates on
    `vector<MxN>` tile values. The intervals of its `flashattn.tile_loop` over key tiles are
    computed from the mask's sets: hidden tiles are in no interval, and full tiles are distinguished
    from partial tiles. This is the only pass that creates the online softmax.

    With `pack`, a tile packs several query heads of one key/value head, with fewer positions of
    each head. If the number of heads in a group is not a multiple of `pack`, one tile of the group
    has extra rows, which are loaded as 0 and not stored.

    With `splits` (split-KV), `flashattn.count_splits` programs run for each query tile, each over
    an equal share of the key tiles, and `flashattn.combine` merges their f32 outputs. If the count
    is 1, an unsplit program runs instead, unless there is an `attn_mask` operand, or `sink_logits`
    with packed heads. With `small_blocks_per_sm` there are two versions of the unsplit program, and
    `flashattn.prefers_small_blocks` selects one at run time.

    With an `attn_mask` operand, unless the keys are split, `flashattn.list_tiles` first lists the
    key tiles of each program, or of the programs that share a block. The loop then runs over
    positions in a list.

    Examples: test/Dialect/FlashAttn/tile.mlir, test/Dialect/FlashAttn/tile-pack.mlir,
    test/Dialect/FlashAttn/tile-lists.mlir
  }];
  let dependentDialects = [
    "::mlir::affine::AffineDialect", "::mlir::arith::ArithDialect",
    "::mlir::flashattn::FlashAttnDialect", "::mlir::gpu::GPUDialect",
    "::mlir::math::MathDialect",
    "::mlir::memref::MemRefDialect", "::mlir::scf::SCFDialect", "::mlir::vector::VectorDialect"];
}

def RaiseLinalg : Pass<"flashattn-raise-linalg"> {
  let summary = "replace linalg ops that are an output projection by flashattn.project";
  let description = [{
    Matches a linalg op on tensors or memrefs that multiplies `o[b,h,n,d]`, or `o[b,n,h,d]`, by
    `w[h,d,e]` and adds the sum over `h` and `d` to `p[b,n,e]`, a destination that is filled with 0,
    and replaces the op by `flashattn.project`. The op is matched by its iterators, indexing maps
    and body, not by its name. On tensors, a subsequent op that only truncates the f32 sum to the
    type of `o` is included. Products of f16 and bf16 accumulate in f32, whatever type the original
    op accumulates in.

    A fill of a destination that an op of the dialect overwrites is removed.

    Example: test/Dialect/FlashAttn/raise-linalg.mlir
  }];
  let dependentDialects = ["::mlir::flashattn::FlashAttnDialect"];
}

def RaiseAttention : Pass<"flashattn-raise-attention"> {
  let summary = "replace matmul, softmax, matmul from front ends by flashattn.attention";
  let description = [{
    Replaces ops of `linalg`, `tensor`, `arith` and `math` on tensors that compute
    `softmax(f(q k^T)) v` by one `flashattn.attention`. The ops are matched by their semantics, not
    by their names: products with any indexing; transpositions, reshapes and broadcasts in any
    order; `linalg.softmax` or its decomposition; the division before or after the second product;
    guards for rows without a key; casts of 16-bit operands to f32 and back. Scale, softcap, bias
    and mask are derived from `f`. If the matched ops broadcast a key head to several query heads,
    these query heads share the key head in the new op. A score factor that is only known at run
    time may be 0 or less, which `scale` does not allow: the factor becomes a multiplication in a
    `score_mod`, unless it is a reciprocal square root. A factor per query or per key is multiplied
    into `q` or `k` beforehand.

    A mask that is computed from positions, possibly as a number that is 0 or 1, or that is a
    constant band matrix, becomes a set, provided that no integer in its computation can overflow.
    Comparisons of integers of tensors become sets with symbols: each integer that all pairs of a
    batch, of a query or of a key share is an operand of `per_sequence`, `per_query` or `per_key`.
    Any other condition that selects minus infinity becomes `attn_mask`. A condition that selects a
    low finite number also becomes `attn_mask` if constants and positions show every row a key;
    otherwise the ops are not replaced. Rows that such a condition hides entirely, depending on
    data, then produce 0 instead of the mean of the values, as the remark states. Any other summand
    becomes `bias`; no summand is dropped, and each is rounded as in the original ops.

    Ops are not replaced if other ops use their scores or probabilities. If ops nearly match, a
    remark of the category `flashattn-raise-attention` is emitted at the op that prevents the match;
    `--remarks-filter=flashattn-raise-attention --remark-format=emitRemark` prints it.

    Example: test/Dialect/FlashAttn/RaiseAttention/jax-window-iree.mlir
  }];
  let dependentDialects = [
    "::mlir::arith::ArithDialect", "::mlir::flashattn::FlashAttnDialect",
    "::mlir::linalg::LinalgDialect", "::mlir::math::MathDialect",
    "::mlir::tensor::TensorDialect"];
}

def InlinePrivate : Pass<"flashattn-inline-private", "::mlir::ModuleOp"> {
  let summary = "inline calls of private functions on tensors";
  let description = [{
    Bufferization passes contiguous buffers to functions, so a slice or transposition that is passed
    to a function becomes a copy. To avoid the copy, the pass inlines calls of private single-block
    functions with tensor arguments or results, except calls of recursive functions. It erases
    private functions without callers.

    Example: test/Dialect/FlashAttn/inline-private.mlir
  }];
}

def PrepareTensors : Pass<"flashattn-prepare-tensors"> {
  let summary = "replace ops on tensors that cannot be bufferized by ops that can";
  let description = [{
    `arith` and `math` ops on tensors become `linalg.generic`, and `tensor.concat` becomes
    `tensor.insert_slice` ops. `linalg.softmax`, on tensors or memrefs, is decomposed into
    `linalg.generic` ops, and `linalg.pack` and `linalg.unpack` into a padding, a reshape and a
    transposition.

    Inside the bodies of linalg ops, tensors that only wrap scalars are removed, because each of
    them would become one buffer per element; reductions of StableHLO create such tensors. Elements
    extracted from tensors that are computed from constants become constants, and the functions that
    contain them are simplified; front ends use such elements to check shapes.

    Arguments of public functions that are not the destination of an op are marked as not writable,
    so that the caller's data is not overwritten.

    Example: test/Dialect/FlashAttn/prepare-tensors.mlir
  }];
  let dependentDialects = [
    "::mlir::arith::ArithDialect", "::mlir::bufferization::BufferizationDialect",
    "::mlir::linalg::LinalgDialect", "::mlir::math::MathDialect",
    "::mlir::tensor::TensorDialect"];
}

def FreeLoopBuffers : Pass<"flashattn-free-loop-buffers", "::mlir::ModuleOp"> {
  let summary = "free buffers that loops allocate";
  let description = [{
    Bufferization of loop-carried tensors can allocate buffers in the loop that are never freed. If
    a module has such a loop, the pass runs upstream's `ownership-based-buffer-deallocation` on
    every buffer of the module that the program does not free itself. The caller of a public
    function then owns the function's results, as separate buffers. Modules without such a loop are
    not changed.

    Example: test/Dialect/FlashAttn/free-loop-buffers.mlir
  }];
  let dependentDialects = [
    "::mlir::arith::ArithDialect", "::mlir::bufferization::BufferizationDialect",
    "::mlir::cf::ControlFlowDialect", "::mlir::memref::MemRefDialect",
    "::mlir::scf::SCFDialect"];
}

def KeepLoops : Pass<"flashattn-keep-loops"> {
  let summary = "prevent LLVM from unrolling loops that contain loops";
  let description = [{
    Annotates `scf.for` loops that contain other loops so that LLVM does not unroll them. `linalg`
    ops next to attention become nests of loops over small static sizes. LLVM would otherwise unroll
    such a nest from the inside outwards, into a function that takes many seconds to compile. LLVM
    may still unroll innermost loops.

    Example: test/Dialect/FlashAttn/keep-loops.mlir
  }];
  let dependentDialects = ["::mlir::LLVM::LLVMDialect"];
}

def FreeTemporaries : Pass<"flashattn-free-temporaries"> {
  let summary = "free buffers after their last use";
  let description = [{
    Frees every buffer that a function allocates and does not free. The deallocation follows the
    last op of the block that uses the buffer or a view of it, so that a chain of ops only keeps the
    buffers that later ops read. A buffer that leaves its block, for example as the result of a
    function, is not freed.

    Example: test/Dialect/FlashAttn/free-temporaries.mlir
  }];
  let dependentDialects = ["::mlir::memref::MemRefDialect"];
}

def FoldCopies : Pass<"flashattn-fold-copies"> {
  let summary = "fold copies into the kernels that write the source or read the target";
  let description = [{
    Removes a copy (a `memref.copy`, or a linalg op that only permutes dimensions) if only ops of
    the dialect write its source, or read its target. These ops then use a view of the other side of
    the copy, with dimensions permuted by `memref.transpose`. The innermost dimension must stay
    innermost and contiguous, and no other op may access the memory of the other side between the
    first and the last of these ops. A copy of a view onto itself is also removed. A copy that the
    GPU driver can perform is kept if the view would slow down the kernels.

    Example: test/Dialect/FlashAttn/fold-copies.mlir
  }];
  let dependentDialects = ["::mlir::memref::MemRefDialect"];
}

def ExpandCopies : Pass<"flashattn-expand-copies"> {
  let summary = "lower copies that upstream would lower to calls of MLIR's runner library";
  let description = [{
    A `memref.copy` from or to memory that is not contiguous becomes `linalg.copy`. On a GPU, a copy
    between contiguous memrefs, at any offsets, becomes `gpu.memcpy`; other copies are left for
    `flashattn-verify-host` to reject.

    Example: test/Dialect/FlashAttn/expand-copies.mlir
  }];
  let options = [Option<"onGPU", "on-gpu", "bool", "false", "whether memory is GPU memory">];
  let dependentDialects = [
    "::mlir::arith::ArithDialect", "::mlir::gpu::GPUDialect", "::mlir::linalg::LinalgDialect",
    "::mlir::LLVM::LLVMDialect", "::mlir::memref::MemRefDialect"];
}

def VerifyHost : Pass<"flashattn-verify-host"> {
  let summary = "reject host ops that would access GPU memory";
  let description = [{
    Emits an error at a linalg op, a `memref.copy`, a `memref.load` or a `memref.store` outside of
    kernels, because such an op runs on the host but accesses GPU memory. Also emits an error at a
    `memref.get_global`, which would pass host memory to kernels. Notes at the first error list the
    other ops.

    Example: test/Dialect/FlashAttn/verify-host.mlir
  }];
}

def VerifyTensors : Pass<"flashattn-verify-tensors"> {
  let summary = "reject ops on tensors that cannot be bufferized";
  let description = [{
    Emits an error at an op on tensors that one-shot bufferization cannot convert to memrefs.

    Example: test/Dialect/FlashAttn/verify-tensors.mlir
  }];
}

def VerifyModule : Pass<"flashattn-verify-module"> {
  let summary = "reject nested modules and reserved function names";
  let description = [{
    The first pass of each pipeline. It emits an error at a nested module, because the pipelines
    generate no code for the functions of a nested module, and at a function with a body whose name
    is reserved by LLVM or the runtime. All other names are allowed; kernels are renamed to names
    that PTX accepts.

    Example: test/Dialect/FlashAttn/verify-module.mlir
  }];
}

def VerifyLowered : Pass<"flashattn-verify-lowered"> {
  let summary = "reject ops that the pipelines could not lower";
  let description = [{
    The last pass of each pipeline. It emits an error at an op that cannot be translated to LLVM IR.

    Example: test/Dialect/FlashAttn/verify-lowered.mlir
  }];
}

def TileProject : Pass<"flashattn-tile-project"> {
  let summary = "replace every projection on memrefs by a program on tile values";
  let description = [{
    Creates a `flashattn.program` over batches, row tiles and column tiles of `flashattn.project`,
    with a single loop over the heads and over the ranges of columns into which a row of `o` is
    divided. Elements past the ends are loaded as 0 and not stored.

    If a batch has at most 16 rows, a tile contains rows of several batches.

    Example: test/Dialect/FlashAttn/tile-project.mlir
  }];
  let dependentDialects = [
    "::mlir::arith::ArithDialect", "::mlir::memref::MemRefDialect", "::mlir::scf::SCFDialect",
    "::mlir::vector::VectorDialect"];
}

def FuseProjection : Pass<"flashattn-fuse-projection"> {
  let summary = "multiply each head's output as soon as it is finished";
  let description = [{
    Merges a `flashattn.project` into the CPU tile program of the preceding attention, which
    computes its `o`. The result is one program per batch and row tile, with a loop over the heads.
    Each head's output, in f32, is multiplied by the head's matrix and added to the accumulators of
    all columns of the row tile. The output itself is only written if another op reads it.

    The projection is left for `flashattn-tile-project` if there is no such program before it, if
    the rows of the program's tiles belong to several heads, if the keys are split, or if the number
    of columns is dynamic or too large for a core's cache. The same holds for every projection that
    is tiled for a GPU, because the heads of a row run in parallel on a GPU.

    Example: test/Dialect/FlashAttn/fuse-projection.mlir
  }];
  let dependentDialects = [
    "::mlir::arith::ArithDialect", "::mlir::memref::MemRefDialect", "::mlir::scf::SCFDialect",
    "::mlir::vector::VectorDialect"];
}

def ExpandLoops : Pass<"flashattn-expand-loops"> {
  let summary = "lower loops over tiles to loops over partial and full tiles";
  let description = [{
    Lowers every `flashattn.tile_loop` to `scf.for` loops, one for each run of partial or full
    tiles. The loops over full tiles contain no masks. Several intervals share one copy of these
    loops, inside an outer loop that selects the bounds.

    If a stage lags, the loops are software-pipelined: a step first runs its own first stage and
    then the lagging stages of the previous step, so that two independent matrix products are
    adjacent; the remaining stages of the step overlap with the second product. The stages of the
    first step are placed before the loops, and the lagging stages of the last step after the loops,
    under the condition that there is a step. For an online softmax in which full and partial tiles
    differ only by a mask, there is one loop for both, with the mask in a branch, if that is as fast
    (TileLoops.cpp); this loop takes half as long to compile.

    Example: test/Dialect/FlashAttn/expand-loops.mlir
  }];
  let dependentDialects = [
    "::mlir::arith::ArithDialect", "::mlir::memref::MemRefDialect", "::mlir::scf::SCFDialect"];
}

def ExpandRescale : Pass<"flashattn-expand-rescale"> {
  let summary = "lower online softmax steps to arithmetic, with lazy rescaling";
  let description = [{
    Lowers `flashattn.softmax_step` to `arith`, `math` and `vector` ops. With `threshold`, the base
    that is subtracted from the exponents is kept until a score exceeds it by more than the
    threshold; only then are row sum and output rescaled. Both use the same base, so the result is
    exact. With a region, the decision is based on the probabilities against the old base; if a
    probability exceeds the threshold, scores and probabilities are computed again.

    Example: test/Dialect/FlashAttn/expand-rescale.mlir
  }];
  let dependentDialects = [
    "::mlir::arith::ArithDialect", "::mlir::flashattn::FlashAttnDialect",
    "::mlir::math::MathDialect", "::mlir::scf::SCFDialect", "::mlir::vector::VectorDialect"];
}

#endif // FLASHATTN_TRANSFORMS_PASSES_TD
