//===- KernelCode.h - the compiled code of a module -------------*- C++ -*-===//

#ifndef FLASHATTN_LIB_CAPI_KERNELCODE_H
#define FLASHATTN_LIB_CAPI_KERNELCODE_H

#include "flashattn/Runtime/HostCode.h"

#include <string>
#include <vector>

namespace mlir::flashattn::capi {

/// A kernel's text after a stage of the compiler.
struct Stage {
  std::string name, text;
};

/// A diagnostic of the compiler, as for FlashAttnDiagnosticCallback.
struct Remark {
  int64_t severity;
  std::string file;
  int64_t line, column;
  std::string message;
};

/// The result of a compilation, as it is stored on disk.
struct KernelCode {
  /// All texts that are not generated again from the module on request.
  std::vector<Stage> stages;
  std::vector<Remark> remarks;
  /// As in FlashAttnKernelInfo: -1 if it depends on the arguments of a launch.
  int64_t workspaceBytes = 0;
  /// Without an object if nothing can be launched.
  HostImage image;

  std::string toBytes() const;
  /// Returns whether `bytes` are those of toBytes; if not, `this` is undefined.
  bool fromBytes(StringRef bytes);
};

} // namespace mlir::flashattn::capi

#endif // FLASHATTN_LIB_CAPI_KERNELCODE_H
