//===- Symbols.cpp - runtime functions of AOT-compiled code ---------------===//
//
// The same functions that RuntimeSymbols.cpp provides for the JIT, on a GPU and the caller's
// stream, or on host memory. Kernels are loaded when they are first launched, so code for the CPU
// does not open the driver.
//
//===----------------------------------------------------------------------===//

#include "Context.h"
#include "flashattn/Runtime/ParallelFor.h"

using namespace mlir::flashattn;
using namespace mlir::flashattn::aot;

//===----------------------------------------------------------------------===//
// The context
//===----------------------------------------------------------------------===//

Context::Context(cuda::Card &card, cuda::Stream stream)
    : card(card), stream(stream), outer(getThreadContext()) {
  setThreadContext(this);
}

Context::~Context() {
  (void)takeFault();
  setThreadContext(outer);
}

Context *Context::get() { return static_cast<Context *>(getThreadContext()); }

void *Context::allocate(size_t bytes) {
  void *address = nullptr;
  // An empty buffer needs no address. The driver would take time to allocate a byte.
  if (bytes == 0)
    return nullptr;
  run([&](cuda::Card &card) -> Fault {
    auto *buffer = static_cast<Buffer *>(std::malloc(sizeof(Buffer)));
    if (!buffer)
      return Fault::format("out of memory on the CPU");
    if (Fault fault = card.allocateOn(stream, bytes, address)) {
      std::free(buffer);
      return fault;
    }
    *buffer = {address, buffers};
    buffers = buffer;
    return {};
  });
  return address;
}

void Context::release(void *address) {
  if (!address)
    return;
  run([&](cuda::Card &card) -> Fault {
    for (Buffer **place = &buffers; *place; place = &(*place)->next)
      if ((*place)->address == address) {
        Buffer *found = *place;
        *place = found->next;
        std::free(found);
        return card.releaseOn(stream, address);
      }
    return Fault::format("expected a function that frees only what it has allocated but it frees "
                         "%p",
                         address);
  });
}

Fault Context::takeFault() {
  while (buffers) {
    Buffer *buffer = std::exchange(buffers, buffers->next);
    Fault late = card.releaseOn(stream, buffer->address);
    std::free(buffer);
    if (late && !fault)
      fault = std::move(late);
  }
  return std::move(fault);
}

//===----------------------------------------------------------------------===//
// Memory
//===----------------------------------------------------------------------===//

static void *allocate(uint64_t alignment, uint64_t bytes) {
  if (Context *context = Context::get())
    return context->allocate(bytes);
  return std::aligned_alloc(alignment, (bytes + alignment - 1) / alignment * alignment);
}

static void release(void *pointer) {
  if (Context *context = Context::get())
    context->release(pointer);
  else
    std::free(pointer);
}

/// Fills memory of a GPU, as only code for GPUs does. A stream supports only values of equal bytes.
template <typename T> static void fill(void *dst, T value, size_t count) {
  const unsigned byte = value & 0xff;
  const T repeated = T(-1) / 0xff * byte;
  if (Context *context = Context::get())
    context->run([&](cuda::Card &card) {
      return value == repeated
                 ? card.fill(dst, byte, count * sizeof(T), context->getStream())
                 : Fault::format("expected device memory to be filled with equal bytes but got "
                                 "0x%x",
                                 unsigned(value));
    });
}

extern "C" {
void *_mlir_memref_to_llvm_alloc(uint64_t bytes) { return allocate(alignof(max_align_t), bytes); }
void *_mlir_memref_to_llvm_aligned_alloc(uint64_t alignment, uint64_t bytes) {
  return allocate(alignment, bytes);
}
void _mlir_memref_to_llvm_free(void *pointer) { release(pointer); }
void _mlir_memref_to_llvm_aligned_free(void *pointer) { release(pointer); }
void *mgpuMemAlloc(uint64_t bytes, void *, bool) { return allocate(alignof(max_align_t), bytes); }
void mgpuMemFree(void *pointer, void *) { release(pointer); }

void mgpuMemcpy(void *dst, void *src, size_t bytes, void *) {
  if (Context *context = Context::get())
    context->run(
        [&](cuda::Card &card) { return card.copyOnDevice(dst, src, bytes, context->getStream()); });
}
void mgpuMemset32(void *dst, unsigned value, size_t count, void *) { fill(dst, value, count); }
void mgpuMemset16(void *dst, unsigned short value, size_t count, void *) {
  fill(dst, value, count);
}

//===----------------------------------------------------------------------===//
// Kernels
//===----------------------------------------------------------------------===//

/// An image represents its module, which is loaded when one of its kernels is first requested.
void *mgpuModuleLoad(void *image, size_t) { return image; }
void *mgpuModuleLoadJIT(void *ptx, int) { return ptx; }
void mgpuModuleUnload(void *) {}

void *mgpuModuleGetFunction(void *image, const char *name) {
  Context *context = Context::get();
  cuda::Kernel *kernel = nullptr;
  if (!context)
    return nullptr;
  context->run([&](cuda::Card &card) {
    cuda::LoadedModule *module = nullptr;
    Fault fault = card.addKernels({reinterpret_cast<uintptr_t>(image), 0, 0},
                                  static_cast<const char *>(image), module);
    return fault ? std::move(fault) : card.getKernel(*module, name, __builtin_strlen(name), kernel);
  });
  return kernel;
}

static void launch(void *kernel, Dim3 grid, Dim3 block, Dim3 cluster, int32_t sharedBytes,
                   void **parameters) {
  Context *context = Context::get();
  if (!context)
    return;
  LaunchShape shape{grid, block, cluster, sharedBytes};
  // Also after a fault: the flags belong to this launch, not to the next one.
  shape.programmatic = context->takeLaunchFlags() & kLaunchProgrammatic;
  context->run([&](cuda::Card &card) {
    return card.launch(*static_cast<cuda::Kernel *>(kernel), shape, context->getStream(),
                       parameters);
  });
}
void mgpuLaunchKernel(void *kernel, intptr_t gridX, intptr_t gridY, intptr_t gridZ, intptr_t blockX,
                      intptr_t blockY, intptr_t blockZ, int32_t sharedBytes, void *,
                      void **parameters, void **, size_t) {
  launch(kernel, {gridX, gridY, gridZ}, {blockX, blockY, blockZ}, {1, 1, 1}, sharedBytes,
         parameters);
}
void mgpuLaunchClusterKernel(void *kernel, intptr_t clusterX, intptr_t clusterY, intptr_t clusterZ,
                             intptr_t gridX, intptr_t gridY, intptr_t gridZ, intptr_t blockX,
                             intptr_t blockY, intptr_t blockZ, int32_t sharedBytes, void *,
                             void **parameters, void **) {
  launch(kernel, {gridX, gridY, gridZ}, {blockX, blockY, blockZ}, {clusterX, clusterY, clusterZ},
         sharedBytes, parameters);
}

void flashattnSetLaunchFlags(int32_t flags) {
  if (Context *context = Context::get())
    context->setLaunchFlags(flags);
}

void flashattnEncodeTensorMap(void *map, void *alignedPointer, int64_t offset, int64_t rank,
                              const int64_t *sizes, const int64_t *strides, int32_t element,
                              int64_t rowDim, int64_t boxRows, int64_t outerDim, int64_t outerRows,
                              int64_t boxColumns) {
  Context *context = Context::get();
  if (!context)
    return;
  TensorMapShape shape = makeTensorMapShape(alignedPointer, offset, rank, sizes, strides, element,
                                            rowDim, boxRows, outerDim, outerRows, boxColumns);
  context->run([&](cuda::Card &card) { return card.encodeTensorMap(map, shape); });
}

int64_t flashattnMultiprocessorCount() {
  Context *context = Context::get();
  return context ? context->getCard().getInfo().multiprocessors : 1;
}

//===----------------------------------------------------------------------===//
// Streams and events: all work of a call is submitted to the caller's stream, in order
//===----------------------------------------------------------------------===//

void *mgpuStreamCreate() { return nullptr; }
void mgpuStreamDestroy(void *) {}
void mgpuStreamSynchronize(void *) {}
void mgpuStreamWaitEvent(void *, void *) {}
void *mgpuEventCreate() { return nullptr; }
void mgpuEventDestroy(void *) {}
void mgpuEventSynchronize(void *) {}
void mgpuEventRecord(void *, void *) {}
void mgpuSetDefaultDevice(int32_t) {}
}
