#ifndef FLASHATTN_TRANSFORMS_PASSES_TD
#define FLASHATTN_TRANSFORMS_PASSES_TD

include "mlir/Pass/PassBase.td"

def SelectSchedule : Pass<"flashattn-select-schedule"> {
  let summary = "choose tile sizes, warps and stages for every attention op and projection";
  let description = [{
    Puts a `#flashattn.schedule` on every `flashattn.attention` and `flashattn.project` that has none:
    the first row of the chip's table whose needs (shared memory, registers)
    fit. A schedule already there is checked and kept. Where none fits, the
    error lists each reason, with the schedules that it refused (rule R2).

    Example: test/Dialect/FlashAttn/select-schedule.mlir
  }];
  let options = [
    Option<"chip", "chip", "std::string", "\"cpu\"", "cpu, or the GPU as sm_XX">,
    Option<"vectorWidth", "vector-width", "int64_t", "16",
           "f32 lanes of the CPU's vector registers">,
    Option<"schedule", "schedule", "std::string", "\"\"",
           "fields of a schedule to pin on every attention that has none, as 'tile_m = 128'; those left out are chosen">,
  ];
  let dependentDialects = ["::mlir::flashattn::FlashAttnDialect"];
}

def ShareKernels : Pass<"flashattn-share-kernels"> {
  let summary = "make one function of ops that differ in nothing but their operands";
  let description = [{
    Ops of the dialect on memrefs that have the same attributes, regions and types become calls of one
    private function, whose arguments are their operands: the kernels of a model's layers are
    compiled once. Scalars that are constants are compiled in, so ops share a function where these
    are the same. Memrefs share an argument where the rows of all begin at multiples of 16 bytes, or those
    of none. An op that has no equal stays as it is.

    Example: test/Dialect/FlashAttn/share-kernels.mlir
  }];
  let dependentDialects = ["::mlir::func::FuncDialect"];
}

def Tile : Pass<"flashattn-tile"> {
  let summary = "turn every attention op on memrefs into a program on tile values";
  let description = [{
    One `flashattn.program` per batch, query head and tile of query rows, whose body works
    on `vector<MxN>` tile values. The intervals of its `flashattn.tile_loop` over key tiles
    come from the mask's set: hidden tiles are in none, and full ones are told apart. The
    online softmax is written here and nowhere else.

    With `pack` a program has several query heads of one key/value head, and fewer
    positions of each; a group whose heads are no multiple has one program with rows that
    are none, read as 0 and not written.

    With a schedule that splits the keys there are `flashattn.count_splits` programs for each of
    these: each runs over an equal share of its key tiles, and `flashattn.combine` merges what they
    leave in f32. Where that number is 1 the program without parts runs instead, but for one with a
    `keep`, or with `sink_logits` and several heads a tile; with `narrow_blocks` one of two, as
    `flashattn.prefers_narrow` says.

    With a `keep`, unless its keys come in parts, `flashattn.list_tiles` lists the key tiles of each
    program, or of those that share a block, before all else; the loop then goes over the places of
    a list.

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
  let summary = "turn linalg ops that are an output projection into flashattn.project";
  let description = [{
    A linalg op on tensors or memrefs that multiplies `o[b,h,n,d]`, or `o[b,n,h,d]`, with `w[h,d,e]`
    and adds the sum over `h` and `d` to `p[b,n,e]`, a destination that was filled with 0, becomes
    `flashattn.project`, known by its iterators, indexing maps and body, whatever its name. On tensors
    an op behind it that only truncates the f32 sum to the type of `o` goes with it. Sums of f16 and
    bf16 are taken in f32, whatever the op says.

    A fill of what an op of the dialect overwrites is dropped.

    Example: test/Dialect/FlashAttn/raise-linalg.mlir
  }];
  let dependentDialects = ["::mlir::flashattn::FlashAttnDialect"];
}

def RaiseAttention : Pass<"flashattn-raise-attention"> {
  let summary = "turn matmul, softmax, matmul as front ends emit them into flashattn.attention";
  let description = [{
    Ops of `linalg`, `tensor`, `arith` and `math` on tensors that are `softmax(f(q k^T)) v` become one
    `flashattn.attention`, known by what they compute and not by their names: products of any
    indexing, transpositions, reshapes and broadcasts in any order, `linalg.softmax` or its parts, the
    division before or behind the second product, guards for rows without a key, f32 around operands
    of 16 bits. Of `f` the op takes scale, cap, bias and mask; query heads that share a key head by
    a broadcast share it in the op. A factor of the scores that is known at run time alone may be 0 or
    less, which `scale` may not: unless it is a reciprocal root, a `score_mod` multiplies by it. One of
    each query or each key multiplies these before.

    A mask that is computed from positions, also by way of numbers that are 0 or 1, or is a matrix of
    constants in the shape of a band, becomes a set, where no integer of it may wrap. Another
    condition that selects minus infinity becomes `keep`, and so does one that selects a low number,
    where constants and positions leave each row a key; where they do not, the ops stay. Rows that
    data hide by a low number give 0 in place of the mean of the values, which the remark then says.
    What is added is a `bias`, with no summand left out, rounded as the ops round it.

    Nothing is raised of which something else reads scores or probabilities. A remark, of the
    category `flashattn-raise-attention`, stands at the op that was in the way of what is nearly an
    attention: `--remarks-filter=flashattn-raise-attention --remark-format=emitRemark` prints it.

    Example: test/Dialect/FlashAttn/RaiseAttention/jax-window-iree.mlir
  }];
  let dependentDialects = [
    "::mlir::arith::ArithDialect", "::mlir::flashattn::FlashAttnDialect",
    "::mlir::linalg::LinalgDialect", "::mlir::math::MathDialect",
    "::mlir::tensor::TensorDialect"];
}

def InlinePrivate : Pass<"flashattn-inline-private", "::mlir::ModuleOp"> {
  let summary = "replace calls of private functions on tensors by what they do";
  let description = [{
    What bufferization gives to a function is a buffer without gaps: a slice or a transposition that is
    handed to one becomes a copy. Calls of private functions of one block that take or give tensors
    become their bodies, but for functions that call themselves, and private functions that nobody
    calls go.

    Example: test/Dialect/FlashAttn/inline-private.mlir
  }];
}

def PrepareTensors : Pass<"flashattn-prepare-tensors"> {
  let summary = "turn ops on tensors that cannot be bufferized into ops that can";
  let description = [{
    `arith` and `math` ops on tensors become `linalg.generic`, `tensor.concat` becomes
    `tensor.insert_slice` ops, `linalg.softmax`, on tensors or memrefs, the `linalg.generic` ops that
    it is made of, and `linalg.pack` and `linalg.unpack` a padding, a reshape and a transposition.
    In the bodies of linalg ops a tensor that only wraps scalars which are taken out again, as the
    reductions of StableHLO have them, goes: it would be a buffer for every element.
    An element that is taken out of a tensor and computed of constants becomes one, as front ends check
    shapes with, and functions with such are simplified.
    Arguments of public functions that no op has as its destination are marked as not writable: what
    the caller brings there stays as it is.

    Example: test/Dialect/FlashAttn/prepare-tensors.mlir
  }];
  let dependentDialects = [
    "::mlir::arith::ArithDialect", "::mlir::bufferization::BufferizationDialect",
    "::mlir::linalg::LinalgDialect", "::mlir::math::MathDialect",
    "::mlir::tensor::TensorDialect"];
}

def FreeLoopBuffers : Pass<"flashattn-free-loop-buffers", "::mlir::ModuleOp"> {
  let summary = "free what loops allocate";
  let description = [{
    Where a loop allocates buffers that nobody frees, as bufferization makes them of tensors that it
    carries, every buffer of the module that the program does not free itself gets an owner, which
    frees it: upstream's `ownership-based-buffer-deallocation`. A public function then gives its
    results to its caller, as buffers of their own. Modules without such a loop are left as they are.

    Example: test/Dialect/FlashAttn/free-loop-buffers.mlir
  }];
  let dependentDialects = [
    "::mlir::arith::ArithDialect", "::mlir::bufferization::BufferizationDialect",
    "::mlir::cf::ControlFlowDialect", "::mlir::memref::MemRefDialect",
    "::mlir::scf::SCFDialect"];
}

def KeepLoops : Pass<"flashattn-keep-loops"> {
  let summary = "keep LLVM from unrolling loops that hold loops";
  let description = [{
    Loops of `scf.for` around others get the annotation that they are not to be unrolled. A nest of
    loops over small static sizes, as `linalg` ops beside attention become, would else be unrolled
    from the inside outwards, into functions that take LLVM many seconds. Innermost loops stay LLVM's
    to unroll.

    Example: test/Dialect/FlashAttn/keep-loops.mlir
  }];
  let dependentDialects = ["::mlir::LLVM::LLVMDialect"];
}

def FreeTemporaries : Pass<"flashattn-free-temporaries"> {
  let summary = "free buffers as soon as nobody needs them any more";
  let description = [{
    Every buffer that a function allocates and nobody frees is freed behind the last op of its block
    that uses it, itself or a view of it, so that a chain of ops holds no more than what is still to
    be read. One that leaves its block, as what a function returns does, is kept.

    Example: test/Dialect/FlashAttn/free-temporaries.mlir
  }];
  let dependentDialects = ["::mlir::memref::MemRefDialect"];
}

def FoldCopies : Pass<"flashattn-fold-copies"> {
  let summary = "let kernels read and write where a copy would bring it from or to";
  let description = [{
    A copy, which `memref.copy` is, and an op of linalg that moves dimensions and computes nothing, goes
    where ops of the dialect alone write what it reads, or read what it writes: they take a view of its
    other side, of which `memref.transpose` moves the dimensions. Rows stay rows, and nothing else may
    touch the memory of that side between the first such op and the last. A copy of a view onto itself
    goes too. One that a GPU's driver can make stays where kernels would be slower with the view.

    Example: test/Dialect/FlashAttn/fold-copies.mlir
  }];
  let dependentDialects = ["::mlir::memref::MemRefDialect"];
}

def ExpandCopies : Pass<"flashattn-expand-copies"> {
  let summary = "turn copies that upstream would call a runner's function for into loops";
  let description = [{
    `memref.copy` from or to memory that is not contiguous becomes `linalg.copy`. On a GPU one from
    contiguous memory to contiguous memory, at any offset, becomes `gpu.memcpy`, and the others stay, for
    `flashattn-verify-host`.

    Example: test/Dialect/FlashAttn/expand-copies.mlir
  }];
  let options = [Option<"onGPU", "on-gpu", "bool", "false", "memory is a GPU's">];
  let dependentDialects = [
    "::mlir::arith::ArithDialect", "::mlir::gpu::GPUDialect", "::mlir::linalg::LinalgDialect",
    "::mlir::LLVM::LLVMDialect", "::mlir::memref::MemRefDialect"];
}

def VerifyHost : Pass<"flashattn-verify-host"> {
  let summary = "refuse ops that would read a GPU's memory from the host";
  let description = [{
    An error at a linalg op, a `memref.copy`, a `memref.load` or a `memref.store` outside of kernels:
    the host would run it, and the function's memory is the GPU's. Likewise at a
    `memref.get_global`, which is the host's memory in the hands of kernels. The notes of the first one
    list the others.

    Example: test/Dialect/FlashAttn/verify-host.mlir
  }];
}

def VerifyTensors : Pass<"flashattn-verify-tensors"> {
  let summary = "refuse ops on tensors that cannot be bufferized";
  let description = [{
    An error at an op with tensors that one-shot bufferization has no form on buffers for.

    Example: test/Dialect/FlashAttn/verify-tensors.mlir
  }];
}

def VerifyModule : Pass<"flashattn-verify-module"> {
  let summary = "refuse modules within modules, and names of functions that are not free";
  let description = [{
    The first pass of each pipeline: an error at a module within another one, whose functions would have
    no place in the code that the pipelines make, and at a function with a body whose name means something
    to LLVM or to the runtime. Any other name will do: kernels get names that PTX takes.

    Example: test/Dialect/FlashAttn/verify-module.mlir
  }];
}

def VerifyLowered : Pass<"flashattn-verify-lowered"> {
  let summary = "refuse ops that the pipelines could not lower";
  let description = [{
    The last pass of each pipeline: an error at an op that cannot be translated to LLVM IR.

    Example: test/Dialect/FlashAttn/verify-lowered.mlir
  }];
}

def TileProject : Pass<"flashattn-tile-project"> {
  let summary = "turn every projection on memrefs into a program on tile values";
  let description = [{
    One `flashattn.program` per batch, tile of rows and tile of columns of `flashattn.project`, whose
    one loop runs over the heads and the parts
    of a row of `o`. Rows, columns and parts of rows past the ends read as 0 and are not written.

    Where a batch has few rows, at most 16, the rows of a tile are those of as many batches.

    Example: test/Dialect/FlashAttn/tile-project.mlir
  }];
  let dependentDialects = [
    "::mlir::arith::ArithDialect", "::mlir::memref::MemRefDialect", "::mlir::scf::SCFDialect",
    "::mlir::vector::VectorDialect"];
}

def FuseProjection : Pass<"flashattn-fuse-projection"> {
  let summary = "multiply each head's output as soon as it is finished";
  let description = [{
    Where a `flashattn.project` follows the CPU's tile program of the attention that makes its `o`,
    the two become one: a program for each batch and row tile, a loop over the heads with its body,
    each of whose outputs, in f32, meets the head's matrix and is added to the sums of all columns of
    the row tile. The output itself is not written where no one else reads it.

    What has no such program before it, or one whose tiles have rows of several heads, or the merge
    of keys in parts, or columns whose number is not static or too large for a core's cache, stays
    for `flashattn-tile-project`, and so does all that is tiled for a GPU: there the heads of a row
    run side by side.

    Example: test/Dialect/FlashAttn/fuse-projection.mlir
  }];
  let dependentDialects = [
    "::mlir::arith::ArithDialect", "::mlir::memref::MemRefDialect", "::mlir::scf::SCFDialect",
    "::mlir::vector::VectorDialect"];
}

def ExpandLoops : Pass<"flashattn-expand-loops"> {
  let summary = "turn loops over tiles into loops over their intervals' partial and full tiles";
  let description = [{
    Every `flashattn.tile_loop` becomes `scf.for`s, one for each run of partial or full tiles, in which
    masks of full tiles are gone; those of several intervals share one copy of the loops, in an outer
    loop that picks their bounds.

    Where a stage lags the loops are turned: a step first runs its own first stage and then what the
    last step has left, so that two products that do not depend on each other stand side by side, and
    the rest of this step beside the second. The first step's own stages and what the last one leaves
    stand before and behind the loops, all of it on condition that there is a step. Of an online
    softmax in which nothing but a mask tells full tiles from partial ones there is one loop for both,
    with the mask in a branch, where that is as fast (TileLoops.cpp): it takes half as long to compile.

    Example: test/Dialect/FlashAttn/expand-loops.mlir
  }];
  let dependentDialects = [
    "::mlir::arith::ArithDialect", "::mlir::memref::MemRefDialect", "::mlir::scf::SCFDialect"];
}

def ExpandRescale : Pass<"flashattn-expand-rescale"> {
  let summary = "turn the steps of the online softmax that may be skipped into arithmetic";
  let description = [{
    `flashattn.weights` becomes `arith`, `math` and `vector` ops. With `growth` the base that exponents
    are taken against stays as it is until some row's scores exceed it by more, and only then are sum
    and output rescaled: both use the same base, so the result is exact. With a region, whether they
    do is judged by weights against the old base, and the scores of those that outgrew it are made
    again.

    Example: test/Dialect/FlashAttn/expand-rescale.mlir
  }];
  let dependentDialects = [
    "::mlir::arith::ArithDialect", "::mlir::flashattn::FlashAttnDialect", "::mlir::math::MathDialect",
    "::mlir::scf::SCFDialect", "::mlir::vector::VectorDialect"];
}

#endif // FLASHATTN_TRANSFORMS_PASSES_TD
