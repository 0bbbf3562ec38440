//===- Block.cpp - a thread block on the model of a GPU -------------------===//

#include "Block.h"
#include "Product.h"
#include "llvm/ADT/Twine.h"
#include "llvm/Support/FormatVariadic.h"
#include "llvm/Support/MathExtras.h"

#include <thread>

using namespace mlir::flashattn;
using namespace mlir::flashattn::model;

//===----------------------------------------------------------------------===//
// Launches and memory
//===----------------------------------------------------------------------===//

llvm::StringRef Launch::getPlace(unsigned place) const {
  llvm::StringRef rest = description;
  for (unsigned i = 0; i <= place; ++i)
    rest = rest.split('\n').second;
  return rest.split('\n').first;
}

void MemoryMap::add(void *begin, size_t bytes) {
  std::lock_guard<std::mutex> lock(mutex);
  auto at = reinterpret_cast<uintptr_t>(begin);
  std::pair<uintptr_t, uintptr_t> range(at, at + bytes);
  ranges.insert(std::lower_bound(ranges.begin(), ranges.end(), range), range);
}

void MemoryMap::remove(void *begin) {
  std::lock_guard<std::mutex> lock(mutex);
  auto at = reinterpret_cast<uintptr_t>(begin);
  llvm::erase_if(ranges, [&](auto &range) { return range.first == at; });
}

bool MemoryMap::contains(const void *begin, size_t bytes) const {
  auto at = reinterpret_cast<uintptr_t>(begin);
  if (ranges.empty())
    return true;
  auto above = std::upper_bound(ranges.begin(), ranges.end(), std::pair(at, UINTPTR_MAX));
  return above != ranges.begin() && at + bytes <= std::prev(above)->second;
}

//===----------------------------------------------------------------------===//
// Asynchronous ops
//===----------------------------------------------------------------------===//

void AsyncQueue::reset(uint64_t seed) {
  ops.clear();
  random.seed(seed * 2654435761u + 1);
  for (int i = 0; i < 3; ++i)
    random();
}

bool AsyncQueue::isFirst(size_t i) const {
  return ops[i].stream < 0 || std::none_of(ops.begin(), ops.begin() + i, [&](const AsyncOp &op) {
           return op.stream == ops[i].stream;
         });
}

void AsyncQueue::perform(size_t i) {
  std::function<void()> perform = std::move(ops[i].perform);
  ops.erase(ops.begin() + i);
  perform();
}

void AsyncQueue::add(int stream, std::function<void()> perform) {
  uint32_t choice = draw(3);
  ops.push_back({stream, choice == 1 ? AsyncOp::Last : AsyncOp::Sometime, std::move(perform)});
  if (choice == 0 && isFirst(ops.size() - 1))
    this->perform(ops.size() - 1);
}

void AsyncQueue::step() {
  constexpr uint32_t kRarely = 8;
  for (size_t i = 0; i < ops.size();)
    if (ops[i].delay == AsyncOp::Sometime && draw(kRarely) == 0 && isFirst(i))
      perform(i);
    else
      ++i;
}

bool AsyncQueue::force() {
  llvm::SmallVector<size_t> candidates;
  for (size_t i = 0; i < ops.size(); ++i)
    if (isFirst(i))
      candidates.push_back(i);
  if (candidates.empty())
    return false;
  perform(candidates[draw(candidates.size())]);
  return true;
}

//===----------------------------------------------------------------------===//
// Threads
//===----------------------------------------------------------------------===//

Block::Block() = default;
Block::~Block() = default;

static void runThread(void *argument) {
  auto *thread = static_cast<Thread *>(argument);
  const Launch &launch = *thread->block->launch;
  launch.body(launch.arguments, &thread->view);
  if (thread->storesWaited != thread->stores)
    thread->block->fail(*thread, "copy from shared memory in flight at the end: expected "
                                 "hopper.wait_stores before the thread ends but got none");
  thread->state = Thread::Done;
}

bool Block::reset(const Launch &newLaunch, int64_t newNumber) {
  launch = &newLaunch;
  number = newNumber;
  report.reset();
  auto count = static_cast<unsigned>(launch->block.x * launch->block.y * launch->block.z);
  agents = Agents(count);
  constexpr size_t kAlignment = 1024;
  memory.assign(launch->sharedBytes + kAlignment, char(0xff));
  shared = reinterpret_cast<char *>(
      llvm::alignTo(reinterpret_cast<uintptr_t>(memory.data()), kAlignment));
  shadow.reset(launch->sharedBytes, agents);
  queue.reset(launch->seed * 1000003 + number);
  statistics.reset();
  if (launch->collects)
    statistics.emplace();
  productsUntil = 0;
  barriers.clear();
  products.clear();
  products.resize(agents.groups);
  storeTimes.assign(agents.warps, 0);
  storesDone.assign(agents.warps, 0);
  warpSyncs.assign(agents.warps, WarpSync());
  atomics.clear();
  awaiting.clear();
  busyUntil = std::chrono::steady_clock::now();
  ready.assign(agents.warps, 0);
  for (GroupBarrier &group : groups)
    group = GroupBarrier();
  std::vector<std::unique_ptr<Fiber>> fibers;
  for (Thread &thread : threads)
    fibers.push_back(std::move(thread.fiber));
  threads.clear();
  threads.resize(count);
  for (unsigned i = 0; i < count; ++i) {
    Thread &thread = threads[i];
    thread.fiber = i < fibers.size() ? std::move(fibers[i]) : std::make_unique<Fiber>();
    auto spread = [](int32_t *to, int64_t linear, const Dim3 &sizes) {
      to[0] = linear % sizes.x;
      to[1] = linear / sizes.x % sizes.y;
      to[2] = linear / sizes.x / sizes.y;
    };
    spread(thread.view.thread, i, launch->block);
    spread(thread.view.block, number, launch->grid);
    const Dim3 *sizes[] = {&launch->block, &launch->grid};
    int32_t *to[] = {thread.view.blockSize, thread.view.gridSize};
    for (int j = 0; j < 2; ++j) {
      to[j][0] = sizes[j]->x;
      to[j][1] = sizes[j]->y;
      to[j][2] = sizes[j]->z;
    }
    thread.view.shared = shared;
    thread.view.sharedBytes = launch->sharedBytes;
    thread.block = this;
    thread.index = i;
    ready[thread.warp()] |= 1u << thread.lane();
    if (!thread.fiber->start(runThread, &thread))
      return false;
  }
  alive = count;
  return true;
}

void Block::runWarp(unsigned warp) {
  uint32_t lanes = ready[warp];
  ready[warp] = 0;
  while (lanes && !report) {
    unsigned lane = llvm::countr_zero(lanes);
    lanes &= lanes - 1;
    running = &threads[warp * kWarpThreads + lane];
    running->fiber->resume();
    if (running->state == Thread::Done)
      --alive;
  }
  running = nullptr;
}

void Block::await(Thread &thread, const std::atomic<int32_t> &state, int32_t value) {
  while (state.load(std::memory_order_acquire) != value) {
    awaiting.push_back({&thread, &state, value});
    block(thread, WaitKind::State, 0, value);
  }
}

void Block::wakeAwaiting() {
  llvm::erase_if(awaiting, [&](const Awaiting &a) {
    if (a.state->load(std::memory_order_acquire) != a.value)
      return false;
    wake(*a.thread);
    return true;
  });
}

/// Yields to other blocks if threads of this block wait for them alone. Returns false if none does,
/// or if there is nothing left to wait for.
bool Block::waitForOthers() {
  constexpr std::chrono::seconds kLongest(60);
  bool othersFailed = *launch->failed != std::numeric_limits<int64_t>::max();
  if (awaiting.empty() || othersFailed || std::chrono::steady_clock::now() - busyUntil > kLongest)
    return false;
  std::this_thread::yield();
  return true;
}

void Block::schedule() {
  unsigned next = 0;
  while (alive && !report) {
    queue.step();
    wakeAwaiting();
    llvm::SmallVector<unsigned, 32> candidates;
    for (unsigned warp = 0; warp < agents.warps; ++warp)
      if (ready[warp])
        candidates.push_back(warp);
    if (report)
      return;
    if (candidates.empty()) {
      if (!queue.force() && !waitForOthers())
        report = describeDeadlock();
      continue;
    }
    if (!awaiting.empty())
      busyUntil = std::chrono::steady_clock::now();
    // Mostly in turn; sometimes a warp runs ahead of the others.
    unsigned choice = next++ % candidates.size();
    if (queue.draw(4) == 0)
      choice = queue.draw(candidates.size());
    runWarp(candidates[choice]);
  }
}

std::optional<std::string> Block::run(const Launch &newLaunch, int64_t number) {
  if (!reset(newLaunch, number))
    return std::string("out of memory for the stacks of a block's threads");
  schedule();
  while (!report && queue.force())
    ;
  if (!report)
    checkEnd();
  return report;
}

void Block::block(Thread &thread, WaitKind kind, uint32_t object, uint32_t value) {
  thread.state = Thread::Blocked;
  thread.waits = kind;
  thread.object = object;
  thread.value = value;
  if (statistics && kind != WaitKind::Warp)
    ++statistics->at(thread.place).waits;
  thread.fiber->suspend();
}

/// The first thread of a warpgroup represents its role.
void Thread::waitUntil(int64_t other) {
  if (!block->statistics || other <= time)
    return;
  bool isFirstBlock = !view.block[0] && !view.block[1] && !view.block[2];
  if (isFirstBlock && index % kGroupThreads == 0) {
    block->statistics->addSpan({group(), place, /*waits=*/false, busySince, time});
    block->statistics->addSpan({group(), place, /*waits=*/true, time, other});
    busySince = other;
  }
  time = other;
}

void Block::wake(Thread &thread) {
  if (thread.state != Thread::Blocked)
    return;
  thread.state = Thread::Ready;
  thread.waits = WaitKind::None;
  ready[thread.warp()] |= 1u << thread.lane();
}

unsigned Block::countLanes(unsigned warp) const {
  return std::min(kWarpThreads, agents.threads - warp * kWarpThreads);
}

bool Block::join(Thread &thread, WarpSync &sync, void *arguments, unsigned lanes) {
  if (!sync.arrived) {
    sync.place = thread.place;
    sync.lanes = lanes;
  } else if (sync.place != thread.place) {
    fail(thread,
         "expected all threads of a warp at the same op but got others at " + getPlace(sync.place));
  } else if (sync.lanes != lanes) {
    fail(thread,
         llvm::formatv("expected {0} threads at the op, as in the rest of the warp, but got {1}",
                       sync.lanes, lanes));
  }
  sync.arrived |= 1u << thread.lane();
  sync.arguments[thread.lane()] = arguments;
  if (unsigned(llvm::popcount(sync.arrived)) == lanes)
    return true;
  block(thread, WaitKind::Warp, thread.warp(), sync.place);
  return false;
}

void Block::release(Thread &thread, WarpSync &sync) {
  sync.arrived = 0;
  unsigned first = thread.warp() * kWarpThreads;
  for (unsigned lane = 0; lane < sync.lanes; ++lane)
    if (lane != thread.lane())
      wake(threads[first + lane]);
}

//===----------------------------------------------------------------------===//
// Memory
//===----------------------------------------------------------------------===//

Viewer Block::view(const Thread &thread) const {
  return {thread.index,  thread.now,   thread.place, /*isAsync=*/false,
          &thread.known, thread.index, UINT32_MAX,   thread.shuffledAt};
}

Viewer Block::viewAsync(const Thread &thread, unsigned agent, uint32_t time,
                        const Knowledge &known) const {
  return {agent, time, thread.place, /*isAsync=*/true, &known, thread.index, thread.fencedAt};
}

uint32_t Block::getShared(Thread &thread, const void *address, int64_t bytes, int64_t alignment) {
  int64_t offset = static_cast<const char *>(address) - shared;
  if (offset < 0 || offset + bytes > launch->sharedBytes)
    fail(thread, llvm::formatv("access out of bounds: expected bytes within the block's {0} of "
                               "shared memory but got {1} at offset {2}",
                               launch->sharedBytes, bytes, offset));
  if (offset % alignment != 0)
    fail(thread, llvm::formatv("misaligned access: expected an offset in shared memory that is a "
                               "multiple of {0} bytes but got {1}",
                               alignment, offset));
  return offset;
}

void Block::checkGlobal(Thread &thread, const void *address, int64_t bytes, int64_t alignment,
                        const char *what) {
  if (!launch->memory->contains(address, bytes))
    fail(thread, llvm::formatv("access out of bounds: expected {0} of {1} bytes in one of the "
                               "device's buffers but got address {2}",
                               what, bytes, address));
  if (reinterpret_cast<uintptr_t>(address) % alignment != 0)
    fail(thread, llvm::formatv("misaligned access: expected {0} of {1} bytes at an address that is "
                               "a multiple of {2} but got {3}",
                               what, bytes, alignment, address));
}

void Block::access(Thread &thread, uint32_t offset, uint32_t bytes, bool writes, bool silent) {
  Viewer viewer = view(thread);
  std::optional<Conflict> found =
      writes ? shadow.write(offset, bytes, viewer, silent) : shadow.read(offset, bytes, viewer);
  if (found)
    fail(thread, describe(*found, writes));
}

void Block::accessAtomic(Thread &thread, uint32_t offset, uint32_t bytes) {
  Knowledge &last = atomics[offset];
  acquire(thread, last);
  access(thread, offset, bytes, /*writes=*/false);
  access(thread, offset, bytes, /*writes=*/true);
  release(thread, last);
}

void Block::release(Thread &thread, Knowledge &to) {
  to.join(thread.known);
  to.seen.set(thread.index, thread.now, agents.count());
  to.fenced.set(thread.index, thread.fencedAt, agents.count());
  to.passed.set(thread.index, thread.now, agents.count());
  ++thread.now;
}
