//===- GradientSchedules.cpp - warp-specialized backward schedules --------===//
//
// In programs over key tiles, consumers have a program each, share the rows of one program, or each
// compute one of its accumulators. Programs over query tiles exist unless the programs over key
// tiles accumulate dQ.
//
//===----------------------------------------------------------------------===//

#include "Fields.h"
#include "flashattn/Analysis/MaskShape.h"
#include "flashattn/Analysis/MaskTiles.h"
#include "llvm/Support/FormatVariadic.h"

using namespace mlir;
using namespace mlir::flashattn;
using namespace mlir::flashattn::warpgroups;

/// Whether the programs of some keys may have no step.
static bool mayLackRows(AttentionOpInterface op) { return op.getKvLen() || op.getQLen(); }

/// Whether the programs over keys use the dynamic scheduler, so that the next K and V are loaded
/// while dK and dV are stored. Other inputs of the scores were not measured
/// (docs/rationale/claims.md).
static bool claimsPrograms(AttentionBackwardOp op) {
  return op.getVisibleSets().size() == 1 && !op.getDeterministic() && !mayLackRows(op) &&
         !op.getOffsets() && !op.getAttnMask() && !op.getBias() && !op.getSoftcap() &&
         !op.hasScoreMod();
}

/// Whether programs over queries compute dQ from compacted keys, and those over keys only dK and
/// dV. This is faster in bands so narrow that adding contributions to dQ takes longer than
/// computing the scores twice (docs/rationale/compact-kv.md).
static bool compactsKV(AttentionBackwardOp op) {
  if (op.hasOwnSequences())
    return false;
  constexpr int64_t kNarrowBand = 320, kNarrowHead = 64;
  MaskClass mask = classifyMask(op.getVisibleSets());
  return mask.shape == MaskShape::Banded && mask.width.value_or(0) <= kNarrowBand &&
         std::max(op.getD(), op.getDv()) <= kNarrowHead && !op.getSoftcap() &&
         op.getVisibleSets().size() <= kMostCompactSets;
}

void warpgroups::setAlgorithm(ScheduleFields &fields, BackwardAlgorithm algorithm) {
  HopperFields &hopper = *fields.getHopper();
  bool adds = algorithm == BackwardAlgorithm::AccumulateDq;
  fields.algorithm = algorithm;
  hopper.cooperative = adds || algorithm == BackwardAlgorithm::SplitDkDv;
  fields.tileM = adds ? kRows * hopper.consumers : kRows;
}

static ScheduleAttr getCompacted(AttentionBackwardOp op) {
  HopperFields hopper;
  hopper.registers = 136;
  hopper.producerRegisters = 24;
  hopper.blocksPerSM = 3;
  hopper.qStages = 2;
  hopper.dynamicScheduler = 1;
  hopper.compactKV = 1;
  int64_t group = op.getKnownGroup(), pack = group % 8 == 0 ? 8 : group % 4 == 0 ? 4 : 1;
  ScheduleFields fields = makeFields(/*tileN=*/48, /*stages=*/3, pack, hopper, op.getElementType());
  fields.algorithm = BackwardAlgorithm::SeparateDq;
  return ScheduleAttr::get(op.getContext(), fields);
}

Candidates warpgroups::getCandidates(AttentionBackwardOp op) {
  Candidates candidates;
  if (compactsKV(op))
    candidates.push_back(getCompacted(op));
  HopperFields hopper;
  hopper.consumers = 2;
  hopper.registers = 240;
  hopper.producerRegisters = 24;
  auto add = [&](BackwardAlgorithm algorithm, int64_t n, int64_t stages) {
    ScheduleFields fields = makeFields(n, stages, /*pack=*/1, hopper, op.getElementType());
    setAlgorithm(fields, algorithm);
    candidates.push_back(ScheduleAttr::get(op.getContext(), fields));
  };
  MaskClass mask = classifyMask(op.getVisibleSets());
  // Number of heads that start together under a causal mask, so that their K and V fit in the L2
  // cache. In turns (B4), the program of the previous keys has mostly left a query tile before the
  // next program reaches it, and with many heads few programs wait
  // (docs/rationale/heads-at-once.md).
  constexpr int64_t kHeads = 16, kNarrowest = 64;
  int64_t widest = std::max(op.getD(), op.getDv());
  int64_t heads = kHeads / llvm::divideCeil(widest, kNarrowest);
  if (mask.shape == MaskShape::Triangular)
    hopper.l2HeadGroup =
        op.getDeterministic() ? kHeads : std::max<int64_t>(2, heads / op.getKnownGroup());
  else if (op.getDeterministic())
    hopper.l2HeadGroup = 4;
  // Spare warps add contributions faster than consumers do, and make it unnecessary to zero dQ in
  // advance unless the bias has a gradient (docs/rationale/dq-sums.md).
  // The turn would be a fourth number per query, because the gradient of the bias uses the third.
  if (!op.getDeterministic() || !op.getDBiasInit()) {
    hopper.dqReduceStages = 2;
    int64_t claims = claimsPrograms(op) ? 1 : 0;
    // Sequences differ in length (docs/rationale/packed-sequences.md).
    hopper.dynamicScheduler = op.hasPackedSequences() ? claims : 0;
    add(BackwardAlgorithm::AccumulateDq, 2 * kRows, 2);
    hopper.dynamicScheduler = claims;
    if (mask.shape != MaskShape::Triangular && hopper.dynamicScheduler)
      hopper.l2HeadGroup = 4;
    // Two buffers of contributions and two stages use as much memory as one buffer and three
    // stages, and are faster, because a step waits for the copy that adds. A step that loads a bias
    // is longer and waits for its tiles instead (docs/rationale/dq-sums.md).
    bool loads = op.getBias() && !op.getDeterministic();
    if (loads)
      hopper.dqReduceStages = 1;
    add(BackwardAlgorithm::AccumulateDq, kRows, loads ? 3 : 2);
    hopper.dqReduceStages = 0;
    hopper.dynamicScheduler = 0;
  }
  hopper.l2HeadGroup = mask.shape == MaskShape::Triangular ? 4 : 1;
  // The accumulators of wide heads do not fit in one warpgroup. Programs over queries compute dQ,
  // because the L2 cache cannot add as much as programs of 64 keys would require
  // (docs/rationale/wide-heads.md).
  constexpr int64_t kNarrow = 128;
  bool isWide = widest > kNarrow;
  if (isWide)
    add(BackwardAlgorithm::SplitDkDv, 3 * kRows / 4, 2);
  add(BackwardAlgorithm::SeparateDq, kRows, 2);
  // Only a softcap alone leaves the registers for 64 queries per step.
  bool isCappedAlone = op.getSoftcap() && !op.hasScoreMod() && !op.getBias() && !op.getAttnMask() &&
                       !op.hasOwnSequences() && !op.hasVaryingSymbols();
  if (mask.shape != MaskShape::Banded && !isWide && isCappedAlone)
    add(BackwardAlgorithm::SeparateDkDv, kRows, 3);
  add(BackwardAlgorithm::SeparateDkDv, kRows / 2, 3);
  return candidates;
}

/// Returns the shared memory of the programs over key tiles and over query tiles, each with its
/// schedule.
static SmallVector<std::pair<SharedMemoryPlan, ScheduleAttr>> planGradients(AttentionBackwardOp op,
                                                                            ScheduleAttr schedule) {
  HopperAttr hopper = schedule.getHopper();
  int64_t m = schedule.getTileM(), n = schedule.getTileN();
  int64_t d = llvm::alignTo(op.getD(), 16), dv = llvm::alignTo(op.getDv(), 16);
  WarpgroupBlock block;
  block.elementBytes = op.getElementType().getIntOrFloatBitWidth() / 8;
  block.consumers = hopper.getConsumers();
  SmallVector<IntegerSet> visible = op.getVisibleSets();
  SmallVector<std::pair<SharedMemoryPlan, ScheduleAttr>> plans;
  // Plans one kind of program, with its resident tiles, streamed tiles and outputs. `overKeys`: its
  // rows are keys.
  auto plan = [&](ArrayRef<TileShape> residents, ArrayRef<TileShape> streamed,
                  ArrayRef<std::pair<TileShape, Value>> outputs, bool overKeys) {
    ScheduleAttr own = overKeys ? schedule.forWideSteps() : schedule;
    block.slots = own.getHopper().getQStages();
    block.claims = own.getHopper().getDynamicScheduler() > 0;
    block.segments = op.hasPackedSequences();
    block.residents.assign(residents.begin(), residents.end());
    block.streamed.assign(streamed.begin(), streamed.end());
    block.outputs.clear();
    for (const auto &[tile, memref] : outputs)
      if (!isa<MemRefType>(memref.getType()) || hasAlignedRows(memref))
        block.outputs.push_back(tile);
    // The exponent of each query, from its LSE, and delta. A program that computes only dV needs no
    // delta.
    block.rows.assign(overKeys ? residents.size() : 0, {streamed.front().rows, /*stream=*/0});
    bool shares = overKeys && schedule.sharesProgram();
    block.programs = shares ? 1 : block.consumers;
    block.passes = shares && schedule.splitsSums();
    block.exchanged.clear();
    if (shares)
      block.exchanged = {{block.passes ? "p" : "ds", m, streamed.front().rows}};
    block.added = shares && !block.passes ? n * d : 0;
    // Partial dK and dV of a key tile that several programs share.
    if (overKeys && schedule.compactsKV() && !op.getDeterministic() && visible.size() > 1 &&
        d == dv)
      block.added = m * d;
    block.dqReduceStages = overKeys ? hopper.getDqReduceStages() : 0;
    // The product for dQ is issued after both products of the next step, and still reads a K tile.
    block.skews = !overKeys && schedule.splitsSums();
    TileAxis axis = overKeys ? TileAxis::Queries : TileAxis::Keys;
    block.intervals = !overKeys && schedule.compactsKV()
                          ? 1
                          : TileIntervalPlan(visible, axis, streamed.front().rows).size();
    plans.push_back({planWarpgroupBlock(block).memory, own});
  };
  TileShape k{"k", m, d}, v{"v", m, dv}, q{"q", n, d}, dO{"d_o", n, dv};
  std::pair<TileShape, Value> dk{{"dk", m, d}, op.getDkInit()}, dV{{"dv", m, dv}, op.getDvInit()};
  bool isApart = schedule.separatesDkDv();
  // Programs for dk and for dv use the same lists of tiles.
  bool shareLists = isApart && (op.getAttnMask() || !op.getPerQuery().empty());
  ScheduleAttr ofWide = shareLists ? schedule : schedule.forWideSteps();
  TileShape wideQ{"q", ofWide.getTileN(), d}, wideDO{"d_o", ofWide.getTileN(), dv};
  block.stages = ofWide.getStages();
  if (isApart)
    plan(k, {wideQ, wideDO}, dV, /*overKeys=*/true);
  else
    plan({k, v}, {wideQ, wideDO}, {dk, dV}, /*overKeys=*/true);
  block.stages = schedule.getStages();
  if (isApart)
    plan({k, v}, {q, dO}, dk, /*overKeys=*/true);
  if (!schedule.addsQueries())
    plan({{"q", m, d}, {"d_o", m, dv}}, {{"k", n, d}, {"v", n, dv}},
         {{{"dq", m, d}, op.getDqInit()}}, /*overKeys=*/false);
  return plans;
}

/// Whether the programs that add to a query tile are those of all key tiles from the first to the
/// last that it sees, so that each program knows its predecessor.
static bool canTakeTurns(AttentionBackwardOp op, ScheduleAttr schedule) {
  SmallVector<IntegerSet> visible = op.getVisibleSets();
  auto isPlain = [&](TileAxis axis, int64_t tile) {
    TileIntervalPlan plan(visible, axis, tile);
    return plan.size() == 1 && plan.isExact();
  };
  return !op.getAttnMask() && isPlain(TileAxis::Keys, schedule.getTileM()) &&
         isPlain(TileAxis::Queries, schedule.getTileN());
}

/// Checks `dq_reduce_stages`: spare warps can add contributions to dQ only if consumers share a
/// program, and must do so if dQ is deterministic.
static std::string explainAddRefusal(AttentionBackwardOp op, ScheduleAttr schedule) {
  bool canAdd = schedule.addsQueries();
  int64_t stages = schedule.getHopper().getDqReduceStages();
  if (stages && !canAdd)
    return llvm::formatv("expected dq_reduce_stages 0 without algorithm accumulate_dq but got {0}",
                         stages);
  if (!stages && canAdd && op.getDeterministic())
    return "expected dq_reduce_stages 1 or 2 in a deterministic backward pass but got 0";
  return "";
}

/// Checks whether blocks can be persistent. Reusing the buffers of one group requires consumers
/// that share a program and its accumulators, and such consumers must not skip a step.
static std::string explainPersistenceRefusal(AttentionBackwardOp op, ScheduleAttr schedule) {
  HopperAttr hopper = schedule.getHopper();
  int64_t claims = hopper.getDynamicScheduler(), slots = hopper.getQStages();
  if (hopper.reusesResidentBuffers() && !schedule.addsQueries())
    return llvm::formatv("expected dynamic_scheduler 0 with q_stages 1, unless the "
                         "algorithm is accumulate_dq, but got {0}",
                         claims);
  if ((claims || slots > 1) && schedule.sharesProgram() && mayLackRows(op))
    return llvm::formatv("expected q_stages 1 and dynamic_scheduler 0 with {2}, for "
                         "cooperative consumers, but got {0} and {1}",
                         slots, claims, op.getKvLen() ? "kv_len" : "q_len");
  if ((claims || slots > 1) && schedule.addsQueries() && op.getDeterministic())
    return llvm::formatv("expected q_stages 1 and dynamic_scheduler 0 in a deterministic "
                         "backward pass but got {0} and {1}",
                         slots, claims);
  return "";
}

/// Checks the fields, but not the resources, of consumers that compute one accumulator each.
static std::string explainSplitRefusal(AttentionBackwardOp op, ScheduleAttr schedule) {
  // Rows of the next sequence would reach dk and dv.
  if (op.hasPackedSequences() || op.getQLen())
    return llvm::formatv("expected another algorithm with {0} but got split_dk_dv",
                         op.getQLen() ? "q_len" : "packed sequences");
  HopperAttr hopper = schedule.getHopper();
  constexpr int64_t kSums = 2;
  if (schedule.getTileM() != kRows || schedule.getTileN() > kRows || hopper.getConsumers() != kSums)
    return llvm::formatv("expected tile_m 64, tile_n up to 64 and 2 consumers with algorithm "
                         "split_dk_dv but got tile_m {0}, tile_n {1} and {2} consumers",
                         schedule.getTileM(), schedule.getTileN(), hopper.getConsumers());
  if (hopper.getQStages() != 1)
    return llvm::formatv("expected q_stages 1 with algorithm split_dk_dv but got {0}",
                         hopper.getQStages());
  return "";
}

/// Returns the registers of a thread if consumers compute one accumulator each: the accumulator;
/// the scores and their inputs; and one operand tile, or two if slopes are also passed on.
static SmallVector<Need> findSplitNeeds(AttentionBackwardOp op, ScheduleAttr schedule) {
  int64_t n = schedule.forWideSteps().getTileN();
  bool hasSlopes = op.getSoftcap() || (op.hasScoreMod() && !op.addsToScore());
  int64_t scores = n / 2 + (hasSlopes ? n / 2 : 0) + (op.getAttnMask() ? n / 4 : 0);
  if (op.getBias())
    scores += n / 64 * getElementTypeOrSelf(op.getBias()).getIntOrFloatBitWidth();
  // Slopes of a softcap are computed from its result and need few other registers.
  bool isCapped = op.getSoftcap() && !op.hasScoreMod();
  return {{"dk or dv", std::max(op.getD(), op.getDv()) / 2},
          {"scores", scores},
          {"weights", n / (hasSlopes ? 2 : 4)},
          {"other", isCapped ? 16 : 30}};
}

std::string warpgroups::explainRefusal(AttentionBackwardOp op, ScheduleAttr schedule,
                                       const Machine &machine) {
  if (std::string reason = explainShapeRefusal(op, schedule, machine); !reason.empty())
    return reason;
  if (std::string reason = explainRowRefusal("d_o", op.getDO()); !reason.empty())
    return reason;
  if (std::string reason =
          schedule.splitsSums() ? explainSplitRefusal(op, schedule) : explainTileRefusal(schedule);
      !reason.empty())
    return reason;
  if (schedule.getHopper().getLazyRescale())
    return "expected lazy_rescale 0 for a backward pass but got 1";
  if (int64_t held = schedule.getHopper().getQRegisterColumns())
    return llvm::formatv("expected q_register_columns 0 for a backward pass but got {0}", held);
  if (std::string reason = explainCompactRefusal(op, schedule); !reason.empty())
    return reason;
  if (int64_t consumers = schedule.getHopper().getConsumers();
      schedule.compactsKV() && consumers != 1)
    return llvm::formatv("expected consumers 1 with compact_kv in a backward pass but got {0}",
                         consumers);
  // A tile must not have rows of heads that do not exist.
  if (int64_t pack = schedule.getPack(); op.getKnownGroup() % pack != 0)
    return llvm::formatv("expected pack in a backward pass to divide {1}, the query heads of each "
                         "key/value head, but got {0}",
                         pack, op.getKnownGroup());
  // The last product of a step overlaps with the first product of the next step, and both read a
  // streamed tile.
  if (schedule.getStages() < 2)
    return llvm::formatv("expected stages to be at least 2 in a backward pass but got {0}",
                         schedule.getStages());
  if (schedule.sharesProgram() && !schedule.addsQueries() && !schedule.splitsSums())
    return "expected algorithm accumulate_dq or split_dk_dv with cooperative consumers but got "
           "another one";
  if (op.getDeterministic() && schedule.addsQueries() && !canTakeTurns(op, schedule))
    return llvm::formatv("expected tile_m 64 in a deterministic backward pass, unless the mask has "
                         "one exact interval of tiles and there is no attn_mask, but got {0}",
                         schedule.getTileM());
  for (std::string reason :
       {explainAddRefusal(op, schedule), explainPersistenceRefusal(op, schedule)})
    if (!reason.empty())
      return reason;
  // If a program has more keys than a step has queries, the queries are rows of the product for dQ.
  int64_t m = schedule.getTileM(), n = schedule.getTileN();
  if (schedule.addsQueries() && m > n && (n % kRows != 0 || m % n != 0))
    return llvm::formatv("expected tile_n to be a multiple of 64 that divides tile_m, or at least "
                         "tile_m, but got tile_n {0} and tile_m {1}",
                         n, m);
  if (schedule.addsQueries() && n > m)
    return llvm::formatv(
        "expected tile_n up to tile_m, {0}, with algorithm accumulate_dq but got {1}", m, n);
  // Each consumer computes a range of the columns of this product.
  if (int64_t parts = m / n;
      schedule.addsQueries() && parts > 1 && op.getD() % (kRows * parts) != 0)
    return llvm::formatv(
        "expected D to be a multiple of {0} for tile_m {1} and tile_n {2} but got {3}",
        kRows * parts, m, n, op.getD());
  for (const auto &[plan, own] : planGradients(op, schedule))
    if (std::string reason = explainMemoryRefusal(plan, own, machine); !reason.empty())
      return reason;
  if (schedule.splitsSums())
    if (std::string reason = explainRegisterRefusal(op, schedule, findSplitNeeds(op, schedule));
        !reason.empty())
      return reason;
  bool hasSlopes = op.getSoftcap() || (op.hasScoreMod() && !op.addsToScore());
  if (schedule.compactsKV()) {
    // The fields describe the programs over queries, which have their own registers and blocks. The
    // programs over keys are checked below.
    SmallVector<Need> needs = {{"dq", op.getD() / 2},
                               {"scores", n / 2},
                               {"weights", n / 4},
                               {"gradients", n / 4},
                               {"other", 24 + (hasSlopes ? n / 2 : 0)}};
    if (std::string reason = explainRegisterRefusal(op, schedule, needs); !reason.empty())
      return reason;
    schedule = schedule.forWideSteps();
    n = schedule.getTileN();
  }
  // One or both accumulators; S or dP in f32; P and dS as operands; and addresses.
  SmallVector<Need> needs = {{"dk", op.getD() / 2}, {"dv", op.getDv() / 2}};
  if (schedule.splitsSums())
    needs = {{"dq", op.getD() / 2}};
  else if (schedule.separatesDkDv())
    needs = {{"dk or dv", std::max(op.getD(), op.getDv()) / 2}};
  needs.append({{"scores", n / 2},
                {"weights", n / 4},
                {"gradients", n / 4},
                {"other", 30 + (op.getAttnMask() ? n / 4 : 0)}});
  // Slopes are live from the scores to their gradients; a bias is loaded before the scores.
  if (hasSlopes)
    needs.push_back({"slopes", n / 2});
  else if (op.getBias() && schedule.sharesProgram())
    needs.push_back({"bias", n / 64 * getElementTypeOrSelf(op.getBias()).getIntOrFloatBitWidth()});
  return explainRegisterRefusal(op, schedule, needs);
}
