//===- Schedules.cpp - schedules with roles ---------------------------------===//
//
// Blocks of warpgroups: one brings tiles by tensor copies, the others multiply by wgmma.
//
//===----------------------------------------------------------------------===//

#include "Fields.h"
#include "flashattn/Analysis/MaskShape.h"
#include "flashattn/Analysis/MaskTiles.h"
#include "mlir/Analysis/FlatLinearValueConstraints.h"
#include "llvm/Support/FormatVariadic.h"

using namespace mlir;
using namespace mlir::flashattn;
using namespace mlir::flashattn::warpgroups;

static constexpr int64_t kThreads = 128;
static constexpr int64_t kDecodeSplits = 128;
static constexpr int64_t kAnyWidth = std::numeric_limits<int64_t>::max();

namespace {
/// A schedule for a class of masks and head dimensions.
struct RolesRow {
  MaskShape shape;
  int64_t maxWidth, maxD, tileN, stages, consumers, registers, producerRegisters, section, blocks,
      queryStages, claimsBelow, pack;
};
struct DecodeRow {
  int64_t maxD, tileN, stages, registers, producerRegisters, blocks;
};
} // namespace

static constexpr RolesRow kRolesTable[] = {
#define ROLES(shape, ...) {MaskShape::shape, __VA_ARGS__},
#include "Schedules.def"
};
static constexpr DecodeRow kDecodeTable[] = {
#define DECODE(...) {__VA_ARGS__},
#include "Schedules.def"
};

//===----------------------------------------------------------------------===//
// Candidates
//===----------------------------------------------------------------------===//

/// Heads whose few queries fill a tile: all of a group, where its size is known.
static int64_t getDecodePack(AttentionOp op) {
  constexpr int64_t kMaxPack = 16;
  // explainRefusal says why.
  if (!op.findInputOfHeads(/*inParts=*/true).empty())
    return 1;
  int64_t queries = op.getQ().getType().getDimSize(op.getSeqDim());
  int64_t pack =
      std::min<int64_t>(kMaxPack, kRows / llvm::PowerOf2Ceil(std::max<int64_t>(queries, 1)));
  int64_t heads = op.getQ().getType().getDimSize(op.getHeadDim());
  int64_t kvHeads = op.getK().getType().getDimSize(op.getHeadDim());
  if (!ShapedType::isDynamic(heads) && !ShapedType::isDynamic(kvHeads) && kvHeads > 0)
    pack = std::min<int64_t>(pack, llvm::PowerOf2Ceil(std::max<int64_t>(heads / kvHeads, 1)));
  return pack;
}

ScheduleFields warpgroups::makeFields(int64_t tileN, int64_t stages, int64_t pack,
                                      const RolesFields &roles, FloatType element) {
  ScheduleFields fields;
  fields.tileM = kRows;
  fields.tileN = tileN;
  fields.warps = kWarps;
  fields.stages = stages;
  fields.dotType = element;
  fields.pack = pack;
  fields.roles = roles;
  return fields;
}

Candidates warpgroups::getCandidates(AttentionOp op) {
  FloatType element = op.getElementType();
  int64_t d = std::max(op.getD(), op.getDv());
  Candidates candidates;
  RolesFields roles;
  roles.rescale = getDefaultRescale(element);
  if (isDecode(op))
    for (const DecodeRow &row : kDecodeTable)
      if (d <= row.maxD) {
        roles.registers = row.registers;
        roles.producerRegisters = row.producerRegisters;
        roles.blocks = row.blocks;
        ScheduleFields fields =
            makeFields(row.tileN, row.stages, getDecodePack(op), roles, element);
        fields.splits = kDecodeSplits;
        candidates.push_back(ScheduleAttr::get(op.getContext(), fields));
      }
  MaskClass mask = classifyMask(op.getVisibleSets());
  for (const RolesRow &row : kRolesTable) {
    if (row.shape != mask.shape || d > row.maxD || mask.width.value_or(0) > row.maxWidth ||
        op.getKnownGroup() % row.pack != 0)
      continue;
    roles.consumers = row.consumers;
    roles.registers = row.registers;
    roles.producerRegisters = row.producerRegisters;
    roles.section = row.section;
    roles.blocks = row.blocks;
    roles.queryStages = row.queryStages;
    roles.claimsBelow = row.claimsBelow;
    ScheduleFields fields = makeFields(row.tileN, row.stages, row.pack, roles, element);
    // With few rescalings first: in bf16 where sums of rows can be products, which take registers
    // of which several blocks have none to spare. Judged late 2 to 8 % faster on an H200, in bf16
    // with narrower tiles; but with D = 128 as fast in bf16, and with 256, whose products hide all
    // of it, in f16 too.
    bool late = d <= (element.isF16() ? 128 : 64);
    if (row.blocks == 1) {
      constexpr int64_t kWidest = 96;
      fields.roles->rescale = late ? kLateRescale : kFewRescales;
      fields.roles->lateRescale = late;
      if (late && element.isBF16())
        fields.tileN = std::min(fields.tileN, kWidest);
      auto few = ScheduleAttr::get(op.getContext(), fields);
      if (element.isF16() ? late : few.sumsByProducts(op.getDv()))
        candidates.push_back(few);
    }
    fields.tileN = row.tileN;
    fields.roles->rescale = roles.rescale;
    fields.roles->lateRescale = 0;
    candidates.push_back(ScheduleAttr::get(op.getContext(), fields));
  }
  return candidates;
}

//===----------------------------------------------------------------------===//
// Needs
//===----------------------------------------------------------------------===//

/// Whether the mask shows some pair of the lengths that are known.
static bool hasVisiblePair(AttentionOpInterface op) {
  int64_t lengths[] = {op.getQ().getType().getDimSize(op.getSeqDim()),
                       op.getK().getType().getDimSize(op.getSeqDim())};
  return llvm::any_of(op.getVisibleSets(), [&](IntegerSet set) {
    FlatLinearValueConstraints pairs(set);
    pairs.addBound(presburger::BoundType::LB, /*pos=*/1, 0);
    SmallVector<int64_t> belowEnd(pairs.getNumCols(), 0); // k < nk
    belowEnd[1] = -1;
    belowEnd[3] = 1;
    belowEnd.back() = -1;
    pairs.addInequality(belowEnd);
    for (auto [i, length] : llvm::enumerate(lengths)) {
      if (ShapedType::isDynamic(length))
        pairs.addBound(presburger::BoundType::LB, 2 + i, 0);
      else
        pairs.addBound(presburger::BoundType::EQ, 2 + i, length);
    }
    return !pairs.isIntegerEmpty();
  });
}

/// Key loops of a program.
static int64_t countIntervals(AttentionOp op, ScheduleAttr schedule) {
  // A list's places are one.
  if (op.getKeep() && schedule.getSplits() == 1)
    return 1;
  SmallVector<IntegerSet> visible = op.getVisibleSets();
  if (visible.size() < 2)
    return visible.size();
  return TileIntervalPlan(visible, TileAxis::Keys, schedule.getTileN()).size();
}

/// Whether some program of `op` has the output itself, of the operands' type, and where it may go
/// by a tensor copy.
static bool storesOutput(AttentionOp op, ScheduleAttr schedule) {
  // Programs over parts leave f32; but where all keys are one part there is one that does not.
  bool onlyParts =
      schedule.getSplits() > 1 && (op.getKeep() || (op.getSinkLogits() && schedule.getPack() > 1));
  Value o = op.getOInit();
  return !onlyParts && (!isa<MemRefType>(o.getType()) || hasAlignedRows(o));
}

SharedMemoryPlan warpgroups::planSharedMemory(AttentionOp op, ScheduleAttr schedule) {
  RolesAttr roles = schedule.getRoles();
  int64_t m = schedule.getTileM(), n = schedule.getTileN();
  int64_t d = llvm::alignTo(op.getD(), 16), dv = llvm::alignTo(op.getDv(), 16);
  WarpgroupBlock block;
  block.residents = {{"q", m, d}};
  int64_t ones = schedule.sumsByProducts(op.getDv()) ? LoadTileOp::kOnes : 0;
  block.streamed = {{"k", n, d}, {"v", n, dv + ones}};
  if (storesOutput(op, schedule))
    block.outputs = {{"o", m, dv}};
  block.elementBytes = op.getElementType().getIntOrFloatBitWidth() / 8;
  block.consumers = block.programs = roles.getConsumers();
  block.stages = schedule.getStages();
  block.slots = roles.getQueryStages();
  block.intervals = countIntervals(op, schedule);
  return planWarpgroupBlock(block).memory;
}

/// What tensor copies ask of an operand.
static std::string explainRowRefusal(StringRef name, Value operand) {
  if (!isa<MemRefType>(operand.getType()) || hasAlignedRows(operand))
    return "";
  return llvm::formatv("expected rows of {0} that begin at multiples of 16 bytes, as tensor copies "
                       "take them; promise them with 'flashattn.aligned_rows'",
                       name);
}

/// What the shapes of the op and the schedule must be.
static std::string explainShapeRefusal(AttentionOpInterface op, ScheduleAttr schedule,
                                       const Machine &machine) {
  RolesAttr roles = schedule.getRoles();
  int64_t n = schedule.getTileN(), consumers = roles.getConsumers();
  if (!machine.hasWarpgroups())
    return llvm::formatv("expected chip {0} for roles but got {1}",
                         listChips(ChipInfo::kWarpgroups), machine.getName());
  if (op.getElementType().isF32())
    return "expected elements of f16 or bf16, as wgmma has them, but got f32";
  if (n % 16 != 0 || n > 256)
    return llvm::formatv("expected tile_n to be a multiple of 16 up to 256 but got {0}", n);
  if (!hasVisiblePair(op))
    return "expected a key that some query sees, for a producer to bring, but there is none";
  for (auto [name, operand] :
       {std::pair("q", op.getQ()), std::pair("k", op.getK()), std::pair("v", op.getV())})
    if (std::string reason = explainRowRefusal(name, operand); !reason.empty())
      return reason;
  if (roles.getAlong() != ProgramAxis::Head)
    return "";
  int64_t heads = op.getQ().getType().getDimSize(op.getHeadDim());
  int64_t kvHeads = op.getK().getType().getDimSize(op.getHeadDim());
  if (!ShapedType::isDynamic(heads) && !ShapedType::isDynamic(kvHeads) && kvHeads != 0 &&
      llvm::divideCeil(heads / kvHeads, schedule.getPack()) % consumers == 0)
    return "";
  return llvm::formatv(
      "expected a static number of query heads to a key/value head that is a multiple of {0} "
      "consumers{1}",
      consumers,
      schedule.getPack() == 1
          ? ""
          : llvm::formatv(" of {0} packed heads each", schedule.getPack()).str());
}

/// Registers of the consumers, of which they need `needs`, and of the block.
static std::string explainRegisterRefusal(AttentionOpInterface op, ScheduleAttr schedule,
                                          ArrayRef<Need> needs) {
  RolesAttr roles = schedule.getRoles();
  int64_t n = schedule.getTileN(), consumers = roles.getConsumers(), dv = op.getDv();
  if (std::string reason =
          explainNeeds("registers a thread", needs, roles.getRegisters(), "that consumers have");
      !reason.empty())
    return reason;
  // A block gets registers for all of its threads alike, in eights, and shares them out.
  constexpr int64_t kRegisterFile = 65536, kMostOfThread = 255 / 8 * 8;
  int64_t warpgroups = consumers + 1;
  int64_t each = kRegisterFile / (roles.getBlocks() * kThreads * warpgroups) / 8 * 8;
  int64_t given = kThreads * warpgroups * std::min(each, kMostOfThread);
  int64_t all = kThreads * (consumers * roles.getRegisters() + roles.getProducerRegisters());
  if (all > given)
    return llvm::formatv("needs {0} registers a block of {1} available", all, given);
  // ptxas compiles every instruction for that number, whatever setmaxnreg gives a consumer.
  constexpr int64_t kBeside = 30;
  int64_t ones = schedule.sumsByProducts(dv) ? LoadTileOp::kOnes : 0;
  int64_t widest = std::max<int64_t>(llvm::alignTo(dv, 16) + ones, n);
  return explainNeeds("registers a thread", {{"product", widest / 2}, {"other", kBeside}}, each,
                      llvm::formatv("that {0} blocks begin with", roles.getBlocks()).str());
}

/// Whether a block finds room for `plan`.
static std::string explainMemoryRefusal(const SharedMemoryPlan &plan, ScheduleAttr schedule,
                                        const Machine &machine) {
  // Each block beside the first has a KiB of the system's own (CUDA programming guide).
  constexpr int64_t kSystem = 1024;
  return plan.explainRefusal(
      (machine.getSharedMemoryPerBlock() + kSystem) / schedule.getRoles().getBlocks() - kSystem);
}

/// A tile of rows of one warpgroup, or that `most` of them share.
static std::string explainTileRefusal(ScheduleAttr schedule, int64_t most) {
  int64_t m = schedule.getTileM();
  if ((m == kRows || m == kRows * most) && schedule.getWarps() == kWarps * m / kRows)
    return "";
  if (most == 1)
    return llvm::formatv("expected tile_m 64 and 4 warps, the rows and warps of a warpgroup, but "
                         "got {0} and {1}",
                         m, schedule.getWarps());
  return llvm::formatv(
      "expected tile_m 64 and 4 warps, the rows and warps of a warpgroup, or as many "
      "for each of {0} consumers, but got {1} and {2}",
      most, m, schedule.getWarps());
}

/// What judging a tile by its weights asks: that its scores can be made again of two tiles, and
/// that as many weights as a lane sums up do not exceed what they may when they are all 1.
static std::string explainLateRefusal(AttentionOp op, ScheduleAttr schedule) {
  if (!schedule.getRoles().getLateRescale())
    return "";
  StringRef shape = op.getSoftcap()    ? "a softcap"
                    : op.hasScoreMod() ? "a score_mod"
                    : op.getBias()     ? "a bias"
                    : op.getKeep()     ? "a keep"
                                       : "";
  if (!shape.empty())
    return llvm::formatv(
        "expected late_rescale 0 where more than the mask shapes scores, but there "
        "is {0}",
        shape);
  int64_t least = llvm::Log2_64_Ceil(schedule.getTileN() / schedule.getLanes()) + 1;
  if (schedule.getRoles().getRescale() < least)
    return llvm::formatv(
        "expected rescale of {0} or more with late_rescale and tile_n {1}, as equal "
        "scores would be made again at every tile, but got {2}",
        least, schedule.getTileN(), schedule.getRoles().getRescale());
  return "";
}

std::string warpgroups::explainRefusal(AttentionOp op, ScheduleAttr schedule,
                                       const Machine &machine) {
  if (machine.hasWarpgroups() && !op.getElementType().isF32())
    if (std::string reason = explainTileRefusal(schedule, 1); !reason.empty())
      return reason;
  if (std::string reason = explainShapeRefusal(op, schedule, machine); !reason.empty())
    return reason;
  if (std::string reason =
          explainMemoryRefusal(warpgroups::planSharedMemory(op, schedule), schedule, machine);
      !reason.empty())
    return reason;
  int64_t rescale = schedule.getRoles().getRescale();
  if (op.getElementType().isBF16() && rescale > 1 && !schedule.sumsByProducts(op.getDv()))
    return llvm::formatv("expected rescale up to 1 for bf16, or Dv 64, 128 or 192, where sums of "
                         "rows are products and make up for what large weights lose, but got {0} "
                         "and Dv {1}",
                         rescale, op.getDv());
  if (std::string reason = explainLateRefusal(op, schedule); !reason.empty())
    return reason;
  if (int64_t stages = schedule.getRoles().getAddStages())
    return llvm::formatv(
        "expected add_stages 0 but for gradients, whose programs may add sums, but "
        "got {0}",
        stages);
  // The output, two tiles of scores, one of them as weights, what is loaded for them, and what
  // addresses all.
  int64_t n = schedule.getTileN();
  int64_t other = 30 + (op.getBias() ? n / 4 : 0) + (op.getKeep() ? n : 0);
  if (schedule.sumsByProducts(op.getDv()))
    other += LoadTileOp::kOnes / 2;
  return explainRegisterRefusal(
      op, schedule,
      {{"o", op.getDv() / 2}, {"scores", n / 2}, {"weights", n / 4}, {"other", other}});
}

//===----------------------------------------------------------------------===//
// Gradients
//===----------------------------------------------------------------------===//

Candidates warpgroups::getCandidates(AttentionBackwardOp op) {
  Candidates candidates;
  RolesFields roles;
  roles.consumers = 2;
  roles.registers = 240;
  roles.producerRegisters = 24;
  auto add = [&](int64_t m, int64_t n, int64_t stages, bool apart = false, bool splits = false) {
    ScheduleFields fields = makeFields(n, stages, /*pack=*/1, roles, op.getElementType());
    fields.tileM = m;
    if (apart)
      fields.apart = true;
    fields.warps = kWarps * (splits ? roles.consumers : m / kRows);
    candidates.push_back(ScheduleAttr::get(op.getContext(), fields));
  };
  MaskClass mask = classifyMask(op.getVisibleSets());
  // Heads at once under a causal mask, whose keys and values the L2 cache has room for: on an H100
  // with D = 64 16 of them 482 TFLOP/s, 4 474; with 4 query heads to a group and D = 128 2 groups
  // 578, 4 541, 16 454. In turns (B4) a program is at a tile of queries where the one of the keys
  // before it has left that, and with many heads few wait: of these 16 groups 538, 4 468.
  constexpr int64_t kHeads = 16, kNarrowest = 64;
  int64_t widest = std::max(op.getD(), op.getDv());
  int64_t heads = kHeads / llvm::divideCeil(widest, kNarrowest);
  if (mask.shape == MaskShape::Triangular)
    roles.section =
        op.getDeterministic() ? kHeads : std::max<int64_t>(1, heads / op.getKnownGroup());
  // Programs of bands are so short that the first tiles' way to who adds and back shows: 2 to 5 %
  // slower on an H100. Elsewhere it is 2 to 5 % faster, and up to 6 % under a causal mask.
  bool byOthers = op.getDeterministic() || mask.shape != MaskShape::Banded;
  // Whose turn it is would be a fourth number of each query where a bias' gradient has the third.
  if (!op.getDeterministic() || !op.getDBiasInit()) {
    roles.addStages = byOthers ? 2 : 0;
    add(2 * kRows, 2 * kRows, 2);
    roles.addStages = byOthers ? 1 : 0;
    add(2 * kRows, kRows, 3);
    roles.addStages = 0;
  }
  if (mask.shape == MaskShape::Triangular)
    roles.section = 4;
  // Sums of wide heads do not fit one warpgroup. Split, those of dq come in any order (B4).
  // With D = 256 on an H200 443 TFLOP/s where three kernels make 367, causal 414 and 368.
  constexpr int64_t kNarrow = 128;
  bool isWide = widest > kNarrow;
  if (isWide && !op.getDeterministic())
    add(kRows, kRows, 2, /*apart=*/false, /*splits=*/true);
  add(kRows, kRows, 2);
  // Measured with D = 256 on an H200: 48 queries a step are 2 to 4 % faster than 32. The intervals
  // of bands leave no registers for them.
  if (mask.shape != MaskShape::Banded && isWide)
    add(kRows, 3 * kRows / 4, 2, /*apart=*/true);
  add(kRows, kRows / 2, 3, /*apart=*/true);
  return candidates;
}

/// Columns of dq that a consumer adds at once where they split sums.
static constexpr int64_t kColumnsAdded = 32;

/// The memory of the programs over key tiles, and of those over query tiles.
static SmallVector<SharedMemoryPlan> planGradients(AttentionBackwardOp op, ScheduleAttr schedule) {
  RolesAttr roles = schedule.getRoles();
  int64_t m = schedule.getTileM(), n = schedule.getTileN();
  int64_t d = llvm::alignTo(op.getD(), 16), dv = llvm::alignTo(op.getDv(), 16);
  WarpgroupBlock block;
  block.elementBytes = op.getElementType().getIntOrFloatBitWidth() / 8;
  block.consumers = roles.getConsumers();
  block.programs = schedule.sharesProgram() ? 1 : block.consumers;
  block.stages = schedule.getStages();
  block.slots = roles.getQueryStages();
  SmallVector<IntegerSet> visible = op.getVisibleSets();
  SmallVector<SharedMemoryPlan> plans;
  // A program: what it keeps and what passes, its outputs, and whether its rows are keys.
  auto plan = [&](ArrayRef<TileShape> residents, ArrayRef<TileShape> streamed,
                  ArrayRef<std::pair<TileShape, Value>> outputs, bool overKeys) {
    block.residents.assign(residents.begin(), residents.end());
    block.streamed.assign(streamed.begin(), streamed.end());
    block.outputs.clear();
    for (const auto &[tile, memref] : outputs)
      if (!isa<MemRefType>(memref.getType()) || hasAlignedRows(memref))
        block.outputs.push_back(tile);
    // What a query's scores are taken against, and what is subtracted from its gradients.
    block.rows.assign(overKeys ? residents.size() : 0, streamed.front().rows);
    if (schedule.sharesProgram()) {
      block.exchanged = {{"ds", m, n}};
      block.added = n * d;
    }
    block.addStages = overKeys ? roles.getAddStages() : 0;
    block.passes = schedule.splitsSums();
    if (block.passes)
      block.added = kColumnsAdded * n * roles.getConsumers();
    TileAxis axis = overKeys ? TileAxis::Queries : TileAxis::Keys;
    block.intervals = TileIntervalPlan(visible, axis, streamed.front().rows).size();
    plans.push_back(planWarpgroupBlock(block).memory);
  };
  TileShape k{"k", m, d}, v{"v", m, dv}, q{"q", n, d}, dO{"d_o", n, dv};
  std::pair<TileShape, Value> dk{{"dk", m, d}, op.getDkInit()}, dV{{"dv", m, dv}, op.getDvInit()};
  if (schedule.getApart().value_or(false)) {
    ScheduleAttr ofValues = op.getKeep() ? schedule : schedule.forValues();
    int64_t wide = ofValues.getTileN();
    block.stages = ofValues.getStages();
    plan(k, {{"q", wide, d}, {"d_o", wide, dv}}, dV, /*overKeys=*/true);
    block.stages = schedule.getStages();
    plan({k, v}, {q, dO}, dk, /*overKeys=*/true);
  } else {
    plan({k, v}, {q, dO}, {dk, dV}, /*overKeys=*/true);
  }
  if (!schedule.splitsSums())
    plan({{"q", m, d}, {"d_o", m, dv}}, {{"k", n, d}, {"v", n, dv}},
         {{{"dq", m, d}, op.getDqInit()}}, /*overKeys=*/false);
  return plans;
}

/// Whether those that add to a tile of queries are all tiles of keys from the first to the last
/// that it sees: then each knows who comes before it.
static bool canTakeTurns(AttentionBackwardOp op, ScheduleAttr schedule) {
  SmallVector<IntegerSet> visible = op.getVisibleSets();
  auto isPlain = [&](TileAxis axis, int64_t tile) {
    TileIntervalPlan plan(visible, axis, tile);
    return plan.size() == 1 && plan.isExact();
  };
  return !op.getKeep() && isPlain(TileAxis::Keys, schedule.getTileM()) &&
         isPlain(TileAxis::Queries, schedule.getTileN());
}

/// Who adds shares of dq: spare warps where consumers share a program, and must where it is done in
/// turns.
static std::string explainAddRefusal(AttentionBackwardOp op, ScheduleAttr schedule) {
  bool canAdd = schedule.addsQueries() && !schedule.splitsSums();
  int64_t stages = schedule.getRoles().getAddStages();
  if (stages && !canAdd)
    return llvm::formatv(
        "expected add_stages 0 where consumers do not share a program, or split its "
        "sums, but got {0}",
        stages);
  if (!stages && canAdd && op.getDeterministic())
    return "expected add_stages 1 or 2 where sums must be deterministic, but got 0: consumers do "
           "not "
           "wait for their turn to add";
  return "";
}

/// What consumers that split the sums of a program ask beside room for them.
static std::string explainSplitRefusal(AttentionBackwardOp op, ScheduleAttr schedule) {
  RolesAttr roles = schedule.getRoles();
  constexpr int64_t kSums = 2;
  if (schedule.getTileM() != kRows || schedule.getTileN() != kRows ||
      roles.getConsumers() != kSums || schedule.getWarps() != kSums * kWarps)
    return llvm::formatv(
        "expected tile_m 64, tile_n 64 and 8 warps for 2 consumers that split sums "
        "but got {0}, {1} and {2} for {3}",
        schedule.getTileM(), schedule.getTileN(), schedule.getWarps(), roles.getConsumers());
  if (roles.getQueryStages() != 1)
    return llvm::formatv("expected query_stages 1 where consumers split sums but got {0}",
                         roles.getQueryStages());
  if (op.getDeterministic())
    return "expected no sums that must be deterministic where consumers split them, for their "
           "programs add those of queries in any order";
  // Each has whole panels of 64 columns.
  if (op.getD() % kRows != 0 || op.getD() < kSums * kRows)
    return llvm::formatv("expected D to be a multiple of 64 from 128 on where consumers split sums "
                         "but got {0}",
                         op.getD());
  return "";
}

/// Registers that a thread needs where consumers split sums: its own; scores with what they are
/// made of or, at another time, its part of dq; and a tile of operands, or two where what is passed
/// on has slopes.
static SmallVector<Need> findSplitNeeds(AttentionBackwardOp op, ScheduleAttr schedule) {
  int64_t n = schedule.getTileN();
  bool hasSlopes = op.getSoftcap() || (op.hasScoreMod() && !op.addsToScore());
  int64_t scores = n / 2 + (hasSlopes ? n / 2 : 0) + (op.getKeep() ? n / 4 : 0);
  if (op.getBias())
    scores += n / 64 * getElementTypeOrSelf(op.getBias()).getIntOrFloatBitWidth();
  int64_t added = llvm::divideCeil(op.getD() / kRows, 2) * kRows / 2;
  return {{"dk or dv", std::max(op.getD(), op.getDv()) / 2},
          {"scores or dq", std::max(scores, added)},
          {"weights", n / (hasSlopes ? 2 : 4)},
          {"other", 30}};
}

std::string warpgroups::explainRefusal(AttentionBackwardOp op, ScheduleAttr schedule,
                                       const Machine &machine) {
  if (std::string reason = explainShapeRefusal(op, schedule, machine); !reason.empty())
    return reason;
  if (std::string reason = explainRowRefusal("d_o", op.getDO()); !reason.empty())
    return reason;
  if (std::string reason = schedule.splitsSums()
                               ? explainSplitRefusal(op, schedule)
                               : explainTileRefusal(schedule, schedule.getRoles().getConsumers());
      !reason.empty())
    return reason;
  if (schedule.getRoles().getLateRescale())
    return "expected late_rescale 0 for gradients, which have no maxima to judge";
  // The last product of a step runs beside the first one of the next, and both read such a tile.
  if (schedule.getStages() < 2 && !schedule.splitsSums())
    return llvm::formatv("expected 2 stages or more, of which a step and the one before it read a "
                         "tile each, but got {0}",
                         schedule.getStages());
  if (schedule.sharesProgram() && schedule.getApart().value_or(false))
    return "expected no apart where consumers share a program";
  if (op.getDeterministic() && schedule.sharesProgram() && !canTakeTurns(op, schedule))
    return "expected tile_m 64 where sums must be deterministic, but under a mask of one interval "
           "whose tiles are exact and without a keep: only then do programs that add theirs know "
           "whose turn it is";
  if (std::string reason = explainAddRefusal(op, schedule); !reason.empty())
    return reason;
  // Where programs have more keys than a step has queries, these are rows of a product, dq's.
  int64_t m = schedule.getTileM(), n = schedule.getTileN();
  if (schedule.sharesProgram() && m > n && (n % kRows != 0 || m % n != 0))
    return llvm::formatv("expected tile_n to be a multiple of 64 that divides tile_m, or no less "
                         "than it, but got {0} and {1}",
                         n, m);
  if (schedule.sharesProgram() && n > m)
    return llvm::formatv(
        "expected tile_n up to tile_m, {0}, where consumers share a program but got "
        "{1}",
        m, n);
  // And each consumer has some of its columns.
  if (int64_t parts = m / n;
      schedule.sharesProgram() && parts > 1 && op.getD() % (kRows * parts) != 0)
    return llvm::formatv(
        "expected D to be a multiple of {0} for tile_m {1} and tile_n {2} but got {3}",
        kRows * parts, m, n, op.getD());
  for (const SharedMemoryPlan &plan : planGradients(op, schedule))
    if (std::string reason = explainMemoryRefusal(plan, schedule, machine); !reason.empty())
      return reason;
  // Both sums, or one; scores, or the gradients of weights, in f32 and as operands; what addresses
  // all.
  if (schedule.splitsSums())
    return explainRegisterRefusal(op, schedule, findSplitNeeds(op, schedule));
  bool apart = schedule.getApart().value_or(false);
  SmallVector<Need> needs = {{"dk", op.getD() / 2}, {"dv", op.getDv() / 2}};
  if (apart)
    needs = {{"dk or dv", std::max(op.getD(), op.getDv()) / 2}};
  needs.append({{"scores", n / 2},
                {"weights", n / 4},
                {"gradients", n / 4},
                {"other", 30 + (op.getKeep() ? n / 4 : 0)}});
  // Slopes last from scores to their gradients; a bias is loaded before them.
  if (op.getSoftcap() || (op.hasScoreMod() && !op.addsToScore()))
    needs.push_back({"slopes", n / 2});
  else if (op.getBias() && schedule.sharesProgram())
    needs.push_back({"bias", n / 64 * getElementTypeOrSelf(op.getBias()).getIntOrFloatBitWidth()});
  return explainRegisterRefusal(op, schedule, needs);
}
