#ifndef FLASHATTN_CONVERSION_PASSES_TD
#define FLASHATTN_CONVERSION_PASSES_TD

include "mlir/Pass/PassBase.td"

def ConvertFlashAttnToCPU : Pass<"convert-flashattn-to-cpu", "::mlir::ModuleOp"> {
  let summary = "lower tile programs to vector code that runs in parallel over programs";
  let description = [{
    The rows of a tile, which may belong to several heads, are mapped to the lanes of a vector
    register, and its columns to a loop. A row reduction is then elementwise and needs no shuffles.
    Tiles with so few rows that products run along their columns are an exception.

    Each `flashattn.program` becomes a function that runs one program and a call of
    `flashattnParallelFor` (flashattn/Runtime/ParallelFor.h). The body of a program without a
    schedule is ordinary code and is not changed. `flashattn.count_splits` becomes 1 if every thread
    has the same number of programs; otherwise, it becomes a number that results in a few programs
    for each thread (`flashattnThreadCount`).

    Example: test/Conversion/FlashAttnToCPU/attention.mlir
  }];
  let options = [
    Option<"vectorWidth", "vector-width", "int64_t", "16",
           "f32 lanes of the CPU's vector registers; 16 implies 32 registers, fewer 16">,
  ];
  let dependentDialects = [
    "::mlir::affine::AffineDialect", "::mlir::arith::ArithDialect", "::mlir::func::FuncDialect",
    "::mlir::LLVM::LLVMDialect", "::mlir::math::MathDialect", "::mlir::memref::MemRefDialect",
    "::mlir::scf::SCFDialect", "::mlir::vector::VectorDialect"];
}

def ConvertFlashAttnKernelsToCPU : Pass<"convert-flashattn-kernels-to-cpu"> {
  let summary = "lower ops that run before and after the tile programs to loops";
  let description = [{
    `flashattn.list_tiles` becomes a `flashattn.program` without a schedule that runs once for each
    list, and `flashattn.combine` becomes a program that runs once for each head. The latter
    processes one row at a time: it reads each split's output once and scales it relative to the
    largest log-sum-exp so far.

    Examples: test/Conversion/FlashAttnToCPU/list-tiles.mlir,
    test/Conversion/FlashAttnToCPU/combine.mlir
  }];
  let dependentDialects = [
    "::mlir::arith::ArithDialect", "::mlir::flashattn::FlashAttnDialect",
    "::mlir::math::MathDialect",
    "::mlir::memref::MemRefDialect", "::mlir::scf::SCFDialect", "::mlir::vector::VectorDialect"];
}

//===----------------------------------------------------------------------===//
// NVIDIA GPUs
//===----------------------------------------------------------------------===//

def MapToGPU : Pass<"flashattn-map-to-gpu"> {
  let summary = "map every tile program to a thread block";
  let description = [{
    Lowers each `flashattn.program` that `flashattn-specialize-warps` has not lowered to a
    `gpu.launch` of one block per program and 32 threads per warp. The query tile is the fastest
    coordinate in the block index, and the last tile of a head is first, because it is the
    longest under a causal mask. The first and the last of several kernels of an op begin with the
    last head. The body still operates on whole tiles, in a `flashattn.on_threads` with the
    schedule.

    `flashattn.count_splits` and `flashattn.prefers_small_blocks` become arithmetic on the number of
    multiprocessors.

    Programmatic dependent launch: split-KV programs and programs with `pdl_primary` execute
    `flashattn.launch_dependents` at their start, so that the kernel that merges the splits, or the
    programs with `pdl_secondary`, may start. The latter execute
    `flashattn.wait_prerequisite_grids` before their first memory access. Blocks that
    `flashattn-specialize-warps` creates do the same, except that they wait after issuing the loads
    of their resident tiles. A block with `flashattn.await_added` waits for the previous kernel only
    at its end.

    Example: test/Conversion/FlashAttnToGPU/map-to-gpu.mlir
  }];
  let dependentDialects = [
    "::mlir::arith::ArithDialect", "::mlir::flashattn::FlashAttnDialect",
    "::mlir::flashattn::hopper::HopperDialect", "::mlir::gpu::GPUDialect",
    "::mlir::scf::SCFDialect"];
}

def StageShared : Pass<"flashattn-stage-shared"> {
  let summary = "stage the tiles that contractions read in shared memory";
  let description = [{
    Replaces every `flashattn.load_tile` that is an operand of a contraction, in a program without
    warp specialization, by an asynchronous copy (`cp.async`) to swizzled shared memory and a load
    from shared memory. If the schedule has two stages, loads in a `flashattn.tile_loop` are
    double-buffered: within an interval, the copy of the next tile overlaps with the computation on
    the current tile. A loop over several intervals becomes a loop over the interval indices that
    contains a loop over one interval.

    Warps also exchange computed tiles through shared memory: tiles over whose rows a contraction
    sums and, if warps share rows (`column_warps`), all left-hand sides of contractions. The warps
    synchronize once before the first contraction that reads the tiles that they have written.

    Example: test/Conversion/FlashAttnToGPU/stage-shared.mlir
  }];
  let dependentDialects = [
    "::mlir::arith::ArithDialect", "::mlir::gpu::GPUDialect", "::mlir::memref::MemRefDialect",
    "::mlir::nvgpu::NVGPUDialect", "::mlir::NVVM::NVVMDialect", "::mlir::scf::SCFDialect",
    "::mlir::vector::VectorDialect"];
}

def Distribute : Pass<"flashattn-distribute"> {
  let summary = "distribute tile values to threads";
  let description = [{
    A tile value `vector<MxNxT>` becomes one vector per thread (its fragment), in the order of the
    accumulators of `mma.sync` m16n8: with row block r of R, column group g of 8 columns, half h and
    column c, element `r*N/2 + 4g + 2h + c` is row `16(r + R*warp) + lane/4 + 8h` and column
    `8g + 2(lane%4) + c`. If C warps share rows (`column_warps`), a warp has N/C columns, which
    replace N in this formula: warp w has the columns from `w / (warps/C) * N/C` on, and the rows of
    warp `w % (warps/C)`. Elementwise ops apply to these vectors. A row reduction becomes a tree
    within the thread and two shuffles between four lanes. A contraction becomes `mma.sync`, whose
    right-hand side `ldmatrix` loads from shared memory. `hopper.wgmma` has operands and results in
    the same order.

    If a program has `unused_row_half` and no `mma.sync`, fragments only contain the elements with
    `h = 0`, which halves the work of the softmax. A `hopper.wgmma` reads each such row twice and
    returns it once; the accumulator of a product with a left-hand side in registers keeps all rows.

    Example: test/Conversion/FlashAttnToGPU/distribute.mlir
  }];
  let dependentDialects = [
    "::mlir::arith::ArithDialect", "::mlir::gpu::GPUDialect", "::mlir::memref::MemRefDialect",
    "::mlir::LLVM::LLVMDialect", "::mlir::NVVM::NVVMDialect",
    "::mlir::scf::SCFDialect", "::mlir::vector::VectorDialect"];
}

def OutlineKernels : Pass<"flashattn-outline-kernels", "::mlir::ModuleOp"> {
  let summary = "outline each launch as a kernel that computes its own constants and sizes";
  let description = [{
    Runs upstream's `gpu-launch-sink-index-computations` and `gpu-kernel-outlining` in one pass. A
    launch is not isolated: any simplification between the two passes would move the sunk constants
    out of the launch again, and each of them would become an argument of the kernel.

    Example: test/Conversion/FlashAttnToGPU/outline-kernels.mlir
  }];
  let dependentDialects = ["::mlir::DLTIDialect", "::mlir::gpu::GPUDialect"];
}

def ConvertMathToNVVM : Pass<"flashattn-math-to-nvvm"> {
  let summary = "lower math ops to GPU instructions";
  let description = [{
    In GPU functions, `math.exp2` and `math.log2` on f32 become `ex2.approx.ftz` and
    `lg2.approx.ftz`, and a quotient of 1 becomes `rcp.approx.ftz`, element by element. The
    functions of libdevice need several more instructions for denormals, which softmax
    probabilities do not need. `exp`, `log`, `rsqrt` and `tanh` are lowered in the same way; `tanh`
    becomes `tanh.approx` if its flags allow an approximation (`afn`). Other ops that a score
    modification may contain are expanded, or approximated by polynomials. An op without a lowering
    is an error at its location.

    In kernels for chips without warpgroups, one instruction (`cvt.rn.bf16x2.f32`) converts two f32
    elements to a pair of bf16 elements. From sm_89 on, one instruction converts a pair of f8
    elements to f16 (`flashattn.convert_elements`); other chips shift and mask their bits.

    In kernels for chips with warpgroups, 16-bit elements stay in pairs, one pair per register. bf16
    is extended by shifting and masking. Elements that must be 0 if other elements are 0 are masked
    in pairs (`set` and `and`). A selection by several conditions becomes one `selp` per element,
    one element after the other; LLVM would create one `selp` per condition, and keep the conditions
    of all elements in registers until then.

    Example: test/Conversion/FlashAttnToGPU/math-to-nvvm.mlir
  }];
  let dependentDialects = [
    "::mlir::arith::ArithDialect", "::mlir::LLVM::LLVMDialect", "::mlir::math::MathDialect",
    "::mlir::vector::VectorDialect"];
}

//===----------------------------------------------------------------------===//
// Hopper
//===----------------------------------------------------------------------===//

def SpecializeWarps : Pass<"flashattn-specialize-warps"> {
  let summary = "map groups of neighboring tile programs to warp-specialized thread blocks";
  let description = [{
    Lowers each `flashattn.program` whose schedule has warp specialization to a `gpu.launch`. The
    operands of contractions are loaded into shared memory in one of two ways:

    - A tile that the program loads outside its `flashattn.tile_loop` is resident: each consumer has
      its own buffer for the tile.
    - A tile that the `flashattn.tile_loop` loads in each step is streamed through a `hopper.ring`
      with the schedule's stages, which all consumers share.

    The first warpgroup is the producer: one thread loads tiles into shared memory
    (`hopper.tma_load`, `hopper.ring_put`). Every other warpgroup is a consumer, which runs one of
    the block's programs (`flashattn.on_threads`). Each consumer has its own tile loop. The
    producer's loop runs over the tiles that any of the programs reads; a consumer skips the tiles
    that its program does not read. The rows of a streamed tile from `below` on are set to zero if a
    contraction sums over these rows.

    The programs of a block are neighbors along the query tiles or along the heads, and read the
    same head of the streamed tensors. The block index runs over the heads of an `l2_head_group`
    first, and over query tiles from the last to the first, because the last are the longest under a
    causal mask.

    If the loop has a list of tiles, the programs of a block share the list, and the steps of rings
    correspond to positions in the list.

    With `q_stages = 2` the kernel is persistent: it launches only as many blocks as run at once.
    Each block runs its first group and then, in a grid-stride loop, further groups. The producer
    loads the tiles of the next group while the consumers finish the current group. With
    `dynamic_scheduler`, a block fetches the next group from an atomic counter that an earlier grid
    sets to 0.
    For programs over segments, the earlier grid also lists the groups that exist, those of the
    longest segments first, and the counter counts rows of this list.

    Example: test/Conversion/ProgramToHopper/specialize-warps.mlir
  }];
  let dependentDialects = [
    "::mlir::arith::ArithDialect", "::mlir::gpu::GPUDialect",
    "::mlir::flashattn::hopper::HopperDialect",
    "::mlir::LLVM::LLVMDialect", "::mlir::memref::MemRefDialect", "::mlir::scf::SCFDialect"];
}

def ExpandRings : Pass<"hopper-expand-rings"> {
  let summary = "lower ring buffers to mbarriers and copies";
  let description = [{
    Step `s` of a ring of S stages uses stage `s mod S` in phase `s / S`. The wait for a full stage
    uses the parity of this phase; the wait for an empty stage uses the parity of the previous
    phase.

    Example: test/Conversion/ProgramToHopper/expand-rings.mlir
  }];
  let dependentDialects = [
    "::mlir::arith::ArithDialect", "::mlir::flashattn::hopper::HopperDialect",
    "::mlir::memref::MemRefDialect"];
}

def ContractToWgmma : Pass<"flashattn-contract-to-wgmma"> {
  let summary = "lower contractions of warpgroups to wgmma";
  let description = [{
    Replaces every contraction of a warp-specialized program, whose right-hand side is a
    `hopper.load_tile`, by a `hopper.wgmma` and by a `hopper.wgmma_wait` before the first use of the
    result; ops in between overlap with the product. If a branch contains all uses, each of its arms
    begins with a wait, because ptxas would move a wait before the branch up to the start of its
    basic block. If products issued later are pending at the wait, it stays after them anyway, and
    one wait before the branch is sufficient. The arrivals directly after the product, which release
    its tiles, move after the wait. Columns of the left-hand side that are in registers
    (`first`) are read from registers.

    A product of f8 with more than 128 columns, which `math.fma` adds to other sums, becomes several
    products of up to 64 columns, each of which is added before the next is issued. All of them use
    the same registers.

    Example: test/Conversion/ProgramToHopper/contract-to-wgmma.mlir
  }];
  let dependentDialects = ["::mlir::flashattn::hopper::HopperDialect",
                           "::mlir::memref::MemRefDialect"];
}

//===----------------------------------------------------------------------===//
// Kernels that run before and after the tile programs
//===----------------------------------------------------------------------===//

def ConvertFlashAttnKernelsToGPU : Pass<"convert-flashattn-kernels-to-gpu"> {
  let summary = "lower ops that run before and after the tile programs to kernels";
  let description = [{
    For `flashattn.list_tiles`, each block of a `gpu.launch` writes one list. A warp reads the
    elements of `attn_mask` of one key tile, 16 elements at a time if rows are aligned, and stops
    when it has found both values; ballots determine the list positions of the tiles of all warps.

    For `flashattn.combine`, each block merges one row. Each of its four groups of threads merges a
    quarter of the splits, with several loads in flight, relative to the largest log-sum-exp so far.
    One thread per column then merges the results of the groups from shared memory. The kernel
    starts while the previous kernel is ending, and waits for that kernel
    (`flashattn.wait_prerequisite_grids`) before its first memory access.

    Examples: test/Conversion/KernelsToGPU/list-tiles.mlir,
    test/Conversion/KernelsToGPU/combine.mlir
  }];
  let dependentDialects = [
    "::mlir::arith::ArithDialect", "::mlir::flashattn::FlashAttnDialect", "::mlir::gpu::GPUDialect",
    "::mlir::math::MathDialect", "::mlir::memref::MemRefDialect", "::mlir::scf::SCFDialect",
    "::mlir::vector::VectorDialect"];
}

def DropDependentLaunch : Pass<"flashattn-drop-dependent-launch"> {
  let summary = "remove programmatic dependent launch for GPUs without it";
  let description = [{
    Erases `flashattn.launch_dependents`, `flashattn.wait_prerequisite_grids` and
    `nvvm.griddepcontrol`, the instruction to which they are lowered and which a user's kernel may
    contain. On GPUs before sm_90, a kernel starts after the previous kernel has ended.

    Example: test/Conversion/KernelsToGPU/drop-dependent-launch.mlir
  }];
}

def ConvertFlashAttnDeviceToNVVM : Pass<"convert-flashattn-device-to-nvvm"> {
  let summary = "lower the flashattn dialect's device ops to instructions";
  let description = [{
    Lowers `flashattn.vote`, `flashattn.launch_dependents` and `flashattn.wait_prerequisite_grids`
    to one PTX instruction each.

    Example: test/Conversion/FlashAttnToNVVM/device.mlir
  }];
  let dependentDialects = ["::mlir::LLVM::LLVMDialect", "::mlir::NVVM::NVVMDialect"];
}

def ConvertHopperToNVVM : Pass<"convert-hopper-to-nvvm"> {
  let summary = "lower hopper ops of kernels to inline PTX";
  let description = [{
    Lowers each op to one block of inline PTX for sm_90a. Vectors must be distributed to threads.
    The pass runs after `convert-gpu-to-nvvm`, because tensor map arguments of a kernel become
    by-value parameters of 128 bytes, which only `llvm.func` supports.
    `reconcile-unrealized-casts` removes the casts to and from types of the LLVM dialect that this
    pass creates. The pass sets the alignment that tiles require on shared memory. It does not lower
    `hopper.make_tensor_map`.

    Example: test/Conversion/HopperToNVVM/kernel.mlir
  }];
  let dependentDialects = ["::mlir::LLVM::LLVMDialect", "::mlir::NVVM::NVVMDialect"];
}

def DeclareDynamicSharedMemory
    : Pass<"flashattn-declare-dynamic-shared-memory", "::mlir::gpu::GPUModuleOp"> {
  let summary = "declare dynamic shared memory as an external variable";
  let description = [{
    `convert-gpu-to-nvvm` lowers `gpu.dynamic_shared_memory` to a variable of the kernel with no
    elements. PTX counts one byte for this variable, so that a launch that uses all of a block's
    shared memory is rejected. This pass makes the variable external, with an alignment of 1024
    bytes, as tiles with the 128-byte swizzle require.

    For static shared memory without an alignment, the pass sets an alignment of 16 bytes, which
    LLVM's optimizer assumes; PTX would otherwise only use the alignment of the elements.

    Example: test/Conversion/FlashAttnToGPU/dynamic-shared-memory.mlir
  }];
}

def ReinterpretExpandShape : Pass<"flashattn-reinterpret-expand-shape"> {
  let summary = "lower memref.expand_shape to memref.reinterpret_cast";
  let description = [{
    `expand-strided-metadata` supports one unknown size in each dimension that is split, and crashes
    if there are more. `flashattn-tile` splits a dimension into two of unknown size for packed
    heads, and reshapes in the input module may do so too.

    Example: test/Conversion/FlashAttnToGPU/reinterpret-expand-shape.mlir
  }];
  let dependentDialects = ["::mlir::arith::ArithDialect", "::mlir::memref::MemRefDialect"];
}

def FlagLaunches : Pass<"flashattn-flag-launches", "::mlir::ModuleOp"> {
  let summary = "mark launches that use programmatic dependent launch for the runtime";
  let description = [{
    Inserts a call of `flashattnSetLaunchFlags` before each launch of a kernel that itself waits for
    the previous grids (`flashattn.wait_prerequisite_grids`). The runtime then starts the kernel
    while the previous kernel is still running. The pass must run while kernels are `gpu.func`s that
    contain that op.

    Example: test/Conversion/HopperToLLVM/flag-launches.mlir
  }];
  let dependentDialects = ["::mlir::LLVM::LLVMDialect"];
}

def ConvertHopperHostToLLVM : Pass<"convert-hopper-host-to-llvm", "::mlir::ModuleOp"> {
  let summary = "lower host ops to runtime calls and pass tensor maps to kernels by value";
  let description = [{
    Lowers `hopper.make_tensor_map` to a call of `flashattnEncodeTensorMap` with the address,
    offset, sizes and strides of the memref. The operand of a `gpu.launch_func` becomes the 128
    bytes (`!llvm.array<16 x i64>`) that the call has written. While a kernel is a `gpu.func`, an
    operand must have the type of the kernel's argument; the pass must therefore run after kernels
    are serialized (`convert-flashattn-kernels-to-ptx`), and before memrefs are lowered.
    `flashattn.multiprocessor_count` becomes a call of `flashattnMultiprocessorCount`.

    Example: test/Conversion/HopperToLLVM/host.mlir
  }];
  let dependentDialects = [
    "::mlir::arith::ArithDialect", "::mlir::LLVM::LLVMDialect", "::mlir::memref::MemRefDialect"];
}

def ConvertFlashAttnKernelsToPTX : Pass<"convert-flashattn-kernels-to-ptx", "::mlir::ModuleOp"> {
  let summary = "compile kernels in the LLVM dialect to PTX, in parallel";
  let description = [{
    Replaces each `gpu.module` by a `gpu.binary` with PTX for its target, like
    `gpu-module-to-binary` with the format `isa`. Unlike that pass, it compiles each module on its
    own thread: if the choice of a kernel depends on run-time arguments, there is one kernel for
    each case, and compiling these kernels takes most of the time of the pipeline.

    Example: test/Conversion/KernelsToPTX/several.mlir
  }];
  let dependentDialects = ["::mlir::gpu::GPUDialect"];
}

//===----------------------------------------------------------------------===//
// A model of a GPU
//===----------------------------------------------------------------------===//

def ConvertGPUToModel : Pass<"convert-flashattn-gpu-to-model", "::mlir::ModuleOp"> {
  let summary = "lower kernels to host functions for a model of the GPU";
  let description = [{
    Each kernel becomes a function of two pointers, to the kernel's arguments and to one of its
    threads. The host runs this function once for each thread. Ops that access memory, other threads
    or the asynchronous units of the GPU become calls of the model (`flashattn/Runtime/ModelABI.h`),
    or are preceded by such a call; ops that only compute are kept. `gpu.launch_func` becomes a call
    that runs the kernel. An op that the model does not support is an error. Kernels must be
    distributed to threads, with branches instead of structured control flow.

    Example: test/Conversion/GPUToModel/kernel.mlir
  }];
  let dependentDialects = [
    "::mlir::arith::ArithDialect", "::mlir::func::FuncDialect", "::mlir::LLVM::LLVMDialect",
    "::mlir::memref::MemRefDialect", "::mlir::vector::VectorDialect"];
}

#endif // FLASHATTN_CONVERSION_PASSES_TD
