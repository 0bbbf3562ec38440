//===- Shadow.h - accesses to each byte of shared memory --------*- C++ -*-===//

#ifndef FLASHATTN_RUNTIME_MODEL_SHADOW_H
#define FLASHATTN_RUNTIME_MODEL_SHADOW_H

#include "Clock.h"
#include "llvm/ADT/DenseMap.h"
#include "llvm/ADT/SmallVector.h"

#include <optional>

namespace mlir::flashattn::model {

constexpr unsigned kWarpThreads = 32, kGroupThreads = 128;

/// The agents of a block, by number: its threads; the asynchronous products of each warpgroup; the
/// copies from shared memory of each warp; the copies to shared memory that complete on each
/// barrier.
struct Agents {
  explicit Agents(unsigned threads = 0)
      : threads(threads), warps((threads + kWarpThreads - 1) / kWarpThreads),
        groups((threads + kGroupThreads - 1) / kGroupThreads) {}

  static constexpr unsigned kMaxBarriers = 64;
  unsigned threads, warps, groups;

  unsigned products(unsigned group) const { return threads + group; }
  unsigned stores(unsigned warp) const { return threads + groups + warp; }
  unsigned loads(unsigned barrier) const { return threads + groups + warps + barrier; }
  unsigned count() const { return loads(kMaxBarriers); }
  bool isThread(unsigned agent) const { return agent < threads; }
  bool isProducts(unsigned agent) const { return agent >= threads && agent < stores(0); }
  bool isStores(unsigned agent) const { return agent >= stores(0) && agent < loads(0); }

  /// Lanes distinguish the readers of one slot.
  unsigned slots() const { return warps + groups + warps; }
  unsigned slotOf(unsigned agent) const {
    return isThread(agent) ? agent / kWarpThreads : warps + agent - threads;
  }
  unsigned agentOf(unsigned slot, unsigned lane) const {
    return slot < warps ? slot * kWarpThreads + lane : threads + slot - warps;
  }
};

/// An agent that accesses shared memory, and its knowledge of earlier accesses.
struct Viewer {
  unsigned agent;
  uint32_t time;
  uint16_t place;
  bool isAsync;
  const Knowledge *known;
  /// A thread whose own accesses precede this one: all of them or, for the asynchronous proxy, its
  /// writes up to its last fence.
  unsigned self;
  uint32_t selfFenced = UINT32_MAX;
  /// Times up to which the reads of each thread of the warp are complete; null if the agent is not
  /// a thread.
  const uint32_t *warpReads = nullptr;
};

/// An error of an access.
struct Conflict {
  enum Kind { Race, Unfenced, Unwritten, CopyPending } kind;
  uint32_t offset;
  bool otherWrites;
  unsigned otherAgent;
  uint16_t otherPlace;
};

/// For each two bytes of shared memory: the last write, and the last read by each warp and copy.
class Shadow {
public:
  static constexpr unsigned kGranule = 2;
  /// The time of a write that its thread has not waited for.
  static constexpr uint32_t kPending = UINT32_MAX;

  void reset(uint32_t bytes, const Agents &agents);
  std::optional<Conflict> read(uint32_t offset, uint32_t bytes, const Viewer &viewer);
  /// A `silent` write does not change the bytes, as if several threads store the same zeros. It is
  /// not a race.
  std::optional<Conflict> write(uint32_t offset, uint32_t bytes, const Viewer &viewer,
                                bool silent = false);
  /// Records that the pending write of `agent` is complete.
  void settle(uint32_t offset, uint32_t bytes, unsigned agent, uint32_t time);

private:
  struct Reads {
    std::vector<uint32_t> times; ///< 32 * time + lane
    std::vector<uint16_t> places;
    bool isEmpty = true; ///< until the slot reads
  };
  bool isOrdered(unsigned agent, uint32_t time, bool isWrite, const Viewer &viewer) const;
  std::optional<Conflict> checkWrite(uint32_t granule, const Viewer &viewer, bool reads) const;
  std::optional<Conflict> checkWrites(uint32_t begin, uint32_t end, const Viewer &viewer,
                                      bool reads) const;
  std::optional<Conflict> checkReads(uint32_t begin, uint32_t end, const Viewer &viewer) const;

  Agents agents;
  std::vector<uint32_t> writeTimes;
  std::vector<uint16_t> writeAgents, writePlaces;
  std::vector<Reads> reads;     ///< of each slot
  std::vector<unsigned> active; ///< slots that have read
  /// Further writers of the same bytes, after the first one.
  llvm::DenseMap<uint32_t, llvm::SmallVector<std::pair<unsigned, uint32_t>, 2>> sameWrites;
};

} // namespace mlir::flashattn::model

#endif // FLASHATTN_RUNTIME_MODEL_SHADOW_H
