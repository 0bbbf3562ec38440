//===- HostMemory.cpp - memory of compiled code without an executable ------===//
//
// What lowered code allocates with where no Executable gives it a device's memory: the functions
// that finalize-memref-to-llvm names.
//
//===----------------------------------------------------------------------===//

#include <cstdint>
#include <cstdlib>

extern "C" {
void *_mlir_memref_to_llvm_alloc(uint64_t bytes) { return std::malloc(bytes); }
void *_mlir_memref_to_llvm_aligned_alloc(uint64_t alignment, uint64_t bytes) {
  return std::aligned_alloc(alignment, (bytes + alignment - 1) / alignment * alignment);
}
void _mlir_memref_to_llvm_free(void *pointer) { std::free(pointer); }
void _mlir_memref_to_llvm_aligned_free(void *pointer) { std::free(pointer); }
}
