//===- Runner.cpp ---------------------------------------------------------===//

#include "Runner.h"
#include "llvm/Support/FormatVariadic.h"

#include <chrono>
#include <cstring>

using namespace mlir;
using namespace mlir::flashattn;
using llvm::Error;
using llvm::Expected;

/// Returns the number of 8-byte words in {allocated, aligned, offset, sizes[rank], strides[rank]}.
static size_t getDescriptorWords(size_t rank) { return 3 + 2 * rank; }

Error Runner::upload(ArrayRef<const HostTensor *> arguments, const llvm::BitVector &poisoned) {
  size_t resultWords = 0;
  for (const ValueInfo &result : program.results)
    resultWords += getDescriptorWords(result.shape.size());
  results.resize(resultWords);
  if (!program.results.empty())
    values.push_back(results.data());

  for (auto [i, argument] : llvm::enumerate(arguments)) {
    std::vector<int64_t> &words = descriptors.emplace_back();
    if (program.arguments[i].isScalar) {
      words.resize(1);
      std::memcpy(words.data(), argument->data(), argument->getNumBytes());
      // Passed by value, in the bits of the pointer.
      values.push_back(reinterpret_cast<void *>(words[0]));
      continue;
    }
    Expected<void *> buffer = device.allocate(argument->getNumBytes());
    if (!buffer)
      return buffer.takeError();
    if (!poisoned[i])
      if (Error error = device.copyToDevice(*buffer, argument->data(), argument->getNumBytes()))
        return error;
    ArrayRef<int64_t> shape = argument->getShape();
    words.resize(getDescriptorWords(shape.size()));
    words[0] = words[1] = reinterpret_cast<int64_t>(*buffer);
    words[2] = 0;
    int64_t stride = 1;
    for (size_t d = shape.size(); d-- > 0;) {
      words[3 + d] = shape[d];
      words[3 + shape.size() + d] = stride;
      stride *= shape[d];
    }
    values.push_back(words.data());
  }
  return Error::success();
}

Error Runner::call() { return executable.invoke(program.function, values); }

const int64_t *Runner::getResult(unsigned index) const {
  const int64_t *at = results.data();
  for (const ValueInfo &result : ArrayRef(program.results).take_front(index))
    at += getDescriptorWords(result.shape.size());
  return at;
}

Expected<SmallVector<HostTensor>> Runner::run() {
  size_t mark = device.mark();
  if (Error error = call())
    return error;
  if (Error error = device.synchronize())
    return error;
  if (Error error = device.checkMargins())
    return error;

  SmallVector<HostTensor> outputs;
  for (OutputInfo output : program.outputs) {
    const int64_t *words =
        output.isArgument ? descriptors[output.index].data() : getResult(output.index);
    const ValueInfo &info = program.getInfo(output);
    size_t rank = info.shape.size();
    Expected<HostTensor> host = HostTensor::create(info.scalar, ArrayRef(words + 3, rank));
    if (!host)
      return host.takeError();
    int64_t stride = 1;
    for (size_t d = rank; d-- > 0;) {
      if (words[3 + rank + d] != stride && words[3 + d] > 1)
        return llvm::createStringError(
            llvm::formatv(
                "expected output {0} to be contiguous, with stride {2}, but got stride {1}",
                outputs.size(), words[3 + rank + d], stride)
                .str());
      stride *= words[3 + d];
    }
    auto *address = reinterpret_cast<uint8_t *>(words[1]) + words[2] * getByteWidth(info.scalar);
    if (Error error = device.copyToHost(host->data(), address, host->getNumBytes()))
      return error;
    outputs.push_back(std::move(*host));
  }
  if (Error error = device.releaseSince(mark))
    return error;
  return outputs;
}

Expected<std::optional<unsigned>> Runner::findChangedInput(ArrayRef<const HostTensor *> arguments,
                                                           const llvm::BitVector &poisoned) {
  for (auto [i, argument] : llvm::enumerate(arguments)) {
    bool isOutput = llvm::any_of(program.outputs, [&, index = i](OutputInfo output) {
      return output.isArgument ? output.index == index
                               : getResult(output.index)[1] == descriptors[index][0];
    });
    if (program.arguments[i].isScalar || program.arguments[i].isWritten || isOutput || poisoned[i])
      continue;
    std::unique_ptr<uint8_t[]> now(new uint8_t[argument->getNumBytes()]);
    if (Error error = device.copyToHost(now.get(), reinterpret_cast<void *>(descriptors[i][0]),
                                        argument->getNumBytes()))
      return error;
    if (std::memcmp(now.get(), argument->data(), argument->getNumBytes()))
      return std::optional<unsigned>(i);
  }
  return std::nullopt;
}

Expected<BenchResult> Runner::bench(double seconds) {
  device.stopGuarding();
  size_t mark = device.mark();
  auto body = [&]() -> Error {
    if (Error error = call())
      return error;
    return device.releaseSince(mark);
  };
  auto elapsed = [start = std::chrono::steady_clock::now()] {
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  };
  // Warm up, and estimate the time of a call.
  double milliseconds = 0;
  unsigned repeats = 1;
  for (unsigned i = 0; i < 3 && (i < 2 || elapsed() < seconds / 4); ++i) {
    Expected<double> time = device.time(body, repeats);
    if (!time)
      return time.takeError();
    milliseconds = std::max(*time, 1e-4);
    repeats = std::clamp(seconds * 1e3 / 20 / milliseconds, 1.0, 1e5);
  }
  constexpr size_t kMinBatches = 10, kMaxBatches = 1000, kFewestBatches = 3;
  constexpr double kPatience = 4; // limit in units of `seconds`, for calls too long for ten batches
  repeats = std::clamp(seconds * 1e3 / 12 / milliseconds, 1.0, 1e6);
  std::vector<double> times;
  double begin = elapsed();
  while (times.size() < kMaxBatches) {
    double spent = elapsed() - begin;
    if (times.size() >= kMinBatches ? spent >= seconds
                                    : times.size() >= kFewestBatches && spent > seconds * kPatience)
      break;
    Expected<double> time = device.time(body, repeats);
    if (!time)
      return time.takeError();
    times.push_back(*time);
  }
  llvm::sort(times);
  auto quantile = [&](double q) { return times[size_t(std::lround(q * (times.size() - 1)))]; };
  return BenchResult{quantile(0.5),  times.front(),          times.back(), quantile(0.25),
                     quantile(0.75), unsigned(times.size()), repeats};
}
