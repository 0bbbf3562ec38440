//===- Watch.cpp - an additional run that is observed ---------------------===//

#include "Watch.h"
#include "Flags.h"
#include "Verify.h"
#include "flashattn/Pipelines/Compile.h"

using namespace mlir;
using namespace mlir::flashattn;
using namespace mlir::flashattn::flags;
using llvm::Expected;

Expected<Watch> Watch::create(ModuleOp plain, const Program &program) {
  Watch watch;
  if (tuneFlag || (!verifyFlag && !benchFlag.getNumOccurrences()))
    return watch;
  ObserverOptions options;
  options.compares = verifyFlag;
  options.fusesProjection = fuseFlag;
  if (!plantedFault.empty()) {
    Expected<PlantedFault> fault = PlantedFault::parse(plantedFault);
    if (!fault)
      return llvm::createStringError("--verify-plant-fault: " + llvm::toString(fault.takeError()));
    options.fault = *fault;
  }
  watch.module = plain.clone();
  Expected<std::unique_ptr<Observer>> observer =
      Observer::instrument(*watch.module, program.function, options);
  if (!observer)
    return llvm::createStringError("--verify: " + llvm::toString(observer.takeError()));
  watch.observer = std::move(*observer);
  if (verifyFlag && watch.observer->getNumOps() == 0)
    return llvm::createStringError(
        "--verify: expected a flashattn.attention, attention_backward, combine or project in "
        "function '" +
        program.function + "' or one that it calls but got none" +
        (raiseFlag ? "" : "; --raise makes attention of matmul, softmax, matmul"));
  return watch;
}

static std::vector<std::string> getKernels(ModuleOp compiled) {
  std::vector<std::string> kernels;
  visitPTX(compiled, [&](StringRef name, StringRef ptx) { kernels.push_back((name + ptx).str()); });
  return kernels;
}

bool flashattn::isSame(const HostTensor &a, const HostTensor &b, bool isExact) {
  if (a.getTypeName() != b.getTypeName())
    return false;
  if (isExact || !isFloat(a.getScalar()))
    return std::memcmp(a.data(), b.data(), a.getNumBytes()) == 0;
  return areClose(a, b);
}

bool Watch::report(ModuleOp plain, ArrayRef<HostTensor> results) const {
  bool pass = observer->report(llvm::outs());
  if (getKernels(plain) != getKernels(*module)) {
    llvm::outs() << "verify: the kernels are not the same as with the ops watched: FAIL\n";
    pass = false;
  }
  if (observer->hasFault())
    return pass;
  bool isExact = observer->isDeterministic();
  for (auto [i, result] : llvm::enumerate(results))
    if (!isSame(result, outputs[i], isExact)) {
      llvm::outs() << "verify: output " << i << " is not the same as with the ops watched: FAIL\n";
      pass = false;
    }
  return pass;
}
