//===- Problem.cpp - rules of the operator's inputs and attributes --------===//

#include "Problem.h"
#include "flashattn-c/FlashAttn.h"

#include <cmath>
#include <cstring>
#include <sstream>

using namespace mlir::flashattn::onnx;

namespace {

constexpr const char *kInputNames[kNumInputs] = {
    "Q", "K", "V", "attn_mask", "past_key", "past_value", "nonpad_kv_seqlen"};

/// The range that the dialect's verifier allows for scales and softcaps.
constexpr float kMinFactor = 1e-18f, kMaxFactor = 1e18f;

template <typename... Parts> Result refuse(FlashAttnStatus status, const Parts &...parts) {
  std::ostringstream text;
  (text << ... << parts);
  return {status, text.str()};
}
template <typename... Parts> Result refuse(const Parts &...parts) {
  return refuse(FLASHATTN_ERROR_INVALID_ARGUMENT, parts...);
}

/// Returns the name of a tensor type in ONNX.
std::string typeName(int32_t type) {
  // In the order of TensorProto.DataType.
  constexpr const char *kNames[] = {
      "undefined",      "float",      "uint8",         "int8",       "uint16",   "int16",
      "int32",          "int64",      "string",        "bool",       "float16",  "double",
      "uint32",         "uint64",     "complex64",     "complex128", "bfloat16", "float8e4m3fn",
      "float8e4m3fnuz", "float8e5m2", "float8e5m2fnuz"};
  if (type >= 0 && type < int32_t(std::size(kNames)))
    return kNames[type];
  return "type " + std::to_string(type);
}

std::string shapeOf(const int64_t *sizes, int rank) {
  std::string text = "[";
  for (int i = 0; i < rank; ++i)
    text += (i ? ", " : "") + std::to_string(sizes[i]);
  return text + "]";
}

bool isFloatType(int64_t type) { return type == kFloat || type == kFloat16 || type == kBFloat16; }

/// Checks the attributes except for heads, and sets defaults for absent ones.
Result readAttributes(const Attributes &attributes, Problem &p) {
  const int64_t isCausal = attributes.isCausal.value_or(0);
  if (isCausal != 0 && isCausal != 1)
    return refuse("expected is_causal 0 or 1 but got ", isCausal);
  p.left = attributes.leftWindow.value_or(-1);
  p.right = attributes.rightWindow.value_or(-1);
  const std::pair<const char *, int64_t> windows[] = {{"left_window_size", p.left},
                                                      {"right_window_size", p.right}};
  for (auto [name, size] : windows)
    if (size < -1)
      return refuse("expected ", name, " of -1 or more but got ", size);
  if (isCausal)
    p.right = 0;
  p.scoresMode = attributes.scoresMode.value_or(kRaw);
  if (p.scoresMode < 0 || p.scoresMode >= kNumScoresModes)
    return refuse("expected qk_matmul_output_mode from 0 to ", kNumScoresModes - 1, " but got ",
                  p.scoresMode);
  if (auto precision = attributes.softmaxPrecision)
    if (!isFloatType(*precision) && *precision != kDouble)
      return refuse("expected softmax_precision 1 (float), 10 (float16), 11 (double) or 16 "
                    "(bfloat16) but got ",
                    *precision);
  p.softcap = attributes.softcap.value_or(0);
  if (p.softcap != 0 && !(p.softcap >= kMinFactor && p.softcap <= kMaxFactor))
    return refuse("expected softcap 0 or from ", kMinFactor, " to ", kMaxFactor, " but got ",
                  p.softcap);
  if (auto scale = attributes.scale; scale && !(*scale >= kMinFactor && *scale <= kMaxFactor))
    return refuse("expected scale from ", kMinFactor, " to ", kMaxFactor, " but got ", *scale);
  return {};
}

/// Checks which inputs are present, their types, and the ranks of Q, K and V.
Result checkInputs(const Tensor *const inputs[kNumInputs]) {
  for (int i : {kQ, kK, kV})
    if (!inputs[i])
      return refuse("expected input ", kInputNames[i], " but got none");
  const int32_t type = inputs[kQ]->type;
  if (!isFloatType(type))
    return refuse(FLASHATTN_ERROR_UNSUPPORTED, "expected Q of float16, bfloat16 or float but got ",
                  typeName(type));
  for (int i : {kK, kV, kPastKey, kPastValue})
    if (inputs[i] && inputs[i]->type != type)
      return refuse(FLASHATTN_ERROR_UNSUPPORTED, "expected ", kInputNames[i], " of ",
                    typeName(type), ", as Q is, but got ", typeName(inputs[i]->type));
  const int32_t rank = inputs[kQ]->rank;
  if (rank != 3 && rank != 4)
    return refuse("expected Q of rank 3 or 4 but got ", rank);
  for (int i : {kK, kV})
    if (inputs[i]->rank != rank)
      return refuse("expected ", kInputNames[i], " of rank ", rank, ", as Q is, but got ",
                    inputs[i]->rank);
  if (!inputs[kPastKey] != !inputs[kPastValue])
    return refuse("expected past_key and past_value together but got ",
                  kInputNames[inputs[kPastKey] ? kPastKey : kPastValue], " alone");
  if (inputs[kNonpadKvSeqlen] && inputs[kPastKey])
    return refuse("expected nonpad_kv_seqlen or past_key but got both: the keys of a cache that is "
                  "updated inside the operator are all valid");
  return {};
}

/// Builds a view [batch, heads, length, size] of Q, K or V. Errors: the number of heads is missing
/// or does not fit.
Result makeView(const Tensor &tensor, Input input, const char *attribute,
                std::optional<int64_t> heads, View &view) {
  const char *name = kInputNames[input];
  if (tensor.rank == 4) {
    if (heads && *heads != tensor.sizes[1])
      return refuse("expected ", attribute, " ", tensor.sizes[1], ", the heads of ", name,
                    ", or none but got ", *heads);
    view = denseView(tensor.data, tensor.sizes, tensor.type);
    return {};
  }
  if (!heads)
    return refuse("expected ", attribute, ", as ", name, " has rank 3, but got none");
  if (*heads < 1)
    return refuse("expected ", attribute, " of 1 or more but got ", *heads);
  const int64_t batch = tensor.sizes[0], length = tensor.sizes[1], hidden = tensor.sizes[2];
  if (hidden % *heads != 0)
    return refuse("expected the hidden size of ", name, " to be a multiple of ", attribute, " ",
                  *heads, " but got ", hidden);
  const int64_t size = hidden / *heads;
  view = {static_cast<char *>(tensor.data),
          {batch, *heads, length, size},
          {length * hidden, size, hidden, 1},
          tensor.type};
  return {};
}

/// Checks the sizes that must be equal, and the number of heads that share a key/value head.
Result checkSizes(const Problem &p) {
  const std::pair<const char *, const View *> keysAndValues[] = {{"K", &p.k}, {"V", &p.v}};
  for (auto [name, view] : keysAndValues)
    if (view->sizes[0] != p.batch)
      return refuse("expected ", name, " of batch size ", p.batch, ", as Q has, but got ",
                    view->sizes[0]);
  if (p.k.sizes[3] != p.headSize)
    return refuse("expected K of head size ", p.headSize, ", as Q has, but got ", p.k.sizes[3]);
  for (int i : {1, 2})
    if (p.v.sizes[i] != p.k.sizes[i])
      return refuse("expected V of ", p.k.sizes[i], i == 1 ? " heads" : " keys",
                    ", as K has, but got ", p.v.sizes[i]);
  if (p.headSize < 1 || p.valueSize < 1)
    return refuse("expected head sizes of 1 or more but got ", p.headSize, " of Q and ",
                  p.valueSize, " of V");
  if (p.kvHeads < 1 || p.qHeads % p.kvHeads != 0)
    return refuse("expected the heads of Q to be a multiple of the heads of K but got ", p.qHeads,
                  " and ", p.kvHeads);
  return {};
}

Result readPast(const Tensor *past, Input input, int64_t size, const Problem &p, View &view) {
  if (!past)
    return {};
  const int64_t *sizes = past->sizes;
  if (past->rank != 4)
    return refuse("expected ", kInputNames[input], " of rank 4 but got ", past->rank);
  if (sizes[0] != p.batch || sizes[1] != p.kvHeads || sizes[3] != size)
    return refuse("expected ", kInputNames[input], " of shape [", p.batch, ", ", p.kvHeads,
                  ", past keys, ", size, "] but got ", shapeOf(sizes, 4));
  view = denseView(past->data, past->sizes, past->type);
  return {};
}

/// Reads the mask with rank 4. Dimensions along which it is broadcast have size 1 and stride 0.
Result readMask(const Tensor *mask, Problem &p) {
  p.seen = p.total;
  if (!mask)
    return {};
  if (mask->type != kBool && !isFloatType(mask->type))
    return refuse(FLASHATTN_ERROR_UNSUPPORTED,
                  "expected attn_mask of bool, float16, bfloat16 or float but got ",
                  typeName(mask->type));
  if (mask->rank < 1 || mask->rank > kMaxRank)
    return refuse("expected attn_mask of rank 1 to 4 but got ", mask->rank);
  const int64_t full[kMaxRank] = {p.batch, p.qHeads, p.queries, p.total};
  int64_t sizes[kMaxRank] = {1, 1, 1, 1};
  std::memcpy(sizes + kMaxRank - mask->rank, mask->sizes, mask->rank * sizeof(int64_t));
  for (int i = 0; i < 3; ++i)
    if (sizes[i] != 1 && sizes[i] != full[i])
      return refuse("expected attn_mask that broadcasts to ", shapeOf(full, 4), " but got ",
                    shapeOf(mask->sizes, mask->rank));
  if (sizes[3] > p.total)
    return refuse("expected attn_mask over ", p.total, " keys at most but got ", sizes[3]);
  // Opset 23 broadcasts such a mask along the keys; opset 24 pads it, like any other shorter mask.
  if (sizes[3] == 1 && p.total > 1)
    return refuse("expected attn_mask with a last dimension of ", p.total,
                  ", the number of keys, but got 1, which opset versions interpret differently; "
                  "expand attn_mask");
  p.seen = sizes[3];
  p.mask = denseView(mask->data, sizes, mask->type);
  for (int i = 0; i < kMaxRank; ++i)
    if (sizes[i] == 1)
      p.mask.strides[i] = 0;
  p.mask.strides[3] = 1;
  return {};
}

Result readLengths(const Tensor *lengths, Problem &p) {
  if (!lengths)
    return {};
  if (lengths->type != kInt64)
    return refuse("expected nonpad_kv_seqlen of int64 but got ", typeName(lengths->type));
  if (lengths->rank != 1 || lengths->sizes[0] != p.batch)
    return refuse("expected nonpad_kv_seqlen of shape [", p.batch, "] but got ",
                  lengths->rank > kMaxRank ? "rank " + std::to_string(lengths->rank)
                                           : shapeOf(lengths->sizes, lengths->rank));
  const auto *values = static_cast<const int64_t *>(lengths->data);
  for (int64_t b = 0; b < p.batch; ++b) {
    if (values[b] < 0 || values[b] > p.total)
      return refuse("expected nonpad_kv_seqlen from 0 to ", p.total,
                    ", the number of keys, but got ", values[b], " for batch ", b);
    if (values[b] > p.seen)
      return refuse("expected attn_mask over the ", values[b],
                    " keys of nonpad_kv_seqlen for batch ", b, " but got ", p.seen);
    p.kvLen.push_back(int32_t(values[b]));
  }
  return {};
}

} // namespace

int64_t mlir::flashattn::onnx::bytesOf(int32_t type) {
  switch (type) {
  case kFloat:
    return 4;
  case kFloat16:
  case kBFloat16:
    return 2;
  case kBool:
    return 1;
  }
  return 0; // no problem has other types
}

View mlir::flashattn::onnx::denseView(void *data, const int64_t (&sizes)[kMaxRank], int32_t type) {
  View view;
  view.data = static_cast<char *>(data);
  view.type = type;
  for (int64_t i = kMaxRank - 1, stride = 1; i >= 0; stride *= sizes[i--]) {
    view.sizes[i] = sizes[i];
    view.strides[i] = stride;
  }
  return view;
}

Result mlir::flashattn::onnx::setAttribute(Attributes &attributes, const char *name, double value) {
  for (const AttributeInfo &attribute : kAttributes) {
    if (std::strcmp(name, attribute.name) != 0)
      continue;
    if (attribute.integer && value != std::trunc(value))
      return refuse("expected attribute ", name, " to be an int but got ", value);
    if (attribute.integer)
      attributes.*attribute.integer = int64_t(value);
    else
      attributes.*attribute.number = float(value);
    return {};
  }
  return refuse("expected an attribute of Attention but got ", name);
}

Result mlir::flashattn::onnx::makeProblem(const Attributes &attributes,
                                          const Tensor *const inputs[kNumInputs], Problem &p) {
  if (Result read = readAttributes(attributes, p); !read)
    return read;
  if (Result checked = checkInputs(inputs); !checked)
    return checked;
  p.type = inputs[kQ]->type;
  p.isPacked = inputs[kQ]->rank == 3;
  if (Result made = makeView(*inputs[kQ], kQ, "q_num_heads", attributes.qNumHeads, p.q); !made)
    return made;
  if (Result made = makeView(*inputs[kK], kK, "kv_num_heads", attributes.kvNumHeads, p.k); !made)
    return made;
  if (Result made = makeView(*inputs[kV], kV, "kv_num_heads", attributes.kvNumHeads, p.v); !made)
    return made;
  p.batch = p.q.sizes[0], p.qHeads = p.q.sizes[1], p.queries = p.q.sizes[2];
  p.kvHeads = p.k.sizes[1], p.headSize = p.q.sizes[3], p.valueSize = p.v.sizes[3];
  if (Result checked = checkSizes(p); !checked)
    return checked;
  if (Result read = readPast(inputs[kPastKey], kPastKey, p.headSize, p, p.pastKey); !read)
    return read;
  if (Result read = readPast(inputs[kPastValue], kPastValue, p.valueSize, p, p.pastValue); !read)
    return read;
  p.past = p.pastKey.sizes[2];
  if (p.pastValue.sizes[2] != p.past)
    return refuse("expected past_value of ", p.past, " keys, as past_key has, but got ",
                  p.pastValue.sizes[2]);
  p.total = p.past + p.k.sizes[2];
  p.scale = attributes.scale.value_or(1 / std::sqrt(float(p.headSize)));
  if (Result read = readMask(inputs[kAttnMask], p); !read)
    return read;
  return readLengths(inputs[kNonpadKvSeqlen], p);
}
