//===- ProjectSchedules.cpp - schedules of the output projection -----------===//

#include "flashattn/Target/Schedules.h"
#include "llvm/Support/FormatVariadic.h"

using namespace mlir;
using namespace mlir::flashattn;

int64_t mlir::flashattn::getProjectDepth(ProjectOp op, ScheduleAttr schedule) {
  bool onCPU = schedule.getLanes() == 1;
  // As many as pay for loading the sums: on a GPU in steps of what mma.sync takes at a time, and
  // fewer of f32, whose operands are held as two halves and whose sums it rounds towards zero (A9).
  int64_t unit = onCPU ? 8 : 16, most = onCPU ? 128 : schedule.getDotType().isF32() ? 16 : 80;
  int64_t padded = llvm::alignTo(op.getDv(), unit);
  return llvm::alignTo(llvm::divideCeil(padded, llvm::divideCeil(padded, most)), unit);
}

SmallVector<ScheduleAttr> mlir::flashattn::getScheduleCandidates(ProjectOp op, const Chip &chip) {
  MLIRContext *ctx = op.getContext();
  FloatType f32 = Float32Type::get(ctx), element = op.getElementType();
  auto make = [&](int64_t m, int64_t n, int64_t warps, int64_t stages, int64_t lanes,
                  FloatType dot) {
    return ScheduleAttr::get(ctx, m, n, warps, stages, lanes, dot, /*pack=*/1, /*splits=*/1,
                             /*roles=*/{});
  };
  int64_t rows = op.getO().getType().getDimSize(op.getSeqDim());
  int64_t width = op.getW().getType().getDimSize(2);
  bool fewRows = !ShapedType::isDynamic(rows) && rows <= kFewProjectRows;
  if (chip.isCPU()) {
    // Every column of programs turns the rows of o on its side anew; but few rows need programs.
    constexpr int64_t kMost = 512, kFew = 128;
    int64_t most = fewRows || ShapedType::isDynamic(width) ? kFew : kMost, n = most;
    if (!ShapedType::isDynamic(width) && width > 0)
      n = llvm::alignTo(llvm::divideCeil(width, llvm::divideCeil(width, most)), 16);
    return {make(2 * chip.vectorWidth, n, 1, 1, 1, f32)};
  }
  SmallVector<ScheduleAttr> candidates;
  // Few rows are as fast as the matrix is read: by many small blocks.
  if (fewRows)
    candidates.push_back(make(32, 32, 2, 2, 4, element));
  // Two row blocks a warp halve its reads of the matrix.
  if (!element.isF32())
    candidates.push_back(make(128, 128, 4, 2, 4, element));
  candidates.push_back(make(64, 64, 4, 2, 4, element));
  candidates.push_back(make(64, 64, 4, 1, 4, element));
  return candidates;
}

std::string mlir::flashattn::explainRefusal(ProjectOp op, ScheduleAttr schedule, const Chip &chip) {
  int64_t m = schedule.getTileM(), n = schedule.getTileN(), warps = schedule.getWarps(),
          stages = schedule.getStages();
  if (schedule.getRoles())
    return "expected no roles for a projection";
  for (auto [name, value] :
       {std::pair("pack", schedule.getPack()), std::pair("splits", schedule.getSplits())})
    if (value != 1)
      return llvm::formatv("expected {0} 1 for a projection but got {1}", name, value);
  FloatType dot = schedule.getDotType(), element = op.getElementType();
  auto nameOf = [](FloatType t) { return t.isF16() ? "f16" : t.isBF16() ? "bf16" : "f32"; };
  if (chip.isCPU()) {
    if (warps != 1 || schedule.getLanes() != 1)
      return llvm::formatv("expected 1 warp and 1 lane on the CPU but got {0} and {1}", warps,
                           schedule.getLanes());
    if (!dot.isF32())
      return llvm::formatv("expected dot_type f32 on the CPU but got {0}", nameOf(dot));
    return "";
  }
  if (dot != element)
    return llvm::formatv("expected dot_type {0}, the operands' element type, but got {1}",
                         nameOf(element), nameOf(dot));
  if (schedule.getLanes() != 4)
    return llvm::formatv("expected 4 lanes a row, as mma.sync has, but got {0}",
                         schedule.getLanes());
  if (m % (16 * warps) != 0)
    return llvm::formatv(
        "expected tile_m to be a multiple of 16 rows for each of {0} warps but got {1}", warps, m);
  if (n % 16 != 0)
    return llvm::formatv("expected tile_n to be a multiple of 16 but got {0}", n);
  if (stages > 2)
    return llvm::formatv("expected 1 or 2 stages but got {0}", stages);
  int64_t depth = getProjectDepth(op, schedule), bytes = element.getIntOrFloatBitWidth() / 8;
  int64_t oBytes = stages * m * depth * bytes, wBytes = stages * depth * n * bytes;
  int64_t available = chip.getSharedMemoryPerBlock();
  if (oBytes + wBytes > available)
    return llvm::formatv("needs {0} bytes of shared memory (o {1}, w {2}) of {3} available",
                         oBytes + wBytes, oBytes, wBytes, available);
  // The sums, and what a step multiplies them with: two halves of f32.
  int64_t rowBlocks = m / (16 * warps);
  int64_t sums = rowBlocks * n / 2, operands = element.isF32() ? rowBlocks * depth : 0;
  constexpr int64_t kMost = 200; // of 255, the rest for operands and addresses
  if (sums + operands > kMost)
    return llvm::formatv("needs {0} registers a thread (p {1}, o {2}) of {3} available",
                         sums + operands, sums, operands, kMost);
  return "";
}
