//===- Copies.cpp - accesses and asynchronous copies of the model ---------===//

#include "Block.h"
#include "Functions.h"
#include "TensorMap.h"
#include "llvm/ADT/Twine.h"
#include "llvm/Support/FormatVariadic.h"

#include <atomic>
#include <chrono>
#include <cstring>
#include <thread>

using namespace mlir::flashattn;
using namespace mlir::flashattn::model;

//===----------------------------------------------------------------------===//
// Tensor maps
//===----------------------------------------------------------------------===//

void TensorMap::set(const TensorMapShape &shape) {
  base = static_cast<char *>(shape.base);
  rank = shape.sizes.size();
  for (int i = 0; i < rank; ++i) {
    sizes[i] = shape.sizes[i];
    strides[i] = shape.strides[i];
  }
  boxRows = shape.boxRows;
  outerRows = shape.outerRows;
  boxColumns = shape.boxColumns;
  rowDim = shape.rowDim;
  outerDim = shape.outerDim;
  elementBytes = getElementBytes(shape.element);
}

char *TensorMap::getRow(const int64_t *coordinates, int64_t row, int64_t column, int64_t &columns,
                        int64_t &before) const {
  // Dimensions of a box are in memory order, as in a memref: the inner one runs faster.
  bool rowsInside = outerRows == 1 || rowDim > outerDim;
  int64_t inner = rowsInside ? row % boxRows : row / outerRows;
  int64_t outer = rowsInside ? row / boxRows : row % outerRows;
  int64_t offset = 0;
  for (int i = 0; i + 1 < rank; ++i) {
    // Coordinates have 32 bits.
    int64_t at = int32_t(coordinates[i]);
    if (i == rowDim)
      at += inner;
    if (i == outerDim && outerRows != 1)
      at += outer;
    if (at < 0 || at >= sizes[i])
      return nullptr;
    offset += at * strides[i];
  }
  int64_t first = int32_t(coordinates[rank - 1]) + column;
  before = std::clamp<int64_t>(-first, 0, boxColumns);
  columns = std::clamp<int64_t>(sizes[rank - 1] - first, 0, boxColumns) - before;
  if (columns <= 0)
    return nullptr;
  return base + (offset + first + before) * elementBytes;
}

/// Returns where the copy unit stores the 16 bytes whose unswizzled address is `address`, in rows
/// of `rowBytes`.
static uint32_t swizzleRow(uint32_t address, int64_t rowBytes) {
  uint32_t mask = rowBytes / 16 - 1;
  return address ^ ((address >> 7 & mask) << 4);
}

//===----------------------------------------------------------------------===//
// Accesses of copies
//===----------------------------------------------------------------------===//

namespace {

/// The state of the issuing thread that a copy needs; the thread itself continues.
struct Copy {
  Copy(Thread &thread, unsigned agent, uint32_t time)
      : thread(&thread), known(thread.known), begun(thread.time),
        viewer(thread.block->viewAsync(thread, agent, time, thread.known)) {}

  bool touch(uint32_t offset, uint32_t bytes, bool writes) {
    Block &block = *thread->block;
    viewer.known = &known;
    std::optional<Conflict> found = writes ? block.shadow.write(offset, bytes, viewer)
                                           : block.shadow.read(offset, bytes, viewer);
    if (found)
      fail(block.describe(*found, writes));
    return !found;
  }
  void fail(const llvm::Twine &what) {
    Block &block = *thread->block;
    block.failAsync(what + " by " + block.describe(viewer.agent, viewer.place) + " of " +
                    block.describe(*thread));
  }

  Thread *thread;
  Knowledge known;
  int64_t begun; ///< in cycles of the cost table
  Viewer viewer;
};

//===----------------------------------------------------------------------===//
// Accesses of threads
//===----------------------------------------------------------------------===//

void access(Thread *thread, int32_t place, void *address, int64_t bytes, int64_t alignment,
            int32_t flags) {
  thread->enter(place);
  Block &block = *thread->block;
  if (!(flags & kShared))
    return block.checkGlobal(*thread, address, bytes, alignment,
                             flags & kWrites ? "a store" : "a load");
  uint32_t offset = block.getShared(*thread, address, bytes, alignment);
  if (flags & kAtomic)
    block.accessAtomic(*thread, offset, bytes);
  else
    block.access(*thread, offset, bytes, flags & kWrites);
  block.countAccess(*thread, offset, bytes);
}

//===----------------------------------------------------------------------===//
// Copies to shared memory
//===----------------------------------------------------------------------===//

Barrier &getVisible(Thread &thread, void *address) {
  Barrier &barrier = thread.block->getBarrier(thread, address);
  if (!barrier.isVisible)
    thread.block->fail(thread, "expected a hopper.fence_barrier_init before copies complete on "
                               "barrier " +
                                   llvm::Twine(barrier.number));
  return barrier;
}

void finishLoad(Block &block, Barrier &barrier, const Copy &copy, int64_t bytes) {
  barrier.gathering.seen.set(copy.viewer.agent, copy.viewer.time, block.agents.count());
  barrier.bytes -= bytes;
  if (block.statistics)
    block.statistics->addBytes(barrier.number, bytes);
  barrier.gatheringTime = std::max(barrier.gatheringTime, copy.begun + Costs::kCopyLatency +
                                                              bytes / Costs::kCopyBytesPerCycle);
  block.complete(barrier);
}

/// Loads one panel of a tile, whose first byte is at `offset`.
void loadPanel(Block &block, Copy &copy, const TensorMap &map, const int64_t *coordinates,
               int64_t column, uint32_t offset) {
  int64_t rowBytes = map.getRowBytes();
  if (!copy.touch(offset, map.getRows() * rowBytes, /*writes=*/true))
    return;
  llvm::SmallVector<char, 128> line(rowBytes);
  for (int64_t row = 0; row < map.getRows(); ++row) {
    int64_t columns = 0, before = 0;
    std::fill(line.begin(), line.end(), 0);
    if (char *from = map.getRow(coordinates, row, column, columns, before)) {
      if (!block.launch->memory->contains(from, columns * map.elementBytes))
        return copy.fail(llvm::formatv("access out of bounds: expected rows in one of the device's "
                                       "buffers but got address {0} read",
                                       static_cast<void *>(from)));
      std::memcpy(line.data() + before * map.elementBytes, from, columns * map.elementBytes);
    }
    for (int64_t chunk = 0; chunk < rowBytes; chunk += 16)
      std::memcpy(block.shared + swizzleRow(offset + row * rowBytes + chunk, rowBytes),
                  line.data() + chunk, 16);
  }
}

constexpr int64_t kTileAlignment = 128, kBulkAlignment = 16;

void tmaLoad(Thread *thread, int32_t place, const TensorMap *map, const int64_t *coordinates,
             void *tile, int64_t panels, int64_t panelStride, void *barrierAddress) {
  thread->enter(place);
  Block &block = *thread->block;
  Barrier &barrier = getVisible(*thread, barrierAddress);
  llvm::SmallVector<int64_t, 5> at(coordinates, coordinates + map->rank);
  int64_t bytes = map->getRows() * map->getRowBytes();
  for (int64_t panel = 0; panel < panels; ++panel) {
    uint32_t offset = block.getShared(*thread, static_cast<char *>(tile) + panel * panelStride,
                                      bytes, kTileAlignment);
    Copy copy(*thread, block.agents.loads(barrier.number), ++barrier.loads);
    block.queue.add(-1, [=, &block, &barrier]() mutable {
      loadPanel(block, copy, *map, at.data(), panel * map->boxColumns, offset);
      if (!block.hasFailed())
        finishLoad(block, barrier, copy, bytes);
    });
  }
}

void bulkLoad(Thread *thread, int32_t place, void *source, void *to, int64_t bytes,
              void *barrierAddress) {
  thread->enter(place);
  Block &block = *thread->block;
  Barrier &barrier = getVisible(*thread, barrierAddress);
  block.checkGlobal(*thread, source, bytes, kBulkAlignment, "a copy");
  uint32_t offset = block.getShared(*thread, to, bytes, kBulkAlignment);
  Copy copy(*thread, block.agents.loads(barrier.number), ++barrier.loads);
  block.queue.add(-1, [=, &block, &barrier]() mutable {
    if (!copy.touch(offset, bytes, /*writes=*/true))
      return;
    std::memcpy(block.shared + offset, source, bytes);
    finishLoad(block, barrier, copy, bytes);
  });
}

//===----------------------------------------------------------------------===//
// Copies from shared memory
//===----------------------------------------------------------------------===//

/// Issues a copy that reads shared memory; `perform` performs it.
void beginStore(Thread &thread, std::function<void(Copy &)> perform) {
  Block &block = *thread.block;
  unsigned warp = thread.warp();
  Copy copy(thread, block.agents.stores(warp), ++block.storeTimes[warp]);
  thread.stores = block.storeTimes[warp];
  block.queue.add(block.agents.stores(warp), [=, &block]() mutable {
    perform(copy);
    block.storesDone[warp] = copy.viewer.time;
    unsigned first = warp * kWarpThreads;
    for (unsigned lane = 0; lane < block.countLanes(warp); ++lane)
      if (Thread &waiting = block.threads[first + lane]; waiting.waits == WaitKind::Stores)
        block.wake(waiting);
  });
}

/// Stores one panel of a tile. Elements outside of the tensor are neither written nor read.
void storePanel(Block &block, Copy &copy, const TensorMap &map, const int64_t *coordinates,
                int64_t column, uint32_t offset) {
  constexpr int64_t kChunk = 16;
  int64_t rowBytes = map.getRowBytes();
  llvm::SmallVector<char, 128> line(rowBytes);
  for (int64_t row = 0; row < map.getRows(); ++row) {
    int64_t columns = 0, before = 0;
    char *to = map.getRow(coordinates, row, column, columns, before);
    if (!to)
      continue;
    int64_t begin = before * map.elementBytes, end = begin + columns * map.elementBytes;
    if (!block.launch->memory->contains(to, end - begin))
      return copy.fail(llvm::formatv("access out of bounds: expected rows in one of the device's "
                                     "buffers but got address {0} written",
                                     static_cast<void *>(to)));
    for (int64_t chunk = begin / kChunk * kChunk; chunk < end; chunk += kChunk) {
      uint32_t from = swizzleRow(offset + row * rowBytes + chunk, rowBytes);
      if (!copy.touch(from, kChunk, /*writes=*/false))
        return;
      std::memcpy(line.data() + chunk, block.shared + from, kChunk);
    }
    std::memcpy(to, line.data() + begin, end - begin);
  }
}

void tmaStore(Thread *thread, int32_t place, const TensorMap *map, const int64_t *coordinates,
              void *tile, int64_t panels, int64_t panelStride) {
  thread->enter(place);
  Block &block = *thread->block;
  llvm::SmallVector<int64_t, 5> at(coordinates, coordinates + map->rank);
  for (int64_t panel = 0; panel < panels; ++panel) {
    uint32_t offset = block.getShared(*thread, static_cast<char *>(tile) + panel * panelStride,
                                      map->getRows() * map->getRowBytes(), kTileAlignment);
    beginStore(*thread, [=, &block](Copy &copy) {
      storePanel(block, copy, *map, at.data(), panel * map->boxColumns, offset);
    });
  }
}

/// Waits for the thread's copies from shared memory, except for the last `pending`.
void waitStores(Thread *thread, int32_t place, int64_t pending) {
  thread->enter(place);
  Block &block = *thread->block;
  uint32_t until = thread->stores - std::min<uint32_t>(thread->stores, pending);
  while (block.storesDone[thread->warp()] < until)
    block.block(*thread, WaitKind::Stores, thread->warp(), 0);
  block.joins.set(thread->known.seen, block.agents.stores(thread->warp()), until,
                  block.agents.count());
  thread->storesWaited = std::max(thread->storesWaited, until);
}

/// Issues the copy that adds `bytes` of f32 for one thread.
void addFromShared(Thread &thread, void *target, void *staging, int64_t bytes) {
  Block &block = *thread.block;
  block.checkGlobal(thread, target, bytes, kBulkAlignment, "a copy that adds");
  uint32_t offset = block.getShared(thread, staging, bytes, kBulkAlignment);
  beginStore(thread, [=, &block](Copy &copy) {
    if (!copy.touch(offset, bytes, /*writes=*/false))
      return;
    auto *to = static_cast<float *>(target);
    std::lock_guard<std::mutex> lock(*block.launch->globalAdds);
    for (size_t i = 0; i < bytes / sizeof(float); ++i) {
      float value;
      std::memcpy(&value, block.shared + offset + i * sizeof(float), sizeof(float));
      to[i] += value;
    }
  });
}

//===----------------------------------------------------------------------===//
// Turns
//===----------------------------------------------------------------------===//

/// Returns an element of an order, which other blocks write too.
std::atomic<int32_t> &getTurn(Thread &thread, void *order) {
  thread.block->checkGlobal(thread, order, sizeof(int32_t), sizeof(int32_t), "an access");
  static_assert(sizeof(std::atomic<int32_t>) == sizeof(int32_t));
  return *static_cast<std::atomic<int32_t> *>(order);
}

int32_t readTurn(Thread *thread, int32_t place, void *order) {
  thread->enter(place);
  return getTurn(*thread, order).load(std::memory_order_relaxed);
}

int32_t claim(Thread *thread, int32_t place, void *counter) {
  thread->enter(place);
  return getTurn(*thread, counter).fetch_add(1, std::memory_order_relaxed);
}

/// Blocks run in the order of their numbers, on several workers, so the block that has the turn is
/// running.
void awaitTurn(Thread *thread, int32_t place, void *order, int32_t turn) {
  thread->enter(place);
  Block &block = *thread->block;
  std::atomic<int32_t> &now = getTurn(*thread, order);
  constexpr std::chrono::seconds kLongest(60);
  auto begin = std::chrono::steady_clock::now();
  int32_t seen;
  while ((seen = now.load(std::memory_order_acquire)) != turn) {
    bool isOver = std::chrono::steady_clock::now() - begin > kLongest;
    // Failed blocks do not pass their turn on.
    if (isOver || *block.launch->failed < block.number)
      block.fail(*thread,
                 llvm::formatv("expected turn {0} but got turn {1}, which no block passes on,",
                               turn, seen));
    std::this_thread::yield();
  }
}

/// Returns whether this warp is first. If not, it waits for the first one, which may be a warp of
/// this block.
int32_t takeFirst(Thread *thread, int32_t place, void *order) {
  thread->enter(place);
  std::atomic<int32_t> &state = getTurn(*thread, order);
  int32_t seen = 0;
  if (state.compare_exchange_strong(seen, 1, std::memory_order_acquire))
    return 1;
  thread->block->await(*thread, state, /*value=*/2);
  return 0;
}

/// Clears `elements` of f32; each thread of a warp clears a range.
void clear(Thread *thread, int32_t place, float *target, int64_t elements) {
  thread->enter(place);
  constexpr int64_t kLanes = 32;
  int64_t each = elements / kLanes;
  target += thread->lane() * each;
  thread->block->checkGlobal(*thread, target, each * sizeof(float), sizeof(float), "zeros");
  std::fill_n(target, each, 0.0F);
}

void passTurn(Thread *thread, int32_t place, void *order, int32_t turn) {
  waitStores(thread, place, /*pending=*/0);
  if (thread->lane() == 0)
    getTurn(*thread, order).store(turn + 1, std::memory_order_release);
}

void signalAdded(Thread *thread, int32_t place, void *counter) {
  waitStores(thread, place, /*pending=*/0);
  if (thread->lane() == 0)
    getTurn(*thread, counter).fetch_add(1, std::memory_order_release);
}

/// Grids run one after the other, so all warps that count have done so.
void awaitAdded(Thread *thread, int32_t place, void *counter, int32_t count) {
  thread->enter(place);
  if (int32_t seen = getTurn(*thread, counter).load(std::memory_order_acquire); seen != count)
    thread->block->fail(
        *thread,
        llvm::formatv("expected {0} warps of the primary grid to have signalled but got {1}", count,
                      seen));
}

void put(Thread &thread, void *to, const void *from, int64_t bytes, int64_t alignment) {
  Block &block = *thread.block;
  uint32_t offset = block.getShared(thread, to, bytes, alignment);
  bool silent = std::memcmp(block.shared + offset, from, bytes) == 0;
  block.access(thread, offset, bytes, /*writes=*/true, silent);
  block.countAccess(thread, offset, bytes);
  std::memcpy(block.shared + offset, from, bytes);
}

void storeShared(Thread *thread, int32_t place, void *to, const void *from, int64_t bytes,
                 int64_t alignment) {
  thread->enter(place);
  put(*thread, to, from, bytes, alignment);
}

constexpr int64_t kPairBytes = 4;

/// Rows of a warpgroup's tile that belong to one of its warps.
constexpr int64_t kWarpRows = 16;

/// Returns the offset of elements `i` and `i` + 1 of a thread in `tile` in shared memory. The rows
/// of a warp begin `warpRows` after those of the previous warp.
uint32_t findPair(Thread &thread, int64_t i, char *tile, int64_t rowBytes, int64_t panelStride,
                  int64_t warpRows = kWarpRows) {
  unsigned inGroup = thread.index % kGroupThreads, lane = thread.lane();
  int64_t row = inGroup / kWarpThreads * warpRows + lane / 4 + (i / 2 % 2) * 8;
  int64_t column = (i / 4 * 8 + lane % 4 * 2) * int64_t(sizeof(uint16_t));
  char *at = tile + column / rowBytes * panelStride + row * rowBytes + column % rowBytes;
  return swizzleRow(thread.block->getShared(thread, at, kPairBytes, kPairBytes), rowBytes);
}

void storeTile(Thread *thread, int32_t place, const uint16_t *values, int64_t elements, char *tile,
               int64_t rowBytes, int64_t panelStride) {
  thread->enter(place);
  for (int64_t i = 0; i < elements; i += 2)
    put(*thread, thread->block->shared + findPair(*thread, i, tile, rowBytes, panelStride),
        values + i, kPairBytes, kPairBytes);
}

void readTile(Thread *thread, int32_t place, uint16_t *values, int64_t first, int64_t elements,
              char *tile, int64_t rowBytes, int64_t panelStride, int64_t rows) {
  thread->enter(place);
  Block &block = *thread->block;
  for (int64_t i = 0; i < elements; i += 2) {
    // A tile with the rows of one warp is read by every warp.
    uint32_t offset =
        findPair(*thread, first + i, tile, rowBytes, panelStride, rows > kWarpRows ? kWarpRows : 0);
    block.access(*thread, offset, kPairBytes, /*writes=*/false);
    block.countAccess(*thread, offset, kPairBytes);
    std::memcpy(values + i, block.shared + offset, kPairBytes);
  }
}

//===----------------------------------------------------------------------===//
// cp.async
//===----------------------------------------------------------------------===//

void performCopy(Block &block, PendingCopy &copy) {
  if (copy.isDone)
    return;
  copy.isDone = true;
  std::memset(block.shared + copy.offset, 0, copy.bytes);
  std::memcpy(block.shared + copy.offset, copy.source, copy.sourceBytes);
}

void copyAsync(Thread *thread, int32_t place, void *to, const void *from, int64_t bytes,
               int64_t fromBytes) {
  thread->enter(place);
  Block &block = *thread->block;
  uint32_t offset = block.getShared(*thread, to, bytes, bytes);
  if (fromBytes < 0 || fromBytes > bytes)
    block.fail(*thread,
               llvm::formatv("expected a copy from 0 to {0} bytes but got {1}", bytes, fromBytes));
  if (fromBytes)
    block.checkGlobal(*thread, from, fromBytes, bytes, "a copy");
  Viewer viewer = block.view(*thread);
  viewer.time = Shadow::kPending;
  if (std::optional<Conflict> found = block.shadow.write(offset, bytes, viewer))
    block.fail(*thread, block.describe(*found, /*writes=*/true));
  PendingCopy copy{offset, uint32_t(bytes), uint32_t(fromBytes), thread->copyGroup, from};
  // Performed at once, when its group is committed, or when it is waited for.
  copy.delay = block.queue.draw(3);
  if (copy.delay == 0)
    performCopy(block, copy);
  thread->copies.push_back(copy);
}

void commitCopies(Thread *thread, int32_t place) {
  thread->enter(place);
  for (PendingCopy &copy : thread->copies)
    if (copy.delay == 1)
      performCopy(*thread->block, copy);
  ++thread->copyGroup;
}

void waitCopies(Thread *thread, int32_t place, int32_t pending) {
  thread->enter(place);
  Block &block = *thread->block;
  for (PendingCopy &copy : thread->copies)
    if (copy.group + pending < thread->copyGroup) {
      performCopy(block, copy);
      block.shadow.settle(copy.offset, copy.bytes, thread->index, thread->now);
    }
  llvm::erase_if(thread->copies,
                 [&](const PendingCopy &copy) { return copy.group + pending < thread->copyGroup; });
}

//===----------------------------------------------------------------------===//
// Grids
//===----------------------------------------------------------------------===//

/// Grids run one after the other: those to wait for have ended.
void gridOp(Thread *thread, int32_t place) { thread->enter(place); }

} // namespace

llvm::ArrayRef<Function> mlir::flashattn::model::getCopyFunctions() {
  static const Function functions[] = {
      makeFunction("Access", access),
      makeFunction("TmaLoad", tmaLoad),
      makeFunction("BulkLoad", bulkLoad),
      makeFunction("TmaStore", tmaStore),
      makeFunction("WaitStores", waitStores),
      makeFunction(
          "AddFromShared",
          +[](Thread *thread, int32_t place, void *target, void *staging, int64_t bytes) {
            thread->enter(place);
            if (thread->lane() == 0)
              addFromShared(*thread, target, staging, bytes);
          }),
      makeFunction("ReadTurn", readTurn),
      makeFunction("Claim", claim),
      makeFunction("AwaitTurn", awaitTurn),
      makeFunction("TakeFirst", takeFirst),
      makeFunction("Clear", clear),
      makeFunction("PassTurn", passTurn),
      makeFunction("SignalAdded", signalAdded),
      makeFunction("AwaitAdded", awaitAdded),
      makeFunction("StoreShared", storeShared),
      makeFunction("StoreTile", storeTile),
      makeFunction("ReadTile", readTile),
      makeFunction("CopyAsync", copyAsync),
      makeFunction("CommitCopies", commitCopies),
      makeFunction("WaitCopies", waitCopies),
      makeFunction("LaunchDependents", gridOp),
      makeFunction("WaitPrerequisiteGrids", gridOp),
  };
  return functions;
}
