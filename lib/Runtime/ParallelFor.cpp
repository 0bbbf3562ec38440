//===- ParallelFor.cpp - the CPU target's thread pool ---------------------===//
//
// Uses only the C library (Fault.h), because programs that run compiled code themselves link it
// too.
//
//===----------------------------------------------------------------------===//

#include "flashattn/Runtime/ParallelFor.h"
#include "Fault.h"
#include "flashattn/Support/Environment.h"

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <new>

#include <sched.h>
#include <time.h>
#include <unistd.h>

#if defined(__x86_64__) || defined(__i386__)
#include <immintrin.h>
#endif

using namespace mlir::flashattn;

static thread_local void *threadContext = nullptr;

void *mlir::flashattn::getThreadContext() { return threadContext; }
void mlir::flashattn::setThreadContext(void *context) { threadContext = context; }

namespace {

/// How long an idle thread polls before it sleeps: longer than the gap between the launches of a
/// benchmark, and too short to be visible in other profiles.
constexpr int64_t kSpinNanoseconds = 50000;

int64_t getNanoseconds() {
  timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return now.tv_sec * int64_t(1000000000) + now.tv_nsec;
}

void relax() {
#if defined(__x86_64__) || defined(__i386__)
  _mm_pause();
#endif
}

/// A call of flashattnParallelFor, on the caller's stack. `next` and `inside` have their own cache
/// lines, because all threads write them.
struct Job {
  void (*body)(void *, int64_t);
  void *context;
  int64_t count;
  void *caller; ///< the caller's thread context
  alignas(64) std::atomic<int64_t> next{0};
  alignas(64) std::atomic<int64_t> inside{0};

  void work() {
    for (int64_t i; (i = next.fetch_add(1, std::memory_order_relaxed)) < count;)
      body(context, i);
  }
};

/// Threads that exist as long as the process. The workers serve one job at a time; a second caller
/// (nested or concurrent) runs its programs itself, so that no thread waits for a waiting thread.
class Pool {
public:
  explicit Pool(unsigned threads)
      : workers(static_cast<pthread_t *>(std::malloc(threads * sizeof(pthread_t)))) {
    auto start = [](void *pool) -> void * {
      static_cast<Pool *>(pool)->serve();
      return nullptr;
    };
    // As many threads as the process can create.
    while (workers && numWorkers + 1 < threads &&
           pthread_create(&workers[numWorkers], nullptr, start, this) == 0)
      ++numWorkers;
  }

  ~Pool() {
    {
      Lock lock(mutex);
      stopping = true;
      generation.fetch_add(1);
    }
    wake.notifyAll();
    for (unsigned i = 0; i < numWorkers; ++i)
      pthread_join(workers[i], nullptr);
    std::free(workers);
  }

  unsigned size() const { return numWorkers + 1; }

  void run(Job &job) {
    bool expected = false;
    if (job.count <= 1 || numWorkers == 0 || !busy.compare_exchange_strong(expected, true)) {
      job.work();
      return;
    }
    bool sleepers;
    {
      Lock lock(mutex);
      current = &job;
      generation.fetch_add(1, std::memory_order_release);
      sleepers = sleeping > 0;
    }
    if (sleepers)
      wake.notifyAll();
    job.work();
    // No further worker may enter; then wait for the workers inside.
    {
      Lock lock(mutex);
      current = nullptr;
    }
    // A program may take long, and the thread that runs it may need this processor.
    for (unsigned polls = 0; job.inside.load(std::memory_order_acquire) != 0; ++polls) {
      constexpr unsigned kPolls = 1000;
      if (polls < kPolls)
        relax();
      else
        sched_yield();
    }
    busy.store(false, std::memory_order_release);
  }

private:
  void serve() {
    uint64_t seen = 0;
    while (true) {
      int64_t deadline = getNanoseconds() + kSpinNanoseconds;
      while (generation.load(std::memory_order_acquire) == seen && getNanoseconds() < deadline)
        relax();
      Job *job;
      {
        Lock lock(mutex);
        ++sleeping;
        while (generation.load() == seen)
          wake.wait(mutex);
        --sleeping;
        seen = generation.load();
        if (stopping)
          return;
        job = current;
        if (job)
          job->inside.fetch_add(1, std::memory_order_relaxed);
      }
      if (!job)
        continue;
      setThreadContext(job->caller);
      job->work();
      setThreadContext(nullptr);
      job->inside.fetch_sub(1, std::memory_order_release);
    }
  }

  pthread_t *workers;
  unsigned numWorkers = 0;
  std::atomic<bool> busy{false};
  /// Counts jobs, so that a worker detects a new one; written under `mutex`.
  std::atomic<uint64_t> generation{0};
  Mutex mutex;
  Condition wake;
  Job *current = nullptr;
  unsigned sleeping = 0;
  bool stopping = false;
};

/// Returns the number of processors that this process may use.
unsigned countProcessors() {
  cpu_set_t processors;
  if (sched_getaffinity(0, sizeof(processors), &processors) == 0)
    return CPU_COUNT(&processors);
  return std::max<long>(sysconf(_SC_NPROCESSORS_ONLN), 1);
}

unsigned chooseThreads() {
  // More threads would be useless, and would exhaust the process.
  constexpr unsigned kMaxThreads = 1024;
  unsigned processors = std::min(countProcessors(), kMaxThreads);
  return getNumber("FLASHATTN_NUM_THREADS", 1, kMaxThreads, processors);
}

Pool *pool;
pthread_once_t made = PTHREAD_ONCE_INIT;

/// Returns the pool. Its threads end with the process, or before the library that contains their
/// code is unloaded.
Pool &getPool() {
  pthread_once(&made, [] {
    alignas(Pool) static char place[sizeof(Pool)];
    pool = new (place) Pool(chooseThreads());
    std::atexit([] { pool->~Pool(); });
  });
  return *pool;
}

} // namespace

extern "C" int64_t flashattnThreadCount() { return getPool().size(); }

extern "C" void flashattnParallelFor(int64_t count, void (*body)(void *context, int64_t i),
                                     void *context) {
  Job job{body, context, count, getThreadContext()};
  getPool().run(job);
}
