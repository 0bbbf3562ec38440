//===- Launch.cpp - from tensors to a call --------------------------------===//
//
// The path of every call: no lock, no allocation, no lookup. Messages are formatted only after an
// error.
//
//===----------------------------------------------------------------------===//

#include "Kernel.h"
#include "PythonTensors.h"
#include "flashattn/Dialect/FlashAttn/IR/OperandRoles.h"
#include "flashattn/Runtime/Overlap.h"
#include "llvm/ADT/SmallVector.h"
#include "llvm/Support/MathExtras.h"

using namespace mlir::flashattn;
using namespace mlir::flashattn::capi;

/// Returns text such as "argument 1 ('k')".
static std::string name(const Kernel &kernel, int index) {
  const char *role = kernel.arguments[index].role;
  return llvm::formatv(*role ? "argument {0} ('{1}')" : "argument {0}", index, role).str();
}

/// Checks one tensor, at `data`, against the argument's type.
static int32_t checkTensor(const Kernel &kernel, int index, const FlashAttnTensor &tensor,
                           const void *data) {
  const Argument &argument = kernel.arguments[index];
  if (tensor.elementType != argument.elementType)
    return failWith(FLASHATTN_ERROR_TENSOR, "expected {1} with element type {0} but got {2}",
                    getName(argument.elementType), name(kernel, index),
                    getName(tensor.elementType));
  if (tensor.rank != argument.rank)
    return failWith(FLASHATTN_ERROR_TENSOR, "expected rank {0} of {1} but got {2}", argument.rank,
                    name(kernel, index), tensor.rank);
  bool isEmpty = false;
  for (int d = 0; d < argument.rank; ++d) {
    // Positions have 32 bits.
    if (argument.sizes[d] >= 0 ? tensor.sizes[d] != argument.sizes[d]
                               : tensor.sizes[d] < 0 || tensor.sizes[d] > INT32_MAX)
      return failWith(
          FLASHATTN_ERROR_TENSOR, "expected size {0} in dimension {1} of {2} but got {3}",
          argument.sizes[d] >= 0 ? std::to_string(argument.sizes[d]) : "0 to 2147483647", d,
          name(kernel, index), tensor.sizes[d]);
    isEmpty |= tensor.sizes[d] == 0;
  }
  // No element is accessed.
  if (isEmpty)
    return FLASHATTN_OK;

  if (!data)
    return failWith(FLASHATTN_ERROR_TENSOR, "expected data of {0} but got null",
                    name(kernel, index));
  constexpr int64_t kChunkBytes = 16;
  int64_t alignment = argument.needsAlignedPointer ? kChunkBytes : argument.elementBytes;
  if (reinterpret_cast<uintptr_t>(data) % alignment != 0)
    return failWith(
        FLASHATTN_ERROR_TENSOR,
        "expected data of {0} at an address that is a multiple of {1} bytes but got {2}",
        name(kernel, index), alignment, data);
  int64_t dense = 1;
  for (int d = argument.rank - 1; d >= 0; --d) {
    int64_t size = tensor.sizes[d], stride = tensor.strides[d];
    int64_t expected = argument.isDense ? dense : argument.strides[d];
    dense *= size;
    // The stride of a dimension of size 1 is never used.
    if (size == 1)
      continue;
    if (expected >= 0 ? stride != expected : stride < 0)
      return failWith(
          FLASHATTN_ERROR_TENSOR, "expected stride {0} in dimension {1} of {2} but got {3}",
          expected >= 0 ? std::to_string(expected) : "0 or more", d, name(kernel, index), stride);
    if (argument.hasAlignedRows && d != argument.rank - 1 &&
        stride * argument.elementBytes % kChunkBytes != 0)
      return failWith(FLASHATTN_ERROR_TENSOR,
                      "expected a stride that is a multiple of {0} elements, 16 bytes, in "
                      "dimension {1} of {2} but got {3}",
                      kChunkBytes / argument.elementBytes, d, name(kernel, index), stride);
    if (stride == 0 && (argument.direction & FLASHATTN_OUTPUT))
      return failWith(FLASHATTN_ERROR_TENSOR,
                      "expected each element of output {0} at its own address but got stride 0 in "
                      "dimension {1} of size {2}",
                      name(kernel, index), d, size);
  }
  return FLASHATTN_OK;
}

/// Checks the sizes that operands of an op share and that the verifier did not know.
static int32_t checkShared(const Kernel &kernel, const FlashAttnTensor *tensors) {
  auto getSize = [&](ArgumentDim at) { return tensors[at.argument].sizes[at.dim]; };
  for (const SharedSize &size : kernel.sharedSizes)
    if (getSize(size.checked) != getSize(size.expected) + size.more)
      return failWith(FLASHATTN_ERROR_TENSOR, "expected {0} of {1} to be {2} {3} {4} but got {5}",
                      size.name, name(kernel, size.checked.argument),
                      getSize(size.expected) + size.more, size.more ? "to match" : "as in",
                      name(kernel, size.expected.argument), getSize(size.checked));
  for (const SharedHeads &heads : kernel.sharedHeads)
    if (std::string wrong = explainHeads(getSize(heads.queries), getSize(heads.keys));
        !wrong.empty())
      return failWith(FLASHATTN_ERROR_TENSOR, "{0} (query heads of {1}, key/value heads of {2})",
                      wrong, name(kernel, heads.queries.argument),
                      name(kernel, heads.keys.argument));
  return FLASHATTN_OK;
}

/// Checks that no output shares memory with another argument. `places` are those of memrefs;
/// scalars have no bytes.
static int32_t checkOverlaps(const Kernel &kernel, llvm::ArrayRef<TensorPlace> places) {
  llvm::SmallVector<uintptr_t, 16> ends;
  for (const TensorPlace &place : places)
    ends.push_back(place.getEnd());
  for (int i = 0, e = places.size(); i < e; ++i)
    for (int j = 0; j < i; ++j) {
      // Most pairs end here: their address ranges do not overlap.
      if (ends[i] <= places[j].address || ends[j] <= places[i].address)
        continue;
      int32_t directions = kernel.arguments[i].direction | kernel.arguments[j].direction;
      bool isUsed = kernel.arguments[i].direction && kernel.arguments[j].direction;
      if (!isUsed || !(directions & FLASHATTN_OUTPUT) || !shareMemory(places[i], places[j]))
        continue;
      auto [output, other] =
          kernel.arguments[i].direction & FLASHATTN_OUTPUT ? std::pair(i, j) : std::pair(j, i);
      auto format = [&](int index) {
        return llvm::formatv("{0:x} to {1:x}", places[index].address, ends[index]).str();
      };
      return failWith(FLASHATTN_ERROR_TENSOR,
                      "expected the output {0} to share no memory with {1} but got addresses {2} "
                      "and {3}: use separate memory for the output",
                      name(kernel, output), name(kernel, other), format(output), format(other));
    }
  return FLASHATTN_OK;
}

/// Returns the kernel of a handle; null, with `status` and the message set, if it cannot be
/// launched.
static const Kernel *getLaunchable(FlashAttnKernel handle, int32_t &status) {
  const Kernel *kernel = getKernel(handle);
  status = kernel ? FLASHATTN_OK : FLASHATTN_ERROR_INVALID_HANDLE;
  if (!kernel || kernel->entry)
    return kernel;
  status = fail(kernel->reasonStatus, "the kernel cannot be launched: " + kernel->reason);
  return nullptr;
}

/// Checks `tensors`, whose addresses are in `data` or, if that is null, in the tensors, and calls
/// `call` with the addresses of the arguments' values. Without `hasMemory`, there is no memory at
/// these addresses.
static int32_t withArguments(
    const Kernel *kernel, const FlashAttnTensor *tensors, int64_t numTensors, void *const *data,
    bool hasMemory,
    llvm::function_ref<llvm::Error(void **addresses, llvm::ArrayRef<TensorPlace> places)> call) {
  int numArguments = kernel->arguments.size();
  if (numTensors != numArguments)
    return failWith(FLASHATTN_ERROR_TENSOR, "expected {0} tensors but got {1}", numArguments,
                    numTensors);
  if (!tensors && numTensors)
    return fail(FLASHATTN_ERROR_INVALID_ARGUMENT, "expected tensors but got null");

  // Enough for a dozen memrefs of rank 4 without an allocation.
  llvm::SmallVector<int64_t, 144> words;
  llvm::SmallVector<int64_t, 16> values;
  llvm::SmallVector<void *, 16> addresses;
  llvm::SmallVector<TensorPlace, 16> places(numArguments);
  words.resize_for_overwrite(kernel->descriptorWords);
  values.resize_for_overwrite(numArguments);
  addresses.resize_for_overwrite(numArguments);
  int64_t *next = words.data();
  for (int i = 0; i < numArguments; ++i) {
    const FlashAttnTensor &tensor = tensors[i];
    addresses[i] = &values[i];
    if (kernel->arguments[i].kind == FLASHATTN_ARGUMENT_SCALAR) {
      values[i] = data ? reinterpret_cast<int64_t>(data[i]) : tensor.scalar;
      if (kernel->arguments[i].isPosition && values[i] != llvm::SignExtend64<32>(values[i]))
        return failWith(FLASHATTN_ERROR_TENSOR,
                        "expected {0} from -2147483648 to 2147483647 but got {1}", name(*kernel, i),
                        values[i]);
      if (float factor = llvm::bit_cast<float>(uint32_t(values[i]));
          kernel->arguments[i].isFactor && !(factor >= 0.999e-18 && factor <= 1.001e18))
        return failWith(FLASHATTN_ERROR_TENSOR, "expected {0} from 1e-18 to 1e18 but got {1}",
                        name(*kernel, i), factor);
      continue;
    }
    void *pointer = data ? data[i] : tensor.data;
    if (int32_t status = checkTensor(*kernel, i, tensor, pointer))
      return status;
    places[i] = {reinterpret_cast<uintptr_t>(pointer),
                 {tensor.sizes, size_t(tensor.rank)},
                 {tensor.strides, size_t(tensor.rank)},
                 kernel->arguments[i].elementBytes};
    // {allocated, aligned, offset, sizes, strides}
    values[i] = reinterpret_cast<int64_t>(next);
    *next++ = reinterpret_cast<int64_t>(pointer);
    *next++ = reinterpret_cast<int64_t>(pointer);
    *next++ = 0;
    next = std::copy_n(tensor.sizes, tensor.rank, next);
    next = std::copy_n(tensor.strides, tensor.rank, next);
  }
  if (int32_t status = checkShared(*kernel, tensors))
    return status;
  if (hasMemory)
    if (int32_t status = checkOverlaps(*kernel, places))
      return status;
  if (llvm::Error error = call(addresses.data(), places))
    return fail(FLASHATTN_ERROR_DEVICE, std::move(error));
  return FLASHATTN_OK;
}

static int32_t launch(FlashAttnKernel handle, void *stream, const FlashAttnTensor *tensors,
                      int64_t numTensors, void *const *data) {
  int32_t status;
  const Kernel *kernel = getLaunchable(handle, status);
  if (!kernel)
    return status;
  auto start = [&](void **addresses) {
    return kernel->executable->launch(kernel->entry, addresses, stream);
  };
  return withArguments(kernel, tensors, numTensors, data, /*hasMemory=*/true,
                       [&](void **addresses, llvm::ArrayRef<TensorPlace> places) {
                         if (!kernel->model)
                           return start(addresses);
                         llvm::SmallVector<std::pair<void *, size_t>> ranges;
                         for (const TensorPlace &place : places)
                           ranges.emplace_back(reinterpret_cast<void *>(place.address),
                                               place.getEnd() - place.address);
                         return kernel->model->runOn(ranges, [&] { return start(addresses); });
                       });
}

extern "C" int32_t flashattnKernelGetWorkspace(FlashAttnKernel handle,
                                               const FlashAttnTensor *tensors, int32_t numTensors,
                                               int64_t *bytes) {
  int32_t status;
  const Kernel *kernel = getLaunchable(handle, status);
  if (!kernel)
    return status;
  if (!bytes)
    return fail(FLASHATTN_ERROR_INVALID_ARGUMENT,
                "expected a pointer that receives the size in bytes but got null");
  // An arbitrary address, at which nothing is read, for tensors that need not exist yet.
  constexpr intptr_t kAnywhere = 256;
  llvm::SmallVector<void *, 16> data;
  for (int i = 0, e = tensors ? std::min<int64_t>(numTensors, kernel->arguments.size()) : 0; i < e;
       ++i)
    data.push_back(reinterpret_cast<void *>(
        kernel->arguments[i].kind == FLASHATTN_ARGUMENT_SCALAR ? tensors[i].scalar : kAnywhere));
  return withArguments(kernel, tensors, numTensors, data.data(), /*hasMemory=*/false,
                       [&](void **addresses, llvm::ArrayRef<TensorPlace>) -> llvm::Error {
                         *bytes = 0;
                         if (kernel->workspaceBytes == 0)
                           return llvm::Error::success();
                         llvm::Expected<int64_t> found =
                             kernel->executable->measureWorkspace(kernel->entry, addresses);
                         if (!found)
                           return found.takeError();
                         *bytes = *found;
                         return llvm::Error::success();
                       });
}

extern "C" int32_t flashattnLaunch(FlashAttnKernel handle, void *stream,
                                   const FlashAttnTensor *tensors, int32_t numTensors) {
  return launch(handle, stream, tensors, numTensors, /*data=*/nullptr);
}

extern "C" int32_t flashattnLaunchPacked(const FlashAttnPackedLaunch *packed) {
  if (!packed)
    return fail(FLASHATTN_ERROR_INVALID_ARGUMENT, "expected a FlashAttnPackedLaunch but got null");
  int64_t numTensors = packed->numTensors;
  if (numTensors < 0 || numTensors > FLASHATTN_MAX_PACKED)
    return failWith(FLASHATTN_ERROR_INVALID_ARGUMENT, "expected 0 to {0} tensors but got {1}",
                    int(FLASHATTN_MAX_PACKED), numTensors);
  if (packed->match == 0)
    return launch(packed->kernel, packed->stream, packed->tensors, numTensors, packed->data);

  const Match *match = getMatch(packed->match);
  if (!match)
    return failWith(
        FLASHATTN_ERROR_INVALID_ARGUMENT,
        "expected field 'match' to be 0 or a result of flashattnMatchPythonTensors but got {0}",
        packed->match);
  void *data[FLASHATTN_MAX_PACKED];
  for (int64_t i = 0; i < numTensors; ++i)
    data[i] = packed->data[i] || i >= FLASHATTN_MAX_OPERANDS ? packed->data[i] : match->data[i];
  return launch(packed->kernel, match->stream, packed->tensors, numTensors, data);
}
