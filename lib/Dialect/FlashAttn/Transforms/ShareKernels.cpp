//===- ShareKernels.cpp - flashattn-share-kernels -------------------------===//
//
// One function for ops that differ only in their operands.
//
//===----------------------------------------------------------------------===//

#include "flashattn/Dialect/FlashAttn/Transforms/Passes.h"
#include "flashattn/Dialect/FlashAttn/Transforms/Transforms.h"
#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/IR/IRMapping.h"
#include "mlir/IR/Matchers.h"
#include "mlir/IR/SymbolTable.h"
#include "mlir/Transforms/RegionUtils.h"
#include "llvm/ADT/MapVector.h"

namespace mlir::flashattn {
#define GEN_PASS_DEF_SHAREKERNELS
#include "flashattn/Dialect/FlashAttn/Transforms/Passes.h.inc"
} // namespace mlir::flashattn

using namespace mlir;
using namespace mlir::flashattn;

/// Returns the values that the op uses: its operands, then the values that its regions capture.
static SmallVector<Value> getInputs(Operation *op) {
  SmallVector<Value> inputs(op->getOperands());
  llvm::SetVector<Value> captures;
  getUsedValuesDefinedAbove(op->getRegions(), captures);
  llvm::append_range(inputs, captures);
  return inputs;
}

/// Returns the value of a scalar that is compiled into a kernel; null for an argument.
static Attribute getConstant(Value value) {
  Attribute constant;
  if (!isa<ShapedType>(value.getType()))
    matchPattern(value, m_Constant(&constant));
  return constant;
}

/// Whether a kernel for one input is also valid for the other.
static bool shareKernel(Value a, Value b) {
  if (a.getType() != b.getType() || getConstant(a) != getConstant(b))
    return false;
  return !isa<MemRefType>(a.getType()) || hasAlignedRows(a) == hasAlignedRows(b);
}

static bool areEqual(Operation *a, Operation *b) {
  constexpr auto kFlags = OperationEquivalence::IgnoreLocations;
  SmallVector<Value> left = getInputs(a), right = getInputs(b);
  if (left.size() != right.size() ||
      !llvm::all_of(llvm::zip(left, right),
                    [](auto pair) { return shareKernel(std::get<0>(pair), std::get<1>(pair)); }) ||
      !OperationEquivalence::isEquivalentTo(a, b, OperationEquivalence::ignoreValueEquivalence,
                                            /*markEquivalent=*/nullptr, kFlags))
    return false;
  llvm::DenseMap<Value, Value> same;
  for (auto [x, y] : llvm::drop_begin(llvm::zip(left, right), a->getNumOperands()))
    same[x] = y;
  auto check = [&](Value x, Value y) { return success(same.lookup(x) == y); };
  auto mark = [&](Value x, Value y) { same[x] = y; };
  return llvm::all_of(llvm::zip(a->getRegions(), b->getRegions()), [&](auto pair) {
    return OperationEquivalence::isRegionEquivalentTo(&std::get<0>(pair), &std::get<1>(pair), check,
                                                      mark, kFlags);
  });
}

/// Returns a hash that is equal for equal ops.
static llvm::hash_code hash(Operation *op) {
  return llvm::hash_combine(
      OperationEquivalence::computeHash(op, OperationEquivalence::ignoreHashValue,
                                        OperationEquivalence::ignoreHashValue,
                                        OperationEquivalence::IgnoreLocations),
      llvm::hash_combine_range(op->operand_type_begin(), op->operand_type_end()));
}

/// Creates a function that applies `op` to its arguments, the inputs that are not constants.
static func::FuncOp outline(Operation *op, SymbolTable &symbols) {
  MLIRContext *context = op->getContext();
  SmallVector<Value> inputs = getInputs(op);
  SmallVector<Type> types;
  for (Value input : inputs)
    if (!getConstant(input))
      types.push_back(input.getType());
  auto parent = op->getParentOfType<func::FuncOp>();
  auto function = func::FuncOp::create(
      op->getLoc(), (parent.getName() + "_" + op->getName().stripDialect()).str(),
      FunctionType::get(context, types, {}));
  function.setPrivate();
  symbols.insert(function);
  auto b = OpBuilder::atBlockBegin(function.addEntryBlock());
  auto argument = function.args_begin();
  SmallVector<Value> inside;
  IRMapping mapping;
  for (Value input : inputs) {
    if (getConstant(input)) {
      inside.push_back(b.clone(*input.getDefiningOp())->getResult(0));
    } else {
      inside.push_back(*argument);
      if (isa<MemRefType>(input.getType()) && hasAlignedRows(input) && !hasAlignedRows(*argument))
        function.setArgAttr(argument->getArgNumber(), FlashAttnDialect::getAlignedRowsAttrName(),
                            b.getUnitAttr());
      ++argument;
    }
    mapping.map(input, inside.back());
  }
  // By position, because an op may use one value as several operands.
  Operation *clone = b.clone(*op, mapping);
  clone->setOperands(ArrayRef(inside).take_front(op->getNumOperands()));
  func::ReturnOp::create(b, op->getLoc());
  return function;
}

void mlir::flashattn::shareKernels(RewriterBase &rewriter, Operation *root) {
  using Ops = SmallVector<Operation *>;
  llvm::MapVector<std::pair<Operation *, size_t>, SmallVector<Ops>> groups;
  root->walk([&](KernelOpInterface op) {
    if (!op->getParentOfType<func::FuncOp>() || op->getNumResults() != 0)
      return;
    auto &alike = groups[{SymbolTable::getNearestSymbolTable(op), size_t(hash(op))}];
    auto *found = llvm::find_if(alike, [&](Ops &ops) { return areEqual(ops.front(), op); });
    if (found == alike.end())
      alike.push_back({op});
    else
      found->push_back(op);
  });
  SymbolTableCollection tables;
  for (auto &[key, alike] : groups)
    for (Ops &ops : alike) {
      if (ops.size() == 1)
        continue;
      func::FuncOp function = outline(ops.front(), tables.getSymbolTable(key.first));
      for (Operation *op : ops) {
        SmallVector<Value> arguments = getInputs(op);
        llvm::erase_if(arguments, [](Value input) { return getConstant(input); });
        rewriter.setInsertionPoint(op);
        rewriter.replaceOpWithNewOp<func::CallOp>(op, function, arguments);
      }
    }
}

namespace {
struct ShareKernelsPass : flashattn::impl::ShareKernelsBase<ShareKernelsPass> {
  void runOnOperation() override {
    IRRewriter rewriter(&getContext());
    shareKernels(rewriter, getOperation());
  }
};
} // namespace
