//===- Kernel.h - what a handle stands for ----------------------*- C++ -*-===//

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

/// Never changes once it is made but for texts, so that threads may share it.
struct Kernel : Signature {
  std::string chip;
  int32_t deviceNumber = FLASHATTN_DEVICE_AUTO;
  /// The names of `texts`, in the order in which these are made.
  std::vector<std::string> stages;
  /// Those long ones that few ask for are made then, by `options`, of the text of the stage "mlir".
  mutable std::deque<Stage> texts;
  mutable std::mutex textsMutex;
  CompileOptions options;
  FlashAttnStatus reasonStatus = FLASHATTN_ERROR_UNSUPPORTED;
  /// Of FlashAttnKernelInfo: -1 where it depends on the arguments of a launch.
  int64_t workspaceBytes = 0;

  std::unique_ptr<Device> device;
  ModelDevice *model = nullptr;           ///< the device, where it is a model
  std::unique_ptr<Executable> executable; ///< goes before its device
  Executable::Entry entry = nullptr;
};

/// The text of a stage, which stays as long as the kernel; null, with the message set, for another
/// name or where it cannot be made.
const std::string *getText(const Kernel &kernel, StringRef stage);

/// Puts a kernel into the table of handles. Errors: the table is full.
int32_t makeHandle(std::unique_ptr<Kernel> kernel, FlashAttnKernel *handle);

/// The kernel of a handle; null, with the message set, for what is none.
const Kernel *getKernel(FlashAttnKernel handle);

} // namespace mlir::flashattn::capi

#endif // FLASHATTN_LIB_CAPI_KERNEL_H
