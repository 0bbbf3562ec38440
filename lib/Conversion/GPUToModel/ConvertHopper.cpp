//===- ConvertHopper.cpp - Hopper ops as calls of the model ---------------===//

#include "ConvertHopper.h"
#include "flashattn/Dialect/Hopper/IR/WgmmaOperand.h"
#include "flashattn/Runtime/ModelABI.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/ControlFlow/IR/ControlFlow.h"
#include "mlir/Dialect/MemRef/IR/MemRef.h"
#include "mlir/Interfaces/ControlFlowInterfaces.h"
#include "llvm/ADT/SetVector.h"
#include "llvm/ADT/TypeSwitch.h"

using namespace mlir;
using namespace mlir::flashattn;
using namespace mlir::flashattn::model;
using namespace mlir::flashattn::hopper;

static Value constant(OpBuilder &b, Location loc, int64_t value, unsigned bits = 64) {
  return LLVM::ConstantOp::create(b, loc, b.getIntegerAttr(b.getIntegerType(bits), value));
}

//===----------------------------------------------------------------------===//
// Copies
//===----------------------------------------------------------------------===//

static Value getMap(OpBuilder &b, Location loc, Value map) {
  return UnrealizedConversionCastOp::create(b, loc, LLVM::LLVMPointerType::get(b.getContext()), map)
      .getResult(0);
}

static Value spillCoordinates(OpBuilder &b, Location loc, ModelKernel &kernel,
                              ValueRange coordinates) {
  for (auto [i, coordinate] : llvm::enumerate(coordinates))
    kernel.spill(b, loc, arith::IndexCastOp::create(b, loc, b.getI64Type(), coordinate),
                 i * sizeof(int64_t));
  return kernel.getScratch(b, loc, coordinates.size() * sizeof(int64_t));
}

static void convert(TmaLoadOp op, ModelKernel &kernel) {
  OpBuilder b(op);
  Location loc = op.getLoc();
  SharedTile tile = op.getCopied();
  kernel.call(b, op, "TmaLoad",
              {getMap(b, loc, op.getMap()), spillCoordinates(b, loc, kernel, op.getCoordinates()),
               kernel.getPointer(b, loc, op.getTile()), constant(b, loc, tile.panels),
               constant(b, loc, tile.getPanelStrideBytes()),
               kernel.getPointer(b, loc, op.getBarriers(), op.getIndex())});
}

static void convert(TmaStoreOp op, ModelKernel &kernel) {
  OpBuilder b(op);
  Location loc = op.getLoc();
  SharedTile tile = *SharedTile::get(op.getTile().getType());
  kernel.call(b, op, "TmaStore",
              {getMap(b, loc, op.getMap()), spillCoordinates(b, loc, kernel, op.getCoordinates()),
               kernel.getPointer(b, loc, op.getTile()), constant(b, loc, tile.panels),
               constant(b, loc, tile.getPanelStrideBytes())});
}

static void convert(BulkLoadOp op, ModelKernel &kernel) {
  OpBuilder b(op);
  Location loc = op.getLoc();
  auto type = cast<MemRefType>(op.getPlaces().getType());
  Value zero = arith::ConstantIndexOp::create(b, loc, 0);
  kernel.call(b, op, "BulkLoad",
              {kernel.getPointer(b, loc, op.getSource(), op.getIndices()),
               kernel.getPointer(b, loc, op.getPlaces(), {op.getPlace(), zero}),
               constant(b, loc, type.getDimSize(1) * type.getElementTypeBitWidth() / 8),
               kernel.getPointer(b, loc, op.getBarriers(), op.getIndex())});
}

static Value getLane(OpBuilder &b, Location loc, ModelKernel &kernel) {
  Value lane = LLVM::AndOp::create(b, loc, kernel.getField(b, loc, 0), constant(b, loc, 31, 32));
  return LLVM::ZExtOp::create(b, loc, b.getI64Type(), lane);
}

/// Reducing copies of staged elements, as convert-hopper-to-nvvm lowers them to PTX.
template <typename Op> class StagedAdd {
public:
  StagedAdd(OpBuilder &b, Op op, ModelKernel &kernel)
      : b(b), loc(op.getLoc()), op(op), kernel(kernel),
        type(cast<MemRefType>(op.getStaging().getType())) {
    Value zero = arith::ConstantIndexOp::create(b, loc, 0);
    warp = op.getWarp() ? op.getWarp() : zero;
    staging = kernel.getPointer(b, loc, op.getStaging(), {warp, zero});
  }

  /// Returns the number of elements that a thread stages at once.
  int64_t getCount() const { return type.getDimSize(1) / kLanes; }

  /// Writes elements [first, first + count) that the thread has spilled to the warp's staging
  /// buffer, from position `at` on.
  void stage(int64_t first, int64_t count, int64_t at, std::optional<int64_t> pending) {
    if (pending) {
      kernel.call(b, op, "WaitStores", {constant(b, loc, *pending)});
      kernel.call(b, op, "WarpSync", {});
    }
    Value mine = add(staging, LLVM::MulOp::create(b, loc, getLane(b, loc, kernel),
                                                  constant(b, loc, kVector * kBytes)));
    for (int64_t i = 0; i < count; i += kVector)
      kernel.call(b, op, "StoreShared",
                  {add(mine, constant(b, loc, (at + i) * kLanes * kBytes)),
                   kernel.getScratch(b, loc, kVector * kBytes, (first + i) * kBytes),
                   constant(b, loc, kVector * kBytes), constant(b, loc, kVector * kBytes)});
  }

  /// Begins the reducing copy of `count` staged elements per thread, from position `at` on. All
  /// warps together have already added `before` elements per thread.
  void begin(int64_t count, int64_t at = 0, int64_t before = 0) {
    kernel.call(b, op, "WarpSync", {});
    Value number = arith::IndexCastOp::create(b, loc, b.getI64Type(), warp);
    int64_t bytes = type.getDimSize(1) * kBytes;
    Value offset =
        LLVM::AddOp::create(b, loc, LLVM::MulOp::create(b, loc, number, constant(b, loc, bytes)),
                            constant(b, loc, (before * type.getDimSize(0) + at) * kLanes * kBytes));
    Value target = add(kernel.getPointer(b, loc, op.getTarget(), op.getIndices()), offset);
    kernel.call(b, op, "AddFromShared",
                {target, add(staging, constant(b, loc, at * kLanes * kBytes)),
                 constant(b, loc, count * kLanes * kBytes)});
  }

private:
  static constexpr int64_t kVector = 4, kBytes = 4, kLanes = 32;

  Value add(Value address, Value bytes) {
    return LLVM::GEPOp::create(b, loc, LLVM::LLVMPointerType::get(b.getContext()), b.getI8Type(),
                               address, bytes);
  }

  OpBuilder &b;
  Location loc;
  Op op;
  ModelKernel &kernel;
  MemRefType type;
  Value warp, staging;
};

static void convert(hopper::AddTileOp op, ModelKernel &kernel) {
  OpBuilder b(op);
  kernel.spill(b, op.getLoc(), op.getValue());
  StagedAdd<hopper::AddTileOp> staged(b, op, kernel);
  for (const StagedStep &step : op.getStagedSteps()) {
    staged.stage(step.first, step.count, step.at, step.pending);
    kernel.call(b, op, "FenceAsyncShared", {});
    staged.begin(step.count, step.at, step.before);
  }
}

static void convert(StageTileOp op, ModelKernel &kernel) {
  OpBuilder b(op);
  kernel.spill(b, op.getLoc(), op.getValue());
  StagedAdd<StageTileOp> staged(b, op, kernel);
  staged.stage(/*first=*/0, staged.getCount(), /*at=*/0, /*pending=*/0);
}

static void convert(AddStagedOp op, ModelKernel &kernel) {
  OpBuilder b(op);
  StagedAdd<AddStagedOp> staged(b, op, kernel);
  int64_t warps = op.getWarp() ? 1 : cast<MemRefType>(op.getStaging().getType()).getDimSize(0);
  staged.begin(warps * staged.getCount());
}

static void convert(hopper::StoreTileOp op, ModelKernel &kernel) {
  OpBuilder b(op);
  Location loc = op.getLoc();
  SharedTile tile = *SharedTile::get(op.getTile().getType());
  kernel.call(b, op, "StoreTile",
              {kernel.spill(b, loc, op.getValue()),
               constant(b, loc, cast<VectorType>(op.getValue().getType()).getNumElements()),
               kernel.getPointer(b, loc, op.getTile()), constant(b, loc, tile.getRowBytes()),
               constant(b, loc, tile.getPanelStrideBytes())});
}

static void convert(ReadTileOp op, ModelKernel &kernel) {
  OpBuilder b(op);
  Location loc = op.getLoc();
  SharedTile tile = *SharedTile::get(op.getTile().getType());
  auto type = cast<VectorType>(op.getResult().getType());
  Value result = kernel.getScratch(b, loc, type.getNumElements() * sizeof(uint16_t));
  kernel.call(b, op, "ReadTile",
              {result, constant(b, loc, op.getFrom() / 2), constant(b, loc, type.getNumElements()),
               kernel.getPointer(b, loc, op.getTile()), constant(b, loc, tile.getRowBytes()),
               constant(b, loc, tile.getPanelStrideBytes()), constant(b, loc, tile.rows)});
  kernel.call(b, op, "WarpSync", {});
  op.replaceAllUsesWith(LLVM::LoadOp::create(b, loc, type, result, /*alignment=*/4).getResult());
}

/// Converts an op on a barrier: `first` in the first of two warpgroups, `second` in the second.
template <typename Op>
static void convertPeer(Op op, ModelKernel &kernel, StringRef function, int64_t first,
                        int64_t second) {
  OpBuilder b(op);
  Location loc = op.getLoc();
  Value isFirst = LLVM::ICmpOp::create(b, loc, LLVM::ICmpPredicate::ult, kernel.getField(b, loc, 0),
                                       constant(b, loc, Op::kSecondThread, 32));
  Value id = LLVM::SelectOp::create(b, loc, isFirst, constant(b, loc, first, 32),
                                    constant(b, loc, second, 32));
  kernel.call(b, op, function, {id, constant(b, loc, Op::kThreads)});
}

//===----------------------------------------------------------------------===//
// Ordered ops on global memory
//===----------------------------------------------------------------------===//

static void convert(AwaitTurnOp op, ModelKernel &kernel) {
  OpBuilder b(op);
  kernel.call(b, op, "AwaitTurn",
              {kernel.getPointer(b, op.getLoc(), op.getOrder(), op.getIndices()), op.getTurn()});
}

static void convert(PassTurnOp op, ModelKernel &kernel) {
  OpBuilder b(op);
  kernel.call(b, op, "PassTurn",
              {kernel.getPointer(b, op.getLoc(), op.getOrder(), op.getIndices()), op.getTurn()});
}

static void convert(hopper::SignalAddedOp op, ModelKernel &kernel) {
  OpBuilder b(op);
  kernel.call(b, op, "SignalAdded",
              {kernel.getPointer(b, op.getLoc(), op.getOrder(), op.getIndices())});
}

static void convert(hopper::AwaitAddedOp op, ModelKernel &kernel) {
  OpBuilder b(op);
  kernel.call(b, op, "AwaitAdded",
              {kernel.getPointer(b, op.getLoc(), op.getOrder(), op.getIndices()), op.getCount()});
}

static void convert(ReadTurnOp op, ModelKernel &kernel) {
  OpBuilder b(op);
  Value place = kernel.getPointer(b, op.getLoc(), op.getOrder(), op.getIndices());
  op.replaceAllUsesWith(kernel.call(b, op, "ReadTurn", place, op.getType()));
}

static void convert(TakeFirstOp op, ModelKernel &kernel) {
  OpBuilder b(op);
  Location loc = op.getLoc();
  Value place = kernel.getPointer(b, loc, op.getOrder(), op.getIndices());
  Value first = kernel.call(b, op, "TakeFirst", place, b.getI32Type());
  op.replaceAllUsesWith(LLVM::TruncOp::create(b, loc, op.getType(), first).getResult());
}

static void convert(ClearOp op, ModelKernel &kernel) {
  OpBuilder b(op);
  Location loc = op.getLoc();
  kernel.call(b, op, "Clear",
              {kernel.getPointer(b, loc, op.getTarget(), op.getIndices()),
               constant(b, loc, op.getElements())});
}

static void convert(ClaimOp op, ModelKernel &kernel) {
  OpBuilder b(op);
  Value place = kernel.getPointer(b, op.getLoc(), op.getOrder(), op.getIndices());
  op.replaceAllUsesWith(kernel.call(b, op, "Claim", place, op.getType()));
}

//===----------------------------------------------------------------------===//
// Barriers
//===----------------------------------------------------------------------===//

/// Converts an op on an mbarrier to a call with its address and `more`.
template <typename Op>
static void convertBarrier(Op op, ModelKernel &kernel, StringRef name,
                           function_ref<Value(OpBuilder &)> more = {}) {
  OpBuilder b(op);
  SmallVector<Value> arguments{kernel.getPointer(b, op.getLoc(), op.getBarriers(), op.getIndex())};
  if (more)
    arguments.push_back(more(b));
  kernel.call(b, op, name, arguments);
}

static void convert(BarrierArriveOp op, ModelKernel &kernel) {
  convertBarrier(op, kernel, "BarrierArrive", [&](OpBuilder &b) -> Value {
    if (!op.getPredicate())
      return constant(b, op.getLoc(), 1, 32);
    return LLVM::ZExtOp::create(b, op.getLoc(), b.getI32Type(), op.getPredicate());
  });
}

template <typename Op> static void convertGroup(Op op, ModelKernel &kernel, StringRef name) {
  OpBuilder b(op);
  kernel.call(b, op, name, {op.getId(), constant(b, op.getLoc(), op.getThreads())});
}

//===----------------------------------------------------------------------===//
// Products
//===----------------------------------------------------------------------===//

static ProductElement getElement(Type type) {
  return llvm::TypeSwitch<Type, ProductElement>(type)
      .Case([](Float8E4M3FNType) { return ProductElement::F8E4M3FN; })
      .Case([](Float8E5M2Type) { return ProductElement::F8E5M2; })
      .Case([](Float16Type) { return ProductElement::F16; })
      .Default([](Type) { return ProductElement::BF16; });
}

/// Appends an operand's SharedOperand (lib/Runtime/Model/Product.h). The model adds the address.
/// `value` is the operand or, if it has a part in registers, that part.
static void addOperand(SmallVectorImpl<int64_t> &words, std::optional<WgmmaOperand> operand,
                       Value value) {
  auto element = static_cast<int64_t>(getElement(getElementTypeOrSelf(value.getType())));
  if (!operand) {
    words.append({0, 0, 0, 0, element});
    return;
  }
  words.append({0, static_cast<int64_t>(operand->getFields()),
                operand->getStepsPerPanel() | operand->getStepBytes() << 32,
                operand->tile.getPanelStrideBytes() | int64_t(operand->transposed) << 32, element});
}

static void convert(WgmmaOp op, ModelKernel &kernel) {
  OpBuilder b(op);
  Location loc = op.getLoc();
  std::optional<WgmmaOperand> a;
  WgmmaOperand right{*SharedTile::get(op.getB().getType()), op.getTransposed()};
  if (std::optional<SharedTile> tile = SharedTile::get(op.getA().getType()))
    a = WgmmaOperand{*tile, op.getTransposedA()};
  SmallVector<int64_t> words;
  addOperand(words, a, op.getA());
  addOperand(words, right, op.getB());
  auto type = cast<VectorType>(op.getD().getType());
  int64_t bytes = type.getNumElements() * sizeof(float);
  // Scratch memory: results, accumulators, registers of A, then the words.
  Value result = kernel.getScratch(b, loc, bytes);
  Value none = LLVM::ZeroOp::create(b, loc, result.getType());
  bool isSum = op.getAcc() && !op.getOverwritten();
  Value accumulator = isSum ? kernel.spill(b, loc, op.getAcc(), bytes) : none;
  Value left = a ? kernel.getPointer(b, loc, op.getA()) : none;
  Value held = a ? op.getFirst() : op.getA();
  // A thread holds a quarter of each of two rows.
  int64_t heldColumns = held ? 2 * cast<VectorType>(held.getType()).getNumElements() : 0;
  Value registers = held ? kernel.spill(b, loc, held, 2 * bytes) : none;
  constexpr int64_t kMostRegisterBytes = 512;
  int64_t offset = 2 * bytes + kMostRegisterBytes;
  for (auto [i, word] : llvm::enumerate(words))
    kernel.spill(b, loc, constant(b, loc, word), offset + i * sizeof(int64_t));
  Value operands = kernel.getScratch(b, loc, words.size() * sizeof(int64_t), offset);
  kernel.call(b, op, "Product",
              {constant(b, loc, op.getColumns(), 32), constant(b, loc, op.getContraction(), 32),
               constant(b, loc, heldColumns, 32), operands, left, registers,
               kernel.getPointer(b, loc, op.getB()), accumulator, result});
  op.replaceAllUsesWith(LLVM::LoadOp::create(b, loc, type, result, /*alignment=*/4).getResult());
}

static void convert(WgmmaWaitOp op, ModelKernel &kernel) {
  OpBuilder b(op);
  Location loc = op.getLoc();
  kernel.call(b, op, "ProductWait", {constant(b, loc, op.getPending(), 32)});
  for (auto [value, result] : llvm::zip(op.getValues(), op.getResults())) {
    auto type = cast<VectorType>(value.getType());
    if (!type.getElementType().isF32()) {
      result.replaceAllUsesWith(value);
      continue;
    }
    Value place = kernel.spill(b, loc, value);
    kernel.call(b, op, "ProductTake", {place, constant(b, loc, type.getNumElements())});
    result.replaceAllUsesWith(LLVM::LoadOp::create(b, loc, type, place, /*alignment=*/4));
  }
}

/// Each lane writes the words that it has on a GPU: of four rows, which are adjacent columns of
/// `target`, in four columns.
void mlir::flashattn::model::expandTranspose(RewriterBase &b, TransposeOp op) {
  Location loc = op.getLoc();
  b.setInsertionPoint(op);
  SharedTile source = *SharedTile::get(op.getSource().getType()),
             target = *SharedTile::get(op.getTarget().getType());
  auto index = [&](int64_t v) -> Value { return arith::ConstantIndexOp::create(b, loc, v); };
  auto add = [&](Value x, Value y) -> Value { return arith::AddIOp::create(b, loc, x, y); };
  auto mul = [&](Value x, int64_t y) -> Value {
    return arith::MulIOp::create(b, loc, x, index(y));
  };
  auto div = [&](Value x, int64_t y) -> Value {
    return arith::DivUIOp::create(b, loc, x, index(y));
  };
  auto rem = [&](Value x, int64_t y) -> Value {
    return arith::RemUIOp::create(b, loc, x, index(y));
  };
  auto toIndex = [&](Value x) -> Value {
    return arith::IndexCastOp::create(b, loc, b.getIndexType(), x);
  };
  // The place of an element in the panels of a tile, whose 16-byte chunks are swizzled.
  auto find = [&](const SharedTile &tile, Value row, Value column) {
    constexpr int64_t kChunk = 16, kPeriod = 8;
    int64_t chunks = tile.getRowBytes() / kChunk;
    Value inPanel = rem(column, tile.panelColumns);
    Value key = rem(div(row, kPeriod / chunks), chunks);
    Value chunk = arith::XOrIOp::create(b, loc, div(inPanel, kChunk), key);
    return SmallVector<Value>{div(column, tile.panelColumns), row,
                              add(mul(chunk, kChunk), rem(inPanel, kChunk))};
  };
  Value lane = rem(gpu::ThreadIdOp::create(b, loc, gpu::Dimension::x), 32);
  Value row = toIndex(op.getRow()), column = toIndex(op.getColumn()), inRow = rem(lane, 4);
  Value zero = arith::ConstantOp::create(b, loc, b.getZeroAttr(source.elementType));
  constexpr int64_t kColumns[] = {0, 1, 16, 17}, kRows[] = {0, 1, 8, 9};
  for (int64_t ofColumn : kColumns)
    for (auto [place, ofRow] : llvm::enumerate(kRows)) {
      Value fromRow = add(row, add(mul(inRow, 2), index(ofRow)));
      Value fromColumn = add(column, add(mul(div(lane, 4), 2), index(ofColumn)));
      Value element =
          memref::LoadOp::create(b, loc, op.getSource(), find(source, fromRow, fromColumn));
      if (op.getBegin()) {
        auto compare = [&](arith::CmpIPredicate predicate, Value bound) {
          return arith::CmpIOp::create(b, loc, predicate, fromRow, toIndex(bound));
        };
        Value isShown =
            arith::AndIOp::create(b, loc, compare(arith::CmpIPredicate::sge, op.getBegin()),
                                  compare(arith::CmpIPredicate::slt, op.getEnd()));
        element = arith::SelectOp::create(b, loc, isShown, element, zero);
      }
      Value toColumn = add(row, add(mul(inRow, 4), index(place)));
      memref::StoreOp::create(b, loc, element, op.getTarget(), find(target, fromColumn, toColumn));
    }
  b.eraseOp(op);
}

void mlir::flashattn::model::checkProductUses(ModelKernel &kernel) {
  // Results of products, and values that may still be in flight after a branch or another wait.
  llvm::SetVector<Value> inFlight;
  kernel.getFunction().walk([&](WgmmaOp op) { inFlight.insert(op.getD()); });
  SmallVector<OpOperand *> uses;
  for (size_t i = 0; i < inFlight.size(); ++i)
    for (OpOperand &use : inFlight[i].getUses()) {
      Operation *user = use.getOwner();
      if (auto wait = dyn_cast<WgmmaWaitOp>(user)) {
        inFlight.insert(wait.getResult(use.getOperandNumber()));
      } else if (auto branch = dyn_cast<BranchOpInterface>(user)) {
        if (auto argument = branch.getSuccessorBlockArgument(use.getOperandNumber()))
          inFlight.insert(*argument);
      } else if (auto product = dyn_cast<WgmmaOp>(user);
                 !product || product.getAcc() != use.get()) {
        uses.push_back(&use);
      }
    }
  llvm::DenseSet<std::pair<Operation *, Value>> seen;
  for (OpOperand *use : uses) {
    Operation *user = use->getOwner();
    if (!seen.insert({user, use->get()}).second)
      continue;
    OpBuilder b(user);
    Value first = LLVM::ExtractElementOp::create(b, user->getLoc(), use->get(),
                                                 constant(b, user->getLoc(), 0, 32));
    kernel.call(b, user, "ProductUse", {kernel.spill(b, user->getLoc(), first)});
  }
}

//===----------------------------------------------------------------------===//
// Dispatch
//===----------------------------------------------------------------------===//

/// Rejects an op that should have been lowered earlier or that the model does not support.
static LogicalResult refuse(Operation *op) {
  return op->emitOpError("expected an op that the GPU model supports but got '")
         << op->getName() << "'";
}

LogicalResult mlir::flashattn::model::convertHopperOp(Operation *op, ModelKernel &kernel) {
  for (Type type : llvm::concat<const Type>(llvm::to_vector(op->getOperandTypes()),
                                            llvm::to_vector(op->getResultTypes())))
    if (auto vector = dyn_cast<VectorType>(type); vector && vector.getRank() != 1)
      return op->emitOpError("expected vectors distributed to threads but got ") << vector;
  bool isKnown = true;
  OpBuilder b(op);
  llvm::TypeSwitch<Operation *>(op)
      .Case<TmaLoadOp, TmaStoreOp, BulkLoadOp, hopper::AddTileOp, StageTileOp, AddStagedOp,
            hopper::StoreTileOp, ReadTileOp, ReadTurnOp, ClaimOp, AwaitTurnOp, TakeFirstOp, ClearOp,
            PassTurnOp, hopper::SignalAddedOp, hopper::AwaitAddedOp, BarrierArriveOp, WgmmaOp,
            WgmmaWaitOp>([&](auto op) { convert(op, kernel); })
      .Case([&](BarrierInitOp op) {
        convertBarrier(op, kernel, "BarrierInit",
                       [&](OpBuilder &b) { return constant(b, op.getLoc(), op.getCount(), 32); });
      })
      .Case([&](BarrierExpectOp op) {
        convertBarrier(op, kernel, "BarrierExpect",
                       [&](OpBuilder &b) { return constant(b, op.getLoc(), op.getBytes()); });
      })
      .Case([&](BarrierWaitOp op) {
        convertBarrier(op, kernel, "BarrierWait", [&](OpBuilder &) { return op.getParity(); });
      })
      .Case([&](PublishOp op) { convertBarrier(op, kernel, "Publish"); })
      .Case([&](WarpArriveOp op) { convertBarrier(op, kernel, "WarpArrive"); })
      .Case([&](GroupBarrierOp op) { convertGroup(op, kernel, "GroupBarrier"); })
      .Case([&](GroupArriveOp op) { convertGroup(op, kernel, "GroupArrive"); })
      .Case([&](AwaitPeerOp op) {
        convertPeer(op, kernel, "GroupBarrier", op.getBarrier(), op.getBarrier() + 1);
      })
      .Case([&](WakePeerOp op) {
        convertPeer(op, kernel, "GroupArrive", op.getBarrier() + 1, op.getBarrier());
      })
      .Case([&](FenceBarrierInitOp op) { kernel.call(b, op, "FenceBarrierInit", {}); })
      .Case([&](FenceAsyncSharedOp op) { kernel.call(b, op, "FenceAsyncShared", {}); })
      .Case(
          [&](WaitStoresOp op) { kernel.call(b, op, "WaitStores", {constant(b, op.getLoc(), 0)}); })
      .Case([&](PinOp op) { op.replaceAllUsesWith(op.getValue()); })
      // The model has unlimited registers.
      .Case([](SetRegistersOp) {})
      .Default([&](Operation *) { isKnown = false; });
  if (!isKnown)
    return refuse(op);
  op->erase();
  return success();
}
