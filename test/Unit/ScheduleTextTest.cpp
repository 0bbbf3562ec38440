//===- ScheduleTextTest.cpp - schedules as text and as trials -------------===//

#include "flashattn/Target/Schedules.h"
#include "mlir/IR/MLIRContext.h"
#include "llvm/ADT/STLExtras.h"

#include <gtest/gtest.h>

using namespace mlir;
using namespace mlir::flashattn;

namespace {

class ScheduleText : public ::testing::Test {
protected:
  ScheduleText() { ctx.loadDialect<FlashAttnDialect>(); }

  /// Returns the completed schedule as text, "" if the op chooses the tile sizes, or the error
  /// message.
  std::string complete(StringRef text, bool onCPU = false) {
    auto fields = completeSchedule(text, Float16Type::get(&ctx), onCPU);
    if (!fields)
      return llvm::toString(fields.takeError());
    return *fields ? formatFields(**fields) : "";
  }

  MLIRContext ctx;
};

TEST_F(ScheduleText, ReadsWhatItWrites) {
  for (StringRef text :
       {"tile_m = 64, tile_n = 80, stages = 2, dot_type = f16, mapping = mma_sync<warps = 4>",
        "tile_m = 64, tile_n = 80, stages = 2, dot_type = bf16, "
        "pack = 4, splits = 8, min_split_tiles = 4, mapping = mma_sync<warps = 4, q_in_registers "
        "= false>",
        "tile_m = 64, tile_n = 32, stages = 2, dot_type = f16, "
        "dq_tile_m = 128, algorithm = separate_dk_dv, mapping = mma_sync<warps = 4, column_warps "
        "= 2, q_in_registers = true>",
        "tile_m = 64, tile_n = 80, stages = 2, dot_type = f16, "
        "mapping = hopper<consumers = 3, along = head, registers = 160, producer_registers = 32, "
        "rescale_threshold = 4, l2_head_group = 1, blocks_per_sm = 2, q_stages = 2, lazy_rescale "
        "= 1, dynamic_scheduler = 1>",
        "tile_m = 128, tile_n = 64, stages = 2, dot_type = f16, algorithm = accumulate_dq, "
        "mapping = hopper<consumers = 2, cooperative = 1, along = query_tile, registers = 240, "
        "producer_registers = 24, rescale_threshold = 0, l2_head_group = 1>",
        "tile_m = 16, tile_n = 64, stages = 1, dot_type = f32, mapping = cpu"}) {
    ScheduleAttr schedule = parseScheduleFields(text, &ctx);
    ASSERT_TRUE(schedule) << text.str();
    EXPECT_EQ(getScheduleFields(schedule), text);
    EXPECT_EQ(complete(text), text);
    EXPECT_EQ(ScheduleAttr::get(&ctx, schedule.getFields()), schedule);
  }
  EXPECT_FALSE(parseScheduleFields("tile_m = 64", &ctx));
}

TEST_F(ScheduleText, CompletesWhatIsLeftOut) {
  EXPECT_EQ(complete("tile_n = 32, tile_m = 128"),
            "tile_m = 128, tile_n = 32, stages = 2, dot_type = f16, mapping = mma_sync<warps = 8>");
  EXPECT_EQ(complete("tile_n = 32, tile_m = 128, mapping = mma_sync<column_warps = 2>"),
            "tile_m = 128, tile_n = 32, stages = 2, dot_type = f16, "
            "mapping = mma_sync<warps = 8, column_warps = 2>");
  EXPECT_EQ(complete("tile_m = 16, tile_n = 64", /*onCPU=*/true),
            "tile_m = 16, tile_n = 64, stages = 1, dot_type = f32, mapping = cpu");
  EXPECT_EQ(complete("tile_n = 80, mapping = hopper<consumers = 3>"),
            "tile_m = 64, tile_n = 80, stages = 2, dot_type = f16, "
            "mapping = hopper<consumers = 3, along = query_tile, registers = 160, "
            "producer_registers = 32, "
            "rescale_threshold = 4, l2_head_group = 1>");
  EXPECT_NE(complete("tile_n = 80, mapping = hopper<consumers = 1, producer_registers = 56, "
                     "blocks_per_sm = 2>")
                .find("registers = 200, producer_registers = 56"),
            std::string::npos);
}

TEST_F(ScheduleText, LeavesTileSizesToTheOp) {
  for (StringRef text :
       {"tile_m = 64", "", "tile_n = 64, stages = 3", "mapping = hopper<consumers = 2>"})
    EXPECT_EQ(complete(text), "") << text.str();
}

TEST_F(ScheduleText, Refusals) {
  EXPECT_EQ(complete("tile_m = 64, depth = 2"),
            "expected schedule fields tile_m, tile_n, stages, dot_type, pack, splits, "
            "min_split_tiles, dq_tile_m, algorithm, mapping but got depth");
  EXPECT_EQ(complete("tile_m = 64, tile_n = x"),
            "expected an integer as schedule field tile_n but got 'x'");
  EXPECT_EQ(complete("tile_n = 64, depth = 2, mapping = hopper<consumers = 1>"),
            "expected schedule fields tile_m, tile_n, stages, dot_type, pack, splits, "
            "min_split_tiles, dq_tile_m, algorithm, mapping but got depth");
  EXPECT_EQ(complete("tile_m = 64, tile_n = 64, dot_type = f64"),
            "expected f16, bf16, f32 or f8E4M3FN as schedule field dot_type but got 'f64'");
  EXPECT_EQ(complete("tile_m = 64, tile_n = 64, mapping = mma_sync<q_in_registers = 1>"),
            "expected true or false as mma_sync field q_in_registers but got '1'");
  EXPECT_EQ(complete("tile_m = 64, tile_n = 64, algorithm = fast"),
            "expected separate_dq, accumulate_dq, split_dk_dv or separate_dk_dv as schedule field "
            "algorithm but got 'fast'");
  EXPECT_EQ(complete("tile_n = 64, mapping = 3"),
            "expected schedule field mapping to be cpu, mma_sync<...> or hopper<...> but got '3'");
  EXPECT_EQ(complete("tile_n = 64, mapping = hopper<consumers = 2"),
            "expected schedule field mapping to be cpu, mma_sync<...> or hopper<...> but got "
            "'hopper<consumers = 2'");
  EXPECT_EQ(complete("tile_n = 64, mapping = hopper<along = head>"),
            "expected hopper field consumers but got along");
  EXPECT_EQ(complete("tile_n = 64, mapping = hopper<consumers = 2, along = batch>"),
            "expected query_tile or head as hopper field along but got 'batch'");
}

// A field with an old name is rejected with a message that contains the new name.
TEST_F(ScheduleText, NamesRenamedFields) {
  SmallVector<StringRef> names;
  auto add = [&](const FieldInfo &info, const auto &) { names.push_back(info.name); };
  ScheduleFields fields;
  HopperFields hopper;
  visitScheduleFields(fields, add);
  visitHopperFields(hopper, add);
  auto endsWithNew = [](StringRef text, StringRef old) {
    return text.ends_with(("; " + old + " is now " + getNewFieldName(old)).str());
  };
  for (StringRef old : {"lanes", "threads_per_row", "warps", "column_warps", "min_part_tiles",
                        "narrow_blocks", "small_blocks_per_sm", "tile_q", "queries_in_registers",
                        "q_in_registers", "apart", "separate_dk_dv", "roles", "hopper"}) {
    std::string text = complete(("tile_m = 64, " + old + " = 1").str());
    EXPECT_TRUE(llvm::is_contained(names, getNewFieldName(old).split(' ').first)) << old.str();
    EXPECT_TRUE(endsWithNew(text, old)) << text;
  }
  for (StringRef old : {"rescale", "section", "blocks", "query_stages", "late_rescale",
                        "claims_below", "add_stages", "joins", "in_flight", "query_columns"}) {
    std::string text = complete(("mapping = hopper<consumers = 1, " + old + " = 1>").str());
    EXPECT_TRUE(llvm::is_contained(names, getNewFieldName(old))) << old.str();
    EXPECT_TRUE(endsWithNew(text, old)) << text;
  }
}

TEST_F(ScheduleText, Trials) {
  TrialProblem problem;
  problem.element = Float16Type::get(&ctx);
  problem.group = 8;
  auto trials = [&](StringRef chip, const TrialGrid &grid = {}) {
    return getTrials(problem, llvm::cantFail(Machine::get(chip)), grid);
  };
  auto isWarpSpecialized = [](const ScheduleFields &fields) {
    return fields.getHopper() != nullptr;
  };
  // Every trial is a valid attribute, and occurs once.
  for (StringRef chip : {"cpu", "sm_80", "sm_90a"}) {
    std::vector<ScheduleFields> all = trials(chip);
    EXPECT_GE(all.size(), 12u);
    for (auto [i, fields] : llvm::enumerate(all)) {
      EXPECT_TRUE(parseScheduleFields(formatFields(fields), &ctx)) << formatFields(fields);
      EXPECT_EQ(llvm::count(all, fields), 1);
      EXPECT_EQ(fields.pack, 1);
    }
    EXPECT_EQ(llvm::any_of(all, isWarpSpecialized), chip == "sm_90a");
  }
  problem.packs = true;
  EXPECT_TRUE(llvm::any_of(trials("sm_90a"), [](auto &fields) { return fields.pack == 8; }));
  EXPECT_FALSE(llvm::any_of(trials("sm_90a"), [](auto &fields) { return fields.pack == 16; }));
  // Given numbers replace those of the grid, even if no schedule may have them.
  TrialGrid grid;
  grid.tileN = {2000};
  grid.registers = {216};
  for (const ScheduleFields &fields : trials("sm_90a", grid)) {
    EXPECT_EQ(fields.tileN, 2000);
    ASSERT_TRUE(fields.getHopper());
    EXPECT_EQ(fields.getHopper()->registers, 216);
  }
  EXPECT_TRUE(trials("sm_80", grid).empty());
}

TEST_F(ScheduleText, TrialsOfGradients) {
  TrialProblem problem;
  problem.element = Float16Type::get(&ctx);
  problem.gradients = true;
  auto trials = [&](StringRef chip, const TrialGrid &grid = {}) {
    return getTrials(problem, llvm::cantFail(Machine::get(chip)), grid);
  };
  for (StringRef chip : {"cpu", "sm_80", "sm_90a"}) {
    std::vector<ScheduleFields> all = trials(chip);
    EXPECT_GE(all.size(), 12u);
    for (const ScheduleFields &fields : all) {
      EXPECT_TRUE(parseScheduleFields(formatFields(fields), &ctx)) << formatFields(fields);
      EXPECT_EQ(llvm::count(all, fields), 1);
      EXPECT_EQ(fields.splits, 1);
      // The backward pass has no row maxima to rescale by.
      EXPECT_TRUE(!fields.getHopper() || fields.getHopper()->rescaleThreshold == 0);
    }
    auto any = [&](auto &&has) { return llvm::any_of(all, has); };
    EXPECT_EQ(
        any([](auto &f) { return f.algorithm == BackwardAlgorithm::SeparateDkDv && f.dqTileM; }),
        chip != "cpu");
    EXPECT_EQ(any([](auto &f) { return f.getMmaSync() && f.getMmaSync()->columnWarps == 2; }),
              chip != "cpu");
    for (auto [algorithm, rows] : {std::pair(BackwardAlgorithm::SeparateDkDv, 64),
                                   {BackwardAlgorithm::SplitDkDv, 64},
                                   {BackwardAlgorithm::AccumulateDq, 128}})
      EXPECT_EQ(any([&](auto &f) {
                  return f.getHopper() && f.tileM == rows && f.algorithm == algorithm;
                }),
                chip == "sm_90a");
  }
  // Given values are tried; compilation may reject them later.
  TrialGrid grid;
  grid.pack = {2};
  grid.tileM = {128};
  std::vector<ScheduleFields> given = trials("sm_90a", grid);
  EXPECT_FALSE(given.empty());
  for (const ScheduleFields &fields : given)
    EXPECT_TRUE(fields.getHopper() && fields.pack == 2 && fields.tileM == 128);
}

} // namespace
