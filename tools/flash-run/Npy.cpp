//===- Npy.cpp ------------------------------------------------------------===//

#include "Npy.h"
#include "flashattn/Support/OutputFile.h"
#include "llvm/ADT/StringExtras.h"
#include "llvm/Support/Endian.h"
#include "llvm/Support/FileSystem.h"
#include "llvm/Support/FormatVariadic.h"
#include "llvm/Support/raw_ostream.h"

#include <cstring>
#include <utility>

using namespace mlir;
using namespace mlir::flashattn;
using llvm::Error;
using llvm::Expected;
using llvm::MutableArrayRef;

static constexpr StringRef kMagic("\x93NUMPY", 6);

/// Returns the text after `'key':` in the header, a Python dictionary.
static std::optional<StringRef> findValue(StringRef header, StringRef key) {
  size_t at = header.find(("'" + key + "':").str());
  if (at == StringRef::npos)
    return std::nullopt;
  return header.drop_front(at + key.size() + 3).ltrim();
}

static std::optional<Scalar> parseDescr(StringRef descr, Scalar wanted) {
  if (!descr.consume_front("<"))
    descr.consume_front("|");
  if (isF8(wanted) && (descr == "u1" || descr == "V1"))
    return wanted;
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
  case Scalar::INDEX:
    return "<i8";
  case Scalar::F8E4M3FN:
  case Scalar::F8E5M2:
    return "|u1";
  }
  llvm_unreachable("unknown scalar");
}

/// Copies values in Fortran order, in which the first index varies fastest.
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

namespace {
/// An open file. Reads no more bytes than requested, because a device may never end.
class Input {
public:
  static Expected<Input> open(StringRef path) {
    if (path == "-")
      return Input(llvm::sys::fs::getStdinHandle(), /*isOwned=*/false);
    Expected<llvm::sys::fs::file_t> file = llvm::sys::fs::openNativeFileForRead(path);
    if (!file)
      return file.takeError();
    return Input(*file, /*isOwned=*/true);
  }
  Input(Input &&other) : file(other.file), isOwned(std::exchange(other.isOwned, false)) {}
  ~Input() {
    if (isOwned)
      llvm::sys::fs::closeFile(file);
  }

  /// Fills the buffer. Returns fewer bytes only at the end of the file.
  Expected<size_t> read(MutableArrayRef<char> buffer) {
    size_t count = 0;
    while (count < buffer.size()) {
      Expected<size_t> more = llvm::sys::fs::readNativeFile(file, buffer.drop_front(count));
      if (!more)
        return more.takeError();
      if (*more == 0)
        break;
      count += *more;
    }
    position += count;
    return count;
  }

  /// Returns the number of remaining bytes, if it is known before they are read.
  std::optional<int64_t> countLeft() const {
    llvm::sys::fs::file_status status;
    if (llvm::sys::fs::status(file, status) ||
        status.type() != llvm::sys::fs::file_type::regular_file || !isOwned)
      return std::nullopt;
    return int64_t(status.getSize()) - position;
  }

private:
  Input(llvm::sys::fs::file_t file, bool isOwned) : file(file), isOwned(isOwned) {}

  llvm::sys::fs::file_t file;
  bool isOwned;
  int64_t position = 0;
};

/// The content of the header.
struct Header {
  Scalar scalar;
  SmallVector<int64_t> shape;
  bool isFortran;
};
} // namespace

/// Reads the file up to the values.
static Expected<Header> readHeader(Input &input, Scalar wanted) {
  char magic[8];
  Expected<size_t> count = input.read(magic);
  if (!count)
    return count.takeError();
  if (*count < sizeof(magic) || !StringRef(magic, sizeof(magic)).starts_with(kMagic))
    return llvm::createStringError("expected an .npy file but got something else");
  unsigned version = uint8_t(magic[kMagic.size()]);
  if (version < 1 || version > 3)
    return llvm::createStringError("expected version 1, 2 or 3 of the .npy format but got " +
                                   llvm::Twine(version));
  char size[4] = {};
  size_t lengthBytes = version == 1 ? 2 : 4;
  count = input.read(MutableArrayRef(size).take_front(lengthBytes));
  if (!count)
    return count.takeError();
  if (*count < lengthBytes)
    return llvm::createStringError("the header is cut short");
  uint32_t length = llvm::support::endian::read32le(size);
  // Headers written by NumPy have a few hundred bytes.
  constexpr uint32_t kMostBytes = 1 << 20;
  if (length > kMostBytes)
    return llvm::createStringError(
        llvm::formatv("expected a header of at most {0} bytes but got {1}", kMostBytes, length));
  std::string text(length, ' ');
  count = input.read(MutableArrayRef(text.data(), text.size()));
  if (!count)
    return count.takeError();
  if (*count < length)
    return llvm::createStringError(
        llvm::formatv("expected a header of {0} bytes but got {1}", length, *count));

  std::optional<StringRef> descr = findValue(text, "descr"),
                           order = findValue(text, "fortran_order"),
                           shapeText = findValue(text, "shape");
  if (!descr || !order || !shapeText || !descr->consume_front("'") ||
      !shapeText->consume_front("("))
    return llvm::createStringError("the header lacks 'descr', 'fortran_order' or 'shape'");
  StringRef name = descr->take_until([](char c) { return c == '\''; });
  std::optional<Scalar> scalar = parseDescr(name, wanted);
  if (!scalar)
    return llvm::createStringError(
        "expected elements of type <f2, <f4, <f8, <u2 (bf16), |u1 (f8), |b1, |i1, <i4 or <i8 but "
        "got " +
        name + (name == "|u1" || name == "|V1" ? " for a tensor of " + getName(wanted).str() : "") +
        ": save the array as one of these types, as with .astype(numpy.float32)");
  Header header{*scalar, {}, !order->starts_with("False")};
  SmallVector<StringRef> sizes;
  shapeText->take_until([](char c) { return c == ')'; })
      .split(sizes, ',', /*MaxSplit=*/-1, /*KeepEmpty=*/false);
  for (StringRef text : sizes) {
    int64_t size;
    if (text.trim().empty())
      continue;
    if (text.trim().getAsInteger(10, size) || size < 0)
      return llvm::createStringError("expected sizes in 'shape' but got " + text.trim());
    header.shape.push_back(size);
  }
  return header;
}

static Expected<HostTensor> readArray(StringRef path, Scalar wanted) {
  Expected<Input> input = Input::open(path);
  if (!input)
    return input.takeError();
  Expected<Header> header = readHeader(*input, wanted);
  if (!header)
    return header.takeError();
  // Check before memory is allocated: a damaged shape may have any size.
  int64_t bytes = getByteWidth(header->scalar);
  std::string type = formatShape(header->shape, header->scalar);
  for (int64_t size : header->shape)
    if (llvm::MulOverflow(bytes, size, bytes))
      return llvm::createStringError("a tensor of type " + type +
                                     " has too many elements to address");
  auto refuse = [&](const llvm::Twine &got) {
    return llvm::createStringError("expected " + llvm::Twine(bytes) + " bytes of values for " +
                                   type + " but got " + got);
  };
  if (std::optional<int64_t> left = input->countLeft(); left && *left != bytes)
    return refuse(llvm::Twine(*left));
  Expected<HostTensor> tensor = HostTensor::create(header->scalar, header->shape);
  if (!tensor)
    return tensor.takeError();
  // With at most one dimension both orders are the same.
  bool isTurned = header->isFortran && header->shape.size() > 1;
  std::string turned(isTurned ? bytes : 0, 0);
  char *values = isTurned ? turned.data() : reinterpret_cast<char *>(tensor->data());
  Expected<size_t> count = input->read(MutableArrayRef(values, bytes));
  if (!count)
    return count.takeError();
  if (int64_t(*count) < bytes)
    return refuse(llvm::Twine(*count));
  char behind;
  count = input->read(behind);
  if (!count)
    return count.takeError();
  if (*count)
    return refuse("more");
  if (isTurned)
    copyFromFortran(turned, *tensor);
  return tensor;
}

Expected<HostTensor> flashattn::readNpy(StringRef path, Scalar wanted) {
  Expected<HostTensor> tensor = readArray(path, wanted);
  if (!tensor)
    return llvm::createStringError("cannot read '" + path +
                                   "': " + llvm::toString(tensor.takeError()));
  return tensor;
}

/// Returns the magic number, the version and the header.
static std::string getHead(const HostTensor &tensor) {
  std::string header =
      "{'descr': '" + getDescr(tensor.getScalar()).str() + "', 'fortran_order': False, 'shape': (";
  for (int64_t size : tensor.getShape())
    header += std::to_string(size) + ", ";
  // Python requires a trailing comma only in a tuple of one element.
  if (tensor.getShape().size() > 1)
    header.resize(header.size() - 2);
  header += "), }";
  // Values start at a multiple of 64 bytes; the header ends with a line feed.
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
  return writeOutputFile(path,
                         [&](raw_ostream &os) { os << getHead(tensor) << getValues(tensor); });
}

Error flashattn::writeNpy(int descriptor, const HostTensor &tensor) {
  return writeStandardOutput(descriptor,
                             [&](raw_ostream &os) { os << getHead(tensor) << getValues(tensor); });
}
