#ifndef FLASHATTN_DEVICE_OPS_TD
#define FLASHATTN_DEVICE_OPS_TD

// Device ops that kernels, and the host code that launches them, need on any GPU. Upstream has no
// such ops, or has them for one kind of GPU only.

include "mlir/IR/OpBase.td"
include "mlir/Interfaces/SideEffectInterfaces.td"
include "flashattn/Dialect/FlashAttn/IR/FlashAttnAttrs.td"

def FlashAttn_MultiprocessorCountOp : Op<FlashAttn_Dialect, "multiprocessor_count", [Pure]> {
  let summary = "number of multiprocessors of the device (host)";
  let description = [{
    Used to choose the size of a grid whose blocks must all run at once.
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
  let summary = "evaluate a condition across the threads of a warp";
  let description = [{
    Every thread gets the same answer: with `any` or `all`, an i1 that says whether the condition
    holds in any thread or in all threads; with `ballot`, an i32 whose bit i is the condition of
    thread i. All threads of the warp must execute the op. It has side effects so that it is not
    moved.

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
  let summary = "let the next grid in the stream start";
  let description = [{
    The next kernel in the stream may start once every block of this kernel has executed this op or
    has ended, provided that the next kernel itself waits for the data that it needs
    (`flashattn.wait_prerequisite_grids`). Any other kernel starts when this one has ended. On a GPU
    without programmatic dependent launch the op is erased (`flashattn-drop-dependent-launch`).

    Example: `flashattn.launch_dependents`
  }];
}

def FlashAttn_WaitPrerequisiteGridsOp : FlashAttn_GridOp<"wait_prerequisite_grids"> {
  let summary = "wait until the previous grids in the stream have ended";
  let description = [{
    After this op, everything that the previous kernel in the stream has written is visible. The
    runtime lets a kernel with this op, and no other, start while the previous kernel is still
    running. Before this op, a kernel must therefore neither read memory that the previous kernel
    writes, nor write memory; no memory access moves above the op. On a GPU without programmatic
    dependent launch the op is erased (`flashattn-drop-dependent-launch`).

    Example: `flashattn.wait_prerequisite_grids`
  }];
}

#endif // FLASHATTN_DEVICE_OPS_TD
