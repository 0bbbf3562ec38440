//===- Transforms.h - the pieces behind the passes ---------------*- C++ -*-===//

#ifndef FLASHATTN_DIALECT_FLASHATTN_TRANSFORMS_TRANSFORMS_H
#define FLASHATTN_DIALECT_FLASHATTN_TRANSFORMS_TRANSFORMS_H

#include "flashattn/Dialect/FlashAttn/IR/FlashAttn.h"

namespace mlir {
class RewriterBase;
namespace scf {
class ForallOp;
class ForOp;
} // namespace scf

namespace flashattn {

/// Replaces `op`, on memrefs and with a schedule, by its tile program: an `scf.forall`
/// over (batch, query head, query tile) that carries the schedule as the attribute
/// `flashattn.schedule`. Where the schedule splits the keys the last dimension counts (query tile,
/// part), the part fastest, and a combine op follows. Errors, at the op: tensors, no schedule.
FailureOr<scf::ForallOp> tileAttention(RewriterBase &rewriter, AttentionOp op);

/// Replaces linalg ops below `root` by the dialect's ops where they say the same, and drops fills
/// of destinations that the dialect's ops overwrite (flashattn-raise-linalg).
void raiseLinalg(RewriterBase &rewriter, Operation *root);

/// Error at the first op below `root` that would become a loop or a copy of the host over memory of
/// a GPU: linalg ops and `memref.copy` outside of kernels.
LogicalResult verifyHost(Operation *root);

/// Replaces `op`, on memrefs and with a schedule, by its tile program: an `scf.forall` over (batch,
/// row tile, column tile) or, where a batch has few rows, (row, batch tile, column tile), that
/// carries the schedule as the attribute `flashattn.schedule`. Errors, at the op: tensors, no
/// schedule.
FailureOr<scf::ForallOp> tileProject(RewriterBase &rewriter, ProjectOp op);

/// Multiplies what the tile program of the attention before `op` writes as soon as it is finished,
/// and erases `op` (flashattn-fuse-projection). False where that cannot be: nothing is changed
/// then. `sharedMemory` is what a block of a GPU may use, bytes.
bool fuseProjection(RewriterBase &rewriter, ProjectOp op, int64_t sharedMemory);

/// Replaces `op`, on memrefs, by loops over its rows or, `onGPU`, by a `gpu.launch`. Errors, at the
/// op: tensors.
LogicalResult lowerCombine(RewriterBase &rewriter, CombineOp op, bool onGPU);

/// Replaces `op` by an `scf.forall` over its lists or, `onGPU`, by a `gpu.launch`.
void lowerListTiles(RewriterBase &rewriter, ListTilesOp op, bool onGPU);

/// The tile programs below `root` whose schedule has roles.
SmallVector<scf::ForallOp> findSpecializedPrograms(Operation *root);

/// Turns the key loops of `program` by half a step (flashattn-pipeline-keys). The loops of
/// an interval move into an `scf.if` with the attribute `flashattn.key_run` whose condition
/// compares the interval's first tile with its end. Errors, at the loop: one that
/// flashattn-tile has not made.
LogicalResult pipelineKeys(RewriterBase &rewriter, scf::ForallOp program);

/// Rescales sum and output of the online softmax in `loop` only where some row's exponent
/// has grown by more than `growth`, as a power of 2; `lanes` threads share a row. Failure: no
/// online softmax as flashattn-tile writes it.
LogicalResult rescaleConditionally(RewriterBase &rewriter, scf::ForOp loop, int64_t lanes,
                                   int64_t growth);

} // namespace flashattn
} // namespace mlir

#endif // FLASHATTN_DIALECT_FLASHATTN_TRANSFORMS_TRANSFORMS_H
