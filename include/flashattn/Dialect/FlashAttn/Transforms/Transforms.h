//===- Transforms.h - the pieces behind the passes ---------------*- C++ -*-===//

#ifndef FLASHATTN_DIALECT_FLASHATTN_TRANSFORMS_TRANSFORMS_H
#define FLASHATTN_DIALECT_FLASHATTN_TRANSFORMS_TRANSFORMS_H

#include "flashattn/Dialect/FlashAttn/IR/FlashAttn.h"

namespace mlir {
class RewriterBase;
namespace scf {
class ForallOp;
}

namespace flashattn {

/// Replaces `op`, on memrefs and with a schedule, by its tile program: an `scf.forall`
/// over (batch, query head, query tile) that carries the schedule as the attribute
/// `flashattn.schedule`. Errors, at the op: tensors, no schedule.
FailureOr<scf::ForallOp> tileAttention(RewriterBase &rewriter, AttentionOp op);

} // namespace flashattn
} // namespace mlir

#endif // FLASHATTN_DIALECT_FLASHATTN_TRANSFORMS_TRANSFORMS_H
