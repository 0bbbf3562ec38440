//===- HostCode.cpp - host code around the dialect's ops ------------------===//
//
// Host tensors before bufferization, buffers, and errors at ops that no pipeline can lower.
//
//===----------------------------------------------------------------------===//

#include "flashattn/Dialect/FlashAttn/Program/TileLoops.h"
#include "flashattn/Dialect/FlashAttn/Transforms/Passes.h"
#include "flashattn/Dialect/FlashAttn/Transforms/Transforms.h"
#include "mlir/Conversion/BufferizationToMemRef/BufferizationToMemRef.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Bufferization/IR/BufferizableOpInterface.h"
#include "mlir/Dialect/Bufferization/IR/Bufferization.h"
#include "mlir/Dialect/Bufferization/Transforms/BufferViewFlowAnalysis.h"
#include "mlir/Dialect/Bufferization/Transforms/Passes.h"
#include "mlir/Dialect/ControlFlow/IR/ControlFlow.h"
#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/Dialect/GPU/IR/GPUDialect.h"
#include "mlir/Dialect/LLVMIR/LLVMDialect.h"
#include "mlir/Dialect/Linalg/IR/Linalg.h"
#include "mlir/Dialect/Linalg/Transforms/Transforms.h"
#include "mlir/Dialect/MemRef/IR/MemRef.h"
#include "mlir/Dialect/MemRef/Utils/MemRefUtils.h"
#include "mlir/Dialect/SCF/IR/SCF.h"
#include "mlir/Dialect/Tensor/IR/Tensor.h"
#include "mlir/Dialect/Tensor/Transforms/Transforms.h"
#include "mlir/Interfaces/LoopLikeInterface.h"
#include "mlir/Pass/PassManager.h"
#include "mlir/Transforms/GreedyPatternRewriteDriver.h"
#include "mlir/Transforms/Passes.h"
#include "mlir/Transforms/WalkPatternRewriteDriver.h"
#include "llvm/ADT/MapVector.h"
#include "llvm/ADT/StringExtras.h"
#include "llvm/Support/FormatVariadic.h"

namespace mlir::flashattn {
#define GEN_PASS_DEF_FREELOOPBUFFERS
#define GEN_PASS_DEF_FREETEMPORARIES
#define GEN_PASS_DEF_KEEPLOOPS
#define GEN_PASS_DEF_PREPARETENSORS
#define GEN_PASS_DEF_VERIFYHOST
#define GEN_PASS_DEF_VERIFYLOWERED
#define GEN_PASS_DEF_VERIFYMODULE
#define GEN_PASS_DEF_VERIFYTENSORS
#include "flashattn/Dialect/FlashAttn/Transforms/Passes.h.inc"
} // namespace mlir::flashattn

using namespace mlir;
using namespace mlir::flashattn;

//===----------------------------------------------------------------------===//
// Before bufferization
//===----------------------------------------------------------------------===//

/// Whether an op writes `tensor`, or a view of it, as its destination.
static bool isDestination(Value tensor) {
  return llvm::any_of(tensor.getUses(), [](OpOperand &use) {
    if (auto op = dyn_cast<DestinationStyleOpInterface>(use.getOwner()))
      return op.isDpsInit(&use);
    return isa<tensor::CastOp, tensor::ExpandShapeOp, tensor::CollapseShapeOp,
               tensor::ExtractSliceOp>(use.getOwner()) &&
           isDestination(use.getOwner()->getResult(0));
  });
}

/// Bufferization may write to the arguments of a function. Marks all arguments except destinations
/// as not writable, so that the caller's data is not overwritten.
static void protectInputs(func::FuncOp function) {
  if (function.isExternal() || function.isPrivate())
    return;
  for (BlockArgument argument : function.getArguments())
    if (isa<TensorType>(argument.getType()) && !isDestination(argument))
      function.setArgAttr(argument.getArgNumber(),
                          bufferization::BufferizationDialect::kWritableAttrName,
                          BoolAttr::get(function.getContext(), false));
}

namespace {
/// Decomposes ops that implement AggregatedOpInterface.
struct Decompose : OpInterfaceRewritePattern<linalg::AggregatedOpInterface> {
  using OpInterfaceRewritePattern::OpInterfaceRewritePattern;
  LogicalResult matchAndRewrite(linalg::AggregatedOpInterface op,
                                PatternRewriter &rewriter) const override {
    if (llvm::any_of(op->getOperandTypes(), llvm::IsaPred<MemRefType>))
      return failure();
    FailureOr<SmallVector<Value>> values = op.decomposeOperation(rewriter);
    if (failed(values))
      return failure();
    rewriter.replaceOp(op, *values);
    return success();
  }
};

/// Decomposes a softmax on memrefs, possibly in place, through tensors: upstream requires tensors.
struct DecomposeOnMemRefs : OpRewritePattern<linalg::SoftmaxOp> {
  using OpRewritePattern::OpRewritePattern;
  LogicalResult matchAndRewrite(linalg::SoftmaxOp op, PatternRewriter &rewriter) const override {
    auto type = dyn_cast<MemRefType>(op.getInput().getType());
    if (!type || !isa<MemRefType>(op.getOutput().getType()))
      return failure();
    Location loc = op.getLoc();
    Type tensor = memref::getTensorTypeFromMemRefType(type);
    Value input = bufferization::ToTensorOp::create(rewriter, loc, tensor, op.getInput(),
                                                    /*restrict=*/true);
    Value empty = tensor::EmptyOp::create(
        rewriter, loc, tensor::getMixedSizes(rewriter, loc, input), type.getElementType());
    auto onTensors =
        linalg::SoftmaxOp::create(rewriter, loc, tensor, input, empty, op.getDimension());
    FailureOr<SmallVector<Value>> values = onTensors.decomposeOperation(rewriter);
    assert(succeeded(values) && "on tensors a softmax can always be decomposed");
    auto store = bufferization::MaterializeInDestinationOp::create(rewriter, loc, values->front(),
                                                                   op.getOutput());
    store.setRestrict(true);
    store.setWritable(true);
    rewriter.eraseOp(onTensors);
    rewriter.eraseOp(op);
    return success();
  }
};

struct LowerPack : OpRewritePattern<linalg::PackOp> {
  using OpRewritePattern::OpRewritePattern;
  LogicalResult matchAndRewrite(linalg::PackOp op, PatternRewriter &rewriter) const override {
    return success(op.hasPureTensorSemantics() && succeeded(linalg::lowerPack(rewriter, op)));
  }
};

struct LowerUnPack : OpRewritePattern<linalg::UnPackOp> {
  using OpRewritePattern::OpRewritePattern;
  LogicalResult matchAndRewrite(linalg::UnPackOp op, PatternRewriter &rewriter) const override {
    return success(op.hasPureTensorSemantics() && succeeded(linalg::lowerUnPack(rewriter, op)));
  }
};

/// Removes tensors in the bodies of linalg ops that only wrap a scalar, because each would become
/// one buffer per element.
static LogicalResult unwrapScalars(Operation *root) {
  SmallVector<Operation *> ops;
  root->walk([&](linalg::LinalgOp op) {
    op.getBlock()->walk([&](Operation *inside) {
      if (isa_and_present<tensor::TensorDialect>(inside->getDialect()))
        ops.push_back(inside);
    });
  });
  MLIRContext *context = root->getContext();
  RewritePatternSet patterns(context);
  tensor::ExtractOp::getCanonicalizationPatterns(patterns, context);
  return applyOpPatternsGreedily(ops, std::move(patterns));
}

struct PrepareTensorsPass : flashattn::impl::PrepareTensorsBase<PrepareTensorsPass> {
  void runOnOperation() override {
    getOperation()->walk(protectInputs);
    IRRewriter rewriter(&getContext());
    WalkResult folded = getOperation()->walk(
        [&](func::FuncOp function) { return WalkResult(foldExtracts(rewriter, function)); });
    if (folded.wasInterrupted())
      return signalPassFailure();
    RewritePatternSet patterns(&getContext());
    patterns.add<Decompose, DecomposeOnMemRefs, LowerPack, LowerUnPack>(&getContext());
    linalg::populateElementwiseToLinalgConversionPatterns(patterns);
    tensor::populateDecomposeTensorConcatPatterns(patterns);
    // Does not fold or move anything, so that ops without a matching pattern do not change.
    walkAndApplyPatterns(getOperation(), std::move(patterns));
    if (failed(unwrapScalars(getOperation())))
      signalPassFailure();
  }
};
} // namespace

//===----------------------------------------------------------------------===//
// Buffers that loops allocate
//===----------------------------------------------------------------------===//

/// Whether `root` allocates buffers that are never freed, directly or in functions that it calls.
static bool leaks(Operation *root, SymbolTableCollection &symbols,
                  SmallPtrSetImpl<Operation *> &visited) {
  WalkResult result = root->walk<WalkOrder::PreOrder>([&](Operation *op) {
    if (isa<gpu::LaunchOp, gpu::GPUModuleOp>(op))
      return WalkResult::skip();
    if (auto alloc = dyn_cast<memref::AllocOp>(op))
      return llvm::any_of(alloc->getUsers(), llvm::IsaPred<memref::DeallocOp>)
                 ? WalkResult::advance()
                 : WalkResult::interrupt();
    auto call = dyn_cast<CallOpInterface>(op);
    Operation *callee = call ? call.resolveCallableInTable(&symbols) : nullptr;
    bool seen = !callee || !visited.insert(callee).second;
    return seen || !leaks(callee, symbols, visited) ? WalkResult::advance()
                                                    : WalkResult::interrupt();
  });
  return result.wasInterrupted();
}

static bool leaksInLoops(ModuleOp module) {
  SymbolTableCollection symbols;
  return module
      .walk([&](LoopLikeOpInterface loop) {
        SmallPtrSet<Operation *, 4> visited;
        return leaks(loop, symbols, visited) ? WalkResult::interrupt() : WalkResult::advance();
      })
      .wasInterrupted();
}

/// Excludes buffers that the program frees itself.
static void markManual(ModuleOp module) {
  auto mark = [&](Operation *op) {
    op->setAttr(bufferization::BufferizationDialect::kManualDeallocation,
                UnitAttr::get(op->getContext()));
  };
  module.walk([&](memref::DeallocOp dealloc) {
    mark(dealloc);
    if (auto alloc = dealloc.getMemref().getDefiningOp<memref::AllocOp>())
      mark(alloc);
  });
}

namespace {
/// Frees each buffer that is owned and not retained, once. Upstream's lowering stores its lists in
/// memory from the allocator, which may be GPU memory.
struct LowerDealloc : OpRewritePattern<bufferization::DeallocOp> {
  using OpRewritePattern::OpRewritePattern;
  LogicalResult matchAndRewrite(bufferization::DeallocOp op,
                                PatternRewriter &rewriter) const override {
    if (llvm::any_of(op->getOperandTypes(), llvm::IsaPred<UnrankedMemRefType>))
      return failure();
    Location loc = op.getLoc();
    auto getAddresses = [&](ValueRange memrefs) {
      return llvm::map_to_vector(memrefs, [&](Value memref) -> Value {
        return memref::ExtractAlignedPointerAsIndexOp::create(rewriter, loc, memref);
      });
    };
    SmallVector<Value> owned = getAddresses(op.getMemrefs()),
                       retained = getAddresses(op.getRetained());
    auto isSame = [&](Value a, Value b) -> Value {
      return arith::CmpIOp::create(rewriter, loc, arith::CmpIPredicate::eq, a, b);
    };
    Value no = arith::ConstantIntOp::create(rewriter, loc, 0, 1),
          yes = arith::ConstantIntOp::create(rewriter, loc, 1, 1);
    SmallVector<Value> owners(retained.size(), no), free;
    for (auto [i, address] : llvm::enumerate(owned)) {
      Value condition = op.getConditions()[i], kept = no;
      for (auto [owner, other] : llvm::zip(owners, retained)) {
        Value same = isSame(address, other);
        kept = arith::OrIOp::create(rewriter, loc, kept, same);
        owner = arith::OrIOp::create(rewriter, loc, owner,
                                     arith::AndIOp::create(rewriter, loc, condition, same));
      }
      for (auto [before, other] : llvm::zip(op.getConditions(), ArrayRef(owned).take_front(i)))
        kept = arith::OrIOp::create(
            rewriter, loc, kept,
            arith::AndIOp::create(rewriter, loc, before, isSame(address, other)));
      free.push_back(arith::AndIOp::create(rewriter, loc, condition,
                                           arith::XOrIOp::create(rewriter, loc, kept, yes)));
    }
    for (auto [condition, memref] : llvm::zip(free, op.getMemrefs()))
      scf::IfOp::create(rewriter, loc, condition, [&, memref = memref](OpBuilder &b, Location loc) {
        memref::DeallocOp::create(b, loc, memref);
        scf::YieldOp::create(b, loc);
      });
    rewriter.replaceOp(op, owners);
    return success();
  }
};

struct FreeLoopBuffersPass : flashattn::impl::FreeLoopBuffersBase<FreeLoopBuffersPass> {
  void runOnOperation() override {
    ModuleOp module = getOperation();
    if (!leaksInLoops(module))
      return;
    markManual(module);
    OpPassManager own(ModuleOp::getOperationName());
    bufferization::OwnershipBasedBufferDeallocationPassOptions options;
    options.privateFuncDynamicOwnership = true;
    own.addPass(bufferization::createOwnershipBasedBufferDeallocationPass(options));
    own.addPass(createCanonicalizerPass());
    own.addPass(bufferization::createBufferDeallocationSimplificationPass());
    if (failed(runPipeline(own, module)))
      return signalPassFailure();
    RewritePatternSet patterns(&getContext());
    patterns.add<LowerDealloc>(&getContext());
    walkAndApplyPatterns(module, std::move(patterns));
    OpPassManager finish(ModuleOp::getOperationName());
    finish.addPass(createConvertBufferizationToMemRefPass());
    finish.addPass(createCanonicalizerPass());
    finish.addPass(createCSEPass());
    if (failed(runPipeline(finish, module)))
      signalPassFailure();
  }
};
} // namespace

//===----------------------------------------------------------------------===//
// Loops that LLVM must not unroll
//===----------------------------------------------------------------------===//

namespace {
struct KeepLoopsPass : flashattn::impl::KeepLoopsBase<KeepLoopsPass> {
  void runOnOperation() override {
    getOperation()->walk([&](scf::ForOp loop) {
      if (auto outer = loop->getParentOfType<scf::ForOp>())
        keepRolled(outer);
    });
  }
};
} // namespace

//===----------------------------------------------------------------------===//
// Temporary buffers
//===----------------------------------------------------------------------===//

/// Returns the last op in the block of `alloc` that uses the buffer under any of its `names`, or
/// null if the buffer may outlive the block or is already freed.
static Operation *findLastUser(memref::AllocOp alloc,
                               const BufferViewFlowAnalysis::ValueSetT &names) {
  Operation *last = alloc;
  for (Value name : names)
    for (Operation *user : name.getUsers()) {
      // The analysis does not follow uses of the address.
      if (isa<memref::DeallocOp, memref::ExtractAlignedPointerAsIndexOp, UnrealizedConversionCastOp,
              bufferization::ToTensorOp>(user))
        return nullptr;
      Operation *inBlock = alloc->getBlock()->findAncestorOpInBlock(*user);
      if (!inBlock || inBlock->hasTrait<OpTrait::IsTerminator>())
        return nullptr;
      if (last->isBeforeInBlock(inBlock))
        last = inBlock;
    }
  return last;
}

void mlir::flashattn::freeTemporaries(RewriterBase &rewriter, Operation *root) {
  BufferViewFlowAnalysis views(root);
  SmallVector<std::pair<memref::AllocOp, Operation *>> last;
  root->walk([&](memref::AllocOp alloc) {
    if (Operation *user = findLastUser(alloc, views.resolve(alloc)))
      last.emplace_back(alloc, user);
  });
  for (auto [alloc, user] : last) {
    rewriter.setInsertionPointAfter(user);
    memref::DeallocOp::create(rewriter, alloc.getLoc(), alloc);
  }
}

namespace {
struct FreeTemporariesPass : flashattn::impl::FreeTemporariesBase<FreeTemporariesPass> {
  void runOnOperation() override {
    IRRewriter rewriter(&getContext());
    freeTemporaries(rewriter, getOperation());
  }
};
} // namespace

//===----------------------------------------------------------------------===//
// Errors at ops that cannot be lowered
//===----------------------------------------------------------------------===//

/// Whether the host would access memory of the function, or pass its own memory to a kernel.
static bool touchesMemory(Operation *op) {
  if (isa<memref::LoadOp, memref::StoreOp>(op))
    return !op->getOperand(isa<memref::StoreOp>(op)).getDefiningOp<memref::AllocaOp>();
  return isa<linalg::LinalgOp, memref::CopyOp, memref::GetGlobalOp>(op);
}

namespace {
/// Ops that cannot be lowered. Ops of one name and location, created from one op, count once.
class Obstacles {
public:
  void add(Operation *op) {
    if (found.insert({op->getName(), op->getLoc()}) && !first)
      first = op;
  }

  /// Returns success if there are none. Otherwise emits `message` at the first and `note` at
  /// others.
  LogicalResult refuse(StringRef message, StringRef note) const {
    if (!first)
      return success();
    InFlightDiagnostic error = first->emitOpError() << message;
    auto others = ArrayRef(found.getArrayRef()).drop_front();
    constexpr size_t kMostPlaces = 32;
    for (auto [name, location] : others.take_front(kMostPlaces))
      error.attachNote(location) << note << " '" << name << "'";
    llvm::MapVector<StringRef, int64_t> counts;
    for (auto [name, location] : others.drop_front(std::min(others.size(), kMostPlaces)))
      ++counts[name.getStringRef()];
    if (!counts.empty())
      error.attachNote() << note << " "
                         << llvm::join(llvm::map_range(counts,
                                                       [](auto &entry) {
                                                         return llvm::formatv("{0} more '{1}'",
                                                                              entry.second,
                                                                              entry.first)
                                                             .str();
                                                       }),
                                       ", ");
    return error;
  }

private:
  llvm::SetVector<std::pair<OperationName, Location>> found;
  Operation *first = nullptr;
};
} // namespace

LogicalResult mlir::flashattn::verifyHost(Operation *root) {
  Obstacles obstacles;
  root->walk<WalkOrder::PreOrder>([&](Operation *op) {
    // A kernel runs the region of an attention.
    if (isa<gpu::LaunchOp, gpu::GPUModuleOp, AttentionOpInterface>(op))
      return WalkResult::skip();
    if (touchesMemory(op))
      obstacles.add(op);
    return WalkResult::advance();
  });
  return obstacles.refuse(
      "would run on the host, which cannot read a GPU's memory: expected ops of the flashattn "
      "dialect, kernels, contiguous copies, or an output projection in linalg",
      "would also run on the host:");
}

/// Whether the op can be bufferized. Querying an interface that is promised but not registered, as
/// for cf, aborts in builds with assertions.
static bool hasFormOnBuffers(Operation *op) {
  using Interface = bufferization::BufferizableOpInterface;
  Dialect *dialect = op->getDialect();
  bool isPromise = dialect && dialect->hasPromisedInterface(op->getName().getTypeID(),
                                                            Interface::getInterfaceID());
  return !isPromise && isa<Interface>(op);
}

LogicalResult mlir::flashattn::verifyTensors(Operation *root) {
  Obstacles obstacles;
  root->walk([&](Operation *op) {
    auto isTensor = llvm::IsaPred<TensorType>;
    if (llvm::any_of(llvm::concat<const Type>(op->getOperandTypes(), op->getResultTypes()),
                     isTensor) &&
        !hasFormOnBuffers(op))
      obstacles.add(op);
  });
  return obstacles.refuse(
      "on tensors cannot be bufferized: expected an op of arith, flashattn, "
      "func, linalg, math, scf, tensor or vector that can, such as linalg.generic",
      "cannot be bufferized either:");
}

/// Whether the name is reserved by LLVM or the runtime.
static bool isReserved(StringRef name) {
  // A symbol in an object file cannot contain a zero byte.
  if (name.contains('\0') || name.starts_with("llvm.") || name.starts_with("_mlir_"))
    return true;
  return (name.consume_front("flashattn") || name.consume_front("mgpu")) && !name.empty() &&
         llvm::isUpper(name.front());
}

LogicalResult mlir::flashattn::verifyModule(Operation *root) {
  WalkResult result = root->walk<WalkOrder::PreOrder>([&](Operation *op) -> WalkResult {
    // Does not print the op, which may be long.
    if (isa<ModuleOp>(op) && op != root)
      return emitError(op->getLoc()) << "'builtin.module' op is nested in another module: expected "
                                        "all functions in one module";
    auto function = dyn_cast<func::FuncOp>(op);
    if (!function)
      return WalkResult::advance();
    if (!function.isExternal() && isReserved(function.getName()))
      return emitError(op->getLoc())
             << "'func.func' op expected a name without a zero byte, and other than the reserved "
                "names 'llvm.*', '_mlir_*', 'flashattn[A-Z]*' and 'mgpu[A-Z]*', but got '"
             << function.getName() << "'";
    return WalkResult::skip();
  });
  return failure(result.wasInterrupted());
}

LogicalResult mlir::flashattn::verifyLowered(Operation *root) {
  // Casts only remain next to other ops, so casts are reported only if there is no other op.
  Obstacles obstacles, casts;
  root->walk([&](Operation *op) {
    bool isLowered = isa<ModuleOp, gpu::BinaryOp, gpu::LaunchFuncOp>(op) ||
                     isa_and_nonnull<LLVM::LLVMDialect>(op->getDialect());
    if (!isLowered)
      (isa<UnrealizedConversionCastOp>(op) ? casts : obstacles).add(op);
  });
  constexpr StringLiteral kMessage =
      "is left after the lowering to LLVM IR: expected an op of arith, bufferization, flashattn, "
      "func, linalg, math, memref, scf, tensor or vector that the pipelines lower";
  constexpr StringLiteral kNote = "is left too:";
  return failed(obstacles.refuse(kMessage, kNote)) ? failure() : casts.refuse(kMessage, kNote);
}

namespace {
struct VerifyHostPass : flashattn::impl::VerifyHostBase<VerifyHostPass> {
  void runOnOperation() override {
    if (failed(verifyHost(getOperation())))
      signalPassFailure();
  }
};

struct VerifyTensorsPass : flashattn::impl::VerifyTensorsBase<VerifyTensorsPass> {
  void runOnOperation() override {
    if (failed(verifyTensors(getOperation())))
      return signalPassFailure();
    markAllAnalysesPreserved();
  }
};

struct VerifyModulePass : flashattn::impl::VerifyModuleBase<VerifyModulePass> {
  void runOnOperation() override {
    if (failed(verifyModule(getOperation())))
      return signalPassFailure();
    markAllAnalysesPreserved();
  }
};

struct VerifyLoweredPass : flashattn::impl::VerifyLoweredBase<VerifyLoweredPass> {
  void runOnOperation() override {
    if (failed(verifyLowered(getOperation())))
      return signalPassFailure();
    markAllAnalysesPreserved();
  }
};
} // namespace
