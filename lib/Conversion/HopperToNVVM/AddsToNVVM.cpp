//===- AddsToNVVM.cpp - reducing copies and their order -------------------===//

#include "InlinePTX.h"
#include "flashattn/Dialect/Hopper/IR/Hopper.h"
#include "mlir/Dialect/LLVMIR/LLVMDialect.h"
#include "llvm/Support/FormatVariadic.h"

using namespace mlir;
using namespace mlir::flashattn;
using namespace mlir::flashattn::hopper;

//===----------------------------------------------------------------------===//
// Reducing copies
//===----------------------------------------------------------------------===//

namespace {

/// Stages f32 elements in shared memory and adds them to global memory by bulk reducing copies.
class StagedAdd {
public:
  StagedAdd(ConversionPatternRewriter &b, Location loc, const LLVMTypeConverter &converter,
            TypedValue<BaseMemRefType> staging, Value convertedStaging, Value warp)
      : b(b), loc(loc), converter(converter), warp(warp),
        warps(cast<MemRefType>(staging.getType()).getDimSize(0)),
        elements(cast<MemRefType>(staging.getType()).getDimSize(1)), lane(createLane(b, loc)) {
    start = createSharedAddress(b, loc, converter, staging, convertedStaging,
                                ValueRange{warp, constant(0)});
    mine = LLVM::AddOp::create(
        b, loc, start, LLVM::MulOp::create(b, loc, lane, constantI32(b, loc, kVector * kBytes)));
  }

  /// Returns the number of elements that a thread stages at once.
  int64_t getCount() const { return elements / kLanes; }

  /// Writes elements [first, first + count) of the thread's `value` to the warp's staging buffer,
  /// from position `at` on. First waits until at most `pending` copies of the warp may still read
  /// the buffer; nullopt: no wait is needed.
  void stage(Value value, int64_t first, int64_t count, int64_t at,
             std::optional<int64_t> pending) {
    if (pending)
      createInlinePTX(b, loc,
                      llvm::formatv("{{\n.reg .pred p;\nsetp.eq.b32 p, $0, 0;\n"
                                    "@p cp.async.bulk.wait_group.read {0};\n}\nbar.warp.sync -1;",
                                    *pending)
                          .str(),
                      {}, lane);
    SmallVector<Value> held;
    for (int64_t i = 0; i < count; ++i)
      held.push_back(LLVM::ExtractElementOp::create(b, loc, value, constantI32(b, loc, first + i)));
    for (int64_t i = 0; i < count; i += kVector) {
      SmallVector<Value> inputs{mine};
      llvm::append_range(inputs, ArrayRef(held).slice(i, kVector));
      createInlinePTX(
          b, loc,
          llvm::formatv("st.shared.v4.f32 [$0+{0}], {{$1, $2, $3, $4};", (at + i) * kLanes * kBytes)
              .str(),
          {}, inputs);
    }
  }

  /// Issues, after `fence`, a reducing copy of `count` staged elements per thread, from position
  /// `at` on. All warps together have already added `before` elements per thread. `from` is
  /// `start`, or `mine` if threads also stage: in lane 0, which issues the copy, the addresses are
  /// equal, so one register holds both.
  void add(TypedValue<BaseMemRefType> target, Value convertedTarget, ValueRange indices, Value from,
           StringRef fence, int64_t count, int64_t at = 0, int64_t before = 0) {
    Value to = findTarget(target, convertedTarget, indices);
    if (before)
      to = LLVM::AddOp::create(b, loc, to, constant(before * kLanes * warps * kBytes));
    int64_t offset = at * kLanes * kBytes;
    std::string place = offset ? llvm::formatv("+{0}", offset).str() : "";
    createInlinePTX(b, loc,
                    llvm::formatv("{{\n.reg .pred p;\n{1}bar.warp.sync -1;\n"
                                  "setp.eq.b32 p, $2, 0;\n"
                                  "@p cp.reduce.async.bulk.global.shared::cta.bulk_group.add.f32 "
                                  "[$0{2}], [$1{2}], {0};\n@p cp.async.bulk.commit_group;\n}",
                                  count * kLanes * kBytes, fence, place)
                        .str(),
                    {}, ValueRange{to, from, lane});
  }

  Value start, mine; ///< the staging buffer of the warp, and of the thread in it

private:
  static constexpr int64_t kVector = 4, kBytes = 4, kLanes = 32;

  Value constant(int64_t value) {
    return LLVM::ConstantOp::create(b, loc, b.getIntegerAttr(warp.getType(), value));
  }
  Value addProduct(Value sum, Value value, int64_t factor) {
    return LLVM::AddOp::create(b, loc, sum, LLVM::MulOp::create(b, loc, value, constant(factor)));
  }

  /// Returns the global address of the warp's elements. The row, which changes from step to step,
  /// is added last, so that a loop keeps a single pointer.
  Value findTarget(TypedValue<BaseMemRefType> target, Value converted, ValueRange at) {
    auto type = cast<MemRefType>(target.getType());
    SmallVector<Value> indices(at);
    Value row = std::exchange(indices[indices.size() - 2], constant(0));
    Value start = LLVM::getStridedElementPtr(b, loc, converter, type, converted, indices);
    start = LLVM::PtrToIntOp::create(b, loc, warp.getType(), start);
    return addProduct(addProduct(start, warp, elements * kBytes), row,
                      type.getShape().back() * kBytes);
  }

  ConversionPatternRewriter &b;
  Location loc;
  const LLVMTypeConverter &converter;
  Value warp;
  int64_t warps, elements; ///< number of warps; elements per warp
  Value lane;
};

struct AddTileLowering : ConvertOpToLLVMPattern<AddTileOp> {
  using ConvertOpToLLVMPattern::ConvertOpToLLVMPattern;

  LogicalResult matchAndRewrite(AddTileOp op, OpAdaptor adaptor,
                                ConversionPatternRewriter &rewriter) const override {
    StagedAdd staged(rewriter, op.getLoc(), *getTypeConverter(), op.getStaging(),
                     adaptor.getStaging(), adaptor.getWarp());
    for (const StagedStep &step : op.getStagedSteps()) {
      staged.stage(adaptor.getValue(), step.first, step.count, step.at, step.pending);
      staged.add(op.getTarget(), adaptor.getTarget(), adaptor.getIndices(), staged.mine,
                 "fence.proxy.async.shared::cta;\n", step.count, step.at, step.before);
    }
    rewriter.eraseOp(op);
    return success();
  }
};

/// Unrolled, because a loop counter would take a register that these warps do not have.
struct ClearLowering : ConvertOpToLLVMPattern<ClearOp> {
  using ConvertOpToLLVMPattern::ConvertOpToLLVMPattern;

  LogicalResult matchAndRewrite(ClearOp op, OpAdaptor adaptor,
                                ConversionPatternRewriter &rewriter) const override {
    constexpr int64_t kLanes = 32, kBytes = 16;
    Location loc = op.getLoc();
    Value start = LLVM::getStridedElementPtr(rewriter, loc, *getTypeConverter(),
                                             cast<MemRefType>(op.getTarget().getType()),
                                             adaptor.getTarget(), adaptor.getIndices());
    // Read here, so that the lane takes no register elsewhere.
    std::string text = "{\n.reg .f32 zero;\n.reg .b32 lane;\n.reg .b64 at;\n"
                       "mov.f32 zero, 0f00000000;\nmov.u32 lane, %laneid;\n"
                       "mad.wide.u32 at, lane, 16, $0;\n";
    int64_t all = op.getElements() * static_cast<int64_t>(sizeof(float));
    for (int64_t at = 0; at < all; at += kLanes * kBytes)
      text += llvm::formatv("st.global.v4.f32 [at+{0}], {{zero, zero, zero, zero};\n", at).str();
    // Bulk copies belong to the async proxy.
    createInlinePTX(
        rewriter, loc, text + "fence.proxy.async.global;\nbar.warp.sync -1;\n}", {},
        LLVM::PtrToIntOp::create(rewriter, loc, rewriter.getI64Type(), start).getResult());
    rewriter.eraseOp(op);
    return success();
  }
};

struct StageTileLowering : ConvertOpToLLVMPattern<StageTileOp> {
  using ConvertOpToLLVMPattern::ConvertOpToLLVMPattern;

  LogicalResult matchAndRewrite(StageTileOp op, OpAdaptor adaptor,
                                ConversionPatternRewriter &rewriter) const override {
    StagedAdd staged(rewriter, op.getLoc(), *getTypeConverter(), op.getStaging(),
                     adaptor.getStaging(), adaptor.getWarp());
    staged.stage(adaptor.getValue(), /*first=*/0, staged.getCount(), /*at=*/0, /*pending=*/0);
    rewriter.eraseOp(op);
    return success();
  }
};

struct AddStagedLowering : ConvertOpToLLVMPattern<AddStagedOp> {
  using ConvertOpToLLVMPattern::ConvertOpToLLVMPattern;

  LogicalResult matchAndRewrite(AddStagedOp op, OpAdaptor adaptor,
                                ConversionPatternRewriter &rewriter) const override {
    Value warp = adaptor.getWarp();
    int64_t warps = 1;
    if (!warp) {
      warp = LLVM::ConstantOp::create(
          rewriter, op.getLoc(), rewriter.getIntegerAttr(getTypeConverter()->getIndexType(), 0));
      warps = cast<MemRefType>(op.getStaging().getType()).getDimSize(0);
    }
    StagedAdd staged(rewriter, op.getLoc(), *getTypeConverter(), op.getStaging(),
                     adaptor.getStaging(), warp);
    staged.add(op.getTarget(), adaptor.getTarget(), adaptor.getIndices(),
               op.getWarp() ? staged.mine : staged.start, /*fence=*/"", warps * staged.getCount());
    rewriter.eraseOp(op);
    return success();
  }
};

//===----------------------------------------------------------------------===//
// Ordered ops on global memory
//===----------------------------------------------------------------------===//

constexpr int64_t kTurnBytes = 4;

/// Lowers an op on an element in global memory to inline PTX. The element's address is `$0`, or
/// `$1` if the op has a result; more operands follow.
template <typename Op> struct TurnLowering : ConvertOpToLLVMPattern<Op> {
  using ConvertOpToLLVMPattern<Op>::ConvertOpToLLVMPattern;
  using OpAdaptor = typename ConvertOpToLLVMPattern<Op>::OpAdaptor;

  LogicalResult matchAndRewrite(Op op, OpAdaptor adaptor,
                                ConversionPatternRewriter &rewriter) const override {
    Location loc = op.getLoc();
    auto type = cast<MemRefType>(op.getOrder().getType());
    MemRefDescriptor order(adaptor.getOrder());
    // 32-bit arithmetic, which the number of rows allows: a loop keeps one register and no pointer.
    auto narrow = [&](Value v) -> Value {
      return LLVM::TruncOp::create(rewriter, loc, rewriter.getI32Type(), v);
    };
    Value place = constantI32(rewriter, loc, 0);
    for (auto [i, index] : llvm::enumerate(adaptor.getIndices())) {
      Value stride = narrow(order.stride(rewriter, loc, i));
      place = LLVM::AddOp::create(rewriter, loc, place,
                                  LLVM::MulOp::create(rewriter, loc, narrow(index), stride));
    }
    Type wide = rewriter.getI64Type();
    Value bytes = LLVM::MulOp::create(
        rewriter, loc, LLVM::ZExtOp::create(rewriter, loc, wide, place),
        LLVM::ConstantOp::create(rewriter, loc, rewriter.getI64IntegerAttr(kTurnBytes)));
    Value start = LLVM::PtrToIntOp::create(
        rewriter, loc, wide, order.bufferPtr(rewriter, loc, *this->getTypeConverter(), type));
    SmallVector<Value> inputs{LLVM::AddOp::create(rewriter, loc, start, bytes)};
    std::string text = getText(op, adaptor, rewriter, inputs);
    // Inline assembly cannot return a predicate.
    bool isFlag = isa<TakeFirstOp>(op.getOperation());
    SmallVector<Type> types(op->getResultTypes());
    if (isFlag)
      types = {rewriter.getI32Type()};
    SmallVector<Value> results = createInlinePTX(rewriter, loc, text, types, inputs);
    if (isFlag)
      results = {LLVM::TruncOp::create(rewriter, loc, rewriter.getI1Type(), results.front())};
    rewriter.replaceOp(op, results);
    return success();
  }

  static std::string getText(Op op, OpAdaptor adaptor, OpBuilder &builder,
                             SmallVectorImpl<Value> &inputs);
};

template <>
std::string TurnLowering<ReadTurnOp>::getText(ReadTurnOp, OpAdaptor, OpBuilder &,
                                              SmallVectorImpl<Value> &) {
  return "ld.relaxed.gpu.global.b32 $0, [$1];";
}

template <>
std::string TurnLowering<ClaimOp>::getText(ClaimOp, OpAdaptor, OpBuilder &,
                                           SmallVectorImpl<Value> &) {
  return "atom.relaxed.gpu.global.add.u32 $0, [$1], 1;";
}

// Relaxed: an acquire fence would cost time in every step. The reducing copies that follow are
// performed in the L2 cache, and so were the copies before the turn was passed on.
template <>
std::string TurnLowering<AwaitTurnOp>::getText(AwaitTurnOp, OpAdaptor adaptor, OpBuilder &,
                                               SmallVectorImpl<Value> &inputs) {
  inputs.append({adaptor.getTurn(), adaptor.getSeen()});
  return "{\n.reg .pred p;\n.reg .b32 seen;\nmov.b32 seen, $2;\nWAIT_${:uid}:\n"
         "setp.eq.b32 p, seen, $1;\n@p bra.uni DONE_${:uid};\n"
         "ld.relaxed.gpu.global.b32 seen, [$0];\nbra.uni WAIT_${:uid};\nDONE_${:uid}:\n}";
}

// Relaxed for the same reason.
template <>
std::string TurnLowering<TakeFirstOp>::getText(TakeFirstOp, OpAdaptor adaptor, OpBuilder &,
                                               SmallVectorImpl<Value> &inputs) {
  inputs.push_back(adaptor.getSeen());
  return "{\n.reg .pred p;\n.reg .b32 seen;\nmov.b32 seen, $2;\nWAIT_${:uid}:\n"
         "setp.eq.b32 p, seen, 2;\n@p bra DONE_${:uid};\n"
         "atom.relaxed.gpu.global.cas.b32 seen, [$1], 0, 1;\n"
         "setp.ne.b32 p, seen, 0;\n@p bra WAIT_${:uid};\nDONE_${:uid}:\n"
         "setp.eq.b32 p, seen, 0;\nselp.b32 $0, 1, 0, p;\n}";
}

// Release: without its fence, results occasionally differ between calls
// (docs/rationale/deterministic-gradients.md).
template <>
std::string TurnLowering<PassTurnOp>::getText(PassTurnOp op, OpAdaptor adaptor, OpBuilder &builder,
                                              SmallVectorImpl<Value> &inputs) {
  inputs.append({adaptor.getTurn(), createLane(builder, op.getLoc())});
  return "{\n.reg .pred p;\n.reg .b32 next;\nsetp.eq.b32 p, $2, 0;\n"
         "add.s32 next, $1, 1;\n@p cp.async.bulk.wait_group 0;\n"
         "@p st.release.gpu.global.b32 [$0], next;\n}";
}

template <>
std::string TurnLowering<SignalAddedOp>::getText(SignalAddedOp op, OpAdaptor, OpBuilder &builder,
                                                 SmallVectorImpl<Value> &inputs) {
  inputs.push_back(createLane(builder, op.getLoc()));
  return "{\n.reg .pred p;\nsetp.eq.b32 p, $1, 0;\n@p cp.async.bulk.wait_group 0;\n"
         "@p red.release.gpu.global.add.u32 [$0], 1;\n}";
}

// Sleeps between polls: blocks of the previous grid are still running and need the issue slots.
template <>
std::string TurnLowering<AwaitAddedOp>::getText(AwaitAddedOp, OpAdaptor adaptor, OpBuilder &,
                                                SmallVectorImpl<Value> &inputs) {
  inputs.push_back(adaptor.getCount());
  return "{\n.reg .pred p;\n.reg .b32 seen;\nWAIT_${:uid}:\n"
         "ld.acquire.gpu.global.b32 seen, [$0];\nsetp.eq.b32 p, seen, $1;\n"
         "@p bra DONE_${:uid};\nnanosleep.u32 100;\nbra WAIT_${:uid};\nDONE_${:uid}:\n}";
}

} // namespace

void hopper::populateAddsToNVVMPatterns(LLVMTypeConverter &converter, RewritePatternSet &patterns) {
  patterns.add<AddTileLowering, StageTileLowering, AddStagedLowering, ClearLowering,
               TurnLowering<ReadTurnOp>, TurnLowering<ClaimOp>, TurnLowering<AwaitTurnOp>,
               TurnLowering<TakeFirstOp>, TurnLowering<PassTurnOp>, TurnLowering<SignalAddedOp>,
               TurnLowering<AwaitAddedOp>>(converter);
}
