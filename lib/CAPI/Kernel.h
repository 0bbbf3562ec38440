//===- Kernel.h - the kernel of a handle ------------------------*- C++ -*-===//

#ifndef FLASHATTN_LIB_CAPI_KERNEL_H
#define FLASHATTN_LIB_CAPI_KERNEL_H

#include "KernelCode.h"
#include "Status.h"
#include "flashattn/Pipelines/Compile.h"
#include "flashattn/Pipelines/Signature.h"
#include "flashattn/Runtime/Executable.h"
#include "flashattn/Runtime/Model.h"

#include <deque>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

namespace mlir::flashattn::capi {

/// Immutable after its creation except for the texts, so that threads may share it.
struct Kernel : Signature {
  std::string chip;
  int32_t deviceNumber = FLASHATTN_DEVICE_AUTO;
  /// The names of `texts`, in the order in which these are generated.
  std::vector<std::string> stages;
  /// Long texts that are rarely requested are generated on request, with `options`, from the text
  /// of the stage "mlir".
  mutable std::deque<Stage> texts;
  mutable std::mutex textsMutex;
  CompileOptions options;
  FlashAttnStatus reasonStatus = FLASHATTN_ERROR_UNSUPPORTED;
  /// As in FlashAttnKernelInfo: -1 if it depends on the arguments of a launch.
  int64_t workspaceBytes = 0;

  std::unique_ptr<Device> device;
  ModelDevice *model = nullptr;           ///< the device, if it is a model
  std::unique_ptr<Executable> executable; ///< destroyed before its device
  Executable::Entry entry = nullptr;
};

/// Returns the text of a stage, which is valid as long as the kernel; null, with the message set,
/// if the name is unknown or the text cannot be generated.
const std::string *getText(const Kernel &kernel, StringRef stage);

/// Adds a kernel to the table of handles. Errors: the table is full.
int32_t makeHandle(std::unique_ptr<Kernel> kernel, FlashAttnKernel *handle);

/// Returns the kernel of a handle; null, with the message set, if the handle is invalid.
const Kernel *getKernel(FlashAttnKernel handle);

} // namespace mlir::flashattn::capi

#endif // FLASHATTN_LIB_CAPI_KERNEL_H
