//===- Cache.cpp - the user's cache of compiled code ----------------------===//

#include "Cache.h"
#include "Status.h"
#include "flashattn/Runtime/KernelArchive.h"
#include "flashattn/Target/Tuned.h"
#include "llvm/ADT/SmallString.h"
#include "llvm/Support/Path.h"

using namespace mlir::flashattn;

DiskCache capi::getDiskCache() {
  llvm::SmallString<128> folder(getUserCacheFolder());
  if (!folder.empty())
    llvm::sys::path::append(folder, "code");
  return DiskCache(folder);
}

extern "C" int32_t flashattnGetCacheInfo(FlashAttnCacheInfo *info) {
  if (int32_t status =
          capi::checkStruct(info, "FlashAttnCacheInfo", offsetof(FlashAttnCacheInfo, archiveFile)))
    return status;
  DiskCache cache = capi::getDiskCache();
  // The strings that were last returned on this thread.
  static thread_local std::string folder, offReason;
  folder = cache.getFolder();
  offReason = cache.getOffReason();
  DiskCache::Contents contents = cache.getContents();
  DiskCache::Counts counts = DiskCache::getCounts();
  FlashAttnCacheInfo result{};
  result.folder = folder.c_str();
  result.offReason = offReason.c_str();
  result.files = contents.files;
  result.bytes = contents.bytes;
  result.maxBytes = cache.getMaxBytes();
  result.found = counts.found;
  result.made = counts.made;
  const KernelArchive &archive = KernelArchive::get();
  result.archiveFile = archive.getPath().c_str();
  result.archiveOffReason = archive.getOffReason().c_str();
  result.archiveMembers = archive.size();
  result.archiveFound = KernelArchive::getNumFound();
  capi::fillStruct(info, result);
  return FLASHATTN_OK;
}
