//===- Schedules.cpp - schedules for the CPU ------------------------------===//
//
// One program per thread, with rows along the lanes of vector registers.
//
//===----------------------------------------------------------------------===//

#include "../MachineSchedules.h"
#include "llvm/Support/FormatVariadic.h"
#include "llvm/Support/MathExtras.h"

#include <algorithm>

using namespace mlir;
using namespace mlir::flashattn;

static ScheduleFields makeFields(int64_t rows, int64_t columns, MLIRContext *ctx) {
  ScheduleFields fields;
  fields.tileM = rows;
  fields.tileN = columns;
  fields.stages = 1;
  fields.mapping = CPUFields();
  fields.dotType = Float32Type::get(ctx);
  return fields;
}

Candidates cpu::getCandidates(AttentionOp op, const Machine &machine) {
  MLIRContext *ctx = op.getContext();
  // Two vector registers of rows, so that every broadcast element of a key feeds two FMAs.
  int64_t rows = 2 * machine.getVectorWidth();
  // Fewer queries form one tile with as few rows as possible: rows without a query cost as much as
  // the others.
  constexpr int64_t kFewest = 2, kColumns = 64;
  int64_t queries = op.getMostQueries().value_or(op.getStaticQueries());
  if (ShapedType::isDynamic(queries) || op.getQLen() ||
      (op.hasPackedSequences() && !op.getMostQueries()))
    return {ScheduleAttr::get(ctx, makeFields(rows, kColumns, ctx))};
  int64_t positions = llvm::PowerOf2Ceil(std::max<int64_t>(queries, 1));
  Candidates candidates;
  auto add = [&](int64_t pack, const ScheduleFields &parts) {
    int64_t needed = std::clamp(positions * pack, std::min(kFewest, rows), rows);
    ScheduleFields fields = makeFields(needed, kColumns, ctx);
    fields.pack = pack;
    fields.splits = parts.splits;
    fields.minSplitTiles = parts.minSplitTiles;
    auto schedule = ScheduleAttr::get(ctx, fields);
    if (!llvm::is_contained(candidates, schedule))
      candidates.push_back(schedule);
  };
  // Packed heads: query heads that share keys are rows of one tile, which reads the keys once.
  int64_t pack = std::clamp<int64_t>(rows / positions, 1, llvm::PowerOf2Ceil(op.getKnownGroup()));
  auto packIf = [&](bool inParts) { return op.findInputOfHeads(inParts).empty() ? pack : 1; };
  // Splits occupy threads that have no program, and are long enough to pay for a merge. The tile
  // lists of an `attn_mask` are for all keys, so these are not split.
  ScheduleFields whole, parts;
  parts.splits = 64;
  parts.minSplitTiles = op.getInvariant() ? kInvariantKeys / kColumns : 4;
  int64_t keys = op.getStaticKeys();
  bool isLong = ShapedType::isDynamic(keys) || op.getInvariant() || keys >= 2 * parts.minSplitTiles * kColumns;
  if (isDecode(op) && isLong && !op.getAttnMask())
    add(packIf(/*inParts=*/true), parts);
  // Pinned fields may exclude splits or packed heads.
  add(packIf(/*inParts=*/false), whole);
  add(/*pack=*/1, whole);
  return candidates;
}

Candidates cpu::getCandidates(AttentionBackwardOp op, const Machine &machine) {
  MLIRContext *ctx = op.getContext();
  return {ScheduleAttr::get(ctx, makeFields(2 * machine.getVectorWidth(), 64, ctx))};
}

Candidates cpu::getCandidates(ProjectOp op, const Machine &machine) {
  MLIRContext *ctx = op.getContext();
  int64_t width = op.getW().getType().getDimSize(2);
  bool isFew = op.hasFewRows();
  // Every column of programs transposes the rows of `o` again. But if there are few rows, there
  // must be enough programs.
  constexpr int64_t kMost = 512, kFew = 128;
  int64_t most = isFew || ShapedType::isDynamic(width) ? kFew : kMost, n = most;
  if (!ShapedType::isDynamic(width) && width > 0)
    n = llvm::alignTo(llvm::divideCeil(width, llvm::divideCeil(width, most)), 16);
  return {ScheduleAttr::get(ctx, makeFields(2 * machine.getVectorWidth(), n, ctx))};
}

/// Checks the fields that attention and projection programs have in common.
static std::string explainRefusal(ScheduleAttr schedule) {
  if (MappingFields mapping = schedule.getFields().mapping;
      !std::holds_alternative<CPUFields>(mapping))
    return llvm::formatv("expected mapping cpu on the CPU but got {0}", getMappingName(mapping));
  if (!schedule.getDotType().isF32())
    return llvm::formatv("expected dot_type f32 on the CPU but got {0}",
                         getTypeName(schedule.getDotType()));
  if (schedule.addsQueries())
    return "expected another algorithm on the CPU but got accumulate_dq";
  return "";
}

std::string cpu::explainRefusal(AttentionOpInterface op, ScheduleAttr schedule) {
  if (std::string reason = ::explainRefusal(schedule); !reason.empty())
    return reason;
  for (auto [name, value] :
       {std::pair("tile_m", schedule.getTileM()), {"tile_n", schedule.getTileN()}})
    if (value < 2)
      return llvm::formatv("expected {0} to be at least 2 on the CPU but got {1}", name, value);
  return "";
}

std::string cpu::explainRefusal(ProjectOp op, ScheduleAttr schedule) {
  return ::explainRefusal(schedule);
}

void cpu::addTrials(const TrialProblem &problem, const Machine &machine, const TrialGrid &grid,
                    AddTrial add) {
  int64_t width = machine.getVectorWidth();
  for (int64_t m : orElse(grid.tileM, {width, 2 * width, 4 * width}))
    for (int64_t n : orElse(grid.tileN, {16, 32, 64, 128})) {
      ScheduleFields fields = makeFields(m, n, problem.element.getContext());
      for (int64_t pack : orElse(grid.pack, {1}))
        if (fields.pack = pack; m % pack == 0)
          add(fields);
    }
}
