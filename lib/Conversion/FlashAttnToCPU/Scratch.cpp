//===- Scratch.cpp ---------------------------------------------------------===//

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
    buffer = memref::AllocaOp::create(b, loc, type, b.getI64IntegerAttr(64));
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
