//===- KernelArchiveTest.h - an archive for a process's tests ----*- C++ -*-===//

#ifndef FLASHATTN_TEST_UNIT_KERNELARCHIVETEST_H
#define FLASHATTN_TEST_UNIT_KERNELARCHIVETEST_H

#include <string>

/// Writes an archive with cubins, of which the fake driver reads the first byte; its path, for
/// FLASHATTN_KERNELS.
std::string makeKernelArchive();

#endif // FLASHATTN_TEST_UNIT_KERNELARCHIVETEST_H
