//===- ResourcePlansTest.cpp - planned resources are those allocated ------===//

#include "flashattn/InitAll.h"
#include "flashattn/Pipelines/Pipelines.h"
#include "flashattn/Target/Schedules.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/GPU/IR/GPUDialect.h"
#include "mlir/IR/Matchers.h"
#include "mlir/Parser/Parser.h"
#include "mlir/Pass/PassInstrumentation.h"
#include "mlir/Pass/PassManager.h"

#include <gtest/gtest.h>

using namespace mlir;
using namespace mlir::flashattn;

namespace {

/// Records the maximum shared memory of a launch after any pass over the module. Passes over nested
/// ops are skipped: they run concurrently and may change the IR during the walk.
class WatchLaunches : public PassInstrumentation {
public:
  WatchLaunches(ModuleOp module, int64_t &bytes) : module(module), bytes(bytes) {}
  void runAfterPass(Pass *, Operation *op) override {
    if (op != module)
      return;
    module->walk([&](gpu::LaunchOp launch) {
      APInt size;
      if (launch.getDynamicSharedMemorySize() &&
          matchPattern(launch.getDynamicSharedMemorySize(), m_ConstantInt(&size)))
        bytes = std::max(bytes, size.getSExtValue());
    });
  }

private:
  ModuleOp module;
  int64_t &bytes;
};

class ResourcePlans : public ::testing::Test {
protected:
  ResourcePlans() {
    DialectRegistry registry;
    registerAllFlashAttnDialects(registry);
    registerAllFlashAttnExtensions(registry);
    ctx.appendDialectRegistry(registry);
  }

  /// Expects that a function's attention or projection, compiled for `chip`, allocates the planned
  /// shared memory.
  void expectPlanned(StringRef chip, const std::string &function) {
    SCOPED_TRACE(chip.str() + "\n" + function);
    OwningOpRef<ModuleOp> module = parseSourceString<ModuleOp>(function, &ctx);
    ASSERT_TRUE(module);
    llvm::Expected<Machine> machine = Machine::get(chip);
    ASSERT_TRUE(bool(machine)) << llvm::toString(machine.takeError());
    int64_t planned = 0, allocated = 0;
    auto plan = [&](auto op) {
      ScheduleAttr schedule = op.getScheduleAttr();
      for (ScheduleAttr candidate : getScheduleCandidates(op, *machine))
        if (!schedule && explainRefusal(op, candidate, *machine).empty())
          schedule = candidate;
      ASSERT_TRUE(schedule);
      planned = planSharedMemory(op, schedule).getBytes();
    };
    module->walk([&](AttentionOp op) { plan(op); });
    module->walk([&](ProjectOp op) { plan(op); });
    // The passes after the launches need a code generator and may fail.
    ScopedDiagnosticHandler quiet(&ctx, [](Diagnostic &) { return success(); });
    PassManager pm(&ctx);
    pm.addInstrumentation(std::make_unique<WatchLaunches>(*module, allocated));
    FlashAttnToNVVMOptions options;
    options.chip = chip.str();
    buildFlashAttnToNVVMPipeline(pm, options);
    (void)pm.run(*module);
    EXPECT_GT(planned, 0);
    EXPECT_EQ(allocated, planned);
  }

  static std::string attention(int64_t d, int64_t dv, StringRef clauses, StringRef element = "f16",
                               StringRef queries = "?", StringRef strides = "") {
    auto type = [&](StringRef rows, int64_t columns) {
      return llvm::formatv("memref<?x?x{0}x{1}x{2}{3}>", rows, columns, element, strides).str();
    };
    std::string q = type(queries, d), k = type("?", d), v = type("?", dv), o = type(queries, dv);
    return llvm::formatv("func.func @f(%q: {0}, %k: {1}, %v: {2}, %o: {3}) {{\n"
                         "flashattn.attention {4} ins(%q, %k, %v : {0}, {1}, {2}) outs(%o : {3})\n"
                         "return\n}\n",
                         q, k, v, o, clauses);
  }

  MLIRContext ctx;
};

constexpr StringLiteral kSinks =
    "mask(#flashattn.any_of<[#flashattn.window<left = 1023, right = 0>, "
    "#flashattn.all_of<[#flashattn.sink<4>, #flashattn.causal]>]>)";
/// Two sets, one of which contains the other.
constexpr StringLiteral kRedundant = "mask(#flashattn.any_of<[#flashattn.causal, "
                                     "#flashattn.window<left = 15, right = 0>]>)";

TEST_F(ResourcePlans, Warpgroups) {
  for (auto [d, dv] : {std::pair(64, 64), {128, 128}, {192, 128}, {24, 40}})
    for (StringRef mask : {StringRef(), StringRef("mask(#flashattn.causal)"), StringRef(kSinks),
                           StringRef(kRedundant)})
      expectPlanned("sm_90a", attention(d, dv, mask));
  // The positions in a list of key tiles are one interval.
  expectPlanned("sm_90a", R"mlir(
    func.func @f(%q: memref<?x?x?x64xf16>, %k: memref<?x?x?x64xf16>,
                 %attn_mask: memref<1x1x?x?xi1>, %o: memref<?x?x?x64xf16>) {
      flashattn.attention mask(#flashattn.any_of<[
          #flashattn.causal, #flashattn.set<"(p, k)[nq, nk] : (k - p - 9 >= 0)">]>)
        ins(%q, %k, %k : memref<?x?x?x64xf16>, memref<?x?x?x64xf16>, memref<?x?x?x64xf16>)
        attn_mask(%attn_mask : memref<1x1x?x?xi1>) outs(%o : memref<?x?x?x64xf16>)
      return
    })mlir");
}

// Split-KV programs have no outputs of the operands' type.
TEST_F(ResourcePlans, FewQueries) {
  for (auto [d, dv] : {std::pair(64, 64), {256, 256}, {192, 128}}) {
    expectPlanned("sm_90a", attention(d, dv, "", "bf16", "1"));
    expectPlanned("sm_80", attention(d, dv, "", "bf16", "1"));
  }
}

// A swizzle of 64 columns has a period of 1024 bytes. Key tiles of 16 columns end within a period,
// so that a gap follows.
TEST_F(ResourcePlans, TilesBeginWhereASwizzleDoes) {
  constexpr StringLiteral kPinned =
      "schedule(<tile_m = 64, tile_n = 48, stages = 1, dot_type = f16, mapping = hopper<consumers "
      "= 1, along = query_tile, registers = 240, producer_registers = 24, rescale_threshold = 4, "
      "l2_head_group = 1>>)";
  expectPlanned("sm_90a", attention(16, 64, kPinned));
  WarpgroupBlock block;
  block.residents = {{"q", 64, 16}};
  block.streamed = {{"k", 48, 16}, {"v", 48, 64}};
  WarpgroupBlockPlan plan = planWarpgroupBlock(block);
  const SharedBuffer &values = plan.memory[plan.rings[1].buffer];
  EXPECT_EQ(values.offset, 64 * 16 * 2 + 48 * 16 * 2 + 512);
  EXPECT_EQ(values.offset % 1024, 0);
  EXPECT_EQ(plan.memory.explainRefusal(8192),
            "needs 10288 bytes of shared memory (q 2048, k 1536, v "
            "6144, barriers 40, bounds 8, gaps 512) of 8192 "
            "available");
}

TEST_F(ResourcePlans, StagedTiles) {
  for (StringRef chip : {StringRef("sm_80"), StringRef("sm_86")})
    for (StringRef element : {StringRef("f16"), StringRef("f32")})
      for (auto [d, dv] : {std::pair(64, 64), {128, 128}, {64, 128}, {24, 40}})
        expectPlanned(chip, attention(d, dv, "mask(#flashattn.causal)", element));
  // If K and V are the same memref, their tiles are loaded twice.
  expectPlanned("sm_80", R"mlir(
    func.func @f(%q: memref<?x?x?x64xf16>, %k: memref<?x?x?x64xf16>, %o: memref<?x?x?x64xf16>) {
      flashattn.attention ins(%q, %k, %k : memref<?x?x?x64xf16>, memref<?x?x?x64xf16>, memref<?x?x?x64xf16>)
        outs(%o : memref<?x?x?x64xf16>)
      return
    })mlir");
  expectPlanned("sm_80", R"mlir(
    func.func @f(%o: memref<2x8x?x64xf16>, %w: memref<8x64x512xf16>, %p: memref<2x?x512xf16>) {
      flashattn.project ins(%o, %w : memref<2x8x?x64xf16>, memref<8x64x512xf16>) outs(%p : memref<2x?x512xf16>)
      return
    })mlir");
}

// With one query buffer, the ring buffers signal that the next queries may be loaded. A block then
// keeps the descriptions of two groups, the current and the next.
TEST_F(ResourcePlans, OnePlace) {
  WarpgroupBlock block;
  block.residents = {{"q", 64, 256}};
  block.streamed = {{"k", 64, 256}, {"v", 64, 256}};
  block.consumers = block.programs = 2;
  block.stages = 2;
  block.claims = true;
  WarpgroupBlockPlan plan = planWarpgroupBlock(block);
  EXPECT_FALSE(plan.residentEmpty.has_value());
  EXPECT_EQ(plan.rings[0].full, 2);
  EXPECT_EQ(plan.memory[plan.residents[0]].shape[0], 2);
  EXPECT_EQ(plan.slots, 2);
  EXPECT_EQ(plan.memory[*plan.numbers].shape[0], 2);
  EXPECT_EQ(plan.memory[plan.bounds].shape[0], 2);
  // Consumers that share a program signal it themselves, through mbarriers (residentEmpty).
  block.programs = 1;
  plan = planWarpgroupBlock(block);
  EXPECT_EQ(plan.residentEmpty, 1);
  EXPECT_EQ(plan.slots, 1);
}

// The outputs of a block use the buffers of the queries if they have the same size or fewer panels.
TEST_F(ResourcePlans, OutputsInPlace) {
  WarpgroupBlock block;
  block.residents = {{"q", 64, 128}};
  block.streamed = {{"k", 80, 128}, {"v", 80, 128}};
  block.outputs = {{"o", 64, 128}};
  block.consumers = block.programs = 3;
  block.stages = 2;
  EXPECT_EQ(planWarpgroupBlock(block).outputs, planWarpgroupBlock(block).residents);
  block.outputs[0].columns = 64;
  EXPECT_EQ(planWarpgroupBlock(block).outputs, planWarpgroupBlock(block).residents);
  // More panels, panels of another width, or fewer rows.
  for (const TileShape &other : {TileShape{"o", 64, 192}, {"o", 64, 32}, {"o", 32, 128}}) {
    block.outputs[0] = other;
    EXPECT_NE(planWarpgroupBlock(block).outputs, planWarpgroupBlock(block).residents);
  }
  // Each output uses another buffer, in any order.
  block.residents = {{"k", 64, 192}, {"v", 64, 128}};
  block.outputs = {{"dv", 64, 128}, {"dk", 64, 192}};
  EXPECT_EQ(planWarpgroupBlock(block).outputs, (SmallVector<unsigned>{1, 0}));
  block.residents.pop_back();
  EXPECT_NE(planWarpgroupBlock(block).outputs[0], 0u);
  EXPECT_EQ(planWarpgroupBlock(block).outputs[1], 0u);
  block.residents = {{"q", 64, 128}};
  block.outputs = {{"o", 64, 256}};
  block.slots = 2;
  WarpgroupBlockPlan plan = planWarpgroupBlock(block);
  EXPECT_EQ(*plan.residentEmpty, 6);
  EXPECT_EQ(plan.rings[0].full, 12);
  EXPECT_EQ(plan.rings[1].empty, 18);
  EXPECT_EQ(plan.memory[plan.barriers].shape[0], 20);
  EXPECT_TRUE(plan.numbers.has_value());
}

TEST(Registers, Queries) {
  // f16 with D = 128: Q fits the registers of 8 warps that share the rows. With D = 256 it needs
  // too many.
  EXPECT_TRUE(holdsQueries(countMmaRegisters(128, 64, 8, 128, 128, false, false)));
  EXPECT_FALSE(holdsQueries(countMmaRegisters(64, 32, 4, 256, 256, false, false)));
  // An f32 operand takes two halves.
  EXPECT_TRUE(holdsQueries(countMmaRegisters(64, 32, 4, 96, 96, true, false)));
  EXPECT_FALSE(holdsQueries(countMmaRegisters(64, 32, 4, 128, 128, true, false)));
  // The output is as wide as V.
  EXPECT_FALSE(holdsQueries(countMmaRegisters(64, 32, 4, 128, 256, false, false)));
}

TEST(Machines, Table) {
  llvm::Expected<Machine> hopper = Machine::get("sm_90a"), plain = Machine::get("sm_90");
  ASSERT_TRUE(bool(hopper) && bool(plain));
  EXPECT_TRUE(hopper->hasWarpgroups() && hopper->hasDependentLaunch());
  EXPECT_TRUE(!plain->hasWarpgroups() && plain->hasDependentLaunch());
  EXPECT_EQ(hopper->getSharedMemoryPerBlock(), 227 * 1024);
  for (StringRef name : {"", "sm_99", "sm_75", "sm_80 ", "CPU"}) {
    llvm::Expected<Machine> none = Machine::get(name);
    ASSERT_FALSE(bool(none));
    std::string message = llvm::toString(none.takeError());
    for (const ChipInfo &chip : getChips())
      EXPECT_NE(message.find("'" + chip.name.str() + "'"), std::string::npos);
  }
  // If only a GPU is accepted, the message does not list the CPU.
  EXPECT_TRUE(bool(Machine::getGPU("sm_90a")));
  for (StringRef name : {"cpu", "sm_75"}) {
    llvm::Expected<Machine> none = Machine::getGPU(name);
    ASSERT_FALSE(bool(none));
    std::string message = llvm::toString(none.takeError());
    EXPECT_TRUE(StringRef(message).starts_with("expected chip 'sm_80', "));
    EXPECT_TRUE(StringRef(message).ends_with("but got '" + name.str() + "'"));
    EXPECT_EQ(StringRef(message).count("'cpu'"), name == "cpu" ? 1u : 0u);
  }
  EXPECT_EQ(listChips(ChipInfo::kWarpgroups), "sm_90a");
}

} // namespace
