//===- Fiber.cpp ----------------------------------------------------------===//

#include "Fiber.h"

#include <sys/mman.h>
#include <ucontext.h>
#include <unistd.h>

#if defined(__has_feature)
#if __has_feature(address_sanitizer)
#include <sanitizer/common_interface_defs.h>
#define FLASHATTN_FIBER_SANITIZER
#endif
#endif

using namespace mlir::flashattn::model;

// The builtins save only the registers that the compiler knows to be in use. The functions of the
// library save all registers and look for handlers of the thread.
#if defined(__x86_64__)
#define FLASHATTN_SAVE(place) __builtin_setjmp(reinterpret_cast<void **>(place))
#define FLASHATTN_GO_ON(place) __builtin_longjmp(reinterpret_cast<void **>(place), 1)
#else
#define FLASHATTN_SAVE(place) _setjmp(place)
#define FLASHATTN_GO_ON(place) _longjmp(place, 1)
#endif

// A function of the sanitizer makes a system call before each jump, unless its caller is left
// alone.
#ifdef FLASHATTN_FIBER_SANITIZER
#define FLASHATTN_SWITCHES __attribute__((no_sanitize("address")))
#else
#define FLASHATTN_SWITCHES
#endif

/// The fiber of a new context, and the stack of the caller of resume.
static thread_local Fiber *entering = nullptr;
#ifdef FLASHATTN_FIBER_SANITIZER
static thread_local const void *outerStack = nullptr;
static thread_local size_t outerBytes = 0;
#endif

static size_t getPageBytes() {
  static const size_t bytes = sysconf(_SC_PAGESIZE);
  return bytes;
}

/// Stacks begin at page boundaries, whose lines share a few sets of the host's cache. So the stacks
/// of threads that run in turn begin at different offsets.
static size_t getOffset() {
  constexpr unsigned kPlaces = 32, kPlaceBytes = 64 * 17;
  static thread_local unsigned next = 0;
  return next++ % kPlaces * kPlaceBytes;
}

Fiber::~Fiber() { dropStack(); }

void Fiber::dropStack() {
  if (stack)
    munmap(stack - getPageBytes(), kStackBytes + getPageBytes());
  stack = nullptr;
}

bool Fiber::start(void (*newBody)(void *), void *newArgument) {
#ifdef FLASHATTN_FIBER_SANITIZER
  // The sanitizer forgets the frames of a discarded body with their stack.
  if (!isNew && !isOver)
    dropStack();
#endif
  body = newBody;
  argument = newArgument;
  isNew = true;
  isOver = false;
  if (stack)
    return true;
  void *pages = mmap(nullptr, kStackBytes + getPageBytes(), PROT_READ | PROT_WRITE,
                     MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (pages == MAP_FAILED)
    return false;
  mprotect(pages, getPageBytes(), PROT_NONE);
  stack = static_cast<char *>(pages) + getPageBytes();
  return true;
}

void Fiber::enter() { entering->begin(); }

void Fiber::begin() {
#ifdef FLASHATTN_FIBER_SANITIZER
  __sanitizer_finish_switch_fiber(nullptr, &outerStack, &outerBytes);
#endif
  body(argument);
  isOver = true;
  suspend();
}

FLASHATTN_SWITCHES void Fiber::resume() {
#ifdef FLASHATTN_FIBER_SANITIZER
  void *fake = nullptr;
  __sanitizer_start_switch_fiber(&fake, stack, kStackBytes);
#endif
  if (FLASHATTN_SAVE(outside) == 0) {
    if (!isNew)
      FLASHATTN_GO_ON(inside);
    isNew = false;
    entering = this;
    ucontext_t context;
    getcontext(&context);
    context.uc_stack.ss_sp = stack;
    context.uc_stack.ss_size = kStackBytes - getOffset();
    context.uc_link = nullptr;
    makecontext(&context, &Fiber::enter, 0);
    setcontext(&context);
  }
#ifdef FLASHATTN_FIBER_SANITIZER
  __sanitizer_finish_switch_fiber(fake, nullptr, nullptr);
#endif
}

FLASHATTN_SWITCHES void Fiber::suspend() {
#ifdef FLASHATTN_FIBER_SANITIZER
  // With null, the sanitizer frees its own data about the stack.
  void *fake = nullptr;
  __sanitizer_start_switch_fiber(isOver ? nullptr : &fake, outerStack, outerBytes);
#endif
  if (FLASHATTN_SAVE(inside) == 0)
    FLASHATTN_GO_ON(outside);
#ifdef FLASHATTN_FIBER_SANITIZER
  __sanitizer_finish_switch_fiber(fake, &outerStack, &outerBytes);
#endif
}
