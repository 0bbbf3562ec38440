//===- Devices.cpp - available devices ------------------------------------===//

#include "Status.h"
#include "flashattn/Pipelines/Compile.h"
#include "flashattn/Runtime/Device.h"
#include "flashattn/Runtime/ParallelFor.h"
#include "llvm/TargetParser/Host.h"

using namespace mlir::flashattn;
using namespace mlir::flashattn::capi;

template <size_t N> static void copyText(char (&to)[N], llvm::StringRef from) {
  from = from.take_front(N - 1);
  std::memcpy(to, from.data(), from.size());
  to[from.size()] = 0;
}

extern "C" int32_t flashattnGetDeviceCount(int32_t *count) {
  if (!count)
    return fail(FLASHATTN_ERROR_INVALID_ARGUMENT,
                "expected a pointer that receives the count but got null");
  *count = 0;
  auto devices = listCUDADevices();
  if (!devices)
    return fail(FLASHATTN_ERROR_DEVICE, devices.takeError());
  *count = devices->size();
  return FLASHATTN_OK;
}

extern "C" int32_t flashattnGetDeviceInfo(int32_t device, FlashAttnDeviceInfo *info) {
  if (int32_t status = checkStruct(info, "FlashAttnDeviceInfo"))
    return status;
  FlashAttnDeviceInfo result{};
  if (device == FLASHATTN_DEVICE_CPU) {
    copyText(result.name, llvm::sys::getHostCPUName());
    copyText(result.chip, "cpu");
    result.computeUnits = flashattnThreadCount();
    result.vectorWidth = getHostVectorWidth();
    fillStruct(info, result);
    return FLASHATTN_OK;
  }
  auto devices = listCUDADevices();
  if (!devices)
    return fail(FLASHATTN_ERROR_DEVICE, devices.takeError());
  if (device < 0 || size_t(device) >= devices->size())
    return failWith(FLASHATTN_ERROR_DEVICE, "expected a CUDA device number below {0} but got {1}",
                    devices->size(), device);
  auto driver = getCUDADriverInfo();
  if (!driver)
    return fail(FLASHATTN_ERROR_DEVICE, driver.takeError());
  const CUDADeviceInfo &found = (*devices)[device];
  copyText(result.name, found.name);
  copyText(result.chip, found.getChip());
  result.computeUnits = found.multiprocessors;
  result.memoryBytes = found.memoryBytes;
  result.sharedMemoryPerBlock = found.sharedMemoryPerBlock;
  result.driverVersion = driver->version;
  result.maxPTXVersion = driver->maxPTXVersion;
  fillStruct(info, result);
  return FLASHATTN_OK;
}
