//===- Attention.h - ONNX's Attention on tensors of the host ----*- C++ -*-===//
//
// The operator Attention of ONNX's opsets 23, 24 and 25
// (https://onnx.ai/onnx/operators/onnx__Attention.html), over the C API. The custom op of ONNX
// Runtime and the Python backend both call it. Does not use LLVM.
//
//===----------------------------------------------------------------------===//

#ifndef FLASHATTN_LIB_ONNX_ATTENTION_H
#define FLASHATTN_LIB_ONNX_ATTENTION_H

#include <cstdint>
#include <optional>
#include <string>

namespace mlir::flashattn::onnx {

constexpr int kMaxRank = 4;

/// TensorProto.DataType of onnx.proto; ONNXTensorElementDataType has the same values.
enum DataType : int32_t {
  kFloat = 1,
  kInt64 = 7,
  kBool = 9,
  kFloat16 = 10,
  kDouble = 11,
  kBFloat16 = 16
};

/// A dense tensor, with the last dimension innermost.
struct Tensor {
  void *data;
  int64_t sizes[kMaxRank];
  int32_t type; ///< a DataType, or another value of TensorProto.DataType
  int32_t rank; ///< if it is above kMaxRank, `sizes` is undefined
};

enum Input { kQ, kK, kV, kAttnMask, kPastKey, kPastValue, kNonpadKvSeqlen, kNumInputs };
enum Output { kY, kPresentKey, kPresentValue, kQkMatmulOutput, kNumOutputs };

/// Values of `qk_matmul_output_mode`.
enum ScoresMode { kRaw, kCapped, kBiased, kSoftmax, kNumScoresModes };

/// The attributes of a node; nullopt if absent.
struct Attributes {
  std::optional<int64_t> isCausal, qNumHeads, kvNumHeads, leftWindow, rightWindow, scoresMode,
      softmaxPrecision;
  std::optional<float> scale, softcap;
};

struct AttributeInfo {
  const char *name;
  /// Exactly one of these members is not null.
  std::optional<int64_t> Attributes::*integer;
  std::optional<float> Attributes::*number = nullptr;
};
/// Every attribute of the operator.
constexpr AttributeInfo kAttributes[] = {
    {"is_causal", &Attributes::isCausal},
    {"q_num_heads", &Attributes::qNumHeads},
    {"kv_num_heads", &Attributes::kvNumHeads},
    {"left_window_size", &Attributes::leftWindow},
    {"right_window_size", &Attributes::rightWindow},
    {"qk_matmul_output_mode", &Attributes::scoresMode},
    {"softmax_precision", &Attributes::softmaxPrecision},
    {"scale", nullptr, &Attributes::scale},
    {"softcap", nullptr, &Attributes::softcap},
};

/// The reason for an error; `status` is a FlashAttnStatus, 0 for success.
struct Result {
  int32_t status = 0;
  std::string message;
  explicit operator bool() const { return status == 0; }
};

/// Sets the attribute of that name. Errors: INVALID_ARGUMENT for an unknown name, and for a
/// fraction as an integer.
Result setAttribute(Attributes &attributes, const char *name, double value);

/// Allocates the outputs.
struct OutputMemory {
  /// Allocates output `index`, with `rank` sizes and the type of Q, and stores its address in
  /// `*data`. Returns 1; 0 if the node has no such output; -1 if there is no memory for it.
  int32_t (*allocate)(void *user, int32_t index, const int64_t *sizes, int32_t rank, void **data);
  void *user;
};

/// Computes the node on the CPU. Q, K, V, the caches and the outputs are f16, bf16 or f32, all of
/// one type; an omitted input is null. The softmax and all sums are computed in f32, regardless of
/// `softmax_precision`. Several threads may call this function at once.
/// Errors: INVALID_ARGUMENT for inputs and attributes that do not fit the operator or each other,
/// UNSUPPORTED for types without kernels, and those of flashattnCompile and flashattnLaunch.
Result attend(const Attributes &attributes, const Tensor *const inputs[kNumInputs],
              const OutputMemory &outputs);

} // namespace mlir::flashattn::onnx

#endif // FLASHATTN_LIB_ONNX_ATTENTION_H
