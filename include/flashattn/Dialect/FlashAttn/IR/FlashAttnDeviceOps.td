#ifndef FLASHATTN_DEVICE_OPS_TD
#define FLASHATTN_DEVICE_OPS_TD

// Ops for kernels on any GPU and for the host code that launches the kernels. Upstream has no such
// ops, or only for one kind of GPU.

include "mlir/IR/OpBase.td"
include "mlir/Interfaces/SideEffectInterfaces.td"
include "flashattn/Dialect/FlashAttn/IR/FlashAttnAttrs.td"

def FlashAttn_MultiprocessorCountOp : Op<FlashAttn_Dialect, "multiprocessor_count", [Pure]> {
  let summary = "number of multiprocessors of the device (host)";
  let description = [{
    Host code uses the number to choose the grid size of a kernel whose blocks must all run at once.
  }];
  let results = (outs Index:$count);
  let assemblyFormat = "attr-dict";
}

//===----------------------------------------------------------------------===//
// Warps
//===----------------------------------------------------------------------===//

def FlashAttn_VoteKind : I32EnumAttr<"VoteKind", "kind of a warp vote", [
    I32EnumAttrCase<"Any", 0, "any">,
    I32EnumAttrCase<"All", 1, "all">,
    I32EnumAttrCase<"Ballot", 2, "ballot">]> {
  let cppNamespace = "::mlir::flashattn";
  let genSpecializedAttr = 0;
}
def FlashAttn_VoteKindAttr : EnumAttr<FlashAttn_Dialect, FlashAttn_VoteKind, "vote_kind"> {
  let assemblyFormat = "$value";
}

def FlashAttn_VoteOp : Op<FlashAttn_Dialect, "vote", [MemoryEffects<[MemRead, MemWrite]>]> {
  let summary = "warp vote: evaluate a condition across the threads of a warp";
  let description = [{
    Returns the same result in every thread: with `any` or `all`, an i1 that is true if the
    condition holds in any thread or in all threads; with `ballot`, an i32 whose bit i is the
    condition of thread i. All threads of the warp must execute the op. The op has side effects so
    that it is not moved.

    Examples:

    ```mlir
    %some = flashattn.vote any %found : i1
    %who = flashattn.vote ballot %found : i32
    ```
  }];
  let arguments = (ins FlashAttn_VoteKindAttr:$kind, I1:$condition);
  let results = (outs AnyTypeOf<[I1, I32]>:$answer);
  let assemblyFormat = "$kind $condition attr-dict `:` type($answer)";
  let builders = [OpBuilder<(ins "::mlir::flashattn::VoteKind":$kind, "::mlir::Value":$condition)>];
  let hasVerifier = 1;
}

//===----------------------------------------------------------------------===//
// Programmatic dependent launch
//===----------------------------------------------------------------------===//

/// An op that is ordered with respect to every memory access.
class FlashAttn_GridOp<string mnemonic>
    : Op<FlashAttn_Dialect, mnemonic, [MemoryEffects<[MemRead, MemWrite]>]> {
  let assemblyFormat = "attr-dict";
}

def FlashAttn_LaunchDependentsOp : FlashAttn_GridOp<"launch_dependents"> {
  let summary = "allow the next grid in the stream to start (programmatic dependent launch)";
  let description = [{
    The next kernel in the stream may start when every block of this kernel has executed this op or
    has ended, if the next kernel contains the wait for its data
    (`flashattn.wait_prerequisite_grids`). A kernel without that wait starts when this kernel has
    ended. On a GPU without programmatic dependent launch the op is erased
    (`flashattn-drop-dependent-launch`).

    Example: `flashattn.launch_dependents`
  }];
}

def FlashAttn_WaitPrerequisiteGridsOp : FlashAttn_GridOp<"wait_prerequisite_grids"> {
  let summary = "wait until the previous grids in the stream have ended";
  let description = [{
    After this op, all writes of the previous kernel in the stream are visible. The runtime launches
    a kernel with this op, and only such a kernel, while the previous kernel is still running.
    Before this op, the kernel must therefore neither read memory that the previous kernel writes,
    nor write memory; no memory access moves above the op. On a GPU without programmatic dependent
    launch the op is erased (`flashattn-drop-dependent-launch`).

    Example: `flashattn.wait_prerequisite_grids`
  }];
}

#endif // FLASHATTN_DEVICE_OPS_TD
