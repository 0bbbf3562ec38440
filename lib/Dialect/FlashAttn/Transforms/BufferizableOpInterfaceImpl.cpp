//===- BufferizableOpInterfaceImpl.cpp - bufferization interface model ----===//

#include "flashattn/Dialect/FlashAttn/IR/FlashAttn.h"
#include "mlir/Dialect/Bufferization/IR/Bufferization.h"
#include "mlir/Dialect/Bufferization/IR/DstBufferizableOpInterfaceImpl.h"
#include "mlir/Dialect/MemRef/IR/MemRef.h"

using namespace mlir;
using namespace mlir::bufferization;
using namespace mlir::flashattn;

/// R1: the lowerings access the last dimension with unit stride. Function boundaries bufferize to
/// dynamic strides by default, so the message names the option that keeps the identity layout.
static LogicalResult verifyUnitStride(Operation *op, unsigned operand, Value buffer) {
  auto type = cast<MemRefType>(buffer.getType());
  SmallVector<int64_t> strides;
  int64_t start;
  if (succeeded(type.getStridesAndOffset(strides, start)) && strides.back() == 1)
    return success();
  return op->emitOpError()
         << "expected unit stride in the last dimension of the buffer of operand " << operand
         << " but got " << type
         << "; bufferize functions with function-boundary-type-conversion=identity-layout-map";
}

/// Creates a separate buffer: the analysis may assign an unread destination to several results.
static FailureOr<Value> makeBuffer(OpBuilder &b, Location loc, Value like,
                                   const BufferizationOptions &options) {
  auto type = cast<MemRefType>(like.getType());
  SmallVector<Value> sizes;
  for (auto [i, size] : llvm::enumerate(type.getShape()))
    if (ShapedType::isDynamic(size))
      sizes.push_back(memref::DimOp::create(b, loc, like, i));
  return options.createAlloc(b, loc, MemRefType::get(type.getShape(), type.getElementType()),
                             sizes);
}

namespace {

template <typename OpT>
struct Bufferization : DstBufferizableOpInterfaceExternalModel<Bufferization<OpT>, OpT> {
  /// A7: every element of an output is written and none is read, so the previous contents of
  /// destinations need not be kept, except those of other sequences (S7).
  bool bufferizesToMemoryRead(Operation *op, OpOperand &operand, const AnalysisState &) const {
    return !cast<OpT>(op).isDpsInit(&operand) || keepsOutputs(op);
  }

  LogicalResult bufferize(Operation *op, RewriterBase &rewriter,
                          const BufferizationOptions &options, BufferizationState &state) const {
    auto destination = cast<OpT>(op);
    if (destination.hasPureBufferSemantics())
      return success();

    OpBuilder::InsertionGuard guard(rewriter);
    rewriter.setInsertionPoint(op);
    SmallVector<Value> operands, results;
    SmallPtrSet<Value, 8> destinations;
    for (OpOperand &operand : op->getOpOperands()) {
      Value value = operand.get();
      if (isa<TensorType>(value.getType())) {
        FailureOr<Value> buffer = getBuffer(rewriter, value, options, state);
        if (failed(buffer) || failed(verifyUnitStride(op, operand.getOperandNumber(), *buffer)))
          return failure();
        value = *buffer;
        if (destination.isDpsInit(&operand)) {
          if (!destinations.insert(operand.get()).second) {
            FailureOr<Value> own = makeBuffer(rewriter, op->getLoc(), value, options);
            if (failed(own))
              return failure();
            value = *own;
          }
          results.push_back(value);
        }
      }
      operands.push_back(value);
    }
    clone(rewriter, op, /*newResultTypes=*/TypeRange(), operands);
    replaceOpWithBufferizedValues(rewriter, op, results);
    return success();
  }
};

} // namespace

void flashattn::registerBufferizableOpInterfaceExternalModels(DialectRegistry &registry) {
  registry.addExtension(+[](MLIRContext *context, FlashAttnDialect *) {
    AttentionOp::attachInterface<Bufferization<AttentionOp>>(*context);
    AttentionBackwardOp::attachInterface<Bufferization<AttentionBackwardOp>>(*context);
    CombineOp::attachInterface<Bufferization<CombineOp>>(*context);
    ProjectOp::attachInterface<Bufferization<ProjectOp>>(*context);
  });
}
