//===- Print.cpp ----------------------------------------------------------===//

#include "Print.h"
#include "Inputs.h"
#include "Observer.h"
#include "flashattn/Runtime/Device.h"
#include "llvm/Support/Format.h"
#include "llvm/Support/FormatVariadic.h"

#include <cmath>

using namespace mlir;
using namespace mlir::flashattn;
using llvm::Error;
using llvm::Expected;

Error mlir::flashattn::printDevices() {
  Expected<std::unique_ptr<Device>> cpu = createCPUDevice();
  if (!cpu)
    return cpu.takeError();
  llvm::outs() << "cpu: " << (*cpu)->getDescription() << "\n";
  auto devices = listCUDADevices();
  if (!devices) {
    llvm::outs() << "no cuda devices: " << llvm::toString(devices.takeError()) << "\n";
    return Error::success();
  }
  for (const CUDADeviceInfo &info : *devices)
    llvm::outs() << llvm::formatv("cuda:{0}: {1}, compute capability {2}.{3}, {4:F1} GiB, {5} "
                                  "multiprocessors, {6} bytes of shared memory per block\n",
                                  info.ordinal, info.name, info.computeMajor, info.computeMinor,
                                  double(info.memoryBytes) / (1 << 30), info.multiprocessors,
                                  info.sharedMemoryPerBlock);
  return Error::success();
}

/// Prints [[1, 2], [3, 4]], with a line for each row.
static void printValues(const HostTensor &output, size_t dim, int64_t &next) {
  size_t rank = output.getShape().size();
  if (dim == rank) {
    llvm::outs() << llvm::format("%g", output.get(next++));
    return;
  }
  llvm::outs() << "[";
  for (int64_t i = 0; i < output.getShape()[dim]; ++i) {
    if (i)
      llvm::outs() << (dim + 1 == rank ? ", " : ",\n");
    printValues(output, dim + 1, next);
  }
  llvm::outs() << "]";
}

void mlir::flashattn::printOutput(unsigned index, const HostTensor &output, bool all) {
  constexpr int64_t kFew = 16;
  bool showsAll = output.getNumElements() <= kFew;
  int64_t shown = all ? 0 : showsAll ? output.getNumElements() : 4;
  double sum = 0, low = INFINITY, high = -INFINITY;
  int64_t finite = 0;
  for (int64_t i = 0; i < output.getNumElements(); ++i) {
    double value = output.get(i);
    if (!std::isfinite(value))
      continue;
    ++finite;
    sum += value, low = std::min(low, value), high = std::max(high, value);
  }
  llvm::outs() << llvm::formatv("output {0}: {1}", index, output.getTypeName());
  if (finite)
    llvm::outs() << llvm::formatv(", min {0:f4}, max {1:f4}, mean {2:e3}", low, high, sum / finite);
  if (finite != output.getNumElements())
    llvm::outs() << llvm::formatv(", {0} not finite", output.getNumElements() - finite);
  llvm::outs() << (!shown ? "" : showsAll ? ", values" : ", first");
  for (int64_t i = 0; i < shown; ++i)
    llvm::outs() << llvm::formatv(" {0:f4}", output.get(i));
  llvm::outs() << "\n";
  if (!all)
    return;
  int64_t next = 0;
  printValues(output, 0, next);
  llvm::outs() << "\n";
}

/// Formats a number with four digits, whatever its magnitude.
static std::string formatMilliseconds(double value) {
  int decimals = std::clamp(3 - int(std::floor(std::log10(std::max(value, 1e-9)))), 0, 9);
  std::string text;
  llvm::raw_string_ostream(text) << llvm::format("%.*f", decimals, value);
  return text;
}

Work::Work(const Inputs &data, ArrayRef<HostTensor> results, const Observer *observer) {
  if (observer) {
    pairs = observer->getPairs();
    flops = observer->getFlops();
  }
  for (auto [i, tensor] : llvm::enumerate(data.tensors))
    if (!data.poisoned[i])
      bytes += tensor.getNumBytes();
  for (const HostTensor &output : results)
    bytes += output.getNumBytes();
}

static double getTFlops(const BenchResult &result, const Work &work) {
  return work.flops / result.median * 1e-9;
}
static double getGigabytes(const BenchResult &result, const Work &work) {
  return work.bytes / result.median * 1e-6;
}

void mlir::flashattn::printBench(const BenchResult &result, const Work &work) {
  llvm::outs() << llvm::formatv(
      "bench: median {0} ms (quartiles {1} and {2}, min {3}, max {4}; {5} batches of {6} calls)",
      formatMilliseconds(result.median), formatMilliseconds(result.lowerQuartile),
      formatMilliseconds(result.upperQuartile), formatMilliseconds(result.min),
      formatMilliseconds(result.max), result.batches, result.repeats);
  if (work.pairs)
    llvm::outs() << llvm::formatv(", {0:f3} TFLOP/s of {1} visible pairs", getTFlops(result, work),
                                  work.pairs);
  llvm::outs() << llvm::formatv(", {0:f3} GB/s of inputs and outputs\n",
                                getGigabytes(result, work));
}

llvm::json::Object mlir::flashattn::describe(const BenchResult &result, const Work &work) {
  llvm::json::Object found{{"median_ms", result.median},
                           {"min_ms", result.min},
                           {"max_ms", result.max},
                           {"lower_quartile_ms", result.lowerQuartile},
                           {"upper_quartile_ms", result.upperQuartile},
                           {"batches", result.batches},
                           {"calls_per_batch", result.repeats},
                           {"gigabytes_per_second", getGigabytes(result, work)}};
  if (work.pairs) {
    found["visible_pairs"] = work.pairs;
    found["operations"] = work.flops;
    found["tflops"] = getTFlops(result, work);
  }
  return found;
}
