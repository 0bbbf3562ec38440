//===- Transforms.h - the pieces behind the passes ---------------*- C++ -*-===//

#ifndef FLASHATTN_DIALECT_FLASHATTN_TRANSFORMS_TRANSFORMS_H
#define FLASHATTN_DIALECT_FLASHATTN_TRANSFORMS_TRANSFORMS_H

#include "flashattn/Dialect/FlashAttn/IR/FlashAttn.h"

namespace mlir {
class DialectRegistry;
class RewriterBase;
namespace func {
class CallOp;
class FuncOp;
} // namespace func
namespace flashattn {

/// Replaces `op`, on memrefs and with a schedule, by its tile program over (batch, query head,
/// query tile). Where the schedule splits the keys the last number counts (query tile, part), the
/// part fastest, and a combine op follows. Errors, at the op: tensors, no schedule.
FailureOr<ProgramOp> tileAttention(RewriterBase &rewriter, AttentionOp op);

/// Replaces `op`, on memrefs and with a schedule, by tile programs: over (batch, query head, query
/// tile) for what is summed of each query and for dq, and over (batch, key/value head, key tile)
/// for dk and dv. Errors, at the op: tensors, no schedule; a score_mod without a derivative.
LogicalResult tileAttentionBackward(RewriterBase &rewriter, AttentionBackwardOp op);

/// Replaces linalg ops below `root` by the dialect's ops where they say the same, and drops fills
/// of destinations that the dialect's ops overwrite (flashattn-raise-linalg).
void raiseLinalg(RewriterBase &rewriter, Operation *root);

/// Replaces ops on tensors below `root` that compute an attention by `flashattn.attention`
/// (flashattn-raise-attention). What nearly is one gets a remark.
void raiseAttention(RewriterBase &rewriter, Operation *root);

/// Replaces elements that `function` takes out of tensors by constants where they are computed of
/// such, and simplifies it then: what front ends assert of shapes goes.
LogicalResult foldExtracts(RewriterBase &rewriter, func::FuncOp function);

/// Removes copies below `root`, on memrefs, whose other side ops of the dialect can read or write
/// themselves (flashattn-fold-copies).
void foldCopies(RewriterBase &rewriter, Operation *root);

/// The private function of one block that `call` calls, looked for from `table`; null otherwise.
func::FuncOp findInlinable(func::CallOp call, Operation *table);

/// Replaces calls below `root` of such functions that are wanted by what they do, `mostCalls` at
/// most. False where there are none.
bool inlineCalls(RewriterBase &rewriter, Operation *root, Operation *table, unsigned mostCalls,
                 function_ref<bool(func::FuncOp)> isWanted);

/// Replaces ops of the dialect below `root`, on memrefs, that differ in nothing but their operands
/// by calls of one function (flashattn-share-kernels).
void shareKernels(RewriterBase &rewriter, Operation *root);

/// Frees each buffer that is allocated below `root`, and that neither leaves its block nor is
/// freed, as soon as no op of that block needs it any more (flashattn-free-temporaries).
void freeTemporaries(RewriterBase &rewriter, Operation *root);

/// Error at the first op below `root` on tensors that bufferization would not take.
LogicalResult verifyTensors(Operation *root);

/// Error at the first op below `root`, outside of kernels, by which the host would read or write
/// memory of a GPU, or a kernel memory of the host; its notes list the others.
LogicalResult verifyHost(Operation *root);

/// Error at the first op below `root` that is a module in another one, or a function with a name
/// that is not free.
LogicalResult verifyModule(Operation *root);

/// Error at an op below `root` that cannot be translated to LLVM IR.
LogicalResult verifyLowered(Operation *root);

/// Replaces `op`, on memrefs and with a schedule, by its tile program over (batch, row tile, column
/// tile) or, where a batch has few rows, (row, batch tile, column tile). Errors, at the op:
/// tensors, no schedule.
FailureOr<ProgramOp> tileProject(RewriterBase &rewriter, ProjectOp op);

/// Multiplies what the CPU's tile program of the attention before `op` writes as soon as it is
/// finished, and erases `op` (flashattn-fuse-projection). False where that cannot be: nothing is
/// changed then.
bool fuseProjection(RewriterBase &rewriter, ProjectOp op);

/// Registers upstream's ShardingInterface of the dialect's ops on tensors as an external model.
void registerShardingInterfaceExternalModels(DialectRegistry &registry);

} // namespace flashattn
} // namespace mlir

#endif // FLASHATTN_DIALECT_FLASHATTN_TRANSFORMS_TRANSFORMS_H
