//===- Model.h - a model of a GPU as a device -------------------*- C++ -*-===//
//
// A model of a GPU that runs kernels on the host, thread by thread, and reports errors that would
// occur on the GPU: races on shared memory, deadlocks, accesses out of bounds.
//
//===----------------------------------------------------------------------===//

#ifndef FLASHATTN_RUNTIME_MODEL_H
#define FLASHATTN_RUNTIME_MODEL_H

#include "flashattn/Runtime/Device.h"
#include "llvm/Support/JSON.h"

namespace mlir::flashattn {

/// A device that runs modules lowered by buildFlashAttnToModelPipeline.
class ModelDevice : public Device {
public:
  /// Sets the seed that determines the order of events from the next launch on: when copies and
  /// matrix products complete, and which warps run first. Runs with equal seeds are equal.
  virtual void setSeed(uint64_t seed) = 0;
  /// Sets the number of multiprocessors, at least 1, that host code queries. The default is that of
  /// the GPU. With fewer multiprocessors, fewer programs fill the grid of a persistent kernel.
  virtual void setMultiprocessors(int64_t count) = 0;
  /// Runs `call`, whose kernels may access the memory of `ranges` (begin and bytes, in any order)
  /// in addition to allocated memory. Each call uses the next seed, starting with 1. Concurrent
  /// calls are serialized.
  virtual llvm::Error runOn(llvm::ArrayRef<std::pair<void *, size_t>> ranges,
                            llvm::function_ref<llvm::Error()> call) = 0;
  /// Sets whether statistics are collected for subsequent launches.
  virtual void setCollecting(bool wanted) = 0;
  /// Returns the collected statistics as text: counts of each op per warpgroup, bytes copied to
  /// shared memory, waits, bank conflicts, and a drawing of the first block's timeline.
  virtual std::string getStatistics() const = 0;
  /// Returns the same timeline as events of a Chrome trace.
  virtual llvm::json::Array takeTrace() = 0;
};

/// Creates a model of the GPU `chip`, such as sm_90a, whose blocks may use `sharedBytes` bytes of
/// shared memory.
std::unique_ptr<ModelDevice> createModelDevice(llvm::StringRef chip, int64_t sharedBytes);

/// Maximum number of interleavings in one run.
constexpr int64_t kMaxModelSeeds = 1000000;
/// Maximum number of multiprocessors.
constexpr int64_t kMaxModelMultiprocessors = 1000;

} // namespace mlir::flashattn

#endif // FLASHATTN_RUNTIME_MODEL_H
