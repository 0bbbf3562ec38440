//===- KernelArchiveTest.cpp - precompiled kernels ------------------------===//

#include "KernelArchiveTest.h"
#include "FakeDriver.h"
#include "flashattn/Runtime/Device.h"
#include "flashattn/Runtime/DiskCache.h"
#include "flashattn/Runtime/KernelArchive.h"
#include "llvm/ADT/StringExtras.h"
#include "llvm/Object/ArchiveWriter.h"
#include "llvm/Support/FileSystem.h"
#include "llvm/Support/FileUtilities.h"
#include "llvm/Support/SHA256.h"

#include <gtest/gtest.h>

using namespace mlir;
using namespace mlir::flashattn;
using llvm::StringRef;

namespace {

constexpr StringRef kPTX = ".version 7.0\n.target sm_80\n.address_size 64\n// of an archive\n";
/// Suffixes of the PTX for which the archive of this process contains cubins.
constexpr StringRef kAssembled[] = {"// assembled\n", "// refused\n"};

std::string assembledPTX(StringRef end) { return (kPTX + end).str(); }

} // namespace

std::string makeKernelArchive() {
  llvm::SmallString<64> path;
  EXPECT_FALSE(llvm::sys::fs::createTemporaryFile("kernels", "a", path));
  std::vector<std::string> names;
  for (StringRef end : kAssembled)
    names.push_back(llvm::toHex(llvm::SHA256::hash(llvm::arrayRefFromStringRef(assembledPTX(end))),
                                /*LowerCase=*/true) +
                    ".cubin");
  std::vector<llvm::NewArchiveMember> members;
  for (const std::string &name : names)
    members.emplace_back(llvm::MemoryBufferRef("\x7f"
                                               "ELF of nothing",
                                               name));
  llvm::cantFail(llvm::writeArchive(path, members, llvm::SymtabWritingMode::NoSymtab,
                                    llvm::object::Archive::K_GNU, /*Deterministic=*/true,
                                    /*Thin=*/false));
  return path.str().str();
}

namespace {

TEST(CUDADevice, LoadsMachineCodeMadeAhead) {
  auto *loads = getFake<int()>("fakeCUDALoads"), *cubins = getFake<int()>("fakeCUDACubinLoads");
  auto device = llvm::cantFail(createCUDADevice(0));
  ASSERT_EQ(KernelArchive::get().getOffReason(), "");
  EXPECT_EQ(KernelArchive::get().size(), std::size(kAssembled));
  EXPECT_EQ(KernelArchive::get().findCubin(kPTX), "");
  int before = loads(), cubinsBefore = cubins();
  auto load = [&](StringRef ptx) {
    return message(device->getKernel(llvm::cantFail(device->addKernels(ptx)), "k"));
  };
  EXPECT_EQ(load(assembledPTX(kAssembled[0])), "no error");
  EXPECT_EQ(loads() - before, 1);
  EXPECT_EQ(cubins() - cubinsBefore, 1);
  // The driver compiles PTX whose cubin it rejects, or that is not in the archive.
  ScopedEnv refuses("FAKE_CUDA_CUBINS", "0");
  EXPECT_EQ(load(assembledPTX(kAssembled[1])), "no error");
  EXPECT_EQ(load((kPTX + "// not assembled\n").str()), "no error");
  EXPECT_EQ(loads() - before, 3);
  EXPECT_EQ(cubins() - cubinsBefore, 1);
}

TEST(KernelArchive, IsNobodyElses) {
  llvm::SmallString<64> folder;
  ASSERT_FALSE(llvm::sys::fs::createUniqueDirectory("kernels", folder));
  std::string file = (folder + "/kernels.a").str(), link = (folder + "/link.a").str();
  ASSERT_FALSE(llvm::sys::fs::copy_file(std::getenv("FLASHATTN_KERNELS"), file));
  ASSERT_FALSE(llvm::sys::fs::create_link(file, link));
  auto setMode = [](StringRef path, int mode) {
    return llvm::sys::fs::setPermissions(path, llvm::sys::fs::perms(mode));
  };
  ASSERT_FALSE(setMode(file, 0644));
  EXPECT_EQ(KernelArchive(file).getOffReason(), "");
  EXPECT_EQ(KernelArchive(link).getOffReason(), "");
  EXPECT_EQ(KernelArchive(link).size(), std::size(kAssembled));
  for (int mode : {0664, 0646}) {
    ASSERT_FALSE(setMode(file, mode));
    for (const std::string &path : {file, link})
      EXPECT_EQ(KernelArchive(path).getOffReason(),
                llvm::formatv("expected a file that only its owner may write to but got mode {0}",
                              mode == 0664 ? "0664" : "0646")
                    .str());
  }
  ASSERT_FALSE(setMode(file, 0600));
  ASSERT_FALSE(setMode(folder, 0777));
  EXPECT_EQ(KernelArchive(file).getOffReason(),
            "expected a folder that only its owner may write to but got mode 0777");
  EXPECT_EQ(KernelArchive(file).size(), 0u);
  ASSERT_FALSE(setMode(folder, 01777));
  EXPECT_EQ(KernelArchive(file).getOffReason(), "");
  // An archive next to this program may be as writable as the program's own folder, but not more.
  ASSERT_FALSE(setMode(folder, 0777));
  EXPECT_EQ(KernelArchive(file, /*isNamed=*/false).getOffReason(),
            "expected a folder that only its owner may write to but got mode 0777");
  ASSERT_FALSE(llvm::sys::fs::remove_directories(folder));
}

TEST(KernelArchive, SaysWhyNothingIsFound) {
  EXPECT_EQ(KernelArchive("/nowhere/kernels.a").getOffReason(), "No such file or directory");
  llvm::SmallString<64> path;
  ASSERT_FALSE(llvm::sys::fs::createTemporaryFile("kernels", "a", path));
  llvm::FileRemover remover(path);
  EXPECT_EQ(KernelArchive(path.str().str()).getOffReason(), "file too small to be an archive");
  // A truncated archive.
  auto whole = llvm::MemoryBuffer::getFile(std::getenv("FLASHATTN_KERNELS"));
  ASSERT_TRUE(whole);
  std::error_code error;
  llvm::raw_fd_ostream(path, error) << (*whole)->getBuffer().drop_back(40);
  KernelArchive cut(path.str().str());
  EXPECT_NE(cut.getOffReason(), "");
  EXPECT_EQ(cut.size(), 0u);
  EXPECT_EQ(cut.findCubin(assembledPTX(kAssembled[0])), "");
}

} // namespace

namespace {

// A key depends on the list of parts, not only on their concatenation.
TEST(DiskCache, TellsPartsApart) {
  llvm::SmallString<64> folder;
  ASSERT_FALSE(llvm::sys::fs::createUniqueDirectory("cache", folder));
  {
    ScopedEnv cached("FLASHATTN_CACHE", folder.c_str());
    DiskCache cache("");
    EXPECT_EQ(cache.getOffReason(), "");
    auto find = [&](llvm::ArrayRef<StringRef> parts, StringRef bytes) {
      std::string found;
      cache.find(
          parts,
          [&](StringRef stored) {
            found = stored.str();
            return true;
          },
          [&] { return bytes.str(); });
      return found;
    };
    EXPECT_EQ(find({"ab", "c"}, "first"), "");
    EXPECT_EQ(find({"ab", "c"}, "unused"), "first");
    EXPECT_EQ(find({"a", "bc"}, "second"), "");
    EXPECT_EQ(find({"abc"}, "third"), "");
    EXPECT_EQ(find({"abc", ""}, "fourth"), "");
    EXPECT_EQ(find({"a", "bc"}, "unused"), "second");
  }
  llvm::sys::fs::remove_directories(folder);
}

} // namespace
