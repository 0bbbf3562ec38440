//===- Kernel.h - what a handle stands for ----------------------*- C++ -*-===//

#ifndef FLASHATTN_LIB_CAPI_KERNEL_H
#define FLASHATTN_LIB_CAPI_KERNEL_H

#include "Status.h"
#include "flashattn/Runtime/Executable.h"
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
  const char *role = "";
};

/// The arguments that are the operands of a function's only attention, or -1.
struct AttentionRoles {
  int q = -1, k = -1, v = -1, o = -1, lse = -1, offset = -1;
  int bias = -1, keep = -1, sinkLogits = -1, kvLen = -1;
  bool isBSHD = false;
};

struct Stage {
  std::string name, text;
};

/// Never changes once it is made, so that threads may share it.
struct Kernel {
  std::string function, chip, tuningKey;
  int32_t deviceNumber = FLASHATTN_DEVICE_AUTO;
  std::vector<Argument> arguments;
  AttentionRoles roles;
  std::vector<Stage> stages;
  /// Why it cannot be launched; empty where it can.
  std::string reason;
  FlashAttnStatus reasonStatus = FLASHATTN_ERROR_UNSUPPORTED;
  /// 64-bit words of all arguments' descriptors.
  size_t descriptorWords = 0;

  std::unique_ptr<Device> device;
  std::unique_ptr<Executable> executable; ///< goes before its device
  Executable::Entry entry = nullptr;
};

/// "f16" and the like.
const char *getName(int32_t elementType);

/// Fills arguments and roles, or `reason`, from the function as it was given.
void describe(Kernel &kernel, func::FuncOp function);

/// Puts a kernel into the table of handles. Errors: the table is full.
int32_t makeHandle(std::unique_ptr<Kernel> kernel, FlashAttnKernel *handle);

/// The kernel of a handle; null, with the message set, for what is none.
const Kernel *getKernel(FlashAttnKernel handle);

} // namespace mlir::flashattn::capi

#endif // FLASHATTN_LIB_CAPI_KERNEL_H
