//===- Npy.cpp -------------------------------------------------------------===//

#include "Npy.h"
#include "llvm/ADT/StringExtras.h"
#include "llvm/Support/Endian.h"
#include "llvm/Support/FileOutputBuffer.h"
#include "llvm/Support/FormatVariadic.h"
#include "llvm/Support/MemoryBuffer.h"

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

Expected<HostTensor> flashattn::readNpy(StringRef path) {
  auto fail = [&](const llvm::Twine &what) {
    return llvm::createStringError("cannot read '" + path + "': " + what);
  };
  auto file = llvm::MemoryBuffer::getFile(path, /*IsText=*/false,
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
                name);
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
  // With at most one dimension both orders are the same.
  if (!order->starts_with("False") && shape.size() > 1)
    return fail("expected C order but got Fortran order");

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
  if (!values.empty())
    std::memcpy(tensor->data(), values.data(), values.size());
  return tensor;
}

Error flashattn::writeNpy(StringRef path, const HostTensor &tensor) {
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

  auto fail = [&](Error error) {
    return llvm::createStringError("cannot write '" + path +
                                   "': " + llvm::toString(std::move(error)));
  };
  auto file = llvm::FileOutputBuffer::create(path, total + tensor.getNumBytes());
  if (!file)
    return fail(file.takeError());
  uint8_t *at = (*file)->getBufferStart();
  std::memcpy(at, kMagic.data(), kMagic.size());
  at[6] = 1, at[7] = 0;
  llvm::support::endian::write16le(at + 8, header.size());
  std::memcpy(at + kPrefix, header.data(), header.size());
  if (tensor.getNumBytes())
    std::memcpy(at + total, tensor.data(), tensor.getNumBytes());
  if (Error error = (*file)->commit())
    return fail(std::move(error));
  return Error::success();
}
