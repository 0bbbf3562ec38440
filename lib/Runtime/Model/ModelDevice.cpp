//===- ModelDevice.cpp - a model of a GPU as a device ---------------------===//

#include "../CUDACard.h"
#include "../Errors.h"
#include "../RuntimeContext.h"
#include "Block.h"
#include "Functions.h"
#include "ModelSymbols.h"
#include "TensorMap.h"
#include "flashattn/Runtime/Model.h"
#include "flashattn/Runtime/ParallelFor.h"
#include "llvm/ADT/STLExtras.h"

#include <atomic>
#include <limits>

using namespace mlir::flashattn;
using namespace mlir::flashattn::model;
using llvm::Error;
using llvm::Expected;

namespace {

/// A kernel, as passed to Device::launch.
struct Kernel {
  llvm::StringRef description;
  void (*body)(void *arguments, ThreadView *thread);
};

/// The blocks of a launch, which workers run one after the other.
struct Grid {
  explicit Grid(const Launch &launch, std::atomic<int64_t> &failed)
      : launch(launch), failed(failed) {}

  const Launch &launch;
  std::mutex mutex;
  std::atomic<int64_t> &failed; ///< lowest failed block of the launch
  std::string report;
  Statistics statistics;

  void run(int64_t number) {
    if (number > failed)
      return;
    static thread_local Block block;
    std::optional<std::string> found = block.run(launch, number);
    if (!found && !block.statistics)
      return;
    std::lock_guard<std::mutex> lock(mutex);
    if (block.statistics)
      statistics.add(*block.statistics);
    if (!found)
      return;
    if (number < failed) {
      failed = number;
      report = std::move(*found);
    }
  }
};

class Model final : public ModelDevice {
public:
  Model(llvm::StringRef chip, int64_t sharedBytes, std::unique_ptr<Device> host)
      : chip(chip), sharedBytes(sharedBytes), host(std::move(host)),
        // Those of an A100 and of an H100.
        multiprocessors(chip.starts_with("sm_8") ? 108 : 132) {}

  std::string getId() const override { return "model:" + chip; }
  std::string getDescription() const override { return "a model on " + host->getDescription(); }
  std::string getChip() const override { return chip; }
  bool isModel() const override { return true; }
  int64_t getMultiprocessorCount() const override { return multiprocessors; }
  void setMultiprocessors(int64_t count) override { multiprocessors = count; }
  void setSeed(uint64_t newSeed) override { seed = newSeed; }
  Error runOn(llvm::ArrayRef<std::pair<void *, size_t>> ranges,
              llvm::function_ref<Error()> call) override;
  void setCollecting(bool wanted) override { collects = wanted; }
  std::string getStatistics() const override { return statistics; }
  llvm::json::Array takeTrace() override { return std::exchange(trace, {}); }

  Expected<void *> allocate(size_t bytes) override {
    Expected<void *> buffer = host->allocate(bytes);
    if (buffer)
      memory.add(*buffer, bytes);
    return buffer;
  }
  void limit(void *buffer, void *begin, size_t bytes) override {
    memory.remove(buffer);
    memory.add(begin, bytes);
    limited[buffer] = begin;
  }
  Error release(void *buffer) override {
    auto found = limited.find(buffer);
    memory.remove(found == limited.end() ? buffer : found->second);
    if (found != limited.end())
      limited.erase(found);
    return host->release(buffer);
  }
  Error copyToDevice(void *dst, const void *src, size_t bytes) override {
    return host->copyToDevice(dst, src, bytes);
  }
  Error copyToHost(void *dst, const void *src, size_t bytes) override {
    return host->copyToHost(dst, src, bytes);
  }
  Error copyOnDevice(void *dst, const void *src, size_t bytes) override {
    return host->copyOnDevice(dst, src, bytes);
  }
  Error fill(void *dst, uint8_t value, size_t bytes) override {
    return host->fill(dst, value, bytes);
  }
  Error synchronize() override { return Error::success(); }
  Expected<double> time(llvm::function_ref<Error()> body, unsigned repeats) override {
    return host->time(body, repeats);
  }
  Error launch(void *kernel, const LaunchShape &shape, void **parameters) override;
  Error encodeTensorMap(void *map, const TensorMapShape &shape) override {
    if (Error error = toError(cuda::checkTensorMap(getId().c_str(), shape)))
      return error;
    static_cast<TensorMap *>(map)->set(shape);
    return Error::success();
  }

private:
  std::string chip;
  int64_t sharedBytes;
  std::unique_ptr<Device> host;
  int64_t multiprocessors;
  MemoryMap memory;
  llvm::DenseMap<void *, void *> limited;
  std::mutex globalAdds;
  uint64_t seed = 1;
  std::mutex calls; ///< held during `runOn`
  uint64_t numCalls = 0;
  bool collects = false;
  std::string statistics;
  llvm::json::Array trace;
  unsigned launches = 0;
};

} // namespace

Error Model::launch(void *kernel, const LaunchShape &shape, void **parameters) {
  auto *compiled = static_cast<Kernel *>(kernel);
  constexpr int64_t kMaxThreads = 1024, kMaxBlocks = 1 << 16;
  int64_t threads = shape.block.x * shape.block.y * shape.block.z;
  int64_t blocks = shape.grid.x * shape.grid.y * shape.grid.z;
  if (threads > kMaxThreads)
    return formatError("{0}: expected at most {1} threads in a block but got {2}", getId(),
                       kMaxThreads, threads);
  if (blocks > kMaxBlocks)
    return formatError("{0}: expected at most {1} blocks in a grid, as many as a model runs in "
                       "reasonable time, but got {2}: take a smaller problem",
                       getId(), kMaxBlocks, blocks);
  if (shape.dynamicSharedBytes > sharedBytes)
    return formatError("{0}: expected at most {1} bytes of shared memory in a block but got {2}",
                       getId(), sharedBytes, shape.dynamicSharedBytes);
  std::atomic<int64_t> failed = std::numeric_limits<int64_t>::max();
  Launch launch{compiled->description,
                compiled->body,
                parameters,
                shape.grid,
                shape.block,
                shape.dynamicSharedBytes,
                seed,
                &memory,
                &globalAdds,
                &failed,
                collects};
  Grid grid(launch, failed);
  flashattnParallelFor(
      blocks, [](void *grid, int64_t number) { static_cast<Grid *>(grid)->run(number); }, &grid);
  if (collects) {
    statistics += grid.statistics.print(launch.description, blocks);
    grid.statistics.trace(launch.description, launches++, trace);
  }
  if (grid.report.empty())
    return Error::success();
  return makeError("kernel '" + launch.getName() + "', seed " + llvm::Twine(seed) + ": " +
                   grid.report);
}

Error Model::runOn(llvm::ArrayRef<std::pair<void *, size_t>> ranges,
                   llvm::function_ref<Error()> call) {
  std::lock_guard<std::mutex> lock(calls);
  seed = ++numCalls;
  // Views of one array may be interleaved: overlapping ranges are merged.
  llvm::SmallVector<std::pair<char *, char *>> merged;
  for (auto [begin, bytes] : ranges)
    if (bytes)
      merged.push_back({static_cast<char *>(begin), static_cast<char *>(begin) + bytes});
  llvm::sort(merged);
  size_t count = 0;
  for (auto [begin, end] : merged)
    if (count && begin < merged[count - 1].second)
      merged[count - 1].second = std::max(merged[count - 1].second, end);
    else
      merged[count++] = {begin, end};
  merged.truncate(count);
  for (auto [begin, end] : merged)
    memory.add(begin, end - begin);
  Error error = call();
  for (auto &range : merged)
    memory.remove(range.first);
  return error;
}

std::unique_ptr<ModelDevice> mlir::flashattn::createModelDevice(llvm::StringRef chip,
                                                                int64_t sharedBytes) {
  return std::make_unique<Model>(chip, sharedBytes, llvm::cantFail(createCPUDevice()));
}

/// See kLaunch in ModelABI.h.
static void launchModel(const char *description, void (*body)(void *, ThreadView *), int64_t gridX,
                        int64_t gridY, int64_t gridZ, int64_t blockX, int64_t blockY,
                        int64_t blockZ, int32_t sharedBytes, void *arguments) {
  RuntimeContext *current = getRuntimeContext();
  if (!current)
    return;
  Kernel kernel{description, body};
  LaunchShape shape{{gridX, gridY, gridZ}, {blockX, blockY, blockZ}, {}, sharedBytes};
  current->takeLaunchFlags();
  current->run([&](Device &device) -> Error {
    if (!device.isModel())
      return formatError("expected a model of a GPU to run the kernel but got {0}", device.getId());
    return device.launch(&kernel, shape, static_cast<void **>(arguments));
  });
}

void mlir::flashattn::model::visitSymbols(
    llvm::function_ref<void(llvm::StringRef name, void *address)> visit) {
  visit(kLaunch, reinterpret_cast<void *>(launchModel));
  for (llvm::ArrayRef<Function> functions :
       {getBarrierFunctions(), getCopyFunctions(), getProductFunctions(), getWarpFunctions()})
    for (const Function &function : functions)
      visit((kPrefix + function.name).str(), function.address);
}
