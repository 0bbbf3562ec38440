//===- Schedules.cpp - schedule tables and their resources ----------------===//

#include "flashattn/Target/Schedules.h"
#include "flashattn/Analysis/MaskTiles.h"
#include "mlir/Analysis/FlatLinearValueConstraints.h"
#include "llvm/Support/FormatVariadic.h"

using namespace mlir;
using namespace mlir::flashattn;

int Chip::getComputeCapability() const {
  StringRef rest = name;
  int capability = 0;
  if (!rest.consume_front("sm_") || rest.consumeInteger(10, capability))
    return 0;
  return rest.empty() || rest == "a" || rest == "f" ? capability : 0;
}

bool Chip::hasWarpgroups() const { return name == "sm_90a"; }

int64_t Chip::getSharedMemoryPerBlock() const {
  switch (getComputeCapability()) {
  case 80:
  case 87:
    return 163 * 1024;
  case 86:
  case 89:
  case 120:
  case 121:
    return 99 * 1024;
  default: // 90, 100, 101, 103
    return 227 * 1024;
  }
}

LogicalResult mlir::flashattn::verifyChip(function_ref<InFlightDiagnostic()> emitError,
                                          const Chip &chip) {
  if (chip.isCPU()) {
    int64_t width = chip.vectorWidth;
    if (width < 1 || width > 64 || !llvm::isPowerOf2_64(width))
      return emitError() << "expected a vector width that is a power of two between 1 and 64 but "
                            "got "
                         << width;
    return success();
  }
  if (chip.getComputeCapability() == 0)
    return emitError() << "expected chip 'cpu' or 'sm_XX' but got '" << chip.name << "'";
  if (chip.getComputeCapability() < 80)
    return emitError() << "expected chip sm_80 or newer but got '" << chip.name << "'";
  return success();
}

int64_t mlir::flashattn::getDefaultRescale(FloatType element) {
  // A row's largest weight is exact where its base is the row's maximum. In bf16, which keeps 8
  // bits of any other, that is worth a rescaling wherever it stands out. In f16 4 is as fast as
  // more.
  return element.isBF16() ? 1 : 4;
}

namespace {
/// A schedule with roles for a class of masks and head dimensions up to `maxD`.
struct RolesRow {
  MaskShape shape;
  int64_t maxD, tileN, stages, consumers, registers, producerRegisters, section, blocks,
      queryStages, pack = 1;
};
} // namespace

/// Best first, as measured on an H100 (BENCHMARKS.md).
constexpr RolesRow kRolesTable[] = {
    // Blocks alike, dealt out evenly: they may as well stay, where registers are left for it.
    {MaskShape::Full, 64, 128, 2, 3, 160, 32, 1, 1, 1},
    {MaskShape::Full, 128, 80, 2, 3, 160, 32, 1, 1, 2},
    {MaskShape::Full, 128, 80, 2, 3, 160, 32, 1, 1, 1},
    {MaskShape::Full, 256, 64, 2, 2, 240, 24, 1, 1, 1},
    // Blocks differ in length: the longest first, and few heads at once so that their keys and
    // values stay in the L2 cache.
    {MaskShape::Triangular, 64, 128, 2, 3, 160, 32, 16, 1, 1},
    {MaskShape::Triangular, 128, 64, 3, 3, 160, 32, 8, 1, 1},
    {MaskShape::Triangular, 256, 64, 2, 2, 240, 24, 4, 1, 1},
    // Short blocks: several at once hide each other's beginning and end. A band is narrowest
    // around few positions, and the heads of a group fill the tile.
    {MaskShape::Banded, 64, 32, 2, 1, 104, 24, 1, 4, 1, /*pack=*/8},
    {MaskShape::Banded, 64, 32, 2, 1, 104, 24, 1, 4, 1, /*pack=*/4},
    {MaskShape::Banded, 64, 32, 2, 1, 104, 24, 1, 4, 1},
    {MaskShape::Banded, 128, 80, 2, 3, 160, 32, 1, 1, 1, /*pack=*/4},
    {MaskShape::Banded, 128, 64, 3, 3, 160, 32, 1, 1, 1},
    {MaskShape::Banded, 256, 64, 2, 2, 240, 24, 1, 1, 1},
};

bool mlir::flashattn::isDecode(AttentionOp op) {
  constexpr int64_t kMaxQueries = 16;
  int64_t queries = op.getQ().getType().getDimSize(op.getSeqDim());
  return !ShapedType::isDynamic(queries) && queries <= kMaxQueries;
}

/// Heads whose few queries fill a tile of 64 rows: all of a group, where its size is known.
static int64_t getDecodePack(AttentionOp op) {
  constexpr int64_t kRows = 64, kMaxPack = 16;
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

/// Schedules with roles for few queries: as many bytes on their way as fit, in two blocks that hide
/// each other's beginning and end.
constexpr struct {
  int64_t maxD, tileN, stages, registers, producerRegisters, blocks;
} kDecodeTable[] = {{64, 128, 3, 208, 48, 2},
                    {128, 64, 3, 208, 48, 2},
                    {192, 32, 3, 208, 48, 2},
                    {256, 32, 5, 248, 24, 1}};
constexpr int64_t kDecodeSplits = 128;

SmallVector<ScheduleAttr> mlir::flashattn::getScheduleCandidates(AttentionOp op, const Chip &chip) {
  MLIRContext *ctx = op.getContext();
  FloatType f32 = Float32Type::get(ctx), element = op.getElementType();
  auto make = [&](int64_t m, int64_t n, int64_t warps, int64_t stages, int64_t lanes, FloatType dot,
                  int64_t pack = 1, RolesAttr roles = {}, int64_t splits = 1) {
    return ScheduleAttr::get(ctx, m, n, warps, stages, lanes, dot, pack, splits, roles);
  };
  if (chip.isCPU())
    // Two registers of rows, so that every broadcast of a key's element feeds two FMAs.
    return {make(2 * chip.vectorWidth, 64, 1, 1, 1, f32)};

  int64_t d = std::max(op.getD(), op.getDv());
  SmallVector<ScheduleAttr> candidates;
  if (chip.hasWarpgroups() && !element.isF32()) {
    MaskShape shape = classifyMask(op.getVisibleSets());
    if (isDecode(op))
      for (auto &row : kDecodeTable)
        if (d <= row.maxD)
          candidates.push_back(
              make(64, row.tileN, 4, row.stages, 4, element, getDecodePack(op),
                   RolesAttr::get(ctx, /*consumers=*/1, ProgramAxis::QueryTile, row.registers,
                                  row.producerRegisters, getDefaultRescale(element),
                                  /*section=*/1, row.blocks, /*queryStages=*/1),
                   kDecodeSplits));
    for (const RolesRow &row : kRolesTable)
      if (row.shape == shape && d <= row.maxD && op.getKnownGroup() % row.pack == 0)
        candidates.push_back(
            make(64, row.tileN, 4, row.stages, 4, element, row.pack,
                 RolesAttr::get(ctx, row.consumers, ProgramAxis::QueryTile, row.registers,
                                row.producerRegisters, getDefaultRescale(element), row.section,
                                row.blocks, row.queryStages)));
  }
  // One warp has rows enough for few queries; a second one copies.
  if (isDecode(op))
    for (int64_t n : {64, 32, 16})
      if (n == 16 || n * d <= (element.isF32() ? 1024 : 4096))
        candidates.push_back(
            make(32, n, 2, 2, 4, element, /*pack=*/1, /*roles=*/{}, kDecodeSplits));
  // Best first, as measured on an H100 (BENCHMARKS.md); the last ones serve chips with less
  // shared memory. Two row blocks a warp halve the reads of K and V where registers allow.
  auto add = [&](int64_t m, int64_t n, int64_t warps, int64_t stages) {
    candidates.push_back(make(m, n, warps, stages, 4, element));
  };
  if (element.isF32()) {
    // Halves of every operand take registers too, so tiles are smaller.
    if (d <= 32)
      add(64, 64, 4, 2);
    if (d <= 128)
      add(64, 32, 4, 2);
    add(64, 16, 4, 2);
    add(64, 16, 4, 1);
  } else {
    if (d <= 32)
      add(128, 64, 4, 2);
    if (d <= 64)
      add(128, 48, 4, 2);
    if (d <= 128) {
      add(128, 64, 8, 2);
      add(64, 64, 4, 2);
    }
    add(64, 32, 4, 2);
    add(64, 32, 4, 1);
  }
  return candidates;
}

/// Whether the mask shows some pair of the lengths that are known.
static bool hasVisiblePair(AttentionOp op) {
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

/// Why a schedule with roles does not fit, as explainRefusal.
static std::string explainRolesRefusal(AttentionOp op, ScheduleAttr schedule, const Chip &chip) {
  RolesAttr roles = schedule.getRoles();
  int64_t m = schedule.getTileM(), n = schedule.getTileN(), stages = schedule.getStages();
  int64_t consumers = roles.getConsumers();
  if (!chip.hasWarpgroups())
    return "expected chip sm_90a for roles but got " + chip.name;
  if (op.getElementType().isF32())
    return "expected elements of f16 or bf16, as wgmma has them, but got f32";
  if (m != 64 || schedule.getWarps() != 4)
    return llvm::formatv("expected tile_m 64 and 4 warps, the rows and warps of a warpgroup, but "
                         "got {0} and {1}",
                         m, schedule.getWarps());
  if (n % 16 != 0 || n > 256)
    return llvm::formatv("expected tile_n to be a multiple of 16 up to 256 but got {0}", n);
  if (!hasVisiblePair(op))
    return "expected a key that some query sees, for a producer to bring, but there is none";
  for (auto [name, operand] :
       {std::pair("q", op.getQ()), std::pair("k", op.getK()), std::pair("v", op.getV())})
    if (isa<MemRefType>(operand.getType()) && !hasAlignedRows(operand))
      return llvm::formatv("expected rows of {0} that begin at multiples of 16 bytes, as tensor "
                           "copies take them; promise them with 'flashattn.aligned_rows'",
                           name);
  if (roles.getAlong() == ProgramAxis::Head) {
    int64_t heads = op.getQ().getType().getDimSize(op.getHeadDim());
    int64_t kvHeads = op.getK().getType().getDimSize(op.getHeadDim());
    if (ShapedType::isDynamic(heads) || ShapedType::isDynamic(kvHeads) || kvHeads == 0 ||
        llvm::divideCeil(heads / kvHeads, schedule.getPack()) % consumers != 0)
      return llvm::formatv(
          "expected a static number of query heads to a key/value head that is "
          "a multiple of {0} consumers{1}",
          consumers,
          schedule.getPack() == 1
              ? ""
              : llvm::formatv(" of {0} packed heads each", schedule.getPack()).str());
  }
  auto padded = [](int64_t d) { return d <= 16 ? 16 : d <= 32 ? 32 : (d + 63) / 64 * 64; };
  int64_t d = padded(op.getD()), dv = padded(op.getDv());
  // An output as wide as the queries takes their place.
  int64_t queryStages = roles.getQueryStages();
  int64_t qBytes = consumers * m * (queryStages * d + (d == dv ? 0 : dv)) * 2;
  int64_t kBytes = stages * n * d * 2, vBytes = stages * n * dv * 2;
  // Beside the barriers stand the bounds of each of the mask's intervals, and what a persistent
  // block is at.
  int64_t barrierBytes = 8 * (consumers + 4 * stages + op.getVisibleSets().size());
  if (queryStages > 1)
    barrierBytes = 8 * (2 * queryStages * consumers + 4 * stages) +
                   queryStages * (8 * op.getVisibleSets().size() + 16);
  int64_t needed = qBytes + kBytes + vBytes + barrierBytes;
  // Each block beside the first has a KiB of the system's own (CUDA programming guide).
  constexpr int64_t kSystem = 1024;
  int64_t available = (chip.getSharedMemoryPerBlock() + kSystem) / roles.getBlocks() - kSystem;
  if (needed > available)
    return llvm::formatv("needs {0} bytes of shared memory (q {1}, k {2}, v {3}, barriers "
                         "{4}) of {5} available",
                         needed, qBytes, kBytes, vBytes, barrierBytes, available);
  // The output, two tiles of scores, one of them as weights, what is loaded for them, and what
  // addresses all.
  int64_t other = 30 + (op.getBias() ? n / 4 : 0) + (op.getKeep() ? n : 0);
  int64_t registers = op.getDv() / 2 + n / 2 + n / 4 + other;
  if (registers > roles.getRegisters())
    return llvm::formatv("needs {0} registers a thread (o {1}, scores {2}, weights {3}, other {4}) "
                         "of {5} that consumers have",
                         registers, op.getDv() / 2, n / 2, n / 4, other, roles.getRegisters());
  // A block gets registers for all of its threads alike, in eights, and shares them out.
  constexpr int64_t kRegisterFile = 65536, kWarpgroup = 128;
  int64_t warpgroups = consumers + 1;
  int64_t each = kRegisterFile / (roles.getBlocks() * kWarpgroup * warpgroups) / 8 * 8;
  int64_t given = kWarpgroup * warpgroups * std::min<int64_t>(each, 255 / 8 * 8);
  int64_t all = kWarpgroup * (consumers * roles.getRegisters() + roles.getProducerRegisters());
  if (all > given)
    return llvm::formatv("needs {0} registers a block of {1} available", all, given);
  // ptxas compiles every instruction for that number, whatever setmaxnreg gives a consumer.
  constexpr int64_t kBeside = 30;
  int64_t widest = std::max<int64_t>(llvm::alignTo(op.getDv(), 16), llvm::alignTo(n, 16));
  if (widest / 2 + kBeside > each)
    return llvm::formatv("needs {0} registers a thread (product {1}, other {2}) of {3} that {4} "
                         "blocks begin with",
                         widest / 2 + kBeside, widest / 2, kBeside, each, roles.getBlocks());
  return "";
}

std::string mlir::flashattn::explainRefusal(AttentionOp op, ScheduleAttr schedule,
                                            const Chip &chip) {
  int64_t m = schedule.getTileM(), n = schedule.getTileN(), stages = schedule.getStages();
  FloatType element = op.getElementType(), dot = schedule.getDotType();
  int64_t d = op.getD(), dv = op.getDv();
  if (schedule.getPack() != 1 && !schedule.getRoles())
    return llvm::formatv("expected pack 1 without roles but got {0}", schedule.getPack());
  // What is read of a query head is read for all rows of a tile at once.
  StringRef ofHeads = op.findInputOfHeads(schedule.getSplits() > 1);
  if (schedule.getPack() != 1 && !ofHeads.empty())
    return llvm::formatv("expected pack 1 with {0} but got {1}", ofHeads, schedule.getPack());
  if (chip.isCPU()) {
    if (schedule.getRoles())
      return "expected no roles on the CPU";
    if (schedule.getWarps() != 1 || schedule.getLanes() != 1)
      return llvm::formatv("expected 1 warp and 1 lane on the CPU but got {0} and {1}",
                           schedule.getWarps(), schedule.getLanes());
    if (!dot.isF32())
      return "expected dot_type f32 on the CPU but got " +
             std::string(dot.isF16() ? "f16" : "bf16");
    for (auto [name, value] : {std::pair("tile_m", m), {"tile_n", n}})
      if (value < 2)
        return llvm::formatv("expected {0} to be at least 2 on the CPU but got {1}", name, value);
    return "";
  }
  auto typeName = [](FloatType t) { return t.isF16() ? "f16" : t.isBF16() ? "bf16" : "f32"; };
  if (dot != element)
    return llvm::formatv("expected dot_type {0}, the operands' element type, but got {1}",
                         typeName(element), typeName(dot));
  for (auto [name, value] : {std::pair("D", d), std::pair("Dv", dv)})
    if (value % 8 != 0 || value > 256)
      return llvm::formatv("expected {0} to be a multiple of 8 up to 256 but got {1}", name, value);
  // Products take 16 at a time.
  d = llvm::alignTo(d, 16);
  dv = llvm::alignTo(dv, 16);
  if (schedule.getLanes() != 4)
    return llvm::formatv("expected 4 lanes a row, as mma.sync has, but got {0}",
                         schedule.getLanes());
  if (schedule.getRoles())
    return explainRolesRefusal(op, schedule, chip);
  if (m % (16 * schedule.getWarps()) != 0)
    return llvm::formatv(
        "expected tile_m to be a multiple of 16 rows for each of {0} warps but got {1}",
        schedule.getWarps(), m);
  if (n % 16 != 0)
    return llvm::formatv("expected tile_n to be a multiple of 16 but got {0}", n);
  if (stages > 2)
    return llvm::formatv("expected 1 or 2 stages but got {0}", stages);

  int64_t bytes = element.getIntOrFloatBitWidth() / 8;
  int64_t qBytes = m * d * bytes, kBytes = stages * n * d * bytes, vBytes = stages * n * dv * bytes;
  int64_t needed = qBytes + kBytes + vBytes, available = chip.getSharedMemoryPerBlock();
  if (needed > available)
    return llvm::formatv("needs {0} bytes of shared memory (q {1}, k {2}, v {3}) of {4} available",
                         needed, qBytes, kBytes, vBytes, available);

  // Registers that one thread must hold at once: the accumulators of o and of the scores, and what
  // is loaded of a keep, in bytes of their own, with where it is.
  int64_t rowBlocks = m / (16 * schedule.getWarps());
  int64_t keep = op.getKeep() ? rowBlocks * n : 0;
  int64_t registers = rowBlocks * (dv / 2 + n / 2) + keep;
  constexpr int64_t kMaxAccumulators = 200; // of 255, the rest for operands and addresses
  if (registers > kMaxAccumulators)
    return llvm::formatv(
        "needs {0} registers a thread for accumulators (o {1}, scores {2}{3}) of {4} available",
        registers, rowBlocks * dv / 2, rowBlocks * n / 2,
        keep ? llvm::formatv(", keep {0}", keep).str() : "", kMaxAccumulators);
  return "";
}
