//===- Statistics.cpp -----------------------------------------------------===//

#include "Statistics.h"
#include "llvm/ADT/STLExtras.h"
#include "llvm/Support/FormatVariadic.h"
#include "llvm/Support/MathExtras.h"

#include <set>

using namespace mlir::flashattn::model;

PlaceCounts &Statistics::at(unsigned place) {
  if (places.size() <= place)
    places.resize(place + 1);
  return places[place];
}

void Statistics::add(const Statistics &block) {
  for (auto [i, from] : llvm::enumerate(block.places)) {
    PlaceCounts &to = at(i);
    for (unsigned group = 0; group < PlaceCounts::kMaxGroups; ++group)
      to.runs[group] += from.runs[group];
    to.waits += from.waits;
    to.accesses += from.accesses;
    to.conflicts += from.conflicts;
  }
  for (auto [barrier, bytes] : block.barrierBytes)
    barrierBytes[barrier] += bytes;
  llvm::append_range(spans, block.spans);
  for (const auto &[at, unfinished] : block.open)
    for (const WarpAccess &access : unfinished.accesses)
      finish(at.second, access);
}

//===----------------------------------------------------------------------===//
// Banks
//===----------------------------------------------------------------------===//

void Statistics::addAccess(unsigned warp, unsigned lane, unsigned lanes, uint16_t place,
                           uint32_t offset, uint32_t bytes) {
  OpenAccesses &mine = open[{warp, place}];
  // Threads that took another branch never arrive.
  constexpr size_t kMostOpen = 4096;
  auto finishFirst = [&] {
    finish(place, mine.accesses.front());
    mine.accesses.pop_front();
    ++mine.finished;
  };
  int64_t number = std::max(mine.counts[lane]++, mine.finished);
  while (mine.finished + int64_t(mine.accesses.size()) <= number)
    mine.accesses.emplace_back();
  WarpAccess &access = mine.accesses[number - mine.finished];
  access.bytes = bytes;
  access.lanes |= 1u << lane;
  access.offsets[lane] = offset;
  while (!mine.accesses.empty() &&
         (unsigned(llvm::popcount(mine.accesses.front().lanes)) == lanes ||
          mine.accesses.size() > kMostOpen))
    finishFirst();
}

/// Shared memory provides 128 bytes per turn: a 4-byte word from each of its 32 banks. As many
/// threads access it in one turn as these bytes suffice for.
void Statistics::finish(unsigned place, const WarpAccess &access) {
  constexpr unsigned kBanks = 32, kWord = 4, kLanes = 32;
  unsigned together = std::min(kLanes, kBanks * kWord / std::max(access.bytes, kWord));
  PlaceCounts &counts = at(place);
  ++counts.accesses;
  for (unsigned first = 0; first < kLanes; first += together) {
    std::array<std::set<uint32_t>, kBanks> words;
    for (unsigned lane = first; lane < first + together; ++lane)
      if (access.lanes >> lane & 1)
        for (uint32_t byte = 0; byte < access.bytes; byte += kWord) {
          uint32_t word = (access.offsets[lane] + byte) / kWord;
          words[word % kBanks].insert(word);
        }
    size_t turns = 0;
    for (const std::set<uint32_t> &bank : words)
      turns = std::max(turns, bank.size());
    counts.conflicts += turns > 1 ? turns - 1 : 0;
  }
}

//===----------------------------------------------------------------------===//
// Text
//===----------------------------------------------------------------------===//

static llvm::SmallVector<llvm::StringRef> splitPlaces(llvm::StringRef description) {
  llvm::SmallVector<llvm::StringRef> lines;
  description.split(lines, '\n');
  return lines;
}
static llvm::StringRef getOp(llvm::StringRef place) { return place.split(' ').first; }

/// Returns the role to which a span belongs.
static std::string getRole(unsigned group) {
  return group == Span::kProducts ? "products" : llvm::formatv("warpgroup {0}", group).str();
}

/// Returns a row for each role, with 64 columns for the time of the block: '#' if the role was
/// busy.
std::string Statistics::picture() const {
  constexpr int64_t kColumns = 64;
  int64_t end = 1;
  std::map<unsigned, std::string> rows;
  for (const Span &span : spans) {
    end = std::max(end, span.end);
    rows.try_emplace(span.group, kColumns, '.');
  }
  for (const Span &span : spans)
    for (int64_t column = span.begin * kColumns / end; column <= (span.end - 1) * kColumns / end;
         ++column)
      if (!span.waits)
        rows[span.group][column] = '#';
  std::string text =
      llvm::formatv("  block 0, {0} cycles by the cost table ('#' busy, '.' waiting):\n", end);
  for (const auto &[group, row] : rows)
    text += llvm::formatv("  {0,-14} |{1}|\n", getRole(group), row);
  return text;
}

std::string Statistics::print(llvm::StringRef description, int64_t blocks) const {
  llvm::SmallVector<llvm::StringRef> lines = splitPlaces(description);
  struct Row {
    std::array<int64_t, PlaceCounts::kMaxGroups> runs = {};
    int64_t waits = 0, accesses = 0, conflicts = 0;
  };
  std::map<llvm::StringRef, Row> rows;
  for (auto [place, counts] : llvm::enumerate(places)) {
    if (place + 1 >= lines.size())
      break;
    Row &row = rows[getOp(lines[place + 1])];
    for (unsigned group = 0; group < PlaceCounts::kMaxGroups; ++group)
      row.runs[group] += counts.runs[group];
    row.waits += counts.waits;
    row.accesses += counts.accesses;
    row.conflicts += counts.conflicts;
  }
  std::string text =
      llvm::formatv("statistics of kernel '{0}', {1} blocks:\n", lines.front(), blocks);
  for (const auto &[op, row] : rows) {
    unsigned last = PlaceCounts::kMaxGroups;
    while (last && !row.runs[last - 1])
      --last;
    // Uses of a product's registers do not count as runs.
    if (!last)
      continue;
    text += llvm::formatv("  {0,-26} runs by threads of each warpgroup:", op);
    for (unsigned group = 0; group < last; ++group)
      text += llvm::formatv(" {0}", row.runs[group]);
    if (row.waits)
      text += llvm::formatv(", waits {0}", row.waits);
    if (row.accesses)
      text += llvm::formatv(", bank conflicts {0} in {1} accesses", row.conflicts, row.accesses);
    text += "\n";
  }
  for (auto [barrier, bytes] : barrierBytes)
    text += llvm::formatv("  barrier {0,-18} {1} bytes to shared memory\n", barrier, bytes);
  return spans.empty() ? text : text + picture();
}

void Statistics::trace(llvm::StringRef description, unsigned process,
                       llvm::json::Array &events) const {
  llvm::SmallVector<llvm::StringRef> lines = splitPlaces(description);
  auto describe = [&](const char *what, int64_t thread, const llvm::Twine &name) {
    events.push_back(llvm::json::Object{{"name", what},
                                        {"ph", "M"},
                                        {"pid", process},
                                        {"tid", thread},
                                        {"args", llvm::json::Object{{"name", name.str()}}}});
  };
  // Viewers require numbers as threads, and their names separately.
  std::set<unsigned> groups;
  auto getThread = [](unsigned group) {
    return group == Span::kProducts ? int64_t(PlaceCounts::kMaxGroups) : group;
  };
  for (const Span &span : spans)
    groups.insert(span.group);
  describe("process_name", 0, lines.front());
  for (unsigned group : groups)
    describe("thread_name", getThread(group), getRole(group));
  for (const Span &span : spans) {
    llvm::StringRef place = span.place + 1u < lines.size() ? lines[span.place + 1] : "";
    events.push_back(llvm::json::Object{{"name", (span.waits ? "wait: " : "") + getOp(place).str()},
                                        {"cat", lines.front()},
                                        {"ph", "X"},
                                        {"ts", span.begin},
                                        {"dur", span.end - span.begin},
                                        {"pid", process},
                                        {"tid", getThread(span.group)},
                                        {"args", llvm::json::Object{{"place", place}}}});
  }
}
