//===- CustomOp.cpp - Attention as a custom op of ONNX Runtime ------------===//
//
// The op `Attention` of the domain `flashattn`, with the attributes, inputs and outputs of ONNX's
// own op.
//
//===----------------------------------------------------------------------===//

#include "Attention.h"
#include "OnnxRuntime.h"
#include "flashattn-c/FlashAttn.h"

#include <algorithm>
#include <cstring>
#include <string>

using namespace mlir::flashattn::onnx;

namespace {

/// One op for each type of Q and of the outputs: ONNX Runtime selects an op by the types of the
/// model. The other inputs may have any type; `attend` reports by name what does not fit, and
/// float64.
struct TypedOp : ort::CustomOp {
  int32_t type; ///< a DataType
};

/// The kernel of a node in a session.
struct Kernel {
  const ort::Api *api;
  Attributes attributes;
};

/// Releases a status. Returns whether it was a success.
bool succeeds(const ort::Api *api, ort::Status *status) {
  if (status)
    ort::releaseStatus(api, status);
  return !status;
}

ort::Status *toStatus(const ort::Api *api, const Result &result) {
  if (result)
    return nullptr;
  const bool isUnsupported = result.status == FLASHATTN_ERROR_UNSUPPORTED;
  const bool isArgument = result.status == FLASHATTN_ERROR_INVALID_ARGUMENT;
  return ort::createStatus(api,
                           isUnsupported ? ort::kNotImplemented
                           : isArgument  ? ort::kInvalidArgument
                                         : ort::kFail,
                           result.message.c_str());
}

/// Reads an attribute if the node has it. A type other than that of the operator is an error.
Result readAttribute(const ort::Api *api, const ort::KernelInfo *info,
                     const AttributeInfo &attribute, Attributes &attributes) {
  int64_t integer = 0;
  float number = 0;
  size_t length = 0;
  const char *name = attribute.name;
  const char *found = nullptr;
  if (succeeds(api, ort::getAttributeInt(api, info, name, &integer)))
    found = "an int";
  else if (succeeds(api, ort::getAttributeFloat(api, info, name, &number)))
    found = "a float";
  else if (succeeds(api, ort::getAttributeString(api, info, name, nullptr, &length)))
    found = "a string";
  else
    return {};
  const char *expected = attribute.integer ? "an int" : "a float";
  if (std::strcmp(found, expected) != 0)
    return {FLASHATTN_ERROR_INVALID_ARGUMENT,
            std::string("expected attribute ") + name + " to be " + expected + " but got " + found};
  return setAttribute(attributes, name, attribute.integer ? double(integer) : double(number));
}

ort::Status *createKernel(const ort::CustomOp *, const ort::Api *api, const ort::KernelInfo *info,
                          void **kernel) {
  Attributes attributes;
  for (const AttributeInfo &attribute : kAttributes)
    if (Result read = readAttribute(api, info, attribute, attributes); !read)
      return toStatus(api, read);
  *kernel = new Kernel{api, attributes};
  return nullptr;
}

/// Reads the type, rank, sizes and address of an input.
ort::Status *readTensor(const ort::Api *api, const ort::Value *value, Tensor &tensor) {
  ort::TensorInfo *info = nullptr;
  if (ort::Status *status = ort::getTensorInfo(api, value, &info))
    return status;
  size_t rank = 0;
  ort::Status *status = ort::getTensorElementType(api, info, &tensor.type);
  if (!status)
    status = ort::getDimensionsCount(api, info, &rank);
  if (!status)
    status = ort::getDimensions(api, info, tensor.sizes, std::min<size_t>(rank, kMaxRank));
  ort::releaseTensorInfo(api, info);
  tensor.rank = int32_t(rank);
  // The API has one function for both reading and writing.
  return status ? status
                : ort::getTensorMutableData(api, const_cast<ort::Value *>(value), &tensor.data);
}

struct Call {
  const ort::Api *api;
  ort::KernelContext *context;
  size_t numOutputs;
};

int32_t allocate(void *user, int32_t index, const int64_t *sizes, int32_t rank, void **data) {
  const Call &call = *static_cast<Call *>(user);
  if (size_t(index) >= call.numOutputs)
    return 0;
  ort::Value *value = nullptr;
  if (!succeeds(call.api, ort::getOutput(call.api, call.context, index, sizes, rank, &value)))
    return -1;
  if (!value)
    return 0;
  return succeeds(call.api, ort::getTensorMutableData(call.api, value, data)) ? 1 : -1;
}

ort::Status *compute(void *kernel, ort::KernelContext *context) {
  const auto &[api, attributes] = *static_cast<Kernel *>(kernel);
  size_t numInputs = 0;
  Call call = {api, context, 0};
  if (ort::Status *status = ort::getInputCount(api, context, &numInputs))
    return status;
  if (ort::Status *status = ort::getOutputCount(api, context, &call.numOutputs))
    return status;
  Tensor tensors[kNumInputs];
  const Tensor *inputs[kNumInputs] = {};
  for (size_t i = 0; i < std::min<size_t>(numInputs, kNumInputs); ++i) {
    const ort::Value *value = nullptr;
    if (ort::Status *status = ort::getInput(api, context, i, &value))
      return status;
    if (!value)
      continue;
    if (ort::Status *status = readTensor(api, value, tensors[i]))
      return status;
    inputs[i] = &tensors[i];
  }
  return toStatus(api, attend(attributes, inputs, {allocate, &call}));
}

template <auto kValue, typename... Arguments> auto constantly(Arguments...) { return kValue; }

/// Returns the op without the type of Q.
ort::CustomOp makeOp() {
  ort::CustomOp op = {};
  op.version = ort::kApiVersion;
  op.getName = [](const ort::CustomOp *) { return "Attention"; };
  op.getExecutionProviderType = constantly<(const char *)nullptr>;
  op.getInputType = [](const ort::CustomOp *op, size_t index) {
    return index == kQ ? static_cast<const TypedOp *>(op)->type : 0;
  };
  op.getInputTypeCount = constantly<size_t(kNumInputs)>;
  op.getOutputType = [](const ort::CustomOp *op, size_t) {
    return static_cast<const TypedOp *>(op)->type;
  };
  op.getOutputTypeCount = constantly<size_t(kNumOutputs)>;
  op.kernelDestroy = [](void *kernel) { delete static_cast<Kernel *>(kernel); };
  op.getInputCharacteristic = [](const ort::CustomOp *, size_t index) {
    return index <= kV ? ort::kRequired : ort::kOptional;
  };
  op.getOutputCharacteristic = [](const ort::CustomOp *, size_t index) {
    return index == kY ? ort::kRequired : ort::kOptional;
  };
  op.getInputMemoryType = constantly<ort::kDefaultMemory>;
  op.getVariadicInputMinArity = op.getVariadicInputHomogeneity = constantly<0>;
  op.getVariadicOutputMinArity = op.getVariadicOutputHomogeneity = constantly<0>;
  op.createKernelV2 = createKernel;
  op.kernelComputeV2 = compute;
  return op;
}

} // namespace

/// Called by SessionOptions.register_custom_ops_library.
extern "C" __attribute__((visibility("default"))) ort::Status *
RegisterCustomOps(ort::SessionOptions *options, const ort::ApiBase *base) {
  const ort::Api *api = base->getApi(ort::kApiVersion);
  if (!api) // an older version: only its first API can report that
    return ort::createStatus(
        base->getApi(1), ort::kFail,
        (std::string("expected ONNX Runtime 1.16 or newer but got ") + base->getVersionString())
            .c_str());
  // A session refers to these ops as long as it exists.
  static const TypedOp ops[] = {
      {makeOp(), kFloat}, {makeOp(), kFloat16}, {makeOp(), kBFloat16}, {makeOp(), kDouble}};
  ort::CustomOpDomain *domain = nullptr;
  if (ort::Status *status = ort::createCustomOpDomain(api, "flashattn", &domain))
    return status;
  for (const TypedOp &op : ops)
    if (ort::Status *status = ort::customOpDomainAdd(api, domain, &op))
      return status;
  return ort::addCustomOpDomain(api, options, domain);
}
