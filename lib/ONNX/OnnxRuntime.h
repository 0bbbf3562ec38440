//===- OnnxRuntime.h - custom op ABI of ONNX Runtime ------------*- C++ -*-===//
//
// The types and the few functions that a library of custom ops uses, declared here so that no
// headers of ONNX Runtime are needed. Layouts, numbers and the order of functions are those of
// version 16 of the C API (onnxruntime/core/session/onnxruntime_c_api.h), which later versions
// keep: functions are only ever added at the end of OrtApi.
//
//===----------------------------------------------------------------------===//

#ifndef FLASHATTN_LIB_ONNX_ONNXRUNTIME_H
#define FLASHATTN_LIB_ONNX_ONNXRUNTIME_H

#include <cstddef>
#include <cstdint>

namespace mlir::flashattn::onnx::ort {

/// ORT_API_VERSION of ONNX Runtime 1.16, the first version in which custom ops return errors.
constexpr uint32_t kApiVersion = 16;

enum ErrorCode : int { kFail = 1, kInvalidArgument = 2, kNotImplemented = 9 };
enum Characteristic : int { kRequired = 0, kOptional = 1 };
enum MemoryType : int { kDefaultMemory = 0 };

struct Status;
struct KernelInfo;
struct KernelContext;
struct SessionOptions;
struct CustomOpDomain;
struct TensorInfo; ///< OrtTensorTypeAndShapeInfo
struct Value;

/// OrtApi: a table of functions.
using Function = void (*)();
using Api = Function;

/// OrtApiBase.
struct ApiBase {
  const Api *(*getApi)(uint32_t version);
  const char *(*getVersionString)();
};

/// A function of the table, with its index and its type. A Status is null for success; the caller
/// releases it.
template <size_t Index, typename Type> struct Entry;
template <size_t Index, typename Return, typename... Arguments>
struct Entry<Index, Return(Arguments...)> {
  Return operator()(const Api *api, Arguments... arguments) const {
    return reinterpret_cast<Return (*)(Arguments...)>(api[Index])(arguments...);
  }
};

constexpr Entry<0, Status *(ErrorCode, const char *message)> createStatus;
constexpr Entry<26, Status *(const char *name, CustomOpDomain **)> createCustomOpDomain;
constexpr Entry<27, Status *(CustomOpDomain *, const struct CustomOp *)> customOpDomainAdd;
constexpr Entry<28, Status *(SessionOptions *, CustomOpDomain *)> addCustomOpDomain;
constexpr Entry<51, Status *(Value *, void **data)> getTensorMutableData;
constexpr Entry<60, Status *(const TensorInfo *, int32_t *type)> getTensorElementType;
constexpr Entry<61, Status *(const TensorInfo *, size_t *rank)> getDimensionsCount;
constexpr Entry<62, Status *(const TensorInfo *, int64_t *sizes, size_t rank)> getDimensions;
constexpr Entry<65, Status *(const Value *, TensorInfo **)> getTensorInfo;
constexpr Entry<85, Status *(const KernelInfo *, const char *name, float *)> getAttributeFloat;
constexpr Entry<86, Status *(const KernelInfo *, const char *name, int64_t *)> getAttributeInt;
constexpr Entry<87, Status *(const KernelInfo *, const char *name, char *, size_t *)>
    getAttributeString;
constexpr Entry<88, Status *(const KernelContext *, size_t *count)> getInputCount;
constexpr Entry<89, Status *(const KernelContext *, size_t *count)> getOutputCount;
/// The value is null for an omitted input.
constexpr Entry<90, Status *(const KernelContext *, size_t index, const Value **)> getInput;
/// The value is null for an omitted output.
constexpr Entry<91, Status *(KernelContext *, size_t index, const int64_t *sizes, size_t rank,
                             Value **)>
    getOutput;
constexpr Entry<93, void(Status *)> releaseStatus;
constexpr Entry<99, void(TensorInfo *)> releaseTensorInfo;

/// OrtCustomOp of that version. Types of inputs and outputs are DataType, or 0 for any type.
struct CustomOp {
  uint32_t version;
  void *(*createKernel)(const CustomOp *, const Api *, const KernelInfo *); ///< unused: see V2
  const char *(*getName)(const CustomOp *);
  const char *(*getExecutionProviderType)(const CustomOp *); ///< null: the CPU
  int32_t (*getInputType)(const CustomOp *, size_t index);
  size_t (*getInputTypeCount)(const CustomOp *);
  int32_t (*getOutputType)(const CustomOp *, size_t index);
  size_t (*getOutputTypeCount)(const CustomOp *);
  void (*kernelCompute)(void *kernel, KernelContext *); ///< unused: see V2
  void (*kernelDestroy)(void *kernel);
  Characteristic (*getInputCharacteristic)(const CustomOp *, size_t index);
  Characteristic (*getOutputCharacteristic)(const CustomOp *, size_t index);
  MemoryType (*getInputMemoryType)(const CustomOp *, size_t index);
  int (*getVariadicInputMinArity)(const CustomOp *);
  int (*getVariadicInputHomogeneity)(const CustomOp *);
  int (*getVariadicOutputMinArity)(const CustomOp *);
  int (*getVariadicOutputHomogeneity)(const CustomOp *);
  Status *(*createKernelV2)(const CustomOp *, const Api *, const KernelInfo *, void **kernel);
  Status *(*kernelComputeV2)(void *kernel, KernelContext *);
};

} // namespace mlir::flashattn::onnx::ort

#endif // FLASHATTN_LIB_ONNX_ONNXRUNTIME_H
