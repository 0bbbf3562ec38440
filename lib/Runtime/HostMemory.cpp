//===- HostMemory.cpp - memory of compiled code without an executable -----===//
//
// The functions that finalize-memref-to-llvm names, with which lowered code allocates memory if it
// runs without an Executable and thus without a device.
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
