//===- Shadow.cpp ----------------------------------------------------------===//

#include "Shadow.h"

using namespace mlir::flashattn::model;

void Shadow::reset(uint32_t bytes, const Agents &newAgents) {
  agents = newAgents;
  size_t granules = (bytes + kGranule - 1) / kGranule;
  writeTimes.assign(granules, 0);
  writeAgents.assign(granules, 0);
  writePlaces.assign(granules, 0);
  reads.clear();
  reads.resize(agents.slots());
  active.clear();
}

bool Shadow::isOrdered(unsigned agent, uint32_t time, bool isWrite, const Viewer &viewer) const {
  if (time == kPending)
    return false;
  bool crosses = isWrite && viewer.isAsync && agents.isThread(agent);
  if (agent == viewer.self)
    return !crosses || time <= viewer.selfFenced;
  return time <= (crosses ? viewer.known->fenced : viewer.known->seen).get(agent);
}

std::optional<Conflict> Shadow::checkWrites(uint32_t begin, uint32_t end, const Viewer &viewer,
                                            bool needsWrite) const {
  uint32_t goodTime = 0;
  unsigned goodAgent = UINT32_MAX;
  for (uint32_t i = begin; i < end; ++i) {
    uint32_t time = writeTimes[i];
    if (time == 0) {
      if (needsWrite)
        return Conflict{Conflict::Unwritten, i * kGranule, false, 0, 0};
      continue;
    }
    unsigned agent = writeAgents[i];
    if (time == goodTime && agent == goodAgent)
      continue;
    if (!isOrdered(agent, time, /*isWrite=*/true, viewer)) {
      auto kind = time == kPending ? Conflict::CopyPending : Conflict::Race;
      if (kind == Conflict::Race && viewer.isAsync && agents.isThread(agent) &&
          (agent == viewer.self || time <= viewer.known->seen.get(agent)))
        kind = Conflict::Unfenced;
      return Conflict{kind, i * kGranule, true, agent, writePlaces[i]};
    }
    goodTime = time;
    goodAgent = agent;
  }
  return std::nullopt;
}

std::optional<Conflict> Shadow::read(uint32_t offset, uint32_t bytes, const Viewer &viewer) {
  uint32_t begin = offset / kGranule, end = (offset + bytes + kGranule - 1) / kGranule;
  if (std::optional<Conflict> found = checkWrites(begin, end, viewer, /*needsWrite=*/true))
    return found;
  unsigned slot = agents.slotOf(viewer.agent);
  Reads &mine = reads[slot];
  if (mine.times.empty()) {
    mine.times.resize(writeTimes.size());
    mine.places.resize(writeTimes.size());
    active.push_back(slot);
  }
  uint32_t lane = agents.isThread(viewer.agent) ? viewer.agent % kWarpThreads : 0;
  std::fill(mine.times.begin() + begin, mine.times.begin() + end, viewer.time * 32 + lane);
  std::fill(mine.places.begin() + begin, mine.places.begin() + end, viewer.place);
  return std::nullopt;
}

std::optional<Conflict> Shadow::write(uint32_t offset, uint32_t bytes, const Viewer &viewer) {
  uint32_t begin = offset / kGranule, end = (offset + bytes + kGranule - 1) / kGranule;
  if (std::optional<Conflict> found = checkWrites(begin, end, viewer, /*needsWrite=*/false))
    return found;
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
