//===- ResourcePlans.cpp - memory and registers of a block ----------------===//

#include "flashattn/Target/ResourcePlans.h"
#include "llvm/ADT/STLExtras.h"
#include "llvm/Support/FormatVariadic.h"

#include <numeric>

using namespace mlir;
using namespace mlir::flashattn;

std::string flashattn::explainNeeds(StringRef what, ArrayRef<Need> needs, int64_t available,
                                    StringRef availability) {
  int64_t all = 0;
  std::string parts;
  for (const Need &need : needs) {
    all += need.count;
    if (need.count)
      parts += llvm::formatv("{0}{1} {2}", parts.empty() ? "" : ", ", need.name, need.count).str();
  }
  if (all <= available)
    return "";
  return llvm::formatv("needs {0} {1} ({2}) of {3} {4}", all, what, parts, available, availability);
}

//===----------------------------------------------------------------------===//
// Shared memory
//===----------------------------------------------------------------------===//

int64_t SharedBuffer::getBytes() const {
  return std::accumulate(shape.begin(), shape.end(), elementBytes, std::multiplies<int64_t>());
}

unsigned SharedMemoryPlan::add(StringRef name, ArrayRef<int64_t> shape, int64_t elementBytes,
                               int64_t alignment) {
  SharedBuffer &buffer = buffers.emplace_back();
  buffer.name = name;
  buffer.shape.assign(shape.begin(), shape.end());
  buffer.elementBytes = elementBytes;
  buffer.offset = llvm::alignTo(bytes, alignment);
  bytes = buffer.offset + buffer.getBytes();
  return buffers.size() - 1;
}

unsigned SharedMemoryPlan::addOver(StringRef name, ArrayRef<int64_t> shape, int64_t elementBytes,
                                   int64_t offset) {
  int64_t end = bytes;
  bytes = offset;
  unsigned number = add(name, shape, elementBytes, /*alignment=*/1);
  buffers[number].isOver = true;
  bytes = std::max(bytes, end);
  return number;
}

std::string SharedMemoryPlan::explainRefusal(int64_t available) const {
  SmallVector<Need> needs;
  for (const SharedBuffer &buffer : buffers)
    if (!buffer.isOver)
      needs.push_back({buffer.name, buffer.getBytes()});
  int64_t tiles = 0;
  for (const Need &need : needs)
    tiles += need.count;
  needs.push_back({"gaps", bytes - tiles});
  return explainNeeds("bytes of shared memory", needs, available);
}

SharedMemoryPlan flashattn::planStagedTiles(ArrayRef<TileShape> resident,
                                            ArrayRef<TileShape> streamed, int64_t stages,
                                            int64_t elementBytes, ArrayRef<TileShape> exchanged) {
  constexpr int64_t kLine = 128; // bytes of all banks
  SharedMemoryPlan plan;
  for (auto [tiles, copies] : {std::pair(resident, int64_t(1)), std::pair(streamed, stages),
                               std::pair(exchanged, int64_t(1))})
    for (const TileShape &tile : tiles)
      plan.add(tile.name, {copies, tile.rows, tile.columns}, elementBytes, kLine);
  for (ArrayRef<TileShape> tiles : {resident, streamed})
    for (const TileShape &tile : tiles)
      if (tile.isRewritten())
        plan.add(tile.name, tile.source, /*elementBytes=*/1, kLine);
  return plan;
}

int64_t flashattn::getPanelColumns(int64_t columns, int64_t elementBytes) {
  int64_t bytes = columns * elementBytes;
  return (bytes <= 32 ? 32 : bytes <= 64 ? 64 : 128) / elementBytes;
}

/// Returns the shape of memref<copies x panels x rows x panel columns>.
static SmallVector<int64_t> getPanelShape(const TileShape &tile, int64_t copies,
                                          int64_t elementBytes) {
  int64_t panel = getPanelColumns(tile.columns, elementBytes);
  return {copies, (tile.columns + panel - 1) / panel, tile.rows, panel};
}

/// Adds the rings of the streamed tiles to `plan`, with barriers from `barriers` on. Returns the
/// number of barriers after them. `addTiles` adds copies of a tile with elements of some bytes.
static int64_t planRings(const WarpgroupBlock &block,
                         function_ref<unsigned(const TileShape &, int64_t, int64_t)> addTiles,
                         int64_t barriers, WarpgroupBlockPlan &plan) {
  for (const auto &[i, tile] : llvm::enumerate(block.streamed)) {
    int64_t stages = tile.isRewritten() ? WarpgroupBlockPlan::kRewrittenStages
                                        : block.stages + (!block.skews ? 0
                                                          : i == 0     ? 1
                                                                       : -1);
    plan.rings.push_back(
        {addTiles(tile, stages, block.elementBytes), stages, barriers, barriers + stages});
    barriers += 2 * stages;
  }
  for (const TileShape &tile : block.streamed) {
    std::optional<RingPlan> &source = plan.sources.emplace_back();
    if (!tile.isRewritten())
      continue;
    TileShape narrow{tile.name, tile.source[0], tile.source[1]};
    source = RingPlan{addTiles(narrow, block.stages, /*elementBytes=*/1), block.stages, barriers,
                      barriers + block.stages};
    barriers += 2 * block.stages;
  }
  return barriers;
}

WarpgroupBlockPlan flashattn::planWarpgroupBlock(const WarpgroupBlock &block) {
  WarpgroupBlockPlan plan;
  auto addTilesOf = [&](const TileShape &tile, int64_t copies, int64_t elementBytes) {
    SmallVector<int64_t> shape = getPanelShape(tile, copies, elementBytes);
    // A swizzle repeats every 8 rows; copies and products count from the start of a period.
    int64_t period = 8 * shape.back() * elementBytes;
    return plan.memory.add(tile.name, shape, elementBytes, period);
  };
  auto addTiles = [&](const TileShape &tile, int64_t copies) {
    return addTilesOf(tile, copies, block.elementBytes);
  };
  int64_t held = block.programs * block.slots;
  bool isPersistent = block.slots > 1 || block.claims;
  // Then outputs do not use the buffers of residents, into which the next residents are loaded.
  bool reusesResidentBuffers = isPersistent && block.slots == 1;
  bool drains = reusesResidentBuffers && block.programs > 1;
  plan.slots = drains ? 2 : block.slots;
  for (const TileShape &tile : block.residents)
    plan.residents.push_back(addTiles(tile, held));
  ArrayRef<TileShape> inPlace =
      reusesResidentBuffers ? ArrayRef<TileShape>() : ArrayRef(block.outputs);
  auto isOf = [&](unsigned resident, const TileShape &tile) {
    return plan.memory[resident].shape == getPanelShape(tile, held, block.elementBytes);
  };
  for (const TileShape &tile : inPlace) {
    auto isFree = [&](unsigned resident) { return !llvm::is_contained(plan.outputs, resident); };
    auto free = llvm::find_if(plan.residents, [&](unsigned resident) {
      return isFree(resident) && isOf(resident, tile);
    });
    // Otherwise a resident with more panels, whose shape is not that of another output.
    if (free == plan.residents.end())
      free = llvm::find_if(plan.residents, [&](unsigned resident) {
        SmallVector<int64_t> shape = getPanelShape(tile, held, block.elementBytes);
        ArrayRef<int64_t> room = plan.memory[resident].shape;
        bool fits = shape[1] < room[1] && shape[0] == room[0] &&
                    ArrayRef(shape).drop_front(2) == room.drop_front(2);
        return fits && isFree(resident) && llvm::none_of(inPlace, [&](const TileShape &other) {
                 return isOf(resident, other);
               });
      });
    plan.outputs.push_back(free != plan.residents.end() ? *free : addTiles(tile, block.programs));
  }
  int64_t barriers = held;
  if (isPersistent && !drains) {
    plan.residentEmpty = barriers;
    barriers += held;
  }
  barriers = planRings(block, addTilesOf, barriers, plan);
  constexpr int64_t kBuffers = 2, kWarps = 4, kFloat = 4;
  plan.exchangeReady = barriers;
  int64_t exchangedFrom = plan.memory.getBytes();
  for (const TileShape &tile : block.exchanged) {
    plan.exchanged.push_back(addTiles(tile, kBuffers));
    barriers += kBuffers;
  }
  if (block.passes) {
    plan.bufferFree = barriers;
    barriers += kBuffers;
  }
  if (block.dqReduceStages) {
    plan.staged = barriers;
    plan.stagingFree = barriers + WarpgroupBlockPlan::kSpareWarps;
    barriers = plan.stagingFree + block.dqReduceStages;
  }
  if (block.added) {
    int64_t warps = kWarps * block.consumers;
    for (int64_t i = 0; i < std::max<int64_t>(block.dqReduceStages, 1); ++i)
      plan.staging.push_back(plan.memory.add("staging", {warps, block.added / warps}, kFloat, 128));
  }
  for (const TileShape &tile : reusesResidentBuffers ? block.outputs : ArrayRef<TileShape>()) {
    SmallVector<int64_t> shape = getPanelShape(tile, block.programs, block.elementBytes);
    exchangedFrom = llvm::alignTo(exchangedFrom, 8 * shape.back() * block.elementBytes);
    unsigned number = plan.memory.addOver(tile.name, shape, block.elementBytes, exchangedFrom);
    plan.outputs.push_back(number);
    exchangedFrom += plan.memory[number].getBytes();
    plan.overlaysStaging |=
        !plan.staging.empty() && exchangedFrom > plan.memory[plan.staging.front()].offset;
  }
  for (const WarpgroupBlock::Row &row : block.rows)
    plan.rows.push_back(
        plan.memory.add("row", {plan.rings[row.stream].stages, row.elements}, kFloat, 128));
  plan.barriers = plan.memory.add("barriers", {barriers}, 8, 8);
  plan.bounds = plan.memory.add("bounds", {plan.slots, block.intervals, 2}, 4, 4);
  if (isPersistent || block.segments)
    plan.numbers = plan.memory.add("numbers", {plan.slots, 4}, 4, 4);
  return plan;
}

//===----------------------------------------------------------------------===//
// Registers
//===----------------------------------------------------------------------===//

MmaRegisters flashattn::countMmaRegisters(int64_t rows, int64_t keys, int64_t warps, int64_t d,
                                          int64_t dv, bool isF32, bool hasAttnMask) {
  int64_t rowBlocks = rows / (16 * warps);
  // 16 rows of n f32 elements are 16 * n / 32 registers per lane, and half as many for 16-bit
  // elements.
  return {rowBlocks * dv / 2, rowBlocks * keys / 2, hasAttnMask ? rowBlocks * keys : 0,
          rowBlocks * d / 4 * (isF32 ? 4 : 1)};
}

bool flashattn::holdsQueries(const MmaRegisters &registers) {
  constexpr int64_t kMost = 160; // of 255
  return registers.queries + registers.output + registers.scores <= kMost;
}
