//===- Copies.cpp - flashattn-fold-copies, flashattn-expand-copies --------===//
//
// Copies next to the dialect's ops: copies that are folded, and the lowering of all others.
//
//===----------------------------------------------------------------------===//

#include "flashattn/Dialect/FlashAttn/Transforms/Passes.h"
#include "flashattn/Dialect/FlashAttn/Transforms/Transforms.h"
#include "mlir/Conversion/LLVMCommon/MemRefBuilder.h"
#include "mlir/Conversion/LLVMCommon/TypeConverter.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/Dialect/GPU/IR/GPUDialect.h"
#include "mlir/Dialect/LLVMIR/LLVMDialect.h"
#include "mlir/Dialect/Linalg/IR/Linalg.h"
#include "mlir/Dialect/MemRef/IR/MemRef.h"
#include "mlir/Dialect/MemRef/Utils/MemRefUtils.h"
#include "mlir/Dialect/Utils/IndexingUtils.h"
#include "mlir/IR/Dominance.h"
#include "mlir/Interfaces/ViewLikeInterface.h"
#include "mlir/Transforms/RegionUtils.h"

namespace mlir::flashattn {
#define GEN_PASS_DEF_EXPANDCOPIES
#define GEN_PASS_DEF_FOLDCOPIES
#include "flashattn/Dialect/FlashAttn/Transforms/Passes.h.inc"
} // namespace mlir::flashattn

using namespace mlir;
using namespace mlir::flashattn;

namespace {
/// An op that only copies: dimension i of `target` is dimension `order[i]` of `source`.
struct Copy {
  Operation *op;
  Value source, target;
  SmallVector<int64_t> order;
};

/// A range of consecutive ops in a block.
using Window = llvm::iterator_range<Block::iterator>;
} // namespace

static std::optional<Copy> matchCopy(Operation *op) {
  Copy copy{op, {}, {}, {}};
  if (auto plain = dyn_cast<memref::CopyOp>(op)) {
    copy.source = plain.getSource();
    copy.target = plain.getTarget();
    auto type = dyn_cast<MemRefType>(copy.source.getType());
    if (!type || !isa<MemRefType>(copy.target.getType()))
      return std::nullopt;
    copy.order = llvm::to_vector(llvm::seq<int64_t>(type.getRank()));
    return copy;
  }
  auto linalgOp = dyn_cast<linalg::LinalgOp>(op);
  if (!linalgOp || !linalgOp.hasPureBufferSemantics() || linalgOp.getNumDpsInputs() != 1 ||
      linalgOp.getNumDpsInits() != 1 || linalgOp.getNumParallelLoops() != linalgOp.getNumLoops())
    return std::nullopt;
  OpOperand *input = linalgOp.getDpsInputOperand(0), *init = linalgOp.getDpsInitOperand(0);
  AffineMap from = linalgOp.getMatchingIndexingMap(input),
            to = linalgOp.getMatchingIndexingMap(init);
  if (!isa<MemRefType>(input->get().getType()) || !from.isPermutation() || !to.isPermutation() ||
      linalgOp.getBlock()->getTerminator()->getOperand(0) !=
          linalgOp.getMatchingBlockArgument(input))
    return std::nullopt;
  copy.source = input->get();
  copy.target = init->get();
  for (AffineExpr loop : to.getResults())
    copy.order.push_back(*from.getResultPosition(loop));
  return copy;
}

/// Whether the type implies that the elements are contiguous in row-major order.
static bool isContiguous(MemRefType type) {
  if (type.getLayout().isIdentity())
    return true;
  SmallVector<int64_t> strides;
  int64_t offset, expected = 1;
  if (failed(type.getStridesAndOffset(strides, offset)))
    return false;
  for (auto [size, stride] : llvm::reverse(llvm::zip_equal(type.getShape(), strides))) {
    // The stride of a dimension of size 1 is irrelevant.
    if (size == 1)
      continue;
    if (ShapedType::isDynamic(expected) || stride != expected)
      return false;
    expected = ShapedType::isDynamic(size) ? size : expected * size;
  }
  return true;
}

/// Whether `size` is the whole size of dimension `dim` of `memref`.
static bool isWhole(OpFoldResult size, Value memref, int64_t dim) {
  int64_t known = cast<MemRefType>(memref.getType()).getDimSize(dim);
  auto value = dyn_cast<Value>(size);
  if (!value || !ShapedType::isDynamic(known))
    return !value && getConstantIntValue(size) == known;
  if (auto measured = value.getDefiningOp<memref::DimOp>())
    if (measured.getSource() == memref && measured.getConstantIndex() == dim)
      return true;
  auto alloc = memref.getDefiningOp<memref::AllocOp>();
  return alloc && alloc.getMixedSizes()[dim] == size;
}

/// The same, also by definition: a subview of contiguous memory that is whole in all dimensions
/// after the first dimension of several elements, or another view of contiguous memory.
static bool isContiguous(Value memref) {
  auto type = dyn_cast<MemRefType>(memref.getType());
  if (!type || isContiguous(type))
    return bool(type);
  Operation *view = memref.getDefiningOp();
  if (isa_and_present<memref::CastOp, memref::ExpandShapeOp, memref::CollapseShapeOp>(view))
    return isContiguous(view->getOperand(0));
  auto part = dyn_cast_if_present<memref::SubViewOp>(view);
  if (!part || !part.hasUnitStride() || !isContiguous(part.getSource()))
    return false;
  SmallVector<OpFoldResult> sizes = part.getMixedSizes();
  int64_t dim = 0, rank = sizes.size();
  while (dim < rank && getConstantIntValue(sizes[dim]) == 1)
    ++dim;
  return llvm::all_of(llvm::seq(std::min(dim + 1, rank), rank), [&](int64_t behind) {
    return isWhole(sizes[behind], part.getSource(), behind);
  });
}

//===----------------------------------------------------------------------===//
// Copies that are folded
//===----------------------------------------------------------------------===//

/// Returns the memref behind all views of `memref`; it identifies the memory.
static Value getRoot(Value memref) {
  while (Operation *def = memref.getDefiningOp()) {
    // memref.transpose lacks the interface.
    if (!isa<memref::TransposeOp, ViewLikeOpInterface>(def))
      break;
    memref = def->getOperand(0);
  }
  return memref;
}

/// Whether `root` is a buffer that the function allocates.
static bool isAllocation(Value root) { return root.getDefiningOp<memref::AllocOp>() != nullptr; }
static bool isArgument(Value root) {
  auto argument = dyn_cast<BlockArgument>(root);
  return argument && argument.getOwner()->isEntryBlock() &&
         isa<func::FuncOp>(argument.getOwner()->getParentOp());
}

/// Whether two roots may be the same memory. An output shares memory with no other argument.
static bool mayAlias(Value a, Value b) {
  bool areKnown = (isAllocation(a) || isArgument(a)) && (isAllocation(b) || isArgument(b));
  return a == b || !areKnown;
}

/// Whether `op` may write the memory of `root` or, unless `onlyWrites`, read it.
static bool touches(Operation *op, Value root, bool onlyWrites) {
  return op
      ->walk([&](Operation *inside) {
        if (isMemoryEffectFree(inside))
          return WalkResult::advance();
        auto effects = dyn_cast<MemoryEffectOpInterface>(inside);
        for (Value operand : inside->getOperands()) {
          if (!isa<BaseMemRefType>(operand.getType()) || !mayAlias(getRoot(operand), root))
            continue;
          bool onlyReads = effects &&
                           effects.getEffectOnValue<MemoryEffects::Read>(operand).has_value() &&
                           !effects.getEffectOnValue<MemoryEffects::Write>(operand).has_value();
          if (!onlyWrites || !onlyReads)
            return WalkResult::interrupt();
        }
        return WalkResult::advance();
      })
      .wasInterrupted();
}

static bool touches(Window ops, Value root, bool onlyWrites) {
  return llvm::any_of(ops, [&](Operation &op) { return touches(&op, root, onlyWrites); });
}

/// Returns `memref` with its dimensions in another order.
static Value transpose(OpBuilder &b, Location loc, Value memref, ArrayRef<int64_t> order) {
  if (isIdentityPermutation(order))
    return memref;
  auto map = AffineMap::getPermutationMap(order, b.getContext());
  return memref::TransposeOp::create(b, loc, memref, AffineMapAttr::get(map));
}

/// Whether the GPU driver can perform the copy.
static bool isDeviceCopy(const Copy &copy) {
  return isIdentityPermutation(copy.order) && isContiguous(copy.source) &&
         isContiguous(copy.target);
}

/// Whether kernels may access `memref` instead of `buffer`, the side of the copy with contiguous
/// rows. If the device can perform the copy, the kernels must not become slower.
static bool canReplace(Value memref, Value buffer, const Copy &copy) {
  auto type = cast<MemRefType>(memref.getType());
  int64_t last = type.getRank() - 1, offset;
  SmallVector<int64_t> strides;
  if (last < 0 || copy.order.back() != last || failed(type.getStridesAndOffset(strides, offset)) ||
      strides.back() != 1)
    return false;
  return !isDeviceCopy(copy) || hasAlignedRows(memref) || !hasAlignedRows(buffer);
}

/// Returns the uses of `buffer` by kernels, except `copy`, in block order; empty if there are other
/// uses.
static SmallVector<OpOperand *> findKernelUses(Value buffer, Operation *copy) {
  SmallVector<OpOperand *> uses;
  for (OpOperand &use : buffer.getUses()) {
    Operation *user = use.getOwner();
    if (user == copy)
      continue;
    if (!isa<KernelOpInterface>(user) || user->getBlock() != copy->getBlock())
      return {};
    uses.push_back(&use);
  }
  llvm::sort(uses, [](OpOperand *a, OpOperand *b) {
    return a->getOwner() == b->getOwner() ? a->getOperandNumber() < b->getOperandNumber()
                                          : a->getOwner()->isBeforeInBlock(b->getOwner());
  });
  return uses;
}

static Window makeWindow(Operation *first, Operation *behind) {
  return {Block::iterator(first), Block::iterator(behind)};
}

/// If only kernels read the target of the copy, redirects these reads to the source.
static bool foldOperand(RewriterBase &rewriter, const Copy &copy) {
  if (!isAllocation(copy.target) || !canReplace(copy.source, copy.target, copy))
    return false;
  SmallVector<OpOperand *> uses = findKernelUses(copy.target, copy.op);
  auto isLater = [&](OpOperand *use) {
    return copy.op->isBeforeInBlock(use->getOwner()) &&
           !cast<DestinationStyleOpInterface>(use->getOwner()).isDpsInit(use);
  };
  if (uses.empty() || !llvm::all_of(uses, isLater) ||
      touches(makeWindow(copy.op->getNextNode(), uses.back()->getOwner()->getNextNode()),
              getRoot(copy.source), /*onlyWrites=*/true))
    return false;
  rewriter.setInsertionPoint(copy.op);
  Value view = transpose(rewriter, copy.op->getLoc(), copy.source, copy.order);
  for (OpOperand *use : uses)
    rewriter.modifyOpInPlace(use->getOwner(), [&] { use->set(view); });
  rewriter.eraseOp(copy.op);
  return true;
}

/// Moves the views and the allocation that define `memref` before `op`, an op of the same block.
/// Returns false if this is not possible.
static bool moveBefore(RewriterBase &rewriter, Value memref, Operation *op) {
  Operation *root = getRoot(memref).getDefiningOp();
  if (auto alloc = dyn_cast_if_present<memref::AllocOp>(root);
      alloc && alloc->getBlock() == op->getBlock() && op->isBeforeInBlock(alloc)) {
    if (failed(moveOperationDependencies(rewriter, alloc, op)))
      return false;
    rewriter.moveOpBefore(alloc, op);
  }
  return succeeded(moveValueDefinitions(rewriter, memref, op));
}

/// If only kernels write the source of the copy, redirects these writes to the target.
static bool foldResult(RewriterBase &rewriter, const Copy &copy) {
  if (!isAllocation(copy.source) || !canReplace(copy.target, copy.source, copy))
    return false;
  SmallVector<OpOperand *> uses = findKernelUses(copy.source, copy.op);
  if (uses.empty())
    return false;
  Operation *first = uses.front()->getOwner(), *last = uses.back()->getOwner();
  Value root = getRoot(copy.target);
  // No other op accesses the target before the copy, or writes it while kernels read the buffer.
  if (!cast<DestinationStyleOpInterface>(first).isDpsInit(uses.front()) ||
      !first->isBeforeInBlock(copy.op) ||
      touches(makeWindow(first, copy.op), root, /*onlyWrites=*/false))
    return false;
  if (copy.op->isBeforeInBlock(last) &&
      (touches(makeWindow(copy.op->getNextNode(), last->getNextNode()), root,
               /*onlyWrites=*/true) ||
       llvm::any_of(uses, [&](OpOperand *use) {
         return copy.op->isBeforeInBlock(use->getOwner()) &&
                cast<DestinationStyleOpInterface>(use->getOwner()).isDpsInit(use);
       })))
    return false;
  if (!moveBefore(rewriter, copy.target, first))
    return false;
  rewriter.setInsertionPoint(first);
  Value view =
      transpose(rewriter, copy.op->getLoc(), copy.target, invertPermutationVector(copy.order));
  for (OpOperand *use : uses)
    rewriter.modifyOpInPlace(use->getOwner(), [&] { use->set(view); });
  rewriter.eraseOp(copy.op);
  return true;
}

void mlir::flashattn::foldCopies(RewriterBase &rewriter, Operation *root) {
  SmallVector<Copy> copies;
  root->walk([&](Operation *op) {
    if (std::optional<Copy> copy = matchCopy(op))
      copies.push_back(*copy);
  });
  for (const Copy &copy : copies) {
    if (copy.source == copy.target && isIdentityPermutation(copy.order))
      rewriter.eraseOp(copy.op);
    else if (!foldOperand(rewriter, copy))
      foldResult(rewriter, copy);
  }
}

namespace {
struct FoldCopiesPass : flashattn::impl::FoldCopiesBase<FoldCopiesPass> {
  void runOnOperation() override {
    IRRewriter rewriter(&getContext());
    foldCopies(rewriter, getOperation());
  }
};
} // namespace

//===----------------------------------------------------------------------===//
// Copies that are lowered
//===----------------------------------------------------------------------===//

/// On the host, a copy that upstream would lower to a call of MLIR's runner library becomes a loop.
static LogicalResult expandHostCopy(RewriterBase &rewriter, memref::CopyOp copy) {
  auto isPlain = [](MemRefType type) {
    return type.getLayout().isIdentity() ||
           (memref::isStaticShapeAndContiguousRowMajor(type) && type.getNumElements() != 0);
  };
  auto source = dyn_cast<MemRefType>(copy.getSource().getType()),
       target = dyn_cast<MemRefType>(copy.getTarget().getType());
  if (!source || !target)
    return copy.emitOpError() << "expected ranked memrefs but got " << copy.getSource().getType()
                              << " and " << copy.getTarget().getType();
  if (isPlain(source) && isPlain(target))
    return success();
  rewriter.setInsertionPoint(copy);
  rewriter.replaceOpWithNewOp<linalg::CopyOp>(copy, copy.getSource(), copy.getTarget());
  return success();
}

/// Returns the elements of the contiguous `memref` as a one-dimensional memref that begins at the
/// first element, because the lowering of `gpu.memcpy` ignores offsets.
static Value flatten(OpBuilder &b, Location loc, Value memref) {
  auto type = cast<MemRefType>(memref.getType());
  auto metadata = memref::ExtractStridedMetadataOp::create(b, loc, memref);
  auto multiply = [&](Value x, Value y) -> Value { return arith::MulIOp::create(b, loc, x, y); };
  Value count = arith::ConstantIndexOp::create(b, loc, 1);
  for (Value size : metadata.getSizes())
    count = multiply(count, size);
  Value bytes =
      arith::ConstantIndexOp::create(b, loc, llvm::divideCeil(type.getElementTypeBitWidth(), 8));
  Value address = memref::ExtractAlignedPointerAsIndexOp::create(b, loc, memref);
  address = arith::AddIOp::create(b, loc, address, multiply(metadata.getOffset(), bytes));

  auto flat = MemRefType::get({ShapedType::kDynamic}, type.getElementType());
  LLVMTypeConverter converter(b.getContext());
  Type i64 = b.getI64Type(), pointer = LLVM::LLVMPointerType::get(b.getContext());
  auto toI64 = [&](Value x) -> Value { return arith::IndexCastOp::create(b, loc, i64, x); };
  Value first = LLVM::IntToPtrOp::create(b, loc, pointer, toI64(address));
  auto descriptor = MemRefDescriptor::poison(b, loc, converter.convertType(flat));
  descriptor.setAllocatedPtr(b, loc, first);
  descriptor.setAlignedPtr(b, loc, first);
  descriptor.setConstantOffset(b, loc, 0);
  descriptor.setSize(b, loc, 0, toI64(count));
  descriptor.setConstantStride(b, loc, 0, 1);
  return UnrealizedConversionCastOp::create(b, loc, flat, Value(descriptor)).getResult(0);
}

/// On a GPU, a copy between contiguous memrefs becomes a copy of the device.
static void expandDeviceCopy(RewriterBase &rewriter, memref::CopyOp copy) {
  std::optional<Copy> matched = matchCopy(copy);
  if (copy->getParentOfType<gpu::LaunchOp>() || copy->getParentOfType<gpu::GPUModuleOp>() ||
      !matched || !isDeviceCopy(*matched))
    return;
  rewriter.setInsertionPoint(copy);
  Location loc = copy.getLoc();
  Value source = copy.getSource(), target = copy.getTarget();
  auto isIdentity = [](Value memref) {
    return cast<MemRefType>(memref.getType()).getLayout().isIdentity();
  };
  if (!isIdentity(source) || !isIdentity(target)) {
    source = flatten(rewriter, loc, source);
    target = flatten(rewriter, loc, target);
  }
  Type token = gpu::AsyncTokenType::get(copy.getContext());
  auto before = gpu::WaitOp::create(rewriter, loc, token, ValueRange());
  auto memcpy = gpu::MemcpyOp::create(rewriter, loc, token, before.getAsyncToken(), target, source);
  gpu::WaitOp::create(rewriter, loc, Type(), memcpy.getAsyncToken());
  rewriter.eraseOp(copy);
}

namespace {
struct ExpandCopiesPass : flashattn::impl::ExpandCopiesBase<ExpandCopiesPass> {
  using ExpandCopiesBase::ExpandCopiesBase;
  void runOnOperation() override {
    SmallVector<memref::CopyOp> copies;
    getOperation()->walk([&](memref::CopyOp copy) { copies.push_back(copy); });
    IRRewriter rewriter(&getContext());
    for (memref::CopyOp copy : copies)
      if (onGPU)
        expandDeviceCopy(rewriter, copy);
      else if (failed(expandHostCopy(rewriter, copy)))
        return signalPassFailure();
  }
};
} // namespace
