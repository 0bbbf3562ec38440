//===- Schedules.cpp - schedules with warp specialization -----------------===//
//
// A producer warpgroup loads tiles by tensor copies (TMA), and consumer warpgroups multiply by
// wgmma.
//
//===----------------------------------------------------------------------===//

#include "Fields.h"
#include "flashattn/Analysis/MaskShape.h"
#include "flashattn/Analysis/MaskTiles.h"
#include "flashattn/Dialect/Hopper/IR/Hopper.h"
#include "llvm/Support/FormatVariadic.h"

using namespace mlir;
using namespace mlir::flashattn;
using namespace mlir::flashattn::warpgroups;

static constexpr int64_t kThreads = 128;
static constexpr int64_t kDecodeSplits = 128;
static constexpr int64_t kAnyWidth = std::numeric_limits<int64_t>::max();

namespace {
/// A schedule for a class of masks and head dimensions.
struct HopperRow {
  MaskShape shape;
  int64_t maxWidth, maxD, tileN, stages, stagesBF16, consumers, registers, producerRegisters,
      l2HeadGroup, blocksPerSM, qStages, qRegisterColumns, dynamicScheduler, pack, compactKV;
};
struct DecodeRow {
  int64_t maxD, tileN, stages, blocksPerSM, smallBlocksPerSM;
};
} // namespace

static constexpr HopperRow kHopperTable[] = {
#define FORWARD(shape, ...) {MaskShape::shape, __VA_ARGS__},
#include "Schedules.def"
};
static constexpr DecodeRow kDecodeTable[] = {
#define DECODE(...) {__VA_ARGS__},
#include "Schedules.def"
};

//===----------------------------------------------------------------------===//
// Candidates
//===----------------------------------------------------------------------===//

/// Returns the number of heads with few queries to pack into a tile: all heads of a group, if the
/// group size is known.
static int64_t getDecodePack(AttentionOp op) {
  constexpr int64_t kMaxPack = 16;
  // explainRefusal states the reason.
  if (!op.findInputOfHeads(/*inParts=*/true).empty())
    return 1;
  int64_t queries = op.getMostQueries().value_or(op.getStaticQueries());
  int64_t pack =
      std::min<int64_t>(kMaxPack, kRows / llvm::PowerOf2Ceil(std::max<int64_t>(queries, 1)));
  int64_t heads = op.getQ().getType().getDimSize(op.getHeadDim());
  int64_t kvHeads = op.getK().getType().getDimSize(op.getHeadDim());
  if (!ShapedType::isDynamic(heads) && !ShapedType::isDynamic(kvHeads) && kvHeads > 0)
    pack = std::min<int64_t>(pack, llvm::PowerOf2Ceil(std::max<int64_t>(heads / kvHeads, 1)));
  // With one query, the rows of 8 heads are adjacent if the tile has rows for 64 heads, and fill
  // the first half of 16 rows. With 8 positions of each of 8 heads they would be in both halves.
  if (queries == 1 && pack == 8)
    pack = kRows;
  return pack;
}

ScheduleFields warpgroups::makeFields(int64_t tileN, int64_t stages, int64_t pack,
                                      const HopperFields &hopper, FloatType element) {
  ScheduleFields fields;
  fields.tileM = kRows;
  fields.tileN = tileN;
  fields.stages = stages;
  fields.dotType = element;
  fields.pack = pack;
  fields.mapping = hopper;
  return fields;
}

/// Returns the schedule for symbols per key, for which blocks list their tiles. If a block has
/// fewer rows, fewer of its tiles are partial, or hidden from some rows
/// (docs/rationale/symbols.md).
static std::optional<ScheduleFields> getListed(AttentionOp op) {
  constexpr int64_t kWidest = 128;
  if (op.getPerKey().empty() || std::max(op.getD(), op.getDv()) > kWidest)
    return std::nullopt;
  HopperFields hopper;
  hopper.rescaleThreshold = getDefaultRescale(op.getElementType());
  hopper.consumers = 2;
  hopper.registers = 232;
  hopper.producerRegisters = 40;
  // Lists differ in length.
  hopper.qStages = 2;
  hopper.dynamicScheduler = 1;
  hopper.l2HeadGroup = 8;
  return warpgroups::makeFields(/*tileN=*/128, /*stages=*/2, /*pack=*/1, hopper,
                                op.getElementType());
}

/// Appends the schedules of a decode step, the fastest first.
static void addDecodeCandidates(AttentionOp op, Candidates &candidates) {
  FloatType element = op.getElementType();
  int64_t d = std::max(op.getD(), op.getDv());
  for (const DecodeRow &row : kDecodeTable)
    if (d <= row.maxD) {
      // The producer also looks up sequences and pages.
      constexpr int64_t kProducerRegisters = 48;
      HopperFields few =
          completeHopper(/*consumers=*/1, row.blocksPerSM, element, kProducerRegisters);
      few.rescaleThreshold = getDefaultRescale(element);
      few.prefetchKiBPerSM = kPrefetchKiB;
      ScheduleFields fields = makeFields(row.tileN, row.stages, getDecodePack(op), few, element);
      fields.splits = kDecodeSplits;
      fields.minSplitTiles = 1;
      HopperFields &mapping = *fields.getHopper();
      mapping.smallBlocksPerSM = row.smallBlocksPerSM;
      if (op.getInvariant()) {
        fields.minSplitTiles = std::max<int64_t>(kInvariantKeys / row.tileN, 1);
        mapping.smallBlocksPerSM = 0;
        // S8: the rows of the next sequence in a tile must not vote on new exponents.
        if (op.getMostQueries())
          mapping.rescaleThreshold = 0;
      }
      candidates.push_back(ScheduleAttr::get(op.getContext(), fields));
      // Fallback if the other inputs of the scores leave too few resources for small blocks.
      if (std::exchange(mapping.smallBlocksPerSM, 0) != 0)
        candidates.push_back(ScheduleAttr::get(op.getContext(), fields));
    }
}

/// F1: replaces the candidates for an op with elements of 8 bits by schedules with the registers
/// and the shared memory for warps that convert tiles: with fewer stages, then with narrower tiles,
/// and with one query tile.
static void adaptToNarrow(AttentionOp op, Candidates &candidates) {
  if (!op.hasNarrowKeys() && !op.hasNarrowValues())
    return;
  constexpr int64_t kProducerRegisters = 56, kFewestStages = 2, kNarrowTile = 64;
  Candidates given = std::move(candidates);
  candidates.clear();
  for (ScheduleAttr schedule : given) {
    ScheduleFields fields = schedule.getFields();
    HopperFields &hopper = *fields.getHopper();
    HopperFields more = completeHopper(hopper.consumers, hopper.blocksPerSM, op.getElementType(),
                                       kProducerRegisters);
    hopper.registers = more.registers;
    hopper.producerRegisters = more.producerRegisters;
    hopper.smallBlocksPerSM = 0;
    auto add = [&] {
      // The next residents must not wait for an empty ring.
      if (hopper.qStages == 1)
        hopper.dynamicScheduler = 0;
      auto adapted = ScheduleAttr::get(op.getContext(), fields);
      if (!llvm::is_contained(candidates, adapted))
        candidates.push_back(adapted);
    };
    for (int64_t stages = fields.stages; stages >= kFewestStages; --stages) {
      fields.stages = stages;
      add();
    }
    fields.tileN = std::min(fields.tileN, kNarrowTile);
    add();
    hopper.qStages = 1;
    add();
  }
}

/// F3: returns the schedules for q of f8.
static Candidates getF8Candidates(AttentionOp op) {
  // A consumer holds two sums of the output, the scores, and the probabilities.
  constexpr int64_t kProducerRegisters = 40;
  FloatType element = op.getElementType();
  bool isWide = op.getDv() > 128 || op.getD() > 128;
  Candidates candidates;
  HopperFields hopper =
      completeHopper(/*consumers=*/2, /*blocksPerSM=*/1, element, kProducerRegisters);
  hopper.rescaleThreshold = 0;
  if (isDecode(op)) {
    ScheduleFields few =
        makeFields(/*tileN=*/isWide ? 64 : 128, /*stages=*/2, getDecodePack(op), hopper, element);
    few.splits = kDecodeSplits;
    few.minSplitTiles = 1;
    few.getHopper()->consumers = 1;
    candidates.push_back(ScheduleAttr::get(op.getContext(), few));
  }
  constexpr int64_t kTileN[] = {128, 64, 32};
  for (int64_t tileN : ArrayRef(kTileN).drop_front(isWide))
    candidates.push_back(ScheduleAttr::get(
        op.getContext(), makeFields(tileN, /*stages=*/2, /*pack=*/1, hopper, element)));
  return candidates;
}

Candidates warpgroups::getCandidates(AttentionOp op) {
  FloatType element = op.getElementType();
  if (isF8(element))
    return getF8Candidates(op);
  int64_t d = std::max(op.getD(), op.getDv());
  Candidates candidates;
  HopperFields hopper;
  hopper.rescaleThreshold = getDefaultRescale(element);
  if (isDecode(op))
    addDecodeCandidates(op, candidates);
  MaskClass mask = classifyMask(op.getVisibleSets());
  // Groups of packed sequences always differ in length.
  if (op.getCuSeqlensQ() && mask.shape == MaskShape::Full)
    mask.shape = MaskShape::Triangular;
  auto add = [&](ScheduleFields fields) {
    candidates.push_back(ScheduleAttr::get(op.getContext(), fields));
    // Fallback if the other inputs of the scores need the registers.
    if (std::exchange(fields.getHopper()->qRegisterColumns, 0) != 0)
      candidates.push_back(ScheduleAttr::get(op.getContext(), fields));
  };
  if (std::optional<ScheduleFields> listed = getListed(op))
    add(*listed);
  for (const HopperRow &row : kHopperTable) {
    if (row.shape != mask.shape || d > row.maxD || mask.width.value_or(0) > row.maxWidth ||
        op.getKnownGroup() % row.pack != 0 ||
        (row.compactKV && op.getVisibleSets().size() > kMostCompactSets))
      continue;
    hopper.consumers = row.consumers;
    hopper.registers = row.registers;
    hopper.producerRegisters = row.producerRegisters;
    hopper.l2HeadGroup = row.l2HeadGroup;
    hopper.blocksPerSM = row.blocksPerSM;
    hopper.qStages = row.qStages;
    hopper.qRegisterColumns = row.qRegisterColumns;
    hopper.dynamicScheduler = row.dynamicScheduler;
    hopper.compactKV = row.compactKV;
    // The producer of a persistent block reads the starts of packed rows, and any producer looks up
    // pages.
    bool findsSequences =
        op.hasPages() || (op.hasPackedSequences() && (row.qStages > 1 || row.dynamicScheduler));
    if (findsSequences) {
      constexpr int64_t kProducerRegisters = 56;
      HopperFields more =
          completeHopper(row.consumers, row.blocksPerSM, element, kProducerRegisters);
      hopper.registers = more.registers;
      hopper.producerRegisters = more.producerRegisters;
    }
    int64_t stages = element.isBF16() ? row.stagesBF16 : row.stages;
    // With these registers, ptxas spills in f16 with wider tiles.
    int64_t tileN = row.tileN;
    if (findsSequences && element.isF16())
      tileN = std::min<int64_t>(tileN, d <= 64 ? 96 : 64);
    ScheduleFields fields = makeFields(tileN, stages, row.pack, hopper, element);
    // Infrequent rescaling is tried first. In bf16 it requires row sums by products, whose
    // registers are available only with one block per multiprocessor. `lazy_rescale` is set if it
    // is faster, in bf16 with narrower tiles (docs/rationale/rescale.md). These leave the registers
    // to schedule dynamically without a mask, too (docs/rationale/pruned-schedules.md).
    bool late = d <= (element.isF16() ? 128 : 64);
    if (row.blocksPerSM == 1) {
      constexpr int64_t kWidest = 96;
      fields.getHopper()->rescaleThreshold = late ? kLazyRescale : kFewRescales;
      fields.getHopper()->lazyRescale = late;
      if (late && element.isBF16()) {
        fields.tileN = std::min(fields.tileN, kWidest);
        fields.getHopper()->qRegisterColumns = 0;
        if (mask.shape == MaskShape::Full) {
          fields.getHopper()->qStages = 2;
          fields.getHopper()->l2HeadGroup = 8;
          fields.getHopper()->dynamicScheduler = 1;
        }
      }
      auto few = ScheduleAttr::get(op.getContext(), fields);
      if (element.isF16() ? late : few.sumsByProducts(op.getDv()))
        add(fields);
    }
    fields.tileN = tileN;
    fields.mapping = hopper;
    add(fields);
    // Fallback if the consumers of such a block lack the registers.
    if (findsSequences) {
      fields.tileN -= 16;
      add(fields);
    }
  }
  adaptToNarrow(op, candidates);
  return candidates;
}

//===----------------------------------------------------------------------===//
// Requirements
//===----------------------------------------------------------------------===//

/// Returns the number of key loops of a program.
static int64_t countIntervals(AttentionOp op, ScheduleAttr schedule) {
  // The positions of a tile list form one interval.
  if ((op.getAttnMask() || !op.getPerKey().empty()) && schedule.getSplits() == 1)
    return 1;
  SmallVector<IntegerSet> visible = op.getVisibleSets();
  if (visible.size() < 2)
    return visible.size();
  // Compacted keys form one interval.
  if (schedule.compactsKV())
    return 1;
  return TileIntervalPlan(visible, TileAxis::Keys, schedule.getTileN()).size();
}

/// Whether some program of `op` computes the final output, in the operands' type, and can store it
/// by a tensor copy.
static bool storesOutput(AttentionOp op, ScheduleAttr schedule) {
  // The buffer of Q already belongs to the next program, so threads store the output directly.
  if (schedule.getHopper().reusesResidentBuffers())
    return false;
  // Programs over splits store f32. Except in these cases, another program handles the case of a
  // single split.
  bool onlyParts = schedule.getSplits() > 1 &&
                   (op.getAttnMask() || (op.getSinkLogits() && schedule.getPack() > 1));
  TypedValue<ShapedType> o = op.getOInit();
  if (o.getType().getElementType() != op.getElementType())
    return false;
  return !onlyParts && (!isa<MemRefType>(o.getType()) || hasAlignedRows(o));
}

SharedMemoryPlan warpgroups::planSharedMemory(AttentionOp op, ScheduleAttr schedule) {
  HopperAttr hopper = schedule.getHopper();
  int64_t m = schedule.getTileM(), n = schedule.getTileN();
  int64_t d = schedule.padColumns(op.getD()), dv = schedule.padColumns(op.getDv());
  WarpgroupBlock block;
  block.residents = {{"q", m, d}};
  int64_t ones = schedule.sumsByProducts(op.getDv()) ? LoadTileOp::kOnes : 0;
  block.streamed = {makeTileShape("k", n, d, op.hasNarrowKeys()),
                    makeTileShape("v", n, dv, op.hasNarrowValues())};
  block.streamed.back().columns += ones;
  if (isF8(schedule.getDotType()))
    block.streamed = {{"k", n, d}, {"v", dv, n, {n, dv}}};
  if (storesOutput(op, schedule))
    block.outputs = {{"o", m, dv}};
  block.elementBytes = op.getElementType().getIntOrFloatBitWidth() / 8;
  block.consumers = block.programs = hopper.getConsumers();
  block.stages = schedule.getStages();
  block.slots = hopper.getQStages();
  block.claims = hopper.getDynamicScheduler() > 0;
  block.segments = op.getCuSeqlensQ() && !op.getMostQueries();
  // Symbols per key are loaded with V.
  block.rows.assign(op.getPerKey().size(), {n, /*stream=*/1});
  block.intervals = countIntervals(op, schedule);
  return planWarpgroupBlock(block).memory;
}

std::string warpgroups::explainRowRefusal(StringRef name, Value operand) {
  if (!isa<MemRefType>(operand.getType()) || hasAlignedRows(operand))
    return "";
  return llvm::formatv("expected rows of {0} that begin at multiples of 16 bytes, which tensor "
                       "copies require; promise this by 'flashattn.aligned_rows'",
                       name);
}

/// Checks what blocks need that convert elements of 8 bits (F1).
static std::string explainNarrowRefusal(AttentionOpInterface op, ScheduleAttr schedule) {
  if (!op.hasNarrowKeys() && !op.hasNarrowValues())
    return "";
  // The transposed tile of V consists of whole panels.
  if (int64_t n = schedule.getTileN();
      isF8(schedule.getDotType()) && n % getPanelColumns(n, /*elementBytes=*/1) != 0)
    return llvm::formatv("expected tile_n to be 32, 64, 128 or 256 with q of f8 but got {0}", n);
  StringRef what = "k and v of 8 bits";
  if (!op.getPerKey().empty())
    return llvm::formatv("expected no per_key with {0} for warp specialization but got one", what);
  if (schedule.compactsKV())
    return llvm::formatv("expected compact_kv 0 with {0} but got 1", what);
  if (schedule.getHopper().reusesResidentBuffers())
    return llvm::formatv("expected dynamic_scheduler 0 with q_stages 1 and {0} but got {1}", what,
                         schedule.getHopper().getDynamicScheduler());
  return "";
}

std::string warpgroups::explainShapeRefusal(AttentionOpInterface op, ScheduleAttr schedule,
                                            const Machine &machine) {
  HopperAttr hopper = schedule.getHopper();
  int64_t n = schedule.getTileN(), consumers = hopper.getConsumers();
  if (!machine.hasWarpgroups())
    return llvm::formatv("expected chip {0} for warp specialization but got {1}",
                         listChips(ChipInfo::kWarpgroups), machine.getName());
  if (op.getElementType().isF32())
    return "expected element type f16, bf16 or f8E4M3FN for wgmma but got f32";
  if (n % 16 != 0 || n > 256)
    return llvm::formatv("expected tile_n to be a multiple of 16 up to 256 but got {0}", n);
  if (hidesEveryPair(op.getVisibleSets(), op.getStaticQueries(), op.getStaticKeys()))
    return "expected a mask that shows at least one key but got one that hides all";
  for (auto [name, operand] :
       {std::pair("q", op.getQ()), std::pair("k", op.getK()), std::pair("v", op.getV())})
    if (std::string reason = explainRowRefusal(name, operand); !reason.empty())
      return reason;
  if (std::string reason = explainNarrowRefusal(op, schedule); !reason.empty())
    return reason;
  if (op.hasPages()) {
    // A copy fills whole periods of a swizzle.
    constexpr int64_t kPeriod = 8;
    int64_t size = op.getK().getType().getDimSize(op.getSeqDim());
    if (size % kPeriod != 0)
      return llvm::formatv("expected a page size of a multiple of {0} for warp specialization but "
                           "got {1}",
                           kPeriod, size);
    if (op.getLeftpadK())
      return "expected no leftpad_k in pages with warp specialization but got one";
  }
  if (hopper.getAlong() != ProgramAxis::Head)
    return "";
  int64_t heads = op.getQ().getType().getDimSize(op.getHeadDim());
  int64_t kvHeads = op.getK().getType().getDimSize(op.getHeadDim());
  if (!ShapedType::isDynamic(heads) && !ShapedType::isDynamic(kvHeads) && kvHeads != 0 &&
      llvm::divideCeil(heads / kvHeads, schedule.getPack()) % consumers == 0)
    return "";
  return llvm::formatv(
      "expected a static number of query heads for each key/value head that is a "
      "multiple of {0}, the number of consumers{1}",
      consumers,
      schedule.getPack() == 1
          ? ""
          : llvm::formatv(", in units of {0} packed heads", schedule.getPack()).str());
}

std::string warpgroups::explainRegisterRefusal(AttentionOpInterface op, ScheduleAttr schedule,
                                               ArrayRef<Need> needs) {
  HopperAttr hopper = schedule.getHopper();
  int64_t n = schedule.getTileN(), consumers = hopper.getConsumers(), dv = op.getDv();
  if (std::string reason =
          explainNeeds("registers per thread", needs, hopper.getRegisters(), "that a consumer has");
      !reason.empty())
    return reason;
  // All threads of a block are allocated the same number of registers, in units of 8, and then
  // redistribute them.
  constexpr int64_t kRegisterFile = 65536, kMostOfThread = 255 / 8 * 8;
  int64_t warpgroups = consumers + 1;
  int64_t each = kRegisterFile / (hopper.getBlocksPerSM() * kThreads * warpgroups) / 8 * 8;
  int64_t given = kThreads * warpgroups * std::min(each, kMostOfThread);
  int64_t all = kThreads * (consumers * hopper.getRegisters() + hopper.getProducerRegisters());
  if (all > given)
    return llvm::formatv("expected at most {1} registers for a block but got {0}", all, given);
  // ptxas compiles each instruction for this number, regardless of what setmaxnreg sets.
  constexpr int64_t kBeside = 30;
  int64_t ones = schedule.sumsByProducts(dv) ? LoadTileOp::kOnes : 0;
  int64_t widest = std::max<int64_t>(llvm::alignTo(dv, 16) + ones, n);
  return explainNeeds(
      "registers per thread", {{"product", widest / 2}, {"other", kBeside}}, each,
      llvm::formatv("available to {0} blocks at launch", hopper.getBlocksPerSM()).str());
}

std::string warpgroups::explainMemoryRefusal(const SharedMemoryPlan &plan, ScheduleAttr schedule,
                                             const Machine &machine) {
  // The system reserves 1 KiB for each block (CUDA programming guide), which the limit of a block
  // already excludes for the first block.
  constexpr int64_t kSystem = 1024;
  return plan.explainRefusal((machine.getSharedMemoryPerBlock() + kSystem) /
                                 schedule.getHopper().getBlocksPerSM() -
                             kSystem);
}

std::string warpgroups::explainTileRefusal(ScheduleAttr schedule) {
  int64_t m = schedule.getTileM(), consumers = schedule.getConsumers();
  if (!schedule.sharesProgram())
    return m == kRows
               ? ""
               : llvm::formatv("expected tile_m 64, the rows of a warpgroup, but got {0}", m).str();
  return m == kRows * consumers
             ? ""
             : llvm::formatv("expected tile_m {0}, 64 rows for each of {1} cooperative consumers, "
                             "but got {2}",
                             kRows * consumers, consumers, m)
                   .str();
}

/// Returns what reads the indices of a pair in addition to the mask; empty if nothing does.
static StringRef findReaderOfNumbers(AttentionOpInterface op) {
  return op.hasScoreMod()         ? "a score_mod"
         : op.getBias()           ? "a bias"
         : op.getAttnMask()       ? "an attn_mask"
         : op.hasVaryingSymbols() ? "symbols of the mask per query or key"
                                  : "";
}

/// Checks `lazy_rescale`: the scores must be computable again from two tiles alone, and the sum of
/// the probabilities of a lane must not exceed the threshold if all of them are 1.
static std::string explainLazyRefusal(AttentionOp op, ScheduleAttr schedule) {
  if (!schedule.getHopper().getLazyRescale())
    return "";
  // Consumers lack the registers for the pages of each set.
  bool isDivided = op.hasPages() && op.getVisibleSets().size() > 1;
  StringRef shape = op.getSoftcap() ? "a softcap"
                    : isDivided     ? "pages and a mask of several sets"
                                    : findReaderOfNumbers(op);
  if (!shape.empty())
    return llvm::formatv("expected lazy_rescale 0 with {0} but got 1", shape);
  int64_t least = llvm::Log2_64_Ceil(schedule.getTileN() / schedule.getThreadsPerRow()) + 1;
  if (schedule.getHopper().getRescaleThreshold() < least)
    return llvm::formatv(
        "expected a rescale_threshold of at least {0} with lazy_rescale and tile_n {1} but got {2}",
        least, schedule.getTileN(), schedule.getHopper().getRescaleThreshold());
  return "";
}

std::string warpgroups::explainCompactRefusal(AttentionOpInterface op, ScheduleAttr schedule) {
  if (!schedule.compactsKV())
    return "";
  StringRef other = findReaderOfNumbers(op);
  if (other.empty() && op.hasOwnSequences())
    other = op.getKvLen()             ? "a kv_len"
            : op.getQLen()            ? "a q_len"
            : op.hasPackedSequences() ? "packed sequences"
            : op.getOffsets()         ? "an offset of each batch"
                                      : "symbols of the mask per sequence";
  if (!other.empty())
    return llvm::formatv(
        "expected compact_kv 0 with {0}, which depends on the key's position, but got 1", other);
  return "";
}

std::string warpgroups::explainRefusal(AttentionOp op, ScheduleAttr schedule,
                                       const Machine &machine) {
  if (schedule.sharesProgram())
    return "expected cooperative 0 outside a backward pass but got 1";
  if (machine.hasWarpgroups() && !op.getElementType().isF32())
    if (std::string reason = explainTileRefusal(schedule); !reason.empty())
      return reason;
  if (std::string reason = explainShapeRefusal(op, schedule, machine); !reason.empty())
    return reason;
  if (std::string reason =
          explainMemoryRefusal(warpgroups::planSharedMemory(op, schedule), schedule, machine);
      !reason.empty())
    return reason;
  int64_t rescale = schedule.getHopper().getRescaleThreshold();
  if (op.getElementType().isBF16() && rescale > ScheduleAttr::kMostAdded &&
      !schedule.sumsByProducts(op.getDv()))
    return llvm::formatv(
        "expected a rescale_threshold of at most {0} for bf16, or a Dv of 64, 128 or 192, "
        "but got {1} and Dv {2}",
        ScheduleAttr::kMostAdded, rescale, op.getDv());
  for (const std::string &reason :
       {explainLazyRefusal(op, schedule), explainCompactRefusal(op, schedule)})
    if (!reason.empty())
      return reason;
  if (int64_t blocks = schedule.getSmallBlocksPerSM())
    if (std::string reason = warpgroups::explainRefusal(op, schedule.withSmallBlocks(), machine);
        !reason.empty())
      return llvm::formatv("in {0} small blocks: {1}", blocks, reason);
  // The values of the next tile arrive with its values V, before those of this tile are read.
  if (!op.getPerKey().empty() && schedule.getStages() < 2)
    return llvm::formatv("expected stages to be at least 2 with per_key but got {0}",
                         schedule.getStages());
  if (schedule.compactsKV() && schedule.getSplits() > 1)
    return llvm::formatv("expected splits 1 with compact_kv but got {0}", schedule.getSplits());
  if (int64_t stages = schedule.getHopper().getDqReduceStages())
    return llvm::formatv("expected dq_reduce_stages 0 in a forward pass but got {0}", stages);
  HopperAttr hopper = schedule.getHopper();
  if (StringRef other = op.getAttnMask()          ? "an attn_mask"
                        : !op.getPerKey().empty() ? "per_key"
                        : schedule.compactsKV()   ? "compact_kv"
                                                  : "";
      hopper.reusesResidentBuffers() && !other.empty())
    return llvm::formatv("expected dynamic_scheduler 0 with q_stages 1 and {0} but got {1}", other,
                         hopper.getDynamicScheduler());
  // The output, two tiles of scores (one as probabilities P), Q, other inputs of the scores, and
  // addresses.
  int64_t n = schedule.getTileN();
  int64_t held = std::min(schedule.getHopper().getQRegisterColumns(), op.getD());
  int64_t other = (isF8(schedule.getDotType()) ? 24 : 28) + (op.getBias() ? n / 4 : 0) +
                  (op.getAttnMask() ? n : 0);
  if (schedule.sumsByProducts(op.getDv()))
    other += LoadTileOp::kOnes / 2;
  int64_t sums = isF8(schedule.getDotType()) ? hopper::getSumColumns(op.getDv()) / 2 : 0;
  return explainRegisterRefusal(op, schedule,
                                {{"o", op.getDv() / 2},
                                 {"tile's o", sums},
                                 {"scores", n / 2},
                                 {"weights", n * schedule.getDotType().getWidth() / 64},
                                 {"queries", held / 4},
                                 {"other", other}});
}
