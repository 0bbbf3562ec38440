//===- CUDADriver.cpp - opens the CUDA driver -----------------------------===//

#include "CUDADriver.h"
#include "flashattn/Support/Environment.h"

#include <algorithm>
#include <cstring>
#include <dlfcn.h>
#include <new>
#include <type_traits>

using namespace mlir::flashattn;
using namespace mlir::flashattn::cuda;

/// The first driver with PTX 7.0, which sm_80 requires.
static constexpr int kMinDriverVersion = 11000;

Text Driver::describe(Result result) const {
  const char *name = nullptr, *text = nullptr;
  getErrorName(result, &name);
  getErrorString(result, &text);
  if (!name)
    return Text::format("CUDA error %d", result);
  return Text::format("%s (%s)", name, text ? text : "no description");
}

static Text formatCUDAVersion(int version) {
  return Text::format("%d.%d", version / 1000, version % 1000 / 10);
}

/// Opens the library, and fills in the table.
static Fault open(Driver &driver) {
  const char *given = getVariable("FLASHATTN_CUDA_DRIVER");
  const char *path = given ? given : "libcuda.so.1";
  void *library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
  if (!library)
    return Fault::format("cannot open the CUDA driver library '%s': %s", path, dlerror());

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
    return Fault::format("the CUDA driver library '%s' has no function '%s': it is too old, or "
                         "not a CUDA driver",
                         path, missing);
  auto find = [&](auto &function, const char *name) {
    function = reinterpret_cast<std::decay_t<decltype(function)>>(dlsym(library, name));
  };
  find(driver.memPoolCreate, "cuMemPoolCreate");
  find(driver.memPoolSetAttribute, "cuMemPoolSetAttribute");
  find(driver.memAllocFromPoolAsync, "cuMemAllocFromPoolAsync");
  find(driver.memFreeAsync, "cuMemFreeAsync");
  find(driver.launchKernelEx, "cuLaunchKernelEx");
  find(driver.tensorMapEncodeTiled, "cuTensorMapEncodeTiled");

  // Reading the version requires no device, so a driver that is too old is reported first.
  if (Result result = driver.driverGetVersion(&driver.version))
    return Fault::format("cannot ask the CUDA driver for its version: %s",
                         driver.describe(result).chars);
  if (driver.version < kMinDriverVersion)
    return Fault::format("the CUDA driver is too old: expected CUDA %s or newer but got %s",
                         formatCUDAVersion(kMinDriverVersion).chars,
                         formatCUDAVersion(driver.version).chars);
  Result result = driver.init(0);
  if (result == kSuccess)
    result = driver.deviceGetCount(&driver.deviceCount);
  if (result == kNoDevice || (result == kSuccess && driver.deviceCount == 0))
    return Fault::format("the CUDA driver finds no device");
  if (result != kSuccess)
    return Fault::format("cannot initialise the CUDA driver: %s", driver.describe(result).chars);
  return {};
}

/// The driver, and the reason if there is none; created once and never freed.
static Driver theDriver;
static Fault *openFault;
static pthread_once_t opened = PTHREAD_ONCE_INIT;

Fault cuda::getDriver(const Driver *&driver) {
  pthread_once(&opened, [] {
    static char place[sizeof(Fault)];
    openFault = new (place) Fault(open(theDriver));
  });
  driver = &theDriver;
  return *openFault ? Fault::format("%s", openFault->getText()) : Fault();
}

int cuda::getMaxPTXVersion(int version) {
  int major = version / 1000, minor = version % 1000 / 10;
  // CUDA M.m has PTX (M - 4).m: 11.0 has 7.0, 12.0 has 8.0, 13.0 has 9.0. The exception:
  // 12.5 and 12.6 share PTX 8.5, so 12.6 to 12.9 are one behind.
  if (major == 12 && minor >= 6)
    --minor;
  return (major - 4) * 10 + std::min(minor, 9);
}

/// Returns the text after `directive` at the start of a line, among the first `size` characters;
/// null if there is none.
static const char *findDirective(const char *ptx, size_t size, const char *directive) {
  const size_t length = std::strlen(directive);
  const char *end = ptx + size;
  while (ptx < end) {
    ptx += std::strspn(ptx, " \t\r\n");
    if (std::strncmp(ptx, directive, length) == 0)
      return ptx + length + std::strspn(ptx + length, " \t");
    ptx += std::strcspn(ptx, "\n");
    if (!*ptx)
      break;
  }
  return nullptr;
}

PTXHeader cuda::parsePTXHeader(const char *ptx) {
  PTXHeader header;
  // The directives are at the top; kernels may have megabytes.
  const size_t top = strnlen(ptx, 4096);
  int major = 0, minor = 0;
  if (const char *version = findDirective(ptx, top, ".version"))
    if (std::sscanf(version, "%d.%d", &major, &minor) == 2)
      header.version = major * 10 + minor;
  int length = 0;
  if (const char *target = findDirective(ptx, top, ".target"))
    if (std::sscanf(target, "sm_%d%n", &header.architecture, &length) == 1 &&
        (target[length] == 'a' || target[length] == 'f'))
      header.variant = target[length];
  return header;
}
