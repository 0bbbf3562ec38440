//===- Grid.cpp - which programs a block runs, and when -------------------===//

#include "Block.h"
#include "flashattn/Dialect/FlashAttn/Program/Spaces.h"

using namespace mlir;
using namespace mlir::flashattn;

/// Stored in place of a group's batch to signal that no group is left.
static constexpr int64_t kNoGroup = std::numeric_limits<int32_t>::max();

Value BlockBuilder::stagingAt(Value step) {
  int64_t places = plan.getDqReduceStages();
  if (places == 1)
    return block.staging.front();
  // The buffers are contiguous.
  const SharedBuffer &first = plan.memory.memory[plan.memory.staging.front()];
  Value offset = add(mul(slotOf(step, places), first.getBytes()), index(first.offset));
  return memref::ViewOp::create(b, loc, cast<MemRefType>(block.staging.front().getType()),
                                block.pool, offset, ValueRange());
}

//===----------------------------------------------------------------------===//
// Groups of programs
//===----------------------------------------------------------------------===//

/// Computes the number of groups of programs. Each block runs one group at a time.
void GridBuilder::countGroups(BlockValues &values) {
  ProgramOp program = plan.program;
  values.tiles = program.getSizes()[2];
  if (program.getSizes().size() > 3)
    values.tiles = mul(values.tiles, program.getSizes()[3]);
  values.tileGroups = values.tiles;
  Value batches = program.getSizes()[0], heads = program.getSizes()[1];
  Value headGroups = heads, consumers = index(plan.getPrograms());
  if (plan.getHeadsPerBlock() > 1 || plan.hopper.getAlong() == ProgramAxis::Head)
    headGroups = div(heads, consumers);
  else
    values.tileGroups = b.createOrFold<arith::CeilDivUIOp>(loc, values.tiles, consumers);
  values.groups = mul(mul(batches, headGroups), values.tileGroups);
}

/// Returns the number of blocks that run at once.
Value GridBuilder::countResidentBlocks() {
  return mul(MultiprocessorCountOp::create(b, loc), index(plan.hopper.getBlocksPerSM()));
}

/// Returns the number of heads per section such that a section has a group for each block that runs
/// at once, or for all but a sixteenth of them. The L2 cache then holds the K and V of few heads at
/// a time, and no multiprocessor idles during the last section. Sections have about the same size.
Value GridBuilder::countHeadsPerSection() {
  Value places = countResidentBlocks(), heads = div(block.groups, block.tileGroups);
  Value sections = div(block.groups, sub(places, div(places, index(16))));
  return toI32(b.createOrFold<arith::CeilDivUIOp>(loc, heads, max(sections, index(1))));
}

/// Returns the number of stages of each ring that stay without a tile in flight, so that all blocks
/// that run at once prefetch at most `prefetch_kib_per_sm` KiB per SM, but at least two tiles each.
Value GridBuilder::countIdleStages() {
  constexpr int64_t kKiB = 1024, kLeast = 2;
  int64_t bytes = 0;
  for (LoadTileOp load : plan.streams)
    bytes +=
        getCopiedType(load).getNumElements() * getCopiedType(load).getElementTypeBitWidth() / 8;
  Value most = mul(MultiprocessorCountOp::create(b, loc), plan.hopper.getPrefetchKiBPerSM() * kKiB);
  Value ahead = div(most, mul(min(block.groups, countResidentBlocks()), bytes));
  ahead = min(max(ahead, index(kLeast)), index(plan.getStages()));
  return toI32(sub(index(plan.getStages()), ahead));
}

/// Returns the number of persistent blocks: as many as run at once, or as there are groups. Blocks
/// that claim groups wait for the kernel that clears the counter. With few groups per block there
/// is one block per group instead, unless the next residents must wait for the steps of this group.
Value GridBuilder::countBlocks() {
  Value resident = countResidentBlocks();
  if (!plan.claims() || plan.reusesResidentBuffers())
    return min(block.groups, resident);
  // A list of groups may have fewer groups than its size.
  if (plan.listsGroups())
    return min(block.groups, resident);
  constexpr int64_t kFew = 4;
  Value few = less(block.groups, mul(resident, index(kFew)));
  return select(few, block.groups, resident);
}

/// Returns the number of groups of a head that have one program less than the others; all groups if
/// they have the same size.
Value GridBuilder::countSmallerGroups() {
  Value tiles = toI32(block.tiles), perHead = toI32(block.tileGroups);
  return sub(perHead, sub(tiles, mul(div(tiles, perHead), perHead)));
}

/// Returns the number of heads, or groups of heads that blocks run, of a batch, i32.
Value GridBuilder::countHeadGroups() {
  ProgramOp program = plan.program;
  return div(toI32(program.getSizes()[1]), i32(plan.getHeadsPerBlock()));
}

/// Returns the number of groups of a head, i32.
Value GridBuilder::countPerHead() {
  if (!block.scheduler.list)
    return toI32(block.tileGroups);
  return memref::LoadOp::create(b, loc, block.scheduler.list, ValueRange{index(0), index(0)});
}

/// Returns the group at `position` of the list of groups, i32.
Group GridBuilder::fromList(Value position, Value head) {
  Value row = toIndex(add(position, i32(1)));
  auto number = [&](int64_t column) {
    return toIndex(
        memref::LoadOp::create(b, loc, block.scheduler.list, ValueRange{row, index(column)}));
  };
  Value tile = number(1);
  return {number(0), head, tile, add(tile, index(plan.getPrograms()))};
}

/// Returns group `number`. The order is by sections of `l2_head_group` heads. Within a section,
/// query tiles go from the last to the first, and adjacent groups belong to different heads.
/// Adjacent groups belong to one batch, whose heads may share K/V. If batches share a tile that
/// shapes the scores, which has more bytes than K/V, adjacent groups belong to one head instead. A
/// tile list or a sequence of compacted keys belongs to `getPrograms()` programs, beginning at a
/// multiple of that number.
Group GridBuilder::decode(Value number) {
  // 32-bit division: the numbers are below 2^31.
  int64_t headsPerBlock = plan.getHeadsPerBlock();
  Value group = toI32(number), perHead = countPerHead();
  ProgramOp program = plan.program;
  Value batches = toI32(program.getSizes()[0]);
  Value headGroups = countHeadGroups();
  Value perSection = block.section ? block.section : i32(plan.hopper.getL2HeadGroup());
  Value section = div(group, mul(perHead, perSection));
  Value rest = sub(group, mul(section, mul(perHead, perSection)));
  Value flatHead = section, row = rest;
  if (plan.hopper.getL2HeadGroup() != 1) {
    Value firstHead = mul(section, perSection);
    Value inSection = min(perSection, sub(mul(batches, headGroups), firstHead));
    row = div(rest, inSection);
    flatHead = add(firstHead, sub(rest, mul(row, inSection)));
  }
  if (block.scheduler.list)
    return fromList(row, toIndex(mul(flatHead, i32(headsPerBlock))));
  // Groups of one head differ in size by at most one program. Larger groups run first. Key tiles
  // run from the first to the last.
  bool ascends = program.getAxis(2) == ProgramAxis::KeyTile;
  Value place = ascends ? row : sub(sub(perHead, row), i32(1)), firstTile = place, end;
  if (plan.sharesSequence() && headsPerBlock == 1) {
    firstTile = mul(place, i32(plan.getPrograms()));
    end = block.tiles;
  } else if (headsPerBlock == 1) {
    Value fewer = div(toI32(block.tiles), perHead), withFewer = countSmallerGroups();
    firstTile = add(mul(place, fewer), max(sub(place, withFewer), i32(0)));
    Value more = compare(arith::CmpIPredicate::sge, place, withFewer);
    end = toIndex(add(add(firstTile, fewer), arith::ExtUIOp::create(b, loc, b.getI32Type(), more)));
  }
  Value inner = plan.batchesShare ? batches : headGroups;
  Value outerNumber = div(flatHead, inner);
  Value innerNumber = sub(flatHead, mul(outerNumber, inner));
  Value batch = toIndex(plan.batchesShare ? innerNumber : outerNumber);
  Value head = toIndex(mul(plan.batchesShare ? outerNumber : innerNumber, i32(headsPerBlock)));
  SmallVector<Value> numbers =
      emitItemAt(b, program.getSpaceOp(), {batch, head, toIndex(firstTile)});
  if (program.getRagged())
    end = add(numbers.back(), index(plan.getPrograms()));
  return {numbers[0], numbers[1], numbers[2], end};
}

/// Returns the program's indices for one consumer of the group.
SmallVector<Value> GridBuilder::listNumbers(const Group &group, Value consumer) {
  ProgramOp program = plan.program;
  SmallVector<Value> numbers = {group.batch, group.head, group.tile};
  if (plan.getHeadsPerBlock() > 1) {
    numbers[1] = add(group.head, consumer);
  } else if (plan.mayLackPrograms()) {
    // A surplus consumer runs the program after the last one, which reads zeros and writes nothing.
    Value tile = add(group.tile, consumer);
    numbers[2] = select(less(tile, group.end), tile, block.tiles);
  } else if (program.getSizes().size() > 3) {
    Value inner = program.getSizes()[3];
    numbers[2] = divide32(group.tile, inner);
    numbers.push_back(sub(group.tile, mul(numbers[2], inner)));
  }
  return numbers;
}

IRMapping GridBuilder::numbersOf(const Group &group, Value consumer) {
  ProgramOp program = plan.program;
  IRMapping mapping;
  mapping.map(program.getNumbers(), listNumbers(group, consumer));
  return mapping;
}

SmallVector<IRMapping> GridBuilder::programsOf(const Group &group) {
  SmallVector<IRMapping> programs;
  for (int64_t w = 0; w < plan.getPrograms(); ++w)
    programs.push_back(numbersOf(group, index(w)));
  return programs;
}

//===----------------------------------------------------------------------===//
// Persistent blocks
//===----------------------------------------------------------------------===//

/// Returns the group that this block runs in a round. Each round runs the next groups of the grid,
/// one per block. From round to round a block's position is shifted by the number of smaller groups
/// per head, so that no block runs only large groups.
Value GridBuilder::groupOf(Value round) {
  gpu::LaunchOp launch = block.launch;
  return toIndex(add(mul(round, toI32(launch.getGridSize().x)), positionIn(round)));
}

/// Returns the block's position in a round.
Value GridBuilder::positionIn(Value round) {
  gpu::LaunchOp launch = block.launch;
  Value place = toI32(launch.getBlockIds().x);
  if (plan.getHeadsPerBlock() == 1)
    place = add(place, mul(round, countSmallerGroups()));
  return arith::RemUIOp::create(b, loc, place, toI32(launch.getGridSize().x));
}

Value GridBuilder::countRounds() {
  gpu::LaunchOp launch = block.launch;
  Value blocks = toI32(launch.getGridSize().x), all = toI32(block.groups), full = div(all, blocks);
  Value isInLast =
      compare(arith::CmpIPredicate::ult, positionIn(full), sub(all, mul(full, blocks)));
  return add(full, arith::ExtUIOp::create(b, loc, b.getI32Type(), isInLast));
}

/// Builds the loop over the rounds of a persistent block. `body` takes the state before a round
/// (i32, at first `state`), such as the number of steps so far, and returns the state after it.
void GridBuilder::forEachRound(Value rounds, Value state, RoundBody body) {
  // 32-bit, because consumers have no registers to spare.
  auto loop = scf::ForOp::create(b, loc, i32(0), rounds, i32(1), state);
  b.setInsertionPointToStart(loop.getBody());
  Value next = body(loop.getInductionVar(), toIndex(loop.getRegionIterArg(0)));
  scf::YieldOp::create(b, loc, toI32(next));
  b.setInsertionPointAfter(loop);
}

//===----------------------------------------------------------------------===//
// Dynamic scheduler
//===----------------------------------------------------------------------===//

/// Whether there are more groups than blocks. Each block begins with the group of its own index.
Value GridBuilder::hasMoreGroups() {
  gpu::LaunchOp launch = block.launch;
  return compare(arith::CmpIPredicate::ult, toI32(launch.getGridSize().x), toI32(block.groups));
}

/// Whether `number`, i32, is a group's.
Value GridBuilder::isGroup(Value number) {
  Value groups = toI32(block.groups);
  if (block.scheduler.list)
    groups = mul(countHeadGroups(), countPerHead());
  return compare(arith::CmpIPredicate::ult, number, groups);
}

/// Claims the next group and returns its index, which is past the last group if no group is left.
Value GridBuilder::claim() {
  gpu::LaunchOp launch = block.launch;
  auto claimed =
      scf::IfOp::create(b, loc, b.getI32Type(), hasMoreGroups(), /*withElseRegion=*/true);
  {
    OpBuilder::InsertionGuard guard(b);
    b.setInsertionPointToStart(claimed.thenBlock());
    Value number = hopper::ClaimOp::create(b, loc, b.getI32Type(), block.scheduler.counter,
                                           ValueRange{index(0)});
    scf::YieldOp::create(b, loc, number);
    b.setInsertionPointToStart(claimed.elseBlock());
    scf::YieldOp::create(b, loc, i32(0));
  }
  return add(claimed.getResult(0), toI32(launch.getGridSize().x));
}

/// Builds the loop over the rounds of a persistent block until no group is left. `await` waits
/// until the group of a round is published.
void GridBuilder::forEachClaim(bool byWarp, function_ref<void(Value round)> await, Value state,
                               RoundBody body) {
  Type i32Type = b.getI32Type();
  auto loop = scf::WhileOp::create(b, loc, TypeRange{i32Type, i32Type}, ValueRange{i32(0), state});
  b.createBlock(&loop.getBefore(), {}, {i32Type, i32Type}, {loc, loc});
  await(loop.getBeforeArguments()[0]);
  Value batch = readNumber(slotOf(loop.getBeforeArguments()[0], plan.getSlots()), 0, byWarp);
  Value any = compare(arith::CmpIPredicate::ne, batch, index(kNoGroup));
  scf::ConditionOp::create(b, loc, any, loop.getBeforeArguments());
  b.createBlock(&loop.getAfter(), {}, {i32Type, i32Type}, {loc, loc});
  Value round = loop.getAfterArguments()[0];
  Value next = body(round, toIndex(loop.getAfterArguments()[1]));
  scf::YieldOp::create(b, loc, ValueRange{add(round, i32(1)), toI32(next)});
  b.setInsertionPointAfter(loop);
}

/// Builds the loop over the rounds of a persistent block for warps that wait for published groups:
/// each round waits for the residents of `consumer`.
void GridBuilder::forEachGroup(bool byWarp, Value consumer, Value state, RoundBody body) {
  auto await = [&](Value round) {
    Value number = heldNumber(slotOf(round, plan.getResidentGroups()), consumer);
    hopper::BarrierWaitOp::create(b, loc, block.barriers,
                                  add(number, index(plan.memory.residentFull)),
                                  parityOf(round, plan.getResidentGroups()));
  };
  if (plan.claims())
    return forEachClaim(byWarp, await, state, body);
  forEachRound(countRounds(), state, [&](Value round, Value now) {
    await(round);
    return body(round, now);
  });
}

/// Writes to shared memory that no group is left.
void GridBuilder::publishEnd(Value slot) {
  memref::StoreOp::create(b, loc, i32(kNoGroup), block.numbers, ValueRange{slot, index(0)});
}

//===----------------------------------------------------------------------===//
// Group numbers in shared memory
//===----------------------------------------------------------------------===//

/// Writes the numbers of `group` to shared memory.
void GridBuilder::publishGroup(const Group &group, Value slot) {
  Value end = group.end ? group.end : index(0);
  Value numbers[] = {group.batch, group.head, group.tile, end};
  for (auto [i, value] : llvm::enumerate(numbers))
    memref::StoreOp::create(b, loc, toI32(value), block.numbers, ValueRange{slot, index(i)});
}

/// Returns number `which` of a group, read by one thread or, if `byWarp`, warp-uniform.
Value GridBuilder::readNumber(Value slot, int64_t which, bool byWarp) {
  Value value =
      toIndex(memref::LoadOp::create(b, loc, block.numbers, ValueRange{slot, index(which)}));
  return byWarp ? fromLane0(value) : value;
}

/// Returns the group that `publishGroup` has written, read by one thread or, if `byWarp`,
/// warp-uniform.
Group GridBuilder::read(Value slot, bool byWarp) {
  auto number = [&](int64_t i) { return readNumber(slot, i, byWarp); };
  Value batch = number(0), head = number(1), tile = number(2), end = number(3);
  return {batch, head, tile, end};
}
