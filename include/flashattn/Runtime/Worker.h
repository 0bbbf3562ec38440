//===- Worker.h - a thread for one piece of work -----------------*- C++ -*-===//

#ifndef FLASHATTN_RUNTIME_WORKER_H
#define FLASHATTN_RUNTIME_WORKER_H

#include <pthread.h>

#include <functional>
#include <utility>

namespace mlir::flashattn {

/// Does a piece of work beside its owner; in `start`, where the process may start no more threads.
/// Not std::thread, which ends the process then.
class Worker {
public:
  Worker() = default;
  Worker(const Worker &) = delete;
  Worker &operator=(const Worker &) = delete;
  ~Worker() { join(); }

  /// Once.
  void start(std::function<void()> toDo) {
    work = std::move(toDo);
    auto run = [](void *worker) -> void * {
      static_cast<Worker *>(worker)->work();
      return nullptr;
    };
    isRunning = pthread_create(&thread, nullptr, run, this) == 0;
    if (!isRunning)
      work();
  }

  /// Returns when the work is done.
  void join() {
    if (std::exchange(isRunning, false))
      pthread_join(thread, nullptr);
  }

private:
  std::function<void()> work;
  pthread_t thread = {};
  bool isRunning = false;
};

} // namespace mlir::flashattn

#endif // FLASHATTN_RUNTIME_WORKER_H
