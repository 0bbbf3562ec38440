//===- PrepareKernels.cpp - memory of kernels -----------------------------===//

#include "ModelKernel.h"
#include "mlir/Dialect/MemRef/IR/MemRef.h"

using namespace mlir;
using namespace mlir::flashattn::model;

/// Replaces each global in shared memory by a workgroup attribution of the kernel that uses it.
static void takeGlobals(gpu::GPUFuncOp kernel) {
  llvm::DenseMap<Attribute, Value> taken;
  SmallVector<memref::GetGlobalOp> uses;
  kernel.walk([&](memref::GetGlobalOp use) {
    if (gpu::GPUDialect::hasWorkgroupMemoryAddressSpace(use.getType()))
      uses.push_back(use);
  });
  for (memref::GetGlobalOp use : uses) {
    Value &memory = taken[use.getNameAttr()];
    if (!memory)
      memory = kernel.addWorkgroupAttribution(use.getType(), use.getLoc());
    use.replaceAllUsesWith(memory);
    use.erase();
  }
}

/// Replaces private attributions by memory on the host thread's stack.
static void takePrivate(gpu::GPUFuncOp kernel) {
  ArrayRef<BlockArgument> memories = kernel.getPrivateAttributions();
  if (memories.empty())
    return;
  Block &entry = kernel.front();
  auto b = OpBuilder::atBlockBegin(&entry);
  for (BlockArgument memory : memories)
    memory.replaceAllUsesWith(
        memref::AllocaOp::create(b, memory.getLoc(), cast<MemRefType>(memory.getType())));
  entry.eraseArguments(memories.front().getArgNumber(), memories.size());
}

void mlir::flashattn::model::prepareKernels(gpu::GPUModuleOp container) {
  for (gpu::GPUFuncOp kernel : container.getOps<gpu::GPUFuncOp>()) {
    takeGlobals(kernel);
    takePrivate(kernel);
  }
}
