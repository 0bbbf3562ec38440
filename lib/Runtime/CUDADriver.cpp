//===- CUDADriver.cpp - opens the CUDA driver ------------------------------===//

#include "CUDADriver.h"
#include "Errors.h"
#include "llvm/ADT/StringExtras.h"

#include <cstdlib>
#include <dlfcn.h>
#include <optional>

using namespace mlir::flashattn;
using namespace mlir::flashattn::cuda;
using llvm::StringRef;

namespace {
/// The oldest driver with PTX 7.0, which sm_80 needs.
constexpr int kMinDriverVersion = 11000;

/// The driver, or why there is none.
struct Opened {
  Driver driver;
  std::string error;
};
} // namespace

std::string Driver::describe(Result result) const {
  const char *name = nullptr, *text = nullptr;
  getErrorName(result, &name);
  getErrorString(result, &text);
  if (!name)
    return llvm::formatv("CUDA error {0}", result).str();
  return llvm::formatv("{0} ({1})", name, text ? text : "no description").str();
}

static std::string formatCUDAVersion(int version) {
  return llvm::formatv("{0}.{1}", version / 1000, version % 1000 / 10).str();
}

/// Fills the table; returns what went wrong, or nothing.
static std::string open(Driver &driver) {
  const char *given = std::getenv("FLASHATTN_CUDA_DRIVER");
  const char *path = given && *given ? given : "libcuda.so.1";
  void *library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
  if (!library)
    return llvm::formatv("cannot open the CUDA driver library '{0}': {1}", path, dlerror()).str();

  const char *missing = nullptr;
  auto resolve = [&](auto &member, const char *name) {
    void *symbol = dlsym(library, name);
    if (!symbol && !missing)
      missing = name;
    member = reinterpret_cast<std::decay_t<decltype(member)>>(symbol);
  };
#define X(member, name, parameters) resolve(driver.member, name);
  FLASHATTN_CUDA_FUNCTIONS(X)
#undef X
  if (missing)
    return llvm::formatv("the CUDA driver library '{0}' has no function '{1}': it is too old, or "
                         "not a CUDA driver",
                         path, missing)
        .str();
  auto find = [&](auto &function, const char *name) {
    function = reinterpret_cast<std::decay_t<decltype(function)>>(dlsym(library, name));
  };
  find(driver.memPoolCreate, "cuMemPoolCreate");
  find(driver.memPoolSetAttribute, "cuMemPoolSetAttribute");
  find(driver.memAllocFromPoolAsync, "cuMemAllocFromPoolAsync");
  find(driver.memFreeAsync, "cuMemFreeAsync");
  find(driver.launchKernelEx, "cuLaunchKernelEx");
  find(driver.tensorMapEncodeTiled, "cuTensorMapEncodeTiled");

  // The version needs no device, so that a driver that is too old says so first.
  if (Result result = driver.driverGetVersion(&driver.version))
    return "cannot ask the CUDA driver for its version: " + driver.describe(result);
  if (driver.version < kMinDriverVersion)
    return llvm::formatv("the CUDA driver is too old: expected CUDA {0} or newer but got {1}",
                         formatCUDAVersion(kMinDriverVersion), formatCUDAVersion(driver.version))
        .str();
  Result result = driver.init(0);
  if (result == kSuccess)
    result = driver.deviceGetCount(&driver.deviceCount);
  if (result == kNoDevice || (result == kSuccess && driver.deviceCount == 0))
    return "the CUDA driver finds no device";
  if (result != kSuccess)
    return "cannot initialise the CUDA driver: " + driver.describe(result);
  return {};
}

llvm::Expected<const Driver &> cuda::getDriver() {
  static Opened opened = [] {
    Opened result;
    result.error = open(result.driver);
    return result;
  }();
  if (!opened.error.empty())
    return makeError(opened.error);
  return opened.driver;
}

int cuda::getMaxPTXVersion(int version) {
  int major = version / 1000, minor = version % 1000 / 10;
  // CUDA M.m has PTX (M - 4).m: 11.0 has 7.0, 12.0 has 8.0, 13.0 has 9.0. The exception:
  // 12.5 and 12.6 share PTX 8.5, so 12.6 to 12.9 are one behind.
  if (major == 12 && minor >= 6)
    --minor;
  return (major - 4) * 10 + std::min(minor, 9);
}

/// The text behind `directive` at the start of a line.
static std::optional<StringRef> findDirective(StringRef ptx, StringRef directive) {
  while (!ptx.empty()) {
    auto [line, rest] = ptx.split('\n');
    line = line.trim();
    if (line.consume_front(directive))
      return line.trim();
    ptx = rest;
  }
  return std::nullopt;
}

PTXHeader cuda::parsePTXHeader(StringRef ptx) {
  PTXHeader header;
  // The directives stand at the top; kernels may be megabytes.
  StringRef top = ptx.take_front(4096);
  if (std::optional<StringRef> version = findDirective(top, ".version")) {
    int major = 0, minor = 0;
    if (!version->consumeInteger(10, major) && version->consume_front(".") &&
        !version->consumeInteger(10, minor))
      header.version = major * 10 + minor;
  }
  if (std::optional<StringRef> target = findDirective(top, ".target")) {
    if (target->consume_front("sm_") && !target->consumeInteger(10, header.architecture) &&
        !target->empty() && (target->front() == 'a' || target->front() == 'f'))
      header.variant = target->front();
  }
  return header;
}
