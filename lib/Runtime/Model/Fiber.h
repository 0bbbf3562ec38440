//===- Fiber.h - threads of a GPU on one thread of the host ------*- C++ -*-===//

#ifndef FLASHATTN_RUNTIME_MODEL_FIBER_H
#define FLASHATTN_RUNTIME_MODEL_FIBER_H

#include "llvm/ADT/STLFunctionalExtras.h"

#include <csetjmp>
#include <cstddef>

namespace mlir::flashattn::model {

/// A function with a stack of its own, which runs until it suspends itself and goes on where it
/// did. A switch is a pair of setjmp and longjmp: no call of the system.
class Fiber {
public:
  /// Bytes of a stack. Pages that are never touched take no memory.
  static constexpr size_t kStackBytes = size_t(1) << 18;

  Fiber() = default;
  Fiber(const Fiber &) = delete;
  ~Fiber();

  /// What the next resume begins. What ran before is gone, with all that its frames hold.
  /// False: no memory for a stack.
  bool start(void (*body)(void *), void *argument);
  /// Runs it until it suspends itself or its body is over.
  void resume();
  /// Called by the fiber: back to who resumed it.
  void suspend();

private:
  static void enter();
  void begin();

  void (*body)(void *) = nullptr;
  void *argument = nullptr;
  char *stack = nullptr; ///< behind a page that may not be touched
  bool isNew = true;
  bool isOver = false; ///< not resumed any more
  jmp_buf inside, outside;
};

} // namespace mlir::flashattn::model

#endif // FLASHATTN_RUNTIME_MODEL_FIBER_H
