//===- Block.h - a thread block on the model of a GPU -----------*- C++ -*-===//

#ifndef FLASHATTN_RUNTIME_MODEL_BLOCK_H
#define FLASHATTN_RUNTIME_MODEL_BLOCK_H

#include "Fiber.h"
#include "Shadow.h"
#include "Statistics.h"
#include "flashattn/Runtime/Device.h"
#include "flashattn/Runtime/ModelABI.h"
#include "llvm/ADT/DenseMap.h"
#include "llvm/ADT/SmallVector.h"

#include <atomic>
#include <chrono>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <random>
#include <string>

namespace mlir::flashattn::model {

class Block;

/// The address ranges of a device's buffers, for checks of addresses.
class MemoryMap {
public:
  void add(void *begin, size_t bytes);
  void remove(void *begin);
  /// Whether all bytes belong to one buffer. Without any buffer, all memory is considered valid.
  bool contains(const void *begin, size_t bytes) const;

private:
  mutable std::mutex mutex;
  std::vector<std::pair<uintptr_t, uintptr_t>> ranges; ///< begin and end, sorted
};

/// A launch of a kernel, shared by all of its blocks.
struct Launch {
  llvm::StringRef description; ///< see ModelABI.h
  void (*body)(void *arguments, ThreadView *thread);
  void *arguments;
  Dim3 grid, block;
  int64_t sharedBytes;
  uint64_t seed;
  const MemoryMap *memory;
  std::mutex *globalAdds; ///< held during additions to global memory
  /// The lowest block with a report; higher blocks need not run.
  const std::atomic<int64_t> *failed;
  bool collects; ///< whether statistics are collected

  llvm::StringRef getName() const { return description.split('\n').first; }
  llvm::StringRef getPlace(unsigned place) const;
};

/// The kind of event that a thread waits for.
enum class WaitKind : uint8_t { None, Barrier, Group, Warp, Products, Stores, State };

/// A `cp.async` in flight, which writes `bytes` at `offset`.
struct PendingCopy {
  uint32_t offset, bytes, sourceBytes;
  unsigned group;
  const void *source;
  uint8_t delay = 0;
  bool isDone = false;
};

/// A thread of the block. Compiled code reads `view`, which must be first.
struct Thread {
  ThreadView view;
  Block *block = nullptr;
  unsigned index = 0;
  enum State : uint8_t { Ready, Blocked, Done } state = Ready;
  WaitKind waits = WaitKind::None;
  uint16_t place = 0;  ///< of the last op
  uint32_t object = 0; ///< number of the awaited object, such as a barrier
  uint32_t value = 0;  ///< awaited value: a parity, a number of products
  uint32_t now = 1;    ///< the thread's own time, which grows with each release
  uint32_t fencedAt = 0;
  uint32_t products = 0, productsDone = 0; ///< number issued, and waited for, so far
  uint32_t stores = 0, storesWaited = 0;   ///< copies from shared memory, in the count of their
                                           ///< warp
  unsigned copyGroup = 0;
  /// For each thread of the warp, the time of that thread at their last shuffle. Its earlier reads
  /// either contributed to the shuffled values or precede the shuffle in the warp's order.
  uint32_t shuffledAt[kWarpThreads] = {};
  Knowledge known;
  llvm::SmallVector<PendingCopy, 0> copies;
  std::unique_ptr<Fiber> fiber;
  int64_t time = 0, busySince = 0; ///< in cycles of the cost table

  /// Enters the op at a place; kSameOp: the op was entered before.
  void enter(int32_t newPlace);
  /// Advances the time to that of an event that the thread waited for.
  void waitUntil(int64_t other);

  unsigned warp() const { return index / kWarpThreads; }
  unsigned lane() const { return index % kWarpThreads; }
  unsigned group() const { return index / kGroupThreads; }
};

/// An mbarrier of the PTX ISA.
struct Barrier {
  uint32_t offset, count, missing;
  unsigned number;
  int64_t bytes = 0;      ///< expected in this phase and not yet copied
  uint32_t phase = 0;     ///< number of completed phases
  uint32_t loads = 0;     ///< number of copies issued so far
  bool isVisible = false; ///< whether copies can see it
  Knowledge gathering, completed;
  int64_t gatheringTime = 0, completedTime = 0;
  llvm::SmallVector<Thread *, 0> waiting;
};

/// A named barrier.
struct GroupBarrier {
  uint32_t arrived = 0, expected = 0;
  uint16_t place = 0;
  Knowledge gathering;
  int64_t time = 0;
  llvm::SmallVector<Thread *, 0> waiting;
};

/// A collective op of the threads of a warp.
struct WarpSync {
  uint32_t arrived = 0; ///< one bit per lane
  unsigned lanes = 0;   ///< number of participating lanes, the first ones
  uint16_t place = 0;
  void *arguments[kWarpThreads];
};

/// An op that is performed some time after it was issued.
struct AsyncOp {
  int stream; ///< ops of one stream are performed in order; -1: in any order
  enum Delay : uint8_t { Sometime, Last } delay;
  std::function<void()> perform;
};

struct Product;

/// Copies and products in flight, performed at times that the seed determines.
class AsyncQueue {
public:
  void reset(uint64_t seed);
  void add(int stream, std::function<void()> perform);
  /// Performs some ops, or none.
  void step();
  /// Performs one op. Returns false if there is none.
  bool force();
  bool isEmpty() const { return ops.empty(); }
  uint32_t draw(uint32_t below) { return random() % below; }

private:
  bool isFirst(size_t i) const;
  void perform(size_t i);

  std::vector<AsyncOp> ops;
  std::minstd_rand random;
};

/// A block: its threads, its shared memory and its asynchronous ops. A worker runs one block after
/// another in the same object.
class Block {
public:
  Block();
  ~Block();
  /// Runs block `number` of the launch. Returns the report of an error, if there was one.
  std::optional<std::string> run(const Launch &launch, int64_t number);

  //===--- for the functions that compiled code calls ---------------------===//
  /// Ends the block with a report: "MESSAGE by thread … at PLACE". Does not return to a thread.
  void fail(const Thread &thread, const llvm::Twine &message);
  /// Same for errors outside of threads.
  void failAsync(const llvm::Twine &message);
  bool hasFailed() const { return report.has_value(); }
  std::string describe(const Thread &thread) const;
  std::string describe(unsigned agent, unsigned place) const;
  /// Returns text such as "RACE …, and written": the earlier access, and what the later one did.
  std::string describe(const Conflict &conflict, bool writes) const;
  llvm::StringRef getPlace(unsigned place) const { return launch->getPlace(place); }

  void block(Thread &thread, WaitKind kind, uint32_t object, uint32_t value);
  void wake(Thread &thread);
  /// Waits until `state`, in global memory, is `value`, which a warp of this or of another block
  /// stores.
  void await(Thread &thread, const std::atomic<int32_t> &state, int32_t value);
  /// Returns the offset of an address in shared memory. Fails if it is out of bounds or misaligned.
  uint32_t getShared(Thread &thread, const void *address, int64_t bytes, int64_t alignment);
  void checkGlobal(Thread &thread, const void *address, int64_t bytes, int64_t alignment,
                   const char *what);
  void access(Thread &thread, uint32_t offset, uint32_t bytes, bool writes, bool silent = false);
  /// Makes an atomic access, which is ordered with all others to the same location.
  void accessAtomic(Thread &thread, uint32_t offset, uint32_t bytes);
  /// For statistics: counts an access of a thread to shared memory. `lanes` threads of its warp
  /// access it together.
  void countAccess(const Thread &thread, uint32_t offset, uint32_t bytes, unsigned lanes) {
    if (statistics)
      statistics->addAccess(thread.warp(), thread.lane(), lanes, thread.place, offset, bytes);
  }
  void countAccess(const Thread &thread, uint32_t offset, uint32_t bytes) {
    countAccess(thread, offset, bytes, countLanes(thread.warp()));
  }
  Viewer view(const Thread &thread) const;
  /// Returns the view of an asynchronous op of `agent` that a thread has issued.
  Viewer viewAsync(const Thread &thread, unsigned agent, uint32_t time,
                   const Knowledge &known) const;
  /// Adds the thread's knowledge to `to`, and advances its time.
  void release(Thread &thread, Knowledge &to);
  void acquire(Thread &thread, const Knowledge &from) { joins.join(thread.known, from); }

  /// Waits until all lanes, or the first `lanes`, have arrived. Returns true for the last one,
  /// which acts for all and calls `release`.
  bool join(Thread &thread, WarpSync &sync, void *arguments) {
    return join(thread, sync, arguments, countLanes(thread.warp()));
  }
  bool join(Thread &thread, WarpSync &sync, void *arguments, unsigned lanes);
  void release(Thread &thread, WarpSync &sync);
  WarpSync &getWarpSync(Thread &thread) { return warpSyncs[thread.warp()]; }
  unsigned countLanes(unsigned warp) const;

  Barrier &getBarrier(Thread &thread, const void *address);
  void arrive(Thread &thread, Barrier &barrier);
  void complete(Barrier &barrier);
  void joinGroup(Thread &thread, uint32_t id, uint32_t threads, bool waits);

  const Launch *launch = nullptr;
  int64_t number = 0; ///< in the grid
  Agents agents;
  AsyncQueue queue;
  Shadow shadow;
  JoinCache joins;
  char *shared = nullptr;
  std::vector<Thread> threads;
  std::vector<std::unique_ptr<Barrier>> barriers;
  std::vector<std::deque<std::unique_ptr<Product>>> products; ///< of each warpgroup, in flight or
                                                              ///< recent
  std::vector<uint32_t> storeTimes, storesDone;               ///< of each warp
  std::optional<Statistics> statistics;
  int64_t productsUntil = 0; ///< when the last product ends

private:
  bool reset(const Launch &launch, int64_t number);
  void schedule();
  void wakeAwaiting();
  bool waitForOthers();
  void runWarp(unsigned warp);
  std::string describeDeadlock() const;
  std::string describeWait(const Thread &thread) const;
  void checkEnd();

  /// A thread that waits for an event that may occur in another block.
  struct Awaiting {
    Thread *thread;
    const std::atomic<int32_t> *state;
    int32_t value;
  };
  std::vector<Awaiting> awaiting;
  std::chrono::steady_clock::time_point busyUntil; ///< since then, only other blocks can proceed
  std::vector<WarpSync> warpSyncs;
  llvm::DenseMap<uint32_t, Knowledge> atomics; ///< the knowledge of the last access to an offset
  std::vector<uint32_t> ready;                 ///< runnable lanes of each warp
  static constexpr unsigned kGroupBarriers = 16;
  GroupBarrier groups[kGroupBarriers];
  std::vector<char> memory;
  std::optional<std::string> report;
  Thread *running = nullptr;
  unsigned alive = 0;
};

inline void Thread::enter(int32_t newPlace) {
  place = newPlace & ~kSameOp;
  if (!block->statistics || newPlace & kSameOp)
    return;
  time += Costs::kOp;
  ++block->statistics->at(place).runs[std::min(group(), PlaceCounts::kMaxGroups - 1)];
}

} // namespace mlir::flashattn::model

#endif // FLASHATTN_RUNTIME_MODEL_BLOCK_H
