//===- Shadow.cpp ---------------------------------------------------------===//

#include "Shadow.h"
#include "llvm/ADT/STLExtras.h"

using namespace mlir::flashattn::model;

void Shadow::reset(uint32_t bytes, const Agents &newAgents) {
  agents = newAgents;
  size_t granules = (bytes + kGranule - 1) / kGranule;
  writeTimes.assign(granules, 0);
  writeAgents.resize(granules);
  writePlaces.resize(granules);
  // The memory of earlier blocks is used again.
  for (unsigned slot : active)
    reads[slot].isEmpty = true;
  reads.resize(agents.slots());
  active.clear();
  sameWrites.clear();
}

bool Shadow::isOrdered(unsigned agent, uint32_t time, bool isWrite, const Viewer &viewer) const {
  if (time == kPending)
    return false;
  bool crosses = isWrite && viewer.isAsync && agents.isThread(agent);
  if (agent == viewer.self)
    return !crosses || time <= viewer.selfFenced;
  const Knowledge &known = *viewer.known;
  bool hasRead = !isWrite && agents.isThread(agent);
  if (hasRead && viewer.warpReads && agent / kWarpThreads == viewer.self / kWarpThreads &&
      time <= viewer.warpReads[agent % kWarpThreads])
    return true;
  return time <= (crosses ? known.fenced : hasRead ? known.passed : known.seen).get(agent);
}

std::optional<Conflict> Shadow::checkWrite(uint32_t granule, const Viewer &viewer,
                                           bool reads) const {
  uint32_t time = writeTimes[granule];
  unsigned agent = writeAgents[granule];
  bool ordered = isOrdered(agent, time, /*isWrite=*/true, viewer);
  // A read must be ordered after one of several equal writes, a write of other bytes after all of
  // them.
  if (auto same = sameWrites.find(granule); same != sameWrites.end() && ordered != reads) {
    auto isKnown = [&](const auto &other) {
      return isOrdered(other.first, other.second, /*isWrite=*/true, viewer);
    };
    ordered = reads ? llvm::any_of(same->second, isKnown) : llvm::all_of(same->second, isKnown);
  }
  if (ordered)
    return std::nullopt;
  auto kind = time == kPending ? Conflict::CopyPending : Conflict::Race;
  if (kind == Conflict::Race && viewer.isAsync && agents.isThread(agent) &&
      (agent == viewer.self || time <= viewer.known->seen.get(agent)))
    kind = Conflict::Unfenced;
  return Conflict{kind, granule * kGranule, true, agent, writePlaces[granule]};
}

std::optional<Conflict> Shadow::checkWrites(uint32_t begin, uint32_t end, const Viewer &viewer,
                                            bool reads) const {
  uint32_t goodTime = 0;
  unsigned goodAgent = UINT32_MAX;
  for (uint32_t i = begin; i < end; ++i) {
    uint32_t time = writeTimes[i];
    if (time == 0) {
      if (reads)
        return Conflict{Conflict::Unwritten, i * kGranule, false, 0, 0};
      continue;
    }
    if (time == goodTime && writeAgents[i] == goodAgent && sameWrites.empty())
      continue;
    if (std::optional<Conflict> found = checkWrite(i, viewer, reads))
      return found;
    goodTime = time;
    goodAgent = writeAgents[i];
  }
  return std::nullopt;
}

std::optional<Conflict> Shadow::checkReads(uint32_t begin, uint32_t end,
                                           const Viewer &viewer) const {
  for (unsigned slot : active) {
    const Reads &others = reads[slot];
    uint32_t good = 0;
    for (uint32_t i = begin; i < end; ++i) {
      uint32_t stamp = others.times[i];
      if (stamp == good || stamp == 0)
        continue;
      unsigned agent = agents.agentOf(slot, stamp % 32);
      if (!isOrdered(agent, stamp / 32, /*isWrite=*/false, viewer))
        return Conflict{Conflict::Race, i * kGranule, false, agent, others.places[i]};
      good = stamp;
    }
  }
  return std::nullopt;
}

std::optional<Conflict> Shadow::read(uint32_t offset, uint32_t bytes, const Viewer &viewer) {
  uint32_t begin = offset / kGranule, end = (offset + bytes + kGranule - 1) / kGranule;
  if (std::optional<Conflict> found = checkWrites(begin, end, viewer, /*reads=*/true))
    return found;
  unsigned slot = agents.slotOf(viewer.agent);
  Reads &mine = reads[slot];
  if (mine.isEmpty) {
    mine.isEmpty = false;
    mine.times.assign(writeTimes.size(), 0);
    mine.places.resize(writeTimes.size());
    active.push_back(slot);
  }
  uint32_t lane = agents.isThread(viewer.agent) ? viewer.agent % kWarpThreads : 0;
  std::fill(mine.times.begin() + begin, mine.times.begin() + end, viewer.time * 32 + lane);
  std::fill(mine.places.begin() + begin, mine.places.begin() + end, viewer.place);
  return std::nullopt;
}

std::optional<Conflict> Shadow::write(uint32_t offset, uint32_t bytes, const Viewer &viewer,
                                      bool silent) {
  uint32_t begin = offset / kGranule, end = (offset + bytes + kGranule - 1) / kGranule;
  std::optional<Conflict> found = checkWrites(begin, end, viewer, /*reads=*/false);
  if (!found)
    found = checkReads(begin, end, viewer);
  if (found && silent && found->kind == Conflict::Race) {
    for (uint32_t i = begin; i < end; ++i)
      sameWrites[i].push_back({viewer.agent, viewer.time});
    return std::nullopt;
  }
  if (found)
    return found;
  if (!sameWrites.empty())
    for (uint32_t i = begin; i < end; ++i)
      sameWrites.erase(i);
  std::fill(writeTimes.begin() + begin, writeTimes.begin() + end, viewer.time);
  std::fill(writeAgents.begin() + begin, writeAgents.begin() + end, viewer.agent);
  std::fill(writePlaces.begin() + begin, writePlaces.begin() + end, viewer.place);
  return std::nullopt;
}

void Shadow::settle(uint32_t offset, uint32_t bytes, unsigned agent, uint32_t time) {
  uint32_t begin = offset / kGranule, end = (offset + bytes + kGranule - 1) / kGranule;
  for (uint32_t i = begin; i < end; ++i)
    if (writeTimes[i] == kPending && writeAgents[i] == agent)
      writeTimes[i] = time;
}
