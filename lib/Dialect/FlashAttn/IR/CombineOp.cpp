//===- CombineOp.cpp - merging attention over splits of the keys ----------===//

#include "Verify.h"

using namespace mlir;
using namespace mlir::flashattn;

LogicalResult CombineOp::verify() {
  OperandSizes sizes;
  if (failed(verifyOperands(*this, sizes)))
    return failure();
  if (sizes.get('S') == 0)
    return emitOpError() << "expected at least 1 part but got 0";
  if (getMinSeqlenQ() && !getCuSeqlensQ())
    return emitOpError() << "expected 'cu_seqlens_q' with 'min_seqlen_q' but got none";
  return verifyResults(*this);
}
