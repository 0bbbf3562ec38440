//===- Kernel.h - what a handle stands for ----------------------*- C++ -*-===//

#ifndef FLASHATTN_LIB_CAPI_KERNEL_H
#define FLASHATTN_LIB_CAPI_KERNEL_H

#include "Status.h"
#include "flashattn/Runtime/Executable.h"
#include "flashattn/Runtime/Model.h"
#include "mlir/Dialect/Func/IR/FuncOps.h"

#include <memory>
#include <string>
#include <vector>

namespace mlir::flashattn::capi {

struct Argument {
  FlashAttnArgumentKind kind = FLASHATTN_ARGUMENT_MEMREF;
  FlashAttnElementType elementType = FLASHATTN_F32;
  int64_t elementBytes = 4;
  int32_t rank = 0;
  int32_t direction = 0;
  /// Promised by `flashattn.aligned_rows`: strides are checked, and the pointer.
  bool hasAlignedRows = false;
  /// The kernel's copies need it, promised or by its static layout.
  bool needsAlignedPointer = false;
  /// The strides are those of a dense array of its sizes.
  bool isDense = false;
  int64_t sizes[FLASHATTN_MAX_RANK] = {};   ///< -1 where any will do
  int64_t strides[FLASHATTN_MAX_RANK] = {}; ///< -1 where any will do
  /// A position (rule A3), which has 32 bits, or a factor (rule A1), which has a range.
  bool isPosition = false, isFactor = false;
  const char *role = "";
};

/// A dimension of an argument.
struct ArgumentDim {
  int argument, dim;
};

/// R1: a size that two arguments share, as operands of one op.
struct SharedSize {
  const char *name;
  ArgumentDim checked, expected;
};

/// A4: two arguments with the query heads and the key/value heads of one op.
struct SharedHeads {
  ArgumentDim queries, keys;
};

struct Stage {
  std::string name, text;
};

/// Never changes once it is made, so that threads may share it.
struct Kernel {
  std::string function, chip, tuningKey;
  int32_t deviceNumber = FLASHATTN_DEVICE_AUTO;
  std::vector<Argument> arguments;
  std::vector<SharedSize> sharedSizes;
  std::vector<SharedHeads> sharedHeads;
  std::vector<Stage> stages;
  /// Why it cannot be launched; empty where it can.
  std::string reason;
  FlashAttnStatus reasonStatus = FLASHATTN_ERROR_UNSUPPORTED;
  /// Of FlashAttnKernelInfo: -1 where it depends on the arguments of a launch.
  int64_t workspaceBytes = 0;
  /// 64-bit words of all arguments' descriptors.
  size_t descriptorWords = 0;

  std::unique_ptr<Device> device;
  ModelDevice *model = nullptr;           ///< the device, where it is a model
  std::unique_ptr<Executable> executable; ///< goes before its device
  Executable::Entry entry = nullptr;
};

/// "f16" and the like.
const char *getName(int32_t elementType);

/// Fills arguments, their roles and what they share, or `reason`, from the function as it was
/// given.
void describe(Kernel &kernel, func::FuncOp function);

/// Puts a kernel into the table of handles. Errors: the table is full.
int32_t makeHandle(std::unique_ptr<Kernel> kernel, FlashAttnKernel *handle);

/// The kernel of a handle; null, with the message set, for what is none.
const Kernel *getKernel(FlashAttnKernel handle);

} // namespace mlir::flashattn::capi

#endif // FLASHATTN_LIB_CAPI_KERNEL_H
