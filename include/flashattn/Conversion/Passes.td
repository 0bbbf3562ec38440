#ifndef FLASHATTN_CONVERSION_PASSES_TD
#define FLASHATTN_CONVERSION_PASSES_TD

include "mlir/Pass/PassBase.td"

def ConvertFlashAttnToCPU : Pass<"convert-flashattn-to-cpu", "::mlir::ModuleOp"> {
  let summary = "lower tile programs to vector code that runs in parallel over programs";
  let description = [{
    The rows of a tile, which may be several heads', lie along the lanes of a vector register and its
    columns along a loop: a row reduction is elementwise and nothing is ever shuffled, but where a
    tile has so few rows that products run along its columns.
    Each `flashattn.program` becomes a function of one program and a call of
    `flashattnParallelFor` (flashattn/Runtime/ParallelFor.h); the body of one without a schedule
    is ordinary code and stays as it is. `flashattn.count_splits` becomes 1 where each thread has as
    many programs, and else the number that makes a few for each (`flashattnThreadCount`).

    Example: test/Conversion/FlashAttnToCPU/attention.mlir
  }];
  let options = [
    Option<"vectorWidth", "vector-width", "int64_t", "16",
           "f32 lanes of the CPU's vector registers: 16 has 32 registers, less has 16">,
  ];
  let dependentDialects = [
    "::mlir::affine::AffineDialect", "::mlir::arith::ArithDialect", "::mlir::func::FuncDialect",
    "::mlir::LLVM::LLVMDialect", "::mlir::math::MathDialect", "::mlir::memref::MemRefDialect",
    "::mlir::scf::SCFDialect", "::mlir::vector::VectorDialect"];
}

def ConvertFlashAttnKernelsToCPU : Pass<"convert-flashattn-kernels-to-cpu"> {
  let summary = "loops for what runs before and behind the tile programs";
  let description = [{
    `flashattn.list_tiles` becomes a `flashattn.program` without a schedule for each list, and
    `flashattn.combine` one for each head. A row at a time: its parts are read once, with their
    weights taken against the largest log-sum-exp so far.

    Examples: test/Conversion/FlashAttnToCPU/list-tiles.mlir, test/Conversion/FlashAttnToCPU/combine.mlir
  }];
  let dependentDialects = [
    "::mlir::arith::ArithDialect", "::mlir::flashattn::FlashAttnDialect", "::mlir::math::MathDialect",
    "::mlir::memref::MemRefDialect", "::mlir::scf::SCFDialect", "::mlir::vector::VectorDialect"];
}

//===----------------------------------------------------------------------===//
// NVIDIA GPUs
//===----------------------------------------------------------------------===//

def MapToGPU : Pass<"flashattn-map-to-gpu"> {
  let summary = "give every tile program a thread block";
  let description = [{
    Turns each `flashattn.program` that `flashattn-specialize-warps` has left into a `gpu.launch`
    of one block per program and 32 threads per warp. Blocks are numbered with the query tile
    fastest and the last tile of a head first: under a causal mask it is the longest. The first
    and the last of several kernels of an op begin with the last head.
    The body still works on whole tiles, in a `flashattn.on_threads` with the schedule.

    `flashattn.count_splits` and `flashattn.prefers_narrow` become arithmetic on the number of
    multiprocessors. A block of programs over parts of the keys lets the kernel that merges them
    start (`flashattn.launch_dependents`), and one of programs that lead those that follow; a block of these
    waits (`flashattn.wait_prerequisite_grids`) where it first touches memory. So it is in blocks that
    `flashattn-specialize-warps` makes, but that these wait when what they keep is on its way. A block
    that awaits sums (`flashattn.await_added`) waits for the kernel before it at its end.

    Example: test/Conversion/FlashAttnToGPU/map-to-gpu.mlir
  }];
  let dependentDialects = [
    "::mlir::arith::ArithDialect", "::mlir::flashattn::FlashAttnDialect",
    "::mlir::flashattn::hopper::HopperDialect", "::mlir::gpu::GPUDialect",
    "::mlir::scf::SCFDialect"];
}

def StageShared : Pass<"flashattn-stage-shared"> {
  let summary = "bring the tiles that contractions read through shared memory";
  let description = [{
    Every `flashattn.load_tile` that a contraction reads, in a program without roles, is
    replaced by an asynchronous copy (`cp.async`) into swizzled shared memory and a read from
    there. Loads in a `flashattn.tile_loop` are double-buffered where the schedule has two
    stages: the copy of the next tile runs beside the work on this one, from an interval's
    first tile to its last. A loop over several intervals becomes one over their numbers, with
    a loop over one interval inside.

    Tiles that warps compute for each other go through shared memory too: those that a product
    takes over their rows and, where warps share rows (`column_warps`), all that a product takes
    on its left. Warps meet once before the first product of what they have written.

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
    A tile value `vector<MxNxT>` becomes one vector per thread in the order of the
    accumulators of `mma.sync` m16n8: with row block r, column group g of 8, half h
    and column c, element `r*N/2 + 4g + 2h + c` is row `16(r + R*warp) + lane/4 + 8h`
    and column `8g + 2(lane%4) + c`. Where C warps share rows (`column_warps`) N is a warp's N/C
    columns, of which warp w has those from `w / (warps/C) * N/C` on, and its rows are those of
    warp `w % (warps/C)`. Elementwise ops act on these vectors, a row
    reduction is a tree and two shuffles within four lanes, a contraction is
    `mma.sync` with its right-hand side loaded from shared memory by `ldmatrix`, and a
    `hopper.wgmma` takes and gives the same vectors.

    Where a program has `half_rows`, and no `mma.sync`, h is 0 alone: half the softmax. A
    `hopper.wgmma` takes such rows twice and gives them once, but for what one with a left-hand side
    in registers adds to, which stays whole.

    Example: test/Conversion/FlashAttnToGPU/distribute.mlir
  }];
  let dependentDialects = [
    "::mlir::arith::ArithDialect", "::mlir::gpu::GPUDialect", "::mlir::memref::MemRefDialect",
    "::mlir::LLVM::LLVMDialect", "::mlir::NVVM::NVVMDialect",
    "::mlir::scf::SCFDialect", "::mlir::vector::VectorDialect"];
}

def OutlineKernels : Pass<"flashattn-outline-kernels", "::mlir::ModuleOp"> {
  let summary = "make a kernel of every launch, with constants and sizes of its own";
  let description = [{
    Upstream's `gpu-launch-sink-index-computations` and `gpu-kernel-outlining` in one step. A launch is
    not isolated: any simplification between the two moves the constants that were sunk into it out
    again, and each of them becomes an argument of the kernel.

    Example: test/Conversion/FlashAttnToGPU/outline-kernels.mlir
  }];
  let dependentDialects = ["::mlir::DLTIDialect", "::mlir::gpu::GPUDialect"];
}

def ConvertMathToNVVM : Pass<"flashattn-math-to-nvvm"> {
  let summary = "math ops as instructions of the GPU";
  let description = [{
    In GPU functions `math.exp2` and `math.log2` on f32 become `ex2.approx.ftz` and
    `lg2.approx.ftz`, and a quotient of 1 `rcp.approx.ftz`, element by element; libdevice's versions cost several
    instructions more for denormals, which an attention weight has no use for. `exp`, `log`, `rsqrt` and `tanh`
    go the same way, tanh to `tanh.approx` where its flags allow an approximation (`afn`). Other
    ops that a score modification may hold are expanded or approximated by polynomials. What
    has no lowering is an error at its location.

    In kernels for other chips two f32 become a word of bf16 in one instruction
    (`cvt.rn.bf16x2.f32`).

    In kernels for chips with warpgroups elements of 16 bits stay in pairs, a register each: bf16 is
    extended by shifting and masking, and what is to be 0 where others are gets a mask of both (`set`
    and `and`).
    A selection by several conditions is one `selp`, an element after the other, where LLVM would make
    one for each condition and keep those of all elements until then.

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
  let summary = "give every group of neighbouring tile programs a block of warpgroups with roles";
  let description = [{
    Turns each `flashattn.program` whose schedule has roles into a `gpu.launch`. Tiles that
    contractions read go through shared memory, each in the way that the program says:

    - one that the program itself loads is resident: each consumer has a place for its own;
    - one that the program's `flashattn.tile_loop` loads in each step is streamed, through a
      `hopper.ring` of the schedule's stages that all consumers share.

    The first warpgroup is the producer: one thread brings tiles to shared memory
    (`hopper.tma_load`, `hopper.ring_put`). Every other warpgroup runs one of the block's
    programs (`flashattn.on_threads`). Its tile loop is its own, the producer's goes over the
    tiles that any of the programs reads; a consumer passes by the tiles that it does not.
    Rows of a streamed tile from `below` on become zeros where a contraction sums over them.

    The programs of a block are neighbours along the query tiles or along the heads, and
    read the same head of what is streamed. Blocks are numbered with the heads of a section
    fastest and the last query tiles first: under a causal mask these are the longest.

    Where the loop has a list of tiles a block's programs share it, and rings count its places.

    With `query_stages = 2` blocks are persistent: as many are launched as run at once, and
    each takes every so many-th of what would be the blocks. The producer sends for the next
    one's tiles while the consumers finish the one before. With `claims_below` a block
    takes whichever is next, from a counter that a grid before makes 0; with more keys another
    kernel is launched, with a block for each group.

    Example: test/Conversion/ProgramToHopper/specialize-warps.mlir
  }];
  let dependentDialects = [
    "::mlir::arith::ArithDialect", "::mlir::gpu::GPUDialect", "::mlir::flashattn::hopper::HopperDialect",
    "::mlir::LLVM::LLVMDialect", "::mlir::memref::MemRefDialect", "::mlir::scf::SCFDialect"];
}

def ExpandRings : Pass<"hopper-expand-rings"> {
  let summary = "rings as barriers and copies";
  let description = [{
    Step `s` of a ring of S stages has place `s mod S` and turn `s / S`. A tile is waited for
    with the parity of its turn, a place that must be empty with that of the turn before.

    Example: test/Conversion/ProgramToHopper/expand-rings.mlir
  }];
  let dependentDialects = [
    "::mlir::arith::ArithDialect", "::mlir::flashattn::hopper::HopperDialect",
    "::mlir::memref::MemRefDialect"];
}

def ContractToWgmma : Pass<"flashattn-contract-to-wgmma"> {
  let summary = "contractions of warpgroups as asynchronous products";
  let description = [{
    Every contraction of a program with roles, whose right-hand side is a `hopper.load_tile`,
    becomes a `hopper.wgmma` and a `hopper.wgmma_wait` in front of the first use of its result,
    so that whatever stands between runs beside the product; a branch that holds all uses gets
    the wait in each of its arms, unless products issued behind this one are pending then: such a
    wait cannot move in front of them. The arrivals right behind the product, which free its tiles,
    move behind the wait. What registers hold of a left-hand side is taken from there.

    Example: test/Conversion/ProgramToHopper/contract-to-wgmma.mlir
  }];
  let dependentDialects = ["::mlir::flashattn::hopper::HopperDialect"];
}

//===----------------------------------------------------------------------===//
// Kernels beside the tile programs
//===----------------------------------------------------------------------===//

def ConvertFlashAttnKernelsToGPU : Pass<"convert-flashattn-kernels-to-gpu"> {
  let summary = "kernels for what runs before and behind the tile programs";
  let description = [{
    A block of a `gpu.launch` writes a list of `flashattn.list_tiles`: a warp reads a key tile's part
    of `keep`, 16 elements at a time where rows are aligned, and stops where it has found both
    values; ballots give the tiles of all warps their places.

    A row of `flashattn.combine` is a block. Each of its four groups of threads merges a quarter of
    the parts, several of which are on their way at once, with their weights taken against the
    largest log-sum-exp so far; a thread for each column merges what the groups have left in shared
    memory. The kernel starts beside the end of the one before it, and waits for it
    (`flashattn.wait_prerequisite_grids`) where it first touches memory.

    Examples: test/Conversion/KernelsToGPU/list-tiles.mlir, test/Conversion/KernelsToGPU/combine.mlir
  }];
  let dependentDialects = [
    "::mlir::arith::ArithDialect", "::mlir::flashattn::FlashAttnDialect", "::mlir::gpu::GPUDialect",
    "::mlir::math::MathDialect", "::mlir::memref::MemRefDialect", "::mlir::scf::SCFDialect",
    "::mlir::vector::VectorDialect"];
}

def DropDependentLaunch : Pass<"flashattn-drop-dependent-launch"> {
  let summary = "kernels that start one after the other, for GPUs on which they cannot overlap";
  let description = [{
    Erases `flashattn.launch_dependents` and `flashattn.wait_prerequisite_grids`, and the instruction
    that they become, `nvvm.griddepcontrol`, which a user's kernel may have: before sm_90 a kernel
    starts when the one before it has ended.

    Example: test/Conversion/KernelsToGPU/drop-dependent-launch.mlir
  }];
}

def ConvertFlashAttnDeviceToNVVM : Pass<"convert-flashattn-device-to-nvvm"> {
  let summary = "the flashattn dialect's device ops as instructions";
  let description = [{
    One op, one instruction of PTX: `flashattn.vote`, `flashattn.launch_dependents` and
    `flashattn.wait_prerequisite_grids`.

    Example: test/Conversion/FlashAttnToNVVM/device.mlir
  }];
  let dependentDialects = ["::mlir::LLVM::LLVMDialect", "::mlir::NVVM::NVVMDialect"];
}

def ConvertHopperToNVVM : Pass<"convert-hopper-to-nvvm"> {
  let summary = "hopper ops of kernels to inline PTX";
  let description = [{
    One op, one block of PTX for sm_90a. Vectors must be distributed to threads. Runs after
    `convert-gpu-to-nvvm`, so that tensor maps that a kernel takes become parameters of
    128 bytes by value, which exist on `llvm.func` only; its casts to and from the LLVM
    dialect's types go with `reconcile-unrealized-casts`. Shared memory is aligned as the
    tiles need. `hopper.make_tensor_map` stays.

    Example: test/Conversion/HopperToNVVM/kernel.mlir
  }];
  let dependentDialects = ["::mlir::LLVM::LLVMDialect", "::mlir::NVVM::NVVMDialect"];
}

def DeclareDynamicSharedMemory
    : Pass<"flashattn-declare-dynamic-shared-memory", "::mlir::gpu::GPUModuleOp"> {
  let summary = "leave the size of dynamic shared memory to the launch";
  let description = [{
    `convert-gpu-to-nvvm` makes `gpu.dynamic_shared_memory` a variable of no elements of the
    kernel's own. PTX counts one byte for it, so that a launch with all of a block's shared
    memory is refused. Here it becomes an external one, aligned to 1024 bytes, which a tile
    with the 128-byte swizzle needs.

    Static shared memory without an alignment gets one of 16 bytes: LLVM's optimiser takes that for
    granted, but PTX would have that of the elements.

    Example: test/Conversion/FlashAttnToGPU/dynamic-shared-memory.mlir
  }];
}

def ReinterpretExpandShape : Pass<"flashattn-reinterpret-expand-shape"> {
  let summary = "memref.expand_shape as memref.reinterpret_cast";
  let description = [{
    `expand-strided-metadata` takes one unknown size from each dimension that is split and
    crashes at more; the heads of programs that pack a group are split in two such
    (`flashattn-tile`), and so may be what a module reshapes itself.

    Example: test/Conversion/FlashAttnToGPU/reinterpret-expand-shape.mlir
  }];
  let dependentDialects = ["::mlir::arith::ArithDialect", "::mlir::memref::MemRefDialect"];
}

def FlagLaunches : Pass<"flashattn-flag-launches", "::mlir::ModuleOp"> {
  let summary = "tell the runtime how kernels start";
  let description = [{
    In front of each launch of a kernel that waits itself for the grids before it
    (`flashattn.wait_prerequisite_grids`) goes a call of `flashattnSetLaunchFlags`, with which the
    runtime starts the next kernel beside the end of the one before it. Run this while kernels are
    `gpu.func`s with that op.

    Example: test/Conversion/HopperToLLVM/flag-launches.mlir
  }];
  let dependentDialects = ["::mlir::LLVM::LLVMDialect"];
}

def ConvertHopperHostToLLVM : Pass<"convert-hopper-host-to-llvm", "::mlir::ModuleOp"> {
  let summary = "let the runtime make tensor maps, and hand them to kernels by value";
  let description = [{
    `hopper.make_tensor_map` becomes a call of `flashattnEncodeTensorMap` with the address,
    offset, sizes and strides of the memref, and the operand of a `gpu.launch_func` the 128
    bytes (`!llvm.array<16 x i64>`) that the call has written. An operand must have the type
    of the kernel's argument for as long as the kernel is a `gpu.func`: run this when kernels
    are serialised (`convert-flashattn-kernels-to-ptx`) and before memrefs are lowered.
    `flashattn.multiprocessor_count` becomes a call of `flashattnMultiprocessorCount`.

    Example: test/Conversion/HopperToLLVM/host.mlir
  }];
  let dependentDialects = [
    "::mlir::arith::ArithDialect", "::mlir::LLVM::LLVMDialect", "::mlir::memref::MemRefDialect"];
}

def ConvertFlashAttnKernelsToPTX : Pass<"convert-flashattn-kernels-to-ptx", "::mlir::ModuleOp"> {
  let summary = "kernels in the LLVM dialect to PTX, side by side";
  let description = [{
    Each `gpu.module` becomes a `gpu.binary` with PTX for its target, as of `gpu-module-to-binary`
    with the format `isa`; but LLVM works on each of several in a thread of its own: a program whose
    kernel depends on its arguments has one for each case, and they take most of the time of the
    whole pipeline.

    Example: test/Conversion/KernelsToPTX/several.mlir
  }];
  let dependentDialects = ["::mlir::gpu::GPUDialect"];
}

//===----------------------------------------------------------------------===//
// A model of a GPU
//===----------------------------------------------------------------------===//

def ConvertGPUToModel : Pass<"convert-flashattn-gpu-to-model", "::mlir::ModuleOp"> {
  let summary = "kernels as functions of the host, for a model of the GPU";
  let description = [{
    Each kernel becomes a function of two pointers, to its arguments and to one of its threads, which
    the host runs once for each thread. Ops that touch memory, other threads or the asynchronous units
    of the machine become calls of the model (`flashattn/Runtime/ModelABI.h`), or get one in front of
    them; what only computes stays. `gpu.launch_func` becomes a call that runs the kernel. An op that
    the model does not have is an error. Kernels must be distributed to threads, with branches for
    structured control flow.

    Example: test/Conversion/GPUToModel/kernel.mlir
  }];
  let dependentDialects = [
    "::mlir::arith::ArithDialect", "::mlir::func::FuncDialect", "::mlir::LLVM::LLVMDialect",
    "::mlir::memref::MemRefDialect", "::mlir::vector::VectorDialect"];
}

#endif // FLASHATTN_CONVERSION_PASSES_TD
