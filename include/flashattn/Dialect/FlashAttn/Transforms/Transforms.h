//===- Transforms.h - functions that implement the passes -------*- C++ -*-===//

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
/// query tile). With split-KV, the last coordinate is (query tile, split), with the split fastest,
/// and a combine op follows. Emits an error at the op if it has tensors or no schedule.
FailureOr<ProgramOp> tileAttention(RewriterBase &rewriter, AttentionOp op);

/// Replaces `op`, on memrefs and with a schedule, by tile programs: over (batch, query head, query
/// tile) for delta and dQ, and over (batch, key/value head, key tile) for dK and dV. Emits an error
/// at the op if it has tensors, no schedule, or a score_mod without a derivative.
LogicalResult tileAttentionBackward(RewriterBase &rewriter, AttentionBackwardOp op);

/// Replaces linalg ops below `root` by equivalent ops of the dialect, and removes fills of
/// destinations that the dialect's ops overwrite (flashattn-raise-linalg).
void raiseLinalg(RewriterBase &rewriter, Operation *root);

/// Replaces ops on tensors below `root` that compute an attention by `flashattn.attention`
/// (flashattn-raise-attention). Emits a remark for ops that nearly match.
void raiseAttention(RewriterBase &rewriter, Operation *root);

/// Replaces elements that `function` extracts from tensors by constants if the elements are
/// computed from constants, and then simplifies the function, so that shape assertions of front
/// ends are removed.
LogicalResult foldExtracts(RewriterBase &rewriter, func::FuncOp function);

/// Removes copies on memrefs below `root` if ops of the dialect can access the other side of the
/// copy directly (flashattn-fold-copies).
void foldCopies(RewriterBase &rewriter, Operation *root);

/// Returns the callee of `call`, looked up in the symbol table `table`, if it is a private
/// single-block function, and null otherwise.
func::FuncOp findInlinable(func::CallOp call, Operation *table);

/// Inlines at most `mostCalls` calls below `root` of functions that `findInlinable` returns and for
/// which `isWanted` returns true. Returns whether any call was inlined.
bool inlineCalls(RewriterBase &rewriter, Operation *root, Operation *table, unsigned mostCalls,
                 function_ref<bool(func::FuncOp)> isWanted);

/// Replaces ops of the dialect on memrefs below `root` that differ only in their operands by calls
/// of one function (flashattn-share-kernels).
void shareKernels(RewriterBase &rewriter, Operation *root);

/// Frees each buffer that is allocated below `root`, and neither leaves its block nor is freed,
/// after the last op of the block that uses the buffer (flashattn-free-temporaries).
void freeTemporaries(RewriterBase &rewriter, Operation *root);

/// Emits an error at the first op on tensors below `root` that cannot be bufferized.
LogicalResult verifyTensors(Operation *root);

/// Emits an error at the first op below `root`, outside of kernels, with which the host would
/// access GPU memory, or a kernel host memory; notes list the other ops.
LogicalResult verifyHost(Operation *root);

/// Emits an error at the first op below `root` that is a nested module, or a function with a
/// reserved name.
LogicalResult verifyModule(Operation *root);

/// Emits an error at an op below `root` that cannot be translated to LLVM IR.
LogicalResult verifyLowered(Operation *root);

/// Replaces `op`, on memrefs and with a schedule, by its tile program over (batch, row tile, column
/// tile) or, if a batch has few rows, (row, batch tile, column tile). Emits an error at the op if
/// it has tensors or no schedule.
FailureOr<ProgramOp> tileProject(RewriterBase &rewriter, ProjectOp op);

/// Merges `op` into the CPU tile program of the attention before `op`, and erases `op`
/// (flashattn-fuse-projection). Returns false, without a change, if this is not possible.
bool fuseProjection(RewriterBase &rewriter, ProjectOp op);

/// Registers external models of upstream's ShardingInterface for the dialect's ops on tensors.
void registerShardingInterfaceExternalModels(DialectRegistry &registry);

} // namespace flashattn
} // namespace mlir

#endif // FLASHATTN_DIALECT_FLASHATTN_TRANSFORMS_TRANSFORMS_H
