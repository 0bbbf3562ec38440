//===- InlineCalls.cpp - flashattn-inline-private -------------------------===//
//
// Inlines calls of private functions.
//
//===----------------------------------------------------------------------===//

#include "flashattn/Dialect/FlashAttn/Transforms/Passes.h"
#include "flashattn/Dialect/FlashAttn/Transforms/Transforms.h"
#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/IR/IRMapping.h"
#include "mlir/Pass/PassManager.h"
#include "mlir/Transforms/Passes.h"

namespace mlir::flashattn {
#define GEN_PASS_DEF_INLINEPRIVATE
#include "flashattn/Dialect/FlashAttn/Transforms/Passes.h.inc"
} // namespace mlir::flashattn

using namespace mlir;
using namespace mlir::flashattn;

func::FuncOp mlir::flashattn::findInlinable(func::CallOp call, Operation *table) {
  auto callee = SymbolTable::lookupNearestSymbolFrom<func::FuncOp>(table, call.getCalleeAttr());
  return callee && callee.isPrivate() && callee.getBody().hasOneBlock() ? callee : func::FuncOp();
}

bool mlir::flashattn::inlineCalls(RewriterBase &rewriter, Operation *root, Operation *table,
                                  unsigned mostCalls, function_ref<bool(func::FuncOp)> isWanted) {
  unsigned number = 0;
  for (bool changed = true; changed && number < mostCalls;) {
    changed = false;
    SmallVector<func::CallOp> calls;
    root->walk([&](func::CallOp call) { calls.push_back(call); });
    for (func::CallOp call : calls) {
      func::FuncOp callee = findInlinable(call, table);
      if (!callee || !isWanted(callee) || ++number > mostCalls)
        continue;
      Block &body = callee.getBody().front();
      IRMapping mapping;
      mapping.map(body.getArguments(), call.getOperands());
      rewriter.setInsertionPoint(call);
      for (Operation &op : body.without_terminator())
        rewriter.clone(op, mapping);
      SmallVector<Value> results;
      for (Value result : body.getTerminator()->getOperands())
        results.push_back(mapping.lookupOrDefault(result));
      rewriter.replaceOp(call, results);
      changed = true;
    }
  }
  return number != 0;
}

/// Whether a call of `function` may lead to a call of `target`.
static bool reaches(func::FuncOp function, func::FuncOp target,
                    llvm::SmallPtrSetImpl<Operation *> &seen) {
  return function
      .walk([&](func::CallOp call) {
        auto callee =
            SymbolTable::lookupNearestSymbolFrom<func::FuncOp>(call, call.getCalleeAttr());
        bool found = callee && (callee == target ||
                                (seen.insert(callee).second && reaches(callee, target, seen)));
        return found ? WalkResult::interrupt() : WalkResult::advance();
      })
      .wasInterrupted();
}

static bool takesTensors(func::FuncOp function) {
  FunctionType type = function.getFunctionType();
  return llvm::any_of(llvm::concat<const Type>(type.getInputs(), type.getResults()),
                      llvm::IsaPred<TensorType>);
}

namespace {
struct InlinePrivatePass : flashattn::impl::InlinePrivateBase<InlinePrivatePass> {
  void runOnOperation() override {
    IRRewriter rewriter(&getContext());
    llvm::DenseMap<func::FuncOp, bool> known;
    auto isWanted = [&](func::FuncOp callee) {
      auto [found, isNew] = known.try_emplace(callee, false);
      if (isNew && takesTensors(callee)) {
        llvm::SmallPtrSet<Operation *, 8> seen;
        found->second = !reaches(callee, callee, seen);
      }
      return found->second;
    };
    // A chain of functions that each call the next one twice grows exponentially.
    constexpr unsigned kMostCalls = 1 << 14;
    SmallVector<func::FuncOp> functions(getOperation().getOps<func::FuncOp>());
    for (func::FuncOp function : functions)
      inlineCalls(rewriter, function, function, kMostCalls, isWanted);
    OpPassManager pm(ModuleOp::getOperationName());
    pm.addPass(createSymbolDCEPass());
    if (failed(runPipeline(pm, getOperation())))
      signalPassFailure();
  }
};
} // namespace
