//===- DeviceOps.cpp - ops of kernels on any GPU --------------------------===//

#include "flashattn/Dialect/FlashAttn/IR/FlashAttn.h"
#include "mlir/IR/Builders.h"

using namespace mlir;
using namespace mlir::flashattn;

static Type getAnswerType(MLIRContext *context, VoteKind kind) {
  return IntegerType::get(context, kind == VoteKind::Ballot ? 32 : 1);
}

void VoteOp::build(OpBuilder &builder, OperationState &state, VoteKind kind, Value condition) {
  build(builder, state, getAnswerType(builder.getContext(), kind), kind, condition);
}

LogicalResult VoteOp::verify() {
  Type expected = getAnswerType(getContext(), getKind());
  if (getAnswer().getType() != expected)
    return emitOpError() << "expected " << stringifyVoteKind(getKind()) << " to answer with "
                         << expected << " but got " << getAnswer().getType();
  return success();
}
