//===- Attention.cpp - ONNX's Attention on tensors of the host ------------===//

#include "Attention.h"
#include "Problem.h"
#include "flashattn-c/FlashAttn.h"

#include <cstring>
#include <memory>
#include <new>

using namespace mlir::flashattn::onnx;

namespace {

/// Copies `from` to `to`, whose sizes are the same except for the keys, after its first `start`
/// keys.
void copyRows(const View &from, const View &to, int64_t start) {
  const int64_t bytes = bytesOf(from.type), row = from.sizes[3] * bytes;
  for (int64_t b = 0; b < from.sizes[0]; ++b)
    for (int64_t h = 0; h < from.sizes[1]; ++h)
      for (int64_t n = 0; n < from.sizes[2]; ++n)
        std::memcpy(
            to.data + (b * to.strides[0] + h * to.strides[1] + (start + n) * to.strides[2]) * bytes,
            from.data + (b * from.strides[0] + h * from.strides[1] + n * from.strides[2]) * bytes,
            row);
}

const Result kNoMemory = {FLASHATTN_ERROR_DEVICE, "expected memory for an output but got none"};

/// Concatenates the past and the new keys or values: in output `index` if the node has it, in
/// `scratch` if only the past requires a copy, or else without a copy.
Result join(const Problem &p, const View &past, const View &added, Output index,
            const OutputMemory &outputs, std::unique_ptr<char[]> &scratch, View &joined) {
  const int64_t sizes[kMaxRank] = {p.batch, p.kvHeads, p.total, added.sizes[3]};
  void *data = nullptr;
  const int32_t found = outputs.allocate(outputs.user, index, sizes, kMaxRank, &data);
  if (found < 0)
    return kNoMemory;
  if (found && !p.kvLen.empty())
    return {
        FLASHATTN_ERROR_INVALID_ARGUMENT,
        "expected no present_key and present_value with nonpad_kv_seqlen but got them: the cache "
        "is updated outside of the operator"};
  if (!found && !past.data) {
    joined = added;
    return {};
  }
  if (!found) {
    const int64_t bytes = sizes[0] * sizes[1] * sizes[2] * sizes[3] * bytesOf(p.type);
    scratch.reset(new (std::nothrow) char[bytes]);
    if (!scratch)
      return kNoMemory;
    data = scratch.get();
  }
  joined = denseView(data, sizes, p.type);
  if (past.data)
    copyRows(past, joined, 0);
  copyRows(added, joined, p.past);
  return {};
}

} // namespace

Result mlir::flashattn::onnx::attend(const Attributes &attributes,
                                     const Tensor *const inputs[kNumInputs],
                                     const OutputMemory &outputs) {
  Problem p;
  if (Result made = makeProblem(attributes, inputs, p); !made)
    return made;
  View k, v, o;
  std::unique_ptr<char[]> keys, values;
  if (Result joined = join(p, p.pastKey, p.k, kPresentKey, outputs, keys, k); !joined)
    return joined;
  if (Result joined = join(p, p.pastValue, p.v, kPresentValue, outputs, values, v); !joined)
    return joined;

  void *data = nullptr;
  if (p.isPacked) {
    const int64_t hidden = p.qHeads * p.valueSize, sizes[] = {p.batch, p.queries, hidden};
    if (outputs.allocate(outputs.user, kY, sizes, 3, &data) != 1)
      return kNoMemory;
    o = {static_cast<char *>(data),
         {p.batch, p.qHeads, p.queries, p.valueSize},
         {p.queries * hidden, p.valueSize, hidden, 1},
         p.type};
  } else {
    const int64_t sizes[kMaxRank] = {p.batch, p.qHeads, p.queries, p.valueSize};
    if (outputs.allocate(outputs.user, kY, sizes, kMaxRank, &data) != 1)
      return kNoMemory;
    o = denseView(data, sizes, p.type);
  }
  if (Result run = runKernel(p, k, v, o); !run)
    return run;

  const int64_t sizes[kMaxRank] = {p.batch, p.qHeads, p.queries, p.total};
  const int32_t found = outputs.allocate(outputs.user, kQkMatmulOutput, sizes, kMaxRank, &data);
  if (found < 0)
    return kNoMemory;
  if (found)
    computeScores(p, k, data);
  return {};
}

/// For the Python package, which mirrors Tensor and OutputMemory: calls `attend` with
/// `numAttributes` names and values. Returns a FlashAttnStatus, and writes the error to the first
/// `capacity` bytes of `message`, with a zero at its end.
extern "C" __attribute__((visibility("default"))) int32_t
flashattnOnnxAttention(const char *const *names, const double *values, int32_t numAttributes,
                       const Tensor *const *inputs, const OutputMemory *outputs, char *message,
                       size_t capacity) {
  Attributes attributes;
  Result result;
  for (int32_t i = 0; i < numAttributes && result; ++i)
    result = setAttribute(attributes, names[i], values[i]);
  if (result)
    result = attend(attributes, inputs, *outputs);
  if (capacity)
    message[result.message.copy(message, capacity - 1)] = 0;
  return result.status;
}
