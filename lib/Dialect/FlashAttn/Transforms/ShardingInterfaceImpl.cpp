//===- ShardingInterfaceImpl.cpp - one op on a grid of processes ----------===//
//
// Upstream's ShardingInterface as an external model. Shards split batches, heads, queries, keys and
// the columns of a projection. An op on shards is the same op. If a process has only part of a sum,
// a collective follows: `flashattn.combine` merges the results of `flashattn.attention` on splits
// of the keys, and all other partial results are added.
//
//===----------------------------------------------------------------------===//

#include "mlir/Dialect/Shard/Interfaces/ShardingInterfaceImpl.h"
#include "flashattn/Dialect/FlashAttn/IR/AttentionParts.h"
#include "flashattn/Dialect/FlashAttn/Transforms/Transforms.h"
#include "mlir/Dialect/Linalg/IR/Linalg.h"
#include "mlir/Dialect/Shard/IR/ShardDialect.h"
#include "mlir/Dialect/Shard/Transforms/Transforms.h"
#include "mlir/IR/IRMapping.h"

using namespace mlir;
using namespace mlir::flashattn;
using namespace mlir::shard;

//===----------------------------------------------------------------------===//
// Loops
//===----------------------------------------------------------------------===//

namespace {
/// Loops of the interface, by the letters of OperandRule::dims. Loops from `Rows` on must not be
/// split. Each broadcast dimension is a loop of its own, `Shared` plus the number of the dimension.
enum Loop : unsigned { Batches, Heads, Queries, Keys, Columns, Rows, Values, Parts, Shared };
constexpr unsigned kMostDims = 5, kLoops = Shared + kMostDims;

using Axes = SmallVector<GridAxis>;
} // namespace

/// A4: query heads are split like their key/value heads. A single key/value head for all query
/// heads is replicated to every process.
static Loop getLoop(KernelOpInterface op, const OperandRole &role, unsigned dim) {
  auto attention = dyn_cast<AttentionOpInterface>(*op);
  auto countHeads = [&](Value value) {
    return cast<ShapedType>(value.getType()).getDimSize(attention.getHeadDim());
  };
  switch (role.dims[dim]) {
  case 'B':
    return Batches;
  case 'G':
    if (countHeads(role.value) == 1 && countHeads(attention.getQ()) != 1)
      break;
    return Heads;
  case 'H':
    return Heads;
  case 'N':
    return Queries;
  case 'K':
    return Keys;
  case 'E':
    return Columns;
  case 'D':
    return Rows;
  case 'V':
    return Values;
  case 'S':
    return Parts;
  }
  return Loop(Shared + dim);
}

/// Returns the roles of the operands that are present, in their order.
static SmallVector<OperandRole> getRoles(KernelOpInterface op) {
  return llvm::filter_to_vector(op.getOperandRoles(),
                                [](const OperandRole &role) { return bool(role.value); });
}

static SmallVector<OperandRole> getOutputs(KernelOpInterface op) {
  return llvm::filter_to_vector(
      getRoles(op), [](const OperandRole &role) { return role.rule->is(OperandRule::Output); });
}

static bool hasLoop(KernelOpInterface op, const OperandRole &role, Loop loop) {
  return llvm::any_of(llvm::seq<unsigned>(0, role.dims.size()),
                      [&](unsigned dim) { return getLoop(op, role, dim) == loop; });
}

/// Whether an output is a sum over a loop. B3: the gradient of the sinks is not a sum over keys.
static bool isSumOver(KernelOpInterface op, const OperandRole &output, Loop loop) {
  return !hasLoop(op, output, loop) && !(loop == Keys && output.getName() == "d_sink_logits") &&
         llvm::any_of(getRoles(op),
                      [&](const OperandRole &role) { return hasLoop(op, role, loop); });
}

static bool isOnTensors(Operation *op) {
  return llvm::all_of(op->getOperandTypes(), [](Type type) { return !isa<MemRefType>(type); });
}

//===----------------------------------------------------------------------===//
// Valid splits
//===----------------------------------------------------------------------===//

namespace {
/// The grid axes that split each loop.
struct Cut {
  GridOp grid;
  SmallVector<Axes> axes = SmallVector<Axes>(kLoops);

  bool has(Loop loop) const { return !axes[loop].empty(); }
  int64_t count(Loop loop) { return collectiveProcessGroupSize(axes[loop], grid); }
};
} // namespace

static std::string print(ArrayRef<GridAxis> axes) {
  return "[" +
         llvm::join(llvm::map_range(axes, [](GridAxis axis) { return std::to_string(axis); }),
                    ", ") +
         "]";
}

/// Whether a constraint does not change if positions and keys are shifted together.
static bool goesByDistance(AffineExpr expr, IntegerSet set) {
  MLIRContext *context = expr.getContext();
  AffineExpr p = getAffineDimExpr(0, context), k = getAffineDimExpr(1, context),
             shift = getAffineSymbolExpr(set.getNumSymbols(), context);
  AffineExpr shifted = expr.replaceDims({p + shift, k + shift});
  return simplifyAffineExpr(shifted - expr, 2, set.getNumSymbols() + 1) == 0;
}

/// A3: verifies that the meaning of positions is the same on each shard.
static LogicalResult verifyPositions(AttentionOpInterface op, const Cut &cut) {
  for (auto [loop, name] :
       {std::pair(Batches, "batches"), std::pair(Queries, "queries"), std::pair(Keys, "keys")})
    if (cut.has(loop) && (op.hasPackedSequences() || (op.getQLen() && loop == Queries)))
      return op.emitOpError() << "expected " << name << " whole on each process with "
                              << (op.hasPackedSequences() ? "packed sequences" : "q_len")
                              << " but got sharded " << name;
  if (!cut.has(Queries) && !cut.has(Keys))
    return success();
  StringRef what = cut.has(Queries) ? "queries" : "keys";
  if (needsOwnPositions(op))
    return op.emitOpError() << "expected one offset or align top_left to shard the " << what
                            << " but got an offset or length for each batch";
  auto refuse = [&](StringRef expected, StringRef loop) {
    return op.emitOpError() << "expected a mask " << expected << " to shard the " << loop
                            << " but got '" << op.getMaskAttr() << "'";
  };
  if (cut.has(Queries) && readsSymbol(op, MaskSymbol::NQ))
    return refuse("without the symbol nq", "queries");
  if (!cut.has(Keys))
    return success();
  if (readsSymbol(op, MaskSymbol::NK))
    return refuse("without the symbol nk", "keys");
  for (IntegerSet set : op.getVisibleSets())
    if (!llvm::all_of(set.getConstraints(), [&](auto e) { return goesByDistance(e, set); }))
      return refuse("that depends only on p - k", "keys");
  return success();
}

/// Verifies that the grid can split the loops as in `cut`. Emits errors at the op.
static LogicalResult verifyCut(KernelOpInterface op, Cut &cut) {
  llvm::SmallDenseMap<GridAxis, const OperandRole *> users;
  SmallVector<OperandRole> roles = getRoles(op);
  SmallVector<bool> seen(kLoops);
  for (const OperandRole &role : roles) {
    for (auto [dim, letter] : llvm::enumerate(role.dims)) {
      Loop loop = getLoop(op, role, dim);
      if (!cut.has(loop))
        continue;
      if (loop >= Rows)
        return op->emitOpError() << "expected "
                                 << (letter == '1' ? "broadcast dimension " + std::to_string(dim)
                                                   : getSizeName(letter).str())
                                 << " of '" << role.getName()
                                 << "' whole on each process but got a split along grid axes "
                                 << print(cut.axes[loop]);
      for (GridAxis axis : cut.axes[loop]) {
        if (axis < 0 || axis >= cut.grid.getRank())
          return op->emitOpError()
                 << "expected one of the " << cut.grid.getRank() << " grid axes of @"
                 << cut.grid.getSymName() << " but got " << axis;
        if (int64_t count = cut.grid.getShape()[axis]; count < 1)
          return op->emitOpError()
                 << "expected a static number of processes, at least 1, along grid axis " << axis
                 << " but got " << (ShapedType::isDynamic(count) ? "?" : std::to_string(count));
        if (!seen[loop] && !users.try_emplace(axis, &role).second)
          return op->emitOpError() << "expected different grid axes for batches, heads, queries "
                                      "and keys but got axis "
                                   << axis << " for dimensions of '" << users[axis]->getName()
                                   << "' and '" << role.getName() << "'";
      }
      seen[loop] = true;
      int64_t size = cast<ShapedType>(role.value.getType()).getDimSize(dim);
      if (!ShapedType::isDynamic(size) && size % cut.count(loop) != 0)
        return op->emitOpError() << "expected " << getSizeName(letter) << " of '" << role.getName()
                                 << "' to be a multiple of " << cut.count(loop)
                                 << ", the number of shards, but got " << size;
    }
  }
  if (auto attention = dyn_cast<AttentionOpInterface>(*op))
    return verifyPositions(attention, cut);
  return success();
}

/// Returns the split of each loop that the shardings request. Emits an error at the op if they
/// contradict each other, or if shards differ in size.
static FailureOr<Cut> findCut(KernelOpInterface op, ArrayRef<Sharding> operands,
                              ArrayRef<Sharding> results, SymbolTableCollection &symbols) {
  Cut cut;
  SmallVector<const OperandRole *> says(kLoops);
  SmallVector<OperandRole> roles = getRoles(op), outputs = getOutputs(op);
  auto take = [&](const OperandRole &role, const Sharding &sharding) -> LogicalResult {
    if (!sharding)
      return success();
    if (!sharding.getStaticHaloSizes().empty() || !sharding.getStaticShardedDimsOffsets().empty())
      return op->emitOpError() << "expected shards of one size of '" << role.getName()
                               << "' but got halo_sizes or sharded_dims_offsets";
    GridOp grid = getGridOrNull(op, sharding.getGridAttr(), symbols);
    if (!grid || (cut.grid && grid != cut.grid))
      return op->emitOpError() << "expected one grid for all operands but got "
                               << sharding.getGridAttr() << " for '" << role.getName() << "'";
    cut.grid = grid;
    if (sharding.getSplitAxes().size() > role.dims.size())
      return op->emitOpError() << "expected at most " << role.dims.size()
                               << " lists of split axes, one for each dimension of '"
                               << role.getName() << "', but got " << sharding.getSplitAxes().size();
    for (unsigned dim = 0; dim < role.dims.size(); ++dim) {
      Loop loop = getLoop(op, role, dim);
      ArrayRef<GridAxesAttr> split = sharding.getSplitAxes();
      ArrayRef<GridAxis> axes = dim < split.size() ? split[dim].asArrayRef() : ArrayRef<GridAxis>();
      if (says[loop] && ArrayRef(cut.axes[loop]) != axes)
        return op->emitOpError() << "expected dimension " << dim << " of '" << role.getName()
                                 << "' to be split along grid axes " << print(cut.axes[loop])
                                 << " as that of '" << says[loop]->getName() << "' but got "
                                 << print(axes);
      says[loop] = &role;
      cut.axes[loop].assign(axes.begin(), axes.end());
    }
    return success();
  };
  for (auto [role, sharding] : llvm::zip_equal(roles, operands))
    if (failed(take(role, sharding)))
      return failure();
  for (auto [role, sharding] : llvm::zip_equal(outputs, results))
    if (failed(take(role, sharding)))
      return failure();
  if (failed(verifyCut(op, cut)))
    return failure();
  return cut;
}

/// A10: verifies that each process has all elements that a score modification may read.
static LogicalResult verifyLoads(KernelOpInterface op) {
  auto result = op->walk([](tensor::ExtractOp load) -> WalkResult {
    auto known = getSharding(load.getTensorMutable());
    if (failed(known) ||
        llvm::all_of(known->second.getSplitAxes(), [](GridAxesAttr axes) { return axes.empty(); }))
      return WalkResult::advance();
    return load.emitOpError()
           << "expected a tensor that is whole on each process in score_mod but got shards";
  });
  return failure(result.wasInterrupted());
}

/// A10: annotates the tensors that a score modification reads, which are no operands, as whole.
static void annotateLoads(Operation *op, FlatSymbolRefAttr grid, OpBuilder b) {
  b.setInsertionPoint(op);
  op->walk([&](tensor::ExtractOp load) {
    if (load.getTensor().getDefiningOp<ShardOp>())
      return;
    SmallVector<GridAxesAttr> whole(load.getIndices().size(),
                                    GridAxesAttr::get(b.getContext(), {}));
    auto to = ShardingOp::create(b, op->getLoc(), Sharding::get(grid, whole));
    load.getTensorMutable().assign(ShardOp::create(b, op->getLoc(), load.getTensor(), to,
                                                   /*annotate_for_users=*/true));
  });
}

//===----------------------------------------------------------------------===//
// On one process
//===----------------------------------------------------------------------===//

namespace {
/// Builds the ops that one process executes for an op.
class Partitioner {
public:
  /// `shards` maps the operands of the op to their shards.
  Partitioner(KernelOpInterface op, Cut &cut, IRMapping &shards, OpBuilder &builder)
      : op(op), cut(cut), shards(shards), b(op->getLoc(), builder) {}

  SmallVector<Value> run();

private:
  Value getShard(Value whole) { return shards.lookup(whole); }
  /// Returns this process's first index in `loop`, which splits dimension `dim` of `whole`.
  OpFoldResult getFirst(Loop loop, Value whole, unsigned dim);
  Value makeEmpty(ArrayRef<OpFoldResult> sizes, Type element) {
    return tensor::EmptyOp::create(b, sizes, element);
  }
  /// Converts the elements of `value` to `element`, and permutes the dimensions. `order` maps the
  /// dimensions of the result to those of `value`.
  Value convert(Value value, Type element, AffineMap order);
  void shiftPositions(AttentionOpInterface local);
  SmallVector<Value> mergeKeys(AttentionOp local);
  Value sum(Value part, ArrayRef<GridAxis> axes);
  Value gather(Value part);

  KernelOpInterface op;
  Cut &cut;
  IRMapping &shards;
  ImplicitLocOpBuilder b;
};
} // namespace

OpFoldResult Partitioner::getFirst(Loop loop, Value whole, unsigned dim) {
  if (!cut.has(loop))
    return b.getIndexAttr(0);
  Value process = createProcessLinearIndex(cut.grid.getSymName(), cut.axes[loop], b);
  AffineExpr s0 = b.getAffineSymbolExpr(0), s1 = b.getAffineSymbolExpr(1);
  return affine::makeComposedFoldedAffineApply(
      b, b.getLoc(), s0 * s1,
      {OpFoldResult(process), tensor::getMixedSize(b, b.getLoc(), getShard(whole), dim)});
}

Value Partitioner::convert(Value value, Type element, AffineMap order) {
  auto type = cast<RankedTensorType>(value.getType());
  if (type.getElementType() == element && order.isIdentity())
    return value;
  SmallVector<OpFoldResult> sizes(type.getRank());
  for (auto [i, size] : llvm::enumerate(tensor::getMixedSizes(b, b.getLoc(), value)))
    sizes[order.getDimPosition(i)] = size;
  Value empty = makeEmpty(sizes, element);
  AffineMap identity = b.getMultiDimIdentityMap(type.getRank());
  auto body = [&](OpBuilder &nested, Location loc, ValueRange args) {
    Value result = convertScalarToDtype(nested, loc, args[0], element, /*isUnsignedCast=*/false);
    linalg::YieldOp::create(nested, loc, result);
  };
  return linalg::GenericOp::create(
             b, empty.getType(), value, empty, ArrayRef<AffineMap>{order, identity},
             SmallVector<utils::IteratorType>(type.getRank(), utils::IteratorType::parallel), body)
      .getResult(0);
}

/// B8: sums are f32.
Value Partitioner::sum(Value part, ArrayRef<GridAxis> axes) {
  auto type = cast<RankedTensorType>(part.getType());
  Value whole = AllReduceOp::create(b, type.clone(b.getF32Type()), cut.grid.getSymName(), axes,
                                    part, ReductionKind::Sum);
  return convert(whole, type.getElementType(), b.getMultiDimIdentityMap(type.getRank()));
}

/// Gathers `part` of all processes that share the keys, along a new first dimension.
Value Partitioner::gather(Value part) {
  auto type = cast<RankedTensorType>(part.getType());
  SmallVector<int64_t> shape(type.getShape());
  shape.insert(shape.begin(), 1);
  SmallVector<ReassociationIndices> dims = {{0, 1}};
  for (int64_t dim = 1; dim < type.getRank(); ++dim)
    dims.push_back({dim + 1});
  Value one = tensor::ExpandShapeOp::create(b, type.clone(shape), part, dims);
  shape.front() = cut.count(Keys);
  return AllGatherOp::create(b, type.clone(shape), cut.grid.getSymName(), cut.axes[Keys], one,
                             APInt(64, 0));
}

/// A3: positions of queries and indices of keys both count from this process's first key. A mask
/// depends only on their distance; a score modification uses the indices of the whole op.
void Partitioner::shiftPositions(AttentionOpInterface local) {
  auto whole = cast<AttentionOpInterface>(*op);
  unsigned headDim = whole.getHeadDim(), seqDim = whole.getSeqDim();
  OpFoldResult query = getFirst(Queries, whole.getQ(), seqDim),
               key = getFirst(Keys, whole.getK(), seqDim);
  bool asksForPositions = whole.getMask() || whole.hasScoreMod();
  if (asksForPositions && (cut.has(Queries) || cut.has(Keys))) {
    auto getLength = [&](Value operand, Loop loop) {
      OpFoldResult size = tensor::getMixedSize(b, b.getLoc(), getShard(operand), seqDim);
      AffineExpr s0 = b.getAffineSymbolExpr(0);
      return affine::makeComposedFoldedAffineApply(b, b.getLoc(), s0 * cut.count(loop), {size});
    };
    OpFoldResult own = b.getIndexAttr(0);
    AffineExpr s0 = b.getAffineSymbolExpr(0), s1 = b.getAffineSymbolExpr(1),
               s2 = b.getAffineSymbolExpr(2);
    if (Value offset = whole.getOffset())
      own = getShard(offset);
    else if (whole.getAlign() == Align::BottomRight)
      own = affine::makeComposedFoldedAffineApply(
          b, b.getLoc(), s0 - s1,
          {getLength(whole.getK(), Keys), getLength(whole.getQ(), Queries)});
    OpFoldResult offset =
        affine::makeComposedFoldedAffineApply(b, b.getLoc(), s0 + s1 - s2, {own, query, key});
    Value value = getValueOrCreateConstantIndexOp(b, b.getLoc(), offset);
    TypeSwitch<Operation *>(local).Case<AttentionOp, AttentionBackwardOp>(
        [&](auto typed) { typed.getOffsetMutable().assign(value); });
  }
  if (whole.hasScoreMod())
    shiftScoreMod(
        b, local,
        {getFirst(Batches, whole.getQ(), 0), getFirst(Heads, whole.getQ(), headDim), key, key});
  if (whole.getKvLen() && cut.has(Keys)) {
    // A7: lengths below 0 count as 0, and lengths above the shard's number of keys as that number.
    Value lengths = getShard(whole.getKvLen());
    Value first = getValueOrCreateConstantIndexOp(b, b.getLoc(), key);
    AffineMap identity = b.getMultiDimIdentityMap(1);
    auto body = [&](OpBuilder &nested, Location loc, ValueRange args) {
      Value zero = arith::ConstantIntOp::create(nested, loc, 0, 32);
      Value from = arith::IndexCastOp::create(nested, loc, nested.getI32Type(), first);
      Value length = arith::MaxSIOp::create(nested, loc, args[0], zero);
      linalg::YieldOp::create(nested, loc, Value(arith::SubIOp::create(nested, loc, length, from)));
    };
    Value empty = makeEmpty(tensor::getMixedSizes(b, b.getLoc(), lengths), b.getI32Type());
    Value left = linalg::GenericOp::create(b, empty.getType(), lengths, empty,
                                           ArrayRef<AffineMap>{identity, identity},
                                           utils::IteratorType::parallel, body)
                     .getResult(0);
    TypeSwitch<Operation *>(local).Case<AttentionOp, AttentionBackwardOp>(
        [&](auto typed) { typed.getKvLenMutable().assign(left); });
  }
}

/// Merges the partial results of all processes. They do not include the sinks.
SmallVector<Value> Partitioner::mergeKeys(AttentionOp local) {
  auto whole = cast<AttentionOp>(*op);
  bool isSwapped = whole.getLayout() == Layout::BSHD;
  Value o = local.getResult(0), lse = local.getResult(1);
  AffineMap order = b.getMultiDimIdentityMap(5);
  if (isSwapped)
    order = AffineMap::getPermutationMap(ArrayRef<unsigned>{0, 1, 3, 2, 4}, b.getContext());
  Value parts = convert(gather(o), b.getF32Type(), order), sums = gather(lse);
  Value sinks = whole.getSinkLogits() ? getShard(whole.getSinkLogits()) : Value();
  const Value oInit = getShard(whole.getOInit()), none,
              lseInit = whole.getLseInit() ? getShard(whole.getLseInit()) : none;
  SmallVector<Type> types = {oInit.getType()};
  if (lseInit)
    types.push_back(lseInit.getType());
  return CombineOp::create(b, types, parts, sums, none, sinks, none, oInit, lseInit,
                           whole.getLayout(), /*minSeqlenQ=*/IntegerAttr())
      .getResults();
}

SmallVector<Value> Partitioner::run() {
  // The first clone is modified; the second has the result types of the modified operands.
  Operation *changed = b.clone(*op, shards);
  b.setInsertionPoint(changed);
  if (auto attention = dyn_cast<AttentionOpInterface>(changed))
    shiftPositions(attention);
  auto forward = dyn_cast<AttentionOp>(changed);
  bool isMerged = forward && cut.has(Keys);
  if (isMerged) {
    SmallVector<OpFoldResult> sizes = tensor::getMixedSizes(b, b.getLoc(), forward.getOInit());
    SmallVector<OpFoldResult> rows = {sizes[0], sizes[forward.getHeadDim()],
                                      sizes[forward.getSeqDim()]};
    forward.getSinkLogitsMutable().clear();
    forward.getOInitMutable().assign(makeEmpty(sizes, b.getF32Type()));
    forward.getLseInitMutable().assign(makeEmpty(rows, b.getF32Type()));
  }
  SmallVector<Type> types =
      llvm::map_to_vector(cast<DestinationStyleOpInterface>(changed).getDpsInits(),
                          [](Value init) { return init.getType(); });
  Operation *local = mlir::clone(b, changed, types, changed->getOperands());
  changed->erase();
  b.setInsertionPointAfter(local);
  if (isMerged)
    return mergeKeys(cast<AttentionOp>(local));
  SmallVector<Value> results;
  for (auto [output, result] : llvm::zip_equal(getOutputs(op), local->getResults())) {
    Axes axes;
    for (Loop loop : {Batches, Heads, Queries, Keys})
      if (isSumOver(op, output, loop))
        llvm::append_range(axes, cut.axes[loop]);
    results.push_back(axes.empty() ? Value(result) : sum(result, axes));
  }
  return results;
}

//===----------------------------------------------------------------------===//
// The external model
//===----------------------------------------------------------------------===//

/// Whether every given sharding is mandatory. Otherwise upstream's propagation may omit one and try
/// again.
static bool isLastTry(Operation *op, ArrayRef<Sharding> operands, ArrayRef<Sharding> results) {
  auto mayBeLeftOut = [](auto &&value, const Sharding &given, bool isForced) {
    if (!given)
      return false;
    FailureOr<std::pair<bool, Sharding>> annotated = getSharding(value);
    return failed(annotated) || annotated->first != isForced;
  };
  for (auto [operand, given] : llvm::zip_equal(op->getOpOperands(), operands))
    if (mayBeLeftOut(operand, given, /*isForced=*/true))
      return false;
  for (auto [result, given] : llvm::zip_equal(op->getResults(), results))
    if (mayBeLeftOut(result, given, /*isForced=*/false))
      return false;
  return true;
}

namespace {
template <typename OpT> struct Model : ShardingInterface::ExternalModel<Model<OpT>, OpT> {
  SmallVector<utils::IteratorType> getLoopIteratorTypes(Operation *op) const {
    SmallVector<utils::IteratorType> types(kLoops, utils::IteratorType::parallel);
    for (Loop loop : {Batches, Heads, Queries, Keys})
      if (llvm::any_of(getOutputs(cast<OpT>(op)), [&](const OperandRole &output) {
            return isSumOver(cast<OpT>(op), output, loop);
          }))
        types[loop] = utils::IteratorType::reduction;
    return types;
  }

  SmallVector<ReductionKind> getReductionLoopIteratorKinds(Operation *op) const {
    size_t count = llvm::count(getLoopIteratorTypes(op), utils::IteratorType::reduction);
    return SmallVector<ReductionKind>(count, isa<AttentionOp>(op) ? ReductionKind::Generic
                                                                  : ReductionKind::Sum);
  }

  SmallVector<AffineMap> getIndexingMaps(Operation *op) const {
    SmallVector<AffineMap> maps;
    auto add = [&](const OperandRole &role) {
      SmallVector<AffineExpr> loops;
      for (unsigned dim = 0; dim < role.dims.size(); ++dim)
        loops.push_back(getAffineDimExpr(getLoop(cast<OpT>(op), role, dim), op->getContext()));
      maps.push_back(AffineMap::get(kLoops, 0, loops, op->getContext()));
    };
    llvm::for_each(getRoles(cast<OpT>(op)), add);
    if (op->getNumResults())
      llvm::for_each(getOutputs(cast<OpT>(op)), add);
    return maps;
  }

  FailureOr<ShardingOption> getShardingOption(Operation *op, ArrayRef<Sharding> operands,
                                              ArrayRef<Sharding> results) const {
    if (!isOnTensors(op))
      return ShardingOption::makeEmpty();
    FailureOr<ShardingOption> option =
        shard::detail::defaultGetShardingOption(op, operands, results);
    // Upstream silently skips an op without an option, but invalid annotations must be an error.
    SymbolTableCollection symbols;
    if (failed(option) && isLastTry(op, operands, results) &&
        failed(findCut(cast<OpT>(op), operands, results, symbols)))
      return ShardingOption();
    return option;
  }

  FailureOr<std::vector<Sharding>> getShardingAnnotations(Operation *op,
                                                          const ShardingOption &option) const {
    if (!option.grid)
      return failure();
    return shard::detail::defaultGetShardingAnnotations(op, option);
  }

  LogicalResult addShardingAnnotations(Operation *op, OpBuilder &b,
                                       const ShardingOption &option) const {
    SymbolTableCollection symbols;
    Cut cut;
    cut.grid = getGridOrNull(op, option.grid, symbols);
    if (!cut.grid)
      return op->emitOpError() << "expected a grid but got " << option.grid;
    llvm::copy(option.shardingArray, cut.axes.begin());
    if (failed(verifyCut(cast<OpT>(op), cut)))
      return failure();
    FailureOr<std::vector<Sharding>> shardings = getShardingAnnotations(op, option);
    if (failed(shardings))
      return failure();
    // Upstream's default would also annotate scalars.
    ArrayRef<Sharding> all = *shardings;
    for (auto [result, sharding] :
         llvm::zip_equal(op->getResults(), all.take_back(op->getNumResults())))
      maybeInsertTargetShardingAnnotation(sharding, result, b);
    for (auto [operand, sharding] :
         llvm::zip_equal(op->getOpOperands(), all.take_front(op->getNumOperands())))
      if (isa<RankedTensorType>(operand.get().getType())) {
        OpBuilder::InsertionGuard guard(b);
        maybeInsertSourceShardingAnnotation(sharding, operand, b);
      }
    annotateLoads(op, option.grid, b);
    return success();
  }

  LogicalResult partition(Operation *op, ArrayRef<Value> partitionedOperands,
                          ArrayRef<Sharding> operandShardings, ArrayRef<Sharding> resultShardings,
                          IRMapping &partitionMap, SymbolTableCollection &symbols,
                          OpBuilder &builder) const {
    if (!isOnTensors(op)) {
      builder.clone(*op, partitionMap);
      return success();
    }
    FailureOr<Cut> cut = findCut(cast<OpT>(op), operandShardings, resultShardings, symbols);
    if (failed(cut) || failed(verifyLoads(cast<OpT>(op))))
      return failure();
    Partitioner partitioner(cast<OpT>(op), *cut, partitionMap, builder);
    partitionMap.map(op->getResults(), partitioner.run());
    return success();
  }
};
} // namespace

void flashattn::registerShardingInterfaceExternalModels(DialectRegistry &registry) {
  registry.addExtension(+[](MLIRContext *context, FlashAttnDialect *) {
    AttentionOp::attachInterface<Model<AttentionOp>>(*context);
    AttentionBackwardOp::attachInterface<Model<AttentionBackwardOp>>(*context);
    CombineOp::attachInterface<Model<CombineOp>>(*context);
    ProjectOp::attachInterface<Model<ProjectOp>>(*context);
    context->loadDialect<affine::AffineDialect, arith::ArithDialect, linalg::LinalgDialect,
                         ShardDialect, tensor::TensorDialect>();
  });
}
