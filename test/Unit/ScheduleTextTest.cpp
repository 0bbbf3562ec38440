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
       {"tile_m = 64, tile_n = 80, warps = 4, stages = 2, threads_per_row = 4, dot_type = f16",
        "tile_m = 64, tile_n = 80, warps = 4, stages = 2, threads_per_row = 4, dot_type = bf16, "
        "pack = 4, splits = 8, min_split_tiles = 4, q_in_registers = false",
        "tile_m = 64, tile_n = 32, warps = 4, stages = 2, threads_per_row = 4, dot_type = f16, "
        "dq_tile_m = 128, column_warps = 2, q_in_registers = true, separate_dk_dv = true",
        "tile_m = 64, tile_n = 80, warps = 4, stages = 2, threads_per_row = 4, dot_type = f16, "
        "hopper = <consumers = 3, along = head, registers = 160, producer_registers = 32, "
        "rescale_threshold = 4, l2_head_group = 1, blocks_per_sm = 2, q_stages = 2, lazy_rescale "
        "= 1, dynamic_scheduler_max_len = 2048>"}) {
    ScheduleAttr schedule = parseScheduleFields(text, &ctx);
    ASSERT_TRUE(schedule) << text.str();
    EXPECT_EQ(getScheduleFields(schedule), text);
    EXPECT_EQ(complete(text), text);
    EXPECT_EQ(ScheduleAttr::get(&ctx, schedule.getFields()), schedule);
  }
  EXPECT_FALSE(parseScheduleFields("tile_m = 64", &ctx));
}

TEST_F(ScheduleText, CompletesWhatIsLeftOut) {
  EXPECT_EQ(
      complete("tile_n = 32, tile_m = 128"),
      "tile_m = 128, tile_n = 32, warps = 8, stages = 2, threads_per_row = 4, dot_type = f16");
  EXPECT_EQ(complete("tile_m = 16, tile_n = 64", /*onCPU=*/true),
            "tile_m = 16, tile_n = 64, warps = 1, stages = 1, threads_per_row = 1, dot_type = f32");
  EXPECT_EQ(
      complete("tile_n = 80, hopper = <consumers = 3>"),
      "tile_m = 64, tile_n = 80, warps = 4, stages = 2, threads_per_row = 4, dot_type = f16, "
      "hopper = <consumers = 3, along = query_tile, registers = 160, producer_registers = 32, "
      "rescale_threshold = 4, l2_head_group = 1>");
  EXPECT_NE(
      complete("tile_n = 80, hopper = <consumers = 1, producer_registers = 56, blocks_per_sm = 2>")
          .find("registers = 200, producer_registers = 56"),
      std::string::npos);
}

TEST_F(ScheduleText, LeavesTileSizesToTheOp) {
  for (StringRef text : {"tile_m = 64", "", "tile_n = 64, stages = 3", "hopper = <consumers = 2>"})
    EXPECT_EQ(complete(text), "") << text.str();
}

TEST_F(ScheduleText, Refusals) {
  EXPECT_EQ(
      complete("tile_m = 64, depth = 2"),
      "expected schedule fields tile_m, tile_n, warps, stages, threads_per_row, dot_type, pack, "
      "splits, min_split_tiles, small_blocks_per_sm, dq_tile_m, column_warps, q_in_registers, "
      "separate_dk_dv, hopper but got depth");
  EXPECT_EQ(complete("tile_m = 64, tile_n = x"),
            "expected an integer as schedule field tile_n but got 'x'");
  EXPECT_EQ(
      complete("tile_n = 64, depth = 2, hopper = <consumers = 1>"),
      "expected schedule fields tile_m, tile_n, warps, stages, threads_per_row, dot_type, pack, "
      "splits, min_split_tiles, small_blocks_per_sm, dq_tile_m, column_warps, q_in_registers, "
      "separate_dk_dv, hopper but got depth");
  EXPECT_EQ(complete("tile_m = 64, tile_n = 64, dot_type = f64"),
            "expected f16, bf16 or f32 as schedule field dot_type but got 'f64'");
  EXPECT_EQ(complete("tile_m = 64, tile_n = 64, q_in_registers = 1"),
            "expected true or false as schedule field q_in_registers but got '1'");
  EXPECT_EQ(complete("tile_n = 64, hopper = 3"),
            "expected schedule field hopper to be fields in <> but got '3'");
  EXPECT_EQ(complete("tile_n = 64, hopper = <along = head>"),
            "expected hopper field consumers but got along");
  EXPECT_EQ(complete("tile_n = 64, hopper = <consumers = 2, along = batch>"),
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
  for (StringRef old : {"lanes", "min_part_tiles", "narrow_blocks", "tile_q",
                        "queries_in_registers", "apart", "roles"}) {
    std::string text = complete(("tile_m = 64, " + old + " = 1").str());
    StringRef name = getNewFieldName(old);
    EXPECT_TRUE(llvm::is_contained(names, name)) << old.str();
    EXPECT_TRUE(StringRef(text).ends_with(("; " + old + " is now named " + name).str())) << text;
  }
  for (StringRef old : {"rescale", "section", "blocks", "query_stages", "late_rescale",
                        "claims_below", "add_stages", "joins", "in_flight", "query_columns"}) {
    std::string text = complete(("hopper = <consumers = 1, " + old + " = 1>").str());
    StringRef name = getNewFieldName(old);
    EXPECT_TRUE(llvm::is_contained(names, name)) << old.str();
    EXPECT_TRUE(StringRef(text).ends_with(("; " + old + " is now named " + name).str())) << text;
  }
  for (StringRef name : names)
    EXPECT_EQ(getNewFieldName(name), "") << name.str();
}

TEST_F(ScheduleText, Trials) {
  TrialProblem problem;
  problem.element = Float16Type::get(&ctx);
  problem.group = 8;
  auto trials = [&](StringRef chip, const TrialGrid &grid = {}) {
    return getTrials(problem, llvm::cantFail(Machine::get(chip)), grid);
  };
  auto isWarpSpecialized = [](const ScheduleFields &fields) { return fields.hopper.has_value(); };
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
    ASSERT_TRUE(fields.hopper);
    EXPECT_EQ(fields.hopper->registers, 216);
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
      EXPECT_TRUE(!fields.hopper || fields.hopper->rescaleThreshold == 0);
    }
    auto any = [&](auto &&has) { return llvm::any_of(all, has); };
    EXPECT_EQ(any([](auto &f) { return f.separateDkDv && f.dqTileM; }), chip != "cpu");
    EXPECT_EQ(any([](auto &f) { return f.columnWarps == 2; }), chip != "cpu");
    EXPECT_EQ(any([](auto &f) { return f.hopper && f.tileM == 64 && f.separateDkDv; }),
              chip == "sm_90a");
    EXPECT_EQ(any([](auto &f) { return f.hopper && f.tileM == 128 && f.warps == 8; }),
              chip == "sm_90a");
  }
  // Given values are tried; compilation may reject them later.
  TrialGrid grid;
  grid.pack = {2};
  grid.tileM = {128};
  std::vector<ScheduleFields> given = trials("sm_90a", grid);
  EXPECT_FALSE(given.empty());
  for (const ScheduleFields &fields : given)
    EXPECT_TRUE(fields.hopper && fields.pack == 2 && fields.tileM == 128);
}

} // namespace
