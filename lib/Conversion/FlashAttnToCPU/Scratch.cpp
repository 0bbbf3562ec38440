//===- Scratch.cpp --------------------------------------------------------===//

#include "Scratch.h"

using namespace mlir;
using namespace mlir::flashattn::cpu;

Value ScratchPool::allocate(Location loc, MemRefType type) {
  SmallVector<Value> &unused = free[type];
  Value buffer;
  if (!unused.empty()) {
    buffer = unused.pop_back_val();
  } else {
    OpBuilder b = OpBuilder::atBlockBegin(&program.getBody().front());
    all.push_back(memref::AllocaOp::create(b, loc, type, b.getI64IntegerAttr(64)));
    buffer = all.back();
  }
  inUse.push_back(buffer);
  return buffer;
}

void ScratchPool::release(size_t begin) {
  while (inUse.size() > begin) {
    Value buffer = inUse.pop_back_val();
    free[buffer.getType()].push_back(buffer);
  }
}

void ScratchPool::finish() {
  int64_t bytes = 0;
  for (memref::AllocaOp buffer : all) {
    MemRefType type = buffer.getType();
    bytes += type.getNumElements() * llvm::divideCeil(type.getElementTypeBitWidth(), 8);
  }
  if (bytes <= kMostStackBytes)
    return;
  Operation *end = program.getBody().front().getTerminator();
  for (memref::AllocaOp buffer : all) {
    OpBuilder b(buffer);
    auto taken =
        memref::AllocOp::create(b, buffer.getLoc(), buffer.getType(), buffer.getAlignmentAttr());
    buffer.replaceAllUsesWith(taken.getResult());
    buffer.erase();
    b.setInsertionPoint(end);
    memref::DeallocOp::create(b, taken.getLoc(), taken);
  }
}
