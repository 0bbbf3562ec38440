//===- HopperToNVVM.cpp - convert-hopper-to-nvvm --------------------------===//

#include "flashattn/Conversion/HopperToNVVM/HopperToNVVM.h"
#include "InlinePTX.h"
#include "flashattn/Conversion/Passes.h"
#include "flashattn/Dialect/Hopper/IR/Hopper.h"
#include "mlir/Conversion/ConvertToLLVM/ToLLVMInterface.h"
#include "mlir/Conversion/GPUToNVVM/GPUToNVVMPass.h"
#include "mlir/Conversion/LLVMCommon/ConversionTarget.h"
#include "mlir/Conversion/LLVMCommon/TypeConverter.h"
#include "mlir/Dialect/GPU/IR/GPUDialect.h"
#include "mlir/Dialect/LLVMIR/LLVMDialect.h"
#include "mlir/Dialect/LLVMIR/NVVMDialect.h"
#include "mlir/Transforms/DialectConversion.h"

namespace mlir::flashattn {
#define GEN_PASS_DEF_CONVERTHOPPERTONVVM
#include "flashattn/Conversion/Passes.h.inc"
} // namespace mlir::flashattn

using namespace mlir;
using namespace mlir::flashattn;
using namespace mlir::flashattn::hopper;

namespace {

//===----------------------------------------------------------------------===//
// TMA copies
//===----------------------------------------------------------------------===//

/// Issues one TMA instruction for each panel of `tile` at `address`. `form` is a format string with
/// the number of coordinates and their list. In it, `$0` is the panel, `$1` the tensor map and `$2`
/// the first of `others`.
void copyPanels(OpBuilder &b, Location loc, const SharedTile &tile, Value address, Value map,
                ValueRange coordinates, ValueRange others, const char *form) {
  // A tensor map lists dimensions innermost first.
  SmallVector<Value> places;
  std::string list;
  for (auto [i, coordinate] : llvm::enumerate(llvm::reverse(coordinates))) {
    places.push_back(LLVM::TruncOp::create(b, loc, b.getI32Type(), coordinate));
    list += llvm::formatv("{0}${1}", i ? ", " : "", i + 2 + others.size());
  }
  std::string text = llvm::formatv(form, places.size(), list);
  Value column = places.front();
  for (int64_t panel = 0; panel < tile.panels; ++panel) {
    Value at = address;
    if (panel) {
      at = LLVM::AddOp::create(b, loc, address,
                               constantI32(b, loc, panel * tile.getPanelStrideBytes()));
      places.front() =
          LLVM::AddOp::create(b, loc, column, constantI32(b, loc, panel * tile.panelColumns));
    }
    SmallVector<Value> inputs{at, map};
    llvm::append_range(inputs, others);
    llvm::append_range(inputs, places);
    createInlinePTX(b, loc, text, {}, inputs);
  }
}

struct TmaLoadLowering : ConvertOpToLLVMPattern<TmaLoadOp> {
  using ConvertOpToLLVMPattern::ConvertOpToLLVMPattern;

  LogicalResult matchAndRewrite(TmaLoadOp op, OpAdaptor adaptor,
                                ConversionPatternRewriter &rewriter) const override {
    Location loc = op.getLoc();
    Value tile =
        createSharedAddress(rewriter, loc, *getTypeConverter(), op.getTile(), adaptor.getTile());
    Value barrier = createSharedAddress(rewriter, loc, *getTypeConverter(), op.getBarriers(),
                                        adaptor.getBarriers(), adaptor.getIndex());
    copyPanels(rewriter, loc, op.getCopied(), tile, adaptor.getMap(), adaptor.getCoordinates(),
               barrier,
               "cp.async.bulk.tensor.{0}d.shared::cluster.global.tile.mbarrier::complete_tx::bytes "
               "[$0], [$1, {{{1}}], [$2];");
    rewriter.eraseOp(op);
    return success();
  }
};

struct BulkLoadLowering : ConvertOpToLLVMPattern<BulkLoadOp> {
  using ConvertOpToLLVMPattern::ConvertOpToLLVMPattern;

  LogicalResult matchAndRewrite(BulkLoadOp op, OpAdaptor adaptor,
                                ConversionPatternRewriter &rewriter) const override {
    Location loc = op.getLoc();
    auto type = cast<MemRefType>(op.getPlaces().getType());
    Value zero = LLVM::ConstantOp::create(rewriter, loc,
                                          rewriter.getIntegerAttr(adaptor.getPlace().getType(), 0));
    Value place = createSharedAddress(rewriter, loc, *getTypeConverter(), op.getPlaces(),
                                      adaptor.getPlaces(), ValueRange{adaptor.getPlace(), zero});
    Value barrier = createSharedAddress(rewriter, loc, *getTypeConverter(), op.getBarriers(),
                                        adaptor.getBarriers(), adaptor.getIndex());
    Value source = LLVM::getStridedElementPtr(rewriter, loc, *getTypeConverter(),
                                              cast<MemRefType>(op.getSource().getType()),
                                              adaptor.getSource(), adaptor.getIndices());
    source = LLVM::PtrToIntOp::create(rewriter, loc, rewriter.getI64Type(), source);
    createInlinePTX(
        rewriter, loc,
        llvm::formatv("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes "
                      "[$0], [$1], {0}, [$2];",
                      type.getDimSize(1) * type.getElementTypeBitWidth() / 8)
            .str(),
        {}, ValueRange{place, source, barrier});
    rewriter.eraseOp(op);
    return success();
  }
};

struct TmaStoreLowering : ConvertOpToLLVMPattern<TmaStoreOp> {
  using ConvertOpToLLVMPattern::ConvertOpToLLVMPattern;

  LogicalResult matchAndRewrite(TmaStoreOp op, OpAdaptor adaptor,
                                ConversionPatternRewriter &rewriter) const override {
    Location loc = op.getLoc();
    Value tile =
        createSharedAddress(rewriter, loc, *getTypeConverter(), op.getTile(), adaptor.getTile());
    copyPanels(rewriter, loc, *SharedTile::get(op.getTile().getType()), tile, adaptor.getMap(),
               adaptor.getCoordinates(), {},
               "cp.async.bulk.tensor.{0}d.global.shared::cta.tile.bulk_group [$1, {{{1}}], [$0];");
    NVVM::CpAsyncBulkCommitGroupOp::create(rewriter, loc);
    rewriter.eraseOp(op);
    return success();
  }
};

//===----------------------------------------------------------------------===//
// Barriers
//===----------------------------------------------------------------------===//

/// Lowers an op on an mbarrier to inline PTX, in which `$0` is its address.
template <typename Op> struct BarrierLowering : ConvertOpToLLVMPattern<Op> {
  using ConvertOpToLLVMPattern<Op>::ConvertOpToLLVMPattern;
  using OpAdaptor = typename ConvertOpToLLVMPattern<Op>::OpAdaptor;

  LogicalResult matchAndRewrite(Op op, OpAdaptor adaptor,
                                ConversionPatternRewriter &rewriter) const override {
    Location loc = op.getLoc();
    SmallVector<Value> inputs{createSharedAddress(rewriter, loc, *this->getTypeConverter(),
                                                  op.getBarriers(), adaptor.getBarriers(),
                                                  adaptor.getIndex())};
    std::string text = getText(op, adaptor, rewriter, inputs);
    createInlinePTX(rewriter, loc, text, {}, inputs);
    rewriter.eraseOp(op);
    return success();
  }

  /// Returns the text and appends operands other than the address to `inputs`.
  static std::string getText(Op op, OpAdaptor adaptor, OpBuilder &builder,
                             SmallVectorImpl<Value> &inputs);
};

template <>
std::string BarrierLowering<BarrierInitOp>::getText(BarrierInitOp op, OpAdaptor, OpBuilder &,
                                                    SmallVectorImpl<Value> &) {
  return llvm::formatv("mbarrier.init.shared::cta.b64 [$0], {0};", op.getCount());
}

template <>
std::string BarrierLowering<BarrierExpectOp>::getText(BarrierExpectOp op, OpAdaptor, OpBuilder &,
                                                      SmallVectorImpl<Value> &) {
  return llvm::formatv("mbarrier.arrive.expect_tx.shared::cta.b64 _, [$0], {0};", op.getBytes());
}

template <>
std::string BarrierLowering<BarrierArriveOp>::getText(BarrierArriveOp op, OpAdaptor adaptor,
                                                      OpBuilder &builder,
                                                      SmallVectorImpl<Value> &inputs) {
  if (!op.getPredicate())
    return "mbarrier.arrive.shared::cta.b64 _, [$0];";
  inputs.push_back(
      LLVM::ZExtOp::create(builder, op.getLoc(), builder.getI32Type(), adaptor.getPredicate()));
  return "{\n.reg .pred p;\nsetp.ne.b32 p, $1, 0;\n"
         "@p mbarrier.arrive.shared::cta.b64 _, [$0];\n}";
}

template <>
std::string BarrierLowering<BarrierWaitOp>::getText(BarrierWaitOp, OpAdaptor adaptor, OpBuilder &,
                                                    SmallVectorImpl<Value> &inputs) {
  inputs.push_back(adaptor.getParity());
  // try_wait suspends the thread for a while, so this loop does not spin.
  return "{\n.reg .pred p;\nWAIT_${:uid}:\n"
         "mbarrier.try_wait.parity.shared::cta.b64 p, [$0], $1;\n"
         "@p bra.uni DONE_${:uid};\nbra.uni WAIT_${:uid};\nDONE_${:uid}:\n}";
}

template <>
std::string BarrierLowering<PublishOp>::getText(PublishOp op, OpAdaptor, OpBuilder &builder,
                                                SmallVectorImpl<Value> &inputs) {
  inputs.push_back(createLane(builder, op.getLoc()));
  return "{\n.reg .pred p;\nfence.proxy.async.shared::cta;\nbar.warp.sync -1;\n"
         "setp.eq.b32 p, $1, 0;\n@p mbarrier.arrive.shared::cta.b64 _, [$0];\n}";
}

template <>
std::string BarrierLowering<WarpArriveOp>::getText(WarpArriveOp op, OpAdaptor, OpBuilder &builder,
                                                   SmallVectorImpl<Value> &inputs) {
  inputs.push_back(createLane(builder, op.getLoc()));
  return "{\n.reg .pred p;\nbar.warp.sync -1;\nsetp.eq.b32 p, $1, 0;\n"
         "@p mbarrier.arrive.shared::cta.b64 _, [$0];\n}";
}

//===----------------------------------------------------------------------===//
// Instructions
//===----------------------------------------------------------------------===//

/// Lowers an op without operands to an instruction without operands.
template <typename Op> struct InstructionLowering : ConvertOpToLLVMPattern<Op> {
  InstructionLowering(const LLVMTypeConverter &converter, StringRef text)
      : ConvertOpToLLVMPattern<Op>(converter), text(text) {}

  LogicalResult matchAndRewrite(Op op, typename ConvertOpToLLVMPattern<Op>::OpAdaptor,
                                ConversionPatternRewriter &rewriter) const override {
    createInlinePTX(rewriter, op.getLoc(), text, {}, {});
    rewriter.eraseOp(op);
    return success();
  }

  StringRef text;
};

//===----------------------------------------------------------------------===//
// Ops with an equivalent in nvvm
//===----------------------------------------------------------------------===//

LogicalResult lowerWaitStores(WaitStoresOp op, PatternRewriter &b) {
  if (std::optional<uint64_t> consumer = op.getConsumer())
    createInlinePTX(b, op.getLoc(), llvm::formatv("// consumer {0}", *consumer).str(), {}, {});
  b.replaceOpWithNewOp<NVVM::CpAsyncBulkWaitGroupOp>(op, b.getI32IntegerAttr(0),
                                                     /*read=*/b.getUnitAttr());
  return success();
}

LogicalResult lowerFenceAsyncShared(FenceAsyncSharedOp op, PatternRewriter &b) {
  MLIRContext *ctx = b.getContext();
  b.replaceOpWithNewOp<NVVM::FenceProxyOp>(
      op, NVVM::ProxyKindAttr::get(ctx, NVVM::ProxyKind::async_shared),
      NVVM::SharedSpaceAttr::get(ctx, NVVM::SharedSpace::shared_cta));
  return success();
}

LogicalResult lowerGroupBarrier(GroupBarrierOp op, PatternRewriter &b) {
  Value threads = constantI32(b, op.getLoc(), op.getThreads());
  NVVM::BarrierOp::create(b, op.getLoc(), TypeRange(), op.getId(), threads, {}, {});
  b.eraseOp(op);
  return success();
}

LogicalResult lowerGroupArrive(GroupArriveOp op, PatternRewriter &b) {
  Value threads = constantI32(b, op.getLoc(), op.getThreads());
  b.replaceOpWithNewOp<NVVM::BarrierArriveOp>(op, op.getId(), threads);
  return success();
}

/// Lowers to `instruction` at the first barrier in the first warpgroup and at the second barrier in
/// the second; swapped if `isOther`. Both instructions are emitted with opposite predicates,
/// because a barrier number in a register would take one.
template <typename Op>
LogicalResult lowerPeer(Op op, PatternRewriter &b, StringRef instruction, bool isOther) {
  int64_t first = op.getBarrier() + isOther, second = op.getBarrier() + !isOther;
  createInlinePTX(
      b, op.getLoc(),
      llvm::formatv("{{\n.reg .pred p;\n.reg .b32 thread;\nmov.u32 thread, %tid.x;\n"
                    "setp.lt.u32 p, thread, {0};\n@p {1} {2}, {3};\n@!p {1} {4}, {3};\n}",
                    Op::kSecondThread, instruction, first, Op::kThreads, second)
          .str(),
      {}, ValueRange());
  b.eraseOp(op);
  return success();
}

LogicalResult lowerAwaitPeer(AwaitPeerOp op, PatternRewriter &b) {
  return lowerPeer(op, b, "bar.sync", /*isOther=*/false);
}

LogicalResult lowerWakePeer(WakePeerOp op, PatternRewriter &b) {
  return lowerPeer(op, b, "bar.arrive", /*isOther=*/true);
}

LogicalResult lowerSetRegisters(SetRegistersOp op, PatternRewriter &b) {
  auto action = op.getChange() == RegisterChange::Increase ? NVVM::SetMaxRegisterAction::increase
                                                           : NVVM::SetMaxRegisterAction::decrease;
  b.replaceOpWithNewOp<NVVM::SetMaxRegisterOp>(op, op.getCount(), action);
  return success();
}

//===----------------------------------------------------------------------===//
// Tensor maps
//===----------------------------------------------------------------------===//

/// Makes the tensor maps of a kernel by-value grid constants: TMA must read them from the parameter
/// space, not from a copy. The cast that convert-gpu-to-nvvm leaves at its uses identifies a map.
void passTensorMapsByValue(LLVM::LLVMFuncOp function) {
  if (function.isExternal() || !function->hasAttr(NVVM::NVVMDialect::getKernelFuncAttrName()))
    return;
  MLIRContext *ctx = function.getContext();
  for (BlockArgument argument : function.getArguments()) {
    if (llvm::none_of(argument.getUsers(), [](Operation *user) {
          return isa<UnrealizedConversionCastOp>(user) &&
                 isa<TensorMapType>(user->getResultTypes().front());
        }))
      continue;
    auto bytes = LLVM::LLVMArrayType::get(IntegerType::get(ctx, 8), kTensorMapBytes);
    unsigned i = argument.getArgNumber();
    function.setArgAttr(i, LLVM::LLVMDialect::getByValAttrName(), TypeAttr::get(bytes));
    function.setArgAttr(i, LLVM::LLVMDialect::getAlignAttrName(),
                        IntegerAttr::get(IntegerType::get(ctx, 64), kTensorMapAlignment));
    function.setArgAttr(i, NVVM::NVVMDialect::getGridConstantAttrName(), UnitAttr::get(ctx));
  }
}

/// Sets the minimum number of blocks per SM. ptxas ignores setmaxnreg (C7508) in a kernel that
/// might start with fewer registers than its block can have; with this number it uses them all.
void fixRegisterCount(LLVM::LLVMFuncOp function) {
  Builder b(function.getContext());
  function.walk([&](SetRegistersOp op) {
    function->setAttr(NVVM::NVVMDialect::getMinctasmAttrName(),
                      b.getI32IntegerAttr(op.getBlocks()));
  });
}

void addTensorMapConversion(LLVMTypeConverter &converter) {
  converter.addConversion(
      [](TensorMapType type) { return LLVM::LLVMPointerType::get(type.getContext()); });
}

struct TensorMapToLLVMInterface : ConvertToLLVMPatternInterface {
  using ConvertToLLVMPatternInterface::ConvertToLLVMPatternInterface;

  void populateConvertToLLVMConversionPatterns(ConversionTarget &, LLVMTypeConverter &converter,
                                               RewritePatternSet &) const override {
    addTensorMapConversion(converter);
  }
};

//===----------------------------------------------------------------------===//
// Pass
//===----------------------------------------------------------------------===//

/// Emits an error and interrupts at an op or type that earlier passes should have lowered.
WalkResult checkConvertible(Operation *op) {
  if (auto kernel = dyn_cast<gpu::GPUFuncOp>(op)) {
    for (Type type : kernel.getArgumentTypes())
      if (isa<TensorMapType>(type)) {
        op->emitOpError() << "expected kernels with tensor maps to be llvm.func, as "
                             "convert-gpu-to-nvvm makes them, but got an argument of type "
                          << type;
        return WalkResult::interrupt();
      }
    return WalkResult::advance();
  }
  if (isa<MakeRingOp>(op)) {
    op->emitOpError() << "expected no rings; run hopper-expand-rings first";
    return WalkResult::interrupt();
  }
  if (!isa<WgmmaOp, WgmmaWaitOp, PinOp, StoreTileOp, ReadTileOp, AddTileOp, StageTileOp>(op))
    return WalkResult::advance();
  auto types = llvm::concat<const Type>(llvm::to_vector(op->getOperandTypes()),
                                        llvm::to_vector(op->getResultTypes()));
  for (Type type : types)
    if (auto vector = dyn_cast<VectorType>(type); vector && vector.getRank() != 1) {
      op->emitOpError() << "expected vectors distributed to threads but got " << vector;
      return WalkResult::interrupt();
    }
  return WalkResult::advance();
}

struct ConvertHopperToNVVMPass : flashattn::impl::ConvertHopperToNVVMBase<ConvertHopperToNVVMPass> {
  void runOnOperation() override {
    Operation *root = getOperation();
    if (root->walk(checkConvertible).wasInterrupted())
      return signalPassFailure();
    root->walk(passTensorMapsByValue);
    root->walk(fixRegisterCount);

    LLVMTypeConverter converter(&getContext());
    configureGpuToNVVMTypeConverter(converter);
    RewritePatternSet patterns(&getContext());
    populateHopperToNVVMPatterns(converter, patterns);
    LLVMConversionTarget target(getContext());
    // The host creates tensor maps.
    target.addIllegalDialect<HopperDialect>();
    target.addLegalOp<MakeTensorMapOp>();
    target.addLegalDialect<NVVM::NVVMDialect>();
    if (failed(applyPartialConversion(root, target, std::move(patterns))))
      signalPassFailure();
  }
};
} // namespace

void hopper::populateHopperToNVVMPatterns(LLVMTypeConverter &converter,
                                          RewritePatternSet &patterns) {
  addTensorMapConversion(converter);
  patterns.add<TmaLoadLowering, BulkLoadLowering, TmaStoreLowering, BarrierLowering<BarrierInitOp>,
               BarrierLowering<BarrierExpectOp>, BarrierLowering<BarrierArriveOp>,
               BarrierLowering<BarrierWaitOp>, BarrierLowering<PublishOp>,
               BarrierLowering<WarpArriveOp>>(converter);
  patterns.add<InstructionLowering<FenceBarrierInitOp>>(converter,
                                                        "fence.mbarrier_init.release.cluster;");
  patterns.add(lowerWaitStores);
  patterns.add(lowerFenceAsyncShared);
  patterns.add(lowerGroupBarrier);
  patterns.add(lowerGroupArrive);
  patterns.add(lowerAwaitPeer);
  patterns.add(lowerWakePeer);
  patterns.add(lowerSetRegisters);
  populateAddsToNVVMPatterns(converter, patterns);
  populateWgmmaToNVVMPatterns(converter, patterns);
}

void hopper::registerConvertTensorMapToLLVMInterface(DialectRegistry &registry) {
  registry.addExtension(+[](MLIRContext *, HopperDialect *dialect) {
    dialect->addInterfaces<TensorMapToLLVMInterface>();
  });
}
