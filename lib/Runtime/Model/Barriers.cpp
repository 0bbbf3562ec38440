//===- Barriers.cpp - barriers and fences of the model --------------------===//

#include "Block.h"
#include "Functions.h"
#include "llvm/Support/FormatVariadic.h"

using namespace mlir::flashattn;
using namespace mlir::flashattn::model;

//===----------------------------------------------------------------------===//
// Barriers in shared memory
//===----------------------------------------------------------------------===//

constexpr int64_t kBarrierBytes = 8;

Barrier &Block::getBarrier(Thread &thread, const void *address) {
  uint32_t offset = getShared(thread, address, kBarrierBytes, kBarrierBytes);
  for (std::unique_ptr<Barrier> &barrier : barriers)
    if (barrier->offset == offset) {
      // A thread that uses a barrier reads its words.
      access(thread, offset, kBarrierBytes, /*writes=*/false);
      return *barrier;
    }
  fail(thread, llvm::formatv("expected a barrier that hopper.barrier_init has made but got none at "
                             "offset {0} of shared memory",
                             offset));
  llvm_unreachable("the thread has ended");
}

void Block::complete(Barrier &barrier) {
  if (barrier.missing != 0)
    return;
  if (barrier.bytes < 0) {
    failAsync(llvm::formatv("byte count mismatch: expected no more bytes than barrier {0} expects "
                            "but got {1} more in phase {2}",
                            barrier.number, -barrier.bytes, barrier.phase));
    return;
  }
  if (barrier.bytes != 0)
    return;
  barrier.completed = barrier.gathering;
  barrier.completedTime = barrier.gatheringTime;
  ++barrier.phase;
  barrier.missing = barrier.count;
  for (Thread *thread : barrier.waiting)
    wake(*thread);
  barrier.waiting.clear();
}

void Block::arrive(Thread &thread, Barrier &barrier) {
  release(thread, barrier.gathering);
  barrier.gatheringTime = std::max(barrier.gatheringTime, thread.time);
  if (barrier.missing == 0)
    fail(thread,
         llvm::formatv("expected at most {0} arrivals in a phase of barrier {1} but got one "
                       "more in phase {2}",
                       barrier.count, barrier.number, barrier.phase));
  --barrier.missing;
  complete(barrier);
}

namespace {

void barrierInit(Thread *thread, int32_t place, void *address, int32_t count) {
  thread->enter(place);
  Block &block = *thread->block;
  uint32_t offset = block.getShared(*thread, address, kBarrierBytes, kBarrierBytes);
  block.access(*thread, offset, kBarrierBytes, /*writes=*/true);
  for (auto &barrier : block.barriers)
    if (barrier->offset == offset)
      block.fail(*thread,
                 "expected a barrier to be initialized once but got another hopper.barrier_init of "
                 "barrier " +
                     llvm::Twine(barrier->number));
  if (block.barriers.size() == Agents::kMaxBarriers)
    block.fail(*thread,
               llvm::formatv("expected at most {0} barriers in a block of the model but got "
                             "one more",
                             Agents::kMaxBarriers));
  auto barrier = std::make_unique<Barrier>();
  barrier->offset = offset;
  barrier->count = barrier->missing = count;
  barrier->number = block.barriers.size();
  block.barriers.push_back(std::move(barrier));
}

void fenceBarrierInit(Thread *thread, int32_t place) {
  thread->enter(place);
  for (auto &barrier : thread->block->barriers)
    barrier->isVisible = true;
}

void barrierExpect(Thread *thread, int32_t place, void *address, int64_t bytes) {
  thread->enter(place);
  Barrier &barrier = thread->block->getBarrier(*thread, address);
  barrier.bytes += bytes;
  thread->block->arrive(*thread, barrier);
}

void barrierArrive(Thread *thread, int32_t place, void *address, int32_t predicate) {
  thread->enter(place);
  if (predicate)
    thread->block->arrive(*thread, thread->block->getBarrier(*thread, address));
}

void barrierWait(Thread *thread, int32_t place, void *address, int32_t parity) {
  thread->enter(place);
  Block &block = *thread->block;
  Barrier &barrier = block.getBarrier(*thread, address);
  if (parity != 0 && parity != 1)
    block.fail(*thread, llvm::formatv("expected parity 0 or 1 but got {0}", parity));
  while ((barrier.phase & 1) == unsigned(parity)) {
    barrier.waiting.push_back(thread);
    block.block(*thread, WaitKind::Barrier, barrier.number, parity);
  }
  block.acquire(*thread, barrier.completed);
  thread->waitUntil(barrier.completedTime);
}

//===----------------------------------------------------------------------===//
// Fences
//===----------------------------------------------------------------------===//

void fence(Thread &thread) {
  thread.known.fenced = thread.known.seen;
  thread.fencedAt = thread.now;
  // Later writes are not fenced.
  ++thread.now;
}

void fenceAsyncShared(Thread *thread, int32_t place) {
  thread->enter(place);
  fence(*thread);
}

/// Every thread of a warp then knows the accesses of all its threads.
void syncWarp(Thread &thread, Block &block) {
  Knowledge all;
  unsigned first = thread.warp() * kWarpThreads, lanes = block.countLanes(thread.warp());
  for (unsigned lane = 0; lane < lanes; ++lane)
    block.release(block.threads[first + lane], all);
  for (unsigned lane = 0; lane < lanes; ++lane)
    block.acquire(block.threads[first + lane], all);
}

void publish(Thread *thread, int32_t place, void *address) {
  thread->enter(place);
  fence(*thread);
  Block &block = *thread->block;
  WarpSync &sync = block.getWarpSync(*thread);
  if (block.join(*thread, sync, nullptr)) {
    syncWarp(*thread, block);
    block.release(*thread, sync);
  }
  if (thread->lane() == 0)
    block.arrive(*thread, block.getBarrier(*thread, address));
}

void warpSync(Thread *thread, int32_t place) {
  thread->enter(place);
  Block &block = *thread->block;
  WarpSync &sync = block.getWarpSync(*thread);
  if (block.join(*thread, sync, nullptr)) {
    syncWarp(*thread, block);
    block.release(*thread, sync);
  }
}

void warpArrive(Thread *thread, int32_t place, void *address) {
  warpSync(thread, place);
  Block &block = *thread->block;
  if (thread->lane() == 0)
    block.arrive(*thread, block.getBarrier(*thread, address));
}

//===----------------------------------------------------------------------===//
// Named barriers
//===----------------------------------------------------------------------===//

void checkWarps(Thread &thread, int64_t threads) {
  if (threads <= 0 || threads % kWarpThreads != 0)
    thread.block->fail(thread, llvm::formatv("expected threads in whole warps at a barrier of the "
                                             "block but got {0}",
                                             threads));
}

void groupBarrier(Thread *thread, int32_t place, int32_t id, int64_t threads) {
  thread->enter(place);
  checkWarps(*thread, threads);
  thread->block->joinGroup(*thread, id, threads, /*waits=*/true);
}

void groupArrive(Thread *thread, int32_t place, int32_t id, int64_t threads) {
  thread->enter(place);
  checkWarps(*thread, threads);
  thread->block->joinGroup(*thread, id, threads, /*waits=*/false);
}

void blockBarrier(Thread *thread, int32_t place) {
  thread->enter(place);
  thread->block->joinGroup(*thread, 0, thread->block->agents.threads, /*waits=*/true);
}

} // namespace

void Block::joinGroup(Thread &thread, uint32_t id, uint32_t count, bool waits) {
  if (id >= kGroupBarriers)
    fail(thread, llvm::formatv("expected a barrier of the block below {0} but got {1}",
                               kGroupBarriers, id));
  GroupBarrier &group = groups[id];
  if (group.arrived == 0) {
    group.expected = count;
    group.place = thread.place;
  } else if (group.expected != count) {
    fail(thread,
         llvm::formatv("expected {0} threads at barrier {1} of the block, as at {2}, but got "
                       "{3}",
                       group.expected, id, getPlace(group.place), count));
  }
  release(thread, group.gathering);
  group.time = std::max(group.time, thread.time);
  ++group.arrived;
  if (group.arrived < group.expected) {
    if (!waits)
      return;
    group.waiting.push_back(&thread);
    block(thread, WaitKind::Group, id, count);
    return;
  }
  // The last thread releases all of them.
  Knowledge all = std::exchange(group.gathering, {});
  for (Thread *waiting : group.waiting) {
    acquire(*waiting, all);
    waiting->waitUntil(group.time);
    wake(*waiting);
  }
  group.waiting.clear();
  group.arrived = 0;
  if (!waits)
    return;
  acquire(thread, all);
  thread.waitUntil(group.time);
}

llvm::ArrayRef<Function> mlir::flashattn::model::getBarrierFunctions() {
  static const Function functions[] = {
      makeFunction("BarrierInit", barrierInit),
      makeFunction("FenceBarrierInit", fenceBarrierInit),
      makeFunction("BarrierExpect", barrierExpect),
      makeFunction("BarrierArrive", barrierArrive),
      makeFunction("BarrierWait", barrierWait),
      makeFunction("FenceAsyncShared", fenceAsyncShared),
      makeFunction("Publish", publish),
      makeFunction("WarpArrive", warpArrive),
      makeFunction("WarpSync", warpSync),
      makeFunction("GroupBarrier", groupBarrier),
      makeFunction("GroupArrive", groupArrive),
      makeFunction("BlockBarrier", blockBarrier),
  };
  return functions;
}
