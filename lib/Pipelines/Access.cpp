//===- Access.cpp - how a function uses a memref --------------------------===//

#include "flashattn/Pipelines/Compile.h"
#include "mlir/Dialect/Bufferization/IR/Bufferization.h"
#include "mlir/Dialect/GPU/IR/GPUDialect.h"
#include "mlir/Dialect/MemRef/IR/MemRef.h"
#include "mlir/Interfaces/CallInterfaces.h"
#include "mlir/Interfaces/ControlFlowInterfaces.h"
#include "mlir/Interfaces/SideEffectInterfaces.h"
#include "mlir/Interfaces/ViewLikeInterface.h"

using namespace mlir;
using namespace mlir::flashattn;

namespace {
/// Follows a memref through all values that share its memory. The interfaces of an op define how
/// the op uses the memref; an op without them is assumed to read and write it.
class AccessFinder {
public:
  Access find(Value value) {
    follow(value);
    while (!pending.empty())
      for (OpOperand &use : pending.pop_back_val().getUses())
        visit(use);
    return access;
  }

private:
  void follow(Value value) {
    if (isa<BaseMemRefType>(value.getType()) && seen.insert(value).second)
      pending.push_back(value);
  }
  void follow(ValueRange values) {
    for (Value value : values)
      follow(value);
  }
  void assumeWorst() { access = {/*reads=*/true, /*writes=*/true}; }

  void visit(OpOperand &use);
  void visitCallee(Operation *callee, int64_t argument);
  void visitReturn(OpOperand &use, CallableOpInterface function);
  bool visitBranch(OpOperand &use);
  void visitPure(OpOperand &use);

  Access access;
  llvm::SmallDenseSet<Value> seen;
  SmallVector<Value> pending;
};
} // namespace

/// Follows argument `argument` of a function or kernel.
void AccessFinder::visitCallee(Operation *callee, int64_t argument) {
  auto callable = dyn_cast_if_present<CallableOpInterface>(callee);
  Region *body = callable ? callable.getCallableRegion() : nullptr;
  if (!body || body->empty() || argument < 0 || argument >= body->getNumArguments())
    return assumeWorst();
  follow(body->getArgument(argument));
}

/// Follows a returned value to the results of the function's calls.
void AccessFinder::visitReturn(OpOperand &use, CallableOpInterface function) {
  auto symbol = dyn_cast<SymbolOpInterface>(*function);
  Operation *table = symbol ? SymbolTable::getNearestSymbolTable(symbol->getParentOp()) : nullptr;
  std::optional<SymbolTable::UseRange> calls;
  if (table)
    calls = SymbolTable::getSymbolUses(symbol, table);
  if (!calls)
    return;
  for (SymbolTable::SymbolUse call : *calls)
    if (isa<CallOpInterface>(call.getUser()) &&
        use.getOperandNumber() < call.getUser()->getNumResults())
      follow(call.getUser()->getResult(use.getOperandNumber()));
}

/// Follows a value that control flow passes to an argument of a block or region, or to a result.
/// Returns false if the op is not control flow.
bool AccessFinder::visitBranch(OpOperand &use) {
  Operation *op = use.getOwner();
  if (auto branch = dyn_cast<BranchOpInterface>(op)) {
    if (std::optional<BlockArgument> argument =
            branch.getSuccessorBlockArgument(use.getOperandNumber()))
      follow(*argument);
    return true;
  }
  std::optional<RegionBranchPoint> from;
  auto parent = dyn_cast<RegionBranchOpInterface>(op);
  if (parent) {
    from = RegionBranchPoint::parent();
  } else if (auto terminator = dyn_cast<RegionBranchTerminatorOpInterface>(op)) {
    parent = dyn_cast<RegionBranchOpInterface>(op->getParentOp());
    from = RegionBranchPoint(terminator);
  }
  if (!parent)
    return false;
  RegionBranchSuccessorMapping mapping;
  parent.getSuccessorOperandInputMapping(mapping, from);
  for (Value input : mapping.lookup(&use))
    follow(input);
  return true;
}

/// Follows the results of an op without memory effects, which may be views of the memref.
void AccessFinder::visitPure(OpOperand &use) {
  Operation *op = use.getOwner();
  follow(op->getResults());
  // The uses of an address are unknown.
  bool givesAddress = llvm::any_of(op->getResultTypes(), [](Type type) {
    return !isa<BaseMemRefType>(type) && !type.isIntOrIndexOrFloat();
  });
  if (givesAddress || isa<memref::ExtractAlignedPointerAsIndexOp>(op))
    assumeWorst();
}

void AccessFinder::visit(OpOperand &use) {
  Operation *op = use.getOwner();
  if (auto toTensor = dyn_cast<bufferization::ToTensorOp>(op)) {
    access.reads = true;
    access.writes |= toTensor.getWritable();
    return;
  }
  if (auto launch = dyn_cast<gpu::LaunchFuncOp>(op)) {
    int64_t argument = int64_t(use.getOperandNumber()) -
                       int64_t(launch.getKernelOperands().getBeginOperandIndex());
    return visitCallee(SymbolTable::lookupNearestSymbolFrom(op, launch.getKernelAttr()), argument);
  }
  if (auto call = dyn_cast<CallOpInterface>(op)) {
    int64_t argument =
        int64_t(use.getOperandNumber()) - int64_t(call.getArgOperands().getBeginOperandIndex());
    return visitCallee(call.resolveCallable(), argument);
  }
  auto function = dyn_cast<CallableOpInterface>(op->getParentOp());
  if (function && op->hasTrait<OpTrait::ReturnLike>())
    return visitReturn(use, function);
  if (visitBranch(use))
    return;
  if (isa<ViewLikeOpInterface>(op))
    return follow(op->getResults());
  if (isMemoryEffectFree(op))
    return visitPure(use);
  auto interface = dyn_cast<MemoryEffectOpInterface>(op);
  if (!interface) {
    // The ops in its regions declare their own effects.
    if (!op->hasTrait<OpTrait::HasRecursiveMemoryEffects>())
      assumeWorst();
    return;
  }
  SmallVector<MemoryEffects::EffectInstance> effects;
  interface.getEffects(effects);
  for (const MemoryEffects::EffectInstance &effect : effects) {
    // An effect without a value or symbol may be on any memory.
    bool isOnAll = !effect.getValue() && !effect.getSymbolRef() &&
                   effect.getResource() == SideEffects::DefaultResource::get();
    if (effect.getValue() != use.get() && !isOnAll)
      continue;
    access.reads |= isa<MemoryEffects::Read>(effect.getEffect());
    access.writes |= isa<MemoryEffects::Write>(effect.getEffect());
  }
}

Access flashattn::getAccess(Value argument) { return AccessFinder().find(argument); }
