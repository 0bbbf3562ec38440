//===- ListGroups.cpp - the order of groups over segments -----------------===//
//
// A kernel of one block that lists the groups of programs over segments, those of the longest
// segments first (counting sort). Only the device knows the lengths of segments, and long programs
// must not start last. The groups of a segment stay together, because they share K and V.
//
//===----------------------------------------------------------------------===//

#include "Block.h"

using namespace mlir;
using namespace mlir::flashattn;

/// Number of sort keys, which are numbers of groups of a segment, and of threads. Segments with
/// more groups share the last key.
static constexpr int64_t kKeys = 1024;

Value GroupLister::allocate(Value most) {
  auto type = MemRefType::get({ShapedType::kDynamic, 2}, b.getI32Type());
  return memref::AllocOp::create(b, loc, type, ValueRange{add(most, index(1))});
}

/// Launches the block, and continues in the kernel.
void GroupLister::launchBlock() {
  Value one = index(1);
  auto space = gpu::AddressSpaceAttr::get(b.getContext(), gpu::AddressSpace::Workgroup);
  auto type = MemRefType::get({kKeys + kKeys / kWarpThreads}, b.getI32Type(),
                              MemRefLayoutAttrInterface{}, space);
  auto launch = gpu::LaunchOp::create(b, loc, one, one, one, index(kKeys), one, one,
                                      /*dynamicSharedMemorySize=*/{}, /*asyncTokenType=*/{},
                                      /*asyncDependencies=*/{}, TypeRange{type});
  b.setInsertionPointToStart(&launch.getBody().front());
  gpu::TerminatorOp::create(b, loc);
  b.setInsertionPointToStart(&launch.getBody().front());
  counts = launch.getWorkgroupAttributions().front();
  thread = launch.getThreadIds().x;
  lane = arith::AndIOp::create(b, loc, thread, index(kWarpThreads - 1));
  LaunchDependentsOp::create(b, loc);
  // A grid that waits for this one must also wait for the primary of this one.
  if (ProgramOp program = plan.program; program.getPdlSecondary())
    WaitPrerequisiteGridsOp::create(b, loc);
}

/// Returns the number of groups of `segment`, i32.
Value GroupLister::countGroups(Value segment) {
  ProgramOp program = plan.program;
  RaggedAxes ragged = *program.getRagged();
  Value starts = ragged.starts, last = dim(starts, 0);
  int64_t tiles = ragged.segmentTiles, whole = tiles * ragged.tileRows;
  // The number of rows, rounded up to a multiple of `whole`, less one.
  Value wholes = sub(div(program.getSizes().back(), index(tiles)), last);
  Value rows = sub(mul(wholes, index(whole)), index(1));
  auto load = [&](Value at, Value isOutside, Value outside) -> Value {
    at = min(max(at, index(0)), sub(last, index(1)));
    Value start = toIndex(memref::LoadOp::create(b, loc, starts, at));
    return select(isOutside, outside, min(max(start, index(0)), rows));
  };
  Value isFirst = compare(arith::CmpIPredicate::eq, segment, index(0));
  Value isLast = compare(arith::CmpIPredicate::eq, segment, last);
  Value begin = load(sub(segment, index(1)), isFirst, index(0));
  Value end = load(segment, isLast, rows);
  Value left = toI32(max(sub(end, begin), index(0)));
  if (int64_t least = ragged.leastRows; least != 1) {
    Value has = compare(arith::CmpIPredicate::sge, left, i32(least));
    has = arith::OrIOp::create(b, loc, has, arith::OrIOp::create(b, loc, isFirst, isLast));
    left = select(has, left, i32(0));
  }
  int64_t groupRows = countTiles() * ragged.tileRows;
  return div(add(left, i32(groupRows - 1)), i32(groupRows));
}

/// Builds a loop over segments, one for each thread. The threads of a warp stay together, also
/// where there are fewer segments: the others have segments without groups.
void GroupLister::forEachSegment(function_ref<void(Value segment, Value groups, Value key)> body) {
  ProgramOp program = plan.program;
  Value segments = add(dim(program.getRagged()->starts, 0), index(1));
  auto loop = scf::ForOp::create(b, loc, sub(thread, lane), segments, index(kKeys));
  OpBuilder::InsertionGuard guard(b);
  b.setInsertionPointToStart(loop.getBody());
  Value segment = add(loop.getInductionVar(), lane), exists = less(segment, segments);
  segment = min(segment, sub(segments, index(1)));
  Value groups = select(exists, countGroups(segment), i32(0));
  body(toI32(segment), groups, min(toIndex(groups), index(kKeys - 1)));
}

/// Returns `value` of lane `from`. Both are i32.
Value GroupLister::fromLane(Value value, Value from) {
  return gpu::ShuffleOp::create(b, loc, value, from, i32(kWarpThreads), gpu::ShuffleMode::IDX)
      .getShuffleResult();
}

/// Returns the sum of `number`, i32, over the threads of the warp up to this one.
Value GroupLister::sumUpTo(Value number) {
  for (int64_t distance = 1; distance < kWarpThreads; distance *= 2) {
    auto lower = gpu::ShuffleOp::create(b, loc, number, i32(distance), i32(kWarpThreads),
                                        gpu::ShuffleMode::UP);
    number = add(number, select(lower.getValid(), lower.getShuffleResult(), i32(0)));
  }
  return number;
}

/// Adds `number`, i32, to the count of `key`. Returns the count before. Where all threads of a warp
/// have the same key, as in batches of equal lengths, lane 0 adds for all: 32 atomic operations on
/// one count would wait for each other.
Value GroupLister::addTo(Value key, Value number) {
  Value sum = sumUpTo(number), all = fromLane(sum, i32(kWarpThreads - 1));
  Value isSame = compare(arith::CmpIPredicate::eq, key, fromLane0(key));
  isSame = VoteOp::create(b, loc, VoteKind::All, isSame);
  Value isFirst = compare(arith::CmpIPredicate::eq, lane, index(0));
  Value adds = select(isSame, isFirst, arith::ConstantIntOp::create(b, loc, 1, 1));
  auto adder = scf::IfOp::create(b, loc, b.getI32Type(), adds, /*withElseRegion=*/true);
  OpBuilder::InsertionGuard guard(b);
  b.setInsertionPointToStart(adder.elseBlock());
  scf::YieldOp::create(b, loc, i32(0));
  b.setInsertionPointToStart(adder.thenBlock());
  Value before = memref::AtomicRMWOp::create(b, loc, b.getI32Type(), arith::AtomicRMWKind::addi,
                                             select(isSame, all, number), counts, key);
  scf::YieldOp::create(b, loc, before);
  b.setInsertionPointAfter(adder);
  before = adder.getResult(0);
  return select(isSame, add(fromLane(before, i32(0)), sub(sum, number)), before);
}

/// Replaces the count of each key by the sum of the counts of this key and of larger ones: first
/// those of a warp's threads, then those of the warps before.
void GroupLister::addLarger() {
  auto ofWarp = [&](Value warp) -> Value { return add(index(kKeys), warp); };
  Value warp = div(thread, index(kWarpThreads)), key = sub(index(kKeys - 1), thread);
  Value sum = sumUpTo(memref::LoadOp::create(b, loc, counts, key));
  memref::StoreOp::create(b, loc, fromLane(sum, i32(kWarpThreads - 1)), counts, ofWarp(warp));
  gpu::BarrierOp::create(b, loc);
  Value number = memref::LoadOp::create(b, loc, counts, ofWarp(lane));
  Value others = sub(fromLane(sumUpTo(number), toI32(warp)), fromLane(number, toI32(warp)));
  memref::StoreOp::create(b, loc, add(sum, others), counts, key);
  gpu::BarrierOp::create(b, loc);
}

/// Calls `body` in a branch that only one thread of several takes, the one for which `thread` is 0.
void GroupLister::inFirst(Value thread, function_ref<void()> body) {
  auto first = scf::IfOp::create(b, loc, compare(arith::CmpIPredicate::eq, thread, index(0)),
                                 /*withElseRegion=*/false);
  OpBuilder::InsertionGuard guard(b);
  b.setInsertionPointToStart(first.thenBlock());
  body();
}

/// Writes the groups of the segments of a warp's threads, those of each segment to the rows of
/// `list` from its `first`, i32, on. The threads share the groups evenly. Query tiles go from the
/// last to the first, because later queries see more keys, and key tiles from the first to the
/// last.
void GroupLister::writeGroups(Value list, Value segment, Value groups, Value first, Value most) {
  ProgramOp program = plan.program;
  bool ascends = program.getAxis(2) == ProgramAxis::KeyTile;
  Value end = sumUpTo(groups), begin = sub(end, groups);
  Value all = toIndex(fromLane(end, i32(kWarpThreads - 1)));
  auto loop = scf::ForOp::create(b, loc, index(0), all, index(kWarpThreads));
  OpBuilder::InsertionGuard guard(b);
  b.setInsertionPointToStart(loop.getBody());
  Value number = toI32(add(loop.getInductionVar(), lane)), owner = i32(0);
  // The first thread whose groups end behind `number`.
  for (int64_t step = kWarpThreads / 2; step > 0; step /= 2) {
    Value next = add(owner, i32(step)), before = fromLane(end, sub(next, i32(1)));
    owner = select(compare(arith::CmpIPredicate::sle, before, number), next, owner);
  }
  Value place = sub(number, fromLane(begin, owner)), row = add(fromLane(first, owner), place);
  segment = fromLane(segment, owner);
  groups = fromLane(groups, owner);
  // Starts that decrease may have more groups than the list has rows, or than i32 can count.
  Value isRow = compare(arith::CmpIPredicate::ult, sub(row, i32(1)), most);
  isRow = arith::AndIOp::create(b, loc, isRow, less(toIndex(number), all));
  auto fits = scf::IfOp::create(b, loc, isRow, /*withElseRegion=*/false);
  b.setInsertionPointToStart(fits.thenBlock());
  Value group = ascends ? place : sub(sub(groups, i32(1)), place);
  Value numbers[] = {segment, mul(group, i32(countTiles()))};
  for (auto [column, each] : llvm::enumerate(numbers))
    memref::StoreOp::create(b, loc, each, list, ValueRange{toIndex(row), index(column)});
}

/// Signals in place of the programs of each head that are not among its `groups` groups, i32: what
/// waits for the signals counts all programs of the grid, of which some have no rows.
void GroupLister::signalOthers(Value groups) {
  SignalAddedOp signal = plan.signal;
  if (!signal)
    return;
  ProgramOp program = plan.program;
  Value heads = program.getSizes()[1];
  Value others = sub(toI32(block.tileGroups), groups);
  others = mul(others, i32(plan.getPrograms() * WarpgroupBlockPlan::kSpareWarps));
  auto loop = scf::ForOp::create(b, loc, thread, heads, index(kKeys));
  OpBuilder::InsertionGuard guard(b);
  b.setInsertionPointToStart(loop.getBody());
  IRMapping mapping;
  mapping.map(program.getNumbers(), SmallVector<Value>{index(0), loop.getInductionVar(), index(0)});
  SmallVector<Value> indices;
  for (Value each : signal.getIndices())
    indices.push_back(clone(each, mapping));
  memref::AtomicRMWOp::create(b, loc, b.getI32Type(), arith::AtomicRMWKind::addi, others,
                              signal.getCounter(), indices);
}

void GroupLister::build(Value list, Value counter) {
  OpBuilder::InsertionGuard guard(b);
  launchBlock();
  memref::StoreOp::create(b, loc, i32(0), counts, thread);
  gpu::BarrierOp::create(b, loc);
  forEachSegment([&](Value, Value groups, Value key) { addTo(key, groups); });
  gpu::BarrierOp::create(b, loc);
  addLarger();
  Value most = toI32(sub(dim(list, 0), index(1)));
  Value all = memref::LoadOp::create(b, loc, counts, index(0));
  Value listed = arith::MinUIOp::create(b, loc, all, most);
  inFirst(thread, [&] {
    memref::StoreOp::create(b, loc, listed, list, ValueRange{index(0), index(0)});
    memref::StoreOp::create(b, loc, i32(0), counter, index(0));
  });
  signalOthers(listed);
  gpu::BarrierOp::create(b, loc);
  // The segments of a key take their rows from the last to the first. Row 0 holds the number.
  forEachSegment([&](Value segment, Value groups, Value key) {
    Value end = addTo(key, sub(i32(0), groups));
    writeGroups(list, segment, groups, add(sub(end, groups), i32(1)), most);
  });
}
