//===- Clock.h - vector clocks of the model ---------------------*- C++ -*-===//
//
// A vector clock has an entry for each agent of a block: its threads, and the asynchronous ops that
// access shared memory on their behalf. Most threads have the same knowledge, so clocks are shared
// until they change, and joins are cached.
//
//===----------------------------------------------------------------------===//

#ifndef FLASHATTN_RUNTIME_MODEL_CLOCK_H
#define FLASHATTN_RUNTIME_MODEL_CLOCK_H

#include "llvm/ADT/IntrusiveRefCntPtr.h"

#include <algorithm>
#include <array>
#include <cstdint>
#include <vector>

namespace mlir::flashattn::model {

/// A time of each agent; 0 is before everything.
class Clock {
public:
  uint32_t get(unsigned agent) const { return data ? data->times[agent] : 0; }
  bool isSame(const Clock &other) const { return data == other.data; }
  const void *getIdentity() const { return data.get(); }

  /// Sets the time of an agent, unless it is already later.
  void set(unsigned agent, uint32_t time, unsigned agents) {
    if (get(agent) >= time)
      return;
    own(agents);
    data->times[agent] = time;
  }
  /// Sets each time to the later of both clocks.
  void join(const Clock &other) {
    if (!other.data || data == other.data || joined == other.data)
      return;
    joined = other.data;
    if (!data) {
      data = other.data;
      return;
    }
    size_t agents = data->times.size();
    const uint32_t *mine = data->times.data(), *others = other.data->times.data();
    bool isCovered = true, isCovering = true;
    for (size_t i = 0; i < agents; ++i) {
      isCovered &= mine[i] <= others[i];
      isCovering &= mine[i] >= others[i];
    }
    if (isCovering)
      return;
    if (isCovered) {
      data = other.data;
      return;
    }
    own(agents);
    uint32_t *times = data->times.data();
    for (size_t i = 0; i < agents; ++i)
      times[i] = std::max(times[i], others[i]);
  }
  /// Sets each time to the earlier of both clocks.
  void merge(const Clock &other) {
    if (data == other.data)
      return;
    joined = nullptr;
    if (!data || !other.data) {
      data = nullptr;
      return;
    }
    own(data->times.size());
    uint32_t *times = data->times.data();
    const uint32_t *others = other.data->times.data();
    for (size_t i = 0, agents = data->times.size(); i < agents; ++i)
      times[i] = std::min(times[i], others[i]);
  }

private:
  struct Data : llvm::RefCountedBase<Data> {
    std::vector<uint32_t> times;
  };
  /// Copies the data if it is shared, before it is written.
  void own(unsigned agents) {
    if (data && data->UseCount() == 1)
      return;
    auto *copy = new Data;
    if (data)
      copy->times = data->times;
    else
      copy->times.resize(agents);
    data = copy;
  }

  llvm::IntrusiveRefCntPtr<Data> data;
  /// The last clock that was joined, of which this one has every time: the threads that arrive at a
  /// barrier mostly have the same.
  llvm::IntrusiveRefCntPtr<Data> joined;
};

/// The knowledge of both proxies of shared memory: `seen`, and `fenced`, the part of it that the
/// asynchronous proxy sees too. If `passed` is later than `seen`, only the reads up to that time
/// are known: the threads of a warpgroup issue a product together, so a thread that has waited for
/// it knows that all of them had reached it.
struct Knowledge {
  Clock seen, fenced, passed;

  void join(const Knowledge &other) {
    seen.join(other.seen);
    fenced.join(other.fenced);
    passed.join(other.passed);
  }
  void merge(const Knowledge &other) {
    seen.merge(other.seen);
    fenced.merge(other.fenced);
    passed.merge(other.passed);
  }
};

/// A cache of recent joins: the threads of a warpgroup mostly compute the same join.
class JoinCache {
public:
  /// Sets `clock` to its join with `other`.
  void join(Clock &clock, const Clock &other) {
    if (clock.isSame(other))
      return;
    Entry &entry = entries[hash(clock.getIdentity(), other.getIdentity())];
    if (!entry.a.isSame(clock) || !entry.b.isSame(other)) {
      entry.a = clock;
      entry.b = other;
      entry.result = clock;
      entry.result.join(other);
    }
    clock = entry.result;
  }
  void join(Knowledge &knowledge, const Knowledge &other) {
    join(knowledge.seen, other.seen);
    join(knowledge.fenced, other.fenced);
    join(knowledge.passed, other.passed);
  }
  /// Sets the time of `agent` in `clock` to `time`, unless it is already later.
  void set(Clock &clock, unsigned agent, uint32_t time, unsigned agents) {
    if (clock.get(agent) >= time)
      return;
    Raised &entry = raised[hash(clock.getIdentity(), nullptr) % raised.size()];
    if (!entry.from.isSame(clock) || entry.agent != agent || entry.time != time) {
      entry = {clock, agent, time, clock};
      entry.result.set(agent, time, agents);
    }
    clock = entry.result;
  }

private:
  struct Entry {
    Clock a, b, result;
  };
  struct Raised {
    Clock from;
    unsigned agent = 0;
    uint32_t time = 0;
    Clock result;
  };
  static size_t hash(const void *a, const void *b) {
    return ((reinterpret_cast<uintptr_t>(a) >> 4) * 31 + (reinterpret_cast<uintptr_t>(b) >> 4)) %
           kEntries;
  }

  static constexpr size_t kEntries = 64;
  std::array<Entry, kEntries> entries;
  std::array<Raised, 8> raised;
};

} // namespace mlir::flashattn::model

#endif // FLASHATTN_RUNTIME_MODEL_CLOCK_H
