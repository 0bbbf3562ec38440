//===- GuardedDevice.cpp --------------------------------------------------===//

#include "GuardedDevice.h"
#include "llvm/Support/FormatVariadic.h"

using namespace mlir::flashattn;
using llvm::Error;
using llvm::Expected;

GuardedDevice::~GuardedDevice() {
  for (auto &[address, buffer] : buffers)
    llvm::consumeError(inner.release(buffer.base));
}

Expected<void *> GuardedDevice::allocate(size_t bytes) {
  if (!guarding) {
    llvm::SmallVector<void *> &candidates = spare[bytes];
    if (!candidates.empty()) {
      void *address = candidates.pop_back_val();
      buffers[address].isReleased = false;
      buffers[address].sequence = sequence++;
      return address;
    }
  }
  size_t total = bytes + 2 * kMargin;
  if (total < bytes)
    return llvm::createStringError("out of memory: needed " + std::to_string(bytes) + " bytes");
  if (heldBytes > kMostHeldBytes)
    if (Error error = freeHeld())
      return error;
  Expected<void *> base = inner.allocate(total);
  if (!base && heldBytes != 0) {
    llvm::consumeError(base.takeError());
    if (Error error = freeHeld())
      return error;
    base = inner.allocate(total);
  }
  if (!base)
    return base.takeError();
  auto *address = static_cast<uint8_t *>(*base) + kMargin;
  buffers[address] = {*base, bytes, sequence++, guarding, false};
  inner.limit(*base, address, bytes);
  if (guarding) {
    if (Error error = inner.fill(*base, kGuard, kMargin))
      return error;
    if (Error error = inner.fill(address, kPoison, bytes))
      return error;
    if (Error error = inner.fill(address + bytes, kGuard, kMargin))
      return error;
  }
  return address;
}

Error GuardedDevice::release(void *address) {
  if (!address)
    return Error::success();
  auto found = buffers.find(address);
  if (found == buffers.end() || found->second.isReleased)
    return llvm::createStringError("the compiled code frees memory that it did not allocate");
  // Held until its margins are checked, or until it is reused.
  found->second.isReleased = true;
  if (guarding)
    heldBytes += found->second.bytes + 2 * kMargin;
  else
    spare[found->second.bytes].push_back(address);
  return Error::success();
}

Error GuardedDevice::freeHeld() {
  heldBytes = 0;
  if (Error error = checkMargins())
    return error;
  Error error = Error::success();
  buffers.remove_if([&](auto &entry) {
    if (!entry.second.isReleased || !entry.second.isGuarded)
      return false;
    error = llvm::joinErrors(std::move(error), inner.release(entry.second.base));
    return true;
  });
  return error;
}

Error GuardedDevice::releaseSince(size_t mark) {
  llvm::SmallVector<void *> live;
  for (auto &[address, buffer] : buffers)
    if (!buffer.isReleased && buffer.sequence >= mark)
      live.push_back(address);
  for (void *address : live)
    if (Error error = release(address))
      return error;
  return Error::success();
}

Error GuardedDevice::checkMargin(const Buffer &buffer, size_t begin, const char *side) {
  uint8_t bytes[kMargin];
  if (Error error = inner.copyToHost(bytes, static_cast<uint8_t *>(buffer.base) + begin, kMargin))
    return error;
  for (size_t i = 0; i < kMargin; ++i)
    if (bytes[i] != kGuard) {
      int64_t at = int64_t(begin + i) - int64_t(kMargin);
      return llvm::createStringError(
          llvm::formatv(
              "memory {0} a buffer of {1} bytes was written, at byte {2} from the buffer's start",
              side, buffer.bytes, at)
              .str());
    }
  return Error::success();
}

Error GuardedDevice::checkMargins() {
  if (Error error = inner.synchronize())
    return error;
  for (auto &[address, buffer] : buffers) {
    if (!buffer.isGuarded)
      continue;
    if (Error error = checkMargin(buffer, 0, "before"))
      return error;
    if (Error error = checkMargin(buffer, kMargin + buffer.bytes, "after"))
      return error;
  }
  return Error::success();
}
