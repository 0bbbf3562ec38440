//===- Call.cpp - calls of AOT-compiled code ------------------------------===//
//
// Converts the numbers of a C function to descriptors, checks them against the function's table,
// and calls the code for the device. Allocates memory only for messages.
//
//===----------------------------------------------------------------------===//

#include "Context.h"
#include "flashattn-c/AheadOfTime.h"
#include "flashattn/Runtime/AOTABI.h"
#include "flashattn/Runtime/Overlap.h"

#include <algorithm>
#include <cstring>
#if defined(__x86_64__)
#include <cpuid.h>
#endif

using namespace mlir::flashattn;
using namespace mlir::flashattn::aot;

//===----------------------------------------------------------------------===//
// Messages
//===----------------------------------------------------------------------===//

/// Keeps the message until the next one on the thread. Uses a key instead of thread_local, because
/// the loader has little thread-local storage for libraries that are loaded later.
static const char *keep(Fault fault) {
  static pthread_key_t key;
  static pthread_once_t made = PTHREAD_ONCE_INIT;
  if (!fault)
    return nullptr;
  pthread_once(&made, [] {
    pthread_key_create(&key, std::free);
    // Keys are scarce, and the library may be unloaded and loaded again.
    std::atexit([] { pthread_key_delete(key); });
  });
  std::free(pthread_getspecific(key));
  char *text = strdup(fault.getText());
  pthread_setspecific(key, text);
  return text ? text : "out of memory on the CPU";
}

//===----------------------------------------------------------------------===//
// Devices
//===----------------------------------------------------------------------===//

/// Returns N of x86-64-vN: the level that this processor supports, and whose registers the system
/// saves. The compiler's own function for this differs between versions of its support library.
static int getCPULevel() {
#if defined(__x86_64__)
  unsigned a, b, c, d;
  auto has = [](unsigned word, unsigned bits) { return (word & bits) == bits; };
  constexpr unsigned kXSave = 1u << 27, kLevel2 = bit_SSE3 | bit_SSSE3 | bit_SSE4_1 | bit_SSE4_2 |
                                                  bit_POPCNT | bit_CMPXCHG16B;
  if (!__get_cpuid(1, &a, &b, &c, &d) || !has(c, kLevel2))
    return 1;
  if (!has(c, kXSave | bit_AVX | bit_FMA | bit_F16C | bit_MOVBE))
    return 2;
  unsigned saved, high;
  __asm__("xgetbv" : "=a"(saved), "=d"(high) : "c"(0));
  if (!has(saved, 6) || !__get_cpuid_count(7, 0, &a, &b, &c, &d) ||
      !has(b, bit_AVX2 | bit_BMI | bit_BMI2))
    return 2;
  if (!has(saved, 0xe6) ||
      !has(b, bit_AVX512F | bit_AVX512BW | bit_AVX512CD | bit_AVX512DQ | bit_AVX512VL))
    return 3;
  return 4;
#else
  return 1;
#endif
}

/// Returns text such as "sm_90a, sm_80 and cpu".
static Text listChips(const Function &function) {
  Text text;
  size_t used = 0;
  for (int64_t i = 0; i < function.numVariants && used < sizeof(text.chars); ++i)
    used += std::snprintf(text.chars + used, sizeof(text.chars) - used, "%s%s",
                          i == 0                          ? ""
                          : i + 1 == function.numVariants ? " and "
                                                          : ", ",
                          function.variants[i].chip);
  return text;
}

/// Returns the code for a GPU: that of its own architecture, or else that of the newest earlier
/// one; null if there is none.
static const Variant *findVariant(const Function &function, const cuda::Driver &driver,
                                  const cuda::CardInfo &card) {
  const Variant *best = nullptr;
  auto getRank = [](const Variant &variant) {
    return variant.architecture * 2 + (variant.variant != 0);
  };
  for (int64_t i = 0; i < function.numVariants; ++i) {
    const Variant &variant = function.variants[i];
    if (variant.architecture != 0 && variant.ptxVersion <= cuda::getMaxPTXVersion(driver.version) &&
        cuda::runsOn(variant.architecture, variant.variant, card.getCapability()) &&
        (!best || getRank(variant) > getRank(*best)))
      best = &variant;
  }
  return best;
}

static Fault findCPUVariant(const Function &function, const Variant *&found) {
  for (int64_t i = 0; i < function.numVariants; ++i) {
    const Variant &variant = function.variants[i];
    if (variant.architecture != 0)
      continue;
    if (variant.cpuLevel > getCPULevel())
      return Fault::format("%s: expected a processor of x86-64-v%d but got one of x86-64-v%d",
                           function.name, int(variant.cpuLevel), getCPULevel());
    found = &variant;
    return {};
  }
  return Fault::format("%s: expected a CUDA device that runs code for %s but got the CPU",
                       function.name, listChips(function).chars);
}

extern "C" int32_t flashattnAOTFindDevice(const Function *function, const char **reason) {
  const cuda::Driver *driver = nullptr;
  Fault fault = cuda::getDriver(driver);
  for (int i = 0; !fault && i < driver->deviceCount; ++i)
    if (findVariant(*function, *driver, cuda::getInfo(*driver, i))) {
      if (reason)
        *reason = nullptr;
      return i;
    }
  if (!fault)
    fault = Fault::format("%s: expected a CUDA device that runs code for %s but got sm_%d",
                          function->name, listChips(*function).chars,
                          cuda::getInfo(*driver, 0).getCapability());
  const char *why = keep(std::move(fault));
  if (reason)
    *reason = why;
  return FLASHATTN_AOT_CPU;
}

//===----------------------------------------------------------------------===//
// Arguments
//===----------------------------------------------------------------------===//

namespace {
/// The arguments of a call in the form that compiled code expects.
struct Call {
  const Function &function;
  /// {allocated, aligned, offset, sizes, strides} of each tensor.
  int64_t descriptors[kMaxArguments][3 + 2 * kMaxRank];
  /// The value of a scalar, or the address of a descriptor.
  int64_t values[kMaxArguments];
  void *addresses[kMaxArguments];

  Fault take(const int64_t *numbers);
  int64_t getSize(int64_t argument, int64_t dim) const { return descriptors[argument][3 + dim]; }

private:
  Fault takeTensor(const Argument &argument, int64_t *descriptor, const int64_t *&numbers);
  Fault checkScalar(const Argument &argument, int64_t value);
  Fault checkShared();
  Fault checkOverlaps();
  TensorPlace getPlace(int64_t argument) const;
};
} // namespace

Fault Call::takeTensor(const Argument &argument, int64_t *descriptor, const int64_t *&numbers) {
  const int64_t data = *numbers++, rank = argument.rank;
  int64_t *sizes = descriptor + 3, *strides = sizes + rank;
  descriptor[0] = descriptor[1] = data;
  descriptor[2] = 0;
  bool isEmpty = false;
  for (int64_t d = 0; d < rank; ++d) {
    sizes[d] = argument.sizes[d] >= 0 ? argument.sizes[d] : *numbers++;
    // Positions have 32 bits.
    if (sizes[d] < 0 || sizes[d] > INT32_MAX)
      return Fault::format("%s: expected size 0 to 2147483647 in dimension %ld of '%s' but got %ld",
                           function.name, d, argument.name, sizes[d]);
    isEmpty |= sizes[d] == 0;
  }
  int64_t dense = 1;
  for (int64_t d = 0; d < rank; ++d)
    if (!argument.isDense)
      strides[d] = argument.strides[d] >= 0 ? argument.strides[d] : *numbers++;
  for (int64_t d = rank; argument.isDense && d-- > 0; dense *= sizes[d])
    strides[d] = dense;
  // No element is accessed.
  if (isEmpty)
    return {};
  if (!data)
    return Fault::format("%s: expected data of '%s' but got null", function.name, argument.name);
  if (data % argument.alignment != 0)
    return Fault::format(
        "%s: expected data of '%s' at an address that is a multiple of %ld bytes but got %p",
        function.name, argument.name, argument.alignment, reinterpret_cast<void *>(data));
  constexpr int64_t kChunkBytes = 16;
  for (int64_t d = 0; d < rank; ++d) {
    // The stride of a dimension of size 1 is never used.
    if (sizes[d] == 1)
      continue;
    if (strides[d] < (argument.isWritten ? 1 : 0))
      return Fault::format("%s: expected stride %d or more in dimension %ld of '%s' but got %ld",
                           function.name, argument.isWritten ? 1 : 0, d, argument.name, strides[d]);
    if (argument.hasAlignedRows && d + 1 != rank &&
        strides[d] * argument.elementBytes % kChunkBytes != 0)
      return Fault::format("%s: expected a stride that is a multiple of %ld elements, 16 bytes, in "
                           "dimension %ld of '%s' but got %ld",
                           function.name, kChunkBytes / argument.elementBytes, d, argument.name,
                           strides[d]);
  }
  return {};
}

Fault Call::checkScalar(const Argument &argument, int64_t value) {
  if (argument.isPosition && value != int32_t(value))
    return Fault::format("%s: expected '%s' from -2147483648 to 2147483647 but got %ld",
                         function.name, argument.name, value);
  float factor;
  std::memcpy(&factor, &value, sizeof(factor));
  if (argument.isFactor && !(factor >= 0.999e-18 && factor <= 1.001e18))
    return Fault::format("%s: expected '%s' from 1e-18 to 1e18 but got %g", function.name,
                         argument.name, factor);
  return {};
}

Fault Call::checkShared() {
  for (int64_t i = 0; i < function.numShared; ++i) {
    const Shared &shared = function.shared[i];
    const int64_t size = getSize(shared.checked, shared.checkedDim);
    const int64_t expected = getSize(shared.expected, shared.expectedDim) + shared.more;
    const char *name = function.arguments[shared.checked].name;
    const char *other = function.arguments[shared.expected].name;
    if (shared.what && size != expected)
      return Fault::format("%s: expected %s of '%s' to be %ld %s '%s' but got %ld", function.name,
                           shared.what, name, expected, shared.more ? "to match" : "as in", other,
                           size);
    if (!shared.what && (expected == 0 ? size != 0 : size % expected != 0))
      return Fault::format("%s: expected the query heads of '%s' to be a multiple of the %ld "
                           "key/value heads of '%s' but got %ld",
                           function.name, name, expected, other, size);
  }
  return {};
}

TensorPlace Call::getPlace(int64_t i) const {
  const Argument &argument = function.arguments[i];
  if (!argument.isTensor)
    return {};
  const int64_t *sizes = descriptors[i] + 3, *strides = sizes + argument.rank;
  return {uintptr_t(descriptors[i][0]), Sizes(sizes, argument.rank), Sizes(strides, argument.rank),
          argument.elementBytes};
}

/// Checks that no output shares memory with another argument.
Fault Call::checkOverlaps() {
  for (int64_t i = 0; i < function.numArguments; ++i) {
    if (!function.arguments[i].isWritten)
      continue;
    const TensorPlace output = getPlace(i);
    for (int64_t j = 0; j < function.numArguments; ++j)
      if (j != i && shareMemory(output, getPlace(j)))
        return Fault::format("%s: expected the output '%s' to share no memory with '%s' but got "
                             "overlapping memory",
                             function.name, function.arguments[i].name, function.arguments[j].name);
  }
  return {};
}

Fault Call::take(const int64_t *numbers) {
  for (int64_t i = 0; i < function.numArguments; ++i) {
    const Argument &argument = function.arguments[i];
    addresses[i] = &values[i];
    if (!argument.isTensor) {
      values[i] = *numbers++;
      if (Fault fault = checkScalar(argument, values[i]))
        return fault;
      continue;
    }
    values[i] = reinterpret_cast<intptr_t>(descriptors[i]);
    if (Fault fault = takeTensor(argument, descriptors[i], numbers))
      return fault;
  }
  if (Fault fault = checkShared())
    return fault;
  return checkOverlaps();
}

static Fault runCall(const Function &function, int32_t device, void *stream,
                     const int64_t *numbers) {
  Call call{function, {}, {}, {}};
  const Variant *variant = nullptr;
  if (device == FLASHATTN_AOT_CPU) {
    if (Fault fault = findCPUVariant(function, variant))
      return fault;
    if (stream)
      return Fault::format("%s: expected no stream on the CPU but got %p", function.name, stream);
    if (Fault fault = call.take(numbers))
      return fault;
    variant->entry(call.addresses);
    return {};
  }
  cuda::Card *card;
  if (Fault fault = cuda::Card::get(device, card))
    return fault;
  variant = findVariant(function, card->getDriver(), card->getInfo());
  if (!variant)
    return Fault::format(
        "%s: expected a device that runs code for %s but got %s, which is sm_%d with CUDA %d.%d",
        function.name, listChips(function).chars, card->getId().chars,
        card->getInfo().getCapability(), card->getDriver().version / 1000,
        card->getDriver().version % 1000 / 10);
  if (Fault fault = call.take(numbers))
    return fault;
  Context context(*card, stream);
  variant->entry(call.addresses);
  return context.takeFault();
}

extern "C" const char *flashattnAOTCall(const Function *function, int32_t device, void *stream,
                                        const int64_t *numbers) {
  return keep(runCall(*function, device, stream, numbers));
}

//===----------------------------------------------------------------------===//
// Memory
//===----------------------------------------------------------------------===//

/// Calls `onCard` with the GPU of that number, or `onCPU`.
template <typename CPU, typename GPU>
static const char *onDevice(int32_t device, CPU onCPU, GPU onCard) {
  if (device == FLASHATTN_AOT_CPU)
    return keep(onCPU());
  cuda::Card *card;
  if (Fault fault = cuda::Card::get(device, card))
    return keep(std::move(fault));
  return keep(onCard(*card));
}

static Fault copyOnCPU(void *dst, const void *src, size_t bytes) {
  if (bytes)
    std::memcpy(dst, src, bytes);
  return {};
}

extern "C" {
[[gnu::visibility("default")]] const char *flashattnAOTAllocate(int32_t device, size_t bytes,
                                                                void **memory) {
  *memory = nullptr;
  return onDevice(
      device,
      [&]() -> Fault {
        constexpr size_t kAlignment = 256;
        if (bytes <= SIZE_MAX - kAlignment)
          *memory = std::aligned_alloc(kAlignment, (std::max<size_t>(bytes, 1) + kAlignment - 1) &
                                                       ~(kAlignment - 1));
        return *memory ? Fault()
                       : Fault::format("out of memory on the CPU: needed %zu bytes", bytes);
      },
      [&](cuda::Card &card) { return card.allocate(bytes, *memory); });
}

[[gnu::visibility("default")]] const char *flashattnAOTFree(int32_t device, void *memory) {
  return onDevice(
      device,
      [&] {
        std::free(memory);
        return Fault();
      },
      [&](cuda::Card &card) { return card.release(memory); });
}

[[gnu::visibility("default")]] const char *
flashattnAOTCopyToDevice(int32_t device, void *memory, const void *host, size_t bytes) {
  return onDevice(
      device, [&] { return copyOnCPU(memory, host, bytes); },
      [&](cuda::Card &card) { return card.copyToDevice(memory, host, bytes, nullptr); });
}

[[gnu::visibility("default")]] const char *
flashattnAOTCopyToHost(int32_t device, void *host, const void *memory, size_t bytes) {
  return onDevice(
      device, [&] { return copyOnCPU(host, memory, bytes); },
      [&](cuda::Card &card) { return card.copyToHost(host, memory, bytes, nullptr); });
}

[[gnu::visibility("default")]] const char *flashattnAOTSynchronize(int32_t device, void *stream) {
  return onDevice(
      device, [] { return Fault(); }, [&](cuda::Card &card) { return card.synchronize(stream); });
}
}
