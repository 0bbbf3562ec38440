//===- SpecializeWarps.cpp - flashattn-specialize-warps --------------------===//
//
// A block of warpgroups with roles: one brings tiles, the others compute.
//
//===----------------------------------------------------------------------===//

#include "WarpRoles.h"
#include "flashattn/Conversion/Passes.h"
#include "mlir/Dialect/LLVMIR/NVVMDialect.h"
#include "mlir/Dialect/MemRef/IR/MemRef.h"

namespace mlir::flashattn {
#define GEN_PASS_DEF_SPECIALIZEWARPS
#include "flashattn/Conversion/Passes.h.inc"
} // namespace mlir::flashattn

using namespace mlir;
using namespace mlir::flashattn;

//===----------------------------------------------------------------------===//
// The program and what it reads
//===----------------------------------------------------------------------===//

LogicalResult WarpRoles::findReads() {
  rings.resize(2);
  WalkResult walk = program.walk([&](Operation *op) {
    if (isKeyRun(*op)) {
      firstInterval[op] = intervals;
      auto outer = dyn_cast<scf::ForOp>(op->getParentOp());
      intervals += outer ? countIntervals(outer) : 1;
    }
    if (auto write = dyn_cast<vector::TransferWriteOp>(op);
        write && cast<VectorType>(getStored(write).getType()).getRank() == 2 &&
        hasAlignedRows(write.getBase()) && !write.getVectorType().getElementType().isF32())
      outputWrite = write;
    auto read = dyn_cast<vector::TransferReadOp>(op);
    if (!read)
      return WalkResult::advance();
    if (read->getBlock() == program.getBody()) {
      queryRead = read;
      queryTile = read;
      if (read.getTransferRank() > 2 && read->hasOneUse() &&
          isa<vector::ShapeCastOp>(*read->user_begin()))
        queryTile = *read->user_begin();
      return WalkResult::advance();
    }
    // What shapes scores is each consumer's own.
    if (!isKeyTile(read)) {
      bool isDense =
          llvm::all_of(read.getPermutationMap().getResults(), llvm::IsaPred<AffineDimExpr>);
      Value batchNumber = program.getInductionVars()[0];
      batchesShare |= isDense && llvm::none_of(read.getIndices(), [&](Value index) {
                        return dependsOn(index, batchNumber);
                      });
      return WalkResult::advance();
    }
    auto user = read->hasOneUse() ? dyn_cast<vector::ContractionOp>(*read->user_begin())
                                  : vector::ContractionOp();
    if (!user || user.getRhs() != read.getResult() || !getTileNumber(read)) {
      read.emitOpError() << "expected the read of a key tile, used once as the right-hand side "
                            "of a contraction";
      return WalkResult::interrupt();
    }
    ringOf(read).read = read;
    listEntry = getListEntry(read);
    return WalkResult::advance();
  });
  if (walk.wasInterrupted())
    return failure();
  bool hasQueryTile = queryRead && queryTile->getResultTypes()[0] == getTile(queryRead);
  for (auto [found, what] :
       {std::pair(intervals != 0, "no key loops with 'flashattn.key_run'"),
        {hasQueryTile, "no read of a query tile outside of them"},
        {rings[0].read && rings[1].read, "no reads of a key tile and a value tile in them"}})
    if (!found)
      return program.emitOpError() << "expected the key loops as flashattn-tile and "
                                      "flashattn-pipeline-keys leave them, with no simplification "
                                      "in between, but got "
                                   << what;
  return success();
}

//===----------------------------------------------------------------------===//
// The launch
//===----------------------------------------------------------------------===//

/// Groups of programs, each for a block.
Value WarpRoles::countGroups() {
  SmallVector<Value> sizes = program.getUpperBound(b);
  batches = sizes[0];
  heads = sizes[1];
  queryTiles = sizes[2];
  tileGroups = queryTiles;
  Value headGroups = heads;
  if (roles.getAlong() == ProgramAxis::Head) {
    headsPerBlock = consumers;
    headGroups = div(heads, index(consumers));
  } else {
    tileGroups = b.createOrFold<arith::CeilDivUIOp>(loc, queryTiles, index(consumers));
  }
  return mul(mul(batches, headGroups), tileGroups);
}

/// As many blocks as run at once, or as there are groups.
Value WarpRoles::countResidentBlocks() {
  return min(groups, mul(hopper::MultiprocessorCountOp::create(b, loc), index(roles.getBlocks())));
}

/// Groups of one head that have a program less than its others; all of them where they have the
/// same.
Value WarpRoles::countSmallerGroups() {
  Value tiles = i32(queryTiles), perHead = i32(tileGroups);
  return sub(perHead, sub(tiles, mul(div(tiles, perHead), perHead)));
}

/// Sections of `section` heads; within one, query tiles from the last to the first and the
/// heads of the section next to each other. Neighbours are of one batch, whose heads may share
/// keys, or where batches share what shapes scores, more bytes than those, of one head. A list of
/// key tiles is one for as many programs as there are consumers, from a multiple of that on.
void WarpRoles::decodeGroup(Value group) {
  // 32-bit division: the numbers are below 2^31.
  Value number = i32(group), perHead = i32(tileGroups);
  Value headGroups = div(i32(heads), i32(headsPerBlock));
  Value perSection = i32(roles.getSection());
  Value section = div(number, mul(perHead, perSection));
  Value rest = sub(number, mul(section, mul(perHead, perSection)));
  Value flatHead = section, row = rest;
  if (roles.getSection() > 1) {
    Value firstHead = mul(section, perSection);
    Value inSection = min(perSection, sub(mul(i32(batches), headGroups), firstHead));
    row = div(rest, inSection);
    flatHead = add(firstHead, sub(rest, mul(row, inSection)));
  }
  // The groups of one head differ by at most one program, and those with more of them go first.
  Value place = sub(sub(perHead, row), i32(1)), firstTile = place;
  if (listEntry && headsPerBlock == 1) {
    firstTile = mul(place, i32(consumers));
    programEnd = queryTiles;
  } else if (headsPerBlock == 1) {
    Value fewer = div(i32(queryTiles), perHead), withFewer = countSmallerGroups();
    firstTile = add(mul(place, fewer), max(sub(place, withFewer), i32(0)));
    Value more = arith::CmpIOp::create(b, loc, arith::CmpIPredicate::sge, place, withFewer);
    programEnd =
        toIndex(add(add(firstTile, fewer), arith::ExtUIOp::create(b, loc, b.getI32Type(), more)));
  }
  Value inner = batchesShare ? i32(batches) : headGroups;
  Value outerNumber = div(flatHead, inner);
  Value innerNumber = sub(flatHead, mul(outerNumber, inner));
  batch = toIndex(batchesShare ? innerNumber : outerNumber);
  head = toIndex(mul(batchesShare ? outerNumber : innerNumber, i32(headsPerBlock)));
  tile = toIndex(firstTile);
}

/// The tensor map that copies one panel of the tile of `op` at a time.
Value WarpRoles::makeMap(VectorTransferOpInterface op) {
  MemRefType tiles = getTileType(b.getContext(), getTile(op), 1);
  auto type = hopper::TensorMapType::get(b.getContext(), tiles.getDimSize(2), tiles.getDimSize(3),
                                         tiles.getElementType());
  IntegerAttr outerDim, outerRows;
  if (op.getTransferRank() > 2) {
    outerDim = b.getI64IntegerAttr(op.getPermutationMap().getDimPosition(0));
    outerRows = b.getI64IntegerAttr(op.getVectorType().getDimSize(0));
  }
  return hopper::MakeTensorMapOp::create(b, loc, type, getWholeMemref(op),
                                         b.getI64IntegerAttr(getRowDim(op)), outerDim, outerRows);
}

/// The memref of `copies` tiles, with panels as wide as the widest swizzle that fits.
MemRefType WarpRoles::getTileType(MLIRContext *ctx, VectorType tile, int64_t copies) {
  int64_t columns = tile.getDimSize(1);
  constexpr int64_t widest = 64; // 128 bytes
  int64_t panel = columns <= 16 ? 16 : columns <= 32 ? 32 : widest;
  auto space = gpu::AddressSpaceAttr::get(ctx, gpu::AddressSpace::Workgroup);
  return MemRefType::get({copies, (columns + panel - 1) / panel, tile.getDimSize(0), panel},
                         tile.getElementType(), MemRefLayoutAttrInterface{}, space);
}

void WarpRoles::allocate() {
  MLIRContext *ctx = b.getContext();
  auto space = gpu::AddressSpaceAttr::get(ctx, gpu::AddressSpace::Workgroup);
  auto view = [&](MemRefType type) -> Value {
    // Dynamic shared memory begins at a period of the widest swizzle, and every tile is a
    // whole number of its own.
    Value shift = index(poolBytes);
    poolBytes += type.getNumElements() * llvm::divideCeil(type.getElementTypeBitWidth(), 8);
    return memref::ViewOp::create(b, loc, type, pool, shift, ValueRange());
  };
  auto plain = [&](ArrayRef<int64_t> shape, Type element) {
    return view(MemRefType::get(shape, element, MemRefLayoutAttrInterface{}, space));
  };
  int64_t queryTilesHeld = consumers * queryStages;
  queries = view(getTileType(ctx, getTile(queryRead), queryTilesHeld));
  if (outputWrite) {
    // By the time a consumer has its output it has done with its own queries, but a sister may
    // not: the output takes their place only where the two are of one size.
    MemRefType type = getTileType(ctx, getTile(outputWrite), queryTilesHeld);
    outputs = type.getShape() == cast<MemRefType>(queries.getType()).getShape()
                  ? queries
                  : view(getTileType(ctx, getTile(outputWrite), consumers));
  }
  int64_t barrierCount = queryTilesHeld;
  if (isPersistent()) {
    queriesEmpty = barrierCount;
    barrierCount += queryTilesHeld;
  }
  for (Ring &ring : rings) {
    ring.tiles = view(getTileType(ctx, ring.read.getVectorType(), stages));
    ring.full = barrierCount;
    ring.empty = barrierCount + stages;
    barrierCount += 2 * stages;
  }
  barriers = plain({barrierCount}, b.getI64Type());
  hulls = plain({queryStages, intervals, 2}, b.getI32Type());
  if (isPersistent())
    numbers = plain({queryStages, 4}, b.getI32Type());
}

/// One thread, the producer's, prepares what all of the block's need, and its first group.
void WarpRoles::initBlock() {
  Value first = arith::CmpIOp::create(b, loc, arith::CmpIPredicate::eq, thread, index(0));
  auto guarded = scf::IfOp::create(b, loc, first, /*withElseRegion=*/false);
  OpBuilder::InsertionGuard guard(b);
  b.setInsertionPointToStart(guarded.thenBlock());
  auto init = [&](int64_t firstBarrier, int64_t count, int64_t arrivals) {
    for (int64_t i = 0; i < count; ++i)
      hopper::BarrierInitOp::create(b, loc, barriers, index(firstBarrier + i),
                                    b.getI64IntegerAttr(arrivals));
  };
  init(queriesFull, consumers * queryStages, 1);
  if (isPersistent())
    init(queriesEmpty, consumers * queryStages, 1);
  for (Ring &ring : rings) {
    init(ring.full, stages, 1);
    init(ring.empty, stages, consumers);
  }
  hopper::FenceBarrierInitOp::create(b, loc);
  if (isPersistent())
    decodeGroup(launch.getBlockIds().x);
  prepareGroup();
}

//===----------------------------------------------------------------------===//
// All of it
//===----------------------------------------------------------------------===//

/// Gives long programs blocks of their own that run one group each, and leaves persistent ones to
/// short programs, which have more to hide. Measured on an H100 with D = 128: persistent blocks
/// gain 10 % at 1000 keys, nothing at 2048, and lose 2 % at 4096 and beyond.
LogicalResult WarpRoles::splitByLength() {
  constexpr int64_t kLongProgram = 2048; // keys
  b.setInsertionPoint(program);
  vector::TransferReadOp read = rings[0].read;
  Value keys = b.createOrFold<memref::DimOp>(loc, getWholeMemref(read),
                                             static_cast<int64_t>(getRowDim(read)));
  auto split = scf::IfOp::create(b, loc, less(index(kLongProgram), keys), /*withElseRegion=*/true);
  b.setInsertionPointToStart(split.thenBlock());
  auto copy = cast<scf::ForallOp>(b.clone(*program));
  MLIRContext *ctx = b.getContext();
  auto oneGroup = RolesAttr::get(ctx, consumers, roles.getAlong(), roles.getRegisters(),
                                 roles.getProducerRegisters(), roles.getRescale(),
                                 roles.getSection(), roles.getBlocks(), /*queryStages=*/1);
  copy->setAttr(kScheduleAttrName,
                ScheduleAttr::get(ctx, schedule.getTileM(), schedule.getTileN(),
                                  schedule.getWarps(), stages, schedule.getLanes(),
                                  schedule.getDotType(), schedule.getPack(), schedule.getSplits(),
                                  oneGroup));
  if (failed(WarpRoles(b, copy).run()))
    return failure();
  b.moveOpBefore(program, split.elseBlock()->getTerminator());
  return success();
}

LogicalResult WarpRoles::run() {
  if (program.getRank() != 3 || !program.isNormalized() || program.getNumResults() != 0)
    return program.emitOpError() << "expected a tile program over (batch, head, query tile) that "
                                    "counts from 0 by 1";
  if (failed(findReads()))
    return failure();
  if (isPersistent() && failed(splitByLength()))
    return failure();
  b.setInsertionPoint(program);
  groups = countGroups();
  Value any = arith::CmpIOp::create(b, loc, arith::CmpIPredicate::ugt, groups, index(0));
  auto guarded = scf::IfOp::create(b, loc, any, /*withElseRegion=*/false);
  b.setInsertionPointToStart(guarded.thenBlock());
  queryMap = makeMap(queryRead);
  for (Ring &ring : rings)
    ring.map = makeMap(ring.read);
  if (outputWrite)
    outputMap = makeMap(outputWrite);

  Value one = index(1), blocks = groups;
  if (isPersistent())
    blocks = countResidentBlocks();
  launch = gpu::LaunchOp::create(b, loc, blocks, one, one, index(getThreads()), one, one);
  launch->setAttr(kScheduleAttrName, schedule);
  b.setInsertionPointToStart(&launch.getBody().front());
  auto space = gpu::AddressSpaceAttr::get(b.getContext(), gpu::AddressSpace::Workgroup);
  auto poolType =
      MemRefType::get({ShapedType::kDynamic}, b.getI8Type(), MemRefLayoutAttrInterface{}, space);
  pool = gpu::DynamicSharedMemoryOp::create(b, loc, poolType);
  allocate();
  thread = launch.getThreadIds().x;
  hullSlot = index(0);
  if (!isPersistent())
    decodeGroup(launch.getBlockIds().x);
  initBlock();
  // So ptxas knows a warp to be of one mind.
  warpgroup = fromLane0(div(thread, index(kWarpgroupThreads)));
  signals = arith::CmpIOp::create(
      b, loc, arith::CmpIPredicate::eq,
      arith::AndIOp::create(b, loc, thread, index(kWarpgroupThreads - 1)), index(0));
  Value isProducer = arith::CmpIOp::create(b, loc, arith::CmpIPredicate::eq, warpgroup, index(0));
  auto role = scf::IfOp::create(b, loc, isProducer, /*withElseRegion=*/true);
  gpu::TerminatorOp::create(b, loc);
  b.setInsertionPointToStart(role.thenBlock());
  produce();
  b.setInsertionPointToStart(role.elseBlock());
  consume();
  b.eraseOp(program);

  b.setInsertionPoint(launch);
  launch.getDynamicSharedMemorySizeMutable().assign(i32(poolBytes));
  return success();
}

namespace {
struct SpecializeWarpsPass : flashattn::impl::SpecializeWarpsBase<SpecializeWarpsPass> {
  void runOnOperation() override {
    IRRewriter rewriter(&getContext());
    for (scf::ForallOp program : findSpecializedPrograms(getOperation()))
      if (failed(WarpRoles(rewriter, program).run()))
        return signalPassFailure();
  }
};
} // namespace
