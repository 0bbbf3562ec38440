//===- FakeDriver.h - access to FakeCUDA.cpp for tests ----------*- C++ -*-===//

#ifndef FLASHATTN_TEST_UNIT_FAKEDRIVER_H
#define FLASHATTN_TEST_UNIT_FAKEDRIVER_H

#include "CUDADriver.h"
#include "FakeTensorMap.h"
#include "llvm/Support/Error.h"

#include <cstdlib>
#include <dlfcn.h>
#include <gtest/gtest.h>

namespace mlir::flashattn {

/// Sets an environment variable for a scope.
class ScopedEnv {
public:
  ScopedEnv(const char *name, const char *value) : name(name) { setenv(name, value, 1); }
  ~ScopedEnv() { unsetenv(name); }

private:
  const char *name;
};

template <typename T> std::string message(llvm::Expected<T> value) {
  return value ? "no error" : llvm::toString(value.takeError());
}
inline std::string message(llvm::Error error) {
  return error ? llvm::toString(std::move(error)) : "no error";
}

/// Returns a function that the fake driver exports for tests.
template <typename F> F *getFake(const char *name) {
  static void *library = dlopen(std::getenv("FLASHATTN_CUDA_DRIVER"), RTLD_NOW);
  return reinterpret_cast<F *>(dlsym(library, name));
}

/// Returns the function table of the fake driver, from which a test may remove functions.
inline cuda::Driver &getDriver() {
  const cuda::Driver *driver = nullptr;
  EXPECT_FALSE(cuda::getDriver(driver));
  return const_cast<cuda::Driver &>(*driver);
}

} // namespace mlir::flashattn

#endif // FLASHATTN_TEST_UNIT_FAKEDRIVER_H
