//===- Kernel.h - what a handle stands for ----------------------*- C++ -*-===//

#ifndef FLASHATTN_LIB_CAPI_KERNEL_H
#define FLASHATTN_LIB_CAPI_KERNEL_H

#include "KernelCode.h"
#include "Status.h"
#include "flashattn/Pipelines/Signature.h"
#include "flashattn/Runtime/Executable.h"
#include "flashattn/Runtime/Model.h"

#include <memory>
#include <string>
#include <vector>

namespace mlir::flashattn::capi {

/// Never changes once it is made, so that threads may share it.
struct Kernel : Signature {
  std::string chip;
  int32_t deviceNumber = FLASHATTN_DEVICE_AUTO;
  std::vector<Stage> stages;
  FlashAttnStatus reasonStatus = FLASHATTN_ERROR_UNSUPPORTED;
  /// Of FlashAttnKernelInfo: -1 where it depends on the arguments of a launch.
  int64_t workspaceBytes = 0;

  std::unique_ptr<Device> device;
  ModelDevice *model = nullptr;           ///< the device, where it is a model
  std::unique_ptr<Executable> executable; ///< goes before its device
  Executable::Entry entry = nullptr;
};

/// Puts a kernel into the table of handles. Errors: the table is full.
int32_t makeHandle(std::unique_ptr<Kernel> kernel, FlashAttnKernel *handle);

/// The kernel of a handle; null, with the message set, for what is none.
const Kernel *getKernel(FlashAttnKernel handle);

} // namespace mlir::flashattn::capi

#endif // FLASHATTN_LIB_CAPI_KERNEL_H
