//===- Model.h - a model of a GPU as a device --------------------*- C++ -*-===//
//
// Runs kernels on the host, thread by thread, and reports what would go wrong on the GPU: races on
// shared memory, waits that never end, accesses out of bounds.
//
//===----------------------------------------------------------------------===//

#ifndef FLASHATTN_RUNTIME_MODEL_H
#define FLASHATTN_RUNTIME_MODEL_H

#include "flashattn/Runtime/Device.h"
#include "llvm/Support/JSON.h"

namespace mlir::flashattn {

/// A device that runs modules which buildFlashAttnToModelPipeline has made.
class ModelDevice : public Device {
public:
  /// In what order things happen from the next launch on: at what time copies and products are
  /// done, and which warps run first. The same seed gives the same run.
  virtual void setSeed(uint64_t seed) = 0;
  /// How many multiprocessors host code is told of, from 1 on: with few of them, few programs fill
  /// a persistent grid. By default as many as the GPU has.
  virtual void setMultiprocessors(int64_t count) = 0;
  /// Runs `call`, whose kernels may touch the memory of `ranges` (begin and bytes, in any order)
  /// beside what was allocated, with another seed than the call before it: the first one has
  /// seed 1. Threads wait for each other.
  virtual llvm::Error runOn(llvm::ArrayRef<std::pair<void *, size_t>> ranges,
                            llvm::function_ref<llvm::Error()> call) = 0;
  /// Whether the launches that follow are counted.
  virtual void setCollecting(bool wanted) = 0;
  /// Of those that were: what each op has done in each role, bytes to shared memory, waits, bank
  /// conflicts, and a picture of the first block's time.
  virtual std::string getStatistics() const = 0;
  /// The same time as events of a Chrome trace.
  virtual llvm::json::Array takeTrace() = 0;
};

/// The model of the GPU `chip`, as sm_90a, a block of which may use `sharedBytes` of shared memory.
std::unique_ptr<ModelDevice> createModelDevice(llvm::StringRef chip, int64_t sharedBytes);

/// The most interleavings that one run may ask for.
constexpr int64_t kMaxModelSeeds = 1000000;
/// And the most multiprocessors.
constexpr int64_t kMaxModelMultiprocessors = 1000;

} // namespace mlir::flashattn

#endif // FLASHATTN_RUNTIME_MODEL_H
