//===- Worker.h - a thread for one piece of work ----------------*- C++ -*-===//

#ifndef FLASHATTN_RUNTIME_WORKER_H
#define FLASHATTN_RUNTIME_WORKER_H

#include <pthread.h>

#include <functional>
#include <utility>

namespace mlir::flashattn {

/// Runs a piece of work on its own thread, or in `start` if the process cannot create more threads.
/// std::thread would terminate the process in that case.
class Worker {
public:
  Worker() = default;
  Worker(const Worker &) = delete;
  Worker &operator=(const Worker &) = delete;
  ~Worker() { join(); }

  /// Starts the work. May be called once.
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

  /// Waits until the work is done.
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
