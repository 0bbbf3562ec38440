//===- Npy.cpp -------------------------------------------------------------===//

#include "Npy.h"
#include "llvm/ADT/StringExtras.h"
#include "llvm/Support/Endian.h"
#include "llvm/Support/FileOutputBuffer.h"
#include "llvm/Support/FormatVariadic.h"
#include "llvm/Support/MemoryBuffer.h"
#include "llvm/Support/raw_ostream.h"

#include <cstring>

using namespace mlir;
using namespace mlir::flashattn;
using llvm::Error;
using llvm::Expected;

static constexpr StringRef kMagic("\x93NUMPY", 6);

/// What stands behind `'key':` in the header, a Python dictionary.
static std::optional<StringRef> findValue(StringRef header, StringRef key) {
  size_t at = header.find(("'" + key + "':").str());
  if (at == StringRef::npos)
    return std::nullopt;
  return header.drop_front(at + key.size() + 3).ltrim();
}

static std::optional<Scalar> parseDescr(StringRef descr) {
  if (!descr.consume_front("<"))
    descr.consume_front("|");
  for (auto [name, scalar] : {std::pair<StringRef, Scalar>("f2", Scalar::F16),
                              {"f4", Scalar::F32},
                              {"f8", Scalar::F64},
                              {"u2", Scalar::BF16},
                              {"V2", Scalar::BF16},
                              {"b1", Scalar::I1},
                              {"i1", Scalar::I8},
                              {"i4", Scalar::I32},
                              {"i8", Scalar::I64}})
    if (descr == name)
      return scalar;
  return std::nullopt;
}

static StringRef getDescr(Scalar scalar) {
  switch (scalar) {
  case Scalar::F16:
    return "<f2";
  case Scalar::BF16:
    return "<u2";
  case Scalar::F32:
    return "<f4";
  case Scalar::F64:
    return "<f8";
  case Scalar::I1:
    return "|b1";
  case Scalar::I8:
    return "|i1";
  case Scalar::I32:
    return "<i4";
  case Scalar::I64:
  case Scalar::Index:
    return "<i8";
  }
  llvm_unreachable("unknown scalar");
}

/// Values whose first index runs fastest.
static void copyFromFortran(StringRef values, HostTensor &tensor) {
  ArrayRef<int64_t> shape = tensor.getShape();
  size_t width = getByteWidth(tensor.getScalar());
  for (int64_t i = 0; i < tensor.getNumElements(); ++i) {
    int64_t from = 0, rest = i, stride = tensor.getNumElements();
    for (size_t d = shape.size(); d-- > 0; rest /= shape[d]) {
      stride /= shape[d];
      from += rest % shape[d] * stride;
    }
    std::memcpy(tensor.data() + i * width, values.data() + from * width, width);
  }
}

Expected<HostTensor> flashattn::readNpy(StringRef path) {
  auto fail = [&](const llvm::Twine &what) {
    return llvm::createStringError("cannot read '" + path + "': " + what);
  };
  auto file = llvm::MemoryBuffer::getFileOrSTDIN(path, /*IsText=*/false,
                                                 /*RequiresNullTerminator=*/false);
  if (!file)
    return fail(file.getError().message());
  StringRef content = (*file)->getBuffer();
  if (!content.consume_front(kMagic) || content.size() < 4)
    return fail("expected an .npy file but got something else");
  unsigned version = uint8_t(content[0]);
  if (version < 1 || version > 3)
    return fail("expected version 1, 2 or 3 of the .npy format but got " + llvm::Twine(version));
  content = content.drop_front(2);
  size_t lengthBytes = version == 1 ? 2 : 4;
  if (content.size() < lengthBytes)
    return fail("the header is cut short");
  uint32_t length = version == 1 ? llvm::support::endian::read16le(content.data())
                                 : llvm::support::endian::read32le(content.data());
  content = content.drop_front(lengthBytes);
  if (content.size() < length)
    return fail(
        llvm::formatv("expected a header of {0} bytes but got {1}", length, content.size()).str());
  StringRef header = content.take_front(length), values = content.drop_front(length);

  std::optional<StringRef> descr = findValue(header, "descr"),
                           order = findValue(header, "fortran_order"),
                           shapeText = findValue(header, "shape");
  if (!descr || !order || !shapeText || !descr->consume_front("'") ||
      !shapeText->consume_front("("))
    return fail("the header lacks 'descr', 'fortran_order' or 'shape'");
  StringRef name = descr->take_until([](char c) { return c == '\''; });
  std::optional<Scalar> scalar = parseDescr(name);
  if (!scalar)
    return fail("expected elements of type <f2, <f4, <f8, <u2 (bf16), |b1, |i1, <i4 or <i8 but "
                "got " +
                name + ": save the array as one of them, as with .astype(numpy.float32)");
  SmallVector<int64_t> shape;
  SmallVector<StringRef> sizes;
  shapeText->take_until([](char c) { return c == ')'; })
      .split(sizes, ',', /*MaxSplit=*/-1, /*KeepEmpty=*/false);
  for (StringRef text : sizes) {
    int64_t size;
    if (text.trim().empty())
      continue;
    if (text.trim().getAsInteger(10, size) || size < 0)
      return fail("expected sizes in 'shape' but got " + text.trim());
    shape.push_back(size);
  }
  // Before memory is asked for: a damaged shape may be of any size.
  int64_t bytes = getByteWidth(*scalar);
  for (int64_t size : shape)
    if (llvm::MulOverflow(bytes, size, bytes))
      return fail("a tensor of type " + formatShape(shape, *scalar) +
                  " has too many elements to address");
  if (values.size() != size_t(bytes))
    return fail(llvm::formatv("expected {0} bytes of values for {1} but got {2}", bytes,
                              formatShape(shape, *scalar), values.size())
                    .str());
  Expected<HostTensor> tensor = HostTensor::create(*scalar, shape);
  if (!tensor)
    return fail(llvm::toString(tensor.takeError()));
  // With at most one dimension both orders are the same.
  if (!order->starts_with("False") && shape.size() > 1)
    copyFromFortran(values, *tensor);
  else if (!values.empty())
    std::memcpy(tensor->data(), values.data(), values.size());
  return tensor;
}

/// The magic number, the version and the header.
static std::string getHead(const HostTensor &tensor) {
  std::string header =
      "{'descr': '" + getDescr(tensor.getScalar()).str() + "', 'fortran_order': False, 'shape': (";
  for (int64_t size : tensor.getShape())
    header += std::to_string(size) + ", ";
  // A tuple of one keeps its comma, which is all that Python asks for.
  if (tensor.getShape().size() > 1)
    header.resize(header.size() - 2);
  header += "), }";
  // Values start at a multiple of 64 bytes, the header ends with a line feed.
  constexpr size_t kPrefix = 10, kAlignment = 64;
  size_t total = llvm::alignTo(kPrefix + header.size() + 1, kAlignment);
  header.append(total - kPrefix - header.size() - 1, ' ');
  header += '\n';
  std::string head = kMagic.str() + std::string("\1\0\0\0", kPrefix - kMagic.size());
  llvm::support::endian::write16le(head.data() + kPrefix - 2, header.size());
  return head + header;
}

static StringRef getValues(const HostTensor &tensor) {
  return StringRef(reinterpret_cast<const char *>(tensor.data()), tensor.getNumBytes());
}

Error flashattn::writeNpy(StringRef path, const HostTensor &tensor) {
  auto fail = [&](Error error) {
    return llvm::createStringError("cannot write '" + path +
                                   "': " + llvm::toString(std::move(error)));
  };
  std::string head = getHead(tensor);
  auto file = llvm::FileOutputBuffer::create(path, head.size() + tensor.getNumBytes());
  if (!file)
    return fail(file.takeError());
  llvm::copy(getValues(tensor), llvm::copy(head, (*file)->getBufferStart()));
  if (Error error = (*file)->commit())
    return fail(std::move(error));
  return Error::success();
}

Error flashattn::writeNpy(int descriptor, const HostTensor &tensor) {
  llvm::raw_fd_ostream os(descriptor, /*shouldClose=*/false);
  os << getHead(tensor) << getValues(tensor);
  os.flush();
  if (!os.has_error())
    return Error::success();
  std::string why = os.error().message();
  os.clear_error();
  return llvm::createStringError("cannot write standard output: " + why);
}
