//===- Context.h - whom code compiled ahead of time talks to ----*- C++ -*-===//

#ifndef FLASHATTN_RUNTIME_AOT_CONTEXT_H
#define FLASHATTN_RUNTIME_AOT_CONTEXT_H

#include "../CUDACard.h"

namespace mlir::flashattn::aot {

/// A call under way on a card. Without one, code runs on the CPU.
class Context {
public:
  Context(cuda::Card &card, cuda::Stream stream);
  ~Context();
  Context(const Context &) = delete;

  /// That of the code that runs on this thread; null on the CPU.
  static Context *get();

  /// Runs `call` on the card unless a fault came before: what follows a failed call would only
  /// fail for its sake.
  template <typename F> void run(F call) {
    if (!fault)
      fault = call(card);
  }
  /// The first fault of the call, which is over: what it has allocated and not freed is freed
  /// then, behind all of its work.
  Fault takeFault();

  cuda::Stream getStream() const { return stream; }
  cuda::Card &getCard() const { return card; }
  /// LaunchFlags of the next launch. Taken once: launches behind it have none.
  void setLaunchFlags(int32_t flags) { launchFlags = flags; }
  int32_t takeLaunchFlags() { return std::exchange(launchFlags, 0); }

  /// Memory for compiled code, in the order of the stream.
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
