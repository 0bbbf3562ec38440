//===- DynamicSharedMemory.cpp - flashattn-declare-dynamic-shared-memory --===//

#include "flashattn/Conversion/Passes.h"

namespace mlir::flashattn {
#define GEN_PASS_DEF_DECLAREDYNAMICSHAREDMEMORY
#include "flashattn/Conversion/Passes.h.inc"
} // namespace mlir::flashattn

using namespace mlir;

namespace {
struct DeclareDynamicSharedMemoryPass
    : flashattn::impl::DeclareDynamicSharedMemoryBase<DeclareDynamicSharedMemoryPass> {
  void runOnOperation() override {
    // 8 rows of 128 bytes, the period of the widest swizzle; and the widest access of a thread.
    constexpr int64_t kAlignment = 1024, kStaticAlignment = 16;
    for (auto global : getOperation().getOps<LLVM::GlobalOp>()) {
      auto type = dyn_cast<LLVM::LLVMArrayType>(global.getType());
      if (!type || global.getAddrSpace() != unsigned(NVVM::NVVMMemorySpace::Shared))
        continue;
      if (type.getNumElements() != 0) {
        if (!global.getAlignment())
          global.setAlignment(kStaticAlignment);
        continue;
      }
      global.setLinkage(LLVM::Linkage::External);
      global.setAlignment(kAlignment);
    }
  }
};
} // namespace
