//===- Fault.h - errors and locks without libraries -------------*- C++ -*-===//
//
// The basis of the part of the runtime that is linked into programs compiled ahead of time: it uses
// neither LLVM nor code of the C++ library, only the C library.
//
//===----------------------------------------------------------------------===//

#ifndef FLASHATTN_RUNTIME_FAULT_H
#define FLASHATTN_RUNTIME_FAULT_H

#include <cstdarg>
#include <cstdio>
#include <cstdlib>
#include <pthread.h>
#include <utility>

namespace mlir::flashattn {

/// A short text, which is truncated if it is too long.
struct Text {
  char chars[512] = "";

  [[gnu::format(printf, 1, 2)]] static Text format(const char *format, ...) {
    Text text;
    va_list arguments;
    va_start(arguments, format);
    std::vsnprintf(text.chars, sizeof(text.chars), format, arguments);
    va_end(arguments);
    return text;
  }
};

/// An error with a message, or success.
class [[nodiscard]] Fault {
public:
  Fault() = default;
  Fault(Fault &&other) : text(std::exchange(other.text, nullptr)) {}
  Fault &operator=(Fault &&other) {
    std::swap(text, other.text);
    return *this;
  }
  ~Fault() { std::free(text); }

  [[gnu::format(printf, 1, 2)]] static Fault format(const char *format, ...) {
    Fault fault;
    va_list arguments;
    va_start(arguments, format);
    if (vasprintf(&fault.text, format, arguments) < 0)
      fault.text = nullptr;
    va_end(arguments);
    // Missing memory for the message must not look like success.
    if (!fault.text)
      std::abort();
    return fault;
  }

  explicit operator bool() const { return text; }
  /// Returns null on success.
  const char *getText() const { return text; }

private:
  char *text = nullptr;
};

class Mutex {
public:
  void lock() { pthread_mutex_lock(&mutex); }
  void unlock() { pthread_mutex_unlock(&mutex); }

private:
  friend class Condition;
  pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
};

/// Holds a mutex for a scope.
class Lock {
public:
  explicit Lock(Mutex &mutex) : mutex(mutex) { mutex.lock(); }
  ~Lock() { mutex.unlock(); }
  Lock(const Lock &) = delete;

private:
  Mutex &mutex;
};

class Condition {
public:
  /// Returns when notified, or spuriously.
  void wait(Mutex &mutex) { pthread_cond_wait(&condition, &mutex.mutex); }
  void notifyAll() { pthread_cond_broadcast(&condition); }

private:
  pthread_cond_t condition = PTHREAD_COND_INITIALIZER;
};

} // namespace mlir::flashattn

#endif // FLASHATTN_RUNTIME_FAULT_H
