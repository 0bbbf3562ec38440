#ifndef FLASHATTN_DEVICE_OPS_TD
#define FLASHATTN_DEVICE_OPS_TD

// What kernels, and the host that launches them, need of any GPU and upstream lacks, or has for one
// machine only.

include "mlir/IR/OpBase.td"
include "mlir/Interfaces/SideEffectInterfaces.td"
include "flashattn/Dialect/FlashAttn/IR/FlashAttnAttrs.td"

def FlashAttn_MultiprocessorCountOp : Op<FlashAttn_Dialect, "multiprocessor_count", [Pure]> {
  let summary = "number of multiprocessors of the device (host)";
  let description = [{
    What a grid is sized by whose blocks shall all run at once.
  }];
  let results = (outs Index:$count);
  let assemblyFormat = "attr-dict";
}

//===----------------------------------------------------------------------===//
// Warps
//===----------------------------------------------------------------------===//

def FlashAttn_VoteKind : I32EnumAttr<"VoteKind", "what a warp is asked", [
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
  let summary = "ask all threads of a warp";
  let description = [{
    Every thread gets the same answer: whether the condition holds in `any` or in `all` threads, i1,
    or a `ballot`, i32, whose bit i is the condition of thread i. All threads of the warp must run
    it, so that it has effects and stays where it is.

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
// Grids that overlap
//===----------------------------------------------------------------------===//

/// Ordered with every access to memory.
class FlashAttn_GridOp<string mnemonic>
    : Op<FlashAttn_Dialect, mnemonic, [MemoryEffects<[MemRead, MemWrite]>]> {
  let assemblyFormat = "attr-dict";
}

def FlashAttn_LaunchDependentsOp : FlashAttn_GridOp<"launch_dependents"> {
  let summary = "let the grid behind this one start";
  let description = [{
    The next kernel of the stream may start when every block of this one has run the op or has
    ended, if it waits itself for what it needs (`flashattn.wait_prerequisite_grids`); any other
    starts when this one has ended. On a GPU without such launches the op is nothing
    (`flashattn-drop-dependent-launch`).

    Example: `flashattn.launch_dependents`
  }];
}

def FlashAttn_WaitPrerequisiteGridsOp : FlashAttn_GridOp<"wait_prerequisite_grids"> {
  let summary = "wait until the grids before this one have ended";
  let description = [{
    What the kernel before this one in its stream has written is there behind it. The runtime lets a
    kernel that has the op, and no other, start while that one still runs, so that nothing may be
    read before it that that one writes, and nothing written: no access moves above it. On a GPU
    without such launches the op is nothing (`flashattn-drop-dependent-launch`).

    Example: `flashattn.wait_prerequisite_grids`
  }];
}

#endif // FLASHATTN_DEVICE_OPS_TD
