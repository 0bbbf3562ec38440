//===- Context.h - context of AOT-compiled code -----------------*- C++ -*-===//

#ifndef FLASHATTN_RUNTIME_AOT_CONTEXT_H
#define FLASHATTN_RUNTIME_AOT_CONTEXT_H

#include "../CUDACard.h"

namespace mlir::flashattn::aot {

/// A call in progress on a GPU. Without a context, code runs on the CPU.
class Context {
public:
  Context(cuda::Card &card, cuda::Stream stream);
  ~Context();
  Context(const Context &) = delete;

  /// Returns the context of the code that runs on this thread; null on the CPU.
  static Context *get();

  /// Runs `call` on the GPU unless a fault has occurred: calls after a failed call would only fail
  /// because of it.
  template <typename F> void run(F call) {
    if (!fault)
      fault = call(card);
  }
  /// Ends the call and returns its first fault. Memory that it has allocated and not freed is then
  /// freed, in stream order, after all of its work.
  Fault takeFault();

  cuda::Stream getStream() const { return stream; }
  cuda::Card &getCard() const { return card; }
  /// Sets the LaunchFlags of the next launch only.
  void setLaunchFlags(int32_t flags) { launchFlags = flags; }
  int32_t takeLaunchFlags() { return std::exchange(launchFlags, 0); }

  /// Allocates memory for compiled code, in stream order.
  void *allocate(size_t bytes);
  void release(void *buffer);

private:
  struct Buffer {
    void *address;
    Buffer *next;
  };

  cuda::Card &card;
  const cuda::Stream stream;
  void *const outer;
  /// Allocated and not freed yet.
  Buffer *buffers = nullptr;
  int32_t launchFlags = 0;
  Fault fault;
};

} // namespace mlir::flashattn::aot

#endif // FLASHATTN_RUNTIME_AOT_CONTEXT_H
