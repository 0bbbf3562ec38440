//===- XLA.cpp - calls from XLA -------------------------------------------===//
//
// Attention as a foreign function of XLA, which JAX calls. The attributes of a call, such as the
// text of its module, describe the whole computation. An XLA program contains no pointer of this
// process, so it means the same if it is stored or sent elsewhere. The kernel is looked up by these
// attributes, and compiled if it does not exist yet.
//
//===----------------------------------------------------------------------===//

#include "Kernel.h"
#include "XLACallFrame.h"
#include "flashattn/Support/Environment.h"
#include "llvm/ADT/SmallVector.h"
#include "llvm/ADT/StringExtras.h"
#include "llvm/ADT/StringMap.h"

#include <mutex>
#include <vector>

using namespace mlir::flashattn;
using namespace mlir::flashattn::capi;

//===----------------------------------------------------------------------===//
// Kernels
//===----------------------------------------------------------------------===//

namespace {

/// The input from which a kernel is compiled.
struct Recipe {
  llvm::StringRef module, schedule, chip;
  int32_t device;
};

/// A kernel, which its first user compiles.
class Entry {
public:
  ~Entry() { flashattnKernelFree(handle); }

  /// Errors: those of flashattnCompile; the next call tries again.
  int32_t compile(const Recipe &recipe) {
    std::lock_guard<std::mutex> lock(mutex);
    if (handle)
      return FLASHATTN_OK;
    FlashAttnCompileOptions options;
    flashattnCompileOptionsInit(&options);
    std::string chip = recipe.chip.str(), schedule = recipe.schedule.str();
    options.chip = chip.empty() ? nullptr : chip.c_str();
    options.schedule = schedule.c_str();
    options.device = recipe.device;
    // XLA programs may be read from files.
    options.attentionOnly = 1;
    return flashattnCompile(recipe.module.data(), recipe.module.size(), &options, &handle);
  }

  FlashAttnKernel get() const { return handle; }

  uint64_t lastUse = 0; ///< accessed by the table only

private:
  std::mutex mutex;
  FlashAttnKernel handle = nullptr;
};

/// The kernels of calls. The least recently used one is removed first; a call in progress keeps its
/// kernel.
class Table {
public:
  std::shared_ptr<Entry> find(const Recipe &recipe) {
    std::string key = llvm::join_items('\0', llvm::itostr(recipe.device), recipe.chip.str(),
                                       recipe.schedule.str(), recipe.module.str());
    // Destroyed after the lock is released: unloading kernels of a GPU waits for its work.
    std::vector<std::shared_ptr<Entry>> gone;
    std::lock_guard<std::mutex> lock(mutex);
    std::shared_ptr<Entry> &entry = entries[key];
    if (!entry)
      entry = std::make_shared<Entry>();
    entry->lastUse = ++now;
    std::shared_ptr<Entry> found = entry;
    while (entries.size() > limit)
      gone.push_back(takeOldest());
    return found;
  }

  size_t size() {
    std::lock_guard<std::mutex> lock(mutex);
    return entries.size();
  }

private:
  std::shared_ptr<Entry> takeOldest() {
    auto oldest = entries.begin();
    for (auto it = entries.begin(); it != entries.end(); ++it)
      if (it->second->lastUse < oldest->second->lastUse)
        oldest = it;
    std::shared_ptr<Entry> taken = std::move(oldest->second);
    entries.erase(oldest);
    return taken;
  }

  const size_t limit = getNumber("FLASHATTN_CACHE_KERNELS", 1, INT64_MAX, 256);
  std::mutex mutex;
  llvm::StringMap<std::shared_ptr<Entry>> entries;
  uint64_t now = 0;
};

} // namespace

/// Not destroyed: threads may still launch while the process exits.
static Table &getTable() {
  static Table &table = *new Table;
  return table;
}

extern "C" int64_t flashattnXLAGetKernelCount(void) { return getTable().size(); }

//===----------------------------------------------------------------------===//
// Calls
//===----------------------------------------------------------------------===//

static xla::Error *makeError(const xla::CallFrame &frame, int32_t status) {
  xla::ErrorCode code = status == FLASHATTN_ERROR_UNSUPPORTED ? xla::kUnimplemented
                        : status == FLASHATTN_ERROR_DEVICE    ? xla::kInternal
                                                              : xla::kInvalidArgument;
  xla::CreateErrorArgs args{sizeof(args), nullptr, flashattnGetLastError(), code};
  return frame.api->createError(&args);
}

static const void *findAttribute(const xla::Attributes &attributes, llvm::StringRef name,
                                 int type) {
  for (int64_t i = 0; i < attributes.count; ++i)
    if (llvm::StringRef(attributes.names[i]->data, attributes.names[i]->size) == name)
      return attributes.types[i] == type ? attributes.values[i] : nullptr;
  return nullptr;
}

static int32_t readText(const xla::Attributes &attributes, const char *name,
                        llvm::StringRef &text) {
  auto *span =
      static_cast<const xla::Span *>(findAttribute(attributes, name, xla::Attributes::kString));
  if (!span)
    return failWith(FLASHATTN_ERROR_INVALID_ARGUMENT,
                    "expected attribute '{0}' of the call to be a text but got none", name);
  text = llvm::StringRef(span->data, span->size);
  return FLASHATTN_OK;
}

/// Reads the value of a scalar argument of the kernel from the attribute named after its role.
static int32_t readScalar(const xla::Attributes &attributes, const Argument &argument,
                          int64_t &value) {
  auto *scalar = static_cast<const xla::Scalar *>(
      findAttribute(attributes, argument.role, xla::Attributes::kScalar));
  xla::DataType type = argument.elementType == FLASHATTN_F32 ? xla::kF32 : xla::kS64;
  if (!scalar || scalar->type != type)
    return failWith(FLASHATTN_ERROR_INVALID_ARGUMENT,
                    "expected attribute '{1}' of the call to be a number of type {0} but got {2}",
                    type == xla::kF32 ? "f32" : "i64", argument.role,
                    scalar ? "another type" : "none");
  value = 0;
  std::memcpy(&value, scalar->value, type == xla::kF32 ? sizeof(float) : sizeof(int64_t));
  return FLASHATTN_OK;
}

/// Reads from the attributes what to compile: for `device`, or for a model.
static int32_t readRecipe(const xla::Attributes &attributes, int32_t device, Recipe &recipe) {
  llvm::StringRef version;
  for (auto [name, text] :
       {std::pair("version", &version), std::pair("module", &recipe.module),
        std::pair("schedule", &recipe.schedule), std::pair("model", &recipe.chip)})
    if (int32_t status = readText(attributes, name, *text))
      return status;
  if (version != flashattnGetVersion())
    return failWith(FLASHATTN_ERROR_INVALID_ARGUMENT,
                    "expected a program compiled by flashattn {0} but got one compiled by "
                    "flashattn {1}: compile or export it again",
                    flashattnGetVersion(), version);
  recipe.device = recipe.chip.empty() ? device : int32_t(FLASHATTN_DEVICE_MODEL);
  return FLASHATTN_OK;
}

static int32_t getElementType(xla::DataType type) {
  switch (type) {
  case xla::kPred:
    return FLASHATTN_I1;
  case xla::kS8:
    return FLASHATTN_I8;
  case xla::kS32:
    return FLASHATTN_I32;
  case xla::kS64:
    return FLASHATTN_I64;
  case xla::kF16:
    return FLASHATTN_F16;
  case xla::kF32:
    return FLASHATTN_F32;
  case xla::kF64:
    return FLASHATTN_F64;
  case xla::kBF16:
    return FLASHATTN_BF16;
  case xla::kF8E5M2:
    return FLASHATTN_F8E5M2;
  case xla::kF8E4M3FN:
    return FLASHATTN_F8E4M3FN;
  }
  return 0;
}

/// Reads the next buffer as a tensor.
static int32_t readBuffer(const xla::Buffers &buffers, int64_t &next, FlashAttnTensor &tensor) {
  int64_t index = next++;
  if (index >= buffers.count) // the caller checks the count
    return FLASHATTN_OK;
  if (buffers.types[index] != xla::Buffers::kBuffer)
    return failWith(FLASHATTN_ERROR_INVALID_ARGUMENT,
                    "expected a buffer at position {0} of the call but got kind {1}", index,
                    buffers.types[index]);
  const xla::Buffer &buffer = *buffers.buffers[index];
  if (buffer.rank > FLASHATTN_MAX_RANK)
    return failWith(FLASHATTN_ERROR_TENSOR, "expected a buffer of rank {0} at most but got {1}",
                    int(FLASHATTN_MAX_RANK), buffer.rank);
  tensor.data = buffer.data;
  tensor.elementType = getElementType(buffer.type);
  tensor.rank = buffer.rank;
  int64_t stride = 1;
  for (int d = tensor.rank - 1; d >= 0; --d) {
    tensor.sizes[d] = buffer.sizes[d];
    tensor.strides[d] = stride;
    stride *= buffer.sizes[d];
  }
  return FLASHATTN_OK;
}

static bool isEmpty(const FlashAttnTensor &tensor) {
  return llvm::is_contained(llvm::ArrayRef(tensor.sizes, tensor.rank), 0);
}

/// Launches with the call's buffers in the order of the kernel's arguments: inputs are arguments of
/// the call, outputs are results.
static int32_t launch(const xla::CallFrame &frame, FlashAttnKernel handle, void *stream) {
  const Kernel *kernel = getKernel(handle);
  llvm::SmallVector<FlashAttnTensor, 16> tensors(kernel->arguments.size());
  int64_t numRead = 0, numWritten = 0;
  bool hasWork = false;
  for (auto [argument, tensor] : llvm::zip_equal(kernel->arguments, tensors)) {
    tensor = FlashAttnTensor{};
    bool isOutput = argument.direction & FLASHATTN_OUTPUT;
    int32_t status = argument.kind == FLASHATTN_ARGUMENT_SCALAR
                         ? readScalar(frame.attributes, argument, tensor.scalar)
                     : isOutput ? readBuffer(frame.results, numWritten, tensor)
                                : readBuffer(frame.arguments, numRead, tensor);
    if (status)
      return status;
    hasWork |= isOutput && !isEmpty(tensor);
  }
  if (numRead != frame.arguments.count || numWritten != frame.results.count)
    return failWith(FLASHATTN_ERROR_TENSOR,
                    "expected {0} arguments and {1} results of the call but got {2} and {3}",
                    numRead, numWritten, frame.arguments.count, frame.results.count);
  return hasWork ? flashattnLaunch(handle, stream, tensors.data(), tensors.size())
                 : int32_t(FLASHATTN_OK);
}

/// Answers a metadata query from XLA; returns false if the call is not such a query.
static bool answerMetadata(const xla::CallFrame &frame) {
  xla::Extension *extension = frame.extensions;
  if (!extension || extension->type != xla::MetadataExtension::kType)
    return false;
  xla::Metadata &metadata = *reinterpret_cast<xla::MetadataExtension *>(extension)->metadata;
  // XLA refuses to register a function with a version that it does not support.
  metadata.version = {sizeof(xla::ApiVersion), nullptr, xla::kMajorVersion, xla::kMinorVersion};
  metadata.traits = 0;
  if (metadata.size >= sizeof(xla::Metadata))
    metadata.stateType = 0;
  return true;
}

/// Finds the kernel, and launches it in the execute stage.
static xla::Error *call(const xla::CallFrame &frame, int32_t device, void *stream) {
  Recipe recipe;
  if (int32_t status = readRecipe(frame.attributes, device, recipe))
    return makeError(frame, status);
  std::shared_ptr<Entry> entry = getTable().find(recipe);
  int32_t status = entry->compile(recipe);
  if (!status && frame.stage == xla::kExecute)
    status = launch(frame, entry->get(), stream);
  return status ? makeError(frame, status) : nullptr;
}

extern "C" void *flashattnXLACallCPU(void *callFrame) {
  auto &frame = *static_cast<xla::CallFrame *>(callFrame);
  if (answerMetadata(frame))
    return nullptr;
  return call(frame, FLASHATTN_DEVICE_CPU, /*stream=*/nullptr);
}

extern "C" void *flashattnXLACallCUDA(void *callFrame) {
  auto &frame = *static_cast<xla::CallFrame *>(callFrame);
  if (answerMetadata(frame))
    return nullptr;
  xla::GetDeviceOrdinalArgs device{sizeof(device), nullptr, frame.context, 0};
  if (xla::Error *error = frame.api->getDeviceOrdinal(&device))
    return error;
  xla::GetStreamArgs stream{sizeof(stream), nullptr, frame.context, nullptr};
  if (xla::Error *error = frame.api->getStream(&stream))
    return error;
  return call(frame, device.ordinal, stream.stream);
}
