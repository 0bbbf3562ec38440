//===- Kernel.cpp - the kernel of a problem -------------------------------===//

#include "Problem.h"
#include "flashattn-c/FlashAttn.h"

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <map>
#include <mutex>

using namespace mlir::flashattn::onnx;

namespace {

constexpr int64_t kMaxWindow = int64_t(1) << 31; // the verifier's bound
/// With at most this many queries, as in decode steps, kernels have tiles with no more rows, which
/// heads that share keys fill. Other kernels would compute full tiles and discard most rows.
constexpr int64_t kFewQueries = 4;
constexpr const char *kStrided = ", strided<[?, ?, ?, 1]>>";

struct Element {
  const char *name; ///< name in MLIR
  int32_t type;     ///< a FlashAttnElementType
};
Element elementOf(int32_t type) {
  switch (type) {
  case kFloat:
    return {"f32", FLASHATTN_F32};
  case kFloat16:
    return {"f16", FLASHATTN_F16};
  case kBFloat16:
    return {"bf16", FLASHATTN_BF16};
  case kBool:
    return {"i1", FLASHATTN_I1};
  }
  return {"unknown", 0}; // no problem has other types
}

/// The arguments of the kernel's function, with their text. Batch, heads, lengths, strides, scale
/// and offset are set at each launch. With few queries, the numbers of queries and heads are
/// compiled in.
class Launch {
public:
  explicit Launch(bool hasFewQueries) : hasFewQueries(hasFewQueries) {}

  void add(const std::string &name, const View &view) {
    FlashAttnTensor tensor = {};
    const Element element = elementOf(view.type);
    tensor.data = view.data, tensor.rank = kMaxRank, tensor.elementType = element.type;
    std::copy_n(view.sizes, kMaxRank, tensor.sizes);
    std::copy_n(view.strides, kMaxRank, tensor.strides);
    std::string type = "memref<";
    for (int i = 0; i < kMaxRank; ++i) {
      // The row sizes of q, k, v and o are compiled in, and so are the broadcast dimensions of
      // masks.
      const bool isRow = i == kMaxRank - 1;
      const bool isFew = hasFewQueries && (i == 1 || (i == 2 && (name == "q" || name == "o")));
      const bool isKnown = name.size() > 1 ? view.sizes[i] == 1 : isRow || isFew;
      type += (isKnown ? std::to_string(view.sizes[i]) : "?") + "x";
    }
    add(name, type + element.name + kStrided, tensor);
  }
  void add(const std::string &name, const std::string &type, const FlashAttnTensor &tensor) {
    names.push_back(name), types.push_back(type), tensors.push_back(tensor);
  }

  std::string declarations() const {
    std::string text;
    for (size_t i = 0; i < names.size(); ++i)
      text += (i ? ", %" : "%") + names[i] + ": " + types[i];
    return text;
  }
  /// Returns `clause(%a, %b : type, type)` for consecutive arguments.
  std::string clause(const std::string &clause, size_t first, size_t count) const {
    std::string operands, operandTypes;
    for (size_t i = first; i < first + count; ++i) {
      operands += (i > first ? ", %" : "%") + names[i];
      operandTypes += (i > first ? ", " : "") + types[i];
    }
    return " " + clause + "(" + operands + " : " + operandTypes + ")";
  }

  std::vector<std::string> names, types;
  std::vector<FlashAttnTensor> tensors;

private:
  bool hasFewQueries;
};

/// Returns the mask of the window; empty if every key is visible.
std::string maskOf(const Problem &p) {
  if (!p.isWindow())
    return "";
  std::string bounds;
  if (p.left >= 0)
    bounds = "left = " + std::to_string(std::min(p.left, kMaxWindow));
  if (p.right >= 0)
    bounds += (bounds.empty() ? "right = " : ", right = ") +
              std::to_string(std::min(p.right, kMaxWindow));
  return " mask(#flashattn.window<" + bounds + ">)";
}

/// Returns the text of the kernel's module, and adds its arguments to `launch`.
std::string makeModule(const Problem &p, const View &k, const View &v, const View &o,
                       Launch &launch) {
  View keys = k, values = v;
  keys.sizes[2] = values.sizes[2] = p.seen;
  launch.add("q", p.q);
  launch.add("k", keys);
  launch.add("v", values);
  launch.add("o", o);
  std::string operands;
  if (p.mask.data) {
    const char *name = p.mask.type == kBool ? "attn_mask" : "bias";
    launch.add(name, p.mask);
    operands += launch.clause(name, launch.names.size() - 1, 1);
  }
  FlashAttnTensor value = {};
  if (!p.kvLen.empty()) {
    // "bottom_right", the default: query 0 is at position kv_len - queries.
    value.data = const_cast<int32_t *>(p.kvLen.data()); // an input
    value.rank = 1, value.elementType = FLASHATTN_I32;
    value.sizes[0] = p.batch, value.strides[0] = 1;
    launch.add("kv_len", "memref<?xi32>", value);
    operands += launch.clause("kv_len", launch.names.size() - 1, 1);
  } else if (p.isWindow()) {
    value = {};
    value.elementType = FLASHATTN_INDEX, value.scalar = p.past;
    launch.add("offset", "index", value);
    operands += " offset(%offset)";
  }
  uint32_t bits;
  std::memcpy(&bits, &p.scale, sizeof(bits));
  value = {};
  value.elementType = FLASHATTN_F32, value.scalar = bits;
  launch.add("scale", "f32", value);

  std::string softcap;
  if (p.softcap > 0) {
    char text[64];
    std::snprintf(text, sizeof(text), " softcap(%.9e)", p.softcap);
    softcap = text;
  }
  return "func.func @attention(" + launch.declarations() + ") {\n  flashattn.attention" +
         maskOf(p) + " scale(%scale)" + softcap + launch.clause("ins", 0, 3) + operands +
         launch.clause("outs", 3, 1) + "\n  return\n}\n";
}

Result lastError(int32_t status) { return {status, flashattnGetLastError()}; }

/// Finds the kernel of a module. Each text is compiled once.
Result findKernel(const std::string &module, FlashAttnKernel &kernel) {
  // Never freed: nodes of any session may still run when a library is unloaded.
  static auto &mutex = *new std::mutex;
  static auto &kernels = *new std::map<std::string, FlashAttnKernel>;
  std::lock_guard<std::mutex> lock(mutex);
  FlashAttnKernel &found = kernels[module];
  if (!found) {
    FlashAttnCompileOptions options;
    if (int32_t status = flashattnCompileOptionsInit(&options))
      return lastError(status);
    options.device = FLASHATTN_DEVICE_CPU;
    options.attentionOnly = 1;
    if (int32_t status = flashattnCompile(module.data(), module.size(), &options, &found)) {
      kernels.erase(module);
      return lastError(status);
    }
  }
  kernel = found;
  return {};
}

} // namespace

Result mlir::flashattn::onnx::runKernel(const Problem &p, const View &k, const View &v,
                                        const View &o) {
  const int64_t bytes = o.sizes[0] * o.sizes[1] * o.sizes[2] * o.sizes[3] * bytesOf(o.type);
  if (bytes == 0)
    return {};
  if (p.seen == 0) {
    std::memset(o.data, 0, bytes); // the output is dense in both layouts
    return {};
  }
  Launch launch(p.queries <= kFewQueries);
  const std::string module = makeModule(p, k, v, o, launch);
  FlashAttnKernel kernel;
  if (Result found = findKernel(module, kernel); !found)
    return found;
  if (int32_t status =
          flashattnLaunch(kernel, nullptr, launch.tensors.data(), int32_t(launch.tensors.size())))
    return lastError(status);
  return {};
}
