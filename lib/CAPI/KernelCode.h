//===- KernelCode.h - all that is compiled of a module ----------*- C++ -*-===//

#ifndef FLASHATTN_LIB_CAPI_KERNELCODE_H
#define FLASHATTN_LIB_CAPI_KERNELCODE_H

#include "flashattn/Runtime/HostCode.h"

#include <string>
#include <vector>

namespace mlir::flashattn::capi {

/// A kernel's text behind a part of the compiler.
struct Stage {
  std::string name, text;
};

/// What the compiler said of a module, as of FlashAttnDiagnosticCallback.
struct Remark {
  int64_t severity;
  std::string file;
  int64_t line, column;
  std::string message;
};

/// What compilation makes of a module, and what is kept of it on disk.
struct KernelCode {
  /// All that are not made again from the module when somebody asks for them.
  std::vector<Stage> stages;
  std::vector<Remark> remarks;
  /// Of FlashAttnKernelInfo: -1 where it depends on the arguments of a launch.
  int64_t workspaceBytes = 0;
  /// Without object where there is none that could be launched.
  HostImage image;

  std::string toBytes() const;
  /// Whether `bytes` are those of toBytes; `this` is undefined where not.
  bool fromBytes(StringRef bytes);
};

} // namespace mlir::flashattn::capi

#endif // FLASHATTN_LIB_CAPI_KERNELCODE_H
