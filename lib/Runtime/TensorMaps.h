//===- TensorMaps.h - what a tensor map can describe -------------*- C++ -*-===//

#ifndef FLASHATTN_RUNTIME_TENSORMAPS_H
#define FLASHATTN_RUNTIME_TENSORMAPS_H

#include "flashattn/Runtime/Device.h"

namespace mlir::flashattn {

/// The errors of Device::encodeTensorMap that are those of TMA.
llvm::Error checkTensorMap(const Device &device, const TensorMapShape &shape);

} // namespace mlir::flashattn

#endif // FLASHATTN_RUNTIME_TENSORMAPS_H
