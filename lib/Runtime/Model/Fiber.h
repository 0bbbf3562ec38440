//===- Fiber.h - threads of a GPU on one thread of the host -----*- C++ -*-===//

#ifndef FLASHATTN_RUNTIME_MODEL_FIBER_H
#define FLASHATTN_RUNTIME_MODEL_FIBER_H

#include "llvm/ADT/STLFunctionalExtras.h"

#include <csetjmp>
#include <cstddef>

namespace mlir::flashattn::model {

/// A function with its own stack, which runs until it suspends itself, and is resumed there. A
/// switch is a pair of setjmp and longjmp, without a system call.
class Fiber {
public:
  /// Bytes of a stack. Pages that are not accessed use no memory.
  static constexpr size_t kStackBytes = size_t(1) << 18;

  Fiber() = default;
  Fiber(const Fiber &) = delete;
  ~Fiber();

  /// Sets the function that the next resume starts. An earlier one is discarded, with everything in
  /// its frames. Returns false if there is no memory for a stack.
  bool start(void (*body)(void *), void *argument);
  /// Runs the fiber until it suspends itself or its body ends.
  void resume();
  /// Called by the fiber: returns to the caller of resume.
  void suspend();

private:
  static void enter();
  void begin();
  void dropStack();

  void (*body)(void *) = nullptr;
  void *argument = nullptr;
  char *stack = nullptr; ///< after a guard page
  bool isNew = true;
  bool isOver = false; ///< never resumed again
  jmp_buf inside, outside;
};

} // namespace mlir::flashattn::model

#endif // FLASHATTN_RUNTIME_MODEL_FIBER_H
