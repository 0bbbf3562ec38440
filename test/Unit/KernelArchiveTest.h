//===- KernelArchiveTest.h - an archive for the unit tests ------*- C++ -*-===//

#ifndef FLASHATTN_TEST_UNIT_KERNELARCHIVETEST_H
#define FLASHATTN_TEST_UNIT_KERNELARCHIVETEST_H

#include <string>

/// Writes an archive with cubins, of which the fake driver reads only the first byte. Returns its
/// path, for FLASHATTN_KERNELS.
std::string makeKernelArchive();

#endif // FLASHATTN_TEST_UNIT_KERNELARCHIVETEST_H
